r"""Stopping rules for learners that have none, and what a regret bound says about identification.

**Pessimistic twin.** An optimistic learner over-estimates. The same plan with the bonus subtracted, or over the worst
kernel of the ball, under-estimates; write :math:`\hat\pi` for its greedy policy. On the event that every empirical
kernel is as close as its width says, by induction over the steps,

.. math:: \underline V_1(s_1) \le V^{\hat\pi}_1(s_1) \le V^*_1(s_1) \le \overline V_1(s_1),

so the learner may stop as soon as :math:`\overline V_1 - \underline V_1 \le \varepsilon` and return
:math:`\hat\pi`. The event must hold at all times, so the number K of episodes in the logarithm, which a regret learner
is told, becomes :math:`2n(n+1)` for n visits. Weissman's inequality then gives it probability :math:`1-\delta` for RSVI
and RSVI2 with :math:`c \ge 1/\sqrt2`, both RODI and ROVI, at ``scale=1``.

Which learners can stop:

- ``rsvi rsvi2 rodi_otp rodi_pto rovi``: the twin.
- ``bpi_ucbvi``: its own certificate :math:`G` (Ménard et al. 2021), for β = 0.
- ``entropic_bpi kl_bpi``: :func:`entropic_bpi.identify` is their stopping form.
- ``rsq rsq2 ucb_advantage``: none. A Q-table mixes values of many past policies. A twin bounds V* from below, but the
  greedy policy of the twin need not attain that bound, so there is no policy to certify.
- ``generative``: the number of samples is known in advance, ``entropic_bpi.lab.learners.generative.sample_size``.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from entropic_bpi.compile.decorators import compiled
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.learners._run import check_params, find
from entropic_bpi.lab.learners.bernstein import BernsteinMemory
from entropic_bpi.lab.learners.game import Replanner, new_game
from entropic_bpi.lab.learners.kernels import Greedy, Model, row_of
from entropic_bpi.lab.learners.value_iteration import BALL, TIGHT, SweepMemory, ball_mean
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.risk import Entropic
from entropic_bpi.tools.checks import check_choice, check_finite, check_integer, check_positive, check_probability
from entropic_bpi.types import Bounds, Goal

STOPPABLE = ("rsvi", "rsvi2", "rodi_otp", "rodi_pto", "rovi", "bpi_ucbvi")

# After t episodes the next test comes 1% of t later; the event holds at all times, so any schedule is valid.
TEST_RATIO = 0.01
# Rounding of a sweep, in units of the score; added on the safe side.
ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class Stop:
    """The result of a learner with a stopping rule.

    With probability at least 1 - δ: ``lower`` is at most the value of ``policy``, ``upper`` at least the optimum, so
    that ``gap`` bounds what ``policy`` loses. ``stopped`` says whether the gap reached ε within the budget of episodes.
    For ``bpi_ucbvi`` the gap is that of its certificate and ``lower`` is ``upper - gap``.
    """

    learner: str
    seed: Any
    episodes: int
    stopped: bool
    policy: np.ndarray
    lower: float
    upper: float
    gap: float
    seconds: float

    def __repr__(self) -> str:
        verb = "stopped" if self.stopped else "gave up"
        return f"Stop({self.learner} {verb} after {self.episodes} episodes, gap={self.gap:.6g})"


def run_until(
    learner: str,
    mdp: FiniteMDP,
    *,
    beta: float,
    eps: float,
    delta: float = 0.1,
    seed: Any = None,
    scale: float = 1.0,
    ties: str = "random",
    max_episodes: int = 10_000_000,
    **params: Any,
) -> Stop:
    """Play an optimistic learner until it can certify a policy to within ``eps``.

    The stopping rule is tested after 1, 2, 3, … episodes and, from 100 on, each time their number has grown by 1%.

    Parameters
    ----------
    learner : str
        One of ``rsvi rsvi2 rodi_otp rodi_pto rovi bpi_ucbvi``.
    mdp, beta, delta, seed, ties, **params
        As in :func:`entropic_bpi.run`.
    eps : float
        Accuracy, in the units of the reward.
    scale : float
        Multiplies every bonus or radius. Below 1 the certificate is void.
    max_episodes : int
        Largest number of episodes.

    Returns
    -------
    Stop

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.lab.learners.stopping import run_until
    >>> mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    >>> stop = run_until("rodi_otp", mdp, beta=-0.5, eps=0.5, seed=0)
    >>> stop.stopped, stop.gap <= 0.5
    (True, True)
    >>> bool(eb.evaluate(mdp, stop.policy, -0.5).value >= stop.lower)
    True
    """
    check_choice("learner", learner, STOPPABLE)
    eps, max_episodes = check_positive("eps", eps), check_integer("max_episodes", max_episodes)
    beta = check_finite("beta", beta)
    if learner == "bpi_ucbvi" and beta != 0:
        raise InvalidProblemError(f"bpi_ucbvi certifies the expected return only: beta must be 0, got {beta}")
    factory = find(learner)
    check_params(learner, factory, params)
    setup: dict[str, Any] = {"episodes": max_episodes, "delta": delta, "scale": scale, "seed": seed, "ties": ties}
    game = new_game(mdp, beta=beta, anytime=True, **setup)
    goal = Goal(Entropic(beta), eps, game.delta)
    play: Any = factory(game, **params)
    certificate = _width_certificate if isinstance(play.known, BernsteinMemory) else _pessimistic_twin
    began, episodes = time.perf_counter(), 0
    while True:
        policy, lower, upper = certificate(play)
        bounds = Bounds(lower, upper, (upper - lower) * game.reward_span)
        if bounds.reached(goal) or episodes >= max_episodes:
            break
        following = min(episodes + max(1, math.ceil(TEST_RATIO * episodes)), max_episodes)
        play(episodes, following)
        episodes = following
    offset = mdp.horizon * game.lowest_reward
    return Stop(
        learner=learner,
        seed=seed,
        episodes=episodes,
        stopped=bounds.reached(goal),
        policy=policy[1:] if game.artificial_start else policy,
        lower=offset + game.reward_span * lower,
        upper=offset + game.reward_span * upper,
        gap=bounds.gap,
        seconds=time.perf_counter() - began,
    )


def value_of_score(score: float, beta: float, steps: int) -> float:
    """Return the value V with ``score = (e^{βV} - 1) / (e^{β·steps} - 1)``."""
    if beta == 0:
        return score * steps
    reach = beta * steps
    if abs(reach) < 30 and score * math.expm1(reach) > -0.5:
        return math.log1p(score * math.expm1(reach)) / beta
    with np.errstate(divide="ignore"):
        logs = float(np.logaddexp(np.log(score) + min(reach, 0.0), np.log1p(-score) - max(reach, 0.0)))
    return steps * (beta > 0) + logs / beta


# -- the pessimistic twin ------------------------------------------------------------------------------------


def _pessimistic_twin(play: Replanner) -> tuple[np.ndarray, float, float]:
    """Return the twin's policy and the two bounds at the start."""
    game = play.game
    low = np.zeros(game.rewards.shape)
    best = np.zeros((game.horizon + 1, game.n_states))
    _plan_low(game.model, play.known, low, best)
    start = game.model.start
    lower = value_of_score(max(float(best[0, start]) - ROUNDING, 0.0), game.beta, game.horizon)
    upper = value_of_score(min(float(game.greedy.best[0, start]) + ROUNDING, 1.0), game.beta, game.horizon)
    return low.argmax(axis=2), lower, upper


@compiled
def _plan_low(model: Model, known: SweepMemory, low: np.ndarray, best: np.ndarray) -> None:
    """A full sweep of the rule with the opposite sign; the least score is 0."""
    steps, states, actions = low.shape
    for h in range(steps - 1, -1, -1):
        floor = best[h + 1, 0]
        for s in range(1, states):
            floor = min(floor, best[h + 1, s])
        for s in range(states):
            for a in range(actions):
                low[h, s, a] = _pessimistic_score(model, known, row_of(model, h, s, a), best[h + 1], floor)
                best[h, s] = max(best[h, s], low[h, s, a])


@compiled
def _pessimistic_score(model: Model, known: SweepMemory, row: int, best: np.ndarray, floor: float) -> float:
    base, slope, visits, width = known.base[row], known.slope[row], known.visits[row], known.width[row]
    if known.rule == BALL:
        if visits == 0 or width >= 1.0:
            return base + slope * floor
        return base + slope * ball_mean(model, known, row, best, floor, -1.0)
    if visits == 0:
        return base if known.rule == TIGHT else 0.0
    mean = 0.0
    for j in range(model.indptr[row], model.indptr[row + 1]):
        mean += known.transitions[j] * best[model.next_state[j]]
    mean /= visits
    if known.rule == TIGHT:
        return base + slope * max(0.0, mean - width)
    return max(0.0, base + slope * mean - width)


# -- the certificate of BPI-UCBVI ------------------------------------------------------------------------------


def _width_certificate(play: Replanner) -> tuple[np.ndarray, float, float]:
    """Return the optimistic policy and bounds: V* is at most ``upper``, the policy's value at least ``upper - G``."""
    game = play.game
    policy = game.greedy.members[:, :, 0].copy()
    width = np.zeros((game.horizon + 1, game.n_states))
    _plan_width(game.model, game.greedy, play.known, policy, width, game.scale)
    start = game.model.start
    upper = float(game.greedy.best[0, start]) * game.horizon
    return policy, upper - float(width[0, start]), upper


@compiled
def _plan_width(
    model: Model, greedy: Greedy, known: BernsteinMemory, policy: np.ndarray, width: np.ndarray, scale: float
) -> None:
    """``G = min{H, 6 sqrt(Var β*(n)/n) + 36 H² β(n)/n + (1 + 3/H) p̂ G}`` along the policy, in units of value."""
    steps, states = policy.shape
    for h in range(steps - 1, -1, -1):
        for s in range(states):
            row = row_of(model, h, s, policy[h, s])
            n = known.visits[row]
            width[h, s] = steps
            if n == 0:
                continue
            mean, after, variance = 0.0, 0.0, 0.0
            begin, end = model.indptr[row], model.indptr[row + 1]
            for j in range(begin, end):
                mean += known.transitions[j] * greedy.best[h + 1, model.next_state[j]] / n
                after += known.transitions[j] * width[h + 1, model.next_state[j]] / n
            for j in range(begin, end):
                variance += known.transitions[j] * (greedy.best[h + 1, model.next_state[j]] - mean) ** 2 / n
            deviation = (steps - h - 1) * math.sqrt(variance * known.rates[row, 0])  # scores are values / steps left
            bonus = scale * (6.0 * deviation + 36.0 * steps * steps * known.rates[row, 1])
            width[h, s] = min(float(steps), bonus + (1.0 + 3.0 / steps) * after)


# -- from regret to identification -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Conversion:
    """The number of episodes that a regret bound needs to identify a policy.

    ``runs`` independent runs of ``episodes_per_run`` episodes each, one policy drawn from each; then, if there are
    several runs, ``evaluation_episodes`` fresh episodes of each policy to keep the best.
    """

    runs: int
    episodes_per_run: int
    evaluation_episodes: int

    @property
    def total(self) -> int:
        return self.runs * (self.episodes_per_run + self.evaluation_episodes)


def pac_from_regret(
    regret_constant: float, *, eps: float, delta: float, beta: float = 0.0, max_return: float | None = None
) -> Conversion:
    r"""Turn a regret bound :math:`\mathbb E\,\mathrm{Reg}_K \le C\sqrt K` into an (ε, δ)-correct identification.

    *One run* (Jin et al. 2018), without ``max_return``: play :math:`K = C^2/(\varepsilon\delta)^2` episodes and return
    the policy of one of them, drawn uniformly. Its expected gap is at most :math:`C/\sqrt K = \varepsilon\delta`, so
    Markov's inequality does the rest.

    *Several runs* (Kaufmann et al. 2021, Proposition 12), with ``max_return`` G the largest possible return: make
    :math:`M = \lceil\log_2(2/\delta)\rceil` runs of :math:`K = C^2/(\varepsilon/4)^2` episodes. Each policy drawn has a
    gap above ε/2 with probability at most 1/2, all of them with probability at most δ/2. Evaluate each on fresh
    episodes to within ε/4 and keep the best. For the entropic risk, by Hoeffding's inequality on
    :math:`e^{\beta R}`, that takes
    :math:`\tfrac12\big(\tfrac{e^{|\beta|G}-1}{1-e^{-|\beta|\varepsilon/4}}\big)^2\log(4M/\delta)` episodes each. The
    dependence on δ is then logarithmic, and the exponential is that of :math:`e^{2|\beta|G}` again.

    Commit to the one policy that was drawn. Redrawing it in every episode plays a mixture, whose
    :math:`e^{\beta V}` is the mean of those of its policies: for β < 0 its value is *below* the mean value, and the
    regret does not bound its gap.

    Parameters
    ----------
    regret_constant
        C, for example :math:`\tfrac{e^{|\beta|H}-1}{|\beta|}\sqrt{H^2SA}` up to logarithms.
    eps, delta
        The gap and the failure probability to reach.
    beta, max_return
        For several runs: the risk parameter (either sign) and G.

    Returns
    -------
    Conversion

    Examples
    --------
    >>> pac_from_regret(10.0, eps=0.5, delta=0.1).total
    40000
    >>> pac_from_regret(10.0, eps=0.5, delta=0.001, beta=-1.0, max_return=2.0).total < 10**6
    True
    """
    constant, eps = check_positive("regret_constant", regret_constant), check_positive("eps", eps)
    delta, strength = check_probability("delta", delta), abs(check_finite("beta", beta))
    largest = None if max_return is None else check_positive("max_return", max_return)
    try:
        return _conversion(constant, eps, delta, strength, largest)
    except (OverflowError, ZeroDivisionError):
        raise InvalidProblemError("these numbers ask for more episodes than doubles can count") from None


def _conversion(constant: float, eps: float, delta: float, strength: float, largest: float | None) -> Conversion:
    if largest is None:
        return Conversion(1, math.ceil(round((constant / (eps * delta)) ** 2, 6)), 0)
    runs = math.ceil(math.log2(2 / delta))
    exponent = strength * eps / 4
    ratio = math.expm1(strength * largest) / -math.expm1(-exponent) if exponent > 0 else 4 * largest / eps
    evaluation = math.ceil(ratio**2 * math.log(4 * runs / delta) / 2)
    return Conversion(runs, math.ceil((4 * constant / eps) ** 2), evaluation)
