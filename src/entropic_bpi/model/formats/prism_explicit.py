"""PRISM's explicit files: ``.tra`` with the transitions and, beside it, ``.lab``, ``.srew`` and ``.trew``.

Storm's variants of these files, with ``mdp`` in the first line and ``#DECLARATION`` above the labels, are read as well.
"""

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

_STATE_REWARDS, _TRANSITION_REWARDS, _LABELS = ".srew", ".trew", ".lab"
_INITIAL, _DEADLOCK = "init", "deadlock"
_DECLARED = re.compile(r'(\d{1,9})="([^"]*)"', re.ASCII)
_STRUCTURE = re.compile(r'#.*reward structure\s+"([^"]*)"', re.IGNORECASE)

_Key = tuple[int, ...]  # a state; or a state, a choice (not in a chain) and a next state


def read(path: Path, reward: str | None = None) -> dict[str, Any]:
    lines = _words_of(path)
    n_states, n_transitions, n_indices = _header(path, lines)
    files = _reward_files(path, reward)
    of_state = _rewards(files.get(_STATE_REWARDS), 1, n_states)
    of_transition = _rewards(files.get(_TRANSITION_REWARDS), n_indices, n_states)
    entries, actions, unused = Entries(path), dict[int, dict[str, int]](), set(of_transition)
    count = 0
    for count, (line, words) in enumerate(lines, 1):  # noqa: B007
        if not 0 < len(words) - n_indices <= n_indices - 1:
            form = "STATE CHOICE NEXT_STATE PROBABILITY [ACTION]" if n_indices == 3 else "STATE NEXT_STATE PROBABILITY"
            raise fault(path, line, f"expected {form}, got {shown(' '.join(words))}")
        key = tuple(integer(path, line, "a state or choice", text) for text in words[:n_indices])
        unused.discard(key)
        choice, label = (key[1] if n_indices == 3 else 0), "".join(words[n_indices + 1 :])
        action = action_name(label, choice, actions.setdefault(key[0], {}))
        probability = real(path, line, "the probability", words[n_indices])
        entries.add(
            line, key[0], action, key[-1], probability, of_state.get(key[:1], 0.0) + of_transition.get(key, 0.0)
        )
    if n_transitions not in (None, count):
        raise fault(path, 1, f"{n_transitions} transitions are announced, but {count} were read")
    fields = entries.fields()
    size = int(fields["sizes"][0])
    if n_states not in (None, size):
        raise fault(path, 1, f"{n_states} states are announced, but the transitions are of {size}")
    if missing := sorted(unused) or [key for key in of_state if key[0] >= size]:
        raise InvalidModelError(f"{path} has no transition or state {missing[0]}, but there is a reward for it")
    return fields | _states(path.with_suffix(_LABELS), size)


def _words_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    return ((line, text.split()) for line, text in lines_of(path) if not text.startswith("#"))


def _header(path: Path, lines: Iterator[tuple[int, list[str]]]) -> tuple[int | None, int | None, int]:
    """The numbers of states and transitions, if there are any, and of the indices of a transition: 3, or 2 in a chain."""
    line, words = next(lines, (1, []))
    if words and words[0].lower() in ("mdp", "dtmc"):
        return None, None, 3 if words[0].lower() == "mdp" else 2
    if len(words) not in (2, 3):
        raise fault(path, line, "expected the numbers of states, choices and transitions, or the word mdp or dtmc")
    sizes = [integer(path, line, "a size", text) for text in words]
    return sizes[0], sizes[-1], len(sizes)


def _reward_files(path: Path, reward: str | None) -> dict[str, Path]:
    """The files of one reward structure, by suffix; PRISM numbers the files of several ones."""
    found: dict[str, dict[str, Path]] = {}
    for file in sorted(path.parent.iterdir()):
        suffix, number = file.suffix, file.stem.removeprefix(path.stem)
        is_ours = file.stem.startswith(path.stem) and (not number or number.isdigit())
        if is_ours and suffix in (_STATE_REWARDS, _TRANSITION_REWARDS):
            title = _STRUCTURE.match(next(lines_of(file), (0, ""))[1])
            found.setdefault(title[1] if title else number or "reward", {})[suffix] = file
    if not found:
        stem = path.with_suffix("")
        raise InvalidModelError(
            f"{path} has no rewards: expected {stem}{_STATE_REWARDS} or {stem}{_TRANSITION_REWARDS}"
        )
    return list(found.values())[choose_reward(path, list(found), reward)]


def _rewards(path: Path | None, n_indices: int, n_states: int | None) -> dict[_Key, float]:
    rewards: dict[_Key, float] = {}
    for first, (line, words) in enumerate(_words_of(path) if path else ()):
        assert path is not None
        # The first line of PRISM's files has sizes; no state has the number of states as its number.
        if first == 0 and (len(words) == n_indices > 1 or (n_indices == 1 and words[0] == str(n_states))):
            continue
        if len(words) != n_indices + 1:
            raise fault(path, line, f"expected {n_indices} integers and a reward, got {shown(' '.join(words))}")
        key = tuple(integer(path, line, "a state or choice", text) for text in words[:-1])
        if key in rewards:
            raise fault(path, line, "a second reward for the same place")
        rewards[key] = real(path, line, "the reward", words[-1])
    return rewards


def _states(path: Path, n_states: int) -> dict[str, Any]:
    """The initial states and the names of all, from the labels."""
    if not path.exists():
        return {"initial": [0]}
    labels: dict[int, list[str]] = {}
    for line, state, own in _labels(path):
        if state >= n_states:
            raise fault(path, line, f"there is no state {state}")
        labels.setdefault(state, []).extend(own)
    named = {s: [label for label in own if label not in (_INITIAL, _DEADLOCK)] for s, own in labels.items()}
    names = names_of_states({s: own for s, own in named.items() if own}, n_states)
    return {"initial": sorted(s for s, own in labels.items() if _INITIAL in own), "state_names": names}


def _labels(path: Path) -> Iterator[tuple[int, int, list[str]]]:
    """Yield line, state and labels: PRISM's form has numbers for labels, Storm's the labels themselves."""
    lines = lines_of(path)
    line, text = next(lines, (1, ""))
    declared = dict(_DECLARED.findall(text))
    if text == "#DECLARATION":
        known = set()
        for _, text in lines:
            if text == "#END":
                break
            known |= set(text.split())
        declared = {label: label for label in known}
    if not declared and text != "#END":
        raise fault(path, line, 'expected the labels, such as 0="init" 1="deadlock", or #DECLARATION … #END')
    for line, text in lines:
        state, *own = text.replace(":", " ", 1).split()
        if unknown := [label for label in own if label not in declared]:
            raise fault(path, line, f"the label {shown(unknown[0])} is not declared at the top of the file")
        yield line, integer(path, line, "the state", state), [declared[label] for label in own]


def write(path: Path, mdp: FiniteMDP) -> None:
    """Write all four files, also those without content, so that no old ones remain."""
    check_target(path, mdp)
    entries = list(entries_of_model(path, mdp))
    choices = dict.fromkeys((entry.state, entry.action) for entry in entries)
    number: dict[tuple[int, int], int] = {}
    before = (-1, -1)
    for pair in choices:  # within a state choices have no gaps, whatever actions are allowed
        number[pair] = number[before] + 1 if before[0] == pair[0] else 0
        before = pair
    named = mdp.allowed is not None or mdp.action_names[0] != "0"
    sizes = f"{mdp.n_states} {len(choices)} {len(entries)}"
    transitions, rewards = [sizes], [sizes]
    for entry in entries:
        place = f"{entry.state} {number[entry.state, entry.action]} {entry.successor}"
        label = f" {word(mdp.action_names[entry.action])}" if named else ""
        transitions.append(f"{place} {entry.probability!r}{label}")
        rewards.append(f"{place} {entry.reward!r}")
    texts = {
        _LABELS: "\n".join(_label_lines(mdp)),
        _STATE_REWARDS: f"{mdp.n_states} 0",
        _TRANSITION_REWARDS: "\n".join(rewards),
        path.suffix: "\n".join(transitions),
    }
    for suffix, text in texts.items():
        write_text_atomically(path.with_suffix(suffix), text + "\n")


def _label_lines(mdp: FiniteMDP) -> Iterator[str]:
    plain = ("", _INITIAL, _DEADLOCK)
    named = {s: name for s, name in enumerate(map(word, mdp.state_names)) if name not in (*plain, str(s))}
    position = {label: i for i, label in enumerate(dict.fromkeys([_INITIAL, _DEADLOCK, *named.values()]))}
    yield " ".join(f'{i}="{label}"' for label, i in position.items())
    for s in range(mdp.n_states):
        own = [_INITIAL] * (s == mdp.start) + ([named[s]] if s in named else [])
        if own:
            yield f"{s}: {' '.join(str(position[label]) for label in own)}"
