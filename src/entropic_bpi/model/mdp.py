r"""The model: a finite MDP with a finite horizon, held dense or sparse, that cannot be wrong silently.

A :class:`FiniteMDP` has states :math:`0,\dots,S-1`, actions :math:`0,\dots,A-1`, steps :math:`0,\dots,H-1`,
transition probabilities :math:`p_h(s'\mid s,a)` and rewards :math:`r_h(s,a)` or :math:`r_h(s,a,s')`.

Dense models keep the array they were given, so that planning is a matrix product. Sparse models keep
:class:`SparseTransitions`, the compressed form that holds only the possible successors. Dense models produce the same
:class:`SparseTransitions` on demand: samplers, learners and the content hash all read that one form.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.files import read_fields, write_fields
from entropic_bpi.tools.text import shown

__all__ = ["FiniteMDP", "SparseTransitions", "check_model"]

SUM_TOLERANCE = 1e-9 * (1 + 1e-6)  # with room for the rounding of 1 + 1e-9
# Rows whose exact sum is off by less are left as they are, so that a model read back is the same to the last bit.
_SUM_ROUNDING = 1e-14
_LARGEST_RETURN = 1e307
# Numbers that are checked at a time, so that a check needs little memory beside a large model.
_PIECE = 1 << 18


@dataclass(frozen=True, eq=False)
class SparseTransitions:
    """Transitions as compressed rows; row ``(h * S + s) * A + a``, with ``h = 0`` only when stationary.

    Attributes
    ----------
    indptr : int64 array, ``(rows + 1,)``
        Row ``i`` owns the entries ``indptr[i]`` to ``indptr[i + 1]``.
    indices : int32 array, ``(entries,)``
        The next state of each entry, increasing within a row.
    probabilities : float64 array, ``(entries,)``
    rewards : float64 array, ``(1, entries)`` or ``(H, entries)``, or None
        Rewards that depend on the next state, aligned with the entries; ``None`` when they do not.
    """

    indptr: np.ndarray
    indices: np.ndarray
    probabilities: np.ndarray
    rewards: np.ndarray | None = None


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


class FiniteMDP:
    r"""A finite MDP with a finite horizon: immutable, validated, hashable by content.

    Parameters
    ----------
    transitions
        ``(S, A, S)`` (the same at every step) or ``(H, S, A, S)``; or, for large models, a sequence of ``A``
        SciPy sparse ``(S, S)`` matrices (stationary), or ``H`` such sequences; or :class:`SparseTransitions`. Arrays that
        begin with the action need ``order="ass"``; with as many actions as states nobody could tell them apart.
    rewards
        ``(S, A)``, ``(S, A, S)``, ``(H, S, A)`` or ``(H, S, A, S)``, any finite reals. With sparse transitions,
        next-state rewards may also be a sequence of ``A`` sparse ``(S, S)`` matrices, or ``H`` such sequences (absent
        entries are 0). With :class:`SparseTransitions` that carry the rewards, the pair ``(S, A)`` of sizes stands here.
    horizon
        Number of steps :math:`H \ge 1`.
    start
        The first state, or a distribution over states.
    state_names, action_names
        Optional names, one per state or action, all different.
    order : {"sas", "ass"}
        Order of the axes of transitions, and of rewards that depend on the next state, given as arrays: ``(S, A, S)`` or
        ``(A, S, S)``, in both cases after the step if there is one.

    Raises
    ------
    InvalidModelError
        If anything is inconsistent; the message says where. Probabilities below 0 and sums off 1 by at most 1e-9, or by
        the rounding of single precision if they are given in it, are put right silently.

    Examples
    --------
    A coin that pays 1 or 0, against a sure 0.4:

    >>> import entropic_bpi as eb
    >>> transitions = [[[0, .5, .5], [0, 0, 1]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2]
    >>> rewards = [[0, .4], [1, 1], [0, 0]]
    >>> mdp = eb.FiniteMDP(transitions, rewards, horizon=2, action_names=["bet", "keep"])
    >>> mdp
    FiniteMDP(3 states, 2 actions, horizon 2, stationary, dense)
    >>> [round(eb.solve(mdp, beta).value, 3) for beta in (-2, 0, 2)]
    [0.4, 0.5, 0.717]
    """

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        *,
        horizon: int,
        start: Any = 0,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        order: str = "sas",
    ) -> None:
        if order not in ("sas", "ass"):
            raise InvalidModelError(f"order must be 'sas' or 'ass', got {shown(order)}")
        if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 1:
            raise InvalidModelError(f"horizon must be an integer of at least 1, got {shown(horizon)}")
        if horizon >= 2**63:
            raise InvalidModelError(f"horizon must be below 2**63, got {shown(horizon)}")
        self._horizon = int(horizon)
        self._kernel: np.ndarray | None = None
        self._sparse_rows: SparseTransitions | None = None
        self._rewards: np.ndarray | None = None
        if order == "ass" and not isinstance(transitions, SparseTransitions) and not _is_sparse_sequence(transitions):
            transitions, rewards = _state_first(transitions, rewards)
        if isinstance(transitions, SparseTransitions):
            self._read_rows(transitions, rewards)
        elif _is_sparse_sequence(transitions):
            self._read_sparse(transitions)
        else:
            self._read_dense(transitions)
        self._read_rewards(rewards, may_be_next_state=not isinstance(transitions, SparseTransitions))
        self._start = self._read_start(start)
        self._state_names = _read_names("state_names", state_names, self._n_states)
        self._action_names = _read_names("action_names", action_names, self._n_actions)

    # -- reading the input ---------------------------------------------------------------------------

    def _read_dense(self, transitions: Any) -> None:
        kernel = _as_floats("transitions", transitions)
        shape = kernel.shape
        if kernel.ndim not in (3, 4) or 0 in shape or shape[-1] != shape[-3]:
            swapped = kernel.ndim in (3, 4) and shape[-1] == shape[-2]
            raise InvalidModelError(
                f"transitions must have shape (S, A, S) or (H, S, A, S) with S, A of at least 1, got {shape}"
                + (": if they begin with the action, pass order='ass'" if swapped else "")
            )
        has_step_axis = kernel.ndim == 4
        kernel = kernel if has_step_axis else kernel[None]
        self._set_sizes(len(kernel), *shape[-3:-1], has_step_axis=has_step_axis)
        indptr = np.arange(0, kernel.size + 1, self._n_states)
        self._normalise(kernel.reshape(-1), indptr, _tolerance(np.asarray(transitions).dtype))
        self._kernel = _frozen(kernel)

    def _read_sparse(self, transitions: Any) -> None:
        per_step = not sparse.issparse(transitions[0])
        matrices = [list(step) for step in transitions] if per_step else [list(transitions)]
        n_actions, n_states = len(matrices[0]), matrices[0][0].shape[0]
        if n_states == 0:
            raise InvalidModelError("transitions must be sparse (S, S) matrices with S of at least 1, got S = 0")
        self._set_sizes(len(matrices), n_states, n_actions, has_step_axis=per_step)
        coarse = max(_tolerance(matrix.dtype) for step in matrices for matrix in step if sparse.issparse(matrix))
        self._set_rows(
            SparseTransitions(*_interleave(matrices, n_states, n_actions, "transitions")), coarse, copy=False
        )

    def _read_rows(self, rows: SparseTransitions, rewards: Any) -> None:
        """Take compressed rows as they are; the number of states and actions follows from the rewards."""
        if rows.rewards is None:
            shape = _checked("rewards", rewards, *_REALS).shape
            if len(shape) not in (2, 3):
                raise InvalidModelError(f"with Rows, rewards must have shape (S, A) or (H, S, A), got {shape}")
            n_states, n_actions = shape[-2:]
        else:
            n_states, n_actions = self._sizes_of_rows(rewards)
        n_rows, pairs = _as_integers("indptr", rows.indptr).size - 1, n_states * n_actions
        if pairs <= 0 or n_rows not in (pairs, pairs * self._horizon):
            raise InvalidModelError(f"{n_rows} rows do not fit {n_states} states and {n_actions} actions")
        self._set_sizes(n_rows // pairs, n_states, n_actions, has_step_axis=n_rows != pairs)
        self._set_rows(rows, _tolerance(_checked("probabilities", rows.probabilities, *_REALS).dtype), copy=True)

    @staticmethod
    def _sizes_of_rows(rewards: Any) -> tuple[int, int]:
        if not (isinstance(rewards, tuple) and len(rewards) == 2 and all(isinstance(n, int) for n in rewards)):
            raise InvalidModelError("with rewards inside the rows, pass rewards=(n_states, n_actions)")
        return rewards

    def _set_sizes(self, steps: int, n_states: int, n_actions: int, *, has_step_axis: bool) -> None:
        if has_step_axis and steps != self._horizon:
            raise InvalidModelError(f"transitions have {steps} steps but the horizon is {self._horizon}")
        self._n_states, self._n_actions = n_states, n_actions
        self._stationary = steps == 1

    def _set_rows(self, rows: SparseTransitions, tolerance: float, *, copy: bool) -> None:
        indptr = _as_integers("indptr", rows.indptr).astype(np.int64, order="C", copy=copy)
        indices = _as_integers("indices", rows.indices)
        probabilities = _as_floats("probabilities", rows.probabilities, copy=copy)
        starts, ends, n_rows = indptr[:-1], indptr[1:], len(indptr) - 1
        if (
            indptr[0] != 0
            or indices.shape != (indptr[-1],)
            or probabilities.shape != indices.shape
            or _first(n_rows, lambda piece: ends[piece] < starts[piece]) is not None
        ):
            raise InvalidModelError("rows are inconsistent: indptr does not partition the entries")
        empty = _first(n_rows, lambda piece: ends[piece] == starts[piece])
        if empty is not None:
            raise InvalidModelError(f"{self._place(empty)} sums to 0, expected 1")
        outside = _first(len(indices), lambda piece: (indices[piece] < 0) | (indices[piece] >= self._n_states))
        if outside is not None:
            place = self._place(_row_of(outside, indptr))
            raise InvalidModelError(f"{place} goes to state {indices[outside]}, expected 0 to {self._n_states - 1}")
        indices = indices.astype(np.int32, order="C", copy=copy)
        disordered = _first(len(indices) - 1, lambda piece: _disordered(indices, indptr, piece))
        if disordered is not None:
            place = self._place(_row_of(disordered, indptr))
            raise InvalidModelError(f"{place}: next states must be increasing, without repeats")
        self._normalise(probabilities, indptr, tolerance)
        rewards = None
        if rows.rewards is not None:
            rewards = np.atleast_2d(_as_floats("row rewards", rows.rewards))
            steps = (1, self._horizon) if self._stationary else (1,)
            if rewards.shape not in [(step, len(indices)) for step in steps]:
                raise InvalidModelError(f"row rewards must align with the {len(indices)} entries, got {rewards.shape}")
            self._check_rewards(rewards, lambda index: self._place(_row_of(index[1], indptr), label="row rewards"))
        if not probabilities.all():
            possible = probabilities > 0
            indptr = np.concatenate([[0], np.cumsum(np.add.reduceat(possible, indptr[:-1], dtype=np.int64))])
            indices, probabilities = indices[possible], probabilities[possible]
            rewards = None if rewards is None else rewards[:, possible]
        frozen_rewards = None if rewards is None else _frozen(rewards)
        self._sparse_rows = SparseTransitions(_frozen(indptr), _frozen(indices), _frozen(probabilities), frozen_rewards)

    def _normalise(self, values: np.ndarray, indptr: np.ndarray, tolerance: float) -> None:
        """Make the rows delimited by ``indptr`` sum to 1 in place, or raise at the first bad entry or sum.

        The exact sum decides, so that dense and sparse forms of a model agree to the last bit.
        """
        bad = _first(len(values), lambda piece: ~((values[piece] >= -tolerance) & (values[piece] < np.inf)))
        if bad is not None:
            place = self._place(_row_of(bad, indptr))
            raise InvalidModelError(f"{place} holds {values[bad]}, expected probabilities of at least 0")
        for piece in _pieces(len(values)):
            np.maximum(values[piece], 0.0, out=values[piece])
        for rows in _pieces(len(indptr) - 1):
            starts = indptr[rows]
            with np.errstate(over="ignore"):
                sums = np.add.reduceat(values[starts[0] : indptr[rows.stop]], starts - starts[0])
            off = np.abs(sums - 1)
            if off.max() > tolerance:
                worst = int(np.argmax(off > tolerance))
                raise InvalidModelError(f"{self._place(rows.start + worst)} sums to {sums[worst]:.10g}, expected 1")
            for row in rows.start + np.flatnonzero(off > _SUM_ROUNDING / 2):
                entries = values[indptr[row] : indptr[row + 1]]
                total = math.fsum(entries)
                if abs(total - 1) > _SUM_ROUNDING:
                    entries /= total

    def _place(
        self, row: int, *, label: str = "transitions", step: int | None = None, successor: int | None = None
    ) -> str:
        pair, action = divmod(row, self._n_actions)
        row_step, state = divmod(pair, self._n_states)
        step = row_step if step is None and not self._stationary else step
        indices = {"h": step, "s": state, "a": action, "s'": successor}
        return f"{label}[{', '.join(f'{name}={index}' for name, index in indices.items() if index is not None)}]"

    def _read_rewards(self, rewards: Any, *, may_be_next_state: bool) -> None:
        rows = self._sparse_rows
        if rows is not None and rows.rewards is not None:
            return
        if rows is not None and _is_sparse_sequence(rewards):
            self._sparse_rows = replace(rows, rewards=_frozen(self._align_sparse_rewards(rows, rewards)))
            return
        array = self._dense_rewards(rewards, may_be_next_state=may_be_next_state)
        if rows is not None and array.ndim == 4:
            self._sparse_rows = replace(rows, rewards=_frozen(self._rewards_of_entries(rows, array)))
        else:
            self._rewards = _frozen(array)

    def _dense_rewards(self, rewards: Any, *, may_be_next_state: bool) -> np.ndarray:
        """Rewards given as an array, as ``(1 or H, S, A)`` or, except with Rows, ``(1 or H, S, A, S)``."""
        array = _as_floats("rewards", rewards)
        size = (self._n_states, self._n_actions)
        next_size = (*size, self._n_states)
        stationary_shapes = (size, next_size) if may_be_next_state else (size,)
        shapes = (*stationary_shapes, *((self._horizon, *shape) for shape in stationary_shapes))
        if array.shape not in shapes:
            raise InvalidModelError(
                f"rewards have shape {array.shape}, expected one of " + ", ".join(str(shape) for shape in shapes)
            )
        if may_be_next_state and shapes[1] == shapes[2] == array.shape and array.size > 1:
            raise InvalidModelError(
                f"rewards of shape {array.shape} could mean (S, A, S) or (H, S, A), since S = A = H: "
                "pass them with all four axes, (H, S, A, S)"
            )
        stationary = array.shape in stationary_shapes
        labels = ("s", "a", "s'") if stationary else ("h", "s", "a", "s'")

        def place(index: tuple[int, ...]) -> str:
            return "rewards[" + ", ".join(f"{label}={i}" for label, i in zip(labels, index, strict=False)) + "]"

        self._check_rewards(array, place)
        return array[None] if stationary else array

    def _check_rewards(self, rewards: np.ndarray, place: Callable[[tuple[int, ...]], str]) -> None:
        flat, largest = rewards.reshape(-1), _LARGEST_RETURN / self._horizon
        bad = _first(len(flat), lambda piece: ~(np.abs(flat[piece]) <= largest))
        if bad is not None:
            index = tuple(int(i) for i in np.unravel_index(bad, rewards.shape))
            expected = "a finite number" if not np.isfinite(rewards[index]) else "a sum over the horizon within doubles"
            raise InvalidModelError(f"{place(index)} is {rewards[index]}, expected {expected}")

    def _align_sparse_rewards(self, rows: SparseTransitions, rewards: Any) -> np.ndarray:
        """The rewards ``(1 or H, entries)`` of the entries of ``rows``, 0 where the sparse matrices have none."""
        per_step = not sparse.issparse(rewards[0])
        steps = [list(step) for step in rewards] if per_step else [list(rewards)]
        if per_step and len(steps) != self._horizon:
            raise InvalidModelError(f"rewards have {len(steps)} steps but the horizon is {self._horizon}")
        row_of_entry = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        pairs = self._n_states * self._n_actions
        key = (row_of_entry % pairs) * self._n_states + rows.indices
        step_of_entry = row_of_entry // pairs
        aligned = np.zeros((len(steps) if self._stationary else 1, len(key)))
        for h, matrices in enumerate(steps):
            indptr, indices, values = _interleave([matrices], self._n_states, self._n_actions, "rewards")
            row = np.repeat(np.arange(pairs), np.diff(indptr))
            step = h if per_step else None

            def place(index: tuple[int, ...], row=row, indices=indices, step=step) -> str:  # type: ignore[no-untyped-def]
                entry = index[0]
                return self._place(int(row[entry]), label="rewards", step=step, successor=int(indices[entry]))

            self._check_rewards(values, place)
            if not values.size:
                continue
            given = row * self._n_states + indices
            position = np.minimum(np.searchsorted(given, key), len(given) - 1)
            found = np.where(given[position] == key, values[position], 0.0)
            if self._stationary:
                aligned[h] = found
            else:
                aligned[0] = np.where((step_of_entry == h) | (len(steps) == 1), found, aligned[0])
        return aligned

    def _rewards_of_entries(self, rows: SparseTransitions, rewards: np.ndarray) -> np.ndarray:
        """Next-state rewards ``(1 or H, S, A, S)`` at the entries of ``rows``, as ``(1 or H, entries)``."""
        flat = rewards.reshape(len(rewards), -1, self._n_states)
        row = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        if self._stationary:
            return np.asarray(flat[:, row, rows.indices])
        step, pair = np.divmod(row, self._n_states * self._n_actions)
        return np.asarray(flat[step if len(flat) > 1 else 0, pair, rows.indices][None])

    def _read_start(self, start: Any) -> int | np.ndarray:
        if isinstance(start, (bool, np.bool_)):
            raise InvalidModelError(f"start must be a state or a distribution over states, got {shown(start)}")
        if isinstance(start, (int, np.integer)):
            if not 0 <= start < self._n_states:
                raise InvalidModelError(f"start is state {shown(start)}, expected 0 to {self._n_states - 1}")
            return int(start)
        distribution = _as_floats("start", start)
        if distribution.shape != (self._n_states,):
            raise InvalidModelError(
                f"start must be a state or a distribution over the {self._n_states} states, "
                f"got shape {distribution.shape}"
            )
        tolerance = _tolerance(np.asarray(start).dtype)
        bad = ~((distribution >= -tolerance) & (distribution < np.inf))
        if bad.any():
            state = int(np.argmax(bad))
            raise InvalidModelError(f"start[{state}] is {distribution[state]}, expected a probability of at least 0")
        distribution = np.maximum(distribution, 0.0)
        if abs(distribution.sum() - 1) > tolerance:
            raise InvalidModelError(f"start sums to {distribution.sum():.10g}, expected 1")
        return _frozen(distribution / distribution.sum())

    # -- what a user reads -----------------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        return self._n_states

    @property
    def n_actions(self) -> int:
        return self._n_actions

    @property
    def horizon(self) -> int:
        return self._horizon

    @property
    def stationary(self) -> bool:
        """Whether the transitions are the same at every step."""
        return self._stationary

    @property
    def is_sparse(self) -> bool:
        return self._sparse_rows is not None

    @property
    def next_state_rewards(self) -> bool:
        """Whether rewards are given as a function of the next state as well."""
        return self._rewards is None or self._rewards.ndim == 4

    @property
    def start(self) -> int | np.ndarray:
        """The first state, or the distribution it is drawn from."""
        return self._start

    @property
    def start_distribution(self) -> np.ndarray:
        """The start as a distribution ``(S,)``, whatever way it was given."""
        if isinstance(self._start, int):
            distribution = np.zeros(self._n_states)
            distribution[self._start] = 1.0
            return distribution
        return self._start

    @property
    def state_names(self) -> tuple[str, ...]:
        return self._state_names or tuple(str(s) for s in range(self._n_states))

    @property
    def action_names(self) -> tuple[str, ...]:
        return self._action_names or tuple(str(a) for a in range(self._n_actions))

    @property
    def transitions(self) -> Any:
        """Transitions in the form they can be passed back to the constructor: an array, or :class:`SparseTransitions`."""
        if self._kernel is None:
            return self._sparse_rows
        return self._kernel[0] if self._stationary else self._kernel

    @property
    def rewards(self) -> np.ndarray | None:
        """``(S, A)``, ``(S, A, S)``, ``(H, S, A)`` or ``(H, S, A, S)``; None when :attr:`rows` carry them."""
        if self._rewards is None:
            return None
        return self._rewards if len(self._rewards) == self._horizon > 1 else self._rewards[0]

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest reward of a possible transition."""
        low, high = self._step_reward_ranges
        return float(low.min()), float(high.max())

    @cached_property
    def _step_reward_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """The same at each step, two arrays ``(H,)``, or ``(1,)`` if rewards are the same at every step."""
        rewards = self.rows.rewards if self.next_state_rewards else self._rewards
        assert rewards is not None
        if self.next_state_rewards and not self._stationary:  # the entries of all steps are one axis
            firsts = self.rows.indptr[: -1 : self._n_states * self._n_actions]
            return np.minimum.reduceat(rewards[0], firsts), np.maximum.reduceat(rewards[0], firsts)
        flat = rewards.reshape(len(rewards), -1)
        return flat.min(axis=1), flat.max(axis=1)

    @cached_property
    def rows(self) -> SparseTransitions:
        """The transitions as compressed rows, which every sampler and learner reads."""
        if self._sparse_rows is not None:
            return self._sparse_rows
        assert self._kernel is not None
        possible = np.flatnonzero(self._kernel)
        indptr = np.searchsorted(possible, np.arange(0, self._kernel.size + 1, self._n_states))
        indices = (possible % self._n_states).astype(np.int32)
        rows = SparseTransitions(_frozen(indptr), _frozen(indices), _frozen(self._kernel.reshape(-1)[possible]))
        if self._rewards is not None and self._rewards.ndim == 4:
            rows = replace(rows, rewards=_frozen(self._rewards_of_entries(rows, self._rewards)))
        return rows

    def step_rows(self, h: int) -> SparseTransitions:
        """The ``S * A`` rows of step ``h`` (0-based); their ``rewards`` have one axis, aligned with the entries."""
        rows, pairs = self.rows, self._n_states * self._n_actions
        if self._stationary:
            rewards = None if rows.rewards is None else rows.rewards[h if len(rows.rewards) > 1 else 0]
            return SparseTransitions(rows.indptr, rows.indices, rows.probabilities, rewards)
        indptr = rows.indptr[h * pairs : (h + 1) * pairs + 1]
        entries = slice(indptr[0], indptr[-1])
        rewards = None if rows.rewards is None else rows.rewards[0, entries]
        return SparseTransitions(
            _frozen(indptr - indptr[0]), rows.indices[entries], rows.probabilities[entries], rewards
        )

    def step_kernel(self, h: int) -> np.ndarray | None:
        """The dense ``(S * A, S)`` matrix of step ``h``, or None for a sparse model."""
        if self._kernel is None:
            return None
        return self._kernel[0 if self._stationary else h].reshape(-1, self._n_states)

    def step_rewards(self, h: int) -> np.ndarray:
        """The ``(S, A)`` rewards of step ``h``; only for models whose rewards do not depend on the next state."""
        assert self._rewards is not None
        assert self._rewards.ndim == 3
        return self._rewards[h if len(self._rewards) > 1 else 0]

    # -- identity ----------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"a FiniteMDP cannot be changed: build a new one with another {name}")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._from_fields, (self._fields(),)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything that defines the model, its numbers exactly, the same for its dense and sparse forms."""
        digest = hashlib.sha256()
        header = {
            "sizes": [self._n_states, self._n_actions, self._horizon],
            "stationary": self._stationary,
            "start": self._start if isinstance(self._start, int) else None,
            "states": self._state_names,
            "actions": self._action_names,
        }
        digest.update(json.dumps(header).encode())
        rewards = self.rows.rewards if self.next_state_rewards else self._rewards
        start = self._start if isinstance(self._start, np.ndarray) else np.empty(0)
        assert rewards is not None
        for array in (self.rows.indptr, self.rows.indices, self.rows.probabilities, rewards + 0.0, start):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FiniteMDP) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return int(self.content_hash[:15], 16)

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.short(self)

    def __repr__(self) -> str:
        kind = "stationary" if self._stationary else "per step"
        return (
            f"FiniteMDP({self._n_states} states, {self._n_actions} actions, horizon {self._horizon}, {kind}, "
            f"{'sparse' if self.is_sparse else 'dense'})"
        )

    # -- files ---------------------------------------------------------------------------------------------

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "horizon": self._horizon,
            "start": self._start,
            "sizes": [self._n_states, self._n_actions],
        }
        if self._state_names is not None:
            fields["state_names"] = list(self._state_names)
        if self._action_names is not None:
            fields["action_names"] = list(self._action_names)
        if self.is_sparse:
            rows = self.rows
            fields |= {"indptr": rows.indptr, "indices": rows.indices, "probabilities": rows.probabilities}
            if rows.rewards is not None:
                fields["entry_rewards"] = rows.rewards
        else:
            fields["transitions"] = self.transitions
        if self._rewards is not None:
            fields["rewards"] = self.rewards
        return fields

    def _with_rewards(self, rewards: np.ndarray) -> FiniteMDP:
        """The same model with other rewards: ``(S, A)`` or ``(H, S, A)``; those of ``rows`` if the next state matters."""
        fields = self._fields()
        if self.next_state_rewards:
            rows = self.rows
            fields |= {"indptr": rows.indptr, "indices": rows.indices, "probabilities": rows.probabilities}
            fields |= {"entry_rewards": rewards, "rewards": None}
        else:
            fields["rewards"] = rewards
        return FiniteMDP._from_fields(fields)

    def save(self, path: str | Path) -> None:
        """Write the model to ``path``: ``.npz``, or ``.json`` for small models. The round trip is exact."""
        write_fields(_as_path(path), self._fields())

    @classmethod
    def load(cls, path: str | Path) -> FiniteMDP:
        """Read a model that :meth:`save` wrote; whatever else the file holds, the answer is an error."""
        path = _as_path(path)
        fields = read_fields(path)
        try:
            mdp = cls._from_fields(fields)
        except InvalidModelError as error:
            raise InvalidModelError(f"{path}: {error}") from None
        if "sizes" in fields and fields["sizes"].tolist() != [mdp.n_states, mdp.n_actions]:
            raise InvalidModelError(f"{path}: sizes are {fields['sizes'].tolist()}, but the arrays are of {mdp!r}")
        return mdp

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> FiniteMDP:
        transitions, rewards = fields.get("transitions"), fields.get("rewards")
        if "indptr" in fields:
            indptr, indices, probabilities = (fields[name] for name in ("indptr", "indices", "probabilities"))
            transitions = SparseTransitions(indptr, indices, probabilities, fields.get("entry_rewards"))
            rewards = tuple(int(size) for size in fields["sizes"]) if rewards is None else rewards
        return cls(
            transitions,
            rewards,
            horizon=fields["horizon"],
            start=fields["start"],
            state_names=fields.get("state_names"),
            action_names=fields.get("action_names"),
        )


def check_model(value: Any, name: str = "mdp") -> FiniteMDP:
    """Return ``value``, or the model of the problem file (``problem.toml``) that it is the path of."""
    if isinstance(value, (str, Path)) and Path(value).suffix == ".toml":
        import entropic_bpi

        value = entropic_bpi.ProblemFile.read(value).model()
    if not isinstance(value, FiniteMDP):
        raise InvalidModelError(f"{name} must be a FiniteMDP, got {shown(value)}")
    return value


def _as_path(path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise InvalidModelError(f"a model is saved to and loaded from a path, got {shown(path)}") from None


def _is_sparse_sequence(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    first = value[0]
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    return bool(sparse.issparse(first))


def _state_first(transitions: Any, rewards: Any) -> tuple[np.ndarray, np.ndarray]:
    """Arrays ``(..., A, S, S)`` as ``(..., S, A, S)``; rewards of another shape do not depend on the next state."""
    kernel, paid = _checked("transitions", transitions, *_REALS), _checked("rewards", rewards, *_REALS)
    if kernel.ndim < 3 or kernel.shape[-1] != kernel.shape[-2]:
        raise InvalidModelError(
            f"transitions must have shape (A, S, S) or (H, A, S, S) with order='ass', got {kernel.shape}"
        )
    if paid.shape[-3:] == kernel.shape[-3:]:
        paid = np.swapaxes(paid, -3, -2)
    return np.swapaxes(kernel, -3, -2), paid


_REALS = ("biuf", "real numbers")
_INTEGERS = ("iu", "integers")


def _as_floats(name: str, value: Any, *, copy: bool = True) -> np.ndarray:
    """A contiguous float64 array with the content of ``value``, a new one unless ``copy`` is False."""
    return _checked(name, value, *_REALS).astype(np.float64, order="C", copy=copy)


def _as_integers(name: str, value: Any) -> np.ndarray:
    """``value`` as an array of integers with one axis, not copied."""
    array = _checked(name, value, *_INTEGERS)
    if array.ndim != 1:
        raise InvalidModelError(f"{name} must have one axis, got shape {array.shape}")
    return array


def _checked(name: str, value: Any, kinds: str, content: str) -> np.ndarray:
    """``value`` as an array, not copied."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidModelError(f"{name} must be an array of {content}: {error}") from None
    if array.dtype.kind not in kinds:
        raise InvalidModelError(f"{name} must be an array of {content}, got dtype {array.dtype}")
    return array


def _tolerance(dtype: np.dtype) -> float:
    """How far probabilities of this type may be off."""
    rounding = 8 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
    return max(SUM_TOLERANCE, rounding)


def _pieces(size: int) -> Iterator[slice]:
    for begin in range(0, size, _PIECE):
        yield slice(begin, min(begin + _PIECE, size))


def _first(size: int, test: Callable[[slice], np.ndarray]) -> int | None:
    """The first of ``size`` positions that fails, where ``test`` says for a piece of them which do."""
    for piece in _pieces(size):
        failed = test(piece)
        if failed.any():
            return piece.start + int(np.argmax(failed))
    return None


def _disordered(indices: np.ndarray, indptr: np.ndarray, piece: slice) -> np.ndarray:
    """Which entries of a piece are not below the next one of their row."""
    result = indices[piece] >= indices[piece.start + 1 : piece.stop + 1]
    first, last = np.searchsorted(indptr, [piece.start + 1, piece.stop + 1])
    result[indptr[first:last] - 1 - piece.start] = False  # the next one belongs to another row
    return np.asarray(result)


def _row_of(entry: int, indptr: np.ndarray) -> int:
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def _read_names(label: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    try:
        result = tuple(str(name) for name in names)
    except TypeError:
        raise InvalidModelError(f"{label} must be a sequence of {count} names, got {shown(names)}") from None
    if len(result) != count:
        raise InvalidModelError(f"{label} has {len(result)} names, expected {count}")
    if len(set(result)) != count:
        repeated = next(name for name, times in Counter(result).items() if times > 1)
        raise InvalidModelError(f"{label} repeats {repeated!r}: names must be different")
    return result


def _interleave(
    steps: list[list[Any]], n_states: int, n_actions: int, label: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed rows ``(h, s, a)`` out of one sparse ``(S, S)`` matrix per step and action."""
    lengths = np.empty((len(steps), n_states, n_actions), dtype=np.int64)
    compressed: list[list[Any]] = []
    for h, matrices in enumerate(steps):
        if len(matrices) != n_actions:
            raise InvalidModelError(
                f"{label}[h={h}] has {len(matrices)} matrices, expected one per action: {n_actions}"
            )
        compressed.append([])
        for a, matrix in enumerate(matrices):
            shape = getattr(matrix, "shape", None)
            if not (bool(sparse.issparse(matrix)) and shape == (n_states, n_states)):
                raise InvalidModelError(
                    f"{label}: the matrix of step {h}, action {a} must be sparse ({n_states}, {n_states}), "
                    f"got {type(matrix).__name__} of shape {shape}"
                )
            csr = sparse.csr_array(matrix, dtype=np.float64)
            if not (csr.has_canonical_format and csr.data.all()):
                csr = csr.copy()
                csr.sum_duplicates()
                csr.eliminate_zeros()
            compressed[h].append(csr)
            lengths[h, :, a] = np.diff(csr.indptr)
    indptr = np.concatenate([[0], np.cumsum(lengths.ravel())])
    indices = np.empty(indptr[-1], dtype=np.int32)
    values = np.empty(indptr[-1])
    first = indptr[:-1].reshape(lengths.shape)
    for h, matrices in enumerate(compressed):
        for a, csr in enumerate(matrices):
            target = np.repeat(first[h, :, a] - csr.indptr[:-1], lengths[h, :, a]) + np.arange(csr.nnz)
            indices[target] = csr.indices
            values[target] = csr.data
    return indptr, indices, values
