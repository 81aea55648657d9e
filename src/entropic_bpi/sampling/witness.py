"""What is seen of an environment besides the counts: at which step a pair was visited, and where the episode came from."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from entropic_bpi.problem import Problem

__all__ = ["BEFORE_THE_FIRST", "Batch", "Visit", "Witness"]

BEFORE_THE_FIRST = -1
"""The previous state at the first step of an episode."""

Visit = tuple[int, int, int, int, float, int]
"""One step of an episode: step, state, action, next state, reward, previous state."""


class Batch(NamedTuple):
    """Some episodes that were played: how often each first state, each visit and each return was seen."""

    starts: Counter[int]
    visits: Counter[Visit]
    returns: Counter[float]


class Witness:
    """Tallies of visits by step, where counts are pooled over the steps, and by previous state."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.by_step: Counter[tuple[int, int, int, float]] = Counter()
        self.by_previous: Counter[tuple[int, int, int, float]] = Counter()

    def add(self, batch: Batch) -> None:
        n_actions, pooled = self.problem.n_actions, self.problem.stationary
        stride = 0 if pooled else self.problem.n_states * n_actions
        by_step, by_previous = self.by_step, self.by_previous
        for (h, state, action, following, paid, previous), times in batch.visits.items():
            row = h * stride + state * n_actions + action
            if pooled:
                by_step[row, h, following, paid] += times
            by_previous[row, previous, following, paid] += times
