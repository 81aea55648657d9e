"""The results file: what goes in comes out, and what is not ours is never touched."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor

import duckdb
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.lab.experiments import StoreError, export, grid, load, run
from entropic_bpi.lab.experiments.store import FILE_NAME, Outcome, Store


def outcome(i, n=100):
    columns = {"episodes": n, "regret": float(i), "true_gap": 0.25, "policy_changes": i}
    return Outcome(columns, {"episodes": np.arange(1, n + 1), "regret": np.linspace(0, i, n)}, 0.5)


def runs(n):
    return grid(learner="rsq", beta=1.0, episodes=100, seeds=n)


def fill(folder, n=3):
    with Store(folder) as store:
        for i, spec in enumerate(runs(n)):
            store.record(spec, outcome(i))
    return folder / FILE_NAME


def content(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_recorded_is_read_back(tmp_path):
    fill(tmp_path)
    results = load(tmp_path)
    assert results.runs["id"].tolist() == [spec.id for spec in runs(3)]
    assert results.runs["regret"].tolist() == [0.0, 1.0, 2.0]
    assert np.isnan(results.runs["gap"]).all()
    assert results.runs["error"].tolist() == [None] * 3
    assert "numba=" in results.runs["versions"][0]
    assert len(results.curves["regret"]) == 300
    assert len(results.curve(1)["regret"]) == 100
    assert results.curve(2)["regret"][-1] == 2.0
    chosen = results.select(runs(3)[1:])
    assert chosen.runs["seed"].tolist() == [1, 2]
    assert chosen.curve(0)["regret"][-1] == 1.0
    assert len(chosen.curves["run"]) == 200


def test_recording_again_replaces(tmp_path):
    fill(tmp_path)
    with Store(tmp_path) as store:
        store.record(runs(1)[0], Outcome({}, {}, 0.0, "ValueError: no"))
        assert store.finished() == {spec.hash for spec in runs(3)[1:]}
        assert store.known() == {spec.hash for spec in runs(3)}
    results = load(tmp_path)
    assert results.runs["error"][0] == "ValueError: no"
    assert len(results.curves["regret"]) == 200


def saves(monkeypatch):
    """The numbers of runs that are written together, one for each transaction."""
    written, real = [], Store._insert

    def insert(self, table, columns):
        if table == "runs":
            written.append(len(columns["hash"]))
        real(self, table, columns)

    monkeypatch.setattr(Store, "_insert", insert)
    return written


def timed(seconds, error=None):
    return Outcome({"episodes": 1}, {"episodes": np.array([1]), "gap": np.array([np.inf])}, seconds, error)


def test_quick_runs_share_a_transaction_and_long_ones_are_written_at_once(tmp_path, monkeypatch):
    written = saves(monkeypatch)
    with Store(tmp_path) as store:
        for spec, seconds in zip(runs(9), [0.1] * 5 + [3600.0] + [0.1] * 3, strict=True):
            store.record(spec, timed(seconds))
    assert written == [6, 3]
    assert load(tmp_path).runs["id"].tolist() == [spec.id for spec in runs(9)]
    assert len(load(tmp_path).curves["gap"]) == 9


def test_what_waits_to_be_written_took_less_than_a_second(tmp_path, monkeypatch):
    written = saves(monkeypatch)
    rng = np.random.default_rng(0)
    recorded = []
    with Store(tmp_path) as store:
        for spec in runs(100):
            recorded.append(float(rng.exponential(0.2)))
            store.record(spec, timed(recorded[-1]))
            assert sum(recorded[sum(written) :]) < 1


def test_an_error_of_a_run_is_written_at_once_and_one_of_the_driver_loses_nothing(tmp_path, monkeypatch):
    written = saves(monkeypatch)
    with pytest.raises(KeyboardInterrupt), Store(tmp_path) as store:  # noqa: PT012
        store.record(runs(3)[0], timed(0.0, "ValueError: no"))
        assert written == [1]
        store.record(runs(3)[1], timed(0.0))
        store.record(runs(3)[0], timed(0.0))  # tried again
        assert store.known() == {spec.hash for spec in runs(2)}
        raise KeyboardInterrupt
    assert load(tmp_path).runs["error"].tolist() == [None, None]
    assert written == [1, 2]


def test_pandas_gets_both_tables(tmp_path):
    pandas = pytest.importorskip("pandas")
    fill(tmp_path)
    table, curves = load(tmp_path).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert curves.groupby("id").regret.max().tolist() == [0.0, 1.0, 2.0]


def test_export_writes_parquet_and_csv_that_agree(tmp_path):
    files = export(fill(tmp_path), tmp_path / "it's out")
    assert {file.name for file in files} == {
        f"{t}.{k}" for t in ("runs", "curves", "timings") for k in ("parquet", "csv")
    }
    for table, rows in (("runs", 3), ("curves", 300), ("timings", 3)):
        counts = [
            duckdb.sql(f"SELECT count(*) FROM '{str(file).replace(chr(39), chr(39) * 2)}'").fetchall()[0][0]
            for file in files
            if file.stem == table
        ]
        assert counts == [rows, rows]
    with pytest.raises(eb.InvalidProblemError, match="parquet, csv; got"):
        export(tmp_path, tmp_path / "out", ["xlsx"])


@pytest.mark.parametrize("bytes_", [b"", b"not a database" * 1000], ids=["empty", "text"])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, bytes_):
    path = tmp_path / FILE_NAME
    path.write_bytes(bytes_)
    for use in (load, Store):
        with pytest.raises(StoreError, match="not a valid DuckDB"):
            use(tmp_path)
    assert path.read_bytes() == bytes_
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / FILE_NAME
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE meta (a INTEGER); CREATE TABLE runs (b INTEGER); CREATE TABLE precious (c INTEGER)"
        )
    before = content(path)
    for use in (load, Store, lambda folder: run(runs(1), folder, workers=0)):
        with pytest.raises(StoreError, match="not a results file"):
            use(tmp_path)
    assert content(path) == before


def test_a_newer_format_is_refused(tmp_path):
    path = fill(tmp_path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    with pytest.raises(StoreError, match="version 99"):
        load(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, damage):
    with Store(tmp_path) as store:
        for i, spec in enumerate(runs(8)):
            store.record(spec, outcome(i, 5000))
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:half] if damage == "truncated" else whole[:half] + b"x" * 5000 + whole[half + 5000 :])
    before = content(path)
    with pytest.raises(StoreError, match=str(path)):
        Store(tmp_path)
    assert content(path) == before


def test_two_drivers_at_once_are_told(tmp_path):
    script = f"from entropic_bpi.lab.experiments.store import Store; Store({str(tmp_path)!r})"
    with Store(tmp_path):
        second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "another process is using it" in second.stderr


def test_a_driver_that_starts_while_a_store_is_made_is_told_and_loses_nothing(tmp_path, monkeypatch):
    script = textwrap.dedent(f"""
        from entropic_bpi.lab.experiments import grid
        from entropic_bpi.lab.experiments.store import Outcome, Store
        with Store({str(tmp_path)!r}) as store:
            store.record(grid(learner="rsq", beta=1.0, episodes=100, seeds=1)[0], Outcome({{}}, {{}}, 0.0))
    """)
    replace, second = os.replace, []

    def replace_after_the_other(*paths):
        words = [sys.executable, "-c", script]
        second.append(subprocess.run(words, capture_output=True, text=True, timeout=60, check=False))
        replace(*paths)

    monkeypatch.setattr(os, "replace", replace_after_the_other)
    with Store(tmp_path):
        pass
    assert len(second) == 1
    assert "another process is using it" in second[0].stderr
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def record_one(folder, seed, barrier):
    """In a process: record a run in each of the stores, all created at the same moment as the other process does."""
    recorded = []
    for number in range(ROUNDS):
        barrier.wait(60)
        try:
            with Store(folder / str(number)) as store:
                store.record(runs(2)[seed], outcome(1))
            recorded.append(number)
        except StoreError as error:
            if "another process is using it" not in str(error):
                raise
    return recorded


ROUNDS = 8


@pytest.mark.slow
@pytest.mark.sample
def test_stores_made_by_two_processes_at_the_same_moment_keep_what_was_recorded(tmp_path):
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(2, context) as pool:
        barrier = manager.Barrier(2)
        recorded = [pool.submit(record_one, tmp_path, seed, barrier) for seed in (0, 1)]
        recorded = [future.result(120) for future in recorded]
    for number in range(ROUNDS):
        expected = [runs(2)[seed].id for seed in (0, 1) if number in recorded[seed]]
        assert expected
        assert load(tmp_path / str(number)).runs["id"].tolist() == expected


def test_no_results_is_a_clear_error(tmp_path):
    with pytest.raises(StoreError, match="no results"):
        load(tmp_path)


@pytest.mark.parametrize("room", [1000, 12_288, 300_000])
def test_a_disk_that_fills_while_the_store_is_made_leaves_none(tmp_path, room):
    script = textwrap.dedent(f"""
        import resource
        from entropic_bpi.lab.experiments.store import Store
        resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
        Store({str(tmp_path)!r})
    """)
    full = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert f"StoreError: cannot create {tmp_path / FILE_NAME}" in full.stderr
    assert list(tmp_path.iterdir()) == []
    fill(tmp_path)  # once there is room again
    assert len(load(tmp_path).runs["id"]) == 3


def test_a_full_disk_is_a_clear_error_and_what_was_recorded_stays(tmp_path):
    script = tmp_path / "fill.py"
    script.write_text(
        textwrap.dedent(f"""
        import resource, sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from entropic_bpi.lab.experiments import StoreError, grid
        from entropic_bpi.lab.experiments.store import Outcome, Store
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        rng = np.random.default_rng(0)
        try:
            with Store({str(tmp_path / "out")!r}) as store:
                for spec in grid(learner="rsq", beta=1.0, episodes=100, seeds=100):
                    curve = dict(episodes=np.arange(5000), regret=rng.random(5000))
                    store.record(spec, Outcome(dict(episodes=5000, regret=1.0), curve, 1.0))
                    print(spec.id, flush=True)
        except StoreError as error:
            print(error, file=sys.stderr)
            sys.exit(7)
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 7, done.stderr
    assert "cannot write" in done.stderr
    recorded = done.stdout.split()
    assert 1 <= len(recorded) < 100
    results = load(tmp_path / "out")
    assert sorted(results.runs["id"]) == sorted(recorded)
    assert len(results.curves["regret"]) == 5000 * len(recorded)
    with Store(tmp_path / "out") as store:  # and it can be written again
        store.record(runs(100)[99], outcome(1))
