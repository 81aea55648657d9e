"""The directive ``cli-reference``: every command of ``entropic-bpi`` with its options, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from entropic_bpi.cli import app


class CliReference(Directive):
    """For a Markdown page: what is parsed here is Markdown."""

    def run(self) -> list[nodes.Node]:
        group: Any = typer.main.get_command(app)
        every = [(name, group.get_command(None, name)) for name in group.list_commands(None)]
        return [self._section(name, command) for name, command in every if not command.hidden]

    def _section(self, name: str, command: Any) -> nodes.section:
        section = nodes.section(ids=[f"entropic-bpi-{name}"], names=[name])
        section += nodes.title(name, name)
        lines = ["```console", _usage(name, command), "```", "", *_help(command), "", *_table(command)]
        self.state.nested_parse(StringList(lines, "cli-reference"), self.content_offset, section)
        return section


def _usage(name: str, command: Any) -> str:
    places = [_metavar(p) for p in command.params if p.param_type_name == "argument"]
    required = [f"{p.opts[0]} {_metavar(p)}" for p in command.params if p.param_type_name == "option" and p.required]
    return " ".join(["entropic-bpi", name, *places, *required, "[OPTIONS]"])


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper().replace("_", "-"))


def _help(command: Any) -> list[str]:
    """The help text; what is indented there are examples, a blank line apart."""
    lines, example = [], []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("    "):
            example.append(block.strip())
            continue
        lines += _fence(example) + [_marked(" ".join(block.split())), ""]
        example = []
    return lines + _fence(example)


def _fence(example: list[str]) -> list[str]:
    return ["```console", *example, "```", ""] if example else []


def _marked(text: str) -> str:
    """Options as code, so that two hyphens stay two hyphens, and no emphasis by accident."""
    return re.sub(r"(?<!\S)(--?[a-z][a-z-]*)", r"`\1`", text.replace("*", r"\*"))


def _table(command: Any) -> list[str]:
    rows = [(_spelling(parameter), _meaning(parameter)) for parameter in command.params]
    rows.append(("`--help`, `-h`", "Show the help and exit."))
    return ["| option | meaning |", "|---|---|", *("| " + " | ".join(map(_cell, row)) + " |" for row in rows), ""]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter)}`"
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return ", ".join(f"`{spelling}{value}`" for spelling in (*parameter.opts, *parameter.secondary_opts))


def _meaning(parameter: Any) -> str:
    text, default = _marked(parameter.help or ""), parameter.default
    if parameter.required:
        return f"{text} *Required.*"
    if default in (None, False, ()) or callable(default) or "efault" in text:
        return text
    return f"{text} Default: {default}."


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("cli-reference", CliReference)
    return {"parallel_read_safe": True}
