"""Sweeps survive: killed drivers and workers, runs that fail, other numbers of workers, and a cluster."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.lab.experiments import StoreError, engine, grid, load, run
from entropic_bpi.lab.experiments import runner as runner_module
from entropic_bpi.lab.experiments.store import Store

SWEEP = {"learner": "rsq", "beta": [-1.0, 1.0], "episodes": 3000, "seeds": 4, "horizon": 5}


def sweep():
    return grid(**SWEEP)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The sweep without any accident, in this process."""
    folder = tmp_path_factory.mktemp("whole")
    run(sweep(), folder, workers=0)
    return load(folder)


def assert_same(one, other):
    for mine, theirs in ((one.runs, other.runs), (one.curves, other.curves)):
        assert list(mine) == list(theirs)
        for name, values in mine.items():
            np.testing.assert_array_equal(values, theirs[name], err_msg=name)


def test_the_numbers_are_those_of_the_library(whole):
    alone = eb.run("rsq", eb.instances.risky_bridge(horizon=5), beta=1.0, episodes=3000, seed=2)
    mine = whole.runs["id"] == "risky_bridge/h5/beta=1/rsq/episodes=3000/seed=2"
    assert whole.runs["regret"][mine] == alone.regret[-1]
    np.testing.assert_array_equal(whole.curve(np.flatnonzero(mine)[0])["regret"], alone.regret)


def test_identification_is_recorded_with_its_history_and_its_true_gap(tmp_path):
    runs = grid(horizon=5, method="kl", beta=-1, successors="model", eps=0.5, seeds=1)
    results = run(runs, tmp_path, workers=0)
    bridge = eb.instances.risky_bridge(horizon=5)
    alone = eb.identify(bridge, beta=-1, eps=0.5, delta=0.1, successors="model", seed=0)
    assert results.runs["episodes"][0] == alone.episodes
    assert results.runs["stopped"][0]
    assert 0 <= results.runs["true_gap"][0] <= results.runs["gap"][0] == alone.certificate.gap
    np.testing.assert_array_equal(results.curves["upper"], alone.history["upper"])


def test_workers_do_not_change_a_bit(whole, tmp_path):
    run(sweep(), tmp_path, workers=2)
    assert_same(load(tmp_path), whole)


def test_existing_runs_are_kept_only_on_request(whole, tmp_path, monkeypatch):
    run(sweep()[:3], tmp_path, workers=0)
    with pytest.raises(StoreError, match="already holds"):
        run(sweep(), tmp_path, workers=0)
    computed = []
    real = runner_module.execute
    monkeypatch.setattr(runner_module, "execute", lambda spec: computed.append(spec.hash) or real(spec))
    run(sweep(), tmp_path, workers=0, resume=True)
    assert computed == [spec.hash for spec in sweep()[3:]]
    assert_same(load(tmp_path), whole)


def test_a_run_that_is_not_stored_in_the_end_is_an_error(tmp_path, monkeypatch):
    real, lost = Store.record, sweep()[1].hash
    monkeypatch.setattr(
        Store, "record", lambda self, spec, outcome: None if spec.hash == lost else real(self, spec, outcome)
    )
    with pytest.raises(StoreError, match="1 of the 3 runs asked for"):
        run(sweep()[:3], tmp_path, workers=0)


@pytest.mark.slow
def test_a_killed_driver_loses_only_the_runs_in_flight_and_a_second_of_work(whole, tmp_path):
    script = tmp_path / "drive.py"
    script.write_text(
        textwrap.dedent(f"""
        import json, multiprocessing
        from entropic_bpi.lab.experiments import grid, run
        from entropic_bpi.lab.experiments.store import Store

        if __name__ == "__main__":
            real = Store.record
            def record(self, spec, outcome):
                real(self, spec, outcome)
                print(json.dumps([sorted(self._known), [p.pid for p in multiprocessing.active_children()]]), flush=True)
            Store.record = record
            run(grid(**{SWEEP!r}), {str(tmp_path / "out")!r}, workers=2)
        """)
    )
    driver = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    lines = [json.loads(driver.stdout.readline()) for _ in range(3)]
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    rest = [json.loads(line) for line in driver.stdout.read().splitlines()]
    driver.stdout.close()
    for worker in lines[0][1]:
        wait_until_gone(worker)
    with Store(tmp_path / "out") as store:
        known = store.known()
    assert known >= {name for written, _ in lines + rest for name in written}
    assert len(known) < len(sweep())
    run(sweep(), tmp_path / "out", workers=0, resume=True)
    assert_same(load(tmp_path / "out"), whole)


def wait_until_gone(pid):
    """A worker without a driver ends by itself."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"worker {pid} outlived its driver")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_driver_in_the_middle_of_a_run(tmp_path, sent):
    script = tmp_path / "drive.py"
    endless = {**SWEEP, "learner": "rovi", "episodes": 10**12}
    script.write_text(
        textwrap.dedent(f"""
        from concurrent.futures import ProcessPoolExecutor
        from entropic_bpi.lab.experiments import grid, run

        class Told(ProcessPoolExecutor):
            def submit(self, *call):
                print("started", flush=True)
                return super().submit(*call)

        if __name__ == "__main__":
            from entropic_bpi.lab.experiments import workers

            workers.ProcessPoolExecutor = Told
            run(grid(**{endless!r}), {str(tmp_path / "out")!r}, workers=2)
        """)
    )
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        for _ in range(3):
            assert driver.stdout.readline() == "started\n"
        time.sleep(1)  # into compiled code, or its compilation
        driver.send_signal(sent)  # to the driver alone
        driver.wait(20)
        until = time.monotonic() + 20
        while group_exists(driver.pid) and time.monotonic() < until:
            time.sleep(0.05)
        outlived = group_exists(driver.pid)
        if outlived:
            os.killpg(driver.pid, signal.SIGKILL)
    assert not outlived


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_killed_worker_is_replaced(whole, tmp_path, monkeypatch):
    real, killed = Store.record, []

    def record(self, spec, outcome):
        real(self, spec, outcome)
        if not killed:
            killed.append(multiprocessing.active_children()[0])
            os.kill(killed[0].pid, signal.SIGKILL)

    monkeypatch.setattr(Store, "record", record)
    run(sweep(), tmp_path, workers=2)
    assert killed[0].exitcode == -signal.SIGKILL
    assert_same(load(tmp_path), whole)


LEARNERS = """
import os
from pathlib import Path
from entropic_bpi.lab.learners import register

def deadly(game):
    os._exit(3)

def moody(game):
    if not Path(__file__).with_name("calm").exists():
        raise RuntimeError("not in the mood")
    def play(first, last):
        pass
    return play

register("deadly_learner", deadly)
register("moody_learner", moody)
"""


@pytest.fixture
def own_learners(tmp_path, monkeypatch):
    (tmp_path / "own_learners_of_a_test.py").write_text(LEARNERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("own_learners_of_a_test")
    yield
    from entropic_bpi.lab.learners._run import _REGISTERED

    for name in ("deadly_learner", "moody_learner"):
        _REGISTERED.pop(name, None)
    sys.modules.pop("own_learners_of_a_test", None)


@pytest.mark.slow
@pytest.mark.usefixtures("own_learners")
def test_failures_are_recorded_do_not_stop_the_rest_and_are_tried_again(tmp_path):
    bad = grid(learner=["deadly_learner", "moody_learner"], beta=1.0, episodes=10, seeds=1)
    good = grid(learner="rsq", beta=1.0, episodes=10, seeds=2)
    options = {"workers": 2, "imports": ["own_learners_of_a_test"]}
    results = run(bad + good, tmp_path, **options)
    errors = dict(zip(results.runs["algorithm"], results.runs["error"], strict=True))
    assert errors["deadly_learner"] == "the worker process died"
    assert errors["moody_learner"].startswith("RuntimeError: not in the mood (in moody, own_learners_of_a_test.py line")
    assert errors["rsq"] is None
    (tmp_path / "calm").touch()
    results = run(bad[1:] + good, tmp_path, resume=True, **options)
    assert results.runs["error"].tolist() == [None] * 3
    assert load(tmp_path).runs["error"].tolist().count(None) == 3


def test_bad_requests_are_clear_before_anything_is_computed(tmp_path):
    for wrong, words in (
        ({"workers": -1}, "workers"),
        ({"workers": 1, "scheduler": "tcp://127.0.0.1:1"}, "not both"),
        ({"imports": ["no_such_module_anywhere"]}, "no_such_module_anywhere"),
    ):
        with pytest.raises(eb.InvalidProblemError, match=words):
            run(sweep(), tmp_path, **wrong)
    assert not list(tmp_path.iterdir())


def test_progress_is_silent_where_there_is_no_terminal_and_tells_the_time_left_where_asked(
    tmp_path, capfd, monkeypatch
):
    for name in ("_FIRST_LINE_SECONDS", "_REFRESH_SECONDS"):
        monkeypatch.setattr(f"entropic_bpi.runs.progress.{name}", 0.0)
    run(sweep()[:1], tmp_path / "a", workers=0)
    assert capfd.readouterr().err == ""
    run(sweep()[:2], tmp_path / "b", workers=0, progress=True)
    shown = capfd.readouterr().err
    assert "2 of 2 runs" in shown
    assert "left" in shown


@pytest.mark.slow
def test_a_script_without_the_guard_is_told_so(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        f"from entropic_bpi.lab.experiments import grid, run\nrun(grid(**{SWEEP!r}), {str(tmp_path)!r}, workers=1)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_rows(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, local_directory=str(tmp_path)
    ) as cluster:
        run(sweep(), tmp_path / "out", scheduler=cluster.scheduler_address)
    assert_same(load(tmp_path / "out"), whole)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_worker_that_joins_late_imports_what_it_needs(tmp_path, monkeypatch, own_learners):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "calm").touch()
    runs = grid(learner="moody_learner", beta=1.0, episodes=10, seeds=2)
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, local_directory=str(tmp_path)
    ) as cluster:
        joined = distributed.as_completed

        def join_and_wait(*tasks, **options):
            cluster.scale(1)
            return joined(*tasks, **options)

        monkeypatch.setattr(distributed, "as_completed", join_and_wait)
        results = run(runs, tmp_path / "out", scheduler=cluster.scheduler_address, imports=["own_learners_of_a_test"])
    assert results.runs["error"].tolist() == [None, None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lost_scheduler_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capfd):
    distributed = pytest.importorskip("distributed")
    (tmp_path / "sweep.toml").write_text('[[runs]]\nlearner = "rsq"\nbeta = 1.0\nepisodes = 10\nseeds = 2\n')
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen([*words, "--no-dashboard"], stderr=subprocess.PIPE, text=True) as scheduler:
        address = next(found[0] for line in scheduler.stderr if (found := re.search(r"tcp://[\d.:]+", line)))
        waited = distributed.as_completed

        def lose_and_wait(*tasks, **options):
            scheduler.kill()
            return waited(*tasks, **options)

        monkeypatch.setattr(distributed, "as_completed", lose_and_wait)
        words = ["sweep", tmp_path / "sweep.toml", "--out", tmp_path / "out", "--scheduler", address]
        result = CliRunner().invoke(cli.app, [*map(str, words)], prog_name="entropic-bpi")
    assert result.exit_code == 2
    assert result.output.startswith(f"entropic-bpi: the Dask scheduler at {address} was lost")
    assert result.output.count("\n") == 1
    assert capfd.readouterr().err == ""


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_does_not_answer_is_a_clear_error(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engine, "SCHEDULER_SECONDS", 0.5)
    with pytest.raises(eb.InvalidProblemError, match="no Dask scheduler answers"):
        run(sweep(), tmp_path, scheduler="tcp://127.0.0.1:9")
