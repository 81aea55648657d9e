"""Facts: named values that identify a run.

A run continues from a checkpoint only if no fact has changed. A fact is a short text: the value as JSON or, if that is long,
its digest.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

import numpy as np

_LONGEST = 200


def facts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return each value as a text that is the same in every process."""
    texts = {name: json.dumps(_plain(value), sort_keys=True) for name, value in values.items()}
    return {name: text if len(text) <= _LONGEST else _digest(text.encode()) for name, text in texts.items()}


def problem_facts(problem: Any) -> dict[str, Any]:
    """Return every field of the problem, arrays included, so that a field that is added to the class becomes a fact."""
    values = {field.name: getattr(problem, field.name) for field in fields(problem)}
    slots, risk = values.pop("slots"), values.pop("risk")
    return values | asdict(risk) | {f"slots.{name}": array for name, array in slots._asdict().items()}


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the facts that differ, in words; empty if none does. Digests are listed only if nothing else differs."""
    names = [name for name in {**now, **then} if then.get(name) != now.get(name)]
    names = [name for name in names if "sha256:" not in then.get(name, "") + now.get(name, "")] or names
    shown = [[re.sub("(?s)(.{80}).+", r"\1…", facts.get(name, "not given")) for facts in (then, now)] for name in names]
    return "; ".join(f"{name} was {before}, is {after}" for name, (before, after) in zip(names, shown, strict=True))


def _plain(value: Any) -> Any:
    """Return ``value`` as an object that JSON can represent; an object without a stable ``repr`` becomes its type's name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return f"{array.dtype} {array.shape} {_digest(array.tobytes())}"
    if hasattr(value, "content_hash"):
        return str(value.content_hash)
    if hasattr(value, "__qualname__"):
        return [qualified_name(value), source_digest([value])]
    text = repr(value)
    return qualified_name(type(value)) if " at 0x" in text else text


def qualified_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def source_digest(things: Iterable[Any]) -> str:
    """Return a digest of the source code of classes and functions; unreadable source code counts as empty."""
    return _digest("\n".join(_source(thing) for thing in things).encode("utf-8", "replace"))


@cache
def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except Exception:  # a class from a prompt or an extension module, or a file that was removed or no longer parses
        methods = (part for part in vars(thing).values() if inspect.isfunction(part)) if inspect.isclass(thing) else ()
        return "\n".join(_source(method) for method in methods)


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
