"""KL method: the radius of a row's ball."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from reference.verifier._intervals import Interval


@lru_cache(maxsize=100_000)
def stirling_error(x: Fraction) -> Interval:
    """c(x) = lnΓ(x) - (x - ½) ln x + x - ½ ln 2π, by its asymptotic series, which envelops it.

    Small x are first moved up by c(x) = c(x+1) + (x + ½) log1p(1/x) - 1.
    """
    moved = Interval.of(0.0)
    while x < 16:
        moved = moved + Interval.of(x + Fraction(1, 2)) * Interval.of(1 / x).log1p() - 1.0
        x += 1
    inverse = Interval.of(1 / x)
    square = inverse * inverse
    total = Interval(0.0, 1.0) * Interval.of(Fraction(-691, 360360))
    for term in (Fraction(1, 1188), Fraction(-1, 1680), Fraction(1, 1260), Fraction(-1, 360), Fraction(1, 12)):
        total = total * square + Interval.of(term)
    return moved + total * inverse


@lru_cache(maxsize=100_000)
def _ascent(n: int, a: Fraction) -> Interval:
    """log of a(a+1)···(a+n-1), less n log n - n; no term is of the size of n, so nothing cancels."""
    shifted = Interval.of(n + a - Fraction(1, 2)) * Interval.of(a / n).log1p()
    scaled = Interval.of(a - Fraction(1, 2)) * Interval.of(n / a).log()
    return shifted + scaled + stirling_error(n + a) - stirling_error(a)


def mixture_radius(tallies: list[int], k: int, most: int) -> float:
    """R_mix: minus the log of the average of e^{-R_a} over four Dirichlet priors a on k outcomes, rounded up.

    R_a = Σ N log(N/n) - log of the Dirichlet-multinomial likelihood; the n log n of both cancel exactly. If only ``most`` of
    the k outcomes are declared to exist, half of the weight goes to the prior ½ on each set of so many outcomes, all sets
    alike: a share Π (most - i)/(k - i) of them, i from 0 to the number of outcomes seen less 1, contains those.
    """
    priors = [(k, a, Fraction(1, 4)) for a in (Fraction(1, k * k), Fraction(1, k), Fraction(1, 2), Fraction(1))]
    if most < k:
        share = Fraction(1, 2)
        for i in range(len(tallies)):
            share = share * (most - i) / (k - i)
        priors = [(cells, a, weight / 2) for cells, a, weight in priors] + [(most, Fraction(1, 2), share)]
    radii = [_radius(tallies, cells, a) - Interval.of(weight).log() for cells, a, weight in priors]
    smallest = min(radius.low for radius in radii)
    total = sum(((Interval.of(smallest) - radius).exp() for radius in radii), Interval.of(0.0))
    return (Interval.of(smallest) - total.log()).high


def _radius(tallies: list[int], cells: int, a: Fraction) -> Interval:
    radius = _ascent(sum(tallies), cells * a)
    for count in tallies:
        radius = radius - _ascent(count, a)
    return radius
