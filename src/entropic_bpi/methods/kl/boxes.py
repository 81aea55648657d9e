r"""Boxes: the gap certificate on parts of the balls, for rows that are used in many places.

The gap certificate lets a pooled row have another law at every place where it is used. Here the balls are cut: an inner
node of a binary tree has a row, one of its successors and a number :math:`b`; its children are the kernels with
:math:`q(y)\le b` and those with :math:`q(y)\ge b`. **If in every leaf the gap certificate is at most ε for one and the same
candidate, the candidate is ε-optimal on the event**: the true kernel is in some leaf, and there the certificate holds for
every choice of kernels from its sets. Tree and cuts may depend on all data, for on the event nothing is random. A leaf that
holds no kernel of the balls is dropped; for that a *lower* bound of KL over the box must exceed the radius. Other candidates
in other leaves would prove nothing: nobody knows the true leaf.

**Search.** Depth first, the easier half first, at most ``MOST_LEAVES`` leaves. The row and the successor to cut have the
largest width times derivative of the two values that the certificate compares, at the centre of the leaf. The search ends
early where it cannot succeed: the candidate is not ε-optimal at the centre of a leaf; the gap of a leaf is larger than the
remaining cuts can halve; or the leaves that are closed so far are too small for the rest.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, inner
from entropic_bpi.methods.kl.ball import MOST_LABELS, kl_extreme
from entropic_bpi.methods.kl.gap import action_weight, slot_weight
from entropic_bpi.methods.kl.records import Candidate, Optimism, Place, PlanConstants
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame, actions_at, row_of
from entropic_bpi.types import EMPTY, RATIO, Cut

NO_BOXES = np.empty((0, 2, MOST_LABELS))
NO_BOX = 2.0  # the upper end of the interval of a row that is not cut
MOST_LEAVES = 50
# Tried again when the episodes have grown by this factor.
BOX_GROWTH = 1.1
# A gap more times too large is not tried. How many times more leaves than allowed the first ones may promise.
MOST_EXCESS, PROMISE = 8.0, 2.0
_ROUNDING = 1e-15


def cut_rows(problem: Problem) -> np.ndarray:
    """Return the rows that may be cut: pooled, with two to four possible successors that are known and all different."""
    slots, rows = problem.slots, np.empty(0, dtype=np.int64)
    if not problem.stationary or problem.open_ended or problem.horizon < 2:
        return rows
    rows = np.flatnonzero(problem.uncertain[: problem.n_rows - problem.artificial])
    rows = rows[(slots.used[rows] > 1) & (slots.used[rows] <= MOST_LABELS)]
    lists = (slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]] for row in rows)
    return rows[[len(set(some.tolist())) == len(some) for some in lists]] if len(rows) else rows


class Leaf(NamedTuple):
    """A part of the balls: the intervals of all rows that may be cut, which rows are, and what the plan says of it."""

    interval: np.ndarray
    cut: np.ndarray
    depth: int
    gap: float
    turn: np.ndarray
    greedy: np.ndarray


class Centre(NamedTuple):
    """Working memory of a look at the centre of a leaf; ``scores`` ``(rows, 4)`` are what comes of it."""

    law: np.ndarray
    slope: np.ndarray
    z: np.ndarray
    mass: np.ndarray
    value: np.ndarray
    scores: np.ndarray


@compiled
def _marginals(
    rules: PlanConstants, arrays: CountArrays, rows: np.ndarray, interval: np.ndarray, work: np.ndarray
) -> None:
    """Between what each probability of a row lies, given its ball; rounded outwards."""
    f = work[2]
    for i in range(len(rows)):
        row = rows[i]
        begin, size, n, x = arrays.begin[row], arrays.used[row], arrays.visits[row], rules.radius[row]
        tally = arrays.tally[begin : begin + size]
        for j in range(size):
            for k in range(size):
                f[k] = 1.0 if k == j else 0.0
            low = kl_extreme(tally, f, size, n, x, -1.0, rules.tolerance, work)
            high = kl_extreme(tally, f, size, n, x, 1.0, rules.tolerance, work)
            interval[i, 0, j], interval[i, 1, j] = max(0.0, low - _ROUNDING), min(1.0, high + _ROUNDING)


@compiled
def _narrow(interval: np.ndarray, size: int) -> bool:
    """Use that probabilities add up to 1; whether they cannot, however they are rounded."""
    for _ in range(2):
        for j in range(size):
            lows = highs = 0.0
            for k in range(size):
                if k != j:
                    lows += interval[0, k]
                    highs += interval[1, k]
            interval[0, j] = max(interval[0, j], 1.0 - highs - 4.0 * _ROUNDING)
            interval[1, j] = min(interval[1, j], 1.0 - lows + 4.0 * _ROUNDING)
    empty = False
    for j in range(size):
        empty = empty or interval[0, j] > interval[1, j] + 16.0 * _ROUNDING
    return empty


@compiled
def least_divergence(tally: np.ndarray, n: int, low: np.ndarray, high: np.ndarray, size: int) -> float:
    """A number below KL(tally / n, q) for every q of the box.

    For every λ ≥ 0, Σ p log(p/q) + λ(Σ q - 1) is smallest over the box at q = p/λ, cut off at its ends; the best λ makes
    these q add up to 1.
    """
    best, left, right = 0.0, 1e-9, 1e9
    for _ in range(60):
        lam = math.sqrt(left * right)
        total, value, rounding = 0.0, 0.0, 0.0
        for j in range(size):
            p = tally[j] / n
            q = min(max(p / lam, low[j]), high[j])
            total += q
            if p > 0.0:
                term = p * math.log(p / q) if q > 0.0 else np.inf
                value += term
                rounding += abs(term) + p
        value += lam * (total - 1.0) - 16.0 * _ROUNDING * (rounding + lam * (total + 1.0))
        best = value if value > best else best
        if total > 1.0:
            left = lam
        else:
            right = lam
    return best


@inner
def _centre(arrays: CountArrays, rows: np.ndarray, interval: np.ndarray, law: np.ndarray) -> None:
    """A law of every row, by slot: the empirical one, or the centre of its intervals; only to look at."""
    for row in range(arrays.visits.size):
        n, begin = arrays.visits[row], arrays.begin[row]
        for j in range(begin, begin + arrays.used[row]):
            law[j] = arrays.tally[j] / n if n > 0 else 1.0 / arrays.used[row]
    for i in range(len(rows)):
        begin, size, total = arrays.begin[rows[i]], arrays.used[rows[i]], 0.0
        for j in range(size):
            total += interval[i, 0, j] + interval[i, 1, j]
        for j in range(size):
            law[begin + j] = (interval[i, 0, j] + interval[i, 1, j]) / total


@compiled
def _look(
    frame: Frame,
    rules: PlanConstants,
    arrays: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    rows: np.ndarray,
    interval: np.ndarray,
    centre: Centre,
) -> float:
    """The gap of the candidate at the centre of a leaf, and into its ``scores`` what cutting it there may bring.

    Nothing is claimed from it. Three values are carried: of the candidate; of who turns from it where the plan says and goes
    on greedily; and the largest. The derivatives of the first two by each probability are weighed by its width.
    """
    law, slope, z, mass, value, scores = centre
    _centre(arrays, rows, interval, law)
    slope[:], mass[:] = 0.0, 0.0
    for h in range(frame.steps - 1, -1, -1):
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            turn, last, best = plan.turn[h, s], actions_at(frame, h) - 1, -np.inf
            for a in range(last + 1):
                row, weight = row_of(frame, h, s, a), action_weight(frame, rules, Place(h, s), a)
                value[:] = 0.0
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    paid = law[j] * weight * slot_weight(rules, arrays, h - frame.artificial, j, True)
                    for m in range(4):
                        value[m] += paid * z[m, h + 1, arrays.successor[j]]
                if a == min(plan.policy[h, s], last):
                    z[0, h, s] = value[0]
                    if turn < 0:
                        z[1, h, s] = value[1]
                if a == turn:
                    z[1, h, s] = value[2]
                if a == optimism.policy[h, s]:
                    z[2, h, s] = value[2]
                if rules.sign * value[3] > best:
                    best, z[3, h, s] = rules.sign * value[3], value[3]
    mass[0, 0, frame.start] = mass[1, 0, frame.start] = 1.0
    for h in range(frame.steps):
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s, last = frame.states[i], actions_at(frame, h) - 1
            for m in range(3):
                if mass[m, h, s] == 0.0:
                    continue
                a, after = (optimism.policy[h, s] if m == 2 else min(plan.policy[h, s], last)), m
                if m == 1 and plan.turn[h, s] >= 0:
                    a, after = plan.turn[h, s], 2
                row, weight = row_of(frame, h, s, a), action_weight(frame, rules, Place(h, s), a)
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    y, paid = arrays.successor[j], weight * slot_weight(rules, arrays, h - frame.artificial, j, True)
                    slope[min(m, 1), j] += mass[m, h, s] * paid * z[after, h + 1, y]
                    mass[after, h + 1, y] += mass[m, h, s] * paid * law[j]
    for i in range(len(rows)):
        begin, size = arrays.begin[rows[i]], arrays.used[rows[i]]
        for j in range(size):
            scores[i, j] = 0.0
        for m in range(2):
            mean = 0.0
            for j in range(size):
                mean += law[begin + j] * slope[m, begin + j]
            for j in range(size):
                width = interval[i, 1, j] - interval[i, 0, j]
                scores[i, j] += abs(slope[m, begin + j] - mean) / z[m, 0, frame.start] * width
    return rules.sign * math.log(z[3, 0, frame.start] / z[0, 0, frame.start]) / abs(rules.beta)


def _promise(whole: float, gap: float, eps: float, depth: int) -> float:
    """How many leaves there would be if the gap went on to fall as it did from that of the whole by ``depth`` cuts."""
    if depth < 2:
        return 1.0
    fall = math.log(whole / gap) if 0.0 < gap < whole < math.inf else 0.0
    return 2.0 ** min(60.0, depth * math.log(whole / eps) / fall) if fall > 0.0 else math.inf


class Search:
    """The search for a tree of one candidate; ``bound`` plans a leaf, given its intervals, and returns its gap.

    Parameters
    ----------
    records : tuple
        Frame, rules and arrays of the counts.
    rows : int array
        The rows that may be cut.
    sheets : (Optimism, Candidate)
        Where ``bound`` leaves its plan.
    """

    def __init__(self, records: Any, rows: np.ndarray, sheets: tuple[Optimism, Candidate], bound: Any) -> None:
        self.records, self.rows, self.sheets, self.bound = records, rows, sheets, bound
        slots, shape = records[2].successor.size, sheets[0].z.shape
        self.centre = Centre(
            law=np.zeros(slots),
            slope=np.zeros((2, slots)),
            z=np.ones((4, *shape)),
            mass=np.zeros((3, *shape)),
            value=np.zeros(4),
            scores=np.zeros((len(rows), MOST_LABELS)),
        )

    def tree(self, gap: float, eps: float, most: int = MOST_LEAVES) -> tuple[tuple[Cut | str, ...], float] | None:
        """Return the tree in preorder, the smaller half first, and its largest gap; None if that does not reach ``eps``.

        ``gap`` is that of all balls.
        """
        if not gap <= MOST_EXCESS * eps:
            return None
        _, rules, arrays = self.records
        whole = np.zeros((len(self.rows), 2, MOST_LABELS))
        _marginals(rules, arrays, self.rows, whole, np.empty((3, MOST_LABELS)))
        self.nodes: dict[int, Cut | str] = {}
        self.worst, closed, volume = 0.0, 0, 0.0
        uncut = np.zeros(len(self.rows), dtype=np.bool_)
        stack: list[tuple[int, Leaf]] = [(1, self._leaf(whole, uncut, 0))]
        whole_gap = stack[0][1].gap
        while stack:
            name, leaf = stack.pop()
            if leaf.gap <= eps:
                closed, volume = closed + 1, volume + 0.5**leaf.depth
                self.nodes[name] = EMPTY if leaf.gap == -np.inf else RATIO
                self.worst = max(self.worst, leaf.gap)
                continue
            # How many leaves there would be if all were as large as the closed ones, or if all cuts did what the first did.
            promised = closed / volume if closed else _promise(whole_gap, leaf.gap, eps, leaf.depth)
            if not promised <= PROMISE * most or closed + len(stack) + 2 > most:
                return None
            halves = self._cut(name, leaf, eps)
            if halves is None:
                return None
            # The easier half comes first: if already that needs too many leaves, the rest need not be tried.
            stack += sorted(halves, key=lambda half: -half[1].gap)
        return tuple(self._in_order(1)), self.worst

    def _in_order(self, name: int) -> Any:
        yield self.nodes[name]
        if isinstance(self.nodes[name], Cut):
            yield from self._in_order(2 * name)
            yield from self._in_order(2 * name + 1)

    def _cut(self, name: int, leaf: Leaf, eps: float) -> list[tuple[int, Leaf]] | None:
        frame, rules, arrays = self.records
        optimism, plan = self.sheets
        optimism.policy[:], plan.turn[:] = leaf.greedy, leaf.turn
        if not _look(frame, rules, arrays, optimism, plan, self.rows, leaf.interval, self.centre) <= eps:
            return None
        # The first of those that are equal up to rounding, as the two of a row with two successors always are.
        scores = self.centre.scores.ravel()
        i, j = divmod(int(np.argmax(scores >= (1.0 - 1e-9) * scores.max())), MOST_LABELS)
        low, high = leaf.interval[i, :, j]
        row, at = int(self.rows[i]), float(low + (high - low) / 2)
        if not low < at < high:
            return None
        successor = int(arrays.successor[arrays.begin[row] + j])
        self.nodes[name] = Cut(row, (successor,), at)
        halves = []
        for side in (1, 0):
            interval, cut = leaf.interval.copy(), leaf.cut.copy()
            interval[i, side, j], cut[i] = at, True
            empty = self._is_empty(i, interval[i])
            half = (
                leaf._replace(depth=leaf.depth + 1, gap=-np.inf) if empty else self._leaf(interval, cut, leaf.depth + 1)
            )
            halves.append((2 * name + (side == 0), half))
        return halves

    def _is_empty(self, i: int, interval: np.ndarray) -> bool:
        _, rules, arrays = self.records
        row = self.rows[i]
        size, n, begin = arrays.used[row], arrays.visits[row], arrays.begin[row]
        if _narrow(interval, size):
            return True
        if n == 0:
            return False
        low, high = interval
        return bool(least_divergence(arrays.tally[begin : begin + size], n, low, high, size) > rules.radius[row])

    def _leaf(self, interval: np.ndarray, cut: np.ndarray, depth: int) -> Leaf:
        table = np.full((len(self.records[2].visits), 2, MOST_LABELS), NO_BOX)
        table[self.rows[cut]] = interval[cut]
        gap, (optimism, plan) = float(self.bound(table)), self.sheets
        return Leaf(interval, cut, depth, gap, plan.turn.copy(), optimism.policy.copy())
