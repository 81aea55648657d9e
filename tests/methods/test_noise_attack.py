"""Claims under declared noise, attacked by laws inside all balls; and mutants that the attack catches."""

import numpy as np
import pytest

from entropic_bpi.methods.kl.method import KL
from tests.reference.noise import Adversary, random_case

OBJECTIVES = {
    "gap": lambda best, mine: best - mine,
    "upper": lambda best, mine: best,
    "lower": lambda best, mine: -mine,
}


def violations(seeds, rounds=40, change=None, reach=None):
    """How far each claim is exceeded at most, relative to the range of the return, and how many attacks there were."""
    worst, attacks, close = -np.inf, 0, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        case = random_case(rng, reach=reach)
        method = KL(case.problem)
        if change is not None:
            change(case.problem.balls)
        problem = case.problem
        policy = rng.integers(problem.n_actions, size=(problem.steps, problem.n_states))
        if rng.random() < 0.7:
            policy = method.plan(case.counts, 1).policy
        claims = [method.bounds_of(case.counts, policy, pairs=pairs) for pairs in (False, True)]
        adversary = Adversary(case, method.rules.radius)
        scale = max(problem.return_spread, 1e-9)
        for name, objective in OBJECTIVES.items():
            if name != "gap" and rng.random() < 0.7:
                continue
            found = adversary.attack(policy, objective, rng, rounds)
            if found is None:
                break
            for claim in claims:
                stated = {"gap": claim.gap, "upper": claim.upper, "lower": -claim.lower}[name]
                if np.isfinite(stated):
                    worst = max(worst, (found - stated) / scale)
                    close += found > 0.98 * stated > 0.01 * scale
                    attacks += 1
    return worst, attacks, close


def test_no_law_inside_the_balls_contradicts_a_claim():
    worst, attacks, close = violations(range(60))
    assert attacks > 100
    assert close > 5  # the attack comes near the claims, so slips would show
    assert worst <= 1e-9


@pytest.mark.slow
def test_no_law_inside_the_balls_contradicts_a_claim_in_twenty_thousand_attacks():
    worst, attacks, _ = violations(range(1000, 8500), rounds=60)
    assert attacks >= 20_000
    assert worst <= 1e-9


def couple_everything(balls):
    """Trap 12: one law for two rows although neither partition tells the other's classes."""
    balls.refines = (balls.law[:, None] == balls.law) | balls.refines


def test_the_attack_catches_a_coupling_of_rows_that_do_not_tell_each_other():
    worst, _, _ = violations(range(100), change=couple_everything, reach=3.0)
    assert worst > 1e-6
