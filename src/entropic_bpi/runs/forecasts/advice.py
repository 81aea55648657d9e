"""Which declarations agree with everything that a run has seen.

One that agrees need not be true: that is for the user to know. What it would bring is measured by trial runs
(:func:`entropic_bpi.runs.forecasts.trial.measured`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import ENTRIES, Declarations
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
    return Candidates(tuple(_true_of(mdp, declared)))


def _true_of(mdp: FiniteMDP, declared: Declarations) -> Iterator[dict[str, Any]]:
    if mdp.stationary and mdp.horizon > 1 and not (declared.stationary or declared.noise) and declared.discount is None:
        yield {"stationary": True}
    if declared.successors is None and declared.noise is None:
        if mdp.mechanics is not None:
            yield {"noise": "model"}
        yield {"successors": "model"}
        steps = range(1 if mdp.stationary else mdp.horizon)
        most = max(int(np.diff(mdp.step_rows(h).indptr).max()) for h in steps)
        if declared.max_successors is None and most < mdp.n_states:
            yield {"max_successors": most}


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
        pairs = np.column_stack([seen.rows, seen.successors])[played]
        outcomes: dict[tuple[str, int], set[tuple[str, float]]] = {}
        for row, successor, reward in zip(
            seen.rows[played], seen.successors[played], seen.rewards[played], strict=True
        ):
            state, action = divmod(int(row), n_actions)
            outcome = names[successor], 0.0 if problem.random_rewards else float(reward)
            outcomes.setdefault((names[state % problem.n_states], action), set()).add(outcome)
        first = seen.successors[~played] if problem.artificial else np.array([problem.first_state])
        return cls(
            starts={names[s] for s in first},
            states={names[s] for s in (*first, *seen.successors[seen.successors < problem.n_states - 1])},
            outcomes=outcomes,
            one_reward=len(np.unique(pairs, axis=0)) == len(pairs) and bool((upper == seen.rewards).all()),
            rewards=(float(seen.rewards[played].min()), float(upper[played].max())),
            returns=returns_along(problem, seen),
        )

    @property
    def max_successors(self) -> int:
        return max(map(len, self.outcomes.values()))

    def __or__(self, other: Seen) -> Seen:
        pairs = self.outcomes.keys() | other.outcomes.keys()
        hulls = [
            (min(one[0], two[0]), max(one[1], two[1]))
            for one, two in ((self.rewards, other.rewards), (self.returns, other.returns))
        ]
        return Seen(
            self.starts | other.starts,
            self.states | other.states,
            {pair: self.outcomes.get(pair, set()) | other.outcomes.get(pair, set()) for pair in pairs},
            self.one_reward and other.one_reward,
            *hulls,
        )

    def contradicts(self, declared: dict[str, Any]) -> bool:
        """Whether something that was seen does not agree with a declaration or, put together differently, might not."""
        ranges = (("reward_range", self.rewards), ("return_range", self.returns))
        return (
            ("start" in declared and len(self.starts) > 1)
            or declared.get("max_states", math.inf) < len(self.states)
            or declared.get("max_successors", math.inf) < self.max_successors
            or (declared.get("reward_law") == "fixed" and not self.one_reward)
            or any(
                not (declared[name][0] <= low and high <= declared[name][1])
                for name, (low, high) in ranges
                if name in declared
            )
        )


def fitting(counts: Counts, declared: Declarations) -> Candidates:
    """What agrees with all transitions that were seen of an environment and was not declared."""
    if not counts.episodes:
        return Candidates()
    seen = Seen.of(counts)
    return Candidates(tuple(_fitting(seen, counts.problem, declared)), seen)


def _fitting(seen: Seen, problem: Problem, declared: Declarations) -> Iterator[dict[str, Any]]:
    fixed = declared.reward_law in (None, "fixed")
    if "start" in ENTRIES and getattr(declared, "start", None) is None and len(seen.starts) == 1:
        yield {"start": "fixed"}
    if declared.stationary is False:
        yield {"stationary": True}
    if not fixed and seen.one_reward:
        yield {"reward_law": "fixed"}
    if declared.successors is None and declared.noise is None and len(seen.states) < problem.n_states - 1:
        yield {"max_states": len(seen.states)}
    if declared.successors is None and declared.noise is None and declared.max_successors is None:
        yield {"max_successors": seen.max_successors}
    # Not the range of the rewards seen: one that is still to be found may lie outside, and nothing would look for it.
    if declared.return_range is None and declared.discount is None and fixed:
        low, high = seen.returns
        if low < high and high - low < _NARROW * problem.return_spread:
            yield {"return_range": (low, high)}


def all_together(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All declarations at once, where there are several; to name the successors says more than to count them."""
    every = {name: value for one in found for name, value in one.items()}
    if "noise" in every:
        every = {
            name: value for name, value in every.items() if name not in ("successors", "max_successors", "stationary")
        }
    if "successors" in every:
        every.pop("max_successors", None)
    return [every] if len(every) > 1 else []


def as_options(declared: dict[str, Any]) -> Iterator[str]:
    """A declaration as it is typed."""
    for name, value in declared.items():
        yield f"--{name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        yield from (repr(item) if isinstance(item, float) else str(item) for item in values)


def returns_along(problem: Problem, seen: Transitions) -> tuple[float, float]:
    """The smallest and the largest return along transitions that were seen, whichever way they are put together."""
    ends = []
    for extreme, none in ((np.minimum, math.inf), (np.maximum, -math.inf)):
        values = np.zeros(problem.n_states)
        for h in reversed(range(problem.artificial, problem.steps)):
            at_step = np.isin(seen.rows, problem.rows_at(h, np.arange(problem.n_states)))
            states = seen.rows[at_step] // problem.n_actions % problem.n_states
            best = np.full(problem.n_states, none)
            extreme.at(best, states, seen.rewards[at_step] + values[seen.successors[at_step]])
            values = np.where(np.isfinite(best), best, 0.0)
        begun = seen.rows == problem.n_rows - 1
        first = seen.successors[begun] if problem.artificial else np.array([problem.first_state])
        ends.append(float(extreme.reduce(values[first])))
    return ends[0], ends[1]
