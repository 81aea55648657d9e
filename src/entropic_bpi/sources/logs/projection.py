"""A log as data about a problem: counts, what the tests of the assumptions look at, and the first contradiction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import Batch
from entropic_bpi.types import Transitions

if TYPE_CHECKING:
    from entropic_bpi.sources.log import Log

# Of one episode: its return, and whether it is known.
EARNED = "fsum(reward) FILTER (step < {horizon})"
WHOLE = "count(*) >= {horizon} OR bool_or(terminated)"


@dataclass(frozen=True)
class Projection:
    """A log as data about a problem, in which its labels have other numbers.

    ``horizon`` and ``last_ends`` say which steps are used, as :meth:`Log.outcomes` takes them.
    """

    problem: Problem
    log: Log
    state: np.ndarray
    action: np.ndarray
    horizon: int | None
    last_ends: bool

    @cached_property
    def _moves(self) -> tuple[Transitions, np.ndarray]:
        """The transitions in the order of the lines where each was first seen, and these lines."""
        problem = self.problem
        seen = self.log.outcomes(pooled=problem.stationary, horizon=self.horizon, last_ends=self.last_ends)
        pairs = (seen.step * problem.n_states + self.state[seen.state]) * problem.n_actions + self.action[seen.action]
        order = np.argsort(seen.line)
        columns = (pairs, self.state[seen.successor], seen.times, seen.reward)
        return Transitions(*(column[order] for column in columns)), seen.line[order]

    @cached_property
    def _starts(self) -> tuple[Transitions, np.ndarray]:
        """The same of the first states, as transitions of the artificial first step."""
        first, times, line = self.log.first_states()
        row, nothing = self.problem.n_rows - 1, self.problem.possible_rewards[0]
        moves = Transitions(np.full(len(first), row), self.state[first], times, np.full(len(first), nothing))
        return moves, line

    def counts(self) -> Counts:
        """The counts of the log; a line that contradicts what is declared is refused."""
        counts = Counts(self.problem)
        self._add(counts, *self._moves, 0)
        self._add(counts, *self._starts, self.log.episodes)
        return counts

    def _add(self, counts: Counts, moves: Transitions, line: np.ndarray, episodes: int) -> None:
        """Add transitions, or name the first line that contradicts what is declared: by halves, whatever it is."""
        try:
            return counts.add(moves, episodes)
        except InvalidProblemError as error:
            contradiction = error
        order = np.argsort(line)
        moves, line = Transitions(*(column[order] for column in moves[:4])), line[order]
        fine, wrong = 0, len(line)
        while wrong - fine > 1:
            middle = (fine + wrong) // 2
            counts.clear()
            try:
                counts.add(Transitions(*(column[:middle] for column in moves)), 0)
                fine = middle
            except InvalidProblemError as error:
                wrong, contradiction = middle, error
        reason = str(contradiction).partition(" (after ")[0]
        raise InvalidProblemError(f"line {line[wrong - 1]} of {self.log.name}: {reason}")

    def batch(self) -> Batch:
        """What tests of the assumptions look at. A return that was cut counts as if the rest had paid the least."""
        log, problem = self.log, self.problem
        where, successor = log._used(self.horizon, self.last_ends)
        paid = "0.0" if problem.random_rewards else "reward"
        key = f"step, state, action, {successor}, {paid}, coalesce(previous, {len(log.states) + 1})"
        step, *rest, times = log._arrays(f"SELECT {key}, count(*) FROM log WHERE {where} GROUP BY ALL")
        numbers = (self.state, self.action, self.state, None, self.state)
        columns = [column if new is None else new[column] for column, new in zip(rest, numbers, strict=True)]
        visits = zip(*(column.tolist() for column in (step, *columns)), strict=True)
        least = f"CASE WHEN {WHOLE} THEN 0 ELSE {problem.possible_rewards[0]!r} * ({{horizon}} - count(*)) END"
        query = f"SELECT {EARNED} + {least} FROM log GROUP BY episode"
        (returns,) = log._arrays(query.format(horizon=problem.horizon))
        values, often = np.unique(returns, return_counts=True)
        return Batch(
            Counter(dict(enumerate(log.starts().tolist()))),
            Counter(dict(zip(visits, times.tolist(), strict=True))),
            Counter(dict(zip(values.tolist(), often.tolist(), strict=True))),
        )

    def over_time(self) -> list[Transitions]:
        """The transitions, first states included, in parts that follow each other; episodes are in the order of their lines.

        Of a part the tests of the assumptions know no order. Which episodes it has must not depend on how many there are, so
        parts grow with the number of the episode.
        """
        log, problem = self.log, self.problem
        where, successor = log._used(self.horizon, self.last_ends)
        query = (
            "WITH parts AS (SELECT episode, floor(16 * ln(1 + (row_number() OVER (ORDER BY min(line)) - 1) / 16)) AS part "
            "FROM log GROUP BY episode) SELECT {} FROM log JOIN parts USING (episode) WHERE {} GROUP BY ALL ORDER BY ALL"
        )
        key = (
            f"{'0' if problem.stationary else 'step'}::BIGINT AS step, state, action, {successor} AS successor, reward"
        )
        part, step, state, action, following, reward, times = log._arrays(query.format(f"part, {key}, count(*)", where))
        begun, first, often = log._arrays(query.format("part, state, count(*)", "step = 0"))
        rows = (step * problem.n_states + self.state[state]) * problem.n_actions + self.action[action]
        start, nothing = np.full(len(first), problem.n_rows - 1), np.full(len(first), problem.possible_rewards[0])
        parts = np.append(begun, part)
        order = np.argsort(parts, kind="stable")
        ends = np.flatnonzero(np.diff(parts[order])) + 1
        moves = ((start, rows), (self.state[first], self.state[following]), (often, times), (nothing, reward))
        columns = (np.split(np.concatenate(column)[order], ends) for column in moves)
        return [Transitions(*some) for some in zip(*columns, strict=True)]

    def facts(self) -> tuple[int, int, str | None]:
        """Steps of the longest episode, transitions that are not used, and what was left out: what a claim rests on."""
        _, successor = self.log._used(self.horizon, self.last_ends)
        longest = self.log.longest if self.horizon is None else self.horizon
        unused = f"SELECT count(*) FROM log WHERE step < {longest} AND ({successor}) IS NULL"
        return longest, self.log._fetch(unused)[0][0], self.log.excluded
