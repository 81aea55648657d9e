"""Runs with declared noise from end to end: the claim fails no more often than declared."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb

DELTA, EPS = 0.3, 0.2


def shop(rng):
    law = rng.dirichlet(np.ones(3))

    def sell(stock, order, demand):
        full = min(stock + order, 3)
        left = max(full - demand, 0)
        return left, 1.5 * (full - left) - (full - stock) - 0.1 * left

    return eb.FiniteMDP.from_noise(range(4), range(3), range(3), law, sell, horizon=3, start=0)


def ice(rng):
    """Six squares in a row with a hole at the left and the goal at the right; a step slips, or is not taken."""
    law, stay = rng.dirichlet(np.ones(3)), 0.02

    def move(square, runs, slip):
        if square in (0, 5):
            return square, 0.0
        following = min(max(square + (slip if runs else max(slip, 0) * (square % 2)), 0), 5)
        return following, float(following == 5) - (0.5 if following == 0 else 0.0) + (0.0 if runs else stay)

    return eb.FiniteMDP.from_noise(range(6), range(2), (-1, 0, 1), law, move, horizon=6, start=2)


def failures(seeds):
    """How many runs have a bound that is false, stopped with a policy that is not ε-optimal, and stopped, by test."""
    found = Counter()
    for seed in seeds:
        rng = np.random.default_rng((31, seed))
        mdp, beta = (shop, ice)[seed % 2](rng), float(rng.choice([-1.0, 0.5]))
        result = eb.identify(mdp, beta=beta, eps=EPS, delta=DELTA, noise="model", seed=seed, max_episodes=200)
        value, best, claim = eb.evaluate(mdp, result.policy, beta).value, eb.solve(mdp, beta).value, result.certificate
        room = 1e-9
        found["false"] += best - value > claim.gap + room or value < claim.lower - room or best > claim.upper + room
        found["not optimal"] += result.stopped and best - value > EPS + room
        found["stopped"] += result.stopped
        found[claim.test] += result.stopped
    return found


def check(found, runs):
    assert found["stopped"] > 0.8 * runs
    assert min(found["pairs"], found["boxes"]) > 0.01 * runs
    for kind in ("false", "not optimal"):
        assert stats.binomtest(found[kind], runs, DELTA, alternative="greater").pvalue > 1e-3


def test_claims_hold():
    check(failures(range(40)), 40)


@pytest.mark.slow
def test_claims_hold_in_a_thousand_runs():
    found = failures(range(1000, 2000))
    print(dict(found))
    check(found, 1000)
