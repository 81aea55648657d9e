"""Exact planning against brute force over all policies and trajectories, and against independent formulas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp, mpf
from reference import brute_force as brute
from reference.models import BETAS, Draw, draws, policies_for, sparse_form
from scipy import optimize, sparse

import entropic_bpi as eb
from entropic_bpi.model import planning, return_law, steps


@pytest.fixture(scope="module", params=["in one call", "by steps"], autouse=True)
def way(request):
    """Tiny models are planned in one compiled call, larger ones step by step: every claim holds for both ways."""
    pairs = planning._FEW_PAIRS if request.param == "in one call" else 0
    with mock.patch.object(planning, "_FEW_PAIRS", pairs):
        yield


@st.composite
def played(draw) -> tuple[Draw, eb.FiniteMDP, np.ndarray]:
    """A model and a policy for it."""
    drawn = draw(draws())
    mdp = drawn.mdp
    return drawn, mdp, draw(policies_for(mdp))


def every_place(mdp):
    return [(h, s) for h in range(mdp.horizon + 1) for s in range(mdp.n_states)]


# -- solve and evaluate --------------------------------------------------------------------------------------


@given(draws(), BETAS)
def test_solve_reaches_the_best_value_of_all_policies(drawn, beta):
    solution = eb.solve(drawn.mdp, beta)
    assert solution.value == pytest.approx(float(brute.best_value(drawn.model, beta)), rel=1e-12, abs=1e-13)


def test_one_action_for_each_state_is_played_at_every_step():
    mdp = eb.instances.garnet(5, 3, 2, horizon=4, seed=1)
    policy = np.array([0, 2, 1, 1, 0])
    wide = np.tile(policy, (4, 1))
    for beta in (-1.0, 0.0, 2.0):
        expected = eb.evaluate(mdp, wide, beta)
        np.testing.assert_array_equal(eb.evaluate(mdp, policy, beta).values, expected.values)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.zeros(4, int), r"shape \(horizon, states\) = \(4, 5\), got \(4,\)"),
        (np.full(5, 3), r"policy\[h=0, s=0\] = 3 is not an action"),
        (np.zeros(5), "integers"),
        (np.full((4, 5, 3), 0.5), r"shape \(horizon, states\) = \(4, 5\), got \(4, 5, 3\)"),
        ([[0], [0, 1]], "array of shape"),
    ],
)
def test_what_is_no_policy_is_refused(policy, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.evaluate(eb.instances.garnet(5, 3, 2, horizon=4, seed=1), policy, 1.0)


@given(draws(), BETAS)
def test_the_optimal_policy_is_worth_the_optimal_value(drawn, beta):
    mdp = drawn.mdp
    solution = eb.solve(mdp, beta)
    np.testing.assert_allclose(eb.evaluate(mdp, solution.policy, beta).values, solution.values, rtol=1e-12, atol=1e-13)


@given(draws(), BETAS)
def test_q_values_are_the_values_after_each_first_action(drawn, beta):
    mdp = drawn.mdp
    solution = eb.solve(mdp, beta)
    assert solution.q_values.shape == (mdp.horizon, mdp.n_states, mdp.n_actions)
    np.testing.assert_allclose(solution.q_values.max(axis=2), solution.values[:-1], rtol=1e-12, atol=1e-13)
    for a in range(mdp.n_actions):
        policy = solution.policy.copy()
        policy[0] = a
        np.testing.assert_allclose(
            solution.q_values[0, :, a], eb.evaluate(mdp, policy, beta).values[0], rtol=1e-12, atol=1e-13
        )


@given(played(), BETAS)
def test_evaluate_is_the_risk_over_all_trajectories_from_every_step_and_state(case, beta):
    drawn, mdp, policy = case
    evaluation = eb.evaluate(mdp, policy, beta)
    model = drawn.model
    expected = float(brute.entropic_risk(brute.trajectories(model, policy), beta))
    assert evaluation.value == pytest.approx(expected, rel=1e-12, abs=1e-13)
    for h, s in every_place(mdp):
        risk = float(brute.entropic_risk(brute.continuations(model, policy, h, s), beta))
        assert evaluation.values[h, s] == pytest.approx(risk, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("beta", [-3.0, 2.0])
@pytest.mark.parametrize("form", [np.asarray, sparse_form])
def test_a_next_state_reward_is_a_lottery_not_its_mean(beta, form):
    transitions = np.full((2, 1, 2), 0.5)
    rewards = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    mdp = eb.FiniteMDP(form(transitions), rewards, horizon=1)
    expected = np.log((1 + np.exp(beta)) / 2) / beta
    assert eb.solve(mdp, beta).value == pytest.approx(expected, rel=1e-14)
    assert abs(expected - 0.5) > 0.1


@pytest.mark.parametrize("form", [np.asarray, sparse_form])
@pytest.mark.parametrize("beta", [-40.0, -1.0, 0.0, 0.3, 25.0])
def test_rounding_never_breaks_a_tie_so_the_lowest_action_wins(form, beta):
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.ones(61), size=61)
    transitions = np.repeat(rows[:, None], 5, axis=1)
    rewards = np.repeat(rng.random((61, 1)), 5, axis=1)
    policy = eb.solve(eb.FiniteMDP(form(transitions), rewards, horizon=12), beta).policy
    assert (policy == 0).all()


def test_a_difference_too_small_to_be_a_tie_decides():
    mdp = eb.FiniteMDP(np.ones((1, 2, 1)), [[1.0, 1.0 + 1e-13]], horizon=1)
    assert eb.solve(mdp, 1.0).policy[0, 0] == 1


def large_model() -> eb.FiniteMDP:
    rng = np.random.default_rng(7)
    n_states, n_actions, successors = 6000, 4, 3
    indices = np.sort(rng.permuted(np.tile(np.arange(50), (n_states * n_actions, 1)), axis=1)[:, :successors], axis=1)
    indices = indices + (np.arange(n_states * n_actions) // n_actions)[:, None] // 50 * 50
    probabilities = rng.dirichlet(np.ones(successors), size=n_states * n_actions)
    indptr = np.arange(0, indices.size + 1, successors)
    rows = eb.SparseTransitions(indptr, indices.ravel(), probabilities.ravel())
    return eb.FiniteMDP(rows, rng.normal(size=(n_states, n_actions)), horizon=6)


@given(draws(), BETAS, st.data())
def test_in_one_call_or_by_steps_the_numbers_are_the_same(drawn, beta, data):
    mdp = drawn.mdp
    policy = data.draw(policies_for(mdp))
    with mock.patch.object(planning, "_FEW_PAIRS", 10**9):
        solution, evaluation = eb.solve(mdp, beta), eb.evaluate(mdp, policy, beta)
    near = {"rtol": 1e-13, "atol": 1e-13 * max(map(abs, mdp.reward_range))}
    with mock.patch.object(planning, "_FEW_PAIRS", 0):
        np.testing.assert_allclose(solution.values, eb.solve(mdp, beta).values, **near)
        np.testing.assert_allclose(solution.values, eb.evaluate(mdp, solution.policy, beta).values, **near)
        np.testing.assert_allclose(evaluation.values, eb.evaluate(mdp, policy, beta).values, **near)


@pytest.mark.parametrize("form", [np.asarray, sparse_form])
@pytest.mark.parametrize("beta", [-1.0, 1.0])
def test_rows_of_a_tiny_model_that_no_scale_serves_have_their_own(form, beta):
    # State 0 never reaches the extreme that beta looks at, a million away: no scale serves it and state 2.
    rewards = np.array([[0.0], [1.0], [1e6 * np.sign(beta)]])
    transitions = np.array([[[0.5, 0.5, 0.0]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
    mdp = eb.FiniteMDP(form(transitions), rewards, horizon=2)
    values, policy = np.zeros((3, 3)), np.zeros((2, 3), dtype=np.int64)
    steps.plan_in_one_call(mdp, beta, values, policy, improve=True)
    expected = np.log((1 + np.exp(beta)) / 2) / beta
    assert values[0, 0] == pytest.approx(expected, rel=1e-14)
    assert eb.solve(mdp, beta).value == pytest.approx(expected, rel=1e-14)
    assert eb.evaluate(mdp, policy, beta).value == pytest.approx(expected, rel=1e-14)


def test_evaluate_leaves_the_policy_alone():
    bridge = eb.instances.risky_bridge(horizon=7)
    policy = np.ones((7, 8), dtype=np.int64)
    policy.flags.writeable = False
    eb.evaluate(bridge, policy, 0.1)
    assert (policy == 1).all()


@pytest.mark.parametrize("beta", [-30.0, 0.0, 0.7])
@pytest.mark.parametrize("threads", [2, 5])
def test_one_thread_or_many_agree_to_the_last_bit(monkeypatch, beta, threads):
    mdp = large_model()
    serial = eb.solve(mdp, beta)
    monkeypatch.setattr(steps, "_PARALLEL_ROWS", 1)
    monkeypatch.setattr(steps, "get_num_threads", lambda: threads)
    parallel = eb.solve(mdp, beta)
    np.testing.assert_array_equal(parallel.values, serial.values)
    np.testing.assert_array_equal(parallel.policy, serial.policy)


def test_more_threads_than_states_do_no_harm(monkeypatch):
    mdp = eb.FiniteMDP(sparse_form(np.full((2, 3, 2), 0.5)), np.arange(6.0).reshape(2, 3), horizon=4)
    expected = eb.solve(mdp, 0.3).values
    monkeypatch.setattr(planning, "_FEW_PAIRS", 0)
    monkeypatch.setattr(steps, "_PARALLEL_ROWS", 1)
    monkeypatch.setattr(steps, "get_num_threads", lambda: 8)
    np.testing.assert_allclose(eb.solve(mdp, 0.3).values, expected, rtol=1e-14)


FORK = """
import multiprocessing, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/model"]
from test_planning import large_model
import entropic_bpi as eb
from entropic_bpi.model import steps

steps._PARALLEL_ROWS = 1

def value_of(mdp):
    return eb.solve(mdp, 0.7).value

mdp = large_model()
expected = value_of(mdp)
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.apply_async(value_of, (mdp,)).get(timeout=60) == expected
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fork is the custom on Linux only")
def test_a_forked_child_can_plan_after_its_parent_used_threads():
    command = [sys.executable, "-c", FORK, str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@given(draws())
def test_max_return_is_the_largest_possible_return_of_any_policy(drawn):
    model = drawn.model
    expected = max(atom.total for policy in brute.policies(model) for atom in brute.trajectories(model, policy))
    assert eb.max_return(drawn.mdp) == pytest.approx(float(expected), rel=1e-14, abs=1e-14)


# -- the law of the return -----------------------------------------------------------------------------------


@given(played())
def test_return_law_is_the_law_over_all_trajectories(case):
    drawn, mdp, policy = case
    law = eb.return_law(mdp, policy)
    expected = brute.law(brute.trajectories(drawn.model, policy))
    assume(len(law.support) <= 1 or np.diff(law.support).min() > 1e-8)  # else the oracle merges different returns
    np.testing.assert_allclose(law.support, [float(x) for x, _ in expected], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(law.probabilities, [float(p) for _, p in expected], rtol=1e-12)


@given(played(), BETAS)
def test_entropic_risk_of_the_law_is_the_value_of_the_policy(case, beta):
    _, mdp, policy = case
    value = eb.evaluate(mdp, policy, beta).value
    assert eb.return_law(mdp, policy).entropic_risk(beta) == pytest.approx(value, rel=1e-12, abs=1e-13)


def test_returns_equal_up_to_rounding_are_one_atom():
    # 0.1 + 0.2 and 0.3 + 0.0 differ in the last bit.
    transitions = [[[0, 0.5, 0.5, 0]], [[0, 0, 0, 1]], [[0, 0, 0, 1]], [[0, 0, 0, 1]]]
    rewards = np.zeros((4, 1, 4))
    rewards[0, 0, 1], rewards[1, 0, 3] = 0.1, 0.2
    rewards[0, 0, 2], rewards[2, 0, 3] = 0.3, 0.0
    law = eb.return_law(eb.FiniteMDP(transitions, rewards, horizon=2), np.zeros((2, 4), dtype=int))
    assert len(law.support) == 1
    assert law.probabilities.tolist() == [1.0]


def test_small_rewards_beside_a_large_one_keep_their_own_atoms():
    transitions = [[[0, 0.5, 0.25, 0.25]]] + [[[0, 1, 0, 0]]] * 3
    rewards = np.zeros((4, 1, 4))
    rewards[0, 0] = [0.0, 0.0, 1e-7, -1e6]
    law = eb.return_law(eb.FiniteMDP(transitions, rewards, horizon=2), np.zeros((2, 4), dtype=int))
    assert law.support.tolist() == [-1e6, 0.0, 1e-7]
    assert law.probabilities.tolist() == [0.25, 0.5, 0.25]


def random_law(seed: int, atoms: int = 12) -> eb.ReturnLaw:
    rng = np.random.default_rng(seed)
    return eb.ReturnLaw(np.sort(rng.normal(size=atoms) * 3), rng.dirichlet(np.ones(atoms)))


def test_mean_and_variance_of_a_known_law():
    law = eb.ReturnLaw(np.array([-1.0, 0.0, 4.0]), np.array([0.25, 0.5, 0.25]))
    assert law.mean == 0.75
    assert law.variance == pytest.approx(0.25 * 1 + 0.25 * 16 - 0.75**2)


@pytest.mark.parametrize("seed", range(5))
def test_quantile_is_the_smallest_return_whose_distribution_function_reaches_q(seed):
    law = random_law(seed)
    for q in np.linspace(0.003, 0.999, 101):
        expected = next(x for x in law.support if law.probabilities[law.support <= x].sum() >= q)
        assert law.quantile(q) == expected
    assert law.quantile(0) == law.support[0]
    assert law.quantile(1) == law.support[-1]


def test_quantile_forgives_rounding_in_the_sum_but_not_rare_returns():
    tenths = eb.ReturnLaw(np.arange(10.0), np.full(10, 0.1))
    assert [tenths.quantile(k / 10) for k in range(1, 11)] == list(range(10))
    rare = eb.ReturnLaw(np.array([-100.0, 0.0, 100.0]), np.array([1e-13, 1 - 2e-13, 1e-13]))
    assert [rare.quantile(q) for q in (1e-14, 1e-12, 0.5, 1)] == [-100.0, 0.0, 0.0, 100.0]


@pytest.mark.parametrize("seed", range(5))
def test_cvar_solves_the_variational_problem(seed):
    law = random_law(seed)
    for alpha in (1e-6, 0.01, 0.1, 0.37, 0.9, 1.0):
        # Rockafellar and Uryasev: max over x of x - E(x - R)^+ / α, attained at an atom.
        expected = max(x - law.probabilities @ np.maximum(x - law.support, 0) / alpha for x in law.support)
        assert law.cvar(alpha) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def evar_by_duality(law: eb.ReturnLaw, alpha: float) -> float:
    """The smallest mean within relative entropy log(1/α): tilt until the entropy is spent."""

    def tilt(strength: float) -> np.ndarray:
        weights = law.probabilities * np.exp(-strength * (law.support - law.support[0]))
        return weights / weights.sum()

    def excess(log_strength: float) -> float:
        q = tilt(np.exp(log_strength))
        ratio = np.where(q > 0, q / law.probabilities, 1.0)
        return float(q @ np.log(ratio) + np.log(alpha))

    return float(tilt(np.exp(optimize.brentq(excess, -25, 25, xtol=1e-14))) @ law.support)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5, 0.95, 0.999])
def test_evar_is_the_worst_mean_within_the_entropy_budget(seed, alpha):
    law = random_law(seed)
    assume_attained = alpha > law.probabilities[0]
    expected = evar_by_duality(law, alpha) if assume_attained else law.support[0]
    assert law.evar(alpha) == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_evar_sees_gaps_far_below_the_range():
    law = eb.ReturnLaw(np.array([0.0, 1e-8, 1.0]), np.array([0.1, 0.8, 0.1]))
    assert law.evar(0.5) == pytest.approx(evar_by_duality(law, 0.5), rel=1e-6, abs=0)
    assert law.evar(0.5) > 1e-9


@given(st.integers(0, 10**6), st.floats(0.001, 1))
def test_risk_measures_are_ordered(seed, alpha):
    law = random_law(seed, atoms=5)
    slack = 1e-9
    assert law.support[0] - slack <= law.evar(alpha) <= law.cvar(alpha) + slack
    assert law.cvar(alpha) <= min(law.mean, law.quantile(alpha)) + slack


def distribution_function(law: eb.ReturnLaw, points: np.ndarray) -> np.ndarray:
    cumulative = np.concatenate([[0.0], np.cumsum(law.probabilities)])
    return cumulative[np.searchsorted(law.support, points, side="right")]


@given(played(), st.integers(1, 40))
def test_bins_bracket_the_law_in_stochastic_order(case, bins):
    _, mdp, policy = case
    law, bracket = eb.return_law(mdp, policy), eb.return_law(mdp, policy, bins=bins)
    points = np.concatenate([law.support, bracket.lower.support, bracket.upper.support])
    shift = 1e-12  # rounding
    middle = distribution_function(law, points)
    assert (distribution_function(bracket.lower, points + shift) >= middle - 1e-12).all()
    assert (distribution_function(bracket.upper, points - shift) <= middle + 1e-12).all()
    width = np.ptp(mdp.reward_range) * mdp.horizon / bins
    assert bracket.upper.mean - bracket.lower.mean <= mdp.horizon * width + 1e-12
    for beta in (-1.0, 0.0, 1.0):
        risk = law.entropic_risk(beta)
        assert bracket.lower.entropic_risk(beta) - 1e-12 <= risk <= bracket.upper.entropic_risk(beta) + 1e-12


def test_bins_that_fit_the_rewards_give_the_exact_law():
    rng = np.random.default_rng(0)
    # In doubles 0.29 * 100 falls short of 29, and 0.07 * 100 exceeds 7.
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(4), size=(4, 1)), np.array([[0.0], [0.29], [0.07], [1.0]]), horizon=6)
    policy = np.zeros((6, 4), dtype=int)
    law, bracket = eb.return_law(mdp, policy), eb.return_law(mdp, policy, bins=600)
    for side in (bracket.lower, bracket.upper):
        np.testing.assert_allclose(side.support, law.support, atol=1e-12)
        np.testing.assert_allclose(side.probabilities, law.probabilities, rtol=1e-12)


def test_too_large_a_support_is_an_error_that_offers_bins():
    rng = np.random.default_rng(0)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(3), size=(3, 1)), rng.random((3, 1, 3)), horizon=12)
    policy = np.zeros((12, 3), dtype=int)
    with pytest.raises(eb.InvalidProblemError, match=r"max_support=500 atoms at step \d+: pass bins="):
        eb.return_law(mdp, policy, max_support=500)
    bracket = eb.return_law(mdp, policy, bins=100, max_support=500)
    assert bracket.lower.mean < eb.evaluate(mdp, policy, 0).value < bracket.upper.mean


def test_a_law_expanded_in_pieces_is_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(5), size=(5, 1)), rng.integers(0, 3, (5, 1, 5)) / 2, horizon=8)
    policy = np.zeros((8, 5), dtype=int)
    whole = eb.return_law(mdp, policy)
    monkeypatch.setattr(return_law, "_EXPANDED_AT_ONCE", 7)
    pieces = eb.return_law(mdp, policy)
    np.testing.assert_array_equal(whole.support, pieces.support)
    np.testing.assert_allclose(whole.probabilities, pieces.probabilities, rtol=1e-13)


def test_probabilities_that_vanish_in_doubles_do_not_spoil_the_law():
    tiny = 1e-200
    mdp = eb.FiniteMDP([[[1 - tiny, tiny]], [[1 - tiny, tiny]]], [[[0.0, 1.0]], [[0.0, 1.0]]], horizon=2)
    law = eb.return_law(mdp, np.zeros((2, 2), dtype=int))
    assert (law.probabilities > 0).all()
    assert np.isfinite(law.entropic_risk(2000.0))


# -- tilting -------------------------------------------------------------------------------------------------


@given(played(), BETAS)
def test_entropic_variance_is_the_variance_of_the_exponential_at_every_step_and_state(case, beta):
    drawn, mdp, policy = case
    variance = eb.entropic_variance(mdp, policy, beta)
    model = drawn.model
    for h, s in every_place(mdp):
        atoms = list(brute.continuations(model, policy, h, s))
        expected = float(brute.variance_of_exponential(atoms, beta))
        scale = float(brute.mean_exponential(atoms, beta)) ** 2
        assert variance[h, s] == pytest.approx(expected, rel=1e-9, abs=1e-24 * scale)


@given(played(), BETAS)
def test_chi_square_is_the_relative_variance_of_the_law(case, beta):
    drawn, mdp, policy = case
    atoms = brute.trajectories(drawn.model, policy)
    expected = float(brute.variance_of_exponential(atoms, beta) / brute.mean_exponential(atoms, beta) ** 2)
    assert eb.chi_square(mdp, policy, beta) == pytest.approx(expected, rel=1e-9, abs=1e-24)


@given(played(), BETAS)
def test_tilted_reweights_every_trajectory_by_its_exponential(case, beta):
    drawn, mdp, policy = case
    tilted = eb.tilted(mdp, policy, beta)
    nominal = brute.trajectories(drawn.model, policy)
    mean = brute.mean_exponential(nominal, beta)
    expected = {atom.states: atom.probability * mp.exp(mpf(beta) * atom.total) / mean for atom in nominal}
    for other in (policy, np.zeros_like(policy)):  # the policy is built in
        found = {atom.states: atom for atom in brute.trajectories(brute.Model.read(tilted), other)}
        assert set(found) <= set(expected)
        for states, probability in expected.items():
            assert float(found[states].probability) == pytest.approx(float(probability), rel=1e-10, abs=0)
    np.testing.assert_allclose(
        [float(found[atom.states].total) for atom in nominal], [float(atom.total) for atom in nominal], atol=1e-14
    )


def test_chi_square_of_a_small_beta_is_its_square_times_the_variance():
    rng = np.random.default_rng(3)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(4), size=(4, 2)), rng.random((4, 2)), horizon=5)
    policy = rng.integers(0, 2, (5, 4))
    variance = eb.return_law(mdp, policy).variance
    assert eb.chi_square(mdp, policy, 1e-8) == pytest.approx(1e-16 * variance, rel=1e-6, abs=0)


def test_entropic_variance_survives_a_mean_that_underflows():
    # Z = 1e-200 + e^-1000 squares to 0 in doubles, the variance 1e-200 does not vanish.
    mdp = eb.FiniteMDP([[[1e-200, 1.0]], [[0, 1.0]]], [[[0.0, 1000.0]], [[0.0, 0.0]]], horizon=1)
    variance = eb.entropic_variance(mdp, np.zeros((1, 2), dtype=int), -1.0)
    assert variance[0, 0] == pytest.approx(1e-200, rel=1e-9, abs=0)


def test_a_variance_beyond_doubles_is_an_error_that_offers_chi_square():
    mdp = eb.FiniteMDP([[[0.5, 0.5]], [[0, 1.0]]], [[[0.0, 1000.0]], [[0.0, 0.0]]], horizon=1)
    policy = np.zeros((1, 2), dtype=int)
    with pytest.raises(eb.InvalidProblemError, match="use chi_square"):
        eb.entropic_variance(mdp, policy, 1.0)
    assert eb.chi_square(mdp, policy, 1.0) == pytest.approx(1.0)


# -- bad input -----------------------------------------------------------------------------------------------

COIN = eb.FiniteMDP(np.full((2, 2, 2), 0.5), [[0.0, 1.0], [1.0, 0.0]], horizon=3)
POLICY = np.zeros((3, 2), dtype=int)


@pytest.mark.parametrize("beta", [float("nan"), float("inf"), -float("inf"), None, "risky", 1j, [1.0, 2.0], 10**400])
def test_a_beta_that_is_not_a_finite_number_is_an_error(beta):
    calls = [
        lambda: eb.solve(COIN, [beta] if isinstance(beta, list) else beta),
        lambda: eb.evaluate(COIN, POLICY, beta),
        lambda: eb.entropic_variance(COIN, POLICY, beta),
        lambda: eb.chi_square(COIN, POLICY, beta),
        lambda: eb.tilted(COIN, POLICY, beta),
        lambda: eb.return_law(COIN, POLICY).entropic_risk(beta),
    ]
    for call in calls:
        with pytest.raises(eb.InvalidProblemError, match=r"beta(\[0\])? must be a finite real number, got"):
            call()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.zeros((2, 2), dtype=int), r"\(horizon, states\) = \(3, 2\), got \(2, 2\)"),
        (np.zeros(6, dtype=int), r"got \(6,\)"),
        ([[0, 0], [0], [0, 0]], r"policy must be an array of shape \(3, 2\)"),
        (np.zeros((3, 2)), r"policy must hold integers, got dtype\('float64'\)"),
        (np.zeros((3, 2), dtype=bool), r"policy must hold integers, got dtype\('bool'\)"),
        ([[0, 0], [0, 2], [0, 0]], r"policy\[h=1, s=1\] = 2 is not an action: expected 0 to 1"),
        ([[0, 0], [0, 0], [-1, 0]], r"policy\[h=2, s=0\] = -1 is not an action"),
        (None, "policy must have shape"),
    ],
)
def test_a_bad_policy_is_an_error_that_says_where(policy, message):
    calls = [eb.evaluate, eb.entropic_variance, eb.chi_square, eb.tilted]
    for call in [lambda c=call: c(COIN, policy, 1.0) for call in calls] + [lambda: eb.return_law(COIN, policy)]:
        with pytest.raises(eb.InvalidProblemError, match=message):
            call()


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), "x"])
def test_a_quantile_level_outside_the_unit_interval_is_an_error(q):
    with pytest.raises(eb.InvalidProblemError, match="q must"):
        eb.return_law(COIN, POLICY).quantile(q)


@pytest.mark.parametrize("alpha", [0, -0.5, 1.5, float("nan"), None])
def test_a_tail_level_outside_its_interval_is_an_error(alpha):
    law = eb.return_law(COIN, POLICY)
    for measure in (law.cvar, law.evar):
        with pytest.raises(eb.InvalidProblemError, match="alpha must"):
            measure(alpha)


@pytest.mark.parametrize("bins", [0, -3, 2.5, True, "many"])
def test_a_number_of_bins_that_is_not_a_positive_integer_is_an_error(bins):
    with pytest.raises(eb.InvalidProblemError, match="bins must be"):
        eb.return_law(COIN, POLICY, bins=bins)


class TestSeveralBetas:
    """One call for many β equals one call for each, whatever the form of the model."""

    BETAS = (-300.0, -2.0, -0.1, 0.0, 1e-9, 0.7, 40.0, 1e5)

    @staticmethod
    def models():
        rng = np.random.default_rng(5)
        yield eb.instances.risky_bridge(horizon=7)
        yield eb.instances.garnet(40, 3, 4, horizon=6, seed=1)
        kernel = rng.dirichlet(np.full(60, 0.1), size=(60, 6))
        yield eb.FiniteMDP(kernel, rng.normal(size=(60, 6)), horizon=5, start=rng.dirichlet(np.ones(60)))
        yield eb.FiniteMDP(kernel[:, :2], rng.normal(size=(60, 2, 60)), horizon=4)
        matrices = [sparse.csr_array(np.where(kernel[:, a] < 0.02, 0, kernel[:, a])) for a in range(6)]
        matrices = [sparse.csr_array(m / m.sum(axis=1)[:, None]) for m in matrices]
        yield eb.FiniteMDP(matrices, rng.normal(size=(5, 60, 6)), horizon=5)

    def test_they_equal_single_calls(self):
        for mdp in self.models():
            together = eb.solve(mdp, self.BETAS)
            assert len(together) == len(self.BETAS)
            for beta, found in zip(self.BETAS, together, strict=True):
                alone = eb.solve(mdp, beta)
                assert found.beta == beta
                np.testing.assert_array_equal(found.policy, alone.policy)
                np.testing.assert_allclose(found.values, alone.values, rtol=1e-13, atol=1e-13)
                np.testing.assert_allclose(found.value, alone.value, rtol=1e-13, atol=1e-13)

    def test_more_than_fit_into_one_product_are_all_there(self, monkeypatch):
        monkeypatch.setattr(planning, "TOGETHER", 3)
        dense = list(self.models())[2]
        values = [solution.value for solution in eb.solve(dense, np.array(self.BETAS))]
        np.testing.assert_allclose(values, [eb.solve(dense, beta).value for beta in self.BETAS], rtol=1e-13)
        assert values == sorted(values)

    def test_none_are_none_and_each_is_checked(self):
        bridge = eb.instances.risky_bridge(horizon=3)
        assert eb.solve(bridge, []) == []
        with pytest.raises(eb.InvalidProblemError, match=r"beta\[1\] must be a finite real number, got nan"):
            eb.solve(bridge, [1.0, float("nan")])
        with pytest.raises(eb.InvalidProblemError, match="beta must be a finite real number"):
            eb.solve(bridge, "12")
