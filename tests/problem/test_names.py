"""Declared names, unit and title: shown everywhere, stored in the certificate, and no part of the proof."""

import json
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from reference.verifier import verify as verify_by_reference
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app

NAMES = {"state_names": ["home", "road", "work"], "action_names": ["wait", "go"], "unit": "€", "title": "Commuting"}
GOAL = {"beta": -0.5, "eps": 0.4, "delta": 0.1, "seed": 1}


class Commute(gymnasium.Env):
    """Three places in a row; the last one pays."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {}

    def step(self, action):
        self.state = min(self.state + int(action and self.np_random.random() < 0.8), 2)
        return self.state, float(self.state == 2), False, False, {}


def played(**given):
    return eb.identify(Commute, horizon=3, reward_range=(0, 1), start=0, **GOAL, **given)


@pytest.fixture(scope="module")
def named():
    return played(**NAMES)


def test_names_change_nothing_but_the_words(named):
    plain = played()
    assert (named.episodes, named.certificate.gap) == (plain.episodes, plain.certificate.gap)
    assert np.array_equal(named.policy, plain.policy)
    assert named.certificate.problem.state_names == ("home", "road", "work", "end")
    assert named.certificate.problem.labels[0] == plain.certificate.problem.state_names
    assert plain.certificate.problem.state_labels is None


def test_a_policy_is_asked_by_observations_and_shown_by_names(named, tmp_path):
    policy = eb.Policy.load(named.certificate)
    assert policy(0, step=0) in (0, 1)
    assert {row["state"] for row in policy.table()} == {"home", "road", "work"}
    assert {row["action"] for row in policy.table()} <= {"wait", "go"}
    assert "every episode starts in state home" in named.certificate.assumptions


def test_a_policy_may_use_names_or_labels(named):
    by_name = eb.certify(named, beta=-0.5, policy={"home": "go", "road": "go", "work": "wait"})
    by_label = eb.certify(named, beta=-0.5, policy={"0": "1", "1": "1", "2": "0"})
    assert np.array_equal(by_name.policy, by_label.policy)
    assert by_name.gap == by_label.gap


def test_the_certificate_stores_them(named, tmp_path):
    named.certificate.save(tmp_path / "claim.json")
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    assert (loaded.problem.unit, loaded.problem.title) == ("€", "Commuting")
    assert loaded.problem.labels == named.certificate.problem.labels
    assert eb.Policy.load(loaded)(0, step=0) == eb.Policy.load(named.certificate)(0, step=0)
    assert eb.verify(tmp_path / "claim.json").ok
    assert verify_by_reference(tmp_path / "claim.json").ok


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"unit": 3}, "unit must be a string"),
        ({"title": ["x"]}, "title must be a string"),
        ({"state_labels": ["0", "2", "1", "end"]}, "observations and actions in order"),
        ({"state_labels": ["0", "0", "1", "end"]}, "different"),
        ({"action_labels": None}, "observations and actions in order"),
    ],
)
def test_the_verifier_checks_what_it_does_not_use(named, change, problem):
    content = json.loads(json.dumps(named.certificate._content()))
    content["problem"] |= change

    class Forged:
        def _content(self):
            return content

    for check in (eb.verify, verify_by_reference):
        found = check(Forged())
        assert not found.ok
        assert problem in found.problems[0]


def test_unit_and_title_are_part_of_the_statement_and_the_page(named, tmp_path):
    assert "€" in named.certificate.statement
    named.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Commuting" in page
    assert "road" in page
    assert "€" in page


def test_an_appraisal_takes_them_from_its_evidence_unless_given(named):
    policies = {"mine": named.policy}
    found = eb.appraise(named, policies, measures=["mean"])
    assert (found.unit, found.title) == ("€", "Commuting")
    assert eb.appraise(named, policies, measures=["mean"], unit="min").unit == "min"
    model = eb.FiniteMDP(np.ones((1, 1, 1)), np.zeros((1, 1)), horizon=1, unit="€")
    assert eb.appraise(model, {"only": [[0]]}, measures=["mean"], title="Known").title == "Known"


def test_another_name_for_an_existing_certificate(named):
    renamed = eb.certify(named, beta=-0.5, title="Later", state_names=["a", "b", "c"])
    assert (renamed.problem.title, renamed.problem.unit) == ("Later", "€")
    assert renamed.problem.state_names == ("a", "b", "c", "end")
    assert eb.verify(renamed).ok


def test_those_of_a_model_are_the_default():
    model = eb.FiniteMDP(
        np.full((2, 1, 2), 0.5), np.eye(2)[:, :1], horizon=2, state_names=["x", "y"], unit="€", title="Model"
    )
    problem = eb.identify(model, **GOAL, max_episodes=10).certificate.problem
    assert (problem.state_names, problem.unit, problem.title) == (("x", "y"), "€", "Model")
    problem = eb.identify(model, **GOAL, max_episodes=10, state_names=["p", "q"], title="Mine").certificate.problem
    assert (problem.state_names, problem.state_labels) == (("p", "q"), ("x", "y"))
    assert (problem.unit, problem.title) == ("€", "Mine")


def test_explore_and_forecast_take_them():
    found = eb.explore(Commute, eps=2.5, delta=0.2, betas=(0, 0), horizon=2, seed=1, max_episodes=50, **NAMES)
    assert found.certificate.problem.title == "Commuting"
    eb.forecast(Commute, horizon=2, reward_range=(0, 1), trial_episodes=5, **GOAL, **NAMES)


def test_a_log_has_them_in_the_order_of_its_states():
    data = {"e": [0, 0], "t": [0, 1], "s": ["u", "v"], "a": [0, 1], "r": [0.0, 1.0]}
    columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
    log = eb.Log.read(data, **columns, truncated=True, states=["u", "v"])
    goal = {"beta": 0.0, "delta": 0.1, "horizon": 1, "reward_range": (0, 1)}
    claim = eb.certify(log, **goal, state_names=["up", "down"], action_names=["l", "r"])
    assert claim.problem.state_names == ("up", "down", "end")
    assert eb.verify(claim).ok
    by_name = eb.certify(log, **goal, state_names=["up", "down"], policy={"up": 1, "down": 0})
    assert by_name.policy[0, :2].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state_names": ["a", "b"]}, "state_names must be a sequence of 3 names"),
        ({"state_names": ["a", "a", "b"]}, "state_names repeats 'a'"),
        ({"state_names": ["a", "b", "end"]}, "state_names repeats 'end'"),
        ({"action_names": "up"}, "action_names must be a list of names"),
        ({"unit": 3}, "unit must be a non-empty string"),
        ({"title": ""}, "title must be a non-empty string"),
        ({"state_names": ["a", "b", "c"], "max_states": 3}, "not max_states"),
    ],
)
def test_wrong_names_are_refused(given, message):
    with pytest.raises(eb.EntropicBPIError, match=message):
        played(**given)


def test_a_problem_file_has_a_section_for_them(tmp_path):
    declared = eb.Declarations(horizon=3, reward_range=(0, 1), start=0, **NAMES)
    declared.save(tmp_path / "problem.toml")
    text = (tmp_path / "problem.toml").read_text(encoding="utf-8")
    assert '[names]\nstate_names = ["home", "road", "work"]' in text
    loaded = eb.Declarations.load(tmp_path / "problem.toml")
    assert {name: loaded.given()[name] for name in NAMES} == NAMES
    assert loaded.unconfirmed == []


def test_the_command_line_takes_them(tmp_path):
    source = tmp_path / "commute.py"
    source.write_text("from problem.test_names import Commute\n", encoding="utf-8")
    out = tmp_path / "run"
    options = ["--horizon", "3", "--reward-range", "0", "1", "--start", "0", "--beta", "-0.5", "--eps", "0.4"]
    options += ["--delta", "0.1", "--seed", "1", "--state-names", "home,road,work", "--action-names", "wait,go"]
    options += ["--unit", "€", "--title", "Commuting", "--out", str(out)]
    result = CliRunner().invoke(app, ["identify", f"{source}:Commute", *options])
    assert result.exit_code == 0, result.output
    assert "€" in result.output
    assert eb.Certificate.load(out / "certificate.json").problem.title == "Commuting"


def test_old_certificates_have_none():
    for path in sorted((Path(__file__).parent.parent / "certificate/version4").glob("*.json")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = eb.Certificate.load(path).problem
        assert problem.state_labels is None
        assert problem.unit is None
        assert eb.verify(path).ok
