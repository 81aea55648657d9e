"""Identification beside what others run: ``python -m benchmarks.identify``.

Three times per episode, in turns in one go: plan, test and play after every episode on the risky bridge with horizon 7;
the same in plain NumPy (the reference of the tests); and ``UCBVIAgent`` of rlberry-scool with stage-dependent counts, which
plans after every episode too. That library gets a temporary environment of its own, with pinned versions; ``--no-peer``
leaves it out. Then the time of a whole run with the default batches. Compilation is not counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

import entropic_bpi as eb
from entropic_bpi.counts import Counts
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.problem import Problem
from entropic_bpi.sampling.simulator import Simulator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference import bernstein as reference

PEER = ("rlberry==0.7.3", "rlberry-scool==0.7.3", "gymnasium==0.29.1")
BETA, EPS, DELTA, HORIZON = 2.5, 0.2, 0.1, 7
PEER_SCRIPT = """
import json, logging, sys, time
import numpy as np
from rlberry.envs.finite_mdp import FiniteMDP
from rlberry_scool.agents import UCBVIAgent

logging.disable(logging.CRITICAL)
model = json.loads(sys.stdin.readline())
env = FiniteMDP(np.array(model["rewards"]), np.array(model["transitions"]), initial_state_distribution=model["start"])
agent = UCBVIAgent(env, gamma=1.0, horizon=model["horizon"], stage_dependent=True)
agent.fit(budget=20)
for line in sys.stdin:
    episodes = int(line)
    began = time.perf_counter()
    agent.fit(budget=episodes)
    print("seconds", (time.perf_counter() - began) / episodes, flush=True)
"""


class Peer:
    """rlberry-scool in a process of its own, which plays as many episodes as it is asked to."""

    def __init__(self, folder: Path, bridge: eb.FiniteMDP) -> None:
        venv.create(folder, with_pip=True)
        python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        print("installing", *PEER, "...", flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEER], check=True, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [python, "-c", PEER_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        model = {
            "rewards": np.asarray(bridge.rewards).tolist(),
            "transitions": np.asarray(bridge.transitions).tolist(),
            "start": bridge.start,
            "horizon": bridge.horizon,
        }
        self._tell(json.dumps(model))

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def per_episode(self, episodes: int = 300) -> float:
        assert self.process.stdout is not None
        self._tell(str(episodes))
        for line in self.process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError("rlberry-scool ended early")

    def close(self) -> None:
        self.process.communicate()


class Ours:
    """The compiled loop."""

    def __init__(self, bridge: eb.FiniteMDP) -> None:
        problem = Problem.from_mdp(bridge, beta=BETA, eps=EPS, delta=DELTA)
        self.method, self.counts = Bernstein(problem, "verified", 1), Counts(problem)
        self.simulator = Simulator(bridge, problem, np.random.default_rng(0))
        self.per_episode(2_000)

    def per_episode(self, episodes: int = 50_000) -> float:
        began = time.perf_counter()
        for _ in range(episodes // 2_000):
            plan = self.method.plan(self.counts, 0)
            self.method.play_every(plan, self.counts, self.simulator, 0, 2_000)
        return (time.perf_counter() - began) / episodes


class Plain:
    """The same in NumPy: plan from dense counts, then play one episode."""

    def __init__(self, bridge: eb.FiniteMDP) -> None:
        shape = (bridge.horizon, bridge.n_states, bridge.n_actions)
        self.bridge, self.rng = bridge, np.random.default_rng(0)
        self.rewards = np.broadcast_to(bridge.rewards, shape)
        self.counts = np.zeros((*shape, bridge.n_states), dtype=np.int64)
        self.kernel = np.asarray(bridge.transitions)

    def per_episode(self, episodes: int = 10) -> float:
        began = time.perf_counter()
        for _ in range(episodes):
            plan = reference.plan(
                self.counts, self.rewards, beta=BETA, delta=DELTA, constants="verified", start=self.bridge.start
            )
            s = self.bridge.start
            for h in range(self.bridge.horizon):
                a = plan.policy[h, s]
                following = self.rng.choice(self.bridge.n_states, p=self.kernel[s, a])
                self.counts[h, s, a, following] += 1
                s = following
        return (time.perf_counter() - began) / episodes


def whole_run(bridge: eb.FiniteMDP) -> None:
    options = {"beta": BETA, "eps": EPS, "delta": DELTA, "method": "bernstein"}
    eb.identify(bridge, **options, seed=0, max_episodes=100)
    runs = [eb.identify(bridge, **options, seed=seed) for seed in range(5)]
    seconds = statistics.median(run.seconds for run in runs)
    print(f"whole run, default batches: {runs[0].episodes:.3g} episodes in {seconds:.2f} s (at most 1)")


def main() -> None:
    bridge = eb.instances.risky_bridge(horizon=HORIZON)
    with tempfile.TemporaryDirectory() as folder:
        contestants: dict[str, Ours | Plain | Peer] = {"ours": Ours(bridge), "NumPy": Plain(bridge)}
        if "--no-peer" not in sys.argv:
            contestants["UCBVIAgent"] = Peer(Path(folder) / "peer", bridge)
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(7):
            for name, contestant in contestants.items():
                times[name].append(contestant.per_episode())
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, goal in (("ours", 0), ("NumPy", 100), ("UCBVIAgent", 300)):
            if name in medians:
                ratio = (
                    f", ours is {medians[name] / medians['ours']:,.0f} times faster (at least {goal})" if goal else ""
                )
                print(f"{name:<11}{1e6 * medians[name]:>10,.1f} µs per episode{ratio}")
        peer = contestants.get("UCBVIAgent")
        if isinstance(peer, Peer):
            peer.close()
    whole_run(bridge)


if __name__ == "__main__":
    main()
