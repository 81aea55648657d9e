"""The study of the guarantee: its oracle sees what is wrong, and its tables say what happened."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import methods
from entropic_bpi.cli import app
from entropic_bpi.lab.events import EVENTS, CountEvent, Event, KLEvent
from entropic_bpi.lab.experiments import Case, Validation, oracle, validate, validation
from entropic_bpi.lab.experiments.cases import default_cases, worst_value
from entropic_bpi.lab.experiments.oracle import Oracle
from entropic_bpi.lab.experiments.spec import RULES
from entropic_bpi.lab.experiments.statistics import proportion
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings

BRIDGE = eb.instances.risky_bridge(horizon=4)
OTHER = eb.instances.risky_bridge(horizon=4, p_start=0.3, p_mid=0.3, p_final=0.7, p_dash=0.3)
KNOWN = "KL, successors known"


def watched(mdp, truth=None, **options):
    """A finished run and the oracle that watched it, with the true model that it has."""
    loop = start_run(mdp, Settings.of(**{"beta": 1.0, "eps": 0.1, "delta": 0.1, "replan": 0.2, "seed": 1} | options))
    watcher = Oracle(truth or mdp, loop)
    loop.go(watcher.watch)
    return loop, watcher


# -- the oracle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["kl", "bernstein"])
def test_the_oracle_confirms_a_run_on_the_model_that_it_was_played_on(method):
    loop, watcher = watched(BRIDGE, method=method)
    assert watcher.failed == set()
    assert watcher.confirms(loop.result().certificate)


@pytest.mark.parametrize("method", ["kl", "bernstein"])
def test_the_oracle_sees_that_the_data_are_not_those_of_another_model(method):
    loop, watcher = watched(BRIDGE, truth=OTHER, method=method)
    assert watcher.failed >= set(methods.find(method).events) - {"E_cnt"}
    assert not watcher.confirms(loop.result().certificate)


@pytest.mark.parametrize("part", ["lower", "upper", "gap"])
def test_every_part_of_a_claim_is_checked(part):
    loop, watcher = watched(BRIDGE)
    claim = loop.result().certificate
    best = eb.solve(BRIDGE, 1.0).value
    assert watcher.confirms(claim)
    assert not watcher.confirms(
        replace(claim, **{part: {"lower": best + 0.01, "upper": best - 0.01, "gap": -0.01}[part]})
    )


@pytest.mark.parametrize("start_at", [0, [0.5, 0.3, 0.2]])
def test_expected_visits_are_those_of_the_policies_that_were_played(start_at):
    rng = np.random.default_rng(0)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2)), horizon=3, start=start_at)
    loop, watcher = watched(mdp, eps=0.02, max_episodes=200_000, method="bernstein", constants="sharp")
    visits = loop.state.counts.arrays.visits
    # After the last plan nothing is played, so every episode is accounted for.
    assert watcher._expected.sum() == pytest.approx(visits.sum())
    assert np.abs(visits - watcher._expected).max() < 6 * np.sqrt(visits.max())


def test_pooled_counts_have_no_count_event():
    _, watcher = watched(BRIDGE, method="bernstein", constants="sharp", stationary=True)
    assert set(watcher.events) == {"E_KL", "E_Z"}


def test_the_oracle_refuses_loops_whose_plans_it_cannot_see():
    with pytest.raises(AssertionError, match="every episode"):
        Oracle(BRIDGE, start_run(BRIDGE, Settings.of(beta=1.0, eps=0.1, delta=0.1, replan="every")))


# -- the numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failures", "runs"), [(0, 24), (3, 24), (24, 24), (7, 1100)])
def test_intervals_are_those_of_clopper_and_pearson(failures, runs):
    rate, low, high = proportion(failures, runs)
    assert rate == failures / runs
    assert low == pytest.approx(stats.beta.ppf(0.025, failures, runs - failures + 1) if failures else 0.0)
    assert high == pytest.approx(stats.beta.ppf(0.975, failures + 1, runs - failures) if failures < runs else 1.0)


def test_nothing_observed_says_nothing():
    assert proportion(0, 0) == (0.0, 0.0, 1.0)


def test_the_default_study_has_every_kind_of_model_and_both_signs():
    cases = default_cases()
    assert len({case.name for case in cases}) >= 8
    assert {beta for case in cases for beta in case.betas} == {1.0, -1.0}
    models = [case.mdp for case in cases]
    assert any(mdp.next_state_rewards for mdp in models)
    assert any(not mdp.stationary for mdp in models)
    assert any(not isinstance(mdp.start, int) for mdp in models)
    cells = sum(len(case.rules(beta)) for case in cases for beta in case.betas)
    assert cells * 24 >= 2000
    assert cells * 1100 >= 100_000


@pytest.mark.parametrize("case", default_cases(), ids=lambda case: f"{case.name}{case.betas}")
def test_a_wrong_answer_is_possible_in_every_cell(case):
    """Otherwise the study could not fail there."""
    for beta in case.betas:
        assert eb.solve(case.mdp, beta).value - worst_value(case.mdp, beta) > 5 * case.accuracy(beta)


def test_the_accuracy_does_not_depend_on_digits_that_depend_on_the_processor(monkeypatch):
    """It is part of the hash by which a run is found again, and comes from exp and log."""
    case = Case("bridge", BRIDGE)
    accuracies = [case.accuracy(beta) for beta in case.betas]
    for beta, accuracy in zip(case.betas, accuracies, strict=True):
        loss = eb.solve(BRIDGE, beta).value - worst_value(BRIDGE, beta)
        assert accuracy == pytest.approx(0.1 * loss, rel=1e-8)
    exact = worst_value
    monkeypatch.setattr(f"{Case.__module__}.worst_value", lambda *model: exact(*model) + 1e-15)
    assert [case.accuracy(beta) for beta in case.betas] == accuracies


def test_the_worst_value_is_that_of_the_worst_policy():
    rng = np.random.default_rng(1)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(2), (2, 2)), rng.random((2, 2)), horizon=2)
    policies = np.indices((2,) * 4).reshape(4, -1).T.reshape(-1, 2, 2)
    for beta in (1.3, -0.7, 0.0):
        assert worst_value(mdp, beta) == pytest.approx(min(eb.evaluate(mdp, p, beta).value for p in policies))


# -- the study -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    case = Case("bridge", BRIDGE)
    return folder, case, validate(folder, [case], rules=[KNOWN, "paper, sharp constants"], runs=3, workers=0)


def test_the_tables_count_every_run(study):
    folder, _, found = study
    assert found.ok
    assert [row["runs"] for row in found.cells] == [3] * 4
    totals = [row for row in found.rates if row["case"] == "all"]
    checked = {"paper, sharp constants": methods.find("bernstein").events, KNOWN: methods.find("kl").events}
    claims = {rule: {row["claim"] for row in totals if row["rule"] == rule} for rule in checked}
    always = {"policy not ε-optimal", "certificate false", "certificate false on its event"}
    assert claims == {rule: always | set(events) for rule, events in checked.items()}
    assert all(row["runs"] == 6 for row in totals)
    with (folder / "rates.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(found.rates)
    assert {"cells.csv", "totals.csv", "validate.png", "validate.pdf", "README.md"} <= {
        path.name for path in folder.iterdir()
    }
    assert found.text in (folder / "README.md").read_text()


def test_a_study_is_taken_up_where_it_was_left(study, tmp_path):
    _, case, whole = study
    options = {"rules": [KNOWN, "paper, sharp constants"], "workers": 0}
    validate(tmp_path, [case], runs=1, **options)
    resumed = validate(tmp_path, [case], runs=3, resume=True, **options)
    assert resumed.rates == whole.rates
    assert resumed.cells == whole.cells


class NeverHolds(Event):
    """A concentration event whose proof is wrong."""

    def excess(self, mdp, counts):
        return np.ones(counts.problem.n_rows)


def test_a_broken_promise_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(EVENTS, "E_cat", NeverHolds)
    arguments = ["validate", "risky-bridge", "--horizon", "4", "--beta", "-1", "--runs", "4", "--workers", "0"]
    outcome = CliRunner().invoke(app, [*arguments, "--rule", KNOWN, "--out", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "More failures than promised, beyond chance: E_cat" in " ".join(outcome.output.split())


def test_the_command_says_what_it_found(tmp_path):
    arguments = ["validate", "risky-bridge", "--horizon", "4", "--beta", "-1", "--eps", "0.01", "--runs", "2"]
    outcome = CliRunner().invoke(app, [*arguments, "--workers", "0", "--out", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert "rates is above what is promised, beyond chance" in " ".join(outcome.output.split())
    again = CliRunner().invoke(app, [*arguments, "--workers", "0", "--out", str(tmp_path)])
    assert again.exit_code == 2
    assert "resume" in again.output


def test_bad_input_is_refused(tmp_path):
    flat = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2)
    with pytest.raises(eb.InvalidProblemError, match="equally good"):
        validate(tmp_path, [Case("flat", flat)], runs=1)
    with pytest.raises(eb.InvalidProblemError, match="rule"):
        validate(tmp_path, rules=["magic"], runs=1)
    paid_on_arrival = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.arange(8.0).reshape(2, 2, 2), horizon=3)
    with pytest.raises(eb.InvalidProblemError, match="none of the rules applies"):
        validate(tmp_path, [Case("x", paid_on_arrival)], rules=["paper, sharp constants"], runs=1)
    for cases, message in (
        ([Case("x", BRIDGE), Case("x", OTHER)], "two cases are called 'x'"),
        ([Case("all", BRIDGE)], "no case may be called 'all'"),
        ([Case("x", BRIDGE, eps=50.0)], "every policy of x is eps-optimal"),
    ):
        with pytest.raises(eb.InvalidProblemError, match=message):
            validate(tmp_path, cases, runs=1)
    outcome = CliRunner().invoke(app, ["validate", "--beta", "1", "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "need a SOURCE" in outcome.output


def test_the_shares_of_the_events_add_up_to_delta():
    assert sum(EVENTS[name].share for name in methods.find("bernstein").events) == pytest.approx(1.0)
    assert {KLEvent, CountEvent} <= {EVENTS[name] for name in methods.find("bernstein").events}


def test_cells_have_seeds_of_their_own():
    """With common seeds the failures of two cells would come together, and their sum would not be binomial."""
    specs = [
        spec
        for case in default_cases()
        for cell in validation.cells_of([case], None)
        for spec in validation._specs_of(cell, 3, 0.1)
    ]
    assert len({spec.seed for spec in specs}) == len(specs)


def test_the_expectation_can_be_validated_too(tmp_path):
    found = validate(tmp_path, [Case("bridge", BRIDGE, betas=(0.0,))], runs=1, workers=0)
    assert {row["rule"] for row in found.cells} == set(RULES) - {
        "paper, printed constants",
        "paper, verified constants",
    }


def test_runs_that_end_with_an_error_are_told(tmp_path, monkeypatch):
    class Breaks(Event):
        def excess(self, mdp, counts):
            raise eb.InvalidProblemError("no such event")

    monkeypatch.setitem(EVENTS, "E_Z", Breaks)
    rules = [KNOWN, "paper, sharp constants"]
    found = validate(tmp_path, [Case("bridge", BRIDGE)], rules=rules, runs=2, workers=0)
    assert {row["rule"] for row in found.cells} == {KNOWN}
    assert "4 runs ended with an error and are left out; the first: InvalidProblemError: no such event" in found.text


def test_a_contradiction_is_checked_by_the_number_of_rates():
    row = {"rule": KNOWN, "case": "all", "claim": "E_cat", "promised": 0.1, "low": 0.11}
    assert Validation([row | {"p_value": 0.004}], [], "").contradictions
    assert not Validation([row | {"p_value": 0.004}] * 3, [], "").contradictions


def test_a_false_certificate_whose_event_held_disproves_the_theory(tmp_path, monkeypatch):
    monkeypatch.setattr(oracle.Oracle, "confirms", lambda self, claim: False)
    case = Case("bridge", BRIDGE, betas=(-1.0,))
    found = validate(tmp_path, [case], rules=[KNOWN], runs=1, workers=0)
    (row,) = (row for row in found.contradictions if row["case"] == "bridge")
    assert (row["claim"], row["promised"], row["failures"]) == ("certificate false on its event", 0.0, 1)


# -- the entropic value at risk ----------------------------------------------------------------------------------------

GARNET = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)


@pytest.mark.parametrize("part", ["lower", "upper", "gap"])
def test_every_part_of_a_claim_about_evar_is_checked(part):
    loop, watcher = watched(GARNET, beta=None, risk=eb.EVaR(0.3), eps=0.3)
    claim = loop.result().certificate
    best = eb.solve_evar(GARNET, 0.3).lower
    assert watcher.failed == set()
    assert watcher.confirms(claim)
    assert not watcher.confirms(
        replace(claim, **{part: {"lower": best + 0.01, "upper": best - 0.01, "gap": -0.01}[part]})
    )


def test_cells_of_evar_stand_beside_those_of_beta(tmp_path):
    case = Case("garnet", GARNET, betas=(-1.0,), alphas=(0.5,))
    found = validate(tmp_path, [case], rules=[KNOWN], runs=2, workers=0, progress=False)
    assert found.ok
    assert [(row["rule"], row["beta"], row["runs"]) for row in found.cells] == [
        (KNOWN, -1.0, 2),
        (f"{KNOWN} (EVaR)", "EVaR(0.5)", 2),
    ]
    claims = {row["claim"] for row in found.rates if row["rule"].endswith("(EVaR)")}
    assert claims == {"policy not ε-optimal", "certificate false", "certificate false on its event", "E_cat"}
    assert list(found.totals[0])[2:] == [KNOWN, f"{KNOWN} (EVaR)"]


def test_evar_cells_are_asked_for_by_the_command_line(tmp_path):
    words = ["validate", "garnet", "-p", "n_states=3", "-p", "n_actions=2", "-p", "branching=2", "-p", "seed=0"]
    words += ["--horizon", "3", "--evar", "0.5", "--rule", KNOWN, "--runs", "1", "--workers", "0"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "study")])
    assert result.exit_code == 0, result.output
    assert "EVaR" in (tmp_path / "study" / "cells.csv").read_text()


def test_the_default_study_has_cells_of_evar():
    assert sum(len(case.alphas) for case in default_cases()) >= 3


def test_the_gpu_s_study_is_not_told_apart_from_the_cpu_s():
    """The data that the page on validation shows: stopping times and failed events, cell by cell."""
    shown = Path(__file__).parents[3] / "docs/data/validation/gpu/agreement.csv"
    if not shown.exists():
        pytest.skip("the documentation is not here")
    with shown.open() as file:
        rows = list(csv.DictReader(file))
    chances = [float(row[name]) for row in rows for name in ("p_episodes", "p_E_cat")]
    assert len(rows) >= 12
    assert min(chances) * len(chances) > 0.01
