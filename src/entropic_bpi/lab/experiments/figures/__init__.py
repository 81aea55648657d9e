"""Figures 3 to 8 of the paper, and further figures.

A figure is a sweep, a table computed from its results, a drawing of the table and a paragraph about it. The table is
saved as CSV. The drawing and the paragraph are computed from the table alone, so they can be checked there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from entropic_bpi.lab.experiments.figures import chi2, regret, stopping, tightness, tuned
from entropic_bpi.lab.experiments.figures._figure import FULL, QUICK, Plot, read_table, save
from entropic_bpi.lab.experiments.runner import run
from entropic_bpi.tools.checks import check_choice, check_flag, check_list, check_path

__all__ = ["FIGURES", "PAPER", "Plot", "read_table", "reproduce"]

FIGURES: Mapping[str, Plot] = {
    "fig3": stopping.FIG3,
    "fig4": stopping.FIG4,
    "fig5": regret.at(1.0),
    "fig6": regret.at(2.0),
    "fig7": regret.at(3.0),
    "fig8": regret.at(4.0),
    "regret": regret.OVERVIEW,
    "certify": stopping.CERTIFY,
    "chi2": chi2.CHI2,
    "tuned": tuned.TUNED,
    "tight": tightness.TIGHT,
    "factors": tightness.FACTOR_COSTS,
}
PAPER = ("fig3", "fig4", "fig5", "fig6", "fig7", "fig8")


def reproduce(
    names: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    seeds: int | None = None,
    **options: Any,
) -> dict[str, str]:
    """Compute and draw figures.

    Each figure ``NAME`` becomes ``NAME/NAME.png``, ``.pdf`` and ``.csv`` with a ``README.md``; the runs of all of them are
    in ``results.duckdb``.

    Parameters
    ----------
    names : list of str
        Names in ``FIGURES``; an empty list stands for the figures of the paper.
    folder : path
        Folder for the figures; created if needed.
    quick : bool
        Use 10⁵ episodes, 3 seeds and coarser grids, instead of 10⁷ episodes and 15 seeds.
    seeds : int, optional
        Number of seeds, instead of these.
    **options
        ``workers``, ``scheduler``, ``resume``, ``progress``: as for :func:`~entropic_bpi.lab.experiments.run`.

    Returns
    -------
    dict of str
        The paragraph about each figure.

    Examples
    --------
    >>> from entropic_bpi.lab.experiments import reproduce
    >>> reproduce(["fig3"], "figures", quick=True)  # doctest: +SKIP
    """
    chosen = list(dict.fromkeys(check_choice("figure", name, FIGURES) for name in check_list("names", names)))
    chosen, folder = chosen or list(PAPER), check_path("folder", folder)
    size = (QUICK if check_flag("quick", quick) else FULL).with_seeds(seeds)
    sweeps = {name: FIGURES[name].sweep(size) for name in chosen}
    # Seed by seed, so that after an interruption all settings have equally many seeds, from which --seeds draws.
    specs = sorted((spec for sweep in sweeps.values() for spec in sweep), key=lambda spec: spec.seed)
    results = run(specs, folder, **options)
    return {
        name: save(FIGURES[name], name, results.select(sweep), size, folder / name) for name, sweep in sweeps.items()
    }
