"""Garnets are random in the way they claim."""

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.model.instances.classic import _distinct_successors

GOOD = {"n_states": 5, "n_actions": 2, "branching": 3, "horizon": 4, "seed": 0}


@pytest.mark.parametrize("stationary", [True, False])
def test_every_row_has_the_given_number_of_successors(stationary):
    mdp = eb.instances.garnet(**GOOD, stationary=stationary)
    assert mdp.stationary is stationary
    n_rows = 5 * 2 * (1 if stationary else 4)
    successors = mdp.rows.indices.reshape(n_rows, 3)
    assert (np.diff(successors, axis=1) > 0).all()
    assert (mdp.rows.probabilities > 0).all()
    assert mdp.rows.probabilities.reshape(n_rows, 3).sum(axis=1) == pytest.approx(np.ones(n_rows))
    assert mdp.rewards.shape == ((5, 2) if stationary else (4, 5, 2))
    assert 0 <= mdp.reward_range[0] < mdp.reward_range[1] <= 1


def test_steps_differ_unless_stationary():
    mdp = eb.instances.garnet(**GOOD, stationary=False)
    assert not np.array_equal(mdp.step_rows(0).probabilities, mdp.step_rows(1).probabilities)
    assert not np.array_equal(mdp.step_rewards(0), mdp.step_rewards(1))


def test_the_seed_decides_everything():
    mdp = eb.instances.garnet(**GOOD)
    assert mdp == eb.instances.garnet(**GOOD)
    assert mdp != eb.instances.garnet(**{**GOOD, "seed": 1})


def test_all_states_or_one_may_be_successors():
    full = eb.instances.garnet(4, 2, 4, horizon=3, seed=0)
    assert full.rows.indices.reshape(8, 4).tolist() == [[0, 1, 2, 3]] * 8
    deterministic = eb.instances.garnet(4, 2, 1, horizon=3, seed=0)
    assert deterministic.rows.probabilities.tolist() == [1.0] * 8
    assert eb.instances.garnet(1, 1, 1, horizon=1, seed=0).n_states == 1


def test_every_set_of_successors_is_equally_likely():
    rows = _distinct_successors(np.random.default_rng(5), 60_000, n_states=5, branching=3)
    sets, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(sets) == 10
    assert ((counts - 6000) ** 2 / 6000).sum() < 33.7  # chi-square, 9 degrees of freedom, level 1e-4


def test_a_large_one_is_cheap():
    mdp = eb.instances.garnet(50_000, 3, 4, horizon=3, seed=2)
    assert len(mdp.rows.indices) == 600_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_states": 0}, "n_states must be at least 1"),
        ({"n_actions": 0}, "n_actions must be at least 1"),
        ({"branching": 0}, "branching must be at least 1"),
        ({"branching": 6}, "branching must be at most n_states=5, got 6"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": None}, "seed must be an integer, got None"),
        ({"stationary": "no"}, "stationary must be True or False, got 'no'"),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.instances.garnet(**{**GOOD, **change})
