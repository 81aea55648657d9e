"""Lists of transitions, the form of models in text files of other programs.

A reader iterates over the :class:`Lines` of a file and adds each transition to :class:`Entries`, which checks them and
returns the fields of a model. Errors name the file and the line. A writer gets the transitions of a model from
:func:`entries_of_model`.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SUM_TOLERANCE, starts_of
from entropic_bpi.tools.text import printable, shown

INITIAL = "init"
"""The label of an initial state."""
_LARGEST_NUMBER = 2**31 - 1
# The largest number of state-action pairs: a model has a row for each pair, also for those that a file does not list.
_MOST_PAIRS = 2**28
_FRACTION = re.compile(r"(\d{1,300})/(\d{1,300})", re.ASCII)

Entry = tuple[int, int, int, float, float]
"""A possible transition: state, action, next state, probability, reward."""


# -- reading ----------------------------------------------------------------------------------------------------------


class Lines(Iterator[str]):
    """An iterator over the lines of a text file, without those that are empty or begin with ``comment``.

    Attributes
    ----------
    path : Path
    line : int
        The number of the line that was read last; errors name it.
    """

    def __init__(self, path: Path, comment: str = "\n") -> None:
        self.path, self.line = path, 1
        self._texts = self._read(comment)

    def _read(self, comment: str) -> Iterator[str]:
        with self.path.open(encoding="utf-8-sig") as file:
            for self.line, line in enumerate(file, 1):
                if (text := line.strip()) and not text.startswith(comment):
                    yield text

    def __next__(self) -> str:
        return next(self._texts)

    def fault(self, words: str, line: int | None = None) -> InvalidModelError:
        return InvalidModelError(f"{self.path}, line {self.line if line is None else line}: {words}")

    def integer(self, what: str, text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
        if not 0 <= value <= _LARGEST_NUMBER:
            raise self.fault(f"{what} must be an integer of at least 0, got {shown(text)}")
        return value

    def real(self, what: str, text: str) -> float:
        """Return a decimal number or a fraction such as 1/3."""
        fraction = _FRACTION.fullmatch(text)
        try:
            value = int(fraction[1]) / int(fraction[2]) if fraction else float(text) if "_" not in text else np.nan
        except (ValueError, ArithmeticError):
            value = np.nan
        if not np.isfinite(value):
            raise self.fault(f"{what} must be a finite number, got {shown(text)}")
        return value


class Entries:
    """The transitions of a file.

    Actions are given by name. If the names are consecutive numbers they are the numbers of the actions, otherwise actions
    are numbered in the order in which their names appear.
    """

    def __init__(self, lines: Lines, *, first: Sequence[int] = (0,)) -> None:
        self._lines = lines
        self._first = first  # the possible numbers of the first state and of the first action
        self._integers, self._reals = array("q"), array("d")
        self._actions: dict[str, int] = {}

    def add(self, state: int, action: str, successor: int, probability: float, reward: float) -> None:
        """Add the transition of the line that was read last."""
        if not 0 <= probability <= 1 + SUM_TOLERANCE:
            raise self._lines.fault(f"the probability must lie between 0 and 1, got {probability:g}")
        number = self._actions.setdefault(action, len(self._actions))
        self._integers.extend((self._lines.line, state, number, successor))
        self._reals.extend((probability, reward))

    def fields(self) -> dict[str, Any]:
        """Return the fields that define the model, except horizon and start."""
        path, n_actions = self._lines.path, len(self._actions)
        line, state, action, successor = np.array(self._integers).reshape(-1, 4).T
        probability, reward = np.array(self._reals).reshape(-1, 2).T
        if not line.size:
            raise InvalidModelError(f"{path} has no transitions")
        fields: dict[str, Any] = {"action_names": list(self._actions)}
        base = next((b for b in self._first if all(str(b + i) in self._actions for i in range(n_actions))), None)
        if base is not None:
            action = np.array([int(name) for name in fields.pop("action_names")])[action] - base
        base = self._first_state(line, state, successor)
        state, successor = state - base, successor - base
        n_states = int(max(state.max(), successor.max())) + 1
        size = (n_states, n_actions)
        if n_states * n_actions > _MOST_PAIRS:
            raise InvalidModelError(f"{path} has {n_states} states and {n_actions} actions, which is too many")
        kept = probability > 0
        keys, line, probability, reward = (
            column[kept] for column in ((state * n_actions + action) * n_states + successor, line, probability, reward)
        )
        different, first, which = np.unique(keys, return_index=True, return_inverse=True)
        for other in np.flatnonzero(reward != reward[first][which])[:1]:
            words = f"repeats line {line[first[which[other]]]} with another reward: use a separate next state for each"
            raise self._lines.fault(words, line[other])
        line, reward, probability = line[first], reward[first], np.bincount(which, probability)
        row, successor = np.divmod(different, n_states)
        lengths, sums = (np.bincount(row, weights, n_states * n_actions) for weights in (None, probability))
        for off in np.flatnonzero((lengths > 0) & (np.abs(sums - 1) > SUM_TOLERANCE))[:1]:
            words = f"the probabilities of this state and action sum to {sums[off]:.10g}, expected 1"
            raise self._lines.fault(words, line[np.searchsorted(row, off)])
        allowed = (lengths > 0).reshape(size)
        for without in np.flatnonzero(~allowed.any(axis=1))[:1]:
            words = "has no transition; if it ends the episode, add one to itself with probability 1 and reward 0"
            raise InvalidModelError(f"{path}: state {without + base} {words}")
        paid = np.zeros(n_states * n_actions)
        paid[row] = reward
        by_row = (paid[row] == reward).all()
        fields |= {"rewards": paid.reshape(size)} if by_row else {"entry_rewards": reward[None]}
        fields |= {"indptr": starts_of(lengths), "indices": successor, "probabilities": probability}
        return fields | {"sizes": np.array(size)} | ({} if allowed.all() else {"allowed": allowed})

    def _first_state(self, line: np.ndarray, *states: np.ndarray) -> int:
        """Return the number of the first state; raise an error if the numbers of states have gaps."""
        numbers = np.unique(np.concatenate(states))
        base = int(numbers[0] if numbers[0] in self._first else self._first[0])
        for number in numbers[numbers != base + np.arange(len(numbers))][:1]:
            first = " or ".join(map(str, self._first))
            words = f"state {number} is used, but there is no state {number - 1}: numbers begin at {first} without gaps"
            raise self._lines.fault(words, line[np.any([each == number for each in states], axis=0)][0])
        return base


def action_name(label: str, choice: int, own: dict[str, int]) -> str:
    """Return a name for a choice of a state: its label, with its number if another choice of the state has this label."""
    name = label or str(choice)
    return name if own.setdefault(name, choice) == choice else f"{name} {choice}"


def choose_reward(path: Path, names: Sequence[str], reward: str | None) -> int:
    """Return the index of the reward with this name, or of the only reward."""
    if reward is None and len(names) == 1:
        return 0
    if reward is None or reward not in names:
        given = "" if reward is None else f"no reward {shown(reward)}, but "
        has = f"the rewards {', '.join(names)}: choose one with reward=" if names else "no rewards"
        raise InvalidModelError(f"{path} has {given}{has}")
    return names.index(reward)


def states_of_labels(labels: Mapping[int, Sequence[str]], n_states: int) -> dict[str, Any]:
    """Return the initial states, and a name for each state: its other labels, with its number if these are not unique."""
    initial = [s for s in range(n_states) if INITIAL in labels.get(s, ())]
    own = [dict.fromkeys(labels.get(s, ())) for s in range(n_states)]
    texts = [", ".join(label for label in some if label != INITIAL) for some in own]
    if not any(texts):
        return {"initial": initial, "state_names": None}
    times = Counter(texts)
    names = [f"{s} {text}" if text and times[text] > 1 else text or str(s) for s, text in enumerate(texts)]
    if len(set(names)) < n_states:
        names = [f"{s} {text}" if text else str(s) for s, text in enumerate(texts)]
    return {"initial": initial, "state_names": names}


# -- writing ----------------------------------------------------------------------------------------------------------


def entries_of_model(path: Path, mdp: FiniteMDP, *, any_start: bool = False) -> list[Entry]:
    """Return the transitions of the allowed actions of a model that is the same at every step.

    Unless ``any_start``, raise an error if the model has a distribution of the first state, for formats that have only
    initial states.
    """
    if not (any_start or isinstance(mdp.start, int)):
        raise InvalidModelError(f"cannot save to {path}: the format has no distribution of the first state")
    if not mdp.stationary or len(mdp._payoffs) > 1 or (mdp._allowed is not None and len(mdp._allowed) > 1):
        raise InvalidModelError(f"cannot save to {path}: the model is not the same at every step; save it as .npz")
    which = np.arange(mdp.n_states * mdp.n_actions) if mdp.allowed is None else np.flatnonzero(mdp.allowed)
    rows: Any = mdp._chosen_rows(0, which)
    place = np.divmod(np.repeat(which, np.diff(rows.indptr)), mdp.n_actions)
    columns = (*place, rows.indices, rows.probabilities, rows.rewards)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def labels_of_states(mdp: FiniteMDP) -> list[list[str]]:
    """Return the labels of each state of a model: whether it is initial, and its name unless that is its number."""
    names = enumerate(map(word, mdp.state_names))
    return [[INITIAL] * (mdp.start == s) + [name] * (name not in ("", INITIAL, str(s))) for s, name in names]


def word(name: str) -> str:
    """Return a name as one word without quotes, for formats whose labels are words."""
    return re.sub(r'[\s"\[\]{}]+', "_", printable(name))
