"""Certificates of every kind, and their reports, for the tests of the page."""

import json
from functools import cache

import gymnasium
import numpy as np
import pandas as pd

import entropic_bpi as eb
from entropic_bpi.certificate.contents import digest

GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "seed": 1}
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}&amp;\u202e",
    "x" * 5000,
    "</style>",
)


def bridge(horizon=5):
    return eb.instances.risky_bridge(horizon=horizon)


class Corridor(gymnasium.Env):
    """Cells (row, column) of a rectangle; the reward at the goal is there with probability 0.8."""

    observation_space = gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(3)))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = (0, 0)
        return self.place, {}

    def step(self, action):
        row, column = self.place
        self.place = (1, column) if action else (row, min(2, column + 1))
        won = self.place == (1, 2)
        return self.place, float(won and self.np_random.random() < 0.8), won, False, {}


def log():
    """Somebody's ways to work."""
    rng, places, lines = np.random.default_rng(0), ["home", "town", "office"], []
    for episode in range(200):
        at = 0
        for step in range(3):
            move = ["walk", "bus"][rng.integers(2)]
            to = min(2, at + (rng.random() < (0.8 if move == "bus" else 0.5)))
            lines.append((episode, step, places[at], move, float(to == 2), places[to]))
            at = to
    columns = ["episode", "step", "state", "action", "reward", "next_state"]
    return eb.Log.read(
        pd.DataFrame(lines, columns=columns), **{name: name for name in columns}, truncated=True, states=places
    )


def hostile_model():
    n = len(HOSTILE)
    ring = np.eye(n)[(np.arange(n) + 1) % n]
    actions = [f"go {HOSTILE[0]}", f"stay {HOSTILE[1]}"]
    return eb.FiniteMDP(
        np.stack([0.9 * ring + 0.1 * np.eye(n), np.eye(n)], axis=1),
        np.array([[0.0, 0.3]] * (n - 1) + [[2.0, 0.3]]),
        horizon=n,
        state_names=HOSTILE,
        action_names=actions,
    )


def _lake():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    declared = {"reward_range": (0, 1), "return_range": (0, 1), "max_successors": 1}
    return eb.identify(lake, horizon=7, **GOAL, **declared)


LOGGED = {"beta": -1.0, "delta": 0.05, "horizon": 3, "reward_range": (0, 1)}
KINDS = {
    "gap certificate": lambda: eb.identify(bridge(), **GOAL, successors="model"),
    "pair certificate": lambda: eb.identify(
        eb.instances.river_swim(horizon=10), **GOAL | {"eps": 0.5}, stationary=True, successors="model"
    ),
    "budget spent": lambda: eb.identify(bridge(), **GOAL | {"eps": 0.01}, successors="model", max_episodes=40),
    "no episode": lambda: eb.identify(bridge(), **GOAL | {"eps": 0.01}, max_episodes=1),
    "mean": lambda: eb.identify(bridge(), **GOAL | {"beta": 0.0}, successors="model"),
    "value at risk": lambda: eb.identify(
        bridge(), risk=eb.EVaR(0.3), eps=1.5, delta=0.1, seed=1, successors="model", max_episodes=2000
    ),
    "discounted": lambda: eb.identify(
        eb.instances.river_swim(n_states=3, horizon=1), discount=0.7, **GOAL | {"eps": 0.3}, successors="model"
    ),
    "bernstein sharp": lambda: eb.identify(
        bridge(3), **GOAL | {"beta": 0.5, "eps": 1.0}, method="bernstein", constants="sharp"
    ),
    "bernstein verified": lambda: eb.identify(
        bridge(3), **GOAL | {"beta": 0.5, "eps": 1.0}, method="bernstein", max_episodes=500
    ),
    "bernstein printed": lambda: eb.identify(
        bridge(3), **GOAL | {"beta": 0.5, "eps": 1.0}, method="bernstein", constants="printed", max_episodes=500
    ),
    "black box": _lake,
    "random rewards": lambda: eb.identify(
        Corridor, horizon=3, reward_range=(0, 1), reward_law="random", **GOAL | {"eps": 0.5}, max_episodes=300
    ),
    "log": lambda: eb.certify(log(), **LOGGED),
    "given policy": lambda: eb.certify(
        log(), **LOGGED, eps=0.2, policy={"home": "walk", "town": "bus", "office": "walk"}
    ),
    "other beta": lambda: eb.certify(made("gap certificate"), beta=-2.0),
    "hostile names": lambda: eb.identify(hostile_model(), **GOAL, successors="model"),
}


@cache
def made(kind):
    """The result of a run, or the certificate, of this kind."""
    return KINDS[kind]()


def certificate_of(kind):
    return getattr(made(kind), "certificate", made(kind))


@cache
def page_of(kind):
    """The report as text."""
    from entropic_bpi.show.report._page import inputs_of, page_of

    return page_of(inputs_of(made(kind)))


@cache
def appraised():
    """An appraisal of three policies, from a run."""
    run = made("budget spent")
    bold = np.ones_like(run.policy)
    return eb.appraise(
        run, {"found": run, "<b>bold</b>": bold, "x" * 200: 0 * bold}, measures=["mean", "cvar 0.05", "below 0"]
    )


@cache
def decision_page():
    """Its page as text."""
    from entropic_bpi.show.report._page import inputs_of, page_of

    return page_of(inputs_of(appraised()))


def forge(certificate, path, **claim):
    """Write a file that claims something else and is otherwise in order."""
    content = certificate._content()
    content["claim"] |= claim
    path.write_text(json.dumps({**content, "digest": digest(content)}))
    return path
