"""What a command works on: the options that name a model."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from entropic_bpi.errors import InvalidProblemError

__all__ = [
    "EVAR_IS",
    "BetaOption",
    "DiscountOption",
    "EVaROption",
    "EitherBetaOption",
    "HorizonOption",
    "JsonOption",
    "ParamOption",
    "SourceArgument",
    "parse_params",
    "risk_of",
    "steps_of",
]

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="An instance (risky-bridge), a saved model (model.npz, model.json), a Gymnasium environment "
        "(gym:FrozenLake-v1; gym:my_package:Env-v0 imports the package first), or one of your own (file.py:Class).",
        show_default=False,
    ),
]
_BETA = typer.Option(help="Risk parameter: positive seeks risk, negative avoids it, 0 is the mean.", show_default=False)
BetaOption = Annotated[float, _BETA]
EitherBetaOption = Annotated[float | None, _BETA]
EVAR_IS = (
    "EVaR is a lower bound on CVaR, the mean of the worst share ALPHA of the returns, and is not that mean: a policy with "
    "the best EVaR need not have the best CVaR."
)
EVaROption = Annotated[
    float | None,
    typer.Option(
        "--evar",
        metavar="ALPHA",
        help=f"Instead of --beta: the entropic value at risk (EVaR) of this level. {EVAR_IS}",
        show_default=False,
    ),
]
DiscountOption = Annotated[
    float | None,
    typer.Option(
        metavar="GAMMA",
        help="Discount rewards by this factor a step, for ever. --horizon may then be left out; if it is given, what comes "
        "after it is bounded.",
    ),
]
HorizonOption = Annotated[
    int | None, typer.Option(help="Number of steps; required for environments.", show_default=False)
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


def risk_of(beta: float | None, evar: float | None) -> dict[str, Any]:
    """What the library calls beta or risk; exactly one of the options must be given."""
    from entropic_bpi.problem.risk import EVaR

    if (beta is None) == (evar is None):
        raise InvalidProblemError(f"give either --beta or --evar, not {'neither' if beta is None else 'both'}")
    return {"beta": beta} if evar is None else {"risk": EVaR(evar)}


def steps_of(source: str, horizon: int | None, discount: float | None) -> int | None:
    """The horizon to build a model with: where rewards are discounted it does not matter, but a saved model has its own."""
    from entropic_bpi.model.instances.sources import is_environment

    if discount is None:
        return horizon
    return 1 if is_environment(source) else None


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
