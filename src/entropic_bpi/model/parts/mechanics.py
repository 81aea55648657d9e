"""Known mechanics with unknown noise: the outcome of each label of a random law, in every state and for every action."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import chain, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidModelError, InvalidProblemError
from entropic_bpi.model.parts.arrays import starts_of
from entropic_bpi.tools.text import shown
from entropic_bpi.types import END, Integers

_Number = Callable[[Any], int]  # returns the number of a state, and a negative number for any other object
NOISE_FIELDS = ("noise_labels", "noise_sizes", "noise_law", "noise_following")  # in model files
ONE_LAW = ""
"""The name of the law if there is only one."""


class Mechanics(NamedTuple):
    """The declared noise, by state-action pair ``s * A + a``.

    Attributes
    ----------
    labels : tuple of tuple of str
        The labels of each law.
    law : int array ``(S * A,)``
        The law from which a label is drawn at every visit of the pair.
    classes : int array
        The slot of the pair that each label leads to, for the labels of the law of each pair, one pair after another.
    observed : bool
        Whether the label of every visit is observed, and not only its outcome.
    """

    labels: tuple[tuple[str, ...], ...]
    law: Integers
    classes: Integers
    observed: bool = False


class Partitioned(NamedTuple):
    """Mechanics, the distinct outcomes of each pair as compressed ``rows``, and their ``rewards`` (NaN if unknown)."""

    mechanics: Mechanics
    rows: tuple[np.ndarray, np.ndarray]
    rewards: np.ndarray


class OutcomeTable(NamedTuple):
    """The outcome of each label: ``law`` ``(S * A,)``, next states and rewards ``(S * A, largest number of labels)``.

    ``following`` has the numbers of the next states, and -1 beyond the labels of the pair's law. ``rewards`` is NaN where no
    reward is given.
    """

    labels: tuple[tuple[str, ...], ...]
    law: np.ndarray
    following: np.ndarray
    rewards: np.ndarray

    def partition(self) -> Partitioned:
        """Put labels with the same outcome (next state and reward) into one class; the outcomes of a pair are sorted."""
        pair, label = np.nonzero(self._filled())
        paid = self.rewards[pair, label]
        outcomes = np.stack([pair, self.following[pair, label], np.where(np.isnan(paid), math.inf, paid)], axis=1)
        slots, slot = np.unique(outcomes, axis=0, return_inverse=True)
        ends = starts_of(np.bincount(slots[:, 0].astype(np.int64), minlength=len(self.law)))
        mechanics = Mechanics(self.labels, self.law, slot.reshape(-1) - ends[pair])
        rewards = np.where(slots[:, 2] == math.inf, math.nan, slots[:, 2])
        return Partitioned(mechanics, (ends, slots[:, 1].astype(np.int64)), rewards)

    def with_end(self, n_states: int, n_actions: int) -> "OutcomeTable":
        """Return the table with one more state, the end, which no action and no label leaves."""
        width = self.following.shape[1]
        ends = np.where(np.arange(width) < len(self.labels[0]), n_states, -1)
        return self._replace(
            law=np.append(self.law, np.zeros(n_actions, dtype=np.int64)),
            following=np.concatenate([self.following, np.tile(ends, (n_actions, 1))]),
            rewards=np.concatenate([self.rewards, np.zeros((n_actions, width))]),
        )

    def _filled(self) -> np.ndarray:
        """Return a mask of the entries that belong to a label of the pair's law."""
        sizes = np.array([len(labels) for labels in self.labels])
        return np.arange(self.following.shape[1]) < sizes[self.law][:, None]


def read_labels(labels: Any) -> dict[Any, list[Any]]:
    """Return the labels of each law by its name; a sequence is for a single law."""
    laws = {ONE_LAW: labels} if not isinstance(labels, Mapping) else dict(labels)
    for name, given in laws.items():
        if isinstance(given, str) or not isinstance(given, Iterable) or not (listed := list(given)):
            raise InvalidProblemError(f"the labels of a law must be a sequence that is not empty, got {shown(given)}")
        if not all(isinstance(label, Hashable) for label in listed) or len(set(map(str, listed))) < len(listed):
            raise InvalidProblemError(f"the labels of a law must be hashable and distinct, got {shown(given)}")
        laws[name] = listed
    if not laws:
        raise InvalidProblemError("labels must name at least one law")
    return laws


def read_outcomes(
    states: Iterable[Any], actions: Iterable[Any], laws: dict[Any, list[Any]], outcome: Any, law: Any, number: _Number
) -> OutcomeTable:
    """Return the outcome of every state, action and label.

    ``outcome`` and ``law`` are functions or tables. ``number`` returns the number of a state, and a negative number for any
    other object. The message of an error names the state, action and label.
    """
    names, sizes = list(laws), [len(labels) for labels in laws.values()]
    if law is None and len(laws) > 1:
        raise InvalidProblemError(f"there are {len(laws)} laws: law= must name the law of each state and action")
    pairs = list(product(states, actions))
    chosen = np.zeros(len(pairs), dtype=np.int64)
    following, rewards = np.full((len(pairs), max(sizes)), -1), np.full((len(pairs), max(sizes)), math.nan)
    for i, pair in enumerate(pairs):
        name = names[0] if law is None else _ask("law", law, pair)
        if name not in names:
            raise InvalidProblemError(f"the law of {shown(pair)} is {shown(name)}, expected one of {shown(names)}")
        chosen[i] = names.index(name)
        for w, label in enumerate(laws[name]):
            key = (*pair, label)
            following[i, w], rewards[i, w] = _read_outcome(_ask("outcome", outcome, key), number, key)
    return OutcomeTable(tuple(tuple(map(str, labels)) for labels in laws.values()), chosen, following, rewards)


def _ask(name: str, source: Any, key: tuple[Any, ...]) -> Any:
    """Return the entry of a table, or the result of a function."""
    try:
        return source[key] if isinstance(source, Mapping) else source(*key)
    except Exception as error:
        reason = "is not listed" if isinstance(source, Mapping) else f"raised {type(error).__name__}: {error}"
        raise InvalidProblemError(f"the {name} of {shown(key)} {reason}") from error


def _read_outcome(value: Any, number: _Number, key: tuple[Any, ...]) -> tuple[int, float]:
    """Return the next state and the reward: ``value`` is a next state itself or, if it is none, a pair of both."""
    readings = [(value, math.nan)]
    if isinstance(value, (tuple, list)) and len(value) == 2:
        readings.append((value[0], value[1]))
    for state, reward in readings:
        try:
            successor, paid = number(state), float(reward)
        except (TypeError, ValueError):
            continue
        if successor >= 0 and (state is value or math.isfinite(paid)):
            return successor, paid
    expected = "a next state, or (next state, reward) with a finite reward"
    raise InvalidProblemError(f"the outcome of {shown(key)} is {shown(value)}, expected {expected}")


def arrays_of_noise(
    states: list[Any], actions: list[Any], labels: Any, probabilities: Any, outcome: Any, law: Any
) -> tuple[OutcomeTable, np.ndarray, np.ndarray, list[str]]:
    """Return the outcomes, transitions ``(S, A, S)``, rewards and state names of a model that is defined by its noise.

    If an outcome is the end, the model has one more state for it, which is absorbing and has reward 0.
    """
    try:
        numbers = {state: i for i, state in enumerate(states)} | {END: len(states)}
        laws = read_labels(labels)
        table = read_outcomes(states, actions, laws, outcome, law, lambda state: numbers.get(state, -1))
    except InvalidProblemError as error:
        raise InvalidModelError(str(error)) from None
    except TypeError:
        raise InvalidModelError(f"states must be hashable, got {shown(states)}") from None
    names, many = list(map(str, states)), len(actions)
    if (table.following == len(states)).any():
        names.append("end")
        table = table.with_end(len(states), many)
    given = probabilities if isinstance(probabilities, Mapping) else dict.fromkeys(laws, probabilities)
    chances = np.zeros((len(laws), table.following.shape[1]))
    for i, (name, listed) in enumerate(laws.items()):
        try:
            chance = np.asarray(given.get(name, ()), dtype=float)
        except (TypeError, ValueError):
            chance = np.empty(0)
        if chance.shape != (len(listed),) or not (chance >= 0).all() or abs(chance.sum() - 1) > 1e-9:
            of = f" of law {name!r}" if len(laws) > 1 else ""
            raise InvalidModelError(f"probabilities{of} must be {len(listed)} non-negative numbers that add up to 1")
        chances[i, : len(listed)] = chance / chance.sum()
    shape = (len(names) * many, len(names))
    transitions, low, high = np.zeros(shape), np.full(shape, math.inf), np.full(shape, -math.inf)
    pair, label = np.nonzero(table._filled())
    entry, paid = (pair, table.following[pair, label]), np.nan_to_num(table.rewards[pair, label])
    np.add.at(transitions, entry, chances[table.law[pair], label])
    np.minimum.at(low, entry, paid)
    np.maximum.at(high, entry, paid)
    if (low < high).any():
        i, y = np.argwhere(low < high)[0]
        raise InvalidModelError(
            f"state {names[i // many]!r}, action {actions[i % many]!r} leads to state {names[y]!r} with rewards "
            f"{low[i, y]:g} and {high[i, y]:g}: the reward of a FiniteMDP is determined by state, action and next "
            "state, so add what determines the reward to the state"
        )
    if (low.min(axis=1) == high.max(axis=1)).all():
        rewards = low.min(axis=1).reshape(-1, many)
    else:
        rewards = np.where(high < low, 0.0, low).reshape(-1, many, len(names))
    return table, transitions.reshape(-1, many, len(names)), rewards, names


def fields_of(table: OutcomeTable) -> dict[str, Any]:
    """Return the fields of a model file that hold the outcomes; the rewards are those of the model."""
    sizes = np.array([len(labels) for labels in table.labels])
    return dict(zip(NOISE_FIELDS, (list(chain(*table.labels)), sizes, table.law, table.following), strict=True))


def table_of_fields(fields: Mapping[str, Any], n_states: int, n_actions: int) -> OutcomeTable | None:
    """Return the checked outcomes from these fields of a model file; None if the file has none."""
    if NOISE_FIELDS[0] not in fields:
        return None
    try:
        names, sizes, law, following = (fields[name] for name in NOISE_FIELDS)
        ends = starts_of(sizes)
        labels = tuple(tuple(names[begin:end]) for begin, end in pairwise(ends))
        rewards = np.full(following.shape, math.nan)
        table = OutcomeTable(labels, law.astype(np.int64), following.astype(np.int64), rewards)
        sound = len(names) == ends[-1] and min(sizes) > 0 and following.shape == (n_states * n_actions, max(sizes))
        sound &= law.dtype.kind in "iu" and following.dtype.kind in "iu"
        sound &= law.shape == (n_states * n_actions,) and (law >= 0).all() and (following >= -1).all()
        sound &= np.array_equal(table._filled(), (following >= 0) & (following < n_states))
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise InvalidModelError(f"the fields {', '.join(NOISE_FIELDS)} are inconsistent")
    return table
