"""Read the file. Nothing in it is trusted, neither its syntax nor the type of any value."""

import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

APPRAISAL = "entropic-bpi appraisal"
_KNOWN_VERSIONS = {"entropic-bpi certificate": (3, 4), APPRAISAL: (1,)}
_LARGEST_INTEGER = 2**53  # beyond, integers are not exact as floats
_LARGEST_NUMBER = 1e300
_ALWAYS_AFFORDED = 2**26  # bytes of memory that any file may take
_MOST_GROWTH = 200  # of a compressed file beyond that

# Words of the assumptions in earlier certificates, and what these are today.
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


# The fields of each object of a file and their types: ``?`` for those that may be null, ``*`` for lists. A type is one of
# _READERS, the name of another object, or the texts that are possible; "any" is checked later, when sizes are known.
_FIELDS = {
    "certificate": "format any, version any, library text, problem problem, method kl|bernstein, provenance provenance, "
    "constants verified|sharp|printed?, assumptions any, policy any, counts counts, claim claim",
    "problem": "n_states positive, n_actions positive, horizon positive, start any, beta number?, eps above_0, delta share, "
    "stationary flag, successors unknown|model|mask|noise, rewards any, slots slots, state_names text*, action_names text*, "
    "source text, reward_law fixed|random|random-pair, max_successors positive?, return_range range?, max_states positive?, "
    "discount share?, alpha share?, lams number*?, noise noise?, allowed allowed?, reward true?, explored explored?, "
    "state_labels text*?, action_labels text*?, unit text?, title text?",
    "noise": "labels text**, law any, classes any, observed flag",
    "allowed": "table any, offered flag",
    "explored": "betas range, rewards range",
    "slots": "begin any, used any, successor any, low any, high any, possible any",
    "provenance": "batches flag, ignored text*, errors count, preregistration text?, tests tests?, log log?, "
    "accepted text*, rewards text?",
    "tests": "stationary number?, memoryless number, unchanging number?, returns number?",
    "log": "longest positive, unused count, excluded text?, seen flag",
    "counts": "episodes count, rows any, successors any, times any, rewards any, upper any, labels any",
    "claim": "lower number, upper number, gap number, reached flag, test ratio|pairs|explored|boxes?, "
    "cells cell*?, cuts any*?",
    "cut": "law count, event count*, at share",
    "cell": "lam above_0, until number?, test ratio|pairs?",
    "appraisal": "format any, version any, library text, step above_0?, cells cells*, policies any, "
    "table row*, differences difference*, certificate any",
    "cells": "policy text, measure text, cells cell*",
    "row": "policy text, measure text, lower number, upper number",
    "difference": "measure text, policy text, other text, lower number, upper number",
}


def read(kind: str, name: str, value: Any) -> Any:
    """Return a value of the file, an object of :data:`_FIELDS` or a plain value; reject one that is not of type ``kind``."""
    if kind.endswith("?"):
        return None if value is None else read(kind[:-1], name, value)
    if kind.endswith("*"):
        return [read(kind[:-1], name, part) for part in a_list(name, value)]
    if kind in _READERS:
        return _READERS[kind](name, value)
    if kind not in _FIELDS:
        return one_of(name, value, tuple(kind.split("|")))
    if not isinstance(value, dict):
        raise Rejected(f"{name} must be an object, got {value!r:.80}")
    fields = dict(field.split() for field in _FIELDS[kind].split(", "))
    for key in fields:
        if key not in value:
            raise Rejected(f"{name} lacks {key!r}")
    for key in value:
        if key not in fields:
            raise Rejected(f"{name} has an unknown key {key!r:.80}")
    return SimpleNamespace(**{key: read(kind, f"{name}.{key}", value[key]) for key, kind in fields.items()})


def an_integer(name: str, value: Any, least: int, most: int = _LARGEST_INTEGER) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Rejected(f"{name} must be an integer from {least} to {most}, got {value!r:.80}")
    return value


def a_number(name: str, value: Any, above: float = -math.inf, below: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST_NUMBER:
        raise Rejected(f"{name} must be a finite number, got {value!r:.80}")
    if not above < value < below:
        raise Rejected(f"{name} must lie strictly between {above:g} and {below:g}, got {value!r:.80}")
    return float(value)


def a_list(name: str, value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        size = "" if length is None else f" of length {length}"
        raise Rejected(f"{name} must be a list{size}, got {value!r:.80}")
    return value


def one_of(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise Rejected(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r:.80}")
    return value


def an_array(
    name: str, value: Any, shape: tuple[int | None, ...], least: int | None = None, most: int = _LARGEST_INTEGER
) -> np.ndarray:
    """Return an array from nested lists of numbers, or of integers from ``least`` on; None in ``shape`` is any length."""
    parts = a_list(name, value, shape[0])
    for length in shape[1:]:
        for part in parts:
            a_list(name, part, length)
        parts = list(chain.from_iterable(parts))
    kind, low, high = (float, -_LARGEST_NUMBER, _LARGEST_NUMBER) if least is None else (int, least, most)
    if not set(map(type, parts)) <= {kind} or not all(low <= part <= high for part in parts):
        parts = [a_number(name, part) if least is None else an_integer(name, part, least, most) for part in parts]
    return np.array(parts, dtype=kind).reshape(len(value), *shape[1:])


def _a_string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{name} must be a string, got {value!r:.80}")
    return value


def _a_range(name: str, value: Any) -> tuple[float, float]:
    low, high = (a_number(name, end) for end in a_list(name, value, 2))
    if not low <= high:
        raise Rejected(f"{name} must be a range, got {value!r:.80}")
    return low, high


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "any": lambda name, value: value,
    "text": _a_string,
    "flag": partial(one_of, choices=(True, False)),
    "true": partial(one_of, choices=(True,)),
    "count": partial(an_integer, least=0),
    "positive": partial(an_integer, least=1),
    "number": a_number,
    "above_0": partial(a_number, above=0.0),
    "share": partial(a_number, above=0.0, below=1.0),
    "range": _a_range,
}

# -- the file ----------------------------------------------------------------------------------------------------------


def content_of(source: Any) -> dict[str, Any]:
    """Return the JSON content of a certificate, or of the file that it is in, which may be parsed already."""
    if hasattr(source, "_content"):
        try:
            return json.loads(json.dumps(source._content()))
        except (TypeError, ValueError) as error:
            raise Rejected(f"the certificate cannot be written as JSON: {error}") from None
    content = dict(source) if isinstance(source, dict) else parsed(Path(source))
    if not isinstance(content, dict) or content.get("format") not in _KNOWN_VERSIONS:
        raise Rejected("this is not a certificate or an appraisal of entropic-bpi")
    known, version = _KNOWN_VERSIONS[content["format"]], content.get("version")
    if version not in known:
        known_words = " and ".join(map(str, known))
        raise Rejected(f"unknown version {version!r:.80}: this library checks versions {known_words}")
    digest = content.pop("digest", None)
    own = hashlib.sha256()
    for text in _texts_of(content):
        own.update(text.encode())
    if digest != own.hexdigest():
        raise Rejected("the digest does not match: the file was changed after it was written")
    try:
        return {"differences": [], **content} if content["format"] == APPRAISAL else _updated(content)
    except (KeyError, TypeError, AttributeError):
        raise Rejected(f"this is not a certificate of version {version}") from None


def _texts_of(content: Any) -> Iterator[str]:
    """Yield ``json.dumps(content, sort_keys=True)`` in parts, so that a large file is not in memory twice."""
    if not isinstance(content, dict):
        yield json.dumps(content, sort_keys=True)
        return
    separator = "{"
    for key in sorted(content):
        yield f"{separator}{json.dumps(key)}: "
        yield from _texts_of(content[key])
        separator = ", "
    yield "}" if content else "{}"


def _updated(content: dict[str, Any]) -> dict[str, Any]:
    """Return a certificate as it is written today: with all keys of version 4, and the assumptions in today's words."""
    if content["version"] == 3:
        origin = content["provenance"] = content.pop("circumstances")
        origin["preregistration"], origin["accepted"] = origin.pop("announcement"), []
        if origin["tests"] is not None:
            origin["tests"]["unchanging"] = None
        if origin["log"] is not None:
            origin["log"]["seen"] = False
    if "assumptions" not in content:
        return content
    content["provenance"] = {"accepted": [], "rewards": None, **content["provenance"]}
    content["claim"] = {"cuts": None, **content["claim"]}
    later = ("noise", "allowed", "reward", "explored", "state_labels", "action_labels", "unit", "title")
    content["problem"] = {**dict.fromkeys(later), **content["problem"]}
    if content["problem"]["noise"] is not None:
        content["problem"]["noise"] = {"observed": False, **content["problem"]["noise"]}
    content["counts"] = {"labels": [], **content["counts"]}
    for before, now in _OTHER_WORDS:
        content["assumptions"] = [text.replace(before, now) for text in content["assumptions"]]
    return content


def parsed(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return _parse(unpacked(path))
    except FileNotFoundError:
        raise Rejected(f"no such file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise Rejected(f"{path} is not a whole JSON file: {error}") from None


def unpacked(path: Path) -> bytes:
    """Return the content of a file, which may be compressed; refuse a small one that unpacks to a huge one."""
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    unpack = zlib.decompressobj(wbits=31)
    try:
        content = unpack.decompress(data, _MOST_GROWTH * len(data) + _ALWAYS_AFFORDED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpack.eof or unpack.unused_data:
        raise ValueError(f"it is damaged, or its compressed content is longer than {len(content)} bytes")
    return content


def _parse(data: bytes) -> Any:
    # In memory a list or an object takes about 100 bytes and a number 40, however short it is in the file.
    needed = 100 * (data.count(b"[") + data.count(b"{")) + 40 * data.count(b",")
    if needed > 20 * len(data) + _ALWAYS_AFFORDED:
        raise ValueError(f"its {len(data)} bytes would take {needed} in memory")
    return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object without repeated keys: of equal keys, some readers take the first and some the last."""
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the key {key!r:.80} is there {times} times")
    return dict(pairs)
