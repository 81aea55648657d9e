"""Models of QuantEcon: ``DiscreteDP`` in product form or as state-action pairs."""

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SparseTransitions
from entropic_bpi.tools.text import shown


def from_quantecon(ddp: Any, *, horizon: int, start: Any = 0) -> FiniteMDP:
    """Return the model of a ``quantecon.markov.DiscreteDP``.

    Actions that are infeasible in a state are forbidden (``allowed``): those with a reward of -inf and, in a model of
    state-action pairs, those that are not listed.

    Parameters
    ----------
    ddp : DiscreteDP
        In product form, or as state-action pairs with dense or sparse transitions. Its ``beta`` is the discount factor, not
        the risk parameter, and is not part of the model; unless it is 1, a warning says how to pass it to other functions.
    horizon : int
        Number of steps, at least 1.
    start : optional
        First state, or distribution over states.

    Returns
    -------
    FiniteMDP
        The model.

    Raises
    ------
    InvalidModelError
        If ``ddp`` is not a DiscreteDP, or not a valid model.

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> import entropic_bpi as eb
    >>> ddp = SimpleNamespace(R=np.array([[5, 10], [-1, -np.inf]]), Q=np.full((2, 2, 2), 0.5), beta=1.0)
    >>> eb.from_quantecon(ddp, horizon=3).allowed
    array([[ True,  True],
           [ True, False]])
    """
    try:
        rewards, transitions, discount = np.asarray(ddp.R, dtype=float), ddp.Q, float(ddp.beta)
        pairs = (np.asarray(ddp.s_indices), np.asarray(ddp.a_indices)) if rewards.ndim == 1 else None
    except (AttributeError, TypeError, ValueError):
        raise InvalidModelError(f"ddp must be a quantecon.markov.DiscreteDP, got {shown(ddp)}") from None
    if pairs is not None:
        transitions, rewards = _rows_of_pairs(transitions, rewards, *pairs)
    if discount != 1:
        words = f"is not part of the model: pass discount={discount:g} to solve, identify or forecast"
        warnings.warn(f"ddp.beta = {discount:g}, the discount factor, {words}", stacklevel=2)
    return FiniteMDP(transitions, rewards, horizon=horizon, start=start, allowed=rewards > -np.inf)


def _rows_of_pairs(
    transitions: Any, rewards: np.ndarray, states: np.ndarray, actions: np.ndarray
) -> tuple[SparseTransitions, np.ndarray]:
    """Return compressed rows for all states and actions, and rewards ``(S, A)``, which are -inf for missing pairs."""
    matrix = sparse.coo_array(transitions)
    n_pairs, n_states = matrix.shape
    fits = all(each.shape == (n_pairs,) and each.dtype.kind in "iu" for each in (states, actions))
    if not (fits and rewards.shape == (n_pairs,) and n_pairs and 0 <= states.min() <= states.max() < n_states):
        raise InvalidModelError(
            "s_indices, a_indices and R of ddp must have an entry for each row of Q, and states below S"
        )
    n_actions = int(actions.max()) + 1
    if actions.min() < 0 or n_actions > n_pairs:
        raise InvalidModelError(f"a_indices of ddp must be numbers from 0 without gaps, got {shown(actions)}")
    row = states * n_actions + actions
    if len(np.unique(row)) < n_pairs:
        raise InvalidModelError("ddp lists a state-action pair twice")
    rows = sparse.csr_array((matrix.data, (row[matrix.row], matrix.col)), (n_states * n_actions, n_states))
    rows.sum_duplicates()
    paid = np.full((n_states, n_actions), -np.inf)
    paid[states, actions] = rewards
    return SparseTransitions(rows.indptr, rows.indices, rows.data), paid
