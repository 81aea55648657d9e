"""Progress on stderr: a bar on a terminal and in a notebook, and elsewhere a line of text now and then."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from entropic_bpi.compile.decorators import compile_clock
from entropic_bpi.tools.text import duration

_REFRESH_SECONDS, _BAR_WIDTH = 0.2, 20
_COMPILING = "compiling, which is done once …"
# When text is printed first, and how far two such lines are apart at most.
_FIRST_LINE_SECONDS, _LAST_LINE_SECONDS = 10.0, 60.0


class Progress:
    """Show progress in words and as a part of the whole, and say when code is compiled.

    Parameters
    ----------
    shown : bool or None
        Whether it is shown; None: on a terminal and in a notebook.
    """

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = shown
        self.refreshed = time.perf_counter()
        self.part, self.said_compiling = 0.0, False
        self.line: Any = None

    def __enter__(self) -> Self:
        watched = sys.stderr.isatty() or _in_notebook()
        if self.shown or (watched and self.shown is None):
            self.line = _Bar() if watched else _Lines()
        compile_clock.observers.append(self._show_compiling)
        return self

    def __exit__(self, *error: object) -> None:
        compile_clock.observers.remove(self._show_compiling)
        if self.line is not None:
            self.line.stop()

    def update(self, words: Callable[[], str], part: float) -> None:
        """Show ``words()`` and ``part``, unless something was shown just before; then ``words`` is not called."""
        self.part, now = part, time.perf_counter()
        if self.line is not None and now - self.refreshed >= _REFRESH_SECONDS:
            self.refreshed = now
            self.line.update(words(), part)

    def _show_compiling(self) -> None:
        """Show once that code is being compiled, until the next update; not in files and pipes."""
        if not self.said_compiling and self.line is not None and not isinstance(self.line, _Lines):
            self.said_compiling = True
            self.line.update(_COMPILING, self.part)


class RunProgress(Progress):
    """Show the episodes of a run, its certified gap and the forecast of what is left to do."""

    def __init__(self, shown: bool | None, eps: float) -> None:
        super().__init__(shown)
        self.eps = self.widest = eps

    def update_run(self, episodes: int, gap: float, forecast: Callable[[], object]) -> None:
        """Show the gap; the bar is on the logarithmic scale from the widest gap to the goal."""
        if gap < math.inf:
            self.widest = max(self.widest, gap)
        part = float(gap <= self.eps)
        if self.eps < gap < self.widest:
            part = math.log(self.widest / gap) / math.log(self.widest / self.eps)
        so_far = f"{episodes:,} episodes · gap {gap:.3g} (goal {self.eps:g})"
        self.update(lambda: so_far if part == 1 else f"{so_far} · {forecast() or 'no forecast yet'}", part)


@contextmanager
def counting(things: str, total: int, done: int = 0, shown: bool | None = None) -> Iterator[Callable[[bool], None]]:
    """Show how many ``things`` are done, and yield a function that counts one more.

    The argument of that function says whether the thing failed.
    """
    began, failures, before = time.perf_counter(), 0, done

    def words() -> str:
        elapsed = time.perf_counter() - began
        left = duration(elapsed / max(done - before, 1) * (total - done))
        failed = f", {failures} failed" if failures else ""
        return f"{done} of {total} {things}{failed} · {duration(elapsed)} elapsed, {left} left"

    with Progress(shown) as line:

        def advance(failed: bool) -> None:
            nonlocal failures, done
            failures, done = failures + failed, done + 1
            line.update(words, done / max(total, 1))

        yield advance


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, not a terminal."""
    return hasattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel")


class _Bar:
    """One line that is written over and erased at the end, for terminals and notebooks."""

    def __init__(self) -> None:
        self.width = 0

    def update(self, words: str, part: float) -> None:
        done = round(_BAR_WIDTH * part)
        text = f"{'━' * done}{'╌' * (_BAR_WIDTH - done)} {words}"[: shutil.get_terminal_size().columns - 1]
        print(f"\r{text:{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(text)

    def stop(self) -> None:
        print(f"\r{'':{self.width}}", end="\r", file=sys.stderr, flush=True)


class _Lines:
    """Lines of text for files and pipes, at intervals of half the elapsed time, from 10 to 60 seconds.

    The time is that since the first update, because most of the time before it is for compiling.
    """

    def __init__(self) -> None:
        self.began, self.due = math.nan, _FIRST_LINE_SECONDS

    def update(self, words: str, part: float) -> None:
        if math.isnan(self.began):
            self.began = time.perf_counter()
        elapsed = time.perf_counter() - self.began
        if elapsed >= self.due:
            self.due = elapsed + min(max(_FIRST_LINE_SECONDS, elapsed / 2), _LAST_LINE_SECONDS)
            print(f"{elapsed:.0f} s: {words}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Do nothing: lines stay."""
