r"""The gap certificate: how much better than the candidate any policy can be, given that every kernel is in its ball.

Bounding the optimal value and the candidate's value separately pays for the uncertainty that both share. Here the ratio
is bounded directly, backwards from :math:`\rho_{H+1}=1`: :math:`\rho_h\ge Z^\star_h/Z^{\hat\pi}_h` for
:math:`\beta>0`, :math:`\rho_h\ge Z^{\hat\pi}_h/Z^\star_h` for :math:`\beta<0`, and

.. math:: \rho_h(s) = \min\big\{\text{plain},\ \max\big(1,\ \text{same},
          \ \max_{a\ne\hat\pi(s)}\min(\text{dev}_1(a),\text{dev}_2(a))\big)\big\}.

*same*: the optimal action is the candidate's. Then the ratio is an average of the next :math:`\rho` under weights
:math:`q\,w` with :math:`q` in the ball and :math:`w=e^{\beta r(s,a,s')}z`, where :math:`z` is :math:`Z^{\hat\pi}` for
:math:`\beta>0` and :math:`Z^\star` for :math:`\beta<0`, known up to a box. (Without the factor :math:`e^{\beta r}` this is
false as soon as rewards depend on the next state.)

*dev*: it is another action :math:`a`. dev1 divides the optimistic value of one by the pessimistic value of the other; dev2
uses that successors which both share have one and the same :math:`z`, by enumerating the corners
:math:`z_y\in\{lo_y,\kappa_y\}` of up to three shared successors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from entropic_bpi.methods.kl_ball import TOLERANCE, WHOLE_SIMPLEX, kl_extreme

__all__ = ["INNER", "MAX_SHARED", "deviation_ratio", "same_ratio", "slot_weight"]

# For functions that only compiled code calls: without the parts that Python needs, compilation is much shorter.
INNER: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

MAX_SHARED = 3
# Relative precision of the search for `same`, and its length at most; its upper end is kept, so a coarse one is safe.
SAME_TOLERANCE = 1e-4
SAME_ITERATIONS = 40
# Not worth a search: this close to 1 the difference is rounding.
NEGLIGIBLE = 1e-12


@njit(**INNER)
def slot_weight(rules, ledger, step, slot, upper):  # type: ignore[no-untyped-def]
    """e^{βr} of a slot: the larger (``upper``) or smaller of its values at the two ends of what the reward may be."""
    if ledger.low.shape[0] == 0:
        return 1.0
    t = step if ledger.low.shape[0] > 1 else 0
    reward = ledger.high[t, slot] if upper == (rules.beta > 0.0) else ledger.low[t, slot]
    return math.exp(rules.beta * (reward - rules.shift))


@njit(**INNER)
def _tilted_excess(ledger, row, x, lam, scratch):  # type: ignore[no-untyped-def]
    """Bound on max_q Σ q w (ρ - λ), w at its larger end where ρ > λ and at its smaller end elsewhere."""
    begin, size = ledger.begin[row], ledger.used[row]
    rho, high, low, f = scratch[2], scratch[3], scratch[4], scratch[5]
    for j in range(size):
        excess = rho[j] - lam
        f[j] = excess * (high[j] if excess > 0.0 else low[j])
    return kl_extreme(ledger.tally[begin : begin + size], f, size, ledger.visits[row], x, 1.0, TOLERANCE, scratch)


@njit(**INNER)
def same_ratio(rules, ledger, row, step, x, rho, low, high, floor, ceiling, scratch):  # type: ignore[no-untyped-def]
    """Largest average of the next ``rho`` under weights q w, w within the box [``low``, ``high``] of Z times e^{βr}.

    Only what lies between ``floor`` (at least 1) and ``ceiling`` matters: below and above, these are returned.
    """
    begin, size = ledger.begin[row], ledger.used[row]
    largest = 1.0
    for j in range(size):
        largest = max(largest, rho[ledger.successor[begin + j]])
    if largest <= floor:
        return floor
    if largest < 1.0 + NEGLIGIBLE or size == 1 or ledger.visits[row] == 0 or not x < WHOLE_SIMPLEX:
        return min(largest, ceiling)
    for j in range(size):
        y = ledger.successor[begin + j]
        scratch[2, j] = rho[y]
        scratch[3, j] = slot_weight(rules, ledger, step, begin + j, True) * high[y]
        scratch[4, j] = slot_weight(rules, ledger, step, begin + j, False) * low[y]
    left, right = floor, min(largest, ceiling)
    left_value = _tilted_excess(ledger, row, x, left, scratch)
    if left_value <= 0.0:
        return left
    right_value = _tilted_excess(ledger, row, x, right, scratch)
    if not right_value <= 0.0:
        return right
    # The excess is convex and decreasing in λ, so the chord's root is on the safe side; an end counts as safe only if
    # its own computed value says so.
    for iteration in range(SAME_ITERATIONS):
        if right - left <= SAME_TOLERANCE * (right - 1.0):
            break
        chord = iteration % 2 == 0 and right_value < 0.0
        share = left_value / (left_value - right_value) if chord else 0.5
        lam = left + (right - left) * min(max(share, 1e-3), 0.999)
        value = _tilted_excess(ledger, row, x, lam, scratch)
        if value <= 0.0:
            right, right_value = lam, value
        else:
            left, left_value = lam, value
    return right


@njit(**INNER)
def _share_successors(ledger, top_row, bottom_row, rho, low, high, cap, shared):  # type: ignore[no-untyped-def]
    """Find the successors of both rows that matter most; ``shared[i]`` = (slot in top row, slot in bottom row)."""
    count = 0
    scores = np.zeros(MAX_SHARED)
    top_begin, bottom_begin = ledger.begin[top_row], ledger.begin[bottom_row]
    top_n, bottom_n = max(ledger.visits[top_row], 1), max(ledger.visits[bottom_row], 1)
    elsewhere = rho.size - 1
    for i in range(ledger.used[top_row]):
        y = ledger.successor[top_begin + i]
        p = ledger.tally[top_begin + i] / top_n
        if p == 0.0 or y == elsewhere:
            continue
        for j in range(ledger.used[bottom_row]):
            if ledger.successor[bottom_begin + j] == y:
                kappa = max(low[y], min(high[y], cap[y] / rho[y]))
                score = min(p, ledger.tally[bottom_begin + j] / bottom_n) * (kappa - low[y])
                if score > 0.0:
                    count = _insert(shared, scores, count, i, j, score)
                break
    return count


@njit(**INNER)
def _insert(shared, scores, count, i, j, score):  # type: ignore[no-untyped-def]
    """Keep the ``MAX_SHARED`` pairs with the largest scores; the new count."""
    place = count
    if count == MAX_SHARED:
        place = np.argmin(scores)
        if scores[place] >= score:
            return count
    else:
        count += 1
    shared[place, 0], shared[place, 1], scores[place] = i, j, score
    return count


@njit(**INNER)
def deviation_ratio(rules, ledger, top_row, bottom_row, step, gain_ratio, rho, low, high, cap, limit, scratch, shared):  # type: ignore[no-untyped-def]
    """dev2: the largest ``gain_ratio`` (max q e min(cap, ρz)) / (min q e z) over z in the box and kernels in the balls.

    Stops at ``limit``, the ratio that is known already.
    """
    top_begin, top_size = ledger.begin[top_row], ledger.used[top_row]
    bottom_begin, bottom_size = ledger.begin[bottom_row], ledger.used[bottom_row]
    above, below = scratch[2], scratch[3]
    for i in range(top_size):
        y = ledger.successor[top_begin + i]
        above[i] = slot_weight(rules, ledger, step, top_begin + i, True) * min(cap[y], rho[y] * high[y])
    for j in range(bottom_size):
        y = ledger.successor[bottom_begin + j]
        below[j] = slot_weight(rules, ledger, step, bottom_begin + j, False) * low[y]
    count = _share_successors(ledger, top_row, bottom_row, rho, low, high, cap, shared)
    worst = 0.0
    for corner in range(1 << count):
        for c in range(count):
            i, j = shared[c, 0], shared[c, 1]
            y = ledger.successor[top_begin + i]
            z = max(low[y], min(high[y], cap[y] / rho[y])) if corner >> c & 1 else low[y]
            above[i] = slot_weight(rules, ledger, step, top_begin + i, True) * min(cap[y], rho[y] * z)
            below[j] = slot_weight(rules, ledger, step, bottom_begin + j, False) * z
        top = kl_extreme(
            ledger.tally[top_begin : top_begin + top_size], above, top_size, ledger.visits[top_row],
            rules.radius[top_row], 1.0, TOLERANCE, scratch,
        )  # fmt: skip
        bottom = kl_extreme(
            ledger.tally[bottom_begin : bottom_begin + bottom_size], below, bottom_size, ledger.visits[bottom_row],
            rules.radius[bottom_row], -1.0, TOLERANCE, scratch,
        )  # fmt: skip
        worst = max(worst, gain_ratio * top / bottom if bottom > 0.0 else np.inf)
        if not worst < limit:
            return limit
    return worst
