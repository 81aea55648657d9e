"""Bernstein method: bounds from the counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from entropic_bpi.verification._file import Rejected
from reference.verifier._claim import Bounds, Claim
from reference.verifier._intervals import LARGEST_EXPONENT, Interval, largest, smallest

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
        exponent = self.strength.high * claim.steps
        if exponent > LARGEST_EXPONENT * (1.0 + 1e-9):
            raise Rejected(f"|beta| times horizon and reward range is {exponent:.6g}, beyond {LARGEST_EXPONENT:g}")
        self.small = exponent < _SMALL_EXPONENT
        self.unit = self.strength if self.small and not self.flat else Interval.of(1.0)

    def reward(self, reward: float | None) -> Interval:
        """Rescaled; the artificial step pays 0."""
        return Interval.of(0.0) if reward is None else (Interval.of(reward) - self.shift) / self.range

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


def bernstein_bounds(claim: Claim) -> Bounds:
    method = _Bernstein(claim)
    scale, (table, first) = method.scale, method.run()
    lower, upper, gap = method.claim_of(first)
    offset = Interval.of(scale.shift) * float(claim.horizon)
    upper = upper * scale.range + offset
    # No return is below that of the smallest reward (0 where rewards lie in [0, 1] and are not rescaled).
    lower = offset if lower.low == -math.inf else largest(offset, lower * scale.range + offset)
    width = upper - lower
    if gap is not None:
        width = smallest(width, gap * scale.range)
    forgiven = _FORGIVEN * (abs(scale.shift) + scale.range.high) * claim.horizon
    slack = (min(forgiven, x.high - x.low) for x in (lower, upper, width))
    return Bounds(lower.low, upper.high, width.high, (*slack,), method.changed_choices(table))


@dataclass
class _Width:
    """Z_up, Z_low and the certificate G at one place, as (Z - origin) / unit."""

    up: Interval
    low: Interval
    width: Interval


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

    def run(self) -> tuple[list[dict[int, dict[int, _Width]]], _Width]:
        """Bounds of every action at every planned step and reachable state, and those of the start."""
        claim, best = self.claim, largest if self.scale.sign > 0 else smallest
        last = self.scale.transform(_ZERO)
        later = {s: _Width(last, last, _ZERO) for s in range(claim.n_states)}
        least = most = dict.fromkeys(range(claim.n_states), _ZERO)
        table: list[dict[int, dict[int, _Width]]] = []
        for h in reversed(range(claim.steps)):
            actions: dict[int, dict[int, _Width]] = {}
            now: dict[int, _Width] = {}
            lows: dict[int, Interval] = {}
            highs: dict[int, Interval] = {}
            for s in claim.reachable[h]:
                ranges = [self._successor_range(claim.row(h, s, a), least, most) for a in claim.actions(h)]
                rewards = [self.scale.reward(claim.reward(h, s, a)) for a in claim.actions(h)]
                lows[s] = smallest(*(r + low for r, (low, _) in zip(rewards, ranges, strict=True)))
                highs[s] = largest(*(r + high for r, (_, high) in zip(rewards, ranges, strict=True)))
                actions[s] = {
                    a: self._bounds(h, claim.row(h, s, a), later, rewards[a], *ranges[a])
                    for a in claim.allowed_actions(h, s)
                }
                width, each = actions[s][claim.action(h, s)].width, actions[s].values()
                now[s] = _Width(best(*(u.up for u in each)), best(*(u.low for u in each)), width)
            table.append(actions)
            later, least, most = now, lows, highs
        table.reverse()
        return table, later[claim.first_state]

    def _successor_range(
        self, row: int, least: dict[int, Interval], most: dict[int, Interval]
    ) -> tuple[Interval, Interval]:
        """Smallest and largest return after ``row``, by the known rewards and the possible successors."""
        claim = self.claim
        unknown = claim.successors == "unknown"
        states = list(least) if unknown else [claim.slot_successor[j] for j in claim.row_slots[row]]
        return smallest(*(least[y] for y in states)), largest(*(most[y] for y in states))

    def _bounds(
        self, h: int, row: int, later: dict[int, _Width], reward: Interval, least: Interval, most: Interval
    ) -> _Width:
        """U_up, U_low and G of one action."""
        scale, steps = self.scale, float(self.claim.steps)
        cap, floor, span, widest = self._limits(h, reward, least, most)
        seen = self.claim.seen.get(row)
        if not seen:
            return _Width(cap, floor, widest)
        n = float(sum(seen.values()))
        shares = [(Interval.of(float(count)) / n, later[y]) for (y, _), count in seen.items()]
        up = sum((p * z.up for p, z in shares), _ZERO)
        low = sum((p * z.low for p, z in shares), _ZERO)
        width = sum((p * z.width for p, z in shares), _ZERO)
        deviation = _root_mean_square([(p, z.up - up if scale.sign > 0 else z.low - low) for p, z in shares])
        bonus, width = self._bonus(n, deviation, span, width)
        slack = bonus + (up - low) / steps
        u_up = largest(floor, smallest(cap, scale.lift(reward, up + slack)))
        u_low = smallest(cap, largest(floor, scale.lift(reward, low - slack)))
        width = smallest(widest, width * (scale.beta * reward).exp())
        if self.sharp:
            width = smallest(width, u_up - floor if scale.sign > 0 else cap - u_low)
        return _Width(u_up, u_low, width)

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

    def _bonus(self, n: float, deviation: Interval, span: Interval, width: Interval) -> tuple[Interval, Interval]:
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

    def changed_choices(self, table: list[dict[int, dict[int, _Width]]]) -> list[str]:
        """Where the policy is certainly not greedy, among the states that it was seen to reach."""
        claim, sign, reached = self.claim, self.scale.sign, {self.claim.first_state}
        problems = []
        for h, actions in enumerate(table):
            after: set[int] = set()
            for s in sorted(reached):
                chosen, sides = claim.action(h, s), {a: u.up if sign > 0 else u.low for a, u in actions[s].items()}
                own = sides[chosen]
                if any(own.high < u.low if sign > 0 else own.low > u.high for u in sides.values()):
                    problems.append(
                        f"a changed policy: action {chosen} in state {s} at step {h - claim.random_start} is not the one "
                        "that the counts ask for"
                    )
                after |= {y for y, _ in claim.seen.get(claim.row(h, s, chosen), {})}
            reached = after
        return problems


def _root_mean_square(distances: list[tuple[Interval, Interval]]) -> Interval:
    """Of (share, distance) pairs; in units of the largest distance, so that squares stay floats."""
    unit = max(max(abs(d.low), abs(d.high)) for _, d in distances)
    if not unit > 0.0:
        return _ZERO
    return sum((p * (d / unit).square() for p, d in distances), _ZERO).sqrt() * unit
