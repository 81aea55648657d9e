"""Measured stopping times beside lower and upper bounds, and the cost of each factor of the bounds.

The lower bound is for the model that is played: on the hard instance without a special choice it is that of the theorem, on
the bridge it is :func:`~entropic_bpi.theory.characteristic_time`. Both hold for algorithms that know the possible
successors, if kernels may change from step to step; so no rule with pooled counts is shown.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.ablation import FACTORS
from entropic_bpi.lab.experiments.figures._figure import Plot, Size, Table, column, rows_where
from entropic_bpi.lab.experiments.spec import RULES, RunSpec, grid, rule_of
from entropic_bpi.lab.experiments.statistics import LEVEL, confidence, summary
from entropic_bpi.lab.experiments.store import Results
from entropic_bpi.show.figures import COLOURS, new_figure, tidy

DELTA = 0.05
SHARP = "paper, sharp constants"
SHOWN = ("paper, verified constants", SHARP, "KL, nothing assumed", "KL, successors known")
HARD, BRIDGE = "hard instance", "risky bridge"
HARD_SIZES = {"n_states": 6, "n_actions": 2}
HORIZONS = {HARD: 6, BRIDGE: 5}
# Accuracies at β = 1 and -1; the last one is used for all risk parameters. Condition A holds at all of them.
ACCURACIES = {HARD: (0.01, 0.02, 0.08, 0.04), BRIDGE: (0.025, 0.05, 0.2, 0.1)}
BETAS = (-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0)
QUICK_BETAS = (-1.0, 1.0)
FULL_BOUNDS, NOTHING = "none", "nothing"


def _settings(quick: bool) -> list[tuple[str, float, float]]:
    """Return model, β and ε of every point."""
    points = []
    for name in (HARD, BRIDGE):
        accuracies = ACCURACIES[name][2:] if quick else ACCURACIES[name]
        points += [(name, beta, eps) for eps in accuracies for beta in QUICK_BETAS]
        points += [(name, beta, accuracies[-1]) for beta in (() if quick else BETAS)]
    return list(dict.fromkeys(points))


def _runs(name: str, beta: float, eps: float, rule: str, seeds: int) -> list[RunSpec]:
    if name == HARD:
        model: dict[str, Any] = {"instance": "hard-instance", "params": {**HARD_SIZES, "beta": beta, "eps": eps}}
    else:
        model = {"instance": "risky-bridge"}
    return grid(**model, horizon=HORIZONS[name], beta=beta, eps=eps, delta=DELTA, seeds=seeds, **RULES[rule])


def _labels(results: Results) -> list[tuple[str, float, float, str, str]]:
    """Return model, β, ε, rule and the removed factor of every run."""
    labels = []
    for fields in results.specs:
        name = HARD if fields["instance"] == "hard_instance" else BRIDGE
        options = fields["options"]
        labels.append((name, fields["beta"], options["eps"], rule_of(fields), options.get("without", FULL_BOUNDS)))
    return labels


# -- between the bounds ----------------------------------------------------------------------------------------------


def _sweep_tight(size: Size) -> list[RunSpec]:
    return [spec for point in _settings(size.quick) for rule in SHOWN for spec in _runs(*point, rule, size.seeds)]


def _table_tight(results: Results) -> Table:
    labels, runs = _labels(results), results.runs
    bounds = {point: _bounds(*point) for point in dict.fromkeys(label[:3] for label in labels)}
    table = []
    for label in sorted(set(labels), key=lambda label: (*label[:3], SHOWN.index(label[3]))):
        name, beta, eps, rule, _ = label
        chosen = np.array([other == label for other in labels])
        measured = summary(runs["episodes"][chosen], ~runs["stopped"][chosen].astype(bool))
        lower, upper = bounds[label[:3]]
        point = {"model": name, "beta": beta, "eps": eps, "rule": rule}
        table.append({**point, **measured, "lower": lower, "upper": upper, "times_lower": measured["mean"] / lower})
    return table


def _bounds(name: str, beta: float, eps: float) -> tuple[float, float]:
    """Return a lower bound for every algorithm on this model, and the upper bound for the paper's rule on its size."""
    from entropic_bpi.lab.limits import bounds, characteristic
    from entropic_bpi.model.return_law import max_return

    mdp = _runs(name, beta, eps, SHOWN[0], 1)[0].mdp
    sizes = (mdp.n_states, mdp.n_actions, mdp.horizon)
    demands: dict[str, Any] = {"beta": beta, "eps": eps, "delta": DELTA}
    if name == HARD:
        lower = bounds.lower_bound(*sizes, **demands, form="exact")
    else:
        lower = characteristic.characteristic_time(mdp, beta, eps, delta=DELTA).episodes
    return lower, bounds.upper_bound(*sizes, **demands, max_return=max_return(mdp), form="implicit")


def _draw_tight(table: Table) -> Any:
    figure = new_figure(10.0, 6.4)
    panels = figure.subplots(2, 3, sharey="row", squeeze=False)
    for row, name in zip(panels, (HARD, BRIDGE), strict=True):
        mine = rows_where(table, model=name)
        fixed = ACCURACIES[name][-1]
        views = [("eps", rows_where(mine, beta=1.0), "β = 1"), ("eps", rows_where(mine, beta=-1.0), "β = -1")]
        views.append(("beta", rows_where(mine, eps=fixed), f"ε = {fixed:g}"))
        for axes, (axis, points, title) in zip(row, views, strict=True):
            _draw_view(axes, axis, points)
            axes.set_title(f"{name}, {title}", fontsize="medium")
            tidy(axes)
        row[0].set_ylabel("episodes until certified")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return figure


def _draw_view(axes: Any, axis: str, points: Table) -> None:
    for sign in (1, -1):  # not joined across β = 0, where nothing was measured
        mine = sorted((row for row in points if sign * row["beta"] > 0), key=lambda row: row[axis])
        for rule, colour, marker in zip(SHOWN, COLOURS, "os^v", strict=False):
            line = rows_where(mine, rule=rule)
            label = rule if sign > 0 else None
            axes.plot(column(line, axis), column(line, "mean"), marker=marker, ms=4, color=colour, label=label)
        for name, style, words in (
            ("upper", "--", "proved upper bound, sharp constants"),
            ("lower", ":", "lower bound on this model"),
        ):
            line = rows_where(mine, rule=SHOWN[0])
            axes.plot(column(line, axis), column(line, name), color="0.35", ls=style, label=words if sign > 0 else None)
    axes.set(yscale="log", xlabel={"eps": "accuracy ε", "beta": "risk parameter β"}[axis])
    if axis == "eps":
        ticks = sorted({row["eps"] for row in points})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()


def _describe_tight(table: Table) -> str:
    above = [row for row in table if row["mean"] >= row["lower"]]
    sharp = rows_where(table, rule=SHARP)
    below = [row for row in sharp if row["mean"] <= row["upper"]]
    text = (
        f"Mean stopping times over {table[0]['seeds']} seeds, δ = {DELTA}, on the hard instance of the lower bound "
        "(6 states, 2 actions, H = 6, no special choice) and the risky bridge (H = 5), beside a lower bound for this very "
        "model and the upper bound that is proved for the paper's rule with sharp constants. "
        f"{len(above)} of {len(table)} means are above the lower bound, and {len(below)} of the {len(sharp)} of that rule "
        "below its upper bound. "
    )
    for name in (HARD, BRIDGE):
        ranges = []
        for rule in SHOWN:
            times = column(rows_where(table, model=name, rule=rule), "times_lower")
            ranges.append(f"{rule}: {times.min():.3g} to {times.max():.3g}")
        text += f"On the {name}, times the lower bound: {'; '.join(ranges)}. "
    return text.rstrip()


TIGHT = Plot(_sweep_tight, _table_tight, _draw_tight, _describe_tight)


# -- the cost of the factors -----------------------------------------------------------------------------------------


def _factor_points() -> list[tuple[str, float, float]]:
    return [(name, beta, ACCURACIES[name][-1]) for name in (HARD, BRIDGE) for beta in QUICK_BETAS]


def _sweep_factors(size: Size) -> list[RunSpec]:
    specs = []
    for point in _factor_points():
        for rule in SHOWN:
            full = _runs(*point, rule, size.seeds)
            specs += full
            for factor in (*FACTORS[RULES[rule]["method"]], "all"):
                specs += [replace(spec, kind="ablation", options={**spec.options, "without": factor}) for spec in full]
    return specs


def _table_factors(results: Results) -> Table:
    """Compare runs with and without a factor seed by seed, since they share their seeds."""
    labels, seeds, episodes = _labels(results), results.runs["seed"], results.runs["episodes"]
    taken: dict[Any, dict[int, float]] = {}
    for label, seed, count in zip(labels, seeds, episodes, strict=True):
        taken.setdefault(label, {})[int(seed)] = float(max(count, 1))
    table = []
    for name, beta, eps in _factor_points():
        for rule in SHOWN:
            full = taken[name, beta, eps, rule, FULL_BOUNDS]
            for factor in (FULL_BOUNDS, *FACTORS[RULES[rule]["method"]], "all"):
                mine = taken[name, beta, eps, rule, factor]
                logs = [math.log(full[seed] / mine[seed]) for seed in mine]
                centre, half = confidence(logs, LEVEL)
                ratios = {
                    "times_fewer": math.exp(centre),
                    "low": math.exp(centre - half),
                    "high": math.exp(centre + half),
                }
                row = {"model": name, "beta": beta, "eps": eps, "rule": rule, "without": factor}
                certifies = "ε, δ" if factor == FULL_BOUNDS else NOTHING
                table.append({**row, "mean": np.mean(list(mine.values())), **ratios, "certifies": certifies})
    return table


def _draw_factors(table: Table) -> Any:
    figure = new_figure(9.0, 5.6)
    off = [row for row in table if row["certifies"] == NOTHING]
    names = list(dict.fromkeys((row["rule"], row["without"]) for row in off))
    axes = figure.subplots()
    for i, (name, beta, _) in enumerate(_factor_points()):
        line = {(row["rule"], row["without"]): row for row in rows_where(off, model=name, beta=beta)}
        times, low, high = (column([line[key] for key in names], side) for side in ("times_fewer", "low", "high"))
        y, label = np.arange(len(names)) + 0.18 * (i - 1.5), f"{name}, β = {beta:g}"
        axes.barh(y, times - 1, left=1, height=0.17, color=COLOURS[i], label=label)
        axes.hlines(y, low, high, color="black", lw=0.8)
    axes.set_yticks(range(len(names)), [f"{rule}: without {factor}" for rule, factor in names], fontsize="small")
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="times fewer episodes if the factor were not there (such a run certifies nothing)")
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    tidy(axes)
    return figure


def _describe_factors(table: Table) -> str:
    text = (
        "How many times fewer episodes a run would take if one factor of its bounds were not there, at one accuracy of "
        "both models and β = 1, -1; geometric means over seeds. Runs without a factor certify nothing: they show what it "
        "costs, not that it could be left out. "
    )
    for rule in SHOWN:
        off = [row for row in rows_where(table, rule=rule) if row["certifies"] == NOTHING and row["without"] != "all"]
        largest = max(off, key=lambda row: row["times_fewer"])
        everything = column(rows_where(table, rule=rule, without="all"), "times_fewer")
        text += (
            f"{rule}: '{largest['without']}' costs most, up to a factor of {largest['times_fewer']:.3g} "
            f"({largest['model']}, β = {largest['beta']:g}); all together {everything.min():.3g} to {everything.max():.3g}. "
        )
    return text.rstrip()


FACTOR_COSTS = Plot(_sweep_factors, _table_factors, _draw_factors, _describe_factors)
