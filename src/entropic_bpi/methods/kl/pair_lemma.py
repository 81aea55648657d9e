"""The lemma of the pair certificate: the value of one row over that of another; see :mod:`entropic_bpi.methods.kl.pairs`."""

import math

import numpy as np

from entropic_bpi.compile.decorators import inlined, inner
from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.methods.kl.gap import keep_largest
from entropic_bpi.methods.kl.records import PairBuffers, PairNoise, PairRows, PairScratch
from entropic_bpi.types import Reals

# Rounding of one bound, relative; more than what sums of a few hundred terms and exponents up to 600 can lose.
ROUNDING = 1e-12
# A coupling that leaves less than this is none.
SMALLEST_SPARE = 1e-12
# Means below this may have lost digits.
SMALLEST_MEAN = 1e-280
# How far the search for the ratio of rows with common noise goes, and how long at most.
COARSE, FINE, FINE_BALLS, LONGEST_SEARCH = 1e-4, 1e-13, 1e-6, 60
# Positive terms below this may have lost digits, and are raised to it.
SMALLEST_TERM = 1e-290
# Successors whose relative value is known to this precision need no corner of their own.
KNOWN = 1e-9


@inner
def _reference(rows: PairRows, other: int, base: int, scratch: PairScratch) -> int:
    """The shared successor with the largest smaller frequency, otherwise the base's most frequent; the lowest of ties.

    By the counts alone, so that whoever checks the certificate chooses the same.
    """
    best, score = -1, 0.0
    for i in range(rows.different[other]):
        k = scratch.known[rows.position[other, i]]
        if k >= 0:
            smaller = min(rows.seen[other, i] * rows.visits[base], rows.seen[base, k] * rows.visits[other])
            if smaller > score or (
                smaller == score and best >= 0 and rows.position[base, k] < rows.position[base, best]
            ):
                best, score = k, smaller
    return best if best >= 0 else most_frequent(rows, base)


@inner
def most_frequent(rows: PairRows, row: int) -> int:
    best = 0
    for k in range(1, rows.different[row]):
        more = rows.seen[row, k] - rows.seen[row, best]
        if more > 0.0 or (more == 0.0 and rows.position[row, k] < rows.position[row, best]):
            best = k
    return best


@inner
def _enumerate(rows: PairRows, base: int, ref: int, d: Reals, scratch: PairScratch) -> int:
    """The boxes of the base's successors relative to the reference, and which of them get corners; how many.

    Underflow is safe: only the lower end of a box can be 0.
    """
    r, count = rows.position[base, ref], 0
    for k in range(rows.different[base]):
        p = rows.position[base, k]
        scratch.rank[k] = -1
        scratch.low[k] = 1.0 if k == ref else 1.0 / d[r, p]
        scratch.high[k] = 1.0 if k == ref else d[p, r]
        if scratch.high[k] > scratch.low[k] * (1.0 + KNOWN):
            count = keep_largest(scratch.chosen, scratch.scores, count, p, rows.seen[base, k])
    for c in range(count):
        scratch.chosen[c] = scratch.known[scratch.chosen[c]]
        scratch.rank[scratch.chosen[c]] = c
    return count


@inner
def _tilt(rows: PairRows, row: int, upper: bool, r: int, d: Reals, mass: Reals) -> bool:
    """Shares of a row's successors, weighed by e^{βr} and the middle of what is known of their value, that add up to 1.

    Underflow is safe: any shares would do.
    """
    total = 0.0
    mass[: rows.different[row]] = 0.0
    for i in range(rows.used[row]):
        k = rows.number[row, i]
        p = rows.position[row, k]
        part = rows.high[row, i] if upper else rows.low[row, i]
        part *= rows.tally[row, i] if rows.visits[row] > 0 else 1.0
        if p != r:
            part *= math.sqrt(d[p, r] / d[r, p])
        mass[k] += part
        total += part
    for k in range(rows.different[row]):
        mass[k] /= total
    return 0.0 < total < np.inf


@inner
def _couple(rows: PairRows, other: int, base: int, ref: int, d: Reals, scratch: PairScratch) -> float:
    """Prepare the coupling of the tilted laws: how much of the base has no counterpart; 0 if there is no coupling."""
    r, positive, spare = rows.position[base, ref], rows.sign > 0, 0.0
    mass, left = scratch.mass, scratch.left
    if not _tilt(rows, other, positive, r, d, mass[0]) or not _tilt(rows, base, not positive, r, d, mass[1]):
        return 0.0
    for k in range(rows.different[base]):
        left[k] = mass[1, k]
    for i in range(rows.different[other]):
        k = scratch.known[rows.position[other, i]]
        if k >= 0:
            left[k] = max(0.0, left[k] - mass[0, i])
    for k in range(rows.different[base]):
        spare += left[k]
    return spare if spare > SMALLEST_SPARE else 0.0


@inner
def _move(
    rows: PairRows, other: int, base: int, ref: int, table: Reals, spare: float, rule: int, scratch: PairScratch
) -> None:
    """Value the other row's successors by moving them onto the base's: each to itself (``rule`` 0), or by the coupling.

    Underflow is safe: what a product loses or gains is less than a change of κ by 1e-15 would make.
    """
    moved, positive = scratch.moved[rule], rows.sign > 0
    for i in range(rows.different[other]):
        p = rows.position[other, i]
        own = scratch.known[p]
        kept = 1.0
        if rule == 1 and scratch.mass[0, i] > 0.0:
            kept = 0.0 if own < 0 else min(1.0, scratch.mass[1, own] / scratch.mass[0, i])
        for c in range(4):
            moved[c, i] = 0.0
        for k in range(rows.different[base]):
            part = kept if k == (own if own >= 0 else ref) else 0.0
            if kept < 1.0:
                part += (1.0 - kept) * scratch.left[k] / spare
            if part > 0.0:
                q = rows.position[base, k]
                part *= table[p, q] if positive else 1.0 / table[q, p]
                if scratch.rank[k] >= 0:
                    moved[1 + scratch.rank[k], i] += part
                else:
                    moved[0, i] += part * (scratch.high[k] if positive else scratch.low[k])


@inner
def _extreme(rows: PairRows, row: int, f: Reals, sign: float, scratch: PairScratch) -> float:
    n, x = rows.visits[row], rows.radius[row]
    return kl_extreme(rows.tally[row], f, rows.used[row], n, x, sign, rows.tolerance, scratch.work)


@inner
def _corner_ratio(
    rows: PairRows, other: int, base: int, corner: int, count: int, rule: int, below: float, scratch: PairScratch
) -> float:
    """The ratio at one corner by one rule; ``below`` is the extreme of the base there.

    Underflow is safe: a mean that may have lost digits to it gives infinity.
    """
    f, positive, moved = scratch.f[0], rows.sign > 0, scratch.moved[rule]
    for i in range(rows.used[other]):
        k = rows.number[other, i]
        value = moved[0, k]
        for c in range(count):
            b = scratch.chosen[c]
            value += moved[1 + c, k] * (scratch.high[b] if corner >> c & 1 == 1 else scratch.low[b])
        f[i] = value * (rows.high[other, i] if positive else rows.low[other, i])
    above = _extreme(rows, other, f, rows.sign, scratch)
    top, bottom = (above, below) if positive else (below, above)
    if SMALLEST_MEAN < top < np.inf and bottom > SMALLEST_MEAN:
        return top / bottom * (1.0 + ROUNDING)
    return np.inf


@inner
def _worst_corner(
    rows: PairRows, other: int, base: int, count: int, rules: int, limit: float, scratch: PairScratch
) -> float:
    """The largest ratio over the corners by the better of the ``rules`` (1 or 2); ``limit`` if both reach it."""
    f, positive = scratch.f[1], rows.sign > 0
    worst, second = 0.0, 0.0 if rules == 2 else np.inf
    for corner in range(1 << count):
        for i in range(rows.used[base]):
            k = rows.number[base, i]
            raised = not positive if scratch.rank[k] < 0 else corner >> scratch.rank[k] & 1 == 1
            f[i] = (scratch.high[k] if raised else scratch.low[k]) * (
                rows.low[base, i] if positive else rows.high[base, i]
            )
        below = _extreme(rows, base, f, -rows.sign, scratch)
        for rule in range(rules):
            if (second if rule == 1 else worst) < limit:
                ratio = _corner_ratio(rows, other, base, corner, count, rule, below, scratch)
                ratio = ratio if ratio < limit else limit
                if rule == 1:
                    second = max(second, ratio)
                else:
                    worst = max(worst, ratio)
        if not min(worst, second) < limit:
            return limit
    return min(worst, second)


@inner
def _noise_excess(rows: PairRows, row: int, lam: float, scratch: PairScratch) -> float:
    """Bound on max_q Σ q (gain - λ cost) z, each z at the worse end of its box: these four are ``scratch.moved[0]``."""
    f, terms = scratch.f[0], scratch.moved[0]
    for j in range(rows.used[row]):
        part = terms[0, j] - lam * terms[1, j]
        f[j] = part * terms[2, j] if part <= 0.0 else max(part * terms[3, j], SMALLEST_TERM)
    return _extreme(rows, row, f, 1.0, scratch)


@inner
def _common_noise(noise: PairNoise, buffers: PairBuffers, top: int, bottom: int, table: Reals, limit: float) -> float:
    """The lemma for rows with one law, whose classes lie in each other: one ball, no corners; at most ``limit``."""
    rows, scratch, d = buffers.rows, buffers.scratch, buffers.next.d
    over, under, positive = rows.pair[top], rows.pair[bottom], rows.sign > 0
    if max(over, under) >= noise.of_pair.size:
        return limit
    is_finer = noise.refines[noise.of_pair[over], noise.of_pair[under]]
    if not is_finer and not noise.refines[noise.of_pair[under], noise.of_pair[over]]:
        return limit
    row, base = top if is_finer else bottom, bottom if positive else top
    gain, cost, low, high = scratch.moved[0, 0], scratch.moved[0, 1], scratch.moved[0, 2], scratch.moved[0, 3]
    often, ref = -1, 0
    for j in range(rows.used[row]):
        if rows.tally[row, j] > often:
            often, label = rows.tally[row, j], noise.label_of_slot[rows.pair[row], j]
            ref = rows.position[base, rows.number[base, noise.slot_of_label[rows.pair[base], label]]]
    least, most, unit = np.inf, 0.0, 0.0
    for j in range(rows.used[row]):
        label = noise.label_of_slot[rows.pair[row], j]
        i, k = noise.slot_of_label[over, label], noise.slot_of_label[under, label]
        n, m = rows.position[top, rows.number[top, i]], rows.position[bottom, rows.number[bottom, k]]
        gain[j], cost[j] = rows.high[top, i], rows.low[bottom, k]
        if positive:
            gain[j] *= table[n, m]
        else:
            cost[j] /= table[n, m]
        y = m if positive else n
        low[j], high[j] = (1.0, 1.0) if y == ref else (1.0 / d[ref, y], d[y, ref])
        ratio = gain[j] / cost[j] if cost[j] > 0.0 else np.inf
        if not ratio < np.inf:  # 0 * inf, where a weight underflows, is NaN
            ratio = np.inf
        least, most, unit = min(least, ratio), max(most, ratio), max(unit, cost[j])
    right = min(most * (1.0 + ROUNDING), limit)
    if not (0.0 < unit < np.inf and least < right < np.inf):
        return right if right < limit else limit
    for j in range(rows.used[row]):  # only quotients matter
        gain[j], cost[j] = gain[j] / unit, cost[j] / unit
    left, value = least, _noise_excess(rows, row, least, scratch)
    if value <= 0.0:
        return min(left * (1.0 + ROUNDING), limit)
    below = _noise_excess(rows, row, right, scratch)
    if not below <= 0.0:
        return right
    # Convex and decreasing in λ: a chord's root is on the safe side, that of the line through two safe points is not.
    before, before_value = right, below
    close = FINE if rows.tolerance < FINE_BALLS else COARSE
    for iteration in range(LONGEST_SEARCH):
        if not value > 0.0 or right - left <= close * abs(right - 1.0):
            break
        if iteration % 2 == 0 or before == right:
            lam = left + (right - left) * min(max(value / (value - below), 1e-3), 0.999)
        else:
            lam = right - below * (before - right) / (before_value - below)
        if iteration % 6 == 5 or not left < lam < right:
            lam = 0.5 * (left + right)
        further = _noise_excess(rows, row, lam, scratch)
        if further <= 0.0:
            before, before_value, right, below = right, below, lam, further
        else:
            left, value = lam, further
    return min(right * (1.0 + ROUNDING), limit)


@inlined
def _limit_by_noise(noise: PairNoise, buffers: PairBuffers, top: int, bottom: int, table: Reals, limit: float) -> float:
    # Numba compiles a branch on the length of a tuple only where it is taken.
    if len(noise) > 0:
        return _common_noise(noise, buffers, top, bottom, table, limit)
    return limit


@inner
def compare_rows(buffers: PairBuffers, top: int, bottom: int, table: Reals, limit: float) -> float:
    """The lemma: the value of one row over that of another, ``table`` being d or R of the next step; at most ``limit``."""
    rows, scratch, d = buffers.rows, buffers.scratch, buffers.next.d
    limit = _limit_by_noise(buffers.noise, buffers, top, bottom, table, limit)
    other, base = (top, bottom) if rows.sign > 0 else (bottom, top)
    for k in range(rows.different[base]):
        scratch.known[rows.position[base, k]] = k
    ref = _reference(rows, other, base, scratch)
    count = _enumerate(rows, base, ref, d, scratch)
    spare = _couple(rows, other, base, ref, d, scratch)
    rules = 2 if spare > 0.0 else 1
    for rule in range(rules):
        _move(rows, other, base, ref, table, spare, rule, scratch)
    bound = _worst_corner(rows, other, base, count, rules, limit, scratch)
    for k in range(rows.different[base]):
        scratch.known[rows.position[base, k]] = -1
    return bound
