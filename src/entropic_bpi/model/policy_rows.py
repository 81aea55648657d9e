"""The part of a model that a policy plays: one row per state at each step."""

from __future__ import annotations

import numpy as np

from entropic_bpi.model.mdp import FiniteMDP, SparseTransitions

__all__ = ["entries_of", "policy_rows", "starts_of"]


def policy_rows(mdp: FiniteMDP, policy: np.ndarray, h: int) -> SparseTransitions:
    """The rows of step ``h`` that the policy plays, one per state, with their rewards per entry."""
    rows = mdp.step_rows(h)
    chosen = np.arange(mdp.n_states) * mdp.n_actions + policy[h]
    entries, lengths = entries_of(rows, chosen)
    if rows.rewards is not None:
        rewards = rows.rewards[entries]
    else:
        rewards = np.repeat(mdp.step_rewards(h).ravel()[chosen], lengths)
    return SparseTransitions(starts_of(lengths), rows.indices[entries], rows.probabilities[entries], rewards)


def entries_of(rows: SparseTransitions, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all entries of the rows ``which``, one row after the other, and the length of each row."""
    lengths = np.diff(rows.indptr)[which]
    starts = starts_of(lengths)
    return np.repeat(rows.indptr[which] - starts[:-1], lengths) + np.arange(starts[-1]), lengths


def starts_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])
