"""The risky bridge, the toy problem of the paper's experiments."""

from __future__ import annotations

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.checks import check_finite, check_integer

STATES = ("s0", "s1", "s2", "s3", "s4", "s5", "sg", "sb")
ACTIONS = ("safe", "risky")
SAFE, RISKY = range(2)
GOAL, PIT = STATES.index("sg"), STATES.index("sb")


def risky_bridge(
    horizon: int = 7, p_start: float = 0.95, p_mid: float = 0.75, p_final: float = 0.25, p_dash: float = 0.85
) -> FiniteMDP:
    """The paper's bridge: walk it safely, or jump ahead at the risk of falling.

    Action ``safe`` walks ``s0 → s1 → … → s5 → sg`` with certainty. Action ``risky`` jumps from ``s0``, ``s1`` or ``s2``
    to ``s4``, or dashes from ``s4`` to the goal ``sg``; if it fails it falls into ``sb``. Goal and pit absorb. Each
    step spent in the goal pays 1, whatever the action; nothing else pays.

    The paper draws no risky action at ``s3`` and ``s5``; there it equals ``safe``.

    Parameters
    ----------
    horizon : int
        Number of steps, at least 1. The safe walk is in the goal from step 6 on, so it earns ``horizon - 6``.
    p_start, p_mid, p_final, p_dash : float
        Probability of **falling** when playing ``risky`` at ``s0``, ``s1``, ``s2`` and ``s4``.

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
    transitions = np.zeros((len(STATES), len(ACTIONS), len(STATES)))
    for state in range(GOAL):
        transitions[state, :, state + 1] = 1.0
    transitions[GOAL, :, GOAL] = transitions[PIT, :, PIT] = 1.0
    jumps = (
        (0, 4, "p_start", p_start),
        (1, 4, "p_mid", p_mid),
        (2, 4, "p_final", p_final),
        (4, GOAL, "p_dash", p_dash),
    )
    for state, landing, name, given in jumps:
        falling = _check_falling(name, given)
        transitions[state, RISKY] = 0.0
        transitions[state, RISKY, landing] = 1.0 - falling
        transitions[state, RISKY, PIT] = falling
    rewards = np.zeros((len(STATES), len(ACTIONS)))
    rewards[GOAL] = 1.0
    return FiniteMDP(transitions, rewards, horizon=horizon, start=0, state_names=STATES, action_names=ACTIONS)


def _check_falling(name: str, value: float) -> float:
    """A jump may be sure to fall or sure to land, so 0 and 1 are allowed."""
    number = check_finite(name, value)
    if not 0 <= number <= 1:
        raise InvalidProblemError(f"{name} must lie in [0, 1], got {number}")
    return number
