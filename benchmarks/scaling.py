"""How the time grows with the sizes, as the slope of a line through the logarithms: 1 is growth in proportion.

Exact planning of sparse random models, one plan of the KL method on garnets, and sweeps by several processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import entropic_bpi as eb
from benchmarks.bench import Bench, Curve, sparse_mdp
from benchmarks.fresh import alone
from benchmarks.kl import full_plan, garnet_method, some_counts
from benchmarks.machine import cores
from benchmarks.table import Row, number
from benchmarks.timing import per_unit, race, slope

PART = "scaling"
SIZES = {"S": "states", "A": "actions", "H": "steps", "successors": "successors"}


def scaling(bench: Bench) -> Iterator[Row]:
    planning = {
        "S": bench.pick((1000, 10_000, 100_000, 1_000_000), (1000, 10_000)),
        "A": bench.pick((2, 4, 8, 16), (2, 8)),
        "H": bench.pick((5, 10, 20, 40), (5, 20)),
        "successors": bench.pick((2, 4, 8, 16, 32), (2, 8)),
    }
    kl_plan = {
        "S": bench.pick((50, 200, 800, 3200), (25, 100)),
        "A": bench.pick((2, 4, 8, 16), (2, 8)),
        "H": bench.pick((5, 10, 20, 40, 80), (5, 10, 20)),
        "successors": bench.pick((2, 4, 8, 16), (2, 8)),
    }
    base = bench.pick(100_000, 10_000)
    for size, values in planning.items():
        yield _measured(
            bench, "solve, β = 0.1, sparse", size, values, lambda **sizes: _solve_time(bench, base, **sizes)
        )
    for size, values in kl_plan.items():
        yield _measured(bench, "one KL plan", size, values, lambda **sizes: _plan_time(bench, **sizes))
    workers = sorted({1, 2, cores()})
    yield _measured(bench, "a sweep of 16 runs", "workers", workers, lambda workers: alone("sweep", workers).job)


def _measured(bench: Bench, what: str, size: str, values: Sequence[int], seconds: Callable[..., float]) -> Row:
    times = [seconds(**{size: value}) for value in values]
    curve = Curve(what, size, list(values), times, slope(values, times))
    bench.curves.append(curve)
    points = ", ".join(f"{number(1e3 * time)} at {value:,}" for value, time in zip(values, times, strict=True))
    name = SIZES.get(size, size)
    note = f"milliseconds: {points}"
    if size == "workers":
        note += "; -1 would be ideal; each process first starts Python and loads the compiled code"
    if size == "A" and "plan" in what:
        note += "; pairs that were never played cost next to nothing"
    if size == "H" and "plan" in what:
        few, later = slope(values, [_places(H=value) for value in values]), slope(values[1:], times[1:])
        note += f"; the pairs of a step and a state that can be reached there grow with slope {number(few)}"
        note += f"; without the shortest, the slope of the time is {number(later)}"
    return Row(PART, f"{what}, in the number of {name}", "slope", curve.slope, note=note)


def _solve_time(bench: Bench, base: int, S: int = 0, A: int = 4, H: int = 10, successors: int = 4) -> float:
    mdp = sparse_mdp(S or base, A, successors, H)
    return race(bench.pick(3, 2), it=per_unit(lambda: eb.solve(mdp, 0.1))).median("it")


def _plan_time(bench: Bench, S: int = 100, A: int = 4, H: int = 20, successors: int = 3) -> float:
    mdp, method = garnet_method("kl", S, A, successors, H)
    counts = some_counts(method, mdp, 3, 5 * S * A)  # as many visits a row for every size
    return race(bench.pick(3, 2), it=full_plan(method, counts)).median("it")


def _places(H: int) -> int:
    """The pairs of a step and a state that can be there; of the first steps few can, and after the last nothing matters."""
    return len(garnet_method("kl", 100, horizon=H)[1].frame.states)


def draw(curves: Sequence[Curve], path: Path) -> None:
    """One panel for each size, all in logarithms."""
    sizes = list(dict.fromkeys(curve.size for curve in curves))
    figure, panels = plt.subplots(1, len(sizes), figsize=(3.2 * len(sizes), 3.4), layout="constrained", squeeze=False)
    for size, panel in zip(sizes, panels[0], strict=True):
        mine = [curve for curve in curves if curve.size == size]
        for curve in mine:
            panel.loglog(curve.sizes, curve.seconds, "o-", label=f"{curve.what}: slope {curve.slope:.2f}")
        seconds = [second for curve in mine for second in curve.seconds]
        # Room for the legend above, and whole decades, so that a flat curve looks flat.
        panel.set_ylim(10 ** math.floor(math.log10(min(seconds))), 10 ** (math.ceil(math.log10(max(seconds))) + 1))
        ticks = sorted({value for curve in mine for value in curve.sizes})
        ticks = ticks if len(ticks) < 6 else [tick for tick in ticks if math.log10(tick) % 1 == 0]
        panel.set_xticks(ticks, [f"{tick:g}" if tick < 1e4 else f"$10^{{{math.log10(tick):.0f}}}$" for tick in ticks])
        panel.xaxis.minorticks_off()
        panel.set_xlabel(SIZES.get(size, size))
        panel.set_ylabel("seconds")
        panel.legend(fontsize=7, loc="upper left")
    figure.savefig(path, dpi=120)
    plt.close(figure)
