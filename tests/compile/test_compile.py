"""A cache of compiled code that fails costs time, never a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
JOB = """
import sys, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from entropic_bpi.compile.decorators import compiled

    @compiled
    def double(x):
        return 2 * x

    @compiled
    def triple(x):
        return 3 * x

    assert double(21) == 42 and triple(14) == 42
print(len(told), *(str(warning.message) for warning in told), sep="|")
"""


LINKED = """
import gc, time
from entropic_bpi.compile.decorators import compile_clock, compiled, inner, run_clock

begun = []
compile_clock.observers.append(lambda: begun.append(gc.isenabled()))

@inner
def doubled(x):
    return 2 * x

@compiled
def tripled(x, times=3):
    return times * x

@compiled
def entry(x):
    return doubled(x) + doubled(1) + tripled(x) + tripled(0)

began, before = time.perf_counter(), run_clock()
assert entry(8) == 42 and tripled(14) == 42
apart = time.perf_counter() - began - (run_clock() - before) - compile_clock.seconds
print(len(begun), compile_clock.seconds > 0, abs(apart) < 1e-3, gc.isenabled())
print(len(doubled.signatures), len(tripled.part.signatures))
"""

PARALLEL = """
from threading import Thread
import numpy as np
from numba import njit, prange
from numba.core.codegen import CPUCodeLibrary
from entropic_bpi.compile.decorators import inner, parallel

optimised, usual = [], CPUCodeLibrary._optimize_final_module

def note(library):
    optimised.append(library.name)
    usual(library)

CPUCodeLibrary._optimize_final_module = note

@inner
def doubled(x):
    return 2 * x

def fill(values, rounds):
    for _ in range(rounds):
        for i in prange(values.size):
            values[i] += doubled(i)
    return values.sum()

@njit
def by_numba(values):
    return doubled(values.size)

threaded = parallel(fill)
values, jobs = [np.zeros(4), np.zeros(4, dtype=np.int64)], []
for array in values:
    jobs.append(Thread(target=threaded, args=(array, 2)))
    jobs.append(Thread(target=by_numba, args=(array.astype(np.int32),)))
for job in jobs:
    job.start()
for job in jobs:
    job.join()
assert all((array == [0, 4, 8, 12]).all() for array in values) and by_numba(np.arange(3)) == 6
print(len(threaded.signatures), sum("parfor" in name or "wrapper" in name for name in optimised), "by_numba" in optimised)
"""


def run(folder, text=JOB, **more):
    job = folder / "job.py"
    if not job.exists():
        job.write_text(text)
    path = os.pathsep.join(filter(None, [str(SOURCES) if SOURCES.is_dir() else "", os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, **more}
    result = subprocess.run([sys.executable, str(job)], capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_writable_cache_is_used_in_silence(tmp_path):
    cache = tmp_path / "cache"
    assert run(tmp_path, NUMBA_CACHE_DIR=str(cache)) == "0"
    kept = sorted(cache.rglob("*.nbc"))
    assert len(kept) == 2
    before = [file.stat().st_mtime_ns for file in kept]
    assert run(tmp_path, NUMBA_CACHE_DIR=str(cache)) == "0"
    assert [file.stat().st_mtime_ns for file in kept] == before


def test_parts_are_compiled_once_for_all_constants_and_kept_with_their_entry_alone(tmp_path):
    cache = tmp_path / "cache"
    first, second = (run(tmp_path, LINKED, NUMBA_CACHE_DIR=str(cache)).splitlines() for _ in range(2))
    assert first == ["2 True True True", "1 1"]  # the entry, with all of its parts, and what Python called besides
    assert second == ["0 False True True", "0 0"]
    assert len(list(cache.rglob("*.nbc"))) == 2


def test_bodies_of_parallel_loops_are_parts_of_their_entry_whoever_compiles_meanwhile(tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        assert run(tmp_path, PARALLEL, NUMBA_CACHE_DIR=str(cache)) == "2 0 True"
    assert len(list(cache.rglob("*.nbc"))) == 2


def test_a_cache_that_can_no_longer_be_written_costs_one_warning(tmp_path):
    """As in a folder that has become read-only: root may write to those."""
    cache = tmp_path / "cache"
    vanish = f"import pathlib, shutil; shutil.rmtree({str(cache)!r}); pathlib.Path({str(cache)!r}).touch()"
    told = run(tmp_path, JOB.replace("    assert", f"    {vanish}\n    assert"), NUMBA_CACHE_DIR=str(cache))
    assert told.startswith("1|compiled code cannot be cached")


def test_no_folder_for_the_cache_costs_one_warning(tmp_path):
    """A file where every folder would have to be: root may write anywhere else."""
    blocked = tmp_path / "file"
    blocked.touch()
    (tmp_path / "__pycache__").touch()
    told = run(tmp_path, NUMBA_CACHE_DIR=str(blocked / "cache"), XDG_CACHE_HOME=str(blocked), HOME=str(blocked))
    assert told.startswith("1|compiled code cannot be cached")
    assert "NUMBA_CACHE_DIR" in told


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        pytest.param("*.nbi", b"\x80\x05garbage", marks=pytest.mark.slow),
        ("*.nbc", None),
        pytest.param("*.nbi", b"", marks=pytest.mark.slow),
        pytest.param("*.nbi", None, marks=pytest.mark.slow),
        pytest.param("*.nbc", b"", marks=pytest.mark.slow),
        pytest.param("*.nbc", b"\x80\x05garbage", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_cache_is_made_anew(tmp_path, kind, damage):
    cache = tmp_path / "cache"
    run(tmp_path, NUMBA_CACHE_DIR=str(cache))
    files = list(cache.rglob(kind))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:40] if damage is None else damage)
    run(tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert run(tmp_path, NUMBA_CACHE_DIR=str(cache)) == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs resource limits")
def test_a_full_disk_costs_one_warning(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        + JOB.replace(
            "import sys, warnings",
            "import sys, warnings\nimport numba\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))",
        )
    )
    told = run(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert told.startswith("1|compiled code cannot be cached")


def test_no_other_module_calls_numba_directly():
    import entropic_bpi

    package = Path(entropic_bpi.__file__).parent
    calling = [
        file.name for file in package.rglob("*.py") if "njit" in file.read_text() and file.name != "decorators.py"
    ]
    assert calling == []


FALLBACK = """
import sys, warnings
if "broken" in sys.argv:
    sys.modules["entropic_bpi.compile.linking"] = None  # as if Numba lacked something that it needs
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from entropic_bpi.compile import decorators
import numpy as np

@decorators.inner
def doubled(x):
    return 2 * x

@decorators.compiled
def entry(x):
    return doubled(x)

def fill(values):
    for i in decorators.numba.prange(values.size):
        values[i] = doubled(i)

values = np.zeros(3)
decorators.parallel(fill)(values)
assert entry(21) == 42 and values.sum() == 6
print(decorators.linking is None, len(told), *(str(warning.message)[:33] for warning in told))
"""


def test_without_the_internals_of_numba_kernels_are_compiled_in_its_own_way(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(FALLBACK)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def told(*words, **more):
        command = [sys.executable, str(job), *words]
        done = subprocess.run(command, capture_output=True, text=True, env={**environment, **more}, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert told() == "False 0"
    assert told("broken") == "True 1 kernels are compiled in Numba's o"
    assert told(ENTROPIC_BPI_PLAIN_NUMBA="1") == "True 0"


BOTH_WAYS = """
import entropic_bpi as eb
from entropic_bpi.methods.kl import method

def claim(**options):
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1, "max_episodes": 300, "successors": "model"}
    made = eb.identify(MODEL, **goal, **options).certificate
    print(made.lower, made.upper, made.gap, made.policy.tolist())

MODEL = eb.instances.garnet(6, 3, 3, horizon=4, seed=1)
claim(stationary=False)
claim(stationary=False, replan="every")
claim(stationary=True)
method._PARALLEL_PAIRS = 1
claim(stationary=False, replan=0.3)
"""


@pytest.mark.slow
@pytest.mark.sample
def test_results_are_the_same_in_both_ways(tmp_path):
    """By one thread and by several, with boxes, and where Python calls the kernel of a whole run."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", BOTH_WAYS]
    own, linked = (
        subprocess.run(command, capture_output=True, text=True, env={**environment, **way}, check=True).stdout
        for way in ({"ENTROPIC_BPI_PLAIN_NUMBA": "1"}, {})
    )
    assert own.count("\n") == 4
    assert own == linked
