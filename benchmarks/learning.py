"""Time per episode: every learner, and identification that plans after each episode, on the risky bridge with H = 7.

The opponents: ``UCBVIAgent`` of rlberry-scool with stage-dependent counts, which plans after every episode too (it
minimises the regret of the expectation, and neither tests nor certifies), and our plain NumPy versions, which do exactly
the same as the compiled ones: regrets, policies and bounds are compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import entropic_bpi as eb
from benchmarks.bench import Bench, as_lists
from benchmarks.peers import named
from benchmarks.references import bernstein, learners
from benchmarks.table import Row, compared
from benchmarks.timing import Measure, per_unit, race

PART = "learning"
GOAL = {"eps": 0.2, "delta": 0.1}
UNIT = "µs per episode"
NUMPY = f"NumPy version of the same ({named('numpy')})"
METHODS = {
    "bernstein, verified": {"method": "bernstein", "constants": "verified"},
    "bernstein, sharp": {"method": "bernstein", "constants": "sharp"},
    "kl, nothing known": {"method": "kl"},
    "kl, successors known": {"method": "kl", "successors": "model"},
    "kl, successors known, stationary": {"method": "kl", "successors": "model", "stationary": True},
}


def learning(bench: Bench) -> Iterator[Row]:
    bridge = eb.instances.risky_bridge(horizon=7)
    opponents = _ucbvi(bench, bridge)
    for learner in eb.learners.names():
        yield from _learner(bench, bridge, learner, opponents)
    for name, options in METHODS.items():
        yield from _identify(bench, bridge, name, options, opponents)


def _ucbvi(bench: Bench, bridge: eb.FiniteMDP) -> dict[str, Measure]:
    """rlberry-scool as it is, and with its planning compiled."""
    if bench.peers is None:
        return {}
    size = {"start": bridge.start, "horizon": bridge.horizon, "episodes": bench.pick(300, 100)}
    peer = bench.peers["rlberry"]
    return {
        name: peer.prepare("ucbvi", compiled=compiled, **size, **as_lists(bridge)).measure
        for name, compiled in (("UCBVI", False), ("compiled UCBVI", True))
    }


def _rows(what: str, times, note: str = "") -> Iterator[Row]:
    rlberry, extra = named("rlberry-scool"), "its planning compiled by us with Numba"
    for theirs, peer, more in (
        ("NumPy", NUMPY, ""),
        ("UCBVI", f"UCBVIAgent, {rlberry}", note),
        ("compiled UCBVI", f"UCBVIAgent, {rlberry}", f"{extra}; {note}" if note else extra),
    ):
        if theirs in times.seconds:
            yield compared(PART, what, times, theirs=theirs, peer=peer, unit=UNIT, note=more)


def _learner(bench: Bench, bridge: eb.FiniteMDP, learner: str, opponents: dict[str, Measure]) -> Iterator[Row]:
    common = {"beta": 1.5, "delta": 0.1, "seed": 0, "scale": 0.2}
    episodes, few = bench.pick(100_000, 20_000), bench.pick(200, 50)
    contestants: dict[str, Measure] = {
        "ours": lambda: eb.run(learner, bridge, episodes=episodes, **common).seconds / episodes
    }
    if learner in learners.AGENTS:
        optimum = eb.solve(bridge, common["beta"]).value

        def plain() -> np.ndarray:
            return learners.regret(learner, bridge, episodes=few, optimum=optimum, **common)[0]

        ours = eb.run(learner, bridge, episodes=few, **common)
        np.testing.assert_allclose(ours.regret, plain()[ours.grid - 1], rtol=1e-10, atol=1e-10)
        contestants["NumPy"] = per_unit(plain, few)
    yield from _rows(learner, race(bench.rounds, **contestants, **opponents))


def _identify(
    bench: Bench, bridge: eb.FiniteMDP, name: str, options: dict[str, object], opponents: dict[str, Measure]
) -> Iterator[Row]:
    fast = options["method"] == "bernstein"
    episodes = bench.pick(50_000, 10_000) if fast else bench.pick(1000, 200)

    def ours() -> float:
        budget = {"max_episodes": episodes, "replan": "every", "seed": 0}
        result = eb.identify(bridge, beta=2.5, **GOAL, **budget, **options)
        return result.seconds / result.episodes

    contestants: dict[str, Measure] = {"ours": ours}
    if fast:
        plain = PlainBernstein(bridge, str(options["constants"]))
        plain.check()
        contestants["NumPy"] = per_unit(plain.episode, repeats=bench.pick(20, 5))
    yield from _rows(
        f"identify, {name}", race(bench.rounds, **contestants, **opponents), "ours bounds, tests and certifies as well"
    )


class PlainBernstein:
    """The paper's loop in NumPy: plan from dense counts, then play one episode."""

    def __init__(self, bridge: eb.FiniteMDP, constants: str) -> None:
        shape = (bridge.horizon, bridge.n_states, bridge.n_actions)
        self.bridge, self.constants, self.rng = bridge, constants, np.random.default_rng(0)
        self.rewards = np.broadcast_to(bridge.rewards, shape)
        self.counts = np.zeros((*shape, bridge.n_states), dtype=np.int64)
        self.kernel = np.asarray(bridge.transitions)

    def plan(self) -> bernstein.Result:
        goal = {"beta": 2.5, "delta": GOAL["delta"], "constants": self.constants}
        return bernstein.plan(self.counts, self.rewards, **goal, start=self.bridge.start)

    def episode(self) -> None:
        policy, s = self.plan().policy, self.bridge.start
        for h in range(self.bridge.horizon):
            a = policy[h, s]
            following = self.rng.choice(self.bridge.n_states, p=self.kernel[s, a])
            self.counts[h, s, a, following] += 1
            s = following

    def check(self) -> None:
        """The bounds from the counts of a run of ours are those that the run ended with."""
        options = {"method": "bernstein", "constants": self.constants, "replan": "every"}
        result = eb.identify(self.bridge, beta=2.5, **GOAL, **options, max_episodes=200, seed=0)
        seen = result.certificate.transitions
        twin = PlainBernstein(self.bridge, self.constants)
        flat = twin.counts.reshape(-1, self.bridge.n_states)
        np.add.at(flat, (seen.rows, seen.successors), seen.times)
        np.testing.assert_allclose(twin.plan().upper, result.certificate.upper, rtol=1e-9)
