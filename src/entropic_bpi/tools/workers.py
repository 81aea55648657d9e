"""Processes that compute: one task at a time each, replaced when they die, and gone when their parent is."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.tools.checks import check_list
from entropic_bpi.tools.text import shown

# A task whose worker dies is given to another one; after this many deaths it is given up.
_ATTEMPTS = 2
_FALSE_STARTS = 2
_READY = "ready"

Task = TypeVar("Task")
Result = TypeVar("Result")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def import_modules(names: Any, folder: Path | None = None) -> None:
    """Import modules by their names, as one that registers a learner; those in ``folder`` are found too.

    The folder is searched last, and stays on the path, so that the processes of :func:`compute` find them as well.
    """
    names = check_list("imports", names)
    if names and folder is not None and str(folder.resolve()) not in sys.path:
        sys.path.append(str(folder.resolve()))
    for name in names:
        if not isinstance(name, str):
            raise InvalidProblemError(f"imports must be names of modules, got {shown(name)}")
        try:
            import_module(name)
        except (ImportError, TypeError, ValueError) as error:  # not found, relative, or empty
            raise InvalidProblemError(f"imports: {error}") from None


def call_after_importing(names: Sequence[str], function: Callable[[Task], Result], task: Task) -> Result:
    """Return ``function(task)`` in a worker, which may have started just now."""
    import_modules(names)
    return function(task)


def compute(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int,
    *,
    died: Callable[[int], Result],
    started: Callable[[Task], object] = lambda task: None,
) -> Generator[tuple[Task, Result], None, None]:
    """Each task with its result, as they get done, by so many processes or, with 0, by this one.

    An error of ``function`` is raised here. When a task is given up because its workers die, ``died`` is called with the
    last exit code, and returns its result or raises. ``started`` is called with each task that is handed out. Close the
    generator to end the workers early.
    """
    if not workers:
        for task in tasks:
            started(task)
            yield task, function(task)
        return
    waiting, deaths, false_starts = deque(range(len(tasks))), [0] * len(tasks), 0
    pool: list[_Worker] = []
    try:
        while waiting or any(worker.job is not None for worker in pool):
            while len(pool) < min(workers, len(waiting) + sum(worker.job is not None for worker in pool)):
                pool.append(_Worker(function))
            for worker in pool:
                if waiting and worker.ready and worker.job is None:
                    worker.job = waiting.popleft()
                    started(tasks[worker.job])
                    worker.give(tasks[worker.job])
            said = set(wait([worker.connection for worker in pool]))
            for worker in [worker for worker in pool if worker.connection in said]:
                answer, job = worker.answer(), worker.job
                worker.ready, worker.job = answer is not None, None
                if answer is None:
                    worker.stop()
                    pool.remove(worker)
                if job is None:
                    false_starts = 0 if worker.ready else false_starts + 1
                    if false_starts > _FALSE_STARTS:
                        raise EntropicBPIError(
                            "worker processes do not start; if this is a script, does it have the guard "
                            "`if __name__ == '__main__':`?"
                        )
                elif answer is not None:
                    result, error = answer
                    if error is not None:
                        raise error
                    yield tasks[job], result
                else:
                    deaths[job] += 1
                    if deaths[job] < _ATTEMPTS:
                        waiting.appendleft(job)
                    else:
                        yield tasks[job], died(worker.process.exitcode)
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    """A process that computes one task at a time, and the parent's end of the pipe to it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context: Any = multiprocessing.get_context("spawn")  # compiled code with threads does not survive a fork
        self.ready = False
        self.job: int | None = None  # the number of its task
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, task: Any) -> None:
        with suppress(OSError):  # if it is dead, the next answer says so
            self.connection.send(task)

    def answer(self) -> Any:
        """What it says: that it is ready, or a result and an error; None when it is dead."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


# -- in the worker ---------------------------------------------------------------------------------------------------


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """The life of a worker: until the parent hangs up, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import numba

    numba.set_num_threads(1)  # the processes share the processors already
    with suppress(EOFError, OSError):
        connection.send(_READY)
        while True:
            connection.send(_attempt(function, connection.recv()))


def _end_with_parent() -> None:
    """End in the middle of a task when the parent is gone, however it went; compiled code lets this thread run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _attempt(function: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None]:
    try:
        return function(task), None
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # it cannot travel
            return None, EntropicBPIError(f"{type(error).__name__}: {error}")
        return None, error
