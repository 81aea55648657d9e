"""``run``: the oracle, ties, units, starts and bad input."""

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.lab.learners import _run, kernels, names, register, run
from entropic_bpi.lab.learners.game import log_grid, new_game

ALL = names()


@pytest.fixture(scope="module")
def bridge():
    return eb.instances.risky_bridge(horizon=5)


@pytest.mark.parametrize("beta", [-500.0, -2.0, -1e-9, 0.0, 1e-9, 2.0, 500.0])
def test_the_oracle_agrees_with_exact_evaluation(beta):
    mdp = eb.instances.garnet(6, 3, 3, horizon=5, seed=1)
    game = new_game(mdp, beta=beta, episodes=10, delta=0.1, scale=1.0, seed=0, ties="random")
    assert game.oracle.optimum == pytest.approx(eb.solve(mdp, beta).value, abs=1e-11)
    for episode in range(20):
        kernels.walk(game.model, game.greedy, game.oracle, episode)
        policy = [[kernels.action(game.greedy, episode, h, s) for s in range(6)] for h in range(5)]
        value = kernels.evaluate(game.model, game.oracle)
        assert value == pytest.approx(eb.evaluate(mdp, policy, beta).value, abs=1e-11)


def test_ties_are_uniform_and_independent():
    counters = np.arange(60_000)
    draws = np.array([kernels.tie_draw(np.uint64(12345), c, 3) for c in counters])
    np.testing.assert_allclose(np.bincount(draws) / draws.size, 1 / 3, atol=0.01)
    pairs = np.bincount(3 * draws[:-1] + draws[1:]) / (draws.size - 1)
    np.testing.assert_allclose(pairs, 1 / 9, atol=0.01)


def test_lowest_ties_play_the_lowest_index(bridge):
    result = run("rsvi", bridge, beta=1.0, episodes=50, ties="lowest")
    assert result.policy_changes == 0
    np.testing.assert_array_equal(result.policy, 0)
    gap = eb.solve(bridge, 1.0).value - eb.evaluate(bridge, result.policy, 1.0).value
    np.testing.assert_allclose(result.regret, gap * result.grid)


@pytest.mark.parametrize("learner", ALL)
def test_a_seed_fixes_the_run_however_it_is_cut(bridge, learner, monkeypatch):
    first = run(learner, bridge, beta=-1.0, episodes=1000, seed=7, scale=0.1)
    monkeypatch.setattr(_run, "EPISODES_PER_CALL", 137)
    second = run(learner, bridge, beta=-1.0, episodes=1000, seed=7, scale=0.1)
    np.testing.assert_array_equal(first.regret, second.regret)
    np.testing.assert_array_equal(first.policy, second.policy)
    assert first.policy_changes == second.policy_changes
    assert (np.diff(first.regret) >= -1e-9).all()
    assert first.grid[-1] == 1000


@pytest.mark.parametrize("learner", ALL)
def test_rewards_are_rescaled_and_the_regret_is_in_their_units(learner):
    mdp = eb.instances.garnet(4, 2, 2, horizon=3, seed=5)
    rewards = mdp.rewards.copy()
    rewards.flat[:2] = 0, 1
    unit = eb.FiniteMDP(mdp.transitions, rewards, horizon=3)
    other = eb.FiniteMDP(mdp.transitions, 8 * rewards - 2, horizon=3)
    expected = run(learner, unit, beta=-2.0, episodes=500, seed=1, scale=0.1)
    result = run(learner, other, beta=-0.25, episodes=500, seed=1, scale=0.1)
    np.testing.assert_allclose(result.regret, 8 * expected.regret, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("beta", [-1.0, 1.0])
@pytest.mark.parametrize("learner", ALL)
def test_a_start_distribution_is_an_artificial_first_step(learner, beta):
    mdp = eb.instances.garnet(4, 2, 2, horizon=3, seed=5)
    spread = eb.FiniteMDP(mdp.transitions, mdp.rewards, horizon=3, start=[0.25, 0.25, 0.5, 0])
    result = run(learner, spread, beta=beta, episodes=300, seed=1, scale=0.1)
    assert result.policy.shape == (3, 4)
    worst = eb.solve(spread, beta).value
    assert 0 <= result.regret[-1] <= 300 * worst


@pytest.mark.parametrize("beta", [-2000.0, 2000.0])
@pytest.mark.parametrize("learner", ALL)
def test_extreme_beta_gives_finite_regret(bridge, learner, beta):
    result = run(learner, bridge, beta=beta, episodes=300, seed=1, scale=0.1)
    assert np.isfinite(result.regret).all()


@pytest.mark.parametrize("learner", ["rsvi2", "rsq2", "rodi_otp", "rovi", "generative"])
def test_learners_learn(learner):
    mdp = eb.instances.garnet(4, 2, 2, horizon=3, seed=8)
    result = run(learner, mdp, beta=-1.0, episodes=20_000, seed=1, scale=0.1)
    half = np.searchsorted(result.grid, 10_000)
    uniform = run("rsvi", mdp, beta=-1.0, episodes=20_000, seed=1)
    assert result.regret[-1] - result.regret[half] < 0.2 * (uniform.regret[-1] - uniform.regret[half])


def test_the_grid_is_logarithmic_and_short():
    grid = log_grid(10_000_000)
    assert len(grid) <= 2000
    assert grid[0] == 1
    assert grid[-1] == 10_000_000
    assert (np.diff(grid) > 0).all()
    np.testing.assert_array_equal(log_grid(1), [1])


def test_bad_input_is_named(bridge):
    with pytest.raises(eb.InvalidProblemError, match="learner must be one of"):
        run("rsvi3", bridge, beta=1.0, episodes=10)
    with pytest.raises(eb.InvalidProblemError, match="no parameter 'd'; it has: c"):
        run("rsvi", bridge, beta=1.0, episodes=10, d=1)
    with pytest.raises(eb.InvalidProblemError, match="ties must be one of"):
        run("rsvi", bridge, beta=1.0, episodes=10, ties="first")
    with pytest.raises(eb.InvalidProblemError, match="episodes"):
        run("rsvi", bridge, beta=1.0, episodes=0)
    with pytest.raises(eb.InvalidProblemError, match="scale"):
        run("rsvi", bridge, beta=1.0, episodes=10, scale=0)
    for learner in ("ucb_advantage", "entropic_bpi"):
        with pytest.raises(eb.InvalidProblemError, match="beta != 0"):
            run(learner, bridge, beta=0.0, episodes=10)
    with pytest.raises(eb.InvalidProblemError, match="built-in"):
        register("rsvi", lambda game: None)


def test_rewards_of_the_next_state_are_refused():
    mdp = eb.FiniteMDP([[[0.5, 0.5]], [[0, 1]]], np.arange(4.0).reshape(2, 1, 2) / 3, horizon=2)
    with pytest.raises(eb.InvalidProblemError, match="next state"):
        run("rsvi2", mdp, beta=1.0, episodes=10)


def test_a_model_with_as_many_states_as_actions_and_steps_can_be_played():
    """Its rewards by step have the shape of rewards by next state."""
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), [[1.0, 0.0], [0.5, 0.5]], horizon=2)
    assert eb.run("rsvi2", mdp, beta=1.0, episodes=3, seed=0).grid[-1] == 3
