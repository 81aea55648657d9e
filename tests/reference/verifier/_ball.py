"""KL method: the largest and the smallest mean over a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from reference.verifier._intervals import Interval, below, down, up

# The best w can be as small as the values are far apart; below this it changes nothing that doubles can tell.
_SMALLEST_W = 1e-150


@dataclass(frozen=True)
class Ball:
    """A row of the kernel: its possible outcomes, how often each was seen, and the radius of its ball, rounded up.

    ``weights`` are bounds on what each outcome pays, as e^{βr}, for each step; empty where all are 1.
    """

    successors: list[int]
    tallies: list[int]
    radius: float
    weights: list[list[Interval]]

    @cached_property
    def visits(self) -> int:
        return sum(self.tallies)

    @cached_property
    def seen(self) -> list[int]:
        return [i for i, count in enumerate(self.tallies) if count]

    @cached_property
    def shares(self) -> list[float]:
        return [self.tallies[i] / self.visits for i in self.seen]

    def weight(self, h: int, side: int) -> list[float]:
        """e^{βr} of each outcome at (real) step ``h``, its largest (``side`` 1) or smallest value."""
        if not self.weights:
            return [1.0] * len(self.successors)
        table = self.weights[h if len(self.weights) > 1 else 0]
        return [e.high if side > 0 else e.low for e in table]

    def tally_of(self, y: int) -> int:
        return sum(count for z, count in zip(self.successors, self.tallies, strict=True) if z == y)


def _good_w(shares: list[float], depths: list[float], x: float) -> float:
    """Roughly the best w ≥ 0 for depths in [0, 1]: the root of F(w) = x by Newton's method on logarithms.

    F(w) = Σ p log1p(d/w) + log Σ p / (1 + d/w) decreases; 0 if it never exceeds x. Any answer is safe.
    """
    mean = sum(p * d for p, d in zip(shares, depths, strict=True))
    variance = sum(p * (d - mean) ** 2 for p, d in zip(shares, depths, strict=True))
    if not variance > 0.0:
        variance = mean * mean
    w = max(math.sqrt(variance / (2.0 * x)), 1e-3)
    low, high = _SMALLEST_W, 1e30
    if all(depths):
        logs = sum(p * math.log(d) for p, d in zip(shares, depths, strict=True))
        if logs + math.log(sum(p / d for p, d in zip(shares, depths, strict=True))) <= x:
            return 0.0
    for _ in range(200):
        logs = loss = rest = square = 0.0
        for p, d in zip(shares, depths, strict=True):
            ratio = d / w
            remainder = 1.0 / (1.0 + ratio)
            part = ratio * remainder
            logs += p * math.log1p(ratio)
            loss, rest, square = loss + p * part, rest + p * remainder, square + p * part * part
        value = logs + (math.log1p(-loss) if loss < 0.5 else math.log(rest))
        if value > x:
            low = w
        else:
            high = w
        if abs(value - x) <= 1e-13 * x:
            break
        slope = (loss * loss - square) / rest
        if value > 0.0 and slope < 0.0:
            shift = -math.log(value / x) * value / slope
            step = w * math.exp(max(min(shift, 20.0), -20.0))
        else:
            step = 0.0
        if not low < step < high:
            step = math.sqrt(low * high)
        if abs(step - w) <= 1e-12 * w:
            break
        w = step
    return w


def highest_mean(ball: Ball, f: list[float]) -> tuple[float, float | None]:
    """No mean of ``f`` over the ball exceeds the first number. The second is the w behind it, in units of the largest depth.

    None: the bound is max f.
    """
    top = max(f)
    if not ball.visits or len(f) == 1:
        return top, None
    depths = [max(0.0, down(top - f[i])) for i in ball.seen]
    depth = max(depths)
    if not depth > 0.0:
        return top, None
    # In units of the largest depth; each rounded down, which only lowers the gain.
    depths = [max(0.0, down(d / depth)) if d < depth else 1.0 for d in depths]
    w = _good_w(ball.shares, depths, ball.radius)
    counts = [ball.tallies[i] for i in ball.seen]
    # Nonnegative terms, added exactly: division 1, logarithm 8, product 1 half unit of error, and a few.
    error = 14 * 2.0**-53
    if w > 0.0:
        mean = (
            math.fsum(c * math.log1p(d / w) for c, d in zip(counts, depths, strict=True)) / ball.visits * (1.0 - error)
        )
        gain = down(w * below(math.expm1(down(mean - ball.radius))))
    else:
        mean = math.fsum(c * -math.log(d) for c, d in zip(counts, depths, strict=True)) / ball.visits * (1.0 + error)
        gain = down(below(math.exp(-up(mean + ball.radius))))
    gain = down(depth * gain)
    return (min(top, up(top - gain)) if gain > 0.0 else top), w


def extreme_mean(ball: Ball, f: list[float], side: int) -> float:
    """A number above (``side`` 1) or below (``side`` -1) every mean of ``f`` over the ball."""
    return side * highest_mean(ball, [side * value for value in f])[0]


def tilted_mean(ball: Ball, g: list[float], rho: list[float], weights: list[float]) -> float:
    """Σ q w ρ / Σ q w at the q of the ball with the largest mean of ``g``; approximate."""
    (_, w), top = highest_mean(ball, g), max(g)
    q = [0.0] * len(g)
    if w is not None:
        depths = [top - g[i] for i in ball.seen]
        depths = [d / max(depths) for d in depths]
        logs = sum(p * math.log(d + w) for p, d in zip(ball.shares, depths, strict=True)) - ball.radius
        for i, p, d in zip(ball.seen, ball.shares, depths, strict=True):
            q[i] = p / (d + w) * math.exp(logs)
    q[g.index(top)] += max(0.0, 1.0 - sum(q))
    tilted = [a * b for a, b in zip(q, weights, strict=True)]
    return sum(t * r for t, r in zip(tilted, rho, strict=True)) / sum(tilted)
