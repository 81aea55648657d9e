r"""The paper's method: optimism with Bernstein bonuses in exponential space, and a width certificate.

With 1-based steps, :math:`x=\alpha(n)/n`, :math:`x^\star=\alpha^\star(n)/n`, :math:`Z^\circ` the optimistic side
(:math:`Z^{up}` for :math:`\beta>0`, :math:`Z^{low}` for :math:`\beta<0`), from :math:`Z_{H+1}=1`, :math:`G_{H+1}=0`:

.. math::
   U^{up}  &= \min\{\text{cap},\, e^{\beta r}[\hat p Z^{up}  + b + \tfrac1H \hat p(Z^{up}-Z^{low})]\}\\
   U^{low} &= \max\{\text{floor},\, e^{\beta r}[\hat p Z^{low} - b - \tfrac1H \hat p(Z^{up}-Z^{low})]\}\\
   G &= \min\{\text{cap}_G,\, e^{\beta r}[\,c + \kappa\,\hat p G_{h+1}]\}\quad\text{at the greedy action}.

``constants="verified"`` is, to the letter, the algorithm whose PAC property and sample complexity are machine-checked
in Lean 4: :math:`b = 2\sqrt{2\operatorname{Var}_{\hat p}(Z^\circ)x^\star} + (5+4H)\,\text{range}_h\,x`, :math:`c=3b`,
:math:`\kappa=1+3/H`, range :math:`e^{\beta(H-h)}` or :math:`1-e^{\beta(H-h)}`, caps from rewards in [0, 1].

``constants="printed"`` has the bonus of the printed paper, :math:`b = 2\sqrt{2\operatorname{Var}_{\hat p}(Z^\circ)x^\star} +
5\,\text{range}_h\,x + 4H\,\text{range}_h\,x^\star`, and everything else of ``verified``: the printed caps are false. That
it certifies is proved on paper as long as :math:`(H/4+2)x \le 5x+4Hx^\star`, which for all n at once means :math:`H\le12`
or :math:`S\le16H/(H-12)`; elsewhere it is refused.

``constants="sharp"`` has the same proof on paper with less slack: :math:`b = 2\sqrt{2\operatorname{Var}x^\star} +
\sqrt5\,B\sqrt{x x^\star} + (2H+3)B x^\star`, :math:`c=2b+(H/2+2)Bx`, :math:`\kappa=1+2/H`, where :math:`B` is the span of
:math:`Z_{h+1}` over the possible successors given the known rewards, caps to match, and the weakest stopping rule.

Stop when :math:`G_1 \le (1-e^{-\beta\varepsilon})Z^{up}_1` for :math:`\beta>0`; for :math:`\beta<0` when
:math:`G_1 \le (1-e^{\beta\varepsilon})Z^{low}_1`, or for sharp constants :math:`(e^{|\beta|\varepsilon}-1)Z^{low}_1`. Both
are written as ``gap <= eps`` below.

Rewards outside [0, 1] are rescaled: :math:`r'=(r-lo)/(hi-lo)`, :math:`\beta'=\beta(hi-lo)`,
:math:`\varepsilon'=\varepsilon/(hi-lo)`, :math:`V = H\,lo + (hi-lo)V'`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, helper, inlined
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.rates import log_8e, reached
from entropic_bpi.problem.counts import CountArrays, Counts, spare_slots
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame, actions_at, row_of
from entropic_bpi.problem.ties import wins_tie
from entropic_bpi.sources.simulator import Kernel, Simulator, play_episode
from entropic_bpi.tools.checks import check_reach
from entropic_bpi.types import Behaviour, Bounds, Plan

__all__ = ["Bernstein"]

# Below this |β|H the sharp form carries (Z - 1)/|β|, whose digits Z itself would lose.
SMALL_EXPONENT = 1.0
# Below this |β| nothing differs from β = 0, and quotients by β would leave the range of doubles.
ZERO_BETA = 1e-200
# Above this |β|H the rounding of exponents, in values, may exceed that of Z.
STEEP_EXPONENT = 20.0
# What rounding can do to G / Z.
ROUNDING = 1e-13
ULPS = 1e-15
# The same where it is more: for each step, for the largest x times each step (x is large after few visits, and multiplies
# differences of almost equal Z), and for |β|H. Intervals of the verifier differ from G / Z by up to half of it.
ROUNDING_PER_STEP, ROUNDING_PER_RATE, ROUNDING_PER_EXPONENT = 4e-14, 2e-14, 1.6e-14


class Tables(NamedTuple):
    """What a plan needs besides the counts. Tables hold ``(Z - origin) / unit``, that is Z itself, or
    ``(Z - 1) / |β|`` where exponents are ``small``. Arrays over places are ``(steps, S, A)``. ``seed`` breaks ties; a
    gap of ``eps`` is enough.

    ``gain`` is e^{βr} and ``lift`` the same for the origin, ``(e^{βr} - 1) origin / unit``; ``cap`` and ``floor`` bound U,
    ``width_cap`` bounds G, ``span`` is the range of Z_{h+1} in the bonus. ``rate`` and ``rate_star`` are α(n)/n and α*(n)/n.

    The constants: ``log_kl``, ``log_bernstein`` and ``dimension`` are those of α and α*, ``linear`` and ``linear_star``
    are the weights of x and x* in the bonus, ``extra`` is H/2 + 2 (sharp alone) and ``slack`` is 1/H.
    """

    beta: float
    small: bool
    eps: float
    seed: int
    sign: int
    sharp: bool
    log_kl: float
    log_bernstein: float
    dimension: int
    linear: float
    linear_star: float
    extra: float
    slack: float
    gain: np.ndarray
    lift: np.ndarray
    cap: np.ndarray
    floor: np.ndarray
    width_cap: np.ndarray
    span: np.ndarray
    rate: np.ndarray
    rate_star: np.ndarray


class Sheet(NamedTuple):
    """A plan: Z_up, Z_low and G ``(steps + 1, S)``, its greedy policy ``(steps, S)``, and what the next plan reuses.

    ``u_up``, ``u_low`` and ``u_width`` are the bounds of each action, ``(steps, S, A)``. ``reach`` ``(rows,)`` has bit
    ``y % 64`` set for each successor ``y`` that the row was seen to have, ``planned`` the visits that it had then.
    """

    up: np.ndarray
    low: np.ndarray
    width: np.ndarray
    policy: np.ndarray
    u_up: np.ndarray
    u_low: np.ndarray
    u_width: np.ndarray
    reach: np.ndarray
    planned: np.ndarray


class Moments(NamedTuple):
    """Under the empirical successors of a row: the means of Z_up, Z_low and G, and the optimistic side's deviation."""

    up: float
    low: float
    width: float
    deviation: float


@inlined
def _bit(state: int) -> np.uint64:
    return np.uint64(1) << np.uint64(state & 63)


@inlined
def _refresh(tables: Tables, ledger: CountArrays, sheet: Sheet) -> None:
    """Recompute α(n)/n, α*(n)/n and the successors of the rows visited since the last plan."""
    for row in range(ledger.visits.size):
        n = ledger.visits[row]
        if sheet.planned[row] != n:
            bits = np.uint64(0)
            if n > 0:
                log_term = log_8e(n)
                tables.rate[row] = (tables.log_kl + tables.dimension * log_term) / n
                tables.rate_star[row] = (tables.log_bernstein + log_term) / n
                for j in range(ledger.begin[row], ledger.begin[row] + ledger.used[row]):
                    if ledger.tally[j] > 0:
                        bits |= _bit(ledger.successor[j])
            sheet.reach[row] = bits


@inlined
def _moments(tables: Tables, ledger: CountArrays, sheet: Sheet, row: int, h: int) -> Moments:
    """Of what follows a visited ``row``, at step ``h``.

    Underflow is safe: in units of the largest deviation, what vanishes is far below rounding.
    """
    begin, end, n = ledger.begin[row], ledger.begin[row] + ledger.used[row], float(ledger.visits[row])
    optimistic = sheet.up if tables.sign > 0 else sheet.low
    up = low = width = 0.0
    highest, lowest = -np.inf, np.inf
    for j in range(begin, end):
        if ledger.tally[j] > 0:
            p, y = ledger.tally[j] / n, ledger.successor[j]
            up += p * sheet.up[h, y]
            low += p * sheet.low[h, y]
            width += p * sheet.width[h, y]
            highest = max(highest, optimistic[h, y])
            lowest = min(lowest, optimistic[h, y])
    centre = up if tables.sign > 0 else low
    # Squares of Z can leave the range of doubles although Z does not: measure deviations in units of the largest.
    largest = max(highest - centre, centre - lowest)
    total = 0.0
    if highest > lowest:
        for j in range(begin, end):
            if ledger.tally[j] > 0:
                deviation = (optimistic[h, ledger.successor[j]] - centre) / largest
                total += ledger.tally[j] / n * deviation * deviation
    return Moments(up, low, width, largest * math.sqrt(total))


@inlined
def _bounds(tables: Tables, row: int, h: int, s: int, a: int, moments: Moments) -> tuple[float, float, float]:
    """U_up, U_low and the certificate G of one action that was tried.

    ``min`` and ``max`` keep their first argument when the second is not a number: cap, floor and the widest G are safe.
    """
    x, x_star, span = tables.rate[row], tables.rate_star[row], tables.span[h, s, a]
    bonus = 2.0 * math.sqrt(2.0 * x_star) * moments.deviation
    if tables.sharp:
        bonus += (math.sqrt(5.0 * x * x_star) + tables.linear_star * x_star) * span
        width = 2.0 * bonus + tables.extra * span * x + (1.0 + 2.0 * tables.slack) * moments.width
    else:
        bonus += tables.linear * span * x + tables.linear_star * span * x_star
        width = 3.0 * bonus + (1.0 + 3.0 * tables.slack) * moments.width
    room = bonus + tables.slack * (moments.up - moments.low)
    lift, gain, cap, floor = tables.lift[h, s, a], tables.gain[h, s, a], tables.cap[h, s, a], tables.floor[h, s, a]
    # Each is kept between cap and floor: where they meet, rounding could otherwise leave it outside.
    up = max(floor, min(cap, lift + gain * (moments.up + room)))
    low = min(cap, max(floor, lift + gain * (moments.low - room)))
    width = min(tables.width_cap[h, s, a], gain * width)
    if tables.sharp:
        width = min(width, up - floor if tables.sign > 0 else cap - low)
    return up, low, width


@inlined
def _choose(tables: Tables, sheet: Sheet, h: int, s: int, actions: int) -> tuple[float, float, int]:
    """Z_up, Z_low and the greedy action of one state from the bounds of its actions."""
    best_up, best_low, chosen = sheet.u_up[h, s, 0], sheet.u_low[h, s, 0], 0
    for a in range(1, actions):
        up, low = sheet.u_up[h, s, a], sheet.u_low[h, s, a]
        # Until now the optimistic side of the action chosen is the best one.
        advantage = up - best_up if tables.sign > 0 else best_low - low
        if advantage > 0 or (advantage == 0 and wins_tie(tables.seed, h, s, a, chosen)):
            chosen = a
        best_up = max(best_up, up) if tables.sign > 0 else min(best_up, up)
        best_low = max(best_low, low) if tables.sign > 0 else min(best_low, low)
    return best_up, best_low, chosen


@helper
def _plan(frame: Frame, tables: Tables, ledger: CountArrays, sheet: Sheet) -> tuple[float, float, float]:
    """Backward induction over the reachable states, and the claim.

    Bounds whose inputs are what they were at the last plan are not computed again.
    """
    _refresh(tables, ledger, sheet)
    moved = np.uint64(0)  # the states, as bits, where something changed at the step after
    for h in range(frame.steps - 1, -1, -1):
        actions = actions_at(frame, h)
        moved_here = np.uint64(0)
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            due = False
            for a in range(actions):
                row = row_of(frame, h, s, a)
                if sheet.planned[row] == ledger.visits[row] and sheet.reach[row] & moved == 0:
                    continue
                due = True
                if ledger.visits[row] == 0:
                    up, low, width = tables.cap[h, s, a], tables.floor[h, s, a], tables.width_cap[h, s, a]
                else:
                    up, low, width = _bounds(tables, row, h, s, a, _moments(tables, ledger, sheet, row, h + 1))
                sheet.u_up[h, s, a], sheet.u_low[h, s, a], sheet.u_width[h, s, a] = up, low, width
            if due:
                up, low, chosen = _choose(tables, sheet, h, s, actions)
                width = sheet.u_width[h, s, chosen]
                sheet.policy[h, s] = chosen
                if up != sheet.up[h, s] or low != sheet.low[h, s] or width != sheet.width[h, s]:
                    moved_here |= _bit(s)
                    sheet.up[h, s], sheet.low[h, s], sheet.width[h, s] = up, low, width
        moved = moved_here
    largest_rate = 0.0
    for row in range(ledger.visits.size):
        sheet.planned[row] = ledger.visits[row]
        largest_rate = max(largest_rate, tables.rate[row])
    per_step = ROUNDING_PER_STEP + ROUNDING_PER_RATE * largest_rate + ROUNDING_PER_EXPONENT * abs(tables.beta)
    rounding = max(ROUNDING, frame.steps * per_step)
    return _claim(tables, sheet.up[0, frame.start], sheet.low[0, frame.start], sheet.width[0, frame.start], rounding)


@inlined
def _claim(tables: Tables, up: float, low: float, width: float, rounding: float) -> tuple[float, float, float]:
    """Lower bound of the policy's value, upper bound of the optimal value, and the gap; -inf and inf say nothing.

    Underflow is safe: Z is at least e^-600, beside which a width that vanishes is far below rounding.
    """
    beta, strength = tables.beta, abs(tables.beta)
    if strength == 0.0:
        return up - width, up, width
    z, unit = up if beta > 0 else low, 1.0
    if tables.small:
        unit = strength
        value = math.log1p(unit * z) / beta
        z = 1.0 + unit * z
    else:
        value = math.log(z) / beta
    g = unit * width / z
    lower = value - math.log1p(g) / strength if g < np.inf else -np.inf
    if beta < 0 and tables.sharp:
        return lower, value, value - lower
    # Near 1 the complement of g has lost its digits.
    if g > 0.5:
        g += rounding
    gap = -math.log1p(-g) / strength if g < 1.0 else np.inf
    return value - gap if beta > 0 else lower, value, gap


@compiled
def _run_every(
    kernel: Kernel,
    rng: np.random.Generator,
    frame: Frame,
    tables: Tables,
    ledger: CountArrays,
    sheet: Sheet,
    spare: int,
    history: np.ndarray,
) -> tuple[int, int, int]:
    """Play an episode of the current policy, plan, test; once for each row of ``history`` or until the test passes.

    Returns the number of episodes played and the transition that was declared impossible, if any.
    """
    behaviour = Behaviour(sheet.policy, sheet.policy, sheet.policy, False)
    for i in range(len(history)):
        if ledger.end[0] + spare > ledger.successor.size:
            return i, -1, -1
        row, successor = play_episode(kernel, frame, behaviour, ledger, rng)
        if row >= 0:
            return i, row, successor
        history[i, 0], history[i, 1], history[i, 2] = _plan(frame, tables, ledger, sheet)
        if reached(history[i, 2], tables.eps):
            return i + 1, -1, -1
    return len(history), -1, -1


class Bernstein:
    """The paper's method with ``constants`` ``"verified"``, ``"sharp"`` or ``"printed"``; see the module's docstring."""

    options: ClassVar = {"constants": ("verified", "sharp", "printed"), "sampling": ("optimistic",)}
    events: ClassVar = ("E_KL", "E_Z", "E_cnt")
    proof: ClassVar = ("E_KL", "E_Z")
    unused: ClassVar = dict.fromkeys(("verified", "printed"), ("stationary", "successors"))

    def __init__(
        self, problem: Problem, constants: str = "verified", seed: int = 0, sampling: str = "optimistic"
    ) -> None:
        if problem.random_rewards:
            raise InvalidProblemError(
                f"method='bernstein' has no proof for reward_law={problem.reward_law!r}. Use method='kl'"
            )
        if problem.rewards is None:
            raise InvalidProblemError(
                "method='bernstein' needs rewards that depend on (s, a) only: no proof covers rewards that depend on the "
                "next state. Use method='kl'"
            )
        if problem.artificial and problem.start is not None:
            raise InvalidProblemError("method='bernstein' makes no use of start: use method='kl', or leave it out")
        if problem.max_successors is not None:
            raise InvalidProblemError(
                "method='bernstein' makes no use of max_successors: use method='kl', or leave it out"
            )
        if problem.discount is not None:
            raise InvalidProblemError("discount needs method='kl': the paper's method is for finitely many steps")
        low, high = problem.possible_rewards
        inside = low >= 0 and high <= 1
        self.shift, self.scale = (0.0, 1.0) if inside else (low, (high - low) or 1.0)
        self.problem, self.constants, self.seed = problem, constants, seed
        self.beta, self.eps = problem.beta * self.scale, problem.eps / self.scale
        if abs(self.beta) < ZERO_BETA:
            self.beta = 0.0
        exponent = abs(self.beta) * problem.steps
        check_reach(problem.beta, exponent, "horizon * reward range")
        if constants != "sharp" and self.beta == 0:
            raise InvalidProblemError(f"constants={constants!r} needs beta != 0; constants='sharp' covers beta = 0")
        if constants == "printed":
            _check_proved(problem)
        self.small = exponent < SMALL_EXPONENT
        self.unit = (abs(self.beta) or 1.0) if self.small else 1.0
        # What the recursion may have lost to rounding, in values; bounds are widened by it.
        size = problem.steps if self.small else 1.0 / abs(self.beta) + (exponent > STEEP_EXPONENT)
        self.pad = ULPS * ((problem.steps + 1) * size * self.scale + problem.horizon * abs(self.shift))
        self.eps -= self.pad / self.scale
        self.frame: Frame = problem.frame
        self.tables = self._tables()
        shape = (problem.steps + 1, problem.n_states)
        terminal = 0.0 if self.small else 1.0
        self.sheet = Sheet(
            up=np.full(shape, terminal),
            low=np.full(shape, terminal),
            width=np.zeros(shape),
            policy=np.zeros(shape, dtype=np.int64)[1:],
            u_up=np.zeros_like(self.tables.cap),
            u_low=np.zeros_like(self.tables.cap),
            u_width=np.zeros_like(self.tables.cap),
            reach=np.zeros(problem.n_rows, dtype=np.uint64),
            planned=np.full(problem.n_rows, -1),
        )
        self.origin: object = None

    def plan(self, counts: Counts, round: int) -> Plan:
        """Bounds and the next policy from the counts."""
        if counts.origin is not self.origin:  # nothing of other counts may be reused
            self.sheet.planned[:], self.origin = -1, counts.origin
        claim = self._in_reward_units(*_plan(self.frame, self.tables, counts.ledger, self.sheet))
        policy = self.sheet.policy.copy()
        return Plan(policy, claim, Behaviour(policy, policy, policy, False))

    def claim(self, counts: Counts, plan: Plan) -> Bounds:
        """What the plan says already: its bounds are about the policy that it chose, and no other."""
        return Bounds(*map(float, plan.bounds.certified))

    def play_every(self, plan: Plan, counts: Counts, simulator: Simulator, round: int, episodes: int) -> Bounds:
        """Play ``plan``, then plan, test and play after each episode in one compiled loop."""
        history = np.empty((episodes, 3))
        spare = spare_slots(self.problem)
        counts.reserve(spare)
        self.sheet.policy[:] = plan.policy
        played, row, successor = _run_every(
            simulator.kernel, simulator.rng, self.frame, self.tables, counts.ledger, self.sheet, spare, history
        )
        counts.episodes += played
        if row >= 0:
            counts.refuse(row, successor)
        return self._in_reward_units(*history[:played].T)

    def _in_reward_units(self, lower: Any, upper: Any, gap: Any) -> Bounds:
        offset = self.problem.horizon * self.shift
        worst = offset if self.shift else self.problem.horizon * min(self.problem.possible_rewards[0], 0.0)
        worst -= ULPS * abs(worst)
        lower, upper = offset + self.scale * lower - self.pad, offset + self.scale * upper + self.pad
        return Bounds(np.maximum(worst, lower), upper, self.scale * gap + self.pad)

    def _tables(self) -> Tables:
        problem, beta, steps = self.problem, self.beta, self.problem.steps
        sharp = self.constants == "sharp"
        pairs = problem.n_states * problem.n_actions
        union = pairs * steps / (problem.delta / 3)
        pooled_union = (pairs + problem.artificial) / (problem.delta / 3) if problem.stationary else union
        unit, origin = self.unit, 1.0 if self.small else 0.0
        rewards = self._step_rewards()
        gain = np.exp(beta * rewards)
        lift = origin * (np.expm1(beta * rewards) / unit if beta else rewards)
        if sharp:
            bottom, top = self._reward_aware_ranges(rewards)
            cap, floor, width_cap, span = lift + gain * top, lift + gain * bottom, gain * (top - bottom), top - bottom
        else:
            cap, floor, width_cap, span = self._plain_ranges()
        linear, linear_star = {
            "verified": (5.0 + 4.0 * steps, 0.0),
            "printed": (5.0, 4.0 * steps),
            "sharp": (0.0, 2.0 * steps + 3.0),
        }[self.constants]
        return Tables(
            beta=beta,
            small=self.small,
            eps=self.eps,
            seed=self.seed,
            sign=1 if beta >= 0 else -1,
            sharp=sharp,
            log_kl=math.log(pooled_union),
            log_bernstein=math.log(union),
            dimension=problem.n_states,
            linear=linear,
            linear_star=linear_star,
            extra=0.5 * steps + 2.0 if sharp else 0.0,
            slack=1.0 / steps,
            gain=gain,
            lift=lift,
            cap=cap,
            floor=floor,
            width_cap=width_cap,
            span=span,
            rate=np.zeros(problem.n_rows),
            rate_star=np.zeros(problem.n_rows),
        )

    def _step_rewards(self) -> np.ndarray:
        """Rescaled rewards ``(steps, S, A)``; the artificial step pays 0."""
        problem = self.problem
        assert problem.rewards is not None
        rewards = np.zeros((problem.steps, problem.n_states, problem.n_actions))
        rewards[int(problem.artificial) :] = (problem.rewards - self.shift) / self.scale
        return rewards

    def _plain_ranges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Caps and ranges that know only that rewards lie in [0, 1]."""
        problem, unit = self.problem, self.unit
        remaining = np.arange(problem.steps, 0, -1)[:, None, None] * np.ones((1, problem.n_states, problem.n_actions))
        extreme, one = self.transform(remaining), self.transform(np.zeros_like(remaining))
        if self.beta > 0:
            return extreme, one, np.exp(self.beta * remaining) / unit, np.exp(self.beta * (remaining - 1)) / unit
        return one, extreme, np.ones_like(remaining) / unit, -np.expm1(self.beta * (remaining - 1)) / unit

    def _reward_aware_ranges(self, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest (Z_{h+1} - origin) / unit over the possible successors of each place."""
        problem, shape = self.problem, rewards.shape
        least, most = np.zeros(problem.n_states), np.zeros(problem.n_states)
        bottom, top = np.empty(shape), np.empty(shape)
        for h in reversed(range(problem.steps)):
            low, high = self._successor_extremes(h, least, most)
            ends = np.stack([self.transform(low), self.transform(high)])
            bottom[h], top[h] = ends.min(axis=0), ends.max(axis=0)
            least, most = (rewards[h] + low).min(axis=1), (rewards[h] + high).max(axis=1)
        return bottom, top

    def transform(self, value: np.ndarray) -> np.ndarray:
        """(Z - origin) / unit of a rescaled value."""
        if not self.small:
            return np.exp(self.beta * value)
        return np.expm1(self.beta * value) / self.unit if self.beta else value

    def _successor_extremes(self, h: int, least: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        problem, slots = self.problem, self.problem.slots
        shape = (problem.n_states, problem.n_actions)
        if problem.artificial and h == 0:
            rows = np.full(shape[0] * shape[1], problem.n_rows - 1)
        else:
            rows = problem.rows_at(h, np.arange(problem.n_states))
        if problem.successors == "unknown":
            return np.full(shape, least.min()), np.full(shape, most.max())
        low, high = np.empty(len(rows)), np.empty(len(rows))
        for i, row in enumerate(rows):
            successors = slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]]
            low[i], high[i] = least[successors].min(), most[successors].max()
        return low.reshape(shape), high.reshape(shape)


def _check_proved(problem: Problem) -> None:
    """Refuse the printed constants where nobody has proved that they certify: (H/4 + 2) α(n) <= 5 α(n) + 4H α*(n) for
    all n, and α(n) / α*(n) tends to S."""
    steps, n_states = problem.steps, problem.n_states
    if n_states * (steps - 12) > 16 * steps:
        raise InvalidProblemError(
            f"constants='printed' is proved for at most 12 steps, or S <= 16H/(H - 12): with H = {steps} steps for at most "
            f"{16 * steps // (steps - 12)} states, got {n_states}. Use constants='sharp' or constants='verified'"
        )
