"""Episodes to certify with declared noise or boxes: ``python -m benchmarks.noise_table [SEEDS [NAME]]``.

δ = 0.05 and the defaults of ``identify``. Every claim is verified and compared with the exact optimum. FrozenLake is the
environment of Gymnasium, of which only its start and its mechanics are declared. Seconds are those of the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from math import exp, factorial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import MAPS

import entropic_bpi as eb


class Case(NamedTuple):
    """What is played and declared, and the model that is only used to see whether a claim is true."""

    name: str
    source: Any
    model: eb.FiniteMDP
    goal: dict[str, Any]


def inventory(more: float = 0.0) -> eb.FiniteMDP:
    """Room for ten, orders up to five, a demand of three on average, lost sales; returns have a range of 20.

    ``more`` is a probability that is taken from the smallest demands and given to a demand of 6.
    """
    law = [exp(-3) * 3**demand / factorial(demand) for demand in range(9)]
    law[-1] += 1 - sum(law)
    kept = np.diff(np.maximum(np.cumsum([0.0, *law]) - more, 0.0))
    kept[6] += more
    # Least: fill the shop and sell nothing, -0.4 · 10 - 0.05 · (5 + 9 · 10). Most: order and sell five a day, 10 · 5 · 0.6.
    scale = 20 / (30 + 8.75)

    def day(stock, order, demand):
        full = min(stock + order, 10)
        left = full - min(demand, full)
        return left, scale * (full - left - 0.4 * (full - stock) - 0.05 * left)

    return eb.FiniteMDP.from_noise(range(11), range(6), range(9), kept, day, horizon=10, start=0)


def queue() -> eb.FiniteMDP:
    """A customer arrives, or one is served, or neither; each admitted one pays 1, and each who waits costs 0.1 a step."""

    def step(waiting, admits, what):
        up = what == "arrival" and admits and waiting < 19
        return waiting + up - (what == "service" and waiting > 0), float(up) - 0.1 * waiting

    labels, law = ("arrival", "service", "nothing"), (0.45, 0.35, 0.2)
    return eb.FiniteMDP.from_noise(range(20), range(2), labels, law, step, horizon=20, start=5)


def machine() -> eb.FiniteMDP:
    """A machine wears by 0, 1 or 2 a step and earns less the more it is worn; a step is lost if it is replaced."""

    def step(wear, replaces, more):
        return (0, 0.0) if replaces else (min(wear + more, 9), 1 - (wear / 9) ** 2)

    return eb.FiniteMDP.from_noise(range(10), range(2), range(3), (0.3, 0.5, 0.2), step, horizon=20, start=0)


def lake(size: int) -> eb.Noise:
    """The wind turns a step to the left, not at all or to the right; holes and the goal end the episode."""
    squares = "".join(MAPS[f"{size}x{size}"])

    def slip(state, action, label):
        row, column = divmod(state, size)
        side = (action + label) % 4  # left, down, right, up
        row = min(max(row + (side == 1) - (side == 3), 0), size - 1)
        column = min(max(column + (side == 2) - (side == 0), 0), size - 1)
        following = size * row + column
        return eb.END if squares[following] in "HG" else following, float(squares[following] == "G")

    return eb.Noise(labels=(-1, 0, 1), outcome=slip)


def cases() -> Iterator[Case]:
    shop, line, worn, bridge = inventory(), queue(), machine(), eb.instances.risky_bridge(horizon=7)
    for beta in (-0.5, 0.1):
        for share in (0.05, 0.02):
            goal = {"beta": beta, "eps": share * 20, "noise": "model"}
            yield Case(f"inventory, β = {beta}, ε = {share:.0%} of the range", shop, shop, goal)
    for size, horizon, betas in ((4, 30, (-1.0, 1.0)), (8, 60, (-1.0,))):
        env = gymnasium.make("FrozenLake-v1", map_name=f"{size}x{size}")
        model = eb.from_gymnasium(env, horizon=horizon)
        for beta in betas:
            goal = {"beta": beta, "eps": 0.1, "horizon": horizon, "start": 0, "noise": lake(size)}
            yield Case(f"FrozenLake {size}x{size} of Gymnasium, {horizon} steps, β = {beta}, ε = 0.1", env, model, goal)
    for beta in (-0.5, 0.5):
        yield Case(f"queue, β = {beta}, ε = 0.1", line, line, {"beta": beta, "eps": 0.1, "noise": "model"})
    for beta in (-0.5, 0.5):
        yield Case(f"machine, β = {beta}, ε = 0.1", worn, worn, {"beta": beta, "eps": 0.1, "noise": "model"})
    goal = {"beta": 2.5, "eps": 0.2, "stationary": True, "successors": "model"}
    yield Case("risky bridge, β = 2.5, ε = 0.2, no noise declared", bridge, bridge, goal)


class Found(NamedTuple):
    """What became of a run."""

    episodes: int
    certified: bool
    verified: bool
    true: bool
    test: str
    seconds: float


def found(case: Case, seed: int) -> Found:
    clock = time.process_time()
    result = eb.identify(case.source, delta=0.05, seed=seed, **case.goal)
    seconds, claim, beta = time.process_time() - clock, result.certificate, case.goal["beta"]
    policy = np.zeros(
        (case.model.horizon, case.model.n_states), dtype=int
    )  # what is done after the end does not matter
    living = case.model.n_states if case.source is case.model else case.source.observation_space.n
    for step, state in np.ndindex(case.model.horizon, int(living)):
        policy[step, state] = claim.policy_of(state, step)
    lost = eb.solve(case.model, beta).value - eb.evaluate(case.model, policy, beta).value
    return Found(result.episodes, result.stopped, eb.verify(claim).ok, lost <= claim.eps, claim.test, seconds)


def main() -> None:
    seeds, name = int(sys.argv[1]) if sys.argv[1:] else 5, "".join(sys.argv[2:])
    print("| instance | episodes | mean | certified | verified | true | by | s a run |\n" + "|---" * 8 + "|")
    for case in cases():
        if name in case.name:
            runs = [found(case, seed) for seed in range(1, seeds + 1)]
            episodes, certified, verified, true, tests, seconds = zip(*runs, strict=True)
            told = " ".join(f"{count:,}" for count in episodes), f"{np.mean(episodes):,.0f}"
            sums = (f"{sum(each)} of {seeds}" for each in (certified, verified, true))
            by = ", ".join(sorted(set(tests)))
            print("|", " | ".join((case.name, *told, *sums, by, f"{np.median(seconds):.2f}")), "|", flush=True)


if __name__ == "__main__":
    main()
