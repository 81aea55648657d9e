"""The lemma of the pair certificate, which bounds the ratio of the values of two rows.

See :mod:`entropic_bpi.methods.kl.pairs`, and "The pair certificate" on the page "The KL method".
"""

import math

import numpy as np

from entropic_bpi.compile.decorators import inlined, inner
from entropic_bpi.methods.kl.gap import ball_extreme, keep_largest, largest_average
from entropic_bpi.methods.kl.records import Inputs, PairBuffers, PairNoise, PairRows
from entropic_bpi.types import Reals

# Relative rounding error of one bound; more than that of sums of a few hundred terms, and of exponents up to 600.
ROUNDING = 1e-12
# There is no coupling if less than this is left to spread.
SMALLEST_SPARE = 1e-12
# Means below this may have lost digits.
SMALLEST_MEAN = 1e-280
# Successors whose relative value is known to this precision need no corner of their own.
KNOWN = 1e-9


@inner
def _reference(inputs: Inputs, buffers: PairBuffers, other: int, base: int) -> int:
    """Return the shared successor with the largest smaller frequency, or the base's most frequent one; the lowest of ties.

    It depends on the counts alone, so that a verifier chooses the same.
    """
    rows, visits, best, score = buffers.rows, inputs.arrays.visits, -1, 0.0
    mine, theirs = visits[rows.row[other]], visits[rows.row[base]]
    for i in range(rows.different[other]):
        k = buffers.scratch.known[rows.position[other, i]]
        if k >= 0:
            smaller = min(rows.seen[other, i] * theirs, rows.seen[base, k] * mine)
            if smaller > score or (
                smaller == score and best >= 0 and rows.position[base, k] < rows.position[base, best]
            ):
                best, score = k, smaller
    return best if best >= 0 else most_frequent(rows, base)


@inner
def most_frequent(rows: PairRows, row: int) -> int:
    """Return the most frequent successor of a row, the lowest of ties."""
    best = 0
    for k in range(1, rows.different[row]):
        more = rows.seen[row, k] - rows.seen[row, best]
        if more > 0.0 or (more == 0.0 and rows.position[row, k] < rows.position[row, best]):
            best = k
    return best


@inner
def _enumerate(inputs: Inputs, buffers: PairBuffers, base: int, ref: int) -> int:
    """Set the boxes of the base's successors relative to the reference, and choose those with corners; return how many.

    Underflow is safe: only the lower end of a box can be 0.
    """
    rows, scratch, d, chosen = buffers.rows, buffers.scratch, buffers.next.d, inputs.scratch.shared
    r, count = rows.position[base, ref], 0
    for k in range(rows.different[base]):
        p = rows.position[base, k]
        scratch.rank[k] = -1
        scratch.low[k] = 1.0 if k == ref else 1.0 / d[r, p]
        scratch.high[k] = 1.0 if k == ref else d[p, r]
        if scratch.high[k] > scratch.low[k] * (1.0 + KNOWN):
            count = keep_largest(chosen, inputs.scratch.scores, count, p, rows.seen[base, k])
    for c in range(count):
        chosen[c] = scratch.known[chosen[c]]
        scratch.rank[chosen[c]] = c
    return count


@inner
def _tilt(inputs: Inputs, rows: PairRows, row: int, upper: bool, r: int, d: Reals, mass: Reals) -> bool:
    """Fill ``mass`` with shares of a row's successors, by e^{βr} and the middle of the bounds on their values.

    Returns whether they could be computed. Underflow is safe: any shares give a valid bound.
    """
    arrays, own, total = inputs.arrays, rows.row[row], 0.0
    mass[: rows.different[row]] = 0.0
    for i in range(arrays.used[own]):
        k = rows.number[row, i]
        p = rows.position[row, k]
        part = rows.high[row, i] if upper else rows.low[row, i]
        part *= arrays.tally[arrays.begin[own] + i] if arrays.visits[own] > 0 else 1.0
        if p != r:
            part *= math.sqrt(d[p, r] / d[r, p])
        mass[k] += part
        total += part
    for k in range(rows.different[row]):
        mass[k] /= total
    return 0.0 < total < np.inf


@inner
def _couple(inputs: Inputs, buffers: PairBuffers, other: int, base: int, ref: int) -> float:
    """Prepare the coupling of the tilted laws; return how much of the base has no counterpart, 0 without a coupling."""
    rows, d, positive, spare = buffers.rows, buffers.next.d, inputs.rules.sign > 0, 0.0
    r, mass, left = rows.position[base, ref], buffers.scratch.mass, buffers.scratch.left
    if not _tilt(inputs, rows, other, positive, r, d, mass[0]):
        return 0.0
    if not _tilt(inputs, rows, base, not positive, r, d, mass[1]):
        return 0.0
    for k in range(rows.different[base]):
        left[k] = mass[1, k]
    for i in range(rows.different[other]):
        k = buffers.scratch.known[rows.position[other, i]]
        if k >= 0:
            left[k] = max(0.0, left[k] - mass[0, i])
    for k in range(rows.different[base]):
        spare += left[k]
    return spare if spare > SMALLEST_SPARE else 0.0


@inner
def _move(
    buffers: PairBuffers, other: int, base: int, ref: int, table: Reals, spare: float, rule: int, positive: bool
) -> None:
    """Value the other row's successors by moving them onto the base's: each to itself (``rule`` 0), or by the coupling.

    Underflow is safe: what a product loses or gains is less than a change of κ by 1e-15 would make.
    """
    rows, scratch, moved = buffers.rows, buffers.scratch, buffers.scratch.moved[rule]
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
def _corner_ratio(
    inputs: Inputs, buffers: PairBuffers, other: int, corner: int, count: int, rule: int, below: float
) -> float:
    """Return the ratio at one corner by one rule; ``below`` is the extreme of the base there.

    Underflow is safe: a mean that may have lost digits to it gives infinity.
    """
    rows, scratch, sign = buffers.rows, buffers.scratch, inputs.rules.sign
    f, positive, moved = scratch.f, sign > 0, scratch.moved[rule]
    for i in range(inputs.arrays.used[rows.row[other]]):
        k = rows.number[other, i]
        value = moved[0, k]
        for c in range(count):
            b = inputs.scratch.shared[c]
            value += moved[1 + c, k] * (scratch.high[b] if corner >> c & 1 == 1 else scratch.low[b])
        f[i] = value * (rows.high[other, i] if positive else rows.low[other, i])
    above = ball_extreme(inputs, rows.row[other], f, sign)
    top, bottom = (above, below) if positive else (below, above)
    if SMALLEST_MEAN < top < np.inf and bottom > SMALLEST_MEAN:
        return top / bottom * (1.0 + ROUNDING)
    return np.inf


@inner
def _worst_corner(
    inputs: Inputs, buffers: PairBuffers, other: int, base: int, count: int, rules: int, limit: float
) -> float:
    """Return the largest ratio over the corners, by the better of 1 or 2 ``rules``; ``limit`` if all reach it."""
    rows, scratch, sign = buffers.rows, buffers.scratch, inputs.rules.sign
    f, positive = scratch.f, sign > 0
    worst, second = 0.0, 0.0 if rules == 2 else np.inf
    for corner in range(1 << count):
        for i in range(inputs.arrays.used[rows.row[base]]):
            k = rows.number[base, i]
            raised = not positive if scratch.rank[k] < 0 else corner >> scratch.rank[k] & 1 == 1
            weight = rows.low[base, i] if positive else rows.high[base, i]
            f[i] = (scratch.high[k] if raised else scratch.low[k]) * weight
        below = ball_extreme(inputs, rows.row[base], f, -sign)
        if worst < limit:
            ratio = _corner_ratio(inputs, buffers, other, corner, count, 0, below)
            worst = max(worst, ratio) if ratio < limit else limit
        if second < limit:
            ratio = _corner_ratio(inputs, buffers, other, corner, count, 1, below)
            second = max(second, ratio) if ratio < limit else limit
        if not min(worst, second) < limit:
            return limit
    return min(worst, second)


@inner
def _common_noise(
    noise: PairNoise, inputs: Inputs, buffers: PairBuffers, top: int, bottom: int, table: Reals, limit: float
) -> float:
    """Return the bound of the lemma for rows with a common law, one of which has the finer classes; at most ``limit``.

    There is one ball and no corner: the ratio is an average of the ratios of the classes, weighted by the denominator. See
    "Pairs with common noise" on the page "Known mechanics, unknown noise".
    """
    rows, d, work, arrays = buffers.rows, buffers.next.d, inputs.scratch.work, inputs.arrays
    over, under, positive = rows.row[top], rows.row[bottom], inputs.rules.sign > 0
    if max(over, under) >= noise.of_pair.size:
        return limit
    is_finer = noise.refines[noise.of_pair[over], noise.of_pair[under]]
    if not is_finer and not noise.refines[noise.of_pair[under], noise.of_pair[over]]:
        return limit
    row, base = over if is_finer else under, bottom if positive else top
    often, ref = -1, 0
    for j in range(arrays.used[row]):
        if arrays.tally[arrays.begin[row] + j] > often:
            often, label = arrays.tally[arrays.begin[row] + j], noise.label_of_slot[row, j]
            ref = rows.position[base, rows.number[base, noise.slot_of_label[rows.row[base], label]]]
    least, most = np.inf, 0.0
    for j in range(arrays.used[row]):
        label = noise.label_of_slot[row, j]
        i, k = noise.slot_of_label[over, label], noise.slot_of_label[under, label]
        n, m = rows.position[top, rows.number[top, i]], rows.position[bottom, rows.number[bottom, k]]
        gain, cost = rows.high[top, i], rows.low[bottom, k]
        if positive:
            gain *= table[n, m]
        else:
            cost /= table[n, m]
        y = m if positive else n
        work[3, j], work[4, j] = (cost, cost) if y == ref else (cost * d[y, ref], cost / d[ref, y])
        ratio = gain / cost if cost > 0.0 else np.inf
        if not ratio < np.inf:  # 0 * inf, where a weight underflows, is NaN
            ratio = np.inf
        work[2, j], least, most = ratio, min(least, ratio), max(most, ratio)
    right = min(most * (1.0 + ROUNDING), limit)
    if not least < right < np.inf:
        return right if right < limit else limit
    return min(largest_average(inputs, row, least, right) * (1.0 + ROUNDING), limit)


@inlined
def _limit_by_noise(
    noise: PairNoise, inputs: Inputs, buffers: PairBuffers, top: int, bottom: int, table: Reals, limit: float
) -> float:
    # Numba compiles a branch on the length of a tuple only where it is taken.
    if len(noise) > 0:
        return _common_noise(noise, inputs, buffers, top, bottom, table, limit)
    return limit


@inner
def compare_rows(inputs: Inputs, buffers: PairBuffers, top: int, bottom: int, table: Reals, limit: float) -> float:
    """Return the bound of the lemma on one row over another, at most ``limit``; ``table`` is d or R of the next step."""
    rows, known, positive = buffers.rows, buffers.scratch.known, inputs.rules.sign > 0
    limit = _limit_by_noise(buffers.noise, inputs, buffers, top, bottom, table, limit)
    other, base = (top, bottom) if positive else (bottom, top)
    for k in range(rows.different[base]):
        known[rows.position[base, k]] = k
    ref = _reference(inputs, buffers, other, base)
    count = _enumerate(inputs, buffers, base, ref)
    spare = _couple(inputs, buffers, other, base, ref)
    rules = 2 if spare > 0.0 else 1
    for rule in range(rules):
        _move(buffers, other, base, ref, table, spare, rule, positive)
    bound = _worst_corner(inputs, buffers, other, base, count, rules, limit)
    for k in range(rows.different[base]):
        known[rows.position[base, k]] = -1
    return bound
