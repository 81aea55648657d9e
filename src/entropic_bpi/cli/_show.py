"""What several commands print, and the folders that they write to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.show.choices import Choice, certified_choices, choices_of
from entropic_bpi.tools.text import certainty, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from entropic_bpi.certificate.certificate import Certificate

__all__ = [
    "Choice",
    "OutOption",
    "attitude",
    "bound_rows",
    "certified_choices",
    "choices_of",
    "new_folder",
    "progress_bar",
    "risk_keys",
    "risk_row",
    "show_policy",
    "terminal",
]

_SHOWN_CHOICES = 40

OutOption = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder for the results; nothing in it is overwritten.", show_default=False)
]


def terminal() -> Console:
    """Fits a terminal; wide elsewhere, so that piped tables keep one line per row.

    What is printed is text, whatever it says: names come from files, and nothing in them may act on the terminal.
    """
    from rich.console import Console

    class Plain(Console):
        # Rich sends every string through here, also those in tables.
        def render_str(self, text: str, **style: Any) -> Any:
            return super().render_str(printable(text), **style)

    return Plain(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)


def progress_bar() -> Progress:
    """A bar on stderr, shown on a terminal only."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    shown = sys.stderr.isatty()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
        console=Console(stderr=True, quiet=not shown),  # older versions of Rich end a disabled bar with an empty line
        transient=True,
        disable=not shown,
    )


def attitude(beta: float) -> str:
    return "risk-seeking" if beta > 0 else "risk-averse" if beta < 0 else "the expectation"


def risk_row(certificate: Certificate) -> tuple[str, str]:
    """Which risk a claim is about: a name and a value for a table."""
    risk = certificate.problem.risk
    if isinstance(risk, EVaR):
        worst = f"the worst {100 * risk.alpha:g}% of the returns"
        return "evar", f"{risk.alpha:g} (a lower bound on the mean of {worst})"
    return "beta", f"{certificate.beta:g} ({attitude(certificate.beta)})"


def risk_keys(certificate: Certificate) -> dict[str, Any]:
    """The same for JSON, which knows no NaN."""
    beta = certificate.beta if certificate.risk == "entropic" else None
    return {"risk": certificate.risk, "beta": beta, "alpha": certificate.alpha}


def bound_rows(certificate: Certificate) -> list[tuple[str, str]]:
    """What is claimed: names and values for a table."""
    surely, value = f"with probability at least {certainty(certificate.delta)}", "value"
    rows = []
    if certificate.risk == "evar":
        value = "EVaR"
        rows = [
            ("in words", certificate.statement),
            (
                "so",
                "its CVaR and its quantile at that level are at least as high; another policy may have a better CVaR",
            ),
        ]
    interval = f"{certificate.lower:.6g} <= {value} of the policy <= best {value} <= {certificate.upper:.6g}"
    return [
        *rows,
        ("interval", f"{interval}, {surely}"),
        ("gap", f"best {value} - {value} of the policy <= {certificate.gap:.6g}"),
    ]


def show_policy(console: Console, choices: Sequence[Choice]) -> None:
    from rich.table import Table

    table = Table("steps", "state", "action", box=None, pad_edge=False)
    for choice in choices[:_SHOWN_CHOICES]:
        table.add_row(choice.steps, choice.state, choice.action)
    console.print(table)
    if len(choices) > _SHOWN_CHOICES:
        console.print(f"... and {len(choices) - _SHOWN_CHOICES} more lines; --json prints them all")


def new_folder(folder: Path, files: Iterable[str], advice: str = "give another --out") -> None:
    """Make sure that ``folder`` exists and holds none of ``files`` yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidProblemError(f"--out: {folder} is not a folder") from None
    held = [name for name in files if (folder / name).exists()]
    if held:
        raise InvalidProblemError(f"{folder} already holds {', '.join(held)}, and nothing is overwritten: {advice}")
