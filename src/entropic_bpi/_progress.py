"""A progress line for runs whose length is not known in advance."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Progress"]

_REFRESH_SECONDS = 0.2


class Progress:
    """Shows episodes, the certified gap and the expected remaining time on stderr while a run goes on.

    The gap shrinks about like one over the square root of the number of episodes, and a run with a replanning ratio
    spends about the same time on every further percent of episodes; the estimate of the remaining time uses both.
    """

    def __init__(self, shown: bool, eps: float) -> None:
        self.shown, self.eps = shown, eps
        self.began = self.refreshed = time.perf_counter()
        self.line: Any = None

    def __enter__(self) -> Progress:
        if self.shown:
            from rich.console import Console
            from rich.status import Status

            self.line = Status("planning …", console=Console(stderr=True))
            self.line.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.line is not None:
            self.line.stop()

    def update(self, episodes: int, gap: float) -> None:
        now = time.perf_counter()
        if self.line is None or now - self.refreshed < _REFRESH_SECONDS:
            return
        self.refreshed = now
        self.line.update(
            f"{episodes:,} episodes · certified gap {gap:.4g} (goal {self.eps:g}) · {self._remaining(gap)}"
        )

    def _remaining(self, gap: float) -> str:
        ratio = gap / self.eps
        if not 1 < ratio < 1e6:
            return "remaining time not known yet"
        elapsed = self.refreshed - self.began
        return f"about {ratio**2:.3g} times as many episodes in all, {elapsed:.0f} s so far"
