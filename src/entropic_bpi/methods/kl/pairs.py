r"""The pair certificate: relative values of pairs of states instead of boxes of absolute ones.

:mod:`entropic_bpi.methods.kl.gap` compares the optimum with the candidate in one state, and pays for the uncertainty of a
future that both share unless they share its very states. Here *pairs* of states are compared, backwards from 1:

.. math:: d_h(x,y) \ge Z^{\hat\pi}_h(x)/Z^{\hat\pi}_h(y),\qquad
          R_h(x,y) \ge Z^\star_h(x)/Z^{\hat\pi}_h(y)\ (\beta>0),\quad Z^{\hat\pi}_h(x)/Z^\star_h(y)\ (\beta<0),

and :math:`\rho_h(s)=R_h(s,s)`. Same event, same test: :math:`\log\rho_1(s_1)\le|\beta|\varepsilon`.

**One lemma.** A numerator row and a denominator row; the *base* is the one whose future is the candidate's, with
:math:`z_j=Z^{\hat\pi}_{h+1}(j)` at its successors (the denominator for :math:`\beta>0`, the numerator for
:math:`\beta<0`). What the *other* row is worth at its successor :math:`i` is at most :math:`V(i,j)z_j` for every
:math:`j` (:math:`\beta<0`: at least :math:`z_j/V(j,i)`), with :math:`V=R_{h+1}` or :math:`d_{h+1}`, hence at most the
average of these under any :math:`\kappa(i,\cdot)`: the mass of one row is moved onto the successors of the other.
Everything is homogeneous in :math:`z`, so divide by that of a reference successor: :math:`u_j=z_j/z_{ref}` lies in
:math:`[1/d(ref,j),\,d(j,ref)]`, and for fixed kernels the ratio is monotone in each :math:`u_j`. Its largest value is at a
corner, where both balls are extremised by themselves. Up to three successors of the base are enumerated; the others are
taken at their worse end on each side.

**κ.** The better of two: each successor to itself, or to the reference if the base does not have it; or a coupling of the
two empirical laws, tilted by :math:`e^{\beta r}Z^{\hat\pi}`: what both have in common stays, the rest is spread.

**Common noise.** Where two rows share a law (``entropic_bpi.problem.noise``) and the classes of one lie in those of the
other, one :math:`q` of the finer ball decides both. With :math:`n_w,d_w` the successors of class :math:`w`, the ratio is at
most the smallest :math:`\lambda` with :math:`\max_q\sum_w q_w(c_N(w)V(n_w,d_w)-\lambda c_D(w))z_w\le0`
(:math:`\beta<0`: :math:`c_N(w)-\lambda c_D(w)/V(n_w,d_w)`), each :math:`z_w` of the base at the end of its box that its
coefficient's sign asks for. The smaller of both bounds counts.

**Recursion.** For each state: ``same`` of the gap certificate with absolute and with relative weights, and for each other
action the smallest of its two bounds there and of the lemma with :math:`V=R`; actions for which that exceeds 1 are
*contested*. For each pair: the lemma with :math:`V=d`, and for the optimal side the lemma with :math:`V=R` for the
candidate's own and the contested actions. An action that is at most :math:`v` times better than the candidate in that state
is worth at most :math:`v\,d`, and a bound that is not contested is at most :math:`d`.

The work grows with the square of the number of successors of the states that can be occupied at a step, under the
candidate or a deviation that is not ruled out at once. Above ``MOST_PAIRS`` pairs of successors per plan the certificate is
not computed: that is 200,000 pairs of states with three successors each.

**Underflow.** d, R and products such as R(i, j) d(j, k) are upper bounds of quotients of two Z, so they are at least e^-600.
What may underflow are lower bounds, for which 0 is safe, and the shares κ: the lemma holds for any that add up to 1, and
``ROUNDING`` has room for the difference.
"""

from __future__ import annotations

import numpy as np

from entropic_bpi.compile.decorators import compiled, inner
from entropic_bpi.methods.kl.gap import (
    action_weight,
    deviation_ratio,
    ratio_of,
    same_ratio,
    slot_weight,
)
from entropic_bpi.methods.kl.pair_lemma import ROUNDING, compare_rows, most_frequent
from entropic_bpi.methods.kl.records import (
    Box,
    Candidate,
    Deviation,
    Optimism,
    PairBuffers,
    PairRows,
    PairScratch,
    Place,
    PlanConstants,
    Relations,
    Scratch,
    StepStates,
    new_scratch,
    new_sheets,
)
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.noise import Balls
from entropic_bpi.problem.rows import Frame, actions_at, row_of

MOST_PAIRS = 1_800_000


@inner
def _write_out(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    place: Place,
    a: int,
    next: Relations,
    rows: PairRows,
    r: int,
    desk: PairScratch,
) -> None:
    """Copy one row of the kernel, with e^{βr} of the action in its weights."""
    row, weight = row_of(frame, place.h, place.s, a), action_weight(frame, rules, place, a)
    begin, step, different = arrays.begin[row], place.h - frame.artificial, 0
    rows.used[r], rows.visits[r], rows.radius[r] = arrays.used[row], arrays.visits[row], rules.radius[row]
    rows.pair[r] = row
    for i in range(arrays.used[row]):
        p = next.position[arrays.successor[begin + i]]
        k = desk.known[p]
        if k < 0:
            k = desk.known[p] = different
            rows.place[r, k], rows.seen[r, k] = p, 0.0
            different += 1
        rows.number[r, i] = k
        rows.tally[r, i] = arrays.tally[begin + i]
        rows.seen[r, k] += arrays.tally[begin + i]
        rows.low[r, i] = weight * slot_weight(rules, arrays, step, begin + i, False)
        rows.high[r, i] = weight * slot_weight(rules, arrays, step, begin + i, True)
    rows.different[r] = different
    for k in range(different):
        desk.known[rows.place[r, k]] = -1


@inner
def _same(
    rules: PlanConstants,
    arrays: CountArrays,
    deviation: Deviation,
    box: Box,
    next: Relations,
    plain: float,
    rows: PairRows,
    r: int,
    desk: PairScratch,
    scratch: Scratch,
) -> float:
    """``same`` of the gap certificate, with weights in a box of values and in one relative to a frequent successor.

    Weights relative to that may underflow, which ``same_ratio`` expects.
    """
    row, step = deviation.top, deviation.step
    bound = same_ratio(rules, arrays, row, step, box, 1.0, plain, scratch)
    if bound <= 1.0 or arrays.visits[row] == 0:
        return bound
    ref = rows.place[r, most_frequent(rows, r)]
    for i in range(arrays.used[row]):
        y, p = arrays.successor[arrays.begin[row] + i], rows.place[r, rows.number[r, i]]
        # For β < 0 the weight is Z^π/ρ.
        unit = 1.0 if rules.sign > 0 else 1.0 / next.rho[y]
        desk.box[0, y] = unit if p == ref else unit / next.d[ref, p]
        desk.box[1, y] = unit if p == ref else unit * next.d[p, ref]
    relative = Box(desk.box[0], desk.box[1], box.rho, box.cap)
    return same_ratio(rules, arrays, row, step, relative, 1.0, bound, scratch) * (1.0 + ROUNDING)


@inner
def _one_state(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    sheets: PairBuffers,
    place: Place,
    p: int,
    box: Box,
    ratio: float,
    scratch: Scratch,
) -> tuple[float, int]:
    """ρ of the state at position ``p``, where it comes from, and its gains; ``ratio`` is what the gap certificate says."""
    next, crowd, rows, desk = sheets.next, sheets.crowd, sheets.rows, sheets.desk
    h, s, sign, chosen, first = place.h, place.s, rules.sign, crowd.action[p], p * frame.n_actions
    _write_out(frame, rules, arrays, place, chosen, next, rows, first + chosen, desk)
    crowd.gain[p] = 1.0
    plain = ratio_of(sign, crowd.best[p], crowd.worst[p])
    if plain <= 1.0:
        return 1.0, -1
    worst, turn = 1.0, -1
    for a in range(actions_at(frame, h)):
        top, bottom = (a, chosen) if sign > 0 else (chosen, a)
        weight = action_weight(frame, rules, place, top) / action_weight(frame, rules, place, bottom)
        over, under = row_of(frame, h, s, top), row_of(frame, h, s, bottom)
        deviation = Deviation(h - frame.artificial, over, under, weight)
        if a == chosen:
            bound = _same(rules, arrays, deviation, box, next, plain, rows, first + a, desk, scratch)
        else:
            bound = ratio_of(sign, crowd.backup[p, a], crowd.worst[p])
            if not bound <= 1.0:
                bound = deviation_ratio(rules, arrays, deviation, box, bound, scratch)
            if not bound <= 1.0:
                _write_out(frame, rules, arrays, place, a, next, rows, first + a, desk)
                bound = compare_rows(rows, first + top, first + bottom, next.d, next.r, bound, desk)
        if not bound <= 1.0:
            crowd.gain[p, a] = bound
            if not bound <= worst:
                worst, turn = bound, -1 if a == chosen else a
    bound = min(worst, plain, ratio)
    return max(1.0, bound * (1.0 + ROUNDING)) if bound < np.inf else np.inf, turn


@inner
def _one_pair(
    crowd: StepStates, p: int, q: int, rho: float, next: Relations, rows: PairRows, desk: PairScratch
) -> tuple[float, float]:
    """d and R of the states at two positions; ``rho`` is that of the one on the optimal side."""
    positive, actions = rows.sign > 0, crowd.gain.shape[1]
    mine, theirs = p * actions + crowd.action[p], q * actions + crowd.action[q]
    z, w = (p, q) if positive else (q, p)
    plain = ratio_of(rows.sign, crowd.best[z], crowd.worst[w])
    limit = ratio_of(1.0, crowd.top[p], crowd.worst[q]) if positive else plain
    d = compare_rows(rows, mine, theirs, next.d, next.d, limit * (1.0 + ROUNDING), desk)
    worst = d
    for a in range(actions):
        limit = ratio_of(rows.sign, crowd.backup[z, a], crowd.worst[w])
        limit = min(limit, crowd.gain[z, a] * d) * (1.0 + ROUNDING)
        if crowd.gain[z, a] > 1.0 and not limit <= worst:
            top, bottom = (p * actions + a, theirs) if positive else (mine, q * actions + a)
            worst = max(worst, compare_rows(rows, top, bottom, next.d, next.r, limit, desk))
    bound = min(worst, min(plain, rho * d) * (1.0 + ROUNDING))
    return min(d, bound), bound


@compiled
def _occupy(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    occupied: np.ndarray,
    most: int,
) -> int:
    """Mark where the candidate, or a deviation that is not ruled out at once, can be at each step.

    Returns the number of pairs of successors of the candidate's rows, counted until it exceeds ``most``.
    """
    pairs = 0
    occupied[0, frame.start] = True
    for h in range(frame.steps):
        successors = 0
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            if not occupied[h, s]:
                continue
            for a in range(actions_at(frame, h)):
                row, own = row_of(frame, h, s, a), a == min(plan.policy[h, s], actions_at(frame, h) - 1)
                successors += arrays.used[row] if own else 0
                ruled_out = ratio_of(rules.sign, optimism.u[h, s, a], plan.z[h, s]) <= 1.0
                if h == frame.steps - 1 or (ruled_out and not own):
                    continue
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    y = arrays.successor[j]
                    if y == frame.n_states and not occupied[h + 1, y]:  # anything that can be reached
                        for k in range(frame.first_state[h + 1], frame.first_state[h + 2]):
                            occupied[h + 1, frame.states[k]] = True
                    occupied[h + 1, y] = True
        pairs += successors * successors
        if pairs > most:
            break
    return pairs


@inner
def _close(now: Relations, count: int) -> None:
    """Give elsewhere the worst that any state can do, in its own column too: two unseen states need not be the same."""
    now.rho[-1] = 1.0
    for x in range(count):
        now.rho[-1] = max(now.rho[-1], now.r[x, x])
    for table in (now.d, now.r):
        for x in range(count):
            table[x, count] = table[count, x] = 1.0
            for y in range(count):
                table[x, count] = max(table[x, count], table[x, y])
                table[count, x] = max(table[count, x], table[y, x])
        table[count, count] = 1.0
        for x in range(count):
            table[count, count] = max(table[count, count], table[x, count])


@compiled
def _step(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    h: int,
    occupied: np.ndarray,
    sheets: PairBuffers,
    scratch: Scratch,
) -> None:
    """Relate the occupied states of one step, from the relations of the next."""
    now, next, crowd, rows, desk = sheets.now, sheets.next, sheets.crowd, sheets.rows, sheets.desk
    low, cap = (plan.z, optimism.z) if rules.sign > 0 else (optimism.z, plan.z)
    box = Box(low[h + 1], plan.high[h + 1], next.rho, cap[h + 1])
    now.position[-1] = 0  # elsewhere comes last
    for i in range(frame.first_state[h], frame.first_state[h + 1]):
        s, p = frame.states[i], now.position[-1]
        if not occupied[s]:
            continue
        now.position[-1] += 1
        crowd.action[p] = min(plan.policy[h, s], actions_at(frame, h) - 1)
        crowd.best[p], crowd.worst[p], crowd.top[p] = optimism.z[h, s], plan.z[h, s], plan.high[h, s]
        for a in range(frame.n_actions):
            crowd.backup[p, a] = optimism.u[h, s, a]
        rho, now.turn[s] = _one_state(frame, rules, arrays, sheets, Place(h, s), p, box, plan.rho[h, s], scratch)
        now.position[s], now.rho[s], now.r[p, p], now.d[p, p] = p, rho, rho, 1.0
    count = now.position[-1]
    for p in range(count):
        for q in range(count):
            if p != q:
                rho = now.r[p, p] if rules.sign > 0 else now.r[q, q]
                now.d[p, q], now.r[p, q] = _one_pair(crowd, p, q, rho, next, rows, desk)
    _close(now, count)


def occupied_states(
    frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, plan: Candidate
) -> np.ndarray | None:
    """Which states ``(steps, S)`` the certificate of the candidate is about; None if they make too many pairs."""
    occupied = np.zeros((frame.steps, frame.n_states + 1), dtype=np.bool_)
    pairs = _occupy(frame, rules, arrays, optimism, plan, occupied, MOST_PAIRS)
    return occupied[:, :-1] if pairs <= MOST_PAIRS else None


@compiled
def relate(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    occupied: np.ndarray,
    sheets: PairBuffers,
    scratch: Scratch,
    turn: np.ndarray,
) -> float:
    """How much better than the candidate any policy can be, and into ``turn`` ``(steps, S)`` where it turns from it."""
    rho = np.inf
    for h in range(frame.steps - 1, -1, -1):
        _step(frame, rules, arrays, optimism, plan, h, occupied[h], sheets, scratch)
        for s in range(frame.n_states):
            turn[h, s] = sheets.now.turn[s] if occupied[h, s] else -1
        rho = sheets.now.rho[frame.start]
        sheets = PairBuffers(sheets.next, sheets.now, sheets.crowd, sheets.rows, sheets.desk)
    return rho


def pair_ratio(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    occupied: np.ndarray,
    balls: Balls | None = None,
) -> tuple[float, np.ndarray]:
    """How much better than the candidate any policy can be, as a ratio of Z, and where it turns from it, ``(steps, S)``.

    ``optimism`` and ``plan`` are those of the gap certificate, from the same counts; ``balls`` those of declared noise.
    """
    turn = np.empty(occupied.shape, dtype=np.int64)
    rho = relate(frame, rules, arrays, optimism, plan, occupied, *_memory(frame, rules, occupied, balls), turn)
    return float(rho), turn


def _memory(
    frame: Frame, rules: PlanConstants, occupied: np.ndarray, balls: Balls | None = None
) -> tuple[PairBuffers, Scratch]:
    sheets = new_sheets(rules, frame.n_states, frame.n_actions, int(occupied.sum(axis=1).max()), balls)
    return sheets, Scratch(*(layer[0] for layer in new_scratch(rules, frame.n_actions, 1)))
