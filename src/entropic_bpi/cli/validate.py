"""The command ``validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from entropic_bpi.cli._answer import answer
from entropic_bpi.cli._app import CLAIM_FAILED
from entropic_bpi.cli._show import terminal
from entropic_bpi.cli._sources import EVAR_IS, HorizonOption, JsonOption, ParamOption, open_model, parse_params
from entropic_bpi.cli.experiments import OutOption, ResumeOption, SchedulerOption, WorkersOption, export_of
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from entropic_bpi.lab.experiments import Case

__all__ = ["validate"]


def validate(
    out: OutOption,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE", help="Models to validate on. Default: nine small ones of every kind.", show_default=False
        ),
    ] = None,
    beta: Annotated[
        list[float] | None,
        typer.Option(help="Risk parameter; repeat it for several. Default: 1 and -1.", show_default=False),
    ] = None,
    evar: Annotated[
        list[float] | None,
        typer.Option(
            metavar="ALPHA",
            help="Level of the entropic value at risk (EVaR), instead of --beta or beside it; repeat it for several. "
            f"{EVAR_IS}",
        ),
    ] = None,
    eps: Annotated[
        float | None,
        typer.Option(help="Accuracy. Default: a tenth of what the worst policy loses.", show_default=False),
    ] = None,
    delta: Annotated[float, typer.Option(help="The probability of failure that is promised.")] = 0.1,
    horizon: HorizonOption = None,
    params: ParamOption = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", help="A rule, such as 'KL, both'; repeat it for several. Default: all that fit."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="24 runs per cell instead of 1100.")] = False,
    runs: Annotated[int | None, typer.Option(help="Another number of runs per cell.", show_default=False)] = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    resume: ResumeOption = False,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, or gpu: every run of the KL method for a beta is a thread there; --runs may be 100000."
        ),
    ] = "cpu",
    as_json: JsonOption = False,
) -> int:
    """Measure how often the guarantee fails: play many runs on models that are known, and judge each by the truth.

    A cell is a model at one beta, or one level of the entropic value at risk, under one rule (the paper's rule with each of
    its constants, and the KL method with each assumption that fits the model). Of each cell's runs it counts: policies that
    are not eps-optimal, certificates that are false in any part, and failures of each concentration event at any plan, with
    exact binomial intervals.

    Writes rates.csv, cells.csv, totals.csv, validate.png and .pdf, and README.md. The runs are kept in results.duckdb as
    they finish (not on a GPU); after an interruption --resume does only what is missing. Exit code 1 if a rate is above its
    promise beyond chance.

    Examples:

        entropic-bpi validate --quick --out study

        entropic-bpi validate risky-bridge --horizon 7 --beta 2.5 --eps 0.2 --runs 200 --out bridge

        entropic-bpi validate risky-bridge --horizon 5 --evar 0.1 --runs 200 --out tail
    """
    from entropic_bpi.lab import experiments

    cases = None
    if sources:
        betas = tuple(dict.fromkeys(beta or (() if evar else (1.0, -1.0))))
        cases = _cases(sources, horizon, params, betas, tuple(dict.fromkeys(evar or ())), eps)
    elif horizon is not None or params or beta or evar or eps is not None:
        raise InvalidProblemError("--horizon, --param, --beta, --evar and --eps are for the SOURCEs that you name")
    found = experiments.validate(
        out,
        cases,
        rules=rules,
        quick=quick,
        runs=runs,
        delta=delta,
        workers=workers,
        scheduler=scheduler,
        resume=resume,
        device=device,
    )

    def show() -> None:
        _show(found.totals)
        print(printable(f"{out}: {found.text}"))

    content = {"ok": found.ok, "totals": found.totals, "text": found.text, "folder": str(out)}
    # Single runs of a GPU are not kept: what is left to do is the same study on the CPU.
    then = export_of(out) if device == "cpu" else ("validate", "--out", f"{out}-cpu")
    answer(content, as_json, show, then)
    return 0 if found.ok else CLAIM_FAILED


def _cases(
    sources: list[str],
    horizon: int | None,
    params: list[str] | None,
    betas: tuple[float, ...],
    alphas: tuple[float, ...],
    eps: float | None,
) -> list[Case]:
    from entropic_bpi.lab.experiments import Case
    from entropic_bpi.lab.experiments.spec import label_of

    given = parse_params(params)
    return [
        Case(label_of(source), open_model(source, horizon, params), betas, eps, given, alphas) for source in sources
    ]


def _show(totals: list[dict[str, str]]) -> None:
    from rich.table import Table

    table = Table(*totals[0])
    for row in totals:
        table.add_row(*row.values())
    terminal().print(table)
