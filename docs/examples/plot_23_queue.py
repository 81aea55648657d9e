r"""
Admission to a queue
====================

**The question.** In each minute a customer comes with probability 0.7, and pays between 0.5 and 1.5 when admitted. One
customer is served with probability 0.5 a minute, and each customer in the queue costs 0.15 a minute. There is room for
four. At :math:`\beta=-1`, when should the door be closed?

**The environment.** The state is the length of the queue. What a customer pays is random.
"""

import gymnasium
from gymnasium import spaces

import entropic_bpi as eb
from entropic_bpi import plots

ROOM = 4


class Queue(gymnasium.Env):
    observation_space = spaces.Discrete(ROOM + 1)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = 0
        return self.length, {}

    def step(self, open_door):
        fee = 0.0
        if open_door and self.length < ROOM and self.np_random.random() < 0.7:
            self.length += 1
            fee = self.np_random.uniform(0.5, 1.5)
        reward = fee - 0.15 * self.length
        if self.length and self.np_random.random() < 0.5:
            self.length -= 1
        return self.length, reward, False, False, {}


# %%
# **One call.** In a minute the queue grows or shrinks by at most one.

result = eb.identify(
    Queue(),
    horizon=8,
    reward_range=(-0.6, 1.5),
    reward_law="random",
    successors=lambda length, open_door: {max(0, length - 1), length, min(ROOM, length + 1)},
    beta=-1.0,
    eps=0.3,
    delta=0.05,
    seed=0,
)

# %%
# **The certificate in words.**

claim = result.certificate
print(f"After {result.episodes} runs of eight minutes: with probability at least {1 - claim.delta:g},")
print(f"- this policy is worth at least {claim.lower:.2f},")
print(f"- no policy is worth more than {claim.upper:.2f},")
print(f"- and none is better than this one by more than {claim.gap:.2f}.")
print(claim.assumptions[-1])

# %%
# **The policy.** Later in the eight minutes every customer is admitted, because the waiting costs little. At first, the
# door is closed while there is a customer in the queue.

figure = plots.policy(claim, ["closed", "open"])
