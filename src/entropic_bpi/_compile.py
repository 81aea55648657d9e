"""The ways to compile a kernel; no other module calls Numba's own decorators.

Compiled code is kept on disk where that is possible. Where it is not (no folder can be written, the disk is full, a file
is damaged) the program compiles again and says so once: a cache may never stop a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled", "inlined", "inner", "parallel"]

# What a decorator returns is Any: the types of a kernel are the dtypes of its arrays, which mypy cannot see.
Function = Callable[..., Any]

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


def _jit(function: Function, **options: Any) -> Any:
    try:
        dispatcher = njit(cache=True, **options)(function)
    except RuntimeError as error:  # no folder for the cache
        _tell(error)
        return njit(**options)(function)
    dispatcher._cache = _ForgivingCache(dispatcher._cache)
    return dispatcher


def compiled(**options: Any) -> Callable[[Function], Any]:
    """Compile at the first call, keep the result on disk, release the interpreter lock."""
    return lambda function: _jit(function, nogil=True, **options)


def inlined(**options: Any) -> Callable[[Function], Any]:
    """The same for a small helper, merged into its callers: a call would cost more than its body."""
    return compiled(forceinline=True, error_model="numpy", **options)


def inner(function: Function) -> Any:
    """For functions that only compiled code calls: without the parts that Python needs, compilation is much shorter.

    They allocate nothing, so reference counting is off: counting the arrays taken out of tuples would be half of the work.
    """
    options: dict[str, Any] = {
        "error_model": "numpy",
        "_nrt": False,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
    }
    return njit(nogil=True, **options)(function)


def parallel(function: Function) -> Any:
    """With several threads over the function's ``prange``."""
    return _jit(function, nogil=True, parallel=True)
