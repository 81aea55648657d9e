"""Planning to the last digits: every β from 0 over 1e-300 to 1e300, against backward induction in 60 digits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import backward_induction
from reference.brute_force import Model
from reference.models import BETAS, draws, policies_for, sparse_form

import entropic_bpi as eb
from entropic_bpi.model import planning

TINY = [0.0, 5e-324, 1e-300, -1e-300, 1e-17, -1e-12, 1e-12]
MODERATE = [-3.0, -0.1, 0.1, 3.0]
HUGE = [-1000.0, 1000.0]  # |β| H = 1e4 below
EVERY_BETA = TINY + MODERATE + HUGE
HAND_OVER = [6.9, 6.92, 590.0, 599.9, 600.1, 690.0, 699.99, 700.01, 709.9, 745.0, 800.0, 1400.0]
FORMS = {"dense": np.asarray, "sparse": sparse_form}


@pytest.fixture(scope="module", params=["in one call", "by steps"], autouse=True)
def way(request):
    """Tiny models are planned in one compiled call, larger ones step by step: both must be exact."""
    pairs = planning._FEW_PAIRS if request.param == "in one call" else 0
    with mock.patch.object(planning, "_FEW_PAIRS", pairs):
        yield


def sampled(**axes):
    """Every combination of these values: one in five always, and all others if slow tests are run."""
    cases = list(itertools.product(*axes.values()))
    assert all(
        set(values) == set(seen) for values, seen in zip(axes.values(), zip(*cases[::5], strict=True), strict=True)
    )
    marked = [pytest.param(*case, marks=pytest.mark.slow if i % 5 else []) for i, case in enumerate(cases)]
    return pytest.mark.parametrize(",".join(axes), marked)


def assert_accurate(transitions, rewards, horizon, beta, *, start=0, rel=1e-10):
    """Both forms of the model have the exact optimal value, and so has the policy they return."""
    exact = float(backward_induction.value(Model.of(transitions, rewards, horizon, start), beta))
    for name, form in FORMS.items():
        mdp = eb.FiniteMDP(form(np.asarray(transitions)), rewards, horizon=horizon, start=start)
        solution = eb.solve(mdp, beta)
        assert np.isfinite(solution.values).all()
        assert solution.value == pytest.approx(exact, rel=rel, abs=0), (name, "solve")
        assert eb.evaluate(mdp, solution.policy, beta).value == pytest.approx(exact, rel=rel, abs=0), (name, "evaluate")
        assert mdp.start_distribution @ solution.q_values[0].max(axis=1) == pytest.approx(
            mdp.start_distribution @ solution.values[0], rel=rel
        )


def random_rows(rng, *shape):
    """Distributions with probabilities from 1e-12 to 1 and some zeros."""
    weights = 10.0 ** rng.uniform(-12, 0, size=shape) * (rng.random(shape) < 0.7)
    weights[..., 0] += 0.1
    return weights / weights.sum(axis=-1, keepdims=True)


@sampled(sign=[1, -1], kind=["(S, A)", "(S, A, S)", "(H, S, A)", "(H, S, A, S)"], beta=EVERY_BETA)
def test_value_is_exact_for_rewards_of_every_size(beta, kind, sign):
    rng = np.random.default_rng([len(kind), sign + 1])
    sizes = {"H": 10, "S": 4, "A": 2}
    shape = tuple(sizes[axis] for axis in kind.strip("()").split(", "))
    rewards = sign * 10.0 ** rng.uniform(-9, 0, size=shape)
    start = rng.dirichlet(np.ones(4))
    assert_accurate(random_rows(rng, 10, 4, 2, 4), rewards, 10, beta, start=start)


@pytest.mark.parametrize("beta", EVERY_BETA)
def test_value_of_mixed_signs_is_exact_to_the_size_of_the_rewards(beta):
    rng = np.random.default_rng(5)
    transitions, rewards = random_rows(rng, 4, 2, 4), rng.normal(size=(10, 4, 2, 4))
    exact = float(backward_induction.value(Model.of(transitions, rewards, 10, 0), beta))
    mdp = eb.FiniteMDP(transitions, rewards, horizon=10)
    assert eb.solve(mdp, beta).value == pytest.approx(exact, rel=1e-13, abs=1e-13 * np.abs(rewards).max())


@sampled(probability=[1e-12, 1e-9], prize=[1.0, -1.0, 40.0, -1000.0], beta=[*EVERY_BETA, 27.0, -27.0, 650.0])
def test_a_prize_or_disaster_of_tiny_probability_counts(beta, prize, probability):
    transitions = [[[1 - probability, probability]], [[0, 1]]]
    rewards = np.array([[[0.0, prize]], [[0.0, 0.0]]])
    assert_accurate(transitions, rewards, 3, beta)


@sampled(
    base=[0.0, 1.0, -1.0],
    sign=[1, -1],
    exponent=[6.9, 6.92, 590.0, 599.9, 600.1, 690.0, 699.99, 700.01, 709.9, 745.0, 800.0, 1400.0],
)
def test_value_is_exact_where_one_formula_hands_over_to_the_next(exponent, sign, base):
    # State 0 draws among states of values base, base ± small, and one far away that other rows never reach.
    transitions = np.zeros((5, 2, 5))
    transitions[0] = [[0, 0.5, 0.5, 0, 0], [0, 1e-3, 0.499, 0.5, 0]]
    transitions[1:, :, 4] = 1
    for far in (1.0, -1.0):
        rewards = np.array([[0.0, 0.0], [base, base], [base + 1e-3 * far] * 2, [base + far] * 2, [0.0, 0.0]])
        assert_accurate(transitions, rewards, 2, sign * exponent)
        # The extreme state exists but is out of reach of state 0.
        apart = transitions.copy()
        apart[0, 1] = [0, 0.3, 0.7, 0, 0]
        assert_accurate(apart, rewards, 2, sign * exponent)


@pytest.mark.parametrize("beta", [-1.0, -0.01, 0.01, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_rows_far_below_the_global_extreme_keep_their_digits(beta, sign):
    # Values from 1e-6 to 1e6 side by side, so that one shared scale cannot serve all rows.
    sizes = sign * np.array([1e-6, 1e-3, 1.0, 30.0, 1e3, 1e6])
    transitions = np.zeros((6, 1, 6))
    for s in range(6):
        transitions[s, 0, s], transitions[s, 0, max(s - 1, 0)] = 0.75, 0.25
    transitions[0, 0, 0] = 1
    for s in range(6):
        assert_accurate(transitions, sizes[:, None], 4, beta, start=s)


@pytest.mark.parametrize("beta", [1.0, -1.0])
def test_actions_are_told_apart_where_neither_reward_nor_value_overflows_but_their_sum(beta):
    # State 2 is worth 600, and the way there pays 600 or a little more or less: e^1200 is out of range.
    transitions = np.zeros((4, 3, 4))
    transitions[0, :, 2] = transitions[1:, :, 3] = 1
    rewards = np.array([[600.0, 601.0, 599.0], [0.0] * 3, [600.0] * 3, [0.0] * 3])
    assert_accurate(transitions, np.sign(beta) * rewards, 3, beta)
    best = eb.solve(eb.FiniteMDP(sparse_form(transitions), np.sign(beta) * rewards, horizon=3), beta).policy[0, 0]
    assert best == (1 if beta > 0 else 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beta", [1e-9, -1e-12, 1e-14, -1e-15, 1e-16, 1e-18])
def test_actions_are_told_apart_however_small_beta_is(form, beta):
    rng = np.random.default_rng(2)
    transitions, rewards = rng.dirichlet(np.ones(60), size=(60, 8)), rng.random((60, 8))
    mdp = eb.FiniteMDP(FORMS[form](transitions), rewards, horizon=6)
    np.testing.assert_allclose(eb.solve(mdp, beta).values, eb.solve(mdp, 0.0).values, rtol=max(1e-13, abs(beta) * 10))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beta", [1e300, -1e300, 1e308, -1e308])
def test_an_absurd_beta_gives_the_best_or_the_worst_case(form, beta):
    transitions = np.full((2, 2, 2), 0.5)
    rewards = np.array([[0.0, 3.0], [1.0, -2.0]])
    value = eb.solve(eb.FiniteMDP(FORMS[form](transitions), rewards, horizon=4), beta).value
    assert value == (12.0 if beta > 0 else 6.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beta", [1e-300, -2.0, 50.0])
def test_rewards_at_the_edge_of_doubles_do_not_overflow(form, beta):
    transitions = np.full((2, 1, 2), 0.5)
    rewards = np.array([[1e306], [-1e306]])
    mdp = eb.FiniteMDP(FORMS[form](transitions), rewards, horizon=4)
    assert np.isfinite(eb.solve(mdp, beta).values).all()


@pytest.mark.parametrize("size", [1e-9, 1e-12, 1e-15, 1e-18, 1e-19, 1e-30, 1e-300])
def test_value_is_continuous_through_zero_with_slope_half_the_variance(size):
    rng = np.random.default_rng(8)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(4), size=(4, 1)), rng.random((4, 1, 4)), horizon=5)
    policy = np.zeros((5, 4), dtype=int)
    law = eb.return_law(mdp, policy)
    for beta in (size, -size):
        value = eb.evaluate(mdp, policy, beta).value
        assert value == pytest.approx(law.mean + beta * law.variance / 2, rel=1e-14)


@given(draws(), BETAS, st.floats(-50, 50, allow_subnormal=False))
def test_a_constant_added_to_every_reward_is_added_to_the_value(drawn, beta, constant):
    moved = replace(drawn, rewards=drawn.rewards + constant)
    expected = eb.solve(drawn.mdp, beta).value + drawn.horizon * constant
    assert eb.solve(moved.mdp, beta).value == pytest.approx(expected, rel=1e-12, abs=1e-12)


@sampled(
    beta=[-1.0, 0.0, 1e-6, 3.0],
    form=FORMS,
    stationary=[True, False],
    kind=["(S, A)", "(S, A, S)", "(H, S, A)", "(H, S, A, S)"],
)
def test_what_is_paid_whatever_happens_changes_no_policy_however_much_it_is(kind, stationary, form, beta):
    rng, sizes = np.random.default_rng(len(kind)), {"H": 5, "S": 4, "A": 3}
    shape = tuple(sizes[axis] for axis in kind.strip("()").split(", "))
    kernel = FORMS[form](rng.dirichlet(np.ones(4), size=(4, 3) if stationary else (5, 4, 3)))
    rewards = rng.integers(-64, 64, size=shape) / 64  # which keep their digits beside 1e14
    paid = np.array([1e14, -3e13, 0.0, 1e13, 7e13] if "H" in kind else [1e14])
    plain = eb.FiniteMDP(kernel, rewards, horizon=5)
    moved = eb.FiniteMDP(
        kernel, rewards + (paid.reshape(5, *(1,) * (len(shape) - 1)) if "H" in kind else paid), horizon=5
    )
    best, found = eb.solve(plain, beta), eb.solve(moved, beta)
    assert eb.evaluate(plain, found.policy, beta).value == pytest.approx(best.value, rel=1e-12)
    to_go = np.cumsum(np.broadcast_to(paid, 5)[::-1])[::-1]
    assert found.value == pytest.approx(best.value + to_go[0], rel=1e-15)
    assert found.values[:-1] == pytest.approx(best.values[:-1] + to_go[:, None], rel=1e-15)


@given(draws(), BETAS, st.floats(1e-3, 1e3))
def test_scaling_the_rewards_is_scaling_beta(drawn, beta, scale):
    scaled = replace(drawn, rewards=drawn.rewards * scale)
    expected = eb.solve(drawn.mdp, beta).value * scale
    assert eb.solve(scaled.mdp, beta / scale).value == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)


@given(draws(), st.lists(BETAS, min_size=2, max_size=6))
def test_value_does_not_decrease_with_beta(drawn, betas):
    mdp = drawn.mdp
    values = [eb.solve(mdp, beta).value for beta in sorted(betas)]
    assert (np.diff(values) >= -1e-12).all()


@given(draws(), BETAS, st.randoms(use_true_random=False))
def test_renaming_states_changes_nothing(drawn, beta, random):
    n_states = drawn.transitions.shape[-1]
    order = np.array(random.sample(range(n_states), n_states))
    transitions = np.take(np.take(drawn.transitions, order, axis=-3), order, axis=-1)
    rewards = drawn.rewards
    if rewards.shape[-3:] == transitions.shape[-3:]:
        rewards = np.take(np.take(rewards, order, axis=-3), order, axis=-1)
    else:
        rewards = np.take(rewards, order, axis=-2)
    start = drawn.start[order] if np.ndim(drawn.start) else int(np.flatnonzero(order == drawn.start)[0])
    renamed = replace(drawn, transitions=transitions, rewards=rewards, start=start)
    before, after = eb.solve(drawn.mdp, beta), eb.solve(renamed.mdp, beta)
    np.testing.assert_allclose(after.values, before.values[:, order], rtol=1e-12, atol=1e-13)
    assert after.value == pytest.approx(before.value, rel=1e-12, abs=1e-13)


@given(draws(), BETAS, st.data())
def test_dense_and_sparse_forms_give_the_same_numbers(drawn, beta, data):
    dense, sparse = replace(drawn, sparse=False).mdp, replace(drawn, sparse=True).mdp
    policy = data.draw(policies_for(dense))
    near = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(eb.solve(dense, beta).values, eb.solve(sparse, beta).values, **near)
    for function in (eb.entropic_variance, eb.chi_square, lambda *args: eb.evaluate(*args).values):
        np.testing.assert_array_equal(function(dense, policy, beta), function(sparse, policy, beta))
    assert eb.tilted(dense, policy, beta) == eb.tilted(sparse, policy, beta)
    assert eb.max_return(dense) == eb.max_return(sparse)
