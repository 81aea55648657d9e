"""Storm's explicit format DRN: states with labels and rewards, their actions, and the transitions of these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.formats.entries import (
    Entries,
    action_name,
    check_target,
    choose_reward,
    entries_of_model,
    fault,
    integer,
    lines_of,
    names_of_states,
    real,
    word,
)
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown

if TYPE_CHECKING:
    from entropic_bpi.model.mdp import FiniteMDP

_INITIAL, _UNNAMED = "init", "__NOLABEL__"
_TYPES = ("MDP", "DTMC")
# A number or a name, rewards in brackets, and labels, in quotes if they contain spaces.
_HEAD = re.compile(r"(state|action)\s+(\S+)\s*(?:\[([^\]]*)\])?(.*)")
_TRANSITION = re.compile(r"(\S+)\s*:\s*(.+)")
_LABEL = re.compile(r'"([^"]*)"|(\S+)')


def read(path: Path, reward: str | None = None) -> dict[str, Any]:
    return _File(path).fields(reward)


class _File:
    """A file while it is read, from the top to the bottom."""

    def __init__(self, path: Path) -> None:
        self.path, self.entries = path, Entries(path)
        self.labels: dict[int, list[str]] = {}
        self.initial: list[int] = []
        self.state = self.choice = -1
        self.action = ""
        self.actions: dict[str, int] = {}  # of the state, and which choices they are
        self.rewards: list[str] = []  # the names of the reward models; none if there is one without a name
        self.chosen, self.has_rewards = 0, False  # which of them is used
        self.announced: int | None = None  # the number of states
        self.state_reward = self.action_reward = 0.0

    def fields(self, reward: str | None) -> dict[str, Any]:
        lines = ((line, text) for line, text in lines_of(self.path) if not text.startswith("//"))
        self._read_header(lines, reward)
        for line, text in lines:
            head, transition = _HEAD.fullmatch(text), _TRANSITION.fullmatch(text)
            if head and head[1] == "state":
                self._begin_state(line, head)
            elif head and self.state >= 0:
                label = "" if head[2] == _UNNAMED else head[2]
                self.choice += 1
                self.action = action_name(label, self.choice, self.actions)
                self.action_reward = self._reward_of(line, head[3])
            elif transition and self.choice >= 0:
                successor = integer(self.path, line, "the next state", transition[1])
                probability = real(self.path, line, "the probability", transition[2])
                paid = self.state_reward + self.action_reward
                self.entries.add(line, self.state, self.action, successor, probability, paid)
            else:
                raise self._fault(line, f"expected a state, an action or NEXT_STATE : PROBABILITY, got {shown(text)}")
        if self.announced not in (None, self.state + 1):
            raise InvalidModelError(f"{self.path} announces {self.announced} states, but has {self.state + 1}")
        if not self.has_rewards:
            raise InvalidModelError(f"{self.path} has no rewards")
        fields = self.entries.fields()
        return fields | {"initial": self.initial, "state_names": names_of_states(self.labels, int(fields["sizes"][0]))}

    def _fault(self, line: int, words: str) -> InvalidModelError:
        return fault(self.path, line, words)

    def _read_header(self, lines: Iterator[tuple[int, str]], reward: str | None) -> None:
        """Read up to ``@model``: the type and the names of the rewards; the sizes follow from the content."""
        kind, key = "", ""
        for line, text in lines:
            key = text if text.startswith("@") else key
            if text.startswith("@type:"):
                kind = text.removeprefix("@type:").strip()
            elif text == "@model":
                break
            elif key == "@parameters" and text != key:
                raise self._fault(line, f"parameters need values before the model is exported, got {shown(text)}")
            elif key == "@nr_states" and text != key:
                self.announced = integer(self.path, line, "the number of states", text)
            elif key == "@reward_models" and text != key:
                self.rewards += text.split()
        if kind.upper() not in _TYPES:
            raise InvalidModelError(f"{self.path}: @type must be {' or '.join(_TYPES)}, got {shown(kind)}")
        if self.rewards or reward is not None:
            self.chosen = choose_reward(self.path, self.rewards, reward)

    def _begin_state(self, line: int, head: re.Match[str]) -> None:
        number = integer(self.path, line, "the state", head[2])
        if number != self.state + 1:
            raise self._fault(line, f"expected state {self.state + 1}, got state {number}")
        labels = [quoted or plain for quoted, plain in _LABEL.findall(head[4])]
        self.initial += [number] * (_INITIAL in labels)
        if named := [label for label in labels if label != _INITIAL]:
            self.labels[number] = named
        self.state, self.choice, self.actions = number, -1, {}
        self.state_reward = self._reward_of(line, head[3])

    def _reward_of(self, line: int, text: str | None) -> float:
        if text is None:
            return 0.0
        values = [real(self.path, line, "a reward", part.strip()) for part in text.split(",")]
        self.has_rewards, expected = True, len(self.rewards) or 1
        if len(values) != expected:
            raise self._fault(line, f"expected {expected} rewards in brackets, got {len(values)}")
        return values[self.chosen]


def write(path: Path, mdp: FiniteMDP) -> None:
    if mdp.next_state_rewards:
        raise InvalidModelError(
            f"cannot save to {path}: the format has no rewards that depend on the next state; save it as .tra"
        )
    check_target(path, mdp)
    write_text_atomically(path, "\n".join(_lines(path, mdp)) + "\n")


def _lines(path: Path, mdp: FiniteMDP) -> Iterator[str]:
    entries = list(entries_of_model(path, mdp))
    choices = len({(entry.state, entry.action) for entry in entries})
    yield from ("@type: MDP", "@value_type: double", "@parameters", "", "@reward_models", "reward")
    yield from ("@nr_states", str(mdp.n_states), "@nr_choices", str(choices), "@model")
    before = None
    for entry in entries:
        if before is None or before.state != entry.state:
            yield " ".join(["state", str(entry.state), "[0]", *_labels(mdp, entry.state)])
        if before is None or before[:2] != entry[:2]:
            yield f"\taction {word(mdp.action_names[entry.action])} [{entry.reward!r}]"
        yield f"\t\t{entry.successor} : {entry.probability!r}"
        before = entry


def _labels(mdp: FiniteMDP, state: int) -> list[str]:
    name = word(mdp.state_names[state])
    return [_INITIAL] * (mdp.start == state) + [name] * (name not in ("", str(state), _INITIAL))
