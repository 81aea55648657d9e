"""Rows and slots: how state-action pairs and their possible successors are numbered.

A *row* is a state-action pair whose transitions are estimated together: ``(h, s, a)``, or ``(s, a)`` when the kernel is
declared stationary and counts are pooled over steps. A *slot* is a possible outcome of a row. A random start is handled by
an artificial first step with one state, one action and reward 0, whose row is the last one and is never pooled.
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

# Up to this many states a row with unknown successors lists every state; beyond, only those seen and "elsewhere".
EXPLICIT_STATES = 64
_MAX_EXPLICIT_SLOTS = 50_000_000


@by_pointer
class Frame(NamedTuple):
    """Sizes and row numbering, in the form the compiled kernels take.

    ``steps`` counts the artificial first step, if there is one. States that can be reached at step ``h`` under the
    declared successors are ``states[first_state[h] : first_state[h + 1]]``. ``allowed`` has the action masks,
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
    """A plan has at least 8 numbers for every step, state and action, whatever the method."""
    sizes = f"{horizon} steps, {n_states} states and {n_actions} actions"
    check_memory(f"identification over {sizes}", 8 * horizon * n_states * n_actions)


@inlined
def row_of(frame: Frame, h: int, s: int, a: int) -> int:
    """The row whose counts govern action ``a`` in state ``s`` at planned step ``h``."""
    pairs = frame.n_states * frame.n_actions
    if frame.artificial and h == 0:
        return pairs if frame.pooled else (frame.steps - 1) * pairs
    if frame.pooled:
        return s * frame.n_actions + a
    return ((h - frame.artificial) * frame.n_states + s) * frame.n_actions + a


@inlined
def actions_at(frame: Frame, h: int) -> int:
    """How many actions there are at planned step ``h``."""
    return 1 if frame.artificial and h == 0 else frame.n_actions


@inlined
def is_allowed(frame: Frame, h: int, s: int, a: int) -> bool:
    """Whether action ``a`` may be played in state ``s`` at planned step ``h``."""
    if frame.allowed.size == 1 or (frame.artificial and h == 0):
        return True
    return frame.allowed[reward_step(frame, frame.allowed, h), s, a] != 0


@inlined
def reward_step(frame: Frame, table: np.ndarray, h: int) -> int:
    """Index along the step axis of ``table`` (of length 1 or H) at planned step ``h``."""
    return 0 if table.shape[0] == 1 else h - frame.artificial


def index_by_name(names: Sequence[str], labels: Iterable[Any] | None = None) -> Callable[[Any], int]:
    """Return a function that numbers states or actions, given by name or by label; -1 for anything else.

    The labels of a model are the numbers. What has no label, or one that cannot be looked up, has its name alone.
    """
    known = range(len(names)) if labels is None else labels
    numbers: dict[Any, int] = {str(name): i for i, name in enumerate(names)}
    numbers |= {label: i for i, label in enumerate(known) if label is not None and label.__hash__}

    def index(given: Any) -> int:
        try:
            return numbers.get(given, -1)
        except TypeError:  # what cannot be looked up
            return -1

    return index


class Slots(NamedTuple):
    """The possible successors of every row, before anything was observed.

    Row ``i`` owns the slots ``begin[i] : begin[i] + used[i]``, which rows may share. ``successor`` names the next state,
    or ``n_states`` for "some state not seen yet". ``low`` and ``high`` bound the reward of the slot, shape
    ``(0 | 1 | H, slots)``; they have no rows when rewards depend on (s, a) only. ``possible[i]`` is the number of next
    states that row ``i`` may have.
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

    ``slots`` are those of a problem, or the arrays of counts.
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
    """Lay out the slots of an environment that can only be played, by what is declared about it in numbers.

    Slot 0: anything not seen yet; slot 1: the end stays the end and pays nothing; from slot 2 on the declared first states
    or, if there are none, a start not seen yet; then the declared successors, row by row, each with a reward that was not
    seen yet. Where rewards are fixed, another one is another outcome. ``known`` are the smallest and the largest reward
    of each declared successor or, if there are none, of each pair, which then has a slot of its own for anything.
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
    end = np.ones(n_actions, dtype=np.int64)  # which stays the end, by slot 1

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
    """Declared successors as compressed rows ``(indptr, indices)`` over (s, a) or (h, s, a); None if unknown."""
    if successors is None or isinstance(successors, tuple):  # numbered already
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
    """Lay out the slots of every row of a model; rows that look alike share them."""
    n, pairs, rows = mdp.n_states, mdp.n_states * mdp.n_actions, declared_rows(mdp, successors)
    if rows is None and mdp.next_state_rewards:
        # Each (s, a) has rewards of its own for every next state, so each needs its own slots.
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
        # The artificial step pays nothing; slot rewards are measured from the smallest reward, hence that value.
        nothing = np.full((len(rewards), len(starts)), rewards.min(initial=np.inf))
        rewards = np.concatenate([rewards, nothing], axis=1)
    begin, used, successor, possible = (part.astype(np.int64) for part in (begin, used, successor, possible))
    return Slots(begin, used, successor, rewards, rewards.copy(), possible)


def _slot_rewards(mdp: FiniteMDP, pair: np.ndarray, successor: np.ndarray, *, per_step: bool) -> np.ndarray:
    """Rewards of the slots, 0 where the model declares none; without rows when they do not depend on the next state.

    ``per_step``: the slots are the entries of the model's own rows, which change by step.
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
