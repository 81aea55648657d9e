"""Problems from the literature: the risky bridge of the paper's experiments, RiverSwim, and Garnet."""

import math
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SparseTransitions
from entropic_bpi.tools.checks import check_finite, check_flag, check_integer, check_memory, check_seed

# Rivers with more states are stored sparse.
_DENSE_STATES = 500


def risky_bridge(
    horizon: int = 7, p_start: float = 0.95, p_mid: float = 0.75, p_final: float = 0.25, p_dash: float = 0.85
) -> FiniteMDP:
    """The bridge of the paper: walk safely, or jump ahead at the risk of falling.

    Action ``safe`` walks ``s0 → s1 → … → s5 → sg`` with certainty. Action ``risky`` jumps from ``s0``, ``s1`` or ``s2``
    to ``s4``, or from ``s4`` to the goal ``sg``; if it fails, it falls into the pit ``sb``. The goal and the pit are
    absorbing. Every action in the goal has reward 1; all other rewards are 0.

    The paper defines no risky action at ``s3`` and ``s5``; there it equals ``safe``.

    Parameters
    ----------
    horizon : int
        Number of steps, at least 1. The safe walk is in the goal from step 6 on, so it earns ``horizon - 6``.
    p_start, p_mid, p_final, p_dash : float
        Probability of **falling** if ``risky`` is played at ``s0``, ``s1``, ``s2`` and ``s4``.

    Returns
    -------
    FiniteMDP
        The model.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge()
    >>> bridge
    FiniteMDP(8 states, 2 actions, horizon 7, stationary, dense)
    >>> [round(eb.solve(bridge, beta).value, 6) for beta in (-1, 2.5)]
    [1.045541, 3.043056]
    """
    horizon = check_integer("horizon", horizon)
    states, goal, pit = ("s0", "s1", "s2", "s3", "s4", "s5", "sg", "sb"), 6, 7
    surely = np.eye(len(states))
    safe = surely[[1, 2, 3, 4, 5, goal, goal, pit]]
    risky = safe.copy()
    jumps = (0, 4, "p_start", p_start), (1, 4, "p_mid", p_mid), (2, 4, "p_final", p_final), (4, goal, "p_dash", p_dash)
    for state, landing, name, given in jumps:
        falling = check_finite(name, given)
        if not 0 <= falling <= 1:  # 0 and 1 are allowed, unlike in check_probability
            raise InvalidProblemError(f"{name} must lie in [0, 1], got {falling}")
        risky[state] = (1 - falling) * surely[landing] + falling * surely[pit]
    names: dict[str, Any] = {"state_names": states, "action_names": ("safe", "risky")}
    rewards = np.repeat(surely[goal][:, None], 2, axis=1)
    return FiniteMDP(np.stack([safe, risky], axis=1), rewards, horizon=horizon, start=0, **names)


def river_swim(n_states: int = 6, horizon: int = 20) -> FiniteMDP:
    """Move left for a small reward, or swim right against the current for a large one.

    ``left`` always moves one state to the left; in the first state it stays. ``right`` moves at random:

    ============  ====  ====  =====
    from          left  stay  right
    ============  ====  ====  =====
    first state   –     0.4   0.6
    in between    0.05  0.6   0.35
    last state    0.4   0.6   –
    ============  ====  ====  =====

    ``left`` in the first state has reward 0.005, ``right`` in the last state has reward 1.0; all other rewards are 0.
    Episodes start in the first state. The numbers are from Osband, Russo and Van Roy (2013), after Strehl and Littman
    (2008).

    Parameters
    ----------
    n_states : int
        Length of the chain, at least 2.
    horizon : int
        Number of steps, at least 1.

    Returns
    -------
    FiniteMDP
        The model.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> river = eb.instances.river_swim()
    >>> river
    FiniteMDP(6 states, 2 actions, horizon 20, stationary, dense)
    >>> policy = eb.solve(river, beta=-20).policy  # very risk-averse: it takes the small reward first
    >>> river.action_names[policy[0, 0]]
    'left'
    """
    n_states = check_integer("n_states", n_states, at_least=2)
    horizon = check_integer("horizon", horizon)
    check_memory(f"a river of {n_states} states", 12 * n_states)
    first, last = 0, n_states - 1
    bank = np.zeros(n_states)
    bank[first] = 1.0
    down, stay, up = np.full(last, 0.05), np.full(n_states, 0.6), np.full(last, 0.35)
    down[-1], stay[first], up[first] = 0.4, 0.4, 0.6
    matrices = [sparse.diags([np.ones(last), bank], [-1, 0]), sparse.diags([down, stay, up], [-1, 0, 1])]  # left, right
    transitions: Any = matrices
    if n_states <= _DENSE_STATES:
        transitions = np.stack([matrix.toarray() for matrix in matrices], axis=1)
    rewards = np.zeros((n_states, 2))
    rewards[first, 0], rewards[last, 1] = 0.005, 1.0
    return FiniteMDP(transitions, rewards, horizon=horizon, start=first, action_names=("left", "right"))


def garnet(
    n_states: int, n_actions: int, branching: int, *, horizon: int, seed: int, stationary: bool = True
) -> FiniteMDP:
    """A random MDP with a given number of successors per state and action.

    The successors of a pair (s, a) are a uniform random subset of the states, their probabilities are Dirichlet(1), that is
    uniform on the simplex, and the reward r(s, a) is uniform on [0, 1]. Episodes start in state 0. The model is stored
    sparse, so that large ones need little memory.

    Parameters
    ----------
    n_states, n_actions : int
        At least 1.
    branching : int
        Number of successors, from 1 to ``n_states``.
    horizon : int
        Number of steps, at least 1.
    seed : int
        The same seed gives the same model; on another type of processor, some numbers may differ in the last digit.
    stationary : bool
        If False, transitions and rewards are drawn independently for every step.

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
    n_states, n_actions = check_integer("n_states", n_states), check_integer("n_actions", n_actions)
    branching, horizon = check_integer("branching", branching), check_integer("horizon", horizon)
    if branching > n_states:
        raise InvalidProblemError(f"branching must be at most n_states={n_states}, got {branching}")
    rng = np.random.default_rng(check_seed("seed", seed))
    sizes = (n_states, n_actions) if check_flag("stationary", stationary) else (horizon, n_states, n_actions)
    n_rows = math.prod(sizes)
    check_memory(f"a garnet of {n_states} states", 4 * n_rows * branching)
    weights = rng.standard_exponential((n_rows, branching))  # normalised exponentials are Dirichlet(1)
    indices = _distinct_successors(rng, n_rows, n_states, branching).ravel()
    probabilities = (weights / weights.sum(axis=1, keepdims=True)).ravel()
    rows = SparseTransitions(np.arange(n_rows + 1) * branching, indices, probabilities)
    return FiniteMDP(rows, rng.random(sizes), horizon=horizon, start=0)


def _distinct_successors(rng: np.random.Generator, n_rows: int, n_states: int, branching: int) -> np.ndarray:
    """Return, for every row, a uniform random subset of ``branching`` states, in increasing order.

    This is Floyd's method for all rows at once, which needs memory only for the entries, not for ``n_rows * n_states``.
    """
    chosen = np.empty((n_rows, branching), dtype=np.int64)
    for k, top in enumerate(range(n_states - branching, n_states)):
        draw = rng.integers(0, top + 1, size=n_rows)
        repeated = (chosen[:, :k] == draw[:, None]).any(axis=1)
        chosen[:, k] = np.where(repeated, top, draw)
    return np.sort(chosen, axis=1)
