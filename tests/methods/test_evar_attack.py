"""No kernel in the balls makes a certificate of EVaR false, and some come close."""

import dataclasses

import numpy as np
import pytest
from reference.evar_attack import attack_evar
from reference.kl_attack import Shape, draw

import entropic_bpi as eb
from entropic_bpi.methods.kl.evar import EVaRKL

SOME_DATA = (3, 10, 30, 100, 1000)
ROUNDING = 1e-9


def attacked(seed, **effort):
    """A certificate of a random problem beside the worst that was found: claims and finds, in units of the range."""
    rng = np.random.default_rng([seed, 211])
    shape = Shape(sign=-1, intervals=False, visits=SOME_DATA, states=(2, 3), actions=(2,))
    case = draw(rng, shape)
    problem, alpha = case.problem, float(rng.uniform(0.02, 0.8))
    if problem.return_spread == 0:
        return None
    spread = problem.return_spread
    asked = dataclasses.replace(problem, risk=eb.EVaR(alpha), eps=0.02 * spread)
    method = EVaRKL(asked)
    policy = rng.integers(0, problem.n_actions, (problem.steps, problem.n_states))
    policy[: int(problem.artificial)] = 0
    if seed % 2:
        policy = method.plan(case.counts, 0).policy
    claim = method.bounds_of(case.counts, policy)
    gap, best, own = attack_evar(case, policy, alpha, [cell.lam for cell in claim.cells[::3]], seed, **effort) / spread
    lowest = problem.possible_rewards[0] * problem.horizon
    claimed = np.array([claim.gap, claim.upper - lowest, claim.lower - lowest]) / spread
    return claimed, np.array([gap, best, own])


def check(seeds, **effort):
    shares = []
    for seed in seeds:
        found = attacked(seed, **effort)
        if found is None:
            continue
        (gap, upper, lower), (lost, best, own) = found
        assert lost <= gap + ROUNDING, seed
        assert best <= upper + ROUNDING, seed
        assert own >= lower - ROUNDING, seed
        shares.append(lost / gap if gap > 1e-6 else 0.0)
    return np.array(shares)


def test_no_kernel_in_the_balls_violates_a_certificate_of_evar():
    shares = check(range(12), starts=1, sweeps=2)
    assert shares.max() > 0.8  # so that slips would show


@pytest.mark.slow
def test_no_kernel_in_the_balls_violates_a_certificate_of_evar_in_thousands_of_problems():
    shares = check(range(2000))
    print(
        f"{len(shares)} problems, largest share of the claimed gap {shares.max():.4f}, above 0.9 in {(shares > 0.9).sum()}"
    )
    assert shares.max() > 0.95
