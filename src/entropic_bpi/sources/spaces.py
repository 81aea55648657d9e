"""Numbers for observations and actions: finite spaces of Gymnasium, and states that are discovered during play.

A finite space is ``Discrete``, ``MultiDiscrete``, ``MultiBinary``, a ``Box`` of integers, or a ``Tuple`` or ``Dict`` of
finite spaces. An element consists of integers, each with its own range. The index of an element is the number with these
integers as digits (mixed radix, the last digit least significant).

Any other observations can also be states, if an upper bound on their number is declared: ``DiscoveredStates`` numbers them
in the order in which they are first seen. An observation is identified, also in the certificate, by its ``label``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import MOST_STATES
from entropic_bpi.tools.text import shown

END_NAME = "end"
"""The name of the state that an episode goes to when it terminates."""

_INTEGERS = (int, np.integer)
_LARGEST_EXACT = 2**53  # larger floats are not written as integers, which a float cannot represent exactly
_LONGEST_ARRAY = 32  # the largest number of elements of an array that a label lists
_SHOWN_PARTS = 3  # the largest number of differences between two observations that a message lists


# -- finite spaces ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FiniteSpace:
    """A finite space, whose elements consist of integers.

    Attributes
    ----------
    digits : list of range
        The range of each integer.
    values : function
        Returns the integers of an element. For other objects, it returns other values or raises an exception.
    build : function
        Returns a new element, whose integers it takes from an iterator.
    """

    digits: list[range]
    values: Callable[[Any], Iterable[Any]]
    build: Callable[[Iterator[int]], Any]

    @cached_property
    def size(self) -> int:
        return math.prod(digit.stop - digit.start for digit in self.digits)

    @property
    def listable(self) -> bool:
        """Whether the elements can be listed, each with a label that contains all of its integers."""
        return self.size <= MOST_STATES and len(self.digits) <= _LONGEST_ARRAY

    def index(self, element: Any) -> int:
        """Return the index of an element, and -1 for any other object."""
        flat = 0
        try:
            for value, digit in zip(self.values(element), self.digits, strict=True):
                number = int(value)
                if number != value:
                    return -1
                flat = flat * len(digit) + digit.index(number)
        except (TypeError, ValueError, OverflowError, LookupError):  # not numbers of these ranges, or not of this shape
            return -1
        return flat

    def element(self, index: int) -> Any:
        numbers = []
        for digit in reversed(self.digits):
            index, place = divmod(index, len(digit))
            numbers.append(digit[place])
        return self.build(reversed(numbers))

    def elements(self) -> Iterator[Any]:
        return map(self.element, range(self.size))

    def labels(self) -> tuple[str, ...]:
        return tuple(map(label, self.elements()))

    def __str__(self) -> str:
        size = str(self.size) if self.size < 10**15 else f"about 10^{math.log10(self.size):.0f}"
        return f"{size} elements of {len(self.digits)} integers"


def finite(space: Any) -> FiniteSpace | None:
    """Return the numbering of a space of Gymnasium, or None if it is not finite.

    Examples
    --------
    >>> from gymnasium.spaces import Dict, Discrete, MultiBinary
    >>> space = finite(Dict(door=Discrete(3, start=1), keys=MultiBinary(2)))
    >>> space.size, space.index({"door": 2, "keys": [0, 1]}), space.labels()[5]
    (12, 5, "{'door': 2, 'keys': (0, 1)}")
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return FiniteSpace([range(int(space.start), int(space.start) + int(space.n))], _one, next)
    if isinstance(space, spaces.MultiDiscrete):
        return _array_of(space, space.start, space.start + space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return _array_of(space, np.zeros(space.shape, int), np.ones(space.shape, int))
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "iub":
        return _array_of(space, space.low, space.high)
    if isinstance(space, spaces.Tuple):
        return _product(range(len(space.spaces)), space.spaces, lambda _, parts: tuple(parts))
    if isinstance(space, spaces.Dict):
        keys = sorted(space.spaces, key=label)  # the order of the keys in a label
        return _product(keys, map(space.spaces.get, keys), lambda keys, parts: dict(zip(keys, parts, strict=True)))
    return None


def listed(what: str, space: Any, remedy: str) -> FiniteSpace:
    """Return the numbering of a space; raise an error if its elements cannot be listed."""
    numbered = finite(space)
    if numbered is not None and numbered.listable:
        return numbered
    size = "does not consist of finitely many integers" if numbered is None else f"has {numbered}, too many to list"
    raise InvalidProblemError(f"the {what} space {shown(space)} {size}: {remedy}")


def _one(element: Any) -> Iterable[Any]:
    """Return the single number of an element, which some environments put into an array or a tuple."""
    return (element,) if isinstance(element, _INTEGERS) or np.ndim(element) == 0 else element


def _array_of(space: Any, low: np.ndarray, high: np.ndarray) -> FiniteSpace:
    bounds = zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)
    digits = [range(int(first), int(last) + 1) for first, last in bounds]
    shape, dtype, size = space.shape, space.dtype, len(digits)

    def values(element: Any) -> list[Any]:
        array = np.asarray(element)
        if array.shape != shape:
            raise ValueError
        return array.ravel().tolist()

    def build(numbers: Iterator[int]) -> np.ndarray:
        return np.array(list(islice(numbers, size)), dtype).reshape(shape)

    return FiniteSpace(digits, values, build)


def _product(keys: Any, spaces: Iterable[Any], join: Callable[[Any, list[Any]], Any]) -> FiniteSpace | None:
    """Return the product of spaces; an element has one part for each space, under its key. None if one is not finite."""
    known = [part for part in map(finite, spaces) if part is not None]
    if len(known) < len(keys):
        return None

    def values(element: Any) -> list[Any]:
        if len(element) != len(known):
            raise ValueError
        return [value for key, part in zip(keys, known, strict=True) for value in part.values(element[key])]

    def build(numbers: Iterator[int]) -> Any:
        return join(keys, [part.build(numbers) for part in known])

    return FiniteSpace([digit for part in known for digit in part.digits], values, build)


# -- states that are discovered during play --------------------------------------------------------------------------


class DiscoveredStates:
    """At most ``most`` states, numbered in the order in which they are first seen.

    Attributes
    ----------
    names : list of str
        The labels of the states found so far, in order; :func:`unseen` names for the rest; and :data:`END_NAME`.
    """

    def __init__(self, most: int) -> None:
        self.size = most
        self.names = [*map(unseen, range(most)), END_NAME]
        self._number: dict[str, int] = {}
        self._foreign: dict[str, Any] = {}
        self._last: Any = None

    @property
    def found(self) -> list[str]:
        return list(self._number)

    def restore(self, labels: Iterable[str]) -> None:
        """Give the states with these labels the next numbers, as in the run that discovered them."""
        for text in labels:
            if text not in self._number:  # a declared first state has a number already
                self._enter(text)

    def index(self, observation: Any) -> int:
        text = label(observation, self._foreign)
        if text not in self._number:
            self._enter(text, observation)
        return self._number[text]

    def _enter(self, text: str, observation: Any = None) -> None:
        number = len(self._number)
        if number == self.size:
            parts = "; ".join(islice(differing_parts(self._last, observation), _SHOWN_PARTS))
            differs = f" It differs from the one found before it in {parts}." if parts else ""
            raise InvalidProblemError(
                f"there are more than max_states = {self.size} different observations; one more is {text}.{differs} "
                "Declare a larger max_states in a new run, or remove irrelevant parts from the observation"
            )
        self._number[text], self.names[number], self._last = number, text, observation


def differing_parts(one: Any, other: Any, where: str = "observation") -> Iterator[str]:
    """Yield the parts in which two observations differ, each with both values: keys, positions and elements of arrays.

    Examples
    --------
    >>> list(differing_parts({"image": np.zeros(40), "door": 1}, {"image": np.eye(1, 40, 3)[0], "door": 1}))
    ["observation['image'][3]: 0.0, 1.0"]
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        for key in one:
            yield from differing_parts(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape and one.ndim:
        for place in np.argwhere(one != other).tolist():
            index = ", ".join(map(str, place))
            yield f"{where}[{index}]: {one[tuple(place)].item()!r}, {other[tuple(place)].item()!r}"
    elif isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)) and len(one) == len(other):
        for i, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differing_parts(first, second, f"{where}[{i}]")
    elif one is not None and label(one) != label(other):
        yield f"{where}: {shown(one)}, {shown(other)}"


def unseen(number: int) -> str:
    """Return the name of a state that was not discovered yet. No label begins with ``#``."""
    return f"#{number}"


def label(observation: Any, foreign: dict[str, Any] | None = None) -> str:
    """Return a text that is the same for equal observations, in every process, and differs for different ones.

    Numbers are written by their value, independently of their type; arrays and lists are written like tuples. The label of a
    long array is its type, shape and SHA-256 digest. For an object of any other class it is its ``repr``; ``foreign`` stores
    these objects, so that different objects with the same ``repr`` are an error.

    Examples
    --------
    >>> label(np.array([[1, 2]])), label({"b": 1.0, "a": "x"}), label((True, 0.5, None))
    ('((1, 2),)', "{'a': 'x', 'b': 1}", '(1, 0.5, None)')
    """
    if isinstance(observation, (bool, np.bool_, *_INTEGERS)):
        return str(int(observation))
    if isinstance(observation, (float, np.floating)):
        number = float(observation)
        return str(int(number)) if number.is_integer() and abs(number) <= _LARGEST_EXACT else repr(number)
    if observation is None:
        return "None"
    if isinstance(observation, str):
        return ascii(str.__str__(observation))
    if isinstance(observation, bytes):
        return ascii(bytes(observation))
    if isinstance(observation, np.ndarray):
        if observation.dtype.hasobject or observation.size <= _LONGEST_ARRAY:
            return label(observation.tolist(), foreign)
        digest = hashlib.sha256(np.ascontiguousarray(observation).tobytes()).hexdigest()
        return f"{observation.dtype.str}{observation.shape} {digest}"
    if isinstance(observation, (tuple, list)):
        parts = [label(part, foreign) for part in observation]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(observation, (set, frozenset)):
        return f"set({', '.join(sorted(label(part, foreign) for part in observation))})"
    if isinstance(observation, Mapping):
        items = sorted((label(key, foreign), label(value, foreign)) for key, value in observation.items())
        return f"{{{', '.join(f'{key}: {value}' for key, value in items)}}}"
    return _label_of_object(observation, foreign)


def _label_of_object(observation: Any, foreign: dict[str, Any] | None) -> str:
    text = f"{type(observation).__qualname__} {repr(observation)!a}"
    if " at 0x" in text:
        raise InvalidProblemError(
            f"an observation is {shown(observation)}, whose repr contains its address in memory instead of its value: "
            "return a number, a string, an array, or a tuple or dict of these, or define __repr__ in its class"
        )
    if foreign is not None and foreign.setdefault(text, observation) != observation:
        raise InvalidProblemError(
            f"two different observations have the same repr {shown(observation)}: define a __repr__ in their class that "
            "distinguishes them"
        )
    return text
