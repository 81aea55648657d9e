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

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, helper, inlined
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.rates import log_8e, reached
from entropic_bpi.problem.counts import CountArrays, Counts, spare_slots
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame, actions_at, is_allowed, row_of
from entropic_bpi.problem.ties import wins_tie
from entropic_bpi.sources.simulator import Kernel, Simulator, play_episode
from entropic_bpi.tools.checks import check_reach, refuse_for
from entropic_bpi.types import Behaviour, Bounds, Integers, Plan, Reals

# Below this |β|H tables hold (Z - 1)/|β|, because Z itself would lose its digits.
SMALL_EXPONENT = 1.0
# Below this |β| nothing differs from β = 0, and quotients by β would leave the range of doubles.
ZERO_BETA = 1e-200
# Above this |β|H the rounding of exponents, in values, may exceed that of Z.
STEEP_EXPONENT = 20.0
ULPS = 1e-15
# The rounding error of G / Z, at least.
ROUNDING = 1e-13
# It may be larger: so much for each step, for each step times the largest x (x is large after few visits, and multiplies
# differences of almost equal Z), and for |β|H. The verifier's intervals differ from G / Z by up to half of it.
ROUNDING_PER_STEP, ROUNDING_PER_RATE, ROUNDING_PER_EXPONENT = 4e-14, 2e-14, 1.6e-14


class Tables(NamedTuple):
    """The constants of plans. Tables hold ``(Z - origin) / unit``, that is Z itself, or ``(Z - 1) / |β|`` if exponents are
    ``small``. Arrays by action are ``(steps, S, A)``. ``seed`` breaks ties; a run stops at a gap of ``eps``; an episode
    needs at most ``spare`` slots of the pool.

    ``gain`` is e^{βr} and ``lift`` the same for the origin, ``(e^{βr} - 1) origin / unit``; ``cap`` and ``floor`` bound U,
    ``width_cap`` bounds G, ``span`` is the range of Z_{h+1} in the bonus. ``rate`` and ``rate_star`` are α(n)/n and α*(n)/n.

    The constants: ``log_kl``, ``log_bernstein`` and ``dimension`` are those of α and α*, ``linear`` and ``linear_star``
    are the weights of x and x* in the bonus, ``extra`` is H/2 + 2 (sharp alone) and ``slack`` is 1/H.
    """

    beta: float
    small: bool
    eps: float
    seed: int
    spare: int
    sharp: bool
    log_kl: float
    log_bernstein: float
    dimension: int
    linear: float
    linear_star: float
    extra: float
    slack: float
    gain: Reals
    lift: Reals
    cap: Reals
    floor: Reals
    width_cap: Reals
    span: Reals
    rate: Reals
    rate_star: Reals


class Sheet(NamedTuple):
    """The arrays of a plan: Z_up, Z_low and G ``(steps + 1, S)``, the greedy policy ``(steps, S)``, and what is reused.

    ``u_up``, ``u_low`` and ``u_width`` are the bounds of each action, ``(steps, S, A)``. ``reach`` ``(rows,)`` has bit
    ``y % 64`` set for each successor ``y`` that was seen of the row, and ``planned`` the visits of the row at that plan.
    """

    up: Reals
    low: Reals
    width: Reals
    policy: Integers
    u_up: Reals
    u_low: Reals
    u_width: Reals
    reach: Integers
    planned: Integers


@inlined
def _bit(state: int) -> np.uint64:
    return np.uint64(1) << np.uint64(state & 63)


@inlined
def _refresh(tables: Tables, arrays: CountArrays, sheet: Sheet) -> None:
    """Recompute α(n)/n, α*(n)/n and ``reach`` of the rows visited since the last plan."""
    for row in range(arrays.visits.size):
        n = arrays.visits[row]
        if sheet.planned[row] != n:
            bits = np.uint64(0)
            if n > 0:
                log_term = log_8e(n)
                tables.rate[row] = (tables.log_kl + tables.dimension * log_term) / n
                tables.rate_star[row] = (tables.log_bernstein + log_term) / n
                for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row]):
                    if arrays.tally[j] > 0:
                        bits |= _bit(arrays.successor[j])
            sheet.reach[row] = bits


@inlined
def _moments(tables: Tables, arrays: CountArrays, sheet: Sheet, row: int, h: int) -> tuple[float, float, float, float]:
    """Return the means of Z_up, Z_low and G of step ``h`` under the empirical law of a visited ``row``, and the standard
    deviation of the optimistic side.

    Underflow is safe: in units of the largest deviation, what vanishes is far below rounding.
    """
    begin, end, n = arrays.begin[row], arrays.begin[row] + arrays.used[row], float(arrays.visits[row])
    optimistic = sheet.up if tables.beta >= 0 else sheet.low
    up = low = width = 0.0
    highest, lowest = -np.inf, np.inf
    for j in range(begin, end):
        if arrays.tally[j] > 0:
            p, y = arrays.tally[j] / n, arrays.successor[j]
            up += p * sheet.up[h, y]
            low += p * sheet.low[h, y]
            width += p * sheet.width[h, y]
            highest = max(highest, optimistic[h, y])
            lowest = min(lowest, optimistic[h, y])
    centre = up if tables.beta >= 0 else low
    # Squares of Z can leave the range of doubles although Z does not: measure deviations in units of the largest.
    largest = max(highest - centre, centre - lowest)
    total = 0.0
    if highest > lowest:
        for j in range(begin, end):
            if arrays.tally[j] > 0:
                deviation = (optimistic[h, arrays.successor[j]] - centre) / largest
                total += arrays.tally[j] / n * deviation * deviation
    return up, low, width, largest * math.sqrt(total)


@inlined
def _bounds(
    tables: Tables, arrays: CountArrays, sheet: Sheet, row: int, h: int, s: int, a: int
) -> tuple[float, float, float]:
    """Return U_up, U_low and the certificate G of one action.

    ``min`` and ``max`` keep their first argument if the second is NaN, so a NaN is replaced by cap, floor or the widest G.
    """
    cap, floor, width_cap = tables.cap[h, s, a], tables.floor[h, s, a], tables.width_cap[h, s, a]
    if arrays.visits[row] == 0:
        return cap, floor, width_cap
    mean_up, mean_low, mean_width, deviation = _moments(tables, arrays, sheet, row, h + 1)
    x, x_star, span = tables.rate[row], tables.rate_star[row], tables.span[h, s, a]
    bonus = 2.0 * math.sqrt(2.0 * x_star) * deviation
    if tables.sharp:
        bonus += (math.sqrt(5.0 * x * x_star) + tables.linear_star * x_star) * span
        width = 2.0 * bonus + tables.extra * span * x + (1.0 + 2.0 * tables.slack) * mean_width
    else:
        bonus += tables.linear * span * x + tables.linear_star * span * x_star
        width = 3.0 * bonus + (1.0 + 3.0 * tables.slack) * mean_width
    room, lift, gain = bonus + tables.slack * (mean_up - mean_low), tables.lift[h, s, a], tables.gain[h, s, a]
    # Both are kept between floor and cap: if these are equal, rounding could otherwise leave a bound outside.
    up = max(floor, min(cap, lift + gain * (mean_up + room)))
    low = min(cap, max(floor, lift + gain * (mean_low - room)))
    width = min(width_cap, gain * width)
    if tables.sharp:
        width = min(width, up - floor if tables.beta >= 0 else cap - low)
    return up, low, width


@inlined
def _choose(frame: Frame, tables: Tables, sheet: Sheet, h: int, s: int) -> tuple[float, float, int]:
    """Return Z_up, Z_low and the greedy action of one state from the bounds of its allowed actions."""
    best_up, best_low, chosen = 0.0, 0.0, -1
    for a in range(actions_at(frame, h)):
        up, low = sheet.u_up[h, s, a], sheet.u_low[h, s, a]
        if not is_allowed(frame, h, s, a):
            continue
        if chosen < 0:
            best_up, best_low, chosen = up, low, a
            continue
        # The action chosen so far has the best optimistic side so far.
        advantage = up - best_up if tables.beta >= 0 else best_low - low
        if advantage > 0 or (advantage == 0 and wins_tie(tables.seed, h, s, a, chosen)):
            chosen = a
        best_up = max(best_up, up) if tables.beta >= 0 else min(best_up, up)
        best_low = max(best_low, low) if tables.beta >= 0 else min(best_low, low)
    return best_up, best_low, chosen


@helper
def _plan(frame: Frame, tables: Tables, arrays: CountArrays, sheet: Sheet) -> tuple[float, float, float]:
    """Compute the bounds by backward induction over the reachable states, and return the claim.

    Bounds whose inputs have not changed since the last plan are not computed again.
    """
    _refresh(tables, arrays, sheet)
    moved = np.uint64(0)  # the states of the next step, as bits, whose bounds have changed
    for h in range(frame.steps - 1, -1, -1):
        actions = actions_at(frame, h)
        moved_here = np.uint64(0)
        for i in range(frame.first_state[h], frame.first_state[h + 1]):
            s = frame.states[i]
            due = False
            for a in range(actions):
                row = row_of(frame, h, s, a)
                if sheet.planned[row] == arrays.visits[row] and sheet.reach[row] & moved == 0:
                    continue
                due = True
                up, low, width = _bounds(tables, arrays, sheet, row, h, s, a)
                sheet.u_up[h, s, a], sheet.u_low[h, s, a], sheet.u_width[h, s, a] = up, low, width
            if due:
                up, low, chosen = _choose(frame, tables, sheet, h, s)
                width = sheet.u_width[h, s, chosen]
                sheet.policy[h, s] = chosen
                if up != sheet.up[h, s] or low != sheet.low[h, s] or width != sheet.width[h, s]:
                    moved_here |= _bit(s)
                    sheet.up[h, s], sheet.low[h, s], sheet.width[h, s] = up, low, width
        moved = moved_here
    largest_rate = 0.0
    for row in range(arrays.visits.size):
        sheet.planned[row] = arrays.visits[row]
        largest_rate = max(largest_rate, tables.rate[row])
    per_step = ROUNDING_PER_STEP + ROUNDING_PER_RATE * largest_rate + ROUNDING_PER_EXPONENT * abs(tables.beta)
    rounding = max(ROUNDING, frame.steps * per_step)
    return _claim(tables, sheet.up[0, frame.start], sheet.low[0, frame.start], sheet.width[0, frame.start], rounding)


@inlined
def _claim(tables: Tables, up: float, low: float, width: float, rounding: float) -> tuple[float, float, float]:
    """Return a lower bound on the policy's value, an upper bound on the optimal value, and the gap; they may be infinite.

    Underflow is safe: Z is at least e^-600, beside which a width that vanishes is far below rounding.
    """
    beta, strength = tables.beta, abs(tables.beta)
    if strength == 0.0:
        return up - width, up, width
    z = up if beta > 0 else low
    if tables.small:
        value, g = math.log1p(strength * z) / beta, strength * width / (1.0 + strength * z)
    else:
        value, g = math.log(z) / beta, width / z
    lower = value - math.log1p(g) / strength if g < np.inf else -np.inf
    if beta < 0 and tables.sharp:
        return lower, value, value - lower
    # If g is near 1, 1 - g has lost digits.
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
    arrays: CountArrays,
    sheet: Sheet,
    history: Reals,
) -> tuple[int, int, int]:
    """Play an episode of the current policy, plan, test; once for each row of ``history`` or until the test passes.

    Returns the number of episodes played, and the row and successor of a transition that is declared impossible, or -1, -1.
    """
    behaviour = Behaviour(sheet.policy, sheet.policy, sheet.policy, False)
    for i in range(len(history)):
        if arrays.end[0] + tables.spare > arrays.successor.size:
            return i, -1, -1
        row, successor = play_episode(kernel, frame, behaviour, arrays, rng)
        if row >= 0:
            return i, row, successor
        history[i, 0], history[i, 1], history[i, 2] = _plan(frame, tables, arrays, sheet)
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
        _check_covered(problem)
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
        # The rounding error of the recursion, in values; bounds are widened by it.
        size = problem.steps if self.small else 1.0 / abs(self.beta) + (exponent > STEEP_EXPONENT)
        self.pad = ULPS * ((problem.steps + 1) * size * self.scale + problem.horizon * abs(self.shift))
        self.eps -= self.pad / self.scale
        self.frame: Frame = problem.frame
        self.tables = self._tables()
        after, of_actions = (problem.steps + 1, problem.n_states), np.zeros((3, *self.tables.cap.shape))
        values, policy = np.full((2, *after), 0.0 if self.small else 1.0), np.zeros(after, dtype=np.int64)[1:]
        of_rows = np.zeros(problem.n_rows, dtype=np.uint64), np.full(problem.n_rows, -1)
        self.sheet = Sheet._make((*values, np.zeros(after), policy, *of_actions, *of_rows))
        self.origin: object = None

    def plan(self, counts: Counts, round: int) -> Plan:
        """Return bounds and the next policy from the counts."""
        if counts.origin is not self.origin:  # nothing of other counts may be reused
            self.sheet.planned[:], self.origin = -1, counts.origin
        claim = self._in_reward_units(*_plan(self.frame, self.tables, counts.arrays, self.sheet))
        policy = self.sheet.policy.copy()
        return Plan(policy, claim, Behaviour(policy, policy, policy, False))

    def claim(self, counts: Counts, plan: Plan) -> Bounds:
        """Return the bounds of the plan, which are about the policy that it chose and no other."""
        return Bounds(*map(float, plan.bounds.certified))

    def play_every(self, plan: Plan, counts: Counts, simulator: Simulator, round: int, episodes: int) -> Bounds:
        """Play ``plan``, then plan, test and play after each episode in one compiled loop; return the bounds."""
        history = np.empty((episodes, 3))
        counts.reserve(self.tables.spare)
        self.sheet.policy[:] = plan.policy
        inputs = simulator.kernel, simulator.rng, self.frame, self.tables, counts.arrays, self.sheet
        played, row, successor = _run_every(*inputs, history)
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
        problem, beta, steps, unit = self.problem, self.beta, self.problem.steps, self.unit
        assert problem.rewards is not None
        pairs, share = problem.n_states * problem.n_actions, problem.delta / 3
        union = pairs * steps / share
        pooled_union = (pairs + problem.artificial) / share if problem.stationary else union
        rewards = np.zeros((steps, problem.n_states, problem.n_actions))  # the artificial step pays 0
        rewards[int(problem.artificial) :] = (problem.rewards - self.shift) / self.scale
        gain, lift = np.exp(beta * rewards), np.zeros_like(rewards)
        if self.small:
            lift = np.expm1(beta * rewards) / unit if beta else rewards
        weights = {
            "verified": (5.0 + 4.0 * steps, 0.0, 0.0),
            "printed": (5.0, 4.0 * steps, 0.0),
            "sharp": (0.0, 2.0 * steps + 3.0, 0.5 * steps + 2.0),
        }[self.constants]
        if self.constants == "sharp":
            bottom, top = self._reward_aware_ranges(rewards)
            ranges = lift + gain * top, lift + gain * bottom, gain * (top - bottom), top - bottom
        else:  # these use only that rewards lie in [0, 1]
            remaining = np.broadcast_to(np.arange(steps, 0, -1.0)[:, None, None], rewards.shape)
            extreme, one = self.transform(remaining), self.transform(np.zeros_like(remaining))
            if beta > 0:
                ranges = extreme, one, np.exp(beta * remaining) / unit, np.exp(beta * (remaining - 1)) / unit
            else:
                ranges = one, extreme, np.ones_like(remaining) / unit, -np.expm1(beta * (remaining - 1)) / unit
        run = beta, self.small, self.eps, self.seed, spare_slots(problem), self.constants == "sharp"
        constants = math.log(pooled_union), math.log(union), problem.n_states, *weights, 1.0 / steps
        return Tables._make((*run, *constants, gain, lift, *ranges, *np.zeros((2, problem.n_rows))))

    def _reward_aware_ranges(self, rewards: Reals) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and largest (Z_{h+1} - origin) / unit over the possible successors, ``(steps, S, A)``."""
        problem, slots = self.problem, self.problem.slots
        least = most = np.zeros(problem.n_states)
        bottom, top = np.empty((2, *rewards.shape))
        for h in reversed(range(problem.steps)):
            # The possible successors of each row; one entry serves the artificial step, or all rows if any state may follow.
            listed: list[Any] = [slice(None)]
            if problem.successors != "unknown":
                rows = problem.rows_at(h, np.arange(problem.n_states))
                listed = [slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]] for row in rows]
            low = np.resize([least[each].min() for each in listed], rewards.shape[1:])
            high = np.resize([most[each].max() for each in listed], rewards.shape[1:])
            ends = np.stack([self.transform(low), self.transform(high)])
            bottom[h], top[h] = ends.min(axis=0), ends.max(axis=0)
            least, most = (rewards[h] + low).min(axis=1), (rewards[h] + high).max(axis=1)
        return bottom, top

    def transform(self, value: Reals) -> np.ndarray:
        """Return (Z - origin) / unit of a rescaled value."""
        if not self.small:
            return np.exp(self.beta * value)
        return np.expm1(self.beta * value) / self.unit if self.beta else value


def _check_covered(problem: Problem) -> None:
    """Refuse problems that no proof covers, and declarations that would be ignored."""
    instead = "use method='kl', or leave it out"
    uncovered = {
        f"has no proof for reward_law={problem.reward_law!r}. Use method='kl'": problem.random_rewards,
        "needs rewards that depend on (s, a) only: no proof covers rewards that depend on the next state. Use "
        "method='kl'": problem.rewards is None,
        f"makes no use of noise: {instead}": problem.noise is not None,
        f"makes no use of start: {instead}": problem.artificial and problem.start is not None,
        f"makes no use of max_successors: {instead}": problem.max_successors is not None,
        "is for finitely many steps: discount needs method='kl'": problem.discount is not None,
    }
    refuse_for(uncovered, "method='bernstein' ")


def _check_proved(problem: Problem) -> None:
    """Refuse the printed constants unless it is proved that they certify: (H/4 + 2) α(n) <= 5 α(n) + 4H α*(n) for all n,
    where α(n) / α*(n) tends to S."""
    steps, n_states = problem.steps, problem.n_states
    if n_states * (steps - 12) > 16 * steps:
        raise InvalidProblemError(
            f"constants='printed' is proved for at most 12 steps, or S <= 16H/(H - 12): with H = {steps} steps for at most "
            f"{16 * steps // (steps - 12)} states, got {n_states}. Use constants='sharp' or constants='verified'"
        )
