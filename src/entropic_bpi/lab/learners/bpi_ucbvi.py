r"""BPI-UCBVI, the risk-neutral ancestor of Entropic-BPI, played as a regret learner.

With :math:`\beta^*(n) = \log(3SAH/\delta) + \log(8e(n+1))` and :math:`\beta(n) = \log(3SAH/\delta) + S\log(8e(n+1))`,

.. math:: b = 3\sqrt{\operatorname{Var}_{\hat p}(\overline V_{h+1})\,\tfrac{\beta^*(n)}{n}} + 14H^2\tfrac{\beta(n)}{n}

.. math:: \overline Q_h = \min\{H,\; r + b + \tfrac1H\hat p(\overline V_{h+1}-\underline V_{h+1})
   + \hat p\overline V_{h+1}\}, \qquad
   \underline Q_h = \max\{0,\; r - b - \tfrac1H\hat p(\overline V_{h+1}-\underline V_{h+1})
   + \hat p\underline V_{h+1}\},

and the policy greedy for :math:`\overline Q` is played. It maximises the *expected* return, whatever β is; β only
enters the regret, which measures what ignoring risk costs.

References
----------
P. Ménard, O. D. Domingues, A. Jonsson, E. Kaufmann, E. Leurent, M. Valko, "Fast active learning for pure exploration in
reinforcement learning", ICML 2021: :math:`\tilde O(H^3SA/\varepsilon^2)` episodes to an ε-optimal policy. Recalled, not
read; the constants were derived again and agree.
"""

from __future__ import annotations

import numpy as np

from entropic_bpi.lab.learners._bernstein import bernstein_value_iteration
from entropic_bpi.lab.learners.game import Game, Play, score_coefficients

__all__ = ["bpi_ucbvi"]


def bpi_ucbvi(game: Game) -> Play:
    """BPI-UCBVI (Ménard et al. 2021): plays for the expected return, at any β. Clips at H, as published."""
    h, k = game.horizon, game.remaining[:, None, None]
    base, slope = score_coefficients(game.rewards, 0.0)  # scores are values divided by the steps left
    linear = np.broadcast_to(14 * h**2 / k, game.rewards.shape)
    return bernstein_value_iteration(
        game, base, slope, c=3.0, linear=linear, linear_star=np.zeros_like(linear), top=h / game.remaining
    )
