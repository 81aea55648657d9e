r"""Compiled entropic backups on compressed rows, accurate for every :math:`\beta`.

The entropic risk of a lottery that pays :math:`v_i` with probability :math:`p_i` has two forms,

.. math:: \rho_\beta = \tfrac1\beta \log \sum_i p_i e^{\beta v_i}
        = c + \tfrac1\beta \operatorname{log1p} \sum_i p_i \operatorname{expm1}(\beta (v_i - c))
        = t + \tfrac1\beta \log \sum_i p_i e^{\beta (v_i - t)}.

*Near*: with :math:`c` the point of :math:`[\min v, \max v]` nearest to 0 the terms have one sign whenever the values
do, so nothing cancels, down to :math:`\beta \to 0`. *Far*: where the first sum comes close to -1 or would overflow,
the second with :math:`t` the value of the largest exponent loses nothing, since :math:`|\beta\rho|` is then large.
Both sums may share :math:`c` and :math:`t` with other lotteries, which turns a whole step of backward induction into
one product; only where the shared far sum underflows does a row need its own scale.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi._compile import allocating, compiled, inlined

__all__ = [
    "backup_best",
    "backward_induction",
    "lottery_risk",
    "reference",
    "risk_of_rows",
    "shared_risk_of_rows",
]

# Below this exponent e^{βv} is linear to the last bit relative to the risk, so β = 0 is exact.
LINEAR_EXPONENT = 1e-18
# Largest exponent for which a probability-weighted sum of exponentials is safe in doubles.
LARGEST_EXPONENT = 700.0
# log1p(y) keeps about 12 digits while 1 + y is above this.
SMALLEST_ARGUMENT = 1e-3
# A far sum below this has lost digits to underflow.
SMALLEST_SUM = 1e-290
# Actions whose values differ relatively by less are tied: rounding alone must not choose between them.
TIE = 1e-14
# Actions whose exponentiated values differ relatively by less are compared by their values instead.
DOUBT = 1e-9


@compiled
def reference(values, beta):  # type: ignore[no-untyped-def]
    """Centre and top of ``values``, the largest absolute exponent about the centre, and the exponent of the top."""
    low, high = values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    centre = min(max(0.0, low), high)
    top = high if beta > 0 else low
    return centre, top, abs(beta) * max(high - centre, centre - low), beta * (top - centre)


@compiled
def lottery_risk(probabilities, values, beta):  # type: ignore[no-untyped-def]
    """Entropic risk of ``values`` under ``probabilities``; both are 1-D and the probabilities positive."""
    centre, top, reach, climb = reference(values, beta)
    total = 0.0
    if reach < LINEAR_EXPONENT:
        for i in range(values.size):
            total += probabilities[i] * (values[i] - centre)
        return centre + total
    if climb < LARGEST_EXPONENT:
        for i in range(values.size):
            total += probabilities[i] * math.expm1(beta * (values[i] - centre))
        if total > SMALLEST_ARGUMENT - 1.0:
            return centre + math.log1p(total) / beta
    total = 0.0
    for i in range(values.size):
        total += probabilities[i] * math.exp(beta * (values[i] - top))
    return top + math.log(total) / beta


@allocating
def risk_of_rows(indptr, indices, probabilities, rewards, values, beta, which):  # type: ignore[no-untyped-def]
    """Risk of ``rewards + values`` over each of the rows ``which``, each on its own scale."""
    risks = np.empty(which.size)
    longest = 0
    for row in which:
        longest = max(longest, indptr[row + 1] - indptr[row])
    outcomes = np.empty(longest)
    for i in range(which.size):
        begin, end = indptr[which[i]], indptr[which[i] + 1]
        for j in range(begin, end):
            outcomes[j - begin] = rewards[j] + values[indices[j]]
        risks[i] = lottery_risk(probabilities[begin:end], outcomes[: end - begin], beta)
    return risks


@inlined
def _log1p(x):  # type: ignore[no-untyped-def]
    """``log1p`` to a rounding or two, twice as fast as the library's."""
    rounded = 1.0 + x
    return math.log(rounded) + (x - (rounded - 1.0)) / rounded


@compiled
def _dot(indptr, indices, probabilities, terms, row):  # type: ignore[no-untyped-def]
    """One row times ``terms``. Unsigned positions need no test for negative ones, which would take half of the time."""
    total = 0.0
    j, end = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
    while j < end:
        total += probabilities[j] * terms[np.uint64(indices[j])]
        j += np.uint64(1)
    return total


@allocating
def _far_risk(indptr, indices, probabilities, values, far, top, beta, row):  # type: ignore[no-untyped-def]
    """Risk of a row in the far form, on its own scale where the shared one underflows."""
    begin, end = indptr[row], indptr[row + 1]
    total = _dot(indptr, indices, probabilities, far, row)
    if total > SMALLEST_SUM:
        return top + math.log(total) / beta
    return lottery_risk(probabilities[begin:end], values[indices[begin:end]], beta)


# The choice of the form stands three times below: as a function, which may allocate, it would count references at every
# row and take four times as long.


@allocating
def shared_risk_of_rows(indptr, indices, probabilities, values, near, far, centre, top, beta, which):  # type: ignore[no-untyped-def]
    """Risk of ``values`` over each of the rows ``which``."""
    risks = np.empty(which.size)
    for i in range(which.size):
        total = _dot(indptr, indices, probabilities, near, which[i])
        if beta == 0.0:
            risks[i] = centre + total
        elif total > SMALLEST_ARGUMENT - 1.0:
            risks[i] = centre + _log1p(total) / beta
        else:
            risks[i] = _far_risk(indptr, indices, probabilities, values, far, top, beta, which[i])
    return risks


@allocating
def _backup_with_care(
    indptr, indices, probabilities, rewards, values, near, far, centre, top, beta, which, best, policy
):  # type: ignore[no-untyped-def]
    """Best value and action of the states ``which``, from the values of all actions."""
    n_actions = rewards.shape[1]
    for state in which:
        best_value, best_action, threshold = -np.inf, 0, -np.inf
        for a in range(n_actions):
            row = state * n_actions + a
            total = _dot(indptr, indices, probabilities, near, row)
            if beta == 0.0:
                value = centre + total
            elif total > SMALLEST_ARGUMENT - 1.0:
                value = centre + _log1p(total) / beta
            else:
                value = _far_risk(indptr, indices, probabilities, values, far, top, beta, row)
            value += rewards[state, a]
            better = value > threshold
            best_value = value if better else best_value
            best_action = a if better else best_action
            threshold = best_value + TIE * abs(best_value)
        best[state], policy[state] = best_value, best_action


@allocating
def backup_best(
    indptr, indices, probabilities, rewards, growth, values, near, far, centre, top, beta, best, policy, first, last
):  # type: ignore[no-untyped-def]
    """One step of sparse backward induction: ``best`` and ``policy`` of the states from ``first`` to before ``last``.

    With ``growth`` = exp(beta * rewards) the best action is known without the logarithm of each, except where two are
    close or a row needs the far form: those states are done again with care, and all of them if ``growth`` is empty.
    Nothing branches on which action is better, since no processor can predict that.
    """
    doubtful = np.arange(first, last)
    if growth.size:
        n_actions = rewards.shape[1]
        sign = 1.0 if beta > 0 else -1.0
        n_doubtful = 0
        for state in range(first, last):
            best_score, best_total, best_action, doubt = -np.inf, 0.0, 0, False
            for a in range(n_actions):
                total = _dot(indptr, indices, probabilities, near, state * n_actions + a)
                score = sign * (1.0 + total) * growth[state, a]
                doubt |= (total <= SMALLEST_ARGUMENT - 1.0) | (abs(score - best_score) <= DOUBT * abs(score))
                better = score > best_score
                best_score = score if better else best_score
                best_total = total if better else best_total
                best_action = a if better else best_action
            best[state] = centre + _log1p(best_total) / beta + rewards[state, best_action]
            policy[state] = best_action
            doubtful[n_doubtful] = state
            n_doubtful += doubt
        doubtful = doubtful[:n_doubtful]
    _backup_with_care(
        indptr, indices, probabilities, rewards, values, near, far, centre, top, beta, doubtful, best, policy
    )


@compiled
def backward_induction(indptr, indices, probabilities, rewards, beta, improve, values, policy, terms):  # type: ignore[no-untyped-def]
    """All steps in one call, for models so small that a call a step is what takes the time.

    Fills in ``values`` ``(H + 1, S)`` up from its last row, and ``policy`` ``(H, S)`` if it is to ``improve``. The rows
    are those of all steps, ``rewards`` ``(1 or H, S, A)``, and ``terms`` ``(2, S)`` is scratch. False, with the work half
    done, if a row needs its own scale. One function without slices, since a first call waits for its compilation.
    """
    horizon, n_states = policy.shape
    n_actions = rewards.shape[2]
    for h in range(horizon - 1, -1, -1):
        low = high = values[h + 1, 0]
        for s in range(n_states):
            low = min(low, values[h + 1, s])
            high = max(high, values[h + 1, s])
        centre, top = min(max(0.0, low), high), high if beta > 0.0 else low
        linear = abs(beta) * max(high - centre, centre - low) < LINEAR_EXPONENT
        in_range = beta * (top - centre) <= LARGEST_EXPONENT
        for s in range(n_states):
            above = values[h + 1, s] - centre
            terms[0, s] = above if linear else math.expm1(beta * above) if in_range else -1.0
            terms[1, s] = math.exp(beta * (values[h + 1, s] - top))
        row = h * n_states * n_actions % (indptr.size - 1)
        for s in range(n_states):
            threshold = -np.inf
            for a in range(n_actions):
                if improve or a == policy[h, s]:
                    total = 0.0
                    for j in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
                        total += probabilities[j] * terms[0, np.uint64(indices[j])]
                    if linear:
                        value = centre + total
                    elif total > SMALLEST_ARGUMENT - 1.0:
                        value = centre + math.log1p(total) / beta
                    else:
                        total = 0.0
                        for j in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
                            total += probabilities[j] * terms[1, np.uint64(indices[j])]
                        if total <= SMALLEST_SUM:
                            return False
                        value = top + math.log(total) / beta
                    value += rewards[h % len(rewards), s, a]
                    if value > threshold:
                        values[h, s], policy[h, s] = value, a
                        threshold = value + TIE * abs(value)
                row += 1
    return True
