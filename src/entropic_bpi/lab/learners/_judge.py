"""The judge of a run: the only part of the learners that solves the true model. Nothing here is shown to a learner."""

from __future__ import annotations

import numpy as np

from entropic_bpi.lab.learners import kernels
from entropic_bpi.model import planning
from entropic_bpi.model.mdp import FiniteMDP

__all__ = ["log_grid", "new_judge"]

GRID_POINTS = 2000


def log_grid(episodes: int) -> np.ndarray:
    """At most 2000 episode numbers, evenly spaced in logarithm, the first and the last included."""
    points = np.geomspace(1, episodes, min(GRID_POINTS, episodes))
    return np.unique(np.minimum(np.rint(points).astype(np.int64), episodes))


def new_judge(mdp: FiniteMDP, model: kernels.Model, episodes: int) -> kernels.Judge:
    horizon, n_states, _ = model.reward.shape
    grid = log_grid(episodes)

    def judge(optimum: float) -> kernels.Judge:
        return kernels.Judge(
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

    return judge(_optimum(mdp, model, judge(0.0)))


def _optimum(mdp: FiniteMDP, model: kernels.Model, judge: kernels.Judge) -> float:
    """V*, by the judge's own arithmetic, so that an optimal policy has regret exactly 0."""
    first = len(model.reward) - mdp.horizon  # 1 after an artificial first step
    rescaled = FiniteMDP(mdp.rows, model.reward[first:], horizon=mdp.horizon, start=mdp.start)
    best = planning.solve(rescaled, model.beta).policy
    greedy = kernels.new_greedy(model.reward.shape, np.uint64(0))
    greedy.size[:] = 1
    greedy.members[first:, :, 0] = best
    kernels.walk(model, greedy, judge, 0)
    return float(kernels.evaluate(model, judge))
