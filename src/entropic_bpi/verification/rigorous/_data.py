"""The content of a certificate as rows: what each may do, how often it did, and the radius of its ball.

The ordinary verifier has read the file before, so shapes and types are right. What it knows and this package does not is
refused.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from flint import arb, fmpq

from entropic_bpi.verification.rigorous._ball import upper

Paid = tuple[float, float]  # the ends of what a reward is known to lie between

_KNOWN = (
    *("n_states", "n_actions", "horizon", "start", "beta", "eps", "delta", "stationary", "successors", "rewards"),
    *("slots", "state_names", "action_names", "source", "reward_law", "max_successors", "return_range", "max_states"),
    *("discount", "alpha", "lams", "allowed", "reward"),
)


class NotCovered(Exception):
    """The certificate has something that ball arithmetic is not implemented for."""


class Outcome(NamedTuple):
    """Something that a row may do. ``slot`` declares it, or ``paid`` says how often it paid what."""

    successor: int
    slot: int | None
    paid: dict[Paid, int]
    times: int


class Row(NamedTuple):
    """The possible outcomes of a row. ``radius`` is that of its ball, None where nothing restricts the law."""

    outcomes: list[Outcome]
    successors: list[int]
    counts: list[int]
    radius: arb | None


def exact(x: Fraction | int | float) -> arb:
    return arb(fmpq(x.numerator, x.denominator)) if isinstance(x, Fraction) else arb(x)


class Data:
    """What a certificate says, without the risk parameter."""

    def __init__(self, content: dict[str, Any]) -> None:
        problem = content["problem"]
        unknown = [name for name, value in problem.items() if name not in _KNOWN and value is not None]
        if content["method"] != "kl" or unknown:
            raise NotCovered(f"method {content['method']!r}" if not unknown else f"the declaration {unknown[0]!r}")
        self.problem, self.policy, self.claim = problem, content["policy"], content["claim"]
        self.n_states, self.n_actions, self.horizon = (problem[name] for name in ("n_states", "n_actions", "horizon"))
        self.stationary, self.slots = problem["stationary"], problem["slots"]
        # A state, a list of possible ones, "fixed" for one that is not known, or null; all but the first are learned.
        self.random_start = not isinstance(problem["start"], int)
        self.steps = self.horizon + self.random_start
        self.start = 0 if self.random_start else problem["start"]
        self.random_rewards = problem["reward_law"] != "fixed"
        self.black_box = problem["rewards"] is None and self.n_states in self.slots["successor"]
        self.n_rows = len(self.slots["begin"])
        self.seen: dict[int, dict[tuple[int, Paid], int]] = {}
        counts = content["counts"]
        paid = (
            zip(counts["rewards"], counts["upper"], strict=True)
            if self.black_box
            else [(0.0, 0.0)] * len(counts["rows"])
        )
        for row, y, times, ends in zip(counts["rows"], counts["successors"], counts["times"], paid, strict=True):
            self.seen.setdefault(row, {})[y, ends] = times
        self._rows: dict[int, Row] = {}

    def row_of(self, h: int, s: int, a: int) -> int:
        """Return the number of the row of a state and action at planned step ``h``; a random start is the last row."""
        if self.random_start and h == 0:
            return self.n_rows - 1
        step = 0 if self.stationary else h - self.random_start
        return (step * self.n_states + s) * self.n_actions + a

    def row(self, i: int) -> Row:
        if i not in self._rows:
            outcomes = self._outcomes(i)
            counts = [outcome.times for outcome in outcomes]
            radius = self._radius(i, counts) if len(outcomes) > 1 and any(counts) else None
            self._rows[i] = Row(outcomes, [outcome.successor for outcome in outcomes], counts, radius)
        return self._rows[i]

    def is_start(self, row: int) -> bool:
        return self.random_start and row == self.n_rows - 1

    def actions(self, h: int, s: int) -> list[int]:
        """Return the actions that may be played in a state."""
        if self.random_start and h == 0:
            return [0]
        masks = self.problem["allowed"]
        if masks is None:
            return list(range(self.n_actions))
        table = masks["table"]
        mask = table[h - self.random_start if len(table) > 1 else 0][s]
        return [a for a in range(self.n_actions) if mask[a]]

    def _risked(self, h: int, s: int) -> set[int]:
        """Return the rows of a state that need a ball; masks that came with observations were not known beforehand."""
        masks = self.problem["allowed"]
        every = masks is not None and masks["offered"] and not (self.random_start and h == 0)
        return {self.row_of(h, s, a) for a in (range(self.n_actions) if every else self.actions(h, s))}

    def action(self, h: int, s: int) -> int:
        return 0 if self.random_start and h == 0 else self.policy[h - self.random_start][s]

    def slots_of(self, row: int) -> range:
        begin = self.slots["begin"][row]
        return range(begin, begin + self.slots["used"][row])

    def most(self, row: int) -> int:
        """Return how many different outcomes a row has at most."""
        possible, declared = self.slots["possible"][row], self.problem["max_successors"]
        if self.is_start(row):
            return 1 if self.problem["start"] == "fixed" else possible
        return possible if declared is None else min(declared, possible)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        rewards = self.problem["rewards"]
        tables = (
            self.slots["low"] + self.slots["high"] if rewards is None else [row for step in rewards for row in step]
        )
        return min(map(min, tables)), max(map(max, tables))

    @cached_property
    def reachable(self) -> list[list[int]]:
        """States that can be occupied at each planned step under the declared successors."""
        steps = [[self.start]]
        for h in range(self.steps - 1):
            rows = set[int]().union(*(self._risked(h, s) for s in steps[-1]))
            found = {self.slots["successor"][j] for row in rows for j in self.slots_of(row)}
            listed = h == 0 and isinstance(self.problem["start"], list)
            everywhere = (self.problem["successors"] == "unknown" and not listed) or self.n_states in found
            steps.append(list(range(self.n_states)) if everywhere else sorted(found))
        return steps

    def _reached_rows(self, steps: int) -> set[int]:
        return set[int]().union(*(self._risked(h, s) for h in range(steps) for s in self.reachable[h]))

    @cached_property
    def rows_at_risk(self) -> int:
        """P: the rows with several possible outcomes that matter. At the last step none does if rewards are known."""
        rows = self._reached_rows(self.steps - (self.problem["rewards"] is not None))
        return sum(self.most(row) > 1 for row in rows)

    @cached_property
    def laws_at_risk(self) -> int:
        """How many laws of rewards may have to be learned, for all risk parameters that were declared."""
        laws = 0
        for row in self._reached_rows(self.steps) if self.random_rewards else ():
            slot = self.slots_of(row)[0]
            if self.slots["low"][0][slot] < self.slots["high"][0][slot]:
                laws += 1 if self.problem["reward_law"] == "random-pair" else self.most(row)
        return laws * (1 if self.problem["lams"] is None else len(self.problem["lams"]))

    def _outcomes(self, row: int) -> list[Outcome]:
        """Return what a row may do; only what it did, once it did as much as it can.

        Where rewards are learned and fixed, another reward is another outcome, and takes one of the places where its state
        is listed.
        """
        seen = self.seen.get(row, {})
        by_state: dict[int, dict[Paid, int]] = {}
        for (y, ends), times in seen.items():
            by_state.setdefault(y, {})[ends] = times
        places, listed = [y for y, _ in seen], []
        fixed = self.black_box and not self.random_rewards
        for slot in self.slots_of(row):
            y = self.slots["successor"][slot]
            if not fixed:
                paid = by_state.pop(y, {})
                listed.append(Outcome(y, slot, paid, sum(paid.values())))
            elif y in places:
                places.remove(y)
            else:
                listed.append(Outcome(y, slot, {}, 0))
        for y, paid in by_state.items():
            kinds = [{ends: times} for ends, times in paid.items()] if fixed else [paid]
            listed += [Outcome(y, None, kind, sum(kind.values())) for kind in kinds]
        happened = [outcome for outcome in listed if outcome.times]
        return happened if len(happened) == self.most(row) else listed

    def _radius(self, row: int, counts: list[int]) -> arb:
        """Return (log(P/δ) + R_mix) / n (``radius_counts`` in Main.v), of 2P if rewards are random."""
        k, most, n = self.slots["possible"][row], self.most(row), sum(counts)
        counts = [count for count in counts if count]
        priors = [(k, exact(Fraction(1, k * k))), (k, exact(Fraction(1, k))), (k, arb(0.5)), (k, arb(1))]
        codes = [likelihood(counts, cells, a) / 4 for cells, a in priors]
        if most < k:
            share = Fraction(1)
            for i in range(len(counts)):
                share = share * (most - i) / (k - i)
            codes = [code / 2 for code in codes] + [exact(share) * likelihood(counts, most, arb(0.5)) / 2]
        regret = sum((count * (arb(count) / n).log() for count in counts), arb(0)) - sum(codes, arb(0)).log()
        union = (1 + self.random_rewards) * max(self.rows_at_risk, 1)
        return upper(((union / exact(self.problem["delta"])).log() + regret) / n)

    def betting_radius(self, n: int) -> arb:
        """Return (log(4 laws/δ) + c₂(n)) / n (``interval_ok`` in Random.v)."""
        regret = arb.pi().log() / 2 + arb(n + 1).lgamma() - (n + arb(0.5)).lgamma()
        return upper(((4 * max(self.laws_at_risk, 1) / exact(self.problem["delta"])).log() + regret) / n)


def likelihood(counts: list[int], cells: int, a: arb) -> arb:
    """Return the Dirichlet-multinomial probability of outcomes with these counts (``dm_counts`` in Mixture.v)."""
    logs = (cells * a).lgamma() - (sum(counts) + cells * a).lgamma()
    return (logs + sum(((count + a).lgamma() - a.lgamma() for count in counts), arb(0))).exp()
