"""What every method returns from its counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi._compile import compiled
from entropic_bpi.sampling.simulator import Behaviour

__all__ = ["History", "Plan", "tie_priority"]


class History(NamedTuple):
    """Bounds of successive plans, one entry per plan."""

    lower: np.ndarray
    upper: np.ndarray
    gap: np.ndarray


class Plan(NamedTuple):
    """Bounds from one set of counts, the policy they are about, and what to play next.

    Attributes
    ----------
    policy : int array ``(steps, S)``
        The candidate that the bounds are about, the artificial first step included.
    lower, upper : float
        Bounds on the candidate's value from below, and on the optimal value from above.
    gap : float
        Bound on how much the candidate's value is below the optimal one.
    behaviour : Behaviour
        What to play next.
    """

    policy: np.ndarray
    lower: float
    upper: float
    gap: float
    behaviour: Behaviour


@compiled()
def _mix(number):  # type: ignore[no-untyped-def]
    """SplitMix64: a well-mixed 64-bit number."""
    mixed = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled()
def tie_priority(seed, h, s, a):  # type: ignore[no-untyped-def]
    """Of two tied actions the one with the larger priority is taken; the lowest one for seed 0.

    Priorities are drawn once per run and place, not anew for every plan: while bounds are clipped, actions that are
    equally good tie for ever, and playing now one and now the other would only halve what is known of each.
    """
    if seed == 0:
        return ~np.uint64(a)
    return _mix(_mix(_mix(np.uint64(seed) ^ np.uint64(h)) ^ np.uint64(s)) ^ np.uint64(a))
