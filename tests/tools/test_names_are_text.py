"""Names come from files of others: on a terminal, in a plot and in a message they are text, in every encoding."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli, plots
from entropic_bpi.lab.plots import regret
from entropic_bpi.tools.text import drawable, printable, shown

TITLE, SURROGATE, MARKUP, RIGHT_TO_LEFT, LINES = "\x1b]0;pwn\x07", "\ud800", "[red]", "\u202eevil", "a\nverdict  fine"
EVIL = (TITLE, SURROGATE, MARKUP, RIGHT_TO_LEFT, LINES, "\x9b2J", "$x^$")


def evil_model(names=EVIL):
    """A ring through all states, one after the other."""
    n = len(names)
    ring = np.eye(n)[(np.arange(n) + 1) % n]
    model = np.stack([ring, np.eye(n)], axis=1)
    actions = [f"go {names[0]}", f"stay {names[-1]}"]
    return eb.FiniteMDP(model, np.tile([1.0, 0.0], (n, 1)), horizon=n, state_names=names, action_names=actions)


def invoke(*words):
    return CliRunner().invoke(cli.app, list(words), prog_name="entropic-bpi")


def assert_only_text(output):
    assert all(c.isprintable() or c == "\n" for c in output), [c for c in output if not c.isprintable()]


def test_printable_escapes_what_would_act_and_nothing_else():
    assert printable(TITLE) == r"\x1b]0;pwn\x07"
    assert printable(SURROGATE) == r"\ud800"
    assert printable(RIGHT_TO_LEFT) == r"\u202eevil"
    assert printable(LINES) == r"a\nverdict  fine"
    assert printable("\x9b2J") == r"\x9b2J"
    assert printable("[red] β → état 状態") == "[red] β → état 状態"


def test_shown_is_short_and_survives_any_value():
    class Rude:
        def __repr__(self):
            raise RuntimeError

    assert shown(Rude()) == "a value of type Rude"
    assert shown(10**5000) == "a value of type int"
    assert len(shown(list(range(10_000)))) < 250
    assert shown("\x1b") == r"'\x1b'"


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_names_of_a_model_are_printed_as_text(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    evil_model().save(path)
    solved = invoke("solve", str(path), "--beta", "1")
    assert solved.exit_code == 0, solved.output
    assert_only_text(solved.output)
    for name in EVIL:
        assert printable(name) in solved.output
    told = json.loads(invoke("solve", str(path), "--beta", "1", "--json").output)
    assert {choice["state"] for choice in told["policy"]} <= set(EVIL)


def test_names_stay_text_through_identify_verify_and_spectrum(tmp_path):
    evil_model().save(tmp_path / "model.npz")
    run = ["--beta", "1", "--eps", "0.5", "--delta", "0.1", "--successors", "model", "--seed", "1"]
    learnt = invoke("identify", str(tmp_path / "model.npz"), *run, "--out", str(tmp_path / "run"))
    assert learnt.exit_code == 0, learnt.output
    assert printable(TITLE) in learnt.output
    checked = invoke("verify", str(tmp_path / "run" / "certificate.json"))
    assert checked.exit_code == 0, checked.output
    band = invoke("certify", str(tmp_path / "run"), "--beta", "-5:5:5", "--out", str(tmp_path / "band"))
    assert band.exit_code == 0, band.output
    for result in (learnt, checked, band):
        assert_only_text(result.output)


def test_names_in_an_error_are_text_on_one_line(tmp_path):
    names = [TITLE, TITLE, SURROGATE]
    fields = {"format": "entropic-bpi model", "version": 1, "horizon": 1, "start": 0, "sizes": [3, 1]}
    fields |= {"transitions": [[[1, 0, 0]]] * 3, "rewards": [[0]] * 3, "state_names": names}
    (tmp_path / "model.json").write_text(json.dumps(fields))
    result = invoke("solve", str(tmp_path / "model.json"), "--beta", "1")
    assert result.exit_code == 2
    assert "state_names repeats" in result.output
    assert_only_text(result.output)
    assert invoke("solve", f"{tmp_path}/{TITLE}.npz", "--beta", "1").output.count("\x1b") == 0


def test_names_are_drawn_as_text(tmp_path):
    assert drawable("$x^$") == r"\$x^\$"
    run = eb.run("rsvi2", evil_model(("a", "b")), beta=1.0, episodes=3, seed=0)
    for name in EVIL:
        plots.save(regret({name: [run]}, title=name), tmp_path / "regret.png")
    figure = regret({"$x^$": [run]}, title=r"a\$b$")
    title = figure.axes[0].title
    assert title._preprocess_math(title.get_text()) == (r"a\$b$", False)


# -- encodings -----------------------------------------------------------------------------------------------------

ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "strict": {"PYTHONIOENCODING": "ascii:strict"},
    "posix": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


def typed(*words, cwd, **environment):
    command = [sys.executable, "-m", "entropic_bpi", *words]
    return subprocess.run(command, capture_output=True, cwd=cwd, env=os.environ | environment, check=False)


@pytest.mark.parametrize(
    "encoding", ["strict", "posix", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ascii", "cp1252"))]
)
def test_what_an_encoding_lacks_is_replaced(tmp_path, encoding):
    evil_model(("ε-state", "状態")).save(tmp_path / "model.npz")
    done = typed("solve", "model.npz", "--beta", "1", cwd=tmp_path, **ENCODINGS[encoding])
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?-state" in done.stdout


@pytest.mark.slow
@pytest.mark.sample
def test_exit_codes_stay_the_same_in_ascii(tmp_path):
    evil_model(("ε-state", "状態")).save(tmp_path / "model.npz")
    run = ["identify", "model.npz", "--beta", "-1", "--eps", "0.5", "--delta", "0.1", "--seed", "1"]
    assert typed(*run, cwd=tmp_path, **ENCODINGS["ascii"]).returncode == 0  # 1 would mean that a claim failed
    missing = typed("solve", "état.npz", "--beta", "1", cwd=tmp_path, **ENCODINGS["ascii"])
    assert (missing.returncode, missing.stderr.count(b"\n")) == (2, 1)
