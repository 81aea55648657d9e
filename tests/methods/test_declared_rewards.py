"""Bounds where rewards are declared: no kernel in the balls escapes, and no reward that an unseen end may have."""

import numpy as np
import pytest
from reference.kl_attack import attack_pairs, attack_plan, draw_known, relations

ROUNDING = 1e-11


def drawn(seed: int):
    return draw_known(np.random.default_rng([seed, 89]), (-1, 1)[seed % 2], (200.0, 599.9) if seed % 5 == 0 else None)


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


def test_no_kernel_escapes_where_rewards_are_known():
    assert min(map(smallest_slack, range(200))) >= -ROUNDING


@pytest.mark.slow
def test_no_kernel_escapes_where_rewards_are_known_in_4000():
    """``-s`` shows the smallest slack."""
    slacks = np.array([smallest_slack(seed) for seed in range(1000, 5000)])
    print(f"{len(slacks)} cases, smallest slack {slacks.min()}")
    assert slacks.min() >= -ROUNDING


def test_another_reward_is_caught_by_the_attack():
    """The bounds have no slack that could hide a slip: with another reward than the declared one they are false."""
    for seed in range(200):
        case = drawn(seed)
        method, t = case.plan(seed=seed), case.tables
        t.high[1:] = np.where(t.allowed[1:], t.high[1:] * 1.3, t.high[1:])
        if not np.isfinite(method.plans[0].rho[:, : case.problem.n_states]).all():
            continue
        if attack_plan(case, method, 0, seed).min() < -1e-3:
            return
    pytest.fail("the attack found no violation")
