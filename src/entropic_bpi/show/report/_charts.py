"""The charts of the report, drawn as SVG when the report is made.

They need no script in the browser: the page stays small, prints sharply and can forbid every script but its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.show.report._returns import Expected
from entropic_bpi.show.report._svg import Axis, Drawing
from entropic_bpi.show.words import Rounding

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
        Axis("return of an episode (units of reward)", left, right),
        Axis("share of episodes", 0.0, top, label=lambda share: f"{100 * share:.3g} %"),
    )
    title = f"certified: {' to '.join(certified)}"
    drawing.rectangle((lower, upper), (0.0, top), 'fill="var(--band)" fill-opacity="0.28"', title)
    for end in (lower, upper):
        drawing.line([(end, 0.0), (end, top)], 'stroke="var(--band)" stroke-width="1.5"')
    for bar in bars:
        drawing.rectangle((bar.low, bar.high), (0.0, bar.share), 'fill="var(--data)"', bar.title)
    words = (
        f"Estimated returns: mean {expected.returns.mean():.4g}, from {expected.returns.min():.4g} to "
        f"{expected.returns.max():.4g}. Certified: the value of the policy is at least {certified[0]}, the best value at "
        f"most {certified[1]}."
    )
    return drawing.svg(), words


def _bars(returns: np.ndarray, left: float, right: float) -> list[_Bar]:
    """The law as bars on an axis between two ends: one for each return if they are few, or else of equal width."""
    values, times = np.unique(returns.round(12), return_counts=True)
    if len(values) <= _MOST_BARS:
        half = min(0.4 * np.diff(values).min(initial=np.inf), _THIN * (right - left) or 1.0)
        edges, titles = np.stack([values - half, values + half], axis=1), [f"return {value:.4g}" for value in values]
    else:
        times, borders = np.histogram(returns, bins=_MOST_BARS)
        edges = np.stack([borders[:-1], borders[1:]], axis=1)
        titles = [f"return {low:.4g} to {high:.4g}" for low, high in edges]
    shares = times / len(returns)
    return [
        _Bar(low, high, share, f"{title}: {share:.1%} of episodes")
        for (low, high), share, title in zip(edges.tolist(), shares.tolist(), titles, strict=True)
        if share > 0
    ]


def fall_of_the_gap(history: np.ndarray, eps: float) -> Chart | None:
    """Draw the certified gap against the number of episodes, and the goal; None if there is nothing to draw."""
    gaps = np.minimum(history["gap"], history["upper"] - history["lower"])
    drawn = np.isfinite(gaps) & (gaps > 0) & (history["episodes"] > 0)
    episodes, gaps = history["episodes"][drawn], gaps[drawn]
    if not len(gaps):
        return None
    spaced = np.searchsorted(episodes, np.geomspace(episodes[0], episodes[-1], _MOST_POINTS))
    kept = np.unique(np.minimum(spaced, len(episodes) - 1))
    points = [(int(n), float(gap)) for n, gap in zip(episodes[kept], gaps[kept], strict=True)]
    first, last = int(episodes[0]), max(int(episodes[-1]), int(episodes[0]) + 1)
    low, high = 0.9 * min(eps, float(gaps.min())), 1.1 * max(eps, float(gaps.max()))
    drawing = Drawing(
        Axis("episodes", first, last, log=True), Axis("certified gap (units of reward)", low, high, log=True)
    )
    drawing.line(points, 'stroke="var(--data)" stroke-width="2"')
    for n, gap in points:
        drawing.point(n, gap, 'fill="var(--data)"', f"{n:,} episodes: gap {gap:.4g}")
    goal = 'stroke="var(--goal)" stroke-width="2" stroke-dasharray="6 4"'
    drawing.line([(first, eps), (last, eps)], goal, f"goal: {eps:g}")
    words = (
        f"The certified gap fell from {gaps[0]:.4g} after {episodes[0]:,} episodes to {gaps[-1]:.4g} after "
        f"{episodes[-1]:,}; the goal is {eps:g}."
    )
    return drawing.svg(), words
