"""Episodes over limit: what the KL method needs, beside what every algorithm needs on the same model.

The limit is :func:`entropic_bpi.theory.characteristic_time`, a proved lower bound for algorithms that know the possible
successors, of kernels that may change from step to step or of those that do not. It is not the best possible one, and the
search for it is limited in time, so part of the distance is the limit's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import entropic_bpi as eb
from benchmarks.bench import Bench
from benchmarks.certify import GOAL, instances
from benchmarks.table import Row
from entropic_bpi import theory

PART = "limits"


def limits(bench: Bench) -> Iterator[Row]:
    seeds, seconds = bench.pick(10, 2), bench.pick(60.0, 2.0)
    for name, (mdp, beta) in instances(bench.quick).items():
        for stationary in (False, True) if mdp.stationary else (False,):
            options = {**GOAL, "successors": "model", "stationary": stationary}
            limit = theory.characteristic_time(mdp, beta, **options, seconds=seconds)
            runs = [eb.identify(mdp, beta=beta, seed=seed, **options) for seed in range(seeds)]
            yield _row(f"{name}: {'one kernel' if stationary else 'per step'}", runs, limit)


def _row(what: str, runs: list[eb.Identification], limit: theory.CharacteristicTime) -> Row:
    episodes = np.array([run.episodes for run in runs])
    note = f"mean of {len(episodes)} seeds; "
    if not limit.episodes:
        return Row(PART, what, "episodes", episodes.mean(), 0.0, "limit", note=f"{note}no alternatives were found")
    ratios = episodes / limit.episodes
    note += f"{len(limit.alternatives)} alternatives bind"
    return Row(
        PART,
        what,
        "episodes",
        episodes.mean(),
        limit.episodes,
        "limit",
        ratios.mean(),
        ratios.min(),
        ratios.max(),
        note,
    )
