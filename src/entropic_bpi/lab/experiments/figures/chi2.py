r"""The paper's conjecture: the slope of log τ in β changes because :math:`\chi^2(P_\beta, P)` of the policy does."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.figures._figure import Plot, Size, Table, column, finished
from entropic_bpi.lab.experiments.figures.stopping import AXES, BETAS
from entropic_bpi.lab.experiments.kinds import policy_digest
from entropic_bpi.lab.experiments.spec import RULES, RunSpec, grid
from entropic_bpi.lab.experiments.statistics import summary
from entropic_bpi.lab.experiments.store import Results
from entropic_bpi.lab.tilting import chi_square
from entropic_bpi.model import instances
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import solve
from entropic_bpi.show.figures import COLOURS, new_figure

HORIZON = 7
PRECISION = 1e-5


def _sweep(size: Size) -> list[RunSpec]:
    betas = np.arange(1.0, 5.01, 0.5 if size.quick else 0.25)
    return grid(horizon=HORIZON, beta=betas, seeds=size.seeds, **RULES["paper, verified constants"])


def _table(results: Results) -> Table:
    """Return for each β τ, χ² of the optimal policy, the number of this policy, and how often a run returned it."""
    bridge = instances.risky_bridge(horizon=HORIZON)
    runs = results.runs
    table: Table = []
    seen: dict[str, int] = {}
    for beta in sorted(set(runs["beta"])):
        chosen = runs["beta"] == beta
        policy = solve(bridge, beta).policy
        digest = policy_digest(bridge, policy)
        row = {"beta": float(beta), **summary(runs["episodes"][chosen], runs["stopped"][chosen] == 0)}
        row["chi_square"] = float(chi_square(bridge, policy, beta))
        row["optimal_policy"] = seen.setdefault(digest, len(seen) + 1)
        row["learned_optimal"] = float(np.mean(runs["policy"][chosen] == digest))
        table.append(row)
    for row, following in pairwise(table):
        for slope, name in (("slope_tau", "mean"), ("slope_chi", "chi_square")):
            row[slope] = float(np.log(following[name] / row[name]) / (following["beta"] - row["beta"]))
        row["changes_at"] = _change(bridge, row["beta"], following["beta"])
    table[-1] |= dict.fromkeys(("slope_tau", "slope_chi", "changes_at"), np.nan)
    return table


def _change(mdp: FiniteMDP, low: float, high: float) -> float:
    """Return where the optimal policy changes between two β, by bisection; NaN if it is the same at both."""
    below, above = (policy_digest(mdp, solve(mdp, beta).policy) for beta in (low, high))
    if below == above:
        return math.nan
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if policy_digest(mdp, solve(mdp, middle).policy) != below else (middle, high)
    return high


def changes(table: Table) -> list[float]:
    """Return the β at which the optimal policy changes, at most one between neighbouring β."""
    return [row["changes_at"] for row in table if not math.isnan(row["changes_at"])]


def _draw(table: Table) -> Any:
    figure = new_figure(5.2, 5.4)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    betas, dots = column(table, "beta"), {"marker": "o", "markersize": 3.5}
    middles = (betas[:-1] + betas[1:]) / 2
    top.plot(betas, column(table, "mean"), color=COLOURS[0], **dots)
    top.set(yscale="log", ylabel="τ (episodes)")
    middle.plot(betas, column(table, "chi_square"), color=COLOURS[1], **dots)
    middle.set(yscale="log", ylabel="χ² of the\noptimal policy")
    bottom.plot(middles, column(table, "slope_tau")[:-1], color=COLOURS[0], label="slope of log τ", **dots)
    bottom.plot(middles, column(table, "slope_chi")[:-1], color=COLOURS[1], label="slope of log χ²", **dots)
    bottom.set(xlabel=AXES["beta"], ylabel="slope\n(units of reward)")
    for axes in (top, middle, bottom):
        for beta in changes(table):
            line = axes.axvline(beta, color="0.4", ls=":", linewidth=1)
            if axes is bottom and beta == changes(table)[0]:
                line.set_label("the optimal policy changes")
    return finished(figure, ncols=3)


def _describe(table: Table) -> str:
    inner = table[:-1]
    tau, chi = column(inner, "slope_tau"), column(inner, "slope_chi")
    places = ", ".join(f"{beta:.4g}" for beta in changes(table)) or "no β shown"
    low, high = BETAS[0], BETAS[-1]
    theirs = [row for row in inner if low <= row["beta"] < high]
    within = {name: column(theirs, name) for name in ("slope_tau", "slope_chi")}
    moved = [beta for beta in changes(table) if low < beta < high]
    explains = bool(np.ptp(within["slope_chi"]) >= np.ptp(within["slope_tau"]) / 2)
    correlation, learned = np.corrcoef(tau, chi)[0, 1], np.mean(column(table, "learned_optimal"))
    outcome = "in line with the data." if explains else "not supported: χ² hardly moves while the slope of log τ does."
    return (
        "From above: stopping time τ (paper's rule, machine-checked constants, ε = 0.2, δ = 0.1, mean over "
        f"{table[0]['seeds']} seeds) and χ²(P_β, P) of the optimal policy of the risky bridge at H = {HORIZON} against "
        "β, logarithmic axes, and the slopes of their logarithms between neighbouring β. The paper conjectures that the "
        "slope of log τ varies because χ² of the learned policy does, the policy settling around β = 3.5. The optimal "
        f"policy changes at β = {places}, and {learned:.0%} of all runs returned one that is exactly optimal. Over the "
        f"whole range the two slopes have a correlation of {correlation:.2f}. In the paper's range, β from {low:g} to "
        f"{high:g}, the policy changes {f'{len(moved)} times' if moved else 'nowhere'}; the slope of log τ goes from "
        f"{within['slope_tau'].min():.2f} to {within['slope_tau'].max():.2f} and that of log χ² from "
        f"{within['slope_chi'].min():.3f} to {within['slope_chi'].max():.3f}. So in that range the conjecture is {outcome}"
    )


CHI2 = Plot(_sweep, _table, _draw, _describe)
