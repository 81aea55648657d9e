"""Episodes until the stop: Figures 3 and 4 of the paper, and the paper's rule beside ours."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.experiments.figures._figure import Plot, Size, Table, column, finished, rows_where
from entropic_bpi.lab.experiments.spec import IDENTIFY_DEFAULTS, RULES, RunSpec, grid, rule_of
from entropic_bpi.lab.experiments.statistics import line, summary
from entropic_bpi.lab.experiments.store import Results
from entropic_bpi.lab.limits import bounds
from entropic_bpi.model import instances
from entropic_bpi.model.return_law import max_return
from entropic_bpi.show.figures import COLOURS, new_figure

BETAS, HORIZON = (2.5, 3.0, 3.5, 4.0, 4.5), 7
HORIZONS, BETA = (5, 7, 9, 11, 13, 15, 17), 0.5
PRINTED, CHECKED = "paper, printed constants", "paper, verified constants"
OURS = {PRINTED: "the bonus that the paper prints", CHECKED: "the machine-checked bonus"}

LOWER, UPPER = "lower bound, hard instance of this size", "upper bound, paper's rule"
# The lower bound is about trees of depth 3 for 8 states and needs H >= 9.
CERTIFY_HORIZON = 9
CERTIFY_BETAS = (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5)
CERTIFY_QUICK_BETAS = (-2.0, -0.5, 0.5, 2.5, 4.5)
# Criteria for a sharp increase (a factor) and for a linear log τ (a share of the variance).
SHARP, LINEAR = 2, 0.95
AXES = {"beta": "risk parameter β (1 / units of reward)", "horizon": "horizon H (steps)"}


# -- Figures 3 and 4 -------------------------------------------------------------------------------------------------


def _sweep(horizon: Any, beta: Any, size: Size) -> list[RunSpec]:
    return [spec for rule in OURS for spec in grid(horizon=horizon, beta=beta, seeds=size.seeds, **RULES[rule])]


def stopping_times(results: Results) -> Table:
    """Return a row for each setting, with the stopping time summarised over seeds."""
    runs = results.runs
    rules = np.array([rule_of(spec) for spec in results.specs], dtype=object)
    labels = list(zip(rules, runs["beta"].tolist(), runs["horizon"].tolist(), strict=True))
    table = []
    for label in sorted(set(labels), key=lambda label: (list(RULES).index(label[0]), *label[1:])):
        chosen = np.array([other == label for other in labels])
        stopped = runs["stopped"][chosen].astype(bool)
        row = dict(zip(("rule", "beta", "horizon"), label, strict=True))
        table.append({**row, **summary(runs["episodes"][chosen], ~stopped), "largest": runs["episodes"][chosen].max()})
    return table


def _draw_against(axis: str, table: Table) -> Any:
    figure = new_figure(4.6, 3.2)
    axes = figure.subplots()
    for rule, colour in zip(OURS, COLOURS, strict=False):
        rows = rows_where(table, rule=rule)
        if not rows:
            continue
        x, mean = column(rows, axis), column(rows, "mean")
        error = np.nan_to_num(np.stack([mean - column(rows, "mean_low"), column(rows, "mean_high") - mean]))
        axes.errorbar(x, mean, error, marker="o", capsize=3, color=colour, label=OURS[rule])
        slope, _ = line(x, np.log(mean))
        offset = np.mean(np.log(mean) - slope * x)
        axes.plot(x, np.exp(offset + slope * x), ls=":", color=colour)
    axes.plot([], ls=":", color="black", label="straight line through log τ")
    draw_capped(axes, table, axis, "black")
    axes.set(
        yscale="log", xlabel=AXES[axis], ylabel="stopping time τ (episodes)", xticks=sorted({*column(table, axis)})
    )
    low, high = axes.get_ylim()
    if high < 1.01 * low:  # Matplotlib cannot draw a logarithmic axis on which all numbers are the same up to rounding
        axes.set_ylim(low / 2, high * 2)
    return finished(figure, ncols=2)


def draw_capped(axes: Any, table: Table, axis: str, colour: str, label: str | None = "some runs capped") -> None:
    """Mark points whose mean is only a lower bound, and draw the median beside it."""
    capped = [row for row in table if row["capped"]]
    if capped:
        axes.plot(
            column(capped, axis), column(capped, "mean"), ls="", marker="^", mfc="white", color=colour, label=label
        )
        axes.plot(column(capped, axis), column(capped, "median"), ls="", marker="_", color=colour)


def _describe(figure: int, against: str, axis: str, symbol: str, table: Table) -> str:
    """Describe a figure: the claims of the paper about τ along an axis, checked for each bonus."""
    capped = sum(row["capped"] for row in table)
    text = (
        f"Figure {figure} of the paper: episodes τ until the stop against {against}, {table[0]['seeds']} seeds, {_HOW}"
        f"The paper says that τ increases sharply and that log τ is roughly linear in {symbol}."
    )
    for rule, words in OURS.items():
        rows = rows_where(table, rule=rule)
        text += f" With {words}, {_describe_rise(rows, axis, symbol) if rows else 'the runs are missing.'}"
    if capped:
        text += f" {capped} runs were capped; for these the mean is a lower bound, and the median is shown beside it."
    if axis == "beta":
        text += " The figure `chi2` examines why the slope changes."
    return text


def _describe_rise(rows: Table, axis: str, symbol: str) -> str:
    x, log_tau, first, last = column(rows, axis), np.log(column(rows, "mean")), rows[0], rows[-1]
    slope, share = line(x, log_tau)
    steps, factor = np.diff(log_tau) / np.diff(x), math.exp(log_tau[-1] - log_tau[0])
    sharply = bool((steps > 0).all()) and factor >= SHARP
    text = (
        f"τ goes from {first['mean']:.3g} episodes at {symbol} = {first[axis]:g} to {last['mean']:.3g} at {symbol} = "
        f"{last[axis]:g}, a factor of {factor:.3g}. It increases sharply: {_confirmed(sharply)} (criterion: a rise at "
        f"every step and a factor of {SHARP} over the range). log τ is roughly linear in {symbol}: "
        f"{_confirmed(share >= LINEAR)} (criterion: a line explains {LINEAR:.0%} of the variance of log τ; it explains "
        f"{share:.1%}, with slope {slope:.3g} per unit of {symbol}, while slopes between neighbours go "
        f"from {steps.min():.3g} to {steps.max():.3g})."
    )
    if axis == "beta":
        varies = steps.max() > 2 * steps.min()
        text += (
            f" The slope is not constant in β: {_confirmed(varies)} (observed in the paper; criterion: a factor of 2)."
        )
    return text.replace("e+0", "e")


def _confirmed(holds: bool) -> str:
    return "confirmed" if holds else "not confirmed"


_HOW = (
    "by Algorithm 1 on the risky bridge (8 states, 2 actions), ε = 0.2, δ = 0.1; mean over seeds with Student's 95% "
    "interval, logarithmic axis. The rule plans and tests each time the number of episodes has grown by 1%, so τ is known "
    "to 1%, and seeds that stop at the same test have equal τ. "
)


def _figure(number: int, horizon: Any, beta: Any, axis: str, symbol: str, against: str) -> Plot:
    describe = partial(_describe, number, against, axis, symbol)
    return Plot(partial(_sweep, horizon, beta), stopping_times, partial(_draw_against, axis), describe)


FIG3 = _figure(3, HORIZON, BETAS, "beta", "β", f"β at H = {HORIZON}")
FIG4 = _figure(4, HORIZONS, BETA, "horizon", "H", f"the horizon H at β = {BETA}")


# -- the paper's rule beside ours ------------------------------------------------------------------------------------


def _sweep_certify(size: Size) -> list[RunSpec]:
    betas = CERTIFY_QUICK_BETAS if size.quick else CERTIFY_BETAS
    return [
        spec for rule in RULES.values() for spec in grid(horizon=CERTIFY_HORIZON, beta=betas, seeds=size.seeds, **rule)
    ]  # fmt: skip


def _table_certify(results: Results) -> Table:
    table, bridge = stopping_times(results), instances.risky_bridge(horizon=CERTIFY_HORIZON)
    betas = sorted({row["beta"] for row in table})
    nothing = dict.fromkeys(summary([0.0]), math.nan) | {"seeds": 0, "capped": 0, "largest": math.nan}
    theorems = {
        LOWER: partial(bounds.lower_bound, form="exact"),
        UPPER: partial(bounds.upper_bound, max_return=max_return(bridge), form="implicit"),
    }
    for rule, theorem in theorems.items():
        for beta in betas:
            mean = math.nan
            with suppress(InvalidProblemError):  # outside the theorem's conditions
                mean = theorem(bridge.n_states, bridge.n_actions, CERTIFY_HORIZON, beta=beta, **IDENTIFY_DEFAULTS)
            table.append({"rule": rule, "beta": beta, "horizon": CERTIFY_HORIZON, **nothing, "mean": mean})
    return table


def _draw_certify(table: Table) -> Any:
    figure = new_figure(5.6, 4.2)
    axes, lower = figure.subplots(), _finite(table, LOWER)
    for rule, colour, marker in zip(RULES, COLOURS, "*os^vDP", strict=True):
        for sign in (-1, 1):  # nothing is measured at 0, so the two sides are not joined
            side = [row for row in rows_where(table, rule=rule) if row["beta"] * sign > 0]
            x, mean = column(side, "beta"), column(side, "mean")
            label = rule if sign > 0 else None
            axes.plot(x, mean, marker=marker, markersize=3.5, linewidth=1.2, color=colour, label=label)
            axes.fill_between(
                x, column(side, "mean_low"), column(side, "mean_high"), color=colour, alpha=0.2, linewidth=0
            )
            draw_capped(axes, side, "beta", colour, label=None)
    if lower:
        axes.plot(column(lower, "beta"), column(lower, "mean"), color="0.35", ls=":", label=LOWER)
    measured = column([row for row in table if row["seeds"]], "mean")
    axes.set(yscale="log", xlabel=AXES["beta"], ylabel="episodes until certified")
    axes.set_ylim(measured.min() / 3, measured.max() * 10)
    return finished(figure, ncols=2)


def _finite(table: Table, rule: str) -> Table:
    return [row for row in rows_where(table, rule=rule) if np.isfinite(row["mean"])]


def _describe_certify(table: Table) -> str:
    measured = [row for row in table if row["seeds"]]
    printed, checked, ours, most = (
        {row["beta"]: row["mean"] for row in rows_where(measured, rule=rule)}
        for rule in (PRINTED, CHECKED, "KL, nothing assumed", "KL, both")
    )
    text = (
        "Episodes until a policy is certified to ε = 0.2 with δ = 0.1 on the risky bridge at "
        f"H = {CERTIFY_HORIZON}, against β: the paper's rule (printed, machine-checked and sharp constants) and the KL rule "
        "of this library under four levels of assumptions; mean over "
        f"{measured[0]['seeds']} seeds with Student's 95% interval, logarithmic axis. Under the same assumptions, none, "
        f"the KL rule needs {_times(printed, ours)} fewer episodes than the paper's with the bonus that it prints, "
        f"{_times(checked, ours)} fewer than with the machine-checked one; with stationary transitions and known successors "
        f"{_times(printed, most)} and {_times(checked, most)} fewer."
    )
    upper = column(_finite(table, UPPER), "mean")
    if upper.size:
        text += (
            " The proved upper bound for the paper's rule with sharp constants and a test after every episode "
            f'(`theory.upper_bound`, form "implicit") is outside the plotted range: {upper.min():.1g} to {upper.max():.1g}.'
        )
    holds = len(_finite(table, LOWER))
    if holds:
        text += (
            f' The dotted line is the lower bound (`theory.lower_bound`, form "exact"), drawn at the {holds} values of β '
            "where its conditions hold. It is about the hard instance with these sizes and a learner that assumes "
            "nothing, not about the bridge: a rule that is below it here is no contradiction."
        )
    return text


def _times(more: dict[float, float], fewer: dict[float, float]) -> str:
    ratios = [more[beta] / fewer[beta] for beta in more if beta in fewer] or [math.nan]
    return f"{min(ratios):.3g} to {max(ratios):.3g} times"


CERTIFY = Plot(_sweep_certify, _table_certify, _draw_certify, _describe_certify)
