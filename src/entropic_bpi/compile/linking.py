"""Compile each function that Python calls (an *entry*) as a whole, with the functions that it calls (its *parts*).

Numba optimises every function together with its callees, generates machine code for it, and repeats this for each of its
callers. If there are many small functions, that takes most of the time. Here a function that compiled code calls is a
*part*: it is typed and lowered once, and linked without optimisation into every *entry* that needs it. Only entries are
optimised, turned into machine code and cached on disk.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from functools import cache, cached_property
from types import BuiltinFunctionType
from typing import Any, ClassVar

from llvmlite.binding import Linkage, create_pass_builder, create_pipeline_tuning_options
from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.core.types.misc import unliteral
from numba.core.typing.context import Context

from entropic_bpi.compile.lowering import KernelLower
from entropic_bpi.compile.records import register_record  # noqa: F401 (for the decorators)

# An entry that consists of more functions than this is large.
_MANY_FUNCTIONS = 30


class _PartLibrary(JITCodeLibrary):
    """The code of a part and of its own parts. It is linked into the code of its callers, which is then optimised."""

    def _optimize_final_module(self) -> None:
        """Do nothing: only the code of entries is optimised."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _PartCodegen(JITCPUCodegen):
    """Numba's code generator for the bodies of an entry's parallel loops: Numba compiles them as separate functions.

    With this generator they become parts of the entry.
    """

    _library_class = _PartLibrary

    def __init__(self, usual: JITCPUCodegen) -> None:
        vars(self).update(vars(usual))  # shares Numba's execution engine

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: a part is not loaded into memory on its own, and uses no Python objects."""


class EntryLibrary(JITCodeLibrary):
    """The code of an entry and of its parts. The parts become private functions, which LLVM may inline and remove.

    Only the second of Numba's two optimisation passes is run; the first one, which prepares the removal of reference counts,
    takes longer than it saves. Loops of large entries are neither unrolled nor vectorised: most iterate over a few
    successors, and every copy of a loop body takes long to compile.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage in (Linkage.linkonce_odr, Linkage.weak_odr):
                function.linkage = Linkage.private  # names of internal functions would be visible to other object files
        passes, builder = self._codegen._module_pass_manager()
        if sum(not function.is_declaration for function in self._final_module.functions) > _MANY_FUNCTIONS:
            options = create_pipeline_tuning_options(3)
            options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
            builder = create_pass_builder(self._codegen._tm, options)
            passes = builder.getModulePassManager()
            passes.add_refprune_pass()
        passes.run(self._final_module, builder)


class _SharedFlags(Flags):
    """Compiler options with a cached hash and one object for equal options: Numba looks them up for every operation."""

    _known: ClassVar[dict[Flags, _SharedFlags]] = {}

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def copy(self) -> _SharedFlags:
        return self._known.setdefault(Flags(self), _SharedFlags(self))


class _Typing(Context):
    """Numba's typing context with a cache for the types of operations, which Numba otherwise resolves every time."""

    def __init__(self, usual: Context) -> None:
        vars(self).update(vars(usual))
        self._known: dict[Any, Any] = {}

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(getattr(func, "typing_key", None), BuiltinFunctionType):
            return super().resolve_function_type(func, args, kws)
        key = func, tuple(args)
        if self._known.get(key) is None:  # failures are not cached: a signature may be registered later
            self._known[key] = super().resolve_function_type(func, args, kws)
        return self._known[key]


_typing_of = cache(_Typing)  # one context for each context of Numba


class _Compiler(Compiler):
    def __init__(self, typing: Any, *arguments: Any) -> None:
        super().__init__(typing if isinstance(typing, _Typing) else _typing_of(typing), *arguments)
        self.state.flags = _SharedFlags(self.state.flags)

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(_Lowering if step is NativeLowering else step, name) for step, name in pipeline.passes]
        return pipelines


class EntryCompiler(_Compiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.library = EntryLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        if state.flags.auto_parallel.enabled:
            state.targetctx = state.targetctx.subtarget(_internal_codegen=_PartCodegen(state.targetctx.codegen()))
        return super().define_pipelines()


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "entropic_bpi_lowering"
    lowering_class = KernelLower


@register_pass(mutates_CFG=False, analysis_only=True)
class _OfferPart(LoweringPass):
    """Register a part with Numba, instead of making it executable."""

    _name = "entropic_bpi_offer_part"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        lowered, library = state.cr, state.library
        name = state.func_id.func_name
        entry = make_function(lowered.fndesc.lookup_module(), name, name, 0, lowered.env, (library,))
        state.targetctx.insert_user_function(entry, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class PartCompiler(_Compiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.flags.no_compile = True
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        (pipeline,) = super().define_pipelines()
        pipeline.add_pass_after(_OfferPart, _Lowering)
        pipeline.finalize()
        return [pipeline]


class Part(CPUDispatcher):
    """A function that only compiled code calls. It is compiled once for each signature of types, not for each constant."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        args, kws = [unliteral(arg) for arg in args], {name: unliteral(arg) for name, arg in kws.items()}
        return super().get_call_template(args, kws)


class Entry(CPUDispatcher):
    """A function that Python calls. Compiled code calls its ``part`` instead."""

    part: Any

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)
