"""The lemma of the pair certificate: the value of one row over that of another; see :mod:`entropic_bpi.methods.kl.pairs`."""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.compile.decorators import inner
from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.methods.kl.gap import keep_largest
from entropic_bpi.methods.kl.records import PairRows, PairScratch

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
def _reference(rows: PairRows, other: int, base: int, desk: PairScratch) -> int:
    """The shared successor with the largest smaller frequency, otherwise the base's most frequent; the lowest of ties.

    By the counts alone, so that whoever checks the certificate chooses the same.
    """
    best, score = -1, 0.0
    for i in range(rows.different[other]):
        k = desk.known[rows.place[other, i]]
        if k >= 0:
            smaller = min(rows.seen[other, i] * rows.visits[base], rows.seen[base, k] * rows.visits[other])
            if smaller > score or (smaller == score and best >= 0 and rows.place[base, k] < rows.place[base, best]):
                best, score = k, smaller
    return best if best >= 0 else most_frequent(rows, base)


@inner
def most_frequent(rows: PairRows, row: int) -> int:
    best = 0
    for k in range(1, rows.different[row]):
        more = rows.seen[row, k] - rows.seen[row, best]
        if more > 0.0 or (more == 0.0 and rows.place[row, k] < rows.place[row, best]):
            best = k
    return best


@inner
def _enumerate(rows: PairRows, base: int, ref: int, d: np.ndarray, desk: PairScratch) -> int:
    """The boxes of the base's successors relative to the reference, and which of them get corners; how many.

    Underflow is safe: only the lower end of a box can be 0.
    """
    r, count = rows.place[base, ref], 0
    for k in range(rows.different[base]):
        p = rows.place[base, k]
        desk.rank[k] = -1
        desk.low[k] = 1.0 if k == ref else 1.0 / d[r, p]
        desk.high[k] = 1.0 if k == ref else d[p, r]
        if desk.high[k] > desk.low[k] * (1.0 + KNOWN):
            count = keep_largest(desk.chosen, desk.scores, count, p, rows.seen[base, k])
    for c in range(count):
        desk.chosen[c] = desk.known[desk.chosen[c]]
        desk.rank[desk.chosen[c]] = c
    return count


@inner
def _tilt(rows: PairRows, row: int, upper: bool, r: int, d: np.ndarray, mass: np.ndarray) -> bool:
    """Shares of a row's successors, weighed by e^{βr} and the middle of what is known of their value, that add up to 1.

    Underflow is safe: any shares would do.
    """
    total = 0.0
    mass[: rows.different[row]] = 0.0
    for i in range(rows.used[row]):
        k = rows.number[row, i]
        p = rows.place[row, k]
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
def _couple(rows: PairRows, other: int, base: int, ref: int, d: np.ndarray, desk: PairScratch) -> float:
    """Prepare the coupling of the tilted laws: how much of the base has no counterpart; 0 if there is no coupling."""
    r, positive, spare = rows.place[base, ref], rows.sign > 0, 0.0
    if not _tilt(rows, other, positive, r, d, desk.mass[0]) or not _tilt(rows, base, not positive, r, d, desk.mass[1]):
        return 0.0
    for k in range(rows.different[base]):
        desk.left[k] = desk.mass[1, k]
    for i in range(rows.different[other]):
        k = desk.known[rows.place[other, i]]
        if k >= 0:
            desk.left[k] = max(0.0, desk.left[k] - desk.mass[0, i])
    for k in range(rows.different[base]):
        spare += desk.left[k]
    return spare if spare > SMALLEST_SPARE else 0.0


@inner
def _move(
    rows: PairRows, other: int, base: int, ref: int, table: np.ndarray, spare: float, rule: int, desk: PairScratch
) -> None:
    """Value the other row's successors by moving them onto the base's: each to itself (``rule`` 0), or by the coupling.

    Underflow is safe: what a product loses or gains is less than a change of κ by 1e-15 would make.
    """
    moved, positive = desk.moved[rule], rows.sign > 0
    for i in range(rows.different[other]):
        p = rows.place[other, i]
        own = desk.known[p]
        kept = 1.0
        if rule == 1 and desk.mass[0, i] > 0.0:
            kept = 0.0 if own < 0 else min(1.0, desk.mass[1, own] / desk.mass[0, i])
        for c in range(4):
            moved[c, i] = 0.0
        for k in range(rows.different[base]):
            part = kept if k == (own if own >= 0 else ref) else 0.0
            if kept < 1.0:
                part += (1.0 - kept) * desk.left[k] / spare
            if part > 0.0:
                q = rows.place[base, k]
                part *= table[p, q] if positive else 1.0 / table[q, p]
                if desk.rank[k] >= 0:
                    moved[1 + desk.rank[k], i] += part
                else:
                    moved[0, i] += part * (desk.high[k] if positive else desk.low[k])


@inner
def _extreme(rows: PairRows, row: int, f: np.ndarray, sign: float, desk: PairScratch) -> float:
    n, x = rows.visits[row], rows.radius[row]
    return kl_extreme(rows.tally[row], f, rows.used[row], n, x, sign, rows.tolerance, desk.work)


@inner
def _corner_ratio(
    rows: PairRows, other: int, base: int, corner: int, count: int, rule: int, below: float, desk: PairScratch
) -> float:
    """The ratio at one corner by one rule; ``below`` is the extreme of the base there.

    Underflow is safe: a mean that may have lost digits to it gives infinity.
    """
    f, positive, moved = desk.f[0], rows.sign > 0, desk.moved[rule]
    for i in range(rows.used[other]):
        k = rows.number[other, i]
        value = moved[0, k]
        for c in range(count):
            b = desk.chosen[c]
            value += moved[1 + c, k] * (desk.high[b] if corner >> c & 1 == 1 else desk.low[b])
        f[i] = value * (rows.high[other, i] if positive else rows.low[other, i])
    above = _extreme(rows, other, f, rows.sign, desk)
    top, bottom = (above, below) if positive else (below, above)
    if SMALLEST_MEAN < top < np.inf and bottom > SMALLEST_MEAN:
        return top / bottom * (1.0 + ROUNDING)
    return np.inf


@inner
def _worst_corner(
    rows: PairRows, other: int, base: int, count: int, rules: int, limit: float, desk: PairScratch
) -> float:
    """The largest ratio over the corners by the better of the ``rules`` (1 or 2); ``limit`` if both reach it."""
    f, positive = desk.f[1], rows.sign > 0
    worst, second = 0.0, 0.0 if rules == 2 else np.inf
    for corner in range(1 << count):
        for i in range(rows.used[base]):
            k = rows.number[base, i]
            raised = not positive if desk.rank[k] < 0 else corner >> desk.rank[k] & 1 == 1
            f[i] = (desk.high[k] if raised else desk.low[k]) * (rows.low[base, i] if positive else rows.high[base, i])
        below = _extreme(rows, base, f, -rows.sign, desk)
        for rule in range(rules):
            if (second if rule == 1 else worst) < limit:
                ratio = _corner_ratio(rows, other, base, corner, count, rule, below, desk)
                ratio = ratio if ratio < limit else limit
                if rule == 1:
                    second = max(second, ratio)
                else:
                    worst = max(worst, ratio)
        if not min(worst, second) < limit:
            return limit
    return min(worst, second)


@inner
def _noise_excess(
    rows: PairRows,
    row: int,
    lam: float,
    gain: np.ndarray,
    cost: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    desk: PairScratch,
) -> float:
    """Bound on max_q Σ q (gain - λ cost) z, each z at the worse end of its box."""  # fmt: skip
    f = desk.f[0]
    for j in range(rows.used[row]):
        part = gain[j] - lam * cost[j]
        f[j] = part * low[j] if part <= 0.0 else max(part * high[j], SMALLEST_TERM)
    return _extreme(rows, row, f, 1.0, desk)


@inner
def common_noise(
    rows: PairRows, top: int, bottom: int, d: np.ndarray, table: np.ndarray, limit: float, desk: PairScratch
) -> float:
    """The lemma for rows with one law, whose classes lie in each other: one ball, no corners; at most ``limit``."""
    over, under, positive = rows.pair[top], rows.pair[bottom], rows.sign > 0
    if rows.ball.size == 1 or max(over, under) >= rows.ball.size:
        return limit
    is_finer = rows.refines[rows.ball[over], rows.ball[under]]
    if not is_finer and not rows.refines[rows.ball[under], rows.ball[over]]:
        return limit
    row, size = (top, rows.used[top]) if is_finer else (bottom, rows.used[bottom])
    gain, cost, low, high = desk.moved[0, 0], desk.moved[0, 1], desk.moved[0, 2], desk.moved[0, 3]
    often, ref = -1, 0
    for j in range(size):
        label = rows.label_of_slot[rows.pair[row], j]
        base = bottom if positive else top
        if rows.tally[row, j] > often:
            often, ref = (
                rows.tally[row, j],
                rows.place[base, rows.number[base, rows.slot_of_label[rows.pair[base], label]]],
            )
    least, most, unit = np.inf, 0.0, 0.0
    for j in range(size):
        label = rows.label_of_slot[rows.pair[row], j]
        i, k = rows.slot_of_label[over, label], rows.slot_of_label[under, label]
        n, m = rows.place[top, rows.number[top, i]], rows.place[bottom, rows.number[bottom, k]]
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
    for j in range(size):  # only quotients matter
        gain[j], cost[j] = gain[j] / unit, cost[j] / unit
    left, value = least, _noise_excess(rows, row, least, gain, cost, low, high, desk)
    if value <= 0.0:
        return min(left * (1.0 + ROUNDING), limit)
    below = _noise_excess(rows, row, right, gain, cost, low, high, desk)
    if not below <= 0.0:
        return right
    # Convex and decreasing in λ: a chord's root is on the safe side, that of the line through two safe points is not.
    before, before_value = right, below
    close = FINE if rows.tolerance < FINE_BALLS else COARSE
    for turn in range(LONGEST_SEARCH):
        if not value > 0.0 or right - left <= close * abs(right - 1.0):
            break
        if turn % 2 == 0 or before == right:
            lam = left + (right - left) * min(max(value / (value - below), 1e-3), 0.999)
        else:
            lam = right - below * (before - right) / (before_value - below)
        if turn % 6 == 5 or not left < lam < right:
            lam = 0.5 * (left + right)
        further = _noise_excess(rows, row, lam, gain, cost, low, high, desk)
        if further <= 0.0:
            before, before_value, right, below = right, below, lam, further
        else:
            left, value = lam, further
    return min(right * (1.0 + ROUNDING), limit)


@inner
def compare_rows(
    rows: PairRows, top: int, bottom: int, d: np.ndarray, table: np.ndarray, limit: float, desk: PairScratch
) -> float:
    """The lemma: the value of one row over that of another, ``table`` being d or R of the next step; at most ``limit``."""
    limit = common_noise(rows, top, bottom, d, table, limit, desk)
    other, base = (top, bottom) if rows.sign > 0 else (bottom, top)
    for k in range(rows.different[base]):
        desk.known[rows.place[base, k]] = k
    ref = _reference(rows, other, base, desk)
    count = _enumerate(rows, base, ref, d, desk)
    spare = _couple(rows, other, base, ref, d, desk)
    rules = 2 if spare > 0.0 else 1
    for rule in range(rules):
        _move(rows, other, base, ref, table, spare, rule, desk)
    bound = _worst_corner(rows, other, base, count, rules, limit, desk)
    for k in range(rows.different[base]):
        desk.known[rows.place[base, k]] = -1
    return bound
