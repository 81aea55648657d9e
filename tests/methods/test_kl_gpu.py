"""Plans on a GPU: the kernels under Numba's CUDA simulator, which needs no GPU, against the plan of the CPU.

What the real one computes is compared in ``benchmarks/gpu.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import entropic_bpi as eb

# The simulator must be switched on before Numba is imported, and runs functions that are not compiled.
COMPARED = """
import numpy as np
import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.problem import Problem

model = eb.instances.garnet(3, 2, 2, horizon=2, seed=1)
for beta in (1.0, -1.0):
    problem = Problem.from_mdp(model, beta=beta, eps=1e-3, delta=0.1, successors="model", stationary=True)
    here, there = KL(problem, seed=1), KL(problem, seed=1, device="gpu")
    for most in (3, 30):
        rng, counts = np.random.default_rng(most), Counts(problem)
        arrays, counts.episodes = counts.arrays, 30
        for row, (begin, used) in enumerate(zip(arrays.begin, arrays.used)):
            arrays.visits[row] = rng.integers(0, most)
            arrays.tally[begin : begin + used] = rng.multinomial(arrays.visits[row], rng.dirichlet(np.ones(used)))
        for round in range(2):
            plan, same = here.plan(counts, round), there.plan(counts, round)
            assert plan.bounds == same.bounds, (plan.bounds, same.bounds)
            for mine, other in zip(plan.behaviour, same.behaviour):
                assert np.array_equal(mine, other)
        assert np.array_equal(plan.policy, same.policy)
        assert here.bounds_of(counts, plan.policy) == there.bounds_of(counts, plan.policy)
        assert here.interval_of(counts, plan.policy) == there.interval_of(counts, plan.policy)
        assert np.array_equal(here.value_bounds(counts, plan.policy), there.value_bounds(counts, plan.policy), True)
        for wanted in ({"beta": 2 * beta}, {"beta": beta, "policy": plan.policy}):
            mine, other = (eb.certify(counts, **wanted, device=device) for device in ("cpu", "gpu"))
            assert (mine.lower, mine.upper, mine.gap) == (other.lower, other.upper, other.gap)
        print(beta, most, plan.bounds.gap)
"""


@pytest.mark.slow
def test_the_kernels_plan_what_the_cpu_plans():
    switched = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run([sys.executable, "-c", COMPARED], env=switched, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 4


def identify(**options):
    model = eb.instances.risky_bridge(horizon=4)
    return eb.identify(model, **{"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1, "device": "gpu", **options})


def test_without_a_gpu_the_error_says_what_is_missing():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(eb.InvalidProblemError, match=r"plans on a GPU need .*plan on the CPU"):
        identify(successors="model")


def test_what_a_gpu_cannot_do_is_refused_before_it_is_asked():
    with pytest.raises(eb.InvalidProblemError, match="device must be"):
        identify(device="tpu")
    with pytest.raises(eb.InvalidProblemError, match="device='gpu' is for method='kl'"):
        identify(method="bernstein")
    with pytest.raises(eb.InvalidProblemError, match="use device='cpu' with replan='every'"):
        identify(replan="every")
    with pytest.raises(eb.InvalidProblemError, match=r"at most 32 .*declare successors="):
        eb.identify(eb.instances.garnet(40, 2, 2, horizon=3, seed=1), beta=1.0, eps=0.5, delta=0.1, device="gpu")


def test_a_certificate_of_old_data_is_refused_without_a_gpu_too():
    with pytest.raises(eb.InvalidProblemError, match="device must be"):
        eb.certify(identify(device="cpu", successors="model"), beta=1.0, device="tpu")


def test_states_that_were_not_seen_yet_are_not_for_a_gpu():
    """Rows of a small black box are short enough, but their bounds need the column that only the CPU fills."""
    with pytest.raises(eb.InvalidProblemError, match="known possible next states"):
        eb.identify("FrozenLake-v1", horizon=3, reward_range=(0, 1), beta=1.0, eps=0.5, delta=0.1, device="gpu")


def test_the_command_line_asks_for_a_device_too():
    from typer.testing import CliRunner

    from entropic_bpi.cli import app

    words = ["identify", "risky-bridge", "--beta", "1", "--eps", "0.5", "--delta", "0.1", "--device", "tpu"]
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 2
    assert "device must be" in outcome.output
