"""Compile what belongs together as a whole: entries, which Python calls, with the parts that they consist of.

Numba optimises every function and turns it into machine code by itself, with all that it calls, and does the same again
for each of its callers: where functions are many and small, that takes most of the time. Here a function that compiled code
calls is a *part*: it is typed and lowered once, and linked as it is into every *entry* that needs it. Only entries are
optimised, turned into machine code and kept on disk.
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

# An entry with more functions is large.
_MANY_FUNCTIONS = 30


class _PartLibrary(JITCodeLibrary):
    """The code of a part, with that of its own parts: linked into its callers' before that is optimised."""

    def _optimize_final_module(self) -> None:
        """That is done for the entries."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _PartCodegen(JITCPUCodegen):
    """Numba's code generator, that of parts: so are the bodies of an entry's parallel loops, which Numba compiles itself."""

    _library_class = _PartLibrary

    def __init__(self, usual: JITCPUCodegen) -> None:
        vars(self).update(vars(usual))  # one engine for all

    def set_env(self, name: str, environment: Any) -> None:
        """A part is nowhere in memory, and needs no environment: it works without Python."""


class EntryLibrary(JITCodeLibrary):
    """The code of an entry with that of its parts, which nobody else can call: it may be rearranged at will.

    One pass over the whole: Numba's first one, which looks for reference counts, leaves less to merge for the second. Loops
    of large entries are neither unrolled nor vectorised: most go over a handful of successors, and each copy takes long to
    compile.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage in (Linkage.linkonce_odr, Linkage.weak_odr):
                function.linkage = Linkage.private  # not internal, whose names other objects would find
        passes, builder = self._codegen._module_pass_manager()
        if sum(not function.is_declaration for function in self._final_module.functions) > _MANY_FUNCTIONS:
            options = create_pipeline_tuning_options(3)
            options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
            builder = create_pass_builder(self._codegen._tm, options)
            passes = builder.getModulePassManager()
            passes.add_refprune_pass()
        passes.run(self._final_module, builder)


class _SharedFlags(Flags):
    """Options of which equal ones are one object: Numba looks them up with every operation that it types."""

    _known: ClassVar[dict[Flags, _SharedFlags]] = {}

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def copy(self) -> _SharedFlags:
        return self._known.setdefault(Flags(self), _SharedFlags(self))


class _Typing(Context):
    """Numba's typing context, which remembers the types of operations instead of looking at each of their forms again."""

    def __init__(self, usual: Context) -> None:
        vars(self).update(vars(usual))
        self._known: dict[Any, Any] = {}

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if kws or not isinstance(getattr(func, "typing_key", None), BuiltinFunctionType):
            return super().resolve_function_type(func, args, kws)
        key = func, tuple(args)
        if self._known.get(key) is None:  # what has no type may have one later
            self._known[key] = super().resolve_function_type(func, args, kws)
        return self._known[key]


_typing_of = cache(_Typing)  # one for each of Numba's


class _Compiler(Compiler):
    def __init__(self, typing: Any, *arguments: Any) -> None:
        super().__init__(typing if isinstance(typing, _Typing) else _typing_of(typing), *arguments)
        self.state.flags = _SharedFlags(self.state.flags)

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(_Lowering if step is NativeLowering else step, told) for step, told in pipeline.passes]
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
    """Make a part known to Numba, in the place of what makes it executable."""

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
    """A function that compiled code alone calls. It is compiled for types, not once more for each constant."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        args, kws = [unliteral(arg) for arg in args], {name: unliteral(arg) for name, arg in kws.items()}
        return super().get_call_template(args, kws)


class Entry(CPUDispatcher):
    """A function that Python calls; compiled code calls its ``part``."""

    part: Any

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)
