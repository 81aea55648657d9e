"""How every command answers: text with the next useful command below it, or one JSON object."""

from __future__ import annotations

import inspect
import json
import math
import shlex
import sys
from collections.abc import Callable, Container, Iterable
from typing import Any, get_type_hints

import typer

from entropic_bpi.tools.text import printable

__all__ = ["again", "answer", "with_options_of"]

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

    def widened(command: Callable[..., Any]) -> Callable[..., Any]:
        kinds = {function: get_type_hints(function, include_extras=True) for function in (other, command)}
        parameters = [
            parameter.replace(annotation=kinds[function][parameter.name])
            for function, dropped in ((other, without), (command, ()))
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name not in dropped and parameter.kind is not parameter.VAR_KEYWORD
        ]
        required = [p for p in parameters if p.default is p.empty]
        optional = [p for p in parameters if p.default is not p.empty]
        ordered = [p.replace(kind=p.KEYWORD_ONLY) for p in (*required, *optional)]
        command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in ordered}
        return command

    return widened
