r"""RODI with two-atom return laws: optimism then projection (OTP), or projection then optimism (PTO).

Distributional reinforcement learning whose return laws :math:`(1-q)\,\delta_0 + q\,\delta_{H+1-h}` keep two atoms: the
projection preserves the entropic risk. With :math:`c_h = \sqrt{2S\iota/n}`, :math:`\iota = \log(SAT/\delta)`, and
:math:`\bar q = \hat p_h q_{h+1}`, moving mass :math:`c_h` to the top atom gives

.. math:: \text{OTP: } q' = \min(1, \bar q + c_h), \quad
          q_h = \frac{e^{\beta r}[1 + q'(e^{\beta(H-h)}-1)] - 1}{e^{\beta(H-h+1)}-1}

.. math:: \text{PTO: } q_h = \min\Big(1, \frac{e^{\beta r}[1 + \bar q\,(e^{\beta(H-h)}-1)] - 1}{e^{\beta(H-h+1)}-1}
          + c_h\Big)

for both signs of β, because the entropic risk respects stochastic dominance; :math:`q_h = 1` where :math:`n = 0`.
On the exponential scale PTO is RSVI2 with :math:`c = \sqrt2`, and OTP is RSVI2 with the tighter bonus range
:math:`e^{\beta r}|e^{\beta(H-h)}-1|`. Both are optimistic with room to spare: half the :math:`c_h` would do.

References
----------
H. Liang, Z. Luo, "Bridging distributional and risk-sensitive reinforcement learning with provable regret bounds",
JMLR 25(221), 2024. Regret :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|} H\sqrt{S^2AK})`.

The names and the two-atom structure are recalled, not read; the formulas follow from them.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.lab.learners._value_iteration import BONUS, TIGHT, value_iteration
from entropic_bpi.lab.learners.game import Game, Play, log_term

__all__ = ["rodi_otp", "rodi_pto"]


def rodi_otp(game: Game) -> Play:
    """RODI-OTP (Liang and Luo 2024): optimism on the mixture of next laws, then projection. No free constant."""
    return _value_iteration(game, TIGHT)


def rodi_pto(game: Game) -> Play:
    """RODI-PTO (Liang and Luo 2024): projection, then optimism on the two-atom law. No free constant."""
    return _value_iteration(game, BONUS)


def _value_iteration(game: Game, rule: int) -> Play:
    width = np.full(game.horizon, math.sqrt(2 * game.n_states))
    return value_iteration(game, rule, width, log_term(game))
