"""Figures of comparisons between learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from entropic_bpi.lab.learners import Run
from entropic_bpi.lab.learners import title as title_of
from entropic_bpi.show.figures import COLOURS, DASHES, new_figure, tidy
from entropic_bpi.tools.text import drawable


def regret(runs: Mapping[str, Sequence[Run]], *, title: str = "") -> Figure:
    """Plot the mean regret of each learner over its seeds, and a band from the smallest to the largest.

    The band is the range over the seeds, because an interval for the mean may reach below 0, which a logarithmic axis cannot
    show. Lines differ in colour and dashes: up to 28 combinations, four without colours.
    """
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    floor = np.inf
    for i, (learner, each) in enumerate(runs.items()):
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "ls": DASHES[i % len(DASHES)]}
        grid = each[0].grid
        curves = np.array([run.regret for run in each])
        mean = curves.mean(axis=0)
        axes.plot(grid, mean, label=drawable(title_of(learner)), linewidth=1.4, **style)
        axes.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=style["color"], alpha=0.15, linewidth=0)
        floor = min(floor, mean[mean > 0].min(initial=np.inf))
    axes.set(xscale="log", yscale="log", xlabel="episodes", ylabel="regret (units of reward)")
    if np.isfinite(floor):
        axes.set_ylim(bottom=floor / 2)
    axes.set_title(drawable(title), fontsize="medium")
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    tidy(axes)
    return figure
