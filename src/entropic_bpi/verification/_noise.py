"""Known mechanics with unknown noise: which labels are one outcome, which visits count in which ball, and how many balls.

Every state-action pair has a law; at every visit a label is drawn from it, and labels with the same outcome are one class. A
ball is a law with a partition of its labels into classes. A visit counts in the ball of its pair, and in each other ball of
the same law whose classes are unions of classes of the pair: the pair alone decides, never what came out.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi.verification._file import Rejected, a_list, a_string, an_object, integers

if TYPE_CHECKING:
    from entropic_bpi.verification._claim import Claim, Outcomes
    from entropic_bpi.verification._problem import Problem

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

    def __init__(self, problem: Problem, given: Any) -> None:
        given = an_object("noise", given)
        labels = [
            [a_string("noise.labels", label) for label in a_list("noise.labels", law)]
            for law in a_list("noise.labels", given["labels"])
        ]
        if not labels or not all(len(set(law)) == len(law) > 0 for law in labels):
            raise Rejected("noise.labels must be different labels of at least one law")
        if problem.successors != "noise" or not problem.stationary or problem.random_rewards or problem.max_states:
            raise Rejected(
                "noise is for stationary transitions, listed states and fixed rewards, and says what may follow"
            )
        self.sizes, pairs = [len(law) for law in labels], problem.n_states * problem.n_actions
        self.law = integers("noise.law", given["law"], (pairs,), 0, len(labels) - 1)
        many = [self.sizes[law] for law in self.law]
        classes = integers("noise.classes", given["classes"], (sum(many),), 0).tolist()
        ends = np.cumsum(many).tolist()
        self.slot_of = [classes[end - size : end] for end, size in zip(ends, many, strict=True)]
        self.balls: list[Ball] = []
        for pair, slots in enumerate(self.slot_of):
            if set(slots) != set(range(problem.used[pair])):
                raise Rejected(
                    f"noise.classes: {problem.place(pair)} has outcomes that no label leads to, or lacks some"
                )
            found = dict.fromkeys(slots)
            together = [frozenset(w for w, slot in enumerate(slots) if slot == each) for each in found]
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

    def check_outcomes(self, problem: Problem, same: float) -> None:
        """Whether different slots of a pair can be told apart by what is seen."""
        for pair in range(len(self.balls)):
            known: dict[int, list[float]] = {}
            for slot in range(problem.begin[pair], problem.begin[pair] + problem.used[pair]):
                paid = known.setdefault(int(problem.slot_successor[slot]), [])
                low, high = problem.slot_low[:, slot], problem.slot_high[:, slot]
                if paid and (
                    np.any(low < high) or len(low) != 1 or min(abs(low[0] - other) for other in paid) <= 2 * same
                ):
                    raise Rejected(f"noise: outcomes of {problem.place(pair)} cannot be told apart")
                paid.append(float(low[0]) if len(low) and low[0] == high[0] else np.nan)

    def tallies(self, claim: Claim, same: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For each slot of each pair, one after another: the count in the pair's ball, and the rewards that were seen.

        The last array tells whether any were.
        """
        begin = np.concatenate([[0], np.cumsum(claim.used[: len(self.balls)])])
        own, low, high = np.zeros(begin[-1], dtype=np.int64), np.zeros(begin[-1]), np.zeros(begin[-1])
        for row, y, times, least, most in zip(*(part.tolist() for part in claim.seen), strict=True):
            if row >= len(self.balls):
                continue
            at = self._explaining(claim, row, y, least, most, same)
            slot = claim.begin[row] + at
            if own[begin[row] + at]:
                raise Rejected(f"counts list an outcome of {claim.place(row)} twice")
            if claim.black_box and claim.slot_low[0, slot] == claim.slot_high[0, slot]:
                least, most = min(least, claim.slot_low[0, slot]), max(most, claim.slot_high[0, slot])
            own[begin[row] + at], low[begin[row] + at], high[begin[row] + at] = times, least, most
        counts = {ball: [0] * len(ball.classes) for ball in self.different}
        played = {ball: np.zeros(len(ball.classes), dtype=np.int64) for ball in self.different}
        for pair, ball in enumerate(self.balls):
            for i, labels in enumerate(ball.classes):
                played[ball][i] += own[begin[pair] + self.slot_of[pair][min(labels)]]
        for coarse in self.different:
            for fine in self.different:
                if _is_finer(fine, coarse):
                    for i, mine in enumerate(fine.classes):
                        into = next(j for j, theirs in enumerate(coarse.classes) if mine <= theirs)
                        counts[coarse][into] += int(played[fine][i])
        times = np.zeros(begin[-1], dtype=np.int64)
        for pair, ball in enumerate(self.balls):
            for i, labels in enumerate(ball.classes):
                times[begin[pair] + self.slot_of[pair][min(labels)]] = counts[ball][i]
        return times, low, high, own > 0

    def _explaining(self, claim: Claim, row: int, y: int, least: float, most: float, same: float) -> int:
        """Which of its slots explains what was seen of a pair."""
        for at in range(claim.used[row]):
            slot = claim.begin[row] + at
            low, high = claim.slot_low[:, slot], claim.slot_high[:, slot]
            inside = not claim.black_box or (low[0] - same <= least and most <= high[0] + same)
            if claim.slot_successor[slot] == y and inside:
                return at
        raise Rejected(f"noise: {claim.place(row)} went to state {y} with reward {least}, which no label explains")

    def outcomes(self, claim: Claim, make: type[Outcomes]) -> Outcomes:
        """What the pairs may do, with the counts of their balls."""
        low, high = claim.reward_range
        times, least, most, seen = self.tallies(claim, 1e-9 * (high - low))
        pairs = np.arange(len(self.balls))
        slots = claim.slots_of(pairs)[1]
        known = seen & claim.black_box
        return make(claim.used[pairs], claim.slot_successor[slots], np.where(known, -1, slots), times, least, most)
