r"""Entropic value at risk: from the bounds of the KL method at several λ to those of EVaR.

Returns are counted from the smallest one that is possible, so that they lie between 0 and R; c = log(1/α). For every policy,
λV_{-λ} grows and V_{-λ} falls with λ, and so do those of the best policy. EVaR is the supremum of V_{-λ} - c/λ, which is at
most 0 up to λ = c/R. The cells of the claim cover the rest. In a cell from b to b', with the bounds u of V*, l of the
policy's value and g of the gap at its λ, 0 ≤ l and u ≤ R, what any policy attains is at most

- (λ/b)·max(u - c/λ, 0) up to λ, which is at most g + (λ/b - 1)·max(u - c/λ, 0) above what this policy attains;
- u - c/b' from λ on, which is at most g + c/λ - c/b' above it.

And this policy attains at least L, the largest of 0 and all l - c/λ.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from entropic_bpi.verification._claim import Bounds, Cell, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import Interval, down, up
from entropic_bpi.verification._kl import Report, bounds_at


class _Known(NamedTuple):
    """What holds at the λ of a cell, counted from the smallest return; ``share`` is c/λ."""

    cell: Cell
    lower: float
    upper: float
    gap: float
    share: Interval


def evar_bounds(claim: Claim, report: Report) -> Bounds:
    assert claim.alpha is not None
    assert claim.cells is not None
    c = -Interval.of(claim.alpha).log()
    least, most = _return_range(claim)
    spread = Interval.of(max(most - least, Fraction(0)))
    known = [_at(claim, cell, c, (least, spread.high), report) for cell in claim.cells]
    lower = max(0.0, *(down(k.lower - k.share.high) for k in known))
    begin = known[0].cell.lam
    if spread.low > 0.0:
        begin = min(begin, (c / spread).low)
    attained, gaps = [0.0], [0.0]
    for k in known:
        for best, loss in (_up_to(k, begin), _from(k, c)):
            attained.append(best)
            gaps.append(min(up(k.gap + loss), up(best - lower)))
        begin = k.cell.until
    if not all(map(math.isfinite, [lower, *attained, *gaps])):
        raise Rejected("the bounds of the entropic value at risk are not finite")
    lowest, highest = Interval.of(least + Fraction(float(lower))), Interval.of(least + Fraction(float(max(attained))))
    return Bounds(float(lowest.low), float(highest.high), float(max(gaps)))


def _at(claim: Claim, cell: Cell, c: Interval, returns: tuple[Fraction, float], report: Report) -> _Known:
    least, spread = returns
    lower, upper, gap = bounds_at(claim, -cell.lam, cell.test, report)
    from_least = [Interval.of(Fraction(bound) - least) for bound in (lower, upper)]
    return _Known(cell, max(0.0, from_least[0].low), min(from_least[1].high, spread), gap, c / cell.lam)


def _up_to(k: _Known, begin: float) -> tuple[float, float]:
    """What is attained between ``begin`` and the λ of the cell, and how much of it is lost at that λ, both rounded up."""
    height, ratio = max(0.0, up(k.upper - k.share.low)), up(k.cell.lam / begin)
    return up(ratio * height), up(up(ratio - 1.0) * height)


def _from(k: _Known, c: Interval) -> tuple[float, float]:
    """The same from the λ of the cell to its end."""
    last = 0.0 if k.cell.until == math.inf else (c / k.cell.until).low
    return up(k.upper - last), up(k.share.high - last)


def _return_range(claim: Claim) -> tuple[Fraction, Fraction]:
    """The smallest and the largest return: by the rewards, and by what is declared."""
    low, high = (Fraction(reward) * claim.horizon for reward in claim.reward_range)
    if claim.return_range is None:
        return low, high
    least, most = (Fraction(end) for end in claim.return_range)
    room = Fraction(claim.return_room)
    return max(low, least - room), min(high, most + room)
