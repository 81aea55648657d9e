"""Plans on a GPU and on all cores of the same machine: ``python -m benchmarks.gpu [--end-to-end STATES] [--solve]``.

Needs a GPU and the extra ``gpu``. Random models with 4 actions, 3 successors each and 50 steps. Times are medians, with
copies in both directions, kernels compiled.

Plans of the KL method: counts pooled over the steps, every row visited up to 200 times; a plan has both candidates and their
gap certificates, and nothing of the plan before is reused.

Exact planning (``--solve``): one β, and 32 of them in one call. Of the time of ``solve`` on a GPU the model's way there
and the steps are shown by themselves; the rest is the way back of values and policies into new memory. Of 32 β, four are
compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

import entropic_bpi as eb
from benchmarks.bench import sparse_mdp
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.records import PairsAsked
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Plan

SIZES = 2_000, 20_000, 200_000
ACTIONS, SUCCESSORS, STEPS = 4, 3, 50
SOLVED = 2_000, 20_000, 200_000, 1_000_000
MANY = 32
# Seconds that exact planning may take: a line that would take longer, by the one before it, is left out.
PATIENCE = 80.0
HEADER = "| states | CPU, s | GPU, s | ratio | actions that differ | relative difference of the gap |"


def random_counts(problem: Problem, most: int = 200) -> Counts:
    rng, counts = np.random.default_rng(0), Counts(problem)
    arrays = counts.arrays
    arrays.visits[:] = rng.integers(1, most, size=len(arrays.visits))
    for size in np.unique(arrays.used):
        rows = np.flatnonzero(arrays.used == size)
        laws = rng.dirichlet(np.ones(size), size=len(rows))
        slots = arrays.begin[rows, None] + np.arange(size)
        arrays.tally[slots] = rng.multinomial(arrays.visits[rows], laws)
    counts.episodes = int(arrays.visits.sum()) // problem.horizon
    return counts


def full_plan(problem: Problem, counts: Counts, device: str) -> tuple[float, Plan]:
    """Median seconds of a plan that reuses nothing, and the plan."""
    method = KL(problem, seed=1, device=device)
    method.asked = PairsAsked(
        counts.episodes - 1, np.inf, np.inf
    )  # the pair test, which is no part of this, is not due

    def plan() -> Plan:
        counts.origin = object()
        return method.plan(counts, 0)

    plan()  # compiles
    return timed(plan, 3)


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


SOLVE_HEADER = (
    "| states | β | CPU, s | GPU, s | ratio | of it upload, s | steps, s "
    "| relative difference of values | actions that differ |"
)


def solved(sizes: tuple[int, ...]) -> Iterator[str]:
    """Exact planning of sparse models; both sides have compiled before, and the larger the model the fewer the rounds."""
    began, betas = time.perf_counter(), np.linspace(-0.5, 0.5, MANY).tolist()
    for solve in (eb.solve, eb.solve_on_gpu):
        solve(sparse_mdp(500, ACTIONS, SUCCESSORS, 2), betas)
    for states in sizes:
        mdp, alone = sparse_mdp(states, ACTIONS, SUCCESSORS, STEPS), 0.0
        for asked in ([0.3], betas):
            if 1.5 * len(asked) * alone > PATIENCE - (time.perf_counter() - began):
                yield f"| {states:,} | {len(asked)} | left out: it would take too long |"
                continue
            try:
                line, alone = solve_line(mdp, asked)
            except eb.InvalidProblemError as error:  # its memory
                line = f"| {states:,} | {len(asked)} | {error} |"
            yield line


def solve_line(mdp: eb.FiniteMDP, betas: list[float]) -> tuple[str, float]:
    """A line of the table, and the seconds of the CPU."""
    from entropic_bpi.lab.planning_gpu import Planner

    repeats = max(1, min(5, 20_000_000 // (mdp.n_states * mdp.horizon * len(betas))))
    cpu, here = timed(lambda: eb.solve(mdp, betas), repeats)
    gpu, there = timed(lambda: eb.solve_on_gpu(mdp, betas), repeats)
    compared = list(zip(here, there, strict=True))[:: -(-len(betas) // 4)]
    apart = max(float(np.abs(one.values - other.values).max() / np.abs(one.values).max()) for one, other in compared)
    differ = sum(int((one.policy != other.policy).sum()) for one, other in compared)
    of = sum(one.policy.size for one, _ in compared)
    del here, there, compared  # tens of gigabytes
    upload, planner = timed(lambda: Planner(mdp, len(betas), max(map(abs, betas))), repeats)
    steps, _ = timed(lambda: planner.launch(betas), repeats)
    return (
        f"| {mdp.n_states:,} | {len(betas)} | {cpu:.3g} | {gpu:.3g} | {cpu / gpu:.3g} | {upload:.3g} | {steps:.3g} "
        f"| {apart:.1g} | {differ} of {of:,} |"
    ), cpu


def timed(job: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds, and what came of the last time."""
    times, result = [], None
    for _ in range(repeats):
        result = None  # before the next one takes as much memory
        start = time.perf_counter()
        result = job()
        times.append(time.perf_counter() - start)
    return median(times), result


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
    parser.add_argument("--states", type=int, nargs="*", help="sizes of the models")
    parser.add_argument("--end-to-end", type=int, help="also certify a model with so many states")
    parser.add_argument("--solve", action="store_true", help="exact planning instead of plans of the KL method")
    parser.add_argument("--device", default="gpu", choices=("cpu", "gpu"), help="for --end-to-end")
    parser.add_argument("--seconds", type=float, help="limit for --end-to-end")
    given = parser.parse_args()
    header, lines, usual = (SOLVE_HEADER, solved, SOLVED) if given.solve else (HEADER, plans, SIZES)
    sizes = usual if given.states is None else tuple(given.states)
    if sizes:
        print(header, "|---" * (header.count("|") - 1) + "|", sep="\n", flush=True)
    for line in lines(sizes):
        print(line, flush=True)
    if given.end_to_end:
        print(end_to_end(given.end_to_end, given.device, given.seconds), flush=True)


if __name__ == "__main__":
    main()
