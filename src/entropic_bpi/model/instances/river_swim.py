"""RiverSwim, the chain where the large reward lies upstream."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.checks import check_integer, check_memory

LEFT, RIGHT = range(2)
# Longer rivers are held sparse.
_DENSE_STATES = 500


def river_swim(n_states: int = 6, horizon: int = 20) -> FiniteMDP:
    """Drift left for a crumb, or swim right against the current for the large reward.

    ``left`` always moves one state to the left (the first state stays). ``right`` moves by chance:

    ============  ====  ====  =====
    from          left  stay  right
    ============  ====  ====  =====
    first state   –     0.4   0.6
    in between    0.05  0.6   0.35
    last state    0.4   0.6   –
    ============  ====  ====  =====

    ``left`` in the first state pays 0.005, ``right`` in the last state pays 1.0, all else pays 0. Episodes start in
    the first state. These are the numbers of Osband, Russo and Van Roy (2013), after Strehl and Littman (2008).

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
    >>> policy = eb.solve(river, beta=-20).policy  # too averse to count on the swim: it begins by taking the crumbs
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
    matrices = [sparse.diags([np.ones(last), bank], [-1, 0]), sparse.diags([down, stay, up], [-1, 0, 1])]  # LEFT, RIGHT
    transitions: Any = matrices
    if n_states <= _DENSE_STATES:
        transitions = np.stack([matrix.toarray() for matrix in matrices], axis=1)
    rewards = np.zeros((n_states, 2))
    rewards[first, LEFT] = 0.005
    rewards[last, RIGHT] = 1.0
    return FiniteMDP(transitions, rewards, horizon=horizon, start=first, action_names=("left", "right"))
