r"""
An inventory with uncertain demand and uncertain prices
=======================================================

**The question.** A shop orders up to two items in the evening, for one unit of money each, and has room for three. The next
day up to three customers come, and the market sets the price: 1, 2 or 4. Each item that is left costs 0.2 for the night.
The shop runs for six days and is risk-averse, with :math:`\beta=-0.2`. How much should it order?

**The environment.** The state is the stock. The reward of a day depends on the price, which is not part of the
state, so rewards are random.
"""

import gymnasium
from gymnasium import spaces

import entropic_bpi as eb
from entropic_bpi import plots

ROOM = 3


class Shop(gymnasium.Env):
    observation_space = spaces.Discrete(ROOM + 1)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock = 0
        return self.stock, {}

    def step(self, order):
        morning = min(ROOM, self.stock + int(order))
        demand = self.np_random.choice(4, p=[0.2, 0.4, 0.3, 0.1])
        price = self.np_random.choice([1.0, 2.0, 4.0], p=[0.3, 0.5, 0.2])
        evening = max(0, morning - int(demand))
        reward = price * (morning - evening) - (morning - self.stock) - 0.2 * evening
        self.stock = evening
        return evening, reward, False, False, {}


# %%
# **One call.** The shop declares what it knows without any data: it cannot have more items in the evening than in the
# morning, and the reward of a day is between -2.6 and 12.

result = eb.identify(
    Shop(),
    horizon=6,
    reward_range=(-2.6, 12),
    reward_law="random",
    successors=lambda stock, order: range(min(ROOM, stock + order) + 1),
    beta=-0.2,
    eps=1.5,
    delta=0.05,
    seed=0,
)

# %%
# **The certificate in words.**

claim = result.certificate
print(f"After {result.episodes} runs of six days: with probability at least {1 - claim.delta:g},")
print(f"- this policy is worth at least {claim.lower:.2f},")
print(f"- no policy is worth more than {claim.upper:.2f},")
print(f"- and none is better than this one by more than {claim.gap:.2f}.")
print("Assumed:", *claim.assumptions, sep="\n- ")

# %%
# **The policy.** At first the shop orders up to a stock of two items, and towards the end it orders less.

figure = plots.policy(claim, ["nothing", "order 1", "order 2"])
