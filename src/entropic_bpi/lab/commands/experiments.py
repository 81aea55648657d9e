"""Commands for research: ``reproduce``, ``sweep``, ``validate`` and ``export``, whose runs are stored in a file."""

import sys
from pathlib import Path
from typing import Any

import entropic_bpi as eb
from entropic_bpi.cli.facts import Answer, Fact, data, line
from entropic_bpi.cli.options import open_model, options_of, parse_params, relayed, with_options
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.commands.compare import table_of
from entropic_bpi.tools.text import printable

RESULTS = "results.duckdb"


def computing(*, out: Path, workers: int | None = None, scheduler: str | None = None, resume: bool = False) -> None:
    """Describe where runs are computed and stored.

    Parameters
    ----------
    out
        Folder for the results; created if needed.
    """


@with_options(*options_of(computing), *relayed(quick=False, seeds=int))
def reproduce(figures: list[str] | None = None, **how: Any) -> Answer:
    """Run the experiments of the paper and draw its figures and some others.

    Figures: fig3 fig4 (stopping time against beta and the horizon), fig5 fig6 fig7 fig8 (regret at beta = 1, 2, 3, 4), and
    regret (these four together), certify (the paper's rule and the KL method), chi2 (why the slope in beta changes), tuned
    (regret with the best scale of each learner), tight (stopping times beside lower and upper bounds), factors (what each
    factor of the bounds costs).

    Each figure has a folder with PNG, PDF, its data as CSV and a README that compares it with the paper. Runs are stored in
    results.duckdb as they finish; after an interruption, --resume computes only what is missing. Needs the extra logs.

    Examples:

        entropic-bpi reproduce fig3 fig4 --out figures

        entropic-bpi reproduce --quick --out figures-quick

    Parameters
    ----------
    figures : FIGURE
        Figures to draw. Default: fig3 to fig8.
    quick
        Use 1e5 episodes, 3 seeds and coarser grids.
    seeds
        Number of seeds. Default: 15, or 3 with --quick.
    """
    from entropic_bpi.lab.experiments.figures import reproduce

    out = how.pop("out")
    texts = reproduce(figures or [], out, **how)
    drawn = [{"figure": name, "folder": str(out / name), "text": text} for name, text in texts.items()]
    facts = data(results=str(out / RESULTS), figures=drawn)
    return Answer([*facts, *(line(f"{out / name}: {text}") for name, text in texts.items())], _export_of(out))


def _export_of(out: Path) -> tuple[object, ...]:
    """Return the command that makes tables of results."""
    return ("export", out, "--out", out / "tables")


@with_options(*options_of(computing))
def sweep(file: Path, **where: Any) -> Answer:
    """Compute the runs of a TOML file and store their results in OUT/results.duckdb. Needs the extra logs.

    Example file:

        [[runs]]

        instance = "risky-bridge"

        horizon = [5, 7]

        method = "kl"

        beta = [1.0, 2.0]

        seeds = 5

    Exit code 1 if a run failed; the others are stored, and --resume tries the failed ones again.

    Parameters
    ----------
    file : FILE.toml
        The sweep file.
    """
    asked, out = eb.experiments.read_sweep(file), where.pop("out")
    results = eb.experiments.run(asked.runs, out, imports=asked.imports, **where)
    pairs = zip(results.runs["id"], results.runs["error"], strict=True)
    failed = [{"run": name, "error": error} for name, error in pairs if error]
    for one in failed:
        print(printable(f"failed: {one['run']}: {one['error']}"), file=sys.stderr)
    runs, results_file = len(results.runs["id"]), str(out / RESULTS)
    facts = [*data(results=results_file, runs=runs, failed=failed), line(f"{runs} runs in {results_file}")]
    return Answer(facts, () if failed else _export_of(out), not failed)


def export(results: Path, *, out: Path, format: list[str] | None = None) -> Answer:
    """Write results as Parquet and CSV: the tables runs, curves and timings.

    Parameters
    ----------
    results : RESULTS
        A file results.duckdb, or its folder.
    out
        Folder for the results; created if needed.
    format
        Format: parquet or csv. Default: both.
    """
    written = [str(path) for path in eb.experiments.export(results, out, format or ("parquet", "csv"))]
    return Answer([Fact("written", written), *map(line, written)])


@with_options(*options_of(computing), *relayed(delta=0.1, rules=list[str], quick=False, runs=int))
def validate(
    sources: list[str] | None = None,
    *,
    beta: list[float] | None = None,
    evar: list[float] | None = None,
    eps: float | None = None,
    horizon: int | None = None,
    param: list[str] | None = None,
    device: str = "cpu",
    **how: Any,
) -> Answer:
    """Measure how often the guarantee fails: run many times on known models, and compare each claim with the true values.

    A cell is a model at one beta, or one level of the entropic value at risk, under one rule (the paper's rule with each of
    its constants, and the KL method with each assumption that fits the model). For each cell it counts policies that are not
    eps-optimal, certificates that are false in any part, and failures of each concentration event at any plan, with exact
    binomial intervals.

    Writes rates.csv, cells.csv, totals.csv, validate.png and .pdf, and README.md. Runs are stored in results.duckdb as they
    finish (not on a GPU); after an interruption --resume computes only what is missing. Exit code 1 if a rate is
    significantly above the guaranteed one.

    Examples:

        entropic-bpi validate --quick --out study

        entropic-bpi validate risky-bridge --horizon 7 --beta 2.5 --eps 0.2 --runs 200 --out bridge

        entropic-bpi validate risky-bridge --horizon 5 --evar 0.1 --runs 200 --out tail

    Parameters
    ----------
    sources : SOURCE
        Models to validate on. Default: nine small models of different kinds.
    beta
        Risk parameter; repeat it for several. Default: 1 and -1.
    evar : ALPHA
        Level of the entropic value at risk (EVaR), instead of --beta or beside it; repeat it for several. EVaR is a
        lower bound on CVaR, the mean of the worst share ALPHA of the returns, and is not that mean: a policy with the
        best EVaR need not have the best CVaR.
    eps
        Accuracy. Default: a tenth of the loss of the worst policy.
    delta
        The guaranteed probability of failure.
    rules : --rule
        A rule, such as 'KL, both'; repeat it for several. Default: all that fit.
    quick
        Use 24 runs per cell instead of 1100.
    runs
        Number of runs per cell.
    device
        cpu or gpu. On a GPU every run is a thread, so that --runs may be 100000; it has only the KL method for a beta.
    """
    from entropic_bpi.lab.experiments.spec import label_of

    cases, out = None, how.pop("out")
    if sources:
        betas, alphas = dict.fromkeys(beta or (() if evar else (1.0, -1.0))), dict.fromkeys(evar or ())
        asked = (tuple(betas), eps, parse_params(param), tuple(alphas))
        cases = [eb.experiments.Case(label_of(one), open_model(one, horizon, param), *asked) for one in sources]
    elif horizon is not None or param or beta or evar or eps is not None:
        raise InvalidProblemError("--horizon, --param, --beta, --evar and --eps need a SOURCE")
    found = eb.experiments.validate(out, cases, device=device, **how)
    facts = [
        *data(ok=found.ok, text=found.text, folder=str(out)),
        Fact("totals", found.totals, shown=table_of(found.totals)),
        line(f"{out}: {found.text}"),
    ]
    return Answer(facts, _export_of(out) if device == "cpu" else (), found.ok)
