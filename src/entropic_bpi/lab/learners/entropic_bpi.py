r"""Entropic-BPI played as a regret learner: its exploration policy, without its stopping rule.

With :math:`\alpha^*(n) = \log(3SAH/\delta) + \log(8e(n+1))`, :math:`\alpha(n) = \log(3SAH/\delta) + S\log(8e(n+1))`, and
Z° the optimistic table (the upper one for β > 0, the lower one for β < 0), the paper prints the bonus

.. math:: b = 2\sqrt2\sqrt{\operatorname{Var}_{\hat p}(Z^\circ_{h+1})\,\tfrac{\alpha^*(n)}{n}}
   + 5\,\mathrm{range}_h\,\tfrac{\alpha(n)}{n} + 4H\,\mathrm{range}_h\,\tfrac{\alpha^*(n)}{n}, \qquad
   \mathrm{range}_h = \begin{cases} e^{\beta(H-h)} & \beta > 0\\ 1-e^{\beta(H-h)} & \beta < 0\end{cases}

(``constants="printed"``). The form that was checked in Lean 4 has α(n) in the last term too, which makes it
:math:`(5+4H)\,\mathrm{range}_h\,\alpha(n)/n` (``constants="verified"``, the default). Then

.. math:: \overline U_h = \min\{\cdot,\; e^{\beta r}[\hat p\overline Z_{h+1} + b
   + \tfrac1H\hat p(\overline Z_{h+1}-\underline Z_{h+1})]\}, \qquad
   \underline U_h = \max\{\cdot,\; e^{\beta r}[\hat p\underline Z_{h+1} - b
   - \tfrac1H\hat p(\overline Z_{h+1}-\underline Z_{h+1})]\},

clipped to the possible range :math:`[1, e^{\beta(H-h+1)}]` or :math:`[e^{\beta(H-h+1)}, 1]` (the exponent
:math:`\beta(H-h-1)` that the paper prints there is a slip: optimism fails with it), and the policy greedy for the
optimistic table is played. ``eb.identify(method="bernstein")`` is the same plan with a certificate. It was designed to
stop with that, not to minimise regret.

References
----------
"Tight sample complexity bounds for entropic best policy identification", which proves a number of episodes until it
stops with an ε-optimal policy. No regret bound is claimed.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.lab.learners._bernstein import bernstein_value_iteration
from entropic_bpi.lab.learners.game import Game, Play
from entropic_bpi.tools.checks import check_choice

__all__ = ["entropic_bpi"]


def entropic_bpi(game: Game, constants: str = "verified") -> Play:
    """Entropic-BPI as a regret learner, for β ≠ 0 (its bonus has no limit as β decreases to 0)."""
    game.check_beta("entropic_bpi")
    check_choice("constants", constants, ("verified", "printed"))
    of_alpha, of_alpha_star = (5 + 4 * game.horizon, 0) if constants == "verified" else (5, 4 * game.horizon)
    return bernstein_value_iteration(
        game,
        game.base,
        game.slope,
        c=2 * math.sqrt(2),
        linear=_in_scores(game, of_alpha),
        linear_star=_in_scores(game, of_alpha_star),
        top=np.ones(game.horizon),
    )


def _in_scores(game: Game, factor: float) -> np.ndarray:
    """A term ``factor * range`` of the bonus, behind e^{βr} and in units of scores, ``(H, S, A)``."""
    if game.beta < 0:
        return factor * game.slope
    k = game.remaining[:, None, None]  # e^{βr} e^{β(k-1)} / (e^{βk} - 1), without overflow
    return np.asarray(factor * np.exp(-game.beta * (1 - game.rewards)) / -np.expm1(-game.beta * k))
