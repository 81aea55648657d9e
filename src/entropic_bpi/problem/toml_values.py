"""Conversion of declared values to TOML and back: labels of states and actions, tables of successors, masks.

Every command of the command line imports this module, so it imports NumPy only in functions that need it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.text import shown

_END = {"end": True}


def key_as_toml(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else value_as_toml(key)


def value_as_toml(value: Any) -> str:
    """Return ``value`` as TOML.

    A table ``{(state, action): value}`` is written as a list of ``[state, action, value]``, an array as nested lists, and
    :data:`entropic_bpi.END` as ``{end = true}``.

    Raises
    ------
    InvalidProblemError
        If the value is a function, or contains anything but numbers and text.

    Examples
    --------
    >>> import numpy as np
    >>> from entropic_bpi import END
    >>> value_as_toml({(0, "left"): [1, END]}), value_as_toml(np.eye(2, dtype=bool)[None])
    ('[[0, "left", [1, {end = true}]]]', '[[[true, false], [false, true]]]')
    """
    import numpy as np

    from entropic_bpi.types import END

    if value is END:
        return "{end = true}"
    if hasattr(value, "as_table"):
        return f"{{{', '.join(f'{key} = {value_as_toml(part)}' for key, part in value.as_table().items())}}}"
    if isinstance(value, np.ndarray | np.generic):
        return value_as_toml(value.tolist())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping) and all(isinstance(key, tuple) for key in value):
        return value_as_toml([[*key, item] for key, item in value.items()])
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_as_toml, value))}]"
    usable = "a table {(state, action): value}" if callable(value) else "numbers, text, or lists of these"
    raise InvalidProblemError(f"a problem file cannot contain {shown(value)}: use {usable}")


def label_from_toml(value: Any) -> Any:
    """Return a state or an action, or a list of them, in hashable form, with lists as tuples."""
    if value == _END:
        from entropic_bpi.types import END

        return END
    return tuple(map(label_from_toml, value)) if isinstance(value, list) else value


def start_from_toml(name: str, value: Any) -> Any:
    """Return a state, or a list of states, in hashable form."""
    return [label_from_toml(state) for state in value] if isinstance(value, list) else label_from_toml(value)


def noise_from_toml(name: str, value: Any) -> Any:
    """Return the noise that a table declares.

    ``labels`` is a list of ``[law, [label, …]]``, ``outcome`` a list of ``[state, action, label, outcome]``, and ``law`` a
    list of ``[state, action, law]``.
    """
    from entropic_bpi.problem.noise import Noise

    if isinstance(value, str):
        return value
    try:
        if not set(value) <= {"labels", "outcome", "law"} or not all(isinstance(part, list) for part in value.values()):
            raise ValueError
        outcome = {label_from_toml(key): label_from_toml(item) for *key, item in value["outcome"]}
        law = {label_from_toml(key): label_from_toml(name_of_law) for *key, name_of_law in value.get("law", [])}
        return Noise(dict(map(label_from_toml, value["labels"])), outcome, law=law or None)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidProblemError(
            f"{name} must be 'model', or have labels = [[law, [label, …]], …], outcome = [[state, action, label, [next "
            f"state, reward]], …] and, if there are several laws, law = [[state, action, law], …]; got {shown(value)}"
        ) from None


def successors_from_toml(name: str, value: Any) -> Any:
    """Return declared successors: a string, a mask, or a table as a dict ``{(state, action): (next state, …)}``."""
    if isinstance(value, str) or _is_mask(value):
        return value
    if isinstance(value, list) and all(isinstance(row, list) and len(row) == 3 for row in value):
        table = {(label_from_toml(s), label_from_toml(a)): label_from_toml(following) for s, a, following in value}
        if len(table) == len(value):
            return table
    raise InvalidProblemError(
        f"{name} must be 'model', a list of distinct [state, action, [next state, …]], or a mask [[[true, …], …], …]; "
        f"got {shown(value)}"
    )


def _is_mask(value: Any) -> bool:
    """Return whether ``value`` is a mask: lists of lists of lists whose elements are true and false."""
    try:
        return isinstance(value[0][0][0], bool)
    except (IndexError, KeyError, TypeError):
        return False


def rewards_from_toml(name: str, value: Any) -> Any:
    """Return a table of rewards from a list of ``[state, action(, next state), reward]``; other values unchanged."""
    is_table = isinstance(value, list) and all(isinstance(row, list) and len(row) in (3, 4) for row in value)
    rows = value if is_table else []
    table = {tuple(map(label_from_toml, row[:-1])): row[-1] for row in rows if isinstance(row[-1], int | float)}
    if rows and len(table) < len(rows) and table:
        raise InvalidProblemError(f"{name} must be distinct [state, action, reward] or [state, action, next, reward]")
    return table or value
