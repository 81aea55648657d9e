"""A progress line for runs whose length is not known in advance."""

from __future__ import annotations

import math
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
        self.episodes = 0
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
        self.refreshed, self.episodes = now, episodes
        self.line.update(f"{episodes:,} episodes · gap {gap:.3g} (goal {self.eps:g}) · {self._remaining(gap)}")

    def _remaining(self, gap: float) -> str:
        factor = (gap / self.eps) ** 2
        if not 1 < factor < 1e12:
            return "remaining: not known yet"
        elapsed = self.refreshed - self.began
        # Plans are spaced by a constant factor in episodes, so time grows like the logarithm of their number.
        left = elapsed * math.log(factor) / math.log(self.episodes + 2)
        return f"about {factor:.2g}x the episodes, {left:.0f} s to go"
