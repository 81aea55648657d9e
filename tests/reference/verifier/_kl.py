"""KL method: bounds from the counts."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

from entropic_bpi.verification._file import Rejected
from reference.verifier._ball import Ball, extreme_mean, holds_none
from reference.verifier._claim import Bounds, Claim, Cut, Outcome, Paid
from reference.verifier._intervals import LARGEST_EXPONENT, Interval, power, toward, up
from reference.verifier._pairs import PairCertificate, Step
from reference.verifier._payments import between, worth
from reference.verifier._radius import mixture_radius
from reference.verifier._ratio import Sheet, other_action, same_action

_SMALLEST_EXPONENT = 1e-5  # of |β|·range; below, a nearby β is used and the claim widened


def kl_bounds(claim: Claim) -> Bounds:
    return Bounds(*bounds_at(claim, claim.beta, claim.test))


def bounds_at(claim: Claim, stated: float, test: str | None) -> tuple[float, float, float]:
    """Bounds on the policy's value, the optimum and the gap at risk parameter ``stated``, the gap by ``test`` if any."""
    low, high = claim.reward_range
    (shortest, longest), beta = claim.duration, stated
    spread = (high - low) * float(longest)
    exponent = abs(beta) * spread
    if exponent > LARGEST_EXPONENT * (1.0 + 1e-9):
        raise Rejected(f"|beta| times the range of the return is {exponent:.6g}, beyond {LARGEST_EXPONENT:g}")
    if exponent < _SMALLEST_EXPONENT:
        beta = math.copysign(_SMALLEST_EXPONENT / spread if spread > 0.0 else 1.0, beta)
    method = _KL(claim, beta, None if claim.leaves else test)
    lower, upper, gap = method.bounds()
    if claim.leaves:
        gap = max(method.gap_in(*leaf) for leaf in claim.leaves)
    # V_β grows with β, by at most |β - β'| range² / 8 (Hoeffding's lemma).
    bias = abs(Fraction(beta) - Fraction(stated)) * (Fraction(high) - Fraction(low)) ** 2 * longest**2 / 8
    offsets = Fraction(low) * shortest, Fraction(low) * longest
    least, most = (Fraction(0), Fraction(0)) if claim.discounting is None else claim.discounting.tail(low, high)
    lower = Interval.of(min(offsets) + Fraction(lower) - (bias if beta > stated else 0) + least).low
    upper = Interval.of(max(offsets) + Fraction(upper) + (bias if beta < stated else 0) + most).high
    width = up(upper - lower)
    return lower, upper, width if test is None else min(Interval.of(Fraction(gap) + bias + most - least).high, width)


def _close(table: dict[frozenset[int], tuple[float, float]], everything: frozenset[int]) -> None:
    """Improve what is known of the probabilities of events by the fact that those of disjoint ones add up."""
    known = {**table, everything: (1.0, 1.0)}
    for _ in range(3):
        for a, b in product(table, table):
            if a & b:
                continue
            (low_a, high_a), (low_b, high_b), (low, high) = known[a], known[b], known[a | b]
            if a | b != everything:
                known[a | b] = max(low, low_a + low_b - 1e-14), min(high, high_a + high_b + 1e-14)
                low, high = known[a | b]
            known[a] = max(low_a, low - high_b - 1e-14), min(high_a, high - low_b + 1e-14)
    table.update({event: known[event] for event in table})


class _KL:
    """The bounds of one claim, at a β that is not too small."""

    def __init__(self, claim: Claim, beta: float, test: str | None) -> None:
        self.claim, self.beta, self.sign, self.test = claim, beta, 1 if beta > 0 else -1, test
        self.origin = claim.reward_range[0]
        self.balls: dict[int, Ball] = {}
        self.limits = [self._limit(step) for step in range(claim.horizon)]
        # Where rewards are random, half of δ is for the transitions and half for the rewards, two sides of each.
        shares = 2.0 if claim.random_rewards else 1.0
        self.log_union = (Interval.of(shares * max(self._rows_at_risk(), 1)) / claim.delta).log().high
        # The rewards of each β that was declared have their equal part of it.
        laws = max(self._laws_at_risk(), 1) * (1 if claim.lams is None else len(claim.lams))
        self.log_rewards = (Interval.of(4.0 * laws) / claim.delta).log().high

    def gap_in(self, test: str, cuts: list[Cut]) -> float:
        """The gap on a part of the balls."""
        part = _KL(self.claim, self.beta, test)
        for law in {cut[0] for cut in cuts}:
            events, labels = self._events(law), self.claim.labels_of(law)
            table = {
                frozenset(event): (0.0, 1.0) for size in range(1, len(labels)) for event in combinations(labels, size)
            }
            for row, own in events.items():
                for j, event in enumerate(own):
                    unit = [float(i == j) for i in range(len(own))]
                    low, high = (extreme_mean(self._ball(row), unit, side) for side in (-1, 1))
                    table[event] = max(table[event][0], low), min(table[event][1], high)
            for _, event, at, side in (cut for cut in cuts if cut[0] == law):
                low, high = table[event]
                table[event] = (low, min(high, at)) if side else (max(low, at), high)
            _close(table, frozenset(labels))
            for row, own in events.items():
                least, most = [table[event][0] for event in own], [table[event][1] for event in own]
                if any(a > b + 1e-9 for a, b in zip(least, most, strict=True)):
                    return 0.0
                if test == "empty" and holds_none(self._ball(row), least, most):
                    return 0.0
                part.balls[row] = replace(self._ball(row), box=(least, most))
        if test == "empty":
            raise Rejected("claim.cuts: a leaf is said to hold no kernel, and may hold one")
        lower, upper, gap = part.bounds()
        return min(gap, up(upper - lower))

    def _events(self, law: int) -> dict[int, list[frozenset[int]]]:
        """The rows of a law that can do several things, and which event each of these is."""
        claim, noise = self.claim, self.claim.noise
        if noise is None:
            return {law: [frozenset([y]) for y in self._ball(law).successors]}
        pairs = [pair for pair, g in enumerate(noise.law) if g == law and len(set(noise.slot_of[pair])) > 1]
        return {pair: [noise.labels(pair, at) for at in range(len(claim.row_slots[pair]))] for pair in pairs}

    def _rows_at_risk(self) -> int:
        """P: rows with several possible outcomes that matter, fixed before any data."""
        claim = self.claim
        steps = claim.steps if claim.rewards is None else claim.steps - 1
        rows = {row for h in range(steps) for s in claim.reachable[h] for row in claim.rows_at(h, s)}
        rows = {row for row in rows if claim.most(row) > 1}
        if claim.noise is None:
            return len(rows)
        pairs = {row for row in rows if not claim.is_start(row)}
        return len({claim.noise.ball(pair) for pair in pairs}) + len(rows - pairs)

    def _limit(self, step: int) -> Interval:
        """Between what e^{β·return} from a (real) step on lies, rewards counted from the smallest, wherever anybody can be.

        By then at least ``step`` times the smallest and at most as often the largest reward was paid, and what follows does
        not depend on it.
        """
        claim = self.claim
        if claim.return_range is None:
            return Interval(0.0, math.inf)
        (low, high), (least, most) = claim.reward_range, claim.return_range
        paid, room = Fraction(low) * claim.horizon, Fraction(claim.return_room)
        lowest = Fraction(least) - room - paid - step * (Fraction(high) - Fraction(low))
        ends = [Interval.of(Fraction(self.beta) * end) for end in (lowest, Fraction(most) + room - paid)]
        bottom, top = min(end.low for end in ends), max(end.high for end in ends)
        beyond = LARGEST_EXPONENT + 1.0  # of no use, but not a float either
        return Interval(
            Interval.of(bottom).exp().low if bottom > -beyond else 0.0,
            Interval.of(top).exp().high if top < beyond else math.inf,
        )

    def limit(self, h: int) -> Interval:
        """The same at planned step ``h``: the artificial one is like the first."""
        return self.limits[max(0, h - self.claim.random_start)]

    def _laws_at_risk(self) -> int:
        """How many laws of rewards may have to be learned, at any step; one for each outcome, or one for all of a row."""
        claim = self.claim
        rows = {row for h in range(claim.steps) for s in claim.reachable[h] for row in claim.rows_at(h, s)}
        laws = 0
        for row in rows:
            slot = claim.row_slots[row][0]
            if claim.random_rewards and claim.slot_low[0][slot] < claim.slot_high[0][slot]:
                laws += 1 if claim.reward_law == "random-pair" else claim.most(row)
        return laws

    def ball(self, h: int, s: int, a: int) -> Ball:
        row = self.claim.row(h, s, a)
        if row not in self.balls:
            self.balls[row] = self._ball(row)
        return self.balls[row]

    def _ball(self, row: int) -> Ball:
        claim = self.claim
        outcomes = claim.outcomes(row)
        tallies = [outcome.times for outcome in outcomes]
        radius = math.inf
        if len(outcomes) > 1 and any(tallies):
            mixture = mixture_radius([count for count in tallies if count], claim.possible[row], claim.most(row))
            radius = up(up(self.log_union + mixture) / sum(tallies))
        weights: list[list[Interval]] = []
        if claim.rewards is None and not claim.is_start(row):
            for step, (lows, highs) in enumerate(self._tables(row)):
                if claim.random_rewards:
                    weights.append(self._random_weights(row, outcomes))
                    continue
                ends = [next(iter(paid)) if j is None else (lows[j], highs[j]) for _, j, paid, _ in outcomes]
                if claim.discount is not None:
                    step = step if claim.stationary else claim.step_of(row)
                    weights.append([self._discounted(step, low, high) for low, high in ends])
                    continue
                weights.append([between(self.beta, low, high, self.origin) for low, high in ends])
        return Ball([outcome.successor for outcome in outcomes], tallies, radius, weights)

    def _tables(self, row: int) -> list[tuple[list[float], list[float]]]:
        """The rewards of the slots, once or, where they count less from step to step, for every step of the row."""
        claim = self.claim
        tables = list(zip(claim.slot_low, claim.slot_high, strict=True))
        return tables * claim.horizon if claim.discount is not None and claim.stationary else tables

    def _discounted(self, step: int, low: float, high: float) -> Interval:
        """e^{βγ^h(r - origin)} for a reward between two numbers."""
        assert self.claim.discounting is not None
        one, other = (self.claim.discounting.power(self.beta, step, end, self.origin) for end in (low, high))
        return Interval(min(one.low, other.low), max(one.high, other.high))

    def _random_weights(self, row: int, outcomes: list[Outcome]) -> list[Interval]:
        """E e^{βR} of each outcome: from what it paid, or from what the whole row paid."""
        slot, pair = self.claim.row_slots[row][0], self.claim.reward_law == "random-pair"
        low, high = self.claim.slot_low[0][slot], self.claim.slot_high[0][slot]
        together: dict[Paid, int] = {}
        for outcome in outcomes:
            for paid, times in outcome.paid.items():
                together[paid] = together.get(paid, 0) + times
        tables = [together] if pair else [outcome.paid for outcome in outcomes]
        weights = [worth(table, low, high, self.beta, self.origin, self.log_rewards) for table in tables]
        return weights * len(outcomes) if pair else weights

    def gain(self, h: int, s: int, a: int) -> Interval:
        """e^{βr(s,a)}; 1 where the next state decides, or at the artificial step."""
        reward = self.claim.reward(h, s, a)
        if reward is not None and self.claim.discount is not None:
            return self._discounted(h - self.claim.random_start, reward, reward)
        return Interval(1.0, 1.0) if reward is None else power(self.beta, reward, self.origin)

    def backup(self, h: int, s: int, a: int, values: list[float], side: int) -> float:
        """A bound from above (``side`` 1) or below (``side`` -1) on the mean of e^{βr} ``values`` after (h, s, a)."""
        ball, gain = self.ball(h, s, a), self.gain(h, s, a)
        weights = ball.weight(h - self.claim.random_start, side)
        f = [toward(e * values[y], side) for e, y in zip(weights, ball.successors, strict=True)]
        if self.claim.return_range is not None:
            limit = self.limit(h)
            f = [min(v, limit.high) if side > 0 else max(v, limit.low) for v in f]
        return toward((gain.high if side > 0 else gain.low) * extreme_mean(ball, f, side), side)

    def bounds(self) -> tuple[float, float, float]:
        """Bounds on the policy's value and the optimum less H times the smallest reward, and on the gap."""
        claim, later = self.claim, Sheet(self.claim.n_states, self.sign)
        steps = [Step(later, {})]
        for h in reversed(range(claim.steps)):
            now = Sheet(claim.n_states, self.sign)
            backups = {s: self._fill(now, later, h, s) for s in claim.reachable[h]}
            now.close(claim.reachable[h])
            later = now
            if self.test == "pairs":
                steps.insert(0, Step(now, backups))
            self._forget_rows()
        s, beta = claim.first_state, Interval.of(self.beta)
        optimum = Interval.of(later.optimum[s]).log() / beta
        policy = Interval.of(later.policy[s]).log() / beta
        ratio = self._pairs(steps) if self.test == "pairs" else later.ratio[s]
        return policy.low, optimum.high, (Interval.of(ratio).log() / abs(self.beta)).high

    def _forget_rows(self) -> None:
        """Rows of a step that no other step has."""
        if not self.claim.stationary:
            self.balls.clear()

    def _pairs(self, steps: list[Step]) -> float:
        """The ratio in the first state, by the pair certificate."""
        if self.claim.return_range is not None:
            raise Rejected("the pair certificate does not hold together with a range of returns")
        pairs = PairCertificate(self.claim, self.sign, steps)
        for h in reversed(range(self.claim.steps)):
            pairs.go_back(h, self.ball, self.gain)
            self._forget_rows()
        return pairs.ratio

    def _fill(self, now: Sheet, later: Sheet, h: int, s: int) -> dict[int, float]:
        """The bounds of one state at planned step ``h``, and the optimistic ones of its actions."""
        sign, actions, chosen = self.sign, self.claim.allowed_actions(h, s), self.claim.action(h, s)
        best = max if sign > 0 else min
        optimistic = {a: self.backup(h, s, a, later.optimum, sign) for a in actions}
        optimum = best(optimistic.values())
        policy = self.backup(h, s, chosen, later.policy, -sign)
        if self.test is None:  # the values alone
            now.optimum[s], now.policy[s] = optimum, policy
            return optimistic
        if sign > 0:
            top = min(self.backup(h, s, chosen, later.top, 1), optimum)
        else:
            top = max(min([policy] + [self.backup(h, s, a, later.top, 1) for a in actions]), optimum)
        now.optimum[s], now.policy[s], now.top[s] = optimum, policy, top
        plain = self._ratio(optimum, policy)
        step = h - self.claim.random_start
        worst = max(1.0, same_action(self.ball(h, s, chosen), step, later, self.limit(h)))
        for a in sorted(actions, key=lambda a: -sign * optimistic[a]):
            if a != chosen and (first := self._ratio(optimistic[a], policy)) > worst:
                worst = max(worst, self._deviation(later, h, s, a, chosen, first))
        now.ratio[s] = max(1.0, min(plain, worst))
        return optimistic

    def _deviation(self, later: Sheet, h: int, s: int, a: int, chosen: int, limit: float) -> float:
        """The ratio where ``a`` is optimal, or ``limit`` if that is smaller."""
        over, under = (a, chosen) if self.sign > 0 else (chosen, a)
        gains = up(self.gain(h, s, over).high / self.gain(h, s, under).low)
        above, below = self.ball(h, s, over), self.ball(h, s, under)
        return other_action(above, below, gains, h - self.claim.random_start, later, self.limit(h), limit)

    def _ratio(self, optimistic: float, pessimistic: float) -> float:
        return up(optimistic / pessimistic) if self.sign > 0 else up(pessimistic / optimistic)
