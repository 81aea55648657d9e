"""The baseline of explorations, against its formula in plain Python."""

import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from tests.reference.rf_ucrl import RFUCRL


def errors(counts, delta, h, s):
    """max_a E_h(s, a) by the recursion as it is printed; steps count from 0."""
    problem = counts.problem
    n, actions, steps = problem.n_states, problem.n_actions, problem.horizon
    if h == steps - 1:
        return 0.0
    seen, best = counts.transitions(), 0.0
    for a in range(actions):
        row = (h * n + s) * actions + a
        mine = {int(y): int(k) for r, y, k in zip(seen.rows, seen.successors, seen.times, strict=True) if r == row}
        visits, most = sum(mine.values()), steps - 1 - h
        if visits == 0:
            best = max(best, most)
            continue
        threshold = math.log(2 * n * actions * steps / delta) + (n - 1) * math.log(math.e * (1 + visits / (n - 1)))
        later = sum(k / visits * errors(counts, delta, h + 1, y) for y, k in mine.items())
        best = max(best, min(most, most * math.sqrt(2 * threshold / visits) + later))
    return best


def test_the_bound_is_the_published_one():
    rng = np.random.default_rng(1)
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2)), horizon=3)
    problem = Problem.from_mdp(mdp, beta=0.0, eps=0.1, delta=0.1)
    run = eb.identify(mdp, beta=0.0, eps=1e-9, delta=0.1, seed=1, max_episodes=500)
    seen = run.certificate.transitions
    counts = Counts.of(problem, seen._replace(times=1000 * seen.times), 1000 * run.certificate.episodes)
    gap = RFUCRL(problem).plan(counts, 0).bounds.gap
    assert gap == pytest.approx(2 * errors(counts, 0.1, 0, 0), rel=1e-12)
    assert 0 < gap < 2 * 2
