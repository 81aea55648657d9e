"""What transitions were seen to pay, where rewards are random.

A bound on a random reward depends only on which values were seen and how often. Up to :data:`MOST_VALUES` different values
of a transition are kept as they are; beyond, all of them are counted in :data:`CELLS` equal cells of the range of the
rewards, of which only those hit are listed. So a table depends on what was seen, not on the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inner

MOST_VALUES = 64
CELLS = 1024
_POOL = {"successor": np.int64, "low": np.float64, "high": np.float64, "times": np.int64}


class RewardCounts(NamedTuple):
    """Row ``i`` owns the entries ``begin[i] : begin[i] + used[i]`` of the pool, sorted by successor and reward.

    ``times[j]`` visits that went to ``successor[j]`` paid something from ``low[j]`` to ``high[j]``. ``end[0]`` is the number
    of pool entries in use.
    """

    begin: np.ndarray
    used: np.ndarray
    capacity: np.ndarray
    successor: np.ndarray
    low: np.ndarray
    high: np.ndarray
    times: np.ndarray
    end: np.ndarray


def new_reward_counts(n_rows: int) -> RewardCounts:
    """Nothing seen yet."""
    rows = {name: np.zeros(n_rows, dtype=np.int64) for name in ("begin", "used", "capacity")}
    return RewardCounts(
        **rows, **{name: np.empty(0, dtype) for name, dtype in _POOL.items()}, end=np.zeros(1, np.int64)
    )


def copied(reward_counts: RewardCounts, room: int = 0) -> RewardCounts:
    """A copy with room for so many more entries."""
    end = int(reward_counts.end[0])
    pool = {name: np.append(getattr(reward_counts, name)[:end], np.zeros(room, dtype)) for name, dtype in _POOL.items()}
    return RewardCounts(
        **{name: pool[name] if name in pool else part.copy() for name, part in reward_counts._asdict().items()}
    )


def cell_edges(low: float, high: float) -> np.ndarray:
    """The ``CELLS + 1`` edges of the cells of a range."""
    edges = low + (high - low) * (np.arange(CELLS + 1) / CELLS)
    edges[-1] = high
    return np.minimum(edges, high)


@inner
def first_entry(reward_counts: RewardCounts, row: int, successor: int, reward: float) -> int:
    """The first entry of ``row`` that is not before (``successor``, ``reward``)."""
    left, right = reward_counts.begin[row], reward_counts.begin[row] + reward_counts.used[row]
    while left < right:
        middle = (left + right) // 2
        other = reward_counts.successor[middle]
        if other < successor or (other == successor and reward_counts.low[middle] < reward):
            left = middle + 1
        else:
            right = middle
    return left


@inner
def _cell(edges: np.ndarray, reward: float) -> int:
    """The cell in which ``reward`` lies; of two, the upper one."""
    left, right = 0, edges.size - 2
    while left < right:
        middle = (left + right + 1) // 2
        if edges[middle] <= reward:
            left = middle
        else:
            right = middle - 1
    return left


@inner
def _copy(reward_counts: RewardCounts, source: int, target: int) -> None:
    reward_counts.successor[target] = reward_counts.successor[source]
    reward_counts.low[target] = reward_counts.low[source]
    reward_counts.high[target] = reward_counts.high[source]
    reward_counts.times[target] = reward_counts.times[source]


@inner
def _make_coarse(reward_counts: RewardCounts, edges: np.ndarray, row: int, first: int, last: int) -> int:
    """Count the values of the entries ``first : last`` in cells; where these end."""
    kept = first
    for j in range(first, last):
        cell = _cell(edges, reward_counts.low[j])
        if kept > first and reward_counts.low[kept - 1] == edges[cell]:
            reward_counts.times[kept - 1] += reward_counts.times[j]
        else:
            reward_counts.times[kept] = reward_counts.times[j]
            reward_counts.low[kept], reward_counts.high[kept] = edges[cell], edges[cell + 1]
            kept += 1
    end = reward_counts.begin[row] + reward_counts.used[row]
    for j in range(last, end):
        _copy(reward_counts, j, kept + j - last)
    reward_counts.used[row] -= last - kept
    return kept


@inner
def _insert(reward_counts: RewardCounts, row: int, place: int) -> int:
    """Make room for an entry at ``place``; where that is now."""
    used, begin = reward_counts.used[row], reward_counts.begin[row]
    if used == reward_counts.capacity[row]:
        new = reward_counts.end[0]
        for j in range(used):
            _copy(reward_counts, begin + j, new + j)
        reward_counts.begin[row] = new
        reward_counts.capacity[row] = _next_capacity(reward_counts, row)
        reward_counts.end[0] = new + reward_counts.capacity[row]
        place += new - begin
        begin = new
    for j in range(begin + used, place, -1):
        _copy(reward_counts, j - 1, j)
    reward_counts.used[row] += 1
    return place


@inner
def _next_capacity(reward_counts: RewardCounts, row: int) -> int:
    return max(4, 2 * reward_counts.capacity[row])


@inner
def has_room(reward_counts: RewardCounts, row: int) -> bool:
    """Whether ``row`` can have one more entry."""
    return reward_counts.end[0] + _next_capacity(reward_counts, row) <= reward_counts.times.size


@inner
def record_reward(
    reward_counts: RewardCounts, edges: np.ndarray, row: int, successor: int, low: float, high: float, times: int
) -> None:
    """Enter that ``times`` visits of ``row`` to ``successor`` paid something from ``low`` to ``high``: a value, or a cell.

    There must be room.
    """
    first, last = (
        first_entry(reward_counts, row, successor, -np.inf),
        first_entry(reward_counts, row, successor + 1, -np.inf),
    )
    place = first_entry(reward_counts, row, successor, low)
    known = place < last and reward_counts.low[place] == low
    coarse = first < last and reward_counts.low[first] < reward_counts.high[first]
    if not coarse and (low < high or (last - first == MOST_VALUES and not known)):
        last, coarse = _make_coarse(reward_counts, edges, row, first, last), True
    if coarse:
        cell = _cell(edges, low)
        low, high = edges[cell], edges[cell + 1]
        place = first_entry(reward_counts, row, successor, low)
        known = place < last and reward_counts.low[place] == low
    if not known:
        place = _insert(reward_counts, row, place)
        reward_counts.successor[place], reward_counts.low[place], reward_counts.high[place] = successor, low, high
        reward_counts.times[place] = 0
    reward_counts.times[place] += times
