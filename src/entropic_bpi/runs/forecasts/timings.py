"""How much longer: from the last gaps, and from what episodes and plans take.

The gap falls about like a power of the number of episodes. The power is fitted, as a line through logarithms, to the plans
of the last octave (the last doubling of the episodes), or of the last two or three where plans are rare, and to both of its
halves. Confidence sets shrink like 1/n while
little is known and like 1/√n in the end, so a line that falls more slowly is a plateau that will end, and is taken to fall
like that; and one that falls like 1/n is always among those whose meetings with the goal are the range. Nothing is
certified by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from entropic_bpi.tools.text import duration

# Fewer plans than this are no ground for a forecast, nor are so many spread over more than this growth of the episodes.
FEWEST_PLANS, WIDEST = 8, 8
# The slopes that bounds have in the end, with room for their logarithms, and while little is known.
_SLOWEST, _FASTEST = -0.45, -1.0
# A line that falls less than this is level.
_LEVEL = -0.01
# Not worth a number: so many times the episodes played.
FARTHEST = 1e6
# What a new measurement counts for in the time of an episode, and of a plan.
_WEIGHT = 0.2
_MOST_PLANS = 10_000


class Forecast(NamedTuple):
    """More episodes, and more seconds, until the goal: two ends of a range each."""

    episodes: tuple[float, float]
    seconds: tuple[float, float]

    def __str__(self) -> str:
        return f"{between(*self.episodes, count)} more episodes, {between(*self.seconds, duration)} to go"

    def after(self, episodes: int, seconds: float) -> Forecast:
        """The same from the beginning, of which so much is done."""
        (fewest, most), (shortest, longest) = self
        return Forecast((episodes + fewest, episodes + most), (seconds + shortest, seconds + longest))

    def in_all(self) -> str:
        """In words, where it is from the beginning."""
        return f"{between(*self.episodes, count)} episodes, {between(*self.seconds, duration)}"


@dataclass
class Timings:
    """What an episode and a plan take, by the clock: means that forget."""

    episode: float = math.nan
    plan: float = math.nan
    planned: int = 0

    def played(self, episodes: int, seconds: float) -> None:
        if episodes > 0:
            self.episode = _mixed(self.episode, seconds / episodes)

    def made_plan(self, seconds: float) -> None:
        self.planned += 1
        if self.planned > 1:  # the first one compiles
            self.plan = _mixed(self.plan, seconds)

    def seconds(self, played: int, until: float, batch: Callable[[int], int]) -> float:
        """How long it takes to get to ``until`` episodes, with a plan after each ``batch``."""
        plans, reached = 0, played
        while reached < until and plans < _MOST_PLANS:
            reached += batch(reached)
            plans += 1
        if reached < until:  # batches that do not grow
            plans = round(plans * (until - played) / max(reached - played, 1))
        return (until - played) * self.episode + plans * self.plan


def forecast_of(history: np.ndarray, eps: float, pace: Timings, batch: Callable[[int], int]) -> Forecast | None:
    """What to expect, or None if there is no ground for a forecast yet.

    Parameters
    ----------
    history : structured array with ``episodes`` and ``gap``
        One row for each plan.
    eps : float
        The goal.
    pace : Pace
    batch : function
        How many episodes follow a plan after so many.

    Examples
    --------
    >>> import numpy as np
    >>> episodes = np.arange(100, 1000, 10)
    >>> history = np.array([(n, 5.0 / n**0.5) for n in episodes], dtype=[("episodes", int), ("gap", float)])
    >>> soon = forecast_of(history, 0.1, Timings(episode=1e-3, plan=1e-2), lambda n: n // 100)
    >>> [round(number) for number in soon.episodes]
    [583, 1510]
    """
    rows = history[(history["episodes"] > 0) & np.isfinite(history["gap"]) & (history["gap"] > 0)]
    if not len(rows) or not rows["gap"][-1] > eps:
        return None
    played = int(rows["episodes"][-1])
    begin = min(played / 2, rows["episodes"][-FEWEST_PLANS:][0])
    rows = rows[rows["episodes"] >= max(begin, played / WIDEST)]
    if len(rows) < FEWEST_PLANS or math.isnan(pace.episode) or math.isnan(pace.plan):
        return None
    half = rows["episodes"] >= math.sqrt(begin * played)
    slopes = [_slope(part) for part in (rows, rows[half], rows[~half]) if len(part) >= 3]
    if not slopes[0] < _LEVEL:
        return None
    # In logarithms, how much the gap must fall.
    fall = math.log(float(rows["gap"][-1]) / eps)
    factors = sorted(fall / -min(slope, _SLOWEST) for slope in (*slopes, _FASTEST))
    if not factors[-1] < math.log(FARTHEST):
        return None
    shortest, longest = (played * math.exp(factor) for factor in (factors[0], factors[-1]))
    seconds = [pace.seconds(played, end, batch) for end in (shortest, longest)]
    return Forecast((shortest - played, longest - played), (min(seconds), max(seconds)))


def _slope(rows: np.ndarray) -> float:
    """Of the line through these plans, in logarithms."""
    x, y = np.log(rows["episodes"]), np.log(rows["gap"])
    spread = float(((x - x.mean()) ** 2).sum())
    return float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0 else 0.0


def _mixed(old: float, new: float) -> float:
    return new if math.isnan(old) else (1 - _WEIGHT) * old + _WEIGHT * new


def between(low: float, high: float, told: Callable[[float], str]) -> str:
    """A range in words, or one number where its ends are told alike."""
    first, last = told(low), told(high)
    return first if first == last else f"{first} to {last}"


def count(number: float) -> str:
    """A large number in words: two digits, and zeros."""
    digits = max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 0
    return f"{round(number, -digits):,.0f}"
