"""What to play where noise is declared: the policy that reveals most about the laws."""

from __future__ import annotations

import numpy as np

from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.problem import Problem


def revealing_policy(problem: Problem, arrays: CountArrays) -> np.ndarray:
    r"""Return the policy ``(steps, S)`` with the largest expected :math:`\sum_h (k-1)/\sqrt{n+1}` under the estimated laws.

    :math:`k` is the number of classes of the pair's ball and :math:`n` how often it was fed. A policy that lasts, and whose
    outcomes tell more labels apart, reveals more; a law that was seen less is worth more.
    """
    pairs = problem.n_states * problem.n_actions
    used, visits = arrays.used[:pairs], arrays.visits[:pairs]
    owner = np.repeat(np.arange(pairs), used)
    slots = np.repeat(arrays.begin[:pairs], used) + np.arange(len(owner)) - np.repeat(np.cumsum(used) - used, used)
    share = (arrays.tally[slots] + 1) / (visits + used)[owner]
    following, worth = arrays.successor[slots], (used - 1) / np.sqrt(visits + 1)
    policy = np.zeros((problem.steps, problem.n_states), dtype=np.int64)
    values = np.zeros(problem.n_states)
    for h in reversed(range(int(problem.artificial), problem.steps)):
        after = (worth + np.bincount(owner, share * values[following], pairs)).reshape(problem.n_states, -1)
        if problem.allowed is not None:
            after = np.where(problem.allowed.at(h - problem.artificial) != 0, after, -1.0)
        policy[h] = after.argmax(axis=1)
        values = after.max(axis=1)
    return policy
