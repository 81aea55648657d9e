"""Carrying out a sweep: one driver that records, and workers that compute.

A run depends on its spec alone, so it gives the same numbers in this process, in any number of local processes or on a
Dask cluster. The driver hands out one run at a time and records each result before it waits for the next. A run that
raises is recorded with its error. A worker process that dies is replaced and its run tried once more; if that dies too,
this is the run's error. Nothing else is lost.
"""

from __future__ import annotations

import os
import re
import signal
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from entropic_bpi._checks import check_integer
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.experiments._progress import SweepProgress
from entropic_bpi.experiments.kinds import KINDS
from entropic_bpi.experiments.spec import RunSpec
from entropic_bpi.experiments.store import Outcome, Results, Store, StoreError, load

__all__ = ["execute", "run"]

# A run whose worker dies is given to another one; after this many deaths it is recorded as failed.
_ATTEMPTS = 2
_FALSE_STARTS = 2
_READY = "ready"
_LONGEST_ERROR = 500
SCHEDULER_SECONDS = 10.0

Finished = Iterator[tuple[RunSpec, Outcome]]


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
    >>> from entropic_bpi import experiments
    >>> sweep = experiments.grid(horizon=7, method="kl", beta=[-2, -1], successors="model", seeds=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = experiments.run(sweep, folder, workers=0)
    >>> bool(results.runs["stopped"].all()), len(results.runs["id"])
    (True, 4)
    """
    specs = list({spec.hash: spec for spec in specs}.values())
    _import(imports)
    compute = _workers(workers, scheduler, imports)
    with Store(folder) as store:
        if not resume and store.known() & {spec.hash for spec in specs}:
            raise StoreError(
                f"{store.path} already holds some of these runs: resume to keep them and do the rest, "
                "or choose another folder"
            )
        finished = store.finished()
        missing = [spec for spec in specs if spec.hash not in finished]
        with SweepProgress(specs, missing, shown=progress) as bar:
            for spec, outcome in compute(missing, bar.started):
                store.record(spec, outcome)
                bar.finished(spec, outcome)
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
    if scheduler is not None:
        if workers is not None:
            raise InvalidProblemError("give workers or scheduler, not both")
        return lambda specs, started: _on_cluster(specs, scheduler, imports)
    count = _processors() if workers is None else check_integer("workers", workers, at_least=0)
    if count == 0:
        return _in_this_process
    return lambda specs, started: _in_processes(specs, started, min(count, len(specs)), imports)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _import(names: Sequence[str]) -> None:
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise InvalidProblemError(f"imports: {error}") from None


def _in_this_process(specs: list[RunSpec], started: Callable[[RunSpec], None]) -> Finished:
    for spec in specs:
        started(spec)
        yield spec, execute(spec)


@dataclass(eq=False)
class _Worker:
    """A process that computes one run at a time, and the driver's end of the pipe to it."""

    imports: Sequence[str]
    ready: bool = False
    job: RunSpec | None = None
    connection: Connection = field(init=False)
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        context = get_context("spawn")  # compiled code with threads does not survive a fork
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, list(self.imports)), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, spec: RunSpec) -> None:
        self.job = spec
        with suppress(OSError):  # if it is dead, the next answer says so
            self.connection.send(spec)

    def answer(self) -> Any:
        """What it says: that it is ready, or an outcome; None when it is dead."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _serve(connection: Connection, imports: list[str]) -> None:
    """The life of a worker: until the driver hangs up, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    import numba

    numba.set_num_threads(1)  # the processes share the processors already
    _import(imports)
    try:
        connection.send(_READY)
        while True:
            connection.send(execute(connection.recv()))
    except (EOFError, OSError):
        return


def _in_processes(
    specs: list[RunSpec], started: Callable[[RunSpec], None], count: int, imports: Sequence[str]
) -> Finished:
    waiting: deque[RunSpec] = deque(specs)
    deaths: Counter[str] = Counter()
    false_starts = 0
    pool: list[_Worker] = []
    try:
        while waiting or any(worker.job for worker in pool):
            while len(pool) < min(count, len(waiting) + sum(worker.job is not None for worker in pool)):
                pool.append(_Worker(imports))
            for worker in pool:
                if waiting and worker.ready and worker.job is None:
                    started(waiting[0])
                    worker.give(waiting.popleft())
            said = set(wait([worker.connection for worker in pool]))
            for worker in [worker for worker in pool if worker.connection in said]:
                answer, spec = worker.answer(), worker.job
                worker.ready, worker.job = answer is not None, None
                if answer is None:
                    worker.stop()
                    pool.remove(worker)
                if spec is None:
                    false_starts = 0 if worker.ready else false_starts + 1
                    if false_starts > _FALSE_STARTS:
                        raise EntropicBPIError(
                            "worker processes do not start; if this is a script, does it have the guard "
                            "`if __name__ == '__main__':`?"
                        )
                    continue
                if answer is None:
                    deaths[spec.hash] += 1
                    if deaths[spec.hash] < _ATTEMPTS:
                        waiting.appendleft(spec)
                        continue
                    answer = Outcome({}, {}, 0.0, f"the worker process died (exit code {worker.process.exitcode})")
                yield spec, answer
    finally:
        for worker in pool:
            worker.stop()


def _on_cluster(specs: list[RunSpec], scheduler: str, imports: Sequence[str]) -> Finished:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise InvalidProblemError("a scheduler needs Dask: pip install 'entropic-bpi[cluster]'") from None
    try:
        client = distributed.Client(scheduler, set_as_default=False, timeout=SCHEDULER_SECONDS)
    except (OSError, ValueError) as error:
        raise InvalidProblemError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with client:
        client.run(_import, list(imports))
        tasks = {client.submit(execute, spec, pure=False): spec for spec in specs}
        for task in distributed.as_completed(tasks, loop=client.loop):
            spec = tasks[task]
            failure = task.exception()
            yield spec, task.result() if failure is None else Outcome({}, {}, 0.0, _described(failure))
            task.release()
