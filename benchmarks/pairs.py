"""Episodes to certify with the gap certificate alone, with the pair certificate as a second test, and with it leading the
challenger as well, as by default: ``python -m benchmarks.pairs [SEEDS [NAME]]``.

The same seeds, known successors, batches of 2 %. The last columns are processor seconds of a run, kernels compiled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import entropic_bpi as eb
from entropic_bpi.methods.kl import method as kl
from entropic_bpi.methods.kl import pairs

SEEDS = 10


class Case(NamedTuple):
    """A model, and what is asked about it."""

    name: str
    mdp: eb.FiniteMDP
    betas: tuple[tuple[float, float], ...]
    delta: float
    stationary: bool = True


def machine_replacement(states: int = 10, horizon: int = 20) -> eb.FiniteMDP:
    """A machine wears by 0, 1 or 2 a step and earns less the more it is worn; replacing it costs what a new one earns."""
    transitions, rewards = np.zeros((states, 2, states)), np.zeros((states, 2))
    for s in range(states):
        for wear, p in enumerate((0.3, 0.5, 0.2)):
            transitions[s, 0, min(s + wear, states - 1)] += p
        transitions[s, 1, 0] = 1.0
        rewards[s] = 1.0 - (s / (states - 1)) ** 2, 0.0
    return eb.FiniteMDP(transitions, rewards, horizon=horizon)


def queue_admission(room: int = 8, horizon: int = 20, arrival: float = 0.5, service: float = 0.4) -> eb.FiniteMDP:
    """A customer may come to a queue with room for some: admitted it pays 1, and each that waits costs a tenth a step."""
    transitions, rewards = np.zeros((room + 1, 2, room + 1)), np.zeros((room + 1, 2))
    for s in range(room + 1):
        for admit in (0, 1):
            comes = arrival if admit and s < room else 0.0
            for new, p in ((0, 1 - comes), (1, comes)):
                for served, q in ((0, 1 - service), (1, service)):
                    transitions[s, admit, min(max(s - served, 0) + new, room)] += p * q
            rewards[s, admit] = comes - 0.1 * s
    return eb.FiniteMDP(transitions, rewards, horizon=horizon)


def inventory(room: int = 6, horizon: int = 12) -> eb.FiniteMDP:
    """Order up to the room, then demand comes: a sale pays 1, an order costs 0.4 a piece, keeping one 0.05 a step."""
    demand = np.array([0.2, 0.3, 0.3, 0.2])
    transitions, rewards = np.zeros((room + 1, room + 1, room + 1)), np.zeros((room + 1, room + 1, room + 1))
    for s in range(room + 1):
        for order in range(room + 1):
            full = min(s + order, room)
            for wanted, p in enumerate(demand):
                transitions[s, order, max(full - wanted, 0)] += p
            left = np.arange(room + 1)
            rewards[s, order] = np.clip(full - left, 0, None) - 0.4 * order - 0.05 * left
    return eb.FiniteMDP(transitions, rewards, horizon=horizon)


def cases() -> Iterator[Case]:
    river = eb.instances.river_swim(6, horizon=20)
    yield Case("RiverSwim, pooled", river, ((-1.0, 0.5), (-1.0, 0.1), (0.5, 2.0), (0.5, 0.5)), 0.05)
    yield Case("RiverSwim, per step", river, ((-1.0, 0.5), (0.5, 2.0)), 0.05, stationary=False)
    yield Case("machine replacement", machine_replacement(), ((0.5, 0.1), (-0.5, 0.1)), 0.1)
    yield Case("queue admission", queue_admission(), ((0.5, 0.1), (-0.5, 0.1)), 0.1)
    for seed in range(4):
        garnet = eb.instances.garnet(10, 3, 3, horizon=10, seed=seed)
        yield Case(f"garnet {seed}", garnet, ((0.5, 0.1), (-0.5, 0.03)), 0.1)
    lake = eb.from_gymnasium("FrozenLake-v1", horizon=30, is_slippery=True)
    yield Case("FrozenLake", lake, ((1.0, 0.1), (-1.0, 0.1)), 0.05)
    yield Case("inventory", inventory(), ((0.5, 0.2), (-0.5, 0.2)), 0.1)
    bridge = eb.instances.risky_bridge(horizon=7)
    yield Case("bridge, per step", bridge, ((-1.0, 0.2), (0.5, 0.2), (2.5, 0.2), (4.5, 0.2)), 0.1, stationary=False)


class Variant(NamedTuple):
    """How many pairs are allowed, and how much smaller their gap must be for them to lead the challenger."""

    most_pairs: int
    lead: float


VARIANTS = (
    Variant(0, 0.0),
    Variant(pairs.MOST_PAIRS, 0.0),
    Variant(pairs.MOST_PAIRS, kl.PAIRS_LEAD),
)


def measured(case: Case, beta: float, eps: float, seeds: int, variant: Variant) -> tuple[float, float]:
    """Mean episodes and processor seconds of a run; every policy keeps its promise."""
    options: dict[str, Any] = {
        "delta": case.delta,
        "stationary": case.stationary,
        "successors": "model",
        "replan": 0.02,
    }
    best = eb.solve(case.mdp, beta).value
    usual = Variant(pairs.MOST_PAIRS, kl.PAIRS_LEAD)
    pairs.MOST_PAIRS, kl.PAIRS_LEAD = variant
    try:
        episodes, began = [], time.process_time()
        for seed in range(seeds):
            result = eb.identify(case.mdp, beta=beta, eps=eps, seed=seed, **options)
            assert best - eb.evaluate(case.mdp, result.policy, beta).value <= eps
            episodes.append(result.episodes)
        return float(np.mean(episodes)), (time.process_time() - began) / seeds
    finally:
        pairs.MOST_PAIRS, kl.PAIRS_LEAD = usual


def main(seeds: int = SEEDS, name: str = "") -> None:
    columns = ("instance", "β", "ε", *2 * ("gap certificate", "and pairs", "and leading"))
    print("", *columns, "", sep=" | ")
    print("|---" * len(columns) + "|")
    for case in cases():
        if not case.name.startswith(name):
            continue
        eb.identify(case.mdp, beta=case.betas[0][0], eps=1e-9, delta=0.1, seed=0, max_episodes=2, successors="model")
        for beta, eps in case.betas:
            found = [measured(case, beta, eps, seeds, variant) for variant in VARIANTS]
            figures = [f"{episodes:.0f}" for episodes, _ in found] + [f"{seconds:.2f}" for _, seconds in found]
            print(f"| {case.name} | {beta:g} | {eps:g} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main(*(int(argument) if i == 0 else argument for i, argument in enumerate(sys.argv[1:3])))
