"""``certify``: a certificate from a log of somebody else's decisions, or for other risk levels from one run."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from entropic_bpi.cli.common.answer import again, with_declarations
from entropic_bpi.cli.common.app import CLAIM_FAILED
from entropic_bpi.cli.common.show import (
    Fact,
    assumption_facts,
    claim_facts,
    data,
    line,
    new_folder,
    policy_facts,
    present,
    written,
)
from entropic_bpi.cli.common.sources import risk_of
from entropic_bpi.cli.identify import CERTIFICATE
from entropic_bpi.cli.levels import certify_levels
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.show.choices import certified_choices
from entropic_bpi.show.words import number
from entropic_bpi.tools.files import text_of_cell, write_csv

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate
    from entropic_bpi.runs.data_needs import Missing
    from entropic_bpi.sources.log import Log

TABLE, PLOT = "missing.csv", "missing.png"
_SHOWN_ROWS = 10
_NEEDED = ("episode", "step", "state", "action", "reward", "delta")
_READ = (*_NEEDED[:-1], "next_state", "terminated", "exclude", "query", "max_states", "order_by", "table")
# Options that say how a log is read; the others are declarations.
COLUMNS = (*_READ, "truncated", "all_truncated", "actions", "states")
_OF_A_RUN = ("source", "beta", "evar", "rewards", "out", "as_json")


@with_declarations(without=("discount", "reward"))  # which is a column here
def certify(
    context: typer.Context,
    source: str,
    *,
    beta: str | None = None,
    evar: str | None = None,
    delta: float | None = None,
    episode: str | None = None,
    step: str | None = None,
    order_by: str | None = None,
    state: str | None = None,
    action: str | None = None,
    reward: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    all_truncated: bool = False,
    states: str | None = None,
    actions: str | None = None,
    exclude: str | None = None,
    query: str | None = None,
    table: str | None = None,
    eps: float | None = None,
    policy: Path | None = None,
    rewards: Path | None = None,
    out: Path | None = None,
    as_json: bool = False,
    **declared: Any,
) -> int:
    """Certify a policy from a log, or every risk level from the episodes of one run.

    A log: the claim holds for any decisions, if each of them depended on the past alone and no episode was dropped because
    of its outcome. All other assumptions are printed. The answer also says which further data would help.

    A run: the claims for all risk levels hold at once, because they are about the same transitions. With probability at
    least 1 - delta, for every level, the best value lies in the band and the policy is within the gap of it.

    Examples:

        entropic-bpi certify log.csv --episode id --step t --state place --action move --reward paid --terminated over
        --states home,town,office --beta -1 --delta 0.05 --horizon 20 --reward-range 0 1 --out run

        entropic-bpi certify run --beta -3:3:0.25 --out band

        entropic-bpi certify run --evar 0.05:0.95:0.05 --out band

        entropic-bpi certify run --beta -1 --rewards prices.csv --out dearer

    For a log, writes certificate.json, and missing.csv and missing.png: the visits that would make the gap smaller. For a
    run, writes spectrum.csv (beta, lower, upper, gap and the number of the policy) and spectrum.png, where lines mark the
    risk levels at which the policy changes; with --evar, also or instead, evar.csv and evar.png. For one level, writes
    certificate.json.

    Exit codes: 0 certified; 1 the gap is larger than --eps; 2 bad input, with the line of the log that is at fault.

    Parameters
    ----------
    source : LOG|RUN
        A log (a CSV, Parquet, .jsonl or .duckdb file); or the folder of a run, or a certificate file (.json).
    beta : BETA|LOW:HIGH:STEP
        Risk parameter: positive seeks risk, negative avoids it, 0 is the mean. For a run: all levels from LOW to HIGH, or
        one.
    evar : ALPHA|LOW:HIGH:STEP
        The entropic value at risk (EVaR) of this level, between 0 and 1; for a run, of all levels. EVaR is a lower
        bound on CVaR, the mean of the worst share ALPHA of the returns, and is not that mean: a policy with the best
        EVaR need not have the best CVaR.
    delta
        Probability with which the claim may fail; for a log.
    all_truncated
        Every episode that did not terminate was cut.
    states : A,B,...|seen
        All states that exist; seen: declare that the log has them all.
    actions : A,B,...
        All actions that may occur. Default: those of the log.
    exclude : CONDITION
        Leave out episodes with such a line (SQL).
    query : SQL
        Read this SELECT over the table data, which is LOG.
    table : NAME
        The table of a .duckdb file.
    eps
        The target gap. Default: the gap that the log certifies.
    policy : FILE
        Certify this policy: columns state and action (.csv), an object (.json), or .npy.
    rewards : FILE
        Certify for other known rewards: columns state, action, reward and perhaps next_state, of those that change
        (.csv), an array (.npy), or a model that has them (.npz, problem.toml, ...).
    out : DIR
        Folder for the results.

    Columns of a log
    ----------------
    episode : COLUMN
        The episode that a line belongs to.
    step : COLUMN
        The step within the episode: 0, 1, 2, ...
    order_by : COLUMN
        Instead of --step: a time or a number by which the steps of an episode are ordered.
    state : COLUMN
        The state before the step.
    action : COLUMN
        The action that was taken.
    reward : COLUMN
        The reward of the step.
    next_state : COLUMN
        The state after the step. Default: that of the next line.
    terminated : COLUMN
        Whether the episode ended by itself with this step.
    truncated : COLUMN
        Whether the episode was cut after this step.
    """
    given = again(context, "certify", without=_OF_A_RUN)[1:]
    if Path(source).is_dir() or source.endswith(".json"):
        if given:
            raise InvalidProblemError(f"{source} is a run: {given[0]} is for logs")
        certify_levels(Path(source), beta, evar, rewards, out, as_json)
        return 0
    risk = risk_of(_number("beta", beta), _number("evar", evar))
    if out is not None:
        new_folder(out, (CERTIFICATE, TABLE, PLOT))
    import entropic_bpi as eb

    log = read_log(source, context.params)
    del declared["max_states"]  # it belongs to the log
    known = None if policy is None else read_policy_file(policy)
    claim = eb.certify(log, **risk, eps=eps, delta=delta, policy=known, rewards=rewards, **declared)
    needs = eb.missing(claim)
    facts = [
        *_log_facts(log, claim),
        *policy_facts(
            f"The {'given ' if policy else ''}policy on the states that it was seen to reach (steps count from 0):",
            certified_choices(claim),
        ),
        *_missing_facts(needs),
    ]
    if out is not None:
        _write(out, claim, needs)
        facts.append(written(out, (CERTIFICATE, TABLE, PLOT)))
    then = [*again(context, "certify"), "--out", "run"] if out is None else ["verify", out / CERTIFICATE]
    present(facts, as_json, then)
    return 0 if claim.reached else CLAIM_FAILED


def read_log(source: str, options: Mapping[str, Any]) -> Log:
    from entropic_bpi.sources.log import Log

    lacking = [f"--{name}" for name in _NEEDED if options[name] is None and (name != "step" or not options["order_by"])]
    if lacking:
        raise InvalidProblemError(f"{source} is a log, which needs {', '.join(lacking)}")
    states = options["states"]
    return Log.read(
        source,
        **{name: options[name] for name in _READ},
        truncated=True if options["all_truncated"] else options["truncated"],
        states=states if states == "seen" else _labels(states),
        actions=_labels(options["actions"]),
    )


def _write(out: Path, claim: Certificate, needs: Missing) -> None:
    from entropic_bpi.show import plots

    claim.save(out / CERTIFICATE)
    write_csv(out / TABLE, needs.rows[0]._fields if needs.rows else (), needs.rows)
    plots.save(plots.missing(needs), out / PLOT)


def _number(name: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidProblemError(f"--{name} must be a number for a log, got {text!r}") from None


def _labels(text: str | None) -> list[Any] | None:
    """Labels separated by commas, integers if all of them are."""
    if text is None:
        return None
    labels = [label.strip() for label in text.split(",")]
    numbers = [int(label) for label in labels if label.removeprefix("-").isdecimal()]
    return numbers if [str(number) for number in numbers] == labels else labels


def read_policy_file(path: Path) -> Any:
    """A policy file: an array ``(H, S)``, or the action for each state."""
    import numpy as np

    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            table = json.loads(text)
        else:
            lines = csv.DictReader(text.splitlines(), restval="")
            table = {text_of_cell(line["state"]): text_of_cell(line["action"]) for line in lines}
    except FileNotFoundError:
        raise InvalidProblemError(f"no such file: {path}") from None
    except KeyError as error:
        raise InvalidProblemError(f"--policy: {path} has no column {error}; it needs state and action") from None
    except (ValueError, EOFError, csv.Error) as error:
        raise InvalidProblemError(f"--policy: {path} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise InvalidProblemError(f"--policy: {path} must hold an object with the action for each state")
    return table


def _behaviour(log: Log, claim: Certificate) -> float:
    """What the log's own decisions earned, an estimate; NaN where there is none."""
    risk = claim.problem.risk
    if not isinstance(risk, EVaR):
        return log.value(risk.beta, claim.problem.horizon)
    from entropic_bpi.model.return_law import ReturnLaw

    returns = log.returns(claim.problem.horizon)
    return ReturnLaw.of_sample(returns).evar(risk.alpha) if len(returns) else float("nan")


def _log_facts(log: Log, claim: Certificate) -> list[Fact]:
    behaviour = _behaviour(log, claim)
    size = f"{log.episodes:,} episodes, {log.lines:,} lines, {len(log.states)} states, {len(log.actions)} actions"
    facts = [
        Fact(name="log", shown=f"{log.name}: {size}"),
        Fact(name="horizon", shown=f"{claim.problem.horizon}"),
        *claim_facts(claim),
        *data(episodes=claim.episodes, behaviour=behaviour),
    ]
    if behaviour == behaviour:
        words = f"the log's own decisions earned about {number(behaviour)} (an estimate, not a bound)"
        facts.append(Fact(name="behaviour", shown=words))
    return facts + assumption_facts(claim)


def _missing_facts(needs: Missing) -> list[Fact]:
    rows = [("steps", "state", "action", "visits", "gap falls if doubled by", "needed")]
    rows += [
        (
            "all" if row.step is None else f"{row.step}",
            row.state or "(first states)",
            row.action or "",
            f"{row.visits:,}",
            number(row.gap_reduction),
            f"{row.visits_needed:,}",
        )
        for row in needs.rows[:_SHOWN_ROWS]
    ]
    if needs.expected <= needs.target:
        expected = f"For a gap of about {number(needs.target)}:"
    else:
        expected = f"More of the same is not enough for a gap of {number(needs.target)}: something was never seen."
    title = "What is missing: visits that would make the gap smaller."
    return [
        Fact("missing", [row._asdict() for row in needs.rows], title, rows),
        line(expected),
        Fact("suggestions", needs.suggestions),
        *(line(f"  {words}") for words in needs.suggestions[:_SHOWN_ROWS]),
    ]
