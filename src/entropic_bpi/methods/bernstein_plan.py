"""The compiled plan of the paper's method; its formulas are those of :mod:`entropic_bpi.methods.bernstein`."""

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, helper, inlined
from entropic_bpi.methods.kl.rates import log_8e, reached
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, actions_at, is_allowed, row_of
from entropic_bpi.problem.ties import wins_tie
from entropic_bpi.sources.simulator import Kernel, play_episode
from entropic_bpi.types import Behaviour

# What rounding can do to G / Z.
ROUNDING = 1e-13
# The same where it is more: for each step, for the largest x times each step (x is large after few visits, and multiplies
# differences of almost equal Z), and for |β|H. Intervals of the verifier differ from G / Z by up to half of it.
ROUNDING_PER_STEP, ROUNDING_PER_RATE, ROUNDING_PER_EXPONENT = 4e-14, 2e-14, 1.6e-14


class Tables(NamedTuple):
    """What a plan needs besides the counts. Tables hold ``(Z - origin) / unit``, that is Z itself, or
    ``(Z - 1) / |β|`` where exponents are ``small``. Arrays by action are ``(steps, S, A)``. ``seed`` breaks ties; a
    gap of ``eps`` is enough.

    ``gain`` is e^{βr} and ``lift`` the same for the origin, ``(e^{βr} - 1) origin / unit``; ``cap`` and ``floor`` bound U,
    ``width_cap`` bounds G, ``span`` is the range of Z_{h+1} in the bonus. ``rate`` and ``rate_star`` are α(n)/n and α*(n)/n.

    The constants: ``log_kl``, ``log_bernstein`` and ``dimension`` are those of α and α*, ``linear`` and ``linear_star``
    are the weights of x and x* in the bonus, ``extra`` is H/2 + 2 (sharp alone) and ``slack`` is 1/H.
    """

    beta: float
    small: bool
    eps: float
    seed: int
    sign: int
    sharp: bool
    log_kl: float
    log_bernstein: float
    dimension: int
    linear: float
    linear_star: float
    extra: float
    slack: float
    gain: np.ndarray
    lift: np.ndarray
    cap: np.ndarray
    floor: np.ndarray
    width_cap: np.ndarray
    span: np.ndarray
    rate: np.ndarray
    rate_star: np.ndarray


class Sheet(NamedTuple):
    """A plan: Z_up, Z_low and G ``(steps + 1, S)``, its greedy policy ``(steps, S)``, and what the next plan reuses.

    ``u_up``, ``u_low`` and ``u_width`` are the bounds of each action, ``(steps, S, A)``. ``reach`` ``(rows,)`` has bit
    ``y % 64`` set for each successor ``y`` that the row was seen to have, ``planned`` the visits that it had then.
    """

    up: np.ndarray
    low: np.ndarray
    width: np.ndarray
    policy: np.ndarray
    u_up: np.ndarray
    u_low: np.ndarray
    u_width: np.ndarray
    reach: np.ndarray
    planned: np.ndarray


@inlined
def _bit(state: int) -> np.uint64:
    return np.uint64(1) << np.uint64(state & 63)


@inlined
def _refresh(tables: Tables, arrays: CountArrays, sheet: Sheet) -> None:
    """Recompute α(n)/n, α*(n)/n and the successors of the rows visited since the last plan."""
    for row in range(arrays.visits.size):
        n = arrays.visits[row]
        if sheet.planned[row] != n:
            bits = np.uint64(0)
            if n > 0:
                log_term = log_8e(n)
                tables.rate[row] = (tables.log_kl + tables.dimension * log_term) / n
                tables.rate_star[row] = (tables.log_bernstein + log_term) / n
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    if arrays.tally[j] > 0:
                        bits |= _bit(arrays.successor[j])
            sheet.reach[row] = bits


@inlined
def _moments(tables: Tables, arrays: CountArrays, sheet: Sheet, row: int, h: int) -> tuple[float, float, float, float]:
    """Under the empirical successors of a visited ``row``, at step ``h``: the means of Z_up, Z_low and G, and the standard
    deviation of the optimistic side.

    Underflow is safe: in units of the largest deviation, what vanishes is far below rounding.
    """
    begin, end, n = arrays.begin[row], arrays.begin[row] + arrays.used[row], float(arrays.visits[row])
    optimistic = sheet.up if tables.sign > 0 else sheet.low
    up = low = width = 0.0
    highest, lowest = -np.inf, np.inf
    for j in range(begin, end):
        if arrays.tally[j] > 0:
            p, y = arrays.tally[j] / n, arrays.successor[j]
            up += p * sheet.up[h, y]
            low += p * sheet.low[h, y]
            width += p * sheet.width[h, y]
            highest = max(highest, optimistic[h, y])
            lowest = min(lowest, optimistic[h, y])
    centre = up if tables.sign > 0 else low
    # Squares of Z can leave the range of doubles although Z does not: measure deviations in units of the largest.
    largest = max(highest - centre, centre - lowest)
    total = 0.0
    if highest > lowest:
        for j in range(begin, end):
            if arrays.tally[j] > 0:
                deviation = (optimistic[h, arrays.successor[j]] - centre) / largest
                total += arrays.tally[j] / n * deviation * deviation
    return up, low, width, largest * math.sqrt(total)


@inlined
def _bounds(
    tables: Tables, arrays: CountArrays, sheet: Sheet, row: int, h: int, s: int, a: int
) -> tuple[float, float, float]:
    """U_up, U_low and the certificate G of one action.

    ``min`` and ``max`` keep their first argument when the second is not a number: cap, floor and the widest G are safe.
    """
    cap, floor, width_cap = tables.cap[h, s, a], tables.floor[h, s, a], tables.width_cap[h, s, a]
    if arrays.visits[row] == 0:
        return cap, floor, width_cap
    mean_up, mean_low, mean_width, deviation = _moments(tables, arrays, sheet, row, h + 1)
    x, x_star, span = tables.rate[row], tables.rate_star[row], tables.span[h, s, a]
    bonus = 2.0 * math.sqrt(2.0 * x_star) * deviation
    if tables.sharp:
        bonus += (math.sqrt(5.0 * x * x_star) + tables.linear_star * x_star) * span
        width = 2.0 * bonus + tables.extra * span * x + (1.0 + 2.0 * tables.slack) * mean_width
    else:
        bonus += tables.linear * span * x + tables.linear_star * span * x_star
        width = 3.0 * bonus + (1.0 + 3.0 * tables.slack) * mean_width
    room, lift, gain = bonus + tables.slack * (mean_up - mean_low), tables.lift[h, s, a], tables.gain[h, s, a]
    # Each is kept between cap and floor: where they meet, rounding could otherwise leave it outside.
    up = max(floor, min(cap, lift + gain * (mean_up + room)))
    low = min(cap, max(floor, lift + gain * (mean_low - room)))
    width = min(width_cap, gain * width)
    if tables.sharp:
        width = min(width, up - floor if tables.sign > 0 else cap - low)
    return up, low, width


@inlined
def _choose(frame: Frame, tables: Tables, sheet: Sheet, h: int, s: int) -> tuple[float, float, int]:
    """Z_up, Z_low and the greedy action of one state from the bounds of its allowed actions."""
    best_up, best_low, chosen = 0.0, 0.0, -1
    for a in range(actions_at(frame, h)):
        up, low = sheet.u_up[h, s, a], sheet.u_low[h, s, a]
        if not is_allowed(frame, h, s, a):
            continue
        if chosen < 0:
            best_up, best_low, chosen = up, low, a
            continue
        # Until now the optimistic side of the action chosen is the best one.
        advantage = up - best_up if tables.sign > 0 else best_low - low
        if advantage > 0 or (advantage == 0 and wins_tie(tables.seed, h, s, a, chosen)):
            chosen = a
        best_up = max(best_up, up) if tables.sign > 0 else min(best_up, up)
        best_low = max(best_low, low) if tables.sign > 0 else min(best_low, low)
    return best_up, best_low, chosen


@helper
def _plan(frame: Frame, tables: Tables, arrays: CountArrays, sheet: Sheet) -> tuple[float, float, float]:
    """Backward induction over the reachable states, and the claim.

    Bounds whose inputs are what they were at the last plan are not computed again.
    """
    _refresh(tables, arrays, sheet)
    moved = np.uint64(0)  # the states, as bits, where something changed at the step after
    for h in range(frame.steps - 1, -1, -1):
        actions = actions_at(frame, h)
        moved_here = np.uint64(0)
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            due = False
            for a in range(actions):
                row = row_of(frame, h, s, a)
                if sheet.planned[row] == arrays.visits[row] and sheet.reach[row] & moved == 0:
                    continue
                due = True
                up, low, width = _bounds(tables, arrays, sheet, row, h, s, a)
                sheet.u_up[h, s, a], sheet.u_low[h, s, a], sheet.u_width[h, s, a] = up, low, width
            if due:
                up, low, chosen = _choose(frame, tables, sheet, h, s)
                width = sheet.u_width[h, s, chosen]
                sheet.policy[h, s] = chosen
                if up != sheet.up[h, s] or low != sheet.low[h, s] or width != sheet.width[h, s]:
                    moved_here |= _bit(s)
                    sheet.up[h, s], sheet.low[h, s], sheet.width[h, s] = up, low, width
        moved = moved_here
    largest_rate = 0.0
    for row in range(arrays.visits.size):
        sheet.planned[row] = arrays.visits[row]
        largest_rate = max(largest_rate, tables.rate[row])
    per_step = ROUNDING_PER_STEP + ROUNDING_PER_RATE * largest_rate + ROUNDING_PER_EXPONENT * abs(tables.beta)
    rounding = max(ROUNDING, frame.steps * per_step)
    return _claim(tables, sheet.up[0, frame.start], sheet.low[0, frame.start], sheet.width[0, frame.start], rounding)


@inlined
def _claim(tables: Tables, up: float, low: float, width: float, rounding: float) -> tuple[float, float, float]:
    """Lower bound of the policy's value, upper bound of the optimal value, and the gap; -inf and inf say nothing.

    Underflow is safe: Z is at least e^-600, beside which a width that vanishes is far below rounding.
    """
    beta, strength = tables.beta, abs(tables.beta)
    if strength == 0.0:
        return up - width, up, width
    z = up if beta > 0 else low
    if tables.small:
        value, g = math.log1p(strength * z) / beta, strength * width / (1.0 + strength * z)
    else:
        value, g = math.log(z) / beta, width / z
    lower = value - math.log1p(g) / strength if g < np.inf else -np.inf
    if beta < 0 and tables.sharp:
        return lower, value, value - lower
    # Near 1 the complement of g has lost its digits.
    if g > 0.5:
        g += rounding
    gap = -math.log1p(-g) / strength if g < 1.0 else np.inf
    return value - gap if beta > 0 else lower, value, gap


@compiled
def _run_every(
    kernel: Kernel,
    rng: np.random.Generator,
    frame: Frame,
    tables: Tables,
    arrays: CountArrays,
    sheet: Sheet,
    spare: int,
    history: np.ndarray,
) -> tuple[int, int, int]:
    """Play an episode of the current policy, plan, test; once for each row of ``history`` or until the test passes.

    Returns the number of episodes played and the transition that was declared impossible, if any.
    """
    behaviour = Behaviour(sheet.policy, sheet.policy, sheet.policy, False)
    for i in range(len(history)):
        if arrays.end[0] + spare > arrays.successor.size:
            return i, -1, -1
        row, successor = play_episode(kernel, frame, behaviour, arrays, rng)
        if row >= 0:
            return i, row, successor
        history[i, 0], history[i, 1], history[i, 2] = _plan(frame, tables, arrays, sheet)
        if reached(history[i, 2], tables.eps):
            return i + 1, -1, -1
    return len(history), -1, -1
