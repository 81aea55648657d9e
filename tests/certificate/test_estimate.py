"""The policy that is best by the estimates, against exact planning in the estimated model."""

import numpy as np
import pytest

import entropic_bpi as eb


def estimated_model(certificate):
    """The model with the observed frequencies, dense and without any code of the library's estimates."""
    problem, seen = certificate.problem, certificate.transitions
    shape = (problem.n_states, problem.n_actions, problem.n_states)
    steps = 1 if problem.stationary else problem.horizon
    times, paid = np.zeros((steps, *shape)), np.zeros((steps, *shape))
    for row, successor, n, reward in zip(*seen[:4], strict=True):
        if row < problem.n_rows - 1:
            h, pair = divmod(int(row), shape[0] * shape[1])
            state, action = divmod(pair, shape[1])
            times[h, state, action, successor] += n
            paid[h, state, action, successor] = reward
    allowed = times.sum(axis=-1) > 0
    low = problem.possible_rewards[0]
    for h, s in zip(*np.nonzero(~allowed.any(axis=-1)), strict=True):  # nothing was tried: stay, for the least reward
        times[h, s, :, s], paid[h, s, :, s], allowed[h, s] = 1, low, True
    for h, s, a in zip(*np.nonzero(~allowed), strict=True):
        times[h, s, a, s] = 1
    kernel = times / times.sum(axis=-1, keepdims=True)
    start = np.zeros(shape[0])
    begun = seen.rows == problem.n_rows - 1
    start[seen.successors[begun]] = seen.times[begun] / seen.times[begun].sum()
    if problem.stationary:
        kernel, paid, allowed = kernel[0], paid[0], allowed[0]
    return eb.FiniteMDP(kernel, paid, horizon=problem.horizon, start=start, allowed=allowed)


@pytest.mark.parametrize("beta", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("stationary", [True, False])
def test_it_is_optimal_in_the_estimated_model(beta, stationary):
    bridge = eb.as_gymnasium(eb.instances.risky_bridge(horizon=5))
    result = eb.identify(bridge, horizon=5, reward_range=(0, 1), beta=beta, eps=1e-3, delta=0.1, seed=3,
                         max_episodes=60, stationary=stationary)  # fmt: skip
    model = estimated_model(result.certificate)
    actions = result.best_estimate.actions
    assert eb.evaluate(model, actions, beta).value == pytest.approx(eb.solve(model, beta).value, abs=1e-12)


@pytest.mark.parametrize("rewards", ["of pairs", "of next states"])
def test_known_rewards_of_a_model_are_used(rewards):
    rng = np.random.default_rng(1)
    kernel = rng.dirichlet(np.ones(3), size=(3, 2))
    paid = rng.random((3, 2)) if rewards == "of pairs" else rng.random((3, 2, 3))
    mdp = eb.FiniteMDP(kernel, paid, horizon=3)
    result = eb.identify(mdp, beta=-1.0, eps=1e-3, delta=0.1, seed=1, stationary=True, max_episodes=400)
    seen, problem = result.certificate.transitions, result.certificate.problem
    times = np.zeros((6, 3))
    np.add.at(times, (seen.rows, seen.successors), seen.times)
    assert times.sum(axis=1).min() > 0
    frequencies = (times / times.sum(axis=1, keepdims=True)).reshape(3, 2, 3)
    model = eb.FiniteMDP(frequencies, paid, horizon=3, start=problem.start)
    value = eb.evaluate(model, result.best_estimate.actions, -1.0).value
    assert value == pytest.approx(eb.solve(model, -1.0).value, abs=1e-12)


def test_the_entropic_value_at_risk_has_one_too():
    bridge = eb.instances.risky_bridge(horizon=5)
    result = eb.identify(bridge, risk=eb.EVaR(0.1), eps=0.05, delta=0.1, seed=1, successors="model", max_episodes=3000)
    best, actions = eb.solve_evar(bridge, 0.1), result.best_estimate.actions
    found = max(eb.evaluate(bridge, actions, -lam).value + np.log(0.1) / lam for lam in np.geomspace(1e-3, 1e3, 400))
    assert found == pytest.approx(best.value, abs=0.05)


def test_nothing_is_certified_about_it():
    bridge = eb.instances.risky_bridge(horizon=5)
    result = eb.identify(bridge, beta=-1.0, eps=1e-3, delta=0.1, seed=1, max_episodes=50)
    estimate, policy = result.best_estimate, eb.Policy.load(result)
    assert estimate.certificate is None
    assert not estimate.certified
    assert not policy.certified
    for shown in (repr(estimate), repr(policy), repr(result)):
        assert "not certified: do not rely on this policy" in shown
    done = eb.identify(bridge, beta=-1.0, eps=5.0, delta=0.1, seed=1)
    assert eb.Policy.load(done).certified
    assert "not certified" not in repr(eb.Policy.load(done)) + repr(done)


# -- steps ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def differs():
    """A policy that differs between steps: the reward of an action depends on the step."""
    kernel = np.ones((2, 1, 2, 1))
    mdp = eb.FiniteMDP(kernel, np.array([[[0.0, 1.0]], [[1.0, 0.0]]]), horizon=2)
    result = eb.identify(mdp, beta=-1.0, eps=0.5, delta=0.1, seed=1)
    assert result.policy.tolist() == [[1], [0]]
    return result


def test_a_policy_that_differs_between_steps_needs_to_know_the_step(differs):
    policy = eb.Policy.load(differs)
    with pytest.raises(eb.InvalidProblemError, match=r"differs between steps: call policy.start\(\)"):
        policy(0)
    assert [policy(0, step=h) for h in range(2)] == [1, 0]
    for _ in range(2):
        policy.start()
        assert [policy(0), policy(0)] == [1, 0]
    with pytest.raises(eb.InvalidProblemError, match=r"has 2 steps: call policy\.start"):
        policy(0)


def test_a_policy_that_is_the_same_at_every_step_does_not():
    mdp = eb.FiniteMDP(np.ones((1, 2, 1)), np.array([[0.0, 1.0]]), horizon=3)
    policy = eb.Policy.load(eb.identify(mdp, beta=-1.0, eps=0.5, delta=0.1, seed=1))
    assert [policy(0) for _ in range(5)] == [1] * 5


@pytest.mark.parametrize("risk", [eb.Entropic(-1.0), eb.Entropic(0.0), eb.EVaR(0.2)])
@pytest.mark.parametrize("start", [0, [0.5, 0.5]])
def test_before_the_first_episode_it_is_the_policy_of_the_certificate(start, risk):
    """A wide ε is reached at once; where the start is random, no first state was seen."""
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.random.default_rng(0).random((2, 2)), horizon=2, start=start)
    result = eb.identify(mdp, risk=risk, eps=100.0, delta=0.1, seed=0)
    assert result.episodes == 0
    assert np.array_equal(result.best_estimate.actions, result.policy)
