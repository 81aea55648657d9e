r"""The pair certificate: relative values of pairs of states instead of boxes of absolute ones.

:mod:`entropic_bpi.methods.gap` compares the optimum with the candidate in one state, and pays for the uncertainty of a
future that both share unless they share its very states. Here *pairs* of states are compared, backwards from 1:

.. math:: d_h(x,y) \ge Z^{\hat\pi}_h(x)/Z^{\hat\pi}_h(y),\qquad
          R_h(x,y) \ge Z^\star_h(x)/Z^{\hat\pi}_h(y)\ (\beta>0),\quad Z^{\hat\pi}_h(x)/Z^\star_h(y)\ (\beta<0),

and :math:`\rho_h(s)=R_h(s,s)`. Same event, same test: :math:`\log\rho_1(s_1)\le|\beta|\varepsilon`.

**One lemma.** A numerator row and a denominator row; the *base* is the one whose future is the candidate's, with
:math:`z_j=Z^{\hat\pi}_{h+1}(j)` at its successors (the denominator for :math:`\beta>0`, the numerator for
:math:`\beta<0`). What the *other* row is worth at its successor :math:`i` is at most :math:`V(i,j)z_j` for every
:math:`j` (:math:`\beta<0`: at least :math:`z_j/V(j,i)`), with :math:`V=R_{h+1}` or :math:`d_{h+1}`, hence at most the average of
these under any :math:`\kappa(i,\cdot)`: the mass of one row is moved onto the successors of the other. Everything is
homogeneous in :math:`z`, so divide by that of a reference successor: :math:`u_j=z_j/z_{ref}` lies in
:math:`[1/d(ref,j),\,d(j,ref)]`, and for fixed kernels the ratio is monotone in each :math:`u_j`. Its largest value is at a
corner, where both balls are extremised by themselves. Up to three successors of the base are enumerated; the others are
taken at their worse end on each side.

**κ.** The better of two: each successor to itself, or to the reference if the base does not have it; or a coupling of the
two empirical laws, tilted by :math:`e^{\beta r}Z^{\hat\pi}`: what both have in common stays, the rest is spread.

**Recursion.** For each state: ``same`` of the gap certificate with absolute and with relative weights, and for each other
action the smallest of its two bounds there and of the lemma with :math:`V=R`; actions for which that exceeds 1 are
*contested*. For each pair: the lemma with :math:`V=d`, and for the optimal side the lemma with :math:`V=R` for the
candidate's own and the contested actions. An action that is at most :math:`v` times better than the candidate in that state
is worth at most :math:`v\,d`, and a bound that is not contested is at most :math:`d`.

The work grows with the square of the number of states that can be occupied at a step under the candidate or a deviation
that is not ruled out at once. Above ``MOST_PAIRS`` pairs per plan the certificate is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from entropic_bpi._compile import compiled, inner
from entropic_bpi.counts import Ledger
from entropic_bpi.methods.gap import (
    action_weight,
    deviation_ratio,
    keep_largest,
    ratio_of,
    row_extreme,
    same_ratio,
    slot_weight,
)
from entropic_bpi.methods.kl_records import (
    Box,
    Candidate,
    Desk,
    Deviation,
    Optimism,
    Place,
    Relations,
    Rules,
    Scratch,
    new_desk,
    new_scratch,
)
from entropic_bpi.problem import Frame, actions_at, row_of

__all__ = ["MOST_PAIRS", "pair_ratio", "relations"]

MOST_PAIRS = 200_000
# Rounding of one bound, relative; more than what sums of a few hundred terms and exponents up to 600 can lose.
ROUNDING = 1e-12
# Means below this may have lost digits.
SMALLEST_MEAN = 1e-280
# Successors whose relative value is known to this precision need no corner of their own.
KNOWN = 1e-9


class Side(NamedTuple):
    """One row of a pair: its ``size`` different successors, by position, and which of them each slot leads to.

    ``weight`` is e^{βr} by slot; ``seen`` and ``mass`` are visits and (tilted) shares by successor.
    """

    row: int
    size: int
    place: np.ndarray
    slot: np.ndarray
    weight: np.ndarray
    seen: np.ndarray
    mass: np.ndarray


@inner
def _side(
    rules: Rules, ledger: Ledger, row: int, step: int, upper: bool, next: Relations, desk: Desk, number: int
) -> Side:
    """Collect what a pair needs of a row; ``upper``: with the larger of the weights that are possible."""
    place, slot = desk.names[2 * number], desk.names[2 * number + 1]
    weight, seen, mass = desk.numbers[3 * number], desk.numbers[3 * number + 1], desk.numbers[3 * number + 2]
    size = 0
    for i in range(ledger.used[row]):
        j = ledger.begin[row] + i
        position = next.position[ledger.successor[j]]
        k = desk.known[position]
        if k < 0:
            k = size
            size += 1
            desk.known[position] = k
            place[k], seen[k], mass[k] = position, 0.0, 0.0
        slot[i] = k
        weight[i] = slot_weight(rules, ledger, step, j, upper)
        seen[k] += ledger.tally[j]
        mass[k] += weight[i] * (ledger.tally[j] if ledger.visits[row] > 0 else 1.0)
    for k in range(size):
        desk.known[place[k]] = -1
    return Side(row, size, place, slot, weight, seen, mass)


@inner
def _reference(ledger: Ledger, other: Side, base: Side, desk: Desk) -> int:
    """The shared successor with the largest smaller frequency, otherwise the base's most frequent; the lowest of ties.

    By the counts alone, so that whoever checks the certificate chooses the same.
    """
    best, score = -1, 0.0
    of_other, of_base = float(ledger.visits[other.row]), float(ledger.visits[base.row])
    for i in range(other.size):
        k = desk.known[other.place[i]]
        if k >= 0:
            smaller = min(other.seen[i] * of_base, base.seen[k] * of_other)
            if smaller > score or (smaller == score and best >= 0 and base.place[k] < base.place[best]):
                best, score = k, smaller
    if best >= 0:
        return best
    best = 0
    for k in range(1, base.size):
        more = base.seen[k] - base.seen[best]
        if more > 0.0 or (more == 0.0 and base.place[k] < base.place[best]):
            best = k
    return best


@inner
def _tilt(side: Side, reference: int, d: np.ndarray) -> bool:
    """Weigh the shares by what follows, at the middle of what is known of it, and make them add up to 1."""
    total = 0.0
    for k in range(side.size):
        p = side.place[k]
        if p != reference:
            side.mass[k] *= math.sqrt(d[p, reference] / d[reference, p])
        total += side.mass[k]
    for k in range(side.size):
        side.mass[k] /= total
    return 0.0 < total < np.inf


@inner
def _move(
    rules: Rules, other: Side, base: Side, table: np.ndarray, desk: Desk, ref: int, rule: int, spare: float
) -> None:
    """Value the other row's successors by moving them onto the base's: by ``rule`` 0 or by the coupling, 1.

    What goes to enumerated successors is kept apart, in three rows: it depends on the corner. ``spare`` is the mass of the
    base that has no counterpart.
    """
    rank, left = desk.names[4], desk.numbers[8]
    far = desk.numbers[7] if rules.sign > 0 else desk.numbers[6]
    value = desk.numbers[9 + 4 * rule]
    for i in range(other.size):
        p, own = other.place[i], desk.known[other.place[i]]
        kept = 1.0
        if rule == 1 and spare > 0.0 and other.mass[i] > 0.0:
            kept = 0.0 if own < 0 else min(1.0, base.mass[own] / other.mass[i])
        for c in range(4):
            desk.numbers[9 + 4 * rule + c, i] = 0.0
        target = own if own >= 0 else ref
        for k in range(base.size):
            part = kept if k == target else 0.0
            if kept < 1.0:
                part += (1.0 - kept) * left[k] / spare
            if part > 0.0:
                q = base.place[k]
                part *= table[p, q] if rules.sign > 0 else 1.0 / table[q, p]
                if rank[k] >= 0:
                    desk.numbers[10 + 4 * rule + rank[k], i] += part
                else:
                    value[i] += part * far[k]


@inner
def _enumerate(base: Side, next: Relations, desk: Desk, ref: int, scratch: Scratch) -> int:
    """The boxes of the base's successors relative to the reference, and which of them get corners; how many."""
    rank, low, high = desk.names[4], desk.numbers[6], desk.numbers[7]
    r, count = base.place[ref], 0
    for k in range(base.size):
        p = base.place[k]
        rank[k] = -1
        low[k] = 1.0 if k == ref else 1.0 / next.d[r, p]
        high[k] = 1.0 if k == ref else next.d[p, r]
        if high[k] > low[k] * (1.0 + KNOWN):
            count = keep_largest(scratch.shared, scratch.scores, count, p, base.seen[k])
    for c in range(count):
        rank[desk.known[scratch.shared[c]]] = c
    return count


@inner
def _couple(other: Side, base: Side, next: Relations, desk: Desk, ref: int) -> float:
    """Prepare the coupling of the tilted laws: how much of the base has no counterpart; 0 if there is no coupling."""
    r, left, spare = base.place[ref], desk.numbers[8], 0.0
    if not (_tilt(other, r, next.d) and _tilt(base, r, next.d)):
        return 0.0
    for k in range(base.size):
        left[k] = base.mass[k]
    for i in range(other.size):
        k = desk.known[other.place[i]]
        if k >= 0:
            left[k] = max(0.0, left[k] - other.mass[i])
    for k in range(base.size):
        spare += left[k]
    return spare if spare > 1e-12 else 0.0


@inner
def _worst_corner(
    rules: Rules,
    ledger: Ledger,
    deviation: Deviation,
    other: Side,
    base: Side,
    desk: Desk,
    limit: float,
    count: int,
    rules_tried: int,
    scratch: Scratch,
) -> float:
    """The largest ratio over the corners, for the better rule; ``limit`` if both reach it."""
    rank, low, high = desk.names[4], desk.numbers[6], desk.numbers[7]
    near = low if rules.sign > 0 else high
    of_other, of_base = desk.numbers[17], desk.numbers[18]
    worst, second = 0.0, 0.0 if rules_tried == 2 else np.inf
    for corner in range(1 << count):
        for i in range(ledger.used[base.row]):
            k = base.slot[i]
            u = near[k]
            if rank[k] >= 0:
                u = high[k] if corner >> rank[k] & 1 == 1 else low[k]
            of_base[i] = base.weight[i] * u
        below = row_extreme(rules, ledger, base.row, of_base, -rules.sign, scratch)
        for rule in range(rules_tried):
            if not (second if rule == 1 else worst) < limit:
                continue
            for i in range(ledger.used[other.row]):
                k = other.slot[i]
                value = desk.numbers[9 + 4 * rule, k]
                for c in range(count):
                    b = desk.known[scratch.shared[c]]
                    u = high[b] if corner >> c & 1 == 1 else low[b]
                    value += desk.numbers[10 + 4 * rule + c, k] * u
                of_other[i] = other.weight[i] * value
            above = row_extreme(rules, ledger, other.row, of_other, rules.sign, scratch)
            top, bottom = (above, below) if rules.sign > 0 else (below, above)
            ratio = np.inf
            if SMALLEST_MEAN < top < np.inf and bottom > SMALLEST_MEAN:
                ratio = deviation.gain * (top / bottom) * (1.0 + ROUNDING)
            if not ratio < limit:
                ratio = limit
            if rule == 0:
                worst = max(worst, ratio)
            else:
                second = max(second, ratio)
        if not min(worst, second) < limit:
            return limit
    return min(worst, second)


@inner
def _compare(
    rules: Rules,
    ledger: Ledger,
    deviation: Deviation,
    next: Relations,
    table: np.ndarray,
    limit: float,
    desk: Desk,
    scratch: Scratch,
) -> float:
    """The lemma: the value of one row over that of another, ``table`` being d or R of the next step; at most ``limit``."""
    positive = rules.sign > 0
    one, two = (deviation.top, deviation.bottom) if positive else (deviation.bottom, deviation.top)
    other = _side(rules, ledger, one, deviation.step, positive, next, desk, 0)
    base = _side(rules, ledger, two, deviation.step, not positive, next, desk, 1)
    for k in range(base.size):
        desk.known[base.place[k]] = k
    ref = _reference(ledger, other, base, desk)
    count = _enumerate(base, next, desk, ref, scratch)
    _move(rules, other, base, table, desk, ref, 0, 0.0)
    spare = _couple(other, base, next, desk, ref)
    if spare > 0.0:
        _move(rules, other, base, table, desk, ref, 1, spare)
    tried = 2 if spare > 0.0 else 1
    bound = _worst_corner(rules, ledger, deviation, other, base, desk, limit, count, tried, scratch)
    for k in range(base.size):
        desk.known[base.place[k]] = -1
    return bound


@inner
def _same(
    rules: Rules,
    ledger: Ledger,
    row: int,
    step: int,
    box: Box,
    next: Relations,
    plain: float,
    desk: Desk,
    scratch: Scratch,
) -> float:
    """``same`` of the gap certificate, with weights in a box of values and in one relative to a frequent successor."""
    bound = same_ratio(rules, ledger, row, step, box, 1.0, plain, scratch)
    if bound <= 1.0 or ledger.visits[row] == 0:
        return bound
    side = _side(rules, ledger, row, step, True, next, desk, 0)
    frequent = 0
    for k in range(1, side.size):
        more = side.seen[k] - side.seen[frequent]
        if more > 0.0 or (more == 0.0 and side.place[k] < side.place[frequent]):
            frequent = k
    r = side.place[frequent]
    for i in range(ledger.used[row]):
        y, p = ledger.successor[ledger.begin[row] + i], side.place[side.slot[i]]
        # For β < 0 the weight is Z^π/ρ.
        unit = 1.0 if rules.sign > 0 else 1.0 / next.rho[y]
        desk.low[y] = unit if p == r else unit / next.d[r, p]
        desk.high[y] = unit if p == r else unit * next.d[p, r]
    relative = Box(desk.low, desk.high, box.rho, box.cap)
    return same_ratio(rules, ledger, row, step, relative, 1.0, bound, scratch) * (1.0 + ROUNDING)


@inner
def _swap(frame: Frame, rules: Rules, x: Place, a: int, y: Place, b: int) -> Deviation:
    """Action ``a`` in ``x`` over action ``b`` in ``y``."""
    top, bottom = row_of(frame, x.h, x.s, a), row_of(frame, y.h, y.s, b)
    gain = action_weight(frame, rules, x, a) / action_weight(frame, rules, y, b)
    return Deviation(x.h - frame.artificial, top, bottom, gain)


@inner
def _one_state(
    frame: Frame,
    rules: Rules,
    ledger: Ledger,
    optimism: Optimism,
    plan: Candidate,
    place: Place,
    next: Relations,
    gain: np.ndarray,
    desk: Desk,
    scratch: Scratch,
) -> float:
    """ρ of one state; ``gain`` gets how much better each action may be than the candidate, its own included."""
    h, s, sign = place.h, place.s, rules.sign
    chosen = min(plan.policy[h, s], actions_at(frame, h) - 1)
    gain[:] = 1.0
    plain = ratio_of(sign, optimism.z[h, s], plan.z[h, s])
    if plain <= 1.0:
        return 1.0
    low, cap = (plan.z, optimism.z) if sign > 0 else (optimism.z, plan.z)
    box = Box(low[h + 1], plan.high[h + 1], next.rho, cap[h + 1])
    row, step = row_of(frame, h, s, chosen), h - frame.artificial
    worst = 1.0
    for a in range(actions_at(frame, h)):
        if a == chosen:
            bound = _same(rules, ledger, row, step, box, next, plain, desk, scratch)
        else:
            bound = ratio_of(sign, optimism.u[h, s, a], plan.z[h, s])
            top, bottom = (a, chosen) if sign > 0 else (chosen, a)
            deviation = _swap(frame, rules, place, top, place, bottom)
            if not bound <= 1.0:
                bound = deviation_ratio(rules, ledger, deviation, box, bound, scratch)
            if not bound <= 1.0:
                bound = _compare(rules, ledger, deviation, next, next.r, bound, desk, scratch)
        gain[a] = bound if not bound <= 1.0 else 1.0
        worst = max(worst, gain[a])
    bound = min(worst, plain, plan.rho[h, s])
    return max(1.0, bound * (1.0 + ROUNDING)) if bound < np.inf else np.inf


@inner
def _one_pair(
    frame: Frame,
    rules: Rules,
    ledger: Ledger,
    optimism: Optimism,
    plan: Candidate,
    x: Place,
    y: Place,
    next: Relations,
    gain: np.ndarray,
    rho: float,
    desk: Desk,
    scratch: Scratch,
) -> tuple[float, float]:
    """d and R of two different states; ``gain`` and ``rho`` are those of the state on the optimal side."""
    h, positive = x.h, rules.sign > 0
    mine, theirs = plan.policy[h, x.s], plan.policy[h, y.s]
    plain = ratio_of(1.0, optimism.z[h, x.s], plan.z[h, y.s])
    limit = ratio_of(1.0, plan.high[h, x.s], plan.z[h, y.s])
    if not positive:
        plain = limit = ratio_of(1.0, plan.z[h, x.s], optimism.z[h, y.s])
    limit *= 1.0 + ROUNDING
    d = _compare(rules, ledger, _swap(frame, rules, x, mine, y, theirs), next, next.d, limit, desk, scratch)
    if rho <= 1.0:
        return d, d
    worst, z = d, x.s if positive else y.s
    for a in range(frame.n_actions):
        if gain[a] <= 1.0:
            continue
        limit = ratio_of(rules.sign, optimism.u[h, z, a], plan.z[h, y.s if positive else x.s])
        limit = min(limit, gain[a] * d) * (1.0 + ROUNDING)
        if not limit <= worst:
            swap = _swap(frame, rules, x, a, y, theirs) if positive else _swap(frame, rules, x, mine, y, a)
            worst = max(worst, _compare(rules, ledger, swap, next, next.r, limit, desk, scratch))
    bound = min(worst, min(plain, rho * d) * (1.0 + ROUNDING))
    return min(d, bound), bound


@compiled
def _occupy(
    frame: Frame, rules: Rules, ledger: Ledger, optimism: Optimism, plan: Candidate, occupied: np.ndarray, most: int
) -> tuple[int, int]:
    """Mark where the candidate, or a deviation that is not ruled out at once, can be at each step.

    Returns the number of pairs, counted until it exceeds ``most``, and the largest number of states of a step.
    """
    pairs, widest = 0, 0
    occupied[0, frame.start] = True
    for h in range(frame.steps):
        count = 0
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            if not occupied[h, s]:
                continue
            count += 1
            for a in range(actions_at(frame, h)):
                own = a == min(plan.policy[h, s], actions_at(frame, h) - 1)
                if h == frame.steps - 1 or (not own and ratio_of(rules.sign, optimism.u[h, s, a], plan.z[h, s]) <= 1.0):
                    continue
                row = row_of(frame, h, s, a)
                for j in range(ledger.begin[row], ledger.begin[row] + ledger.used[row]):
                    y = ledger.successor[j]
                    if y < frame.n_states:
                        occupied[h + 1, y] = True
                    elif not occupied[h + 1, y]:
                        occupied[h + 1, y] = True
                        for k in range(frame.first_state[h + 1], frame.first_state[h + 2]):
                            occupied[h + 1, frame.states[k]] = True
        pairs += count * count
        widest = max(widest, count)
        if pairs > most:
            break
    return pairs, widest


@inner
def _close(relations: Relations, count: int) -> None:
    """Give elsewhere the worst that any state can do, in its own column too: two unseen states need not be the same."""
    for table in (relations.d, relations.r):
        table[count, count] = 1.0
        for x in range(count):
            table[x, count] = table[count, x] = 1.0
            for y in range(count):
                table[x, count] = max(table[x, count], table[x, y])
                table[count, x] = max(table[count, x], table[y, x])
            table[count, count] = max(table[count, count], table[x, count])
    relations.rho[-1] = 1.0
    for x in range(count):
        relations.rho[-1] = max(relations.rho[-1], relations.r[x, x])


@compiled
def _step(
    frame: Frame,
    rules: Rules,
    ledger: Ledger,
    optimism: Optimism,
    plan: Candidate,
    h: int,
    occupied: np.ndarray,
    next: Relations,
    now: Relations,
    desk: Desk,
    scratch: Scratch,
) -> None:
    """Relate the occupied states of one step, from the relations of the next."""
    count, states = 0, desk.states
    for i in range(frame.first_state[h], frame.first_state[h + 1]):
        s = frame.states[i]
        if occupied[h, s]:
            place, gain = Place(h, s), desk.gain[count]
            rho = _one_state(frame, rules, ledger, optimism, plan, place, next, gain, desk, scratch)
            now.rho[s] = now.r[count, count] = rho
            now.d[count, count] = 1.0
            now.position[s], states[count] = count, s
            count += 1
    now.position[-1] = count
    for p in range(count):
        for q in range(count):
            if p != q:
                x, y, z = Place(h, states[p]), Place(h, states[q]), p if rules.sign > 0 else q
                now.d[p, q], now.r[p, q] = _one_pair(
                    frame, rules, ledger, optimism, plan, x, y, next, desk.gain[z], now.r[z, z], desk, scratch
                )
    _close(now, count)


def _new_relations(n_states: int, occupied: int) -> Relations:
    shape = (occupied + 1, occupied + 1)
    return Relations(np.zeros(n_states + 1, dtype=np.int64), np.ones(shape), np.ones(shape), np.ones(n_states + 1))


def relations(
    frame: Frame, rules: Rules, ledger: Ledger, optimism: Optimism, plan: Candidate
) -> Iterator[tuple[int, Relations]]:
    """The relations of each step, backwards, which the next ones overwrite; nothing if there are too many pairs."""
    occupied = np.zeros((frame.steps, frame.n_states + 1), dtype=np.bool_)
    pairs, widest = _occupy(frame, rules, ledger, optimism, plan, occupied, MOST_PAIRS)
    if pairs > MOST_PAIRS:
        return
    next, now = _new_relations(frame.n_states, widest), _new_relations(frame.n_states, widest)
    desk = new_desk(rules, frame.n_states, frame.n_actions, widest)
    scratch = Scratch(*(layer[0] for layer in new_scratch(rules, frame.n_actions, 1)))
    for h in reversed(range(frame.steps)):
        _step(frame, rules, ledger, optimism, plan, h, occupied, next, now, desk, scratch)
        yield h, now
        next, now = now, next


def pair_ratio(frame: Frame, rules: Rules, ledger: Ledger, optimism: Optimism, plan: Candidate) -> float:
    """How much better than the candidate any policy can be, as a ratio of Z; infinite if there are too many pairs.

    ``optimism`` and ``plan`` are those of the gap certificate, from the same counts.
    """
    rho = np.inf
    for _, now in relations(frame, rules, ledger, optimism, plan):
        rho = now.rho[frame.start]
    return float(rho)
