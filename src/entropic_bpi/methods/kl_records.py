"""The records that the compiled plan of the KL method works on.

The last column of every ``(.., S + 1)`` array stands for "some state not seen yet" and holds the extreme of the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = [
    "Box",
    "Candidate",
    "Desk",
    "Deviation",
    "Optimism",
    "Place",
    "Relations",
    "Rules",
    "Scratch",
    "Trial",
    "new_desk",
    "new_scratch",
]

MAX_SHARED = 3


class Rules(NamedTuple):
    """What a plan needs besides the counts: the risk parameter, e^{βr} per (s, a), and the radius of each row's ball.

    ``radius[i]`` is that of the ``planned[i]`` visits which row ``i`` had at the last plan. The tolerances say how far the
    solvers go: bounds are valid for any. ``seed`` breaks ties; a gap of ``eps`` is enough; ``challenge`` says whether
    every second round plays the challenger.
    """

    beta: float
    sign: float
    shift: float
    log_union: float
    gain: np.ndarray
    possible: np.ndarray
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


class Relations(NamedTuple):
    """What the pair certificate knows of the occupied states of one step, in their order; the last is "elsewhere".

    ``position`` ``(S + 1)`` says which one a state is. ``d[x, y]`` bounds Z^π(x)/Z^π(y), ``r[x, y]`` bounds Z*(x)/Z^π(y)
    for β > 0 and Z^π(x)/Z*(y) for β < 0, and ``rho`` ``(S + 1)`` has the diagonal of ``r`` by state.
    """

    position: np.ndarray
    d: np.ndarray
    r: np.ndarray
    rho: np.ndarray


class Desk(NamedTuple):
    """Working memory of the pair certificate.

    ``states`` are those that are occupied at the step, and ``gain`` ``(states, A)`` is how much better than the candidate
    each of their actions may be, 1 if it is not. ``low`` and ``high`` ``(S + 1)`` are a box for the next step. The rest serves one pair of rows:
    ``known[p]`` is the number of position ``p`` among the base's successors, -1 if it is none; ``names`` and ``numbers``
    have a column for each slot or each different successor.
    """

    states: np.ndarray
    gain: np.ndarray
    low: np.ndarray
    high: np.ndarray
    known: np.ndarray
    names: np.ndarray
    numbers: np.ndarray


def new_desk(rules: Rules, n_states: int, n_actions: int, occupied: int) -> Desk:
    return Desk(
        np.empty(occupied, dtype=np.int64),
        np.empty((occupied, n_actions)),
        np.empty(n_states + 1),
        np.empty(n_states + 1),
        np.full(occupied + 1, -1),
        np.empty((5, rules.widest), dtype=np.int64),
        np.empty((19, rules.widest)),
    )
