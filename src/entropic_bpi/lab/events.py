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
- :class:`BettingEvent`, 1: :math:`\max_\theta\log W_n(\theta)\le\log(P/\delta)+c_2(n)`;
- :class:`RewardEvent`, 1/2: the certainty equivalents of random rewards lie between their bounds. Then the fourth has
  :math:`\log(2P/\delta)`, and 1/2 as well.

The first three are the good event of the paper's method, the fourth alone that of ``method="kl"``; the last is a version
of optimism whose radius does not depend on the number of successors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import special

from entropic_bpi.compile.decorators import allocating, compiled
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.method import planning_beta
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.methods.kl.rewards import RewardBounds
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.model.planning import solve
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.tools.checks import check_policy

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

BISECTIONS = 60


class Event(ABC):
    """A concentration event; ``share`` times δ bounds the probability that it ever fails."""

    share: ClassVar[float] = 1.0

    def holds(self, mdp: FiniteMDP, counts: Counts) -> bool:
        """Whether the event holds for these counts of episodes of ``mdp``."""
        return self.violations(mdp, counts).size == 0

    def violations(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        """The rows of ``counts`` where it fails; ``counts.problem.place(row)`` says where that is."""
        return np.flatnonzero(~(self.excess(mdp, counts) <= 0))  # what cannot be computed has not been shown to hold

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
    >>> from entropic_bpi.problem.counts import Counts
    >>> from entropic_bpi.lab.events import KLEvent
    >>> from entropic_bpi.problem.problem import Problem
    >>> from entropic_bpi.types import Transitions
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
        return np.where(n > 0, _divergences(_evidence(mdp, counts), n) - alpha, -np.inf)


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
        rates = (_log_union(problem, pooled=False) + _log_8e(n)) / np.maximum(n, 1)
        result = np.full(problem.n_rows, -np.inf)
        values = _optimal_values(mdp, problem.beta)
        seen = _evidence(mdp, counts)
        for step in _steps(problem):
            value = values[step[seen.row] + 1, seen.state]
            # Z up to shift and scale, without overflow: measured from the end of the row where it is largest
            end = seen.of_row(np.maximum, value) if problem.beta >= 0 else seen.of_row(np.minimum, value)
            z = _growth(problem.beta, value - end[seen.group])
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
                span > 0,
                deviation - np.sqrt(2 * variance * rate) - 3 * rate,
                np.where(surprised, np.inf, -np.inf),
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
        if expected.shape != counts.ledger.visits.shape:
            raise InvalidProblemError(
                f"expected must have one entry per row, {counts.ledger.visits.size}, got shape {expected.shape}"
            )
        return expected / 2 - _log_union(counts.problem, pooled=False) - counts.ledger.visits


class MixtureEvent(Event):
    r"""E_cat: :math:`n\,\mathrm{KL}(\hat p,p)\le\log(P/\delta)+R_{mix}(N)` for the :math:`P` rows at risk.

    The event of ``method="kl"``: :mod:`entropic_bpi.methods.kl.rates` has its radius, and a row is at risk when it may have
    several successors, can be reached, and what follows can depend on the next state.
    """

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem, ledger = counts.problem, counts.ledger
        concerned = _concerned(problem)
        union = math.log(max(int(concerned.sum()), 1) / problem.delta_of_transitions)
        radii = _radii(ledger.begin, ledger.used, ledger.tally, problem.slots.possible, ledger.most)
        divergences = _divergences(_evidence(mdp, counts), ledger.visits)
        return np.where(concerned & (ledger.visits > 0), divergences - union - radii, -np.inf)


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
        problem, n = counts.problem, counts.ledger.visits
        union = math.log(max(sum(int(places.sum()) for _, places in _places(problem)), 1) / problem.delta)
        limit = 0.5 * math.log(math.pi) + special.gammaln(n + 1) - special.gammaln(n + 0.5)
        seen, result = _evidence(mdp, counts), np.full(problem.n_rows, -np.inf)
        for claimed, ratio, told in _bets_of(mdp, problem, seen):
            wealth = _largest_wealth(seen.first, seen.times, ratio)
            excess = np.where(claimed[seen.rows] & told, wealth - union - limit[seen.rows], -np.inf)
            result[seen.rows] = np.maximum(result[seen.rows], excess)
        return result


class RewardEvent(Event):
    r"""E_rew: what random rewards are worth at β lies between its bounds (``entropic_bpi.methods.kl.rewards``).

    For one β an environment with random rewards :math:`R` is worth what the model with the fixed rewards
    :math:`\tilde r=\frac1\beta\log E\,e^{\beta R}` on (s, a, s') is: ``mdp`` must be that one, with the observations and the
    absorbing end as its states. The excess is in units of reward; where rewards are fixed, nothing is claimed.
    """

    share = 1 / 2

    def excess(self, mdp: FiniteMDP, counts: Counts) -> np.ndarray:
        problem = counts.problem
        result = np.full(problem.n_rows, -np.inf)
        if not problem.random_rewards:
            return result
        ledger = RewardBounds(problem, planning_beta(problem)).ledger(counts)
        rows, slots = counts.occupied_slots()
        learned = (ledger.tally[slots] > 0) & (rows < problem.n_rows - problem.artificial)
        rows, slots = rows[learned], slots[learned]
        truth = _paid(mdp, rows, ledger.successor[slots])
        np.maximum.at(result, rows, np.maximum(ledger.low[0, slots] - truth, truth - ledger.high[0, slots]))
        return result


EVENTS: dict[str, type[Event]] = {
    "E_KL": KLEvent,
    "E_Z": BernsteinEvent,
    "E_cnt": CountEvent,
    "E_cat": MixtureEvent,
    "E_bet": BettingEvent,
    "E_rew": RewardEvent,
}
"""By the names under which methods and tables mention them."""


def expected_visits(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """The chance ``(H, S, A)`` that an episode under ``policy`` ``(H, S)`` visits each step, state and action.

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
    policy = check_policy(policy, check_model(mdp).horizon, mdp.n_states, mdp.n_actions)
    visits = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions))
    occupied, states = mdp.start_distribution, np.arange(mdp.n_states)
    for h in range(mdp.horizon):
        visits[h, states, policy[h]] = occupied
        rows = mdp.step_rows(h)
        flow = np.repeat(visits[h].ravel(), np.diff(rows.indptr)) * rows.probabilities
        occupied = np.bincount(rows.indices, weights=flow, minlength=mdp.n_states)
    return visits


# -- shared parts --------------------------------------------------------------------------------------------
# What depends on the model and the problem alone is remembered, because a run asks for it at every plan.


def _log_union(problem: Problem, pooled: bool) -> float:
    """log(3SAH/δ), or over (s, a) for pooled rows; a random start is one more step."""
    pairs = problem.n_states * problem.n_actions
    rows = pairs + problem.artificial if pooled else pairs * problem.steps
    return math.log(3 * rows / problem.delta)


def _log_8e(n: np.ndarray) -> np.ndarray:
    return 1.0 + np.log(8.0 * (n + 1.0))


@lru_cache(maxsize=8)
def _optimal_values(mdp: FiniteMDP, beta: float) -> np.ndarray:
    """V* ``(H + 1, S)``."""
    return solve(mdp, beta).values


@lru_cache(maxsize=8)
def _concerned(problem: Problem) -> np.ndarray:
    return problem.at_risk


@lru_cache(maxsize=8)
def _places(problem: Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each of :func:`_steps` with the rows about which something is claimed there: those at risk at that very step."""
    places = dict(problem.places_at_risk)
    result: list[tuple[np.ndarray, np.ndarray]] = []
    for step in _steps(problem):
        claimed = np.zeros(problem.n_rows, dtype=bool)
        for h in set(step.tolist()):
            planned = h + problem.artificial
            if planned in places and not (h < 0 and result):  # the artificial row has one step, whatever is pooled
                claimed[problem.rows_at(planned, places[planned])] = True
        result.append((step, claimed & problem.at_risk))
    return result


class _Evidence(NamedTuple):
    """What was seen beside the truth, for the next states of visited rows that are possible or were seen.

    ``row``, ``state``, ``p`` and ``times`` have one entry per (row, next state), sorted; ``first`` is where each of the
    ``rows`` begins, and ``group`` which of them an entry belongs to.
    """

    row: np.ndarray
    state: np.ndarray
    p: np.ndarray
    times: np.ndarray
    first: np.ndarray
    rows: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, row: np.ndarray, state: np.ndarray, p: np.ndarray, times: np.ndarray) -> _Evidence:
        begins = np.diff(row, prepend=-1) > 0
        first = np.flatnonzero(begins)
        return cls(row, state, p, times, first, row[first], np.cumsum(begins) - 1)

    def of_row(self, combine: np.ufunc, entries: np.ndarray) -> np.ndarray:
        """The sum, or the maximum, of the entries of each row."""
        return combine.reduceat(entries, self.first) if len(self.first) else np.empty(0)


def _evidence(mdp: FiniteMDP, counts: Counts) -> _Evidence:
    n_states = counts.problem.n_states
    keys, p = _true_rows(mdp, counts.problem)
    row, slot = counts.occupied_slots()
    observed = counts.ledger.tally[slot] > 0
    row, slot = row[observed], slot[observed]
    seen, times = row * n_states + counts.ledger.successor[slot], counts.ledger.tally[slot]
    position = np.searchsorted(keys, seen)
    if len(keys) == 0 or (keys[np.minimum(position, len(keys) - 1)] != seen).any():  # the impossible was seen
        known = len(keys)
        keys, position = np.unique(np.concatenate([keys, seen]), return_inverse=True)
        p, position = np.bincount(position[:known], p, len(keys)), position[known:]
    total = np.bincount(position, times, len(keys))
    row, state = np.divmod(keys, n_states)
    visited = counts.ledger.visits[row] > 0
    return _Evidence.of(row[visited], state[visited], p[visited], total[visited])


@lru_cache(maxsize=8)
def _true_rows(mdp: FiniteMDP, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The possible successors of every row of the counts, as sorted ``row * S + state``, and their probabilities."""
    rows, n_rows = mdp.rows, problem.n_rows - problem.artificial
    repeats = n_rows // (len(rows.indptr) - 1)  # the model may be stationary where the counts are not pooled
    keys = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr)) * problem.n_states + rows.indices
    offset = np.arange(repeats) * (len(rows.indptr) - 1) * problem.n_states
    keys, p = (keys + offset[:, None]).ravel(), np.tile(rows.probabilities, repeats)
    if problem.artificial:
        states = np.flatnonzero(mdp.start_distribution > 0)
        keys = np.concatenate([keys, n_rows * problem.n_states + states])
        p = np.concatenate([p, mdp.start_distribution[states]])
    order = np.argsort(keys)
    return keys[order], p[order]


def _paid(mdp: FiniteMDP, rows: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """What the model pays for these transitions; NaN for those that are impossible in it."""
    step, pair = np.divmod(rows, mdp.n_states * mdp.n_actions)
    paid = np.empty(len(rows))
    for h in np.unique(step):
        here, table = step == h, mdp.step_rows(h)
        if table.rewards is None:
            paid[here] = mdp.step_rewards(h).ravel()[pair[here]]
            continue
        keys = np.repeat(np.arange(len(table.indptr) - 1), np.diff(table.indptr)) * mdp.n_states + table.indices
        wanted = pair[here] * mdp.n_states + successors[here]
        entry = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        paid[here] = np.where(keys[entry] == wanted, table.rewards[entry], np.nan)
    return paid


def _steps(problem: Problem) -> list[np.ndarray]:
    """The step of each row, -1 for the artificial one; pooled rows have every step in turn."""
    if problem.stationary:
        steps = [np.full(problem.n_rows, step) for step in range(problem.horizon)]
    else:
        steps = [np.arange(problem.n_rows) // (problem.n_states * problem.n_actions)]
    if problem.artificial:
        for step in steps:
            step[-1] = -1
    return steps


def _divergences(seen: _Evidence, visits: np.ndarray) -> np.ndarray:
    """n KL(p̂, p) of each row; infinite when something impossible was seen."""
    n = visits[seen.row]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(seen.times > 0, seen.times * (np.log(seen.times / n) - np.log(seen.p)), 0.0)
    return np.bincount(seen.row, weights=terms, minlength=len(visits))


class _Outcomes(NamedTuple):
    """The next states that are declared possible, one entry per (row, next state), sorted; ``slot`` has its reward."""

    row: np.ndarray
    state: np.ndarray
    slot: np.ndarray

    def best(self, problem: Problem, values: np.ndarray, step: np.ndarray) -> np.ndarray:
        """For each row, the largest sum of reward and optimal value."""
        sums = values[step[self.row] + 1, self.state] + self._rewards(problem, self.slot, step[self.row])
        return np.maximum.reduceat(sums, np.flatnonzero(np.diff(self.row, prepend=-1)))

    def rewards(self, problem: Problem, seen: _Evidence, step: np.ndarray) -> np.ndarray:
        """Rewards of what was seen."""
        declared = self.row * problem.n_states + self.state
        position = np.searchsorted(declared, seen.row * problem.n_states + seen.state)
        return self._rewards(problem, self.slot[np.minimum(position, len(declared) - 1)], step[seen.row])

    @staticmethod
    def _rewards(problem: Problem, slot: np.ndarray, step: np.ndarray) -> np.ndarray:
        """0 where rewards do not depend on the next state, and at the artificial step."""
        if not problem.next_state_rewards:
            return np.zeros(len(slot))
        table = problem.slots.low
        return np.where(step < 0, 0.0, table[0 if len(table) == 1 else np.maximum(step, 0), slot])


@lru_cache(maxsize=8)
def _outcomes(problem: Problem) -> _Outcomes:
    slots, n_states = problem.slots, problem.n_states
    if slots.successor[0] == n_states:  # "some state not seen yet" may be any
        row, state = np.divmod(np.arange(problem.n_rows * n_states), n_states)
        return _Outcomes(row, state, np.zeros_like(row))
    row = np.repeat(np.arange(problem.n_rows), slots.used)
    slot = np.arange(len(row)) + np.repeat(slots.begin - np.cumsum(slots.used) + slots.used, slots.used)
    order = np.lexsort((slots.successor[slot], row))
    return _Outcomes(row[order], slots.successor[slot][order], slot[order])


class _Bet(NamedTuple):
    """At one step, d/pd of each (row, next state) of the evidence, and the rows where any outcome differs from the best.

    ``claimed`` are the rows of the counts about which something is claimed at that step.
    """

    claimed: np.ndarray
    ratio: np.ndarray
    told: np.ndarray


def _bets_of(mdp: FiniteMDP, problem: Problem, seen: _Evidence) -> Iterator[_Bet]:
    keys, known = seen.row * problem.n_states + seen.state, _true_rows(mdp, problem)[0]
    entry = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    if not np.array_equal(known[entry], keys):  # the impossible was seen
        yield from _bets(mdp, problem, seen)
        return
    for claimed, ratio, told in _true_bets(mdp, problem):
        yield _Bet(claimed, ratio[entry], told[entry][seen.first])


@lru_cache(maxsize=8)
def _true_bets(mdp: FiniteMDP, problem: Problem) -> list[_Bet]:
    """Those of all possible transitions; ``told`` has one entry for each of them."""
    keys, p = _true_rows(mdp, problem)
    possible = _Evidence.of(*np.divmod(keys, problem.n_states), p, np.zeros(len(keys), dtype=np.int64))
    return [bet._replace(told=bet.told[possible.group]) for bet in _bets(mdp, problem, possible)]


def _bets(mdp: FiniteMDP, problem: Problem, seen: _Evidence) -> Iterator[_Bet]:
    values, outcomes = _optimal_values(mdp, problem.beta), _outcomes(problem)
    for step, claimed in _places(problem):
        outcome = values[step[seen.row] + 1, seen.state] + outcomes.rewards(problem, seen, step)
        distance = -_growth(problem.beta, outcome - outcomes.best(problem, values, step)[seen.row])
        mean = seen.of_row(np.add, seen.p * distance)
        yield _Bet(claimed, distance / np.where(mean > 0, mean, 1.0)[seen.group], mean > 0)


def _growth(beta: float, x: np.ndarray) -> np.ndarray:
    """(e^{βx} - 1)/β; x at β = 0."""
    return x if beta == 0 else np.expm1(beta * x) / beta


@allocating
def _radii(
    begin: np.ndarray, used: np.ndarray, tally: np.ndarray, possible: np.ndarray, most: np.ndarray
) -> np.ndarray:
    """R_mix of every row."""
    radii = np.empty(begin.size)
    for row in range(begin.size):
        radii[row] = mixture_radius(tally[begin[row] : begin[row] + used[row]], possible[row], most[row])
    return radii


@allocating
def _largest_wealth(first: np.ndarray, times: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """For each row, max over θ in [0, 1] of Σ N log(1 - θ + θ w): concave, so bisection on its slope."""
    largest = np.zeros(first.size)
    for i in range(first.size):
        end = first[i + 1] if i + 1 < first.size else times.size
        low, high = 0.0, 1.0
        if _slope(first[i], end, times, ratio, 0.0) <= 0.0:
            continue
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if _slope(first[i], end, times, ratio, middle) > 0.0:
                low = middle
            else:
                high = middle
        for j in range(first[i], end):
            if times[j] > 0:
                largest[i] += times[j] * math.log1p(low * (ratio[j] - 1.0))
    return largest


@compiled
def _slope(first: int, end: int, times: np.ndarray, ratio: np.ndarray, theta: float) -> float:
    slope = 0.0
    for j in range(first, end):
        if times[j] > 0:
            slope += times[j] * (ratio[j] - 1.0) / (1.0 + theta * (ratio[j] - 1.0))
    return slope
