"""The content of a certificate as rows: what each may do, how often it did, and the radius of its ball.

The ordinary verifier has read the file before, so shapes and types are right. What it knows and this package does not is
refused.
"""

import math
from collections import defaultdict
from functools import cache, cached_property
from itertools import chain
from typing import Any, NamedTuple

from flint import arb

from entropic_bpi.verification.rigorous._ball import ONE, lower, upper

Paid = tuple[float, float]  # the ends of what a reward is known to lie between

_KNOWN = (
    *("n_states", "n_actions", "horizon", "start", "beta", "eps", "delta", "stationary", "successors", "rewards"),
    *("slots", "state_names", "action_names", "source", "reward_law", "max_successors", "return_range", "max_states"),
    *("discount", "alpha", "lams", "allowed", "reward", "state_labels", "action_labels", "unit", "title"),
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
        every = [[[True] * self.n_actions] * self.n_states]
        self.masks = problem["allowed"] or {"table": every, "offered": False}
        self.start_row = len(self.slots["begin"]) - 1 if self.random_start else None
        self.seen: dict[int, dict[tuple[int, Paid], int]] = defaultdict(dict)
        counts = content["counts"]
        ends = [counts["rewards"], counts["upper"]] if self.black_box else [[0.0] * len(counts["rows"])] * 2
        for row, y, times, *paid in zip(counts["rows"], counts["successors"], counts["times"], *ends, strict=True):
            self.seen[row][y, (paid[0], paid[1])] = times
        self.row = cache(self._row)

    def row_of(self, h: int, s: int, a: int) -> int:
        """Return the number of the row of a state and action at planned step ``h``; a random start is the last row."""
        if h == 0 and self.start_row is not None:
            return self.start_row
        step = 0 if self.stationary else h - self.random_start
        return (step * self.n_states + s) * self.n_actions + a

    def _row(self, i: int) -> Row:
        outcomes = self._outcomes(i)
        counts = [outcome.times for outcome in outcomes]
        radius = self._radius(i, counts) if len(outcomes) > 1 and any(counts) else None
        return Row(outcomes, [outcome.successor for outcome in outcomes], counts, radius)

    def actions(self, h: int, s: int) -> list[int]:
        """Return the actions that may be played in a state."""
        if self.random_start and h == 0:
            return [0]
        table = self.masks["table"]
        mask = table[h - self.random_start if len(table) > 1 else 0][s]
        return [a for a in range(self.n_actions) if mask[a]]

    def _risked(self, h: int, s: int) -> set[int]:
        """Return the rows of a state that need a ball; masks that came with observations were not known beforehand."""
        every = self.masks["offered"] and not (self.random_start and h == 0)
        return {self.row_of(h, s, a) for a in (range(self.n_actions) if every else self.actions(h, s))}

    def action(self, h: int, s: int) -> int:
        return 0 if self.random_start and h == 0 else self.policy[h - self.random_start][s]

    def slots_of(self, row: int) -> range:
        begin = self.slots["begin"][row]
        return range(begin, begin + self.slots["used"][row])

    def most(self, row: int) -> int:
        """Return how many different outcomes a row has at most."""
        possible, declared = self.slots["possible"][row], self.problem["max_successors"]
        if row == self.start_row:
            declared = 1 if self.problem["start"] == "fixed" else None
        return possible if declared is None else min(declared, possible)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        tables = [*chain(*(self.problem["rewards"] or [self.slots["low"] + self.slots["high"]]))]
        return min(map(min, tables)), max(map(max, tables))

    def declared_returns(self) -> tuple[arb, arb]:
        """Return the ends of the declared range of returns, with room for the rounding of sums of rewards."""
        low, high = self.reward_range
        room = arb(1e-9 * ((high - low) * self.horizon))
        least, most = map(arb, self.problem["return_range"])
        return lower(least - room), upper(most + room)

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
        return max(1, sum(self.most(row) > 1 for row in rows))

    @cached_property
    def laws_at_risk(self) -> int:
        """How many laws of rewards may have to be learned, for all risk parameters that were declared."""
        ranges = {row: self.range_of(row) for row in self._reached_rows(self.steps)}
        uncertain = [row for row, (low, high) in ranges.items() if low < high]
        laws = sum(1 if self.problem["reward_law"] == "random-pair" else self.most(row) for row in uncertain)
        return max(1, laws * len(self.problem["lams"] or [None]))

    def range_of(self, row: int) -> Paid:
        """Return between what a random reward of a row lies."""
        slot = self.slots["begin"][row]
        return self.slots["low"][0][slot], self.slots["high"][0][slot]

    def _outcomes(self, row: int) -> list[Outcome]:
        """Return what a row may do; only what it did, once it did as much as it can.

        Where rewards are learned and fixed, another reward is another outcome, and takes one of the places where its state
        is listed.
        """
        fixed = self.black_box and not self.random_rewards
        seen: dict[tuple[int, Paid | None], dict[Paid, int]] = defaultdict(dict)
        for (y, ends), times in self.seen[row].items():
            seen[y, ends if fixed else None][ends] = times
        free: dict[int, list[int]] = defaultdict(list)
        for slot in self.slots_of(row):
            free[self.slots["successor"][slot]].append(slot)
        listed = []
        for (y, _), paid in seen.items():
            own = free[y].pop(0) if free[y] else None
            listed.append(Outcome(y, None if fixed else own, paid, sum(paid.values())))
        listed += [Outcome(y, slot, {}, 0) for y, slots in free.items() for slot in slots]
        happened = [outcome for outcome in listed if outcome.times]
        return happened if len(happened) == self.most(row) else listed

    def _radius(self, row: int, counts: list[int]) -> arb:
        """Return (log(P/δ) + R_mix) / n (``radius_counts`` in Main.v), of 2P if rewards are random."""
        k, most, n = self.slots["possible"][row], self.most(row), sum(counts)
        counts = [count for count in counts if count]
        codes = [likelihood(counts, k, a) / 4 for a in (ONE / k**2, ONE / k, ONE / 2, ONE)]
        if most < k:
            share = math.prod((arb(most - i) / (k - i) for i in range(len(counts))), start=ONE)
            codes = [code / 2 for code in codes] + [share * likelihood(counts, most, ONE / 2) / 2]
        regret = sum((count * (arb(count) / n).log() for count in counts), arb(0)) - sum(codes, arb(0)).log()
        union = (1 + self.random_rewards) * self.rows_at_risk
        return upper(((union / arb(self.problem["delta"])).log() + regret) / n)

    def betting_radius(self, n: int) -> arb:
        """Return (log(4 laws/δ) + c₂(n)) / n (``interval_ok`` in Random.v)."""
        regret = arb.pi().log() / 2 + arb(n + 1).lgamma() - (n + arb(0.5)).lgamma()
        return upper(((4 * self.laws_at_risk / arb(self.problem["delta"])).log() + regret) / n)


def likelihood(counts: list[int], cells: int, a: arb) -> arb:
    """Return the Dirichlet-multinomial probability of outcomes with these counts (``dm_counts`` in Mixture.v)."""
    logs = (cells * a).lgamma() - (sum(counts) + cells * a).lgamma()
    return (logs + sum(((count + a).lgamma() - a.lgamma() for count in counts), arb(0))).exp()
