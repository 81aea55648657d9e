"""Ball and box, by other means than the library's, and an adversary for certificates that use one law in many places.

The adversary looks for one kernel, the same at every step, in all balls and with a large gap: row by row it moves towards
the extreme point of the ball that the gradient points to, as far as that helps.
"""

from __future__ import annotations

import math
from contextlib import contextmanager

import numpy as np
import pytest
from numba import njit

from entropic_bpi.methods.kl import boxes
from entropic_bpi.methods.kl.boxes import Laws
from reference.kl import Tables, ball_max
from reference.kl_attack import _evaluate

NONE, NO_NAMES = np.empty(0, np.int64), np.empty((0, 4), np.int64)
NO_LAWS = Laws(NONE, NONE, NO_NAMES, NONE, NONE, NO_NAMES)


@contextmanager
def without_boxes():
    """Methods that are made here never try boxes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "laws_of", lambda problem: NO_LAWS)
        yield


def divergence(p, q) -> float:
    """KL(p, q); infinite if q lacks something of p."""
    pairs = [(a, b) for a, b in zip(p, q, strict=True) if a > 0]
    return math.inf if any(b <= 0 for _, b in pairs) else sum(a * math.log(a / b) for a, b in pairs)


def divided(p, low, high, weight) -> np.ndarray | None:
    """q = p·λ/weight cut off at the ends of the box, with λ such that it adds up to 1; unseen ones are at an end, the last
    of them with what is left."""
    least, most = 0.0, 1e12
    for _ in range(200):
        lam = math.sqrt(max(least, 1e-18) * most)
        q = np.clip(p * lam / weight, low, high)
        least, most = (lam, most) if q.sum() < 1 else (least, lam)
    return q if abs(q.sum() - 1) < 1e-9 else None


def most_likely(p, low, high) -> np.ndarray:
    """The law q of the box with the smallest KL(p, q): q = pλ, cut off; unseen outcomes take what is missing."""
    q = divided(p, low, high, np.ones(len(p)))
    if q is None:
        q = np.clip(p * 1e12, low, high)
        for j in np.flatnonzero(p == 0):
            q[j] = min(high[j], q[j] + max(0.0, 1 - q.sum()))
    return q


def largest_mean(p, f, x, low, high, rng, tries=400) -> float:
    """A mean of f that some q of ball and box has, nearly the largest: by steps towards the vertices of the box from a
    point inside, each as far as the ball allows."""
    q = most_likely(p, low, high)
    best = q @ f
    for _ in range(tries):
        i, j = rng.permutation(len(p))[:2]
        if f[i] < f[j]:
            i, j = j, i
        step = min(high[i] - q[i], q[j] - low[j])
        unit = np.zeros(len(p))
        unit[i], unit[j] = 1.0, -1.0
        if len(p) > 2 and rng.random() < 0.5:  # a direction that trades divergence for mean
            k = int(rng.choice([m for m in range(len(p)) if m not in (i, j)]))
            t = rng.uniform(-1, 1)
            unit[k] += t
            unit[j if rng.random() < 0.5 else i] -= t
            if unit @ f < 0:
                unit = -unit
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(unit > 0, (high - q) / unit, np.where(unit < 0, (low - q) / unit, np.inf))
            step = max(0.0, np.min(room))
        a, b = 0.0, step
        for _ in range(50):
            middle = 0.5 * (a + b)
            a, b = (middle, b) if divergence(p, q + middle * unit) <= x else (a, middle)
        if divergence(p, q + step * unit) <= x:
            a = step
        q = q + a * unit
        best = max(best, q @ f)
    return float(best)


@njit(cache=True, error_model="numpy")
def _slopes(kernel, gain, start, policy):
    """The derivative of log Z of a policy by each probability of a constant kernel ``(S, A, S)``."""
    T, S = policy.shape
    z, mass, slope = np.ones((T + 1, S)), np.zeros((T + 1, S)), np.zeros(kernel.shape)
    for h in range(T - 1, -1, -1):
        for s in range(S):
            a = policy[h, s]
            z[h, s] = np.sum(kernel[s, a] * gain[h, s, a] * z[h + 1])
    mass[0, start] = 1.0
    for h in range(T):
        for s in range(S):
            a = policy[h, s]
            for y in range(S):
                slope[s, a, y] += mass[h, s] * gain[h, s, a, y] * z[h + 1, y] / z[0, start]
                mass[h + 1, y] += mass[h, s] * kernel[s, a, y] * gain[h, s, a, y]
    return slope


@njit(cache=True, error_model="numpy")
def _gap(kernel, gain, actions, reachable, sign, start, policy):
    T, S, A, _ = gain.shape
    steps = np.empty((T, S, A, S))
    steps[:] = kernel
    best, mine, greedy = _evaluate(steps, gain, actions, reachable, sign, policy)
    return sign * math.log(best[0, start] / mine[0, start]), greedy


@njit(cache=True, error_model="numpy")
def _climb(kernel, gain, tables, sign, start, policy, sweeps):
    shares, allowed, radius, actions, reachable = tables
    S, A, _ = kernel.shape
    value, greedy = _gap(kernel, gain, actions, reachable, sign, start, policy)
    q = np.empty(S)
    for _ in range(sweeps):
        before = value
        for s in range(S):
            for a in range(A):
                slope = sign * (_slopes(kernel, gain, start, greedy)[s, a] - _slopes(kernel, gain, start, policy)[s, a])
                if not np.isfinite(slope).all():
                    continue
                ball_max(shares[s, a], slope, allowed[s, a], radius[s, a], q)
                if not np.isfinite(q).all():
                    continue
                old = kernel[s, a].copy()
                kept = old.copy()
                for share in (1.0, 0.7, 0.4, 0.2, 0.1, 0.03):
                    kernel[s, a] = (1.0 - share) * old + share * q
                    new, rival = _gap(kernel, gain, actions, reachable, sign, start, policy)
                    if new > value:
                        value, greedy, kept = new, rival, kernel[s, a].copy()
                kernel[s, a] = kept
        if not value > before + 1e-9:
            break
    return value


def attack(t: Tables, start: int, policy: np.ndarray, rng: np.random.Generator, restarts: int = 4) -> float:
    """The largest |β|·gap of the policy that was found under one kernel for all steps; rewards must be known."""
    assert np.array_equal(t.low, t.high)
    S, A = t.radius.shape[1:]
    tables = t.shares[0], t.allowed[0], t.radius[0], np.array(t.actions), t.reachable
    best, q = -np.inf, np.empty(S)
    for restart in range(restarts):
        kernel = t.shares[0].copy()
        for s in range(S):
            for a in range(A):
                if restart or not t.shares[0, s, a].sum() > 0:
                    ball_max(t.shares[0, s, a], rng.normal(size=S), t.allowed[0, s, a], t.radius[0, s, a], q)
                    kernel[s, a] = q
        best = max(best, _climb(kernel, t.low, tables, t.sign, start, policy, 12))
    return float(best)
