"""KL method: the ratio of the optimum to the policy by way of relative values of pairs of states.

Backwards over the steps, for states x and y that can both be occupied: d(x, y) ≥ Z^π(x)/Z^π(y), and r(x, y) ≥ Z*(x)/Z^π(y)
for β > 0, ≥ Z^π(x)/Z*(y) for β < 0. All of them come from one lemma, :func:`one_over_another`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from entropic_bpi.verification._ball import Balls, extreme_mean
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import Interval, down, up
from entropic_bpi.verification.methods._ratio import Sheet, largest_average, same_action, smallest_of_largest, tally_in

if TYPE_CHECKING:
    from entropic_bpi.verification._kl import KLRecursion

_CORNERS = 3  # of the base's successors, those that are tried at both ends
_KNOWN = 1e-9  # a relative value known to this precision is not tried at both ends
_TINY = 1e-300  # more than what sums lose when they are not normal numbers
_SMALLEST_SPARE = 1e-12  # shares that differ by less are the same
_ANYWHERE = Interval(0.0, math.inf)
_MOST_PAIRS = 4_000_000  # of outcomes of the policy's rows, at all steps together; the library stops at half of that


class Relations(NamedTuple):
    """The d and the r of one step, for the states that are occupied there, and for "some state not seen yet".

    ``place`` is where each state is in them. States that are not occupied share a place of which nothing is known.
    """

    place: np.ndarray
    d: np.ndarray
    r: np.ndarray


def _first_of_its_kind(states: np.ndarray) -> np.ndarray:
    """Whether an outcome is the first of its column that leads to its state."""
    equal = states[:, None] == states
    return ~np.tril(np.moveaxis(equal, 2, 0), -1).any(axis=2).T


class Side:
    """Rows of a comparison: their balls, and the ends of e^{βr} of their outcomes.

    What is said of successors is said at the first outcome that leads to each; ``first`` tells which these are, and
    ``tally`` how often a row led there.
    """

    def __init__(self, ball: Balls, gain: Interval) -> None:
        self.ball, self.to = ball, ball.successors
        self.low, self.high = down(gain.low * ball.low), up(gain.high * ball.high)
        self.first, self.tally = _first_of_its_kind(self.to), tally_in(ball, self.to)

    def take(self, columns: np.ndarray) -> Side:
        side = copy(self)
        side.ball, side.to = self.ball.take(columns), self.to[:, columns]
        side.low, side.high, side.first, side.tally = (
            part[:, columns] for part in (self.low, self.high, self.first, self.tally)
        )
        return side

    def frequent(self) -> np.ndarray:
        """Where each row went most often; the lowest of ties."""
        return smallest_of_largest(self.tally, self.to)

    def law(self, weights: np.ndarray, tilt: np.ndarray) -> np.ndarray:
        """Shares of the successors, tilted by e^{βr} and by what follows; NaN if floats cannot tell. Any law would do."""
        once = np.arange(len(self.to))[:, None] < self.ball.sizes
        mass = weights * tilt * np.where(self.ball.visits > 0.0, self.ball.tallies, once)
        mass = np.where(self.first, np.where(self.to[:, None] == self.to, mass, 0.0).sum(axis=1), 0.0)
        total = mass.sum(axis=0)
        return np.where((total > 0.0) & (total < math.inf), mass / total, math.nan)


def _reference(other: Side, base: Side) -> np.ndarray:
    """The successor of both whose smaller share of visits is largest; else the base's most frequent. The lowest of ties."""
    score = np.minimum(tally_in(other.ball, base.to) * base.ball.visits, base.tally * other.ball.visits)
    return np.where(score.max(axis=0) > 0.0, smallest_of_largest(score, base.to), base.frequent())


def one_over_another(
    over: Side, under: Side, sign: int, relations: Relations, table: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """Bounds on the values of rows over those of others, not above ``known``.

    The base is the row whose future is the policy's: ``under`` for β > 0, ``over`` for β < 0. With z the policy's values at
    the base's successors, the other row's at its successor i is at most the average of table[i, j] z_j under κ(i, ·), or for
    β < 0 at least that of z_j / table[j, i]. In units of z at a reference, each z_j lies in a box, and the ratio is largest
    at a corner of these, where both balls are taken at their worst. Some successors are tried at both ends; the others are
    taken at their worse end, from either side.
    """
    positive = sign > 0
    base, other = (under, over) if positive else (over, under)
    ref = _reference(other, base)
    at_ref = relations.place[ref]
    mine, theirs = relations.place[base.to], relations.place[other.to]
    is_ref = base.to == ref
    low = np.where(is_ref, 1.0, down(1.0 / relations.d[at_ref, mine]))
    high = np.where(is_ref, 1.0, relations.d[mine, at_ref])
    tried = _tried(base, low, high)
    if positive:
        moved = table[theirs[:, None], mine]
    else:
        moved = 1.0 / table[mine, theirs[:, None]]
    tilts = [
        np.where(side.to == ref, 1.0, np.sqrt(relations.d[place, at_ref] / relations.d[at_ref, place]))
        for side, place in ((other, theirs), (base, mine))
    ]
    moves = _moves(other, base, ref, tilts, positive)
    # Shares that add up to 1 only up to rounding, and a sum of nonnegative terms.
    slack = 1e-14 * (len(base.to) + 10)
    worst = [np.zeros(len(known)) for _ in moves]
    for corner in product((False, True), repeat=int((tried >= 0).any(axis=1).sum())):
        ends = {True: high, False: low}
        toward_base, toward_other = (ends[not positive], ends[positive])
        for y, raised in zip(tried, corner, strict=False):
            toward_base = np.where(base.to == y, ends[raised], toward_base)
            toward_other = np.where(base.to == y, ends[raised], toward_other)
        if positive:
            mean = extreme_mean(base.ball, down(base.low * toward_base), -1)
        else:
            mean = extreme_mean(base.ball, up(base.high * toward_base), 1)
        for i, move in enumerate(moves):
            value = np.where(move > 0.0, move * moved * toward_other, 0.0).sum(axis=1)
            if positive:
                f = up(other.high * (value * (1.0 + slack) + _TINY))
                quotient = _quotient(extreme_mean(other.ball, f, 1), mean)
            else:
                f = down(other.low * (value * (1.0 - slack) - _TINY))
                quotient = _quotient(mean, extreme_mean(other.ball, f, -1))
            worst[i] = np.maximum(worst[i], quotient)
    return np.minimum.reduce([known, *worst])


def one_noise(
    over: Side,
    under: Side,
    where: np.ndarray,
    over_is_fine: bool,
    sign: int,
    relations: Relations,
    table: np.ndarray,
) -> np.ndarray:
    """Bounds on the values of rows over those of others where one label decides what both do.

    ``where`` says which outcome of the coarser row goes with each of the finer one, whose ball alone matters: both have the
    same law. With z the policy's values at the base's successors, the ratio is an average of table[n, d] c_N/c_D under
    weights q c_D z (β > 0), or q c_D z / table[n, d] (β < 0); in units of z where the finer row led most often.
    """
    fine = over if over_is_fine else under

    def beside(part: np.ndarray, is_fine: bool) -> np.ndarray:
        return part if is_fine else np.take_along_axis(part, where, axis=0)

    gain, cost = beside(over.high, over_is_fine), beside(under.low, not over_is_fine)
    n, d = beside(over.to, over_is_fine), beside(under.to, not over_is_fine)
    moved = table[relations.place[n], relations.place[d]]
    y = d if sign > 0 else n
    ref = np.take_along_axis(y, fine.ball.tallies.argmax(axis=0)[None], axis=0)
    mine, at_ref = relations.place[y], relations.place[ref]
    low = np.where(y == ref, 1.0, down(1.0 / relations.d[at_ref, mine]))
    high = np.where(y == ref, 1.0, relations.d[mine, at_ref])
    ratio = up(up(gain * moved) / cost)
    weight = Interval(cost, cost) if sign > 0 else Interval(down(cost / moved), up(cost / moved))
    bottoms, tops = down(weight.low * low), up(weight.high * high)
    usable = np.all((bottoms > 0.0) & (tops < math.inf) & (ratio < math.inf), axis=0)
    ratio, bottoms, tops = (np.where(usable, part, 1.0) for part in (ratio, bottoms, tops))
    return np.where(usable, largest_average(fine.ball, ratio, bottoms, tops, ratio.min(axis=0)), math.inf)


def _tried(base: Side, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Successors whose relative value is not known: those that were seen most often, the lowest of ties; -1 for none."""
    score = np.where(base.first & (high > low * (1.0 + _KNOWN)), base.tally + 1.0, 0.0)
    tried = np.full((_CORNERS, len(base.to[0])), -1)
    for i in range(_CORNERS):
        found = score.max(axis=0) > 0.0
        tried[i, found] = smallest_of_largest(score, base.to)[found]
        score = np.where(base.to == tried[i], 0.0, score)
    return tried


def _moves(other: Side, base: Side, ref: np.ndarray, tilts: list[np.ndarray], positive: bool) -> list[np.ndarray]:
    """Ways to move the other row's successors onto the base's: shares κ(i, j) that add up to 1 over j, up to rounding."""
    same = (other.to[:, None] == base.to) & base.first
    stay = np.where(same.any(axis=1)[:, None], same, (base.to == ref) & base.first).astype(float)
    theirs = other.law(other.high if positive else other.low, tilts[0])
    mine = base.law(base.low if positive else base.high, tilts[1])
    of_others = np.where(same, theirs[:, None], 0.0).max(axis=0)  # at the base's successors
    left = np.maximum(0.0, mine - of_others)
    spare = left.sum(axis=0)
    # Of a state the first outcome knows its share, and all outcomes move alike.
    share = np.where(other.to[:, None] == other.to, theirs, 0.0).sum(axis=1)
    in_base = np.where(same, mine, 0.0).sum(axis=1)
    kept = np.where(share > 0.0, np.minimum(1.0, in_base / share), 1.0)[:, None]
    spread = kept * stay + (1.0 - kept) * (left / spare)
    return [stay, np.where(spare > _SMALLEST_SPARE, spread, stay)]


def _quotient(most: np.ndarray, least: np.ndarray) -> np.ndarray:
    return np.where((least > 0.0) & (most < math.inf), up(most / least), math.inf)


class PairCertificate:
    """The relations between the occupied states of one step, from those of the next; at last the first state's ``ratio``."""

    def __init__(self, method: KLRecursion, steps: list[Sheet]) -> None:
        self.method, self.claim, self.sign, self.steps = method, method.claim, method.sign, steps
        self.occupied = self._occupied()
        # After the last step all values are 1.
        self.later = Relations(np.zeros(self.claim.n_states + 1, dtype=np.intp), *np.ones((2, 1, 1)))
        self.rho = np.ones(self.claim.n_states + 1)

    def _ratio(self, optimistic: np.ndarray, pessimistic: np.ndarray) -> np.ndarray:
        return _quotient(optimistic, pessimistic) if self.sign > 0 else _quotient(pessimistic, optimistic)

    def _occupied(self) -> list[np.ndarray]:
        """Return where the policy, or a deviation that is not ruled out at once, can be at each step."""
        claim, steps, work = self.claim, [np.array([self.claim.first_state])], 0
        for h in range(claim.steps):
            states = steps[-1]
            played, own = self._first(h, states) > 1.0, (np.arange(len(states)), claim.actions(h, states))
            played[own] = True
            rows = self.method.numbers(h, states)[0]
            work += sum(int(ball.sizes.sum()) for _, ball in self.method.rows(h).batches(rows[own])) ** 2
            if work > _MOST_PAIRS:
                raise Rejected(f"the pair certificate is about more than {_MOST_PAIRS} pairs of outcomes")
            steps.append(self.method.following(h, rows[played]))
        return steps[:-1]

    def _optimistic(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return what the absolute bounds say of the actions."""
        return self.steps[h].optimistic[0, np.searchsorted(self.claim.reachable[h], states)]

    def _first(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return what the absolute bounds say of actions over the policy."""
        return self._ratio(self._optimistic(h, states), self.steps[h].policy[0, states][:, None])

    def go_back(self, h: int) -> None:
        """Replace the relations of step h + 1 by those of step ``h``."""
        claim, states, sheet = self.claim, self.occupied[h], self.steps[h]
        own, times, many = claim.actions(h, states), self._gains(h), len(states)
        # Bounds for all pairs (x, y); z is the one on the side of the optimum, w that on the side of the policy.
        x, y = np.repeat(np.arange(many), many), np.tile(np.arange(many), many)
        z, w = (x, y) if self.sign > 0 else (y, x)
        optimum, policy, top = sheet.optimum[0, states], sheet.policy[0, states], sheet.top[0, states]
        plain = self._ratio(optimum[z], policy[w])
        known = _quotient(top[x], policy[y]) if self.sign > 0 else plain
        apart = np.ones(many * many)
        pairs = np.flatnonzero(x != y)
        apart[pairs] = self._compare(
            h, (x[pairs], own[x[pairs]]), (y[pairs], own[y[pairs]]), self.later.d, known[pairs]
        )
        worst = apart.copy()
        for a in range(times.shape[1]):
            known = np.minimum(self._ratio(self._optimistic(h, states)[z, a], policy[w]), up(times[z, a] * apart))
            at = np.flatnonzero((x != y) & (times[z, a] > 1.0) & (known > worst))
            if at.size:
                other = z[at], np.full(at.size, a)
                over, under = (other, (y[at], own[y[at]])) if self.sign > 0 else ((x[at], own[x[at]]), other)
                worst[at] = np.maximum(worst[at], self._compare(h, over, under, self.later.r, known[at]))
        same = np.maximum(1.0, np.minimum(sheet.ratio[0, states], np.maximum(1.0, times.max(axis=1))))
        r = np.where(x == y, same[x], np.minimum(np.minimum(worst, plain), up(same[z] * apart)))
        d = np.where(x == y, 1.0, np.minimum(apart, r))
        self.rho = np.full(claim.n_states + 1, math.inf)
        self.rho[states], self.rho[-1] = same, same.max()
        place = np.full(claim.n_states + 1, many + 1)
        place[states], place[-1] = np.arange(many), many
        self.later = Relations(place, *(_closed(table.reshape(many, many)) for table in (d, r)))

    def _compare(
        self,
        h: int,
        over: tuple[np.ndarray, np.ndarray],
        under: tuple[np.ndarray, np.ndarray],
        table: np.ndarray,
        known: np.ndarray,
    ) -> np.ndarray:
        """The lemma for pairs of (number of an occupied state, action)."""
        ratios, noise = np.empty(len(known)), self.claim.noise
        pairs = [self.claim.rows(h, self.occupied[h])[place] for place in (over, under)]
        for at, (above, below) in self._sides(h, over, under):
            ratios[at] = one_over_another(above, below, self.sign, self.later, table, known[at])
            if noise is not None and not self.claim.is_start(self.claim.layer(h).start):
                tops, bottoms = pairs[0][at], pairs[1][at]
                is_fine = noise.is_coupled(tops, bottoms)
                for fine in (True, False):
                    some = np.flatnonzero(is_fine if fine else ~is_fine & noise.is_coupled(bottoms, tops))
                    if some.size:
                        mine, theirs = (tops[some], bottoms[some]) if fine else (bottoms[some], tops[some])
                        where = noise.counterparts(mine, theirs, len((above if fine else below).to))
                        bound = one_noise(above.take(some), below.take(some), where, fine, self.sign, self.later, table)
                        ratios[at[some]] = np.minimum(ratios[at[some]], bound)
        return ratios

    def _sides(self, h: int, *places: tuple[np.ndarray, np.ndarray]) -> Iterator[tuple[np.ndarray, list[Side]]]:
        states = self.occupied[h]
        numbers, gains = self.method.numbers(h, states)[0], self.method.gains(h, states)
        for at, balls in self.method.rows(h).joint(*(numbers[place] for place in places)):
            yield at, [Side(ball, gains[place[0][at], place[1][at]]) for ball, place in zip(balls, places, strict=True)]

    def _gains(self, h: int) -> np.ndarray:
        """Return how many times better than the policy each action may be, its own included; at most 1 if it is not."""
        claim, states, sheet = self.claim, self.occupied[h], self.steps[h]
        chosen, first = claim.actions(h, states), self._first(h, states)
        doubtful = self._ratio(sheet.optimum[0, states], sheet.policy[0, states]) > 1.0
        times = np.ones(first.shape)
        mine = np.flatnonzero(doubtful)
        later = copy(self.steps[h + 1])
        later.ratio = self.rho[None]
        times[mine, chosen[mine]] = self._same(h, mine, chosen[mine], later)
        first[np.arange(len(states)), chosen] = 1.0
        s, a = np.nonzero(doubtful[:, None] & (first > 1.0))
        if len(s):
            # The ratios of the gap certificate, with those of this one.
            rows, gains, at = self.method.numbers(h, states), self.method.gains(h, states), (np.zeros_like(s), s, a)
            times[s, a] = self.method.deviations(h, rows, gains, at, chosen, later, first[s, a])
            left = times[s, a] > 1.0
            s, a = s[left], a[left]
            over, under = ((s, a), (s, chosen[s])) if self.sign > 0 else ((s, chosen[s]), (s, a))
            times[s, a] = self._compare(h, over, under, self.later.r, times[s, a])
        return times

    def _same(self, h: int, places: np.ndarray, chosen: np.ndarray, later: Sheet) -> np.ndarray:
        """The ratios where the policy's action is optimal: by absolute bounds, and by values relative to one successor."""
        ratios = self.method.same(h, self.method.numbers(h, self.occupied[h])[0, places, chosen], later)
        for at, (mine,) in self._sides(h, (places, chosen)):
            to, ref = mine.to, mine.frequent()
            at_ref, place = self.later.place[ref], self.later.place[to]
            rho = 1.0 if self.sign > 0 else self.rho[to]  # for β < 0 the values are Z^π/ρ
            low = down(np.where(to == ref, 1.0, down(1.0 / self.later.d[at_ref, place])) / rho)
            high = up(np.where(to == ref, 1.0, self.later.d[place, at_ref]) / rho)
            relative = same_action(mine.ball, self.rho[to], low, high, _ANYWHERE)
            better = (ratios[at] > 1.0) & (mine.ball.visits > 0.0)
            ratios[at] = np.where(better, np.minimum(ratios[at], relative), ratios[at])
        return ratios


def _closed(table: np.ndarray) -> np.ndarray:
    """With the worst that a state not seen yet can do, and nothing known of what lies beyond.

    Of two states not seen yet nobody knows that they are the same.
    """
    many = len(table)
    closed = np.full((many + 2, many + 2), math.inf)
    closed[:many, :many] = table
    closed[:many, many], closed[many, :many] = table.max(axis=1), table.max(axis=0)
    closed[many, many] = table.max()
    return closed
