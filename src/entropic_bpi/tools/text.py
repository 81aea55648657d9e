"""Words from outside, such as the names in somebody else's model, made safe to print, to draw and to put into messages."""

import ast
import math
from typing import Any

_LONGEST_SHOWN = 200


def printable(text: str) -> str:
    r"""``text`` with everything escaped that would act on a terminal rather than show.

    Control characters, marks that change the direction of writing, line breaks, and surrogates that no encoding has:

    >>> print(printable("\x1b]0;title\x07, [red], β"))
    \x1b]0;title\x07, [red], β
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def drawable(text: str) -> str:
    """The same for Matplotlib, where a dollar sign would begin a formula."""
    return printable(text).replace("$", r"\$")


def shown(value: Any) -> str:
    """What was given, for an error message: its ``repr``, not too long, whatever that does."""
    try:
        text = printable(repr(value))
    except Exception:  # the repr of an object of the user's, or of an integer with more digits than Python writes
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"


def duration(seconds: float) -> str:
    """A time in words: seconds, minutes or hours.

    Examples
    --------
    >>> duration(0.2), duration(150.0), duration(7200.0)
    ('1 s', '2 min', '2 h')
    """
    if seconds < 100:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def parse_literal(text: str) -> Any:
    """Return the number, true, false, none, list or tuple that is written; anything else is a string.

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
