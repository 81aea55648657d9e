"""A progress line for runs whose length is not known in advance; in a notebook, a bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from entropic_bpi.compile.decorators import compile_clock

__all__ = ["Progress"]

_REFRESH_SECONDS = 0.2
# When text is printed first, and how far two such lines are apart at most.
_FIRST_LINE_SECONDS, _LAST_LINE_SECONDS = 10.0, 60.0


class Progress:
    """Shows episodes, the certified gap and what is left to do while a run goes on.

    On a terminal's stderr one line that changes, in a notebook a bar, and elsewhere a line of text now and then.
    """

    def __init__(self, shown: bool, eps: float) -> None:
        self.shown, self.eps = shown, eps
        self.refreshed = time.perf_counter()
        self.episodes, self.gap, self.widest = 0, math.inf, eps
        self.line: Any = None
        self.told = False

    def __enter__(self) -> Progress:
        if self.shown and _in_notebook():
            self.line = _NotebookBar()
        elif self.shown and not sys.stderr.isatty():
            self.line = _PlainLines()
        elif self.shown:
            from rich.console import Console
            from rich.status import Status

            self.line = Status("planning …", console=Console(stderr=True))
        if self.line is not None:
            self.line.start()
        compile_clock.observers.append(self._tell_of_compiling)
        return self

    def __exit__(self, *error: object) -> None:
        compile_clock.observers.remove(self._tell_of_compiling)
        if isinstance(self.line, _NotebookBar):  # it stays, so it shows how the run ended
            self.line.update(self._so_far(), self._part())
        if self.line is not None:
            self.line.stop()

    def update(self, episodes: int, gap: float, forecast: Callable[[], object]) -> None:
        self.episodes, self.gap = episodes, gap
        if gap < math.inf:
            self.widest = max(self.widest, gap)
        now = time.perf_counter()
        if self.line is None or now - self.refreshed < _REFRESH_SECONDS:
            return
        self.refreshed = now
        self._show(f"{self._so_far()} · {forecast() or 'no forecast yet'}")

    def _tell_of_compiling(self) -> None:
        """Say once what is going on, until the next plan; a file or a pipe need not know."""
        if not self.told and self.line is not None and not isinstance(self.line, _PlainLines):
            self.told = True
            self._show("compiling, which is done once …")

    def _show(self, words: str) -> None:
        if isinstance(self.line, _NotebookBar):
            self.line.update(words, self._part())
        else:
            self.line.update(words)

    def _so_far(self) -> str:
        return f"{self.episodes:,} episodes · gap {self.gap:.3g} (goal {self.eps:g})"

    def _part(self) -> float:
        """How far the gap has come on its way to the goal, counted in factors."""
        if not self.eps < self.gap < self.widest:
            return float(self.gap <= self.eps)
        return math.log(self.widest / self.gap) / math.log(self.widest / self.eps)


def _in_notebook() -> bool:
    """Whether this is the kernel of a notebook, not a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class _PlainLines:
    """For files and pipes: lines of text, each later than the one before by half of the time so far.

    The time is that since the first plan, before which most of it goes into compiling.
    """

    def start(self) -> None:
        self.began, self.due = math.nan, _FIRST_LINE_SECONDS

    def update(self, words: str) -> None:
        if math.isnan(self.began):
            self.began = time.perf_counter()
        elapsed = time.perf_counter() - self.began
        if elapsed >= self.due:
            self.due = elapsed + min(max(_FIRST_LINE_SECONDS, elapsed / 2), _LAST_LINE_SECONDS)
            print(f"{elapsed:.0f} s: {words}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """There is nothing to clear."""


class _NotebookBar:
    """A bar below the cell, drawn again in its place."""

    def start(self) -> None:
        from IPython.display import HTML, display

        self.html = HTML
        self.place = display(HTML("planning …"), display_id=True)

    def update(self, words: str, part: float) -> None:
        bar = f'<progress value="{part:.3f}" max="1" style="width: 16em; vertical-align: middle"></progress>'
        self.place.update(self.html(f"{bar} {words}"))

    def stop(self) -> None:
        """It stays where it is."""
