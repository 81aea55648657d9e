r"""The largest and smallest mean of a function over a Kullback-Leibler ball around an empirical distribution.

For possible values :math:`f` on a finite set, an empirical distribution :math:`\hat p` on it and a radius
:math:`x\ge 0`, with :math:`M=\max f` over *all* possible values, seen or not,

.. math:: \max\{q f : \mathrm{KL}(\hat p, q)\le x\} = \min_{\nu\ge M}\ \nu - \exp\Big(\sum_i \hat p_i\log(\nu-f_i) - x\Big).

By Jensen's inequality **every** :math:`\nu` gives a valid bound (page "The KL method", "The inner problem"), so a solver
that stops early is conservative, never wrong. With :math:`D = M-\min_{\hat p>0} f`, :math:`d=(M-f)/D` and
:math:`\nu = M + Dw` the bound reads

.. math:: M - D\,w\,\operatorname{expm1}\Big(\sum \hat p\,\operatorname{log1p}(d/w) - x\Big),

and the best :math:`w` solves :math:`F(w)=x` for the decreasing
:math:`F(w) = \sum\hat p\operatorname{log1p}(d/w) + \operatorname{log1p}(-\sum\hat p\,\tfrac{d/w}{1+d/w})`.
:math:`1/\sqrt F` is nearly linear in :math:`w`, so Newton's method on it takes two or three steps. The minimum is minus
the maximum of :math:`-f`.

**Ball and box.** Where the probabilities are also known to lie between :math:`l` and :math:`u`, every :math:`\mu` gives a
bound, :math:`\sum_j\max(\mu_ju_j,\mu_jl_j)+\max_{ball}q(f-\mu)`, by weak duality (``boxed_extreme``). Cutting off
the optimum of the ball at the box would not.
"""

import math

import numpy as np

from entropic_bpi.compile.decorators import compiled
from entropic_bpi.types import Integers, Reals

# From this radius on, the ball is the whole simplex up to the precision of doubles.
WHOLE_SIMPLEX = 60.0
# |sqrt(F/x) - 1| at which to stop: the bound's error is of second order in it, below 1e-5 of the interval.
TOLERANCE = 6e-3
MAX_ITERATIONS = 60
SMALLEST_W = 1e-130
# Relative rounding errors, always taken on the safe side: of each term of a sum of logarithms, and of a value.
TERM_ROUNDING = 2.3e-16
VALUE_ROUNDING = 1e-15
# Rows with at most so many possible values may have boxes. An optimum that violates a box by at most this is inside.
MOST_LABELS = 4
INSIDE = 1e-12


@compiled
def _start(p: Reals, d: Reals, size: int, x: float, top: float, mean: float) -> float:
    """Return a first w: the small-radius expansion or, if that is small, the larger of it and the small-w asymptote."""
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
    p: Reals, d: Reals, size: int, x: float, top: float, mean: float, tolerance: float, guess: float
) -> tuple[float, float]:
    """Return how far below the top the extreme mean is, in units of D: the largest w expm1(Σ p log1p(d/w) - x); and that w.

    ``p`` and ``d`` list the seen values below the top; ``top`` is the mass at the top. Any w gives a valid depth.
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
            # log1p(ratio), faster than the library's: the second term corrects the rounding of 1 + ratio
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
    tally: Integers, f: Reals, size: int, n: int, x: float, sign: float, tolerance: float, scratch: Reals
) -> float:
    """Return a bound on the largest (``sign`` 1) or smallest (-1) mean of ``f`` over the ball; it is never too tight.

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
    tally: Integers, f: Reals, size: int, n: float, x: float, sign: float, tolerance: float, work: Reals, guess: float
) -> tuple[float, float, float]:
    """Return the bound of :func:`kl_extreme`, the ν that gives it, and its w, a good ``guess`` for similar values.

    ν is infinite if the bound is the mean, or trivial. With ``sign`` -1 it belongs to ``-f``. Underflow is safe: it lowers
    the depths, and with them what is subtracted from the largest value.
    """  # fmt: skip
    top_value, seen_low, total, sum_of_all = -np.inf, np.inf, 0.0, 0.0
    for i in range(size):
        g = sign * f[i]
        sum_of_all += g
        top_value = max(top_value, g)
        if tally[i] > 0:
            seen_low = min(seen_low, g)
            total += tally[i] * g
    if not abs(sum_of_all) < np.inf:  # max and min ignore a NaN
        return sign * np.inf, np.inf, 0.0
    width = top_value - seen_low
    if n == 0 or size == 1 or not x < WHOLE_SIMPLEX or not width > 0.0:
        return sign * top_value, np.inf, 0.0
    average, rounding = total / n, VALUE_ROUNDING * (abs(top_value) + abs(seen_low))
    if x <= 0.0:
        return sign * min(top_value, average + rounding), np.inf, 0.0
    p, d = work[0], work[1]
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


@compiled
def _box_extreme(f: Reals, size: int, box: Reals, sign: float, scratch: Reals) -> float:
    """Return a bound on the largest mean of ``sign * f`` over the box alone, and write its q to ``scratch[6]``.

    For every ν the mean is at most ν + Σ max((f - ν) high, (f - ν) low), which is smallest at one of the values.
    """
    best, low, high = np.inf, box[0], box[1]
    for i in range(size):
        nu = sign * f[i]
        value, rounding, rest = nu, abs(nu), 1.0
        for j in range(size):
            above = sign * f[j] - nu
            value += above * (high[j] if above > 0.0 else low[j])
            rounding += abs(above) * high[j]
        value += 4.0 * VALUE_ROUNDING * rounding
        if value < best:
            best = value
            for j in range(size):
                scratch[6, j] = high[j] if sign * f[j] > nu else low[j]
                rest -= scratch[6, j]
            scratch[6, i] += rest
    return best


@compiled
def _dual_extreme(
    tally: Integers, f: Reals, size: int, n: int, x: float, box: Reals, sign: float, tolerance: float, scratch: Reals
) -> float:
    """Return a bound on the largest mean of ``sign * f`` over ball and box, by a good μ, and write its q to ``scratch[6]``.

    The probability that violates the box most is fixed at its end there, and the optimum of the others computed again, until
    none violates it. Then μ makes these ends optimal. The bound holds for any μ (page "Boxes", "Ball and box").
    """
    low, high, q, g, seen, values = box[0], box[1], scratch[6], scratch[7], scratch[8], scratch[9]
    fixed = raised = 0
    nu = lam = plain = np.inf
    for _ in range(size):
        mass, room, visits, free = 1.0, x, 0.0, 0
        for j in range(size):
            if fixed >> j & 1:
                q[j] = high[j] if raised >> j & 1 else low[j]
                mass -= q[j]
                if tally[j] > 0:
                    room -= tally[j] / n * math.log(tally[j] / n / q[j]) if q[j] > 0.0 else np.inf
            else:
                seen[free], values[free] = tally[j], sign * f[j]
                visits += tally[j]
                free += 1
        if not mass > 0.0 or visits == 0.0:
            break
        share = visits / n
        value, new, _ = kl_extremum(
            seen, values, free, visits, room / share - math.log(share / mass), 1.0, tolerance, scratch, 0.0
        )
        plain = value if fixed == 0 else plain
        if not new < np.inf:
            break
        nu, lam = new, mass * (new - value) / share
        worst, chosen, top, rest = INSIDE, -1, -1, mass
        for j in range(size):
            if not fixed >> j & 1:
                below = nu - sign * f[j]
                q[j] = tally[j] / n * lam / below if tally[j] > 0 and below > 0.0 else 0.0
                rest -= q[j]
                if top < 0 or sign * f[j] > sign * f[top]:
                    top = j
        q[top] += max(rest, 0.0)
        for j in range(size):
            apart = max(q[j] - high[j], low[j] - q[j])
            if not fixed >> j & 1 and apart > worst:
                worst, chosen = apart, j
        if chosen < 0:
            break
        fixed |= 1 << chosen
        if q[chosen] > high[chosen]:
            raised |= 1 << chosen
    if fixed == 0 or not lam < np.inf:
        return plain
    total = rounding = 0.0
    for j in range(size):
        value = sign * f[j]
        g[j] = value
        if fixed >> j & 1:
            g[j] = nu - (tally[j] / n * lam / q[j] if tally[j] > 0 else 0.0)
        total += max((value - g[j]) * high[j], (value - g[j]) * low[j])
        rounding += abs(value) + abs(g[j])
    total += kl_extremum(tally, g, size, n, x, 1.0, tolerance, scratch, 0.0)[0] + 8.0 * VALUE_ROUNDING * rounding
    return total if total < plain else plain


@compiled
def boxed_extreme(
    tally: Integers, f: Reals, size: int, n: int, x: float, box: Reals, sign: float, tolerance: float, scratch: Reals
) -> float:
    """Return the bound of :func:`kl_extreme` over the part of the ball where the probabilities lie in ``box`` ``(2, ..)``.

    With two possible values the box is assumed to lie inside the ball, so the bound of the box is exact. Row 6 of
    ``scratch`` ``(10, ..)`` becomes a q that about attains the bound; rows 2 to 5 are not changed.
    """
    total = 0.0
    for i in range(size):
        total += f[i]
    if not abs(total) < np.inf:
        return sign * np.inf
    best = _box_extreme(f, size, box, sign, scratch)
    if size == 2 or n == 0 or not x < WHOLE_SIMPLEX:
        return sign * best
    inside = _dual_extreme(tally, f, size, n, x, box, sign, tolerance, scratch)
    best = inside if inside < best else _box_extreme(f, size, box, sign, scratch)
    return sign * best
