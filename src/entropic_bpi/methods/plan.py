"""What every method returns from its counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.sampling.simulator import Behaviour

__all__ = ["History", "Plan"]


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
