"""Empty figures, their colours and axes. They are made without pyplot, so that no display is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from entropic_bpi.tools.files import write_atomically

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
_DPI = 200


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG; a crash leaves either the old file or the new one.

    Parameters
    ----------
    figure : Figure
        The figure.
    path : path
        The file.

    Examples
    --------
    >>> from entropic_bpi import plots
    >>> figure = plots.new_figure(4, 3)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plots.save(figure, f"{folder}/figure.png")
    """
    write_atomically(path, lambda file: figure.savefig(file, format="png"))


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, which needs no display.

    Parameters
    ----------
    width, height : float
        Size in inches.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> from entropic_bpi import plots
    >>> figure = plots.new_figure(4, 3)
    >>> figure.get_size_inches().tolist()
    [4.0, 3.0]
    """
    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def one_plot(width: float, height: float, xlabel: str, ylabel: str) -> tuple[Figure, Any]:
    """Return a figure with one plot, and its axes."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def tidy(axes: Any) -> None:
    """Remove the upper and right frame, add a grid, and choose readable numbers for short logarithmic axes.

    Parameters
    ----------
    axes : Axes
        The axes of a Matplotlib plot.

    Examples
    --------
    >>> from entropic_bpi import plots
    >>> figure = plots.new_figure(4, 3)
    >>> plots.tidy(figure.subplots())
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log" and _ticks_in_view(axis, axis.get_major_locator()) < 2:
            axis.set_major_locator(_short_locator(axis))
            axis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(np.inf, np.inf)))
            axis.set_minor_formatter(NullFormatter())


def _ticks_in_view(axis: Any, locator: Any) -> int:
    low, high = axis.get_view_interval()
    return sum(low <= tick <= high for tick in locator.tick_values(low, high))


def _short_locator(axis: Any) -> Any:
    """Return a locator of 1, 2, 5, 10, …, or of any numbers if fewer than two of these are in view."""
    usual = LogLocator(subs=(1, 2, 5))
    return usual if _ticks_in_view(axis, usual) >= 2 else MaxNLocator(4)


def plain_numbers(axis: Any) -> None:
    """Write 0.2 instead of 2 × 10⁻¹ on a short logarithmic axis.

    Parameters
    ----------
    axis : Axis
        The axis of a Matplotlib plot.

    Examples
    --------
    >>> from entropic_bpi import plots
    >>> figure = plots.new_figure(4, 3)
    >>> axes = figure.subplots()
    >>> lines = axes.loglog([1, 2], [1, 2])
    >>> plots.plain_numbers(axes.xaxis)
    """
    axis.set_major_locator(_short_locator(axis))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
