"""The claim as the file states it: the policy, what was seen, under which provenance, and the bounds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.verification._file import (
    Rejected,
    a_list,
    a_number,
    a_string,
    an_integer,
    an_object,
    integers,
    numbers,
    one_of,
)
from entropic_bpi.verification._problem import Problem
from entropic_bpi.verification._slots import check_names, check_slots

SAME_REWARD = 1e-9  # of the range: fixed rewards that differ by no more are one, up to rounding
_MOST_VALUES, _CELLS = 64, 1024  # of a random reward: values kept as they are, cells of the range for more
_MOST_VISITS = 2**62  # of all rows together, so that sums stay exact

# Each test of an assumption rejects what is true with this probability: from this logarithm of an e-value on.
TEST_LEVEL = 0.01
REJECTED_FROM = math.log(1 / TEST_LEVEL)


_MOST_CELLS = 256
_MOST_LEAVES, _MOST_LABELS = 1024, 6  # of a tree of cuts, and of the laws that are cut


class Leaf(NamedTuple):
    """A part of the kernels, and how its gap is bounded: ``cuts`` (law, event as bits, probability, at least or not)."""

    test: str
    cuts: tuple[tuple[int, int, float, bool], ...]


class Cell(NamedTuple):
    """A part of the λ of the entropic value at risk, up to ``until``, for which the bounds at ``lam`` speak."""

    lam: float
    until: float
    test: str | None


class Seen(NamedTuple):
    """What was seen, sorted: rows, where they led, how often, and between which numbers the reward was."""

    rows: np.ndarray
    successors: np.ndarray
    times: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def between(self, first: int, last: int) -> Seen:
        """That of the rows from ``first`` to before ``last``."""
        begin, end = np.searchsorted(self.rows, (first, last))
        return Seen(*(part[begin:end] for part in self))


class Outcomes(NamedTuple):
    """What some rows may do, row after row, and how often it was seen.

    ``sizes`` has a number for each row, the others one for each outcome. ``low`` and ``high`` are what was paid where no
    slot declares the outcome, which is ``slot`` -1.
    """

    sizes: np.ndarray
    successors: np.ndarray
    slots: np.ndarray
    times: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Log:
    """What is known of the log that the counts come from, or began with."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.longest = an_integer("provenance.log.longest", given["longest"], 1)
        self.unused = an_integer("provenance.log.unused", given["unused"], 0)
        excluded = given["excluded"]
        self.excluded = None if excluded is None else a_string("provenance.log.excluded", excluded)
        self.seen = one_of("provenance.log.seen", given["seen"], (True, False))


class Claim(Problem):
    """A problem and what is claimed about it, checked for shape and kept as arrays."""

    alone = False
    """Whether only the policy's own value matters, from both sides: no other may be chosen."""

    def __init__(self, content: dict[str, Any]) -> None:
        content = an_object("the certificate", content)
        problem = an_object("problem", content["problem"])
        a_string("library", content["library"])
        super().__init__(problem)
        check_slots(self)
        self.method = one_of("method", content["method"], ("kl", "bernstein"))
        wanted = (None,) if self.method == "kl" else ("verified", "sharp", "printed")
        self.constants = one_of(f"constants of method {self.method!r}", content["constants"], wanted)
        self.policy = integers("policy", content["policy"], (self.horizon, self.n_states), 0, self.n_actions - 1)
        self._read_counts(an_object("counts", content["counts"]))
        self.check_masks()
        self._read_provenance(an_object("provenance", content["provenance"]))
        if self.return_range is not None and self.episodes:
            self._check_returns(*self.return_range)
        elif self.return_range is not None and self.return_range[1] - self.return_range[0] <= self.return_room:
            raise Rejected("return_range has no width, and no episode was played that could contradict it")
        if self.black_box and self.log is None:
            check_names(self)
        claim = an_object("claim", content["claim"])
        self.claimed = {name: a_number(f"claim.{name}", claim[name]) for name in ("lower", "upper", "gap")}
        self.reached = one_of("claim.reached", claim["reached"], (True, False))
        entropic = self.alpha is None and self.explored is None
        tests = ("ratio", "pairs", "explored", "boxes") if self.method == "kl" and entropic else (None,)
        self.test = one_of(f"claim.test of method {self.method!r}", claim["test"], tests)
        self.cells = None if claim["cells"] is None else self.read_cells(a_list("claim.cells", claim["cells"]))
        if (claim["cuts"] is None) == (self.test == "boxes"):
            raise Rejected("claim.cuts belong to the test 'boxes', and it needs them")
        self.leaves = None if claim["cuts"] is None else self._read_cuts(a_list("claim.cuts", claim["cuts"]))
        if (self.cells is None) != entropic:
            raise Rejected("claim.cells belong to the entropic value at risk and to explorations, which need them")
        if not entropic and self.method != "kl":
            raise Rejected(f"EVaR and explorations are certified by the KL method alone, not by {self.method!r}")
        self.assumptions = content["assumptions"]
        self.radii: dict[range, np.ndarray] = {}  # of the balls of each step, once they are known

    def check_masks(self) -> None:
        """Whether nothing forbidden is in the policy or was played, and no mask came with a state that nobody saw."""
        if self.allowed is None:
            return
        for h in range(self.horizon):
            states = np.arange(self.n_states)
            wrong = ~self.permitted(h + self.random_start, states)[states, self.policy[h]]
            if wrong.any():
                raise Rejected(f"the policy plays a forbidden action in state {np.argmax(wrong)} at step {h}")
        seen = self.seen.between(0, self.n_rows - self.random_start)
        steps = 1 if self.stationary else self.horizon
        masks = np.broadcast_to(
            self.allowed.max(axis=0) if steps == 1 else self.allowed, (steps, *self.allowed.shape[1:])
        )
        played = masks.ravel()[seen.rows]
        if not played.all():
            raise Rejected(f"counts of a forbidden action: {self.place(int(seen.rows[np.argmin(played)]))}")
        if self.offered:
            visited = np.zeros(self.n_states, dtype=bool)
            visited[self.seen.successors] = visited[self.state_of(seen.rows)] = True
            if not self.allowed[0, ~visited].all():
                raise Rejected(
                    "allowed has a mask of a state that was never seen, although masks come with observations"
                )

    def read_cells(self, given: list[Any]) -> list[Cell]:
        """Cells that follow one another, each with its λ inside, until the last one, which has no end."""
        if len(given) > _MOST_CELLS:
            raise Rejected(f"claim.cells must be at most {_MOST_CELLS}, got {len(given)}")
        cells: list[Cell] = []
        for part in given:
            cell = an_object("claim.cells", part)
            lam, until = a_number("claim.cells.lam", cell["lam"]), cell["until"]
            until = math.inf if until is None else a_number("claim.cells.until", until)
            if not (0 < lam <= until and (cells[-1].until if cells else 0.0) <= lam):
                raise Rejected(f"claim.cells are not in order at lam = {lam!r}")
            if self.lams is not None and lam not in self.lams:
                raise Rejected(f"claim.cells use lam = {lam!r}, which was not declared")
            cells.append(Cell(lam, until, one_of("claim.cells.test", cell["test"], ("ratio", "pairs", None))))
        if not cells or (cells[-1].until < math.inf) == (self.explored is None):
            raise Rejected("claim.cells must reach without end, except those of explorations")
        return cells

    def _read_cuts(self, given: list[Any]) -> list[Leaf]:
        """The leaves of a binary tree of cuts, which is listed in preorder, the part with the smaller probability first.

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
            cut = an_object("claim.cuts", part)
            most = self.n_rows if self.noise is None else len(self.noise.sizes)
            law, at = an_integer("claim.cuts.law", cut["law"], 0, most - 1), a_number("claim.cuts.at", cut["at"])
            labels, event = self.labels_of(law), integers("claim.cuts.event", cut["event"], (None,), 0).tolist()
            inside = 0 < len(event) < len(labels) and set(event) <= set(labels) and len(set(event)) == len(event)
            if not inside or len(set(labels)) < len(labels) or not 1 < len(labels) <= _MOST_LABELS:
                raise Rejected(f"claim.cuts: {event!r:.80} is no event of law {law}, or this one cannot be cut")
            if not 0.0 < at < 1.0:
                raise Rejected(f"claim.cuts.at must be a probability between 0 and 1, got {at!r}")
            bits = sum(1 << labels.index(label) for label in event)
            paths += [(*path, (law, bits, at, True)), (*path, (law, bits, at, False))]
        if paths:
            raise Rejected(f"claim.cuts lack {len(paths)} leaves")
        return leaves

    def labels_of(self, law: int) -> list[int]:
        """The labels of a law of declared noise, otherwise the next states of a row, if these are known."""
        if self.noise is not None:
            return list(range(self.noise.sizes[law]))
        listed = self.slot_successor[self.begin[law] : self.begin[law] + self.used[law]].tolist()
        return [] if self.n_states in listed else listed

    def _read_counts(self, given: dict[str, Any]) -> None:
        self.episodes = an_integer("counts.episodes", given["episodes"], 0)
        rows = integers("counts.rows", given["rows"], (None,), 0, self.n_rows - 1)
        successors = integers("counts.successors", given["successors"], (len(rows),), 0, self.n_states - 1)
        times = integers("counts.times", given["times"], (len(rows),), 1)
        if times.sum(dtype=float) > _MOST_VISITS:
            raise Rejected(f"counts.times add up to more than {_MOST_VISITS}")
        low, high = (
            numbers(f"counts.{name}", given[name], (len(rows) if self.black_box else 0,))
            for name in ("rewards", "upper")
        )
        if not self.black_box:
            low = high = np.zeros(len(rows))
        order = np.lexsort((high, low, successors, rows))
        self.seen = Seen(*(part[order] for part in (rows, successors, times, low, high)))
        self._check_rewards_seen()
        for layer in self.layers:
            self._check_seen(layer)

    def _check_rewards_seen(self) -> None:
        """Whether nothing is listed twice, and what was paid lies in its range."""
        rows, successors, _, low, high = self.seen
        parts = (rows, successors, low, high)
        twice = np.logical_and.reduce([part[1:] == part[:-1] for part in parts])
        if twice.any():
            i = int(np.argmax(twice))
            raise Rejected(f"counts list {self.place(int(rows[i]))} to state {successors[i]} twice")
        if not self.black_box:
            return
        # Where noise is declared, each outcome has a reward or range of its own, to which it is compared later.
        slots = self.begin[rows] if self.noise is None else np.where(self.is_start(rows), self.begin[rows], 0)
        least, most = self.slot_low[0, slots], self.slot_high[0, slots]
        inside = (least <= low) & (low <= high) & (high <= most)
        if self.known_reward and self.successors != "unknown":  # what is declared of this very outcome
            owner, listed = self.slots_of(rows)
            fits = self.slot_successor[listed] == successors[owner]
            fits &= (self.slot_low[0, listed] <= low[owner]) & (high[owner] <= self.slot_high[0, listed])
            inside = (low <= high) & (np.bincount(owner, fits, len(rows)) > 0) | self.is_start(rows) & inside
        if not inside.all():
            i = int(np.argmin(inside))
            seen = f"reward {low[i]}" if low[i] == high[i] else f"a reward from {low[i]} to {high[i]}"
            where = self.place(int(rows[i]))
            raise Rejected(f"{seen} was seen in {where}, outside its range from {least[i]} to {most[i]}")

    def _check_returns(self, least: float, most: float) -> None:
        """Whether the rewards seen can be those of episodes whose returns lie in the declared range.

        In a log, an episode that did not end may lack up to all of its steps, and what was paid after the horizon does not
        belong to the return.
        """
        (low, high), others = self.reward_range, self.horizon - 1
        after = 0 if self.log is None else max(0, self.log.longest - self.horizon)
        least_earned = most_earned = Fraction(0)
        seen = self.seen.between(0, self.n_rows - self.random_start)
        ended = int(seen.times[seen.successors == self.n_states - 1].sum())
        not_ended = 0 if self.log is None else self.episodes - ended
        rewards, back = np.unique(np.stack([seen.low, seen.high]), axis=1, return_inverse=True)
        times = np.zeros(rewards.shape[1], dtype=np.int64)
        np.add.at(times, back.ravel(), seen.times)
        for worst, best, often in zip(*rewards.tolist(), times.tolist(), strict=True):
            least_earned += Fraction(worst) * often
            most_earned += Fraction(best) * often
            if after:
                continue
            if worst + others * low > most + self.return_room or best + others * high < least - self.return_room:
                raise Rejected(f"reward {worst} was seen: no episode with it has a return from {least} to {most}")
        lacking = max(0, not_ended) * self.horizon
        if least_earned > self.episodes * (most + self.return_room + after * high) - lacking * low:
            raise Rejected(f"the mean return of the episodes is above the declared range from {least} to {most}")
        if most_earned < self.episodes * (least - self.return_room + after * low) - lacking * high:
            raise Rejected(f"the mean return of the episodes is below the declared range from {least} to {most}")

    def _check_seen(self, layer: range) -> None:
        """Whether what was seen of the rows of one step can have happened."""
        rows, n = np.array(layer), self.n_states
        seen, is_start = self.seen.between(layer.start, layer.stop), self.is_start(layer[-1])
        at_end = self.state_of(seen.rows) == n - 1
        if self.black_box and not is_start and at_end.any():
            where = self.place(int(seen.rows[np.argmax(at_end)]))
            raise Rejected(f"counts after the end: nothing is played in {where}")
        owner, slots = self.slots_of(rows)
        declared = np.sort(owner * (n + 1) + self.slot_successor[slots])
        keys = (seen.rows - layer.start) * (n + 1)
        outside = ~_is_among(declared, keys + seen.successors) & ~_is_among(declared, keys + n)
        if self.black_box and is_start:
            outside |= seen.successors == n - 1
        if outside.any():
            where, y = self.place(int(seen.rows[np.argmax(outside)])), seen.successors[np.argmax(outside)]
            raise Rejected(f"counts outside the declared successors: {where} went to state {y}")
        if self.black_box:
            self._check_paid(seen)
        different = seen if self._rewards_tell_outcomes else _together(seen)
        happened = np.bincount(different.rows - layer.start, minlength=len(layer))
        if np.any(more := happened > self.most[rows]):
            row = int(rows[np.argmax(more)])
            many = happened[np.argmax(more)]
            raise Rejected(f"{self.place(row)} has {many} outcomes, more than the declared {self.most[row]}")

    def _check_paid(self, seen: Seen) -> None:
        """Whether rewards that were seen can be those of the declared law."""
        low, high = self.declared_range
        _, begin, sizes = np.unique(
            seen.rows * (self.n_states + 1) + seen.successors, return_index=True, return_counts=True
        )
        # A single reward that is known up to rounding, or a few exact ones, can be of every law.
        if self.random_rewards:
            doubtful = (sizes > _MOST_VALUES) | (
                np.maximum.reduceat(seen.high > seen.low, begin) if len(begin) else False
            )
        else:
            doubtful = (sizes > 1) | (seen.high - seen.low > SAME_REWARD * (high - low))[begin]
        for first, size in zip(begin[doubtful].tolist(), sizes[doubtful].tolist(), strict=True):
            row, y = int(seen.rows[first]), int(seen.successors[first])
            paid = list(zip(*(part[first : first + size].tolist() for part in (seen.low, seen.high)), strict=True))
            where = f"{self.place(row)} to state {y}"
            if self.random_rewards:
                _check_random(where, paid, low, high)
            else:
                _check_fixed(where, paid, low, high, self.reward_kinds(row, y))

    @property
    def _rewards_tell_outcomes(self) -> bool:
        """Whether another reward is another outcome: where rewards are learned and fixed."""
        return self.black_box and not self.random_rewards

    @property
    def has_rounded_rewards(self) -> bool:
        """Whether some reward is known only up to rounding, or as a cell of the range."""
        return bool((self.seen.low < self.seen.high).any())

    def _read_provenance(self, given: dict[str, Any]) -> None:
        self.batches = one_of("provenance.batches", given["batches"], (True, False))
        ignored = a_list("provenance.ignored", given["ignored"])
        self.ignored = [name for name in ("stationary", "successors") if name in ignored]
        if ignored != self.ignored:
            raise Rejected(f"provenance.ignored must name 'stationary' and 'successors' in order, got {ignored!r:.80}")
        if self.method != "kl" and self.noise is not None:
            raise Rejected(f"method {self.method!r} makes no use of noise")
        if self.method != "kl" and self.max_successors is not None:
            raise Rejected(f"method {self.method!r} makes no use of max_successors")
        if self.method != "kl" and self.random_start and self.start is not None:
            raise Rejected(f"method {self.method!r} makes no use of a declared start")
        ignoring = self.constants in ("verified", "printed")
        if ignoring and (self.stationary or self.successors != "unknown"):
            raise Rejected(f"constants {self.constants!r} use neither stationary transitions nor declared successors")
        if ignored and not ignoring:
            raise Rejected(
                "provenance.ignored must be empty: only constants 'verified' and 'printed' ignore a declaration"
            )
        self.errors = an_integer("provenance.errors", given["errors"], 0)
        self.accepted = [
            a_string("provenance.accepted", name) for name in a_list("provenance.accepted", given["accepted"])
        ]
        named = given["rewards"]
        self.other_rewards = None if named is None else a_string("provenance.rewards", named)
        if named is not None and (self.method != "kl" or self.random_rewards):
            raise Rejected("only the KL method certifies for other rewards, and not for random ones")
        digest = given["preregistration"]
        if digest is not None and not re.fullmatch("[0-9a-f]{64}", a_string("provenance.preregistration", digest)):
            raise Rejected(f"provenance.preregistration must be a digest of 64 hexadecimal digits, got {digest!r:.80}")
        self.tests = None if given["tests"] is None else self._read_tests(an_object("tests", given["tests"]))
        self.log = None if given["log"] is None else Log(an_object("provenance.log", given["log"]))
        if self.log is not None and not (self.black_box and self.method == "kl"):
            raise Rejected("only the KL method certifies from a log, with rewards that are learned")

    def _read_tests(self, given: dict[str, Any]) -> dict[str, float]:
        """Logarithms of three e-values, and a value; null where there is none. The counts do not tell if they are true."""
        if not self.black_box or (given["stationary"] is None) == self.stationary:
            raise Rejected("provenance.tests must be those of an environment, of what is assumed of it and no more")
        tests = {name: a_number(f"tests.{name}", value) for name, value in given.items() if value is not None}
        a_number("tests.memoryless", given["memoryless"])
        if not max(tests.get(name, 0.0) for name in ("stationary", "memoryless", "unchanging")) < REJECTED_FROM:
            raise Rejected(f"the tests have rejected what is assumed: {given!r:.80}")
        return tests

    def actions(self, h: int, states: np.ndarray) -> np.ndarray:
        """What the policy does in some states at planned step ``h``."""
        if self.random_start and h == 0:
            return np.zeros(len(states), dtype=np.int64)
        return self.policy[h - self.random_start][states]

    def outcomes(self, layer: range) -> Outcomes:
        """What the rows of one step may do, all that they were seen to do included.

        One outcome for each successor, except where rewards are learned and fixed: then another reward is another outcome,
        and takes one of the places where its state is listed. Where as much was seen as can happen, only that.
        """
        if self.noise is not None and not self.is_start(layer[-1]):
            return self.noise.outcomes(self, Outcomes)
        seen, n, count = self.seen.between(layer.start, layer.stop), self.n_states, len(layer)
        owner, slots = self.slots_of(np.array(layer))
        key = owner * (n + 1) + self.slot_successor[slots]
        if self._rewards_tell_outcomes:
            mine = (seen.rows - layer.start) * (n + 1) + seen.successors
            kept = _rank(key) >= np.searchsorted(mine, key, "right") - np.searchsorted(mine, key)
            owner, slots, key = owner[kept], slots[kept], key[kept]
            times, extra = np.zeros(len(key), dtype=np.int64), np.ones(len(mine), dtype=bool)
        else:
            seen = _together(seen)
            mine = (seen.rows - layer.start) * (n + 1) + seen.successors
            at, found = np.searchsorted(mine, key), _is_among(mine, key)
            times, extra = np.where(found, np.append(seen.times, 0)[at], 0), np.ones(len(mine), dtype=bool)
            extra[at[found]] = False
        owner = np.concatenate([owner, seen.rows[extra] - layer.start])
        nothing = np.zeros(len(key))
        columns = (
            np.concatenate([key % (n + 1), seen.successors[extra]]),
            np.concatenate([slots, np.full(extra.sum(), -1)]),
            np.concatenate([times, seen.times[extra]]),
            np.concatenate([nothing, seen.low[extra]]),
            np.concatenate([nothing, seen.high[extra]]),
        )
        happened = columns[2] > 0
        complete = np.bincount(owner, happened, count) == self.most[layer.start : layer.stop]
        kept = np.flatnonzero(happened | ~complete[owner])
        kept = kept[np.argsort(owner[kept], kind="stable")]
        return Outcomes(np.bincount(owner[kept], minlength=count), *(column[kept] for column in columns))


def _together(seen: Seen) -> Seen:
    """The same with one entry for each row and successor, whatever was paid."""
    new = np.ones(len(seen.rows), dtype=bool)
    new[1:] = (seen.rows[1:] != seen.rows[:-1]) | (seen.successors[1:] != seen.successors[:-1])
    first = np.flatnonzero(new)
    times = np.add.reduceat(seen.times, first) if first.size else seen.times
    return Seen(seen.rows[first], seen.successors[first], times, seen.low[first], seen.high[first])


def _is_among(ordered: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return np.append(ordered, -1)[np.searchsorted(ordered, keys)] == keys


def _rank(keys: np.ndarray) -> np.ndarray:
    """How many equal ones come before each."""
    order = np.argsort(keys, kind="stable")
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    return rank


def _check_fixed(where: str, paid: list[tuple[float, float]], low: float, high: float, allowed: int) -> None:
    """Whether fixed rewards are known up to rounding, differ by more than that, and are not too many."""
    same = SAME_REWARD * (high - low)
    if len(paid) > allowed:
        raise Rejected(f"{where} has more different rewards than are allowed")
    for i, (least, most) in enumerate(paid):
        if most - least > same:
            raise Rejected(f"{where} paid from {least} to {most}, which is more than rounding")
        for other in paid[:i]:
            if max(most, other[1]) - min(least, other[0]) <= same:
                raise Rejected(f"{where} lists {least} and {other[0]}, which are one reward, up to rounding")


def _check_random(where: str, paid: list[tuple[float, float]], low: float, high: float) -> None:
    """Whether random rewards are different values, or all of them different cells of the range."""
    if len(paid) <= _MOST_VALUES and all(least == most for least, most in paid):
        return
    for least, most in paid:
        cell = round((least - low) / (high - low) * _CELLS)
        if (least, most) != (_edge(low, high, cell), _edge(low, high, cell + 1)):
            raise Rejected(f"{where} paid from {least} to {most}, which is not one of the {_CELLS} cells of the range")


def _edge(low: float, high: float, cell: int) -> float:
    return high if cell == _CELLS else min(high, low + (high - low) * (cell / _CELLS))


@dataclass(frozen=True)
class Bounds:
    """What the counts imply. ``slack`` (lower, upper, gap) is by how much a claim may differ and be called rounded."""

    lower: float
    upper: float
    gap: float
    slack: tuple[float, ...] = (0.0, 0.0, 0.0)
    problems: list[str] = field(default_factory=list)

    def not_implied(self, claim: Claim) -> list[str]:
        """The parts of the claim that go beyond the bounds."""
        lower, upper, gap = (claim.claimed[name] for name in ("lower", "upper", "gap"))
        problems = []
        if not lower <= self.lower + self.slack[0]:
            problems.append(f"lower: {lower!r} is claimed, but the counts imply only {self.lower!r}")
        if not upper >= self.upper - self.slack[1]:
            problems.append(f"upper: {upper!r} is claimed, but the counts imply only {self.upper!r}")
        if not gap >= self.gap - self.slack[2]:
            problems.append(f"gap: {gap!r} is claimed, but the counts imply only {self.gap!r}")
        if claim.reached != (gap <= claim.eps):
            problems.append(f"reached: {claim.reached} is claimed, but the gap is {gap!r} and eps is {claim.eps!r}")
        return problems
