"""When a run plans by default: from the sizes of the model and the gap, without a clock."""

import functools
import itertools

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.loop import Loop
from entropic_bpi.runs.settings import Settings

GOAL = {"beta": -1.0, "delta": 0.1, "successors": "model", "seed": 1}
SMALL = eb.instances.risky_bridge(horizon=7)
MEDIUM = eb.instances.garnet(100, 4, 3, horizon=5, seed=0)


def plans(source, **options):
    return eb.identify(source, **{**GOAL, **options}).history["episodes"].tolist()


@functools.cache
def history_of_the_default(seed):
    return eb.identify(MEDIUM, **{**GOAL, "seed": seed}, eps=0.6, stationary=True).history


@pytest.mark.parametrize("stationary", [True, False])
def test_small_models_are_planned_for_as_with_one_hundredth(stationary):
    options = {"eps": 0.3, "stationary": stationary}
    assert plans(SMALL, **options) == plans(SMALL, **options, replan=0.01)


@pytest.mark.slow
@pytest.mark.sample
def test_larger_models_are_planned_for_less_often_but_at_each_doubling_and_before_the_first_episode():
    options = {"eps": 0.6, "stationary": True}
    ours = [history_of_the_default(seed)["episodes"].tolist() for seed in range(4)]
    fine = [plans(MEDIUM, **{**options, "seed": seed}, replan=0.01) for seed in range(4)]
    for each in ours:
        assert each[:2] == [0, 1]
        assert all(later <= 2 * sooner for sooner, later in itertools.pairwise(each[1:]))
    assert sum(map(len, ours)) < sum(map(len, fine)) / 2
    assert sum(each[-1] for each in ours) < 1.1 * sum(each[-1] for each in fine)


def test_no_more_is_played_than_the_target_takes_if_gaps_fall_like_one_over_n():
    history = history_of_the_default(GOAL["seed"])
    late = history[history["gap"] < 2 * 0.6]
    smallest = np.minimum.accumulate(late["gap"])[:-1]
    growth = np.diff(late["episodes"]) / late["episodes"][:-1]
    assert len(growth) > 3
    assert np.all(growth <= np.maximum(smallest / 0.6 - 1, 0.01) + 1 / late["episodes"][:-1])


@pytest.mark.parametrize(
    "where", [pytest.param("early", marks=pytest.mark.slow), "middle", pytest.param("late", marks=pytest.mark.slow)]
)
def test_a_run_that_goes_on_from_any_plan_has_the_same_schedule(where):
    source, settings = Settings.read(MEDIUM, **GOAL, eps=0.6, stationary=True)
    whole = history_of_the_default(GOAL["seed"])["episodes"].tolist()
    until = {"early": 3, "middle": len(whole) // 2, "late": len(whole) - 3}[where]
    loop = start_run(source, settings)
    seen = []

    def observe(plan):
        seen.append(plan)
        if len(seen) == until:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.go(observe)
    again = Loop(source, settings, loop.snapshot())
    again.go(lambda plan: None)
    assert np.concatenate(again.state.history)["episodes"].tolist() == whole
