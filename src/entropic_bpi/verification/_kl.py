"""KL method: bounds from the counts."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from entropic_bpi.verification import _ball
from entropic_bpi.verification._ball import Balls, Rows, extreme_mean, mixture_radii, row_sums
from entropic_bpi.verification._claim import Claim, Leaf, Outcomes
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import (
    LARGEST_EXPONENT,
    Interval,
    between,
    double,
    double_above,
    double_below,
    exact,
    toward,
    up,
    where,
)
from entropic_bpi.verification._pairs import PairCertificate, Sheet, other_action, same_action

SMALLEST_EXPONENT = 1e-5  # of |β|·range; below, a nearby β is used and the claim widened

Report = Callable[[], object]  # called after each step


def nearby_beta(claim: Claim, stated: float) -> tuple[float, Fraction]:
    """Return the β at which bounds are computed, a larger one if digits would be lost, and how much that changes values."""
    (low, high), beta, longest = claim.reward_range, stated, claim.durations[1]
    spread = (high - low) * float(longest)
    exponent = abs(beta) * spread
    if not exponent <= LARGEST_EXPONENT * (1.0 + 1e-9):
        raise Rejected(f"|beta| times the range of the return is {exponent:.6g}, beyond {LARGEST_EXPONENT:g}")
    if exponent < SMALLEST_EXPONENT:
        beta = math.copysign(SMALLEST_EXPONENT / spread if spread > 0.0 else 1.0, beta)
    # V_β grows with β, by at most |β - β'| range² / 8 (Hoeffding's lemma).
    return beta, abs(Fraction(beta) - Fraction(stated)) * (Fraction(high) - Fraction(low)) ** 2 * longest**2 / 8


def bounds_at(claim: Claim, stated: float, test: str | None, report: Report) -> tuple[float, float, float]:
    """Return bounds on the policy's value, the optimum and the gap (by ``test``, if any) at risk parameter ``stated``."""
    beta, bias = nearby_beta(claim, stated)
    method = KLRecursion(claim, beta, None if test == "boxes" else test)
    (lower,), (upper,), (gap,) = (bound.tolist() for bound in method.bounds(report))
    if test == "boxes":
        gap = float(np.max([method.gap_on(leaves, report) for leaves in claim.leaf_batches]))  # NaN if one is NaN
    if not all(map(math.isfinite, (lower, upper, gap))):
        raise Rejected("the bounds cannot be computed: they are not finite")
    offsets = [Fraction(claim.reward_range[0]) * duration for duration in claim.durations]
    least, most = claim.tail
    lower = double_below(min(offsets) + Fraction(lower) - (bias if beta > stated else 0) + least)
    upper = double_above(max(offsets) + Fraction(upper) + (bias if beta < stated else 0) + most)
    width, gap = double_above(Fraction(upper) - Fraction(lower)), double_above(Fraction(gap) + bias + most - least)
    return lower, upper, width if test is None else min(gap, width)


class KLRecursion:
    """The bounds of one claim, at a β that is not too small.

    With ``boxes`` they are the bounds on several ``parts`` of the balls, all at once: rows and states exist once for each
    part, and ``boxes`` has bounds on the probabilities of a row, (2, outcomes, parts).
    """

    def __init__(
        self, claim: Claim, beta: float, test: str | None, boxes: dict[int, np.ndarray] | None = None, parts: int = 1
    ) -> None:
        self.boxes, self.parts = boxes or {}, parts
        self.claim, self.beta, self.sign, self.test = claim, beta, 1 if beta > 0 else -1, test
        self.origin = claim.reward_range[0]
        self.outcomes: dict[range, tuple[Outcomes | None, Rows]] = {}
        self.weighed = -1  # the step whose e^{βr} the rows have
        rows, laws = self._at_risk()
        # Where rewards are random, half of δ is for the transitions and half for the rewards, two sides of each.
        self.log_union = (Interval.of((1.0 + claim.random_rewards) * max(rows, 1)) / claim.delta).log().high
        # Each declared β has an equal part of the half for rewards.
        self.log_rewards = (Interval.of(4.0 * max(laws, 1) * len(claim.lams or [0])) / claim.delta).log().high

    def _at_risk(self) -> tuple[int, int]:
        """Return how many rows and laws of rewards may have to be learned, which is fixed before any data.

        These rows have several possible outcomes; those of the last step do not matter if rewards are known. There is a law
        of rewards for each outcome, or one for all outcomes of a row.
        """
        claim, concerned, laws = self.claim, np.zeros(self.claim.n_rows, dtype=bool), 0
        for h in range(claim.steps if claim.rewards is None else claim.steps - 1):
            concerned[claim.playable(h, claim.reachable[h])] = True
        played = np.flatnonzero(concerned)
        rows = played[claim.most[played] > 1]
        pairs = rows[~claim.is_start(rows)].tolist()
        balls = len(pairs) if claim.noise is None else len({claim.noise.balls[pair] for pair in pairs})
        if claim.random_rewards:
            slots = claim.begin[played]
            varying = played[claim.slot_low[0, slots] < claim.slot_high[0, slots]]
            laws = len(varying) if claim.reward_law == "random-pair" else int(claim.most[varying].sum())
        return balls + len(rows) - len(pairs), laws

    def limit(self, h: int) -> Interval:
        """Return the interval of e^{β·return} from planned step ``h`` on, with rewards counted from the smallest one.

        The rewards of the steps before add up to at least as many times the smallest and at most as many times the largest
        reward, and what follows does not depend on them. The artificial step is treated like the first one.
        """
        claim, step = self.claim, max(0, h - self.claim.random_start)
        if claim.return_range is None:
            return Interval(exact(0.0), exact(math.inf))
        (low, high), (least, most) = claim.reward_range, claim.return_range
        paid, room = Fraction(low) * claim.horizon, Fraction(claim.return_room)
        lowest = Fraction(least) - room - paid - step * (Fraction(high) - Fraction(low))
        ends = [Interval.of(Fraction(self.beta) * end) for end in (lowest, Fraction(most) + room - paid)]
        return Interval(min(end.low for end in ends), max(end.high for end in ends)).exp()

    # -- what is known of the rows of a step ---------------------------------------------------------------------------

    def balls(self, layer: range) -> tuple[Outcomes, np.ndarray]:
        """Return the outcomes of the rows of a layer, and their radii; infinite for rows without visits or uncertainty."""
        claim, outcomes = self.claim, self.claim.outcomes(layer)
        if layer not in claim.radii:  # the same for every β
            seen = outcomes.seen()
            concerned = (outcomes.sizes > 1) & (seen.sizes > 0)
            radii = claim.radii[layer] = exact(np.full(len(layer), np.inf))
            if concerned.any():
                counts, sizes = seen.times[concerned[seen.owner]], seen.sizes[concerned]
                numbers = np.array(layer)[concerned]
                mixture = mixture_radii(counts, sizes, claim.possible[numbers], claim.most[numbers])
                visits = Interval.of_integers(row_sums(counts, sizes))
                radii[concerned] = up(up(self.log_union + mixture) / visits.low)
        return outcomes, claim.radii[layer]

    def _rows_of(self, layer: range) -> tuple[Outcomes | None, Rows]:
        """Return the rows of a layer, and their outcomes if rewards depend on the next state."""
        if layer not in self.outcomes:
            if not self.claim.stationary:
                self.outcomes.clear()  # no other step has these rows
            (sizes, successors, _, times, *_), radii = outcomes, _ = self.balls(layer)
            sizes, successors, times, radii = (np.tile(part, self.parts) for part in (sizes, successors, times, radii))
            states = np.repeat(np.arange(self.parts) * (self.claim.n_states + 1), len(outcomes.successors))
            rows = Rows(sizes, successors + states, times, radii)
            for row, box in self.boxes.items():
                if row in layer:
                    rows.restrict(row - layer.start + np.arange(self.parts) * len(layer), box)
            self.outcomes[layer], self.weighed = (outcomes if self.claim.rewards is None else None, rows), -1
        return self.outcomes[layer]

    def rows(self, h: int) -> Rows:
        """Return the rows of planned step ``h``, with e^{βr} of their outcomes at that step."""
        claim, layer = self.claim, self.claim.layer(h)
        outcomes, rows = self._rows_of(layer)
        step = h - claim.random_start if claim.discount is not None or len(claim.slot_low) > 1 else 0
        if outcomes is not None and not claim.is_start(layer[-1]) and step != self.weighed:
            weights = self._weights(outcomes, layer, step)
            rows.weigh(Interval(*(np.tile(end, self.parts) for end in (weights.low, weights.high))))
            self.weighed = step
        return rows

    def numbers(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the numbers of the rows of some states among those of the step, (parts, states, actions)."""
        layer = self.claim.layer(h)
        return self.claim.rows(h, states) - layer.start + np.arange(self.parts)[:, None, None] * len(layer)

    def following(self, h: int, rows: np.ndarray) -> np.ndarray:
        """Return the states to which some rows of planned step ``h`` can lead."""
        found = np.zeros(self.claim.n_states + 1, dtype=bool)
        for _, (ball,) in self.rows(h).batches(rows):
            found[ball.successors] = True
        return self.claim.reachable[h + 1] if found[-1] and h + 1 < self.claim.steps else np.flatnonzero(found)

    # -- parts of the balls --------------------------------------------------------------------------------------------

    def gap_on(self, leaves: list[Leaf], report: Report) -> float:
        """Return the largest gap on some parts of the balls; reject a part that is stated to be empty and may not be."""
        boxes, empty = {}, np.zeros(len(leaves), dtype=bool)
        said = np.array([leaf.test == "empty" for leaf in leaves])
        for law in {cut[0] for leaf in leaves for cut in leaf.cuts}:
            events = self._events(law)
            table = np.repeat(self._table(law, events)[None], len(leaves), axis=0)
            is_cut = np.zeros(len(leaves), dtype=bool)
            for i, leaf in enumerate(leaves):
                for _, event, at, above in (cut for cut in leaf.cuts if cut[0] == law):
                    least, most = table[i, event]
                    table[i, event], is_cut[i] = (max(least, at), most) if above else (least, min(most, at)), True
            table = np.where(is_cut[:, None, None], _ball.closed(table), [0.0, 1.0])
            for row, outcomes in events.items():
                boxes[row] = table[:, outcomes].transpose(2, 1, 0)
                empty |= _ball.is_crossed(*boxes[row])
                for i in np.flatnonzero(said & is_cut & ~empty).tolist():
                    empty[i] = _ball.holds_none(self._one(row), *boxes[row][:, :, i])
        if np.any(said & ~empty):
            raise Rejected("claim.cuts: a leaf is said to hold no kernel, and may hold one")
        if empty.all():
            return 0.0
        boxes = {row: box[:, :, ~empty] for row, box in boxes.items()}
        lower, upper, gap = KLRecursion(self.claim, self.beta, "ratio", boxes, int((~empty).sum())).bounds(report)
        return float(np.minimum(gap, up(upper - lower)).max())

    def _one(self, row: int) -> Balls:
        """Return the whole ball of a single row."""
        layer = next(layer for layer in self.claim.layers if row in layer)
        return self._rows_of(layer)[1].one(row - layer.start)

    def _events(self, law: int) -> dict[int, list[int]]:
        """Return the rows of a law with several outcomes, and which of its events, as bits, each outcome is."""
        claim, noise = self.claim, self.claim.noise
        if noise is None:
            labels = claim.labels_of(law)
            return {law: [1 << labels.index(y) for y in self._one(law).successors[:, 0].tolist()]}
        return {
            pair: [sum(1 << w for w, at in enumerate(slots) if at == slot) for slot in range(claim.used[pair])]
            for pair, slots in enumerate(noise.slot_of)
            if noise.law[pair] == law and claim.used[pair] > 1
        }

    def _table(self, law: int, events: dict[int, list[int]]) -> np.ndarray:
        """Return bounds on the probabilities of the events of a law, by all balls of its rows."""
        table = np.tile([0.0, 1.0], (1 << len(self.claim.labels_of(law)), 1))
        for row in {tuple(sorted(bits)): row for row, bits in events.items()}.values():
            for event, low, high in zip(events[row], *_ball.intervals_of(self._one(row)), strict=True):
                table[event] = max(table[event, 0], low), min(table[event, 1], high)
        return table

    # -- what is paid --------------------------------------------------------------------------------------------------

    def _strength(self, step: int) -> Interval:
        """Return β or, if returns are discounted, βγ^h."""
        return Interval.of(self.beta) if self.claim.discount is None else self.claim.power(step) * self.beta

    def _weights(self, outcomes: Outcomes, layer: range, step: int) -> Interval:
        """Return bounds on e^{βr} of each outcome."""
        claim = self.claim
        if claim.random_rewards:
            return self._random_weights(outcomes, layer)
        return between(self._strength(step), *claim.paid(outcomes, step), self.origin)

    def _random_weights(self, outcomes: Outcomes, layer: range) -> Interval:
        """Return bounds on E e^{β(R - origin)} of each outcome, from its own rewards or from those of the whole row.

        They are the extreme means over a ball of laws on the rewards seen and both ends of the range: Proposition 6 on the
        page "The KL method".
        """
        claim, n = self.claim, 1 if self.claim.reward_law == "random-pair" else self.claim.n_states + 1
        seen, owner = claim.seen.between(layer.start, layer.stop), outcomes.owner
        least, most = claim.slot_low[0, claim.begin[np.array(layer)]], claim.slot_high[0, claim.begin[np.array(layer)]]
        anything = between(self.beta, least, most, self.origin)[owner]
        if not len(seen.rows):
            return anything
        laws, sizes = np.unique((seen.rows - layer.start) * n + seen.successors * (n > 1), return_counts=True)
        behind = np.cumsum(sizes)
        at, ends = np.repeat(behind, 2), np.stack([least[laws // n], most[laws // n]], axis=1).ravel()
        values = between(self.beta, np.insert(seen.low, at, ends), np.insert(seen.high, at, ends), self.origin)
        radius = _ball.betting_radii(np.add.reduceat(seen.times, behind - sizes), self.log_rewards)
        rows = Rows(sizes + 2, np.zeros(len(values.low), dtype=np.intp), np.insert(seen.times, at, 0), radius)
        learned = Interval(rows.extreme_means(values.low, -1), rows.extreme_means(values.high, 1))
        mine = owner * n + outcomes.successors * (n > 1)
        at = np.minimum(np.searchsorted(laws, mine), len(laws) - 1)
        return where((laws[at] == mine) & (least < most)[owner], learned[at], anything)

    def gains(self, h: int, states: np.ndarray) -> Interval:
        """Return e^{βr(s,a)}, (states, actions); 1 if rewards depend on the next state, and at the artificial step."""
        rewards = self.claim.rewards_at(h, states)
        if rewards is None:
            return Interval.of(np.ones(self.claim.rows(h, states).shape))
        return between(self._strength(h - self.claim.random_start), rewards, rewards, self.origin)

    # -- the recursion -------------------------------------------------------------------------------------------------

    def backup(self, h: int, rows: np.ndarray, gain: np.ndarray, values: np.ndarray, side: int) -> np.ndarray:
        """Return bounds from above (``side`` 1) or below (-1) on the mean of e^{βr} ``values`` after each row."""
        limit, values = self.limit(h), values.ravel()

        def mean(at: np.ndarray, ball: Balls) -> np.ndarray:
            f = values[ball.successors]
            if self.claim.rewards is None:
                f = toward((ball.high if side > 0 else ball.low) * f, side)
            f = np.minimum(f, limit.high) if side > 0 else np.maximum(f, limit.low)
            return extreme_mean(ball, f, side)

        return toward(gain * self.rows(h).over(mean, rows.ravel()).reshape(rows.shape), side)

    def bounds(self, report: Report) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return bounds on the policy's value and on the optimum, both less H times the smallest reward, and on the gap."""
        claim, by_pairs = self.claim, self.test == "pairs"
        if by_pairs and claim.return_range is not None:
            raise Rejected("the pair certificate does not hold together with a range of returns")
        sheets = deque(self.sheets(report), maxlen=None if by_pairs else 1)
        first, s, beta = sheets[-1], claim.first_state, Interval.of(self.beta)
        optimum = Interval.of(first.optimum[:, s]).log() / beta
        policy = Interval.of(first.policy[:, s]).log() / beta
        ratio = first.ratio[:, s]
        if by_pairs:
            pairs = PairCertificate(self, list(sheets)[::-1])
            for h in reversed(range(claim.steps)):
                pairs.go_back(h)
                report()
            ratio = pairs.rho[[s]]
        gap = Interval.of(ratio).log() / abs(self.beta)
        return double(policy.low, -1), double(optimum.high, 1), double(gap.high, 1)

    def sheets(self, report: Report) -> Iterator[Sheet]:
        """Yield the bounds of every step, from the end of the episode backwards."""
        now = Sheet(self.claim.n_states, self.sign, self.parts)
        yield now
        for h in reversed(range(self.claim.steps)):
            later, now = now, Sheet(self.claim.n_states, self.sign, self.parts)
            self._fill(now, later, h)
            now.close(self.claim.reachable[h])
            report()
            yield now

    def _fill(self, now: Sheet, later: Sheet, h: int) -> None:
        """Compute the bounds of the states at planned step ``h``."""
        claim, sign, states = self.claim, self.sign, self.claim.reachable[h]
        rows, gains, chosen = self.numbers(h, states), self.gains(h, states), claim.actions(h, states)
        own = np.arange(len(states)), chosen
        mine = rows[:, own[0], own[1]]
        if claim.alone:
            rows, gains, chosen = mine[:, :, None], gains[own][:, None], np.zeros_like(chosen)
            own = own[0], chosen
        high, low = (gains.high, gains.low) if sign > 0 else (gains.low, gains.high)
        optimistic = now.optimistic = self.backup(h, rows, high, later.optimum, sign)
        if not claim.alone:
            optimistic[:, ~claim.permitted(h, states)] = 0.0 if sign > 0 else math.inf  # worse than any allowed action
        optimum = optimistic.max(axis=2) if sign > 0 else optimistic.min(axis=2)
        policy = self.backup(h, mine, low[own], later.policy, -sign)
        now.optimum[:, states], now.policy[:, states] = optimum, policy
        if self.test is None:  # the values alone
            return
        top = self.backup(h, mine, gains.high[own], later.top, 1)
        if sign > 0:
            now.top[:, states] = np.minimum(top, optimum)
        else:
            top = np.minimum(top, policy)
            # An action whose optimistic value, a lower bound for β < 0, is above that cannot lower it.
            at = np.nonzero((optimistic < top[:, :, None]) & (np.arange(rows.shape[2]) != chosen[:, None]))
            np.minimum.at(top, at[:2], self.backup(h, rows[at], gains.high[at[1:]], later.top, 1))
            now.top[:, states] = np.maximum(top, optimum)
        plain, worst = self.over(optimum, policy), self.same(h, mine, later)
        first = self.over(optimistic, policy[:, :, None])
        first[:, own[0], own[1]] = 0.0
        # The best of the other actions comes first: it often rules out the rest.
        best = np.arange(first.shape[2]) == first.argmax(axis=2)[:, :, None]
        for some in (best, ~best):
            at = np.nonzero(some & (first > worst[:, :, None]) & (worst < plain)[:, :, None])
            if at[0].size:
                np.maximum.at(worst, at[:2], self.deviations(h, states, at, later, first[at]))
        now.ratio[:, states] = np.maximum(exact(1.0), np.minimum(plain, worst))

    def same(self, h: int, rows: np.ndarray, later: Sheet) -> np.ndarray:
        """Return the ratios where the policy's action is optimal."""
        (bottom, top, _, rho), limit = later.flat(), self.limit(h)

        def ratios(at: np.ndarray, ball: Balls) -> np.ndarray:
            to = ball.successors
            return same_action(ball, rho[to], bottom[to], top[to], limit)

        return np.maximum(exact(1.0), self.rows(h).over(ratios, rows.ravel())).reshape(rows.shape)

    def deviations(
        self, h: int, states: np.ndarray, at: tuple[np.ndarray, ...], later: Sheet, known: np.ndarray
    ) -> np.ndarray:
        """Return the ratios where another action is optimal, at (part, state, action), not above ``known``."""
        chosen = self.claim.actions(h, states)
        rows, gains, policy = self.numbers(h, states), self.gains(h, states), (*at[:2], chosen[at[1]])
        over, under = (at, policy) if self.sign > 0 else (policy, at)
        apart, limit = up(gains.high[over[1:]] / gains.low[under[1:]]), self.limit(h)

        def ratios(some: np.ndarray, above: Balls, below: Balls) -> np.ndarray:
            return other_action(above, below, apart[some], later, limit, known[some])

        return self.rows(h).over(ratios, rows[over], rows[under])

    def over(self, optimistic: np.ndarray, pessimistic: np.ndarray) -> np.ndarray:
        """Return the ratio of bounds on the side of the optimum and of the policy, or its inverse for β < 0."""
        most, least = (optimistic, pessimistic) if self.sign > 0 else (pessimistic, optimistic)
        return np.where((least > 0.0) & (most < math.inf), up(most / least), exact(math.inf))
