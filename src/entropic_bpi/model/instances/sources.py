"""Models by name: an instance, a saved model, or a Gymnasium environment with a transition table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model import instances
from entropic_bpi.model.formats.registry import SUFFIXES, Format, format_of
from entropic_bpi.model.gymnasium.ids import is_class_in_file
from entropic_bpi.model.mdp import FiniteMDP


def named_model(
    source: str, arguments: Mapping[str, Any], params: Mapping[str, Any], folder: str | Path = "."
) -> FiniteMDP:
    """Return the model that ``source`` names, with its parameters and the ``horizon`` of the arguments.

    ``source`` is an instance such as ``risky-bridge``, a model file (relative to ``folder``), ``gym:ENV_ID`` or
    ``file.py:Class``. With a discount, the horizon of the arguments is ignored.

    Examples
    --------
    >>> from entropic_bpi.model.instances.sources import named_model
    >>> named_model("river-swim", {"horizon": 5}, {"n_states": 4}).horizon
    5
    """
    given, form, horizon = dict(params), format_of(Path(source)), arguments.get("horizon")
    if arguments.get("discount") is not None:
        horizon = 1 if is_environment(source) or (form is not None and not form.has_horizon) else None
    if form is not None and not is_environment(source):
        return _saved(Path(folder) / source, form, horizon, given)
    if horizon is not None and "horizon" in given:
        raise InvalidProblemError("the horizon is given twice: as an argument and as a parameter of the source")
    given |= {} if horizon is None else {"horizon": horizon}
    if is_environment(source):
        if "horizon" not in given:
            raise InvalidProblemError(f"{source} needs a horizon: the number of steps of an episode")
        if "env_or_id" in given:
            raise InvalidProblemError("env_or_id is the part after gym:, not a parameter")
        return instances.from_gymnasium(source.removeprefix("gym:"), **given)
    if source.replace("_", "-") not in instances.names():
        raise InvalidProblemError(
            f"unknown source {source!r}: expected an instance ({', '.join(instances.names())}), "
            f"a model file ({', '.join(SUFFIXES)}), gym:ENV_ID, gym:package:ENV_ID or file.py:Class"
        )
    return instances._build(source, given)


def is_environment(source: str) -> bool:
    """Return whether ``source`` names a Gymnasium environment."""
    return source.startswith("gym:") or is_class_in_file(source)


def _saved(path: Path, form: Format, horizon: int | None, params: Mapping[str, Any]) -> FiniteMDP:
    names = ("start", "reward") if form.has_rewards else () if form.has_horizon else ("start",)
    if unknown := [name for name in params if name not in names]:
        takes = f"takes only {' and '.join(names)}" if names else "takes no parameters"
        raise InvalidProblemError(f"{path} is a saved model, which {takes}; got {', '.join(unknown)}")
    mdp = FiniteMDP.load(path, horizon=None if form.has_horizon else horizon, **params)
    if horizon not in (None, mdp.horizon):
        raise InvalidProblemError(f"{path} was saved with horizon {mdp.horizon}, which cannot be changed to {horizon}")
    return mdp
