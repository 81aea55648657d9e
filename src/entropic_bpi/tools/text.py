"""Words from outside, such as the names in somebody else's model, made safe to print, to draw and to put into messages."""

from __future__ import annotations

import ast
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

__all__ = ["certainty", "drawable", "parse_literal", "printable", "rounded", "shown"]

_LONGEST_SHOWN = 200
_DIGITS = 4
# Below this probability of failure, 1 minus it has too many nines to read.
_READABLE = 1e-6


def printable(text: str) -> str:
    r"""``text`` with everything escaped that would act on a terminal rather than show.

    Control characters, marks that change the direction of writing, line breaks, and surrogates that no encoding has:

    >>> print(printable("\x1b]0;title\x07, [red], β"))
    \x1b]0;title\x07, [red], β
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def drawable(text: str) -> str:
    """The same for Matplotlib, where a dollar sign would begin a formula."""
    return printable(text).replace("$", r"\$")


def certainty(delta: float) -> str:
    """1 - ``delta``, to all its digits: rounded it might be 1.

    >>> certainty(0.05), certainty(1e-9)
    ('0.95', '1 - 1e-09')
    """
    exact = repr(float(delta))
    return f"{1 - Decimal(exact):f}" if delta >= _READABLE else f"1 - {exact}"


def rounded(value: float, side: int) -> str:
    """A number with a few digits, rounded up (``side`` 1) or down (-1): what is claimed of it stays true.

    >>> rounded(0.12341, 1), rounded(0.12341, -1), rounded(-2.00001, -1), rounded(12345.6, 1)
    ('0.1235', '0.1234', '-2.001', '12350')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(value)
    last = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    kept = (exact / last).to_integral_value(ROUND_CEILING if side > 0 else ROUND_FLOOR) * last
    return f"{float(kept):.{_DIGITS + 1}g}" if 1e-4 <= abs(kept) < 1e6 else f"{float(kept):g}"


def shown(value: Any) -> str:
    """What was given, for an error message: its ``repr``, not too long, whatever that does."""
    try:
        text = printable(repr(value))
    except Exception:  # the repr of an object of the user's, or of an integer with more digits than Python writes
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"


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
