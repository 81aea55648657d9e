"""How long ``verify`` takes beside the run that it checks, and beside its reference in plain Python.

``python -m benchmarks.verifying [--states 2000 20000 100000] [--reference 2000]``: random models with 4 actions, 3 known
successors of each, 20 steps and pooled counts, ε = 0.5, plans at every doubling. Seconds are those of the processor, so
that other work on the machine disturbs them less; each check is made by a fresh process, whose peak of memory is shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entropic_bpi as eb
from benchmarks.peer_side.usage import peak_memory

ROOT = Path(__file__).parents[1]
MIB = 2**20


def run(n_states: int, path: Path) -> tuple[float, float, int]:
    """Save the certificate of a run; seconds of the processor, of the clock and episodes, without those of compiling."""
    goal: dict[str, Any] = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "stationary": True, "successors": "model"}
    goal |= {"replan": 1.0, "seed": 0}
    # A small run of two thousand states compiles all that the large one needs.
    eb.identify(eb.instances.garnet(2000, 4, 3, horizon=20, seed=1), **goal, max_episodes=2)
    mdp = eb.instances.garnet(n_states, 4, 3, horizon=20, seed=0)
    clock, processor = time.perf_counter(), time.process_time()
    result = eb.identify(mdp, **goal, max_episodes=10**9)
    seconds = time.process_time() - processor, time.perf_counter() - clock
    result.certificate.save(path)
    return *seconds, result.episodes


def check(path: Path, verify: Callable[[Path], Any]) -> dict[str, Any]:
    before, clock, processor = peak_memory(), time.perf_counter(), time.process_time()
    result = verify(path)
    seconds = {"processor": time.process_time() - processor, "clock": time.perf_counter() - clock}
    bounds = {"ok": result.ok, "lower": result.lower, "upper": result.upper, "gap": result.gap}
    return {**seconds, "memory": peak_memory() - before, **bounds}


def in_fresh_process(path: Path, which: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.verifying", "--check", str(path), which]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def table(sizes: list[int], reference: list[int]) -> None:
    columns = (
        "states",
        "episodes",
        "run, s",
        "verify, s",
        "share of the run",
        "plain Python, s",
        "file, MiB",
        "memory / file",
    )
    print("|", " | ".join(columns), "|")
    print("|---" * len(columns) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for n_states in sizes:
            path = Path(folder) / f"{n_states}.json"
            processor, clock, episodes = run(n_states, path)
            mine = in_fresh_process(path, "vectorised")
            assert mine["ok"]
            slow = "not tried"
            if n_states in reference:
                theirs = in_fresh_process(path, "reference")
                assert all(abs(mine[name] - theirs[name]) <= 1e-9 for name in ("lower", "upper", "gap"))
                slow = f"{theirs['processor']:.1f}"
            size, share = path.stat().st_size, mine["processor"] / clock
            print(
                f"| {n_states:,} | {episodes:,} | {processor:.1f} ({clock:.1f} by the clock) | {mine['processor']:.2f} "
                f"| {mine['processor'] / processor:.2f} ({share:.2f}) | {slow} | {size / MIB:.1f} "
                f"| {mine['memory'] / size:.1f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verifying", description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, nargs="+", default=[2000, 20_000, 100_000])
    parser.add_argument("--reference", type=int, nargs="*", default=[2000], help="sizes that plain Python checks, too")
    parser.add_argument("--check", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check is None:
        table(options.states, options.reference)
        return
    path, which = options.check
    if which == "reference":
        sys.path.insert(0, str(ROOT / "tests"))
        from reference.verifier import verify
    else:
        from entropic_bpi.verification import verify
    print(json.dumps(check(Path(path), verify)))


if __name__ == "__main__":
    main()
