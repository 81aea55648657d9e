"""``entropic-bpi identify``: the result, its files, and runs that are interrupted."""

import csv
import hashlib
import json
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli, methods
from entropic_bpi.show.words import Rounding

COMMAND = str(Path(sysconfig.get_path("scripts")) / "entropic-bpi")
BRIDGE = ["risky-bridge", "--beta", "-1", "--eps", "0.5", "--delta", "0.1", "--successors", "model", "--seed", "1"]
FILES = {"certificate.json", "checkpoint.bin", "history.csv", "interval.png"}


def invoke(*words):
    return CliRunner().invoke(cli.app, ["identify", *map(str, words)], prog_name="entropic-bpi")


@pytest.fixture(scope="module")
def expected():
    return eb.identify(eb.instances.risky_bridge(), beta=-1, eps=0.5, delta=0.1, successors="model", seed=1)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- the result ------------------------------------------------------------------------------------------------------


def test_a_run_prints_its_claim_and_writes_its_files(tmp_path, expected):
    words = [COMMAND, "identify", *BRIDGE, "--out", "run"]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "next: entropic-bpi verify run/certificate.json\n")
    claim = expected.certificate
    for words in (
        "With probability at least 90 %, the policy is at most 0.5 worse than the best policy.",
        f"The policy has a value of at least {Rounding(7.0).at_least(claim.lower)}, and no policy has a value above",
        f"{expected.episodes:,} in ",
        "the possible next states are those of the model",
        "written",
    ):
        assert words in result.stdout
    assert set(contents(tmp_path / "run")) == FILES
    assert ["0", "s0", "safe"] in [line.split() for line in result.stdout.splitlines()]


def test_the_files_hold_what_the_library_returns(tmp_path, expected):
    assert invoke(*BRIDGE, "--out", tmp_path / "run").exit_code == 0
    certificate = eb.Certificate.load(tmp_path / "run" / "certificate.json")
    assert np.array_equal(certificate.policy, expected.policy)
    assert (certificate.lower, certificate.upper) == (expected.certificate.lower, expected.certificate.upper)
    with open(tmp_path / "run" / "history.csv") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["episodes", "lower", "upper", "gap"]
    for name in rows[0]:
        assert [float(row[name]) for row in rows] == expected.history[name].tolist()
    picture = (tmp_path / "run" / "interval.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_json_holds_the_claim_and_the_policy_on_the_states_seen(expected):
    result = json.loads(invoke(*BRIDGE, "--json").output)
    assert (result["certified"], result["seed"], result["episodes"]) == (True, 1, expected.episodes)
    assert result["gap"] == expected.certificate.gap
    assert result["assumptions"] == list(expected.certificate.assumptions)
    first = result["policy"][0]
    action = eb.instances.risky_bridge().action_names[expected.policy[0, 0]]
    assert first == {"state": "s0", "action": action, "first_step": 0, "last_step": first["last_step"]}
    assert all(0 <= choice["first_step"] <= choice["last_step"] < 7 for choice in result["policy"])


def test_a_random_start_is_shown_by_the_states_it_was_seen_in(tmp_path):
    bridge = eb.instances.risky_bridge(3)
    start = np.zeros(8)
    start[[0, 1]] = 0.5
    names = bridge.state_names
    model = eb.FiniteMDP(bridge.transitions, bridge.rewards, horizon=3, start=start, state_names=names)
    model.save(tmp_path / "model.npz")
    words = ["--beta", "1", "--eps", "2", "--delta", "0.1", "--seed", "1", "--successors", "model", "--json"]
    policy = json.loads(invoke(tmp_path / "model.npz", *words).output)["policy"]
    assert {choice["state"] for choice in policy if choice["first_step"] == 0} <= {names[0], names[1]}


def test_a_gymnasium_source_is_taken_as_stationary_unless_told_otherwise():
    words = ["gym:FrozenLake-v1", "--horizon", "4", "--beta", "-1", "--eps", "0.9", "--delta", "0.1", "--json"]
    pooled, apart = (json.loads(invoke(*words, *extra).output) for extra in ([], ["--no-stationary"]))
    assert "transitions are the same at every step" in pooled["assumptions"]
    assert "transitions may differ from step to step" in apart["assumptions"]


def test_a_black_box_is_played_and_its_rewards_are_learned(tmp_path):
    words = [
        "gym:FrozenLake-v1",
        "--horizon",
        "4",
        "--beta",
        "0",
        "--eps",
        "0.9",
        "--delta",
        "0.1",
        "--reward-range",
        "-1",
        "1",
    ]
    result = invoke(*words, "--max-episodes", "50", "--seed", "1", "--out", tmp_path, "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.output)
    assert found["episodes"] == 50
    assert found["policy"][0]["first_step"] == 0
    assert "end" not in {choice["state"] for choice in found["policy"]}  # nothing is chosen there


def test_every_option_reaches_the_library(tmp_path, monkeypatch):
    given = {}

    def identify(mdp, **options):
        given.update(options)
        raise eb.InvalidProblemError("enough")

    monkeypatch.setattr(eb, "identify", identify)
    np.save(tmp_path / "mask.npy", np.ones((8, 2, 8), dtype=bool))
    invoke(
        *["risky-bridge", "--beta", "-2", "--eps", "0.1", "--delta", "0.2", "--method", "bernstein"],
        *["--constants", "sharp", "--stationary", "--successors", tmp_path / "mask.npy", "--replan", "0.5"],
        *["--sampling", "optimistic", "--max-episodes", "7", "--seed", "3", "--ties", "lowest"],
        *["--accept-errors", "--preregister", "run.json", "--max-successors", "2", "--return-range", "-1", "3"],
        *["--reward-law", "random", "--max-states", "4", "--num-envs", "2", "--discount", "0.9", "--max-seconds", "60"],
        *["--device", "gpu", "--start", "[0, 1]", "--state-names", "a,b", "--action-names", "x", "--unit", "€"],
        *["--title", "A title"],
    )
    assert given == {
        "successors": str(tmp_path / "mask.npy"),
        "allowed": None,
        "noise": None,
        "reward": None,
        "state_names": ["a", "b"],
        "action_names": ["x"],
        "unit": "€",
        "title": "A title",
        "beta": -2.0,
        "eps": 0.1,
        "delta": 0.2,
        "method": "bernstein",
        "constants": "sharp",
        "stationary": True,
        "max_successors": 2,
        "return_range": (-1.0, 3.0),
        "reward_range": None,
        "discount": 0.9,
        "horizon": None,
        "start": [0, 1],
        "reward_law": "random",
        "max_states": 4,
        "num_envs": 2,
        "replan": 0.5,
        "sampling": "optimistic",
        "max_episodes": 7,
        "max_seconds": 60.0,
        "seed": 3,
        "ties": "lowest",
        "device": "gpu",
        "accept_errors": True,
        "preregister": Path("run.json"),
        "checkpoint": None,
        "progress": True,
    }


def test_a_target_that_every_policy_reaches_is_named():
    """An eps that is meant as per cent: returns of the lake lie between 0 and 7."""
    asked = [
        "gym:FrozenLake-v1",
        "--horizon",
        7,
        "--reward-range",
        0,
        1,
        "--beta",
        -1,
        "--delta",
        0.05,
        "--max-episodes",
        3,
    ]
    words = "--eps 10 is at least the range of the return, 7: any policy reaches it"
    assert words in " ".join(invoke(*asked, "--eps", 10).output.split())
    assert "any policy reaches it" not in " ".join(invoke(*asked, "--eps", 6.9).output.split())


def test_quiet_prints_nothing():
    assert invoke(*BRIDGE, "--quiet").output == ""


# -- the budget, and going on ----------------------------------------------------------------------------------------


def test_a_spent_budget_is_exit_code_1_and_a_larger_one_goes_on(tmp_path, expected):
    out = ["--out", tmp_path / "run"]
    result = invoke(*BRIDGE, *out, "--max-episodes", 5)
    assert result.exit_code == 1
    assert "NOT certified" in result.output
    claim = eb.Certificate.load(tmp_path / "run" / "certificate.json")
    assert claim.gap > 0.5
    assert claim.episodes <= 5
    assert invoke(*BRIDGE, *out, "--resume", "--max-episodes", 10**6).exit_code == 0
    assert eb.Certificate.load(tmp_path / "run" / "certificate.json").episodes == expected.episodes


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path):
    out = ["--out", tmp_path / "run"]
    invoke(*BRIDGE, *out)
    before = contents(tmp_path / "run")
    result = invoke(*BRIDGE, *out)
    assert result.exit_code == 2
    assert "nothing is overwritten: give another --out, or continue with --resume" in result.output
    other = invoke(*BRIDGE[:2], "-2", *BRIDGE[3:], *out, "--resume")
    assert other.exit_code == 2
    assert "belongs to another run" in other.output
    assert contents(tmp_path / "run") == before
    (tmp_path / "run" / "checkpoint.bin").unlink()
    lost = invoke(*BRIDGE, *out, "--resume")
    assert lost.exit_code == 2
    assert "without checkpoint.bin the run cannot be continued" in lost.output


def test_of_two_runs_into_one_folder_the_second_fails_at_once(tmp_path):
    slow = ["risky-bridge", "--beta", "2", "--eps", "0.001", "--delta", "0.1", "--out", tmp_path / "run"]
    first = subprocess.Popen([COMMAND, "identify", *slow], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "run" / ".entropic-bpi.lock").exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
        for extra in ([], ["--resume"]):
            second = invoke(*BRIDGE, "--out", tmp_path / "run", *extra)
            assert second.exit_code == 2
            assert second.output == f"entropic-bpi: {tmp_path / 'run'}: another process is using this folder\n"
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    (tmp_path / "run" / "checkpoint.bin").unlink(missing_ok=True)
    assert invoke(*BRIDGE, "--out", tmp_path / "run").exit_code == 0
    assert set(contents(tmp_path / "run")) == FILES


@pytest.mark.slow
def test_two_runs_started_together_into_one_folder_do_not_both_succeed(tmp_path):
    words = [COMMAND, "identify", *BRIDGE, "--out", tmp_path / "run"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    for one in both:
        one.communicate()
    assert sorted(one.returncode for one in both) == [0, 2]
    assert set(contents(tmp_path / "run")) == FILES


def test_a_finished_run_prints_its_result_again(tmp_path):
    out = ["--out", tmp_path / "run"]
    first = invoke(*BRIDGE, *out)
    before = contents(tmp_path / "run")
    again = invoke(*BRIDGE[:-2], *out, "--resume")  # the seed is in the checkpoint

    def without_time(text):
        return [line for line in text.splitlines() if not line.startswith("episodes")]

    assert again.exit_code == 0
    assert without_time(again.output) == without_time(first.output)
    after = contents(tmp_path / "run")
    assert all(after[name] == before[name] for name in ("certificate.json", "history.csv"))


@pytest.mark.slow
def test_killed_and_resumed_is_bit_for_bit_the_uninterrupted_run(tmp_path):
    # Checkpoints every 20 ms, and small batches, so that the run passes through many of them.
    code = (
        "import sys, entropic_bpi as eb\neb.identify\n"
        "sys.modules['entropic_bpi.runs.identification'].CHECKPOINT_SECONDS = 0.02\n"
        "from entropic_bpi.cli import main; main()"
    )
    words = ["identify", "risky-bridge", "--beta", "2.5", "--eps", "0.5", "--delta", "0.1", "--replan", "0.0001"]
    words += ["--successors", "model", "--seed", "5", "--quiet", "--out"]
    with subprocess.Popen([sys.executable, "-c", code, *words, "killed"], cwd=tmp_path) as process:
        deadline = time.monotonic() + 400  # old versions compile for minutes
        while not (tmp_path / "killed" / "checkpoint.bin").exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "certificate.json").exists()
    for folder, extra in (("killed", ["--resume"]), ("whole", [])):
        assert invoke(*words[1:], tmp_path / folder, *extra).exit_code == 0
    for name in ("certificate.json", "history.csv"):
        assert contents(tmp_path / "killed")[name] == contents(tmp_path / "whole")[name]


@pytest.mark.parametrize(
    ("saved", "out", "advice"),
    [
        (True, True, "checkpoint.bin; the same command with --resume continues it"),
        (False, True, "nothing was saved yet; start again with the same command"),
        (False, False, "nothing was saved; a run with --out can be resumed"),
    ],
)
def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, saved, out, advice):
    def interrupted(mdp, *, checkpoint, **options):
        if saved:
            checkpoint.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(eb, "identify", interrupted)
    result = invoke(*BRIDGE, *(["--out", tmp_path] if out else []))
    assert result.exit_code == 130
    assert advice in result.output
    assert result.output.count("\n") == 1


# -- errors of the environment, and announcements ---------------------------------------------------------------------


class Stumbling(gymnasium.Env):
    """One state; the first run stumbles."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)
    steps, sturdy = 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        Stumbling.steps += 1
        if Stumbling.steps > 20 and not Stumbling.sturdy:
            raise ConnectionError("lost")
        return 0, float(action), True, False, {}


def test_an_error_of_the_environment_must_be_accepted_and_is_in_the_certificate(tmp_path, monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "Stumbling-v0", gymnasium.envs.registration.EnvSpec("Stumbling-v0", Stumbling)
    )
    words = ["gym:Stumbling-v0", "--horizon", "2", "--reward-range", "0", "1", "--beta", "-1", "--eps", "1e-6"]
    words += ["--delta", "0.1", "--max-episodes", "100", "--seed", "1", "--out", tmp_path / "run"]
    words += ["--preregister", tmp_path / "a"]
    lost = invoke(*words)
    assert lost.exit_code == 2
    assert "raised ConnectionError: lost" in lost.output
    Stumbling.sturdy = True
    refused = invoke(*words, "--resume")
    assert refused.exit_code == 2
    assert "accept_errors=True (--accept-errors) resumes the run" in refused.output
    assert refused.output.count("\n") == 1
    accepted = invoke(*words, "--resume", "--accept-errors")
    assert accepted.exit_code == 0, accepted.output
    assert "raised an error once and the run went on" in " ".join(accepted.output.split())
    claim = eb.Certificate.load(tmp_path / "run" / "certificate.json")
    preregistration = hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert (claim.provenance.errors, claim.provenance.preregistration) == (1, preregistration)
    assert eb.verify(tmp_path / "run" / "certificate.json").ok


# -- bad input and help ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--eps 0", "eps must be greater than 0, got 0"),
        ("--delta 1", "delta must lie strictly between 0 and 1, got 1"),
        ("--method ucb", "method must be one of kl, bernstein; got 'ucb'"),
        ("--constants sharp", "constants='sharp' belongs to method 'bernstein'"),
        ("--replan often", "replan must be 'every' or a ratio in (0, 1] such as 0.01, got 'often'"),
        ("--replan 2", "replan must be 'every' or a ratio in (0, 1] such as 0.01, got 2"),
        ("--successors mask", "successors must be None, 'model' or a boolean mask (S, A, S); got 'mask'"),
        ("--successors missing.npy", "no such file: missing.npy"),
        ("--successors broken.npy", "broken.npy is not a readable .npy file"),
        ("--successors floats.npy", "successors must be a boolean mask of shape (S, A, S) = (8, 2, 8)"),
        ("--max-episodes 0", "max_episodes must be at least 1, got 0"),
        ("--max-successors 0", "max_successors must be at least 1, got 0"),
        ("--return-range 0 1", "return_range is for environments"),
        ("--seed -1", "seed must be at least 0, got -1"),
        ("--reward-range 0 1", "--reward-range is for environments"),
        ("--resume", "--resume needs --out"),
        ("--out broken.npy", "--out: broken.npy is not a folder"),
        ("--out broken.npy/run", "--out: broken.npy/run is not a folder"),
    ],
)
def test_every_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("broken.npy").write_text("not an array")
    np.save("floats.npy", np.ones(3))
    result = invoke("risky-bridge", "--beta", "1", "--eps", "0.5", "--delta", "0.1", *words.split())
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


def test_printed_constants_are_used_or_refused_with_the_reason(tmp_path):
    goal = ["--beta", "1", "--eps", "0.5", "--delta", "0.1", "--method", "bernstein", "--constants", "printed"]
    done = invoke("risky-bridge", *goal, "--max-episodes", "5", "--json")
    assert done.exit_code == 1  # the budget is spent
    assert json.loads(done.output)["constants"] == "printed"
    n_states = 209  # 13 steps allow 208
    model = eb.FiniteMDP(np.full((n_states, 1, n_states), 1 / n_states), np.zeros((n_states, 1)), horizon=13)
    model.save(tmp_path / "wide.npz")
    refused = invoke(tmp_path / "wide.npz", *goal)
    assert refused.exit_code == 2
    assert "S <= 16H/(H - 12): with H = 13 steps for at most 208 states, got 209" in refused.output
    assert refused.output.count("\n") == 1


@pytest.mark.parametrize("command", ["identify", "certify", "compare"])
def test_help_teaches_by_example_and_loads_nothing_heavy(command, tmp_path):
    code = (
        f"import sys\nfrom entropic_bpi.cli import main\n"
        f"try: main(['{command}', '--help'])\nexcept SystemExit as done: assert done.code == 0\n"
        "print('loaded:', *{'numpy', 'scipy', 'numba', 'matplotlib'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout.splitlines()[-1].strip() == "loaded:"
    assert f"entropic-bpi {command} " in result.stdout


def test_the_help_names_every_method_and_every_choice_of_its_options():
    shown = invoke("--help").stdout
    for name in methods.names():
        for choice in (name, *(choice for choices in methods.find(name).options.values() for choice in choices)):
            assert choice in shown


# -- environments ------------------------------------------------------------------------------------------------------


BOX = ["--horizon", "3", "--beta", "-1", "--eps", "0.5", "--delta", "0.1", "--seed", "1", "--max-episodes", "40"]


def test_a_black_box_takes_the_options_of_its_environment():
    lake = json.loads(
        invoke("gym:FrozenLake-v1", "-p", "is_slippery=false", *BOX, "--reward-range", 0, 1, "--json").output
    )
    made = gymnasium.make("FrozenLake-v1", is_slippery=False)
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1, "max_episodes": 40}
    expected = eb.identify(made, horizon=3, reward_range=(0, 1), **goal)
    assert (lake["lower"], lake["upper"]) == (expected.certificate.lower, expected.certificate.upper)
    longer = [*BOX, "--reward-range", 0, 1, "--max-states", 17, "--num-envs", 2]
    assert invoke("gym:FrozenLake-v1", "-p", "max_episode_steps=3", *longer).exit_code == 1


def test_an_environment_in_a_file_is_played(tmp_path):
    source = tmp_path / "coin.py"
    source.write_text(
        "import gymnasium\n"
        "class Coin(gymnasium.Env):\n"
        "    observation_space, action_space = gymnasium.spaces.Text(5), gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return 'up', {}\n"
        "    def step(self, action):\n"
        "        return 'up', float(action), False, False, {}\n"
    )
    result = invoke(f"{source}:Coin", *BOX, "--reward-range", 0, 1, "--max-states", 1, "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["policy"][0]["state"] == "'up'"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gym:Blackjack-v1", *BOX], "--reward-range LOW HIGH"),
        (["risky-bridge", *BOX, "--reward-range", 0, 1], "--reward-range is for environments"),
        (["gym:FrozenLake-v1", *BOX, "--max-states", 3], "with reward_range="),
        (
            ["gym:FrozenLake-v1", *BOX, "-p", "colour=red", "--reward-range", 0, 1],
            "cannot make the environment 'FrozenLake-v1'",
        ),
        (["nobody", *BOX], "gym:package:ENV_ID or file.py:Class"),
    ],
)
def test_what_an_environment_needs_is_named(words, message):
    result = invoke(*words)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert message in result.output


def test_random_rewards_are_declared_on_the_command_line():
    lake = ["gym:FrozenLake-v1", "--beta", "-1", "--eps", "0.1", "--delta", "0.1", "--horizon", "3", "--seed", "1"]
    played = invoke(*lake, "--reward-range", 0, 1, "--reward-law", "random-pair", "--max-episodes", 5, "--json")
    assert played.exit_code == 1
    assert any("random, independent from visit to visit" in words for words in json.loads(played.stdout)["assumptions"])
    for words, message in [
        ([*lake, "--reward-law", "random"], "reward_law is for environments"),
        (
            [*lake, "--reward-range", 0, 1, "--reward-law", "noisy"],
            "reward_law must be one of fixed, random, random-pair",
        ),
    ]:
        refused = invoke(*words)
        assert refused.exit_code == 2
        assert message in refused.stderr
