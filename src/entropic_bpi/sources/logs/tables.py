"""Tables of any origin in DuckDB: every value is read exactly, or an error is raised.

DuckDB guesses how to read data, which is not safe enough for evidence: it drops the first lines of a CSV file if they have
another number of columns, it makes quotes a part of a value if they appear late in the file, it reads ``log 1.csv`` for
``log [1].csv``, and it rounds numbers of types that it does not have. So nothing is guessed here.
"""

import csv
import glob
import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import shown

_CLOSED = ("autoinstall_known_extensions", "autoload_known_extensions", "python_enable_replacements")
# Every column is text, so that no label is changed ('007'), and errors can name the line of an invalid entry.
_DIALECT = "auto_detect = false, delim = ',', quote = '\"', escape = '\"', header = true, nullstr = ''"
_PARQUET, _JSON = (".parquet", ".pq"), (".jsonl", ".ndjson", ".json")


class Table:
    """The table ``data`` in its own DuckDB database, which has no access to other data.

    Attributes
    ----------
    name : str
        Name of the file, or the type of the data.
    text : bool
        Whether all values are text, as in CSV files.
    rounded : set of str
        Columns of Parquet files whose values DuckDB may have rounded.
    """

    def __init__(self, data: Any) -> None:
        self.duckdb = module_of_extra("duckdb", "logs", "a log")
        self.connection = self.duckdb.connect(config=dict.fromkeys(_CLOSED, "false"))
        self.data, self.name, self.text = data, type(data).__name__, False
        self.rounded: set[str] = set()
        self._lines: int | None = None
        self._objects: dict[str, Any] = {}  # columns of arbitrary Python objects

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()

    def _one(self, query: str) -> Any:
        return self.fetch(query)[0][0]

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table or view, with their types."""
        return {name: kind for name, kind, *_ in self.fetch(f"DESCRIBE FROM {table}")}

    def load(self, roles: Mapping[str, Any] | None) -> None:
        """Create the table ``data`` with the columns of these roles, or all columns, and lock the database."""
        if isinstance(self.data, (str, os.PathLike)):
            self._open_files(os.fsdecode(self.data))
        else:
            self._register(_as_columns(self.data))
        wanted = "*"
        if roles is not None:
            self.check_columns(roles, "given")
            wanted = ", ".join(dict.fromkeys(map(quoted, roles.values())))
        self.connection.execute(f"CREATE TEMP TABLE data AS SELECT {wanted} FROM given")
        self.connection.unregister("given")
        read = self._one("SELECT count(*) FROM data")
        if self._lines not in (None, read):
            raise ValueError(f"it has {self._lines} lines after the first, but {read} were read")
        self._refuse_merged_values()
        self.connection.execute("SET enable_external_access = false; SET lock_configuration = true")

    def check_columns(self, roles: Mapping[str, Any], table: str) -> None:
        known = self.columns(table)
        for role, column in roles.items():
            if not isinstance(column, str) or column not in known:
                has = ", ".join(known)
                raise InvalidProblemError(f"{role}={shown(column)} is not a column of {self.name}, which has {has}")

    def check_select(self, name: str, expected: str, text: Any, query: str) -> None:
        """Raise an error unless ``query`` is one SELECT statement."""
        statements = self.connection.extract_statements(query) if isinstance(text, str) else []
        if [statement.type for statement in statements] != [self.duckdb.StatementType.SELECT]:
            raise InvalidProblemError(f"{name} must be {expected}, got {shown(text)}")

    # -- data from users -----------------------------------------------------------------------------------------------

    def _register(self, columns: Any) -> None:
        self.data = columns
        self.connection.register("given", columns)
        names = columns if isinstance(columns, dict) else columns.columns if hasattr(columns, "dtypes") else ()
        kinds = {name: str(getattr(columns[name], "dtype", "")) for name in names}
        self._objects = {str(name): columns[name] for name, kind in kinds.items() if kind == "object"}

    def _view(self, query: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW given AS {query}")

    def _open_files(self, path: str) -> None:
        self.name = Path(path).name
        found = [path] if os.path.isfile(path) else glob.glob(path, recursive=True)
        if os.path.isdir(path):
            found = glob.glob(os.path.join(glob.escape(path), "**", "*.parquet"), recursive=True)
        paths = sorted(filter(os.path.isfile, found))
        if not paths:
            raise FileNotFoundError(f"there is no file {shown(path)}; only local files are read, and SQL is query=")
        # DuckDB interprets a path as a pattern, and one that begins with a protocol as an address in the network.
        given = [_text(glob.escape(os.path.abspath(path))) for path in paths]
        if all(path.lower().endswith(_PARQUET) for path in paths):
            self._open_parquet(given)
        elif all(path.lower().removesuffix(".gz").endswith(_JSON) for path in paths):
            self._register(_rows_as_columns(row for path in paths for row in json_rows(path)))
        else:
            self._open_csv(paths, given)

    def _open_csv(self, paths: list[str], given: list[str]) -> None:
        """Open CSV files of one dialect: commas, double quotes, doubled inside quotes, and names in the first line."""
        headers, lines = zip(*map(_lines_of, paths), strict=True)
        names = [name or f"column{i}" for i, name in enumerate(headers[0])]
        if not names or len({name.lower() for name in names}) < len(names) or len(set(headers)) > 1:
            raise ValueError("the first line must name the columns, each name once, and the same in all files")
        packed = {path.lower().endswith(".gz") for path in paths}
        if len(packed) > 1:
            raise ValueError("some files are compressed and others are not")
        self.text, self._lines = True, sum(lines)
        columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
        options = f"compression = '{'gzip' if packed == {True} else 'none'}', hive_partitioning = false"
        self._view(f"FROM read_csv([{', '.join(given)}], {_DIALECT}, {options}, columns = {{{columns}}})")

    def _open_parquet(self, given: list[str]) -> None:
        # DuckDB would convert the columns of one file to the types of another.
        kinds = []
        for files in (*([path] for path in given[1:]), given):
            self._view(f"FROM read_parquet([{', '.join(files)}], hive_partitioning = false)")
            kinds.append(self.columns("given"))
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError("the files have different columns, or columns of different types")
        # DuckDB converts decimals that are too long to doubles, and times of the old type INT96 lose their nanoseconds.
        rounded = f"FROM parquet_schema([{', '.join(given)}]) SELECT name WHERE type = 'INT96' OR precision > 38"
        self.rounded = {name for (name,) in self.fetch(rounded)}

    def _refuse_merged_values(self) -> None:
        """Raise an error if DuckDB made different Python objects of a column equal, such as 1 and '1'."""
        for name in self._objects.keys() & self.columns("data").keys():
            try:
                different = set(self._objects[name])
            except TypeError:  # lists and dictionaries
                different = set(map(hashable, self._objects[name]))
            known = [value for value in different if value is not None and str(value != value) == "False"]
            if self._one(f"SELECT count(DISTINCT {quoted(name)}) FROM data") < len(known):
                raise ValueError(f"column {name} has different values that DuckDB makes equal: give it one type")


def _opened(path: str) -> Any:
    """Open a text file, compressed or not."""
    return (gzip.open if path.lower().endswith(".gz") else open)(path, "rt", encoding="utf-8-sig", newline="")


def _lines_of(path: str) -> tuple[tuple[str, ...], int]:
    """Return the names in the first line of a CSV file, and the number of lines after it, without empty ones."""
    with _opened(path) as file:
        lines = csv.reader(file, strict=True)
        try:
            return tuple(next(lines, ())), sum(map(bool, lines))
        except csv.Error as error:
            raise ValueError(f"not a CSV file with commas and double quotes: {error}") from None


def json_rows(path: str) -> Iterable[tuple[str, Any]]:
    """Yield the objects of a file of JSON lines, or of one JSON list, each with a description of its place."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.lstrip().startswith("["):
                yield from ((f"entry {i} of the list", row) for i, row in enumerate(json.loads(line + file.read()), 1))
                return
            if line.strip():
                try:
                    yield f"line {number}", json.loads(line)
                except ValueError as error:
                    raise ValueError(f"line {number} is not a JSON object: {error}") from None


# -- tables of Python --------------------------------------------------------------------------------------------------


def _as_columns(data: Any) -> Any:
    """Return dictionaries, rows and arrays as a dictionary of arrays; other data, such as frames, unchanged."""
    if isinstance(data, Mapping):
        return {str(name): _array(values, f"column {name}") for name, values in data.items()}
    if isinstance(data, (list, tuple)):
        return _rows_as_columns((f"row {i}", row) for i, row in enumerate(data, 1))
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise ValueError("an array has no column names: give a dictionary, such as {'episode': array[:, 0], …}")
        return {name: data[name] for name in data.dtype.names}
    return data


def _rows_as_columns(rows: Iterable[tuple[str, Any]]) -> dict[str, np.ndarray]:
    """Return the columns of rows; each row is a description of its place and a dictionary, with the same keys in all."""
    columns: dict[str, list[Any]] = {}
    for place, row in rows:
        if not isinstance(row, Mapping) or not row:
            raise ValueError(f"{place} must be a dictionary with a value for each column, got {shown(row)}")
        if str(row.get("type")) in ("SampleBatch", "MultiAgentBatch"):
            raise ValueError(f"{place} is a batch of RLlib: read it with eb.Log.from_rllib(path)")
        columns = columns or {str(name): [] for name in row}
        if {str(name) for name in row} != columns.keys():
            raise ValueError(f"{place} has the keys {', '.join(map(str, row))}, the first has {', '.join(columns)}")
        for name, value in row.items():
            columns[str(name)].append(value)
    if not columns:
        raise ValueError("it has no rows")
    return {name: _array(values, f"column {name}") for name, values in columns.items()}


def _array(values: Any, what: str) -> np.ndarray:
    """Return values of one plain type as an array of that type, and other values as objects, so that none is changed."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"{what} must have one axis, got shape {values.shape}; several columns can make one state")
        return values
    try:
        listed = list(values)
    except TypeError:
        raise ValueError(f"{what} must be an array or a list, got {shown(values)}") from None
    kinds = set(map(type, listed))
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        array = np.array(listed)
        if array.dtype.kind in "biufU":
            return array
    result = np.empty(len(listed), dtype=object)
    result[:] = listed
    return result


def hashable(label: Any) -> Any:
    """Return a label in hashable form: arrays, lists and the values of dictionaries as tuples."""
    if isinstance(label, dict):
        label = list(label.values())
    elif isinstance(label, np.ndarray):
        label = label.tolist()
    return tuple(map(hashable, label)) if isinstance(label, list | tuple) else label


def quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
