"""What transitions were seen to pay, where rewards are random.

A bound on a random reward depends only on which values were seen and how often. Up to :data:`MOST_VALUES` different values
of a transition are kept as they are; beyond, all of them are counted in :data:`CELLS` equal cells of the range of the
rewards, of which only those hit are listed. So a table depends on what was seen, not on the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inner

__all__ = [
    "CELLS",
    "MOST_VALUES",
    "Payments",
    "cell_edges",
    "copied",
    "first_entry",
    "new_payments",
    "pay",
    "room_to_pay",
]

MOST_VALUES = 64
CELLS = 1024
_POOL = {"successor": np.int64, "low": np.float64, "high": np.float64, "times": np.int64}


class Payments(NamedTuple):
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


def new_payments(n_rows: int) -> Payments:
    """Nothing seen yet."""
    rows = {name: np.zeros(n_rows, dtype=np.int64) for name in ("begin", "used", "capacity")}
    return Payments(**rows, **{name: np.empty(0, dtype) for name, dtype in _POOL.items()}, end=np.zeros(1, np.int64))


def copied(payments: Payments, room: int = 0) -> Payments:
    """A copy with room for so many more entries."""
    end = int(payments.end[0])
    pool = {name: np.append(getattr(payments, name)[:end], np.zeros(room, dtype)) for name, dtype in _POOL.items()}
    return Payments(**{name: pool[name] if name in pool else part.copy() for name, part in payments._asdict().items()})


def cell_edges(low: float, high: float) -> np.ndarray:
    """The ``CELLS + 1`` edges of the cells of a range."""
    edges = low + (high - low) * (np.arange(CELLS + 1) / CELLS)
    edges[-1] = high
    return np.minimum(edges, high)


@inner
def first_entry(payments: Payments, row: int, successor: int, reward: float) -> int:
    """The first entry of ``row`` that is not before (``successor``, ``reward``)."""
    left, right = payments.begin[row], payments.begin[row] + payments.used[row]
    while left < right:
        middle = (left + right) // 2
        other = payments.successor[middle]
        if other < successor or (other == successor and payments.low[middle] < reward):
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
def _copy(payments: Payments, source: int, target: int) -> None:
    payments.successor[target] = payments.successor[source]
    payments.low[target] = payments.low[source]
    payments.high[target] = payments.high[source]
    payments.times[target] = payments.times[source]


@inner
def _make_coarse(payments: Payments, edges: np.ndarray, row: int, first: int, last: int) -> int:
    """Count the values of the entries ``first : last`` in cells; where these end."""
    kept = first
    for j in range(first, last):
        cell = _cell(edges, payments.low[j])
        if kept > first and payments.low[kept - 1] == edges[cell]:
            payments.times[kept - 1] += payments.times[j]
        else:
            payments.times[kept] = payments.times[j]
            payments.low[kept], payments.high[kept] = edges[cell], edges[cell + 1]
            kept += 1
    end = payments.begin[row] + payments.used[row]
    for j in range(last, end):
        _copy(payments, j, kept + j - last)
    payments.used[row] -= last - kept
    return kept


@inner
def _insert(payments: Payments, row: int, place: int) -> int:
    """Make room for an entry at ``place``; where that is now."""
    used, begin = payments.used[row], payments.begin[row]
    if used == payments.capacity[row]:
        new = payments.end[0]
        for j in range(used):
            _copy(payments, begin + j, new + j)
        payments.begin[row] = new
        payments.capacity[row] = _next_capacity(payments, row)
        payments.end[0] = new + payments.capacity[row]
        place += new - begin
        begin = new
    for j in range(begin + used, place, -1):
        _copy(payments, j - 1, j)
    payments.used[row] += 1
    return place


@inner
def _next_capacity(payments: Payments, row: int) -> int:
    return max(4, 2 * payments.capacity[row])


@inner
def room_to_pay(payments: Payments, row: int) -> bool:
    """Whether ``row`` can have one more entry."""
    return payments.end[0] + _next_capacity(payments, row) <= payments.times.size


@inner
def pay(payments: Payments, edges: np.ndarray, row: int, successor: int, low: float, high: float, times: int) -> None:
    """Enter that ``times`` visits of ``row`` to ``successor`` paid something from ``low`` to ``high``: a value, or a cell.

    There must be room.
    """
    first, last = first_entry(payments, row, successor, -np.inf), first_entry(payments, row, successor + 1, -np.inf)
    place = first_entry(payments, row, successor, low)
    known = place < last and payments.low[place] == low
    coarse = first < last and payments.low[first] < payments.high[first]
    if not coarse and (low < high or (last - first == MOST_VALUES and not known)):
        last, coarse = _make_coarse(payments, edges, row, first, last), True
    if coarse:
        cell = _cell(edges, low)
        low, high = edges[cell], edges[cell + 1]
        place = first_entry(payments, row, successor, low)
        known = place < last and payments.low[place] == low
    if not known:
        place = _insert(payments, row, place)
        payments.successor[place], payments.low[place], payments.high[place] = successor, low, high
        payments.times[place] = 0
    payments.times[place] += times
