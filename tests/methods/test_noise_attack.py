"""Claims under declared noise, attacked by laws inside all balls; and mutants that the attack catches.

Traps 12 (rows that do not tell each other) and 13 (values of two units) of declared noise are here; 1, 2, 3 and 11 (what is
counted, and for how many balls) in ``test_noise_event``; 6 to 9 (cuts, leaves and boxes) in ``test_boxes``. Trap 10 is
about first-order models, which the library does not have, so there is nothing to change.
"""

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.runs.certification import certify
from entropic_bpi.verification import _pairs
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


class Stated:
    """A certificate that says anything."""

    def __init__(self, content):
        self._content = lambda: content


def excess_over_the_verifier(seeds, rounds=40):
    """How far the verifier's gap by the pair certificate is exceeded at most, and in how many cases it was attacked."""
    worst, attacked = -np.inf, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        case = random_case(rng, reach=3.0)
        method = KL(case.problem)
        policy = method.plan(case.counts, 1).policy
        content = certify(case.counts, beta=case.problem.beta, policy=policy)._content()
        content["claim"] |= {"test": "pairs", "cuts": None}
        gap = eb.verify(Stated(content)).gap
        found = Adversary(case, method.rules.radius).attack(policy, OBJECTIVES["gap"], rng, rounds)
        if found is not None and np.isfinite(gap):
            worst, attacked = max(worst, (found - gap) / max(case.problem.return_spread, 1e-9)), attacked + 1
    return worst, attacked


def mix_the_units(monkeypatch):
    """Trap 13: where one label decides, the value of a reference is 1, and the others are absolute."""
    go_back, with_one_label = _pairs.PairCertificate.go_back, _pairs.PairCertificate._with_one_label

    class Mixed:
        def __init__(self, relations, sheet):
            self.number, self.ends = relations.number, sheet.flat()[:2]

        def box(self, states, ref):
            return tuple(np.where(states == ref, 1.0, end[states]) for end in self.ends)

    def mutant(self, *sides):
        relations = self.later
        self.later = Mixed(relations, self.steps[self.step + 1])
        try:
            return with_one_label(self, *sides)
        finally:
            self.later = relations

    def remember(self, h):
        self.step = h
        go_back(self, h)

    monkeypatch.setattr(_pairs.PairCertificate, "go_back", remember)
    monkeypatch.setattr(_pairs.PairCertificate, "_with_one_label", mutant)


def test_no_law_inside_the_balls_contradicts_the_verifier():
    worst, attacked = excess_over_the_verifier(range(20))
    assert attacked >= 10
    assert worst <= 1e-9


def test_the_attack_catches_values_of_two_units(monkeypatch):
    mix_the_units(monkeypatch)
    assert excess_over_the_verifier(range(10))[0] > 1e-6
