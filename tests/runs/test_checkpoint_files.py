"""A checkpoint that is damaged, or made by somebody else, ends in one of our errors or in a run, never in a crash."""

import hashlib
import json
import math
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.runs import checkpoint as module

FIRST_LINE = b"entropic-bpi checkpoint 4\n"
DIGEST = 32
GOAL = {"delta": 0.1, "seed": 3, "eps": 1e-3}
GARNET = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
KINDS = {
    "kl": (GARNET, {"beta": 1.0}),
    "every": (GARNET, {"beta": -1.0, "replan": "every"}),
    "mask": (GARNET, {"beta": 1.0, "successors": "model", "stationary": True}),
    "many states": (eb.instances.garnet(80, 2, 3, horizon=2, seed=2), {"beta": 1.0}),
    "bernstein": (GARNET, {"beta": 1.0, "method": "bernstein"}),
    "black box": ("FrozenLake-v1", {"beta": -1.0, "horizon": 3, "reward_range": (0, 1)}),
}


def run(kind, path, episodes):
    source, options = KINDS[kind]
    return eb.identify(source, **GOAL, **options, checkpoint=path, max_episodes=episodes)


def taken_apart(content):
    """The header, and the bytes of each array."""
    line, rest = content[len(FIRST_LINE) : -DIGEST].split(b"\n", 1)
    header, arrays = json.loads(line), {}
    for name, dtype in module._ARRAYS.items():
        size = header["lengths"][name] * dtype.itemsize
        arrays[name], rest = rest[:size], rest[size:]
    assert rest == b""
    return header, arrays


def put_together(header, arrays):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = FIRST_LINE + text + b"\n" + b"".join(arrays.values())
    return content + hashlib.sha256(content).digest()


# -- one thing at a time -------------------------------------------------------------------------------------------


def changed(**parts):
    """A mutation of the header."""
    return lambda header, arrays: put_together(header | parts, arrays)


def with_number(name, index, value):
    """A mutation of one number of an array."""

    def mutation(header, arrays):
        dtype = module._ARRAYS[name]
        numbers = np.frombuffer(arrays[name], dtype if dtype.names is None else "<i8").copy()
        numbers[index] = value
        return put_together(header, arrays | {name: numbers.tobytes()})

    return mutation


def with_generator(**parts):
    return lambda header, arrays: put_together(header | {"rng": header["rng"] | parts}, arrays)


DAMAGES = {
    "its header is not JSON": lambda header, arrays: put_together(b"[" * 100_000, arrays),
    "it has no header": lambda header, arrays: put_together(b"[" * (1 << 21), arrays),
    "its header has other entries": changed(more=1),
    "episodes has the wrong type": changed(episodes="20"),
    "round has the wrong type": changed(round=True),
    "facts are not all text": changed(facts={"beta": "\x1b]0;retitled"}),
    "round does not fit the episodes": changed(round=10**9),
    "seconds are not a time": changed(seconds=math.nan),
    "errors is not a count": changed(errors=-1),
    "preregistration is no digest": changed(preregistration="\x1b]0;retitled"),
    "rng has other entries": changed(rng={}),
    "rng is not a PCG64": with_generator(bit_generator="MT19937"),
    "rng is out of range": with_generator(state={"state": 1 << 128, "inc": 1}),
    "it has other arrays": changed(lengths={}),
    "its arrays have other lengths": lambda header, arrays: put_together(
        header | {"lengths": header["lengths"] | {"history": 10**15}}, arrays
    ),
    "a length is not a natural number": lambda header, arrays: put_together(
        header | {"lengths": header["lengths"] | {"history": -1}}, arrays
    ),
    "history is not in order": with_number("history", 0, 10**9),
    "seen_rows are out of range": with_number("seen_rows", 0, 10**9),
    "best_rows are out of range": with_number("best_rows", -1, -(10**6)),
    "seen_successors are out of range": with_number("seen_successors", 0, 3),
    "seen_times are out of range": with_number("seen_times", 0, 0),
    "seen_times are not those of 20 episodes": with_number("seen_times", 0, 1 << 61),
    "best is no plan": changed(best=[math.nan, 1.0, 1.0, 3]),
    "best does not fit the episodes": changed(best=[0.0, 1.0, 1.0, 21]),
    "is not an action": with_number("best_policy", 0, 10**12),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_every_part_is_checked_before_it_is_used(message, tmp_path):
    path = tmp_path / "run.ckpt"
    run("kl", path, 20)
    damaged = DAMAGES[message](*taken_apart(path.read_bytes()))
    path.write_bytes(damaged)
    with pytest.raises(eb.InvalidProblemError, match=rf"is not a checkpoint of entropic-bpi: .*{message}"):
        run("kl", path, 40)
    assert path.read_bytes() == damaged


def test_the_seed_of_a_file_that_decides_is_checked_too(tmp_path):
    path = tmp_path / "run.ckpt"
    eb.identify(GARNET, **GOAL | {"seed": None}, beta=1.0, checkpoint=path, max_episodes=20)
    path.write_bytes(changed(seed=-3)(*taken_apart(path.read_bytes())))
    with pytest.raises(eb.InvalidProblemError, match="seed is negative"):
        eb.identify(GARNET, **GOAL | {"seed": None}, beta=1.0, checkpoint=path, max_episodes=20)


def test_times_that_wrap_around_are_refused(tmp_path):
    """Their sum as 64-bit integers is right."""
    path = tmp_path / "run.ckpt"
    run("kl", path, 20)
    header, arrays = taken_apart(path.read_bytes())
    times = np.frombuffer(arrays["seen_times"], "<i8").copy()
    times[:4] += 1 << 62
    assert times.sum() == 60
    path.write_bytes(put_together(header, arrays | {"seen_times": times.tobytes()}))
    with pytest.raises(eb.InvalidProblemError, match="seen_times are"):
        run("kl", path, 40)


def test_counts_that_were_declared_impossible_are_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    run("mask", path, 20)
    header, arrays = taken_apart(path.read_bytes())
    rows, successors = (np.frombuffer(arrays[name], "<i8").copy() for name in ("seen_rows", "seen_successors"))
    possible = GARNET.rows.indices[GARNET.rows.indptr[rows[0]] : GARNET.rows.indptr[rows[0] + 1]]
    successors[0] = min({0, 1, 2} - set(possible.tolist()))
    path.write_bytes(put_together(header, arrays | {"seen_successors": successors.tobytes()}))
    with pytest.raises(eb.InvalidProblemError, match="is not a checkpoint of entropic-bpi: the declared successors"):
        run("mask", path, 40)


@pytest.mark.parametrize("reward", [math.nan, math.inf, 2.0])
def test_rewards_outside_the_declared_range_are_refused(reward, tmp_path):
    path = tmp_path / "run.ckpt"
    run("black box", path, 20)
    path.write_bytes(with_number("seen_rewards", 0, reward)(*taken_apart(path.read_bytes())))
    with pytest.raises(eb.InvalidProblemError, match="seen_rewards are out of range"):
        run("black box", path, 40)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("by_step_rows", 0, 68, "by_step is out of range"),
        ("by_step_groups", 0, 3, "by_step is out of range"),
        ("by_step_times", 0, 10**6, "by_step does not agree with the counts"),
        ("by_previous_groups", 0, -2, "by_previous is out of range"),
        ("by_previous_times", 0, 1 << 62, "by_previous is out of range"),
        ("by_previous_rewards", 0, math.nan, "by_previous is out of range"),
        ("over_time_rows", 0, 69, "over_time is out of range"),
        ("over_time_groups", 0, 300, "over_time is out of range"),
        ("over_time_successors", 0, -1, "over_time is out of range"),
        ("returns", 5, 1, "returns are not those of 20 episodes"),
        ("returns", 5, -1, "returns are not those of 20 episodes"),
    ],
)
def test_what_was_seen_beside_the_counts_is_checked(name, index, value, message, tmp_path):
    path = tmp_path / "run.ckpt"
    run("black box", path, 20)
    path.write_bytes(with_number(name, index, value)(*taken_apart(path.read_bytes())))
    with pytest.raises(eb.InvalidProblemError, match=message):
        run("black box", path, 40)


def test_reading_takes_a_few_times_the_size_of_the_file(tmp_path):
    path, times = tmp_path / "run.ckpt", 2_000_000
    run("kl", path, 20)
    header, arrays = taken_apart(path.read_bytes())
    arrays |= {f"seen_{name}": np.zeros(times, "<i8").tobytes() for name in ("rows", "successors", "times")}
    header["lengths"] |= {f"seen_{name}": times for name in ("rows", "successors", "times")}
    path.write_bytes(put_together(header, arrays))
    code = (
        "import test_checkpoint_files as tests\n"
        "before = tests.peak_megabytes()\n"
        f"try: tests.run('kl', {str(path)!r}, 40)\n"
        "except tests.eb.InvalidProblemError as error: print(tests.peak_megabytes() - before, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    grown, message = done.stdout.split(" ", 1)
    assert "seen_times are out of range" in message
    assert float(grown) < 5 * path.stat().st_size / 2**20


# -- many things at random -----------------------------------------------------------------------------------------

ODD = [
    None,
    True,
    -1,
    0,
    1,
    7,
    1 << 31,
    1 << 63,
    10**30,
    -(10**30),
    0.5,
    1e308,
    math.nan,
    math.inf,
    "",
    "x",
    [],
    {},
    [[]],
]
ODD_INTEGERS = [0, 1, -1, 2, 17, 60, 10**6, 10**9, -(10**6), 1 << 62, (1 << 63) - 1, -(1 << 63)]
ODD_NUMBERS = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e308, math.nan, math.inf, -math.inf]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def mutate_header(rng, header, arrays):
    """Change a value at any depth."""
    inside, name = header, pick(rng, list(header))
    while isinstance(inside[name], (dict, list)) and inside[name] and rng.random() < 0.8:
        inside = inside[name]
        name = pick(rng, list(inside) if isinstance(inside, dict) else range(len(inside)))
    if isinstance(inside, dict) and rng.random() < 0.1:
        del inside[name]
    elif isinstance(inside[name], int) and rng.random() < 0.5:
        inside[name] += int(rng.integers(-3, 4))
    else:
        inside[name] = pick(rng, ODD)


def mutate_number(rng, header, arrays):
    name = pick(rng, [name for name in arrays if arrays[name]])
    kind = "<i8" if name == "history" else module._ARRAYS[name].str
    numbers = np.frombuffer(arrays[name], kind).copy()
    index = int(rng.integers(len(numbers)))
    if kind == "|u1":
        numbers[index] = rng.integers(256)
    elif kind == "<f8":
        numbers[index] = pick(rng, ODD_NUMBERS)
    elif rng.random() < 0.7:
        numbers[index] = pick(rng, ODD_INTEGERS)
    else:
        numbers[index : index + 1] += rng.integers(-2, 3)
    arrays[name] = numbers.tobytes()


def mutate_length(rng, header, arrays):
    """Make an array shorter or longer, with or without telling; or move the border between two."""
    names = list(arrays)
    name, other = pick(rng, names), pick(rng, names)
    size = module._ARRAYS[name].itemsize
    if rng.random() < 0.3:
        header["lengths"][name] += 1
        header["lengths"][other] -= 1
        return
    arrays[name] = arrays[name][:-size] if rng.random() < 0.5 else arrays[name] + rng.bytes(size)
    if rng.random() < 0.8:
        header["lengths"][name] = len(arrays[name]) // size


def mutate_transition(rng, header, arrays):
    """Move a transition elsewhere, keeping all totals: nothing may be wrong but the counts themselves."""
    prefix = pick(rng, ("seen", "best"))
    for part, most in (("rows", 40), ("successors", 85)):
        numbers = np.frombuffer(arrays[f"{prefix}_{part}"], "<i8").copy()
        if len(numbers):
            numbers[int(rng.integers(len(numbers)))] = rng.integers(most)
        arrays[f"{prefix}_{part}"] = numbers.tobytes()


def mutated(rng, content):
    if rng.random() < 0.1:  # without a fitting digest
        place = int(rng.integers(len(content)))
        return content[:place] + rng.bytes(1) + content[place + int(rng.integers(3)) :]
    if rng.random() < 0.1:  # any bytes, with one
        body = bytearray(content[:-DIGEST])
        for _ in range(int(rng.integers(1, 9))):
            body[int(rng.integers(len(body)))] = int(rng.integers(256))
        return bytes(body) + hashlib.sha256(bytes(body)).digest()
    header, arrays = taken_apart(content)
    for _ in range(int(rng.integers(1, 4))):
        # Unless an earlier mutation has left nothing to change.
        with suppress(TypeError, KeyError, AttributeError, OverflowError):
            pick(rng, (mutate_header, mutate_number, mutate_length, mutate_transition))(rng, header, arrays)
    return put_together(header, arrays)


def peak_megabytes():
    """The most memory that this process has had; where Linux does not tell, nothing is compared."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def fuzz(folder, times, seed):
    """Take up mutated files of every kind; how many ended in our errors and how many went on, and the memory it took."""
    rng, path = np.random.default_rng(seed), Path(folder) / "run.ckpt"
    originals = {}
    for kind in KINDS:
        run(kind, path, 20)
        originals[kind] = path.read_bytes()
        run(kind, path, 40)  # compiles what going on needs
        path.unlink()
    module.write_atomically = lambda path, write: None
    before = peak_megabytes()
    outcomes = {"refused": 0, "went on": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(times):
            kind = list(KINDS)[i % len(KINDS)]
            path.write_bytes(mutated(rng, originals[kind]))
            try:
                run(kind, path, 40)
                outcomes["went on"] += 1
            except eb.EntropicBPIError:
                outcomes["refused"] += 1
    print(json.dumps(outcomes | {"megabytes": peak_megabytes() - before}))


def fuzz_in_a_process_of_its_own(folder, times, seed):
    """A crash of the process is a failure of the test, not of pytest."""
    code = f"import test_checkpoint_files as tests; tests.fuzz({str(folder)!r}, {times}, {seed})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout)
    assert outcomes["refused"] > 0.5 * times
    assert outcomes["went on"] > 0
    assert outcomes["megabytes"] < 30
    return outcomes


def test_mutated_checkpoints_never_crash(tmp_path):
    fuzz_in_a_process_of_its_own(tmp_path, 300, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_mutated_checkpoints_never_crash(tmp_path, seed):
    fuzz_in_a_process_of_its_own(tmp_path, 6_000, seed=seed)
