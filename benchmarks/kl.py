"""The KL method's speed and its episodes to certify: ``python -m benchmarks.kl [seeds]``.

Solves per second on one core, one full plan of a large model (both candidates with their gap certificates), the time
before a first result, and a table of episodes. Times are the best of several, so that a busy machine matters less.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time

import numpy as np
from numba import njit

import entropic_bpi as eb
from entropic_bpi.counts import Counts
from entropic_bpi.methods.kl import KL
from entropic_bpi.methods.kl_ball import TOLERANCE, kl_extreme
from entropic_bpi.problem import Problem
from entropic_bpi.sampling.simulator import Simulator


def best_time(repeats: int, call) -> float:
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


@njit
def solve_all(tally, f, n, x, tolerance):
    scratch, total = np.empty((2, f.shape[1])), 0.0
    for i in range(len(f)):
        total += kl_extreme(tally[i], f[i], f.shape[1], n[i], x[i], 1.0, tolerance, scratch)
    return total


def solves() -> None:
    print("KL solves on one core")
    for k in (2, 3, 8):
        rng, size = np.random.default_rng(0), 100_000
        n = (10 ** rng.uniform(1, 5, size)).astype(np.int64)
        tally, f = rng.multinomial(n, rng.dirichlet(np.ones(k), size)), rng.random((size, k))
        x = (math.log(1000) + 0.5 * k * np.log(n)) / n
        seconds = best_time(15, lambda args=(tally, f, n, x, TOLERANCE): solve_all(*args))
        print(f"  k = {k}: {seconds / size * 1e9:5.0f} ns, {size / seconds / 1e6:.1f} million a second")


def large_plan() -> None:
    print("one full plan: S = 2000, A = 4, 3 successors, H = 50, stationary, successors known")
    mdp = eb.instances.garnet(2000, 4, 3, horizon=50, seed=0)
    for beta in (0.3, -0.3):
        problem = Problem.from_mdp(mdp, beta=beta, eps=0.1, delta=0.1, stationary=True, successors="model")
        method, counts = KL(problem, seed=1), Counts(problem)
        simulator = Simulator(mdp, problem, np.random.default_rng(0))
        plan = method.plan(counts, 0)
        for round in range(1, 31):
            simulator.play(plan.behaviour, 200 * round, counts)
            plan = method.plan(counts, round)
            if round in (3, 30):
                counts.ledger.changed[:] = True
                seconds = best_time(5, lambda m=method, c=counts, r=round: m.plan(c, r))
                print(f"  beta = {beta}: {seconds:.2f} s after {counts.episodes} episodes (gap {plan.gap:.3g})")


def cold_start() -> None:
    code = (
        "import time; t = time.perf_counter(); import entropic_bpi as eb; "
        "eb.identify(eb.instances.risky_bridge(), beta=-1.0, eps=0.2, delta=0.1, successors='model', seed=0); "
        "print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        times = [
            float(
                subprocess.run(
                    [sys.executable, "-c", code], env=_cached_in(folder), capture_output=True, check=True
                ).stdout
            )
            for _ in range(2)
        ]
    print(f"first identify of a process: {times[0]:.1f} s with nothing compiled, {times[1]:.2f} s after")


def _cached_in(folder: str) -> dict[str, str]:
    import os

    return {**os.environ, "NUMBA_CACHE_DIR": folder}


def episodes_table(seeds: int) -> None:
    print(f"episodes to certify: risky bridge, H = 7, eps = 0.2, delta = 0.1, {seeds} seeds")
    bridge = eb.instances.risky_bridge(horizon=7)
    betas = (-1.0, 0.5, 2.5, 4.5)
    print("  known                   " + "".join(f"beta = {beta:<12}" for beta in betas))
    for known, options in (
        ("nothing", {}),
        ("successors", {"successors": "model"}),
        ("successors, stationary", {"successors": "model", "stationary": True}),
    ):
        cells = []
        for beta in betas:
            runs = [
                eb.identify(bridge, beta=beta, eps=0.2, delta=0.1, seed=seed, replan=0.02, **options).episodes
                for seed in range(seeds)
            ]
            error = np.std(runs, ddof=1) / math.sqrt(seeds)
            cells.append(f"{np.mean(runs):.3g} ± {error:.2g}")
        print(f"  {known:<24}" + "".join(f"{cell:<19}" for cell in cells))


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    solves()
    large_plan()
    cold_start()
    episodes_table(seeds)


if __name__ == "__main__":
    main()
