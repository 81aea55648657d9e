"""Measure how often the events of the guarantee fail, and how often a certificate is false.

Each cell of a study (:mod:`entropic_bpi.lab.experiments.cases`) has many runs. An
:class:`~entropic_bpi.lab.experiments.oracle.Oracle`, which knows the true model, checks every plan of each run. Proportions
have the exact binomial interval of Clopper and Pearson. A proportion contradicts the theory if this many failures
are too unlikely at the guaranteed rate; with a correct guarantee, the probability of any contradiction in a study is below
1 %.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom

from entropic_bpi import methods
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.lab.events import EVENTS
from entropic_bpi.lab.experiments.cases import ALL, DELTA, Case, StudyCell, cells_of, check_cases, default_cases
from entropic_bpi.lab.experiments.figures._figure import Table, column, rows_where, save_drawing, write_table
from entropic_bpi.lab.experiments.oracle import CellResults, joined
from entropic_bpi.lab.experiments.spec import RULES, RunSpec, rule_of
from entropic_bpi.lab.experiments.statistics import LEVEL, proportion
from entropic_bpi.show.figures import COLOURS, new_figure, tidy
from entropic_bpi.tools.checks import (
    check_choice,
    check_device,
    check_integer,
    check_list,
    check_path,
    check_probability,
)
from entropic_bpi.tools.files import write_text_atomically

if TYPE_CHECKING:
    from entropic_bpi.lab.experiments.store import Results

NOT_OPTIMAL, FALSE_CLAIM, DISPROOF = "policy not ε-optimal", "certificate false", "certificate false on its event"
# Runs per cell; the default cases have more than 2,000 and more than 100,000 runs in all.
QUICK_RUNS, FULL_RUNS = 24, 1100
# Suffix of the name of a rule in tables, for cells of the entropic value at risk.
OF_EVAR = " (EVaR)"
# Batches grow by this ratio. The fewer plans there are, the quicker a run is; the guarantee is the same for all ratios.
REPLAN = 0.2
# If the guarantee holds, the study reports a contradiction with at most this probability.
FALSE_ALARM = 0.01
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Validation:
    """The result of a validation.

    Attributes
    ----------
    rates : list of dict
        For each rule and claim, over all cases (``case`` is "all") and in each cell: ``failures`` out of ``runs``, the
        ``rate``, its exact interval ``low`` to ``high``, the rate ``promised`` by the guarantee, and ``p_value``,
        the probability of at least as many failures at the promised rate.
    cells : list of dict
        For each cell, the sizes of certified and true gaps, and the number of episodes.
    text : str
        The outcome in words.
    """

    rates: Table
    cells: Table
    text: str

    @property
    def totals(self) -> Table:
        """Return failures over all cases with the upper end of the interval: a row per claim, a column per rule."""
        rows = {(row["claim"], row["rule"]): row for row in rows_where(self.rates, case=ALL)}
        rules = list(dict.fromkeys(rule for _, rule in rows))
        table: Table = []
        for claim in dict.fromkeys(claim for claim, _ in rows):
            mine = {rule: rows.get((claim, rule)) for rule in rules}
            promised = next(row["promised"] for row in mine.values() if row)
            cells = {rule: f"{row['failures']} (≤ {row['high']:.2%})" if row else "" for rule, row in mine.items()}
            table.append({"failures": claim, "promised": f"{promised:.1%}", **cells})
        runs = {rule: str(max(row["runs"] for (_, name), row in rows.items() if name == rule)) for rule in rules}
        return [*table, {"failures": "of runs", "promised": "", **runs}]

    @property
    def contradictions(self) -> Table:
        """Return the rates that are too high to be chance, allowing for the number of rates."""
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
    device: str = "cpu",
    progress: bool | None = None,
    **options: Any,
) -> Validation:
    """Measure how often the guarantee fails, and write ``rates.csv``, ``cells.csv``, ``totals.csv``, a figure and a summary.

    Parameters
    ----------
    folder : path
        Folder for the results; the runs are recorded in ``results.duckdb``.
    cases : list of Case, optional
        The models; by default nine small models of different kinds, with β = 1 and β = -1.
    rules : list of str, optional
        Names in ``entropic_bpi.lab.experiments.spec.RULES``; by default all that apply to a model.
    quick : bool
        24 runs per cell instead of 1100.
    runs : int, optional
        Number of runs per cell, instead of these.
    delta : float
        The guaranteed probability of failure.
    device : {"cpu", "gpu"}
        On a GPU every run is a thread; only cells of the KL method for one β can run there. Single runs are not recorded,
        and the event E_bet, which no rule uses, is not checked.
    progress : bool, optional
        Show progress on stderr; by default if that is a terminal.
    **options
        ``workers``, ``scheduler``, ``resume``: as for :func:`~entropic_bpi.lab.experiments.run`; for the CPU only.

    Returns
    -------
    Validation
        The rates of failure, what was measured in each cell, and a summary.

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
    check_cases(study)
    check_probability("delta", delta)
    if check_device("device", device) == "gpu":
        if any(options.values()):
            raise InvalidProblemError("workers, scheduler and resume are for device='cpu'")
        cells, left_out = _for_gpu(cells_of(study, chosen), delta)
        found = _tables(_on_gpu(cells, count, delta, progress), delta, left_out)
    else:
        from entropic_bpi.lab.experiments.runner import run

        specs = [spec for cell in cells_of(study, chosen) for spec in _specs_of(cell, count, delta)]
        found = _found(run(specs, folder, progress=progress, **options), delta)
    _write(found, folder)
    return found


def _specs_of(cell: StudyCell, count: int, delta: float) -> list[RunSpec]:
    case, settings = cell.case, dict(RULES[cell.rule])
    method = settings.pop("method")
    level = {} if cell.alpha is None else {"evar": cell.alpha}
    options = {"eps": cell.eps, "delta": delta, "replan": REPLAN, **level, **settings}
    first = RunSpec(case.name, case.params, "validate", method, cell.beta, options, cell.first_seed, case.mdp)
    return [replace(first, seed=first.seed + i) for i in range(count)]


def _on_gpu(cells: Sequence[StudyCell], count: int, delta: float, progress: bool | None) -> Iterator[CellResults]:
    """Carry out and check the runs of cells on a GPU."""
    from entropic_bpi.lab.gpu_study import study_cell
    from entropic_bpi.runs.progress import counting

    with counting("cells", len(cells), shown=progress) as advance:
        for cell in cells:
            names = {"rule": cell.rule, "case": cell.case.name}
            problem = cell.problem(delta)
            yield study_cell(cell.case.mdp, problem, count, seed=cell.first_seed, replan=REPLAN, **names)
            advance(False)


def _for_gpu(cells: Sequence[StudyCell], delta: float) -> tuple[list[StudyCell], str]:
    """Return the cells that can run on a GPU, and the reason why others cannot."""
    from entropic_bpi.lab.gpu_study import why_not

    reasons = [
        why_not(cell.problem(delta)) if RULES[cell.rule]["method"] == "kl" else "a GPU has the KL method only"
        for cell in cells
    ]
    fitting = [cell for cell, reason in zip(cells, reasons, strict=True) if not reason]
    counted = Counter(reason for reason in reasons if reason)
    text = "; ".join(f"{number} cells are left out: {reason}" for reason, number in counted.items())
    if not fitting:
        raise InvalidProblemError(f"device='gpu': {text}")
    return fitting, text and f" {text}."


# -- tables ----------------------------------------------------------------------------------------------------------


def _found(results: Results, delta: float) -> Validation:
    errors = [error for error in results.runs["error"] if error]
    if len(errors) == len(results.runs["error"]):
        raise EntropicBPIError(f"all {len(errors)} runs failed, the first with: {errors[0]}")
    done = results.where(np.array([error is None for error in results.runs["error"]], dtype=bool))
    lost = f" {len(errors)} runs ended with an error and are left out; the first: {errors[0]}" if errors else ""
    return _tables(_cell_results(done), delta, lost)


def _cell_results(results: Results) -> Iterator[CellResults]:
    """Yield the runs of each cell."""
    runs = results.runs
    cells: dict[tuple[str, str, Any, float], list[int]] = {}
    for i, spec in enumerate(results.specs):
        rule, options = rule_of(spec), spec["options"]
        risk: Any = float(spec["beta"])
        if "evar" in options:
            rule, risk = rule + OF_EVAR, f"EVaR({options['evar']:g})"
        cells.setdefault((rule, spec["instance"], risk, options["eps"]), []).append(i)
    for (rule, case, risk, eps), mine in cells.items():
        method = methods.find(RULES[rule.removesuffix(OF_EVAR)]["method"])
        watched = method.proof if rule.endswith(OF_EVAR) else method.events
        failed = [set(names.split()) for names in runs["failed_events"][mine]]
        yield CellResults(
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


def _tables(results: Iterable[CellResults], delta: float, also: str) -> Validation:
    everything = sorted(results, key=lambda cell: f"{cell.case}|{cell.risk!r}")
    rates: Table = []
    cells: Table = []
    for rule in [rule + kind for kind in ("", OF_EVAR) for rule in RULES]:
        mine = [cell for cell in everything if cell.rule == rule]
        if not mine:
            continue
        rates += _rates({"rule": rule, "case": ALL, "beta": ""}, joined(mine), delta)
        for cell in mine:
            where = {"rule": rule, "case": cell.case, "beta": cell.risk}
            rates += _rates(where, cell, delta)
            cells.append({**where, "eps": cell.eps[0], **_sizes(cell)})
    return Validation(rates, cells, _describe(rates, cells, delta) + also)


def _rates(where: dict[str, Any], cell: CellResults, delta: float) -> Table:
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


def _sizes(cell: CellResults) -> dict[str, Any]:
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


# -- the text and the figure ----------------------------------------------------------------------------------------


def _describe(rates: Table, cells: Table, delta: float) -> str:
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


def _write(found: Validation, folder: Path) -> None:
    write_table(folder / "rates.csv", found.rates)
    write_table(folder / "cells.csv", found.cells)
    write_table(folder / "totals.csv", found.totals)
    save_drawing(draw(found.rates, found.cells), folder, "validate")
    write_text_atomically(folder / "README.md", f"# validate\n\n{found.text}\n")


def draw(rates: Table, cells: Table) -> Any:
    """Draw failure rates beside the promised ones, true gaps beside certified ones, and episodes, by rule."""
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
