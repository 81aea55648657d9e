"""``compare``: learners side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from entropic_bpi.cli._answer import again, answer
from entropic_bpi.cli._show import OutOption, new_folder, terminal
from entropic_bpi.cli._sources import (
    BetaOption,
    HorizonOption,
    JsonOption,
    ParamOption,
    SourceArgument,
    open_model,
)
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.files import write_csv

if TYPE_CHECKING:
    from entropic_bpi.lab.compare import Verdict
    from entropic_bpi.lab.learners import Run, Stop

REGRET, PLOT, STOPPING, VERDICTS = "regret.csv", "regret.png", "stopping.csv", "verdicts.csv"
_SEEDS, _MOST_SEEDS = 5, 30
_STOPPING_FORM = {"kl_bpi": "identify_kl", "entropic_bpi": "identify_bernstein"}


def compare(
    context: typer.Context,
    source: SourceArgument,
    beta: BetaOption,
    episodes: Annotated[int, typer.Option(help="Length of each run; with --stop the number at which a run is capped.")],
    out: OutOption,
    learners: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Which ones. Default: all that take this beta; with --stop all that have a stopping rule.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=f"Runs of each learner. Default: {_SEEDS}; with --sequential at most so many, {_MOST_SEEDS} unless given.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Failure probability that the learners are built for.")] = 0.1,
    scale: Annotated[float, typer.Option(help="Multiplies every bonus or radius; 1 is the published constant.")] = 1.0,
    stop: Annotated[
        float | None, typer.Option(metavar="EPS", help="Compare the episodes to a certificate of EPS instead.")
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option("--sequential", help="Stop a learner once its regret differs significantly from the others'."),
    ] = False,
    batch: Annotated[int, typer.Option(help="With --sequential: runs of each learner between two tests.")] = 6,
    level: Annotated[
        float, typer.Option(help="With --sequential: probability of reporting any difference that does not exist.")
    ] = 0.05,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module that registers learners of your own, from this folder or installed; repeat it for several.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. Default: one per core.")] = None,
    horizon: HorizonOption = None,
    param: ParamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run several learners over several seeds, and compare their regret or the episodes they need to be sure.

    Examples:

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --learners rsvi2,rovi,kl_bpi --seeds 10 --out regret

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --scale 0.01 --out tuned

        entropic-bpi compare risky-bridge --beta -0.5 --episodes 10000000 --stop 0.5 --out stopping

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --sequential --out apart

    The regret is exact: the sum of (best value - value of the policy played) over the episodes. Its table gives the mean
    over the seeds with a 95% interval; regret.csv holds every run, regret.png the mean curves and the range over the seeds.

    With --stop the learners that can certify a policy play until they do, beside identify with methods kl and bernstein;
    the table and stopping.csv show which runs were capped at --episodes.

    With --sequential the number of runs is found on the way: after every batch all pairs of learners are tested, a learner
    that differs significantly from all others stops, and verdicts.csv has the results. With probability at least 1 - LEVEL
    no difference is reported between two learners whose regret has the same distribution.

    Learners: entropic_bpi rsvi rsq rsvi2 rsq2 ucb_advantage rodi_otp rodi_pto rovi bpi_ucbvi kl_bpi generative.
    """
    from entropic_bpi.lab import compare as lab
    from entropic_bpi.tools.workers import import_modules

    if sequential and stop is not None:
        raise InvalidProblemError("--sequential compares the regret: leave out --stop")
    import_modules(imports or (), Path.cwd())
    mdp = open_model(source, horizon, param)
    seeds = seeds if seeds is not None else _MOST_SEEDS if sequential else _SEEDS
    chosen, left_out = _chosen(learners, beta, stop is not None)
    files = (STOPPING,) if stop is not None else (REGRET, PLOT, VERDICTS) if sequential else (REGRET, PLOT)
    new_folder(out, files)
    options: dict[str, Any] = {"beta": beta, "seeds": seeds, "delta": delta, "scale": scale, "workers": workers}
    options["imports"] = imports or ()
    over = "1 seed" if seeds == 1 else f"{seeds} seeds"
    if stop is not None:
        stops = lab.compare_stopping(mdp, chosen, eps=stop, max_episodes=episodes, **options)
        question = f"{source}: episodes to a certificate of eps {stop:g} with delta {delta:g}, beta {beta:g}, {over}"
        if scale < 1:
            question += "\nwith --scale below 1 the learners' certificates are void; those of identify are not affected"
        found = _stopping(stops, left_out, out)
    else:
        verdicts: list[Verdict] | None = None
        if sequential:
            runs, verdicts = lab.compare_sequentially(
                mdp, chosen, episodes=episodes, batch=batch, level=level, **options
            )
            over = f"differences at level {level:g}"
        else:
            runs = lab.compare_regret(mdp, chosen, episodes=episodes, **options)
        question = f"{source}: {episodes:,} episodes, beta {beta:g}, scale {scale:g}, {over}"
        found = _regret(runs, verdicts, f"{source}, β = {beta:g}, scale {scale:g}: mean and range of the runs", out)
    content: dict[str, Any] = {"episodes": episodes} if stop is None else {"eps": stop, "max_episodes": episodes}

    def show() -> None:
        console = terminal()
        console.print(question)
        for table in found.tables:
            _print(table)
        for note in found.notes:
            console.print(note)
        console.print(f"written  {out}: {', '.join(files)}")

    low, high = mdp.reward_range
    eps = f"{(high - low) * mdp.horizon / 20:.1g}" if stop is None else f"{stop:g}"
    then = [*again(context, "plan", only=("source", "horizon", "param", "beta")), "--eps", eps, "--delta", f"{delta:g}"]
    written = [str(out / name) for name in files]
    content = {"source": source, "beta": beta, "seeds": seeds, **content, **found.content, "written": written}
    answer(content, as_json, show, then)


class _Found(NamedTuple):
    """The outcome of a comparison: for programs, and as tables and lines of text for people."""

    content: dict[str, Any]
    tables: list[list[dict[str, str]]]
    notes: Sequence[str] = ()


def _chosen(given: str | None, beta: float, stopping: bool) -> tuple[list[str], list[str]]:
    """Return the learners to run, and those that were given but have no stopping rule."""
    from entropic_bpi.lab.compare import CERTIFYING, playable, stoppable
    from entropic_bpi.lab.learners import names
    from entropic_bpi.tools.checks import check_choice

    wanted = None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    if wanted == []:
        raise InvalidProblemError(f"--learners must be names separated by commas, got {given!r}")
    if not stopping:
        return wanted or playable(beta), []
    for name in wanted or ():
        check_choice("learner", name, (*names(), *CERTIFYING))
    able = stoppable(beta)
    chosen = [*(name for name in wanted or able if name in able), *CERTIFYING]
    return chosen, [name for name in wanted or () if name not in chosen]


def _regret(runs: Mapping[str, Sequence[Run]], verdicts: Sequence[Verdict] | None, title: str, out: Path) -> _Found:
    """Write the files of a comparison of regret, and return its tables; ``verdicts`` are those of a sequential one."""
    from entropic_bpi.lab.compare import confidence
    from entropic_bpi.lab.plots import regret
    from entropic_bpi.show import plots

    curves = [
        (learner, run.settings["seed"], int(episodes), float(value))
        for learner, each in runs.items()
        for run in each
        for episodes, value in zip(run.grid, run.regret, strict=True)
    ]
    write_csv(out / REGRET, ("learner", "seed", "episodes", "regret"), curves)
    plots.save(regret(runs, title=title), out / PLOT)
    learners: list[dict[str, Any]] = []
    table = []
    for name, each in runs.items():
        mean, half = confidence([run.regret[-1] for run in each])
        # After a sequential test the mean is biased, so there is no interval.
        spread = {"half_width": half} if verdicts is None else {"runs": len(each)}
        words = {"95% interval": _interval(mean, half, ".6g")} if verdicts is None else {"runs": str(len(each))}
        learners.append({"learner": name, "regret": mean, **spread})
        table.append({"learner": name, "regret": f"{mean:.6g}", **words, "seconds a run": _seconds(each)})
    order = sorted(range(len(table)), key=lambda i: float(learners[i]["regret"]))
    found = _Found({"learners": learners}, [[table[i] for i in order]])
    return found if verdicts is None else _with_verdicts(found, verdicts, out)


def _with_verdicts(found: _Found, verdicts: Sequence[Verdict], out: Path) -> _Found:
    columns = ("first", "second", "runs", "p_value", "lower")
    pairs = [(*verdict.pair, verdict.runs, verdict.p_value, verdict.lower) for verdict in verdicts]
    write_csv(out / VERDICTS, columns, [(*pair[:-1], pair[-1] or "") for pair in pairs])
    tests = [
        {"pair": _relation(verdict), "runs of each": str(verdict.runs), "p-value": f"{verdict.p_value:.2g}"}
        for verdict in sorted(verdicts, key=lambda verdict: (verdict.lower is None, verdict.runs, verdict.p_value))
    ]
    content = {**found.content, "verdicts": [dict(zip(columns, pair, strict=True)) for pair in pairs]}
    return _Found(content, [*found.tables, tests])


def _relation(verdict: Verdict) -> str:
    if verdict.lower is None:
        return f"{verdict.pair[0]} and {verdict.pair[1]}: no significant difference"
    other = verdict.pair[verdict.pair[0] == verdict.lower]
    return f"{verdict.lower} < {other}"


def _stopping(stops: Mapping[str, Sequence[Stop]], left_out: Sequence[str], out: Path) -> _Found:
    columns = ("learner", "seed", "episodes", "stopped", "gap", "lower", "upper", "seconds")
    runs = [{name: getattr(one, name) for name in columns} for each in stops.values() for one in each]
    write_csv(out / STOPPING, columns, [list(run.values()) for run in runs])
    ordered = sorted(stops.items(), key=lambda item: _mean([one.episodes for one in item[1]]))
    notes = [
        f"{name}: {_STOPPING_FORM[name]} is it with a stopping rule"
        if name in _STOPPING_FORM
        else f"{name}: no stopping rule at this beta"
        for name in left_out
    ]
    return _Found({"runs": runs}, [[{"learner": name, **_stopping_row(each)} for name, each in ordered]], notes)


def _stopping_row(each: Sequence[Stop]) -> dict[str, str]:
    from entropic_bpi.lab.compare import confidence

    capped = sum(not one.stopped for one in each)
    mean, half = confidence([one.episodes for one in each])
    return {
        "episodes": f"> {mean:,.0f}" if capped else f"{mean:,.0f}",
        "95% interval": "" if capped else _interval(mean, half, ",.0f"),
        "capped": f"{capped} of {len(each)}" if capped else "",
        "certified gap": f"{max(one.gap for one in each):.4g}",
        "seconds a run": _seconds(each),
    }


def _print(rows: Sequence[dict[str, str]]) -> None:
    from rich.table import Table

    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row.values())
    console = terminal()
    console.print(table)
    console.print()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _seconds(each: Sequence[Run | Stop]) -> str:
    return f"{_mean([one.seconds for one in each]):.3g}"


def _interval(mean: Any, half: Any, style: str) -> str:
    return "one seed" if half != half else f"{mean - half:{style}} to {mean + half:{style}}"
