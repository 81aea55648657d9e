"""Other rewards for the same data.

The event of ``method="kl"`` is about transitions. What is concluded from it holds for every known reward, also for one that
is chosen after looking at the data. Rewards that depend on the next state also need the rows of the last step: all claims
for such rewards have one event, and all claims for rewards of state and action have one. A problem whose rewards depend on
the next state keeps its event for all others. Where several rewards of one transition were outcomes of their own, these
are counted together again if the new reward is the same, which is an event of its own as well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.known_rewards import key_in_numbers
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import index_by_name, slots_of
from entropic_bpi.sources.logs.labels import labels_behind
from entropic_bpi.tools.checks import check_finite, check_range, refuse_for
from entropic_bpi.tools.files import read_csv
from entropic_bpi.tools.text import shown
from entropic_bpi.types import END, Transitions

# Rewards (steps, n) of n states, actions and next states, by number; NaN where nothing changes.
_Rewards = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def with_rewards(
    problem: Problem,
    transitions: Transitions,
    labels: tuple[Sequence[Any], Sequence[Any]],
    given: Any,
    reward_range: Any = None,
) -> tuple[Problem, Transitions, str]:
    """Return the problem and its counts with other, known rewards, and what these are called.

    ``labels`` are those of the states and the actions. ``given`` is an array, a function of state, action and next state, a
    table of the rewards that change (a mapping or a CSV file).
    """
    unsupported = {
        "is for known rewards, but random rewards were learned": problem.random_rewards,
        "is not supported where reward= was declared: give the others as reward=": problem.reward is not None,
        "is not supported with noise=, whose outcomes have their own rewards": problem.noise is not None,
    }
    refuse_for(unsupported, "rewards= ")
    if reward_range is not None and not problem.black_box_rewards:
        raise InvalidProblemError("reward_range= is for environments and logs; of a model all rewards are known")
    given, name = _named(given)
    if problem.black_box_rewards:
        ends = _range_for(problem, given, reward_range)
        problem, transitions = _paid(problem, transitions, _read(problem, labels, given), ends)
    else:
        problem = _known(problem, labels, given)
    problem.check()
    return problem, transitions, name


def _named(given: Any) -> tuple[Any, str]:
    """Return rewards, of which a table may be in a CSV file, and what they are called."""
    if isinstance(given, (str, Path)):
        return _read_file(Path(given)), f"those of {Path(given).name}"
    if isinstance(given, Mapping):
        return given, "a table of changes"
    return given, f"the function {getattr(given, '__name__', shown(given))}" if callable(given) else "an array"


def _read_file(path: Path) -> dict[tuple[str, ...], float]:
    """Return the table of a CSV file."""
    lines = read_csv(path, "state", "action", "reward")
    columns = [column for column in ("state", "action", "next_state") if lines and column in lines[0]]
    try:
        table = {tuple(line[column] for column in columns): float(line["reward"]) for line in lines}
    except ValueError as error:
        raise InvalidProblemError(f"{path} cannot be read as a table of rewards: {error}") from None
    if len(table) < len(lines) or not lines:
        what = f"the same {', '.join(columns)} twice" if lines else "no rewards"
        raise InvalidProblemError(f"{path} lists {what}")
    return table


def _read(problem: Problem, labels: tuple[Sequence[Any], Sequence[Any]], given: Any) -> _Rewards:
    """Return the rewards of a mapping, a function or an array by the numbers of states, actions and next states."""
    states, actions = labels[0], labels_behind(map(str, labels[1]))
    if problem.black_box_rewards:
        states = _observations(states, problem.n_states - 1)
    if isinstance(given, Mapping):
        number = index_by_name(problem.labels[0], states), index_by_name(problem.labels[1], actions)
        listed = {
            key_in_numbers("rewards", key, *number, following=True): check_finite(f"rewards[{key}]", value)
            for key, value in given.items()
        }

        def reward(s: int, a: int, y: int) -> float:
            return listed.get((s, a, y), listed.get((s, a), math.nan))

    elif callable(given):

        def reward(s: int, a: int, y: int) -> float:
            move = states[s], actions[a], states[y]
            return check_finite(f"rewards{move}", given(*move))

    else:
        table = _array(problem, given)
        return lambda s, a, y: table[:, s, a, y if table.shape[3] > 1 else 0]
    return lambda *columns: np.array([[reward(*map(int, move)) for move in zip(*columns, strict=True)]], dtype=float)


def _observations(states: Sequence[Any], n: int) -> list[Any]:
    """Return the observations behind the names of an environment's states, as far as they can be read, and END."""
    observed = list(states)[:n]
    if observed and all(isinstance(state, str) for state in observed):
        observed = labels_behind(observed)
    return [*observed, *[None] * (n - len(observed)), END]


def _array(problem: Problem, given: Any) -> np.ndarray:
    """Return an array of rewards as ``(steps, S, A, 1)`` or, if they depend on the next state, ``(steps, S, A, S')``."""
    try:
        table = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise InvalidProblemError(f"rewards must be numbers, got {shown(given)}") from None
    if not np.isfinite(table).all():
        raise InvalidProblemError("rewards must be finite")
    played, horizon = problem.black_box_rewards, problem.horizon
    pair = (problem.n_states - played, problem.n_actions)
    after = (*pair, problem.n_states)
    if table.shape == after == (horizon, *pair) and not played:
        raise InvalidProblemError(f"rewards of shape {after} could mean (S, A, S) or (H, S, A): give (H, S, A, S)")
    for shape, last in ((pair, (1,)), (after, ())):
        if table.shape == shape or (table.shape == (horizon, *shape) and not played):
            return table.reshape(-1, *shape, *last)
    forms = "(S, A, S + 1), whose last column is the end of the episode"
    if not played:
        forms = f"(S, A, S), (H, S, A) or (H, S, A, S) with H = {horizon}"
    raise InvalidProblemError(f"rewards must have shape: array (S, A) = {pair} or {forms}; got {table.shape}")


def _range_for(problem: Problem, given: Any, declared: Any) -> tuple[float, float]:
    """Return the range of the new rewards of an environment, also of those that are paid where nobody has been."""
    if declared is not None:
        return check_range("reward_range", declared)
    if isinstance(given, Mapping):  # all others are as they were
        values = [*map(float, given.values()), *problem.declared_range]
    elif callable(given):
        raise InvalidProblemError("rewards= as a function needs reward_range=: what it returns where nobody has been")
    else:
        values = _array(problem, given).ravel().tolist()
    return min(values), max(values)


def _paid(
    problem: Problem, seen: Transitions, rewards: _Rewards, ends: tuple[float, float]
) -> tuple[Problem, Transitions]:
    """Return the problem of an environment and its counts as if other rewards had been paid."""
    changed, played = problem.learning_rewards(ends), seen.rows < problem.n_rows - 1
    s, a = np.divmod(seen.rows % (problem.n_states * problem.n_actions), problem.n_actions)
    new = np.full(len(s), min(ends[0], 0.0))  # the artificial step of a random start
    new[played] = rewards(s[played], a[played], seen.successors[played])[0]
    low, high = np.where(np.isnan(new), seen.rewards, new), np.where(np.isnan(new), seen.upper, new)
    wrong = played & ~((ends[0] <= low) & (high <= ends[1]))
    if wrong.any():
        i = int(np.argmax(wrong))
        where = problem.describe(int(seen.rows[i]))
        raise InvalidProblemError(f"rewards: {where} pays {low[i]:g}, outside reward_range={ends}")
    merged: list[list[float]] = [[-1.0] * 5]
    order = np.lexsort((high, low, seen.successors, seen.rows))
    columns = (column[order].tolist() for column in (seen.rows, seen.successors, seen.times, low, high))
    for row, y, times, least, most in zip(*columns, strict=True):
        last = merged[-1]
        if [row, y] == last[:2] and max(most, last[4]) - last[3] <= changed.same_reward:
            last[2], last[4] = last[2] + times, max(most, last[4])
        else:
            merged.append([row, y, times, least, most])
    whole, paid = np.split(np.array(merged[1:]).reshape(-1, 5).T, [3])
    return changed, Transitions(*whole.astype(np.int64), *paid)


def _known(problem: Problem, labels: tuple[Sequence[Any], Sequence[Any]], given: Any) -> Problem:
    """Return the problem of a model with other rewards."""
    if problem.rewards is not None and not (isinstance(given, Mapping) or callable(given)):
        table = _array(problem, given)
        if table.shape[3] == 1:
            return replace(problem, rewards=table[..., 0])
    return _at_slots(problem, _read(problem, labels, given))


def _at_slots(problem: Problem, rewards: _Rewards) -> Problem:
    """Return the problem with rewards that are given for each state-action pair and its possible next states."""
    slots, last = problem.slots, problem.n_rows - problem.artificial
    if problem.open_ended:
        raise InvalidProblemError("rewards that depend on the next state need successors=; or give an array (S, A)")
    if problem.rewards is not None:  # rows may share their slots
        own = slots.successor[slots_of(slots, np.arange(problem.n_rows))[1]]
        slots = slots._replace(begin=np.cumsum(slots.used) - slots.used, successor=own)
    row, slot = slots_of(slots, np.arange(last))
    first = slots.begin[:last]
    used, at = np.unique(slot, return_index=True)
    s, a = np.divmod(row[at] % (problem.n_states * problem.n_actions), problem.n_actions)
    paid = rewards(s, a, slots.successor[used])
    # A table of changes leaves the others as they were.
    paid = np.where(np.isnan(paid), slots.low[:, used] if problem.rewards is None else problem.rewards[:, s, a], paid)
    # The artificial step of a random start pays nothing, which is written as the smallest reward.
    values = np.full((len(paid), len(slots.successor)), paid.min())
    values[:, used] = paid
    if problem.rewards is not None and (values[:, slot] == values[:, first[row]]).all():
        table = np.empty((problem.horizon if len(values) > 1 else 1, problem.n_states * problem.n_actions))
        table[:, np.arange(last) % table.shape[1]] = values[:, first]
        return replace(problem, rewards=table.reshape(-1, problem.n_states, problem.n_actions))
    return replace(problem, rewards=None, slots=slots._replace(low=values, high=values.copy()))
