"""What holds for every command: an object for programs, also of errors, and the next useful command for people."""

import json
import math
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from entropic_bpi import cli, experiments
from entropic_bpi.cli import facts as _facts
from entropic_bpi.lab.experiments import figures
from entropic_bpi.lab.experiments.validation import Validation

COMMAND = str(Path(sysconfig.get_path("scripts")) / "entropic-bpi")
GROUP = typer.main.get_command(cli.app)
ALL_COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.list_commands(None)}
COMMANDS = {name: command for name, command in ALL_COMMANDS.items() if not command.hidden}
QUESTION = "risky-bridge --beta -1 --eps 2 --delta 0.1 --successors model"
# A cheap call of each command, in a folder that holds a run, a log, a sweep and results. Its own --out is always new.
CALLS = {
    "instances": "",
    "solve": "risky-bridge --beta -1",
    "front": "risky-bridge --betas -1 1",
    "inspect": "gym:FrozenLake-v1 --episodes 50 --out {new}.toml",
    "forecast": f"{QUESTION} --trial-episodes 20",
    "identify": f"{QUESTION} --out {{new}}",
    "certify": "log.csv --episode e --step t --state s --action a --reward r --beta -1 --delta 0.1 --horizon 1 "
    "--reward-range 0 1 --all-truncated --states x --out {new}",
    "explore": "risky-bridge --betas 0 0 --eps 5 --delta 0.1 --successors model --stationary --out {new}",
    "appraise": "run --measure mean",
    "monitor": "shop log.csv --episode e --step t --state s --action a --reward r --all-truncated",
    "compare": "risky-bridge --beta 1 --episodes 20 --learners rovi --seeds 1 --workers 1 --out {new}",
    "verify": "run/certificate.json",
    "report": "run -o {new}.html",
    "bounds": "--states 10 --actions 2 --horizon 12 --beta -1 --eps 0.05 --delta 0.05",
    "reproduce": "fig3 --out {new}",
    "sweep": "sweep.toml --workers 0 --out {new}",
    "validate": "risky-bridge --horizon 5 --beta -1 --eps 0.1 --rule 'KL, both' --runs 2 --workers 0 --out {new}",
    "export": "results --out {new}",
    "doctor": "",
    "convert": "risky-bridge {new}.npz",
}
SWEEP = '[[runs]]\ninstance = "risky-bridge"\nmethod = "kl"\nbeta = -1.0\neps = 2.0\ndelta = 0.1\nseeds = 1\n'


RATE = {"claim": "policies", "rule": "KL, both", "case": "all", "failures": 0, "runs": 2, "rate": 0.0}
RATE |= {"low": 0.0, "high": 0.8, "promised": 0.1, "p_value": 1.0}
STUDY = Validation([RATE], [], "Nothing failed.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everywhere")
    (folder / "sweep.toml").write_text(SWEEP)
    (folder / "log.csv").write_text("e,t,s,a,r\n" + "".join(f"{i},0,x,{i % 2},{i % 2}\n" for i in range(20)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        typed("identify", f"{QUESTION} --out run --seed 1")
        typed("certify", CALLS["certify"].format(new="shop"))
        typed("sweep", "sweep.toml --workers 0 --out results")
    return folder


def typed(command, words):
    result = CliRunner().invoke(cli.app, [command, *shlex.split(words)], prog_name="entropic-bpi")
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def call(folder, monkeypatch):
    monkeypatch.chdir(folder)
    # Figures and studies have tests of their own, and none of them is cheap.
    monkeypatch.setattr(figures, "reproduce", lambda names, out, **_: dict.fromkeys(names, "as in the paper"))
    monkeypatch.setattr(experiments, "validate", lambda *_, **__: STUDY)

    def called(command, *more):
        words = CALLS[command].format(new=f"new-{command}-{len(more)}")
        return typed(command, " ".join([words, *more]))

    return called


def test_no_command_is_forgotten_here():
    assert set(CALLS) == set(COMMANDS)


@pytest.mark.parametrize("command", CALLS)
def test_every_command_prints_one_object_for_programs_and_nothing_else(command, call):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    result = call(command, "--json")
    found = json.loads(result.stdout, parse_constant=refuse)
    assert isinstance(found, dict)
    assert found
    assert "next:" not in result.output


@pytest.mark.parametrize("command", CALLS)
def test_the_next_command_can_be_typed(command, call):
    result = call(command)
    assert "next:" not in result.stdout
    if "next: " not in result.stderr:
        return
    program, following, *words = shlex.split(result.stderr.splitlines()[-1].removeprefix("next: "))
    assert program == "entropic-bpi"
    # It is understood: making its context reads every word, and raises where one is wrong or missing.
    COMMANDS[following].make_context(following, words)


@pytest.mark.parametrize("command", CALLS)
def test_every_command_has_an_object_for_an_error(command):
    result = CliRunner().invoke(cli.app, [command, "--no-such-option", "--json"], prog_name="entropic-bpi")
    assert result.exit_code == 2
    assert "--no-such-option" in json.loads(result.stdout)["error"]


def test_a_shell_completes_commands_and_options():
    asked = {
        "_ENTROPIC_BPI_COMPLETE": "complete_bash",
        "COMP_WORDS": "entropic-bpi forecast --trial",
        "COMP_CWORD": "2",
    }
    done = subprocess.run([COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["--trial-seconds", "--trial-episodes"]
    # Which shell it is would be read from the processes above this one, and there may be none.
    told = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run([COMMAND, "--show-completion", "bash"], env=told, capture_output=True, text=True, check=True)
    assert "complete -o default -F _entropic_bpi_completion entropic-bpi" in shown.stdout


def test_a_forecast_names_what_is_true_and_helps(call):
    words = "risky-bridge --beta 2.5 --eps 1 --delta 0.1 --trial-episodes 2000 --seed 1 -p horizon=5"
    result = typed("forecast", words)
    assert "true of the model" in result.stdout
    assert "advice  --stationary --successors model\n" in result.stdout


@pytest.mark.parametrize(("old", "new"), [("plan", "forecast"), ("spectrum", "certify")])
@pytest.mark.parametrize("words", [[], ["--help"], ["run", "--beta", "-1:1:1", "--out", "band"]])
def test_a_renamed_command_names_the_new_one(old, new, words):
    result = CliRunner().invoke(cli.app, [old, *words], prog_name="entropic-bpi")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"entropic-bpi: the command {old} is now called {new}\n"


def test_help_shows_the_commands_in_panels():
    shown = CliRunner().invoke(cli.app, ["--help"], prog_name="entropic-bpi").stdout
    titles = [shown.index(f"─ {panel} ─") for panel in ("Learn", "Check and show", "Known models", "Research")]
    assert titles == sorted(titles)
    assert "spectrum" not in shown


def test_what_is_not_finite_is_null(capsys):
    content = {
        "gap": math.inf,
        "rows": np.array([[1.0, math.nan]]),
        "pair": (np.float64(-math.inf), np.int64(2)),
        "in": Path("a"),
    }
    _facts.show(_facts.Answer(_facts.data(**content), ()), True)
    assert json.loads(capsys.readouterr().out) == {"gap": None, "rows": [[1.0, None]], "pair": [None, 2], "in": "a"}
