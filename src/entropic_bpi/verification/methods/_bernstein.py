"""Bernstein method: the scale on which it computes, and bounds from the counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from entropic_bpi.verification._ball import Balls, Rows
from entropic_bpi.verification._claim import Bounds, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import LARGEST_EXPONENT, Interval, largest, smallest, where
from entropic_bpi.verification._kl import Report

# The learner does not round the claims of the Bernstein method outwards: so much of the range of the return is forgiven,
# but no more than the width of the interval that the bound is known to lie in.
_FORGIVEN = 1e-12
_ZERO = Interval.of(0.0)
_SMALL_EXPONENT = 1.0  # of |β|H; below, (Z - 1)/|β| keeps digits that Z would lose
_ZERO_BETA = 1e-200


class Scale:
    """Rewards are rescaled to [0, 1], and β with them; ``strength`` is |β|.

    Values V are carried as Z = e^{βV} or, for small exponents, as (Z - 1)/|β|, which tends to ±V as β → 0: in general as
    (Z - origin) / unit.
    """

    def __init__(self, claim: Claim) -> None:
        low, high = claim.reward_range
        inside = low >= 0.0 and high <= 1.0
        self.shift = 0.0 if inside else low
        self.range = Interval.of(1.0) if inside or high == low else Interval.of(high) - low
        self.beta = self.range * claim.beta
        self.flat = max(abs(self.beta.low), abs(self.beta.high)) < _ZERO_BETA
        if self.flat:
            self.beta = Interval.of(0.0)
            if claim.constants != "sharp":
                raise Rejected(f"constants {claim.constants!r} need beta != 0")
        self.sign = 1 if claim.beta >= 0 or self.flat else -1
        self.strength = self.beta if self.sign > 0 else -self.beta
        exponent = float(self.strength.high) * claim.steps
        if exponent > LARGEST_EXPONENT * (1.0 + 1e-9):
            raise Rejected(f"|beta| times horizon and reward range is {exponent:.6g}, beyond {LARGEST_EXPONENT:g}")
        self.small = exponent < _SMALL_EXPONENT
        self.unit = self.strength if self.small and not self.flat else Interval.of(1.0)

    def reward(self, rewards: np.ndarray) -> Interval:
        """Rescaled."""
        return (Interval.of(rewards) - self.shift) / self.range

    def transform(self, value: Interval) -> Interval:
        """e^{β value}, as (Z - origin) / unit."""
        if not self.small:
            return (self.beta * value).exp()
        return value if self.flat else (self.beta * value).expm1() / self.unit

    def lift(self, reward: Interval, inner: Interval) -> Interval:
        """e^{βr} Z for Z = origin + unit·inner, again as (Z - origin) / unit."""
        gained = inner * (self.beta * reward).exp()
        return gained + self.transform(reward) if self.small else gained

    def value(self, z: Interval) -> Interval:
        """The V with transform(V) = z."""
        if self.flat:
            return z
        return ((z * self.strength).log1p() if self.small else z.log()) / self.beta

    def relative(self, width: Interval, z: Interval) -> Interval:
        """The width of an interval of Z as a share of z."""
        return width * self.strength / (z * self.strength + 1.0) if self.small else width / z


def bernstein_bounds(claim: Claim, report: Report) -> Bounds:
    method = _Bernstein(claim)
    scale, (table, first) = method.scale, method.run(report)
    lower, upper, gap = method.claim_of(first)
    offset = Interval.of(scale.shift) * float(claim.horizon)
    upper = upper * scale.range + offset
    # No return is below that of the smallest reward (0 where rewards lie in [0, 1] and are not rescaled).
    lower = offset if lower.low == -math.inf else largest(offset, lower * scale.range + offset)
    width = upper - lower
    if gap is not None:
        width = smallest(width, gap * scale.range)
    forgiven = _FORGIVEN * (abs(scale.shift) + scale.range.high) * claim.horizon
    slack = (min(forgiven, float(x.high - x.low)) for x in (lower, upper, width))
    ends = (float(lower.low), float(upper.high), float(width.high))
    return Bounds(*ends, (*slack,), method.changed_choices(table))


@dataclass
class _Width:
    """Z_up, Z_low and the certificate G of several states or actions, as (Z - origin) / unit."""

    up: Interval
    low: Interval
    width: Interval

    def best(self, sign: int) -> Interval:
        """The side by which actions are chosen."""
        return self.up if sign > 0 else self.low


class _Bernstein:
    """The recursion of the paper on intervals; see the theory page of the method for its formulas."""

    def __init__(self, claim: Claim) -> None:
        if claim.rewards is None:
            raise Rejected("method 'bernstein' needs rewards that do not depend on the next state")
        self.claim, self.scale, self.sharp = claim, Scale(claim), claim.constants == "sharp"
        pairs, steps = claim.n_states * claim.n_actions, claim.steps
        # The printed bonus pays for its certificate if (H/4 + 2) x <= 5 x + 4H x*, and x / x* tends to S as n grows.
        if claim.constants == "printed" and (steps - 12) * claim.n_states > 16 * steps:
            raise Rejected(
                f"constants 'printed' certify nothing with {steps} steps and {claim.n_states} states: "
                "proved is S <= 16H/(H - 12), or H <= 12"
            )
        rows = pairs + claim.random_start if claim.stationary else pairs * steps
        self.log_kl = (Interval.of(3.0 * rows) / claim.delta).log()
        self.log_bernstein = (Interval.of(3.0 * pairs * steps) / claim.delta).log()
        self.rows: dict[range, Rows] = {}

    def run(self, report: Report) -> tuple[list[Interval], _Width]:
        """What actions are chosen by at every planned step and reachable state, and the bounds of the start."""
        claim, n = self.claim, self.claim.n_states
        last = Interval.of(np.zeros(n + 1)) + self.scale.transform(_ZERO)
        later = _Width(last, last, Interval.of(np.zeros(n + 1)))
        least = most = Interval.of(np.zeros(n + 1))
        table: list[Interval] = []
        states = np.arange(n)
        for h in reversed(range(claim.steps)):
            after, states = states, claim.reachable[h]
            if claim.successors == "unknown":
                least, most = (_everywhere(least, after, np.min), _everywhere(most, after, np.max))
            rows, rewards = claim.rows(h, states), claim.rewards_at(h, states)
            # The artificial step pays 0.
            rescaled = self.scale.reward(rewards) if rewards is not None else Interval.of(np.zeros(rows.shape))
            bounds, low, high = self._actions(h, rows, later, rescaled, (least, most))
            own, best = (np.arange(len(states)), claim.actions(h, states)), np.max if self.scale.sign > 0 else np.min
            forbidden = ~claim.permitted(h, states)
            for side in (bounds.up, bounds.low):  # what is forbidden is worse than anything
                side.low[forbidden] = side.high[forbidden] = -math.inf if self.scale.sign > 0 else math.inf
            table.append(bounds.best(self.scale.sign))
            later = _Width(
                self._spread(_along(bounds.up, best), states),
                self._spread(_along(bounds.low, best), states),
                self._spread(bounds.width[own], states),
            )
            least = self._spread(_along(rescaled + low, np.min), states)
            most = self._spread(_along(rescaled + high, np.max), states)
            report()
        table.reverse()
        s = claim.first_state
        return table, _Width(later.up[s], later.low[s], later.width[s])

    def _spread(self, values: Interval, states: np.ndarray) -> Interval:
        """An array over all states, 0 elsewhere."""
        low, high = np.zeros((2, self.claim.n_states + 1))
        low[states], high[states] = values.low, values.high
        return Interval(low, high)

    def _rows(self, h: int) -> Rows:
        layer = self.claim.layer(h)
        if layer not in self.rows:
            if not self.claim.stationary:
                self.rows.clear()  # no other step has these rows
            seen = self.claim.outcomes(layer)
            self.rows[layer] = Rows(seen.sizes, seen.successors, seen.times, np.zeros(len(layer)))
        return self.rows[layer]

    def _actions(
        self, h: int, rows: np.ndarray, later: _Width, reward: Interval, returns: tuple[Interval, Interval]
    ) -> tuple[_Width, Interval, Interval]:
        """U_up, U_low and G of all actions, and the smallest and largest return after each."""
        parts = np.empty((5, 2, rows.size))
        numbers = rows.ravel() - self.claim.layer(h).start
        flat = Interval(reward.low.ravel(), reward.high.ravel())
        for at, ball in self._rows(h).batches(numbers):
            low, high = (
                _along(part[ball.successors], end, 0) for part, end in zip(returns, (np.min, np.max), strict=True)
            )
            bounds = self._bounds(h, ball, later, flat[at], low, high)
            for part, value in zip(parts, (bounds.up, bounds.low, bounds.width, low, high), strict=True):
                part[0, at], part[1, at] = value.low, value.high
        up, low, width, least, most = (Interval(*part.reshape(2, *rows.shape)) for part in parts)
        return _Width(up, low, width), least, most

    def _bounds(self, h: int, ball: Balls, later: _Width, reward: Interval, least: Interval, most: Interval) -> _Width:
        """The same of a few rows, after which returns lie from ``least`` to ``most``."""
        scale, steps = self.scale, float(self.claim.steps)
        cap, floor, span, widest = self._limits(h, reward, least, most)
        n = np.maximum(ball.visits, 1.0)
        p, next_up, next_low = Interval.of(ball.tallies) / n, later.up[ball.successors], later.low[ball.successors]
        up, low = (p * next_up).sum(), (p * next_low).sum()
        width = (p * later.width[ball.successors]).sum()
        distance = next_up - up if scale.sign > 0 else next_low - low
        bonus, width = self._bonus(n, _root_mean_square(p, distance, ball.tallies > 0.0), span, width)
        slack = bonus + (up - low) / steps
        u_up = largest(floor, smallest(cap, scale.lift(reward, up + slack)))
        u_low = smallest(cap, largest(floor, scale.lift(reward, low - slack)))
        width = smallest(widest, width * (scale.beta * reward).exp())
        if self.sharp:
            width = smallest(width, u_up - floor if scale.sign > 0 else cap - u_low)
        seen = ball.visits > 0.0
        return _Width(where(seen, u_up, cap), where(seen, u_low, floor), where(seen, width, widest))

    def _limits(
        self, h: int, reward: Interval, least: Interval, most: Interval
    ) -> tuple[Interval, Interval, Interval, Interval]:
        """The largest and smallest possible U; how far apart the next Z can be, and U."""
        scale, left = self.scale, float(self.claim.steps - h)
        if self.sharp:
            ends = (scale.transform(least), scale.transform(most))
            bottom, top = smallest(*ends), largest(*ends)
            span = largest(top - bottom, _ZERO)
            return scale.lift(reward, top), scale.lift(reward, bottom), span, span * (scale.beta * reward).exp()
        extreme, one = scale.transform(Interval.of(left)), scale.transform(_ZERO)
        if scale.sign > 0:
            span, widest = (scale.beta * (left - 1.0)).exp() / scale.unit, (scale.beta * left).exp() / scale.unit
            return extreme, one, span, widest
        return one, extreme, -(scale.beta * (left - 1.0)).expm1() / scale.unit, Interval.of(1.0) / scale.unit

    def _bonus(self, n: np.ndarray, deviation: Interval, span: Interval, width: Interval) -> tuple[Interval, Interval]:
        """The bonus after ``n`` visits, and G before the reward, where the mean of the next G is ``width``."""
        steps = float(self.claim.steps)
        log_term = Interval.of(8.0 * (n + 1.0)).log() + 1.0
        x = (self.log_kl + log_term * float(self.claim.n_states)) / n
        x_star = (self.log_bernstein + log_term) / n
        bonus = (x_star * 8.0).sqrt() * deviation
        if self.sharp:
            bonus = bonus + span * ((x * x_star * 5.0).sqrt() + x_star * (2.0 * steps + 3.0))
            return bonus, bonus * 2.0 + span * x * (0.5 * steps + 2.0) + width * ((Interval.of(2.0) / steps) + 1.0)
        second = x_star if self.claim.constants == "printed" else x
        bonus = bonus + span * x * 5.0 + span * second * (4.0 * steps)
        return bonus, bonus * 3.0 + width * ((Interval.of(3.0) / steps) + 1.0)

    def claim_of(self, first: _Width) -> tuple[Interval, Interval, Interval | None]:
        """Bounds on the policy's value and on the optimum, and the gap (None: no bound), for rescaled rewards."""
        scale, z = self.scale, first.up if self.scale.sign > 0 else first.low
        value = scale.value(z)
        if scale.flat:
            return value - first.width, value, first.width
        g = largest(scale.relative(first.width, z), _ZERO)
        added = g.log1p() / scale.strength
        if scale.sign < 0 and self.sharp:
            return value - added, value, added
        gap = -(-g).log1p() / scale.strength if g.high < 1.0 else None
        if scale.sign < 0:
            return value - added, value, gap
        return (value - gap if gap is not None else Interval.of(-math.inf)), value, gap

    def changed_choices(self, table: list[Interval]) -> list[str]:
        """Where the policy is certainly not greedy, among the states that it was seen to reach."""
        claim, sign, reached = self.claim, self.scale.sign, np.array([self.claim.first_state])
        problems = []
        for h, sides in enumerate(table):
            chosen, all_sides = claim.actions(h, reached), sides[np.searchsorted(claim.reachable[h], reached)]
            own = all_sides[np.arange(len(reached)), chosen]
            better = own.high < all_sides.low.max(axis=1) if sign > 0 else own.low > all_sides.high.min(axis=1)
            problems += [
                f"a changed policy: action {chosen[i]} in state {reached[i]} at step {h - claim.random_start} is not the "
                "one that the counts ask for"
                for i in np.flatnonzero(better)
            ]
            layer = claim.layer(h)
            seen = claim.seen.between(layer.start, layer.stop)
            rows = claim.rows(h, reached)[np.arange(len(reached)), chosen]
            reached = np.unique(seen.successors[np.isin(seen.rows, rows)])
        return problems


def _along(values: Interval, extreme: Callable[..., np.ndarray], axis: int = 1) -> Interval:
    """The smallest or largest along an axis."""
    return Interval(extreme(values.low, axis=axis), extreme(values.high, axis=axis))


def _everywhere(values: Interval, states: np.ndarray, extreme: Callable[..., np.ndarray]) -> Interval:
    """The smallest or largest of some states, for all states."""
    best = _along(values[states], extreme, 0)
    return Interval(np.full(len(values.low), best.low), np.full(len(values.high), best.high))


def _root_mean_square(p: Interval, distances: Interval, seen: np.ndarray) -> Interval:
    """Of distances with these shares; in units of the largest one that was seen, so that squares stay floats."""
    sizes = np.maximum(np.abs(distances.low), np.abs(distances.high))
    unit = np.where(seen, sizes, 0.0).max(axis=0)
    scaled = where(seen, distances, _ZERO) / np.where(unit > 0.0, unit, 1.0)
    return (p * scaled.square()).sum().sqrt() * unit
