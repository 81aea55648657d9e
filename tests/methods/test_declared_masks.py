"""Bounds where actions are forbidden: no kernel in the balls escapes, and no policy that is allowed."""

import numpy as np
import pytest
from reference.kl import candidate, optimism
from reference.kl_attack import Shape, attack_pairs, attack_plan, draw, relations

from entropic_bpi.problem.masks import check_policy_allowed

ROUNDING = 1e-11


def drawn(seed: int):
    """Models of every kind; both signs, both ways of pooling, masks of all steps or of each."""
    exponents = (200.0, 599.9) if seed % 5 == 0 else None
    shape = Shape(
        masks=True, sign=(-1, 1)[seed % 2], stationary=bool(seed // 2 % 2), exponents=exponents, actions=(2, 3, 4)
    )
    return draw(np.random.default_rng([seed, 83]), shape)


def smallest_slack(seed: int) -> float:
    """Of all that is claimed about the candidate, in logs; of the pair certificate, too, where there is one."""
    case, kind = drawn(seed), seed // 4 % 2
    method = case.plan(seed=seed)
    check_policy_allowed(case.problem, case.problem.replace_forbidden(method.plans[kind].policy))
    slack = attack_plan(case, method, kind, seed)
    if seed % 7 == 0:
        z = np.ascontiguousarray(method.optimism.z[:, : case.problem.n_states])
        pairs = relations(case, method, kind)
        slack = np.append(slack, attack_pairs(case.tables, method.plans[kind].policy, z, *pairs, seed))
    return float(slack.min())


def test_no_kernel_escapes_where_actions_are_forbidden():
    assert min(map(smallest_slack, range(200))) >= -ROUNDING


@pytest.mark.slow
def test_no_kernel_escapes_where_actions_are_forbidden_in_4000():
    """``-s`` shows the smallest slack."""
    slacks = np.array([smallest_slack(seed) for seed in range(1000, 5000)])
    print(f"{len(slacks)} cases, smallest slack {slacks.min()}")
    assert slacks.min() >= -ROUNDING


def test_the_plan_is_that_of_the_reference():
    """Which knows forbidden actions as worth less than anything."""
    for seed in range(60):
        case = drawn(5 * seed + 1)
        method, t = case.plan(seed=seed), case.tables
        z, u = optimism(t)
        places = np.nonzero(t.reachable)
        np.testing.assert_allclose(method.optimism.z[places], z[places], rtol=5e-3)
        plan = method.plans[0]
        with np.errstate(all="ignore"):  # the score of a forbidden action is ignored
            theirs = candidate(t, z, u, plan.policy)
        np.testing.assert_allclose(plan.z[places], theirs.pessimistic[places], rtol=5e-3)
        if t.sign < 0:
            np.testing.assert_allclose(plan.high[places], theirs.box_top[places], rtol=5e-3)
        allowed = case.problem.allowed
        for h, s in zip(*places, strict=True):
            if allowed is not None and h >= case.problem.artificial:
                assert allowed.at(h - case.problem.artificial)[s, plan.policy[h, s]]
                assert allowed.at(h - case.problem.artificial)[s, method.optimism.policy[h, s]]


def test_an_action_that_is_not_forbidden_is_caught_by_the_attack():
    """The bounds have no slack that could hide a slip: where a mask forbids what is allowed they are false."""
    for seed in range(1, 200):
        case = drawn(seed)
        method, first, t = case.plan(seed=seed), int(case.problem.artificial), case.tables
        if case.problem.allowed is None:
            continue
        masks = np.array([case.problem.allowed.at(h) for h in range(case.problem.horizon)]) == 1
        t.low[first:][~masks], t.high[first:][~masks] = 1.0, 1.0
        if not np.isfinite(method.plans[0].rho[:, : case.problem.n_states]).all():
            continue
        if attack_plan(case, method, 0, seed).min() < -1e-3:
            return
    pytest.fail("the attack found no violation")
