"""Outward rounding: numbers that are certainly not below, or not above, the exact one, and intervals that contain it.

+, -, *, / and sqrt are correctly rounded (IEEE 754), so the next float is past the exact result. exp, log, log1p and expm1
are not: C libraries document errors of 1 or 2 units in the last place. They are given 4: |x|·2⁻⁵⁰ is at least that.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

LARGEST_EXPONENT = 600.0  # of e^{βr}, which must stay a float

_ULPS = 2.0**-50


def up(x: float) -> float:
    return math.nextafter(x, math.inf)


def down(x: float) -> float:
    return math.nextafter(x, -math.inf)


def toward(x: float, side: int) -> float:
    """The next float above (``side`` 1) or below (``side`` -1)."""
    return math.nextafter(x, side * math.inf)


def above(x: float) -> float:
    return up(x + abs(x) * _ULPS)


def below(x: float) -> float:
    return down(x - abs(x) * _ULPS)


class Interval:
    """All numbers from ``low`` to ``high``; operations contain every result for every number of the operands."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    @classmethod
    def of(cls, x: Interval | Fraction | float) -> Interval:
        if isinstance(x, Interval):
            return x
        # A fraction lies between the float nearest to it and a neighbour of that one: nothing wider is needed.
        nearest = float(x)
        return cls(down(nearest) if nearest > x else nearest, up(nearest) if nearest < x else nearest)

    def __add__(self, other: Interval | float) -> Interval:
        other = Interval.of(other)
        return Interval(down(self.low + other.low), up(self.high + other.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Interval | float) -> Interval:
        return self + -Interval.of(other)

    def __mul__(self, other: Interval | float) -> Interval:
        other = Interval.of(other)
        ends = [x * y for x in (self.low, self.high) for y in (other.low, other.high)]
        return Interval(down(min(ends)), up(max(ends)))

    def __truediv__(self, other: Interval | float) -> Interval:
        other = Interval.of(other)
        if other.low <= 0.0 <= other.high:
            raise ArithmeticError("division by an interval that contains 0")
        ends = [x / y for x in (self.low, self.high) for y in (other.low, other.high)]
        return Interval(down(min(ends)), up(max(ends)))

    def square(self) -> Interval:
        ends = (self.low * self.low, self.high * self.high)
        inside = self.low <= 0.0 <= self.high
        return Interval(0.0 if inside else max(0.0, down(min(ends))), up(max(ends)))

    def sqrt(self) -> Interval:
        return Interval(max(0.0, down(math.sqrt(max(self.low, 0.0)))), up(math.sqrt(self.high)))

    def exp(self) -> Interval:
        return Interval(max(0.0, below(math.exp(self.low))), above(math.exp(self.high)))

    def log(self) -> Interval:
        return Interval(below(math.log(self.low)), above(math.log(self.high)))

    def log1p(self) -> Interval:
        return Interval(below(math.log1p(self.low)), above(math.log1p(self.high)))

    def expm1(self) -> Interval:
        return Interval(below(math.expm1(self.low)), above(math.expm1(self.high)))


def smallest(*numbers: Interval) -> Interval:
    return Interval(min(x.low for x in numbers), min(x.high for x in numbers))


def largest(*numbers: Interval) -> Interval:
    return Interval(max(x.low for x in numbers), max(x.high for x in numbers))


@lru_cache(maxsize=100_000)
def power(beta: float, reward: float, origin: float) -> Interval:
    """e^{β(reward - origin)}; the exponent is exact, as the sum of its nearest float and a remainder below 1e-13."""
    exponent = Fraction(beta) * (Fraction(reward) - Fraction(origin))
    nearest = float(exponent)
    remainder = Interval.of(exponent - Fraction(nearest))
    return Interval.of(nearest).exp() * (remainder.expm1() + 1.0)
