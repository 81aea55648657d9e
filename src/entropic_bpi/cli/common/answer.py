"""How every command answers: text with the next useful command below it, or one JSON object."""

from __future__ import annotations

import inspect
import json
import math
import shlex
import sys
from collections.abc import Callable, Container, Iterable
from typing import Annotated, Any, get_type_hints

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


def _parameters(command: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds, parameters = get_type_hints(command, include_extras=True), inspect.signature(command).parameters.values()
    return [p.replace(annotation=kinds[p.name]) for p in parameters if p.kind is not p.VAR_KEYWORD]


def _widened(command: Callable[..., Any], more: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    parameters = [*more, *_parameters(command)]
    required = [p for p in parameters if p.default is p.empty]
    optional = [p for p in parameters if p.default is not p.empty]
    ordered = [p.replace(kind=p.KEYWORD_ONLY) for p in (*required, *optional)]
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in ordered}
    return command
