"""Certificates of honest runs pass the verifier, over the whole range of β that the library accepts."""

import numpy as np
import pytest

import entropic_bpi as eb

EXPONENTS = {"any": (1e-7, 599.0), "large": (100.0, 599.0), "largest": (300.0, 599.0)}


def honest_certificate(rng, exponents):
    """A run of a random small model with |β| times the range of the return drawn log-uniformly; None if refused."""
    n_states, n_actions, horizon = (int(n) for n in rng.integers([2, 2, 1], [5, 4, 5]))
    kernel = rng.dirichlet(np.full(n_states, rng.choice([0.1, 0.5, 2.0])), size=(n_states, n_actions))
    kernel[kernel < 1e-6] = 0.0
    kernel /= kernel.sum(axis=-1, keepdims=True)
    rewards = rng.random((n_states, n_actions, n_states) if rng.random() < 0.5 else (n_states, n_actions))
    rewards = rewards if rng.random() < 0.5 else np.round(2 * rewards)
    if rewards.ndim == 3:
        rewards = np.repeat(rewards[None], horizon, axis=0)
    start = int(rng.integers(n_states)) if rng.random() < 0.5 else rng.dirichlet(np.ones(n_states))
    mdp = eb.FiniteMDP(kernel, rewards, horizon=horizon, start=start)
    spread = (mdp.reward_range[1] - mdp.reward_range[0]) * horizon
    if spread == 0:
        return None
    beta = rng.choice([-1, 1]) * np.exp(rng.uniform(*np.log(exponents))) / spread
    try:
        return eb.identify(
            mdp,
            beta=float(beta),
            eps=0.05 * spread,
            delta=0.1,
            successors="model" if rng.random() < 0.5 else None,
            stationary=bool(rng.integers(2)),
            max_episodes=int(rng.choice([1, 5, 30, 300, 3000])),
            seed=0,
        ).certificate
    except eb.InvalidProblemError:  # the range counts rewards of next states that cannot follow, so it may exceed 600
        return None


def check_many(name, count):
    exponents, checked = EXPONENTS[name], 0
    for seed in range(count):
        certificate = honest_certificate(np.random.default_rng([seed, list(EXPONENTS).index(name)]), exponents)
        if certificate is not None:
            result = eb.verify(certificate)
            assert result.ok, (seed, certificate.beta, result.problems)
            checked += 1
    assert checked > 0.9 * count


@pytest.mark.parametrize("name", EXPONENTS)
def test_honest_certificates_verify(name):
    check_many(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPONENTS)
def test_honest_certificates_verify_in_1e4_runs(name):
    check_many(name, 3500)
