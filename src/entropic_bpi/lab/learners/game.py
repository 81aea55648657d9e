"""The input of a learner: the sizes, the known rewards, a model that it may only sample, and an oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.learners import kernels
from entropic_bpi.lab.limits.bounds import check_exponent
from entropic_bpi.model import planning
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.model.parts.arrays import SparseTransitions, starts_of
from entropic_bpi.tools.checks import (
    check_choice,
    check_finite,
    check_integer,
    check_memory,
    check_positive,
    check_probability,
)
from entropic_bpi.tools.text import shown

# Below this the exponents are denormal and their ratios lose digits; the limit is exact.
NEGLIGIBLE = 1e-300
_LARGEST_SCALE = 1e100
GRID_POINTS = 2000

Play = Callable[[int, int], None]
"""A function that plays the episodes ``first`` to ``last - 1``; a learner returns one."""


@dataclass(frozen=True, eq=False)
class Game:
    """One run as a learner sees it, in rescaled units: rewards in [0, 1] and β multiplied by the reward span.

    A learner reads the sizes, ``rewards``, ``base``, ``slope``, ``beta``, ``episodes``, ``delta`` and ``scale``. It
    passes ``model``, ``greedy``, ``oracle`` and ``rng`` on to its compiled loop, which samples the model with
    :func:`~entropic_bpi.lab.learners.kernels.draw` and reads it in no other way.
    """

    horizon: int
    n_states: int
    n_actions: int
    beta: float
    episodes: int
    delta: float
    scale: float
    rewards: np.ndarray  # (H, S, A), in [0, 1]
    base: np.ndarray  # (H, S, A), see kernels
    slope: np.ndarray  # (H, S, A)
    model: kernels.Model
    greedy: kernels.Greedy
    oracle: kernels.RegretOracle
    rng: np.random.Generator
    reward_span: float
    artificial_start: bool

    @property
    def n_pairs(self) -> int:
        """Return ``H * S * A``, over which failure probabilities are split."""
        return self.horizon * self.n_states * self.n_actions

    @property
    def remaining(self) -> np.ndarray:
        """Return the steps left at each step, ``(H,)``: k = H .. 1, which bound the return to go."""
        return np.arange(self.horizon, 0, -1)

    def player(self, loop: Callable[..., None], *memory: Any) -> Play:
        """Return the compiled ``loop`` as a function of the first and the last episode."""
        return partial(loop, self.model, self.greedy, self.oracle, self.rng, *memory)

    def check_beta(self, learner: str) -> None:
        if self.beta == 0:
            raise InvalidProblemError(f"{learner} is defined for beta != 0 only")


def new_game(mdp: FiniteMDP, *, beta: float, episodes: int, delta: float, scale: float, seed: Any, ties: str) -> Game:
    """Check the arguments of :func:`entropic_bpi.run` and set up a run."""
    beta, episodes = check_finite("beta", beta), check_integer("episodes", episodes)
    delta, scale = check_probability("delta", delta), check_positive("scale", scale)
    check_choice("ties", ties, ("random", "lowest"))
    mdp = check_model(mdp).without_masks()
    if mdp.next_state_rewards:
        raise InvalidProblemError(
            "learners need rewards of shape (S, A) or (H, S, A): the published algorithms are not defined for "
            "rewards that depend on the next state"
        )
    entries = len(mdp.rows.indices) * (mdp.horizon if mdp.stationary else 1)
    check_memory(f"a learner on {mdp!r}", 7 * (mdp.horizon * mdp.n_states * mdp.n_actions + entries))
    low, span = _reward_units(mdp)
    check_exponent(beta, span * mdp.horizon)
    if scale > _LARGEST_SCALE:
        raise InvalidProblemError(f"scale must be at most {_LARGEST_SCALE:g}, got {scale:g}")
    beta *= span
    rewards = (np.stack([mdp.step_rewards(h) for h in range(mdp.horizon)]) - low) / span
    artificial = not isinstance(mdp.start, int)
    if artificial:  # a first step: every action leads to the start distribution, with reward 0
        rewards = np.concatenate([np.zeros((1, *rewards.shape[1:])), rewards])
    try:
        rng = np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise InvalidProblemError(
            f"seed must be what numpy.random.default_rng takes, got {shown(seed)}: {error}"
        ) from None
    tie_key = np.uint64(rng.integers(1, 2**63)) if ties == "random" else np.uint64(0)
    base, slope = score_coefficients(rewards, beta)
    model = _compile_model(mdp, rewards, beta)
    horizon, n_states, n_actions = rewards.shape
    return Game(
        horizon=horizon,
        n_states=n_states,
        n_actions=n_actions,
        beta=beta,
        episodes=episodes,
        delta=delta,
        scale=scale,
        rewards=rewards,
        base=base,
        slope=slope,
        model=model,
        greedy=kernels.new_greedy(rewards.shape, tie_key),
        oracle=new_oracle(mdp, model, episodes),
        rng=rng,
        reward_span=span,
        artificial_start=artificial,
    )


def _reward_units(mdp: FiniteMDP) -> tuple[float, float]:
    """Return the reward that becomes 0, and the length of the interval that becomes [0, 1]."""
    low, high = mdp.reward_range
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return low, high - low if high > low else 1.0


def score_coefficients(rewards: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return ``base`` and ``slope`` of the backup of scores (see :mod:`~entropic_bpi.lab.learners.kernels`)."""
    k = np.arange(len(rewards), 0, -1.0)[:, None, None]
    if abs(beta) < NEGLIGIBLE:
        base, slope = rewards / k, np.broadcast_to((k - 1) / k, rewards.shape)
    elif beta < 0:
        whole = np.expm1(beta * k)
        base, slope = np.expm1(beta * rewards) / whole, np.exp(beta * rewards) * np.expm1(beta * (k - 1)) / whole
    else:  # the same fractions, multiplied above and below by e^{-βk}
        whole = np.expm1(-beta * k)
        base = np.exp(-beta * (k - rewards)) * np.expm1(-beta * rewards) / whole
        slope = np.exp(-beta * (1 - rewards)) * np.expm1(-beta * (k - 1)) / whole
    # With reward 1 the sum is exactly 1; rounding must not turn that tie with an unvisited action into a preference.
    return base, np.where(rewards == 1, 1 - base, slope)


def range_ratio(beta: float, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Compute ``(e^{β·above} - 1) / (e^{β·below} - 1)``, its limit at 0, capped where doubles would overflow."""
    if abs(beta) < NEGLIGIBLE:
        return np.asarray(above / below)
    if beta < 0:
        return np.asarray(np.expm1(beta * above) / np.expm1(beta * below))
    growth = np.exp(np.minimum(beta * (above - below), 600.0))
    return np.asarray(growth * np.expm1(-beta * above) / np.expm1(-beta * below))


def new_scratch(game: Game) -> kernels.ReplanScratch:
    return kernels.ReplanScratch(
        path=kernels.new_path(game.horizon),
        mark=np.zeros(game.n_pairs, dtype=np.int64),
        rows=np.zeros(game.n_states * game.n_actions, dtype=np.int64),
        moved=np.zeros(game.n_states, dtype=np.int64),
        order=np.zeros(game.n_states, dtype=np.int64),
        shares=np.zeros(game.n_states),
        tally=np.zeros(game.n_states + 1, dtype=np.int64),
        values=np.zeros(game.n_states + 1),
        work=np.zeros((2, game.n_states + 1)),
    )


def _compile_model(mdp: FiniteMDP, rewards: np.ndarray, beta: float) -> kernels.Model:
    horizon, n_states, n_actions = rewards.shape
    steps = [mdp.step_rows(h) for h in range(mdp.horizon)]
    if horizon > mdp.horizon:
        start, rows = mdp.start_distribution, n_states * n_actions
        possible = np.flatnonzero(start)
        entries = np.tile(possible, rows), np.tile(start[possible], rows)
        steps.insert(0, SparseTransitions(starts_of([len(possible)] * rows), *entries))
    length = np.concatenate([np.diff(step.indptr) for step in steps])
    next_state = np.concatenate([step.indices for step in steps]).astype(np.int64)
    probability = np.concatenate([step.probabilities for step in steps])
    indptr = starts_of(length)
    row_of_entry = np.repeat(np.arange(len(length)), length)
    target = row_of_entry // (n_states * n_actions) * n_states + next_state
    into = np.bincount(target, minlength=horizon * n_states)
    return kernels.Model(
        indptr=indptr,
        next_state=next_state,
        probability=probability,
        cumulative=kernels.cumulate(indptr, probability, np.empty_like(probability)),
        row_of_entry=row_of_entry,
        state_of_row=np.arange(len(length)) // n_actions % n_states,
        into_ptr=starts_of(into),
        into_entry=np.argsort(target, kind="stable"),
        reward=rewards,
        growth=np.exp(np.minimum(beta * rewards, 700.0)),
        gain=rewards if beta == 0 else np.expm1(np.minimum(beta * rewards, 700.0)) / beta,
        beta=beta,
        start=mdp.start if isinstance(mdp.start, int) else 0,
    )


def log_term(game: Game, factor: float = 1.0) -> float:
    """Compute ``log(factor * H S A K / δ)`` with K the number of episodes of the run."""
    return math.log(factor * game.n_pairs * game.episodes / game.delta)


# -- the oracle: the only part that solves the true model; a learner does not read it ----------------------------------


def log_grid(episodes: int) -> np.ndarray:
    """Return at most 2000 episode numbers, evenly spaced in logarithm, the first and the last included."""
    points = np.geomspace(1, episodes, min(GRID_POINTS, episodes))
    return np.unique(np.minimum(np.rint(points).astype(np.int64), episodes))


def new_oracle(mdp: FiniteMDP, model: kernels.Model, episodes: int) -> kernels.RegretOracle:
    horizon, n_states, _ = model.reward.shape
    grid = log_grid(episodes)

    def oracle(optimum: float) -> kernels.RegretOracle:
        return kernels.RegretOracle(
            policy=np.zeros((horizon, n_states), dtype=np.int64),
            mark=np.zeros((horizon + 1, n_states), dtype=np.int64),
            reached=np.zeros((horizon + 1, n_states), dtype=np.int64),
            n_reached=np.zeros(horizon + 1, dtype=np.int64),
            z=np.ones((horizon + 1, n_states)),
            v=np.zeros((horizon + 1, n_states)),
            successors=np.zeros(n_states),
            optimum=optimum,
            value=np.zeros(1),
            tied=np.array([False]),
            changes=np.zeros(1, dtype=np.int64),
            grid=grid,
            regret=np.zeros(len(grid)),
            cursor=np.zeros(1, dtype=np.int64),
            total=np.zeros(1),
        )

    return oracle(_optimum(mdp, model, oracle(0.0)))


def _optimum(mdp: FiniteMDP, model: kernels.Model, oracle: kernels.RegretOracle) -> float:
    """Compute V* by the oracle's own arithmetic, so that an optimal policy has regret exactly 0."""
    first = len(model.reward) - mdp.horizon  # 1 after an artificial first step
    rescaled = FiniteMDP(mdp.rows, model.reward[first:], horizon=mdp.horizon, start=mdp.start)
    best = planning.solve(rescaled, model.beta).policy
    greedy = kernels.new_greedy(model.reward.shape, np.uint64(0))
    greedy.size[:] = 1
    greedy.members[first:, :, 0] = best
    kernels.walk(model, greedy, oracle, 0)
    return float(kernels.evaluate(model, oracle))
