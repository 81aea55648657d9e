"""Arrays of a model: compressed rows, and checks that read large arrays in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidModelError

SUM_TOLERANCE = 1e-9 * (1 + 1e-6)  # with room for the rounding of 1 + 1e-9
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
        The probability of each entry.
    rewards : float64 array, ``(1, entries)`` or ``(H, entries)``, or None
        Rewards that depend on the next state, aligned with the entries; ``None`` when they do not.

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
        return entries_of(self.indptr, which)


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def is_sparse_sequence(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    first = value[0]
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    return bool(sparse.issparse(first))


def state_first(transitions: Any, rewards: Any) -> tuple[np.ndarray, np.ndarray]:
    """Arrays ``(..., A, S, S)`` as ``(..., S, A, S)``; rewards of another shape do not depend on the next state."""
    kernel, paid = checked("transitions", transitions, *REALS), checked("rewards", rewards, *REALS)
    if kernel.ndim < 3 or kernel.shape[-1] != kernel.shape[-2]:
        raise InvalidModelError(
            f"transitions must have shape (A, S, S) or (H, A, S, S) with order='ass', got {kernel.shape}"
        )
    if paid.shape[-3:] == kernel.shape[-3:]:
        paid = np.swapaxes(paid, -3, -2)
    return np.swapaxes(kernel, -3, -2), paid


REALS = ("biuf", "real numbers")
INTEGERS = ("iu", "integers")


def as_floats(name: str, value: Any, *, copy: bool = True) -> np.ndarray:
    """A contiguous float64 array with the content of ``value``, a new one unless ``copy`` is False."""
    return checked(name, value, *REALS).astype(np.float64, order="C", copy=copy)


def as_integers(name: str, value: Any) -> np.ndarray:
    """``value`` as an array of integers with one axis, not copied."""
    array = checked(name, value, *INTEGERS)
    if array.ndim != 1:
        raise InvalidModelError(f"{name} must have one axis, got shape {array.shape}")
    return array


def checked(name: str, value: Any, kinds: str, content: str) -> np.ndarray:
    """``value`` as an array, not copied."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidModelError(f"{name} must be an array of {content}: {error}") from None
    if array.dtype.kind not in kinds:
        raise InvalidModelError(f"{name} must be an array of {content}, got dtype {array.dtype}")
    return array


def tolerance_of(dtype: np.dtype) -> float:
    """How far probabilities of this type may be off."""
    rounding = 8 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
    return max(SUM_TOLERANCE, rounding)


def pieces(size: int) -> Iterator[slice]:
    for begin in range(0, size, _PIECE):
        yield slice(begin, min(begin + _PIECE, size))


def first_failing(size: int, test: Callable[[slice], np.ndarray]) -> int | None:
    """The first of ``size`` positions that fails, where ``test`` says for a piece of them which do."""
    for piece in pieces(size):
        failed = test(piece)
        if failed.any():
            return piece.start + int(np.argmax(failed))
    return None


def disordered(indices: np.ndarray, indptr: np.ndarray, piece: slice) -> np.ndarray:
    """Which entries of a piece are not below the next one of their row."""
    result = indices[piece] >= indices[piece.start + 1 : piece.stop + 1]
    first, last = np.searchsorted(indptr, [piece.start + 1, piece.stop + 1])
    result[indptr[first:last] - 1 - piece.start] = False  # the next one belongs to another row
    return np.asarray(result)


def row_of_entry(entry: int, indptr: np.ndarray) -> int:
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def interleave(
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


def entries_of(indptr: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all entries of the rows ``which``, one row after the other, and the length of each row."""
    lengths = np.diff(indptr)[which]
    starts = starts_of(lengths)
    return np.repeat(indptr[which] - starts[:-1], lengths) + np.arange(starts[-1]), lengths


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Where each of several parts of these lengths begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)])
