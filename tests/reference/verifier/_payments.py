"""Learned rewards: whether what is listed can have been seen, and what a random reward is worth."""

from __future__ import annotations

import math
from fractions import Fraction

from entropic_bpi.verification._file import Rejected
from reference.verifier._ball import Ball, extreme_mean
from reference.verifier._intervals import Interval, power, up
from reference.verifier._radius import stirling_error

SAME_REWARD = 1e-9  # of the range: fixed rewards that differ by no more are one, up to rounding
_MOST_VALUES, _CELLS = 64, 1024  # of a random reward: values kept as they are, cells of the range for more

Paid = tuple[float, float]


def check_fixed(where: str, paid: list[Paid], low: float, high: float, allowed: int) -> None:
    """Whether fixed rewards are known up to rounding, differ by more than that, and are not too many."""
    same = SAME_REWARD * (high - low)
    if len(paid) > allowed:
        raise Rejected(f"{where} has more different rewards than are allowed")
    for i, (least, most) in enumerate(paid):
        if most - least > same:
            raise Rejected(f"{where} paid from {least} to {most}, which is more than rounding")
        for other in paid[:i]:
            if max(most, other[1]) - min(least, other[0]) <= same:
                raise Rejected(f"{where} lists {least} and {other[0]}, which are one reward, up to rounding")


def check_random(where: str, paid: list[Paid], low: float, high: float) -> None:
    """Whether random rewards are different values, or all of them different cells of the range."""
    if len(paid) <= _MOST_VALUES and all(least == most for least, most in paid):
        return
    for least, most in paid:
        cell = round((least - low) / (high - low) * _CELLS)
        if (least, most) != (_edge(low, high, cell), _edge(low, high, cell + 1)):
            raise Rejected(f"{where} paid from {least} to {most}, which is not one of the {_CELLS} cells of the range")


def _edge(low: float, high: float, cell: int) -> float:
    return high if cell == _CELLS else min(high, low + (high - low) * (cell / _CELLS))


def betting_radius(n: int, log_union: float) -> float:
    """x = (log(2/δ') + c₂(n)) / n, rounded up, with c₂(n) = log(√π Γ(n+1) / Γ(n+½)), whose large terms cancel exactly."""
    ratio = Interval.of(float(n)) * Interval.of(Fraction(1, 2 * n + 1)).log1p() + Interval.of(float(n + 1)).log() * 0.5
    ratio = ratio - 0.5 + stirling_error(Fraction(n + 1)) - stirling_error(n + Fraction(1, 2))
    regret = ratio + Interval(math.pi, up(math.pi)).log() * 0.5
    return up(up(log_union + regret.high) / n)


def worth(paid: dict[Paid, int], low: float, high: float, beta: float, origin: float, log_union: float) -> Interval:
    """E e^{β(R - origin)} of a random reward R on [low, high]: bounds on its mean, by bets that no law lets win much.

    They are the extreme means over the laws on what was seen and both ends of the range that lie in a ball.
    """
    ends = [between(beta, end, end, origin) for end in (low, high)]
    n = sum(paid.values())
    if not n or low == high:
        return Interval(min(end.low for end in ends), max(end.high for end in ends))
    seen = [between(beta, least, most, origin) for least, most in paid] + ends
    ball = Ball([0] * len(seen), [*paid.values(), 0, 0], betting_radius(n, log_union), [])
    return Interval(extreme_mean(ball, [y.low for y in seen], -1), extreme_mean(ball, [y.high for y in seen], 1))


def between(beta: float, least: float, most: float, origin: float) -> Interval:
    """e^{β(r - origin)} for a reward between two numbers."""
    one, other = power(beta, least, origin), power(beta, most, origin)
    return Interval(min(one.low, other.low), max(one.high, other.high))
