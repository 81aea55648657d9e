"""Advice agrees with everything that was seen."""

import json
import re
import shlex

from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.runs.forecasts.advice import as_options, fitting
from entropic_bpi.runs.forecasts.trial import Declaration, TrialRun, advised
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings

ASKED = {"horizon": 4, "reward_range": (-3, 3), "beta": -1.0, "eps": 0.05, "delta": 0.1, "seed": 1}


def test_what_fits_agrees_with_all_episodes():
    loop = start_run(*Settings.read("FrozenLake-v1", **ASKED, max_episodes=200))
    loop.go(lambda plan: None)
    loop.source.close()
    fits = fitting(loop.state.counts, loop.settings.declared)
    found = {name: value for one in fits for name, value in one.items()}
    assert found["max_successors"] == 3
    assert "reward_range" not in found  # rewards that were not seen yet are what is looked for
    # Repeated with each of them, the same episodes are not refused.
    for declared in fits:
        again = eb.identify("FrozenLake-v1", **(ASKED | declared), max_episodes=20)
        assert again.episodes == 20 or again.stopped


def trial(gap=1.0, until=None):
    return TrialRun(10, 1.0, gap, False, until)


def test_what_helps_most_is_advised_and_nothing_if_nothing_helps():
    narrower = Declaration({"max_successors": 3}, False, trial(0.5), None)
    same = Declaration({"max_states": 3}, False, trial(1.0), None)
    faster = Declaration({"return_range": (0.0, 1.0)}, False, trial(0.1), (2.0, 3.0))
    assert advised([faster, narrower], trial()) is faster
    assert advised([same, narrower], trial()) is narrower
    assert advised([same], trial()) is None


def test_a_declaration_without_an_effect_is_not_advised():
    """A run that the trial run finished took 3,095 episodes, and 3,000 with the declaration."""
    alike = Declaration({"return_range": (0.0, 1.0)}, False, trial(1.0), (3095 / 3000, 3095 / 3000))
    assert alike.effect == "about as many episodes"
    assert not alike.helps
    assert advised([alike], trial()) is None
    assert alike._replace(factor=(1.02, 3.0)).helps


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
