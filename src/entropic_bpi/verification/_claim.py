"""The claim as the file states it: the policy, what was seen, under which circumstances, and the bounds."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NamedTuple

from entropic_bpi.verification._file import Rejected, a_list, a_number, a_string, an_integer, an_object, one_of
from entropic_bpi.verification._problem import Problem
from entropic_bpi.verification._slots import check_slots


class Outcome(NamedTuple):
    """What a row may do, and how often it was seen. ``reward`` is the one seen, where no slot declares the outcome."""

    successor: int
    slot: int | None
    reward: float
    times: int


class Claim(Problem):
    """A problem and what is claimed about it, checked for shape and kept as plain lists."""

    def __init__(self, content: dict[str, Any]) -> None:
        content = an_object("the certificate", content)
        problem = an_object("problem", content["problem"])
        a_string("library", content["library"])
        super().__init__(problem)
        check_slots(self)
        self.method = one_of("method", content["method"], ("kl", "bernstein"))
        wanted = (None,) if self.method == "kl" else ("verified", "sharp")
        self.constants = one_of(f"constants of method {self.method!r}", content["constants"], wanted)
        self.policy = [
            [an_integer("policy", a, 0, self.n_actions - 1) for a in a_list("policy", step, self.n_states)]
            for step in a_list("policy", content["policy"], self.horizon)
        ]
        self._read_counts(an_object("counts", content["counts"]))
        self._read_circumstances(an_object("circumstances", content["circumstances"]))
        claim = an_object("claim", content["claim"])
        self.claimed = {name: a_number(f"claim.{name}", claim[name]) for name in ("lower", "upper", "gap")}
        self.reached = one_of("claim.reached", claim["reached"], (True, False))
        self.assumptions = content["assumptions"]

    def _read_counts(self, given: dict[str, Any]) -> None:
        """``seen[row]`` maps each outcome (successor, reward) of a row to how often it was seen."""
        self.episodes = an_integer("counts.episodes", given["episodes"], 0)
        rows = a_list("counts.rows", given["rows"])
        successors, times = (a_list(f"counts.{name}", given[name], len(rows)) for name in ("successors", "times"))
        rewards = a_list("counts.rewards", given["rewards"], len(rows) if self.black_box else 0) or [None] * len(rows)
        self.seen: dict[int, dict[tuple[int, float], int]] = {}
        for row, y, count, reward in zip(rows, successors, times, rewards, strict=True):
            an_integer("counts.rows", row, 0, self.n_rows - 1)
            an_integer("counts.successors", y, 0, self.n_states - 1)
            an_integer("counts.times", count, 1)
            outcome = y, self._reward_seen(row, reward)
            if outcome in self.seen.setdefault(row, {}):
                raise Rejected(f"counts list {self.place(row)} to state {y} twice")
            self.seen[row][outcome] = count
        for row in self.seen:
            self._check_seen(row)
        if self.return_range is not None and self.episodes:
            self._check_returns(*self.return_range)

    def _check_returns(self, least: float, most: float) -> None:
        """Whether the rewards seen can be those of episodes whose returns lie in the declared range."""
        (low, high), others = self.reward_range, self.horizon - 1
        earned = Fraction(0)
        for row, outcomes in self.seen.items():
            if self.is_start(row):
                continue
            for (_, reward), times in outcomes.items():
                earned += Fraction(reward) * times
                if reward + others * low > most + self.return_room or reward + others * high < least - self.return_room:
                    raise Rejected(f"reward {reward} was seen: no episode with it has a return from {least} to {most}")
        mean = float(earned / self.episodes)
        if not least - self.return_room <= mean <= most + self.return_room:
            raise Rejected(
                f"the mean return of the episodes is {mean}, outside the declared range from {least} to {most}"
            )

    def _reward_seen(self, row: int, reward: Any) -> float:
        """The reward of a seen outcome where rewards are learned; 0 where they are known."""
        if not self.black_box:
            return 0.0
        slot = self.row_slots[row][0]
        low, high = self.slot_low[0][slot], self.slot_high[0][slot]
        value = a_number("counts.rewards", reward)
        if not low <= value <= high:
            raise Rejected(f"reward {value} was seen in {self.place(row)}, outside its range from {low} to {high}")
        return value

    def _check_seen(self, row: int) -> None:
        if self.black_box and self.state_of(row) == self.n_states - 1 and not self.is_start(row):
            raise Rejected(f"counts after the end: nothing is played in {self.place(row)}")
        declared = {self.slot_successor[j] for j in self.row_slots[row]}
        kinds: dict[int, int] = {}
        for y, _ in self.seen[row]:
            kinds[y] = kinds.get(y, 0) + 1
            starts_at_end = self.black_box and self.is_start(row) and y == self.n_states - 1
            if starts_at_end or (y not in declared and self.n_states not in declared):
                raise Rejected(f"counts outside the declared successors: {self.place(row)} went to state {y}")
            if kinds[y] > self.reward_kinds(row, y):
                raise Rejected(f"{self.place(row)} to state {y} has more different rewards than are allowed")
        if len(self.seen[row]) > self.most(row):
            raise Rejected(
                f"{self.place(row)} has {len(self.seen[row])} outcomes, more than the declared {self.most(row)}"
            )

    def _read_circumstances(self, given: dict[str, Any]) -> None:
        self.batches = one_of("circumstances.batches", given["batches"], (True, False))
        ignored = a_list("circumstances.ignored", given["ignored"])
        self.ignored = [name for name in ("stationary", "successors") if name in ignored]
        if ignored != self.ignored:
            raise Rejected(
                f"circumstances.ignored must name 'stationary' and 'successors' in order, got {ignored!r:.80}"
            )
        if self.constants == "verified" and (self.stationary or self.successors != "unknown"):
            raise Rejected("constants 'verified' use neither stationary transitions nor declared successors")
        if self.method != "kl" and self.max_successors is not None:
            raise Rejected(f"method {self.method!r} makes no use of max_successors")
        if self.constants != "verified" and ignored:
            raise Rejected("circumstances.ignored must be empty: only constants 'verified' ignore a declaration")
        self.errors = an_integer("circumstances.errors", given["errors"], 0)
        digest = given["announcement"]
        if digest is not None and not re.fullmatch("[0-9a-f]{64}", a_string("circumstances.announcement", digest)):
            raise Rejected(f"circumstances.announcement must be a digest of 64 hexadecimal digits, got {digest!r:.80}")

    def action(self, h: int, s: int) -> int:
        """What the policy does at planned step ``h``."""
        return 0 if self.random_start and h == 0 else self.policy[h - self.random_start][s]

    def outcomes(self, row: int) -> list[Outcome]:
        """What a row may do, all that it was seen to do included."""
        seen = dict(self.seen.get(row, {}))
        states = [y for y, _ in seen]
        listed = []
        for slot in self.row_slots[row]:
            y = self.slot_successor[slot]
            if not self.black_box:
                listed.append(Outcome(y, slot, 0.0, seen.pop((y, 0.0), 0)))
            elif y in states:
                states.remove(y)  # it was seen, with a reward of its own
            else:
                listed.append(Outcome(y, slot, 0.0, 0))
        listed += [Outcome(y, None, reward, times) for (y, reward), times in seen.items()]
        happened = [outcome for outcome in listed if outcome.times]
        return happened if len(happened) == self.most(row) else listed
