r"""The front of a known model: the policies that are optimal for some risk parameter in a range, and where they change.

Let :math:`g(\beta)=V^\star_\beta-V^\pi_\beta` be the gap of a policy and :math:`R` the difference of the largest and the
smallest possible return. :math:`K_\pi(\beta)=\beta V^\pi_\beta=\log\mathbb E e^{\beta\cdot\text{return}}` is convex; its
second derivative is the variance of a tilted return, at most :math:`R^2/4`. So on an interval :math:`[a,b]` without 0 in its
interior

.. math:: |\beta|\,g(\beta)\ \le\ \max\big(|a|\,g(a),\,|b|\,g(b)\big)+\frac{R^2(b-a)^2}{32} :

For :math:`\beta>0` the best :math:`K` is a maximum of convex functions and lies below its chord, while :math:`K_\pi` lies
below its own chord by at most the last term; for :math:`\beta<0` the best :math:`K` is a minimum and the two change their
roles. Near 0, :math:`g(\beta)\le g(0)+|\beta|R^2/8`. The steps of the grid are chosen by these two inequalities: no policy
that is missing from the front is better than the front by more than the tolerance at any β. If different policies are
optimal at two neighbouring points of the grid, a root finder computes the β at which they are equally good. If a third
policy is better there, the search is repeated on both sides of that β.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import optimize

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.model.planning import Solution, evaluate, solve
from entropic_bpi.model.return_law import ReturnLaw, max_return, min_return, return_law
from entropic_bpi.tools.checks import check_positive, check_probability, check_range
from entropic_bpi.types import Summarised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 1_000_000
_AHEAD = 32  # number of points of the grid that are planned in one call
# Policies whose values differ by less, relative to the returns, are equally good.
_ROUNDING = 1e-11


class FrontRow(NamedTuple):
    """One policy of a front: the range of β for which it is optimal, and statistics of its return.

    Attributes
    ----------
    low, high : float
        The range of β for which the policy is optimal.
    mean, std : float
        Mean and standard deviation of its return.
    var, cvar, evar : float
        The largest of the worst fraction ``alpha`` of the returns (VaR), their mean (CVaR), and a lower bound on this mean
        (EVaR, see :meth:`entropic_bpi.ReturnLaw.evar`).

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> front = eb.front(bridge, betas=(-2, 2.5))
    >>> row = front.table(alpha=0.05)[0]
    >>> row.evar <= row.cvar <= row.var
    True
    """

    low: float
    high: float
    mean: float
    std: float
    var: float
    cvar: float
    evar: float


@dataclass(frozen=True, eq=False)
class Front(Summarised):
    """The policies that are optimal for some β of a range, in the order of β; see :func:`front`.

    Attributes
    ----------
    mdp : FiniteMDP
    policies : list of int arrays ``(H, S)``
    betas : float array
        One more than policies: policy ``i`` is optimal from ``betas[i]`` to ``betas[i + 1]``.
    values : float array
        The best entropic value at each of ``betas``.
    tol : float
        No other policy is better by more than ``tol`` times the range of the return, at any β of the front.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> front = eb.front(bridge, betas=(-2, 2.5))
    >>> len(front.policies), len(front.betas)
    (5, 6)
    """

    mdp: FiniteMDP
    policies: list[np.ndarray]
    betas: np.ndarray
    values: np.ndarray
    tol: float

    @property
    def breakpoints(self) -> np.ndarray:
        """The β at which the optimal policy changes. At each of them, two policies are equally good."""
        return self.betas[1:-1]

    @cached_property
    def laws(self) -> list[ReturnLaw]:
        """The law of the return of each policy."""
        laws = [return_law(self.mdp, policy) for policy in self.policies]
        return [law for law in laws if isinstance(law, ReturnLaw)]

    def table(self, alpha: float = 0.05) -> list[FrontRow]:
        """Compute properties of the return of each policy.

        Parameters
        ----------
        alpha : float
            The fraction of the worst returns for VaR, CVaR and EVaR.

        Returns
        -------
        list of FrontRow
            One row for each policy.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> front = eb.front(bridge, betas=(-2, 2.5))
        >>> [round(row.mean, 3) for row in front.table()]
        [1.0, 1.5, 0.75, 0.2, 0.038]
        """
        alpha = check_probability("alpha", alpha)
        rows = zip(self.betas.tolist(), self.betas[1:].tolist(), self.laws, strict=False)
        return [FrontRow(low, high, *_measures(law, alpha)) for low, high, law in rows]

    def plot(self, path: str | Path | None = None, *, alpha: float = 0.05) -> Figure:
        """Plot risk against reward; see :func:`entropic_bpi.show.plots.front`.

        Parameters
        ----------
        path : path, optional
            A PNG file to write.
        alpha : float
            The fraction of the worst returns.

        Returns
        -------
        Figure
            The Matplotlib figure.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> front = eb.front(bridge, betas=(-2, 2.5))
        >>> len(front.plot().axes)
        1
        """
        from entropic_bpi import plots

        figure = plots.front(self, alpha=alpha)
        if path is not None:
            plots.save(figure, path)
        return figure

    def __repr__(self) -> str:
        ends = f"{self.betas[0]:g} to {self.betas[-1]:g}"
        return f"Front({len(self.policies)} policies for beta from {ends}, breakpoints {self.breakpoints.round(6).tolist()})"


def _measures(law: ReturnLaw, alpha: float) -> tuple[float, ...]:
    return law.mean, math.sqrt(law.variance), law.quantile(alpha), law.cvar(alpha), law.evar(alpha)


def front(mdp: FiniteMDP, betas: tuple[float, float], *, tol: float = 1e-6) -> Front:
    """Find the policies that are optimal for some β in a range, and the β at which they change.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    betas : (float, float)
        The smallest and the largest risk parameter; positive is risk-seeking.
    tol : float
        How much better a policy that is missing from the front may be, relative to the range of the return. The breakpoints
        are exact up to rounding.

    Returns
    -------
    Front
        The policies and the β at which they change.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> front = eb.front(eb.instances.risky_bridge(horizon=7), betas=(-2, 2.5))
    >>> front.breakpoints.round(3).tolist()
    [-1.099, 1.005, 1.603, 1.897]
    >>> [round(row.mean, 3) for row in front.table()]
    [1.0, 1.5, 0.75, 0.2, 0.038]
    """
    mdp, tol = check_model(mdp), check_positive("tol", tol)
    low, high = check_range("betas", betas)
    return _Sweep(mdp, low, high, tol).go()


class _Sweep:
    """A sweep from the smallest β to the largest, which keeps track of the optimal policy."""

    def __init__(self, mdp: FiniteMDP, low: float, high: float, tol: float) -> None:
        self.mdp, self.low, self.high, self.tol = mdp, low, high, tol
        smallest, largest = min_return(mdp), max_return(mdp)
        self.range = largest - smallest
        self.rounding = _ROUNDING * (self.range + abs(smallest) + abs(largest))
        self.grid = _grid(low, high, self.range, tol)
        self.ahead: dict[float, Solution] = {}

    def go(self) -> Front:
        """Return the front. ``policy`` is optimal at ``at``; ``to_do`` lists the β that remain, the next one last."""
        at, policy = self.low, self._best(self.low).policy
        pieces = [(self.low, self._best(self.low).value, policy)]
        to_do = self.grid[:0:-1].tolist()
        while to_do:
            goal = to_do[-1]
            best = self._best(goal)
            if best.value - evaluate(self.mdp, policy, goal).value <= self.rounding:
                at = to_do.pop()
                continue
            change = self._change(policy, best.policy, at, goal)
            if change > at:
                to_do.append(change)
                continue
            policy = best.policy
            if pieces[-1][0] == at:
                pieces.pop()
            pieces.append((at, self._best(at).value, policy))
        betas, values, policies = zip(*pieces, strict=True)
        last = self._best(self.high).value
        return Front(self.mdp, list(policies), np.array([*betas, self.high]), np.array([*values, last]), self.tol)

    def _change(self, policy: np.ndarray, other: np.ndarray, at: float, goal: float) -> float:
        """Return the β at which both are equally good; ``policy`` is optimal at ``at``, and ``other`` at ``goal``."""

        def ahead(beta: float) -> float:
            return evaluate(self.mdp, policy, beta).value - evaluate(self.mdp, other, beta).value

        if ahead(at) <= self.rounding:
            return at
        change = float(optimize.brentq(ahead, at, goal, xtol=1e-14 * max(abs(at), abs(goal)), rtol=1e-14))
        change = change if change < goal else (at + goal) / 2
        return change if at < change < goal else at

    def _best(self, beta: float) -> Solution:
        """Return a solution at ``beta``; several points of the grid are planned together and dropped once passed."""
        if beta not in self.ahead:
            place = int(np.searchsorted(self.grid, beta))
            on_grid = place < len(self.grid) and self.grid[place] == beta
            betas = self.grid[place : place + _AHEAD].tolist() if on_grid else [beta]
            if on_grid:
                self.ahead = {b: known for b, known in self.ahead.items() if b > self.grid[max(place - 2, 0)]}
            self.ahead.update(zip(betas, solve(self.mdp, betas), strict=True))
        return self.ahead[beta]


def _grid(low: float, high: float, spread: float, tol: float) -> np.ndarray:
    """Return β from ``low`` to ``high`` so dense that no missing policy is better by more than ``tol * spread``."""
    points = [low, high, *([0.0] if low < 0 < high and spread > 0 else [])]
    for sign, begin, end in ((1.0, low, high), (-1.0, -high, -low)) if spread > 0 else ():
        beta = max(begin, 8 * tol / spread)
        while beta < end:
            points.append(sign * beta)
            beta += math.sqrt(32 * tol * beta / spread)
            if len(points) > _MOST_POINTS:
                raise InvalidProblemError(f"tol={tol:g} needs over {_MOST_POINTS} plans: use a larger tol")
    return np.unique(points)
