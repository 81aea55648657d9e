"""KL method: the ratio of the optimum to the policy by way of relative values of pairs of states.

Backwards over the steps, for states x and y that can both be occupied: d(x, y) ≥ Z^π(x)/Z^π(y), and r(x, y) ≥ Z*(x)/Z^π(y)
for β > 0, ≥ Z^π(x)/Z*(y) for β < 0. All of them come from one lemma, :func:`one_over_another`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from itertools import product
from typing import NamedTuple

from reference.verifier._ball import Ball, extreme_mean
from reference.verifier._claim import Claim
from reference.verifier._intervals import Interval, down, up
from reference.verifier._ratio import Sheet, largest_average, other_action, same_action

_CORNERS = 3  # of the base's successors, those that are tried at both ends
_KNOWN = 1e-9  # a relative value known to this precision is not tried at both ends
_TINY = 1e-300  # more than what sums lose when they are not normal numbers
_ANYWHERE = Interval(0.0, math.inf)

Table = dict[tuple[int, int], float]


class Step(NamedTuple):
    """What is known of one step: absolute bounds by state, and the optimistic ones of the actions of each state."""

    sheet: Sheet
    backups: dict[int, dict[int, float]]


class Row:
    """One action in one state: its ball, and the ends of e^{βr} of its outcomes."""

    def __init__(self, ball: Ball, gain: Interval, step: int, number: int) -> None:
        self.ball, self.gain, self.number = ball, gain, number
        self.low = [down(gain.low * e) for e in ball.weight(step, -1)]
        self.high = [up(gain.high * e) for e in ball.weight(step, 1)]

    @cached_property
    def tally(self) -> dict[int, int]:
        """How often it went where, in the order of the states."""
        counts: dict[int, int] = {}
        for y, count in zip(self.ball.successors, self.ball.tallies, strict=True):
            counts[y] = counts.get(y, 0) + count
        return dict(sorted(counts.items()))

    @cached_property
    def frequent(self) -> int:
        """Where it went most often; the lowest of ties."""
        return max(self.tally, key=lambda y: self.tally[y])

    def law(self, weights: list[float], ref: int, d: Table) -> dict[int, float]:
        """Shares of the successors, tilted by e^{βr} and by what follows; empty if floats cannot tell. Any law would do."""
        mass = dict.fromkeys(self.tally, 0.0)
        for y, count, e in zip(self.ball.successors, self.ball.tallies, weights, strict=True):
            tilt = 1.0 if y == ref else math.sqrt(d[y, ref] / d[ref, y])
            mass[y] += e * tilt * (count if self.ball.visits else 1)
        total = sum(mass.values())
        return {y: part / total for y, part in mass.items()} if 0.0 < total < math.inf else {}


def _reference(other: Row, base: Row) -> int:
    """The successor of both whose smaller share of visits is largest; else the base's most frequent. The lowest of ties."""
    score = {
        y: min(other.tally[y] * base.ball.visits, base.tally[y] * other.ball.visits)
        for y in base.tally
        if y in other.tally
    }
    best = max(score, key=lambda y: score[y], default=-1)
    return best if best >= 0 and score[best] else base.frequent


def _moves(other: Row, base: Row, positive: bool, ref: int, d: Table) -> list[dict[int, dict[int, float]]]:
    """Ways to move the other row's successors onto the base's: shares κ(i, ·) that add up to 1, up to rounding."""
    stay = {i: {i if i in base.tally else ref: 1.0} for i in other.tally}
    theirs = other.law(other.high if positive else other.low, ref, d)
    mine = base.law(base.low if positive else base.high, ref, d)
    left = {j: max(0.0, share - theirs.get(j, 0.0)) for j, share in mine.items()}
    spare = sum(left.values())
    if not theirs or not spare > 1e-12:
        return [stay]
    spread = {}
    for i, share in theirs.items():
        kept = 1.0 if share == 0.0 else min(1.0, mine.get(i, 0.0) / share)
        spread[i] = {j: (1.0 - kept) * part / spare for j, part in left.items() if kept < 1.0 and part}
        if kept:
            target = i if i in base.tally else ref
            spread[i][target] = spread[i].get(target, 0.0) + kept
    return [stay, spread]


def one_over_another(over: Row, under: Row, sign: int, d: Table, table: Table, known: float) -> float:
    """A bound on the value of one row over that of another, not above ``known``.

    The base is the row whose future is the policy's: ``under`` for β > 0, ``over`` for β < 0. With z the policy's values at
    the base's successors, the other row's at its successor i is at most the average of table[i, j] z_j under κ(i, ·), or for
    β < 0 at least that of z_j / table[j, i]. In units of z at a reference, each z_j lies in a box, and the ratio is largest
    at a corner of these, where both balls are taken at their worst. Some successors are tried at both ends; the others are
    taken at their worse end, from either side.
    """
    positive = sign > 0
    base, other = (under, over) if positive else (over, under)
    ref = _reference(other, base)
    low = {j: 1.0 if j == ref else down(1.0 / d[ref, j]) for j in base.tally}
    high = {j: 1.0 if j == ref else d[j, ref] for j in base.tally}
    loose = [j for j in base.tally if high[j] > low[j] * (1.0 + _KNOWN)]
    tried = sorted(loose, key=lambda j: (-base.tally[j], j))[:_CORNERS]
    corners = [dict(zip(tried, ends, strict=True)) for ends in product((False, True), repeat=len(tried))]
    bases = [_base_mean(base, corner, low, high, positive) for corner in corners]
    # Shares that add up to 1 only up to rounding, and a sum of nonnegative terms.
    slack = 1e-14 * (len(base.tally) + 10)
    best = known
    for move in _moves(other, base, positive, ref, d):
        worst = 0.0
        for corner, mean in zip(corners, bases, strict=True):
            u = {j: (high if corner.get(j, positive) else low)[j] for j in base.tally}
            if positive:
                value = {i: sum(k * table[i, j] * u[j] for j, k in row.items()) for i, row in move.items()}
                f = [
                    up(e * (value[y] * (1.0 + slack) + _TINY))
                    for e, y in zip(other.high, other.ball.successors, strict=True)
                ]
                worst = max(worst, _quotient(extreme_mean(other.ball, f, 1), mean))
            else:
                value = {i: sum(k * u[j] / table[j, i] for j, k in row.items()) for i, row in move.items()}
                f = [
                    down(e * (value[y] * (1.0 - slack) - _TINY))
                    for e, y in zip(other.low, other.ball.successors, strict=True)
                ]
                worst = max(worst, _quotient(mean, extreme_mean(other.ball, f, -1)))
            if not worst < best:
                break
        best = min(best, worst)
    return best


def one_label(
    over: Row, under: Row, fine: Row, beside: list[tuple[int, int]], sign: int, d: Table, table: Table
) -> float:
    """A bound on the value of one row over that of another where one label, of the law of ``fine``, decides both.

    ``beside`` has the outcomes of both for each outcome of the finer row. The ratio is an average of those of the outcomes,
    weighed by what the denominator is worth.
    """
    often = fine.ball.tallies.index(max(fine.ball.tallies))
    base = [under.ball.successors[m] if sign > 0 else over.ball.successors[n] for n, m in beside]
    ref, ratios, bottoms, tops = base[often], [], [], []
    for (n, m), y in zip(beside, base, strict=True):
        moved, cost = table[over.ball.successors[n], under.ball.successors[m]], under.low[m]
        low, high = (1.0, 1.0) if y == ref else (down(1.0 / d[ref, y]), d[y, ref])
        least, most = (cost, cost) if sign > 0 else (down(cost / moved), up(cost / moved))
        bottoms.append(down(least * low))
        tops.append(up(most * high))
        ratios.append(up(up(over.high[n] * moved) / cost) if cost > 0.0 else math.inf)
    if not min(bottoms) > 0.0 or not max(tops) < math.inf or not max(ratios) < math.inf:
        return math.inf
    return largest_average(fine.ball, ratios, bottoms, tops, min(ratios))


def _base_mean(
    base: Row, corner: dict[int, bool], low: dict[int, float], high: dict[int, float], positive: bool
) -> float:
    """The extreme mean of the base's relative values: the smallest for β > 0, the largest for β < 0."""
    u = {j: (high if corner.get(j, not positive) else low)[j] for j in base.tally}
    successors = base.ball.successors
    if positive:
        return extreme_mean(base.ball, [down(e * u[y]) for e, y in zip(base.low, successors, strict=True)], -1)
    return extreme_mean(base.ball, [up(e * u[y]) for e, y in zip(base.high, successors, strict=True)], 1)


def _quotient(most: float, least: float) -> float:
    return up(most / least) if least > 0.0 and most < math.inf else math.inf


class PairCertificate:
    """The relations between the occupied states of one step, from those of the next; at last the first state's ``ratio``."""

    def __init__(self, claim: Claim, sign: int, steps: list[Step]) -> None:
        self.claim, self.sign, self.steps = claim, sign, steps
        self.occupied = self._occupied()
        self.d: Table = defaultdict(lambda: 1.0)  # after the last step all values are 1
        self.r: Table = defaultdict(lambda: 1.0)
        self.rho = [1.0] * (claim.n_states + 1)

    @property
    def ratio(self) -> float:
        return self.rho[self.claim.first_state]

    def _ratio(self, optimistic: float, pessimistic: float) -> float:
        return _quotient(optimistic, pessimistic) if self.sign > 0 else _quotient(pessimistic, optimistic)

    def _occupied(self) -> list[list[int]]:
        """Where the policy, or a deviation that is not ruled out at once, can be at each step."""
        claim, steps = self.claim, [[self.claim.first_state]]
        for h in range(claim.steps - 1):
            found: set[int] = set()
            for s in steps[-1]:
                for a in claim.allowed_actions(h, s):
                    if a == claim.action(h, s) or self._first(h, s, a) > 1.0:
                        found.update(outcome.successor for outcome in claim.outcomes(claim.row(h, s, a)))
            steps.append(claim.reachable[h + 1] if claim.n_states in found else sorted(found))
        return steps

    def _first(self, h: int, s: int, a: int) -> float:
        """What the absolute bounds say of an action over the policy."""
        return self._ratio(self.steps[h].backups[s][a], self.steps[h].sheet.policy[s])

    def go_back(self, h: int, ball: Callable[[int, int, int], Ball], gain: Callable[[int, int, int], Interval]) -> None:
        """Replace the relations of step h + 1 by those of step ``h``."""
        claim, states = self.claim, self.occupied[h]
        rows: dict[tuple[int, int], Row] = {}

        def row(s: int, a: int) -> Row:
            if (s, a) not in rows:
                rows[s, a] = Row(ball(h, s, a), gain(h, s, a), h - claim.random_start, claim.row(h, s, a))
            return rows[s, a]

        own = {s: row(s, claim.action(h, s)) for s in states}
        gains = {s: self._gains(h, s, row) for s in states}
        sheet, d, r = self.steps[h].sheet, {}, {}
        for s in states:
            worst = max(gains[s].values(), default=1.0)
            d[s, s], r[s, s] = 1.0, max(1.0, min(sheet.ratio[s], worst))
        for x, y in product(states, states):
            if x == y:
                continue
            z, w = (x, y) if self.sign > 0 else (y, x)  # on the side of the optimum, and of the policy
            plain = self._ratio(sheet.optimum[z], sheet.policy[w])
            known = _quotient(sheet.top[x], sheet.policy[y]) if self.sign > 0 else plain
            apart = self._compare(own[x], own[y], self.d, known)
            worst = apart
            for a, times in gains[z].items():
                known = min(self._ratio(self.steps[h].backups[z][a], sheet.policy[w]), up(times * apart))
                if known > worst:
                    pair = (row(z, a), own[y]) if self.sign > 0 else (own[x], row(z, a))
                    worst = max(worst, self._compare(*pair, self.r, known))
            r[x, y] = min(worst, plain, up(r[z, z] * apart))
            d[x, y] = min(apart, r[x, y])
        self.rho = [math.inf] * (claim.n_states + 1)
        for s in states:
            self.rho[s] = r[s, s]
        self.rho[-1] = max(r[s, s] for s in states)
        for table in (d, r):
            self._close(table, states)
        self.d, self.r = d, r

    def _close(self, table: Table, states: list[int]) -> None:
        """The worst that a state not seen yet can do; of two such states nobody knows that they are the same."""
        end = self.claim.n_states
        for s in states:
            table[s, end] = max(table[s, y] for y in states)
            table[end, s] = max(table[x, s] for x in states)
        table[end, end] = max(table[s, end] for s in states)

    def _compare(self, over: Row, under: Row, table: Table, known: float) -> float:
        bound, noise = one_over_another(over, under, self.sign, self.d, table, known), self.claim.noise
        if noise is None or self.claim.is_start(over.number):
            return bound
        if noise.tells(over.number, under.number):
            beside = [(j, noise.beside(over.number, j, under.number)) for j in range(len(over.ball.tallies))]
        elif noise.tells(under.number, over.number):
            beside = [(noise.beside(under.number, j, over.number), j) for j in range(len(under.ball.tallies))]
        else:
            return bound
        fine = over if noise.tells(over.number, under.number) else under
        return min(bound, one_label(over, under, fine, beside, self.sign, self.d, table))

    def _gains(self, h: int, s: int, row: Callable[[int, int], Row]) -> dict[int, float]:
        """How many times better than the policy each action may be, where it may be, the policy's own included."""
        claim, sheet, chosen = self.claim, self.steps[h].sheet, self.claim.action(h, s)
        if self._ratio(sheet.optimum[s], sheet.policy[s]) <= 1.0:
            return {}
        later, step, mine, gains = (
            self._with_ratios(self.steps[h + 1].sheet),
            h - claim.random_start,
            row(s, chosen),
            {},
        )
        for a in claim.allowed_actions(h, s):
            if a == chosen:
                times = same_action(mine.ball, step, later, _ANYWHERE)
                if times > 1.0 and mine.ball.visits:
                    times = min(times, same_action(mine.ball, step, self._relative(mine), _ANYWHERE))
            elif (times := self._first(h, s, a)) > 1.0:
                over, under = (row(s, a), mine) if self.sign > 0 else (mine, row(s, a))
                apart = up(over.gain.high / under.gain.low)
                times = other_action(over.ball, under.ball, apart, step, later, _ANYWHERE, times)
                if times > 1.0:
                    times = self._compare(over, under, self.r, times)
            if times > 1.0:
                gains[a] = times
        return gains

    def _with_ratios(self, sheet: Sheet) -> Sheet:
        """The absolute bounds of the next step with the ratios of this certificate."""
        later = Sheet(self.claim.n_states, self.sign)
        later.optimum, later.policy, later.top, later.ratio = sheet.optimum, sheet.policy, sheet.top, self.rho
        return later

    def _relative(self, row: Row) -> Sheet:
        """The same with values in units of that of the most frequent successor; for β < 0 those are Z^π/ρ."""
        later, ref = Sheet(self.claim.n_states, self.sign), row.frequent
        bottom, later.ratio = later.box()[0], self.rho
        for y in row.tally:
            low, high = (1.0, 1.0) if y == ref else (down(1.0 / self.d[ref, y]), self.d[y, ref])
            rho = 1.0 if self.sign > 0 else self.rho[y]
            bottom[y], later.top[y] = down(low / rho), up(high / rho)
        return later
