"""KL method: bounds on the ratio of the optimum to the policy at one step, for many states at once.

First for each state by itself, from absolute bounds of the next step (Proposition 2 on the page "The KL method"). Then from
relative values of pairs of states (Proposition 3): for states x and y that can both be occupied, d(x, y) ≥ Z^π(x)/Z^π(y),
and r(x, y) ≥ Z*(x)/Z^π(y) for β > 0, ≥ Z^π(x)/Z*(y) for β < 0, all from one lemma, :meth:`PairCertificate.compare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from entropic_bpi.verification._ball import Balls, extreme_mean, highest_mean, tilted_mean
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import Interval, doubles, down, exact, toward, up

if TYPE_CHECKING:
    from entropic_bpi.verification._kl import KLRecursion

Pairs = tuple[np.ndarray, np.ndarray]  # numbers of occupied states, and actions

_MAX_SHARED = 3  # successors of both actions; every corner of their values is tried
_UNITS = 4e-16  # about two units in the last place
_MOST_STEPS = 60
CORNERS = 3  # so many of the base's successors are tried at both ends
KNOWN = 1e-9  # a relative value known to this precision is not tried at both ends
_TINY = 1e-300  # more than what sums of subnormal numbers lose
_SMALLEST_SPARE = 1e-12  # shares that differ by less are the same
_MOST_PAIRS = 4_000_000  # of outcomes of the policy's rows, at all steps together; the library stops at half of that


class Sheet:
    """One step of the recursion. Arrays (parts, states and one more); the last entry is "some state not seen yet".

    For β > 0 (``sign`` 1): Z* ≤ ``optimum``, Z^π ≥ ``policy``; for β < 0 the other way round. z ≤ ``top`` where z is
    Z^π for β > 0 and Z* for β < 0. ρ = ``ratio`` ≥ Z*/Z^π, or its inverse. ``optimistic`` has the bounds of all actions of
    reachable states.
    """

    optimistic: np.ndarray

    def __init__(self, n_states: int, sign: int, parts: int = 1) -> None:
        self.sign = sign
        self.optimum, self.policy, self.top, self.ratio = exact(np.ones((4, parts, n_states + 1)))

    def close(self, states: np.ndarray) -> None:
        """Fill the last entry with the worst bound of all ``states``; reject bounds that are not positive numbers."""
        best, worst = (np.max, np.min) if self.sign > 0 else (np.min, np.max)
        for values, end in ((self.optimum, best), (self.policy, worst), (self.top, np.max), (self.ratio, np.max)):
            if not np.all((values[:, states] > 0.0) & (values[:, states] < np.inf)):
                raise Rejected("the bounds cannot be computed: they leave the range of floats")
            values[:, -1] = end(values[:, states], axis=1)

    def flat(self) -> tuple[np.ndarray, ...]:
        """Return bottom, top, cap and ρ of the states of all parts: z lies between the first two, ρz below the third."""
        bottom, cap = (self.policy, self.optimum) if self.sign > 0 else (self.optimum, self.policy)
        return bottom.ravel(), self.top.ravel(), cap.ravel(), self.ratio.ravel()


def same_action(ball: Balls, rho: np.ndarray, bottom: np.ndarray, top: np.ndarray, limit: Interval) -> np.ndarray:
    """Return the bound if the optimal action is the policy's: the largest average of the next ρ under weights q e^{βr} z.

    e^{βr} z lies within ``limit``, and z between ``bottom`` and ``top``, which like ``rho`` have an entry for each outcome.
    The bound is the smallest λ for which no q makes Σ q w (ρ - λ) positive, w at its top where ρ > λ and at its bottom
    elsewhere. That excess is convex and decreasing in λ. Newton's method (Dinkelbach's) climbs to its root from 1; a λ is
    returned only if its own excess, rounded up, is not positive. Otherwise it is raised, up to the largest ρ, which is
    always a valid bound.
    """
    tops, bottoms = np.minimum(ball.high * top, limit.high), np.maximum(ball.low * bottom, limit.low)
    return largest_average(ball, rho, bottoms, tops, np.ones(rho.shape[1]))


def largest_average(
    ball: Balls, rho: np.ndarray, bottoms: np.ndarray, tops: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Return the largest average of ``rho`` under weights q w, w from ``bottoms`` to ``tops``, if it is above ``start``.

    It is the smallest λ for which no q makes Σ q w (ρ - λ) positive, w at its top where ρ > λ and at its bottom elsewhere.
    """
    largest = rho.max(axis=0)
    # Only quotients of weights matter: in units of the largest they cannot overflow.
    unit = tops.max(axis=0)
    high, low = up(up(tops) / unit), down(down(bottoms) / unit)

    def excess(at: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = np.where(rho[:, at] > level, high[:, at], low[:, at])
        return up(up(rho[:, at] - level) * weights), weights

    known = (ball.visits > 0.0) | ball.is_cut
    level, w = exact(np.where(known, start, largest)), np.zeros(len(largest))
    uncertain = at = np.flatnonzero((largest > start) & known)
    for _ in range(_MOST_STEPS):
        part = ball.take(at)
        value, weights = excess(at, level[at])
        higher, w[at] = tilted_mean(part, value, rho[:, at], weights, w[at])
        rising = higher > level[at] * (1.0 + _UNITS)
        at = at[rising]
        if not at.size:
            break
        level[at] = np.minimum(exact(higher[rising]), largest[at])
    room, at = 1e-13, uncertain
    level[at] = np.minimum(exact(doubles(level[at]) * (1.0 + _UNITS)), largest[at])
    while at.size:
        proved = highest_mean(ball.take(at), excess(at, level[at])[0], w[at]) <= 0.0
        at = at[~proved & (level[at] < largest[at])]
        tried = doubles(level[at])
        tried = tried * (1.0 + _UNITS) + room * (abs(tried - 1.0) + _UNITS)
        level[at] = np.minimum(exact(tried), largest[at])
        room *= 8.0
    return np.where(largest > start, level, largest)


def other_action(
    above: Balls, below: Balls, gains: np.ndarray, later: Sheet, limit: Interval, known: np.ndarray
) -> np.ndarray:
    """Return the bound if the optimal action is not the policy's: the largest ratio of the two values, for one z.

    ``above`` belongs to the action in the numerator, ``below`` to the other, and ``gains`` is the ratio of their e^{βr}. Up
    to three successors that both were seen to lead to share their z, which is tried at both ends; for the others z is taken
    at its worst on each side, with e^{βr}z in ``limit``. Where z is shared, the limit only caps ρz, at one number for all
    slots of the state, so that there is one kink. The bound is at most ``known``.
    """
    shared = _shared(above, below)
    many, worst = (shared >= 0).sum(axis=0), exact(np.zeros(len(known)))
    for size in np.unique(many).tolist():
        at = np.flatnonzero(many == size)
        worst[at] = worst_corner(above.take(at), below.take(at), shared[:size, at], later.flat(), limit)
    return np.minimum(known, up(gains * worst))


def worst_corner(
    above: Balls, below: Balls, shared: np.ndarray, later: tuple[np.ndarray, ...], limit: Interval
) -> np.ndarray:
    """Return the largest ratio of two means over all corners of the ``shared`` successors, an array (shared, N).

    ``later`` has what :meth:`Sheet.flat` returns.
    """
    (bottom, top, caps, ratio), to = later, above.successors
    free = np.minimum(up(above.high * np.minimum(caps[to], up(ratio[to] * top[to]))), limit.high)
    free_below = np.maximum(down(below.low * bottom[below.successors]), limit.low)
    ends = []
    for y in shared:
        mine, rho = to == y, ratio[y]
        weakest = np.where(mine, above.high, exact(np.inf)).min(axis=0)
        cap = np.minimum(caps[y], up(limit.high / weakest))
        # Where the cap starts to bind, between a float below and one above; at the bottom both are equal.
        kink = Interval.of(cap) / rho
        least, most = (np.maximum(bottom[y], np.minimum(top[y], end)) for end in (kink.low, kink.high))
        raised = np.minimum(cap, up(rho * most)), least
        lowered = np.minimum(cap, up(rho * bottom[y])), bottom[y]
        ends.append((mine, below.successors == y, (lowered, raised)))
    worst = exact(np.zeros(to.shape[1]))
    for corner in product((0, 1), repeat=len(ends)):
        numerator, denominator = free, free_below
        for (mine, theirs, values), end in zip(ends, corner, strict=True):
            numerator = np.where(mine, up(above.high * values[end][0]), numerator)
            denominator = np.where(theirs, down(below.low * values[end][1]), denominator)
        most, least = extreme_mean(above, numerator, 1), extreme_mean(below, denominator, -1)
        worst = np.maximum(worst, np.where(least > 0.0, up(most / least), exact(np.inf)))  # no bound: it underflowed
    return worst


def tally_in(ball: Balls, states: np.ndarray) -> np.ndarray:
    """Return how often each row led to each of the states in its column of ``states``."""
    return np.where(states[:, None] == ball.successors, ball.tallies, 0.0).sum(axis=1)


def smallest_of_largest(score: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return in each column the state with the largest score, the lowest of ties."""
    return np.where(score == score.max(axis=0), states, np.iinfo(np.int64).max).min(axis=0)


def most_of(score: np.ndarray, states: np.ndarray, size: int) -> np.ndarray:
    """Return in each column up to ``size`` different states with the largest positive scores; -1 for none."""
    chosen = np.full((size, states.shape[1]), -1)
    for i in range(size):
        chosen[i] = np.where(score.max(axis=0) > 0.0, smallest_of_largest(score, states), -1)
        score = np.where(states == chosen[i], 0.0, score)
    return chosen


def _shared(above: Balls, below: Balls) -> np.ndarray:
    """Return up to three successors seen in both rows, by decreasing smaller share of visits; -1 for none."""
    theirs, mine = tally_in(above, below.successors), tally_in(below, below.successors)
    return most_of(np.minimum(theirs * below.visits, mine * above.visits), below.successors, _MAX_SHARED)


# -- pairs of states ---------------------------------------------------------------------------------------------------


class Relations(NamedTuple):
    """The d and the r of one step, for the states that are occupied there, and for "some state not seen yet".

    ``number`` is the index of each state in them. States that are not occupied share an index with infinite entries.
    """

    number: np.ndarray
    d: np.ndarray
    r: np.ndarray

    def box(self, states: np.ndarray, ref: np.ndarray) -> Pairs:
        """Return bounds on the policy's values of ``states``, in units of its value of ``ref``."""
        mine, at_ref = self.number[states], self.number[ref]
        low, high = down(1.0 / self.d[at_ref, mine]), self.d[mine, at_ref]
        return np.where(states == ref, exact(1.0), low), np.where(states == ref, exact(1.0), high)


class Side:
    """Rows of a comparison: their balls, and the ends of e^{βr} of their outcomes.

    Entries of a successor are at the first outcome that leads to it, which ``first`` marks; ``tally`` is how often a row led
    there.
    """

    def __init__(self, ball: Balls, gain: Interval) -> None:
        self.ball, self.to = ball, ball.successors
        self.low, self.high = down(gain.low * ball.low), up(gain.high * ball.high)
        earlier = np.tri(len(self.to), k=-1, dtype=bool)[:, :, None]
        self.first = ~((self.to[:, None] == self.to) & earlier).any(axis=1)
        self.tally = tally_in(ball, self.to)

    def weights(self, side: int) -> np.ndarray:
        return self.high if side > 0 else self.low

    def frequent(self) -> np.ndarray:
        """Return the most frequent successor of each row; the lowest of ties."""
        return smallest_of_largest(self.tally, self.to)

    def law(self, weights: np.ndarray, relations: Relations, ref: np.ndarray) -> np.ndarray:
        """Return shares of the successors, tilted by e^{βr} and by what follows, or NaN; any shares give a valid bound."""
        mine, at_ref = relations.number[self.to], relations.number[ref]
        d, weights = doubles(relations.d), doubles(weights)
        tilt = np.where(self.to == ref, 1.0, np.sqrt(d[mine, at_ref] / d[at_ref, mine]))
        once = np.arange(len(self.to))[:, None] < self.ball.sizes
        mass = weights * tilt * np.where(self.ball.visits > 0.0, self.ball.tallies, once)
        mass = np.where(self.first, np.where(self.to[:, None] == self.to, mass, 0.0).sum(axis=1), 0.0)
        total = mass.sum(axis=0)
        return np.where((total > 0.0) & (total < math.inf), mass / total, math.nan)


def _tried(base: Side, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the most frequent successors whose relative value is not known, the lowest of ties; -1 for none."""
    score = np.where(base.first & (high > low * (1.0 + KNOWN)), base.tally + 1.0, 0.0)
    return most_of(score, base.to, CORNERS)


def _moves(other: Side, base: Side, ref: np.ndarray, theirs: np.ndarray, mine: np.ndarray) -> list[np.ndarray]:
    """Return ways to move the other row's successors onto the base's, whose laws are given.

    They are shares κ(i, j) that add up to 1 over j, up to rounding.
    """
    same = (other.to[:, None] == base.to) & base.first
    stay = np.where(same.any(axis=1)[:, None], same, (base.to == ref) & base.first).astype(float)
    of_others = np.where(same, theirs[:, None], 0.0).max(axis=0)  # at the base's successors
    left = np.maximum(0.0, mine - of_others)
    spare = left.sum(axis=0)
    # The share of a state is at its first outcome, and all outcomes that lead to it are moved alike.
    share = np.where(other.to[:, None] == other.to, theirs, 0.0).sum(axis=1)
    in_base = np.where(same, mine, 0.0).sum(axis=1)
    kept = np.where(share > 0.0, np.minimum(1.0, in_base / share), 1.0)[:, None]
    spread = kept * stay + (1.0 - kept) * (left / spare)
    return [stay, np.where(spare > _SMALLEST_SPARE, spread, stay)]


class PairCertificate:
    """The relations between the occupied states of one step, from those of the next; ``rho`` ends with the first step's.

    ``gains`` and ``apart`` are intermediate results: how many times better than the policy each action may be, and the
    ratios of the policy's values in pairs of states.
    """

    gains: np.ndarray
    apart: np.ndarray

    def __init__(self, method: KLRecursion, steps: list[Sheet]) -> None:
        self.method, self.claim, self.sign, self.steps = method, method.claim, method.sign, steps
        self.occupied = self._occupied()
        # After the last step all values are 1.
        self.later = Relations(np.zeros(self.claim.n_states + 1, dtype=np.intp), *exact(np.ones((2, 1, 1))))
        self.rho = exact(np.ones(self.claim.n_states + 1))

    def _occupied(self) -> list[np.ndarray]:
        """Return the states of each step that the policy, or a deviation that is not ruled out at once, can reach."""
        claim, steps, work = self.claim, [np.array([self.claim.first_state])], 0
        for h in range(claim.steps):
            states = steps[-1]
            played, own = self._first(h, states) > 1.0, (np.arange(len(states)), claim.actions(h, states))
            played[own] = True
            rows = self.method.numbers(h, states)[0]
            work += sum(int(ball.sizes.sum()) for _, (ball,) in self.method.rows(h).batches(rows[own])) ** 2
            if work > _MOST_PAIRS:
                raise Rejected(f"the pair certificate is about more than {_MOST_PAIRS} pairs of outcomes")
            steps.append(self.method.following(h, rows[played]))
        return steps[:-1]

    def _optimistic(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the optimistic bounds of all actions."""
        return self.steps[h].optimistic[0, np.searchsorted(self.claim.reachable[h], states)]

    def _first(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the ratios of all actions to the policy by absolute bounds."""
        return self.method.over(self._optimistic(h, states), self.steps[h].policy[0, states][:, None])

    def go_back(self, h: int) -> None:
        """Replace the relations of step h + 1 by those of step ``h``."""
        claim, states, sheet = self.claim, self.occupied[h], self.steps[h]
        own, many = claim.actions(h, states), len(states)
        times = self.gains = self._gains(h)
        # Bounds for all pairs (x, y); z is the one on the side of the optimum, w that on the side of the policy.
        x, y = np.repeat(np.arange(many), many), np.tile(np.arange(many), many)
        z, w = (x, y) if self.sign > 0 else (y, x)
        optimum, policy, top = sheet.optimum[0, states], sheet.policy[0, states], sheet.top[0, states]
        plain = self.method.over(optimum[z], policy[w])
        apart = self.apart = exact(np.ones(many * many))
        known, at = self.method.over(top[x], policy[y]) if self.sign > 0 else plain, np.flatnonzero(x != y)
        apart[at] = self._bounds(h, (x[at], own[x[at]]), (y[at], own[y[at]]), self.later.d, known[at])
        worst = apart.copy()
        for a in range(times.shape[1]):
            known = np.minimum(self.method.over(self._optimistic(h, states)[z, a], policy[w]), up(times[z, a] * apart))
            at = np.flatnonzero((x != y) & (times[z, a] > 1.0) & (known > worst))
            if at.size:
                other, mine = (z[at], np.full(at.size, a)), (w[at], own[w[at]])
                over, under = (other, mine) if self.sign > 0 else (mine, other)
                worst[at] = np.maximum(worst[at], self._bounds(h, over, under, self.later.r, known[at]))
        same = np.maximum(exact(1.0), np.minimum(sheet.ratio[0, states], times.max(axis=1)))
        r = np.where(x == y, same[x], np.minimum(np.minimum(worst, plain), up(same[z] * apart)))
        d = np.where(x == y, exact(1.0), np.minimum(apart, r))
        self.rho = exact(np.full(claim.n_states + 1, math.inf))
        self.rho[states], self.rho[-1] = same, same.max()
        index = np.full(claim.n_states + 1, many + 1)
        index[states], index[-1] = np.arange(many), many
        self.later = Relations(index, *(_closed(table.reshape(many, many)) for table in (d, r)))

    def _sides(self, h: int, *pairs: Pairs) -> Iterator[tuple[np.ndarray, list[Side]]]:
        numbers, gains = self.method.numbers(h, self.occupied[h]), self.method.gains(h, self.occupied[h])
        for at, balls in self.method.rows(h).batches(*(numbers[0][pair] for pair in pairs)):
            yield at, [Side(ball, gains[s[at], a[at]]) for ball, (s, a) in zip(balls, pairs, strict=True)]

    def _bounds(self, h: int, over: Pairs, under: Pairs, table: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return bounds on the values of the rows ``over`` divided by those of ``under``, at most ``known``."""
        ratios, noise = exact(np.zeros(len(known))), self.claim.noise
        for at, (above, below) in self._sides(h, over, under):
            ratios[at] = self.compare(above, below, table, known[at])
        if noise is None or self.claim.is_start(self.claim.layer(h).start):
            return ratios
        tops, bottoms = (self.claim.rows(h, self.occupied[h])[pair] for pair in (over, under))
        over_is_fine = noise.is_coupled(tops, bottoms)
        for is_fine, coupled in ((True, over_is_fine), (False, ~over_is_fine & noise.is_coupled(bottoms, tops))):
            some = np.flatnonzero(coupled)
            fine, coarse = (tops[some], bottoms[some]) if is_fine else (bottoms[some], tops[some])
            for at, (above, below) in self._sides(h, *((s[some], a[some]) for s, a in (over, under))):
                where = noise.counterparts(fine[at], coarse[at], len((above if is_fine else below).to))
                bound = self._with_one_label(above, below, where, is_fine, table)
                ratios[some[at]] = np.minimum(ratios[some[at]], bound)
        return ratios

    def compare(self, over: Side, under: Side, table: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return bounds on the values of the rows ``over`` divided by those of ``under``, at most ``known``: the lemma.

        The base is the row whose future is the policy's: ``under`` for β > 0, ``over`` for β < 0. With z the policy's values
        at the base's successors, the other row's at its successor i is at most the average of table[i, j] z_j under κ(i, ·),
        or for β < 0 at least that of z_j / table[j, i]. In units of z at a reference, each z_j lies in a box, and the ratio
        is largest at a corner of these, where both balls are taken at their worst. Some successors are tried at both ends;
        the others are taken at their worse end, from either side.
        """
        sign, later = self.sign, self.later
        base, other = (under, over) if sign > 0 else (over, under)
        # The successor of both whose smaller share of visits is largest; else the base's most frequent. The lowest of ties.
        score = np.minimum(tally_in(other.ball, base.to) * base.ball.visits, base.tally * other.ball.visits)
        ref = np.where(score.max(axis=0) > 0.0, smallest_of_largest(score, base.to), base.frequent())
        ends = later.box(base.to, ref)
        mine, theirs = later.number[base.to], later.number[other.to][:, None]
        moved = table[theirs, mine] if sign > 0 else 1.0 / table[mine, theirs]
        laws = other.law(other.weights(sign), later, ref), base.law(base.weights(-sign), later, ref)
        moves, tried = _moves(other, base, ref, *laws), _tried(base, *ends)
        # Shares that add up to 1 only up to rounding, and a sum of nonnegative terms.
        slack = 1e-14 * (len(base.to) + 10)
        worst = [exact(np.zeros(len(known))) for _ in moves]
        for corner in product((0, 1), repeat=int((tried >= 0).any(axis=1).sum())):
            toward_base, toward_other = ends[int(sign < 0)], ends[int(sign > 0)]
            for y, raised in zip(tried, corner, strict=False):
                toward_base = np.where(base.to == y, ends[raised], toward_base)
                toward_other = np.where(base.to == y, ends[raised], toward_other)
            mean = extreme_mean(base.ball, toward(base.weights(-sign) * toward_base, -sign), -sign)
            for i, move in enumerate(moves):
                value = np.where(move > 0.0, move * moved * toward_other, exact(0.0)).sum(axis=1)
                f = toward(other.weights(sign) * (value * (1.0 + sign * slack) + sign * _TINY), sign)
                worst[i] = np.maximum(worst[i], self.method.over(extreme_mean(other.ball, f, sign), mean))
        return np.minimum.reduce([known, *worst])

    def _with_one_label(
        self, over: Side, under: Side, where: np.ndarray, over_is_fine: bool, table: np.ndarray
    ) -> np.ndarray:
        """Return bounds as :meth:`compare` for rows whose outcomes one label decides, see "Pairs with common noise".

        ``where`` says which outcome of the coarser row goes with each of the finer one, whose ball alone matters: both have
        the same law. With z the policy's values at the base's successors, the ratio is an average of table[n, d] c_N/c_D
        under weights q c_D z (β > 0), or q c_D z / table[n, d] (β < 0); in units of z where the finer row led most often.
        """
        fine = over if over_is_fine else under

        def beside(part: np.ndarray, is_fine: bool) -> np.ndarray:
            return part if is_fine else np.take_along_axis(part, where, axis=0)

        gain, cost = beside(over.high, over_is_fine), beside(under.low, not over_is_fine)
        n, d = beside(over.to, over_is_fine), beside(under.to, not over_is_fine)
        moved, y = table[self.later.number[n], self.later.number[d]], d if self.sign > 0 else n
        low, high = self.later.box(y, np.take_along_axis(y, fine.ball.tallies.argmax(axis=0)[None], axis=0))
        ratio = up(up(gain * moved) / cost)
        least, most = (cost, cost) if self.sign > 0 else (down(cost / moved), up(cost / moved))
        bottoms, tops = down(least * low), up(most * high)
        usable = np.all((bottoms > 0.0) & (tops < math.inf) & (ratio < math.inf), axis=0)
        ratio, bottoms, tops = (np.where(usable, part, exact(1.0)) for part in (ratio, bottoms, tops))
        return np.where(usable, largest_average(fine.ball, ratio, bottoms, tops, ratio.min(axis=0)), exact(math.inf))

    def _gains(self, h: int) -> np.ndarray:
        """Return how many times better than the policy each action may be, its own included; at most 1: not better."""
        states, sheet, later, method = self.occupied[h], self.steps[h], copy(self.steps[h + 1]), self.method
        later.ratio = self.rho[None]  # the ratios of the gap certificate, with those of this one
        chosen, first = self.claim.actions(h, states), self._first(h, states)
        doubtful = self.method.over(sheet.optimum[0, states], sheet.policy[0, states]) > 1.0
        times, mine = exact(np.ones(first.shape)), np.flatnonzero(doubtful)
        times[mine, chosen[mine]] = self._same(h, mine, chosen[mine], later)
        first[np.arange(len(states)), chosen] = 1.0
        s, a = np.nonzero(doubtful[:, None] & (first > 1.0))
        if len(s):
            times[s, a] = method.deviations(h, states, (np.zeros_like(s), s, a), later, first[s, a])
            left = times[s, a] > 1.0
            s, a = s[left], a[left]
            over, under = ((s, a), (s, chosen[s])) if self.sign > 0 else ((s, chosen[s]), (s, a))
            times[s, a] = self._bounds(h, over, under, self.later.r, times[s, a])
        return times

    def _same(self, h: int, states: np.ndarray, chosen: np.ndarray, later: Sheet) -> np.ndarray:
        """Return the ratios where the policy's action is optimal: by absolute bounds, and relative to one successor."""
        ratios = self.method.same(h, self.method.numbers(h, self.occupied[h])[0, states, chosen], later)
        for at, (mine,) in self._sides(h, (states, chosen)):
            rho, (low, high) = self.rho[mine.to], self.later.box(mine.to, mine.frequent())
            unit = 1.0 if self.sign > 0 else rho  # for β < 0 the values are Z^π/ρ
            relative = same_action(mine.ball, rho, down(low / unit), up(high / unit), self.method.limit(h))
            relative = np.minimum(ratios[at], np.maximum(exact(1.0), relative))
            ratios[at] = np.where(mine.ball.visits > 0.0, relative, ratios[at])
        return ratios


def _closed(table: np.ndarray) -> np.ndarray:
    """Return the table with an index for a state not seen yet, and one with infinite entries for states not occupied.

    Two states not seen yet may be different ones, so their entry is the largest of all.
    """
    many = len(table)
    closed = exact(np.full((many + 2, many + 2), math.inf))
    closed[:many, :many] = table
    closed[:many, many], closed[many, :many] = table.max(axis=1), table.max(axis=0)
    closed[many, many] = table.max()
    return closed
