"""Models as pymdptoolbox has them: ``P`` and ``R`` begin with the action, as arrays or as one matrix for each action."""

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
    shape, paid = _shape(transitions), _shape(rewards)
    is_sparse, n_states, n_actions = is_sparse_sequence(transitions), -1, 0
    if is_sparse:
        matrices = transitions if sparse.issparse(transitions[0]) else transitions[0]
        n_states, n_actions = matrices[0].shape[0], len(matrices)
        action_first |= matrices is transitions and n_actions != n_states and paid == (n_actions, n_states, n_states)
    elif len(shape) in (3, 4):
        action_first |= shape[-1] == shape[-2] != shape[-3]
    if order is None:
        order = "ass" if action_first else "sas"
        if action_first:
            words = "transitions and rewards are taken for (A, S, S), with the action first: pass order= to choose"
            warnings.warn(words, stacklevel=4)
    if is_sparse and order == "ass" and paid[-3:] == (n_actions, n_states, n_states):
        rewards = np.swapaxes(np.asarray(rewards), -3, -2)
    if len(shape) == 3:
        n_states, n_actions = shape[2], shape[0 if order == "ass" else 1]
    if paid == (n_states,):
        warnings.warn("rewards with one axis are taken for (S,), the same for every action", stacklevel=4)
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
    """The shape of an array; none of sparse matrices and of lists of different lengths."""
    try:
        return () if is_sparse_sequence(value) else np.shape(value)
    except ValueError:
        return ()
