"""Objects as JSON and back, by the types of their fields.

:func:`encode` writes named tuples, arrays and what they are made of. :func:`read_object` reads the fields of a named tuple
or a dataclass from a file of unknown origin: each has the reader of its type, unless another one is given. A field that is
added is written and read without further code.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from entropic_bpi.errors import CertificateError
from entropic_bpi.tools.checks import LARGEST_COUNT, LARGEST_REAL
from entropic_bpi.tools.files import read_unpacked

Reader = Callable[[str, Any], Any]
"""``(name, value)``: returns the value that is written in JSON, or raises a ``CertificateError`` that names it."""

_ALWAYS_AFFORDED = 2**26  # bytes of memory that any file may take


def encode(value: Any) -> Any:
    """Return ``value`` in terms of JSON: named tuples as objects, arrays and tuples as lists."""
    if hasattr(value, "_asdict"):
        return {name: encode(part) for name, part in value._asdict().items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [encode(part) for part in value] if isinstance(value, (list, tuple)) else value


def read_object(kind: Any, name: str, value: Any, **readers: Reader) -> dict[str, Any]:
    """Return the fields of ``kind`` from a JSON object with these keys alone; ``readers`` replace those of the types."""
    keys = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    return read_fields(kind, object_with(name, value, *keys), {key: f"{name}.{key}" for key in keys}, readers)


def read_fields(
    kind: Any, given: Mapping[str, Any], names: Mapping[str, str], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """Return those fields of ``kind`` that have a name for errors."""
    hints = get_type_hints(kind, include_extras=True)
    return {key: (readers.get(key) or reader_of(hints[key]))(name, given[key]) for key, name in names.items()}


def reader_of(hint: Any) -> Reader:
    """Return the reader of a type; an array is annotated with the type of its numbers."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return partial(array, shape=(None,), kind=parts[1])
    if origin in (Union, UnionType):
        return partial(_either, readers=[reader_of(part) for part in parts])
    if origin in (list, tuple, Sequence):
        return partial(items, container=list if origin is list else tuple, read=reader_of(parts[0]))
    simple: dict[Any, Reader] = {
        int: partial(integer, least=0),
        float: real,
        str: text,
        bool: partial(choice, choices=(True, False)),
        type(None): partial(choice, choices=(None,)),
    }
    return simple.get(hint) or (lambda name, value: hint(**read_object(hint, name, value)))


def _either(name: str, value: Any, readers: list[Reader]) -> Any:
    """Read the first alternative that fits; what fits none is reported as the first, which None follows."""
    refusals = []
    for read in readers:
        try:
            return read(name, value)
        except CertificateError as error:
            refusals.append(error)
    raise refusals[0]


def parse(path: Path) -> tuple[Any, int]:
    """The content of a JSON file, compressed or not, whose keys differ and whose numbers are finite, and its size in bytes.

    A file that would take far more memory than its size is refused.
    """
    try:
        data = read_unpacked(path)
        # In memory a list or an object takes about 100 bytes and a number 40, however few it takes in the file.
        needed = 100 * (data.count(b"[") + data.count(b"{")) + 40 * data.count(b",")
        if needed > 20 * len(data) + _ALWAYS_AFFORDED:
            raise ValueError(f"its {len(data)} bytes would take {needed} in memory")
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_unrepeated), len(data)
    except FileNotFoundError:
        raise CertificateError(f"no such file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CertificateError(f"{path} is not a readable JSON file: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key is there twice")
    return content


# -- values ------------------------------------------------------------------------------------------------------


def require(holds: Any, what: str, *given: Any) -> None:
    """Raise an error that says what must hold and, where that is named, what was given instead."""
    if not holds:
        raise CertificateError(what + "".join(f"; got {value!r:.80}" for value in given))


def object_with(name: str, value: Any, *keys: str) -> dict[str, Any]:
    """A JSON object with these keys and no others."""
    given = sorted(value) if isinstance(value, dict) else None
    require(given == sorted(keys), f"{name} must be an object with the keys {', '.join(keys)}", given or value)
    return value


def items(name: str, value: Any, container: type, read: Reader) -> Any:
    require(isinstance(value, list), f"{name} must be a list", value)
    return container(read(name, item) for item in value)


def integer(name: str, value: Any, least: int, most: int = LARGEST_COUNT) -> int:
    fits = type(value) is int and least <= value <= most
    require(fits, f"{name} must be an integer from {least} to {most}", value)
    return value


def real(name: str, value: Any) -> float:
    require(type(value) in (int, float) and abs(value) <= LARGEST_REAL, f"{name} must be a finite number", value)
    return float(value)


def choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    options = list(choices)
    fits = any(type(value) is type(option) and value == option for option in options)
    require(fits, f"{name} must be one of {', '.join(map(repr, options))}", value)
    return value


def text(name: str, value: Any) -> str:
    require(isinstance(value, str), f"{name} must be a string", value)
    return value


def names(name: str, value: Any, length: int) -> tuple[str, ...]:
    given = tuple(text(name, item) for item in value) if isinstance(value, list) else ()
    require(len(given) == len(set(given)) == length, f"{name} must be {length} different strings", value)
    return given


def array(name: str, value: Any, shape: tuple[int | None, ...], kind: type[int] | type[float]) -> np.ndarray:
    """Nested lists of numbers as an array; None stands for any length of the first axis."""
    lengths = [len(value) if length is None and isinstance(value, list) else length for length in shape]
    numbers = [value]
    for length in lengths:
        fits = all(isinstance(item, list) and len(item) == length for item in numbers)
        require(fits, f"{name} must have shape {(*lengths,)}", value)
        numbers = [number for item in numbers for number in item]
    kinds, most = ((int,), LARGEST_COUNT) if kind is int else ((int, float), LARGEST_REAL)
    for number in numbers:
        if type(number) not in kinds:
            require(False, f"{name} must hold numbers of type {kind.__name__}", number)
        if not abs(number) <= most:
            require(False, f"{name} must hold numbers from {-most:g} to {most:g}", number)
    return np.array(numbers, dtype=np.int64 if kind is int else float).reshape([length or 0 for length in lengths])
