r"""Boxes: the gap certificate on parts of the balls, for laws that are used in many places.

The gap certificate allows a pooled row a different law at every step, and two rows that share a law of declared noise a
different law each. Here the balls are cut: an inner node of a binary tree has a law :math:`g`, an event :math:`B` of it
and a number :math:`b`; its children are the laws with :math:`q_g(B)\le b` and those with :math:`q_g(B)\ge b`. **If in every
leaf the gap certificate is at most ε for one and the same candidate, the candidate is ε-optimal on the event**: the true
laws are in some leaf, and there the certificate holds for every choice of kernels from its sets. Tree and cuts may depend on
all data, for on the event nothing is random. A leaf that holds no laws of the balls is dropped; for that a *lower* bound of
KL over the box must exceed the radius. Different candidates in different leaves would prove nothing, because the true leaf
is unknown. The proof is on the page "Boxes".

**Laws.** The law of a pooled row is that of its next state. Rows with declared noise share the laws of the noise; the slots
of a row are then events, that is, sets of labels. One table has bounds on the probability of each event of a law. They come
from the balls of all rows that use the law and from the cuts, and are closed under sums of disjoint events. Laws of at most
four labels are cut, so a table has 16 entries.

**Search.** Depth first, the easier half first, at most ``MOST_LEAVES`` leaves. The law and the event to cut have the largest
width times derivative of the two values that the certificate compares, at the centre of the leaf. The search ends early
if it cannot succeed: the candidate is not ε-optimal at the centre of a leaf; the gap falls too slowly; or the closed leaves
are so small that too many would be needed.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import allocating, compiled
from entropic_bpi.methods.kl.ball import MOST_LABELS, kl_extreme
from entropic_bpi.methods.kl.gap import action_weight, ball_of, slot_weight
from entropic_bpi.methods.kl.records import Candidate, Inputs, Optimism
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import actions_at, is_allowed, row_of
from entropic_bpi.types import EMPTY, RATIO, Cut, Integers, Reals

MOST_LEAVES = 50
# With more laws, cutting fewer than MOST_LEAVES of them changes little, and takes longer than the plans.
MOST_LAWS = 400
# Tried again when the episodes have grown by this factor.
BOX_GROWTH = 1.1
# Boxes are not tried if the gap is more times larger than ε. The first leaves may predict this many times the allowed ones.
MOST_EXCESS, PROMISE = 8.0, 2.0
EVENTS = 1 << MOST_LABELS
_ROUNDING = 1e-15


Tree = tuple[Cut | str, ...]
"""Cuts and leaves in preorder, the smaller half first."""


class Laws(NamedTuple):
    """The rows whose law may be cut, which law each has, and the labels of its slots as sets of bits, ``(rows, 4)``.

    ``one_of`` are positions of rows: one for each different ball. Certificates know the laws by ``number`` and their labels
    by ``names`` ``(laws, 4)``: of declared noise those of law and label, of pooled rows those of row and next state.
    """

    rows: Integers
    law: Integers
    labels: Integers
    one_of: Integers
    number: Integers
    names: Integers


def no_boxes(rows: int) -> Reals:
    """Return the intervals of rows that are not cut, whose upper end is 2."""
    return np.full((rows, 2, MOST_LABELS), 2.0)


def laws_of(problem: Problem) -> Laws:
    """Return the laws that may be cut: those of two to four labels of declared noise, or of pooled rows whose possible next
    states are known and all different."""
    slots, balls = problem.slots, problem.balls
    rows = np.flatnonzero(problem.uncertain[: problem.n_rows - problem.artificial])
    if not problem.stationary or problem.successors == "unknown" or problem.horizon < 2:
        rows = rows[:0]
    if balls is not None and len(rows):
        rows = rows[(balls.slot_of_label[rows] >= 0).sum(axis=1) <= MOST_LABELS]
        labels = np.zeros((len(rows), MOST_LABELS), dtype=np.int64)
        for label, slot in enumerate(balls.slot_of_label[rows, :MOST_LABELS].T):
            labels[np.flatnonzero(slot >= 0), slot[slot >= 0]] |= 1 << label
        law, one_of = balls.law[balls.of_pair[rows]], np.unique(balls.of_pair[rows], return_index=True)[1]
        each = np.arange(len(problem.noise.labels) if problem.noise else 0)
        return Laws(rows, law, labels, one_of, each, np.tile(np.arange(MOST_LABELS), (len(each), 1)))
    rows = rows[(slots.used[rows] > 1) & (slots.used[rows] <= MOST_LABELS)]
    lists = [slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]].tolist() for row in rows]
    known = [problem.n_states not in some and len(set(some)) == len(some) for some in lists]
    rows = rows[np.array(known, dtype=np.bool_)]
    labels = (1 << np.arange(MOST_LABELS)) * (np.arange(MOST_LABELS) < slots.used[rows][:, None])
    each, at = np.arange(len(rows)), slots.begin[rows][:, None] + np.arange(MOST_LABELS)
    return Laws(rows, each, labels, each, rows, slots.successor[np.minimum(at, len(slots.successor) - 1)])


# -- tables of bounds on the probability of each event of each law, (laws, 16, 2) ------------------------------------


@compiled
def _close(table: Reals) -> bool:
    """Improve a table by sums of disjoint events; return whether certainly no law fits."""
    empty = False
    for _ in range(2):
        for a in range(1, EVENTS):
            for b in range(1, EVENTS):
                if a & b == 0:
                    both = a | b
                    table[both, 0] = max(table[both, 0], table[a, 0] + table[b, 0] - _ROUNDING)
                    table[both, 1] = min(table[both, 1], table[a, 1] + table[b, 1] + _ROUNDING)
                    table[a, 0] = max(table[a, 0], table[both, 0] - table[b, 1] - _ROUNDING)
                    table[a, 1] = min(table[a, 1], table[both, 1] - table[b, 0] + _ROUNDING)
    for a in range(EVENTS):
        empty = empty or table[a, 0] > table[a, 1] + 100.0 * _ROUNDING
    return empty


def _whole(inputs: Inputs, laws: Laws) -> Reals:
    """Return the table of all balls, rounded outwards."""
    table = np.zeros((len(laws.number), EVENTS, 2))
    table[:, :, 1] = 1.0
    full = np.bitwise_or.reduce(laws.labels, axis=1)
    table[laws.law, full, 0], table[laws.law, 0, 1] = 1.0, 0.0
    for label in 1 << np.arange(MOST_LABELS):  # numbers without a label have probability 0
        table[laws.law[full & label == 0], label, 1] = 0.0
    for i in laws.one_of.tolist():
        own, (tally, size, n, x) = table[laws.law[i]], ball_of(inputs, laws.rows[i])
        tolerance, work = inputs.rules.tolerance, inputs.scratch.work
        for event, f in zip(laws.labels[i, :size], np.eye(size), strict=True):
            low, high = (kl_extreme(tally, f, size, n, x, sign, tolerance, work) for sign in (-1.0, 1.0))
            own[event] = max(own[event, 0], low - _ROUNDING), min(own[event, 1], high + _ROUNDING)
    for own in table:
        _close(own)
    return table


def _intervals(rows: int, laws: Laws, table: Reals, cut: np.ndarray) -> Reals:
    """Return the boxes ``(rows, 2, 4)`` of all rows whose law is cut."""
    interval, chosen = no_boxes(rows), cut[laws.law]
    own = table[laws.law[chosen, None], laws.labels[chosen]]
    interval[laws.rows[chosen]] = np.clip(own, 0.0, 1.0).transpose(0, 2, 1)
    return interval


def _is_empty(inputs: Inputs, laws: Laws, g: int, table: Reals) -> bool:
    """Return whether a leaf whose law ``g`` was cut certainly holds no law; its table is closed first."""
    if _close(table[g]):
        return True
    for i in laws.one_of[laws.law[laws.one_of] == g].tolist():
        tally, size, n, radius = ball_of(inputs, laws.rows[i])
        low, high = np.clip(table[g, laws.labels[i]], 0.0, 1.0).T.copy()
        if n > 0 and least_divergence(tally, n, low, high, size) > radius:
            return True
    return False


@compiled
def least_divergence(tally: Integers, n: int, low: Reals, high: Reals, size: int) -> float:
    """Return a number below KL(tally / n, q) for every q of the box ("Empty leaves" on the page "Boxes").

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


# -- where to cut: no claim depends on it ----------------------------------------------------------------------------


@allocating
def _look(inputs: Inputs, optimism: Optimism, plan: Candidate, laws: Laws, table: Reals) -> tuple[float, Reals]:
    """Return the candidate's gap at the centre of a leaf, and a score ``(laws, 16)`` of each event for the next cut.

    Rows have their empirical law, or the centre of its box. Three values are computed: that of the candidate; that of the
    policy which switches from it where the plan says and goes on greedily; and the largest. A score is the width of an event
    times the derivatives of the first two values by its probability.
    """
    frame, rules, arrays, _ = inputs
    law, slope, scores = np.zeros(arrays.tally.size), np.zeros((2, arrays.tally.size)), np.zeros((len(table), EVENTS))
    z, mass, value = np.ones((4, *plan.z.shape)), np.zeros((3, *plan.z.shape)), np.zeros(4)
    for row in range(arrays.visits.size):
        n, begin = arrays.visits[row], arrays.begin[row]
        for j in range(begin, begin + arrays.used[row]):
            law[j] = arrays.tally[j] / n if n > 0 else 1.0 / arrays.used[row]
    for i in range(len(laws.rows)):
        begin, own, total = arrays.begin[laws.rows[i]], table[laws.law[i]], 0.0
        for label in range(MOST_LABELS):
            total += own[1 << label, 0] + own[1 << label, 1]
        for j in range(arrays.used[laws.rows[i]]):
            law[begin + j] = 0.0
            for label in range(MOST_LABELS):
                if laws.labels[i, j] >> label & 1:
                    law[begin + j] += (own[1 << label, 0] + own[1 << label, 1]) / total
    for h in range(frame.steps - 1, -1, -1):
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            switch, last, best = plan.switch_action[h, s], actions_at(frame, h) - 1, -np.inf
            for a in range(last + 1):
                row, weight = row_of(frame, h, s, a), action_weight(frame, rules, h, s, a)
                value[:] = 0.0
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    paid = law[j] * weight * slot_weight(rules, arrays, h - frame.artificial, j, True)
                    for m in range(4):
                        value[m] += paid * z[m, h + 1, arrays.successor[j]]
                if a == min(plan.policy[h, s], last):
                    z[0, h, s] = value[0]
                    if switch < 0:
                        z[1, h, s] = value[1]
                if a == switch:
                    z[1, h, s] = value[2]
                if a == optimism.policy[h, s]:
                    z[2, h, s] = value[2]
                if is_allowed(frame, h, s, a) and rules.sign * value[3] > best:
                    best, z[3, h, s] = rules.sign * value[3], value[3]
    mass[0, 0, frame.start] = mass[1, 0, frame.start] = 1.0
    for h in range(frame.steps):
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s, last = frame.states[i], actions_at(frame, h) - 1
            for m in range(3):
                if mass[m, h, s] == 0.0:
                    continue
                a, after = (optimism.policy[h, s] if m == 2 else min(plan.policy[h, s], last)), m
                if m == 1 and plan.switch_action[h, s] >= 0:
                    a, after = plan.switch_action[h, s], 2
                row, weight = row_of(frame, h, s, a), action_weight(frame, rules, h, s, a)
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    y, paid = arrays.successor[j], weight * slot_weight(rules, arrays, h - frame.artificial, j, True)
                    slope[min(m, 1), j] += mass[m, h, s] * paid * z[after, h + 1, y]
                    mass[after, h + 1, y] += mass[m, h, s] * paid * law[j]
    for i in range(len(laws.rows)):
        begin, size, g = arrays.begin[laws.rows[i]], arrays.used[laws.rows[i]], laws.law[i]
        for m in range(2):
            mean = 0.0
            for j in range(size):
                mean += law[begin + j] * slope[m, begin + j]
            for j in range(size):
                event = laws.labels[i, j]
                width = table[g, event, 1] - table[g, event, 0]
                scores[g, event] += abs(slope[m, begin + j] - mean) / z[m, 0, frame.start] * width
    return rules.sign * math.log(z[3, 0, frame.start] / z[0, 0, frame.start]) / abs(rules.beta), scores


# -- the search ------------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A part of the balls: the table of every law, which laws are cut, and the results of its plan."""

    table: Reals
    cut: np.ndarray
    depth: int
    gap: float
    switch_action: Integers
    greedy: Integers


def _promise(whole: float, gap: float, eps: float, depth: int) -> float:
    """Return how many leaves are predicted if the gap falls at every cut as it did in the first ``depth`` cuts."""
    if depth < 2:
        return 1.0
    fall = math.log(whole / gap) if 0.0 < gap < whole < math.inf else 0.0
    return 2.0 ** min(60.0, depth * math.log(whole / eps) / fall) if fall > 0.0 else math.inf


class Search:
    """The search for a tree of one candidate; ``bound`` plans a leaf, given its boxes, and returns its gap.

    Parameters
    ----------
    inputs : Inputs
        The inputs of plans without boxes.
    laws : Laws
        The laws that may be cut.
    planned : (Optimism, Candidate)
        Where ``bound`` leaves its plan.
    """

    def __init__(
        self, inputs: Inputs, laws: Laws, planned: tuple[Optimism, Candidate], bound: Callable[[Reals], float]
    ) -> None:
        self.inputs, self.laws, self.planned, self.bound = inputs, laws, planned, bound

    def tree(self, gap: float, eps: float, most: int = MOST_LEAVES) -> tuple[Tree, float] | None:
        """Return the tree and its largest gap; None if that does not reach ``eps``. ``gap`` is that of all balls."""
        if not gap <= MOST_EXCESS * eps:
            return None
        self.nodes: dict[int, Cut | str] = {}
        first = self._leaf(_whole(self.inputs, self.laws), np.zeros(len(self.laws.number), dtype=np.bool_), 0)
        worst, closed, volume, stack = 0.0, 0, 0.0, [(1, first)]
        while stack:
            name, leaf = stack.pop()
            if leaf.gap <= eps:
                closed, volume, worst = closed + 1, volume + 0.5**leaf.depth, max(worst, leaf.gap)
                self.nodes[name] = EMPTY if leaf.gap == -np.inf else RATIO
                continue
            # The predicted number of leaves, if all were as large as the closed ones, or all cuts as good as the first ones.
            promised = closed / volume if closed else _promise(first.gap, leaf.gap, eps, leaf.depth)
            if not promised <= PROMISE * most or closed + len(stack) + 2 > most:
                return None
            halves = self._cut(name, leaf, eps)
            if halves is None:
                return None
            # The easier half comes first: if it needs too many leaves, the other one need not be tried.
            stack += sorted(halves, key=lambda half: -half[1].gap)
        return tuple(self._in_order(1)), worst

    def _in_order(self, name: int) -> Iterator[Cut | str]:
        yield self.nodes[name]
        if isinstance(self.nodes[name], Cut):
            yield from self._in_order(2 * name)
            yield from self._in_order(2 * name + 1)

    def _cut(self, name: int, leaf: Leaf, eps: float) -> list[tuple[int, Leaf]] | None:
        optimism, plan = self.planned
        optimism.policy[:], plan.switch_action[:] = leaf.greedy, leaf.switch_action
        gap, scores = _look(self.inputs, optimism, plan, self.laws, leaf.table)
        if not gap <= eps:
            return None
        # The first of those with equal scores up to rounding, as an event and its complement have.
        g, event = divmod(int(np.argmax(scores >= (1.0 - 1e-9) * scores.max())), EVENTS)
        low, high = leaf.table[g, event]
        at = float(low + (high - low) / 2)
        if not low < at < high:
            return None
        names = self.laws.names[g, (event >> np.arange(MOST_LABELS) & 1) == 1]
        self.nodes[name] = Cut(int(self.laws.number[g]), tuple(names.tolist()), at)
        halves = []
        for side in (1, 0):
            table, cut = leaf.table.copy(), leaf.cut.copy()
            table[g, event, side], cut[g] = at, True
            empty = _is_empty(self.inputs, self.laws, g, table)
            half = leaf._replace(gap=-np.inf, depth=leaf.depth + 1) if empty else self._leaf(table, cut, leaf.depth + 1)
            halves.append((2 * name + (side == 0), half))
        return halves

    def _leaf(self, table: Reals, cut: np.ndarray, depth: int) -> Leaf:
        optimism, plan = self.planned
        gap = float(self.bound(_intervals(len(self.inputs.arrays.visits), self.laws, table, cut)))
        return Leaf(table, cut, depth, gap, plan.switch_action.copy(), optimism.policy.copy())
