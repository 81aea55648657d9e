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

Nothing is guessed about the data (see :mod:`entropic_bpi.sources.logs.tables`), and labels that could only be compared after
rounding are refused.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import INFO, Declarations
from entropic_bpi.problem.known_rewards import with_known_rewards
from entropic_bpi.problem.masks import masks_of, numbered_starts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Risk
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST
from entropic_bpi.sources.datasets.replays import Steps, d4rl_steps, rllib_steps, sb3_steps
from entropic_bpi.sources.environment import check_black_box
from entropic_bpi.sources.logs.projection import EARNED, WHOLE, Projection
from entropic_bpi.sources.logs.reading import LogReader, columns_of, listed_space
from entropic_bpi.sources.logs.tables import hashable
from entropic_bpi.sources.spaces import MOST_STATES, FiniteSpace, unseen
from entropic_bpi.sources.successors import declared_rows, with_noise
from entropic_bpi.tools.checks import check_finite, check_integer, check_list
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Summarised

if TYPE_CHECKING:
    import duckdb

Numbers = tuple[Iterable[int], Iterable[int]]
"""Of the states and the actions of a log, in a problem that has them in another order."""

SEEN = "seen"
"""Of ``states=``: those of the log are all."""


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


class Log(Summarised):
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
        step: str | None = None,
        state: str | Sequence[str],
        action: str,
        reward: str,
        order_by: str | None = None,
        next_state: str | Sequence[str] | None = None,
        terminated: str | None = None,
        truncated: str | bool | None = None,
        states: Iterable[Any] | str | None = None,
        actions: Iterable[Any] | None = None,
        max_states: int | None = None,
        exclude: str | None = None,
        query: str | None = None,
        table: str | None = None,
    ) -> Log:
        """Read a log; whatever contradicts it is an error that names the line.

        Parameters
        ----------
        data : path or table
            A local CSV, Parquet or JSON-lines file (or several, as ``"logs/*.parquet"``; CSV and JSON may be ``.gz``), a
            folder of Parquet files, a ``.duckdb`` file, a DuckDB relation, a frame of pandas, polars or any library with
            the dataframe interchange or Arrow's protocol, a dictionary of arrays or lists with one axis, a list of
            dictionaries, or a structured NumPy array. A CSV file is UTF-8, separates by
            commas, quotes by ``"`` (doubled inside quotes), and names the columns in its first line. Empty lines and
            spaces beside quotes are ignored, and an empty value is a missing one; no other line is skipped.
        episode, step, state, action, reward : str
            The columns. Steps count 0, 1, 2, … in each episode; the order of the lines does not matter. Labels of
            episodes, states and actions may have any type; in a CSV file they are integers if all of them are written as
            integers, and text otherwise. Labels that can only be compared after rounding are refused.
            ``state`` may be a list of columns, which together are the state: a tuple.
        order_by : str, instead of ``step``
            A column of numbers or times by which the steps of each episode are ordered. Two equal ones are an error.
        next_state : str or list of str, optional
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
        table : str, optional
            The table of a ``.duckdb`` file; it may be left out if there is only one.

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
        if (step is None) == (order_by is None):
            raise InvalidProblemError(
                "give either step=, a column that counts 0, 1, 2, …, or order_by=, such as a time"
            )
        cut = isinstance(truncated, bool)
        columns = {
            "episode": episode,
            "step": step,
            "order_by": order_by,
            "state": state,
            "action": action,
            "reward": reward,
            "next_state": next_state,
            "terminated": terminated,
            "truncated": None if cut else truncated,
        }
        duckdb = module_of_extra("duckdb", "logs", "a log")

        reading, listed = LogReader(data, table), None if isinstance(states, str) and states == SEEN else states
        try:
            reading.take(columns, query, exclude)
            numbered_states = reading.number("states", ("state", "next_state"), listed)
            numbered_actions = reading.number("actions", ("action",), actions)
            reading.check(truncated is True)
        except (duckdb.Error, OSError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            if isinstance(error, InvalidProblemError):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise InvalidProblemError(f"{reading.name} cannot be read as a log: {reason}") from None
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
            spaces = listed_space(data.observation_space), listed_space(data.action_space)
            columns = columns_of(data.iterate_episodes(), *spaces)
        except (FileNotFoundError, AttributeError) as error:
            raise InvalidProblemError(f"{shown(dataset)} is not a Minari data set: {error}") from None
        roles: dict[str, Any] = {name: name for name in columns}
        log = cls.read(columns, **roles, states=range(spaces[0].size), actions=range(spaces[1].size))
        log.states, log.actions = (tuple(hashable(space.element(i)) for i in range(space.size)) for space in spaces)
        log.name, log.declared = str(data.id), AllStates(log.states)
        return log

    @classmethod
    def from_d4rl(cls, arrays: Mapping[str, Any], *, truncated_end: bool = False) -> Log:
        """Read arrays as D4RL has them, a row for each step.

        Parameters
        ----------
        arrays : mapping of str to array
            ``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts`` and, where an episode was cut,
            ``next_observations``. Observations and actions are numbers, or vectors, which become tuples.
        truncated_end : bool
            The recording stopped in the middle of the last episode.

        Returns
        -------
        Log
            The log. Which states exist is declared for :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If the arrays do not tell how an episode ended.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> arrays = {"observations": [0, 1, 0], "actions": [1, 0, 0], "rewards": [0.0, 1.0, 0.5],
        ...           "terminals": [0, 1, 1], "timeouts": [0, 0, 0]}
        >>> eb.Log.from_d4rl(arrays)
        Log(2 episodes, 3 lines, 2 states, 2 actions)
        """
        return cls._from_steps(d4rl_steps(arrays, truncated_end=truncated_end))

    @classmethod
    def from_sb3(cls, buffer: Any) -> Log:
        """Read a replay buffer of Stable-Baselines3.

        Parameters
        ----------
        buffer : ReplayBuffer
            Made with ``handle_timeout_termination=True`` and ``optimize_memory_usage=False``, and not full: in a full buffer
            the beginnings of episodes are overwritten. The last episode of each environment counts as cut.

        Returns
        -------
        Log
            The log. Which states exist is declared for :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If the buffer does not tell how an episode ended.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_sb3(model.replay_buffer)  # doctest: +SKIP
        """
        return cls._from_steps(sb3_steps(buffer))

    @classmethod
    def from_rllib(cls, path: str | Path, *, dones: str | None = None) -> Log:
        """Read episodes that RLlib wrote as JSON.

        Parameters
        ----------
        path : path
            A file, or a folder of ``.json`` files, with a ``SampleBatch`` in each line: complete episodes
            (``batch_mode="complete_episodes"``), not compressed (``output_compress_columns=[]``).
        dones : {"terminated", "truncated"}, optional
            For files without ``terminateds``: whether all ``dones`` are ends of episodes or all were cut by a time limit.

        Returns
        -------
        Log
            The log. Which states exist is declared for :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If a file does not tell how an episode ended; the message names the line.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_rllib("output/")  # doctest: +SKIP
        """
        return cls._from_steps(rllib_steps(path, dones=dones))

    @classmethod
    def _from_steps(cls, steps: Steps) -> Log:
        columns = steps.columns()
        roles: dict[str, Any] = {name: name for name in columns}
        log = cls.read(columns, **roles)
        log.states = tuple(steps.states[number] for number in log.states)
        log.actions = tuple(steps.actions[number] for number in log.actions)
        log.name = steps.name
        return log

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

    def walks(self) -> Iterator[tuple[list[int], list[int], list[int], list[float], bool]]:
        """Return the episodes one by one, in the order of their first lines.

        Returns
        -------
        iterator of tuple
            The numbers of the states; those of the states after them, ``len(states)`` for an end, without the last one if it
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
        found = self._connection.execute(query)
        while rows := found.fetchmany(10_000):
            for states, successors, actions, rewards, terminated in rows:
                yield states, [s for s in successors if s is not None], actions, rewards, bool(terminated)

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
        if given.noise is not None:
            given.check_combinations()
            given = with_noise(_numbered(states.labels), _numbered(self.actions), given)
        if given.reward is not None:
            given = with_known_rewards(_numbered(states.labels), _numbered(self.actions), given)
        if given.start is not None:
            given = replace(given, start=numbered_starts(given.start, _numbered(states.labels).index))
        if given.allowed is not None:
            if max_states is not None or (isinstance(given.allowed, str) and given.allowed == INFO):
                raise InvalidProblemError("allowed= of a log must be an array or a function, of states that are listed")
            index = _numbered(self.actions).index
            masks = masks_of(given.allowed, given.horizon or 0, states.labels, len(self.actions), index, extra=1)
            given = replace(given, allowed=masks)
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
        states, actions = (list(part) for part in numbers)
        self._refuse_forbidden(problem, states, actions)
        return Projection(
            problem,
            self,
            state=np.array([*states, problem.n_states - 1, BEFORE_THE_FIRST]),
            action=np.array([*actions]),
            horizon=problem.horizon if playing or not problem.stationary else None,
            last_ends=not (playing or problem.stationary),
        )

    def _refuse_forbidden(self, problem: Problem, states: list[int], actions: list[int]) -> None:
        """Name the first line whose action is forbidden; steps beyond the horizon have the masks of the last."""
        if problem.allowed is None:
            return
        query = "SELECT step, state, action, min(line) AS line FROM log GROUP BY step, state, action ORDER BY line"
        for step, state, action, line in self._fetch(query):
            if not problem.allowed.at(step)[states[state], actions[action]]:
                label, chosen = self.states[state], self.actions[action]
                raise InvalidProblemError(
                    f"line {line} of {self.name}: action {shown(chosen)} in state {shown(label)} is forbidden by allowed="
                )

    def _refuse_amounts(self, problem: Problem) -> None:
        """Name the first line whose reward, or with which the return, is not in the declared range."""
        low, high = problem.declared_range if problem.reward is None else (-math.inf, math.inf)
        outside = (
            f"SELECT line, reward FROM log WHERE NOT reward BETWEEN '{low!r}'::DOUBLE AND '{high!r}'::DOUBLE "
            "ORDER BY line LIMIT 1"
        )
        for line, reward in self._fetch(outside):
            raise InvalidProblemError(
                f"line {line} of {self.name}: reward {reward} is outside the declared reward_range ({low}, {high})"
            )
        if not problem.limits_returns:
            return
        low, high = problem.return_limits
        whole = f"SELECT max(line) AS line, {EARNED} AS earned FROM log GROUP BY episode HAVING {WHOLE}"
        query = (
            f"SELECT line, earned FROM ({whole}) WHERE NOT earned BETWEEN {low!r} AND {high!r} ORDER BY line LIMIT 1"
        )
        for line, earned in self._fetch(query.format(horizon=problem.horizon)):
            problem.refuse_return(f"line {line} of {self.name}: its episode", earned)

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
