"""Declarations: one table, from which checks, refusals, options and certificates follow."""

import inspect
import math
from pathlib import Path

import pytest
from typer.main import get_command

import entropic_bpi as eb
from entropic_bpi.cli import app
from entropic_bpi.problem.declarations import ENTRIES, Declarations
from entropic_bpi.problem.problem import Problem

BRIDGE = eb.instances.risky_bridge(horizon=5)
GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1}
SOURCES = Path(eb.__file__).parent


def test_identify_has_a_keyword_for_every_declaration():
    parameters = inspect.signature(eb.identify).parameters
    assert set(ENTRIES) <= set(parameters)
    assert all(parameters[name].default is None for name in ENTRIES)


@pytest.mark.parametrize("command", ["identify", "certify", "forecast"])
def test_commands_have_an_option_for_every_declaration_with_its_help(command):
    options = {option.name: option for option in get_command(app).commands[command].params}
    for name, entry in ENTRIES.items():
        if command == "certify" and "log" in entry.not_for:
            assert name not in options
        elif (command, name) == ("certify", "reward"):
            assert options[name].help != entry.help  # the column of a log
        else:
            assert options[name].help == entry.help


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"stationary": 1}, "stationary must be True or False"),
        ({"reward_range": (1, 0)}, "reward_range must be finite with low <= high"),
        ({"return_range": 3}, "return_range must be a pair of numbers"),
        ({"reward_law": "some"}, "reward_law must be one of fixed, random, random-pair"),
        ({"max_successors": 2**60}, "max_successors must be at most"),
        ({"max_states": 1.5}, "max_states must be an integer"),
        ({"discount": 1.0}, "discount must lie strictly between 0 and 1"),
    ],
)
def test_each_declaration_is_checked(declared, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        Declarations(**declared)


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if "model" in entry.not_for])
def test_what_does_not_apply_to_a_model_is_refused_with_the_reason(name):
    value = {"reward_range": (0, 1), "reward_law": "random", "return_range": (0, 1), "max_states": 9}.get(name, [[0.0]])
    with pytest.raises(eb.InvalidProblemError) as refusal:
        eb.identify(BRIDGE, **GOAL, **{name: value})
    assert str(refusal.value) == ENTRIES[name].not_for["model"]


def test_a_declaration_that_says_nothing_is_accepted_everywhere():
    assert Problem.from_mdp(BRIDGE, **GOAL, reward_law="fixed").reward_law == "fixed"


def test_declarations_that_exclude_each_other_are_refused():
    given = Declarations(discount=0.9, return_range=(0, 1))
    with pytest.raises(eb.InvalidProblemError, match="discount and return_range: their combination is not proved"):
        given.check_combinations()


def test_a_risk_is_a_value():
    assert eb.Entropic(-1) == eb.Entropic(-1.0)
    assert math.isnan(eb.EVaR(0.1).beta)
    one, other = (eb.identify(BRIDGE, risk=eb.Entropic(-1), eps=0.5, delta=0.1, seed=1, max_episodes=5) for _ in "12")
    same = eb.identify(BRIDGE, **GOAL, seed=1, max_episodes=5)
    assert one.certificate.lower == other.certificate.lower == same.certificate.lower
    with pytest.raises(eb.InvalidProblemError, match="not both"):
        eb.identify(BRIDGE, beta=-1.0, risk=eb.Entropic(-1), eps=0.5, delta=0.1)
    with pytest.raises(eb.InvalidProblemError, match="beta must be a finite real number"):
        eb.Entropic(math.inf)


def test_only_what_is_declared_is_shown():
    assert repr(eb.Declarations(horizon=7, start="fixed")) == "Declarations(horizon=7, start='fixed')"
    assert repr(eb.ProblemFile(source="risky-bridge", horizon=7)) == "ProblemFile(horizon=7)"


@pytest.mark.parametrize(("old", "new"), [("rewards", "reward_law"), ("announce", "preregister")])
@pytest.mark.parametrize("ask", [eb.identify, eb.forecast])
def test_old_arguments_name_the_new_ones(ask, old, new):
    with pytest.raises(eb.InvalidProblemError, match=f"{old}= of {ask.__name__} is now {new}="):
        ask(BRIDGE, **GOAL, **{old: "x"})
    with pytest.raises(TypeError, match="nonsense"):
        ask(BRIDGE, **GOAL, nonsense=1)


def test_certify_has_other_rewards_under_the_old_name_of_their_law():
    run = eb.identify(BRIDGE, **GOAL, seed=1, max_episodes=5)
    with pytest.raises(eb.InvalidProblemError, match="rewards= of certify is now reward_law="):
        eb.certify(run, beta=-1.0, rewards="random")


def test_an_unknown_argument_is_named_by_every_function_that_takes_declarations():
    run = eb.identify(BRIDGE, **GOAL, seed=1, max_episodes=5)
    with pytest.raises(TypeError, match=r"explore\(\) got an unexpected keyword argument 'max_sucessors'"):
        eb.explore(BRIDGE, eps=1.0, delta=0.1, betas=(-1, 1), max_sucessors=2)
    with pytest.raises(TypeError, match=r"certify\(\) got an unexpected keyword argument 'max_sucessors'"):
        eb.certify(run, beta=-1.0, max_sucessors=2)
    with pytest.raises(TypeError, match="max_sucessors"):
        eb.appraise(run, {"its own": run.policy}, measures=["mean"], max_sucessors=2)


@pytest.mark.parametrize(
    ("old", "new"), [("Rows", "SparseTransitions"), ("Pilot", "TrialRun"), ("Outlook", "RunForecast")]
)
def test_old_names_name_the_new_ones(old, new):
    with pytest.raises(AttributeError, match=f"entropic_bpi.{old} is now entropic_bpi.{new}"):
        getattr(eb, old)


def test_few_files_ask_which_risk_it_is_by_a_level_that_is_missing():
    asking = [
        file
        for file in SOURCES.rglob("*.py")
        if "verification" not in file.parts
        and any(words in file.read_text() for words in ("alpha is None", "alpha is not None"))
    ]
    assert len(asking) <= 5


def test_few_files_know_a_declaration_that_the_table_passes_on():
    knowing = [
        file
        for file in SOURCES.rglob("*.py")
        if "verification" not in file.parts and "return_range" in file.read_text(encoding="utf-8")
    ]
    assert len(knowing) <= 9
