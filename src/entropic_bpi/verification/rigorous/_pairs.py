"""The ratio of the optimum to the policy by way of relative values of pairs of states (Pairs.v)."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from flint import arb

from entropic_bpi.verification.rigorous._ball import ONE, lower, upper
from entropic_bpi.verification.rigorous._plan import ANYWHERE, Plan, Sheet, Table, Weighted, shared

_CORNERS = 3  # of the base's successors, those that are tried at both ends
_KNOWN = 1e-9  # a relative value known to this precision is not tried at both ends

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


class PairPlan:
    """The relations of one claim. ``absolute`` has the bounds by state, from the first step to the end of the episode."""

    def __init__(self, plan: Plan, absolute: list[Sheet]) -> None:
        self.plan, self.data, self.positive, self.absolute = plan, plan.data, plan.positive, absolute
        self.row = plan.weighted
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
        return self.plan.quotient(self.absolute[h].backups[s][a], self.absolute[h].policy[s])

    def _occupied(self) -> list[list[int]]:
        """Return where the policy, or a deviation that is not ruled out at once, can be at each step."""
        data, steps = self.data, [[self.data.start]]
        for h in range(data.steps - 1):
            found: set[int] = set()
            for s in steps[-1]:
                for a in data.actions(h, s):
                    if a == data.action(h, s) or self._first(h, s, a) > 1:
                        found.update(self.row(h, s, a).tally)
            steps.append(data.reachable[h + 1] if data.n_states in found else sorted(found))
        return steps

    def _step(self, h: int, later: Relations) -> Relations:
        """Return the relations of step ``h``: of each state with itself, then of different states."""
        states, sheet, quotient = self.occupied[h], self.absolute[h], self.plan.quotient
        own = {s: self.row(h, s, self.data.action(h, s)) for s in states}
        gains = {s: self._gains(h, s, later) for s in states}
        apart = {(s, s): ONE for s in states}
        d, r = dict(apart), {(s, s): max(ONE, min(sheet.ratio[s], max(gains[s].values(), default=ONE))) for s in states}
        for x, y in product(states, states):
            if x == y:
                continue
            z, w = (x, y) if self.positive else (y, x)  # on the side of the optimum, and of the policy
            plain = quotient(sheet.optimum[z], sheet.policy[w])
            known = upper(sheet.top[x] / sheet.policy[y]) if self.positive else plain
            worst = apart[x, y] = self.compare(own[z], own[w], later.d, later.d, known)
            for a, times in gains[z].items():
                known = min(quotient(sheet.backups[z][a], sheet.policy[w]), upper(times * apart[x, y]))
                if known > worst:
                    worst = max(worst, self.compare(self.row(h, z, a), own[w], later.d, later.r, known))
            r[x, y] = min(worst, plain, upper(r[z, z] * apart[x, y]))
            d[x, y] = min(apart[x, y], r[x, y])
        rho = [r[s, s] if (s, s) in r else ANYWHERE[1] for s in range(self.data.n_states)]
        rho.append(max(r[s, s] for s in states))
        for table in (d, r):
            self._close(table, states)
        return Relations(apart, d, r, rho, gains)

    def _close(self, table: dict[tuple[int, int], arb], states: list[int]) -> None:
        """Add the worst that a state not seen yet can do; two such states need not be the same."""
        end = self.data.n_states
        for s in states:
            table[s, end] = max(table[s, y] for y in states)
            table[end, s] = max(table[x, s] for x in states)
        table[end, end] = max(table[s, end] for s in states)

    def _gains(self, h: int, s: int, later: Relations) -> dict[int, arb]:
        """Return by how much each action may be worth more than the policy, where it may (``v_ok``)."""
        sheet, chosen, gains = self.absolute[h], self.data.action(h, s), {}
        if not self.plan.quotient(sheet.optimum[s], sheet.policy[s]) > 1:
            return {}
        after, own = self.absolute[h + 1].with_ratios(later.rho), self.row(h, s, chosen)
        for a in self.data.actions(h, s):
            if a == chosen:
                times = self.plan.same(own, after)
                if times > 1 and own.visits:
                    times = min(times, self.plan.same(own, self._relative(own, later)))
            elif (times := self._first(h, s, a)) > 1:
                times = self.plan.deviation(self.row(h, s, a), own, after, ANYWHERE, times)
                if times > 1:
                    times = self.compare(self.row(h, s, a), own, later.d, later.r, times)
            if times > 1:
                gains[a] = times
        return gains

    def _relative(self, row: Weighted, later: Relations) -> Sheet:
        """Return values in units of that of the most frequent successor; for β < 0 those are Z^π/ρ."""
        after, ref = Sheet(self.data.n_states, self.positive).with_ratios(later.rho), row.frequent
        for y in row.tally:
            low, high = (ONE, ONE) if y == ref else (1 / later.d[ref, y], later.d[y, ref])
            rho = ONE if self.positive else later.rho[y]
            after.box()[0][y], after.top[y] = lower(low / rho), upper(high / rho)
        return after

    def compare(self, other: Weighted, base: Weighted, d: Table, table: Table, known: arb) -> arb:
        """Return a bound on the ratio of the values of two rows, not above ``known`` (``pair_ok``).

        The ratio is that of ``other`` to ``base`` for β > 0, its inverse for β < 0. The future of the base is the policy's;
        ``table`` bounds what the other row's successors are worth in units of the base's. In units of a reference, the
        values of the base's successors lie in a box. Some are tried at both ends, the others are taken at their worse end
        on either side.
        """
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
            return base.mean(values(corners[c], not self.positive), not self.positive)

        def moved(move: Move, u: dict[int, arb], i: int) -> arb:
            """Return what successor ``i`` of the other row is worth: an average over the base's that it is moved to."""
            worth = {j: u[j] * table[i, j] if self.positive else u[j] / table[j, i] for j in move[i]}
            return sum((k * worth[j] for j, k in move[i].items()), arb(0)) / sum(map(arb, move[i].values()), arb(0))

        best = known
        for move in self._moves(other, base, ref, d):
            worst = arb(0)
            for c, corner in enumerate(corners):
                u = values(corner, self.positive)
                mean = other.mean({i: moved(move, u, i) for i in move}, self.positive)
                worst = max(worst, self.plan.quotient(mean, base_mean(c)))
                if not worst < best:
                    break
            best = min(best, worst)
        return best

    def _moves(self, other: Weighted, base: Weighted, ref: int, d: Table) -> list[Move]:
        """Return ways to move the other row's successors onto the base's."""
        stay = {i: {i if i in base.tally else ref: 1.0} for i in other.tally}
        theirs, mine = other.law(self.positive, ref, d), base.law(not self.positive, ref, d)
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


def _reference(other: Weighted, base: Weighted) -> int:
    """Return the successor of both whose smaller share of visits is largest, else the base's most frequent one."""
    return next(iter(shared(base, other)), base.frequent)
