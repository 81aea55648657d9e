"""The ratio of the optimum to the policy by way of relative values of pairs of states (Pairs.v)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

from flint import arb

from entropic_bpi.verification.rigorous._ball import ONE, lower, upper
from entropic_bpi.verification.rigorous._plan import Plan, Sheet, Step, Weighted

_CORNERS = 3  # of the base's successors, those that are tried at both ends
_KNOWN = 1e-9  # a relative value known to this precision is not tried at both ends
_ANYWHERE = arb(0), arb("inf")

Table = dict[tuple[int, int], arb]
Move = dict[int, dict[int, float]]  # shares κ(i, ·), before they are divided by their sum


class Relations(NamedTuple):
    """What is known of pairs of states at one step; the last state is one not seen yet.

    In Pairs.v ``apart`` is ``dd``, ``r`` is ``Rt`` and ``gains`` are the ``v`` that exceed 1; ``rho`` is the diagonal of
    ``r``.
    """

    apart: Table
    d: Table
    r: Table
    rho: list[arb]
    gains: dict[int, dict[int, arb]]


class _Row:
    """A row with what the choice of references, corners and moves needs."""

    def __init__(self, weighted: Weighted) -> None:
        self.weighted, self.successors, self.visits = weighted, weighted.row.successors, sum(weighted.row.counts)

    @cached_property
    def tally(self) -> dict[int, int]:
        """How often it went where, in the order of the states."""
        tally = dict.fromkeys(sorted(self.successors), 0)
        for y, count in zip(self.successors, self.weighted.row.counts, strict=True):
            tally[y] += count
        return tally

    @cached_property
    def frequent(self) -> int:
        return max(self.tally, key=lambda y: self.tally[y])

    def law(self, weights: list[arb], ref: int, d: Table) -> dict[int, float]:
        """Return shares of the successors, tilted by e^{βr} and by what follows; empty if floats cannot tell."""
        mass = dict.fromkeys(self.tally, 0.0)
        for y, count, e in zip(self.successors, self.weighted.row.counts, weights, strict=True):
            tilt = 1.0 if y == ref else math.sqrt(float(d[y, ref] / d[ref, y]))
            mass[y] += float(e) * tilt * (count if self.visits else 1)
        total = sum(mass.values())
        return {y: part / total for y, part in mass.items()} if 0.0 < total < math.inf else {}


def pair_ratio(plan: Plan, steps: list[Step]) -> arb:
    """Return a bound on the ratio in the first state."""
    *_, last = PairPlan(plan, steps).relations()
    return last.rho[plan.data.start]


class PairPlan:
    """The relations of one claim. ``absolute`` has the bounds by state, from the first step to the end of the episode."""

    def __init__(self, plan: Plan, absolute: list[Step]) -> None:
        self.plan, self.data, self.positive, self.absolute = plan, plan.data, plan.positive, absolute
        self.row = cache(lambda h, s, a: _Row(plan.weighted(h, s, a)))
        self.occupied = self._occupied()

    def relations(self) -> Iterator[Relations]:
        """Yield the relations of every step, from the end of the episode backwards."""
        table: Table = defaultdict(lambda: ONE)  # after the last step all values are 1
        later = Relations(table, table, table, [ONE] * (self.data.n_states + 1), {})
        yield later
        for h in reversed(range(self.data.steps)):
            later = self._step(h, later)
            yield later

    def _first(self, h: int, s: int, a: int) -> arb:
        """Return what the absolute bounds say of an action over the policy."""
        sheet, backups = self.absolute[h]
        return self.plan.quotient(backups[s][a], sheet.policy[s])

    def _occupied(self) -> list[list[int]]:
        """Return where the policy, or a deviation that is not ruled out at once, can be at each step."""
        data, steps = self.data, [[self.data.start]]
        for h in range(data.steps - 1):
            found: set[int] = set()
            for s in steps[-1]:
                for a in data.actions(h, s):
                    if a == data.action(h, s) or self._first(h, s, a) > 1:
                        found.update(self.row(h, s, a).successors)
            steps.append(data.reachable[h + 1] if data.n_states in found else sorted(found))
        return steps

    def _step(self, h: int, later: Relations) -> Relations:
        """Return the relations of step ``h``: of each state with itself, then of different states."""
        states, sheet, backups = self.occupied[h], *self.absolute[h]
        own = {s: self.row(h, s, self.data.action(h, s)) for s in states}
        gains = {s: self._gains(h, s, later) for s in states}
        apart: Table = {(s, s): ONE for s in states}
        d, r = dict(apart), {(s, s): max(ONE, min(sheet.ratio[s], max(gains[s].values(), default=ONE))) for s in states}
        for x, y in product(states, states):
            if x == y:
                continue
            z, w = (x, y) if self.positive else (y, x)  # on the side of the optimum, and of the policy
            plain = self.plan.quotient(sheet.optimum[z], sheet.policy[w])
            known = upper(sheet.top[x] / sheet.policy[y]) if self.positive else plain
            worst = apart[x, y] = self.compare(own[x], own[y], later.d, later.d, known)
            for a, times in gains[z].items():
                known = min(self.plan.quotient(backups[z][a], sheet.policy[w]), upper(times * apart[x, y]))
                if known > worst:
                    pair = (self.row(h, z, a), own[y]) if self.positive else (own[x], self.row(h, z, a))
                    worst = max(worst, self.compare(*pair, later.d, later.r, known))
            r[x, y] = min(worst, plain, upper(r[z, z] * apart[x, y]))
            d[x, y] = min(apart[x, y], r[x, y])
        rho = [r[s, s] if (s, s) in r else _ANYWHERE[1] for s in range(self.data.n_states)]
        rho.append(max(r[s, s] for s in states))
        for table in (d, r):
            self._close(table, states)
        return Relations(apart, d, r, rho, gains)

    def _close(self, table: Table, states: list[int]) -> None:
        """Add the worst that a state not seen yet can do; two such states need not be the same."""
        end = self.data.n_states
        for s in states:
            table[s, end] = max(table[s, y] for y in states)
            table[end, s] = max(table[x, s] for x in states)
        table[end, end] = max(table[s, end] for s in states)

    def _gains(self, h: int, s: int, later: Relations) -> dict[int, arb]:
        """Return by how much each action may be worth more than the policy, where it may (``v_ok``)."""
        sheet, chosen, gains = self.absolute[h][0], self.data.action(h, s), {}
        if not self.plan.quotient(sheet.optimum[s], sheet.policy[s]) > 1:
            return {}
        after, mine = _with_ratios(self.absolute[h + 1][0], later.rho), self.row(h, s, chosen)
        for a in self.data.actions(h, s):
            if a == chosen:
                times = self.plan.same(h, s, after, _ANYWHERE)
                if times > 1 and mine.visits:
                    times = min(times, self.plan.same(h, s, self._relative(mine, later), _ANYWHERE))
            elif (times := self._first(h, s, a)) > 1:
                pair = (self.row(h, s, a), mine) if self.positive else (mine, self.row(h, s, a))
                times = self.plan.deviation(h, s, a, after, _ANYWHERE, times)
                if times > 1:
                    times = self.compare(*pair, later.d, later.r, times)
            if times > 1:
                gains[a] = times
        return gains

    def _relative(self, row: _Row, later: Relations) -> Sheet:
        """Return values in units of that of the most frequent successor; for β < 0 those are Z^π/ρ."""
        after, ref = Sheet(self.data.n_states, self.positive), row.frequent
        bottom, after.ratio = after.box()[0], later.rho
        for y in row.tally:
            low, high = (ONE, ONE) if y == ref else (1 / later.d[ref, y], later.d[y, ref])
            rho = ONE if self.positive else later.rho[y]
            bottom[y], after.top[y] = lower(low / rho), upper(high / rho)
        return after

    def compare(self, over: _Row, under: _Row, d: Table, table: Table, known: arb) -> arb:
        """Return a bound on the value of one row over that of another, not above ``known`` (``pair_ok``).

        The base is the row whose future is the policy's: ``under`` for β > 0, ``over`` for β < 0. ``table`` bounds what the
        other row's successors are worth in units of the base's. In units of a reference, the values of the base's
        successors lie in a box. Some are tried at both ends, the others are taken at their worse end on either side.
        """
        base, other = (under, over) if self.positive else (over, under)
        ref = _reference(other, base)
        low = {j: ONE if j == ref else lower(1 / d[ref, j]) for j in base.tally}
        high = {j: ONE if j == ref else d[j, ref] for j in base.tally}
        loose = [j for j in base.tally if high[j] > low[j] * (1 + _KNOWN)]
        tried = sorted(loose, key=lambda j: (-base.tally[j], j))[:_CORNERS]
        corners = [dict(zip(tried, ends, strict=True)) for ends in product((False, True), repeat=len(tried))]

        def values(corner: dict[int, bool], otherwise: bool) -> dict[int, arb]:
            return {j: (high if corner.get(j, otherwise) else low)[j] for j in base.tally}

        @cache
        def base_mean(c: int) -> arb:
            u = values(corners[c], not self.positive)
            return _lowest(base, u) if self.positive else _highest(base, u)

        best = known
        for move in self._moves(other, base, ref, d):
            worst = arb(0)
            for c, corner in enumerate(corners):
                u = values(corner, self.positive)
                if self.positive:
                    moved = {i: _average((k, table[i, j] * u[j]) for j, k in to.items()) for i, to in move.items()}
                    worst = max(worst, upper(_highest(other, moved) / base_mean(c)))
                else:
                    moved = {i: _average((k, u[j] / table[j, i]) for j, k in to.items()) for i, to in move.items()}
                    worst = max(worst, upper(base_mean(c) / _lowest(other, moved)))
                if not worst < best:
                    break
            best = min(best, worst)
        return best

    def _moves(self, other: _Row, base: _Row, ref: int, d: Table) -> list[Move]:
        """Return ways to move the other row's successors onto the base's."""
        stay = {i: {i if i in base.tally else ref: 1.0} for i in other.tally}
        theirs = other.law(other.weighted.high if self.positive else other.weighted.low, ref, d)
        mine = base.law(base.weighted.low if self.positive else base.weighted.high, ref, d)
        left = {j: max(0.0, share - theirs.get(j, 0.0)) for j, share in mine.items()}
        spare = sum(left.values())
        if not theirs or not spare > 1e-12:
            return [stay]
        spread: Move = {}
        for i, share in theirs.items():
            kept = 1.0 if share == 0.0 else min(1.0, mine.get(i, 0.0) / share)
            spread[i] = {j: (1.0 - kept) * part / spare for j, part in left.items() if kept < 1.0 and part}
            if kept:
                target = i if i in base.tally else ref
                spread[i][target] = spread[i].get(target, 0.0) + kept
        return [stay, spread]


def _with_ratios(sheet: Sheet, rho: list[arb]) -> Sheet:
    """Return the same absolute bounds with other ratios."""
    after = Sheet(0, sheet.positive)
    after.optimum, after.policy, after.top, after.ratio = sheet.optimum, sheet.policy, sheet.top, rho
    return after


def _reference(other: _Row, base: _Row) -> int:
    """Return the successor of both whose smaller share of visits is largest, else the base's most frequent one."""
    both = [y for y in base.tally if y in other.tally]
    score = {y: min(other.tally[y] * base.visits, base.tally[y] * other.visits) for y in both}
    best = max(both, key=lambda y: score[y], default=-1)
    return best if best >= 0 and score[best] else base.frequent


def _average(terms: Iterable[tuple[float, arb]]) -> arb:
    """Return an average under shares that are divided by their sum."""
    terms = list(terms)
    return sum((arb(k) * value for k, value in terms), arb(0)) / sum((arb(k) for k, _ in terms), arb(0))


def _highest(row: _Row, values: dict[int, arb]) -> arb:
    return row.weighted.highest([upper(e * values[y]) for e, y in zip(row.weighted.high, row.successors, strict=True)])


def _lowest(row: _Row, values: dict[int, arb]) -> arb:
    return row.weighted.lowest([lower(e * values[y]) for e, y in zip(row.weighted.low, row.successors, strict=True)])
