r"""Evidence of new returns against "the policy has at least the value ``lower``".

Let :math:`R` be the return of an episode of the certified policy, at most :math:`b`, and :math:`l` the lower bound of its
value :math:`V=\frac1\beta\log\mathbf E\,e^{\beta R}`. With :math:`g(r)=(e^{\beta(r-l)}-1)/(e^{\beta(b-l)}-1)`, which for
:math:`\beta=0` is :math:`(r-l)/(b-l)`: :math:`g` increases from :math:`g(l)=0` to :math:`g(b)=1`, and :math:`V\ge l` is
:math:`\mathbf E\,g(R)\ge0` for both signs of :math:`\beta`. So every factor :math:`1-v\,g(R)` with :math:`0\le v\le1` is at
least 0 and has a mean of at most 1, and the products over the episodes, averaged over a grid of :math:`v`, are a
supermartingale from 1.

An episode that leaves the policy, or is cut, counts as if the rest had earned the most that is possible. That is at least
what the policy would have earned, had it gone on, so :math:`\mathbf E\,g` of it is not smaller. To leave out such episodes
would be wrong: somebody may leave the policy because an episode goes well, and the rest would be the bad ones.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.runs.monitoring.rows import PERIODS

_LARGEST_EXPONENT = 700.0


class ReturnEvidence:
    """A test of the claimed lower bound by the returns of episodes."""

    SHARES = 2.0 ** -np.arange(10)  # the grid of v

    def __init__(self, certificate: Certificate) -> None:
        problem, self._policy = certificate.problem, certificate.policy
        self.beta, self.lower = certificate.beta, certificate.lower
        if certificate.cells is not None and isinstance(problem.risk, EVaR):
            self.beta, self.lower = _strongest(certificate, problem.risk.cost)
        self._problem, self._factors, self._high = problem, problem.factors.tolist(), problem.possible_rewards[1]
        most = self._high * problem.duration + problem.return_room
        self.most = min(most, problem.return_limits[1]) + problem.tail[1]
        self.wealth = np.zeros((PERIODS, len(self.SHARES)))
        self.possible = self.lower < self.most

    def add(self, states: list[int], actions: list[int], rewards: list[float], *, ended: bool, free: set[int]) -> None:
        """Add an episode of at most ``horizon`` steps; in the states ``free`` the claim holds whatever is done."""
        if not self.possible:
            return
        steps, horizon, complete = len(actions), len(self._factors), ended
        for h, (state, action) in enumerate(zip(states, actions, strict=False)):
            if action != self._policy[h, state] and state not in free:
                steps, complete = h, False
                break
        earned = [factor * reward for factor, reward in zip(self._factors, rewards[:steps], strict=False)]
        if not complete:
            earned += [self._high * factor for factor in self._factors[steps:horizon]] + [self._problem.tail[1]]
        returned = min(math.fsum(earned) + self._problem.return_room, self.most)
        with np.errstate(divide="ignore"):
            self.wealth += np.log1p(-self.SHARES * self._gain(returned))

    def _gain(self, returned: float) -> float:
        """g of a return; too large if it is not exact."""
        u, w = self.beta * (returned - self.lower), self.beta * (self.most - self.lower)
        if abs(w) < 1e-300:
            return (returned - self.lower) / (self.most - self.lower)
        if w > 0:
            return min((math.exp(u - w) - math.exp(-w)) / -math.expm1(-w), 1.0)
        return math.expm1(min(u, _LARGEST_EXPONENT)) / math.expm1(w)

    def restart(self, period: int) -> None:
        self.wealth[period] = 0.0

    def log_e(self, period: int = 0) -> float:
        return float(np.logaddexp.reduce(self.wealth[period])) - math.log(len(self.SHARES))


def _strongest(certificate: Certificate, cost: float) -> tuple[float, float]:
    """β = -λ and the lower bound of the policy's value there, for the λ at which the claim is attained."""
    problem, counts = certificate.problem, certificate.counts
    policy = np.pad(certificate.policy, ((int(problem.artificial), 0), (0, 0)))
    bounds = {
        cell.lam: KL(problem.at(-cell.lam, problem.eps)).bounds_of(counts, policy, pairs=False).lower
        for cell in certificate.cells or ()
    }
    lam = max(bounds, key=lambda lam: bounds[lam] - cost / lam)
    return -lam, bounds[lam]
