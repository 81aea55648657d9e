"""Small dense models, and kernels in which another action is the best one; see :mod:`.characteristic`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP

MAX_ENTRIES = 200_000
# Actions that lose this much more than ε count as ε-optimal, which makes the bound smaller.
LOSS_SLACK = 1e-9
_LARGEST_GAIN = 40.0
# The smallest strength of a step towards an alternative, its growth and maximum, and the number of refinements.
_WEAKEST_PULL, _PULL_GROWTH, _STRONGEST_PULL, _REFINEMENTS = 1e-2, 4.0, 1e7, 3


class Target(NamedTuple):
    """A target of an alternative: ``action`` at ``place`` is better than all of ``others`` by more than ε."""

    place: tuple[int, int]
    action: int
    others: list[int]


@dataclass(frozen=True, eq=False)
class DenseModel:
    """Dense ``kernel`` and ``rewards`` ``(H, S, A, S)``, start distribution and β."""

    kernel: np.ndarray
    rewards: np.ndarray
    start: np.ndarray
    beta: float

    @classmethod
    def of(cls, mdp: FiniteMDP, beta: float) -> DenseModel:
        shape = (mdp.horizon, mdp.n_states, mdp.n_actions, mdp.n_states)
        if (size := np.prod(shape, dtype=float)) > MAX_ENTRIES:
            raise InvalidProblemError(
                f"characteristic_time is for small models: H S A S = {size:.3g} exceeds {MAX_ENTRIES}"
            )
        kernel, rewards = np.zeros(shape), np.zeros(shape)
        for h in range(mdp.horizon):
            rows = mdp.step_rows(h)
            entries = np.repeat(np.arange(shape[1] * shape[2]), np.diff(rows.indptr)), rows.indices
            kernel[h].reshape(-1, shape[3])[entries] = rows.probabilities
            if rows.rewards is not None:
                rewards[h].reshape(-1, shape[3])[entries] = rows.rewards
        if mdp.rewards is not None:  # rewards are declared for impossible successors too
            rewards[:] = mdp.rewards if mdp.next_state_rewards else mdp.rewards[..., None]
        return cls(kernel, rewards, mdp.start_distribution, beta)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.kernel.shape[:3]

    def risk(self, probabilities: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
        """Compute (1/β) log Σ p e^{βx} along the last axis."""
        if self.beta == 0:
            return np.asarray((probabilities * outcomes).sum(axis=-1))
        exponents = np.where(probabilities > 0, self.beta * outcomes, -np.inf)
        top = exponents.max(axis=-1, keepdims=True)
        total = (probabilities * np.expm1(exponents - top)).sum(axis=-1)
        return np.asarray((top[..., 0] + np.log1p(total)) / self.beta)

    def q_values(self, h: int, values: np.ndarray) -> np.ndarray:
        """Compute the backup ``(..., S, A)`` of ``values`` ``(..., S)`` at step ``h``."""
        return self.risk(self.kernel[h], self.rewards[h] + values[..., None, None, :])

    @cached_property
    def optimum(self) -> tuple[np.ndarray, np.ndarray]:
        """The optimal ``values`` ``(H + 1, S)`` and ``q`` ``(H, S, A)``."""
        values, q = np.zeros((self.shape[0] + 1, self.shape[1])), np.empty(self.shape)
        for h in reversed(range(self.shape[0])):
            q[h] = self.q_values(h, values[h + 1])
            values[h] = q[h].max(axis=1)
        return values, q

    @property
    def slack(self) -> float:
        return LOSS_SLACK * (1 + float(np.abs(self.optimum[0][0]).max()))

    def losses(self, h: int, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the loss of the best policy that plays ``actions[i]`` in ``states[i]`` at step ``h``."""
        values, q = self.optimum
        forced = np.repeat(values[h][None], len(states), axis=0)
        forced[np.arange(len(states)), states] = q[h, states, actions]
        for g in reversed(range(h)):
            forced = self.q_values(g, forced).max(axis=2)
        return np.asarray(self.risk(self.start, values[0]) - self.risk(self.start, forced))

    def decisions(self, eps: float) -> np.ndarray:
        """Return the mask ``(H, S, A)`` of actions whose best completion loses at most ε: D(h, s)."""
        horizon, states, actions = self.shape
        s, a = np.divmod(np.arange(states * actions), actions)
        losses = np.stack([self.losses(h, s, a) for h in range(horizon)])
        return losses.reshape(self.shape) <= eps + self.slack

    def best_policy(self, place: tuple[int, int], actions: list[int], detour: float = LOSS_SLACK) -> np.ndarray:
        """Return an optimal policy among those that play one of ``actions`` at ``place``.

        Among earlier actions that are at most ``detour`` worse than the best, it plays the most likely to reach ``place``.
        """
        (h, s), (values, q) = place, self.optimum
        policy = q.argmax(axis=2)
        policy[h, s] = actions[int(np.argmax(q[h, s, actions]))]
        forced, arrival = values[h].copy(), np.zeros(self.shape[1])
        forced[s], arrival[s] = q[h, s, policy[h, s]], 1.0
        every = np.arange(self.shape[1])
        for g in reversed(range(h)):
            backup, arrivals = self.q_values(g, forced), self.kernel[g] @ arrival
            near = backup >= backup.max(axis=1, keepdims=True) - detour
            best = np.where(near, arrivals, -1.0).max(axis=1, keepdims=True)
            policy[g] = np.where(near & (arrivals >= best - 1e-12), backup, -np.inf).argmax(axis=1)
            forced, arrival = backup[every, policy[g]], arrivals[every, policy[g]]
        return np.asarray(policy)

    def gradient(self, policy: np.ndarray) -> np.ndarray:
        """Return the derivative ``(H, S, A, S)`` of the policy's value in its transition probabilities, centred by row."""
        horizon, states, _ = self.shape
        every = np.arange(states)
        values, surplus = np.zeros((horizon + 1, states)), np.zeros((horizon, states, states))
        for h in reversed(range(horizon)):
            outcomes = self.rewards[h][every, policy[h]] + values[h + 1]
            values[h] = self.risk(self.kernel[h][every, policy[h]], outcomes)
            surplus[h] = outcomes - values[h][:, None]
        gains = np.clip(self.beta * surplus, -_LARGEST_GAIN, _LARGEST_GAIN)
        slopes = np.expm1(gains) / self.beta if self.beta else surplus
        # The exponential could overflow in states where no episode starts.
        exponents = np.where(self.start > 0, self.beta * (values[0] - self.risk(self.start, values[0])), -np.inf)
        twisted = self.start * np.exp(exponents)
        result = np.zeros_like(self.kernel)
        for h in range(horizon):
            result[h, every, policy[h]] = twisted[:, None] * slopes[h]
            twisted = twisted @ (self.kernel[h][every, policy[h]] * np.exp(gains[h]))
        return result


def _tilt(rows: np.ndarray, slopes: np.ndarray, anywhere: bool) -> np.ndarray:
    """Return rows p' that minimise KL(p, p') - slope·p': p' = p/(ν - slope), the rest on the state of largest slope."""
    possible = rows > 0
    nu = np.where(possible, slopes + rows, -np.inf).max(axis=1)
    for _ in range(60):  # Newton from the left of the root of a convex decreasing function
        share = np.divide(rows, nu[:, None] - slopes, out=np.zeros_like(rows), where=possible)
        excess = share.sum(axis=1) - 1
        if (excess < 1e-13).all():
            break
        curvature = np.divide(share**2, rows, out=np.zeros_like(rows), where=possible).sum(axis=1)
        nu = nu + np.maximum(excess, 0.0) / curvature
    if anywhere:
        nu = np.maximum(nu, slopes.max(axis=1))
        share = np.divide(rows, nu[:, None] - slopes, out=np.zeros_like(rows), where=possible & (nu[:, None] > slopes))
        share[np.arange(len(rows)), slopes.argmax(axis=1)] += np.maximum(1 - share.sum(axis=1), 0.0)
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def row_divergence(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    ratio = np.divide(rows, others, out=np.ones_like(rows), where=rows > 0)
    return np.maximum((rows * np.log(ratio)).sum(axis=-1), 0.0)


class AlternativeKernels:
    """Find kernels that meet a target and are close to the model's.

    Parameters
    ----------
    model : DenseModel
        The model.
    eps : float
        Accuracy: the other actions of a target must lose more than this.
    anywhere : bool
        Whether rows may lead to states to which the model's do not.
    pooled : bool
        Whether a row is the same at every step.
    """

    def __init__(self, model: DenseModel, eps: float, anywhere: bool, pooled: bool) -> None:
        self.model, self.eps, self.anywhere, self.pooled = model, eps, anywhere, pooled
        self.decisions = model.decisions(eps)

    def leading_to(self, target: Target, weights: np.ndarray, *, first: bool) -> list[np.ndarray]:
        """Return kernels that meet a target; ``weights`` are those of the divergences of rows.

        The changed rows are that of the target or of one of the other actions alone, those of its policy, or those of its
        policy and its rival. If ``first``, all these kernels are returned, otherwise the two of least cost.
        """
        ways: list[tuple[bool, np.ndarray | None]] = [(False, None), (True, None)]
        for action in reversed((target.action, *target.others)):
            alone = np.zeros(self.model.shape, dtype=bool)
            alone[(*target.place, action)] = True
            ways.insert(0, (True, alone))
        candidates: list[np.ndarray] = []
        for detour in self._detours(target):
            found = []
            for rival, only in ways:
                kernel = self._move(target, self.model, weights, detour, rival, only)
                if kernel is not None:
                    found.append(self._refined(kernel, target, weights, detour, rival) if only is None else kernel)
            candidates += found or self._pursued(target, weights, detour)
        return candidates if first else sorted(candidates, key=lambda kernel: self._cost(kernel, weights))[:2]

    def restricted_loss(self, model: DenseModel) -> float:
        """Return the loss in another model of the best policy that satisfies what ε-optimality in this model requires.

        It plays actions of D in states that it can reach in this model. After a step that is impossible here, it may play
        any action.
        """
        values, _ = model.optimum
        best = values[-1]
        for h in reversed(range(model.shape[0])):
            after = np.where(self.model.kernel[h] > 0, best, values[h + 1])
            q = model.risk(model.kernel[h], model.rewards[h] + after)
            best = np.where(self.decisions[h], q, -np.inf).max(axis=1)
        return float(model.risk(model.start, values[0]) - model.risk(model.start, best))

    def _detours(self, target: Target) -> list[float]:
        """Return the allowed losses on the way to the target: none, and any if this changes the policy."""
        detours = (LOSS_SLACK, np.inf)
        cautious, bold = (self.model.best_policy(target.place, [target.action], detour) for detour in detours)
        return list(detours if (cautious != bold).any() else detours[:1])

    def _cost(self, kernel: np.ndarray, weights: np.ndarray) -> float:
        return float((weights * row_divergence(self.model.kernel, kernel)).sum())

    def _refined(
        self, kernel: np.ndarray, target: Target, weights: np.ndarray, detour: float, rival: bool
    ) -> np.ndarray:
        """Move again along the gradient at the kernel that was found, while this reduces the cost."""
        for _ in range(_REFINEMENTS):
            moved = self._move(target, self.model_of(kernel), weights, detour, rival)
            if moved is None or self._cost(kernel, weights) <= self._cost(moved, weights):
                break
            kernel = moved
        return kernel

    def model_of(self, kernel: np.ndarray) -> DenseModel:
        return replace(self.model, kernel=kernel)

    def _move(
        self, target: Target, at: DenseModel, weights: np.ndarray, detour: float, rival: bool, only: Any = None
    ) -> np.ndarray | None:
        """Move rows along the gradient at the model ``at`` until the target is met; return None if it cannot be."""
        steep = self._steepness(target, at, weights, detour, rival)
        if only is not None:
            steep = np.where((only.any(axis=0) if self.pooled else only)[..., None], steep, 0.0)
        if not steep.any():
            return None
        steep = steep / np.abs(steep).max()

        def shortfall(log_step: float) -> float:
            return self._shortfall(target, self._tilted(np.exp(log_step) * steep))

        low, high = -14.0, -2.0
        while shortfall(high) > 0:
            low, high = high, high + 2.0
            if high > 14:
                return None
        step = optimize.bisect(shortfall, low, high, xtol=1e-3) if shortfall(low) > 0 else low
        safe = (each for each in (step, step + 1e-3, high) if shortfall(each) <= 0)
        return next((self._tilted(np.exp(each) * steep) for each in safe), None)

    def _pursued(self, target: Target, weights: np.ndarray, detour: float) -> list[np.ndarray]:
        """Move rows in small steps, each along a new gradient; return the alternative, if one is found.

        No single direction leads to an alternative if a change helps only together with others. For fixed visits and fixed
        values of the next states the step of each row is exact: it minimises its divergence minus ``pull`` times its gain.
        """
        kernel, pull = self.model.kernel, 0.0
        while pull < _STRONGEST_PULL:
            steep = self._steepness(target, self.model_of(kernel), weights, detour, rival=True)
            if not steep.any():
                return []
            pull = _PULL_GROWTH * pull or _WEAKEST_PULL / np.abs(steep).max()
            kernel = self._tilted(pull * steep)
            if self._shortfall(target, kernel) <= 0:
                return [self._refined(kernel, target, weights, detour, rival=True)]
        return []

    def _steepness(self, target: Target, at: DenseModel, weights: np.ndarray, detour: float, rival: bool) -> np.ndarray:
        """Return the gain of moving each row at the model ``at``, per unit of the weight of its divergence."""
        slopes = at.gradient(at.best_policy(target.place, [target.action], detour))
        if rival:
            slopes = slopes - at.gradient(at.best_policy(target.place, target.others))
        if self.pooled:
            slopes, weights = slopes.sum(axis=0), weights.sum(axis=0)
        weighty = weights[..., None] > 0
        return np.asarray(np.divide(slopes, weights[..., None], out=np.zeros_like(slopes), where=weighty))

    def _tilted(self, steep: np.ndarray) -> np.ndarray:
        """Return the model's kernel with every row moved by this much."""
        kernel = self.model.kernel[0].copy() if self.pooled else self.model.kernel.copy()
        moved = np.abs(steep).max(axis=-1) > 0
        kernel[moved] = _tilt(kernel[moved], steep[moved], self.anywhere)
        return np.broadcast_to(kernel, self.model.kernel.shape) if self.pooled else kernel

    def _shortfall(self, target: Target, kernel: np.ndarray) -> float:
        """Return by how much the losses of the other actions, or of all ε-optimal policies, fall short of more than ε."""
        model, (h, s) = self.model_of(kernel), target.place
        losses = model.losses(h, np.full(len(target.others), s), np.array(target.others))
        enough = self.eps * (1 + 1e-7) + 3 * model.slack
        return float(enough - max(losses.min(), self.restricted_loss(model)))
