"""The records that the compiled plan of the KL method works on.

The last column of every ``(.., S + 1)`` array stands for "some state not seen yet" and holds the extreme of the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Box", "Candidate", "Deviation", "Optimism", "Place", "Rules", "Scratch", "Trial", "new_scratch"]

MAX_SHARED = 3


class Rules(NamedTuple):
    """What a plan needs besides the counts: the risk parameter, e^{βr} per (s, a), and the radius of each row's ball.

    ``radius[i]`` is that of the ``planned[i]`` visits which row ``i`` had at the last plan. The tolerances say how far the
    solvers go: bounds are valid for any. ``seed`` breaks ties; a gap of ``eps`` is enough; ``challenge`` says whether
    every second round plays the challenger. What a step pays and all that follows, as e^{β·return}, lies between ``bottom``
    and ``top`` of that (real) step wherever anybody can be; their last entries are for the artificial step -1.
    """

    beta: float
    sign: float
    shift: float
    log_union: float
    gain: np.ndarray
    possible: np.ndarray
    top: np.ndarray
    bottom: np.ndarray
    radius: np.ndarray
    planned: np.ndarray
    widest: int
    exponent_rounding: float
    tolerance: float
    same_tolerance: float
    seed: int
    eps: float
    challenge: bool


class Optimism(NamedTuple):
    """The optimistic plan: ``z`` ``(steps + 1, S + 1)``, ``u`` ``(steps, S, A)`` and its greedy ``policy``."""

    z: np.ndarray
    u: np.ndarray
    policy: np.ndarray


class Candidate(NamedTuple):
    """A candidate's plan: pessimistic ``z``, upper end ``high`` of the box, ``rho``, ``policy`` and where to ``turn``."""

    z: np.ndarray
    high: np.ndarray
    rho: np.ndarray
    policy: np.ndarray
    turn: np.ndarray


class Trial(NamedTuple):
    """A candidate to be planned, of which ``kind``; ``twin`` is the other, which before the ``second`` one was planned."""

    plan: Candidate
    twin: Candidate
    kind: int
    second: bool


class Place(NamedTuple):
    """A planned step and a state."""

    h: int
    s: int


class Box(NamedTuple):
    """What is known of the next step, by state: Z within ``low`` and ``high``, the ratio ``rho``, and what caps ρZ."""

    low: np.ndarray
    high: np.ndarray
    rho: np.ndarray
    cap: np.ndarray


class Deviation(NamedTuple):
    """One action instead of another at a ``step``: the rows ``top`` over ``bottom``, and ``gain``, that of their e^{βr}."""

    step: int
    top: int
    bottom: int
    gain: float


class Scratch(NamedTuple):
    """Working memory: one layer for each part of the states that is planned by itself.

    The first two rows of ``work`` belong to the balls. ``pessimistic`` has the values of the actions of one state,
    ``shared`` and ``scores`` the successors that two rows share.
    """

    work: np.ndarray
    pessimistic: np.ndarray
    shared: np.ndarray
    scores: np.ndarray


def new_scratch(rules: Rules, n_actions: int, layers: int) -> Scratch:
    return Scratch(
        np.empty((layers, 6, rules.widest)),
        np.empty((layers, n_actions)),
        np.empty((layers, MAX_SHARED), dtype=np.int64),
        np.empty((layers, MAX_SHARED)),
    )
