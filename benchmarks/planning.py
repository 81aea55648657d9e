"""Exact planning beside the plain loop that anyone would write: ``python -m benchmarks.planning``.

Each pair runs in turns in one process, and the ratio is that of the medians. The loops do the same work: values and a
policy at every step. The memory of the largest model is the peak of a process of its own.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse

import entropic_bpi as eb

BETA = 0.1
HORIZON = 50


def neutral_loop(matrix, rewards: np.ndarray, horizon: int) -> np.ndarray:
    """Expected returns: one matrix product and one maximum a step."""
    n_states, n_actions = rewards.shape
    values, policy = np.zeros((horizon + 1, n_states)), np.empty((horizon, n_states), dtype=np.int64)
    for h in reversed(range(horizon)):
        q_values = (matrix @ values[h + 1]).reshape(n_states, n_actions) + rewards
        policy[h] = q_values.argmax(axis=1)
        values[h] = q_values.max(axis=1)
    return values


def entropic_loop(matrix, rewards: np.ndarray, horizon: int) -> np.ndarray:
    """The same with exponentials and logarithms, safe for this range of values only."""
    n_states, n_actions = rewards.shape
    values, policy = np.zeros((horizon + 1, n_states)), np.empty((horizon, n_states), dtype=np.int64)
    for h in reversed(range(horizon)):
        means = matrix @ np.exp(BETA * values[h + 1])
        q_values = (np.log(means) / BETA).reshape(n_states, n_actions) + rewards
        policy[h] = q_values.argmax(axis=1)
        values[h] = q_values.max(axis=1)
    return values


def sparse_model(n_states: int, n_actions: int, successors: int, horizon: int) -> eb.FiniteMDP:
    """Uniformly random successors."""
    rng = np.random.default_rng(0)
    rows = n_states * n_actions
    gaps = rng.integers(1, n_states // successors, size=(rows, successors), dtype=np.int32)
    indices = np.cumsum(gaps, axis=1, dtype=np.int32) - 1
    probabilities = rng.random((rows, successors))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    compressed = eb.Rows(np.arange(0, indices.size + 1, successors), indices.ravel(), probabilities.ravel())
    return eb.FiniteMDP(compressed, rng.random((n_states, n_actions)), horizon=horizon)


def medians(repeats: int, *calls: Callable[[], object]) -> list[float]:
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        for call, times in zip(calls, seconds, strict=True):
            begin = time.perf_counter()
            call()
            if turn:  # the first turn compiles and warms up
                times.append(time.perf_counter() - begin)
    return [statistics.median(times) for times in seconds]


def dense(repeats: int = 7) -> None:
    n_states, n_actions = 1000, 10
    rng = np.random.default_rng(0)
    kernel = rng.random((n_states, n_actions, n_states))
    kernel /= kernel.sum(axis=-1, keepdims=True)
    mdp = eb.FiniteMDP(kernel, rng.random((n_states, n_actions)), horizon=HORIZON)
    matrix = mdp.step_kernel(0)
    ours, averse, neutral = medians(
        repeats,
        lambda: eb.solve(mdp, BETA),
        lambda: eb.solve(mdp, -BETA),
        lambda: neutral_loop(matrix, mdp.rewards, HORIZON),
    )
    print(f"dense S={n_states} A={n_actions} H={HORIZON}: NumPy expectation loop {neutral:.3f} s")
    print(f"  solve, beta={BETA}:  {ours:.3f} s, {ours / neutral:.2f} times the loop (at most 1.1)")
    print(f"  solve, beta={-BETA}: {averse:.3f} s, {averse / neutral:.2f} times the loop (at most 1.1)")


def thin(repeats: int = 7) -> None:
    n_states, n_actions, successors = 100_000, 4, 5
    mdp = sparse_model(n_states, n_actions, successors, HORIZON)
    rows = mdp.rows
    matrix = sparse.csr_array(
        (rows.probabilities, rows.indices, rows.indptr.astype(np.int32)), shape=(n_states * n_actions, n_states)
    )
    ours, neutral, entropic = medians(
        repeats,
        lambda: eb.solve(mdp, BETA),
        lambda: neutral_loop(matrix, mdp.rewards, HORIZON),
        lambda: entropic_loop(matrix, mdp.rewards, HORIZON),
    )
    np.testing.assert_allclose(eb.solve(mdp, BETA).values, entropic_loop(matrix, mdp.rewards, HORIZON), rtol=1e-9)
    print(f"sparse S={n_states} A={n_actions} successors={successors} H={HORIZON}: solve {ours:.3f} s")
    print(f"  SciPy entropic loop    {entropic:.3f} s, ours is {entropic / ours:.2f} times faster (at least 2)")
    print(f"  SciPy expectation loop {neutral:.3f} s, ours is {neutral / ours:.2f} times faster")


def memory(horizon: int) -> None:
    """Hold and plan a million states; meant for a process of its own."""
    begin = time.perf_counter()
    mdp = sparse_model(1_000_000, 4, 5, horizon)
    built = time.perf_counter()
    value = eb.solve(mdp, BETA).value
    solved = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"sparse S=1000000 A=4 successors=5 H={horizon}: value {value:.6f}, built in {built - begin:.1f} s, "
        f"solved in {solved - built:.1f} s, peak {peak:.2f} GiB (at most 4)"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        memory(int(sys.argv[1]))
    else:
        dense()
        thin()
        for steps in (10, 50):
            subprocess.run([sys.executable, "-m", "benchmarks.planning", str(steps)], check=True)
