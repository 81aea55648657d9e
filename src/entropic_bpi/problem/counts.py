"""Counts: how often each row and each of its successors was visited, the sufficient statistic of every method.

Memory is used only for rows that were visited. A row that was never played refers to default slots, which it shares with
other rows. At its first visit it gets slots of its own, at the end of one pool. A row with any possible successor in a large
state space has one slot "elsewhere" (successor ``n_states``) and a slot for each successor that was seen. It moves to a
larger block of the pool when its block is full. When a row has as many different outcomes as are declared to be possible,
its other slots are removed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from entropic_bpi.compile.decorators import by_pointer, compiled, inlined
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import FIXED
from entropic_bpi.problem.masks import check_allowed_rows
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.reward_counts import cell_edges, new_reward_counts
from entropic_bpi.problem.rows import slots_of
from entropic_bpi.problem.sentences import END_REWARDS, STAY_REWARDS
from entropic_bpi.types import Transitions

_FORBIDDEN = -1
_FULL = -2
_CONTRADICTED = -3
_POOL = ("successor", "tally", "low", "high")


@by_pointer
class CountArrays(NamedTuple):
    """The arrays of :class:`Counts`, in the form that compiled kernels take.

    Row ``i`` has the slots ``begin[i] : begin[i] + used[i]`` of the pool. ``max_outcomes[i]`` is the declared largest number
    of different outcomes of the row, 0 if none is declared. ``end[0]`` is the number of pool slots in use.
    """

    visits: np.ndarray
    begin: np.ndarray
    used: np.ndarray
    capacity: np.ndarray
    max_outcomes: np.ndarray
    successor: np.ndarray
    tally: np.ndarray
    low: np.ndarray
    high: np.ndarray
    end: np.ndarray


@inlined
def _copy(arrays: CountArrays, source: int, target: int) -> None:
    arrays.successor[target] = arrays.successor[source]
    arrays.tally[target] = arrays.tally[source]
    for t in range(arrays.low.shape[0]):
        arrays.low[t, target], arrays.high[t, target] = arrays.low[t, source], arrays.high[t, source]


@compiled
def _move(arrays: CountArrays, row: int, room: int) -> bool:
    """Move ``row`` to its own block of ``room`` slots at the end of the pool; return False if the pool is full."""
    old, new = arrays.begin[row], arrays.end[0]
    if new + room > arrays.successor.size:
        return False
    for i in range(arrays.used[row]):
        _copy(arrays, old + i, new + i)
    arrays.begin[row] = new
    arrays.capacity[row] = room
    arrays.end[0] = new + room
    return True


@compiled
def record(arrays: CountArrays, n_states: int, row: int, successor: int, times: int) -> int:
    """Add ``times`` visits of ``row`` that went to ``successor``; return 0, or a negative code if nothing was added."""
    open_ended = arrays.successor[arrays.begin[row]] == n_states
    if arrays.visits[row] == 0:
        room = 4 if open_ended else arrays.used[row]
        if not _move(arrays, row, room):
            return _FULL
    slot = -1
    for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
        if arrays.successor[j] == successor:
            slot = j
            break
    if slot < 0:
        if not open_ended:
            return _FORBIDDEN
        if arrays.used[row] == arrays.capacity[row] and not _move(arrays, row, 2 * arrays.capacity[row]):
            return _FULL
        slot = arrays.begin[row] + arrays.used[row]
        arrays.successor[slot] = successor
        arrays.tally[slot] = 0
        for t in range(arrays.low.shape[0]):  # its reward has the bounds of the slot "elsewhere"
            arrays.low[t, slot] = arrays.low[t, arrays.begin[row]]
            arrays.high[t, slot] = arrays.high[t, arrays.begin[row]]
        arrays.used[row] += 1
    return _add(arrays, row, slot, times)


@compiled
def _record_outcome(
    arrays: CountArrays,
    n_states: int,
    row: int,
    successor: int,
    low: float,
    high: float,
    times: int,
    kinds: int,
    same: float,
) -> int:
    """Add visits like :func:`record`, if the reward, from ``low`` to ``high``, is part of the outcome.

    Rewards that differ by at most ``same`` are equal. If any state may follow, at most ``kinds`` different rewards are
    possible for this successor. A row with declared successors lists a state once for each of its possible rewards, and each
    reward that is seen takes one of these slots.
    """
    if arrays.visits[row] == 0 and not _move(arrays, row, max(4, arrays.used[row])):
        return _FULL
    found, slot = 0, -1
    for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
        if arrays.successor[j] == successor:
            least, most = min(arrays.low[0, j], low), max(arrays.high[0, j], high)
            if arrays.tally[j] > 0 and most - least <= same:
                arrays.low[0, j], arrays.high[0, j] = least, most
                return _add(arrays, row, j, times)
            if arrays.tally[j] > 0:
                found += 1
            elif slot < 0 and arrays.low[0, j] - same <= low and high <= arrays.high[0, j] + same:
                slot = j
    if arrays.successor[arrays.begin[row]] == n_states:
        if found == kinds:
            return _CONTRADICTED
        if arrays.used[row] == arrays.capacity[row] and not _move(arrays, row, 2 * arrays.capacity[row]):
            return _FULL
        slot = arrays.begin[row] + arrays.used[row]
        arrays.used[row] += 1
        arrays.successor[slot] = successor
        arrays.tally[slot] = 0
    elif slot < 0:
        return _CONTRADICTED if found > 0 and arrays.used[row] != arrays.max_outcomes[row] else _FORBIDDEN
    elif arrays.high[0, slot] - arrays.low[0, slot] <= same:  # the declared reward, up to rounding
        low, high = min(low, arrays.low[0, slot]), max(high, arrays.high[0, slot])
    arrays.low[0, slot], arrays.high[0, slot] = low, high
    return _add(arrays, row, slot, times)


@compiled
def _add(arrays: CountArrays, row: int, slot: int, times: int) -> int:
    new = arrays.tally[slot] == 0
    arrays.tally[slot] += times
    arrays.visits[row] += times
    if new and arrays.max_outcomes[row] > 0:
        _close_if_complete(arrays, row)
    return 0


@compiled
def _close_if_complete(arrays: CountArrays, row: int) -> None:
    """Remove the slots without visits, if the row has had as many different outcomes as are declared to be possible."""
    begin, used, seen = arrays.begin[row], arrays.used[row], 0
    for j in range(begin, begin + used):
        seen += arrays.tally[j] > 0
    if seen < arrays.max_outcomes[row]:
        return
    kept = begin
    for j in range(begin, begin + used):
        if arrays.tally[j] > 0:
            _copy(arrays, j, kept)
            kept += 1
    arrays.used[row] = kept - begin


@compiled
def _record_outcomes(
    arrays: CountArrays, n_states: int, n_actions: int, same: float, transitions: Transitions, first: int
) -> tuple[int, int]:
    """Record transitions like :func:`_record_all`, if fixed rewards are learned."""
    for i in range(first, transitions.rows.size):
        row, successor = transitions.rows[i], transitions.successors[i]
        kinds = 1
        if successor == n_states - 1:
            kinds = END_REWARDS
        elif row // n_actions % n_states == successor:
            kinds = STAY_REWARDS
        low, high = transitions.rewards[i], transitions.upper[i]
        code = _record_outcome(arrays, n_states, row, successor, low, high, transitions.times[i], kinds, same)
        if code < 0:
            return i, code
    return transitions.rows.size, 0


@compiled
def _record_all(arrays: CountArrays, n_states: int, transitions: Transitions, first: int) -> tuple[int, int]:
    """Record transitions from index ``first`` on; return the index that failed and its code, or the length and 0."""
    for i in range(first, transitions.rows.size):
        code = record(arrays, n_states, transitions.rows[i], transitions.successors[i], transitions.times[i])
        if code < 0:
            return i, code
    return transitions.rows.size, 0


def spare_slots(problem: Problem) -> int:
    """Return the largest number of pool slots that one episode can need."""
    # A row with any possible successor moves to a block of twice the size when its block is full.
    largest = 2 * (problem.n_states + END_REWARDS + STAY_REWARDS) + 8 if problem.open_ended else 0
    return problem.steps * max(int(problem.slots.used.max()), largest)


class Counts:
    """Visit counts of a :class:`~entropic_bpi.problem.problem.Problem` and their number of episodes.

    If rewards are random, ``reward_counts`` counts them; otherwise it is empty. If declared noise is observed, ``labels``
    counts how often each label was drawn. As long as ``origin`` is the same object, counts were only added: a row whose
    number of visits is unchanged has unchanged slots.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.clear()

    def clear(self) -> None:
        """Remove all counts."""
        problem = self.problem
        self.origin = object()
        self.episodes = 0
        slots, n_slots = problem.slots, len(problem.slots.successor)
        pool = n_slots + max(spare_slots(problem), 1024)
        self.arrays = CountArrays(
            visits=np.zeros(problem.n_rows, dtype=np.int64),
            begin=slots.begin.copy(),
            used=slots.used.copy(),
            capacity=np.zeros(problem.n_rows, dtype=np.int64),
            max_outcomes=problem.max_outcomes.copy(),
            successor=_padded(slots.successor, pool),
            tally=np.zeros(pool, dtype=np.int64),
            low=_padded(slots.low, pool),
            high=_padded(slots.high, pool),
            end=np.array([n_slots]),
        )
        self.reward_counts = new_reward_counts(problem.n_rows if problem.random_rewards else 0)
        self.labels = np.zeros(problem.n_observed_labels, dtype=np.int64)

    @classmethod
    def of(cls, problem: Problem, transitions: Transitions, episodes: int) -> Counts:
        """Return the counts of given transitions."""
        counts = cls(problem)
        counts.add(transitions, episodes)
        return counts

    def reserve(self, slots: int) -> None:
        """Enlarge the pool, if necessary, so that ``slots`` pool slots are free."""
        arrays = self.arrays
        needed = int(arrays.end[0]) + slots
        if needed > arrays.successor.size:
            pool = max(needed, 2 * arrays.successor.size)
            self.arrays = arrays._replace(**{name: _padded(getattr(arrays, name), pool) for name in _POOL})

    def add(self, transitions: Transitions, episodes: int) -> None:
        """Record the transitions of ``episodes`` complete episodes.

        Raises
        ------
        InvalidProblemError
            If a transition contradicts a declaration. The counts are then not changed.
        """
        problem, first = self.problem, 0
        if problem.reward is not None:
            transitions = problem.reward.checked(problem, transitions)
        check_allowed_rows(problem, transitions.rows)
        if problem.allowed is not None and problem.allowed.offered:  # also what a log played before its mask was known
            check_allowed_rows(problem, np.flatnonzero(self.arrays.visits))
        learned = problem.black_box_rewards
        fixed = learned and not problem.random_rewards
        assert transitions.rewards.size == learned * transitions.rows.size
        if learned and not transitions.upper.size:
            transitions = transitions._replace(upper=transitions.rewards)
        if transitions.labels.size != self.labels.size:
            raise InvalidProblemError("labels of noise must be given if it is declared with observed=, and only then")
        declared = problem.successors != "unknown" or problem.max_successors is not None
        declared = declared or (problem.artificial and problem.start is not None)
        before = self.state() if learned or declared else None
        code = _FULL
        while code == _FULL:
            if fixed:
                sizes = problem.n_states, problem.n_actions
                first, code = _record_outcomes(self.arrays, *sizes, problem.same_reward, transitions, first)
            else:
                first, code = _record_all(self.arrays, problem.n_states, transitions, first)
            if code == _FULL:
                self.reserve(self.arrays.successor.size)
        if code < 0:
            assert before is not None
            self.restore(before)
            row, successor = int(transitions.rows[first]), int(transitions.successors[first])
            if code == _FORBIDDEN or problem.noise is not None:
                self.refuse(row, successor, float(transitions.rewards[first]) if fixed else None)
            raise InvalidProblemError(
                f"the reward of {problem.describe(row)} to state {problem.state_names[successor]!r} changed: "
                f"now {transitions.rewards[first]}, but with reward_law='fixed' it must be determined by state, action and "
                f"next state{' (or declare the successor once for each reward)' * (problem.successors != 'unknown')}; "
                "reward_law='random' (--reward-law random) learns the law of a random one "
                f"(after {self.episodes} episodes, which are kept)"
            )
        self.episodes += episodes
        self.labels = self.labels + transitions.labels
        if problem.random_rewards and transitions.rows.size:
            edges = cell_edges(*problem.declared_range)
            self.reward_counts = self.reward_counts.with_transitions(transitions, edges)

    def refuse(self, row: int, successor: int, reward: float | None = None) -> NoReturn:
        """Raise an error for an outcome that contradicts the declared start, noise, successors or number of successors."""
        problem, slots, state = self.problem, self.problem.slots, self.problem.state_names[successor]
        paid = "" if reward is None else f" with reward {reward}"
        went = f"{problem.describe(row)} went to state {state!r}"
        listed = slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]]
        if problem.artificial and problem.start is not None and row == problem.n_rows - 1:
            why = "but the first one in another" if problem.start == FIXED else "which is not a declared first state"
            message = f"the declared start is wrong: an episode started in state {state!r}, {why}"
        elif problem.noise is not None:
            message = f"the declared noise is wrong: {went}{paid}, which no label explains"
        elif successor in listed or problem.n_states in listed:
            most = int(problem.max_outcomes[row])
            others = "another outcome" if most == 1 else f"{most} other outcomes"
            message = f"max_successors={most} is wrong: {went}{paid}, but had {others} before"
        else:
            message = f"the declared successors are wrong: {went}, which was declared impossible"
        raise InvalidProblemError(f"{message} (after {self.episodes} episodes, which are kept)")

    def occupied_slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each slot of the rows that were visited, and the slots."""
        return slots_of(self.arrays, np.flatnonzero(self.arrays.visits))

    def seen(self) -> Transitions:
        """Return all transitions, row by row in the order of the slots: added to new counts, they get the same slots."""
        problem, arrays = self.problem, self.arrays
        rows, slots = self.occupied_slots()
        times = arrays.tally[slots]
        rows, slots, times = rows[times > 0], slots[times > 0], times[times > 0]
        if problem.random_rewards:
            return self._paid(rows * problem.n_states + arrays.successor[slots])
        seen = Transitions(rows, arrays.successor[slots], times, labels=self.labels)
        if problem.black_box_rewards:
            seen = seen._replace(rewards=arrays.low[0, slots], upper=arrays.high[0, slots])
        return seen

    def _paid(self, order: np.ndarray) -> Transitions:
        """Return all random rewards, in the given ``order`` of transitions, each written as ``row * S + successor``."""
        seen = self.reward_counts
        sorter, keys = np.argsort(order), seen.rows * self.problem.n_states + seen.successor
        wanted = np.argsort(sorter[np.searchsorted(order[sorter], keys)], kind="stable")
        columns = (seen.rows, seen.successor, seen.times, seen.low, seen.high)
        return Transitions(*(column[wanted] for column in columns))

    def transitions(self) -> Transitions:
        """Return all transitions in canonical form: sorted by row, successor and, if rewards are learned, reward."""
        seen = self.seen()
        learned = (seen.rewards,) if seen.rewards.size else ()
        order = np.lexsort((*learned, seen.successors, seen.rows))
        ordered = {name: array[order] for name, array in seen._asdict().items() if array.size and name != "labels"}
        return seen._replace(**ordered)

    def state(self) -> dict[str, Any]:
        """Return a copy of all data, for :meth:`restore`."""
        end = int(self.arrays.end[0])
        copies = {name: array[..., :end] if name in _POOL else array for name, array in self.arrays._asdict().items()}
        kept = {name: getattr(self, name) for name in ("episodes", "labels", "reward_counts")}
        return kept | {name: array.copy() for name, array in copies.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.episodes, self.labels, self.reward_counts = state["episodes"], state["labels"], state["reward_counts"]
        self.arrays = CountArrays(**{name: np.array(state[name]) for name in CountArrays._fields})
        self.origin = object()
        self.reserve(max(spare_slots(self.problem), 1024))


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """Return a copy of ``array`` with its last axis extended to ``length`` by zeros."""
    result = np.zeros((*array.shape[:-1], length), dtype=array.dtype)
    result[..., : array.shape[-1]] = array
    return result
