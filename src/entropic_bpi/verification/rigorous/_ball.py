"""Ball arithmetic, and the largest mean over a KL ball.

Numbers that are kept are exact: an upper bound is replaced by the upper end of its enclosure, a lower bound by the lower
end.
"""

import math
from collections.abc import Sequence

import numpy as np
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
    shares = np.array([counts[i] / n for i in seen])
    w = arb(_multiplier(shares, np.array([max(0.0, float(d)) for d in depths]), float(radius)))
    if w > 0:
        logs = sum((counts[i] * (d / w).log1p() for i, d in zip(seen, depths, strict=True)), arb(0)) / n
        bound = upper(top - depth * w * (logs - radius).expm1())
    else:
        logs = sum((counts[i] * d.log() for i, d in zip(seen, depths, strict=True)), arb(0)) / n
        bound = upper(top - depth * (logs - radius).exp())
    return bound if bound < top else top


def lowest_mean(counts: Sequence[int], radius: arb | None, f: Sequence[arb]) -> arb:
    return -highest_mean(counts, radius, [-value for value in f])


@np.errstate(all="ignore")
def _multiplier(p: np.ndarray, d: np.ndarray, x: float) -> float:
    """Return roughly the best w ≥ 0 for shares p of depths d in [0, 1]; any w is safe.

    It is the root of F(w) = x with F(w) = Σ p log(1 + d/w) + log Σ p/(1 + d/w), which decreases, or 0 if F stays below x.
    Newton's method finds log w, on the logarithm of F; the middle of what is left is taken where a step leads out of it.
    """
    if d.all() and p @ np.log(d) + math.log(p @ (1.0 / d)) <= x:
        return 0.0
    variance = float(p @ (d - p @ d) ** 2)
    left, right = -340.0, 70.0
    t = min(max(math.log(max(variance, 1e-300) / (2.0 * x)) / 2.0, -300.0), 60.0)
    for _ in range(60):
        ratios = d * math.exp(-t)
        parts, rests = ratios / (1.0 + ratios), 1.0 / (1.0 + ratios)
        loss, rest, logs = float(p @ parts), float(p @ rests), float(p @ np.log1p(ratios))
        small = loss < 0.5  # as differences of 1 the smaller ones of both would lose their digits
        value = logs + (math.log1p(-loss) if small else math.log(rest))
        slope = -float(p @ (parts - loss if small else rests - rest) ** 2) / rest
        left, right = (t, right) if value > x else (left, t)
        before, t = t, t - math.log(value / x) * value / slope if value > 0.0 > slope else math.inf
        if not left < t < right:
            t = (left + right) / 2.0
        if abs(t - before) < 1e-9:
            break
    return math.exp(t)


@np.errstate(all="ignore")
def largest_average(counts: Sequence[int], radius: arb, rho: Sequence[arb], low: list[arb], high: list[arb]) -> float:
    """Return roughly the largest average of ρ ≥ 1 under laws of the ball and weights in boxes, by Dinkelbach's method."""
    unit, x, level = max(high), float(radius), 1.0
    seen, p = np.array(counts) > 0, np.array(counts) / sum(counts)
    values, least, most = (np.array([float(a / b) for a in part]) for part, b in ((rho, 1), (low, unit), (high, unit)))
    for _ in range(60):
        weights = np.where(values > level, most, least)
        excess = (values - level) * weights
        depths, q = (excess.max() - excess)[seen], np.zeros(len(p))
        if (depth := depths.max()) > 0.0:  # the law of the ball with the largest mean excess
            w = _multiplier(p[seen], depths / depth, x)
            distances = depths / depth + w
            q[seen] = p[seen] / distances * math.exp(p[seen] @ np.log(distances) - x)
        q[excess.argmax()] += max(0.0, 1.0 - q.sum())
        higher = (q * weights) @ values / (q @ weights)
        if not higher > level * (1.0 + 4e-16):
            break
        level = float(higher)
    return level
