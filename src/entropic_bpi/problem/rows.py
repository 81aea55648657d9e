"""Rows and slots: how state-action pairs and their possible successors are numbered.

A *row* is a state-action pair whose transitions are estimated together: ``(h, s, a)``, or ``(s, a)`` if the kernel is
declared stationary and counts are pooled over steps. A *slot* is a possible outcome of a row. A random start is represented
by an artificial first step with one state, one action and reward 0, whose row is the last one and is never pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from entropic_bpi.compile.decorators import by_pointer, inlined
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.sentences import END_REWARDS, STAY_REWARDS
from entropic_bpi.tools.checks import check_memory
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Integers, Reals

if TYPE_CHECKING:
    from entropic_bpi.problem.declarations import Declarations

Compressed = tuple[np.ndarray, np.ndarray]
"""Successors as compressed rows ``(indptr, indices)``."""

# Up to this number of states, a row with unknown successors has a slot for every state. With more states, it has slots only
# for the successors that were seen, and one for "elsewhere".
EXPLICIT_STATES = 64
_MAX_EXPLICIT_SLOTS = 50_000_000


@by_pointer
class Frame(NamedTuple):
    """Sizes and row numbering, in the form that compiled kernels take.

    ``steps`` includes the artificial first step, if there is one. States that can be reached at step ``h`` under the
    declared successors are ``states[first_state[h] : first_state[h + 1]]``. ``allowed`` contains the action masks
    ``(1 | H, S, A)``, or a single 1 if there are none.
    """

    steps: int
    n_states: int
    n_actions: int
    artificial: int
    pooled: int
    start: int
    first_state: np.ndarray
    states: np.ndarray
    allowed: np.ndarray


def check_plan_fits(horizon: int, n_states: int, n_actions: int) -> None:
    """Raise an error if plans need too much memory: at least 8 numbers for every step, state and action."""
    sizes = f"{horizon} steps, {n_states} states and {n_actions} actions"
    check_memory(f"identification over {sizes}", 8 * horizon * n_states * n_actions)


@inlined
def row_of(frame: Frame, h: int, s: int, a: int) -> int:
    """Return the row that counts action ``a`` in state ``s`` at planned step ``h``."""
    pairs = frame.n_states * frame.n_actions
    if frame.artificial and h == 0:
        return pairs if frame.pooled else (frame.steps - 1) * pairs
    if frame.pooled:
        return s * frame.n_actions + a
    return ((h - frame.artificial) * frame.n_states + s) * frame.n_actions + a


@inlined
def actions_at(frame: Frame, h: int) -> int:
    """Return the number of actions at planned step ``h``."""
    return 1 if frame.artificial and h == 0 else frame.n_actions


@inlined
def is_allowed(frame: Frame, h: int, s: int, a: int) -> bool:
    """Return whether action ``a`` may be played in state ``s`` at planned step ``h``."""
    if frame.allowed.size == 1 or (frame.artificial and h == 0):
        return True
    return frame.allowed[reward_step(frame, frame.allowed, h), s, a] != 0


@inlined
def reward_step(frame: Frame, table: np.ndarray, h: int) -> int:
    """Return the index along the step axis of ``table`` (of length 1 or H) at planned step ``h``."""
    return 0 if table.shape[0] == 1 else h - frame.artificial


def index_by_name(names: Sequence[str], labels: Iterable[Any] | None = None) -> Callable[[Any], int]:
    """Return a function that maps names and labels of states or actions to their numbers, and other objects to -1.

    The default labels are the numbers. A state whose label is None or not hashable is found only by its name.
    """
    known = range(len(names)) if labels is None else labels
    numbers: dict[Any, int] = {str(name): i for i, name in enumerate(names)}
    numbers |= {label: i for i, label in enumerate(known) if label is not None and label.__hash__}

    def index(given: Any) -> int:
        try:
            return numbers.get(given, -1)
        except TypeError:  # not hashable
            return -1

    return index


class Slots(NamedTuple):
    """The possible successors of every row, before the first episode.

    Row ``i`` has the slots ``begin[i] : begin[i] + used[i]``, which rows may share. ``successor`` is the number of the next
    state, or ``n_states`` for "some state not seen yet". ``low`` and ``high``, of shape ``(0 | 1 | H, slots)``, bound the
    reward of the slot; the first axis is empty if rewards depend only on (s, a). ``possible[i]`` is the number of possible
    outcomes of row ``i``.
    """

    begin: Integers
    used: Integers
    successor: Integers
    low: Reals
    high: Reals
    possible: Integers

    def paying(self, ends: tuple[float, float]) -> Slots:
        """Return the slots of a black box with rewards in another range."""
        first = 2 + int(self.used[-1])
        low, high = (np.full((1, len(self.successor)), end) for end in ends)
        low[0, 1] = high[0, 1] = 0.0
        low[0, 2:first] = high[0, 2:first] = min(ends[0], 0.0)
        return self._replace(low=low, high=high)


def slots_of(slots: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each slot of ``rows``, one row after another, and the slots.

    ``slots`` are the slots of a problem, or the arrays of counts.
    """
    used = slots.used[rows]
    first = np.cumsum(used) - used
    return np.repeat(rows, used), np.repeat(slots.begin[rows] - first, used) + np.arange(used.sum())


def slots_of_black_box(
    n_observations: int,
    n_actions: int,
    given: Declarations,
    successors: Compressed | None,
    known: tuple[np.ndarray, np.ndarray] | None,
) -> Slots:
    """Return the slots of an environment or a log, for declarations with states and actions by number.

    Slot 0 is any outcome that was not seen yet. Slot 1 is the transition from the end to itself, with reward 0. From slot 2
    on, there are the declared first states or, if none are declared, a first state that was not seen yet. Then follow the
    declared successors, row by row. If rewards are fixed, different rewards with the same next state are different outcomes.
    ``known`` are the smallest and the largest reward of each declared successor or, if no successors are declared, of each
    pair, which then has its own slot for any outcome.
    """
    assert given.reward_range is not None
    n_states, pairs, (low, high) = n_observations + 1, n_observations * n_actions, given.reward_range
    listed_starts = isinstance(given.start, list)
    times: Any = given.horizon if given.stationary is False else 1
    first = given.start if listed_starts else [n_states]
    nothing, head = [min(low, 0.0)] * len(first), 2 + len(first)
    begin, used = np.zeros(pairs, dtype=np.int64), np.ones(pairs, dtype=np.int64)
    rewards = END_REWARDS + STAY_REWARDS if given.reward_law in (None, "fixed") else 2
    possible = np.full(pairs, n_observations - 1 + rewards)
    listed = np.empty(0, dtype=np.int64)
    if successors is not None:
        begin, listed = head + successors[0][:-1], successors[1]
        used = possible = np.diff(successors[0])
    elif known is not None:
        begin, listed = head + np.arange(pairs), np.full(pairs, n_states)
    lows, highs = (np.full(len(listed), low), np.full(len(listed), high)) if known is None else known
    end = np.ones(n_actions, dtype=np.int64)  # the rows of the end: slot 1, and one slot each

    def of_rows(part: np.ndarray, start: int) -> np.ndarray:
        return np.append(np.tile(np.append(part, end), times), start)

    return Slots(
        begin=of_rows(begin, 2),
        used=of_rows(used, len(first)),
        successor=np.concatenate([[n_states, n_observations, *first], listed]),
        low=np.concatenate([[low, 0.0, *nothing], lows])[None],
        high=np.concatenate([[high, 0.0, *nothing], highs])[None],
        possible=of_rows(possible, len(first) if listed_starts else n_observations),
    )


def declared_rows(mdp: FiniteMDP, successors: Any) -> Compressed | None:
    """Return declared successors as compressed rows ``(indptr, indices)`` over (s, a) or (h, s, a); None if unknown."""
    if successors is None or isinstance(successors, tuple):  # compressed rows already
        return successors
    if isinstance(successors, str):
        if successors != "model":
            raise InvalidProblemError(
                f"successors must be None, 'model' or a boolean mask (S, A, S); got {shown(successors)}"
            )
        return mdp.rows.indptr, mdp.rows.indices
    shape = (mdp.n_states, mdp.n_actions, mdp.n_states)
    return rows_of_mask(successors, shape, f"successors must be a boolean mask of shape (S, A, S) = {shape}")


def rows_of_mask(given: Any, shape: tuple[int, ...], expected: str) -> Compressed:
    """Return a boolean mask of successors as compressed rows ``(indptr, indices)``."""
    try:
        mask = np.asarray(given)
    except ValueError:
        mask = np.empty(0)
    if mask.shape != shape or mask.dtype != np.bool_:
        got = shown(given) if isinstance(given, str) else f"dtype {mask.dtype}, shape {mask.shape}"
        raise InvalidProblemError(f"{expected}; got {got}")
    for s, a in np.argwhere(~mask.any(axis=2)):
        raise InvalidProblemError(f"successors[s={s}, a={a}] allows no next state")
    flat = mask.reshape(-1, shape[2])
    return np.concatenate([[0], np.cumsum(flat.sum(axis=1))]), np.nonzero(flat)[1]


def slots_of_model(mdp: FiniteMDP, stationary: bool, successors: Any, starts: Any = None) -> Slots:
    """Return the slots of every row of a model; rows with the same successors and rewards share them if possible."""
    n, pairs, rows = mdp.n_states, mdp.n_states * mdp.n_actions, declared_rows(mdp, successors)
    if rows is None and mdp.next_state_rewards:
        # Each (s, a) has its own reward for every next state, so each needs its own slots.
        if pairs * n > _MAX_EXPLICIT_SLOTS:
            raise InvalidProblemError(
                "unknown successors with rewards that depend on the next state need a table of "
                f"{pairs * n} entries: declare the possible successors"
            )
        rows = np.arange(pairs + 1) * n, np.tile(np.arange(n), pairs)
    if rows is not None:
        begin, used, successor = rows[0][:-1], np.diff(rows[0]), rows[1]
        owner, possible = np.repeat(np.arange(len(begin)) % pairs, used), used
    else:
        successor = np.arange(n) if n <= EXPLICIT_STATES else np.array([n])
        begin, used = np.zeros(pairs, dtype=np.int64), np.full(pairs, len(successor))
        owner, possible = np.zeros(len(successor), dtype=np.int64), np.full(pairs, n)
    rewards = _slot_rewards(mdp, owner, successor, per_step=len(begin) > pairs)
    if not stationary and len(begin) == pairs:
        begin, used, possible = (np.tile(array, mdp.horizon) for array in (begin, used, possible))
    if not isinstance(mdp.start, int):
        if not isinstance(starts, list):
            starts = np.flatnonzero(mdp.start_distribution > 0) if isinstance(successors, str) else np.arange(n)
        begin = np.append(begin, len(successor))
        used, possible = np.append(used, len(starts)), np.append(possible, len(starts))
        successor = np.concatenate([successor, starts])
        # The artificial step has reward 0. Slot rewards are measured from the smallest reward, which therefore stands for 0.
        nothing = np.full((len(rewards), len(starts)), rewards.min(initial=np.inf))
        rewards = np.concatenate([rewards, nothing], axis=1)
    begin, used, successor, possible = (part.astype(np.int64) for part in (begin, used, successor, possible))
    return Slots(begin, used, successor, rewards, rewards.copy(), possible)


def _slot_rewards(mdp: FiniteMDP, pair: np.ndarray, successor: np.ndarray, *, per_step: bool) -> np.ndarray:
    """Return the rewards of the slots, 0 for impossible transitions; with an empty first axis if they depend only on (s, a).

    ``per_step`` says that the slots are the entries of the model's own rows, which differ between steps.
    """
    if not mdp.next_state_rewards:
        return np.empty((0, len(pair)))
    rows, pairs = mdp.rows, mdp.n_states * mdp.n_actions
    assert rows.rewards is not None
    if per_step:
        return np.array(rows.rewards)
    if mdp.rewards is not None:
        table = mdp.rewards if mdp.rewards.ndim == 4 else mdp.rewards[None]
        return table.reshape(len(table), pairs, mdp.n_states)[:, pair, successor]
    steps = map(mdp.step_rows, range(1 if mdp.stationary and len(rows.rewards) == 1 else mdp.horizon))
    shape = pairs, mdp.n_states
    tables = (sparse.csr_matrix((step.rewards, step.indices, step.indptr), shape) for step in steps)
    return np.concatenate([np.asarray(table[pair, successor]) for table in tables])
