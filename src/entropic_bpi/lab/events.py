r"""The concentration events of the theorems, as objects that check whether they hold for a true model and counts.

Every theorem of the library reads "on the event E, ... and E has probability at least :math:`1-c\,\delta`". An event has
two methods, :meth:`Event.holds` and :meth:`Event.violations`, and ``share``, the :math:`c` of its proof. The methods check
the counts at one moment. The theorem is about all moments together, so its bound also covers checks after every plan.

With 1-based steps, :math:`n` visits of a row with empirical successors :math:`\hat p` and true ones :math:`p`,
the events, their shares and what they claim of every row are, with :math:`L=\log(3SAH/\delta)`,

- :class:`KLEvent`, 1/3: :math:`n\,\mathrm{KL}(\hat p,p)\le\alpha(n)=L+S\log(8e(n+1))`;
- :class:`BernsteinEvent`, 1/3: :math:`|(\hat p-p)Z^\star|\le\sqrt{2\mathrm{Var}_p(Z^\star)x^\star}+3Bx^\star`,
  :math:`x^\star=(L+\log(8e(n+1)))/n`;
- :class:`CountEvent`, 1/3: :math:`n\ge\bar n/2-L`, where :math:`\bar n` sums the chances of a visit;
- :class:`MixtureEvent`, 1: :math:`n\,\mathrm{KL}(\hat p,p)\le\log(P/\delta)+R_{mix}(N)`;
- :class:`BettingEvent`, 1: :math:`\max_\theta\log W_n(\theta)\le\log(P/\delta)+c_2(n)`;
- :class:`RewardEvent`, 1/2: the certainty equivalents of random rewards lie between their bounds. With random rewards,
  :class:`MixtureEvent` has :math:`\log(2P/\delta)`, and its share is 1/2 as well.

The first three are the good event of the paper's method, :class:`MixtureEvent` that of ``method="kl"``;
:class:`BettingEvent` is a version of optimism whose radius does not depend on the number of successors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab import evidence
from entropic_bpi.methods.kl.method import planning_beta
from entropic_bpi.methods.kl.rewards import RewardBounds
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.problem.counts import Counts
from entropic_bpi.runs.walk import walk_model

__all__ = [
    "EVENTS",
    "BernsteinEvent",
    "BettingEvent",
    "CountEvent",
    "Event",
    "KLEvent",
    "MixtureEvent",
    "RewardEvent",
    "expected_visits",
]


class Event(ABC):
    """A concentration event; ``share`` times δ bounds the probability that it ever fails."""

    share: ClassVar[float] = 1.0

    def holds(self, mdp: FiniteMDP, counts: Counts) -> bool:
        """Return whether the event holds for these counts of episodes of ``mdp``."""
        return self.violations(mdp, counts).size == 0

    def violations(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        """Return the rows of ``counts`` where the event fails; ``counts.problem.describe(row)`` names a row."""
        return np.flatnonzero(~(self.excess(mdp, counts) <= 0))  # NaN counts as a failure

    @abstractmethod
    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        """Compute for each row by how much the bounded quantity exceeds its bound; -inf where nothing is claimed."""


class KLEvent(Event):
    r"""E_KL: :math:`n\,\mathrm{KL}(\hat p,p)\le L+S\log(8e(n+1))` for every row.

    Pooled counts have one row per (s, a), and :math:`L=\log(3SA/\delta)`.

    Examples
    --------
    >>> import numpy as np
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.problem.counts import Counts
    >>> from entropic_bpi.lab.events import KLEvent
    >>> from entropic_bpi.problem.problem import Problem
    >>> from entropic_bpi.types import Transitions
    >>> coin = eb.FiniteMDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], horizon=2)
    >>> counts = Counts(Problem.from_mdp(coin, beta=1.0, eps=0.1, delta=0.1))
    >>> row, heads, tails = np.array([0, 0]), 90, 10
    >>> counts.add(Transitions(row, np.array([0, 1]), np.array([heads, tails])), episodes=heads + tails)
    >>> event = KLEvent()
    >>> event.holds(coin, counts), [counts.problem.describe(row) for row in event.violations(coin, counts)]
    (False, ["step 0, state '0', action '0'"])
    """

    share = 1 / 3

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem = counts.problem
        n = counts.arrays.visits
        alpha = evidence.log_union(problem, pooled=problem.stationary) + problem.n_states * evidence.log_8e(n)
        return np.where(n > 0, evidence.divergences(evidence.collect(mdp, counts), n) - alpha, -np.inf)


class BernsteinEvent(Event):
    r"""E for Z*: :math:`|(\hat p-p)Z^\star_{h+1}|\le\sqrt{2\operatorname{Var}_p(Z^\star_{h+1})x^\star}+3Bx^\star`.

    :math:`B` is taken as the span of :math:`Z^\star_{h+1}` over the true successors of the row, the smallest for which the
    proof holds, so the event implies the one of every method. A pooled row must satisfy it at every step. The excess is in
    units of :math:`B`.
    """

    share = 1 / 3

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem = counts.problem
        if problem.next_state_rewards:
            raise InvalidProblemError("the Bernstein event is for rewards that do not depend on the next state")
        n = counts.arrays.visits
        rates = (evidence.log_union(problem, pooled=False) + evidence.log_8e(n)) / np.maximum(n, 1)
        result = np.full(problem.n_rows, -np.inf)
        values = evidence.optimal_values(mdp, problem.beta)
        seen = evidence.collect(mdp, counts)
        for step in evidence.steps_of_rows(problem):
            value = values[step[seen.row] + 1, seen.state]
            # Z up to shift and scale, without overflow: measured from the end of the row where it is largest
            end = seen.of_row(np.maximum, value) if problem.beta >= 0 else seen.of_row(np.minimum, value)
            z = evidence.growth(problem.beta, value - end[seen.group])
            possible = seen.p > 0
            span = seen.of_row(np.maximum, np.where(possible, z, -np.inf)) - seen.of_row(
                np.minimum, np.where(possible, z, np.inf)
            )
            unit = np.where(span > 0, span, 1.0)
            mean, rate = seen.of_row(np.add, seen.p * z), rates[seen.rows]
            variance = seen.of_row(np.add, seen.p * ((z - mean[seen.group]) / unit[seen.group]) ** 2)
            deviation = np.abs(seen.of_row(np.add, (seen.times / n[seen.row] - seen.p) * z)) / unit
            surprised = seen.of_row(np.maximum, np.where(possible, 0.0, seen.times)) > 0
            excess = np.where(
                span > 0, deviation - np.sqrt(2 * variance * rate) - 3 * rate, np.where(surprised, np.inf, -np.inf)
            )
            result[seen.rows] = np.maximum(result[seen.rows], excess)
        return result


@dataclass(frozen=True, eq=False)
class CountEvent(Event):
    r"""E_cnt: :math:`n\ge\tfrac12\bar n-L` for every row (h, s, a).

    The proof needs a row to be visited at most once in an episode, so there is no such event for pooled counts.

    Parameters
    ----------
    expected : float array, one entry per row of the counts
        :math:`\bar n`: the sum, over the episodes played, of the chance that the row would be visited, given the policy
        that was played. :func:`expected_visits` gives one episode's.
    """

    expected: np.ndarray
    share: ClassVar[float] = 1 / 3

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        if counts.problem.stationary:
            raise InvalidProblemError("the count event is for counts of each step, not for pooled ones")
        expected = np.asarray(self.expected, dtype=float)
        if expected.shape != counts.arrays.visits.shape:
            raise InvalidProblemError(
                f"expected must have one entry per row, {counts.arrays.visits.size}, got shape {expected.shape}"
            )
        return expected / 2 - evidence.log_union(counts.problem, pooled=False) - counts.arrays.visits


class MixtureEvent(Event):
    r"""E_cat: :math:`n\,\mathrm{KL}(\hat p,p)\le\log(P/\delta)+R_{mix}(N)` for the :math:`P` rows at risk.

    The event of ``method="kl"``: :mod:`entropic_bpi.methods.kl.rates` has its radius, and a row is at risk when it may have
    several successors, can be reached, and what follows can depend on the next state.
    """

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem, arrays = counts.problem, counts.arrays
        concerned = problem.at_risk
        union = math.log(max(int(concerned.sum()), 1) / problem.delta_of_transitions)
        radii = evidence.mixture_radii(
            arrays.begin, arrays.used, arrays.tally, problem.slots.possible, arrays.max_outcomes
        )
        divergences = evidence.divergences(evidence.collect(mdp, counts), arrays.visits)
        return np.where(concerned & (arrays.visits > 0), divergences - union - radii, -np.inf)


class BettingEvent(Event):
    r"""E_bet, optimism whose radius does not depend on S: the wealth of no bet against :math:`Z^\star` is large.

    With :math:`d=|e^{\beta v^\ast}-e^{\beta v}|` the distance of an outcome :math:`v` (reward and optimal value of the next
    state) to the best possible one :math:`v^\ast`, :math:`W_n(\theta)=\prod_i(1-\theta+\theta\,d(X_i)/pd)` is a martingale
    for every :math:`\theta\in[0,1]`, and mixed over the arcsine law

    .. math:: \max_\theta\log W_n(\theta)\le\log\frac P\delta+c_2(n), \qquad
       c_2(n)=\log\frac{\sqrt\pi\,\Gamma(n+1)}{\Gamma(n+\frac12)}

    for all :math:`n` with probability :math:`1-\delta/P`. It implies that :math:`pZ^\star` is within the KL ball of radius
    :math:`(\log(P/\delta)+c_2(n))/n`, on the optimistic side. :math:`P` counts the rows at risk at each step, also when
    counts are pooled, because :math:`Z^\star` changes with the step.
    """

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem, n = counts.problem, counts.arrays.visits
        union = math.log(max(sum(int(places.sum()) for _, places in evidence.claimed_rows(problem)), 1) / problem.delta)
        limit = 0.5 * math.log(math.pi) + special.gammaln(n + 1) - special.gammaln(n + 0.5)
        seen, result = evidence.collect(mdp, counts), np.full(problem.n_rows, -np.inf)
        for claimed, ratio, differs in evidence.bets(mdp, problem, seen):
            wealth = evidence.largest_wealth(seen.first, seen.times, ratio)
            excess = np.where(claimed[seen.rows] & differs, wealth - union - limit[seen.rows], -np.inf)
            result[seen.rows] = np.maximum(result[seen.rows], excess)
        return result


class RewardEvent(Event):
    r"""E_rew: the certainty equivalents of random rewards lie in their bounds (``entropic_bpi.methods.kl.rewards``).

    For one β, an environment with random rewards :math:`R` has the values of the model with the fixed rewards
    :math:`\tilde r=\frac1\beta\log E\,e^{\beta R}` on (s, a, s'). ``mdp`` must be that model, with the observations and the
    absorbing end as its states. The excess is in units of reward; where rewards are fixed, nothing is claimed.
    """

    share = 1 / 2

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem = counts.problem
        result = np.full(problem.n_rows, -np.inf)
        if not problem.random_rewards:
            return result
        arrays = RewardBounds(problem, planning_beta(problem)).arrays(counts)
        rows, slots = counts.occupied_slots()
        learned = (arrays.tally[slots] > 0) & (rows < problem.n_rows - problem.artificial)
        rows, slots = rows[learned], slots[learned]
        truth = evidence.true_rewards(mdp, rows, arrays.successor[slots])
        np.maximum.at(result, rows, np.maximum(arrays.low[0, slots] - truth, truth - arrays.high[0, slots]))
        return result


EVENTS: dict[str, type[Event]] = {
    "E_KL": KLEvent,
    "E_Z": BernsteinEvent,
    "E_cnt": CountEvent,
    "E_cat": MixtureEvent,
    "E_bet": BettingEvent,
    "E_rew": RewardEvent,
}
"""The events, by their names in methods and tables."""


def expected_visits(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Compute the probability that an episode visits each step, state and action.

    Parameters
    ----------
    mdp : FiniteMDP
        The true model.
    policy : int array ``(H, S)``
        The policy that is played.

    Returns
    -------
    float array ``(H, S, A)``
        The probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.lab.events import expected_visits
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> visits = expected_visits(bridge, np.zeros((7, 8), dtype=int))
    >>> visits.sum(axis=(1, 2)).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    mdp = check_model(mdp)
    policy = mdp.check_policy(policy)
    visits = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions))
    for h, (states, masses, _) in enumerate(walk_model(mdp, policy)):
        visits[h, states, policy[h, states]] = masses
    return visits
