"""The results of runs in one DuckDB file, which one process writes; a run is recorded as a whole or not at all.

Tables: ``runs`` has a row per run, ``curves`` its history, ``timings`` its time. The first two do not
depend on the order in which runs finished, so two complete sweeps on processors of one kind have equal tables; on another
kind the last digits of computed numbers may differ. Runs are known by hashes of their settings, never of their results.
The file gets its name only when it is a valid store. Runs are written when they are recorded; quick runs share a
transaction. If the process is killed, the file has every run that was written; computing the recorded runs that were not
written took less than :data:`AT_RISK_SECONDS` in total.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from entropic_bpi._version import __version__
from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.tools.checks import check_choice, check_list, check_path
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.files import locked, write_atomically

duckdb = module_of_extra("duckdb", "logs", "a file of results")
FILE_NAME = "results.duckdb"
FORMAT, FORMAT_VERSION = "entropic-bpi results", "2"
AT_RISK_SECONDS = 1.0

# Outcomes of a run, in the order of the columns of ``runs``; those that do not apply are NULL.
OUTCOMES = {
    "episodes": "BIGINT",
    "stopped": "BOOLEAN",
    "lower": "DOUBLE",
    "upper": "DOUBLE",
    "gap": "DOUBLE",
    "true_gap": "DOUBLE",
    "regret": "DOUBLE",
    "policy_changes": "BIGINT",
    "policy": "VARCHAR",
    "claim_holds": "BOOLEAN",
    "failed_events": "VARCHAR",
}
CURVES = ("episodes", "lower", "upper", "gap", "regret")

_SCHEMA = f"""
    CREATE TABLE meta (name VARCHAR PRIMARY KEY, value VARCHAR);
    INSERT INTO meta VALUES ('format', '{FORMAT}'), ('version', '{FORMAT_VERSION}');
    CREATE TABLE runs (
        hash VARCHAR PRIMARY KEY, id VARCHAR, instance VARCHAR, horizon BIGINT, kind VARCHAR, algorithm VARCHAR,
        beta DOUBLE, seed BIGINT, spec VARCHAR, model VARCHAR, versions VARCHAR, error VARCHAR,
        {", ".join(f"{name} {kind}" for name, kind in OUTCOMES.items())}
    );
    CREATE TABLE curves (hash VARCHAR, episodes BIGINT, lower DOUBLE, upper DOUBLE, gap DOUBLE, regret DOUBLE);
    CREATE TABLE timings (hash VARCHAR PRIMARY KEY, seconds DOUBLE);
"""
_ORDER = "ORDER BY instance, horizon, kind, algorithm, beta, id, hash"
_CURVES = f"""
    SELECT run, {", ".join(f"curves.{name}" for name in CURVES)}
    FROM curves JOIN (SELECT hash, row_number() OVER ({_ORDER}) - 1 AS run FROM runs) USING (hash)
    ORDER BY run, curves.episodes
"""
_QUERIES = {
    "runs": f"SELECT * FROM runs {_ORDER}",
    "curves": "SELECT id, curves.* FROM curves JOIN runs USING (hash) ORDER BY id, curves.episodes",
    "timings": "SELECT id, timings.* FROM timings JOIN runs USING (hash) ORDER BY id",
}


class StoreError(EntropicBPIError, ValueError):
    """A results file cannot be read or written, or has another format."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a run: values for the columns of ``runs``, arrays for ``curves``, or the error that ended it."""

    columns: dict[str, Any]
    curve: dict[str, np.ndarray]
    seconds: float
    error: str | None = None


@cache
def versions() -> str:
    """Return the versions that a result may depend on besides its spec and the kind of processor."""
    used = {"entropic-bpi": __version__, "python": platform.python_version()}
    used |= {name: version(name) for name in ("numba", "numpy", "scipy")}
    return " ".join(f"{name}={number}" for name, number in used.items())


class Store:
    """A results file that is open for writing; use it in a ``with`` block."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / FILE_NAME
        with ExitStack() as lock:
            with _translated("open", self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock.enter_context(locked(self.path.parent))
            if not self.path.exists():
                _create(self.path)
            with _readable(self.path) as connection:  # another file must not even be opened for writing
                _check_content(connection, self.path)
            with _translated("open", self.path):
                self.connection = duckdb.connect(str(self.path))
            self._waiting: dict[str, tuple[RunSpec, Outcome]] = {}
            self._known = self._hashes("SELECT hash FROM runs")
            self._lock = lock.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            with self._lock, _translated("close", self.path), self.connection:
                self.save()
        except StoreError:
            if error[0] is None:
                raise

    def finished(self) -> set[str]:
        """Return the hashes of the runs that are recorded without an error."""
        return self._hashes("SELECT hash FROM runs WHERE error IS NULL")

    def known(self) -> set[str]:
        """Return the hashes of all runs that are recorded."""
        return self._known | set(self._waiting)

    def _hashes(self, query: str) -> set[str]:
        self.save()
        with _translated("read", self.path):
            return {row[0] for row in self.connection.execute(query).fetchall()}

    def record(self, spec: RunSpec, outcome: Outcome) -> None:
        """Record a run, replacing an earlier record of it; quick runs may be written later."""
        self._waiting[spec.hash] = spec, outcome
        at_risk = sum(waiting.seconds for _, waiting in self._waiting.values())
        if outcome.error is not None or at_risk >= AT_RISK_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the recorded runs that are not written yet, in one transaction."""
        if not self._waiting:
            return
        hashes, runs = list(self._waiting), list(self._waiting.values())
        again = [name for name in hashes if name in self._known]
        with _translated("write", self.path):
            self.connection.begin()
            if again:
                self.connection.execute("DELETE FROM curves WHERE hash IN (SELECT unnest(?))", [again])
            self._insert("runs", _columns([_row(spec, outcome) for spec, outcome in runs]))
            self._insert("timings", _columns([{"hash": spec.hash, "seconds": done.seconds} for spec, done in runs]))
            for curves in _curves(runs):
                self._insert("curves", curves)
            self.connection.commit()
        self._known |= set(hashes)
        self._waiting = {}

    def _insert(self, table: str, columns: dict[str, np.ndarray]) -> None:
        names = ", ".join(columns)
        self.connection.register("fresh", columns)
        replacing = "" if table == "curves" else "OR REPLACE"  # rows of curves have no key
        self.connection.execute(f"INSERT {replacing} INTO {table} ({names}) SELECT {names} FROM fresh")
        self.connection.unregister("fresh")


def _row(spec: RunSpec, outcome: Outcome) -> dict[str, Any]:
    return {
        "hash": spec.hash,
        "id": spec.id,
        "instance": spec.instance,
        "horizon": spec.mdp.horizon,
        "kind": spec.kind,
        "algorithm": spec.algorithm,
        "beta": spec.beta,
        "seed": spec.seed,
        "spec": spec.as_json,
        "model": spec.mdp.content_hash,
        "versions": versions(),
        "error": outcome.error,
        **dict.fromkeys(OUTCOMES),
        **{name: value.item() if isinstance(value, np.generic) else value for name, value in outcome.columns.items()},
    }


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows], dtype=object) for name in rows[0]}


def _curves(runs: Iterable[tuple[RunSpec, Outcome]]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the concatenated curves of the runs, for each set of columns that curves have."""
    alike: dict[tuple[str, ...], list[tuple[RunSpec, Outcome]]] = {}
    for spec, outcome in runs:
        if outcome.curve:
            alike.setdefault(tuple(outcome.curve), []).append((spec, outcome))
    for names, each in alike.items():
        lengths = [len(outcome.curve["episodes"]) for _, outcome in each]
        hashes = np.repeat(np.array([spec.hash for spec, _ in each], dtype=object), lengths)
        yield {"hash": hashes, **{name: np.concatenate([outcome.curve[name] for _, outcome in each]) for name in names}}


@dataclass(frozen=True, eq=False)
class Results:
    """A results file in memory.

    Attributes
    ----------
    runs : dict of arrays
        A column of the table of runs by name; numbers that do not apply are NaN.
    curves : dict of arrays
        ``run``, the row of the run in ``runs``, and its history: ``episodes``, ``lower``, ``upper``, ``gap``, ``regret``.
    """

    runs: dict[str, np.ndarray]
    curves: dict[str, np.ndarray]

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The settings of each run, which are those of its spec."""
        return [json.loads(spec) for spec in self.runs["spec"]]

    def select(self, specs: Iterable[RunSpec]) -> Results:
        """Return only the runs of a sweep."""
        wanted = {spec.hash for spec in specs}
        return self.where(np.array([name in wanted for name in self.runs["hash"]], dtype=bool))

    def where(self, chosen: np.ndarray) -> Results:
        """Return only the chosen runs, given by a mask over their rows."""
        kept, number = chosen[self.curves["run"]], np.cumsum(chosen) - 1
        curves = {name: values[kept] for name, values in self.curves.items()}
        return Results(
            {name: values[chosen] for name, values in self.runs.items()}, {**curves, "run": number[curves["run"]]}
        )

    def curve(self, run: int) -> dict[str, np.ndarray]:
        """Return the curve of the run in row ``run``."""
        first, last = np.searchsorted(self.curves["run"], [run, run + 1])
        return {name: values[first:last] for name, values in self.curves.items()}

    def to_pandas(self) -> tuple[Any, Any]:
        """Return both tables as pandas data frames (needs pandas)."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        curves = pandas.DataFrame({"id": self.runs["id"][self.curves["run"]], **self.curves})
        return pandas.DataFrame(self.runs), curves


def load(path: str | os.PathLike[str]) -> Results:
    """Read a results file, or the one in a folder.

    Parameters
    ----------
    path : path
        A file ``results.duckdb`` or its folder.

    Returns
    -------
    Results
        The tables of runs and curves.

    Examples
    --------
    >>> import tempfile
    >>> from entropic_bpi.lab import experiments
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = experiments.grid(horizon=5, method="kl", beta=-1, successors="model", seeds=2)
    ...     _ = experiments.run(runs, folder, workers=0)
    ...     results = experiments.load(folder)
    >>> bool((results.runs["true_gap"] <= results.runs["gap"]).all())
    True
    """
    path = _file(path)
    with _readable(path) as connection, _translated("read", path):
        tables = [connection.execute(query).fetchnumpy() for query in (_QUERIES["runs"], _CURVES)]
    return Results(*({name: _filled(column) for name, column in table.items()} for table in tables))


def export(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], formats: Iterable[str] = ("parquet", "csv")
) -> list[Path]:
    """Write the tables of a results file into a folder.

    Parameters
    ----------
    path : path
        A file ``results.duckdb`` or its folder.
    folder : path
        Folder for the tables; created if needed.
    formats : list of str
        ``"parquet"``, ``"csv"`` or both.

    Returns
    -------
    list of Path
        The files that were written.

    Examples
    --------
    >>> import tempfile
    >>> from entropic_bpi.lab import experiments
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = experiments.grid(horizon=5, learner="rsq", beta=-1, episodes=10, seeds=1)
    ...     _ = experiments.run(runs, folder, workers=0)
    ...     [file.name for file in experiments.export(folder, folder, ["csv"])]
    ['runs.csv', 'curves.csv', 'timings.csv']
    """
    path, folder = _file(path), check_path("folder", folder)
    formats = [check_choice("format", kind, ("parquet", "csv")) for kind in check_list("formats", formats)]
    with _readable(path) as connection, _translated("export", path):
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{table}.{kind}" for table in _QUERIES for kind in formats]
        for file in files:
            part = file.with_name(f".{file.name}.part")
            quoted = str(part).replace("'", "''")
            connection.execute(f"COPY ({_QUERIES[file.stem]}) TO '{quoted}' (FORMAT {file.suffix[1:]})")
            os.replace(part, file)
    return files


# -- the file --------------------------------------------------------------------------------------------------------


@contextmanager
def _translated(doing: str, path: Path) -> Iterator[None]:
    """Raise errors of DuckDB and of the system as a :class:`StoreError`; committed runs remain stored."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, BlockingIOError) or ("lock" in reason and "Conflicting" in reason):
            reason = "another process is using it"
        raise StoreError(f"cannot {doing} {path}: {reason}") from error


@contextmanager
def _readable(path: Path) -> Iterator[Any]:
    with _translated("open", path):
        connection = duckdb.connect(str(path), read_only=True)
    with connection:
        with _translated("read", path):
            tables = {
                name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
            }
            meta = dict(connection.execute("SELECT * FROM meta").fetchall()) if {"meta", "runs"} <= tables else {}
        if meta.get("format") != FORMAT:
            raise StoreError(f"{path} is a DuckDB file, but not a results file; it was not changed")
        if meta.get("version") != FORMAT_VERSION:
            raise StoreError(
                f"{path} has version {meta.get('version')} of the results format, this library reads {FORMAT_VERSION}"
            )
        yield connection


def _check_content(connection: Any, path: Path) -> None:
    """Read everything once, so that a damaged block is found before anything is written."""
    with _translated("read", path):
        for table in _QUERIES:
            connection.execute(f"SELECT bit_xor(hash({table})) FROM {table}").fetchall()


def _create(path: Path) -> None:
    """Create an empty store, as a whole or not at all. The caller holds the folder's lock."""
    with _translated("create", path), TemporaryDirectory() as elsewhere:
        fresh = Path(elsewhere) / path.name
        with duckdb.connect(str(fresh)) as connection:
            connection.execute(_SCHEMA)
            connection.execute("CHECKPOINT")  # closing does so too, but reports no error if the disk is full
        write_atomically(path, lambda file: file.write(fresh.read_bytes()))


def _file(path: str | os.PathLike[str]) -> Path:
    path = check_path("path", path)
    path = path / FILE_NAME if path.is_dir() else path
    if not path.exists():
        raise StoreError(f"there are no results at {path}")
    return path


def _filled(column: Any) -> np.ndarray:
    """Return a column without a mask: NaN for missing numbers, None for missing text."""
    if not np.ma.is_masked(column):
        return np.asarray(column)
    values = column.data.astype(float if column.dtype.kind in "iufb" else object)
    values[column.mask] = np.nan if values.dtype == float else None
    return values
