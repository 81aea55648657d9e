"""The policy that is best by the estimates: backward induction with the observed frequencies as probabilities.

Only actions that were tried are chosen. Nothing is certified about this policy.
"""

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.types import Transitions

# For the entropic value at risk: the smallest and the largest λ, times the range of the return, and how many are tried.
_SMALLEST_TILT, _LARGEST_TILT, _TILTS = 1e-3, 1e3, 40


def best_by_estimates(certificate: Certificate) -> np.ndarray:
    """Return the best policy of the estimated model, ``(H, S)``; the certificate's policy where no action was tried.

    Parameters
    ----------
    certificate : Certificate
    """
    problem = certificate.problem
    if not isinstance(problem.risk, EVaR):
        return _plan(certificate, problem.beta)[0]
    lams = np.geomspace(_SMALLEST_TILT, _LARGEST_TILT, _TILTS) / (problem.return_spread or 1.0)
    plans = [_plan(certificate, -lam) for lam in lams]
    values = [value - problem.risk.cost / lam for (_, value), lam in zip(plans, lams, strict=True)]
    return plans[int(np.argmax(values))][0]


def estimated_loss(certificate: Certificate, beta: float) -> float:
    """Return by how much the certificate's policy is worse than the best one in the estimated model.

    In the estimated model, an action that was never tried has the smallest possible reward and leads to a state with the
    smallest value.
    """
    problem, every = certificate.problem, np.arange(certificate.problem.n_states)
    if problem.artificial and not certificate.episodes:
        return np.inf
    least = 0.0 if problem.rewards is not None else problem.possible_rewards[0]
    best = own = np.zeros(problem.n_states)
    for h in reversed(range(problem.horizon)):
        worst = best.argmin()
        best, own = (_backup(certificate, h, values, beta, values[worst] + least) for values in (best, own))
        best, own = best.max(axis=1), own[every, certificate.policy[h]]
    return _at_start(certificate, best, beta) - _at_start(certificate, own, beta)


def _plan(certificate: Certificate, beta: float) -> tuple[np.ndarray, float]:
    """Return the best policy of the estimated model and its value."""
    problem = certificate.problem
    policy, values = certificate.policy.copy(), np.zeros(problem.n_states)
    for h in reversed(range(problem.horizon)):
        q = _backup(certificate, h, values, beta, -np.inf)
        known = np.isfinite(q).any(axis=1)
        policy[h, known] = q[known].argmax(axis=1)
        # Where nothing was tried, the smallest possible reward.
        values = np.where(known, q.max(axis=1), values + problem.factors[h] * problem.possible_rewards[0])
    return policy, _at_start(certificate, values, beta)


def _backup(certificate: Certificate, h: int, values: np.ndarray, beta: float, untried: float) -> np.ndarray:
    """Return the estimated risk of each action at step ``h``, ``(S, A)``; of one that was never tried, ``untried``."""
    problem, seen, weight = certificate.problem, certificate.transitions, certificate.problem.factors[h]
    rows = problem.rows_at(h + int(problem.artificial), np.arange(problem.n_states))
    some = slice(*np.searchsorted(seen.rows, (rows[0], rows[-1] + 1)))
    returns = weight * learned_rewards(problem, seen, some, h) + values[seen.successors[some]]
    tried, estimates = _risk(seen.rows[some], seen.times[some], returns, beta)
    q = np.full((problem.n_states, problem.n_actions), untried)
    q.flat[tried - rows[0]] = estimates
    return q if problem.rewards is None else q + weight * problem.rewards[min(h, len(problem.rewards) - 1)]


def _at_start(certificate: Certificate, values: np.ndarray, beta: float) -> float:
    """Return the estimated risk of ``values`` in the first state."""
    problem, seen = certificate.problem, certificate.transitions
    if not problem.artificial or not certificate.episodes:  # before the first episode any state will do
        return float(values[problem.first_state])
    first = seen.rows == problem.n_rows - 1
    return float(_risk(seen.rows[first], seen.times[first], values[seen.successors[first]], beta)[1][0])


def _risk(rows: np.ndarray, times: np.ndarray, returns: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the visited rows in increasing order, and the entropic risk of each under its frequencies."""
    visited, begin = np.unique(rows, return_index=True)
    visits, owner = np.add.reduceat(times, begin), np.cumsum(np.isin(np.arange(len(rows)), begin)) - 1
    if beta == 0:
        return visited, np.add.reduceat(times * returns, begin) / visits
    largest = np.maximum.reduceat(beta * returns, begin)
    mean = np.add.reduceat(times * np.exp(beta * returns - largest[owner]), begin) / visits
    return visited, (largest + np.log(mean)) / beta


def learned_rewards(problem: Problem, seen: Transitions, some: slice, h: int) -> np.ndarray:
    """Return the rewards of some transitions; 0 if they are a known function of state and action, which is added later."""
    if problem.rewards is not None:
        return np.zeros(some.stop - some.start)
    if len(seen.rewards):
        return (seen.rewards[some] + (seen.upper[some] if len(seen.upper) else seen.rewards[some])) / 2
    slots, step = problem.slots, min(h, len(problem.slots.low) - 1)
    rewards = []
    for row, successor in zip(seen.rows[some], seen.successors[some], strict=True):
        own = slice(slots.begin[row], slots.begin[row] + slots.used[row])
        rewards.append(slots.low[step, own][slots.successor[own] == successor][0])
    return np.array(rewards, dtype=float)
