"""Small random models in every form that the library accepts, as Hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

import entropic_bpi as eb
from reference.brute_force import Model


@dataclass(frozen=True)
class Draw:
    """The arguments of a model, and whether to hand them over as sparse matrices."""

    transitions: np.ndarray
    rewards: np.ndarray
    horizon: int
    start: Any
    sparse: bool

    @property
    def model(self) -> Model:
        return Model.of(self.transitions, self.rewards, self.horizon, self.start)

    @property
    def mdp(self) -> eb.FiniteMDP:
        transitions: Any = sparse_form(self.transitions) if self.sparse else self.transitions
        return eb.FiniteMDP(transitions, self.rewards, horizon=self.horizon, start=self.start)


def sparse_form(array: np.ndarray) -> list:
    """``(S, A, S)`` as A sparse matrices, ``(H, S, A, S)`` as H such lists."""
    if array.ndim == 4:
        return [sparse_form(step) for step in array]
    return [sparse.csr_array(array[:, a]) for a in range(array.shape[1])]


SIZES = [(1, 2, 2), (2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 1, 3)]  # states, actions, horizon
# Halves coincide often, so that different trajectories have equal returns.
REWARDS = st.one_of(st.integers(-4, 4).map(lambda n: n / 2), st.floats(-2, 2, allow_subnormal=False))
# Sixty digits are enough for the oracle down to β = 1e-9.
BETAS = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 1e-9]), st.floats(-6, 6).filter(lambda beta: abs(beta) >= 1e-9))


@st.composite
def draws(draw) -> Draw:
    n_states, n_actions, horizon = draw(st.sampled_from(SIZES))
    size = (n_states, n_actions, n_states)
    reward_shape = draw(st.sampled_from([size[:2], size, (horizon, *size[:2]), (horizon, *size)]))
    if reward_shape == size == (horizon, *size[:2]):
        reward_shape = (horizon, *size)  # three equal axes would be ambiguous
    transitions = _distributions(draw, size if draw(st.booleans()) else (horizon, *size))
    count = int(np.prod(reward_shape))
    rewards = np.array(draw(st.lists(REWARDS, min_size=count, max_size=count))).reshape(reward_shape)
    start: Any = draw(st.integers(0, n_states - 1))
    if draw(st.booleans()):
        start = _distributions(draw, (n_states,))
    return Draw(transitions, rewards, horizon, start, sparse=draw(st.booleans()))


def _distributions(draw, shape) -> np.ndarray:
    count = int(np.prod(shape[:-1]))
    weights = np.zeros((count, shape[-1]))
    for row in weights:
        row[:] = draw(st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=shape[-1], max_size=shape[-1]))
        row[draw(st.integers(0, shape[-1] - 1))] += 1
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(shape)


def policies_for(mdp: eb.FiniteMDP) -> st.SearchStrategy[np.ndarray]:
    size = mdp.horizon * mdp.n_states
    actions = st.lists(st.integers(0, mdp.n_actions - 1), min_size=size, max_size=size)
    return actions.map(lambda flat: np.array(flat).reshape(mdp.horizon, mdp.n_states))


def mutated_bytes(rng, content):
    """A file with some bytes changed, removed, repeated or replaced by noise."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(content))), int(rng.integers(1, 40))
        kind = rng.integers(4)
        if kind == 0:
            content[at] = rng.integers(256)
        elif kind == 1:
            del content[at : at + length]
        elif kind == 2:
            content[at:at] = content[at : at + length]
        else:
            content[at : at + length] = rng.bytes(length)
        content = content or bytearray(b"0")
    return bytes(content)
