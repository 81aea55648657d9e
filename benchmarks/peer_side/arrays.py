"""Random models as plain arrays, made by the same function on both sides, so that no large file has to travel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class SparseModel(NamedTuple):
    """Compressed rows over (s, a), row ``s * A + a``, and rewards ``(S, A)``."""

    indptr: np.ndarray
    indices: np.ndarray
    probabilities: np.ndarray
    rewards: np.ndarray


def sparse_model(n_states: int, n_actions: int, successors: int) -> SparseModel:
    """``successors`` random next states of every pair, in increasing order."""
    rng = np.random.default_rng(0)
    rows = n_states * n_actions
    gaps = rng.integers(1, max(2, n_states // successors), size=(rows, successors), dtype=np.int32)
    indices = np.cumsum(gaps, axis=1, dtype=np.int32) - 1
    probabilities = rng.random((rows, successors))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    indptr = np.arange(0, indices.size + 1, successors)
    return SparseModel(indptr, indices.ravel(), probabilities.ravel(), rng.random((n_states, n_actions)))


def dense_model(n_states: int, n_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Transitions ``(S, A, S)`` that reach every state, and rewards ``(S, A)``."""
    rng = np.random.default_rng(0)
    kernel = rng.random((n_states, n_actions, n_states))
    kernel /= kernel.sum(axis=-1, keepdims=True)
    return kernel, rng.random((n_states, n_actions))


class Balls(NamedTuple):
    """KL-ball problems: counts and values ``(size, k)``, visits and radii ``(size,)``."""

    tally: np.ndarray
    values: np.ndarray
    visits: np.ndarray
    radius: np.ndarray


def balls(size: int, k: int) -> Balls:
    """Problems as a run meets them: 10 to 100 000 visits, and the radius that goes with them."""
    rng = np.random.default_rng(0)
    visits = (10 ** rng.uniform(1, 5, size)).astype(np.int64)
    tally = rng.multinomial(visits, rng.dirichlet(np.ones(k), size))
    radius = (np.log(1000) + 0.5 * k * np.log(visits)) / visits
    return Balls(tally, rng.random((size, k)), visits, radius)
