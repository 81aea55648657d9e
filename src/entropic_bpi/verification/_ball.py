"""KL method: the balls of many rows at once, their radii, and the largest and smallest means over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from entropic_bpi.verification._intervals import Interval, below, doubles, down, exact, up, where

# The best w can be as small as the values are far apart; below this it changes nothing that doubles can tell.
_SMALLEST_W, _LARGEST_W = 1e-150, 1e30
_CLOSE = 1e-6  # relative distance from the root at which one more step of Newton's method is the last
_MOST_STEPS = 200
_AT_ONCE = 2**14  # outcomes that are worked on together: few enough for the caches of a processor
_ANYTHING = np.array([0.0, 1.0]).reshape(2, 1, 1)  # of a probability

# -- radii ------------------------------------------------------------------------------------------------------------


# The coefficients of Stirling's series, and a share of the next one, which is what remains.
_STIRLING = [Interval.of(Fraction(*term)) for term in ((1, 1188), (-1, 1680), (1, 1260), (-1, 360), (1, 12))]
_REMAINDER = Interval(0.0, 1.0) * Interval.of(Fraction(-691, 360360))


def stirling_error(x: Interval) -> Interval:
    """Return c(x) = lnΓ(x) - (x - ½) ln x + x - ½ ln 2π, by its asymptotic series, whose partial sums enclose it.

    Small x are first increased by c(x) = c(x+1) + (x + ½) log1p(1/x) - 1.
    """
    moved = Interval.of(np.zeros_like(x.low))
    while np.any(small := x.low < 16.0):
        moved = where(small, moved + (x + 0.5) * (Interval.of(1.0) / x).log1p() - 1.0, moved)
        x = where(small, x + 1.0, x)
    inverse = Interval.of(1.0) / x
    square = inverse * inverse
    total = _REMAINDER
    for term in _STIRLING:
        total = total * square + term
    return moved + total * inverse


def _ascent(n: Interval, a: Interval) -> Interval:
    """Return log of a(a+1)···(a+n-1), less n log n - n; no term is of the size of n, so nothing cancels."""
    shifted = (n + a - 0.5) * (a / n).log1p()
    return shifted + (a - 0.5) * (n / a).log() + stirling_error(n + a) - stirling_error(a)


def row_sums(terms: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return sums over the outcomes of each row, of which there are ``sizes``, one row after another."""
    return np.add.reduceat(terms, np.cumsum(sizes) - sizes, axis=-1)


def mixture_radii(counts: np.ndarray, sizes: np.ndarray, k: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return R_mix of each row, rounded up: minus the log of the average of e^{-R_a} over four Dirichlet priors a.

    See "One event about transitions" on the page "The KL method". Of the k outcomes of a row ``sizes`` were seen, ``counts``
    times each, which are not 0. R_a = Σ N log(N/n) - log of the Dirichlet-multinomial likelihood; the n log n of both cancel
    exactly. If only ``most`` of the k outcomes are declared to exist, half of the weight goes to the prior ½ on each set of
    so many outcomes, with equal weights: a share Π (most - i)/(k - i) of the sets, i from 0 to the number of outcomes seen
    less 1, contains the outcomes seen.
    """

    def total(terms: Interval) -> Interval:
        rooms = [row_sums(abs(end), sizes) * (sizes * 2.0**-51) for end in (terms.low, terms.high)]
        return Interval(down(row_sums(terms.low, sizes) - rooms[0]), up(row_sums(terms.high, sizes) + rooms[1]))

    all_k, all_most = np.repeat(k, sizes), np.repeat(np.minimum(most, k), sizes)
    # Most files have few different counts, and each is computed once.
    (different, *parts), back = np.unique([counts, all_k, all_most], axis=1, return_inverse=True)
    seen = _ascent(Interval.of_integers(different), _priors(*parts)[1])[:, back.ravel()]
    (visits, *parts), back = np.unique([row_sums(counts, sizes), k, np.minimum(most, k)], axis=1, return_inverse=True)
    cells, a = _priors(*parts)
    radii = _ascent(Interval.of_integers(visits), cells * a)[:, back.ravel()] - total(seen)
    rank = np.arange(len(counts)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    share = (
        total((Interval.of_integers(all_most - rank) / Interval.of_integers(all_k - rank)).log())
        + Interval.of(0.5).log()
    )
    fewer, sets = most < k, np.arange(5)[:, None] == 4
    radii = radii - where(sets, share, Interval.of(np.where(fewer, 0.125, 0.25)).log())
    radii = where(sets & ~fewer, Interval.of(np.inf), radii)
    least = Interval.of(radii.low.min(axis=0))
    return (least - (least - radii).exp().sum().log()).high


def _priors(k: np.ndarray, most: np.ndarray) -> tuple[Interval, Interval]:
    """Return the number of outcomes and the a of each prior, (5, N); that on sets of outcomes is the last one."""
    cells, half, one = Interval.of_integers(k), Interval.of(np.full(len(k), 0.5)), Interval.of(np.ones(len(k)))
    usual = [one / (cells * cells), one / cells, half, one, half]
    a = Interval(np.stack([part.low for part in usual]), np.stack([part.high for part in usual]))
    return where(np.arange(5)[:, None] == 4, Interval.of_integers(most), cells), a


def betting_radii(n: np.ndarray, log_union: float) -> np.ndarray:
    """Return x = (log(2/δ') + c₂(n)) / n of Proposition 6 (page "The KL method"), rounded up.

    The large terms of c₂(n) = log(√π Γ(n+1) / Γ(n+½)) cancel exactly.
    """
    visits = Interval.of_integers(n)
    ratio = visits * (Interval.of(1.0) / (visits * 2.0 + 1.0)).log1p() + (visits + 1.0).log() * 0.5
    ratio = ratio - 0.5 + stirling_error(visits + 1.0) - stirling_error(visits + 0.5)
    regret = ratio + Interval(exact(np.pi), exact(math.nextafter(np.pi, 4.0))).log() * 0.5
    return up(up(log_union + regret.high) / visits.low)


# -- rows with equally many outcomes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Balls:
    """Rows of the kernel with K outcomes each, one row in each column.

    Rows with fewer outcomes are filled up: their first outcome is repeated without visits, which changes no bound.

    Attributes
    ----------
    successors, tallies : array (K, N)
        Where each outcome leads, and how often it was seen.
    sizes, radius : array (N,)
        The number of outcomes that a row has before it is filled up, and the radius of its ball, rounded up.
    low, high : array (K, N)
        Bounds on e^{βr} of each outcome.
    box : array (2, K, N), optional
        Bounds on the probability of each outcome, if only a part of the balls is considered.
    """

    successors: np.ndarray
    tallies: np.ndarray
    sizes: np.ndarray
    radius: np.ndarray
    low: np.ndarray
    high: np.ndarray
    box: np.ndarray | None = None

    @cached_property
    def visits(self) -> np.ndarray:
        return self.tallies.sum(axis=0)

    @cached_property
    def shares(self) -> np.ndarray:
        return exact(self.tallies) / np.maximum(self.visits, 1.0)

    @cached_property
    def is_cut(self) -> np.ndarray:
        """Whether only a part of each row's ball is considered."""
        return np.zeros(len(self.sizes), dtype=bool) if self.box is None else (self.box != _ANYTHING).any(axis=(0, 1))

    def take(self, columns: np.ndarray) -> Balls:
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return Balls(**{name: part.take(columns, axis=-1) for name, part in parts.items() if part is not None})


class Rows:
    """Rows with any numbers of outcomes, sorted into :class:`Balls` by rounded-up sizes.

    Parameters
    ----------
    sizes : int array
        Outcomes of each row.
    successors, tallies : array
        Where each outcome leads and how often it was seen, row after row.
    radius : array
        Of each row.
    """

    def __init__(self, sizes: np.ndarray, successors: np.ndarray, tallies: np.ndarray, radius: np.ndarray) -> None:
        steps = np.unique([size for power in range(63) for size in (2**power, 3 * 2**power // 2)])
        kind = np.searchsorted(steps, sizes)
        begin = np.cumsum(sizes) - sizes
        self.positions, self.balls = [], []
        self.kind, self.column = np.empty(len(sizes), dtype=np.intp), np.empty(len(sizes), dtype=np.intp)
        for number, size in enumerate(np.unique(kind)):
            mine = np.flatnonzero(kind == size)
            self.kind[mine], self.column[mine] = number, np.arange(len(mine))
            outcome = np.arange(min(steps[size], sizes[mine].max()))[:, None]
            filled, ones = outcome < sizes[mine], exact(np.ones((len(outcome), len(mine))))
            at = begin[mine] + np.where(filled, outcome, 0)
            seen = np.where(filled, tallies[at], 0).astype(float)
            self.positions.append(at)
            self.balls.append(Balls(successors[at], seen, sizes[mine], radius[mine], ones, ones))

    def weigh(self, weights: Interval) -> None:
        """Set the bounds on e^{βr} of each outcome."""
        self.balls = [
            replace(ball, low=weights.low[at], high=weights.high[at])
            for at, ball in zip(self.positions, self.balls, strict=True)
        ]

    def one(self, row: int) -> Balls:
        """Return a single row that is not filled up."""
        ball = self.balls[self.kind[row]].take(self.column[row : row + 1])
        names = ("successors", "tallies", "low", "high")
        return replace(ball, **{name: getattr(ball, name)[: ball.sizes[0]] for name in names})

    def restrict(self, rows: np.ndarray, box: np.ndarray) -> None:
        """Set bounds on the probabilities of the outcomes, (2, outcomes, rows), of rows with the same outcomes."""
        cut = (box != _ANYTHING).any(axis=(0, 1))
        kind, columns = self.kind[rows[0]], self.column[rows[cut]]
        ball = self.balls[kind]
        if ball.box is None:
            ball = self.balls[kind] = replace(ball, box=np.tile(_ANYTHING, (1, *ball.tallies.shape)))
        assert ball.box is not None
        ball.box[:, :, columns] = 0.0  # what a row is filled up with does not happen
        ball.box[:, : box.shape[1], columns] = box[:, :, cut]

    def batches(self, *rows: np.ndarray) -> Iterator[tuple[np.ndarray, list[Balls]]]:
        """Yield a few rows of each list at a time, their positions and their balls; all lists are equally long."""
        kinds = np.zeros(len(rows[0]), dtype=np.intp)
        for some in rows:
            kinds = kinds * len(self.balls) + self.kind[some]
        for kind in np.unique(kinds):
            mine = np.flatnonzero(kinds == kind)
            size = int(np.prod([len(self.balls[self.kind[some[mine[0]]]].tallies) for some in rows]))
            at_once = max(1, _AT_ONCE // size)
            for first in range(0, len(mine), at_once):
                at = mine[first : first + at_once]
                yield at, [self.balls[self.kind[some[at[0]]]].take(self.column[some[at]]) for some in rows]

    def over(self, function: Callable[..., np.ndarray], *rows: np.ndarray) -> np.ndarray:
        """Return ``function(positions, balls, …)`` of the rows of one or several lists, a number for each position."""
        found = exact(np.zeros(len(rows[0])))
        for at, balls in self.batches(*rows):
            found[at] = function(at, *balls)
        return found

    def extreme_means(self, values: np.ndarray, side: int) -> np.ndarray:
        """Return bounds on the means of ``values``, one for each outcome, over the balls of all rows."""

        def mean(at: np.ndarray, ball: Balls) -> np.ndarray:
            return extreme_mean(ball, values[self.positions[self.kind[at[0]]][:, self.column[at]]], side)

        return self.over(mean, np.arange(len(self.kind)))


# -- means ------------------------------------------------------------------------------------------------------------


def good_w(shares: np.ndarray, depths: np.ndarray, x: np.ndarray, guess: np.ndarray | None = None) -> np.ndarray:
    """Return about the best w ≥ 0 for depths in [0, 1]: the root of F(w) = x by Newton's method on logarithms.

    F(w) = Σ p log1p(d/w) + log Σ p / (1 + d/w) decreases; w is 0 if F never exceeds x. Any w gives a valid bound. A
    ``guess`` that is not positive is ignored.
    """
    mean = (shares * depths).sum(axis=0)
    variance = (shares * (depths - mean) ** 2).sum(axis=0)
    spread = np.sqrt(np.where(variance > 0.0, variance, mean * mean) / (2.0 * x))
    w = np.maximum(np.maximum(spread - mean, 0.1 * spread), 1e-3)
    if guess is not None:
        w = np.where(guess > 0.0, guess, w)
    active = np.flatnonzero((mean > 0.0) & ~_never_exceeds(shares, depths, x))
    result = np.zeros(len(x))
    if len(active) < len(x):
        shares, depths, x, w = shares[:, active], depths[:, active], x[active], w[active]
    low, high = np.full(len(x), _SMALLEST_W), np.full(len(x), _LARGEST_W)
    for _ in range(_MOST_STEPS):
        value, slope = _growth(shares, depths, w)
        large = value > x
        low, high = np.where(large, w, low), np.where(large, high, w)
        step = w * np.exp(np.minimum(np.maximum(-np.log(value / x) * value / slope, -20.0), 20.0))
        close = np.abs(value - x) <= _CLOSE * x
        inside = (low < step) & (step < high)
        w = np.where(inside, step, np.where(close, w, np.sqrt(low * high)))
        going = ~close & (high > low * (1.0 + 1e-12))
        result[active] = w
        if not going.any():
            break
        if not going.all():
            active, shares, depths = active[going], shares[:, going], depths[:, going]
            x, w, low, high = x[going], w[going], low[going], high[going]
    return result


def _never_exceeds(shares: np.ndarray, depths: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return whether F is at most x for all w > 0, which needs that nothing was seen at the top."""
    never = np.zeros(len(x), dtype=bool)
    some = np.flatnonzero(((depths > 0.0) | (shares == 0.0)).all(axis=0))
    if some.size:
        p = shares[:, some]
        d = np.where(p > 0.0, depths[:, some], 1.0)
        never[some] = (p * np.log(d)).sum(axis=0) + np.log((p / d).sum(axis=0)) <= x[some]
    return never


def _growth(shares: np.ndarray, depths: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return F(w) and w F'(w)."""
    ratio = depths / w
    remainder = 1.0 / (1.0 + ratio)
    part = ratio * remainder
    loss, rest = (shares * part).sum(axis=0), (shares * remainder).sum(axis=0)
    square = (shares * part * part).sum(axis=0)
    logs = (shares * np.log1p(ratio)).sum(axis=0)
    value = logs + np.where(loss < 0.5, np.log1p(-loss), np.log(rest))
    return value, (loss * loss - square) / rest


def highest_mean(ball: Balls, f: np.ndarray, guess: np.ndarray | None = None) -> np.ndarray:
    """Return numbers that no mean of ``f`` over the balls exceeds; ``guess`` is as for :func:`good_w`.

    They are dual bounds, see "The inner problem" on the page "The KL method". If nothing was seen below the largest value,
    that value is the bound, whatever w is.
    """
    top, depth, depths = _depths(ball, f)
    w = good_w(doubles(ball.shares), doubles(depths), doubles(ball.radius), guess)
    # Terms of one sign, with room for their rounding and that of the sum. In half units: 16 for the logarithm, 1 for each of
    # its argument, p, the product and each addition, those of the visits included, and a few.
    error = (2 * len(f) + 30) * 2.0**-53
    mean = (ball.shares * np.log1p(depths / np.where(w > 0.0, w, 1.0))).sum(axis=0) * (1.0 - error)
    gain = down(w * below(np.expm1(down(mean - ball.radius))))
    if not w.all():
        limit = np.flatnonzero(w == 0.0)
        p = ball.shares[:, limit]
        logs = np.log(exact(np.where(ball.tallies[:, limit] > 0.0, depths[:, limit], 1.0)))
        mean = -(p * logs).sum(axis=0) * (1.0 + error)
        gain[limit] = down(below(np.exp(-up(mean + ball.radius[limit]))))
    gain = down(depth * gain)
    # A gain that is NaN counts as 0.
    bound = np.where(gain > 0.0, np.minimum(top, up(top - gain)), top)
    cut = np.flatnonzero(ball.is_cut)
    if cut.size:
        bound[cut] = np.fmin(bound[cut], _boxed_mean(ball.take(cut), f[:, cut])[0])
    return bound


def _depths(ball: Balls, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the largest value, the largest depth below it that was seen, and all depths that were seen in units of it.

    Depths are rounded down, which only lowers the gain.
    """
    top = f.max(axis=0)
    depths = exact(np.where(ball.tallies > 0.0, np.maximum(0.0, down(top - f)), 0.0))
    depth = depths.max(axis=0)
    unit = np.where(depth > 0.0, depth, 1.0)
    return top, depth, exact(np.where(depths < depth, np.maximum(0.0, down(depths / unit)), depth > 0.0))


def extreme_mean(ball: Balls, f: np.ndarray, side: int) -> np.ndarray:
    """Return numbers above (``side`` 1) or below (``side`` -1) every mean of ``f`` over the balls."""
    return side * highest_mean(ball, side * f)


def tilted_mean(
    ball: Balls, g: np.ndarray, rho: np.ndarray, weights: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return about Σ q v ρ / Σ q v for weights v at the q of the ball with the largest mean of ``g``, and its w."""
    depths = doubles(_depths(ball, g)[2])
    shares, radius, rho, weights = map(doubles, (ball.shares, ball.radius, rho, weights))
    w = good_w(shares, depths, radius, guess)
    # If everything that was seen is at the top, w is 0, and every scale of the shares has the largest mean.
    distance = np.where(shares > 0.0, depths + np.where(depths.any(axis=0), w, 1.0), 1.0)
    q = shares / distance * np.exp((shares * np.log(distance)).sum(axis=0) - radius)
    first = np.argmax(g, axis=0)
    q[first, np.arange(len(first))] += np.maximum(0.0, 1.0 - q.sum(axis=0))
    cut = np.flatnonzero(ball.is_cut)
    if cut.size:
        q[:, cut] = _boxed_mean(ball.take(cut), g[:, cut])[1]
    tilted = q * weights
    return (tilted * rho).sum(axis=0) / tilted.sum(axis=0), w


# -- parts of balls ---------------------------------------------------------------------------------------------------


_ROOM = 1e-14  # relative, for the rounding of a few sums and products


def _boxed_mean(ball: Balls, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers that no mean of ``f`` over q in a ball with least ≤ q ≤ most exceeds, and about the best q.

    They are the smaller ones of two bounds ("Ball and box" on the page "Boxes"). Of the box alone:
    ν + Σ max((f-ν)·most, (f-ν)·least) for any ν. Of both: Σ max((f-g)·most, (f-g)·least) and the bound of the ball for any g
    (weak duality).
    """
    assert ball.box is not None
    least, most = ball.box
    best, law = np.full(f.shape[1], np.inf), np.zeros(f.shape)
    for i, nu in enumerate(f):
        above = f - nu
        raised = np.where(above > 0.0, most, least)
        # Rounding may put ``least`` above ``most``. The larger product keeps the bound valid then.
        value = nu + np.maximum(above * most, above * least).sum(axis=0)
        value = value + _ROOM * (abs(nu) + (abs(above) * most).sum(axis=0))
        law = np.where(value < best, raised, law)
        law[i] += np.where(value < best, 1.0 - law.sum(axis=0), 0.0)
        best = np.fmin(best, value)
    g, q = _shifted(ball, f, least, most)
    value = np.maximum((f - g) * most, (f - g) * least).sum(axis=0) + _ROOM * (abs(f) + abs(g)).sum(axis=0)
    value = value + highest_mean(replace(ball, box=None), g)
    return np.fmin(best, value), np.where(value < best, q, law)


def _shifted(ball: Balls, f: np.ndarray, least: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return g whose largest mean over the ball is attained at about the best q of ball and box for ``f``, and that q.

    One probability after another that leaves the box is fixed at its end, and the optimum of the others is computed again:
    q = pλ/(ν-f), with ν from the conditional law and λ from what is left of the radius.
    """
    p, columns = ball.shares, np.arange(f.shape[1])
    fixed, end, law = np.zeros(f.shape, dtype=bool), np.zeros(f.shape), np.zeros(f.shape)
    nu, lam = np.full((2, f.shape[1]), np.inf)  # the last ones found, for when the ends leave no radius or one value
    for _ in range(len(f)):
        mass = 1.0 - np.where(fixed, end, 0.0).sum(axis=0)
        used = np.where(fixed & (p > 0.0), p * np.log(np.where(fixed & (p > 0.0), p / end, 1.0)), 0.0).sum(axis=0)
        free = np.where(fixed, 0.0, p)
        share, room = free.sum(axis=0), ball.radius - used
        top = np.where(fixed, -np.inf, f).max(axis=0)
        below = np.where(fixed, 0.0, top - f)
        unit = np.where(free > 0.0, below, 0.0).max(axis=0)
        radius = room / share - np.log(share / mass)
        sound = (radius > 0.0) & (radius < 700.0) & (share > 0.0) & (unit > 0.0)
        unit = np.where(unit > 0.0, unit, 1.0)
        w = good_w(free / np.where(sound, share, 1.0), below / unit, np.where(sound, radius, 1.0))
        nu = np.where(sound, top + unit * w, nu)
        apart = np.where(fixed, 1.0, nu - f)
        logs = np.where(free > 0.0, free * np.log(np.where(free > 0.0, apart, 1.0)), 0.0).sum(axis=0)
        lam = np.where(sound, np.exp((logs - room) / share), lam)
        q = np.where(fixed, end, np.where(free > 0.0, free * lam / apart, 0.0))
        first = np.where(fixed, -np.inf, f).argmax(axis=0)
        q[first, columns] += np.maximum(0.0, 1.0 - q.sum(axis=0))
        law = np.where(sound, q, law)
        outside = np.where(fixed | ~sound, 0.0, np.maximum(q - most, least - q))
        worst = outside.argmax(axis=0)
        new = outside[worst, columns] > 1e-12
        if not new.any():
            break
        fixed[worst[new], columns[new]] = True
        end = np.where(fixed & (end == 0.0), np.where(q > most, most, least), end)
    g = np.where(fixed, nu - np.where(p > 0.0, p * lam / np.where(fixed, end, 1.0), 0.0), f)
    return np.where(np.isfinite(g), g, f), law


def intervals_of(ball: Balls) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds on each probability of a single row."""
    copies, units = ball.take(np.zeros(len(ball.tallies), dtype=np.intp)), np.eye(len(ball.tallies))
    low, high = (extreme_mean(copies, units, side) for side in (-1, 1))
    return np.clip(down(low), 0.0, 1.0), np.clip(up(high), 0.0, 1.0)


def closed(table: np.ndarray) -> np.ndarray:
    """Return bounds on the probabilities of all events of a law, sets of its labels as bits, ``(…, 2^labels, 2)``.

    The given bounds are improved by the fact that probabilities of disjoint events add up.
    """
    table, events = table.copy(), table.shape[-2]
    table[..., 0, :], table[..., -1, :] = 0.0, 1.0
    low, high = np.moveaxis(table, (-1, -2), (0, 1))
    for _ in range(3):
        for a, b in product(range(1, events), repeat=2):
            if a & b == 0:
                low[a | b] = np.maximum(low[a | b], low[a] + low[b] - _ROOM)
                high[a | b] = np.minimum(high[a | b], high[a] + high[b] + _ROOM)
                low[a] = np.maximum(low[a], low[a | b] - high[b] - _ROOM)
                high[a] = np.minimum(high[a], high[a | b] - low[b] + _ROOM)
    return table


def is_crossed(least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return whether the ends of an interval of a box are certainly not in order, so that no law lies in the box."""
    return np.any(least > most + 1e-9, axis=0)


def holds_none(ball: Balls, least: np.ndarray, most: np.ndarray) -> bool:
    """Return whether certainly no law of the ball of a single row lies in a box ("Empty leaves" on the page "Boxes").

    This is so if for some λ ≥ 0 the smallest of Σ p log(p/q) + λ(Σ q - 1) over the box, which is below
    KL(p, q) for every law q there, exceeds the radius.
    """
    if is_crossed(least, most) or least.sum() > 1.0 + 1e-9 or most.sum() < 1.0 - 1e-9:
        return True
    p, lam = ball.shares, np.geomspace(1e-6, 1e6, 4001)
    q = np.clip(p / lam, least[:, None], most[:, None])
    logs = np.where(p > 0.0, p * np.log(np.where(p > 0.0, p / q, 1.0)), 0.0)
    room = 100 * _ROOM * (1.0 + abs(logs).sum(axis=0) + lam * (q.sum(axis=0) + 1.0))
    return bool(np.any(logs.sum(axis=0) + lam * (q.sum(axis=0) - 1.0) - room > ball.radius[0]))
