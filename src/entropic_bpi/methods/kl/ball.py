r"""The largest and smallest mean of a function over a Kullback-Leibler ball around an empirical distribution.

For possible values :math:`f` on a finite set, an empirical distribution :math:`\hat p` on it and a radius
:math:`x\ge 0`, with :math:`M=\max f` over *all* possible values, seen or not,

.. math:: \max\{q f : \mathrm{KL}(\hat p, q)\le x\} = \min_{\nu\ge M}\ \nu - \exp\Big(\sum_i \hat p_i\log(\nu-f_i) - x\Big).

By Jensen's inequality **every** :math:`\nu` gives a valid bound, so a solver that stops early is conservative, never
wrong. With :math:`D = M-\min_{\hat p>0} f`, :math:`d=(M-f)/D` and :math:`\nu = M + Dw` the bound reads

.. math:: M - D\,w\,\operatorname{expm1}\Big(\sum \hat p\,\operatorname{log1p}(d/w) - x\Big),

and the best :math:`w` solves :math:`F(w)=x` for the decreasing
:math:`F(w) = \sum\hat p\operatorname{log1p}(d/w) + \operatorname{log1p}(-\sum\hat p\,\tfrac{d/w}{1+d/w})`.
:math:`1/\sqrt F` is nearly linear in :math:`w`, so Newton's method on it takes two or three steps. The minimum is minus
the maximum of :math:`-f`.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.compile.decorators import compiled

# Past this radius the ball is the whole simplex for all that doubles can tell.
WHOLE_SIMPLEX = 60.0
# |sqrt(F/x) - 1| at which to stop: the bound's error is of second order in it, below 1e-5 of the interval.
TOLERANCE = 6e-3
MAX_ITERATIONS = 60
SMALLEST_W = 1e-130
# Rounding, always taken on the safe side: of each term of a sum of logarithms, and of a value, relative.
TERM_ROUNDING = 2.3e-16
VALUE_ROUNDING = 1e-15


@compiled
def _start(p: np.ndarray, d: np.ndarray, size: int, x: float, top: float, mean: float) -> float:
    """A first w: the small-radius expansion, or where that is small the larger of it and the small-w asymptote."""
    second, third = top * mean * mean, top * mean * mean * mean
    nearest = np.inf
    for i in range(size):
        deviation = d[i] - mean
        square = p[i] * deviation * deviation
        second += square
        third -= square * deviation
        nearest = min(nearest, d[i])
    w = math.sqrt(second / (2.0 * x)) + 2.0 * third / (3.0 * second) - mean
    if w > 0.3:
        return w
    if top == 0.0:
        return max(w, 0.1 * nearest)
    logs = math.log(top) - x
    for i in range(size):
        if d[i] < 1.0:
            logs += p[i] * math.log(d[i])
    return max(w, math.exp(logs / (1.0 - top)), SMALLEST_W)


@compiled
def _depth(
    p: np.ndarray, d: np.ndarray, size: int, x: float, top: float, mean: float, tolerance: float, guess: float
) -> tuple[float, float]:
    """How far below the top the extreme mean is, in units of D: the maximum of w expm1(Σ p log1p(d/w) - x); and that w.

    ``p`` and ``d`` list the seen values below the top; ``top`` is the mass at the top. Any w gives a depth that is safe.
    """
    if top == 0.0:
        logs = inverse = 0.0
        for i in range(size):
            logs += p[i] * math.log(d[i])
            inverse += p[i] / d[i]
        if logs + math.log(inverse) <= x:
            return math.exp(logs - x) * (1.0 - (size + 4) * TERM_ROUNDING * (1.0 + x - logs)), 0.0
    w = guess if guess > 0.0 else _start(p, d, size, x, top, mean)
    low, high = 0.0, np.inf
    for iteration in range(MAX_ITERATIONS):
        logs = loss = square = 0.0
        rest = top
        inverse = 1.0 / w
        for i in range(size):
            ratio = d[i] * inverse
            raised = 1.0 + ratio
            remainder = 1.0 / raised
            share = ratio * remainder
            # log1p(ratio), faster than the library's: the second term is what 1 + ratio has lost
            logs += p[i] * (math.log(raised) + (ratio - (raised - 1.0)) * remainder)
            loss += p[i] * share
            rest += p[i] * remainder
            square += p[i] * share * share
        if loss < 0.5:
            left = 1.0 - loss
            big_f = logs + math.log(left) - (loss - (1.0 - left)) / left
        else:
            big_f = logs + math.log(rest)
        root = math.sqrt(max(big_f, 0.0) / x)
        if not abs(root - 1.0) >= tolerance:
            break
        if root > 1.0:
            low = w
        else:
            high = w
        # w F'(w) is minus the variance over the mean of 1/(1 + d/w)
        slope = -(square - loss * loss) / rest
        step = w + 2.0 * big_f * (1.0 - root) * w / slope if slope < 0.0 else np.inf
        if not (low < step < high):
            step = 0.1 * w if low == 0.0 else 0.5 * (low + high) if high < np.inf else 4.0 * w
        if not (SMALLEST_W <= step < 1e130) or iteration == MAX_ITERATIONS - 1:
            break
        w = step
    depth = w * math.expm1(logs - x)
    return max(0.0, depth - (size + 4) * TERM_ROUNDING * (depth + (depth + w) * logs)), w


@compiled
def kl_extreme(
    tally: np.ndarray, f: np.ndarray, size: int, n: int, x: float, sign: float, tolerance: float, scratch: np.ndarray
) -> float:
    """Bound on the largest (``sign`` 1) or smallest (``sign`` -1) mean of ``f`` over the ball; never too tight.

    If a value is not finite, neither is the bound: it is infinite, on the safe side.

    Parameters
    ----------
    tally : int array
        Observations of each possible value, zeros for those possible but unseen; ``n`` is their sum.
    f : float array
        The values; only the first ``size`` entries of ``tally`` and ``f`` count.
    x : float
        Radius of the ball ``KL(tally / n, q) <= x``; ``n = 0`` means no information.
    scratch : float array ``(2, at least size)``
    """
    return kl_extremum(tally, f, size, n, x, sign, tolerance, scratch, 0.0)[0]


@compiled
def kl_extremum(
    tally: np.ndarray,
    f: np.ndarray,
    size: int,
    n: int,
    x: float,
    sign: float,
    tolerance: float,
    scratch: np.ndarray,
    guess: float,
) -> tuple[float, float, float]:
    """The bound of :func:`kl_extreme`, the ν that gives it, and its w, which is a good ``guess`` for similar values.

    ν is infinite where the bound is the mean, or where it says nothing. With ``sign`` -1 it belongs to ``-f``. Underflow is
    safe: it lowers the depths, and with them what is subtracted from the largest value.
    """  # fmt: skip
    top_value, seen_low, total, sum_of_all = -np.inf, np.inf, 0.0, 0.0
    for i in range(size):
        g = sign * f[i]
        sum_of_all += g
        top_value = max(top_value, g)
        if tally[i] > 0:
            seen_low = min(seen_low, g)
            total += tally[i] * g
    if not abs(sum_of_all) < np.inf:  # max and min pass over a NaN in silence
        return sign * np.inf, np.inf, 0.0
    width = top_value - seen_low
    if n == 0 or size == 1 or not x < WHOLE_SIMPLEX or not width > 0.0:
        return sign * top_value, np.inf, 0.0
    average, rounding = total / n, VALUE_ROUNDING * (abs(top_value) + abs(seen_low))
    if x <= 0.0:
        return sign * min(top_value, average + rounding), np.inf, 0.0
    p, d = scratch[0], scratch[1]
    seen, top, mean, share = 0, 0.0, 0.0, 1.0 / n
    for i in range(size):
        if tally[i] > 0:
            depth = (top_value - sign * f[i]) / width
            if depth == 0.0:
                top += share * tally[i]
            else:
                p[seen], d[seen] = share * tally[i], depth
                mean += p[seen] * depth
                seen += 1
    deep, w = _depth(p, d, seen, x, top, mean, tolerance, guess)
    value = top_value - width * deep
    value += VALUE_ROUNDING * abs(value)
    best = max(value, average) if value < top_value else top_value
    return sign * best, top_value + width * w, w
