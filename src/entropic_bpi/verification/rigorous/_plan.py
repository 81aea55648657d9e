"""Bounds by planning over the balls, and the ratio of the optimum to the policy (Gap.v)."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache, cached_property
from itertools import product

from flint import arb

from entropic_bpi.verification.rigorous._ball import ONE, highest_mean, largest_average, lower, lowest_mean, upper
from entropic_bpi.verification.rigorous._data import Data, Paid, Row

_MAX_SHARED = 3  # successors of both actions; every corner of their values is tried
ANYWHERE = arb(0), arb("inf")

Values = Sequence[arb] | Mapping[int, arb]  # by state
Table = Mapping[tuple[int, int], arb]


class Weighted:
    """A row at one step with the ends of e^{βr} of its outcomes."""

    def __init__(self, row: Row, low: list[arb], high: list[arb]) -> None:
        self.row, self.low, self.high, self.visits = row, low, high, sum(row.counts)

    @cached_property
    def tally(self) -> dict[int, int]:
        """How often it went where, in the order of the states."""
        tally = dict.fromkeys(sorted(self.row.successors), 0)
        for y, count in zip(self.row.successors, self.row.counts, strict=True):
            tally[y] += count
        return tally

    @cached_property
    def frequent(self) -> int:
        return max(self.tally, key=lambda y: self.tally[y])

    def ends(self, above: bool) -> list[arb]:
        return self.high if above else self.low

    def products(
        self, values: Values, above: bool, limit: tuple[arb, arb] = ANYWHERE, free: Collection[int] = ()
    ) -> list[arb]:
        """Return e^{βr} ``values`` of every outcome, rounded up or down, and cut to ``limit`` except for ``free`` states."""
        rounded, cut = (upper, min) if above else (lower, max)
        pairs = zip(self.ends(above), self.row.successors, strict=True)
        return [rounded(e * values[y]) if y in free else cut(rounded(e * values[y]), limit[above]) for e, y in pairs]

    def extreme(self, terms: list[arb], above: bool) -> arb:
        return (highest_mean if above else lowest_mean)(self.row.counts, self.row.radius, terms)

    def mean(self, values: Values, above: bool, limit: tuple[arb, arb] = ANYWHERE, free: Collection[int] = ()) -> arb:
        """Return a bound on the mean of e^{βr} ``values``, from above or below."""
        return self.extreme(self.products(values, above, limit, free), above)

    def law(self, above: bool, ref: int, d: Table) -> dict[int, float]:
        """Return shares of the successors, tilted by e^{βr} and by what follows; empty if floats cannot tell."""
        mass = dict.fromkeys(self.tally, 0.0)
        for y, count, e in zip(self.row.successors, self.row.counts, self.ends(above), strict=True):
            tilt = 1.0 if y == ref else math.sqrt(float(d[y, ref] / d[ref, y]))
            mass[y] += float(e) * tilt * (count if self.visits else 1)
        total = sum(mass.values())
        return {y: part / total for y, part in mass.items()} if 0.0 < total < math.inf else {}


def shared(one: Weighted, other: Weighted) -> list[int]:
    """Return successors seen in both rows, those first whose smaller share of visits is largest."""
    both = {y: min(n * other.visits, other.tally.get(y, 0) * one.visits) for y, n in one.tally.items()}
    return sorted((y for y in both if both[y]), key=lambda y: (-both[y], y))


class Sheet:
    """One step of the recursion. Lists have an entry for each state, and one for "some state not seen yet".

    For β > 0: Z* ≤ ``optimum``, Z^π ≥ ``policy``; for β < 0 the other way round. ``top`` bounds Z^π for β > 0 and Z* for
    β < 0 from above. ``ratio`` ≥ Z*/Z^π, or its inverse for β < 0. ``backups`` are the optimistic bounds of the actions.
    """

    def __init__(self, n_states: int, positive: bool) -> None:
        self.positive = positive
        self.optimum, self.policy, self.top, self.ratio = ([ONE] * (n_states + 1) for _ in range(4))
        self.backups: dict[int, dict[int, arb]] = {}

    def close(self, states: list[int]) -> None:
        """Set the last entries to the worst of ``states``."""
        best, worst = (max, min) if self.positive else (min, max)
        tables = ((self.optimum, best), (self.policy, worst), (self.top, max), (self.ratio, max))
        for table, extreme in tables:
            table[-1] = extreme(table[s] for s in states)

    def with_ratios(self, ratio: list[arb]) -> "Sheet":
        """Return the same absolute bounds with other ratios."""
        other = copy(self)
        other.ratio = ratio
        return other

    def box(self) -> tuple[list[arb], list[arb], list[arb]]:
        """Return ``lo``, ``hi`` and ``cap`` of Gap.v: z lies between the first two, and the third bounds ρz."""
        low, cap = (self.policy, self.optimum) if self.positive else (self.optimum, self.policy)
        return low, self.top, cap


class Plan:
    """The bounds of one claim at one risk parameter. ``test`` names the certificate of the gap, None for values alone."""

    def __init__(self, data: Data, beta: arb, test: str | None) -> None:
        self.data, self.beta, self.test, self.positive = data, beta, test, bool(beta > 0)
        self.weighted, self.power = cache(self._weighted), cache(self._power)
        self.ends, self.limit = cache(self._ends), cache(self._limit)

    def steps(self) -> Iterator[Sheet]:
        """Yield the bounds of every step, from the end of the episode backwards."""
        data, now = self.data, Sheet(self.data.n_states, self.positive)
        yield now
        for h in reversed(range(data.steps)):
            later, now = now, Sheet(data.n_states, self.positive)
            for s in data.reachable[h]:
                self._fill(now, later, h, s)
            now.close(data.reachable[h])
            yield now

    # -- rows and their weights

    def _weighted(self, h: int, s: int, a: int) -> Weighted:
        data, step, i = self.data, h - self.data.random_start, self.data.row_of(h, s, a)
        row, rewards = data.row(i), data.problem["rewards"]
        if step < 0:
            ends = [(ONE, ONE)] * len(row.counts)
        elif rewards is not None:
            reward = rewards[step if len(rewards) > 1 else 0][s][a]
            ends = [self.power(step, reward, reward)] * len(row.counts)
        else:
            repeats = data.problem["discount"] is None and len(data.slots["low"]) == 1
            ends = self.ends(i, 0 if repeats else step)
        return Weighted(row, [low for low, _ in ends], [high for _, high in ends])

    def _power(self, step: int, least: float, most: float) -> tuple[arb, arb]:
        """Return the ends of e^{βr}, r between two rewards, counted from the smallest and discounted."""
        scale, origin = self.beta * arb(self.data.problem["discount"] or 1.0) ** step, arb(self.data.reward_range[0])
        return _hull((scale * (arb(reward) - origin)).exp() for reward in (least, most))

    def _ends(self, row: int, step: int) -> list[tuple[arb, arb]]:
        """Return the ends of e^{βr} of every outcome of a row, where the next state decides.

        Of random rewards they bound E e^{βR}: from what the outcome paid, or from what the whole row paid.
        """
        data, outcomes = self.data, self.data.row(row).outcomes
        if not data.random_rewards:
            tables = [table[step if len(table) > 1 else 0] for table in (data.slots["low"], data.slots["high"])]
            declared = [
                (tables[0][o.slot], tables[1][o.slot]) if o.slot is not None else next(iter(o.paid)) for o in outcomes
            ]
            return [self.power(step, *ends) for ends in declared]
        if data.problem["reward_law"] != "random-pair":
            return [self._mean_power(outcome.paid, *data.range_of(row)) for outcome in outcomes]
        together = sum((Counter(outcome.paid) for outcome in outcomes), Counter[Paid]())
        return [self._mean_power(together, *data.range_of(row))] * len(outcomes)

    def _mean_power(self, paid: Mapping[Paid, int], low: float, high: float) -> tuple[arb, arb]:
        """Return bounds on E e^{βR} of a random reward on [low, high] (``interval_ok`` in Random.v)."""
        n = sum(paid.values())
        if not n or low == high:
            return self.power(0, low, high)
        ends = [self.power(0, *values) for values in (*paid, (low, low), (high, high))]
        counts, radius = [*paid.values(), 0, 0], self.data.betting_radius(n)
        return lowest_mean(counts, radius, [e for e, _ in ends]), highest_mean(counts, radius, [e for _, e in ends])

    def _limit(self, h: int) -> tuple[arb, arb]:
        """Return between what e^{β·return} from planned step ``h`` on lies, rewards counted from the smallest.

        Before that step at least the smallest and at most the largest reward was paid at every step.
        """
        data = self.data
        if data.problem["return_range"] is None:
            return ANYWHERE
        low, high = map(arb, data.reward_range)
        least, most = data.declared_returns()
        step, paid = max(0, h - data.random_start), low * data.horizon
        return _hull((self.beta * end).exp() for end in (least - paid - step * (high - low), most - paid))

    # -- one state

    def quotient(self, optimistic: arb, pessimistic: arb) -> arb:
        """Return an upper bound on the ratio of two values, the one that is worth more above."""
        return upper(optimistic / pessimistic if self.positive else pessimistic / optimistic)

    def _fill(self, now: Sheet, later: Sheet, h: int, s: int) -> None:
        """Set the bounds of one state (``values_ok``, ``rho_ok``)."""
        positive, limit, chosen = self.positive, self.limit(h), self.data.action(h, s)
        rows = {a: self.weighted(h, s, a) for a in self.data.actions(h, s)}
        optimistic = now.backups[s] = {a: row.mean(later.optimum, positive, limit) for a, row in rows.items()}
        optimum = max(optimistic.values()) if positive else min(optimistic.values())
        policy = rows[chosen].mean(later.policy, not positive, limit)
        now.optimum[s], now.policy[s] = optimum, policy
        if self.test is None:
            return
        if positive:
            now.top[s] = min(rows[chosen].mean(later.top, True, limit), optimum)
        else:
            now.top[s] = max(min([policy] + [row.mean(later.top, True, limit) for row in rows.values()]), optimum)
        worst = max(ONE, self.same(rows[chosen], later, limit))
        for a, row in rows.items():
            if a != chosen and (first := self.quotient(optimistic[a], policy)) > worst:
                worst = max(worst, self.deviation(row, rows[chosen], later, limit, first))
        now.ratio[s] = max(ONE, min(self.quotient(optimum, policy), worst))

    def same(self, row: Weighted, later: Sheet, limit: tuple[arb, arb] = ANYWHERE) -> arb:
        """Return a bound on the ratio where the policy's action, with this ``row``, is optimal (``same_ok``).

        It is the largest average of the next ρ under weights q e^{βr} z. Floats find the level; it is returned only if
        its excess certainly is not positive, and raised otherwise.
        """
        bottom, top, _ = later.box()
        rho = [later.ratio[y] for y in row.row.successors]
        largest = max(rho)
        if not largest > 1 or row.row.radius is None:
            return largest
        high, low = row.products(top, True, limit), row.products(bottom, False, limit)
        level, room = arb(largest_average(row.row.counts, row.row.radius, rho, low, high)), arb(2) ** -52
        while level < largest:
            excess = [upper((r - level) * (u if r > level else d)) for r, u, d in zip(rho, high, low, strict=True)]
            if row.extreme(excess, True) <= 0:
                return level
            level, room = upper(level + room), 4 * room
        return largest

    def deviation(self, row: Weighted, own: Weighted, later: Sheet, limit: tuple[arb, arb], known: arb) -> arb:
        """Return a bound on the ratio where the action of ``row`` is optimal, not above ``known`` (``dev2_ok``).

        ``own`` is the row of the policy's action. Up to three successors that both actions have been seen to lead to share
        their z, at either corner of what matters; for the others z is taken at its worst on each side.
        """
        above, below = (row, own) if self.positive else (own, row)
        (bottom, top, caps), ratio = later.box(), later.ratio
        both, cap, worst = shared(above, below)[:_MAX_SHARED], list(caps), arb(0)
        for y in both:
            weakest = min(e for e, z in zip(above.high, above.row.successors, strict=True) if z == y)
            cap[y] = min(cap[y], upper(limit[1] / weakest))
        for raised in product((False, True), repeat=len(both)):
            least, most = list(bottom), list(top)
            for y, is_raised in zip(both, raised, strict=True):
                kink = cap[y] / ratio[y]
                least[y] = max(bottom[y], min(top[y], lower(kink))) if is_raised else bottom[y]
                most[y] = max(bottom[y], min(top[y], upper(kink))) if is_raised else bottom[y]
            raised_values = {y: min(cap[y], upper(ratio[y] * most[y])) for y in above.tally}
            highest, lowest = above.mean(raised_values, True, limit, both), below.mean(least, False, limit, both)
            worst = max(worst, upper(highest / lowest))
            if not worst < known:
                return known
        return worst


def _hull(ends: Iterable[arb]) -> tuple[arb, arb]:
    """Return the smallest and the largest end of some enclosures."""
    found = list(ends)
    return min(map(lower, found)), max(map(upper, found))
