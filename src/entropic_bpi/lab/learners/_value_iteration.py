r"""Optimistic value iteration, the loop behind RSVI, RSVI2, RODI, ROVI and the KL plan.

After every episode the scores are recomputed by one backward sweep on the empirical kernel :math:`\hat p`, with one
of four rules for optimism:

- ``BONUS``  :math:`q = \min(1, \mathrm{base} + \mathrm{slope}\cdot \hat p\,\bar q + w)`
- ``TIGHT``  :math:`q = \mathrm{base} + \mathrm{slope}\cdot \min(1, \hat p\,\bar q + w)`
- ``BALL``   :math:`q = \mathrm{base} + \mathrm{slope}\cdot \max\{p\,\bar q : \|p - \hat p\|_1 \le 2w\}`

- ``KL``     :math:`q = \mathrm{base} + \mathrm{slope}\cdot \max\{p\,\bar q : \mathrm{KL}(\hat p, p) \le w\}`

where :math:`\bar q(s') = \max_a q_{h+1}(s',a)` and :math:`w = \mathrm{step\_width}_h \sqrt{\mathrm{log}/n}`,
for ``KL`` :math:`w = \mathrm{step\_width}_h\,(\mathrm{log} + R_{mix})/n`.

A sweep recomputes only the scores that can have changed (see ``rows_to_update``), each from scratch by the formula
above, so the result is bit for bit that of the full sweep; ``lazy=False`` is the full sweep.

``KL`` is apart from :mod:`entropic_bpi.methods.kl.method`, whose arithmetic is in Z and whose ties are drawn once per run: a
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
from entropic_bpi.methods.kl.ball import TOLERANCE, kl_extreme
from entropic_bpi.methods.kl.rates import mixture_radius

__all__ = ["BALL", "BONUS", "KL", "TIGHT", "Knowledge", "ValueIteration", "ball_mean", "value_iteration"]

BONUS, TIGHT, BALL, KL = 0, 1, 2, 3


class Knowledge(NamedTuple):
    """The rule of a learner and what it has seen; arrays are indexed by row ``(h * S + s) * A + a``.

    ``transitions`` are aligned with the entries of the model's rows. That is a place to store counts, nothing more: an
    entry that was never sampled holds 0 and enters no formula.
    """

    rule: int
    lazy: bool
    base: np.ndarray  # (rows,)
    slope: np.ndarray  # (rows,)
    step_width: np.ndarray  # (H,)
    log_term: float
    anytime: bool  # add log(2n(n+1)) to the logarithm
    visits: np.ndarray  # (rows,)
    transitions: np.ndarray  # (entries,) visits by next state
    width: np.ndarray  # (rows,) present bonus or radius (for the L1 ball, half of it)
    peak: np.ndarray  # (H + 1,) best score over all states, for the balls


@dataclass(frozen=True, eq=False)
class ValueIteration:
    """Play the policy greedy for the optimistic scores, replanned after every episode."""

    game: Game
    known: Knowledge
    scratch: Scratch

    def __call__(self, first: int, last: int) -> None:
        game = self.game
        _play(game.model, game.greedy, game.judge, game.rng, first, last, self.known, self.scratch)

    def replan(self) -> None:
        """The full sweep, from the counts alone."""
        _plan_everything(self.game.model, self.game.greedy, self.known, self.scratch)


def value_iteration(
    game: Game, rule: int, step_width: np.ndarray, log_term: float, *, lazy: bool = True
) -> ValueIteration:
    """The learner with this rule and these widths ``(H,)``, which the game's scale multiplies."""
    known = Knowledge(
        rule=rule,
        lazy=lazy,
        base=game.base.reshape(-1),
        slope=game.slope.reshape(-1),
        step_width=game.scale * np.asarray(step_width, dtype=np.float64),
        log_term=log_term,
        anytime=game.anytime,
        visits=np.zeros(game.n_pairs, dtype=np.int64),
        transitions=np.zeros(len(game.model.next_state), dtype=np.int64),
        width=np.full(game.n_pairs, np.inf),
        peak=np.zeros(game.horizon + 1),
    )
    learner = ValueIteration(game, known, new_scratch(game))
    learner.replan()
    return learner


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
    steps, path, lazy = len(greedy.score), scratch.path, known.lazy
    for episode in range(first, last):
        kernels.play(model, greedy, judge, rng, episode, path)
        for h in range(steps):
            _learn(model, known, h, path.row[h], path.entry[h])
        n_moved = 0
        peak_moved = not lazy
        for h in range(steps - 1, -1, -1):
            if peak_moved:
                n_rows = _all_rows(h, scratch.rows)
            else:
                n_rows = kernels.rows_to_update(model, known.transitions, scratch, episode, h, n_moved)
            n_moved = _plan_step(model, greedy, known, scratch, h, n_rows)
            if known.rule >= BALL:
                peak_moved = (n_moved > 0 and _update_peak(greedy, known, h)) or not lazy


@inlined
def _learn(model: Model, known: Knowledge, h: int, row: int, entry: int) -> None:
    known.transitions[entry] += 1
    known.visits[row] += 1
    n = known.visits[row]
    if known.rule == KL:
        tally = known.transitions[model.indptr[row] : model.indptr[row + 1]]
        known.width[row] = known.step_width[h] * (known.log_term + mixture_radius(tally, model.reward.shape[1])) / n
    else:
        log = known.log_term + math.log(2.0 * n * (n + 1.0)) if known.anytime else known.log_term
        known.width[row] = known.step_width[h] * math.sqrt(log / n)


@inlined
def _all_rows(h: int, rows: np.ndarray) -> int:
    for i in range(rows.size):
        rows[i] = h * rows.size + i
    return rows.size


@inlined
def _update_peak(greedy: Greedy, known: Knowledge, h: int) -> bool:
    """A ball reaches for the best of all states, so every row of the step before depends on it."""
    highest = greedy.best[h, 0]
    for s in range(1, greedy.best.shape[1]):
        highest = max(highest, greedy.best[h, s])
    moved = highest != known.peak[h]
    known.peak[h] = highest
    return moved


@inlined
def _plan_step(model: Model, greedy: Greedy, known: Knowledge, scratch: Scratch, h: int, n_rows: int) -> int:
    """Recompute the scores of the listed rows of step ``h``; list the states whose best score moved."""
    score = greedy.score.reshape(-1)
    best, peak = greedy.best[h + 1], known.peak[h + 1]
    for i in range(n_rows):
        row = scratch.rows[i]
        score[row] = _optimistic_score(model, known, scratch, row, best, peak)
    n_moved = 0
    for i in range(n_rows):
        s = model.state_of_row[scratch.rows[i]]
        if kernels.refresh(greedy, h, s):  # a second refresh of the same state finds nothing moved
            scratch.moved[n_moved] = s
            n_moved += 1
    return n_moved


@inlined
def _optimistic_score(
    model: Model, known: Knowledge, scratch: Scratch, row: int, best: np.ndarray, peak: float
) -> float:
    base, slope, visits, width = known.base[row], known.slope[row], known.visits[row], known.width[row]
    if known.rule == KL:
        return base + slope * (_kl_mean(model, known, scratch, row, best, peak) if visits else peak)
    if known.rule == BALL:
        if visits == 0 or width >= 1.0:
            return base + slope * peak
        return base + slope * ball_mean(model, known, scratch, row, best, peak, 1.0)
    if visits == 0:
        return 1.0
    mean = 0.0  # a sum of counts first: when every successor is at 1 the mean is exactly 1
    transitions, next_state = known.transitions, model.next_state
    for j in range(model.indptr[row], model.indptr[row + 1]):
        mean += transitions[j] * best[next_state[j]]
    mean /= visits
    if known.rule == TIGHT:
        return base + slope * min(1.0, mean + width)
    return min(1.0, base + slope * mean + width)


@inlined
def ball_mean(
    model: Model, known: Knowledge, scratch: Scratch, row: int, best: np.ndarray, peak: float, sign: float
) -> float:
    """Largest (``sign`` 1) mean of ``best`` when mass ``width`` may go from anywhere to the state with the ``peak``.

    The mass leaves the worst states first, so what stays is filled from the best. Counting what is lost against the
    peak, rather than the mean, makes a row whose successors are all at the peak tie exactly with an unvisited one. With
    ``sign`` -1 it is the smallest mean, and ``peak`` the lowest.
    """
    order, shares = scratch.order, scratch.shares
    seen = 0
    for j in range(model.indptr[row], model.indptr[row + 1]):  # insertion sort: rows are short
        if known.transitions[j] == 0:
            continue
        s = model.next_state[j]
        i = seen
        while i > 0 and sign * best[order[i - 1]] < sign * best[s]:
            order[i], shares[i] = order[i - 1], shares[i - 1]
            i -= 1
        order[i], shares[i] = s, known.transitions[j] / known.visits[row]
        seen += 1
    left = 1.0 - known.width[row]
    loss = 0.0
    for i in range(seen):
        stays = min(shares[i], left)
        left -= stays
        loss += stays * (peak - best[order[i]])
    return peak - loss


@compiled
def _kl_mean(model: Model, known: Knowledge, scratch: Scratch, row: int, best: np.ndarray, peak: float) -> float:
    """Largest mean of ``best`` over the KL ball, in which any state is possible: ``peak`` stands for those unseen."""
    seen = 0
    for j in range(model.indptr[row], model.indptr[row + 1]):
        if known.transitions[j] > 0:
            scratch.tally[seen] = known.transitions[j]
            scratch.values[seen] = best[model.next_state[j]]
            seen += 1
    scratch.tally[seen] = 0
    scratch.values[seen] = peak
    return kl_extreme(
        scratch.tally, scratch.values, seen + 1, known.visits[row], known.width[row], 1.0, TOLERANCE, scratch.work
    )


@compiled
def _plan_everything(model: Model, greedy: Greedy, known: Knowledge, scratch: Scratch) -> None:
    for h in range(greedy.score.shape[0] - 1, -1, -1):
        _plan_step(model, greedy, known, scratch, h, _all_rows(h, scratch.rows))
        _update_peak(greedy, known, h)
