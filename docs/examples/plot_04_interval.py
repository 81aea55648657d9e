"""
The certified interval shrinks
==============================

At every plan ``identify`` computes a lower bound on the value of its candidate policy and an upper bound on the value of
every policy. Both hold at all times together, so the run may test after every plan and stop when the certified gap reaches
ε. The gap is smaller than the width of the interval, because it bounds the difference of two values directly.
"""

import entropic_bpi as eb
from entropic_bpi import plots

bridge = eb.instances.risky_bridge(horizon=7)
result = eb.identify(bridge, beta=1.0, eps=0.1, delta=0.1, successors="model", seed=0)
figure = plots.interval(result.history, eps=0.1, delta=0.1)

# %%
# The best value, which the learner does not know, was in the interval at every plan:

true = eb.solve(bridge, 1.0).value
claim = result.certificate
print(f"after {result.episodes} episodes: {claim.lower:.4f} <= best value {true:.4f} <= {claim.upper:.4f}")
print(bool(((result.history["lower"] <= true) & (true <= result.history["upper"])).all()))
