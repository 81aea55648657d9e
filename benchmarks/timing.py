"""Taking times in turns, and what to say about them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Measure = Callable[[], float]

# Threads of linear algebra libraries spin for a while after their work; the next contestant must not pay for it.
REST_SECONDS = 0.1


def per_unit(call: Callable[[], Any], units: int = 1, repeats: int = 1) -> Measure:
    """A measurement: the seconds that ``call`` takes for each of its ``units``, over ``repeats`` calls in a row."""

    def measure() -> float:
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - began) / (units * repeats)

    return measure


@dataclass(frozen=True)
class Race:
    """Seconds of each contestant in each round; the contestants took turns."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """How many times longer ``name`` takes than ``to``, by the medians."""
        return self.median(name) / self.median(to)

    def spread(self, name: str, to: str) -> tuple[float, float]:
        """The smallest and the largest ratio of one round."""
        ratios = [a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]
        return min(ratios), max(ratios)


def race(rounds: int, **contestants: Measure) -> Race:
    """Measure the contestants in turns. A round before the first compiles and warms up; it does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, measure in contestants.items():
            time.sleep(REST_SECONDS)
            taken = measure()
            if turn:
                seconds[name].append(taken)
    return Race(seconds)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms: 1 where the values grow in proportion to the sizes.

    Examples
    --------
    >>> round(slope([1, 10, 100], [3, 300, 30_000]), 9)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)
