"""The KL method's pieces: single balls against SciPy and CVXPY, and whole plans as the model grows.

A ball is the largest mean of k values within a radius of an empirical distribution. Theirs and ours must agree to 1e-6
before anything is timed. During a run ours stops at 1e-5 of the interval, on the safe side; a certificate is converged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numba import njit

import entropic_bpi as eb
from benchmarks.bench import Bench
from benchmarks.peer_side.arrays import Balls, balls
from benchmarks.peers import named
from benchmarks.references import bernstein, kl_attack
from benchmarks.references import kl as reference
from benchmarks.table import Row, as_rates, compared
from benchmarks.timing import Measure, per_unit, race
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.ball import TOLERANCE, kl_extreme
from entropic_bpi.methods.kl.method import CONVERGED, KL
from entropic_bpi.methods.kl.records import PairsAsked
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.simulator import Simulator

PART = "kl"
SIZE = 100_000
NUMPY = f"NumPy version of the same ({named('numpy')})"


@njit
def solve_all(tally, f, n, x, tolerance, values):
    scratch = np.empty((2, f.shape[1]))
    for i in range(values.size):
        values[i] = kl_extreme(tally[i], f[i], f.shape[1], n[i], x[i], 1.0, tolerance, scratch)


def solved(problems: Balls, tolerance: float) -> np.ndarray:
    values = np.empty(len(problems.visits))
    solve_all(*problems, tolerance, values)
    return values


def kl(bench: Bench) -> Iterator[Row]:
    for k in (2, 3, 8):
        yield from _single_balls(bench, k)
    yield _small_kl_plan(bench)
    yield _small_bernstein_plan(bench)
    yield from _growing_plans(bench)


# -- balls ---------------------------------------------------------------------------------------------------


def _single_balls(bench: Bench, k: int) -> Iterator[Row]:
    problems = balls(SIZE, k)
    converged = solved(problems, CONVERGED)
    loose = solved(problems, TOLERANCE)
    width = problems.values.max(axis=1) - problems.values.min(axis=1)
    assert np.all((loose >= converged - 1e-12) & (loose <= converged + 1e-5 * width))
    contestants: dict[str, Measure] = {
        "ours": per_unit(lambda: solved(problems, CONVERGED), SIZE),
        "loose": per_unit(lambda: solved(problems, TOLERANCE), SIZE),
    }
    peers = {"scipy": ("scipy_balls", bench.pick(500, 200)), "cvxpy": ("cvxpy_balls", bench.pick(100, 30))}
    if bench.peers is None:
        peers = {}
        yield _alone(k, race(bench.rounds, **contestants))
    for name, (job_name, first) in peers.items():
        job = bench.peers["solvers"].prepare(job_name, size=SIZE, k=k, first=first)
        np.testing.assert_allclose(job.answer()["values"], converged[:first], atol=1e-6)
        contestants[name] = job.measure
    if peers:
        times = race(bench.rounds, **contestants)
        labels = {"scipy": f"brentq on the dual, {named('scipy')}", "cvxpy": f"Clarabel, {named('cvxpy')}"}
        for name in peers:
            row = compared(
                PART, f"ball of k = {k}, converged", times, theirs=name, peer=labels[name], unit="µs per solve"
            )
            yield as_rates(row, "solves per second")
        row = compared(
            PART, f"ball of k = {k}, as in a run", times, ours="loose", theirs="scipy", peer=labels["scipy"],
            unit="µs per solve", note="ours stops within 1e-5 of the interval, safely",
        )  # fmt: skip
        yield as_rates(row, "solves per second")


def _alone(k: int, times) -> Row:
    return Row(PART, f"ball of k = {k}, converged", "solves per second", 1 / times.median("ours"))


# -- plans ---------------------------------------------------------------------------------------------------


def some_counts(method: KL | Bernstein, mdp: eb.FiniteMDP, rounds: int, episodes: int) -> Counts:
    """Counts as a run has them after some plans."""
    counts = Counts(method.problem)
    simulator = Simulator(mdp, method.problem, np.random.default_rng(0))
    for round in range(rounds):
        plan = method.plan(counts, round)
        simulator.play(plan.behaviour, episodes * (round + 1), counts)
    return counts


def full_plan(method: KL | Bernstein, counts: Counts, round: int = 0) -> Measure:
    """Time a plan that may reuse nothing of the one before, without the pair certificate, which few plans ask for."""

    def plan() -> None:
        counts.origin = object()
        if isinstance(method, KL):
            method.asked = PairsAsked(
                2**60, np.inf, np.inf
            )  # not due: its last gap was infinite, and the next growth is never
        method.plan(counts, round)

    return per_unit(plan)


def _small_kl_plan(bench: Bench) -> Row:
    """The bridge: bounds, both candidates and their gap certificates, against the plain version of the tests."""
    bridge, beta, delta = eb.instances.risky_bridge(horizon=7), -1.0, 0.1
    problem = Problem.from_mdp(bridge, beta=beta, eps=1e-9, delta=delta)
    method = KL(problem, seed=1)
    counts = some_counts(method, bridge, 10, 20)
    tally = np.zeros((problem.n_rows, bridge.n_states), dtype=np.int64)
    seen = counts.transitions()
    np.add.at(tally, (seen.rows, seen.successors), seen.times)
    shape = (bridge.horizon, bridge.n_states, bridge.n_actions, bridge.n_states)
    rewards = np.broadcast_to(bridge.rewards[None, :, :, None], shape)
    tables = kl_attack._tables(
        beta,
        delta,
        bridge.horizon,
        False,
        np.ones(shape, dtype=bool),
        None,
        tally,
        rewards,
        rewards,
        False,
        bridge.start,
        None,
    )
    policies = [plan.policy.copy() for plan in method.plans]

    def plain() -> tuple[float, list[float]]:
        z, u = reference.optimism(tables)
        found = [reference.candidate(tables, z, u, policy) for policy in policies]
        return math.log(z[0, bridge.start]) / beta, [math.log(each.rho[0, bridge.start]) / abs(beta) for each in found]

    upper, gaps = plain()
    for policy, gap in zip(policies, gaps, strict=True):
        claim = method.in_reward_units(*method._given(counts, policy)[1])  # of the gap certificate alone
        np.testing.assert_allclose(claim[1:], [upper, gap], atol=1e-6)
    times = race(bench.rounds, ours=full_plan(method, counts), NumPy=per_unit(plain))
    note = "theirs evaluates two given candidates; its balls are compiled, the rest is not"
    return compared(PART, "KL plan, risky bridge", times, theirs="NumPy", peer=NUMPY, unit="ms", note=note)


def _small_bernstein_plan(bench: Bench) -> Row:
    bridge, beta, delta = eb.instances.risky_bridge(horizon=7), 2.5, 0.1
    problem = Problem.from_mdp(bridge, beta=beta, eps=1e-9, delta=delta)
    method = Bernstein(problem, "verified", 1)
    counts = some_counts(method, bridge, 10, 20)
    shape = (bridge.horizon, bridge.n_states, bridge.n_actions)
    dense = np.zeros((*shape, bridge.n_states), dtype=np.int64)
    seen = counts.transitions()
    np.add.at(dense.reshape(-1, bridge.n_states), (seen.rows, seen.successors), seen.times)
    rewards = np.broadcast_to(bridge.rewards, shape)

    def plain() -> bernstein.Result:
        return bernstein.plan(dense, rewards, beta=beta, delta=delta, constants="verified", start=bridge.start)

    np.testing.assert_allclose(method.plan(counts, 0).bounds.upper, plain().upper, rtol=1e-9)
    times = race(bench.rounds, ours=full_plan(method, counts), NumPy=per_unit(plain))
    return compared(PART, "Bernstein plan, risky bridge", times, theirs="NumPy", peer=NUMPY, unit="ms")


def garnet_method(name: str, n_states: int, n_actions: int = 4, successors: int = 3, horizon: int = 20):
    """A garnet, and a method for it with successors known; counts are pooled over steps for ``"kl"``."""
    mdp = eb.instances.garnet(n_states, n_actions, successors, horizon=horizon, seed=0)
    goal = {"beta": 0.3, "eps": 1e-9, "delta": 0.1, "successors": "model"}
    if name == "kl":
        return mdp, KL(Problem.from_mdp(mdp, stationary=True, **goal), seed=1)
    return mdp, Bernstein(Problem.from_mdp(mdp, **goal), "verified", 1)


def _growing_plans(bench: Bench) -> Iterator[Row]:
    for name, label in (("kl", "KL plan, stationary"), ("bernstein", "Bernstein plan")):
        for n_states in bench.pick((100, 500, 2000, 5000), (50, 200)):
            mdp, method = garnet_method(name, n_states, horizon=50)
            counts = some_counts(method, mdp, 4, 1000)
            seconds = race(bench.pick(3, 2), ours=full_plan(method, counts)).median("ours")
            places = len(method.frame.states) * mdp.n_actions
            note = f"{number_of(places)} places (h, s, a), {1e9 * seconds / places:.0f} ns each; no peer has this job"
            what = f"{label}, garnet S = {n_states:,}, A = 4, 3 successors, H = 50"
            yield Row(PART, what, "ms", 1e3 * seconds, note=note)


def number_of(count: int) -> str:
    return f"{count:,}"
