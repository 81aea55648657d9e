"""Bounds of the difference of two policies' values, under attack: one kernel at the edge of the balls for both policies.

Problems of six kinds: models, environments with random rewards, discounted rewards, forbidden actions, declared rewards, and
common noise, once with a ball for each row and once with laws that lie in all balls.
"""

from typing import NamedTuple

import numpy as np
import pytest
from reference.differences_attack import Laws, World, rows_of_noise, with_risk
from reference.kl_attack import Shape, draw, draw_known, draw_paid
from reference.noise import random_case
from reference.noisy import walk

import entropic_bpi as eb
from entropic_bpi.methods.differences import difference
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.states import refresh_radii
from entropic_bpi.model.discounting import tail_of

ROUNDING = 1e-8
# Differences that are known better than this, relative to the range of the return, are no test of nearness.
NOTHING = 1e-3


class Attack(NamedTuple):
    """The sign of β, how near the adversary came to both ends in units of the width (infinite where there is no width),
    and whether the bounds beat those of the two intervals."""

    sign: float
    low: float
    high: float
    sharper: bool


def drawn(kind, seed):
    """A problem of a kind with counts, and what its adversary has to respect."""
    rng = np.random.default_rng([seed, 35])
    exponents = {0: (100.0, 590.0), 1: (1e-7, 1e-4)}.get(seed % 7)  # where Z leaves or loses the digits of doubles
    shape = {"integer_rewards": bool(seed % 3), "exponents": exponents}
    if kind == "random":
        law = ("random", "random-pair")[seed % 2]
        large = exponents if seed % 7 == 0 else None  # rewards are learned for the β of the plan, which is never tiny
        return rng, draw_paid(rng, law, large, mean=seed % 3 == 0), {"by_pair": law == "random-pair"}
    if kind == "discounted":
        return rng, draw(rng, Shape(discount=True, horizons=(1, 4, 6), states=(2, 3), **shape)), {}
    if kind == "masks":
        return rng, draw(rng, Shape(masks=True, actions=(2, 3, 4), **shape)), {}
    if kind == "known":
        return rng, draw_known(rng, (-1, 1)[seed % 2], exponents), {}
    return rng, draw(rng, Shape(max_successors=(1, 2, 3) if seed % 5 == 0 else (), **shape)), {}


def two_policies(rng, problem):
    """Two policies of a problem that differ in few or in many places."""
    one = rng.integers(problem.n_actions, size=(problem.steps, problem.n_states))
    changed = rng.random(one.shape) < rng.choice([0.2, 0.5, 1.0])
    other = np.where(changed, rng.integers(problem.n_actions, size=one.shape), one)
    one[: int(problem.artificial)] = other[: int(problem.artificial)] = 0
    return problem.replace_forbidden(one), problem.replace_forbidden(other)


def bounds_of(problem, counts, policies, beta):
    """The method, the bounds under attack, and whether they beat those of the two intervals."""
    method = KL(with_risk(problem, beta))
    lower, upper = difference(method, counts, *policies)
    (low, high), (least, most) = (method.interval_of(counts, policy) for policy in policies)
    return method, lower, upper, lower > low - most + 1e-9 or upper < high - least - 1e-9


def nearness(found, lower, upper, problem, context):
    """How far the smallest and the largest difference are from the bounds; an assertion if they are beyond."""
    tail = 0.0
    if problem.discount is not None:  # after the horizon, the best for one policy and the worst for the other
        low, high = problem.possible_rewards
        tail = problem.discount**problem.horizon / (1 - problem.discount) * (high - low)
    least, most, width = found[0] - tail, found[1] + tail, upper - lower - 2 * tail
    assert lower - ROUNDING <= min(least, most), (context, lower, least, most)
    assert max(least, most) <= upper + ROUNDING, (context, least, most, upper)
    if not NOTHING * problem.return_spread < width < np.inf:
        return np.inf, np.inf
    return (least - lower) / width, (upper - most) / width


def attack(kind, seed):
    """One case of a kind, both ends."""
    if kind in ("noise", "laws"):
        return attack_noise(kind, seed)
    rng, case, respected = drawn(kind, seed)
    problem = case.problem
    policies = two_policies(rng, problem)
    beta = problem.beta if kind == "random" else float(rng.choice([0.0, problem.beta, -problem.beta]))
    _, lower, upper, sharper = bounds_of(problem, case.counts, policies, beta)
    tied = bool(rng.integers(2))
    found = [World(rng, case, policies, beta, tied=tied, **respected).climb(side) for side in (-1, 1)]
    near = nearness(found, lower, upper, problem, (kind, seed, beta))
    return Attack(np.sign(beta), *near, sharper)


def attack_noise(kind, seed):
    """None if the laws behind the counts are not in the balls: then nothing is claimed."""
    rng = np.random.default_rng([seed, 37])
    case = random_case(rng)
    problem = case.problem
    policies = two_policies(rng, problem)
    beta = float(rng.choice([0.0, problem.beta, -problem.beta]))
    method, lower, upper, sharper = bounds_of(problem, case.counts, policies, beta)
    tied = bool(rng.integers(2))
    if kind == "noise":
        rows = rows_of_noise(case, method.rules.radius)
        found = [World(rng, rows, policies, beta, tied=tied).climb(side) for side in (-1, 1)]
    else:
        laws = Laws(case, method.rules.radius, policies, beta)
        found = [laws.climb(side, tied) for side in (-1, 1)]
    if None in found:
        return None
    return Attack(np.sign(beta), *nearness(found, lower, upper, problem, (kind, seed, beta)), sharper)


KINDS = ("model", "random", "discounted", "masks", "known", "noise", "laws")


@pytest.mark.parametrize("kind", KINDS)
def test_differences_hold_for_every_kernel_in_the_balls(kind):
    # Laws are attacked by a search that takes ten times as long as the others.
    seeds = range(30 if kind == "laws" else 45)
    found = [one for seed in seeds if (one := attack(kind, seed)) is not None]
    assert {one.sign for one in found} == {-1.0, 0.0, 1.0}
    for side in ("low", "high"):  # the adversary comes to both ends
        assert sum(getattr(one, side) < 0.02 for one in found) >= 3
    assert sum(one.sharper for one in found) > 8


def caught(kind):
    """Whether the attack contradicts the bounds in some case."""
    for seed in range(60):
        try:
            attack(kind, seed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_balls_that_are_too_small_are_caught(kind, monkeypatch):
    def smaller(rules, arrays):
        refresh_radii(rules, arrays)
        rules.radius[:] *= 0.95

    monkeypatch.setattr("entropic_bpi.methods.differences.refresh_radii", smaller)
    assert caught(kind)


def test_rewards_that_are_too_certain_are_caught(monkeypatch):
    def certain(self, counts):
        arrays = whole(self, counts)
        room = 0.02 * (arrays.high - arrays.low)
        return arrays._replace(low=arrays.low + room, high=arrays.high - room)

    whole = KL._arrays
    monkeypatch.setattr(KL, "_arrays", certain)
    assert caught("random")


def test_a_tail_that_is_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(
        "entropic_bpi.problem.problem.tail_of",
        lambda *given: tuple(0.98 * end for end in tail_of(*given)),
    )
    assert caught("discounted")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_differences_hold_in_many_cases(kind):
    """``-s`` shows how near the adversary came."""
    found = [one for seed in range(1_000, 4_200) if (one := attack(kind, seed)) is not None]
    assert len(found) >= 3_000
    for sign in (-1.0, 0.0, 1.0):
        some = [one for one in found if one.sign == sign]
        close = [sum(getattr(one, side) < 0.02 for one in some) for side in ("low", "high")]
        print(f"{kind}, sign {sign:g}: {len(some)} cases, within 2 % of the lower and upper end {close}")
        assert min(close) > 20
    wide = sum(one.low < np.inf for one in found)
    print(f"{kind}: {len(found)} cases, {wide} wide, sharper than intervals {sum(one.sharper for one in found)}")


# -- what appraise says of these kinds ------------------------------------------------------------------------------------


def stated(appraisal):
    """The differences that were bounded directly, by measure."""
    return {each["measure"]: (each["lower"], each["upper"]) for each in appraisal._content()["differences"]}


def test_random_rewards_that_are_discounted_are_refused():
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "discount": 0.5, "reward_range": (0.0, 1.0)}
    with pytest.raises(eb.InvalidProblemError, match="discount needs reward_law='fixed'"):
        eb.identify(walk(), **goal, reward_law="random", seed=1, max_episodes=10)


def test_no_direct_difference_of_the_other_measures_and_of_very_many_states(monkeypatch):
    """The ends of the two intervals are all that is said then."""
    bridge = eb.instances.risky_bridge(horizon=5)
    run = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    policies = {"own": run.policy, "zero": 0 * run.policy}
    measures = ["mean", "entropic -1", "evar 0.1", "cvar 0.1", "quantile 0.1", "below 1"]
    assert set(stated(eb.appraise(run, policies, measures=measures))) == {"mean", "entropic -1"}
    monkeypatch.setattr("entropic_bpi.methods.differences._MOST_STATES", 1)
    appraisal = eb.appraise(run, policies, measures=["mean"])
    assert stated(appraisal) == {}
    (low, high), (least, most) = (appraisal.interval(name, "mean") for name in policies)
    assert appraisal.differences[0][3:] == (low - most, high - least)
