"""Sweeps: carry out runs and record each result when it is computed.

A run that raises an error is recorded with it; the other runs continue.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.experiments.engine import described, new_engine
from entropic_bpi.lab.experiments.kinds import KINDS
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.store import Outcome, Results, Store, StoreError, load
from entropic_bpi.tools.checks import check_flag, check_list, check_path
from entropic_bpi.tools.text import shown


def run(
    specs: Sequence[RunSpec],
    folder: str | os.PathLike[str],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    imports: Sequence[str] = (),
    progress: bool | None = None,
) -> Results:
    """Carry out the runs of a sweep that are missing in a folder.

    Parameters
    ----------
    specs : list of RunSpec
        Runs from :func:`grid`; lists can be concatenated.
    folder : path
        Folder for the results; they are recorded in ``results.duckdb``.
    workers : int, optional
        Number of local processes, by default one per core. 0 computes in this process. Scripts that use processes need
        the guard ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``tcp://host:8786``; its workers compute instead of local processes.
    resume : bool
        Keep the runs that are recorded and carry out the rest; failed runs are tried again. Without it, a recorded run is
        an error.
    imports : list of str
        Modules that a worker imports first, for example one that registers your own learner.
    progress : bool, optional
        Show progress on stderr; by default if that is a terminal.

    Returns
    -------
    Results
        The results of all runs of the sweep.

    Examples
    --------
    >>> import tempfile
    >>> from entropic_bpi.lab import experiments
    >>> sweep = experiments.grid(horizon=7, method="kl", beta=[-2, -1], successors="model", seeds=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = experiments.run(sweep, folder, workers=0)
    >>> bool(results.runs["stopped"].all()), len(results.runs["id"])
    (True, 4)
    """
    given = check_list("specs", specs)
    for spec in given:
        if not isinstance(spec, RunSpec):
            raise InvalidProblemError(f"specs must be runs made by grid, got {shown(spec)}")
    specs = list({spec.hash: spec for spec in given}.values())
    folder, resume = check_path("folder", folder), check_flag("resume", resume)
    engine = new_engine(execute, _failed, workers=workers, scheduler=scheduler, imports=imports, progress=progress)
    with Store(folder) as store:
        if not resume and store.known() & {spec.hash for spec in specs}:
            raise StoreError(
                f"{store.path} already holds some of these runs: resume to keep them and do the rest, "
                "or choose another folder"
            )
        finished = store.finished()
        missing = [spec for spec in specs if spec.hash not in finished]
        with closing(engine(missing, len(specs) - len(missing))) as outcomes:
            for spec, outcome in outcomes:
                store.record(spec, outcome)
    results = load(folder).select(specs)
    lost = len(specs) - len(results.runs["id"])
    if lost:
        raise StoreError(
            f"{lost} of the {len(specs)} runs asked for are not in {store.path}: did another process replace it?"
        )
    return results


def execute(spec: RunSpec) -> Outcome:
    """Carry out one run; an error becomes part of the outcome."""
    began = time.perf_counter()
    try:
        columns, curve = KINDS[spec.kind](spec)
    except Exception as error:
        return Outcome({}, {}, time.perf_counter() - began, described(error))
    return Outcome(columns, curve, time.perf_counter() - began)


def _failed(reason: str) -> Outcome:
    return Outcome({}, {}, 0.0, reason)
