"""The guarantee, measured: how often its events fail, and how often a returned policy is not what it was certified to be.

A *case* is a model with risk parameters, or levels of the entropic value at risk, and an accuracy; a *cell* is a case at
one of them under one rule of :data:`~entropic_bpi.lab.experiments.rules.RULES`. Each cell has many runs, watched plan by
plan by a :class:`~entropic_bpi.lab.experiments.referee.Referee` who knows the true model. A proportion comes with the
exact binomial interval of Clopper and Pearson. It contradicts the theory if so many failures would be too unlikely at
the rate that is promised: with probability below 1 % in any of the rows together.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy.stats import binom

from entropic_bpi import methods
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.lab.events import EVENTS
from entropic_bpi.lab.experiments.figures._figure import Table, column, rows_where, save_drawing, write_table
from entropic_bpi.lab.experiments.judged import Judged, all_of
from entropic_bpi.lab.experiments.referee import true_evars
from entropic_bpi.lab.experiments.rules import RULES, rule_of
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.statistics import LEVEL, proportion
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Entropic, EVaR
from entropic_bpi.runs.identification import start
from entropic_bpi.runs.settings import Settings
from entropic_bpi.tools.checks import (
    check_choice,
    check_device,
    check_finite,
    check_integer,
    check_list,
    check_path,
    check_positive,
    check_probability,
)
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown

if TYPE_CHECKING:
    from entropic_bpi.lab.experiments.store import Results

__all__ = ["Case", "Validation", "default_cases", "validate"]

NOT_OPTIMAL, FALSE_CLAIM, DISPROOF = "policy not ε-optimal", "certificate false", "certificate false on its event"
ALL = "all"
# Runs per cell; the default cases make more than 2000 and more than 100 000 of them.
QUICK_RUNS, FULL_RUNS = 24, 1100
DELTA = 0.1
# The rules of cells of the entropic value at risk, and how they are called in the tables.
EVAR_RULES = ("KL, successors known", "KL, both")
OF_EVAR = " (EVaR)"
# Unless given, ε is this share of what the worst policy loses, so that a wrong answer is possible in every cell.
EPS_SHARE = 0.1
# Batches grow by this ratio. The fewer plans there are, the quicker a run is; the guarantee is the same for all ratios.
REPLAN = 0.2
# On a GPU, so many cells at a time: the runs of one do not fill it.
AT_ONCE = 8
# With the promise kept, the study reports a contradiction with at most this probability.
FALSE_ALARM = 0.01
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Case:
    """A model to validate on.

    Attributes
    ----------
    name : str
        What the case is called in the tables.
    mdp : FiniteMDP
    betas : tuple of float
        Risk parameters; positive is risk-seeking.
    eps : float, optional
        Accuracy, in the reward's own units; by default 0.1 of what the worst policy loses, to nine digits.
    alphas : tuple of float
        Levels of the entropic value at risk, each under the rules ``EVAR_RULES``. What the worst policy loses is then what
        the worst of those does that always choose the same action.
    """

    name: str
    mdp: FiniteMDP
    betas: tuple[float, ...] = (1.0, -1.0)
    eps: float | None = None
    params: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()

    def accuracy(self, beta: float) -> float:
        from entropic_bpi.model.planning import solve, worst_value

        return self._accuracy(solve(self.mdp, beta).value - worst_value(self.mdp, beta), f"beta = {beta:g}")

    def evar_accuracy(self, alpha: float) -> float:
        """The same for a level of the entropic value at risk."""
        shape = (self.mdp.horizon, self.mdp.n_states)
        always = [true_evars(self.mdp, np.full(shape, a), alpha) for a in range(self.mdp.n_actions)]
        return self._accuracy(max(best - mine for best, mine in always), f"alpha = {alpha:g}")

    def _accuracy(self, loss: float, where: str) -> float:
        if self.eps is not None:
            if check_positive("eps", self.eps) >= loss:
                raise InvalidProblemError(
                    f"every policy of {self.name} is eps-optimal at {where}: the worst one loses {loss:.6g}"
                )
            return self.eps
        if loss < _ROUNDING:
            raise InvalidProblemError(f"all policies of {self.name} are equally good at {where}: nothing to validate")
        return float(f"{EPS_SHARE * loss:.9g}")  # a part of hashes, so without the digits that depend on the processor

    def rules(self, beta: float) -> list[str]:
        """The rules that apply to the model."""
        return [name for name, settings in RULES.items() if self._fits(beta, **settings)]

    def _fits(self, beta: float, **settings: Any) -> bool:
        """Whether the method accepts the model with what the rule declares about it."""
        try:
            start(self.mdp, Settings.of(beta=beta, eps=1.0, delta=DELTA, **settings))
        except InvalidProblemError:
            return False
        return True


class Cell(NamedTuple):
    """A case at one β, or at one level of the entropic value at risk, under one rule."""

    rule: str
    case: Case
    beta: float
    alpha: float | None
    eps: float

    @property
    def first_seed(self) -> int:
        """Seeds of its own for every cell: with common ones the failures of different cells would not be independent."""
        risk = repr(self.beta) if self.alpha is None else f"EVaR({self.alpha!r})"
        return crc32(f"{self.case.name}|{risk}|{self.rule}".encode()) << 16

    def problem(self, delta: float) -> Problem:
        declared = {name: value for name, value in RULES[self.rule].items() if name not in ("method", "constants")}
        risk = Entropic(self.beta) if self.alpha is None else EVaR(self.alpha)
        return Problem.from_mdp(self.case.mdp, risk=risk, eps=self.eps, delta=delta, **declared)


def default_cases() -> list[Case]:
    """Small models of every kind: chains, trees, garnets, kernels by step, random starts, next-state rewards, a lake."""
    from entropic_bpi.model import instances

    rng = np.random.default_rng(7)
    dense = rng.dirichlet(np.full(4, 0.6), (4, 2))
    outcomes = rng.dirichlet(np.ones(3), (3, 2, 2))
    cases = [
        Case("bridge", instances.risky_bridge(horizon=5)),
        Case("bridge_slippery", instances.risky_bridge(horizon=4, p_start=0.7)),
        Case("river", instances.river_swim(4, horizon=5)),
        Case("garnet", instances.garnet(3, 2, 2, horizon=3, seed=0), alphas=(0.1, 0.5)),
        Case("garnet_by_step", instances.garnet(2, 3, 2, horizon=2, seed=1, stationary=False)),
        Case("random_start", FiniteMDP(dense, rng.random((4, 2)), horizon=3, start=rng.dirichlet(np.ones(4)))),
        Case("paid_on_arrival", FiniteMDP(outcomes[:, :, 0], 2 * rng.random((3, 2, 3)) - 1, horizon=3), alphas=(0.2,)),
        Case("lake", instances.from_gymnasium("FrozenLake-v1", horizon=6, desc=["SFG", "HFF"])),
    ]
    for beta in (1.0, -1.0):
        tree = instances.hard_instance(6, 2, 6, beta=beta, eps=0.05, special=(1, 5, 1))
        cases.append(Case("hard", tree, (beta,), params={"beta": beta}))
    return cases


@dataclass(frozen=True, eq=False)
class Validation:
    """What a study found.

    Attributes
    ----------
    rates : list of dict
        For each rule and claim, over all cases (``case`` is "all") and in each cell: ``failures`` out of ``runs``, the
        ``rate``, its exact interval ``low`` to ``high``, what is ``promised``, and ``p_value``, the probability of so many
        failures at the promised rate.
    cells : list of dict
        For each cell, how large certified and true gaps were and how many episodes it took.
    text : str
        The outcome in words.
    """

    rates: Table
    cells: Table
    text: str

    @property
    def totals(self) -> Table:
        """One row per claim and one column per rule: failures over all cases, and the upper end of the interval."""
        rows = {(row["claim"], row["rule"]): row for row in rows_where(self.rates, case=ALL)}
        rules = list(dict.fromkeys(rule for _, rule in rows))
        table: Table = []
        for claim in dict.fromkeys(claim for claim, _ in rows):
            mine = {rule: rows.get((claim, rule)) for rule in rules}
            promised = next(row["promised"] for row in mine.values() if row)
            told = {rule: f"{row['failures']} (≤ {row['high']:.2%})" if row else "" for rule, row in mine.items()}
            table.append({"failures": claim, "promised": f"{promised:.1%}", **told})
        runs = {rule: str(max(row["runs"] for (_, name), row in rows.items() if name == rule)) for rule in rules}
        return [*table, {"failures": "of runs", "promised": "", **runs}]

    @property
    def contradictions(self) -> Table:
        """The rates that are too high to be chance, given how many of them there are."""
        return [row for row in self.rates if row["p_value"] < FALSE_ALARM / len(self.rates)]

    @property
    def ok(self) -> bool:
        return not self.contradictions


def validate(
    folder: str | os.PathLike[str],
    cases: Sequence[Case] | None = None,
    *,
    rules: Sequence[str] | None = None,
    quick: bool = False,
    runs: int | None = None,
    delta: float = DELTA,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    device: str = "cpu",
) -> Validation:
    """Measure how often the guarantee fails, and write ``rates.csv``, ``cells.csv``, ``totals.csv``, a figure and a summary.

    Parameters
    ----------
    folder : path
        Results go there; the runs are kept in ``results.duckdb``, as those of :func:`~entropic_bpi.lab.experiments.run` are.
    cases : list of Case, optional
        The models; by default nine small ones of every kind, with β = 1 and β = -1.
    rules : list of str, optional
        Names in ``entropic_bpi.lab.experiments.rules.RULES``; by default all that apply to a model.
    quick : bool
        24 runs per cell instead of 1100.
    runs : int, optional
        Another number of runs per cell.
    delta : float
        The probability of failure that is promised.
    workers, scheduler, resume, progress
        As for :func:`~entropic_bpi.lab.experiments.run`.
    device : {"cpu", "gpu"}
        On a GPU every run is a thread: cells of the KL method for one β, by the thousand, in one process. Single runs are
        not kept there, and E_bet, which no rule uses, is not watched.

    Examples
    --------
    >>> import tempfile
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.lab.experiments import Case, validate
    >>> case = Case("bridge", eb.instances.risky_bridge(horizon=4), betas=(-1.0,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = validate(folder, [case], rules=["KL, successors known"], runs=20, workers=0)
    >>> found.ok, found.cells[0]["runs"]
    (True, 20)
    """
    count = (QUICK_RUNS if quick else FULL_RUNS) if runs is None else check_integer("runs", runs)
    chosen = (
        None if rules is None else [check_choice("rule", name, tuple(RULES)) for name in check_list("rules", rules)]
    )
    study = default_cases() if cases is None else check_list("cases", cases)
    folder = check_path("folder", folder)
    _check_cases(study)
    check_probability("delta", delta)
    if check_device("device", device) == "gpu":
        if resume or workers or scheduler:
            raise InvalidProblemError("workers, scheduler and resume are for device='cpu'")
        cells, left_out = _for_gpu(_cells_of(study, chosen), delta)
        found = _tables(_on_gpu(cells, count, delta, progress), delta, left_out)
    else:
        from entropic_bpi.lab.experiments.runner import run

        specs = [spec for cell in _cells_of(study, chosen) for spec in _specs_of(cell, count, delta)]
        found = _found(
            run(specs, folder, workers=workers, scheduler=scheduler, resume=resume, progress=progress), delta
        )
    _write(found, folder)
    return found


def _check_cases(cases: Sequence[Any]) -> None:
    """Cells are told apart by the name and β of their case."""
    for case in cases:
        if not isinstance(case, Case):
            raise InvalidProblemError(f"cases must hold Case objects, got {shown(case)}")
        check_model(case.mdp, f"the model of {shown(case.name)}")
        for beta in check_list("betas", case.betas):
            check_finite("beta", beta)
        for alpha in check_list("alphas", case.alphas):
            check_probability("alpha", alpha)
    cells = [(case.name, f"beta = {beta:g}") for case in cases for beta in case.betas]
    cells += [(case.name, f"alpha = {alpha:g}") for case in cases for alpha in case.alphas]
    repeated = next((cell for cell in cells if cells.count(cell) > 1), None)
    if repeated:
        raise InvalidProblemError(f"two cases are called {repeated[0]!r} and have {repeated[1]}")
    if any(case.name == ALL for case in cases):
        raise InvalidProblemError(f"no case may be called {ALL!r}, which is the name of the totals")


def _cells_of(cases: Sequence[Case], rules: Sequence[str] | None) -> list[Cell]:
    cells: list[Cell] = []
    for case in cases:
        for beta in case.betas:
            eps = case.accuracy(check_finite("beta", beta))
            cells += [Cell(rule, case, beta, None, eps) for rule in case.rules(beta)]
        for alpha in case.alphas:
            eps, fitting = case.evar_accuracy(alpha), case.rules(-1.0)
            cells += [Cell(rule, case, math.nan, alpha, eps) for rule in fitting if rule in EVAR_RULES]
    chosen = [cell for cell in cells if rules is None or cell.rule in rules]
    if not chosen:
        raise InvalidProblemError("none of the rules applies to the cases")
    return chosen


def _specs_of(cell: Cell, count: int, delta: float) -> Iterable[RunSpec]:
    case, settings = cell.case, dict(RULES[cell.rule])
    method = settings.pop("method")
    options = {"eps": cell.eps, "delta": delta, "replan": REPLAN}
    if cell.alpha is not None:
        options["evar"] = cell.alpha
    for i in range(count):
        yield RunSpec(
            case.name,
            case.params,
            "validate",
            method,
            cell.beta,
            {**options, **settings},
            cell.first_seed + i,
            case.mdp,
        )


def _on_gpu(cells: Sequence[Cell], count: int, delta: float, progress: bool | None) -> Iterator[Judged]:
    """Run and judge cells whose runs fit a GPU, a few at a time."""
    from rich.console import Console
    from rich.progress import track

    from entropic_bpi.lab.experiments.gpu_study import begin

    shown = sys.stderr.isatty() if progress is None else progress
    going: deque[Callable[[], Judged]] = deque()
    for cell in track([*cells, *[None] * AT_ONCE], "cells", console=Console(stderr=True), disable=not shown):
        if len(going) == AT_ONCE or (cell is None and going):
            yield going.popleft()()
        if cell is not None:
            names = {"rule": cell.rule, "case": cell.case.name}
            problem = cell.problem(delta)
            going.append(begin(cell.case.mdp, problem, count, seed=cell.first_seed, replan=REPLAN, **names))


def _for_gpu(cells: Sequence[Cell], delta: float) -> tuple[list[Cell], str]:
    """Those that can run there, and why others cannot."""
    from entropic_bpi.lab.gpu_runs import why_not

    fitting, reasons = [], Counter[str]()
    for cell in cells:
        by_kl = RULES[cell.rule]["method"] == "kl"
        reason = why_not(cell.problem(delta)) if by_kl else "a GPU has the KL method only"
        if reason:
            reasons[reason] += 1
        else:
            fitting.append(cell)
    told = "; ".join(f"{number} cells are left out: {reason}" for reason, number in reasons.items())
    if not fitting:
        raise InvalidProblemError(f"device='gpu': {told}")
    return fitting, told and f" {told}."


# -- tables ----------------------------------------------------------------------------------------------------------


def _found(results: Results, delta: float) -> Validation:
    errors = [error for error in results.runs["error"] if error]
    if len(errors) == len(results.runs["error"]):
        raise EntropicBPIError(f"all {len(errors)} runs failed, the first with: {errors[0]}")
    runs = results.where(np.array([error is None for error in results.runs["error"]], dtype=bool)).runs
    return _tables(_judged(runs), delta, _tell_errors(errors))


def _judged(runs: dict[str, np.ndarray]) -> Iterator[Judged]:
    """The runs of each cell."""
    settings = [json.loads(spec) for spec in runs["spec"]]
    cells: dict[tuple[str, str, Any, float], list[int]] = {}
    for i, (spec, options) in enumerate(zip(runs["spec"], (setting["options"] for setting in settings), strict=True)):
        level = options.get("evar")
        rule, risk = (
            (rule_of(spec), float(runs["beta"][i])) if level is None else (rule_of(spec) + OF_EVAR, _evar(level))
        )
        cells.setdefault((rule, runs["instance"][i], risk, options["eps"]), []).append(i)
    for (rule, case, risk, eps), mine in cells.items():
        method = methods.find(RULES[rule.removesuffix(OF_EVAR)]["method"])
        watched = method.proof if rule.endswith(OF_EVAR) else method.events
        failed = [set(names.split()) for names in runs["failed_events"][mine]]
        yield Judged(
            rule=rule,
            case=case,
            risk=risk,
            eps=np.full(len(mine), eps),
            stopped=runs["stopped"][mine].astype(bool),
            claim_holds=runs["claim_holds"][mine].astype(bool),
            failed={name: np.array([name in names for names in failed]) for name in watched},
            gap=runs["gap"][mine],
            true_gap=runs["true_gap"][mine],
            episodes=runs["episodes"][mine],
        )


def _evar(level: float) -> str:
    return f"EVaR({level:g})"


def _tables(judged: Iterable[Judged], delta: float, also: str) -> Validation:
    everything = sorted(judged, key=lambda cell: f"{cell.case}|{cell.risk!r}")
    rates: Table = []
    cells: Table = []
    for rule in [rule + kind for kind in ("", OF_EVAR) for rule in RULES]:
        mine = [cell for cell in everything if cell.rule == rule]
        if not mine:
            continue
        rates += _rates({"rule": rule, "case": ALL, "beta": ""}, all_of(mine), delta)
        for cell in mine:
            where = {"rule": rule, "case": cell.case, "beta": cell.risk}
            rates += _rates(where, cell, delta)
            cells.append({**where, "eps": cell.eps[0], **_sizes(cell)})
    return Validation(rates, cells, _tell(rates, cells, delta) + also)


def _rates(where: dict[str, Any], cell: Judged, delta: float) -> Table:
    proof = methods.find(RULES[where["rule"].removesuffix(OF_EVAR)]["method"]).proof
    held = ~np.any([cell.failed[name] for name in proof], axis=0)
    counted = {
        NOT_OPTIMAL: (cell.stopped & (cell.true_gap > cell.eps + _ROUNDING), 1.0),
        FALSE_CLAIM: (~cell.claim_holds, 1.0),
        DISPROOF: (~cell.claim_holds & held, 0.0),
        **{name: (failed, EVENTS[name].share) for name, failed in cell.failed.items()},
    }
    table = []
    for claim, (failures, share) in counted.items():
        rate, low, high = proportion(int(failures.sum()), len(failures))
        numbers = {"runs": len(failures), "failures": int(failures.sum()), "rate": rate, "low": low, "high": high}
        p_value = float(binom.sf(failures.sum() - 1, len(failures), share * delta))
        table.append({**where, "claim": claim, "promised": share * delta, **numbers, "p_value": p_value})
    return table


def _sizes(cell: Judged) -> dict[str, Any]:
    gap, true, episodes = cell.gap, cell.true_gap, cell.episodes
    return {
        "runs": len(gap),
        "stopped": int(cell.stopped.sum()),
        "certified_gap": float(np.median(gap)),
        "true_gap_mean": float(true.mean()),
        "true_gap_largest": float(true.max()),
        "largest_share": float((true / gap).max()),
        "episodes_mean": float(episodes.mean()),
        "episodes_sd": float(episodes.std()),
        "episodes_median": float(np.median(episodes)),
        "episodes_largest": int(episodes.max()),
    }


# -- what it says ----------------------------------------------------------------------------------------------------


def _tell(rates: Table, cells: Table, delta: float) -> str:
    totals = rows_where(rates, case=ALL)
    runs = sum(row["runs"] for row in cells)
    text = (
        f"{runs} runs in {len(cells)} cells: {len({row['case'] for row in cells})} models, "
        f"{len({row['rule'] for row in cells})} rules, δ = {delta:g}. "
    )
    for claim in (NOT_OPTIMAL, FALSE_CLAIM, DISPROOF):
        failures = sum(row["failures"] for row in rows_where(totals, claim=claim))
        text += f"{claim.capitalize()}: {failures} of {runs}. "
    worst = max((row for row in totals if row["promised"] > 0), key=lambda row: row["rate"] / row["promised"])
    text += (
        f"Of all claims, {worst['claim']} of the rule '{worst['rule']}' came closest to what is promised: "
        f"{worst['failures']} of {worst['runs']} runs failed, {worst['rate']:.2%} "
        f"({LEVEL:.0%} interval {worst['low']:.2%} to {worst['high']:.2%}), promised {worst['promised']:.2%}. "
    )
    share = max(cells, key=lambda row: row["largest_share"])
    text += f"The largest true gap was {share['largest_share']:.3g} times the certified one ({share['case']}). "
    above = Validation(rates, cells, "").contradictions
    if above:
        names = ", ".join(f"{row['claim']} ({row['rule']}, {row['case']})" for row in above)
        return text + f"More failures than promised, beyond chance: {names}."
    return text + f"None of the {len(rates)} rates is above what is promised, beyond chance."


def _tell_errors(errors: Sequence[str]) -> str:
    if not errors:
        return ""
    return f" {len(errors)} runs ended with an error and are left out; the first: {errors[0]}"


def _write(found: Validation, folder: Path) -> None:
    write_table(folder / "rates.csv", found.rates)
    write_table(folder / "cells.csv", found.cells)
    write_table(folder / "totals.csv", found.totals)
    save_drawing(draw(found.rates, found.cells), folder, "validate")
    write_text_atomically(folder / "README.md", f"# validate\n\n{found.text}\n")


def draw(rates: Table, cells: Table) -> Any:
    """Failure rates beside what is promised, true gaps beside certified ones, and episodes, by rule."""
    from entropic_bpi.show.plots import COLOURS, new_figure, tidy

    rules = list(dict.fromkeys(row["rule"] for row in cells))
    claims = list(dict.fromkeys(row["claim"] for row in rates))
    colours = [*COLOURS, "0.6"]  # as many as there are claims
    figure = new_figure(10.0, 1.2 + 0.7 * len(rules))
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=(3, 2, 2))
    for i, claim in enumerate(claims):
        table = rows_where(rates, case=ALL, claim=claim)
        y = np.array([rules.index(row["rule"]) for row in table]) + 0.11 * (i - (len(claims) - 1) / 2)
        ends = 100 * np.stack([column(table, "low"), column(table, "high")])
        colour = colours[i % len(colours)]
        left.hlines(y, *ends, color=colour, lw=2)
        left.plot(100 * column(table, "rate"), y, ls="", marker="o", ms=3, color=colour, label=claim)
        left.plot(100 * column(table, "promised"), y, ls="", marker="|", ms=7, color=colour)
    left.set_xscale("symlog", linthresh=0.1)
    left.set(xlim=(0, 100), xlabel=f"failures, % of runs\n{LEVEL:.0%} intervals; | is what is promised")
    left.set_yticks(range(len(rules)), rules)
    left.invert_yaxis()
    figure.legend(frameon=False, fontsize="small", loc="outside upper center", ncols=len(claims))
    for i, rule in enumerate(rules):
        table = rows_where(cells, rule=rule)
        y = np.full(len(table), i) + np.linspace(-0.25, 0.25, len(table))
        middle.plot(column(table, "largest_share"), y, ls="", marker=".", color=COLOURS[0])
        right.plot(column(table, "episodes_median"), y, ls="", marker=".", color=COLOURS[0])
    middle.axvline(1, color="black", lw=0.8, ls=":")
    middle.set_xscale("symlog", linthresh=1)
    middle.set(xlim=(-0.05, None), xlabel="largest true gap / certified gap\nof each cell")
    right.set(xscale="log", xlabel="episodes\nmedian of each cell")
    for axes in (left, middle, right):
        tidy(axes)
    return figure
