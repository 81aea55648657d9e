"""KL method: the largest and the smallest mean over a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
    box: tuple[list[float], list[float]] | None = None
    """Between what the probabilities lie in the part of the ball that is looked at."""

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
    if ball.box is not None:
        return min(boxed_mean(ball, f)[0], highest_mean(replace(ball, box=None), f)[0]), None
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
    if ball.box is not None:
        tilted = [a * b for a, b in zip(boxed_mean(ball, g)[1], weights, strict=True)]
        return sum(t * r for t, r in zip(tilted, rho, strict=True)) / sum(tilted)
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


# -- parts of a ball ----------------------------------------------------------------------------------------------------


def boxed_mean(ball: Ball, f: list[float]) -> tuple[float, list[float]]:
    """No mean of ``f`` over the q of the ball in its box exceeds the first number; the second is roughly the best q.

    Each bound holds for any choice: ν + Σ max((f-ν)·most, (f-ν)·least), and Σ max((f-g)·most, (f-g)·least) with the bound
    of the whole ball for g.
    """
    assert ball.box is not None
    least, most = ball.box
    best, law = math.inf, [0.0] * len(f)
    for nu in f:
        value = nu + math.fsum(max((v - nu) * a, (v - nu) * b) for v, a, b in zip(f, least, most, strict=True))
        value += 1e-14 * (abs(nu) + sum(abs(v - nu) * b for v, b in zip(f, most, strict=True)))
        if value < best:
            best, law = value, [b if v > nu else a for v, a, b in zip(f, least, most, strict=True)]
            law[f.index(nu)] += 1.0 - sum(law)
    whole = replace(ball, box=None)
    q, g = _fixed_one_by_one(ball, f, least, most) if ball.visits and ball.radius < 700.0 else (law, f)
    value = math.fsum(max((v - u) * a, (v - u) * b) for v, u, a, b in zip(f, g, least, most, strict=True))
    value += highest_mean(whole, g)[0] + 1e-14 * sum(abs(v) + abs(u) for v, u in zip(f, g, strict=True))
    return (value, q) if value < best else (best, law)


def _fixed_one_by_one(
    ball: Ball, f: list[float], least: list[float], most: list[float]
) -> tuple[list[float], list[float]]:
    """About the best q, and values g for which the whole ball has its largest mean there.

    The law is that of the ball on what is free; the probability that leaves the box most is fixed at its end, and so on.
    """
    p = [count / ball.visits for count in ball.tallies]
    ends: dict[int, float] = {}
    q, g = p, f
    while len(ends) < len(f):
        free = [j for j in range(len(f)) if j not in ends]
        share, mass = sum(p[j] for j in free), 1.0 - sum(ends.values())
        if not share > 0.0 or not mass > 0.0 or any(p[j] > 0.0 and not end > 0.0 for j, end in ends.items()):
            break
        room = ball.radius - sum(p[j] * math.log(p[j] / end) for j, end in ends.items() if p[j] > 0.0)
        radius, top = room / share - math.log(share / mass), max(f[j] for j in free)
        seen = [j for j in free if p[j] > 0.0]
        depth = max(top - f[j] for j in seen)
        if not radius > 0.0 or not depth > 0.0:
            break
        w = _good_w([p[j] / share for j in seen], [(top - f[j]) / depth for j in seen], radius)
        nu = top + depth * w
        if any(nu <= f[j] for j in seen):
            break
        lam = math.exp((sum(p[j] * math.log(nu - f[j]) for j in seen) - room) / share)
        q = [ends[j] if j in ends else p[j] * lam / (nu - f[j]) if p[j] > 0.0 else 0.0 for j in range(len(f))]
        q[next(j for j in free if f[j] == top)] += max(0.0, 1.0 - sum(q))
        g = [nu - (p[j] * lam / ends[j] if p[j] > 0.0 else 0.0) if j in ends else f[j] for j in range(len(f))]
        outside = {j: max(q[j] - most[j], least[j] - q[j]) for j in free}
        worst = max(outside, key=lambda j: outside[j])
        if not outside[worst] > 1e-12:
            break
        ends[worst] = most[worst] if q[worst] > most[worst] else least[worst]
    return q, g


def holds_none(ball: Ball, least: list[float], most: list[float]) -> bool:
    """Whether certainly no q of the ball lies in the box: for some λ, Σ p log(p/q) + λ(Σ q - 1) is never so small there."""
    if not ball.visits:
        return False
    p = [count / ball.visits for count in ball.tallies]
    for i in range(4001):
        lam = 1e-6 * 1e12 ** (i / 4000)
        q = [min(max(share / lam, a), b) for share, a, b in zip(p, least, most, strict=True)]
        logs = [
            share * math.log(share / r) if r > 0.0 else math.inf for share, r in zip(p, q, strict=True) if share > 0.0
        ]
        value = sum(logs) + lam * (sum(q) - 1.0)
        if value - 1e-12 * (1.0 + sum(map(abs, logs)) + lam * (sum(q) + 1.0)) > ball.radius:
            return True
    return False
