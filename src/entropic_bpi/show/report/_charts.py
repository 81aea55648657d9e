"""The charts of the report: Vega-Lite, drawn when the report is made, as SVG that the page holds.

Drawn beforehand they need no script in the browser: the page stays small, prints sharply and can forbid every script but
its own. Colours are variables of the page's style, which knows light and dark.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.show.report._returns import Expected
from entropic_bpi.show.report._words import Rounding

__all__ = ["Chart", "fall_of_the_gap", "law_of_the_return", "renderer"]

Chart = tuple[str, str]
"""The SVG, and what it shows in words."""

_WIDTH, _HEIGHT = 420, 220
_MOST_BARS = 30
_MOST_POINTS = 120
_HEADROOM = 1.08
# Half of the width of a single bar, in parts of the axis.
_THIN = 0.02
_MARK = re.compile(r'(<path aria-label="(?P<words>[^"]*)"[^>]*?)/>')
_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--quiet)",
        "titleColor": "var(--text)",
        "gridColor": "var(--line)",
        "domainColor": "var(--quiet)",
        "tickColor": "var(--quiet)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
        "labelOverlap": True,
    },
}


def renderer() -> Any:
    """The module that draws Vega-Lite without a network."""
    try:
        import vl_convert
    except ImportError:
        raise InvalidProblemError(
            "a report needs vl-convert-python, which draws its charts: pip install 'entropic-bpi[report]'"
        ) from None
    return vl_convert


def law_of_the_return(certificate: Certificate, expected: Expected) -> Chart:
    """How often which return is to be expected, and the certified interval of the value on the same axis."""
    lower, upper, to = certificate.lower, certificate.upper, Rounding.of(certificate)
    certified = to.at_least(lower), to.at_most(upper)
    bars = _bars(expected.returns, min(lower, expected.returns.min()), max(upper, expected.returns.max()))
    top = max(bar["share"] for bar in bars) * _HEADROOM
    words = (
        f"Estimated returns: mean {expected.returns.mean():.4g}, from {expected.returns.min():.4g} to "
        f"{expected.returns.max():.4g}. Certified: the policy is worth at least {certified[0]}, the best one at most "
        f"{certified[1]}."
    )
    ends = [bars[0]["low"], bars[-1]["high"], lower, upper]
    across = _axis("return of an episode (units of reward)", [min(ends), max(ends)], "linear")
    upwards = _axis("share of episodes", [0, top], "linear") | {"axis": {"format": "~%", "tickCount": 5}}
    band = {"low": lower, "high": upper, "bottom": 0, "top": top, "tip": f"certified: {' to '.join(certified)}"}
    box = {"x": across | {"field": "low"}, "x2": "high", "y": upwards | {"field": "bottom"}}
    edge = {"color": "var(--band)", "strokeWidth": 1.5, "aria": False}
    layers = [
        _layer("rect", [band], {"color": "var(--band)", "opacity": 0.28}, **box, y2="top"),
        _layer("rule", [{"at": lower}, {"at": upper}], edge, x=across | {"field": "at"}),
        _layer("rect", bars, {"color": "var(--data)"}, **box, y2="share"),
    ]
    return _drawn(layers), words


def _bars(returns: np.ndarray, left: float, right: float) -> list[dict[str, Any]]:
    """The law as bars on an axis between two ends: one for each return if they are few, or else of equal width."""
    values, times = np.unique(returns.round(12), return_counts=True)
    if len(values) <= _MOST_BARS:
        half = min(0.4 * np.diff(values).min(initial=np.inf), _THIN * (right - left) or 1.0)
        edges, tips = np.stack([values - half, values + half], axis=1), [f"return {value:.4g}" for value in values]
    else:
        times, borders = np.histogram(returns, bins=_MOST_BARS)
        edges = np.stack([borders[:-1], borders[1:]], axis=1)
        tips = [f"return {low:.4g} to {high:.4g}" for low, high in edges]
    shares = times / len(returns)
    return [
        {"low": low, "high": high, "bottom": 0, "share": share, "tip": f"{tip}: {share:.1%} of episodes"}
        for (low, high), share, tip in zip(edges.tolist(), shares.tolist(), tips, strict=True)
        if share > 0
    ]


def fall_of_the_gap(history: np.ndarray, eps: float) -> Chart | None:
    """How the certified gap fell with the episodes, and the goal; None if there is nothing to draw."""
    gaps = np.minimum(history["gap"], history["upper"] - history["lower"])
    drawn = np.isfinite(gaps) & (gaps > 0) & (history["episodes"] > 0)
    episodes, gaps = history["episodes"][drawn], gaps[drawn]
    if not len(gaps):
        return None
    spaced = np.searchsorted(episodes, np.geomspace(episodes[0], episodes[-1], _MOST_POINTS))
    kept = np.unique(np.minimum(spaced, len(episodes) - 1))
    points = [
        {"episodes": int(n), "gap": float(gap), "tip": f"{n:,} episodes: gap {gap:.4g}"}
        for n, gap in zip(episodes[kept], gaps[kept], strict=True)
    ]
    across = _axis("episodes", [int(episodes[0]), max(int(episodes[-1]), int(episodes[0]) + 1)], "log")
    across["axis"] = {"format": "~s", "tickCount": 4}
    upwards = _axis("certified gap (units of reward)", [0.9 * min(eps, gaps.min()), 1.1 * max(eps, gaps.max())], "log")
    upwards["axis"] = {"format": "~g", "tickCount": 4}
    fields = {"x": across | {"field": "episodes"}, "y": upwards | {"field": "gap"}}
    rule = {"color": "var(--goal)", "strokeDash": [6, 4], "strokeWidth": 2}
    layers = [
        _layer("line", points, {"color": "var(--data)", "strokeWidth": 2, "aria": False}, **fields),
        _layer("point", points, {"color": "var(--data)", "filled": True, "size": 14}, **fields),
        _layer("rule", [{"goal": eps, "tip": f"goal: {eps:g}"}], rule, y=upwards | {"field": "goal"}),
    ]
    words = (
        f"The certified gap fell from {gaps[0]:.4g} after {episodes[0]:,} episodes to {gaps[-1]:.4g} after "
        f"{episodes[-1]:,}; the goal is {eps:g}."
    )
    return _drawn(layers), words


def _axis(title: str, domain: Sequence[float], scale: str) -> dict[str, Any]:
    return {"type": "quantitative", "title": title, "scale": {"type": scale, "domain": domain, "nice": False}}


def _layer(mark: str, values: list[dict[str, Any]], style: dict[str, Any], **channels: Any) -> dict[str, Any]:
    encoding = {name: {"field": field} if isinstance(field, str) else field for name, field in channels.items()}
    if style.get("aria", True):
        encoding["description"] = {"field": "tip", "type": "nominal"}
    return {"mark": {"type": mark, **style}, "data": {"values": values}, "encoding": encoding}


def _drawn(layers: list[dict[str, Any]]) -> str:
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": _WIDTH,
        "height": _HEIGHT,
        "layer": layers,
        "config": _CONFIG,
    }
    svg: str = renderer().vegalite_to_svg(spec, allowed_base_urls=[])
    # What Vega-Lite tells a screen reader, a pointer is told, too.
    return _MARK.sub(lambda mark: f"{mark[1]}><title>{html.escape(html.unescape(mark['words']))}</title></path>", svg)
