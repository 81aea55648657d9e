"""Worlds that drive doubles to their limits: doorways, chains, rare falls, absorbing states, and large |β|·range.

Each comes as a learner's problem with counts, and with the kernel and the rewards that the counts were drawn from. The
kernel lies in all of the balls, so whatever is certified from the counts must be true of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Entropic
from entropic_bpi.types import Transitions
from reference.evar_attack import values
from reference.kl import Tables
from reference.kl_attack import Case, _tables, _with_intervals

VISITS = (0, 0, 0, 1, 1, 2, 3, 10, 100, 1000)
SHARES = (0.5, 0.5, 0.9, 0.99, 0.999, 0.01)


@dataclass
class World:
    """A model whose last state is absorbing.

    ``kernel`` and ``rewards`` are ``(H, S, A, S)``, the declared ``successors`` ``(S, A, S)``, and ``start`` ``(S,)``.
    """

    kernel: np.ndarray
    rewards: np.ndarray
    next_state_rewards: bool
    successors: np.ndarray
    start: np.ndarray

    @property
    def constant(self) -> bool:
        return bool((self.kernel == self.kernel[0]).all())

    @property
    def random_start(self) -> bool:
        return bool(self.start[0] < 1.0)

    def mdp(self) -> eb.FiniteMDP:
        kernel = self.kernel[0] if self.constant else self.kernel
        rewards = self.rewards if self.next_state_rewards else self.rewards[0, ..., 0]
        return eb.FiniteMDP(kernel, rewards, horizon=len(self.rewards), start=self.start if self.random_start else 0)


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


# -- worlds ------------------------------------------------------------------------------------------------------


def doorway(actions: int, horizon: int) -> World:
    """From the first state one action leads to a room, where all actions but the last one fall out half of the time.

    It is declared that one may also fall on the way to the room, and in it by every action.
    """
    kernel, rewards, successors = np.zeros((3, 3, actions, 3))
    kernel[0, 0, 1] = rewards[0, 0, 1] = 1.0
    kernel[0, 1:, 2] = kernel[2, :, 2] = 1.0
    kernel[1, :, 1] = kernel[1, :, 2] = 0.5
    kernel[1, -1] = 0.0, 1.0, 0.0
    rewards[1, :, 1] = 1.0
    successors[0, 0, 1:] = successors[0, 1:, 2] = successors[1, :, 1:] = successors[2, :, 2] = 1.0
    steps = (np.stack([table] * horizon) for table in (kernel, rewards))
    return World(*steps, True, successors > 0, np.eye(3)[0])


def chain(rng: np.random.Generator, states: int, actions: int, horizon: int) -> World:
    """Each room has a sure way to the next one; other actions take it less often, stay, or fall."""
    kernel, pit = np.zeros((states, actions, states)), states - 1
    for s in range(pit):
        onward = min(s + 1, pit - 1)
        for a in range(actions):
            kernel[s, a, (onward, onward, s, pit)[rng.integers(4)]] = share = rng.choice((1.0, rng.choice(SHARES)))
            kernel[s, a, pit] += 1.0 - share
        kernel[s, rng.integers(actions)] = np.arange(states) == onward
    kernel[pit, :, pit] = 1.0
    return _completed(rng, np.stack([kernel] * horizon))


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
    return _completed(rng, np.repeat(kernel, horizon // steps, axis=0))


def _completed(rng: np.random.Generator, kernel: np.ndarray) -> World:
    """With rewards of 1, less, or nothing; the absorbing state, and often the way to it, pays least or most."""
    shape, next_state = kernel.shape[1:], bool(rng.random() < 0.7)
    rewards = rng.choice((1.0, 1.0, 0.5, 0.0, rng.random()), size=shape if next_state else (*shape[:2], 1))
    rewards = np.broadcast_to(rewards, shape).copy()
    if next_state:
        rewards[..., -1] = 0.0
    rewards[-1] = 0.0
    if rng.random() < 0.3:
        rewards = 1.0 - rewards
    successors = (kernel > 0).any(axis=0) | (rng.random(shape) < rng.choice((0.0, 0.3)))
    successors[:-1, :, -1] |= rng.random(shape[:2])[:-1] < 0.5
    return World(kernel, np.stack([rewards] * len(kernel)), next_state, successors, np.eye(len(successors))[0])


# -- instances ---------------------------------------------------------------------------------------------------


def draw_structured(rng: np.random.Generator, exponents: tuple[float, float] = (200.0, 599.9)) -> Instance:
    """A world, counts for which the event holds, and |β| times the range of the return between ``exponents``."""
    world = _draw_world(rng)
    horizon, states = world.kernel.shape[:2]
    known, stationary = rng.choice(("mask", "mask", "model", "unknown")), bool(world.constant and rng.random() < 0.5)
    declared, allowed, starts = {
        "mask": (world.successors, np.stack([world.successors] * horizon), np.ones(states, bool)),
        "model": ("model", world.kernel > 0, world.start > 0),
        "unknown": (None, np.ones(world.kernel.shape, bool), np.ones(states, bool)),
    }[known]
    mdp, low, delta = world.mdp(), world.rewards, float(rng.choice((0.05, 0.5)))
    problem = Problem.from_mdp(mdp, beta=1.0, eps=1e-300, delta=delta, stationary=stationary, successors=declared)
    if world.next_state_rewards and rng.random() < 0.2:  # known up to an interval
        low = low - rng.random(low.shape[1:]) * (rng.random(low.shape[1:]) < 0.3)
        problem = _with_intervals(problem, low)
    if problem.return_spread == 0:  # what is declared possible pays the same everywhere
        return draw_structured(rng, exponents)
    beta = float(rng.choice((-1, -1, 1)) * rng.uniform(*exponents) / problem.return_spread)
    problem = replace(problem, risk=Entropic(beta))
    kernel, rewards, start = world.kernel, world.rewards, 0
    if world.random_start:
        kernel, rewards, start = _after(world.start, kernel), _after(0.0, rewards), world.start
    while True:
        tally = _tally(rng, world, stationary)
        tables = _tables(
            beta, delta, horizon, stationary, allowed, starts if world.random_start else None, tally, low,
            world.rewards, world.next_state_rewards, start, None,
        )  # fmt: skip
        if _in_balls(kernel, tables):
            break
    rows, columns = np.nonzero(tally[: problem.n_rows])
    counts = Counts(problem)
    counts.add(Transitions(rows, columns, tally[rows, columns]), int(tally.sum()))
    return Instance(Case(problem, counts, tables, 0), mdp, kernel, rewards)


def _draw_world(rng: np.random.Generator) -> World:
    actions, horizon, family = int(rng.choice((2, 3, 5))), int(rng.choice((2, 3, 4, 6, 10))), rng.integers(3)
    if family == 0:
        world = doorway(actions, horizon)
    elif family == 1:
        world = chain(rng, int(rng.choice((3, 4, 6, 9))), actions, horizon)
    else:
        world = rooms(rng, int(rng.choice((3, 4, 6))), actions, horizon)
    share = 1.0 if rng.random() < 0.8 else rng.choice(SHARES)
    world.start[:2] = share, 1.0 - share
    return world


def _after(start: np.ndarray | float, steps: np.ndarray) -> np.ndarray:
    """Tables ``(H, S, A, S)`` with one step before, in which the first action of the first state has the row ``start``."""
    first = np.zeros((1, *steps.shape[1:]))
    first[0, 0, 0] = start
    return np.concatenate([first, steps])


def _tally(rng: np.random.Generator, world: World, stationary: bool) -> np.ndarray:
    """How often each row led where: in a few episodes of a random policy, or in so many draws of each row.

    The last row is that of the start.
    """
    horizon, states, actions = world.kernel.shape[:3]
    rows = np.append(world.kernel[: 1 if stationary else horizon].reshape(-1, states), world.start[None], axis=0)
    tally = np.zeros(rows.shape, dtype=np.int64)
    if rng.random() < 0.5:
        for row, shares in enumerate(rows):
            tally[row] = rng.multinomial(rng.choice(VISITS), shares)
        return tally
    for _ in range(rng.choice((1, 1, 2, 3, 10))):
        row = len(rows) - 1
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
