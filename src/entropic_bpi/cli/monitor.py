"""``monitor``: whether new episodes in a log still agree with a certificate."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.cli._answer import with_options_of
from entropic_bpi.cli._app import CLAIM_FAILED, option
from entropic_bpi.cli._show import Fact, data, line, present, several
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.cli.certify import certify, read_log
from entropic_bpi.errors import InvalidProblemError

if TYPE_CHECKING:
    from entropic_bpi.runs.monitoring.monitor import Monitor

_COLUMNS = "episode step order_by state action reward next_state terminated truncated all_truncated exclude query table"
_NOT_GIVEN: Mapping[str, Any] = {"states": None, "actions": None, "max_states": None, "delta": 0.0}
_OTHERS = [name for name in inspect.signature(certify).parameters if name not in _COLUMNS.split()]


@with_options_of(certify, without=_OTHERS)
def monitor(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Folder that identify or certify wrote, a certificate file, or a file of --save to go on from.",
            show_default=False,
        ),
    ],
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="The new episodes: a CSV, Parquet, .jsonl or .duckdb file.")
    ],
    level: Annotated[float | None, option("Bound on the probability of a false alarm. Default: 0.01.")] = None,
    save: Annotated[Path | None, option("Write what was observed, to go on from.", metavar="FILE.json")] = None,
    plot: Annotated[Path | None, option("Draw the evidence over the episodes.", metavar="FILE.png")] = None,
    as_json: JsonOption = False,
    **columns: Any,
) -> int:
    """Check whether new episodes still agree with a certificate.

    The certificate is about the process that produced its data. Episodes that were played later, by any policy, are evidence
    for or against it. If the process is as the claim assumes, an alarm ever comes with probability at most --level, however
    often one looks. An outcome that the declarations exclude is an alarm at once.

    Examples:

        entropic-bpi monitor run new.csv --episode id --step t --state place --action move --reward paid --terminated over
        --save monitor.json

        entropic-bpi monitor monitor.json newer.csv --episode id --step t --state place --action move --reward paid
        --terminated over --save monitor.json --plot evidence.png

    Exit codes: 0 no alarm; 1 alarm; 2 bad input.
    """
    from entropic_bpi.show import plots

    watching = _opened(run, level)
    watching.observe_log(read_log(log, {**_NOT_GIVEN, **columns}))
    if save is not None:
        watching.save(save)
    if plot is not None:
        plots.save(watching.plot(), plot)
    facts = [
        *data(alarm=watching.alarm, evidence=watching.evidence, level=watching.level, excluded=watching.excluded),
        Fact("episodes", watching.episodes, "episodes", f"{watching.episodes:,}"),
        Fact(name="evidence", shown=watching.verdict),
        *several("suspects", watching.suspects, "most unlike the certificate"),
        *(line(f"written  {path}") for path in (save, plot) if path is not None),
    ]
    present(facts, as_json, ("certify" if watching.alarm else "monitor", save or run, log))
    return CLAIM_FAILED if watching.alarm else 0


def _opened(run: Path, level: float | None) -> Monitor:
    """The monitor of a file, or a new one for a certificate."""
    from entropic_bpi.certificate.codec import parse
    from entropic_bpi.runs.monitoring.monitor import FORMAT, Monitor

    content: Any = None if run.is_dir() else parse(run)[0]
    if isinstance(content, dict) and content.get("format") == FORMAT:
        if level is not None:
            raise InvalidProblemError(f"{run} has a level of its own, which --level cannot change")
        return Monitor.load(run)
    return Monitor(run, level=0.01 if level is None else level)
