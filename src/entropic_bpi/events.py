r"""The concentration events that the guarantees rest on, as objects: given the true model and counts, did it hold?

Every theorem of the library reads "on the event E, ... and E has probability at least :math:`1-c\,\delta`". An event here
has two questions, :meth:`Event.holds` and :meth:`Event.violations`, and ``share``, the :math:`c` of its proof. It speaks of
the counts at one moment; the theorem speaks of all moments, so checking after every plan can only find more failures,
and the bound covers them all together.

With 1-based steps, :math:`n` visits of a row with empirical successors :math:`\hat p` and true ones :math:`p`,
the events, their shares and what they claim of every row are, with :math:`L=\log(3SAH/\delta)`,

- :class:`KLEvent`, 1/3: :math:`n\,\mathrm{KL}(\hat p,p)\le\alpha(n)=L+S\log(8e(n+1))`;
- :class:`BernsteinEvent`, 1/3: :math:`|(\hat p-p)Z^\star|\le\sqrt{2\mathrm{Var}_p(Z^\star)x^\star}+3Bx^\star`,
  :math:`x^\star=(L+\log(8e(n+1)))/n`;
- :class:`CountEvent`, 1/3: :math:`n\ge\bar n/2-L`, where :math:`\bar n` sums the chances of a visit;
- :class:`MixtureEvent`, 1: :math:`n\,\mathrm{KL}(\hat p,p)\le\log(P/\delta)+R_{mix}(N)`;
- :class:`BettingEvent`, 1: :math:`\max_\theta\log W_n(\theta)\le\log(P/\delta)+c_2(n)`.

The first three are the good event of the paper's method, the fourth alone that of ``method="kl"``; the last is a version
of optimism whose radius does not depend on the number of successors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from entropic_bpi._checks import check_policy
from entropic_bpi.counts import Counts
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.mdp import FiniteMDP
from entropic_bpi.methods.rates import mixture_radius
from entropic_bpi.planning import solve
from entropic_bpi.problem import Problem

__all__ = ["BernsteinEvent", "BettingEvent", "CountEvent", "Event", "KLEvent", "MixtureEvent", "expected_visits"]

_BISECTIONS = 60


class Event(ABC):
    """A concentration event; ``share`` times δ bounds the probability that it ever fails."""

    share: ClassVar[float] = 1.0

    def holds(self, mdp: FiniteMDP, counts: Counts) -> bool:
        """Whether the event holds for these counts of episodes of ``mdp``."""
        return self.violations(mdp, counts).size == 0

    def violations(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        """The rows of ``counts`` where it fails; ``counts.problem.place(row)`` says where that is."""
        return np.flatnonzero(self.excess(mdp, counts) > 0)

    @abstractmethod
    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        """For each row, by how much the bounded quantity exceeds its bound; -inf where nothing is claimed."""


class KLEvent(Event):
    r"""E_KL: :math:`n\,\mathrm{KL}(\hat p,p)\le L+S\log(8e(n+1))` for every row.

    Pooled counts have one row per (s, a), and :math:`L=\log(3SA/\delta)`.

    Examples
    --------
    >>> import numpy as np
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.counts import Counts, Transitions
    >>> from entropic_bpi.events import KLEvent
    >>> from entropic_bpi.problem import Problem
    >>> coin = eb.FiniteMDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], horizon=2)
    >>> counts = Counts(Problem.from_mdp(coin, beta=1.0, eps=0.1, delta=0.1))
    >>> row, heads, tails = np.array([0, 0]), 90, 10
    >>> counts.add(Transitions(row, np.array([0, 1]), np.array([heads, tails])), episodes=heads + tails)
    >>> event = KLEvent()
    >>> event.holds(coin, counts), [counts.problem.place(row) for row in event.violations(coin, counts)]
    (False, ["step 0, state '0', action '0'"])
    """

    share = 1 / 3

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem = counts.problem
        n = counts.ledger.visits
        alpha = _log_union(problem, pooled=problem.stationary) + problem.n_states * _log_8e(n)
        return np.where(n > 0, _divergences(mdp, counts) - alpha, -np.inf)


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
        n = counts.ledger.visits
        rate = (_log_union(problem, pooled=False) + _log_8e(n)) / np.maximum(n, 1)
        result = np.full(problem.n_rows, -np.inf)
        values = solve(mdp, problem.beta).values
        for row, step, states, p, empirical in _visited(mdp, counts):
            z = _transformed(values[step + 1][states], problem.beta)
            span = np.ptp(z[p > 0])
            if span > 0:
                mean = p @ z
                variance = p @ (z - mean) ** 2 / span**2
                deviation = abs((empirical - p) @ z) / span
                bound = math.sqrt(2 * variance * rate[row]) + 3 * rate[row]
                result[row] = max(result[row], deviation - bound)
            elif (empirical[p == 0] > 0).any():
                result[row] = np.inf
        return result


@dataclass(frozen=True, eq=False)
class CountEvent(Event):
    r"""E_cnt: :math:`n\ge\tfrac12\bar n-L` for every row.

    Parameters
    ----------
    expected : float array, one entry per row of the counts
        :math:`\bar n`: the sum, over the episodes played, of the chance that the row would be visited, given the policy
        that was played. :func:`expected_visits` gives one episode's.
    """

    expected: np.ndarray
    share: ClassVar[float] = 1 / 3

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        expected = np.asarray(self.expected, dtype=float)
        if expected.shape != counts.ledger.visits.shape:
            raise InvalidProblemError(
                f"expected must have one entry per row, {counts.ledger.visits.size}, got shape {expected.shape}"
            )
        return expected / 2 - _log_union(counts.problem, pooled=False) - counts.ledger.visits


class MixtureEvent(Event):
    r"""E_cat: :math:`n\,\mathrm{KL}(\hat p,p)\le\log(P/\delta)+R_{mix}(N)` for the :math:`P` rows at risk.

    The event of ``method="kl"``: :mod:`entropic_bpi.methods.rates` has its radius, and a row is at risk when it has
    several possible successors, can be reached, and what follows can depend on the next state.
    """

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem, ledger = counts.problem, counts.ledger
        at_risk = _at_risk(problem)
        concerned = np.flatnonzero(at_risk & (ledger.visits > 0))
        union = math.log(max(int(at_risk.sum()), 1) / problem.delta)
        result, divergences = np.full(problem.n_rows, -np.inf), _divergences(mdp, counts)
        for row in concerned:
            tally = ledger.tally[ledger.begin[row] : ledger.begin[row] + ledger.used[row]]
            result[row] = divergences[row] - union - mixture_radius(tally, int(problem.slots.possible[row]))
        return result


class BettingEvent(Event):
    r"""S-free optimism: no bet against :math:`Z^\star` has won much.

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
        problem = counts.problem
        at_risk = _at_risk(problem)
        places = sum(int(at_risk[problem.rows_at(h, states)].sum()) for h, states in _places_at_risk(problem))
        union = math.log(max(places, 1) / problem.delta)
        values = solve(mdp, problem.beta).values
        result = np.full(problem.n_rows, -np.inf)
        for row, step, states, p, empirical in _visited(mdp, counts):
            if not at_risk[row]:
                continue
            n = int(counts.ledger.visits[row])
            possible = _possible_states(problem, row)
            outcome = values[step + 1][possible] + _rewards_of(mdp, problem, row, step, possible)
            seen = values[step + 1][states] + _rewards_of(mdp, problem, row, step, states)
            distance = -_growth(problem.beta, seen - outcome.max())
            mean = p @ distance
            if mean > 0:
                limit = 0.5 * math.log(math.pi) + special.gammaln(n + 1) - special.gammaln(n + 0.5)
                result[row] = max(result[row], _largest_wealth(n * empirical, distance / mean) - union - limit)
        return result


def expected_visits(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """The chance ``(H, S, A)`` that an episode under ``policy`` ``(H, S)`` visits each step, state and action.

    Examples
    --------
    >>> import numpy as np
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.events import expected_visits
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> visits = expected_visits(bridge, np.zeros((7, 8), dtype=int))
    >>> visits.sum(axis=(1, 2)).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    visits = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions))
    occupied, states = mdp.start_distribution, np.arange(mdp.n_states)
    for h in range(mdp.horizon):
        visits[h, states, policy[h]] = occupied
        rows = mdp.step_rows(h)
        flow = np.repeat(visits[h].ravel(), np.diff(rows.indptr)) * rows.probabilities
        occupied = np.bincount(rows.indices, weights=flow, minlength=mdp.n_states)
    return visits


# -- shared parts --------------------------------------------------------------------------------------------


def _log_union(problem: Problem, pooled: bool) -> float:
    """log(3SAH/δ), or over (s, a) for pooled rows; a random start is one more step."""
    pairs = problem.n_states * problem.n_actions
    rows = pairs + problem.artificial if pooled else pairs * problem.steps
    return math.log(3 * rows / problem.delta)


def _log_8e(n: np.ndarray) -> np.ndarray:
    return 1.0 + np.log(8.0 * (n + 1.0))


def _true_row(mdp: FiniteMDP, problem: Problem, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Successors and probabilities of a row of the counts."""
    if problem.artificial and row == problem.n_rows - 1:
        states = np.flatnonzero(mdp.start_distribution > 0)
        return states, mdp.start_distribution[states]
    rows = mdp.rows
    if mdp.stationary:
        row %= problem.n_states * problem.n_actions
    entries = slice(rows.indptr[row], rows.indptr[row + 1])
    return rows.indices[entries].astype(np.int64), rows.probabilities[entries]


def _visited(mdp: FiniteMDP, counts: Counts) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray]]:
    """For each visited row and each of its steps: row, step, next states, true and empirical probabilities.

    The step is that of the model, -1 for the artificial one.
    """
    problem = counts.problem
    seen = counts.transitions()
    first = np.searchsorted(seen.rows, np.arange(problem.n_rows + 1))
    for row in np.flatnonzero(counts.ledger.visits):
        possible, probabilities = _true_row(mdp, problem, int(row))
        block = slice(first[row], first[row + 1])
        states = np.union1d(possible, seen.successors[block])
        p, empirical = np.zeros(len(states)), np.zeros(len(states))
        p[np.searchsorted(states, possible)] = probabilities
        empirical[np.searchsorted(states, seen.successors[block])] = seen.times[block] / seen.times[block].sum()
        for step in _steps_of(problem, int(row)):
            yield int(row), step, states, p, empirical


def _steps_of(problem: Problem, row: int) -> range:
    if problem.artificial and row == problem.n_rows - 1:
        return range(-1, 0)
    if problem.stationary:
        return range(problem.horizon)
    step = row // (problem.n_states * problem.n_actions)
    return range(step, step + 1)


def _divergences(mdp: FiniteMDP, counts: Counts) -> np.ndarray:
    """n KL(p̂, p) of each row; infinite when something impossible was seen."""
    seen = counts.transitions()
    n = counts.ledger.visits
    p = np.empty(len(seen.rows))
    for row in np.unique(seen.rows):
        states, probabilities = _true_row(mdp, counts.problem, int(row))
        block = slice(*np.searchsorted(seen.rows, [row, row + 1]))
        order = np.argsort(states)
        position = np.minimum(np.searchsorted(states[order], seen.successors[block]), len(states) - 1)
        found = states[order][position] == seen.successors[block]
        p[block] = np.where(found, probabilities[order][position], 0.0)
    with np.errstate(divide="ignore"):
        terms = seen.times * (np.log(seen.times / n[seen.rows]) - np.log(p))
    return np.bincount(seen.rows, weights=terms, minlength=counts.problem.n_rows)


def _places_at_risk(problem: Problem) -> list[tuple[int, np.ndarray]]:
    """Planned steps and their reachable states at which what follows can depend on the next state."""
    frame = problem.frame
    places = []
    for h in range(problem.steps):
        last = h == problem.steps - 1 and not (problem.artificial and h == 0)
        if not last or problem.next_state_rewards:
            places.append((h, frame.states[frame.first_state[h] : frame.first_state[h + 1]]))
    return places


def _at_risk(problem: Problem) -> np.ndarray:
    """The rows that :func:`entropic_bpi.methods.kl.rows_at_risk` counts."""
    mask = np.zeros(problem.n_rows, dtype=bool)
    for h, states in _places_at_risk(problem):
        mask[problem.rows_at(h, states)] = True
    return mask & (problem.slots.possible > 1)


def _possible_states(problem: Problem, row: int) -> np.ndarray:
    slots = problem.slots
    states = slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]]
    return np.arange(problem.n_states) if states[0] == problem.n_states else states


def _rewards_of(mdp: FiniteMDP, problem: Problem, row: int, step: int, states: np.ndarray) -> np.ndarray:
    """Rewards of going to ``states``; 0 where they do not depend on them."""
    if not problem.next_state_rewards or step < 0:
        return np.zeros(len(states))
    slots = problem.slots
    block = slice(slots.begin[row], slots.begin[row] + slots.used[row])
    table = slots.low[0 if len(slots.low) == 1 else step, block]
    order = np.argsort(slots.successor[block])
    position = np.searchsorted(slots.successor[block][order], states)
    return np.asarray(table[order][np.minimum(position, len(order) - 1)])


def _transformed(values: np.ndarray, beta: float) -> np.ndarray:
    """Z up to shift and scale, without overflow: (e^{β(v - v₀)} - 1)/β with v₀ the end where Z is largest."""
    return _growth(beta, values - (values.max() if beta >= 0 else values.min()))


def _growth(beta: float, x: np.ndarray) -> np.ndarray:
    """(e^{βx} - 1)/β; x at β = 0."""
    return x if beta == 0 else np.expm1(beta * x) / beta


def _largest_wealth(tally: np.ndarray, ratio: np.ndarray) -> float:
    """max over θ in [0, 1] of Σ N log(1 - θ + θ w): concave, so bisection on its slope."""
    tally, gain = tally[tally > 0], ratio[tally > 0] - 1
    low, high = 0.0, 1.0
    if tally @ gain <= 0:
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if (tally * gain / (1 + middle * gain)).sum() > 0:
            low = middle
        else:
            high = middle
    return float(tally @ np.log1p(low * gain))
