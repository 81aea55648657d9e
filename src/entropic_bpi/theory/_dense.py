"""Small dense models: optimal values, what a forced decision loses, and derivatives in the transition probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP

MAX_ENTRIES = 200_000
# Actions this much worse than ε still count as ε-optimal: more policies are right, the bound is smaller.
LOSS_SLACK = 1e-9
_LARGEST_GAIN = 40.0


@dataclass(frozen=True, eq=False)
class DenseModel:
    """Dense ``kernel`` and ``rewards`` ``(H, S, A, S)``, start distribution and β."""

    kernel: np.ndarray
    rewards: np.ndarray
    start: np.ndarray
    beta: float

    @classmethod
    def of(cls, mdp: FiniteMDP, beta: float) -> DenseModel:
        shape = (mdp.horizon, mdp.n_states, mdp.n_actions, mdp.n_states)
        if np.prod(shape, dtype=float) > MAX_ENTRIES:
            raise InvalidProblemError(
                f"characteristic_time is for small models: H S A S = {np.prod(shape, dtype=float):.3g} exceeds {MAX_ENTRIES}"
            )
        kernel, rewards = np.zeros(shape), np.zeros(shape)
        for h in range(mdp.horizon):
            rows = mdp.step_rows(h)
            entries = np.repeat(np.arange(shape[1] * shape[2]), np.diff(rows.indptr)), rows.indices
            kernel[h].reshape(-1, shape[3])[entries] = rows.probabilities
            if rows.rewards is not None:
                rewards[h].reshape(-1, shape[3])[entries] = rows.rewards
            else:
                rewards[h] = mdp.step_rewards(h)[..., None]
        if mdp.next_state_rewards and mdp.rewards is not None:  # declared for impossible successors as well
            rewards[:] = mdp.rewards
        return cls(kernel, rewards, mdp.start_distribution, beta)

    @property
    def shape(self) -> tuple[int, int, int]:
        horizon, states, actions, _ = self.kernel.shape
        return horizon, states, actions

    def risk(self, probabilities: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
        """(1/β) log Σ p e^{βx} along the last axis."""
        if self.beta == 0:
            return np.asarray((probabilities * outcomes).sum(axis=-1))
        exponents = np.where(probabilities > 0, self.beta * outcomes, -np.inf)
        top = exponents.max(axis=-1, keepdims=True)
        return np.asarray(
            (top[..., 0] + np.log1p((probabilities * np.expm1(exponents - top)).sum(axis=-1))) / self.beta
        )

    def q_values(self, h: int, values: np.ndarray) -> np.ndarray:
        """The backup ``(..., S, A)`` of ``values`` ``(..., S)`` at step ``h``."""
        return self.risk(self.kernel[h], self.rewards[h] + values[..., None, None, :])

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """Optimal ``values`` ``(H + 1, S)`` and ``q`` ``(H, S, A)``."""
        horizon, states, actions = self.shape
        values, q = np.zeros((horizon + 1, states)), np.empty((horizon, states, actions))
        for h in reversed(range(horizon)):
            q[h] = self.q_values(h, values[h + 1])
            values[h] = q[h].max(axis=1)
        return values, q

    def losses(self, values: np.ndarray, q: np.ndarray, h: int, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """What the best policy that plays ``actions[i]`` in ``states[i]`` at step ``h`` loses against the optimum."""
        forced = np.repeat(values[h][None], len(states), axis=0)
        forced[np.arange(len(states)), states] = q[h, states, actions]
        for g in reversed(range(h)):
            forced = self.q_values(g, forced).max(axis=2)
        return np.asarray(self.risk(self.start, values[0]) - self.risk(self.start, forced))

    def decisions(self, eps: float) -> np.ndarray:
        """The mask ``(H, S, A)`` of actions whose best completion loses at most ε: D(h, s)."""
        values, q = self.solve()
        horizon, states, actions = self.shape
        s, a = np.divmod(np.arange(states * actions), actions)
        losses = np.stack([self.losses(values, q, h, s, a) for h in range(horizon)])
        slack = LOSS_SLACK * (1 + float(np.abs(values[0]).max()))
        return losses.reshape(self.shape) <= eps + slack

    def best_policy(
        self, values: np.ndarray, q: np.ndarray, place: tuple[int, int], actions: list[int], detour: float = LOSS_SLACK
    ) -> np.ndarray:
        """An optimal policy among those that play one of ``actions`` at ``place``.

        Of the choices on the way that are at most ``detour`` worse than the best it takes those that lead there.
        """
        h, s = place
        policy = q.argmax(axis=2)
        policy[h, s] = actions[int(np.argmax(q[h, s, actions]))]
        forced, arrival = values[h].copy(), np.zeros(self.shape[1])
        forced[s], arrival[s] = q[h, s, policy[h, s]], 1.0
        every = np.arange(self.shape[1])
        for g in reversed(range(h)):
            backup, arrivals = self.q_values(g, forced), self.kernel[g] @ arrival
            near = backup >= backup.max(axis=1, keepdims=True) - detour
            best = np.where(near, arrivals, -1.0).max(axis=1, keepdims=True)
            policy[g] = np.where(near & (arrivals >= best - 1e-12), backup, -np.inf).argmax(axis=1)
            forced, arrival = backup[every, policy[g]], arrivals[every, policy[g]]
        return np.asarray(policy)

    def gradient(self, policy: np.ndarray) -> np.ndarray:
        """Derivative ``(H, S, A, S)`` of the policy's value in its transition probabilities, centred in every row."""
        horizon, states, _ = self.shape
        every = np.arange(states)
        values = np.zeros((horizon + 1, states))
        gains = []
        for h in reversed(range(horizon)):
            outcomes = self.rewards[h][every, policy[h]] + values[h + 1]
            values[h] = self.risk(self.kernel[h][every, policy[h]], outcomes)
            gains.append(np.clip(self.beta * (outcomes - values[h][:, None]), -_LARGEST_GAIN, _LARGEST_GAIN))
        # Where no episode starts the exponential may overflow.
        exponents = np.where(self.start > 0, self.beta * (values[0] - self.risk(self.start, values[0])), -np.inf)
        twisted = self.start * np.exp(exponents)
        result = np.zeros_like(self.kernel)
        for h in range(horizon):
            gain = gains[horizon - 1 - h]
            outcomes = self.rewards[h][every, policy[h]] + values[h + 1] - values[h][:, None]
            slope = np.expm1(gain) / self.beta if self.beta else outcomes
            result[h, every, policy[h]] = twisted[:, None] * slope
            twisted = twisted @ (self.kernel[h][every, policy[h]] * np.exp(gain))
        return result
