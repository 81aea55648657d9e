"""Many runs on a GPU, judged: exact values of all their policies at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.judged import Judged
from entropic_bpi.lab.experiments.referee import ROUNDING
from entropic_bpi.lab.gpu_runs import Results, launch
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import evaluate, solve
from entropic_bpi.problem.problem import Problem

__all__ = ["begin", "values_of"]


def begin(
    mdp: FiniteMDP, problem: Problem, runs: int, *, seed: int, replan: float, **names: str
) -> Callable[[], Judged]:
    """Begin to identify ``runs`` times; what is returned waits for them and compares every claim with the truth.

    ``names`` are those of the cell: its rule and its case.
    """
    result, best = launch(mdp, problem, runs, seed=seed, replan=replan), solve(mdp, problem.beta).value
    return lambda: _judge(mdp, problem, result(), best, **names)


def _judge(mdp: FiniteMDP, problem: Problem, runs: Results, best: float, **names: Any) -> Judged:
    mine, room = values_of(mdp, runs.policy, problem.beta), ROUNDING * (1 + abs(best))
    true = (runs.lower <= mine + room) & (best <= runs.upper + room) & (best - mine <= runs.gap + room)
    return Judged(
        **names,
        risk=problem.beta,
        eps=np.full(len(mine), problem.eps),
        stopped=runs.stopped,
        claim_holds=true,
        failed={"E_cat": ~runs.event},
        gap=runs.gap,
        true_gap=best - mine,
        episodes=runs.episodes,
    )


def values_of(mdp: FiniteMDP, policies: np.ndarray, beta: float) -> np.ndarray:
    """The values at the start of many policies ``(runs, H, S)`` of a small model.

    Examples
    --------
    >>> import numpy as np
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.lab.experiments.gpu_study import values_of
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> policies = np.random.default_rng(0).integers(0, bridge.n_actions, (3, 5, 8))
    >>> exact = [eb.evaluate(bridge, policy, beta=2.0).value for policy in policies]
    >>> bool(np.allclose(values_of(bridge, policies, 2.0), exact))
    True
    """
    reached = _where_reached(mdp, policies)
    distinct, which = np.unique(reached.reshape(len(reached), -1), axis=0, return_inverse=True)
    values = [evaluate(mdp, policy.reshape(reached.shape[1:]), beta).value for policy in distinct]
    return np.array(values)[which.ravel()]


def _where_reached(mdp: FiniteMDP, policies: np.ndarray) -> np.ndarray:
    """The same policies with action 0 in states that they never reach: few different ones are left."""
    states, same = np.arange(mdp.n_states), np.zeros_like(policies)
    occupied = np.broadcast_to(mdp.start_distribution > 0, (len(policies), mdp.n_states))
    for h in range(mdp.horizon):
        same[:, h] = np.where(occupied, policies[:, h], 0)
        rows = mdp.step_rows(h)
        possible = np.zeros((len(rows.indptr) - 1, mdp.n_states), dtype=bool)
        possible[np.repeat(np.arange(len(possible)), np.diff(rows.indptr)), rows.indices] = True
        chosen = possible[states * mdp.n_actions + policies[:, h]]
        occupied = (occupied[:, :, None] & chosen).any(axis=1)
    return same
