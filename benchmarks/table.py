"""The results: rows, and their way into a terminal, a CSV file, a Markdown file and the documentation."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from rich.table import Table

from benchmarks.timing import Race

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


@dataclass(frozen=True)
class Row:
    """One result. ``ratio`` says how many times better ours is than theirs unless its part says otherwise.

    ``low`` and ``high`` are the smallest and the largest ratio over the rounds, or over the seeds.
    """

    part: str
    what: str
    unit: str
    ours: float | None
    theirs: float | None = None
    peer: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


UNITS = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}


def compared(
    part: str, what: str, race: Race, *, theirs: str, peer: str, unit: str, note: str = "", ours: str = "ours"
) -> Row:
    """The row of one pair of a race; ``unit`` is s, ms, µs or ns, alone or followed by "per …"."""
    scale = UNITS[unit.split()[0]]
    low, high = race.spread(theirs, ours)
    times = scale * race.median(ours), scale * race.median(theirs)
    return Row(part, what, unit, *times, peer, race.ratio(theirs, ours), low, high, note)


def as_rates(row: Row, unit: str) -> Row:
    """The same row in units per second instead of time per unit."""
    assert row.ours is not None
    assert row.theirs is not None
    scale = UNITS[row.unit.split()[0]]
    return replace(row, unit=unit, ours=scale / row.ours, theirs=scale / row.theirs)


def number(value: float | None) -> str:
    """Three digits, with separators and without exponents where that is readable.

    Examples
    --------
    >>> number(1234.5), number(0.01234), number(12_345_678), number(None), number(math.inf)
    ('1,230', '0.0123', '12.3 million', '', '∞')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if abs(rounded) >= size:
            return f"{rounded / size:.3g} {word}"
    return f"{rounded:,.{max(0, digits)}f}" if abs(rounded) >= 1e-3 else f"{rounded:.3g}"


def spread(row: Row) -> str:
    return "" if row.low is None else f"{number(row.low)} – {number(row.high)}"


COLUMNS = ("what", "ours", "theirs", "peer", "unit", "ratio", "spread", "note")


def cells(row: Row) -> tuple[str, ...]:
    numbers = number(row.ours), number(row.theirs)
    return row.what, *numbers, row.peer, row.unit, number(row.ratio), spread(row), row.note


def for_terminal(title: str, rows: Iterable[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in ("ours", "theirs", "ratio", "spread") else "left")
    for row in rows:
        table.add_row(*cells(row))
    return table


def read_csv(path: Path) -> list[Row]:
    """The rows that :func:`write_csv` wrote, with the digits that it kept; none if there is no file."""
    if not path.exists():
        return []
    words = {"part", "what", "unit", "peer", "note"}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**{name: text if name in words else float(text) if text else None for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def write_csv(rows: Iterable[Row], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _plain(value) for name, value in asdict(row).items()})


def _plain(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def markdown_table(rows: Sequence[Row]) -> str:
    """A table without the columns that would be empty."""
    body = [cells(row) for row in rows]
    kept = [i for i in range(len(COLUMNS)) if any(line[i] for line in body)]
    lines = [[COLUMNS[i] for i in kept], ["---" for _ in kept], *([line[i] for i in kept] for line in body)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def markdown(machine: Iterable[str], titles: dict[str, str], rows: Sequence[Row], figure: str | None) -> str:
    """The whole page: the machine, then a table for every part; ``titles`` are headings and what a part says first."""
    pieces = ["\n".join(f"- {line}" for line in machine)]
    for part, title in titles.items():
        mine = [row for row in rows if row.part == part]
        if mine:
            heading, _, words = title.partition(": ")
            pieces += [f"### {heading}", words[:1].upper() + words[1:], markdown_table(mine)]
            if part == "scaling" and figure:
                pieces.append(f"![scaling curves]({figure})")
    return "\n\n".join(pieces) + "\n"


def insert(page: str, results: str) -> str:
    """``page`` with what is between its two markers replaced.

    Examples
    --------
    >>> insert(f"above {BEGIN} old {END} below", "new") == f"above {BEGIN}\\n\\nnew\\n\\n{END} below"
    True
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page needs the two lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{results.strip()}\n\n{END}{after}"
