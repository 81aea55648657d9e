"""Outward rounding: numbers that are certainly not below, or not above, the exact one, and intervals that contain it.

Everything here takes single numbers or arrays of them. +, -, *, / and sqrt are correctly rounded (IEEE 754), so the next
float is past the exact result. exp, log, log1p and expm1 are not: C libraries document errors of 1 or 2 units in the last
place, and the vector instructions that NumPy uses errors below 4. The room for them is 8 units: |x|·2⁻⁴⁹ is at least that.

The numbers need not be doubles, see :data:`enclosures`; the formulas are the same.

An operation whose result is not defined gives NaN, which passes through every later one and fails every comparison with a
claim.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from functools import partial, reduce
from typing import Any

import numpy as np

LARGEST_EXPONENT = 600.0  # of e^{βr}, which must stay a float

_ULPS = 2.0**-49
_HALF_UNIT = 2.0**-53
_EXACT = 2**53  # integers up to this one are doubles

Numbers = Any  # a float or an array of floats


enclosures: ContextVar[Any] = ContextVar("enclosures", default=None)
"""How numbers are enclosed that are not doubles (:mod:`entropic_bpi.verification.rigorous`)."""


def exact(x: Numbers) -> np.ndarray:
    """Return doubles as numbers of the kind in use: doubles, or exact balls."""
    return x if (other := enclosures.get()) is None else other.exact(x)


def toward(x: Numbers, side: int) -> Numbers:
    """Return a number that is not below (``side`` 1) or not above (-1) the exact result of one operation."""
    try:
        # The result of one operation is less than one double away from the exact result.
        return np.nextafter(x, side * np.inf)
    except TypeError:  # these are no doubles
        return enclosures.get().toward(x, side)


def double(x: Numbers, side: int) -> Numbers:
    """Return a double that is not below (``side`` 1) or not above (-1) a number."""
    return x if (other := enclosures.get()) is None else other.double(x, side)


up, down = partial(toward, side=1), partial(toward, side=-1)


def doubles(x: Numbers) -> np.ndarray:
    """Return about the same numbers as doubles, for searches."""
    return np.asarray(x, dtype=float)


def above(x: Numbers) -> Numbers:
    """Return a number that is not below the exact value of exp, log, log1p or expm1, which was computed as ``x``."""
    return up(x + np.abs(x) * _ULPS)


def below(x: Numbers) -> Numbers:
    """Return a number that is not above the exact value of exp, log, log1p or expm1, which was computed as ``x``."""
    return down(x - np.abs(x) * _ULPS)


def double_above(x: Any) -> float:
    """Return the smallest double that is not below a fraction."""
    nearest = float(x)
    return math.nextafter(nearest, math.inf) if nearest < x else nearest


def double_below(x: Any) -> float:
    """Return the largest double that is not above a fraction."""
    return -double_above(-x)


class Interval:
    """All numbers from ``low`` to ``high``; operations contain every result for every number of the operands."""

    __slots__ = ("high", "low")

    def __init__(self, low: Numbers, high: Numbers) -> None:
        self.low, self.high = low, high

    @classmethod
    def of(cls, x: Any) -> Interval:
        if isinstance(x, Interval):
            return x
        if not isinstance(x, (float, np.ndarray)):
            return cls(exact(double_below(x)), exact(double_above(x)))
        number = exact(x)
        return cls(number, number)

    @classmethod
    def of_integers(cls, n: np.ndarray) -> Interval:
        nearest, rounded = n.astype(float), n > _EXACT
        low, high = (np.where(rounded, np.nextafter(nearest, end), nearest) for end in (-np.inf, np.inf))
        return cls(exact(low), exact(high))

    @property
    def ends(self) -> tuple[Numbers, ...]:
        return (self.low,) if self.low is self.high else (self.low, self.high)

    def __add__(self, other: Any) -> Interval:
        other = Interval.of(other)
        return Interval(down(self.low + other.low), up(self.high + other.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Any) -> Interval:
        return self + -Interval.of(other)

    def __mul__(self, other: Any) -> Interval:
        return _around([x * y for x in self.ends for y in Interval.of(other).ends])

    def __truediv__(self, other: Any) -> Interval:
        other = Interval.of(other)
        if np.any((other.low <= 0.0) & (other.high >= 0.0)):
            raise ArithmeticError("division by an interval that contains 0")
        return _around([x / y for x in self.ends for y in other.ends])

    def __getitem__(self, index: Any) -> Interval:
        return Interval(self.low[index], self.high[index])

    def square(self) -> Interval:
        one, other = self.low * self.low, self.high * self.high
        least = np.maximum(0.0, down(np.minimum(one, other)))
        inside = (self.low <= 0.0) & (self.high >= 0.0)
        return Interval(np.where(inside, 0.0, least), up(np.maximum(one, other)))

    def sqrt(self) -> Interval:
        return Interval(np.maximum(0.0, down(np.sqrt(np.maximum(self.low, 0.0)))), up(np.sqrt(self.high)))

    def exp(self) -> Interval:
        return Interval(np.maximum(exact(0.0), below(np.exp(exact(self.low)))), above(np.exp(exact(self.high))))

    def log(self) -> Interval:
        return Interval(below(np.log(exact(self.low))), above(np.log(exact(self.high))))

    def log1p(self) -> Interval:
        return Interval(below(np.log1p(exact(self.low))), above(np.log1p(exact(self.high))))

    def expm1(self) -> Interval:
        return Interval(below(np.expm1(exact(self.low))), above(np.expm1(exact(self.high))))

    def sum(self) -> Interval:
        """Return the sum along the first axis.

        In any order, each addition has an error of at most half a unit in the last place of the sum of absolute values.
        """
        terms = len(self.low)
        rooms = [np.abs(end).sum(axis=0) * (terms * 4 * _HALF_UNIT) for end in (self.low, self.high)]
        return Interval(down(self.low.sum(axis=0) - rooms[0]), up(self.high.sum(axis=0) + rooms[1]))


def _around(ends: list[Numbers]) -> Interval:
    # Balls that overlap cannot be compared, but their ends can.
    lows, highs = (ends, ends) if enclosures.get() is None else (map(down, ends), map(up, ends))
    return Interval(down(reduce(np.minimum, lows)), up(reduce(np.maximum, highs)))


def smallest(one: Interval, other: Interval) -> Interval:
    return Interval(np.minimum(one.low, other.low), np.minimum(one.high, other.high))


def largest(one: Interval, other: Interval) -> Interval:
    return Interval(np.maximum(one.low, other.low), np.maximum(one.high, other.high))


def where(condition: Numbers, one: Interval, other: Interval) -> Interval:
    return Interval(np.where(condition, one.low, other.low), np.where(condition, one.high, other.high))


def power(beta: Interval | float, reward: Numbers, origin: float) -> Interval:
    """Return e^{β(reward - origin)}."""
    return ((Interval.of(reward) - origin) * beta).exp()


def between(beta: Interval | float, least: Numbers, most: Numbers, origin: float) -> Interval:
    """Return the interval of e^{β(r - origin)} for rewards between two numbers."""
    one, other = power(beta, least, origin), power(beta, most, origin)
    return Interval(np.minimum(one.low, other.low), np.maximum(one.high, other.high))
