"""Reports: a certificate as one HTML page, for readers who do not know the library.

The page says what is claimed and how sure it is, what that rests on, what the policy does and what to expect of it, what
limits the claim, and how to check it again; whether :func:`~entropic_bpi.verify` passed when it was made stands at its top.
It holds all that it shows: no network, no library to load. Charts are SVG, drawn when the page is made, and a content
security policy allows the page its own few lines of script and nothing else, whatever names a certificate has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropic_bpi.tools.checks import check_path
from entropic_bpi.tools.files import write_text_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from entropic_bpi.certificate.certificate import Certificate
    from entropic_bpi.runs.appraisal import Appraisal
    from entropic_bpi.verification import Verification

__all__ = ["draw_laws", "statement", "summary_html", "write"]


def write(
    source: Any,
    path: str | Path,
    *,
    grid: tuple[int, int] | None = None,
    actions: Sequence[str] | None = None,
    unit: str | None = None,
    title: str | None = None,
) -> Verification:
    """Write a report as one HTML file.

    Parameters
    ----------
    source : Identification, Exploration, Certificate, Appraisal or path
        The result of a run; a certificate, or its file; or the folder that ``identify --out`` wrote. A certificate alone
        does not tell how the gap fell, nor the seed.
    path : path
        The file to write.
    grid : (int, int), optional
        Rows and columns, if the first states are the cells of a map, row by row. Found by itself where states are named by
        pairs of numbers, and for FrozenLake and CliffWalking as black boxes.
    actions : sequence of str, optional
        Names for the actions, such as ``"←↓→↑"`` as a list.
    unit, title : str, optional
        The unit of the rewards and the title of the page. Default: those that were declared.

    Returns
    -------
    Verification
        What the check said when the report was made. If it is not ``ok``, so does the page, at its top and in red. An
        appraisal of a known model has no data to check.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, successors="model", seed=1)
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checked = eb.report.write(result, f"{folder}/report.html")
    ...     page = pathlib.Path(folder, "report.html").read_text(encoding="utf-8")
    >>> checked.ok, "With probability at least 90 %, the policy is at most 0.3 worse than the best policy." in page
    (True, True)
    """
    from entropic_bpi.show.report._page import inputs_of, page_of

    target = check_path("path", path)
    inputs = inputs_of(source).named(unit, title)
    write_text_atomically(target, page_of(inputs, grid=grid, actions=actions))
    return inputs.verification


def draw_laws(appraisal: Appraisal) -> Figure:
    """Draw the bounds of the laws of the return of the policies of an appraisal.

    Parameters
    ----------
    appraisal : Appraisal
        The appraisal.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> len(eb.report.draw_laws(eb.appraise(bridge, {"safe": eb.solve(bridge, -2.0)})).axes)
    1
    """
    from matplotlib.ticker import StrMethodFormatter

    from entropic_bpi.show.decisions import drawn_band
    from entropic_bpi.show.plots import COLOURS, one_plot, tidy
    from entropic_bpi.show.words import name, probability
    from entropic_bpi.tools.text import drawable

    unit = "" if appraisal.unit is None else f" ({drawable(appraisal.unit)})"
    surely = "exact" if appraisal.delta is None else f"with probability ≥ {probability(appraisal.delta)}"
    figure, axes = one_plot(6.0, 3.4, f"return of an episode{unit}", "share of episodes with\nat most this return")
    for place, policy in enumerate(appraisal.bands):
        x, lower, upper = drawn_band(appraisal, policy, most=2_000)
        colour = COLOURS[place % len(COLOURS)]
        axes.fill_between(x, lower, upper, color=colour, alpha=0.35, linewidth=0)
        axes.plot(x, lower, color=colour, linewidth=1.0)
        axes.plot(x, upper, color=colour, linewidth=1.0, label=drawable(name(policy)))
    axes.set_ylim(0, 1)
    axes.set_title(f"Laws of the return, {surely}", fontsize=8)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    tidy(axes)
    axes.legend(frameon=False)
    return figure


def statement(certificate: Certificate) -> str:
    """Return the claim of a certificate as a sentence.

    Parameters
    ----------
    certificate : Certificate
        The claim.

    Returns
    -------
    str
        The probability, and the bounds on the values.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> eb.report.statement(result.certificate) == result.certificate.statement
    True
    """
    from entropic_bpi.show.words import ascii_minus, claim_of, probability

    return ascii_minus(f"With probability at least {probability(certificate.delta)}: {claim_of(certificate).bounds}")


def summary_html(thing: Any) -> str:
    """Return what a notebook shows of an object of this library.

    Parameters
    ----------
    thing : FiniteMDP, Solution, Front, Certificate, Identification, Appraisal, Policy, Rollout, RunForecast, Missing or Log
        The object.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> "8 states" in eb.report.summary_html(eb.instances.risky_bridge(horizon=7))
    True
    """
    from entropic_bpi.show.report._summary import summary_of

    return summary_of(thing)


def __getattr__(name: str) -> Any:
    if name == "short":
        raise AttributeError("report.short is now called report.summary_html")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
