"""The plan of one action or one state by the KL method: functions that both the CPU loops and the GPU loops call.

The formulas are those of :mod:`entropic_bpi.methods.kl.method`. Records are passed in, and results are written into them.
"""

import numpy as np

from entropic_bpi.compile.decorators import compiled, inlined, inner
from entropic_bpi.methods.kl.gap import action_weight, deviation_ratio, ratio_of, row_extreme, same_ratio, slot_value
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.methods.kl.records import Box, Candidate, Deviation, Inputs, Optimism, PlanConstants, Trial
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, actions_at, is_allowed, row_of
from entropic_bpi.problem.ties import wins_tie

# Rounding of one step of the recursion, relative, added on the safe side.
ROUNDING = 1e-13

# Which candidate is planned: the one with the best pessimistic value, the one with the smallest gap, or a given policy.
PESSIMISTIC_BEST, SMALLEST_GAP, GIVEN = 0, 1, 2


@inner
def refresh_radius(rules: PlanConstants, arrays: CountArrays, row: int) -> None:
    """Recompute the radius of a row if it was visited since the last plan."""
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
def backup(inputs: Inputs, h: int, s: int, a: int, values: np.ndarray, sign: float) -> float:
    """Return the largest (``sign`` 1) or smallest (-1) mean of e^{βr} ``values`` over the ball and the possible rewards.

    It is never NaN: a mean that cannot be computed is infinite, on the safe side. Nothing underflows: exponents are at most
    600.
    """
    frame, rules, arrays, scratch = inputs
    row, f = row_of(frame, h, s, a), scratch.work[2]
    for j in range(arrays.used[row]):
        slot = arrays.begin[row] + j
        f[j] = slot_value(rules, arrays, h - frame.artificial, slot, values[arrays.successor[slot]], sign > 0)
    value = action_weight(frame, rules, h, s, a) * row_extreme(inputs, row, f, sign)
    return value if abs(value) < np.inf else sign * np.inf


# -- the optimistic plan ---------------------------------------------------------------------------------------------


@inner
def optimistic_state(inputs: Inputs, optimism: Optimism, h: int, s: int) -> None:
    """Compute the optimistic values of all actions in one state, and choose the best."""
    for a in range(actions_at(inputs.frame, h)):
        optimism.u[h, s, a] = optimistic_action(inputs, optimism, h, s, a)
    choose_greedy(inputs.frame, inputs.rules, inputs.arrays, optimism, h, s)


@inlined
def optimistic_action(inputs: Inputs, optimism: Optimism, h: int, s: int, a: int) -> float:
    """Return the optimistic value of an action; that of a forbidden one is worse than any other."""
    if not is_allowed(inputs.frame, h, s, a):
        return 0.0 if inputs.rules.sign > 0 else np.inf
    return backup(inputs, h, s, a, optimism.z[h + 1], inputs.rules.sign)


@inner
def choose_greedy(frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, h: int, s: int) -> None:
    """Choose the action with the best optimistic value; of equal ones the one with fewer visits."""
    best, chosen, visits = 0.0, -1, 0
    for a in range(actions_at(frame, h)):
        if not is_allowed(frame, h, s, a):
            continue
        u, n = optimism.u[h, s, a], arrays.visits[row_of(frame, h, s, a)]
        better = chosen < 0 or rules.sign * u > rules.sign * best
        if not better and u == best:
            better = n < visits or (n == visits and wins_tie(rules.seed, h, s, a, chosen))
        if better:
            best, chosen, visits = u, a, n
    optimism.z[h, s], optimism.policy[h, s] = best, chosen


# -- the choice of the candidate -------------------------------------------------------------------------------------


@inner
def candidate_state(inputs: Inputs, trial: Trial, h: int, s: int) -> None:
    """Choose the candidate's action in one state and bound its value and its gap."""
    sign, pessimistic, u = inputs.rules.sign, inputs.scratch.pessimistic, trial.optimism.u
    greedy, given = trial.optimism.policy[h, s], given_action(inputs.frame, trial, h, s)
    best = -sign * np.inf
    for i in range(-1, actions_at(inputs.frame, h)):  # the greedy action first
        a = greedy if i < 0 else i
        if i == greedy:
            continue
        # An action whose optimistic value is worse than another's pessimistic value cannot be chosen: no backup is needed.
        pessimistic[a] = u[h, s, a]
        if not is_allowed(inputs.frame, h, s, a):
            continue
        if i < 0 or sign * pessimistic[a] >= sign * best or a == given:
            pessimistic[a] = backup(inputs, h, s, a, trial.plan.z[h + 1], -sign)
            if i < 0 or sign * pessimistic[a] > sign * best:
                best = pessimistic[a]
    chosen = given
    if chosen < 0:
        chosen = choose_pessimistic_best(inputs, h, s)
    if trial.kind == SMALLEST_GAP and have_rivals(inputs, trial.optimism, h, s, chosen):
        inputs.scratch.bounds[:] = 0.0
        chosen = choose_smallest_gap(inputs, trial, h, s, chosen)
    trial.plan.policy[h, s] = chosen
    if settle(inputs, trial, h, s):
        contest(inputs, trial, h, s)


@inlined
def given_action(frame: Frame, trial: Trial, h: int, s: int) -> int:
    """Return the action of a given policy; -1 if the candidate's action is to be chosen."""
    # The artificial step has one action, whatever a given policy has there.
    return min(trial.plan.policy[h, s], actions_at(frame, h) - 1) if trial.kind == GIVEN else -1


@inlined
def choose_pessimistic_best(inputs: Inputs, h: int, s: int) -> int:
    """Return the action with the best pessimistic value."""
    rules, pessimistic, chosen = inputs.rules, inputs.scratch.pessimistic, -1
    for a in range(actions_at(inputs.frame, h)):
        if not is_allowed(inputs.frame, h, s, a):
            continue
        gain = 1.0 if chosen < 0 else rules.sign * (pessimistic[a] - pessimistic[chosen])
        if gain > 0.0 or (gain == 0.0 and wins_tie(rules.seed, h, s, a, chosen)):
            chosen = a
    return chosen


@inlined
def have_rivals(inputs: Inputs, optimism: Optimism, h: int, s: int, leader: int) -> bool:
    """Return whether an action other than the leader, which has the best pessimistic value, may be the best."""
    sign, rivals = inputs.rules.sign, 0
    for a in range(actions_at(inputs.frame, h)):
        rivals += sign * optimism.u[h, s, a] >= sign * inputs.scratch.pessimistic[leader]
    return rivals > 1


@inlined
def is_rival(inputs: Inputs, optimism: Optimism, h: int, s: int, leader: int, a: int) -> bool:
    """Return whether ``a`` is the leader or may be at least as good as the leader's pessimistic value."""
    sign = inputs.rules.sign
    return a == leader or not sign * optimism.u[h, s, a] < sign * inputs.scratch.pessimistic[leader]


@inlined
def bound_by_others(inputs: Inputs, optimism: Optimism, h: int, s: int, a: int) -> float:
    """Return the largest ratio of another action's optimistic value to the pessimistic value of ``a``, at least 1."""
    bound = 1.0
    for b in range(inputs.frame.n_actions):
        if b != a:
            bound = max(bound, ratio_of(inputs.rules.sign, optimism.u[h, s, b], inputs.scratch.pessimistic[a]))
    return bound


@inner
def bound_if_chosen(inputs: Inputs, trial: Trial, h: int, s: int, a: int) -> float:
    """Return the bound on the gap in this state if the candidate takes ``a``."""
    floor = bound_by_others(inputs, trial.optimism, h, s, a)
    return _same(inputs, trial, h, s, a, floor, np.inf)


@inner
def choose_smallest_gap(inputs: Inputs, trial: Trial, h: int, s: int, leader: int) -> int:
    """Return the action with the smallest gap bound in this state; ties go to the better pessimistic value.

    Bounds in ``scratch`` that are not 0 are not computed again.
    """
    rules, pessimistic, chosen, score = inputs.rules, inputs.scratch.pessimistic, -1, np.inf
    for a in range(inputs.frame.n_actions):
        if not (is_allowed(inputs.frame, h, s, a) and is_rival(inputs, trial.optimism, h, s, leader, a)):
            continue
        bound = bound_by_others(inputs, trial.optimism, h, s, a)
        if bound < score or chosen < 0:
            bound = inputs.scratch.bounds[a]
            if bound == 0.0:
                bound = bound_if_chosen(inputs, trial, h, s, a)
        better = chosen < 0 or bound < score
        if not better and bound == score:
            gain = rules.sign * (pessimistic[a] - pessimistic[chosen])
            better = gain > 0.0 or (gain == 0.0 and wins_tie(rules.seed, h, s, a, chosen))
        if better:
            chosen, score = a, bound
    return chosen


# -- the bounds of the candidate -------------------------------------------------------------------------------------


@inlined
def _copied(frame: Frame, arrays: CountArrays, plan: Candidate, twin: Candidate, h: int, s: int) -> bool:
    """Copy the bounds of the twin, which plays the same action here, if all that they depend on is equal."""
    for a in range(actions_at(frame, h)):
        row = row_of(frame, h, s, a)
        for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
            y = arrays.successor[j]
            same = plan.z[h + 1, y] == twin.z[h + 1, y] and plan.high[h + 1, y] == twin.high[h + 1, y]
            if not same or plan.rho[h + 1, y] != twin.rho[h + 1, y]:
                return False
    plan.z[h, s], plan.high[h, s] = twin.z[h, s], twin.high[h, s]
    plan.rho[h, s], plan.switch_action[h, s] = twin.rho[h, s], twin.switch_action[h, s]
    return True


@inner
def settle(inputs: Inputs, trial: Trial, h: int, s: int) -> bool:
    """Set all bounds of the chosen action except ρ; return whether ρ has to be computed."""
    plan, twin = trial.plan, trial.twin
    same_action = twin.policy[h, s] == plan.policy[h, s]
    if trial.second and same_action and _copied(inputs.frame, inputs.arrays, plan, twin, h, s):
        return False
    plan.z[h, s] = inputs.scratch.pessimistic[plan.policy[h, s]]
    plan.high[h, s] = _box_top(inputs, trial, h, s)
    plan.switch_action[h, s] = -1
    plan.rho[h, s] = 1.0
    return not ratio_of(inputs.rules.sign, trial.optimism.z[h, s], plan.z[h, s]) <= 1.0


@inlined
def _box_top(inputs: Inputs, trial: Trial, h: int, s: int) -> float:
    """Return the upper end of the box: the candidate's optimistic value for β > 0, an upper bound on Z* for β < 0."""
    plan, positive = trial.plan, inputs.rules.sign > 0
    value = np.inf if positive else plan.z[h, s]
    for a in range(actions_at(inputs.frame, h)):
        if (not positive and is_allowed(inputs.frame, h, s, a)) or a == plan.policy[h, s]:
            value = min(value, backup(inputs, h, s, a, plan.high[h + 1], 1.0))
    return min(value, trial.optimism.z[h, s]) if positive else max(value, trial.optimism.z[h, s])


@inner
def contest(inputs: Inputs, trial: Trial, h: int, s: int) -> None:
    """Bound ρ in a state where another action may be better, or the candidate's own action with a better future."""
    # The greedy action comes first because it usually deviates most; then `same`, and only as far as it matters.
    plan, greedy = trial.plan, trial.optimism.policy[h, s]
    keep_worse(plan, h, s, greedy, deviate(inputs, trial, h, s, greedy))
    keep_worse(plan, h, s, -1, stay(inputs, trial, h, s))
    for a in range(actions_at(inputs.frame, h)):
        if a != greedy:
            keep_worse(plan, h, s, a, deviate(inputs, trial, h, s, a))
    conclude(inputs.rules, trial, h, s)


@inlined
def keep_worse(plan: Candidate, h: int, s: int, action: int, ratio: float) -> None:
    """Replace ρ by ``ratio`` and the action to switch to by ``action``, unless ``ratio`` is at most ρ (a NaN is not)."""
    if not ratio <= plan.rho[h, s]:
        plan.rho[h, s], plan.switch_action[h, s] = ratio, action


@inlined
def may_deviate(rules: PlanConstants, trial: Trial, h: int, s: int, a: int) -> bool:
    """Return whether another action may raise ρ, by the ratio of its optimistic value to the pessimistic one (dev1)."""
    plan = trial.plan
    return (
        a != plan.policy[h, s] and not ratio_of(rules.sign, trial.optimism.u[h, s, a], plan.z[h, s]) <= plan.rho[h, s]
    )


@inlined
def _box_after(rules: PlanConstants, trial: Trial, h: int) -> Box:
    plan, z = trial.plan, trial.optimism.z
    low, cap = (plan.z, z) if rules.sign > 0 else (z, plan.z)
    return Box(low[h + 1], plan.high[h + 1], plan.rho[h + 1], cap[h + 1])


@inlined
def _same(inputs: Inputs, trial: Trial, h: int, s: int, a: int, floor: float, ceiling: float) -> float:
    row, box = row_of(inputs.frame, h, s, a), _box_after(inputs.rules, trial, h)
    return same_ratio(inputs, row, h - inputs.frame.artificial, box, floor, ceiling)


@inlined
def deviation_of(frame: Frame, rules: PlanConstants, h: int, s: int, chosen: int, a: int) -> Deviation:
    """Return the deviation from the candidate's action to ``a``: for β > 0 the row of ``a`` is the numerator."""
    top, bottom = (a, chosen) if rules.sign > 0 else (chosen, a)
    gain = action_weight(frame, rules, h, s, top) / action_weight(frame, rules, h, s, bottom)
    return Deviation(h - frame.artificial, row_of(frame, h, s, top), row_of(frame, h, s, bottom), gain)


@inner
def deviate(inputs: Inputs, trial: Trial, h: int, s: int, a: int) -> float:
    """Return how many times better than the candidate's action ``a`` may be; 1 if that cannot raise ρ."""
    rules, plan = inputs.rules, trial.plan
    if not may_deviate(rules, trial, h, s, a):
        return 1.0
    limit = ratio_of(rules.sign, trial.optimism.u[h, s, a], plan.z[h, s])
    deviation = deviation_of(inputs.frame, rules, h, s, plan.policy[h, s], a)
    return deviation_ratio(inputs, deviation, _box_after(rules, trial, h), limit)


@inner
def stay(inputs: Inputs, trial: Trial, h: int, s: int) -> float:
    """Return how many times better the candidate's own action may be with a better future; at least ρ so far."""
    plan, z = trial.plan, trial.optimism.z
    return _same(
        inputs, trial, h, s, plan.policy[h, s], plan.rho[h, s], ratio_of(inputs.rules.sign, z[h, s], plan.z[h, s])
    )


@inlined
def conclude(rules: PlanConstants, trial: Trial, h: int, s: int) -> None:
    """Limit ρ by the plain ratio and round it up; infinite if it cannot be computed."""
    plan, plain = trial.plan, ratio_of(rules.sign, trial.optimism.z[h, s], trial.plan.z[h, s])
    bound = plan.rho[h, s] if plan.rho[h, s] < plain else plain
    plan.rho[h, s] = max(1.0, bound * (1.0 + ROUNDING)) if bound < np.inf else np.inf
