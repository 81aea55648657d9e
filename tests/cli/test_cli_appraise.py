"""``appraise`` as a user types it."""

import json

import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from tests.reports import made


def invoke(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words], prog_name="entropic-bpi")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    made("gap certificate").certificate.save(path / "certificate.json")
    bridge = eb.instances.risky_bridge(horizon=5)
    lines = ["state,action", *(f"{name},{bridge.action_names[1]}" for name in bridge.state_names)]
    (path / "bold.csv").write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_run_and_a_rule_are_compared_and_the_files_are_checked(run, tmp_path):
    words = ["--policy", run / "bold.csv", "--measure", "mean", "--measure", "below 0"]
    done = invoke("appraise", run, *words, "-o", tmp_path / "page.html", "--save", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    assert "All intervals hold at once" in done.output
    assert "bold" in (tmp_path / "page.html").read_text(encoding="utf-8")
    checked = invoke("verify", tmp_path / "a.json")
    assert checked.exit_code == 0
    assert "next:" not in checked.output
    told = json.loads(invoke("appraise", run, *words, "--json").output)
    assert [(row["policy"], row["measure"]) for row in told["table"]] == [
        ("certified", "mean"),
        ("certified", "below 0"),
        ("bold", "mean"),
        ("bold", "below 0"),
    ]
    assert told["delta"] == 0.1
    assert {"order", "differences", "assumptions"} <= set(told)


def test_a_log_is_read_with_the_options_of_certify(tmp_path):
    lines = ["e,t,s,a,r,n"]
    lines += [f"{e},{t},{'ab'[t % 2]},go,1.0,{'ba'[t % 2]}" for e in range(40) for t in range(4)]
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "rule.json").write_text('{"a": "go", "b": "go"}', encoding="utf-8")
    columns = ["--episode", "e", "--step", "t", "--state", "s", "--action", "a", "--reward", "r", "--next-state", "n"]
    declared = ["--delta", 0.1, "--horizon", 3, "--reward-range", 0, 1, "--states", "a,b", "--all-truncated"]
    words = [tmp_path / "log.csv", *columns, "--policy", tmp_path / "rule.json", "--measure", "mean"]
    done = invoke("appraise", *words, *declared, "--json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.output)["table"]
    assert row["lower"] <= 3.0 <= row["upper"] + 1e-9
    assert invoke("appraise", *words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--measure", "variance"], "a measure is"),
        (["--measure", "cvar 5%"], "measure 'cvar 5%': could not convert string to float"),
        (["--measure", "cvar 5"], "measure 'cvar 5': alpha must be greater than 0 and at most 1, got 5.0"),
        (["--policy", "nowhere.csv"], "no such file"),
        (["-o", "page.pdf"], "--out must be an .html file"),
        (["--horizon", "3"], "is for logs"),
    ],
)
def test_bad_input_is_one_line(run, words, message):
    done = invoke("appraise", run, *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_two_policies_need_two_names(run):
    done = invoke("appraise", run, "--policy", run / "bold.csv", "--policy", run / "bold.csv")
    assert done.exit_code == 2
    assert "NAME=FILE" in done.stderr
