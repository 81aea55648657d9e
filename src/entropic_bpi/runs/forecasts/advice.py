"""Declarations that agree with everything that a run has seen.

A declaration that agrees with the data need not be true, which only the user can know. Its effect on the length of a run is
estimated by trial runs (:mod:`entropic_bpi.runs.forecasts.trial`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

# A range is worth declaring if it is narrower than this part of the one that is known.
NARROW = 0.9


def true_of(mdp: FiniteMDP, declared: Declarations) -> list[dict[str, Any]]:
    """Return the declarations that are true of a model and were not made."""
    found: list[dict[str, Any]] = []
    if mdp.stationary and mdp.horizon > 1 and not (declared.stationary or declared.noise) and declared.discount is None:
        found.append({"stationary": True})
    if declared.successors is None and declared.noise is None:
        found += [{"noise": "model"}] if mdp.mechanics is not None else []
        found.append({"successors": "model"})
        most = most_successors(mdp)
        if declared.max_successors is None and most < mdp.n_states:
            found.append({"max_successors": most})
    return found


def most_successors(mdp: FiniteMDP) -> int:
    """Return the largest number of possible next states of a state and action."""
    return max(int(np.diff(mdp.step_rows(h).indptr).max()) for h in range(1 if mdp.stationary else mdp.horizon))


def fitting(counts: Counts, declared: Declarations) -> list[dict[str, Any]]:
    """Return the declarations that agree with all transitions seen of an environment and were not made."""
    if not counts.episodes:
        return []
    problem, seen = counts.problem, counts.transitions()
    n, first, played = problem.n_states, _first_states(problem, seen), seen.rows < problem.n_rows - problem.artificial
    rows, successors, paid = (column[played] for column in (seen.rows, seen.successors, seen.rewards))
    states = len(np.union1d(first, successors[successors < n - 1]))
    outcomes = np.column_stack([rows % (n * problem.n_actions), successors, paid * (not problem.random_rewards)])
    most = np.unique(np.unique(outcomes, axis=0)[:, 0], return_counts=True)[1].max()
    one_reward = len(np.unique(rows * n + successors)) == len(rows) and not (seen.upper > seen.rewards).any()
    low, high = returns_along(problem, seen)
    fixed, free = declared.reward_law in (None, "fixed"), declared.successors is None and declared.noise is None
    whole = declared.return_range is None and declared.discount is None and fixed
    narrow = 0 < high - low < NARROW * problem.return_spread
    useful: dict[str, tuple[Any, bool]] = {
        "start": ("fixed", declared.start is None and len(np.unique(first)) == 1),
        "stationary": (True, declared.stationary is False),
        "reward_law": ("fixed", one_reward and not fixed),
        "max_states": (states, free and states < n - 1),
        "max_successors": (int(most), free and declared.max_successors is None),
        # The range of the rewards is not proposed: a reward outside may not have been seen yet, and no trial looks for it.
        "return_range": ((low, high), whole and narrow),
    }
    return [{name: value} for name, (value, fits) in useful.items() if fits]


def all_together(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all declarations at once, if there are several; those that others imply are left out."""
    every = {name: value for one in found for name, value in one.items()}
    implied = {"noise": ("successors", "max_successors", "stationary"), "successors": ("max_successors",)}
    for name in (name for stronger, names in implied.items() if stronger in every for name in names):
        every.pop(name, None)
    return [every] if len(every) > 1 else []


def as_options(declared: dict[str, Any]) -> Iterator[str]:
    """Yield a declaration as options of the command line."""
    for name, value in declared.items():
        yield f"--{name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        yield from (repr(item) if isinstance(item, float) else str(item) for item in values)


def returns_along(problem: Problem, seen: Transitions) -> tuple[float, float]:
    """Return the smallest and the largest return of all sequences of transitions that were seen."""
    moves = []
    for h in reversed(range(problem.artificial, problem.steps)):
        at = np.isin(seen.rows, problem.rows_at(h, np.arange(problem.n_states)))
        states = seen.rows[at] // problem.n_actions % problem.n_states
        moves.append((states, seen.successors[at], seen.rewards[at]))
    *_, (low, high) = extremes(moves, problem.n_states)
    first = _first_states(problem, seen)
    return float(low[first].min()), float(high[first].max())


def extremes(moves: Iterable[Sequence[np.ndarray]], n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the smallest and the largest return from each of n states, after each step from the last one backwards.

    ``moves`` are the states, next states and rewards of each step; nothing is earned where there is no move.
    """
    low, high = np.zeros(n), np.zeros(n)
    for states, following, rewards in moves:
        lows, highs = np.full(n, math.inf), np.full(n, -math.inf)
        np.minimum.at(lows, states, rewards + low[following])
        np.maximum.at(highs, states, rewards + high[following])
        low, high = np.where(np.isfinite(lows), lows, 0.0), np.where(np.isfinite(highs), highs, 0.0)
        yield low, high


def _first_states(problem: Problem, seen: Transitions) -> np.ndarray:
    return seen.successors[seen.rows == problem.n_rows - 1] if problem.artificial else np.array([problem.first_state])
