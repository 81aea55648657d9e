"""Exact results of seeded runs, so that a change that should change none can show it.

``python -m tests.golden`` writes ``golden.json`` anew; do that only for a change that says so in the changelog.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np

import entropic_bpi as eb
from entropic_bpi.lab.experiments import grid, load, run

FILE = Path(__file__).with_name("golden.json")

BRIDGE = eb.instances.risky_bridge(horizon=7)
GARNET = eb.instances.garnet(5, 2, 3, horizon=4, seed=3)
RIVER = eb.instances.river_swim(4, horizon=6)


def random_start():
    """A model with a random start and rewards that depend on the next state."""
    rng = np.random.default_rng(5)
    transitions = rng.dirichlet(np.ones(3), size=(3, 2))
    return eb.FiniteMDP(transitions, rng.normal(size=(3, 2, 3)), horizon=3, start=[0.2, 0.5, 0.3])


LOTTERY = random_start()
GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "seed": 7}
IDENTIFICATIONS = {
    "kl, nothing known": (BRIDGE, {"eps": 0.5}),
    "kl, seeking": (BRIDGE, {"beta": 2.5, "successors": "model"}),
    "kl, averse": (BRIDGE, {"successors": "model", "eps": 0.2}),
    "kl, pooled": (BRIDGE, {"successors": "model", "stationary": True, "beta": 1.0}),
    "kl, pooled, nothing known": (RIVER, {"stationary": True, "eps": 0.5}),
    "kl, expectation": (GARNET, {"beta": 0.0, "eps": 0.2}),
    "kl, optimistic": (GARNET, {"sampling": "optimistic", "beta": 0.7}),
    "kl, every": (GARNET, {"replan": "every", "successors": "model", "eps": 0.2}),
    "kl, lowest ties": (GARNET, {"ties": "lowest", "beta": 2.0, "eps": 0.4}),
    "kl, random start": (LOTTERY, {"eps": 0.6}),
    "kl, random start, pooled": (LOTTERY, {"eps": 0.6, "beta": 0.8, "stationary": True, "successors": "model"}),
    "kl, budget": (GARNET, {"eps": 0.01, "max_episodes": 700}),
    "kl, steep": (RIVER, {"beta": 60.0, "max_episodes": 400, "successors": "model", "stationary": True}),
    "bernstein, seeking": (BRIDGE, {"method": "bernstein", "beta": 2.5, "eps": 0.4}),
    "bernstein, sharp, averse": (BRIDGE, {"method": "bernstein", "constants": "sharp"}),
    "bernstein, sharp, pooled": (
        GARNET,
        {"method": "bernstein", "constants": "sharp", "stationary": True, "beta": 1.0},
    ),
    "bernstein, every": (GARNET, {"method": "bernstein", "replan": "every", "max_episodes": 3000}),
    "bernstein, sharp, every": (
        GARNET,
        {"method": "bernstein", "constants": "sharp", "replan": "every", "beta": 1.0, "max_episodes": 3000},
    ),
}
BLACK_BOX = {"horizon": 6, "reward_range": (0, 1), "max_episodes": 400}
LEARNERS = sorted(set(eb.learners.names()) - {"generative"})


def digest(*arrays):
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def identification(result):
    claim = result.certificate
    *transitions, upper = claim.transitions
    assert np.array_equal(upper, transitions[-1])  # all rewards are exact
    return {
        "episodes": result.episodes,
        "stopped": result.stopped,
        "bounds": [claim.lower, claim.upper, claim.gap],
        "policy": digest(result.policy),
        "history": digest(*(result.history[name] for name in result.history.dtype.names)),
        "counts": digest(*transitions),
        "assumptions": list(claim.assumptions),
    }


def learner_run(result):
    return {
        "regret": float(result.regret[-1]),
        "curve": digest(result.grid, result.regret, result.policy_changes),
        "policy": digest(result.policy),
    }


def interrupted(folder):
    """A run taken up again half-way, from its checkpoint."""
    path = Path(folder) / "half.npz"
    options = {**GOAL, "beta": 2.5, "successors": "model", "checkpoint": path}
    eb.identify(BRIDGE, **options, max_episodes=300)
    return eb.identify(BRIDGE, **options)


def sweep_rows(folder):
    runs = grid(learner=["rsq", "kl_bpi"], beta=[-1.0, 1.0], episodes=500, seeds=2, horizon=5)
    runs += grid(horizon=5, method=["kl", "bernstein"], beta=2.0, eps=0.5, seeds=2)
    run(runs, folder, workers=0)
    table = load(folder).runs
    kept = ("id", "episodes", "stopped", "lower", "upper", "gap", "true_gap", "regret")
    return [{name: table[name][i] for name in kept} for i in range(len(table["id"]))]


def results():
    """Everything that is frozen, in JSON's terms."""
    found = {}
    for name, (mdp, options) in IDENTIFICATIONS.items():
        found[name] = identification(eb.identify(mdp, **{**GOAL, **options}))
    for copies in (1, 3):
        played = eb.identify("FrozenLake-v1", **GOAL, **BLACK_BOX, num_envs=copies)
        found[f"black box, {copies}"] = identification(played)
    result = eb.identify(GARNET, **GOAL)
    found["certify"] = [[c.lower, c.upper, c.gap] for c in (eb.certify(result, beta=b) for b in (-2.0, 0.0, 1.5))]
    for name in LEARNERS:
        found[f"run, {name}"] = learner_run(eb.run(name, BRIDGE, beta=1.0, episodes=2000, seed=4))
    with tempfile.TemporaryDirectory() as folder:
        found["checkpoint"] = identification(interrupted(folder))
        found["sweep"] = sweep_rows(Path(folder) / "sweep")
    return json.loads(json.dumps(found, default=lambda value: value.item()))


if __name__ == "__main__":
    FILE.write_text(json.dumps(results(), indent=1) + "\n")
