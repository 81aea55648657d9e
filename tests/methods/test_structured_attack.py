"""Certificates at |β|·range of 200 to 600, where weights and ratios fill the range of doubles, in worlds made for that."""

import dataclasses

import numpy as np
import pytest
from reference.backward_induction import value
from reference.brute_force import Model
from reference.evar_attack import evars, values
from reference.kl_attack import attack_pairs, attack_plan, draw_paid, relations, with_return_range
from reference.structured import Instance, chain, doorway, draw_structured, rooms

import entropic_bpi as eb
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.evar import EVaRKL
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem import rows as problems
from entropic_bpi.verification import verify

# Of the range of the return. The adversary's kernels are in the balls up to rounding, and values are known up to it.
ROUNDING = 1e-13


# -- the doorway -------------------------------------------------------------------------------------------------


def door_runs():
    """Worlds with a doorway, and with which options a policy is identified there: 144 runs."""
    for actions in (3, 5, 8):
        for horizon in (3, 4, 6):
            world = doorway(actions, horizon)
            for seed in range(16):
                options = {"delta": 0.05, "successors": world.successors, "stationary": seed % 2 == 1, "seed": seed}
                yield world, options


def true_gap(world, policy, beta):
    horizon, states, actions = world.kernel.shape[:3]
    everywhere = np.ones((horizon, states), dtype=bool)
    best, own = values(world.kernel, world.rewards, [actions] * horizon, everywhere, policy, 0, [-beta])[:, 0]
    return best - own


@pytest.mark.parametrize(("each", "many"), [(3, 48), pytest.param(1, 144, marks=pytest.mark.slow)])
def test_no_false_certificate_behind_a_doorway(each, many):
    """The weight of the room behind it, where the policy may lose most, is e^-1000 of the heaviest."""
    runs = 0
    for world, options in list(door_runs())[::each]:
        horizon = len(world.kernel)
        beta = -599.0 / horizon
        result = eb.identify(world.mdp(), beta=beta, eps=0.34 * horizon, **options, max_episodes=1000)
        assert result.stopped
        assert true_gap(world, result.policy, beta) <= result.certificate.gap
        assert verify(result.certificate).ok
        runs += 1
    assert runs == many


def test_certificates_of_evar_at_a_tiny_level_are_accepted_behind_a_doorway():
    """A tiny α needs a large λ."""
    for world, options in list(door_runs())[::6]:
        horizon = len(world.kernel)
        result = eb.identify(world.mdp(), risk=eb.EVaR(1e-10), eps=0.2 * horizon, **options, max_episodes=4)
        assert verify(result.certificate).ok


def accepted(seed: int) -> bool:
    """Whether the certificate of a run in a structured world is true and accepted by the verifier."""
    rng = np.random.default_rng([seed, 347])
    world = (chain, rooms)[seed % 2](
        rng, int(rng.choice((3, 4, 6))), int(rng.choice((2, 3, 5))), int(rng.choice((2, 4, 6)))
    )
    horizon, budget = len(world.kernel), int(rng.choice((1, 10, 100)))
    beta = float(rng.choice((-1, -1, 1)) * rng.uniform(200.0, 599.0) / horizon)
    declared = world.successors if seed % 4 else None
    options = {"stationary": world.constant and seed % 3 == 0, "successors": declared, "seed": seed}
    result = eb.identify(world.mdp(), beta=beta, eps=0.1 * horizon, delta=0.01, **options, max_episodes=budget)
    return true_gap(world, result.policy, beta) <= result.certificate.gap and verify(result.certificate).ok


def test_certificates_of_structured_worlds_are_true_and_accepted():
    assert all(map(accepted, range(40)))


@pytest.mark.slow
def test_certificates_of_structured_worlds_are_true_and_accepted_in_1000():
    assert all(map(accepted, range(1000, 2000)))


# -- the attack --------------------------------------------------------------------------------------------------


def slack_of(instance: Instance, policy, bounds) -> list[float]:
    """How far the truth is from being a violation of bounds."""
    best, own = instance.values(policy)
    return [own - bounds.lower, bounds.upper - best, bounds.gap - (best - own)]


def a_policy(rng: np.random.Generator, problem) -> np.ndarray:
    policy = rng.integers(0, problem.n_actions, (problem.steps, problem.n_states))
    policy[: int(problem.artificial)] = 0
    return policy


def smallest_slack(seed: int) -> float:
    """Of all that is claimed about one instance, by the truth and by an adversary, in units of the range of the return."""
    rng = np.random.default_rng([seed, 311])
    instance = draw_structured(rng)
    case, problem = instance.case, instance.case.problem
    method, kind, counts = KL(problem), seed % 2, case.counts
    plan = method.plan(counts, seed % 4)
    slack = slack_of(instance, plan.policy, plan.bounds)
    z = np.ascontiguousarray(method.optimism.z[:, : problem.n_states])
    found = [attack_plan(case, method, kind, seed, 4, 2)]
    found.append(
        attack_pairs(case.tables, method.plans[kind].policy, z, *relations(case, method, kind), seed, 4, 2),
    )
    if problem.next_state_rewards and seed % 4 == 0:
        declared, truth = with_return_range(rng, case)
        found.append(attack_plan(declared, declared.plan(), kind, seed, 4, 2, truth))
    slack += (np.concatenate(found) / abs(problem.beta)).tolist()
    for policy in (plan.policy, a_policy(rng, problem)):
        for pairs in (False, True):
            slack += slack_of(instance, policy, method.bounds_of(counts, policy, pairs=pairs))
        own, (lower, upper) = instance.values(policy)[1], method.interval_of(counts, policy)
        slack += [own - lower, upper - own]
    return float(np.min(slack)) / problem.return_spread


def smallest_slacks(seeds, monkeypatch) -> np.ndarray:
    """In some of the instances the rows list only what was seen, and "elsewhere"."""
    slacks = []
    for seed in seeds:
        with monkeypatch.context() as patch:
            if seed % 5 == 0:
                patch.setattr(problems, "EXPLICIT_STATES", 0)
            slacks.append(smallest_slack(seed))
    return np.array(slacks)


def test_no_structured_world_violates_a_certificate(monkeypatch):
    slacks = smallest_slacks(range(300), monkeypatch)
    assert slacks.min() >= -ROUNDING
    assert np.median(slacks) < 1e-3  # claims are close to being attained, so that slips would show


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_structured_world_violates_a_certificate_in_40_000(part, monkeypatch):
    """``-s`` shows the smallest slack."""
    slacks = smallest_slacks(range(10**6 + 5000 * part, 10**6 + 5000 * (part + 1)), monkeypatch)
    print(
        f"part {part}: {len(slacks)} instances, {(slacks < -ROUNDING).sum()} violations, smallest slack {slacks.min()}"
    )
    assert slacks.min() >= -ROUNDING


def test_the_true_values_are_those_of_sixty_digits():
    for seed in range(12):
        instance = draw_structured(np.random.default_rng([seed, 313]))
        problem, model = instance.case.problem, Model.read(instance.mdp)
        policy = a_policy(np.random.default_rng(seed), problem)
        exact = value(model, problem.beta), value(model, problem.beta, policy[int(problem.artificial) :])
        for found, true in zip(instance.values(policy), exact, strict=True):
            assert abs(found - float(true)) <= 0.1 * ROUNDING * problem.return_spread


def slack_of_evar(seed: int) -> float:
    """A tiny level needs a large λ, so that |β|·range goes up to 600 whatever the problem."""
    rng = np.random.default_rng([seed, 317])
    instance = draw_structured(rng)
    while instance.case.problem.beta > 0 or not np.array_equal(instance.case.tables.low, instance.case.tables.high):
        instance = draw_structured(rng)
    problem, t, alpha = instance.case.problem, instance.case.tables, float(rng.choice([1e-10, 1e-6, 1e-3]))
    spread = problem.return_spread
    method = EVaRKL(dataclasses.replace(problem, risk=eb.EVaR(alpha), eps=0.1 * spread))
    policy = method.plan(instance.case.counts, 0).policy if seed % 2 else a_policy(rng, problem)
    claim = method.bounds_of(instance.case.counts, policy)
    rewards = instance.rewards - problem.possible_rewards[0]
    if problem.artificial:
        rewards[0] = 0.0
    best, own = evars(instance.kernel, rewards, t, policy, instance.case.start, alpha, spread)
    lowest = problem.possible_rewards[0] * problem.horizon
    return min(own + lowest - claim.lower, claim.upper - lowest - best, claim.gap - (best - own)) / spread


def test_no_structured_world_violates_a_certificate_of_evar():
    assert min(map(slack_of_evar, range(12))) >= -1e-9


@pytest.mark.slow
def test_no_structured_world_violates_a_certificate_of_evar_in_1000():
    slacks = np.array([slack_of_evar(seed) for seed in range(1000, 2000)])
    print(f"{len(slacks)} instances, smallest slack {slacks.min()}")
    assert slacks.min() >= -1e-9


@pytest.mark.parametrize("constants", ["sharp", "verified"])
def test_no_structured_world_violates_bounds_of_bernstein(constants):
    """Where all is known the bounds are the value, and even the last bit must be on the right side."""
    slacks = []
    for seed in range(300):
        instance = draw_structured(np.random.default_rng([seed, 337]))
        problem = instance.case.problem
        if problem.next_state_rewards or abs(problem.beta) * problem.steps > 600:
            continue
        plan = Bernstein(problem, constants).plan(instance.case.counts, 0)
        slacks.append(min(slack_of(instance, plan.policy, plan.bounds)) / problem.return_spread)
    assert len(slacks) > 30
    assert min(slacks) >= 0.0


def slack_of_random_rewards(seed: int) -> float:
    case = draw_paid(np.random.default_rng([seed, 331]), ("random", "random-pair")[seed % 2], (200.0, 599.9))
    found = attack_plan(case, case.plan(), seed // 2 % 2, seed, 4, 2)
    return found.min() / abs(case.problem.beta) / case.problem.return_spread


def test_no_kernel_violates_a_certificate_with_random_rewards_at_large_exponents():
    assert min(map(slack_of_random_rewards, range(60))) >= -ROUNDING


@pytest.mark.slow
def test_no_kernel_violates_a_certificate_with_random_rewards_at_large_exponents_in_5000():
    slacks = np.array([slack_of_random_rewards(seed) for seed in range(1000, 6000)])
    print(f"{len(slacks)} instances, smallest slack {slacks.min()}")
    assert slacks.min() >= -ROUNDING
