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
    """Shows how far something has come, in words and as a part of the whole, and when code is compiled.

    Parameters
    ----------
    shown : bool or None
        None: on a terminal and in a notebook.
    """

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = shown
        self.refreshed = time.perf_counter()
        self.part, self.told = 0.0, False
        self.line: Any = None

    def __enter__(self) -> Self:
        watched = sys.stderr.isatty() or _in_notebook()
        if self.shown or (watched and self.shown is None):
            self.line = _Bar() if watched else _Lines()
        compile_clock.observers.append(self._tell_of_compiling)
        return self

    def __exit__(self, *error: object) -> None:
        compile_clock.observers.remove(self._tell_of_compiling)
        if self.line is not None:
            self.line.stop()

    def update(self, words: Callable[[], str], part: float) -> None:
        """Show this, unless something was shown just before; ``words`` are asked for only if they are shown."""
        self.part, now = part, time.perf_counter()
        if self.line is not None and now - self.refreshed >= _REFRESH_SECONDS:
            self.refreshed = now
            self.line.update(words(), part)

    def _tell_of_compiling(self) -> None:
        """Say once what is going on, until the next update; a file or a pipe need not know."""
        if not self.told and self.line is not None and not isinstance(self.line, _Lines):
            self.told = True
            self.line.update(_COMPILING, self.part)


class RunProgress(Progress):
    """Shows episodes, the certified gap and what is left to do of a run, whose length is not known in advance."""

    def __init__(self, shown: bool | None, eps: float) -> None:
        super().__init__(shown)
        self.eps = self.widest = eps

    def update_run(self, episodes: int, gap: float, forecast: Callable[[], object]) -> None:
        """Show a gap, which has come so far on its way to the goal as is counted in factors."""
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
    """Whether this is the kernel of a notebook, not a terminal."""
    return hasattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel")


class _Bar:
    """For terminals and notebooks: one line that changes, and is gone in the end."""

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
    """For files and pipes: lines of text, each later than the one before by half of the time so far.

    The time is that since the first update, before which most of it goes into compiling.
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
        """There is nothing to clear."""
