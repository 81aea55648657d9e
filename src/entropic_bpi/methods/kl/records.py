"""The records that the compiled plan of the KL method works on.

The last column of every ``(.., S + 1)`` array stands for "some state not seen yet" and holds the extreme of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import by_pointer
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.noise import Balls
from entropic_bpi.problem.rows import Frame

MAX_SHARED = 3


@by_pointer
class PlanConstants(NamedTuple):
    """What a plan needs besides the counts: the risk parameter, e^{βr} per (s, a), and the radius of each row's ball.

    ``radius[i]`` is for the ``planned[i]`` visits that row ``i`` had at the last plan. The tolerances are those of the
    solvers; bounds are valid for any tolerance. ``seed`` breaks ties; a run stops at a gap of ``eps``; ``challenge``: every
    second round plays the challenger. In states that can be reached, e^{β·return} from a (real) step on lies between its
    ``bottom`` and ``top``; their last entries are for the artificial step -1. The reward of a step has the weight
    ``factor``. ``interval`` ``(rows, 2, 4)`` has the box of each row, with an upper end of 2 where there
    is none. Problems that never have boxes have an empty vector instead, and the code of boxes is not compiled
    (:mod:`entropic_bpi.methods.kl.boxes`).
    """

    beta: float
    sign: float
    shift: float
    log_union: float
    gain: np.ndarray
    factor: np.ndarray
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
    interval: np.ndarray


@by_pointer
class Optimism(NamedTuple):
    """The optimistic plan: ``z`` ``(steps + 1, S + 1)``, ``u`` ``(steps, S, A)`` and its greedy ``policy``."""

    z: np.ndarray
    u: np.ndarray
    policy: np.ndarray


@by_pointer
class Candidate(NamedTuple):
    """A candidate's plan: pessimistic ``z``, upper end ``high`` of the box, ``rho`` and ``policy``.

    ``switch_action`` is the action that ``rho`` of a state comes from, -1 if it comes from the candidate's own action.
    """

    z: np.ndarray
    high: np.ndarray
    rho: np.ndarray
    policy: np.ndarray
    switch_action: np.ndarray


class Scratch(NamedTuple):
    """Working memory, with one layer for each part of the states that is planned separately.

    The first two rows of ``work`` belong to the balls, the last four to their boxes. ``pessimistic`` has the values of the
    actions of one state and ``bounds`` those of the gap if one is chosen, ``shared`` and ``scores`` the successors that two
    rows share.
    """

    work: np.ndarray
    pessimistic: np.ndarray
    bounds: np.ndarray
    shared: np.ndarray
    scores: np.ndarray


def new_scratch(rules: PlanConstants, n_actions: int, layers: int) -> Scratch:
    """Return working memory with so many layers."""
    work, (pessimistic, bounds) = np.empty((layers, 10, rules.widest)), np.empty((2, layers, n_actions))
    shared, scores = np.empty((layers, MAX_SHARED), dtype=np.int64), np.empty((layers, MAX_SHARED))
    return Scratch(work, pessimistic, bounds, shared, scores)


class Inputs(NamedTuple):
    """What the plan of one state reads, and one layer of its working memory."""

    frame: Frame
    rules: PlanConstants
    arrays: CountArrays
    scratch: Scratch


class Trial(NamedTuple):
    """A candidate to be planned and its ``kind``; ``twin`` is the other one, already planned if this is the ``second``."""

    optimism: Optimism
    plan: Candidate
    twin: Candidate
    kind: int
    second: bool


class PairsAsked(NamedTuple):
    """The episodes when the pair certificate was computed last, its gap, and that of the gap certificate then."""

    episodes: int
    pairs: float
    ratio: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> PairsAsked:
        """Return the record from its three numbers."""
        episodes, pairs, ratio = map(float, numbers)
        return cls(int(episodes), pairs, ratio)


NEVER_ASKED = PairsAsked(-1, np.inf, np.inf)


class EveryBegin(NamedTuple):
    """The state in which the compiled run begins that plans after every episode.

    The ``round`` and ``episodes`` so far; the candidate that was evaluated ``last``; whether the challenger of the pair
    certificate is ``remembered``, and when that was ``asked``; the episodes when boxes were tried last, -1 for never.
    """

    round: int
    episodes: int
    last: int
    remembered: bool
    asked: PairsAsked
    boxed: int


class Box(NamedTuple):
    """Bounds at the next step, by state: ``low`` and ``high`` on Z, ``rho`` on the ratio, and ``cap`` on ρZ."""

    low: np.ndarray
    high: np.ndarray
    rho: np.ndarray
    cap: np.ndarray


class Deviation(NamedTuple):
    """One action instead of another at a ``step``: the rows ``top`` over ``bottom``; ``gain`` is the ratio of e^{βr}."""

    step: int
    top: int
    bottom: int
    gain: float


@by_pointer
class Relations(NamedTuple):
    """Bounds of the pair certificate on the occupied states of one step, in their order; the last one is "elsewhere".

    ``position`` ``(S + 1)`` is the index of each state. ``d[x, y]`` bounds Z^π(x)/Z^π(y), ``r[x, y]`` bounds Z*(x)/Z^π(y)
    for β > 0 and Z^π(x)/Z*(y) for β < 0, and ``rho`` ``(S + 1)`` has the diagonal of ``r`` by state. ``switch_action``
    ``(S + 1)`` is as in :class:`Candidate`.
    """

    position: np.ndarray
    d: np.ndarray
    r: np.ndarray
    rho: np.ndarray
    switch_action: np.ndarray


@by_pointer
class PairRows(NamedTuple):
    """The rows of the occupied states of one step, ``(rows,)``, ``(rows, slots)`` or ``(rows, successors)``.

    Row ``p * A + a`` is action ``a`` of the state at position ``p``, and ``row`` that of the counts. By slot: the ends
    ``low`` and ``high`` of e^{βr}. Slots with the same successor differ by their rewards: ``number`` says which of the
    row's ``different`` successors a slot leads to. By these successors: ``position`` at the next step, and visits ``seen``.
    """

    row: np.ndarray
    low: np.ndarray
    high: np.ndarray
    number: np.ndarray
    different: np.ndarray
    position: np.ndarray
    seen: np.ndarray


class PairNoise(NamedTuple):
    """Declared noise, as in :class:`entropic_bpi.problem.noise.Balls`."""

    of_pair: np.ndarray
    refines: np.ndarray
    slot_of_label: np.ndarray
    label_of_slot: np.ndarray


@by_pointer
class PairScratch(NamedTuple):
    """Working memory of the pair certificate.

    ``box`` ``(2, S + 1)`` has the ends of one for the next step. The rest serves one pair of rows. ``known[p]`` is the
    number of position ``p`` among the base's successors, -1 if it is none. By these numbers: ``low`` and ``high`` of the
    relative value, ``rank`` among those that get corners (-1: none), and what is ``left`` when the common ``mass``
    ``(2, ..)`` of both rows is taken away. ``moved`` ``(2, 4, ..)``: for both rules, what the other row's successors are
    worth, by what goes to successors without corners and to each with. ``f`` are the values of the slots.
    """

    box: np.ndarray
    known: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rank: np.ndarray
    left: np.ndarray
    mass: np.ndarray
    moved: np.ndarray
    f: np.ndarray


class PairBuffers(NamedTuple):
    """All that the pair certificate works on: the relations of one step and the next, and memory for every step.

    ``states`` are those at each position; ``gain`` ``(states, A)`` is how many times better than the candidate's action
    another may be there (1: not at all). ``noise`` is a :class:`PairNoise`, or empty: then its code is not compiled.
    """

    now: Relations
    next: Relations
    states: np.ndarray
    gain: np.ndarray
    rows: PairRows
    scratch: PairScratch
    noise: Any


def new_pair_buffers(
    rules: PlanConstants, n_states: int, n_actions: int, occupied: int, balls: Balls | None = None
) -> PairBuffers:
    """Return buffers for at most so many ``occupied`` states at a step."""
    widest, rows = rules.widest, occupied * n_actions
    positions, switch_actions = np.zeros((2, 2, n_states + 1), dtype=np.int64)
    rho, tables = np.ones((2, n_states + 1)), np.ones((2, 2, occupied + 1, occupied + 1))
    now, next = map(Relations, positions, *tables, rho, switch_actions)
    (row, different), (number, position) = np.zeros((2, rows), np.int64), np.empty((2, rows, widest), np.int64)
    low, high, seen = np.empty((3, rows, widest))
    scratch = PairScratch(
        box=np.empty((2, n_states + 1)),
        known=np.full(occupied + 1, -1),
        low=np.empty(widest),
        high=np.empty(widest),
        rank=np.empty(widest, dtype=np.int64),
        left=np.empty(widest),
        mass=np.empty((2, widest)),
        moved=np.empty((2, 1 + MAX_SHARED, widest)),
        f=np.empty(widest),
    )
    return PairBuffers(
        now,
        next,
        np.empty(occupied, dtype=np.int64),
        np.empty((occupied, n_actions)),
        PairRows(row, low, high, number, different, position, seen),
        scratch,
        () if balls is None else PairNoise(*(getattr(balls, name) for name in PairNoise._fields)),
    )
