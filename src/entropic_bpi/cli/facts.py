"""The answer of a command: facts, shown as JSON for programs or as tables for people."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import entropic_bpi as eb
from entropic_bpi.show.choices import Choice
from entropic_bpi.show.words import ascii_minus, claim_of, risk_of
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from rich.console import Console

PROGRAM = "entropic-bpi"
_SHOWN_CHOICES = 40


class Fact(NamedTuple):
    """One fact of an answer: ``key`` and ``value`` for programs, ``name`` and ``shown`` for people.

    ``shown`` is a text, or a table below ``name``: a row of titles and the other rows. By default it is the value. A fact
    without a key is for people only, one without a name and without a text is for programs only.
    """

    key: str = ""
    value: Any = None
    name: str = ""
    shown: str | Sequence[Sequence[str]] | None = None


class Answer(NamedTuple):
    """What a command returns: its facts, the next useful command if there is one, and whether the claim holds.

    A ``quiet`` answer is for programs only.
    """

    facts: Sequence[Fact]
    then: Sequence[object] = ()
    ok: bool = True
    quiet: bool = False


def line(text: str) -> Fact:
    """Return a line of text for people: the title of an empty table."""
    return Fact(name=text, shown=())


def data(**values: Any) -> list[Fact]:
    """Return facts for programs only."""
    return [Fact(key, value) for key, value in values.items()]


def several(key: str, values: Sequence[str], name: str) -> list[Fact]:
    """Return a list of texts for programs, and one row for each of them for people."""
    return [Fact(key, list(values)), *(Fact(name="" if i else name, shown=text) for i, text in enumerate(values))]


def show(answer: Answer, as_json: bool) -> None:
    """Print the facts as JSON; or print them as text, and the next command on stderr."""
    if as_json:
        content = {fact.key: fact.value for fact in answer.facts if fact.key}
        print(json.dumps(_plain(content), indent=2, allow_nan=False))
    elif not answer.quiet:
        _print(answer.facts)
        sys.stdout.flush()
        if answer.then:
            print(f"next: {printable(shlex.join([PROGRAM, *map(str, answer.then)]))}", file=sys.stderr)


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent: arrays become lists; NaN and infinity become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _print(facts: Sequence[Fact]) -> None:
    from rich.table import Table

    console, printed = _terminal(), [fact for fact in facts if fact.name or fact.shown]
    for i, (kind, group) in enumerate(groupby(printed, key=_kind)):
        if i:
            console.print()
        if kind == "text":
            grid = Table.grid("name", "value", padding=(0, 2))
            for fact in group:
                grid.add_row(fact.name, str(fact.value if fact.shown is None else fact.shown))
            console.print(grid)
            continue
        for fact in group:
            if fact.name:
                console.print(fact.name, soft_wrap=True)
            if fact.shown:
                table = Table(*fact.shown[0], box=None, pad_edge=False)
                for row in fact.shown[1:]:
                    table.add_row(*row)
                console.print(table)


def _kind(fact: Fact) -> str:
    """Return the kind of a fact; neighbours of one kind are printed together, every table by itself."""
    shown = f"table {id(fact)}" if fact.shown else "line"
    return "text" if fact.shown is None or isinstance(fact.shown, str) else shown


def _terminal() -> Console:
    """Return a console with the width of the terminal; piped tables are wide, so that a row is one line.

    Everything is printed as plain text: names come from files, and must not control the terminal.
    """
    from rich.console import Console

    class Plain(Console):
        # Rich sends every string through here, also those in tables.
        def render_str(self, text: str, **style: Any) -> Any:
            return super().render_str(printable(text), **style)

    return Plain(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)


def claim_facts(claim: eb.Certificate) -> list[Fact]:
    """Return which risk a claim is about, and what is claimed."""
    words = claim_of(claim)
    certified = "certified" if words.reached else "NOT certified"
    return [
        Fact("risk", claim.risk, "risk", ascii_minus(risk_of(claim).name)),
        *data(beta=claim.problem.risk.beta, alpha=claim.alpha, eps=claim.eps, delta=claim.delta),
        Fact("certified", words.reached, certified, ascii_minus(words.sentence)),
        *data(lower=claim.lower, upper=claim.upper),
        Fact("gap", claim.gap, "bounds", ascii_minus(words.bounds)),
    ]


def policy_facts(title: str, choices: Sequence[Choice]) -> list[Fact]:
    """Return the table of a policy in the states that it reaches."""
    rows = [(choice.steps, choice.state, choice.action) for choice in choices]
    more = len(rows) - _SHOWN_CHOICES
    table = [("steps", "state", "action"), *rows[:_SHOWN_CHOICES]]
    fact = Fact("policy", [choice._asdict() for choice in choices], f"{title} (steps count from 0):", table)
    return [fact] + [line(f"... and {more} more lines; --json prints them all")] * (more > 0)
