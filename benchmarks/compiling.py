"""Where the time before a first answer goes: what every function of a first ``identify`` takes to compile.

``python -m benchmarks.compiling`` is a process that has nothing compiled; it prints its functions, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from numba.core import event

import entropic_bpi as eb
from benchmarks.bench import Bench
from benchmarks.table import Row

PART = "compiling"
# So many functions that take most by themselves get rows.
LONGEST = 8


class Function(NamedTuple):
    """A function that was compiled: seconds of the processor by itself and with all that it made compile.

    ``depth`` counts the functions that were waiting for it: 0 is one that Python calls.
    """

    name: str
    alone: float
    together: float
    depth: int


class Recorder(event.Listener):
    """Notes what every function takes."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.waiting: list[tuple[float, float]] = []  # when each began, and what others took since

    def on_start(self, event: Any) -> None:
        self.waiting.append((time.process_time(), 0.0))

    def on_end(self, event: Any) -> None:
        began, others = self.waiting.pop()
        together = time.process_time() - began
        if self.waiting:
            caller, so_far = self.waiting[-1]
            self.waiting[-1] = caller, so_far + together
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self.functions.append(Function(name, together - others, together, len(self.waiting)))


def recorded() -> list[Function]:
    """What a fresh process compiles to identify a policy of the risky bridge."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.compiling"],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    return [Function(*fields) for fields in json.loads(done.stdout)]


def compiling(bench: Bench) -> Iterator[Row]:
    functions = recorded()
    entries = [each for each in functions if each.depth == 0]
    total = sum(each.together for each in entries)
    yield Row(
        PART, "all of it", "s", total, note=f"{len(functions)} functions, {len(entries)} of them called by Python"
    )
    for each in sorted(entries, key=lambda each: -each.together):
        note = f"{each.alone:.2g} s by itself: optimising all and making machine code of it"
        yield Row(PART, f"{each.name}, with what only it needs", "s", each.together, note=note)
    parts = sorted((each for each in functions if each.depth > 0), key=lambda each: -each.alone)
    for each in parts[:LONGEST]:
        yield Row(PART, f"{each.name}, by itself", "s", each.alone)


def identify() -> None:
    """Identify a policy as README's first command does; print what was compiled."""
    recorder = Recorder()
    with event.install_listener("numba:compile", recorder):
        eb.identify(eb.instances.risky_bridge(), beta=2.5, eps=0.2, delta=0.1, successors="model", seed=0)
    print(json.dumps(recorder.functions))


if __name__ == "__main__":
    identify()
