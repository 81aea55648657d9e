"""Regret of the learners: Figures 5 to 8 of the paper, and an overview of them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.lab.experiments.figures._figure import Plot, Size, Table, column, finished, rows_where
from entropic_bpi.lab.experiments.spec import RunSpec, grid
from entropic_bpi.lab.experiments.statistics import summary
from entropic_bpi.lab.experiments.store import Results
from entropic_bpi.lab.learners import title
from entropic_bpi.show.figures import COLOURS, new_figure, plain_numbers

LEARNERS = ("entropic_bpi", "rsvi", "rsq", "rsvi2", "rsq2", "ucb_advantage", "rodi_otp", "rodi_pto", "rovi")
PRINTED, CHECKED = "entropic_bpi (printed)", "entropic_bpi (verified)"
OURS = {PRINTED: "the bonus that the paper prints", CHECKED: "the machine-checked bonus"}
ENTRIES: dict[str, dict[str, Any]] = {
    PRINTED: {"learner": "entropic_bpi", "constants": "printed"},
    CHECKED: {"learner": "entropic_bpi", "constants": "verified"},
    **{learner: {"learner": learner} for learner in LEARNERS[1:]},
}
NAMES = {
    PRINTED: "Entropic-BPI, printed bonus",
    CHECKED: "Entropic-BPI, machine-checked bonus",
    **{learner: title(learner) for learner in LEARNERS},
}
# Colour and dashes. Entropic-BPI alone has the first colour; curves that nearly coincide differ in both.
LOOKS = {
    PRINTED: (0, "-"),
    CHECKED: (0, "--"),
    "entropic_bpi": (0, "-"),
    "rsvi": (1, "-"),
    "rsq": (4, "--"),
    "rsvi2": (3, "-"),
    "rsq2": (2, "--"),
    "ucb_advantage": (5, "-"),
    "rodi_otp": (2, "-"),
    "rodi_pto": (4, ":"),
    "rovi": (6, "-"),
}
CLAIMS = AT_THE_END, THROUGHOUT, FLATTEST = "lowest at the end", "lowest throughout", "flattest in the second half"
HORIZON = 7
BETAS = (1.0, 2.0, 3.0, 4.0)
# Points on each axis, logarithmic and linear: enough for smooth lines, and few enough to store the tables with the docs.
POINTS = 30
FIRST_DRAWN, LATE = 10, 300
# Before this episode bonuses are clipped and all learners play at random among ties, so that differences are chance.
SETTLED = 10**4


def at(beta: float) -> Plot:
    """Return the figure of the paper for one β."""
    return Plot(partial(_sweep, beta), _table, draw, partial(_describe, beta))


def _sweep(beta: float, size: Size) -> list[RunSpec]:
    common: dict[str, Any] = {"horizon": HORIZON, "beta": beta, "episodes": size.episodes, "seeds": size.seeds}
    return [spec for entry in ENTRIES.values() for spec in grid(**common, **entry)]


def _table(results: Results) -> Table:
    return [row for name in ENTRIES for row in curve_of(results, _runs_of(results, name), learner=name)]


def _runs_of(results: Results, name: str) -> np.ndarray:
    entry = ENTRIES[name]
    constants = np.array([spec["options"].get("constants") for spec in results.specs])
    return (results.runs["algorithm"] == entry["learner"]) & (constants == entry.get("constants"))


def curve_of(results: Results, chosen: np.ndarray, **label: Any) -> Table:
    """Return the regret curve of the chosen runs, which share one grid, at points for logarithmic and linear axes."""
    curves = [results.curve(int(run)) for run in np.flatnonzero(chosen)]
    if not curves:
        return []
    episodes, regret = curves[0]["episodes"], np.stack([curve["regret"] for curve in curves])
    last = episodes[-1]
    wanted = np.concatenate([np.geomspace(1, last, POINTS), np.linspace(last / POINTS, last, POINTS)])
    points = np.unique(np.searchsorted(episodes, wanted))
    return [{**label, "episodes": int(episodes[i]), **summary(regret[:, i])} for i in points]


def draw(table: Table) -> Any:
    """Draw the regret on linear axes as in the paper, on logarithmic ones, and per episode, which shows differences."""
    figure = new_figure(9.6, 3.9)
    linear, total, per_episode = figure.subplots(1, 3)
    for learner in dict.fromkeys(row["learner"] for row in table):
        rows = [row for row in rows_where(table, learner=learner) if row["episodes"] >= FIRST_DRAWN]
        style = _style(learner)
        x, mean, low, high = (column(rows, name) for name in ("episodes", "mean", "mean_low", "mean_high"))
        scale = f" (scale {rows[0]['scale']:g})" if "scale" in rows[0] else ""
        linear.plot(x / 1e6, mean / 1e6, label=NAMES[learner] + scale, **style)
        total.plot(x, mean, **style)
        late = x >= x[-1] / LATE  # before, bands are wide and all learners still play at random
        per_episode.plot(x[late], (mean / x)[late], **style)
        per_episode.fill_between(
            x[late], (low / x)[late], (high / x)[late], color=style["color"], alpha=0.12, linewidth=0
        )
    linear.set(xlabel="episodes K (millions)", ylabel="cumulative regret (millions)")
    linear.set(xlim=(0, None), ylim=(0, None))
    total.set(xscale="log", yscale="log", xlabel="episodes K", ylabel="cumulative regret (units of reward)")
    per_episode.set(xscale="log", yscale="log", xlabel="episodes K", ylabel="regret per episode (units of reward)")
    plain_numbers(per_episode.yaxis)
    return finished(figure, ncols=5)


def _style(learner: str) -> dict[str, Any]:
    colour, dashes = LOOKS[learner]
    return {"color": COLOURS[colour], "ls": dashes, "linewidth": 1.2 if colour else 2.2}


def ranking(table: Table) -> Table:
    """Return the last point of every learner, in the order of mean regret."""
    last = [rows_where(table, learner=learner)[-1] for learner in dict.fromkeys(row["learner"] for row in table)]
    return sorted(last, key=lambda row: row["mean"])


# -- claims of the paper ---------------------------------------------------------------------------------------------


class ClaimCheck(NamedTuple):
    """A claim of the paper, whether the table confirms it, and the evidence."""

    claim: str
    holds: bool
    evidence: str

    def __str__(self) -> str:
        return f"{self.claim}: {'confirmed' if self.holds else 'not confirmed'} ({self.evidence})"


def claim_checks(table: Table, ours: str) -> list[ClaimCheck]:
    """Check the :data:`CLAIMS` of the paper about its curve, for ``ours`` against the baselines."""
    rivals = [name for name in dict.fromkeys(row["learner"] for row in table) if name not in OURS]
    mine, best = rows_where(table, learner=ours), next(row for row in ranking(table) if row["learner"] in rivals)
    episodes, mean = column(mine, "episodes"), column(mine, "mean")
    others = np.stack([column(rows_where(table, learner=name), "mean") for name in rivals])
    return [
        _lowest_at_the_end(mine[-1], best),
        _lowest_throughout(episodes, mean, others.min(axis=0)),
        _flattest(episodes, mean, others, rivals),
    ]


def _lowest_at_the_end(mine: dict[str, Any], rival: dict[str, Any]) -> ClaimCheck:
    ratio = rival["mean"] / mine["mean"]
    return ClaimCheck(
        AT_THE_END,
        ratio >= 1,
        f"its regret is {_number(mine['mean'])}, that of the best baseline, {NAMES[rival['learner']]}, {ratio:.2f} times as "
        f"much; their intervals are {apart(mine, rival)}",
    )


def _lowest_throughout(episodes: np.ndarray, mean: np.ndarray, best: np.ndarray) -> ClaimCheck:
    behind = mean > best
    if not behind.any():
        return ClaimCheck(THROUGHOUT, True, "at every point of the curve")
    evidence = f"behind for the last time after {_number(episodes[behind][-1])} episodes"
    if behind[-1]:
        evidence = "still behind at the end"
    settled = episodes >= SETTLED
    excess = (mean[settled] / best[settled] - 1).max(initial=0.0)
    if excess > 0:
        evidence += f", by at most {excess:.0%} after the first {_number(SETTLED)}, which are played nearly at random"
    return ClaimCheck(THROUGHOUT, False, evidence)


def _flattest(episodes: np.ndarray, mean: np.ndarray, others: np.ndarray, rivals: list[str]) -> ClaimCheck:
    """Compare the regret per episode over the second half of the run."""
    half = int(np.searchsorted(episodes, episodes[-1] / 2))
    length = episodes[-1] - episodes[half]
    slope, slopes = (mean[-1] - mean[half]) / length, (others[:, -1] - others[:, half]) / length
    flattest = int(np.argmin(slopes))
    return ClaimCheck(
        FLATTEST,
        bool(slope <= slopes[flattest]),
        f"it loses {slope:.3g} per episode there, the best baseline, {NAMES[rivals[flattest]]}, {slopes[flattest]:.3g}",
    )


def _describe(beta: float, table: Table) -> str:
    order = ranking(table)
    figure = 4 + round(beta)
    return (
        f"Figure {figure} of the paper: cumulative regret against episodes at β = {beta:g} on the risky bridge "
        f"(H = {HORIZON}), on linear axes as there, on logarithmic ones, and per episode, for Entropic-BPI played as a "
        "regret learner, with the bonus that the paper prints and with the machine-checked one, and for eight baselines "
        f"with their published constants; mean over {_trials(order[0])} with Student's 95% band per episode. "
        f"{listed(order)} {_checks_of_claims(table)}"
    )


def _trials(row: dict[str, Any]) -> str:
    return f"{row['seeds']} trial{'s' * (row['seeds'] > 1)} of {_number(row['episodes'])} episodes"


def listed(order: Table) -> str:
    ends = ", ".join(
        f"{NAMES[row['learner']]} {row['mean']:.4g} [{row['mean_low']:.4g}, {row['mean_high']:.4g}]" for row in order
    )
    return f"Mean regret at the end, from the lowest, with its interval: {ends}.".replace("e+0", "e")


def apart(one: dict[str, Any], other: dict[str, Any]) -> str:
    gaps = one["mean_low"] - other["mean_high"], other["mean_low"] - one["mean_high"]
    return "apart" if any(gap > 0 for gap in gaps) else "not apart"  # one trial has no interval: NaN is not apart


def _checks_of_claims(table: Table) -> str:
    there = {row["learner"] for row in table}
    said = "The paper says that Entropic-BPI has the lowest trajectory throughout, and the flattest."
    for name, words in OURS.items():
        found = "; ".join(map(str, claim_checks(table, name))) if name in there else "runs are missing"
        said += f" With {words}: {found}."
    return said


def _number(value: float) -> str:
    return f"{value:.3g}".replace("e+0", "e")


# -- overview --------------------------------------------------------------------------------------------------------


def _sweep_overview(size: Size) -> list[RunSpec]:
    return [spec for beta in BETAS for spec in _sweep(beta, size)]


def _table_overview(results: Results) -> Table:
    """Return the last point of every curve and, for Entropic-BPI, which claims hold."""
    table = []
    for beta in BETAS:
        curves = _table(results.where(results.runs["beta"] == beta))
        for last in ranking(curves):
            name = last["learner"]
            held = {check.claim: check.holds for check in claim_checks(curves, name)} if name in OURS else {}
            table.append({"beta": beta, **last, **{claim: held.get(claim, "") for claim in CLAIMS}})
    return table


def _draw_overview(table: Table) -> Any:
    """Draw the regret at the end as a multiple of that of Entropic-BPI with the printed bonus."""
    figure = new_figure(7.0, 3.6)
    axes = figure.subplots()
    ends = {(row["beta"], row["learner"]): row["mean"] for row in table}
    names = [name for name in reversed(ENTRIES) if any(learner == name for _, learner in ends)]
    for beta, colour, marker in zip(BETAS, COLOURS, "os^D", strict=False):
        shown = [name for name in names if (beta, name) in ends and (beta, PRINTED) in ends]
        ratios = [ends[beta, name] / ends[beta, PRINTED] for name in shown]
        axes.plot(ratios, [names.index(name) for name in shown], marker, color=colour, label=f"β = {beta:g}")
    axes.axvline(1.0, color="black", ls=":")
    axes.set(xscale="log", xlabel="regret at the end (1 is Entropic-BPI, printed bonus)")
    axes.set_yticks(range(len(names)), [NAMES[name] for name in names])
    plain_numbers(axes.xaxis)
    return finished(figure, ncols=4)


def _describe_overview(table: Table) -> str:
    last = table[-1]
    text = (
        f"Figures 5 to 8 of the paper at a glance: regret at the end on the risky bridge (H = {HORIZON}), as a multiple of "
        f"that of Entropic-BPI with the bonus that the paper prints, mean over {_trials(last)}. The paper says that "
        "Entropic-BPI has the lowest trajectory over all values of β, and the flattest."
    )
    for name, words in OURS.items():
        rows = rows_where(table, learner=name)
        text += f" With {words}: {'; '.join(str(_at_every_beta(rows, claim)) for claim in CLAIMS)}."
    return text


def _at_every_beta(rows: Table, claim: str) -> ClaimCheck:
    holds = [f"{row['beta']:g}" for row in rows if row[claim]]
    where = f"it is at β = {', '.join(holds)}" if holds else "it is at no β"
    return ClaimCheck(f"{claim} at every β", len(holds) == len(BETAS), where)


OVERVIEW = Plot(_sweep_overview, _table_overview, _draw_overview, _describe_overview)
