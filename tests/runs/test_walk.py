"""Where a policy goes, against the enumeration of all trajectories."""

from itertools import product

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.runs.walk import walk_model, walk_observed
from entropic_bpi.types import Transitions


def sparse_model(rng, stationary):
    kernel = rng.dirichlet(np.ones(3), size=(4, 3, 2))
    kernel[kernel < 0.25] = 0.0
    kernel /= kernel.sum(axis=-1, keepdims=True)
    return eb.FiniteMDP(kernel[0] if stationary else kernel, np.zeros((3, 2)), horizon=4, start=[0.5, 0.0, 0.5])


def enumerated(start, kernel, policy):
    """Probability of each state at each step, by all trajectories."""
    horizon, n_states = policy.shape
    masses = np.zeros(policy.shape)
    for path in product(range(n_states), repeat=horizon):
        probability = start[path[0]]
        for h, s in enumerate(path):
            masses[h, s] += probability / n_states ** (horizon - 1 - h)
            if h + 1 < horizon:
                probability *= kernel[h, s, policy[h, s], path[h + 1]]
    return masses


def dense(steps, shape):
    masses = np.zeros(shape)
    for h, (states, mass, _) in enumerate(steps):
        masses[h, states] = mass
    return masses


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_masses_are_those_of_all_trajectories(seed, stationary):
    rng = np.random.default_rng(seed)
    mdp, policy = sparse_model(rng, stationary), rng.integers(0, 2, (4, 3))
    kernel = np.broadcast_to(mdp.transitions, (4, 3, 2, 3))
    expected = enumerated(mdp.start_distribution, kernel, policy)
    assert np.allclose(dense(walk_model(mdp, policy), policy.shape), expected, atol=1e-15)
    assert np.array_equal(dense(walk_model(mdp, policy, reach=True), policy.shape) > 0, expected > 0)


def test_what_is_reached_does_not_underflow():
    forward = np.zeros((41, 1, 41))
    for s in range(40):
        forward[s, 0, s + 1], forward[s, 0, 0] = 1e-9, 1 - 1e-9
    forward[40, 0, 40] = 1.0
    mdp = eb.FiniteMDP(forward, np.zeros((41, 1)), horizon=41)
    policy = np.zeros((41, 41), dtype=int)
    (*_, (states, _, _)) = walk_model(mdp, policy)
    assert 40 not in states  # 1e-360 is no double
    (*_, (states, _, _)) = walk_model(mdp, policy, reach=True)
    assert 40 in states


@pytest.mark.parametrize("stationary", [True, False])
def test_observed_transitions_are_followed_by_their_frequencies(stationary):
    rng = np.random.default_rng(1)
    mdp = sparse_model(rng, stationary)
    options = {"beta": -1.0, "eps": 1e-6, "delta": 0.1, "stationary": stationary, "max_episodes": 50, "seed": 1}
    claim = eb.identify(mdp, **options).certificate
    problem, seen = claim.problem, claim.transitions
    frequencies = np.zeros((problem.n_rows, 3))
    np.add.at(frequencies, (seen.rows, seen.successors), seen.times)
    frequencies /= np.maximum(frequencies.sum(axis=1, keepdims=True), 1)
    kernel = np.broadcast_to(frequencies[:-1].reshape(-1, 3, 2, 3), (4, 3, 2, 3))
    expected = enumerated(frequencies[-1], kernel, claim.policy)
    shuffled = rng.permutation(len(seen.rows))
    mixed = Transitions(*(column[shuffled] if column.size else column for column in seen))
    _, *steps = walk_observed(problem, mixed, claim._planned)
    assert np.allclose(dense(steps, (4, 3)), expected)
