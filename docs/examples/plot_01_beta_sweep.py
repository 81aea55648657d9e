r"""
The best value over β, and where the policy changes
===================================================

The best value :math:`V^\star(\beta)` grows with the risk parameter: from the worst return that can be avoided, for
:math:`\beta\to-\infty`, over the best mean at :math:`\beta=0`, to the largest return that is possible, for
:math:`\beta\to\infty`. It is the upper envelope of the curves of single policies, and the optimal policy changes where
two of them cross. Here this happens on the risky bridge of the paper, with seven steps.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots

bridge = eb.instances.risky_bridge(horizon=7)
betas = np.linspace(-3, 5, 401)
solutions = [eb.solve(bridge, beta) for beta in betas]

# %%
# Two policies count as the same if their returns have the same law, because actions in states that a policy never reaches
# do not matter.

laws = [eb.return_law(bridge, solution.policy) for solution in solutions]


def same(one, other):
    return len(one.support) == len(other.support) and np.allclose(one.probabilities, other.probabilities)


changes = [i for i in range(1, len(betas)) if not same(laws[i - 1], laws[i])]
for i in changes:
    print(f"the policy changes near beta = {betas[i]:.2f}: mean return {laws[i - 1].mean:.2f} -> {laws[i].mean:.2f}")

# %%
# The dotted lines continue the value of each policy beyond the range where it is the best one.

figure = plots.new_figure(6.4, 4.0)
axes = figure.subplots()
firsts = [0, *changes]
for colour, first in zip(plots.COLOURS[1:], firsts, strict=False):
    law = laws[first]
    axes.plot(betas, [law.entropic_risk(beta) for beta in betas], ":", color=colour, linewidth=1.2)
axes.plot(betas, [solution.value for solution in solutions], color=plots.COLOURS[0], linewidth=2, label="best value")
for i in changes:
    axes.axvline(betas[i], color="grey", linewidth=0.6)
axes.plot([], [], ":", color="black", label="value of one policy")
axes.set(xlabel="risk parameter β", ylabel="value (units of reward)", ylim=(0, None), xlim=(-3, 5))
axes.set_title("Risky bridge: vertical lines mark a change of the best policy", fontsize="medium")
axes.legend(frameon=False)
plots.tidy(axes)
