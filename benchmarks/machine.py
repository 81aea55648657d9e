"""The machine that the figures belong to: what it is, and how fast it does the elementary things."""

from __future__ import annotations

import math
import os
import platform
import sys
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numba import get_num_threads, njit, prange

from benchmarks.timing import per_unit, race

SIZE = 1_000_000


def description() -> list[str]:
    """What to know about the machine, one thing a line."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "gymnasium"))
    return [
        f"CPU: {_cpu()}, {cores()} cores; memory: {_memory()}",
        f"{platform.system()} {platform.release()}, Python {sys.version.split()[0]}, {packages}",
        f"load average at the start (1, 5, 15 minutes): {load}",
    ]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):
        return "unknown"


@njit(parallel=True)
def _triad(a, b, c):
    for i in prange(a.size):
        a[i] = b[i] + 3.0 * c[i]


@njit(parallel=True)
def _gather(indices, values, sums, chunks):
    for chunk in prange(chunks):
        total = 0.0
        for j in range(chunk * indices.size // chunks, (chunk + 1) * indices.size // chunks):
            total += values[np.uint64(indices[j])]
        sums[chunk] = total


@njit
def _exp(x, y):
    for i in range(x.size):
        y[i] = math.exp(x[i])


@njit
def _log(x, y):
    for i in range(x.size):
        y[i] = math.log(x[i])


@njit
def _sqrt(x, y):
    for i in range(x.size):
        y[i] = math.sqrt(x[i])


@njit
def _multiply_add(x, y):
    """Four sums at a time, as many as a row with four successors has; not vectorised, as no row is long enough."""
    a = b = c = d = 0.0
    for i in range(0, x.size, 4):
        a, b = a + x[i] * y[i], b + x[i + 1] * y[i + 1]
        c, d = c + x[i + 2] * y[i + 2], d + x[i + 3] * y[i + 3]
    return a + b + c + d


@njit
def _draw(rng, y):
    for i in range(y.size):
        y[i] = rng.random()


class Rates:
    """How many elementary operations a second, measured when first asked for. One core unless said otherwise."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.x, self.y = np.random.default_rng(0).random(SIZE) + 0.5, np.empty(SIZE)

    def _rate(self, call) -> float:
        return 1.0 / race(self.rounds, it=per_unit(call, SIZE)).median("it")

    @cached_property
    def exps(self) -> float:
        return self._rate(lambda: _exp(self.x, self.y))

    @cached_property
    def logs(self) -> float:
        return self._rate(lambda: _log(self.x, self.y))

    @cached_property
    def roots(self) -> float:
        return self._rate(lambda: _sqrt(self.x, self.y))

    @cached_property
    def multiply_adds(self) -> float:
        return self._rate(lambda: _multiply_add(self.x, self.x))

    @cached_property
    def draws(self) -> float:
        rng = np.random.default_rng(0)
        return self._rate(lambda: _draw(rng, self.y))

    @cached_property
    def bandwidth(self) -> float:
        """Bytes a second of a triad on all cores, far outside the caches: two arrays read, one written."""
        a, b, c = (np.ones(16 * SIZE) for _ in range(3))
        return 24.0 / race(self.rounds, it=per_unit(lambda: _triad(a, b, c), a.size)).median("it")

    def gathers(self, indices: np.ndarray, values: np.ndarray) -> float:
        """Entries a second, on all cores, of a loop that only adds up the values that the indices point to."""
        chunks = 64 * get_num_threads()
        sums = np.empty(chunks)
        call = per_unit(lambda: _gather(indices, values, sums, chunks), indices.size)
        return 1.0 / race(self.rounds, it=call).median("it")
