r"""The optimistic policy of the KL method, played as a regret learner.

.. math:: U_h(s,a) = e^{\beta r_h} \operatorname*{opt}\{p\,Z_{h+1} : n\,\mathrm{KL}(\hat p, p) \le
   \log(P/\delta) + R_{mix}(N)\},

opt being max for β > 0 and min for β < 0, then :math:`Z_h = \max_a U_h` or :math:`\min_a U_h`; the greedy policy is
played. :math:`R_{mix}` is the exact mixture radius of :mod:`entropic_bpi.methods.kl.rates`, valid for all sample sizes at
once, and :math:`P` the number of (h, s, a) whose transition matters. Every state is a possible successor, as in
``eb.identify(method="kl", successors=None)``, whose optimistic plan this is; the candidate, the certificate and the
challenger policy are left out. There is no constant to choose.

No regret bound is proved for it. The event holds with probability :math:`1-\delta`, so it is optimistic.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.lab.learners._value_iteration import KL, value_iteration
from entropic_bpi.lab.learners.game import Game, Play

__all__ = ["kl_bpi"]


def kl_bpi(game: Game) -> Play:
    """Optimistic planning over exact KL balls; ``scale`` multiplies their radius."""
    # One state at the first step, all of them later; what follows the last step does not depend on the next state.
    pairs = game.n_actions * max(1 + (game.horizon - 2) * game.n_states, 1)
    return value_iteration(game, KL, np.ones(game.horizon), math.log(pairs / game.delta))
