"""
Regret of published learners
============================

The regret is the sum of the losses of the played policies compared with the best policy; each loss is computed exactly. The
figure shows 10⁷ episodes at β = 2, Figure 6 of the paper, drawn from a table in this documentation: on the paper's linear
axes, on logarithmic axes, and per episode. Entropic-BPI is shown twice, with the bonus that its paper prints and with the
machine-checked one. All learners have their published constants.
"""

import entropic_bpi as eb
from entropic_bpi.lab.experiments.figures import FIGURES, read_table, regret

table = read_table("../data/paper/fig6/fig6.csv")
figure = FIGURES["fig6"].draw(table)

# %%
# The claims of the paper about this figure, each checked with the same table:

for bonus in (regret.PRINTED, regret.CHECKED):
    for check in regret.claim_checks(table, bonus):
        print(f"{regret.NAMES[bonus]}: {check}")

# %%
# Your own runs take a few seconds for a million episodes:

bridge = eb.instances.risky_bridge(horizon=7)
for constants in ("printed", "verified"):
    print(eb.run("entropic_bpi", bridge, beta=2.0, episodes=200_000, seed=0, constants=constants))
