"""Model files of other programs: each is read, written and read again, and whatever is wrong is an error with its line."""

import re
import shutil
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from reference.models import mutated_bytes

import entropic_bpi as eb
from entropic_bpi import FiniteMDP, InvalidModelError
from entropic_bpi.cli import main
from entropic_bpi.model.formats.registry import FORMATS

H = 4
# The same model in every format: two states, of which the second one has one action.
TRANSITIONS = np.array([[[0.5, 0.5], [0.0, 1.0]], [[0.25, 0.75], [0.0, 0.0]]])
PAID = np.array([[[1.0, 1.0], [-2.0, -2.0]], [[0.5, 0.5], [0.0, 0.0]]])
MASK = [[True, True], [True, False]]
EXPECTED = FiniteMDP(TRANSITIONS, PAID[..., 0], horizon=H, allowed=MASK)

CSV = """\
idstatefrom,idaction,idstateto,probability,reward
1,1,1,0.5,1.0
1,1,2,0.5,1.0
1,2,2,1.0,-2.0
2,1,1,0.25,0.5
2,1,2,0.75,0.5
"""
ZERO_BASED = """\
idaction, idstatefrom, idstateto, idoutcome, reward, probability
0,0,0,0,1.0,0.5
0,0,1,1,1.0,0.5
1,0,1,0,-2.0,1
0,1,0,0,0.5,0.25

0,1,1,1,0.5,0.5
0,1,1,2,0.5,0.25
"""
# As PRISM 4.8 writes them, and as Storm does.
TRA = "2 3 5\n0 0 0 0.5 bet\n0 0 1 0.5 bet\n0 1 1 1 keep\n1 0 0 0.25 bet\n1 0 1 0.75 bet\n"
LAB = '0="init" 1="deadlock" 2="goal"\n0: 0\n1: 1 2\n'
SREW = '# Reward structure "money"\n# State rewards\n2 1\n1 0.5\n'
TREW = '# Reward structure "money"\n# Transition rewards\n2 3 3\n0 0 0 1\n0 0 1 1\n0 1 1 -2\n'
STORM_TRA = "mdp\n0 0 0 0.5\n0 0 1 0.5\n0 1 1 1\n\n1 0 0 0.25\n1 0 1 0.75\n"
STORM_LAB = "#DECLARATION\ninit goal\n#END\n0 init\n1 goal\n"
STORM_SREW = "1 0.5\n"
STORM_TREW = "0 0 0 1\n0 0 1 1\n0 1 1 -2\n"
DRN = """\
// Exported by storm
// Original model type: MDP
@type: MDP
@value_type: double
@parameters

@reward_models
money steps
@nr_states
2
@nr_choices
3
@model
state 0 [0, 1] init
//[s=0]
	action bet [1, 0]
		0 : 1/2
		1 : 0.5
	action keep [-2, 0]
		1 : 1
state 1 [0.5, 1] goal
	action bet [0, 0]
		0 : 0.25
		1 : 0.75
"""


def written(folder, **texts):
    for suffix, text in texts.items():
        (folder / f"model.{suffix}").write_text(text)
    return folder / f"model.{next(iter(texts))}"


def same_values(one, other):
    for beta in (-1.0, 0.0, 2.0):
        np.testing.assert_allclose(eb.solve(one, beta).values, eb.solve(other, beta).values, rtol=1e-13)
    np.testing.assert_array_equal(one.allowed, other.allowed)
    assert one.start == other.start


@pytest.mark.parametrize("text", [CSV, ZERO_BASED, "\ufeff" + CSV.replace("\n", "\r\n")])
def test_a_csv_file_of_mdps_jl_is_read(tmp_path, text):
    path = tmp_path / "model.csv"
    path.write_bytes(text.encode())
    mdp = FiniteMDP.load(path, horizon=H)
    assert mdp == EXPECTED
    assert FiniteMDP.load(path, horizon=H, start=1).start == 1


def test_the_files_of_prism_are_read(tmp_path):
    mdp = eb.from_prism(written(tmp_path, tra=TRA, lab=LAB, srew=SREW, trew=TREW), horizon=H)
    same_values(mdp, EXPECTED)
    assert mdp.state_names == ("0", "goal")
    assert mdp.action_names == ("bet", "keep")


def test_storms_variants_of_these_files_are_read(tmp_path):
    mdp = FiniteMDP.load(written(tmp_path, tra=STORM_TRA, lab=STORM_LAB, srew=STORM_SREW, trew=STORM_TREW), horizon=H)
    same_values(mdp, EXPECTED)
    assert mdp.state_names == ("0", "goal")


def test_a_chain_is_a_model_with_one_action(tmp_path):
    path = written(tmp_path, tra="2 3\n0 0 0.5\n0 1 0.5\n1 1 1\n", trew="2 1\n0 1 3\n")
    chain = FiniteMDP(TRANSITIONS[:, :1] * 0 + [[[0.5, 0.5]], [[0, 1]]], [[[0, 3]], [[0, 0]]], horizon=H)
    same_values(FiniteMDP.load(path, horizon=H), chain)


def test_one_of_several_rewards_is_chosen_by_name(tmp_path):
    written(tmp_path, tra=TRA, lab=LAB)
    (tmp_path / "model1.srew").write_text(SREW)
    (tmp_path / "model1.trew").write_text(TREW)
    (tmp_path / "model2.srew").write_text('# Reward structure "steps"\n2 2\n0 1\n1 1\n')
    for path in (tmp_path / "model.tra", written(tmp_path, drn=DRN)):
        same_values(eb.from_prism(path, reward="money", horizon=H), EXPECTED)
        assert eb.solve(eb.from_prism(path, reward="steps", horizon=H), -1).value == pytest.approx(H)
        with pytest.raises(InvalidModelError, match="has the rewards money, steps: choose one with reward="):
            eb.from_prism(path, horizon=H)
        with pytest.raises(InvalidModelError, match="no reward 'time', but the rewards money, steps"):
            eb.from_prism(path, reward="time", horizon=H)


def test_a_file_of_storm_is_read(tmp_path):
    mdp = FiniteMDP.load(written(tmp_path, drn=DRN), reward="money", horizon=H)
    same_values(mdp, EXPECTED)
    assert (mdp.state_names, mdp.action_names) == (("0", "goal"), ("bet", "keep"))


def test_choices_with_the_same_name_and_states_with_the_same_labels_are_kept_apart(tmp_path):
    lines = DRN.replace("keep", "bet").replace("init", "init goal").replace("state 1 [0.5, 1]", "state 1 [0.5, 1] deep")
    mdp = FiniteMDP.load(written(tmp_path, drn=lines), reward="money", horizon=H)
    same_values(mdp, EXPECTED)
    assert mdp.action_names == ("bet", "bet 1")
    assert mdp.state_names == ("goal", "deep, goal")
    mdp = FiniteMDP.load(written(tmp_path, drn=lines.replace(" deep", "")), reward="money", horizon=H)
    assert mdp.state_names == ("0 goal", "1 goal")


# -- writing ---------------------------------------------------------------------------------------------------------

MODELS = {
    "masks": EXPECTED,
    "names": FiniteMDP(
        TRANSITIONS, PAID[..., 0], horizon=H, allowed=MASK, start=1, state_names=["a", "b"], action_names=["x", "y"]
    ),
    "no masks": eb.instances.garnet(5, 3, 2, horizon=H, seed=0),
    "other numbers": FiniteMDP(TRANSITIONS, PAID[..., 0], horizon=H, allowed=[[0, 1], [1, 0]]),
}


@pytest.mark.parametrize("suffix", [".csv", ".tra", ".drn"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_is_read_again(tmp_path, suffix, name):
    mdp, path = MODELS[name], tmp_path / f"model{suffix}"
    if suffix == ".csv" and name == "names":
        with pytest.warns(UserWarning, match="does not contain start, state_names, action_names"):
            mdp.save(path)
        mdp = FiniteMDP(TRANSITIONS, PAID[..., 0], horizon=H, allowed=MASK)
    else:
        mdp.save(path)
    assert FiniteMDP.load(path, horizon=H) == mdp


@pytest.mark.parametrize("suffix", [".csv", ".tra"])
def test_rewards_of_the_next_state_are_written(tmp_path, suffix):
    mdp = FiniteMDP([[[0.5, 0.5]], [[0, 1]]], [[[0, 3]], [[0, -1]]], horizon=H)
    mdp.save(tmp_path / f"model{suffix}")
    same_values(FiniteMDP.load(tmp_path / f"model{suffix}", horizon=H), mdp)
    with pytest.raises(InvalidModelError, match=r"depend on the next state; save as \.tra"):
        mdp.save(tmp_path / "model.drn")


@pytest.mark.parametrize("suffix", [".csv", ".tra", ".drn"])
def test_what_a_format_cannot_hold_is_not_written(tmp_path, suffix):
    path, rewards = tmp_path / f"model{suffix}", PAID[..., 0]
    by_step = [
        FiniteMDP(np.stack([TRANSITIONS] * H), rewards, horizon=H, allowed=MASK),
        FiniteMDP(TRANSITIONS, np.stack([rewards] * H), horizon=H, allowed=MASK),
        FiniteMDP(eb.SparseTransitions([0, 1], [0], [1.0], np.ones((H, 1))), (1, 1), horizon=H),
        FiniteMDP(TRANSITIONS, rewards, horizon=2, allowed=[MASK, [[1, 0], [1, 0]]]),
    ]
    for mdp in by_step:
        with pytest.raises(InvalidModelError, match=r"not the same at every step|depend on the next state"):
            mdp.save(path)
    if suffix != ".csv":
        with pytest.raises(InvalidModelError, match="no distribution of the first state"):
            FiniteMDP(TRANSITIONS, rewards, horizon=H, allowed=MASK, start=[0.5, 0.5]).save(path)
    assert list(tmp_path.iterdir()) == []


def test_names_that_a_format_cannot_hold_do_not_change_the_model(tmp_path):
    names = {"state_names": ['in "it"', "init"], "action_names": ["go\nnow", "stop [1]"]}
    mdp = FiniteMDP(TRANSITIONS, PAID[..., 0], horizon=H, allowed=MASK, **names)
    for path in (tmp_path / "model.tra", tmp_path / "model.drn"):
        mdp.save(path)
        same_values(FiniteMDP.load(path, horizon=H), mdp)


# -- bad files -------------------------------------------------------------------------------------------------------

BAD = {
    "no column": ("csv", CSV.replace("probability", "prob"), "line 1: expected the columns idstatefrom"),
    "a cell too many": ("csv", CSV + "1,1,1,1,1,1\n", "line 7: expected 5 cells, got 6"),
    "no number": ("csv", CSV.replace("-2.0", "two"), "line 4: reward must be a finite number, got 'two'"),
    "nan": ("csv", CSV.replace("-2.0", "nan"), "line 4: reward must be a finite number, got 'nan'"),
    "a fractional state": ("csv", CSV.replace("2,1,1", "2.5,1,1"), "line 5: idstatefrom must be an integer"),
    "a huge state": ("csv", CSV + "9999999999999,1,1,1,0\n", "line 7: idstatefrom must be an integer"),
    "a gap": ("csv", CSV + "4,1,4,1,0\n", "line 7: state 4 is used, but there is no state 3"),
    "a state without rows": ("csv", CSV.replace("1,2,2,1.0", "1,2,3,1.0"), "state 3 has no transition; if it ends"),
    "a sum": ("csv", CSV.replace("0.75", "0.7"), "line 5: the probabilities of this state and action sum to 0.95"),
    "a probability": ("csv", CSV.replace("0.75", "1.75"), "line 6: the probability must lie between 0 and 1"),
    "two rewards": (
        "csv",
        CSV.replace("1,2,2,1.0,-2.0", "1,2,2,0.5,1\n1,2,2,0.5,2"),
        "line 5: repeats line 4",
    ),
    "quotes": ("csv", CSV + '"1,1\n', "line 7: not a CSV file"),
    "no lines": ("csv", CSV[:50], "has no transitions"),
    "an empty file": ("csv", "", "line 1: expected the columns"),
    "not text": ("csv", "\0\0\0", "line 1"),
    "no header": ("tra", "0 0 0 1\n", "line 1: expected the numbers of states"),
    "another type": ("tra", "ctmc\n0 0 1\n", "line 1: expected the numbers of states"),
    "cut off": ("tra", TRA[:-15], "line 1: the header says 5 transitions, but the file has 4"),
    "states": ("tra", TRA.replace("2 3 5", "3 3 5"), "line 1: the header says 3 states, but the transitions have 2"),
    "an interval": ("tra", TRA.replace("0.75", "[0.7,0.8]"), "line 6: the probability must be a finite number"),
    "too few columns": ("tra", TRA.replace("0 1 1 1 keep", "0 1 1"), "line 4: expected STATE CHOICE NEXT_STATE"),
    "a POMDP": ("drn", DRN.replace("MDP", "POMDP"), "@type must be MDP or DTMC, got 'POMDP'"),
    "parameters": ("drn", DRN.replace("@parameters\n", "@parameters\np q\n"), "line 6: parameters need values"),
    "no model": ("drn", DRN.replace("@model\n", ""), "line 23: the header has no @model"),
    "an order": ("drn", DRN.replace("state 1", "state 2"), "line 21: expected state 1, got state 2"),
    "few rewards": ("drn", DRN.replace("[-2, 0]", "[-2]"), "line 19: expected 2 rewards in brackets, got 1"),
    "a word": ("drn", DRN.replace("1 : 1\n", "one : 1\n"), "line 20: the next state must be an integer"),
    "anything": ("drn", DRN + "end of the model\n", "line 25: expected a state, an action or"),
    "no action": ("drn", DRN.replace("\taction bet [1, 0]\n", ""), "line 16: expected a state, an action or"),
    "announced": ("drn", DRN.replace("@nr_states\n2", "@nr_states\n3"), "announces 3 states, but has 2"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path, what):
    suffix, text, message = BAD[what]
    path = written(tmp_path, lab=LAB, srew=SREW, trew=TREW, **{suffix: text}).with_suffix(f".{suffix}")
    with pytest.raises(InvalidModelError) as caught:
        FiniteMDP.load(path, horizon=H, reward="money" if suffix == "drn" else None)
    assert message in str(caught.value)
    assert path.name in str(caught.value)


BESIDE = {
    "a label": ("lab", LAB.replace("1: 1 2", "1: 1 7"), r"model\.lab, line 3: the label '7' is not declared"),
    "a state": ("lab", LAB.replace("1: 1 2", "5: 2"), r"model\.lab, line 3: there is no state 5"),
    "no labels": ("lab", "init\n", r"model\.lab, line 1: expected the labels"),
    "two starts": ("lab", LAB.replace("1: 1 2", "1: 0 2"), "2 initial states, expected 1: pass start="),
    "no start": ("lab", LAB.replace("0: 0\n", ""), "0 initial states"),
    "a reward twice": ("srew", SREW + "1 3\n", r"model\.srew, line 5: a second reward"),
    "a reward nowhere": ("srew", SREW + "7 3\n", "there is a reward for it"),
    "a transition": ("trew", TREW + "1 0 1 3\n0 1 0 2\n", "there is a reward for it"),
    "columns": ("trew", TREW + "1 0 1\n", r"model\.trew, line 7: expected 3 integers and a reward"),
}


@pytest.mark.parametrize("what", BESIDE)
def test_what_is_wrong_beside_a_tra_file_is_named(tmp_path, what):
    suffix, text, message = BESIDE[what]
    files = {"tra": TRA, "lab": LAB, "srew": SREW, "trew": TREW} | {suffix: text}
    with pytest.raises(InvalidModelError, match=message):
        FiniteMDP.load(written(tmp_path, **files), horizon=H)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InvalidModelError, match="no horizon: pass horizon="):
        FiniteMDP.load(written(tmp_path, csv=CSV))
    with pytest.raises(InvalidModelError, match=r"no rewards: expected .*model\.srew or .*model\.trew"):
        FiniteMDP.load(written(tmp_path, tra=TRA), horizon=H)
    unpaid = written(tmp_path, drn=re.sub(r"\[.*\]|money steps", "", DRN))
    with pytest.raises(InvalidModelError, match="has no rewards"):
        FiniteMDP.load(unpaid, horizon=H)
    with pytest.raises(InvalidModelError, match="has only one reward"):
        FiniteMDP.load(tmp_path / "model.csv", horizon=H, reward="money")
    with pytest.raises(InvalidModelError, match=r"must be a file of PRISM or Storm \(\.tra"):
        eb.from_prism(tmp_path / "model.csv", horizon=H)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidModelError, match=r"not a readable MDPs\.jl file"):
        FiniteMDP.load(tmp_path / "folder.csv", horizon=H)


def mutated_text(rng, text):
    """The file with words of other lines, or other numbers, in place of some words; or with other lines."""
    lines = [line.replace(",", " , ").split(" ") for line in text.split("\n")]
    for _ in range(rng.integers(1, 4)):
        line = lines[rng.integers(len(lines))]
        if rng.integers(4) == 0:
            lines.insert(int(rng.integers(len(lines))), list(line))
        elif rng.integers(4) == 0:
            lines.remove(line)
        else:
            other = lines[rng.integers(len(lines))]
            junk = ["", "-1", "0", "1e400", "nan", "99999999999999999999", "7", "0.5", "é", '"', "1/0", other[-1]]
            line[rng.integers(len(line))] = junk[rng.integers(len(junk))]
        lines = lines or [[""]]
    return "\n".join(" ".join(line).replace(" , ", ",") for line in lines).encode()


def load_mutated(folder, count, seed):
    """Mutate and load; how many files were refused."""
    rng, refused = np.random.default_rng(seed), 0
    files = {"tra": TRA, "lab": LAB, "srew": SREW, "trew": TREW}
    sets = [{"csv": CSV}, {"csv": ZERO_BASED}, {"drn": DRN}, files]
    sets.append({"tra": STORM_TRA, "lab": STORM_LAB, "srew": STORM_SREW, "trew": STORM_TREW})
    tracemalloc.start()
    try:
        for i in range(count):
            texts = sets[i % len(sets)]
            path = written(folder, **texts)
            changed = str(rng.choice(list(texts)))
            change = mutated_text if rng.integers(3) else lambda rng, text: mutated_bytes(rng, text.encode())
            path.with_suffix(f".{changed}").write_bytes(change(rng, texts[changed]))
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            mdp, said = None, str(folder)
            try:
                mdp = FiniteMDP.load(path, horizon=H, reward="money" if "drn" in texts else None)
            except InvalidModelError as error:
                said = str(error)
                refused += 1
            assert str(folder) in said
            assert tracemalloc.get_traced_memory()[1] - before < 2_000_000
            if mdp is not None:
                assert np.isfinite(eb.solve(mdp, -0.5).value)
    finally:
        tracemalloc.stop()
    return refused


def test_mutated_files_are_refused_or_valid(tmp_path):
    assert 200 < load_mutated(tmp_path, 400, seed=0) < 400


@pytest.mark.slow
def test_thousands_of_mutated_files_are_refused_or_valid(tmp_path):
    assert load_mutated(tmp_path, 20_000, seed=1) > 10_000


# -- the tools themselves ----------------------------------------------------------------------------------------------

PRISM = """\
mdp
module coin
  s : [0..1] init 0;
  [bet] s=0 -> 0.5:(s'=0) + 0.5:(s'=1);
  [keep] s=0 -> (s'=1);
  [bet] s=1 -> 0.25:(s'=0) + 0.75:(s'=1);
endmodule
label "goal" = s=1;
rewards "money"
  s=1 : 0.5;
  [bet] s=0 : 1;
  [keep] true : 2;
endrewards
"""


def test_the_prism_language_is_read_by_storm_and_storm_finds_the_same_values(tmp_path):
    stormpy = pytest.importorskip("stormpy")
    path = tmp_path / "coin.prism"
    path.write_text(PRISM)
    mdp = eb.from_prism(path, horizon=H)
    assert (mdp.state_names, mdp.action_names) == (("0", "goal"), ("bet", "keep"))
    program = stormpy.parse_prism_program(str(path))
    formulas = stormpy.parse_properties(f'R{{"money"}}max=? [C<={H}]', program)
    model = stormpy.build_model(program, formulas)
    assert eb.solve(mdp, 0).value == pytest.approx(stormpy.model_checking(model, formulas[0]).get_value(0), rel=1e-9)
    mdp.save(tmp_path / "again.drn")
    again = stormpy.build_model_from_drn(str(tmp_path / "again.drn"))
    formulas = stormpy.parse_properties(f'R{{"reward"}}max=? [C<={H}]')
    assert stormpy.model_checking(again, formulas[0]).get_value(0) == pytest.approx(eb.solve(mdp, 0).value, rel=1e-9)
    path.write_text(PRISM.replace("endmodule", ""))
    with pytest.raises(InvalidModelError, match=r"coin\.prism"):
        eb.from_prism(path, horizon=H)


def test_files_that_come_with_storm_are_read(tmp_path):
    stormpy = pytest.importorskip("stormpy")
    files = Path(stormpy.__file__).parent / "examples" / "files"
    for source, name in (
        ("mdp/two_dice.tra", "d.tra"),
        ("lab/two_dice.lab", "d.lab"),
        ("rew/two_dice.flip.trans.rew", "d.trew"),
    ):
        shutil.copy(files / source, tmp_path / name)
    # Each of two dice takes 11/3 flips of a coin on average.
    mdp = FiniteMDP.load(tmp_path / "d.tra", horizon=200)
    assert eb.solve(mdp, 0).value == pytest.approx(22 / 3)
    assert eb.solve(eb.from_prism(files / "mdp" / "two_dice.nm", horizon=200), 0).value == pytest.approx(22 / 3)


def test_without_storm_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "stormpy", None)
    (tmp_path / "coin.nm").write_text(PRISM)
    with pytest.raises(InvalidModelError, match=r"pip install 'entropic-bpi\[prism\]'"):
        eb.from_prism(tmp_path / "coin.nm", horizon=H)


# -- the command line --------------------------------------------------------------------------------------------------


def typed(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


def test_the_command_line_solves_and_converts(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, csv=CSV, drn=DRN)
    code, out, _ = typed(capsys, "solve", "model.csv", "--beta", "-1", "--horizon", H)
    assert code == 0
    assert f"{eb.solve(EXPECTED, -1).value:.6f}" in out
    assert typed(capsys, "convert", "model.drn", "other.tra", "-p", "reward=money")[0] == 0
    same_values(FiniteMDP.load("other.tra", horizon=H), EXPECTED)
    assert typed(capsys, "convert", "model.csv", "other.npz", "--horizon", H)[0] == 0
    assert FiniteMDP.load("other.npz") == EXPECTED
    assert typed(capsys, "solve", "model.csv", "--beta", "0", "--discount", "0.9")[0] == 0
    for words, message in {
        "convert model.csv other.npz": "other.npz exists already",
        "convert model.csv new.npz": "model.csv has no horizon: pass horizon=",
        "convert model.csv new.txt": "cannot save to new.txt: the name must end in one of .npz, .json, .csv",
        "convert model.drn new.csv": "has the rewards money, steps",
        "solve model.csv --beta 0": "model.csv has no horizon",
        "solve model.csv --beta 0 --horizon 3 -p reward=x": "takes only start; got reward",
    }.items():
        code, _, said = typed(capsys, *words.split())
        assert code == 2
        assert message in said


def test_doctor_lists_every_format(capsys):
    code, out, _ = typed(capsys, "doctor")
    assert code == 0
    assert all(form.name in out and form.suffixes[0] in out for form in FORMATS)


def test_every_format_has_a_module():
    for form in FORMATS:
        module = __import__(f"entropic_bpi.model.formats.{form.module}", fromlist=["read"])
        assert callable(module.read)
        assert hasattr(module, "write") == form.writes
