"""Conversion of the declarations of an environment or a log to numbers of states and actions.

In functions and tables of the user, states and actions are elements of the spaces of an environment, or labels of a log.
:data:`END` is the end of the episode. A state is listed as a successor once for each of its possible rewards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.parts.mechanics import Partitioned
from entropic_bpi.problem.declarations import INFO, Declarations
from entropic_bpi.problem.known_rewards import index_or_end, key_in_numbers, with_known_rewards
from entropic_bpi.problem.masks import Masks, masks_of, numbered_starts
from entropic_bpi.problem.noise import Noise
from entropic_bpi.problem.rows import Compressed, rows_of_mask
from entropic_bpi.problem.sentences import SAME_REWARD
from entropic_bpi.sources.spaces import DiscoveredStates, FiniteSpace
from entropic_bpi.tools.checks import ask
from entropic_bpi.tools.text import shown


def in_numbers(
    given: Declarations, states: FiniteSpace | DiscoveredStates, actions: FiniteSpace, *, played: bool
) -> Declarations:
    """Return the declarations with states and actions by number; ``played`` is False for a log, which has no ``info``."""
    given.check_combinations()
    offered = isinstance(given.allowed, str) and given.allowed == INFO
    if offered and not played:
        raise InvalidProblemError("allowed='info' is for environments; for a log give an array or a function")
    if given.max_states is not None or not isinstance(states, FiniteSpace):
        for name, instead in (("successors", "declare max_successors"), ("allowed", "use allowed='info'")):
            if getattr(given, name) is not None and not (name == "allowed" and offered):
                raise InvalidProblemError(f"{name} needs states that are listed in advance, not max_states: {instead}")
    else:
        if given.successors is not None:
            fixed = given.reward_law in (None, "fixed")
            given = replace(given, successors=declared_rows(states, actions, given.successors, repeated=fixed))
        if given.noise is not None:
            given = _with_noise(states, actions, given, played)
        if given.reward is not None:
            given = with_known_rewards(states, actions, given)
        if given.allowed is not None and not offered:
            masks = masks_of(given.allowed, given.horizon or 0, states.elements(), actions.size, actions.index, extra=1)
            given = replace(given, allowed=masks)
    if offered:
        everything = np.ones((1, states.size + 1, actions.size), dtype=np.int64)  # allowed until the mask is seen
        given = replace(given, allowed=Masks(everything, True))
    return replace(given, start=numbered_starts(given.start, states.index))


def declared_rows(states: FiniteSpace, actions: FiniteSpace, successors: Any, *, repeated: bool) -> Compressed:
    """Return declared successors as compressed rows ``(indptr, indices)`` over the pairs (s, a); the last state is the end.

    If ``repeated``, a state that is listed twice is two successors, with different rewards; otherwise it is one.
    """
    if not isinstance(successors, Mapping) and not callable(successors):
        shape = (states.size, actions.size, states.size + 1)
        expected = (
            "the successors of an environment are declared by a function (state, action) -> states, by a dict "
            f"{{(state, action): states}}, or by a boolean mask of shape (S, A, S + 1) = {shape}, whose last column is the "
            "end"
        )
        return rows_of_mask(successors, shape, expected)
    entries: dict[tuple[int, ...], Any] = {}
    if isinstance(successors, Mapping):
        index = states.index, actions.index
        entries = {key_in_numbers("successors", key, *index): value for key, value in successors.items()}
    rows: list[list[int]] = []
    for pair in np.ndindex(states.size, actions.size):
        s, a = states.element(pair[0]), actions.element(pair[1])
        if isinstance(successors, Mapping) and pair not in entries:
            raise InvalidProblemError(
                f"successors has no entry for ({shown(s)}, {shown(a)}): list every state and action, or give a function"
            )
        following = entries[pair] if pair in entries else ask("successors", successors, s, a)
        numbers = _numbered(states, following, f"the successors of state {shown(s)}, action {shown(a)}")
        rows.append(sorted(numbers if repeated else set(numbers)))
    return np.cumsum([0, *map(len, rows)]), np.array([y for row in rows for y in row], dtype=np.int64)


def _numbered(states: FiniteSpace, following: Any, where: str) -> list[int]:
    """Return the numbers of declared successors."""
    if isinstance(following, (str, bytes)) or not isinstance(following, Iterable):
        raise InvalidProblemError(f"{where} must be a list of states, got {shown(following)}")
    numbers = []
    for y in following:
        numbers.append(index_or_end(states)(y))
        if numbers[-1] < 0:
            raise InvalidProblemError(f"{where} must be elements of the observation space or END, got {shown(y)}")
    if not numbers:
        raise InvalidProblemError(f"{where} are empty: list the possible next states, END for the end of the episode")
    return numbers


def _with_noise(states: FiniteSpace, actions: FiniteSpace, given: Declarations, played: bool) -> Declarations:
    """Return the declarations with the noise by numbers of states, and with the range of rewards of its outcomes."""
    if not isinstance(given.noise, Noise):
        raise InvalidProblemError("noise='model' is for models built by FiniteMDP.from_noise; give an eb.Noise")
    observed = given.noise.observed is not None
    if observed and not played:
        raise InvalidProblemError("observed= of noise needs the info of an environment that is played; a log has none")
    table = given.noise.read(states.elements(), actions.elements(), index_or_end(states))
    parts, many = table.with_end(states.size, actions.size).partition(), actions.size
    last = parts.rows[0][states.size * many]
    rows, paid = (parts.rows[0][: states.size * many + 1], parts.rows[1][:last]), parts.rewards[:last]
    known = paid[~np.isnan(paid)]
    if given.reward_range is None and len(known) < len(paid):
        raise InvalidProblemError("outcomes without a reward need reward_range=(low, high), the range of rewards")
    low, high = given.reward_range or (float(known.min()), float(known.max()))
    if len(known) and not low <= known.min() <= known.max() <= high:
        raise InvalidProblemError(f"noise pays {known.min():g} to {known.max():g}, outside reward_range {(low, high)}")
    owner = np.repeat(np.arange(states.size * many), np.diff(rows[0])) * (states.size + 1) + rows[1]
    close = (owner[1:] == owner[:-1]) & ~(np.diff(paid) > 4 * SAME_REWARD * (high - low))
    for i in np.flatnonzero(close):
        s, a = divmod(int(owner[i]) // (states.size + 1), many)
        raise InvalidProblemError(
            f"two labels at state {shown(states.element(s))}, action {shown(actions.element(a))} lead to one state with "
            f"the rewards {paid[i]} and {paid[i + 1]}, which are too close together to be distinguished"
        )
    mechanics = parts.mechanics._replace(observed=observed)
    return replace(given, noise=Partitioned(mechanics, rows, paid), reward_range=(low, high))
