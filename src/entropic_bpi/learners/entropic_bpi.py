r"""Entropic-BPI played as a regret learner: its exploration policy, without its stopping rule.

In the machine-checked form (``eb.identify(method="bernstein", constants="verified")`` is the same plan with a
certificate): with :math:`\alpha^*(n) = \log(3SAH/\delta) + \log(8e(n+1))`,
:math:`\alpha(n) = \log(3SAH/\delta) + S\log(8e(n+1))`, and Z° the optimistic table (the upper one for β > 0, the lower
one for β < 0),

.. math:: b = 2\sqrt2\sqrt{\operatorname{Var}_{\hat p}(Z^\circ_{h+1})\,\tfrac{\alpha^*(n)}{n}}
   + (5+4H)\,\mathrm{range}_h\,\tfrac{\alpha(n)}{n}, \qquad
   \mathrm{range}_h = \begin{cases} e^{\beta(H-h)} & \beta > 0\\ 1-e^{\beta(H-h)} & \beta < 0\end{cases}

.. math:: \overline U_h = \min\{\cdot,\; e^{\beta r}[\hat p\overline Z_{h+1} + b
   + \tfrac1H\hat p(\overline Z_{h+1}-\underline Z_{h+1})]\}, \qquad
   \underline U_h = \max\{\cdot,\; e^{\beta r}[\hat p\underline Z_{h+1} - b
   - \tfrac1H\hat p(\overline Z_{h+1}-\underline Z_{h+1})]\},

clipped to the possible range, and the policy greedy for the optimistic table is played. It was designed to stop with a
certificate, not to minimise regret: its bonus is larger than those of RSVI2 or ROVI for a long time.

References
----------
"Tight sample complexity bounds for entropic best policy identification", which proves a number of episodes until it
stops with an ε-optimal policy. No regret bound is claimed. The form here is the one checked in Lean 4.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.learners._bernstein import bernstein_value_iteration
from entropic_bpi.learners.game import Game, Play

__all__ = ["entropic_bpi"]


def entropic_bpi(game: Game) -> Play:
    """Entropic-BPI as a regret learner, for β ≠ 0 (its bonus has no limit as β decreases to 0)."""
    game.check_beta("entropic_bpi")
    factor = 5 + 4 * game.horizon
    if game.beta > 0:  # e^{βr} e^{β(k-1)} / (e^{βk} - 1), without overflow
        k = game.remaining[:, None, None]
        linear = factor * np.exp(-game.beta * (1 - game.rewards)) / -np.expm1(-game.beta * k)
    else:
        linear = factor * game.slope
    return bernstein_value_iteration(game, game.base, game.slope, 2 * math.sqrt(2), linear, np.ones(game.horizon))
