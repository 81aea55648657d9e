"""Theorem RF: bounds that hold for all rewards at once."""

import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.methods import reward_free
from tests.reference.reward_free import Attack, deviations, divergence, end


def test_the_end_of_the_divergence_is_just_outside_of_what_is_allowed():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        n = int(10 ** rng.uniform(0, 7))
        p, x = rng.integers(0, n + 1) / n, 10 ** rng.uniform(-8, 1.5)
        q = reward_free.upper_end(p, x)
        assert p <= q <= 1
        assert q == 1 or divergence(p, q) >= x * (1 - 1e-7)  # nothing that is allowed is cut off
        assert q <= end(p, x, 1) + 1e-6 * (end(p, x, 1) - p) + 1e-14


@pytest.mark.parametrize("next_state", [False, True])
def test_the_kernel_agrees_with_all_sets_in_plain_numpy(next_state):
    rng = np.random.default_rng(3)
    for case in range(12):
        attack = Attack(rng, next_state=next_state, sharp=case % 2 == 1)
        if attack.b * attack.steps > 30:  # the reference forms e^{βH}
            continue
        reach = attack.b * (np.arange(attack.steps)[::-1] + next_state)
        wanted = deviations(attack.estimate, attack.radii, reach)[:, :-1]
        wanted[:, 0, 1:] = 0.0  # where nobody begins
        assert attack.bounds == pytest.approx(wanted, rel=1e-6, abs=1e-12)


def test_a_bound_for_all_sets_is_no_smaller_than_the_sets():
    rng = np.random.default_rng(4)
    for _ in range(300):
        size, x, c = int(rng.integers(2, 8)), 10 ** rng.uniform(-6, 1), math.expm1(10 ** rng.uniform(-6, 2))
        law = rng.dirichlet(np.full(size, 0.3))
        p = np.array([law[[bool(chosen >> j & 1) for j in range(size)]].sum() for chosen in range(1 << size)])
        q = np.array([reward_free.upper_end(min(1.0, mass), x) for mass in p])
        listed = reward_free._deviations(p, q, x, c)
        for one, other in zip(listed, reward_free._deviations(np.empty(0), np.empty(0), x, c), strict=True):
            assert one <= other * (1 + 1e-9)


def attack(cases, seed):
    rng, shares = np.random.default_rng(seed), []
    while len(shares) < cases:
        problem = Attack(rng, next_state=bool(rng.integers(2)), sharp=bool(rng.integers(2)))
        shares += problem.run(20)
    return np.array(shares)


def test_no_reward_policy_or_kernel_breaks_the_bounds():
    shares = attack(2_000, 5)
    assert shares.max() <= 1 + 1e-9
    assert shares.max() >= 0.999  # and some attain them


@pytest.mark.slow
def test_no_reward_policy_or_kernel_breaks_the_bounds_often():
    shares = attack(40_000, 6)
    print(f"{len(shares)} cases, largest share {shares.max():.12f}, attained {np.mean(shares >= 0.999):.2%}")
    assert shares.max() <= 1 + 1e-9


def test_the_bound_grows_with_beta():
    """Which the cells of an interval rest on."""
    bridge = eb.instances.risky_bridge(horizon=4)
    run = eb.explore(bridge, eps=0.1, delta=0.1, betas=(0.1, 3), successors="model", seed=1, max_episodes=3000)
    method, counts = reward_free.RewardFree(run.certificate.problem), run.counts
    sets = method._sets(counts)
    totals = [method._point(b, sets, counts)[0] for b in np.geomspace(1e-5, 3, 60)]
    assert np.all(np.diff(totals) >= 0)


def test_a_deviation_that_is_not_a_number_leaves_the_range_of_the_return():
    run = eb.explore(
        eb.instances.risky_bridge(horizon=3), eps=5.0, delta=0.1, betas=(0.1, 1), successors="model", seed=1
    )
    method = reward_free.RewardFree(run.certificate.problem)
    assert method._bound(0.5, 1.0, 0.25) < method.spread
    assert method._bound(0.5, 1.0, math.nan) == method._bound(0.0, 1.0, math.nan) == method.spread
