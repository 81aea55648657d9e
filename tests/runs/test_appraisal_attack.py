"""Intervals of an appraisal under attack: kernels at the edge of the balls, and the exact measures of their returns."""

import math
from functools import partial

import numpy as np
import pytest
from reference.kl_attack import Shape, draw, draw_known
from reference.tails_attack import World
from scipy.optimize import minimize_scalar

import entropic_bpi as eb

ROUNDING = 1e-8


def entropic(law, beta):
    """The entropic value of a law of the return; of β = 0, its mean."""
    returns, shares = np.array(list(law)), np.array(list(law.values()))
    if beta == 0:
        return float(returns @ shares)
    largest = (beta * returns).max()
    return float(largest + math.log(shares @ np.exp(beta * returns - largest))) / beta


def evar(law, alpha):
    """The largest entropic value at β = -λ less log(1/α)/λ, and the λ."""
    cost = -math.log(alpha)

    def loss(log_lam):
        lam = math.exp(log_lam)
        return cost / lam - entropic(law, -lam)

    logs = np.linspace(-12, 8, 81)
    best = logs[np.argmin([loss(x) for x in logs])]
    found = minimize_scalar(loss, bounds=(best - 0.25, best + 0.25), method="bounded", options={"xatol": 1e-10})
    return max(-float(found.fun), min(law)), math.exp(found.x)


def utility(tilt, side, b):
    """What the adversary raises, or with ``side`` -1 lowers: increasing in the return b."""
    return side * (b if tilt == 0 else math.copysign(math.exp(tilt * b), tilt))


def attack(seed):
    """One case: an adversary on each side of each measure. Returns by measure how near it came, in units of the width."""
    rng = np.random.default_rng([seed, 34])
    few = (1, 2, 3) if seed % 5 == 0 else ()
    shape = Shape(integer_rewards=bool(seed % 3), max_successors=few, intervals=False)
    case = draw_known(rng, int(rng.choice([-1, 1]))) if seed % 4 == 0 else draw(rng, shape)
    problem, t = case.problem, case.tables
    policy = np.array([[rng.integers(problem.n_actions) for _ in range(t.n_states)] for _ in range(t.steps)])
    policy[: int(problem.artificial)] = 0
    beta, alpha = float(rng.choice([-5.0, -1.0, -0.1, 0.1, 1.0, 5.0])), float(rng.choice([0.01, 0.1, 0.5, 0.9]))
    asked = {"mean": 0.0, f"entropic {beta:g}": beta, f"evar {alpha:g}": alpha}
    found = eb.appraise(case.counts, {"it": policy[int(problem.artificial) :]}, measures=asked)
    slacks = {}
    for text, number in asked.items():
        lower, upper = found.interval("it", text)
        tilts = [number]
        if text.startswith("evar"):  # the λ at which a first guess has its value, and a larger one
            world = World(rng, case, policy)
            lam = min(max(evar(world.law(), number)[1], 1e-3), 20.0)
            tilts = [-lam, -min(5 * lam, 20.0)]
        for side in (-1, 1):
            for tilt in tilts:
                world = World(rng, case, policy)
                world.climb(partial(utility, tilt, side))
                law = world.law()
                truth = evar(law, number)[0] if text.startswith("evar") else entropic(law, number)
                room = ROUNDING * (1 + max(map(abs, law)))
                assert lower - room <= truth <= upper + room, (seed, text, side, lower, truth, upper)
                near = (truth - lower if side < 0 else upper - truth) / (upper - lower) if upper - lower > 1e-5 else 1.0
                slacks[text.split()[0], side] = min(near, slacks.get((text.split()[0], side), 1.0))
    return slacks


def summary(slacks):
    """How many attacks there were, the smallest distance to the end of an interval, and how many came within 1 %."""
    found = {}
    for key in slacks[0]:
        each = np.array([one[key] for one in slacks])
        found[key] = len(each), float(each.min()), int((each < 0.01).sum())
    return found


def test_intervals_hold_for_every_kernel_in_the_balls():
    found = summary([attack(seed) for seed in range(25)])
    assert set(found) == {(kind, side) for kind in ("mean", "entropic", "evar") for side in (-1, 1)}
    assert all(near > 0 for _, _, near in found.values())  # the adversary comes to the ends


@pytest.mark.slow
def test_intervals_hold_in_many_cases():
    found = summary([attack(seed) for seed in range(100, 3_100)])
    print(found)
    assert all(cases == 3_000 for cases, _, _ in found.values())
