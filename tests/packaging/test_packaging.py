"""What users get: on systems without Unix, with type checkers, and as packages."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import entropic_bpi as eb

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

WITHOUT_UNIX = """
import os, signal, sys
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("sched_getaffinity", "sysconf"):
    delattr(os, name)
for name in [name for name in dir(signal) if name.startswith("SIG") and name not in ("SIGINT", "SIG_DFL", "SIG_IGN")]:
    delattr(signal, name)

import entropic_bpi as eb

bridge = eb.instances.risky_bridge(horizon=5)
goal = {"beta": -1.0, "eps": 2.0, "delta": 0.1, "successors": "model", "seed": 1}
result = eb.identify(bridge, **goal, checkpoint=sys.argv[1] + "/checkpoint")
assert eb.verify(result.certificate).ok
result.certificate.save(sys.argv[1] + "/certificate.json")
print(eb.forecast(bridge, **goal, trial_episodes=20).trial.episodes)
"""


def test_nothing_needs_unix(tmp_path):
    (tmp_path / "run").mkdir()
    words = [sys.executable, "-c", WITHOUT_UNIX, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) <= 20


CLIENT = """
import numpy as np
import entropic_bpi as eb

mdp: eb.FiniteMDP = eb.FiniteMDP([[[1.0]]], [[1.0]], horizon=2)
loaded: eb.FiniteMDP = eb.FiniteMDP.load("x.csv", horizon=3)
value: float = eb.solve(mdp, 0.0).value
result: eb.Identification = eb.identify(mdp, beta=-1.0, eps=0.1, delta=0.1)
gap: float = result.certificate.gap
policy: np.ndarray = result.policy
ok: bool = eb.verify(result.certificate).ok
reveal_type(eb.from_quantecon)
wrong: str = eb.solve(mdp, 0.0).value
"""


@pytest.mark.slow
def test_a_type_checker_sees_the_types_from_outside(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "client.py").write_text(CLIENT)
    # Kept, so that the next check is quick.
    cache = os.environ.get("MYPY_CACHE_DIR", str(ROOT / ".mypy_cache" / "client"))
    words = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", cache, "client.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert 'client.py:13: error: Incompatible types in assignment (expression has type "float"' in errors[0]
    assert re.search(r'Revealed type is ".*horizon.*int.*FiniteMDP', done.stdout)


# -- what is written in several places -----------------------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / "recipe").exists(), reason="not in the sdist")
def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text()
    run = re.search(r"  run:\n(.*?)  run_constrained", recipe, re.DOTALL)[1]
    asked = {line.strip(" -").replace(" ", "").replace("matplotlib-base", "matplotlib") for line in run.splitlines()}
    assert asked == {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not in the sdist")
def test_a_release_has_a_version_and_notes():
    def told(word):
        return subprocess.run(
            [sys.executable, ROOT / ".ci" / "release", word], capture_output=True, check=True
        ).stdout.decode()

    assert told("version").strip() == eb.__version__
    notes = told("notes")
    assert notes.startswith("###")
    assert "\n## " not in notes
    assert notes.strip() in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_extra_is_in_the_table_of_the_documentation():
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", page, re.MULTILINE))
    assert set(rows) == set(PROJECT["optional-dependencies"]) - {"test", "docs", "browser"}
    assert all(re.fullmatch(r"(about )?[0-9.]+ MB", size) for size in rows.values())
