"""
A certified policy on the frozen lake
=====================================

The arrows show the policy at the first step at which each cell can be occupied, with bounds on the value from there on. The
value of the policy is at least the first number, and the value of every policy is at most the second; all bounds hold
together with probability at least 0.95. The ice is slippery, so an arrow is the intended direction, and the policy often
moves against the border. Holes (H) and the goal (G) end the episode.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots

lake = eb.from_gymnasium("FrozenLake-v1", horizon=30, reward_schedule=(1, -1, 0))
result = eb.identify(lake, beta=-1.0, eps=0.1, delta=0.05, successors="model", stationary=True, seed=0)
cells = np.array([list(row) for row in ("SFFF", "FHFH", "FFFH", "HFFG")])
figure = plots.grid(result.certificate, cells, "←↓→↑")

# %%
# At β = −3 the same episodes certify another policy, which stays in the first row. A fall has so much weight that it is best
# to move against the upper border until the last step.

timid = eb.certify(result, beta=-3.0)
print(f"value at most {timid.upper:.3f}, gap {timid.gap:.3f}; first action: {lake.action_names[timid.policy[0, 0]]}")
