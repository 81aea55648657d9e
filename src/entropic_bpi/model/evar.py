r"""Entropic value at risk of the return (EVaR), and the policy for which it is the largest.

For a level :math:`\alpha\in(0,1)` and :math:`c=\log(1/\alpha)`,

.. math:: \mathrm{EVaR}_\alpha(\pi) = \sup_{\lambda>0}\Big\{V^\pi_{-\lambda} - \frac c\lambda\Big\},

the best lower bound that Chernoff's inequality gives on the worst fraction :math:`\alpha` of the returns:
:math:`\mathrm{EVaR}_\alpha\le\mathrm{CVaR}_\alpha\le\mathrm{VaR}_\alpha`. A policy of which it is :math:`L` falls below
:math:`L` in at most the fraction :math:`\alpha` of its episodes. It is not the mean of the worst returns (CVaR), and a
policy with the largest EVaR need not have the largest CVaR.

**Planning.** :math:`\max_\pi\mathrm{EVaR}_\alpha(\pi)=\sup_\lambda h(\lambda)` with
:math:`h(\lambda)=V^\star_{-\lambda}-c/\lambda`. Measure returns from the smallest one that is possible, so that they are at
least 0 and at most :math:`R`; then :math:`V^\star_{-\lambda}` falls and :math:`\lambda V^\star_{-\lambda}` grows with
:math:`\lambda`, so that on a cell :math:`(a,b]`

.. math:: \sup_{a<\lambda\le b}h(\lambda)\le\min\Big\{\frac ba\max(h(b),0),\ V^\star_{-a}-\frac cb\Big\} .

Below :math:`c/R` it is at most 0, which the smallest return attains; beyond the last :math:`\lambda` it is at most
:math:`V^\star_{-\lambda}`. Branch and bound: halve the cell with the largest bound until none exceeds the best
:math:`h` found by more than the tolerance. (With returns that are not measured from the smallest one the first bound is
false.)
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.model.planning import solve
from entropic_bpi.model.return_law import max_return, min_return
from entropic_bpi.tools.checks import check_positive, check_probability

# Where cells begin: this many times c/R; and how much farther the last λ goes when what lies beyond matters.
_FIRST_GRID = 16.0
_FARTHER = 16.0
_MOST_PLANS = 100_000
# Cells that are split together, since several β of a large model are planned in less time than one after the other.
_AT_ONCE = 8
_Cell = tuple[float, float, float, float, float]  # -bound, a, V*_-a, b, V*_-b


@dataclass(frozen=True, eq=False)
class EVaRSolution:
    """A policy with almost the largest entropic value at risk.

    Attributes
    ----------
    policy : int array ``(H, S)``
    value : float
        What the policy attains at ``lam``: at most its EVaR.
    lower, upper : float
        The largest EVaR of all policies lies between them; ``lower`` is ``value``.
    lam : float
        The λ at which it is attained: the policy is optimal for β = -λ.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.solve_evar(bridge, 0.1)
    >>> found.lower == found.value <= found.upper
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
    """Find a policy whose entropic value at risk is the largest, up to ``tol`` times the range of the return.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    alpha : float
        The level, between 0 and 1. EVaR is a lower bound on the mean of this worst fraction of the returns (CVaR) and not
        that mean: a policy with the largest EVaR need not have the largest CVaR.
    tol : float
        The largest difference of ``lower`` and ``upper``, relative to the range of the return.

    Returns
    -------
    EVaRSolution
        The policy, and bounds on the largest EVaR.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.solve_evar(bridge, 0.1)
    >>> round(found.value, 4), bool(found.upper - found.lower <= 5e-6)
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
    """Branch and bound over λ; values are measured from the smallest possible return."""

    def __init__(self, mdp: FiniteMDP, c: float, smallest: float, spread: float) -> None:
        self.mdp, self.c, self.smallest, self.spread = mdp, c, smallest, spread
        # What is attained at which λ by which policy; every policy attains 0, and λ up to c/R attain no more.
        self.first = c / spread if spread > 0 else 1.0
        self.best = (0.0, self.first, solve(mdp, -self.first).policy)
        self.plans = 0
        self.cells: list[_Cell] = []

    def values_at(self, lams: list[float]) -> list[float]:
        """V*_{-λ} of each; the best policy so far is kept."""
        self.plans += len(lams)
        if self.plans > _MOST_PLANS:
            raise InvalidProblemError(f"tol is not reached after {_MOST_PLANS} plans: give a larger one")
        solutions = solve(self.mdp, [-lam for lam in lams])
        values = [min(max(solution.value - self.smallest, 0.0), self.spread) for solution in solutions]
        found = [(v - self.c / lam, lam, each.policy) for v, lam, each in zip(values, lams, solutions, strict=True)]
        self.best = max([self.best, *found], key=lambda one: one[0])
        return values

    def _add(self, a: float, at_a: float, b: float, at_b: float) -> None:
        bound = at_a if b == math.inf else min(b / a * max(at_b - self.c / b, 0.0), at_a - self.c / b)
        heapq.heappush(self.cells, (-bound, a, at_a, b, at_b))

    def split_to(self, tol: float) -> None:
        """Split cells until no bound exceeds the best by more than ``tol`` times the range of the return."""
        last = self.first * _FIRST_GRID
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
        """Take out the cells whose bound exceeds the best by more than ``tol``, the widest first, but not too many."""
        wide: list[_Cell] = []
        while self.cells and len(wide) < _AT_ONCE and -self.cells[0][0] - self.best[0] > tol:
            wide.append(heapq.heappop(self.cells))
        return wide
