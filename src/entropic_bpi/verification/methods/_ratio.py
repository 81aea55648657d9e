"""KL method: the ratio of the optimum to the policy, one step further, for many states at once."""

from __future__ import annotations

from itertools import product

import numpy as np

from entropic_bpi.verification._ball import Balls, extreme_mean, highest_mean, tilted_mean
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import Interval, down, up

_MAX_SHARED = 3  # successors of both actions; every corner of their values is tried
_UNITS = 4e-16
_MOST_STEPS = 60


class Sheet:
    """One step of the recursion. Arrays (parts, states and one more); the last entry is "some state not seen yet".

    For β > 0 (``sign`` 1): Z* ≤ ``optimum``, Z^π ≥ ``policy``; for β < 0 the other way round. z ≤ ``top`` where z is
    Z^π for β > 0 and Z* for β < 0. ρ = ``ratio`` ≥ Z*/Z^π, or its inverse. ``optimistic`` has the bounds of all actions of
    reachable states.
    """

    optimistic: np.ndarray

    def __init__(self, n_states: int, sign: int, parts: int = 1) -> None:
        self.sign = sign
        self.optimum, self.policy, self.top, self.ratio = np.ones((4, parts, n_states + 1))

    def close(self, states: np.ndarray) -> None:
        """Fill the last entry with the worst that any of ``states`` can do; refuse what is not a positive number."""
        best, worst = (np.max, np.min) if self.sign > 0 else (np.min, np.max)
        for values, end in ((self.optimum, best), (self.policy, worst), (self.top, np.max), (self.ratio, np.max)):
            if not np.all((values[:, states] > 0.0) & (values[:, states] < np.inf)):
                raise Rejected("the bounds cannot be computed: they leave the range of floats")
            values[:, -1] = end(values[:, states], axis=1)

    def flat(self) -> tuple[np.ndarray, ...]:
        """Return bottom, top, cap and ρ of the states of all parts: z lies between the first two, ρz below the third."""
        bottom, cap = (self.policy, self.optimum) if self.sign > 0 else (self.optimum, self.policy)
        return bottom.ravel(), self.top.ravel(), cap.ravel(), self.ratio.ravel()


def same_action(ball: Balls, rho: np.ndarray, bottom: np.ndarray, top: np.ndarray, limit: Interval) -> np.ndarray:
    """The optimal action is the policy's: the largest average of the next ρ under weights q e^{βr} z, within ``limit``.

    z lies between ``bottom`` and ``top``, which like ``rho`` have an entry for each outcome. The answer is the smallest λ
    for which no q makes Σ q w (ρ - λ) positive, w at its top where ρ > λ and at its bottom elsewhere. That excess is convex
    and decreasing in λ. Newton's method (Dinkelbach's) climbs to its root from 1; a λ is returned only if its own excess,
    rounded up, is not positive. Otherwise it is raised, up to the largest ρ, which always is an answer.
    """
    tops, bottoms = np.minimum(ball.high * top, limit.high), np.maximum(ball.low * bottom, limit.low)
    return largest_average(ball, rho, bottoms, tops, np.ones(rho.shape[1]))


def largest_average(
    ball: Balls, rho: np.ndarray, bottoms: np.ndarray, tops: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """The largest average of ``rho`` under weights q w, w between ``bottoms`` and ``tops``, if that is above ``start``.

    It is the smallest λ for which no q makes Σ q w (ρ - λ) positive, w at its top where ρ > λ and at its bottom elsewhere.
    """
    largest = rho.max(axis=0)
    # Only quotients of weights matter: in units of the largest they cannot overflow.
    unit = tops.max(axis=0)
    high, low = up(up(tops) / unit), down(down(bottoms) / unit)

    def excess(at: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = np.where(rho[:, at] > level, high[:, at], low[:, at])
        return up(up(rho[:, at] - level) * weights), weights

    known = (ball.visits > 0.0) | ball.is_cut
    level, w = np.where(known, start, largest), np.zeros(len(largest))
    uncertain = at = np.flatnonzero((largest > start) & known)
    for _ in range(_MOST_STEPS):
        part = ball.take(at)
        value, weights = excess(at, level[at])
        higher, w[at] = tilted_mean(part, value, rho[:, at], weights, w[at])
        rising = higher > level[at] * (1.0 + _UNITS)
        at = at[rising]
        if not at.size:
            break
        level[at] = np.minimum(higher[rising], largest[at])
    room, at = 1e-13, uncertain
    level[at] = np.minimum(level[at] * (1.0 + _UNITS), largest[at])
    while at.size:
        proved = highest_mean(ball.take(at), excess(at, level[at])[0], w[at])[0] <= 0.0
        at = at[~proved & (level[at] < largest[at])]
        level[at] = np.minimum(level[at] * (1.0 + _UNITS) + room * (abs(level[at] - 1.0) + _UNITS), largest[at])
        room *= 8.0
    return np.where(largest > start, level, largest)


def other_action(
    above: Balls, below: Balls, gains: np.ndarray, later: Sheet, limit: Interval, known: np.ndarray
) -> np.ndarray:
    """The optimal action is not the policy's: the largest ratio of the two values, for one and the same z.

    ``above`` belongs to the action in the numerator, ``below`` to the other, and ``gains`` is the ratio of their e^{βr}. Up
    to three successors that both have been seen to lead to share their z, at either corner of what matters; for the others
    z is taken at its worst on each side, with e^{βr}z in ``limit``. Where z is shared, the limit only caps ρz, at one number
    for all ways to the state, so that there is one kink. Not above ``known``.
    """
    shared = _shared(above, below)
    many, worst = (shared >= 0).sum(axis=0), np.zeros(len(known))
    for size in np.unique(many).tolist():
        at = np.flatnonzero(many == size)
        worst[at] = _worst_corner(above.take(at), below.take(at), shared[:size, at], later, limit)
    return np.minimum(known, up(gains * worst))


def _worst_corner(above: Balls, below: Balls, shared: np.ndarray, later: Sheet, limit: Interval) -> np.ndarray:
    """The largest ratio of two means over all corners of the ``shared`` successors, one in each row of them."""
    (bottom, top, caps, ratio), to = later.flat(), above.successors
    free = np.minimum(up(above.high * np.minimum(caps[to], up(ratio[to] * top[to]))), limit.high)
    free_below = np.maximum(down(below.low * bottom[below.successors]), limit.low)
    ends = []
    for y in shared:
        mine, rho = to == y, ratio[y]
        weakest = np.where(mine, above.high, np.inf).min(axis=0)
        cap = np.minimum(caps[y], up(limit.high / weakest))
        # Where the cap starts to bind, between a float below and one above; at the bottom both are equal.
        kink = Interval.of(cap) / rho
        least, most = (np.maximum(bottom[y], np.minimum(top[y], end)) for end in (kink.low, kink.high))
        raised = np.minimum(cap, up(rho * most)), least
        lowered = np.minimum(cap, up(rho * bottom[y])), bottom[y]
        ends.append((mine, below.successors == y, (lowered, raised)))
    worst = np.zeros(to.shape[1])
    for corner in product((0, 1), repeat=len(ends)):
        numerator, denominator = free, free_below
        for (mine, theirs, values), end in zip(ends, corner, strict=True):
            numerator = np.where(mine, up(above.high * values[end][0]), numerator)
            denominator = np.where(theirs, down(below.low * values[end][1]), denominator)
        quotient = up(extreme_mean(above, numerator, 1) / extreme_mean(below, denominator, -1))
        worst = np.maximum(worst, quotient)
    return worst


def tally_in(ball: Balls, states: np.ndarray) -> np.ndarray:
    """How often each row led to each of the states in its column of ``states``."""
    return np.where(states[:, None] == ball.successors, ball.tallies, 0.0).sum(axis=1)


def smallest_of_largest(score: np.ndarray, states: np.ndarray) -> np.ndarray:
    """In each column the state with the largest score, the lowest of ties."""
    return np.where(score == score.max(axis=0), states, np.iinfo(np.int64).max).min(axis=0)


def _shared(above: Balls, below: Balls) -> np.ndarray:
    """Up to three successors seen in both rows, those first whose smaller share of visits is largest; -1 for none."""
    states = below.successors
    theirs, mine = tally_in(above, states), tally_in(below, states)
    score = np.minimum(theirs * below.visits, mine * above.visits)
    chosen = np.full((_MAX_SHARED, states.shape[1]), -1)
    for i in range(_MAX_SHARED):
        found = score.max(axis=0) > 0.0
        if not found.any():
            break
        chosen[i, found] = smallest_of_largest(score, states)[found]
        score = np.where(states == chosen[i], 0.0, score)
    return chosen
