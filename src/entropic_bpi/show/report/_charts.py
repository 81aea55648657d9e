"""The charts of the report, drawn by Matplotlib and embedded as pictures, in which no script can run."""

import base64
import io
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.show.figures import COLOURS, one_plot, tidy
from entropic_bpi.show.plots import histogram, interval, laws
from entropic_bpi.show.report._returns import Expected
from entropic_bpi.show.words import Rounding, few, name, unit_of, with_unit
from entropic_bpi.tools.text import drawable

# Text stays text, and the same figure makes the same picture.
_SVG: Any = {"svg.fonttype": "none", "svg.hashsalt": "entropic-bpi"}


class Chart(NamedTuple):
    """A chart: its picture as a data URL, and its description in words."""

    source: str
    words: str


def _chart(figure: Figure, words: str) -> Chart:
    file = io.BytesIO()
    with mpl.rc_context(_SVG):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return Chart(f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}", words)


def law_of_the_return(certificate: Certificate, expected: Expected) -> Chart:
    """Draw the estimated distribution of the return, and the certified interval of the value on the same axis."""
    lower, upper, to, unit = certificate.lower, certificate.upper, Rounding.of(certificate), unit_of(certificate)
    least, most = with_unit(to.at_least(lower), unit), with_unit(to.at_most(upper), unit)
    title = f"return of an episode ({drawable(unit or 'units of reward')})"
    figure, axes = one_plot(5.2, 3.6, title, "share of episodes")
    returns = expected.returns
    span = max(upper, returns.max()) - min(lower, returns.min())
    histogram(axes, returns, span, "estimated")
    axes.axvspan(
        lower, upper, color=COLOURS[1], alpha=0.25, linewidth=0, zorder=0, label="certified interval of the value"
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    tidy(axes)
    return _chart(
        figure,
        f"Estimated returns: mean {few(returns.mean())}, from {few(returns.min())} to {few(returns.max())}. Certified: the "
        f"value of the policy is at least {least}, the best value at most {most}.",
    )


def fall_of_the_gap(history: np.ndarray, certificate: Certificate) -> Chart | None:
    """Draw the certified interval and the gap against the episodes; return None if there is nothing to draw."""
    gaps, eps = np.minimum(history["gap"], history["upper"] - history["lower"]), certificate.eps
    drawn = np.isfinite(gaps) & (gaps > 0) & (history["episodes"] > 0)
    if not drawn.any():
        return None
    episodes, gaps = history["episodes"][drawn], gaps[drawn]
    return _chart(
        interval(history, eps=eps, delta=certificate.delta, unit=certificate.problem.unit),
        f"The certified gap fell from {few(gaps[0])} after {episodes[0]:,} episodes to {few(gaps[-1])} after "
        f"{episodes[-1]:,}; the smallest was {few(gaps.min())}, the target is {few(eps)}.",
    )


def laws_of_policies(appraisal: Appraisal) -> Chart:
    """Draw the bounds of the distribution of the return for each policy."""
    half = {policy: band.thresholds[np.argmax(band.lower >= 0.5)] for policy, band in appraisal.bands.items()}
    words = (f"{name(policy)}: half of the episodes earn at most {few(most)}" for policy, most in half.items())
    return _chart(laws(appraisal), f"Bounds of the distribution of the return. {'; '.join(words)}.")
