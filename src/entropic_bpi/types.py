"""The words that all parts of the library share. This module imports nothing of the rest."""

from __future__ import annotations

import math
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

# Arrays in what is written to files, with the type of their numbers.
Integers = Annotated[np.ndarray, int]
Reals = Annotated[np.ndarray, float]


class _Ending(Enum):
    """Where successors of an environment are declared: the end of the episode may follow."""

    END = "END"

    def __repr__(self) -> str:
        return "END"


END: Final = _Ending.END


class Summarised:
    """A result that notebooks show by its summary."""

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.summary_html(self)


class Goal(NamedTuple):
    """The target of a run: accuracy ``eps`` with probability ``1 - delta`` for a ``risk``, in the reward's units."""

    risk: Any
    eps: float
    delta: float


class Bounds(NamedTuple):
    """A claim about one policy: ``lower`` ≤ V^π, V* ≤ ``upper`` and V* - V^π ≤ ``gap``; infinite ones say nothing.

    Numbers or, for the successive plans of a run, arrays of them.
    """

    lower: Any
    upper: Any
    gap: Any

    def reached(self, goal: Goal) -> bool:
        """Whether the policy is certified to be ε-optimal: the test that ends a run. A NaN never is."""
        return bool(self.gap <= goal.eps)

    @property
    def certified(self) -> Bounds:
        """The same with the gap that the interval certifies, where that is smaller than the method's own."""
        width = self.upper - self.lower
        return self._replace(gap=min(self.gap, width)) if math.isfinite(self.lower) else self


# What a gap may come from: the gap certificate, the pair certificate, or the first of these on parts of the balls, of which
# some may be empty.
RATIO, PAIRS, BOXES, EMPTY = "ratio", "pairs", "boxes", "empty"


class Cut(NamedTuple):
    """Two parts of the kernels: an ``event`` of a ``law`` has a probability of at most ``at``, or of at least that.

    Of declared noise they are numbers of a law and its labels, otherwise those of a row and its next states.
    """

    law: int
    event: tuple[int, ...]
    at: float


class Claim(NamedTuple):
    """The bounds that a certificate states, and the ``test`` that its gap comes from, where a method has several.

    Of ``"boxes"`` the tree of ``cuts`` in preorder: the part with the smaller probability first, and for each leaf
    ``"ratio"`` or ``"empty"``.
    """

    lower: float
    upper: float
    gap: float
    test: str | None
    cuts: tuple[Cut | str, ...] | None = None


class Cell(NamedTuple):
    """A part of the λ over which the entropic value at risk is a supremum, and how it is covered.

    Attributes
    ----------
    lam : float
        Bounds of the values at β = -λ, for this λ, speak for the whole cell.
    until : float
        Where the cell ends and the next one begins; infinite for the last.
    test : str or None
        What the gap at this λ comes from; None where the values alone decide.
    """

    lam: float
    until: float
    test: str | None


class EVaRClaim(NamedTuple):
    """The bounds that a certificate of the entropic value at risk states, and the cells that they come from."""

    lower: float
    upper: float
    gap: float
    cells: tuple[Cell, ...]


class Behaviour(NamedTuple):
    """What to play: arrays ``(steps, S)`` of actions; ``switch_action`` is -1 where the lead goes on.

    Follow ``lead`` until the first step and state for which ``switch_action`` names an action, play it, and follow
    ``greedy`` from there on; or, unless ``leading``, follow ``greedy`` from the start.
    """

    greedy: np.ndarray
    lead: np.ndarray
    switch_action: np.ndarray
    leading: bool


class Plan(NamedTuple):
    """What a method makes of its counts: a candidate, what is certified about it, and what to play next.

    Attributes
    ----------
    policy : int array ``(steps, S)``
        The candidate, the artificial first step of a random start included.
    bounds : Bounds
        Of the candidate.
    behaviour : Behaviour
    """

    policy: np.ndarray
    bounds: Bounds
    behaviour: Behaviour


class Evidence(NamedTuple):
    """What the episodes of an environment say about what is assumed of it; see :mod:`entropic_bpi.runs.verdicts`.

    Attributes
    ----------
    stationary : float or None
        Logarithm of the e-value against one law at every step; None where that is not assumed.
    memoryless : float
        The same against a law that does not depend on the previous state.
    unchanging : float or None
        The same against a law that does not change over the episodes.
    returns : float or None
        The returns of the episodes alone show that V* is at least this; None where that was found for another β.
    """

    stationary: float | None
    memoryless: float
    unchanging: float | None
    returns: float | None


class Transitions(NamedTuple):
    """Observed transitions: ``times[i]`` visits of row ``rows[i]`` that went to ``successors[i]``.

    Where rewards are learned, each of them paid something from ``rewards[i]`` to ``upper[i]``: of rewards that are known
    exactly the two are equal, and ``upper`` may be empty if all are. Where rewards are known before, both are empty. Where
    declared noise is observed, ``labels`` has how often each label was drawn, law after law; elsewhere it is empty.
    """

    rows: Integers
    successors: Integers
    times: Integers
    rewards: Reals = np.empty(0)
    upper: Reals = np.empty(0)
    labels: Integers = np.empty(0, dtype=np.int64)
