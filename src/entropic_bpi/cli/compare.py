"""``compare``: learners side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from entropic_bpi.cli.common.answer import again
from entropic_bpi.cli.common.show import Fact, data, line, new_folder, present, written
from entropic_bpi.cli.common.sources import (
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
    source: str,
    *,
    beta: float,
    episodes: int,
    out: Path,
    learners: str | None = None,
    seeds: int | None = None,
    delta: float = 0.1,
    scale: float = 1.0,
    stop: float | None = None,
    sequential: bool = False,
    batch: int = 6,
    level: float = 0.05,
    imports: list[str] | None = None,
    workers: int | None = None,
    horizon: int | None = None,
    param: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Run several learners with several seeds, and compare their regret or the episodes until they certify a policy.

    Examples:

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --learners rsvi2,rovi,kl_bpi --seeds 10 --out regret

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --scale 0.01 --out tuned

        entropic-bpi compare risky-bridge --beta -0.5 --episodes 10000000 --stop 0.5 --out stopping

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --sequential --out apart

    The regret is exact: the sum of (best value - value of the policy played) over the episodes. Its table gives the mean
    over the seeds with a 95% interval; regret.csv holds every run, regret.png the mean curves and the range over the seeds.

    With --stop the learners that can certify a policy play until they do, beside identify with methods kl and bernstein;
    the table and stopping.csv show which runs were capped at --episodes.

    With --sequential the number of runs is not fixed: after every batch all pairs of learners are tested, a learner
    that differs significantly from all others stops, and verdicts.csv has the results. With probability at least 1 - LEVEL
    no difference is reported between two learners whose regret has the same distribution.

    Learners: entropic_bpi rsvi rsq rsvi2 rsq2 ucb_advantage rodi_otp rodi_pto rovi bpi_ucbvi kl_bpi generative.

    Parameters
    ----------
    episodes
        Length of each run; with --stop the number at which a run is capped.
    out : DIR
        Folder for the results; nothing in it is overwritten.
    learners : A,B,...
        Which ones. Default: all that take this beta; with --stop all that have a stopping rule.
    seeds
        Runs of each learner. Default: 5; with --sequential at most so many, 30 unless given.
    delta
        Failure probability that the learners are built for.
    scale
        Multiplies every bonus or radius; 1 is the published constant.
    stop : EPS
        Compare the episodes to a certificate of EPS instead.
    sequential
        Stop a learner once its regret differs significantly from the others'.
    batch
        With --sequential: runs of each learner between two tests.
    level
        With --sequential: probability of reporting any difference that does not exist.
    imports : MODULE, --import
        A module that registers learners of your own, from this folder or installed; repeat it for several.
    workers
        Processes. Default: one per core.
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
        question = [f"{source}: episodes to a certificate of eps {stop:g} with delta {delta:g}, beta {beta:g}, {over}"]
        if scale < 1:
            question.append(
                "with --scale below 1 the learners' certificates are void; those of identify are not affected"
            )
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
        question = [f"{source}: {episodes:,} episodes, beta {beta:g}, scale {scale:g}, {over}"]
        found = _regret(runs, verdicts, f"{source}, β = {beta:g}, scale {scale:g}: mean and range of the runs", out)
    given = {"episodes": episodes} if stop is None else {"eps": stop, "max_episodes": episodes}
    facts = [
        *data(source=source, beta=beta, seeds=seeds, **given),
        *(line(text) for text in question),
        *found,
        Fact("written", [str(out / name) for name in files]),
        written(out, files),
    ]
    low, high = mdp.reward_range
    eps = f"{(high - low) * mdp.horizon / 20:.1g}" if stop is None else f"{stop:g}"
    then = again(context, "forecast", only=("source", "horizon", "param", "beta"))
    present(facts, as_json, [*then, "--eps", eps, "--delta", f"{delta:g}"])


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


def _regret(runs: Mapping[str, Sequence[Run]], verdicts: Sequence[Verdict] | None, title: str, out: Path) -> list[Fact]:
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
    found = Fact("learners", learners, shown=_table(table[i] for i in order))
    return [found] if verdicts is None else [found, _verdicts(verdicts, out)]


def _verdicts(verdicts: Sequence[Verdict], out: Path) -> Fact:
    columns = ("first", "second", "runs", "p_value", "lower")
    pairs = [(*verdict.pair, verdict.runs, verdict.p_value, verdict.lower) for verdict in verdicts]
    write_csv(out / VERDICTS, columns, [(*pair[:-1], pair[-1] or "") for pair in pairs])
    tests = [
        {"pair": _relation(verdict), "runs of each": str(verdict.runs), "p-value": f"{verdict.p_value:.2g}"}
        for verdict in sorted(verdicts, key=lambda verdict: (verdict.lower is None, verdict.runs, verdict.p_value))
    ]
    return Fact("verdicts", [dict(zip(columns, pair, strict=True)) for pair in pairs], shown=_table(tests))


def _relation(verdict: Verdict) -> str:
    if verdict.lower is None:
        return f"{verdict.pair[0]} and {verdict.pair[1]}: no significant difference"
    other = verdict.pair[verdict.pair[0] == verdict.lower]
    return f"{verdict.lower} < {other}"


def _stopping(stops: Mapping[str, Sequence[Stop]], left_out: Sequence[str], out: Path) -> list[Fact]:
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
    table = _table({"learner": name, **_stopping_row(each)} for name, each in ordered)
    return [Fact("runs", runs, shown=table), *(line(note) for note in notes)]


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


def _table(rows: Iterable[dict[str, str]]) -> list[tuple[str, ...]]:
    listed = list(rows)
    return [tuple(listed[0]), *(tuple(row.values()) for row in listed)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _seconds(each: Sequence[Run | Stop]) -> str:
    return f"{_mean([one.seconds for one in each]):.3g}"


def _interval(mean: Any, half: Any, style: str) -> str:
    return "one seed" if half != half else f"{mean - half:{style}} to {mean + half:{style}}"
