"""``front``: the policies of a known model that are optimal for some β."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from entropic_bpi.cli._answer import again, answer
from entropic_bpi.cli._show import terminal
from entropic_bpi.cli._sources import HorizonOption, JsonOption, ParamOption, SourceArgument, open_model

if TYPE_CHECKING:
    from entropic_bpi.model.frontier import FrontRow


def front(
    context: typer.Context,
    source: SourceArgument,
    betas: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="Smallest and largest risk parameter; positive seeks risk."),
    ],
    alpha: Annotated[
        float,
        typer.Option(
            help="The share of the worst returns: VaR is the largest of them, CVaR their mean, EVaR a lower bound on CVaR."
        ),
    ] = 0.05,
    tol: Annotated[
        float,
        typer.Option(help="How much a policy that is left out may be better, in units of the range of the return."),
    ] = 1e-6,
    horizon: HorizonOption = None,
    param: ParamOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw risk against reward.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find all policies of a known model that are optimal for some β between two, and what their returns are like.

    Examples:

        entropic-bpi front risky-bridge --betas -2 2.5

        entropic-bpi front risky-bridge --betas -2 2.5 --alpha 0.1 --json
    """
    from entropic_bpi.model import frontier

    found = frontier.front(open_model(source, horizon, param), betas, tol=tol)
    rows = found.table(alpha)
    if plot is not None:
        found.plot(plot, alpha=alpha)
    content = {
        "source": source,
        "betas": found.betas,
        "values": found.values,
        "breakpoints": found.breakpoints,
        "tol": found.tol,
        "alpha": alpha,
        "rows": [row._asdict() for row in rows],
        "policies": found.policies,
    }
    middle = rows[len(rows) // 2]
    then = again(context, "solve", only=("source", "horizon", "param"))
    answer(content, as_json, lambda: _show(rows, alpha), [*then, "--beta", f"{(middle.low + middle.high) / 2:.3g}"])


def _show(rows: Sequence[FrontRow], alpha: float) -> None:
    from rich.table import Table

    percent = f"{100 * alpha:g} %"
    table = Table(
        "optimal for β", "mean", "std", f"VaR {percent}", f"CVaR {percent}", f"EVaR {percent}", box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(f"{row.low:.6g} to {row.high:.6g}", *(f"{value:.6g}" for value in row[2:]))
    terminal().print(table)
