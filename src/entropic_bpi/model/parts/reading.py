"""Transitions and rewards of a model: read in any of the accepted forms, checked, and returned step by step."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.parts import arrays
from entropic_bpi.model.parts.arrays import SparseTransitions, frozen, row_of_entry
from entropic_bpi.tools.text import shown

# Rows whose exact sum differs from 1 by less are not changed, so that a model read from its file is equal to the last bit.
_SUM_ROUNDING = 1e-14
_LARGEST_RETURN = 1e307


class ModelArrays:
    """Transitions and rewards of a :class:`~entropic_bpi.FiniteMDP`, checked.

    Attributes
    ----------
    _allowed : bool array ``(1 or H, S, A)``, or None
        The allowed actions; None if all are.
    _kernel : float array ``(1 or H, S, A, S)``, or None
        The transitions of a dense model; None for a sparse model, which has only ``rows``.
    _rewards : float array ``(1 or H, S, A)`` or ``(1 or H, S, A, S)``, or None
        The rewards; None if ``rows`` contains them.
    """

    n_states: int
    n_actions: int
    horizon: int
    # Whether the transitions are the same at every step.
    stationary: bool

    def __init__(self, transitions: Any, rewards: Any, *, horizon: Any, allowed: Any) -> None:
        if isinstance(horizon, bool) or not (isinstance(horizon, (int, np.integer)) and 1 <= horizon < 2**63):
            raise InvalidModelError(f"horizon must be an integer of at least 1, got {shown(horizon)}")
        vars(self)["horizon"] = int(horizon)  # public attributes cannot be assigned: see FiniteMDP.__setattr__
        self._allowed: np.ndarray | None = allowed
        self._kernel: np.ndarray | None = None
        self._rewards: np.ndarray | None = None
        if isinstance(transitions, SparseTransitions):
            self._read_rows(transitions, rewards)
        elif arrays.is_sparse_sequence(transitions):
            self._read_sparse(transitions)
        else:
            self._read_dense(transitions)
        self._read_rewards(rewards, may_be_next_state=not isinstance(transitions, SparseTransitions))

    def _read_dense(self, transitions: Any) -> None:
        kernel = arrays.as_floats("transitions", transitions)
        shape = kernel.shape
        if kernel.ndim not in (3, 4) or 0 in shape or shape[-1] != shape[-3]:
            swapped = kernel.ndim in (3, 4) and shape[-1] == shape[-2]
            raise InvalidModelError(
                f"transitions must have shape (S, A, S) or (H, S, A, S) with S, A of at least 1, got {shape}"
                + (": if they begin with the action, pass np.swapaxes(transitions, -3, -2)" if swapped else "")
            )
        self._set_sizes(shape[0] if kernel.ndim == 4 else None, *shape[-3:-1])
        kernel = self._unmasked(kernel.reshape(-1, *shape[-3:]))
        indptr = np.arange(0, kernel.size + 1, self.n_states)
        normalise(kernel.reshape(-1), indptr, arrays.tolerance_of(np.asarray(transitions).dtype), self._place)
        self._kernel = frozen(kernel)

    def _read_sparse(self, transitions: Any) -> None:
        per_step = not sparse.issparse(transitions[0])
        steps = [list(step) for step in transitions] if per_step else [list(transitions)]
        n_states = steps[0][0].shape[0]
        if n_states == 0:
            raise InvalidModelError("transitions must be sparse (S, S) matrices with S of at least 1, got S = 0")
        self._set_sizes(len(steps) if per_step else None, n_states, len(steps[0]))
        rows = arrays.interleave(steps, n_states, self.n_actions)
        coarse = max(arrays.tolerance_of(matrix.dtype) for step in steps for matrix in step)
        self._set_rows(SparseTransitions(rows.indptr, rows.indices, rows.data), coarse, copy=False)

    def _read_rows(self, rows: SparseTransitions, rewards: Any) -> None:
        """Read compressed rows; the shape of the rewards determines the numbers of states and actions."""
        in_rows = rows.rewards is not None
        shape = rewards if in_rows else arrays.checked("rewards", rewards).shape
        if not (isinstance(shape, tuple) and len(shape) in (2, 3 - in_rows) and all(isinstance(n, int) for n in shape)):
            forms = (
                "rewards must have shape (S, A) or (H, S, A)",
                "whose rows contain the rewards, pass rewards=(n_states, n_actions)",
            )
            raise InvalidModelError(f"with SparseTransitions, {forms[in_rows]}, got {shown(shape)}")
        sizes = shape[-2:]
        n_rows, pairs = arrays.as_integers("indptr", rows.indptr).size - 1, math.prod(sizes)
        if pairs <= 0 or n_rows not in (pairs, pairs * self.horizon):
            raise InvalidModelError(f"{n_rows} rows do not fit {sizes[0]} states and {sizes[1]} actions")
        self._set_sizes(None if n_rows == pairs else self.horizon, *sizes)
        tolerance = arrays.tolerance_of(arrays.checked("probabilities", rows.probabilities).dtype)
        self._set_rows(rows, tolerance, copy=True)

    def _set_sizes(self, steps: int | None, n_states: int, n_actions: int) -> None:
        """Set the sizes; ``steps`` is None if the transitions have no axis of steps."""
        if steps not in (None, self.horizon):
            raise InvalidModelError(f"transitions have {steps} steps but the horizon is {self.horizon}")
        vars(self).update(n_states=n_states, n_actions=n_actions, stationary=steps in (None, 1))
        self._allowed = arrays.check_allowed(self._allowed, self.horizon, n_states, n_actions)

    def _unmasked(self, array: np.ndarray) -> np.ndarray:
        """Return an array ``(1 or H, S, A, …)`` with the rows of forbidden actions replaced by those that they copy."""
        if self._allowed is None:
            return array
        sources = arrays.row_sources(self._allowed, len(array))
        return array.reshape(len(sources), -1)[sources].reshape(array.shape)

    def _set_rows(self, given: SparseTransitions, tolerance: float, *, copy: bool) -> None:
        indptr = arrays.as_integers("indptr", given.indptr).astype(np.int64, order="C", copy=copy)
        indices = arrays.as_integers("indices", given.indices)
        probabilities = arrays.as_floats("probabilities", given.probabilities, copy=copy)
        shape = (indptr[-1],)
        if np.diff(indptr).min() < 0 or indptr[0] != 0 or not indices.shape == probabilities.shape == shape:
            raise InvalidModelError("rows are inconsistent: indptr does not partition the entries")
        rewards = None if given.rewards is None else np.atleast_2d(arrays.as_floats("row rewards", given.rewards))
        shapes = [(steps, len(indices)) for steps in (1, self.horizon if self.stationary else 1)]
        if rewards is not None and rewards.shape not in shapes:
            raise InvalidModelError(f"row rewards must align with the {len(indices)} entries, got {rewards.shape}")
        rows = SparseTransitions(indptr, indices, probabilities, rewards)
        if self._allowed is not None:
            rows = rows._rows(arrays.row_sources(self._allowed, 1 if self.stationary else self.horizon))
        rows = self._checked_rows(rows, copy)
        normalise(rows.probabilities, rows.indptr, tolerance, self._place)
        if rows.rewards is not None:
            ends = rows.indptr
            self._check_rewards(rows.rewards, lambda i: self._place(row_of_entry(i % ends[-1], ends), "row rewards"))
        if not rows.probabilities.all():
            possible = rows.probabilities > 0
            lengths = np.add.reduceat(possible, rows.indptr[:-1], dtype=np.int64)
            rows = rows._take(possible, arrays.starts_of(lengths))
        vars(self)["rows"] = rows._frozen()

    def _checked_rows(self, rows: SparseTransitions, copy: bool) -> SparseTransitions:
        """Return the rows with 32-bit indices; raise an error if a row is empty or its indices are not increasing."""
        indptr, indices, lengths = rows.indptr, rows.indices, np.diff(rows.indptr)
        if not lengths.all():
            raise InvalidModelError(f"{self._place(int(np.argmin(lengths)))} sums to 0, expected 1")
        if indices.min() < 0 or indices.max() >= self.n_states:
            outside = int(np.argmax((indices < 0) | (indices >= self.n_states)))
            place = self._place(row_of_entry(outside, indptr))
            raise InvalidModelError(f"{place} goes to state {indices[outside]}, expected 0 to {self.n_states - 1}")
        disordered = indices[:-1] >= indices[1:]
        disordered[indptr[1:-1] - 1] = False  # the next entry belongs to another row
        if disordered.any():
            place = self._place(row_of_entry(int(np.argmax(disordered)), indptr))
            raise InvalidModelError(f"{place}: next states must be increasing, without repeats")
        return replace(rows, indices=indices.astype(np.int32, order="C", copy=copy))

    def _place(self, row: int, label: str = "transitions", per_step: bool | None = None, successor: Any = None) -> str:
        """Describe a row or an entry for an error message, with its step if the array is ``per_step``."""
        pair, action = divmod(row, self.n_actions)
        step, state = divmod(pair, self.n_states)
        has_step = not self.stationary if per_step is None else per_step
        indices = {"h": step if has_step else None, "s": state, "a": action, "s'": successor}
        return f"{label}[{', '.join(f'{name}={index}' for name, index in indices.items() if index is not None)}]"

    def _read_rewards(self, rewards: Any, *, may_be_next_state: bool) -> None:
        """Read the rewards, unless the rows contain them: ``(1 or H, S, A)``, or ``(1 or H, S, A, S)`` in a dense model."""
        if self._kernel is None and self.rows.rewards is not None:
            return
        array, size = arrays.as_floats("rewards", rewards), (self.n_states, self.n_actions)
        stationary_shapes = (size, (*size, self.n_states)) if may_be_next_state else (size,)
        shapes = (*stationary_shapes, *((self.horizon, *shape) for shape in stationary_shapes))
        if array.shape not in shapes:
            expected = ", ".join(map(str, shapes))
            raise InvalidModelError(f"rewards have shape {array.shape}, expected one of {expected}")
        if may_be_next_state and shapes[1] == shapes[2] == array.shape and array.size > 1:
            raise InvalidModelError(
                f"rewards of shape {array.shape} could mean (S, A, S) or (H, S, A), since S = A = H: "
                "pass them with all four axes, (H, S, A, S)"
            )
        per_step = array.shape not in stationary_shapes
        array = self._unmasked(array if per_step else array[None])

        def place(i: int) -> str:
            row, successor = divmod(i, self.n_states) if array.ndim == 4 else (i, None)
            return self._place(row, "rewards", per_step, successor)

        self._check_rewards(array, place)
        if self._kernel is None and array.ndim == 4:
            vars(self)["rows"] = replace(self.rows, rewards=frozen(self._at_entries(array, self.rows)))
        else:
            self._rewards = frozen(array)

    def _check_rewards(self, rewards: np.ndarray, place: Callable[[int], str]) -> None:
        """Raise an error if a reward is not finite or too large; ``place`` describes a position in the flat array."""
        flat, largest = rewards.reshape(-1), _LARGEST_RETURN / self.horizon
        if not (flat.min() >= -largest and flat.max() <= largest):
            bad = int(np.argmin(np.abs(flat) <= largest))
            expected = "a reward whose sum over the horizon is finite" if np.isfinite(flat[bad]) else "a finite number"
            raise InvalidModelError(f"{place(bad)} is {flat[bad]}, expected {expected}")

    @cached_property
    def rows(self) -> SparseTransitions:
        """The transitions as compressed rows, the form that all samplers and learners use."""
        assert self._kernel is not None
        possible = np.flatnonzero(self._kernel)
        indptr = np.searchsorted(possible, np.arange(0, self._kernel.size + 1, self.n_states))
        indices = (possible % self.n_states).astype(np.int32)
        rows = SparseTransitions(indptr, indices, self._kernel.reshape(-1)[possible])
        if self._rewards is not None and self._rewards.ndim == 4:
            rows = replace(rows, rewards=self._at_entries(self._rewards, rows))
        return rows._frozen()

    def _at_entries(self, rewards: np.ndarray, rows: SparseTransitions) -> np.ndarray:
        """Return next-state rewards ``(1 or H, S, A, S)`` at the entries of ``rows``, as ``(1 or H, entries)``."""
        # A row of a forbidden action gets the rewards of the row whose transitions it has.
        steps = 1 if self.stationary else self.horizon
        sources = np.arange(len(rows.indptr) - 1) if self._allowed is None else arrays.row_sources(self._allowed, steps)
        wanted = np.repeat(sources, np.diff(rows.indptr)) * self.n_states + rows.indices
        table = rewards.reshape(len(rewards) if self.stationary else 1, -1)
        return np.take(table, wanted % table.shape[1], axis=1)

    # -- transitions and rewards of a step, for dense and sparse models --

    @property
    def is_sparse(self) -> bool:
        return self._kernel is None

    @property
    def next_state_rewards(self) -> bool:
        """Whether rewards are a function of state, action and next state."""
        return self._rewards is None or self._rewards.ndim == 4

    @property
    def _payoffs(self) -> np.ndarray:
        """The rewards ``(1 or H, S, A)``; if they depend on the next state, those of the entries, ``(1 or H, entries)``."""
        payoffs = self.rows.rewards if self.next_state_rewards else self._rewards
        assert payoffs is not None
        return payoffs

    def step_rows(self, h: int) -> SparseTransitions:
        """Return the ``S * A`` rows of a step.

        Parameters
        ----------
        h : int
            The step, from 0.

        Returns
        -------
        SparseTransitions
            Its ``rewards`` have one axis, aligned with the entries.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> len(bridge.step_rows(0).indptr)
        17
        """
        rows, pairs = self.rows, self.n_states * self.n_actions
        rewards = None if rows.rewards is None else rows.rewards[h if len(rows.rewards) > 1 else 0]
        rows = SparseTransitions(rows.indptr, rows.indices, rows.probabilities, rewards)
        if self.stationary:
            return rows
        indptr = rows.indptr[h * pairs : (h + 1) * pairs + 1]
        return rows._take(slice(indptr[0], indptr[-1]), frozen(indptr - indptr[0]))

    def step_kernel(self, h: int) -> np.ndarray | None:
        """Return the dense transition matrix of a step.

        Parameters
        ----------
        h : int
            The step, from 0.

        Returns
        -------
        float array ``(S * A, S)`` or None
            None for a sparse model.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> bridge.step_kernel(0).shape
        (16, 8)
        """
        return None if self._kernel is None else self._kernel[0 if self.stationary else h].reshape(-1, self.n_states)

    def step_rewards(self, h: int) -> np.ndarray:
        """Return the rewards of a step, for models whose rewards do not depend on the next state.

        Parameters
        ----------
        h : int
            The step, from 0.

        Returns
        -------
        float array ``(S, A)``
            The rewards.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> bridge.step_rewards(0).shape
        (8, 2)
        """
        assert not self.next_state_rewards
        return self._payoffs[h % len(self._payoffs)]

    def policy_rows(self, policy: np.ndarray, h: int) -> SparseTransitions:
        """Return the rows of a step that a policy plays, one per state, with the reward of every entry.

        Parameters
        ----------
        policy : int array ``(H, S)``
            The actions.
        h : int
            The step.

        Returns
        -------
        SparseTransitions
            The rows.

        Examples
        --------
        >>> import numpy as np, entropic_bpi as eb
        >>> eb.instances.risky_bridge(horizon=7).policy_rows(np.zeros((7, 8), int), 0).indptr.size
        9
        """
        return self._chosen_rows(h, np.arange(self.n_states) * self.n_actions + policy[h])

    def _chosen_rows(self, h: int, chosen: np.ndarray) -> SparseTransitions:
        rows = self.step_rows(h)._rows(chosen)
        if rows.rewards is not None:
            return rows
        return replace(rows, rewards=np.repeat(self.step_rewards(h).ravel()[chosen], np.diff(rows.indptr)))

    def replace_forbidden(self, policy: np.ndarray) -> np.ndarray:
        """Return a policy with each forbidden action replaced by the allowed action whose row it copies.

        Parameters
        ----------
        policy : int array ``(H, S)``
            The actions.

        Returns
        -------
        int array ``(H, S)``
            Allowed actions.

        Examples
        --------
        >>> import numpy as np, entropic_bpi as eb
        >>> mdp = eb.FiniteMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), horizon=1, allowed=np.array([[False, True]]))
        >>> mdp.replace_forbidden(np.array([[0]])).tolist()
        [[1]]
        """
        if self._allowed is None:
            return policy
        table = np.broadcast_to(arrays.stand_ins(self._allowed), (self.horizon, self.n_states, self.n_actions))
        return np.take_along_axis(table, policy[..., None], axis=2)[..., 0]


def normalise(values: np.ndarray, indptr: np.ndarray, tolerance: float, place: Callable[[int], str]) -> None:
    """Make the rows delimited by ``indptr`` sum to 1, in place; raise an error for the first invalid entry or sum.

    Whether a row is divided by its sum depends on the exact sum (``fsum``), so that dense and sparse forms of a model agree
    to the last bit.
    """
    if not (values.min() >= -tolerance and values.max() < np.inf):
        bad = int(np.argmin((values >= -tolerance) & (values < np.inf)))
        where = place(row_of_entry(bad, indptr))
        raise InvalidModelError(f"{where} holds {values[bad]}, expected probabilities of at least 0")
    np.maximum(values, 0.0, out=values)
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(values, indptr[:-1])
    off = np.abs(sums - 1)
    if off.max() > tolerance:
        worst = int(np.argmax(off > tolerance))
        raise InvalidModelError(f"{place(worst)} sums to {sums[worst]:.10g}, expected 1")
    for row in np.flatnonzero(off > _SUM_ROUNDING / 2):
        entries = values[indptr[row] : indptr[row + 1]]
        total = math.fsum(entries)
        if abs(total - 1) > _SUM_ROUNDING:
            entries /= total


def read_start(start: Any, n_states: int) -> int | np.ndarray:
    if isinstance(start, (int, np.integer)) and not isinstance(start, bool):
        if not 0 <= start < n_states:
            raise InvalidModelError(f"start is state {shown(start)}, expected 0 to {n_states - 1}")
        return int(start)
    distribution = arrays.as_floats("start", start)
    if distribution.shape != (n_states,):
        expected = f"a state or a distribution over the {n_states} states"
        raise InvalidModelError(f"start must be {expected}, got shape {distribution.shape}")
    tolerance = arrays.tolerance_of(np.asarray(start).dtype)
    bad = ~((distribution >= -tolerance) & (distribution < np.inf))
    if bad.any():
        state = int(np.argmax(bad))
        raise InvalidModelError(f"start[{state}] is {distribution[state]}, expected a probability of at least 0")
    normalise(distribution, np.array([0, n_states]), tolerance, lambda row: "start")
    return frozen(distribution)


def read_names(label: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    result = tuple(map(str, names)) if isinstance(names, Iterable) else ()
    if len(result) != count:
        raise InvalidModelError(f"{label} must be a sequence of {count} names, got {shown(names)}")
    for name, times in Counter(result).most_common(1):
        if times > 1:
            raise InvalidModelError(f"{label} repeats {name!r}: names must be different")
    return result


def read_text(label: str, text: Any) -> str | None:
    if text is not None and not isinstance(text, str):
        raise InvalidModelError(f"{label} must be a string, got {shown(text)}")
    return text or None
