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
from typing import Any, ClassVar

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.bernstein_plan import Sheet, Tables, _plan, _run_every
from entropic_bpi.problem.counts import Counts, spare_slots
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame
from entropic_bpi.sources.simulator import Simulator
from entropic_bpi.tools.checks import check_reach
from entropic_bpi.types import Behaviour, Bounds, Plan

# Below this |β|H the sharp form carries (Z - 1)/|β|, whose digits Z itself would lose.
SMALL_EXPONENT = 1.0
# Below this |β| nothing differs from β = 0, and quotients by β would leave the range of doubles.
ZERO_BETA = 1e-200
# Above this |β|H the rounding of exponents, in values, may exceed that of Z.
STEEP_EXPONENT = 20.0
ULPS = 1e-15


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
        # What the recursion may have lost to rounding, in values; bounds are widened by it.
        size = problem.steps if self.small else 1.0 / abs(self.beta) + (exponent > STEEP_EXPONENT)
        self.pad = ULPS * ((problem.steps + 1) * size * self.scale + problem.horizon * abs(self.shift))
        self.eps -= self.pad / self.scale
        self.frame: Frame = problem.frame
        self.tables = self._tables()
        after, (u_up, u_low, u_width) = (problem.steps + 1, problem.n_states), np.zeros((3, *self.tables.cap.shape))
        z_up, z_low = np.full((2, *after), 0.0 if self.small else 1.0)
        policy, reach = np.zeros(after, dtype=np.int64)[1:], np.zeros(problem.n_rows, dtype=np.uint64)
        self.sheet = Sheet(
            z_up, z_low, np.zeros(after), policy, u_up, u_low, u_width, reach, np.full(problem.n_rows, -1)
        )
        self.origin: object = None

    def plan(self, counts: Counts, round: int) -> Plan:
        """Bounds and the next policy from the counts."""
        if counts.origin is not self.origin:  # nothing of other counts may be reused
            self.sheet.planned[:], self.origin = -1, counts.origin
        claim = self._in_reward_units(*_plan(self.frame, self.tables, counts.arrays, self.sheet))
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
            simulator.kernel, simulator.rng, self.frame, self.tables, counts.arrays, self.sheet, spare, history
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
        linear, linear_star, extra = {
            "verified": (5.0 + 4.0 * steps, 0.0, 0.0),
            "printed": (5.0, 4.0 * steps, 0.0),
            "sharp": (0.0, 2.0 * steps + 3.0, 0.5 * steps + 2.0),
        }[self.constants]
        if self.constants == "sharp":
            bottom, top = self._reward_aware_ranges(rewards)
            ranges = lift + gain * top, lift + gain * bottom, gain * (top - bottom), top - bottom
        else:  # these know only that rewards lie in [0, 1]
            remaining = np.broadcast_to(np.arange(steps, 0, -1.0)[:, None, None], rewards.shape)
            extreme, one = self.transform(remaining), self.transform(np.zeros_like(remaining))
            if beta > 0:
                ranges = extreme, one, np.exp(beta * remaining) / unit, np.exp(beta * (remaining - 1)) / unit
            else:
                ranges = one, extreme, np.ones_like(remaining) / unit, -np.expm1(beta * (remaining - 1)) / unit
        cap, floor, width_cap, span = ranges
        return Tables(
            beta=beta,
            small=self.small,
            eps=self.eps,
            seed=self.seed,
            sign=1 if beta >= 0 else -1,
            sharp=self.constants == "sharp",
            log_kl=math.log(pooled_union),
            log_bernstein=math.log(union),
            dimension=problem.n_states,
            linear=linear,
            linear_star=linear_star,
            extra=extra,
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

    def _reward_aware_ranges(self, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest (Z_{h+1} - origin) / unit over the possible successors, ``(steps, S, A)``."""
        problem, slots = self.problem, self.problem.slots
        least = most = np.zeros(problem.n_states)
        bottom, top = np.empty((2, *rewards.shape))
        for h in reversed(range(problem.steps)):
            if problem.successors == "unknown":
                low, high = np.full(rewards.shape[1:], least.min()), np.full(rewards.shape[1:], most.max())
            else:
                rows = problem.rows_at(h, np.arange(problem.n_states))
                if problem.artificial and h == 0:
                    rows = np.full(rewards[0].size, problem.n_rows - 1)
                listed = [slots.successor[slots.begin[row] : slots.begin[row] + slots.used[row]] for row in rows]
                low = np.array([least[each].min() for each in listed]).reshape(rewards.shape[1:])
                high = np.array([most[each].max() for each in listed]).reshape(rewards.shape[1:])
            ends = np.stack([self.transform(low), self.transform(high)])
            bottom[h], top[h] = ends.min(axis=0), ends.max(axis=0)
            least, most = (rewards[h] + low).min(axis=1), (rewards[h] + high).max(axis=1)
        return bottom, top

    def transform(self, value: np.ndarray) -> np.ndarray:
        """(Z - origin) / unit of a rescaled value."""
        if not self.small:
            return np.exp(self.beta * value)
        return np.expm1(self.beta * value) / self.unit if self.beta else value


def _check_covered(problem: Problem) -> None:
    """Refuse what no proof covers, and declarations that would be ignored."""
    instead = "use method='kl', or leave it out"
    for refused, why in (
        (problem.random_rewards, f"has no proof for reward_law={problem.reward_law!r}. Use method='kl'"),
        (
            problem.rewards is None,
            "needs rewards that depend on (s, a) only: no proof covers rewards that depend on the next state. Use "
            "method='kl'",
        ),
        (problem.noise is not None, f"makes no use of noise: {instead}"),
        (problem.artificial and problem.start is not None, f"makes no use of start: {instead}"),
        (problem.max_successors is not None, f"makes no use of max_successors: {instead}"),
        (problem.discount is not None, "is for finitely many steps: discount needs method='kl'"),
    ):
        if refused:
            raise InvalidProblemError(f"method='bernstein' {why}")


def _check_proved(problem: Problem) -> None:
    """Refuse the printed constants where nobody has proved that they certify: (H/4 + 2) α(n) <= 5 α(n) + 4H α*(n) for
    all n, and α(n) / α*(n) tends to S."""
    steps, n_states = problem.steps, problem.n_states
    if n_states * (steps - 12) > 16 * steps:
        raise InvalidProblemError(
            f"constants='printed' is proved for at most 12 steps, or S <= 16H/(H - 12): with H = {steps} steps for at most "
            f"{16 * steps // (steps - 12)} states, got {n_states}. Use constants='sharp' or constants='verified'"
        )
