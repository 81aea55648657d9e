"""Transitions of a model one by one, as text files of other programs have them.

A reader adds each transition with its line to :class:`Entries`, which checks them all and makes a model of them; whatever is
wrong is an error with the file and the line. A writer gets the transitions of a model from :func:`entries_of_model`.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.parts.arrays import SUM_TOLERANCE, starts_of
from entropic_bpi.tools.text import printable, shown

if TYPE_CHECKING:
    from entropic_bpi.model.mdp import FiniteMDP

_LARGEST_NUMBER = 2**31 - 1
# A model has a row for each state and action, also where a file has none.
_MOST_PAIRS = 2**28
_FRACTION = re.compile(r"(\d{1,300})/(\d{1,300})", re.ASCII)


class Entry(NamedTuple):
    """One possible transition of a model."""

    state: int
    action: int
    successor: int
    probability: float
    reward: float


# -- reading ----------------------------------------------------------------------------------------------------------


def fault(path: Path, line: int, words: str) -> InvalidModelError:
    return InvalidModelError(f"{path}, line {line}: {words}")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, each with its number."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if text := line.strip():
                yield number, text


def integer(path: Path, line: int, what: str, text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not 0 <= value <= _LARGEST_NUMBER:
        raise fault(path, line, f"{what} must be an integer of at least 0, got {shown(text)}")
    return value


def real(path: Path, line: int, what: str, text: str) -> float:
    """Return a decimal number or a fraction such as 1/3."""
    fraction = _FRACTION.fullmatch(text)
    try:
        value = int(fraction[1]) / int(fraction[2]) if fraction else float(text) if "_" not in text else np.nan
    except (ValueError, ArithmeticError):
        value = np.nan
    if not np.isfinite(value):
        raise fault(path, line, f"{what} must be a finite number, got {shown(text)}")
    return value


class Entries:
    """The transitions of a file.

    Actions are given by name. If the names are consecutive numbers they are the numbers of the actions, otherwise actions
    are numbered in the order in which their names appear.
    """

    def __init__(self, path: Path, *, first: Sequence[int] = (0,)) -> None:
        self.path = path
        self._first = first  # numbers that the first state, and the first action, may have
        self._integers, self._reals = array("q"), array("d")
        self._actions: dict[str, int] = {}

    def add(self, line: int, state: int, action: str, successor: int, probability: float, reward: float) -> None:
        if not 0 <= probability <= 1 + SUM_TOLERANCE:
            raise fault(self.path, line, f"the probability must lie between 0 and 1, got {probability:g}")
        self._integers.extend((line, state, self._actions.setdefault(action, len(self._actions)), successor))
        self._reals.extend((probability, reward))

    def fields(self) -> dict[str, Any]:
        """Return what defines the model, except horizon and start."""
        line, state, action, successor = np.array(self._integers).reshape(-1, 4).T
        probability, reward = np.array(self._reals).reshape(-1, 2).T
        if not line.size:
            raise InvalidModelError(f"{self.path} has no transitions")
        fields: dict[str, Any] = {}
        n_actions = len(self._actions)
        base = next((b for b in self._first if all(str(b + i) in self._actions for i in range(n_actions))), None)
        if base is None:
            fields["action_names"] = list(self._actions)
        else:
            action = np.array([int(name) for name in self._actions])[action] - base
        base = self._first_state(line, state, successor)
        state, successor = state - base, successor - base
        n_states = int(max(state.max(), successor.max())) + 1
        if n_states * n_actions > _MOST_PAIRS:
            raise InvalidModelError(f"{self.path} has {n_states} states and {n_actions} actions, which is too many")
        kept = np.flatnonzero(probability > 0)
        kept = kept[np.lexsort((successor[kept], state[kept] * n_actions + action[kept]))]
        line, row, successor = line[kept], (state * n_actions + action)[kept], successor[kept]
        probability, reward = probability[kept], reward[kept]
        first = self._first_of_each(line, row, successor, reward)
        probability = np.add.reduceat(probability, first)
        line, row, successor, reward = line[first], row[first], successor[first], reward[first]
        lengths = np.bincount(row, minlength=n_states * n_actions)
        self._check_rows(line, row, probability)
        self._check_states(lengths.reshape(n_states, n_actions), base)
        fields |= {"indptr": starts_of(lengths), "indices": successor, "probabilities": probability}
        fields |= {"sizes": np.array([n_states, n_actions])} | _rewards_of_rows(row, reward, n_states, n_actions)
        allowed = lengths.reshape(n_states, n_actions) > 0
        return fields if allowed.all() else fields | {"allowed": allowed}

    def _first_state(self, line: np.ndarray, *states: np.ndarray) -> int:
        """The number of the first state; from there on there must be no gaps."""
        found = np.unique(np.concatenate(states))
        gaps = np.flatnonzero(np.diff(found) > 1)
        if found[0] in self._first and not gaps.size:
            return int(found[0])
        number = found[gaps[0] + 1] if found[0] in self._first else found[0]
        first = " or ".join(map(str, self._first))
        raise fault(
            self.path,
            int(line[np.any([each == number for each in states], axis=0)][0]),
            f"state {number} is used, but there is no state {number - 1}: states are numbered from {first} without gaps",
        )

    def _first_of_each(
        self, line: np.ndarray, row: np.ndarray, successor: np.ndarray, reward: np.ndarray
    ) -> np.ndarray:
        """The first entry of each transition; those that repeat it must have the same reward."""
        repeats = np.concatenate([[False], (np.diff(row) == 0) & (np.diff(successor) == 0)])
        other = np.flatnonzero(repeats[1:] & (np.diff(reward) != 0))
        if other.size:
            one, two = sorted((int(line[other[0]]), int(line[other[0] + 1])))
            raise fault(
                self.path,
                two,
                f"the transition of line {one} again, with another reward: a reward is a function of state, action and "
                "next state; use a further state for the other reward",
            )
        return np.flatnonzero(~repeats)

    def _check_rows(self, line: np.ndarray, row: np.ndarray, probability: np.ndarray) -> None:
        begins = np.flatnonzero(np.diff(row, prepend=-1))
        sums = np.add.reduceat(probability, begins) if row.size else np.empty(0)
        off = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
        if off.size:
            at = begins[off[0]]
            words = f"the probabilities of this state and action sum to {sums[off[0]]:.10g}, expected 1"
            raise fault(self.path, int(line[at]), words)

    def _check_states(self, lengths: np.ndarray, first: int) -> None:
        without = np.flatnonzero(lengths.sum(axis=1) == 0)
        if without.size:
            raise InvalidModelError(
                f"{self.path}: state {without[0] + first} has no transition; if it ends an episode, add one to "
                "itself with probability 1 and reward 0"
            )


def _rewards_of_rows(row: np.ndarray, reward: np.ndarray, n_states: int, n_actions: int) -> dict[str, Any]:
    """The rewards ``(S, A)`` or, where the next state matters, those of the entries."""
    table = np.zeros(n_states * n_actions)
    table[row] = reward
    if (table[row] == reward).all():
        return {"rewards": table.reshape(n_states, n_actions)}
    return {"entry_rewards": reward[None]}


def action_name(label: str, choice: int, own: dict[str, int]) -> str:
    """Return a name for a choice of a state: its label, with its number if another choice in ``own`` has the label."""
    name = label or str(choice)
    return name if own.setdefault(name, choice) == choice else f"{name} {choice}"


def choose_reward(path: Path, names: Sequence[str], reward: str | None) -> int:
    """Return which of several rewards is used: the one that is named, or the only one."""
    if reward is None and len(names) == 1:
        return 0
    if reward is None or reward not in names:
        given = "" if reward is None else f"no reward {shown(reward)}, but "
        has = f"the rewards {', '.join(names)}: give reward= one of them" if names else "no rewards"
        raise InvalidModelError(f"{path} has {given}{has}")
    return names.index(reward)


def names_of_states(labels: Mapping[int, Sequence[str]], n_states: int) -> list[str] | None:
    """Return a name for each state from its labels, with its number where others have the same labels; None without any."""
    if not labels:
        return None
    texts = [", ".join(dict.fromkeys(labels.get(s, ()))) for s in range(n_states)]
    times = Counter(texts)
    names = [f"{s} {text}" if text and times[text] > 1 else text or str(s) for s, text in enumerate(texts)]
    if len(set(names)) == n_states:
        return names
    return [f"{s} {text}" if text else str(s) for s, text in enumerate(texts)]


# -- writing ----------------------------------------------------------------------------------------------------------


def entries_of_model(path: Path, mdp: FiniteMDP) -> Iterator[Entry]:
    """Yield the transitions of the allowed actions of a model that is the same at every step."""
    if mdp.rewards is None:
        one_reward = mdp.rows.rewards is not None and len(mdp.rows.rewards) == 1
    else:
        one_reward = mdp.rewards.ndim == (3 if mdp.next_state_rewards else 2)
    if not (mdp.stationary and one_reward and (mdp.allowed is None or mdp.allowed.ndim == 2)):
        raise InvalidModelError(
            f"cannot save to {path}: the model is not the same at every step, which only .npz and .json can hold"
        )
    rows = mdp.step_rows(0)
    allowed = np.ones((mdp.n_states, mdp.n_actions), dtype=bool) if mdp.allowed is None else mdp.allowed
    for row in np.flatnonzero(allowed):
        state, action = divmod(int(row), mdp.n_actions)
        for entry in range(rows.indptr[row], rows.indptr[row + 1]):
            reward = mdp.step_rewards(0)[state, action] if rows.rewards is None else rows.rewards[entry]
            yield Entry(state, action, int(rows.indices[entry]), float(rows.probabilities[entry]), float(reward))


def check_target(path: Path, mdp: FiniteMDP) -> None:
    """Refuse a distribution of the first state, for formats that have initial states."""
    if not isinstance(mdp.start, int):
        raise InvalidModelError(f"cannot save to {path}: the format has no distribution of the first state")


def word(name: str) -> str:
    """Return a name as one word without quotes, for formats whose labels are words."""
    return re.sub(r'[\s"\[\]{}]+', "_", printable(name))
