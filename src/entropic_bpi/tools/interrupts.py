"""Deferral of Ctrl-C to a moment at which no operation is incomplete."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C; the yielded function raises KeyboardInterrupt if it was pressed. A second Ctrl-C raises at once.

    A KeyboardInterrupt that is raised while compiled code is entered or left can crash the process.
    """
    pending: list[int] = []

    def check() -> None:
        if pending:
            raise KeyboardInterrupt

    def note(number: int, frame: Any) -> None:
        check()
        pending.append(number)

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
