"""Bounds by planning over the balls, and the ratio of the optimum to the policy (Gap.v)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from flint import arb

from entropic_bpi.verification.rigorous._ball import ONE, highest_mean, lower, lowest_mean, tilted_law, upper
from entropic_bpi.verification.rigorous._data import Data, Outcome, Row

_MAX_SHARED = 3  # successors of both actions; every corner of their values is tried
_INFINITY = arb("inf")


class Weighted(NamedTuple):
    """A row at one step with the ends of e^{βr} of its outcomes."""

    row: Row
    low: list[arb]
    high: list[arb]

    def highest(self, values: list[arb]) -> arb:
        return highest_mean(self.row.counts, self.row.radius, values)

    def lowest(self, values: list[arb]) -> arb:
        return lowest_mean(self.row.counts, self.row.radius, values)


class Sheet:
    """One step of the recursion. Lists have an entry for each state, and one for "some state not seen yet".

    For β > 0: Z* ≤ ``optimum``, Z^π ≥ ``policy``; for β < 0 the other way round. ``top`` bounds Z^π for β > 0 and Z* for
    β < 0 from above. ``ratio`` ≥ Z*/Z^π, or its inverse for β < 0.
    """

    def __init__(self, n_states: int, positive: bool) -> None:
        self.positive = positive
        self.optimum, self.policy, self.top, self.ratio = ([ONE] * (n_states + 1) for _ in range(4))

    def close(self, states: list[int]) -> None:
        """Set the last entries to the worst of ``states``."""
        best, worst = (max, min) if self.positive else (min, max)
        self.optimum[-1] = best(self.optimum[s] for s in states)
        self.policy[-1] = worst(self.policy[s] for s in states)
        self.top[-1] = max(self.top[s] for s in states)
        self.ratio[-1] = max(self.ratio[s] for s in states)

    def box(self) -> tuple[list[arb], list[arb], list[arb]]:
        """Return ``lo``, ``hi`` and ``cap`` of Gap.v: z lies between the first two, and the third bounds ρz."""
        low, cap = (self.policy, self.optimum) if self.positive else (self.optimum, self.policy)
        return low, self.top, cap


Step = tuple[Sheet, dict[int, dict[int, arb]]]  # and the optimistic bounds of the actions of each state


class Plan:
    """The bounds of one claim at one risk parameter. ``test`` names the certificate of the gap, None for values alone."""

    def __init__(self, data: Data, beta: arb, test: str | None) -> None:
        self.data, self.beta, self.test, self.positive = data, beta, test, bool(beta > 0)
        self.origin = data.reward_range[0]
        self.weighted, self.power = cache(self._weighted), cache(self._power)
        self.ends, self.limit = cache(self._ends), cache(self._limit)

    def steps(self) -> Iterator[Step]:
        """Yield the bounds of every step, from the end of the episode backwards."""
        data, later = self.data, Sheet(self.data.n_states, self.positive)
        yield later, {}
        for h in reversed(range(data.steps)):
            now = Sheet(data.n_states, self.positive)
            backups = {s: self._fill(now, later, h, s) for s in data.reachable[h]}
            now.close(data.reachable[h])
            later = now
            yield now, backups

    # -- rows and their weights

    def _weighted(self, h: int, s: int, a: int) -> Weighted:
        data, step, i = self.data, h - self.data.random_start, self.data.row_of(h, s, a)
        row = data.row(i)
        if step < 0:
            return Weighted(row, [ONE] * len(row.counts), [ONE] * len(row.counts))
        rewards = data.problem["rewards"]
        if rewards is not None:
            reward = rewards[step if len(rewards) > 1 else 0][s][a]
            low, high = self.power(step, reward, reward)
            return Weighted(row, [low] * len(row.counts), [high] * len(row.counts))
        repeats = data.problem["discount"] is None and len(data.slots["low"]) == 1
        ends = self.ends(i, 0 if repeats else step)
        return Weighted(row, [low for low, _ in ends], [high for _, high in ends])

    def _power(self, step: int, least: float, most: float) -> tuple[arb, arb]:
        """Return the ends of e^{βr}, r between two rewards, counted from the smallest and discounted."""
        scale = self.beta * arb(self.data.problem["discount"] or 1.0) ** step
        ends = [(scale * (arb(reward) - arb(self.origin))).exp() for reward in (least, most)]
        return min(map(lower, ends)), max(map(upper, ends))

    def _ends(self, row: int, step: int) -> list[tuple[arb, arb]]:
        """Return the ends of e^{βr} of every outcome of a row, where the next state decides."""
        data, outcomes = self.data, self.data.row(row).outcomes
        if data.random_rewards:
            return self._random_ends(row, outcomes)
        tables = [table[step if len(table) > 1 else 0] for table in (data.slots["low"], data.slots["high"])]
        return [
            self.power(step, *(next(iter(o.paid)) if o.slot is None else (tables[0][o.slot], tables[1][o.slot])))
            for o in outcomes
        ]

    def _random_ends(self, row: int, outcomes: list[Outcome]) -> list[tuple[arb, arb]]:
        """Return bounds on E e^{βR} of every outcome: from what it paid, or from what the whole row paid."""
        slot = self.data.slots_of(row)[0]
        low, high = self.data.slots["low"][0][slot], self.data.slots["high"][0][slot]
        if self.data.problem["reward_law"] != "random-pair":
            return [self._mean_power(outcome.paid, low, high) for outcome in outcomes]
        together: dict[tuple[float, float], int] = {}
        for outcome in outcomes:
            for paid, times in outcome.paid.items():
                together[paid] = together.get(paid, 0) + times
        return [self._mean_power(together, low, high)] * len(outcomes)

    def _mean_power(self, paid: dict[tuple[float, float], int], low: float, high: float) -> tuple[arb, arb]:
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
            return arb(0), _INFINITY
        low, high = map(arb, data.reward_range)
        least, most = declared_returns(data)
        step, paid = max(0, h - data.random_start), low * data.horizon
        ends = [(self.beta * end).exp() for end in (least - paid - step * (high - low), most - paid)]
        return min(map(lower, ends)), max(map(upper, ends))

    # -- one state

    def _backup(self, h: int, s: int, a: int, values: list[arb], above: bool) -> arb:
        """Return a bound on the mean of e^{βr} ``values`` after (h, s, a)."""
        row, (least, most) = self.weighted(h, s, a), self.limit(h)
        after = [values[y] for y in row.row.successors]
        if above:
            return row.highest([min(upper(e * z), most) for e, z in zip(row.high, after, strict=True)])
        return row.lowest([max(lower(e * z), least) for e, z in zip(row.low, after, strict=True)])

    def quotient(self, optimistic: arb, pessimistic: arb) -> arb:
        """Return an upper bound on the ratio of two values, the one that is worth more above."""
        return upper(optimistic / pessimistic if self.positive else pessimistic / optimistic)

    def _fill(self, now: Sheet, later: Sheet, h: int, s: int) -> dict[int, arb]:
        """Set the bounds of one state and return the optimistic ones of its actions (``values_ok``, ``rho_ok``)."""
        positive, actions, chosen = self.positive, self.data.actions(h, s), self.data.action(h, s)
        optimistic = {a: self._backup(h, s, a, later.optimum, positive) for a in actions}
        optimum = max(optimistic.values()) if positive else min(optimistic.values())
        policy = self._backup(h, s, chosen, later.policy, not positive)
        now.optimum[s], now.policy[s] = optimum, policy
        if self.test is None:
            return optimistic
        if positive:
            now.top[s] = min(self._backup(h, s, chosen, later.top, True), optimum)
        else:
            now.top[s] = max(min([policy] + [self._backup(h, s, a, later.top, True) for a in actions]), optimum)
        worst = max(ONE, self.same(h, s, later, self.limit(h)))
        for a in actions:
            if a != chosen and (first := self.quotient(optimistic[a], policy)) > worst:
                worst = max(worst, self.deviation(h, s, a, later, self.limit(h), first))
        now.ratio[s] = max(ONE, min(self.quotient(optimum, policy), worst))
        return optimistic

    def same(self, h: int, s: int, later: Sheet, limit: tuple[arb, arb]) -> arb:
        """Return a bound on the ratio where the policy's action is optimal (``same_ok``).

        It is the largest average of the next ρ under weights q e^{βr} z. Floats find the level; it is returned only if
        its excess certainly is not positive, and raised otherwise.
        """
        bottom, top, _ = later.box()
        row = self.weighted(h, s, self.data.action(h, s))
        successors = row.row.successors
        rho = [later.ratio[y] for y in successors]
        largest = max(rho)
        if not largest > 1 or row.row.radius is None:
            return largest
        high = [min(upper(e * top[y]), limit[1]) for e, y in zip(row.high, successors, strict=True)]
        low = [max(lower(e * bottom[y]), limit[0]) for e, y in zip(row.low, successors, strict=True)]
        level, room = arb(_average(row.row, rho, low, high)), arb(2) ** -52
        while level < largest:
            excess = [upper((r - level) * (u if r > level else d)) for r, u, d in zip(rho, high, low, strict=True)]
            if row.highest(excess) <= 0:
                return level
            level, room = upper(level + room), 4 * room
        return largest

    def deviation(self, h: int, s: int, a: int, later: Sheet, limit: tuple[arb, arb], known: arb) -> arb:
        """Return a bound on the ratio where ``a`` is optimal and not the policy's, not above ``known`` (``dev2_ok``).

        Up to three successors that both actions have been seen to lead to share their z, at either corner of what matters;
        for the others z is taken at its worst on each side.
        """
        chosen = self.data.action(h, s)
        above, below = (self.weighted(h, s, action) for action in ((a, chosen) if self.positive else (chosen, a)))
        (bottom, top, caps), ratio = later.box(), later.ratio
        shared, worst = _shared(above.row, below.row), arb(0)
        cap = list(caps)
        for y in shared:
            weakest = min(e for e, z in zip(above.high, above.row.successors, strict=True) if z == y)
            cap[y] = min(cap[y], upper(limit[1] / weakest))
        for raised in product((False, True), repeat=len(shared)):
            least, most = list(bottom), list(top)
            for y, is_raised in zip(shared, raised, strict=True):
                kink = cap[y] / ratio[y]
                least[y] = max(bottom[y], min(top[y], lower(kink))) if is_raised else bottom[y]
                most[y] = max(bottom[y], min(top[y], upper(kink))) if is_raised else bottom[y]
            numerator, denominator = [], []
            for e, y in zip(above.high, above.row.successors, strict=True):
                value = upper(e * min(cap[y], upper(ratio[y] * most[y])))
                numerator.append(value if y in shared else min(value, limit[1]))
            for e, y in zip(below.low, below.row.successors, strict=True):
                value = lower(e * least[y])
                denominator.append(value if y in shared else max(value, limit[0]))
            worst = max(worst, upper(above.highest(numerator) / below.lowest(denominator)))
            if not worst < known:
                return known
        return worst


def declared_returns(data: Data) -> tuple[arb, arb]:
    """Return the ends of the declared range of returns, with room for the rounding of sums of rewards."""
    low, high = data.reward_range
    room = arb(1e-9 * ((high - low) * data.horizon))
    least, most = map(arb, data.problem["return_range"])
    return lower(least - room), upper(most + room)


def _average(row: Row, rho: list[arb], low: list[arb], high: list[arb]) -> float:
    """Return roughly the largest average of ρ under laws of the ball and weights in boxes, by Dinkelbach's method."""
    unit, ratios = max(high), [float(r) for r in rho]
    lows, highs = [float(w / unit) for w in low], [float(w / unit) for w in high]
    level = 1.0
    for _ in range(60):
        weights = [u if r > level else d for r, u, d in zip(ratios, highs, lows, strict=True)]
        q = tilted_law(row.counts, row.radius, [(r - level) * w for r, w in zip(ratios, weights, strict=True)])
        total = sum(p * w for p, w in zip(q, weights, strict=True))
        higher = sum(p * w * r for p, w, r in zip(q, weights, ratios, strict=True)) / total if total > 0.0 else level
        if not higher > level * (1.0 + 4e-16):
            break
        level = higher
    return level


def _shared(above: Row, below: Row) -> list[int]:
    """Return successors seen in both rows, those first whose smaller share of visits is largest."""

    def tally(row: Row, y: int) -> int:
        return sum(count for z, count in zip(row.successors, row.counts, strict=True) if z == y)

    def order(y: int) -> tuple[int, int]:
        return -min(tally(above, y) * sum(below.counts), tally(below, y) * sum(above.counts)), y

    both = {y for y in above.successors if tally(above, y) and tally(below, y)}
    return sorted(both, key=order)[:_MAX_SHARED]
