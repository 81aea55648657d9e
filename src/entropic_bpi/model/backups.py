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

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import allocating, compiled, inlined, inner
from entropic_bpi.types import Integers, Reals

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


class Lotteries(NamedTuple):
    """Next states and their chances as compressed rows: row ``i`` owns the entries ``indptr[i]`` to ``indptr[i + 1]``."""

    indptr: Integers
    indices: Integers
    probabilities: Reals


class Scale(NamedTuple):
    """What rows share: the terms of the near and the far form, their centre and top, and β, 0 if it is as good as 0.

    Where entries are paid no terms are shared, and β is as it is.
    """

    near: Reals
    far: Reals
    centre: float
    top: float
    beta: float


# What Python passes are plain tuples: a record would cost a microsecond at each call.
Arrays = tuple[Integers, Integers, Reals]
Terms = tuple[Reals, Reals, float, float, float]


@inlined
def anchors(low: float, high: float, beta: float) -> tuple[float, float, float, float]:
    """Centre and top of values in this range, the largest absolute exponent about the centre, and that of the top."""
    centre = min(max(0.0, low), high)
    top = high if beta > 0 else low
    return centre, top, abs(beta) * max(high - centre, centre - low), beta * (top - centre)


@inlined
def terms_of(value: float, centre: float, top: float, reach: float, climb: float, beta: float) -> tuple[float, float]:
    """The terms of a value in the near and in the far form; a near form out of range sends every row to the far one."""
    above = value - centre
    if reach < LINEAR_EXPONENT:
        return above, value
    return math.expm1(beta * above) if climb <= LARGEST_EXPONENT else -1.0, math.exp(beta * (value - top))


@compiled
def reference(values: Reals, beta: float) -> tuple[float, float, float, float]:
    """The ``anchors`` of these values."""
    low, high = values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    return anchors(low, high, beta)


@compiled
def lottery_risk(probabilities: Reals, values: Reals, beta: float) -> float:
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


@inlined
def _log1p(x: float) -> float:
    """``log1p`` to a rounding or two, twice as fast as the library's."""
    rounded = 1.0 + x
    return math.log(rounded) + (x - (rounded - 1.0)) / rounded


@inlined
def _dot(rows: Lotteries, terms: Reals, row: int) -> float:
    """One row times ``terms``. Unsigned positions need no test for negative ones, which would take half of the time."""
    total = 0.0
    j, end = np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1])
    while j < end:
        total += rows.probabilities[j] * terms[np.uint64(rows.indices[j])]
        j += np.uint64(1)
    return total


@inner
def _risk(rows: Lotteries, paid: Reals, values: Reals, scale: Scale, outcomes: Reals, row: int) -> float:
    """Risk of ``values`` over a row; on its own scale where the shared one underflows, or where entries are ``paid``."""
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
    """Risk of ``values``, plus what entries are ``paid`` if it is not empty, over each of the rows ``which``."""
    risks, outcomes = np.empty(which.size), np.empty(values.size)
    lotteries, shared = Lotteries(*rows), Scale(*scale)
    for i in range(which.size):
        risks[i] = _risk(lotteries, paid, values, shared, outcomes, which[i])
    return risks


@inlined
def _value(
    rows: Lotteries, paid: Reals, rewards: Reals, values: Reals, scale: Scale, outcomes: Reals, state: int, action: int
) -> float:
    """Value of an action; rewards are those of entries if ``paid`` is not empty."""
    risk = _risk(rows, paid, values, scale, outcomes, state * rewards.shape[1] + action)
    return risk if paid.size else risk + rewards[state, action]


@inlined
def best_action(
    rows: Lotteries, paid: Reals, rewards: Reals, values: Reals, scale: Scale, outcomes: Reals, state: int
) -> tuple[float, int]:
    """Value and index of a state's best action."""
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
    """Best value and action of the states ``which`` by exponentials alone; those that need care are moved to the front."""
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
    """One step of sparse backward induction: ``best`` and ``policy`` of the states from ``first`` to before ``last``.

    With ``growth`` = exp(beta * rewards) the best action is known without the logarithm of each, except where two are
    close or a row needs the far form: those states are done again with care, and all of them if ``growth`` is empty.
    Nothing branches on which action is better, since no processor can predict that.
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
    """All steps in one call, for models so small that a call a step is what takes the time.

    Fills in ``values`` ``(H + 1, S)`` up from its last row, and ``policy`` ``(H, S)`` if it is to ``improve``. The rows
    are those of all steps; ``rewards`` are ``(1 or H, S, A)`` unless ``entry_rewards`` ``(1 or H, entries)`` are not empty.
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
