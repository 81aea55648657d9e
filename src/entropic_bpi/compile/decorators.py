"""The ways to compile a kernel; no other module calls Numba's own decorators.

Compiled code is cached on disk if possible. Otherwise (no folder is writable, the disk is full, a file is damaged) the
program compiles again and warns once: a failure of the cache never stops a run.

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

# Decorators return a function of the same static type. The dtypes of its arrays are checked by Numba, not by mypy.
Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

# Numba's annotations do not declare all options.
_config: Any = numba.config

_has_warned = False

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


def _warn_once(reason: BaseException) -> None:
    """Warn, once per process, that compiled code is not cached."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn(
            f"compiled code cannot be cached on disk, so every start compiles again ({reason}); "
            "set NUMBA_CACHE_DIR to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )


class _ForgivingCache:
    """A wrapper of Numba's cache of one function that turns failures into a warning."""

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
        except Exception as error:  # unpickling a damaged file can raise any exception
            _warn_once(error)
        try:
            self._cache.flush()  # replace the damaged index by an empty one
        except Exception:
            self._cache.disable()
        return None


class _CompileClock(event.Listener):
    """Measures the total time of compilations in ``seconds``, and calls the ``observers`` when a compilation begins.

    The garbage collector is disabled during a compilation: Numba creates millions of objects that are needed until its end,
    and the collector would examine them again and again.
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
    """Return seconds since an arbitrary moment, without the time of compilations."""
    return time.perf_counter() - compile_clock.seconds


# Functions that allocate nothing need no reference counts, which take half of the time if arrays are read from records.
_WITHOUT_COUNTING: dict[str, Any] = {"_nrt": False}
_OPTIONS: dict[str, Any] = {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy"}
_OPTIONS["no_cfunc_wrapper"] = True


def _part(function: Function, **options: Any) -> Any:
    options = _OPTIONS | options
    if linking is None or _config.DISABLE_JIT:  # with DISABLE_JIT, numba.jit returns the function unchanged
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
        _warn_once(error)
    return entry


def compiled(function: Function) -> Function:
    """Compile a function at its first call, cache the result on disk, and release the interpreter lock during calls.

    The function must not allocate memory: code that allocates does not compile. Use :func:`allocating` for it.
    """
    return cast(Function, _entry(function, **_WITHOUT_COUNTING))


def allocating(function: Function) -> Function:
    """Compile a function that allocates memory; otherwise like :func:`compiled`."""
    return cast(Function, _entry(function))


def helper(function: Function) -> Function:
    """Compile a small function that is also inlined into compiled callers; otherwise like :func:`compiled`."""
    return cast(Function, _entry(function, forceinline=True, **_WITHOUT_COUNTING))


def inner(function: Function) -> Function:
    """Compile a function that only compiled code calls. Without an interface to Python, this takes much less time."""
    return cast(Function, _part(function, **_WITHOUT_COUNTING))


def inlined(function: Function) -> Function:
    """Compile a small function that only compiled code calls, and inline it into its callers."""
    return cast(Function, _part(function, forceinline=True, **_WITHOUT_COUNTING))


def by_pointer(cls: Class) -> Class:
    """Make compiled code receive instances of a named tuple class by one pointer, if linking is available."""
    if linking is not None:
        linking.register_record(cls)
    return cls


def parallel(function: Function) -> Function:
    """Compile a variant of the function that runs its ``prange`` in several threads; it has its own name in the cache."""
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f"{function.__qualname__}.parallel"
    twin.__module__ = function.__module__
    return cast(Function, _entry(twin, parallel=True))


def serial(function: Function) -> Function:
    """Compile a variant of the function with ``range`` for ``prange``, for GPU threads; otherwise like :func:`inner`."""
    twin = FunctionType(function.__code__, {**function.__globals__, "prange": range}, function.__name__)
    return inner(cast(Function, twin))
