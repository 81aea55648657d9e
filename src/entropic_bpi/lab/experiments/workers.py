"""Worker processes that end with their parent; a task that kills its process does not stop the other tasks."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.tools.checks import check_list
from entropic_bpi.tools.text import shown

Task = TypeVar("Task")
Result = TypeVar("Result")


def import_modules(names: Any, folder: Path | None = None) -> None:
    """Import modules by their names, such as those that register learners, also from ``folder``.

    The folder is searched last. It remains on the path, so that the processes of :func:`compute` find the modules too.
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
    """Import the modules in a worker, which may have just started, and return ``function(task)``."""
    import_modules(names)
    return function(task)


def compute(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int, *, died: Callable[[], Result]
) -> Generator[tuple[Task, Result], None, None]:
    """Yield each task with its result when it is computed, by ``workers`` processes or, with 0, by this process.

    An error of ``function`` is raised here. When a process dies, the tasks in progress are tried again one by one. If the
    process of a task dies again, its result is that of ``died``, which may raise an error. Close the generator to end the
    processes early.
    """
    if not workers:
        for task in tasks:
            yield task, function(task)
        return
    waiting, again = deque(tasks), deque[Task]()
    while waiting or again:
        alone = bool(again)
        tasks_left, most = (again, 1) if alone else (waiting, workers)
        running: dict[Future[Result], Task] = {}
        with _processes(min(most, len(tasks_left))) as pool:
            try:
                while tasks_left or running:
                    while tasks_left and len(running) < most:
                        running[pool.submit(_attempt, function, tasks_left[0])] = tasks_left[0]
                        tasks_left.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        yield running.pop(future), result
            except BrokenProcessPool:
                if alone:
                    yield running.popitem()[1], died()
                else:
                    again.extend(running.values())


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that end with the block, even during a task."""
    context = multiprocessing.get_context("spawn")  # compiled code with threads does not survive a fork
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _begin, (theirs,))
    try:
        try:
            pool.submit(os.getpid).result()
        except BrokenProcessPool:
            raise EntropicBPIError(
                "worker processes do not start; a script that uses them needs the guard `if __name__ == '__main__':`"
            ) from None
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


# -- in the worker ---------------------------------------------------------------------------------------------------


def _begin(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    import numba

    numba.set_num_threads(1)  # there are already as many processes as processors


def _end_with_parent(connection: Connection) -> None:
    """End the process, even during a task, when the parent closes the pipe or has ended; compiled code does not block."""
    with suppress(EOFError, OSError):
        connection.recv()
    os._exit(1)


def _attempt(function: Callable[[Any], Any], task: Any) -> Any:
    try:
        return function(task)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # it cannot be pickled
            raise EntropicBPIError(f"{type(error).__name__}: {error}") from None
        raise
