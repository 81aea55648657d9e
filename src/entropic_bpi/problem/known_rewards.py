"""Known rewards of an environment or a log: a function of state, action and next state, or a table.

Known rewards are not learned: the reward of a transition is known before it is observed, and another reward is an error. At
the end of an episode, the next state is the last observation, which is not a state of the problem. So the reward at an end
may be any reward of the state and action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.rows import EXPLICIT_STATES
from entropic_bpi.problem.sentences import END_REWARDS
from entropic_bpi.tools.checks import ask, check_finite
from entropic_bpi.tools.text import shown
from entropic_bpi.types import END, Transitions

# The largest number of transitions for which a function is called.
_MOST_VALUES = 5_000_000


class KnownRewards(NamedTuple):
    """Known rewards, by numbers of states and actions.

    Attributes
    ----------
    table : array ``(S, A, S + 1)`` or None
        The reward of each transition, NaN where none is given. The last column is for ends without an observation. None
        if only ``low`` and ``high`` are known, as in a certificate.
    low, high : float arrays
        The smallest and the largest reward of each declared successor or, if none are declared, of each state and action.
    """

    table: np.ndarray | None
    low: np.ndarray
    high: np.ndarray

    def checked(self, problem: Any, seen: Transitions) -> Transitions:
        """Return transitions with the declared rewards instead of the observed ones, which may differ by rounding.

        Raises
        ------
        InvalidProblemError
            If a reward differs by more than rounding.
        """
        if self.table is None:
            return seen
        end, played = problem.n_states - 1, seen.rows < problem.n_rows - 1
        state, action = np.divmod(seen.rows[played] % (problem.n_states * problem.n_actions), problem.n_actions)
        following, paid = seen.successors[played], seen.rewards[played]
        declared = self.table[state, action, following]
        for k in np.flatnonzero(following == end):  # an end may have any reward of the pair: the nearest one
            values = self.table[state[k], action[k]]
            declared[k] = values[np.nanargmin(np.abs(values - paid[k]))]
        for i in np.flatnonzero(~(np.abs(declared - paid) <= problem.same_reward)):
            where = problem.describe(int(seen.rows[played][i]))
            raise InvalidProblemError(
                f"{where} to state {problem.state_names[following[i]]!r} paid {paid[i]:g}, but the declared reward is "
                f"{declared[i]:g}"
            )
        rewards = seen.rewards.copy()
        rewards[played] = declared
        return seen._replace(rewards=rewards, upper=rewards)


def with_known_rewards(states: Any, actions: Any, given: Declarations) -> Declarations:
    """Return the declarations with :class:`KnownRewards` and their range; ``states`` and ``actions`` are finite spaces.

    If rewards depend on the next state, no successors are declared and there are few states, all states are listed as
    successors, so that each successor has its own reward.
    """
    n, many, successors = states.size, actions.size, given.successors
    needed = np.ones((n * many, n), dtype=bool)
    if successors is not None:
        owner = np.repeat(np.arange(n * many), np.diff(successors[0]))
        needed[:] = False
        needed[owner[successors[1] == n]] = True  # an end may be observed anywhere
        needed[owner[successors[1] < n], successors[1][successors[1] < n]] = True
    table = _table(given.reward, states, actions, needed.reshape(n, many, n))
    rows = table.reshape(-1, n + 1)
    for pair, y in np.argwhere(needed & np.isnan(rows[:, :n])).tolist():
        s, a = divmod(pair, many)
        where = ", ".join(map(shown, (states.element(s), actions.element(a), states.element(y))))
        raise InvalidProblemError(f"reward has no value for ({where}): give a reward for every possible transition")
    low, high = np.nanmin(rows, axis=1), np.nanmax(rows, axis=1)
    if successors is None and n <= EXPLICIT_STATES and (low < high).any():
        every = np.append(np.arange(n), np.full(END_REWARDS, n))
        successors = np.arange(n * many + 1) * len(every), np.tile(every, n * many)
        owner = np.repeat(np.arange(n * many), len(every))
    if successors is not None:
        ends, exact = successors[1] == n, rows[owner, successors[1]]
        low, high = np.where(ends, low[owner], exact), np.where(ends, high[owner], exact)
    least, most = float(low.min()), float(high.max())
    if given.reward_range is not None and not given.reward_range[0] <= least <= most <= given.reward_range[1]:
        raise InvalidProblemError(f"reward is from {least:g} to {most:g}, outside reward_range {given.reward_range}")
    return replace(given, reward=KnownRewards(table, low, high), reward_range=(least, most), successors=successors)


def _table(declared: Any, states: Any, actions: Any, needed: np.ndarray) -> np.ndarray:
    """Return rewards ``(S, A, S + 1)``, NaN where none is given; the last column is for ends without an observation."""
    n, many = states.size, actions.size
    table = np.full((n, many, n + 1), np.nan)
    if isinstance(declared, Mapping):
        for key, reward in declared.items():
            place = key_in_numbers("reward", key, index_or_end(states), actions.index, following=True)
            table[place] = check_finite(f"reward[{shown(key)}]", reward)
    elif callable(declared):
        if needed.sum() > _MOST_VALUES:
            raise InvalidProblemError(
                f"reward would have to be called for {needed.sum():,} transitions: declare successors=, or give an array"
            )
        for s, a, y in zip(*np.nonzero(needed), strict=True):
            labels = states.element(int(s)), actions.element(int(a)), states.element(int(y))
            where = f"reward({', '.join(map(shown, labels))})"
            table[s, a, y] = check_finite(where, ask("reward", declared, *labels))
        for s, a in np.ndindex(n, many):
            try:  # only a log without observations at the ends of episodes needs this value
                table[s, a, n] = declared(states.element(s), actions.element(a), END)
            except Exception:
                continue
    else:
        if declared.shape not in ((n, many, 1), (n, many, n)):
            raise InvalidProblemError(
                f"reward must be an array of shape (S, A) = {(n, many)} or (S, A, S) = {(n, many, n)}, got {declared.shape}"
            )
        table[..., : n + 1 if declared.shape[2] < n or n == 1 else n] = declared
    return table


def key_in_numbers(
    name: str, key: Any, state: Callable[[Any], int], action: Callable[[Any], int], *, following: bool = False
) -> tuple[int, ...]:
    """Return the numbers for a key (state, action) of a declared table; if ``following``, it may include the next state.

    ``state`` and ``action`` return the number of a state or an action, and a negative number for any other object.
    """
    try:
        s, a, *rest = key
        place = (state(s), action(a), *map(state, rest))
    except (TypeError, ValueError):
        place = (-1,)
    if min(place) < 0 or len(place) > 2 + following:
        expected = "(state, action) or (state, action, next state)" if following else "(state, action)"
        raise InvalidProblemError(f"{name} has the key {shown(key)}, expected {expected} of the problem")
    return place


def index_or_end(states: Any) -> Callable[[Any], int]:
    """Return a function that maps states of a finite space to their numbers, and END to the number after the last one."""
    return lambda state: states.size if state is END else states.index(state)
