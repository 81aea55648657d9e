"""A checkpoint that is damaged, or of another format, is refused and kept: it never ends in a crash or a wrong result."""

import hashlib
import math
import os
from pathlib import Path

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi._version import __version__
from entropic_bpi.runs.checkpoint import FORMAT, Checkpoint, read_summary

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
    """Every byte of the first line, those around the header's end and the digest's begin, and some at random."""
    first, header = content.index(b"\n"), content.index(b"\n", content.index(b"\n") + 1)
    chosen = {*range(first + 2), header - 1, header, header + 1, len(content) - DIGEST - 1, *range(-DIGEST, 0)}
    return [*chosen, *rng.integers(len(content), size=200).tolist()]


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


FORMATS = {
    b"entropic-bpi checkpoint 4\n": "it has format 4, which the release that wrote it reads",
    b"entropic-bpi checkpoint 99 of release 7.1.0\n": "format 99, which release 7.1.0 reads: finish the run with that",
    b"entropic-bpi checkpoint 99 of release \x1b]0;retitled\n": "it starts in another way",
    b"episodes,gap\n": "it starts in another way",
}


@pytest.mark.parametrize("line", FORMATS)
def test_another_format_is_refused_with_the_release_that_reads_it(line, tmp_path):
    message = refusal(tmp_path / "run.ckpt", line + b"{}\n" + bytes(100))
    assert FORMATS[line] in message
    assert message.isprintable()


def test_another_release_with_the_same_format_goes_on(tmp_path):
    path = tmp_path / "run.ckpt"
    whole = run("kl", None, 40)
    run("kl", path, 20)
    first, rest = path.read_bytes()[:-DIGEST].split(b"\n", 1)
    assert first.decode() == f"entropic-bpi checkpoint {FORMAT} of release {__version__}"
    other = b"entropic-bpi checkpoint %d of release 99.1\n" % FORMAT + rest
    path.write_bytes(other + hashlib.sha256(other).digest())
    assert run("kl", path, 40).certificate.gap == whole.certificate.gap


def test_a_large_file_that_is_no_checkpoint_is_not_read(tmp_path):
    path = tmp_path / "run.ckpt"
    path.touch()
    os.truncate(path, 1 << 40)  # a terabyte of zeros that takes no room
    with pytest.raises(eb.InvalidProblemError, match="it starts in another way"):
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
