"""A run that is killed at any moment and taken up again ends exactly as if nothing had happened."""

import errno
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi import methods
from entropic_bpi.problem.counts import Counts
from entropic_bpi.runs import checkpoint

MODULE = importlib.import_module("entropic_bpi.runs.identification")
GARNET = eb.instances.garnet(2, 2, 2, horizon=2, seed=0)
BRIDGE = eb.instances.risky_bridge(horizon=7)
MANY = eb.instances.garnet(80, 2, 3, horizon=3, seed=2)  # so many that rows list only the successors seen
LAKE = {"horizon": 4, "reward_range": (0, 1), "beta": -1.0}
RUNS = {
    "bernstein": (BRIDGE, {"method": "bernstein", "beta": 2.5, "eps": 0.2}),
    "bernstein, budget": (BRIDGE, {"method": "bernstein", "beta": -1.0, "eps": 0.2, "max_episodes": 5_000_000}),
    "bernstein, every": (GARNET, {"method": "bernstein", "beta": 1.0, "eps": 0.1, "replan": "every"}),
    "bernstein, every, budget": (
        BRIDGE,
        {
            "method": "bernstein",
            "constants": "sharp",
            "beta": 1.0,
            "eps": 0.1,
            "replan": "every",
            "max_episodes": 30_123,
        },
    ),
    "kl": (BRIDGE, {"beta": 2.5, "eps": 0.2, "successors": "model"}),
    "kl, budget": (BRIDGE, {"beta": -1.0, "eps": 0.01, "max_episodes": 6_000}),
    "kl, every, budget": (GARNET, {"beta": 1.0, "eps": 1e-4, "replan": "every", "max_episodes": 9_000}),
    "kl, many states": (MANY, {"beta": -1.0, "eps": 0.2, "max_episodes": 800}),
    "kl, black box": ("FrozenLake-v1", {**LAKE, "eps": 0.1, "max_episodes": 300, "replan": 0.05}),
}
# A copy of the running process, so that each victim starts with everything compiled.
needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")


def identify(name, path=None, **more):
    mdp, options = RUNS[name]
    return eb.identify(mdp, delta=0.1, seed=11, checkpoint=path, **{**options, **more})


def assert_same(ours, theirs, tmp_path):
    assert (ours.episodes, ours.stopped, ours.seed) == (theirs.episodes, theirs.stopped, theirs.seed)
    np.testing.assert_array_equal(ours.policy, theirs.policy)
    np.testing.assert_array_equal(ours.history, theirs.history)
    files = [tmp_path / "ours.json", tmp_path / "theirs.json"]
    for result, file in zip((ours, theirs), files, strict=True):
        result.certificate.save(file)
    assert files[0].read_bytes() == files[1].read_bytes()


def interrupt(name, path, seconds, with_signal, every):
    """Run in a child until it ends or ``seconds`` have passed; whether it was interrupted."""

    def child():
        MODULE.CHECKPOINT_SECONDS = every
        try:
            identify(name, path)
        except KeyboardInterrupt:
            os._exit(3)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(seconds)
    if process.is_alive():
        os.kill(process.pid, with_signal)
    process.join()
    assert process.exitcode in (0, 3, -with_signal)
    return process.exitcode != 0


def survive(name, tmp_path, rng, attempts, with_signal, every):
    began = time.perf_counter()
    whole = identify(name)
    usual = time.perf_counter() - began
    path, interrupted = tmp_path / "run.ckpt", 0
    for _ in range(attempts):
        interrupted += interrupt(name, path, 0.01 + rng.random() * usual, with_signal, every)
    assert_same(identify(name, path), whole, tmp_path)
    return interrupted


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_ends_like_an_uninterrupted_one(name, tmp_path):
    identify(name, max_episodes=10)  # compile before anything is timed
    survive(name, tmp_path, np.random.default_rng(len(name)), 3, signal.SIGKILL, every=0.0)


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_saves_whole_episodes(name, tmp_path):
    """Ctrl-C falls into the compiled code, between the draws and the counts: nothing may be lost there."""
    identify(name, max_episodes=10)
    survive(name, tmp_path, np.random.default_rng(len(name)), 2, signal.SIGINT, every=1e9)


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("name", RUNS)
def test_runs_survive_many_interruptions(name, with_signal, tmp_path):
    identify(name, max_episodes=10)
    rng = np.random.default_rng(len(name) + with_signal)
    interrupted = 0
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        interrupted += survive(name, folder, rng, 6, with_signal, every=[0.0, 0.02, 1e9][attempt % 3])
    assert interrupted >= 4


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("moment", [1, 7, pytest.param(20, marks=pytest.mark.slow)])
def test_an_interruption_between_draws_and_counts_loses_nothing(name, moment, tmp_path, monkeypatch):
    """The worst moment, on purpose: the generator has moved on, the counts have not."""
    whole, path = identify(name), tmp_path / "run.ckpt"
    remaining = [moment]

    def strike():
        remaining[0] -= 1
        if remaining[0] == 0:
            raise KeyboardInterrupt

    def add(self, *arguments):
        strike()
        return original_add(self, *arguments)

    def play_every(self, *arguments):
        bounds = original_every(self, *arguments)
        strike()
        return bounds

    method = methods.find("kl" if name.startswith("kl") else "bernstein")
    original_add, original_every = Counts.add, method.play_every
    with monkeypatch.context() as patch:
        patch.setattr(Counts, "add", add)
        patch.setattr(method, "play_every", play_every)
        try:
            identify(name, path)
        except KeyboardInterrupt:
            assert remaining[0] == 0
    assert_same(identify(name, path), whole, tmp_path)


def test_a_killed_process_of_its_own_can_be_taken_up(tmp_path):
    """The same as a user would see it: another interpreter, kill -9, the same call again."""
    path = tmp_path / "run.ckpt"
    script = (
        "import sys, entropic_bpi as eb\n"
        "from entropic_bpi.runs.identification import identify\n"
        "sys.modules['entropic_bpi.runs.identification'].CHECKPOINT_SECONDS = 0.0\n"
        "bridge = eb.instances.risky_bridge(horizon=7)\n"
        f"identify(bridge, method='bernstein', beta=2.5, eps=0.2, delta=0.1, seed=11, checkpoint={str(path)!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert path.exists()
    assert_same(identify("bernstein", path), identify("bernstein"), tmp_path)


def test_a_finished_run_is_reported_again(tmp_path):
    path = tmp_path / "run.ckpt"
    first, second = identify("kl", path), identify("kl", path)
    assert_same(first, second, tmp_path)
    assert second.seconds > 0.8 * first.seconds  # the time of both parts


def test_a_larger_budget_goes_on_from_a_spent_one(tmp_path):
    path = tmp_path / "run.ckpt"
    name = "kl, every, budget"
    identify(name, path, max_episodes=4000)  # a whole number of chunks
    assert_same(identify(name, path, max_episodes=8000), identify(name, max_episodes=8000), tmp_path)


def test_without_a_seed_the_file_decides(tmp_path):
    path = tmp_path / "run.ckpt"
    mdp, options = RUNS["kl"]
    first = eb.identify(mdp, delta=0.1, checkpoint=path, **options)
    second = eb.identify(mdp, delta=0.1, checkpoint=path, **options)
    assert_same(first, second, tmp_path)


CHANGES = {
    "source_hash was": {"mdp": eb.instances.risky_bridge(horizon=7, p_start=0.9)},
    "horizon was 7, is 9": {"mdp": eb.instances.risky_bridge(horizon=9)},
    "beta was 2.5, is 2.4": {"beta": 2.4},
    "eps was 0.2, is 0.1": {"eps": 0.1},
    "delta was 0.1, is 0.2": {"delta": 0.2},
    "seed was 11, is 12": {"seed": 12},
    'method was "kl", is "bernstein"': {"method": "bernstein"},
    "replan was null, is 0.02": {"replan": 0.02},
    'sampling was "challenger", is "optimistic"': {"sampling": "optimistic"},
    'ties was "random", is "lowest"': {"ties": "lowest"},
    "stationary was false, is true": {"stationary": True},
    'successors was "model", is "unknown"': {"successors": None},
}


@pytest.mark.parametrize("difference", CHANGES)
def test_another_run_is_refused_by_name_and_the_file_kept(difference, tmp_path):
    path = tmp_path / "run.ckpt"
    options = {"mdp": BRIDGE, "delta": 0.1, "seed": 11, "max_episodes": 50, **RUNS["kl"][1]}

    def start(**options):
        return eb.identify(options.pop("mdp"), checkpoint=path, **options)

    start(**options)
    before = path.read_bytes()
    with pytest.raises(eb.InvalidProblemError, match=rf"run.ckpt belongs to another run: .*{difference}"):
        start(**{**options, **CHANGES[difference]})
    assert path.read_bytes() == before


def test_a_mask_with_one_more_successor_is_another_run(tmp_path):
    path = tmp_path / "run.ckpt"
    mask = np.zeros((2, 2, 2), dtype=bool)
    mask[:, :, 0] = mask[:, 0, 1] = True
    model = eb.FiniteMDP(np.array([[[0.5, 0.5], [1, 0]], [[0.5, 0.5], [1, 0]]]), np.eye(2), horizon=2)
    options = {"beta": 1.0, "eps": 0.1, "delta": 0.1, "seed": 1, "max_episodes": 5, "checkpoint": path}
    eb.identify(model, successors=mask, **options)
    with pytest.raises(eb.InvalidProblemError, match=r"another run: slots\.begin was .*slots\.possible was"):
        eb.identify(model, successors=np.ones((2, 2, 2), dtype=bool), **options)


# -- environments: all that can be seen of them is compared --------------------------------------------------------


def play(env, path, **change):
    return eb.identify(
        env, **{**LAKE, "eps": 0.1, "delta": 0.1, "seed": 1, "max_episodes": 40, **change}, checkpoint=path
    )


def lake(**options):
    return gymnasium.make("FrozenLake-v1", **options)


class Halved(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward / 2


OTHER_ENVIRONMENTS = {
    r"environment\.is_slippery was not given, is false": lambda: (lake(is_slippery=False), {}),
    r"max_episode_steps was 100, is 50": lambda: (lake(max_episode_steps=50), {}),
    r"reward_range was \[0\.0, 1\.0\], is \[0\.0, 3\.0\]": lambda: (lake(), {"reward_range": (0, 3)}),
    "horizon was 4, is 5": lambda: (lake(), {"horizon": 5}),
    "num_envs was 1, is 2": lambda: ("FrozenLake-v1", {"num_envs": 2}),
    r"wrappers was \[\"TimeLimit\".*, is \[\"Halved\"": lambda: (Halved(lake()), {}),
    r'environment was "FrozenLake-v1", is "FrozenLake8x8-v1"': lambda: ("FrozenLake8x8-v1", {}),
}


@pytest.mark.parametrize("difference", OTHER_ENVIRONMENTS)
def test_another_environment_is_refused_by_name(difference, tmp_path):
    path = tmp_path / "run.ckpt"
    play(lake(), path)
    before = path.read_bytes()
    env, change = OTHER_ENVIRONMENTS[difference]()
    with pytest.raises(eb.InvalidProblemError, match=rf"run.ckpt belongs to another run: .*{difference}"):
        play(env, path, **change)
    assert path.read_bytes() == before


@pytest.mark.parametrize("wrap", [gymnasium.wrappers.TransformReward, lambda env, how: how and Halved(env)])
def test_the_same_environment_made_again_is_the_same_run(wrap, tmp_path):
    path = tmp_path / "run.ckpt"
    for _ in range(2):
        result = play(wrap(lake(), lambda reward: reward / 2), path)
    assert result.episodes == 40


def test_a_wrapper_with_another_function_is_another_run(tmp_path):
    path = tmp_path / "run.ckpt"
    play(gymnasium.wrappers.TransformReward(lake(), lambda reward: reward / 2), path)
    with pytest.raises(eb.InvalidProblemError, match="belongs to another run: classes was"):
        play(gymnasium.wrappers.TransformReward(lake(), lambda reward: reward / 3), path)


def test_an_environment_of_another_model_is_another_run(tmp_path):
    path = tmp_path / "run.ckpt"
    play(eb.as_gymnasium(eb.instances.risky_bridge(horizon=4)), path)
    with pytest.raises(eb.InvalidProblemError, match="belongs to another run: classes was"):
        play(eb.as_gymnasium(eb.instances.risky_bridge(horizon=4, p_start=0.5)), path)


WALK = """
import gymnasium

class Place(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

class Walk(Place):
    def step(self, action):
        self.place += int(action == 1 and self.np_random.random() < CHANCE)
        return self.place, float(self.place == 2), self.place == 2, False, {}
"""


def a_walk(folder, monkeypatch, chance, text=WALK):
    """The environment class of a module that is written and imported anew."""
    file = folder / "walking.py"
    file.write_text(text.replace("CHANCE", chance))
    spec = importlib.util.spec_from_file_location("walking", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "walking", module)
    spec.loader.exec_module(module)
    return module.Walk()


@pytest.mark.parametrize("other", [WALK.replace("CHANCE", "0.75"), WALK.replace("self.place = 0", "self.place = 1")])
def test_a_class_whose_source_changed_is_another_run(other, tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    for _ in range(2):  # the same source is the same run
        play(a_walk(tmp_path, monkeypatch, "0.7"), path)
    with pytest.raises(eb.InvalidProblemError, match='belongs to another run: source code was "sha256:'):
        play(a_walk(tmp_path, monkeypatch, "0.7", other), path)


def test_an_environment_without_readable_source_can_be_taken_up(tmp_path):
    space = {}
    exec(WALK.replace("CHANCE", "0.7"), space)
    for _ in range(2):
        assert play(space["Walk"](), tmp_path / "run.ckpt").episodes == 40


# -- files that are no checkpoints ---------------------------------------------------------------------------------


def foreign_files(tmp_path, good):
    yield "empty", b""
    yield "text", b"episodes,gap\n1,2\n"
    yield "first line", good[: good.index(b"\n") + 1]
    yield "truncated", good[: len(good) // 2]
    middle = len(good) // 2
    yield "flipped", good[:middle] + bytes(255 - byte for byte in good[middle : middle + 64]) + good[middle + 64 :]
    np.savez(tmp_path / "other.npz", header="{}")
    yield "npz", (tmp_path / "other.npz").read_bytes()


def test_a_file_that_is_no_checkpoint_is_refused_and_kept(tmp_path):
    path = tmp_path / "run.ckpt"
    identify("kl", path, max_episodes=50)
    assert path.read_bytes().startswith(b"entropic-bpi checkpoint")
    for name, content in foreign_files(tmp_path, path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(eb.InvalidProblemError, match=r"run.ckpt is not a checkpoint of entropic-bpi"):
            identify("kl", path)
        assert path.read_bytes() == content, name


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(eb.InvalidProblemError, match="is not a checkpoint"):
        identify("kl", tmp_path)


def test_saving_leaves_no_other_file_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "CHECKPOINT_SECONDS", 0.0)
    identify("kl", tmp_path / "run.ckpt", max_episodes=50)
    assert [file.name for file in tmp_path.iterdir()] == ["run.ckpt"]


# -- a disk that is full -------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch):
    def refuse(path, write):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("entropic_bpi.runs.checkpoint.write_atomically", refuse)


def test_a_result_survives_a_checkpoint_that_cannot_be_written(tmp_path, full_disk):
    with pytest.warns(UserWarning, match=r"run.ckpt could not be written: .*No space left on device"):
        result = identify("kl", tmp_path / "run.ckpt")
    assert_same(result, identify("kl"), tmp_path)


def test_a_run_warns_once_and_goes_on_while_it_cannot_be_saved(tmp_path, full_disk, monkeypatch):
    monkeypatch.setattr(MODULE, "CHECKPOINT_SECONDS", 0.0)
    with pytest.warns(UserWarning, match="could not be written") as caught:
        result = identify("kl", tmp_path / "run.ckpt", max_episodes=300)
    assert len(caught) == 1
    assert len(result.history) > 10


def test_a_disk_with_room_again_is_used_again(tmp_path, monkeypatch):
    """Full for the first three saves: the run is saved at its end, and the warning is the only trace."""
    write, calls = checkpoint.write_atomically, []

    def sometimes(path, contents):
        calls.append(path)
        if len(calls) <= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, contents)

    monkeypatch.setattr(checkpoint, "write_atomically", sometimes)
    monkeypatch.setattr(MODULE, "CHECKPOINT_SECONDS", 0.0)
    with pytest.warns(UserWarning, match="could not be written") as caught:
        first = identify("kl", tmp_path / "run.ckpt", max_episodes=300)
    assert len(caught) == 1
    assert len(calls) > 4
    assert_same(identify("kl", tmp_path / "run.ckpt", max_episodes=300), first, tmp_path)
