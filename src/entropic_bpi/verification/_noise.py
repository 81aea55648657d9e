"""Known mechanics with unknown noise: which labels are one outcome, which visits count in which ball, and how many balls.

Every state-action pair has a law; at every visit a label is drawn from it, and labels with the same outcome are one class. A
ball is a law with a partition of its labels into classes. A visit counts in the ball of its pair, and in each other ball of
the same law whose classes are unions of classes of the pair: the pair alone decides, never what came out.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from entropic_bpi.verification._file import Rejected, an_array

if TYPE_CHECKING:
    from entropic_bpi.verification._claim import Claim
    from entropic_bpi.verification._problem import Problem

_SAME_REWARD = 1e-9  # of the range of rewards: what differs by no more is rounded

Partition = tuple[frozenset[int], ...]


class Ball(NamedTuple):
    """A law, and classes of its labels in the order of their smallest labels."""

    law: int
    classes: Partition


def _is_finer(fine: Ball, coarse: Ball) -> bool:
    """Whether both have one law, and each class of the first lies in one of the second."""
    return fine.law == coarse.law and all(any(mine <= theirs for theirs in coarse.classes) for mine in fine.classes)


class Noise:
    """The mechanics as the file states them.

    ``slot_of`` has, for each pair and each label of its law, the number of the slot that the label leads to, and ``balls``
    the ball of each pair.
    """

    def __init__(self, problem: Problem, given: SimpleNamespace) -> None:
        self.sizes = [len(law) for law in given.labels]
        if not self.sizes or not all(len(set(law)) == len(law) > 0 for law in given.labels):
            raise Rejected("noise.labels must be different labels of at least one law")
        if problem.successors != "noise" or not problem.stationary or problem.random_rewards or problem.max_states:
            raise Rejected(
                "noise is for stationary transitions, listed states and fixed rewards, and says what may follow"
            )
        self.law = an_array("noise.law", given.law, (problem.n_states * problem.n_actions,), 0, len(self.sizes) - 1)
        ends = np.cumsum([self.sizes[law] for law in self.law])
        classes = an_array("noise.classes", given.classes, (int(ends[-1]),), 0)
        self.slot_of = [part.tolist() for part in np.split(classes, ends[:-1])]
        self.balls: list[Ball] = []
        for pair, slots in enumerate(self.slot_of):
            if set(slots) != set(range(problem.used[pair])):
                raise Rejected(
                    f"noise.classes: {problem.describe(pair)} has outcomes that no label leads to, or lacks some"
                )
            together = [frozenset(w for w, slot in enumerate(slots) if slot == each) for each in dict.fromkeys(slots)]
            self.balls.append(Ball(int(self.law[pair]), tuple(together)))
        self.different = list(dict.fromkeys(self.balls))

    @cached_property
    def _coupled(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of each pair's ball, and for two balls whether the first one's class tells the second one's."""
        number = {ball: i for i, ball in enumerate(self.different)}
        tells = [[len(b.classes) == 1 or _is_finer(a, b) for b in self.different] for a in self.different]
        return np.array([number[ball] for ball in self.balls]), np.array(tells)

    def is_coupled(self, fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
        """Whether one label decides what both of two pairs do, and the first one's outcome tells the second one's."""
        number, tells = self._coupled
        return tells[number[fine], number[coarse]]

    def counterparts(self, fine: np.ndarray, coarse: np.ndarray, size: int) -> np.ndarray:
        """Where the slots 0 to ``size`` of some pairs are among the slots of others, an array (size, pairs).

        A pair with fewer slots has its first one again.
        """
        slot_of, label_of = self._tables
        labels = label_of[fine].T
        labels = np.concatenate([labels, np.repeat(labels[:1], max(0, size - len(labels)), axis=0)])[:size]
        return slot_of[coarse, labels]

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        """The slot of each label, 0 behind the last, and the first label of each slot, that of slot 0 behind the last."""
        slot_of = np.zeros((len(self.slot_of), max(self.sizes)), dtype=np.intp)
        label_of = np.zeros((len(self.slot_of), 1 + max(map(max, self.slot_of))), dtype=np.intp)
        for pair, slots in enumerate(self.slot_of):
            slot_of[pair, : len(slots)] = slots
            label_of[pair] = slots.index(0)
            label_of[pair, : max(slots) + 1] = [slots.index(slot) for slot in range(max(slots) + 1)]
        return slot_of, label_of

    def count_balls(self, pairs: np.ndarray) -> int:
        return len({self.balls[pair] for pair in pairs.tolist()})

    def check_outcomes(self, problem: Problem) -> None:
        """Whether different slots of a pair can be told apart by what is seen."""
        same = _SAME_REWARD * (problem.reward_range[1] - problem.reward_range[0])
        for pair in range(len(self.balls)):
            known: dict[int, list[float]] = {}
            for slot in range(problem.begin[pair], problem.begin[pair] + problem.used[pair]):
                paid = known.setdefault(int(problem.slot_successor[slot]), [])
                low, high = problem.slot_low[:, slot], problem.slot_high[:, slot]
                if paid and (
                    np.any(low < high) or len(low) != 1 or min(abs(low[0] - other) for other in paid) <= 2 * same
                ):
                    raise Rejected(f"noise: outcomes of {problem.describe(pair)} cannot be told apart")
                paid.append(float(low[0]) if len(low) and low[0] == high[0] else np.nan)

    def outcomes(self, claim: Claim) -> tuple[np.ndarray, ...]:
        """Return the columns of :class:`Outcomes` of all pairs, with the counts of their balls."""
        pairs = np.arange(len(self.balls))
        slots, begin = claim.slots_of(pairs)[1], np.concatenate([[0], np.cumsum(claim.used[pairs])])
        own, (low, high) = np.zeros(begin[-1], dtype=np.int64), np.zeros((2, begin[-1]))
        for row, y, times, least, most in zip(*(part.tolist() for part in claim.seen), strict=True):
            if row >= len(self.balls):
                continue
            at = begin[row] + self._explaining(claim, row, y, least, most)
            if own[at]:
                raise Rejected(f"counts list an outcome of {claim.describe(row)} twice")
            if claim.black_box and claim.slot_low[0, slots[at]] == claim.slot_high[0, slots[at]]:
                least, most = min(least, claim.slot_low[0, slots[at]]), max(most, claim.slot_high[0, slots[at]])
            own[at], low[at], high[at] = times, least, most
        # Where each class of each pair is among the outcomes, and how often each class of each ball was played.
        found = [
            (begin[pair] + self.slot_of[pair][min(labels)], ball, labels)
            for pair, ball in enumerate(self.balls)
            for labels in ball.classes
        ]
        played: Counter[tuple[Ball, frozenset[int]]] = Counter()
        for at, ball, labels in found:
            played[ball, labels] += int(own[at])
        counts = dict.fromkeys(played, 0)
        for fine, coarse in product(self.different, self.different):
            if _is_finer(fine, coarse):
                for mine, theirs in product(fine.classes, coarse.classes):
                    counts[coarse, theirs] += played[fine, mine] if mine <= theirs else 0
        times = np.zeros_like(own)
        for at, ball, labels in found:
            times[at] = counts[ball, labels]
        known = np.where((own > 0) & claim.black_box, -1, slots)
        return claim.used[pairs], claim.slot_successor[slots], known, times, low, high

    def _explaining(self, claim: Claim, row: int, y: int, least: float, most: float) -> int:
        """Return which of its slots explains what was seen of a pair."""
        same = _SAME_REWARD * (claim.reward_range[1] - claim.reward_range[0])
        for at in range(claim.used[row]):
            slot = claim.begin[row] + at
            low, high = claim.slot_low[:, slot], claim.slot_high[:, slot]
            inside = not claim.black_box or (low[0] - same <= least and most <= high[0] + same)
            if claim.slot_successor[slot] == y and inside:
                return at
        raise Rejected(f"noise: {claim.describe(row)} went to state {y} with reward {least}, which no label explains")
