"""Stopping rules: the bounds hold, the policy is as good as certified, and the conversions count right."""

import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.lab.learners import names, run
from entropic_bpi.lab.learners.generative import sample_size
from entropic_bpi.lab.learners.stopping import STOPPABLE, pac_from_regret, run_until, value_of_score

TWINS = [name for name in STOPPABLE if name != "bpi_ucbvi"]


@pytest.fixture(scope="module")
def mdp():
    return eb.instances.garnet(3, 2, 2, horizon=3, seed=0)


def check(mdp, beta, stop):
    value = eb.evaluate(mdp, stop.policy, beta).value
    optimum = eb.solve(mdp, beta).value
    assert stop.lower <= value + 1e-12
    assert optimum <= stop.upper + 1e-12
    assert optimum - value <= stop.gap + 1e-12


@pytest.mark.parametrize("beta", [-0.5, 0.0, 0.5])
@pytest.mark.parametrize("learner", TWINS)
def test_the_twin_certifies_its_policy(mdp, learner, beta):
    stop = run_until(learner, mdp, beta=beta, eps=0.5, seed=1, max_episodes=2_000_000)
    assert stop.stopped
    assert stop.gap == pytest.approx(stop.upper - stop.lower)
    assert stop.gap <= 0.5
    check(mdp, beta, stop)


def test_bpi_ucbvi_certifies_the_expected_return(mdp):
    stop = run_until("bpi_ucbvi", mdp, beta=0, eps=0.5, seed=1, max_episodes=2_000_000)
    assert stop.stopped
    check(mdp, 0.0, stop)
    with pytest.raises(eb.InvalidProblemError, match="beta must be 0"):
        run_until("bpi_ucbvi", mdp, beta=0.5, eps=0.5)


@pytest.mark.parametrize("budget", [1, 30, 1000])
@pytest.mark.parametrize("beta", [-3.0, 3.0])
@pytest.mark.parametrize("learner", TWINS)
def test_bounds_hold_before_stopping(mdp, learner, beta, budget):
    for seed in range(5):
        stop = run_until(learner, mdp, beta=beta, eps=1e-6, seed=seed, max_episodes=budget)
        assert not stop.stopped
        assert stop.episodes == budget
        check(mdp, beta, stop)


def test_bounds_are_in_the_units_of_the_rewards(mdp):
    other = eb.FiniteMDP(mdp.transitions, 10 * mdp.rewards - 4, horizon=3, start=[0.5, 0.5, 0])
    stop = run_until("rovi", other, beta=-0.1, eps=3.0, seed=0, max_episodes=1_000_000)
    assert stop.stopped
    assert stop.policy.shape == (3, 3)
    check(other, -0.1, stop)


def test_learners_that_cannot_stop_say_so(mdp):
    for learner in set(names()) - set(STOPPABLE):
        with pytest.raises(eb.InvalidProblemError, match="learner must be one of"):
            run_until(learner, mdp, beta=1.0, eps=0.1)


@pytest.mark.parametrize("beta", [-400.0, -2.0, -1e-9, 0.0, 1e-9, 2.0, 400.0])
def test_scores_and_values_correspond(beta):
    assert value_of_score(0.0, beta, 5) == pytest.approx(0.0, abs=1e-12)
    assert value_of_score(1.0, beta, 5) == pytest.approx(5.0)
    if 0 < abs(beta) < 10:
        score = math.expm1(beta * 1.7) / math.expm1(beta * 5)
        assert value_of_score(score, beta, 5) == pytest.approx(1.7)


def test_one_run_follows_markov():
    assert pac_from_regret(3.0, eps=0.1, delta=0.5).total == 3600


def test_several_runs_depend_on_delta_through_its_logarithm():
    totals = [pac_from_regret(3.0, eps=0.1, delta=d, beta=-1.0, max_return=2.0).total for d in (1e-2, 1e-4, 1e-8)]
    assert totals[1] / totals[0] < 4
    assert totals[2] / totals[1] < 4
    neutral = pac_from_regret(3.0, eps=0.1, delta=0.1, beta=0.0, max_return=2.0)
    close = pac_from_regret(3.0, eps=0.1, delta=0.1, beta=1e-9, max_return=2.0)
    assert neutral.evaluation_episodes == pytest.approx(close.evaluation_episodes, abs=2)


def test_plug_in_with_the_stated_samples_is_near_optimal(mdp):
    n = sample_size(3, 2, 3, beta=-1.0, eps=0.5, delta=0.1)
    result = run("generative", mdp, beta=-1.0, episodes=6 * (n + 1), seed=0, samples=n)
    loss = eb.solve(mdp, -1.0).value - eb.evaluate(mdp, result.policy, -1.0).value
    assert loss <= 0.5
    assert np.isfinite(result.regret).all()
