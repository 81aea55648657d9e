"""Models with forbidden actions: planning against brute force, and nothing that a forbidden action says counts."""

import itertools
import pickle

import numpy as np
import pytest
from scipy import sparse

import entropic_bpi as eb


def arrays(seed, *, steps, mask_steps, reward_steps, next_state, horizon=3, n_states=3, n_actions=3):
    """Random arrays with nonsense where an action is never allowed."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(n_states), size=(steps, n_states, n_actions))
    shape = (reward_steps, n_states, n_actions) + ((n_states,) if next_state else ())
    rewards = rng.integers(-3, 4, size=shape).astype(float)
    allowed = rng.random((mask_steps, n_states, n_actions)) < 0.5
    allowed[
        np.arange(mask_steps)[:, None], np.arange(n_states), rng.integers(n_actions, size=(mask_steps, n_states))
    ] = True
    drop = lambda array: array[0] if len(array) == 1 else array  # noqa: E731
    spoiled = transitions.copy()
    never = np.broadcast_to(allowed, (horizon, n_states, n_actions))
    spoiled[~(never.any(axis=0, keepdims=True) if steps == 1 else never)] = np.nan
    return drop(transitions), drop(rewards), drop(allowed), drop(spoiled), horizon


def best_by_brute_force(transitions, rewards, allowed, horizon, beta):
    """The largest value over all allowed policies, from state 0, by the recursion written out."""
    n_states, n_actions = allowed.shape[-2:]
    values = np.zeros(n_states)
    for h in reversed(range(horizon)):
        p = transitions[h] if transitions.ndim == 4 else transitions
        per_step = rewards.shape[:3] == (horizon, n_states, n_actions)
        r = rewards[h] if per_step else rewards
        mask = allowed[h] if allowed.ndim == 3 else allowed
        after = np.empty(n_states)
        for s in range(n_states):
            scores = []
            for a in np.flatnonzero(mask[s]):
                paid = r[s, a] + values
                scores.append(p[s, a] @ paid if beta == 0 else np.log(p[s, a] @ np.exp(beta * paid)) / beta)
            after[s] = max(scores)
        values = after
    return values[0]


CASES = list(itertools.product((1, 3), (1, 3), (1, 3), (False, True)))


@pytest.mark.parametrize(("steps", "mask_steps", "reward_steps", "next_state"), CASES)
@pytest.mark.parametrize("beta", [-1.3, 0.0, 0.7])
def test_the_best_policy_uses_allowed_actions_alone(steps, mask_steps, reward_steps, next_state, beta):
    for seed in range(5):
        sizes = {"n_actions": 2} if next_state or reward_steps == 3 else {}
        transitions, rewards, allowed, spoiled, horizon = arrays(
            seed, steps=steps, mask_steps=mask_steps, reward_steps=reward_steps, next_state=next_state, **sizes
        )
        mdp = eb.FiniteMDP(spoiled, rewards, horizon=horizon, allowed=allowed)
        solution = eb.solve(mdp, beta)
        exact = best_by_brute_force(transitions, rewards, allowed, horizon, beta)
        assert solution.value == pytest.approx(exact, abs=1e-12)
        assert eb.evaluate(mdp, solution.policy, beta).value == pytest.approx(exact, abs=1e-12)
        masks = np.broadcast_to(allowed, (horizon, *allowed.shape[-2:]))
        assert np.take_along_axis(masks, solution.policy[..., None], axis=2).all()
        assert (np.isinf(solution.q_values) == ~masks).all()


def test_dense_and_sparse_forms_with_masks_are_equal():
    for seed in range(20):
        _, rewards, allowed, spoiled, horizon = arrays(seed, steps=1, mask_steps=1, reward_steps=1, next_state=False)
        dense = eb.FiniteMDP(spoiled, rewards, horizon=horizon, allowed=allowed)
        matrices = [sparse.csr_array(np.nan_to_num(spoiled[:, a])) for a in range(rewards.shape[1])]
        assert eb.FiniteMDP(matrices, rewards, horizon=horizon, allowed=allowed) == dense


def test_rewards_of_forbidden_actions_do_not_count():
    rewards = [[-np.inf, 1.0], [0.5, 1e300]]
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), rewards, horizon=4, allowed=[[False, True], [True, False]])
    assert mdp.reward_range == (0.5, 1.0)
    assert eb.max_return(mdp) == 4.0
    assert mdp.allowed.tolist() == [[False, True], [True, False]]


def test_the_range_of_rewards_with_masks_that_change_by_step():
    masks = np.array([[[True, False]], [[False, True]]])
    mdp = eb.FiniteMDP(np.ones((1, 2, 1)), [[[1.0, 9.0]], [[7.0, 2.0]]], horizon=2, allowed=masks)
    assert mdp.reward_range == (1.0, 2.0)
    assert eb.solve(mdp, -1.0).value == eb.max_return(mdp) == 3.0
    assert eb.solve(mdp, -1.0).policy.tolist() == [[0], [1]]
    assert mdp.stationary


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_masks_unit_and_title_survive_a_file(tmp_path, suffix):
    for mask in ([[True, False], [True, True]], [[[True, False], [True, True]], [[True, True], [False, True]]]):
        given = {"allowed": mask, "unit": "€", "title": "Two doors"}
        mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2, **given)
        mdp.save(tmp_path / f"model.{suffix}")
        again = eb.FiniteMDP.load(tmp_path / f"model.{suffix}")
        assert again == mdp
        assert (again.unit, again.title, again.allowed.tolist()) == ("€", "Two doors", mask)


def test_masks_unit_and_title_are_part_of_the_hash():
    build = lambda **given: eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2, **given)  # noqa: E731
    plain = build()
    assert build(allowed=[[True, True], [True, True]]) == plain
    assert len({plain, build(allowed=[[True, False], [True, True]]), build(unit="€"), build(title="€")}) == 4


def test_bad_masks_are_refused():
    build = lambda allowed: eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=3, allowed=allowed)  # noqa: E731
    for bad in (
        [True, False],
        [[0.5, 1], [1, 1]],
        [[2, 1], [1, 1]],
        "info",
        [[True], [True, False]],
        np.ones((2, 2, 2), bool),
    ):
        with pytest.raises(
            eb.InvalidModelError, match=r"allowed must be (a boolean array of shape|an array of booleans)"
        ):
            build(bad)
    with pytest.raises(eb.InvalidModelError, match=r"allowed\[s=1\] allows no action"):
        build([[True, True], [False, False]])
    masks = np.ones((3, 2, 2), dtype=bool)
    masks[2, 0] = False
    with pytest.raises(eb.InvalidModelError, match=r"allowed\[h=2, s=0\] allows no action"):
        build(masks)


def test_policies_with_forbidden_actions_are_refused():
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2, allowed=[[True, False], [True, True]])
    bad = np.array([[0, 0], [1, 0]])
    for use in (
        lambda: eb.evaluate(mdp, bad, 1.0),
        lambda: eb.return_law(mdp, bad),
        lambda: eb.chi_square(mdp, bad, 1.0),
    ):
        with pytest.raises(eb.InvalidProblemError, match=r"policy\[h=1, s=0\] = 1 is a forbidden action"):
            use()
    with pytest.raises(eb.InvalidProblemError, match=r"policy must have shape .* = \(2, 2\), got \(2, 2, 2\)"):
        eb.evaluate(mdp, np.full((2, 2, 2), 0.5), 1.0)  # probabilities, which are no policy here


def test_the_gymnasium_environment_of_a_problem_file_is_that_of_its_model(tmp_path):
    (tmp_path / "problem.toml").write_text('source = "risky-bridge"\n\n[params]\nhorizon = 8\n')
    env = eb.as_gymnasium(tmp_path / "problem.toml")
    assert env.mdp == eb.instances.risky_bridge(horizon=8)
    assert env.observation_space.n == 8


def test_the_gymnasium_environment_offers_the_masks():
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2, allowed=[[True, False], [False, True]])
    env = eb.as_gymnasium(mdp)
    state, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == mdp.allowed[state].astype(int).tolist()
    with pytest.raises(eb.InvalidProblemError, match="forbidden in state 0 at step 0"):
        env.step(1)
    state, *_, info = env.step(0)
    assert info["action_mask"].tolist() == mdp.allowed[state].astype(int).tolist()


@pytest.mark.parametrize("sparse_matrices", [False, True])
def test_a_forbidden_row_has_the_rewards_of_the_row_that_it_copies(sparse_matrices):
    """Masks and transitions that change, and rewards that depend on the next state and do not."""
    rng = np.random.default_rng(3)
    kernel, rewards, allowed = rng.dirichlet(np.ones(3), (2, 3, 2)), rng.random((3, 2, 3)), np.ones((2, 3, 2), bool)
    allowed[0, 0, 1] = False
    given = [[sparse.csr_matrix(step[:, a]) for a in range(2)] for step in kernel] if sparse_matrices else kernel
    mdp = eb.FiniteMDP(given, rewards, horizon=2, allowed=allowed)
    rows = mdp.step_rows(0)
    np.testing.assert_array_equal(rows.rewards[:3], rewards[0, 0])
    np.testing.assert_array_equal(rows.rewards[3:6], rewards[0, 0])
    np.testing.assert_array_equal(mdp.step_rows(1).rewards[3:6], rewards[0, 1])
    assert pickle.loads(pickle.dumps(mdp)) == mdp
