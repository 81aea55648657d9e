"""Theorem RF in plain NumPy, and an adversary who looks for rewards, policies and kernels that break its bounds.

``deviations`` lists all sets of all possible successors, seen or not, and finds the ends of the binary divergence by
bisection on its definition. ``Attack`` chooses kernels on the boundary of the balls, rewards at the ends of their range and
policies, and compares the ratio of the values in the true and in the estimated model with the bounds.
"""

import math
from itertools import product

import numpy as np

import entropic_bpi as eb
from entropic_bpi.methods.reward_free import RewardFree
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward
from entropic_bpi.types import Transitions


def divergence(p, q):
    total = 0.0
    for a, b in ((p, q), (1 - p, 1 - q)):
        if a > 0:
            total += a * math.log(a / b) if b > 0 else math.inf
    return total


def end(p, x, sign):
    """The largest or smallest q with kl(p, q) <= x."""
    inside, outside = p, 1.0 if sign > 0 else 0.0
    if divergence(p, outside) <= x:
        return outside
    for _ in range(200):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if divergence(p, middle) <= x else (inside, middle)
    return outside


def largest_tilt(p, g, most):
    """max of Σ p f g / Σ p f over f in {1, M}, by trying all."""
    return max(np.dot(p * f, g) / np.dot(p, f) for f in map(np.array, product((1.0, most), repeat=len(p))))


def deviations(kernel, radii, reach):
    """D⁺ and D⁻ ``(2, H + 1, S)`` for an estimated kernel ``(H, S, A, S)`` and radii ``(H, S, A)``; ``reach`` is log M."""
    steps, n, actions, _ = kernel.shape
    d = np.zeros((2, steps + 1, n))
    for h in reversed(range(steps)):
        most = math.exp(reach[h])
        for s in range(n):
            worst = np.zeros((2, actions))
            for a in range(actions):
                p = kernel[h, s, a]
                rise = np.zeros(2)
                for chosen in product((False, True), repeat=n):
                    mass = min(1.0, p[list(chosen)].sum()) if any(chosen) else 0.0
                    if not any(chosen) or all(chosen):
                        continue
                    high, low = end(mass, radii[h, s, a], 1), end(mass, radii[h, s, a], -1)
                    rise[0] = max(rise[0], math.log((1 + (most - 1) * high) / (1 + (most - 1) * mass)))
                    rise[1] = max(rise[1], math.log((1 + (most - 1) * mass) / (1 + (most - 1) * low)))
                for side in range(2):
                    tilt = largest_tilt(p, np.exp(d[side, h + 1]), most)
                    worst[side, a] = min(reach[h], rise[side] + math.log(tilt))
            d[:, h, s] = worst.max(axis=1)
    return d


def log_values(kernel, rewards, policy, beta):
    """log E e^{β·return} of a policy ``(H, S)``, by step and state; rewards ``(H, S, A)``, or ``(H, S, A, S)``."""
    steps, n, *_ = kernel.shape
    logs, at = np.zeros(n), np.arange(n)
    table = []
    for h in reversed(range(steps)):
        rows, paid = kernel[h][at, policy[h]], rewards[h][at, policy[h]]
        exponents = beta * (paid if paid.ndim == 2 else paid[:, None]) + logs
        top = exponents.max(axis=1)
        logs = top + np.log((rows * np.exp(exponents - top[:, None])).sum(axis=1))
        table.insert(0, logs)
    return np.array(table)


class Attack:
    """A small problem with random counts, and its bounds at one |β|."""

    def __init__(self, rng, *, next_state=False, sharp=False):
        self.rng, self.next_state = rng, next_state
        self.n, self.actions, self.steps = int(rng.integers(2, 5)), int(rng.integers(1, 3)), int(rng.integers(2, 5))
        self.b = float(10 ** rng.uniform(-6, 0) * 50 / self.steps)
        pooled = bool(rng.integers(2))
        size = (1 if pooled else self.steps, self.n, self.actions)
        visits = rng.integers(1, 10 ** rng.integers(1, 6), size)
        laws = rng.dirichlet(np.full(self.n, rng.choice([0.2, 1.0, 5.0])), size)
        if sharp:  # sets that were hardly ever seen, or almost always
            laws = rng.dirichlet(np.full(self.n, 0.03), size)
        tally = np.array(
            [rng.multinomial(k, law) for k, law in zip(visits.ravel(), laws.reshape(-1, self.n), strict=True)]
        )
        shape = (self.steps, self.n, self.actions, self.n) if next_state else (self.n, self.actions)
        model = eb.FiniteMDP(np.full((self.n, self.actions, self.n), 1 / self.n), np.zeros(shape), horizon=self.steps)
        risk = AnyReward((self.b, self.b), (0.0, 1.0))
        problem = Problem.from_mdp(model, risk=risk, eps=0.1, delta=0.1, stationary=pooled)
        rows, to = np.nonzero(tally)
        counts = Counts.of(problem, Transitions(rows, to, tally[rows, to]), int(visits.sum()))
        self.method = RewardFree(problem)
        self.radii = self.method._sets(counts).x.reshape(size)
        self.estimate = (tally / tally.sum(axis=1, keepdims=True)).reshape(*size, self.n)
        if pooled:
            self.radii, self.estimate = (np.repeat(part, self.steps, axis=0) for part in (self.radii, self.estimate))
        self.pooled = pooled
        self.bounds = self._bounds(counts)

    def _bounds(self, counts):
        import entropic_bpi.methods.reward_free as module

        kept = {}
        original = module.go_back

        def keeping(*arguments):
            original(*arguments)
            kept["d"] = arguments[5]

        module.go_back = keeping
        try:
            self.method._point(self.b, self.method._sets(counts), counts)
        finally:
            module.go_back = original
        return kept["d"][:, : self.steps, : self.n]

    def kernel(self):
        """A kernel in the balls: the law of each row given a set and given the rest is kept, the set's share is moved."""
        moved = self.estimate.copy()
        for h, s, a in np.ndindex(*self.radii.shape):
            if self.pooled and h > 0:
                moved[h, s, a] = moved[0, s, a]
                continue
            p, chosen = self.estimate[h, s, a], self.rng.random(self.n) < 0.5
            mass = min(1.0, p[chosen].sum())
            if chosen.all() or not chosen.any():
                continue
            share = end(mass, self.radii[h, s, a], self.rng.choice([-1, 1]))
            # bisection ends just outside of the ball
            share = mass + (share - mass) * (1 - 1e-12)
            inner, outer = (p / mass if mass > 0 else chosen / chosen.sum()), None
            outer = p / (1 - mass) if mass < 1 else ~chosen / (~chosen).sum()
            moved[h, s, a] = np.where(chosen, share * inner, (1 - share) * outer)
        return moved / moved.sum(axis=-1, keepdims=True)

    def rewards(self):
        shape = (self.steps, self.n, self.actions, self.n) if self.next_state else (self.steps, self.n, self.actions)
        kind = self.rng.integers(3)
        if kind == 0:
            return self.rng.random(shape)
        rewards = (self.rng.random(shape) < 0.5).astype(float)
        # The same states pay at every step: what follows is then as far apart as it can be.
        return np.repeat(rewards[:1], self.steps, axis=0) if kind == 1 else rewards

    def run(self, cases):
        """How far each ratio is from its bound: 1 is attained, more is a violation."""
        shares = []
        for _ in range(cases):
            kernel, rewards = self.kernel(), self.rewards()
            beta = self.b * self.rng.choice([-1, 1])
            policy = self.rng.integers(self.actions, size=(self.steps, self.n))
            apart = log_values(kernel, rewards, policy, beta) - log_values(self.estimate, rewards, policy, beta)
            for side, signed in enumerate((apart, -apart)):
                tops = self.bounds[side]
                somewhere = np.ones(tops.shape, dtype=bool)
                somewhere[0, 1:] = False  # everybody begins in state 0
                known = somewhere & (tops > 0)
                assert np.all(signed[somewhere & ~known] <= 1e-12)
                # Logarithms of values near 1 are known to about 1e-15.
                shares.append(float(((signed[known] - 1e-14) / tops[known]).max(initial=-np.inf)))
        return shares
