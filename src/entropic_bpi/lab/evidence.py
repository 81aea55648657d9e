"""The counts and the true model, row by row, for the concentration events.

Results that depend only on the model and the problem are cached, because a run needs them at every plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import allocating, compiled
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import solve
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem

BISECTIONS = 60


def log_union(problem: Problem, pooled: bool) -> float:
    """Compute log(3SAH/δ), or over (s, a) for pooled rows; a random start is one more step."""
    pairs = problem.n_states * problem.n_actions
    rows = pairs + problem.artificial if pooled else pairs * problem.steps
    return math.log(3 * rows / problem.delta)


def log_8e(n: np.ndarray) -> np.ndarray:
    return 1.0 + np.log(8.0 * (n + 1.0))


@lru_cache(maxsize=8)
def optimal_values(mdp: FiniteMDP, beta: float) -> np.ndarray:
    """Return V* ``(H + 1, S)``."""
    return solve(mdp, beta).values


@lru_cache(maxsize=8)
def claimed_rows(problem: Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each entry of :func:`steps_of_rows` with the rows for which the event claims something at that step."""
    places = dict(problem.places_at_risk)
    result: list[tuple[np.ndarray, np.ndarray]] = []
    for step in steps_of_rows(problem):
        claimed = np.zeros(problem.n_rows, dtype=bool)
        for h in set(step.tolist()):
            planned = h + problem.artificial
            if planned in places and not (h < 0 and result):  # the artificial row has one step
                claimed[problem.rows_at(planned, places[planned])] = True
        result.append((step, claimed & problem.at_risk))
    return result


class RowData(NamedTuple):
    """Counts and true probabilities of the next states of visited rows, if they are possible or were seen.

    ``row``, ``state``, ``p`` and ``times`` have one entry per (row, next state), sorted; ``first`` has the index of the
    first entry of each of the ``rows``, and ``group`` the index in ``rows`` of each entry.
    """

    row: np.ndarray
    state: np.ndarray
    p: np.ndarray
    times: np.ndarray
    first: np.ndarray
    rows: np.ndarray
    group: np.ndarray

    def of_row(self, combine: np.ufunc, entries: np.ndarray) -> np.ndarray:
        """Return the sum, or the maximum, of the entries of each row."""
        return combine.reduceat(entries, self.first) if len(self.first) else np.empty(0)


def collect(mdp: FiniteMDP, counts: Counts) -> RowData:
    n_states = counts.problem.n_states
    keys, p = _true_rows(mdp, counts.problem)
    row, slot = counts.occupied_slots()
    observed = counts.arrays.tally[slot] > 0
    row, slot = row[observed], slot[observed]
    seen, times = row * n_states + counts.arrays.successor[slot], counts.arrays.tally[slot]
    known = len(keys)
    keys, position = np.unique(np.concatenate([keys, seen]), return_inverse=True)  # also impossible successors
    p, position = np.bincount(position[:known], p, len(keys)), position[known:]
    total = np.bincount(position, times, len(keys))
    row, state = np.divmod(keys, n_states)
    visited = counts.arrays.visits[row] > 0
    row = row[visited]
    begins = np.diff(row, prepend=-1) > 0
    first = np.flatnonzero(begins)
    return RowData(row, state[visited], p[visited], total[visited], first, row[first], np.cumsum(begins) - 1)


@lru_cache(maxsize=8)
def _true_rows(mdp: FiniteMDP, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the possible successors of every row of the counts, as sorted ``row * S + state``, and their probabilities."""
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


def true_rewards(mdp: FiniteMDP, rows: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """Return the rewards of these transitions in the model; NaN for those that are impossible in it."""
    step, pair = np.divmod(rows, mdp.n_states * mdp.n_actions)
    paid = np.full(len(rows), np.nan)
    for h in np.unique(step):
        here = np.flatnonzero(step == h)
        table: Any = mdp._chosen_rows(h, pair[here])
        asked = np.repeat(here, np.diff(table.indptr))
        found = table.indices == successors[asked]
        paid[asked[found]] = table.rewards[found]
    return paid


def steps_of_rows(problem: Problem) -> list[np.ndarray]:
    """Return the step of each row, -1 for the artificial one; pooled rows have every step in turn."""
    if problem.stationary:
        steps = [np.full(problem.n_rows, step) for step in range(problem.horizon)]
    else:
        steps = [np.arange(problem.n_rows) // (problem.n_states * problem.n_actions)]
    if problem.artificial:
        for step in steps:
            step[-1] = -1
    return steps


def divergences(seen: RowData, visits: np.ndarray) -> np.ndarray:
    """Compute n KL(p̂, p) of each row; infinite if something impossible was seen."""
    n = visits[seen.row]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(seen.times > 0, seen.times * (np.log(seen.times / n) - np.log(seen.p)), 0.0)
    return np.bincount(seen.row, weights=terms, minlength=len(visits))


def _rewards(problem: Problem, slot: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return 0 where rewards do not depend on the next state, and at the artificial step."""
    if not problem.next_state_rewards:
        return np.zeros(len(slot))
    table = problem.slots.low
    return np.where(step < 0, 0.0, table[0 if len(table) == 1 else np.maximum(step, 0), slot])


@lru_cache(maxsize=8)
def _outcomes(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, next state and slot of each outcome that is declared possible, sorted; the slot has the reward."""
    slots, n_states = problem.slots, problem.n_states
    if slots.successor[0] == n_states:  # one slot stands for every state that was not seen
        row, state = np.divmod(np.arange(problem.n_rows * n_states), n_states)
        return row, state, np.zeros_like(row)
    row = np.repeat(np.arange(problem.n_rows), slots.used)
    slot = np.arange(len(row)) + np.repeat(slots.begin - np.cumsum(slots.used) + slots.used, slots.used)
    order = np.lexsort((slots.successor[slot], row))
    return row[order], slots.successor[slot][order], slot[order]


def bets(mdp: FiniteMDP, problem: Problem, seen: RowData) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each step the rows with a claim, d/pd of each entry, and which rows have an entry with d > 0."""
    values, (row, state, slot) = optimal_values(mdp, problem.beta), _outcomes(problem)
    position = np.searchsorted(row * problem.n_states + state, seen.row * problem.n_states + seen.state)
    own_slot = slot[np.minimum(position, len(slot) - 1)]
    for step, claimed in claimed_rows(problem):
        sums = values[step[row] + 1, state] + _rewards(problem, slot, step[row])
        best = np.maximum.reduceat(sums, np.flatnonzero(np.diff(row, prepend=-1)))
        outcome = values[step[seen.row] + 1, seen.state] + _rewards(problem, own_slot, step[seen.row])
        distance = -growth(problem.beta, outcome - best[seen.row])
        mean = seen.of_row(np.add, seen.p * distance)
        yield claimed, distance / np.where(mean > 0, mean, 1.0)[seen.group], mean > 0


def growth(beta: float, x: np.ndarray) -> np.ndarray:
    """Compute (e^{βx} - 1)/β; x at β = 0."""
    return x if beta == 0 else np.expm1(beta * x) / beta


@allocating
def mixture_radii(
    begin: np.ndarray, used: np.ndarray, tally: np.ndarray, possible: np.ndarray, most: np.ndarray
) -> np.ndarray:
    """Compute R_mix of every row."""
    radii = np.empty(begin.size)
    for row in range(begin.size):
        radii[row] = mixture_radius(tally[begin[row] : begin[row] + used[row]], possible[row], most[row])
    return radii


@allocating
def largest_wealth(first: np.ndarray, times: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Compute for each row the max over θ in [0, 1] of Σ N log(1 - θ + θ w), by bisection, as it is concave."""
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
