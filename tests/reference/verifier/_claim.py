"""The claim as the file states it: the policy, what was seen, under which provenance, and the bounds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from entropic_bpi.verification._file import Rejected, a_list, a_number, an_integer, one_of, read
from reference.verifier._payments import check_fixed, check_random
from reference.verifier._problem import Problem
from reference.verifier._slots import check_names, check_slots

Cut = tuple[int, frozenset[int], float, int]  # a law, an event, the probability, and its side
Paid = tuple[float, float]  # the ends of what a reward is known to lie between


# Each test of an assumption rejects what is true with this probability: from this logarithm of an e-value on.
TEST_LEVEL = 0.01
REJECTED_FROM = math.log(1 / TEST_LEVEL)


_MOST_CELLS = 256


class Cell(NamedTuple):
    """A part of the λ of the entropic value at risk, up to ``until``, for which the bounds at ``lam`` speak."""

    lam: float
    until: float
    test: str | None


class Outcome(NamedTuple):
    """What a row may do, and how often it was seen. ``paid`` is what was seen, where no slot declares the outcome."""

    successor: int
    slot: int | None
    paid: dict[Paid, int]
    times: int


class Claim(Problem):
    """A problem and what is claimed about it, checked for shape and kept as plain lists."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.provenance = read("certificate", "certificate", content).provenance  # and the types of all other parts
        super().__init__(content["problem"])
        check_slots(self)
        self.method = one_of("method", content["method"], ("kl", "bernstein"))
        wanted = (None,) if self.method == "kl" else ("verified", "sharp", "printed")
        self.constants = one_of(f"constants of method {self.method!r}", content["constants"], wanted)
        self.policy = [
            [an_integer("policy", a, 0, self.n_actions - 1) for a in a_list("policy", step, self.n_states)]
            for step in a_list("policy", content["policy"], self.horizon)
        ]
        self._read_counts(content["counts"])
        self._check_masks()
        self._check_provenance()
        if self.return_range is not None and self.episodes:
            self._check_returns(*self.return_range)
        elif self.return_range is not None and self.return_range[1] - self.return_range[0] <= self.return_room:
            raise Rejected("return_range has no width, and no episode was played that could contradict it")
        if self.black_box and self.log is None:
            check_names(self)
        claim = content["claim"]
        self.claimed = {name: a_number(f"claim.{name}", claim[name]) for name in ("lower", "upper", "gap")}
        self.reached = one_of("claim.reached", claim["reached"], (True, False))
        tests = ("ratio", "pairs", "boxes") if self.method == "kl" and self.alpha is None else (None,)
        self.test = one_of(f"claim.test of method {self.method!r}", claim["test"], tests)
        self.cells = None if claim["cells"] is None else self._read_cells(a_list("claim.cells", claim["cells"]))
        if (claim["cuts"] is None) == (self.test == "boxes"):
            raise Rejected("claim.cuts belong to the test 'boxes', and it needs them")
        self.leaves = None if claim["cuts"] is None else self._read_cuts(list(a_list("claim.cuts", claim["cuts"])))
        if (self.cells is None) != (self.alpha is None):
            raise Rejected("claim.cells belong to the entropic value at risk, and it needs them")
        if self.alpha is not None and self.method != "kl":
            raise Rejected(f"the entropic value at risk is certified by the KL method alone, not by {self.method!r}")
        self.assumptions = content["assumptions"]

    def _read_cuts(self, given: list[Any]) -> list[tuple[str, list[Cut]]]:
        """The leaves of the tree, each with its test and the cuts (law, event, at, side) above it."""

        def leaves(path: list[Cut]) -> list[tuple[str, list[Cut]]]:
            if not given:
                raise Rejected("claim.cuts lack leaves")
            part = given.pop(0)
            if isinstance(part, str):
                return [(one_of("claim.cuts", part, ("ratio", "empty")), path)]
            cut = vars(read("cut", "claim.cuts", part))
            laws = self.n_rows if self.noise is None else len(self.noise.sizes)
            law, at = an_integer("claim.cuts.law", cut["law"], 0, laws - 1), a_number("at", cut["at"])
            listed = self.labels_of(law)
            event = [an_integer("claim.cuts.event", label, 0) for label in a_list("claim.cuts.event", cut["event"])]
            known = self.noise is not None or self.n_states not in listed
            known = known and len(set(listed)) == len(listed) and 1 < len(listed) <= 6
            is_event = len(set(event)) == len(event) and 0 < len(event) < len(listed) and set(event) <= set(listed)
            if not 0.0 < at < 1.0 or not known or not is_event:
                raise Rejected("claim.cuts: this is no cut of a law")
            return [leaf for side in (1, 0) for leaf in leaves([*path, (law, frozenset(event), at, side)])]

        found = leaves([])
        if given:
            raise Rejected("claim.cuts are more than one tree")
        return found

    def labels_of(self, law: int) -> list[int]:
        """The labels of a law of declared noise, otherwise the next states of a row."""
        if self.noise is not None:
            return list(range(self.noise.sizes[law]))
        return [self.slot_successor[slot] for slot in self.row_slots[law]]

    def _check_masks(self) -> None:
        """Whether only allowed actions are in the policy and in the counts, and only seen states have a mask."""
        first = int(self.random_start)
        for h, actions in enumerate(self.policy):
            if not all(self.is_allowed(h + first, s, a) for s, a in enumerate(actions)):
                raise Rejected(f"the policy plays a forbidden action at step {h}")
        visited = {y for outcomes in self.seen.values() for y, _ in outcomes}
        for row in self.seen:
            if self.is_start(row):
                continue
            s, a = self.state_of(row), row % self.n_actions
            visited.add(s)
            steps = range(self.horizon) if self.stationary else [self.step_of(row)]
            if not any(self.is_allowed(h + first, s, a) for h in steps):
                raise Rejected(f"counts of a forbidden action: {self.describe(row)}")
        if self.offered and any(not self.allowed[0, s].all() for s in range(self.n_states) if s not in visited):
            raise Rejected("a mask of a state that was never seen")

    def _read_cells(self, given: list[Any]) -> list[Cell]:
        """Cells that follow one another, each with its λ inside, until the last one, which has no end."""
        if len(given) > _MOST_CELLS:
            raise Rejected(f"claim.cells must be at most {_MOST_CELLS}, got {len(given)}")
        cells: list[Cell] = []
        for part in given:
            cell = part
            lam, until = a_number("claim.cells.lam", cell["lam"]), cell["until"]
            until = math.inf if until is None else a_number("claim.cells.until", until)
            if not (0 < lam <= until and (cells[-1].until if cells else 0.0) <= lam):
                raise Rejected(f"claim.cells are not in order at lam = {lam!r}")
            if self.lams is not None and lam not in self.lams:
                raise Rejected(f"claim.cells use lam = {lam!r}, which was not declared")
            cells.append(Cell(lam, until, one_of("claim.cells.test", cell["test"], ("ratio", "pairs", None))))
        if not cells or cells[-1].until < math.inf:
            raise Rejected("claim.cells must reach without end")
        return cells

    def _read_counts(self, given: dict[str, Any]) -> None:
        """``seen[row]`` maps each outcome (successor, what it paid) of a row to how often it was seen."""
        self.episodes = an_integer("counts.episodes", given["episodes"], 0)
        rows = a_list("counts.rows", given["rows"])
        successors, times = (a_list(f"counts.{name}", given[name], len(rows)) for name in ("successors", "times"))
        paid = [
            a_list(f"counts.{name}", given[name], len(rows) if self.black_box else 0) or [0.0] * len(rows)
            for name in ("rewards", "upper")
        ]
        self.seen: dict[int, dict[tuple[int, Paid], int]] = {}
        for row, y, count, *ends in zip(rows, successors, times, *paid, strict=True):
            an_integer("counts.rows", row, 0, self.n_rows - 1)
            an_integer("counts.successors", y, 0, self.n_states - 1)
            an_integer("counts.times", count, 1)
            outcome = y, self._paid(row, y, *ends)
            if outcome in self.seen.setdefault(row, {}):
                raise Rejected(f"counts list {self.describe(row)} to state {y} twice")
            self.seen[row][outcome] = count
        for row in self.seen:
            self._check_seen(row)
        observed = sum(self.noise.sizes) if self.noise is not None and self.noise.observed else 0
        self.drawn = [an_integer("label", n, 0) for n in a_list("counts.labels", given["labels"], observed)]

    @cached_property
    def happened(self) -> list[list[tuple[int, Paid | None]]]:
        """Where noise is declared: how often each slot of each pair was seen there, and what it paid."""
        assert self.noise is not None
        self.noise.check_drawn(self)
        return [self.noise.happened(self, pair) for pair in range(len(self.noise.law))]

    def _check_returns(self, least: float, most: float) -> None:
        """Whether the rewards seen can be those of episodes whose returns lie in the declared range.

        In a log, an episode that did not end may lack up to all of its steps, and what was paid after the horizon does not
        belong to the return.
        """
        (low, high), others = self.reward_range, self.horizon - 1
        after = 0 if self.log is None else max(0, self.log.longest - self.horizon)
        least_earned = most_earned = Fraction(0)
        not_ended = 0 if self.log is None else self.episodes
        for row, outcomes in self.seen.items():
            if self.is_start(row):
                continue
            for (y, (worst, best)), times in outcomes.items():
                least_earned += Fraction(worst) * times
                most_earned += Fraction(best) * times
                not_ended -= times if y == self.n_states - 1 else 0
                if after:
                    continue
                if worst + others * low > most + self.return_room or best + others * high < least - self.return_room:
                    raise Rejected(f"reward {worst} was seen: no episode with it has a return from {least} to {most}")
        lacking = max(0, not_ended) * self.horizon
        if least_earned > self.episodes * (most + self.return_room + after * high) - lacking * low:
            raise Rejected(f"the mean return of the episodes is above the declared range from {least} to {most}")
        if most_earned < self.episodes * (least - self.return_room + after * low) - lacking * high:
            raise Rejected(f"the mean return of the episodes is below the declared range from {least} to {most}")

    def _paid(self, row: int, y: int, low: Any, high: Any) -> Paid:
        """What a seen outcome paid where rewards are learned; nothing where they are known."""
        if not self.black_box:
            return 0.0, 0.0
        # Where noise is declared, each outcome has a reward or range of its own, to which it is compared later.
        slot = self.row_slots[row][0] if self.noise is None or self.is_start(row) else 0
        least, most = self.slot_low[0][slot], self.slot_high[0][slot]
        low, high = a_number("counts.rewards", low), a_number("counts.upper", high)
        if self.known_reward and self.successors != "unknown" and not self.is_start(row):
            ends = [
                (self.slot_low[0][j], self.slot_high[0][j]) for j in self.row_slots[row] if self.slot_successor[j] == y
            ]
            least, most = next(((a, b) for a, b in ends if a <= low <= high <= b), (math.inf, -math.inf))
        if not least <= low <= high <= most:
            seen = f"reward {low}" if low == high else f"a reward from {low} to {high}"
            raise Rejected(f"{seen} was seen in {self.describe(row)}, outside its range from {least} to {most}")
        return low, high

    def _check_seen(self, row: int) -> None:
        if self.black_box and self.state_of(row) == self.n_states - 1 and not self.is_start(row):
            raise Rejected(f"counts after the end: nothing is played in {self.describe(row)}")
        declared = {self.slot_successor[j] for j in self.row_slots[row]}
        for y, paid in self._paid_by(row).items():
            starts_at_end = self.black_box and self.is_start(row) and y == self.n_states - 1
            if starts_at_end or (y not in declared and self.n_states not in declared):
                raise Rejected(f"counts outside the declared successors: {self.describe(row)} went to state {y}")
            place = f"{self.describe(row)} to state {y}"
            if self.random_rewards:
                check_random(place, list(paid), *self.declared_range)
            elif self.black_box:
                check_fixed(place, list(paid), *self.declared_range, self.reward_kinds(row, y))
        happened = sum(outcome.times > 0 for outcome in self._listed(row))
        if happened > self.most(row):
            raise Rejected(f"{self.describe(row)} has {happened} outcomes, more than the declared {self.most(row)}")

    def _paid_by(self, row: int) -> dict[int, dict[Paid, int]]:
        """For each successor that was seen, what it paid, and how often."""
        reward_counts: dict[int, dict[Paid, int]] = {}
        for (y, paid), count in self.seen.get(row, {}).items():
            reward_counts.setdefault(y, {})[paid] = count
        return reward_counts

    def _check_provenance(self) -> None:
        origin, self.log = self.provenance, self.provenance.log
        if origin.rewards is not None and (self.method != "kl" or self.random_rewards):
            raise Rejected("other rewards that nobody certifies for")
        if origin.ignored != [name for name in ("stationary", "successors") if name in origin.ignored]:
            raise Rejected(f"provenance.ignored must name 'stationary' and 'successors' in order, got {origin.ignored}")
        if self.method != "kl" and self.noise is not None:
            raise Rejected(f"method {self.method!r} makes no use of noise")
        if self.method != "kl" and self.max_successors is not None:
            raise Rejected(f"method {self.method!r} makes no use of max_successors")
        if self.method != "kl" and self.discount is not None:
            raise Rejected(f"method {self.method!r} makes no use of discount")
        if self.method != "kl" and self.random_start and self.start is not None:
            raise Rejected(f"method {self.method!r} makes no use of a declared start")
        ignoring = self.constants in ("verified", "printed")
        if ignoring and (self.stationary or self.successors != "unknown"):
            raise Rejected(f"constants {self.constants!r} use neither stationary transitions nor declared successors")
        if origin.ignored and not ignoring:
            raise Rejected(
                "provenance.ignored must be empty: only constants 'verified' and 'printed' ignore a declaration"
            )
        digest = origin.preregistration
        if digest is not None and not re.fullmatch("[0-9a-f]{64}", digest):
            raise Rejected(f"provenance.preregistration must be a digest of 64 hexadecimal digits, got {digest!r:.80}")
        if origin.tests is not None:
            self._check_tests(vars(origin.tests))
        if self.log is not None and not (self.black_box and self.method == "kl"):
            raise Rejected("only the KL method certifies from a log, with rewards that are learned")

    def _check_tests(self, given: dict[str, float | None]) -> None:
        """Logarithms of three e-values, and a value; null where there is none. The counts do not tell if they are true."""
        if not self.black_box or (given["stationary"] is None) == self.stationary:
            raise Rejected("provenance.tests must be those of an environment, of what is assumed of it and no more")
        tests = {name: value for name, value in given.items() if value is not None}
        if not max(tests.get(name, 0.0) for name in ("stationary", "memoryless", "unchanging")) < REJECTED_FROM:
            raise Rejected(f"the tests have rejected what is assumed: {given!r:.80}")

    @property
    def has_rounded_rewards(self) -> bool:
        return any(least < most for outcomes in self.seen.values() for _, (least, most) in outcomes)

    def action(self, h: int, s: int) -> int:
        """What the policy does at planned step ``h``."""
        return 0 if self.random_start and h == 0 else self.policy[h - self.random_start][s]

    def outcomes(self, row: int) -> list[Outcome]:
        """What a row may do, all that it was seen to do included; only that, once as much was seen as can happen."""
        if self.noise is not None and not self.is_start(row):
            found = []
            for at, slot in enumerate(self.row_slots[row]):
                own, ends = self.happened[row][at]
                paid = {ends: own} if self.black_box and ends is not None else {}
                times = self.noise.times(self, row, at)
                found.append(Outcome(self.slot_successor[slot], None if paid else slot, paid, times))
            return found
        listed = self._listed(row)
        happened = [outcome for outcome in listed if outcome.times]
        return happened if len(happened) == self.most(row) else listed

    def _listed(self, row: int) -> list[Outcome]:
        """What is declared and what was seen of a row.

        One outcome for each successor, except where rewards are learned and fixed: then another reward is another outcome,
        and takes one of the places where its state is listed.
        """
        reward_counts = self._paid_by(row)
        states = [y for y, _ in self.seen.get(row, {})]
        listed = []
        for slot in self.row_slots[row]:
            y = self.slot_successor[slot]
            if not self.black_box or self.random_rewards:
                paid = reward_counts.pop(y, {})
                listed.append(Outcome(y, slot, paid, sum(paid.values())))
            elif y in states:
                states.remove(y)
            else:
                listed.append(Outcome(y, slot, {}, 0))
        for y, paid in reward_counts.items():
            kinds = [paid] if self.random_rewards else [{reward: count} for reward, count in paid.items()]
            listed += [Outcome(y, None, kind, sum(kind.values())) for kind in kinds]
        return listed


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
