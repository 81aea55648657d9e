"""Environments with random rewards whose laws are known, and the models that are worth the same at one β."""

from __future__ import annotations

import gymnasium
import numpy as np

import entropic_bpi as eb


class Noisy(gymnasium.Env):
    """Moves by ``kernel`` ``(S, A, S)``, whose last state is the end; ``law[s, a, y, k]`` is the chance of ``values[k]``."""

    def __init__(self, kernel, values, law):
        self.kernel, self.values, self.law = (np.asarray(part, dtype=float) for part in (kernel, values, law))
        self.end = len(self.kernel) - 1
        self.observation_space = gymnasium.spaces.Discrete(self.end)
        self.action_space = gymnasium.spaces.Discrete(self.kernel.shape[1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        s, self.state = self.state, self._draw(self.kernel[self.state, action])
        reward = self.values[self._draw(self.law[s, action, self.state])]
        return min(self.state, self.end - 1), float(reward), self.state == self.end, False, {}

    def _draw(self, chances):
        return min(int(np.searchsorted(np.cumsum(chances), self.np_random.random(), side="right")), len(chances) - 1)

    @property
    def reward_range(self):
        return float(self.values.min()), float(self.values.max())

    def equivalent(self, beta, horizon):
        """The model with what each reward is worth at ``beta``."""
        mean = self.law @ (np.exp(beta * self.values) if beta else self.values)
        rewards = np.log(mean) / beta if beta else mean
        rewards[self.end] = 0.0
        return eb.FiniteMDP(self.kernel, rewards, horizon=horizon, start=0)


def bandit(chances=(0.2, 0.7)):
    """Two arms, each with a coin of its own; every episode is one step."""
    kernel = np.zeros((2, 2, 2))
    kernel[..., 1] = 1.0
    law = np.zeros((2, 2, 2, 2))
    law[...] = [[[1 - p, p]] * 2 for p in chances]
    return Noisy(kernel, [0.0, 1.0], law)


def walk():
    """Two places and the end; a step forward may fail, arriving pays more than standing still, and all of it is noisy."""
    kernel = np.zeros((3, 2, 3))
    kernel[0] = [[1, 0, 0], [0.3, 0.7, 0]]
    kernel[1] = [[0, 1, 0], [0, 0.3, 0.7]]
    kernel[2, :, 2] = 1
    law = np.tile([0.5, 0.3, 0.15, 0.05], (3, 2, 3, 1))
    law[1, 1, 2] = [0.05, 0.05, 0.2, 0.7]
    return Noisy(kernel, [0.0, 0.2, 0.5, 1.0], law)


def shop():
    """Stock 0 to 2, orders of 0 to 2, demand and price at random: what is earned depends on stock and demand."""
    kernel, law = np.zeros((4, 3, 4)), np.zeros((4, 3, 4, 5))
    values = np.array([-1.0, 0.0, 1.0, 2.0, 3.0])
    kernel[3, :, 3] = 1
    law[..., 1] = 1.0
    for stock in range(3):
        for order in range(3):
            full = min(stock + order, 2)
            for demand, chance in enumerate((0.3, 0.4, 0.3)):
                left = max(full - demand, 0)
                kernel[stock, order, left] += chance
                mean = (full - left) * 1.2 - 0.5 * order
                weight = np.exp(-((values - mean) ** 2))
                law[stock, order, left] = weight / weight.sum()
    return Noisy(kernel, values, law)


def coins():
    """Three places and an end; what is paid depends on place and action alone."""
    rng = np.random.default_rng(3)
    kernel = rng.dirichlet(np.full(4, 0.7), (4, 2))
    kernel[3] = [0, 0, 0, 1]
    law = np.repeat(rng.dirichlet([1.0, 0.5, 1.0], (4, 2))[:, :, None], 4, axis=2)
    return Noisy(kernel, [-0.5, 0.0, 0.5], law)
