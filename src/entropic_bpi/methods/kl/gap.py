r"""The gap certificate: how much better than the candidate any policy can be, given that every kernel is in its ball.

Separate bounds on the optimal value and the candidate's value count the uncertainty that both share twice. Here the ratio
is bounded directly (Proposition 2 on the page "The KL method"), backwards from :math:`\rho_{H+1}=1`:
:math:`\rho_h\ge Z^\star_h/Z^{\hat\pi}_h` for :math:`\beta>0`, :math:`\rho_h\ge Z^{\hat\pi}_h/Z^\star_h` for
:math:`\beta<0`, and

.. math:: \rho_h(s) = \min\big\{\text{plain},\ \max\big(1,\ \text{same},
          \ \max_{a\ne\hat\pi(s)}\min(\text{dev}_1(a),\text{dev}_2(a))\big)\big\}.

*same*: the optimal action is the candidate's. Then the ratio is an average of the next :math:`\rho` under weights
:math:`q\,w` with :math:`q` in the ball and :math:`w=e^{\beta r(s,a,s')}z`, where :math:`z` is :math:`Z^{\hat\pi}` for
:math:`\beta>0` and :math:`Z^\star` for :math:`\beta<0`, known up to a box. (Without the factor :math:`e^{\beta r}` this is
false as soon as rewards depend on the next state.)

*dev*: it is another action :math:`a`. dev1 divides the optimistic value of one by the pessimistic value of the other; dev2
uses that successors which both share have one and the same :math:`z`, by enumerating the corners
:math:`z_y\in\{lo_y,\kappa_y\}` of up to three shared successors.

**NaN.** A bound on a ratio that cannot be computed is infinite: comparisons are written so that a NaN leads to that, and
nothing is dropped by a ``>`` that is false for a NaN.

**Underflow.** Exponents are at most 600, so Z, e^{βr}, the quotients of two Z and all upper bounds of these are normal
numbers. What can be smaller, such as Z/ρ, is rounded up in an upper bound and is 0 in a lower one.
"""

import math

import numpy as np

from entropic_bpi.compile.decorators import inlined, inner
from entropic_bpi.methods.kl.ball import WHOLE_SIMPLEX, boxed_extreme, kl_extreme, kl_extremum
from entropic_bpi.methods.kl.records import MAX_SHARED, Box, Deviation, Inputs, PlanConstants
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, reward_step

# Relative precision of the search for `same`, and its largest number of steps. The upper end is kept, so any precision is
# safe.
SAME_TOLERANCE = 1e-4
SAME_ITERATIONS, TANGENTS = 100, 12
# There is no search for ratios this close to 1, which differ from it by rounding.
NEGLIGIBLE = 1e-12
# Weights of `same` below this may have lost digits. Above it, their products with ρ - λ, which is at least 1e-16, have not.
SMALLEST_WEIGHT = 1e-280
QUOTIENT_ROUNDING = 1e-15


@inlined
def action_weight(frame: Frame, rules: PlanConstants, h: int, s: int, a: int) -> float:
    """Return e^{βr(s,a)}; 1 at the artificial step, and if rewards depend on the next state (then the slots have them)."""
    if rules.gain.size == 0 or (frame.artificial and h == 0):
        return 1.0
    return rules.gain[reward_step(frame, rules.gain, h), s, a]


@inlined
def ratio_of(sign: float, optimistic: float, pessimistic: float) -> float:
    """Return optimistic over pessimistic value in units of Z, at least 1 if they are in order; infinite if one is trivial.

    Underflow is safe: Z is between 1 and e^600 (β > 0) or e^-600 and 1 (β < 0), and a denominator of 0 gives infinity.
    """
    top, bottom = (optimistic, pessimistic) if sign > 0 else (pessimistic, optimistic)
    return top / bottom if bottom > 0.0 and top < np.inf else np.inf


@inlined
def slot_weight(rules: PlanConstants, arrays: CountArrays, step: int, slot: int, upper: bool) -> float:
    """Return e^{βr} of a slot: the larger (``upper``) or smaller of its values at the two ends of the reward's range.

    It does not underflow: |β| times the range of the return is at most 600.
    """
    if arrays.low.shape[0] == 0:
        return 1.0
    t = step if arrays.low.shape[0] > 1 else 0
    reward = arrays.high[t, slot] if upper == (rules.beta > 0.0) else arrays.low[t, slot]
    return math.exp(rules.beta * rules.factor[step] * (reward - rules.shift))


@inlined
def slot_value(rules: PlanConstants, arrays: CountArrays, step: int, slot: int, after: float, upper: bool) -> float:
    """Return e^{βr} of a slot times ``after``, its larger (``upper``) or smaller end, cut at the declared returns."""
    value = slot_weight(rules, arrays, step, slot, upper) * after
    return min(value, rules.top[step]) if upper else max(value, rules.bottom[step])


@inlined
def _has_box(interval: np.ndarray, row: int) -> bool:
    if interval.ndim < 3:
        return False
    return interval[row, 1, 0] <= 1.0


def ball_of(inputs: Inputs, row: int) -> tuple[np.ndarray, int, int, float]:
    """Return the tallies, size, visits and radius of the ball of a row."""
    arrays, begin, size = inputs.arrays, inputs.arrays.begin[row], inputs.arrays.used[row]
    return arrays.tally[begin : begin + size], size, arrays.visits[row], inputs.rules.radius[row]


_ball = inlined(ball_of)


@inlined
def ball_extreme(inputs: Inputs, row: int, f: np.ndarray, sign: float) -> float:
    """Return the extreme mean over the ball of ``row`` of the values ``f`` of its slots."""
    tally, size, n, x = _ball(inputs, row)
    return kl_extreme(tally, f, size, n, x, sign, inputs.rules.tolerance, inputs.scratch.work)


@inlined
def row_extreme(inputs: Inputs, row: int, f: np.ndarray, sign: float) -> float:
    """Return the extreme mean over the ball of ``row``, and its box, of the values ``f`` of its slots."""
    return _row_extreme(inputs.rules.interval, inputs, row, f, sign)


# Numba compiles a branch on the dimension of an argument only where it is taken: without boxes, their code is left out.


@inlined
def _row_extreme(interval: np.ndarray, inputs: Inputs, row: int, f: np.ndarray, sign: float) -> float:
    if interval.ndim == 3 and _has_box(interval, row):
        tally, size, n, x = _ball(inputs, row)
        return boxed_extreme(tally, f, size, n, x, interval[row], sign, inputs.rules.tolerance, inputs.scratch.work)
    return ball_extreme(inputs, row, f, sign)


@inner
def _tilted_excess(
    interval: np.ndarray, inputs: Inputs, row: int, lam: float, guess: float
) -> tuple[float, float, float]:
    """Return a bound on max_q Σ q w (ρ - λ), w at its larger end where ρ > λ and at its smaller end elsewhere.

    Also returns its rate of decrease in λ, which is the mean of w under the q that attains it, and the solver's own w.
    Underflow is safe: w at its larger end is so large that no product underflows, and a smaller end of 0 raises the excess.
    """
    (tally, size, n, x), work = _ball(inputs, row), inputs.scratch.work
    rho, high, low, f = work[2], work[3], work[4], work[5]
    for j in range(size):
        excess = rho[j] - lam
        f[j] = excess * (high[j] if excess > 0.0 else low[j])
    if interval.ndim == 3 and _has_box(interval, row):
        value, steep = _row_extreme(interval, inputs, row, f, 1.0), 0.0
        for j in range(size):
            steep += work[6, j] * (high[j] if rho[j] > lam else low[j])
        return value, max(steep, SMALLEST_WEIGHT), 0.0
    value, nu, solved = kl_extremum(tally, f, size, n, x, 1.0, inputs.rules.tolerance, work, guess)
    steep, rest, top, heaviest = 0.0, 1.0, -np.inf, 0.0
    for j in range(size):
        weight = high[j] if rho[j] > lam else low[j]
        if f[j] > top:
            top, heaviest = f[j], weight
        if tally[j] > 0 and f[j] < nu:
            q = tally[j] / n * ((nu - value) / (nu - f[j]) if nu < np.inf else 1.0)
            steep += q * weight
            rest -= q
    return value, steep + max(rest, 0.0) * heaviest, solved


@inner
def same_ratio(inputs: Inputs, row: int, step: int, box: Box, floor: float, ceiling: float) -> float:
    """Return the largest average of the next ρ under weights q w, w within the box of Z times e^{βr}.

    The result is at least ``floor``, which is at least 1, and at most ``ceiling``.
    """
    _, rules, arrays, scratch = inputs
    begin, size, largest = arrays.begin[row], arrays.used[row], 1.0
    for j in range(size):
        largest = max(largest, box.rho[arrays.successor[begin + j]])
    if largest <= floor or ceiling <= floor:
        return floor
    nothing_known = arrays.visits[row] == 0 or not rules.radius[row] < WHOLE_SIMPLEX
    if largest < 1.0 + NEGLIGIBLE or size == 1 or (nothing_known and not _has_box(rules.interval, row)):
        return min(largest, ceiling)
    rho, high, low = scratch.work[2], scratch.work[3], scratch.work[4]
    for j in range(size):
        y = arrays.successor[begin + j]
        rho[j] = box.rho[y]
        high[j] = slot_value(rules, arrays, step, begin + j, box.high[y], True)
        low[j] = slot_value(rules, arrays, step, begin + j, box.low[y], False)
    return largest_average(inputs, row, floor, min(largest, ceiling))


@inner
def largest_average(inputs: Inputs, row: int, left: float, right: float) -> float:
    """Return a bound, from ``left`` to ``right``, on the average of ρ under weights q w.

    Rows 2 to 4 of ``work`` are ρ and the larger and smaller ends of w. Underflow is safe: if a weight is too small for
    doubles, its larger end is rounded up and its smaller end is 0.
    """
    size, interval, tolerance = inputs.arrays.used[row], inputs.rules.interval, inputs.rules.same_tolerance
    high, low, heaviest = inputs.scratch.work[3], inputs.scratch.work[4], 0.0
    for j in range(size):
        heaviest = max(heaviest, high[j])
    # Only quotients of weights matter: near 1 their products with ρ cannot overflow. A power of two rounds nothing.
    unit = math.ldexp(1.0, -math.frexp(heaviest)[1])
    smallest = SMALLEST_WEIGHT * max(unit, 1.0)
    for j in range(size):
        high[j] = smallest if high[j] * unit < smallest else high[j] * unit
        low[j] = low[j] * unit if low[j] * unit >= smallest else 0.0
    # The excess is convex and decreasing in λ: from the left, the root of its tangent is on the unsafe side, by little, and
    # beyond the root the slope bounds the distance to it. An end is safe only if its own computed excess is not positive.
    value, steep, w = _tilted_excess(interval, inputs, row, left, 0.0)
    if value <= 0.0:
        return left
    margin, right_value = 0.1 * tolerance, np.inf
    for _ in range(TANGENTS):
        lam = left + value / steep
        lam += margin * abs(lam - 1.0)
        lam = lam if lam < right else right
        further, steep, w = _tilted_excess(interval, inputs, row, lam, w)
        if further <= 0.0:
            if -further <= tolerance * steep * abs(lam - 1.0):
                return lam
            right, right_value = lam, further
            break
        if lam == right:
            return right
        left, value, margin = lam, further, 2.0 * margin
    # If that was not enough: in turn the root of the chord, which is on the safe side, and the middle.
    for iteration in range(SAME_ITERATIONS):
        if right - left <= tolerance * abs(right - 1.0):
            break
        chord = iteration % 2 == 0 and right_value < 0.0 and value < np.inf
        share = value / (value - right_value) if chord else 0.5
        lam = left + (right - left) * min(max(share, 1e-3), 0.999)
        further, steep, w = _tilted_excess(interval, inputs, row, lam, w)
        if further <= 0.0:
            right, right_value = lam, further
        else:
            left, value = lam, further
    return right


@inner
def _tally_of(arrays: CountArrays, row: int, y: int) -> int:
    """Return the visits of ``row`` that led to state ``y``, over all of its slots."""
    total = 0
    for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
        if arrays.successor[j] == y:
            total += arrays.tally[j]
    return total


@inner
def _share_states(inputs: Inputs, top: int, bottom: int, elsewhere: int) -> int:
    """Collect the states that both rows were seen to reach, at most ``MAX_SHARED``: the likeliest first, then the lowest.

    Returns their number. They depend on the counts alone, so that a verifier chooses the same.
    """
    arrays, shared, count = inputs.arrays, inputs.scratch.shared, 0
    top_n, bottom_n = float(arrays.visits[top]), float(arrays.visits[bottom])
    for i in range(arrays.begin[top], arrays.begin[top] + arrays.used[top]):
        y = arrays.successor[i]
        if arrays.tally[i] == 0 or y == elsewhere:
            continue
        known = False
        for c in range(count):
            known = known or shared[c] == y
        bottom_tally = 0 if known else _tally_of(arrays, bottom, y)
        if bottom_tally > 0:
            score = min(_tally_of(arrays, top, y) * bottom_n, bottom_tally * top_n)
            count = keep_largest(shared, inputs.scratch.scores, count, y, score)
    return count


@inner
def keep_largest(shared: np.ndarray, scores: np.ndarray, count: int, y: int, score: float) -> int:
    """Insert a state into those with the largest scores, of equal ones the lowest; return the new count."""
    at = count
    while at > 0 and (score > scores[at - 1] or (score == scores[at - 1] and y < shared[at - 1])):
        at -= 1
    if at == MAX_SHARED:
        return count
    count = min(count + 1, MAX_SHARED)
    for c in range(count - 1, at, -1):
        shared[c], scores[c] = shared[c - 1], scores[c - 1]
    shared[at], scores[at] = y, score
    return count


@inner
def _set_corner(inputs: Inputs, row: int, step: int, y: int, value: float, upper: bool) -> None:
    """Set the ``value`` of state ``y`` in all of its slots: in the numerator (``upper``) or in the denominator."""
    _, rules, arrays, scratch = inputs
    begin, values = arrays.begin[row], scratch.work[2 if upper else 3]
    for i in range(arrays.used[row]):
        if arrays.successor[begin + i] == y:
            values[i] = slot_weight(rules, arrays, step, begin + i, upper) * value


@inner
def _ceiling(inputs: Inputs, deviation: Deviation, box: Box, y: int) -> float:
    """Return the cap of ρz in state ``y``: the known one, or the declared returns over the smallest e^{βr} of its slots.

    It is one number for all slots of the state, so that the value has one kink in z.
    """
    rules, arrays, row = inputs.rules, inputs.arrays, deviation.top
    top, least = rules.top[deviation.step], np.inf
    if not top < np.inf:
        return box.cap[y]
    for i in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
        if arrays.successor[i] == y:
            least = min(least, slot_weight(rules, arrays, deviation.step, i, True))
    return min(box.cap[y], top / least * (1.0 + QUOTIENT_ROUNDING))


@inner
def deviation_ratio(inputs: Inputs, deviation: Deviation, box: Box, limit: float) -> float:
    """Return dev2: the largest gain (max q e min(cap, ρz)) / (min q e z) over z in the box and kernels in the balls.

    Returns ``limit``, a bound that is known already, as soon as a corner reaches it. Underflow is safe: numerators are at
    least e^-600, and a denominator of 0 gives infinity.
    """
    _, rules, arrays, scratch = inputs
    step, top, bottom, gain = deviation
    above, below = scratch.work[2], scratch.work[3]
    for i in range(arrays.used[top]):
        slot = arrays.begin[top] + i
        y = arrays.successor[slot]
        above[i] = slot_value(rules, arrays, step, slot, min(box.cap[y], box.rho[y] * box.high[y]), True)
    for j in range(arrays.used[bottom]):
        slot = arrays.begin[bottom] + j
        below[j] = slot_value(rules, arrays, step, slot, box.low[arrays.successor[slot]], False)
    count = _share_states(inputs, top, bottom, box.rho.size - 1)
    worst = 0.0
    for corner in range(1 << count):
        repeated = False
        for c in range(count):
            y = scratch.shared[c]
            cap = _ceiling(inputs, deviation, box, y)
            kink = max(box.low[y], min(box.high[y], cap / box.rho[y]))
            raised = corner >> c & 1 == 1
            z = kink if raised else box.low[y]
            repeated = repeated or (raised and kink == box.low[y])
            _set_corner(inputs, top, step, y, min(cap, box.rho[y] * z), True)
            _set_corner(inputs, bottom, step, y, z, False)
        if repeated:
            continue
        most, least = row_extreme(inputs, top, above, 1.0), row_extreme(inputs, bottom, below, -1.0)
        ratio = gain * most / least if least > 0.0 else np.inf
        if not ratio < limit:
            return limit
        worst = max(worst, ratio)
    return worst
