"""Discounted returns that never end: how much a reward counts at each step, and what comes after the last one."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from entropic_bpi.verification._file import Rejected, a_number
from reference.verifier._intervals import Interval

_BITS = 256  # behind the point, of powers of γ


class Discount:
    """γ, and its powers between two fractions."""

    def __init__(self, gamma: Any, horizon: int) -> None:
        self.gamma, self.horizon = a_number("discount", gamma), horizon
        if not 0 < self.gamma < 1:
            raise Rejected(f"discount must lie strictly between 0 and 1, got {self.gamma}")

    @cached_property
    def powers(self) -> list[tuple[Fraction, Fraction]]:
        """Around γ^h for h from 0 to the horizon."""
        up, down = self.gamma.as_integer_ratio()
        below, above = [1 << _BITS], [1 << _BITS]
        for _ in range(self.horizon):
            below.append(below[-1] * up // down)
            above.append(-(-above[-1] * up // down))
        return [(Fraction(a, 1 << _BITS), Fraction(b, 1 << _BITS)) for a, b in zip(below, above, strict=True)]

    @cached_property
    def duration(self) -> tuple[Fraction, Fraction]:
        """Around what a reward of 1 at every step before the horizon adds up to."""
        below, above = zip(*self.powers[:-1], strict=True)
        return sum(below, Fraction(0)), sum(above, Fraction(0))

    def tail(self, low: float, high: float) -> tuple[Fraction, Fraction]:
        """Between what rewards from ``low`` to ``high`` add up to after the horizon."""
        shares = [power / (1 - Fraction(self.gamma)) for power in self.powers[-1]]
        return min(Fraction(low) * share for share in shares), max(Fraction(high) * share for share in shares)

    @lru_cache(maxsize=100_000)  # noqa: B019  (one for each claim, and gone with it)
    def power(self, beta: float, step: int, reward: float, origin: float) -> Interval:
        """e^{βγ^h(reward - origin)}."""
        exponent = Fraction(beta) * (Fraction(reward) - Fraction(origin))
        ends = [Interval.of(exponent * factor) for factor in self.powers[step]]
        return Interval(min(end.low for end in ends), max(end.high for end in ends)).exp()
