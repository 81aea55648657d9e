"""What needs a process of its own: the peak of the memory, and the time before a first result.

``python -m benchmarks.fresh NAME SIZE`` is such a process; it prints its seconds and its peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import entropic_bpi as eb
from benchmarks.bench import Bench, sparse_mdp
from benchmarks.peer_side.usage import peak_memory
from benchmarks.peers import PeerError, named
from benchmarks.table import Row

MEMORY, START = "memory", "start"
ACTIONS, SUCCESSORS, HORIZON = 4, 5, 10
GIB = 2**30


def _solve(n_states: int) -> None:
    eb.solve(sparse_mdp(n_states, ACTIONS, SUCCESSORS, HORIZON), 0.1)


def _identify_large(n_states: int) -> None:
    mdp = eb.instances.garnet(n_states, 4, 3, horizon=20, seed=0)
    goal = {"beta": 0.3, "eps": 0.1, "delta": 0.1, "max_episodes": 1000, "replan": 1.0, "seed": 0}
    eb.identify(mdp, **goal, stationary=True, successors="model")


def _identify_bridge(_: int) -> None:
    goal = {"beta": -1.0, "eps": 0.2, "delta": 0.1, "seed": 0}
    eb.identify(eb.instances.risky_bridge(), **goal, successors="model")


def _sweep(workers: int) -> None:
    from entropic_bpi import experiments

    runs = experiments.grid(horizon=7, method="kl", beta=[2.5, 4.5], seeds=8, replan=0.01)
    with tempfile.TemporaryDirectory() as folder:
        experiments.run(runs, folder, workers=workers, progress=False)


JOBS: dict[str, Callable[[int], None]] = {
    "solve": _solve,
    "identify-large": _identify_large,
    "identify-bridge": _identify_bridge,
    "sweep": _sweep,
}


class Usage(NamedTuple):
    """Seconds of the job and of the whole process, and the peak of its memory in bytes."""

    job: float
    process: float
    peak: float


def alone(job: str, size: int = 0, **environment: str) -> Usage:
    """Do a job in a fresh process."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fresh", job, str(size)],
        cwd=Path(__file__).parents[1],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = json.loads(done.stdout)
    return Usage(seconds, time.perf_counter() - began, peak)


def memory(bench: Bench) -> Iterator[Row]:
    """Peak resident memory, building the model included."""
    states = bench.pick(1_000_000, 100_000)
    what = f"solve, sparse S = {states:,}, A = {ACTIONS}, {SUCCESSORS} successors, H = {HORIZON}"
    ours = alone("solve", states).peak / GIB
    theirs, note = None, ""
    if bench.peers is not None:
        try:
            shape = (states, ACTIONS, SUCCESSORS)
            job = {"horizon": HORIZON, "repeats": 1, "sparse": shape}
            theirs = bench.peers.once("solvers", "quantecon_planning", **job)["peak"] / GIB
        except PeerError as error:
            note = f"it cannot: {error}"
    peer = named("quantecon") if bench.peers else ""
    yield Row(MEMORY, what, "GiB", ours, theirs, peer, theirs / ours if theirs else None, note=note)
    states = bench.pick(20_000, 2_000)
    what = f"identify, kl, garnet S = {states:,}, A = 4, 3 successors, H = 20, 1000 episodes"
    yield Row(MEMORY, what, "GiB", alone("identify-large", states).peak / GIB, note="no peer has this job")


def start(bench: Bench) -> Iterator[Row]:
    """A first result: ``identify`` on the risky bridge in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        first = alone("identify-bridge", NUMBA_CACHE_DIR=folder)
        again = [alone("identify-bridge", NUMBA_CACHE_DIR=folder) for _ in range(bench.rounds)]
    seconds = sorted(run.process for run in again)
    yield Row(START, "first identify, nothing compiled yet", "s", first.process, note="once per installation")
    spread = f"{seconds[0]:.2f} to {seconds[-1]:.2f} s over {len(seconds)} processes"
    yield Row(START, "first identify of a later process", "s", seconds[len(seconds) // 2], note=spread)


if __name__ == "__main__":
    start_of_job = time.perf_counter()
    JOBS[sys.argv[1]](int(sys.argv[2]))
    seconds_of_job = time.perf_counter() - start_of_job
    print(json.dumps([seconds_of_job, peak_memory()]))
