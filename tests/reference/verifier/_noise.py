"""Declared noise, one state and action after another: which labels look alike, and which visits count in which ball."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entropic_bpi.verification._file import Rejected, a_list, an_integer, one_of

if TYPE_CHECKING:
    from reference.verifier._claim import Claim
    from reference.verifier._problem import Problem

_SAME_REWARD = 1e-9  # of the range of rewards

Event = frozenset[int]
Ball = tuple[int, frozenset[Event]]  # a law, and the classes of its labels


class Noise:
    """Which slot each label leads to in each pair of state and action (``slot_of``), and the ``law`` of the pair."""

    def __init__(self, problem: Problem, given: dict[str, Any]) -> None:
        self.sizes = [len(a_list("noise.labels", labels)) for labels in a_list("noise.labels", given["labels"])]
        if not self.sizes or any(len(set(labels)) < len(labels) or not labels for labels in given["labels"]):
            raise Rejected("noise.labels must be different labels of at least one law")
        if not problem.stationary or problem.random_rewards or problem.max_states is not None:
            raise Rejected("noise that cannot be declared")
        self.observed = one_of("noise.observed", given["observed"], (True, False))
        if self.observed and not problem.black_box:
            raise Rejected("noise that nobody can observe")
        pairs, left = problem.n_states * problem.n_actions, list(a_list("noise.classes", given["classes"]))
        self.law = [an_integer("law", g, 0, len(self.sizes) - 1) for g in a_list("noise.law", given["law"], pairs)]
        self.slot_of: list[list[int]] = []
        for pair, law in enumerate(self.law):
            slots, left = [an_integer("class", slot, 0) for slot in left[: self.sizes[law]]], left[self.sizes[law] :]
            if len(slots) < self.sizes[law] or set(slots) != set(range(len(problem.row_slots[pair]))):
                raise Rejected(f"noise.classes are not those of {problem.describe(pair)}")
            self.slot_of.append(slots)
        if left:
            raise Rejected("noise.classes are too many")
        for pair in range(pairs):
            self._check_outcomes(problem, pair)

    def _check_outcomes(self, problem: Problem, pair: int) -> None:
        """Whether different slots of a pair can be told apart by what is seen."""
        low, high = problem.reward_range
        slots = problem.row_slots[pair]
        for one in slots:
            for other in slots:
                if one < other and problem.slot_successor[one] == problem.slot_successor[other]:
                    known = len(problem.slot_low) == 1 and all(
                        problem.slot_low[0][j] == problem.slot_high[0][j] for j in (one, other)
                    )
                    apart = abs(problem.slot_low[0][one] - problem.slot_low[0][other]) if known else 0.0
                    if not apart > 2 * (_SAME_REWARD * (high - low)):
                        raise Rejected(f"outcomes of {problem.describe(pair)} look alike")

    def labels(self, pair: int, slot: int) -> Event:
        """The labels that lead to a slot of a pair."""
        return frozenset(w for w, at in enumerate(self.slot_of[pair]) if at == slot)

    def ball(self, pair: int) -> Ball:
        return self.law[pair], frozenset(self.labels(pair, slot) for slot in self.slot_of[pair])

    def feeds(self, fine: int, coarse: int) -> bool:
        """Whether visits of one pair count in the ball of another: both have one law, and it tells what that one tells."""
        (law, classes), (other, parts) = self.ball(fine), self.ball(coarse)
        return law == other and all(any(mine <= theirs for theirs in parts) for mine in classes)

    def tells(self, fine: int, coarse: int) -> bool:
        """Whether one label decides both, and what happens in one pair tells what happens in the other."""
        return len(set(self.slot_of[coarse])) == 1 or self.feeds(fine, coarse)

    def beside(self, fine: int, slot: int, coarse: int) -> int:
        """The slot of a pair that goes with a slot of a finer one."""
        if len(set(self.slot_of[coarse])) == 1:
            return 0
        return self.slot_of[coarse][self.slot_of[fine].index(slot)]

    def times(self, claim: Claim, pair: int, slot: int) -> int:
        """How often the labels of a slot were drawn, as far as the pairs that were visited tell."""
        if len(set(self.slot_of[pair])) == 1:
            return claim.happened[pair][slot][0]
        labels, first = self.labels(pair, slot), sum(self.sizes[: self.law[pair]])
        told = sum(
            claim.happened[other][at][0]
            for other in range(len(self.law))
            if self.feeds(other, pair)
            for at in set(self.slot_of[other])
            if self.labels(other, at) <= labels
        )
        if not self.observed:
            return told
        drawn = sum(claim.drawn[first + w] for w in labels)
        if told > drawn:
            raise Rejected("counts.labels do not explain what was seen")
        return drawn

    def happened(self, claim: Claim, pair: int) -> list[tuple[int, tuple[float, float] | None]]:
        """How often each slot of a pair was seen there, and between which numbers it paid."""
        low, high = claim.reward_range
        found: list[tuple[int, tuple[float, float] | None]] = [(0, None) for _ in claim.row_slots[pair]]
        slots, same = claim.row_slots[pair], _SAME_REWARD * (high - low)
        for (y, (least, most)), times in claim.seen.get(pair, {}).items():
            ends = [(claim.slot_low[0][j], claim.slot_high[0][j]) if claim.black_box else (least, most) for j in slots]
            fits = [
                i
                for i, (bottom, top) in enumerate(ends)
                if claim.slot_successor[slots[i]] == y and bottom - same <= least and most <= top + same
            ]
            if not fits:
                raise Rejected(f"no label explains what was seen in {claim.describe(pair)}")
            at, (bottom, top) = fits[0], ends[fits[0]]
            if bottom == top:
                least, most = min(least, bottom), max(most, top)
            if found[at][0]:
                raise Rejected(f"an outcome of {claim.describe(pair)} is listed twice")
            found[at] = times, (least, most)
        return found

    def check_drawn(self, claim: Claim) -> None:
        """Whether as many labels of each law were observed as states and actions with that law were visited."""
        first = 0
        for law, size in enumerate(self.sizes):
            visits = sum(sum(claim.seen.get(pair, {}).values()) for pair, g in enumerate(self.law) if g == law)
            if self.observed and sum(claim.drawn[first : first + size]) != visits:
                raise Rejected(f"counts.labels of law {law} are not as many as its visits")
            first += size
