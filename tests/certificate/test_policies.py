"""Policies to take away, and a look at what they do."""

from __future__ import annotations

import csv
import json

import duckdb
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

import entropic_bpi as eb

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


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_tables_are_read_back_as_they_were(on_bridge, tmp_path, ending):
    policy, path = eb.Policy.load(on_bridge), tmp_path / f"policy.{ending}"
    policy.save(path)
    rows = [(row["step"], row["state"], row["action"]) for row in policy.table()]
    if ending == "csv":
        with path.open(newline="", encoding="utf-8") as file:
            read = [(int(row["step"]), row["state"], row["action"]) for row in csv.DictReader(file)]
    elif ending == "json":
        read = [tuple(row.values()) for row in json.loads(path.read_text(encoding="utf-8"))]
    else:
        read = duckdb.sql(f"SELECT step, state, action FROM read_parquet('{path}')").fetchall()
    assert read == rows
    with pytest.raises(eb.InvalidProblemError, match=r"\.csv, \.json, \.parquet"):
        policy.save(tmp_path / "policy.txt")


def test_what_was_never_observed_is_an_error_unless_an_action_is_given_for_it(on_lake):
    with pytest.raises(eb.InvalidProblemError, match="none of the observations"):
        eb.Policy.load(on_lake)(99)
    careful = eb.Policy.load(on_lake, unseen=3)
    assert careful(99) == 3
    assert careful(0) == on_lake.policy_of(0)
    with pytest.raises(eb.InvalidProblemError, match="step"):
        careful(0, 4)


def test_a_rollout_earns_what_the_law_of_the_return_says(bridge, on_bridge):
    law = eb.return_law(bridge, on_bridge.policy)
    seen = eb.rollout(bridge, on_bridge, episodes=4000, seed=3)
    assert set(np.round(seen.returns, 9)) <= set(np.round(law.support, 9))
    assert abs(seen.mean - law.mean) < 5 * (law.variance / 4000) ** 0.5 + 1e-12
    assert seen.value(0.0) == seen.mean
    assert seen.value(-1.0) == pytest.approx(-np.log(np.mean(np.exp(-seen.returns))))
    assert np.array_equal(seen.returns, eb.rollout(bridge, on_bridge, episodes=4000, seed=3).returns)


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
    with pytest.raises(eb.InvalidProblemError, match="for 4 steps"):
        eb.rollout(lake, on_lake, horizon=5)


def test_a_rollout_is_drawn(bridge, on_bridge, tmp_path):
    from entropic_bpi import plots

    plots.save(eb.rollout(bridge, on_bridge, episodes=50, seed=3).plot(), tmp_path / "returns.png")
    assert (tmp_path / "returns.png").stat().st_size > 5000
