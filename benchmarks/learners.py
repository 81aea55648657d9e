"""Episodes per second of every learner, beside its plain NumPy version: ``python -m benchmarks.learners``.

Both play the same episodes of the risky bridge, horizon 7, in one process; the NumPy version plays fewer of them, and
rates are compared. Compilation is not counted. ``--long`` also plays ten million episodes of each learner.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import entropic_bpi as eb
from entropic_bpi.learners import names, run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference import learners as reference

BETA = 1.5
SCALE = 0.2


def main() -> None:
    bridge = eb.instances.risky_bridge(horizon=7)
    optimum = eb.solve(bridge, BETA).value
    long = "--long" in sys.argv
    print(f"{'learner':<15}{'episodes/s':>12}{'NumPy':>10}{'ratio':>9}" + (f"{'10^7 episodes':>16}" if long else ""))
    for name in names():
        run(name, bridge, beta=BETA, episodes=10, seed=0)
        episodes = 300_000
        rate = episodes / run(name, bridge, beta=BETA, episodes=episodes, seed=0, scale=SCALE).seconds
        line = f"{name:<15}{rate:>12,.0f}"
        if name in reference.AGENTS:
            began = time.perf_counter()
            reference.regret(name, bridge, beta=BETA, episodes=1000, delta=0.1, seed=0, scale=SCALE, optimum=optimum)
            plain = 1000 / (time.perf_counter() - began)
            line += f"{plain:>10,.0f}{rate / plain:>8,.0f}x"
        else:
            line += f"{'':>19}"
        if long:
            line += f"{run(name, bridge, beta=BETA, episodes=10_000_000, seed=0).seconds:>14.1f} s"
        print(line, flush=True)


if __name__ == "__main__":
    main()
