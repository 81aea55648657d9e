"""Bernstein method: the scale on which it computes."""

from __future__ import annotations

from entropic_bpi.verification._file import Rejected
from reference.verifier._claim import Claim
from reference.verifier._intervals import LARGEST_EXPONENT, Interval

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
