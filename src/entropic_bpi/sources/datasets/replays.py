"""Replay buffers and data sets of reinforcement learning, as columns of a log.

They hold steps one after the other. Flags tell where an episode ended, and whether it ended by itself or was cut; what the
flags do not tell is refused, because a certificate would depend on a guess.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.datasets.columns import json_rows
from entropic_bpi.tools.text import shown

_TERMINATED, _TRUNCATED = "terminated", "truncated"


class Steps:
    """The steps of a data set, with labels for what was observed and done."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts: list[dict[str, np.ndarray]] = []
        self._episodes = 0
        self.states: tuple[Any, ...] = ()
        self.actions: tuple[Any, ...] = ()

    def add(self, ended: np.ndarray, **columns: Any) -> None:
        """Add steps in their order; ``ended`` is true at the last step of each episode."""
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        wrong = {name: array.shape for name, array in arrays.items() if len(array) != len(ended)}
        if wrong or not len(ended):
            raise InvalidProblemError(
                f"{self.name}: {len(ended)} steps, but {wrong or 'none'}: expected one entry a step"
            )
        first = np.concatenate([[0], np.flatnonzero(ended[:-1]) + 1])
        episode = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(ended))))
        self._parts.append(
            {**arrays, "episode": self._episodes + episode, "step": np.arange(len(ended)) - first[episode]}
        )
        self._episodes += len(first)

    def columns(self) -> dict[str, np.ndarray]:
        """Return one array for each column; states and actions by number."""
        joined = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        observed = np.concatenate([joined["state"], joined["next_state"]])
        self.states, numbers = _labels(observed)
        joined["state"], joined["next_state"] = np.split(numbers, 2)
        self.actions, joined["action"] = _labels(joined["action"])
        return joined | {"reward": joined["reward"].astype(float)}


def _labels(values: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray]:
    """The different values in order, vectors as tuples, and the number of each value."""
    flat = values.reshape(len(values), -1)
    if flat.shape[1] == 1:
        different, numbers = np.unique(flat[:, 0], return_inverse=True)
        return tuple(different.tolist()), numbers.reshape(-1)
    different, numbers = np.unique(flat, axis=0, return_inverse=True)
    return tuple(map(tuple, different.tolist())), numbers.reshape(-1)


def d4rl_steps(arrays: Any, *, truncated_end: bool) -> Steps:
    """Read arrays of D4RL: observations, actions, rewards, terminals, timeouts, next_observations."""
    if not isinstance(arrays, Mapping):
        raise InvalidProblemError(f"arrays must be a mapping of names to arrays, got {shown(arrays)}")
    for name in ("observations", "actions", "rewards", "terminals"):
        if name not in arrays:
            raise InvalidProblemError(f"arrays has no {name!r}, only {', '.join(map(str, arrays))}")
    if "timeouts" not in arrays:
        raise InvalidProblemError("arrays has no 'timeouts', which tell where an episode was cut: add them")
    terminated, cut = (np.asarray(arrays[name]).astype(bool).reshape(-1) for name in ("terminals", "timeouts"))
    observed = np.asarray(arrays["observations"])
    if len(terminated) and not terminated[-1] and not cut[-1]:
        if not truncated_end:
            raise InvalidProblemError(
                "the last step of arrays has neither terminals nor timeouts: if the recording stopped there, pass "
                "truncated_end=True"
            )
        cut = np.append(cut[:-1], True)
    if "next_observations" in arrays:
        following = np.asarray(arrays["next_observations"])
    elif (cut & ~terminated).any():
        row = int(np.argmax(cut & ~terminated))
        raise InvalidProblemError(
            f"row {row} of arrays was cut, and the observation after it is missing: add 'next_observations'"
        )
    else:
        following = np.roll(observed, -1, axis=0)  # what follows an end is ignored
    steps = Steps("arrays")
    steps.add(
        terminated | cut,
        state=observed,
        action=arrays["actions"],
        reward=arrays["rewards"],
        next_state=following,
        terminated=terminated,
        truncated=cut & ~terminated,
    )
    return steps


def sb3_steps(buffer: Any) -> Steps:
    """Read a ReplayBuffer of Stable-Baselines3; each of its environments has episodes of its own."""
    try:
        full, count, cuts = bool(buffer.full), int(buffer.pos), buffer.timeouts
        observed, following = buffer.observations, getattr(buffer, "next_observations", None)
        done, acted, paid = buffer.dones, buffer.actions, buffer.rewards
    except (AttributeError, TypeError):
        raise InvalidProblemError(f"buffer must be a ReplayBuffer of Stable-Baselines3, got {shown(buffer)}") from None
    if isinstance(observed, Mapping):
        raise InvalidProblemError("buffer has dictionaries of observations, which are not supported")
    if not getattr(buffer, "handle_timeout_termination", False):
        raise InvalidProblemError(
            "buffer does not tell episodes that ended from those that were cut: make it with handle_timeout_termination=True"
        )
    if following is None:
        raise InvalidProblemError("buffer has no next_observations: make it with optimize_memory_usage=False")
    if full:
        raise InvalidProblemError(
            "buffer is full, and the beginnings of its oldest episodes may be overwritten: make it with a larger buffer_size"
        )
    steps = Steps("the replay buffer")
    for env in range(done.shape[1]):
        ends, cut = done[:count, env].astype(bool), cuts[:count, env].astype(bool)
        if not count:
            raise InvalidProblemError("buffer is empty")
        open_end = np.arange(count) == count - 1  # the recording stopped; the observation after it is known
        steps.add(
            ends,
            state=observed[:count, env],
            action=acted[:count, env],
            reward=paid[:count, env],
            next_state=following[:count, env],
            terminated=ends & ~cut,
            truncated=(ends & cut) | (open_end & ~ends),
        )
    return steps


def rllib_steps(path: Any, *, dones: str | None) -> Steps:
    """Read JSON files of RLlib, with a batch of steps in each line."""
    if dones not in (None, _TERMINATED, _TRUNCATED):
        raise InvalidProblemError(f"dones must be 'terminated' or 'truncated', got {shown(dones)}")
    text = os.fsdecode(path)
    paths = sorted(glob.glob(os.path.join(glob.escape(text), "*.json"))) if os.path.isdir(text) else [text]
    if not paths or not all(map(os.path.isfile, paths)):
        raise InvalidProblemError(f"there is no JSON file {shown(text)}")
    steps = Steps(os.path.basename(text))
    for file in paths:
        try:
            for place, batch in json_rows(file):
                _add_batch(steps, f"{file}, {place}", batch, dones)
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidProblemError):
                raise
            raise InvalidProblemError(f"{file}: {error}") from None
    return steps


def _add_batch(steps: Steps, place: str, batch: Any, dones: str | None) -> None:
    if isinstance(batch, Mapping) and batch.get("type") == "MultiAgentBatch":
        raise InvalidProblemError(f"{place}: batches of several agents are not supported")
    for name in ("obs", "new_obs", "actions", "rewards", "t"):
        found = batch.get(name) if isinstance(batch, Mapping) else None
        if isinstance(found, str):
            raise InvalidProblemError(f"{place}: {name!r} is compressed: write it with output_compress_columns=[]")
        if not isinstance(found, list):
            raise InvalidProblemError(f"{place}: expected a batch of RLlib with a list {name!r}, got {shown(found)}")
    if "terminateds" in batch:
        terminated, cut = (np.array(batch.get(name, [])).astype(bool) for name in ("terminateds", "truncateds"))
        cut = cut if cut.size else np.zeros_like(terminated)
    elif "dones" in batch and dones is not None:
        ended = np.array(batch["dones"]).astype(bool)
        terminated, cut = (ended, ~ended & ended) if dones == _TERMINATED else (~ended & ended, ended)
    else:
        raise InvalidProblemError(
            f"{place}: 'terminateds' is missing. If 'dones' are all ends of episodes, pass dones='terminated'; if all were "
            "cut by a time limit, dones='truncated'"
        )
    if len(terminated) and not terminated[-1] and not cut[-1]:
        raise InvalidProblemError(
            f"{place}: the batch stops in the middle of an episode: write it with batch_mode='complete_episodes'"
        )
    ended = terminated | cut
    begins = np.concatenate([[True], ended[:-1]])[: len(batch["t"])]
    if any(step != 0 for step, first in zip(batch["t"], begins, strict=False) if first):
        raise InvalidProblemError(
            f"{place}: an episode begins in the middle ('t' is not 0): write it with batch_mode='complete_episodes'"
        )
    steps.add(
        ended,
        state=batch["obs"],
        action=batch["actions"],
        reward=batch["rewards"],
        next_state=batch["new_obs"],
        terminated=terminated,
        truncated=cut & ~terminated,
    )
