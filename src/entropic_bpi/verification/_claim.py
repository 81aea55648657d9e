"""The claim as the file states it: the policy, what was seen, under which provenance, and the bounds."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.verification._file import Rejected, an_array, one_of, read
from entropic_bpi.verification._problem import Problem
from entropic_bpi.verification._slots import END_REWARDS, SAME_REWARD, STAY_REWARDS, check_names, check_slots

_MOST_VALUES, _CELLS = 64, 1024  # of a random reward: values kept as they are, cells of the range for more
_MOST_VISITS = 2**62  # of all rows together, so that sums stay exact

# The false-alarm rate of each test of an assumption, and the logarithm of an e-value from which on it rejects.
TEST_LEVEL = 0.01
REJECTED_FROM = math.log(1 / TEST_LEVEL)


_MOST_CELLS = 256
_MOST_LEAVES, _MOST_LABELS = 1024, 6  # of a tree of cuts, and of a law that is cut
_LEAF_OUTCOMES = 2**20  # of all rows of leaves that are worked on together


class Leaf(NamedTuple):
    """A part of the kernels, and how its gap is bounded.

    Each of ``cuts`` is (law, event as bits, probability b, whether the event has at least or at most that probability).
    """

    test: str
    cuts: tuple[tuple[int, int, float, bool], ...]


class Seen(NamedTuple):
    """The observed transitions, sorted: rows, next states, how often, and the range of the reward."""

    rows: np.ndarray
    successors: np.ndarray
    times: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def between(self, first: int, last: int) -> Seen:
        """Return what was seen of the rows from ``first`` to before ``last``."""
        begin, end = np.searchsorted(self.rows, (first, last))
        return Seen(*(part[begin:end] for part in self))


class Outcomes(NamedTuple):
    """The possible outcomes of some rows, row after row, and how often each was seen.

    ``sizes`` has a number for each row, the others one for each outcome. ``low`` and ``high`` are the rewards that were seen
    of an outcome that no slot declares, which has the slot -1.
    """

    sizes: np.ndarray
    successors: np.ndarray
    slots: np.ndarray
    times: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def owner(self) -> np.ndarray:
        """The number of each outcome's row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def seen(self) -> Outcomes:
        """Return the outcomes that were seen."""
        happened = self.times > 0
        sizes = np.bincount(self.owner[happened], minlength=len(self.sizes))
        return Outcomes(sizes, *(part[happened] for part in self[1:]))


class Claim(Problem):
    """A problem and what is claimed about it, checked for shape and kept as arrays."""

    alone = False
    """Whether only the policy's own value is bounded, from both sides, and no other action may be chosen."""

    def __init__(self, given: dict[str, Any]) -> None:
        content = read("certificate", "certificate", given)
        super().__init__(content.problem)
        check_slots(self)
        self.method, self.constants, self.assumptions = content.method, content.constants, content.assumptions
        self.policy = an_array("policy", content.policy, (self.horizon, self.n_states), 0, self.n_actions - 1)
        self._read_counts(content.counts)
        self.check_masks()
        self.provenance, self.log = content.provenance, content.provenance.log
        self._check_provenance()
        if self.return_range is not None and self.episodes:
            self._check_returns(*self.return_range)
        elif self.return_range is not None and self.return_range[1] - self.return_range[0] <= self.return_room:
            raise Rejected("return_range has no width, and no episode was played that could contradict it")
        if self.black_box and self.log is None:
            check_names(self)
        self.stated, self.test = content.claim, content.claim.test
        kl, entropic = self.method == "kl", self.alpha is None and self.explored is None
        if kl != (self.constants is None) or (self.test is None) == (kl and entropic):
            raise Rejected(f"method {self.method!r} has other constants or another claim.test for such a problem")
        if (self.stated.cuts is None) == (self.test == "boxes"):
            raise Rejected("claim.cuts belong to the test 'boxes', and it needs them")
        if (self.stated.cells is None) != entropic:
            raise Rejected("claim.cells belong to the entropic value at risk and to explorations, which need them")
        if not entropic and not kl:
            raise Rejected(f"EVaR and explorations are certified by the KL method alone, not by {self.method!r}")
        self.cells = None if self.stated.cells is None else self.checked_cells(self.stated.cells)
        self.leaves = [] if self.stated.cuts is None else self._read_cuts(self.stated.cuts)
        self.radii: dict[range, np.ndarray] = {}  # of the balls of each step, once they are known

    def check_masks(self) -> None:
        """Reject forbidden actions in the policy or in the counts, and masks of states that were never seen."""
        if self.allowed is None:
            return
        masks = np.broadcast_to(self.allowed, (self.horizon, *self.allowed.shape[1:]))
        forbidden = np.argwhere(~np.take_along_axis(masks, self.policy[:, :, None], axis=2)[:, :, 0])
        if len(forbidden):
            raise Rejected(f"the policy plays a forbidden action in state {forbidden[0, 1]} at step {forbidden[0, 0]}")
        seen = self.seen.between(0, self.n_rows - self.random_start)
        played = (masks.any(axis=0) if self.stationary else masks).ravel()
        self.refuse(~played[seen.rows], seen.rows, "counts of a forbidden action: {}")
        if self.offered:
            visited = np.zeros(self.n_states, dtype=bool)
            visited[self.seen.successors] = visited[self.state_of(seen.rows)] = True
            if not self.allowed[0, ~visited].all():
                raise Rejected("allowed has a mask of a state that was never seen, but masks come with observations")

    def checked_cells(self, cells: list[SimpleNamespace]) -> list[SimpleNamespace]:
        """Return the cells, which must follow one another, each with its λ inside; the last one has no end."""
        if not 1 <= len(cells) <= _MOST_CELLS or (cells[-1].until is not None) == (self.explored is None):
            raise Rejected(f"claim.cells must be 1 to {_MOST_CELLS} without end, except those of explorations")
        begin = 0.0
        for cell in cells:
            cell.until = math.inf if cell.until is None else cell.until
            if not begin <= cell.lam <= cell.until:
                raise Rejected(f"claim.cells are not in order at lam = {cell.lam!r}")
            if self.lams is not None and cell.lam not in self.lams:
                raise Rejected(f"claim.cells use lam = {cell.lam!r}, which was not declared")
            begin = cell.until
        return cells

    def _read_cuts(self, given: list[Any]) -> list[Leaf]:
        """Return the leaves of a binary tree of cuts in preorder, the part with the smaller probability first.

        A cut is about a law: of declared noise, or of a row whose possible next states are known and all different. Its
        event is a set of labels or of next states, neither none nor all.
        """
        leaves: list[Leaf] = []
        paths: list[tuple[tuple[int, int, float, bool], ...]] = [()]
        for part in given:
            if not paths or len(leaves) + len(paths) > _MOST_LEAVES:
                raise Rejected(f"claim.cuts must be one tree of at most {_MOST_LEAVES} leaves")
            path = paths.pop()
            if isinstance(part, str):
                leaves.append(Leaf(one_of("claim.cuts", part, ("ratio", "empty")), path))
                continue
            law, event, at = vars(read("cut", "claim.cuts", part)).values()
            known = law < (self.n_rows if self.noise is None else len(self.noise.sizes))
            labels = self.labels_of(law) if known else []
            inside = 0 < len(event) < len(labels) and set(event) <= set(labels) and len(set(event)) == len(event)
            if not inside or len(set(labels)) < len(labels) or not 1 < len(labels) <= _MOST_LABELS:
                raise Rejected(f"claim.cuts: {event!r:.80} is no event of law {law}, or this one cannot be cut")
            bits = sum(1 << labels.index(label) for label in event)
            paths += [(*path, (law, bits, at, True)), (*path, (law, bits, at, False))]
        if paths:
            raise Rejected(f"claim.cuts lack {len(paths)} leaves")
        return leaves

    @property
    def leaf_batches(self) -> list[list[Leaf]]:
        """The leaves, a few at a time, so that the rows of all of them fit into memory."""
        size = max(1, _LEAF_OUTCOMES // int(self.used.sum()))
        return [self.leaves[first : first + size] for first in range(0, len(self.leaves), size)]

    def labels_of(self, law: int) -> list[int]:
        """Return the labels of a law of declared noise, otherwise the next states of a row, if these are known."""
        if self.noise is not None:
            return list(range(self.noise.sizes[law]))
        listed = self.slot_successor[self.begin[law] : self.begin[law] + self.used[law]].tolist()
        return [] if self.n_states in listed else listed

    def _read_counts(self, given: SimpleNamespace) -> None:
        self.episodes = given.episodes
        rows = an_array("counts.rows", given.rows, (None,), 0, self.n_rows - 1)
        successors = an_array("counts.successors", given.successors, (len(rows),), 0, self.n_states - 1)
        times = an_array("counts.times", given.times, (len(rows),), 1)
        if times.sum(dtype=float) > _MOST_VISITS:
            raise Rejected(f"counts.times add up to more than {_MOST_VISITS}")
        shape = (len(rows) if self.black_box else 0,)
        low, high = (an_array(f"counts.{name}", getattr(given, name), shape) for name in ("rewards", "upper"))
        if not self.black_box:
            low = high = np.zeros(len(rows))
        observed = sum(self.noise.sizes) if self.noise is not None and self.noise.observed else 0
        self.drawn = an_array("counts.labels", given.labels, (observed,), 0)
        order = np.lexsort((high, low, successors, rows))
        self.seen = Seen(*(part[order] for part in (rows, successors, times, low, high)))
        self._check_rewards_seen()
        for layer in self.layers:
            self._check_seen(layer)

    def _check_rewards_seen(self) -> None:
        """Reject counts that list something twice, and rewards outside their range."""
        rows, successors, _, low, high = self.seen
        twice = np.logical_and.reduce([part[1:] == part[:-1] for part in (rows, successors, low, high)])
        self.refuse(twice, rows, "counts list {} to state {} twice", successors)
        if not self.black_box:
            return
        # If noise is declared, each outcome has its own reward or range, which is checked later.
        slots = self.begin[rows] if self.noise is None else np.where(self.is_start(rows), self.begin[rows], 0)
        least, most = self.slot_low[0, slots], self.slot_high[0, slots]
        inside = (least <= low) & (low <= high) & (high <= most)
        if self.known_reward and self.successors != "unknown":  # the range that is declared for this outcome
            owner, listed = self.slots_of(rows)
            fits = self.slot_successor[listed] == successors[owner]
            fits &= (self.slot_low[0, listed] <= low[owner]) & (high[owner] <= self.slot_high[0, listed])
            inside = (low <= high) & (np.bincount(owner, fits, len(rows)) > 0) | self.is_start(rows) & inside
        reason = "a reward from {1} to {2} was seen in {0}, outside its range from {3} to {4}"
        self.refuse(~inside, rows, reason, low, high, least, most)

    def _check_returns(self, least: float, most: float) -> None:
        """Reject rewards that cannot be those of episodes whose returns lie in the declared range.

        In a log, an episode that did not end may lack up to all of its steps, and what was paid after the horizon does not
        belong to the return.
        """
        (low, high), others, room = self.reward_range, self.horizon - 1, self.return_room
        after = 0 if self.log is None else max(0, self.log.longest - self.horizon)
        seen = self.seen.between(0, self.n_rows - self.random_start)
        outside = (seen.low + others * low > most + room) | (seen.high + others * high < least - room)
        reason = f"reward {{1}} was seen in {{0}}: no episode with it has a return from {least} to {most}"
        self.refuse(outside & (after == 0), seen.rows, reason, seen.low)
        ended = int(seen.times[seen.successors == self.n_states - 1].sum())
        lacking = 0 if self.log is None else max(0, self.episodes - ended) * self.horizon
        if _exact_sum(seen.low, seen.times) > self.episodes * (most + room + after * high) - lacking * low:
            raise Rejected(f"the mean return of the episodes is above the declared range from {least} to {most}")
        if _exact_sum(seen.high, seen.times) < self.episodes * (least - room + after * low) - lacking * high:
            raise Rejected(f"the mean return of the episodes is below the declared range from {least} to {most}")

    def _check_seen(self, layer: range) -> None:
        """Reject counts of the rows of one step that cannot have happened."""
        rows, n, is_start = np.array(layer), self.n_states, bool(self.is_start(layer[-1]))
        seen = self.seen.between(layer.start, layer.stop)
        if self.black_box and not is_start:
            at_end = self.state_of(seen.rows) == n - 1
            self.refuse(at_end, seen.rows, "counts after the end: nothing is played in {}")
        owner, slots = self.slots_of(rows)
        declared, keys = np.sort(owner * (n + 1) + self.slot_successor[slots]), (seen.rows - layer.start) * (n + 1)
        outside = (_times_in(declared, keys + seen.successors) + _times_in(declared, keys + n)) == 0
        if self.black_box and is_start:
            outside |= seen.successors == n - 1
        reason = "counts outside the declared successors: {} went to state {}"
        self.refuse(outside, seen.rows, reason, seen.successors)
        if self.black_box and self.random_rewards:
            self._check_random(seen)
        elif self.black_box:
            listed = _times_in(declared, keys + seen.successors)
            if self.successors == "unknown":
                listed = np.where(seen.successors == self.state_of(seen.rows), STAY_REWARDS, 1)
                listed = np.where(seen.successors == n - 1, END_REWARDS, listed)
            self._check_fixed(seen, np.ones_like(listed) if is_start else listed)
        different = seen if self.rewards_tell_outcomes else _together(seen)
        happened = np.bincount(different.rows - layer.start, minlength=len(layer))
        reason = "{} has {} outcomes, more than the declared {}"
        self.refuse(happened > self.most[rows], rows, reason, happened, self.most[rows])

    def _check_fixed(self, seen: Seen, allowed: np.ndarray) -> None:
        """Reject fixed rewards that are ranges wider than rounding, that differ by rounding only, or that are too many."""
        same = SAME_REWARD * (self.declared_range[1] - self.declared_range[0])
        keys = seen.rows * (self.n_states + 1) + seen.successors
        # Rewards are in order: if two of one outcome are one reward, two neighbours are.
        close = (keys[1:] == keys[:-1]) & (np.maximum(seen.high[1:], seen.high[:-1]) - seen.low[:-1] <= same)
        rows, to, where = seen.rows, seen.successors, "{} to state {} "
        self.refuse(_times_in(keys, keys) > allowed, rows, where + "has more different rewards than are allowed", to)
        wide = seen.high - seen.low > same
        self.refuse(wide, rows, where + "paid from {} to {}, which is more than rounding", to, seen.low, seen.high)
        self.refuse(close, rows, where + "lists {} and {}, which are one reward", to, seen.low, seen.low[1:])

    def _check_random(self, seen: Seen) -> None:
        """Reject random rewards of an outcome that are neither a few values nor all cells of the range."""
        (low, high), keys = self.declared_range, seen.rows * (self.n_states + 1) + seen.successors
        group = np.unique(keys, return_inverse=True)[1]
        doubtful = (np.bincount(group) > _MOST_VALUES) | (np.bincount(group, seen.low < seen.high) > 0)
        cell = np.rint((seen.low - low) / (high - low) * _CELLS)
        ends = (
            np.where(c == _CELLS, high, np.minimum(high, low + (high - low) * (c / _CELLS))) for c in (cell, cell + 1)
        )
        is_cell = np.logical_and(*(end == part for end, part in zip(ends, (seen.low, seen.high), strict=True)))
        reason = f"{{}} to state {{}} paid from {{}} to {{}}, which is not one of the {_CELLS} cells of the range"
        self.refuse(doubtful[group] & ~is_cell, seen.rows, reason, seen.successors, seen.low, seen.high)

    @property
    def has_rounded_rewards(self) -> bool:
        """Whether some reward is known only up to rounding, or as a cell of the range."""
        return bool((self.seen.low < self.seen.high).any())

    def _check_provenance(self) -> None:
        origin, kl, ignoring = self.provenance, self.method == "kl", self.constants in ("verified", "printed")
        ignored = [name for name in ("stationary", "successors") if ignoring and name in origin.ignored]
        if origin.ignored != ignored:
            raise Rejected(f"provenance.ignored must name what the constants ignore in order: {origin.ignored!r:.80}")
        declared_start = self.random_start and self.start is not None
        if not kl and (self.noise or self.max_successors or self.discount or declared_start):
            raise Rejected(f"method {self.method!r} makes no use of noise, max_successors, discount or start")
        if ignoring and (self.stationary or self.successors != "unknown"):
            raise Rejected(f"constants {self.constants!r} use neither stationary transitions nor declared successors")
        if origin.rewards is not None and (not kl or self.random_rewards):
            raise Rejected("only the KL method certifies for other rewards, and not for random ones")
        if origin.preregistration is not None and not re.fullmatch("[0-9a-f]{64}", origin.preregistration):
            raise Rejected("provenance.preregistration must be a digest of 64 hexadecimal digits")
        if origin.log and not (self.black_box and kl):
            raise Rejected("only the KL method certifies from a log, with rewards that are learned")
        if origin.tests and (not self.black_box or (origin.tests.stationary is None) == self.stationary):
            raise Rejected("provenance.tests must be those of an environment, of what is assumed of it and no more")
        tests = ("stationary", "memoryless", "unchanging") if origin.tests else ()
        if any(not (getattr(origin.tests, name) or 0.0) < REJECTED_FROM for name in tests):  # if they are true
            raise Rejected(f"the tests have rejected what is assumed: {origin.tests!r:.80}")

    def actions(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the policy's actions in some states at planned step ``h``."""
        if self.random_start and h == 0:
            return np.zeros(len(states), dtype=np.int64)
        return self.policy[h - self.random_start][states]

    def outcomes(self, layer: range) -> Outcomes:
        """Return the possible outcomes of the rows of one step, including all that were seen.

        There is one outcome for each successor, unless rewards are learned and fixed: then another reward is another
        outcome, and takes one of the slots with its state. If as many outcomes of a row were seen as are possible, these are
        all.
        """
        if self.noise is not None and not self.is_start(layer[-1]):
            return Outcomes(*self.noise.outcomes(self))
        seen, n, count = self.seen.between(layer.start, layer.stop), self.n_states, len(layer)
        seen = seen if self.rewards_tell_outcomes else _together(seen)
        owner, slots = self.slots_of(np.array(layer))
        key, mine = owner * (n + 1) + self.slot_successor[slots], (seen.rows - layer.start) * (n + 1) + seen.successors
        taken, at = _rank(key) < _times_in(mine, key), np.searchsorted(mine, key)
        times, extra = np.where(taken, np.append(seen.times, 0)[at], 0), np.ones(len(mine), dtype=bool)
        if self.rewards_tell_outcomes:
            owner, slots, key, times = (part[~taken] for part in (owner, slots, key, times))
        else:
            extra[at[taken]] = False
        listed = owner, key % (n + 1), slots, times, *np.zeros((2, len(key)))
        found = seen.rows - layer.start, seen.successors, np.full(len(mine), -1), *seen[2:]
        owner, *columns = (np.concatenate([one, other[extra]]) for one, other in zip(listed, found, strict=True))
        happened = columns[2] > 0
        complete = np.bincount(owner, happened, count) == self.most[layer.start : layer.stop]
        left = np.flatnonzero(happened | ~complete[owner])
        left = left[np.argsort(owner[left], kind="stable")]
        return Outcomes(np.bincount(owner[left], minlength=count), *(column[left] for column in columns))

    def paid(self, outcomes: Outcomes, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest reward of each outcome, if rewards are fixed and depend on the next state."""
        at, known = (step if len(self.slot_low) > 1 else 0, outcomes.slots), outcomes.slots < 0
        return np.where(known, outcomes.low, self.slot_low[at]), np.where(known, outcomes.high, self.slot_high[at])


def _together(seen: Seen) -> Seen:
    """Return what was seen with one entry for each row and successor, whatever the reward was."""
    new = (np.diff(seen.rows, prepend=-1) != 0) | (np.diff(seen.successors, prepend=-1) != 0)
    first = np.flatnonzero(new)
    times = np.add.reduceat(seen.times, first) if first.size else seen.times
    return Seen(seen.rows[first], seen.successors[first], times, seen.low[first], seen.high[first])


def sums_of(size: int, index: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return the exact sum of the integers ``terms`` with each index."""
    sums = np.zeros(size, dtype=terms.dtype)
    np.add.at(sums, index, terms)
    return sums


def _exact_sum(values: np.ndarray, times: np.ndarray) -> Fraction:
    different, index = np.unique(values, return_inverse=True)
    often = sums_of(len(different), index, times)
    return sum((Fraction(value) * n for value, n in zip(different.tolist(), often.tolist(), strict=True)), Fraction(0))


def _times_in(ordered: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return np.searchsorted(ordered, keys, "right") - np.searchsorted(ordered, keys)


def _rank(keys: np.ndarray) -> np.ndarray:
    """Return how many equal keys come before each key."""
    order = np.argsort(keys, kind="stable")
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return rank


class Bounds(NamedTuple):
    """The bounds that the counts imply; a claim may exceed them by ``slack`` (lower, upper, gap), which is for rounding."""

    lower: float
    upper: float
    gap: float
    slack: tuple[float, ...] = (0.0, 0.0, 0.0)
    problems: tuple[str, ...] = ()

    def not_implied(self, claim: Claim) -> list[str]:
        """Return the parts of the claim that go beyond the bounds."""
        stated, problems = claim.stated, []
        for name, sign, slack in zip(("lower", "upper", "gap"), (-1, 1, 1), self.slack, strict=True):
            said, implied = getattr(stated, name), getattr(self, name)
            if not sign * said >= sign * implied - slack:
                problems.append(f"{name}: {said!r} is claimed, but the counts imply only {implied!r}")
        if stated.reached != (stated.gap <= claim.eps):
            problems.append(f"reached: {stated.reached} is claimed, but the gap is {stated.gap} and eps is {claim.eps}")
        return problems
