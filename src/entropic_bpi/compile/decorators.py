"""The ways to compile a kernel; no other module calls Numba's own decorators.

Compiled code is kept on disk where that is possible. Where it is not (no folder can be written, the disk is full, a file
is damaged) the program compiles again and says so once: a cache may never stop a run.

Kernels are linked by :mod:`entropic_bpi.compile.linking`, which halves the time to compile and uses internal parts of
Numba. If a version of Numba lacks one of them, or if the environment variable ``ENTROPIC_BPI_PLAIN_NUMBA`` is set, Numba's
own compilation is used instead: it takes longer and gives the same results.
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core import event

# A kernel keeps the type that it was written with; the dtypes of its arrays are Numba's affair.
Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

# Numba's types say less of it than there is.
_config: Any = numba.config

_told = False

linking: Any = None
if not os.environ.get("ENTROPIC_BPI_PLAIN_NUMBA"):
    try:
        from entropic_bpi.compile import linking
    except Exception as error:  # a new version of Numba may have renamed or removed anything that is internal
        warnings.warn(
            f"kernels are compiled in Numba's own way, which takes longer ({type(error).__name__}: {error}); "
            "the results are the same",
            RuntimeWarning,
            stacklevel=2,
        )


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


class _CompileClock(event.Listener):
    """Adds up the ``seconds`` that go into compiling, and tells the ``observers`` when it begins.

    Meanwhile no cycles of objects are looked for: compiling makes millions that live as long.
    """

    def __init__(self) -> None:
        self.seconds, self.depth, self.began, self.collecting = 0.0, 0, 0.0, False
        self.observers: list[Callable[[], None]] = []

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            self.began, self.collecting = time.perf_counter(), gc.isenabled()
            gc.disable()
            for observer in self.observers:
                observer()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.began
            if self.collecting:
                gc.enable()


compile_clock = _CompileClock()
event.register("numba:compile", compile_clock)  # type: ignore[no-untyped-call]


def run_clock() -> float:
    """Seconds since some moment, without those that went into compiling."""
    return time.perf_counter() - compile_clock.seconds


# No reference counting: where nothing is allocated, counting the arrays taken out of records would be half of the work.
_LEAN: dict[str, Any] = {"_nrt": False}
_OPTIONS: dict[str, Any] = {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy"}
_OPTIONS["no_cfunc_wrapper"] = True


def _part(function: Function, **options: Any) -> Any:
    options = _OPTIONS | options
    if linking is None or _config.DISABLE_JIT:  # Numba then returns the function as it is
        return numba.jit(**options)(function)
    options["no_cpython_wrapper"] = True
    return linking.Part(function, targetoptions=options, pipeline_class=linking.PartCompiler)


def _entry(function: Function, **options: Any) -> Any:
    entry = part = _part(function, **options)
    if _config.DISABLE_JIT:
        return function
    if linking is not None:
        entry = linking.Entry(function, targetoptions=_OPTIONS | options, pipeline_class=linking.EntryCompiler)
        entry.part = part
    try:
        entry.enable_caching()
        entry._cache = _ForgivingCache(entry._cache)
    except RuntimeError as error:  # no folder for the cache
        _tell(error)
    return entry


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


def by_pointer(cls: Class) -> Class:
    """A class of named tuples that compiled code takes by one pointer, where linking is available."""
    if linking is not None:
        linking.register_record(cls)
    return cls


def parallel(function: Function) -> Function:
    """With several threads over the function's ``prange``; the cache knows it by a name of its own."""
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f"{function.__qualname__}.parallel"
    twin.__module__ = function.__module__
    return cast(Function, _entry(twin, parallel=True))


def serial(function: Function) -> Function:
    """``inner`` for code with a ``prange`` that a thread of a GPU, which does not know it, goes through alone."""
    twin = FunctionType(function.__code__, {**function.__globals__, "prange": range}, function.__name__)
    return inner(cast(Function, twin))
