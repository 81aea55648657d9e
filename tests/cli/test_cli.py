"""The command line, as a user types it."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli

COMMAND = str(Path(sysconfig.get_path("scripts")) / "entropic-bpi")


def params(**values):
    return [word for name, value in values.items() for word in ("-p", f"{name}={value}")]


GARNET = ["garnet", *params(n_states=12, n_actions=3, branching=2, horizon=9, seed=4)]


def typed(*words, cwd):
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, cwd=cwd)


def invoke(*words):
    return CliRunner().invoke(cli.app, list(words), prog_name="entropic-bpi")


def solved(*words):
    result = invoke("solve", *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


# -- the installed command, from another folder -------------------------------------------------------------------


def test_solve_prints_value_law_and_policy(tmp_path):
    result = typed("solve", "risky-bridge", "--beta", "2.5", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr == ""
    assert "3.043056" in result.stdout
    assert "5 with probability 0.0075" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[-4:] == [["0", "s0", "risky"], ["1", "s4", "risky"], ["1-6", "sb", "safe"], ["2-6", "sg", "safe"]]


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    result = typed("solve", "risky-bridge", "--beta", "nan", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "entropic-bpi: beta must be a finite real number, got nan\n"


def test_a_usage_error_is_one_line_and_exit_code_2(tmp_path):
    result = typed("compare", "risky-bridge", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "entropic-bpi: Missing option '--beta'. (try: entropic-bpi compare --help)\n"


def closed_early(*words, cwd):
    """As ``entropic-bpi … | head -0``: nobody reads what the command prints."""
    with subprocess.Popen([COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd) as process:
        process.stdout.close()
        return process.stderr.read().decode(), process.wait()


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        pytest.param(["--version"], marks=pytest.mark.slow),
        ["instances"],
        pytest.param(["solve", "risky-bridge", "--beta", "1"], marks=pytest.mark.slow),
        ["solve", "risky-bridge", "--beta", "1", "--json"],
        # more than a pipe or a buffer holds
        [
            "solve",
            "garnet",
            "--beta",
            "1",
            "--json",
            *params(n_states=800, n_actions=3, branching=9, horizon=9, seed=1),
        ],
    ],
)
def test_a_reader_that_leaves_early_is_no_error(words, tmp_path):
    errors, code = closed_early(*words, cwd=tmp_path)
    assert code == 0
    assert all(line.startswith("next: ") for line in errors.splitlines())


def test_a_reader_that_leaves_early_does_not_hide_bad_input(tmp_path):
    errors, code = closed_early("solve", "risky-bridge", "--beta", "nan", cwd=tmp_path)
    assert code == 2
    assert "beta must be a finite real number" in errors


def test_python_dash_m_is_the_same_command(tmp_path):
    command = [sys.executable, "-m", "entropic_bpi", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout == f"entropic-bpi {eb.__version__}\n"


def test_help_loads_nothing_heavy(tmp_path):
    code = (
        "import sys\nfrom entropic_bpi.cli import main\n"
        "try: main(['solve', '--help'])\nexcept SystemExit as done: assert done.code == 0\n"
        "print('loaded:', *{'numpy', 'scipy', 'numba', 'gymnasium'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout.splitlines()[-1].strip() == "loaded:"
    assert "entropic-bpi solve risky-bridge --beta 2.5" in result.stdout


def test_the_research_commands_load_when_one_is_asked_for(tmp_path):
    code = (
        "import sys\nfrom entropic_bpi.cli import main\n"
        "def lab(*words):\n"
        "    try: main(words)\n    except SystemExit as done: assert done.code == 0\n"
        "    return any(name.startswith('entropic_bpi.lab') for name in sys.modules)\n"
        "print('loaded:', lab('solve', 'risky-bridge', '--beta', '1'), lab('bounds', '--help'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout.splitlines()[-1] == "loaded: False True"


# -- help and instances ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_top_level_help_teaches_by_example(words):
    result = invoke(*words)
    assert result.exit_code == 0
    assert "entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1" in result.output


def test_instances_has_one_line_for_each():
    lines = invoke("instances").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *eb.instances.names()]
    assert "horizon=7 p_start=0.95 p_mid=0.75 p_final=0.25 p_dash=0.85" in lines[1]
    assert "n_states n_actions branching horizon seed stationary=True" in lines[3]


# -- solve -----------------------------------------------------------------------------------------------------------


def test_json_holds_the_value_the_return_and_the_policy():
    result = solved("risky-bridge", "--beta", "-1")
    assert result["value"] == eb.solve(eb.instances.risky_bridge(), -1).value
    assert result["return"]["mean"] == 1.5
    assert result["return"]["quantiles"] == {"0.05": 0, "0.25": 0, "0.5": 2, "0.75": 2, "0.95": 2}
    assert (result["states"], result["actions"], result["horizon"], result["beta"]) == (8, 2, 7, -1)
    assert result["policy"][2] == {"state": "s2", "action": "risky", "first_step": 2, "last_step": 2}


def test_the_policy_is_given_on_every_reached_state_and_nowhere_else():
    mdp = eb.instances.garnet(12, 3, 2, horizon=9, seed=4)
    solution = eb.solve(mdp, 0.7)
    shown = {}
    for choice in solved(*GARNET, "--beta", "0.7")["policy"]:
        for h in range(choice["first_step"], choice["last_step"] + 1):
            shown[h, int(choice["state"])] = int(choice["action"])
    states = {0}
    for h in range(mdp.horizon):
        assert {s: shown[h, s] for s in states} == {s: solution.policy[h, s] for s in states}
        rows = mdp.step_rows(h)
        chosen = [s * 3 + solution.policy[h, s] for s in states]
        states = {int(s) for row in chosen for s in rows.indices[rows.indptr[row] : rows.indptr[row + 1]]}


def test_horizon_and_parameters_reach_the_instance():
    assert solved("risky_bridge", "--beta", "1", "--horizon", "9", "-p", "p-dash=0.5")["value"] == pytest.approx(
        eb.solve(eb.instances.risky_bridge(9, p_dash=0.5), 1).value
    )


def test_a_hard_instance_takes_a_triple():
    words = params(n_states=10, n_actions=2, horizon=12, beta=-1, eps=0.05, special="2,8,1")
    policy = solved("hard-instance", "--beta", "-1", *words)["policy"]
    assert {"state": "leaf8", "action": "1", "first_step": 5, "last_step": 5} in policy


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_saved_model(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    eb.instances.risky_bridge(9).save(path)
    result = solved(str(path), "--beta", "2.5", "--horizon", "9")
    assert result["value"] == eb.solve(eb.instances.risky_bridge(9), 2.5).value


def test_a_gymnasium_environment_with_options():
    result = solved("gym:FrozenLake-v1", "--beta", "-1", "--horizon", "20", "-p", "is_slippery=False")
    assert result["value"] == pytest.approx(1.0)
    assert result["states"] == 17
    assert solved("gym:FrozenLake-v1", "--beta", "1", "--horizon", "5", "-p", "map_name=8x8")["states"] == 66


def test_a_return_with_too_many_values_is_left_out(monkeypatch):
    monkeypatch.setattr(cli.solve, "_LARGEST_LAW", 3)
    words = [*GARNET, "--beta", "0"]
    assert solved(*words)["return"] is None
    assert "too many possible values" in invoke("solve", *words).output


def test_a_long_policy_is_cut_short_except_in_json(monkeypatch):
    monkeypatch.setattr(cli.facts, "_SHOWN_CHOICES", 2)
    assert "... and 2 more lines; --json prints them all" in invoke("solve", "risky-bridge", "--beta", "2.5").output
    assert len(solved("risky-bridge", "--beta", "2.5")["policy"]) == 4


@pytest.mark.parametrize(("beta", "word"), [("1", "risk-seeking"), ("-1", "risk-averse"), ("0", "the expectation")])
def test_the_sign_of_beta_is_spelt_out(beta, word):
    assert word in invoke("solve", "risky-bridge", "--beta", beta).output


def test_names_with_brackets_are_printed_as_they_are(tmp_path):
    eb.FiniteMDP([[[1.0]]], [[1.0]], horizon=1, state_names=["[bold]x"], action_names=[":smile:"]).save(
        tmp_path / "m.npz"
    )
    output = invoke("solve", str(tmp_path / "m.npz"), "--beta", "1").output
    assert "[bold]x" in output
    assert ":smile:" in output


@pytest.mark.parametrize(
    "words", [["solve", "nowhere", "--beta", "1"], ["solve", "risky-bridge"], ["verify", "nothing"]]
)
def test_with_json_an_error_is_an_object_too(words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert f"entropic-bpi: {json.loads(printed.out)['error']}\n" == printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "bridge --beta 1",
            "unknown source 'bridge': expected an instance (risky-bridge, hard-instance, garnet, river-swim)",
        ),
        ("risky-bridge --beta inf", "beta must be a finite real number, got inf"),
        ("risky-bridge --beta high", "Invalid value for '--beta'"),
        ("risky-bridge --beta 1 --horizon 0", "horizon must be at least 1, got 0"),
        ("risky-bridge --beta 1 --bogus", "No such option"),
        ("--beta 1", "Missing argument"),
        ("risky-bridge --beta 1 -p p_mid=2", "p_mid must lie in [0, 1], got 2"),
        ("risky-bridge --beta 1 -p name=2", "risky-bridge: got an unexpected keyword argument 'name'"),
        ("risky-bridge --beta 1 -p p_mid", "--param must be NAME=VALUE, got 'p_mid'"),
        ("risky-bridge --beta 1 -p =2", "--param must be NAME=VALUE, got '=2'"),
        ("risky-bridge --beta 1 -p p_mid=0 -p p_mid=1", "--param p_mid is given twice"),
        ("risky-bridge --beta 1 --horizon 7 -p horizon=7", "the horizon is given twice"),
        ("garnet --beta 1", "garnet: missing a required argument: 'n_states'"),
        ("missing.npz --beta 1", "no such file: missing.npz"),
        ("broken.npz --beta 1", "broken.npz is not a readable .npz file"),
        ("foreign.json --beta 1", "foreign.json lacks transitions, rewards: a model file has the keys format"),
        ("model.npz --beta 1 --horizon 9", "model.npz was saved with horizon 7, which cannot be changed to 9"),
        ("model.npz --beta 1 -p p_mid=0", "model.npz is a saved model, which takes no parameters; got p_mid"),
        ("gym:FrozenLake-v1 --beta 1", "gym:FrozenLake-v1 needs a horizon"),
        ("gym:NoSuchEnv-v0 --beta 1 --horizon 3", "gymnasium cannot make 'NoSuchEnv-v0'"),
        ("gym:Blackjack-v1 --beta 1 --horizon 3", "Blackjack-v1 publishes no transition table"),
        ("gym:FrozenLake-v1 --beta 1 --horizon 3 -p env_or_id=4", "env_or_id is the part after gym:"),
    ],
)
def test_every_bad_input_is_one_line_on_stderr_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("broken.npz").write_text("not a zip")
    Path("foreign.json").write_text("{}")
    eb.instances.risky_bridge().save("model.npz")
    with pytest.raises(SystemExit) as stopped:
        cli.main(["solve", *words.split()])
    output, errors = capsys.readouterr()
    assert (stopped.value.code, output) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.slow
@pytest.mark.sample
def test_doctor_compiles_on_request():
    answer = json.loads(invoke("doctor", "--compile", "--json").stdout)
    assert answer["compiled now"].startswith("identify (models, environments) and solve, in ")


@pytest.mark.slow
def test_what_doctor_has_compiled_a_first_run_need_not_compile(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    run = (
        "import entropic_bpi as eb; bridge = eb.instances.risky_bridge();"
        "print(eb.identify(bridge, beta=2.5, eps=0.2, delta=0.1, successors='model', seed=0).compile_seconds)"
    )
    subprocess.run([sys.executable, "-m", "entropic_bpi", "doctor", "--compile"], check=True, capture_output=True)
    again = subprocess.run([sys.executable, "-c", run], check=True, capture_output=True, text=True)
    assert float(again.stdout) == 0.0


def test_an_unknown_command_suggests_the_right_one():
    result = invoke("sole")
    assert result.exit_code == 2
    assert "Did you mean 'solve'?" in result.output


def test_a_bug_keeps_its_traceback(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("entropic_bpi.cli.solve.open_model", broken)
    assert isinstance(invoke("solve", "risky-bridge", "--beta", "1").exception, RuntimeError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0.5", -0.5),
        ("true", True),
        ("False", False),
        ("none", None),
        ("[1, 2]", [1, 2]),
        ("0,5,1", (0, 5, 1)),
        ("8x8", "8x8"),
        ("", ""),
    ],
)
def test_parameter_values_are_read_as_python_would(text, value):
    parsed = cli.options.parse_params([f"name={text}"])["name"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_damaged_packed_certificate_is_named_without_a_traceback(tmp_path):
    path = tmp_path / "certificate.json.gz"
    path.write_bytes(b"\x1f\x8bgarbage")
    checked = invoke("verify", str(path))
    assert checked.exit_code == 1
    assert "NOT verified" in checked.stdout
    columns = ("--episode", "e", "--step", "t", "--state", "s", "--action", "a", "--reward", "r")
    watched = invoke("monitor", str(path), "log.csv", *columns)
    assert watched.exit_code == 2
    assert str(path) in watched.stderr


def test_a_warning_is_a_line_on_stderr(tmp_path):
    words = [sys.executable, "-m", "entropic_bpi", "convert", "risky-bridge", "bridge.csv"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines()[0].startswith("warning: bridge.csv does not contain state_names")
    assert ".py" not in done.stderr
