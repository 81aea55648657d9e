"""An adversary against bounds of the difference of two policies' values: kernels and rewards in what the counts allow.

Coordinate ascent on the difference: for one row it is monotone along every line, so that each step goes to where its slope
leads, at the edge of the ball, and is undone if that was no better (which happens where rows are pooled over steps).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numba import njit

from entropic_bpi.methods.kl.method import planning_beta
from entropic_bpi.problem.risk import Entropic
from reference.kl import Tables, ball_max
from reference.kl_attack import Case
from reference.noise import Adversary
from reference.noise import Case as NoiseCase


@njit(cache=True, error_model="numpy")
def evaluate(kernel, paid, policy, beta, start):
    """Z of a policy, for β = 0 its mean, and its slopes in the kernel and in the rewards ``(T, S, A, S)``."""
    steps, states = policy.shape
    value = np.full((steps + 1, states), 1.0 if beta else 0.0)
    after = np.zeros((steps, states, states))
    for h in range(steps - 1, -1, -1):
        for s in range(states):
            a, total = policy[h, s], 0.0
            for y in range(states):
                if kernel[h, s, a, y] > 0.0:
                    r, then = paid[h, s, a, y], value[h + 1, y]
                    total += kernel[h, s, a, y] * (np.exp(beta * r) * then if beta else r + then)
            value[h, s] = total
            for y in range(states):
                r, then = paid[h, s, a, y], value[h + 1, y]
                after[h, s, y] = np.exp(beta * r) * then if beta else r + then
    moves, pays = np.zeros(kernel.shape), np.zeros(kernel.shape)
    reached = np.zeros(states)
    reached[start] = 1.0
    for h in range(steps):
        following = np.zeros(states)
        for s in range(states):
            if reached[s] > 0.0:
                a = policy[h, s]
                for y in range(states):
                    moves[h, s, a, y] = reached[s] * after[h, s, y]
                    share = reached[s] * kernel[h, s, a, y]
                    if share > 0.0:
                        pays[h, s, a, y] = beta * share * after[h, s, y] if beta else share
                        following[y] += share * np.exp(beta * paid[h, s, a, y])
        reached = following
    return value[0, start], moves, pays


class World:
    """One kernel and one reward for each row, within the tables of a case, and the values of two policies in it.

    Rows that are pooled have the same kernel and rewards at all steps, unless ``tied`` is False: the bounds hold for
    kernels that vary, too. ``by_pair``: the reward of a state and action is the same for all next states.
    """

    def __init__(self, rng, case: Case, policies, beta: float, *, tied: bool = True, by_pair: bool = False) -> None:
        t, self.case, self.policies, self.beta = case.tables, case, policies, beta
        self.first, self.by_pair = int(case.problem.artificial), by_pair
        self.tied = tied and case.problem.stationary
        self.played = np.zeros(t.low.shape[:3], dtype=bool)
        for policy in policies:
            np.put_along_axis(self.played, policy[..., None], True, axis=2)
        self.played &= t.allowed.any(axis=-1)
        worth = np.where(self.played[..., None], (t.low, t.high), 1.0)
        # The tables of the mean of random rewards are those of the tiny β at which it is planned.
        ends = np.sort(np.log(worth) / (case.problem.beta or planning_beta(case.problem)), axis=0)
        ends[:, : self.first] = 0.0
        self.low, self.width = ends[0], ends[1] - ends[0]
        self.share = np.full(self.low.shape, rng.choice([0.0, 1.0, rng.random()]))
        self.kernel = np.zeros(t.low.shape)
        for h, s, a in np.argwhere(self.played):
            self.set(h, s, a, rng.normal(size=t.n_states))

    def same_row(self, h: int) -> list[int]:
        """The steps that have the kernel of step ``h``."""
        return list(range(self.first, self.case.tables.steps)) if self.tied and h >= self.first else [h]

    def set(self, h: int, s: int, a: int, f: np.ndarray) -> None:
        """Move a row to where the mean of ``f`` is the largest in its ball."""
        t, q = self.case.tables, np.empty(self.case.tables.n_states)
        ball_max(t.shares[h, s, a], np.asarray(f, dtype=float), t.allowed[h, s, a], t.radius[h, s, a], q)
        self.kernel[self.same_row(h), s, a] = q

    def pay(self, h: int, s: int, a: int, f: np.ndarray) -> None:
        """Move the rewards of a row to the ends of their intervals to which ``f`` points."""
        f = np.full(len(f), f.sum()) if self.by_pair else f
        steps = self.same_row(h)
        self.share[steps, s, a] = np.where(f > 0, 1.0, np.where(f < 0, 0.0, self.share[h, s, a]))

    def difference(self) -> tuple[float, np.ndarray, np.ndarray]:
        """The value of the first policy less that of the second, and its slopes in the kernel and in the rewards."""
        paid, start = self.low + self.share * self.width, self.case.start
        one, other = (evaluate(self.kernel, paid, policy, self.beta, start) for policy in self.policies)
        for slope in (*one[1:], *other[1:]):  # where nobody can go, values may be beyond doubles
            slope[~self.case.tables.allowed] = 0.0
        if not self.beta:
            return one[0] - other[0], one[1] - other[1], one[2] - other[2]
        moves, pays = ((x / one[0] - y / other[0]) / self.beta for x, y in zip(one[1:], other[1:], strict=True))
        return math.log(one[0] / other[0]) / self.beta, moves, pays

    def climb(self, side: int, sweeps: int = 3) -> float:
        """Raise the difference, or with ``side`` -1 lower it; return the best that was found."""
        best = side * self.difference()[0]
        for _ in range(sweeps):
            before = best
            for h, s, a in np.argwhere(self.played)[::-1]:
                for part, change in ((1, self.set), (2, self.pay)):
                    if part == 2 and not self.width[h, s, a].any():
                        continue
                    slope = self.difference()[part][self.same_row(h), s, a]
                    slope = (slope * self.width[self.same_row(h), s, a] if part == 2 else slope).sum(axis=0)
                    if not slope.any():
                        continue
                    kept = self.kernel.copy(), self.share.copy()
                    change(h, s, a, side * slope)
                    found = side * self.difference()[0]
                    if found < best:
                        self.kernel, self.share = kept
                    best = max(best, found)
            if best <= before:
                break
        return side * best


# -- common noise ----------------------------------------------------------------------------------------------------------


def rows_of_noise(case: NoiseCase, radius: np.ndarray) -> Case:
    """The case with a row for each state and action, in a ball of its own: more kernels than common laws make."""
    problem, (S, A), H = case.problem, case.law.shape, case.horizon
    arrays = problem.balls.arrays(case.counts.arrays)
    shares, reward = np.zeros((2, S, A, S))
    allowed, x = np.zeros((S, A, S), dtype=bool), np.zeros((S, A))
    for s, a in np.ndindex(S, A):
        k, pair = case.sizes[case.law[s, a]], s * A + a
        to = case.following[s, a, :k]
        allowed[s, a, to], reward[s, a, to] = True, case.rewards[s, a, :k]
        slots = np.arange(arrays.begin[pair], arrays.begin[pair] + arrays.used[pair])
        shares[s, a, arrays.successor[slots]] = arrays.tally[slots] / max(arrays.visits[pair], 1)
        x[s, a] = radius[pair] if arrays.visits[pair] or arrays.used[pair] == 1 else np.inf
        if arrays.used[pair] == 1:
            shares[s, a], x[s, a] = allowed[s, a], 0.0
    e = np.exp(problem.beta * reward)
    every = [np.repeat(part[None], H, axis=0) for part in (shares, allowed, x, e)]
    tables = Tables(1 if problem.beta > 0 else -1, *every, every[-1], [A] * H, np.ones((H, S), dtype=bool))
    return Case(problem, case.counts, tables, case.start)


class Laws(Adversary):
    """Laws inside all balls, against the difference of two policies: what declared noise really leaves possible."""

    def __init__(self, case: NoiseCase, radius: np.ndarray, policies, beta: float) -> None:
        super().__init__(case, radius)
        self.policies, self.beta = policies, beta
        self.labels = np.arange(case.following.shape[2])

    def difference(self, laws: np.ndarray) -> tuple[float, np.ndarray]:
        """The value of the first policy less that of the second, and its slope in each law."""
        case, beta = self.case, self.beta
        S, found = len(case.following), []
        to, states = np.maximum(case.following, 0), np.arange(S)
        for policy in self.policies:
            value, after = np.full(S, 1.0 if beta else 0.0), []
            for h in reversed(range(case.horizon)):
                a = policy[h]
                r, then = case.rewards[states, a], value[to[states, a]]
                after.insert(0, np.exp(beta * r) * then if beta else r + then)
                value = (laws[h][case.law[states, a]] * after[0]).sum(axis=1)
            slope, reached = np.zeros(laws.shape), np.eye(S)[case.start]
            for h in range(case.horizon):
                a = policy[h]
                np.add.at(slope[h], case.law[states, a], reached[:, None] * after[h])
                share = reached[:, None] * laws[h][case.law[states, a]] * np.exp(beta * case.rewards[states, a])
                reached = np.bincount(to[states, a].ravel(), share.ravel(), S)
            found.append((value[case.start], slope))
        (one, first), (other, second) = found
        if beta:
            return math.log(one / other) / beta, (first / one - second / other) / beta
        return one - other, first - second

    def climb(self, side: int, tied: bool, sweeps: int = 4) -> float | None:
        """The largest difference that was found, or with ``side`` -1 the smallest; None if the event has failed."""
        case, sizes = self.case, self.case.sizes
        laws = np.zeros((case.horizon, len(sizes), len(self.labels)))
        for g, q in enumerate(case.truth):
            if not self.is_inside(g, q):
                return None
            laws[:, g, : len(q)] = q
        best = side * self.difference(laws)[0]
        for _ in range(sweeps):
            before = best
            for g, k in enumerate(sizes):
                for h in [slice(None)] if tied else range(case.horizon):
                    slope = self.difference(laws)[1][h, g, :k]
                    slope = side * (slope.sum(axis=0) if tied else slope)
                    q = laws[0 if tied else h, g, :k]
                    for target in self.targets(g, q, slope):
                        other = laws.copy()
                        other[h, g, :k] = self.edge(g, q, target - q)
                        found = side * self.difference(other)[0]
                        if found > best:
                            best, laws, q = found, other, other[0 if tied else h, g, :k]
            if best <= before:
                break
        return side * best

    def targets(self, g: int, q: np.ndarray, f: np.ndarray) -> list[np.ndarray]:
        """Where to go for a larger mean of ``f``: the best of each ball alone, the best label, and pairs of labels."""
        found = []
        for law, classes, shares, x in self.balls:
            if law == g:
                chosen = [max(np.flatnonzero(classes == c), key=lambda i: f[i]) for c in range(len(shares))]
                image = np.empty(len(shares))
                ball_max(shares, f[chosen], np.ones(len(shares), dtype=bool), x, image)
                found.append(np.bincount(chosen, image, len(q)))
        found.append(np.eye(len(q))[np.argmax(f)])
        for i in np.argsort(f):
            for j in np.argsort(-f):
                if f[j] > f[i] and q[i] > 0:
                    found.append(q + q[i] * (np.eye(len(q))[j] - np.eye(len(q))[i]))
        return found


def with_risk(problem, beta: float):
    """The same problem at another risk parameter."""
    return dataclasses.replace(problem, risk=Entropic(beta))
