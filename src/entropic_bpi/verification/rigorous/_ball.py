"""Ball arithmetic, and the largest mean over a KL ball.

Numbers that are kept are exact: an upper bound is replaced by the upper end of its enclosure, a lower bound by the lower
end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flint import arb

PRECISION = 160  # bits
ONE = arb(1)


def upper(x: arb) -> arb:
    """Return the upper end of an enclosure; infinity if there is none."""
    return x.upper() if x.is_finite() else arb("inf")


def lower(x: arb) -> arb:
    return -upper(-x)


def float_above(x: arb) -> float:
    """Return the smallest float that is certainly not below ``x``, or one close to it."""
    nearest = float(x.upper())
    while not arb(nearest) >= x and nearest < math.inf:
        nearest = math.nextafter(nearest, math.inf)
    return nearest


def float_below(x: arb) -> float:
    return -float_above(-x)


def highest_mean(counts: Sequence[int], radius: arb | None, f: Sequence[arb]) -> arb:
    """Return a number that no mean of ``f`` over the ball exceeds (``bound_ok`` in Dual.v).

    Every multiplier w gives such a number. Floats find a good one; its number is then enclosed.
    """
    top, n = max(f), sum(counts)
    seen = [i for i, count in enumerate(counts) if count]
    if radius is None or not seen:
        return top
    depth = max(top - f[i] for i in seen)
    if not depth > 0:
        return top
    depths = [(top - f[i]) / depth for i in seen]
    w = arb(multiplier([counts[i] / n for i in seen], [max(0.0, float(d)) for d in depths], float(radius)))
    if w > 0:
        logs = sum((counts[i] * (d / w).log1p() for i, d in zip(seen, depths, strict=True)), arb(0)) / n
        bound = upper(top - depth * w * (logs - radius).expm1())
    else:
        logs = sum((counts[i] * d.log() for i, d in zip(seen, depths, strict=True)), arb(0)) / n
        bound = upper(top - depth * (logs - radius).exp())
    return bound if bound < top else top


def lowest_mean(counts: Sequence[int], radius: arb | None, f: Sequence[arb]) -> arb:
    return -highest_mean(counts, radius, [-value for value in f])


def multiplier(shares: list[float], depths: list[float], x: float) -> float:
    """Return roughly the best w ≥ 0 for depths in [0, 1]; any w is safe.

    It is the root of F(w) = x with F(w) = Σ p log(1 + d/w) + log Σ p/(1 + d/w), which decreases, or 0 if F stays below x.
    """
    if all(depths):
        logs = sum(p * math.log(d) for p, d in zip(shares, depths, strict=True))
        if logs + math.log(sum(p / d for p, d in zip(shares, depths, strict=True))) <= x:
            return 0.0

    def excess(t: float) -> float:
        ratios = [d * math.exp(-t) for d in depths]
        logs = sum(p * math.log1p(r) for p, r in zip(shares, ratios, strict=True))
        loss = sum(p * r / (1.0 + r) for p, r in zip(shares, ratios, strict=True))
        rest = sum(p / (1.0 + r) for p, r in zip(shares, ratios, strict=True))
        value = logs + (math.log1p(-loss) if loss < 0.5 else math.log(rest))
        return math.log(max(value, 1e-300) / x)

    mean = sum(p * d for p, d in zip(shares, depths, strict=True))
    variance = sum(p * (d - mean) ** 2 for p, d in zip(shares, depths, strict=True))
    t = min(max(math.log(max(variance, 1e-300) / (2.0 * x)) / 2.0, -300.0), 60.0)
    return math.exp(_falling_root(excess, t))


def _falling_root(f: Callable[[float], float], t: float) -> float:
    """Return about where a falling function is 0, by brackets and chords (Illinois); the end of the search if nowhere."""
    left = right = t
    at_left = at_right = f(t)
    width = 1.0
    while at_left < 0.0 and left > -340.0:
        right, at_right = left, at_left
        left = max(left - width, -340.0)
        at_left, width = f(left), 2.0 * width
    while at_right > 0.0 and right < 70.0:
        left, at_left = right, at_right
        right = min(right + width, 70.0)
        at_right, width = f(right), 2.0 * width
    for _ in range(60):
        if not (at_left > 0.0 > at_right and right - left > 1e-11):
            break
        t = left + (right - left) * at_left / (at_left - at_right)
        value = f(t)
        if abs(value) < 1e-13:
            return t
        if value > 0.0:
            left, at_left, at_right = t, value, at_right / 2.0
        else:
            right, at_right, at_left = t, value, at_left / 2.0
    return left if abs(at_left) < abs(at_right) else right


def tilted_law(counts: Sequence[int], radius: arb | None, f: Sequence[float]) -> list[float]:
    """Return roughly the law of the ball with the largest mean of ``f``."""
    top, n = max(f), sum(counts)
    seen = [i for i, count in enumerate(counts) if count]
    q = [0.0] * len(f)
    depth = max((top - f[i] for i in seen), default=0.0)
    if radius is not None and depth > 0.0:
        shares, depths = [counts[i] / n for i in seen], [(top - f[i]) / depth for i in seen]
        w = multiplier(shares, depths, float(radius))
        logs = sum(p * math.log(d + w) for p, d in zip(shares, depths, strict=True)) - float(radius)
        for i, p, d in zip(seen, shares, depths, strict=True):
            q[i] = p / (d + w) * math.exp(logs)
    q[f.index(top)] += max(0.0, 1.0 - sum(q))
    return q
