"""The law of the return of a policy of a known model, and the extremes of the return."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.backups import lottery_risk
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools.checks import check_finite, check_integer

MAX_SUPPORT = 2_000_000
# Number of pairs (state, return so far) that are expanded before equal ones are merged; it limits the memory.
_EXPANDED_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class ReturnLaw:
    """The distribution of the return.

    Attributes
    ----------
    support : float array
        The possible returns, increasing.
    probabilities : float array
        Their probabilities.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> law = eb.return_law(bridge, eb.solve(bridge, beta=2.5).policy)
    >>> law.support.tolist(), round(law.mean, 4)
    ([0.0, 5.0], 0.0375)
    """

    support: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def of_sample(cls, returns: np.ndarray) -> ReturnLaw:
        """Return the distribution of a sample: each return has the same probability.

        Parameters
        ----------
        returns : sequence of float
            The sample.

        Returns
        -------
        ReturnLaw
            Its support contains each distinct return once.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> law = eb.ReturnLaw.of_sample([0.0, 1.0, 2.0, 3.0])
        >>> law.mean
        1.5
        """
        support, times = np.unique(returns, return_counts=True)
        return cls(support, times / times.sum())

    def __repr__(self) -> str:
        return f"ReturnLaw({len(self.support)} atoms, mean={self.mean:.6g})"

    def entropic_risk(self, beta: float) -> float:
        """Return (1/β) log E e^{βR}.

        Parameters
        ----------
        beta : float
            Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.

        Returns
        -------
        float
            The entropic risk; the mean for ``beta`` 0.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> law = eb.ReturnLaw.of_sample([0.0, 1.0, 2.0, 3.0])
        >>> law.entropic_risk(0.0), law.entropic_risk(-1.0) < 1.5
        (1.5, True)
        """
        return float(lottery_risk(self.probabilities, self.support, check_finite("beta", beta)))

    @property
    def mean(self) -> float:
        return float(self.probabilities @ self.support)

    @property
    def variance(self) -> float:
        return float(self.probabilities @ (self.support - self.mean) ** 2)

    def quantile(self, q: float) -> float:
        """Return the ``q`` quantile: the smallest return x with P(return <= x) at least ``q``.

        Parameters
        ----------
        q : float
            A probability, from 0 to 1.

        Returns
        -------
        float
            The quantile.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> law = eb.ReturnLaw.of_sample([0.0, 1.0, 2.0, 3.0])
        >>> law.quantile(0.5)
        1.0
        """
        q = check_finite("q", q)
        if not 0 <= q <= 1:
            raise InvalidProblemError(f"q must lie in [0, 1], got {q}")
        level = q * (1 - 1e-13) if q < 1 else math.inf  # tolerates rounding errors of the sum
        index = int(np.searchsorted(np.cumsum(self.probabilities), level))
        return float(self.support[min(index, len(self.support) - 1)])

    def cvar(self, alpha: float) -> float:
        """Return the mean of the worst fraction ``alpha`` of the returns.

        Parameters
        ----------
        alpha : float
            The fraction, above 0 and at most 1.

        Returns
        -------
        float
            The conditional value at risk (CVaR).

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> law = eb.ReturnLaw.of_sample([0.0, 1.0, 2.0, 3.0])
        >>> law.cvar(0.5)
        0.5
        """
        alpha = check_level(alpha)
        taken = np.diff(np.minimum(np.concatenate([[0.0], np.cumsum(self.probabilities)]), alpha))
        return float(taken @ self.support / taken.sum())

    def evar(self, alpha: float) -> float:
        r"""Return the entropic value at risk, :math:`\sup_{\beta<0}\{\rho_\beta + \log(\alpha)/|\beta|\}`.

        It is the largest lower bound on :meth:`cvar` that follows from Chernoff's inequality.

        Parameters
        ----------
        alpha : float
            The level, above 0 and at most 1.

        Returns
        -------
        float
            The entropic value at risk (EVaR).

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> law = eb.ReturnLaw.of_sample([0.0, 1.0, 2.0, 3.0])
        >>> law.evar(0.5) <= law.cvar(0.5)
        True
        """
        alpha = check_level(alpha)
        if alpha == 1 or len(self.support) == 1:
            return self.mean
        if alpha <= self.probabilities[0]:
            return float(self.support[0])  # attained in the limit β → -∞

        def loss(log_strength: float) -> float:
            strength = math.exp(log_strength)
            return -(self.entropic_risk(-strength) + math.log(alpha) / strength)

        from scipy import optimize  # imported here, since the import takes long

        # The loss is unimodal in |β|, with its minimum between 1e-9 / (range) and 1e3 / (distance of the two worst returns).
        first, second, last = self.support[[0, 1, -1]]
        grid = np.arange(math.log(1e-9 / (last - first)), math.log(1e3 / (second - first)), 0.25)
        best = int(np.argmin([loss(x) for x in grid]))
        bounds = (grid[best] - 0.25, grid[best] + 0.25)
        minimum = optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-12})
        return max(float(-minimum.fun), float(self.support[0]))


@dataclass(frozen=True, eq=False)
class ReturnLawBracket:
    """Two distributions on a grid that bracket the law of the return in the sense of stochastic dominance.

    Every monotone functional of the law (entropic risk, mean, quantile, CVaR) lies between its values for the two.

    Attributes
    ----------
    lower, upper : ReturnLaw
        ``lower`` is dominated by the law of the return, and ``upper`` dominates it.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> bracket = eb.return_law(bridge, eb.solve(bridge, beta=0.0).policy, bins=1000)
    >>> bracket.lower.mean <= 1.5 <= bracket.upper.mean
    True
    """

    lower: ReturnLaw
    upper: ReturnLaw


def return_law(
    mdp: FiniteMDP, policy: Any, *, bins: int | None = None, max_support: int = MAX_SUPPORT
) -> ReturnLaw | ReturnLawBracket:
    """Compute the exact distribution of the return under a policy.

    Equal returns are merged; returns that differ only by rounding errors count as equal.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    policy : int array ``(H, S)``
        The action at each step and state.
    bins : int, optional
        Round the return so far to this many equal bins, once downwards and once upwards. The result is a
        :class:`ReturnLawBracket`: two laws that bracket the true one.
    max_support : int
        The largest number of pairs (state, return so far) to store. If more are needed, use ``bins``.

    Returns
    -------
    ReturnLaw or ReturnLawBracket
        The distribution; with ``bins``, two of them.

    Raises
    ------
    InvalidProblemError
        If more than ``max_support`` pairs are needed.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> law = eb.return_law(bridge, eb.solve(bridge, beta=2.5).policy)
    >>> law.support.tolist(), law.probabilities.round(4).tolist()
    ([0.0, 5.0], [0.9925, 0.0075])
    >>> round(law.entropic_risk(2.5), 6)
    3.043056
    """
    mdp = check_model(mdp)
    policy = mdp.check_policy(policy)
    max_support = check_integer("max_support", max_support)
    low, high = mdp.reward_range
    if bins is None:
        rounding = np.finfo(float).eps * mdp.horizon**2 * max(abs(low), abs(high))
        return ReturnLaw(*_propagate(mdp, policy, max_support, np.asarray, rounding))
    per_step, unit = check_integer("bins", bins) / mdp.horizon, (high - low) or 1.0

    def on_grid(to_integers: Callable[[np.ndarray], np.ndarray], slack: float) -> ReturnLaw:
        def cells(rewards: np.ndarray) -> np.ndarray:
            return to_integers((rewards - low) / unit * per_step * slack)

        support, probabilities = _propagate(mdp, policy, max_support, cells, 0.0)
        return ReturnLaw(mdp.horizon * low + unit / per_step * support, probabilities)

    return ReturnLawBracket(on_grid(np.floor, 1 + 1e-15), on_grid(np.ceil, 1 - 1e-15))


def _propagate(
    mdp: FiniteMDP, policy: np.ndarray, max_support: int, measure: Callable[[np.ndarray], np.ndarray], tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return support and probabilities of the sum of ``measure(rewards)``, by forward recursion on (state, sum so far)."""
    state = np.flatnonzero(mdp.start_distribution > 0)
    returns, mass = np.zeros(len(state)), mdp.start_distribution[state]
    for h in range(mdp.horizon):
        rows = mdp.policy_rows(policy, h)
        assert rows.rewards is not None
        rewards = measure(rows.rewards)
        batch = np.cumsum(np.diff(rows.indptr)[state]) // _EXPANDED_AT_ONCE
        after: tuple[np.ndarray, ...] = (np.empty(0, dtype=np.int32), np.empty(0), np.empty(0))
        for piece in np.split(np.arange(len(batch)), np.flatnonzero(np.diff(batch)) + 1):
            entry, lengths = rows.entries_of(state[piece])  # repeats each atom for every successor of its state
            sums, masses = np.repeat(returns[piece], lengths) + rewards[entry], np.repeat(mass[piece], lengths)
            more = rows.indices[entry], sums, masses * rows.probabilities[entry]
            after = _merge(*map(np.concatenate, zip(after, more, strict=True)), tolerance=tolerance)
            if len(after[0]) > max_support:
                raise InvalidProblemError(
                    f"the law of the return needs more than max_support={max_support} atoms at step {h}: "
                    "pass bins=1000, for example, for two laws that bracket it, or increase max_support"
                )
        state, returns, mass = after
    _, returns, mass = _merge(np.zeros_like(state), returns, mass, tolerance=tolerance)
    return returns, mass / mass.sum()


def _merge(
    state: np.ndarray, returns: np.ndarray, mass: np.ndarray, *, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add up the mass of equal (state, return) pairs, and drop pairs whose mass underflows to 0."""
    order = np.lexsort((returns, state))
    order = order[mass[order] > 0]
    state, returns, mass = state[order], returns[order], mass[order]
    first = np.flatnonzero(np.append(True, (np.diff(state) != 0) | (np.diff(returns) > tolerance))[: len(state)])
    return state[first], returns[first], np.add.reduceat(mass, first)


def check_level(alpha: float) -> float:
    alpha = check_finite("alpha", alpha)
    if not 0 < alpha <= 1:
        raise InvalidProblemError(f"alpha must be greater than 0 and at most 1, got {alpha}")
    return alpha


def max_return(mdp: FiniteMDP) -> float:
    """Return the largest return that any policy can reach with positive probability (G_max).

    Parameters
    ----------
    mdp : FiniteMDP
        The model.

    Returns
    -------
    float
        The largest return.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.max_return(eb.instances.risky_bridge(horizon=7))
    5.0
    """
    return _extreme_return(check_model(mdp), np.maximum)


def min_return(mdp: FiniteMDP) -> float:
    """Return the smallest return that some policy can have with positive probability."""
    return _extreme_return(mdp, np.minimum)


def _extreme_return(mdp: FiniteMDP, extreme: np.ufunc) -> float:
    mdp, values = mdp.without_masks(), np.zeros(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        rows = mdp.step_rows(h)
        paid, more = (0.0, mdp.step_rewards(h)) if rows.rewards is None else (rows.rewards, 0.0)
        following = extreme.reduceat(values[rows.indices] + paid, rows.indptr[:-1])
        values = extreme.reduce(following.reshape(mdp.n_states, mdp.n_actions) + more, axis=1)
    return float(extreme.reduce(values[mdp.start_distribution > 0]))
