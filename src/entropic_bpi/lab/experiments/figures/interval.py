"""The certified interval over time, for the paper's rule and ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.figures._figure import Plot, Size, Table, column, finished, rows_where
from entropic_bpi.lab.experiments.spec import RULES, RunSpec, grid, rule_of
from entropic_bpi.lab.experiments.store import Results

HORIZON, BETA, EPS = 7, 2.5, 0.2
SHOWN = ("paper, verified constants", "KL, nothing assumed", "KL, both")
POINTS, MOST_SEEDS = 120, 5


def _sweep(size: Size) -> list[RunSpec]:
    seeds = min(size.seeds, MOST_SEEDS)
    return [spec for rule in SHOWN for spec in grid(horizon=HORIZON, beta=BETA, seeds=seeds, **RULES[rule])]


def _table(results: Results) -> Table:
    """The interval of every run, seed by seed, thinned evenly in log time, beside the true optimum."""
    from entropic_bpi.model import instances
    from entropic_bpi.model.planning import solve

    best = float(solve(instances.risky_bridge(horizon=HORIZON), BETA).value)
    table = []
    for run, (spec, seed) in enumerate(zip(results.runs["spec"], results.runs["seed"], strict=True)):
        curve = results.curve(run)
        episodes = curve["episodes"]
        for i in np.unique(np.searchsorted(episodes, np.geomspace(1, episodes[-1], POINTS))):
            values = {key: float(curve[key][i]) for key in ("lower", "upper", "gap")}
            row = {"rule": rule_of(spec), "seed": int(seed), "episodes": int(episodes[i]), **values}
            table.append({**row, "optimum": best})
    return sorted(table, key=lambda row: (SHOWN.index(row["rule"]), row["seed"], row["episodes"]))


def _draw(table: Table) -> Any:
    from entropic_bpi.show.plots import COLOURS, new_figure

    figure = new_figure(5.6, 3.6)
    axes = figure.subplots()
    for rule, colour in zip(SHOWN, COLOURS, strict=False):
        rows = rows_where(table, rule=rule)
        for seed in sorted({row["seed"] for row in rows}):
            mine = rows_where(rows, seed=seed)
            x, lower, upper = (column(mine, name) for name in ("episodes", "lower", "upper"))
            axes.fill_between(x, lower, upper, color=colour, alpha=0.05, linewidth=0)
            for side, label in ((upper, rule if seed == rows[0]["seed"] else None), (lower, None)):
                axes.plot(x, side, color=colour, linewidth=0.9, label=label)
                axes.plot(x[-1:], side[-1:], color=colour, marker="|", markersize=7)
    axes.axhline(table[0]["optimum"], color="black", ls=":", label="best value V*")
    axes.set(xscale="log", xlabel="episodes", ylabel="value (units of reward)", ylim=(-0.1, None))
    return finished(figure, ncols=2)


def _tell(table: Table) -> str:
    inside = all(row["lower"] <= row["optimum"] <= row["upper"] for row in table)
    ends = {}
    for rule in SHOWN:
        rows = rows_where(table, rule=rule)
        ends[rule] = [rows_where(rows, seed=seed)[-1]["episodes"] for seed in sorted({row["seed"] for row in rows})]
    stops = "; ".join(f"{rule}: {min(found):.3g} to {max(found):.3g}" for rule, found in ends.items())
    held = "at every point of every run" if inside else "not always (which may happen with probability δ)"
    return (
        "The interval that certifies the value of the policy (below) and the best value (above), over time, at "
        f"β = {BETA:g}, H = {HORIZON}, ε = {EPS:g}, δ = 0.1 on the risky bridge; one line per seed "
        f"({len(ends[SHOWN[0]])} seeds), logarithmic axis of episodes; bars mark the stop. Episodes at the stop, smallest "
        f"and largest over seeds: {stops}. The true best value lies in the interval {held}."
    )


INTERVAL = Plot(_sweep, _table, _draw, _tell)
