"""
Regret of published learners
============================

The regret is the sum of what the policies played lose against the best one, each loss computed exactly. With their
published constants most learners play at random for any practical number of episodes; here all bonuses and radii are
multiplied by 0.03, and no learner has its guarantee any more. Which one is ahead depends on that number: those with large
published constants gain by a smaller one. Lines are means over three seeds, bands their range.
"""

import entropic_bpi as eb
from entropic_bpi import plots

bridge = eb.instances.risky_bridge(horizon=7)
learners = ("entropic_bpi", "rodi_pto", "rsvi2", "rsq2", "rodi_otp", "rovi", "kl_bpi")
runs = {
    learner: [eb.run(learner, bridge, beta=0.8, episodes=100_000, scale=0.03, seed=seed) for seed in range(3)]
    for learner in learners
}
figure = plots.regret(runs, title="Risky bridge, β = 0.8, all bonuses × 0.03")

# %%
# What they end with:

for learner, each in runs.items():
    print(f"{learner:13} {sum(run.regret[-1] for run in each) / len(each):8.0f}")
