"""When to plan: episodes and seconds until a certificate with the default of ``replan``, beside those of ``replan=0.01``.

``python -m benchmarks.schedule [--only PART-OF-A-NAME …] [--seeds 3]``: known successors, δ = 0.1, counts of each step and
pooled ones. Seconds are those of the processor, so that other work on the machine disturbs them less, without those of
compiling; episodes are means over seeds. Every row is printed when it is done.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import entropic_bpi as eb

# Models of at least so many states are run with one seed.
LARGE = 500


class Case(NamedTuple):
    make: Callable[[], eb.FiniteMDP]
    beta: float
    eps: float


def tandem_queue(room: int = 4, horizon: int = 10) -> eb.FiniteMDP:
    """Two stations, one after the other, and one helper: the action is the station where work is twice as fast."""
    size = room + 1
    transitions, rewards = np.zeros((size * size, 2, size * size)), np.zeros((size * size, 2))
    for first, second, helped in itertools.product(range(size), range(size), range(2)):
        rewards[first * size + second, helped] = -(first + second) / (2 * room)
        chances = 0.4, (0.3, 0.6)[helped == 0], (0.3, 0.6)[helped == 1]
        for arrives, moves, leaves in itertools.product((0, 1), repeat=3):
            after_leaving = second - (leaves and second > 0)
            moved = moves and first > 0 and after_leaving < room
            now = first - moved
            state = (now + (arrives and now < room)) * size + after_leaving + moved
            chance = np.prod([p if yes else 1 - p for p, yes in zip(chances, (arrives, moves, leaves), strict=True)])
            transitions[first * size + second, helped, state] += chance
    return eb.FiniteMDP(transitions, rewards, horizon=horizon)


def _garnet(n_states: int) -> Callable[[], eb.FiniteMDP]:
    return lambda: eb.instances.garnet(n_states, 4, 3, horizon=20, seed=0)


def _lake(size: str, horizon: int) -> Callable[[], eb.FiniteMDP]:
    return lambda: eb.from_gymnasium("FrozenLake-v1", map_name=size, horizon=horizon)


CASES = {
    "risky bridge, H = 7": Case(lambda: eb.instances.risky_bridge(horizon=7), 2.5, 0.2),
    "RiverSwim, H = 10": Case(lambda: eb.instances.river_swim(horizon=10), 0.5, 0.2),
    "FrozenLake 4×4, H = 10": Case(_lake("4x4", 10), -1.0, 0.2),
    "tandem queue, S = 25, H = 10": Case(tandem_queue, -0.5, 0.5),
    **{f"garnet, S = {n}, H = 20": Case(_garnet(n), -1.0, 0.5) for n in (20, 200, 500)},
    "FrozenLake 8×8, H = 30": Case(_lake("8x8", 30), -1.0, 0.2),
    "garnet, S = 2000, H = 20": Case(_garnet(2000), -1.0, 0.5),
}


def measured(case: Case, mdp: eb.FiniteMDP, seeds: int, **options: Any) -> tuple[float, float, float]:
    """Mean episodes, plans and seconds of the processor until the certificate."""
    goal = {"beta": case.beta, "eps": case.eps, "delta": 0.1, "successors": "model", **options}
    eb.identify(mdp, **{**goal, "replan": 1.0}, seed=0, max_episodes=8)  # compiles what is needed
    episodes, plans, began = 0, 0, time.process_time()
    for seed in range(seeds):
        result = eb.identify(mdp, **goal, seed=seed, max_episodes=10**12)
        assert result.stopped
        episodes, plans = episodes + result.episodes, plans + len(result.history)
    return episodes / seeds, plans / seeds, (time.process_time() - began) / seeds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedule", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of the models to run")
    parser.add_argument("--seeds", type=int, default=3, help=f"how many, for models of fewer than {LARGE} states")
    parser.add_argument("--counts", choices=("both", "pooled", "per step"), default="both")
    parser.add_argument("--alone", action="store_true", help="the default alone, without the comparison")
    options = parser.parse_args()
    columns = ("model", "counts", "episodes", "with 0.01", "ratio", "plans", "with 0.01", "CPU s", "with 0.01", "ratio")
    print("|", " | ".join(columns), "|")
    print("|---" * len(columns) + "|")
    chosen = {name: case for name, case in CASES.items() if any(part in name for part in options.only)}
    for (name, case), counts in itertools.product(chosen.items(), ("pooled", "per step")):
        if options.counts not in ("both", counts):
            continue
        mdp = case.make()
        seeds = 1 if mdp.n_states >= LARGE else options.seeds
        ours = measured(case, mdp, seeds, stationary=counts == "pooled")
        fine = (np.nan,) * 3
        if not options.alone:
            fine = measured(case, mdp, seeds, stationary=counts == "pooled", replan=0.01)
        print(
            f"| {name} | {counts} | {ours[0]:,.0f} | {fine[0]:,.0f} | {ours[0] / fine[0]:.2f} | {ours[1]:,.0f} "
            f"| {fine[1]:,.0f} | {ours[2]:.2f} | {fine[2]:.2f} | {ours[2] / fine[2]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
