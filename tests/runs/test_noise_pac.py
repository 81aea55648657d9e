"""Runs with declared noise from end to end: the claim fails no more often than declared."""

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb

DELTA = 0.3


def shop(rng):
    law = rng.dirichlet(np.ones(3))

    def sell(stock, order, demand):
        full = min(stock + order, 3)
        left = max(full - demand, 0)
        return left, 1.5 * (full - left) - (full - stock) - 0.1 * left

    return eb.FiniteMDP.from_noise(range(4), range(3), range(3), law, sell, horizon=3, start=0)


def failures(seeds):
    """How many of the claims are false, and how many runs reached their goal."""
    false = reached = 0
    for seed in seeds:
        rng = np.random.default_rng((31, seed))
        mdp, beta = shop(rng), float(rng.choice([-1.0, 0.5]))
        result = eb.identify(mdp, beta=beta, eps=0.2, delta=DELTA, noise="model", seed=seed, max_episodes=200)
        value, best, claim = eb.evaluate(mdp, result.policy, beta).value, eb.solve(mdp, beta).value, result.certificate
        room = 1e-9
        false += best - value > claim.gap + room or value < claim.lower - room or best > claim.upper + room
        reached += result.stopped
    return false, reached


def test_claims_hold():
    runs = 40
    false, reached = failures(range(runs))
    assert reached > 0.8 * runs
    assert stats.binomtest(false, runs, DELTA, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
def test_claims_hold_in_a_thousand_runs():
    false, reached = failures(range(1000, 2000))
    assert reached > 800
    assert stats.binomtest(false, 1000, DELTA, alternative="greater").pvalue > 1e-3
