"""Compressed certificates, progress, and files that ask for more work than they are worth."""

import copy
import gzip
import json
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli


@pytest.fixture(scope="module")
def certificate():
    bridge = eb.instances.risky_bridge(horizon=4)
    return eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, successors="model", max_episodes=300, seed=1).certificate


class Stated:
    """A certificate that says anything."""

    def __init__(self, content):
        self._content = lambda: copy.deepcopy(content)


# -- compressed files --------------------------------------------------------------------------------------------------


def test_a_compressed_certificate_is_the_same_certificate(certificate, tmp_path):
    plain, packed = tmp_path / "c.json", tmp_path / "c.json.gz"
    certificate.save(plain)
    certificate.save(packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert eb.Certificate.load(packed)._content() == certificate._content()
    assert eb.verify(packed) == eb.verify(plain) == eb.verify(certificate)
    before = packed.read_bytes()
    certificate.save(packed)
    assert packed.read_bytes() == before


def test_the_command_reads_compressed_files_and_folders_with_one(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json.gz")
    for path in (tmp_path, tmp_path / "certificate.json.gz"):
        told = json.loads(CliRunner().invoke(cli.app, ["verify", str(path), "--json"]).output)
        assert told["ok"]


@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: data[:-20],
        lambda data: data + b"more",
        lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:],
        lambda data: gzip.compress(b" " * 2**27),
    ],
    ids=["cut", "longer", "changed", "huge"],
)
def test_a_damaged_or_exploding_compressed_file_is_refused(damaged, certificate, tmp_path):
    path = tmp_path / "c.json.gz"
    certificate.save(path)
    path.write_bytes(damaged(path.read_bytes()))
    assert "not a whole JSON file" in eb.verify(path).problems[0]
    with pytest.raises(eb.CertificateError, match="not a whole JSON file"):
        eb.Certificate.load(path)


# -- progress ----------------------------------------------------------------------------------------------------------


def runs():
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=4)
    goal = {"eps": 1e-3, "delta": 0.1, "max_episodes": 50, "seed": 0}
    yield eb.identify(mdp, beta=1.0, successors="model", **goal).certificate
    yield eb.identify(mdp, risk=eb.EVaR(0.2), **goal).certificate
    yield eb.identify(mdp, beta=1.0, method="bernstein", **goal).certificate


def test_progress_counts_to_the_end():
    for claim in runs():
        told = []
        assert eb.verify(claim, progress=lambda *parts: told.append(parts)).ok  # noqa: B023
        (total,) = {total for _, total in told}
        assert [done for done, _ in told] == list(range(1, total + 1))
        assert total % len(claim.policy) == 0


# -- small files about huge problems -----------------------------------------------------------------------------------


def refused_at_once(content):
    began = time.process_time()
    problems = eb.verify(Stated(content)).problems
    assert time.process_time() - began < 10
    return problems[0]


def test_rows_that_list_the_same_slots_again_and_again_are_refused():
    """A file of a megabyte could ask for a table of 400 million outcomes."""
    n = 20_000
    mdp = eb.instances.garnet(n, 1, 1, horizon=1, seed=0)
    content = eb.identify(mdp, beta=1.0, eps=1.0, delta=0.1, successors="model", max_episodes=1).certificate._content()
    slots = content["problem"]["slots"]
    slots["begin"], slots["used"], slots["possible"] = [0] * n, [n] * n, [n] * n
    slots["successor"] = list(range(n))
    assert "again and again" in refused_at_once(content)


def test_a_discount_over_far_more_steps_than_the_policy_has_is_refused():
    """The powers of the discount are computed for as many steps as are planned, which a file of a page may state."""
    goal = {"beta": 1.0, "eps": 1.0, "delta": 0.1, "max_episodes": 1}
    mdp = eb.instances.garnet(3, 2, 2, horizon=2, seed=0)
    content = eb.identify(mdp, **goal, discount=0.5, stationary=True).certificate._content()
    content["problem"]["horizon"] = 2_000_000
    assert "policy must be a list of length 2000000" in refused_at_once(content)


def test_too_many_pairs_are_refused():
    mdp = eb.FiniteMDP(np.full((64, 2, 64), 1 / 64), np.random.default_rng(0).random((64, 2)), horizon=3)
    claim = eb.identify(mdp, beta=1.0, eps=1.0, delta=0.1, max_episodes=1, seed=0).certificate
    content = claim._content()
    content["claim"]["test"] = "pairs"
    assert "the pair certificate is about more than" in refused_at_once(content)


def test_noise_with_many_labels_takes_no_longer_than_the_file_is():
    """Each of 20,000 labels is a class by itself: to compare all of them with each other would take minutes."""
    many, labels = 20_000, {"a": range(3), "b": range(1)}
    chances = {"a": [0.2, 0.3, 0.5], "b": [1.0]}
    mdp = eb.FiniteMDP.from_noise(
        range(3), range(1), labels, chances, lambda s, a, w: s or w,
        horizon=2, start=0, law=lambda s, a: "b" if s else "a",
    )  # fmt: skip
    goal = {"beta": 1.0, "eps": 1.0, "delta": 0.1, "max_episodes": 1, "seed": 0}
    content = eb.identify(mdp, noise="model", **goal).certificate._content()
    problem, names, alone = content["problem"], list(map(str, range(many))), many - 1
    assert content["counts"]["episodes"] == 0
    problem |= {"n_states": many, "state_names": names, "rewards": [[[0.0]] * many]}
    problem["noise"] |= {
        "labels": [names, ["0"]],
        "law": [0] + [1] * alone,
        "classes": list(range(many)) + [0] * alone,
    }
    used = [many] + [1] * alone
    problem["slots"] |= {"begin": list(range(many)), "used": used, "possible": used, "successor": list(range(many))}
    content["policy"] = [[0] * many] * 2
    content["assumptions"][-1] = content["assumptions"][-1].replace("3 or 1 labels", f"{many} or 1 labels")
    began = time.process_time()
    assert eb.verify(Stated(content)).problems == []
    assert time.process_time() - began < 10


def test_counts_whose_sum_is_not_exact_are_refused(certificate):
    content = copy.deepcopy(certificate._content())
    content["counts"]["times"] = [2**53] * len(content["counts"]["times"])
    many = 1 + 2**10 // len(content["counts"]["times"])
    for name in ("rows", "successors", "times"):
        content["counts"][name] = content["counts"][name] * many
    assert "add up to more than" in refused_at_once(content)
