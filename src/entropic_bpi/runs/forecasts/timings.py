"""Forecasts of the remaining episodes and seconds, from the last gaps and the measured time of episodes and plans.

The gap falls about like a power of the number of episodes. The power is fitted as a line through the logarithms of the plans
of the last octave (the last doubling of the episodes), or of the last two or three octaves if plans are rare, and also to
both halves of these plans. Confidence sets shrink like 1/n while little is known and like 1/√n in the end. So a line that
falls more slowly than 1/√n is a plateau that will end, and is replaced by one that falls like 1/√n; and a line that falls
like 1/n is always added. The forecast is the range of the points where these lines reach the goal. It certifies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from entropic_bpi.tools.text import duration

# A forecast needs so many plans, made while the episodes grew by at most this factor.
FEWEST_PLANS, WIDEST = 8, 8
# Slopes of the bounds in the end, with room for logarithmic factors, and while little is known.
_SLOWEST, _FASTEST = -0.45, -1.0
# A line with a larger slope counts as level.
_LEVEL = -0.01
# There is no forecast beyond so many times the episodes played.
FARTHEST = 1e6
# Weight of a new measurement in the mean time of an episode and of a plan.
_WEIGHT = 0.2
_MOST_PLANS = 10_000


class Forecast(NamedTuple):
    """More episodes, and more seconds, until the goal: two ends of a range each."""

    episodes: tuple[float, float]
    seconds: tuple[float, float]

    def __str__(self) -> str:
        return f"{between(*self.episodes, count)} more episodes, {between(*self.seconds, duration)} to go"

    def after(self, episodes: int, seconds: float) -> Forecast:
        """Return the forecast of the whole run, of which so much is done."""
        (fewest, most), (shortest, longest) = self
        return Forecast((episodes + fewest, episodes + most), (seconds + shortest, seconds + longest))

    def in_all(self) -> str:
        """Return the forecast of a whole run in words."""
        return f"{between(*self.episodes, count)} episodes, {between(*self.seconds, duration)}"


@dataclass
class Timings:
    """Mean times of an episode and of a plan, with exponentially decreasing weights."""

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
        """Return the time from ``played`` to ``until`` episodes, with a plan after each ``batch``."""
        plans, reached = 0, played
        while reached < until and plans < _MOST_PLANS:
            reached += batch(reached)
            plans += 1
        if reached < until:  # batches that do not grow
            plans = round(plans * (until - played) / max(reached - played, 1))
        return (until - played) * self.episode + plans * self.plan


def forecast_of(history: np.ndarray, eps: float, timings: Timings, batch: Callable[[int], int]) -> Forecast | None:
    """Return the forecast of what is left to do; None if the history does not allow one yet.

    Parameters
    ----------
    history : structured array with ``episodes`` and ``gap``
        One row for each plan.
    eps : float
        The goal.
    timings : Timings
        Times of an episode and of a plan.
    batch : function
        Returns how many episodes are played before the next plan, given how many were played so far.

    Returns
    -------
    Forecast or None
        The ranges of the remaining episodes and seconds.

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
    if len(rows) < FEWEST_PLANS or math.isnan(timings.episode) or math.isnan(timings.plan):
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
    seconds = [timings.seconds(played, end, batch) for end in (shortest, longest)]
    return Forecast((shortest - played, longest - played), (min(seconds), max(seconds)))


def _slope(rows: np.ndarray) -> float:
    """Return the slope of the line of least squares through these plans, in logarithms."""
    x, y = np.log(rows["episodes"]), np.log(rows["gap"])
    spread = float(((x - x.mean()) ** 2).sum())
    return float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0 else 0.0


def _mixed(old: float, new: float) -> float:
    return new if math.isnan(old) else (1 - _WEIGHT) * old + _WEIGHT * new


def between(low: float, high: float, text: Callable[[float], str]) -> str:
    """Return a range in words, or one number if both ends have the same text."""
    first, last = text(low), text(high)
    return first if first == last else f"{first} to {last}"


def count(number: float) -> str:
    """Return a number as text, rounded to two digits."""
    digits = max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 0
    return f"{round(number, -digits):,.0f}"
