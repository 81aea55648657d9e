"""Carrying out a sweep: one driver that records, and workers that compute.

A run depends on its spec alone, so it gives the same numbers in this process, in any number of local processes or on a
Dask cluster; only on another kind of processor the last digits may differ. The driver hands out one run at a time and
records each result before it waits for the next. A run that raises is recorded with its error. A worker process that dies
is replaced and its run tried once more; if that dies too, this is the run's error. Nothing else is lost.
"""

from __future__ import annotations

import logging
import os
import re
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.lab.experiments._progress import SweepProgress
from entropic_bpi.lab.experiments.kinds import KINDS
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.store import Outcome, Results, Store, StoreError, load
from entropic_bpi.tools.checks import check_flag, check_integer, check_list, check_path
from entropic_bpi.tools.text import shown
from entropic_bpi.tools.workers import after_importing, compute, import_modules, processors

__all__ = ["execute", "run"]

_LONGEST_ERROR = 500
SCHEDULER_SECONDS = 10.0

Finished = Generator[tuple[RunSpec, Outcome], None, None]


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
    """Carry out the runs of a sweep that are missing in ``folder`` and return the results of all of them.

    Parameters
    ----------
    specs : list of RunSpec
        From :func:`grid`; lists may be added up.
    folder : path
        Results are kept there, in ``results.duckdb``.
    workers : int, optional
        Local processes; as many as there are processors unless given. 0 computes in this process. Scripts that use
        processes need the usual ``if __name__ == "__main__":`` guard.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``tcp://host:8786``, whose workers compute instead.
    resume : bool
        Keep the runs that are there and do the rest; failed ones are tried again. Without it, finding one of the runs
        there is an error.
    imports : list of str
        Modules that a worker imports first, for example one that registers your own learner.
    progress : bool, optional
        Show progress on stderr; by default where that is a terminal.

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
    specs = list({spec.hash: spec for spec in _check_specs(specs)}.values())
    folder, resume = check_path("folder", folder), check_flag("resume", resume)
    import_modules(imports)
    carry_out = _workers(workers, scheduler, imports)
    with Store(folder) as store:
        if not resume and store.known() & {spec.hash for spec in specs}:
            raise StoreError(
                f"{store.path} already holds some of these runs: resume to keep them and do the rest, "
                "or choose another folder"
            )
        there = store.finished()
        missing = [spec for spec in specs if spec.hash not in there]
        with SweepProgress(specs, missing, shown=progress) as bar, closing(carry_out(missing, bar.started)) as finished:
            for spec, outcome in finished:
                store.record(spec, outcome)
                bar.finished(spec, outcome)
    results = load(folder).select(specs)
    lost = len(specs) - len(results.runs["id"])
    if lost:
        raise StoreError(
            f"{lost} of the {len(specs)} runs asked for are not in {store.path}: did another process replace it?"
        )
    return results


def _check_specs(specs: Any) -> list[RunSpec]:
    given = check_list("specs", specs)
    for spec in given:
        if not isinstance(spec, RunSpec):
            raise InvalidProblemError(f"specs must be runs made by grid, got {shown(spec)}")
    return given


def execute(spec: RunSpec) -> Outcome:
    """Carry out one run; an error becomes part of the outcome."""
    began = time.perf_counter()
    try:
        columns, curve = KINDS[spec.kind](spec)
    except Exception as error:
        return Outcome({}, {}, time.perf_counter() - began, _described(error))
    return Outcome(columns, curve, time.perf_counter() - began)


def _described(error: BaseException) -> str:
    """One short line, without anything that depends on the machine."""
    line = re.sub(r"0x[0-9a-f]+", "0x…", f"{type(error).__name__}: {' '.join(str(error).split())}")
    line = line if len(line) <= _LONGEST_ERROR else f"{line[:_LONGEST_ERROR]} …"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, EntropicBPIError) or not frames:
        return line
    return f"{line} (in {frames[-1].name}, {Path(frames[-1].filename).name} line {frames[-1].lineno})"


# -- where runs are computed -----------------------------------------------------------------------------------------


def _workers(
    workers: int | None, scheduler: str | None, imports: Sequence[str]
) -> Callable[[list[RunSpec], Callable[[RunSpec], None]], Finished]:
    on_worker = after_importing(imports, execute)
    if scheduler is not None:
        if workers is not None:
            raise InvalidProblemError("give workers or scheduler, not both")
        return lambda specs, started: _on_cluster(on_worker, specs, scheduler)
    count = processors() if workers is None else check_integer("workers", workers, at_least=0)
    return lambda specs, started: compute(on_worker, specs, count, died=_died, started=started)


def _died(exit_code: int) -> Outcome:
    return Outcome({}, {}, 0.0, f"the worker process died (exit code {exit_code})")


def _on_cluster(on_worker: Callable[[RunSpec], Outcome], specs: list[RunSpec], scheduler: str) -> Finished:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise InvalidProblemError("a scheduler needs Dask: pip install 'entropic-bpi[cluster]'") from None
    try:
        client = distributed.Client(scheduler, set_as_default=False, timeout=SCHEDULER_SECONDS)
    except (OSError, ValueError) as error:
        raise InvalidProblemError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    try:
        with _silent("distributed.client"), client:
            tasks = {client.submit(on_worker, spec, pure=False): spec for spec in specs}
            for task in distributed.as_completed(tasks, loop=client.loop):
                failure = task.exception()
                if isinstance(failure, InvalidProblemError):  # no run raises: the worker lacks one of the imports
                    raise failure
                yield tasks[task], task.result() if failure is None else Outcome({}, {}, 0.0, _described(failure))
                task.release()
    except (CancelledError, OSError) as error:
        raise EntropicBPIError(
            f"the Dask scheduler at {scheduler} was lost; the runs that are done are kept: resume to do the rest"
        ) from error


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a logger from telling in a page what we tell in a line."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
