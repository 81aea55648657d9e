"""Storm's explicit format DRN: states with labels and rewards, their actions, and the transitions of each action."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.formats import entries
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown

_TYPES = ("MDP", "DTMC")
_UNNAMED = "__NOLABEL__"
# After the keyword: the number of a state or the name of an action, rewards in brackets, and labels, which may be quoted.
_HEAD = re.compile(r"(state|action)\s+(\S+)\s*(?:\[([^\]]*)\])?(.*)")
_TRANSITION = re.compile(r"(\S+)\s*:\s*(.+)")
_LABEL = re.compile(r'"([^"]*)"|(\S+)')


def read(path: Path, reward: str | None = None) -> dict[str, Any]:
    lines = entries.Lines(path, comment="//")
    header = _header(lines)
    rewards = header.get("@reward_models", [])  # the names of the rewards; empty if there is one without a name
    chosen = entries.choose_reward(path, rewards, reward) if rewards or reward is not None else 0
    moves, labels, is_paid = entries.Entries(lines), list[list[str]](), False
    choice, action, own = -1, "", dict[str, int]()  # the number and name of the last action, and the names of its state
    state_reward = action_reward = 0.0
    for text in lines:
        head, transition = _HEAD.fullmatch(text), _TRANSITION.fullmatch(text)
        is_paid |= head is not None and head[3] is not None
        if head and head[1] == "state":
            if lines.integer("the state", head[2]) != len(labels):
                raise lines.fault(f"expected state {len(labels)}, got state {head[2]}")
            labels.append([quoted or plain for quoted, plain in _LABEL.findall(head[4])])
            choice, own, state_reward = -1, {}, _reward(lines, head[3], rewards, chosen)
        elif head and labels:
            choice += 1
            action = entries.action_name("" if head[2] == _UNNAMED else head[2], choice, own)
            action_reward = _reward(lines, head[3], rewards, chosen)
        elif transition and choice >= 0:
            successor = lines.integer("the next state", transition[1])
            probability = lines.real("the probability", transition[2])
            moves.add(len(labels) - 1, action, successor, probability, state_reward + action_reward)
        else:
            raise lines.fault(f"expected a state, an action or NEXT_STATE : PROBABILITY, got {shown(text)}")
    announced = " ".join(header.get("@nr_states", []))
    if announced not in ("", str(len(labels))):
        raise InvalidModelError(f"{path} announces {announced} states, but has {len(labels)}")
    if not is_paid:
        raise InvalidModelError(f"{path} has no rewards")
    fields = moves.fields()
    return fields | entries.states_of_labels(dict(enumerate(labels)), int(fields["sizes"][0]))


def _header(lines: entries.Lines) -> dict[str, list[str]]:
    """Read the lines up to ``@model``, and return the words that belong to each key."""
    header: dict[str, list[str]] = {}
    key = ""
    for text in lines:
        if text == "@model":
            break
        if text.startswith("@"):
            key, _, text = text.partition(":")
        header.setdefault(key, []).extend(text.split())
        if key == "@parameters" and header[key]:
            raise lines.fault(f"parameters need values before the model is exported, got {shown(text)}")
    else:
        raise lines.fault("the header has no @model, after which the states follow")
    kind = " ".join(header.get("@type", []))
    if kind.upper() not in _TYPES:
        raise InvalidModelError(f"{lines.path}: @type must be {' or '.join(_TYPES)}, got {shown(kind)}")
    return header


def _reward(lines: entries.Lines, text: str | None, names: Sequence[str], chosen: int) -> float:
    """Return the chosen reward of those in brackets; 0 without brackets."""
    if text is None:
        return 0.0
    values = [lines.real("a reward", part.strip()) for part in text.split(",")]
    if len(values) != (len(names) or 1):
        raise lines.fault(f"expected {len(names) or 1} rewards in brackets, got {len(values)}")
    return values[chosen]


def write(path: Path, mdp: FiniteMDP) -> None:
    if mdp.next_state_rewards:
        raise InvalidModelError(f"cannot save to {path}: its rewards cannot depend on the next state; save as .tra")
    write_text_atomically(path, "\n".join(_lines(path, mdp)) + "\n")


def _lines(path: Path, mdp: FiniteMDP) -> Iterator[str]:
    moves = entries.entries_of_model(path, mdp)
    choices = len({move[:2] for move in moves})
    yield from ("@type: MDP", "@value_type: double", "@parameters", "", "@reward_models", "reward")
    yield from ("@nr_states", str(mdp.n_states), "@nr_choices", str(choices), "@model")
    before, labels = (-1, -1), entries.labels_of_states(mdp)
    for state, action, successor, probability, reward in moves:
        if before[0] != state:
            yield " ".join(["state", str(state), "[0]", *labels[state]])
        if before != (state, action):
            yield f"\taction {entries.word(mdp.action_names[action])} [{reward!r}]"
        yield f"\t\t{successor} : {probability!r}"
        before = state, action
