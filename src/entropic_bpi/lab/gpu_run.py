"""The stages of a run of the KL method in a thread of a GPU: begin, plan, pair certificate, test, play.

All runs complete a stage before the next stage starts, so that each stage is a small kernel. A stage calls the functions
that plan on the CPU; this module repeats only what ``KL`` and the loop of a run do in Python.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inner, serial
from entropic_bpi.lab.philox import open_stream, uniform
from entropic_bpi.methods.kl import pairs
from entropic_bpi.methods.kl import plan as kl
from entropic_bpi.methods.kl.method import CONVERGED, PAIRS_LEAD, PAIRS_ROOM, SAME_CONVERGED
from entropic_bpi.methods.kl.records import (
    NEVER_ASKED,
    Candidate,
    Inputs,
    Optimism,
    PairBuffers,
    PairsAsked,
    PlanConstants,
    Scratch,
)
from entropic_bpi.methods.kl.states import GIVEN
from entropic_bpi.problem.counts import CountArrays, record
from entropic_bpi.problem.rows import Frame, row_of
from entropic_bpi.sources.simulator import Kernel, choose_action, kernel_row, next_state
from entropic_bpi.types import Behaviour


class TrueRows(NamedTuple):
    """Input of the oracle: for each row of the counts the row of the ``kernel``, and whether the event is about it."""

    source: np.ndarray
    concerned: np.ndarray


class RunConfig(NamedTuple):
    """Settings: the growth of batches, the largest number of episodes, the key of the streams, and the initial records."""

    replan: float
    budget: int
    key: int
    fresh: CountArrays
    radius: np.ndarray


class PairMemory(NamedTuple):
    """Working memory of the pair certificate."""

    buffers: PairBuffers
    occupied: np.ndarray
    switch_action: np.ndarray


class RunMemory(NamedTuple):
    """The challenger that the last pair certificate proposes."""

    policy: np.ndarray
    switch_action: np.ndarray


# Phases of a run: it plays, its claim is computed with converged solvers, or it has ended.
RUNNING, CONCLUDING, DONE = 0, 1, 2


class RunStatus(NamedTuple):
    """The status of each run: arrays ``(runs,)``, and ``claim`` ``(runs, 4)``.

    ``claim`` has the lower and upper bound, and the gap of the gap certificate and of the pair certificate. ``kind`` is the
    candidate of the smallest gap, ``best``; ``last`` is the one that was evaluated last. The pair certificate was last
    computed after ``asked`` episodes, when the gap certificate had the gap ``ratio``. ``event`` says whether E_cat held at
    every plan.
    """

    phase: np.ndarray
    episodes: np.ndarray
    round: np.ndarray
    seed: np.ndarray
    kind: np.ndarray
    last: np.ndarray
    asked: np.ndarray
    ratio: np.ndarray
    best: np.ndarray
    stopped: np.ndarray
    event: np.ndarray
    claim: np.ndarray


class Records(NamedTuple):
    """The records of one run, or of all runs, with the run as the first axis."""

    arrays: CountArrays
    optimism: Optimism
    plans: tuple[Candidate, Candidate]
    layers: Scratch
    memory: PairMemory
    kept: RunMemory
    radius: np.ndarray
    planned: np.ndarray
    stream: np.ndarray
    status: RunStatus


class World(NamedTuple):
    """The inputs that all runs share."""

    kernel: Kernel
    frame: Frame
    rules: PlanConstants
    truth: TrueRows
    setup: RunConfig


_plan = serial(kl._plan_all)


# -- one run -----------------------------------------------------------------------------------------------------


@inner
def _clear(
    rules: PlanConstants, arrays: CountArrays, optimism: Optimism, plans: tuple[Candidate, Candidate], setup: RunConfig
) -> None:
    """Reset the records of a run to those before the first episode."""
    fresh = setup.fresh
    for row in range(arrays.visits.size):
        arrays.visits[row], arrays.capacity[row] = 0, 0
        arrays.begin[row], arrays.used[row] = fresh.begin[row], fresh.used[row]
        rules.planned[row], rules.radius[row] = -1, setup.radius[row]
    for j in range(arrays.tally.size):
        arrays.successor[j], arrays.tally[j] = fresh.successor[j], 0
        for t in range(arrays.low.shape[0]):
            arrays.low[t, j], arrays.high[t, j] = fresh.low[t, j], fresh.high[t, j]
    arrays.end[0] = fresh.end[0]
    for h in range(optimism.policy.shape[0]):
        for s in range(optimism.policy.shape[1]):
            optimism.policy[h, s] = 0
            for i in range(2):
                plans[i].policy[h, s], plans[i].switch_action[h, s] = 0, 0
    for h in range(optimism.z.shape[0]):
        for s in range(optimism.z.shape[1]):
            optimism.z[h, s] = 1.0
            for i in range(2):
                plans[i].z[h, s], plans[i].high[h, s], plans[i].rho[h, s] = 1.0, 1.0, 1.0


@inner
def _play(kernel: Kernel, frame: Frame, behaviour: Behaviour, arrays: CountArrays, stream: np.ndarray) -> None:
    s, leading = frame.start, behaviour.leading
    for h in range(frame.steps):
        a, leading = choose_action(behaviour, leading, h, s)
        successor = next_state(kernel, kernel_row(kernel, frame, h, s, a), uniform(stream))
        # There is always room, and the declarations were read from the model, so nothing can be refused.
        record(arrays, frame.n_states, row_of(frame, h, s, a), successor, 1)
        s = successor


@inner
def _event_holds(rules: PlanConstants, arrays: CountArrays, kernel: Kernel, truth: TrueRows) -> bool:
    """Return whether every row of the true kernel that matters lies in its ball, as ``MixtureEvent`` does on the CPU."""
    for row in range(arrays.visits.size):
        n, divergence = arrays.visits[row], 0.0
        if n == 0 or not truth.concerned[row]:
            continue
        for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
            if arrays.tally[j] > 0:
                p = 0.0
                for i in range(kernel.indptr[truth.source[row]], kernel.indptr[truth.source[row] + 1]):
                    if kernel.indices[i] == arrays.successor[j]:
                        p = kernel.probabilities[i]
                if p == 0.0:
                    return False
                divergence += arrays.tally[j] * (math.log(arrays.tally[j] / n) - math.log(p))
        if not divergence <= n * rules.radius[row]:
            return False
    return True


@inner
def _rules_of(world: World, mine: Records, i: int) -> PlanConstants:
    """Return the constants of run ``i``; solvers converge when its claim is computed."""
    rules, concluding = world.rules, mine.status.phase[i] == CONCLUDING
    return PlanConstants(
        rules.beta, rules.sign, rules.shift, rules.log_union, rules.gain, rules.factor, rules.possible, rules.top,
        rules.bottom, mine.radius, mine.planned, rules.widest, rules.exponent_rounding,
        CONVERGED if concluding else rules.tolerance, SAME_CONVERGED if concluding else rules.same_tolerance,
        mine.status.seed[i], rules.eps, rules.challenge, rules.interval,
    )  # fmt: skip


@inner
def _pair_ratio(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    scratch: Scratch,
    memory: PairMemory,
) -> float:
    """Compute ``pairs.pair_ratio`` with the given working memory; infinite if there are too many pairs."""
    own, occupied, inputs = memory.buffers, memory.occupied, Inputs(frame, rules, arrays, scratch)
    for h in range(frame.steps):
        for s in range(frame.n_states + 1):
            occupied[h, s] = False
    if pairs._occupy(inputs, optimism, plan, occupied, pairs.MOST_PAIRS) > pairs.MOST_PAIRS:
        return np.inf
    next = own.next
    for x in range(frame.n_states + 1):
        next.position[x], next.rho[x], own.scratch.known[x] = 0, 1.0, -1
        for y in range(frame.n_states + 1):
            next.d[x, y], next.r[x, y] = 1.0, 1.0
    return pairs.relate(inputs, optimism, plan, occupied, own, memory.switch_action)


@inner
def _differ(plans: tuple[Candidate, Candidate], occupied: np.ndarray) -> bool:
    """Return whether two policies differ in a state of the last pair certificate."""
    for h in range(occupied.shape[0]):
        for s in range(occupied.shape[1] - 1):
            if occupied[h, s] and plans[0].policy[h, s] != plans[1].policy[h, s]:
                return True
    return False


@inner
def _ask_pairs(
    frame: Frame,
    rules: PlanConstants,
    mine: Records,
    scratch: Scratch,
    gap: float,
    kind: int,
    last: int,
    concluding: bool,
) -> tuple[float, float, int]:
    """Return the smallest gap of the pair certificate, and the gap of the sharper test with its candidate.

    This is ``KL._with_pairs`` or, for a given policy when ``concluding``, ``KL.bounds_of``.
    """
    plans, memory, kept = mine.plans, mine.memory, mine.kept
    smallest, best, chosen = np.inf, gap, kind
    room = 0.0 if concluding else PAIRS_ROOM
    for turn in range(1 if concluding else 2):
        tried = kind % 2 if turn == 0 else 1 - kind
        if turn == 1 and (best <= rules.eps or not _differ(plans, memory.occupied)):
            break
        ratio = _pair_ratio(frame, rules, mine.arrays, mine.optimism, plans[tried], scratch, memory)
        apart = kl._claim(frame, rules, mine.optimism, plans[tried], ratio)[2] * (1.0 + room)
        if turn == 0 or tried == last:
            _copy(kept.policy, plans[tried].policy)
            _copy(kept.switch_action, memory.switch_action)
        smallest = min(smallest, apart)
        if apart < best:
            best, chosen = apart, tried
    return smallest, best, chosen


@inner
def _copy(into: np.ndarray, source: np.ndarray) -> None:
    for h in range(into.shape[0]):
        for s in range(into.shape[1]):
            into[h, s] = source[h, s]


# -- the stages ----------------------------------------------------------------------------------------------------


@inner
def begin(world: World, mine: Records, i: int) -> None:
    """Reset the records of a run, and start its stream of random numbers."""
    now = mine.status
    open_stream(mine.stream, world.setup.key, i)
    now.seed[i] = int(uniform(mine.stream) * 4611686018427387904.0) + 1  # 0 would prefer the lowest action
    now.phase[i], now.episodes[i], now.round[i], now.event[i] = RUNNING, 0, 0, True
    now.asked[i], now.claim[i, 3], now.ratio[i] = NEVER_ASKED.episodes, NEVER_ASKED.pairs, NEVER_ASKED.ratio
    _clear(_rules_of(world, mine, i), mine.arrays, mine.optimism, mine.plans, world.setup)


@inner
def plan(world: World, mine: Records, i: int) -> None:
    """Plan, and compute the gap certificate."""
    now, rules = mine.status, _rules_of(world, mine, i)
    lower, upper, gap, now.kind[i], now.last[i] = _plan(
        world.frame, rules, mine.arrays, mine.optimism, *mine.plans, mine.layers, now.round[i]
    )
    now.claim[i, 0], now.claim[i, 1], now.claim[i, 2], now.best[i] = lower, upper, gap, gap


@inner
def pair(world: World, mine: Records, i: int) -> None:
    """Compute the pair certificate if it is due."""
    now, rules, layers = mine.status, _rules_of(world, mine, i), mine.layers
    concluding, gap = now.phase[i] == CONCLUDING, now.claim[i, 2]
    asked = PairsAsked(now.asked[i], now.claim[i, 3], now.ratio[i])
    if not concluding and not kl._due(asked, now.episodes[i], gap, rules.eps):
        return
    scratch = Scratch(layers.work[0], layers.pessimistic[0], layers.bounds[0], layers.shared[0], layers.scores[0])
    now.claim[i, 3], now.best[i], now.kind[i] = _ask_pairs(
        world.frame, rules, mine, scratch, gap, now.kind[i], now.last[i], concluding
    )
    now.asked[i], now.ratio[i] = now.episodes[i], gap


@inner
def test(world: World, mine: Records, i: int) -> None:
    """Decide whether the run stops; the next plan is then about the certified policy."""
    now, plans, rules = mine.status, mine.plans, _rules_of(world, mine, i)
    if now.phase[i] == CONCLUDING:
        now.phase[i] = DONE
        return
    now.event[i] = now.event[i] and _event_holds(rules, mine.arrays, world.kernel, world.truth)
    now.stopped[i] = now.best[i] <= rules.eps
    if now.stopped[i] or now.episodes[i] >= world.setup.budget:
        _copy(plans[GIVEN % 2].policy, plans[now.kind[i]].policy)
        now.phase[i], now.round[i] = CONCLUDING, kl.FINAL_ROUND


@inner
def play(world: World, mine: Records, i: int) -> None:
    """Play the next batch of a run that has not ended."""
    now, plans, kept, setup = mine.status, mine.plans, mine.kept, world.setup
    if now.phase[i] != RUNNING:
        return
    remembered, last = now.claim[i, 3] < PAIRS_LEAD * now.ratio[i], now.last[i]
    lead = (kept.policy, kept.switch_action) if remembered else (plans[last].policy, plans[last].switch_action)
    behaviour = Behaviour(mine.optimism.policy, lead[0], lead[1], world.rules.challenge and now.round[i] % 2 == 1)
    batch = min(max(1, math.ceil(setup.replan * now.episodes[i])), setup.budget - now.episodes[i])
    for _ in range(batch):
        _play(world.kernel, world.frame, behaviour, mine.arrays, mine.stream)
    now.episodes[i] += batch
    now.round[i] += 1
