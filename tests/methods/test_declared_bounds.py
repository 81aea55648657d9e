"""Bounds under declared structure: at most so many successors, and a range of returns."""

import dataclasses
import math

import numpy as np
import pytest
from reference import kl as reference
from reference.kl_attack import Shape, attack_plan, draw, with_return_range

ROUNDING = 1e-11
FEW = Shape(max_successors=(1, 2, 3), states=(3, 4))
PAID = Shape(next_state_rewards=True, intervals=False)
UNKNOWN_PAY = Shape(intervals=True)


VISITED = (1, 3, 10, 30, 100, 1000, 20000)


def signed(shape, sign, **more):
    return dataclasses.replace(shape, sign=sign, **more)


def assert_close_above_reference(case):
    """Every bound is on the safe side of the plain one, and close to it."""
    t, method = case.tables, case.plan()
    z, u = reference.optimism(t)
    for kind in (0, 1):
        plan = method.plans[kind]
        exact = reference.candidate(t, z, u, plan.policy)
        for h, s in np.argwhere(t.reachable):
            scale = max(1e-6, abs(math.log(exact.plain[h, s])))
            pairs = [
                (t.sign * np.log(method.optimism.z[h, s]), t.sign * np.log(z[h, s])),
                (-t.sign * np.log(plan.z[h, s]), -t.sign * np.log(exact.pessimistic[h, s])),
                (np.log(plan.high[h, s]), np.log(exact.box_top[h, s])),
                (np.log(plan.rho[h, s]), np.log(exact.rho[h, s])),
            ]
            for compiled, plain in pairs:
                assert -ROUNDING <= compiled - plain <= 2e-3 * scale


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_with_few_successors_agree_with_the_plain_reference(sign):
    for seed in range(60):
        assert_close_above_reference(draw(np.random.default_rng([seed, 41]), signed(FEW, sign, visits=VISITED)))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", [PAID, UNKNOWN_PAY], ids=["known", "unknown"])
def test_bounds_with_a_range_of_returns_agree_with_the_plain_reference(sign, shape):
    for seed in range(40):
        rng = np.random.default_rng([seed, 43])
        case, _ = with_return_range(rng, draw(rng, signed(shape, sign, visits=VISITED)))
        assert_close_above_reference(case)


@pytest.mark.parametrize("sign", [1, -1])
def test_no_kernel_in_the_balls_escapes_with_few_successors(sign):
    closed = 0
    for seed in range(150):
        case = draw(np.random.default_rng([seed, 47]), signed(FEW, sign))
        method = case.plan(seed=seed)
        closed += int((case.counts.arrays.used < case.problem.slots.used).sum())
        for kind in (0, 1):
            assert attack_plan(case, method, kind, seed).min() >= -ROUNDING
    assert closed > 100


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", [PAID, UNKNOWN_PAY], ids=["known", "unknown"])
def test_no_model_with_the_declared_returns_escapes(sign, shape):
    tighter = 0
    for seed in range(120):
        rng = np.random.default_rng([seed, 53])
        plain = draw(rng, signed(shape, sign))
        case, truth = with_return_range(rng, plain)
        method, before = case.plan(seed=seed), plain.plan(seed=seed)
        tighter += bool(sign * np.log(method.optimism.z[0, case.start] / before.optimism.z[0, case.start]) < -1e-6)
        for kind in (0, 1):
            assert attack_plan(case, method, kind, seed, tables=truth).min() >= -ROUNDING
    assert tighter > 10


@pytest.mark.parametrize("sign", [1, -1])
def test_few_successors_and_a_range_of_returns_together(sign):
    for seed in range(80):
        rng = np.random.default_rng([seed, 59])
        shape = Shape(max_successors=(1, 2, 3), states=(3, 4), intervals=True, sign=sign)
        case, truth = with_return_range(rng, draw(rng, shape))
        method = case.plan(seed=seed)
        for kind in (0, 1):
            assert attack_plan(case, method, kind, seed, tables=truth).min() >= -ROUNDING


@pytest.mark.parametrize("sign", [1, -1])
def test_a_range_of_returns_that_is_too_narrow_is_caught_by_the_attack(sign):
    """The certificate has no slack that could hide a slip: a twentieth less at both ends is false."""
    for seed in range(200):
        rng = np.random.default_rng([seed, 61])
        case, truth = with_return_range(rng, draw(rng, signed(PAID, sign)), shrink=0.05)
        method = case.plan(seed=seed)
        if attack_plan(case, method, 0, seed, tables=truth).min() < -1e-3:
            return
    pytest.fail("the attack found no violation")
