"""The gap certificate: equal to its plain version, above every true ratio, below the plain ratio, and each known slip."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from reference import kl as reference
from reference.kl_attack import Shape, attack, attack_plan, draw

import entropic_bpi as eb
from entropic_bpi.compile.decorators import compiled
from entropic_bpi.methods.kl.gap import same_ratio
from entropic_bpi.methods.kl.method import CONVERGED, KL, SAME_CONVERGED
from entropic_bpi.methods.kl.records import Box, Inputs, PairsAsked, Scratch, new_scratch
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

ROUNDING = 1e-11
SOME_DATA = (10, 30, 100, 300)


@pytest.mark.parametrize("sign", [1, -1])
def test_agrees_with_the_plain_reference(sign):
    """Never below the exact certificate, and within a thousandth of it in logs."""
    for seed in range(70):
        case = draw(np.random.default_rng([seed, 23]), Shape(sign=sign))
        t, method = case.tables, case.plan()
        z, u = reference.optimism(t)
        for kind in (0, 1):
            plan = method.plans[kind]
            exact = np.log(reference.candidate(t, z, u, plan.policy).rho)
            for h, s in np.argwhere(t.reachable):
                excess = math.log(plan.rho[h, s]) - exact[h, s]
                assert -ROUNDING <= excess <= 1e-3 * exact[h, s] + 1e-9, (seed, kind, h, s)


def test_never_above_the_plain_ratio():
    for seed in range(400):
        case = draw(np.random.default_rng([seed, 29]))
        t, method = case.tables, case.plan()
        for plan in method.plans:
            for h, s in np.argwhere(t.reachable):
                plain = t.sign * math.log(method.optimism.z[h, s] / plan.z[h, s])
                assert 0 <= math.log(plan.rho[h, s]) <= max(plain, 0) + 2e-13


def test_the_smallest_gap_candidate_minimises_its_score():
    """Among the actions that may be optimal, the largest of what others may gain and of `same`."""
    for seed in range(40):
        case = draw(np.random.default_rng([seed, 31]), Shape(visits=SOME_DATA))
        t, method = case.tables, case.plan()
        z, u = reference.optimism(t)
        exact = reference.candidate(t, z, u, method.plans[1].policy)
        for h, s in np.argwhere(t.reachable):
            if t.actions[h] == 1:
                continue
            up = t.sign * exact.backups[h, s]
            contenders = t.sign * u[h, s] >= up.max() * (1 + 1e-3 * np.sign(up.max()))
            scores = np.log(exact.score[h, s])
            if contenders.any():
                assert scores[exact.policy[h, s]] <= scores[contenders].min() * 1.002 + 1e-6


def test_the_better_of_two_candidates_is_claimed_with_its_own_bounds():
    seen = set()
    for seed in range(60):
        case = draw(np.random.default_rng([seed, 37]), Shape(visits=SOME_DATA))
        method = KL(case.problem)
        method.asked = PairsAsked(2**62, np.inf, np.inf)  # as if pairs were never due
        for round in range(4):
            claim = method.plan(case.counts, round)
            gaps = [math.log(plan.rho[0, case.start]) for plan in method.plans]
            chosen = [i for i in (0, 1) if np.array_equal(method.plans[i].policy, claim.policy)]
            assert min(gaps) == pytest.approx(min(gaps[i] for i in chosen), abs=1e-12)
            seen.update(chosen if len(chosen) == 1 else ())
            lower = math.log(method.plans[chosen[0]].z[0, case.start]) / case.problem.beta
            offset = case.problem.horizon * case.problem.possible_rewards[0]
            assert claim.bounds.lower == pytest.approx(lower + offset, abs=1e-9)
    assert seen == {0, 1}


# -- underflow -------------------------------------------------------------------------------------------------


@compiled
def same_of_first_row(inputs, box):
    return same_ratio(inputs, 0, 0, box, 1.0, np.inf)


def largest_share(seen: int, other: int, x: float) -> tuple[mpf, mpf]:
    """The largest share of one of two outcomes in the ball, and what is left for the other, by bisection of the latter."""
    p, r = mpf(seen) / (seen + other), mpf(other) / (seen + other)
    if r == 0:
        return mpf(1), mpf(0)
    inside, outside = mp.log(r), mp.log(r) - x / r - 1
    for _ in range(120):
        middle = (inside + outside) / 2
        divergence = r * (mp.log(r) - middle) + (p * mp.log(p / (1 - mp.exp(middle))) if seen else 0)
        inside, outside = (middle, outside) if divergence <= x else (inside, middle)
    return 1 - mp.exp(inside), mp.exp(inside)


def test_same_is_not_too_small_where_weights_are_below_the_range_of_doubles():
    """Two successors have a closed form: the one with the larger ρ gets the largest share and the larger end of its box."""
    mdp = eb.FiniteMDP(np.full((2, 1, 2), 0.5), np.array([[0.0], [1.0]]), horizon=2)
    problem = Problem.from_mdp(mdp, beta=-1.0, eps=0.1, delta=0.1, successors="model")
    method, vanished, attained = KL(problem), 0, 0
    for seed in range(400):
        rng = np.random.default_rng([seed, 41])
        tally, x = rng.multinomial(rng.choice([1, 2, 10, 1000]), [0.5, 0.5] if seed % 2 else [1.0, 0.0]), 3.0
        rho = np.exp(rng.uniform(0, 600, 2) * (rng.random(2) < 0.8))
        unit, apart, width = (mp.exp(e) for e in (-rng.uniform(0, 300), rng.uniform(-600, 600), rng.uniform(0, 9)))
        high = [unit / mpf(rho[0]), unit * apart / mpf(rho[1])]
        low = [high[0], high[1] / width]
        best = int(np.argmax(rho))
        share, rest = largest_share(*map(int, (tally[best], tally[1 - best])), x)
        weights = share * high[best], rest * low[1 - best]
        exact = (weights[0] * mpf(rho[best]) + weights[1] * mpf(rho[1 - best])) / sum(weights)
        counts, seen = Counts(problem), np.flatnonzero(tally)
        counts.add(Transitions(np.zeros_like(seen), seen, tally[seen]), int(tally.sum()))
        converged = {"tolerance": CONVERGED, "same_tolerance": SAME_CONVERGED}
        rules = method.rules._replace(radius=np.full(problem.n_rows, x), **converged)
        ends = [np.array([float(weight) for weight in end] + [0.0]) for end in (low, high)]
        box = Box(*ends, np.append(rho, 1.0), np.full(3, np.inf))
        scratch = Scratch(*(part[0] for part in new_scratch(rules, 1, 1)))
        excess = float(
            mp.log(same_of_first_row(Inputs(method.frame, rules, counts.arrays, scratch), box)) - mp.log(exact)
        )
        assert excess >= -1e-12, seed
        vanished += ends[1][best] < 1e-308
        attained += excess < 1e-9
    assert vanished > 20
    assert attained > 200


# -- slips -----------------------------------------------------------------------------------------------------

SLIPS = {
    "weights without reward": Shape(next_state_rewards=True, intervals=False),
    "one end of the reward": Shape(intervals=True),
    "two corners": Shape(visits=SOME_DATA, successors="unknown", states=(3, 4)),
    "kappa at the top of the box": Shape(visits=SOME_DATA),
    "capped by the candidate": Shape(visits=SOME_DATA, sign=1),
    "plain of the other candidate": Shape(visits=(3, 10, 30, 100)),
    "box of the other candidate": Shape(visits=(3, 10, 30, 100)),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_attack_catches_the_slip_and_not_the_certificate(slip):
    """Each of these misreadings gives false certificates; where it does, the right one holds."""
    for seed in range(400):
        case = draw(np.random.default_rng([seed, 19]), SLIPS[slip])
        t, method = case.tables, case.plan()
        z, u = reference.optimism(t)
        kind = int("other" in slip)
        policy = method.plans[kind].policy
        other = reference.candidate(t, z, u, method.plans[0].policy).pessimistic
        wrong = reference.candidate(t, z, u, policy, slip, other)
        if (np.log(wrong.rho[: t.steps, :]) > np.log(method.plans[kind].rho[: t.steps, : t.n_states]) - 1e-3).all():
            continue
        slack = attack(t, policy, z, wrong.pessimistic, wrong.box_top, wrong.rho, seed, 30, 6)[0]
        if slack < -1e-3:
            assert attack_plan(case, method, kind, seed, 30, 6).min() >= -ROUNDING
            return
    pytest.fail("the attack found no violation of a certificate that is known to be false")


def test_weights_without_the_reward_are_false_in_a_case_worked_by_hand():
    """State 0 goes to 1 (paying 1) or 2, evenly; only in state 1 may another action be better, by 1/2.

    For β = 1 the true ratio is (e·e + 1)/(e·√e + 1); averaging ρ with weights z alone gives (e + 1)/(√e + 1), too little.
    """
    transitions, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    transitions[0, 0, 1:] = 0.5
    transitions[0, 1, 0] = transitions[1, 0, 1] = transitions[2, :, 2] = 1.0
    transitions[1, 1, 1:] = 0.5
    rewards[0, 0, 1], rewards[1, 0, 1], rewards[1, 1, 2], rewards[0, 1, 0] = 1.0, 0.5, 1.0, -5.0
    mdp = eb.FiniteMDP(transitions, rewards, horizon=2)
    problem = Problem.from_mdp(mdp, beta=1.0, eps=1e-9, delta=0.1, successors="model")
    counts = Counts(problem)
    visits = 10**9
    counts.add(Transitions(np.array([0, 0]), np.array([1, 2]), np.array([visits, visits])), 2 * visits)
    method = KL(problem)
    method.plan(counts, 0)
    e = math.e
    true, without = (e * e + 1) / (e * e**0.5 + 1), (e + 1) / (e**0.5 + 1)
    assert math.log(true / without) > 0.05
    for plan in method.plans:
        assert plan.rho[1, 1] == pytest.approx(e**0.5)
        assert plan.rho[0, 0] >= true
        assert plan.rho[0, 0] == pytest.approx(true, rel=1e-3)


def test_an_action_without_data_blocks_the_certificate():
    """Never played, it may lead to the best state with certainty."""
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.array([[0.0, 0.0], [1.0, 1.0]]), horizon=2)
    problem = Problem.from_mdp(mdp, beta=1.0, eps=0.1, delta=0.1)
    counts = Counts(problem)
    counts.add(Transitions(np.array([0, 0]), np.array([0, 1]), np.array([5000, 5000])), 10_000)
    plan = KL(problem).plan(counts, 0)
    assert plan.bounds.gap > 0.35
    assert plan.behaviour.switch_action[0, 0] == 1 - plan.policy[0, 0]


def test_equal_actions_that_both_lead_to_the_same_state_leave_no_gap():
    """Shared successors: what happens later is the same for both, however uncertain."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, :, 1] = 1.0
    transitions[1, :, 1:] = 0.5
    transitions[2, :, 2] = 1.0
    mdp = eb.FiniteMDP(transitions, np.array([[0.5, 0.0], [1.0, 1.0], [0.0, 0.0]]), horizon=4)
    for beta in (1.0, -1.0):
        problem = Problem.from_mdp(mdp, beta=beta, eps=1e-6, delta=0.1, successors="model")
        counts = Counts(problem)
        rows = problem.rows_at(1, np.array([1]))
        both = np.repeat(rows, 2)
        counts.add(Transitions(both, np.array([1, 2, 1, 2]), np.array([50, 50, 50, 50])), 200)
        method = KL(problem)
        method.plan(counts, 0)
        assert method.plans[0].policy[0, 0] == 0
        plain = abs(math.log(method.optimism.z[0, 0] / method.plans[0].z[0, 0]))
        # The first action is better by 0.5 whatever follows: only the deviations further on remain.
        assert method.plans[0].switch_action[0, 0] == -1
        assert plain > 0.5
