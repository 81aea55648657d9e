"""Whole runs of the KL method: how often a returned certificate is false, over all assumptions."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb

DELTA = 0.1


def models():
    """Small models of every kind: chains, garnets, next-state rewards, kernels by step, random starts."""
    yield "bridge", eb.instances.risky_bridge(horizon=5), 1.5
    yield "river", eb.instances.river_swim(4, horizon=5), 0.8
    for seed in range(4):
        yield f"garnet{seed}", eb.instances.garnet(4, 2, 2, horizon=3, seed=seed, stationary=seed % 2 == 0), 0.6
    rng = np.random.default_rng(1)
    for i in range(9):
        S, A, H = 3, 2, 1 + i % 3
        by_step, next_state, random_start = i % 2 == 0, i % 3 != 0, i % 4 < 2
        kernel = rng.dirichlet(np.full(S, 0.6), (H, S, A) if by_step else (S, A))
        rewards = rng.random((S, A, S) if next_state else (S, A)) - 0.3
        start = rng.dirichlet(np.ones(S)) if random_start else int(rng.integers(S))
        yield f"random{i}", eb.FiniteMDP(kernel, rewards, horizon=H, start=start), 0.5 * (1 + H) / 2


MODELS = {name: (mdp, eps) for name, mdp, eps in models()}
ASSUMPTIONS = list(product((False, True), (None, "model"), (1.0, -1.0), ("challenger", "optimistic")))


def failures(runs_per_setting, max_episodes, every=1):
    """Runs that stopped, and those of them whose claim is false in any part, of each setting on every so many models."""
    stopped = failed = 0
    for number, (mdp, eps) in enumerate(MODELS.values()):
        for setting, (stationary, successors, sign, sampling) in enumerate(ASSUMPTIONS):
            if (number + setting) % every or (stationary and not mdp.stationary):
                continue
            beta = sign * (0.4 + 0.3 * (number % 4))
            best = eb.solve(mdp, beta).value
            for run in range(runs_per_setting):
                result = eb.identify(
                    mdp, beta=beta, eps=eps, delta=DELTA, stationary=stationary, successors=successors,
                    sampling=sampling, max_episodes=max_episodes, replan=0.05, seed=1000 * number + 50 * setting + run,
                )  # fmt: skip
                claim = result.certificate
                mine = eb.evaluate(mdp, claim.policy, beta).value
                stopped += result.stopped
                false = claim.lower > mine + 1e-9 or best > claim.upper + 1e-9 or best - mine > claim.gap + 1e-9
                if result.stopped:
                    false = false or best - mine > eps + 1e-9
                failed += false
    return stopped, failed


def test_false_certificates_are_no_more_frequent_than_promised():
    stopped, failed = failures(1, 4000, every=3)
    assert stopped >= 50
    assert stats.binomtest(failed, stopped, DELTA, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
def test_false_certificates_are_no_more_frequent_than_promised_in_5000_runs():
    stopped, failed = failures(32, 300_000)
    print(f"{stopped} stopped runs, {failed} false certificates")
    assert len(MODELS) >= 15
    assert stopped >= 5000
    assert stats.binomtest(failed, stopped, DELTA, alternative="greater").pvalue > 1e-3
