"""What a command works on: the options that name a model, and the model that they mean."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.errors import InvalidProblemError

if TYPE_CHECKING:
    from entropic_bpi.mdp import FiniteMDP

__all__ = [
    "BetaOption",
    "HorizonOption",
    "JsonOption",
    "ParamOption",
    "SourceArgument",
    "parse_params",
    "resolve_source",
]

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="An instance (risky-bridge), a saved model (model.npz, model.json), or gym:ENV_ID (gym:FrozenLake-v1).",
        show_default=False,
    ),
]
BetaOption = Annotated[
    float,
    typer.Option(help="Risk parameter: positive seeks risk, negative avoids it, 0 is the mean.", show_default=False),
]
HorizonOption = Annotated[
    int | None, typer.Option(help="Number of steps; required for gym: sources.", show_default=False)
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="A parameter of the instance, or an option of the Gymnasium environment; repeat it for several.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def resolve_source(source: str, horizon: int | None = None, params: Mapping[str, Any] | None = None) -> FiniteMDP:
    """The model that a SOURCE argument means."""
    given = dict(params or {})
    if Path(source).suffix in (".npz", ".json"):
        return _load_model(source, horizon, given)
    if horizon is not None:
        if "horizon" in given:
            raise InvalidProblemError("the horizon is given twice: use either --horizon or --param horizon=")
        given["horizon"] = horizon
    if source.startswith("gym:"):
        return _read_gymnasium(source.removeprefix("gym:"), given)
    from entropic_bpi import instances

    if source.replace("_", "-") not in instances.names():
        raise InvalidProblemError(
            f"unknown source {source!r}: expected an instance ({', '.join(instances.names())}), "
            "a saved model (.npz or .json) or gym:ENV_ID"
        )
    return instances._build(source, given)


def _load_model(path: str, horizon: int | None, params: Mapping[str, Any]) -> FiniteMDP:
    from entropic_bpi.mdp import FiniteMDP

    mdp = FiniteMDP.load(path)
    if params:
        raise InvalidProblemError(f"{path} is a saved model, which takes no parameters; got {', '.join(params)}")
    if horizon not in (None, mdp.horizon):
        raise InvalidProblemError(f"{path} was saved with horizon {mdp.horizon}, which cannot be changed to {horizon}")
    return mdp


def _read_gymnasium(env_id: str, params: dict[str, Any]) -> FiniteMDP:
    from entropic_bpi.instances import from_gymnasium

    if "horizon" not in params:
        raise InvalidProblemError(f"gym:{env_id} needs --horizon: the number of steps of an episode")
    if "env_or_id" in params:
        raise InvalidProblemError("env_or_id is the part after gym:, not a --param")
    return from_gymnasium(env_id, **params)


def parse_params(entries: Sequence[str] | None) -> dict[str, Any]:
    """``["branching=3", "stationary=false"]`` as ``{"branching": 3, "stationary": False}``."""
    params: dict[str, Any] = {}
    for entry in entries or ():
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise InvalidProblemError(f"--param must be NAME=VALUE, got {entry!r}")
        if name in params:
            raise InvalidProblemError(f"--param {name} is given twice")
        params[name] = _parse_value(text.strip())
    return params


def _parse_value(text: str) -> Any:
    """A number, true, false, none, a list or a tuple; anything else is a string."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
