r"""
When to exercise an American put
================================

**The question.** An American put is the right to sell a share for 100, today or within eight weeks. The price moves by 5 % a
week, up or down, with an unknown probability. Waiting may pay more, or nothing. At :math:`\beta=-0.1` per unit of money, at
which price should the option be exercised?

**The model.** The state is the price, as the number of steps of 5 % above or below 100. To exercise ends the episode. What a
move up or down does is known; how likely it is has to be learned.
"""

import entropic_bpi as eb
from entropic_bpi import plots

START, TOP = 6, 12
PRICES = [100 * 1.05 ** (level - START) for level in range(TOP + 1)]


def hold(level, action, move):
    if action == "exercise":
        return eb.END, max(0.0, 100 - PRICES[level])
    return min(TOP, max(0, level + move))


put = eb.FiniteMDP.from_noise(range(TOP + 1), ["wait", "exercise"], [-1, 1], [0.45, 0.55], hold, horizon=8, start=START)

# %%
# **One call.** ``noise="model"`` tells the learner what a move does, not how likely it is. Every week of waiting,
# at any price, is an observation of the one unknown probability.

result = eb.identify(put, noise="model", beta=-0.1, eps=0.5, delta=0.05, seed=0)

# %%
# **The certificate in words.**

claim = result.certificate
print(f"After {result.episodes} options: with probability at least {1 - claim.delta:g},")
print(f"- to exercise by this rule is worth at least {claim.lower:.2f},")
print(f"- no rule is worth more than {claim.upper:.2f},")
print(f"- and none is better than this one by more than {claim.gap:.2f}.")
print(claim.assumptions[-1])

# %%
# **The policy.** States are levels of the price; level 6 is 100. At low prices the option is exercised at once, and the
# boundary rises towards the end. Above 100 exercising pays nothing, and the action makes no difference.

figure = plots.policy(claim, ["wait", "exercise"])
