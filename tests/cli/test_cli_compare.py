"""``entropic-bpi compare``: learners side by side."""

import csv
import os
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.lab.compare import compare_regret, confidence

COMMAND = str(Path(sysconfig.get_path("scripts")) / "entropic-bpi")
SMALL = ["-p", "n_states=3", "-p", "n_actions=2", "-p", "branching=2", "-p", "horizon=3", "-p", "seed=0"]


def invoke(*words):
    return CliRunner().invoke(cli.app, ["compare", *map(str, words)], prog_name="entropic-bpi")


def table(path):
    with open(path) as file:
        return list(csv.DictReader(file))


# -- regret ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sample
def test_processes_give_the_regret_of_the_library(tmp_path):
    words = ["risky-bridge", "--beta", "1.5", "--episodes", "300", "--scale", "0.1", "--learners", "rsvi2, rovi"]
    words = [COMMAND, "compare", *words, "--seeds", "2", "--workers", "2", "--out", "regret"]
    bridge, learners = eb.instances.risky_bridge(), ("rsvi2", "rovi")
    # These runs compile what the two processes would compile at the same moment.
    options = {"beta": 1.5, "episodes": 300, "scale": 0.1}
    runs = {(name, seed): eb.run(name, bridge, **options, seed=seed) for name in learners for seed in range(2)}
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    rows = table(tmp_path / "regret" / "regret.csv")
    for learner in learners:
        finals = []
        for seed in range(2):
            run = runs[learner, seed]
            mine = [row for row in rows if (row["learner"], row["seed"]) == (learner, str(seed))]
            assert [int(row["episodes"]) for row in mine] == run.grid.tolist()
            assert [float(row["regret"]) for row in mine] == run.regret.tolist()
            finals.append(run.regret[-1])
        mean, half = confidence(finals)
        assert [learner, f"{mean:.6g}", f"{mean - half:.6g}", "to", f"{mean + half:.6g}"] in [
            line.split()[:5] for line in result.stdout.splitlines()
        ]
    picture = (tmp_path / "regret" / "regret.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_all_learners_by_default_and_nothing_is_overwritten(tmp_path):
    words = ["garnet", *SMALL, "--beta", "0", "--episodes", "50", "--seeds", "1", "--workers", "1", "--out", tmp_path]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert {row["learner"] for row in table(tmp_path / "regret.csv")} == set(eb.learners.names()) - {
        "entropic_bpi",
        "ucb_advantage",
    }
    assert "one seed" in result.output
    again = invoke(*words)
    assert again.exit_code == 2
    assert "already holds regret.csv, regret.png" in again.output


def test_the_confidence_interval_is_students():
    mean, half = confidence([[1.0, 5.0], [3.0, 5.0]])
    assert mean.tolist() == [2.0, 5.0]
    assert half == pytest.approx([12.706204736432095, 0.0])  # t(0.975, 1) times sqrt(2)/sqrt(2)
    assert np.isnan(confidence([1.0])[1])


def test_each_learner_has_a_run_of_each_seed():
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    runs = compare_regret(mdp, ["rovi", "rsq"], beta=1, episodes=10, seeds=2, workers=1)
    assert [run.settings["seed"] for run in runs["rsq"]] == [0, 1]


def test_a_comparison_shows_the_progress_of_the_sweeps(capfd, monkeypatch):
    for name in ("_FIRST_LINE_SECONDS", "_LAST_LINE_SECONDS", "_REFRESH_SECONDS"):
        monkeypatch.setattr(f"entropic_bpi.runs.progress.{name}", 0.0)
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    compare_regret(mdp, ["rovi", "rsq"], beta=1, episodes=10, seeds=2, workers=1)
    assert capfd.readouterr().err == ""  # not a terminal
    compare_regret(mdp, ["rovi", "rsq"], beta=1, episodes=10, seeds=2, workers=1, progress=True)
    assert "of 4 runs" in capfd.readouterr().err


def test_an_unknown_option_is_refused():
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    with pytest.raises(TypeError, match="colour"):
        compare_regret(mdp, ["rovi"], beta=1, episodes=10, seeds=1, colour="red")


# -- bad input and Ctrl-C --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--learners rsvi3", "learner must be one of entropic_bpi, rsvi"),
        ("--import no_such_module_anywhere", "imports: No module named 'no_such_module_anywhere'"),
        ("--learners ,", "--learners must be names separated by commas, got ','"),
        ("--episodes 0", "episodes must be at least 1, got 0"),
        ("--seeds 0", "seeds must be at least 1, got 0"),
        ("--workers 0", "workers must be at least 1, got 0"),
        ("--scale 0 --learners rovi --workers 1", "scale must be greater than 0, got 0"),
    ],
)
def test_every_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path):
    result = invoke("risky-bridge", "--beta", "1", "--episodes", "5", "--out", tmp_path / "out", *words.split())
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


def running(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
@pytest.mark.parametrize(
    ("signal_sent", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=[pytest.mark.slow, pytest.mark.sample]),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_workers_end_with_the_command(tmp_path, signal_sent, code):
    words = ["risky-bridge", "--beta", "1", "--episodes", "1000000000", "--learners", "rovi", "--seeds", "2"]
    words = [COMMAND, "compare", *words, "--workers", "2", "--out", "out"]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A job in the background of a script has the signal switched off, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while not (tmp_path / "out").exists():
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(2)  # workers start, import and perhaps play
        process.send_signal(signal_sent)  # to the parent alone
        output, errors = process.communicate(timeout=20)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert (process.returncode, output) == (code, b"")
    assert b"Traceback" not in errors
    deadline = time.monotonic() + 10
    while running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(process.pid)
    assert not list((tmp_path / "out").iterdir())
