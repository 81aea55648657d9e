"""The ways to compile a kernel; no other module calls Numba's own decorators.

Compiled code is kept on disk where that is possible. Where it is not (no folder can be written, the disk is full, a file
is damaged) the program compiles again and says so once: a cache may never stop a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from numba import njit
from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering

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


class _Part(JITCodeLibrary):
    """Code that is linked into that of its callers, which is then optimised as a whole; it is never run by itself."""

    def _optimize_final_module(self) -> None:
        """Left to the callers."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class _Offer(LoweringPass):
    """Make a part known to its callers."""

    _name = "offer"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        lowered, name = state.cr, state.func_id.func_name
        entry = make_function(lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,))
        state["cr"] = lowered._replace(cfunc=entry)
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        return True


class _PartCompiler(Compiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.flags.no_compile = True
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.add_pass_after(_Offer, NativeLowering)
            pipeline.finalize()
        return pipelines


# No reference counting: where nothing is allocated, counting the arrays taken out of records would be half of the work.
_LEAN: dict[str, Any] = {"_nrt": False}


def _jit(function: Function, **options: Any) -> Function:
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        dispatcher = njit(cache=True, **options)(function)
    except RuntimeError as error:  # no folder for the cache
        _tell(error)
        return cast(Function, njit(**options)(function))
    if not isinstance(dispatcher, FunctionType):  # it is one where compiling is switched off
        dispatcher._cache = _ForgivingCache(dispatcher._cache)
    return cast(Function, dispatcher)


def compiled(function: Function) -> Function:
    """Compile at the first call, keep the result on disk, release the interpreter lock.

    For functions that allocate nothing: all memory is passed in. What allocates does not compile.
    """
    return _jit(function, **_LEAN)


def allocating(function: Function) -> Function:
    """The same for functions that allocate."""
    return _jit(function)


def helper(function: Function) -> Function:
    """``compiled`` for what is small, merged into its callers: a call would cost more than its body."""
    return _jit(function, forceinline=True, **_LEAN)


def inner(function: Function) -> Function:
    """``compiled`` for what only compiled code calls: without the parts that Python needs, compilation is much shorter."""
    return _inner(function)


def inlined(function: Function) -> Function:
    """``inner`` and ``helper`` at once."""
    return _inner(function, forceinline=True)


def _inner(function: Function, **options: Any) -> Function:
    options |= {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_LEAN}
    return cast(Function, njit(pipeline_class=_PartCompiler, **options)(function))


def parallel(function: Function) -> Function:
    """With several threads over the function's ``prange``; the cache knows it by a name of its own."""
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f"{function.__qualname__}.parallel"
    twin.__module__ = function.__module__
    return cast(Function, _jit(twin, parallel=True))
