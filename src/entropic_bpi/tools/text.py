"""Words from outside, such as the names in somebody else's model, made safe to print, to draw and to put into messages."""

from __future__ import annotations

from typing import Any

__all__ = ["drawable", "printable", "shown"]

_LONGEST_SHOWN = 200


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


def shown(value: Any) -> str:
    """What was given, for an error message: its ``repr``, not too long, whatever that does."""
    try:
        text = printable(repr(value))
    except Exception:  # the repr of an object of the user's, or of an integer with more digits than Python writes
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"
