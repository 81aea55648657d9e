r"""Optimistic and pessimistic value iteration with an empirical Bernstein bonus: Entropic-BPI and BPI-UCBVI.

In scores, with :math:`x^* = (L + \log 8e(n+1))/n`, :math:`x = (L + S\log 8e(n+1))/n`, :math:`L = \log(3SAH/\delta)`,

.. math:: \overline q = \min\{\mathrm{top}_h,\; \mathrm{base} + \mathrm{slope}\,[\hat p\overline q' + d
     + c\sqrt{\operatorname{Var}_{\hat p}(\overline q')\,x^*}] + e\}, \qquad
   \underline q = \max\{0,\; \mathrm{base} + \mathrm{slope}\,[\hat p\underline q' - d - c\sqrt{\cdot}] - e\},

with :math:`d = \hat p(\overline q' - \underline q')/H` and :math:`e = \mathrm{linear}\,x + \mathrm{linear}^*x^*`. Only
scores that can have changed are recomputed.

The loop is separate from :mod:`entropic_bpi.methods.bernstein`, which computes in Z, draws its ties once per run, and has
no BPI-UCBVI and no ``scale``.

**Entropic-BPI as a regret learner: its exploration policy, without its stopping rule.**

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
:math:`\beta(H-h-1)` that the paper prints there is an error: optimism fails with it), and the policy greedy for the
optimistic table is played. ``eb.identify(method="bernstein")`` is the same plan with a certificate. It was designed to
stop with a certificate, not to minimise regret.

References:

"Tight sample complexity bounds for entropic best policy identification", which bounds the number of episodes until it stops
with an ε-optimal policy. No regret bound is claimed.

**BPI-UCBVI: the risk-neutral predecessor of Entropic-BPI, as a regret learner.**

With :math:`\beta^*(n) = \log(3SAH/\delta) + \log(8e(n+1))` and :math:`\beta(n) = \log(3SAH/\delta) + S\log(8e(n+1))`,

.. math:: b = 3\sqrt{\operatorname{Var}_{\hat p}(\overline V_{h+1})\,\tfrac{\beta^*(n)}{n}} + 14H^2\tfrac{\beta(n)}{n}

.. math:: \overline Q_h = \min\{H,\; r + b + \tfrac1H\hat p(\overline V_{h+1}-\underline V_{h+1})
   + \hat p\overline V_{h+1}\}, \qquad
   \underline Q_h = \max\{0,\; r - b - \tfrac1H\hat p(\overline V_{h+1}-\underline V_{h+1})
   + \hat p\underline V_{h+1}\},

and the policy greedy for :math:`\overline Q` is played. It maximises the *expected* return, whatever β is; β only
enters the regret, which measures what ignoring risk costs.

References:

P. Ménard, O. D. Domingues, A. Jonsson, E. Kaufmann, E. Leurent, M. Valko, "Fast active learning for pure exploration in
reinforcement learning", ICML 2021: :math:`\tilde O(H^3SA/\varepsilon^2)` episodes to an ε-optimal policy. Recalled, not
read; the constants were derived again and agree.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from entropic_bpi.compile.decorators import compiled, inlined
from entropic_bpi.lab.learners import kernels
from entropic_bpi.lab.learners.game import Game, Play, new_scratch, score_coefficients
from entropic_bpi.lab.learners.kernels import Greedy, Model, RegretOracle, ReplanScratch
from entropic_bpi.tools.checks import check_choice

# -- the learners ------------------------------------------------------------------------------------------------


def entropic_bpi(game: Game, constants: str = "verified") -> Play:
    """Return Entropic-BPI as a regret learner, for β ≠ 0 (its bonus has no limit as β decreases to 0)."""
    game.check_beta("entropic_bpi")
    check_choice("constants", constants, ("verified", "printed"))
    of_alpha, of_alpha_star = (5 + 4 * game.horizon, 0) if constants == "verified" else (5, 4 * game.horizon)
    return _value_iteration(
        game,
        game.base,
        game.slope,
        c=2 * math.sqrt(2),
        linear=_in_scores(game, of_alpha),
        linear_star=_in_scores(game, of_alpha_star),
        top=np.ones(game.horizon),
    )


def _in_scores(game: Game, factor: float) -> np.ndarray:
    """Return a term ``factor * range`` of the bonus, times e^{βr} and in units of scores, ``(H, S, A)``."""
    if game.beta < 0:
        return factor * game.slope
    k = game.remaining[:, None, None]  # e^{βr} e^{β(k-1)} / (e^{βk} - 1), without overflow
    return np.asarray(factor * np.exp(-game.beta * (1 - game.rewards)) / -np.expm1(-game.beta * k))


def bpi_ucbvi(game: Game) -> Play:
    """Return BPI-UCBVI (Ménard et al. 2021), which maximises the expected return at any β and clips at H, as published."""
    h, k = game.horizon, game.remaining[:, None, None]
    base, slope = score_coefficients(game.rewards, 0.0)  # scores are values divided by the steps left
    linear = np.broadcast_to(14 * h**2 / k, game.rewards.shape)
    return _value_iteration(
        game, base, slope, c=3.0, linear=linear, linear_star=np.zeros_like(linear), top=h / game.remaining
    )


# -- the loop behind them ----------------------------------------------------------------------------------------


class BernsteinMemory(NamedTuple):
    """The constants and the counts of a learner; arrays are indexed by row ``(h * S + s) * A + a``."""

    base: np.ndarray  # (rows,)
    slope: np.ndarray  # (rows,)
    linear: np.ndarray  # (rows,)
    linear_star: np.ndarray  # (rows,)
    c: float
    top: np.ndarray  # (H,)
    log_term: float
    low_score: np.ndarray  # (rows,) pessimistic scores
    low_best: np.ndarray  # (H + 1, S)
    visits: np.ndarray  # (rows,)
    transitions: np.ndarray  # (entries,) visits by next state
    rates: np.ndarray  # (rows, 2) x* and x
    scratch: ReplanScratch


def _value_iteration(
    game: Game,
    base: np.ndarray,
    slope: np.ndarray,
    *,
    c: float,
    linear: np.ndarray,
    linear_star: np.ndarray,
    top: np.ndarray,
) -> Play:
    """Return the learner with these constants; ``linear`` and ``linear_star`` are ``(H, S, A)``, ``top`` is ``(H,)``."""
    game.greedy.score[:] = top[:, None, None]
    game.greedy.best[:-1] = top[:, None]
    known = BernsteinMemory(
        base=base.reshape(-1),
        slope=slope.reshape(-1),
        linear=game.scale * linear.reshape(-1),
        linear_star=game.scale * linear_star.reshape(-1),
        c=game.scale * c,
        top=top,
        log_term=math.log(3 * game.n_pairs / game.delta),
        low_score=np.zeros(game.n_pairs),
        low_best=np.zeros((game.horizon + 1, game.n_states)),
        visits=np.zeros(game.n_pairs, dtype=np.int64),
        transitions=np.zeros(len(game.model.next_state), dtype=np.int64),
        rates=np.zeros((game.n_pairs, 2)),
        scratch=new_scratch(game),
    )
    return game.player(_play, known)


@compiled
def _play(
    model: Model, greedy: Greedy, oracle: RegretOracle, rng: Generator, known: BernsteinMemory, first: int, last: int
) -> None:
    steps, scratch, path = len(greedy.score), known.scratch, known.scratch.path
    for episode in range(first, last):
        kernels.play(model, greedy, oracle, rng, episode, path)
        for h in range(steps):
            _learn(known, path.row[h], path.entry[h])
        n_moved = 0
        for h in range(steps - 1, -1, -1):
            n_rows = kernels.rows_to_update(model, known.transitions, scratch, episode, h, n_moved)
            for i in range(n_rows):
                _plan_row(model, greedy, known, h, scratch.rows[i])
            n_moved = 0
            for i in range(n_rows):
                s = model.state_of_row[scratch.rows[i]]
                moved = kernels.refresh(greedy, h, s)
                if _refresh_low(model, known, h, s) or moved:
                    scratch.moved[n_moved] = s
                    n_moved += 1


@inlined
def _learn(known: BernsteinMemory, row: int, entry: int) -> None:
    known.transitions[entry] += 1
    known.visits[row] += 1
    n = known.visits[row]
    log = math.log(8.0 * math.e * (n + 1.0))
    known.rates[row, 0] = (known.log_term + log) / n
    known.rates[row, 1] = (known.log_term + known.low_best.shape[1] * log) / n


@inlined
def _plan_row(model: Model, greedy: Greedy, known: BernsteinMemory, h: int, row: int) -> None:
    """Compute both scores of one visited row."""
    transitions, next_state = known.transitions, model.next_state
    high, low = greedy.best[h + 1], known.low_best[h + 1]
    begin, end, n = model.indptr[row], model.indptr[row + 1], known.visits[row]
    mean_high, mean_low, variance = 0.0, 0.0, 0.0
    for j in range(begin, end):
        mean_high += transitions[j] * high[next_state[j]]
        mean_low += transitions[j] * low[next_state[j]]
    mean_high, mean_low = mean_high / n, mean_low / n
    for j in range(begin, end):
        off = high[next_state[j]] - mean_high
        variance += transitions[j] * off * off
    steps = known.top.size
    width = (mean_high - mean_low) / steps + known.c * math.sqrt(variance / n * known.rates[row, 0])
    extra = known.linear[row] * known.rates[row, 1] + known.linear_star[row] * known.rates[row, 0]
    base, slope = known.base[row], known.slope[row]
    greedy.score.reshape(-1)[row] = min(known.top[h], base + slope * (mean_high + width) + extra)
    known.low_score[row] = max(0.0, base + slope * (mean_low - width) - extra)


@inlined
def _refresh_low(model: Model, known: BernsteinMemory, h: int, s: int) -> bool:
    first = kernels.row_of(model, h, s, 0)
    best = known.low_score[first]
    for a in range(1, model.reward.shape[2]):
        best = max(best, known.low_score[first + a])
    moved = best != known.low_best[h, s]
    known.low_best[h, s] = best
    return moved
