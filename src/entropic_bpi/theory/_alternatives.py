"""Kernels in which an action that loses in a model is better than those that do not; see :mod:`.characteristic`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from entropic_bpi.theory._dense import LOSS_SLACK, DenseModel

# How strongly rows are pulled towards an alternative, and how often what is found is refined.
_WEAKEST_PULL, _PULL_GROWTH, _STRONGEST_PULL, _REFINEMENTS = 1e-2, 4.0, 1e7, 3


@dataclass(frozen=True, eq=False)
class Target:
    """Make ``action`` at ``place`` better than all of ``others`` by more than ε."""

    place: tuple[int, int]
    action: int
    others: list[int]


def _tilt(rows: np.ndarray, slopes: np.ndarray, anywhere: bool) -> np.ndarray:
    """Rows p' that minimise KL(p, p') - slope·p': p' = p/(ν - slope), the rest on the steepest state."""
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
        steepest = slopes.argmax(axis=1)
        nu = np.maximum(nu, slopes.max(axis=1))
        share = np.divide(rows, nu[:, None] - slopes, out=np.zeros_like(rows), where=possible & (nu[:, None] > slopes))
        every = np.arange(len(rows))
        share[every, steepest] += np.maximum(1 - share.sum(axis=1), 0.0)
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def row_divergence(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    ratio = np.divide(rows, others, out=np.ones_like(rows), where=rows > 0)
    return np.maximum((rows * np.log(ratio)).sum(axis=-1), 0.0)


class AlternativeKernels:
    """Finds kernels that meet a target and are close to the model's.

    Parameters
    ----------
    model : DenseModel
    eps : float
        The others of a target must lose more than this.
    anywhere : bool
        Whether rows may lead to states to which the model's do not.
    pooled : bool
        Whether a row is the same at every step.
    """

    def __init__(self, model: DenseModel, eps: float, anywhere: bool, pooled: bool) -> None:
        self.model, self.eps, self.anywhere, self.pooled = model, eps, anywhere, pooled
        self.optimum, self.decisions = model.solve(), model.decisions(eps)

    def leading_to(self, target: Target, weights: np.ndarray, *, first: bool) -> list[np.ndarray]:
        """Kernels that meet a target, with ``weights`` of the rows' divergences.

        The target's own row or one of its others' moved alone, the rows of its policy, and those of its rival as well; at
        ``first`` all of them, later the two that are cheapest.
        """
        alone = []
        for action in (target.action, *target.others):
            alone.append(np.zeros(self.model.shape, dtype=bool))
            alone[-1][(*target.place, action)] = True
        candidates: list[np.ndarray] = []
        for detour in self._detours(target):
            found = []
            for rival, only in (*((True, row) for row in alone), (False, None), (True, None)):
                kernel = self._move(target, self.model, weights, detour, rival, only)
                if kernel is None:
                    continue
                for _ in range(0 if only is not None else _REFINEMENTS):
                    kernel = self._refined(kernel, target, weights, detour, rival)
                found.append(kernel)
            candidates += found or self._pursued(target, weights, detour)
        return candidates if first else sorted(candidates, key=lambda kernel: self._cost(kernel, weights))[:2]

    def restricted_loss(self, model: DenseModel) -> float:
        """What the best policy loses in another model that does what an ε-optimal one of this model must do.

        It plays actions of D wherever it can be in this model. After a step that is impossible here it may do anything.
        """
        values, _ = model.solve()
        best = values[-1]
        for h in reversed(range(model.shape[0])):
            after = np.where(self.model.kernel[h] > 0, best, values[h + 1])
            q = model.risk(model.kernel[h], model.rewards[h] + after)
            best = np.where(self.decisions[h], q, -np.inf).max(axis=1)
        return float(model.risk(model.start, values[0]) - model.risk(model.start, best))

    def _detours(self, target: Target) -> list[float]:
        """Go to the target's place only if it costs nothing, or at any cost, where that makes a difference."""
        values, q = self.optimum
        detours = (LOSS_SLACK, np.inf)
        cautious, bold = (self.model.best_policy(values, q, target.place, [target.action], d) for d in detours)
        return list(detours if (cautious != bold).any() else detours[:1])

    def _cost(self, kernel: np.ndarray, weights: np.ndarray) -> float:
        return float((weights * row_divergence(self.model.kernel, kernel)).sum())

    def _refined(
        self, kernel: np.ndarray, target: Target, weights: np.ndarray, detour: float, rival: bool
    ) -> np.ndarray:
        """Take the gradient at what was found and move again, if that makes it cheaper."""
        moved = self._move(target, self.model_of(kernel), weights, detour, rival)
        return kernel if moved is None or self._cost(kernel, weights) <= self._cost(moved, weights) else moved

    def model_of(self, kernel: np.ndarray) -> DenseModel:
        return DenseModel(kernel, self.model.rewards, self.model.start, self.model.beta)

    def _move(
        self,
        target: Target,
        at: DenseModel,
        weights: np.ndarray,
        detour: float,
        rival: bool,
        only: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """Move rows along the gradient taken at the model ``at`` until the target is met; None if it cannot be."""
        steep = self._steepness(target, at, weights, detour, rival)
        if only is not None:
            moving: np.ndarray = np.any(only, axis=0) if self.pooled else only
            steep = np.where(moving[..., None], steep, 0.0)
        if not steep.any():
            return None
        steep = steep / np.abs(steep).max()

        def kernel_at(log_step: float) -> np.ndarray:
            return self._tilted(np.exp(log_step) * steep)

        def shortfall(log_step: float) -> float:
            return self._shortfall(target, kernel_at(log_step))

        low, high = -14.0, -2.0
        while shortfall(high) > 0:
            low, high = high, high + 2.0
            if high > 14:
                return None
        step = optimize.bisect(shortfall, low, high, xtol=1e-3) if shortfall(low) > 0 else low
        for safe in (step, step + 1e-3, high):
            kernel = kernel_at(safe)
            if self._shortfall(target, kernel) <= 0:
                return kernel
        return None

    def _pursued(self, target: Target, weights: np.ndarray, detour: float) -> list[np.ndarray]:
        """Move rows little by little, along a gradient that is taken anew each time; the alternative, if one is found.

        Where one change helps only together with others, no straight way leads there. For fixed visits and fixed values of
        what follows the step of each row is exact: it minimises its divergence less ``pull`` times what it gains.
        """
        kernel, pull = self.model.kernel, 0.0
        while pull < _STRONGEST_PULL:
            steep = self._steepness(target, self.model_of(kernel), weights, detour, rival=True)
            if not steep.any():
                return []
            pull = _PULL_GROWTH * pull or _WEAKEST_PULL / np.abs(steep).max()
            kernel = self._tilted(pull * steep)
            if self._shortfall(target, kernel) <= 0:
                for _ in range(_REFINEMENTS):
                    kernel = self._refined(kernel, target, weights, detour, rival=True)
                return [kernel]
        return []

    def _steepness(self, target: Target, at: DenseModel, weights: np.ndarray, detour: float, rival: bool) -> np.ndarray:
        """What moving each row gains at the model ``at``, per unit of the weight of its divergence."""
        values, q = at.solve()
        slopes = at.gradient(at.best_policy(values, q, target.place, [target.action], detour))
        if rival:
            slopes = slopes - at.gradient(at.best_policy(values, q, target.place, target.others))
        if self.pooled:
            slopes, weights = slopes.sum(axis=0), weights.sum(axis=0)
        weighty = weights[..., None] > 0
        return np.asarray(np.divide(slopes, weights[..., None], out=np.zeros_like(slopes), where=weighty))

    def _tilted(self, steep: np.ndarray) -> np.ndarray:
        """The model's kernel with every row moved so far."""
        kernel = self.model.kernel[0].copy() if self.pooled else self.model.kernel.copy()
        moved = np.abs(steep).max(axis=-1) > 0
        kernel[moved] = _tilt(kernel[moved], steep[moved], self.anywhere)
        return np.broadcast_to(kernel, self.model.kernel.shape) if self.pooled else kernel

    def _shortfall(self, target: Target, kernel: np.ndarray) -> float:
        """How much is missing until every one of the target's others loses more than ε, or all that was right before."""
        model = self.model_of(kernel)
        values, q = model.solve()
        h, s = target.place
        actions = np.array(target.others)
        losses = model.losses(values, q, h, np.full(len(actions), s), actions)
        enough = self.eps * (1 + 1e-7) + 3 * LOSS_SLACK * (1 + float(np.abs(values[0]).max()))
        return float(enough - max(losses.min(), self.restricted_loss(model)))
