"""The labels of a log: which states exist, and how labels are numbered and named."""

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.logs.tables import hashable
from entropic_bpi.sources.spaces import FiniteSpace
from entropic_bpi.tools.text import shown

SEEN = "seen"
"""Of ``states=``: those of the log are all."""


class Outcomes(NamedTuple):
    """What a log saw, one entry for each different transition, in order: arrays of the same length.

    ``step`` is 0 throughout where steps are pooled. ``successor`` is ``len(log.states)`` for an end. ``line`` is the first
    line of the log that has this transition.
    """

    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    successor: np.ndarray
    reward: np.ndarray
    times: np.ndarray
    line: np.ndarray


class AllStates(NamedTuple):
    """Which states exist, as declared: the labels, and others up to ``most`` in all.

    ``seen`` says that the labels are those of the log, and that there are no others by the user's word alone.
    """

    labels: tuple[Any, ...]
    most: int | None = None
    seen: bool = False

    def numbers(self, labels: Iterable[Any]) -> list[int]:
        """The places of some of the labels."""
        return list(map(numbered(self.labels).index, labels))


def numbered(labels: tuple[Any, ...]) -> FiniteSpace:
    """Labels as the elements of a space."""
    try:
        numbers = {label: i for i, label in enumerate(labels)}
    except TypeError:
        raise InvalidProblemError(f"labels must be hashable, got {shown(labels)}") from None

    def values(label: Any) -> tuple[int]:
        return (numbers.get(hashable(label), -1),)

    return FiniteSpace([range(len(labels))], values, lambda taken: labels[next(taken)])


def names_for(observation: Any) -> Iterable[str]:
    """The names that an observation may have among the states of a log, which are named by what Python writes.

    Examples
    --------
    >>> [*names_for("shore")], [*names_for(np.int64(3))], [*names_for({"a": 1})]
    (['shore'], ['3'], ['(1,)'])
    """
    given = hashable(observation)
    yield str(given)
    if isinstance(given, float) and given.is_integer():  # labels that are all whole are integers
        yield str(int(given))


def labels_behind(names: Iterable[str]) -> list[Any]:
    """The labels of a log by their names: numbers, bytes or tuples if all of them are written so, text otherwise.

    Examples
    --------
    >>> labels_behind(["1", "2"]), labels_behind(["1", "07"]), labels_behind(["(1, 'a')"])
    ([1, 2], ['1', '07'], [(1, 'a')])
    """
    names = list(names)
    try:
        labels = [ast.literal_eval(name) for name in names]
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return names
    written = all(isinstance(label, int | float | bytes | tuple) for label in labels) and [*map(str, labels)] == names
    return labels if written else names
