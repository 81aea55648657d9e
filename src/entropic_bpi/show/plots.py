"""Figures of runs, certificates, fronts, monitors and appraisals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.model.frontier import Front
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.show.choices import seen_to_reach
from entropic_bpi.show.decisions import drawn_band
from entropic_bpi.show.figures import COLOURS, new_figure, one_plot, plain_numbers, save, tidy
from entropic_bpi.show.words import Rounding, name, number, probability, unit_of
from entropic_bpi.tools.text import drawable

__all__ = ["COLOURS", "evidence", "front", "grid", "interval", "new_figure", "plain_numbers"]
__all__ += ["policy", "returns", "save", "spectrum", "tidy"]

_MOST_POLICIES, _MOST_BARS = 14, 30


def _band(axes: Any, x: np.ndarray, lower: Any, upper: Any, value: str, marker: str = "") -> None:
    """Draw a certified interval."""
    axes.fill_between(x, lower, upper, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(x, upper, color=COLOURS[0], marker=marker, label=f"upper bound of the best {value}")
    axes.plot(x, lower, color=COLOURS[0], ls="--", marker=marker, label=f"lower bound of the policy's {value}")


def interval(history: np.ndarray, *, eps: float, delta: float, unit: str | None = None) -> Figure:
    """Draw the certified interval and the gap of each plan of a run against the episodes.

    Parameters
    ----------
    history : structured array ``episodes, lower, upper, gap``
        As in :class:`~entropic_bpi.Identification`; plans before the first episode are left out.
    eps, delta : float
        Target of the run, and the probability with which its claim may fail.
    unit : str, optional
        The unit of the rewards.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> from entropic_bpi import plots
    >>> len(plots.interval(result.history, eps=0.5, delta=0.1).axes)
    2
    """
    rows = history[history["episodes"] > 0] if len(history) > 1 else history
    episodes = np.maximum(rows["episodes"], 1)
    bounded = np.isfinite(rows["upper"]).any()  # an exploration bounds the gap alone
    figure = new_figure(5.2, 4.6 if bounded else 3.0)
    *above, gaps = figure.subplots(1 + bounded, 1, sharex=True, squeeze=False).flat
    unit = drawable(unit or "units of reward")
    for values in above:
        _band(values, episodes, rows["lower"], rows["upper"], "value")
        values.set_ylabel(f"value ({unit})")
    figure.axes[0].set_title(f"Certified with probability at least {probability(delta)}", fontsize="medium")
    claimed = np.minimum(rows["gap"], rows["upper"] - rows["lower"])  # a method may not bound the gap yet
    gaps.plot(episodes, claimed, color=COLOURS[1], label="certified gap")
    gaps.axhline(eps, color="black", ls=":", label=f"target ε = {eps:g}")
    gaps.set(xscale="log", yscale="log", xlabel="episodes", ylabel=f"gap ({unit})")
    plain_numbers(gaps.yaxis)
    for axes in figure.axes:
        axes.legend(frameon=False, fontsize="small")
        tidy(axes)
    return figure


def evidence(history: Sequence[tuple[int, float]], *, level: float) -> Figure:
    """Draw the e-value of a monitor over the episodes.

    Parameters
    ----------
    history : sequence of (int, float)
        Episodes, and the logarithm of the e-value after them, as :class:`~entropic_bpi.Monitor` has them.
    level : float
        Bound on the probability of a false alarm; a line marks 1/level.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> from entropic_bpi import plots
    >>> len(plots.evidence([(0, 0.0), (10, 1.5)], level=0.01).axes)
    1
    """
    episodes, logs = (np.array(column, dtype=float) for column in zip(*history, strict=True))
    alarm = -np.log(level)
    figure, axes = one_plot(5.2, 3.2, "episodes observed", "log e")
    axes.plot(episodes, np.clip(logs, -alarm, 3 * alarm), color=COLOURS[0], label="evidence")
    axes.axhline(alarm, color=COLOURS[1], ls="--", label=f"alarm (false-alarm rate at most {100 * level:g} %)")
    axes.set_ylim(-1.1 * alarm, 3.1 * alarm)
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    tidy(axes)
    return figure


def grid(certificate: Certificate, cells: np.ndarray, arrows: str) -> Figure:
    """Draw the policy of a grid world, with the certified values at the first step at which each cell can be occupied.

    Parameters
    ----------
    certificate : Certificate
        A certificate of method ``"kl"``; its first states are the cells in row order.
    cells : array of str, ``(rows, columns)``
        A letter for each cell, shown in its corner.
    arrows : str
        One character per action.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> from entropic_bpi import plots
    >>> import numpy as np
    >>> figure = plots.grid(result.certificate, np.full((2, 4), ""), "→↑")
    >>> len(figure.axes)
    1
    """
    from entropic_bpi.methods.kl.method import KL
    from entropic_bpi.runs.monitoring.evidence import attained_at

    problem, first, policy = certificate.problem, int(certificate.problem.artificial), certificate._planned
    if certificate.risk == "evar":
        problem = problem.at(attained_at(certificate)[0], problem.eps)
    lower, upper = (side[first:] for side in KL(problem).value_bounds(certificate.counts, policy))
    figure, axes = one_plot(1.1 * cells.shape[1] + 0.4, 1.1 * cells.shape[0] + 0.8, "", "")
    to, shown = Rounding.of(certificate), np.full(cells.shape, np.nan)
    seen = {-1 if problem.artificial else problem.start, *certificate.transitions.successors.tolist()}
    for (row, column), letter in np.ndenumerate(cells):
        s = int(np.ravel_multi_index((row, column), cells.shape))
        steps = np.flatnonzero(np.isfinite(lower[:, s]))[: s in seen]  # a cell where episodes end is never occupied
        axes.text(column - 0.42, row - 0.4, drawable(letter), fontsize=6, va="top", color="grey")
        for h in steps[:1].tolist():
            shown[row, column] = lower[h, s]
            arrow, bounds = arrows[certificate.policy[h, s]], f"{to.at_least(lower[h, s])} – {to.at_most(upper[h, s])}"
            axes.text(column, row - 0.12, arrow, ha="center", va="center", fontsize=14)
            axes.text(column, row + 0.3, bounds, ha="center", fontsize=5.5)
    axes.imshow(shown, cmap="Blues", alpha=0.5)
    axes.set(xticks=[], yticks=[])
    title = (
        f"Policy, and bounds of its and the best value ({unit_of(certificate) or 'units of reward'}), at the first step in "
        f"each cell, β = {problem.beta:.4g}, all with probability ≥ {probability(certificate.delta)}"
    )
    axes.set_title(drawable(title), fontsize=6.5, wrap=True)
    return figure


def policy(certificate: Certificate, actions: Sequence[str] | None = None) -> Figure:
    """Draw the action in each state and at each step that the policy reaches along observed transitions.

    Parameters
    ----------
    certificate : Certificate
        The certificate.
    actions : sequence of str, optional
        Names for the legend, for an environment whose actions are numbers.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> from entropic_bpi import plots
    >>> len(plots.policy(result.certificate).axes)
    1
    """
    problem, places = certificate.problem, seen_to_reach(certificate)
    reached = [(h, s) for h, occupied in enumerate(places) for s in occupied]
    states = sorted({s for _, s in reached})
    figure, axes = one_plot(0.45 * problem.horizon + 2.2, 0.3 * len(states) + 1.2, "step", "state")
    for a, action in enumerate(problem.action_names if actions is None else actions):
        chosen = [(h, states.index(s)) for h, s in reached if certificate.policy[h, s] == a]
        colour = COLOURS[a % len(COLOURS)]
        axes.scatter(*np.reshape(chosen, (-1, 2)).T, s=120, marker="s", color=colour, label=drawable(action))
    axes.set(xticks=range(problem.horizon), xlim=(-0.6, problem.horizon - 0.4))
    axes.set_yticks(range(len(states)), [drawable(problem.state_names[s]) for s in states])
    axes.legend(title="action", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def spectrum(claims: Sequence[Certificate], policies: Sequence[int] = ()) -> Figure:
    """Draw the certified band of the best value over β, or of the best EVaR over α, and where the policy changes.

    Parameters
    ----------
    claims : sequence of Certificate
        One for each β, or one for each level of the entropic value at risk, in order.
    policies : sequence of int, optional
        The number of the policy of each claim; without them, changes of the policy are not shown.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> from entropic_bpi import plots
    >>> claims = [eb.certify(result, beta=beta) for beta in (-1.0, 0.0)]
    >>> len(plots.spectrum(claims).axes)
    1
    """
    tail, value = claims[0].risk == "evar", "value" if claims[0].risk == "entropic" else "EVaR"
    levels = np.array([claim.alpha if tail else claim.beta for claim in claims])
    lower, upper = ([getattr(claim, side) for claim in claims] for side in ("lower", "upper"))
    unit = drawable(unit_of(claims[0]) or "units of reward")
    parameter = "level α of the entropic value at risk" if tail else f"risk parameter β (1 / {unit})"
    figure, axes = one_plot(5.2, 3.4, parameter, f"{value} ({unit})")
    _band(axes, levels, lower, upper, value, "o" if len(claims) == 1 else "")
    changes = [(a + b) / 2 for a, b, p, q in zip(levels, levels[1:], policies, policies[1:], strict=False) if p != q]
    for i, level in enumerate(changes):
        axes.axvline(level, color=COLOURS[1], ls=":", label=None if i else "the certified policy changes")
    surely = f"at once with probability at least {probability(claims[0].delta)}"
    axes.set_title(f"All {'α' if tail else 'β'} {surely}", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    tidy(axes)
    return figure


def front(found: Front, *, alpha: float = 0.05) -> Figure:
    """Draw the mean of the return against its standard deviation, for the policies that are optimal for some β.

    The mean of the worst fraction ``alpha`` of the returns is drawn below each policy. Policies are numbered in the order
    of β; the list says for which β each is optimal.

    Parameters
    ----------
    found : Front
        The policies.
    alpha : float
        The fraction of the worst returns.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> from entropic_bpi import plots
    >>> len(plots.front(eb.front(bridge, betas=(-1, 1))).axes)
    1
    """
    rows = found.table(alpha)
    spread, mean, worst = ([getattr(row, name) for row in rows] for name in ("std", "mean", "cvar"))
    unit = drawable(getattr(found.mdp, "unit", None) or "units of reward")
    figure, axes = one_plot(6.4, 3.8, f"standard deviation of the return ({unit})", f"return ({unit})")
    axes.plot(spread, mean, color=COLOURS[0], alpha=0.4, linewidth=1.0, zorder=1)
    axes.vlines(spread, worst, mean, color="grey", linewidth=0.6, zorder=1)
    marks = [axes.scatter(spread, mean, color=COLOURS[0], label="mean of the return", zorder=2)]
    what = f"mean of the worst {100 * alpha:g} % of the returns"
    marks += [axes.scatter(spread, worst, color=COLOURS[1], marker="v", s=24, label=what, zorder=2)]
    for i, row in enumerate(rows, start=1):
        axes.annotate(f"{i}", (row.std, row.mean), textcoords="offset points", xytext=(4, 5), fontsize="small")
    shown = [f"{i}: β {number(row.low)} to {number(row.high)}" for i, row in enumerate(rows, start=1)]
    shown = shown if len(shown) <= _MOST_POLICIES else [*shown[: _MOST_POLICIES - 1], "…"]
    axes.text(1.02, 1.0, "\n".join(shown), transform=axes.transAxes, va="top", fontsize="small", linespacing=1.6)
    axes.margins(x=0.1, y=0.15)
    axes.set_title("Policies that are optimal for some β", fontsize="medium")
    figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    tidy(axes)
    return figure


def returns(values: np.ndarray) -> Figure:
    """Draw a histogram of returns, with their mean and the range from the 5 % to the 95 % quantile.

    Parameters
    ----------
    values : float array
        The returns, such as those of a :class:`~entropic_bpi.Rollout`.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import numpy as np
    >>> from entropic_bpi import plots
    >>> len(plots.returns(np.array([0.0, 1.0, 1.0])).axes)
    1
    """
    figure, axes = one_plot(6.0, 3.6, "return of an episode", "share of episodes")
    histogram(axes, values, np.ptp(values))
    low, high = np.quantile(values, (0.05, 0.95))
    axes.axvline(float(values.mean()), color="black", label=f"mean {values.mean():.4g}")
    axes.axvspan(low, high, color="black", alpha=0.08, lw=0, label=f"5 % to 95 %: {low:.4g} to {high:.4g}")
    axes.legend(frameon=False)
    tidy(axes)
    return figure


def histogram(axes: Any, values: np.ndarray, span: float, label: str | None = None) -> None:
    """Draw the shares of values on an axis of length ``span``: a bar for each value, or bins if there are many values."""
    different, times = np.unique(values.round(12), return_counts=True)
    if len(different) <= _MOST_BARS:
        width = 0.8 * min(np.diff(different).min(initial=np.inf), 0.05 * span or 1.0)
        axes.bar(different, times / len(values), width=width, color=COLOURS[0], label=label)
    else:
        weights = np.full(len(values), 1 / len(values))
        axes.hist(values, bins=_MOST_BARS, weights=weights, color=COLOURS[0], label=label)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def laws(appraisal: Appraisal) -> Figure:
    """Draw the bounds of the distribution of the return for each policy of an appraisal."""
    unit = "" if appraisal.unit is None else f" ({drawable(appraisal.unit)})"
    surely = "exact" if appraisal.delta is None else f"with probability ≥ {probability(appraisal.delta)}"
    figure, axes = one_plot(6.0, 3.4, f"return of an episode{unit}", "share of episodes with\nat most this return")
    for i, policy in enumerate(appraisal.bands):
        x, lower, upper = drawn_band(appraisal, policy)
        colour = COLOURS[i % len(COLOURS)]
        axes.fill_between(x, lower, upper, color=colour, alpha=0.35, linewidth=0)
        axes.plot(x, lower, color=colour, linewidth=1.0)
        axes.plot(x, upper, color=colour, linewidth=1.0, label=drawable(name(policy)))
    axes.set_ylim(0, 1)
    axes.set_title(f"Distribution of the return, {surely}", fontsize="medium")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure
