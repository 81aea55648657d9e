"""Which declarations agree with everything that a run has seen.

One that agrees need not be true: that is for the user to know. What it would bring is measured by trial runs
(:func:`entropic_bpi.runs.forecasts.trial.measured`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

# A range is worth declaring if it is narrower than this part of the one that is known.
_NARROW = 0.9


class Candidates(NamedTuple):
    """Declarations that could be made.

    Attributes
    ----------
    declarations : tuple of dict
    seen : Seen or None
        What they agree with; None if they are true of a model.
    """

    declarations: tuple[dict[str, Any], ...] = ()
    seen: Seen | None = None


def true_of(mdp: FiniteMDP, declared: Declarations) -> Candidates:
    """What is true of a model and was not declared."""
    found: list[dict[str, Any]] = []
    if mdp.stationary and mdp.horizon > 1 and not (declared.stationary or declared.noise) and declared.discount is None:
        found.append({"stationary": True})
    if declared.successors is None and declared.noise is None:
        found += [{"noise": "model"}] if mdp.mechanics is not None else []
        found.append({"successors": "model"})
        most = most_successors(mdp)
        if declared.max_successors is None and most < mdp.n_states:
            found.append({"max_successors": most})
    return Candidates(tuple(found))


def most_successors(mdp: FiniteMDP) -> int:
    """The largest number of possible next states of a state and action."""
    return max(int(np.diff(mdp.step_rows(h).indptr).max()) for h in range(1 if mdp.stationary else mdp.horizon))


@dataclass
class Seen:
    """What the transitions of an environment say, whatever the numbers of its states.

    Attributes
    ----------
    starts, states : set of str
        Names of the first states, and of all states but the end.
    outcomes : dict
        For each state and action, the different outcomes: next state and, if rewards are fixed, reward.
    one_reward : bool
        Whether every state, action and next state had one reward.
    rewards, returns : (float, float)
        The smallest and the largest one; of the returns, along the transitions whichever way they are put together.
    """

    starts: set[str]
    states: set[str]
    outcomes: dict[tuple[str, int], set[tuple[str, float]]]
    one_reward: bool
    rewards: tuple[float, float]
    returns: tuple[float, float]

    @classmethod
    def of(cls, counts: Counts) -> Seen:
        problem, seen = counts.problem, counts.transitions()
        names, n_actions = problem.state_names, problem.n_actions
        played = seen.rows < problem.n_rows - int(problem.artificial)
        upper = seen.upper if len(seen.upper) else seen.rewards
        rows, successors, rewards = seen.rows[played], seen.successors[played], seen.rewards[played]
        outcomes: dict[tuple[str, int], set[tuple[str, float]]] = {}
        for row, successor, reward in zip(rows.tolist(), successors.tolist(), rewards.tolist(), strict=True):
            state, action = divmod(row, n_actions)
            outcome = names[successor], 0.0 if problem.random_rewards else reward
            outcomes.setdefault((names[state % problem.n_states], action), set()).add(outcome)
        first = _first_states(problem, seen)
        return cls(
            starts={names[s] for s in first},
            states={names[s] for s in (*first, *seen.successors[seen.successors < problem.n_states - 1])},
            outcomes=outcomes,
            one_reward=len(set(zip(rows, successors, strict=True))) == len(rows)
            and bool((upper == seen.rewards).all()),
            rewards=(float(rewards.min()), float(upper[played].max())),
            returns=returns_along(problem, seen),
        )

    @property
    def max_successors(self) -> int:
        return max(map(len, self.outcomes.values()))

    def __or__(self, other: Seen) -> Seen:
        pairs, none = self.outcomes.keys() | other.outcomes.keys(), set[tuple[str, float]]()
        return Seen(
            self.starts | other.starts,
            self.states | other.states,
            {pair: self.outcomes.get(pair, none) | other.outcomes.get(pair, none) for pair in pairs},
            self.one_reward and other.one_reward,
            _hull(self.rewards, other.rewards),
            _hull(self.returns, other.returns),
        )

    def contradicts(self, declared: dict[str, Any]) -> bool:
        """Whether something that was seen does not agree with a declaration or, put together differently, might not."""
        ranges = (("reward_range", self.rewards), ("return_range", self.returns))
        return (
            ("start" in declared and len(self.starts) > 1)
            or declared.get("max_states", math.inf) < len(self.states)
            or declared.get("max_successors", math.inf) < self.max_successors
            or (declared.get("reward_law") == "fixed" and not self.one_reward)
            or any(name in declared and _hull(declared[name], seen) != tuple(declared[name]) for name, seen in ranges)
        )


def _hull(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])


def fitting(counts: Counts, declared: Declarations) -> Candidates:
    """What agrees with all transitions that were seen of an environment and was not declared."""
    if not counts.episodes:
        return Candidates()
    seen, problem, found = Seen.of(counts), counts.problem, list[dict[str, Any]]()
    fixed = declared.reward_law in (None, "fixed")
    if declared.start is None and len(seen.starts) == 1:
        found.append({"start": "fixed"})
    if declared.stationary is False:
        found.append({"stationary": True})
    if not fixed and seen.one_reward:
        found.append({"reward_law": "fixed"})
    if declared.successors is None and declared.noise is None:
        if len(seen.states) < problem.n_states - 1:
            found.append({"max_states": len(seen.states)})
        if declared.max_successors is None:
            found.append({"max_successors": seen.max_successors})
    # Not the range of the rewards seen: one that is still to be found may lie outside, and nothing would look for it.
    if declared.return_range is None and declared.discount is None and fixed:
        low, high = seen.returns
        if low < high and high - low < _NARROW * problem.return_spread:
            found.append({"return_range": (low, high)})
    return Candidates(tuple(found), seen)


def all_together(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All declarations at once, where there are several; to name the successors says more than to count them."""
    every = {name: value for one in found for name, value in one.items()}
    implied = {"noise": ("successors", "max_successors", "stationary"), "successors": ("max_successors",)}
    for name in (name for stronger, names in implied.items() if stronger in every for name in names):
        every.pop(name, None)
    return [every] if len(every) > 1 else []


def as_options(declared: dict[str, Any]) -> Iterator[str]:
    """A declaration as it is typed."""
    for name, value in declared.items():
        yield f"--{name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        yield from (repr(item) if isinstance(item, float) else str(item) for item in values)


def returns_along(problem: Problem, seen: Transitions) -> tuple[float, float]:
    """The smallest and the largest return along transitions that were seen, whichever way they are put together."""
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
