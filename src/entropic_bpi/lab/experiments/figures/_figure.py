"""Common parts of the figures: sizes of sweeps, tables, and files."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.store import Results
from entropic_bpi.show.figures import tidy
from entropic_bpi.tools.checks import check_integer
from entropic_bpi.tools.files import write_atomically, write_csv, write_text_atomically

Table = list[dict[str, Any]]
"""Rows of a figure's data; all have the same keys."""


@dataclass(frozen=True)
class Size:
    """The size of a sweep."""

    quick: bool
    seeds: int
    episodes: int

    def with_seeds(self, seeds: int | None) -> Size:
        return self if seeds is None else replace(self, seeds=check_integer("seeds", seeds))


FULL = Size(quick=False, seeds=15, episodes=10**7)
QUICK = Size(quick=True, seeds=3, episodes=10**5)


@dataclass(frozen=True)
class Plot:
    """A figure: the runs that it needs, their table, the drawing of the table, and a paragraph that describes it."""

    sweep: Callable[[Size], list[RunSpec]]
    table: Callable[[Results], Table]
    draw: Callable[[Table], Any]
    describe: Callable[[Table], str]


def save(plot: Plot, name: str, results: Results, size: Size, folder: Path) -> str:
    """Write the table, the drawing and the paragraph; return the paragraph."""
    good = np.array([error is None for error in results.runs["error"]], dtype=bool)
    if not good.any():
        raise EntropicBPIError(
            f"{name}: none of its {len(good)} runs succeeded; the first error: {results.runs['error'][0]}"
        )
    table = plot.table(results.where(good))
    figure = plot.draw(table)
    text = plot.describe(table)
    if size.quick:
        text += " This is the quick version: fewer episodes and seeds than in the paper, and coarser grids."
    if not good.all():
        text += f" {np.sum(~good)} of {len(good)} runs failed and are left out; results.duckdb has their errors."
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / f"{name}.csv", table)
    save_drawing(figure, folder, name)
    write_text_atomically(folder / "README.md", f"# {name}\n\n{text}\n")
    return text


def finished(figure: Any, ncols: int) -> Any:
    """Add a legend below, and tidy all axes."""
    figure.legend(loc="outside lower center", ncols=ncols, frameon=False, fontsize="small")
    for axes in figure.axes:
        tidy(axes)
    return figure


def save_drawing(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG and PDF with reproducible bytes; journals refuse fonts of type 3, the default of PDFs."""
    from matplotlib import rc_context

    with rc_context({"pdf.fonttype": 42}):
        for kind, metadata in (("png", None), ("pdf", {"CreationDate": None})):
            write_atomically(folder / f"{name}.{kind}", partial(figure.savefig, format=kind, metadata=metadata))


def column(table: Table, name: str) -> np.ndarray:
    return np.array([row[name] for row in table])


def rows_where(table: Table, **wanted: Any) -> Table:
    return [row for row in table if all(row[name] == value for name, value in wanted.items())]


def write_table(path: Path, table: Table) -> None:
    columns = list(table[0])
    write_csv(path, columns, ([row[name] for name in columns] for row in table))


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read the table of a figure that :func:`reproduce` saved as CSV."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"True": True, "False": False}.get(text, text)
