"""The ball solver against a cone program, a 50-digit dual, and maximisers found by bisection."""

import math
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from numba import njit
from reference.kl import ball_max, ball_max_mpmath

from entropic_bpi.methods.kl.ball import TOLERANCE, kl_extreme

CONVERGED = 1e-9


def extreme(tally, f, x, sign=1, tolerance=TOLERANCE):
    tally, f = np.asarray(tally, dtype=np.int64), np.asarray(f, dtype=float)
    return kl_extreme(tally, f, len(f), tally.sum(), x, float(sign), tolerance, np.empty((2, len(f))))


def problem(rng):
    """Counts with unseen values, values of all scales, and a radius of the size that a run has, or any other."""
    k = int(rng.integers(2, 9))
    n = int(10 ** rng.uniform(0, 9))
    share = rng.dirichlet(np.full(k, rng.choice([0.1, 0.5, 2.0])))
    tally = rng.multinomial(n, share / share.sum())
    u = rng.random(k)
    f = [u, np.exp(rng.choice([5, 30, 200]) * u), np.exp(-20 * u), 1 + 1e-7 * u, 100 * u - 50, np.round(2 * u)][
        rng.integers(6)
    ]
    radius = (math.log(100) + 0.5 * k * math.log(n + 1)) / n if rng.random() < 0.7 else 10 ** rng.uniform(-9, 1.5)
    return tally, f, radius


def check_against_mpmath(seeds):
    worst_loose = worst_tight = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        tally, f, x = problem(rng)
        ends = {sign: ball_max_mpmath(tally, sign * f, x) for sign in (1, -1)}
        width = float(ends[1] + ends[-1])
        for sign, exact in ends.items():
            loose, tight = (sign * extreme(tally, f, x, sign, tol) for tol in (TOLERANCE, CONVERGED))
            size = max(abs(float(exact)), 1e-300)
            assert loose - exact >= -1e-12 * size, (seed, sign)
            assert tight - exact >= -1e-12 * size, (seed, sign)
            # What rounding alone may cost: the last digits of the value and of the range that it is measured from.
            floor = 2e-14 * (size + np.ptp(f))
            if width > 0:
                worst_loose = max(worst_loose, float((loose - exact - floor) / width))
                worst_tight = max(worst_tight, float((tight - exact - floor) / width))
    assert worst_loose < 1e-4
    assert worst_tight < 1e-9


def test_bound_is_safe_and_close_to_a_fifty_digit_dual():
    check_against_mpmath(range(80))


@pytest.mark.slow
def test_bound_is_safe_and_close_to_a_fifty_digit_dual_on_thousands():
    check_against_mpmath(range(1000, 2000))


@njit
def _batch(tally, f, n, x, sign, tolerance):
    scratch, out = np.empty((2, f.shape[1])), np.empty(len(f))
    for i in range(len(f)):
        out[i] = kl_extreme(tally[i], f[i], f.shape[1], n[i], x[i], sign, tolerance, scratch)
    return out


@njit
def _primal(tally, f, n, x, sign):
    """q f at a maximiser that is inside the ball."""
    out, q = np.empty(len(f)), np.empty(f.shape[1])
    for i in range(len(f)):
        ball_max(tally[i] / n[i], sign * f[i], np.ones(f.shape[1]) > 0, x[i], q)
        out[i] = np.sum(q * f[i])
    return out


@pytest.mark.parametrize("k", [2, 3, 8])
def test_no_kernel_in_the_ball_beats_the_bound(k):
    rng, size = np.random.default_rng(k), 30_000
    n = (10 ** rng.uniform(0, 7, size)).astype(np.int64)
    tally = rng.multinomial(n, rng.dirichlet(np.full(k, 0.5), size))
    f = np.exp(rng.choice([0.1, 1, 10, 50], (size, 1)) * rng.random((size, k)))
    x = (rng.uniform(2, 8, size) + 0.5 * k * np.log(n + 1)) / n
    for sign in (1.0, -1.0):
        bound, attained = _batch(tally, f, n, x, sign, TOLERANCE), _primal(tally, f, n, x, sign)
        assert (sign * (bound - attained) >= -1e-12 * f.max(axis=1)).all()
        width = _batch(tally, f, n, x, 1.0, CONVERGED) - _batch(tally, f, n, x, -1.0, CONVERGED)
        # The maximiser of the oracle is itself a bisection: a few of its last digits are forgiven.
        assert (sign * (bound - attained) <= 1e-4 * width + 1e-11 * f.max(axis=1)).all()


def check_against_cone_program(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        k = int(rng.integers(2, 6))
        n = int(rng.integers(1, 300))
        tally, f = rng.multinomial(n, rng.dirichlet(np.full(k, 0.7))), rng.random(k)
        x, sign = rng.uniform(0.01, 2.0), int(rng.choice([-1, 1]))
        q, share = cp.Variable(k), tally / n
        seen = share > 0
        divergence = cp.sum(cp.rel_entr(share[seen], q[seen]))
        program = cp.Problem(cp.Maximize(sign * f @ q), [q >= 0, cp.sum(q) == 1, divergence <= x])
        program.solve(solver=cp.CLARABEL)
        assert extreme(tally, f, x, sign) == pytest.approx(sign * program.value, abs=2e-5)


def test_agrees_with_a_cone_program():
    check_against_cone_program(range(200))


@pytest.mark.slow
def test_agrees_with_a_cone_program_on_a_thousand():
    check_against_cone_program(range(200, 1200))


@pytest.mark.parametrize("sign", [1, -1])
class TestDegenerate:
    def test_constant_values_have_no_width(self, sign):
        assert extreme([5, 2, 0], [0.3, 0.3, 0.3], 0.5, sign) == 0.3

    def test_one_successor_is_certain_even_unseen(self, sign):
        assert extreme([0], [0.7], math.inf, sign) == 0.7
        assert extreme([9], [0.7], 0.0, sign) == 0.7

    def test_no_radius_is_the_empirical_mean_rounded_outwards(self, sign):
        value = extreme([1, 3], [0.0, 1.0], 0.0, sign)
        assert sign * (value - 0.75) >= 0
        assert value == pytest.approx(0.75, rel=1e-14)

    @pytest.mark.parametrize("x", [math.inf, 1e9, math.nan])
    def test_no_information_is_the_extreme_of_all_possible_values(self, sign, x):
        f = [1.0, 2.0, 5.0]
        assert extreme([3, 4, 0], f, x, sign) == (5.0 if sign > 0 else 1.0)

    def test_no_data_is_the_extreme_of_all_possible_values(self, sign):
        assert extreme([0, 0, 0], [1.0, 2.0, 5.0], 0.0, sign) == (5.0 if sign > 0 else 1.0)

    @pytest.mark.parametrize("bad", [math.inf, -math.inf])
    def test_values_that_are_not_finite_give_a_bound_that_says_nothing(self, sign, bad):
        assert extreme([3, 4], [1.0, bad], 0.1, sign) in (sign * math.inf, 1.0)
        assert not sign * extreme([3, 4], [1.0, sign * math.inf], 0.1, sign) < math.inf


def test_an_unseen_value_beyond_the_seen_ones_counts():
    """q may put mass 1 - e^{-x} on a value that was never seen."""
    x = 0.2
    assert extreme([10, 0], [1.0, 3.0], x) == pytest.approx(3.0 - 2.0 * math.exp(-x), rel=1e-12)
    assert extreme([10, 0], [1.0, 3.0], x) > extreme([10], [1.0], x) + 0.3


def test_an_unseen_value_inside_the_range_changes_nothing():
    assert extreme([5, 5, 0], [0.0, 1.0, 0.5], 0.3) == extreme([5, 5], [0.0, 1.0], 0.3)


def test_two_values_give_the_binary_divergence():
    """For k = 2 the bound is the q with kl(p, q) = x."""
    q = extreme([30, 70], [0.0, 1.0], 0.05, tolerance=CONVERGED)
    assert 0.7 * math.log(0.7 / q) + 0.3 * math.log(0.3 / (1 - q)) == pytest.approx(0.05, rel=1e-9)


def test_bound_grows_with_the_radius_and_the_values():
    rng = np.random.default_rng(0)
    for _ in range(200):
        tally, f = rng.multinomial(50, rng.dirichlet(np.ones(4))), rng.random(4)
        bounds = [extreme(tally, f, x, tolerance=CONVERGED) for x in (0.001, 0.01, 0.1, 1.0, 10.0)]
        assert all(a <= b + 1e-12 for a, b in pairwise(bounds))
        more = f + 0.1 * rng.random(4)
        assert extreme(tally, f, 0.1, tolerance=CONVERGED) <= extreme(tally, more, 0.1, tolerance=CONVERGED) + 1e-12


@pytest.mark.parametrize("x", [1e-18, 1e-15, 1e-12, 1e-9])
def test_radii_at_the_edge_of_rounding_stay_safe(x):
    tally, f = [10**9, 3 * 10**9, 1], [0.2, 0.7, 1e6]
    for sign in (1, -1):
        exact = ball_max_mpmath(tally, [sign * v for v in f], x)
        slack = float(sign * extreme(tally, f, x, sign) - exact)
        assert -1e-12 * abs(exact) <= slack <= 1e-9 * 1e6


def test_a_solver_cut_short_is_wider_but_safe():
    rng = np.random.default_rng(1)
    for _ in range(300):
        tally, f, x = problem(rng)
        coarse, fine = extreme(tally, f, x, tolerance=0.5), extreme(tally, f, x, tolerance=CONVERGED)
        assert coarse >= fine - 1e-12 * abs(fine)
