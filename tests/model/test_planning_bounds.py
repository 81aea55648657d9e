"""Large dense models, of which planning reads only the rows that may be the best: the same solutions, from fewer rows."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from reference import brute_force as brute
from reference.models import BETAS, draws
from scipy.special import logsumexp

import entropic_bpi as eb
from entropic_bpi.model import planning, steps


@pytest.fixture(scope="module", autouse=True)
def every_model_is_large():
    with mock.patch.multiple(planning, _LARGE_MATRIX=0, _MANY_ACTIONS=1):
        yield


@pytest.fixture
def rows_read(monkeypatch):
    """How many rows each product was asked for."""
    numbers, products = [], steps._products

    def counted(mdp, h, which, terms):
        numbers.append(len(which))
        return products(mdp, h, which, terms)

    monkeypatch.setattr(steps, "_products", counted)
    return numbers


def plain_values(mdp, beta):
    """Backward induction over all rows, in logarithms."""
    kernel, values = np.asarray(mdp.transitions), np.zeros((mdp.horizon + 1, mdp.n_states))
    for h in reversed(range(mdp.horizon)):
        if beta == 0:
            risks = kernel @ values[h + 1]
        else:
            risks = logsumexp(beta * values[h + 1], axis=2, b=kernel) / beta
        values[h] = (risks + mdp.step_rewards(h)).max(axis=1)
    return values


def mixing(n_states=30, n_actions=8, horizon=15, seed=0):
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.ones(n_states), (n_states, n_actions))
    return eb.FiniteMDP(laws, rng.random((n_states, n_actions)), horizon=horizon)


def ring(n_states=30, horizon=15):
    """Each step goes to a neighbour: values far away do not matter for long, so bounds stay wide."""
    states, laws = np.arange(n_states), np.zeros((n_states, 5, n_states))
    for a in range(5):
        laws[states, a, (states + a - 2) % n_states] += 0.75
        laws[states, a, (states + 1) % n_states] += 0.25
    rewards = np.random.default_rng(0).normal(size=(horizon, n_states, 5))
    return eb.FiniteMDP(laws, rewards, horizon=horizon)


def twins():
    """Every action twice."""
    model = mixing()
    return eb.FiniteMDP(
        np.repeat(model.transitions, 2, axis=1), np.repeat(model.rewards, 2, axis=1), horizon=model.horizon
    )


@settings(max_examples=15)
@given(draws(), BETAS)
def test_it_reaches_the_best_value_of_all_policies(drawn, beta):
    solution = eb.solve(drawn.mdp, beta)
    assert solution.value == pytest.approx(float(brute.best_value(drawn.model, beta)), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("model", [mixing(), ring(), twins()], ids=["mixing", "ring", "twins"])
def test_values_are_those_of_all_rows(model):
    betas = [0.0, 1e-12, 0.3, -1.0, 60.0, -60.0, -3000.0]  # to where rows need the far form, and a scale of their own
    for beta, together in zip(betas, eb.solve(model, betas), strict=True):
        alone = eb.solve(model, beta)
        oracle = plain_values(model, beta) if abs(beta) > 1e-6 or beta == 0 else plain_values(model, 0.0)
        assert np.allclose(alone.values, oracle, rtol=1e-10, atol=1e-10)
        assert np.allclose(alone.values, together.values, rtol=1e-12, atol=1e-12)
        assert np.array_equal(alone.policy, together.policy)
        assert np.allclose(eb.evaluate(model, alone.policy, beta).values, alone.values, rtol=1e-12, atol=1e-12)


def test_of_twins_the_lower_action_wins():
    for solution in eb.solve(twins(), [-1.0, 0.0, 2.0]):
        assert (solution.policy % 2 == 0).all()
        assert np.array_equal(solution.policy // 2, eb.solve(mixing(), solution.beta).policy)


@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_where_values_grow_alike_one_row_of_a_state_is_read(rows_read, beta):
    model = mixing()
    eb.solve(model, beta)
    assert len(rows_read) == model.horizon - 1  # values of 0 have the risk 0
    assert rows_read[-1] == model.n_states
    assert sum(rows_read) < 0.3 * len(rows_read) * model.n_states * model.n_actions


def test_a_row_that_may_be_the_best_for_one_beta_is_read_once_for_all(rows_read):
    eb.solve(mixing(), [-1.0, 0.0, 1.0])
    assert len(rows_read) == mixing().horizon - 1


def test_what_changes_from_step_to_step_is_read_whole(rows_read):
    rng = np.random.default_rng(0)
    model = eb.FiniteMDP(rng.dirichlet(np.ones(20), (3, 20, 4)), rng.random((20, 4)), horizon=3)
    with mock.patch.object(planning, "_SMALL_MATRIX", 0):
        eb.solve(model, 1.0)
    assert rows_read == [80, 80, 80]
