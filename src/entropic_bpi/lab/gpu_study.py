"""Thousands of small runs of the KL method at once on a GPU, one thread each, checked by the oracle.

All runs advance together, a round at a time: one small kernel for each stage of :mod:`entropic_bpi.lab.gpu_run`, over the
runs that have not ended. Every run has its own stream of random numbers. Records of all runs have the run as their first
axis; on the device it is the axis of neighbours in memory, so that the reads of neighbouring threads are combined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inner
from entropic_bpi.compile.gpu import check_gpu, check_room, config, cuda
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab import gpu_run
from entropic_bpi.lab.experiments.oracle import CellResults, holds
from entropic_bpi.lab.gpu_run import PairMemory, Records, RunConfig, RunMemory, RunStatus, TrueRows, World
from entropic_bpi.lab.philox import STREAM_SIZE
from entropic_bpi.methods.kl import method as kl
from entropic_bpi.methods.kl.records import (
    Candidate,
    Optimism,
    PairBuffers,
    PairRows,
    PairScratch,
    Relations,
    Scratch,
    new_pair_buffers,
    new_scratch,
)
from entropic_bpi.methods.kl.states import GIVEN
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import evaluate, solve
from entropic_bpi.problem.counts import CountArrays, Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.sources.simulator import Simulator

THREADS = 64
# Runs that have ended keep their threads until at most this share is left.
COMPACTED = 0.9


@inner
def _candidate(plan: Candidate, i: int) -> Candidate:
    return Candidate(plan.z[i], plan.high[i], plan.rho[i], plan.policy[i], plan.switch_action[i])


@inner
def _relations(table: Relations, i: int) -> Relations:
    return Relations(table.position[i], table.d[i], table.r[i], table.rho[i], table.switch_action[i])


@inner
def _pair_memory(all_runs: PairMemory, i: int) -> PairMemory:
    buffers = all_runs.buffers
    rows, scratch = buffers.rows, buffers.scratch
    own = PairBuffers(
        _relations(buffers.now, i),
        _relations(buffers.next, i),
        buffers.states[i],
        buffers.gain[i],
        PairRows(
            rows.row[i], rows.low[i], rows.high[i], rows.number[i], rows.different[i], rows.position[i], rows.seen[i]
        ),
        PairScratch(
            scratch.box[i], scratch.known[i], scratch.low[i], scratch.high[i], scratch.rank[i], scratch.left[i],
            scratch.mass[i], scratch.moved[i], scratch.f[i],
        ),
        buffers.noise,
    )  # fmt: skip
    return PairMemory(own, all_runs.occupied[i], all_runs.switch_action[i])


@inner
def _records_of(records: Records, setup: RunConfig, i: int) -> Records:
    """Return the records of run ``i``; ``status`` is that of all runs."""
    counts, optimism, layers, kept = records.arrays, records.optimism, records.layers, records.kept
    rewards = setup.fresh.low.shape[0]
    return Records(
        CountArrays(
            counts.visits[i], counts.begin[i], counts.used[i], counts.capacity[i], setup.fresh.max_outcomes,
            counts.successor[i], counts.tally[i], counts.low[i, :rewards], counts.high[i, :rewards], counts.end[i],
        ),
        Optimism(optimism.z[i], optimism.u[i], optimism.policy[i]),
        (_candidate(records.plans[0], i), _candidate(records.plans[1], i)),
        Scratch(layers.work[i], layers.pessimistic[i], layers.bounds[i], layers.shared[i], layers.scores[i]),
        _pair_memory(records.memory, i),
        RunMemory(kept.policy[i], kept.switch_action[i]),
        records.radius[i],
        records.planned[i],
        records.stream[i],
        records.status,
    )  # fmt: skip


def _advance(world: World, records: Records, active: np.ndarray) -> None:
    thread = cuda.grid(1)
    if thread < active.size:
        i = active[thread]
        if records.status.phase[i] != gpu_run.DONE:
            stage(world, _records_of(records, world.setup, i), i)  # type: ignore[name-defined]  # noqa: F821


@cache
def _kernel(stage: Callable[[World, Records, int], None]) -> Any:
    """Return a kernel that computes one stage of each of the ``active`` runs; its compiled code is kept on disk.

    The stage is a global name of a copy of :func:`_advance`, and the copies have different names: values that a function
    encloses are part of the key of Numba's cache, and a compiled function has another key in every process.
    """
    copy = FunctionType(_advance.__code__, {**globals(), "stage": stage}, _advance.__name__)
    copy.__qualname__ = f"_advance.{stage.__name__}"
    copy.__module__ = __name__
    return cuda.jit(copy) if config.ENABLE_CUDASIM else cuda.jit(cache=True)(copy)


class StudyResults(NamedTuple):
    """The results of many runs: the claim of each about its policy ``(H, S)``, in units of reward.

    ``event`` says whether E_cat held at every plan.
    """

    episodes: np.ndarray
    stopped: np.ndarray
    event: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    gap: np.ndarray
    policy: np.ndarray


def run_many(
    mdp: FiniteMDP, problem: Problem, runs: int, *, seed: int, replan: float, budget: int = 2**40
) -> StudyResults:
    """Carry out ``runs`` identifications on the GPU; ``replan`` is the growth of the batches.

    Run ``i`` of a ``seed`` does not depend on the number of runs.
    """
    reason = why_not(problem)
    if reason:
        raise InvalidProblemError(reason)
    check_gpu()
    method, fresh = kl.KL(problem), _fresh_arrays(problem)
    method.without_boxes()
    kernel = Simulator(mdp, problem, np.random.default_rng()).kernel
    setup = RunConfig(replan, budget, seed, fresh, method.rules.radius)
    world = _map(World(kernel, method.frame, method.rules, _truth(mdp, problem), setup), cuda.to_device)
    records = _records_of_all(problem, method, fresh, runs)
    _advance_all(world, records, runs)
    found, policy = _map((records.status, records.plans[GIVEN % 2].policy), lambda part: part.copy_to_host())
    return _runs_of(method, found, policy)


def _advance_all(world: World, records: Records, runs: int) -> None:
    """Advance all runs through the stages, round by round, until all have ended."""
    active, left = cuda.to_device(np.arange(runs)), np.arange(runs)
    phase: Any = records.status.phase

    def advance(stage: Callable[[World, Records, int], None]) -> None:
        _kernel(stage)[-(-active.size // THREADS), THREADS](world, records, active)

    phase.copy_to_device(np.full(runs, gpu_run.RUNNING, dtype=np.int8))
    advance(gpu_run.begin)
    while left.size:
        for stage in (gpu_run.plan, gpu_run.pair, gpu_run.test, gpu_run.play):
            advance(stage)
        left = np.flatnonzero(phase.copy_to_host() != gpu_run.DONE)
        if 0 < left.size <= COMPACTED * active.size:
            active = cuda.to_device(left)


def why_not(problem: Problem) -> str | None:
    """Return why a GPU cannot carry out runs of a problem; None if it can."""
    if problem.open_ended or problem.random_rewards or problem.limits_returns or isinstance(problem.risk, EVaR):
        return (
            "runs on a GPU need a known model and a beta: no unknown states, random rewards, ranges of returns or EVaR"
        )
    return None


def _records_of_all(problem: Problem, method: kl.KL, arrays: CountArrays, runs: int) -> Records:
    """Allocate the records of all runs, with the run as the fastest index."""
    one = _one_of_each(problem, method, arrays)
    parts: list[np.ndarray] = []
    _map(one, parts.append)
    check_room(f"a study of {runs} runs", runs * sum(part.nbytes for part in parts), "ask for fewer runs")
    # An array without entries would have another type to compile; it gets one row, which ``_records_of`` removes.
    rewards = np.empty((max(len(arrays.low), 1), arrays.low.shape[1]))
    one = one._replace(arrays=arrays._replace(low=rewards, high=rewards))
    records: Records = _map(one, lambda part: cuda.device_array((runs, *part.shape), part.dtype, order="F"))
    return records


def _fresh_arrays(problem: Problem) -> CountArrays:
    """Return the counts before the first episode, with room for new slots in every row."""
    counts, used = Counts(problem), int(problem.slots.used.sum())
    counts.reserve(used)
    arrays, pool = counts.arrays, len(problem.slots.successor) + used
    return arrays._replace(
        successor=arrays.successor[:pool].copy(),
        tally=arrays.tally[:pool].copy(),
        low=arrays.low[:, :pool].copy(),
        high=arrays.high[:, :pool].copy(),
    )


def _truth(mdp: FiniteMDP, problem: Problem) -> TrueRows:
    """Return the row of the model for each row of the counts; a stationary model has its rows only once."""
    pairs_of_model = problem.n_states * problem.n_actions * (1 if mdp.stationary else problem.horizon)
    source = np.arange(problem.n_rows) % pairs_of_model
    if problem.artificial:
        source[-1] = pairs_of_model
    return TrueRows(source, problem.at_risk)


def _runs_of(method: kl.KL, found: RunStatus, policy: np.ndarray) -> StudyResults:
    """Return the results, with claims rounded as in ``KL.bounds_of``."""
    claims = np.ascontiguousarray(found.claim).T
    gap = np.where(claims[3] < claims[2] * (1.0 - kl.WORTH_PAIRS), claims[3], claims[2])
    bounds, room = method.in_reward_units(claims[0], claims[1], gap), kl.CLAIM_ROUNDING * method.problem.return_spread
    return StudyResults(
        found.episodes,
        found.stopped,
        found.event,
        bounds.lower - room,
        bounds.upper + room,
        bounds.gap * (1.0 + kl.GAP_ROUNDING) + room,
        policy[:, method.problem.artificial :],
    )


def _map(record: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a record with each array replaced by ``change`` of it."""
    if isinstance(record, tuple):
        parts = [_map(part, change) for part in record]
        return type(record)(*parts) if hasattr(record, "_fields") else tuple(parts)
    return record if isinstance(record, (int, float, np.generic)) else change(record)


def _one_of_each(problem: Problem, method: kl.KL, arrays: CountArrays) -> Records:
    """Return the records of one run."""
    rules, n_states, n_actions = method.rules, problem.n_states, problem.n_actions
    choices, number = np.zeros((problem.steps, n_states), dtype=np.int64), np.zeros((), dtype=np.int64)
    real, truth = number.astype(float), number.astype(bool)
    counted = (number, number, number, number, number, number)
    status = RunStatus(number.astype(np.int8), *counted, real, real, truth, truth, np.zeros(4))
    memory = PairMemory(
        buffers=new_pair_buffers(rules, n_states, n_actions, n_states),
        occupied=np.zeros((problem.steps, n_states + 1), dtype=np.bool_),
        switch_action=choices,
    )
    return Records(
        arrays=arrays,
        optimism=method.optimism,
        plans=method.plans,
        layers=new_scratch(rules, n_actions, 1),
        memory=memory,
        kept=RunMemory(choices, choices),
        radius=rules.radius,
        planned=rules.planned,
        stream=np.zeros(STREAM_SIZE, dtype=np.uint64),
        status=status,
    )


# -- the oracle --------------------------------------------------------------------------------------------------


def study_cell(mdp: FiniteMDP, problem: Problem, runs: int, *, seed: int, replan: float, **names: str) -> CellResults:
    """Carry out ``runs`` identifications and check every claim; ``names`` are the rule and the case of the cell."""
    found = run_many(mdp, problem, runs, seed=seed, replan=replan)
    best, mine = solve(mdp, problem.beta).value, values_of(mdp, found.policy, problem.beta)
    return CellResults(
        **names,
        risk=problem.beta,
        eps=np.full(runs, problem.eps),
        stopped=found.stopped,
        claim_holds=holds(found, best, mine),
        failed={"E_cat": ~found.event},
        gap=found.gap,
        true_gap=best - mine,
        episodes=found.episodes,
    )


def values_of(mdp: FiniteMDP, policies: np.ndarray, beta: float) -> np.ndarray:
    """Compute the values at the start of many policies ``(runs, H, S)`` of a small model.

    Examples
    --------
    >>> import numpy as np
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.lab.gpu_study import values_of
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> policies = np.random.default_rng(0).integers(0, bridge.n_actions, (3, 5, 8))
    >>> exact = [eb.evaluate(bridge, policy, beta=2.0).value for policy in policies]
    >>> bool(np.allclose(values_of(bridge, policies, 2.0), exact))
    True
    """
    reached = _where_reached(mdp, policies)
    distinct, which = np.unique(reached.reshape(len(reached), -1), axis=0, return_inverse=True)
    values = [evaluate(mdp, policy.reshape(reached.shape[1:]), beta).value for policy in distinct]
    return np.array(values)[which.ravel()]


def _where_reached(mdp: FiniteMDP, policies: np.ndarray) -> np.ndarray:
    """Return the policies with action 0 in states that they never reach, so that few different policies are left."""
    states, same = np.arange(mdp.n_states), np.zeros_like(policies)
    occupied = np.broadcast_to(mdp.start_distribution > 0, (len(policies), mdp.n_states))
    for h in range(mdp.horizon):
        same[:, h] = np.where(occupied, policies[:, h], 0)
        rows = mdp.step_rows(h)
        possible = np.zeros((len(rows.indptr) - 1, mdp.n_states), dtype=bool)
        possible[np.repeat(np.arange(len(possible)), np.diff(rows.indptr)), rows.indices] = True
        chosen = possible[states * mdp.n_actions + policies[:, h]]
        occupied = (occupied[:, :, None] & chosen).any(axis=1)
    return same
