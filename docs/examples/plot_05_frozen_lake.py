"""
A certified policy on the frozen lake
=====================================

The policy as arrows, at the first step at which each cell can be occupied, with bounds for the value from there: at least
the first number for the policy, at most the second for any policy, all together with probability at least 0.95. The ice is
slippery, so an arrow is the intended direction, and the policy likes to push against the border. Holes (H) and goal (G) end
the walk.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots

lake = eb.from_gymnasium("FrozenLake-v1", horizon=30, reward_schedule=(1, -1, 0))
result = eb.identify(lake, beta=-1.0, eps=0.1, delta=0.05, successors="model", stationary=True, seed=0)
cells = np.array([list(row) for row in ("SFFF", "FHFH", "FFFH", "HFFG")])
figure = plots.grid(result.certificate, cells, "←↓→↑")

# %%
# At β = −3 the same episodes certify another policy: not to go. Falling counts so much that it is best to push against the
# upper border until time runs out.

timid = eb.certify(result, beta=-3.0)
print(f"value at most {timid.upper:.3f}, gap {timid.gap:.3f}; first action: {lake.action_names[timid.policy[0, 0]]}")
