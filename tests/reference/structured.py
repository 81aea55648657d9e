"""Worlds that drive doubles to their limits: doorways, chains, rare falls, absorbing states, and large |β|·range.

Each comes as a learner's problem with counts, and with the kernel and the rewards that the counts were drawn from. The
kernel lies in all of the balls, so whatever is certified from the counts must be true of it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions
from reference.evar_attack import values
from reference.kl import Tables
from reference.kl_attack import Case, _tables, _with_intervals

FAMILIES = ("doorway", "chain", "rooms")
VISITS = (0, 0, 0, 1, 1, 2, 3, 10, 100, 1000)
SHARES = (0.5, 0.5, 0.9, 0.99, 0.999, 0.01)


@dataclass
class World:
    """Transitions and rewards ``(H, S, A, S)``; the last state is absorbing."""

    kernel: np.ndarray
    rewards: np.ndarray
    next_state_rewards: bool

    def mdp(self, start: int | np.ndarray = 0) -> eb.FiniteMDP:
        kernel = self.kernel[0] if self.constant else self.kernel
        rewards = self.rewards if self.next_state_rewards else self.rewards[0, ..., 0]
        return eb.FiniteMDP(kernel, rewards, horizon=len(self.rewards), start=start)

    @property
    def constant(self) -> bool:
        return bool((self.kernel == self.kernel[0]).all())


@dataclass
class Instance:
    """A case, its model, and what is true: the kernel and the rewards ``(T, S, A, S)``, a random start being step 0."""

    case: Case
    mdp: eb.FiniteMDP
    kernel: np.ndarray
    rewards: np.ndarray

    def values(self, policy: np.ndarray) -> tuple[float, float]:
        """The best value and that of ``policy`` under the true kernel, by logarithms."""
        t, beta = self.case.tables, self.case.problem.beta
        of = (self.kernel, self.rewards, t.actions, t.reachable, policy, self.case.start)
        best, own = values(*of, [-beta])[:, 0]
        return float(best), float(own)


def doorway(actions: int, horizon: int) -> World:
    """From the first state one action leads to a room, where all actions but the last one fall out half of the time."""
    kernel, rewards = np.zeros((3, actions, 3)), np.zeros((3, actions, 3))
    kernel[0, 0, 1] = rewards[0, 0, 1] = 1.0
    kernel[0, 1:, 2] = kernel[2, :, 2] = 1.0
    kernel[1, :, 1] = kernel[1, :, 2] = 0.5
    kernel[1, -1] = 0.0, 1.0, 0.0
    rewards[1, :, 1] = 1.0
    return World(np.stack([kernel] * horizon), np.stack([rewards] * horizon), True)


def doorway_successors(actions: int) -> np.ndarray:
    """Which transitions are declared possible there: through the door one may also fall."""
    mask = np.zeros((3, actions, 3), dtype=bool)
    mask[0, 0, 1:] = mask[0, 1:, 2] = mask[1, :, 1:] = mask[2, :, 2] = True
    return mask


def chain(rng: np.random.Generator, states: int, actions: int, horizon: int) -> World:
    """Each room has a sure way to the next one; other actions take it less often, stay, or fall."""
    kernel, pit = np.zeros((states, actions, states)), states - 1
    for s in range(pit):
        onward = min(s + 1, pit - 1)
        for a in range(actions):
            there = (onward, onward, s, pit)[rng.integers(4)]
            kernel[s, a, there] += 1.0
            if rng.random() < 0.5:
                share = rng.choice(SHARES)
                kernel[s, a] *= share
                kernel[s, a, pit] += 1.0 - share
        kernel[s, rng.integers(actions)] = np.arange(states) == onward
    kernel[pit, :, pit] = 1.0
    return _paid(rng, np.stack([kernel] * horizon))


def rooms(rng: np.random.Generator, states: int, actions: int, horizon: int) -> World:
    """One heavy and one light successor everywhere; rows may change from step to step."""
    steps = horizon if rng.random() < 0.5 else 1
    kernel, pit = np.zeros((steps, states, actions, states)), states - 1
    for row in np.ndindex(steps, pit, actions):
        heavy, light = rng.integers(states, size=2)
        share = rng.choice((1.0, 1.0, *SHARES))
        kernel[(*row, heavy)] += share
        kernel[(*row, light)] += 1.0 - share
    kernel[:, pit, :, pit] = 1.0
    return _paid(rng, np.repeat(kernel, horizon // steps, axis=0))


def _paid(rng: np.random.Generator, kernel: np.ndarray) -> World:
    """Rewards of 1, less, or nothing, on the way to the next state or not; the absorbing state pays nothing."""
    shape, next_state = kernel.shape[1:], rng.random() < 0.7
    rewards = rng.choice((1.0, 1.0, 0.5, 0.0, rng.random()), size=shape if next_state else (*shape[:2], 1))
    rewards = np.broadcast_to(rewards, shape).copy()
    if next_state:
        rewards[..., -1] = 0.0
    rewards[-1] = 0.0
    if rng.random() < 0.3:
        rewards = 1.0 - rewards  # it pays most
    rewards[0, 0, 0] += 0.0 if rewards.max() > rewards.min() else 1.0
    return World(kernel, np.stack([rewards] * len(kernel)), next_state)


def draw_structured(rng: np.random.Generator, exponents: tuple[float, float] = (200.0, 599.9)) -> Instance:
    """A world, counts for which the event holds, and |β| times the range of the return between ``exponents``."""
    family = FAMILIES[rng.integers(len(FAMILIES))]
    actions, horizon = int(rng.choice((2, 3, 5))), int(rng.choice((2, 3, 4, 6, 10)))
    if family == "doorway":
        world, mask = doorway(actions, horizon), doorway_successors(actions)
    else:
        world = (chain if family == "chain" else rooms)(rng, int(rng.choice((3, 4, 6))), actions, horizon)
        mask = (world.kernel > 0).any(axis=0)
        mask[:-1, :, -1] |= rng.random(mask.shape[:2])[:-1] < 0.5
        mask |= rng.random(mask.shape) < rng.choice((0.0, 0.3))
    states = len(mask)
    start = np.eye(states)[0] if rng.random() < 0.8 else rng.choice(SHARES) * np.eye(states)[0]
    start[1] += 1.0 - start.sum()
    random_start = start[1] > 0.0
    mdp = world.mdp(start if random_start else 0)
    stationary, known = bool(world.constant and rng.random() < 0.5), rng.choice(("mask", "mask", "model", "unknown"))
    delta, sign = float(rng.choice((0.05, 0.5))), rng.choice((-1, -1, 1))
    problem = Problem.from_mdp(
        mdp, beta=1.0, eps=1e-300, delta=delta, stationary=stationary,
        successors={"mask": mask, "model": "model", "unknown": None}[known],
    )  # fmt: skip
    low = world.rewards
    if world.next_state_rewards and rng.random() < 0.2:  # known up to an interval
        low = low - rng.random(mask.shape) * (rng.random(mask.shape) < 0.3)
        problem = _with_intervals(problem, low)
    if problem.return_spread == 0:  # what is declared possible pays the same everywhere
        return draw_structured(rng, exponents)
    beta = float(sign * rng.uniform(*exponents) / problem.return_spread)
    problem = dataclasses.replace(problem, beta=beta)
    allowed = {
        "mask": np.stack([mask] * horizon),
        "model": world.kernel > 0,
        "unknown": np.ones(world.kernel.shape, bool),
    }
    starts = (start > 0 if known == "model" else np.ones(states, bool)) if random_start else None
    kernel, rewards = _with_start(world.kernel, start, 0.0), _with_start(world.rewards, 0.0, 0.0)
    if not random_start:
        kernel, rewards = kernel[1:], rewards[1:]
    while True:
        tally = _tally(rng, world.kernel, start, stationary)
        declared = (horizon, stationary, allowed[known], starts)
        known_rewards = (low, world.rewards, world.next_state_rewards)
        tables = _tables(beta, delta, *declared, tally, *known_rewards, start if random_start else 0, None)
        if _in_balls(kernel, tables):
            break
    tally = tally[: problem.n_rows]
    rows, columns = np.nonzero(tally)
    counts = Counts(problem)
    counts.add(Transitions(rows, columns, tally[rows, columns]), int(tally.sum()))
    return Instance(Case(problem, counts, tables, 0), mdp, kernel, rewards)


def _with_start(steps: np.ndarray, start: np.ndarray | float, elsewhere: float) -> np.ndarray:
    """Arrays ``(H, S, A, S)`` with one step before, at which the first action of the first state leads to the ``start``."""
    first = np.full((1, *steps.shape[1:]), elsewhere)
    first[0, 0, 0] = start
    return np.concatenate([first, steps])


def _tally(rng: np.random.Generator, kernel: np.ndarray, start: np.ndarray, stationary: bool) -> np.ndarray:
    """How often each row led where: in a few episodes of a random policy, or in so many draws of each row.

    The last row is that of the start.
    """
    horizon, states, actions = kernel.shape[:3]
    rows = np.append((kernel[:1] if stationary else kernel).reshape(-1, states), start[None], axis=0)
    tally = np.zeros(rows.shape, dtype=np.int64)
    if rng.random() < 0.5:
        for row, shares in enumerate(rows):
            tally[row] = rng.multinomial(rng.choice(VISITS), shares)
        return tally
    for _ in range(rng.choice((1, 1, 2, 3, 10))):
        s, row = 0, len(rows) - 1
        for h in range(horizon + 1):
            s = rng.choice(states, p=rows[row])
            tally[row, s] += 1
            row = ((0 if stationary else h) * states + s) * actions + rng.integers(actions)
    return tally


def _in_balls(kernel: np.ndarray, tables: Tables) -> bool:
    """Whether the event holds, by its definition."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(tables.shares > 0, tables.shares * np.log(tables.shares / kernel), 0.0)
    concerned = tables.reachable[..., None] & (np.arange(kernel.shape[2]) < np.array(tables.actions)[:, None, None])
    return bool((terms.sum(axis=-1) <= tables.radius + 1e-12)[concerned].all())
