"""Which next states of an environment are declared possible: by a function, a table or a mask.

In functions and tables, states and actions are what they are in the environment: elements of its spaces. :data:`END` stands
for the end of the episode. Whatever is listed comes with one reward; if several are possible, it is listed so many times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.noise import Noise
from entropic_bpi.problem.sentences import SAME_REWARD
from entropic_bpi.sources.spaces import FiniteSpace
from entropic_bpi.tools.text import shown
from entropic_bpi.types import END


def declared_rows(
    states: FiniteSpace, actions: FiniteSpace, successors: Any, *, repeated: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Declared successors as compressed rows ``(indptr, indices)`` over the pairs (s, a); the last state is the end.

    ``repeated``: a state that is listed twice may come with two rewards; otherwise it counts once.
    """
    if isinstance(successors, Mapping):
        following = _look_up(states, actions, successors)
    elif callable(successors):
        following = _ask(successors)
    else:
        return _rows_of_mask(states, actions, successors)
    rows: list[list[int]] = []
    for s in map(states.element, range(states.size)):
        for a in map(actions.element, range(actions.size)):
            found = _numbered(states, following(s, a), f"the successors of state {shown(s)}, action {shown(a)}")
            rows.append(sorted(found if repeated else set(found)))
    return np.cumsum([0, *map(len, rows)]), np.array([y for row in rows for y in row], dtype=np.int64)


def _look_up(states: FiniteSpace, actions: FiniteSpace, table: Mapping[Any, Any]) -> Callable[[Any, Any], Any]:
    """The entries of a table, whose keys may write a state or an action in any way that its space knows."""
    entries = {}
    for key, value in table.items():
        try:
            s, a = key
            pair = states.index(s), actions.index(a)
        except (TypeError, ValueError):
            pair = -1, -1
        if min(pair) < 0:
            raise InvalidProblemError(
                f"successors has the key {shown(key)}, expected (state, action) with elements of the environment's spaces"
            )
        entries[pair] = value

    def following(s: Any, a: Any) -> Any:
        pair = states.index(s), actions.index(a)
        if pair not in entries:
            raise InvalidProblemError(
                f"successors lacks ({shown(s)}, {shown(a)}): list what may follow every state and action, or give a function"
            )
        return entries[pair]

    return following


def _ask(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def following(s: Any, a: Any) -> Any:
        try:
            return function(s, a)
        except Exception as error:
            raise InvalidProblemError(
                f"successors({shown(s)}, {shown(a)}) raised {type(error).__name__}: {error}"
            ) from error

    return following


def _numbered(states: FiniteSpace, following: Any, where: str) -> list[int]:
    """The numbers of the states that may follow."""
    if isinstance(following, (str, bytes)) or not isinstance(following, Iterable):
        raise InvalidProblemError(f"{where} must be a list of states, got {shown(following)}")
    found = []
    for y in following:
        number = states.size if y is END else states.index(y)
        if number < 0:
            raise InvalidProblemError(f"{where} must be elements of the observation space or END, got {shown(y)}")
        found.append(number)
    if not found:
        raise InvalidProblemError(f"{where} are none: name what may follow, END for the end of the episode")
    return found


def _rows_of_mask(states: FiniteSpace, actions: FiniteSpace, given: Any) -> tuple[np.ndarray, np.ndarray]:
    shape = (states.size, actions.size, states.size + 1)
    try:
        mask = np.asarray(given)
    except ValueError:
        mask = np.empty(0)
    if mask.shape != shape or mask.dtype != np.bool_:
        raise InvalidProblemError(
            "the successors of an environment are declared by a function (state, action) -> states, by a dict "
            f"{{(state, action): states}}, or by a boolean mask of shape (S, A, S + 1) = {shape}, whose last column is the "
            f"end; got {shown(given) if isinstance(given, str) else f'dtype {mask.dtype}, shape {mask.shape}'}"
        )
    empty = np.argwhere(~mask.any(axis=2))
    if len(empty):
        raise InvalidProblemError(f"successors[s={empty[0][0]}, a={empty[0][1]}] allows no next state")
    flat = mask.reshape(-1, shape[2])
    return np.concatenate([[0], np.cumsum(flat.sum(axis=1))]), np.nonzero(flat)[1]


def with_noise(states: FiniteSpace, actions: FiniteSpace, given: Declarations) -> Declarations:
    """Return the declarations with the noise in numbers of states; the range of rewards follows from the outcomes."""
    if not isinstance(given.noise, Noise):
        raise InvalidProblemError(
            "noise='model' is for models that were made by FiniteMDP.from_noise; give an eb.Noise"
        )
    table = given.noise.read(
        [states.element(s) for s in range(states.size)],
        [actions.element(a) for a in range(actions.size)],
        lambda state: states.size if state is END else states.index(state),
    )
    # At the end nothing happens any more.
    width, many = table.following.shape[1], actions.size
    ends = np.where(np.arange(width) < len(table.labels[0]), states.size, -1)
    parts = table._replace(
        law=np.append(table.law, np.zeros(many, dtype=np.int64)),
        following=np.concatenate([table.following, np.tile(ends, (many, 1))]),
        rewards=np.concatenate([table.rewards, np.zeros((many, width))]),
    ).partition()
    last = parts.rows[0][states.size * many]
    rows, paid = (parts.rows[0][: states.size * many + 1], parts.rows[1][:last]), parts.rewards[:last]
    known = paid[~np.isnan(paid)]
    if given.reward_range is None and len(known) < len(paid):
        raise InvalidProblemError("outcomes without a reward need reward_range=(low, high), where it must lie")
    low, high = given.reward_range or (float(known.min()), float(known.max()))
    if len(known) and not low <= known.min() <= known.max() <= high:
        raise InvalidProblemError(
            f"noise pays from {known.min():g} to {known.max():g}, outside reward_range ({low}, {high})"
        )
    owner = np.repeat(np.arange(states.size * many), np.diff(rows[0])) * (states.size + 1) + rows[1]
    close = (owner[1:] == owner[:-1]) & ~(np.diff(paid) > 4 * SAME_REWARD * (high - low))
    if close.any():
        i = int(np.argmax(close))
        s, a = divmod(int(owner[i]) // (states.size + 1), many)
        raise InvalidProblemError(
            f"two labels at state {shown(states.element(s))}, action {shown(actions.element(a))} lead to one state with "
            f"the rewards {paid[i]} and {paid[i + 1]}, which cannot be told apart"
        )
    return replace(given, noise=parts._replace(rows=rows, rewards=paid), reward_range=(low, high))
