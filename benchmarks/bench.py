"""What every part of the benchmarks is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

import entropic_bpi as eb
from benchmarks.machine import Rates
from benchmarks.peer_side.arrays import SparseModel, dense_model, sparse_model
from benchmarks.peers import Peers

T = TypeVar("T")


@dataclass
class Curve:
    """A measured curve: seconds against the size of something, and the slope in logarithms."""

    what: str
    size: str
    sizes: list[float]
    seconds: list[float]
    slope: float


@dataclass
class Bench:
    """How thorough to be, and whom to compare with; ``peers`` is None when nobody else is to be run."""

    quick: bool = False
    peers: Peers | None = None
    curves: list[Curve] = field(default_factory=list)

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    @property
    def rounds(self) -> int:
        return self.pick(7, 3)

    @cached_property
    def rates(self) -> Rates:
        return Rates(self.rounds)


def sparse_mdp(n_states: int, n_actions: int, successors: int, horizon: int) -> eb.FiniteMDP:
    return _sparse_mdp(sparse_model(n_states, n_actions, successors), horizon)


def _sparse_mdp(model: SparseModel, horizon: int) -> eb.FiniteMDP:
    rows = eb.SparseTransitions(model.indptr, model.indices, model.probabilities)
    return eb.FiniteMDP(rows, model.rewards, horizon=horizon)


def dense_mdp(n_states: int, n_actions: int, horizon: int) -> eb.FiniteMDP:
    return eb.FiniteMDP(*dense_model(n_states, n_actions), horizon=horizon)


def as_lists(mdp: eb.FiniteMDP) -> dict[str, list]:
    """A small dense model, to be sent to a peer."""
    return {"transitions": np.asarray(mdp.transitions).tolist(), "rewards": np.asarray(mdp.rewards).tolist()}
