"""Logs: the transitions of somebody else's decisions, read, checked and counted by DuckDB.

The event behind the KL method is about the independent successors along the visits of a row, under *any* rule of choosing
actions that does not look into the future. So a log certifies as well as play does. It must be whole: no transition may be
missing for what it led to.

A log is a table with one line for each step of each episode. What becomes of its ends:

- a step that *terminated* leads to the absorbing state "end", which pays nothing;
- an episode that was *truncated* contributes the transitions that it has;
- first states are draws of the random start.

Without a column of next states, that of a line is the state of the next one, and where episodes were cut nobody tells it. Of
such a step only the endings would be known, which is a selection by outcome: it is not used at all, not even where it is
known. So episodes may be cut without a next state at one step alone, the last one of the longest, as a time limit does.

Ten million lines take half a minute, because they stay in DuckDB: labels become numbers, and lines become counts, before
Python sees them.

Nothing is guessed about the data (see ``_tables.py``), and labels that could only be compared after rounding are refused.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.problem import Problem, numbered_starts
from entropic_bpi.problem.risk import Risk
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, Batch
from entropic_bpi.sources.environment import check_black_box
from entropic_bpi.sources.spaces import MOST_STATES, FiniteSpace, finite, unseen
from entropic_bpi.sources.successors import declared_rows
from entropic_bpi.sources.tables import Table, hashable, quoted
from entropic_bpi.tools.checks import check_finite, check_integer, check_list
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Transitions

if TYPE_CHECKING:
    import duckdb

__all__ = ["AllStates", "Log", "Outcomes", "Projection", "labels_behind", "names_for"]

Numbers = tuple[Iterable[int], Iterable[int]]
"""Of the states and the actions of a log, in a problem that has them in another order."""

SEEN = "seen"
"""Of ``states=``: those of the log are all."""

_LABELS = ("episode", "state", "next_state", "action")
_EXPECTED = {
    "step": "not an integer",
    "reward": "not a finite number",
    "terminated": "neither true nor false",
    "truncated": "neither true nor false",
    "state": "not among the declared states",
    "next_state": "not among the declared states",
    "action": "not among the declared actions",
}
_ENDS = "terminated=, truncated= or next_state= (truncated=True, --all-truncated: all that did not terminate were cut)"
_IN_ZONE = "TIMESTAMP WITH TIME ZONE"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Of one episode: its return, and whether it is known.
_EARNED = "fsum(reward) FILTER (step < {horizon})"
_WHOLE = "count(*) >= {horizon} OR bool_or(terminated)"


class Outcomes(NamedTuple):
    """What a log saw, one entry for each different transition, in order: arrays of the same length.

    ``step`` is 0 throughout where steps are pooled. ``successor`` is ``len(log.states)`` for an end. ``line`` is the first
    line of the log that has this transition.
    """

    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    successor: np.ndarray
    reward: np.ndarray
    times: np.ndarray
    line: np.ndarray


class AllStates(NamedTuple):
    """Which states exist, as declared: the labels, and others up to ``most`` in all.

    ``seen`` says that the labels are those of the log, and that there are no others by the user's word alone.
    """

    labels: tuple[Any, ...]
    most: int | None = None
    seen: bool = False

    def numbers(self, labels: Iterable[Any]) -> list[int]:
        """The places of some of the labels."""
        return list(map(_numbered(self.labels).index, labels))


class Log:
    """A log of episodes, checked; made by ``Log.read`` or ``Log.from_minari``.

    Attributes
    ----------
    states, actions : tuple
        The labels that were seen or listed; their positions are the numbers in counts and policies.
    declared : AllStates or None
        Which states exist, if it was declared for ``read``.
    episodes, lines : int
        Number of episodes and of lines.
    longest : int
        Steps of the longest episode.
    unused : int
        Lines of the last step, if the state after it is unknown for some of them: they are not used.
    excluded : str or None
        The condition of ``exclude``.
    name : str
        Name of the file, or the type of the data.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> import numpy as np
    >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
    >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
    >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
    >>> log.episodes, log.states, log.actions
    (2, (0, 1), (0, 1))
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        states: tuple[Any, ...],
        actions: tuple[Any, ...],
        *,
        excluded: str | None,
        name: str,
    ) -> None:
        self._connection, self.states, self.actions = connection, states, actions
        self.declared: AllStates | None = None
        self.excluded, self.name = excluded, name
        summary = "count(DISTINCT episode), count(*), max(step) + 1, count(*) FILTER (successor IS NULL)"
        self.episodes, self.lines, self.longest, self.unused = self._fetch(f"SELECT {summary} FROM log")[0]

    @classmethod
    def read(
        cls,
        data: Any,
        *,
        episode: str,
        step: str,
        state: str,
        action: str,
        reward: str,
        next_state: str | None = None,
        terminated: str | None = None,
        truncated: str | bool | None = None,
        states: Iterable[Any] | str | None = None,
        actions: Iterable[Any] | None = None,
        max_states: int | None = None,
        exclude: str | None = None,
        query: str | None = None,
    ) -> Log:
        """Read a log; whatever contradicts it is an error that names the line.

        Parameters
        ----------
        data : path or table
            A local CSV or Parquet file (or several, as ``"logs/*.parquet"``), a DuckDB relation, a pandas or polars frame,
            a pyarrow table or anything else of Arrow's, or a dictionary of NumPy arrays. A CSV file is UTF-8, separates by
            commas, quotes by ``"`` (doubled inside quotes), and names the columns in its first line. Empty lines and
            spaces beside quotes are ignored, and an empty value is a missing one; no other line is skipped.
        episode, step, state, action, reward : str
            The columns. Steps count 0, 1, 2, … in each episode; the order of the lines does not matter. Labels of
            episodes, states and actions may have any type; in a CSV file they are integers if all of them are written as
            integers, and text otherwise. Labels that can only be compared after rounding are refused.
        next_state : str, optional
            The column with the state after the step. Without it, it is the state of the episode's next line.
        terminated, truncated : str, optional
            Columns that are true where an episode ended by itself, and where it was cut. ``truncated=True``: every
            episode that did not terminate was cut. An episode whose end is not told in one of these ways is an error, and
            so is one that was cut earlier than others in a log without ``next_state``: see the module.
        states : iterable or "seen", optional
            All states that exist, in the order in which they are numbered; or ``"seen"``, by which you declare that those
            of the log are all there are. A certificate needs ``states`` or ``max_states``, here or for
            :func:`entropic_bpi.certify`: a state that is rare may not be in the log, and no data can tell.
        actions : iterable, optional
            All actions that may be taken, in the order in which they are numbered. Default: those of the log.
        max_states : int, optional
            How many states there are at most, those of the log included, if they cannot be listed.
        exclude : str, optional
            Leave out the episodes that have a line with this condition, in SQL on the columns of the data. The
            certificate states the assumption that this was not because of what happened in them.
        query : str, optional
            Read the result of this SELECT statement over the table ``data`` instead of the data itself, in DuckDB's SQL.
            It can read nothing else, neither files nor the network. The values of a CSV file are text there.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> columns = {"episode": [0, 0, 1], "t": [0, 1, 0], "where": ["shore", "boat", "shore"],
        ...            "did": ["row", "row", "wait"], "paid": [0.0, 1.0, 0.0], "over": [False, True, True]}
        >>> import numpy as np
        >>> table = {name: np.array(column) for name, column in columns.items()}
        >>> log = eb.Log.read(table, episode="episode", step="t", state="where", action="did", reward="paid",
        ...                   terminated="over")
        >>> log.episodes, log.states, log.actions
        (2, ('boat', 'shore'), ('row', 'wait'))

        Some lines of it, and columns under other names:

        >>> query = "SELECT * EXCLUDE (paid), 10 * paid AS cents FROM data WHERE episode = 0"
        >>> log = eb.Log.read(table, episode="episode", step="t", state="where", action="did", reward="cents",
        ...                   terminated="over", query=query)
        >>> log.episodes, log.value(0.0, horizon=2)
        (1, 10.0)
        """
        cut = isinstance(truncated, bool)
        columns = {
            "episode": episode,
            "step": step,
            "state": state,
            "action": action,
            "reward": reward,
            "next_state": next_state,
            "terminated": terminated,
            "truncated": None if cut else truncated,
        }
        duckdb = module_of_extra("duckdb", "logs", "a log")

        reading, listed = _Reading(data), None if isinstance(states, str) and states == SEEN else states
        try:
            reading.take(columns, query, exclude)
            numbered_states = reading.number("states", ("state", "next_state"), listed)
            numbered_actions = reading.number("actions", ("action",), actions)
            reading.check(truncated is True)
        except (duckdb.Error, OSError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            if isinstance(error, InvalidProblemError):
                raise
            raise InvalidProblemError(f"{reading.name} cannot be read as a log: {_first_line(error)}") from None
        log = cls(reading.connection, numbered_states, numbered_actions, excluded=reading.excluded, name=reading.name)
        if states is not None or max_states is not None:
            log.declared = log.all_states(states if listed is None else log.states, max_states)
        return log

    @classmethod
    def from_minari(cls, dataset: Any) -> Log:
        """Read a data set of Minari; needs ``entropic-bpi[minari]``.

        States and actions are those of the data set's spaces, which must be finite, in the numbering of the environment.

        Parameters
        ----------
        dataset : str or MinariDataset
            Its name, or the data set.

        Returns
        -------
        Log
            The log.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_minari("D4RL/door/human-v2")  # doctest: +SKIP
        """
        minari = module_of_extra("minari", "minari", "from_minari")
        try:
            data = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
            spaces = _listed(data.observation_space), _listed(data.action_space)
            columns = _columns_of(data.iterate_episodes(), *spaces)
        except (FileNotFoundError, AttributeError) as error:
            raise InvalidProblemError(f"{shown(dataset)} is not a Minari data set: {error}") from None
        roles: dict[str, Any] = {name: name for name in columns}
        log = cls.read(columns, **roles, states=range(spaces[0].size), actions=range(spaces[1].size))
        log.states, log.actions = (tuple(hashable(space.element(i)) for i in range(space.size)) for space in spaces)
        log.name, log.declared = str(data.id), AllStates(log.states)
        return log

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.summary_html(self)

    def __repr__(self) -> str:
        return (
            f"Log({self.episodes} episodes, {self.lines} lines, {len(self.states)} states, {len(self.actions)} actions)"
        )

    def _fetch(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def _arrays(self, query: str) -> list[np.ndarray]:
        return [np.asarray(array) for array in self._connection.execute(query).fetchnumpy().values()]

    def all_states(self, states: Any = None, max_states: int | None = None) -> AllStates:
        """Return which states exist, as declared here or for ``read``.

        Parameters
        ----------
        states : sequence or "seen", optional
            All states.
        max_states : int, optional
            Upper bound on the number of states.

        Returns
        -------
        AllStates
            The declaration.

        Raises
        ------
        InvalidProblemError
            If nothing is declared.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> log.all_states() is not None
        True
        """
        if states is not None and max_states is not None:
            raise InvalidProblemError(
                "give states= or max_states=, not both: all states, or how many there are at most"
            )
        if max_states is not None:
            return AllStates(self.states, check_integer("max_states", max_states))
        if isinstance(states, str) and states == SEEN:
            return AllStates(self.states, seen=True)
        if states is not None:
            return AllStates(self._check_listed(states))
        if self.declared is None:
            raise InvalidProblemError(
                f"states seen in {self.name}: {len(self.states)}. Nothing says whether there are others: give one of "
                "states=[…] (--states A,B,…): all states that exist; max_states=M (--max-states M): there are at most M; "
                "states='seen' (--states seen): you declare that those of the log are all there are"
            )
        return self.declared

    def _check_listed(self, states: Any) -> tuple[Any, ...]:
        """Declared labels; those of the log must be among them."""
        labels = tuple(map(hashable, check_list("states", states)))
        if len(set(map(str, labels))) < len(labels):
            raise InvalidProblemError(f"states must be different, also as they are written; got {shown(states)}")
        index = _numbered(labels).index
        for label in self.states:
            if index(label) < 0:
                raise InvalidProblemError(f"state {shown(label)} of {self.name} is not among the declared states")
        return labels

    def first_states(self) -> list[np.ndarray]:
        """The states in which episodes began, how often, and the first line of each; in order."""
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

        ``last_ends``: what follows the last step does not matter, and where it is not told the step counts as an end.

        Parameters
        ----------
        pooled : bool
            Whether to add up the steps.
        horizon : int, optional
            Use only steps before it.
        last_ends : bool
            What follows the last step does not matter; if it is unknown, the step counts as an end.

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
        where, successor = self._used(horizon, last_ends)
        key = f"{'0' if pooled else 'step'}::BIGINT AS step, state, action, {successor} AS successor, reward"
        query = f"SELECT {key}, count(*), min(line) FROM log WHERE {where} GROUP BY ALL ORDER BY 1, 2, 3, 4, 5"
        return Outcomes(*self._arrays(query))

    def _used(self, horizon: int | None, last_ends: bool) -> tuple[str, str]:
        """Which lines are used, and their successors, in SQL."""
        successor = "successor"
        if last_ends:
            successor = f"coalesce(successor, CASE WHEN step = {horizon} - 1 THEN {len(self.states)} END)"
        return f"{successor} IS NOT NULL AND step < {self.longest if horizon is None else horizon}", successor

    def problem(self, states: AllStates, *, eps: float, delta: float, risk: Risk, **declared: Any) -> Problem:
        """Return the problem that the log is about, a black box: the states, and what is declared as for an environment.

        Parameters
        ----------
        states : AllStates
            Which states exist.
        eps, delta : float
            Accuracy, and the probability with which the claim may fail.
        risk : Entropic or EVaR
            The risk measure.
        **declared
            Declarations, as for an environment.

        Returns
        -------
        Problem
            The problem of a black box.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> goal = {"eps": 0.1, "delta": 0.1, "risk": eb.Entropic(0.0)}
        >>> log.problem(log.all_states(), **goal, horizon=2, reward_range=(0, 1)).n_states
        3
        """
        given = replace(Declarations(**declared), max_states=states.most)
        given.check_source("log")
        check_black_box(given, "a log")
        max_states, successors = given.max_states, given.successors
        names, end = tuple(map(str, states.labels)), "end"
        while end in names:
            end = f"({end})"
        if max_states is not None and not len(names) <= max_states <= MOST_STATES:
            raise InvalidProblemError(
                f"max_states must be between {len(names)}, the states of the log, and {MOST_STATES}; got {max_states}"
            )
        if max_states is not None and successors is not None:
            raise InvalidProblemError("successors needs states that are listed (states=), not max_states")
        if successors is not None:
            spaces = _numbered(states.labels), _numbered(self.actions)
            fixed = given.reward_law in (None, "fixed")
            given = replace(given, successors=declared_rows(*spaces, successors, repeated=fixed))
        if given.start is not None:
            given = replace(given, start=numbered_starts(given.start, _numbered(states.labels).index))
        others = tuple(map(unseen, range(len(names), max_states or 0)))
        while set(others) & set(names):  # a label of the log may look like one of them
            others = tuple(f"#{other}" for other in others)
        names += others
        return Problem.black_box(
            len(names),
            len(self.actions),
            eps=eps,
            delta=delta,
            risk=risk,
            state_names=(*names, end),
            action_names=tuple(map(str, self.actions)),
            source=f"log:{self.name}",
            **given.given(),
        )

    def project(self, problem: Problem, numbers: Numbers, *, playing: bool) -> Projection:
        """Return the data of the log for a black box, in which its states and actions have these numbers.

        ``playing``: it is played on. Played episodes have ``horizon`` steps, whose next states are all seen; those of the
        log are then cut to that.

        Parameters
        ----------
        problem : Problem
            The problem.
        numbers : Numbers
            The numbers of states and actions.
        playing : bool
            Whether more episodes are played. These have ``horizon`` steps with known next states; the episodes of the log
            are then cut to that.

        Returns
        -------
        Projection
            The counts, and what the tests of the assumptions use.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> import numpy as np
        >>> lines = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
        >>> log = eb.Log.read(dict(zip("etsar", lines.T)), **columns, truncated=True, states=[0, 1])
        >>> goal = {"beta": 0.0, "delta": 0.1, "horizon": 1, "reward_range": (0, 1)}
        >>> eb.certify(log, **goal).episodes  # which uses it
        2
        """
        self._refuse_amounts(problem)
        states, actions = numbers
        return Projection(
            problem,
            self,
            state=np.array([*states, problem.n_states - 1, BEFORE_THE_FIRST]),
            action=np.array([*actions]),
            horizon=problem.horizon if playing or not problem.stationary else None,
            last_ends=not (playing or problem.stationary),
        )

    def _refuse_amounts(self, problem: Problem) -> None:
        """Name the first line whose reward, or with which the return, is not in the declared range."""
        low, high = problem.declared_range
        outside = f"SELECT line, reward FROM log WHERE NOT reward BETWEEN {low!r} AND {high!r} ORDER BY line LIMIT 1"
        for line, reward in self._fetch(outside):
            raise InvalidProblemError(
                f"line {line} of {self.name}: reward {reward} is outside the declared reward_range ({low}, {high})"
            )
        if problem.return_range is None:
            return
        low, high = problem.widened_return_range
        whole = f"SELECT max(line) AS line, {_EARNED} AS earned FROM log GROUP BY episode HAVING {_WHOLE}"
        query = (
            f"SELECT line, earned FROM ({whole}) WHERE NOT earned BETWEEN {low!r} AND {high!r} ORDER BY line LIMIT 1"
        )
        for line, earned in self._fetch(query.format(horizon=problem.horizon)):
            raise InvalidProblemError(
                f"line {line} of {self.name}: its episode earned {earned:g}, outside the declared return_range "
                f"{problem.return_range}"
            )

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
        query = f"SELECT {_EARNED} FROM log GROUP BY episode HAVING {_WHOLE} ORDER BY min(line)"
        (returns,) = self._arrays(query.format(horizon=horizon))
        return returns

    def value(self, beta: float, horizon: int) -> float:
        r"""What the log's own decisions earned: :math:`\frac1\beta\log` of the mean of :math:`e^{\beta\,\text{return}}`.

        An estimate without a guarantee, of episodes that are whole; NaN if there are none. Positive ``beta`` is
        risk-seeking, 0 the mean.

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
        """Digest of the labels and counts: what a run that starts from this log depends on."""
        digest = hashlib.sha256(repr((self.states, self.actions, self.unused, self.excluded)).encode())
        for array in (self.starts(), *self.outcomes(pooled=False)[:-1]):
            digest.update(array.tobytes())
        return digest.hexdigest()


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
        least = f"CASE WHEN {_WHOLE} THEN 0 ELSE {problem.possible_rewards[0]!r} * ({{horizon}} - count(*)) END"
        query = f"SELECT {_EARNED} + {least} FROM log GROUP BY episode"
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


class _Reading:
    """A log on its way from the data to the table ``log`` of a DuckDB database of its own."""

    def __init__(self, data: Any) -> None:
        self.table = Table(data)
        self.connection, self._fetch = self.table.connection, self.table.fetch
        self.excluded: str | None = None

    @property
    def name(self) -> str:
        return self.table.name

    def _create(self, table: str, query: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {table} AS {query}")

    def take(self, columns: dict[str, Any], query: str | None, exclude: str | None) -> None:
        """Make the table ``taken``: the lines with their numbers, and a column for each role."""
        table, source = self.table, "data"
        roles = {role: column for role, column in columns.items() if column is not None}
        table.load(roles if query is None and exclude is None else None)
        if query is not None:
            table.check_select("query", "one SELECT over the table data", query, query)
            self.connection.execute(f"CREATE TEMP VIEW source AS {query}")
            table.name, source = f"the query of {table.name}", "source"
        table.check_columns(roles, source)
        for role in _LABELS:
            if roles.get(role) in table.rounded:
                raise InvalidProblemError(f"{role}: the values of {self.name} are longer than DuckDB can read exactly")
        parts = {role: quoted(column) for role, column in roles.items()}
        if exclude is not None:
            for condition in (exclude, f"({exclude}\n)"):  # which together make it one expression
                table.check_select("exclude", "one condition on the columns", exclude, f"SELECT {condition}")
            parts["unwanted"] = f"({exclude}\n)"
        named = [f"{part} AS {role}" for role, part in parts.items()]
        self._create("taken", f"SELECT row_number() OVER () AS line, {', '.join(named)} FROM {source}")
        if query is not None:
            self.connection.execute("DROP VIEW source")
        self.connection.execute("DROP TABLE data")
        self.kinds = table.columns("taken")
        # What each role is in ``log``, where NULL stands for whatever it cannot be.
        number = {role: f"TRY_CAST({role} AS DOUBLE)" for role in ("step", "reward")}
        self.values = {
            "step": f"CASE WHEN {number['step']} = trunc({number['step']}) THEN TRY_CAST(step AS BIGINT) END",
            "reward": f"CASE WHEN isfinite({number['reward']}) THEN {number['reward']} + 0.0 END",  # there is no -0.0
            **{
                role: f"TRY_CAST({role} AS BOOLEAN)" if role in self.kinds else "false"
                for role in ("terminated", "truncated")
            },
        }
        if exclude is not None:
            self._leave_out(exclude)

    def _leave_out(self, condition: str) -> None:
        unwanted = "SELECT DISTINCT episode FROM taken WHERE unwanted AND episode IS NOT NULL"
        number = self._fetch(f"SELECT count(*) FROM ({unwanted})")[0][0]
        self.connection.execute(f"DELETE FROM taken WHERE episode IN ({unwanted})")
        self.excluded = f"{number} episodes with {condition}"

    def number(self, table: str, roles: Iterable[str], declared: Iterable[Any] | None) -> tuple[Any, ...]:
        """Make the table of the labels that occur in these roles, and of their numbers; the labels in order."""
        values = self._labels([role for role in roles if role in self.kinds])
        used = {"next_state": f" WHERE NOT coalesce({self.values['terminated']}, false)"}  # nothing follows an end
        seen = {role: f"SELECT {value} AS label FROM taken{used.get(role, '')}" for role, value in values.items()}
        if declared is not None:
            self._declare(table, declared)
            seen = {table: "SELECT label FROM declared", **seen}
        every = f"({' UNION ALL '.join(seen.values())})"
        # Labels of different types are compared in the type that they have in common.
        kind = self.table.columns(every)["label"]
        for role, labels in seen.items():
            self._refuse_rounding(role, labels, kind)
        self.values |= {role: f"CAST({value} AS {kind})" for role, value in values.items()}
        labels, order = f"SELECT DISTINCT label FROM {every} WHERE label IS NOT NULL", "label"
        if declared is not None:
            labels, order = f"SELECT CAST(label AS {kind}) AS label, place FROM declared", "place"
        self._create(table, f"SELECT label, row_number() OVER (ORDER BY {order}) - 1 AS code FROM ({labels})")
        return self._labels_in(table)

    def _labels_in(self, table: str) -> tuple[Any, ...]:
        """The labels of a table in order."""
        kind, form = self._fetch(f"DESCRIBE {table}")[0][1], "label"
        if kind.startswith("MAP(") and kind.endswith(")"):  # Python would see what it sees of a STRUCT
            form = "map_entries(label)"
        elif kind == _IN_ZONE:  # Python would need pytz
            form = "epoch_us(label)"
        labels = [hashable(label) for (label,) in self._fetch(f"SELECT {form} FROM {table} ORDER BY code")]
        if kind == _IN_ZONE:
            labels = [_EPOCH + timedelta(microseconds=label) for label in labels]
        if len(set(map(str, labels))) < len(labels):
            raise InvalidProblemError(f"{self.name} has different {table} that are written alike: give them as text")
        return tuple(labels)

    def _refuse_rounding(self, role: str, labels: str, kind: str) -> None:
        """Refuse labels that change in the type in which they are compared."""
        own = self.table.columns(f"({labels})")["label"]
        if own == kind:
            return
        changed = f"SELECT label FROM ({labels}) WHERE TRY_CAST(CAST(label AS {kind}) AS {own}) IS DISTINCT FROM label"
        for (label,) in self._fetch(f"{changed} LIMIT 1"):
            raise InvalidProblemError(
                f"{role} {shown(label)} of {self.name} would be rounded: it is compared with labels of type {kind}. Give "
                "all of them the same type"
            )

    def _labels(self, roles: list[str]) -> dict[str, str]:
        """Columns of labels as expressions: integers where all are whole numbers, and NULL where one is missing."""
        plain, whole = {}, {}
        for role in roles:
            value = role
            if self.kinds[role] == "VARCHAR" and self.table.text:
                whole[role] = f"coalesce(TRY_CAST({role} AS BIGINT)::VARCHAR = {role}, {role} IS NULL)"
            elif self.kinds[role] in ("FLOAT", "DOUBLE"):
                value = f"CASE WHEN NOT isnan({role}) THEN {role} END"
                whole[role] = f"coalesce({value} = trunc({value}) AND abs({value}) < 1e15, true)"
            elif self.kinds[role].startswith("ENUM"):
                value = f"{role}::VARCHAR"
            plain[role] = value
        if whole and self._fetch(f"SELECT bool_and({' AND '.join(whole.values())}) FROM taken")[0][0]:
            return plain | {role: f"TRY_CAST({plain[role]} AS BIGINT)" for role in whole}
        return plain

    def _declare(self, name: str, declared: Iterable[Any]) -> None:
        """Make the table ``declared`` of labels in their order."""
        labels = [label.item() if isinstance(label, np.generic) else label for label in check_list(name, declared)]
        if not labels or any(label is None for label in labels):
            raise InvalidProblemError(f"{name} must list at least one label, and not None; got {shown(labels)}")
        query = f"SELECT unnest(?) AS label, unnest(range({len(labels)})) AS place"
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE declared AS {query}", [labels])
        for given, (label,) in zip(labels, self._fetch("SELECT label FROM declared ORDER BY place"), strict=True):
            if isinstance(label, float) and label != given:
                raise InvalidProblemError(f"{name}: {shown(given)} would be rounded; give all labels the same type")
        for (label,) in self._fetch("SELECT label FROM declared GROUP BY label HAVING count(*) > 1 LIMIT 1"):
            raise InvalidProblemError(f"{name} lists {shown(label)} twice")

    def check(self, cut: bool) -> None:
        """Make the table ``log``, or name a line; ``cut``: whether every episode that did not terminate was truncated."""
        parts = {role: f"{value} AS {role}" for role, value in self.values.items()}
        told = "next_state IS NOT NULL" if "next_state" in self.kinds else "false"
        parts.setdefault("next_state", f"CASE WHEN false THEN {self.values['state']} END AS next_state")
        steps = "PARTITION BY episode ORDER BY step, line"
        self._create(
            "walked",
            f"WITH given AS (SELECT line, episode, {told} AS told, {', '.join(parts.values())} FROM taken), "
            "coded AS (SELECT line, episode, step, s.code AS state, a.code AS action, reward, t.code AS next_state, told, "
            "terminated, truncated FROM given LEFT JOIN states s ON given.state = s.label LEFT JOIN actions a "
            "ON given.action = a.label LEFT JOIN states t ON given.next_state = t.label) "
            f"SELECT *, lead(state) OVER ({steps}) AS following, lag(state) OVER ({steps}) AS previous, "
            f"row_number() OVER ({steps}) - 1 AS place FROM coded",
        )
        if not self._fetch("SELECT count(*) FROM walked")[0][0]:
            raise InvalidProblemError(f"{self.name} has no episodes")
        if self.kinds["episode"] in ("FLOAT", "DOUBLE"):
            self._refuse_value("episode", "isnan(episode)")
        for role in ("episode", "step", "state", "action", "reward", "terminated", "truncated"):
            self._refuse_value(role, f"{role} IS NULL")
        self._refuse_value("next_state", "told AND next_state IS NULL AND NOT terminated")
        self._refuse(
            "step <> place",
            "step, place",
            "step {} where step {} should be: those of an episode must be 0, 1, 2, … without repetitions and gaps",
        )
        self._refuse(
            "(terminated OR truncated) AND following IS NOT NULL",
            "step",
            "it goes on although it terminated or was truncated at step {}",
        )
        self._refuse(
            "NOT terminated AND next_state <> following",
            "(SELECT label FROM states WHERE code = next_state), (SELECT label FROM states WHERE code = following)",
            "next_state is {!r}, but the episode goes on in state {!r}",
        )
        if not cut:
            self._refuse(
                "following IS NULL AND next_state IS NULL AND NOT (terminated OR truncated)",
                "step",
                f"it stops after step {{}}, and nothing tells how: say so with {_ENDS}",
            )
        self._refuse(
            "following IS NULL AND next_state IS NULL AND NOT terminated AND "
            + ("true" if "next_state" in self.kinds else "step < (SELECT max(step) FROM walked)"),
            "step",
            "it was cut after step {}, and the state after that is missing: of such steps only the endings would be known. "
            "Give next_state= for them, or exclude= if there is a reason that has nothing to do with what happened",
        )
        successor = "CASE WHEN terminated THEN (SELECT count(*) FROM states) ELSE coalesce(next_state, following) END"
        if "next_state" not in self.kinds and (cut or "truncated" in self.kinds):
            successor = f"CASE WHEN step < (SELECT max(step) FROM walked) THEN {successor} END"
        columns = "line, episode, step, state, action, reward, previous, terminated"
        self._create("log", f"SELECT {columns}, {successor} AS successor FROM walked")
        for table in ("taken", "walked"):
            self.connection.execute(f"DROP TABLE {table}")

    def _refuse_value(self, role: str, wrong: str) -> None:
        """Name the first line with a ``wrong`` value, and the value."""
        for (line,) in self._fetch(f"SELECT min(line) FROM walked WHERE {wrong} HAVING count(*) > 0"):
            ((value,),) = self._fetch(f"SELECT {role} FROM taken WHERE line = {line}")
            missing = value is None or value != value
            problem = "is missing" if missing else f"is {shown(value)}, {_EXPECTED[role]}"
            raise InvalidProblemError(f"line {line} of {self.name}: {role} {problem}")

    def _refuse(self, wrong: str, values: str, message: str) -> None:
        """Name the first line where the steps of an episode do not fit together."""
        query = f"SELECT line, episode, {values} FROM walked WHERE {wrong} ORDER BY line LIMIT 1"
        for line, episode, *found in self._fetch(query):
            raise InvalidProblemError(f"line {line} of {self.name}, episode {shown(episode)}: {message.format(*found)}")


def _listed(space: Any) -> FiniteSpace:
    """A space of a data set, whose elements can be listed."""
    numbered = finite(space)
    if numbered is None or not numbered.listable:
        raise InvalidProblemError(f"the space {shown(space)} of the data set is not finite, or too large to list it")
    return numbered


def _columns_of(episodes: Iterable[Any], states: FiniteSpace, actions: FiniteSpace) -> dict[str, np.ndarray]:
    """The steps of Minari's episodes; an episode has one observation more than steps."""
    columns: dict[str, list[np.ndarray]] = {}
    for number, episode in enumerate(episodes):
        steps = len(episode.rewards)
        observed, done = _numbers_of(states, episode.observations), _numbers_of(actions, episode.actions)
        if not steps or len(observed) != steps + 1 or min(observed.min(), done.min()) < 0:
            raise InvalidProblemError(
                f"episode {number} of the data set is empty, or has observations or actions outside its spaces"
            )
        parts = {
            "episode": np.full(steps, number),
            "step": np.arange(steps),
            "state": observed[:-1],
            "action": done,
            "reward": episode.rewards,
            "next_state": observed[1:],
            "terminated": episode.terminations,
            "truncated": episode.truncations,
        }
        for name, part in parts.items():
            columns.setdefault(name, []).append(np.asarray(part))
    if not columns:
        raise InvalidProblemError("the data set has no episodes")
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _numbers_of(space: FiniteSpace, elements: Any) -> np.ndarray:
    """The numbers of elements of a space; those of a tuple come as a tuple of arrays."""
    each = zip(*elements, strict=True) if isinstance(elements, tuple) else elements
    return np.array([space.index(element) for element in each], dtype=np.int64)


def _numbered(labels: tuple[Any, ...]) -> FiniteSpace:
    """Labels as the elements of a space."""
    try:
        numbers = {label: i for i, label in enumerate(labels)}
    except TypeError:
        raise InvalidProblemError(f"labels must be hashable, got {shown(labels)}") from None

    def index(label: Any) -> int:
        try:
            return numbers.get(hashable(label), -1)
        except TypeError:
            return -1

    return FiniteSpace(len(labels), 1, index, labels.__getitem__)


def names_for(observation: Any) -> Iterable[str]:
    """The names that an observation may have among the states of a log, which are named by what Python writes.

    Examples
    --------
    >>> [*names_for("shore")], [*names_for(np.int64(3))], [*names_for({"a": 1})]
    (['shore'], ['3'], ['(1,)', "(('a', 1),)"])
    """
    given = hashable(observation)
    yield str(given)
    if isinstance(given, float) and given.is_integer():  # labels that are all whole are integers
        yield str(int(given))
    elif isinstance(given, datetime) and given.tzinfo is not None:
        yield str(given.astimezone(UTC))
    elif isinstance(observation, dict):  # a MAP, not a STRUCT
        yield str(hashable(list(observation.items())))


def labels_behind(names: Iterable[str]) -> list[Any]:
    """The labels of a log by their names: numbers, bytes or tuples if all of them are written so, text otherwise.

    Examples
    --------
    >>> labels_behind(["1", "2"]), labels_behind(["1", "07"]), labels_behind(["(1, 'a')"])
    ([1, 2], ['1', '07'], [(1, 'a')])
    """
    names = list(names)
    try:
        labels = [ast.literal_eval(name) for name in names]
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return names
    written = all(isinstance(label, int | float | bytes | tuple) for label in labels) and [*map(str, labels)] == names
    return labels if written else names


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
