r"""The front of a known model: every policy that is optimal for some risk parameter in a range, and where they change.

Let :math:`g(\beta)=V^\star_\beta-V^\pi_\beta` be what a policy lacks and :math:`R` the largest less the smallest possible
return. :math:`K_\pi(\beta)=\beta V^\pi_\beta=\log\mathbb E e^{\beta\cdot\text{return}}` is convex with second derivative at
most :math:`R^2/4`, the variance of a tilted return. So on an interval :math:`[a,b]` that does not contain 0 in its inside

.. math:: |\beta|\,g(\beta)\ \le\ \max\big(|a|\,g(a),\,|b|\,g(b)\big)+\frac{R^2(b-a)^2}{32} :

for :math:`\beta>0` the best :math:`K` is a maximum of convex functions and lies below its chord, while :math:`K_\pi` lies at
most the last term below its own; for :math:`\beta<0` the best :math:`K` is a minimum and the two change their roles. Next
to 0, :math:`g(\beta)\le g(0)+|\beta|R^2/8`. A grid whose steps obey these two inequalities leaves no policy out that is
better than those of the front by more than the tolerance, anywhere. Between two points of the grid at which different
policies are optimal, the places where two policies are equally good are found as roots, and a policy that is better there
starts the search again on both sides of it.
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
_AHEAD = 32  # points of the grid that are planned in one call
# Policies whose values differ by less, relative to the returns, are equally good.
_ROUNDING = 1e-11


class FrontRow(NamedTuple):
    """One policy of a front: from which to which β it is optimal, and what its return is like.

    ``var``, ``cvar`` and ``evar`` are about the worst fraction ``alpha`` of the returns: the largest of them, their mean,
    and a lower bound on this mean (:meth:`entropic_bpi.ReturnLaw.evar`).

    Attributes
    ----------
    low, high : float
        The range of β for which the policy is optimal.
    mean, std : float
        Mean and standard deviation of its return.
    var, cvar, evar : float
        Of the worst fraction ``alpha`` of the returns: the largest, the mean, and the EVaR, a lower bound on the mean.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.front(bridge, betas=(-2, 2.5))
    >>> row = found.table(alpha=0.05)[0]
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
        No policy is better anywhere in the range by more than this times the range of the return.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.front(bridge, betas=(-2, 2.5))
    >>> len(found.policies), len(found.betas)
    (5, 6)
    """

    mdp: FiniteMDP
    policies: list[np.ndarray]
    betas: np.ndarray
    values: np.ndarray
    tol: float

    @property
    def breakpoints(self) -> np.ndarray:
        """The β at which the optimal policy changes: there two policies are equally good."""
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
        >>> found = eb.front(bridge, betas=(-2, 2.5))
        >>> [round(row.mean, 3) for row in found.table()]
        [1.0, 1.5, 0.75, 0.2, 0.038]
        """
        alpha = check_probability("alpha", alpha)
        rows = zip(self.betas.tolist(), self.betas[1:].tolist(), self.laws, strict=False)
        return [FrontRow(low, high, *_measures(law, alpha)) for low, high, law in rows]

    def plot(self, path: str | Path | None = None, *, alpha: float = 0.05) -> Figure:
        """Draw risk against reward, see :func:`entropic_bpi.show.plots.front`.

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
        >>> found = eb.front(bridge, betas=(-2, 2.5))
        >>> len(found.plot().axes)
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
    """Find the policies that are optimal for some β between two, and the β at which they change.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    betas : (float, float)
        The smallest and the largest risk parameter; positive is risk-seeking.
    tol : float
        How much better an omitted policy may be, relative to the range of the return. The breakpoints that are found are
        exact to rounding.

    Returns
    -------
    Front
        The policies and the β at which they change.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> found = eb.front(eb.instances.risky_bridge(horizon=7), betas=(-2, 2.5))
    >>> found.breakpoints.round(3).tolist()
    [-1.099, 1.005, 1.603, 1.897]
    >>> [round(row.mean, 3) for row in found.table()]
    [1.0, 1.5, 0.75, 0.2, 0.038]
    """
    mdp, tol = check_model(mdp), check_positive("tol", tol)
    low, high = check_range("betas", betas)
    return _Sweep(mdp, low, high, tol).go()


class _Sweep:
    """From the smallest β to the largest with the policy that is optimal at hand."""

    def __init__(self, mdp: FiniteMDP, low: float, high: float, tol: float) -> None:
        self.mdp, self.low, self.high, self.tol = mdp, low, high, tol
        smallest, largest = min_return(mdp), max_return(mdp)
        self.range = largest - smallest
        self.rounding = _ROUNDING * (self.range + abs(smallest) + abs(largest))
        self.grid = _grid(low, high, self.range, tol)
        self.ahead: dict[float, Solution] = {}

    def go(self) -> Front:
        """``to_do`` has the β up to which the sweep still has to go, the nearest last."""
        at, policy = self.low, self._best(self.low).policy
        found = [(self.low, self._best(self.low).value, policy)]
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
            if found[-1][0] == at:
                found.pop()
            found.append((at, self._best(at).value, policy))
        betas, values, policies = zip(*found, strict=True)
        last = self._best(self.high).value
        return Front(self.mdp, list(policies), np.array([*betas, self.high]), np.array([*values, last]), self.tol)

    def _change(self, policy: np.ndarray, other: np.ndarray, at: float, goal: float) -> float:
        """Where the two are equally good, between ``at``, where ``policy`` is optimal, and ``goal``, where ``other`` is."""

        def ahead(beta: float) -> float:
            return evaluate(self.mdp, policy, beta).value - evaluate(self.mdp, other, beta).value

        if ahead(at) <= self.rounding:
            return at
        change = float(optimize.brentq(ahead, at, goal, xtol=1e-14 * max(abs(at), abs(goal)), rtol=1e-14))
        change = change if change < goal else (at + goal) / 2
        return change if at < change < goal else at

    def _best(self, beta: float) -> Solution:
        """The best at ``beta``; points of the grid are planned some at a time, and forgotten when they are passed."""
        if beta not in self.ahead:
            place = int(np.searchsorted(self.grid, beta))
            on_grid = place < len(self.grid) and self.grid[place] == beta
            betas = self.grid[place : place + _AHEAD].tolist() if on_grid else [beta]
            if on_grid:
                self.ahead = {b: known for b, known in self.ahead.items() if b > self.grid[max(place - 2, 0)]}
            self.ahead.update(zip(betas, solve(self.mdp, betas), strict=True))
        return self.ahead[beta]


def _grid(low: float, high: float, spread: float, tol: float) -> np.ndarray:
    """The β from ``low`` to ``high`` between which no policy can be better by more than ``tol`` times ``spread``."""
    points = [low, high, *([0.0] if low < 0 < high and spread > 0 else [])]
    for sign, begin, end in ((1.0, low, high), (-1.0, -high, -low)) if spread > 0 else ():
        beta = max(begin, 8 * tol / spread)
        while beta < end:
            points.append(sign * beta)
            beta += math.sqrt(32 * tol * beta / spread)
            if len(points) > _MOST_POINTS:
                needed = f"more than {_MOST_POINTS} plans for these betas: give a larger tol or a smaller range"
                raise InvalidProblemError(f"tol = {tol:g} needs {needed}")
    return np.unique(points)
