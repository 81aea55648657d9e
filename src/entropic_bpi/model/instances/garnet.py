"""Garnet: random MDPs with a chosen number of successors."""

from __future__ import annotations

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SparseTransitions
from entropic_bpi.tools.checks import check_flag, check_integer, check_memory, check_seed


def garnet(
    n_states: int, n_actions: int, branching: int, *, horizon: int, seed: int, stationary: bool = True
) -> FiniteMDP:
    """A random MDP with a given number of successors per state and action.

    The successors of a pair (s, a) are distinct and uniform among the states, their probabilities are Dirichlet(1),
    that is uniform on the simplex, and the reward r(s, a) is uniform on [0, 1]. Episodes start in state 0. The model
    is held sparse, so that large ones are cheap.

    Parameters
    ----------
    n_states, n_actions : int
        At least 1.
    branching : int
        Number of successors, from 1 to ``n_states``.
    horizon : int
        Number of steps, at least 1.
    seed : int
        The same seed gives the same model; on another kind of processor a few numbers may differ in the last digit.
    stationary : bool
        If False, transitions and rewards are drawn anew at every step.

    Returns
    -------
    FiniteMDP
        The model.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> mdp = eb.instances.garnet(50, 4, 3, horizon=10, seed=1)
    >>> mdp
    FiniteMDP(50 states, 4 actions, horizon 10, stationary, sparse)
    >>> mdp == eb.instances.garnet(50, 4, 3, horizon=10, seed=1)
    True
    """
    n_states = check_integer("n_states", n_states)
    n_actions = check_integer("n_actions", n_actions)
    branching = check_integer("branching", branching)
    horizon = check_integer("horizon", horizon)
    seed = check_seed("seed", seed)
    if branching > n_states:
        raise InvalidProblemError(f"branching must be at most n_states={n_states}, got {branching}")
    steps = 1 if check_flag("stationary", stationary) else horizon
    check_memory(f"a garnet of {n_states} states", 4 * steps * n_states * n_actions * branching)
    rng = np.random.default_rng(seed)
    sizes = (n_states, n_actions) if stationary else (horizon, n_states, n_actions)
    n_rows = int(np.prod(sizes))
    weights = rng.standard_exponential((n_rows, branching))  # normalised exponentials are Dirichlet(1)
    rows = SparseTransitions(
        indptr=np.arange(n_rows + 1) * branching,
        indices=_distinct_successors(rng, n_rows, n_states, branching).ravel(),
        probabilities=(weights / weights.sum(axis=1, keepdims=True)).ravel(),
    )
    return FiniteMDP(rows, rng.random(sizes), horizon=horizon, start=0)


def _distinct_successors(rng: np.random.Generator, n_rows: int, n_states: int, branching: int) -> np.ndarray:
    """For every row a uniform ``branching``-subset of the states, increasing.

    Floyd's method on all rows at once: memory follows the number of entries, not ``n_rows * n_states``.
    """
    chosen = np.empty((n_rows, branching), dtype=np.int64)
    for k, top in enumerate(range(n_states - branching, n_states)):
        draw = rng.integers(0, top + 1, size=n_rows)
        repeated = (chosen[:, :k] == draw[:, None]).any(axis=1)
        chosen[:, k] = np.where(repeated, top, draw)
    return np.sort(chosen, axis=1)
