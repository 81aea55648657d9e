"""``monitor``: whether new episodes in a log still agree with a certificate."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from entropic_bpi.cli.certify import certify, read_log
from entropic_bpi.cli.common.answer import with_options_of
from entropic_bpi.cli.common.app import CLAIM_FAILED
from entropic_bpi.cli.common.show import Fact, data, line, present, several

_COLUMNS = "episode step order_by state action reward next_state terminated truncated all_truncated exclude query table"
_OTHERS = [name for name in inspect.signature(certify).parameters if name not in _COLUMNS.split()]


@with_options_of(certify, without=_OTHERS)
def monitor(
    run: Path,
    log: str,
    *,
    level: float = 0.01,
    save: Path | None = None,
    plot: Path | None = None,
    as_json: bool = False,
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

    Parameters
    ----------
    run : RUN
        Folder that identify or certify wrote, a certificate file, or a file of --save to go on from.
    log : LOG
        The new episodes: a CSV, Parquet, .jsonl or .duckdb file.
    level
        Bound on the probability of a false alarm; a file of --save has its own.
    save : FILE.json
        Write what was observed, to go on from.
    plot : FILE.png
        Draw the evidence over the episodes.
    """
    from entropic_bpi.certificate.codec import parse
    from entropic_bpi.runs.monitoring.monitor import FORMAT, Monitor
    from entropic_bpi.show import plots

    saved = not run.is_dir() and parse(run)[0].get("format") == FORMAT
    watching = Monitor.load(run) if saved else Monitor(run, level=level)
    watching.observe_log(read_log(log, {**dict.fromkeys(_OTHERS), "delta": 0.0, **columns}))
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
