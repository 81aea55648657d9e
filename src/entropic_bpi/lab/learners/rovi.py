r"""ROVI: optimistic value iteration over an :math:`L_1` ball of kernels.

.. math:: U_h(s,a) = e^{\beta r_h} \cdot \operatorname*{opt}_{p:\ \|p - \hat p_h(\cdot\mid s,a)\|_1 \le c_h} p\,Z_{h+1},
   \qquad c_h = \sqrt{2S\iota/n}, \quad \iota = \log(SAT/\delta),

opt being max for β > 0 and min for β < 0; then :math:`Z_h = \max_a U_h` or :math:`\min_a U_h`, and the greedy policy is
played. The inner problem moves mass :math:`c_h/2` from the worst next states to the best of all S states, reachable or
not; an unvisited action leads there with certainty. No clip is needed. RODI-MB, its version on whole return laws, plays
the same policies.

References
----------
H. Liang, Z. Luo, "Bridging distributional and risk-sensitive reinforcement learning with provable regret bounds",
JMLR 25(221), 2024. Regret :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|} H\sqrt{S^2AK})`. The pseudocode is recalled,
not read; the radius is Weissman's, so optimism holds with probability :math:`1-\delta`.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.lab.learners._value_iteration import BALL, value_iteration
from entropic_bpi.lab.learners.game import Game, Play, log_term

__all__ = ["rovi"]


def rovi(game: Game) -> Play:
    """ROVI (Liang and Luo 2024). No free constant; ``scale`` multiplies the radius of the ball."""
    half_radius = np.full(game.horizon, math.sqrt(game.n_states / 2))
    return value_iteration(game, BALL, half_radius, log_term(game))
