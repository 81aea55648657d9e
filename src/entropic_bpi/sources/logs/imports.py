"""Logs from data sets of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.datasets.replays import Steps, d4rl_steps, rllib_steps, sb3_steps
from entropic_bpi.sources.logs.labels import AllStates
from entropic_bpi.sources.logs.lines import LogLines
from entropic_bpi.sources.logs.reading import columns_of, listed_space
from entropic_bpi.sources.logs.tables import hashable
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import shown


class ImportedLog(LogLines):
    """A log that can be made from data of other libraries."""

    read: ClassVar[Any]  # that of Log

    @classmethod
    def from_minari(cls, dataset: Any) -> Self:
        """Read a data set of Minari; needs ``entropic-bpi[minari]``.

        States and actions are those of the data set's spaces, which must be finite, in the numbering of the environment.

        Parameters
        ----------
        dataset : str or MinariDataset
            Its name, or the data set.

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
            spaces = listed_space(data.observation_space), listed_space(data.action_space)
            columns = columns_of(data.iterate_episodes(), *spaces)
        except (FileNotFoundError, AttributeError) as error:
            raise InvalidProblemError(f"{shown(dataset)} is not a Minari data set: {error}") from None
        roles: dict[str, Any] = {name: name for name in columns}
        log = cls.read(columns, **roles, states=range(spaces[0].size), actions=range(spaces[1].size))
        log.states, log.actions = (tuple(hashable(space.element(i)) for i in range(space.size)) for space in spaces)
        log.name, log.declared = str(data.id), AllStates(log.states)
        return log

    @classmethod
    def from_d4rl(cls, arrays: Mapping[str, Any], *, truncated_end: bool = False) -> Self:
        """Read arrays as D4RL has them, a row for each step.

        Parameters
        ----------
        arrays : mapping of str to array
            ``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts`` and, where an episode was cut,
            ``next_observations``. Observations and actions are numbers, or vectors, which become tuples.
        truncated_end : bool
            The recording stopped in the middle of the last episode.

        Returns
        -------
        Log
            The log. Which states exist is declared for :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If the arrays do not tell how an episode ended.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> arrays = {"observations": [0, 1, 0], "actions": [1, 0, 0], "rewards": [0.0, 1.0, 0.5],
        ...           "terminals": [0, 1, 1], "timeouts": [0, 0, 0]}
        >>> eb.Log.from_d4rl(arrays)
        Log(2 episodes, 3 lines, 2 states, 2 actions)
        """
        return cls._from_steps(d4rl_steps(arrays, truncated_end=truncated_end))

    @classmethod
    def from_sb3(cls, buffer: Any) -> Self:
        """Read a replay buffer of Stable-Baselines3.

        Parameters
        ----------
        buffer : ReplayBuffer
            Made with ``handle_timeout_termination=True`` and ``optimize_memory_usage=False``, and not full: in a full buffer
            the beginnings of episodes are overwritten. The last episode of each environment counts as cut.

        Returns
        -------
        Log
            The log. Which states exist is declared for :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If the buffer does not tell how an episode ended.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_sb3(model.replay_buffer)  # doctest: +SKIP
        """
        return cls._from_steps(sb3_steps(buffer))

    @classmethod
    def from_rllib(cls, path: str | Path, *, dones: str | None = None) -> Self:
        """Read episodes that RLlib wrote as JSON.

        Parameters
        ----------
        path : path
            A file, or a folder of ``.json`` files, with a ``SampleBatch`` in each line: complete episodes
            (``batch_mode="complete_episodes"``), not compressed (``output_compress_columns=[]``).
        dones : {"terminated", "truncated"}, optional
            For files without ``terminateds``: whether all ``dones`` are ends of episodes or all were cut by a time limit.

        Returns
        -------
        Log
            The log. Which states exist is declared for :func:`entropic_bpi.certify`.

        Raises
        ------
        InvalidProblemError
            If a file does not tell how an episode ended; the message names the line.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> log = eb.Log.from_rllib("output/")  # doctest: +SKIP
        """
        return cls._from_steps(rllib_steps(path, dones=dones))

    @classmethod
    def _from_steps(cls, steps: Steps) -> Self:
        columns = steps.columns()
        roles: dict[str, Any] = {name: name for name in columns}
        log = cls.read(columns, **roles)
        log.states = tuple(steps.states[number] for number in log.states)
        log.actions = tuple(steps.actions[number] for number in log.actions)
        log.name = steps.name
        return log
