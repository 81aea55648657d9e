"""A run that is killed at any moment and taken up again ends exactly as if nothing had happened."""

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import entropic_bpi as eb

MODULE = importlib.import_module("entropic_bpi.identify")
GARNET = eb.instances.garnet(2, 2, 2, horizon=2, seed=0)
BRIDGE = eb.instances.risky_bridge(horizon=7)
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
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_ends_like_an_uninterrupted_one(name, tmp_path):
    identify(name, max_episodes=10)  # compile before anything is timed
    survive(name, tmp_path, np.random.default_rng(len(name)), 3, signal.SIGKILL, every=0.0)


@needs_fork
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
@pytest.mark.parametrize("moment", [1, 7, 20])
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

    method = MODULE.KL if name.startswith("kl") else MODULE.Bernstein
    original_add, original_every = MODULE.Counts.add, method.play_every
    with monkeypatch.context() as patch:
        patch.setattr(MODULE.Counts, "add", add)
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
        "from entropic_bpi.identify import identify\n"
        "sys.modules['entropic_bpi.identify'].CHECKPOINT_SECONDS = 0.0\n"
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
    "model": {"mdp": eb.instances.risky_bridge(horizon=7, p_start=0.9)},
    "beta": {"beta": 2.4},
    "eps": {"eps": 0.1},
    "delta": {"delta": 0.2},
    "seed": {"seed": 12},
    "method": {"method": "bernstein"},
    "replan": {"replan": 0.02},
    "sampling": {"sampling": "optimistic"},
    "ties": {"ties": "lowest"},
    "stationary": {"stationary": True},
    "successors": {"successors": None},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_run_is_refused_and_the_file_kept(change, tmp_path):
    path = tmp_path / "run.ckpt"
    options = {"mdp": BRIDGE, "delta": 0.1, "seed": 11, "max_episodes": 50, **RUNS["kl"][1]}

    def start(**options):
        return eb.identify(options.pop("mdp"), checkpoint=path, **options)

    start(**options)
    before = path.read_bytes()
    with pytest.raises(eb.InvalidProblemError, match=r"run.ckpt belongs to another run"):
        start(**{**options, **CHANGES[change]})
    assert path.read_bytes() == before


def foreign_files(tmp_path, good):
    yield "empty", b""
    yield "text", b"episodes,gap\n1,2\n"
    yield "truncated", good[: len(good) // 2]
    middle = good.index(b"counts_visits") + 200
    yield "flipped", good[:middle] + bytes(255 - byte for byte in good[middle : middle + 64]) + good[middle + 64 :]
    for name, arrays in {
        "no header": {"a": np.zeros(3)},
        "other header": {"header": "{}"},
        "list header": {"header": "[1, 2]"},
        "number header": {"header": np.zeros(2)},
        "not json": {"header": "{"},
    }.items():
        np.savez(tmp_path / "other.npz", **arrays)
        yield name, (tmp_path / "other.npz").read_bytes()
    np.save(tmp_path / "other.npy", np.zeros(3))
    yield "npy", (tmp_path / "other.npy").read_bytes()


def test_a_file_that_is_no_checkpoint_is_refused_and_kept(tmp_path):
    path = tmp_path / "run.ckpt"
    identify("kl", path, max_episodes=50)
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
