"""Small finite MDPs by brute force, in plain Python and 60 digits: every policy, every trajectory.

Nothing here is shared with the library: models are nested lists, and expectations are sums over all trajectories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from mpmath import mp, mpf

mp.dps = 60

Policy = tuple[tuple[int, ...], ...]  # the action at each step and state


@dataclass(frozen=True)
class Atom:
    """One trajectory: its states (one more than steps), its probability and its return."""

    states: tuple[int, ...]
    probability: mpf
    total: mpf


@dataclass(frozen=True)
class Model:
    """Probabilities and rewards as ``[h][s][a][s']``, and the start distribution ``[s]``."""

    transitions: list
    rewards: list
    start: list

    @classmethod
    def of(cls, transitions, rewards, horizon, start) -> Model:
        """Spell out every axis of NumPy input; rows are brought to sum 1 in 60 digits."""
        transitions, rewards = np.asarray(transitions, dtype=float), np.asarray(rewards, dtype=float)
        if transitions.ndim == 3:
            transitions = np.stack([transitions] * horizon)
        n_states, n_actions = transitions.shape[1:3]
        if rewards.shape in ((n_states, n_actions), (n_states, n_actions, n_states)):
            rewards = np.stack([rewards] * horizon)
        if rewards.ndim == 3:
            rewards = np.stack([rewards] * n_states, axis=-1)
        if np.ndim(start) == 0:
            start = [float(s == start) for s in range(n_states)]
        steps = [[[_normalised(row) for row in state] for state in step] for step in transitions.tolist()]
        return cls(steps, [[[[mpf(r) for r in a] for a in s] for s in h] for h in rewards.tolist()], _normalised(start))

    @classmethod
    def read(cls, mdp) -> Model:
        """What a library model says, entry by entry."""
        shape = (mdp.horizon, mdp.n_states * mdp.n_actions, mdp.n_states)
        transitions, rewards = np.zeros(shape), np.zeros(shape)
        for h in range(mdp.horizon):
            rows = mdp.step_rows(h)
            for row in range(shape[1]):
                for j in range(rows.indptr[row], rows.indptr[row + 1]):
                    transitions[h, row, rows.indices[j]] = rows.probabilities[j]
                    reward = mdp.step_rewards(h).flat[row] if rows.rewards is None else rows.rewards[j]
                    rewards[h, row, rows.indices[j]] = reward
        full = (mdp.horizon, mdp.n_states, mdp.n_actions, mdp.n_states)
        return cls.of(transitions.reshape(full), rewards.reshape(full), mdp.horizon, mdp.start_distribution)

    @property
    def horizon(self) -> int:
        return len(self.transitions)

    @property
    def n_states(self) -> int:
        return len(self.start)

    @property
    def n_actions(self) -> int:
        return len(self.transitions[0][0])


def _normalised(row) -> list:
    total = sum(mpf(p) for p in row)
    return [mpf(p) / total for p in row]


def policies(model: Model) -> Iterator[Policy]:
    steps = product(range(model.n_actions), repeat=model.n_states)
    return product(list(steps), repeat=model.horizon)


def continuations(model: Model, policy: Policy, h: int, s: int) -> Iterator[Atom]:
    """Every possible trajectory from state ``s`` at step ``h`` on."""
    if h == model.horizon:
        yield Atom((s,), mpf(1), mpf(0))
        return
    a = policy[h][s]
    for after, p in enumerate(model.transitions[h][s][a]):
        if p > 0:
            for rest in continuations(model, policy, h + 1, after):
                yield Atom((s, *rest.states), p * rest.probability, model.rewards[h][s][a][after] + rest.total)


def trajectories(model: Model, policy: Policy) -> list[Atom]:
    """Every possible trajectory from the start."""
    return [
        Atom(atom.states, p * atom.probability, atom.total)
        for s, p in enumerate(model.start)
        if p > 0
        for atom in continuations(model, policy, 0, s)
    ]


def mean_exponential(atoms, beta) -> mpf:
    return sum(atom.probability * mp.exp(mpf(beta) * atom.total) for atom in atoms)


def entropic_risk(atoms, beta) -> mpf:
    atoms = list(atoms)
    if beta == 0:
        return sum(atom.probability * atom.total for atom in atoms)
    return mp.log(mean_exponential(atoms, beta)) / mpf(beta)


def variance_of_exponential(atoms, beta) -> mpf:
    atoms = list(atoms)
    mean = mean_exponential(atoms, beta)
    return sum(atom.probability * (mp.exp(mpf(beta) * atom.total) - mean) ** 2 for atom in atoms)


def best_value(model: Model, beta) -> mpf:
    return max(entropic_risk(trajectories(model, policy), beta) for policy in policies(model))


def law(atoms) -> list[tuple[mpf, mpf]]:
    """Returns and their probabilities, increasing; returns closer than 1e-9 are the same."""
    merged: list[tuple[mpf, mpf]] = []
    for atom in sorted(atoms, key=lambda atom: atom.total):
        if merged and atom.total - merged[-1][0] < 1e-9:
            merged[-1] = (merged[-1][0], merged[-1][1] + atom.probability)
        else:
            merged.append((atom.total, atom.probability))
    return merged
