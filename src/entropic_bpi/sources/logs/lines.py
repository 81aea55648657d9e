"""Queries on the lines of a log, in DuckDB: counts, returns and episodes; and the counts of a log for a problem."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import Batch
from entropic_bpi.sources.logs.labels import AllStates, Outcomes
from entropic_bpi.sources.logs.reading import LogReader
from entropic_bpi.tools.checks import check_finite, check_integer
from entropic_bpi.types import Summarised, Transitions

# The return of an episode, and whether the whole episode is known.
EARNED = "fsum(reward) FILTER (step < {horizon})"
WHOLE = "count(*) >= {horizon} OR bool_or(terminated)"
# How often something occurs in each part of the log. The part of an episode must not depend on the number of episodes after
# it, so the sizes of parts grow with the number of the episode.
PARTS = (
    "WITH parts AS (SELECT episode, floor(16 * ln(1 + (row_number() OVER (ORDER BY min(line)) - 1) / 16)) AS part "
    "FROM log GROUP BY episode) SELECT part, {}, count(*) FROM log JOIN parts USING (episode) WHERE {} "
    "GROUP BY ALL ORDER BY ALL"
)


class LogLines(Summarised):
    """The lines of a log, with labels as numbers."""

    def __init__(self, reading: LogReader, states: tuple[Any, ...], actions: tuple[Any, ...]) -> None:
        self._connection, self.states, self.actions = reading.connection, states, actions
        self.excluded, self.name = reading.excluded, reading.name
        self.declared: AllStates | None = None
        summary = "count(DISTINCT episode), count(*), max(step) + 1, count(*) FILTER (successor IS NULL)"
        self.episodes, self.lines, self.longest, self.unused = self._fetch(f"SELECT {summary} FROM log")[0]

    def __repr__(self) -> str:
        sizes = f"{self.lines} lines, {len(self.states)} states, {len(self.actions)} actions"
        return f"Log({self.episodes} episodes, {sizes})"

    def _fetch(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def _arrays(self, query: str) -> list[np.ndarray]:
        return [np.asarray(array) for array in self._connection.execute(query).fetchnumpy().values()]

    def first_states(self) -> list[np.ndarray]:
        """Return the states in which episodes began.

        Returns
        -------
        list of three int arrays
            The states in order, how many episodes began in each, and the first line of each.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> data = {"e": [0, 1], "t": [0, 0], "s": [2, 2], "a": [0, 1], "r": [0.0, 1.0]}
        >>> [part.tolist() for part in eb.Log.read(data, **columns, truncated=True, states="seen").first_states()[:2]]
        [[0], [2]]
        """
        return self._arrays("SELECT state, count(*), min(line) FROM log WHERE step = 0 GROUP BY state ORDER BY 1")

    def starts(self) -> np.ndarray:
        """Return how often episodes started in each state.

        Returns
        -------
        int array ``(S,)``
            The counts.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> log.starts().tolist()
        [2, 0]
        """
        state, times, _ = self.first_states()
        return np.bincount(state, times, len(self.states)).astype(np.int64)

    def outcomes(self, *, pooled: bool, horizon: int | None = None, last_ends: bool = False) -> Outcomes:
        """Return every observed transition and how often it occurred.

        Parameters
        ----------
        pooled : bool
            Whether to add up the counts of all steps.
        horizon : int, optional
            Use only steps before this one.
        last_ends : bool
            Whether the last step counts as an end if its next state is unknown, because nothing depends on that state.

        Returns
        -------
        Outcomes
            The transitions.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> int(log.outcomes(pooled=True).times.sum())
        2
        """
        key, where = self._used(pooled, horizon, last_ends)
        query = f"SELECT {key}, count(*), min(line) FROM log WHERE {where} GROUP BY ALL ORDER BY 1, 2, 3, 4, 5"
        return Outcomes(*self._arrays(query))

    def walks(self) -> Iterator[tuple[list[int], list[int], list[int], list[float], bool]]:
        """Return the episodes one by one, in the order of their first lines.

        Returns
        -------
        iterator of tuple
            The numbers of the states; the numbers of the next states, ``len(states)`` for an end, without the last one if it
            is not used; the numbers of the actions; the rewards; and whether the episode terminated.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> table = {"e": [0, 0], "t": [0, 1], "s": [0, 1], "a": [0, 0], "r": [0.5, 1.0]}
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> list(eb.Log.read(table, **columns, truncated=True).walks())
        [([0, 1], [1], [0, 0], [0.5, 1.0], False)]
        """
        columns = ", ".join(f"list({name} ORDER BY step)" for name in ("state", "successor", "action", "reward"))
        query = f"SELECT {columns}, bool_or(terminated) FROM log GROUP BY episode ORDER BY min(line)"
        result = self._connection.execute(query)
        while rows := result.fetchmany(10_000):
            for states, successors, actions, rewards, terminated in rows:
                yield states, [s for s in successors if s is not None], actions, rewards, bool(terminated)

    def _used(self, pooled: bool, horizon: int | None, last_ends: bool, paid: str = "reward") -> tuple[str, str]:
        """Return the columns of a transition, and the condition for the lines that are used, in SQL."""
        successor = "successor"
        if last_ends:
            successor = f"coalesce(successor, CASE WHEN step = {horizon} - 1 THEN {len(self.states)} END)"
        key = f"{'0' if pooled else 'step'}::BIGINT AS step, state, action, {successor} AS successor, {paid}"
        return key, f"{successor} IS NOT NULL AND step < {self.longest if horizon is None else horizon}"

    def returns(self, horizon: int) -> np.ndarray:
        """Return the returns of the complete episodes: those that terminated, or have at least ``horizon`` steps.

        Parameters
        ----------
        horizon : int
            Number of steps.

        Returns
        -------
        float array
            The returns.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> log.returns(2).tolist()
        [1.0, 0.0]
        """
        horizon = check_integer("horizon", horizon)
        query = f"SELECT {EARNED} FROM log GROUP BY episode HAVING {WHOLE} ORDER BY min(line)"
        (returns,) = self._arrays(query.format(horizon=horizon))
        return returns

    def value(self, beta: float, horizon: int) -> float:
        r"""Estimate the value of the log's policy: :math:`\frac1\beta\log` of the mean of :math:`e^{\beta\,\text{return}}`.

        This is an estimate without a guarantee, from the complete episodes.

        Parameters
        ----------
        beta : float
            Positive is risk-seeking, negative risk-averse, 0 the mean.
        horizon : int
            Number of steps.

        Returns
        -------
        float
            The estimate; NaN if no episode is complete.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> log.value(0.0, 2)
        0.5
        """
        from entropic_bpi.model.return_law import ReturnLaw

        returns, beta = self.returns(horizon), check_finite("beta", beta)
        return ReturnLaw.of_sample(returns).entropic_risk(beta) if len(returns) else math.nan

    @cached_property
    def content_hash(self) -> str:
        """Digest of the labels and counts, on which a run that starts from this log depends."""
        digest = hashlib.sha256(repr((self.states, self.actions, self.unused, self.excluded)).encode())
        for array in (self.starts(), *self.outcomes(pooled=False)[:-1]):
            digest.update(array.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Projection:
    """The data of a log for a problem, in which the labels of the log have other numbers.

    ``state`` and ``action`` are these numbers. ``horizon`` and ``last_ends`` are arguments of :meth:`Log.outcomes`.
    """

    problem: Problem
    log: LogLines
    state: np.ndarray
    action: np.ndarray
    horizon: int | None
    last_ends: bool

    def _moves(self, *columns: np.ndarray) -> Transitions:
        """Return transitions, given step, state, action, successor, reward and times."""
        step, state, action, successor, reward, times = columns
        rows = (step * self.problem.n_states + self.state[state]) * self.problem.n_actions + self.action[action]
        return Transitions(rows, self.state[successor], times, reward)

    def _starts(self, first: np.ndarray, times: np.ndarray) -> Transitions:
        """Return first states as transitions of the artificial first step."""
        row, nothing = self.problem.n_rows - 1, self.problem.possible_rewards[0]
        return Transitions(np.full(len(first), row), self.state[first], times, np.full(len(first), nothing))

    def counts(self) -> Counts:
        """Return the counts of the log; raise an error for the first line that contradicts a declaration."""
        counts, log = Counts(self.problem), self.log
        seen = log.outcomes(pooled=self.problem.stationary, horizon=self.horizon, last_ends=self.last_ends)
        *columns, line = (column[np.argsort(seen.line)] for column in seen)
        self._add(counts, self._moves(*columns), line, 0)
        first, times, line = log.first_states()
        self._add(counts, self._starts(first, times), line, log.episodes)
        return counts

    def _add(self, counts: Counts, moves: Transitions, line: np.ndarray, episodes: int) -> None:
        """Add transitions, or raise an error for the first line that contradicts a declaration, found by bisection."""
        try:
            return counts.add(moves, episodes)
        except InvalidProblemError as error:
            contradiction = error
        order = np.argsort(line)
        accepted, refused = 0, len(line)  # numbers of first lines
        while refused - accepted > 1:
            middle = (accepted + refused) // 2
            counts.clear()
            try:
                counts.add(Transitions(*(column[order[:middle]] for column in moves[:4])), 0)
                accepted = middle
            except InvalidProblemError as error:
                refused, contradiction = middle, error
        reason = str(contradiction).partition(" (after ")[0]
        raise InvalidProblemError(f"line {line[order[refused - 1]]} of {self.log.name}: {reason}")

    def batch(self) -> Batch:
        """Return the input of the tests of the assumptions; missing rewards of a truncated return count as the smallest."""
        log, problem = self.log, self.problem
        key, where = log._used(False, self.horizon, self.last_ends, "0.0" if problem.random_rewards else "reward")
        previous = f"coalesce(previous, {len(log.states) + 1})"
        seen = log._arrays(f"SELECT {key}, {previous}, count(*) FROM log WHERE {where} GROUP BY ALL")
        step, state, action, successor, paid, before, times = seen
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
        """Return the transitions, including first states, in consecutive parts; episodes are in the order of their lines.

        The tests of the assumptions do not use the order within a part.
        """
        used = self.log._used(self.problem.stationary, self.horizon, self.last_ends)
        begun, *first = self.log._arrays(PARTS.format("state", "step = 0"))
        part, *moves = self.log._arrays(PARTS.format(*used))
        parts = np.append(begun, part)
        order = np.argsort(parts, kind="stable")
        ends = np.flatnonzero(np.diff(parts[order])) + 1
        both = zip(self._starts(*first)[:4], self._moves(*moves)[:4], strict=True)
        columns = (np.split(np.concatenate(column)[order], ends) for column in both)
        return [Transitions(*some) for some in zip(*columns, strict=True)]

    def facts(self) -> tuple[int, int, str | None]:
        """Return the steps of the longest episode, the number of unused transitions, and the excluded episodes."""
        longest = self.log.longest if self.horizon is None else self.horizon
        _, where = self.log._used(False, self.horizon, self.last_ends)
        ((unused,),) = self.log._fetch(f"SELECT count(*) FROM log WHERE step < {longest} AND NOT ({where})")
        return longest, unused, self.log.excluded
