"""A declared start: what it means for models, environments and logs, and what contradicts it."""

import json

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1}
CLIFF = {"horizon": 30, "beta": -0.05, "eps": 2, "delta": 0.05, "reward_range": (-100, -1), "max_successors": 1}


class Doors(gymnasium.Env):
    """Two observations that are tuples; after ``lucky`` resets the episode starts behind the other door."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.MultiDiscrete([2, 2])

    def __init__(self, lucky=10**9):
        self.lucky, self.resets = lucky, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        return np.array((1, int(self.resets > self.lucky))), {}

    def step(self, action):
        return np.array((0, int(action))), float(action), True, False, {}


@pytest.mark.parametrize("start", [36, [36], "fixed"])
def test_cliff_walking_is_certified_as_a_black_box(start):
    result = eb.identify("CliffWalking-v1", **CLIFF, start=start, seed=1)
    assert result.stopped
    assert result.episodes <= 100
    assert eb.verify(result.certificate).ok
    model = eb.from_gymnasium("CliffWalking-v1", horizon=30)
    best = eb.solve(model, -0.05).value
    own = eb.evaluate(model, result.certificate.policy_for(model), -0.05).value
    assert result.certificate.lower <= own
    assert best - own <= result.certificate.gap
    assert best <= result.certificate.upper


def assumed(claim):
    return [sentence for sentence in claim.assumptions if "starts in" in sentence]


@pytest.mark.parametrize(
    ("start", "numbers", "sentence"),
    [
        ((1, 0), [2], "every episode starts in state (1, 0)"),
        (np.array([1, 0]), [2], "every episode starts in state (1, 0)"),
        ([(1, 0)], [2], "every episode starts in state (1, 0)"),
        ([(1, 1), (1, 0)], [2, 3], "every episode starts in one of the states (1, 0), (1, 1)"),
        ("fixed", "fixed", "every episode starts in the same state"),
    ],
)
def test_the_start_of_an_environment(start, numbers, sentence, tmp_path):
    run = {"horizon": 1, "reward_range": (0, 1), **GOAL, "eps": 1e-6, "max_episodes": 20, "seed": 1}
    claim = eb.identify(Doors(), **run, start=start).certificate
    assert claim.problem.start == numbers
    assert assumed(claim) == [sentence]
    assert eb.verify(claim).ok
    claim.save(tmp_path / "claim.json")
    assert json.loads((tmp_path / "claim.json").read_text())["problem"]["start"] == numbers
    assert eb.Certificate.load(tmp_path / "claim.json")._content() == claim._content()
    without = eb.identify(Doors(), **run).certificate
    assert claim.gap < without.gap


@pytest.mark.parametrize("start", [[], [(5, 5)], (5, 5), "behind the door", 2, [(1, 0), None]])
def test_what_is_no_state_is_refused(start):
    with pytest.raises(eb.InvalidProblemError, match="start"):
        eb.identify(Doors(), horizon=1, reward_range=(0, 1), **GOAL, start=start, max_episodes=5)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            "fixed",
            r"an episode started in state '\(1, 1\)', but the first one in another \(after 7 episodes, which are kept",
        ),
        ((1, 0), r"an episode started in state '\(1, 1\)', which is not a declared first state \(after 7 episodes"),
    ],
)
def test_another_start_is_a_contradiction_and_what_was_played_is_kept(start, message, tmp_path):
    run = {"horizon": 1, "reward_range": (0, 1), **GOAL, "eps": 1e-6, "start": start, "replan": 0.01, "seed": 3}
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(Doors(lucky=7), **run, checkpoint=tmp_path / "run.bin")
    # The file has the episodes and the contradiction, which may not be discarded.
    with pytest.raises(eb.InvalidProblemError, match="start another run"):
        eb.identify(Doors(), **run, checkpoint=tmp_path / "run.bin")


@pytest.mark.parametrize("rewards", ["fixed", "random"])
def test_counts_are_as_before_after_a_contradiction(rewards):
    problem = Problem.black_box(
        3, 1, horizon=1, reward_range=(0, 1), **GOAL, state_labels=("0", "1", "2", "end"), source="", reward_law=rewards,
        start=[0, 1],
    )  # fmt: skip
    first = problem.n_rows - 1
    counts = Counts.of(problem, Transitions(*(np.array(part) for part in ([first], [1], [4], [0.0]))), 4)
    before = counts.transitions()
    with pytest.raises(eb.InvalidProblemError, match="the declared start is wrong: an episode started in state '2'"):
        counts.add(Transitions(*(np.array(part) for part in ([0, first], [3, 2], [1, 1], [0.5, 0.0]))), 1)
    assert counts.episodes == 4
    for mine, theirs in zip(before, counts.transitions(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_first_states_that_are_numbered_as_they_are_found(tmp_path):
    run = {"horizon": 1, "reward_range": (0, 1), "max_states": 3, **GOAL, "start": [(1, 1), (1, 0)], "seed": 1}
    whole = eb.identify(Doors(), **run, max_episodes=60)
    assert whole.certificate.problem.state_names[:2] == ("(1, 1)", "(1, 0)")
    assert whole.certificate.problem.start == [0, 1]
    eb.identify(Doors(), **run, max_episodes=20, checkpoint=tmp_path / "run.bin")
    resumed = eb.identify(Doors(), **run, max_episodes=60, checkpoint=tmp_path / "run.bin")
    assert resumed.certificate._content() == whole.certificate._content()
    assert eb.verify(whole.certificate).ok


@pytest.mark.parametrize("other", [(1, 1), "fixed", None])
def test_a_run_with_another_start_is_another_run(other, tmp_path):
    run = {"horizon": 1, "reward_range": (0, 1), **GOAL, "max_episodes": 5, "checkpoint": tmp_path / "run.bin"}
    eb.identify(Doors(), **run, start=(1, 0), seed=1)
    with pytest.raises(eb.EntropicBPIError, match="start was"):
        eb.identify(Doors(), **run, start=other, seed=1)


# -- models ------------------------------------------------------------------------------------------------------


def model(start):
    rng = np.random.default_rng(0)
    return eb.FiniteMDP(rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2)), horizon=3, start=start)


@pytest.mark.parametrize(
    ("true", "start", "known"),
    [
        (1, 1, 1),
        (1, "1", 1),
        (1, [0, 1], 1),
        (1, "fixed", 1),
        ([0.5, 0.5, 0], [1, 0], [0, 1]),
        ([0.5, 0.5, 0], ["0", 1, 2], [0, 1, 2]),
        ([0, 1, 0], "fixed", "fixed"),
    ],
)
def test_the_start_of_a_model_agrees_with_it(true, start, known):
    run = {**GOAL, "eps": 0.01, "stationary": True, "max_episodes": 200, "seed": 2}
    claim = eb.identify(model(true), **run, start=start).certificate
    without = eb.identify(model(true), **run).certificate
    assert claim.problem.start == known
    assert eb.verify(claim).ok
    if isinstance(known, int):
        assert claim._content() == without._content()
    elif known != [0, 1, 2]:
        assert claim.gap < without.gap


@pytest.mark.parametrize(
    ("true", "start", "message"),
    [
        (1, 0, "start=0 is wrong: the model starts in '1'"),
        (1, [0, 2], r"start=\[0, 2\] is wrong"),
        ([0.5, 0.5, 0], [0, 2], "the model starts in '1'"),
        ([0.5, 0.5, 0], "fixed", "the model starts in 2 different states"),
        (1, 7, "start names 7, which is not a state"),
        (1, -1, "start names -1, which is not a state"),
        (1, "nowhere", "start names 'nowhere', which is not a state"),
        (1, [[1]], "start names"),
    ],
)
def test_a_start_that_is_not_the_model_s_is_refused(true, start, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(model(true), **GOAL, start=start, max_episodes=5)


def test_the_paper_s_method_refuses_what_it_does_not_use():
    with pytest.raises(eb.InvalidProblemError, match="makes no use of start"):
        eb.identify(model([0.5, 0.5, 0]), **GOAL, start=[0, 1], method="bernstein", max_episodes=5)


# -- logs --------------------------------------------------------------------------------------------------------


def log(starts):
    columns = {
        "episode": np.arange(len(starts)),
        "step": np.zeros(len(starts), dtype=int),
        "state": np.array(starts),
        "action": np.array(["go"] * len(starts)),
        "reward": np.ones(len(starts)),
        "terminated": np.ones(len(starts), dtype=bool),
    }
    return eb.Log.read(columns, **{name: name for name in columns}, states=["a", "b", "c"])


@pytest.mark.parametrize(("start", "numbers"), [("a", [0]), (["b", "a"], [0, 1]), ("fixed", "fixed")])
def test_the_start_of_a_log(start, numbers):
    declared = {"beta": -1.0, "delta": 0.1, "horizon": 1, "reward_range": (0, 1)}
    claim = eb.certify(log(["a"] * 30), **declared, start=start)
    assert claim.problem.start == numbers
    assert eb.verify(claim).ok
    assert claim.lower > eb.certify(log(["a"] * 30), **declared).lower


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            "fixed",
            "line 4 of .*: the declared start is wrong: an episode started in state 'b', but the first one in another",
        ),
        (
            ["a", "c"],
            "line 4 of .*: the declared start is wrong: an episode started in state 'b', which is not a declared",
        ),
        ("d", "start names 'd', which is not a state"),
    ],
)
def test_a_line_of_a_log_that_contradicts_the_start_is_named(start, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.certify(
            log(["a", "a", "a", "b", "a", "b"]), beta=-1.0, delta=0.1, horizon=1, reward_range=(0, 1), start=start
        )


# -- forecast and command line -----------------------------------------------------------------------------------


def test_the_forecast_advises_a_fixed_start_that_fits():
    asked = {"horizon": 1, "reward_range": (0, 1), **GOAL, "seed": 1, "trial_episodes": 30}
    outlook = eb.forecast(Doors, **asked)
    assert {"start": "fixed"} in [one.declared for one in outlook.declarations]
    outlook = eb.forecast(lambda: Doors(lucky=3), **asked)
    assert all("start" not in one.declared for one in outlook.declarations)


@pytest.mark.parametrize(("text", "start"), [("36", [36]), ("[36, 24]", [24, 36]), ("fixed", "fixed")])
def test_the_option(text, start, tmp_path):
    words = "gym:CliffWalking-v1 --horizon 3 --reward-range -100 -1 --beta -0.05 --eps 9 --delta 0.1 --max-episodes 9"
    answer = CliRunner().invoke(app, ["identify", *words.split(), "--start", text, "--out", str(tmp_path / "run")])
    assert answer.exit_code in (0, 1), answer.output
    assert eb.Certificate.load(tmp_path / "run" / "certificate.json").problem.start == start
