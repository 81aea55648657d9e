"""``compare``: learners side by side; ``bounds``: lower and upper bounds on the number of episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import entropic_bpi as eb
from entropic_bpi.cli.facts import Answer, Fact, data, line
from entropic_bpi.cli.folders import new_folder, written
from entropic_bpi.cli.options import open_model
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.files import write_csv

if TYPE_CHECKING:
    from entropic_bpi.lab.learners import Run

REGRET, PLOT = "regret.csv", "regret.png"
_STANDING = {
    ("lower", "verified"): "machine-checked",
    ("lower", "exact"): "proved on paper",
    ("lower", "printed"): "proved on paper under the corrected condition A",
    ("upper", "verified"): "machine-checked; constants=verified",
    ("upper", "implicit"): "proved on paper; constants=sharp",
    ("upper", "printed"): "printed only",
}


def table_of(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a table of rows that have the same keys, which are its titles."""
    listed = list(rows)
    return [tuple(listed[0]), *(tuple(row.values()) for row in listed)]


def compare(
    source: str,
    *,
    beta: float,
    episodes: int,
    out: Path,
    learners: str | None = None,
    seeds: int = 5,
    delta: float = 0.1,
    scale: float = 1.0,
    imports: list[str] | None = None,
    workers: int | None = None,
    horizon: int | None = None,
    param: list[str] | None = None,
) -> Answer:
    """Run several learners with several seeds, and compare their regret.

    Examples:

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --learners rsvi2,rovi,kl_bpi --seeds 10 --out regret

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --scale 0.01 --out tuned

    The regret is exact: the sum of (best value - value of the policy played) over the episodes. The table shows the mean
    over the seeds with a 95% interval; regret.csv has every run, regret.png the mean curves and the range over the seeds.

    Learners: entropic_bpi rsvi rsq rsvi2 rsq2 ucb_advantage rodi_otp rodi_pto rovi bpi_ucbvi kl_bpi generative.

    Parameters
    ----------
    episodes
        Length of each run.
    out : DIR
        Folder for the results; nothing in it is overwritten.
    learners : A,B,...
        The learners to run. Default: all that are defined at this beta.
    seeds
        Number of runs of each learner.
    delta
        Failure probability in the bonuses of the learners.
    scale
        Multiplies every bonus or radius; 1 is the published constant.
    imports : MODULE, --import
        A module that registers learners of your own, from this folder or installed; repeat it for several.
    workers
        Number of processes. Default: one per core.
    """
    from entropic_bpi.lab.experiments.workers import import_modules

    import_modules(imports or (), Path.cwd())
    mdp = open_model(source, horizon, param)
    chosen = eb.compare.playable(beta)
    if learners is not None:
        chosen = [name.strip() for name in learners.split(",") if name.strip()]
    if not chosen:
        raise InvalidProblemError(f"--learners must be names separated by commas, got {learners!r}")
    files = (REGRET, PLOT)
    new_folder(out, files)
    options: dict[str, Any] = {"beta": beta, "seeds": seeds, "delta": delta, "scale": scale, "workers": workers}
    runs = eb.compare.compare_regret(mdp, chosen, episodes=episodes, imports=imports or (), **options)
    over = "1 seed" if seeds == 1 else f"{seeds} seeds"
    facts = data(source=source, beta=beta, seeds=seeds, episodes=episodes)
    facts.append(line(f"{source}: {episodes:,} episodes, beta {beta:g}, scale {scale:g}, {over}"))
    facts += _regret(runs, f"{source}, β = {beta:g}, scale {scale:g}: mean and range of the runs", out)
    facts += [Fact("written", [str(out / name) for name in files]), *written(out, files=files)]
    return Answer(facts)


def _regret(runs: Mapping[str, Sequence[Run]], title: str, out: Path) -> list[Fact]:
    """Write the files of a comparison of regret, and return its table."""
    from entropic_bpi.lab.plots import regret

    curves = [
        (learner, run.settings["seed"], int(episodes), float(value))
        for learner, each in runs.items()
        for run in each
        for episodes, value in zip(run.grid, run.regret, strict=True)
    ]
    write_csv(out / REGRET, ("learner", "seed", "episodes", "regret"), curves)
    eb.plots.save(regret(runs, title=title), out / PLOT)
    rows: list[tuple[dict[str, Any], dict[str, str]]] = []  # values for JSON, and their texts
    for name, each in runs.items():
        mean, half = eb.compare.confidence([run.regret[-1] for run in each])
        interval = "one seed" if len(each) == 1 else f"{mean - half:.6g} to {mean + half:.6g}"
        shown = {"learner": name, "regret": f"{mean:.6g}", "95% interval": interval}
        shown["seconds a run"] = f"{sum(run.seconds for run in each) / len(each):.3g}"
        rows.append(({"learner": name, "regret": mean, "half_width": half}, shown))
    ordered = sorted(rows, key=lambda row: float(row[0]["regret"]))
    return [Fact("learners", [content for content, _ in rows], shown=table_of(shown for _, shown in ordered))]


# -- bounds ------------------------------------------------------------------------------------------------------------


def bounds(
    *, states: int, actions: int, horizon: int, beta: float, eps: float, delta: float, max_return: float | None = None
) -> Answer:
    """Compute lower and upper bounds on the number of episodes, side by side.

    The lower bounds are about the hard instances of these sizes, the upper bounds about the paper's algorithm on every
    model of these sizes. Two limits are shown: beta to 0, and eps squared times the bound as eps goes to 0.

    Example:

        entropic-bpi bounds --states 10 --actions 2 --horizon 12 --beta -1 --eps 0.05 --delta 0.05

    Parameters
    ----------
    states
        Number of states S.
    actions
        Number of actions A.
    horizon
        Number of steps H.
    beta
        Risk parameter: > 0 risk-seeking, < 0 risk-averse.
    eps
        Accuracy, for rewards in [0, 1].
    delta
        Probability of error.
    max_return
        Largest return of the model, for the upper bounds. Default: H.
    """
    sizes = {"n_states": states, "n_actions": actions, "horizon": horizon, "delta": delta}
    rows = _rows(sizes, beta, eps, float(horizon) if max_return is None else max_return)
    shown = ("episodes", "beta_to_0", "eps_squared_times_episodes")
    table = [("bound", "form", "episodes", "as beta → 0", "eps² × episodes as eps → 0", "standing")]
    table += [(r["side"], r["form"], *(_written(r, name) for name in shown), r["standing"]) for r in rows]
    facts = data(states=states, actions=actions, horizon=horizon, beta=beta, eps=eps, delta=delta)
    facts.append(Fact("bounds", rows, shown=table))
    for reason in dict.fromkeys(row["outside"] for row in rows if row["outside"]):
        forms = ", ".join(f"{row['side']} {row['form']}" for row in rows if row["outside"] == reason)
        facts.append(line(f"{forms}: {reason}"))
    return Answer(facts)


def _rows(sizes: dict[str, float], beta: float, eps: float, largest: float) -> list[dict[str, Any]]:
    """Return one entry per bound and form; raise if not even one bound applies."""
    rows = []
    for (side, form), standing in _STANDING.items():
        common: dict[str, Any] = {**sizes, "form": form, "log": True}
        bound = eb.theory.lower_bound if side == "lower" else partial(eb.theory.upper_bound, max_return=largest)
        episodes, refusal = _value_of(bound, **common, beta=beta, eps=eps)
        row: dict[str, Any] = {"side": side, "form": form, "standing": standing, "outside": refusal}
        row |= _numbers("episodes", episodes)
        row |= _numbers("beta_to_0", _value_of(bound, **common, beta=0.0, eps=eps)[0])
        small = _value_of(eb.theory.small_eps_limit, **common, beta=beta)[0] if side == "lower" else None
        rows.append(row | _numbers("eps_squared_times_episodes", small))
    if all(row["outside"] for row in rows):
        raise InvalidProblemError(rows[0]["outside"])
    return rows


def _value_of(function: Callable[..., float], **arguments: Any) -> tuple[float | None, str | None]:
    """Return a value, or why there is none."""
    try:
        return function(**arguments), None
    except InvalidProblemError as error:
        return None, str(error)


def _numbers(name: str, log_value: float | None) -> dict[str, float | None]:
    """Return the value, None if there is none or it leaves the range of doubles, and its natural logarithm."""
    if log_value is None or log_value == -math.inf:
        return {name: None if log_value is None else 0.0, f"log_{name}": None}
    return {name: math.exp(log_value) if log_value < 709 else None, f"log_{name}": log_value}


def _written(row: dict[str, Any], name: str) -> str:
    """Return a number in scientific notation, however large it is."""
    value, log_value = row[name], row[f"log_{name}"]
    if log_value is None:
        return "–" if value is None else "0"
    exponent = math.floor(log_value / math.log(10))
    mantissa = math.exp(log_value - exponent * math.log(10))
    if round(mantissa, 2) >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    return f"{mantissa:.2f}e{exponent:+03d}"
