"""Which declarations agree with everything that a run has seen.

One that agrees need not be true: that is for the user to know. What it would bring is measured by trial runs
(:func:`entropic_bpi.runs.forecasts.trial.measured`).
"""

from __future__ import annotations

import math
from collections import Counter
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


@dataclass(frozen=True)
class Seen:
    """What the transitions of an environment say, whatever the numbers of its states.

    Attributes
    ----------
    starts, states : set of str
        Names of the first states, and of all states but the end.
    outcomes : set
        The different ones: state, action, next state and, if rewards are fixed, reward.
    one_reward : bool
        Whether every state, action and next state had one reward.
    returns : (float, float)
        The smallest and the largest return along the transitions, whichever way they are put together.
    """

    starts: set[str]
    states: set[str]
    outcomes: set[tuple[str, int, str, float]]
    one_reward: bool
    returns: tuple[float, float]

    @classmethod
    def of(cls, counts: Counts) -> Seen:
        problem, seen = counts.problem, counts.transitions()
        names, first = np.array(problem.state_names), _first_states(problem, seen)
        played = seen.rows < problem.n_rows - int(problem.artificial)
        states, actions = np.divmod(seen.rows[played], problem.n_actions)
        successors, paid = seen.successors[played], seen.rewards[played] * (not problem.random_rewards)
        columns = names[states % problem.n_states], actions, names[successors], paid
        pairs = set(zip(seen.rows[played], successors, strict=True))
        upper = seen.upper if len(seen.upper) else seen.rewards
        return cls(
            starts=set(names[first].tolist()),
            states=set(names[[*first, *successors[successors < problem.n_states - 1]]].tolist()),
            outcomes=set(zip(*(column.tolist() for column in columns), strict=True)),
            one_reward=len(pairs) == len(successors) and bool((upper == seen.rewards).all()),
            returns=returns_along(problem, seen),
        )

    def __or__(self, other: Seen) -> Seen:
        return Seen(
            self.starts | other.starts,
            self.states | other.states,
            self.outcomes | other.outcomes,
            self.one_reward and other.one_reward,
            (min(self.returns[0], other.returns[0]), max(self.returns[1], other.returns[1])),
        )

    @property
    def tightest(self) -> dict[str, Any]:
        """The declarations that agree with all this and say most; None where none does."""
        return {
            "start": "fixed" if len(self.starts) == 1 else None,
            "stationary": True,
            "reward_law": "fixed" if self.one_reward else None,
            "max_states": len(self.states),
            "max_successors": max(Counter(outcome[:2] for outcome in self.outcomes).values()),
            "return_range": self.returns,
        }


def fitting(counts: Counts, declared: Declarations) -> Candidates:
    """What agrees with all transitions that were seen of an environment and was not declared."""
    if not counts.episodes:
        return Candidates()
    seen, problem = Seen.of(counts), counts.problem
    fixed, free = declared.reward_law in (None, "fixed"), declared.successors is None and declared.noise is None
    whole = declared.return_range is None and declared.discount is None and fixed
    useful = {
        "start": declared.start is None,
        "stationary": declared.stationary is False,
        "reward_law": not fixed,
        "max_states": free and len(seen.states) < problem.n_states - 1,
        "max_successors": free and declared.max_successors is None,
        # Not the range of the rewards: one that is still to be found may lie outside, and nothing would look for it.
        "return_range": whole and 0 < seen.returns[1] - seen.returns[0] < _NARROW * problem.return_spread,
    }
    found = ({name: value} for name, value in seen.tightest.items() if useful[name] and value is not None)
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
