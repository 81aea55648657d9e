"""Tables in any form as something that DuckDB reads without guessing: a frame of Arrow's, or a dictionary of arrays."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from entropic_bpi.tools.text import shown

_PLAIN = (bool, int, float, str)


def as_columns(data: Any) -> Any:
    """Return dictionaries, rows and arrays as a dictionary of arrays; frames of other libraries as one that DuckDB knows."""
    if isinstance(data, Mapping):
        return {str(name): _array(values, f"column {name}") for name, values in data.items()}
    if isinstance(data, (list, tuple)):
        return rows_as_columns((f"row {i}", row) for i, row in enumerate(data, 1))
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise ValueError("an array has no names of columns: give a dictionary, such as {'episode': array[:, 0], …}")
        return {name: data[name] for name in data.dtype.names}
    if hasattr(data, "__dataframe__") and not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):
        try:
            from pandas.api.interchange import from_dataframe
        except ImportError:
            raise ValueError(
                f"a {type(data).__name__} needs pandas: pip install pandas, or convert it to Arrow"
            ) from None
        return from_dataframe(data)
    return data


def rows_as_columns(rows: Iterable[tuple[str, Any]]) -> dict[str, np.ndarray]:
    """Return the columns of rows that are dictionaries, each with the words for its place; all must have the same keys."""
    columns: dict[str, list[Any]] = {}
    for number, (place, row) in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"{place} must be a dictionary with a value for each column, got {shown(row)}")
        if number == 0:
            columns = {str(name): [] for name in row}
        if {str(name) for name in row} != set(columns):
            raise ValueError(f"{place} has the keys {', '.join(map(str, row))}, the first has {', '.join(columns)}")
        for name, value in row.items():
            columns[str(name)].append(value)
    if not columns:
        raise ValueError("it has no rows")
    return {name: _array(values, f"column {name}") for name, values in columns.items()}


def _array(values: Any, what: str) -> np.ndarray:
    """Values of one plain type as an array of it; anything else as objects, so that none is changed."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"{what} must have one axis, got shape {values.shape}; several columns can make one state")
        return values
    try:
        listed = list(values)
    except TypeError:
        raise ValueError(f"{what} must be an array or a list, got {shown(values)}") from None
    kinds = set(map(type, listed))
    if len(kinds) == 1 and kinds <= set(_PLAIN):
        array = np.array(listed)
        if array.dtype.kind in "biufU":
            return array
    result = np.empty(len(listed), dtype=object)
    result[:] = listed
    return result


def opened(path: str) -> Any:
    """Open a text file, compressed or not."""
    return (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.lower().endswith(".gz")
        else open(path, encoding="utf-8-sig", newline="")
    )


def json_rows(path: str) -> Iterable[tuple[str, Any]]:
    """Yield the objects of a file of JSON lines, or of one JSON list, each with the words for its place."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.lstrip().startswith("["):
                yield from ((f"entry {i} of the list", row) for i, row in enumerate(json.loads(line + file.read()), 1))
                return
            if line.strip():
                try:
                    yield f"line {number}", json.loads(line)
                except ValueError as error:
                    raise ValueError(f"line {number} is not a JSON object: {error}") from None
