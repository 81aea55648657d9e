"""A sweep is data: ids, hashes, products, and errors that name what is wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi import experiments
from entropic_bpi.lab.experiments import SweepError, grid, read_sweep


def test_an_id_is_readable_and_leaves_out_what_is_the_papers():
    (run,) = grid(horizon=7, method="kl", beta=2.5, successors="model", seeds=[3])
    assert run.id == "risky_bridge/h7/beta=2.5/kl/successors=model/seed=3"
    (run,) = grid(horizon=5, learner="rsq", beta=-1, episodes=100, delta=0.05, seeds=1, params={"p_dash": 0.5})
    assert run.id == "risky_bridge/h5/p_dash=0.5/beta=-1/rsq/delta=0.05/episodes=100/seed=0"


def test_a_grid_is_the_product_of_its_axes_and_all_ids_and_hashes_differ():
    runs = grid(horizon=[5, 7], method=["kl", "bernstein"], beta=np.array([1.0, 2.0]), eps=[0.2, 0.5], seeds=3)
    assert len(runs) == 2 * 2 * 2 * 2 * 3
    assert len({run.id for run in runs}) == len({run.hash for run in runs}) == len(runs)


def test_the_hash_depends_on_the_content_of_the_model_and_not_on_where_it_lies(tmp_path):
    hashes = []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / folder).mkdir()
        eb.instances.garnet(3, 2, 2, horizon=3, seed=seed).save(tmp_path / folder / "model.npz")
        (run,) = grid(instance="model.npz", folder=tmp_path / folder, method="kl", beta=1, seeds=1)
        assert run.id == "model.npz/h3/beta=1/kl/seed=0"
        hashes.append(run.hash)
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"beta": float("nan")}, "finite"),
        ({"eps": 0}, "greater than 0"),
        ({"delta": [0.1, 1.0]}, "between 0 and 1"),
        ({"method": "kI"}, "kl, bernstein"),
        ({"seeds": [1, 1]}, "differ"),
        ({"seeds": -1}, "at least 1"),
        ({"eps": []}, "empty"),
        ({"bonus": 3}, "unknown option"),
        ({"constants": "sharp"}, "bernstein"),
        ({"stationary": "yes"}, "True or False"),
        ({"instance": "bridge"}, "unknown source"),
        ({"instance": "missing.npz"}, "missing.npz"),
        ({"horizon": 0}, "at least 1"),
        ({"params": {"p_dash": 2}}, "p_dash"),
        ({"params": {"horizon": 2}}, "axis"),
        ({"learner": "rsq"}, "either"),
    ],
)
def test_bad_axes_are_named(wrong, words):
    with pytest.raises(eb.InvalidProblemError, match=words):
        grid(**({"horizon": 7, "method": "kl", "beta": 1.0, "seeds": 2} | wrong))


def test_learners_need_episodes_and_know_their_own_parameters():
    with pytest.raises(SweepError, match="episodes"):
        grid(learner="rsq", beta=1, seeds=1)
    assert len(grid(learner="rsvi2", beta=1, seeds=1, episodes=10, c=[0.5, 1.0])) == 2
    with pytest.raises(SweepError, match="expected one of episodes, delta, scale, ties"):
        grid(learner=["rsvi2", "rovi"], beta=1, seeds=1, episodes=10, c=0.5)


SWEEP = """\
# two blocks

[[runs]]
instance = "risky-bridge"
horizon = [
    5,
    7,
]
method = "kl"
beta = [1.0, 2.0]
seeds = 2

[[runs]]
learner = ["rsq", "rovi"]
episodes = 100
beta = 1.0
seeds = [3, 4]
[runs.params]
p_dash = 0.5
"""


def test_a_file_and_the_python_equivalent_are_the_same_sweep(tmp_path):
    (tmp_path / "mine.toml").write_text(SWEEP)
    runs = grid(horizon=[5, 7], method="kl", beta=[1.0, 2.0], seeds=2)
    runs += grid(learner=["rsq", "rovi"], episodes=100, beta=1.0, seeds=[3, 4], params={"p_dash": 0.5})
    assert [run.hash for run in read_sweep(tmp_path / "mine.toml").runs] == [run.hash for run in runs]


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        ("    7,\n", "    0,\n", "block 1", "horizon"),
        ('method = "kl"', 'method = "lk"', "block 1", "method"),
        ("beta = [1.0, 2.0]", 'beta = [1.0, "x"]', "block 1", "beta"),
        ("seeds = 2", "seeds = 2\nmax_episode = 10", "block 1", "max_episode"),
        ("beta = [1.0, 2.0]", "", "block 1", "needs beta"),
        ("episodes = 100", "", "block 2", "episodes"),
        ('learner = ["rsq", "rovi"]', 'learner = ["rsq", "rowi"]', "block 2", "rowi"),
        ("p_dash = 0.5", "p_dash = 1.5", "block 2", "p_dash"),
        ("# two blocks", "workers = 3", "mine.toml", "workers"),
        ("horizon = [", "horizon = {", "line 5", "line 5"),
    ],
)
def test_errors_in_a_file_point_at_the_block(tmp_path, old, new, where, words):
    path = tmp_path / "mine.toml"
    path.write_text(SWEEP.replace(old, new))
    with pytest.raises(SweepError, match=words) as caught:
        read_sweep(path)
    assert str(path) in str(caught.value)
    assert where in str(caught.value)


OWN_LEARNER = """
from entropic_bpi.lab.learners import register

def idle(game):
    return lambda first, last: None

register("idle_of_a_sweep", idle)
"""
IMPORTING = """imports = ["{}"]
[[runs]]
learner = "idle_of_a_sweep"
episodes = 5
beta = 1.0
seeds = 1
"""


def test_a_sweep_imports_from_its_folder_before_it_checks_the_names_of_learners(tmp_path, monkeypatch):
    monkeypatch.setattr("entropic_bpi.lab.learners._run._REGISTERED", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "learners_of_a_sweep.py").write_text(OWN_LEARNER)
    path = tmp_path / "mine.toml"
    path.write_text(IMPORTING.format("learners_of_a_sweep"))
    try:
        sweep = read_sweep(path)
    finally:
        sys.modules.pop("learners_of_a_sweep", None)
    assert ([run.algorithm for run in sweep.runs], sweep.imports) == (["idle_of_a_sweep"], ["learners_of_a_sweep"])
    path.write_text(IMPORTING.format("no_such_module_anywhere"))
    with pytest.raises(SweepError, match=r"mine\.toml: imports: No module named 'no_such_module_anywhere'"):
        read_sweep(path)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("", "missing a required argument: 'n_states'; .* parameters of the instance belong in params"),
        ("n_states = 5", "unknown option 'n_states': .* parameters of the instance belong in params"),
        (
            "params = { n_states = 5 }",
            "missing a required argument: 'n_actions'; .* belong in params, except its horizon",
        ),
    ],
)
def test_an_instance_without_its_parameters_is_told_where_they_belong(tmp_path, entry, words):
    block = f'[[runs]]\ninstance = "garnet"\nhorizon = 3\nmethod = "kl"\nbeta = 1.0\nseeds = 1\n{entry}\n'
    (tmp_path / "mine.toml").write_text(block)
    with pytest.raises(SweepError, match=words):
        read_sweep(tmp_path / "mine.toml")


def test_parameters_of_an_instance_are_axes_too(tmp_path):
    params = "params = { n_states = [4, 5], n_actions = 2, branching = 2, seed = [0, 1, 2] }"
    block = f'[[runs]]\ninstance = "garnet"\nhorizon = 3\nmethod = "kl"\nbeta = 1.0\nseeds = 2\n{params}\n'
    (tmp_path / "mine.toml").write_text(block)
    runs = read_sweep(tmp_path / "mine.toml").runs
    assert len(runs) == 2 * 3 * 2
    assert {run.mdp.n_states for run in runs} == {4, 5}


def test_an_error_in_the_last_line_of_a_long_file_is_found_at_once(tmp_path):
    block = '[[runs]]\nmethod = "kl"\nhorizon = 2\nbeta = 1.0\nseeds = 1\n'
    (tmp_path / "long.toml").write_text(1200 * block + block.replace("seeds = 1", "seeds = 0"))
    began = time.perf_counter()
    with pytest.raises(SweepError, match=r"block 1201 .*seeds"):
        read_sweep(tmp_path / "long.toml")
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#" * 2_000_000, "at most 1000000 bytes"),
        ("imports = " + "[" * 50_000, "recursion"),
        (f"x = {'1' * 5000}", "digits"),
    ],
)
def test_a_file_that_would_take_for_ever_is_refused(tmp_path, text, words):
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(SweepError, match=rf"odd\.toml: .*{words}"):
        read_sweep(tmp_path / "odd.toml")


def test_a_missing_or_binary_file_is_a_clear_error(tmp_path):
    with pytest.raises(SweepError, match=r"nothing\.toml"):
        read_sweep(tmp_path / "nothing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SweepError, match=r"binary\.toml"):
        read_sweep(tmp_path / "binary.toml")


def test_the_commands_load_without_the_heavy_modules():
    script = "import sys, entropic_bpi.cli; print({'numba', 'duckdb', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_the_file_and_the_script_of_the_docs_are_the_same_sweep(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text(encoding="utf-8")
    toml, script = (page.split(f"```{kind}\n", 1)[1].split("```", 1)[0] for kind in ("toml", "python"))
    (tmp_path / "my.toml").write_text(toml, encoding="utf-8")
    asked = []

    def run(sweep, folder, *, resume):
        asked.extend(sweep)
        return SimpleNamespace(runs={"id": [], "error": []})

    monkeypatch.setattr(experiments, "run", run)
    exec(compile(script, "docs/experiments.md", "exec"), {"__name__": "__main__"})
    assert [spec.hash for spec in asked] == [spec.hash for spec in read_sweep(tmp_path / "my.toml").runs]
    assert asked
