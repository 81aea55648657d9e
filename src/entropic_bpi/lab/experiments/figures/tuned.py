"""Regret with the best bonus scale of each learner, out of one grid for all.

Scales are chosen, and learners ranked, by the regret over K episodes. The smaller the bonus, the sooner a learner settles on
a policy, and a nearly optimal policy costs little within K episodes. So the table also has the loss of the final policies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.figures._figure import Plot, Size, Table, column
from entropic_bpi.lab.experiments.figures.regret import HORIZON, LEARNERS, NAMES, apart, curve_of, draw, listed, ranking
from entropic_bpi.lab.experiments.spec import RunSpec, grid
from entropic_bpi.lab.experiments.store import Results

SCALES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
BETA, EPISODES = 2.0, 10**6
# Seeds from this one on choose the scale; the curves are drawn from the others, so that the choice does not bias them.
TUNING_SEED = 1000
# A policy that loses less than this, which is rounding, counts as optimal.
BEST = 1e-9


def _sweep(size: Size) -> list[RunSpec]:
    episodes = min(size.episodes, EPISODES)
    tuning = range(TUNING_SEED, TUNING_SEED + max(2, size.seeds // 3))
    seeds = [*range(size.seeds), *tuning]
    return grid(horizon=HORIZON, beta=BETA, learner=LEARNERS, episodes=episodes, scale=SCALES, seeds=seeds)


def _table(results: Results) -> Table:
    runs = results.runs
    scales = np.array([spec["options"]["scale"] for spec in results.specs])
    tuning = runs["seed"] >= TUNING_SEED
    table = []
    for learner in LEARNERS:
        mine = runs["algorithm"] == learner
        tried = sorted(set(scales[mine & tuning]), reverse=True)
        if tried:
            best = min(tried, key=lambda scale: runs["regret"][mine & tuning & (scales == scale)].mean())
            shown = mine & ~tuning & (scales == best)
            lost = runs["true_gap"][shown]
            ends = {
                "true_gap": float(lost.mean()),
                "true_gap_low": float(lost.min()),
                "true_gap_high": float(lost.max()),
            }
            table += curve_of(results, shown, learner=learner, scale=float(best), **ends)
    return table


def _describe(table: Table) -> str:
    order = ranking(table)
    episodes = order[0]["episodes"]
    chosen = ", ".join(f"{NAMES[row['learner']]} {row['scale']:g}" for row in order)
    edge = [NAMES[row["learner"]] for row in order if row["scale"] == min(SCALES)]
    beyond = f" For {', '.join(edge)} it is the smallest of the grid." if edge else ""
    return (
        f"Cumulative regret at β = {BETA:g} on the risky bridge (H = {HORIZON}), each learner with the bonus scale "
        f"that gave it the lowest regret after {episodes} episodes, out of one grid common to all (1 to "
        f"{min(SCALES):g}). Scales were chosen on seeds of their own; the curves are means over {order[0]['seeds']} other "
        f"seeds with Student's 95% band. A scale below 1 gives up the published guarantees. Chosen: {chosen}.{beyond} "
        f"{listed(order)} The lowest is {NAMES[order[0]['learner']]}; its interval and that of the next one, "
        f"{NAMES[order[1]['learner']]}, are {apart(order[0], order[1])}. {_ends(order)}"
    )


def _ends(order: Table) -> str:
    """Describe the losses of the final policies, which say what the ranking measures."""
    lost = "; ".join(f"{NAMES[row['learner']]} {_range(row)}" for row in order)
    found = [NAMES[row["learner"]] for row in order if row["true_gap_high"] <= BEST]
    gaps = np.concatenate([column(order, "true_gap_low"), column(order, "true_gap_high")])
    text = f"Loss per episode of the final policy, from the smallest to the largest over the seeds: {lost}."
    if np.ptp(gaps) <= BEST < gaps.min():
        return (
            f"{text} All learners end with a policy of the same loss, which is not optimal: the ranking says which "
            "learner settles on it first, not which finds an optimal one."
        )
    best = f"{', '.join(found)} end{'s' * (len(found) == 1)}" if found else "No learner ends"
    return f"{text} {best} with an optimal policy on every seed; the regret of the others keeps growing at that rate."


def _range(row: dict[str, Any]) -> str:
    low, high = row["true_gap_low"], row["true_gap_high"]
    return f"{low:.2g}" if high - low <= BEST else f"{low:.2g} to {high:.2g}"


TUNED = Plot(_sweep, _table, draw, _describe)
