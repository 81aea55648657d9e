"""``entropic-bpi certify``, as a user types it."""

import csv
import json

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.cli import main
from tests.reference.logs import ROLES, play
from tests.runs.test_shortfall import MODEL

COLUMNS = [part for role in ROLES if role != "truncated" for part in (f"--{role.replace('_', '-')}", role)]
GOAL = ["--beta", "-1", "--delta", "0.1", "--horizon", "3", "--reward-range", "0", "1", "--states", "0,1"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(ROLES)
        writer.writerows(play(MODEL, 400, np.random.default_rng(0), ends=(2,)))
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code, *capsys.readouterr()


def test_a_log_is_certified_written_and_verified(log, tmp_path, capsys):
    code, out, _ = run(capsys, "certify", log, *COLUMNS, *GOAL, "--out", tmp_path / "run")
    assert code == 0
    assert "log.csv: 400 episodes" in out
    assert "the log's own decisions earned about" in out
    assert "episodes are a log of one finite Markov decision process" in out
    assert "What is missing" in out
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"certificate.json", "missing.csv"}
    assert eb.verify(tmp_path / "run" / "certificate.json").ok
    code, _, err = run(capsys, "certify", log, *COLUMNS, *GOAL, "--out", tmp_path / "run")
    assert code == 2
    assert "already holds" in err


def test_steps_may_be_ordered_by_a_column(log, capsys):
    expected = json.loads(run(capsys, "certify", log, *COLUMNS, *GOAL, "--json")[1])
    ordered = ["--order-by" if word == "--step" else word for word in COLUMNS]
    code, out, _ = run(capsys, "certify", log, *ordered, *GOAL, "--json")
    assert code == 0
    assert json.loads(out)["lower"] == expected["lower"]


@pytest.mark.parametrize("kind", ["csv", "json", "npy"])
def test_a_policy_of_a_file_is_the_one_that_is_certified(log, kind, tmp_path, capsys):
    path = tmp_path / f"policy.{kind}"
    if kind == "csv":
        path.write_text("state,action\n0,1\n1,0\n")
    elif kind == "json":
        path.write_text('{"0": "1", "1": "0"}')
    else:
        np.save(path, np.array([[1, 0]] * 3))
    code, out, _ = run(capsys, "certify", log, *COLUMNS, *GOAL, "--policy", path, "--json")
    known = eb.Log.read(log, **{**ROLES, "truncated": None}, states=[0, 1])
    direct = eb.certify(known, beta=-1.0, delta=0.1, horizon=3, reward_range=(0.0, 1.0), policy={0: 1, 1: 0})
    answer = json.loads(out)
    assert code == 0
    assert (answer["lower"], answer["gap"]) == (direct.lower, direct.gap)
    assert {choice["action"] for choice in answer["policy"] if choice["state"] == "0"} == {"1"}


def test_a_gap_that_is_not_reached_is_exit_code_1(log, capsys):
    code, out, _ = run(capsys, "certify", log, *COLUMNS, *GOAL, "--eps", "0.001", "--actions", "0,1")
    assert code == 1
    assert "a policy at most 0.001 worse than the best one, is not reached" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--state", "place"], "state='place' is not a column of log.csv"),
        (["--reward-range", "0", "0.5"], "is outside the declared reward_range"),
        (["--states", "0"], "not among the declared states"),
        (["--policy", "nowhere.csv"], "no such file: nowhere.csv"),
        (["--reward-law", "some"], "reward_law must be one of"),
        (["--max-states", "5"], "give states= or max_states=, not both"),
        (["--query", "FROM data; COPY data TO 'x.csv'"], "query must be one SELECT"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(log, change, message, capsys):
    code, out, err = run(capsys, "certify", log, *COLUMNS, *GOAL, *change)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_which_states_exist_must_be_said(log, capsys):
    without = GOAL[: GOAL.index("--states")]
    code, out, err = run(capsys, "certify", log, *COLUMNS, *without)
    assert (code, out) == (2, "")
    assert "log.csv has 2 states, but other states may exist" in err
    assert "--states seen" in err
    code, out, _ = run(capsys, "certify", log, *COLUMNS, *without, "--states", "seen", "--json")
    assert code == 0
    assert "the user declares that the states of the log are all there are" in json.loads(out)["assumptions"]
    code, out, _ = run(capsys, "certify", log, *COLUMNS, *without, "--max-states", "3", "--json")
    assert code == 0
    assert any(words.startswith("there are at most 3 different") for words in json.loads(out)["assumptions"])


def test_a_query_chooses_lines(log, capsys):
    code, out, _ = run(
        capsys, "certify", log, *COLUMNS, *GOAL, "--query", "FROM data WHERE episode::INT < 100", "--json"
    )
    assert code == 0
    assert json.loads(out)["episodes"] == 100


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", "place,move\n0,1\n", "has no column 'state'"),
        ("p.json", "[1, 2]", "must hold an object"),
        ("p.json", "{", "cannot be read"),
        ("p.npy", "nothing", "cannot be read"),
    ],
)
def test_a_policy_file_that_is_none_is_refused(log, name, content, message, tmp_path, capsys):
    (tmp_path / name).write_text(content)
    code, _, err = run(capsys, "certify", log, *COLUMNS, *GOAL, "--policy", tmp_path / name)
    assert code == 2
    assert message in err


def test_options_that_a_log_needs_are_named(log, capsys):
    code, out, err = run(capsys, "certify", log, "--episode", "id", "--state", "s", "--beta", "-1")
    assert (code, out) == (2, "")
    assert err == f"entropic-bpi: {log} is a log, which needs --step, --action, --reward, --delta\n"


def test_levels_are_for_runs(log, capsys):
    code, _, err = run(capsys, "certify", log, *COLUMNS, *GOAL, "--beta", "-1:1:1")
    assert code == 2
    assert err == "entropic-bpi: --beta must be a number for a log, got '-1:1:1'\n"


def test_a_run_is_certified_for_other_rewards(tmp_path):
    from typer.testing import CliRunner

    from entropic_bpi.cli import app

    def call(*words):
        return CliRunner().invoke(app, [*map(str, words)])

    run, out, prices = tmp_path / "run", tmp_path / "dearer", tmp_path / "prices.csv"
    options = ["--beta", "-1", "--eps", "0.5", "--delta", "0.1", "--successors", "model", "--seed", "1", "-q"]
    assert call("identify", "risky-bridge", "-p", "horizon=5", *options, "--out", run).exit_code == 0
    prices.write_text("state,action,reward\ns0,safe,0.25\n")
    answer = call("certify", run, "--beta", "-1", "--rewards", prices, "--out", out)
    assert answer.exit_code == 0
    assert "collected for other rewards" in answer.output
    assert call("verify", out / "certificate.json").exit_code == 0
    prices.write_text("state,price\ns0,0.25\n")
    assert call("certify", run, "--beta", "-1", "--rewards", prices).exit_code == 2
