r"""Bounds of the law of the return of a policy: probabilities, quantiles and CVaR, on the event of the KL method.

With :math:`F_h(s,b)=P(\text{return from step }h\text{ on}\le b)` and :math:`W_h(s,b)=E[(b-\text{return from step }h
\text{ on})^+]`, and X for either,

.. math:: F_{H+1}(s,b)=1\{b\ge0\},\quad W_{H+1}(s,b)=b^+,\qquad X_h(s,b)=\sum_y p(y|h,s,\pi)\,X_{h+1}(y,b-r_h(s,\pi,y)).

The probabilities are replaced by those in the ball of the row that make X largest, or smallest. By induction the true table
lies between the two tables, for all policies, thresholds and levels at once (page "Bounds of the law of the return").

**Grid.** Rewards are rounded to multiples of a step, up for one side and down for the other. The return then lies between
two sums of multiples, and no threshold between two multiples is needed. If all rewards are multiples of a step that is not
too small, nothing is rounded. Rewards and thresholds that are multiples up to a billionth of the step count as multiples, as
in :func:`entropic_bpi.return_law`.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, inlined
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.ball import kl_extremum
from entropic_bpi.methods.kl.method import CONVERGED, KL
from entropic_bpi.methods.kl.pairs import mark_state
from entropic_bpi.methods.kl.records import Inputs
from entropic_bpi.methods.kl.states import refresh_radii
from entropic_bpi.problem.counts import CountArrays, Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame, actions_at, row_of, slots_of
from entropic_bpi.types import Integers, Reals

# Numbers that differ from a multiple of the step by this share of it count as multiples; in a sum, the errors add up.
SLACK = 1e-9
# Entries (step, state, threshold) of a table that take seconds to fill; thresholds of a grid, the fewest and the most; and
# how many times more thresholds a lattice may have, on which nothing is rounded.
_MOST_ENTRIES, _FEWEST_BINS, _MOST_BINS, _MORE_ON_A_LATTICE = 4_000_000, 200, 2_000, 4
# Relative room for the rounding of a step, and for verifiers with other solvers.
_ROUNDING = 1e-11


class Tails(NamedTuple):
    """Bounds on the law of the return at the thresholds ``first * step``, ``(first + 1) * step``, ….

    Attributes
    ----------
    step : float
        Distance of two thresholds.
    first : int
        The smallest return is at least ``first * step``.
    slack : float
        A return that differs from a threshold by at most so many steps counts as equal.
    below : float array ``(2, M)``
        Lower and upper bounds of P(return ≤ threshold); those of the last threshold are 1.
    short : float array ``(2, M)``
        Lower and upper bounds of E[(threshold - return)⁺].
    """

    step: float
    first: int
    slack: float
    below: np.ndarray
    short: np.ndarray

    @property
    def thresholds(self) -> np.ndarray:
        """The thresholds."""
        return (self.first + np.arange(self.below.shape[1])) * self.step

    def _probability(self, index: float) -> tuple[float, float]:
        i = index - self.first
        if i < 0:
            return 0.0, 0.0
        lower, upper = self.below[:, int(min(i, self.below.shape[1] - 1))].tolist()
        return lower, upper

    def at_most(self, x: float) -> tuple[float, float]:
        """Return bounds on P(return ≤ x)."""
        return self._probability(np.floor(x / self.step + self.slack))

    def at_least(self, x: float) -> tuple[float, float]:
        """Return bounds on P(return ≥ x)."""
        lower, upper = self._probability(np.ceil(x / self.step - self.slack) - 1)
        return 1.0 - upper, 1.0 - lower

    def _outwards(self, lower: float, upper: float) -> tuple[float, float]:
        # Rewards that differ from a multiple of the step by at most the slack were taken for it.
        room = _ROUNDING * (abs(lower) + abs(upper)) + self.slack * self.step
        return lower - room, upper + room

    def quantile(self, alpha: float) -> tuple[float, float]:
        """Return bounds on the smallest return that is not exceeded with probability at least ``alpha``."""
        high, low = (int(np.argmax(side >= min(alpha, side[-1]))) for side in self.below)
        return self._outwards((self.first + low) * self.step, (self.first + high) * self.step)

    @property
    def mean(self) -> tuple[float, float]:
        """Bounds on the mean of the return."""
        lower, upper = (self.thresholds[-1] - self.short[::-1, -1]).tolist()
        return self._outwards(lower, upper)

    def cvar(self, alpha: float) -> tuple[float, float]:
        """Return bounds on the mean of the worst fraction ``alpha`` of the returns."""
        best = self.thresholds - self.short[::-1] / alpha
        lower, upper = best.max(axis=1).tolist()
        return self._outwards(lower, min(upper, float(self.thresholds[-1])))


def tails_of(method: KL, counts: Counts, policy: np.ndarray, step: float) -> Tails:
    """Return bounds on the law of the return of ``policy`` ``(steps, S)``, with rewards rounded to multiples of ``step``."""
    problem, rules = method.problem, method.rules
    if problem.random_rewards:
        raise InvalidProblemError(
            "probabilities, quantiles and CVaR need reward_law='fixed': of random rewards only the mean of exp(beta * "
            "reward) is learned, at the declared beta, and not their tails"
        )
    arrays, frame = method._arrays(counts), method.frame
    refresh_radii(rules, arrays)
    known = np.empty((0, 0, 0)) if problem.rewards is None else problem.rewards
    known = np.broadcast_to(known, known.shape)  # never writable, so that kernels are compiled once for both
    walk = _Walk(policy, step, SLACK, problem.factors, known)
    visited = np.zeros((frame.steps + 1, frame.n_states + 1), dtype=np.bool_)
    ends = np.zeros((2, frame.steps + 1), dtype=np.int64)
    ends[:, -1] = math.floor(problem.tail[0] / step + SLACK), math.ceil(problem.tail[1] / step - SLACK)
    _visit(frame, arrays, walk, visited, ends)
    size = ends[1] - ends[0] + 1
    if size.max() * frame.n_states > 5 * _MOST_ENTRIES:
        raise InvalidProblemError(f"a step of {step:g} needs {size.max()} thresholds for each state: give a larger one")
    tables = np.empty((2, 4, frame.n_states + 1, size.max()))
    _fill(method._inputs(rules._replace(tolerance=CONVERGED), arrays), walk, visited, ends, tables)
    (below, upper, short, shorter), error = tables[frame.steps % 2, :, frame.start, : size[0]], _ROUNDING * frame.steps
    b = (ends[0, 0] + np.arange(size[0])) * step
    least, most = problem.return_limits
    room = error * (size[0] * step + abs(b[0]) + abs(b[-1]))
    short = np.maximum(np.maximum(short - room, b - most), 0.0)
    shorter = np.minimum(shorter + room, np.maximum(b - least, 0.0))
    # The true functions increase, so their bounds may be made monotone.
    below = np.maximum.accumulate(np.clip(below - error, 0.0, 1.0))
    upper = np.minimum.accumulate(np.clip(upper + error, 0.0, 1.0)[::-1])[::-1]
    below[-1] = upper[-1] = 1.0
    if problem.limits_returns:  # thresholds that differ from the declared ends by rounding count as equal
        low, high = least + problem.return_room, most - problem.return_room
        below[b >= high - SLACK * step], upper[b < low - SLACK * step] = 1.0, 0.0
    return Tails(step, int(ends[0, 0]), SLACK * (frame.steps + 1), np.stack([below, upper]), np.stack([short, shorter]))


def step_of_grid(problem: Problem, counts: Counts, bins: int | None) -> float:
    """Return the step of which all rewards are multiples or, if that is too small, one with as many bins as is quick."""
    largest = problem.duration * max(map(abs, problem.possible_rewards)) or 1.0  # any step, if all rewards are 0
    spread = max(problem.return_spread + problem.tail[1] - problem.tail[0], 1e-12 * largest, 1e-300)
    most = max(_FEWEST_BINS, _MOST_ENTRIES // len(problem.frame.states))
    if bins is None and problem.discount is None:
        common = _common_step(_rewards_of(problem, counts.arrays))
        if common is not None and spread / common <= _MORE_ON_A_LATTICE * most:
            return common
    return spread / (min(most, _MOST_BINS) if bins is None else bins)


def _rewards_of(problem: Problem, arrays: CountArrays) -> np.ndarray:
    """Return the different rewards that are known."""
    if problem.rewards is not None:
        return np.unique(problem.rewards)
    slots = np.unique(slots_of(arrays, np.arange(problem.n_rows))[1])
    low, high = arrays.low[:, slots], arrays.high[:, slots]
    return np.unique(np.stack([low, high])[:, (low == high) | (arrays.tally[slots] > 0)])


def _common_step(rewards: np.ndarray) -> float | None:
    """Return the largest number of which all rewards, written with 11 digits, are multiples; None if there is none."""
    if len(rewards) > 10_000 or not rewards.any():
        return None if rewards.any() else 1.0
    step = Fraction(0)
    for reward in rewards[rewards != 0.0].tolist():
        written = Fraction(f"{reward:.11g}")
        common = math.lcm(step.denominator, written.denominator)
        step = Fraction(math.gcd(int(step * common), int(written * common)), common)
    width = float(step)
    multiples = rewards / width
    return width if np.all(np.abs(multiples - np.rint(multiples)) <= 0.1 * SLACK) else None


# -- kernels ---------------------------------------------------------------------------------------------------------


class _Walk(NamedTuple):
    """A policy, and what turns its rewards into integers: the step, the share of it that is rounding, γ^h, and the rewards
    of (s, a) if they are known."""

    policy: Integers
    step: float
    slack: float
    factor: Reals
    known: Reals


@inlined
def _row(frame: Frame, walk: _Walk, h: int, s: int) -> tuple[int, int]:
    """Return the policy's action and its row."""
    a = min(walk.policy[h, s], actions_at(frame, h) - 1)
    return a, row_of(frame, h, s, a)


@inlined
def _paid(walk: _Walk, arrays: CountArrays, t: int, s: int, a: int, slot: int, upper: bool) -> int:
    """Return the reward of a slot in steps, rounded up or down; the (real) step ``t`` is -1 for the artificial one."""
    if t < 0:
        return 0
    if walk.known.shape[0] > 0:
        reward = walk.known[t if walk.known.shape[0] > 1 else 0, s, a]
    else:
        row = t if arrays.low.shape[0] > 1 else 0
        reward = arrays.high[row, slot] if upper else arrays.low[row, slot]
    share = walk.factor[t] * reward / walk.step
    return math.ceil(share - walk.slack) if upper else math.floor(share + walk.slack)


@compiled
def _visit(frame: Frame, arrays: CountArrays, walk: _Walk, visited: np.ndarray, ends: Integers) -> None:
    """Mark the states that the policy can reach, and set bounds on the return from each step on."""
    visited[0, frame.start] = True
    for h in range(frame.steps):
        low, high = 2**60, -(2**60)
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            if not visited[h, s]:
                continue
            a, row = _row(frame, walk, h, s)
            for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                low = min(low, _paid(walk, arrays, h - frame.artificial, s, a, j, False))
                high = max(high, _paid(walk, arrays, h - frame.artificial, s, a, j, True))
                if h + 1 < frame.steps:
                    mark_state(frame, visited, h + 1, arrays.successor[j])
        ends[0, h], ends[1, h] = low, high
    for h in range(frame.steps - 1, -1, -1):
        ends[0, h] += ends[0, h + 1]
        ends[1, h] += ends[1, h + 1]


@inlined
def _after(table: Reals, kind: int, first: int, last: int, y: int, i: int, step: float) -> float:
    """Return an entry of a table of the next step, which is continued beyond its ends."""
    if i < first:
        return 0.0
    if i > last:
        return 1.0 if kind < 2 else table[kind, y, last - first] + (i - last) * step
    return table[kind, y, i - first]


@compiled
def _fill(inputs: Inputs, walk: _Walk, visited: np.ndarray, ends: Integers, tables: Reals) -> None:
    """Fill the tables of F and W, lower and upper bounds of each, back to the first step; the two arrays take turns."""
    frame, rules, arrays, scratch = inputs
    now, after, f = tables[0], tables[1], scratch.work[2]
    first, last = ends[0, frame.steps], ends[1, frame.steps]
    for y in range(frame.n_states + 1):
        for i in range(first, last + 1):
            now[0, y, i - first], now[1, y, i - first] = (1.0 if i >= last else 0.0), 1.0
            now[2, y, i - first], now[3, y, i - first] = 0.0, (i - first) * walk.step
    for h in range(frame.steps - 1, -1, -1):
        now, after = after, now
        start, stop = ends[0, h], ends[1, h]
        for kind in range(4):
            upper = kind % 2 == 1
            sign = 1.0 if upper else -1.0
            now[kind, -1, : stop - start + 1] = -sign * np.inf
            for state in range(frame.first_state[h], frame.first_state[h + 1]):
                s, guess = frame.states[state], 0.0
                if not visited[h, s]:
                    continue
                a, row = _row(frame, walk, h, s)
                begin, size, n, x = arrays.begin[row], arrays.used[row], arrays.visits[row], rules.radius[row]
                tally = arrays.tally[begin : begin + size]
                for i in range(start, stop + 1):
                    for j in range(size):
                        # Smaller rewards make shortfalls, and probabilities of them, larger.
                        k = i - _paid(walk, arrays, h - frame.artificial, s, a, begin + j, not upper)
                        f[j] = _after(after, kind, first, last, arrays.successor[begin + j], k, walk.step)
                    value, _, guess = kl_extremum(tally, f, size, n, x, sign, rules.tolerance, scratch.work, guess)
                    # A NaN is replaced by the trivial bound.
                    value = value if abs(value) < np.inf else (np.inf if upper else 0.0)
                    now[kind, s, i - start] = value
                    extreme = now[kind, -1, i - start]
                    now[kind, -1, i - start] = max(extreme, value) if upper else min(extreme, value)
        first, last = start, stop
