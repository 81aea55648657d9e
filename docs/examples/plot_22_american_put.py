r"""
When to exercise an American put
================================

**The question.** The right to sell a share for 100, today or within eight weeks. The price moves by 5 % a week, up or
down, with a chance that nobody knows. To wait may pay more, or nothing. A holder with :math:`\beta=-0.1` per unit of
money: at which price should the option be exercised?

**The environment.** The state is the price, as the number of steps of 5 % above or below 100. To exercise ends the episode.
"""

import gymnasium
from gymnasium import spaces

import entropic_bpi as eb
from entropic_bpi import plots

START, TOP = 6, 12
PRICES = [100 * 1.05 ** (level - START) for level in range(TOP + 1)]
LARGEST_GAIN = 100 - PRICES[0]


class Put(gymnasium.Env):
    observation_space = spaces.Discrete(TOP + 1)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = START
        return self.level, {}

    def step(self, exercise):
        if exercise:
            return self.level, max(0.0, 100 - PRICES[self.level]), True, False, {}
        move = 1 if self.np_random.random() < 0.55 else -1
        self.level = min(TOP, max(0, self.level + move))
        return self.level, 0.0, False, False, {}


# %%
# **One call.** It is known how the price can move and that the option pays once: every return lies between 0 and the largest
# gain, although eight rewards of that size would be possible without this.


def possible(level, exercise):
    return {eb.END} if exercise else {max(0, level - 1), min(TOP, level + 1)}


result = eb.identify(
    Put(),
    horizon=8,
    reward_range=(0, LARGEST_GAIN),
    return_range=(0, LARGEST_GAIN),
    successors=possible,
    beta=-0.1,
    eps=0.5,
    delta=0.05,
    seed=0,
)

# %%
# **The certificate in words.**

claim = result.certificate
print(f"After {result.episodes} options: with probability at least {1 - claim.delta:g},")
print(f"- to exercise by this rule is worth at least {claim.lower:.2f},")
print(f"- no rule is worth more than {claim.upper:.2f},")
print(f"- and none is better than this one by more than {claim.gap:.2f}.")
print(claim.assumptions[-1])

# %%
# **The policy.** States are levels of the price, 6 being 100. Low prices are taken at once, and the boundary rises as
# the end comes near. Above 100 to exercise pays nothing, and what is done there makes no difference.

figure = plots.policy(claim, ["wait", "exercise"])
