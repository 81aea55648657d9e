"""What one action or one state costs in a plan of the KL method: the functions that both its CPU and its GPU loops call.

The formulas are those of :mod:`entropic_bpi.methods.kl.method`; records are passed in, and results are written into
them.
"""

from __future__ import annotations

import numpy as np

from entropic_bpi.compile.decorators import compiled, inlined, inner
from entropic_bpi.methods.kl.gap import action_weight, deviation_ratio, ratio_of, row_extreme, same_ratio, slot_value
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.methods.kl.records import Box, Candidate, Deviation, Optimism, Place, PlanConstants, Scratch, Trial
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, actions_at, is_allowed, row_of
from entropic_bpi.problem.ties import wins_tie

# Rounding of one step of the recursion, relative, added on the safe side.
ROUNDING = 1e-13

# Which candidate is planned: the best pessimistically, the one of the smallest gap, or a policy that is given.
PESSIMISTIC_BEST, SMALLEST_GAP, GIVEN = 0, 1, 2


@inner
def refresh_radius(rules: PlanConstants, arrays: CountArrays, row: int) -> None:
    n, possible, most = arrays.visits[row], rules.possible[row], arrays.max_outcomes[row]
    if rules.planned[row] == n:
        return
    rules.planned[row] = n
    if possible > 1 and most != 1 and n > 0:
        tally = arrays.tally[arrays.begin[row] : arrays.begin[row] + arrays.used[row]]
        rules.radius[row] = (rules.log_union + mixture_radius(tally, possible, most)) / n


@compiled
def refresh_radii(rules: PlanConstants, arrays: CountArrays) -> None:
    """Recompute the radius of the rows visited since the last plan."""
    for row in range(arrays.visits.size):
        refresh_radius(rules, arrays, row)


@inlined
def backup(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    place: Place,
    a: int,
    values: np.ndarray,
    sign: float,
    scratch: Scratch,
) -> float:
    """Largest (``sign`` 1) or smallest (-1) mean of e^{βr} ``values`` over the ball and the rewards that are possible.

    Never a NaN: what cannot be computed is infinite, on the safe side. Nothing underflows: exponents are at most 600.
    """
    row = row_of(frame, place.h, place.s, a)
    begin, size = arrays.begin[row], arrays.used[row]
    f = scratch.work[2]
    for j in range(size):
        after = values[arrays.successor[begin + j]]
        f[j] = slot_value(rules, arrays, place.h - frame.artificial, begin + j, after, sign > 0)
    value = action_weight(frame, rules, place, a) * row_extreme(rules, arrays, row, f, sign, scratch)
    return value if abs(value) < np.inf else sign * np.inf


@inner
def optimistic_state(
    frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, place: Place, scratch: Scratch
) -> None:
    h, s = place.h, place.s
    for a in range(actions_at(frame, h)):
        optimism.u[h, s, a] = optimistic_action(frame, rules, arrays, optimism, place, a, scratch)
    choose_greedy(frame, rules, arrays, optimism, place)


@inlined
def worst_value(rules: PlanConstants) -> float:
    """Z of a forbidden action: worse than that of any other."""
    return 0.0 if rules.sign > 0 else np.inf


@inlined
def optimistic_action(
    frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, place: Place, a: int, scratch: Scratch
) -> float:
    if not is_allowed(frame, place.h, place.s, a):
        return worst_value(rules)
    return backup(frame, rules, arrays, place, a, optimism.z[place.h + 1], rules.sign, scratch)


@inner
def choose_greedy(frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, place: Place) -> None:
    """Choose the action with the best optimistic value; of equal ones that which was seen less."""
    sign, h, s = rules.sign, place.h, place.s
    best, chosen, visits = 0.0, -1, 0
    for a in range(actions_at(frame, h)):
        if not is_allowed(frame, h, s, a):
            continue
        u = optimism.u[h, s, a]
        n = arrays.visits[row_of(frame, h, s, a)]
        better = chosen < 0 or sign * u > sign * best
        if not better and u == best:
            better = n < visits or (n == visits and wins_tie(rules.seed, h, s, a, chosen))
        if better:
            best, chosen, visits = u, a, n
    optimism.z[h, s] = best
    optimism.policy[h, s] = chosen


@inlined
def is_rival(rules: PlanConstants, optimism: Optimism, place: Place, leader: int, a: int, scratch: Scratch) -> bool:
    """Whether ``a``, or the leader itself, may be as good as the leader is at worst."""
    sign = rules.sign
    return a == leader or not sign * optimism.u[place.h, place.s, a] < sign * scratch.pessimistic[leader]


@inlined
def _bound_by_others(
    frame: Frame, rules: PlanConstants, optimism: Optimism, place: Place, a: int, pessimistic: np.ndarray
) -> float:
    bound = 1.0
    for b in range(frame.n_actions):
        if b != a:
            bound = max(bound, ratio_of(rules.sign, optimism.u[place.h, place.s, b], pessimistic[a]))
    return bound


@inner
def bound_if_chosen(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    a: int,
    scratch: Scratch,
) -> float:
    """The bound of the gap in this state if the candidate takes ``a``."""
    row, box = row_of(frame, place.h, place.s, a), box_after(rules, optimism, plan, place.h)
    floor = _bound_by_others(frame, rules, optimism, place, a, scratch.pessimistic)
    return same_ratio(rules, arrays, row, place.h - frame.artificial, box, floor, np.inf, scratch)


@inner
def choose_smallest_gap(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    leader: int,
    scratch: Scratch,
) -> int:
    """The action with the smallest gap bound in this state; ties go to the better pessimistic value.

    Bounds that ``scratch`` has, which are not 0, are not computed again.
    """
    sign, h, s, pessimistic = rules.sign, place.h, place.s, scratch.pessimistic
    chosen, score = -1, np.inf
    for a in range(frame.n_actions):
        if not (is_allowed(frame, h, s, a) and is_rival(rules, optimism, place, leader, a, scratch)):
            continue
        bound = _bound_by_others(frame, rules, optimism, place, a, pessimistic)
        if bound < score or chosen < 0:
            bound = scratch.bounds[a]
            if bound == 0.0:
                bound = bound_if_chosen(frame, rules, arrays, optimism, plan, place, a, scratch)
        better = chosen < 0 or bound < score
        if not better and bound == score:
            gain = sign * (pessimistic[a] - pessimistic[chosen])
            better = gain > 0.0 or (gain == 0.0 and wins_tie(rules.seed, h, s, a, chosen))
        if better:
            chosen, score = a, bound
    return chosen


@inlined
def have_rivals(
    frame: Frame, rules: PlanConstants, optimism: Optimism, place: Place, leader: int, scratch: Scratch
) -> bool:
    """Whether an action besides the leader, the best pessimistically, may be the best."""
    rivals = 0
    for a in range(actions_at(frame, place.h)):
        rivals += rules.sign * optimism.u[place.h, place.s, a] >= rules.sign * scratch.pessimistic[leader]
    return rivals > 1


@inlined
def choose_pessimistic_best(frame: Frame, rules: PlanConstants, place: Place, scratch: Scratch) -> int:
    h, s, pessimistic, chosen = place.h, place.s, scratch.pessimistic, -1
    for a in range(actions_at(frame, h)):
        if not is_allowed(frame, h, s, a):
            continue
        gain = 1.0 if chosen < 0 else rules.sign * (pessimistic[a] - pessimistic[chosen])
        if gain > 0.0 or (gain == 0.0 and wins_tie(rules.seed, h, s, a, chosen)):
            chosen = a
    return chosen


@inlined
def _copied(frame: Frame, arrays: CountArrays, trial: Trial, place: Place) -> bool:
    """Take over the bounds of the twin, which plays the same action here, if nothing that they depend on differs."""
    plan, twin, h, s = trial.plan, trial.twin, place.h, place.s
    for a in range(actions_at(frame, h)):
        row = row_of(frame, h, s, a)
        for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
            y = arrays.successor[j]
            if (
                plan.z[h + 1, y] != twin.z[h + 1, y]
                or plan.high[h + 1, y] != twin.high[h + 1, y]
                or plan.rho[h + 1, y] != twin.rho[h + 1, y]
            ):
                return False
    plan.z[h, s], plan.high[h, s] = twin.z[h, s], twin.high[h, s]
    plan.rho[h, s], plan.turn[h, s] = twin.rho[h, s], twin.turn[h, s]
    return True


@inner
def candidate_state(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    trial: Trial,
    place: Place,
    scratch: Scratch,
) -> None:
    """Choose the candidate's action in one state and bound its value and its gap."""
    sign, h, s, pessimistic = rules.sign, place.h, place.s, scratch.pessimistic
    greedy, given = optimism.policy[h, s], given_action(frame, trial, place)
    best = -sign * np.inf
    for i in range(-1, actions_at(frame, h)):  # the greedy action first
        a = greedy if i < 0 else i
        if i == greedy:
            continue
        # An action that is at best worse than another is at worst need not be valued: it cannot be chosen.
        pessimistic[a] = optimism.u[h, s, a]
        if not is_allowed(frame, h, s, a):
            continue
        if i < 0 or sign * pessimistic[a] >= sign * best or a == given:
            pessimistic[a] = backup(frame, rules, arrays, place, a, trial.plan.z[h + 1], -sign, scratch)
            if i < 0 or sign * pessimistic[a] > sign * best:
                best = pessimistic[a]
    choose(frame, rules, arrays, optimism, trial, place, scratch)
    if settle(frame, rules, arrays, optimism, trial, place, scratch):
        contest(frame, rules, arrays, optimism, trial.plan, place, scratch)


@inlined
def given_action(frame: Frame, trial: Trial, place: Place) -> int:
    """The action of a given policy, -1 where the candidate is to be chosen."""
    # The artificial step has one action, whatever a given policy names there: no other is valued.
    return min(trial.plan.policy[place.h, place.s], actions_at(frame, place.h) - 1) if trial.kind == GIVEN else -1


@inlined
def box_after(rules: PlanConstants, optimism: Optimism, plan: Candidate, h: int) -> Box:
    low, cap = (plan.z, optimism.z) if rules.sign > 0 else (optimism.z, plan.z)
    return Box(low[h + 1], plan.high[h + 1], plan.rho[h + 1], cap[h + 1])


@inner
def choose(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    trial: Trial,
    place: Place,
    scratch: Scratch,
) -> None:
    """Choose the candidate's action by the ``pessimistic`` values."""
    chosen = given_action(frame, trial, place)
    if chosen < 0:
        chosen = choose_pessimistic_best(frame, rules, place, scratch)
    if trial.kind == SMALLEST_GAP and have_rivals(frame, rules, optimism, place, chosen, scratch):
        scratch.bounds[:] = 0.0
        chosen = choose_smallest_gap(frame, rules, arrays, optimism, trial.plan, place, chosen, scratch)
    trial.plan.policy[place.h, place.s] = chosen


@inner
def settle(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    trial: Trial,
    place: Place,
    scratch: Scratch,
) -> bool:
    """All but ρ, for the action that was chosen; whether ρ is left to do."""
    h, s, plan = place.h, place.s, trial.plan
    chosen = plan.policy[h, s]
    if trial.second and trial.twin.policy[h, s] == chosen and _copied(frame, arrays, trial, place):
        return False
    plan.z[h, s] = scratch.pessimistic[chosen]
    plan.high[h, s] = _box_top(frame, rules, arrays, optimism, plan, place, scratch)
    plan.turn[h, s] = -1
    plan.rho[h, s] = 1.0
    return not ratio_of(rules.sign, optimism.z[h, s], plan.z[h, s]) <= 1.0


@inner
def contest(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    scratch: Scratch,
) -> None:
    """Bound ρ where another action may be better, or the candidate's own with a better future."""
    # The greedy action first, for it deviates most; `same` next, and only as far as it matters.
    greedy = optimism.policy[place.h, place.s]
    keep_worse(plan, place, greedy, deviate(frame, rules, arrays, optimism, plan, place, greedy, scratch))
    keep_worse(plan, place, -1, stay(frame, rules, arrays, optimism, plan, place, scratch))
    for a in range(actions_at(frame, place.h)):
        if a != greedy:
            keep_worse(plan, place, a, deviate(frame, rules, arrays, optimism, plan, place, a, scratch))
    conclude(rules, optimism, plan, place)


@inlined
def keep_worse(plan: Candidate, place: Place, turn: int, ratio: float) -> None:
    if not ratio <= plan.rho[place.h, place.s]:
        plan.rho[place.h, place.s], plan.turn[place.h, place.s] = ratio, turn


@inlined
def may_deviate(rules: PlanConstants, optimism: Optimism, plan: Candidate, place: Place, a: int) -> bool:
    """Whether another action, by what is known of it without a closer look, is worse for ρ than all so far."""
    h, s = place.h, place.s
    return a != plan.policy[h, s] and not ratio_of(rules.sign, optimism.u[h, s, a], plan.z[h, s]) <= plan.rho[h, s]


@inner
def deviate(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    a: int,
    scratch: Scratch,
) -> float:
    """How much better than the candidate's action ``a`` may be, where that matters; 1 elsewhere."""
    h, s, chosen = place.h, place.s, plan.policy[place.h, place.s]
    if not may_deviate(rules, optimism, plan, place, a):
        return 1.0
    limit = ratio_of(rules.sign, optimism.u[h, s, a], plan.z[h, s])
    row, other = row_of(frame, h, s, chosen), row_of(frame, h, s, a)
    gain = action_weight(frame, rules, place, a) / action_weight(frame, rules, place, chosen)
    top, bottom, gain = (other, row, gain) if rules.sign > 0 else (row, other, 1.0 / gain)
    deviation, box = Deviation(h - frame.artificial, top, bottom, gain), box_after(rules, optimism, plan, h)
    return deviation_ratio(rules, arrays, deviation, box, limit, scratch)


@inner
def stay(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    scratch: Scratch,
) -> float:
    """How much better the candidate's own action may be followed by others; what is worse already, if less."""
    h, s = place.h, place.s
    row, box = row_of(frame, h, s, plan.policy[h, s]), box_after(rules, optimism, plan, h)
    plain = ratio_of(rules.sign, optimism.z[h, s], plan.z[h, s])
    return same_ratio(rules, arrays, row, h - frame.artificial, box, plan.rho[h, s], plain, scratch)


@inlined
def conclude(rules: PlanConstants, optimism: Optimism, plan: Candidate, place: Place) -> None:
    h, s = place.h, place.s
    worst, plain = plan.rho[h, s], ratio_of(rules.sign, optimism.z[h, s], plan.z[h, s])
    bound = worst if worst < plain else plain
    plan.rho[h, s] = max(1.0, bound * (1.0 + ROUNDING)) if bound < np.inf else np.inf


@inlined
def _box_top(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    scratch: Scratch,
) -> float:
    """Upper end of the box: the candidate's optimistic value for β > 0, an upper bound of Z* for β < 0."""
    h, s = place.h, place.s
    value = np.inf if rules.sign > 0 else plan.z[h, s]
    for a in range(actions_at(frame, h)):
        if (rules.sign < 0 and is_allowed(frame, h, s, a)) or a == plan.policy[h, s]:
            value = min(value, backup(frame, rules, arrays, place, a, plan.high[h + 1], 1.0, scratch))
    return min(value, optimism.z[h, s]) if rules.sign > 0 else max(value, optimism.z[h, s])
