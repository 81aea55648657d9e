"""Arrays of a model: compressed rows, action masks, and checks of arrays from users.

A model has a row for every action. The row of a forbidden action is a copy of the row of an allowed action, so that it adds
no new value, reward or return. Planning on these rows needs no masks; afterwards each forbidden action in a policy is
replaced by the allowed action that it copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidModelError

SUM_TOLERANCE = 1e-9 * (1 + 1e-6)  # with room for the rounding of 1 + 1e-9


@dataclass(frozen=True, eq=False)
class SparseTransitions:
    """Transitions as compressed rows. Row ``(h * S + s) * A + a`` is for step h, state s, action a; h is 0 if stationary.

    Attributes
    ----------
    indptr : int64 array, ``(rows + 1,)``
        Row ``i`` owns the entries ``indptr[i]`` to ``indptr[i + 1]``.
    indices : int32 array, ``(entries,)``
        The next state of each entry, increasing within a row.
    probabilities : float64 array, ``(entries,)``
        The probability of each entry.
    rewards : float64 array, ``(1, entries)`` or ``(H, entries)``, or None
        Rewards that depend on the next state, aligned with the entries; None if rewards do not depend on it.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> rows = bridge.rows
    >>> len(rows.indptr) - 1 == bridge.n_states * bridge.n_actions
    True
    """

    indptr: np.ndarray
    indices: np.ndarray
    probabilities: np.ndarray
    rewards: np.ndarray | None = None

    def entries_of(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of all entries of the rows ``which``, row after row, and the length of each row.

        Parameters
        ----------
        which : int array
            Numbers of rows.

        Returns
        -------
        entries : int array
            Positions of the entries.
        lengths : int array
            Number of entries of each row.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> entries, lengths = bridge.rows.entries_of([0, 2])
        >>> lengths.tolist(), len(entries)
        ([1, 1], 2)
        """
        which = np.asarray(which, dtype=np.int64)
        begin = self.indptr[which]
        lengths = self.indptr[which + 1] - begin
        starts = starts_of(lengths)
        return np.repeat(begin - starts[:-1], lengths) + np.arange(starts[-1]), lengths

    def _rows(self, which: np.ndarray) -> SparseTransitions:
        entries, lengths = self.entries_of(which)
        return self._take(entries, starts_of(lengths))

    def _take(self, entries: np.ndarray | slice, indptr: np.ndarray) -> SparseTransitions:
        """Return the rows that consist of these entries, delimited by ``indptr``."""
        rewards = None if self.rewards is None else self.rewards[..., entries]
        return SparseTransitions(indptr, self.indices[entries], self.probabilities[entries], rewards)

    def _frozen(self) -> SparseTransitions:
        rewards = None if self.rewards is None else frozen(self.rewards)
        return SparseTransitions(frozen(self.indptr), frozen(self.indices), frozen(self.probabilities), rewards)


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def without_single_axis(array: np.ndarray | None) -> np.ndarray | None:
    """Return an array without its first axis if that has length 1 (the same at every step); None for None."""
    return array[0] if array is not None and len(array) == 1 else array


def starts_of(lengths: Any) -> np.ndarray:
    """Return the position at which each of several parts of these lengths begins, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths)])


def joined(steps: Sequence[SparseTransitions]) -> SparseTransitions:
    """Return the rows of several steps, one after the other; their rewards, if any, have the shape ``(1, entries)``."""
    indptr = starts_of(np.concatenate([np.diff(rows.indptr) for rows in steps]))
    names = ["indices", "probabilities"] + ["rewards"] * (steps[0].rewards is not None)
    return SparseTransitions(indptr, *(np.concatenate([getattr(rows, name) for rows in steps]) for name in names))


# -- arrays and matrices from users --------------------------------------------------------------------------------


def is_sparse_sequence(value: Any) -> bool:
    """Return whether this is a sequence of sparse matrices, or a sequence of such sequences."""
    for _ in range(2):
        value = value[0] if isinstance(value, (list, tuple)) and value else None
        if sparse.issparse(value):
            return True
    return False


def checked(name: str, value: Any, kinds: str = "biuf", content: str = "real numbers") -> np.ndarray:
    """Return ``value`` as an array whose dtype is of one of these ``kinds``, without a copy."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidModelError(f"{name} must be an array of {content}: {error}") from None
    if array.dtype.kind not in kinds:
        raise InvalidModelError(f"{name} must be an array of {content}, got dtype {array.dtype}")
    return array


def as_floats(name: str, value: Any, *, copy: bool = True) -> np.ndarray:
    """Return ``value`` as a contiguous float64 array; always a new one, unless ``copy`` is False."""
    return checked(name, value).astype(np.float64, order="C", copy=copy)


def as_integers(name: str, value: Any) -> np.ndarray:
    """Return ``value`` as a one-dimensional array of integers, without a copy."""
    array = checked(name, value, "iu", "integers")
    if array.ndim != 1:
        raise InvalidModelError(f"{name} must have one axis, got shape {array.shape}")
    return array


def tolerance_of(dtype: np.dtype) -> float:
    """Return the largest error of probabilities, and of their sum, that is corrected for this dtype."""
    return max(SUM_TOLERANCE, 8 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0)


def interleave(steps: list[list[Any]], n_states: int, n_actions: int) -> Any:
    """Return one sparse matrix with rows ``(h, s, a)``, given a sparse ``(S, S)`` matrix for each step and action."""
    for h, matrices in enumerate(steps):
        if len(matrices) != n_actions:
            expected = f"expected one per action: {n_actions}"
            raise InvalidModelError(f"transitions[h={h}] has {len(matrices)} matrices, {expected}")
        for a, matrix in enumerate(matrices):
            shape = getattr(matrix, "shape", None)
            if not (sparse.issparse(matrix) and shape == (n_states, n_states)):
                place, size = f"transitions: the matrix of step {h}, action {a}", f"({n_states}, {n_states})"
                raise InvalidModelError(f"{place} must be sparse {size}, got {type(matrix).__name__} of shape {shape}")
    order = np.arange(n_actions * n_states).reshape(n_actions, n_states).T.ravel()
    stacks = (sparse.vstack([sparse.csr_array(each, dtype=float) for each in step], format="csr") for step in steps)
    rows = sparse.vstack([stack[order] for stack in stacks], format="csr")
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def row_of_entry(entry: int, indptr: np.ndarray) -> int:
    return int(np.searchsorted(indptr, entry, side="right")) - 1


# -- masks -----------------------------------------------------------------------------------------------------------


def check_allowed(allowed: Any, horizon: int, n_states: int, n_actions: int) -> np.ndarray | None:
    """Return masks as a boolean array ``(1 or H, S, A)``, or None if every action is allowed."""
    if allowed is None:
        return None
    array = checked("allowed", allowed, "biu", "booleans")
    shapes = (n_states, n_actions), (horizon, n_states, n_actions)
    if array.shape not in shapes or not np.isin(array, (0, 1)).all():
        raise InvalidModelError(
            f"allowed must be a boolean array of shape (S, A) = {shapes[0]} or (H, S, A) = {shapes[1]}, "
            f"got dtype {array.dtype}, shape {array.shape}"
        )
    mask = array.astype(bool).reshape(-1, n_states, n_actions)
    without = ~mask.any(axis=2)
    if without.any():
        h, s = np.argwhere(without)[0]
        where = f"s={s}" if len(mask) == 1 else f"h={h}, s={s}"
        raise InvalidModelError(f"allowed[{where}] allows no action: every state needs at least one")
    if len(mask) > 1 and (mask == mask[0]).all():
        mask = mask[:1]
    return None if mask.all() else frozen(mask)


def stand_ins(allowed: np.ndarray) -> np.ndarray:
    """Return, for each entry of ``allowed``, its action if allowed, otherwise the first allowed action of the state."""
    return np.where(allowed, np.arange(allowed.shape[2]), allowed.argmax(axis=2)[:, :, None])


def row_sources(allowed: np.ndarray, steps: int) -> np.ndarray:
    """Return, for each row ``(h, s, a)``, the row whose content it gets; ``steps`` is 1 or the horizon.

    If rows are the same at every step, the row of an action that is allowed at some step keeps its own content.
    """
    shared = allowed if steps > 1 else allowed.any(axis=0)
    mask = np.broadcast_to(shared, (steps, *allowed.shape[1:]))
    return np.asarray((np.arange(mask.size).reshape(mask.shape)[:, :, :1] + stand_ins(mask)).reshape(-1))
