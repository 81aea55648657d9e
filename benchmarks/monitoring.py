"""How many episodes a monitor needs to notice a change, and how often it raises a false alarm.

``python -m benchmarks.monitoring`` prints the tables of ``docs/monitor.md``: median and largest number of episodes over
``STREAMS`` streams, each of at most ``MOST`` episodes. The certified policy is played.
"""

import math

import gymnasium
import numpy as np

import entropic_bpi as eb
from benchmarks.noise_table import inventory

STREAMS, MOST = 9, 4000
DEMAND = np.array([0.2, 0.4, 0.3, 0.1])


class Shop(gymnasium.Env):
    """Stock up to 3, orders up to 2 for a unit each, a price of 2, and 0.2 for each item that is left; six days."""

    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(3)

    def __init__(self, demand=DEMAND, drift=0.0, stuck=0.0):
        self.demand, self.drift, self.stuck, self.days = np.asarray(demand), drift, stuck, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock = self.shown = 0
        return 0, {}

    def step(self, order):
        self.days += 1
        more = min(self.drift * self.days, self.demand[0])  # demand that grows from day to day
        law = self.demand + more * np.array([-1.0, 0.0, 0.0, 1.0])
        morning = min(3, self.stock + int(order))
        evening = max(0, morning - int(self.np_random.choice(4, p=law)))
        reward = 2.0 * (morning - evening) - (morning - self.stock) - 0.2 * evening
        self.stock = evening
        if self.np_random.random() >= self.stuck:
            self.shown = evening  # otherwise the display keeps the number of the day before
        return self.shown, reward, False, False, {}


def certificate(episodes):
    """Rewards are declared random, so that a wrong display does not contradict them at once."""
    options = {
        "horizon": 6,
        "reward_range": (-2.6, 6),
        "reward_law": "random",
        "beta": -0.2,
        "eps": 1e-3,
        "delta": 0.05,
    }
    return eb.identify(Shop(), **options, max_episodes=episodes, seed=0).certificate


def episodes_to_alarm(claim, make, seed):
    """The number of episodes until the alarm, infinite if there is none, and what it named first."""
    monitor = eb.Monitor(claim)
    env, policy = monitor.watch(make()), eb.Policy.load(claim, unseen=0)
    while not monitor.alarm and monitor.episodes < MOST:
        eb.rollout(env, policy, episodes=10, seed=seed if monitor.episodes == 0 else None)
    return (monitor.episodes if monitor.alarm else math.inf), (monitor.suspects or [""])[0]


CHANGES = {
    "nothing": {},
    "demand: 20 % more customers": {"demand": [0.12, 0.32, 0.37, 0.19]},
    "demand: 50 % more customers": {"demand": [0.02, 0.23, 0.43, 0.32]},
    "drift: a customer more in every 1000 days": {"drift": 1 / 3000},
    "drift: a customer more in every 10,000 days": {"drift": 1 / 30_000},
    "sensor: the display is stuck on 1 day in 20": {"stuck": 0.05},
    "sensor: the display is stuck on 1 day in 5": {"stuck": 0.2},
    "sensor: the display is stuck": {"stuck": 1.0},
}


def table(claim, makers):
    print(f"certificate from {claim.episodes} episodes: {claim}")
    for change, make in makers.items():
        found = [episodes_to_alarm(claim, make, seed) for seed in range(STREAMS)]
        counts = sorted(count for count, _ in found)
        print(f"| {change} | {counts[STREAMS // 2]:g} | {counts[-1]:g} | {found[0][1]}", flush=True)


def with_noise():
    """The inventory of ``benchmarks.noise_table``: certificates that reached ε = 2 % of the range, and 10⁻⁶."""
    goal = {"beta": -0.5, "delta": 0.05, "noise": "model", "seed": 1}
    changes = {f"{more:g}": lambda more=more: eb.as_gymnasium(inventory(more)) for more in (0.0, 0.1, 0.2, 0.4)}
    table(eb.identify(inventory(), eps=0.4, **goal).certificate, changes)
    table(eb.identify(inventory(), eps=1e-6, max_episodes=1000, **goal).certificate, changes)


def main():
    with_noise()
    for episodes in (1000, 10_000):
        table(certificate(episodes), {change: lambda o=options: Shop(**o) for change, options in CHANGES.items()})


if __name__ == "__main__":
    main()
