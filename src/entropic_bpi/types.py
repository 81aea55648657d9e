"""The data types that all parts of the library share. This module imports no other module of the library."""

from __future__ import annotations

import math
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple, NoReturn

import numpy as np

# Types of array fields in objects that are written to files; the annotation is the type of the elements.
Integers = Annotated[np.ndarray, int]
Reals = Annotated[np.ndarray, float]


class _Ending(Enum):
    """The end of the episode, as a possible successor in declarations about an environment."""

    END = "END"

    def __repr__(self) -> str:
        return "END"


END: Final = _Ending.END


# Attributes that had another name.
_RENAMED = {"turn": "switch_action", "fall": "gap_reduction", "needed": "visits_needed", "pilot": "trial"}


def with_renamed_attributes(cls: Any) -> Any:
    """Make a class state the new name of an attribute in the error of the old one."""

    def refuse(self: Any, name: str) -> NoReturn:
        new = _RENAMED.get(name, name)
        advice = f"is now {cls.__name__}.{new}" if new != name and hasattr(self, new) else "does not exist"
        raise AttributeError(f"{cls.__name__}.{name} {advice}")

    cls.__getattr__ = refuse
    return cls


class Summarised:
    """Base class of results that notebooks display as an HTML summary."""

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.summary_html(self)


class Goal(NamedTuple):
    """The target of a run: accuracy ``eps`` with probability ``1 - delta`` for a ``risk``, in the reward's units."""

    risk: Any
    eps: float
    delta: float


class Bounds(NamedTuple):
    """A claim about one policy: ``lower`` ≤ V^π, V* ≤ ``upper`` and V* - V^π ≤ ``gap``.

    An infinite bound makes no claim. The fields are numbers or, for the successive plans of a run, arrays.
    """

    lower: Any
    upper: Any
    gap: Any

    def reached(self, goal: Goal) -> bool:
        """Return whether the policy is certified to be ε-optimal, which ends a run. False if ``gap`` is NaN."""
        return bool(self.gap <= goal.eps)

    @property
    def certified(self) -> Bounds:
        """These bounds, with ``upper - lower`` as the gap if that is smaller than the method's own gap."""
        width = self.upper - self.lower
        return self._replace(gap=min(self.gap, width)) if math.isfinite(self.lower) else self


# The test that a gap comes from: the gap certificate, the pair certificate, or the gap certificate on each part of the
# confidence balls, of which some may be empty.
RATIO, PAIRS, BOXES, EMPTY = "ratio", "pairs", "boxes", "empty"


class Cut(NamedTuple):
    """A cut of the set of kernels into two parts: the ``event`` has a probability of at most ``at``, or of at least ``at``.

    With declared noise, ``law`` is the number of a law and ``event`` lists labels. Otherwise ``law`` is the number of a row
    and ``event`` lists next states.
    """

    law: int
    event: tuple[int, ...]
    at: float


class Cell(NamedTuple):
    """An interval of λ, and the bounds that cover it. The entropic value at risk is a supremum over all λ.

    Attributes
    ----------
    lam : float
        The bounds of the values at β = -λ, for this λ, hold for the whole interval.
    until : float or None
        The end of the interval, where the next one begins; None for the last interval, which is unbounded.
    test : str or None
        The test that the gap at this λ comes from; None if the values alone decide.
    """

    lam: float
    until: float | None
    test: str | None


class Claim(NamedTuple):
    """The bounds that a certificate states, and the ``test`` that its gap comes from, if the method has several.

    For the test ``"boxes"``, ``cuts`` is the tree of cuts in preorder: the part with the smaller probability first, and
    ``"ratio"`` or ``"empty"`` for each leaf. For the entropic value at risk, ``cells`` are the intervals of λ that the
    bounds come from.
    """

    lower: float
    upper: float
    gap: float
    test: str | None = None
    cuts: tuple[Cut | str, ...] | None = None
    cells: tuple[Cell, ...] | None = None


@with_renamed_attributes
class Behaviour(NamedTuple):
    """The policy to play next: arrays ``(steps, S)`` of actions; ``switch_action`` is -1 where ``lead`` continues.

    If ``leading``, follow ``lead`` until the first step and state at which ``switch_action`` is not -1, play that action,
    and follow ``greedy`` afterwards. Otherwise follow ``greedy`` from the start.
    """

    greedy: np.ndarray
    lead: np.ndarray
    switch_action: np.ndarray
    leading: bool


class Plan(NamedTuple):
    """The result of a method for given counts: a candidate policy, its bounds, and the policy to play next.

    Attributes
    ----------
    policy : int array ``(steps, S)``
        The candidate policy; with a random start, the first step is the artificial one that draws the first state.
    bounds : Bounds
        The bounds certified for the candidate.
    behaviour : Behaviour
        The policy to play next.
    """

    policy: np.ndarray
    bounds: Bounds
    behaviour: Behaviour


class Evidence(NamedTuple):
    """The evidence of the episodes against the assumptions about an environment; see :mod:`entropic_bpi.runs.verdicts`.

    Attributes
    ----------
    stationary : float or None
        Logarithm of the e-value against the assumption that the law is the same at every step; None if that is not assumed.
    memoryless : float
        Logarithm of the e-value against the assumption that the law does not depend on the previous state.
    unchanging : float or None
        Logarithm of the e-value against the assumption that the law does not change over the episodes.
    returns : float or None
        A lower bound on V* from the returns of the episodes alone; None if it was computed for another β.
    """

    stationary: float | None
    memoryless: float
    unchanging: float | None
    returns: float | None


class Transitions(NamedTuple):
    """Observed transitions: ``times[i]`` visits of row ``rows[i]`` that went to ``successors[i]``.

    If rewards are learned, each of these visits paid a reward from ``rewards[i]`` to ``upper[i]``. The two are equal for
    rewards that were observed exactly, and ``upper`` may be empty if all were. If rewards are known in advance, both arrays
    are empty. If the labels of declared noise are observed, ``labels`` counts how often each label was drawn, law after law;
    otherwise it is empty.
    """

    rows: Integers
    successors: Integers
    times: Integers
    rewards: Reals = np.empty(0)
    upper: Reals = np.empty(0)
    labels: Integers = np.empty(0, dtype=np.int64)
