"""Whole runs on a GPU, under Numba's CUDA simulator: run by run what the method does on the CPU with the same draws."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

import entropic_bpi as eb
from entropic_bpi.lab.gpu_study import values_of
from entropic_bpi.lab.philox import STREAM_SIZE, open_stream, uniform

SIMULATED = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}

# The simulator must be switched on before Numba is imported, and runs functions that are not compiled.
COMPARED = """
import math
import numpy as np
import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.lab.events import MixtureEvent
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.lab.gpu_study import run_many
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.simulator import Simulator, play_episode

def run_here(model, problem, seed, number, replan, budget):
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
    method, counts, held = KL(problem, seed=int(rng.random() * 2.0**62) + 1), Counts(problem), True
    kernel, round = Simulator(model, problem, rng).kernel, 0
    while True:
        plan = method.plan(counts, round)
        held = held and MixtureEvent().holds(model, counts)
        if plan.bounds.reached(problem.goal) or counts.episodes >= budget:
            stopped, claim = plan.bounds.reached(problem.goal), method.bounds_of(counts, plan.policy)
            return counts.episodes, stopped, held, claim, plan.policy
        for _ in range(min(max(1, math.ceil(replan * counts.episodes)), budget - counts.episodes)):
            play_episode(kernel, problem.frame, plan.behaviour, counts.arrays, rng)
            counts.episodes += 1
        round += 1

rng = np.random.default_rng(0)
mixed = eb.FiniteMDP(rng.dirichlet(np.ones(4), (4, 2)), rng.random((4, 2, 4)), horizon=2, start=[0.5, 0.5, 0.0, 0.0])
river = eb.instances.river_swim(4, horizon=3)
for model, eps, declared in (
    (mixed, 1.3, {}), (mixed, 0.9, {"stationary": True}), (river, 0.01, {"stationary": True})
):
    for beta in (1.0, -1.0):
        problem = Problem.from_mdp(model, beta=beta, eps=eps, delta=0.9, **declared)
        settings = {"seed": 5, "replan": 0.5, "budget": 20}
        runs = run_many(model, problem, 2, **settings)
        for i in range(2):
            episodes, stopped, held, claim, policy = run_here(model, problem, number=i, **settings)
            assert (runs.episodes[i], runs.stopped[i], runs.event[i]) == (episodes, stopped, held)
            assert (runs.lower[i], runs.upper[i], runs.gap[i]) == claim[:3], (runs.gap[i], claim)
            assert np.array_equal(runs.policy[i], policy[int(problem.artificial):])
            print(beta, episodes, stopped, held, claim.test, claim.gap)
"""


@pytest.mark.slow
def test_a_thread_runs_what_the_cpu_runs():
    run = subprocess.run([sys.executable, "-c", COMPARED], env=SIMULATED, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    told = [line.split() for line in run.stdout.splitlines()]
    assert len(told) == 12
    assert {line[4] for line in told} == {"ratio", "pairs"}
    assert {line[2] for line in told} == {"True", "False"}


@njit
def _draw(key, other, numbers):
    stream = np.zeros(STREAM_SIZE, dtype=np.uint64)
    open_stream(stream, key, other)
    for i in range(numbers.size):
        numbers[i] = uniform(stream)


@pytest.mark.parametrize("key", [(0, 0), (1, 2), (2**62 + 12345, 7)])
def test_streams_are_those_of_numpy(key):
    numbers = np.empty(1003)
    _draw(*key, numbers)
    generator = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
    assert np.array_equal(numbers, generator.random(1003))


STUDY = """
import sys
import entropic_bpi as eb
from entropic_bpi.lab.experiments import Case, validate

narrow, wide = eb.instances.garnet(3, 2, 2, horizon=2, seed=0), eb.instances.garnet(3, 2, 3, horizon=2, seed=0)
cases = [Case("narrow", narrow, (1.0, -1.0), eps=0.1), Case("wide", wide, (1.0,), eps=0.1, alphas=(0.5,))]
found = validate(sys.argv[1], cases, rules=["KL, both", "paper, sharp constants"], runs=3, device="gpu")
print(found.text)
print([(cell["case"], cell["beta"], cell["runs"], cell["stopped"]) for cell in found.cells])
"""


@pytest.mark.slow
@pytest.mark.sample
def test_a_study_on_a_gpu_leaves_out_what_cannot_run_there_and_says_so(tmp_path):
    run = subprocess.run([sys.executable, "-c", STUDY, str(tmp_path)], env=SIMULATED, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "9 runs in 3 cells" in run.stdout
    assert "1 cells are left out: runs on a GPU need a known model and a beta" in run.stdout
    assert "3 cells are left out: a GPU has the KL method only" in run.stdout
    assert "[('narrow', -1.0, 3, 3), ('narrow', 1.0, 3, 3), ('wide', 1.0, 3, 3)]" in run.stdout
    assert (tmp_path / "rates.csv").exists()


@pytest.mark.parametrize("beta", [0.0, 1e-9, -3.0])
def test_the_oracle_values_policies_as_evaluate_does(beta):
    rng = np.random.default_rng(1)
    model = eb.FiniteMDP(
        rng.dirichlet(np.full(4, 0.3), (3, 4, 2)), rng.random((3, 4, 2, 4)), horizon=3, start=[0.5, 0.0, 0.5, 0.0]
    )
    policies = rng.integers(0, 2, (40, 3, 4))
    exact = [eb.evaluate(model, policy, beta).value for policy in policies]
    assert np.allclose(values_of(model, policies, beta), exact, rtol=1e-14, atol=0)
