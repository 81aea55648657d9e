"""EVaR of known models, against all policies of small ones."""

import itertools
import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.model.tails import solve_evar


def small_model(rng):
    S, A, H = (int(rng.integers(2, 4)), 2, 2)
    kernel = rng.dirichlet(np.full(S, 0.5), size=(S, A))
    rewards = rng.normal(size=(S, A, S)).round(1) * rng.choice([0.1, 1.0, 10.0]) + rng.choice([0.0, -5.0, 3.0])
    start = int(rng.integers(S)) if rng.random() < 0.5 else rng.dirichlet(np.ones(S))
    return eb.FiniteMDP(kernel, np.broadcast_to(rewards, (H, S, A, S)).copy(), horizon=H, start=start)


def laws_of_all_policies(mdp):
    shape = (mdp.horizon, mdp.n_states)
    for actions in itertools.product(range(mdp.n_actions), repeat=math.prod(shape)):
        yield eb.return_law(mdp, np.array(actions).reshape(shape))


@pytest.mark.parametrize("seed", range(12))
def test_the_bracket_contains_the_best_of_all_policies_and_the_policy_attains_its_value(seed):
    rng = np.random.default_rng(seed)
    mdp, alpha = small_model(rng), float(rng.choice([0.01, 0.1, 0.5, 0.9]))
    best = max(law.evar(alpha) for law in laws_of_all_policies(mdp))
    found = solve_evar(mdp, alpha, tol=1e-5)
    law = eb.return_law(mdp, found.policy)
    spread = 1e-7 * (1 + abs(best))
    assert found.lower - spread <= best <= found.upper + spread
    assert found.lower == found.value <= law.evar(alpha) + spread
    assert law.evar(alpha) <= law.cvar(alpha) + spread
    assert law.quantile(alpha) >= found.value - spread
    assert found.upper - found.lower <= 1.01e-5 * (law.support[-1] - law.support[0] + 200)


def test_where_the_worst_case_is_likely_it_is_all_that_counts():
    """One step, two lotteries: with probability 1/2 each pays its worst, and alpha is less than that."""
    kernel = np.zeros((3, 2, 3))
    kernel[:, 0, 1:] = kernel[:, 1, 1:] = 0.5
    rewards = np.zeros((3, 2, 3))
    rewards[0, 0] = (0.0, 1.0, 5.0)
    rewards[0, 1] = (0.0, 0.9, 100.0)
    mdp = eb.FiniteMDP(kernel, rewards, horizon=1)
    found = solve_evar(mdp, 0.3)
    assert found.policy[0, 0] == 0
    assert found.lower <= 1.0 <= found.upper
    assert found.upper - found.lower <= 1e-6 * 99.2


def test_without_risk_the_value_is_the_return():
    mdp = eb.FiniteMDP(np.ones((1, 1, 1)), np.full((1, 1), -2.5), horizon=3)
    found = solve_evar(mdp, 0.2)
    assert found.lower <= -7.5 <= found.upper
    assert found.upper - found.lower < 1e-10


def test_the_policy_with_the_best_evar_need_not_have_the_best_cvar():
    """One step: the sure 4, or 0 with probability 0.02 and 10 otherwise, whose worst 5 % have the mean 6."""
    kernel = np.zeros((2, 2, 2))
    kernel[:, 0] = kernel[1, 1] = (0.0, 1.0)
    kernel[0, 1] = (0.02, 0.98)
    rewards = np.zeros((2, 2, 2))
    rewards[0, 0, 1], rewards[0, 1, 1] = 4.0, 10.0
    mdp = eb.FiniteMDP(kernel, rewards, horizon=1)
    sure, risky = (eb.return_law(mdp, np.full((1, 2), a)) for a in range(2))
    assert solve_evar(mdp, 0.05).policy[0, 0] == 0
    assert risky.evar(0.05) < sure.evar(0.05) == sure.cvar(0.05) == 4.0
    assert risky.cvar(0.05) == pytest.approx(6.0)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan, "x", None])
def test_a_level_lies_between_0_and_1(alpha):
    with pytest.raises(eb.EntropicBPIError, match="alpha"):
        solve_evar(eb.instances.risky_bridge(), alpha)


@pytest.mark.slow
def test_thousands_of_models():
    rng = np.random.default_rng(5)
    for _ in range(1000):
        mdp, alpha = small_model(rng), float(rng.uniform(0.005, 0.995))
        best = max(law.evar(alpha) for law in laws_of_all_policies(mdp))
        found = solve_evar(mdp, alpha, tol=1e-4)
        assert found.lower - 1e-6 * (1 + abs(best)) <= best <= found.upper + 1e-6 * (1 + abs(best))
