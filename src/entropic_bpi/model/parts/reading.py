"""Reading a model: transitions and rewards in every form that a user may have, checked and made uniform."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.formats.mdptoolbox import recognise
from entropic_bpi.model.parts.arrays import (
    REALS,
    SparseTransitions,
    as_floats,
    as_integers,
    checked,
    disordered,
    entries_of,
    first_failing,
    frozen,
    interleave,
    is_sparse_sequence,
    pieces,
    row_of_entry,
    starts_of,
    state_first,
    tolerance_of,
)
from entropic_bpi.model.parts.masks import check_allowed, row_sources
from entropic_bpi.tools.text import shown

# Rows whose exact sum is off by less are left as they are, so that a model read back is the same to the last bit.
_SUM_ROUNDING = 1e-14
_LARGEST_RETURN = 1e307


class ModelArrays:
    """Transitions and rewards of a model, checked.

    Attributes
    ----------
    horizon, n_states, n_actions : int
    stationary : bool
        Whether the transitions are the same at every step.
    allowed : bool array ``(1 or H, S, A)``, or None
        The allowed actions; None if all are.
    kernel : float array ``(1 or H, S, A, S)``, or None
        The transitions of a dense model.
    rows : SparseTransitions or None
        The transitions of a sparse model.
    rewards : float array ``(1 or H, S, A)`` or ``(1 or H, S, A, S)``, or None
        None if ``rows`` has them.
    """

    n_states: int
    n_actions: int
    stationary: bool
    allowed: np.ndarray | None

    def __init__(self, transitions: Any, rewards: Any, *, horizon: Any, order: Any, allowed: Any) -> None:
        if order not in (None, "sas", "ass"):
            raise InvalidModelError(f"order must be 'sas' or 'ass', got {shown(order)}")
        if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 1:
            raise InvalidModelError(f"horizon must be an integer of at least 1, got {shown(horizon)}")
        if horizon >= 2**63:
            raise InvalidModelError(f"horizon must be below 2**63, got {shown(horizon)}")
        self.horizon = int(horizon)
        self.kernel: np.ndarray | None = None
        self.rows: SparseTransitions | None = None
        self.rewards: np.ndarray | None = None
        self._masks = allowed
        transitions, rewards, order = recognise(transitions, rewards, order)
        if order == "ass" and not isinstance(transitions, SparseTransitions) and not is_sparse_sequence(transitions):
            transitions, rewards = state_first(transitions, rewards)
        if isinstance(transitions, SparseTransitions):
            self._read_rows(transitions, rewards)
        elif is_sparse_sequence(transitions):
            self._read_sparse(transitions)
        else:
            self._read_dense(transitions)
        self._read_rewards(rewards, may_be_next_state=not isinstance(transitions, SparseTransitions))

    def _read_dense(self, transitions: Any) -> None:
        kernel = as_floats("transitions", transitions)
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
        if self.allowed is not None:
            kernel = kernel.reshape(-1, shape[-1])[row_sources(self.allowed, len(kernel))].reshape(kernel.shape)
        indptr = np.arange(0, kernel.size + 1, self.n_states)
        self._normalise(kernel.reshape(-1), indptr, tolerance_of(np.asarray(transitions).dtype))
        self.kernel = frozen(kernel)

    def _read_sparse(self, transitions: Any) -> None:
        per_step = not sparse.issparse(transitions[0])
        matrices = [list(step) for step in transitions] if per_step else [list(transitions)]
        n_actions, n_states = len(matrices[0]), matrices[0][0].shape[0]
        if n_states == 0:
            raise InvalidModelError("transitions must be sparse (S, S) matrices with S of at least 1, got S = 0")
        self._set_sizes(len(matrices), n_states, n_actions, has_step_axis=per_step)
        coarse = max(tolerance_of(matrix.dtype) for step in matrices for matrix in step if sparse.issparse(matrix))
        self._set_rows(SparseTransitions(*interleave(matrices, n_states, n_actions, "transitions")), coarse, copy=False)

    def _read_rows(self, rows: SparseTransitions, rewards: Any) -> None:
        """Take compressed rows as they are; the number of states and actions follows from the rewards."""
        if rows.rewards is None:
            shape = checked("rewards", rewards, *REALS).shape
            if len(shape) not in (2, 3):
                raise InvalidModelError(f"with Rows, rewards must have shape (S, A) or (H, S, A), got {shape}")
            n_states, n_actions = shape[-2:]
        else:
            n_states, n_actions = self._sizes_of_rows(rewards)
        n_rows, pairs = as_integers("indptr", rows.indptr).size - 1, n_states * n_actions
        if pairs <= 0 or n_rows not in (pairs, pairs * self.horizon):
            raise InvalidModelError(f"{n_rows} rows do not fit {n_states} states and {n_actions} actions")
        self._set_sizes(n_rows // pairs, n_states, n_actions, has_step_axis=n_rows != pairs)
        self._set_rows(rows, tolerance_of(checked("probabilities", rows.probabilities, *REALS).dtype), copy=True)

    @staticmethod
    def _sizes_of_rows(rewards: Any) -> tuple[int, int]:
        if not (isinstance(rewards, tuple) and len(rewards) == 2 and all(isinstance(n, int) for n in rewards)):
            raise InvalidModelError("with rewards inside the rows, pass rewards=(n_states, n_actions)")
        return rewards

    def _set_sizes(self, steps: int, n_states: int, n_actions: int, *, has_step_axis: bool) -> None:
        if has_step_axis and steps != self.horizon:
            raise InvalidModelError(f"transitions have {steps} steps but the horizon is {self.horizon}")
        self.n_states, self.n_actions = n_states, n_actions
        self.stationary = steps == 1
        self.allowed = check_allowed(self._masks, self.horizon, n_states, n_actions)

    def _set_rows(self, rows: SparseTransitions, tolerance: float, *, copy: bool) -> None:
        indptr = as_integers("indptr", rows.indptr).astype(np.int64, order="C", copy=copy)
        indices = as_integers("indices", rows.indices)
        probabilities = as_floats("probabilities", rows.probabilities, copy=copy)
        starts, ends, n_rows = indptr[:-1], indptr[1:], len(indptr) - 1
        if (
            indptr[0] != 0
            or indices.shape != (indptr[-1],)
            or probabilities.shape != indices.shape
            or first_failing(n_rows, lambda piece: ends[piece] < starts[piece]) is not None
        ):
            raise InvalidModelError("rows are inconsistent: indptr does not partition the entries")
        rewards = None
        if rows.rewards is not None:
            rewards = np.atleast_2d(as_floats("row rewards", rows.rewards))
            steps = (1, self.horizon) if self.stationary else (1,)
            if rewards.shape not in [(step, len(indices)) for step in steps]:
                raise InvalidModelError(f"row rewards must align with the {len(indices)} entries, got {rewards.shape}")
        if self.allowed is not None:
            sources = row_sources(self.allowed, 1 if self.stationary else self.horizon)
            entries, lengths = entries_of(indptr, sources)
            indptr, indices, probabilities = starts_of(lengths), indices[entries], probabilities[entries]
            rewards = None if rewards is None else rewards[:, entries]
        starts, ends = indptr[:-1], indptr[1:]
        empty = first_failing(n_rows, lambda piece: ends[piece] == starts[piece])
        if empty is not None:
            raise InvalidModelError(f"{self._place(empty)} sums to 0, expected 1")
        outside = first_failing(len(indices), lambda piece: (indices[piece] < 0) | (indices[piece] >= self.n_states))
        if outside is not None:
            place = self._place(row_of_entry(outside, indptr))
            raise InvalidModelError(f"{place} goes to state {indices[outside]}, expected 0 to {self.n_states - 1}")
        indices = indices.astype(np.int32, order="C", copy=copy)
        mixed = first_failing(len(indices) - 1, lambda piece: disordered(indices, indptr, piece))
        if mixed is not None:
            place = self._place(row_of_entry(mixed, indptr))
            raise InvalidModelError(f"{place}: next states must be increasing, without repeats")
        self._normalise(probabilities, indptr, tolerance)
        if rewards is not None:
            self._check_rewards(rewards, lambda index: self._place(row_of_entry(index[1], indptr), label="row rewards"))
        if not probabilities.all():
            possible = probabilities > 0
            indptr = np.concatenate([[0], np.cumsum(np.add.reduceat(possible, indptr[:-1], dtype=np.int64))])
            indices, probabilities = indices[possible], probabilities[possible]
            rewards = None if rewards is None else rewards[:, possible]
        frozen_rewards = None if rewards is None else frozen(rewards)
        self.rows = SparseTransitions(frozen(indptr), frozen(indices), frozen(probabilities), frozen_rewards)

    def _normalise(self, values: np.ndarray, indptr: np.ndarray, tolerance: float) -> None:
        """Make the rows delimited by ``indptr`` sum to 1 in place, or raise at the first bad entry or sum.

        The exact sum decides, so that dense and sparse forms of a model agree to the last bit.
        """
        bad = first_failing(len(values), lambda piece: ~((values[piece] >= -tolerance) & (values[piece] < np.inf)))
        if bad is not None:
            place = self._place(row_of_entry(bad, indptr))
            raise InvalidModelError(f"{place} holds {values[bad]}, expected probabilities of at least 0")
        for piece in pieces(len(values)):
            np.maximum(values[piece], 0.0, out=values[piece])
        for rows in pieces(len(indptr) - 1):
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
        pair, action = divmod(row, self.n_actions)
        row_step, state = divmod(pair, self.n_states)
        step = row_step if step is None and not self.stationary else step
        indices = {"h": step, "s": state, "a": action, "s'": successor}
        return f"{label}[{', '.join(f'{name}={index}' for name, index in indices.items() if index is not None)}]"

    def _read_rewards(self, rewards: Any, *, may_be_next_state: bool) -> None:
        rows = self.rows
        if rows is not None and rows.rewards is not None:
            return
        if rows is not None and is_sparse_sequence(rewards):
            self.rows = replace(rows, rewards=frozen(self._align_sparse_rewards(rows, rewards)))
            return
        array = self._dense_rewards(rewards, may_be_next_state=may_be_next_state)
        if rows is not None and array.ndim == 4:
            self.rows = replace(rows, rewards=frozen(rewards_of_entries(rows, array, self.stationary)))
        else:
            self.rewards = frozen(array)

    def _dense_rewards(self, rewards: Any, *, may_be_next_state: bool) -> np.ndarray:
        """Rewards given as an array, as ``(1 or H, S, A)`` or, except with Rows, ``(1 or H, S, A, S)``."""
        array = as_floats("rewards", rewards)
        size = (self.n_states, self.n_actions)
        next_size = (*size, self.n_states)
        stationary_shapes = (size, next_size) if may_be_next_state else (size,)
        shapes = (*stationary_shapes, *((self.horizon, *shape) for shape in stationary_shapes))
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
        labels = (None if stationary else "h", "s", "a", "s'")

        def place(index: tuple[int, ...]) -> str:
            named = zip(labels, index, strict=False)
            return "rewards[" + ", ".join(f"{label}={i}" for label, i in named if label is not None) + "]"

        array = array[None] if stationary else array
        if self.allowed is not None:
            sources = row_sources(self.allowed, len(array))
            array = array.reshape(len(sources), -1)[sources].reshape(array.shape)
        self._check_rewards(array, place)
        return array

    def _check_rewards(self, rewards: np.ndarray, place: Callable[[tuple[int, ...]], str]) -> None:
        flat, largest = rewards.reshape(-1), _LARGEST_RETURN / self.horizon
        bad = first_failing(len(flat), lambda piece: ~(np.abs(flat[piece]) <= largest))
        if bad is not None:
            index = tuple(int(i) for i in np.unravel_index(bad, rewards.shape))
            expected = "a finite number" if not np.isfinite(rewards[index]) else "a sum over the horizon within doubles"
            raise InvalidModelError(f"{place(index)} is {rewards[index]}, expected {expected}")

    def _align_sparse_rewards(self, rows: SparseTransitions, rewards: Any) -> np.ndarray:
        """The rewards ``(1 or H, entries)`` of the entries of ``rows``, 0 where the sparse matrices have none."""
        per_step = not sparse.issparse(rewards[0])
        steps = [list(step) for step in rewards] if per_step else [list(rewards)]
        if per_step and len(steps) != self.horizon:
            raise InvalidModelError(f"rewards have {len(steps)} steps but the horizon is {self.horizon}")
        sources = np.arange(len(rows.indptr) - 1)
        if self.allowed is not None:
            sources = row_sources(self.allowed, 1 if self.stationary else self.horizon)
        source = np.repeat(sources, np.diff(rows.indptr))
        pairs = self.n_states * self.n_actions
        key = (source % pairs) * self.n_states + rows.indices
        step_of_entry = source // pairs
        aligned = np.zeros((len(steps) if self.stationary else 1, len(key)))
        for h, matrices in enumerate(steps):
            indptr, indices, values = interleave([matrices], self.n_states, self.n_actions, "rewards")
            row = np.repeat(np.arange(pairs), np.diff(indptr))
            step = h if per_step else None

            def place(index: tuple[int, ...], row=row, indices=indices, step=step) -> str:  # type: ignore[no-untyped-def]
                entry = index[0]
                return self._place(int(row[entry]), label="rewards", step=step, successor=int(indices[entry]))

            self._check_rewards(values, place)
            if not values.size:
                continue
            given = row * self.n_states + indices
            position = np.minimum(np.searchsorted(given, key), len(given) - 1)
            found = np.where(given[position] == key, values[position], 0.0)
            if self.stationary:
                aligned[h] = found
            else:
                aligned[0] = np.where((step_of_entry == h) | (len(steps) == 1), found, aligned[0])
        return aligned


def rewards_of_entries(rows: SparseTransitions, rewards: np.ndarray, stationary: bool) -> np.ndarray:
    """Next-state rewards ``(1 or H, S, A, S)`` at the entries of ``rows``, as ``(1 or H, entries)``."""
    n_states, n_actions = rewards.shape[1:3]
    flat = rewards.reshape(len(rewards), -1, n_states)
    row = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    if stationary:
        return np.asarray(flat[:, row, rows.indices])
    step, pair = np.divmod(row, n_states * n_actions)
    return np.asarray(flat[step if len(flat) > 1 else 0, pair, rows.indices][None])


def read_start(start: Any, n_states: int) -> int | np.ndarray:
    if isinstance(start, (bool, np.bool_)):
        raise InvalidModelError(f"start must be a state or a distribution over states, got {shown(start)}")
    if isinstance(start, (int, np.integer)):
        if not 0 <= start < n_states:
            raise InvalidModelError(f"start is state {shown(start)}, expected 0 to {n_states - 1}")
        return int(start)
    distribution = as_floats("start", start)
    if distribution.shape != (n_states,):
        raise InvalidModelError(
            f"start must be a state or a distribution over the {n_states} states, got shape {distribution.shape}"
        )
    tolerance = tolerance_of(np.asarray(start).dtype)
    bad = ~((distribution >= -tolerance) & (distribution < np.inf))
    if bad.any():
        state = int(np.argmax(bad))
        raise InvalidModelError(f"start[{state}] is {distribution[state]}, expected a probability of at least 0")
    distribution = np.maximum(distribution, 0.0)
    if abs(distribution.sum() - 1) > tolerance:
        raise InvalidModelError(f"start sums to {distribution.sum():.10g}, expected 1")
    return frozen(distribution / distribution.sum())


def read_names(label: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
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


def read_text(label: str, text: Any) -> str | None:
    if text is not None and not isinstance(text, str):
        raise InvalidModelError(f"{label} must be a text, got {shown(text)}")
    return text or None


def as_path(path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise InvalidModelError(f"a model is saved to and loaded from a path, got {shown(path)}") from None
