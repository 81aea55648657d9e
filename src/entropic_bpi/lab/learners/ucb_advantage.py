r"""UCB-Advantage for the exponential utility: Q-learning in stages with a reference value.

For each :math:`(h,s,a)`, over all visits :math:`n` the mean and variance of :math:`e^{\beta V^{ref}_{h+1}(s')}`, and
over the :math:`m` visits of the current stage the mean of :math:`e^{\beta V_{h+1}(s')}` and the mean and variance of
:math:`e^{\beta V_{h+1}(s')} - e^{\beta V^{ref}_{h+1}(s')}`, are kept. Stages end at :math:`n \in \{l_1 = 1,\
l_i = l_{i-1} + \lfloor(1+1/H)^i\rfloor\}`, where, for β > 0,

.. math:: Q_h \leftarrow \min\Big\{Q_h,\; r_h + \tfrac1\beta \log\min\big\{\check u/m + \bar b,\;
   u^{ref}/n + \check\Delta/m + b\big\}\Big\},

.. math:: b = 2\sqrt{\tfrac{\hat\sigma^2_{ref}\,\iota}{n}} + 2\sqrt{\tfrac{\check\sigma^2\,\iota}{m}}
   + 5R\big(\tfrac{\iota}{n} + \tfrac{\iota}{m} + (\tfrac{\iota}{n})^{3/4} + (\tfrac{\iota}{m})^{3/4}\big),
   \qquad \bar b = 2R\sqrt{\iota/m}, \quad R = e^{\beta H}.

For β < 0 the bonuses are subtracted with :math:`R = 1`, the inner min is a max that also contains
:math:`u^{ref}/n - 2\sqrt{\iota/n}` and the floor :math:`e^{\beta(H-h+1)}`. The reference of :math:`(h,s)` is set to the
current value when its visits reach :math:`N_0(\alpha)` and :math:`N_0(\alpha')`,
:math:`N_0(g) = c_4 e^{4\beta H}H^3SA\,\iota/g^2`. Policies change at stage ends only.

References
----------
X. Hu, H.-F. Leung, "A tighter problem-dependent regret bound for risk-sensitive reinforcement learning", AISTATS 2023,
Algorithms 1 and 2 with the constants of its Appendix A (read, not recalled); ancestor: Z. Zhang, Y. Zhou, X. Ji,
"Almost optimal model-free reinforcement learning via reference-advantage decomposition", NeurIPS 2020. Regret
:math:`\tilde O(\tfrac{e^{|\beta|H}-1}{|\beta|}\sqrt{HSAT})`, and a problem-dependent bound.

Variances are updated in Welford's form; the papers' :math:`\mathbb E z^2 - (\mathbb E z)^2` is the same number with
fewer correct digits. The logarithm is :math:`\iota = \log(2/p)` with the p that makes the paper's Lemma 1 hold with
probability :math:`1-\delta`; pass ``p`` to choose another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from entropic_bpi.compile.decorators import compiled
from entropic_bpi.lab.learners.game import Game, Play
from entropic_bpi.lab.learners.kernels import Greedy, Model, Path, RegretOracle, new_path, play, refresh
from entropic_bpi.tools.checks import check_choice, check_positive, check_probability

# Columns of the accumulators of a pair (h, s, a).
REF_MEAN, REF_SPREAD, STAGE_MEAN, ADV_MEAN, ADV_SPREAD = 0, 1, 2, 3, 4


def ucb_advantage(
    game: Game,
    *,
    variant: str = "literal",
    c4: float = 1.0,
    reference: tuple[int, int] = (200, 2000),
    p: float | None = None,
) -> Play:
    r"""Return UCB-Advantage (Hu and Leung 2023), for β ≠ 0.

    Parameters
    ----------
    variant
        ``"literal"`` is that of the paper. ``"range"`` replaces R by the true range :math:`|e^{\beta(H-h)}-1|`, starts from
        :math:`H-h+1` for both signs and sets the reference after ``reference`` visits; its :math:`\bar b` stays
        rigorous.
    c4
        The paper's "sufficiently large" constant in :math:`N_0`; 1 by default.
    reference
        Numbers of visits of a state at which its reference is set, for ``variant="range"``.
    p
        Failure probability of one event, :math:`\iota = \log(2/p)`.

    Notes
    -----
    The literal form does not learn at practical sizes: at the last step one *stage* must hold
    :math:`4\iota e^{2\beta H}` visits before anything un-clips, and for β > 0
    :math:`N_0 \ge c_4e^{4\beta H}H^2\iota` is out of reach, so that the advantage branch is inert.
    """
    game.check_beta("ucb_advantage")
    check_choice("variant", variant, ("literal", "range"))
    check_positive("c4", c4)
    literal = variant == "literal"
    iota = math.log(2 / check_probability("p", p)) if p is not None else _log_of_guarantee(game)
    sign = 1.0 if game.beta > 0 else -1.0
    largest = max(game.beta, 0.0) * game.horizon  # tables hold sign * e^{βV - largest}, which grows with the value
    k = game.remaining
    top = np.where(literal & (sign > 0), game.horizon, k)
    scores = sign * np.exp(game.beta * top - largest)
    game.greedy.score[:] = scores[:, None, None]
    game.greedy.best[:-1] = scores[:, None]
    game.greedy.best[-1] = sign * np.exp(-largest)
    ranges = np.ones(game.horizon)
    if not literal:
        ranges = np.exp(max(game.beta, 0.0) * (k - 1) - largest) * -np.expm1(-abs(game.beta) * (k - 1))
    ceiling = np.full(game.horizon, np.inf) if sign > 0 else sign * np.exp(game.beta * k)
    updates = np.array(reference, dtype=np.float64) if not literal else _reference_times(game, c4, iota)
    known = StageMemory(
        iota=iota,
        scale=game.scale,
        ranges=ranges,
        ceiling=ceiling,
        growth=np.exp(np.minimum(game.beta * game.rewards, 700.0)).reshape(-1),
        updates=updates,
        reference=game.greedy.best.copy(),
        sums=np.zeros((game.n_pairs, 5)),
        visits=np.zeros((game.n_pairs, 2), dtype=np.int64),
        stage=np.ones((game.n_pairs, 2), dtype=np.int64),
        state_visits=np.zeros((game.horizon, game.n_states), dtype=np.int64),
        path=new_path(game.horizon),
    )

    return game.player(_play, known)


class StageMemory(NamedTuple):
    """The constants and the statistics of the learner."""

    iota: float
    scale: float
    ranges: np.ndarray  # (H,) R, in the units of the table
    ceiling: np.ndarray  # (H,)
    growth: np.ndarray  # (rows,) e^{βr}
    updates: np.ndarray  # (2,) visits of a state at which its reference is set
    reference: np.ndarray  # (H + 1, S)
    sums: np.ndarray  # (rows, 5) the accumulators
    visits: np.ndarray  # (rows, 2) all visits, and those of the stage
    stage: np.ndarray  # (rows, 2) its number, and the visits at which it ends
    state_visits: np.ndarray  # (H, S)
    path: Path


def _log_of_guarantee(game: Game) -> float:
    """Compute ``log(2 / p)`` with ``p = δ / (2(e^{2|β|H} T³ + 3) + T)``, in logarithms."""
    log_t = math.log(game.episodes * game.horizon)
    parts = np.logaddexp(math.log(2) + 2 * abs(game.beta) * game.horizon + 3 * log_t, np.logaddexp(math.log(6), log_t))
    return float(math.log(2) - math.log(game.delta) + parts)


def _reference_times(game: Game, c4: float, iota: float) -> np.ndarray:
    """Return the two visit counts at which a reference is set, as printed; very large ones are capped."""
    h, beta = game.horizon, game.beta
    pairs = game.n_states * game.n_actions
    if beta > 0:
        log_alphas = np.array([min(-beta * h, -h), 0.5 * math.log(h * pairs)])
    else:
        log_alphas = np.array([min(-h, beta * h - math.log(4 * (h + 1))), beta * h + 0.5 * math.log(h * pairs)])
    logs = math.log(c4) + 4 * beta * h + 3 * math.log(h) + math.log(pairs * iota) - 2 * log_alphas
    return np.ceil(np.exp(np.clip(logs, -700, 700)))


@compiled
def _play(
    model: Model, greedy: Greedy, oracle: RegretOracle, rng: Generator, known: StageMemory, first: int, last: int
) -> None:
    steps, score, state_visits, path = len(greedy.score), greedy.score.reshape(-1), known.state_visits, known.path
    for episode in range(first, last):
        play(model, greedy, oracle, rng, episode, path)
        for h in range(steps):
            row, following = path.row[h], model.next_state[path.entry[h]]
            s, sums, visits, stage = model.state_of_row[row], known.sums[row], known.visits[row], known.stage[row]
            _accumulate(sums, visits, greedy.best[h + 1, following], known.reference[h + 1, following])
            state_visits[h, s] += 1
            if visits[0] == stage[1]:
                score[row] = min(score[row], known.growth[row] * _stage_bound(known, h, sums, visits))
                refresh(greedy, h, s)
                stage[0] += 1
                stage[1] += int((1.0 + 1.0 / steps) ** stage[0])
                visits[1] = 0
                sums[2:] = 0.0
            if state_visits[h, s] == known.updates[0] or state_visits[h, s] == known.updates[1]:
                known.reference[h, s] = greedy.best[h, s]


@compiled
def _accumulate(sums: np.ndarray, visits: np.ndarray, seen: float, expected: float) -> None:
    """Update means and sums of squared deviations by Welford's method."""
    visits[0] += 1
    visits[1] += 1
    off = expected - sums[REF_MEAN]
    sums[REF_MEAN] += off / visits[0]
    sums[REF_SPREAD] += off * (expected - sums[REF_MEAN])
    sums[STAGE_MEAN] += (seen - sums[STAGE_MEAN]) / visits[1]
    advantage = seen - expected
    off = advantage - sums[ADV_MEAN]
    sums[ADV_MEAN] += off / visits[1]
    sums[ADV_SPREAD] += off * (advantage - sums[ADV_MEAN])


@compiled
def _stage_bound(known: StageMemory, h: int, sums: np.ndarray, visits: np.ndarray) -> float:
    """Return the smallest upper bound on the mean of the next table entries."""
    scale, reach, ceiling = known.scale, known.ranges[h], known.ceiling[h]
    n, m = known.iota / visits[0], known.iota / visits[1]
    bonus = 2.0 * math.sqrt(max(sums[REF_SPREAD], 0.0) / visits[0] * n)
    bonus += 2.0 * math.sqrt(max(sums[ADV_SPREAD], 0.0) / visits[1] * m)
    bonus += 5.0 * reach * (n + m + n**0.75 + m**0.75)
    bound = min(sums[STAGE_MEAN] + scale * 2.0 * reach * math.sqrt(m), sums[REF_MEAN] + sums[ADV_MEAN] + scale * bonus)
    if ceiling < math.inf:  # β < 0
        bound = min(bound, min(ceiling, sums[REF_MEAN] + scale * 2.0 * reach * math.sqrt(n)))
    return bound
