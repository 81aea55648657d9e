r"""Exploration before any reward is known: one set of data for all rewards.

**Theorem RF.** Let rewards :math:`r_h(s,a)` lie in a range of width :math:`w`, let :math:`M_h=e^{|\beta|w(H-h)}` (one step
more if rewards may depend on the next state), :math:`D^\pm_{H+1}=0` and

.. math::

    D^\pm_h(s) &= \max_a\min\{\log M_h,\ \ell^\pm_h(s,a)+\log T(\hat p;e^{D^\pm_{h+1}};M_h)\},\\
    \ell^+ &= \max_B\log\frac{1+(M_h-1)q^+(B)}{1+(M_h-1)\hat p(B)},\qquad
    \ell^- = \max_B\log\frac{1+(M_h-1)\hat p(B)}{1+(M_h-1)q^-(B)},

where :math:`q^\pm(B)` are the ends of :math:`\{q:n\,\mathrm{kl}(\hat p(B),q)\le\log(P/\delta)+R_{mix}\}` over the sets of
successors :math:`B`, and :math:`T(p;g;M)=\max_{1\le f\le M}\sum pfg/\sum pf`, attained by M on the largest g and 1
elsewhere. On the event of the KL method, for all such rewards, all policies and both signs of β:
:math:`-D^-_1\le\log Z^\pi(p)-\log Z^\pi(\hat p)\le D^+_1`. So a policy that is optimal in the estimated model, whatever the
reward, is :math:`(D^+_1+D^-_1)/|\beta|`-optimal. The proof is on the page "Many rewards from one data set".

**Sets.** Successors that were not seen add nothing to :math:`\hat p(B)`, so the sets of those that were seen are enough. If
there are more than 12, :math:`q-p\le2x+\sqrt{2px}` and Pinsker's :math:`q-p\le\sqrt{x/2}` bound :math:`\ell^\pm` for all
sets at once.

**An interval of β.** :math:`D^\pm` grows with |β|, so :math:`D(b)/a` is a bound for :math:`a\le|\beta|\le b`; another is
:math:`D(b)/b+(b-a)R^2/4` with the range R of the return, by Hoeffding's lemma for the value in either model. The interval is
cut into cells, finer where the bound is largest.

**Play.** The policies that are greedy for :math:`D^+` and :math:`D^-`, in turn, where the bound is largest. No bound on the
number of episodes is proved.
"""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, inner
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.problem.counts import CountArrays, Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward
from entropic_bpi.problem.rows import Frame, actions_at, is_allowed, row_of
from entropic_bpi.problem.sentences import END_REWARDS, STAY_REWARDS
from entropic_bpi.problem.ties import wins_tie
from entropic_bpi.tools.checks import check_reach
from entropic_bpi.types import Behaviour, Bounds, Cell, Claim, Integers, Plan, Reals

# Up to this many seen successors all sets are listed.
MOST_LISTED = 12
# Cells are halved until the bound is at most ε, or until their width costs less than a share of it: the first one or, if ε
# is out of reach, the second one.
CELL_SHARE, FAR_SHARE, MOST_CELLS = 0.01, 0.1, 128
SMALLEST_EXPONENT = 1e-5
# Relative room for verifiers that round differently.
CLAIM_ROUNDING = 1e-6


@compiled
def upper_end(p: float, x: float) -> float:
    """Return the largest q with kl(p, q) <= x, rounded up, by Newton's method from above, where the function is convex."""
    if p >= 1.0:
        return 1.0
    if p <= 0.0:
        return min(1.0, -math.expm1(-x) * (1.0 + 1e-15))
    # By (q - p)² <= 2qx, and by (1 - p) log((1 - p)/(1 - q)) <= x - p log p, where -p log p <= 1 - p.
    q = min(p + x + math.sqrt(x * (x + 2.0 * p)), 1.0 - (1.0 - p) * math.exp(-x / (1.0 - p) - 1.0))
    for _ in range(60):
        if not p < q < 1.0:
            return 1.0 if q >= 1.0 or q != q else p
        d = q - p
        one, other = -p * math.log1p(d / p), -(1.0 - p) * math.log1p(-d / (1.0 - p))
        over = one + other - 4e-16 * (abs(one) + abs(other)) - x
        step = over * q * (1.0 - q) / d
        if not step > 1e-13 * d:
            break
        q -= step
    return min(1.0, q + 1e-14 * (q - p) + 1e-16)


class Sets(NamedTuple):
    """The radius ``x`` of each row, and p̂(B) and q⁺(B) for each set of its seen successors, from ``first[row]`` on.

    ``known`` rows have one possible successor, and no visit is needed to know it.
    """

    first: Integers
    x: Reals
    known: np.ndarray
    p: Reals
    q: Reals


@compiled
def list_sets(
    arrays: CountArrays, possible: Integers, uncertain: np.ndarray, log_union: float, sets: Sets, tally: Integers
) -> None:
    """Fill in the radii and the sets; ``tally`` is working memory."""
    first, x, _, p, q = sets
    for row in range(len(x)):
        n, begin, used, size = arrays.visits[row], arrays.begin[row], arrays.used[row], first[row + 1] - first[row]
        if n == 0:
            continue
        if uncertain[row]:
            radius = mixture_radius(arrays.tally[begin : begin + used], possible[row], arrays.max_outcomes[row])
            x[row] = (log_union + radius) / n
        seen, complete = 0, True
        for j in range(begin, begin + used):
            if arrays.tally[j] == 0:
                complete = False
            elif size > 0:
                tally[seen] = arrays.tally[j]
                seen += 1
        for chosen in range(size):
            total = 0
            for j in range(seen):
                if chosen >> j & 1:
                    total += tally[j]
            p[first[row] + chosen] = total / n
            known = complete and (total == 0 or total == n)
            q[first[row] + chosen] = total / n if known else upper_end(total / n, x[row])


@compiled
def _deviations(p: Reals, q: Reals, x: float, c: float) -> tuple[float, float]:
    """Return ℓ⁺ and ℓ⁻ of a row whose sets have these p̂ and q⁺, for M = 1 + c; without sets, a bound for all of them."""
    size = len(p)
    if size == 0:
        root = math.sqrt(2.0 * x)
        u = min(1.0, -root + math.sqrt(2.0 * x + 1.0 / c)) if c > 0.0 else 1.0
        rise = min(c * (2.0 * x + root * u) / (1.0 + c * u * u), c * math.sqrt(0.5 * x))
        return math.log1p(rise), math.log1p(rise)
    most, least = 0.0, 0.0
    for chosen in range(size):
        # The lower end of a set is 1 less the upper end of the others.
        rest = size - 1 - chosen
        most = max(most, c * (q[chosen] - p[chosen]) / (1.0 + c * p[chosen]))
        least = max(least, c * (q[rest] - p[rest]) / (1.0 + c * max(0.0, 1.0 - q[rest])))
    return math.log1p(most), math.log1p(least)


@inner
def _tilted(weights: Reals, growth: Reals, size: int, c: float) -> float:
    """Return log T; sorts the weights and e^D - 1 of the seen successors by the latter."""
    mean = 0.0
    for i in range(size):
        w, g = weights[i], growth[i]
        mean += w * g
        j = i
        while j > 0 and growth[j - 1] < g:
            weights[j], growth[j] = weights[j - 1], growth[j - 1]
            j -= 1
        weights[j], growth[j] = w, g
    best, top, mass = mean, mean, 1.0
    for i in range(size):
        top += c * weights[i] * growth[i]
        mass += c * weights[i]
        best = max(best, top / mass)
    return math.log1p(best)


@inner
def _log_ratio(
    arrays: CountArrays, sets: Sets, row: int, after: Reals, deviation: float, c: float, work: Reals
) -> float:
    """Return by how much an action may change log Z, not capped, if what follows changes it by ``after``."""
    begin, visits, size = arrays.begin[row], arrays.visits[row], 0
    if sets.known[row]:
        return after[arrays.successor[begin]]
    if visits == 0:
        return np.inf
    for j in range(begin, begin + arrays.used[row]):
        if arrays.tally[j] > 0:
            work[0, size] = arrays.tally[j] / visits
            work[1, size] = math.expm1(after[arrays.successor[j]])
            size += 1
    value = deviation + _tilted(work[0], work[1], size, c)
    return value if value == value else np.inf


@compiled
def go_back(
    frame: Frame, arrays: CountArrays, sets: Sets, reach: Reals, seed: int, d: Reals, policy: Integers, work: Reals
) -> None:
    """Compute D⁺ and D⁻ ``(2, steps + 1, S + 1)`` and their greedy policies; log M is ``reach[h]`` at planned step h.

    The policies are greedy for the bounds before they are capped. ``work`` is working memory.
    """
    first, x, _, p, q = sets
    best = work[2]
    for h in range(frame.steps - 1, -1, -1):
        c = math.expm1(reach[h])
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            best[0] = best[1] = -1.0
            for a in range(actions_at(frame, h)):
                if not is_allowed(frame, h, s, a):
                    continue
                row = row_of(frame, h, s, a)
                ends = _deviations(p[first[row] : first[row + 1]], q[first[row] : first[row + 1]], x[row], c)
                for side in range(2):
                    value = _log_ratio(arrays, sets, row, d[side, h + 1], ends[side], c, work)
                    if value > best[side] or (value == best[side] and wins_tie(seed, h, s, a, policy[side, h, s])):
                        best[side], policy[side, h, s] = value, a
            for side in range(2):
                d[side, h, s] = min(best[side], reach[h])


class RewardFree:
    """Bounds for all rewards at once; see the module's docstring.

    Parameters
    ----------
    problem : Problem
        Its risk is :class:`~entropic_bpi.problem.risk.AnyReward`.
    sampling
        Ignored: this method has no options.
    seed : int
        For ties; 0 prefers the lowest action.
    """

    options: ClassVar[dict[str, tuple[str, ...]]] = {}
    events: ClassVar = ("E_cat",)
    proof: ClassVar = ("E_cat",)
    unused: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, problem: Problem, sampling: str = "", seed: int = 0) -> None:
        if problem.noise is not None or problem.reward is not None:
            raise InvalidProblemError("explorations support neither noise= nor known rewards (reward=)")
        self.problem, self.seed, self.frame = problem, seed, problem.frame
        risk: AnyReward = problem.risk  # type: ignore[assignment]
        low, high = risk.rewards
        if problem.black_box_rewards:  # rewards are 0 after the end of an episode
            low, high = min(low, 0.0), max(high, 0.0)
        self.low, self.high, (least, most) = low, high, risk.sizes
        self.spread = problem.horizon * (high - low)
        check_reach(most, most * self.spread, "(range of the return)")
        # A smaller exponent would lose digits, so the largest |β| may be a little larger than the target.
        self.least, self.most = least, max(most, SMALLEST_EXPONENT / self.spread if self.spread > 0 else 1.0)
        self.log_union = math.log(max(problem.rows_at_risk, 1) / problem.delta_of_transitions)
        # How many rewards at each planned step depend on what follows the action: those of later steps, and its own one if
        # that depends on the next state.
        after = np.arange(problem.horizon)[::-1] + problem.next_state_rewards
        self.remaining = np.concatenate([[problem.horizon] * problem.artificial, after]).astype(float)
        slots = problem.slots
        self.known = (slots.possible == 1) & (~np.array(problem.black_box_rewards) | (slots.begin == 1))

    def plan(self, counts: Counts, round: int) -> Plan:
        """Return the bound so far, and the greedy policy for D⁺ or D⁻ where it is largest."""
        gap, at, points = self._promise(counts)
        greedy = points[at][1][round % 2]
        nowhere = np.full_like(greedy, -1)
        bounds = Bounds(-math.inf, math.inf, gap * (1 + 2 * CLAIM_ROUNDING))
        return Plan(np.zeros_like(greedy), bounds, Behaviour(greedy, greedy, nowhere, False))

    def claim(self, counts: Counts, plan: Plan) -> Claim:
        """Return the bound and its cells of |β|; values lie between those of the extreme rewards."""
        gap, _, points = self._promise(counts)
        cells = tuple(Cell(b, b, None) for b in sorted(points))
        size = self.problem.horizon * max(abs(self.low), abs(self.high)) * 1e-15
        ends = self.problem.horizon * self.low - size, self.problem.horizon * self.high + size
        return Claim(*ends, min(max(gap * (1 + CLAIM_ROUNDING), size), ends[1] - ends[0]), cells=cells)

    def bound_at_most(self, counts: Counts) -> float:
        """Return the bound for all rewards at the largest |β|, for a policy that is optimal in the estimated model there.

        A tiny β is replaced by a larger one, and the bound is increased by what that may change (Hoeffding's lemma): the
        value in either model, and the loss of the policy in the estimated one. There is room for the rounding of that loss.
        """
        bound = self._bound(self.least, self.most, self._point(self.most, self._sets(counts), counts)[0])
        lifted = (self.most - self.least) * self.spread**2 / 8
        widest = len(self.problem.slots.successor) + self.problem.n_states
        return bound * (1 + CLAIM_ROUNDING) + lifted + self.problem.steps * (4000 + widest) * 2.0**-50 / self.most

    def _promise(self, counts: Counts) -> tuple[float, float, dict[float, Any]]:
        """Return the bound for all β, the point where it is largest, and all points with D and the greedy policies there."""
        sets, enough = self._sets(counts), self.problem.eps / (1 + 2 * CLAIM_ROUNDING)
        points = {self.most: self._point(self.most, sets, counts)}
        while True:
            tops = sorted(points)
            bounds = [self._bound(a, b, points[b][0]) for a, b in zip([self.least, *tops], tops, strict=False)]
            worst = int(np.argmax(bounds))
            begin, end = tops[worst - 1] if worst else self.least, tops[worst]
            own = points[end][0] / end
            share = CELL_SHARE if own <= enough else FAR_SHARE
            if bounds[worst] <= max(enough, own * (1 + share)) or len(tops) >= MOST_CELLS:
                return bounds[worst], end, points
            middle = math.sqrt(begin * end) if begin > end / 64 else end / 8
            points[middle] = self._point(middle, sets, counts)

    def _bound(self, begin: float, end: float, d: float) -> float:
        """Return the bound for |β| from ``begin`` to ``end``, where D is ``d``; at most the range of the return."""
        # The range is first: a NaN is not smaller, so it is never returned.
        bounds = [self.spread, d / end + max(0.0, end - begin) * self.spread**2 / 4]
        return min(bounds) if not 0 < begin <= end else min(*bounds, d / begin)

    def _point(self, b: float, sets: Sets, counts: Counts) -> tuple[float, np.ndarray]:
        steps, n_states = self.problem.steps, self.problem.n_states
        d, policy = np.zeros((2, steps + 1, n_states + 1)), np.zeros((2, steps, n_states), dtype=np.int64)
        work = np.empty((3, n_states + 2 + END_REWARDS + STAY_REWARDS))
        reach = b * (self.high - self.low) * self.remaining
        go_back(self.frame, counts.arrays, sets, reach, self.seed, d, policy, work)
        total = float(d[:, 0, self.frame.start].sum())
        return total if total == total else math.inf, policy

    def _sets(self, counts: Counts) -> Sets:
        rows, slots = counts.occupied_slots()
        seen = np.bincount(rows[counts.arrays.tally[slots] > 0], minlength=self.problem.n_rows)
        listed = np.where((seen > 0) & (seen <= MOST_LISTED), 1 << np.minimum(seen, MOST_LISTED), 0)
        first = np.concatenate([[0], np.cumsum(listed)])
        sets = Sets(first, np.zeros(len(seen)), self.known, *np.zeros((2, first[-1])))
        possible, tally = self.problem.slots.possible, np.empty(MOST_LISTED, dtype=np.int64)
        list_sets(counts.arrays, possible, self.problem.uncertain, self.log_union, sets, tally)
        return sets
