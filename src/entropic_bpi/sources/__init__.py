"""Where transitions come from: a simulated model, or an environment that is played."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import AssumptionTests
from entropic_bpi.types import Behaviour

__all__ = ["Sampler", "open_sampler"]


class Sampler(Protocol):
    """Plays episodes into counts; the only part of a run that writes them.

    Attributes
    ----------
    can_lose_episodes : bool
        Whether playing can fail for reasons of the source's own.
    """

    can_lose_episodes: bool

    def play(self, behaviour: Behaviour, episodes: int, into: Counts, round: int) -> None:
        """Play ``episodes`` episodes of one behaviour and add them to the counts, all or nothing."""

    def close(self) -> None:
        """Give back what was opened for playing."""


def open_sampler(
    source: Any, problem: Problem, rng: np.random.Generator, seed: int, tests: AssumptionTests | None
) -> Sampler:
    """The sampler of a model, drawing with ``rng``, or of an opened environment, which has its own randomness.

    The ``tests`` are told of every episode of an environment.
    """
    if isinstance(source, FiniteMDP):
        from entropic_bpi.sources.simulator import Simulator

        return Simulator(source, problem, rng)
    from entropic_bpi.sources.environment import Player

    assert tests is not None
    return Player(source, problem, seed, tests)
