r"""Entropic value at risk: from the bounds of the KL method at several λ to those of EVaR.

Returns are counted from the smallest one that is possible, so that they lie between 0 and R; c = log(1/α). For every policy,
λV_{-λ} grows and V_{-λ} falls with λ, and so do those of the best policy. EVaR is the supremum of V_{-λ} - c/λ, which is at
most 0 up to λ = c/R. The cells of the claim cover the rest. In a cell from b to b', with the bounds u of V*, l of the
policy's value and g of the gap at its λ, 0 ≤ l and u ≤ R, what any policy attains is at most

- (λ/b)·max(u - c/λ, 0) up to λ, which is at most g + (λ/b - 1)·max(u - c/λ, 0) above what this policy attains;
- u - c/b' from λ on, which is at most g + c/λ - c/b' above it.

And this policy attains at least L, the largest of 0 and all l - c/λ.
"""

import math
from fractions import Fraction
from types import SimpleNamespace

from entropic_bpi.verification._claim import Bounds, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import Interval, down, up
from entropic_bpi.verification._kl import Report, bounds_at


def evar_bounds(claim: Claim, alpha: float, cells: list[SimpleNamespace], report: Report) -> Bounds:
    c, (least, most) = -Interval.of(alpha).log(), _return_range(claim)
    spread = Interval.of(max(most - least, Fraction(0)))
    begin = min(cells[0].lam, (c / spread).low) if spread.low > 0.0 else cells[0].lam
    # What any policy attains in a part of a cell, and how much less the policy of the claim attains at the λ of the cell.
    lower, found = 0.0, []
    for cell in cells:
        low, high, gap = bounds_at(claim, -cell.lam, cell.test, report)
        low, high = Interval.of(Fraction(low) - least).low, Interval.of(Fraction(high) - least).high
        low, high = max(0.0, low), min(high, spread.high)
        share, last = c / cell.lam, 0.0 if cell.until == math.inf else (c / cell.until).low
        lower = max(lower, down(low - share.high))
        height, ratio = max(0.0, up(high - share.low)), up(cell.lam / begin)
        found.append((up(ratio * height), up(gap + up(up(ratio - 1.0) * height))))
        found.append((up(high - last), up(gap + up(share.high - last))))
        begin = cell.until
    attained = [0.0, *(best for best, _ in found)]
    gaps = [0.0, *(min(loss, up(best - lower)) for best, loss in found)]
    if not all(map(math.isfinite, [lower, *attained, *gaps])):
        raise Rejected("the bounds of the entropic value at risk are not finite")
    lowest, highest = (Interval.of(least + Fraction(float(end))) for end in (lower, max(attained)))
    return Bounds(float(lowest.low), float(highest.high), float(max(gaps)))


def _return_range(claim: Claim) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest return: by the rewards, and by what is declared."""
    low, high = (Fraction(reward) * claim.horizon for reward in claim.reward_range)
    if claim.return_range is None:
        return low, high
    least, most = (Fraction(end) for end in claim.return_range)
    room = Fraction(claim.return_room)
    return max(low, least - room), min(high, most + room)
