"""``--evar`` on the command line, as a user types it."""

import csv
import json

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.cli import main
from tests.reference.logs import ROLES, play
from tests.runs.test_shortfall import MODEL

GOAL = ["--eps", "0.2", "--delta", "0.1", "--successors", "model", "--seed", "1"]
BRIDGE = eb.instances.risky_bridge()


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code, *capsys.readouterr()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("evar") / "run"
    with pytest.raises(SystemExit) as ended:
        main(["identify", "risky-bridge", "--evar", "0.1", *GOAL, "--out", str(out), "--quiet"])
    assert ended.value.code == 0
    return out


def test_a_run_is_told_in_words_and_verified(folder, capsys):
    claim = eb.Certificate.load(folder / "certificate.json")
    assert (claim.risk, claim.alpha) == ("evar", 0.1)
    code, out, _ = run(capsys, "identify", "risky-bridge", "--evar", "0.1", *GOAL)
    assert code == 0
    for words in ("entropic value at risk, α = 0.1", claim.statement.split(": ", 1)[1], "no policy has an EVaR above"):
        assert words in " ".join(out.split())  # long lines are broken
    code, out, _ = run(capsys, "verify", folder / "certificate.json")
    assert code == 0
    assert "the counts imply the claim" in out


def test_json_names_the_risk_and_has_no_nan(capsys):
    code, out, _ = run(capsys, "identify", "risky-bridge", "--evar", "0.1", *GOAL, "--json")
    told = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert (told["risk"], told["beta"], told["alpha"]) == ("evar", None, 0.1)


@pytest.mark.parametrize("command", ["solve", "identify"])
@pytest.mark.parametrize(("given", "told"), [([], ""), (["--beta", "1", "--evar", "0.1"], ", not both")])
def test_exactly_one_risk_is_asked_for(command, given, told, capsys):
    goal = GOAL if command == "identify" else []
    code, _, err = run(capsys, command, "risky-bridge", *given, *goal)
    assert code == 2
    assert err == f"entropic-bpi: give either --beta or --evar{told}\n"


def test_a_known_model_is_solved_for_its_worst_cases(capsys):
    best = eb.solve_evar(BRIDGE, 0.9)
    code, out, _ = run(capsys, "solve", "risky-bridge", "--evar", "0.9")
    assert code in (0, None)
    assert f"{best.lower:.6f} <= best EVaR <= {best.upper:.6f}" in out
    assert "CVaR" in out
    _, out, _ = run(capsys, "solve", "risky-bridge", "--evar", "0.9", "--json")
    told = json.loads(out)
    assert (told["evar"], told["value"], told["lam"]) == (0.9, best.value, best.lam)
    assert told["return"]["cvar"] >= told["value"]


def test_the_spectrum_over_levels_holds_the_truth(folder, tmp_path, capsys):
    words = ["certify", folder, "--evar", "0.1:0.9:0.4", "--beta", "-1:0:1", "--out", tmp_path]
    code, out, _ = run(capsys, *words)
    assert code in (0, None)
    assert "the claims hold at once for all alpha, also for those not shown" in out
    with (tmp_path / "evar.csv").open() as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    assert [row["alpha"] for row in rows] == [0.1, 0.5, 0.9]
    for row in rows:
        best = eb.solve_evar(BRIDGE, row["alpha"])
        assert row["lower"] <= best.upper + 1e-6
        assert best.lower <= row["upper"] + 1e-6
    assert {path.name for path in tmp_path.iterdir()} == {"evar.csv", "evar.png", "spectrum.csv", "spectrum.png"}
    assert (tmp_path / "evar.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give --beta, --evar or both"),
        (["--evar", "0:1:0.5"], "between 0 and 1"),
        (["--evar", "x"], "LOW:HIGH:STEP"),
    ],
)
def test_levels_that_make_no_sense_are_refused(words, told, folder, tmp_path, capsys):
    code, _, err = run(capsys, "certify", folder, *words, "--out", tmp_path)
    assert code == 2
    assert told in err


def test_a_log_is_certified_for_its_worst_cases(tmp_path, capsys):
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(ROLES)
        writer.writerows(play(MODEL, 300, np.random.default_rng(0), ends=(2,)))
    columns = [part for role in ROLES if role != "truncated" for part in (f"--{role.replace('_', '-')}", role)]
    words = ["certify", path, *columns, "--evar", "0.2", "--delta", "0.1", "--horizon", "2", "--reward-range", "0", "1"]
    code, out, _ = run(capsys, *words, "--states", "seen", "--out", tmp_path / "run")
    assert code == 0
    assert "In at most 20 % of its episodes" in " ".join(out.split())
    assert "the log's own decisions earned about" in out
    assert eb.verify(tmp_path / "run" / "certificate.json").ok


@pytest.mark.parametrize("command", ["solve", "identify", "certify", "validate", "forecast"])
def test_help_says_that_evar_is_not_the_mean_of_the_worst_returns(command, capsys):
    code, out, _ = run(capsys, command, "--help")
    words = " ".join(out.replace("│", " ").split())
    assert code == 0
    assert (
        "EVaR is a lower bound on CVaR, the mean of the worst share ALPHA of the returns, and is not that mean" in words
    )
    assert "a policy with the best EVaR need not have the best CVaR" in words


def test_a_solution_says_that_another_policy_may_have_a_better_cvar(capsys):
    _, out, _ = run(capsys, "solve", "risky-bridge", "--evar", "0.1")
    assert "another policy may have a better CVaR" in " ".join(out.split())
