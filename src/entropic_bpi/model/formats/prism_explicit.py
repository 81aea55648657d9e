"""PRISM's explicit files: ``.tra`` with the transitions and, beside it, ``.lab``, ``.srew`` and ``.trew``.

Storm's variants of these files, with ``mdp`` in the first line and ``#DECLARATION`` above the labels, are read as well.
"""

import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.formats import entries
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown

_STATE_REWARDS, _TRANSITION_REWARDS, _LABELS = ".srew", ".trew", ".lab"
_DEADLOCK = "deadlock"
_DECLARED = re.compile(r'(\d{1,9})="([^"]*)"', re.ASCII)
_STRUCTURE = re.compile(r'#.*reward structure\s+"([^"]*)"', re.IGNORECASE)

_Key = tuple[int, ...]  # a state; or a state, a choice (not in a chain) and a next state


def read(path: Path, reward: str | None = None) -> dict[str, Any]:
    lines = entries.Lines(path, comment="#")
    n_states, n_transitions, n_indices = _header(lines)
    files = _reward_files(path, reward)
    of_state = _rewards(files.get(_STATE_REWARDS), 1, n_states)
    of_transition = _rewards(files.get(_TRANSITION_REWARDS), n_indices, n_states)
    moves, actions, unused = entries.Entries(lines), dict[int, dict[str, int]](), set(of_transition)
    count = 0
    for count, text in enumerate(lines, 1):  # noqa: B007
        words = text.split()
        if not 0 < len(words) - n_indices <= n_indices - 1:
            form = "STATE CHOICE NEXT_STATE PROBABILITY [ACTION]" if n_indices == 3 else "STATE NEXT_STATE PROBABILITY"
            raise lines.fault(f"expected {form}, got {shown(text)}")
        key = tuple(lines.integer("a state or choice", part) for part in words[:n_indices])
        unused.discard(key)
        choice, label = (key[1] if n_indices == 3 else 0), "".join(words[n_indices + 1 :])
        action = entries.action_name(label, choice, actions.setdefault(key[0], {}))
        paid = of_state.get(key[:1], 0.0) + of_transition.get(key, 0.0)
        moves.add(key[0], action, key[-1], lines.real("the probability", words[n_indices]), paid)
    if n_transitions not in (None, count):
        raise lines.fault(f"the header says {n_transitions} transitions, but the file has {count}", 1)
    fields = moves.fields()
    size = int(fields["sizes"][0])
    if n_states not in (None, size):
        raise lines.fault(f"the header says {n_states} states, but the transitions have {size}", 1)
    if missing := sorted(unused) or [key for key in of_state if key[0] >= size]:
        raise InvalidModelError(f"{path} has no transition or state {missing[0]}, but there is a reward for it")
    labels = path.with_suffix(_LABELS)
    return fields | (entries.states_of_labels(_labels(labels, size), size) if labels.exists() else {"initial": [0]})


def _header(lines: entries.Lines) -> tuple[int | None, int | None, int]:
    """Return the numbers of states and transitions, or None, and the number of indices of a transition (2 in a chain)."""
    words = next(lines, "").split()
    if words and words[0].lower() in ("mdp", "dtmc"):
        return None, None, 3 if words[0].lower() == "mdp" else 2
    if len(words) not in (2, 3):
        raise lines.fault("expected the numbers of states, choices and transitions, or the word mdp or dtmc")
    sizes = [lines.integer("a size", text) for text in words]
    return sizes[0], sizes[-1], len(sizes)


def _reward_files(path: Path, reward: str | None) -> dict[str, Path]:
    """Return the files of one reward structure, by suffix; PRISM numbers the files if there are several structures."""
    structures: dict[str, dict[str, Path]] = {}
    for file in sorted(path.parent.iterdir()):
        number = file.stem.removeprefix(path.stem)
        is_ours = file.stem.startswith(path.stem) and (not number or number.isdigit())
        if is_ours and file.suffix in (_STATE_REWARDS, _TRANSITION_REWARDS):
            title = _STRUCTURE.match(next(entries.Lines(file), ""))
            structures.setdefault(title[1] if title else number or "reward", {})[file.suffix] = file
    if not structures:
        expected = [str(path.with_suffix(suffix)) for suffix in (_STATE_REWARDS, _TRANSITION_REWARDS)]
        raise InvalidModelError(f"{path} has no rewards: expected {' or '.join(expected)}")
    return list(structures.values())[entries.choose_reward(path, list(structures), reward)]


def _rewards(path: Path | None, n_indices: int, n_states: int | None) -> dict[_Key, float]:
    if path is None:
        return {}
    rewards, lines = dict[_Key, float](), entries.Lines(path, comment="#")
    for first, text in enumerate(lines):
        words = text.split()
        # The first line of PRISM's files has sizes. A number of states cannot be the number of a state.
        if first == 0 and (len(words) == n_indices > 1 or (n_indices == 1 and words[0] == str(n_states))):
            continue
        if len(words) != n_indices + 1:
            raise lines.fault(f"expected {n_indices} integers and a reward, got {shown(text)}")
        key = tuple(lines.integer("a state or choice", part) for part in words[:-1])
        if key in rewards:
            raise lines.fault(f"a second reward for {', '.join(words[:-1])}")
        rewards[key] = lines.real("the reward", words[-1])
    return rewards


def _labels(path: Path, n_states: int) -> dict[int, list[str]]:
    """Return the labels of states; PRISM's files refer to labels by numbers, Storm's by name."""
    lines = entries.Lines(path)
    text = next(lines, "")
    declared = dict(_DECLARED.findall(text))
    if text == "#DECLARATION":
        while (text := next(lines, "#END")) != "#END":
            declared |= {label: label for label in text.split()}
    if not declared and text != "#END":
        raise lines.fault('expected the labels, such as 0="init" 1="deadlock", or #DECLARATION … #END')
    labels: dict[int, list[str]] = {}
    for text in lines:
        number, *own = text.replace(":", " ", 1).split()
        if unknown := [label for label in own if label not in declared]:
            raise lines.fault(f"the label {shown(unknown[0])} is not declared at the top of the file")
        state = lines.integer("the state", number)
        if state >= n_states:
            raise lines.fault(f"there is no state {state}")
        labels.setdefault(state, []).extend(declared[label] for label in own if declared[label] != _DEADLOCK)
    return labels


def write(path: Path, mdp: FiniteMDP) -> None:
    """Write all four files, also those without content, which replace old files."""
    moves = entries.entries_of_model(path, mdp)
    choices, taken = dict[tuple[int, int], int](), Counter[int]()
    for state, action in dict.fromkeys(entry[:2] for entry in moves):
        choices[state, action] = taken[state]  # no gaps, whatever actions are allowed
        taken[state] += 1
    named = mdp.allowed is not None or mdp.action_names[0] != "0"
    transitions = [f"{mdp.n_states} {len(choices)} {len(moves)}"]
    rewards = transitions.copy()
    for state, action, successor, probability, reward in moves:
        place = f"{state} {choices[state, action]} {successor}"
        transitions.append(f"{place} {probability!r}{f' {entries.word(mdp.action_names[action])}' if named else ''}")
        rewards.append(f"{place} {reward!r}")
    none = {_STATE_REWARDS: [f"{mdp.n_states} 0"]}
    texts = {_LABELS: _label_lines(mdp), **none, _TRANSITION_REWARDS: rewards, path.suffix: transitions}
    for suffix, text in texts.items():
        write_text_atomically(path.with_suffix(suffix), "\n".join(text) + "\n")


def _label_lines(mdp: FiniteMDP) -> list[str]:
    own = [[label for label in labels if label != _DEADLOCK] for labels in entries.labels_of_states(mdp)]
    every = dict.fromkeys([entries.INITIAL, _DEADLOCK, *chain(*own)])
    position = {label: str(i) for i, label in enumerate(every)}
    header = " ".join(f'{i}="{label}"' for label, i in position.items())
    return [header, *(f"{s}: {' '.join(map(position.__getitem__, some))}" for s, some in enumerate(own) if some)]
