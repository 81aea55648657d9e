"""Logs: recorded transitions of any decision maker, read, checked and counted by DuckDB.

The proof of the KL method uses that the successors of a row are independent over its visits. This holds for *any* rule of
choosing actions that does not use the future. So a log can be certified like episodes that the library plays. It must be
complete: no transition may have been dropped because of its outcome.

A log is a table with one line for each step of each episode:

- a step that *terminated* leads to the absorbing state "end", which has reward 0;
- an episode that was *truncated* contributes its recorded transitions;
- first states are draws of the random start.

Without a column of next states, the next state of a line is the state of the next line. If an episode was truncated, the
next state of its last step is then unknown. Using that step only in episodes in which its outcome is known, such as those
that terminate there, would be a selection by outcome. So that step is used in no episode. Therefore, without next states,
episodes may be truncated only at one step, the last step of the longest episode, as by a time limit.

Reading ten million lines takes half a minute, since DuckDB converts labels to numbers and lines to counts before the data
become Python objects.

Nothing is guessed about the data (see ``entropic_bpi.sources.logs.tables``), and labels that could only be compared after
rounding are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Risk
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST
from entropic_bpi.sources.environment import check_black_box
from entropic_bpi.sources.logs.imports import ImportedLog
from entropic_bpi.sources.logs.labels import SEEN, AllStates, numbered
from entropic_bpi.sources.logs.lines import EARNED, WHOLE, Projection
from entropic_bpi.sources.logs.reading import LogReader
from entropic_bpi.sources.logs.tables import hashable
from entropic_bpi.sources.spaces import unseen
from entropic_bpi.sources.successors import in_numbers
from entropic_bpi.tools.checks import check_integer, check_list
from entropic_bpi.tools.text import shown

# Selects the first line with an amount that is not between two numbers.
_OUTSIDE = "SELECT line, paid FROM ({}) WHERE NOT paid BETWEEN '{!r}'::DOUBLE AND '{!r}'::DOUBLE ORDER BY line LIMIT 1"


class Log(ImportedLog):
    """A checked log of episodes; created by ``Log.read``, ``Log.from_minari`` and similar methods.

    Attributes
    ----------
    states, actions : tuple
        The labels that were seen or listed; their positions are the numbers in counts and policies.
    declared : AllStates or None
        The declaration of all states, if ``read`` was given one.
    episodes, lines : int
        Number of episodes and of lines.
    longest : int
        Number of steps of the longest episode.
    unused : int
        Number of lines of the last step, which are not used if the state after it is unknown for some of them.
    excluded : str or None
        The condition of ``exclude``, with the number of episodes that it excluded.
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
    ) -> Log:
        """Read a log. Invalid or inconsistent data are an error that names the line.

        Parameters
        ----------
        data : path or table
            A local CSV, Parquet or JSON-lines file (or several, as ``"logs/*.parquet"``; CSV and JSON may be ``.gz``), a
            folder of Parquet files, a frame of pandas, polars or any library with Arrow's protocol, a dictionary of arrays
            or lists with one axis, a list of dictionaries, or a structured NumPy array. A CSV file must be UTF-8 with
            commas as separators, ``"`` as quotes (doubled inside quotes), and the names of the columns in its first line.
            Empty lines and spaces beside quotes are ignored, and an empty value is a missing one; no other line is skipped.
        episode, step, state, action, reward : str
            The columns. Steps count 0, 1, 2, … in each episode; the order of the lines does not matter. Labels of
            episodes, states and actions may have any type; in a CSV file they are integers if all of them are written as
            integers, and text otherwise. Labels that can only be compared after rounding are refused.
            ``state`` may be a list of columns; each state is then a tuple.
        order_by : str, instead of ``step``
            A column of numbers or times that orders the steps of each episode. Equal values in an episode are an error.
        next_state : str or list of str, optional
            The column with the state after the step. The default is the state of the episode's next line.
        terminated, truncated : str, optional
            Columns that are true where an episode terminated, and where it was truncated. ``truncated=True`` means that
            every episode that did not terminate was truncated. Every episode must end in one of these ways. In a log
            without ``next_state``, an episode must not be truncated earlier than others: see the module.
        states : iterable or "seen", optional
            All existing states, in the order of their numbers; or ``"seen"``, which declares that no others exist than
            those of the log. A certificate needs ``states`` or ``max_states``, here or in :func:`entropic_bpi.certify`,
            since a rare state may be missing from the log.
        actions : iterable, optional
            All possible actions, in the order of their numbers. The default is the actions of the log.
        max_states : int, optional
            Upper bound on the number of states, including those of the log, if they cannot be listed.
        exclude : str, optional
            Exclude the episodes that have a line with this condition, in SQL on the columns of the data. The certificate
            states the assumption that no episode was excluded because of its outcome.
        query : str, optional
            Read the result of this SELECT statement over the table ``data`` instead of the data itself, in DuckDB's SQL.
            It cannot read files or the network. The values of a CSV file are text there.

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

        A query can select lines and rename columns:

        >>> query = "SELECT * EXCLUDE (paid), 10 * paid AS cents FROM data WHERE episode = 0"
        >>> log = eb.Log.read(table, episode="episode", step="t", state="where", action="did", reward="cents",
        ...                   terminated="over", query=query)
        >>> log.episodes, log.value(0.0, horizon=2)
        (1, 10.0)
        """
        if (step is None) == (order_by is None):
            raise InvalidProblemError("give either step=, a column of 0, 1, 2, …, or order_by=, such as a time")
        columns = {"episode": episode, "step": step, "order_by": order_by, "state": state, "next_state": next_state}
        columns |= {"action": action, "reward": reward, "terminated": terminated}
        columns["truncated"] = None if isinstance(truncated, bool) else truncated
        reading, listed = LogReader(data), None if isinstance(states, str) and states == SEEN else states
        try:
            reading.take(columns, query, exclude)
            numbered_states = reading.number("states", ("state", "next_state"), listed)
            numbered_actions = reading.number("actions", ("action",), actions)
            reading.check(truncated is True)
        except (reading.duckdb.Error, OSError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            if isinstance(error, InvalidProblemError):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise InvalidProblemError(f"{reading.name} cannot be read as a log: {reason}") from None
        log = cls(reading, numbered_states, numbered_actions)
        if states is not None or max_states is not None:
            log.declared = log.all_states(states if listed is None else log.states, max_states)
        return log

    def all_states(self, states: Any = None, max_states: int | None = None) -> AllStates:
        """Return the declaration of all states, as given here or to ``read``.

        Parameters
        ----------
        states : sequence or "seen", optional
            All existing states, or ``"seen"`` if there are no others than those of the log.
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
            raise InvalidProblemError("give states= or max_states=, not both: all states, or an upper bound")
        if max_states is not None:
            return AllStates(self.states, check_integer("max_states", max_states))
        if isinstance(states, str) and states == SEEN:
            return AllStates(self.states, seen=True)
        if states is not None:
            return AllStates(self._check_listed(states))
        if self.declared is None:
            raise InvalidProblemError(
                f"{self.name} has {len(self.states)} states, but other states may exist: give one of "
                "states=[…] (--states A,B,…), all existing states; max_states=M (--max-states M), an upper bound on their "
                "number; or states='seen' (--states seen), which declares that no other states exist"
            )
        return self.declared

    def _check_listed(self, states: Any) -> tuple[Any, ...]:
        """Return the declared labels; raise an error if a state of the log is not among them."""
        labels = tuple(map(hashable, check_list("states", states)))
        if len(set(map(str, labels))) < len(labels):
            raise InvalidProblemError(f"states must be distinct, also when written as text; got {shown(states)}")
        for label, number in zip(self.states, AllStates(labels).numbers(self.states), strict=True):
            if number < 0:
                raise InvalidProblemError(f"state {shown(label)} of {self.name} is not among the declared states")
        return labels

    def problem(self, states: AllStates, *, eps: float, delta: float, risk: Risk, **declared: Any) -> Problem:
        """Return the identification problem of the log, with the declarations of a black box.

        Parameters
        ----------
        states : AllStates
            The declaration of all states.
        eps, delta : float
            Accuracy, and the probability of failure.
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
        max_states = given.max_states
        spaces, names, end = (numbered(states.labels), numbered(self.actions)), tuple(map(str, states.labels)), "end"
        while end in names:
            end = f"({end})"
        if max_states is not None and max_states < len(names):
            raise InvalidProblemError(f"max_states must be at least {len(names)}, those of the log; got {max_states}")
        given = in_numbers(given, *spaces, played=False)
        others = tuple(map(unseen, range(len(names), max_states or 0)))
        while set(others) & set(names):  # a label of the log may be equal to one of them
            others = tuple(f"#{other}" for other in others)
        names += others
        return Problem.black_box(
            len(names),
            len(self.actions),
            eps=eps,
            delta=delta,
            risk=risk,
            state_labels=(*names, end),
            action_labels=tuple(map(str, self.actions)),
            source=f"log:{self.name}",
            **given.given(),
        )

    def project(self, problem: Problem, numbers: Sequence[Iterable[int]], *, playing: bool) -> Projection:
        """Return the data of the log for a problem in which its states and actions have other numbers.

        Parameters
        ----------
        problem : Problem
            The problem.
        numbers : sequence of two iterables of int
            The numbers of states and actions in the problem.
        playing : bool
            Whether more episodes are played. These have ``horizon`` steps with known next states; the episodes of the log
            are then shortened to ``horizon`` steps.

        Returns
        -------
        Projection
            The data: counts, and the input of the tests of the assumptions.

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
        state, action = np.array([*states, problem.n_states - 1, BEFORE_THE_FIRST]), np.array(actions)
        horizon = problem.horizon if playing or not problem.stationary else None
        return Projection(problem, self, state, action, horizon, last_ends=not (playing or problem.stationary))

    def _refuse_forbidden(self, problem: Problem, states: list[int], actions: list[int]) -> None:
        """Raise an error for the first line whose action is forbidden; steps beyond the horizon have the last mask."""
        if problem.allowed is None:
            return
        query = "SELECT step, state, action, min(line) AS line FROM log GROUP BY step, state, action ORDER BY line"
        for step, state, action, line in self._fetch(query):
            if not problem.allowed.at(step)[states[state], actions[action]]:
                place = f"action {shown(self.actions[action])} in state {shown(self.states[state])}"
                raise InvalidProblemError(f"line {line} of {self.name}: {place} is forbidden by allowed=")

    def _refuse_amounts(self, problem: Problem) -> None:
        """Raise an error for the first line with a reward, or for an episode with a return, outside its declared range."""
        if problem.reward is None:
            low, high = problem.declared_range
            for line, reward in self._fetch(_OUTSIDE.format("SELECT line, reward AS paid FROM log", low, high)):
                words = f"reward {reward} is outside the declared reward_range ({low}, {high})"
                raise InvalidProblemError(f"line {line} of {self.name}: {words}")
        if problem.limits_returns:
            whole = f"SELECT max(line) AS line, {EARNED} AS paid FROM log GROUP BY episode HAVING {WHOLE}"
            whole = whole.format(horizon=problem.horizon)
            for line, earned in self._fetch(_OUTSIDE.format(whole, *problem.return_limits)):
                problem.refuse_return(f"line {line} of {self.name}: its episode", earned)
