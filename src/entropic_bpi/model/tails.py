r"""Optimal policies for the lower tail of the return: the conditional and the entropic value at risk (CVaR, EVaR).

**CVaR.** For a level :math:`\alpha\in(0,1]` the mean of the worst fraction :math:`\alpha` of the returns is

.. math:: \mathrm{CVaR}_\alpha = \max_\eta\Big\{\eta - \tfrac1\alpha E[(\eta-R)^+]\Big\} .

The smallest expected shortfall below a threshold, from step :math:`h` on and with :math:`b` still to be earned, is

.. math:: W_{H+1}(s,b)=b^+,\qquad W_h(s,b)=\min_a\sum_y p(y|s,a)\,W_{h+1}(y,\,b-r_h(s,a,y)),

and the largest CVaR is :math:`\max_\eta\{\eta-W_1(s_1,\eta)/\alpha\}`. The policy that attains it depends on the step, the
state and the rewards so far. As a function of :math:`b`, :math:`W_h(s,\cdot)` is piecewise linear, 0 on the left and of
slope 1 on the right. It is stored as a list of knots; the maximum over :math:`\eta` is at a knot.

If there are few knots, all are kept, and the functions are exact up to rounding. Otherwise knots whose removal changes the
function by little are removed. The error of a mean or a minimum of functions is at most the largest of their errors. So the
error of the shortfall is at most the sum of the errors of the steps; for the CVaR it is divided by :math:`\alpha`.

**EVaR.** For a level :math:`\alpha\in(0,1)` and :math:`c=\log(1/\alpha)`,

.. math:: \mathrm{EVaR}_\alpha(\pi) = \sup_{\lambda>0}\Big\{V^\pi_{-\lambda} - \frac c\lambda\Big\},

the largest lower bound on CVaR and VaR that follows from Chernoff's inequality:
:math:`\mathrm{EVaR}_\alpha\le\mathrm{CVaR}_\alpha\le\mathrm{VaR}_\alpha`. The return of a policy is below its EVaR with
probability at most :math:`\alpha`. EVaR is not the mean of the worst returns (CVaR), and a policy with the largest EVaR need
not have the largest CVaR.

:math:`\max_\pi\mathrm{EVaR}_\alpha(\pi)=\sup_\lambda h(\lambda)` with
:math:`h(\lambda)=V^\star_{-\lambda}-c/\lambda`. Subtract the smallest possible return, so that all returns are in
:math:`[0,R]`. Then :math:`V^\star_{-\lambda}` is decreasing and :math:`\lambda V^\star_{-\lambda}` is increasing in
:math:`\lambda`, so that on a cell :math:`(a,b]`

.. math:: \sup_{a<\lambda\le b}h(\lambda)\le\min\Big\{\frac ba\max(h(b),0),\ V^\star_{-a}-\frac cb\Big\} .

For :math:`\lambda\le c/R`, :math:`h` is at most 0, which every policy attains; beyond the largest :math:`\lambda` of the
search it is at most :math:`V^\star_{-\lambda}`. Branch and bound: halve the cell with the largest bound until no bound
exceeds the largest value of :math:`h` so far by more than the tolerance. (The first bound does not hold if returns can be
negative.)
"""

import heapq
import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.model.parts.arrays import SparseTransitions
from entropic_bpi.model.planning import solve
from entropic_bpi.model.return_law import check_level, max_return, min_return
from entropic_bpi.tools.checks import check_finite, check_integer, check_positive, check_probability

# Above this number of knots some are removed; above this number a model is refused; at most this many rounds of removal.
_FEW_KNOTS, _MOST_KNOTS, _PASSES = 2_000, 1_000_000, 40
# Rounding error of a step, relative to the returns.
_ROUNDING = 4e-15

_Shortfall = tuple[np.ndarray, np.ndarray]  # knots, values
# The last λ is this many times c/R at first. It is multiplied by this factor while larger λ may be better.
_FARTHER = 16.0
_MOST_PLANS = 100_000
# Number of cells that are split together: for a large model, several β take less time together than one after the other.
_AT_ONCE = 8
_Cell = tuple[float, float, float, float, float]  # -bound, a, V*_-a, b, V*_-b


@dataclass(frozen=True, eq=False)
class CVaRSolution:
    """The largest conditional value at risk (CVaR) over all policies, and a policy that attains it.

    Attributes
    ----------
    value : float
        The largest CVaR, up to the tolerance.
    lower, upper : float
        Bounds of the largest CVaR.
    alpha : float
        The level.
    threshold : float
        The threshold η: the policy minimises the expected shortfall of the return below it.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> solution = eb.solve_cvar(eb.instances.risky_bridge(horizon=7), 0.1)
    >>> solution.lower <= solution.value <= solution.upper
    True
    """

    value: float
    lower: float
    upper: float
    alpha: float
    threshold: float
    _mdp: FiniteMDP
    _shortfalls: list[list[_Shortfall]]

    def action(self, step: int, state: int, earned: float = 0.0) -> int:
        """Return the action of the policy with the largest CVaR.

        Parameters
        ----------
        step : int
            The step, from 0.
        state : int
            The state.
        earned : float
            The sum of the rewards so far.

        Returns
        -------
        int
            The action.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> eb.solve_cvar(bridge, 0.1).action(0, 0)
        0
        """
        mdp = self._mdp
        h = check_integer("step", step, at_least=0, at_most=mdp.horizon - 1)
        s = check_integer("state", state, at_least=0, at_most=mdp.n_states - 1)
        missing = np.array([self.threshold - check_finite("earned", earned)])
        rows = mdp._chosen_rows(h, s * mdp.n_actions + np.arange(mdp.n_actions))
        each = [_mean(self._shortfalls[h + 1], rows, a, missing)[1][0] for a in range(mdp.n_actions)]
        return int(mdp.replace_forbidden(np.full((mdp.horizon, mdp.n_states), np.argmin(each)))[h, s])

    def __repr__(self) -> str:
        return f"CVaRSolution(value={self.value:.6g}, alpha={self.alpha:g}, threshold={self.threshold:.6g})"


def solve_cvar(mdp: FiniteMDP, alpha: float, *, tol: float = 1e-6) -> CVaRSolution:
    """Find the largest conditional value at risk (CVaR) of the return, over policies that may use the rewards so far.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    alpha : float
        The level, above 0 and at most 1: CVaR is the mean of the worst fraction ``alpha`` of the returns.
    tol : float
        The largest difference of ``lower`` and ``upper``, in the unit of the rewards.

    Returns
    -------
    CVaRSolution
        The value, its bounds, and the policy.

    Raises
    ------
    InvalidProblemError
        If ``tol`` is too small for double precision, or needs too much memory.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> solution = eb.solve_cvar(bridge, 0.1)
    >>> round(solution.value, 6), bool(solution.upper - solution.lower <= 1e-6)
    (1.0, True)
    """
    mdp, alpha, tol = check_model(mdp), check_level(alpha), check_positive("tol", tol)
    whole = mdp.without_masks()
    low, high = min_return(whole), max_return(whole)
    rounding = _ROUNDING * (mdp.horizon + 1) * (abs(low) + abs(high) + high - low)
    room = alpha * tol / 2 - rounding
    if not room > 0:
        raise InvalidProblemError(f"tol={tol:g} is too small for doubles: use at least {4 * rounding / alpha:.2g}")
    step_room, total = room / (mdp.horizon + 1), 0.0
    shortfalls: list[list[_Shortfall]] = [[(np.zeros(1), np.zeros(1))] * mdp.n_states]
    for h in reversed(range(mdp.horizon)):
        kept, rows = [], whole._chosen_rows(h, np.arange(mdp.n_states * mdp.n_actions))
        for s in range(mdp.n_states):
            each = (_mean(shortfalls[0], rows, s * mdp.n_actions + a) for a in range(mdp.n_actions))
            kept.append(_simplified(reduce(_minimum, each), step_room, rounding))
        total += max(lost for _, lost in kept)
        shortfalls.insert(0, [shortfall for shortfall, _ in kept])
    start = np.flatnonzero(mdp.start_distribution > 0)
    first = np.array([0, len(start)]), start, mdp.start_distribution[start], np.zeros(len(start))
    knots, missed = _mean(shortfalls[0], SparseTransitions(*first), 0)
    values = knots - missed / alpha
    best_at = int(np.argmax(values))
    value, pad = float(values[best_at]), (total + rounding) / alpha
    return CVaRSolution(value, value - pad, value + pad, alpha, float(knots[best_at]), whole, shortfalls)


def _at(shortfall: _Shortfall, b: np.ndarray) -> np.ndarray:
    knots, values = shortfall
    return np.asarray(np.interp(b, knots, values, left=0.0) + np.maximum(b - knots[-1], 0.0))


def _mean(after: list[_Shortfall], rows: SparseTransitions, row: int, at: Any = None) -> _Shortfall:
    """Return the expected shortfall before the transition of a row, at its own knots or at the points ``at``."""
    own = slice(rows.indptr[row], rows.indptr[row + 1])
    assert rows.rewards is not None
    outcomes = list(zip(rows.indices[own], rows.probabilities[own], rows.rewards[own], strict=True))
    knots = np.unique(np.concatenate([after[y][0] + r for y, _, r in outcomes])) if at is None else at
    if len(knots) > _MOST_KNOTS:
        raise InvalidProblemError("the returns of this model need too much memory: use a larger tol, or round rewards")
    return knots, sum((p * _at(after[y], knots - r) for y, p, r in outcomes), np.zeros(len(knots)))


def _minimum(one: _Shortfall, other: _Shortfall) -> _Shortfall:
    """Return the minimum of two functions, with a knot wherever they cross."""
    knots = np.union1d(one[0], other[0])
    first, second = _at(one, knots), _at(other, knots)
    apart = first - second
    at = np.flatnonzero(apart[:-1] * apart[1:] < 0)
    share = apart[at] / (apart[at] - apart[at + 1])
    crossing = knots[at] + share * (knots[at + 1] - knots[at])
    value = first[at] + share * (first[at + 1] - first[at])
    return np.insert(knots, at + 1, crossing), np.insert(np.minimum(first, second), at + 1, value)


def _simplified(shortfall: _Shortfall, room: float, rounding: float) -> tuple[_Shortfall, float]:
    """Remove redundant knots and, if many remain, others with a total error of at most ``room``; return the error, too."""
    (knots, values), lost = shortfall, 0.0
    for turn in range(_PASSES):
        if turn > 1 and len(knots) <= _FEW_KNOTS:
            break
        allowed = (room - lost) / 4 if turn > 1 else min(rounding, room / 4)
        # Never remove two neighbours in one round: then the largest error of an interval is at the knot that was removed.
        inner = np.arange(1 + turn % 2, len(knots) - 1, 2)
        width = knots[inner + 1] - knots[inner - 1]
        share = np.divide(knots[inner] - knots[inner - 1], width, out=np.zeros(len(inner)), where=width > 0)
        change = np.abs(values[inner - 1] + share * (values[inner + 1] - values[inner - 1]) - values[inner])
        small = change <= allowed
        if small.any():
            lost += float(change[small].max())
            knots, values = np.delete(knots, inner[small]), np.delete(values, inner[small])
    return (knots, values), lost


@dataclass(frozen=True, eq=False)
class EVaRSolution:
    """A policy whose entropic value at risk (EVaR) is the largest, up to a tolerance.

    Attributes
    ----------
    policy : int array ``(H, S)``
        The action at each step and state.
    value : float
        A lower bound on the EVaR of the policy: the value of the supremum's argument at ``lam``.
    lower, upper : float
        Bounds of the largest EVaR over all policies; ``lower`` equals ``value``.
    lam : float
        The λ of ``value``: the policy is optimal for β = -λ.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> solution = eb.solve_evar(bridge, 0.1)
    >>> solution.lower == solution.value <= solution.upper
    True
    """

    policy: np.ndarray
    value: float
    lower: float
    upper: float
    lam: float

    def __repr__(self) -> str:
        return f"EVaRSolution(value={self.value:.6g}, upper={self.upper:.6g}, lam={self.lam:.6g})"


def solve_evar(mdp: FiniteMDP, alpha: float, *, tol: float = 1e-6) -> EVaRSolution:
    """Find a policy whose entropic value at risk (EVaR) is the largest, up to ``tol`` times the range of the return.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    alpha : float
        The level, strictly between 0 and 1. EVaR is a lower bound on the mean of the worst fraction ``alpha`` of the returns
        (CVaR), not this mean: a policy with the largest EVaR need not have the largest CVaR.
    tol : float
        The largest difference of ``lower`` and ``upper``, relative to the range of the return.

    Returns
    -------
    EVaRSolution
        The policy, and bounds of the largest EVaR.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> solution = eb.solve_evar(bridge, 0.1)
    >>> round(solution.value, 4), bool(solution.upper - solution.lower <= 5e-6)
    (1.0, True)
    """
    mdp, tol, c = check_model(mdp), check_positive("tol", tol), math.log(1 / check_probability("alpha", alpha))
    smallest = min_return(mdp)
    spread = max_return(mdp) - smallest
    search = _Search(mdp, c, smallest, spread)
    if spread > 0:
        search.split_to(tol)
    attained, lam, policy = search.best
    upper = max(attained, -search.cells[0][0]) if search.cells else attained
    rounding = 1e-12 * (abs(smallest) + spread)
    lower = smallest + max(attained - rounding, 0.0)
    return EVaRSolution(policy, lower, lower, smallest + upper + rounding, lam)


class _Search:
    """Branch and bound over λ; the smallest possible return is subtracted from all values."""

    def __init__(self, mdp: FiniteMDP, c: float, smallest: float, spread: float) -> None:
        self.mdp, self.c, self.smallest, self.spread = mdp, c, smallest, spread
        # The largest h(λ) so far, its λ, and the policy. Every policy attains 0, and λ up to c/R attain no more.
        self.first = c / spread if spread > 0 else 1.0
        self.best = (0.0, self.first, solve(mdp, -self.first).policy)
        self.plans = 0
        self.cells: list[_Cell] = []

    def values_at(self, lams: list[float]) -> list[float]:
        """Return V*_{-λ} for each λ, and update the best policy so far."""
        self.plans += len(lams)
        if self.plans > _MOST_PLANS:
            raise InvalidProblemError(f"tol is not reached after {_MOST_PLANS} plans: use a larger tol")
        solutions = solve(self.mdp, [-lam for lam in lams])
        values = [min(max(solution.value - self.smallest, 0.0), self.spread) for solution in solutions]
        attained = [(v - self.c / lam, lam, each.policy) for v, lam, each in zip(values, lams, solutions, strict=True)]
        self.best = max([self.best, *attained], key=lambda one: one[0])
        return values

    def _add(self, a: float, at_a: float, b: float, at_b: float) -> None:
        bound = at_a if b == math.inf else min(b / a * max(at_b - self.c / b, 0.0), at_a - self.c / b)
        heapq.heappush(self.cells, (-bound, a, at_a, b, at_b))

    def split_to(self, tol: float) -> None:
        """Split cells until no bound exceeds the best by more than ``tol`` times the range of the return."""
        last = self.first * _FARTHER
        at_first, at_last = self.values_at([self.first, last])
        self._add(self.first, at_first, last, at_last)
        self._add(last, at_last, math.inf, 0.0)
        while wide := self._wider_than(tol * self.spread):
            middles = [a * _FARTHER if b == math.inf else math.sqrt(a * b) for _, a, _, b, _ in wide]
            if not all(a < middle < b for middle, (_, a, _, b, _) in zip(middles, wide, strict=True)):
                raise InvalidProblemError(f"tol={tol:g} is too small for doubles")
            for middle, value, (_, a, at_a, b, at_b) in zip(middles, self.values_at(middles), wide, strict=True):
                self._add(a, at_a, middle, value)
                self._add(middle, value, b, at_b)

    def _wider_than(self, tol: float) -> list[_Cell]:
        """Remove and return cells whose bound exceeds the best by more than ``tol``, the largest first, up to _AT_ONCE."""
        wide: list[_Cell] = []
        while self.cells and len(wide) < _AT_ONCE and -self.cells[0][0] - self.best[0] > tol:
            wide.append(heapq.heappop(self.cells))
        return wide
