"""The compiled plan of the KL method, and the compiled run that plans after every episode.

The formulas are those of :mod:`entropic_bpi.methods.kl.method`.
"""

import math

import numpy as np
from numba import prange

from entropic_bpi.compile.decorators import compiled, inlined, inner, parallel
from entropic_bpi.methods.kl import records, states
from entropic_bpi.methods.kl.ball import TOLERANCE
from entropic_bpi.methods.kl.boxes import BOX_GROWTH, no_boxes
from entropic_bpi.methods.kl.gap import SAME_TOLERANCE
from entropic_bpi.methods.kl.rates import reached
from entropic_bpi.methods.kl.records import Candidate, Inputs, Optimism, PlanConstants, Scratch
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame, actions_at
from entropic_bpi.problem.sentences import END_REWARDS, STAY_REWARDS
from entropic_bpi.sources.simulator import Kernel, play_episode
from entropic_bpi.types import Behaviour

# The round in which a given policy is evaluated.
FINAL_ROUND = -1
# The pair certificate is computed after this growth of the episodes, or if its expected gap is within this factor of ε.
PAIRS_GROWTH, PAIRS_CLOSE = 1.2, 1.1
# Rounding of the exponents βr, relative, added on the safe side.
EXPONENT_ROUNDING = 1e-15


def plan_constants(
    problem: Problem, beta: float, seed: int, challenge: bool, eps: float, *, boxed: bool
) -> PlanConstants:
    """Return the constants of plans at ``beta``, before the first one; ``boxed``: rows may have boxes."""
    shift = problem.possible_rewards[0]
    factor, gain = np.append(problem.factors, 1.0), np.empty((0, 0, 0))
    if problem.rewards is not None:
        steps = factor[:-1, None, None] if problem.discount is not None else 1.0
        gain = np.exp(beta * steps * (problem.rewards - shift))
    widest = int(problem.slots.used.max())
    bottom, top = _declared_ends(problem, beta)
    return PlanConstants(
        beta=beta,
        sign=1.0 if beta > 0 else -1.0,
        shift=shift,
        log_union=math.log(max(problem.rows_at_risk, 1) / problem.delta_of_transitions),
        gain=gain,
        factor=factor,
        possible=problem.slots.possible,
        top=top,
        bottom=bottom,
        radius=np.where(problem.uncertain, np.inf, 0.0),
        planned=np.full(problem.n_rows, -1),
        widest=max(widest, problem.n_states + 2 + END_REWARDS + STAY_REWARDS if problem.open_ended else 0),
        exponent_rounding=EXPONENT_ROUNDING * abs(beta) * problem.return_spread,
        tolerance=TOLERANCE,
        same_tolerance=SAME_TOLERANCE,
        seed=seed,
        eps=eps,
        challenge=challenge,
        interval=no_boxes(problem.n_rows) if boxed else np.empty(0),
    )


def _declared_ends(problem: Problem, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds on e^{β·return} from each step on, for the shifted rewards, under the declared range of returns.

    After h steps, rewards from h·low to h·high were paid, and what follows does not depend on them: the remaining return is
    at most R_high - h·low and at least R_low - h·high. The artificial step, which is last here, is like the first one.
    Underflow is safe: a lower end of 0 is trivial, and the upper end is at least e^-600, since the declared range meets that
    of the rewards.
    """
    after = np.append(np.arange(problem.horizon), 0)
    if not problem.limits_returns:
        return np.zeros(len(after)), np.full(len(after), np.inf)
    assert problem.next_state_rewards
    (low, high), (least, most) = problem.possible_rewards, problem.return_limits
    smallest = least - problem.horizon * low - after * (high - low)
    largest = np.full(len(after), most - problem.horizon * low)
    size = abs(least) + abs(most) + problem.horizon * (abs(low) + abs(high))
    room = EXPONENT_ROUNDING * (1.0 + abs(beta) * size)
    exponents = np.sort(beta * np.stack([smallest, largest]), axis=0)
    with np.errstate(over="ignore"):  # a range of returns far beyond what rewards allow
        return np.exp(exponents[0] - room), np.exp(exponents[1] + room)


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
    """Return a lower bound on the candidate's value, an upper bound on the optimum and the gap, rounded outwards.

    They are infinite if they cannot be computed. Underflow is safe: a Z of 0 gives no bound.
    """
    pad = (states.ROUNDING * (frame.steps + 1) + rules.exponent_rounding) / abs(rules.beta)
    best, worst = optimism.z[0, frame.start], plan.z[0, frame.start]
    upper = math.log(best) / rules.beta + pad if 0.0 < best < np.inf else np.inf
    lower = math.log(worst) / rules.beta - pad if 0.0 < worst < np.inf else -np.inf
    gap = math.log(ratio) / abs(rules.beta) + pad if 1.0 <= ratio < np.inf else np.inf
    return lower, upper, min(gap, upper - lower)


def pairs_due(asked: records.PairsAsked, episodes: int, gap: float, eps: float) -> bool:
    """Return whether the pair certificate is due: it may end the run, or was not computed for long.

    It is also due for the counts of the last time, so that a plan that is made again is the same.
    """
    if gap <= eps:
        return False
    if episodes == asked.episodes or episodes >= PAIRS_GROWTH * asked.episodes:
        return True
    # Expect the two gaps to fall by the same factor.
    return asked.pairs < np.inf and gap < np.inf and asked.pairs * float(gap) <= PAIRS_CLOSE * eps * asked.ratio


def boxes_due(boxed: int, episodes: int, gap: float, eps: float) -> bool:
    """Return whether boxes are due: they were not tried for long, or it was for the same counts."""
    return boxed >= 0 and not gap <= eps and (episodes == boxed or episodes >= BOX_GROWTH * boxed)


def _first_kind_of(round: int) -> int:
    """Return which candidate is tried first: the order changes every second round, so that each leads challenger rounds."""
    if round == FINAL_ROUND:
        return states.GIVEN
    return states.SMALLEST_GAP if round // 2 % 2 else states.PESSIMISTIC_BEST


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
    first: Candidate,
    second: Candidate,
    scratch: Scratch,
    round: int,
) -> tuple[float, float, float, int, int]:
    """Make a plan; return the claim, the candidate that it is about, and the candidate that was evaluated last.

    The states of a step are planned in as many parts as there are layers of scratch, by several threads or by one.
    """
    states.refresh_radii(rules, arrays)
    parts = scratch.work.shape[0]
    for h in range(frame.steps - 1, -1, -1):
        begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
        for part in prange(parts):
            inputs = Inputs(frame, rules, arrays, _layer(scratch, part))
            for i in range(begin + part * count // parts, begin + (part + 1) * count // parts):
                states.optimistic_state(inputs, optimism, h, frame.states[i])
        _extend(frame, h, optimism.z, rules.sign > 0)
    kind = claimed = _first_kind(round)
    lower, upper, gap = -np.inf, np.inf, np.inf
    for tried in range(2):
        plan = first if kind % 2 == 0 else second
        for h in range(frame.steps - 1, -1, -1):
            begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
            for part in prange(parts):
                inputs = Inputs(frame, rules, arrays, _layer(scratch, part))
                # Without linking, Numba passes a named tuple into a ``prange`` only if it is an argument.
                own, twin = (first, second) if kind % 2 == 0 else (second, first)
                trial = records.Trial(optimism, own, twin, kind, tried == 1)
                for i in range(begin + part * count // parts, begin + (part + 1) * count // parts):
                    states.candidate_state(inputs, trial, h, frame.states[i])
            _extend(frame, h, plan.z, rules.sign < 0)
            _extend(frame, h, plan.high, True)
            _extend(frame, h, plan.rho, True)
        claim = _claim(frame, rules, optimism, plan, plan.rho[0, frame.start])
        if claim[2] < gap:
            claimed = kind
            lower, upper, gap = claim
        if reached(gap, rules.eps) or kind == states.GIVEN:
            break
        kind = 1 - kind
    return lower, upper, gap, claimed, kind if reached(gap, rules.eps) else 1 - kind


@compiled
def _value_optimistically(inputs: Inputs, policy: np.ndarray, values: np.ndarray) -> None:
    """Fill ``values`` ``(steps + 1, S + 1)``, 1 after the last step, with optimistic values of a given policy."""
    frame, sign = inputs.frame, inputs.rules.sign
    for h in range(frame.steps - 1, -1, -1):
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            values[h, s] = states.backup(inputs, h, s, min(policy[h, s], actions_at(frame, h) - 1), values[h + 1], sign)
        _extend(frame, h, values, sign > 0)


_plan_large = parallel(_plan_all)
_plan_small = compiled(_plan_all)


@compiled
def _run_every(
    kernel: Kernel,
    rng: np.random.Generator,
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    memory: tuple[Optimism, tuple[Candidate, Candidate], Scratch],
    challenger: tuple[np.ndarray, np.ndarray],
    begin: records.EveryBegin,
    spare: int,
    history: np.ndarray,
) -> tuple[int, int, int, int, int]:
    """Play an episode, plan, test; once for each row of ``history``, or until the test passes or pairs are due.

    The ``challenger`` is played if it is remembered from the pair certificate, otherwise that of the last candidate.
    Returns the number of episodes played, which candidate the last claim is about, which one was evaluated last, and the row
    and successor of a transition that is declared impossible, or -1, -1.
    """
    optimism, plans, scratch = memory
    claimed = last = begin.last
    for i in range(len(history)):
        if arrays.end[0] + spare > arrays.successor.size:
            return i, claimed, last, -1, -1
        round, episodes = begin.round + i + 1, begin.episodes + i + 1
        policy, switch_action = challenger if begin.remembered else (plans[last].policy, plans[last].switch_action)
        behaviour = Behaviour(optimism.policy, policy, switch_action, rules.challenge and round % 2 == 0)
        row, successor = play_episode(kernel, frame, behaviour, arrays, rng)
        if row >= 0:
            return i, claimed, last, row, successor
        lower, upper, gap, claimed, last = _plan_small(frame, rules, arrays, optimism, *plans, scratch, round)
        history[i, 0], history[i, 1], history[i, 2] = lower, upper, gap
        due = _due(begin.asked, episodes, gap, rules.eps) or _boxes_due(begin.boxed, episodes, gap, rules.eps)
        if due or reached(gap, rules.eps):
            return i + 1, claimed, last, -1, -1
    return len(history), claimed, last, -1, -1
