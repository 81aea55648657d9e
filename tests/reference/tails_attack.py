"""An adversary against bounds of the law of the return: kernels and rewards in what the counts allow, and their exact law.

Coordinate ascent on the mean of a function of the return: it is linear in each row, so that each step is exact, up to the
pooling of rows over steps.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from reference.kl import ball_max
from reference.kl_attack import Case


class World:
    """One kernel and reward for each row of a policy, within the tables of a case."""

    def __init__(self, rng: np.random.Generator, case: Case, policy: np.ndarray) -> None:
        self.case, self.policy, t = case, policy, case.tables
        self.first, problem = int(case.problem.artificial), case.problem
        shape = (t.steps, t.n_states)
        self.kernel, self.reward = np.zeros((*shape, t.n_states)), np.zeros((*shape, t.n_states))
        end = rng.choice([0.0, 1.0, rng.random()])
        shift = problem.possible_rewards[0]
        for h, s in np.ndindex(shape):
            a = self.action(h, s)
            if h >= self.first:
                low, high = sorted_ends(np.log(t.low[h, s, a]) / problem.beta, np.log(t.high[h, s, a]) / problem.beta)
                self.reward[h, s] = shift + low + end * (high - low)
            if t.allowed[h, s, a].any():
                self.set(h, s, rng.normal(size=t.n_states))

    def action(self, h: int, s: int) -> int:
        return 0 if h < self.first else int(self.policy[h, s])

    def same_row(self, h: int, s: int) -> list[int]:
        """The steps whose kernel in ``s`` is the same as that of step ``h``."""
        if h < self.first or not self.case.problem.stationary:
            return [h]
        mine = self.action(h, s)
        return [k for k in range(self.first, self.case.tables.steps) if self.action(k, s) == mine]

    def set(self, h: int, s: int, f: np.ndarray) -> None:
        """Move a row to where the mean of ``f`` is the largest in its ball."""
        t, a, q = self.case.tables, self.action(h, s), np.empty(self.case.tables.n_states)
        ball_max(t.shares[h, s, a], np.asarray(f, dtype=float), t.allowed[h, s, a], t.radius[h, s, a], q)
        for k in self.same_row(h, s):
            self.kernel[k, s] = q

    def law(self) -> dict[float, float]:
        """Probability of each return."""
        atoms = {(self.case.start, 0.0): 1.0}
        for h in range(self.case.tables.steps):
            atoms = self._after(h, atoms)
        law: dict[float, float] = {}
        for (_, b), p in atoms.items():
            law[b] = law.get(b, 0.0) + p
        return law

    def _after(self, h, atoms):
        after = {}
        for (s, b), p in atoms.items():
            for y in np.flatnonzero(self.kernel[h, s] > 0).tolist():
                key = y, round(b + self.reward[h, s, y], 10)
                after[key] = after.get(key, 0.0) + p * self.kernel[h, s, y]
        return after

    def climb(self, phi, sweeps: int = 2) -> None:
        """Raise E phi(return)."""
        steps = self.case.tables.steps
        for _ in range(sweeps):
            for h in reversed(range(steps)):
                atoms, occupied = {(self.case.start, 0.0): 1.0}, []
                for k in range(steps):
                    occupied.append(atoms)
                    atoms = self._after(k, atoms)
                value = self._values(phi)
                for s in {s for s, _ in occupied[h]}:
                    f = np.zeros(self.case.tables.n_states)
                    for k in self.same_row(h, s):
                        for (x, b), p in occupied[k].items():
                            if x == s:
                                for y in np.flatnonzero(self.case.tables.allowed[k, s, self.action(k, s)]).tolist():
                                    f[y] += p * value(k + 1, y, round(b + self.reward[k, s, y], 10))
                    self.set(h, s, f)

    def _values(self, phi):
        @cache
        def value(h: int, s: int, b: float) -> float:
            if h == self.case.tables.steps:
                return phi(b)
            row = self.kernel[h, s]
            return sum(
                row[y] * value(h + 1, y, round(b + self.reward[h, s, y], 10)) for y in np.flatnonzero(row > 0).tolist()
            )

        return value


def sorted_ends(one, other):
    return np.minimum(one, other), np.maximum(one, other)


# -- measures of a law, by sorting --------------------------------------------------------------------------------------


def cvar(law: dict[float, float], alpha: float) -> float:
    left, mean = alpha, 0.0
    for value in sorted(law):
        mean += min(left, law[value]) * value
        left -= min(left, law[value])
    return mean / (alpha - left)


def quantile(law: dict[float, float], alpha: float) -> float:
    total = 0.0
    for value in sorted(law):
        total += law[value]
        if total >= alpha * (1 - 1e-12):
            return value
    return max(law)


def at_most(law: dict[float, float], x: float) -> float:
    return sum(p for value, p in law.items() if value <= x + 1e-9)


def at_least(law: dict[float, float], x: float) -> float:
    return sum(p for value, p in law.items() if value >= x - 1e-9)
