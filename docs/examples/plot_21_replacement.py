r"""
When to replace a machine
=========================

**The question.** A machine earns 1 a week, and its wear grows from 0 (new) to 3. The more worn it is, the more likely it
breaks. A break costs 4, and a new machine is installed. Replacing the machine before it breaks costs 1. At
:math:`\beta=-0.5`, when should it be replaced?

**The environment.** The state is the wear.
"""

import gymnasium
from gymnasium import spaces

import entropic_bpi as eb
from entropic_bpi import plots

CHANCE_TO_BREAK = (0.0, 0.02, 0.1, 0.3)


class Machine(gymnasium.Env):
    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wear = 0
        return self.wear, {}

    def step(self, replace):
        reward = 1.0
        if replace:
            self.wear, reward = 0, -1.0
        elif self.np_random.random() < CHANCE_TO_BREAK[self.wear]:
            self.wear, reward = 0, -4.0
        elif self.np_random.random() < 0.5:
            self.wear = min(3, self.wear + 1)
        return self.wear, reward, False, False, {}


# %%
# **One call.** A machine that runs stays as it is, wears by one, or is new after a break; one that is replaced is new.


def possible(wear, replace):
    return {0} if replace else {0, wear, min(3, wear + 1)}


result = eb.identify(
    Machine(), horizon=10, reward_range=(-4, 1), successors=possible, beta=-0.5, eps=0.5, delta=0.05, seed=0
)

# %%
# **The certificate in words.**

claim = result.certificate
print(f"After {result.episodes} runs of ten weeks: with probability at least {1 - claim.delta:g},")
print(f"- this policy is worth at least {claim.lower:.2f},")
print(f"- no policy is worth more than {claim.upper:.2f},")
print(f"- and none is better than this one by more than {claim.gap:.2f}.")
print(claim.assumptions[-1])

# %%
# **The policy.** The machine is replaced at a wear of 2, except in the last week, when a replacement no longer pays.

figure = plots.policy(claim, ["run", "replace"])

# %%
# The same episodes answer the question for other risk levels. A risk-seeking owner lets the machine run longer.

bolder = eb.certify(result, beta=0.5)
print(f"at beta = 0.5: gap {bolder.gap:.2f}")
daring = plots.policy(bolder, ["run", "replace"])
