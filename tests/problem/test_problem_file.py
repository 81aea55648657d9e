"""Problem files: declarations as TOML, read by Python's own reader, confirmed by the user, and a source like any other."""

import json
import tomllib

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.problem.problem_file import ProblemFile, Remark
from entropic_bpi.problem.toml_values import label_from_toml, value_as_toml

LAKE = """
source = "gym:FrozenLake-v1"
[params]
is_slippery = false
[declare.horizon]
value = 6
confirmed = true
seen = "episodes end after 6 steps"
[declare.reward_range]
value = [0, 1]
confirmed = true
[declare.max_successors]
value = 1
confirmed = CONFIRMED
[risk]
beta = -1.0
eps = 0.9
delta = 0.1
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="problem.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


SAVED = [
    {"horizon": 10, "reward_range": (0.0, 1.0), "stationary": True},
    {"reward_law": "random", "return_range": (-1.5, 1e-300), "max_states": 7},
    {"discount": 0.95, "max_successors": 3},
    {"successors": "model", "start": 36},
    {"start": "fixed", "noise": "model", "allowed": "info"},
    {"reward": {(0, 1): 0.5, ("here", (1, 2)): -1}},
    {"start": [(1, 2), "here", 3]},
    {"state_names": ["a", "b \u00e9"], "action_names": ["x"], "unit": "€", "title": 'A "title"'},
    {"successors": {(0, 1): (1, eb.END), ((2, "x"), 0): (eb.END, eb.END)}},
]


@pytest.mark.parametrize("declared", SAVED)
def test_what_is_saved_is_loaded(declared, tmp_path):
    eb.Declarations(**declared).save(tmp_path / "problem.toml")
    loaded = eb.Declarations.load(tmp_path / "problem.toml")
    assert loaded.given() == declared
    assert loaded.unconfirmed == []


def test_every_declaration_is_among_those_that_are_saved_above():
    assert set(ENTRIES) == {name for declared in SAVED for name in declared}


def test_masks_are_saved_as_nested_lists(tmp_path):
    mask = np.random.default_rng(0).random((3, 2, 4)) < 0.5
    eb.Declarations(successors=mask, allowed=mask[:, 0]).save(tmp_path / "problem.toml")
    loaded = eb.Declarations.load(tmp_path / "problem.toml")
    np.testing.assert_array_equal(loaded.successors, mask)
    np.testing.assert_array_equal(loaded.allowed, mask[:, 0])


def test_a_file_keeps_source_parameters_risk_and_remarks(tmp_path):
    remarks = {"horizon": Remark(True), "reward_range": Remark(False, 'rewards "0" and 1\nin 500 episodes \x7f é')}
    declared = {"horizon": 4, "reward_range": (0, 1)}
    file = ProblemFile(
        **declared, remarks=remarks, source="gym:A-v0", params={"size": [3, 4]}, risk=eb.EVaR(0.1), eps=0.5, delta=0.01
    )
    file.save(tmp_path / "problem.toml")
    loaded = eb.Declarations.load(tmp_path / "problem.toml")
    for name in ("source", "params", "risk", "eps", "delta", "remarks"):
        assert getattr(loaded, name) == getattr(file, name)
    loaded.save(tmp_path / "again.toml")
    assert (tmp_path / "again.toml").read_bytes() == (tmp_path / "problem.toml").read_bytes()
    text = (tmp_path / "problem.toml").read_text()
    assert all(f"# {ENTRIES[name].help}\n[declare.{name}]" in text for name in declared)


def test_a_first_state_that_is_a_tuple_is_not_a_list_of_states(tmp_path):
    eb.Declarations(start=(1, 2)).save(tmp_path / "problem.toml")
    assert eb.Declarations.load(tmp_path / "problem.toml").start == [(1, 2)]


def test_a_function_is_refused_and_a_table_is_advised(tmp_path):
    with pytest.raises(eb.InvalidProblemError, match=r"a problem file cannot contain .*use a table"):
        eb.Declarations(successors=lambda state, action: [state]).save(tmp_path / "problem.toml")
    assert not (tmp_path / "problem.toml").exists()


LABELS = st.recursive(
    st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.just(eb.END)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
)  # fmt: skip


@given(LABELS)
def test_labels_survive_as_they_are(label):
    read = label_from_toml(tomllib.loads(f"value = {value_as_toml(label)}")["value"])
    assert repr(read) == repr(label)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source = ", "is not a readable TOML file"),
        ("source = 3", "source must be a string, got 3"),
        ("sauce = 'x'", "sauce is unknown, expected one of source, params, declare, names, risk"),
        ("declare = 1", "declare must be a table"),
        ("[declare.horizont]\nvalue = 1", "declare.horizont is unknown, expected one of horizon"),
        ("[declare]\nhorizon = 3", "declare.horizon must be a table, got 3"),
        ("[declare.horizon]\nconfirmed = true", "declare.horizon has no value"),
        ("[declare.horizon]\nvalue = 2.5", "declare.horizon.value must be an integer"),
        ("[declare.horizon]\nvalue = 2\nconfirmed = 1", "declare.horizon.confirmed must be true or false, got 1"),
        ("[declare.horizon]\nvalue = 2\nseen = 1", "declare.horizon.seen must be a string"),
        ("[declare.horizon]\nvalue = 2\nsean = 'x'", "declare.horizon.sean is unknown"),
        ("[declare.reward_range]\nvalue = [0, inf]", "declare.reward_range.value must be a pair of numbers"),
        ("[declare.successors]\nvalue = [[0, 1]]", "declare.successors.value must be 'model', a list of distinct"),
        ("[declare.successors]\nvalue = ['01 1', '01 10']", "declare.successors.value must be 'model'"),
        ("[declare.successors]\nvalue = [[0, 1, [0]], [0, 1, [1]]]", "declare.successors.value must be 'model'"),
        ("[names]\nhorizon = 3", "names.horizon is unknown"),
        ("[risk]\nbeta = 1\nalpha = 0.5", "risk has beta and alpha: give one of them"),
        ("[risk]\ngamma = 1", "risk.gamma is unknown, expected one of beta, alpha, eps, delta"),
        ("[risk]\neps = -1", "risk.eps must be"),
        ("[risk]\nalpha = 'x'", "alpha must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_and_key(written, text, message):
    path = written(text)
    with pytest.raises(eb.InvalidProblemError) as refusal:
        eb.Declarations.load(path)
    assert str(refusal.value).startswith(str(path))
    assert message in str(refusal.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(eb.InvalidProblemError, match="no such file"):
        eb.identify(str(tmp_path / "problem.toml"))
    (tmp_path / "problem.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(eb.InvalidProblemError, match="not a readable TOML file"):
        eb.Declarations.load(tmp_path / "problem.toml")


@pytest.mark.parametrize("ask", [eb.identify, eb.forecast, eb.certify])
def test_what_is_not_confirmed_is_refused_by_name(written, ask):
    path = written(LAKE.replace("CONFIRMED", "false"))
    with pytest.raises(eb.InvalidProblemError, match=r"not confirmed: max_successors\. Set confirmed = true in \[decl"):
        ask(path)


def test_a_problem_file_is_a_source(written):
    path = written(LAKE.replace("CONFIRMED", "true"))
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    declared = {"horizon": 6, "reward_range": (0, 1), "max_successors": 1}
    by_hand = eb.identify(lake, **declared, beta=-1.0, eps=0.9, delta=0.1, seed=1, max_episodes=200)
    for source in (path, str(path), eb.Declarations.load(path)):
        result = eb.identify(source, seed=1, max_episodes=200)
        assert result.certificate._content() == by_hand.certificate._content()


def test_arguments_win_over_the_file_and_confirm_what_they_state(written):
    path = written(LAKE.replace("CONFIRMED", "false"))
    claim = eb.identify(path, max_successors=2, risk=eb.EVaR(0.3), eps=5.0, horizon=3, max_episodes=5).certificate
    assert (claim.problem.max_successors, claim.alpha, claim.eps, claim.problem.horizon) == (2, 0.3, 5.0, 3)
    assert claim.delta == 0.1


def test_goals_are_required_somewhere(written):
    path = written('source = "risky-bridge"')
    with pytest.raises(eb.InvalidProblemError, match="eps must be a finite real number, got None"):
        eb.identify(path, beta=-1.0, delta=0.1)
    with pytest.raises(eb.InvalidProblemError, match="names no source"):
        eb.identify(written("[risk]\nbeta = 1"), eps=0.1, delta=0.1)


def test_a_saved_model_is_found_beside_the_file(written, tmp_path):
    eb.instances.risky_bridge(horizon=5).save(tmp_path / "bridge.npz")
    path = written('source = "bridge.npz"\n[declare.successors]\nvalue = "model"\nconfirmed = true')
    result = eb.identify(path, beta=-1.0, eps=0.5, delta=0.1, seed=1)
    assert result.stopped
    assert result.certificate.successors == "model"


def test_a_known_model_is_solved_from_its_file(written):
    text = 'source = "risky-bridge"\n[params]\np_dash = 0.5\n[declare.horizon]\nvalue = 5\nconfirmed = CONFIRMED'
    path = written(text.replace("CONFIRMED", "true"))
    bridge = eb.instances.risky_bridge(horizon=5, p_dash=0.5)
    best = eb.solve(path, -1.0)
    assert best.value == eb.solve(bridge, -1.0).value
    assert eb.evaluate(str(path), best.policy, -1.0).value == best.value
    assert eb.return_law(path, best.policy).mean == eb.return_law(bridge, best.policy).mean
    assert eb.Declarations.load(path).model(horizon=3).horizon == 3
    with pytest.raises(eb.InvalidProblemError, match="not confirmed: horizon"):
        eb.solve(written(text.replace("CONFIRMED", "false")), -1.0)


def test_a_log_is_a_source_of_certify(written, tmp_path):
    written("id,t,s,a,r,over\n" + "".join(f"{i},0,here,go,{i % 2},true\n" for i in range(40)), "log.csv")
    path = written(
        """
        source = "log.csv"
        [params]
        episode = "id"
        step = "t"
        state = "s"
        action = "a"
        reward = "r"
        terminated = "over"
        states = ["here"]
        [declare.horizon]
        value = 1
        confirmed = true
        [declare.reward_range]
        value = [0.0, 1.0]
        confirmed = true
        [risk]
        beta = -1.0
        delta = 0.1
        """
    )
    log = eb.Log.read(
        tmp_path / "log.csv", episode="id", step="t", state="s", action="a", reward="r", terminated="over", states=["here"]
    )  # fmt: skip
    by_hand = eb.certify(log, beta=-1.0, delta=0.1, horizon=1, reward_range=(0, 1))
    assert eb.certify(path)._content() == by_hand._content()
    with pytest.raises(eb.InvalidProblemError, match=r"\[params\] must be the keywords of Log.read"):
        eb.certify(written(path.read_text().replace("terminated =", "ended =")))


@pytest.mark.parametrize(
    "words",
    [
        ["identify", "--max-episodes", "20"],
        ["forecast", "--trial-episodes", "20", "--evar", "0.5"],
        ["solve"],
        ["front", "--betas", "-1", "1"],
        ["compare", "--episodes", "20", "--learners", "rsvi2", "--seeds", "2", "--beta", "1"],
    ],
)
def test_commands_take_a_problem_file(written, words, tmp_path):
    text = LAKE.replace("CONFIRMED", "true") if words[0] in ("identify", "forecast") else '''
        source = "risky-bridge"
        [declare.horizon]
        value = 5
        confirmed = true
        [risk]
        beta = -1.0
    '''  # fmt: skip
    out = ["--out", str(tmp_path / "out")] if words[0] == "compare" else []
    answer = CliRunner().invoke(app, [words[0], str(written(text)), *words[1:], *out, "--json"])
    assert answer.exit_code in (0, 1), answer.output
    content = json.loads(answer.stdout)
    assert content.get("horizon", 5) == 5
    if words[0] == "solve":
        assert content["value"] == pytest.approx(eb.solve(eb.instances.risky_bridge(horizon=5), -1.0).value)


def test_a_command_names_what_the_file_lacks(written):
    path = written(LAKE.replace("CONFIRMED", "false").replace("eps = 0.9", ""))
    answer = CliRunner().invoke(app, ["identify", str(path)])
    assert answer.exit_code == 2
    assert "--eps" in answer.stderr
    answer = CliRunner().invoke(app, ["identify", str(path), "--eps", "1"])
    assert "not confirmed: max_successors" in answer.stderr


def test_laws_of_noise_may_have_any_names(tmp_path):
    labels = {(1, 2): [0, 1], "b": [0]}
    outcome = {(0, 0, 0): 0, (0, 0, 1): 1, (1, 0, 0): 0}
    noise = eb.Noise(labels, outcome, law={(0, 0): (1, 2), (1, 0): "b"})
    eb.Declarations(noise=noise).save(tmp_path / "problem.toml")
    again = eb.Declarations.load(tmp_path / "problem.toml").noise
    assert (again.laws, again.law, again.outcome) == (noise.laws, noise.law, noise.outcome)


@pytest.mark.parametrize("part", ["outcome = {a = 1}", "outcome = []\nx = 2", "outcome = []\nlaw = 3"])
def test_noise_of_another_form_is_refused_where_it_is_read(tmp_path, part):
    path = tmp_path / "problem.toml"
    path.write_text(f"[declare.noise.value]\nlabels = [['law', [0, 1]]]\n{part}\n", encoding="utf-8")
    with pytest.raises(eb.InvalidProblemError, match=r"declare\.noise\.value must be 'model', or have labels"):
        eb.Declarations.load(path)
