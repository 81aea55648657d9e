"""Action masks: which actions are allowed at each step and state.

A model has a row for every action. The row of an action that is forbidden is a copy of an allowed one's, so that it adds
nothing: no value, reward or return that is not there already. Whatever is planned on these rows needs no masks; afterwards
each forbidden action in a policy is replaced by the allowed one that it copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidModelError


def check_allowed(allowed: Any, horizon: int, n_states: int, n_actions: int) -> np.ndarray | None:
    """Return masks as a boolean array ``(1 or H, S, A)``, or None if every action is allowed."""
    if allowed is None:
        return None
    try:
        array = np.asarray(allowed)
    except ValueError:
        array = np.empty(0)
    shapes = (n_states, n_actions), (horizon, n_states, n_actions)
    is_flag = array.dtype == np.bool_ or (array.dtype.kind in "iu" and np.isin(array, (0, 1)).all())
    if array.shape not in shapes or not is_flag:
        raise InvalidModelError(
            f"allowed must be a boolean array of shape (S, A) = {shapes[0]} or (H, S, A) = {shapes[1]}, "
            f"got dtype {array.dtype}, shape {array.shape}"
        )
    mask = array.astype(bool).reshape(-1, n_states, n_actions)
    without = ~mask.any(axis=2)
    if without.any():
        h, s = np.argwhere(without)[0]
        where = f"s={s}" if len(mask) == 1 else f"h={h}, s={s}"
        raise InvalidModelError(f"allowed[{where}] allows no action: every state needs at least one")
    if len(mask) > 1 and (mask == mask[0]).all():
        mask = mask[:1]
    if mask.all():
        return None
    mask.flags.writeable = False
    return mask


def stand_ins(allowed: np.ndarray) -> np.ndarray:
    """For each action, itself if it is allowed, otherwise the first allowed one of its state; shape of ``allowed``."""
    return np.where(allowed, np.arange(allowed.shape[2]), allowed.argmax(axis=2)[:, :, None])


def row_sources(allowed: np.ndarray, steps: int) -> np.ndarray:
    """The row ``(h, s, a)`` whose content each row has, for rows of 1 or all steps.

    Rows that serve all steps are allowed if they are at some step.
    """
    every = np.broadcast_to(allowed, (steps, *allowed.shape[1:])) if steps > 1 else allowed.any(axis=0)
    mask = every.reshape(steps, *allowed.shape[1:])
    pairs = np.arange(mask.shape[0] * mask.shape[1]).reshape(*mask.shape[:2], 1)
    return np.asarray((pairs * mask.shape[2] + stand_ins(mask)).reshape(-1))
