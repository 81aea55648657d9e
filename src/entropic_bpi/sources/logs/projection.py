"""A log as data about a problem: counts, what the tests of the assumptions look at, and the first contradiction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
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

    def _moves(self, *columns: np.ndarray) -> Transitions:
        """Transitions from step, state, action, successor, reward and times."""
        step, state, action, successor, reward, times = columns
        rows = (step * self.problem.n_states + self.state[state]) * self.problem.n_actions + self.action[action]
        return Transitions(rows, self.state[successor], times, reward)

    def _starts(self, first: np.ndarray, times: np.ndarray) -> Transitions:
        """First states as transitions of the artificial first step."""
        row, nothing = self.problem.n_rows - 1, self.problem.possible_rewards[0]
        return Transitions(np.full(len(first), row), self.state[first], times, np.full(len(first), nothing))

    def counts(self) -> Counts:
        """The counts of the log; a line that contradicts what is declared is refused."""
        counts, log = Counts(self.problem), self.log
        seen = log.outcomes(pooled=self.problem.stationary, horizon=self.horizon, last_ends=self.last_ends)
        *columns, line = (column[np.argsort(seen.line)] for column in seen)
        self._add(counts, self._moves(*columns), line, 0)
        first, times, line = log.first_states()
        self._add(counts, self._starts(first, times), line, log.episodes)
        return counts

    def _add(self, counts: Counts, moves: Transitions, line: np.ndarray, episodes: int) -> None:
        """Add transitions, or name the first line that contradicts what is declared: by halves, whatever it is."""
        try:
            return counts.add(moves, episodes)
        except InvalidProblemError as error:
            contradiction = error
        order = np.argsort(line)
        fine, wrong = 0, len(line)
        while wrong - fine > 1:
            middle = (fine + wrong) // 2
            counts.clear()
            try:
                counts.add(Transitions(*(column[order[:middle]] for column in moves[:4])), 0)
                fine = middle
            except InvalidProblemError as error:
                wrong, contradiction = middle, error
        reason = str(contradiction).partition(" (after ")[0]
        raise InvalidProblemError(f"line {line[order[wrong - 1]]} of {self.log.name}: {reason}")

    def batch(self) -> Batch:
        """What tests of the assumptions look at. A return that was cut counts as if the rest had paid the least."""
        log, problem = self.log, self.problem
        key, where = log._used(False, self.horizon, self.last_ends, "0.0" if problem.random_rewards else "reward")
        previous = f"coalesce(previous, {len(log.states) + 1})"
        step, state, action, successor, paid, before, times = log._arrays(
            f"SELECT {key}, {previous}, count(*) FROM log WHERE {where} GROUP BY ALL"
        )
        numbers = (step, self.state[state], self.action[action], self.state[successor], paid, self.state[before])
        visits = zip(*(column.tolist() for column in numbers), strict=True)
        least = f"CASE WHEN {WHOLE} THEN 0 ELSE {problem.possible_rewards[0]!r} * ({{horizon}} - count(*)) END"
        query = f"SELECT {EARNED} + {least} FROM log GROUP BY episode"
        (returns,) = log._arrays(query.format(horizon=problem.horizon))
        return Batch(
            Counter(dict(enumerate(log.starts().tolist()))),
            Counter(dict(zip(visits, times.tolist(), strict=True))),
            Counter(returns.tolist()),
        )

    def over_time(self) -> list[Transitions]:
        """The transitions, first states included, in parts that follow each other; episodes are in the order of their lines.

        Of a part the tests of the assumptions know no order. Which episodes it has must not depend on how many there are, so
        parts grow with the number of the episode.
        """
        query = (
            "WITH parts AS (SELECT episode, floor(16 * ln(1 + (row_number() OVER (ORDER BY min(line)) - 1) / 16)) AS part "
            "FROM log GROUP BY episode) SELECT part, {}, count(*) FROM log JOIN parts USING (episode) WHERE {} "
            "GROUP BY ALL ORDER BY ALL"
        )
        used = self.log._used(self.problem.stationary, self.horizon, self.last_ends)
        begun, *first = self.log._arrays(query.format("state", "step = 0"))
        part, *moves = self.log._arrays(query.format(*used))
        parts = np.append(begun, part)
        order = np.argsort(parts, kind="stable")
        ends = np.flatnonzero(np.diff(parts[order])) + 1
        both = zip(self._starts(*first)[:4], self._moves(*moves)[:4], strict=True)
        columns = (np.split(np.concatenate(column)[order], ends) for column in both)
        return [Transitions(*some) for some in zip(*columns, strict=True)]

    def facts(self) -> tuple[int, int, str | None]:
        """Steps of the longest episode, transitions that are not used, and what was left out: what a claim rests on."""
        longest = self.log.longest if self.horizon is None else self.horizon
        _, where = self.log._used(False, self.horizon, self.last_ends)
        ((unused,),) = self.log._fetch(f"SELECT count(*) FROM log WHERE step < {longest} AND NOT ({where})")
        return longest, unused, self.log.excluded
