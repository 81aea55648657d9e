r"""Confidence thresholds: how far an empirical kernel may be from the true one, for all sample sizes at once.

The paper's rates, with :math:`L = \log(3SAH/\delta)`:

.. math:: \alpha(n) = L + S\log(8e(n+1)), \qquad \alpha^\star(n) = L + \log(8e(n+1)).

The exact mixture radius: for i.i.d. draws on :math:`k` possible values with counts :math:`N` and a Dirichlet prior
:math:`(a,\dots,a)`, :math:`M_n = e^{\,n\,\mathrm{KL}(\hat p_n, p) - R_a(N)}` is a martingale started at 1, with

.. math:: R_a(N) = \sum_i N_i\log\tfrac{N_i}{n} - \Big[\ln\Gamma(ka) - \ln\Gamma(n+ka)
          + \sum_i \big(\ln\Gamma(N_i+a) - \ln\Gamma(a)\big)\Big].

By Ville's inequality :math:`n\,\mathrm{KL}(\hat p_n,p) \le \log(1/\delta') + R_a(N)` for all :math:`n` with
probability at least :math:`1-\delta'`. Averaging the martingales over the priors :math:`a\in\{1/k^2, 1/k, 1/2, 1\}`
gives :func:`mixture_radius`, which adapts to sparse supports.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["log_8e", "mixture_radius"]


@njit(cache=True, nogil=True)
def log_8e(n):  # type: ignore[no-untyped-def]
    """log(8e(n + 1))."""
    return 1.0 + math.log(8.0 * (n + 1.0))


@njit(cache=True, nogil=True)
def mixture_radius(tally, possible):  # type: ignore[no-untyped-def]
    """R_mix of the counts ``tally`` (zeros allowed) on ``possible`` values, rounded up past the error of lgamma.

    With no observation the radius is 0.
    """
    k = float(possible)
    n = 0.0
    fit = 0.0
    for count in tally:
        if count > 0:
            n += count
            fit += count * math.log(count)
    if n == 0.0:
        return 0.0
    fit -= n * math.log(n)
    smallest, total, largest = np.inf, 0.0, 0.0
    for a in (1.0 / (k * k), 1.0 / k, 0.5, 1.0):
        evidence = math.lgamma(k * a) - math.lgamma(n + k * a)
        for count in tally:
            if count > 0:
                evidence += math.lgamma(count + a) - math.lgamma(a)
        radius = fit - evidence
        largest = max(largest, abs(evidence))
        # total = Σ exp(smallest - radius) / 4 over the priors so far
        if radius < smallest:
            total = total * math.exp(radius - smallest) + 0.25
            smallest = radius
        else:
            total += 0.25 * math.exp(smallest - radius)
    # Differences of numbers of size n log n: each carries a relative error of a few units in the last place.
    slack = 4e-15 * (largest + abs(fit) + n * math.log(n + 1.0) + k)
    return smallest - math.log(total) + slack
