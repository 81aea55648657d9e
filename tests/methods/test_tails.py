"""Bounds of the law of the return, against adversaries on the event, brute force and the exact law."""

import dataclasses

import numpy as np
import pytest
from reference.kl_attack import Shape, draw
from reference.tails_attack import World, at_least, at_most, cvar, quantile

from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.tails import step_of_grid, tails_of
from entropic_bpi.problem.risk import Entropic

ALPHAS = (0.01, 0.05, 0.2, 0.5, 0.9)
ROUNDING = 1e-9


def attack(seed):
    """One case: an adversary for each of several functions of the return, against all measures; how many were checked."""
    rng = np.random.default_rng([seed, 33])
    case = draw(rng, Shape(integer_rewards=bool(seed % 3), max_successors=(1, 2, 3) if seed % 5 == 0 else ()))
    problem, t = case.problem, case.tables
    policy = np.array([[rng.integers(problem.n_actions) for _ in range(t.n_states)] for _ in range(t.steps)])
    policy[: int(problem.artificial)] = 0
    method = KL(dataclasses.replace(problem, risk=Entropic(0.0)))
    step = step_of_grid(problem, case.counts, None if seed % 2 else int(rng.choice([20, 100])))
    tails = tails_of(method, case.counts, policy, step)
    low, high = tails.thresholds[[0, -1]]
    x = float(rng.choice([rng.uniform(low, high), *tails.thresholds[:: max(1, len(tails.thresholds) // 7)]]))
    targets = [
        lambda b: float(b <= x + 1e-9),
        lambda b: float(b >= x - 1e-9),
        lambda b: -max(x - b, 0.0),
        lambda b: max(x - b, 0.0),
    ]
    checked = 0
    for phi in targets:
        world = World(rng, case, policy)
        world.climb(phi)
        checked += check(tails, world.law(), rng, x, seed)
    return checked


def check(tails, law, rng, x, seed):
    """Whether the bounds contain what is true of a law."""
    size = ROUNDING * (1 + max(map(abs, law)))
    some = [x, *rng.choice(sorted(law), 3), float(rng.normal())]
    for at in some:
        for bounds, truth in ((tails.at_most(at), at_most(law, at)), (tails.at_least(at), at_least(law, at))):
            assert bounds[0] - ROUNDING <= truth <= bounds[1] + ROUNDING, (seed, at)
            assert 0.0 <= bounds[0] <= bounds[1] <= 1.0, (seed, at)
    for alpha in ALPHAS:
        lower, upper = tails.cvar(alpha)
        assert lower - size / alpha <= cvar(law, alpha) <= upper + size / alpha, (seed, alpha)
        lower, upper = tails.quantile(alpha)
        assert lower - size <= quantile(law, alpha) <= upper + size, (seed, alpha)
    return 1


def test_bounds_hold_for_every_kernel_in_the_balls():
    assert sum(attack(seed) for seed in range(60)) == 240


@pytest.mark.slow
def test_bounds_hold_in_many_cases():
    assert sum(attack(seed) for seed in range(60, 1_060)) == 4_000
