"""An adversary for declared noise: random mechanics and counts, and laws inside all balls against a claim.

The laws may differ from step to step, which the certificates by ratios and by pairs allow. Boxes are parts of the balls of
one law, which is the same at every step. Each law lies in every ball of its own.
"""

from dataclasses import dataclass

import numpy as np

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions


@dataclass
class Case:
    """Mechanics ``following``, ``law`` and rewards by label, the true laws, and counts of a problem."""

    problem: Problem
    counts: Counts
    law: np.ndarray
    following: np.ndarray
    rewards: np.ndarray
    truth: list[np.ndarray]
    horizon: int
    start: int

    @property
    def sizes(self):
        return [len(q) for q in self.truth]


def random_case(rng, *, reach=None):
    """Mechanics with 1 to 3 laws, censored or not, in which labels often look alike; and some visits of each pair."""
    S, A, H, L = int(rng.integers(2, 7)), int(rng.integers(2, 4)), int(rng.integers(2, 6)), int(rng.integers(1, 4))
    if rng.random() < 0.1:
        S = int(rng.integers(7, 13))
    sizes = rng.integers(2, 6, L)
    law = rng.integers(L, size=(S, A))
    following = np.full((S, A, sizes.max()), -1)
    kind = rng.integers(3)
    for s, a in np.ndindex(S, A):
        k = sizes[law[s, a]]
        if kind == 0:  # lost sales: what exceeds the stock is not seen
            full = min(s + a, S - 1)
            following[s, a, :k] = np.maximum(full - np.arange(k), 0)
        elif kind == 1:  # a walk with walls
            following[s, a, :k] = np.clip(s + (1 if a else -1) * (np.arange(k) - k // 2), 0, S - 1)
        else:
            following[s, a, :k] = rng.integers(S, size=S)[rng.integers(min(S, 1 + rng.integers(3)), size=k)]
    table = rng.random((S, A, S)) if rng.random() < 0.6 else np.repeat(rng.random((S, A, 1)), S, axis=2)
    table[rng.random(table.shape) < 0.3] = 0.0
    if rng.random() < 0.5:
        table[:] = table[..., :1]
    truth = [rng.dirichlet(np.full(k, rng.choice([0.3, 1.0, 5.0]))) for k in sizes]
    labels = {f"law {g}": range(k) for g, k in enumerate(sizes)}
    mdp = eb.FiniteMDP.from_noise(
        range(S), range(A), labels, {f"law {g}": q for g, q in enumerate(truth)},
        lambda s, a, w: (int(following[s, a, w]), float(table[s, a, following[s, a, w]])),
        horizon=H, start=int(rng.integers(S)), law=lambda s, a: f"law {law[s, a]}",
    )  # fmt: skip
    low, high = table.min(), table.max()
    reach = float(np.exp(rng.uniform(np.log(0.05), np.log(300)))) if reach is None else reach
    beta = rng.choice([-1, 1]) * reach / max((high - low) * H, 1e-9)
    goal = {"beta": beta, "eps": 1e-3, "delta": float(rng.choice([0.05, 0.3, 0.9]))}
    problem = Problem.from_mdp(mdp, noise="model", **goal)
    visits = rng.choice([0, 1, 3, 10, 40, 300], size=(S, A), p=[0.2, 0.1, 0.2, 0.2, 0.2, 0.1])
    tally = {}
    for s, a in np.ndindex(S, A):
        for w, times in enumerate(rng.multinomial(visits[s, a], truth[law[s, a]])):
            if times:
                key = s * A + a, int(following[s, a, w])
                tally[key] = tally.get(key, 0) + int(times)
    rows, successors = (np.array([key[i] for key in tally], dtype=np.int64) for i in range(2))
    counts = Counts.of(problem, Transitions(rows, successors, np.array([*tally.values()], dtype=np.int64)), 1)
    rewards = np.take_along_axis(table, np.maximum(following, 0), axis=2)
    return Case(problem, counts, law, following, rewards, truth, H, mdp.start)


class Adversary:
    """Laws ``(H, L, K)`` inside all balls, and what they make of a policy."""

    def __init__(self, case, radius):
        self.case = case
        problem, A = case.problem, case.law.shape[1]
        arrays = problem.balls.arrays(case.counts.arrays)
        self.balls = []  # law, class of each label, shares, radius
        for ball in range(len(problem.balls.law)):
            pair = int(np.flatnonzero(problem.balls.of_pair == ball)[0])
            used, n = int(arrays.used[pair]), int(arrays.visits[pair])
            if used == 1 or n == 0:
                continue
            s, a = divmod(pair, A)
            g = int(case.law[s, a])
            classes = problem.balls.slot_of_label[pair, : case.sizes[g]]
            begin = arrays.begin[pair]
            self.balls.append((g, classes, arrays.tally[begin : begin + used] / n, float(radius[pair])))

    def is_inside(self, g, q):
        if not (q >= 0).all():
            return False
        for law, classes, shares, x in self.balls:
            if law == g:
                image = np.bincount(classes, q, len(shares))
                seen = shares > 0
                if (image[seen] <= 0).any() or (shares[seen] * np.log(shares[seen] / image[seen])).sum() > x:
                    return False
        return True

    def edge(self, g, q, direction):
        """The last of ``q + t direction`` inside."""
        low, high = 0.0, 1.0
        if self.is_inside(g, q + direction):
            return q + direction
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.is_inside(g, q + middle * direction) else (low, middle)
        return q + low * direction

    def values(self, laws, policy):
        """log Z of the optimum and of the policy, at the start."""
        case, beta = self.case, self.case.problem.beta
        sign = np.sign(beta)
        S = len(case.following)
        best, mine = np.zeros(S), np.zeros(S)
        with np.errstate(divide="ignore"):
            for h in reversed(range(case.horizon)):
                chances = np.log(laws[h][case.law])  # (S, A, K)
                following = np.maximum(case.following, 0)
                for which in range(2):
                    after = chances + beta * case.rewards + (mine if which else best)[following]
                    after = np.where(case.following >= 0, after, -np.inf)
                    top = after.max(axis=2)
                    u = top + np.log(np.exp(after - top[..., None]).sum(axis=2))
                    if which:
                        new = u[np.arange(S), policy[h]]
                    else:
                        best_now = u.max(axis=1) if sign > 0 else u.min(axis=1)
                best, mine = best_now, new
        return best[case.start] / beta, mine[case.start] / beta

    def attack(self, policy, objective, rng, rounds, *, alike=False):
        """The largest ``objective(best value, policy's value)`` found; ``alike`` laws are the same at every step."""
        case, H = self.case, self.case.horizon
        K = max(case.sizes)
        laws = np.zeros((H, len(case.sizes), K))
        for g, q in enumerate(case.truth):
            if not self.is_inside(g, q):
                return None  # the event has failed
            laws[:, g, : len(q)] = q
        found = objective(*self.values(laws, policy))
        for _ in range(rounds):
            h, g = int(rng.integers(H)), int(rng.integers(len(case.sizes)))
            k = case.sizes[g]
            everywhere = rng.random() < 0.4 or alike
            q = laws[h, g, :k]
            if rng.random() < 0.7:
                i, j = rng.choice(k, 2, replace=False)
                direction = np.zeros(k)
                direction[i], direction[j] = -q[i], q[i]
            else:
                direction = rng.dirichlet(np.full(k, 0.5)) - q
            other = laws.copy()
            moved = self.edge(g, q, direction)
            other[slice(None) if everywhere else h, g, :k] = moved
            value = objective(*self.values(other, policy))
            if value > found:
                found, laws = value, other
        return found
