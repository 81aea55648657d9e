"""The declarations of an environment or a log in numbers of its states and actions.

In functions and tables, states and actions are what they are in the source: elements of the spaces of an environment, labels
of a log. :data:`END` stands for the end of the episode. Whatever is listed as a successor comes with one reward; if several
are possible, it is listed so many times.
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
    """Return what is declared about the states and actions in numbers; ``played``: there is an ``info``, as of no log."""
    given.check_combinations()
    offered = isinstance(given.allowed, str) and given.allowed == INFO
    if offered and not played:
        raise InvalidProblemError("allowed='info' is for environments; of a log give an array or a function")
    if given.max_states is not None or not isinstance(states, FiniteSpace):
        for name, instead in (("successors", "declare max_successors"), ("allowed", "use allowed='info'")):
            if getattr(given, name) is not None and not (name == "allowed" and offered):
                raise InvalidProblemError(f"{name} needs states that are listed beforehand, not max_states: {instead}")
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
        everything = np.ones((1, states.size + 1, actions.size), dtype=np.int64)  # allowed as long as nothing was seen
        given = replace(given, allowed=Masks(everything, True))
    return replace(given, start=numbered_starts(given.start, states.index))


def declared_rows(states: FiniteSpace, actions: FiniteSpace, successors: Any, *, repeated: bool) -> Compressed:
    """Declared successors as compressed rows ``(indptr, indices)`` over the pairs (s, a); the last state is the end.

    ``repeated``: a state that is listed twice may come with two rewards; otherwise it counts once.
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
        number = states.index, actions.index
        entries = {key_in_numbers("successors", key, *number): value for key, value in successors.items()}
    rows: list[list[int]] = []
    for pair in np.ndindex(states.size, actions.size):
        s, a = states.element(pair[0]), actions.element(pair[1])
        if isinstance(successors, Mapping) and pair not in entries:
            raise InvalidProblemError(
                f"successors lacks ({shown(s)}, {shown(a)}): list what may follow every state and action, or give a function"
            )
        following = entries[pair] if pair in entries else ask("successors", successors, s, a)
        found = _numbered(states, following, f"the successors of state {shown(s)}, action {shown(a)}")
        rows.append(sorted(found if repeated else set(found)))
    return np.cumsum([0, *map(len, rows)]), np.array([y for row in rows for y in row], dtype=np.int64)


def _numbered(states: FiniteSpace, following: Any, where: str) -> list[int]:
    """The numbers of the states that may follow."""
    if isinstance(following, (str, bytes)) or not isinstance(following, Iterable):
        raise InvalidProblemError(f"{where} must be a list of states, got {shown(following)}")
    found = []
    for y in following:
        found.append(index_or_end(states)(y))
        if found[-1] < 0:
            raise InvalidProblemError(f"{where} must be elements of the observation space or END, got {shown(y)}")
    if not found:
        raise InvalidProblemError(f"{where} are none: name what may follow, END for the end of the episode")
    return found


def _with_noise(states: FiniteSpace, actions: FiniteSpace, given: Declarations, played: bool) -> Declarations:
    """Return the declarations with the noise in numbers of states; the range of rewards follows from the outcomes."""
    if not isinstance(given.noise, Noise):
        raise InvalidProblemError("noise='model' is for models made by FiniteMDP.from_noise; give an eb.Noise")
    observed = given.noise.observed is not None
    if observed and not played:
        raise InvalidProblemError("observed= of noise needs the info of an environment that is played; a log has none")
    table = given.noise.read(states.elements(), actions.elements(), index_or_end(states))
    parts, many = table.with_end(states.size, actions.size).partition(), actions.size
    last = parts.rows[0][states.size * many]
    rows, paid = (parts.rows[0][: states.size * many + 1], parts.rows[1][:last]), parts.rewards[:last]
    known = paid[~np.isnan(paid)]
    if given.reward_range is None and len(known) < len(paid):
        raise InvalidProblemError("outcomes without a reward need reward_range=(low, high), where it must lie")
    low, high = given.reward_range or (float(known.min()), float(known.max()))
    if len(known) and not low <= known.min() <= known.max() <= high:
        raise InvalidProblemError(f"noise pays {known.min():g} to {known.max():g}, outside reward_range {(low, high)}")
    owner = np.repeat(np.arange(states.size * many), np.diff(rows[0])) * (states.size + 1) + rows[1]
    close = (owner[1:] == owner[:-1]) & ~(np.diff(paid) > 4 * SAME_REWARD * (high - low))
    for i in np.flatnonzero(close):
        s, a = divmod(int(owner[i]) // (states.size + 1), many)
        raise InvalidProblemError(
            f"two labels at state {shown(states.element(s))}, action {shown(actions.element(a))} lead to one state with "
            f"the rewards {paid[i]} and {paid[i + 1]}, which cannot be told apart"
        )
    mechanics = parts.mechanics._replace(observed=observed)
    return replace(given, noise=Partitioned(mechanics, rows, paid), reward_range=(low, high))
