"""Counts of random rewards, for each transition.

A bound on a random reward depends only on the observed values and their numbers. Up to :data:`MOST_VALUES` distinct values
of a transition are stored exactly. If there are more, all are counted in :data:`CELLS` equal cells of the range of the
rewards, of which only cells with counts are stored. So the table does not depend on the order of the observations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inner
from entropic_bpi.types import Transitions

MOST_VALUES = 64
CELLS = 1024


class RewardCounts(NamedTuple):
    """Counts of rewards: row ``i`` has the entries ``begin[i] : begin[i] + used[i]``, sorted by successor and reward.

    ``times[j]`` visits that went to ``successor[j]`` had a reward from ``low[j]`` to ``high[j]``.
    """

    begin: np.ndarray
    used: np.ndarray
    successor: np.ndarray
    low: np.ndarray
    high: np.ndarray
    times: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.used)), self.used)

    def with_transitions(self, seen: Transitions, edges: np.ndarray) -> RewardCounts:
        """Return these counts with the rewards of ``seen`` added, as values or in the cells with these ``edges``."""
        new = np.column_stack([seen.rows, seen.successors, seen.times]), np.column_stack([seen.rewards, seen.upper])
        rows = self.rows
        own = np.column_stack([rows, self.successor, self.times]), np.column_stack([self.low, self.high])
        touched = np.isin(rows, seen.rows)
        counts, paid = (np.concatenate([old[touched], more]) for old, more in zip(own, new, strict=True))
        order = np.lexsort((paid[:, 1], paid[:, 0], counts[:, 1], counts[:, 0]))
        counts, paid = counts[order], paid[order]
        _in_cells(counts, paid, edges)
        first = np.flatnonzero(_differs(counts[:, :2]) | _differs(paid[:, :1]))
        counts[first, 2] = np.add.reduceat(counts[:, 2], first)
        counts, paid = counts[first], paid[first]
        counts, paid = (np.concatenate([old[~touched], now]) for old, now in ((own[0], counts), (own[1], paid)))
        order = np.argsort(counts[:, 0], kind="stable")
        (rows, successor, times), (low, high) = counts[order].T.copy(), paid[order].T.copy()
        used = np.bincount(rows, minlength=len(self.used))
        return RewardCounts(np.cumsum(used) - used, used, successor, low, high, times)


def new_reward_counts(n_rows: int) -> RewardCounts:
    """Return empty counts."""
    nothing, rows = np.empty(0, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    return RewardCounts(rows, rows, nothing, np.empty(0), np.empty(0), nothing)


def _differs(table: np.ndarray) -> np.ndarray:
    """Return a mask of the rows of a table that differ from the row before."""
    return np.append(True, (table[1:] != table[:-1]).any(axis=1))


def _in_cells(counts: np.ndarray, paid: np.ndarray, edges: np.ndarray) -> None:
    """Replace values by their cells, in place, for transitions with too many values or with cells; entries are sorted."""
    new_transition = _differs(counts[:, :2])
    transition = np.cumsum(new_transition) - 1
    values = np.bincount(transition, new_transition | _differs(paid))
    coarse = (values > MOST_VALUES) | (np.bincount(transition, paid[:, 0] < paid[:, 1]) > 0)
    entries = coarse[transition]
    cell = np.clip(np.searchsorted(edges, paid[entries, 0], side="right") - 1, 0, CELLS - 1)
    paid[entries, 0], paid[entries, 1] = edges[cell], edges[cell + 1]


def cell_edges(low: float, high: float) -> np.ndarray:
    """Return the ``CELLS + 1`` edges of the cells of a range."""
    edges = low + (high - low) * (np.arange(CELLS + 1) / CELLS)
    edges[-1] = high
    return np.minimum(edges, high)


@inner
def first_entry(reward_counts: RewardCounts, row: int, successor: int) -> int:
    """Return the first entry of ``row`` whose successor is at least ``successor``."""
    begin, end = reward_counts.begin[row], reward_counts.begin[row] + reward_counts.used[row]
    return begin + np.searchsorted(reward_counts.successor[begin:end], successor)
