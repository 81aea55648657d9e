"""Other rewards for the same data.

The event of ``method="kl"`` is about transitions. What is concluded from it holds for every known reward, also for one that
is chosen after looking at the data. Rewards that depend on the next state also need the rows of the last step: all claims
for such rewards have one event, and all claims for rewards of state and action have one. A problem whose rewards depend on
the next state keeps its event for all others. Where several rewards of one transition were outcomes of their own, these
are counted together again if the new reward is the same, which is an event of its own as well.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.logs.labels import labels_behind
from entropic_bpi.sources.opening import as_problem_file, open_problem
from entropic_bpi.tools.checks import check_finite, check_range
from entropic_bpi.tools.files import text_of_cell
from entropic_bpi.tools.text import shown
from entropic_bpi.types import END, Transitions

_COLUMNS = ("state", "action", "next_state")


class OtherRewards(NamedTuple):
    """A problem with other rewards, its counts, and what the rewards are called."""

    problem: Problem
    transitions: Transitions
    name: str


def with_rewards(
    problem: Problem,
    transitions: Transitions,
    labels: tuple[Sequence[Any], Sequence[Any]],
    given: Any,
    reward_range: Any = None,
) -> OtherRewards:
    """Return the problem and its counts with other, known rewards; ``labels`` are those of the states and the actions.

    ``given`` is an array, a function of state, action and next state, a table of the rewards that change (a mapping or a
    CSV file), or the model, problem file or array file that has them.
    """
    if problem.random_rewards:
        raise InvalidProblemError(
            "rewards= is for rewards that are known: here random rewards were learned, and a claim about them is for the "
            "reward that was paid, with its own part of delta"
        )
    if problem.reward is not None:
        raise InvalidProblemError(
            "rewards= is not supported where reward= was declared: for a log, give the other rewards as reward="
        )
    if problem.noise is not None:
        raise InvalidProblemError(
            "rewards= is not supported together with noise=, whose outcomes have rewards of their own"
        )
    given, name = _opened(given)
    if problem.black_box_rewards:
        numbers = _Numbers(problem, _of_environment(problem, labels[0]), labels[1])
        changed = _paid(problem, transitions, _lookup(numbers, given), _range_for(problem, given, reward_range))
    else:
        if reward_range is not None:
            raise InvalidProblemError("reward_range= is for environments and logs; of a model all rewards are known")
        changed = _known(problem, given, _Numbers(problem, *labels)), transitions
    changed[0].check()
    return OtherRewards(*changed, name)


def _opened(given: Any) -> tuple[Any, str]:
    """Return rewards that may be in a file, and what they are called."""
    if isinstance(given, (str, Path)):
        opened, _ = _opened(as_problem_file(given) or _read(Path(given)))
        return opened, f"those of {Path(given).name}"
    file = as_problem_file(given)
    if file is not None:
        given, _ = open_problem(file, {})
        if not isinstance(given, FiniteMDP):
            raise InvalidProblemError("the problem file names no model: its rewards are learned, not known")
    if isinstance(given, FiniteMDP):
        return given, "those of a model"
    if isinstance(given, Mapping):
        return given, "a table of changes"
    return given, f"the function {getattr(given, '__name__', shown(given))}" if callable(given) else "an array"


def _read(path: Path) -> Any:
    """Return the array or the table of a file."""
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix != ".csv":
            return FiniteMDP.load(path)
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(), restval=""))
        columns = [column for column in _COLUMNS if lines and column in lines[0]]
        if columns[:2] != ["state", "action"] or "reward" not in lines[0]:
            raise InvalidProblemError(f"{path} needs the columns state, action, reward and, if it matters, next_state")
        table = {tuple(text_of_cell(line[column]) for column in columns): float(line["reward"]) for line in lines}
    except FileNotFoundError:
        raise InvalidProblemError(f"no such file: {path}") from None
    except (ValueError, EOFError, csv.Error) as error:
        raise (
            error
            if isinstance(error, InvalidProblemError)
            else InvalidProblemError(f"{path} cannot be read as rewards: {error}")
        ) from None
    if len(table) < len(lines):
        raise InvalidProblemError(f"{path} lists the same {', '.join(columns)} twice")
    return table


def _of_environment(problem: Problem, states: Sequence[Any]) -> list[Any]:
    """Return the observations behind the names of an environment's states, as far as they can be read, and END."""
    observed = list(states)[: problem.n_states - 1]
    if observed and all(isinstance(state, str) for state in observed):
        observed = labels_behind(observed)
    return [*observed, *[None] * (problem.n_states - 1 - len(observed)), END]


class _Numbers:
    """The labels of states and actions, and the numbers behind labels or their names."""

    def __init__(self, problem: Problem, states: Sequence[Any], actions: Sequence[Any]) -> None:
        self.problem, self.states, self.actions = problem, states, labels_behind(map(str, actions))
        self.state, self.action = _numbered(states, problem.state_names), _numbered(actions, problem.action_names)

    def key(self, given: Any) -> tuple[int, ...]:
        """Return the numbers of ``(state, action)`` or ``(state, action, next state)``."""
        tables = (self.state, self.action, self.state)
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise InvalidProblemError(
                f"rewards: {shown(given)} is neither (state, action) nor (state, action, next state)"
            )
        for what, table, part in zip(("state", "action", "state"), tables, given, strict=False):
            if part not in table and str(part) not in table:
                raise InvalidProblemError(f"rewards: there is no {what} {shown(part)}")
        return tuple(table[part if part in table else str(part)] for table, part in zip(tables, given, strict=False))


def _numbered(labels: Sequence[Any], names: Sequence[str]) -> dict[Any, int]:
    numbers: dict[Any, int] = {str(name): i for i, name in enumerate(names)}
    return numbers | {label: i for i, label in enumerate(labels) if label is not None and label.__hash__}


_Reward = Callable[[int, int, int], float | None]


def _lookup(numbers: _Numbers, given: Any) -> _Reward:
    """Return the reward of a state, an action and a next state, by number; None if it does not change."""
    problem = numbers.problem
    if isinstance(given, Mapping):
        listed = {numbers.key(key): check_finite(f"rewards[{key}]", value) for key, value in given.items()}
        return lambda s, a, y: listed.get((s, a, y), listed.get((s, a)))
    if callable(given):
        states, actions = numbers.states, numbers.actions
        return lambda s, a, y: check_finite(
            f"rewards({states[s]!r}, {actions[a]!r}, {states[y]!r})", given(states[s], actions[a], states[y])
        )
    n, table = problem.n_states - 1, _array(given)
    if table.shape == (n, problem.n_actions):
        return lambda s, a, y: float(table[s, a])
    if table.shape != (n, problem.n_actions, n + 1):
        raise InvalidProblemError(
            f"rewards of an environment must be an array (S, A) = {(n, problem.n_actions)} or (S, A, S + 1), whose last "
            f"column is the end of the episode; got shape {table.shape}"
        )
    return lambda s, a, y: float(table[s, a, y])


def _array(given: Any) -> np.ndarray:
    try:
        table = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise InvalidProblemError(f"rewards must be numbers, got {shown(given)}") from None
    if not np.isfinite(table).all():
        raise InvalidProblemError("rewards must be finite")
    return table


def _range_for(problem: Problem, given: Any, declared: Any) -> tuple[float, float]:
    """Return the range of the new rewards of an environment, also of those that are paid where nobody has been."""
    if declared is not None:
        return check_range("reward_range", declared)
    if isinstance(given, Mapping):  # all others are as they were
        values = [*map(float, given.values()), *problem.declared_range]
    elif callable(given):
        raise InvalidProblemError("rewards= as a function needs reward_range=: what it pays where nobody has been")
    else:
        values = _array(given).ravel().tolist()
    return min(values), max(values)


def _paid(
    problem: Problem, seen: Transitions, reward: _Reward, ends: tuple[float, float]
) -> tuple[Problem, Transitions]:
    """Return the problem of an environment and its counts as if other rewards had been paid."""
    (low, high), nothing, changed = ends, min(ends[0], 0.0), problem.learning_rewards(ends)
    merged: list[list[float]] = []
    paid = []
    for row, y, times, least, most in zip(*(column.tolist() for column in seen), strict=True):
        pair = row % (problem.n_states * problem.n_actions)
        new = nothing if row == problem.n_rows - 1 else reward(pair // problem.n_actions, pair % problem.n_actions, y)
        paid.append((row, y, *((least, most) if new is None else (new, new)), times))
    for row, y, least, most, times in sorted(paid):
        if not (row == problem.n_rows - 1 or low <= least <= most <= high):
            raise InvalidProblemError(f"rewards: {problem.describe(row)} pays {least:g}, outside reward_range={ends}")
        last = merged[-1] if merged else [-1.0] * 5
        if (row, y) == (last[0], last[1]) and max(most, last[3]) - last[2] <= changed.same_reward:
            last[3], last[4] = max(most, last[3]), last[4] + times
        else:
            merged.append([row, y, least, most, times])
    rows, to, least, most, times = (
        (np.array(column) for column in zip(*merged, strict=True)) if merged else [np.empty(0)] * 5
    )
    return changed, Transitions(rows.astype(np.int64), to.astype(np.int64), times.astype(np.int64), least, most)


def _known(problem: Problem, given: Any, numbers: _Numbers) -> Problem:
    """Return the problem of a model with other rewards."""
    sizes, horizon = (problem.n_states, problem.n_actions), problem.horizon
    if isinstance(given, FiniteMDP):
        if (given.n_states, given.n_actions, given.horizon) != (*sizes, horizon):
            raise InvalidProblemError("rewards: the model has other sizes or another horizon than the one of the data")
        if given.rewards is None:
            raise InvalidProblemError("rewards: give the rewards of a sparse model as an array or a table")
        given = given.rewards
    if isinstance(given, Mapping) or callable(given):
        return _at_slots(problem, _listed(problem, _lookup(numbers, given)))
    table, after = _array(given), (*sizes, problem.n_states)
    if table.shape == after == (horizon, *sizes):
        raise InvalidProblemError(f"rewards of shape {after} could mean (S, A, S) or (H, S, A): give (H, S, A, S)")
    if table.shape in (sizes, (horizon, *sizes)):
        table = table.reshape(-1, *sizes)
        if problem.rewards is not None:
            return replace(problem, rewards=table)
        return _at_slots(problem, lambda pairs, _, __: table.reshape(len(table), -1)[:, pairs])
    if table.shape in (after, (horizon, *after)):
        table = table.reshape(-1, sizes[0] * sizes[1], problem.n_states)
        return _at_slots(problem, lambda pairs, to, _: table[:, pairs, to])
    raise InvalidProblemError(
        f"rewards must have shape (S, A) = {sizes}, (S, A, S), (H, S, A) or (H, S, A, S) with H = {horizon}; got "
        f"{table.shape}"
    )


_SlotRewards = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Rewards of slots, by the numbers of their pairs (s, a), of their next states, and their own."""


def _listed(problem: Problem, reward: _Reward) -> _SlotRewards:
    """Return the rewards of slots from those of a function or a table; what a table does not list is as it was."""

    def rewards(pairs: np.ndarray, to: np.ndarray, slots: np.ndarray) -> np.ndarray:
        s, a = np.divmod(pairs, problem.n_actions)
        before = problem.slots.low[:, slots] if problem.rewards is None else problem.rewards[:, s, a]
        new = [reward(*place) for place in zip(s.tolist(), a.tolist(), to.tolist(), strict=True)]
        return np.where([value is None for value in new], before, [math.nan if v is None else v for v in new])

    return rewards


def _at_slots(problem: Problem, rewards: _SlotRewards) -> Problem:
    """Return the problem with rewards that are given for each state-action pair and its possible next states."""
    slots, last = problem.slots, problem.n_rows - problem.artificial
    if problem.open_ended:
        raise InvalidProblemError(
            "rewards that depend on the next state need the possible next states: declare successors=, or give an array "
            "(S, A)"
        )
    if problem.rewards is not None:  # rows may share their slots
        each = [slots.successor[b : b + u] for b, u in zip(slots.begin, slots.used, strict=True)]
        slots = slots._replace(begin=np.cumsum(slots.used) - slots.used, successor=np.concatenate(each))
    of_rows = slots.used[:last]
    row = np.repeat(np.arange(last), of_rows)
    slot = np.repeat(slots.begin[:last] - (np.cumsum(of_rows) - of_rows), of_rows) + np.arange(len(row))
    used, at = np.unique(slot, return_index=True)
    pairs, first = row[at] % (problem.n_states * problem.n_actions), slots.begin[:last]
    paid = rewards(pairs, slots.successor[used], used)
    # The artificial step of a random start pays nothing, which is written as the smallest reward.
    values = np.full((len(paid), len(slots.successor)), paid.min())
    values[:, used] = paid
    same = (values[:, slot] == np.repeat(values[:, first], of_rows, axis=1)).all()
    if problem.rewards is not None and same:
        steps = problem.horizon if len(values) > 1 else 1
        table = np.empty((steps, problem.n_states * problem.n_actions))
        table[:, np.arange(last) % table.shape[1]] = values[:, first]
        return replace(problem, rewards=table.reshape(steps, problem.n_states, problem.n_actions))
    return replace(problem, rewards=None, slots=slots._replace(low=values, high=values.copy()))
