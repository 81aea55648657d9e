"""The ways to compile a kernel; no other module calls Numba's own decorators.

A function that compiled code calls is a *part*: it is typed and lowered once, and linked as it is into every function
that Python calls, an *entry*. Only entries are optimised, turned into machine code and kept on disk, each with its parts as
a whole. Numba's own way is to do all of this for every function and again for each of its callers, which takes most of the
time where functions are many and small.

Compiled code is kept on disk where that is possible. Where it is not (no folder can be written, the disk is full, a file
is damaged) the program compiles again and says so once: a cache may never stop a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from numba import config
from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.types import unliteral

__all__ = ["allocating", "compiled", "helper", "inlined", "inner", "parallel"]

# A kernel keeps the type that it was written with; the dtypes of its arrays are Numba's affair.
Function = TypeVar("Function", bound=Callable[..., Any])

_told = False


def _tell(reason: BaseException) -> None:
    """Warn, once per process, that compiled code is not kept."""
    global _told
    if not _told:
        _told = True
        warnings.warn(
            f"compiled code cannot be kept on disk, so every start compiles again ({reason}); "
            "set NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )


class _ForgivingCache:
    """Numba's cache of one function, whose failures only cost time."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *args: Any) -> Any:
        return self._try(self._cache.load_overload, *args)

    def save_overload(self, *args: Any) -> None:
        self._try(self._cache.save_overload, *args)

    def _try(self, operation: Callable[..., Any], *args: Any) -> Any:
        try:
            return operation(*args)
        except Exception as error:  # damaged files raise whatever unpickling them raises
            _tell(error)
        try:
            self._cache.flush()  # start the damaged index anew
        except Exception:
            self._cache.disable()
        return None


class _PartLibrary(JITCodeLibrary):
    """The code of a part, with that of its own parts: linked into its callers' before that is optimised."""

    def _optimize_final_module(self) -> None:
        """That is done for the entries."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


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


class _PartCompiler(Compiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.flags.no_compile = True
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        (pipeline,) = super().define_pipelines()
        pipeline.add_pass_after(_OfferPart, NativeLowering)
        pipeline.finalize()
        return [pipeline]


class _Part(CPUDispatcher):
    """A function that compiled code alone calls. It is compiled for types, not once more for each constant."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        args, kws = [unliteral(arg) for arg in args], {name: unliteral(arg) for name, arg in kws.items()}
        return super().get_call_template(args, kws)


class _Entry(CPUDispatcher):
    """A function that Python calls; compiled code calls its ``part``."""

    part: _Part

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)


# No reference counting: where nothing is allocated, counting the arrays taken out of records would be half of the work.
_LEAN: dict[str, Any] = {"_nrt": False}


def _part(function: Function, **options: Any) -> Any:
    if config.DISABLE_JIT:
        return function
    options = {**_options(options), "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _Part(function, targetoptions=options, pipeline_class=_PartCompiler)


def _entry(function: Function, **options: Any) -> Any:
    if config.DISABLE_JIT:
        return function
    entry = _Entry(function, targetoptions=_options(options))
    entry.part = _part(function, **options)
    try:
        entry.enable_caching()
        entry._cache = _ForgivingCache(entry._cache)
    except RuntimeError as error:  # no folder for the cache
        _tell(error)
    return entry


def _options(more: dict[str, Any]) -> dict[str, Any]:
    return {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy", **more}


def compiled(function: Function) -> Function:
    """Compile at the first call, keep the result on disk, release the interpreter lock.

    For functions that allocate nothing: all memory is passed in. What allocates does not compile.
    """
    return cast(Function, _entry(function, **_LEAN))


def allocating(function: Function) -> Function:
    """The same for functions that allocate."""
    return cast(Function, _entry(function))


def helper(function: Function) -> Function:
    """``compiled`` for what is small, merged into its callers: a call would cost more than its body."""
    return cast(Function, _entry(function, forceinline=True, **_LEAN))


def inner(function: Function) -> Function:
    """``compiled`` for what only compiled code calls: without the parts that Python needs, compilation is much shorter."""
    return cast(Function, _part(function, **_LEAN))


def inlined(function: Function) -> Function:
    """``inner`` and ``helper`` at once."""
    return cast(Function, _part(function, forceinline=True, **_LEAN))


def parallel(function: Function) -> Function:
    """With several threads over the function's ``prange``; the cache knows it by a name of its own."""
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f"{function.__qualname__}.parallel"
    twin.__module__ = function.__module__
    return cast(Function, _entry(twin, parallel=True))
