r"""The model: a finite MDP with a finite horizon, held dense or sparse, that cannot be wrong silently.

A :class:`FiniteMDP` has states :math:`0,\dots,S-1`, actions :math:`0,\dots,A-1`, steps :math:`0,\dots,H-1`,
transition probabilities :math:`p_h(s'\mid s,a)` and rewards :math:`r_h(s,a)` or :math:`r_h(s,a,s')`.

Dense models keep the array they were given, so that planning is a matrix product. Sparse models keep
:class:`Rows`, the compressed form that holds only the possible successors. Dense models produce the same
:class:`Rows` on demand: samplers, learners and the content hash all read that one form.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi._files import write_atomically, write_text_atomically
from entropic_bpi.errors import InvalidModelError

__all__ = ["FiniteMDP", "Rows"]

SUM_TOLERANCE = 1e-9
_FILE_FORMAT = "entropic-bpi model"
_FILE_VERSION = 1
_JSON_MAX_ENTRIES = 200_000


@dataclass(frozen=True, eq=False)
class Rows:
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
        SciPy sparse ``(S, S)`` matrices (stationary), or ``H`` such sequences; or :class:`Rows`.
    rewards
        ``(S, A)``, ``(S, A, S)``, ``(H, S, A)`` or ``(H, S, A, S)``, any finite reals. With sparse transitions,
        next-state rewards may also be a sequence of ``A`` sparse ``(S, S)`` matrices (absent entries are 0), and
        with :class:`Rows` they may be ``None`` when the rows carry them.
    horizon
        Number of steps :math:`H \ge 1`.
    start
        The first state, or a distribution over states.
    state_names, action_names
        Optional names, one per state or action, all different.

    Raises
    ------
    InvalidModelError
        If anything is inconsistent; the message says where. Rows whose sum is off by at most 1e-9 are
        renormalised silently.

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
    ) -> None:
        if isinstance(horizon, (bool, np.bool_)) or not isinstance(horizon, (int, np.integer)) or horizon < 1:
            raise InvalidModelError(f"horizon must be an integer of at least 1, got {horizon!r}")
        self._horizon = int(horizon)
        self._kernel: np.ndarray | None = None
        self._sparse_rows: Rows | None = None
        if isinstance(transitions, Rows):
            self._read_rows(transitions, rewards)
        elif _is_sparse_sequence(transitions):
            self._read_sparse(transitions)
        else:
            self._read_dense(transitions)
        self._rewards = self._read_rewards(rewards)
        if self._sparse_rows is not None and self._rewards is not None and self._rewards.ndim == 4:
            raise InvalidModelError(
                "with sparse transitions, rewards that depend on the next state must be sparse as well: "
                f"a sequence of {self._n_actions} sparse ({self._n_states}, {self._n_states}) matrices"
            )
        self._start = self._read_start(start)
        self._state_names = _read_names("state_names", state_names, self._n_states)
        self._action_names = _read_names("action_names", action_names, self._n_actions)

    # -- reading the input ---------------------------------------------------------------------------

    def _read_dense(self, transitions: Any) -> None:
        kernel = _as_floats("transitions", transitions)
        if kernel.ndim not in (3, 4):
            raise InvalidModelError(f"transitions must have shape (S, A, S) or (H, S, A, S), got {kernel.shape}")
        if kernel.ndim == 3:
            kernel = kernel[None]
        steps, n_states, n_actions, n_next = kernel.shape
        if n_states != n_next or 0 in kernel.shape:
            raise InvalidModelError(
                "transitions must have shape (S, A, S) or (H, S, A, S) with S, A of at least 1, "
                f"got {kernel.shape[1:] if steps == 1 else kernel.shape}"
            )
        self._set_sizes(steps, n_states, n_actions, has_step_axis=np.ndim(transitions) == 4)
        self._check_probabilities(kernel.reshape(-1), kernel.reshape(-1, n_states).sum(axis=1), n_states)
        kernel /= kernel.sum(axis=-1, keepdims=True)
        self._kernel = _frozen(kernel)

    def _read_sparse(self, transitions: Any) -> None:
        per_step = not sparse.issparse(transitions[0])
        matrices = [list(step) for step in transitions] if per_step else [list(transitions)]
        n_actions, n_states = len(matrices[0]), matrices[0][0].shape[0]
        self._set_sizes(len(matrices), n_states, n_actions, has_step_axis=per_step)
        rows = _interleave(matrices, n_states, n_actions, "transitions")
        self._set_rows(Rows(*rows))

    def _read_rows(self, rows: Rows, rewards: Any) -> None:
        """Take compressed rows as they are; the number of actions follows from the rewards or the row count."""
        n_rows = len(rows.indptr) - 1
        if rows.rewards is None:
            shape = np.shape(rewards)
            if len(shape) not in (2, 3):
                raise InvalidModelError(f"rewards must have shape (S, A) or (H, S, A), got {shape}")
            n_states, n_actions = shape[-2:]
        else:
            n_states, n_actions = self._sizes_of_rows(rewards)
        pairs = n_states * n_actions
        if pairs == 0 or n_rows not in (pairs, pairs * self._horizon):
            raise InvalidModelError(f"{n_rows} rows do not fit {n_states} states and {n_actions} actions")
        self._set_sizes(n_rows // pairs, n_states, n_actions, has_step_axis=n_rows != pairs)
        self._set_rows(rows)

    @staticmethod
    def _sizes_of_rows(rewards: Any) -> tuple[int, int]:
        if not (isinstance(rewards, tuple) and len(rewards) == 2):
            raise InvalidModelError("with rewards inside the rows, pass rewards=(n_states, n_actions)")
        return int(rewards[0]), int(rewards[1])

    def _set_sizes(self, steps: int, n_states: int, n_actions: int, *, has_step_axis: bool) -> None:
        if has_step_axis and steps != self._horizon:
            raise InvalidModelError(f"transitions have {steps} steps but the horizon is {self._horizon}")
        self._n_states, self._n_actions = n_states, n_actions
        self._stationary = not has_step_axis

    def _set_rows(self, rows: Rows) -> None:
        indptr = np.array(rows.indptr, dtype=np.int64)
        indices = np.array(rows.indices, dtype=np.int32)
        probabilities = np.array(rows.probabilities, dtype=np.float64)
        lengths = np.diff(indptr)
        if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(probabilities) or (lengths < 0).any():
            raise InvalidModelError("rows are inconsistent: indptr does not partition the entries")
        if (lengths == 0).any():
            raise InvalidModelError(f"{self._place(int(np.argmin(lengths)))} sums to 0, expected 1")
        if indices.size and (indices.min() < 0 or indices.max() >= self._n_states):
            raise InvalidModelError(f"a next state lies outside 0 to {self._n_states - 1}")
        decreasing = np.flatnonzero(np.diff(indices) <= 0) + 1
        inside = decreasing[~np.isin(decreasing, indptr)]
        if inside.size:
            row = int(np.searchsorted(indptr, inside[0], side="right")) - 1
            raise InvalidModelError(f"{self._place(row)}: next states must be increasing, without repeats")
        sums = np.add.reduceat(probabilities, indptr[:-1])
        self._check_probabilities(probabilities, sums, None, indptr)
        probabilities /= np.repeat(sums, lengths)
        rewards = None
        if rows.rewards is not None:
            rewards = np.array(rows.rewards, dtype=np.float64, ndmin=2)
            if rewards.shape not in ((1, len(indices)), (self._horizon, len(indices))):
                raise InvalidModelError(f"row rewards must align with the {len(indices)} entries, got {rewards.shape}")
            if not np.isfinite(rewards).all():
                raise InvalidModelError("rewards must be finite, found NaN or infinity among the row rewards")
            rewards = _frozen(rewards)
        self._sparse_rows = Rows(_frozen(indptr), _frozen(indices), _frozen(probabilities), rewards)

    def _check_probabilities(
        self, values: np.ndarray, sums: np.ndarray, width: int | None, indptr: np.ndarray | None = None
    ) -> None:
        """Raise at the first bad entry or sum; rows all have ``width`` entries, or are delimited by ``indptr``."""
        if not np.isfinite(sums).all() or values.min() < 0:
            entry = int(np.argmax(~np.isfinite(values) | (values < 0)))
            row = entry // width if width else int(np.searchsorted(indptr, entry, side="right")) - 1  # type: ignore[arg-type]
            raise InvalidModelError(f"{self._place(row)} holds {values[entry]}, expected probabilities of at least 0")
        off = np.abs(sums - 1)
        if off.max() > SUM_TOLERANCE:
            row = int(np.argmax(off > SUM_TOLERANCE))
            raise InvalidModelError(f"{self._place(row)} sums to {sums[row]:.10g}, expected 1")

    def _place(self, row: int) -> str:
        pair, action = divmod(row, self._n_actions)
        step, state = divmod(pair, self._n_states)
        where = f"s={state}, a={action}"
        return f"transitions[{where}]" if self._stationary else f"transitions[h={step}, {where}]"

    def _read_rewards(self, rewards: Any) -> np.ndarray | None:
        """Return ``(1 or H, S, A)`` or ``(1 or H, S, A, S)``, or None when the rows carry them."""
        if self._sparse_rows is not None and self._sparse_rows.rewards is not None:
            return None
        if self._sparse_rows is not None and _is_sparse_sequence(rewards):
            self._align_sparse_rewards(rewards)
            return None
        array = _as_floats("rewards", rewards)
        size = (self._n_states, self._n_actions)
        next_size = (*size, self._n_states)
        stationary_shapes = (size, next_size)
        shapes = (*stationary_shapes, (self._horizon, *size), (self._horizon, *next_size))
        if array.shape not in shapes:
            raise InvalidModelError(
                f"rewards have shape {array.shape}, expected one of " + ", ".join(str(shape) for shape in shapes)
            )
        if shapes[1] == shapes[2] == array.shape and array.size > 1:
            raise InvalidModelError(
                f"rewards of shape {array.shape} could mean (S, A, S) or (H, S, A), since S = A = H: "
                "pass them with all four axes, (H, S, A, S)"
            )
        stationary = array.shape in stationary_shapes
        if not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            labels = ("s", "a", "s'") if stationary else ("h", "s", "a", "s'")
            where = ", ".join(f"{label}={i}" for label, i in zip(labels, place, strict=False))
            raise InvalidModelError(f"rewards[{where}] is {array[place]}, expected a finite number")
        return _frozen(array[None] if stationary else array)

    def _align_sparse_rewards(self, rewards: Any) -> None:
        per_step = not sparse.issparse(rewards[0])
        steps = [list(step) for step in rewards] if per_step else [list(rewards)]
        if per_step and len(steps) != self._horizon:
            raise InvalidModelError(f"rewards have {len(steps)} steps but the horizon is {self._horizon}")
        rows = self._sparse_rows
        assert rows is not None
        row_of_entry = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        pairs = self._n_states * self._n_actions
        key = (row_of_entry % pairs) * self._n_states + rows.indices
        step_of_entry = row_of_entry // pairs
        aligned = np.zeros((len(steps) if self._stationary else 1, len(key)))
        for h, matrices in enumerate(steps):
            indptr, indices, values = _interleave([matrices], self._n_states, self._n_actions, "rewards")
            given = np.repeat(np.arange(pairs), np.diff(indptr)) * self._n_states + indices
            if not given.size:
                continue
            position = np.minimum(np.searchsorted(given, key), len(given) - 1)
            found = np.where(given[position] == key, values[position], 0.0)
            if self._stationary:
                aligned[h] = found
            else:
                aligned[0] = np.where((step_of_entry == h) | (len(steps) == 1), found, aligned[0])
        self._set_rows(Rows(rows.indptr, rows.indices, rows.probabilities, aligned))

    def _read_start(self, start: Any) -> int | np.ndarray:
        if isinstance(start, (bool, np.bool_)):
            raise InvalidModelError(f"start must be a state or a distribution over states, got {start!r}")
        if isinstance(start, (int, np.integer)):
            if not 0 <= start < self._n_states:
                raise InvalidModelError(f"start is state {start}, expected 0 to {self._n_states - 1}")
            return int(start)
        distribution = _as_floats("start", start)
        if distribution.shape != (self._n_states,):
            raise InvalidModelError(
                f"start must be a state or a distribution over the {self._n_states} states, got shape {distribution.shape}"
            )
        if not np.isfinite(distribution).all() or (distribution < 0).any():
            state = int(np.argmax(~np.isfinite(distribution) | (distribution < 0)))
            raise InvalidModelError(f"start[{state}] is {distribution[state]}, expected a probability of at least 0")
        if abs(distribution.sum() - 1) > SUM_TOLERANCE:
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
        """Transitions in the form they can be passed back to the constructor: an array, or :class:`Rows`."""
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
        values = self.rows.rewards if self.next_state_rewards else self._rewards
        assert values is not None
        return float(values.min()), float(values.max())

    @cached_property
    def rows(self) -> Rows:
        """The transitions as compressed rows, which every sampler and learner reads."""
        if self._sparse_rows is not None:
            return self._sparse_rows
        assert self._kernel is not None
        matrix = sparse.csr_array(self._kernel.reshape(-1, self._n_states))
        matrix.eliminate_zeros()
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        rewards = None
        if self._rewards is not None and self._rewards.ndim == 4:
            flat = self._rewards.reshape(len(self._rewards), -1, self._n_states)
            row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            if self._stationary:
                rewards = flat[:, row, indices]
            else:
                pairs = self._n_states * self._n_actions
                rewards = flat[row // pairs if len(flat) > 1 else 0, row % pairs, indices][None]
            _frozen(rewards)
        return Rows(_frozen(indptr), _frozen(indices), _frozen(matrix.data), rewards)

    def step_rows(self, h: int) -> Rows:
        """The ``S * A`` rows of step ``h`` (0-based); their ``rewards`` have one axis, aligned with the entries."""
        rows, pairs = self.rows, self._n_states * self._n_actions
        if self._stationary:
            rewards = None if rows.rewards is None else rows.rewards[h if len(rows.rewards) > 1 else 0]
            return Rows(rows.indptr, rows.indices, rows.probabilities, rewards)
        indptr = rows.indptr[h * pairs : (h + 1) * pairs + 1]
        entries = slice(indptr[0], indptr[-1])
        rewards = None if rows.rewards is None else rows.rewards[0, entries]
        return Rows(indptr - indptr[0], rows.indices[entries], rows.probabilities[entries], rewards)

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

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything that defines the model, the same for its dense and sparse forms."""
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

    def __repr__(self) -> str:
        kind = "stationary" if self._stationary else "per step"
        return (
            f"FiniteMDP({self._n_states} states, {self._n_actions} actions, horizon {self._horizon}, {kind}, "
            f"{'sparse' if self.is_sparse else 'dense'})"
        )

    # -- files ---------------------------------------------------------------------------------------------

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "format": _FILE_FORMAT,
            "version": _FILE_VERSION,
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

    def save(self, path: str | Path) -> None:
        """Write the model to ``path``: ``.npz``, or ``.json`` for small models. The round trip is exact."""
        fields, suffix = self._fields(), Path(path).suffix
        if suffix == ".npz":
            write_atomically(path, lambda file: np.savez_compressed(file, **fields))
        elif suffix == ".json":
            entries = sum(np.size(value) for value in fields.values())
            if entries > _JSON_MAX_ENTRIES:
                raise InvalidModelError(f"the model has {entries} numbers, too many for .json: save it as .npz")
            plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in fields.items()}
            write_text_atomically(path, json.dumps(plain) + "\n")
        else:
            raise InvalidModelError(f"cannot save to {path}: the name must end in .npz or .json")

    @classmethod
    def load(cls, path: str | Path) -> FiniteMDP:
        """Read a model that :meth:`save` wrote."""
        fields = _read_fields(Path(path))
        if str(fields.get("format")) != _FILE_FORMAT:
            raise InvalidModelError(f"{path} is not a model saved by entropic-bpi")
        if int(fields["version"]) != _FILE_VERSION:
            raise InvalidModelError(f"{path} has model version {fields['version']}, this library reads {_FILE_VERSION}")
        try:
            start = np.asarray(fields["start"])
            rewards = fields.get("rewards")
            transitions: Any
            if "indptr" in fields:
                entry_rewards = fields.get("entry_rewards")
                parts = (np.asarray(fields[name]) for name in ("indptr", "indices", "probabilities"))
                transitions = Rows(*parts, None if entry_rewards is None else np.asarray(entry_rewards))
                rewards = tuple(int(n) for n in fields["sizes"]) if rewards is None else rewards
            else:
                transitions = fields["transitions"]
            return cls(
                transitions,
                rewards,
                horizon=int(fields["horizon"]),
                start=int(start) if start.ndim == 0 else start,
                state_names=_names_from(fields.get("state_names")),
                action_names=_names_from(fields.get("action_names")),
            )
        except (KeyError, TypeError) as error:
            raise InvalidModelError(f"{path} lacks or garbles part of the model: {error}") from None


def _read_fields(path: Path) -> dict[str, Any]:
    if path.suffix not in (".npz", ".json"):
        raise InvalidModelError(f"cannot load {path}: expected a .npz or .json model")
    if not path.exists():
        raise InvalidModelError(f"no such file: {path}")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        fields = json.loads(path.read_text())
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidModelError(f"{path} is not a readable {path.suffix} file: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidModelError(f"{path} is not a model saved by entropic-bpi")
    return fields


def _names_from(field: Any) -> list[str] | None:
    return None if field is None else [str(name) for name in field]


def _is_sparse_sequence(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    first = value[0]
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    return bool(sparse.issparse(first))


def _as_floats(name: str, value: Any) -> np.ndarray:
    """A new float64 array with the content of ``value``."""
    try:
        array = np.array(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"dtype {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidModelError(f"{name} must be an array of real numbers: {error}") from None


def _read_names(label: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    result = tuple(str(name) for name in names)
    if len(result) != count:
        raise InvalidModelError(f"{label} has {len(result)} names, expected {count}")
    if len(set(result)) != count:
        repeated = next(name for name in result if result.count(name) > 1)
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
            raise InvalidModelError(f"{label}[h={h}] has {len(matrices)} matrices, expected one per action: {n_actions}")
        compressed.append([])
        for a, matrix in enumerate(matrices):
            if not sparse.issparse(matrix) or matrix.shape != (n_states, n_states):
                raise InvalidModelError(
                    f"{label}: the matrix of step {h}, action {a} must be sparse ({n_states}, {n_states}), "
                    f"got {getattr(matrix, 'shape', type(matrix).__name__)}"
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
