"""The labels of a log: the declaration of all states, and the numbers and names of labels."""

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.logs.tables import hashable
from entropic_bpi.sources.spaces import FiniteSpace
from entropic_bpi.tools.text import shown

SEEN = "seen"
"""Value of ``states=``: no states exist beyond those of the log."""


class Outcomes(NamedTuple):
    """The distinct transitions of a log, in order: arrays of the same length.

    ``step`` is 0 if steps are pooled. ``successor`` is ``len(log.states)`` at the end of an episode. ``line`` is the first
    line of the log with this transition.
    """

    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    successor: np.ndarray
    reward: np.ndarray
    times: np.ndarray
    line: np.ndarray


class AllStates(NamedTuple):
    """The declaration of all states: those with these ``labels`` and, if ``most`` is given, others up to this total number.

    ``seen`` says that the labels are those of the log, and that the user declares that no others exist.
    """

    labels: tuple[Any, ...]
    most: int | None = None
    seen: bool = False

    def numbers(self, labels: Iterable[Any]) -> list[int]:
        """Return the positions of some labels; -1 for labels that are not declared."""
        return list(map(numbered(self.labels).index, labels))


def numbered(labels: tuple[Any, ...]) -> FiniteSpace:
    """Return a space whose elements are these labels."""
    try:
        numbers = {label: i for i, label in enumerate(labels)}
    except TypeError:
        raise InvalidProblemError(f"labels must be hashable, got {shown(labels)}") from None

    def values(label: Any) -> tuple[int]:
        return (numbers.get(hashable(label), -1),)

    return FiniteSpace([range(len(labels))], values, lambda taken: labels[next(taken)])


def names_for(observation: Any) -> Iterable[str]:
    """Yield the names that an observation may have among the states of a log, whose names are their labels as text.

    Examples
    --------
    >>> [*names_for("shore")], [*names_for(np.int64(3))], [*names_for({"a": 1})]
    (['shore'], ['3'], ['(1,)'])
    """
    given = hashable(observation)
    yield str(given)
    if isinstance(given, float) and given.is_integer():  # if all labels are whole numbers, the log has integers
        yield str(int(given))


def labels_behind(names: Iterable[str]) -> list[Any]:
    """Return the labels of a log, given their names: numbers, bytes or tuples if all can be read as such, otherwise text.

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
