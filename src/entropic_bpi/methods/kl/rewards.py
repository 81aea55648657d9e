r"""Bounds on random rewards: the certainty equivalent of a law, from the values seen, for all sample sizes at once.

For one β a random reward :math:`R` acts as the fixed reward :math:`\tilde r=\frac1\beta\log E\,e^{\beta R}`, because
:math:`Z_h(s)=\sum_{s'}p(s')\,E[e^{\beta R}\mid s']\,Z_{h+1}(s')`. So a plan needs only an interval for
:math:`\tilde r`; it is not centred at the mean, which is something else.

Let :math:`Y=e^{\beta(R-r_0)}` with :math:`r_0` the end of the declared range that keeps :math:`Y\le1`, and let
:math:`\hat p` be the empirical law of :math:`n` independent values. Two one-sided betting martingales, mixed over the
arcsine law, give with probability at least :math:`1-\delta'` for all :math:`n` at once

.. math:: E[Y]\in\big[\min\{qY:\mathrm{KL}(\hat p,q)\le x\},\ \max\{qY:\mathrm{KL}(\hat p,q)\le x\}\big],\qquad
          x=\frac1n\Big(\log\frac2{\delta'}+c_2(n)\Big),\quad c_2(n)=\log\frac{\sqrt\pi\,\Gamma(n+1)}{\Gamma(n+\frac12)},

where :math:`q` lives on the values seen **and both ends of the range**. A value that is only known to lie in a cell counts
as the cell's upper end for the upper bound and as its lower end for the lower one.

The proof is Proposition 6 on the page "The KL method". Half of δ is for the rewards, shared equally by all laws that may
have to be learned, those of the last step included: :math:`\delta'=\delta/(2P_R)`. The function :math:`Y` is fixed before
any data, which is why these bounds are for one β; or, if several are declared before any data, for each of them with an
equal part of :math:`\delta'`.
"""

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, inner
from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.methods.kl.rates import betting_regret
from entropic_bpi.problem.counts import CountArrays, Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.reward_counts import RewardCounts, first_entry
from entropic_bpi.types import Integers, Reals

# The bounds are few and used often, so the solver converges.
CONVERGED = 1e-9
# Relative errors, always taken on the safe side: of a mean of e^{βr}, with room for verifiers that round differently, and of
# an exponent or a reward.
VALUE_ROUNDING = 4e-14
ULPS = 1e-15
# If |β| times the range of a reward is smaller than this, e^{βr} - 1 is computed instead of e^{βr}.
SMALL_EXPONENT = 1.0


class _Terms(NamedTuple):
    """The constants of an interval: β, log(2/δ'), and whether all successors of a row share one law."""

    beta: float
    log_union: float
    shared: bool


class _Work(NamedTuple):
    """Working memory for one table, the two ends of the range included."""

    tally: np.ndarray
    values: np.ndarray
    scratch: np.ndarray


@inner
def _power(exponent: float, small: bool) -> float:
    """Return e^x, or e^x - 1 if e^x would lose digits."""
    return math.expm1(exponent) if small else math.exp(exponent)


@inner
def _reward_end(terms: _Terms, seen: Reals, low: float, high: float, n: int, end: int, work: _Work) -> float:
    """Return a bound on the certainty equivalent from above (``end`` 1) or below (-1).

    ``work.tally`` has the tallies of the values ``seen``. A NaN is replaced by the end of the range. Nothing underflows: no
    power is below e^-600.
    """
    size, beta = seen.size, terms.beta
    origin, sign = (high, float(end)) if beta > 0 else (low, -float(end))
    exponent = abs(beta) * (high - low)
    small = exponent < SMALL_EXPONENT
    for i in range(size):
        work.values[i] = _power(beta * (seen[i] - origin), small)
    work.values[size] = _power(beta * (low - origin), small)
    work.values[size + 1] = _power(beta * (high - origin), small)
    work.tally[size] = work.tally[size + 1] = 0
    x = (terms.log_union + betting_regret(float(n))) / n
    mean = kl_extreme(work.tally, work.values, size + 2, n, x, sign, CONVERGED, work.scratch)
    mean += sign * (VALUE_ROUNDING + ULPS * exponent) * abs(mean)
    reward = origin + (math.log1p(mean) if small else math.log(mean)) / beta
    reward += end * ULPS * (abs(origin) + abs(reward))
    if end > 0:
        return reward if reward < high else high
    return reward if reward > low else low


@inner
def _set_interval(
    terms: _Terms,
    counts: RewardCounts,
    first: int,
    last: int,
    arrays: CountArrays,
    slot: int,
    bounds: Reals,
    work: _Work,
) -> None:
    """Bound the certainty equivalent of a slot's law, within its declared range, from the rewards ``first : last``."""
    n, low, high = 0, arrays.low[0, slot], arrays.high[0, slot]
    for j in range(first, last):
        work.tally[j - first] = counts.times[j]
        n += counts.times[j]
    bounds[0, slot], bounds[1, slot] = low, high
    if n > 0 and low < high:
        bounds[0, slot] = _reward_end(terms, counts.low[first:last], low, high, n, -1, work)
        bounds[1, slot] = _reward_end(terms, counts.high[first:last], low, high, n, 1, work)


@compiled
def _refresh(
    terms: _Terms, arrays: CountArrays, counts: RewardCounts, bounds: Reals, known: Integers, work: _Work
) -> None:
    """Recompute the bounds of the slots that have changed; ``known`` has the successor and visits of the last time.

    The slots of a row that was never visited are shared with others and stay as they were declared.
    """
    for row in range(arrays.visits.size):
        begin, end = arrays.begin[row], arrays.begin[row] + arrays.used[row]
        if arrays.visits[row] == 0:
            continue
        for slot in range(begin, end):
            y = arrays.successor[slot]
            n = arrays.visits[row] if terms.shared else arrays.tally[slot]
            if known[0, slot] == y and known[1, slot] == n:
                continue
            known[0, slot], known[1, slot] = y, n
            if terms.shared and slot > begin:
                bounds[0, slot], bounds[1, slot] = bounds[0, begin], bounds[1, begin]
                continue
            first, last = counts.begin[row], counts.begin[row] + counts.used[row]
            if not terms.shared:
                first, last = first_entry(counts, row, y), first_entry(counts, row, y + 1)
            _set_interval(terms, counts, first, last, arrays, slot, bounds, work)


class RewardBounds:
    """The bounds on the rewards of all slots, kept from plan to plan: only those that change are computed again.

    ``beta`` is the risk parameter at which the plan computes.
    """

    def __init__(self, problem: Problem, beta: float) -> None:
        betas = 1 if problem.lams is None else len(problem.lams)
        union = math.log(4 * betas * max(problem.reward_laws_at_risk, 1) / problem.delta)
        self.terms = _Terms(beta, union, problem.reward_law == "random-pair")
        self.origin: object = None

    def arrays(self, counts: Counts) -> CountArrays:
        """Return the arrays of ``counts``, with the bounds instead of the declared range of the rewards."""
        arrays, reward_counts = counts.arrays, counts.reward_counts
        if counts.origin is not self.origin:
            self.origin, self.bounds, self.known = counts.origin, np.empty((2, 0)), np.empty((2, 0), dtype=np.int64)
        known, more = self.known.shape[1], arrays.tally.size
        if known < more:
            self.bounds = np.append(self.bounds, np.stack([arrays.low[0, known:], arrays.high[0, known:]]), axis=1)
            self.known = np.append(self.known, np.full((2, more - known), -1), axis=1)
        size = int(reward_counts.used.max()) + 2
        work = _Work(np.empty(size, dtype=np.int64), np.empty(size), np.empty((2, size)))
        _refresh(self.terms, arrays, reward_counts, self.bounds, self.known, work)
        return arrays._replace(low=self.bounds[:1], high=self.bounds[1:])
