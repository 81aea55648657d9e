"""Reading the file: nothing is taken for granted, neither its syntax nor the type of any value in it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

_FORMAT, _VERSION = "entropic-bpi certificate", 4
APPRAISAL = "entropic-bpi appraisal"
_KNOWN_VERSIONS = {_FORMAT: (3, _VERSION), APPRAISAL: (1,)}
_LARGEST_INTEGER = 2**53  # beyond, integers are not exact as floats
_LARGEST_NUMBER = 1e300
_ALWAYS_AFFORDED = 2**26  # bytes of memory that any file may take
_MOST_GROWTH = 200  # of a compressed file beyond that

_KEYS = {
    "the certificate": (
        ("format", "version", "library", "problem", "method", "constants", "provenance", "assumptions", "policy")
        + ("counts", "claim")
    ),
    "problem": (
        ("n_states", "n_actions", "horizon", "start", "beta", "eps", "delta", "stationary", "successors", "rewards")
        + (
            "slots",
            "state_names",
            "action_names",
            "source",
            "reward_law",
            "max_successors",
            "return_range",
            "max_states",
            "discount",
            "alpha",
            "lams",
            "noise",
            "allowed",
            "reward",
            "explored",
        )
    ),
    "noise": ("labels", "law", "classes"),
    "allowed": ("table", "offered"),
    "explored": ("betas", "rewards"),
    "slots": ("begin", "used", "successor", "low", "high", "possible"),
    "provenance": ("batches", "ignored", "errors", "preregistration", "tests", "log", "accepted", "rewards"),
    "tests": ("stationary", "memoryless", "unchanging", "returns"),
    "provenance.log": ("longest", "unused", "excluded", "seen"),
    "counts": ("episodes", "rows", "successors", "times", "rewards", "upper"),
    "claim": ("lower", "upper", "gap", "reached", "test", "cells", "cuts"),
    "claim.cuts": ("law", "event", "at"),
    "claim.cells": ("lam", "until", "test"),
    "the appraisal": (("format", "version", "library", "step", "cells", "policies", "table", "certificate")),
    "cells": ("policy", "measure", "cells"),
    "table": ("policy", "measure", "lower", "upper"),
}


# What certificates said in other words.
_OTHER_WORDS = (
    (" and that transitions do not", ", that transitions do not"),
    (
        "the start is random; its distribution is learned as an artificial first step",
        "the distribution of the first state is estimated from the episodes",
    ),
    (
        "that an ending may have 8 different ones and a step back to the same state 2",
        "for up to 8 different rewards at the end of an episode and up to 2 when the state does not change",
    ),
    (
        ", and did not reject it: each test rejects what is true with probability at most 0.01, from 4.61 on",
        ": no sign of a violation; each test has a false-alarm rate of at most 1 % (alarm at 4.61)",
    ),
)


class Rejected(Exception):
    """The file cannot be checked further; the message says why."""


def content_of(source: Any) -> dict[str, Any]:
    """The JSON content of a certificate, or of the file that it is in."""
    if hasattr(source, "_content"):
        try:
            return json.loads(json.dumps(source._content()))
        except (TypeError, ValueError) as error:
            raise Rejected(f"the certificate cannot be written as JSON: {error}") from None
    path = Path(source)
    try:
        content = _parse(_unpacked(path.read_bytes()))
    except FileNotFoundError:
        raise Rejected(f"no such file: {path}") from None
    except (OSError, ValueError, RecursionError, zlib.error) as error:
        raise Rejected(f"{path} is not a whole JSON file: {error}") from None
    if not isinstance(content, dict) or content.get("format") not in _KNOWN_VERSIONS:
        raise Rejected(f"{path} is not a certificate or an appraisal of entropic-bpi")
    known = _KNOWN_VERSIONS[content["format"]]
    if content.get("version") not in known:
        known_words = " and ".join(map(str, known))
        raise Rejected(f"unknown version {content.get('version')!r:.80}: this library checks versions {known_words}")
    digest = content.pop("digest", None)
    if digest != hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest():
        raise Rejected("the digest does not match: the file was changed after it was written")
    if content["format"] == APPRAISAL:
        return content
    try:
        return _reworded(_renamed(content) if content["version"] == 3 else content)
    except (KeyError, TypeError, AttributeError):
        raise Rejected(f"this is not a certificate of version {content['version']}") from None


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    """A certificate of version 3 with the keys of version 4; nothing tested then whether anything changes over time."""
    origin = content.pop("circumstances")
    origin["preregistration"], origin["accepted"] = origin.pop("announcement"), []
    if origin["tests"] is not None:
        origin["tests"]["unchanging"] = None
    if origin["log"] is not None:
        origin["log"]["seen"] = False
    return {**content, "provenance": origin}


def _reworded(content: dict[str, Any]) -> dict[str, Any]:
    """The assumptions in today's words, which say the same."""
    if "assumptions" not in content:
        return content
    # which the first files of version 4 lack
    content["provenance"] = {"accepted": [], "rewards": None, **content["provenance"]}
    content["claim"] = {"cuts": None, **content["claim"]}
    content["problem"] = {**dict.fromkeys(("noise", "allowed", "reward", "explored")), **content["problem"]}
    words = content["assumptions"]
    for before, now in _OTHER_WORDS:
        words = [text.replace(before, now) for text in words]
    return {**content, "assumptions": words}


def _unpacked(data: bytes) -> bytes:
    """The content of a file that may be compressed; a small one may not unpack to a huge one."""
    if data[:2] != b"\x1f\x8b":
        return data
    unpack = zlib.decompressobj(wbits=31)
    content = unpack.decompress(data, _MOST_GROWTH * len(data) + _ALWAYS_AFFORDED)
    if not unpack.eof or unpack.unused_data:
        raise ValueError(
            f"it does not end where its compressed content does, or would take {len(content)} bytes and more"
        )
    return content


def _parse(data: bytes) -> Any:
    # In memory a list or an object takes about 100 bytes and a number 40, however few it takes in the file.
    needed = 100 * (data.count(b"[") + data.count(b"{")) + 40 * data.count(b",")
    if needed > 20 * len(data) + _ALWAYS_AFFORDED:
        raise ValueError(f"its {len(data)} bytes would take {needed} in memory")
    return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two equal ones, some readers take the first and some the last."""
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the key {key!r:.80} is there {times} times")
    return dict(pairs)


def an_object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected(f"{name} must be an object, got {value!r:.80}")
    for key in _KEYS[name]:
        if key not in value:
            raise Rejected(f"{name} lacks {key!r}")
    for key in value:
        if key not in _KEYS[name]:
            raise Rejected(f"{name} has an unknown key {key!r:.80}")
    return value


def an_integer(name: str, value: Any, least: int, most: int = _LARGEST_INTEGER) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Rejected(f"{name} must be an integer from {least} to {most}, got {value!r:.80}")
    return value


def a_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST_NUMBER:
        raise Rejected(f"{name} must be a finite number, got {value!r:.80}")
    return float(value)


def a_list(name: str, value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        size = "" if length is None else f" of length {length}"
        raise Rejected(f"{name} must be a list{size}, got {value!r:.80}")
    return value


def integers(
    name: str, value: Any, shape: tuple[int | None, ...], least: int, most: int = _LARGEST_INTEGER
) -> np.ndarray:
    """An array from nested lists of integers in a range; None in ``shape`` is any length."""
    parts = _flat(name, value, shape)
    if not set(map(type, parts)) <= {int} or (parts and not least <= min(parts) <= max(parts) <= most):
        for part in parts:
            an_integer(name, part, least, most)  # says which one is wrong
    return np.array(parts, dtype=np.int64).reshape(len(value), *shape[1:])


def numbers(name: str, value: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """An array from nested lists of finite numbers; None in ``shape`` is any length."""
    parts = _flat(name, value, shape)
    if not set(map(type, parts)) <= {float}:
        parts = [a_number(name, part) for part in parts]
    array = np.array(parts, dtype=float).reshape(len(value), *shape[1:])
    if not np.all(np.abs(array) <= _LARGEST_NUMBER):
        raise Rejected(f"{name} must be a finite number, got {array[~(np.abs(array) <= _LARGEST_NUMBER)][0]!r:.80}")
    return array


def _flat(name: str, value: Any, shape: tuple[int | None, ...]) -> list[Any]:
    parts = a_list(name, value, shape[0])
    for length in shape[1:]:
        for part in parts:
            a_list(name, part, length)
        parts = list(chain.from_iterable(parts))
    return parts


def one_of(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise Rejected(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r:.80}")
    return value


def a_string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{name} must be a string, got {value!r:.80}")
    return value
