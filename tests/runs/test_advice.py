"""Advice agrees with everything that was seen, in every run that was made for it."""

import json
import re
import shlex

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.problem.counts import Counts
from entropic_bpi.runs.forecasts.advice import Seen, as_options
from entropic_bpi.runs.forecasts.trial import Declaration, TrialRun, advised

ASKED = {"horizon": 4, "reward_range": (-3, 3), "beta": -1.0, "eps": 0.05, "delta": 0.1, "seed": 1}


@pytest.fixture(scope="module")
def spent():
    return eb.identify("FrozenLake-v1", **ASKED, max_episodes=200)


def test_a_spent_budget_leaves_declarations_that_agree_with_all_episodes(spent):
    found = {name: value for one in spent.candidates.declarations for name, value in one.items()}
    assert found["max_successors"] == 3
    assert "reward_range" not in found  # rewards that were not seen yet are what is looked for
    assert found.items() <= spent.candidates.seen.tightest.items()
    # Repeated with each of them, the same episodes are not refused.
    for declared in spent.candidates.declarations:
        again = eb.identify("FrozenLake-v1", **(ASKED | declared), max_episodes=20)
        assert again.episodes == 20 or again.stopped
    assert eb.identify("FrozenLake-v1", **(ASKED | {"eps": 50.0})).candidates.declarations == ()


def test_what_agrees_with_two_runs_agrees_with_both(spent):
    claim = spent.certificate
    seen = Seen.of(Counts.of(claim.problem, claim.transitions, claim.episodes))
    few = Seen({"0"}, {"0"}, {("0", 0, "0", 0.0)}, True, (0.0, 0.0))
    for name in ("max_successors", "max_states"):
        assert (
            few.tightest[name] == 1 < seen.tightest[name] == (seen | few).tightest[name] == (few | seen).tightest[name]
        )
    other = Seen({"5"}, {"5"}, {("0", 0, "5", 0.0)}, False, (-1.0, 4.0))
    both = {"max_states": 2, "max_successors": 2, "return_range": (-1.0, 4.0), "stationary": True}
    assert (few | other).tightest == {"start": None, "reward_law": None, **both}
    assert few.tightest["start"] == few.tightest["reward_law"] == "fixed"


def trial(gap=1.0, until=None):
    return TrialRun(10, 1.0, gap, False, until)


def test_what_helps_most_is_advised_and_nothing_if_nothing_helps():
    narrower = Declaration({"max_successors": 3}, False, trial(0.5), None)
    same = Declaration({"max_states": 3}, False, trial(1.0), None)
    faster = Declaration({"return_range": (0.0, 1.0)}, False, trial(0.1), (2.0, 3.0))
    assert advised([faster, narrower], trial()) is faster
    assert advised([same, narrower], trial()) is narrower
    assert advised([same], trial()) is None


def test_declarations_are_typed_with_all_their_digits():
    assert list(as_options({"return_range": (0.1 + 0.2, 1.0), "stationary": True, "max_states": 3})) == [
        *("--return-range", "0.30000000000000004", "1.0", "--stationary", "--max-states", "3")
    ]


def typed(*words):
    return CliRunner().invoke(cli.app, list(map(str, words)), prog_name="entropic-bpi")


WORDS = ["gym:FrozenLake-v1", "--horizon", 4, "--reward-range", -3, 3, "--beta", -1, "--eps", 0.05, "--delta", 0.1]


def test_forecast_names_the_options_that_help_and_identify_names_forecast():
    words = [*WORDS, "--seed", 1]
    shown = typed("forecast", *words, "--trial-episodes", 300)
    assert shown.exit_code == 0, shown.output
    (told,) = re.findall(r"advice +(--.*), if .* is true of your problem", shown.output)
    options = shlex.split(told)
    assert {"--max-successors", "--return-range", "--max-states"} & set(options)
    gaps = []
    for more in ([], options):
        done = typed("identify", *words, "--max-episodes", 300, *more, "--json", "-q")
        assert done.exit_code in (0, 1), done.output
        gaps.append(json.loads(done.stdout)["gap"])
    assert gaps[1] < gaps[0]
    spent = typed("identify", *words, "--max-episodes", 300)
    assert "other declarations: entropic-bpi forecast" in spent.output


class Drawn(gymnasium.Env):
    """Outcomes that come one after another: what was seen in one run is not seen in the next."""

    observation_space, action_space = gymnasium.spaces.Discrete(40), gymnasium.spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return 0, {}

    def step(self, action):
        return 1 + min(self.episodes // 60, 30), float(action) / 2, False, False, {}


def test_what_several_trial_runs_together_contradict_is_not_advised():
    asked = {**ASKED, "horizon": 1, "reward_range": (0, 1), "eps": 1e-3}
    outlook = eb.forecast(Drawn(), **asked, trial_episodes=50)
    assert all("max_successors" not in one.declared for one in outlook.declarations)
    assert np.isfinite(outlook.trial.gap)
