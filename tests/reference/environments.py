"""Environments that are not what a run assumes by default, and a way to see all that is played."""

from collections import Counter

import gymnasium
import numpy as np

import entropic_bpi as eb

SLOW, BUSY = (0.6, 0.3, 0.1, 0.0, 0.0), (0.05, 0.15, 0.3, 0.3, 0.2)


class SeasonalInventory(gymnasium.Env):
    """Stock from 0 to 4, up to two items are ordered a day; demand is slow in the first half and brisk in the second."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(3)
    reward_range = (-2.4, 8.0)

    def __init__(self, horizon=8):
        self.laws = [SLOW] * (horizon // 2) + [BUSY] * (horizon - horizon // 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock, self.day = 1, 0
        return self.stock, {}

    def step(self, action):
        demand = int(self.np_random.choice(5, p=self.laws[self.day]))
        self.day += 1
        self.stock, reward = traded(self.stock, action, demand)
        return self.stock, reward, False, False, {}


def traded(stock, action, demand):
    """The stock after a day and what was earned."""
    filled = min(4, stock + int(action))
    left = max(0, filled - demand)
    return left, 2.0 * (filled - left) - (filled - stock) - 0.1 * left


def seasonal_model(horizon=8):
    """The same as a model that knows the day."""
    laws = SeasonalInventory(horizon).laws
    transitions, rewards = np.zeros((horizon, 5, 3, 5)), np.zeros((horizon, 5, 3, 5))
    for day, law in enumerate(laws):
        for stock, action, demand in np.ndindex(5, 3, 5):
            left, reward = traded(stock, action, demand)
            transitions[day, stock, action, left] += law[demand]
            rewards[day, stock, action, left] = reward
    return eb.FiniteMDP(transitions, rewards, horizon=horizon, start=1)


class HiddenGap(gymnasium.Env):
    """A wall with a gap at one of three heights, drawn anew in each episode and not seen; only the own height is.

    Actions go down, up, or against the wall: through the gap the episode is won, elsewhere one stays where one is. Who has
    just run against the wall should know better than to try again, but the observation is the same.
    """

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.gap, self.height = int(self.np_random.integers(3)), 1
        return self.height, {}

    def step(self, action):
        if action == 2:
            won = self.height == self.gap
            return self.height, float(won), won, False, {}
        self.height = min(2, max(0, self.height + (1 if action == 1 else -1)))
        return self.height, 0.0, False, False, {}


class Echo(gymnasium.Env):
    """A fair coin each of three days, and the same again on the next three: what comes is what was three days ago.

    Given the last two observations the next one is a fair coin, so neither of them tells; but returns are more extreme
    than those of six coins. The second action pays a little less.
    """

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.coins, self.day = [int(coin) for coin in self.np_random.integers(2, size=3)] * 2, 0
        return int(self.np_random.integers(2)), {}

    def step(self, action):
        coin = self.coins[self.day]
        self.day += 1
        return coin, coin * (0.95 if action == 1 else 1.0), False, False, {}


class Recorder(gymnasium.Wrapper):
    """Counts every (step, state, action, next state) that is played."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = Counter()

    def reset(self, **options):
        self.state, info = self.env.reset(**options)
        self.h = 0
        return self.state, info

    def step(self, action):
        answer = self.env.step(action)
        self.seen[self.h, self.state, int(action), answer[0]] += 1
        self.state, self.h = answer[0], self.h + 1
        return answer


class ChangingInventory(SeasonalInventory):
    """Demand is slow in the first episodes and brisk in the last; ``share(episode)`` says how far it is on the way."""

    def __init__(self, share, horizon=6):
        self.share, self.horizon, self.episode = share, horizon, -1

    @property
    def law(self):
        return np.array(SLOW) + self.share(self.episode) * (np.array(BUSY) - np.array(SLOW))

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.laws = [self.law] * self.horizon
        return super().reset(seed=seed)


class FadingRewards(gymnasium.Env):
    """A machine that is run or rested: worn machines pay less, at random, and all of them less with every episode."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, worth):
        self.worth, self.episode = worth, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.worn = self.episode + 1, 0
        return self.worn, {}

    def step(self, action):
        paid = 0.0 if action == 1 else self.np_random.random() * (0.5 if self.worn else 1.0)
        self.worn = int(action == 0 and self.np_random.random() < 0.4)
        return self.worn, float(paid * self.worth(self.episode)), False, False, {}
