r"""Evidence of new episodes against a certificate: their outcomes, row by row, and their returns.

**Rows.** A row (a state-action pair) had :math:`n` visits with frequencies :math:`\hat p` when the certificate was made.
Its claim uses that the law :math:`q` of the row lies in the ball :math:`B=\{q:\mathrm{KL}(\hat p,q)\le\xi\}`. Let
:math:`y_1,\dots,y_m` be its new outcomes, with counts :math:`N'` and frequencies :math:`\hat p'`, and :math:`Q` the
probability that the mixture of :mod:`rates <entropic_bpi.methods.kl.rates>` gives to such a sequence. The row's e-value is

.. math:: e = Q(y_1\dots y_m)\,/\,\max_{q\in B}\prod_t q(y_t) .

For every :math:`\mu\ge0` and every :math:`q\in B`, with :math:`q^\mu=(\hat p'+\mu\hat p)/(1+\mu)`,

.. math:: \sum_j\hat p'_j\log q_j \le \sum_j\hat p'_j\log q_j+\mu(\xi-\mathrm{KL}(\hat p,q))
          \le \sum_j\hat p'_j\log q^\mu_j+\mu(\xi-\mathrm{KL}(\hat p,q^\mu)) ,

because :math:`q^\mu` maximises the middle one. So every :math:`\mu` gives an e-value that is not too large, and the search
for the best one may stop anywhere. With declared noise a row is a ball of a law: the state-action pairs that use it count
together.

**Returns.** Evidence against "the policy has at least the value ``lower``".

Let :math:`R` be the return of an episode of the certified policy, at most :math:`b`, and :math:`l` the lower bound of its
value :math:`V=\frac1\beta\log\mathbf E\,e^{\beta R}`. With :math:`g(r)=(e^{\beta(r-l)}-1)/(e^{\beta(b-l)}-1)`, which for
:math:`\beta=0` is :math:`(r-l)/(b-l)`: :math:`g` increases from :math:`g(l)=0` to :math:`g(b)=1`, and :math:`V\ge l` is
:math:`\mathbf E\,g(R)\ge0` for both signs of :math:`\beta`. So every factor :math:`1-v\,g(R)` with :math:`0\le v\le1` is at
least 0 and has a mean of at most 1, and the products over the episodes, averaged over a grid of :math:`v`, are a
supermartingale from 1.

An episode that leaves the policy, or is cut, counts as if the rest had earned the most that is possible. That is at least
what the policy would have earned, had it gone on, so :math:`\mathbf E\,g` of it is not smaller. To leave out such episodes
would be wrong: somebody may leave the policy because an episode goes well, and the rest would be the bad ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.compile.decorators import compiled
from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.problem.sentences import END_REWARDS, SAME_REWARD, STAY_REWARDS
from entropic_bpi.types import Transitions

PERIODS = 4  # since the monitor began, and since three later moments
_STEPS = 60
_ROUNDING = 1e-13
_LARGEST_EXPONENT = 700.0


@compiled
def _likelihood(before: np.ndarray, since: np.ndarray, mu: float) -> tuple[float, float]:
    """Return Σ p̂' log q and KL(p̂, q) for q = (p̂' + μ p̂)/(1 + μ)."""
    n, m, log_q, kl = before.sum(), since.sum(), 0.0, 0.0
    for j in range(before.size):
        old, new = before[j] / n, since[j] / m
        q = (new + mu * old) / (1.0 + mu)
        if new > 0.0:
            log_q += new * math.log(q)
        if old > 0.0:
            kl += old * math.log(old / q) if q > 0.0 else np.inf
    return log_q, kl


@compiled
def log_e_value(before: np.ndarray, since: np.ndarray, xi: float, possible: int, most: int) -> float:
    """Return the logarithm of the e-value of a row, rounded down; ``xi`` is the radius of the ball around ``before``."""
    m = float(since.sum())
    best, kl = _likelihood(before, since, 0.0)
    likelihood = best
    if not kl <= xi:
        low, high = 0.0, 1.0
        while high < 1e200 and not _likelihood(before, since, high)[1] <= xi:
            low, high = high, 8.0 * high
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            if _likelihood(before, since, middle)[1] <= xi:
                high = middle
            else:
                low = middle
        log_q, kl = _likelihood(before, since, high)
        likelihood = log_q + high * (xi - kl) + _ROUNDING * (abs(log_q) + high)
    return m * (best - likelihood - _ROUNDING * abs(best)) - mixture_radius(since, possible, most)


@dataclass
class Outcome:
    """One outcome of a row: the next state, the range of its rewards if these are part of the outcome, and its visits."""

    successor: int
    low: float
    high: float
    before: int = 0
    since: list[int] = field(default_factory=lambda: [0] * PERIODS)  # in each of the periods


@dataclass
class _Row:
    """The outcomes of a row; ``sizes`` are the number of possible ones and the declared maximum."""

    sizes: tuple[int, int]
    outcomes: list[Outcome] = field(default_factory=list)

    def counts(self, period: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return np.array([o.before for o in self.outcomes]), np.array([o.since[period] for o in self.outcomes])


class RowEvidence:
    """The rows of a certificate, and what was seen of them since.

    With declared noise the first state-action pair of each ball stands for all pairs that use the ball. A new visit counts
    in the ball of its own pair alone, so that at every moment one row moves.

    Attributes
    ----------
    rows : int
        How many rows have a ball: those at risk that were visited when the certificate was made.
    """

    def __init__(self, problem: Problem, transitions: Transitions) -> None:
        counts = Counts.of(problem, transitions, 0)
        self.problem, self._rows, self._arrays = problem, dict[int, _Row](), counts.arrays
        self._radii: dict[int, float] = {}  # of the rows that have a ball
        self._paid = problem.black_box_rewards and not problem.random_rewards
        arrays, self._stands_for = counts.arrays, np.arange(problem.n_rows)
        if problem.balls is not None:
            arrays, of_pair = problem.balls.arrays(arrays, counts.labels), problem.balls.of_pair
            order = np.argsort(~problem.at_risk[: len(of_pair)], kind="stable")
            self._stands_for[: len(of_pair)] = order[np.unique(of_pair[order], return_index=True)[1]][of_pair]
        rows = np.unique(self._stands_for)
        union = math.log(max(problem.rows_at_risk, 1)) - math.log(problem.delta_of_transitions)
        for row in rows[arrays.visits[rows] > 0].tolist():
            entry = self._row(row)
            for at in arrays.begin[row] + np.flatnonzero(arrays.tally[arrays.begin[row] :][: arrays.used[row]]):
                low, high = (float(arrays.low[0, at]), float(arrays.high[0, at])) if self._paid else (0.0, 0.0)
                if problem.balls is not None and row < len(problem.balls.of_pair):
                    high = low  # outcomes of the ball's other pairs are translated to this reward
                entry.outcomes.append(Outcome(int(arrays.successor[at]), low, high, int(arrays.tally[at])))
            if problem.at_risk[row]:
                before, _ = entry.counts()
                self._radii[row] = (union + float(mixture_radius(before, *entry.sizes))) / int(before.sum())
        self._balls = list(self._radii)
        self._column = {row: i for i, row in enumerate(self._balls)}
        # Logarithms of the e-values in each period, NaN where they are not computed yet.
        self.rows, self._log_e = len(self._balls), np.zeros((PERIODS, len(self._balls)))

    def _translated(self, row: int, successor: int, reward: float) -> tuple[int, int, float]:
        """Return the outcome of the first pair with the same ball and label; row -1 if no label explains the outcome."""
        arrays, balls, first = self._arrays, self.problem.balls, int(self._stands_for[row])
        if balls is None or row >= len(balls.of_pair):
            return row, successor, reward
        same = self.problem.same_reward if self._paid else 0.0  # the rewards of a model are known
        for slot in range(arrays.used[row]):
            at = arrays.begin[row] + slot
            paid = not self._paid or arrays.low[0, at] - same <= reward <= arrays.high[0, at] + same
            if arrays.successor[at] == successor and paid:
                at = arrays.begin[first] + balls.slot_of_label[first, balls.label_of_slot[row, slot]]
                return first, int(arrays.successor[at]), float(arrays.low[0, at]) if self._paid else reward
        return -1, successor, reward

    def _row(self, row: int) -> _Row:
        sizes = int(self.problem.slots.possible[row]), int(self.problem.max_outcomes[row])
        return self._rows.setdefault(row, _Row(sizes))

    def add(self, row: int, successor: int, reward: float, times: Sequence[int] = (1,) * PERIODS) -> str | None:
        """Add an outcome; if the declarations exclude it, return the reason instead."""
        row, successor, reward = self._translated(row, successor, reward)
        if row < 0:
            return "had an outcome that no label of the declared noise explains"
        if not self._paid:
            reward = 0.0
        entry, same = self._row(row), self.problem.same_reward if self._paid else 0.0
        outcomes, (_, most) = entry.outcomes, entry.sizes
        alike = [outcome for outcome in outcomes if outcome.successor == successor]
        for outcome in alike:
            low, high = min(outcome.low, reward), max(outcome.high, reward)
            if high - low <= same:
                outcome.low, outcome.high = low, high
                break
        else:
            if len(alike) >= self._kinds(row, successor) or (most and len(outcomes) >= most):
                paid = f" with reward {reward:g}" if self._paid else ""
                return f"went to state {self.problem.state_names[successor]!r}{paid}, which is declared impossible"
            outcomes.append(outcome := Outcome(successor, reward, reward))
        for period, many in enumerate(times):
            outcome.since[period] += many
        if row in self._column:
            self._log_e[:, self._column[row]] = math.nan
        return None

    def restart(self, period: int) -> None:
        """Restart a period."""
        self._log_e[period] = 0.0
        for entry in self._rows.values():
            for outcome in entry.outcomes:
                outcome.since[period] = 0

    def _kinds(self, row: int, successor: int) -> int:
        """Return how many outcomes with this next state are possible; their rewards differ, and are learned."""
        problem, slots = self.problem, self.problem.slots
        listed = slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]]
        if problem.n_states not in listed:
            return int((listed == successor).sum())
        if not self._paid or row == problem.n_rows - 1:
            return 1
        if successor == problem.n_states - 1:
            return END_REWARDS
        return STAY_REWARDS if row // problem.n_actions % problem.n_states == successor else 1

    def wrong_reward(self, h: int, row: int, state: int, action: int, successor: int, reward: float) -> bool:
        """Return whether a reward is outside the declared range or, up to rounding, not the known one."""
        problem, slots = self.problem, self.problem.slots
        low, high = problem.possible_rewards
        if problem.black_box_rewards:
            low, high = problem.declared_range
            return not low <= reward <= high
        if problem.rewards is not None:
            known = problem.rewards[h % len(problem.rewards), state, action]
        else:
            listed = slice(slots.begin[row], slots.begin[row] + slots.used[row])
            known = slots.low[h % len(slots.low), listed][slots.successor[listed] == successor].max(initial=-math.inf)
        return not abs(reward - known) <= SAME_REWARD * (high - low) + 1e-12 * abs(known)

    def log_e(self, period: int = 0) -> float:
        """Return the log of the average of Σ w e and Π (1 - θ + θ e), with w = θ = 1/P for P rows; e = 1 without visits."""
        if not self.rows:
            return 0.0
        for i in np.flatnonzero(np.isnan(self._log_e[period])):
            entry = self._rows[self._balls[i]]
            before, since = entry.counts(period)
            e = float(log_e_value(before, since, self._radii[self._balls[i]], *entry.sizes)) if since.any() else 0.0
            self._log_e[period, i] = -math.inf if math.isnan(e) else e
        logs = self._log_e[period] - math.log(self.rows)
        with np.errstate(divide="ignore"):
            product = np.logaddexp(np.log1p(-1 / self.rows), logs).sum()
        return float(np.logaddexp(np.logaddexp.reduce(logs), product)) - math.log(2.0)

    def largest(self, most: int) -> list[tuple[float, int, int]]:
        """Return the rows with the most evidence: its logarithm, the period and the row."""
        logs = zip(self._balls, self._log_e.T.tolist(), strict=True)
        found = [(*max(zip(of_row, range(PERIODS), strict=True)), row) for row, of_row in logs]
        return [best for best in sorted(found, reverse=True)[:most] if best[0] > 0.0]

    def compared(self, row: int, period: int) -> tuple[Outcome, tuple[float, float], float]:
        """Return the outcome farthest from its ball, the probabilities that the ball allows, and its share in a period."""
        entry, xi, (before, since) = self._rows[row], self._radii[row], self._rows[row].counts(period)
        size, shares, ranges = len(before) + 1, since / since.sum(), []
        tally, scratch = np.append(before, 0), np.empty((2, size))  # with room for what was never seen
        for f in np.eye(size)[:-1]:
            ends = [kl_extreme(tally, f, size, tally.sum(), xi, sign, 1e-9, scratch) for sign in (-1.0, 1.0)]
            ranges.append((max(0.0, float(ends[0])), min(1.0, float(ends[1]))))
        beyond = [max(low - share, share - high) for (low, high), share in zip(ranges, shares, strict=True)]
        j = int(np.argmax(beyond))
        return entry.outcomes[j], ranges[j], float(shares[j])

    def seen(self) -> list[tuple[int, Outcome]]:
        """Return the outcomes that were seen since the certificate was made, with their rows."""
        return [(row, o) for row, entry in self._rows.items() for o in entry.outcomes if any(o.since)]


class ReturnEvidence:
    """A test of the claimed lower bound by the returns of episodes."""

    SHARES = 2.0 ** -np.arange(10)  # the grid of v

    def __init__(self, certificate: Certificate) -> None:
        problem, self._policy = certificate.problem, certificate.policy
        self.beta, self.lower = attained_at(certificate)
        self._problem, self._factors, self._high = problem, problem.factors.tolist(), problem.possible_rewards[1]
        most = self._high * problem.duration + problem.return_room
        self.most = min(most, problem.return_limits[1]) + problem.tail[1]
        self.wealth = np.zeros((PERIODS, len(self.SHARES)))
        self.possible = self.lower < self.most

    def add(self, states: list[int], actions: list[int], rewards: list[float], *, ended: bool, free: set[int]) -> None:
        """Add an episode of at most ``horizon`` steps; in the states ``free`` the claim holds for any action."""
        if not self.possible:
            return
        steps, horizon, complete = len(actions), len(self._factors), ended
        for h, (state, action) in enumerate(zip(states, actions, strict=False)):
            if action != self._policy[h, state] and state not in free:
                steps, complete = h, False
                break
        earned = [factor * reward for factor, reward in zip(self._factors, rewards[:steps], strict=False)]
        if not complete:
            earned += [self._high * factor for factor in self._factors[steps:horizon]] + [self._problem.tail[1]]
        returned = min(math.fsum(earned) + self._problem.return_room, self.most)
        with np.errstate(divide="ignore"):
            self.wealth += np.log1p(-self.SHARES * self._gain(returned))

    def _gain(self, returned: float) -> float:
        """Return g of a return; a larger number where the exponent is limited."""
        u, w = self.beta * (returned - self.lower), self.beta * (self.most - self.lower)
        if abs(w) < 1e-300:
            return (returned - self.lower) / (self.most - self.lower)
        if w > 0:
            return min((math.exp(u - w) - math.exp(-w)) / -math.expm1(-w), 1.0)
        return math.expm1(min(u, _LARGEST_EXPONENT)) / math.expm1(w)

    def log_e(self, period: int = 0) -> float:
        return float(np.logaddexp.reduce(self.wealth[period])) - math.log(len(self.SHARES))


def attained_at(certificate: Certificate) -> tuple[float, float]:
    """Return β and the lower bound of the policy's value; for EVaR, -λ and the bound there, at the best λ."""
    problem, counts, policy = certificate.problem, certificate.counts, certificate._planned
    if certificate.cells is None or not isinstance(problem.risk, EVaR):
        return certificate.beta, certificate.lower
    found = []
    for lam in (cell.lam for cell in certificate.cells):
        lower = KL(problem.at(-lam, problem.eps)).bounds_of(counts, policy, pairs=False).lower
        found.append((lower - problem.risk.cost / lam, -lam, lower))
    return max(found, key=lambda each: each[0])[1:]
