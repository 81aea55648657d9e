"""The compiled plan of the KL method, and the compiled run that plans after every episode.

The formulas are those of :mod:`entropic_bpi.methods.kl.method`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from entropic_bpi.compile.decorators import compiled, inlined, inner, parallel
from entropic_bpi.methods.kl.boxes import BOX_GROWTH
from entropic_bpi.methods.kl.rates import reached
from entropic_bpi.methods.kl.records import (
    Candidate,
    EveryBegin,
    Optimism,
    PairsAsked,
    Place,
    PlanConstants,
    Scratch,
    Trial,
)
from entropic_bpi.methods.kl.states import (
    GIVEN,
    PESSIMISTIC_BEST,
    ROUNDING,
    SMALLEST_GAP,
    backup,
    candidate_state,
    optimistic_state,
    refresh_radii,
)
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, actions_at
from entropic_bpi.sources.simulator import Kernel, play_episode
from entropic_bpi.types import Behaviour

# The round in which a given policy is evaluated.
FINAL_ROUND = -1
# When the pair certificate is computed: after this growth of the episodes, or this close to ε by what is expected of it.
PAIRS_GROWTH, PAIRS_CLOSE = 1.2, 1.1


@inner
def _extend(frame: Frame, h: int, values: np.ndarray, largest: bool) -> None:
    """Fill the column "elsewhere" of step ``h`` with the extreme over the reachable states."""
    extreme = -np.inf if largest else np.inf
    for i in range(frame.first_state[h], frame.first_state[h + 1]):
        value = values[h, frame.states[i]]
        extreme = max(extreme, value) if largest else min(extreme, value)
    values[h, -1] = extreme


def _claim_of(
    frame: Frame, rules: PlanConstants, optimism: Optimism, plan: Candidate, ratio: float
) -> tuple[float, float, float]:
    """Lower bound of the candidate's value, upper bound of the optimum, and the gap, rounded outwards; infinite: none.

    Underflow is safe: a Z of 0 gives no bound.
    """
    pad = (ROUNDING * (frame.steps + 1) + rules.exponent_rounding) / abs(rules.beta)
    best, worst = optimism.z[0, frame.start], plan.z[0, frame.start]
    upper = math.log(best) / rules.beta + pad if 0.0 < best < np.inf else np.inf
    lower = math.log(worst) / rules.beta - pad if 0.0 < worst < np.inf else -np.inf
    gap = math.log(ratio) / abs(rules.beta) + pad if 1.0 <= ratio < np.inf else np.inf
    return lower, upper, min(gap, upper - lower)


def pairs_due(asked: PairsAsked, episodes: int, gap: float, eps: float) -> bool:
    """Whether the pair certificate may decide, or was not asked for long; asked again about the same counts, it is."""
    if gap <= eps:
        return False
    if episodes == asked.episodes or episodes >= PAIRS_GROWTH * asked.episodes:
        return True
    # The two gaps fall together.
    return asked.pairs < np.inf and gap < np.inf and asked.pairs * float(gap) <= PAIRS_CLOSE * eps * asked.ratio


def boxes_due(boxed: int, episodes: int, gap: float, eps: float) -> bool:
    """Whether boxes are tried, and were not for long; asked again about the same counts, they are."""
    return boxed >= 0 and not gap <= eps and (episodes == boxed or episodes >= BOX_GROWTH * boxed)


def _first_kind_of(round: int) -> int:
    """Which candidate is tried first: the order changes every second round, so that each leads challenger rounds."""
    if round == FINAL_ROUND:
        return GIVEN
    return SMALLEST_GAP if round // 2 % 2 else PESSIMISTIC_BEST


_claim, _due, _first_kind = inner(_claim_of), inner(pairs_due), inner(_first_kind_of)
_boxes_due = inner(boxes_due)


@inlined
def _layer(scratch: Scratch, part: int) -> Scratch:
    return Scratch(
        scratch.work[part], scratch.pessimistic[part], scratch.bounds[part], scratch.shared[part], scratch.scores[part]
    )


def _plan_all(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plans: tuple[Candidate, Candidate],
    scratch: Scratch,
    round: int,
) -> tuple[float, float, float, int, int]:
    """Plan everything; the claim, which candidate it is about, and which one was evaluated last.

    The states of a step are planned in as many parts as there are layers of scratch, by several threads or by one.
    """
    refresh_radii(rules, arrays)
    parts = scratch.work.shape[0]
    for h in range(frame.steps - 1, -1, -1):
        begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
        for part in prange(parts):
            own = _layer(scratch, part)
            for i in range(begin + part * count // parts, begin + (part + 1) * count // parts):
                optimistic_state(frame, rules, arrays, optimism, Place(h, frame.states[i]), own)
        _extend(frame, h, optimism.z, rules.sign > 0)
    kind = claimed = _first_kind(round)
    lower, upper, gap = -np.inf, np.inf, np.inf
    for turn in range(2):
        # A record goes into a ``prange`` only if it was made here, and only if it holds no other.
        plan, twin = Candidate(*plans[kind % 2]), Candidate(*plans[1 - kind % 2])
        for h in range(frame.steps - 1, -1, -1):
            begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
            for part in prange(parts):
                own = _layer(scratch, part)
                trial = Trial(plan, twin, kind, turn == 1)
                for i in range(begin + part * count // parts, begin + (part + 1) * count // parts):
                    candidate_state(frame, rules, arrays, optimism, trial, Place(h, frame.states[i]), own)
            _extend(frame, h, plan.z, rules.sign < 0)
            _extend(frame, h, plan.high, True)
            _extend(frame, h, plan.rho, True)
        claim = _claim(frame, rules, optimism, plan, plan.rho[0, frame.start])
        if claim[2] < gap:
            claimed = kind
            lower, upper, gap = claim
        if reached(gap, rules.eps) or kind == GIVEN:
            break
        kind = 1 - kind
    return lower, upper, gap, claimed, kind if reached(gap, rules.eps) else 1 - kind


@compiled
def _value_optimistically(
    frame: Frame, rules: PlanConstants, arrays: CountArrays, policy: np.ndarray, values: np.ndarray, scratch: Scratch
) -> None:
    """How good a given policy may be: fill ``values`` ``(steps + 1, S + 1)``, which has 1 after the last step."""
    for h in range(frame.steps - 1, -1, -1):
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            place = Place(h, frame.states[i])
            a = min(policy[h, place.s], actions_at(frame, h) - 1)
            values[h, place.s] = backup(frame, rules, arrays, place, a, values[h + 1], rules.sign, scratch)
        _extend(frame, h, values, rules.sign > 0)


_plan_large = parallel(_plan_all)
_plan_small = compiled(_plan_all)


@compiled
def _run_every(
    kernel: Kernel,
    rng: np.random.Generator,
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    sheets: tuple[Optimism, tuple[Candidate, Candidate], Scratch],
    challenger: tuple[np.ndarray, np.ndarray],
    begin: EveryBegin,
    spare: int,
    history: np.ndarray,
) -> tuple[int, int, int, int, int]:
    """Play an episode, plan, test; once for each row of ``history``, or until the test passes or pairs are due.

    The ``challenger`` is played if it is remembered from the pair certificate, otherwise that of the last candidate.
    Returns the number of episodes played, which candidate the last claim is about, which one was evaluated last, and the
    transition that was declared impossible, if any.
    """
    optimism, plans, scratch = sheets
    round, claimed, last = begin.round, begin.last, begin.last
    for i in range(len(history)):
        if arrays.end[0] + spare > arrays.successor.size:
            return i, claimed, last, -1, -1
        leading = rules.challenge and (round + i) % 2 == 1
        policy, turn = challenger if begin.remembered else (plans[last].policy, plans[last].turn)
        behaviour = Behaviour(optimism.policy, policy, turn, leading)
        row, successor = play_episode(kernel, frame, behaviour, arrays, rng)
        if row >= 0:
            return i, claimed, last, row, successor
        lower, upper, gap, claimed, last = _plan_small(frame, rules, arrays, optimism, plans, scratch, round + i + 1)
        history[i, 0], history[i, 1], history[i, 2] = lower, upper, gap
        episodes = begin.episodes + i + 1
        due = _due(begin.asked, episodes, gap, rules.eps) or _boxes_due(begin.boxed, episodes, gap, rules.eps)
        if due or reached(gap, rules.eps):
            return i + 1, claimed, last, -1, -1
    return len(history), claimed, last, -1, -1
