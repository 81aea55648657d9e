"""``compare``: learners side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from entropic_bpi.cli._answer import again, answer
from entropic_bpi.cli._show import OutOption, new_folder, progress_bar, terminal
from entropic_bpi.cli._sources import (
    BetaOption,
    HorizonOption,
    JsonOption,
    ParamOption,
    SourceArgument,
    parse_params,
)
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.files import write_csv

if TYPE_CHECKING:
    from entropic_bpi.lab.compare import Verdict
    from entropic_bpi.lab.learners import Run, Stop
    from entropic_bpi.model.mdp import FiniteMDP

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
        bool, typer.Option("--sequential", help="Stop each learner as soon as its regret can be told from the others'.")
    ] = False,
    batch: Annotated[int, typer.Option(help="With --sequential: runs of each learner between two tests.")] = 6,
    level: Annotated[
        float, typer.Option(help="With --sequential: probability of telling apart what is equal, over all pairs.")
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

    With --sequential the number of runs is found on the way: after every batch all pairs of learners are tested, those
    that are told apart from all others stop, and verdicts.csv says which. With probability at least 1 - LEVEL no two
    learners are told apart whose regret has the same law.

    Learners: entropic_bpi rsvi rsq rsvi2 rsq2 ucb_advantage rodi_otp rodi_pto rovi bpi_ucbvi kl_bpi generative.
    """
    from entropic_bpi.model.instances.sources import model_of
    from entropic_bpi.tools.workers import import_modules

    if sequential and stop is not None:
        raise InvalidProblemError("--sequential compares the regret: leave out --stop")
    import_modules(imports or (), Path.cwd())
    mdp = model_of(source, horizon, parse_params(param))
    settings: dict[str, Any] = {"beta": beta, "delta": delta, "scale": scale, "workers": workers}
    settings["imports"] = imports or ()
    settings["seeds"] = seeds if seeds is not None else _MOST_SEEDS if sequential else _SEEDS
    given = None if learners is None else [name.strip() for name in learners.split(",") if name.strip()]
    if given == []:
        raise InvalidProblemError(f"--learners must be names separated by commas, got {learners!r}")
    if sequential:
        told = _compare_sequentially(source, mdp, given, episodes, {**settings, "batch": batch, "level": level}, out)
    elif stop is None:
        told = _compare_regret(source, mdp, given, episodes, settings, out)
    else:
        told = _compare_stopping(source, mdp, given, episodes, stop, settings, out)
    low, high = mdp.reward_range
    eps = f"{(high - low) * mdp.horizon / 20:.1g}" if stop is None else f"{stop:g}"
    then = [*again(context, "plan", only=("source", "horizon", "param", "beta")), "--eps", eps, "--delta", f"{delta:g}"]
    answer({"source": source, "beta": beta, "seeds": settings["seeds"], **told.content}, as_json, told.show, then)


class _Told(NamedTuple):
    """The outcome for programs, and how a person is shown it."""

    content: dict[str, Any]
    show: Callable[[], None]


def _compare_regret(
    source: str, mdp: FiniteMDP, given: list[str] | None, episodes: int, settings: dict[str, Any], out: Path
) -> _Told:
    from rich.table import Table

    from entropic_bpi.lab.compare import compare_regret, confidence, playable

    new_folder(out, (REGRET, PLOT))
    learners = given or playable(settings["beta"])
    with progress_bar() as bar:
        task = bar.add_task("runs", total=len(set(learners)) * settings["seeds"])
        runs = compare_regret(mdp, learners, episodes=episodes, **settings, done=lambda _: bar.advance(task))
    _write_regret(runs, f"{_setting(source, settings)}: mean and range of {_seeds(settings['seeds'])}", out)
    final = {learner: confidence([run.regret[-1] for run in each]) for learner, each in runs.items()}

    def show() -> None:
        console = terminal()
        console.print(f"{_question(source, episodes, settings)}, {_seeds(settings['seeds'])}")
        table = Table("learner", "regret", "95% interval", "seconds a run", box=None, pad_edge=False)
        for learner, (mean, half) in sorted(final.items(), key=lambda item: float(item[1][0])):
            seconds = _mean([run.seconds for run in runs[learner]])
            table.add_row(learner, f"{mean:.6g}", _interval(mean, half, ".6g"), f"{seconds:.3g}")
        console.print(table)
        console.print()
        console.print(f"written  {out}: {REGRET}, {PLOT}")

    learned = [{"learner": learner, "regret": mean, "half_width": half} for learner, (mean, half) in final.items()]
    return _Told({"episodes": episodes, "learners": learned, "written": _paths(out, REGRET, PLOT)}, show)


def _compare_sequentially(
    source: str, mdp: FiniteMDP, given: list[str] | None, episodes: int, settings: dict[str, Any], out: Path
) -> _Told:
    from rich.table import Table

    from entropic_bpi.lab.compare import compare_sequentially, playable

    new_folder(out, (REGRET, PLOT, VERDICTS))
    learners = given or playable(settings["beta"])
    with progress_bar() as bar:
        task = bar.add_task("runs at most", total=len(set(learners)) * settings["seeds"])
        runs, verdicts = compare_sequentially(
            mdp, learners, episodes=episodes, **settings, done=lambda _: bar.advance(task)
        )
    _write_regret(runs, f"{_setting(source, settings)}: mean and range of the runs", out)
    rows = [(*verdict.pair, verdict.runs, verdict.p_value, verdict.lower or "") for verdict in verdicts]
    columns = ("first", "second", "runs", "p_value", "lower")
    write_csv(out / VERDICTS, columns, rows)
    final = {learner: _mean([run.regret[-1] for run in each]) for learner, each in runs.items()}

    def show() -> None:
        console = terminal()
        console.print(f"{_question(source, episodes, settings)}, told apart at level {settings['level']:g}")
        table = Table("learner", "runs", "mean regret", "seconds a run", box=None, pad_edge=False)
        for learner in sorted(final, key=lambda name: final[name]):
            seconds = _mean([run.seconds for run in runs[learner]])
            table.add_row(learner, str(len(runs[learner])), f"{final[learner]:.6g}", f"{seconds:.3g}")
        console.print(table)
        console.print()
        pairs = Table("pair", "runs of each", "p-value", box=None, pad_edge=False)
        for verdict in sorted(verdicts, key=lambda verdict: (verdict.lower is None, verdict.runs, verdict.p_value)):
            pairs.add_row(_relation(verdict), str(verdict.runs), f"{verdict.p_value:.2g}")
        console.print(pairs)
        console.print()
        console.print(f"written  {out}: {REGRET}, {PLOT}, {VERDICTS}")

    content = {
        "episodes": episodes,
        "learners": [{"learner": name, "regret": mean, "runs": len(runs[name])} for name, mean in final.items()],
        "verdicts": [dict(zip(columns, (*row[:4], row[4] or None), strict=True)) for row in rows],
        "written": _paths(out, REGRET, PLOT, VERDICTS),
    }
    return _Told(content, show)


def _relation(verdict: Verdict) -> str:
    if verdict.lower is None:
        return f"{verdict.pair[0]} and {verdict.pair[1]}: not told apart"
    other = verdict.pair[verdict.pair[0] == verdict.lower]
    return f"{verdict.lower} < {other}"


def _write_regret(runs: Mapping[str, Sequence[Run]], title: str, out: Path) -> None:
    from entropic_bpi.show import plots

    write_csv(out / REGRET, ("learner", "seed", "episodes", "regret"), _curves(runs))
    plots.save(plots.regret(runs, title=title), out / PLOT)


def _setting(source: str, settings: Mapping[str, Any]) -> str:
    return f"{source}, β = {settings['beta']:g}, scale {settings['scale']:g}"


def _question(source: str, episodes: int, settings: Mapping[str, Any]) -> str:
    return f"{source}: {episodes:,} episodes, beta {settings['beta']:g}, scale {settings['scale']:g}"


def _compare_stopping(
    source: str, mdp: FiniteMDP, given: list[str] | None, cap: int, eps: float, settings: dict[str, Any], out: Path
) -> _Told:
    from rich.table import Table

    from entropic_bpi.lab.compare import CERTIFYING, compare_stopping, stoppable
    from entropic_bpi.lab.learners import names
    from entropic_bpi.tools.checks import check_choice

    able = stoppable(settings["beta"])
    for learner in given or ():
        check_choice("learner", learner, (*names(), *CERTIFYING))
    learners = [*(name for name in given or able if name in able), *CERTIFYING]
    left_out = [name for name in given or () if name not in learners]
    new_folder(out, (STOPPING,))
    with progress_bar() as bar:
        task = bar.add_task("runs", total=len(set(learners)) * settings["seeds"])
        found = compare_stopping(mdp, learners, eps=eps, max_episodes=cap, **settings, done=lambda _: bar.advance(task))
    columns = ("learner", "seed", "episodes", "stopped", "gap", "lower", "upper", "seconds")
    rows = [[getattr(one, name) for name in columns] for each in found.values() for one in each]
    write_csv(out / STOPPING, columns, rows)

    def show() -> None:
        console = terminal()
        console.print(
            f"{source}: episodes to a certificate of eps {eps:g} with delta {settings['delta']:g}, "
            f"beta {settings['beta']:g}, {_seeds(settings['seeds'])}"
        )
        if settings["scale"] < 1:
            console.print(
                "with --scale below 1 the learners' certificates are void; those of identify are not affected"
            )
        table = Table(
            "learner", "episodes", "95% interval", "capped", "certified gap", "seconds a run", box=None, pad_edge=False
        )
        for learner, each in sorted(found.items(), key=lambda item: _mean([one.episodes for one in item[1]])):
            table.add_row(learner, *_stopping_row(each))
        console.print(table)
        for name in left_out:
            form = _STOPPING_FORM.get(name)
            console.print(
                f"{name}: {form} is it with a stopping rule" if form else f"{name}: no stopping rule at this beta"
            )
        console.print()
        console.print(f"written  {out}: {STOPPING}")

    runs = [dict(zip(columns, row, strict=True)) for row in rows]
    return _Told({"eps": eps, "max_episodes": cap, "runs": runs, "written": _paths(out, STOPPING)}, show)


def _paths(out: Path, *names: str) -> list[str]:
    return [str(out / name) for name in names]


def _stopping_row(each: Sequence[Stop]) -> list[str]:
    from entropic_bpi.lab.compare import confidence

    capped = sum(not one.stopped for one in each)
    mean, half = confidence([one.episodes for one in each])
    return [
        f"> {mean:,.0f}" if capped else f"{mean:,.0f}",
        "" if capped else _interval(mean, half, ",.0f"),
        f"{capped} of {len(each)}" if capped else "",
        f"{max(one.gap for one in each):.4g}",
        f"{_mean([one.seconds for one in each]):.3g}",
    ]


def _curves(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, int, int, float]]:
    return [
        (learner, one.settings["seed"], int(episodes), float(regret))
        for learner, each in runs.items()
        for one in each
        for episodes, regret in zip(one.grid, one.regret, strict=True)
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _interval(mean: Any, half: Any, style: str) -> str:
    return "one seed" if half != half else f"{mean - half:{style}} to {mean + half:{style}}"


def _seeds(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"
