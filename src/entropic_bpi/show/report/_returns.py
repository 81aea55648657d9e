"""Estimated returns: simulated episodes of the policy in the empirical model. They are not certified."""

from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.estimate import learned_rewards
from entropic_bpi.types import Transitions

EPISODES = 20_000


class Expected(NamedTuple):
    """Returns of simulated episodes, and the share of episodes that reached a pair without data and are left out."""

    returns: np.ndarray
    cut: float


def expected_returns(certificate: Certificate, episodes: int = EPISODES) -> Expected:
    """Simulate the certified policy in the empirical model, whose outcomes are drawn from the observed ones."""
    problem, seen, rng = certificate.problem, certificate.transitions, np.random.default_rng(0)
    end = problem.n_states - 1 if problem.black_box_rewards else -1
    visits = np.bincount(seen.rows, seen.times, problem.n_rows).astype(np.int64)
    before, until = np.cumsum(visits) - visits, np.cumsum(seen.times)
    state, returns = np.full(episodes, problem.first_state), np.zeros(episodes)
    playing, cut = np.arange(episodes), np.zeros(episodes, dtype=bool)
    for h in range(problem.steps):
        own = h - problem.artificial  # the step of the policy
        if own < 0:
            rows = np.full(len(playing), problem.n_rows - 1)
        else:
            playing = playing[state[playing] != end]
            actions = certificate.policy[own, state[playing]]
            rows = problem.rows_at(h, state[playing])[:: problem.n_actions] + actions
            if problem.rewards is not None:
                paid = problem.rewards[min(own, len(problem.rewards) - 1)]
                returns[playing] += problem.factors[own] * paid[state[playing], actions]
        known = visits[rows] > 0
        # After the last step nothing counts, unless rewards depend on the next state.
        cut[playing[~known]] = own < problem.horizon - 1 or problem.rewards is None
        rows, playing = rows[known], playing[known]
        outcome = np.searchsorted(until, before[rows] + rng.integers(0, visits[rows]), side="right")
        if own >= 0 and problem.rewards is None:
            distinct, place = np.unique(outcome, return_inverse=True)
            drawn = Transitions(*(column[distinct] if column.size else column for column in seen[:5]))
            earned = learned_rewards(problem, drawn, slice(0, len(distinct)), own)
            returns[playing] += problem.factors[own] * earned[place]
        state[playing] = seen.successors[outcome]
    return Expected(returns[~cut], float(cut.mean()))
