"""The return to expect: episodes of the policy in the model that the counts suggest. An estimate, nothing certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

EPISODES = 20_000


class Expected(NamedTuple):
    """Returns of simulated episodes, and the share of episodes that came where nothing is known and are left out."""

    returns: np.ndarray
    cut: float


def expected_returns(certificate: Certificate, episodes: int = EPISODES) -> Expected:
    """Play the certified policy in the empirical model: what follows a place is drawn from what was seen to follow it."""
    problem, seen = certificate.problem, _in_order(certificate.transitions)
    rng = np.random.default_rng(0)
    end = problem.n_states - 1 if problem.black_box_rewards else -1
    drawn = _Outcomes(problem, seen)
    state = np.full(episodes, problem.first_state)
    returns, going, cut = np.zeros(episodes), np.ones(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    for h in range(problem.steps):
        own = h - problem.artificial  # the step as the policy counts
        going &= state != end if own >= 0 else True
        playing = np.flatnonzero(going)
        if own < 0:
            rows = np.full(len(playing), problem.n_rows - 1)
        else:
            actions = certificate.policy[own, state[playing]]
            offset = 0 if problem.stationary else own * problem.n_states
            rows = (offset + state[playing]) * problem.n_actions + actions
            if problem.rewards is not None:
                paid = problem.rewards[own if len(problem.rewards) > 1 else 0]
                returns[playing] += problem.factors[own] * paid[state[playing], actions]
        known = drawn.visits[rows] > 0
        missed, playing = playing[~known], playing[known]
        # The last move of a model whose rewards do not depend on it leads to nothing that counts.
        cut[missed] = own < problem.horizon - 1 or problem.rewards is None
        going[missed] = False
        outcome = drawn.of(rows[known], rng)
        if own >= 0 and problem.rewards is None:
            returns[playing] += problem.factors[own] * drawn.rewards(outcome, own)
        state[playing] = seen.successors[outcome]
    return Expected(returns[~cut], float(cut.mean()))


def _in_order(seen: Transitions) -> Transitions:
    order = np.argsort(seen.rows, kind="stable")
    return Transitions(*(column[order] if column.size else column for column in seen))


class _Outcomes:
    """What was seen to follow each row, to be drawn as often as it was seen."""

    def __init__(self, problem: Problem, seen: Transitions) -> None:
        self.problem, self.seen = problem, seen
        self.visits = np.bincount(seen.rows, seen.times, problem.n_rows).astype(np.int64)
        self.before = np.cumsum(self.visits) - self.visits
        self.until = np.cumsum(seen.times)

    def of(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The number of an outcome of each row."""
        place = self.before[rows] + rng.integers(0, self.visits[rows])
        return np.searchsorted(self.until, place, side="right")

    def rewards(self, outcomes: np.ndarray, step: int) -> np.ndarray:
        """What the outcomes pay where that depends on the next state: what was seen, or what is known of the model."""
        if self.problem.black_box_rewards:
            return (self.seen.rewards[outcomes] + self.seen.upper[outcomes]) / 2
        low = self.problem.slots.low
        distinct, place = np.unique(outcomes, return_inverse=True)
        slots = np.array([self._slot(outcome) for outcome in distinct.tolist()], dtype=np.int64)
        return low[step if len(low) > 1 else 0, slots][place]

    def _slot(self, outcome: int) -> int:
        slots, row = self.problem.slots, self.seen.rows[outcome]
        begin = int(slots.begin[row])
        listed = slots.successor[begin : begin + int(slots.used[row])]
        return begin + int(np.flatnonzero(listed == self.seen.successors[outcome])[0])
