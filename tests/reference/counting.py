"""Counts as dense arrays, in and out of the library's own form."""

from __future__ import annotations

import numpy as np

from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions


def filled(problem: Problem, counts: np.ndarray, start_counts: np.ndarray | None = None) -> Counts:
    """The library's counts of a dense ``(H, S, A, S)`` array, pooled if the problem is stationary."""
    dense = counts.sum(axis=0)[None] if problem.stationary else counts
    flat = dense.reshape(-1, problem.n_states)
    if start_counts is not None:
        flat = np.concatenate([flat, [start_counts]])
    rows, successors = np.nonzero(flat)
    result = Counts(problem)
    result.add(Transitions(rows, successors, flat[rows, successors]), int(counts[0].sum()))
    return result


def dense(counts: Counts) -> np.ndarray:
    """``(rows, S)``: how often each row went to each state."""
    table = np.zeros((counts.problem.n_rows, counts.problem.n_states), dtype=np.int64)
    seen = counts.transitions()
    np.add.at(table, (seen.rows, seen.successors), seen.times)
    return table
