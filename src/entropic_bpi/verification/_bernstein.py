"""Bernstein method: the scale on which it computes, and bounds from the counts."""

import math

import numpy as np

from entropic_bpi.verification._ball import Balls, Rows
from entropic_bpi.verification._claim import Bounds, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import LARGEST_EXPONENT, Interval, largest, smallest, where
from entropic_bpi.verification._kl import Report

# The learner does not round the claims of the Bernstein method outwards: a claim may exceed a bound by this share of the
# range of the return, but not by more than the width of the interval that contains the bound.
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
        if not exponent <= LARGEST_EXPONENT * (1.0 + 1e-9):
            raise Rejected(f"|beta| times horizon and reward range is {exponent:.6g}, beyond {LARGEST_EXPONENT:g}")
        self.small = exponent < _SMALL_EXPONENT
        self.unit = self.strength if self.small and not self.flat else Interval.of(1.0)

    def reward(self, rewards: np.ndarray) -> Interval:
        """Return rescaled rewards."""
        return (Interval.of(rewards) - self.shift) / self.range

    def transform(self, value: Interval) -> Interval:
        """Return e^{β value}, as (Z - origin) / unit."""
        if not self.small:
            return (self.beta * value).exp()
        return value if self.flat else (self.beta * value).expm1() / self.unit

    def lift(self, reward: Interval, inner: Interval) -> Interval:
        """Return e^{βr} Z for Z = origin + unit·inner, again as (Z - origin) / unit."""
        gained = inner * (self.beta * reward).exp()
        return gained + self.transform(reward) if self.small else gained

    def value(self, z: Interval) -> Interval:
        """Return the V with transform(V) = z."""
        if self.flat:
            return z
        return ((z * self.strength).log1p() if self.small else z.log()) / self.beta

    def relative(self, width: Interval, z: Interval) -> Interval:
        """Return the width of an interval of Z as a share of z."""
        return width * self.strength / (z * self.strength + 1.0) if self.small else width / z


def bernstein_bounds(claim: Claim, report: Report) -> Bounds:
    """Return the bounds of the Bernstein method, and the problems of the stated policy."""
    method = _Bernstein(claim)
    scale, (choices, first) = method.scale, method.run(report)
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
    return Bounds(*ends, (*slack,), tuple(method.changed_choices(choices)))


class _Bernstein:
    """The recursion of the paper on intervals; see the theory page of the method for its formulas.

    Tables have five entries for each state or action: Z_up, Z_low and the certificate G, as (Z - origin) / unit, and the
    smallest and the largest return, for rescaled rewards.
    """

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

    def run(self, report: Report) -> tuple[list[Interval], Interval]:
        """Return the optimistic bounds of all actions at every planned step, and the table of the first state."""
        claim, sign, choices = self.claim, self.scale.sign, list[Interval]()
        later = Interval(*np.zeros((2, 5, claim.n_states + 1)))
        last = self.scale.transform(_ZERO)
        later.low[:2], later.high[:2] = last.low, last.high
        states = np.arange(claim.n_states)
        for h in reversed(range(claim.steps)):
            after, states = states, claim.reachable[h]
            if claim.successors == "unknown":
                for end in (later.low, later.high):  # any of them may follow
                    end[3], end[4] = end[3, after].min(), end[4, after].max()
            rows, rewards = claim.rows(h, states), claim.rewards_at(h, states)
            # The artificial step pays 0.
            reward = self.scale.reward(rewards) if rewards is not None else Interval.of(np.zeros(rows.shape))
            table = self._actions(h, rows, later, reward)
            for end in (table.low, table.high):  # forbidden actions are worse than any other
                end[:2, ~claim.permitted(h, states)] = -sign * math.inf
            choices.insert(0, table[0 if sign > 0 else 1])
            later = Interval(*np.zeros((2, 5, claim.n_states + 1)))
            own = np.arange(len(states)), claim.actions(h, states)
            for now, end in ((later.low, table.low), (later.high, table.high)):
                now[:2, states] = end[:2].max(axis=2) if sign > 0 else end[:2].min(axis=2)
                now[2:, states] = end[2][own], end[3].min(axis=1), end[4].max(axis=1)
            report()
        return choices, later[:, claim.first_state]

    def _rows(self, h: int) -> Rows:
        layer = self.claim.layer(h)
        if layer not in self.rows:
            if not self.claim.stationary:
                self.rows.clear()  # no other step has these rows
            seen = self.claim.outcomes(layer)
            self.rows[layer] = Rows(seen.sizes, seen.successors, seen.times, np.zeros(len(layer)))
        return self.rows[layer]

    def _actions(self, h: int, rows: np.ndarray, later: Interval, reward: Interval) -> Interval:
        """Return the table of all actions, (5, states, actions)."""
        low, high = np.empty((2, 5, rows.size))
        reward = Interval(reward.low.ravel(), reward.high.ravel())
        for at, (ball,) in self._rows(h).batches(rows.ravel() - self.claim.layer(h).start):
            for i, value in enumerate(self._bounds(h, ball, later[:, ball.successors], reward[at])):
                low[i, at], high[i, at] = value.low, value.high
        return Interval(low.reshape(5, *rows.shape), high.reshape(5, *rows.shape))

    def _bounds(self, h: int, ball: Balls, later: Interval, reward: Interval) -> tuple[Interval, ...]:
        """Return the table of a few rows, from the table of their successors."""
        scale, steps = self.scale, float(self.claim.steps)
        least = Interval(later.low[3].min(axis=0), later.high[3].min(axis=0))
        most = Interval(later.low[4].max(axis=0), later.high[4].max(axis=0))
        cap, floor, span, widest = self._limits(h, reward, least, most)
        n = np.maximum(ball.visits, 1.0)
        p = Interval.of(ball.tallies) / n
        up, low, width = ((p * later[i]).sum() for i in range(3))
        distance = later[0] - up if scale.sign > 0 else later[1] - low
        bonus, width = self._bonus(n, _root_mean_square(p, distance, ball.tallies > 0.0), span, width)
        slack = bonus + (up - low) / steps
        u_up = largest(floor, smallest(cap, scale.lift(reward, up + slack)))
        u_low = smallest(cap, largest(floor, scale.lift(reward, low - slack)))
        width = smallest(widest, width * (scale.beta * reward).exp())
        if self.sharp:
            width = smallest(width, u_up - floor if scale.sign > 0 else cap - u_low)
        seen = ball.visits > 0.0
        ends = where(seen, u_up, cap), where(seen, u_low, floor), where(seen, width, widest)
        return *ends, reward + least, reward + most

    def _limits(self, h: int, reward: Interval, least: Interval, most: Interval) -> tuple[Interval, ...]:
        """Return the largest and the smallest possible U, the range of the next Z, and the largest G."""
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
        """Return the bonus after ``n`` visits, and G before the factor e^{βr}; ``width`` is the mean of the next G."""
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

    def claim_of(self, first: Interval) -> tuple[Interval, Interval, Interval | None]:
        """Return bounds on the policy's value and on the optimum, and the gap (None: no bound), for rescaled rewards."""
        scale, z, width = self.scale, first[0 if self.scale.sign > 0 else 1], first[2]
        value = scale.value(z)
        if scale.flat:
            return value - width, value, width
        g = largest(scale.relative(width, z), _ZERO)
        added = g.log1p() / scale.strength
        if scale.sign < 0 and self.sharp:
            return value - added, value, added
        gap = -(-g).log1p() / scale.strength if g.high < 1.0 else None
        if scale.sign < 0:
            return value - added, value, gap
        return (value - gap if gap is not None else Interval.of(-math.inf)), value, gap

    def changed_choices(self, choices: list[Interval]) -> list[str]:
        """Return where the policy is certainly not greedy, among the states that it was seen to reach."""
        claim, sign, reached, problems = self.claim, self.scale.sign, np.array([self.claim.first_state]), list[str]()
        for h, sides in enumerate(choices):
            own = np.arange(len(reached)), claim.actions(h, reached)
            side = sides[np.searchsorted(claim.reachable[h], reached)]
            better = side.high[own] < side.low.max(axis=1) if sign > 0 else side.low[own] > side.high.min(axis=1)
            problems += [
                f"a changed policy: action {own[1][i]} in state {reached[i]} at step {h - claim.random_start} is not the "
                "best one by the counts"
                for i in np.flatnonzero(better)
            ]
            seen = claim.seen.between(claim.layer(h).start, claim.layer(h).stop)
            reached = np.unique(seen.successors[np.isin(seen.rows, claim.rows(h, reached)[own])])
        return problems


def _root_mean_square(p: Interval, distances: Interval, seen: np.ndarray) -> Interval:
    """Return the root mean square of distances with shares ``p``, in units of the largest seen: squares do not overflow."""
    sizes = np.maximum(np.abs(distances.low), np.abs(distances.high))
    unit = np.where(seen, sizes, 0.0).max(axis=0)
    scaled = where(seen, distances, _ZERO) / np.where(unit > 0.0, unit, 1.0)
    return (p * scaled.square()).sum().sqrt() * unit
