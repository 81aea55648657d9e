"""The paper's method in plain NumPy, straight from its definitions, with dense counts and no care for speed.

Steps are 1-based in the formulas; row ``i`` of an array belongs to step ``h = i + 1``, and the last row to H + 1. Extended
precision, where the machine has it, keeps the digits that ``Z - 1`` loses for small exponents.

The printed article differs in places; ``Printed`` brings its variants back, to show what they break.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

REAL = np.longdouble


@dataclass(frozen=True)
class Printed:
    """What the article prints; the defaults are what is right.

    ``cap`` and ``width_cap`` are the numbers k in the caps ``e^{β(H-h+k)}`` of U and G, ``greedy_for_up`` takes the argmin
    of the upper U for β < 0, and ``bonus`` multiplies the bonus.
    """

    cap: int = 1
    width_cap: int = 1
    greedy_for_up: bool = False
    bonus: float = 1.0


RIGHT = Printed()


@dataclass(frozen=True)
class Result:
    """``z_up``, ``z_low``, ``width`` are ``(steps + 1, S)`` for rescaled rewards; the claim is in the rewards' own units."""

    z_up: np.ndarray
    z_low: np.ndarray
    width: np.ndarray
    policy: np.ndarray
    lower: float
    upper: float
    gap: float

    def stops(self, eps: float) -> bool:
        return self.gap <= eps


def alpha(n, n_pairs, n_states, delta):
    """α(n) with ``n_pairs`` in the union bound."""
    return np.log(3 * REAL(n_pairs) / REAL(delta)) + n_states * np.log(8 * np.exp(REAL(1)) * (n + 1))


def alpha_star(n, n_pairs, delta):
    return np.log(3 * REAL(n_pairs) / REAL(delta)) + np.log(8 * np.exp(REAL(1)) * (n + 1))


def extended(counts, rewards, start_counts):
    """Add the artificial first step: state 0, action 0, reward 0."""
    first = np.zeros_like(counts[:1])
    first[0, 0, 0] = start_counts
    return np.concatenate([first, counts]), np.concatenate([np.zeros_like(rewards[:1]), rewards])


def possible_successors(allowed, horizon, shape, start_allowed):
    """Boolean ``(steps, S, A, S)`` from a mask ``(S, A, S)``, ``(H, S, A, S)`` or None."""
    allowed = np.ones(shape, dtype=bool) if allowed is None else np.asarray(allowed)
    allowed = np.broadcast_to(allowed, (horizon, *shape)) if allowed.ndim == 3 else allowed
    if start_allowed is None:
        return allowed
    return np.concatenate([np.broadcast_to(start_allowed, (1, *shape)), allowed])


def value_ranges(rewards, allowed, beta):
    """Smallest and largest possible Z_{h+1} after each (h, s, a), given the rewards and possible successors."""
    steps, n_states, n_actions = rewards.shape
    least, most = np.zeros((steps + 1, n_states), REAL), np.zeros((steps + 1, n_states), REAL)
    bottom, top = np.empty(rewards.shape, REAL), np.empty(rewards.shape, REAL)
    for i in reversed(range(steps)):
        for s in range(n_states):
            lows, highs = [], []
            for a in range(n_actions):
                low, high = least[i + 1, allowed[i, s, a]].min(), most[i + 1, allowed[i, s, a]].max()
                bottom[i, s, a], top[i, s, a] = sorted([np.exp(beta * low), np.exp(beta * high)])
                lows.append(rewards[i, s, a] + low)
                highs.append(rewards[i, s, a] + high)
            least[i, s], most[i, s] = min(lows), max(highs)
    return bottom, top


def plan(
    counts, rewards, *, beta, delta, constants, start=0, start_counts=None, pooled=False, allowed=None, start_allowed=None,
    printed=RIGHT,
) -> Result:  # fmt: skip
    """Bounds from ``counts`` ``(H, S, A, S)`` and ``rewards`` ``(H, S, A)``.

    With ``start_counts`` ``(S,)`` the start is random. ``allowed`` masks the possible successors.
    """
    counts, rewards = np.asarray(counts), np.asarray(rewards, REAL)
    horizon, n_states, n_actions = rewards.shape
    lo, hi = (rewards.min(), rewards.max()) if rewards.min() < 0 or rewards.max() > 1 else (REAL(0), REAL(1))
    scale = hi - lo if hi > lo else REAL(1)
    rewards, beta = (rewards - lo) / scale, REAL(beta) * scale
    if pooled:
        counts = np.broadcast_to(counts.sum(axis=0), counts.shape)
    random_start = start_counts is not None
    if random_start:
        counts, rewards = extended(counts, rewards, start_counts)
        start_allowed = np.ones(n_states, dtype=bool) if start_allowed is None else start_allowed
    allowed = possible_successors(allowed, horizon, (n_states, n_actions, n_states), start_allowed)
    if constants == "sharp":
        bottom, top = value_ranges(rewards, allowed, beta)
    H, S, A = len(rewards), n_states, n_actions
    kl_pairs = S * A + random_start if pooled else S * A * H
    z_up, z_low, g = (np.ones((H + 1, S), REAL), np.ones((H + 1, S), REAL), np.zeros((H + 1, S), REAL))
    policy = np.zeros((H, S), dtype=int)
    for h in range(H, 0, -1):
        i = h - 1
        for s in range(S):
            actions = [0] if random_start and h == 1 else range(A)
            us = []
            for a in actions:
                n, e = int(counts[i, s, a].sum()), np.exp(beta * rewards[i, s, a])
                if constants != "sharp":
                    cap, floor = np.exp(beta * (H - h + printed.cap)), REAL(1)
                    clip, b_range = np.exp(beta * (H - h + printed.width_cap)), np.exp(beta * (H - h))
                    if beta < 0:
                        cap, floor, clip, b_range = floor, cap, REAL(1), 1 - np.exp(beta * (H - h))
                else:
                    cap, floor = e * top[i, s, a], e * bottom[i, s, a]
                    b_range = top[i, s, a] - bottom[i, s, a]
                    clip = e * b_range
                if n == 0:
                    us.append((cap, floor, clip))
                    continue
                p = counts[i, s, a].astype(REAL) / n
                optimistic = z_up[h] if beta > 0 else z_low[h]
                variance = p @ (optimistic - p @ optimistic) ** 2
                x, x_star = alpha(n, kl_pairs, S, delta) / n, alpha_star(n, S * A * H, delta) / n
                if constants != "sharp":
                    b = 2 * np.sqrt(2 * variance * x_star) + 5 * b_range * x
                    b += 4 * H * b_range * (x_star if constants == "printed" else x)
                    b = b * printed.bonus
                    width = 3 * b + (1 + REAL(3) / H) * (p @ g[h])
                else:
                    b = 2 * np.sqrt(2 * variance * x_star) + np.sqrt(REAL(5) * x * x_star) * b_range
                    b = (b + (2 * H + 3) * b_range * x_star) * printed.bonus
                    width = 2 * b + (REAL(H) / 2 + 2) * b_range * x + (1 + REAL(2) / H) * (p @ g[h])
                slack = b + p @ (z_up[h] - z_low[h]) / H
                u_up, u_low = min(cap, e * (p @ z_up[h] + slack)), max(floor, e * (p @ z_low[h] - slack))
                width = min(clip, e * width)
                if constants == "sharp":
                    width = min(width, u_up - floor) if beta > 0 else min(width, cap - u_low)
                us.append((u_up, u_low, width))
            ups, lows, widths = (np.array(column, REAL) for column in zip(*us, strict=True))
            best = np.max if beta > 0 else np.min
            z_up[i, s], z_low[i, s] = best(ups), best(lows)
            side = ups if beta > 0 or printed.greedy_for_up else lows
            policy[i, s] = np.argmax(side) if beta > 0 else np.argmin(side)
            g[i, s] = widths[policy[i, s]]
    first = 0 if random_start else start
    lower, upper, gap = claim(beta, constants, z_up[0, first], z_low[0, first], g[0, first])
    lowest = horizon * lo
    return Result(z_up, z_low, g, policy, max(lowest, lowest + scale * lower), lowest + scale * upper, scale * gap)


def claim(beta, constants, z_up, z_low, g):
    """Lower bound of the policy's value, upper bound of V*, and the ε from which on the rule stops."""
    if beta > 0:
        # Z^π ≥ Z_up - G; G ≤ (1 - e^{-βε}) Z_up.
        upper = np.log(z_up) / beta if z_up > 0 else REAL(-np.inf)  # a printed cap can make Z_up negative
        if g >= z_up:
            return REAL(-np.inf), upper, REAL(np.inf)
        return np.log(z_up - g) / beta, upper, np.log(z_up / (z_up - g)) / beta
    # Z^π ≤ Z_low + G.
    lower, upper = np.log(z_low + g) / beta, np.log(z_low) / beta
    if constants == "sharp":  # G ≤ (e^{|β|ε} - 1) Z_low
        return lower, upper, np.log1p(g / z_low) / -beta
    # G ≤ (1 - e^{βε}) Z_low
    return lower, upper, np.log1p(-g / z_low) / beta if g < z_low else REAL(np.inf)
