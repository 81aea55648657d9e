"""What a command works on: the options that name a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.text import parse_literal

# Commands whose options may come from a problem file.
_TAKE_A_FILE = ("identify", "plan", "forecast", "solve", "compare", "front")


def risk_of(beta: float | None, evar: float | None) -> dict[str, Any]:
    """What the library calls beta or risk; exactly one of the options must be given."""
    from entropic_bpi.problem.risk import EVaR

    if (beta is None) == (evar is None):
        raise InvalidProblemError(f"give either --beta or --evar, not {'neither' if beta is None else 'both'}")
    return {"beta": beta} if evar is None else {"risk": EVaR(evar)}


def open_source(
    source: str, arguments: dict[str, Any], param: Sequence[str] | None, accept: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """The model, the environment or the problem file that SOURCE means, and the arguments of a run."""
    from entropic_bpi.sources.opening import as_problem_file, open_word

    if accept not in (None, "all"):
        raise InvalidProblemError(f"--accept must be all, got {accept!r}")
    file = as_problem_file(source)
    if file is None:
        if accept is not None:
            raise InvalidProblemError("--accept is for problem files (problem.toml), whose declarations it confirms")
        return open_word(source, arguments, parse_params(param))
    return (file.accept_all() if accept else file).with_params(parse_params(param)), arguments


def open_model(source: str, horizon: int | None, param: Sequence[str] | None, discount: float | None = None) -> Any:
    """The model that SOURCE means, by itself or in its problem file."""
    from entropic_bpi.model.instances.sources import named_model
    from entropic_bpi.sources.opening import as_problem_file

    file, given = as_problem_file(source), {"horizon": horizon, "discount": discount}
    if file is None:
        return named_model(source, given, parse_params(param))
    return file.with_params(parse_params(param)).model(**given)


def defaults_of(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The options that a problem file among the words of a command line stands for, by command."""
    command, paths = words[0] if words else "", [word for word in words[1:] if word.endswith(".toml")]
    if command not in _TAKE_A_FILE or not paths:
        return {}
    from entropic_bpi.problem.problem_file import ProblemFile  # which loads NumPy

    for file in map(ProblemFile.read, paths):
        options = {name: getattr(file, name) for name in ("horizon", "discount") if name not in file.unconfirmed}
        options |= {"eps": file.eps, "delta": file.delta}
        if file.risk is not None and not {"--beta", "--evar"} & {word.partition("=")[0] for word in words}:
            options |= {{"alpha": "evar"}.get(name, name): value for name, value in vars(file.risk).items()}
        return {command: {name: value for name, value in options.items() if value is not None}}
    return {}


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
        params[name] = parse_literal(text.strip())
    return params
