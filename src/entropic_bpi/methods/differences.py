r"""Bounds on the value of one policy less that of another, on the event of the KL method.

The difference of two intervals counts the uncertainty that both policies share twice. Here the ratio of their :math:`Z` is
bounded backwards, together with the values of the other policy :math:`b` relative to that of one state :math:`k_h` of each
step:

.. math:: g_h(s) \ge Z^a_h(s)/Z^b_h(s),\qquad l_h(s) \le Z^b_h(s)/Z^b_h(k_h) \le u_h(s),

all of them 1 after the last step. Let :math:`c=e^{\beta r}`, known up to an interval, and :math:`z` the relative values of
the next step.

*Same action.* The ratio is an average of the next :math:`g` under weights :math:`q\,c\,z` with :math:`q` in the ball of the
row: at most :math:`\lambda` if no :math:`q` makes :math:`\sum q\,c\,z\,(g-\lambda)` positive, :math:`c\,z` at its larger end
where :math:`g>\lambda` and at its smaller end elsewhere.

*Other rows.* :math:`\max_q\sum q\,c\,z\,g` of one row over :math:`\min_q\sum q\,c\,z` of the other, with one :math:`z` for
both: for fixed kernels the quotient is monotone in each :math:`z_y`, so its largest value is at a corner. Of the successors
that both rows have, the three that were seen most often get corners; all other :math:`z` are at the worse end on each side.
The same with :math:`g=1` bounds the relative values of the states of a step; :math:`k_h` is the state whose row of
:math:`b` was visited most.

Every bound holds for all kernels in the balls, also for pooled counts and common noise, and for both signs of β. The proof
is on the page "Bounds of the law of the return".

**NaN.** A ratio that cannot be computed is infinite: comparisons are written so that a NaN leads to that.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.methods.kl.gap import ball_of
from entropic_bpi.methods.kl.method import CONVERGED, KL
from entropic_bpi.methods.kl.records import Inputs
from entropic_bpi.methods.kl.states import refresh_radii
from entropic_bpi.problem.counts import Counts

_CORNERS, _BISECTIONS = 3, 50
# States of all steps together for which the recursion takes about a second.
_MOST_STATES = 500
# A relative value that is known to this precision needs no corner.
_KNOWN = 1e-9
# Relative room for the rounding of one bound, and for verifiers with other solvers.
_ROUNDING = 1e-11
_SMALLEST_MEAN = 1e-280


class _Row(NamedTuple):
    """The ball of a row, the next states of its outcomes, and the ends of e^{βr}."""

    tally: np.ndarray
    visits: int
    radius: float
    to: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def mean(self, f: np.ndarray, sign: float) -> float:
        """Return the largest (``sign`` 1) or smallest (-1) mean over the ball, with room relative to the largest value."""
        room = _ROUNDING * abs(f).max() if self.visits else 0.0  # the bound of a row without visits is exact
        work = np.empty((2, len(f)))
        mean = kl_extreme(self.tally, f, len(f), self.visits, self.radius, sign, CONVERGED, work)
        return float(mean + sign * room)


class _Next(NamedTuple):
    """Bounds on Z^b/Z^b(k) and Z^a/Z^b at the next step, by state; "some state not seen yet" is last."""

    low: np.ndarray
    high: np.ndarray
    gain: np.ndarray

    def average(self, row: _Row) -> float:
        """Return an upper bound on the average of the gains after an action."""
        gain, low, high = self.gain[row.to], self.low[row.to] * row.low, self.high[row.to] * row.high
        left, right = gain.min(), gain.max()
        for _ in range(_BISECTIONS if left < right else 0):
            middle = np.sqrt(left) * np.sqrt(right)
            f = (gain - middle) * np.where(gain > middle, high, low)
            enough = row.mean(f, 1.0) < 0.0
            left, right = (left, middle) if enough else (middle, right)
        return float(right)

    def over(self, top: _Row, bottom: _Row, gain: np.ndarray) -> float:
        """Return an upper bound on Σ q c z gain of one row over Σ q c z of another."""
        size, worst = len(self.low), 0.0
        seen = np.bincount(top.to, top.tally, size) + np.bincount(bottom.to, bottom.tally, size)
        shared = np.intersect1d(top.to, bottom.to)
        shared = shared[(shared < size - 1) & (self.high[shared] > self.low[shared] * (1.0 + _KNOWN))]
        tried = shared[np.argsort(-seen[shared], kind="stable")[:_CORNERS]]
        for corner in product((False, True), repeat=len(tried)):
            low, high = self.low.copy(), self.high.copy()
            low[tried] = high[tried] = np.where(corner, high[tried], low[tried])
            most = top.mean(high[top.to] * gain[top.to] * top.high, 1.0)
            least = bottom.mean(low[bottom.to] * bottom.low, -1.0)
            if not (least > _SMALLEST_MEAN and most < np.inf):
                return np.inf
            worst = max(worst, most / least * (1.0 + _ROUNDING))
        return worst


def difference(method: KL, counts: Counts, one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return bounds on the value of one policy ``(steps, S)`` less that of another; they hold together with all claims.

    They are infinite for problems with very many states, and if they cannot be computed.
    """
    problem, rules = method.problem, method.rules
    if len(method.frame.states) > _MOST_STATES:
        return -math.inf, math.inf
    radius, planned = np.where(problem.uncertain, np.inf, 0.0), np.full(problem.n_rows, -1)
    inputs = method._inputs(rules._replace(radius=radius, planned=planned), method._arrays(counts))
    refresh_radii(inputs.rules, inputs.arrays)
    with np.errstate(all="ignore"):  # NaN and infinities fall on the safe side by themselves
        ratios = [_largest_ratio(method, inputs, *pair) for pair in ((one, other), (other, one))]
    if not all(0.0 < ratio < np.inf for ratio in ratios):
        return -math.inf, math.inf
    upper, lower = (math.log(ratio) / abs(rules.beta) for ratio in ratios[:: 1 if rules.beta > 0 else -1])
    room = (_ROUNDING * (problem.steps + 1) + 2 * rules.exponent_rounding) / abs(rules.beta)
    room += _ROUNDING * problem.return_spread + method.bias + method.left_out
    return -lower - room, upper + room


def _row_at(method: KL, inputs: Inputs, h: int, s: int, policy: np.ndarray) -> _Row:
    """Return the row that a policy plays in a state at planned step ``h``."""
    (frame, rules, arrays, _), rows = inputs, method.problem.rows_at(h, np.array([s]))
    step, a = h - frame.artificial, min(int(policy[h, s]), len(rows) - 1)
    tally, size, visits, radius = ball_of(inputs, rows[a])
    slots, ends = arrays.begin[rows[a]] + np.arange(size), np.ones((2, size))
    if rules.gain.size and step >= 0:
        ends = ends * rules.gain[step if len(rules.gain) > 1 else 0, s, a]
    if len(arrays.low):
        paid = np.stack([arrays.low, arrays.high])[:, step if len(arrays.low) > 1 else 0, slots]
        ends = ends * np.sort(np.exp(rules.beta * rules.factor[step] * (paid - rules.shift)), axis=0)
    return _Row(tally, visits, radius, arrays.successor[slots], *ends)


def _largest_ratio(method: KL, inputs: Inputs, one: np.ndarray, other: np.ndarray) -> float:
    """Return an upper bound on Z of one policy over Z of the other, at the start."""
    frame, ones = inputs.frame, np.ones(inputs.frame.n_states + 1)
    later = _Next(ones, ones, ones)
    for h in reversed(range(frame.steps)):
        states = frame.states[frame.first_state[h] : frame.first_state[h + 1]]
        mine, base = ([_row_at(method, inputs, h, s, policy) for s in states] for policy in (one, other))
        ref = base[int(np.argmax([row.visits for row in base]))]
        now = _Next(*np.ones((3, frame.n_states + 1)))
        for s, first, second in zip(states, mine, base, strict=True):
            if second is not ref:
                now.low[s], now.high[s] = 1.0 / later.over(ref, second, ones), later.over(second, ref, ones)
            same = h < frame.artificial or one[h, s] == other[h, s]
            now.gain[s] = later.average(second) if same else later.over(first, second, later.gain)
        now.low[-1], now.high[-1], now.gain[-1] = now.low[states].min(), now.high[states].max(), now.gain[states].max()
        later = now
    return float(later.gain[frame.start])
