"""The policy that is best by the estimates: backward induction with the observed frequencies as probabilities.

Only actions that were tried are chosen. Nothing is certified about this policy.
"""

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.types import Transitions

# Of the entropic value at risk: λ times the range of the return, between which the best one is looked for.
_SMALLEST_TILT, _LARGEST_TILT, _TILTS = 1e-3, 1e3, 40


def best_by_estimates(certificate: Certificate) -> np.ndarray:
    """Return the policy, shape ``(H, S)``; where no action was tried, what the certificate's policy does.

    Parameters
    ----------
    certificate : Certificate
    """
    problem = certificate.problem
    if not isinstance(problem.risk, EVaR):
        return _plan(certificate, problem.beta)[0]
    spread = problem.return_spread or 1.0
    lams = np.geomspace(_SMALLEST_TILT, _LARGEST_TILT, _TILTS) / spread
    plans = [_plan(certificate, -lam) for lam in lams]
    values = [value - problem.risk.cost / lam for (_, value), lam in zip(plans, lams, strict=True)]
    return plans[int(np.argmax(values))][0]


def estimated_loss(certificate: Certificate, beta: float) -> float:
    """Return by how much the certificate's policy is worse than the best one in the estimated model.

    There, an action that was never tried pays the least that it can and leads to a state with the smallest value.
    """
    problem, seen = certificate.problem, certificate.transitions
    first, every = int(problem.artificial), np.arange(problem.n_states)
    values = np.zeros((2, problem.n_states))  # the best and the policy's own
    for h in reversed(range(problem.horizon)):
        rows = problem.rows_at(h + first, every)
        begin, end = np.searchsorted(seen.rows, (rows[0], rows[-1] + 1))
        some, to = slice(begin, end), seen.successors[begin:end]
        paid, least = learned_rewards(problem, seen, some, h), problem.possible_rewards[0]
        q = np.empty((2, problem.n_states, problem.n_actions))
        for side in range(2):
            q[side] = values[side, values[0].argmin()] + (0.0 if problem.rewards is not None else least)
            tried, estimates = _risk(seen.rows[some], seen.times[some], paid + values[side, to], beta)
            q[side].flat[tried - rows[0]] = estimates
        if problem.rewards is not None:
            q += problem.rewards[min(h, len(problem.rewards) - 1)]
        values = np.stack([q[0].max(axis=1), q[1, every, certificate.policy[h]]])
    if not problem.artificial:
        return float(np.subtract(*values[:, problem.first_state]))
    begun = seen.rows == problem.n_rows - 1
    ends = [_risk(seen.rows[begun], seen.times[begun], side[seen.successors[begun]], beta)[1] for side in values]
    return float(ends[0][0] - ends[1][0]) if begun.any() else np.inf


def _plan(certificate: Certificate, beta: float) -> tuple[np.ndarray, float]:
    """The best policy of the estimated model and its value."""
    problem, seen = certificate.problem, certificate.transitions
    first, every = int(problem.artificial), np.arange(problem.n_states)
    policy, values = certificate.policy.copy(), np.zeros(problem.n_states)
    for h in reversed(range(problem.horizon)):
        rows = problem.rows_at(h + first, every)
        begin, end = np.searchsorted(seen.rows, (rows[0], rows[-1] + 1))
        weight, some = problem.factors[h], slice(begin, end)
        returns = weight * learned_rewards(problem, seen, some, h) + values[seen.successors[some]]
        tried, estimates = _risk(seen.rows[some], seen.times[some], returns, beta)
        q = np.full((problem.n_states, problem.n_actions), -np.inf)
        q.flat[tried - rows[0]] = estimates
        if problem.rewards is not None:
            q += weight * problem.rewards[min(h, len(problem.rewards) - 1)]
        known = np.isfinite(q).any(axis=1)
        policy[h, known] = q[known].argmax(axis=1)
        # Where nothing was tried, the least that can be paid.
        values = np.where(known, q.max(axis=1), values + weight * problem.possible_rewards[0])
    if not problem.artificial:
        return policy, float(values[problem.first_state])
    begun = seen.rows == problem.n_rows - 1
    _, value = _risk(seen.rows[begun], seen.times[begun], values[seen.successors[begun]], beta)
    return policy, float(value[0])


def _risk(rows: np.ndarray, times: np.ndarray, returns: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows that were visited, which are sorted, and the entropic risk of each under its frequencies."""
    visited, begin = np.unique(rows, return_index=True)
    if not len(visited):
        return visited, np.empty(0)
    visits, place = np.add.reduceat(times, begin), np.cumsum(np.isin(np.arange(len(rows)), begin)) - 1
    if beta == 0:
        return visited, np.add.reduceat(times * returns, begin) / visits
    largest = np.maximum.reduceat(beta * returns, begin)
    mean = np.add.reduceat(times * np.exp(beta * returns - largest[place]), begin) / visits
    return visited, (largest + np.log(mean)) / beta


def learned_rewards(problem: Problem, seen: Transitions, some: slice, h: int) -> np.ndarray:
    """The rewards of some transitions, unless they are a known function of state and action, which is added later."""
    if problem.rewards is not None:
        return np.zeros(some.stop - some.start)
    if len(seen.rewards):
        return (seen.rewards[some] + (seen.upper[some] if len(seen.upper) else seen.rewards[some])) / 2
    slots, step = problem.slots, min(h, len(problem.slots.low) - 1)
    found = []
    for row, successor in zip(seen.rows[some], seen.successors[some], strict=True):
        own = slice(slots.begin[row], slots.begin[row] + slots.used[row])
        found.append(slots.low[step, own][slots.successor[own] == successor][0])
    return np.array(found, dtype=float)
