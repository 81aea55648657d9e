r"""RSVI and RSVI2: optimistic value iteration on the exponential Bellman equation.

After every episode, for :math:`h = H, \dots, 1` and every visited :math:`(s,a)`, with
:math:`w = e^{\beta r_h}\,\hat p_h e^{\beta V_{h+1}}`,

.. math:: e^{\beta Q_h(s,a)} = \begin{cases}
   \min\{e^{\beta(H-h+1)},\; w + b_h(n)\} & \beta > 0 \\
   \max\{e^{\beta(H-h+1)},\; w - b_h(n)\} & \beta < 0 \end{cases}
   \qquad V_h(s) = \max_a Q_h(s,a),

:math:`Q_h = H-h+1` where :math:`n = 0`, and the next episode plays the greedy policy. The two learners differ in the
bonus alone:

.. math:: \text{RSVI: } b = c\,|e^{\beta H} - 1| \sqrt{\tfrac{S \log(2SAT/\delta)}{n}}, \qquad
          \text{RSVI2: } b_h = c\,|e^{\beta (H-h+1)} - 1| \sqrt{\tfrac{S \log(HSAK/\delta)}{n}},

with :math:`K` episodes and :math:`T = KH`. The constant :math:`c` is unspecified in the papers; here 1, and any
:math:`c \ge 1/\sqrt2` gives optimism with probability :math:`1-\delta` (Weissman's inequality).

At :math:`\beta = 0`, where the papers are silent, the limit is run: the same loop on values, with bonus
:math:`c H\sqrt{\cdot}` or :math:`c (H-h+1)\sqrt{\cdot}`.

References
----------
- RSVI: Y. Fei, Z. Yang, Y. Chen, Z. Wang, Q. Xie, "Risk-sensitive reinforcement learning: near-optimal risk-sample
  tradeoff in regret", NeurIPS 2020. Regret :math:`\tilde O(\lambda(|\beta|H^2)\sqrt{H^3S^2AT})`,
  :math:`\lambda(u) = (e^{3u}-1)/u`.
- RSVI2: Y. Fei, Z. Yang, Y. Chen, Z. Wang, "Exponential Bellman equation and improved regret bounds for
  risk-sensitive reinforcement learning", NeurIPS 2021. Regret
  :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|H}\sqrt{H^4S^2AK})`.

Written after the papers' descriptions, not compared with their pseudocode line by line; what is checked is optimism and
the limits.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.lab.learners._value_iteration import BONUS, value_iteration
from entropic_bpi.lab.learners.game import Game, Play, log_term, range_ratio
from entropic_bpi.tools.checks import check_positive

__all__ = ["rsvi", "rsvi2"]


def rsvi(game: Game, *, c: float = 1.0) -> Play:
    r"""RSVI (Fei et al. 2020), whose bonus has the range :math:`|e^{\beta H}-1|` at every step.

    Un-clipping at step h takes more than :math:`c^2 S \log(\cdot)\, e^{2\beta(h-1)}` visits for β > 0 (7e20 at β = 4,
    h = 7) and about :math:`c^2 S \log(\cdot)\, e^{2|\beta|V}` for β < 0. So with the literal constant it stays clipped
    for any practical number of episodes, and its play is decided by ties. That is the algorithm.
    """
    k = game.remaining
    return _value_iteration(game, c, range_ratio(game.beta, 0 * k + game.horizon, k), log_term(game, 2.0))


def rsvi2(game: Game, *, c: float = 1.0) -> Play:
    r"""RSVI2 (Fei et al. 2021), whose bonus shrinks with the steps left.

    For β > 0 it un-clips after about :math:`c^2 S \log(\cdot)` visits; the bonus is informative after about
    :math:`c^2 S \log(\cdot)\, e^{2\beta(H-h+1-V^*)}`, for β < 0 after :math:`c^2 S \log(\cdot)\, e^{2|\beta|V^*}`.
    """
    return _value_iteration(game, c, np.ones(game.horizon), log_term(game))


def _value_iteration(game: Game, c: float, ranges: np.ndarray, log: float) -> Play:
    """``ranges`` are those of the bonus in units of the range of the score, ``|e^{βk} - 1|``."""
    width = check_positive("c", c) * math.sqrt(game.n_states) * ranges
    return value_iteration(game, BONUS, width, log)
