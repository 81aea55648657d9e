"""Before a run: trial runs, what they foresee, and what they say about declarations."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.runs.forecasts import trial
from entropic_bpi.runs.forecasts.advice import returns_along
from entropic_bpi.runs.settings import Settings

BRIDGE = eb.instances.risky_bridge(horizon=5)
ASKED = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "seed": 1}


@pytest.fixture(scope="module")
def outlook():
    return eb.forecast(BRIDGE, **ASKED, trial_seconds=60.0)


def test_a_trial_run_that_reaches_the_goal_is_the_run(outlook):
    run = eb.identify(BRIDGE, **ASKED)
    assert outlook.trial.reached
    assert outlook.episodes == (run.episodes, run.episodes)
    assert run.certificate.gap <= outlook.trial.gap <= ASKED["eps"]
    assert str(outlook).startswith("reached by the trial run: ")


def test_what_is_said_of_a_model_is_true_of_it_and_its_factors_are_those_of_the_runs(outlook):
    assert all(one.true for one in outlook.declarations)
    found = {str(one): one.factor for one in outlook.declarations}
    alone = eb.identify(BRIDGE, **ASKED).episodes
    for declared in ({"stationary": True}, {"successors": "model"}, {"max_successors": 2}):
        factor = alone / eb.identify(BRIDGE, **ASKED, **declared).episodes
        (name,) = (f"{key}={value!r}" for key, value in declared.items())
        assert found[name] == (factor, factor)
    assert outlook.declarations[0].declared == {"stationary": True, "successors": "model"}
    assert outlook.declarations[0].helps


def test_a_forecast_is_shown_by_its_text(outlook):
    assert repr(outlook) == str(outlook)


def test_what_is_declared_or_not_true_is_not_advised():
    outlook = eb.forecast(BRIDGE, **ASKED, successors="model", stationary=True, trial_episodes=5)
    assert outlook.declarations == ()
    changing = eb.instances.garnet(3, 2, 3, horizon=3, seed=0, stationary=False)
    names = [set(one.declared) for one in eb.forecast(changing, **ASKED, trial_episodes=5).declarations]
    assert names == [{"successors"}]


def test_a_method_that_makes_no_use_of_a_declaration_is_not_advised_to():
    outlook = eb.forecast(BRIDGE, **ASKED, method="bernstein", replan="every", trial_episodes=50)
    assert outlook.declarations == ()
    assert outlook.trial.until is None
    assert str(outlook).startswith("no forecast yet: a gap of ")


LAKE = {"horizon": 6, "reward_range": (0, 1), "beta": -1.0, "eps": 0.05, "delta": 0.1, "seed": 1}


def test_of_an_environment_only_what_fits_is_tried_and_none_of_it_is_called_true():
    lake = gymnasium.make("FrozenLake-v1")
    outlook = eb.forecast(lake, **LAKE, trial_episodes=400)
    declared = [one.declared for one in outlook.declarations]
    assert {"max_successors": 3} in declared  # ahead, and to both sides
    assert not any(one.true for one in outlook.declarations)
    assert all(line.endswith(", if it is true") for line in str(outlook).splitlines()[1:])
    lake.reset()  # it was handed in, and stays open


class Fork(gymnasium.Env):
    """Two steps: rare news in the second one, after many episodes without."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        return 0, {}

    def step(self, action):
        news = self.episodes > 60 and self.episodes % 2 == 0
        return int(news), 1.0, False, False, {}


def test_a_declaration_that_is_contradicted_on_the_way_is_dropped():
    asked = {**LAKE, "horizon": 2}
    outlook = eb.forecast(Fork(), **asked, trial_episodes=50)  # the trial runs with it see the news
    assert outlook.trial.episodes == 50
    assert {"max_successors": 1} not in [one.declared for one in outlook.declarations]


def test_the_range_of_returns_is_that_of_all_paths_that_were_seen():
    """Against a walk over all paths."""
    asked = {**LAKE, "reward_range": (-1, 1), "max_episodes": 300}
    loop, _ = trial._run_trial("FrozenLake-v1", Settings.of(**asked))
    seen = loop.state.counts.transitions()
    problem = loop.state.problem
    steps = {}
    for row, successor, reward in zip(seen.rows, seen.successors, seen.rewards, strict=True):
        if row < problem.n_rows - 1:
            steps.setdefault(row // problem.n_actions, set()).add((int(successor), float(reward)))
    starts = seen.successors[seen.rows == problem.n_rows - 1]

    def totals(state, left):
        if left == 0 or state not in steps:
            return {0.0}
        return {paid + rest for after, paid in steps[state] for rest in totals(after, left - 1)}

    every = set().union(*(totals(int(s), problem.horizon) for s in starts))
    assert returns_along(problem, seen) == (min(every), max(every))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_episodes": 5}, TypeError, "max_episodes"),
        ({"checkpoint": "x"}, TypeError, "checkpoint"),
        ({"nonsense": 1}, TypeError, "nonsense"),
        ({"trial_seconds": 0}, eb.InvalidProblemError, "trial_seconds must be greater than 0"),
        ({"trial_episodes": 0}, eb.InvalidProblemError, "trial_episodes"),
        ({"beta": math.nan}, eb.InvalidProblemError, "beta must be a finite"),
    ],
)
def test_what_is_not_an_argument_of_a_forecast_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        eb.forecast(BRIDGE, **(ASKED | arguments))


@pytest.mark.slow
def test_forecasts_are_near_what_runs_take(capsys):
    """Pilots of a tenth of the run, of other seeds: on average within a factor of 4, and most ranges hold it."""
    river, garnet = eb.instances.river_swim, eb.instances.garnet
    cases = {
        "bridge": (eb.instances.risky_bridge(7), {"beta": 2.5, "eps": 0.2}),
        "bridge, averse": (eb.instances.risky_bridge(7), {"beta": -1.0, "eps": 0.2}),
        "bridge, successors": (eb.instances.risky_bridge(7), {"beta": 2.5, "eps": 0.2, "successors": "model"}),
        "river": (river(6, horizon=12), {"beta": -1.0, "eps": 0.5}),
        "river, stationary": (river(6, horizon=12), {"beta": 1.0, "eps": 0.1, "stationary": True}),
        "garnet": (garnet(10, 3, 3, horizon=6, seed=1), {"beta": -1.0, "eps": 0.3}),
        "garnet, successors": (garnet(6, 2, 3, horizon=5, seed=2), {"beta": 1.0, "eps": 0.1, "successors": "model"}),
    }
    ratios, held = [], []
    for name, (mdp, asked) in cases.items():
        for seed in range(3):
            run = eb.identify(mdp, delta=0.1, seed=seed, **asked)
            settings = Settings.of(delta=0.1, seed=seed + 100, max_episodes=run.episodes // 10, **asked)
            until = trial._run_trial(mdp, settings)[1].until
            if until is None:
                continue
            low, high = until.episodes
            ratios.append(math.sqrt(low * high) / run.episodes)
            held.append(low / 1.3 <= run.episodes <= 1.3 * high)
            with capsys.disabled():
                print(
                    f"\n{name}: {run.episodes} took, {low:.0f} to {high:.0f} foreseen, ratio {ratios[-1]:.2f}", end=""
                )
    with capsys.disabled():
        print(f"\nmean factor {math.exp(np.abs(np.log(ratios)).mean()):.2f}, held {np.mean(held):.2f} of {len(held)}")
    assert len(ratios) > 15
    assert math.exp(np.abs(np.log(ratios)).mean()) < 4
    assert np.mean(held) > 0.5


def test_old_names_say_the_new_ones():
    outlook = eb.forecast(eb.instances.risky_bridge(horizon=3), **ASKED, trial_episodes=5)
    for owner in (outlook, outlook.declarations[0]):
        with pytest.raises(AttributeError, match=r"\.pilot is now .*\.trial"):
            _ = owner.pilot
        with pytest.raises(AttributeError, match="other does not exist"):
            _ = owner.other
