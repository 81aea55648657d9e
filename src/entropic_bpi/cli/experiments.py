"""The commands ``reproduce``, ``sweep`` and ``export``: sweeps of runs, kept in a results file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.cli._answer import again, answer
from entropic_bpi.cli._app import CLAIM_FAILED
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from entropic_bpi.lab.experiments.store import Results

__all__ = ["OutOption", "ResumeOption", "SchedulerOption", "WorkersOption", "export", "reproduce", "sweep"]

RESULTS = "results.duckdb"
OutOption = Annotated[Path, typer.Option(help="Folder for the results; created if needed.", show_default=False)]
WorkersOption = Annotated[
    int | None, typer.Option(help="Processes. Default: one per core; 0: none.", show_default=False)
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786, to compute on.", show_default=False
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Keep the runs that are there, and do the rest.")]


def reproduce(
    out: OutOption,
    figures: Annotated[
        list[str] | None, typer.Argument(metavar="FIGURE", help="Default: fig3 to fig8.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="1e5 episodes, 3 seeds, coarser grids.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Another number of seeds than 15 (quick: 3).", show_default=False)
    ] = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw the figures of the paper, and some of ours, from runs that it carries out.

    Figures: fig3 fig4 (stopping time against beta and the horizon), fig5 fig6 fig7 fig8 (regret at beta = 1, 2, 3, 4), and
    regret (these four at a glance), certify (the paper's rule beside ours), interval (the certified interval over time),
    chi2 (why the slope in beta changes), tuned (regret with the best scale of each learner), tight (stopping times beside
    lower and upper bounds), factors (what each factor of the bounds costs).

    Each figure gets a folder with PNG, PDF, its data as CSV and a README that compares it with what the paper says. Runs are
    kept in results.duckdb as they finish; after an interruption, --resume does only what is missing.

    Examples:

        entropic-bpi reproduce fig3 fig4 --out figures

        entropic-bpi reproduce --quick --out figures-quick
    """
    from entropic_bpi.lab.experiments.figures import reproduce

    texts = reproduce(figures or [], out, quick=quick, seeds=seeds, workers=workers, scheduler=scheduler, resume=resume)

    def show() -> None:
        for name, text in texts.items():
            print(f"{printable(f'{out / name}: {text}')}\n")

    drawn = [{"figure": name, "folder": str(out / name), "text": text} for name, text in texts.items()]
    answer({"results": str(out / RESULTS), "figures": drawn}, as_json, show, export_of(out))


def export_of(out: Path) -> tuple[object, ...]:
    """The command that makes tables of results."""
    return ("export", out, "--out", out / "tables")


def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The sweep.", show_default=False)],
    out: OutOption,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> int:
    """Carry out the runs of a TOML file and keep their results in OUT/results.duckdb.

    Example file:

        [[runs]]

        instance = "risky-bridge"

        horizon = [5, 7]

        method = "kl"

        beta = [1.0, 2.0]

        seeds = 5

    Exit code 1 if some run failed; the others are kept, and --resume tries the failed ones again.
    """
    from entropic_bpi.lab import experiments

    asked = experiments.read_sweep(file)
    results = experiments.run(
        asked.runs, out, workers=workers, scheduler=scheduler, resume=resume, imports=asked.imports
    )
    failed = _failures(results)
    for one in failed:
        print(printable(f"failed: {one['run']}: {one['error']}"), file=sys.stderr)
    content = {"results": str(out / RESULTS), "runs": len(results.runs["id"]), "failed": failed}
    then = [*again(context, "sweep", without=("resume",)), "--resume"] if failed else export_of(out)
    answer(content, as_json, lambda: print(printable(f"{content['runs']} runs in {content['results']}")), then)
    return CLAIM_FAILED if failed else 0


def _failures(results: Results) -> list[dict[str, Any]]:
    pairs = zip(results.runs["id"], results.runs["error"], strict=True)
    return [{"run": name, "error": error} for name, error in pairs if error]


def export(
    results: Annotated[Path, typer.Argument(help="A results.duckdb, or its folder.", show_default=False)],
    out: OutOption,
    format: Annotated[list[str] | None, typer.Option(help="parquet or csv; repeat it for both. Default: both.")] = None,
    latex: Annotated[
        bool, typer.Option("--latex", help="LaTeX tables of means over seeds instead, or besides.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write results as Parquet and CSV: the tables runs, curves and timings.

    With --latex a table for a paper, KIND.tex for each kind of run: a row for each setting, with mean and 95% interval over
    the seeds. It is for the package booktabs. Without --format, it is then all that is written.
    """
    from entropic_bpi.lab import experiments

    wanted = [*(format or (() if latex else ("parquet", "csv"))), *(["latex"] if latex else ())]
    written = [str(path) for path in experiments.export(results, out, wanted)]

    def show() -> None:
        for path in written:
            print(printable(path))

    other = ["--format", "parquet"] if latex else ["--latex"]
    answer({"written": written}, as_json, show, ["export", results, *other, "--out", out])
