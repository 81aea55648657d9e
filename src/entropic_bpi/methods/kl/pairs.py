r"""The pair certificate: relative values of pairs of states instead of boxes of absolute ones.

:mod:`entropic_bpi.methods.kl.gap` compares the optimum with the candidate in one state. The uncertainty of the values of
later states cancels only if both lead to the same states. Here *pairs* of states are compared, backwards from 1:

.. math:: d_h(x,y) \ge Z^{\hat\pi}_h(x)/Z^{\hat\pi}_h(y),\qquad
          R_h(x,y) \ge Z^\star_h(x)/Z^{\hat\pi}_h(y)\ (\beta>0),\quad Z^{\hat\pi}_h(x)/Z^\star_h(y)\ (\beta<0),

and :math:`\rho_h(s)=R_h(s,s)`. The event and the test are the same: :math:`\log\rho_1(s_1)\le|\beta|\varepsilon`
(Proposition 3 on the page "The KL method").

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

import numpy as np

from entropic_bpi.compile.decorators import compiled, inlined, inner
from entropic_bpi.methods.kl.gap import action_weight, deviation_ratio, ratio_of, same_ratio, slot_weight
from entropic_bpi.methods.kl.pair_lemma import ROUNDING, compare_rows, most_frequent
from entropic_bpi.methods.kl.records import Box, Candidate, Inputs, Optimism, PairBuffers, Relations, new_pair_buffers
from entropic_bpi.methods.kl.states import deviation_of
from entropic_bpi.problem.noise import Balls
from entropic_bpi.problem.rows import Frame, actions_at, row_of
from entropic_bpi.types import Integers

MOST_PAIRS = 1_800_000


@inner
def _write_out(inputs: Inputs, buffers: PairBuffers, h: int, s: int, a: int, r: int) -> None:
    """Copy one row of the kernel, with e^{βr} of the action in its weights."""
    frame, rules, arrays, _ = inputs
    rows, known = buffers.rows, buffers.scratch.known
    row, weight = row_of(frame, h, s, a), action_weight(frame, rules, h, s, a)
    begin, step, different = arrays.begin[row], h - frame.artificial, 0
    rows.row[r] = row
    for i in range(arrays.used[row]):
        p = buffers.next.position[arrays.successor[begin + i]]
        k = known[p]
        if k < 0:
            k = known[p] = different
            rows.position[r, k], rows.seen[r, k] = p, 0.0
            different += 1
        rows.number[r, i] = k
        rows.seen[r, k] += arrays.tally[begin + i]
        rows.low[r, i] = weight * slot_weight(rules, arrays, step, begin + i, False)
        rows.high[r, i] = weight * slot_weight(rules, arrays, step, begin + i, True)
    rows.different[r] = different
    for k in range(different):
        known[rows.position[r, k]] = -1


@inner
def _same(inputs: Inputs, buffers: PairBuffers, row: int, step: int, r: int, box: Box, plain: float) -> float:
    """Return ``same`` of the gap certificate, with weights in a box of values and in one relative to a frequent successor.

    Relative weights may underflow, which ``same_ratio`` allows for.
    """
    arrays, rows, next, ends = inputs.arrays, buffers.rows, buffers.next, buffers.scratch.box
    bound = same_ratio(inputs, row, step, box, 1.0, plain)
    if bound <= 1.0 or arrays.visits[row] == 0:
        return bound
    ref = rows.position[r, most_frequent(rows, r)]
    for i in range(arrays.used[row]):
        y, p = arrays.successor[arrays.begin[row] + i], rows.position[r, rows.number[r, i]]
        # For β < 0 the weight is Z^π/ρ.
        unit = 1.0 if inputs.rules.sign > 0 else 1.0 / next.rho[y]
        ends[0, y] = unit if p == ref else unit / next.d[ref, p]
        ends[1, y] = unit if p == ref else unit * next.d[p, ref]
    relative = Box(ends[0], ends[1], box.rho, box.cap)
    return same_ratio(inputs, row, step, relative, 1.0, bound) * (1.0 + ROUNDING)


@inner
def _one_state(
    inputs: Inputs, optimism: Optimism, plan: Candidate, h: int, p: int, box: Box, buffers: PairBuffers
) -> tuple[float, int]:
    """Return ρ of the state at position ``p`` and the action that it comes from; fill in the state's gains."""
    s, gain, first = buffers.states[p], buffers.gain, p * inputs.frame.n_actions
    sign, chosen = inputs.rules.sign, min(plan.policy[h, s], actions_at(inputs.frame, h) - 1)
    _write_out(inputs, buffers, h, s, chosen, first + chosen)
    gain[p] = 1.0
    plain = ratio_of(sign, optimism.z[h, s], plan.z[h, s])
    if plain <= 1.0:
        return 1.0, -1
    worst, switch_action = 1.0, -1
    for a in range(actions_at(inputs.frame, h)):
        deviation = deviation_of(inputs.frame, inputs.rules, h, s, chosen, a)
        if a == chosen:
            bound = _same(inputs, buffers, deviation.top, deviation.step, first + a, box, plain)
        else:
            bound = ratio_of(sign, optimism.u[h, s, a], plan.z[h, s])
            if not bound <= 1.0:
                bound = deviation_ratio(inputs, deviation, box, bound)
            if not bound <= 1.0:
                _write_out(inputs, buffers, h, s, a, first + a)
                top, bottom = (a, chosen) if sign > 0 else (chosen, a)
                bound = compare_rows(inputs, buffers, first + top, first + bottom, buffers.next.r, bound)
        if not bound <= 1.0:
            gain[p, a] = bound
            if not bound <= worst:
                worst, switch_action = bound, -1 if a == chosen else a
    bound = min(worst, plain, plan.rho[h, s])
    return max(1.0, bound * (1.0 + ROUNDING)) if bound < np.inf else np.inf, switch_action


@inner
def _one_pair(
    inputs: Inputs, optimism: Optimism, plan: Candidate, h: int, p: int, q: int, buffers: PairBuffers
) -> tuple[float, float]:
    """Return d and R of the states at two positions."""
    sign, gain, next = inputs.rules.sign, buffers.gain, buffers.next
    positive, actions, x, y = sign > 0, inputs.frame.n_actions, buffers.states[p], buffers.states[q]
    mine, theirs = p * actions + plan.policy[h, x], q * actions + plan.policy[h, y]
    z, s, w = (p, x, y) if positive else (q, y, x)  # the former on the optimal side
    plain = ratio_of(sign, optimism.z[h, s], plan.z[h, w])
    limit = ratio_of(1.0, plan.high[h, x], plan.z[h, y]) if positive else plain
    d = compare_rows(inputs, buffers, mine, theirs, next.d, limit * (1.0 + ROUNDING))
    worst = d
    for a in range(actions):
        limit = ratio_of(sign, optimism.u[h, s, a], plan.z[h, w])
        limit = min(limit, gain[z, a] * d) * (1.0 + ROUNDING)
        if gain[z, a] > 1.0 and not limit <= worst:
            top, bottom = (p * actions + a, theirs) if positive else (mine, q * actions + a)
            worst = max(worst, compare_rows(inputs, buffers, top, bottom, next.r, limit))
    bound = min(worst, min(plain, buffers.now.r[z, z] * d) * (1.0 + ROUNDING))
    return min(d, bound), bound


@inlined
def mark_state(frame: Frame, marked: np.ndarray, h: int, y: int) -> None:
    """Mark a state of step ``h`` in ``marked`` ``(.., S + 1)``; "elsewhere" marks all states that can be reached."""
    if y == frame.n_states and not marked[h, y]:
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            marked[h, frame.states[i]] = True
    marked[h, y] = True


@compiled
def _occupy(inputs: Inputs, optimism: Optimism, plan: Candidate, occupied: np.ndarray, most: int) -> int:
    """Mark the states that the candidate, or a deviation that is not ruled out at once, can reach at each step.

    Returns the number of pairs of successors of the candidate's rows, counted until it exceeds ``most``.
    """
    frame, rules, arrays, _ = inputs
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
                if h < frame.steps - 1 and (own or not ruled_out):
                    for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                        mark_state(frame, occupied, h + 1, arrays.successor[j])
        pairs += successors * successors
        if pairs > most:
            break
    return pairs


@inner
def _close(now: Relations, count: int) -> None:
    """Give "elsewhere" the largest entries of all states, on its diagonal too: two unseen states may be different ones."""
    now.rho[-1] = 1.0
    for x in range(count):
        now.rho[-1] = max(now.rho[-1], now.r[x, x])
    for table in (now.d, now.r):
        table[count, count] = 1.0
        for x in range(count):
            table[x, count] = table[count, x] = 1.0
            for y in range(count):
                table[x, count] = max(table[x, count], table[x, y])
                table[count, x] = max(table[count, x], table[y, x])
            table[count, count] = max(table[count, count], table[x, count])


@compiled
def _step(
    inputs: Inputs, optimism: Optimism, plan: Candidate, h: int, occupied: np.ndarray, buffers: PairBuffers
) -> None:
    """Compute the relations of the occupied states of one step from those of the next."""
    frame, now, count = inputs.frame, buffers.now, 0
    low, cap = (plan.z, optimism.z) if inputs.rules.sign > 0 else (optimism.z, plan.z)
    box = Box(low[h + 1], plan.high[h + 1], buffers.next.rho, cap[h + 1])
    for i in range(frame.first_state[h], frame.first_state[h + 1]):
        s, p = frame.states[i], count
        if not occupied[s]:
            continue
        count += 1
        buffers.states[p] = s
        rho, now.switch_action[s] = _one_state(inputs, optimism, plan, h, p, box, buffers)
        now.position[s], now.rho[s], now.r[p, p], now.d[p, p] = p, rho, rho, 1.0
    now.position[-1] = count  # elsewhere comes last
    for p in range(count):
        for q in range(count):
            if p != q:
                now.d[p, q], now.r[p, q] = _one_pair(inputs, optimism, plan, h, p, q, buffers)
    _close(now, count)


@compiled
def relate(
    inputs: Inputs, optimism: Optimism, plan: Candidate, occupied: np.ndarray, buffers: PairBuffers, switches: Integers
) -> float:
    """Return how much better than the candidate any policy can be; fill ``switches`` ``(steps, S)`` with the actions."""
    frame, rho = inputs.frame, np.inf
    for h in range(frame.steps - 1, -1, -1):
        _step(inputs, optimism, plan, h, occupied[h], buffers)
        now, next, states, gain, rows, scratch, noise = buffers
        for s in range(frame.n_states):
            switches[h, s] = now.switch_action[s] if occupied[h, s] else -1
        rho = now.rho[frame.start]
        buffers = PairBuffers(next, now, states, gain, rows, scratch, noise)
    return rho


def occupied_states(inputs: Inputs, optimism: Optimism, plan: Candidate) -> np.ndarray | None:
    """Return the states ``(steps, S)`` that the pair certificate is about; None if they make too many pairs."""
    occupied = np.zeros((inputs.frame.steps, inputs.frame.n_states + 1), dtype=np.bool_)
    pairs = _occupy(inputs, optimism, plan, occupied, MOST_PAIRS)
    return np.ascontiguousarray(occupied[:, :-1]) if pairs <= MOST_PAIRS else None


def pair_ratio(
    inputs: Inputs, optimism: Optimism, plan: Candidate, occupied: np.ndarray, balls: Balls | None = None
) -> tuple[float, Integers]:
    """Return how much better than the candidate any policy can be, as a ratio of Z, and the actions, ``(steps, S)``.

    ``optimism`` and ``plan`` are those of the gap certificate, from the same counts; ``balls`` those of declared noise.
    """
    switches, buffers = np.empty(occupied.shape, dtype=np.int64), buffers_for(inputs, occupied, balls)
    return float(relate(inputs, optimism, plan, occupied, buffers, switches)), switches


def buffers_for(inputs: Inputs, occupied: np.ndarray, balls: Balls | None = None) -> PairBuffers:
    """Return working memory for these occupied states."""
    frame, most = inputs.frame, int(occupied.sum(axis=1).max())
    return new_pair_buffers(inputs.rules, frame.n_states, frame.n_actions, most, balls)
