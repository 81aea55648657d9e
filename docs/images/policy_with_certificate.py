"""The picture at the top of the README: a policy, and how it came to be certified.

python docs/images/policy_with_certificate.py
"""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imsave

import entropic_bpi as eb
from entropic_bpi import plots

NAMES = {"S": "start", "F": "", "H": "hole", "G": "goal"}
CELLS = np.array([[NAMES[letter] for letter in row] for row in ("SFFF", "FHFH", "FFFH", "HFFG")])
INCHES = (4.9, 4.9)


def drawn(figure):
    """The pixels of a figure."""
    figure.set_size_inches(*INCHES)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


lake = eb.from_gymnasium("FrozenLake-v1", horizon=30, reward_schedule=(1, -1, 0))
result = eb.identify(lake, beta=-1.0, eps=0.1, delta=0.05, successors="model", stationary=True, seed=0)
claim = result.certificate
assert result.stopped
assert eb.verify(claim).ok
policy = plots.grid(claim, CELLS, "←↓→↑")
policy.axes[0].set_title("The policy, and bounds of its and the best value from each cell", fontsize=9)
for text in policy.axes[0].texts:
    text.set_fontsize(1.5 * text.get_fontsize())
path = plots.interval(result.history, eps=claim.eps, delta=claim.delta)
path.axes[0].set_title(f"With probability at least 0.95: certified after {result.episodes:,} episodes", fontsize=9)
imsave(
    Path(__file__).with_suffix(".png"),
    np.hstack([drawn(policy), np.full((int(INCHES[1] * path.dpi), 40, 4), 255, dtype=np.uint8), drawn(path)]),
)
print(f"{claim.lower:.3f} <= V <= V* <= {claim.upper:.3f}, gap {claim.gap:.3f}, {result.episodes:,} episodes")
