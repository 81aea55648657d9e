"""Exact planning: values and a policy at every step, against QuantEcon, rlberry and the loop that anyone would write.

Both sides plan the same model. Values are compared before anything is timed. The peers know expectations only, which
is our β = 0; with exponentials and logarithms the plain loop is the only opponent that does the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

import entropic_bpi as eb
from benchmarks.bench import Bench, as_lists, dense_mdp, sparse_mdp
from benchmarks.peers import Job, PeerError, named
from benchmarks.table import Row, compared
from benchmarks.timing import Measure, per_unit, race

PART = "planning"
BETA = 0.1
MANY = 16
NUMPY = f"NumPy loop ({named('numpy')})"
SCIPY = f"SciPy loop ({named('scipy')})"
EASIER = "theirs is the easier job: the expectation"


def plain_loop(matrix, rewards: np.ndarray, horizon: int, beta: float) -> np.ndarray:
    """Backward induction by one matrix product a step; its exponentials are safe for this range of values only."""
    n_states, n_actions = rewards.shape
    values, policy = np.zeros((horizon + 1, n_states)), np.empty((horizon, n_states), dtype=np.int64)
    for h in reversed(range(horizon)):
        if beta == 0:
            means = matrix @ values[h + 1]
        else:
            means = np.log(matrix @ np.exp(beta * values[h + 1])) / beta
        q_values = means.reshape(n_states, n_actions) + rewards
        policy[h] = q_values.argmax(axis=1)
        values[h] = q_values.max(axis=1)
    return values


def as_matrix(mdp: eb.FiniteMDP) -> sparse.csr_array:
    rows = mdp.rows
    shape = (mdp.n_states * mdp.n_actions, mdp.n_states)
    return sparse.csr_array((rows.probabilities, rows.indices, rows.indptr.astype(np.int32)), shape=shape)


def planning(bench: Bench) -> Iterator[Row]:
    bridge = eb.instances.risky_bridge(horizon=7)
    yield from _against_rlberry(bench, "risky bridge, H = 7", bridge)
    yield from _against_rlberry(bench, "dense S = 30, A = 4, H = 20", dense_mdp(30, 4, 20))
    given = list(as_lists(bridge).values())
    yield from _contest(bench, "risky bridge, H = 7", bridge, NUMPY, unit="µs", repeats=50, given=given)
    size = bench.pick((1000, 10), (300, 10))
    yield from _contest(bench, "dense", dense_mdp(*size, 50), NUMPY, dense=size)
    for states, horizon in bench.pick([(100_000, 50), (1_000_000, 10)], [(20_000, 20)]):
        shape = (states, 4, 5)
        yield from _contest(bench, "sparse", sparse_mdp(*shape, horizon), SCIPY, sparse=shape)
    yield from _many_betas(bench, "dense", dense_mdp(*size, 50), dense=size)
    shape = bench.pick((100_000, 4, 5), (20_000, 4, 5))
    yield from _many_betas(bench, "sparse", sparse_mdp(*shape, bench.pick(50, 20)), sparse=shape)


def _contest(
    bench: Bench, name: str, mdp: eb.FiniteMDP, loop: str, *, unit: str = "ms", repeats: int = 1, **model: object
) -> Iterator[Row]:
    """Ours with and without risk, the plain loop with and without risk, and QuantEcon."""
    if "H =" not in name:
        name = f"{name} S = {mdp.n_states:,}, A = {mdp.n_actions}, H = {mdp.horizon}"
    matrix = as_matrix(mdp) if mdp.is_sparse else mdp.step_kernel(0)
    for beta in (0.0, BETA):
        plain = plain_loop(matrix, mdp.rewards, mdp.horizon, beta)
        np.testing.assert_allclose(eb.solve(mdp, beta).values, plain, rtol=1e-9)
    contestants: dict[str, Measure] = {
        "ours": per_unit(lambda: eb.solve(mdp, 0.0), repeats=repeats),
        "risk": per_unit(lambda: eb.solve(mdp, BETA), repeats=repeats),
        "loop": per_unit(lambda: plain_loop(matrix, mdp.rewards, mdp.horizon, 0.0), repeats=repeats),
        "risk_loop": per_unit(lambda: plain_loop(matrix, mdp.rewards, mdp.horizon, BETA), repeats=repeats),
    }
    refusal = ""
    if bench.peers is not None:
        try:
            job = bench.peers["solvers"].prepare("quantecon_planning", horizon=mdp.horizon, repeats=repeats, **model)
            _check_values(job, mdp)
            contestants["quantecon"] = job.measure
        except PeerError as error:
            refusal = str(error)
    times = race(bench.rounds, **contestants)
    yield compared(PART, f"{name}: expectation", times, theirs="loop", peer=loop, unit=unit)
    yield compared(PART, f"{name}: β = {BETA}", times, ours="risk", theirs="risk_loop", peer=loop, unit=unit)
    if "quantecon" in contestants:
        peer = named("quantecon")
        yield compared(PART, f"{name}: expectation", times, theirs="quantecon", peer=peer, unit=unit)
        yield compared(
            PART, f"{name}: β = {BETA}", times, ours="risk", theirs="quantecon", peer=peer, unit=unit, note=EASIER
        )
    elif refusal:
        ours = 1e3 * times.median("ours")
        yield Row(PART, f"{name}: expectation", "ms", ours, peer=named("quantecon"), note=f"it cannot: {refusal}")


def _many_betas(bench: Bench, name: str, mdp: eb.FiniteMDP, **model: object) -> Iterator[Row]:
    """The values of a whole range of β in one call, against a call for each, of ours and of QuantEcon."""
    betas = np.linspace(-0.5, 0.5, MANY)
    for found, beta in zip(eb.solve(mdp, betas), betas, strict=True):
        np.testing.assert_allclose(found.values, eb.solve(mdp, beta).values, rtol=1e-12, atol=1e-12)
    contestants: dict[str, Measure] = {
        "together": per_unit(lambda: eb.solve(mdp, betas)),
        "alone": per_unit(lambda: [eb.solve(mdp, beta) for beta in betas]),
    }
    if bench.peers is not None:
        job = bench.peers["solvers"].prepare("quantecon_planning", horizon=mdp.horizon, repeats=MANY, **model)
        contestants["quantecon"] = lambda: MANY * job.measure()
    times = race(min(bench.rounds, 3), **contestants)
    what = f"{name} S = {mdp.n_states:,}, A = {mdp.n_actions}, H = {mdp.horizon}: {MANY} β in one call"
    yield compared(PART, what, times, ours="together", theirs="alone", peer=f"{MANY} calls of ours", unit="ms")
    if "quantecon" in contestants:
        peer = f"{MANY} calls of {named('quantecon')}"
        yield compared(PART, what, times, ours="together", theirs="quantecon", peer=peer, unit="ms", note=EASIER)


def _check_values(job: Job, mdp: eb.FiniteMDP) -> None:
    theirs = job.answer()["values"]
    np.testing.assert_allclose(eb.solve(mdp, 0.0).values[: len(theirs)], theirs, rtol=1e-9)


def _against_rlberry(bench: Bench, name: str, mdp: eb.FiniteMDP) -> Iterator[Row]:
    if bench.peers is None:
        return
    job = bench.peers["rlberry"].prepare("rlberry_planning", horizon=mdp.horizon, **as_lists(mdp))
    _check_values(job, mdp)
    times = race(bench.rounds, ours=per_unit(lambda: eb.solve(mdp, 0.0), repeats=50), rlberry=job.measure)
    note = "its loops are plain Python"
    peer = named("rlberry-scool")
    yield compared(PART, f"{name}: expectation", times, theirs="rlberry", peer=peer, unit="µs", note=note)
