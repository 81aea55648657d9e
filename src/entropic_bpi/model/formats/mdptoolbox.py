"""Models as pymdptoolbox has them: ``P`` and ``R`` begin with the action, as arrays or as one matrix for each action."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.model.parts.arrays import SparseTransitions, is_sparse_sequence


def recognise(transitions: Any, rewards: Any, order: str | None) -> tuple[Any, Any, str]:
    """Return transitions and rewards without matrices in object arrays, and the order of their axes.

    Where it is not given, the order follows from the shapes, and a warning says which it is if it begins with the action.
    """
    if isinstance(transitions, SparseTransitions):
        return transitions, _per_action(rewards), order or "sas"
    action_first = _is_object_array(transitions)
    transitions, rewards = _per_action(transitions), _per_action(rewards)
    is_sparse = is_sparse_sequence(transitions)
    shape, paid = () if is_sparse else _shape(transitions), () if is_sparse_sequence(rewards) else _shape(rewards)
    if order is None:
        action_first |= len(shape) in (3, 4) and shape[-1] == shape[-2] != shape[-3]
        order = "ass" if action_first or (is_sparse and _begins_with_action(paid, transitions)) else "sas"
        if order == "ass":
            _note("transitions and rewards are taken for (A, S, S), with the action first: pass order= to choose")
    if is_sparse:
        matrices = transitions if sparse.issparse(transitions[0]) else transitions[0]
        n_states, n_actions = matrices[0].shape[0], len(matrices)
        if order == "ass" and paid[-3:] == (n_actions, n_states, n_states):
            rewards = np.swapaxes(np.asarray(rewards), -3, -2)
    else:
        n_states, n_actions = (shape[2], shape[0 if order == "ass" else 1]) if len(shape) == 3 else (-1, 0)
    if paid == (n_states,):
        _note("rewards with one axis are taken for (S,), the same for every action")
        rewards = np.repeat(np.asarray(rewards)[:, None], n_actions, axis=1)
    return transitions, rewards, order


def _is_object_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1


def _per_action(value: Any) -> Any:
    """Matrices or vectors in an object array, as one array or a list of sparse matrices; anything else as it is."""
    if not _is_object_array(value):
        return value
    if any(sparse.issparse(part) for part in value):
        return list(value)
    try:
        array = np.stack([np.asarray(part, dtype=float) for part in value])
    except (TypeError, ValueError):
        return value  # not numbers, which is for the model to say
    return array.T if array.ndim == 2 else array


def _shape(value: Any) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError:  # lists of different lengths
        return ()


def _begins_with_action(shape: tuple[int, ...], transitions: Any) -> bool:
    """Whether dense rewards beside one sparse matrix for each action, or for each step and action, are ``(A, S, S)``."""
    if not sparse.issparse(transitions[0]) or len(shape) != 3:
        return False
    n_actions, n_states = len(transitions), transitions[0].shape[0]
    return n_actions != n_states and shape == (n_actions, n_states, n_states)


def _note(words: str) -> None:
    warnings.warn(words, stacklevel=5)
