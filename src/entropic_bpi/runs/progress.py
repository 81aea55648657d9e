"""Progress on stderr: a bar on a terminal, a bar in a notebook, and elsewhere a line of text now and then."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from entropic_bpi.compile.decorators import compile_clock
from entropic_bpi.tools.text import duration

_REFRESH_SECONDS = 0.2
_COMPILING = "compiling, which is done once …"
# When text is printed first, and how far two such lines are apart at most.
_FIRST_LINE_SECONDS, _LAST_LINE_SECONDS = 10.0, 60.0


class Progress:
    """Shows how far something has come, in words and as a part of the whole.

    Parameters
    ----------
    shown : bool or None
        None: if stderr is a terminal.
    """

    def __init__(self, shown: bool | None) -> None:
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.refreshed = time.perf_counter()
        self.words: Callable[[], str] = lambda: "starting …"
        self.part, self.told = 0.0, False
        self.line: Any = None

    def __enter__(self) -> Self:
        if self.shown:
            self.line = _NotebookBar() if _in_notebook() else _Bar() if sys.stderr.isatty() else _Lines()
        compile_clock.observers.append(self._tell_of_compiling)
        return self

    def __exit__(self, *error: object) -> None:
        compile_clock.observers.remove(self._tell_of_compiling)
        if self.line is not None:
            self.line.stop(self.words, self.part)

    def update(self, words: Callable[[], str], part: float) -> None:
        """Show this, unless something was shown just before; ``words`` are asked for only if they are shown."""
        self.words, self.part = words, part
        now = time.perf_counter()
        if self.line is not None and now - self.refreshed >= _REFRESH_SECONDS:
            self.refreshed = now
            self.line.update(words(), part)

    def _tell_of_compiling(self) -> None:
        """Say once what is going on, until the next update; a file or a pipe need not know."""
        if not self.told and self.line is not None and not isinstance(self.line, _Lines):
            self.told = True
            self.line.update(_COMPILING, self.part)


class CompileNotice(Progress):
    """Says once, on a terminal or in a notebook, that code is compiled while the block runs."""

    def __init__(self) -> None:
        super().__init__(False)

    def _tell_of_compiling(self) -> None:
        if not self.told and (sys.stderr.isatty() or _in_notebook()):
            print(_COMPILING, file=sys.stderr, flush=True)
        self.told = True


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
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class _Bar:
    """For terminals: one line that changes, and is gone in the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
        self.bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("starting …", total=1.0)
        self.bar.start()

    def update(self, words: str, part: float) -> None:
        self.bar.update(self.task, description=words, completed=part)

    def stop(self, words: Callable[[], str], part: float) -> None:
        self.bar.stop()


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

    def stop(self, words: Callable[[], str], part: float) -> None:
        """There is nothing to clear."""


class _NotebookBar:
    """A bar below the cell, drawn again in its place, where it stays."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self.html = HTML
        self.place = display(HTML("starting …"), display_id=True)

    def update(self, words: str, part: float) -> None:
        bar = f'<progress value="{part:.3f}" max="1" style="width: 16em; vertical-align: middle"></progress>'
        self.place.update(self.html(f"{bar} {words}"))

    def stop(self, words: Callable[[], str], part: float) -> None:
        self.update(words(), part)
