"""The CSV files of MDPs.jl, RiskMDPs.jl and CRAAM: a line for each transition; numbers start at 0 or at 1."""

import csv
import warnings
from pathlib import Path
from typing import Any

from entropic_bpi.model.formats.entries import Entries, Lines, entries_of_model
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.files import write_csv
from entropic_bpi.tools.text import shown

_COLUMNS = ("idstatefrom", "idaction", "idstateto", "probability", "reward")


def read(path: Path) -> dict[str, Any]:
    lines = Lines(path)
    table, entries = csv.reader(lines, strict=True), Entries(lines, first=(0, 1))
    try:
        header = [name.strip().lower() for name in next(table, [])]
        if any(header.count(name) != 1 for name in _COLUMNS):
            raise lines.fault(f"expected the columns {', '.join(_COLUMNS)}, got {shown(','.join(header))}")
        for cells in table:
            if len(cells) != len(header):
                raise lines.fault(f"expected {len(header)} cells, got {len(cells)}")
            texts = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
            state, action, successor = (lines.integer(name, texts[name]) for name in _COLUMNS[:3])
            probability, reward = (lines.real(name, texts[name]) for name in _COLUMNS[3:])
            entries.add(state, str(action), successor, probability, reward)
    except csv.Error as error:
        raise lines.fault(f"not a CSV file with commas and double quotes: {error}") from None
    return {"start": 0} | entries.fields()


def write(path: Path, mdp: FiniteMDP) -> None:
    """Write the transitions, numbered from 1, as MDPs.jl reads them."""
    entries = entries_of_model(path, mdp, any_start=True)
    write_csv(path, _COLUMNS, [(s + 1, a + 1, t + 1, p, r) for s, a, t, p, r in entries])
    held = mdp._fields() | ({"start": None} if isinstance(mdp.start, int) and mdp.start == 0 else {})
    names = ("start", "state_names", "action_names", "unit", "title")
    if lost := [name for name in names if held.get(name) is not None]:
        warnings.warn(f"{path} does not contain {', '.join(lost)}: the format has no field for it", stacklevel=4)
