r"""Compiled entropic backups on compressed rows, accurate for every :math:`\beta`.

The entropic risk of a lottery that pays :math:`v_i` with probability :math:`p_i` has two forms,

.. math:: \rho_\beta = \tfrac1\beta \log \sum_i p_i e^{\beta v_i}
        = c + \tfrac1\beta \operatorname{log1p} \sum_i p_i \operatorname{expm1}(\beta (v_i - c))
        = t + \tfrac1\beta \log \sum_i p_i e^{\beta (v_i - t)}.

*Near*: with :math:`c` the point of :math:`[\min v, \max v]` nearest to 0 the terms have one sign whenever the values
do, so nothing cancels, down to :math:`\beta \to 0`. *Far*: where the first sum comes close to -1 or would overflow,
the second with :math:`t` the value of the largest exponent loses nothing, since :math:`|\beta\rho|` is then large.
All rows of a step of backward induction share :math:`c` and :math:`t`, which makes the step one matrix-vector product. A
row whose far sum underflows with the shared :math:`t` is computed again with its own.
"""

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import allocating, compiled, inlined, inner
from entropic_bpi.types import Integers, Reals

# If no exponent βv is larger, e^{βv} is linear up to rounding, and the formula for β = 0 is exact.
LINEAR_EXPONENT = 1e-18
# A sum of exponentials, weighted by probabilities, cannot overflow up to this exponent.
LARGEST_EXPONENT = 700.0
# log1p(y) keeps about 12 digits while 1 + y is above this.
SMALLEST_ARGUMENT = 1e-3
# A far sum below this has lost digits by underflow.
SMALLEST_SUM = 1e-290
# Actions whose values have a smaller relative difference are tied: rounding must not decide between them.
TIE = 1e-14
# Actions whose exponentiated values have a smaller relative difference are compared by their values instead.
DOUBT = 1e-9


class Lotteries(NamedTuple):
    """Distributions of next states as compressed rows: row ``i`` has the entries ``indptr[i]`` to ``indptr[i + 1]``."""

    indptr: Integers
    indices: Integers
    probabilities: Reals


class Scale(NamedTuple):
    """The values that all rows of a step share: the terms of the near and the far form, their centre and top, and β.

    β is replaced by 0 if the values are linear in it up to rounding. If rewards depend on the next state, the terms are not
    used, and β is never replaced.
    """

    near: Reals
    far: Reals
    centre: float
    top: float
    beta: float


# Python passes plain tuples to the kernels: a record would take a microsecond more per call.
Arrays = tuple[Integers, Integers, Reals]
Terms = tuple[Reals, Reals, float, float, float]


@inlined
def anchors(low: float, high: float, beta: float) -> tuple[float, float, float, float]:
    """Return the centre and the top of a range of values, the largest absolute exponent about the centre, and the top's."""
    centre = min(max(0.0, low), high)
    top = high if beta > 0 else low
    return centre, top, abs(beta) * max(high - centre, centre - low), beta * (top - centre)


@inlined
def terms_of(value: float, centre: float, top: float, reach: float, climb: float, beta: float) -> tuple[float, float]:
    """Return the terms of a value in the near and in the far form; if the near form overflows, -1 selects the far form."""
    above = value - centre
    if reach < LINEAR_EXPONENT:
        return above, value
    return math.expm1(beta * above) if climb <= LARGEST_EXPONENT else -1.0, math.exp(beta * (value - top))


@compiled
def reference(values: Reals, beta: float) -> tuple[float, float, float, float]:
    """Return the ``anchors`` of an array of values."""
    low, high = values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    return anchors(low, high, beta)


@compiled
def lottery_risk(probabilities: Reals, values: Reals, beta: float) -> float:
    """Compute the entropic risk of ``values`` under ``probabilities``; both are 1-D, and the probabilities are positive."""
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


@inlined
def _log1p(x: float) -> float:
    """Compute ``log1p`` to within two rounding errors, twice as fast as the C library."""
    rounded = 1.0 + x
    return math.log(rounded) + (x - (rounded - 1.0)) / rounded


@inlined
def _dot(rows: Lotteries, terms: Reals, row: int) -> float:
    """Return the product of a row and ``terms``. Unsigned indices avoid the test for negative ones: half of the time."""
    total = 0.0
    j, end = np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1])
    while j < end:
        total += rows.probabilities[j] * terms[np.uint64(rows.indices[j])]
        j += np.uint64(1)
    return total


@inner
def _risk(rows: Lotteries, paid: Reals, values: Reals, scale: Scale, outcomes: Reals, row: int) -> float:
    """Compute the risk of ``values`` over a row; without the shared scale if it underflows or if entries are ``paid``."""
    if paid.size == 0:
        total = _dot(rows, scale.near, row)
        if scale.beta == 0.0:
            return scale.centre + total
        if total > SMALLEST_ARGUMENT - 1.0:
            return scale.centre + _log1p(total) / scale.beta
        total = _dot(rows, scale.far, row)
        if total > SMALLEST_SUM:
            return scale.top + math.log(total) / scale.beta
    begin, end = rows.indptr[row], rows.indptr[row + 1]
    for j in range(begin, end):
        outcomes[j - begin] = values[rows.indices[j]]
        if paid.size:
            outcomes[j - begin] += paid[j]
    return lottery_risk(rows.probabilities[begin:end], outcomes[: end - begin], scale.beta)


@allocating
def risk_of_rows(rows: Arrays, paid: Reals, values: Reals, scale: Terms, which: Integers) -> Reals:
    """Compute the risk of ``values`` over each of the rows ``which``; ``paid``, if not empty, has rewards of the entries."""
    risks, outcomes = np.empty(which.size), np.empty(values.size)
    lotteries, shared = Lotteries(*rows), Scale(*scale)
    for i in range(which.size):
        risks[i] = _risk(lotteries, paid, values, shared, outcomes, which[i])
    return risks


@inlined
def _value(
    rows: Lotteries, paid: Reals, rewards: Reals, values: Reals, scale: Scale, outcomes: Reals, state: int, action: int
) -> float:
    """Compute the value of an action; ``paid``, if not empty, is the reward of each entry and replaces ``rewards``."""
    risk = _risk(rows, paid, values, scale, outcomes, state * rewards.shape[1] + action)
    return risk if paid.size else risk + rewards[state, action]


@inlined
def best_action(
    rows: Lotteries, paid: Reals, rewards: Reals, values: Reals, scale: Scale, outcomes: Reals, state: int
) -> tuple[float, int]:
    """Return the value and the index of the best action of a state."""
    best, action, threshold = -np.inf, 0, -np.inf
    for a in range(rewards.shape[1]):
        value = _value(rows, paid, rewards, values, scale, outcomes, state, a)
        better = value > threshold
        best = value if better else best
        action = a if better else action
        threshold = best + TIE * abs(best)
    return best, action


@inner
def _backup_fast(
    rows: Lotteries, rewards: Reals, growth: Reals, scale: Scale, which: Integers, best: Reals, policy: Integers
) -> int:
    """Compute best values and actions by exponentials alone; return how many states need care, now first in ``which``."""
    n_actions, beta = rewards.shape[1], scale.beta
    sign = 1.0 if beta > 0 else -1.0
    n_doubtful = 0
    for state in which:
        best_score, best_total, best_action, doubt = -np.inf, 0.0, 0, False
        for a in range(n_actions):
            total = _dot(rows, scale.near, state * n_actions + a)
            score = sign * (1.0 + total) * growth[state, a]
            doubt |= (total <= SMALLEST_ARGUMENT - 1.0) | (abs(score - best_score) <= DOUBT * abs(score))
            better = score > best_score
            best_score = score if better else best_score
            best_total = total if better else best_total
            best_action = a if better else best_action
        best[state] = scale.centre + _log1p(best_total) / beta + rewards[state, best_action]
        policy[state] = best_action
        which[n_doubtful] = state
        n_doubtful += doubt
    return n_doubtful


@allocating
def backup_best(
    rows: Arrays,
    rewards: Reals,
    growth: Reals,
    values: Reals,
    scale: Terms,
    best: Reals,
    policy: Integers,
    first: int,
    last: int,
) -> None:
    """Do one step of sparse backward induction: fill in ``best`` and ``policy`` for the states ``first`` to ``last - 1``.

    With ``growth`` = exp(beta * rewards), actions are compared by exponentials, without a logarithm for each. States where
    two actions are close or a row needs the far form are computed again by values, and all states if ``growth`` is empty.
    The comparisons of actions use no branches, since processors cannot predict them.
    """
    doubtful: Integers = np.arange(first, last)
    lotteries, shared = Lotteries(*rows), Scale(*scale)
    if growth.size:
        doubtful = doubtful[: _backup_fast(lotteries, rewards, growth, shared, doubtful, best, policy)]
    outcomes, unpaid = np.empty(values.size if doubtful.size else 0), np.empty(0)
    for state in doubtful:
        best[state], policy[state] = best_action(lotteries, unpaid, rewards, values, shared, outcomes, state)


@allocating
def backward_induction(
    rows: Arrays, entry_rewards: Reals, rewards: Reals, beta: float, improve: bool, values: Reals, policy: Integers
) -> None:
    """Do all steps of backward induction in one call, for small models, where one call per step would take most of the time.

    Fills in ``values`` ``(H + 1, S)``, whose last row is given, and, if ``improve``, ``policy`` ``(H, S)``; otherwise the
    policy is evaluated. ``rows`` are those of all steps. Rewards are ``entry_rewards`` ``(1 or H, entries)`` if these are
    not empty, otherwise ``rewards`` ``(1 or H, S, A)``.
    """
    indptr, indices, probabilities = rows
    (horizon, n_states), n_actions = policy.shape, rewards.shape[2]
    near, far, outcomes = np.empty(n_states), np.empty(n_states), np.empty(n_states)
    for h in range(horizon - 1, -1, -1):
        after, table, paid = values[h + 1], rewards[h % len(rewards)], entry_rewards[h % len(entry_rewards)]
        centre, top, reach, climb = reference(after, beta)
        for s in range(n_states):
            near[s], far[s] = terms_of(after[s], centre, top, reach, climb, beta)
        scale = Scale(near, far, centre, top, 0.0 if reach < LINEAR_EXPONENT and paid.size == 0 else beta)
        lotteries = Lotteries(indptr[h * n_states * n_actions % (indptr.size - 1) :], indices, probabilities)
        for s in range(n_states):
            if improve:
                values[h, s], policy[h, s] = best_action(lotteries, paid, table, after, scale, outcomes, s)
            else:
                values[h, s] = _value(lotteries, paid, table, after, scale, outcomes, s, policy[h, s])
