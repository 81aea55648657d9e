"""
All risk levels from one run
============================

The event behind the KL method is about transitions and not about β. Therefore the episodes of one run, made for one β,
certify a policy for every other β. With probability at least 0.9 the whole band is true, for all β at once. ``entropic-bpi
certify RUN`` draws the same from a saved run.
"""

import numpy as np

import entropic_bpi as eb
from entropic_bpi import plots

bridge = eb.instances.risky_bridge(horizon=7)
result = eb.identify(bridge, beta=1.0, eps=0.2, delta=0.1, successors="model", stationary=True, seed=0)
betas = np.arange(-3, 3.01, 0.1)
claims = [eb.certify(result, beta=beta) for beta in betas]
print(result.episodes, "episodes")

# %%
# Policies are numbered by their behaviour in the model. The model is known here, so exact values distinguish them.

values = [tuple(np.round([eb.evaluate(bridge, claim.policy, b).value for b in (-1, 1)], 9)) for claim in claims]
figure = plots.spectrum(claims, [sorted(set(values)).index(value) for value in values])

# %%
# The true best values lie in the band everywhere:

inside = [claim.lower <= eb.solve(bridge, claim.beta).value <= claim.upper for claim in claims]
print(all(inside))
