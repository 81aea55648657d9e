"""The CSV files of MDPs.jl, RiskMDPs.jl and CRAAM: a line for each transition, numbered from 0 or from 1."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from entropic_bpi.model.formats.entries import Entries, entries_of_model, fault, integer, real
from entropic_bpi.tools.files import write_csv
from entropic_bpi.tools.text import shown

if TYPE_CHECKING:
    from entropic_bpi.model.mdp import FiniteMDP

_COLUMNS = ("idstatefrom", "idaction", "idstateto", "probability", "reward")


def read(path: Path) -> dict[str, Any]:
    entries = Entries(path, first=(0, 1))
    for line, cells in _cells(path):
        state, action, successor = (
            integer(path, line, name, cell) for name, cell in zip(_COLUMNS[:3], cells[:3], strict=True)
        )
        probability, reward = (real(path, line, name, cell) for name, cell in zip(_COLUMNS[3:], cells[3:], strict=True))
        entries.add(line, state, str(action), successor, probability, reward)
    return {"start": 0} | entries.fields()


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line in the order of ``_COLUMNS``, whatever the order in the file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = csv.reader(file, strict=True)
        try:
            header = [name.strip().lower() for name in next(table, [])]
            if any(header.count(name) != 1 for name in _COLUMNS):
                raise fault(path, 1, f"expected the columns {', '.join(_COLUMNS)}, got {shown(','.join(header))}")
            order = [header.index(name) for name in _COLUMNS]
            for cells in table:
                if cells and len(cells) != len(header):
                    raise fault(path, table.line_num, f"expected {len(header)} cells, got {len(cells)}")
                if cells:
                    yield table.line_num, [cells[i].strip() for i in order]
        except csv.Error as error:
            raise fault(path, table.line_num, f"not a CSV file with commas and double quotes: {error}") from None


def write(path: Path, mdp: FiniteMDP) -> None:
    """Write the transitions, numbered from 1, as MDPs.jl reads them."""
    rows = [(s + 1, a + 1, t + 1, p, r) for s, a, t, p, r in entries_of_model(path, mdp)]
    write_csv(path, _COLUMNS, rows)
    held = mdp._fields()
    held["start"] = held["start"] if isinstance(mdp.start, np.ndarray) else mdp.start or None
    lost = [name for name in ("start", "state_names", "action_names", "unit", "title") if held.get(name) is not None]
    if lost:
        warnings.warn(
            f"{path} does not hold {', '.join(lost)} of the model: the format has no place for it", stacklevel=4
        )
