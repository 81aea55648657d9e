r"""Other measures than the entropic value: EVaR, the law of the return, and appraisals of several policies.

**Entropic value at risk,** from the bounds of the KL method at several λ.
Returns are counted from the smallest one that is possible, so that they lie between 0 and R; c = log(1/α). For every policy,
λV_{-λ} grows and V_{-λ} falls with λ, and so do those of the best policy. EVaR is the supremum of V_{-λ} - c/λ, which is at
most 0 up to λ = c/R. The cells of the claim cover the rest. In a cell from b to b', with the bounds u of V*, l of the
policy's value and g of the gap at its λ, 0 ≤ l and u ≤ R, what any policy attains is at most

- (λ/b)·max(u - c/λ, 0) up to λ, which is at most g + (λ/b - 1)·max(u - c/λ, 0) above what this policy attains;
- u - c/b' from λ on, which is at most g + c/λ - c/b' above it.

And this policy attains at least L, the largest of 0 and all l - c/λ.

**The law of the return** of a policy: bounds on its probabilities, its quantiles and its CVaR, from the counts (page "Bounds
of the law of the return"). Backwards over the steps, for every remaining threshold: the largest and the smallest probability
that the rest of the return is at most the threshold, and the largest and the smallest mean shortfall below it. Rewards are
rounded to multiples of a step, down for bounds from above and up for bounds from below, so that all thresholds that matter
are multiples as well. A number that differs from a multiple by at most a billionth of the step counts as that multiple.

**A difference** of the values of two policies, without paying twice for what both share. Backwards over the steps: how many
times larger Z of the one policy is than that of the other, g, and between what Z of the other lies in units of its Z in one
state of the step, z. Where both take the same action, g is an average of the next g under weights q e^{βr} z. Otherwise it
is a quotient Σ q e^{βr} z g / Σ q e^{βr} z of two rows with one and the same z. That is monotone in each entry of z, so
that of up to three of them only the ends are tried; the others are taken at their worst on each side.

**An appraisal** states several measures of several policies; they are checked against the counts of its certificate.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.verification._ball import Balls, extreme_mean
from entropic_bpi.verification._claim import Bounds, Claim, Outcomes
from entropic_bpi.verification._file import Rejected, an_array, one_of
from entropic_bpi.verification._intervals import Interval, double, double_above, double_below, down, exact, toward, up
from entropic_bpi.verification._kl import KLRecursion, Report, bounds_at, nearby_beta
from entropic_bpi.verification._pairs import CORNERS, KNOWN, Pairs, largest_average, most_of, tally_in, worst_corner

_SLACK = 1e-9
_AT_ONCE = 2**18  # outcomes and thresholds that are worked on together
_MOST_ENTRIES = 50_000_000
_UNBOUNDED = ("entropic", "below", "above")  # measures of any number; others have a level between 0 and 1


# -- the entropic value at risk ----------------------------------------------------------------------------------------


def risk_bounds(claim: Claim, test: str | None, report: Report) -> Bounds:
    """Return bounds on the entropic value, with its gap by ``test``, or on the entropic value at risk."""
    if claim.alpha is not None:
        return evar_bounds(claim, claim.alpha, claim.cells or [], report)
    return Bounds(*bounds_at(claim, claim.beta, test, report))


def evar_bounds(claim: Claim, alpha: float, cells: list[SimpleNamespace], report: Report) -> Bounds:
    """Return bounds on the entropic value at risk from those at the λ of the cells; see the module's docstring."""
    c, (least, most) = -Interval.of(alpha).log(), _return_range(claim)
    spread = Interval.of(max(most - least, Fraction(0)))
    begin = exact(cells[0].lam)
    if spread.low > 0.0:
        begin = min(begin, (c / spread).low)
    # For each part of a cell: what any policy attains there at most, and how much less the claimed policy attains at the λ.
    lower, found, zero = exact(0.0), [], exact(0.0)
    for cell in cells:
        low, high, gap = bounds_at(claim, -cell.lam, cell.test, report)
        low, high = Interval.of(Fraction(low) - least).low, Interval.of(Fraction(high) - least).high
        low, high = max(zero, low), min(high, spread.high)
        share, last = c / cell.lam, 0.0 if cell.until == math.inf else (c / cell.until).low
        lower = max(lower, down(low - share.high))
        height, ratio = max(zero, up(high - share.low)), up(cell.lam / begin)
        found.append((up(ratio * height), up(gap + up(up(ratio - 1.0) * height))))
        found.append((up(high - last), up(gap + up(share.high - last))))
        begin = exact(cell.until)
    attained = [zero, *(best for best, _ in found)]
    gaps = [zero, *(min(loss, up(best - lower)) for best, loss in found)]
    if not all(map(math.isfinite, [lower, *attained, *gaps])):
        raise Rejected("the bounds of the entropic value at risk are not finite")
    lowest, highest = (least + Fraction(float(double(end, side))) for end, side in ((lower, -1), (max(attained), 1)))
    return Bounds(double_below(lowest), double_above(highest), float(double(max(gaps), 1)))


def _return_range(claim: Claim) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest return, by the rewards and by the declared range."""
    low, high = (Fraction(reward) * claim.horizon for reward in claim.reward_range)
    if claim.return_range is None:
        return low, high
    least, most = (Fraction(end) for end in claim.return_range)
    room = Fraction(claim.return_room)
    return max(low, least - room), min(high, most + room)


# -- the law of the return ---------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """Bounds for the thresholds from ``first`` to ``last``, arrays (4, states and one more, thresholds).

    They bound the probability from below and from above, and the mean shortfall from below and from above.
    """

    first: int
    last: int
    bounds: np.ndarray

    def at(self, kind: int, successors: np.ndarray, index: np.ndarray, step: float) -> np.ndarray:
        """Return bounds at any thresholds, also beyond the ends."""
        inside = self.bounds[kind][successors[..., None], np.clip(index, self.first, self.last) - self.first]
        side, beyond = 2 * (kind % 2) - 1, np.ones(1)
        if kind >= 2:
            beyond = toward(inside + toward(np.maximum(index - self.last, 0) * step, side), side)
        return np.where(index < self.first, 0.0, np.where(index > self.last, beyond, inside))


class Law(KLRecursion):
    """Bounds on the law of the return of a claim's policy, with rewards rounded to multiples of ``step``, both ways."""

    def __init__(self, claim: Claim, step: float, report: Report) -> None:
        super().__init__(claim, 1.0, None)
        if claim.random_rewards:
            raise Rejected("the tails of random rewards are not known")
        self.step, self.slack = step, _SLACK * (claim.steps + 1)
        table = self._recursion(report)
        self.outcomes.clear()  # the rows are not needed any more
        self.first = table.first
        below, above, short, long = table.bounds[:, claim.first_state]
        self.thresholds = (table.first + np.arange(len(below))) * step
        if claim.return_range is not None:
            least, most = claim.return_range[0] - claim.return_room, claim.return_range[1] + claim.return_room
            # Thresholds that differ from its ends by rounding count as equal.
            low, high = claim.return_range[0] - _SLACK * step, claim.return_range[1] - _SLACK * step
            below, above = np.where(self.thresholds >= high, 1.0, below), np.where(self.thresholds < low, 0.0, above)
            short = np.maximum(short, down(self.thresholds - most))
            long = np.minimum(long, np.maximum(0.0, up(self.thresholds - least)))
        self.below, self.above, self.short, self.long = below, above, short, long
        if not np.all(np.isfinite([below, above, short, long])):
            raise Rejected("the bounds of the law of the return are not finite")

    def _probability(self, index: float) -> tuple[float, float]:
        at = index - self.first
        if at < 0 or at >= len(self.below) - 1:
            return float(at >= 0), float(at >= 0)
        return max(0.0, float(self.below[int(at)])), min(1.0, float(self.above[int(at)]))

    def bounds_of(self, kind: str, number: float) -> tuple[float, float]:
        """Return bounds on P(return ≤ x), P(return ≥ x), the mean, a quantile or CVaR."""
        if kind == "below":
            return self._probability(np.floor(number / self.step + self.slack))
        if kind == "above":
            less = self._probability(np.ceil(number / self.step - self.slack) - 1)
            ends = zip(less, (1, -1), strict=True)
            upper, lower = (1.0 - p if p in (0.0, 1.0) else float(toward(1.0 - p, side)) for p, side in ends)
            return lower, upper
        if kind == "mean":
            low, high = down(self.thresholds[-1] - self.long[-1]), up(self.thresholds[-1] - self.short[-1])
        elif kind == "quantile":
            possible = np.append(self.above[:-1] >= number, True), np.append(self.below[:-1] >= number, True)
            low, high = (self.thresholds[np.argmax(side)] for side in possible)
        else:
            low = down(self.thresholds - up(self.long / number)).max()
            high = min(up(self.thresholds - down(self.short / number)).max(), self.thresholds[-1])
        return float(down(low)), float(up(high))

    def _in_steps(self, low: np.ndarray, high: np.ndarray, step: int) -> Interval:
        ends = Interval(low, high)
        if self.claim.discount is not None:
            ends = self.claim.power(step) * ends
        return Interval(np.floor(ends.low / self.step + _SLACK), np.ceil(ends.high / self.step - _SLACK))

    def _weights(self, outcomes: Outcomes, layer: range, step: int) -> Interval:
        return self._in_steps(*self.claim.paid(outcomes, step), step)

    def _own_rows(self, h: int, states: np.ndarray) -> np.ndarray:
        return self.numbers(h, states)[0, np.arange(len(states)), self.claim.actions(h, states)]

    def _own(self, h: int, states: np.ndarray) -> Iterator[tuple[np.ndarray, Balls]]:
        """Yield the policy's rows; ``low`` and ``high`` of a ball are the rewards of its outcomes, in steps."""
        claim, step = self.claim, h - self.claim.random_start
        rewards, own = claim.rewards_at(h, states), (np.arange(len(states)), claim.actions(h, states))
        known = np.zeros(len(states)) if rewards is None else rewards[own]
        paid = self._in_steps(known, known, max(step, 0))
        for at, (ball,) in self.rows(h).batches(self._own_rows(h, states)):
            if claim.rewards is not None or step < 0:
                low, high = (np.broadcast_to(end[at], ball.successors.shape) for end in (paid.low, paid.high))
                ball = replace(ball, low=low, high=high)
            yield at, ball

    def _recursion(self, report: Report) -> _Table:
        """Return the table of the first step, computed backwards from that after the last one."""
        claim, steps = self.claim, [np.array([self.claim.first_state])]
        for h in range(claim.steps - 1):
            steps.append(self.following(h, self._own_rows(h, steps[-1])))
        least, most = claim.tail
        first, last = math.floor(float(least) / self.step + _SLACK), math.ceil(float(most) / self.step - _SLACK)
        index = np.arange(first, last + 1)
        rows = [index >= last, np.ones(len(index)), np.zeros(len(index)), up((index - first) * self.step)]
        later = _Table(first, last, np.stack([np.tile(row, (claim.n_states + 1, 1)) for row in rows]).astype(float))
        for h, states in reversed(list(enumerate(steps))):
            balls = list(self._own(h, states))
            first = later.first + int(min(ball.low.min() for _, ball in balls))
            last = later.last + int(max(ball.high.max() for _, ball in balls))
            if (last - first + 1) * len(states) > _MOST_ENTRIES:
                raise Rejected(f"a step of {self.step} is too small for this problem")
            bounds = np.zeros((4, claim.n_states + 1, last - first + 1))
            for kind in range(4):
                for at, ball in balls:
                    bounds[kind, states[at]] = self._means(later, kind, ball, np.arange(first, last + 1))
                bounds[kind, -1] = (np.max if kind % 2 else np.min)(bounds[kind, states], axis=0)
            later = _Table(first, last, bounds)
            report()
        return later

    def _means(self, later: _Table, kind: int, ball: Balls, index: np.ndarray) -> np.ndarray:
        """Return the bounds of some rows for the thresholds ``index``, (rows, thresholds)."""
        side, rows = 2 * (kind % 2) - 1, np.arange(len(ball.sizes))
        paid, means = (ball.low if side > 0 else ball.high).astype(np.int64), np.empty((len(rows), len(index)))
        size = max(1, _AT_ONCE // ball.successors.size)
        for begin in range(0, len(index), size):
            some = index[begin : begin + size]
            values = later.at(kind, ball.successors, some - paid[..., None], self.step)
            found = extreme_mean(ball.take(np.repeat(rows, len(some))), values.reshape(len(values), -1), side)
            means[:, begin : begin + size] = found.reshape(len(rows), -1)
        return means


# -- differences of two policies ---------------------------------------------------------------------------------------


def difference_bounds(one: Claim, other: Claim, stated: float, report: Report) -> tuple[float, float]:
    """Return bounds on the value of one claim's policy less that of the other's, at risk parameter ``stated``."""
    beta, bias = nearby_beta(one, stated)
    room = Interval.of(bias + one.tail[1] - one.tail[0])
    ratios = [Interval.of(_Ratio(*pair, beta).largest(report)) for pair in ((one, other), (other, one))]
    upper, lower = (float((ratio.log() / abs(beta) + room).high) for ratio in ratios[:: 1 if beta > 0 else -1])
    return -lower, upper


class _Ratio(KLRecursion):
    """The recursion: bounds ``low``, ``high`` on z and ``gain`` on g at the next step; a state not seen yet is last."""

    def __init__(self, one: Claim, other: Claim, beta: float) -> None:
        super().__init__(other, beta, None)
        self.one = one
        self.low, self.high, self.gain = np.ones((3, other.n_states + 1))

    def largest(self, report: Report) -> float:
        """Return a bound on Z of the one policy over Z of the other, at the start."""
        claim = self.claim
        for h in reversed(range(claim.steps)):
            states, tables = claim.reachable[h], np.ones((3, claim.n_states + 1))
            every, mine, base = np.arange(len(states)), self.one.actions(h, states), claim.actions(h, states)
            visits = self.rows(h).over(lambda _, ball: ball.visits, self.numbers(h, states)[0, every, base])
            k = np.full(len(states), np.argmax(visits))
            ref, own, ones = (k, base[k]), (every, base), np.ones_like(self.gain)
            low, high = down(1.0 / self._over(h, ref, own, ones)), self._over(h, own, ref, ones)
            low[k[0]] = high[k[0]] = 1.0
            gain, at = self._average(h, own), np.flatnonzero(mine != base)
            gain[at] = self._over(h, (at, mine[at]), (at, base[at]), self.gain)
            for table, part, end in zip(tables, (low, high, gain), (np.min, np.max, np.max), strict=True):
                table[states], table[-1] = part, end(part)
            self.low, self.high, self.gain = tables
            report()
        return float(self.gain[claim.first_state])

    def _average(self, h: int, own: Pairs) -> np.ndarray:
        """Return the largest averages of the next gains after an action."""

        def averages(at: np.ndarray, ball: Balls) -> np.ndarray:
            gain, low, high = (table[ball.successors] for table in (self.gain, self.low, self.high))
            unit = gain.min(axis=0)
            weights = down(ball.low * low), up(ball.high * high)
            return up(unit * largest_average(ball, up(gain / unit), *weights, np.ones(len(at))))

        return self.rows(h).over(averages, self.numbers(h, self.claim.reachable[h])[0][own])

    def _over(self, h: int, over: Pairs, under: Pairs, gain: np.ndarray) -> np.ndarray:
        """Return bounds on the quotients of two rows, with one z for both."""
        states, later = self.claim.reachable[h], (self.low, self.high, np.full_like(gain, np.inf), gain)
        rows, gains = self.numbers(h, states)[0], self.gains(h, states)
        apart, is_open = up(gains.high[over] / gains.low[under]), ~(self.high <= self.low * (1.0 + KNOWN))
        is_open[-1] = False  # a state not seen yet is another one for each row

        def ratios(at: np.ndarray, top: Balls, bottom: Balls) -> np.ndarray:
            to = bottom.successors
            both = (top.successors[:, None] == to).any(axis=0) & is_open[to]
            tried = most_of(np.where(both, tally_in(top, to) + tally_in(bottom, to) + 1.0, 0.0), to, CORNERS)
            tried = tried[(tried >= 0).any(axis=1)]
            return up(apart[at] * worst_corner(top, bottom, tried, later, Interval(0.0, math.inf)))

        return self.rows(h).over(ratios, rows[over], rows[under])


# -- appraisals --------------------------------------------------------------------------------------------------------


def check_appraisal(content: SimpleNamespace, claim: Claim, report: Report) -> list[str]:
    """Return which parts of an appraisal do not follow from the counts; ``claim`` is that of its certificate."""
    if claim.method != "kl":
        raise Rejected("an appraisal rests on a certificate of the KL method")
    policies = _read_policies(content.policies, claim)
    cells = {(part.policy, part.measure): part.cells for part in content.cells}
    laws: dict[str, Law] = {}
    if len({(row.policy, row.measure) for row in content.table}) < len(content.table):
        raise Rejected("table states a measure of a policy twice")
    problems = []
    for row in content.table:
        own, (kind, number) = policies[one_of("table.policy", row.policy, tuple(policies))], _read_measure(row.measure)
        what, implied = f"{row.measure} of {row.policy}", (-math.inf, math.inf)
        if kind in ("mean", "entropic", "evar"):
            implied = _risk_bounds(own, kind, number, cells.get((row.policy, row.measure), []), report)
        elif content.step is None:
            raise Rejected(f"step is needed for the measure {row.measure!r}")
        not_implied = _not_implied(what, row, implied)
        if not_implied and content.step is not None and kind not in ("entropic", "evar"):
            if row.policy not in laws:
                laws[row.policy] = Law(own, content.step, report)
            least, most = laws[row.policy].bounds_of(kind, number)
            not_implied = _not_implied(what, row, (max(implied[0], least), min(implied[1], most)))
        problems += not_implied
    for row in content.differences:
        one, other = (policies[one_of("differences.policy", name, tuple(policies))] for name in (row.policy, row.other))
        kind, number = _read_measure(row.measure)
        _check_learned(one, one_of("differences.measure", kind, ("mean", "entropic")), number)
        implied = difference_bounds(one, other, number, report)
        problems += _not_implied(f"{row.measure} of {row.policy} less that of {row.other}", row, implied)
    return problems


def _not_implied(name: str, row: SimpleNamespace, implied: tuple[float, float]) -> list[str]:
    """Return which ends of a stated interval are not implied; a bound that is NaN implies none."""
    problems = []
    for word, side, said, bound in (("least", -1, row.lower, implied[0]), ("most", 1, row.upper, implied[1])):
        if not side * said >= side * bound:
            problems.append(f"{name}: at {word} {said!r} is stated, but the counts imply only {bound!r}")
    return problems


def _read_policies(given: Any, claim: Claim) -> dict[str, Claim]:
    """Return a copy of the claim for each of the policies, by name, in which no other action may be chosen."""
    if not isinstance(given, dict) or not given:
        raise Rejected(f"policies must be an object with a policy for each name, got {given!r:.80}")
    shape, found = (claim.horizon, claim.n_states), {}
    for name, actions in given.items():
        own = found[name] = copy.copy(claim)
        own.policy = an_array(f"policies.{name:.80}", actions, shape, 0, claim.n_actions - 1)
        own.check_masks()
        own.alone = True
    return found


def _read_measure(text: str) -> tuple[str, float]:
    kind, *words = text.split() or [""]
    if kind == "mean" and not words:
        return kind, 0.0
    try:
        (number,) = map(float, words)
    except ValueError:
        number = math.nan
    level = 0 < number < 1 or (kind == "cvar" and number == 1)
    if not (level if kind in ("evar", "cvar", "quantile") else kind in _UNBOUNDED and math.isfinite(number)):
        raise Rejected(f"{text!r:.80} is not a measure")
    return kind, number


def _check_learned(own: Claim, kind: str, number: float) -> None:
    if own.random_rewards and not (own.lams is not None if kind == "evar" else own.lams is None and number == own.beta):
        raise Rejected(f"random rewards were not learned for the measure {kind} {number:g}")


def _risk_bounds(own: Claim, kind: str, number: float, cells: list[Any], report: Report) -> tuple[float, float]:
    """Return bounds on the entropic value, or on the entropic value at risk, of a policy."""
    _check_learned(own, kind, number)
    if kind != "evar":
        return bounds_at(own, number, None, report)[:2]
    bounds = evar_bounds(own, number, own.checked_cells(cells), report)
    return bounds.lower, bounds.upper
