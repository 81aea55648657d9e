"""``certify``: a certificate from a log of somebody else's decisions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.cli._answer import again, answer, with_declarations
from entropic_bpi.cli._app import CLAIM_FAILED
from entropic_bpi.cli._show import (
    bound_rows,
    certified_choices,
    new_folder,
    risk_keys,
    risk_row,
    show_policy,
    terminal,
)
from entropic_bpi.cli._sources import EitherBetaOption, EVaROption, JsonOption, risk_of
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.tools.files import text_of_cell, write_csv
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate
    from entropic_bpi.runs.data_needs import Missing
    from entropic_bpi.sources.log import Log

CERTIFICATE, TABLE, PLOT = "certificate.json", "missing.csv", "missing.png"
_SHOWN_ROWS = 10


def _column(text: str) -> Any:
    return typer.Option(metavar="COLUMN", help=text, show_default=False)


@with_declarations(without=("discount",))
def certify(
    context: typer.Context,
    log: Annotated[str, typer.Argument(metavar="LOG", help="A CSV or Parquet file.")],
    episode: Annotated[str, _column("Which episode a line belongs to.")],
    step: Annotated[str, _column("Its step there: 0, 1, 2, ...")],
    state: Annotated[str, _column("The state before the step.")],
    action: Annotated[str, _column("What was done.")],
    reward: Annotated[str, _column("What it paid.")],
    delta: Annotated[float, typer.Option(help="Probability with which the claim may fail.")],
    beta: EitherBetaOption = None,
    evar: EVaROption = None,
    next_state: Annotated[str | None, _column("The state after the step. Default: that of the next line.")] = None,
    terminated: Annotated[str | None, _column("Whether the episode ended by itself with this step.")] = None,
    truncated: Annotated[str | None, _column("Whether the episode was cut after this step.")] = None,
    all_truncated: Annotated[
        bool, typer.Option("--all-truncated", help="Every episode that did not terminate was cut.")
    ] = False,
    states: Annotated[
        str | None,
        typer.Option(metavar="A,B,...|seen", help="All states that exist; seen: declare that the log has them all."),
    ] = None,
    actions: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="All actions that may occur. Default: those of the log.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Leave out episodes with such a line (SQL).")
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="Read this SELECT over the table data, which is LOG.")
    ] = None,
    eps: Annotated[
        float | None, typer.Option(help="The gap that is asked for. Default: whatever the log certifies.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Certify this policy: columns state and action (.csv), an object (.json), or .npy."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for certificate and what is missing.")] = None,
    as_json: JsonOption = False,
    **declared: Any,
) -> int:
    """Certify a policy from a log of somebody else's decisions, and say what the log lacks.

    The claim holds however the decisions were made, if each depended on the past alone and nothing was left out for what it
    led to. What else is assumed is printed.

    Examples:

        entropic-bpi certify log.csv --episode id --step t --state place --action move --reward paid --terminated over
        --states home,town,office --beta -1 --delta 0.05 --horizon 20 --reward-range 0 1 --out run

        entropic-bpi verify run/certificate.json

    Writes certificate.json, missing.csv and missing.png: which visits would make the claim tighter.

    Exit codes: 0 certified; 1 the gap is larger than --eps; 2 bad input, with the line of the log that is at fault.
    """
    import entropic_bpi as eb
    from entropic_bpi.show import plots

    if out is not None:
        new_folder(out, (CERTIFICATE, TABLE, PLOT))
    data = eb.Log.read(
        log,
        episode=episode,
        step=step,
        state=state,
        action=action,
        reward=reward,
        next_state=next_state,
        terminated=terminated,
        truncated=True if all_truncated else truncated,
        states=states if states == "seen" else _labels(states),
        actions=_labels(actions),
        max_states=declared.pop("max_states"),
        exclude=exclude,
        query=query,
    )
    claim = eb.certify(
        data,
        **risk_of(beta, evar),
        eps=eps,
        delta=delta,
        policy=None if policy is None else _read_policy(policy),
        **declared,
    )
    lacking = eb.missing(claim)
    if out is not None:
        claim.save(out / CERTIFICATE)
        write_csv(out / TABLE, lacking.rows[0]._fields if lacking.rows else (), lacking.rows)
        plots.save(plots.missing(lacking), out / PLOT)

    def show() -> None:
        _show(data, claim, lacking, given=policy is not None, wanted=eps is not None)
        if out is not None:
            print(f"\nwritten  {printable(str(out))}: {CERTIFICATE}, {TABLE}, {PLOT}")

    then = [*again(context, "certify"), "--out", "run"] if out is None else ["verify", out / CERTIFICATE]
    answer(_as_json(data, claim, lacking), as_json, show, then)
    return 0 if claim.reached else CLAIM_FAILED


def _labels(text: str | None) -> list[Any] | None:
    """Labels separated by commas, integers if all of them are."""
    if text is None:
        return None
    labels = [label.strip() for label in text.split(",")]
    numbers = [int(label) for label in labels if label.removeprefix("-").isdecimal()]
    return numbers if [str(number) for number in numbers] == labels else labels


def _read_policy(path: Path) -> Any:
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
    from entropic_bpi.model.planning import ReturnLaw

    returns = log.returns(claim.problem.horizon)
    return ReturnLaw.of_sample(returns).evar(risk.alpha) if len(returns) else float("nan")


def _as_json(log: Log, claim: Certificate, lacking: Missing) -> dict[str, Any]:
    behaviour = _behaviour(log, claim)
    return {
        **risk_keys(claim),
        "eps": claim.eps,
        "delta": claim.delta,
        "certified": claim.reached,
        "lower": claim.lower,
        "upper": claim.upper,
        "gap": claim.gap,
        "episodes": claim.episodes,
        "behaviour": None if behaviour != behaviour else behaviour,
        "assumptions": list(claim.assumptions),
        "policy": [choice._asdict() for choice in certified_choices(claim)],
        "missing": [row._asdict() for row in lacking.rows],
        "suggestions": lacking.suggestions,
    }


def _show(log: Log, claim: Certificate, lacking: Missing, *, given: bool, wanted: bool) -> None:
    from rich.table import Table

    console, behaviour = terminal(), _behaviour(log, claim)
    facts = Table.grid("name", "value", padding=(0, 2))
    facts.add_row(
        "log",
        f"{log.name}: {log.episodes:,} episodes, {log.lines:,} lines, {len(log.states)} states, {len(log.actions)} actions",
    )
    name, risk = risk_row(claim)
    facts.add_row(name, f"{risk}, horizon {claim.problem.horizon}")
    for row in bound_rows(claim):
        facts.add_row(*row)
    if wanted:
        verdict = "is" if claim.reached else "is NOT"
        facts.add_row("asked for", f"a gap of {claim.eps:g}, which {verdict} certified")
    if behaviour == behaviour:
        facts.add_row("behaviour", f"the log's own decisions earned about {behaviour:.6g} (an estimate, not a bound)")
    for i, assumption in enumerate(claim.assumptions):
        facts.add_row("" if i else "assumed", assumption)
    console.print(facts)
    console.print()
    console.print(
        f"The {'given ' if given else ''}policy on the states that it was seen to reach (steps count from 0):"
    )
    show_policy(console, certified_choices(claim))
    console.print()
    console.print("What is missing: visits that would make the gap smaller.")
    show_missing(console, lacking)


def show_missing(console: Any, lacking: Missing) -> None:
    from rich.table import Table

    table = Table("steps", "state", "action", "visits", "gap falls if doubled by", "needed", box=None, pad_edge=False)
    for row in lacking.rows[:_SHOWN_ROWS]:
        table.add_row(
            "all" if row.step is None else f"{row.step}",
            row.state or "(first states)",
            row.action or "",
            f"{row.visits}",
            f"{row.gap_reduction:.3g}",
            f"{row.visits_needed}",
        )
    console.print(table)
    if lacking.expected <= lacking.target:
        console.print(f"For a gap of about {lacking.target:.3g}:")
    else:
        console.print(f"More of the same is not enough for a gap of {lacking.target:.3g}: something was never seen.")
    for words in lacking.suggestions[:_SHOWN_ROWS]:
        console.print(f"  {words}")
