"""Planning on a GPU: the kernel under Numba's CUDA simulator, which needs no GPU, against the CPU's solutions.

What the real one computes is compared in ``benchmarks/gpu.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app
from entropic_bpi.lab import planning_gpu

# The simulator must be switched on before Numba is imported, and runs functions that are not compiled.
COMPARED = """
import numpy as np
from scipy import sparse
import entropic_bpi as eb
from entropic_bpi.lab import planning_gpu

planning_gpu.THREADS = 8  # of which each is one of the system's here
rng = np.random.default_rng(0)
law = lambda *shape: rng.dirichlet(np.full(5, 0.5), shape)
each = [sparse.csr_array(law(5)) for _ in range(3)]
models = {
    "sparse": eb.FiniteMDP(each, rng.normal(size=(5, 3)), horizon=4, start=[0.5, 0.5, 0, 0, 0]),
    "dense": eb.FiniteMDP(law(5, 3), rng.normal(size=(4, 5, 3)), horizon=4),
    "of all steps": eb.FiniteMDP(law(3, 5, 2), rng.normal(size=(5, 2)), horizon=3),
    "paid by next state": eb.FiniteMDP(law(5, 2), rng.normal(size=(3, 5, 2, 5)), horizon=3),
    "paid at all steps": eb.FiniteMDP(law(3, 5, 2), rng.normal(size=(3, 5, 2, 5)), horizon=3),
    "with ties": eb.FiniteMDP(np.repeat(law(5, 1), 3, axis=1), np.zeros((5, 3)) + 0.1, horizon=2),
}
betas = [0.0, 1e-19, 0.3, -1.0, 40.0, -2000.0]  # linear, near, far, and rows that need a scale of their own
for name, model in models.items():
    for here, there in zip(eb.solve(model, betas), eb.solve_on_gpu(model, betas)):
        np.testing.assert_allclose(there.values, here.values, rtol=1e-13, atol=1e-13)
        assert np.array_equal(there.policy, here.policy) and there.policy.dtype == here.policy.dtype
        assert abs(there.value - here.value) <= 1e-13 * max(1, abs(here.value))
    print(name)
here, there = (solve(models["dense"], -1.0) for solve in (eb.solve, eb.solve_on_gpu))
assert isinstance(there, eb.Solution) and np.allclose(here.q_values, there.q_values, rtol=1e-13)
planning_gpu._PIECE = 7  # so that several threads copy, each several pieces
again = eb.solve_on_gpu(models["dense"], -1.0)
assert np.array_equal(again.values, there.values) and np.array_equal(again.policy, there.policy)
forever = eb.solve_on_gpu(eb.instances.river_swim(3, horizon=1), -1.0, discount=0.5, horizon=4)
assert forever.tail == eb.solve(eb.instances.river_swim(3, horizon=1), -1.0, discount=0.5, horizon=4).tail != (0, 0)
assert eb.solve_on_gpu(models["dense"], []) == []
"""


@pytest.mark.slow
def test_the_kernel_finds_what_the_cpu_finds():
    switched = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run([sys.executable, "-c", COMPARED], env=switched, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 6


def test_without_a_gpu_the_error_says_what_is_missing():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(eb.InvalidProblemError, match=r"plans on a GPU need .*plan on the CPU"):
        eb.solve_on_gpu(eb.instances.risky_bridge(horizon=4), -1.0)


def test_what_does_not_fit_says_how_much_it_needs_before_anything_is_sent():
    model = eb.instances.garnet(100, 4, 3, horizon=1000, seed=0)
    device = mock.Mock()
    device.current_context().get_memory_info.return_value = 2**20, 2**30
    with (
        mock.patch("entropic_bpi.compile.gpu.cuda", device),
        mock.patch.multiple(planning_gpu, cuda=device, check_gpu=lambda: None),
        pytest.raises(eb.InvalidProblemError, match=r"for 3 beta needs 0.00\d+ GiB on the GPU, .*: ask for fewer"),
    ):
        eb.solve_on_gpu(model, [0.0, 1.0, 2.0])
    device.to_device.assert_not_called()
    device.device_array.assert_not_called()


def test_the_command_line_plans_there_for_a_beta_alone():
    outcome = CliRunner().invoke(app, ["solve", "risky-bridge", "--evar", "0.1", "--on-gpu"])
    assert outcome.exit_code == 2
    assert "--on-gpu is for --beta" in outcome.output
