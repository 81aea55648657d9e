"""Draw charts as SVG text: two axes, and rectangles, lines, points and rules on them.

Colours are variables of the page's style, which knows light and dark; they are given as attributes, because the page's
content security policy forbids ``style``. Each mark may have a title, which a pointer shows and a screen reader reads.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from entropic_bpi.show.words import number

_WIDTH, _HEIGHT = 420, 220
_RIGHT, _TOP, _BOTTOM = 14, 10, 46
_MOST_TICKS = 5
# Widths of a character, of the title beside the axis, and of the space between two labels.
_LETTER, _TITLE, _APART = 6.7, 26, 12


class Axis(NamedTuple):
    """An axis: its title, its ends, whether it is logarithmic, and how a number is written on it."""

    title: str
    low: float
    high: float
    log: bool = False
    label: Callable[[float], str] = lambda value: number(value, 6).replace("-", "−")

    def share(self, value: float) -> float:
        """Where a value lies between the ends, as a number from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, length: float = math.inf) -> list[float]:
        """Return round numbers between the ends, so few that their labels do not overlap on an axis of this length."""
        ticks = _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)
        while len(ticks) > 2 and any(
            (self.share(after) - self.share(before)) * length
            < (len(self.label(after)) + len(self.label(before))) / 2 * _LETTER + _APART
            for before, after in pairwise(ticks)
        ):
            ticks = ticks[::2]
        return ticks


def _linear_ticks(low: float, high: float) -> list[float]:
    unit = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(factor * unit for factor in (1, 2, 5, 10, 20) if (high - low) / (factor * unit) <= _MOST_TICKS)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        every = max(1, math.ceil((last - first) / _MOST_TICKS))
        ticks = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 2:
            return inside[:: math.ceil(len(inside) / _MOST_TICKS)]
    return [low, high]


class Drawing:
    """A chart under construction; ``across`` and ``upwards`` are its axes."""

    def __init__(self, across: Axis, upwards: Axis) -> None:
        self.across, self.upwards = across, upwards
        self.left = _TITLE + _LETTER * max(map(len, map(upwards.label, upwards.ticks())), default=0)
        self._marks: list[str] = []

    @property
    def _length(self) -> float:
        return _WIDTH - self.left - _RIGHT

    def x(self, value: float) -> float:
        return round(self.left + self._length * self.across.share(value), 2)

    def y(self, value: float) -> float:
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - self.upwards.share(value)), 2)

    def rectangle(self, ends: tuple[float, float], heights: tuple[float, float], look: str, title: str = "") -> None:
        """Draw a rectangle between two ends and two heights; ``look`` are its attributes."""
        left, right = self.x(ends[0]), self.x(ends[1])
        bottom, top = self.y(heights[0]), self.y(heights[1])
        box = f'x="{left}" y="{top}" width="{max(right - left, 0.5):.2f}" height="{max(bottom - top, 0):.2f}"'
        self._mark("rect", f"{box} {look}", title)

    def line(self, points: Sequence[tuple[float, float]], look: str, title: str = "") -> None:
        path = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        self._mark("polyline", f'points="{path}" fill="none" {look}', title)

    def area(self, points: Sequence[tuple[float, float]], look: str, title: str = "") -> None:
        path = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        self._mark("polygon", f'points="{path}" {look}', title)

    def point(self, x: float, y: float, look: str, title: str) -> None:
        self._mark("circle", f'cx="{self.x(x)}" cy="{self.y(y)}" r="2.2" {look}', title)

    def _mark(self, tag: str, attributes: str, title: str) -> None:
        words = html.escape(title)
        label = f' role="img" aria-label="{words}"' if title else ' aria-hidden="true"'
        inside = f"<title>{words}</title>" if title else ""
        self._marks.append(f"<{tag} {attributes}{label}>{inside}</{tag}>")

    def svg(self) -> str:
        """Return the chart as the text of an ``svg`` element."""
        return "\n".join(
            [
                f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="http://www.w3.org/2000/svg" '
                'font-family="system-ui, sans-serif" font-size="12">',
                *self._axes(),
                *self._marks,
                "</svg>",
            ]
        )

    def _axes(self) -> list[str]:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        parts = []
        for tick in self.across.ticks(self._length):
            parts.append(_segment(self.x(tick), bottom, self.x(tick), bottom + 4, "quiet"))
            parts.append(_text(self.x(tick), bottom + 18, self.across.label(tick), "middle", "quiet"))
        for tick in self.upwards.ticks():
            parts.append(_segment(self.left, self.y(tick), right, self.y(tick), "line"))
            parts.append(_text(self.left - 6, self.y(tick) + 4, self.upwards.label(tick), "end", "quiet"))
        middle = (_TOP + bottom) / 2
        turned = f' transform="rotate(-90 12 {middle})"'
        return [
            *parts,
            _segment(self.left, bottom, right, bottom, "quiet"),
            _text((self.left + right) / 2, _HEIGHT - 8, self.across.title, "middle", "text"),
            _text(12, middle, self.upwards.title, "middle", "text", turned),
        ]


def _segment(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="var(--{colour})"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str, more: str = "") -> str:
    look = f'text-anchor="{anchor}" fill="var(--{colour})"'
    return f'<text x="{x}" y="{y}" {look}{more}>{html.escape(words)}</text>'
