"""Declarations about single states: the allowed actions of each step and state, and the first states.

A forbidden action is never played or compared with others, and its row needs no confidence ball. Masks are not random: the
masks of an environment may become known while it is played, and every action of a state whose mask is not known counts as
allowed, which is conservative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import check_allowed
from entropic_bpi.problem.declarations import FIXED, INFO
from entropic_bpi.problem.rows import index_by_name
from entropic_bpi.tools.checks import ask
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Integers

if TYPE_CHECKING:
    from entropic_bpi.problem.problem import Problem


class Masks(NamedTuple):
    """Action masks.

    Attributes
    ----------
    table : int array ``(1 | H, S, A)``
        1 where an action is allowed; each state has at least one allowed action.
    offered : bool
        Whether the masks come with the observations. Masks that are not known yet are 1, and are filled in during play.
    """

    table: Integers
    offered: bool = False

    def at(self, h: int) -> np.ndarray:
        """Return the mask of a step, ``(S, A)``."""
        return self.table[min(h, len(self.table) - 1)]

    def seen_in(self, states: Iterable[int]) -> Masks:
        """Return masks in which only these ``states`` are known, if masks come with the observations."""
        table, known = self.table.copy(), np.zeros(self.table.shape[1], dtype=bool)
        known[list(states)] = True
        table[:, ~known] = 1
        return Masks(table, True) if self.offered else self

    def replace_forbidden(self, policy: np.ndarray, artificial: int) -> np.ndarray:
        """Return a policy with each forbidden action replaced; an ``artificial`` first step has no masks."""
        replaced, chosen = policy.copy(), policy[artificial:]
        masks = np.broadcast_to(self.table, (len(chosen), *self.table.shape[1:]))
        forbidden = np.take_along_axis(masks, chosen[..., None], axis=2)[..., 0] == 0
        replaced[artificial:] = np.where(forbidden, masks.argmax(axis=2), chosen)
        return replaced


def check_policy_allowed(problem: Problem, policy: np.ndarray) -> None:
    """Raise an error if a policy ``(steps, S)`` has a forbidden action."""
    for h, s in np.argwhere(problem.replace_forbidden(policy) != policy):
        where = f"in state {problem.state_names[s]!r} at step {h - problem.artificial}"
        raise InvalidProblemError(f"policy plays {problem.action_names[policy[h, s]]!r} {where}, which is forbidden")


def check_allowed_rows(problem: Problem, rows: np.ndarray) -> None:
    """Raise an error if a row that was played is that of a forbidden action."""
    if problem.allowed is None:
        return
    table = problem.allowed.table
    table = table.max(axis=0) if problem.stationary else np.broadcast_to(table, (problem.horizon, *table.shape[1:]))
    played = rows[rows < table.size]
    for row in played[table.ravel()[played] == 0].tolist():
        raise InvalidProblemError(f"{problem.describe(row)} was played, which allowed= forbids")


def masks_of(
    declared: Any, horizon: int, states: Iterable[Any], n_actions: int, index: Callable[[Any], int], extra: int = 0
) -> Masks | None:
    """Return masks that are declared as an array or as a function that returns the allowed actions of a state.

    ``index`` returns the number of an action, and a negative number for any other object. ``extra`` states are added, in
    which every action is allowed.
    """
    labels = list(states)
    if callable(declared):
        table = np.zeros((len(labels), n_actions), dtype=bool)
        for s, label in enumerate(labels):
            # All objects that are no action have the same number. In reversed order, the first of them remains and is named.
            numbers = {index(a): a for a in reversed(ask("allowed", lambda state: list(declared(state)), label))}
            if min(numbers, default=-1) < 0:
                got = f"{shown(numbers[min(numbers)])}, which is not an action" if numbers else "no action"
                raise InvalidProblemError(f"allowed({shown(label)}) returned {got}: it must return allowed actions")
            table[s, list(numbers)] = True
        declared = table
    mask = check_allowed(declared, horizon, len(labels), n_actions)
    margin = ((0, 0), (0, extra), (0, 0))
    return None if mask is None else Masks(np.pad(mask.astype(np.int64), margin, constant_values=1))


def masks_of_model(mdp: FiniteMDP, declared: Any) -> Masks | None:
    """Return the masks of a model, combined with the declared ones."""
    if isinstance(declared, str) and declared == INFO:
        raise InvalidProblemError("allowed='info' is for environments; a FiniteMDP's own masks are known")
    own = masks = None
    if mdp.allowed is not None:
        own = Masks(mdp.allowed.reshape(-1, mdp.n_states, mdp.n_actions).astype(np.int64))
    if declared is not None:
        masks = masks_of(declared, mdp.horizon, range(mdp.n_states), mdp.n_actions, index_by_name(mdp.action_names))
    if masks is None or own is None:
        return masks or own
    both = np.minimum(masks.table, own.table)
    if not both.any(axis=2).all():
        raise InvalidProblemError("allowed= and the model's own masks together forbid every action of a state")
    return Masks(both)


def numbered_starts(declared: Any, index: Callable[[Any], int]) -> Any:
    """Return the sorted numbers of the declared first states; None and "fixed" are returned unchanged.

    ``index`` returns the number of a state, and a negative number for any other object.
    """
    if declared is None or (isinstance(declared, str) and declared == FIXED):
        return declared
    numbers = [(index(state), state) for state in (declared if isinstance(declared, list) else [declared])]
    for number, state in numbers:
        if number < 0:
            raise InvalidProblemError(f"start names {shown(state)}, which is not a state of the source")
    return sorted({number for number, _ in numbers})


def start_of_model(mdp: FiniteMDP, declared: Any) -> Any:
    """Return the first state of a model or, if it is random, the declared first states; check them against the model."""
    starts, support = numbered_starts(declared, index_by_name(mdp.state_names)), mdp.start_distribution > 0
    if starts == FIXED and support.sum() > 1:
        raise InvalidProblemError(f"start='fixed' is wrong: the model starts in {support.sum()} different states")
    outside = np.setdiff1d(np.flatnonzero(support), starts).tolist() if isinstance(starts, list) else []
    for s in outside:
        raise InvalidProblemError(f"start={shown(declared)} is wrong: the model starts in {mdp.state_names[s]!r}")
    return mdp.start if isinstance(mdp.start, int) else starts
