r"""RSQ and RSQ2: Q-learning on the exponential Bellman equation.

At each step, after playing :math:`a` in :math:`s` and seeing :math:`s'`, with :math:`t` the visits of
:math:`(h,s,a)`, :math:`\alpha_t = (H+1)/(H+t)` and the value of :math:`s'` before this episode's update there,

.. math:: w = (1-\alpha_t)\, e^{\beta Q_h(s,a)} + \alpha_t\, e^{\beta[r_h + V_{h+1}(s')]}, \qquad
   e^{\beta Q_h(s,a)} = \begin{cases}
   \min\{e^{\beta(H-h+1)},\; w + \alpha_t b_t\} & \beta > 0 \\
   \max\{e^{\beta(H-h+1)},\; w - \alpha_t b_t\} & \beta < 0 \end{cases}

from :math:`Q_h = H-h+1`. The two learners differ only in the bonus:

.. math:: \text{RSQ: } b_t = c\,|e^{\beta H} - 1| \sqrt{\tfrac{H \log(SAT/\delta)}{t}}, \qquad
          \text{RSQ2: } b_t = c\,|e^{\beta (H-h+1)} - 1| \sqrt{\tfrac{H \log(HSAK/\delta)}{t}}.

The constant :math:`c` is not specified in the papers; here it is 1. A Hoeffding proof as that of Jin et al. (2018) would
need about 2 (recalled).

References
----------
- RSQ: Y. Fei, Z. Yang, Y. Chen, Z. Wang, Q. Xie, "Risk-sensitive reinforcement learning: near-optimal risk-sample
  tradeoff in regret", NeurIPS 2020. Regret :math:`\tilde O(\lambda(|\beta|H^2)\sqrt{H^4SAT})`,
  :math:`\lambda(u) = (e^{3u}-1)/u`.
- RSQ2: Y. Fei, Z. Yang, Y. Chen, Z. Wang, "Exponential Bellman equation and improved regret bounds for
  risk-sensitive reinforcement learning", NeurIPS 2021. Regret
  :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|H}\sqrt{H^5SAK})` (recalled).

The implementation follows the descriptions in the papers and was not compared with their pseudocode line by line; tests
check optimism and the limits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from entropic_bpi.compile.decorators import compiled
from entropic_bpi.lab.learners.game import Game, Play, log_term, range_ratio
from entropic_bpi.lab.learners.kernels import Greedy, Model, Path, RegretOracle, new_path, play, refresh
from entropic_bpi.tools.checks import check_positive


def rsq(game: Game, *, c: float = 1.0) -> Play:
    """Return RSQ (Fei et al. 2020). With the published constant it stays clipped, as RSVI, and ties decide its actions."""
    k = game.remaining
    return _q_learning(game, c, range_ratio(game.beta, 0 * k + game.horizon, k))


def rsq2(game: Game, *, c: float = 1.0) -> Play:
    """Return RSQ2 (Fei et al. 2021), whose bonus decreases with the number of steps left."""
    return _q_learning(game, c, np.ones(game.horizon))


def _q_learning(game: Game, c: float, ranges: np.ndarray) -> Play:
    width = game.scale * check_positive("c", c) * math.sqrt(game.horizon * log_term(game)) * ranges
    visits = np.zeros(game.n_pairs, dtype=np.int64)
    known = QMemory(width, game.base.reshape(-1), game.slope.reshape(-1), visits, new_path(game.horizon))

    return game.player(_play, known)


class QMemory(NamedTuple):
    """The bonus after one visit, the known rewards and the visits; arrays are over rows unless stated otherwise."""

    width: np.ndarray  # (H,)
    base: np.ndarray
    slope: np.ndarray
    visits: np.ndarray
    path: Path


@compiled
def _play(
    model: Model, greedy: Greedy, oracle: RegretOracle, rng: Generator, known: QMemory, first: int, last: int
) -> None:
    steps, score, path = len(greedy.score), greedy.score.reshape(-1), known.path
    for episode in range(first, last):
        play(model, greedy, oracle, rng, episode, path)
        for h in range(steps):
            row, following = path.row[h], model.next_state[path.entry[h]]
            known.visits[row] += 1
            t = known.visits[row]
            rate = (steps + 1.0) / (steps + t)
            target = known.base[row] + known.slope[row] * greedy.best[h + 1, following]
            mixed = (1.0 - rate) * score[row] + rate * (target + known.width[h] / math.sqrt(t))
            score[row] = min(1.0, mixed)
            refresh(greedy, h, model.state_of_row[row])
