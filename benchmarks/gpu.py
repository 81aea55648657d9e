"""Plans of the KL method on a GPU and on all cores of the same machine: ``python -m benchmarks.gpu [--end-to-end STATES]``.

Needs a GPU and the extra ``gpu``. Random models with 4 actions and 3 successors each, counts pooled over the steps, every
row visited up to 200 times; a plan has both candidates and their gap certificates, and nothing of the plan before is
reused. Times are medians of full plans with copies in both directions, kernels compiled.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

import entropic_bpi as eb
from benchmarks.bench import sparse_mdp
from entropic_bpi.counts import Counts
from entropic_bpi.methods.kl import KL
from entropic_bpi.problem import Problem
from entropic_bpi.types import Plan

SIZES = 2_000, 20_000, 200_000
ACTIONS, SUCCESSORS, STEPS = 4, 3, 50
HEADER = "| states | CPU, s | GPU, s | ratio | actions that differ | relative difference of the gap |"


def random_counts(problem: Problem, most: int = 200) -> Counts:
    rng, counts = np.random.default_rng(0), Counts(problem)
    ledger = counts.ledger
    ledger.visits[:] = rng.integers(1, most, size=len(ledger.visits))
    for size in np.unique(ledger.used):
        rows = np.flatnonzero(ledger.used == size)
        laws = rng.dirichlet(np.ones(size), size=len(rows))
        slots = ledger.begin[rows, None] + np.arange(size)
        ledger.tally[slots] = rng.multinomial(ledger.visits[rows], laws)
    counts.episodes = int(ledger.visits.sum()) // problem.horizon
    return counts


def seconds(job: Callable[[], object], repeats: int) -> float:
    times = []
    job()  # compiles
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return median(times)


def full_plan(problem: Problem, counts: Counts, device: str) -> tuple[float, Plan]:
    """Median seconds of a plan that reuses nothing, and the plan."""
    method = KL(problem, seed=1, device=device)
    method.memory[:3] = counts.episodes - 1, np.inf, np.inf  # the pair test, which is no part of this, is not due

    def plan() -> Plan:
        counts.origin = object()
        return method.plan(counts, 0)

    return seconds(plan, 3), plan()


def plans(sizes: tuple[int, ...]) -> Iterator[str]:
    for states in sizes:
        mdp = sparse_mdp(states, ACTIONS, SUCCESSORS, STEPS)
        goal = {"beta": 0.3, "eps": 1e-9, "delta": 0.1, "successors": "model", "stationary": True}
        problem = Problem.from_mdp(mdp, **goal)
        counts = random_counts(problem)
        (cpu, here), (gpu, there) = (full_plan(problem, counts, device) for device in ("cpu", "gpu"))
        differ, gap = int((here.policy != there.policy).sum()), float(here.bounds.gap)
        yield (
            f"| {states:,} | {cpu:.3g} | {gpu:.3g} | {cpu / gpu:.3g} | {differ} of {here.policy.size:,} "
            f"| {abs(float(there.bounds.gap) / gap - 1):.1g} |"
        )


def end_to_end(states: int, device: str, max_seconds: float | None, horizon: int = 20) -> str:
    mdp = sparse_mdp(states, ACTIONS, SUCCESSORS, horizon)
    goal = {"beta": -0.5, "eps": 0.5, "delta": 0.1, "successors": "model", "stationary": True, "seed": 1}
    eb.identify(mdp, **{**goal, "eps": 10.0}, max_episodes=10, device=device)  # compiles
    start = time.perf_counter()
    result = eb.identify(mdp, **goal, replan=0.1, max_seconds=max_seconds, device=device, progress=True)
    took = time.perf_counter() - start
    start = time.perf_counter()
    holds = eb.verify(result.certificate).ok
    return (
        f"{states:,} states, {ACTIONS} actions, {SUCCESSORS} successors, {horizon} steps, ε = 0.5, {device}: "
        f"gap {result.certificate.gap:.3g} after {result.episodes:,} episodes in {took:.3g} s; "
        f"verified: {holds}, in {time.perf_counter() - start:.3g} s; {_memory()}"
    )


def _memory() -> str:
    import resource

    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.3g} GiB of memory at most"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--end-to-end", type=int, help="also certify a model with so many states")
    parser.add_argument("--device", default="gpu", choices=("cpu", "gpu"), help="for --end-to-end")
    parser.add_argument("--seconds", type=float, help="limit for --end-to-end")
    given = parser.parse_args()
    if given.states:
        print(HEADER, "|---" * 6 + "|", sep="\n", flush=True)
    for line in plans(tuple(given.states)):
        print(line, flush=True)
    if given.end_to_end:
        print(end_to_end(given.end_to_end, given.device, given.seconds), flush=True)


if __name__ == "__main__":
    main()
