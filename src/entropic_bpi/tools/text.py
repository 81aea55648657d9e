"""Text from outside the library, such as names in a model file, made safe for terminals, figures and messages."""

import ast
import math
from typing import Any

_LONGEST_SHOWN = 200


def printable(text: str) -> str:
    r"""Return ``text`` with every character escaped that is not printable.

    These are control characters, which terminals execute, marks that change the direction of writing, line breaks, and
    surrogates, which cannot be encoded:

    >>> print(printable("\x1b]0;title\x07, [red], β"))
    \x1b]0;title\x07, [red], β
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def drawable(text: str) -> str:
    """Return :func:`printable` text for Matplotlib, with dollar signs escaped, which would begin formulas."""
    return printable(text).replace("$", r"\$")


def shown(value: Any) -> str:
    """Return a short text for ``value`` in an error message: its ``repr``, truncated. Never raises an exception."""
    try:
        text = printable(repr(value))
    except Exception:  # an object of the user, or an integer with more digits than Python converts
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"


def duration(seconds: float) -> str:
    """Return a time in words: seconds, minutes or hours.

    Examples
    --------
    >>> duration(0.2), duration(150.0), duration(7200.0)
    ('1 s', '2 min', '2 h')
    """
    if seconds < 100:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def parse_literal(text: str) -> Any:
    """Return the number, boolean, None, list or tuple that ``text`` denotes; any other text is returned unchanged.

    >>> parse_literal("36"), parse_literal("[1, (2, 3)]"), parse_literal("true"), parse_literal("here")
    (36, [1, (2, 3)], True, 'here')
    """
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
