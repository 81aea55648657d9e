"""Policies to take away, and a look at what they do."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta, timezone
from tempfile import TemporaryDirectory

import duckdb
import gymnasium
import mpmath
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

import entropic_bpi as eb
from entropic_bpi.cli.certify import read_policy_file
from entropic_bpi.tools.files import text_of_cell, write_csv

GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1}


@pytest.fixture(scope="module")
def bridge():
    return eb.instances.risky_bridge(horizon=4)


@pytest.fixture(scope="module")
def on_bridge(bridge):
    return eb.identify(bridge, **GOAL, successors="model")


@pytest.fixture(scope="module")
def on_lake():
    return eb.identify("FrozenLake-v1", horizon=4, reward_range=(0, 1), **GOAL, max_episodes=40)


def test_a_policy_is_found_in_results_certificates_files_and_folders(on_bridge, tmp_path):
    path = tmp_path / "certificate.json"
    on_bridge.certificate.save(path)
    for source in (on_bridge, on_bridge.certificate, path, str(path), tmp_path):
        policy = eb.Policy.load(source)
        assert [policy(s, 2) for s in range(8)] == on_bridge.policy[2].tolist()
    with pytest.raises(eb.InvalidProblemError, match="got int"):
        eb.Policy.load(3)
    with pytest.raises(eb.CertificateError, match="nothing"):
        eb.Policy.load(tmp_path / "nothing.json")


def test_the_table_of_a_model_has_every_state_that_can_be_reached_and_its_action(bridge, on_bridge):
    rows = on_bridge.policy_table()
    assert rows == eb.Policy.load(on_bridge).table()
    names = bridge.state_names
    for row in rows:
        s = names.index(row["state"])
        assert row["action"] == bridge.action_names[on_bridge.policy[row["step"], s]]
    assert [row["state"] for row in rows if row["step"] == 0] == [names[0]]  # the start alone


def test_the_table_of_an_environment_has_the_states_that_were_seen(on_lake):
    rows = on_lake.policy_table()
    seen = {row["state"] for row in rows}
    assert "0" in seen
    assert "end" not in seen
    certificate = on_lake.certificate
    reached = {certificate.problem.state_names[s] for s in certificate.transitions.successors}
    assert seen == reached - {"end"}


def test_a_table_is_read_back_as_it_was(on_bridge, tmp_path):
    policy, path = eb.Policy.load(on_bridge), tmp_path / "policy.csv"
    policy.save(path)
    with path.open(newline="", encoding="utf-8") as file:
        read = [(int(row["step"]), row["state"], row["action"]) for row in csv.DictReader(file)]
    assert read == [(row["step"], row["state"], row["action"]) for row in policy.table()]
    with pytest.raises(eb.InvalidProblemError, match=r"written as \.csv"):
        policy.save(tmp_path / "policy.json")


FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "'=quoted", "\t=1", "-1", "+2.5", "plain"]


def test_no_text_of_a_csv_file_is_a_formula(tmp_path):
    write_csv(tmp_path / "table.csv", ["name", "number"], [(text, -1.5) for text in FORMULAS])
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [text_of_cell(row["name"]) for row in rows] == FORMULAS
    assert {row["number"] for row in rows} == {"-1.5"}
    active = [row["name"] for row in rows if row["name"].startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert active == ["-1", "+2.5"]  # numbers are numbers


def test_a_policy_file_with_formulas_is_read_back(tmp_path):
    states, path = FORMULAS[:3], tmp_path / "policy.csv"
    claim = claim_from_log(["'{}'".format(text.replace("'", "''")) for text in states])
    eb.Policy.load(claim).save(path)
    assert not [line for line in path.read_text().splitlines() if line.split(",")[1].strip('"')[0] in "=+-@"]
    assert read_policy_file(path) == {state: eb.Policy.load(claim)(state, 1) for state in states}


# Labels of two or more states in DuckDB's notation, and the same in Python's.
TWO_HOURS_EAST = timezone(timedelta(hours=2))
LABELS = {
    "text": (["'home'", "'town'"], ["home", "town"]),
    "text that is quoted": (["'''home'''", "'\"town\"'"], ["'home'", '"town"']),
    "numbers as text": (["'1'", "'2'"], ["1", "2"]),
    "integers": (["7", "-3"], [np.int64(7), -3.0]),
    "floats": (["0.5::DOUBLE", "1.0::DOUBLE"], [np.float64(0.5), 1.0]),
    "lists": (["[1, 2]", "[2, 1]"], [(1, 2), np.array([2, 1])]),
    "structs": (["{'x': 1, 'y': 'a'}", "{'x': 1, 'y': 'b'}"], [{"x": 1, "y": "a"}, (1, "b")]),
    "times": (
        ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-06-01 12:00:00'"],
        [datetime(2024, 1, 1), datetime(2024, 6, 1, 12)],
    ),
    "names of states that were not seen": (["'#2'", "'##3'", "'#4'"], ["#2", "##3", "#4"]),
}


def claim_from_log(labels, actions=("walk", "ride", "wait"), **declared):
    """Of a log in which action ``i`` is the only one that pays in state ``i``, whose labels are written in SQL."""
    rng, lines = np.random.default_rng(0), []
    for episode in range(60):
        states, chosen = rng.integers(len(labels), size=3).tolist(), rng.integers(len(labels), size=2).tolist()
        lines += [(episode, h, states[h], chosen[h], float(states[h] == chosen[h]), states[h + 1]) for h in range(2)]
    roles = ("episode", "step", "state", "action", "reward", "next_state")
    label = " ".join(f"WHEN {i} THEN {text}" for i, text in enumerate(labels))
    named = ", ".join(f"CASE {column} {label} END AS {column}" for column in ("state", "next_state"))
    taken = " ".join(f"WHEN {i} THEN {action!r}" for i, action in enumerate(actions))
    with TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = f"{folder}/log.parquet"
        values = ", ".join(map(str, lines))
        query = f"SELECT episode, step, {named}, CASE action {taken} END AS action, reward"
        connection.sql(f"{query} FROM (VALUES {values}) AS lines({', '.join(roles)})").write_parquet(path)
        states = "seen" if declared.get("max_states") is None else None
        log = eb.Log.read(path, **{role: role for role in roles}, truncated=True, states=states)
    return eb.certify(log, beta=0.0, delta=0.1, horizon=2, reward_range=(0, 1), **declared)


@pytest.mark.parametrize("kind", LABELS)
def test_the_policy_of_a_log_is_played_by_its_labels(kind, tmp_path):
    written, observations = LABELS[kind]
    claim = claim_from_log(written, max_states=5 if "not seen" in kind else None)
    assert eb.verify(claim).ok
    claim.save(tmp_path / "certificate.json")
    policy = eb.Policy.load(tmp_path / "certificate.json")
    assert [policy(observation, 1) for observation in observations] == ["walk", "ride", "wait"][: len(observations)]
    with pytest.raises(eb.InvalidProblemError, match="not one of the observations"):
        policy("elsewhere")


def test_actions_of_a_log_are_given_as_they_were():
    for actions in [(3, 1, 2), (0.5, 1.5, 2.5), ("07", "1", "None")]:
        policy = eb.Policy.load(claim_from_log(["'home'", "'town'"], actions))
        assert [policy(state, 1) for state in ("home", "town")] == list(actions[:2])
        assert isinstance(policy("home", 1), type(actions[0]))


@pytest.mark.parametrize(
    "labels", [["{'x': MAP{'a': 1}}", "{'x': MAP{'b': 1}}"], ["TIMESTAMPTZ '2024-01-01 00:00:00+00'"]]
)
def test_maps_and_times_in_a_zone_are_given_as_text(labels):
    with pytest.raises(eb.InvalidProblemError, match=r"has states of type .*: convert them to text"):
        claim_from_log(labels)


def test_what_was_never_observed_is_an_error_unless_an_action_is_given_for_it(on_lake):
    with pytest.raises(eb.InvalidProblemError, match="not one of the observations"):
        eb.Policy.load(on_lake)(99, 0)
    careful = eb.Policy.load(on_lake, unseen=3)
    assert careful(99, 0) == 3
    assert careful(0, 0) == on_lake.policy_of(0)
    with pytest.raises(eb.InvalidProblemError, match="step"):
        careful(0, 4)


def test_a_rollout_earns_what_the_law_of_the_return_says(bridge, on_bridge):
    law = eb.return_law(bridge, on_bridge.policy)
    seen = eb.rollout(bridge, on_bridge, episodes=4000, seed=3)
    assert set(np.round(seen.returns, 9)) <= set(np.round(law.support, 9))
    assert abs(seen.mean - law.mean) < 5 * (law.variance / 4000) ** 0.5 + 1e-12
    assert seen.value(0.0) == pytest.approx(seen.mean, rel=1e-14)
    assert np.array_equal(seen.returns, eb.rollout(bridge, on_bridge, episodes=4000, seed=3).returns)


@pytest.mark.parametrize(
    "beta", [0.0, *(s * 10.0**k for s in (1, -1) for k in (-300, -18, -15, -12, -9, -6, -3, 0, 3))]
)
@pytest.mark.parametrize("offset", [0.0, -0.5, 1e6, -1e3])
def test_the_value_of_a_sample_keeps_its_digits_for_every_beta(beta, offset):
    returns = np.random.default_rng(0).normal(size=200).round(2) + offset
    with mpmath.workdps(700):
        exact = mpmath.fsum(map(mpmath.mpf, returns)) / len(returns)
        if beta:
            exact = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(beta) * r) for r in returns) / len(returns)) / beta
        error = abs(eb.Rollout(returns, np.ones(200, dtype=int)).value(beta) - exact)
    assert error <= 1e-13 * np.abs(returns).max()


def test_a_rollout_takes_environments_of_every_kind_and_functions(on_lake):
    lake = gymnasium.make("FrozenLake-v1")
    for source in (lake, "FrozenLake-v1", lambda: gymnasium.make("FrozenLake-v1"), FrozenLakeEnv):
        seen = eb.rollout(source, eb.Policy.load(on_lake, unseen=0), episodes=20, seed=1)
        assert seen.lengths.max() <= 4
    assert lake.reset(seed=1)[0] == 0  # it was left open
    seen = eb.rollout(lake, lambda observation, step: 2, episodes=5, horizon=3, seed=1)
    assert len(seen.returns) == 5
    with pytest.raises(eb.InvalidProblemError, match="horizon is required"):
        eb.rollout(lake, lambda observation, step: 2)
    with pytest.raises(eb.InvalidProblemError, match="the policy has 4 steps"):
        eb.rollout(lake, on_lake, horizon=5)


def test_a_rollout_is_drawn(bridge, on_bridge, tmp_path):
    from entropic_bpi import plots

    plots.save(plots.returns(eb.rollout(bridge, on_bridge, episodes=50, seed=3).returns), tmp_path / "returns.png")
    assert (tmp_path / "returns.png").stat().st_size > 5000
