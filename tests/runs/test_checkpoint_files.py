"""A checkpoint that is damaged, or of another format, is refused and kept: it never ends in a crash or a wrong result."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.runs.checkpoint import FIRST_LINE, Checkpoint, read_summary

DIGEST = 32
GOAL = {"delta": 0.1, "seed": 3, "eps": 1e-3}
GARNET = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
KINDS = {
    "kl": (GARNET, {"beta": 1.0}),
    "evar": (GARNET, {"risk": eb.EVaR(0.2)}),
    "bernstein": (GARNET, {"beta": 1.0, "method": "bernstein"}),
    "black box": ("FrozenLake-v1", {"beta": -1.0, "horizon": 3, "reward_range": (0, 1)}),
}


def run(kind, path, episodes):
    source, options = KINDS[kind]
    return eb.identify(source, **GOAL, **options, checkpoint=path, max_episodes=episodes)


@pytest.fixture(scope="module", params=KINDS)
def good(request, tmp_path_factory):
    """The bytes of a checkpoint of each kind of run."""
    path = tmp_path_factory.mktemp("good") / "run.ckpt"
    run(request.param, path, 20)
    return path.read_bytes()


def refusal(path: Path, content: bytes) -> str:
    """The message with which ``content`` is refused; the file is left as it is."""
    path.write_bytes(content)
    with pytest.raises(eb.InvalidProblemError, match=r"run.ckpt is not a checkpoint of entropic-bpi: ") as caught:
        Checkpoint(path, {}, None).read()
    assert path.read_bytes() == content
    assert read_summary(path) is None
    return str(caught.value)


def places(content: bytes, rng: np.random.Generator) -> list[int]:
    """Every byte of the first line and of the digest, the last one, and some at random."""
    return [*range(len(FIRST_LINE) + DIGEST), -1, *rng.integers(len(content), size=200).tolist()]


def test_one_byte_that_changed_is_enough(good, tmp_path):
    rng = np.random.default_rng(0)
    for place in places(good, rng):
        changed = bytearray(good)
        changed[place] ^= int(rng.integers(1, 256))
        refusal(tmp_path / "run.ckpt", bytes(changed))


def test_a_part_of_the_file_or_more_than_the_file_is_refused(good, tmp_path):
    rng = np.random.default_rng(1)
    for place in rng.integers(len(good), size=100).tolist():
        refusal(tmp_path / "run.ckpt", good[:place])
        refusal(tmp_path / "run.ckpt", good[:place] + good[place + 1 :])
        refusal(tmp_path / "run.ckpt", good[:place] + rng.bytes(1) + good[place:])
    assert "incomplete or was changed" in refusal(tmp_path / "run.ckpt", good + b"\n")
    assert "incomplete or was changed" in refusal(tmp_path / "run.ckpt", good + good)


def test_an_undamaged_file_goes_on(tmp_path):
    path = tmp_path / "run.ckpt"
    run("kl", path, 20)
    assert run("kl", path, 40).episodes == 40


@pytest.mark.parametrize("line", [b"entropic-bpi checkpoint 4\n", b"entropic-bpi checkpoint 99\n", b"episodes,gap\n"])
def test_another_format_is_refused(line, tmp_path):
    message = refusal(tmp_path / "run.ckpt", line + b"{}\n" + bytes(100))
    assert "does not begin with 'entropic-bpi checkpoint" in message
    assert message.isprintable()


def test_a_large_file_that_is_no_checkpoint_is_not_read(tmp_path):
    path = tmp_path / "run.ckpt"
    path.touch()
    os.truncate(path, 1 << 40)  # a terabyte of zeros that takes no room
    with pytest.raises(eb.InvalidProblemError, match="does not begin with"):
        Checkpoint(path, {}, None).read()


def test_every_number_comes_back_as_it_was(tmp_path):
    """Infinite bounds and memories included: a plan before the first episode knows nothing."""
    path = tmp_path / "run.ckpt"
    mdp = eb.instances.garnet(60, 2, 3, horizon=3, seed=1)
    options = {**GOAL, "risk": eb.EVaR(0.05), "checkpoint": path}
    first = eb.identify(mdp, **options, max_episodes=1)
    assert math.isinf(first.history["gap"][0]) or first.history["gap"][0] > 0
    again = eb.identify(mdp, **options, max_episodes=1)
    np.testing.assert_array_equal(again.history, first.history)
    assert again.certificate.gap == first.certificate.gap
