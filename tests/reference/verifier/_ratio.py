"""KL method: the ratio of the optimum to the policy, one step further."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

from entropic_bpi.verification._file import Rejected
from reference.verifier._ball import Ball, extreme_mean, highest_mean, tilted_mean
from reference.verifier._intervals import Interval, down, up

_MAX_SHARED = 3  # successors of both actions; every corner of their values is tried


class Sheet:
    """One step of the recursion. Lists have an entry for each state, and one for "some state not seen yet".

    For β > 0 (``sign`` 1): Z* ≤ ``optimum``, Z^π ≥ ``policy``; for β < 0 the other way round. z ≤ ``top`` where z is
    Z^π for β > 0 and Z* for β < 0. ρ = ``ratio`` ≥ Z*/Z^π, or its inverse.
    """

    def __init__(self, n_states: int, sign: int) -> None:
        self.sign = sign
        self.optimum, self.policy, self.top, self.ratio = ([1.0] * (n_states + 1) for _ in range(4))

    def close(self, states: list[int]) -> None:
        """Fill the last entry with the worst that any of ``states`` can do; refuse what is not a positive number."""
        for values in (self.optimum, self.policy, self.top, self.ratio):
            if not all(0.0 < values[s] < math.inf for s in states):
                raise Rejected("the bounds cannot be computed: they leave the range of floats")
        best, worst = (max, min) if self.sign > 0 else (min, max)
        self.optimum[-1] = best(self.optimum[s] for s in states)
        self.policy[-1] = worst(self.policy[s] for s in states)
        self.top[-1] = max(self.top[s] for s in states)
        self.ratio[-1] = max(self.ratio[s] for s in states)

    def box(self) -> tuple[list[float], list[float], list[float]]:
        """z lies between the first two (bottom and top); the third caps ρz."""
        if self.sign > 0:
            return self.policy, self.top, self.optimum
        return self.optimum, self.top, self.policy


def same_action(ball: Ball, step: int, later: Sheet, limit: Interval) -> float:
    """The optimal action is the policy's: the largest average of the next ρ under weights q e^{βr} z, within ``limit``.

    That is the smallest λ for which no q makes Σ q w (ρ - λ) positive, w at its top where ρ > λ and at its bottom
    elsewhere. That excess is convex and decreasing in λ. Newton's method (Dinkelbach's) climbs to its root from 1; a λ
    is returned only if its own excess, rounded up, is not positive, and is searched for if Newton's is not such.
    """
    bottom, top, _ = later.box()
    rho = [later.ratio[y] for y in ball.successors]
    tops = [min(e * top[y], limit.high) for e, y in zip(ball.weight(step, 1), ball.successors, strict=True)]
    bottoms = [max(e * bottom[y], limit.low) for e, y in zip(ball.weight(step, -1), ball.successors, strict=True)]
    return largest_average(ball, rho, bottoms, tops, 1.0)


def largest_average(ball: Ball, rho: list[float], bottoms: list[float], tops: list[float], start: float) -> float:
    """The largest average of ``rho`` under weights q w, w between ``bottoms`` and ``tops``; it is not below ``start``."""
    largest = max(rho)
    if largest <= start or len(rho) == 1 or (not ball.visits and ball.box is None):
        return largest
    # Only quotients of weights matter: in units of the largest they cannot overflow.
    unit = max(tops)
    high, low = [up(up(t) / unit) for t in tops], [down(down(b) / unit) for b in bottoms]

    def excess(level: float) -> list[float]:
        return [up(up(r - level) * (u if r > level else d)) for r, u, d in zip(rho, high, low, strict=True)]

    def bound(level: float) -> float:
        return highest_mean(ball, excess(level))[0]

    level = start
    for _ in range(60):
        weights = [u if r > level else d for r, u, d in zip(rho, high, low, strict=True)]
        higher = tilted_mean(ball, excess(level), rho, weights)
        if not higher > level * (1.0 + 4e-16):
            break
        level = min(higher, largest)
    level = min(level * (1.0 + 4e-16), largest)
    if not bound(level) > 0.0:
        return level
    return _root(bound, level, largest)


def other_action(
    above: Ball, below: Ball, gains: float, step: int, later: Sheet, limit: Interval, known: float
) -> float:
    """The optimal action is not the policy's: the largest ratio of the two values, for one and the same z.

    ``above`` belongs to the action in the numerator, ``below`` to the other, and ``gains`` is the ratio of their e^{βr}. Up
    to three successors that both have been seen to lead to share their z, at either corner of what matters; for the others
    z is taken at its worst on each side, with e^{βr}z in ``limit``. Where z is shared, the limit only caps ρz, at one number
    for all ways to the state, so that there is one kink. Not computed beyond ``known``.
    """
    bottom, top, caps = later.box()
    shared = _shared(above, below)
    e_above, e_below = above.weight(step, 1), below.weight(step, -1)
    cap = list(caps)
    for y in shared:
        weakest = min(e for e, z in zip(e_above, above.successors, strict=True) if z == y)
        cap[y] = min(cap[y], up(limit.high / weakest))
    worst = 0.0
    for raised in product((False, True), repeat=len(shared)):
        # Where the cap starts to bind, between a float below and one above; at the bottom both are equal.
        least, most = list(bottom), list(top)
        for y, is_raised in zip(shared, raised, strict=True):
            kink = Interval.of(cap[y]) / later.ratio[y]
            least[y] = max(bottom[y], min(top[y], kink.low)) if is_raised else bottom[y]
            most[y] = max(bottom[y], min(top[y], kink.high)) if is_raised else bottom[y]
        numerator, denominator = [], []
        for e, y in zip(e_above, above.successors, strict=True):
            value = up(e * min(cap[y], up(later.ratio[y] * most[y])))
            numerator.append(value if y in shared else min(value, limit.high))
        for e, y in zip(e_below, below.successors, strict=True):
            value = down(e * least[y])
            denominator.append(value if y in shared else max(value, limit.low))
        quotient = up(extreme_mean(above, numerator, 1) / extreme_mean(below, denominator, -1))
        worst = max(worst, up(gains * quotient))
        if not worst < known:
            return known
    return worst


def _root(excess: Callable[[float], float], left: float, right: float) -> float:
    """Just above the root of a convex decreasing function that is positive at ``left`` and not at ``right``."""
    left_value, right_value = excess(left), excess(right)
    for i in range(200):
        if right - left <= 1e-15 * right + 1e-10 * (right - 1.0):
            break
        # The root of the chord is not below that of the function; half of the steps halve the bracket.
        share = left_value / (left_value - right_value) if i % 2 == 0 and right_value < 0.0 else 0.5
        middle = left + (right - left) * min(max(share, 1e-6), 1.0 - 1e-6)
        value = excess(middle)
        if value <= 0.0:
            right, right_value = middle, value
        else:
            left, left_value = middle, value
    return right


def _shared(above: Ball, below: Ball) -> list[int]:
    """The successors seen in both rows, those first whose smaller share of visits is largest."""
    both = {above.successors[i] for i in above.seen} & {below.successors[i] for i in below.seen}

    def order(y: int) -> tuple[int, int]:
        return -min(above.tally_of(y) * below.visits, below.tally_of(y) * above.visits), y

    return sorted(both, key=order)[:_MAX_SHARED]
