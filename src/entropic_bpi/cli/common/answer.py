"""How every command answers: text with the next useful command below it, or one JSON object."""

from __future__ import annotations

import inspect
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Container, Iterable
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from entropic_bpi.problem.declarations import ENTRIES, Entry
from entropic_bpi.tools.text import printable

PROGRAM = "entropic-bpi"


def answer(content: dict[str, Any], as_json: bool, show: Callable[[], object], then: Iterable[object]) -> None:
    """Print ``content`` for programs, or ``show`` it to a person and say what to type next, on stderr."""
    if as_json:
        print(json.dumps(_plain(content), indent=2, allow_nan=False))
        return
    show()
    sys.stdout.flush()
    print(f"next: {printable(shlex.join([PROGRAM, *map(str, then)]))}", file=sys.stderr)


def _plain(value: Any) -> Any:
    """What JSON can say: no arrays, no NaN and no infinity, which are null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def again(
    context: typer.Context, command: str, *, only: Container[str] | None = None, without: Container[str] = ()
) -> list[str]:
    """The words of ``command`` with the options that were given to this one: those ``only``, or all ``without`` some."""
    words = []
    for parameter in context.command.params:
        source: Any = context.get_parameter_source(parameter.name or "")
        kept = parameter.name not in without if only is None else parameter.name in only
        if kept and source is not None and source.name == "COMMANDLINE":
            words += _words(parameter, context.params[parameter.name or ""])
    return [command, *words]


def _words(parameter: Any, value: Any) -> list[str]:
    """As it would be typed."""
    if parameter.param_type_name == "argument":
        return [str(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
    if isinstance(value, bool):
        return [max(parameter.opts if value else parameter.secondary_opts, key=len)]
    option = max(parameter.opts, key=len)
    if isinstance(value, list):
        return [word for item in value for word in (option, str(item))]
    return [option, *(_number(item) for item in (value if isinstance(value, tuple) else (value,)))]


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def with_options_of(other: Callable[..., Any], *, without: Container[str]) -> Callable[..., Any]:
    """Give a command that takes ``**options`` those of another command, which come first."""
    return lambda command: _widened(command, [p for p in _parameters(other) if p.name not in without])


def with_declarations(*, without: Container[str] = ()) -> Callable[..., Any]:
    """Give a command that takes ``**declared`` an option for every declaration of the table."""
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(entry))
        for name, entry in ENTRIES.items()
        if entry.kind is not None and name not in without
    ]
    return lambda command: _widened(command, options)


def _option(entry: Entry) -> Any:
    option = typer.Option(
        metavar=entry.metavar,
        help=entry.help,
        parser=entry.from_text,
        show_default=False,
        rich_help_panel="What you declare about the problem",
    )
    return Annotated[entry.kind | None, option]


# A heading of a docstring; all but "Parameters" are panels of the help.
_HEADING = re.compile(r"^(\S.*)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+)(?: : (.+))?\n((?:    .+\n?)+)", re.MULTILINE)


def with_documented_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make the parameters of a command options, and those before ``*`` arguments, as its docstring describes them.

    After the colon there is what the help shows for the value, and other names of the option, separated by commas. What a
    docstring leaves out is described in that of :func:`shared_options`.
    """
    return _widened(command, ())


def help_of(command: Callable[..., Any]) -> str:
    """Return the docstring of a command up to its parameters."""
    return _HEADING.split(inspect.getdoc(command) or "")[0].rstrip()


def _documented(command: Callable[..., Any]) -> dict[str, tuple[str | None, list[str], str]]:
    """Return the panel, the words after the colon and the description of each parameter in a docstring."""
    found, sections = {}, _HEADING.split(f"{inspect.getdoc(command)}\n")[1:]
    for panel, text in zip(sections[::2], sections[1::2], strict=True):
        for name, words, description in _ENTRY.findall(text):
            shown = None if panel == "Parameters" else panel
            found[name] = shown, words.split(", ") if words else [], " ".join(description.split())
    return found


def _parameters(command: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds, parameters = get_type_hints(command, include_extras=True), inspect.signature(command).parameters.values()
    described = _documented(shared_options) | _documented(command)
    return [
        p.replace(annotation=_described(p, kinds[p.name], *described[p.name]) if p.name in described else kinds[p.name])
        for p in parameters
        if p.kind is not p.VAR_KEYWORD
    ]


def _described(parameter: inspect.Parameter, kind: Any, panel: str | None, words: list[str], text: str) -> Any:
    if get_origin(kind) is Annotated:
        return kind
    names = [word for word in words if word.startswith("-")]
    metavar = next((word for word in words if word not in names), None)
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return Annotated[kind, typer.Argument(metavar=metavar, help=text, show_default=False)]
    names = names or [f"--{parameter.name.replace('_', '-')}"]  # named, so that there is no --no-NAME
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)]


def shared_options() -> None:
    """Describe what several commands take.

    Parameters
    ----------
    source
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
        Discount rewards by this factor a step, for ever. --horizon may then be left out; if it is given, what comes
        after it is bounded.
    horizon
        Number of steps; required for environments.
    param : NAME=VALUE, --param, -p
        A parameter of the instance, or an option of the Gymnasium environment; repeat it for several.
    workers
        Processes. Default: one per core; 0: none.
    scheduler : ADDRESS
        A Dask scheduler, such as tcp://host:8786, to compute on.
    resume
        Keep stored runs, and compute the rest.
    as_json : --json
        Print JSON instead of text.
    """


def _widened(command: Callable[..., Any], more: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    parameters = [*more, *_parameters(command)]
    required = [p for p in parameters if p.default is p.empty]
    optional = [p for p in parameters if p.default is not p.empty]
    ordered = [p.replace(kind=p.KEYWORD_ONLY) for p in (*required, *optional)]
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in ordered}
    return command
