"""Appraisals: several policies and measures side by side, from data that was collected or from a known model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi import methods
from entropic_bpi._version import __version__
from entropic_bpi.certificate.certificate import Certificate, Verifiable
from entropic_bpi.certificate.codec import encode
from entropic_bpi.certificate.contents import write_content
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.differences import difference
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.tails import Tails, step_of_grid, tails_of
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.return_law import ReturnLaw, return_law
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import Declarations
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.appraisal.measures import MEASURES, Measure, read_measures
from entropic_bpi.runs.certification import CollectedData, evidence_of, read_policy
from entropic_bpi.runs.progress import Progress
from entropic_bpi.tools.checks import check_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT, VERSION = "entropic-bpi appraisal", 1
# Bins of a law with too many returns, where the model is known.
_BINS = 2_000


class Band(NamedTuple):
    """Bounds of P(return ≤ x) at each threshold x; equal where the model is known."""

    thresholds: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Difference(NamedTuple):
    """Bounds of the measure of one policy less that of another.

    They are the differences of the ends of the two intervals. For means and entropic values they are often sharper, because
    the uncertainty that both policies share does not count twice.
    """

    measure: str
    policy: str
    other: str
    lower: float
    upper: float


class CertainPair(tuple[str, str]):
    """A pair ``(better, worse)`` of names whose order is certain, and the ``measure`` by which it is."""

    measure: str

    def __repr__(self) -> str:
        return f"({self[0]!r}, {self[1]!r}, by {self.measure!r})"


@dataclass(frozen=True, eq=False)
class Appraisal(Verifiable):
    """Intervals of several measures of several policies, which all hold at once with probability at least 1 - δ.

    Attributes
    ----------
    table : list of dict
        ``policy``, ``measure``, ``lower`` and ``upper``, one for each policy and measure.
    differences : list of Difference
        Bounds of the measure of one policy less that of another, for each measure and ordered pair of policies.
    bands : dict
        Bounds of the law of the return of each policy, by name.
    policies : dict
        The policies, arrays ``(H, S)``, by name.
    delta : float or None
        With at most this probability an interval is wrong; None where the model is known and the values are exact.
    certificate : Certificate or None
        The data and the assumptions: a certificate of the mean of the first policy; None where the model is known.
    title, unit : str or None
        As declared.
    history : structured array or None
        The history of the run, if the evidence is the result of a run.
    model : FiniteMDP or None
        The model, where it is known.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> known = eb.appraise(bridge, {"safe": eb.solve(bridge, -2.0), "bold": eb.solve(bridge, 2.0)}, measures=["mean"])
    >>> known.order
    (('safe', 'bold', by 'mean'),)
    """

    table: list[dict[str, Any]]
    differences: list[Difference]
    bands: dict[str, Band]
    policies: dict[str, np.ndarray]
    delta: float | None = None
    certificate: Certificate | None = None
    title: str | None = None
    unit: str | None = None
    history: np.ndarray | None = None
    model: FiniteMDP | None = None
    _file: dict[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> list[Measure]:
        return read_measures(dict.fromkeys(row["measure"] for row in self.table))

    @property
    def order(self) -> tuple[CertainPair, ...]:
        """The pairs ``(better, worse)`` of names whose order is certain; each has the ``measure`` by which it is."""
        signs, certain = {measure.text: measure.sign for measure in self.measures}, []
        for each in self.differences:
            if (each.lower if signs[each.measure] > 0 else -each.upper) > 0:
                certain.append(CertainPair((each.policy, each.other)))
                certain[-1].measure = each.measure
        return tuple(certain)

    def interval(self, policy: str, measure: str) -> tuple[float, float]:
        """Return the bounds of one measure of one policy.

        Parameters
        ----------
        policy, measure : str
            As they were given.

        Returns
        -------
        (float, float)
            The lower and the upper bound.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> eb.appraise(bridge, {"safe": eb.solve(bridge, -2.0)}).interval("safe", "mean")
        (0.25, 0.25)
        """
        for row in self.table:
            if (row["policy"], row["measure"]) == (policy, measure):
                return row["lower"], row["upper"]
        raise InvalidProblemError(f"the appraisal has no measure {measure!r} of a policy {policy!r}")

    def plot(self) -> Figure:
        """Draw the bounds of the laws of the return of all policies.

        Returns
        -------
        Figure
            The Matplotlib figure.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> figure = eb.appraise(bridge, {"safe": eb.solve(bridge, -2.0)}).plot()
        >>> len(figure.axes)
        1
        """
        import entropic_bpi

        return entropic_bpi.plots.laws(self)

    def _content(self) -> dict[str, Any]:
        if self.certificate is None:
            raise InvalidProblemError("the model is known and the values are exact: there are no data to check")
        head = {"format": FORMAT, "version": VERSION, "library": __version__, **self._file}
        policies = {name: policy.tolist() for name, policy in self.policies.items()}
        return {**head, "policies": policies, "table": self.table, "certificate": write_content(self.certificate)}

    def __repr__(self) -> str:
        sure = "exact" if self.delta is None else f"delta={self.delta:g}"
        return f"Appraisal(policies={list(self.policies)}, measures={[each.text for each in self.measures]}, {sure})"


def appraise(
    evidence: Any,
    policies: Mapping[str, Any],
    *,
    measures: Iterable[str] | str = MEASURES,
    delta: float | None = None,
    bins: int | None = None,
    states: Any = None,
    **declarations: Any,
) -> Appraisal:
    """Compute certified intervals of several measures of several policies from the same data.

    All intervals hold at once with probability at least 1 - δ, also for policies and measures that were chosen after
    looking at the data. See the page "Deciding" for the theory.

    Parameters
    ----------
    evidence : Identification, Certificate, Counts, Log, problem file or FiniteMDP
        The data, as :func:`entropic_bpi.certify` takes them; or a known model, for which the values are exact.
    policies : mapping of names to policies
        Each an array ``(H, S)``; the action for each state, as a mapping or a function; a :class:`entropic_bpi.Policy`; or a
        solution, a certificate or the result of a run, whose policy it then is.
    measures : sequence of str
        ``"mean"``; ``"cvar 0.05"``, the mean of the worst 5 % of the returns; ``"quantile 0.05"``, the return that is not
        exceeded in 5 % of the episodes; ``"entropic -1"`` and ``"evar 0.05"``; ``"below 0"`` and ``"above 0"``, the
        probabilities of a return of at most, or at least, 0. The default has no EVaR if rewards are discounted.
    delta : float, optional
        The probability with which an interval may be wrong. Default: that of the run. Required for a log.
    bins : int, optional
        Thresholds of a grid for the law of the return. Default: where all rewards are multiples of a number, these
        multiples, so that nothing is rounded; otherwise as many as take a few seconds. Rounding only widens the intervals.
    states : iterable or "seen", optional
        For a log, as :func:`entropic_bpi.certify` takes it.
    **declarations
        For a log, what is declared about it, as :func:`entropic_bpi.certify` takes it; and ``rewards``, another known reward
        for the same data. ``title`` and ``unit`` of the rewards, for the report.

    Returns
    -------
    Appraisal
        The intervals, their differences, and which policies are certainly better than others.

    Raises
    ------
    InvalidProblemError
        If rewards are random: they are learned for one risk only, whose values ``certify(…, policies=…)`` compares.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> policies = {"found": result.policy, "bold": eb.solve(bridge, 2.0)}
    >>> appraisal = eb.appraise(result, policies, measures=["mean", "cvar 0.1", "below 0"])
    >>> low, high = appraisal.interval("found", "cvar 0.1")
    >>> bool(low <= eb.return_law(bridge, result.policy).cvar(0.1) <= high)
    True
    """
    asked = read_measures(measures)
    if not isinstance(policies, Mapping) or not policies:
        raise InvalidProblemError("policies must be a mapping of names to policies, and at least one")
    if bins is not None:
        bins = check_integer("bins", bins, at_least=2)
    if isinstance(evidence, FiniteMDP):
        words = {name: declarations[name] for name in ("title", "unit") if declarations.get(name) is not None}
        return replace(_exact(evidence, policies, asked, bins), **Declarations(**words).given())
    rewards = declarations.pop("rewards", None)
    given = {"beta": 0.0, "risk": None, "eps": None, "delta": delta, "states": states, **declarations}
    with Progress():
        data = evidence_of(evidence, given, rewards)
        if data.problem.random_rewards:
            raise InvalidProblemError(
                "random rewards are learned for one risk: certify(…, policies=…) compares its values"
            )
        planned = {str(name): read_policy(policy, data.problem, data.labels) for name, policy in policies.items()}
        if measures is MEASURES and data.problem.discount is not None:
            asked = [measure for measure in asked if measure.kind != "evar"]
        found = _certified(data, planned, asked, bins)
    return replace(found, history=getattr(evidence, "history", None))


def _certified(
    data: CollectedData, planned: dict[str, np.ndarray], measures: list[Measure], bins: int | None
) -> Appraisal:
    """Return the appraisal of policies from counts."""
    problem, counts, base = data.problem, data.counts, KL(data.problem)
    step = step_of_grid(problem, counts, bins)
    tails = {name: tails_of(base, counts, policy, step) for name, policy in planned.items()}
    risks = {measure.text: measure.risk for measure in measures if measure.risk is not None}
    named: dict[str, Any] = {
        text: base if risk == problem.risk else methods.make("kl", replace(problem, risk=risk), {}, 0)
        for text, risk in risks.items()
    }
    table, cells = [], []
    for name, policy in planned.items():
        for measure in measures:
            ends, covered = _interval(measure, named.get(measure.text), counts, policy, tails[name])
            table.append(_row(name, measure, *ends))
            if covered is not None:
                cells.append({"policy": name, "measure": measure.text, "cells": encode(covered)})
    direct = [
        Difference(measure.text, one, other, *ends)
        for measure, (one, other) in product(measures, combinations(planned, 2))
        if isinstance(own := named.get(measure.text), KL)
        and np.isfinite(ends := difference(own, counts, planned[one], planned[other])).all()
    ]
    candidate = next(iter(planned.values()))
    claim = base.bounds_of(counts, candidate, pairs=False)
    return Appraisal(
        table=table,
        differences=_differences(table, measures, direct),
        bands={name: Band(each.thresholds, *each.below) for name, each in tails.items()},
        policies={name: policy[int(problem.artificial) :] for name, policy in planned.items()},
        delta=problem.delta,
        certificate=data.certificate(candidate, claim),
        title=problem.title,
        unit=problem.unit,
        _file={"step": step, "cells": cells, "differences": [each._asdict() for each in direct]},
    )


def _interval(
    measure: Measure, method: Any, counts: Counts, policy: np.ndarray, tails: Tails
) -> tuple[tuple[float, float], Any]:
    """Return the bounds of one measure and, of an entropic value at risk, the cells behind them."""
    if measure.kind == "evar":
        claim = method.own_claim(counts, policy)
        return (claim.lower, claim.upper), claim.cells
    if method is not None:
        ends = method.interval_of(counts, policy)
        if measure.kind == "mean":  # both hold; the second one does not replace β = 0 by a small β
            ends = max(ends[0], tails.mean[0]), min(ends[1], tails.mean[1])
        return ends, None
    kinds = {"cvar": tails.cvar, "quantile": tails.quantile, "below": tails.at_most, "above": tails.at_least}
    return kinds[measure.kind](measure.number), None


def _exact(mdp: FiniteMDP, policies: Mapping[str, Any], measures: list[Measure], bins: int | None) -> Appraisal:
    """Return the appraisal of policies in a known model: exact values, or intervals if the law has too many returns."""
    problem = Problem.from_mdp(mdp, beta=0.0, eps=1.0, delta=0.5)
    planned = {str(name): read_policy(policy, problem, problem.labels) for name, policy in policies.items()}
    planned = {name: policy[int(problem.artificial) :] for name, policy in planned.items()}
    table, bands = [], {}
    for name, policy in planned.items():
        below, above = _laws(mdp, policy, bins)
        for measure in measures:
            table.append(_row(name, measure, *sorted((measure.of(below), measure.of(above)))))
        thresholds = np.union1d(below.support, above.support)
        bands[name] = Band(thresholds, *(_distribution(law, thresholds) for law in (above, below)))
    differences = _differences(table, measures, [])
    return Appraisal(table, differences, bands, planned, model=mdp, title=mdp.title, unit=mdp.unit)


def _laws(mdp: FiniteMDP, policy: np.ndarray, bins: int | None) -> tuple[ReturnLaw, ReturnLaw]:
    """Return a law below and a law above that of the return; both are the same if it is exact."""
    try:
        found = return_law(mdp, policy, bins=bins)
    except InvalidProblemError:
        found = return_law(mdp, policy, bins=_BINS)
    return (found, found) if isinstance(found, ReturnLaw) else (found.lower, found.upper)


def _distribution(law: ReturnLaw, thresholds: np.ndarray) -> np.ndarray:
    at = np.searchsorted(law.support, thresholds, side="right")
    return np.minimum(np.concatenate([[0.0], np.cumsum(law.probabilities)])[at], 1.0)


def _row(policy: str, measure: Measure, lower: float, upper: float) -> dict[str, Any]:
    return {"policy": policy, "measure": measure.text, "lower": float(lower), "upper": float(upper)}


def _differences(table: list[dict[str, Any]], measures: list[Measure], direct: list[Difference]) -> list[Difference]:
    """Return the differences of all ordered pairs: the sharper of those of the intervals and those bounded directly."""
    found, sharper = [], {each[:3]: each[3:] for each in direct}
    sharper |= {(measure, other, one): (-upper, -lower) for measure, one, other, lower, upper in direct}
    for measure in measures:
        rows = [row for row in table if row["measure"] == measure.text]
        for one, other in permutations(rows, 2):
            names = measure.text, one["policy"], other["policy"]
            lower, upper = sharper.get(names, (-np.inf, np.inf))
            ends = max(lower, one["lower"] - other["upper"]), min(upper, one["upper"] - other["lower"])
            found.append(Difference(*names, *ends))
    return found
