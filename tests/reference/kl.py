"""The KL method in plain NumPy and mpmath, written from its theory: balls, radii, plan, and the gap certificate.

Everything is dense: arrays ``(T, S, A, S)`` over planned steps, a random start being step 0 with state 0 and action 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from mpmath import mp, mpf
from numba import njit
from scipy.special import gammaln

# -- balls -----------------------------------------------------------------------------------------------------


def ball_max_mpmath(tally, f, x) -> mpf:
    """max q f over KL(tally/n, q) <= x, by the dual in 50 digits; bisection on its derivative, in log w."""
    with mp.workdps(50):
        n, f, x = sum(tally), [mpf(v) for v in f], mpf(x)
        top = max(f)
        seen = [(mpf(c) / n, top - v) for c, v in zip(tally, f, strict=True) if c > 0]
        width = max(d for _, d in seen)
        if width == 0:
            return top
        if x == 0:
            return top - sum(p * d for p, d in seen)
        if all(d > 0 for _, d in seen):
            at_zero = sum(p * mp.log(d) for p, d in seen) + mp.log(sum(p / d for p, d in seen))
            if at_zero <= x:
                return top - mp.exp(sum(p * mp.log(d) for p, d in seen) - x)
        low, high = mpf(-800), mpf(120)
        # The value's error is the square of that of w.
        for _ in range(70):
            middle = (low + high) / 2
            w = width * mp.exp(middle)
            excess = mp.fprod((d + w) ** p for p, d in seen) * sum(p / (d + w) for p, d in seen) - mp.exp(x)
            low, high = (middle, high) if excess > 0 else (low, middle)
        w = width * mp.exp(high)
        return top + w - mp.exp(sum(p * mp.log(d + w) for p, d in seen) - x)


@njit(cache=True, error_model="numpy")
def ball_max(p, f, allowed, x, q):
    """max of q f over the ball, by bisection; a maximiser inside the ball is left in ``q``."""
    size = len(f)
    q[:] = 0.0
    best = -1
    for i in range(size):
        if allowed[i] and (best < 0 or f[i] > f[best]):
            best = i
    if not x < np.inf:
        q[best] = 1.0
        return f[best]
    width, top = 0.0, 0.0
    for i in range(size):
        if p[i] > 0:
            width = max(width, f[best] - f[i])
            top += p[i] if f[i] == f[best] else 0.0
    if width == 0.0 or x == 0.0:
        value = 0.0
        for i in range(size):
            q[i] = p[i]
            value += p[i] * f[i]
        return f[best] if width == 0.0 else value
    if top == 0.0:
        logs, inverse = 0.0, 0.0
        for i in range(size):
            if p[i] > 0:
                d = (f[best] - f[i]) / width
                logs += p[i] * np.log(d)
                inverse += p[i] / d
        if logs + np.log(inverse) <= x:
            depth = np.exp(logs - x)
            for i in range(size):
                if p[i] > 0:
                    q[i] = depth * p[i] * width / (f[best] - f[i])
            q[best] = max(0.0, 1.0 - depth * inverse)
            return f[best] - width * depth
    low, high = -600.0, 60.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        w = np.exp(middle)
        logs, loss, rest = 0.0, 0.0, 0.0
        for i in range(size):
            if p[i] > 0:
                ratio = (f[best] - f[i]) / width / w
                logs += p[i] * np.log1p(ratio)
                loss += p[i] * ratio / (1.0 + ratio)
                rest += p[i] / (1.0 + ratio)
        big_f = logs + (np.log1p(-loss) if loss < 0.5 else np.log(rest))
        if big_f > x:
            low = middle
        else:
            high = middle
    w = np.exp(high)
    logs, total = 0.0, 0.0
    for i in range(size):
        if p[i] > 0:
            ratio = (f[best] - f[i]) / width / w
            logs += p[i] * np.log1p(ratio)
            q[i] = p[i] / (1.0 + ratio)
            total += q[i]
    for i in range(size):
        q[i] /= total
    return f[best] - width * w * np.expm1(logs - x)


# -- radii -----------------------------------------------------------------------------------------------------


def mixture_radius_mpmath(tally, k, most=0) -> mpf:
    """R_mix = -log of the mean of e^{-R_a} over the four priors, in 60 digits.

    If only ``most`` of the k values occur, half of that, and half of the mean over all subsets of so many values, of which
    those count that contain the values seen.
    """
    with mp.workdps(60):
        n = sum(tally)
        fit = sum(c * mp.log(mpf(c) / n) for c in tally if c > 0)

        def evidence(cells, a):
            seen = [c for c in tally if c > 0]
            total = mp.loggamma(cells * a) - mp.loggamma(n + cells * a)
            return mp.exp(total + sum(mp.loggamma(c + a) - mp.loggamma(a) for c in seen) - fit)

        total = sum(evidence(k, a) for a in (mpf(1) / k**2, mpf(1) / k, mpf(1) / 2, mpf(1))) / 4
        if most:
            seen = sum(c > 0 for c in tally)
            share = mp.binomial(k - seen, most - seen) / mp.binomial(k, most)
            total = total / 2 + share * evidence(most, mpf(1) / 2) / 2
        return -mp.log(total)


def mixture_radius(tally, k) -> np.ndarray:
    """The same in doubles, for counts up to some thousands; ``tally`` ``(.., k or fewer)``, rows with n > 0."""
    tally = np.asarray(tally, dtype=float)
    n = tally.sum(axis=-1)
    fit = (tally * np.log(np.where(tally > 0, tally, 1.0) / n[..., None])).sum(axis=-1)
    k = np.asarray(k, dtype=float)
    radii = []
    for a in (1 / k**2, 1 / k, 0.5 + 0 * k, 1.0 + 0 * k):
        evidence = gammaln(k * a) - gammaln(n + k * a)
        evidence = evidence + (gammaln(tally + a[..., None]) - gammaln(a)[..., None]).sum(axis=-1)
        radii.append(fit - evidence)
    return -np.log(np.mean(np.exp(-np.array(radii)), axis=0))


def support_radius(tally, k, most) -> np.ndarray:
    """R_mix where at most ``most`` of ``k`` values occur, for rows with n > 0 and no more than ``most`` values seen."""
    tally, cells = np.asarray(tally, dtype=float), np.asarray(most, dtype=float)
    n, seen = tally.sum(axis=-1), (tally > 0).sum(axis=-1)
    fit = (tally * np.log(np.where(tally > 0, tally, 1.0) / n[..., None])).sum(axis=-1)
    evidence = gammaln(cells / 2) - gammaln(n + cells / 2) + (gammaln(tally + 0.5) - gammaln(0.5)).sum(axis=-1)
    share = gammaln(k - seen + 1) - gammaln(k + 1) + gammaln(cells + 1) - gammaln(cells - seen + 1)
    return -np.log((np.exp(-mixture_radius(tally, k)) + np.exp(evidence + share - fit)) / 2)


# -- random rewards ---------------------------------------------------------------------------------------------


def betting_regret(n) -> float:
    """log(√π Γ(n + 1) / Γ(n + ½)), in more digits than the difference of two large logarithms loses."""
    with mp.workdps(40):
        return float(mp.log(mp.pi) / 2 + mp.loggamma(int(n) + 1) - mp.loggamma(int(n) + mpf(1) / 2))


def certainty_interval(values, times, low, high, beta, log_union) -> tuple[float, float]:
    """Bounds on (1/β) log E e^{βR} from values of R on [low, high]."""
    n = np.sum(times)
    if n == 0:
        return low, high
    shares = np.append(np.asarray(times) / n, [0.0, 0.0])
    worth = np.exp(beta * (np.append(values, [low, high]) - low))
    row = np.ones(len(worth), dtype=bool), (log_union + betting_regret(n)) / n, np.empty(len(worth))
    ends = -ball_max(shares, -worth, *row), ball_max(shares, worth, *row)
    least, most = sorted(low + np.log(end) / beta for end in ends)
    return least, most


# -- what a plan starts from -----------------------------------------------------------------------------------


@dataclass
class Tables:
    """Dense data of one planning problem; ``actions[h]`` actions exist at step ``h``."""

    sign: int
    shares: np.ndarray  # (T, S, A, S) empirical distributions
    allowed: np.ndarray  # (T, S, A, S) bool
    radius: np.ndarray  # (T, S, A), infinite without data
    low: np.ndarray  # (T, S, A, S) the smaller end of e^{βr}
    high: np.ndarray  # (T, S, A, S) the larger end
    actions: list[int]
    reachable: np.ndarray  # (T, S) bool
    bottom: np.ndarray | None = None  # (T,) between what e^{β·return} from a step on lies, where returns are declared
    top: np.ndarray | None = None

    def upper(self, h, f) -> np.ndarray:
        return f if self.top is None else np.minimum(f, self.top[h])

    def lower(self, h, f) -> np.ndarray:
        return f if self.bottom is None else np.maximum(f, self.bottom[h])

    def clipped(self, h, f, sign) -> np.ndarray:
        return self.upper(h, f) if sign > 0 else self.lower(h, f)

    @property
    def steps(self) -> int:
        return len(self.shares)

    @property
    def n_states(self) -> int:
        return self.shares.shape[-1]

    def extreme(self, h, s, a, f, sign) -> float:
        """The largest (``sign`` 1) or smallest mean of ``f`` over the ball of (h, s, a)."""
        q = np.empty(self.n_states)
        row = self.shares[h, s, a], sign * np.asarray(f), self.allowed[h, s, a], self.radius[h, s, a]
        return sign * ball_max(*row, q)


def optimism(t: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Zo ``(T + 1, S)`` and Uo ``(T, S, A)``: the best action under the best kernel."""
    z, u = np.ones((t.steps + 1, t.n_states)), np.full(t.radius.shape, np.nan)
    e = t.high if t.sign > 0 else t.low
    for h in reversed(range(t.steps)):
        for s in np.flatnonzero(t.reachable[h]):
            for a in range(t.actions[h]):
                u[h, s, a] = t.extreme(h, s, a, t.clipped(h, e[h, s, a] * z[h + 1], t.sign), t.sign)
            z[h, s] = t.sign * np.max(t.sign * u[h, s, : t.actions[h]])
    return z, u


@dataclass
class Candidate:
    """A policy with its pessimistic Z, the box top (Zq, or Wo for β < 0), ρ, and the plain ratio at each place."""

    policy: np.ndarray
    pessimistic: np.ndarray
    box_top: np.ndarray
    rho: np.ndarray
    plain: np.ndarray
    backups: np.ndarray  # Up (T, S, A)
    score: np.ndarray  # what the smallest-gap candidate minimises, (T, S, A)


def candidate(t: Tables, z_opt, u_opt, policy, slip: str | None = None, z_other=None) -> Candidate:
    """Evaluate ``policy`` ``(T, S)`` by the theory; ``slip`` names a misreading of it that gives false certificates."""
    sg, shape = t.sign, (t.steps + 1, t.n_states)
    z, top, rho, plain = (np.ones(shape) for _ in range(4))
    backups, score = np.full(t.radius.shape, np.nan), np.full(t.radius.shape, np.nan)
    e_pess = t.low if sg > 0 else t.high
    for h in reversed(range(t.steps)):
        low, cap = (z, z_opt) if sg > 0 else (z_opt, z)
        for s in np.flatnonzero(t.reachable[h]):
            actions = range(t.actions[h])
            for a in actions:
                backups[h, s, a] = t.extreme(h, s, a, t.clipped(h, e_pess[h, s, a] * z[h + 1], -sg), -sg)
            c = policy[h, s]
            z[h, s] = backups[h, s, c]
            if sg > 0:
                top[h, s] = min(t.extreme(h, s, c, t.upper(h, t.high[h, s, c] * top[h + 1]), 1), z_opt[h, s])
            else:
                reached = [t.extreme(h, s, a, t.upper(h, t.high[h, s, a] * top[h + 1]), 1) for a in actions]
                top[h, s] = max(min(z[h, s], *reached), z_opt[h, s])
            plain[h, s] = _ratio(sg, z_opt[h, s], (z if slip != "plain of the other candidate" else z_other)[h, s])
            if slip == "box of the other candidate":
                low, cap = (z_other, cap) if sg > 0 else (low, z_other)
            for a in actions:
                others = [_ratio(sg, u_opt[h, s, b], backups[h, s, a]) for b in actions if b != a]
                score[h, s, a] = max(1.0, *others, same(t, h, s, a, rho[h + 1], low[h + 1], top[h + 1], slip))
            worst = max(1.0, same(t, h, s, c, rho[h + 1], low[h + 1], top[h + 1], slip))
            for a in actions:
                if a != c:
                    first = _ratio(sg, u_opt[h, s, a], z[h, s])
                    pair = (a, c) if sg > 0 else (c, a)
                    second = deviation(t, h, s, *pair, rho[h + 1], low[h + 1], top[h + 1], cap[h + 1], slip)
                    worst = max(worst, min(first, second))
            rho[h, s] = max(1.0, min(plain[h, s], worst))
    return Candidate(np.asarray(policy), z, top, rho, plain, backups, score)


def _ratio(sign, optimistic, pessimistic):
    return optimistic / pessimistic if sign > 0 else pessimistic / optimistic


def same(t: Tables, h, s, a, rho, low, high, slip=None) -> float:
    """sup Σ q w ρ / Σ q w over q in the ball and w in e·[low, high], by bisection; the upper end."""
    e_low, e_high = t.low[h, s, a], t.high[h, s, a]
    if slip == "weights without reward":
        e_low = e_high = np.ones_like(e_low)
    if slip == "one end of the reward":
        e_low = e_high
    left, right = 1.0, max(1.0, rho[t.allowed[h, s, a]].max())
    if right == 1.0:
        return 1.0
    for _ in range(50):
        lam = 0.5 * (left + right)
        excess = rho - lam
        g = np.where(excess > 0, excess * t.upper(h, e_high * high), excess * t.lower(h, e_low * low))
        if t.extreme(h, s, a, g, 1) <= 0:
            right = lam
        else:
            left = lam
    return right


def deviation(t: Tables, h, s, upper, lower, rho, low, high, cap, slip=None) -> float:
    """dev2: the largest ratio over the corners of the (at most three) shared successors that matter most.

    Declared returns cap ρz at what the reward on the way leaves; a shared z has no floor, which only raises the ratio.
    """
    if t.top is not None:
        cap = np.minimum(cap, t.top[h] / t.high[h, s, upper])
    if slip == "capped by the candidate":
        cap = high
    kappa = np.maximum(low, np.minimum(high, cap / rho))
    if slip == "kappa at the top of the box":
        kappa = high
    p, r = t.shares[h, s, upper], t.shares[h, s, lower]
    if np.isinf(t.radius[h, s, upper]):
        p = 0 * p
    weight = np.minimum(p, 0 * r if np.isinf(t.radius[h, s, lower]) else r)
    if t.bottom is None:
        weight = weight * (kappa - low)  # of no other does it matter whether it is shared
    shared = [y for y in np.argsort(-weight)[:3] if weight[y] > 0]
    e_up, e_down = t.high[h, s, upper], t.low[h, s, lower]
    if slip == "one end of the reward":
        e_down = t.high[h, s, lower]
    corners = list(product((False, True), repeat=len(shared)))
    if slip == "two corners":
        corners = [corners[0], corners[-1]]
    worst = 0.0
    for corner in corners:
        above, below = e_up * np.minimum(cap, rho * high), t.lower(h, e_down * low)
        for y, raised in zip(shared, corner, strict=True):
            z = kappa[y] if raised else low[y]
            above[y], below[y] = e_up[y] * min(cap[y], rho[y] * z), e_down[y] * z
        worst = max(worst, t.extreme(h, s, upper, above, 1) / t.extreme(h, s, lower, below, -1))
    return worst
