"""Logs from data of other libraries: data sets of Minari and D4RL, replay buffers, recorded batches.

The data list steps one after the other, with flags for the ends of episodes, which say whether an episode terminated or was
truncated. Data without these flags are refused, since a certificate would depend on a guess.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.logs.labels import AllStates
from entropic_bpi.sources.logs.lines import LogLines
from entropic_bpi.sources.logs.tables import hashable, json_rows
from entropic_bpi.sources.spaces import FiniteSpace, listed
from entropic_bpi.tools.checks import refuse_for
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import shown

_TERMINATED, _TRUNCATED = "terminated", "truncated"
# The columns of D4RL and Stable-Baselines3, and those of RLlib.
_OBSERVED = {"state": "observations", "action": "actions", "reward": "rewards", "next_state": "next_observations"}
_OF_RLLIB = {"state": "obs", "action": "actions", "reward": "rewards", "next_state": "new_obs"}

Steps = Mapping[str, Any]
"""Consecutive steps: state, action, reward, next_state, and whether the episode terminated or was truncated there."""


class ImportedLog(LogLines):
    """Base class of Log with constructors for data of other libraries."""

    read: ClassVar[Any]  # defined in Log

    @classmethod
    def from_minari(cls, dataset: Any) -> Self:
        """Read a data set of Minari; needs ``entropic-bpi[minari]``.

        States and actions are all elements of the data set's spaces, which must be finite, numbered as in the environment.

        Parameters
        ----------
        dataset : str or MinariDataset
            The name of the data set, or the data set.

        Returns
        -------
        Log
            The log.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_minari("D4RL/door/human-v2")  # doctest: +SKIP
        """
        minari = module_of_extra("minari", "minari", "from_minari")
        try:
            data = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
            remedy = "a data set needs spaces whose elements can be listed"
            spaces = listed("observation", data.observation_space, remedy), listed("action", data.action_space, remedy)
            columns = _joined("the data set", _minari_steps(data.iterate_episodes(), *spaces))
        except (FileNotFoundError, AttributeError) as error:
            raise InvalidProblemError(f"{shown(dataset)} is not a Minari data set: {error}") from None
        labels = [tuple(map(hashable, space.elements())) for space in spaces]
        every = {"states": range(len(labels[0])), "actions": range(len(labels[1]))}
        log = cls._from_columns(str(data.id), columns, labels, **every)
        log.declared = AllStates(log.states)
        return log

    @classmethod
    def from_d4rl(cls, arrays: Mapping[str, Any], *, truncated_end: bool = False) -> Self:
        """Read arrays in the format of D4RL, with a row for each step.

        Parameters
        ----------
        arrays : mapping of str to array
            ``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts`` and, if an episode was truncated,
            ``next_observations``. Observations and actions are numbers, or vectors, which become tuples.
        truncated_end : bool
            Whether the recording stopped in the middle of the last episode.

        Returns
        -------
        Log
            The log. All existing states must be declared in :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If the arrays do not say how an episode ended.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> arrays = {"observations": [0, 1, 0], "actions": [1, 0, 0], "rewards": [0.0, 1.0, 0.5],
        ...           "terminals": [0, 1, 1], "timeouts": [0, 0, 0]}
        >>> eb.Log.from_d4rl(arrays)
        Log(2 episodes, 3 lines, 2 states, 2 actions)
        """
        return cls._from_steps("arrays", [_d4rl_steps(arrays, truncated_end)])

    @classmethod
    def from_sb3(cls, buffer: Any) -> Self:
        """Read a replay buffer of Stable-Baselines3.

        Parameters
        ----------
        buffer : ReplayBuffer
            Created with ``handle_timeout_termination=True`` and ``optimize_memory_usage=False``, and not full: in a full
            buffer, the beginnings of episodes are overwritten. The last episode of each environment counts as truncated.

        Returns
        -------
        Log
            The log. All existing states must be declared in :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If the buffer does not say how an episode ended.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_sb3(model.replay_buffer)  # doctest: +SKIP
        """
        return cls._from_steps("the replay buffer", _sb3_steps(buffer))

    @classmethod
    def from_rllib(cls, path: str | Path) -> Self:
        """Read episodes that RLlib wrote as JSON.

        Parameters
        ----------
        path : path
            A file, or a folder of ``.json`` files, with a ``SampleBatch`` in each line: complete episodes
            (``batch_mode="complete_episodes"``), not compressed (``output_compress_columns=[]``).

        Returns
        -------
        Log
            The log. All existing states must be declared in :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If a file does not say how an episode ended; the message names the line.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_rllib("output/")  # doctest: +SKIP
        """
        return cls._from_steps(os.path.basename(os.fsdecode(path)), _rllib_steps(path))

    @classmethod
    def _from_steps(cls, name: str, parts: Iterable[Steps]) -> Self:
        columns = _joined(name, parts)
        states, numbers = _labels(np.concatenate([columns["state"], columns["next_state"]]))
        columns["state"], columns["next_state"] = np.split(numbers, 2)
        actions, columns["action"] = _labels(columns["action"])
        columns["reward"] = columns["reward"].astype(float)
        return cls._from_columns(name, columns, [states, actions])

    @classmethod
    def _from_columns(cls, name: str, columns: dict[str, Any], labels: list[tuple[Any, ...]], **listed: Any) -> Self:
        """Return the log of columns in which states and actions are positions in ``labels``."""
        log: Self = cls.read(columns, **{role: role for role in columns}, **listed)
        log.states = tuple(labels[0][number] for number in log.states)
        log.actions = tuple(labels[1][number] for number in log.actions)
        log.name = name
        return log


def _joined(name: str, parts: Iterable[Steps]) -> dict[str, np.ndarray]:
    """Return the columns of all parts, with numbers of episodes and steps; each part contains whole episodes."""
    columns: dict[str, list[np.ndarray]] = {}
    episodes = 0
    for part in parts:
        arrays = {column: np.asarray(values) for column, values in part.items()}
        size = len(arrays[_TERMINATED])
        shapes = {column: array.shape for column, array in arrays.items() if len(array) != size}
        if shapes or not size:
            raise InvalidProblemError(f"{name}: {size} steps, but {shapes or 'none'}: expected one entry per step")
        arrays[_TRUNCATED] = arrays[_TRUNCATED] & ~arrays[_TERMINATED]
        first = np.append(0, np.flatnonzero((arrays[_TERMINATED] | arrays[_TRUNCATED])[:-1]) + 1)
        episode = np.repeat(np.arange(len(first)), np.diff(np.append(first, size)))
        arrays |= {"episode": episodes + episode, "step": np.arange(size) - first[episode]}
        episodes += len(first)
        for column, array in arrays.items():
            columns.setdefault(column, []).append(array)
    if not columns:
        raise InvalidProblemError(f"{name} has no episodes")
    return {column: np.concatenate(arrays) for column, arrays in columns.items()}


def _labels(values: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray]:
    """Return the distinct values in order, with vectors as tuples, and the position of each value among them."""
    flat = values.reshape(len(values), -1)
    different, numbers = np.unique(flat, axis=0 if flat.shape[1] > 1 else None, return_inverse=True)
    return tuple(map(hashable, different.tolist())), numbers.reshape(-1)


def _minari_steps(episodes: Iterable[Any], states: FiniteSpace, actions: FiniteSpace) -> Iterator[Steps]:
    """Yield the steps of each episode, which has one observation more than steps."""

    def numbers(space: FiniteSpace, elements: Any) -> np.ndarray:
        each = zip(*elements, strict=True) if isinstance(elements, tuple) else elements  # a tuple of arrays
        return np.array([space.index(element) for element in each], dtype=np.int64)

    for number, episode in enumerate(episodes):
        observed, done = numbers(states, episode.observations), numbers(actions, episode.actions)
        ends = {_TERMINATED: np.asarray(episode.terminations), _TRUNCATED: np.asarray(episode.truncations)}
        if not len(done) or len(observed) != len(done) + 1 or min(observed.min(), done.min()) < 0:
            words = "is empty, or has observations or actions outside its spaces"
            raise InvalidProblemError(f"episode {number} of the data set {words}")
        if any(end[:-1].any() for end in ends.values()):
            raise InvalidProblemError(f"episode {number} of the data set continues after it terminated or was cut")
        yield {"state": observed[:-1], "action": done, "reward": episode.rewards, "next_state": observed[1:], **ends}


def _d4rl_steps(arrays: Any, truncated_end: bool) -> Steps:
    if not isinstance(arrays, Mapping):
        raise InvalidProblemError(f"arrays must be a mapping of names to arrays, got {shown(arrays)}")
    for name in ("observations", "actions", "rewards", "terminals"):
        if name not in arrays:
            raise InvalidProblemError(f"arrays has no {name!r}, only {', '.join(map(str, arrays))}")
    if "timeouts" not in arrays:
        raise InvalidProblemError("arrays has no 'timeouts', which say where an episode was truncated: add them")
    terminated, cut = (np.array(arrays[name]).astype(bool).reshape(-1) for name in ("terminals", "timeouts"))
    if len(terminated) and not terminated[-1] and not cut[-1]:
        if not truncated_end:
            words = "if the recording stopped there, pass truncated_end=True"
            raise InvalidProblemError(f"the last step of arrays has neither terminals nor timeouts: {words}")
        cut[-1] = True
    following = {"next_observations": np.roll(np.asarray(arrays["observations"]), -1, axis=0)} | dict(arrays)
    unknown = cut & ~terminated if "next_observations" not in arrays else ()  # after a termination it is not used
    for row in np.flatnonzero(unknown)[:1]:
        raise InvalidProblemError(
            f"row {row} of arrays was cut, and its next state is missing: add 'next_observations'"
        )
    return {role: following[name] for role, name in _OBSERVED.items()} | {_TERMINATED: terminated, _TRUNCATED: cut}


def _sb3_steps(buffer: Any) -> Iterator[Steps]:
    """Yield the steps of each environment of a replay buffer."""
    try:
        full, count, timeouts = bool(buffer.full), int(buffer.pos), buffer.timeouts
        following, dones = getattr(buffer, "next_observations", None), buffer.dones
        has_timeouts = getattr(buffer, "handle_timeout_termination", False)
        arrays = {role: getattr(buffer, name) for role, name in _OBSERVED.items() if role != "next_state"}
    except (AttributeError, TypeError):
        raise InvalidProblemError(f"buffer must be a ReplayBuffer of Stable-Baselines3, got {shown(buffer)}") from None
    unusable = {
        "has dictionaries as observations, which are not supported": isinstance(arrays["state"], Mapping),
        "does not distinguish ends from time limits: create it with handle_timeout_termination=True": not has_timeouts,
        "has no next_observations: create it with optimize_memory_usage=False": following is None,
        "is full, and the beginnings of its oldest episodes may be overwritten: use a larger buffer_size": full,
        "is empty": not count,
    }
    refuse_for(unusable, "buffer ")
    for env in range(dones.shape[1]):
        ended, cut = dones[:count, env].astype(bool), timeouts[:count, env].astype(bool)
        terminated, cut = ended & ~cut, ended & cut
        cut[-1] |= not ended[-1]  # the recording stopped there, and the next observation is known
        steps = {role: array[:count, env] for role, array in (arrays | {"next_state": following}).items()}
        yield steps | {_TERMINATED: terminated, _TRUNCATED: cut}


def _rllib_steps(path: Any) -> Iterator[Steps]:
    """Yield the batches of JSON files, one in each line."""
    text = os.fsdecode(path)
    paths = sorted(glob.glob(os.path.join(glob.escape(text), "*.json"))) if os.path.isdir(text) else [text]
    if not paths or not all(map(os.path.isfile, paths)):
        raise InvalidProblemError(f"there is no JSON file {shown(text)}")
    for file in paths:
        try:
            for place, batch in json_rows(file):
                yield _batch_steps(f"{file}, {place}", batch)
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidProblemError):
                raise
            raise InvalidProblemError(f"{file}: {error}") from None


def _batch_steps(place: str, batch: Any) -> Steps:
    if isinstance(batch, Mapping) and batch.get("type") == "MultiAgentBatch":
        raise InvalidProblemError(f"{place}: batches of several agents are not supported")
    for name in (*_OF_RLLIB.values(), "t"):
        column = batch.get(name) if isinstance(batch, Mapping) else None
        if isinstance(column, str):
            raise InvalidProblemError(f"{place}: {name!r} is compressed: write it with output_compress_columns=[]")
        if not isinstance(column, list):
            raise InvalidProblemError(f"{place}: expected a batch of RLlib with a list {name!r}, got {shown(column)}")
    if "terminateds" not in batch:
        raise InvalidProblemError(f"{place}: 'terminateds' is missing, which says how an episode ended")
    flags = {_TERMINATED: batch["terminateds"], _TRUNCATED: batch.get("truncateds") or [False] * len(batch["t"])}
    ends = {role: np.array(values, ndmin=1).astype(bool) for role, values in flags.items()}
    ended = ends[_TERMINATED] | ends[_TRUNCATED]
    problem = "" if not len(ended) or ended[-1] else "the batch stops in the middle of an episode"
    if any(step != 0 for step, first in zip(batch["t"], [True, *ended[:-1]], strict=False) if first):
        problem = "an episode begins in the middle ('t' is not 0)"
    if problem:
        raise InvalidProblemError(f"{place}: {problem}: write it with batch_mode='complete_episodes'")
    return {role: batch[name] for role, name in _OF_RLLIB.items()} | ends
