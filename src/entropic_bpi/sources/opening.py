"""Open the source that a string or a problem file names: a model to simulate, an environment to play, or a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.gymnasium.ids import env_factory
from entropic_bpi.model.instances.sources import is_environment, named_model
from entropic_bpi.problem.problem_file import SUFFIX, ProblemFile
from entropic_bpi.sources.log import Log

_LOGS = (".csv", ".gz", ".parquet", ".pq", ".jsonl", ".ndjson")


def as_problem_file(source: Any) -> ProblemFile | None:
    """Return ``source`` if it is a problem file, the file if it is the path of one, and None for any other object."""
    if isinstance(source, ProblemFile):
        return source
    return ProblemFile.read(source) if isinstance(source, (str, Path)) and Path(source).suffix == SUFFIX else None


def open_problem(source: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """Return the source and the arguments of a run, and the accepted declarations, if ``source`` is a problem file.

    The source is the one that the file names. The arguments are those ``given`` and, for others, the declarations of the
    file. The accepted declarations are those of ``ProblemFile.accepted`` that are not given. Any other source and its
    arguments are returned unchanged.
    """
    file = as_problem_file(source)
    if file is None:
        return source, dict(given), ()
    word, arguments = file.named_source, file.arguments(given)
    accepted = tuple(name for name in file.accepted if given.get(name) is None)
    if Path(word).suffix not in _LOGS or not file.params:  # a .csv file without parameters is a model
        return *open_word(word, arguments, file.params, file.folder), accepted
    try:
        return Log.read(str(file.folder / word), **file.params), arguments, accepted
    except TypeError as error:
        raise InvalidProblemError(f"{file.path}: [params] must be the keywords of Log.read: {error}") from None


def open_word(
    word: str, arguments: Mapping[str, Any], params: Mapping[str, Any], folder: str | Path = "."
) -> tuple[Any, dict[str, Any]]:
    """Return the model to simulate or, if rewards or their range are declared, the environment to play; and the arguments.

    The argument ``stationary`` is True by default for environments and for discounted models, and otherwise False.
    """
    played = any(arguments.get(name) is not None for name in ("reward_range", "reward"))
    if played and not is_environment(word):
        raise InvalidProblemError("reward_range= or --reward-range is for environments: gym:ENV_ID or file.py:Class")
    completed = dict(arguments)
    if completed.get("stationary") is None:
        completed["stationary"] = is_environment(word) or arguments.get("discount") is not None
    if played:
        return env_factory(word.removeprefix("gym:"), dict(params)) if params else word, completed
    return named_model(word, completed, params, folder), completed
