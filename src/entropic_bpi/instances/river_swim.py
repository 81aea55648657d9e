"""RiverSwim, the chain where the large reward lies upstream."""

from __future__ import annotations

import numpy as np

from entropic_bpi._checks import check_integer
from entropic_bpi.mdp import FiniteMDP

__all__ = ["river_swim"]

LEFT, RIGHT = range(2)


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
    first, last = 0, n_states - 1
    transitions = np.zeros((n_states, 2, n_states))
    for state in range(n_states):
        transitions[state, LEFT, max(state - 1, first)] = 1.0
        if first < state < last:
            transitions[state, RIGHT, state - 1 : state + 2] = 0.05, 0.6, 0.35
    transitions[first, RIGHT, :2] = 0.4, 0.6
    transitions[last, RIGHT, -2:] = 0.4, 0.6
    rewards = np.zeros((n_states, 2))
    rewards[first, LEFT] = 0.005
    rewards[last, RIGHT] = 1.0
    return FiniteMDP(transitions, rewards, horizon=horizon, start=first, action_names=("left", "right"))
