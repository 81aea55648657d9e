"""Bounds where the first state is declared: no kernel in the balls, and no start that is declared possible, escapes."""

import numpy as np
import pytest
from reference.kl_attack import Shape, attack_pairs, attack_plan, draw, draw_paid, relations

ROUNDING = 1e-11


def drawn(seed: int):
    """Models and environments, with a list of first states or one that is always the same; both signs are drawn."""
    rng, kind = np.random.default_rng([seed, 67]), ("list", "fixed")[seed % 2]
    if seed % 3 == 0:
        return draw_paid(rng, ("random", "random-pair")[seed // 3 % 2], start=kind)
    exponents = (200.0, 599.9) if seed % 5 == 0 else None
    return draw(rng, Shape(random_start=True, start=kind, sign=(-1, 1)[seed // 2 % 2], exponents=exponents))


def smallest_slack(seed: int) -> float:
    """Of all that is claimed about the candidate, in logs; of the pair certificate, too, where there is one."""
    case, kind = drawn(seed), seed // 4 % 2
    method = case.plan(seed=seed)
    slack = attack_plan(case, method, kind, seed)
    if seed % 7 == 0:
        z = np.ascontiguousarray(method.optimism.z[:, : case.problem.n_states])
        pairs = relations(case, method, kind)
        slack = np.append(slack, attack_pairs(case.tables, method.plans[kind].policy, z, *pairs, seed))
    return float(slack.min())


def test_no_kernel_escapes_where_the_start_is_declared():
    assert min(map(smallest_slack, range(200))) >= -ROUNDING


@pytest.mark.slow
def test_no_kernel_escapes_where_the_start_is_declared_in_4000():
    """``-s`` shows the smallest slack."""
    slacks = np.array([smallest_slack(seed) for seed in range(1000, 5000)])
    print(f"{len(slacks)} cases, smallest slack {slacks.min()}")
    assert slacks.min() >= -ROUNDING


def test_a_start_that_is_not_the_declared_one_is_caught_by_the_attack():
    """The bounds have no slack that could hide a slip: with another first state than those declared they are false."""
    for seed in range(1, 200, 2):
        case = draw(np.random.default_rng([seed, 71]), Shape(random_start=True, start="list", successors="unknown"))
        if len(case.problem.start) == case.problem.n_states:
            continue
        method = case.plan(seed=seed)
        case.tables.allowed[0, 0, 0] = True
        case.tables.radius[0, 0, 0] = np.inf
        case.tables.reachable[1:] = True
        if not np.isfinite(method.plans[0].rho[:, : case.problem.n_states]).all():
            continue
        if attack_plan(case, method, 0, seed).min() < -1e-3:
            return
    pytest.fail("the attack found no violation")
