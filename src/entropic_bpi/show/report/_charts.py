"""The charts of the report, drawn as SVG when the report is made.

They need no script in the browser: the page stays small, prints sharply and can forbid every script but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.show.decisions import drawn_band, value_range
from entropic_bpi.show.report._returns import Expected
from entropic_bpi.show.report._svg import Axis, Drawing
from entropic_bpi.show.words import Rounding, name, number, signed

if TYPE_CHECKING:
    from entropic_bpi.runs.appraisal import Appraisal

Chart = tuple[str, str]
"""The SVG, and what it shows in words."""

_MOST_BARS = 30
_MOST_POINTS = 120
_HEADROOM = 1.08
# Half of the width of a single bar, in parts of the axis.
_THIN = 0.02


class _Bar(NamedTuple):
    low: float
    high: float
    share: float
    title: str


def law_of_the_return(certificate: Certificate, expected: Expected) -> Chart:
    """Draw the estimated law of the return, and the certified interval of the value on the same axis."""
    lower, upper, to = certificate.lower, certificate.upper, Rounding.of(certificate)
    certified = to.at_least(lower), to.at_most(upper)
    bars = _bars(expected.returns, min(lower, expected.returns.min()), max(upper, expected.returns.max()))
    top = max(bar.share for bar in bars) * _HEADROOM
    left, right = min(bars[0].low, lower), max(bars[-1].high, upper)
    drawing = Drawing(
        Axis(in_unit("return of an episode", certificate.problem), left, right),
        Axis("share of episodes", 0.0, top, label=lambda share: f"{100 * share:.3g} %"),
    )
    title = f"certified: {' to '.join(certified)}"
    drawing.rectangle((lower, upper), (0.0, top), 'fill="var(--band)" fill-opacity="0.28"', title)
    for end in (lower, upper):
        drawing.line([(end, 0.0), (end, top)], 'stroke="var(--band)" stroke-width="1.5"')
    for bar in bars:
        drawing.rectangle((bar.low, bar.high), (0.0, bar.share), 'fill="var(--data)"', bar.title)
    words = (
        f"Estimated returns: mean {_few(expected.returns.mean())}, from {_few(expected.returns.min())} to "
        f"{_few(expected.returns.max())}. Certified: the value of the policy is at least {certified[0]}, the best value at "
        f"most {certified[1]}."
    )
    return drawing.svg(), words


def _bars(returns: np.ndarray, left: float, right: float) -> list[_Bar]:
    """The law as bars on an axis between two ends: one for each return if they are few, or else of equal width."""
    values, times = np.unique(returns.round(12), return_counts=True)
    if len(values) <= _MOST_BARS:
        half = min(0.4 * np.diff(values).min(initial=np.inf), _THIN * (right - left) or 1.0)
        edges, titles = np.stack([values - half, values + half], axis=1), [f"return {_few(value)}" for value in values]
    else:
        times, borders = np.histogram(returns, bins=_MOST_BARS)
        edges = np.stack([borders[:-1], borders[1:]], axis=1)
        titles = [f"return {_few(low)} to {_few(high)}" for low, high in edges]
    shares = times / len(returns)
    return [
        _Bar(low, high, share, f"{title}: {share:.1%} of episodes")
        for (low, high), share, title in zip(edges.tolist(), shares.tolist(), titles, strict=True)
        if share > 0
    ]


def fall_of_the_gap(history: np.ndarray, eps: float, problem: Any) -> Chart | None:
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
    drawing = Drawing(
        Axis("episodes", first, last, log=True), Axis(in_unit("certified gap", problem), low, high, log=True)
    )
    for column, look in ((gaps, 'stroke-width="1" stroke-opacity="0.55"'), (best, 'stroke-width="2.4"')):
        points = list(zip(episodes[kept].tolist(), column[kept].tolist(), strict=True))
        drawing.line(points, f'stroke="var(--data)" {look}')
    for n, gap, least in zip(episodes[kept].tolist(), gaps[kept].tolist(), best[kept].tolist(), strict=True):
        title = f"{int(n):,} episodes: gap {_few(gap)}, smallest so far {_few(least)}"
        drawing.point(n, gap, 'fill="var(--data)"', title)
    goal = 'stroke="var(--goal)" stroke-width="2" stroke-dasharray="6 4"'
    drawing.line([(first, eps), (last, eps)], goal, f"goal: {_few(eps)}")
    words = (
        f"The certified gap fell from {_few(gaps[0])} after {episodes[0]:,} episodes to {_few(gaps[-1])} after "
        f"{episodes[-1]:,}; the smallest was {_few(best[-1])}, the goal is {_few(eps)}."
    )
    return drawing.svg(), words


def laws_of_policies(appraisal: Appraisal) -> Chart | None:
    """Draw the bounds of the laws of the return of all policies; None where rewards are random."""
    if not appraisal.bands:
        return None
    left, right = value_range(appraisal)
    unit = "" if appraisal.unit is None else f" ({name(appraisal.unit)})"
    drawing = Drawing(
        Axis(f"return of an episode{unit}", left, right),
        Axis("share of episodes", 0.0, 1.0, label=lambda share: f"{100 * share:.0f} %"),
    )
    for place, policy in enumerate(appraisal.bands):
        colour = f"var(--a{place % 8})"
        x, lower, upper = (part.tolist() for part in drawn_band(appraisal, policy))
        there, back = list(zip(x, upper, strict=True)), list(zip(x, lower, strict=True))
        drawing.area([*there, *reversed(back)], f'fill="{colour}" fill-opacity="0.3"', f"{name(policy)}: bounds")
        for side in (there, back):
            drawing.line(side, f'stroke="{colour}" stroke-width="1.5"')
    words = "; ".join(
        f"{name(policy)}: half of the episodes earn at most {_few(_median(band.lower, band.thresholds))}"
        for policy, band in appraisal.bands.items()
    )
    return drawing.svg(), f"Bounds of the laws of the return. {words}."


def _median(lower: np.ndarray, thresholds: np.ndarray) -> float:
    return float(thresholds[int(np.argmax(lower >= 0.5))])


def in_unit(text: str, problem: Any) -> str:
    """A title of an axis with the declared unit."""
    unit = getattr(problem, "unit", None)
    return f"{text} ({'units of reward' if unit is None else name(unit)})"


def _few(value: float) -> str:
    return signed(number(float(value)))
