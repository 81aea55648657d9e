"""The pair certificate: equal to its plain version, above every true ratio, and each known slip is caught."""

import math

import numpy as np
import pytest
from reference import kl as reference_kl
from reference import pairs as reference
from reference.kl_attack import Case, Shape, attack_pairs, draw, relations

from entropic_bpi.methods.kl import pairs
from entropic_bpi.methods.kl.method import CONVERGED, KL, SAME_CONVERGED
from entropic_bpi.methods.kl.records import PairsAsked
from entropic_bpi.problem import rows as problems

ROUNDING = 1e-11
VISITS = (0, 10, 30, 100, 300, 1000)
SOME_DATA = (10, 30, 100, 300)


def planned(case: Case, *, converged: bool = True) -> KL:
    method = KL(case.problem)
    if converged:
        method.rules = method.rules._replace(tolerance=CONVERGED, same_tolerance=SAME_CONVERGED)
    method.asked = PairsAsked(2**62, np.inf, np.inf)  # as if pairs were never due
    method.plan(case.counts, 0)
    return method


def attacked(case: Case, method: KL, kind: int, seed: int, starts: int = 8, sweeps: int = 4) -> np.ndarray:
    z = np.ascontiguousarray(method.optimism.z[:, : case.tables.n_states])
    return attack_pairs(case.tables, method.plans[kind].policy, z, *relations(case, method, kind), seed, starts, sweeps)


def open_ended(monkeypatch) -> Shape:
    """Problems whose rows list only what was seen, and "elsewhere"."""
    monkeypatch.setattr(problems, "EXPLICIT_STATES", 0)
    return Shape(visits=VISITS, successors="unknown", next_state_rewards=False, intervals=False)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_agrees_with_the_plain_reference(elsewhere, monkeypatch):
    shape = open_ended(monkeypatch) if elsewhere else Shape(visits=VISITS)
    for seed in range(25):
        case = draw(np.random.default_rng([seed, 103]), shape)
        t, method = case.tables, planned(case)
        S, plan = t.n_states, method.plans[0]
        rho, d, r = relations(case, method, 0)
        known = method.optimism.z[:, :S], method.optimism.u, plan.policy, plan.z[:, :S], plan.high[:, :S]
        exact = reference.pair_certificate(t, *known, elsewhere)
        assert np.array_equal(np.isnan(rho), ~exact.occupied)
        inside = ~np.isnan(d)
        np.testing.assert_allclose(np.log(d[inside]), np.log(exact.d[:-1, :S, :S][inside]), atol=1e-9)
        np.testing.assert_allclose(np.log(r[inside]), np.log(exact.r[:-1, :S, :S][inside]), atol=1e-9)
        np.testing.assert_allclose(np.log(rho[exact.occupied]), np.log(exact.rho[:-1][exact.occupied]), atol=1e-9)
        # One turns to the action that gains most, unless the candidate's own future does.
        inputs = method._inputs(method.rules, case.counts.arrays)
        turn = pairs.pair_ratio(inputs, method.optimism, plan, exact.occupied)[1]
        assert (turn[~exact.occupied] == -1).all()
        assert ((turn != plan.policy) | ~exact.occupied).all()
        gain = np.take_along_axis(exact.gain, np.where(turn < 0, plan.policy, turn)[..., None], 2)[..., 0]
        np.testing.assert_allclose(gain[exact.occupied], exact.gain.max(axis=2)[exact.occupied], rtol=1e-8)


def attack_many(seeds, shape: Shape) -> tuple[np.ndarray, int, int]:
    """Smallest slacks (ρ, d, R), how often pairs are sharper than the gap certificate, and how often ρ is attained then."""
    slack, sharper, attained = np.full(3, np.inf), 0, 0
    for seed in seeds:
        case = draw(np.random.default_rng([seed, 107]), shape)
        method = planned(case, converged=bool(seed % 2))
        kind = seed // 2 % 2
        rho = relations(case, method, kind)[0][0, case.start]
        found = attacked(case, method, kind, seed)
        slack = np.minimum(slack, found)
        if math.log(rho) < 0.99 * math.log(method.plans[kind].rho[0, case.start]):
            sharper += 1
            attained += found[0] <= 1e-3 * math.log(rho)
    return slack, sharper, attained


@pytest.mark.parametrize("elsewhere", [False, True])
def test_no_kernel_in_the_balls_violates_a_relation(elsewhere, monkeypatch):
    shape = open_ended(monkeypatch) if elsewhere else Shape(visits=VISITS)
    slack, sharper, attained = attack_many(range(150), shape)
    assert slack.min() >= -ROUNDING
    assert attained > 0.5 * sharper > 0  # so that a slip would show


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_kernel_in_the_balls_violates_a_relation_of_many(part, monkeypatch):
    """A hundred thousand instances; ``-s`` shows the smallest slacks."""
    for elsewhere, size in ((False, 8000), (True, 2000)):
        shape = open_ended(monkeypatch) if elsewhere else Shape(visits=VISITS)
        slack, sharper, attained = attack_many(range(10**6 + size * part, 10**6 + size * (part + 1)), shape)
        print(f"part {part}, elsewhere {elsewhere}: slack {slack}, sharper {sharper}, attained {attained}")
        assert slack.min() >= -ROUNDING


def test_never_above_the_gap_certificate_and_never_without_a_number():
    """Up to exponents where products overflow; what cannot be computed is no bound."""
    for seed in range(60):
        shape = Shape(visits=VISITS, exponents=(50.0, 599.0) if seed % 3 else (1e-5, 50.0))
        case = draw(np.random.default_rng([seed, 113]), shape)
        method = planned(case)
        rho, d, r = relations(case, method, 0)
        inside, occupied = ~np.isnan(d), ~np.isnan(rho)
        assert (d[inside] > 0).all()
        assert (r[inside] > 0).all()
        S = case.tables.n_states
        assert (rho[occupied] >= 1).all()
        assert (rho[occupied] <= method.plans[0].rho[:-1, :S][occupied] * (1 + 1e-11)).all()
        assert attacked(case, method, 0, seed, 4, 2).min() >= -1e-9


# -- slips -----------------------------------------------------------------------------------------------------

# What to draw, and how many successors get corners.
SLIPS = {
    "box of the inverse": (Shape(visits=SOME_DATA), 3),
    "lo and hi swapped": (Shape(visits=SOME_DATA), 0),
    "two corners": (Shape(visits=SOME_DATA, states=(3, 4)), 3),
    "another reference below": (Shape(visits=SOME_DATA, sign=1), 3),
    "kappa rows too small": (Shape(visits=SOME_DATA, sign=1), 3),
    "base below for both signs": (Shape(visits=SOME_DATA, sign=-1), 3),
    "table transposed": (Shape(visits=SOME_DATA, sign=-1), 3),
    "one end of the reward": (Shape(visits=SOME_DATA, intervals=True), 3),
    "rewards cancel": (Shape(visits=SOME_DATA, next_state_rewards=False, intervals=False), 3),
    "d instead of R": (Shape(visits=SOME_DATA, horizons=(3,)), 3),
    "weights divided by rho": (Shape(visits=SOME_DATA, sign=1, horizons=(3,)), 3),
    "contested actions dropped": (Shape(visits=SOME_DATA, horizons=(3,)), 3),
    "the other state is optimal": (Shape(visits=SOME_DATA, horizons=(3,)), 3),
    "unoccupied states are alike": (Shape(visits=SOME_DATA, horizons=(3,), successors="model"), 3),
    "one elsewhere": (Shape(visits=(0, 3, 10), successors="unknown", next_state_rewards=False, intervals=False), 3),
    "elsewhere left out": (Shape(visits=(0, 3, 10), successors="unknown", next_state_rewards=False), 3),
    "another candidate": (Shape(visits=(3, 10, 30, 100)), 3),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_attack_catches_the_slip_and_not_the_certificate(slip):
    """Each of these misreadings gives false relations; where it does, the right ones hold."""
    shape, corners = SLIPS[slip]
    elsewhere = "elsewhere" in slip
    for seed in range(600):
        case = draw(np.random.default_rng([seed, 109]), shape)
        t, method = case.tables, planned(case)
        plan, other = method.plans
        S, policy = t.n_states, plan.policy
        z, u = reference_kl.optimism(t)
        known = z, u, policy, plan.z[:, :S], plan.high[:, :S]
        right = reference.pair_certificate(t, *known, elsewhere, None, corners)
        if slip == "another candidate":
            # The relations of one candidate, claimed of the other.
            wrong, policy = right, other.policy
        else:
            wrong = reference.pair_certificate(t, *known, elsewhere, slip, corners)
        tables = [(c.rho[:-1], c.d[:-1, :S, :S].copy(), c.r[:-1, :S, :S].copy()) for c in (wrong, right)]
        if slip != "another candidate" and all(
            np.nan_to_num(np.log(b) - np.log(a)).max() < 1e-3 for a, b in zip(*tables, strict=True)
        ):
            continue
        if attack_pairs(t, policy, z, *tables[0], seed, 24, 5).min() < -1e-3:
            assert attack_pairs(t, plan.policy, z, *tables[1], seed, 24, 5).min() >= -ROUNDING
            return
    pytest.fail("the attack found no violation of relations that are known to be false")
