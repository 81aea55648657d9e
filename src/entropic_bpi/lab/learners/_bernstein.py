r"""Optimistic and pessimistic value iteration with an empirical Bernstein bonus: BPI-UCBVI and Entropic-BPI.

In scores, with :math:`x^* = (L + \log 8e(n+1))/n`, :math:`x = (L + S\log 8e(n+1))/n`, :math:`L = \log(3SAH/\delta)`,

.. math:: \overline q = \min\{\mathrm{top}_h,\; \mathrm{base} + \mathrm{slope}\,[\hat p\overline q' + d
     + c\sqrt{\operatorname{Var}_{\hat p}(\overline q')\,x^*}] + e\}, \qquad
   \underline q = \max\{0,\; \mathrm{base} + \mathrm{slope}\,[\hat p\underline q' - d - c\sqrt{\cdot}] - e\},

with :math:`d = \hat p(\overline q' - \underline q')/H` and :math:`e = \mathrm{linear}\,x + \mathrm{linear}^*x^*`. Only
scores that can have changed are recomputed.

This is apart from :mod:`entropic_bpi.methods.bernstein`, whose arithmetic is in Z and whose ties are drawn once per run: a
learner's scores are values relative to what is left, and each episode draws its ties anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from entropic_bpi.lab.learners import kernels
from entropic_bpi.lab.learners.game import Game, new_scratch
from entropic_bpi.lab.learners.kernels import Greedy, Judge, Model, Scratch, compiled, inlined

__all__ = ["Bernstein", "Knowledge", "bernstein_value_iteration"]


class Knowledge(NamedTuple):
    """The constants of a learner and what it has seen; arrays are indexed by row ``(h * S + s) * A + a``."""

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


@dataclass(frozen=True, eq=False)
class Bernstein:
    """Play the policy greedy for the optimistic scores, replanned after every episode."""

    game: Game
    known: Knowledge
    scratch: Scratch

    def __call__(self, first: int, last: int) -> None:
        game = self.game
        _play(game.model, game.greedy, game.judge, game.rng, first, last, self.known, self.scratch)


def bernstein_value_iteration(
    game: Game,
    base: np.ndarray,
    slope: np.ndarray,
    *,
    c: float,
    linear: np.ndarray,
    linear_star: np.ndarray,
    top: np.ndarray,
) -> Bernstein:
    """The learner with these constants; ``linear`` and ``linear_star`` are ``(H, S, A)``, ``top`` is ``(H,)``."""
    game.greedy.score[:] = top[:, None, None]
    game.greedy.best[:-1] = top[:, None]
    known = Knowledge(
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
    )
    return Bernstein(game, known, new_scratch(game))


@compiled
def _play(
    model: Model,
    greedy: Greedy,
    judge: Judge,
    rng: np.random.Generator,
    first: int,
    last: int,
    known: Knowledge,
    scratch: Scratch,
) -> None:
    steps, path = len(greedy.score), scratch.path
    for episode in range(first, last):
        kernels.play(model, greedy, judge, rng, episode, path)
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
def _learn(known: Knowledge, row: int, entry: int) -> None:
    known.transitions[entry] += 1
    known.visits[row] += 1
    n = known.visits[row]
    log = math.log(8.0 * math.e * (n + 1.0))
    known.rates[row, 0] = (known.log_term + log) / n
    known.rates[row, 1] = (known.log_term + known.low_best.shape[1] * log) / n


@inlined
def _plan_row(model: Model, greedy: Greedy, known: Knowledge, h: int, row: int) -> None:
    """Both scores of one visited row."""
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
def _refresh_low(model: Model, known: Knowledge, h: int, s: int) -> bool:
    first = kernels.row_of(model, h, s, 0)
    best = known.low_score[first]
    for a in range(1, model.reward.shape[2]):
        best = max(best, known.low_score[first + a])
    moved = best != known.low_best[h, s]
    known.low_best[h, s] = best
    return moved
