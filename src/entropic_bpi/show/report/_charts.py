"""The charts of the report: two axes, and rectangles, lines and points on them; the template writes them as SVG.

They need no script in the browser: the page stays small, prints sharply and can forbid every script but its own. Colours are
variables of the page's style, which knows light and dark; they are given as attributes, because the page's content security
policy forbids ``style``. Each mark may have a title, which a pointer shows and a screen reader reads.
"""

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

_RIGHT, _TOP, _BOTTOM = 406, 10, 174
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
    """A chart under construction: its axes, its marks, and what it shows in words.

    A mark is a tag of SVG, its attributes and its title; ``look`` are the attributes for its colours.
    """

    right, top, bottom = _RIGHT, _TOP, _BOTTOM

    def __init__(self, across: Axis, upwards: Axis, words: str = "") -> None:
        self.across, self.upwards, self.words = across, upwards, words
        self.left = _TITLE + _LETTER * max(map(len, map(upwards.label, upwards.ticks())), default=0)
        self.marks: list[tuple[str, str, str]] = []

    def x(self, value: float) -> float:
        return round(self.left + (_RIGHT - self.left) * self.across.share(value), 2)

    def y(self, value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * self.upwards.share(value), 2)

    def rectangle(self, ends: tuple[float, float], heights: tuple[float, float], look: str, title: str = "") -> None:
        """Draw a rectangle between two ends and two heights."""
        left, right = self.x(ends[0]), self.x(ends[1])
        bottom, top = self.y(heights[0]), self.y(heights[1])
        box = f'x="{left}" y="{top}" width="{max(right - left, 0.5):.2f}" height="{max(bottom - top, 0):.2f}"'
        self.marks.append(("rect", f"{box} {look}", title))

    def line(self, points: Iterable[tuple[float, float]], look: str, title: str = "", tag: str = "polyline") -> None:
        """Draw a line through points or, as a ``polygon``, the area inside."""
        path = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        self.marks.append((tag, f'points="{path}" {look}', title))

    def point(self, x: float, y: float, look: str, title: str) -> None:
        self.marks.append(("circle", f'cx="{self.x(x)}" cy="{self.y(y)}" r="2.2" {look}', title))


# -- the charts --------------------------------------------------------------------------------------------------------


def law_of_the_return(certificate: Certificate, expected: Expected) -> Drawing:
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
    drawing.words = (
        f"Estimated returns: mean {few(mean)}, from {few(lowest)} to {few(highest)}. Certified: the value of the policy is "
        f"at least {least}, the best value at most {most}."
    )
    return drawing


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


def fall_of_the_gap(history: np.ndarray, eps: float, unit: str | None) -> Drawing | None:
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
    drawing.words = (
        f"The certified gap fell from {few(gaps[0])} after {episodes[0]:,} episodes to {few(gaps[-1])} after "
        f"{episodes[-1]:,}; the smallest was {few(best[-1])}, the goal is {few(eps)}."
    )
    return drawing


def laws_of_policies(appraisal: Appraisal) -> Drawing:
    """Draw the bounds of the laws of the return of all policies."""
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
    drawing.words = f"Bounds of the laws of the return. {'; '.join(words)}."
    return drawing


def in_unit(text: str, unit: str | None) -> str:
    """Return a title of an axis with the declared unit."""
    return f"{text} ({unit or 'units of reward'})"
