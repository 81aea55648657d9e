"""
Regret of published learners
============================

The regret is the sum of what the policies played lose against the best one, each loss computed exactly. Entropic-BPI is
drawn twice: with the bonus that its paper prints, and with the machine-checked one, in which all linear terms pay the
larger rate. All learners have their published constants, so for some hundred episodes everybody plays at random. Lines
are means over two seeds, bands their range; the paper's own figures, with all learners and 10⁷ episodes, are on the page
"Experiments".
"""

import entropic_bpi as eb
from entropic_bpi import plots

bridge, beta, episodes = eb.instances.risky_bridge(horizon=7), 2.0, 300_000
learners = {
    "Entropic-BPI, printed bonus": ("entropic_bpi", {"constants": "printed"}),
    "Entropic-BPI, machine-checked bonus": ("entropic_bpi", {"constants": "verified"}),
    "ROVI": ("rovi", {}),
    "RODI-OTP": ("rodi_otp", {}),
    "RSVI2": ("rsvi2", {}),
}
runs = {
    name: [eb.run(learner, bridge, beta=beta, episodes=episodes, seed=seed, **params) for seed in range(2)]
    for name, (learner, params) in learners.items()
}
figure = plots.regret(runs, title=f"Risky bridge, β = {beta:g}, published constants")

# %%
# What they end with, and since when the lowest one has been the lowest:

ends = {name: sum(run.regret[-1] for run in each) / len(each) for name, each in runs.items()}
for name in sorted(ends, key=ends.get):
    print(f"{name:35} {ends[name]:8.0f}")
lowest = min(ends, key=ends.get)
grid = runs[lowest][0].grid
means = {name: sum(run.regret for run in each) / len(each) for name, each in runs.items()}
behind = [k for i, k in enumerate(grid) if means[lowest][i] > min(mean[i] for mean in means.values())]
print(f"{lowest} is the lowest after {episodes} episodes, and has been since episode {max(behind, default=0)}")
