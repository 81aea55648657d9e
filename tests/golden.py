"""Results of seeded runs, so that a change that should change none can show it.

Integers and text must be the same on every processor: episodes, counts, policies. Computed numbers must agree to a relative
1e-12: what exp and log return depends on the processor in the last digits, and so does everything made from them.
``test_golden.py`` also checks that no decision of these runs is so close to a tie that those digits could settle it.

``python -m tests.golden`` writes ``golden.json`` anew; do that only for a change that says so in the changelog.
"""

import hashlib
import json
import math
import tempfile
from functools import partial
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
    weights = rng.random((3, 2, 3))
    transitions, rewards = weights / weights.sum(axis=-1, keepdims=True), 4 * rng.random((3, 2, 3)) - 2
    return eb.FiniteMDP(transitions, rewards, horizon=3, start=[0.2, 0.5, 0.3])


LOTTERY = random_start()
GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "seed": 7}
IDENTIFICATIONS = {
    "kl, nothing known": (BRIDGE, {"eps": 0.5}),
    "kl, seeking": (GARNET, {"beta": 2.5, "successors": "model", "eps": 0.1}),
    "kl, averse": (RIVER, {"successors": "model", "eps": 0.2}),
    "kl, pooled": (GARNET, {"successors": "model", "stationary": True, "beta": 1.0, "eps": 0.1}),
    "kl, pooled, nothing known": (BRIDGE, {"stationary": True, "eps": 0.5}),
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
        RIVER,
        {"method": "bernstein", "constants": "sharp", "replan": "every", "beta": 1.0, "max_episodes": 3000},
    ),
}
BLACK_BOX = {"horizon": 6, "reward_range": (0, 1), "max_episodes": 400, "seed": 3}
LEARNERS = sorted(set(eb.learners.names()) - {"generative"})

# A difference of numbers of about 1, such as the true gap of an optimal policy, may be nothing but rounding.
ABSOLUTE, RELATIVE = 1e-14, 1e-12


def digest(*arrays):
    """Of integers, and of rewards as they were received: a digest of computed numbers would depend on the processor."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def summary(numbers):
    """How many are finite, and their mean: one number in which each of them counts."""
    finite = numbers[np.isfinite(numbers)]
    return [len(finite), math.fsum(finite) / max(len(finite), 1)]


def nudged(settings, factor):
    """The settings with every real number multiplied by ``factor``."""
    real = {name: value * factor for name, value in settings.items() if name in ("beta", "eps", "delta")}
    return {**settings, **real}


def identification(result):
    claim, history = result.certificate, result.history
    *transitions, upper = claim.transitions[:5]
    assert np.array_equal(upper, transitions[-1])  # all rewards are exact
    return {
        "episodes": result.episodes,
        "stopped": result.stopped,
        "bounds": [claim.lower, claim.upper, claim.gap],
        "policy": digest(result.policy),
        "plans": digest(history["episodes"]),
        "history": [summary(history[name]) for name in ("lower", "upper", "gap")],
        "counts": digest(*transitions),
        "assumptions": list(claim.assumptions),
    }


def identified(source, options, factor):
    return identification(eb.identify(source, **nudged({**GOAL, **options}, factor)))


def certified(factor):
    result = eb.identify(GARNET, **nudged(GOAL, factor))
    claims = [eb.certify(result, beta=beta * factor) for beta in (-2.0, 0.0, 1.5)]
    return [[claim.lower, claim.upper, claim.gap] for claim in claims]


def learner_run(name, factor):
    result = eb.run(name, RIVER, beta=factor, episodes=2000, seed=4)
    return {
        "regret": float(result.regret[-1]),
        "grid": digest(result.grid),
        "curve": summary(result.regret),
        "policy_changes": result.policy_changes,
        "policy": digest(result.policy),
    }


def interrupted(factor):
    """A run taken up again half-way, from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        options = nudged({**GOAL, "successors": "model", "eps": 0.1}, factor)
        options["checkpoint"] = Path(folder) / "half.npz"
        eb.identify(GARNET, **options, max_episodes=300)
        return identification(eb.identify(GARNET, **options))


def sweep_rows(factor):
    runs = grid(learner=["rsq", "kl_bpi"], beta=[-factor, factor], episodes=500, seeds=2, horizon=5)
    runs += grid(horizon=5, method=["kl", "bernstein"], beta=2.0 * factor, eps=0.5 * factor, seeds=2)
    with tempfile.TemporaryDirectory() as folder:
        run(runs, folder, workers=0)
        table = load(folder).runs
    kept = ("algorithm", "seed", "episodes", "stopped", "lower", "upper", "gap", "true_gap", "regret")
    rows = [{name: table[name][i] for name in kept} for i in range(len(table["id"]))]
    return [{name: value for name, value in row.items() if value == value} for row in rows]  # NaN: does not apply


# By name: each returns its entry of the file in JSON's terms, for settings multiplied by a factor, which is 1 there.
CASES = {
    **{name: partial(identified, *case) for name, case in IDENTIFICATIONS.items()},
    **{f"black box, {n}": partial(identified, "FrozenLake-v1", {**BLACK_BOX, "num_envs": n}) for n in (1, 3)},
    "certify": certified,
    **{f"run, {name}": partial(learner_run, name) for name in LEARNERS},
    "checkpoint": interrupted,
    "sweep": sweep_rows,
}


def entry(name, factor=1.0):
    return json.loads(json.dumps(CASES[name](factor), default=lambda value: value.item()))


def differences(ours, frozen, relative=RELATIVE, where=""):
    """Every place where an entry is not what it was: a computed number may differ a little, anything else not at all."""
    ours, frozen = (dict(enumerate(value)) if isinstance(value, list) else value for value in (ours, frozen))
    if isinstance(ours, dict) and isinstance(frozen, dict) and ours.keys() == frozen.keys():
        parts = (differences(ours[key], frozen[key], relative, f"{where}[{key!r}]") for key in ours)
        return [difference for part in parts for difference in part]
    if isinstance(ours, float) and isinstance(frozen, float):
        same = math.isclose(ours, frozen, rel_tol=relative, abs_tol=ABSOLUTE)
    else:
        same = ours == frozen
    return [] if same else [f"{where} is {ours!r}, was {frozen!r}"]


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: entry(name) for name in CASES}, indent=1) + "\n")
