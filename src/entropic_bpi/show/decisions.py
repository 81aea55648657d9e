"""An appraisal in words and as a plot: what is certain, what to choose, and what the data do not decide."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from entropic_bpi.show.words import Rounding, name, number, probability, signed
from entropic_bpi.tools.text import drawable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from entropic_bpi.runs.appraisal import Appraisal
    from entropic_bpi.runs.appraisal.measures import Measure

_CURRENCIES = "€$£¥"
# More episodes than so many times those that there are: no number is worth saying.
_MOST_TIMES = 10_000


class Decision(NamedTuple):
    """What an appraisal says: what is certain, what follows for the choice, and its table."""

    sentence: str
    advice: list[str]
    titles: list[str]
    rows: list[list[str]]


def with_unit(text: str, unit: str | None) -> str:
    """Return a number with its unit.

    >>> with_unit("−1,240", "€"), with_unit("12", "points"), with_unit("12", None)
    ('−€1,240', '12 points', '12')
    """
    if unit is None:
        return text
    if unit in _CURRENCIES:
        return f"−{unit}{text[1:]}" if text.startswith("−") else f"{unit}{text}"
    return f"{text} {unit}"


def measure_name(measure: Measure, unit: str | None = None) -> str:
    """Return what a measure is called in tables."""
    threshold = signed(f"{measure.number:,g}")
    share = f"{100 * measure.number:g} %"
    return {
        "mean": "mean",
        "cvar": f"mean of the worst {share} (CVaR)",
        "quantile": f"{share} quantile",
        "entropic": f"entropic value, β = {threshold}",
        "evar": f"EVaR at {share}",
        "below": f"probability of at most {with_unit(threshold, unit)}",
        "above": f"probability of at least {with_unit(threshold, unit)}",
    }[measure.kind]


def _criterion(measure: Measure, unit: str | None) -> str:
    return measure_name(measure, unit).removesuffix(" (CVaR)")


class _Words:
    """Numbers of one appraisal in words."""

    def __init__(self, appraisal: Appraisal) -> None:
        self.appraisal, self.unit = appraisal, appraisal.unit
        self.to = Rounding() if appraisal.certificate is None else Rounding.of(appraisal.certificate)

    def end(self, measure: Measure, bound: float, upper: bool) -> str:
        shown = 100 * bound if measure.is_probability else bound
        if self.appraisal.delta is None:
            text = signed(number(shown))
        else:
            to = Rounding(100.0) if measure.is_probability else self.to
            text = to.at_most(shown) if upper else to.at_least(shown)
        return f"{text} %" if measure.is_probability else with_unit(text, self.unit)

    def between(self, measure: Measure, lower: float, upper: float) -> str:
        low, high = self.end(measure, lower, False), self.end(measure, upper, True)
        return low if low == high else f"{low} to {high}"

    def at_least(self, policy: str, measure: Measure) -> str:
        """The good end of an interval as a part of a sentence."""
        lower, upper = self.appraisal.interval(policy, measure.text)
        exact = "" if self.appraisal.delta is None else "at least "
        low = f"{exact}{self.end(measure, lower, False)}"
        return {
            "mean": f"{low} on average",
            "cvar": f"{low} on average in the worst {100 * measure.number:g} % of the episodes",
            "quantile": f"{low} in {100 - 100 * measure.number:g} % of the episodes",
            "below": f"at most {with_unit(signed(f'{measure.number:,g}'), self.unit)} with a probability of "
            f"{exact.replace('least', 'most')}{self.end(measure, upper, True)}",
            "above": f"at least {with_unit(signed(f'{measure.number:,g}'), self.unit)} with a probability of {low}",
        }.get(measure.kind, f"{low} by the {_criterion(measure, self.unit)}")

    def at_most(self, policy: str, measure: Measure) -> str:
        """The other end, of another policy."""
        exact = "" if self.appraisal.delta is None else "at most "
        high = self.end(measure, self.appraisal.interval(policy, measure.text)[1], True)
        how = "on average" if measure.kind == "mean" else f"by the {_criterion(measure, self.unit)}"
        return f"“{name(policy)}” earns {exact}{high} {how}"


def decision_of(appraisal: Appraisal) -> Decision:
    """Return what an appraisal says, in words."""
    words, measures = _Words(appraisal), appraisal.measures
    best = _leader(appraisal, measures[0])
    surely = (
        "The model is known:" if appraisal.delta is None else f"With at least {probability(appraisal.delta)} certainty,"
    )
    parts = [words.at_least(best, measure) for measure in measures[:3]]
    earned = parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"
    sentence = f"{surely} the policy “{name(best)}” earns {earned}."
    others = [words.at_most(other, measures[0]) for other in appraisal.policies if other != best]
    if others and not measures[0].is_probability:
        sentence += f" {_listed(others)}."
    rows = [
        [name(policy), *(words.between(each, *appraisal.interval(policy, each.text)) for each in measures)]
        for policy in appraisal.policies
    ]
    titles = ["policy", *(measure_name(measure, appraisal.unit) for measure in measures)]
    return Decision(sentence, _advice(appraisal), titles, rows)


def _value(appraisal: Appraisal, policy: str, measure: Measure) -> float:
    """The middle of an interval; of which more is better."""
    lower, upper = appraisal.interval(policy, measure.text)
    return measure.sign * (lower + upper) / 2


def _leader(appraisal: Appraisal, measure: Measure) -> str:
    """The policy of which most is certain."""
    ends = {policy: appraisal.interval(policy, measure.text) for policy in appraisal.policies}
    return max(ends, key=lambda policy: ends[policy][0] if measure.sign > 0 else -ends[policy][1])


def _advice(appraisal: Appraisal) -> list[str]:
    """What follows from the intervals for the choice, measure by measure."""
    if len(appraisal.policies) == 1:
        return []
    certain = {(pair.measure, *pair) for pair in appraisal.order}
    found: dict[str, list[str]] = {}
    advice = []
    for measure in appraisal.measures:
        best, by = _leader(appraisal, measure), _criterion(measure, appraisal.unit)
        open_ = [other for other in appraisal.policies if other != best and (measure.text, best, other) not in certain]
        if not open_:
            found.setdefault(best, []).append(f"the {by}")
            continue
        rival = max(open_, key=lambda policy: _value(appraisal, policy, measure))
        advice.append(
            f"By the {by}, the data do not decide between “{name(best)}” and “{name(rival)}”"
            f"{_more_episodes(appraisal, measure, best, rival)}."
        )
    if found and len(appraisal.measures) > 1 and len(found) == 1 and not advice:
        return [
            f"Choose “{name(next(iter(found)))}”: it is certainly better than every other policy in every measure here."
        ]
    chosen = [
        f"By {_listed(measures)}, “{name(best)}” is certainly better than every other policy here."
        for best, measures in found.items()
    ]
    return chosen + advice


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _more_episodes(appraisal: Appraisal, measure: Measure, best: str, rival: str) -> str:
    """An estimate of how many more episodes would decide: widths fall like one over the root of their number."""
    if appraisal.certificate is None:
        return ": they are equal"
    apart = _value(appraisal, best, measure) - _value(appraisal, rival, measure)
    width = (
        sum(upper - lower for lower, upper in (appraisal.interval(each, measure.text) for each in (best, rival))) / 2
    )
    times = (width / apart) ** 2 if apart else math.inf
    if not times < _MOST_TIMES:
        return "; more episodes alone may not decide it"
    more = max(1.0, appraisal.certificate.episodes) * max(times - 1.0, 0.1)
    rounded = math.ceil(more / 10 ** (math.floor(math.log10(more)) - 1)) * 10 ** (math.floor(math.log10(more)) - 1)
    return f"; about {rounded:,.0f} more episodes would (an estimate)"


# -- the laws of the return ----------------------------------------------------------------------------------------


def value_range(appraisal: Appraisal) -> tuple[float, float]:
    """Between which returns something happens, up to a thousandth."""
    lows, highs = [], []
    for band in appraisal.bands.values():
        lows.append(band.thresholds[np.argmax(band.upper >= 1e-3)])
        highs.append(band.thresholds[np.argmax(band.lower >= 1 - 1e-3)])
    low, high = float(min(lows)), float(max(highs))
    room = 0.03 * (high - low) or 1.0
    return low - room, high + room


def drawn_band(appraisal: Appraisal, policy: str, most: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points of the steps of a band, thinned to the safe side: x, lower and upper bounds of P(return ≤ x)."""
    band, (left, right) = appraisal.bands[policy], value_range(appraisal)
    inside = np.flatnonzero((band.thresholds >= left) & (band.thresholds <= right))
    kept = np.unique(inside[np.linspace(0, len(inside) - 1, min(most, len(inside))).astype(int)])
    x = band.thresholds[kept]
    lower, upper = band.lower[kept], band.upper[kept]
    # From one threshold that is drawn to the next, the bound from above is that just before the next.
    upper = np.append(band.upper[kept[1:] - 1], upper[-1])
    before = band.lower[kept[0] - 1] if kept[0] else 0.0, band.upper[kept[0] - 1] if kept[0] else 0.0
    edges = np.concatenate([[left], np.repeat(x, 2), [right]])
    low, high = (
        np.concatenate([[start, start], np.repeat(side, 2)]) for start, side in zip(before, (lower, upper), strict=True)
    )
    return edges, low, high


def draw_laws(appraisal: Appraisal) -> Figure:
    """Draw the bounds of the laws of the return of all policies."""
    from matplotlib.ticker import StrMethodFormatter

    from entropic_bpi.show.plots import COLOURS, new_figure, tidy

    figure = new_figure(6.0, 3.4)
    axes = figure.subplots()
    for place, policy in enumerate(appraisal.bands):
        x, lower, upper = drawn_band(appraisal, policy, most=2_000)
        colour = COLOURS[place % len(COLOURS)]
        axes.fill_between(x, lower, upper, color=colour, alpha=0.35, linewidth=0)
        axes.plot(x, lower, color=colour, linewidth=1.0)
        axes.plot(x, upper, color=colour, linewidth=1.0, label=drawable(name(policy)))
    unit = "" if appraisal.unit is None else f" ({drawable(appraisal.unit)})"
    surely = "exact" if appraisal.delta is None else f"with probability ≥ {probability(appraisal.delta)}"
    axes.set(xlabel=f"return of an episode{unit}", ylabel="share of episodes with\nat most this return", ylim=(0, 1))
    axes.set_title(f"Laws of the return, {surely}", fontsize=8)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    tidy(axes)
    axes.legend(frameon=False)
    return figure
