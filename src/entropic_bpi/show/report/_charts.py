"""The charts of the report, drawn as SVG when the report is made: two axes, and rectangles, lines and points on them.

They need no script in the browser: the page stays small, prints sharply and can forbid every script but its own. Colours are
variables of the page's style, which knows light and dark; they are given as attributes, because the page's content security
policy forbids ``style``. Each mark may have a title, which a pointer shows and a screen reader reads.
"""

import html
import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.show.decisions import drawn_band, value_range
from entropic_bpi.show.report._returns import Expected
from entropic_bpi.show.words import Rounding, few, name, unit_of, with_unit

Chart = tuple[str, str]
"""The SVG, and what it shows in words."""

_WIDTH, _HEIGHT = 420, 220
_RIGHT, _TOP, _BOTTOM = 14, 10, 46
_MOST_TICKS, _MOST_BARS, _MOST_POINTS = 5, 30, 120
# Widths of a character, of the title beside the axis, and of the space between two labels.
_LETTER, _TITLE, _APART = 6.7, 26, 12
_HEADROOM = 1.08
# Half of the width of a single bar, in parts of the axis.
_THIN = 0.02


class Axis(NamedTuple):
    """An axis: its title, its ends, whether it is logarithmic, and how a number is written on it."""

    title: str
    low: float
    high: float
    log: bool = False
    label: Callable[[float], str] = lambda value: few(value, 6)

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
    every = max(1, math.ceil((last - first) / _MOST_TICKS))
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
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
        self._length = _WIDTH - self.left - _RIGHT
        self._marks: list[str] = []

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

    def line(self, points: Iterable[tuple[float, float]], look: str, title: str = "", tag: str = "polyline") -> None:
        """Draw a line through points or, as a ``polygon``, the area inside."""
        path = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        self._mark(tag, f'points="{path}" {look}', title)

    def point(self, x: float, y: float, look: str, title: str) -> None:
        self._mark("circle", f'cx="{self.x(x)}" cy="{self.y(y)}" r="2.2" {look}', title)

    def _mark(self, tag: str, attributes: str, title: str) -> None:
        words = html.escape(title)
        label = f' role="img" aria-label="{words}"' if title else ' aria-hidden="true"'
        inside = f"<title>{words}</title>" if title else ""
        self._marks.append(f"<{tag} {attributes}{label}>{inside}</{tag}>")

    def svg(self) -> str:
        """Return the chart as the text of an ``svg`` element."""
        bottom, right, parts = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, []
        for tick in self.across.ticks(self._length):
            parts.append(_segment(self.x(tick), bottom, self.x(tick), bottom + 4, "quiet"))
            parts.append(_text(self.x(tick), bottom + 18, self.across.label(tick), "middle", "quiet"))
        for tick in self.upwards.ticks():
            parts.append(_segment(self.left, self.y(tick), right, self.y(tick), "line"))
            parts.append(_text(self.left - 6, self.y(tick) + 4, self.upwards.label(tick), "end", "quiet"))
        middle, size = (_TOP + bottom) / 2, f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        lines = [
            f'<svg {size} xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12">',
            *parts,
            _segment(self.left, bottom, right, bottom, "quiet"),
            _text((self.left + right) / 2, _HEIGHT - 8, self.across.title, "middle", "text"),
            _text(12, middle, self.upwards.title, "middle", "text", f' transform="rotate(-90 12 {middle})"'),
            *self._marks,
            "</svg>",
        ]
        return "\n".join(lines)


def _segment(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="var(--{colour})"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str, more: str = "") -> str:
    look = f'text-anchor="{anchor}" fill="var(--{colour})"'
    return f'<text x="{x}" y="{y}" {look}{more}>{html.escape(words)}</text>'


# -- the charts --------------------------------------------------------------------------------------------------------


def law_of_the_return(certificate: Certificate, expected: Expected) -> Chart:
    """Draw the estimated law of the return, and the certified interval of the value on the same axis."""
    lower, upper, to, unit = certificate.lower, certificate.upper, Rounding.of(certificate), unit_of(certificate)
    least, most = with_unit(to.at_least(lower), unit), with_unit(to.at_most(upper), unit)
    lowest, mean, highest = expected.returns.min(), expected.returns.mean(), expected.returns.max()
    edges, shares, titles = _bars(expected.returns, max(upper, highest) - min(lower, lowest))
    top = shares.max() * _HEADROOM
    drawing = Drawing(
        Axis(in_unit("return of an episode", unit), min(edges.min(), lower), max(edges.max(), upper)),
        Axis("share of episodes", 0.0, top, label=lambda share: f"{100 * share:.3g} %"),
    )
    drawing.rectangle(
        (lower, upper), (0.0, top), 'fill="var(--band)" fill-opacity="0.28"', f"certified: {least} to {most}"
    )
    for end in (lower, upper):
        drawing.line([(end, 0.0), (end, top)], 'fill="none" stroke="var(--band)" stroke-width="1.5"')
    for (low, high), share, title in zip(edges.tolist(), shares.tolist(), titles, strict=True):
        drawing.rectangle((low, high), (0.0, share), 'fill="var(--data)"', f"{title}: {share:.1%} of episodes")
    words = (
        f"Estimated returns: mean {few(mean)}, from {few(lowest)} to {few(highest)}. Certified: the value of the policy is "
        f"at least {least}, the best value at most {most}."
    )
    return drawing.svg(), words


def _bars(returns: np.ndarray, length: float) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return edges, shares and titles of bars: one for each return if they are few, or else of equal width."""
    values, times = np.unique(returns.round(12), return_counts=True)
    if len(values) <= _MOST_BARS:
        half = min(0.4 * np.diff(values).min(initial=np.inf), _THIN * length or 1.0)
        edges, titles = np.stack([values - half, values + half], axis=1), [f"return {few(value)}" for value in values]
    else:
        times, borders = np.histogram(returns, bins=_MOST_BARS)
        edges = np.stack([borders[:-1], borders[1:]], axis=1)[times > 0]
        titles = [f"return {few(low)} to {few(high)}" for low, high in edges]
    return edges, times[times > 0] / len(returns), titles


def fall_of_the_gap(history: np.ndarray, eps: float, unit: str | None) -> Chart | None:
    """Draw the certified gap of each plan, the smallest so far, and the goal; None if there is nothing to draw."""
    gaps = np.minimum(history["gap"], history["upper"] - history["lower"])
    drawn = np.isfinite(gaps) & (gaps > 0) & (history["episodes"] > 0)
    episodes, gaps = history["episodes"][drawn], gaps[drawn]
    if not len(gaps):
        return None
    best = np.minimum.accumulate(gaps)
    spaced = np.searchsorted(episodes, np.geomspace(episodes[0], episodes[-1], _MOST_POINTS))
    kept = np.unique(np.minimum(spaced, len(episodes) - 1))
    first, last = int(episodes[0]), max(int(episodes[-1]), int(episodes[0]) + 1)
    low, high = 0.9 * min(eps, float(gaps.min())), 1.1 * max(eps, float(gaps.max()))
    upwards = Axis(in_unit("certified gap", unit), low, high, log=True)
    drawing = Drawing(Axis("episodes", first, last, log=True), upwards)
    points = list(zip(*(column[kept].tolist() for column in (episodes, gaps, best)), strict=True))
    for column, look in ((1, 'stroke-width="1" stroke-opacity="0.55"'), (2, 'stroke-width="2.4"')):
        drawing.line([(point[0], point[column]) for point in points], f'fill="none" stroke="var(--data)" {look}')
    for n, gap, least in points:
        title = f"{int(n):,} episodes: gap {few(gap)}, smallest so far {few(least)}"
        drawing.point(n, gap, 'fill="var(--data)"', title)
    goal = 'fill="none" stroke="var(--goal)" stroke-width="2" stroke-dasharray="6 4"'
    drawing.line([(first, eps), (last, eps)], goal, f"goal: {few(eps)}")
    words = (
        f"The certified gap fell from {few(gaps[0])} after {episodes[0]:,} episodes to {few(gaps[-1])} after "
        f"{episodes[-1]:,}; the smallest was {few(best[-1])}, the goal is {few(eps)}."
    )
    return drawing.svg(), words


def laws_of_policies(appraisal: Appraisal) -> Chart | None:
    """Draw the bounds of the laws of the return of all policies; None where rewards are random."""
    if not appraisal.bands:
        return None
    unit = "" if appraisal.unit is None else f" ({name(appraisal.unit)})"
    drawing = Drawing(
        Axis(f"return of an episode{unit}", *value_range(appraisal)),
        Axis("share of episodes", 0.0, 1.0, label=lambda share: f"{100 * share:.0f} %"),
    )
    words = []
    for place, (policy, band) in enumerate(appraisal.bands.items()):
        colour, half = f"var(--a{place % 8})", int(np.argmax(band.lower >= 0.5))
        x, lower, upper = (part.tolist() for part in drawn_band(appraisal, policy))
        there, back = list(zip(x, upper, strict=True)), list(zip(x, lower, strict=True))
        look = f'fill="{colour}" fill-opacity="0.3"'
        drawing.line([*there, *reversed(back)], look, f"{name(policy)}: bounds", "polygon")
        for side in (there, back):
            drawing.line(side, f'fill="none" stroke="{colour}" stroke-width="1.5"')
        words.append(f"{name(policy)}: half of the episodes earn at most {few(band.thresholds[half])}")
    return drawing.svg(), f"Bounds of the laws of the return. {'; '.join(words)}."


def in_unit(text: str, unit: str | None) -> str:
    """Return a title of an axis with the declared unit."""
    return f"{text} ({unit or 'units of reward'})"
