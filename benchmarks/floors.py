"""How far from the least time that the arithmetic can take, at the rates that this machine was measured to have.

A floor counts only what cannot be avoided: the bytes that must move, the logarithms that must be taken. The ratio is
measured over floor; nobody reaches 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import get_num_threads

import entropic_bpi as eb
from benchmarks.bench import Bench, sparse_mdp
from benchmarks.kl import SIZE, full_plan, garnet_method, solved, some_counts
from benchmarks.peer_side.arrays import balls
from benchmarks.table import Row, number
from benchmarks.timing import per_unit, race
from entropic_bpi.methods.kl.ball import TOLERANCE

PART = "floors"
# Newton's method cannot stop before it has evaluated once where it starts and once where it ends.
EVALUATIONS = 2


def floors(bench: Bench) -> Iterator[Row]:
    yield from _rates(bench)
    yield from _sparse_planning(bench)
    for k in (3, 8):
        yield _balls(bench, k)
    yield _kl_plan(bench)
    yield _episodes(bench)


def _rates(bench: Bench) -> Iterator[Row]:
    rates = bench.rates
    note = "what this machine does; the floors below follow from it"
    yield Row(PART, "rate: memory, triad on all cores", "GB per second", rates.bandwidth / 1e9, note=note)
    for name, rate in (
        ("exponentials", rates.exps),
        ("logarithms", rates.logs),
        ("square roots", rates.roots),
        ("multiply-adds", rates.multiply_adds),
        ("uniform random draws", rates.draws),
    ):
        yield Row(PART, f"rate: {name}, one core", "million per second", rate / 1e6)


def _row(what: str, unit: str, scale: float, seconds: float, floor: float, count: str) -> Row:
    return Row(PART, what, unit, scale * seconds, scale * floor, "floor", seconds / floor, note=count)


def _sparse_planning(bench: Bench) -> Iterator[Row]:
    states, horizon = bench.pick((1_000_000, 10), (100_000, 10))
    mdp = sparse_mdp(states, 4, 5, horizon)
    rows, pairs = mdp.rows, states * mdp.n_actions
    entry_bytes = rows.indices.itemsize + rows.probabilities.itemsize
    # Per step: every entry; indptr and reward per row; per state the next values once, the new value and the action.
    moved = rows.indices.size * entry_bytes + 16 * pairs + 24 * states
    gathers = rows.indices.size / bench.rates.gathers(rows.indices, np.random.default_rng(0).random(states))
    for beta in (0.0, 0.1):
        # With risk e^{βr} is one more number a row, and each state takes an exponential and a logarithm.
        extra = (8 * pairs / bench.rates.bandwidth) if beta else 0.0
        special = states * (1 / bench.rates.exps + 1 / bench.rates.logs) / get_num_threads() if beta else 0.0
        streamed = moved / bench.rates.bandwidth + extra
        floor = horizon * (max(streamed, gathers) + special)
        seconds = race(bench.rounds, it=per_unit(lambda b=beta: eb.solve(mdp, b))).median("it")
        count = (
            f"per step the larger of {moved / 1e6 + (8e-6 * pairs if beta else 0):.0f} MB at the triad's rate "
            f"({1e3 * streamed:.2f} ms) and {rows.indices.size / 1e6:.0f} million reads of the next values where the "
            f"indices point ({1e3 * gathers:.2f} ms)" + ("; one exp and one log a state" if beta else "")
        )
        what = f"solve, β = {beta}, sparse S = {states:,}, A = 4, 5 successors, H = {horizon}"
        yield _row(what, "ms", 1e3, seconds, floor, count)


def _ball_floor(bench: Bench, k: float) -> float:
    """Two evaluations of F with a logarithm for each value and one for the sum, one exponential at the end."""
    return EVALUATIONS * (k + 1) / bench.rates.logs + 1 / bench.rates.exps


def _balls(bench: Bench, k: int) -> Row:
    problems = balls(SIZE, k)
    seconds = race(bench.rounds, it=per_unit(lambda: solved(problems, TOLERANCE), SIZE)).median("it")
    count = f"{EVALUATIONS} evaluations of {k} + 1 logarithms each, one exponential"
    return _row(f"KL ball, k = {k}, as in a run", "ns", 1e9, seconds, _ball_floor(bench, k), count)


def _kl_plan(bench: Bench) -> Row:
    states, actions, k, horizon = bench.pick(2000, 200), 4, 3, 50
    mdp, method = garnet_method("kl", states, actions, k, horizon)
    counts = some_counts(method, mdp, 6, 1000)
    seconds = race(bench.pick(5, 2), it=full_plan(method, counts)).median("it")
    visited = counts.arrays.visits > 0
    known = visited[np.arange(states)[:, None] * actions + np.arange(actions)].mean()
    # Optimism needs a ball for every action; each of two candidates a pessimistic one and a top for the action it takes.
    places = len(method.frame.states)
    solves = known * places * (actions + 2 * 2)
    threads = get_num_threads() if method.large else 1
    floor = solves * _ball_floor(bench, k) / threads
    count = (
        f"{number(solves)} balls of {k} successors on {threads} cores: for each reachable (h, s) the {actions} optimistic "
        f"ones, and a pessimistic and a top one for each of two candidates; {known:.0%} of the rows were visited"
    )
    what = f"KL plan, garnet S = {states:,}, A = {actions}, {k} successors, H = {horizon}"
    return _row(what, "ms", 1e3, seconds, floor, count)


def _episodes(bench: Bench) -> Row:
    bridge, rates = eb.instances.risky_bridge(horizon=7), bench.rates
    episodes = bench.pick(50_000, 10_000)
    options = {"method": "bernstein", "replan": "every", "max_episodes": episodes, "seed": 0}

    def ours() -> float:
        result = eb.identify(bridge, beta=2.5, eps=0.2, delta=0.1, **options)
        return result.seconds / result.episodes

    k, horizon = 3, bridge.horizon
    # Each step: one draw, one pass over the row's probabilities; then one log for the rate, two roots for the bonus, and
    # per successor three means and the variance (5 multiply-adds) of the one row visited.
    per_step = 1 / rates.draws + 1 / rates.logs + 2 / rates.roots + (k + 5 * k + 10) / rates.multiply_adds
    count = (
        f"for each of {horizon} steps one random draw, a pass over {k} probabilities, and new bounds of the one row "
        f"visited: a log, two roots, {5 * k + 10} multiply-adds; the bounds of rows that lead there change too, "
        "which is not counted"
    )
    seconds = race(bench.rounds, it=ours).median("it")
    return _row("identify, bernstein, plan after every episode", "µs", 1e6, seconds, horizon * per_step, count)
