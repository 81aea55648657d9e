"""``entropic-bpi certify RUN``: every risk level from one run."""

import csv
import subprocess
import sysconfig
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli

COMMAND = str(Path(sysconfig.get_path("scripts")) / "entropic-bpi")


def invoke(*words):
    return CliRunner().invoke(cli.app, list(map(str, words)), prog_name="entropic-bpi")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spectrum") / "run"
    words = ["--beta", "2.5", "--eps", "0.2", "--delta", "0.1", "--successors", "model", "--seed", "1"]
    assert invoke("identify", "risky-bridge", *words, "--out", folder).exit_code == 0
    return folder


def table(path):
    with open(path) as file:
        return [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]


def test_the_band_holds_the_truth_at_every_level_and_says_so_for_all_at_once(run, tmp_path):
    words = [COMMAND, "certify", str(run), "--beta", "-3:3:0.25", "--out", "bands"]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, f"next: entropic-bpi report {run} -o report.html\n")
    assert "With probability at least 90 %, the claims hold at once for all beta" in result.stdout
    rows = table(tmp_path / "bands" / "spectrum.csv")
    assert [row["beta"] for row in rows] == [-3 + 0.25 * i for i in range(25)]
    bridge = eb.instances.risky_bridge()
    for row in rows:
        assert row["lower"] <= eb.solve(bridge, row["beta"]).value <= row["upper"]
        assert row["gap"] <= row["upper"] - row["lower"] + 1e-9
    picture = (tmp_path / "bands" / "spectrum.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_rows_are_the_certificates_of_the_run_and_policies_change_with_risk(run, tmp_path):
    result = invoke("certify", run, "--beta", "-1:3:0.5", "--out", tmp_path)
    rows = table(tmp_path / "spectrum.csv")
    certificate = eb.Certificate.load(run / "certificate.json")
    for row in rows:
        claim = eb.certify(certificate, beta=row["beta"])
        assert (row["lower"], row["upper"], row["gap"]) == (claim.lower, claim.upper, claim.gap)
    numbers = [int(row["policy"]) for row in rows]
    assert numbers[0] == 1
    assert len(set(numbers)) > 1
    assert "s0: safe -> risky" in result.output
    # one line of the table for each stretch of levels with one policy
    stretches = 1 + sum(a != b for a, b in pairwise(numbers))
    _, policies, _ = result.output.split("\n\n")
    assert len(policies.splitlines()) == 2 + stretches


def test_a_certificate_file_will_do(run, tmp_path):
    assert invoke("certify", run / "certificate.json", "--beta", "0:1:1", "--out", tmp_path).exit_code == 0
    assert [row["beta"] for row in table(tmp_path / "spectrum.csv")] == [0.0, 1.0]


def test_levels_are_decimal_so_that_zero_is_zero(run, tmp_path):
    assert invoke("certify", run, "--beta", "-0.3:0.3:0.1", "--out", tmp_path).exit_code == 0
    assert [row["beta"] for row in table(tmp_path / "spectrum.csv")] == [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3]


def test_the_counts_of_a_bernstein_run_serve_too(tmp_path):
    words = ["risky-bridge", "--beta", "1", "--eps", "0.5", "--delta", "0.1", "--method", "bernstein", "--seed", "1"]
    assert invoke("identify", *words, "--max-episodes", 2000, "--out", tmp_path).exit_code == 1
    result = invoke("certify", tmp_path, "--beta", "0:1:1", "--out", tmp_path)
    assert result.exit_code == 0
    assert "They use the event of method kl" in result.output


def test_nothing_is_overwritten(run, tmp_path):
    words = ["certify", run, "--beta", "0:1:1", "--out", tmp_path]
    assert invoke(*words).exit_code == 0
    result = invoke(*words)
    assert result.exit_code == 2
    assert "already holds spectrum.csv, spectrum.png, and nothing is overwritten" in result.output


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        ("1:2", "--beta must be a number, or LOW:HIGH:STEP"),
        ("2:1:0.5", "--beta must be a number, or LOW:HIGH:STEP"),
        ("0:1:0", "--beta must be a number, or LOW:HIGH:STEP"),
        ("0:nan:1", "--beta must be a number, or LOW:HIGH:STEP"),
        ("a:b:c", "--beta must be a number, or LOW:HIGH:STEP"),
        ("0:1:1e-9", "has more than 10000 levels"),
        ("0:1e6:5e5", "beta"),
    ],
)
def test_bad_levels_are_one_line_and_exit_code_2(run, tmp_path, beta, message):
    result = invoke("certify", run, "--beta", beta, "--out", tmp_path)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_not_finished_or_is_not_there(tmp_path):
    words = ["--beta", "0:1:1", "--out", tmp_path / "out"]
    assert "no such file" in invoke("certify", tmp_path, *words).output
    (tmp_path / "checkpoint.bin").touch()
    result = invoke("certify", tmp_path, *words)
    assert result.exit_code == 2
    assert "has not finished: continue it with identify" in result.output


def test_options_of_a_log_are_refused_for_a_run(run, tmp_path):
    result = invoke("certify", run, "--beta", "0:1:1", "--state", "s", "--horizon", "3", "--out", tmp_path)
    assert result.exit_code == 2
    assert result.output == f"entropic-bpi: {run} is a run: --state is for logs\n"


def test_without_a_folder_nothing_is_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("certify", run, "--beta", "0:1:1")
    assert result.exit_code == 0
    assert "the claims hold at once for all beta" in result.output
    assert not list(tmp_path.iterdir())
