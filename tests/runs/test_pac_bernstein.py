"""The promise itself: a policy that is not ε-optimal is returned with probability at most δ."""

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb

DELTA = 0.2
MODELS = [
    *(eb.instances.garnet(3, 2, 2, horizon=3, seed=seed) for seed in range(3)),
    *(eb.instances.garnet(2, 3, 2, horizon=2, seed=seed, stationary=False) for seed in range(3)),
    eb.instances.risky_bridge(horizon=5),
    eb.instances.risky_bridge(horizon=4, p_start=0.7),
    eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.array([[0.0, 5.0], [1.0, -2.0]]), horizon=2, start=[0.4, 0.6]),
]


def worst_gap(mdp, beta):
    """How much the worst policy loses."""
    worst = eb.solve(eb.FiniteMDP(mdp.rows, -mdp.rewards, horizon=mdp.horizon, start=mdp.start), -beta)
    return eb.solve(mdp, beta).value - eb.evaluate(mdp, worst.policy, beta).value


def problems():
    """Models with an ε that some of their policies miss by far."""
    for beta in (1.0, -1.0):
        for mdp in [*MODELS, eb.instances.hard_instance(6, 2, 6, beta=beta, eps=0.05, special=(1, 5, 1))]:
            yield mdp, beta, 0.6 * worst_gap(mdp, beta)


def failures(runs):
    """Runs whose policy is worse than promised, runs with a wrong bound, and all of them."""
    wrong = bad_bounds = total = 0
    for i, (mdp, beta, eps) in enumerate(problems()):
        optimum = eb.solve(mdp, beta).value
        for seed in range(runs):
            constants = ("verified", "sharp", "printed", "sharp")[seed % 4]
            options = {"successors": "model", "stationary": mdp.stationary} if seed % 4 == 3 else {}
            result = eb.identify(
                mdp, beta=beta, eps=eps, delta=DELTA, method="bernstein", constants=constants, replan=0.1,
                seed=1000 * i + seed, **options,
            )  # fmt: skip
            assert result.stopped
            value = eb.evaluate(mdp, result.policy, beta).value
            claim = result.certificate
            wrong += optimum - value > eps + 1e-9
            bad_bounds += (
                claim.lower > value + 1e-9 or claim.upper < optimum - 1e-9 or claim.gap < optimum - value - 1e-9
            )
            total += 1
    return wrong, bad_bounds, total


def check(runs):
    wrong, bad_bounds, total = failures(runs)
    for count in (wrong, bad_bounds):
        assert stats.binomtest(count, total, DELTA, alternative="greater").pvalue > 0.01
    return total


def test_promises_are_kept():
    assert check(8) == 160


@pytest.mark.slow
def test_promises_are_kept_in_many_runs():
    assert check(120) >= 2000


def test_every_problem_has_policies_that_break_the_promise():
    """Otherwise the tests above could not fail."""
    assert all(worst_gap(mdp, beta) > 0.01 for mdp, beta, _ in problems())
