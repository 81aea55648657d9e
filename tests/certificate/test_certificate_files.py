"""Certificate files of unknown origin: whatever is in them, reading ends in a certificate or in an error of ours.

The files are read in a process of their own, so that a crash of compiled code is a failed test.
"""

import hashlib
import json
import random
import resource
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.show.choices import certified_choices

MEBIBYTE = 2**20


def digested(content):
    content = {key: value for key, value in content.items() if key != "digest"}
    return {**content, "digest": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def certificates():
    """Small ones of every kind."""
    bridge = eb.instances.risky_bridge(horizon=4)
    rng = np.random.default_rng(0)
    lottery = eb.FiniteMDP(rng.dirichlet([1, 1], (2, 2)), rng.random((2, 2, 2)), horizon=3, start=[0.5, 0.5])
    garnet = eb.instances.garnet(3, 2, 2, horizon=3, seed=4)
    many = eb.instances.garnet(70, 2, 2, horizon=2, seed=4)  # too many states to list as successors
    goal = {"beta": -1.0, "eps": 0.01, "delta": 0.1, "max_episodes": 1000, "seed": 1}
    yield eb.identify(bridge, **goal, successors="model").certificate
    yield eb.identify(lottery, **goal, stationary=True).certificate
    yield eb.identify(garnet, **goal, successors=np.ones((3, 2, 3), dtype=bool)).certificate
    yield eb.identify(garnet, **goal, method="bernstein").certificate
    yield eb.identify(many, **goal, stationary=True).certificate
    for stationary in (True, False):
        world = eb.as_gymnasium(bridge)
        options = {"horizon": 4, "reward_range": (-0.5, 1.0), "stationary": stationary}
        yield eb.identify(world, **goal, **options).certificate


# -- the numbers that once ended the process -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contents():
    return [json.loads(json.dumps(certificate._content())) for certificate in certificates()]


def put(content, *path_and_value):
    *path, key, value = path_and_value
    for part in path:
        content = content[part]
    content[key] = value


SLOTS = ("successor", "low", "high")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("counts", "rows", 0, 10**9), "counts.rows must be an integer from 0 to"),
        (("counts", "rows", 0, -(10**6)), "counts.rows must be an integer from 0 to"),
        (("counts", "successors", 0, 10**9), "counts.successors must be an integer from 0 to"),
        (("counts", "times", 0, 0), "counts.times must be an integer from 1 to"),
        (("counts", "times", [1]), "counts.times must be"),
        (("counts", "times", 0, 10**30), "counts.times must be an integer from 1 to"),
        (("counts", "times", 0, 1.5), "counts.times must be an integer from 1 to"),
        (("counts", "rewards", [0.0]), "counts.rewards must be a list of length 0"),
        (("counts", "episodes", -1), "counts.episodes must be an integer from 0"),
        (("problem", "slots", "begin", 0, 10**9), "slots.begin must be an integer from 0 to"),
        (("problem", "slots", "used", 0, 10**9), "slots.used must not lead beyond"),
        (("problem", "slots", "used", 0, 0), "slots.used must be an integer from 1 to"),
        (("problem", "slots", "used", -1, 2), "lead beyond"),
        (("problem", "slots", "possible", 0, 3), "does not list the declared successors"),
        (("problem", "slots", "successor", 0, -1), "slots.successor must be an integer from 0 to"),
        (("problem", "slots", "low", [[0.0]]), "slots.low and slots.high must be empty"),
        (("problem", "delta", 2.0), "delta must lie strictly between 0 and 1"),
        (("problem", "eps", 0.0), "eps must lie strictly between 0 and inf"),
        (("problem", "beta", None), "either beta or alpha must be a number"),
        (("problem", "horizon", True), "horizon must be an integer"),
        (("problem", "horizon", 10**9), "slots.begin must be a list of length 16000000000"),
        (("problem", "n_states", 10**15), f"state_names must be a list of length {10**15}"),
        (("problem", "start", 99), "start must be an integer from 0"),
        (("problem", "state_names", ["a"]), "state_names must be a list of length 8"),
        (("policy", 0, 0, 2), "policy must be an integer from 0 to 1"),
        (("policy", 0, []), "policy must be a list of length 8"),
        (("claim", "gap", "small"), "claim.gap must be a finite number"),
        (("claim", "reached", None), "claim.reached must be"),
        (("assumptions", []), "the assumptions are not"),
        (("constants", "sharp"), "method 'kl' has other constants"),
        (("provenance", "preregistration", "x"), "preregistration must be a digest"),
        (("provenance", "ignored", ["beta"]), "provenance.ignored must name"),
        (("extra", 1), "certificate has an unknown key 'extra'"),
    ],
)
def test_one_wrong_number_is_an_error_that_says_what_is_expected(contents, change, message, tmp_path):
    content = json.loads(json.dumps(contents[0]))
    put(content, *change)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(digested(content)))
    with pytest.raises(eb.CertificateError, match=r"c\.json") as refused:
        eb.Certificate.load(path)
    assert message in str(refused.value)
    assert not eb.verify(path).ok


@pytest.mark.parametrize(
    ("folder", "changes"),
    [
        ("version4", [("problem", "slots", "high", [])]),
        ("version4", [("problem", "slots", name, value) for name, value in zip(SLOTS, ([], [[]], [[]]), strict=True)]),
        ("version4", [("problem", "slots", "used", [])]),
        ("version3", [("circumstances", "x")]),
        ("version3", [("circumstances", ["x"])]),
    ],
)
def test_an_environment_with_missing_parts_is_an_error_of_certificates(folder, changes, tmp_path):
    content = json.loads((Path(__file__).parent / folder / "environment.json").read_text())
    for change in changes:
        put(content, *change)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(digested(content)))
    with pytest.raises(eb.CertificateError, match=r"c\.json"):
        eb.Certificate.load(path)
    assert not eb.verify(path).ok


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(contents, constant, tmp_path):
    content = json.loads(json.dumps(contents[0]))
    put(content, "problem", "rewards", 0, 0, 0, 424242.5)
    path = tmp_path / "c.json"
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).replace("424242.5", constant).encode()).hexdigest()
    path.write_text(json.dumps({**content, "digest": digest}).replace("424242.5", constant))
    with pytest.raises(eb.CertificateError):
        eb.Certificate.load(path)
    assert not eb.verify(path).ok


def test_spectrum_reports_a_wrong_number_in_one_line(contents, tmp_path, capsys):
    content = json.loads(json.dumps(contents[0]))
    put(content, "counts", "rows", 0, 10**9)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(digested(content)))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["certify", str(path), "--beta", "0:1:1", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_object_made_in_memory_is_checked_too(contents, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(digested(contents[0])))
    certificate = eb.Certificate.load(path)
    seen = certificate.transitions
    with pytest.raises(eb.CertificateError, match=r"counts\.rows"):
        replace(certificate, transitions=seen._replace(rows=seen.rows + 10**9))


# -- any file ------------------------------------------------------------------------------------------------------

NUMBERS = [
    -1,
    0,
    1,
    2,
    10,
    10**9,
    -(10**6),
    2**31,
    2**53,
    2**63,
    -(2**63),
    10**30,
    0.5,
    -0.0,
    1e-320,
    1e300,
    -1e300,
    1e308,
]
JUNK = [
    *NUMBERS,
    None,
    True,
    False,
    "",
    "kl",
    "\ud800",
    "\x1b]0;x\x07",
    [],
    [[]],
    {},
    [None],
    [0],
    {"gap": 1},
    [[[]]] * 3,
]


def places(content, path=()):
    """Every place in a JSON content, containers included."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(content, rng):
    """One change, deep or shallow with equal chance, that leaves a JSON content."""
    every = list(places(content))
    depth = rng.choice(sorted({len(path) for path in every}))
    path = rng.choice([path for path in every if len(path) == depth])
    *folders, key = path
    container = content
    for part in folders:
        container = container[part]
    value = container[key]
    kind = rng.randrange(7)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, list):
        container.insert(key, rng.choice([value, *JUNK]))
    elif kind == 2 and type(value) in (int, float):
        container[key] = rng.choice([value + 1, value - 1, -value, 2 * value, value * 10**6, float(value), str(value)])
    elif kind == 3 and isinstance(value, list):
        container[key] = rng.choice([value[:-1], value + value, value[::-1], value + [0], value * 50])
    elif kind == 4 and isinstance(container, dict):
        container[key] = json.loads(json.dumps(container[rng.choice(list(container))]))
    elif kind == 5 and type(value) in (int, float):
        container[key] = rng.choice(NUMBERS)
    else:
        container[key] = json.loads(json.dumps(rng.choice(JUNK)))


def damaged(data, rng):
    """The bytes of a file, some of them others."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 50)]
        else:
            data[at:at] = rng.choice([b"[", b"{", b"1", b"9" * 400, b"NaN", b"-", b",", b'"', b"\xff", b"e5"])
    return bytes(data)


def read_in_every_way(path, beta):
    """What the library does with a certificate file; whether it is one."""
    eb.verify(path)
    try:
        run = eb.Certificate.load(path)
        certified_choices(eb.certify(run, beta=beta))
    except eb.EntropicBPIError:
        return False
    return True


def fuzz(folder, many, seed):
    """Read ``many`` changed files; one line says how many were certificates and how much memory was needed for all."""
    rng, path = random.Random(seed), Path(folder) / "fuzzed.json"
    originals = [json.dumps(certificate._content()) for certificate in certificates()]
    for original in originals:
        path.write_text(json.dumps(digested(json.loads(original))))
        assert read_in_every_way(path, 0.5)
    before, read, largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, 0
    for i in range(many):
        content = json.loads(rng.choice(originals))
        if rng.random() < 0.1:
            path.write_bytes(damaged(json.dumps(digested(content), indent=1).encode(), rng))
        else:
            for _ in range(rng.choice([1, 1, 2, 3])):
                mutated(content, rng)
            path.write_text(json.dumps(digested(content)))
        largest = max(largest, path.stat().st_size)
        try:
            read += read_in_every_way(path, rng.choice([-2.0, 0.0, 1e-9, 3.0]))
        except Exception:
            traceback.print_exc()
            sys.exit(f"file {i} of seed {seed}: {path.read_bytes()[:20_000]!r}")
    needed = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"read": read, "largest": largest, "needed": 1024 * needed}))


@pytest.mark.parametrize("many", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_file_ends_the_process_or_raises_an_error_that_is_not_ours(many, tmp_path):
    command = [sys.executable, __file__, str(tmp_path), str(many), str(many)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout)
    assert 0 < told["read"] < many / 2  # some changes are harmless, most are not
    assert told["needed"] <= 20 * told["largest"] + 64 * MEBIBYTE


# -- memory ----------------------------------------------------------------------------------------------------------


def test_a_file_of_brackets_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "c.json"
    path.write_bytes(b"[" + b"[]," * 10**6 + b"[]]")
    assert "in memory" in eb.verify(path).problems[0]
    with pytest.raises(eb.CertificateError, match="in memory"):
        eb.Certificate.load(path)


def test_a_small_file_about_a_huge_problem_is_refused(tmp_path):
    """Pooled counts of one state: the file grows with actions plus steps, planning with their product."""
    single = eb.FiniteMDP([[[1.0]]], [[0.0]], horizon=1)
    content = eb.identify(single, beta=1.0, eps=1.0, delta=0.1, stationary=True, seed=0).certificate._content()
    actions, horizon = 20_000, 20_000
    content["policy"] = [[0]] * horizon
    content["problem"].update(n_actions=actions, horizon=horizon, rewards=[[[0.0] * actions]])
    content["problem"]["action_names"] = [str(a) for a in range(actions)]
    content["problem"]["slots"].update(begin=[0] * actions, used=[1] * actions, possible=[1] * actions)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(digested(content)))
    with pytest.raises(eb.CertificateError, match="planning would take 3200000000 bytes of memory"):
        eb.Certificate.load(path)


def growth(path):
    """How much memory reading a large file takes, after a small one was read."""
    small = Path(path).with_name("small.json")
    read_in_every_way(small, 0.5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_in_every_way(path, 0.5)
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


@pytest.mark.slow
@pytest.mark.parametrize("stationary", [False, True])
def test_a_large_file_takes_memory_in_proportion(stationary, tmp_path):
    options = {"beta": -0.1, "eps": 0.01, "delta": 0.1, "replan": 0.9, "seed": 1, "successors": "model"}
    for name, n_states, horizon in (("small", 20, 3), ("large", 500, 20)):
        garnet = eb.instances.garnet(n_states, 4, 3, horizon=horizon, seed=4)
        run = eb.identify(garnet, **options, stationary=stationary, max_episodes=20_000)
        run.certificate.save(tmp_path / f"{name}.json")
    path = tmp_path / "large.json"
    done = subprocess.run([sys.executable, __file__, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 20 * path.stat().st_size


if __name__ == "__main__":
    if len(sys.argv) == 2:
        growth(sys.argv[1])
    else:
        fuzz(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
