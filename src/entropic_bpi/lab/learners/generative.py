r"""The plug-in planner with a generative model, for reference: it does not play episodes.

One sample of the next state of *every* :math:`(h,s,a)` counts as :math:`SA` episodes of :math:`H` steps. After
t episodes' worth of samples, :math:`n = \lfloor t/(SA)\rfloor` per :math:`(h,s,a)`, the learner's policy is optimal
for the empirical model,

.. math:: \hat U_h(s,a) = e^{\beta r_h}\,\hat p_h \hat Z_{h+1}, \qquad \hat Z_h = \max_a \hat U_h\ (\beta>0)
   \text{ or } \min_a \hat U_h\ (\beta<0), \qquad \hat Z_{H+1} = 1,

and the regret is that of playing this policy. No exploration is needed. With
:math:`n \ge 2\log(4HSA/\delta)\,\big(\sum_{h=1}^{H}\tfrac{e^{|\beta|(H-h)}-1}{|\beta|}\big)^2/\varepsilon^2` samples
the policy is ε-optimal with probability :math:`1-\delta`.

References
----------
The finite-horizon version of MB-RS-QVI: O. Mortensen, M. S. Talebi, "Entropic risk optimization in discounted MDPs:
sample complexity bounds with a generative model", 2025 (discounted and recursive there, with the opposite sign of β;
recalled from summaries). The sample size above was derived for this version.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from entropic_bpi.compile.decorators import compiled
from entropic_bpi.lab.learners.game import Game, Play
from entropic_bpi.lab.learners.kernels import Greedy, Model, RegretOracle, draw, refresh, row_of, watch
from entropic_bpi.tools.checks import check_integer


class SampleMemory(NamedTuple):
    """The limit of the samples, the known rewards and the counts."""

    limit: int
    base: np.ndarray  # (H, S, A)
    slope: np.ndarray  # (H, S, A)
    transitions: np.ndarray  # (entries,) samples by next state


def generative(game: Game, *, samples: int | None = None) -> Play:
    """Return the plug-in planner; it has no bonus, so ``scale`` has no effect.

    Parameters
    ----------
    samples
        Largest number of samples per (h, s, a); by default, sampling does not stop.
    """
    limit = check_integer("samples", samples) if samples is not None else game.episodes
    known = SampleMemory(limit, game.base, game.slope, np.zeros(len(game.model.next_state), dtype=np.int64))

    return game.player(_play, known)


@compiled
def _play(
    model: Model, greedy: Greedy, oracle: RegretOracle, rng: Generator, known: SampleMemory, first: int, last: int
) -> None:
    _, states, actions = greedy.score.shape
    for episode in range(first, last):
        samples, waiting = divmod(episode, states * actions)
        if waiting == 0 and 0 < samples <= known.limit:
            for row in range(model.indptr.size - 1):
                known.transitions[draw(model, rng, row)] += 1
            _plan(model, greedy, known, samples)
        watch(model, greedy, oracle, episode)


@compiled
def _plan(model: Model, greedy: Greedy, known: SampleMemory, samples: int) -> None:
    steps, states, actions = greedy.score.shape
    for h in range(steps - 1, -1, -1):
        for s in range(states):
            for a in range(actions):
                row = row_of(model, h, s, a)
                total = 0.0
                for j in range(model.indptr[row], model.indptr[row + 1]):
                    total += known.transitions[j] * greedy.best[h + 1, model.next_state[j]]
                greedy.score[h, s, a] = known.base[h, s, a] + known.slope[h, s, a] * (total / samples)
            refresh(greedy, h, s)
