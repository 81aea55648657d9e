"""Options of commands, from docstrings and from the table of declarations, and the models that they name."""

import inspect
import re
from collections.abc import Callable, Container, Sequence
from types import GenericAlias
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.tools.text import parse_literal

# A heading of a docstring; all but "Parameters" are panels of the help.
_HEADING = re.compile(r"^(\S.*)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+)(?: : (.+))?\n((?:    .+\n?)+)", re.MULTILINE)
_NOTHING: tuple[None, list[str], str] = None, [], ""
# Commands whose options may come from a problem file.
_TAKE_A_FILE = ("identify", "explore", "forecast", "solve", "compare", "front")

# -- what a command takes ----------------------------------------------------------------------------------------------


def shared_options() -> None:
    """Describe the options of several commands.

    Parameters
    ----------
    source : SOURCE
        An instance (risky-bridge), a model file (.npz, .json, .csv, .tra, .drn, .prism), a Gymnasium environment
        (gym:FrozenLake-v1; gym:my_package:Env-v0 imports the package first), one of your own (file.py:Class), or a
        problem file (problem.toml), whose values are used for the options that are not given.
    beta
        Risk parameter: positive seeks risk, negative avoids it, 0 is the mean.
    evar : ALPHA
        Instead of --beta: the entropic value at risk (EVaR) of this level. EVaR is a lower bound on CVaR, the mean of
        the worst share ALPHA of the returns, and is not that mean: a policy with the best EVaR need not have the best
        CVaR.
    discount : GAMMA
        Discount rewards by this factor at every step, without a last step. --horizon is then optional; the rewards after
        it are bounded.
    horizon
        Number of steps; required for environments.
    param : NAME=VALUE, --param, -p
        A parameter of the instance, or an option of the Gymnasium environment; repeat it for several.
    workers
        Number of processes. Default: one per core; 0: compute without further processes.
    scheduler : ADDRESS
        A Dask scheduler, such as tcp://host:8786, to compute on.
    resume
        Keep stored runs, and compute the rest.
    as_json : --json
        Print JSON instead of text.
    """


def with_options(*more: inspect.Parameter) -> Callable[..., Any]:
    """Return a decorator that adds these options to a command with ``**`` options, before its own."""

    def widened(command: Callable[..., Any]) -> Callable[..., Any]:
        found = _documented(shared_options) | _documented(command)
        described = [p.replace(annotation=_described(p, p.annotation, *found.get(p.name, _NOTHING))) for p in more]
        ordered = sorted([*described, *options_of(command)], key=lambda p: p.default is not p.empty)
        command.__signature__ = inspect.Signature([p.replace(kind=p.KEYWORD_ONLY) for p in ordered])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in ordered}
        return command

    return widened


def relayed(**options: Any) -> list[inspect.Parameter]:
    """Return options that a command only passes on, each by its default or, if it has none, by its type."""
    return [
        _option(name, given | None) if isinstance(given, (type, GenericAlias)) else _option(name, type(given), given)
        for name, given in options.items()
    ]


def options_of(
    command: Callable[..., Any], *, only: Container[str] | None = None, without: Container[str] = ()
) -> list[inspect.Parameter]:
    """Return the parameters of a command: options, and those before ``*`` arguments, as its docstring describes them.

    After the colon there is what the help shows for the value, and other names of the option, separated by commas. What a
    docstring leaves out is described in that of :func:`shared_options`.
    """
    kinds, found = get_type_hints(command, include_extras=True), _documented(shared_options) | _documented(command)
    return [
        p.replace(annotation=_described(p, kinds[p.name], *found.get(p.name, _NOTHING)))
        for p in inspect.signature(command).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name not in without and (only is None or p.name in only)
    ]


def declarations(*, without: Container[str] = ()) -> list[inspect.Parameter]:
    """Return an option for every declaration of the table."""
    panel, found = "What you declare about the problem", []
    for name, entry in ENTRIES.items():
        if entry.kind is not None and name not in without:
            shown = {"metavar": entry.metavar, "help": entry.help, "rich_help_panel": panel}
            option = typer.Option(parser=entry.from_text, show_default=False, **shown)  # type: ignore[arg-type]
            kind: Any = entry.kind | None
            found.append(_option(name, Annotated[kind, option]))
    return found


def _option(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def help_of(command: Callable[..., Any]) -> str:
    """Return the docstring of a command up to its parameters."""
    return _HEADING.split(inspect.getdoc(command) or "")[0].rstrip()


def _documented(command: Callable[..., Any]) -> dict[str, tuple[str | None, list[str], str]]:
    """Return the panel, the words after the colon and the description of each parameter of a docstring."""
    found, sections = {}, _HEADING.split(f"{inspect.getdoc(command)}\n")[1:]
    for panel, text in zip(sections[::2], sections[1::2], strict=True):
        for name, words, description in _ENTRY.findall(text):
            shown = None if panel == "Parameters" else panel
            found[name] = shown, words.split(", ") if words else [], " ".join(description.split())
    return found


def _described(parameter: inspect.Parameter, kind: Any, panel: str | None, words: list[str], text: str) -> Any:
    if get_origin(kind) is Annotated or not text:
        return kind
    names = [word for word in words if word.startswith("-")]
    metavar = next((word for word in words if word not in names), "" if kind is bool else None)
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return Annotated[kind, typer.Argument(metavar=metavar, help=text, show_default=False)]
    names = names or [f"--{parameter.name.replace('_', '-')}"]  # named, so that there is no --no-NAME
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)]


# -- what was given ----------------------------------------------------------------------------------------------------


def risk_of(beta: float | None, evar: float | None) -> dict[str, Any]:
    """Return the argument ``beta`` or ``risk`` of the library; exactly one of the two options must be given."""
    if (beta is None) == (evar is None):
        raise InvalidProblemError(f"give either --beta or --evar{'' if beta is None else ', not both'}")
    return {"beta": beta} if evar is None else {"risk": EVaR(evar)}


def open_source(
    source: str, arguments: dict[str, Any], param: Sequence[str] | None, accept: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the model, the environment or the problem file that SOURCE means, and the arguments of a run."""
    from entropic_bpi.sources.opening import as_problem_file, open_word

    if accept not in (None, "all"):
        raise InvalidProblemError(f"--accept must be all, got {accept!r}")
    file = as_problem_file(source)
    if file is not None:
        return (file.accept_all() if accept else file).with_params(parse_params(param)), arguments
    if accept is not None:
        raise InvalidProblemError("--accept is for problem files (problem.toml), whose declarations it confirms")
    return open_word(source, arguments, parse_params(param))


def open_model(source: str, horizon: int | None, param: Sequence[str] | None, discount: float | None = None) -> Any:
    """Return the model that SOURCE means, by itself or in its problem file."""
    from entropic_bpi.problem.problem_file import ProblemFile
    from entropic_bpi.sources.opening import as_problem_file

    file = as_problem_file(source) or ProblemFile(source=source)
    return file.with_params(parse_params(param)).model(horizon=horizon, discount=discount)


def defaults_of(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options that a problem file on the command line implies, by command."""
    command, paths = words[0] if words else "", [word for word in words[1:] if word.endswith(".toml")]
    if command not in _TAKE_A_FILE or not paths:
        return {}
    from entropic_bpi.problem.problem_file import ProblemFile  # which loads NumPy

    file = ProblemFile.read(paths[0])
    options = {name: getattr(file, name) for name in ("horizon", "discount") if name not in file.unconfirmed}
    options |= {"eps": file.eps, "delta": file.delta}
    if file.risk is not None and not {"--beta", "--evar"} & {word.partition("=")[0] for word in words}:
        options |= {{"alpha": "evar"}.get(name, name): value for name, value in vars(file.risk).items()}
    return {command: {name: value for name, value in options.items() if value is not None}}


def parse_params(entries: Sequence[str] | None) -> dict[str, Any]:
    """Return ``["branching=3", "stationary=false"]`` as ``{"branching": 3, "stationary": False}``."""
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
