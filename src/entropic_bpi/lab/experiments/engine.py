"""The engine that carries out runs: in this process, in local processes or on a Dask cluster.

A run depends only on its spec, so its numbers are the same wherever it is computed, except for the last digits on another
kind of processor. When a worker process dies, the runs in progress are tried again one by one. If the process of a run dies
again, that run has failed, and the other runs continue.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.workers import call_after_importing, compute, import_modules
from entropic_bpi.runs.progress import counting
from entropic_bpi.tools.checks import check_integer, processors
from entropic_bpi.tools.extras import module_of_extra

_LONGEST_ERROR = 500
SCHEDULER_SECONDS = 10.0

Result = TypeVar("Result")
Finished = Generator[tuple[RunSpec, Result], None, None]
Engine = Callable[[Sequence[RunSpec], int], Finished[Result]]
"""A function that carries out runs and yields each with its result; its number counts the runs done before."""


def new_engine(
    function: Callable[[RunSpec], Result],
    failed: Callable[[str], Result],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    imports: Sequence[str] = (),
    progress: bool | None = None,
) -> Engine[Result]:
    """Return an engine that calls ``function`` for every run.

    The options are those of :func:`~entropic_bpi.lab.experiments.run`, and are checked here. If the worker of a run is
    lost, ``failed`` is called with the reason; it returns the result of that run or raises an error.
    """
    import_modules(imports)
    on_worker = partial(call_after_importing, tuple(imports), function)
    if scheduler is None:
        count = processors() if workers is None else check_integer("workers", workers, at_least=0)
    elif workers is not None:
        raise InvalidProblemError("give workers or scheduler, not both")

    def carry_out(specs: Sequence[RunSpec], before: int) -> Finished[Result]:
        if scheduler is None:
            results: Finished[Result] = compute(
                on_worker, specs, count, died=partial(failed, "the worker process died")
            )
        else:
            results = _on_cluster(on_worker, specs, scheduler, failed)
        with counting("runs", len(specs) + before, before, progress) as advance, closing(results):
            for spec, result in results:
                yield spec, result
                advance(getattr(result, "error", None) is not None)

    return carry_out


def described(error: BaseException) -> str:
    """Return an error as one short line, without anything that depends on the machine."""
    line = re.sub(r"0x[0-9a-f]+", "0x…", f"{type(error).__name__}: {' '.join(str(error).split())}")
    line = line if len(line) <= _LONGEST_ERROR else f"{line[:_LONGEST_ERROR]} …"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, EntropicBPIError) or not frames:
        return line
    return f"{line} (in {frames[-1].name}, {Path(frames[-1].filename).name} line {frames[-1].lineno})"


def _on_cluster(
    on_worker: Callable[[RunSpec], Result], specs: Sequence[RunSpec], scheduler: str, failed: Callable[[str], Result]
) -> Finished[Result]:
    distributed = module_of_extra("distributed", "cluster", "a scheduler")
    try:
        client = distributed.Client(scheduler, set_as_default=False, timeout=SCHEDULER_SECONDS)
    except (OSError, ValueError) as error:
        raise InvalidProblemError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    try:
        with _silent("distributed.client"), client:
            tasks = {client.submit(on_worker, spec, pure=False): spec for spec in specs}
            for task in distributed.as_completed(tasks, loop=client.loop):
                failure = task.exception()
                if isinstance(failure, InvalidProblemError):  # a run does not raise: an import failed in the worker
                    raise failure
                yield tasks[task], task.result() if failure is None else failed(described(failure))
                task.release()
    except (CancelledError, OSError) as error:
        raise EntropicBPIError(
            f"the Dask scheduler at {scheduler} was lost; finished runs are stored: resume to do the rest"
        ) from error


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Switch off a logger, whose messages repeat our error at length."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
