"""A run has one state: one loop and one set of counts, whether it begins or goes on, on a model or an environment."""

from collections import Counter

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.runs.loop import Loop

BRIDGE = eb.instances.risky_bridge(horizon=5)
GOAL = {"beta": -1.0, "eps": 0.01, "delta": 0.1, "seed": 1}
LAKE = {**GOAL, "horizon": 4, "reward_range": (0, 1)}
RUNS = {
    "model": (BRIDGE, GOAL),
    "model, after every episode": (BRIDGE, {**GOAL, "replan": "every"}),
    "bernstein": (BRIDGE, {**GOAL, "method": "bernstein"}),
    "EVaR": (BRIDGE, {**GOAL, "beta": None, "risk": eb.EVaR(0.2), "eps": 0.1}),
    "environment": ("FrozenLake-v1", LAKE),
    "discovered states": ("FrozenLake-v1", {**LAKE, "max_states": 20}),
}


@pytest.fixture
def made(monkeypatch):
    """How many objects of each kind were constructed since it was cleared."""
    counter = Counter()
    for kind in (Counts, Loop):

        def construct(self, *arguments, kind=kind, original=kind.__init__, **more):
            counter[kind.__name__] += 1
            original(self, *arguments, **more)

        monkeypatch.setattr(kind, "__init__", construct)
    return counter


ONCE = {"Loop": 1, "Counts": 1}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_and_a_resumed_run_construct_everything_once(name, made, tmp_path):
    source, options = RUNS[name]
    for episodes in (30, 60):
        made.clear()
        result = eb.identify(source, **options, max_episodes=episodes, checkpoint=tmp_path / "run.ckpt")
        assert result.episodes == episodes
        assert made == ONCE


def test_a_certificate_of_an_earlier_plan_leaves_the_counts_as_they_are(made):
    """When the budget is spent, the plan with the smallest gap need not be the last."""
    from entropic_bpi.runs.identification import start_run
    from entropic_bpi.runs.settings import Settings

    loop = start_run(BRIDGE, Settings.of(**GOAL, max_episodes=50))
    loop.go(lambda plan: None)
    state = loop.state
    earlier = state.best._replace(episodes=0, transitions=type(state.best.transitions)(*([np.empty(0, int)] * 3)))
    before = state.counts.transitions()
    state.best = earlier
    assert loop.result().certificate.episodes == 0
    assert made == ONCE
    assert state.counts.episodes == 50
    for now, then in zip(state.counts.transitions(), before, strict=True):
        np.testing.assert_array_equal(now, then)


COLUMNS = ("episode", "step", "state", "action", "reward", "next_state", "terminated")


@pytest.fixture(scope="module")
def log():
    """A few episodes of the lake, by random actions."""
    pandas = pytest.importorskip("pandas")
    env, rng, lines = gymnasium.make("FrozenLake-v1"), np.random.default_rng(0), []
    for episode in range(40):
        state, _ = env.reset(seed=episode)
        for step in range(4):
            action = int(rng.integers(4))
            following, reward, terminated, _, _ = env.step(action)
            lines.append((episode, step, state, action, reward, following, terminated))
            state = following
            if terminated:
                break
    return eb.Log.read(pandas.DataFrame(lines, columns=COLUMNS), **{name: name for name in COLUMNS})


def test_a_certificate_from_a_log_constructs_counts_once(log, made):
    declared = {"horizon": 4, "reward_range": (0, 1), "max_states": 16}
    claim = eb.certify(log, beta=-1.0, delta=0.1, **declared)
    assert made == {"Counts": 1}
    assert claim.episodes == 40


def test_a_run_that_begins_with_a_log_constructs_everything_once(log, made, tmp_path):
    options = {**LAKE, "data": log, "max_states": 17, "checkpoint": tmp_path / "run.ckpt"}
    for episodes in (60, 80):
        made.clear()
        result = eb.identify("FrozenLake-v1", **options, max_episodes=episodes)
        assert made == ONCE
        assert result.certificate.provenance.log is not None


def test_what_is_missing_is_found_with_one_set_of_counts(made):
    run = eb.identify(BRIDGE, **GOAL, successors="model", max_episodes=30)
    made.clear()
    assert eb.missing(run, target=0.2, rows=4).expected <= 0.2
    assert made == {"Counts": 1}
