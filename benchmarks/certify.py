"""Episodes to certify: every method on every registered instance, and a Gymnasium environment. No peer has this job.

Theirs is the paper's rule with its machine-checked constants, run by this library; the ratio says how many times fewer
episodes a method needs. Episodes do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import entropic_bpi as eb
from benchmarks.bench import Bench
from benchmarks.learning import METHODS
from benchmarks.table import Row

PART = "certify"
PAPER = "bernstein, verified"
CAP = 10**12
GOAL = {"eps": 0.2, "delta": 0.1}


def instances(quick: bool) -> dict[str, tuple[eb.FiniteMDP, float]]:
    """Small models and their β; every registered name is there."""
    chosen = {
        "risky-bridge H = 7, β = -1": (eb.instances.risky_bridge(horizon=7), -1.0),
        "risky-bridge H = 7, β = 2.5": (eb.instances.risky_bridge(horizon=7), 2.5),
        "river-swim H = 10, β = 0.5": (eb.instances.river_swim(horizon=10), 0.5),
        "garnet S = 10, A = 2, 3 successors, H = 5, β = 1": (
            eb.instances.garnet(10, 2, 3, horizon=5, seed=0),
            1.0,
        ),
        "hard-instance S = 6, A = 2, H = 6, β = 1": (
            eb.instances.hard_instance(6, 2, 6, beta=1.0, eps=GOAL["eps"], special=(1, 4, 1)),
            1.0,
        ),
        "FrozenLake-v1 H = 10, β = -1": (eb.from_gymnasium("FrozenLake-v1", horizon=10), -1.0),
    }
    return dict(list(chosen.items())[1:4]) if quick else chosen


def certify(bench: Bench) -> Iterator[Row]:
    seeds = bench.pick(10, 2)
    for name, (mdp, beta) in instances(bench.quick).items():
        paper: np.ndarray | None = None
        for method, options in METHODS.items():
            if options.get("stationary") and not mdp.stationary:
                continue
            if options["method"] == "bernstein" and mdp.next_state_rewards:
                note = "does not apply: its proof needs rewards that depend on (s, a) only"
                yield Row(PART, f"{name}: {method}", "episodes", None, note=note)
                continue
            episodes, stopped = _runs(mdp, beta, options, seeds)
            paper = episodes if method == PAPER else paper
            yield _row(f"{name}: {method}", episodes, stopped, paper)


def _runs(mdp: eb.FiniteMDP, beta: float, options: dict[str, Any], seeds: int) -> tuple[np.ndarray, bool]:
    runs = [eb.identify(mdp, beta=beta, **GOAL, max_episodes=CAP, seed=seed, **options) for seed in range(seeds)]
    return np.array([run.episodes for run in runs]), all(run.stopped for run in runs)


def _row(what: str, episodes: np.ndarray, stopped: bool, paper: np.ndarray | None) -> Row:
    note = f"mean of {len(episodes)} seeds, {episodes.min():,} to {episodes.max():,}"
    if not stopped:
        note += f"; at least, for the budget of {CAP:,} ended some"
    if paper is None:
        return Row(PART, what, "episodes", episodes.mean(), note=note)
    ratios = paper / episodes
    ratio = paper.mean() / episodes.mean()
    return Row(
        PART, what, "episodes", episodes.mean(), paper.mean(), "the paper's rule, ours", ratio, ratios.min(), ratios.max(),
        note,
    )  # fmt: skip
