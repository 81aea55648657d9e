"""The mixture radius: an exact martingale, its value in sixty digits, and how often its event fails."""

import math
from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf
from numba import njit
from reference.kl import mixture_radius as plain_radius
from reference.kl import mixture_radius_mpmath, support_radius
from scipy import stats

from entropic_bpi.methods.kl.rates import mixture_radius


@pytest.fixture(autouse=True)
def sixty_digits():
    with mp.workdps(60):
        yield


def compositions(n, k):
    """All counts of n draws on k values."""
    if k == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, k - 1):
            yield (first, *rest)


def divergence(tally, p):
    """n KL(tally / n, p)."""
    n = sum(tally)
    return sum(c * mp.log(mpf(c) / n / q) for c, q in zip(tally, p, strict=True) if c > 0)


@pytest.mark.parametrize("weights", [(1, 2), (1, 999), (1, 2, 4)])
def test_the_reference_is_a_martingale_of_mean_one(weights):
    """E[exp(n KL - R_mix)] = 1 exactly, summed over all counts."""
    p = [mpf(w) / sum(weights) for w in weights]
    for n in range(1, 9):
        total = mpf(0)
        for tally in compositions(n, len(p)):
            ways = math.factorial(n) // math.prod(math.factorial(c) for c in tally)
            chance = ways * mp.fprod(q**c for q, c in zip(p, tally, strict=True))
            total += chance * mp.exp(divergence(tally, p) - mixture_radius_mpmath(tally, len(p)))
        assert abs(total - 1) < mpf(10) ** -40


@pytest.mark.parametrize("p", [(0.3, 0.7), (0.2, 0.3, 0.5)])
def test_the_expected_martingale_is_one_over_all_sequences(p):
    """The same by enumerating every sequence of draws, with the compiled radius: rounded up, hence at most one."""
    for n in range(1, 9):
        total = 0.0
        for sequence in product(range(len(p)), repeat=n):
            tally = np.bincount(sequence, minlength=len(p))
            log_ratio = float(divergence([int(c) for c in tally], p)) - mixture_radius(tally, len(p))
            total += math.prod(p[i] for i in sequence) * math.exp(log_ratio)
        assert 1 - 1e-11 < total <= 1 + 1e-14


def test_the_next_draw_keeps_the_mean_of_the_martingale():
    p = [mpf(1) / 5, mpf(1) / 2, mpf(3) / 10]
    for tally in ((1, 0, 0), (3, 1, 0), (2, 5, 4)):
        now = mp.exp(divergence(tally, p) - mixture_radius_mpmath(tally, 3))
        after = mpf(0)
        for i in range(3):
            more = tuple(c + (j == i) for j, c in enumerate(tally))
            after += p[i] * mp.exp(divergence(more, p) - mixture_radius_mpmath(more, 3))
        assert abs(after / now - 1) < mpf(10) ** -40


@pytest.mark.parametrize("k", [2, 3, 16, 500])
@pytest.mark.parametrize("n", [1, 7, 1000, 10**6, 10**9])
def test_value_is_never_below_sixty_digits_and_close_above(n, k):
    rng = np.random.default_rng([n, k])
    for concentration in (0.02, 0.3, 3.0):
        share = rng.dirichlet(np.full(k, concentration))
        tally = rng.multinomial(n, share / share.sum())
        exact = mixture_radius_mpmath([int(c) for c in tally], k)
        slack = float(mixture_radius(tally, k) - exact)
        assert 0 <= slack <= 1e-12 * (1 + n * math.log(n + 1) + k)


@pytest.mark.parametrize("k", [10**3, 10**5, 10**8, 10**9])
def test_many_possible_values_lose_no_digits(k):
    """Γ(n + k) and Γ(k) nearly cancel: the radius must not fall below its value by what that loses."""
    rng = np.random.default_rng(k)
    for n in (1, 2, 5, 8, 9, 17, 31, 32, 33, 100, 999, 10**5, 10**7):
        for parts in (1, 2, 7):
            tally = rng.multinomial(n, rng.dirichlet(np.ones(parts)))
            exact = mixture_radius_mpmath([int(c) for c in tally if c], k)
            slack = float(mixture_radius(tally, k) - exact)
            assert 0 <= slack <= 1e-13 * (100 * parts + float(exact) + n)


def test_only_the_seen_values_need_to_be_listed():
    assert mixture_radius(np.array([3, 9]), 40) == mixture_radius(np.array([0, 3, 0, 0, 9, 0]), 40)


def test_the_plain_version_agrees_with_sixty_digits():
    rng = np.random.default_rng(0)
    tally = rng.multinomial(rng.integers(1, 2000, 50), rng.dirichlet(np.ones(4), 50))
    exact = [float(mixture_radius_mpmath([int(c) for c in row], 4)) for row in tally]
    np.testing.assert_allclose(plain_radius(tally, np.full(50, 4)), exact, rtol=1e-9, atol=1e-9)


def test_it_never_exceeds_a_single_prior_by_more_than_log_four():
    """And it adapts: a point mass among 1000 possible values costs about log 1000, not 1000 parameters."""
    n = 10_000
    one_parameter_each = math.lgamma(n + 1000) - math.lgamma(1000) - math.lgamma(n + 1)  # the uniform prior
    assert mixture_radius(np.array([n]), 1000) < math.log(1000) + math.log(4) + 1
    assert one_parameter_each > 1000


def test_no_draws_no_radius():
    assert mixture_radius(np.array([0, 0]), 2) == 0.0


@njit
def violations(p, delta, horizon, runs, rng, possible=0):
    """Runs in which n KL(p̂_n, p) > log(1/δ) + R_mix at any n up to the horizon; tested after every draw.

    The values that occur are all that are possible, or so many of ``possible`` ones that are declared to occur.
    """
    k, failed = len(p), 0
    threshold = math.log(1 / delta)
    for _ in range(runs):
        tally = np.zeros(k, dtype=np.int64)
        for n in range(1, horizon + 1):
            u, i = rng.random(), 0
            while i < k - 1 and u >= p[i]:
                u -= p[i]
                i += 1
            tally[i] += 1
            distance = 0.0
            for j in range(k):
                if tally[j] > 0:
                    distance += tally[j] * math.log(tally[j] / n / p[j])
            radius = mixture_radius(tally, possible, k) if possible else mixture_radius(tally, k, 0)
            if distance > threshold + radius:
                failed += 1
                break
    return failed


CASES = [(0.5, 0.5), (0.02, 0.98), (0.25, 0.25, 0.5), (0.9, 0.05, 0.03, 0.02)]


@pytest.mark.parametrize("p", CASES)
def test_the_event_fails_at_any_time_with_probability_at_most_delta(p):
    delta, runs = 0.2, 2000
    failed = violations(np.array(p), delta, 300, runs, np.random.default_rng(1))
    assert stats.binomtest(failed, runs, delta, alternative="greater").pvalue > 1e-3
    assert failed > 0  # the event is not vacuous: it does fail sometimes


@pytest.mark.slow
@pytest.mark.parametrize("p", CASES)
@pytest.mark.parametrize("delta", [0.02, 0.1, 0.5])
def test_the_event_fails_at_any_time_with_probability_at_most_delta_long(p, delta):
    runs = 20_000
    failed = violations(np.array(p), delta, 3000, runs, np.random.default_rng(2))
    assert stats.binomtest(failed, runs, delta, alternative="greater").pvalue > 1e-3


# -- at most so many of the possible values occur ---------------------------------------------------------------


@pytest.mark.parametrize(("k", "most"), [(3, 1), (3, 2), (5, 3), (6, 2)])
def test_the_mixture_over_subsets_is_a_law_of_sequences(k, most):
    """Its likelihoods add up to one over all sequences with no more different values than a subset has."""
    for n in range(1, 7):
        total = mpf(0)
        for tally in compositions(n, k):
            if sum(c > 0 for c in tally) <= most:
                ways = math.factorial(n) // math.prod(math.factorial(c) for c in tally)
                fit = mp.fprod((mpf(c) / n) ** c for c in tally if c > 0)
                both = mp.exp(-mixture_radius_mpmath(tally, k, most))
                total += ways * fit * (2 * both - mp.exp(-mixture_radius_mpmath(tally, k)))
        assert abs(total - 1) < mpf(10) ** -40


@pytest.mark.parametrize(("k", "most"), [(2, 1), (3, 2), (16, 3), (500, 1), (500, 40), (10**8, 2)])
@pytest.mark.parametrize("n", [1, 7, 40, 1000, 10**6, 10**9])
def test_value_with_few_values_is_never_below_sixty_digits_and_close_above(n, k, most):
    rng = np.random.default_rng([n, k, most])
    for concentration in (0.05, 0.5, 3.0):
        share = rng.dirichlet(np.full(most, concentration))
        tally = rng.multinomial(n, share / share.sum())
        exact = mixture_radius_mpmath([int(c) for c in tally], k, most)
        slack = float(mixture_radius(tally, k, most) - exact)
        assert 0 <= slack <= 1e-12 * (1 + n * math.log(n + 1) + most)


def test_few_values_of_many_cost_less():
    """Three even outcomes among 500: the declaration is worth several nats, and never costs more than log 2."""
    tally = np.array([400, 350, 250])
    assert mixture_radius(tally, 500, 3) < mixture_radius(tally, 500) - 1.0
    assert mixture_radius(tally, 500, 499) < mixture_radius(tally, 500) + math.log(2) + 1e-9


def test_the_plain_version_with_few_values_agrees_with_sixty_digits():
    rng = np.random.default_rng(0)
    tally = rng.multinomial(rng.integers(1, 2000, 50), rng.dirichlet(np.ones(3), 50))
    exact = [float(mixture_radius_mpmath([int(c) for c in row], 9, 4)) for row in tally]
    np.testing.assert_allclose(support_radius(tally, np.full(50, 9), np.full(50, 4)), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("p", CASES)
def test_the_event_with_few_values_fails_with_probability_at_most_delta(p):
    delta, runs = 0.2, 1000
    failed = violations(np.array(p), delta, 300, runs, np.random.default_rng(3), possible=40)
    assert stats.binomtest(failed, runs, delta, alternative="greater").pvalue > 1e-3
