"""The text and the plotted bands of an appraisal: what is certain, what to choose, and what the data do not decide."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np

from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.appraisal.measures import Measure
from entropic_bpi.show.words import Rounding, few, name, probability, signed, with_unit

# An estimate of more than this many times the present number of episodes is not printed.
_MOST_TIMES = 10_000


class Decision(NamedTuple):
    """The text of an appraisal: the certain bounds in a sentence, advice on the choice, and the table of intervals."""

    sentence: str
    advice: list[str]
    titles: list[str]
    rows: list[list[str]]


def decision_of(appraisal: Appraisal) -> Decision:
    """Return the text of an appraisal."""
    words, measures = _Words(appraisal), appraisal.measures
    best = words.leader(measures[0])
    surely = "The model is known:"
    if appraisal.delta is not None:
        surely = f"With at least {probability(appraisal.delta)} certainty,"
    *parts, last = (words.at_least(best, measure) for measure in measures[:3])
    earned = f"{'; '.join(parts)}; and {last}" if parts else last
    sentence = f"{surely} the policy “{name(best)}” earns {earned}."
    others = [words.at_most(other, measures[0]) for other in appraisal.policies if other != best]
    if others and not measures[0].is_probability:
        sentence += f" {_listed(others)}."
    rows = [[name(policy), *(words.between(policy, each) for each in measures)] for policy in appraisal.policies]
    return Decision(sentence, words.advice(), ["policy", *(words.called(measure) for measure in measures)], rows)


class _Words:
    """The phrases for the numbers of one appraisal."""

    def __init__(self, appraisal: Appraisal) -> None:
        self.appraisal, self.unit = appraisal, appraisal.unit
        # Intervals are wider than the exact ones by some billionths of the largest return for each step.
        self.to = Rounding() if appraisal.certificate is None else Rounding.of(appraisal.certificate, times=1e3)

    def called(self, measure: Measure) -> str:
        """Return the name of a measure in tables."""
        threshold, share = signed(f"{measure.number:,g}"), f"{100 * measure.number:g} %"
        return {
            "mean": "mean",
            "cvar": f"mean of the worst {share} (CVaR)",
            "quantile": f"{share} quantile",
            "entropic": f"entropic value, β = {threshold}",
            "evar": f"EVaR at {share}",
            "below": f"probability of at most {with_unit(threshold, self.unit)}",
            "above": f"probability of at least {with_unit(threshold, self.unit)}",
        }[measure.kind]

    def criterion(self, measure: Measure) -> str:
        return self.called(measure).removesuffix(" (CVaR)")

    def ends(self, policy: str, measure: Measure) -> tuple[str, str]:
        """Return the two ends of an interval; those of a certificate are rounded to the safe side."""
        percent = 100 if measure.is_probability else 1
        lower, upper = (percent * bound for bound in self.appraisal.interval(policy, measure.text))
        to = Rounding(100.0) if measure.is_probability else self.to
        exact = self.appraisal.delta is None
        texts = (few(lower), few(upper)) if exact else (to.at_least(lower), to.at_most(upper))
        low, high = (f"{text} %" if measure.is_probability else with_unit(text, self.unit) for text in texts)
        return low, high

    def between(self, policy: str, measure: Measure) -> str:
        low, high = self.ends(policy, measure)
        return low if low == high else f"{low} to {high}"

    def at_least(self, policy: str, measure: Measure) -> str:
        """Return a phrase with the guaranteed end of an interval: the lower one if more is better."""
        low, high = self.ends(policy, measure)
        if self.appraisal.delta is not None:
            low, high = f"at least {low}", f"at most {high}"
        threshold, share = with_unit(signed(f"{measure.number:,g}"), self.unit), 100 * measure.number
        return {
            "mean": f"{low} on average",
            "cvar": f"{low} on average in the worst {share:g} % of the episodes",
            "quantile": f"{low} in {100 - share:g} % of the episodes",
            "below": f"at most {threshold} with a probability of {high}",
            "above": f"at least {threshold} with a probability of {low}",
        }.get(measure.kind, f"{low} by the {self.criterion(measure)}")

    def at_most(self, policy: str, measure: Measure) -> str:
        """Return a phrase with the upper end of the interval of another policy."""
        exact = "" if self.appraisal.delta is None else "at most "
        how = "on average" if measure.kind == "mean" else f"by the {self.criterion(measure)}"
        return f"“{name(policy)}” earns {exact}{self.ends(policy, measure)[1]} {how}"

    def middle(self, policy: str, measure: Measure) -> float:
        """Return the middle of an interval, with its sign changed if less is better."""
        return measure.sign * sum(self.appraisal.interval(policy, measure.text)) / 2

    def leader(self, measure: Measure) -> str:
        """Return the policy that is certainly better than the most others; among equals, the one with the best guarantee."""
        ends = {policy: self.appraisal.interval(policy, measure.text) for policy in self.appraisal.policies}
        better = Counter(pair[0] for pair in self.appraisal.order if pair.measure == measure.text)
        return max(ends, key=lambda name: (better[name], ends[name][0] if measure.sign > 0 else -ends[name][1]))

    def advice(self) -> list[str]:
        """Return the advice that follows from the intervals, by measure."""
        policies, certain = self.appraisal.policies, {(pair.measure, *pair) for pair in self.appraisal.order}
        if len(policies) == 1:
            return []
        found: dict[str, list[str]] = {}
        undecided = []
        for measure in self.appraisal.measures:
            best, by = self.leader(measure), self.criterion(measure)
            rivals = [other for other in policies if other != best and (measure.text, best, other) not in certain]
            if not rivals:
                found.setdefault(best, []).append(f"the {by}")
                continue
            rival = max(rivals, key=partial(self.middle, measure=measure))
            more = self.more_episodes(measure, best, rival)
            undecided.append(f"By the {by}, the data do not decide between “{name(best)}” and “{name(rival)}”{more}.")
        better = "certainly better than every other policy"
        if len(found) == 1 and len(self.appraisal.measures) > 1 and not undecided:
            return [f"Choose “{name(next(iter(found)))}”: it is {better} in every measure here."]
        return [f"By {_listed(by)}, “{name(best)}” is {better} here." for best, by in found.items()] + undecided

    def more_episodes(self, measure: Measure, best: str, rival: str) -> str:
        """Estimate how many more episodes would decide; widths are proportional to one over the root of their number."""
        if self.appraisal.certificate is None:
            return ": they are equal"
        apart = self.middle(best, measure) - self.middle(rival, measure)
        intervals = [self.appraisal.interval(policy, measure.text) for policy in (best, rival)]
        times = (sum(upper - lower for lower, upper in intervals) / 2 / apart) ** 2 if apart else math.inf
        if not times < _MOST_TIMES:
            return "; more episodes alone may not decide it"
        more = max(1.0, self.appraisal.certificate.episodes) * max(times - 1.0, 0.1)
        return f"; about {Rounding().at_most(math.ceil(more), 2)} more episodes would (an estimate)"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# -- the distribution of the return --------------------------------------------------------------------------------


def value_range(appraisal: Appraisal) -> tuple[float, float]:
    """Return the range outside which the bands of all policies are within a thousandth of 0 or 1."""
    bands = appraisal.bands.values()
    low = float(min(band.thresholds[np.argmax(band.upper >= 1e-3)] for band in bands))
    high = float(max(band.thresholds[np.argmax(band.lower >= 1 - 1e-3)] for band in bands))
    room = 0.03 * (high - low) or 1.0
    return low - room, high + room


def drawn_band(appraisal: Appraisal, policy: str, most: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points of a band, thinned so that it only gets wider: x, lower and upper bounds of P(return ≤ x)."""
    band, (left, right) = appraisal.bands[policy], value_range(appraisal)
    inside = np.flatnonzero((band.thresholds >= left) & (band.thresholds <= right))
    kept = np.unique(inside[np.linspace(0, len(inside) - 1, min(most, len(inside))).astype(int)])
    edges = np.repeat([left, *band.thresholds[kept], right], 2)[1:-1]
    # Between two edges, the lower bound is the one at the first edge, the upper bound the one just before the second.
    lower = np.append(0.0, band.lower)[np.append(kept[0], kept + 1)]
    upper = np.append(0.0, band.upper)[np.append(kept, kept[-1] + 1)]
    return edges, np.repeat(lower, 2), np.repeat(upper, 2)
