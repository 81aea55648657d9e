r"""Compiled entropic backups on compressed rows, accurate for every :math:`\beta`.

The entropic risk of a lottery that pays :math:`v_i` with probability :math:`p_i` is

.. math:: \rho_\beta = \tfrac1\beta \log \sum_i p_i e^{\beta v_i}
        = c + \tfrac1\beta \operatorname{log1p} \sum_i p_i \operatorname{expm1}(\beta (v_i - c)).

With :math:`c` the point of :math:`[\min v, \max v]` nearest to 0 the sum has terms of one sign whenever the values
do, so nothing cancels, and the form is exact down to :math:`\beta \to 0`. Where the sum comes close to -1, or an
exponential would overflow, the plain log-sum-exp is the accurate form instead.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

__all__ = ["backup_best", "backup_rows", "lottery_risk", "refine_rows"]

# Below this exponent e^{βv} is linear to the last bit relative to the risk, so β = 0 is exact.
LINEAR_EXPONENT = 1e-18
# Largest exponent for which a probability-weighted sum of exponentials is safe in doubles.
LARGEST_EXPONENT = 600.0
# log1p(y) keeps about 12 digits while 1 + y is above this.
SMALLEST_ARGUMENT = 1e-3


@njit(cache=True, nogil=True)
def lottery_risk(probabilities, values, beta):  # type: ignore[no-untyped-def]
    """Entropic risk of ``values`` under ``probabilities``; both are 1-D and the probabilities positive."""
    low = values[0]
    high = values[0]
    for i in range(1, values.size):
        low = min(low, values[i])
        high = max(high, values[i])
    centre = min(max(0.0, low), high)
    reach = abs(beta) * max(high - centre, centre - low)
    total = 0.0
    if reach < LINEAR_EXPONENT:
        for i in range(values.size):
            total += probabilities[i] * (values[i] - centre)
        return centre + total
    if reach < LARGEST_EXPONENT:
        for i in range(values.size):
            total += probabilities[i] * math.expm1(beta * (values[i] - centre))
        if total > SMALLEST_ARGUMENT - 1.0:
            return centre + math.log1p(total) / beta
    top = high if beta > 0 else low
    total = 0.0
    for i in range(values.size):
        total += probabilities[i] * math.exp(beta * (values[i] - top))
    return top + math.log(total) / beta


@njit(cache=True, nogil=True)
def _row_risk(indptr, indices, probabilities, rewards, values, beta, row, buffer):  # type: ignore[no-untyped-def]
    """Risk of ``rewards + values`` over one row, entry by entry; ``rewards`` is empty when they do not apply."""
    begin, end = indptr[row], indptr[row + 1]
    for j in range(begin, end):
        buffer[j - begin] = values[indices[j]]
        if rewards.size:
            buffer[j - begin] += rewards[j]
    return lottery_risk(probabilities[begin:end], buffer[: end - begin], beta)


@njit(cache=True, nogil=True)
def _longest(indptr):  # type: ignore[no-untyped-def]
    longest = 0
    for row in range(indptr.size - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest


@njit(cache=True, nogil=True)
def backup_rows(indptr, indices, probabilities, rewards, values, beta, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = risk of row ``i``, each row on its own scale: for rewards that depend on the next state."""
    buffer = np.empty(_longest(indptr))
    for row in range(indptr.size - 1):
        out[row] = _row_risk(indptr, indices, probabilities, rewards, values, beta, row, buffer)


@njit(cache=True, nogil=True)
def refine_rows(indptr, indices, probabilities, values, beta, which, out):  # type: ignore[no-untyped-def]
    """Recompute the rows ``which`` of ``out`` each on its own scale."""
    nothing = np.empty(0)
    for row in which:
        buffer = np.empty(indptr[row + 1] - indptr[row])
        out[row] = _row_risk(indptr, indices, probabilities, nothing, values, beta, row, buffer)


@njit(cache=True, nogil=True)
def _best_of_state(state, indptr, indices, probabilities, rewards, values, shared, centre, beta):  # type: ignore[no-untyped-def]
    """Best action of one state and its value, from the ``shared`` exponentials ``expm1(beta * (values - centre))``.

    ``log1p`` is increasing, but the sign of beta and the rewards are not in the sum, so each action needs its log.
    """
    nothing = np.empty(0)
    best, action = -np.inf, 0
    n_actions = rewards.shape[1]
    for a in range(n_actions):
        row = state * n_actions + a
        total = 0.0
        for j in range(indptr[row], indptr[row + 1]):
            total += probabilities[j] * shared[indices[j]]
        if beta == 0.0:
            value = centre + total
        elif total > SMALLEST_ARGUMENT - 1.0:
            value = centre + math.log1p(total) / beta
        else:
            buffer = np.empty(indptr[row + 1] - indptr[row])
            value = _row_risk(indptr, indices, probabilities, nothing, values, beta, row, buffer)
        value += rewards[state, a]
        if value > best:
            best, action = value, a
    return best, action


def _backup_best(indptr, indices, probabilities, rewards, values, shared, centre, beta, best, policy):  # type: ignore[no-untyped-def]
    """One step of sparse backward induction: ``best`` and ``policy`` of every state."""
    for state in prange(best.size):
        best[state], policy[state] = _best_of_state(
            state, indptr, indices, probabilities, rewards, values, shared, centre, beta
        )


backup_best = {
    False: njit(cache=True, nogil=True)(_backup_best),
    True: njit(cache=True, nogil=True, parallel=True)(_backup_best),
}
