"""The state of a run: everything that a checkpoint saves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.provenance import Provenance
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import AssumptionTests
from entropic_bpi.types import Plan, Transitions

HISTORY = np.dtype([("episodes", "<i8"), ("lower", "<f8"), ("upper", "<f8"), ("gap", "<f8")])


class BestPlan(NamedTuple):
    """The plan with the smallest gap so far, its number of episodes and its counts."""

    plan: Plan
    episodes: int
    transitions: Transitions


@dataclass
class RunState:
    """All that a run needs to go on.

    Attributes
    ----------
    problem : Problem
    seed : int
    provenance : Provenance
        How the episodes came about, for the certificate.
    counts : Counts
    rng : Generator
        A PCG64; only simulated episodes draw from it.
    tests : AssumptionTests or None
        Tests of the assumptions about an environment; None for a simulated model, of which they are true.
    memory : dict
        What the method remembers of its earlier plans, as its ``state()`` returns it; empty if it begins anew.
    discovered_states : list of str
        The labels of the states in their order, where they are numbered as they are first seen.
    round : int
        How many batches were played.
    seconds : float
        Time spent before the run was resumed.
    history : list of structured arrays :data:`HISTORY`
        One row per plan.
    best : BestPlan or None
        Kept for a run that may end before its goal, and at the goal.
    error, contradiction : str or None
        If the run ended because the environment raised an error, or contradicted what is assumed of it: the message.
    """

    problem: Problem
    seed: int
    provenance: Provenance
    counts: Counts
    rng: np.random.Generator
    tests: AssumptionTests | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    discovered_states: list[str] = field(default_factory=list)
    round: int = 0
    seconds: float = 0.0
    history: list[np.ndarray] = field(default_factory=list)
    best: BestPlan | None = None
    error: str | None = None
    contradiction: str | None = None

    @classmethod
    def new(cls, problem: Problem, seed: int, provenance: Provenance, counts: Counts) -> RunState:
        """Return the state before the first episode, or after those of a log."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed).spawn(2)[0]))
        tests = AssumptionTests(problem) if problem.black_box_rewards else None
        return cls(problem, seed, provenance, counts, rng, tests)

    def tie_seed(self) -> int:
        """Return a positive 63-bit number for breaking ties at random; 0 stands for the lowest index."""
        return (int(np.random.SeedSequence(self.seed).spawn(2)[1].generate_state(1, np.uint64)[0]) >> 2) + 1


def certificate_of(problem: Problem, planned: np.ndarray, claim: Any, **other: Any) -> Certificate:
    """Return the certificate of a claim about a policy of all planned steps; ``other`` are its other fields."""
    return Certificate(policy=planned[int(problem.artificial) :], problem=problem, **claim._asdict(), **other)
