r"""The model: a finite MDP with a finite horizon, stored dense or sparse, and validated on construction.

A :class:`FiniteMDP` has states :math:`0,\dots,S-1`, actions :math:`0,\dots,A-1`, steps :math:`0,\dots,H-1`,
transition probabilities :math:`p_h(s'\mid s,a)` and rewards :math:`r_h(s,a)` or :math:`r_h(s,a,s')`.

Dense models store a dense array, so that planning is a matrix product. Sparse models store
:class:`entropic_bpi.SparseTransitions`, the compressed form with only the possible successors. Dense models compute this
form when it is first needed: samplers, learners and the content hash use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidModelError, InvalidProblemError
from entropic_bpi.model.formats.registry import read_model, write_model
from entropic_bpi.model.parts import reading
from entropic_bpi.model.parts.arrays import SparseTransitions, as_floats, joined, without_single_axis
from entropic_bpi.model.parts.mechanics import OutcomeTable, arrays_of_noise, table_of_fields
from entropic_bpi.tools.checks import check_path, check_policy
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Summarised


class FiniteMDP(reading.ModelArrays, Summarised):
    r"""A finite MDP with a finite horizon: immutable, validated, hashable by content.

    Parameters
    ----------
    transitions : array, sequence of sparse matrices or SparseTransitions
        ``(S, A, S)`` (the same at every step) or ``(H, S, A, S)``; or, for large models, a sequence of ``A``
        SciPy sparse ``(S, S)`` matrices (stationary), or ``H`` such sequences; or ``SparseTransitions``.
    rewards : array
        ``(S, A)``, ``(S, A, S)``, ``(H, S, A)`` or ``(H, S, A, S)``, any finite reals. If ``transitions`` is a
        :class:`SparseTransitions` with rewards, pass the tuple ``(n_states, n_actions)`` here.
    horizon : int
        Number of steps :math:`H \ge 1`.
    start : int or float array
        The first state, or a distribution over states.
    state_names, action_names : sequence of str, optional
        Names, one per state or action, all different.
    allowed : bool array, optional
        Action masks ``(S, A)`` or ``(H, S, A)``. Transitions and rewards of a forbidden action are ignored. Every state
        needs at least one allowed action.
    unit, title : str, optional
        The unit of the rewards, such as ``"€"``, and a title, for tables and reports.

    Raises
    ------
    InvalidModelError
        If the arguments are invalid or inconsistent; the message says where. Probabilities below 0 and sums different from
        1 by at most 1e-9, or by the rounding errors of single precision if that is their type, are corrected silently.

    Examples
    --------
    A choice between a coin flip that pays 1 or 0 and a certain reward of 0.4:

    >>> import entropic_bpi as eb
    >>> transitions = [[[0, .5, .5], [0, 0, 1]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2]
    >>> rewards = [[0, .4], [1, 1], [0, 0]]
    >>> mdp = eb.FiniteMDP(transitions, rewards, horizon=2, action_names=["bet", "keep"])
    >>> mdp
    FiniteMDP(3 states, 2 actions, horizon 2, stationary, dense)
    >>> [round(eb.solve(mdp, beta).value, 3) for beta in (-2, 0, 2)]
    [0.4, 0.5, 0.717]
    """

    # The first state, or the distribution it is drawn from.
    start: int | np.ndarray
    # The unit of the rewards, and a title.
    unit: str | None
    title: str | None

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        *,
        horizon: int,
        start: Any = 0,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        allowed: Any = None,
        unit: str | None = None,
        title: str | None = None,
    ) -> None:
        super().__init__(transitions, rewards, horizon=horizon, allowed=allowed)
        vars(self)["start"] = reading.read_start(start, self.n_states)
        vars(self)["unit"], vars(self)["title"] = reading.read_text("unit", unit), reading.read_text("title", title)
        self._state_names = reading.read_names("state_names", state_names, self.n_states)
        self._action_names = reading.read_names("action_names", action_names, self.n_actions)
        self._noise: OutcomeTable | None = None

    @classmethod
    def from_noise(
        cls,
        states: Iterable[Any],
        actions: Iterable[Any],
        labels: Any,
        probabilities: Any,
        outcome: Any,
        *,
        horizon: int,
        start: Any,
        law: Any = None,
    ) -> FiniteMDP:
        """Return a model whose next states and rewards are known functions of state, action and a random label.

        The model stores these functions: ``identify(mdp, noise="model")`` declares them without the probabilities.

        Parameters
        ----------
        states, actions : iterable
            The states and the actions, hashable; ``str`` gives their names.
        labels : sequence, or dict of sequences
            The possible labels. If there are several laws of the noise, a dict from the name of each law to its labels.
        probabilities : sequence of float, or dict of sequences
            The probability of each label.
        outcome : function ``(state, action, label)`` or dict
            Returns the next state, or ``(next state, reward)``; :data:`entropic_bpi.END` is the end of the episode. A value
            that is itself a state is the next state, with reward 0.
        horizon : int
            Number of steps.
        start : state or distribution
            One of the states, or a probability for each.
        law : function ``(state, action)`` or dict, optional
            The name of the law of the labels in a state and action; required if there are several laws.

        Returns
        -------
        FiniteMDP
            The model. If an outcome is the end of the episode, its last state is ``"end"``.

        Raises
        ------
        InvalidModelError
            If an outcome is not a state, or if two labels lead to one state with different rewards.

        Examples
        --------
        A shop with room for 3 items buys them for 1 and sells them for 2, as long as there is stock:

        >>> import entropic_bpi as eb
        >>> def sell(stock, order, demand):
        ...     full = min(stock + order, 3)
        ...     left = max(full - demand, 0)
        ...     return left, 2.0 * (full - left) - 1.0 * (full - stock)
        >>> shop = eb.FiniteMDP.from_noise(range(4), range(4), range(3), [0.2, 0.5, 0.3], sell, horizon=5, start=0)
        >>> shop, round(eb.solve(shop, 0).value, 2)
        (FiniteMDP(4 states, 4 actions, horizon 5, stationary, dense), 4.92)
        """
        states, actions = list(states), list(actions)
        table, transitions, rewards, names = arrays_of_noise(states, actions, labels, probabilities, outcome, law)
        if isinstance(start, Hashable) and start in states:
            start = states.index(start)
        elif np.shape(start) == (len(states),):
            start = np.append(as_floats("start", start), [0.0] * (len(names) - len(states)))
        else:
            raise InvalidModelError(f"start must be one of the states, or a distribution over them; got {shown(start)}")
        if rewards.ndim == 3 and len(set(rewards.shape) | {horizon}) == 1:  # which could also mean (H, S, A)
            rewards = np.broadcast_to(rewards, (horizon, *rewards.shape))
        mdp = cls(transitions, rewards, horizon=horizon, start=start, state_names=names, action_names=actions)
        mdp._noise = table
        return mdp

    # -- what a user reads -----------------------------------------------------------------------------

    @property
    def start_distribution(self) -> np.ndarray:
        """The distribution ``(S,)`` of the first state, also if the start is a single state."""
        return np.eye(1, self.n_states, self.start)[0] if isinstance(self.start, int) else self.start

    @property
    def state_names(self) -> tuple[str, ...]:
        return self._state_names or tuple(map(str, range(self.n_states)))

    @property
    def action_names(self) -> tuple[str, ...]:
        return self._action_names or tuple(map(str, range(self.n_actions)))

    @property
    def allowed(self) -> np.ndarray | None:
        """The allowed actions, boolean ``(S, A)`` or ``(H, S, A)``; None if all are."""
        return without_single_axis(self._allowed)

    @property
    def mechanics(self) -> OutcomeTable | None:
        """The outcome of each label of the noise, if the model was built by :meth:`from_noise`; otherwise None."""
        return self._noise

    @property
    def transitions(self) -> Any:
        """The transitions in a form that the constructor takes: an array, or :class:`SparseTransitions`."""
        return self.rows if self._kernel is None else without_single_axis(self._kernel)

    @property
    def rewards(self) -> np.ndarray | None:
        """Rewards ``(S, A)``, ``(S, A, S)``, ``(H, S, A)`` or ``(H, S, A, S)``; None if ``rows`` contains them."""
        return without_single_axis(self._rewards)

    # -- masks -------------------------------------------------------------------------------------------

    def without_masks(self) -> FiniteMDP:
        """Return an equivalent model in which every action is allowed.

        Each forbidden action gets the transitions and rewards of an allowed one. If the masks are the same at every step,
        this model's own rows already have this form.

        Returns
        -------
        FiniteMDP
            This model, unless its masks differ between steps; then a new one.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> bridge.without_masks() is bridge
        True
        """
        return self if self._allowed is None or len(self._allowed) == 1 else self._per_step_without_masks

    @cached_property
    def _per_step_without_masks(self) -> FiniteMDP:
        size = (self.n_states, self.n_actions)
        rewards = size if self.next_state_rewards else np.broadcast_to(self._payoffs, (self.horizon, *size))
        mdp = self._with(transitions=joined([self.step_rows(h) for h in range(self.horizon)]), rewards=rewards)
        mdp._allowed = None  # rows and rewards of forbidden actions have been replaced step by step
        return mdp

    @cached_property
    def _step_reward_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and largest reward at each step: arrays ``(H,)``, or ``(1,)`` if all steps have the same."""
        mdp = self.without_masks()
        rewards = mdp._payoffs
        if mdp.next_state_rewards and not mdp.stationary:  # the entries of all steps are one axis
            firsts = mdp.rows.indptr[: -1 : mdp.n_states * mdp.n_actions]
            return np.minimum.reduceat(rewards[0], firsts), np.maximum.reduceat(rewards[0], firsts)
        flat = rewards.reshape(len(rewards), -1)
        return flat.min(axis=1), flat.max(axis=1)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest reward of a possible transition."""
        low, high = self._step_reward_ranges
        return float(low.min()), float(high.max())

    def check_policy(self, policy: Any) -> np.ndarray:
        """Return a policy as an int64 array ``(H, S)`` of allowed actions, or raise.

        Parameters
        ----------
        policy : array_like ``(H, S)``
            The actions.

        Returns
        -------
        int array ``(H, S)``
            The same actions.

        Raises
        ------
        InvalidProblemError
            If the shape is wrong, or an action does not exist or is forbidden.

        Examples
        --------
        >>> import numpy as np, entropic_bpi as eb
        >>> eb.instances.risky_bridge(horizon=7).check_policy(np.zeros((7, 8), int)).shape
        (7, 8)
        """
        array = check_policy(policy, self.horizon, self.n_states, self.n_actions)
        forbidden = self.replace_forbidden(array) != array
        if forbidden.any():
            h, s = np.argwhere(forbidden)[0]
            raise InvalidProblemError(f"policy[h={h}, s={s}] = {array[h, s]} is a forbidden action")
        return array

    # -- identity ----------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"a FiniteMDP cannot be changed: build a new one with another {name}")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._fields()), (), {"_noise": self._noise}

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 digest of everything that defines the model, with exact numbers; equal for dense and sparse forms."""
        rows, allowed, noise = self.rows, self._allowed, self._noise
        state, start = (self.start, np.empty(0)) if isinstance(self.start, int) else (None, self.start)
        header: dict[str, Any] = {"sizes": [self.n_states, self.n_actions, self.horizon], "stationary": self.stationary}
        header |= {"start": state, "states": self._state_names, "actions": self._action_names}
        apart: dict[str, Any] = {"unit": self.unit, "title": self.title, "allowed": allowed is not None or None}
        apart["noise"] = None if noise is None else noise.labels
        header |= {name: value for name, value in apart.items() if value is not None}
        more = [] if allowed is None else [allowed]
        more += [] if noise is None else [noise.law, noise.following]
        digest = hashlib.sha256(json.dumps(header).encode())
        for array in (rows.indptr, rows.indices, rows.probabilities, self._payoffs + 0.0, start, *more):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FiniteMDP) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return int(self.content_hash[:15], 16)

    def __repr__(self) -> str:
        kind = f"{'stationary' if self.stationary else 'per step'}, {'sparse' if self.is_sparse else 'dense'}"
        return f"FiniteMDP({self.n_states} states, {self.n_actions} actions, horizon {self.horizon}, {kind})"

    # -- files ---------------------------------------------------------------------------------------------

    def _fields(self) -> dict[str, Any]:
        """Return the arguments of the constructor that build this model."""
        rewards = (self.n_states, self.n_actions) if self.rewards is None else self.rewards
        fields = {"transitions": self.transitions, "rewards": rewards, "horizon": self.horizon, "start": self.start}
        fields |= {"state_names": self._state_names, "action_names": self._action_names}
        return fields | {"unit": self.unit, "title": self.title, "allowed": self.allowed}

    def _with(self, **changes: Any) -> FiniteMDP:
        """Return this model with some arguments of the constructor replaced."""
        mdp = FiniteMDP(**(self._fields() | changes))
        mdp._noise = self._noise
        return mdp

    def _with_rewards(self, rewards: np.ndarray) -> FiniteMDP:
        """Return this model with other rewards, which have the form of ``_payoffs``."""
        if self.next_state_rewards:
            rows = replace(self.rows, rewards=rewards)
            return self._with(transitions=rows, rewards=(self.n_states, self.n_actions))
        if not self.is_sparse and rewards.shape == (self.n_states,) * 3:  # could also mean (S, A, S)
            rewards = np.repeat(rewards[..., None], self.n_states, axis=3)
        return self._with(rewards=without_single_axis(rewards))

    def save(self, path: str | Path) -> None:
        """Write the model to a file. The suffix determines the format.

        Parameters
        ----------
        path : path
            A file ``.npz``, or ``.json`` for small models, contains the whole model, and :meth:`load` returns it exactly.
            Formats of other programs hold models that are the same at every step, without the horizon: ``.csv`` (MDPs.jl),
            ``.tra`` (PRISM, with files ``.lab``, ``.srew`` and ``.trew`` beside it), ``.drn`` (Storm).

        Raises
        ------
        InvalidModelError
            If the format cannot hold the model.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bridge.save(f"{folder}/bridge.npz")
        ...     eb.FiniteMDP.load(f"{folder}/bridge.npz") == bridge
        True
        """
        write_model(check_path("path", path), self)

    @classmethod
    def load(
        cls, path: str | Path, *, horizon: int | None = None, start: Any = None, reward: str | None = None
    ) -> FiniteMDP:
        """Read a model from a file.

        Parameters
        ----------
        path : path
            A file ``.npz`` or ``.json``, as :meth:`save` writes them; ``.csv`` with a transition in each line (MDPs.jl,
            RiskMDPs.jl, numbered from 0 or 1); ``.tra`` (PRISM; labels and rewards are read from the files beside it);
            ``.drn`` (Storm); ``.prism``, ``.nm`` or ``.pm`` (needs the extra ``prism``).
        horizon : int, optional
            Number of steps. Required for files of other programs, which contain none.
        start : optional
            First state, or distribution over states. The default is the start in the file, and state 0 for a ``.csv`` file.
        reward : str, optional
            The name of the reward to use, for files of PRISM and Storm that have several rewards.

        Returns
        -------
        FiniteMDP
            The model.

        Raises
        ------
        InvalidModelError
            If the file does not hold a valid model; the message names the file and, for text files, the line.

        Examples
        --------
        >>> import tempfile
        >>> import entropic_bpi as eb
        >>> mdp = eb.FiniteMDP([[[0.5, 0.5]], [[0, 1]]], [[0], [1]], horizon=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mdp.save(f"{folder}/coin.csv")
        ...     eb.FiniteMDP.load(f"{folder}/coin.csv", horizon=3) == mdp
        True
        """
        path = check_path("path", path)
        fields = read_model(path, horizon, start, reward)
        names = ("horizon", "start", "state_names", "action_names", "allowed", "unit", "title")
        given: dict[str, Any] = {name: fields.get(name) for name in names}
        transitions, rewards = fields.get("transitions"), fields.get("rewards")
        try:
            if "indptr" in fields:
                rows: Any = (fields.get(name) for name in ("indptr", "indices", "probabilities", "entry_rewards"))
                transitions = SparseTransitions(*rows)
                rewards = tuple(int(size) for size in fields["sizes"]) if rewards is None else rewards
            mdp = cls(transitions, rewards, **given)
            mdp._noise = table_of_fields(fields, mdp.n_states, mdp.n_actions)
        except (TypeError, ValueError, OverflowError) as error:  # fields of a file may have any type and shape
            raise InvalidModelError(f"{path}: {error}") from None
        sizes = np.asarray(fields.get("sizes", (mdp.n_states, mdp.n_actions))).tolist()
        if sizes != [mdp.n_states, mdp.n_actions]:
            raise InvalidModelError(f"{path}: sizes are {sizes}, but the arrays describe {mdp!r}")
        return mdp


def check_model(value: Any, name: str = "mdp") -> FiniteMDP:
    """Return ``value`` if it is a model; if it is the path of a problem file (``problem.toml``), return the model in it."""
    if isinstance(value, (str, Path)) and Path(value).suffix == ".toml":
        import entropic_bpi

        value = entropic_bpi.ProblemFile.read(value).model()
    if not isinstance(value, FiniteMDP):
        raise InvalidModelError(f"{name} must be a FiniteMDP, got {shown(value)}")
    return value
