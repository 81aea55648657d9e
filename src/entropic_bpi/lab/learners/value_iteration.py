r"""Optimistic value iteration: RSVI, RSVI2, RODI-OTP, RODI-PTO, ROVI and KL-BPI.

After every episode the scores are recomputed by one backward sweep on the empirical kernel :math:`\hat p`, with one
of four rules for optimism:

- ``BONUS``  :math:`q = \min(1, \mathrm{base} + \mathrm{slope}\cdot \hat p\,\bar q + w)`
- ``TIGHT``  :math:`q = \mathrm{base} + \mathrm{slope}\cdot \min(1, \hat p\,\bar q + w)`
- ``BALL``   :math:`q = \mathrm{base} + \mathrm{slope}\cdot \max\{p\,\bar q : \|p - \hat p\|_1 \le 2w\}`

- ``KL``     :math:`q = \mathrm{base} + \mathrm{slope}\cdot \max\{p\,\bar q : \mathrm{KL}(\hat p, p) \le w\}`

where :math:`\bar q(s') = \max_a q_{h+1}(s',a)` and :math:`w = \mathrm{step\_width}_h \sqrt{\mathrm{log}/n}`,
for ``KL`` :math:`w = \mathrm{step\_width}_h\,(\mathrm{log} + R_{mix})/n`.

A sweep recomputes only the scores that can have changed (see ``rows_to_update``), each by the whole formula above, so the
result equals that of the full sweep bit for bit; ``lazy=False`` computes the full sweep.

**RSVI and RSVI2: value iteration on the exponential Bellman equation.**

After every episode, for :math:`h = H, \dots, 1` and every visited :math:`(s,a)`, with
:math:`w = e^{\beta r_h}\,\hat p_h e^{\beta V_{h+1}}`,

.. math:: e^{\beta Q_h(s,a)} = \begin{cases}
   \min\{e^{\beta(H-h+1)},\; w + b_h(n)\} & \beta > 0 \\
   \max\{e^{\beta(H-h+1)},\; w - b_h(n)\} & \beta < 0 \end{cases}
   \qquad V_h(s) = \max_a Q_h(s,a),

:math:`Q_h = H-h+1` where :math:`n = 0`, and the next episode plays the greedy policy. The two learners differ only
in the bonus:

.. math:: \text{RSVI: } b = c\,|e^{\beta H} - 1| \sqrt{\tfrac{S \log(2SAT/\delta)}{n}}, \qquad
          \text{RSVI2: } b_h = c\,|e^{\beta (H-h+1)} - 1| \sqrt{\tfrac{S \log(HSAK/\delta)}{n}},

with :math:`K` episodes and :math:`T = KH`. The constant :math:`c` is not specified in the papers; here it is 1, and any
:math:`c \ge 1/\sqrt2` gives optimism with probability :math:`1-\delta` (Weissman's inequality).

At :math:`\beta = 0`, which the papers do not treat, the limit is used: the same loop on values, with bonus
:math:`c H\sqrt{\cdot}` or :math:`c (H-h+1)\sqrt{\cdot}`.

References:

- RSVI: Y. Fei, Z. Yang, Y. Chen, Z. Wang, Q. Xie, "Risk-sensitive reinforcement learning: near-optimal risk-sample
  tradeoff in regret", NeurIPS 2020. Regret :math:`\tilde O(\lambda(|\beta|H^2)\sqrt{H^3S^2AT})`,
  :math:`\lambda(u) = (e^{3u}-1)/u`.
- RSVI2: Y. Fei, Z. Yang, Y. Chen, Z. Wang, "Exponential Bellman equation and improved regret bounds for
  risk-sensitive reinforcement learning", NeurIPS 2021. Regret
  :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|H}\sqrt{H^4S^2AK})`.

The implementation follows the descriptions in the papers and was not compared with their pseudocode line by line; tests
check optimism and the limits.

**RODI: optimism then projection (OTP), or projection then optimism (PTO).**

Distributional reinforcement learning whose return laws :math:`(1-q)\,\delta_0 + q\,\delta_{H+1-h}` keep two atoms: the
projection preserves the entropic risk. With :math:`c_h = \sqrt{2S\iota/n}`, :math:`\iota = \log(SAT/\delta)`, and
:math:`\bar q = \hat p_h q_{h+1}`, moving mass :math:`c_h` to the top atom gives

.. math:: \text{OTP: } q' = \min(1, \bar q + c_h), \quad
          q_h = \frac{e^{\beta r}[1 + q'(e^{\beta(H-h)}-1)] - 1}{e^{\beta(H-h+1)}-1}

.. math:: \text{PTO: } q_h = \min\Big(1, \frac{e^{\beta r}[1 + \bar q\,(e^{\beta(H-h)}-1)] - 1}{e^{\beta(H-h+1)}-1}
          + c_h\Big)

for both signs of β, because the entropic risk respects stochastic dominance; :math:`q_h = 1` where :math:`n = 0`.
On the exponential scale PTO is RSVI2 with :math:`c = \sqrt2`, and OTP is RSVI2 with the tighter bonus range
:math:`e^{\beta r}|e^{\beta(H-h)}-1|`. Half of :math:`c_h` would suffice for optimism of both.

References:

H. Liang, Z. Luo, "Bridging distributional and risk-sensitive reinforcement learning with provable regret bounds",
JMLR 25(221), 2024. Regret :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|} H\sqrt{S^2AK})`.

The names and the two-atom structure are recalled, not read; the formulas follow from them.

**ROVI: value iteration over an :math:`L_1` ball of kernels.**

.. math:: U_h(s,a) = e^{\beta r_h} \cdot \operatorname*{opt}_{p:\ \|p - \hat p_h(\cdot\mid s,a)\|_1 \le c_h} p\,Z_{h+1},
   \qquad c_h = \sqrt{2S\iota/n}, \quad \iota = \log(SAT/\delta),

opt being max for β > 0 and min for β < 0; then :math:`Z_h = \max_a U_h` or :math:`\min_a U_h`, and the greedy policy is
played. The inner problem moves mass :math:`c_h/2` from the worst next states to the best of all S states, reachable or
not; an unvisited action leads there with certainty. No clip is needed. RODI-MB, its version on whole return laws, plays
the same policies.

References:

H. Liang, Z. Luo, "Bridging distributional and risk-sensitive reinforcement learning with provable regret bounds",
JMLR 25(221), 2024. Regret :math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|} H\sqrt{S^2AK})`. The pseudocode is recalled,
not read; the radius is Weissman's, so optimism holds with probability :math:`1-\delta`.

**KL-BPI: the optimistic policy of the KL method.**

.. math:: U_h(s,a) = e^{\beta r_h} \operatorname*{opt}\{p\,Z_{h+1} : n\,\mathrm{KL}(\hat p, p) \le
   \log(P/\delta) + R_{mix}(N)\},

opt being max for β > 0 and min for β < 0, then :math:`Z_h = \max_a U_h` or :math:`\min_a U_h`; the greedy policy is
played. :math:`R_{mix}` is the exact mixture radius of :mod:`entropic_bpi.methods.kl.rates`, valid for all sample sizes at
once, and :math:`P` the number of (h, s, a) whose transition matters. Every state is a possible successor, as in
``eb.identify(method="kl", successors=None)``, whose optimistic plan this is, without the candidate, the certificate and
the challenger policy. There is no constant to choose.

No regret bound is proved for it. The event holds with probability :math:`1-\delta`, so it is optimistic.

This is a second implementation of the optimistic half of :mod:`entropic_bpi.methods.kl.method`, which recomputes every row
and all certificates in each plan, in Z, and draws its ties once per run; with a plan after every episode it takes about 20
times as long. The scores of a learner are relative to the steps left, and its ties are drawn in each episode.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from entropic_bpi.compile.decorators import compiled, inlined
from entropic_bpi.lab.learners import kernels
from entropic_bpi.lab.learners.game import Game, Play, log_term, new_scratch, range_ratio
from entropic_bpi.lab.learners.kernels import Greedy, Model, RegretOracle, ReplanScratch
from entropic_bpi.methods.kl.ball import TOLERANCE, kl_extreme
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.tools.checks import check_positive

BONUS, TIGHT, BALL, KL = 0, 1, 2, 3


# -- the learners ------------------------------------------------------------------------------------------------


def rsvi(game: Game, *, c: float = 1.0) -> Play:
    r"""Return RSVI (Fei et al. 2020), whose bonus has the range :math:`|e^{\beta H}-1|` at every step.

    Un-clipping at step h takes more than :math:`c^2 S \log(\cdot)\, e^{2\beta(h-1)}` visits for β > 0 (7e20 at β = 4,
    h = 7) and about :math:`c^2 S \log(\cdot)\, e^{2|\beta|V}` for β < 0. So with the published constant it stays
    clipped for any practical number of episodes, and ties decide its actions. This is so in the published algorithm.
    """
    k = game.remaining
    return _with_bonus(game, c, range_ratio(game.beta, 0 * k + game.horizon, k), log_term(game, 2.0))


def rsvi2(game: Game, *, c: float = 1.0) -> Play:
    r"""Return RSVI2 (Fei et al. 2021), whose bonus decreases with the number of steps left.

    For β > 0 it un-clips after about :math:`c^2 S \log(\cdot)` visits; the bonus is informative after about
    :math:`c^2 S \log(\cdot)\, e^{2\beta(H-h+1-V^*)}`, for β < 0 after :math:`c^2 S \log(\cdot)\, e^{2|\beta|V^*}`.
    """
    return _with_bonus(game, c, np.ones(game.horizon), log_term(game))


def _with_bonus(game: Game, c: float, ranges: np.ndarray, log: float) -> Play:
    """Return a learner with a bonus; ``ranges`` are in units of the range of the score, ``|e^{βk} - 1|``."""
    width = check_positive("c", c) * math.sqrt(game.n_states) * ranges
    return value_iteration(game, BONUS, width, log)


def rodi_otp(game: Game) -> Play:
    """Return RODI-OTP (Liang and Luo 2024): optimism on the mixture of next laws, then projection; no free constant."""
    return _with_mass(game, TIGHT)


def rodi_pto(game: Game) -> Play:
    """Return RODI-PTO (Liang and Luo 2024): projection, then optimism on the two-atom law; no free constant."""
    return _with_mass(game, BONUS)


def _with_mass(game: Game, rule: int) -> Play:
    width = np.full(game.horizon, math.sqrt(2 * game.n_states))
    return value_iteration(game, rule, width, log_term(game))


def rovi(game: Game) -> Play:
    """Return ROVI (Liang and Luo 2024), without a free constant; ``scale`` multiplies the radius of the ball."""
    half_radius = np.full(game.horizon, math.sqrt(game.n_states / 2))
    return value_iteration(game, BALL, half_radius, log_term(game))


def kl_bpi(game: Game) -> Play:
    """Return KL-BPI, optimistic planning over exact KL balls; ``scale`` multiplies their radius."""
    # One state at the first step, all of them later; what follows the last step does not depend on the next state.
    pairs = game.n_actions * max(1 + (game.horizon - 2) * game.n_states, 1)
    return value_iteration(game, KL, np.ones(game.horizon), math.log(pairs / game.delta))


# -- the loop behind them ----------------------------------------------------------------------------------------


class SweepMemory(NamedTuple):
    """The rule and the counts of a learner; arrays are indexed by row ``(h * S + s) * A + a``.

    ``transitions`` are aligned with the entries of the model's rows, which serves only to store counts: an entry that was
    never sampled is 0 and is not used in any formula.
    """

    rule: int
    lazy: bool
    base: np.ndarray  # (rows,)
    slope: np.ndarray  # (rows,)
    step_width: np.ndarray  # (H,)
    log_term: float
    visits: np.ndarray  # (rows,)
    transitions: np.ndarray  # (entries,) visits by next state
    width: np.ndarray  # (rows,) present bonus or radius (for the L1 ball, half of it)
    peak: np.ndarray  # (H + 1,) best score over all states, for the balls
    scratch: ReplanScratch


def value_iteration(game: Game, rule: int, step_width: np.ndarray, log_term: float, *, lazy: bool = True) -> Play:
    """Return the learner with this rule and these widths ``(H,)``, which the scale of the game multiplies."""
    known = SweepMemory(
        rule=rule,
        lazy=lazy,
        base=game.base.reshape(-1),
        slope=game.slope.reshape(-1),
        step_width=game.scale * np.asarray(step_width, dtype=np.float64),
        log_term=log_term,
        visits=np.zeros(game.n_pairs, dtype=np.int64),
        transitions=np.zeros(len(game.model.next_state), dtype=np.int64),
        width=np.full(game.n_pairs, np.inf),
        peak=np.zeros(game.horizon + 1),
        scratch=new_scratch(game),
    )
    plan_everything(game.model, game.greedy, known)
    return game.player(_play, known)


@compiled
def _play(
    model: Model, greedy: Greedy, oracle: RegretOracle, rng: Generator, known: SweepMemory, first: int, last: int
) -> None:
    steps, scratch, path, lazy = len(greedy.score), known.scratch, known.scratch.path, known.lazy
    for episode in range(first, last):
        kernels.play(model, greedy, oracle, rng, episode, path)
        for h in range(steps):
            _learn(model, known, h, path.row[h], path.entry[h])
        n_moved = 0
        peak_moved = not lazy
        for h in range(steps - 1, -1, -1):
            if peak_moved:
                n_rows = _all_rows(h, scratch.rows)
            else:
                n_rows = kernels.rows_to_update(model, known.transitions, scratch, episode, h, n_moved)
            n_moved = _plan_step(model, greedy, known, h, n_rows)
            if known.rule >= BALL:
                peak_moved = (n_moved > 0 and _update_peak(greedy, known, h)) or not lazy


@inlined
def _learn(model: Model, known: SweepMemory, h: int, row: int, entry: int) -> None:
    known.transitions[entry] += 1
    known.visits[row] += 1
    n = known.visits[row]
    if known.rule == KL:
        tally = known.transitions[model.indptr[row] : model.indptr[row + 1]]
        known.width[row] = known.step_width[h] * (known.log_term + mixture_radius(tally, model.reward.shape[1])) / n
    else:
        known.width[row] = known.step_width[h] * math.sqrt(known.log_term / n)


@inlined
def _all_rows(h: int, rows: np.ndarray) -> int:
    for i in range(rows.size):
        rows[i] = h * rows.size + i
    return rows.size


@inlined
def _update_peak(greedy: Greedy, known: SweepMemory, h: int) -> bool:
    """Update the best score over all states, on which every ball of the step before depends; return if it moved."""
    highest = greedy.best[h, 0]
    for s in range(1, greedy.best.shape[1]):
        highest = max(highest, greedy.best[h, s])
    moved = highest != known.peak[h]
    known.peak[h] = highest
    return moved


@inlined
def _plan_step(model: Model, greedy: Greedy, known: SweepMemory, h: int, n_rows: int) -> int:
    """Recompute the scores of the listed rows of step ``h``; list the states whose best score moved."""
    score, scratch = greedy.score.reshape(-1), known.scratch
    best, peak = greedy.best[h + 1], known.peak[h + 1]
    for i in range(n_rows):
        row = scratch.rows[i]
        score[row] = _optimistic_score(model, known, row, best, peak)
    n_moved = 0
    for i in range(n_rows):
        s = model.state_of_row[scratch.rows[i]]
        if kernels.refresh(greedy, h, s):  # a second refresh of the same state returns False
            scratch.moved[n_moved] = s
            n_moved += 1
    return n_moved


@inlined
def _optimistic_score(model: Model, known: SweepMemory, row: int, best: np.ndarray, peak: float) -> float:
    base, slope, visits, width = known.base[row], known.slope[row], known.visits[row], known.width[row]
    if known.rule == KL:
        return base + slope * (_kl_mean(model, known, row, best, peak) if visits else peak)
    if known.rule == BALL:
        if visits == 0 or width >= 1.0:
            return base + slope * peak
        return base + slope * _ball_mean(model, known, row, best, peak)
    if visits == 0:
        return 1.0
    mean = 0.0  # counts are summed first, so that the mean is exactly 1 if all scores are
    transitions, next_state = known.transitions, model.next_state
    for j in range(model.indptr[row], model.indptr[row + 1]):
        mean += transitions[j] * best[next_state[j]]
    mean /= visits
    if known.rule == TIGHT:
        return base + slope * min(1.0, mean + width)
    return min(1.0, base + slope * mean + width)


@inlined
def _ball_mean(model: Model, known: SweepMemory, row: int, best: np.ndarray, peak: float) -> float:
    """Compute the largest mean of ``best`` if mass ``width`` can move from any states to the one with the ``peak``.

    The mass is taken from the worst states first, so the remaining mass is on the best ones. Summing losses against the
    peak, and not the mean, makes a row whose successors all have the peak tie exactly with an unvisited row.
    """
    order, shares = known.scratch.order, known.scratch.shares
    seen = 0
    for j in range(model.indptr[row], model.indptr[row + 1]):  # insertion sort: rows are short
        if known.transitions[j] == 0:
            continue
        s = model.next_state[j]
        i = seen
        while i > 0 and best[order[i - 1]] < best[s]:
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
def _kl_mean(model: Model, known: SweepMemory, row: int, best: np.ndarray, peak: float) -> float:
    """Compute the largest mean of ``best`` over the KL ball of all states; ``peak`` stands for the unseen ones."""
    scratch, seen = known.scratch, 0
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
def plan_everything(model: Model, greedy: Greedy, known: SweepMemory) -> None:
    """Compute all scores by a full sweep, from the counts alone."""
    for h in range(greedy.score.shape[0] - 1, -1, -1):
        _plan_step(model, greedy, known, h, _all_rows(h, known.scratch.rows))
        _update_peak(greedy, known, h)
