r"""Confidence thresholds: how far an empirical kernel may be from the true one, for all sample sizes at once.

The paper's rates, with :math:`L = \log(3SAH/\delta)`:

.. math:: \alpha(n) = L + S\log(8e(n+1)), \qquad \alpha^\star(n) = L + \log(8e(n+1)).

The exact mixture radius: for draws on :math:`k` possible values, each with the law :math:`p` given the past, with counts
:math:`N` and a Dirichlet prior :math:`(a,\dots,a)`, :math:`M_n = e^{\,n\,\mathrm{KL}(\hat p_n, p) - R_a(N)}` is a
supermartingale started at 1 (page "The KL method", "One event about transitions"), with

.. math:: R_a(N) = \sum_i N_i\log\tfrac{N_i}{n} - \Big[\ln\Gamma(ka) - \ln\Gamma(n+ka)
          + \sum_i \big(\ln\Gamma(N_i+a) - \ln\Gamma(a)\big)\Big].

By Ville's inequality :math:`n\,\mathrm{KL}(\hat p_n,p) \le \log(1/\delta') + R_a(N)` for all :math:`n` with
probability at least :math:`1-\delta'`. Averaging the supermartingales over the priors :math:`a\in\{1/k^2, 1/k, 1/2, 1\}`
gives ``mixture_radius``, which adapts to sparse supports.

If at most :math:`m` of the :math:`k` values are possible, unknown which, another supermartingale mixes over all subsets of
:math:`m` values with weight :math:`1/\binom km` and a Dirichlet prior :math:`(\tfrac12,\dots,\tfrac12)` on each. When
:math:`j` different values were seen, :math:`\binom{k-j}{m-j}` subsets contain them, all with the same likelihood, so its
radius is

.. math:: R_{1/2}(N;\,m\text{ cells}) + \sum_{i<j}\log\frac{k-i}{m-i}.

Half of the weight goes to it, the other half to the four priors. It is a supermartingale for every :math:`p`, also if the
declaration is wrong.

The largest loss of a bet that is mixed over the arcsine law against the best one in hindsight, ``betting_regret``, is

.. math:: c_2(n)=\log\frac{\sqrt\pi\,\Gamma(n+1)}{\Gamma(n+\frac12)}.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.compile.decorators import compiled, inlined

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
LOG_TWO = math.log(2.0)
# Relative error of the terms of the radius, which do not cancel.
ROUNDING = 2e-15


@compiled
def log_8e(n: float) -> float:
    """Return log(8e(n + 1))."""
    return 1.0 + math.log(8.0 * (n + 1.0))


@compiled
def _stirling_series(x: float) -> float:
    """Return ln Γ(x) - (x - 1/2) ln x + x - ln(2π)/2 for x >= 32, where the error of four terms is below 1e-16."""
    y = 1.0 / (x * x)
    return (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x


@compiled
def _log_rising(n: float, a: float) -> float:
    """Return ln Γ(n + a) - ln Γ(a) - n ln n + n, in a form whose terms do not cancel for any n and a."""
    if n == 0.0:
        return 0.0
    if n < 32.0:
        # The logarithm of a (a + 1) ... (a + n - 1), eight factors at a time: few logarithms, and no overflow.
        logs, product = 0.0, 1.0
        for i in range(int(n)):
            product *= a + i
            if i % 8 == 7:
                logs += math.log(product)
                product = 1.0
        return logs + math.log(product) - n * math.log(n) + n
    x = n + a
    if a > n:
        return (x - 0.5) * math.log1p(n / a) - n * math.log(n / a) + _stirling_series(x) - _stirling_series(a)
    return n * math.log1p(a / n) + (a - 0.5) * math.log(x) - a + HALF_LOG_TWO_PI + _stirling_series(x) - math.lgamma(a)


@compiled
def mixture_radius(tally: np.ndarray, possible: int, most: int = 0) -> float:
    """Return R_mix of the counts ``tally`` (zeros allowed) on ``possible`` values, rounded up by more than its error.

    At most ``most`` of the possible values are declared to occur; 0: nothing is declared. Without observations the radius
    is 0. Underflow is safe: a prior whose term vanishes makes the radius larger.
    """
    k = float(possible)
    n, seen = 0.0, 0
    for count in tally:
        if count > 0:
            n += count
            seen += 1
    smallest, total, largest = np.inf, 0.0, 0.0
    for a in (1.0 / (k * k), 1.0 / k, 0.5, 1.0):
        radius, size = _dirichlet_radius(tally, n, k, a)
        largest = max(largest, size)
        # total = Σ exp(smallest - radius) / 4 over the priors so far
        if radius < smallest:
            total = total * math.exp(radius - smallest) + 0.25
            smallest = radius
        else:
            total += 0.25 * math.exp(smallest - radius)
    if n == 0.0:
        return 0.0
    radius = smallest - math.log(total) + ROUNDING * (largest + 32.0 * (seen + 1))
    if most == 0:
        return radius
    subsets, size = _dirichlet_radius(tally, n, float(most), 0.5)
    for i in range(seen):
        term = math.log((possible - i) / (most - i))
        subsets += term
        size += term
    subsets += ROUNDING * (size + 32.0 * (seen + 1))
    # Half of the weight each, computed from the smaller radius.
    mixed = min(radius, subsets) + LOG_TWO - math.log1p(math.exp(-abs(radius - subsets)))
    return mixed + ROUNDING * (abs(mixed) + 1.0)


@compiled
def _dirichlet_radius(tally: np.ndarray, n: float, k: float, a: float) -> tuple[float, float]:
    """Return R_a(N) on k cells, with Σ N ln N and n ln n inside its terms; and the sum of the sizes of its terms."""
    radius = _log_rising(n, k * a)
    size = abs(radius)
    for count in tally:
        if count > 0:
            term = _log_rising(float(count), a)
            radius -= term
            size += abs(term)
    return radius, size


@compiled
def betting_regret(n: float) -> float:
    """Return c₂(n), rounded up by more than its error."""
    whole, half = _log_rising(n, 1.0), _log_rising(n, 0.5)
    return whole - half + ROUNDING * (abs(whole) + abs(half) + 32.0)


@inlined
def reached(gap: float, eps: float) -> bool:
    """Return whether a run ends, in compiled code as ``Bounds.reached`` does in Python. A NaN never passes the test."""
    return gap <= eps
