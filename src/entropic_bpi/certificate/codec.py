"""Objects as JSON and back, by the types of their fields.

:func:`encode` writes named tuples, arrays and what they are made of; :func:`decode` reads what it wrote. A field that is
added is written and read without further code. Files of unknown origin are first checked by the code of the verifier.
"""

from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np


def encode(value: Any) -> Any:
    """Return ``value`` in terms of JSON: named tuples as objects, arrays and tuples as lists."""
    if hasattr(value, "_asdict"):
        return {name: encode(part) for name, part in value._asdict().items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [encode(part) for part in value] if isinstance(value, (list, tuple)) else value


def decode(kind: Any, value: Any) -> Any:
    """Return the value of type ``kind`` that is written as ``value``; an array is annotated with the type of its numbers."""
    origin, parts = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin is Annotated:
        return np.array(value, dtype=np.int64 if parts[1] is int else float)
    if origin in (list, tuple, Sequence):
        return (list if origin is list else tuple)(decode(parts[0], item) for item in value)
    if parts:
        return decode(next(part for part in parts if _may_be(part, value)), value)
    if hasattr(kind, "_fields"):
        return kind(**decode_fields(kind, value))
    return float(value) if kind is float else value


def decode_fields(kind: Any, content: dict[str, Any]) -> dict[str, Any]:
    """Return those fields of ``kind`` that ``content`` has."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: decode(hints[name], value) for name, value in content.items()}


def _may_be(kind: Any, value: Any) -> bool:
    """Return whether ``value`` may be the JSON form of ``kind``, one of the types of a field."""
    if isinstance(value, dict):
        return hasattr(kind, "_fields")
    if isinstance(value, list):
        return get_origin(kind) is not None
    return kind is str if isinstance(value, str) else kind in (bool, int, float)
