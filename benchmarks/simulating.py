"""Episodes of FrozenLake-v1 with one fixed policy: our simulator, Gymnasium's loop, and our black-box player.

The simulator samples the table that the environment publishes; that both play the same game is checked by the lengths
and returns of the episodes. The player steps the environment itself, so it cannot be faster than the bare loop: its ratio
says how much checking and counting every step adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from numba import njit

import entropic_bpi as eb
from benchmarks.bench import Bench
from benchmarks.peer_side.jobs import Lake
from benchmarks.peers import Job, named
from benchmarks.table import Row, as_rates, compared
from benchmarks.timing import Measure, race
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import AssumptionTests
from entropic_bpi.sources.environment import Player, open_environment
from entropic_bpi.sources.simulator import Simulator, play_episode
from entropic_bpi.types import Behaviour

PART = "simulating"
LIMIT = 100  # the environment's own time limit
GOAL = {"beta": 1.0, "eps": 0.1, "delta": 0.1}


@njit
def play_episodes(kernel, frame, behaviour, arrays, rng, episodes):
    for _ in range(episodes):
        play_episode(kernel, frame, behaviour, arrays, rng)


def always(policy: np.ndarray, steps: int) -> Behaviour:
    table = np.tile(policy, (steps, 1))
    return Behaviour(table, table, table, False)


class Simulated:
    """The lake as a model; steps after the end do not count, though they are simulated."""

    def __init__(self, lake: eb.FiniteMDP, policy: np.ndarray) -> None:
        self.problem = Problem.from_mdp(lake, **GOAL, stationary=True, successors="model")
        self.simulator = Simulator(lake, self.problem, np.random.default_rng(0))
        self.counts = Counts(self.problem)
        self.counts.reserve(10_000)
        self.behaviour = always(policy, self.problem.steps)
        end = lake.n_states - 1
        self.real = self.problem.rows_at(self.problem.steps - 1, np.arange(end))
        self.episodes = 0

    def steps(self) -> int:
        return int(self.counts.arrays.visits[self.real].sum())

    def one_by_one(self, episodes: int) -> None:
        simulator = self.simulator
        play_episodes(simulator.kernel, simulator.frame, self.behaviour, self.counts.arrays, simulator.rng, episodes)
        self.episodes += episodes

    def at_once(self, episodes: int) -> None:
        self.simulator.play(self.behaviour, episodes, self.counts)
        self.episodes += episodes

    def measure(self, play: Callable[[int], None], episodes: int) -> Measure:
        def seconds_per_step() -> float:
            before, began = self.steps(), time.perf_counter()
            play(episodes)
            return (time.perf_counter() - began) / (self.steps() - before)

        return seconds_per_step


class Played:
    """The lake as a black box, in this process."""

    def __init__(self, policy: np.ndarray, episodes: int) -> None:
        self.environment = open_environment("FrozenLake-v1", 1)
        self.problem = self.environment.problem(horizon=LIMIT, reward_range=(0.0, 1.0), stationary=True, **GOAL)
        self.player = Player(self.environment, self.problem, 0, AssumptionTests(self.problem))
        self.behaviour, self.episodes, self.round = always(policy, self.problem.steps), episodes, 0

    def measure(self) -> float:
        counts = Counts(self.problem)
        began = time.perf_counter()
        self.player.play(self.behaviour, self.episodes, counts, self.round)
        seconds = time.perf_counter() - began
        self.round += 1
        return seconds / int(counts.arrays.visits[:-1].sum())


def simulating(bench: Bench) -> Iterator[Row]:
    lake = eb.from_gymnasium("FrozenLake-v1", horizon=LIMIT)
    policy = eb.solve(lake, 0.0).policy[0]
    yield from _simulator(bench, lake, policy)
    episodes = bench.pick(500, 100)
    bare: Any = Lake(policy[:-1].tolist(), episodes)
    played = Played(policy, episodes)
    times = race(bench.rounds, ours=played.measure, bare=bare.measure)
    note = "the claim is a ratio near 1: what the loop adds to the environment's own step"
    peer = f"bare loop, gymnasium {version('gymnasium')}"
    what = "black box, through reset and step"
    row = compared(PART, what, times, theirs="bare", peer=peer, unit="µs per step", note=note)
    yield as_rates(row, "steps per second")


def _simulator(bench: Bench, lake: eb.FiniteMDP, policy: np.ndarray) -> Iterator[Row]:
    if bench.peers is None:
        return
    job = bench.peers["solvers"].prepare("lake", policy=policy[:-1].tolist(), episodes=bench.pick(1000, 200))
    peer = f"env.step, {named('gymnasium')}"
    single, many = Simulated(lake, policy), Simulated(lake, policy)
    times = race(
        bench.rounds,
        ours=single.measure(single.one_by_one, bench.pick(20_000, 5_000)),
        many=many.measure(many.at_once, 1_000_000),
        gymnasium=job.measure,
    )
    _check_same_game(job, single)
    _check_same_game(job, many)
    names = {"ours": "one episode at a time", "many": "a million episodes at once, by multinomial splitting"}
    for ours, what in names.items():
        row = compared(PART, what, times, ours=ours, theirs="gymnasium", peer=peer, unit="µs per step")
        yield as_rates(row, "steps per second")


def _check_same_game(job: Job, ours: Simulated) -> None:
    """The mean length of an episode agrees to five standard errors, of theirs and of ours."""
    lengths = job.answer()["lengths"]
    error = np.std(lengths) * np.sqrt(1 / len(lengths) + 1 / ours.episodes)
    difference = ours.steps() / ours.episodes - np.mean(lengths)
    assert abs(difference) < 5 * error, f"mean lengths differ by {difference}, standard error {error}"
