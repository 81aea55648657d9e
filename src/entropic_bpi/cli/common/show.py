"""The facts of an answer, rendered as JSON for programs or as tables for people; and the folders that commands write to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from entropic_bpi.cli.common.answer import answer
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.risk import Entropic
from entropic_bpi.show.choices import Choice
from entropic_bpi.show.words import ascii_minus, claim_of, risk_of
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from entropic_bpi.certificate.certificate import Certificate

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


def line(text: str) -> Fact:
    """Return a line of text for people: the title of an empty table."""
    return Fact(name=text, shown=())


def data(**values: Any) -> list[Fact]:
    """Return facts for programs only."""
    return [Fact(key, value) for key, value in values.items()]


def several(key: str, values: Sequence[str], name: str) -> list[Fact]:
    """Return a list of texts for programs, and one row for each of them for people."""
    return [Fact(key, list(values)), *(Fact(name="" if i else name, shown=text) for i, text in enumerate(values))]


def written(folder: Path, files: Iterable[str]) -> Fact:
    return line(f"written  {folder}: {', '.join(files)}")


def present(facts: Sequence[Fact], as_json: bool, then: Iterable[object]) -> None:
    """Print the facts, and below them the next useful command."""
    answer({fact.key: fact.value for fact in facts if fact.key}, as_json, lambda: _print(facts), then)


def _print(facts: Sequence[Fact]) -> None:
    console, shown = _terminal(), [fact for fact in facts if fact.name or fact.shown]
    for i, (kind, group) in enumerate(groupby(shown, key=_kind)):
        if i:
            console.print()
        if kind == "text":
            console.print(_grid(group))
            continue
        for fact in group:
            if fact.name:
                console.print(fact.name, soft_wrap=True)
            if fact.shown:
                console.print(_table(fact.shown))


def _kind(fact: Fact) -> str:
    """Facts of one kind are printed together; every table is printed by itself."""
    if fact.shown is None or isinstance(fact.shown, str):
        return "text"
    return f"table {id(fact)}" if fact.shown else "line"


def _grid(facts: Iterable[Fact]) -> Table:
    from rich.table import Table

    grid = Table.grid("name", "value", padding=(0, 2))
    for fact in facts:
        grid.add_row(fact.name, str(fact.value if fact.shown is None else fact.shown))
    return grid


def _table(rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table

    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _terminal() -> Console:
    """Fits a terminal; wide elsewhere, so that piped tables keep one line per row.

    What is printed is text, whatever it says: names come from files, and nothing in them may act on the terminal.
    """
    from rich.console import Console

    class Plain(Console):
        # Rich sends every string through here, also those in tables.
        def render_str(self, text: str, **style: Any) -> Any:
            return super().render_str(printable(text), **style)

    return Plain(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)


def claim_facts(certificate: Certificate) -> list[Fact]:
    """Return which risk a claim is about, and what is claimed."""
    risk, claim = certificate.problem.risk, claim_of(certificate)
    certified = "certified" if claim.reached else "NOT certified"
    return [
        Fact("risk", certificate.risk, "risk", ascii_minus(risk_of(certificate).name)),
        *data(beta=risk.beta if isinstance(risk, Entropic) else None, alpha=certificate.alpha),
        *data(eps=certificate.eps, delta=certificate.delta),
        Fact("certified", claim.reached, certified, claim.sentence),
        *data(lower=certificate.lower, upper=certificate.upper),
        Fact("gap", certificate.gap, "bounds", ascii_minus(claim.bounds)),
    ]


def assumption_facts(certificate: Certificate) -> list[Fact]:
    return several("assumptions", certificate.assumptions, "assumed")


def policy_facts(title: str, choices: Sequence[Choice]) -> list[Fact]:
    """Return what a policy does, on the states that it reaches."""
    rows = [(choice.steps, choice.state, choice.action) for choice in choices]
    more = len(rows) - _SHOWN_CHOICES
    table = [("steps", "state", "action"), *rows[:_SHOWN_CHOICES]]
    fact = Fact("policy", [choice._asdict() for choice in choices], title, table)
    return [fact] + [line(f"... and {more} more lines; --json prints them all")] * (more > 0)


def new_folder(folder: Path, files: Iterable[str], advice: str = "give another --out") -> None:
    """Make sure that ``folder`` exists and holds none of ``files`` yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidProblemError(f"--out: {folder} is not a folder") from None
    held = [name for name in files if (folder / name).exists()]
    if held:
        raise InvalidProblemError(f"{folder} already holds {', '.join(held)}, and nothing is overwritten: {advice}")
