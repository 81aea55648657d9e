r"""
Tilting: the law that a risk-averse agent optimises
===================================================

The entropic value of a policy is a mean under another law of trajectories, minus a penalty for the change of law:

.. math:: V = \mathbb E_{P_\beta}[G] - \tfrac1\beta\,\mathrm{KL}(P_\beta, P), \qquad
   \frac{dP_\beta}{dP} \propto e^{\beta G}.

``eb.tilted`` returns the dynamics that have the law :math:`P_\beta`. Compared with the true law, bad outcomes are more
likely for :math:`\beta<0`, and good outcomes for :math:`\beta>0`. The more it differs from the true law, measured by
:math:`\chi^2`, the rarer are the episodes that determine the value. The policy of this example has the best mean on the
lake of the tutorial, where the goal pays 1 and a hole costs 1.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots

lake = eb.from_gymnasium("FrozenLake-v1", horizon=30, reward_schedule=(1, -1, 0))
policy = eb.solve(lake, 0.0).policy
betas = (-1.0, 0.0, 1.0)

figure = plots.new_figure(6.0, 3.6)
axes = figure.subplots()
for i, beta in enumerate(betas):
    law = eb.return_law(eb.tilted(lake, policy, beta), policy)
    label = f"tilted, β = {beta:g}" if beta else "true law, β = 0"
    axes.bar(law.support + 0.27 * (i - 1), law.probabilities, width=0.25, color=plots.COLOURS[i], label=label)
axes.set(xlabel="return", xticks=[-1, 0, 1], ylim=(0, 0.85), ylabel="probability")
axes.set_title("One policy under three laws")
axes.legend(frameon=False, fontsize="small")
plots.tidy(axes)

# %%
# The identity above at β = 1, computed from the two laws of the return, which are enough for it:

true = eb.return_law(lake, policy)
seen = eb.return_law(eb.tilted(lake, policy, 1.0), policy)
divergence = float(np.sum(seen.probabilities * np.log(seen.probabilities / true.probabilities)))
print(f"{seen.mean - divergence / 1.0:.6f} = {eb.evaluate(lake, policy, 1.0).value:.6f}")

# %%
# The distance of the two laws over β:

range_of_betas = np.linspace(-3, 3, 121)
distances = [eb.chi_square(lake, policy, beta) for beta in range_of_betas]
distance = plots.new_figure(5.2, 3.2)
axes = distance.subplots()
axes.plot(range_of_betas, distances, color=plots.COLOURS[0])
axes.set(xlabel="risk parameter β", ylabel=r"$\chi^2(P_\beta, P)$")
axes.set_title("Distance from the true law")
plots.tidy(axes)
