"""The possible outcomes of rows: known mechanics with unknown noise, and slots, which must be those of the declarations.

With noise, every state-action pair has a law; at every visit a label is drawn from it, and labels with the same outcome are
one class. A ball is a law with a partition of its labels into classes. A visit counts in the ball of its pair, and in each
other ball of the same law whose classes are unions of classes of the pair. Which balls these are depends on the pair alone,
never on the outcome: otherwise Theorem N of the page "Known mechanics, unknown noise" would not hold.
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from entropic_bpi.verification._file import Rejected, an_array

if TYPE_CHECKING:
    from entropic_bpi.verification._claim import Claim
    from entropic_bpi.verification._problem import Problem

# A step of a black box may end with up to 8 different rewards and lead back to the same state with up to 2.
END_REWARDS, STAY_REWARDS = 8, 2
SAME_REWARD = 1e-9  # of the range: fixed rewards that differ by no more are one, up to rounding


class Ball(NamedTuple):
    """A law, and classes of its labels in the order of their smallest labels."""

    law: int
    classes: tuple[frozenset[int], ...]


def _within(fine: Ball, coarse: Ball) -> list[int]:
    """Return the class of ``coarse`` in which each class of ``fine`` lies, or an empty list if one lies in none."""
    if fine.law != coarse.law:
        return []
    where = {label: i for i, labels in enumerate(coarse.classes) for label in labels}
    found = [{where[label] for label in labels} for labels in fine.classes]
    return [min(each) for each in found] if all(len(each) == 1 for each in found) else []


class Noise:
    """The declared mechanics.

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
        self.observed = given.observed
        if self.observed and not problem.black_box:
            raise Rejected("noise.observed is of environments: a model has no info")
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
            together: dict[int, list[int]] = {}
            for w, slot in enumerate(slots):
                together.setdefault(slot, []).append(w)
            self.balls.append(Ball(int(self.law[pair]), tuple(map(frozenset, together.values()))))
        number = {ball: i for i, ball in enumerate(dict.fromkeys(self.balls))}
        self.different, self.number = list(number), np.array([number[ball] for ball in self.balls])

    @cached_property
    def _tells(self) -> np.ndarray:
        """Return, for two different balls, whether the class of the first determines that of the second."""
        return np.array([[len(b.classes) == 1 or bool(_within(a, b)) for b in self.different] for a in self.different])

    def is_coupled(self, fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
        """Return whether one label decides the outcomes of both of two pairs, and the first one determines the second."""
        return self._tells[self.number[fine], self.number[coarse]]

    def counterparts(self, fine: np.ndarray, coarse: np.ndarray, size: int) -> np.ndarray:
        """Return the slots of ``coarse`` pairs that contain the slots 0 to ``size`` of ``fine`` ones, (size, pairs).

        A pair with fewer slots has its first one again.
        """
        slot_of, label_of = self._tables
        return slot_of[coarse, label_of[fine, :size].T]

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        """The slot of each label, filled up with 0, and the first label of each slot, filled up with that of slot 0."""
        every = range(1 + max(map(max, self.slot_of)))
        slot_of = [slots + [0] * (max(self.sizes) - len(slots)) for slots in self.slot_of]
        label_of = [[slots.index(slot if slot in slots else 0) for slot in every] for slots in self.slot_of]
        return np.array(slot_of), np.array(label_of)

    def check_outcomes(self, problem: Problem) -> None:
        """Reject different slots of a pair that cannot be distinguished by next state and reward."""
        owner, slots = problem.slots_of(np.arange(len(self.balls)))
        low, high = (table[:, slots] for table in (problem.slot_low, problem.slot_high))
        paid = np.where((low == high).all(axis=0), low[0], np.nan) if len(low) == 1 else np.full(len(slots), np.nan)
        order = np.lexsort((paid, problem.slot_successor[slots], owner))
        owner, to, paid = owner[order], problem.slot_successor[slots][order], paid[order]
        same = SAME_REWARD * (problem.reward_range[1] - problem.reward_range[0])
        close = (owner[1:] == owner[:-1]) & (to[1:] == to[:-1]) & ~(np.diff(paid) > 2 * same)
        problem.refuse(close, owner, "noise: outcomes of {} cannot be told apart")

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
        # Where each class of each pair is among the outcomes, and its number among the classes of different balls.
        at = np.concatenate(
            [k + np.array([*dict.fromkeys(part)]) for k, part in zip(begin, self.slot_of, strict=False)]
        )
        sizes = np.array([len(ball.classes) for ball in self.different])
        ends = np.cumsum(sizes)
        each = np.concatenate([np.arange(ends[ball] - sizes[ball], ends[ball]) for ball in self.number])
        played, counts = np.zeros((2, ends[-1]), dtype=np.int64)
        np.add.at(played, each, own[at])
        parts = [list(zip(self.different, np.split(times, ends[:-1]), strict=True)) for times in (played, counts)]
        for (fine, mine), (coarse, theirs) in product(*parts):
            if into := _within(fine, coarse):
                np.add.at(theirs, into, mine)
        if self.observed:
            counts = self._observed(claim, counts)
        # A pair with one possible outcome has nothing to learn: only its own visits count, as without noise.
        times = np.zeros_like(own)
        times[at] = np.where(np.repeat(sizes, sizes)[each] > 1, counts[each], own[at])
        known = np.where((own > 0) & claim.black_box, -1, slots)
        return claim.used[pairs], claim.slot_successor[slots], known, times, low, high

    def _observed(self, claim: Claim, inferred: np.ndarray) -> np.ndarray:
        """Return the counts of each ball by the observed labels; ``inferred`` are those by the outcomes alone."""
        drawn, visits = np.split(claim.drawn, np.cumsum(self.sizes)[:-1]), claim.seen.between(0, len(self.balls))
        for law, labels in enumerate(drawn):
            if labels.sum() != visits.times[self.law[visits.rows] == law].sum():
                raise Rejected(f"counts.labels of law {law} are not as many as the visits of its states and actions")
        counts = np.array([drawn[ball.law][list(each)].sum() for ball in self.different for each in ball.classes])
        if (counts < inferred).any():
            raise Rejected("counts.labels do not explain the outcomes that were seen")
        return counts

    def _explaining(self, claim: Claim, row: int, y: int, least: float, most: float) -> int:
        """Return the slot of a pair that explains an observed outcome."""
        same = SAME_REWARD * (claim.reward_range[1] - claim.reward_range[0])
        for at in range(claim.used[row]):
            slot = claim.begin[row] + at
            low, high = claim.slot_low[:, slot], claim.slot_high[:, slot]
            inside = not claim.black_box or (low[0] - same <= least and most <= high[0] + same)
            if claim.slot_successor[slot] == y and inside:
                return at
        raise Rejected(f"noise: {claim.describe(row)} went to state {y} with reward {least}, which no label explains")


# -- slots -------------------------------------------------------------------------------------------------------------


def check_slots(problem: Problem) -> None:
    """Reject slots that are not those of the declarations."""
    if problem.noise is not None:
        problem.noise.check_outcomes(problem)
    if problem.black_box:
        _check_black_box(problem)
        return
    if problem.max_states is not None or problem.random_rewards:
        raise Rejected("max_states must be null and reward_law 'fixed': only an environment has others")
    if not np.array_equal(problem.slot_low, problem.slot_high):
        raise Rejected("slots are inconsistent: low differs from high, but rewards are known")
    for layer in problem.layers:
        _check_rows(problem, np.array(layer))


def _check_rows(problem: Problem, rows: np.ndarray) -> None:
    """Reject rows whose possible outcomes are not the declared ones."""
    n, used, unknown = problem.n_states, problem.used[rows], problem.successors == "unknown"
    owner, slots = problem.slots_of(rows)
    declared = problem.slot_successor[slots]
    anything = np.bincount(owner, declared == n, len(rows)) > 0
    # Of two equal successors of a row, the second is beside the first in this order.
    ordered = np.sort(owner * (n + 1) + declared)
    twice = np.zeros(len(rows), dtype=bool)
    twice[ordered[1:][ordered[1:] == ordered[:-1]] // (n + 1)] = True
    sound = np.where(anything, (used == 1) & unknown, ~twice & ((used == n) | (not unknown)))
    sound &= problem.possible[rows] == np.where(anything, n, used)
    if problem.is_start(rows[-1]) and isinstance(problem.start, list):
        sound = np.array([declared.tolist() == problem.start and problem.possible[-1] == len(problem.start)])
    if problem.is_start(rows[-1]):
        # The reward of the start is 0, which is written as the smallest reward.
        sound &= bool(np.all(problem.slot_low[:, slots] == problem.reward_range[0]))
    problem.refuse(~sound, rows, "slots are inconsistent: {} does not list the declared successors")


def _check_black_box(problem: Problem) -> None:
    """Reject slots of an environment that do not follow from its sizes, its range of rewards and its successors.

    Two slots serve all rows: anything not seen yet, and the end, which stays the end with reward 0. Then come the declared
    first states or, if there are none, one not seen yet; their reward is also 0, written as the smallest reward. After them
    come the declared successors, row by row in order, each with the whole range of rewards, and several times if several
    rewards are possible; if counts are not pooled, all steps share them.
    """
    end, (low, high), given = problem.n_states - 1, problem.declared_range, isinstance(problem.start, list)
    if not low <= high:
        raise Rejected(f"rewards must lie in a range, got {low} to {high}")
    if problem.max_states not in (None, end):
        raise Rejected(f"max_states is {problem.max_states}, but the claim is about {end} states")
    first, listed = problem.start if given else [end + 1], problem.successors != "unknown"
    pairs, head = end * problem.n_actions, 2 + len(first)
    used = problem.used[:pairs] if listed else np.ones(pairs, dtype=np.int64)
    begin, behind = np.zeros(pairs, dtype=np.int64), head
    if listed or problem.known_reward:
        begin, behind = head + np.cumsum(used) - used, head + int(used.sum())
    ends, times = np.ones(problem.n_actions, dtype=np.int64), 1 if problem.stationary else problem.horizon
    columns = [
        np.append(np.tile(np.append(part, ends), times), last)
        for part, last in ((begin, 2), (used, len(first)), (_possible(problem), len(first) if given else end))
    ]
    sound = (
        problem.random_start
        and problem.slot_successor[:head].tolist() == [end + 1, end, *first]
        and problem.slot_low.shape == (1, behind)
        and all(map(np.array_equal, columns, (problem.begin, problem.used, problem.possible)))
    )
    if sound:
        stated, expected = np.concatenate([problem.slot_low, problem.slot_high]), np.tile([[low], [high]], behind)
        expected[:, 1], expected[:, 2:head] = 0.0, min(low, 0.0)
        if problem.known_reward or problem.noise is not None:  # the reward of an outcome may be known
            _check_known_rewards(problem, stated[:, head:], problem.slot_successor[head:])
            known = bool(problem.known_reward) | (stated[0, head:] == stated[1, head:])
            expected[:, head:] = np.where(known, stated[:, head:], expected[:, head:])
    if not sound or not np.array_equal(stated, expected):
        raise Rejected(
            "slots are inconsistent: an environment has one range of rewards, and goes where it is declared to"
        )


def _check_known_rewards(problem: Problem, paid: np.ndarray, to: np.ndarray) -> None:
    """Reject known rewards unless each declared successor but the end, or each state and action, has exactly one.

    Where successors are unknown, each state and action has a slot of its own for anything that may follow.
    """
    (low, high), (least, most), n = paid, problem.declared_range, problem.n_states
    if problem.noise is not None:
        if not np.all((least <= low) & (low <= most)):
            raise Rejected(f"noise: an outcome pays less than {least} or more than {most}")
    elif (
        not np.all(low <= high)
        or (problem.successors != "unknown" and np.any(low[to < n - 1] < high[to < n - 1]))
        or (problem.successors == "unknown" and np.any(to != n))
        or (least, most) != (low.min(), high.max())
    ):
        raise Rejected("slots are inconsistent: known rewards are numbers, and the range of rewards is theirs")


def check_names(problem: Problem) -> None:
    """Reject names of states and actions that are not those of an environment's observations and actions."""
    *observations, last = problem.state_labels
    named = _in_order(observations) if problem.max_states is None else _found_in_order(observations)
    if last != "end" or not named or not _in_order(problem.action_labels):
        raise Rejected("names or labels of an environment must be its observations and actions in order")


def _possible(problem: Problem) -> np.ndarray:
    """Return how many different outcomes each state and action may have; 0 if successors are not in order."""
    end = problem.n_states - 1
    rows = np.arange(end * problem.n_actions)
    if problem.successors == "unknown":
        more = 0 if problem.random_rewards else END_REWARDS + STAY_REWARDS - 2
        return np.full(len(rows), problem.n_states + more)
    owner, slots = problem.slots_of(rows)
    following = problem.slot_successor[slots]
    unordered = following > end
    # A next state with random rewards is listed once, whatever these are.
    unordered[1:] |= (owner[1:] == owner[:-1]) & (following[1:] < following[:-1] + problem.random_rewards)
    return np.where(np.bincount(owner, unordered, len(rows)) > 0, 0, problem.used[rows])


def _found_in_order(names: list[str]) -> bool:
    """Return whether these are names of observations as they were found, and then numbers for those not found yet."""
    found = [name for name in names if not name.startswith("#")]
    return names == found + [f"#{i}" for i in range(len(found), len(names))] and "".join(found).isprintable()


def _in_order(names: list[str]) -> bool:
    """Return whether these are the elements of a finite space in order: one text in which some numbers run over ranges."""
    if not names or not all(name.isprintable() for name in names):
        return False
    first, last = (re.split("(-?[0-9]{1,15})", name) for name in (names[0], names[-1]))
    if len(first) != len(last):
        return False
    ends = enumerate(zip(first, last, strict=True))
    parts = [range(int(low), int(high) + 1) if i % 2 and low != high else [low] for i, (low, high) in ends]
    if math.prod(map(len, parts)) != len(names):
        return False
    return names == ["".join(map(str, part)) for part in product(*parts)]
