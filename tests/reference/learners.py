"""Every learner once more, slowly, in plain NumPy and in the notation of its pseudocode.

Nothing is shared with the package but the random numbers: the uniform draws of transitions, and the hash that breaks
ties. Tables hold exponentials or values as the papers write them, the sweep is always the full one, and actions tie
when they agree to 12 digits. Steps are 0-based; ``k = H - h`` steps are left at step ``h``.
"""

from __future__ import annotations

import math

import numpy as np

MASK = (1 << 64) - 1


def tie_index(key: int, counter: int, size: int) -> int:
    x = (key + counter * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    x ^= x >> 31
    return ((x >> 32) * size) >> 32


class World:
    """The true model, its random numbers, and the exact values."""

    def __init__(self, mdp, beta, seed):
        self.H, self.S, self.A, self.beta = mdp.horizon, mdp.n_states, mdp.n_actions, beta
        self.r = np.stack([mdp.step_rewards(h) for h in range(self.H)])
        self.p = np.zeros((self.H, self.S, self.A, self.S))
        for h in range(self.H):
            rows = mdp.step_rows(h)
            row = np.repeat(np.arange(self.S * self.A), np.diff(rows.indptr))
            self.p[h].reshape(-1, self.S)[row, rows.indices] = rows.probabilities
        self.start = mdp.start
        self.rng = np.random.default_rng(seed)
        self.key = int(self.rng.integers(1, 2**63))
        self.cdf = {}
        for index in np.ndindex(self.H, self.S, self.A):
            support = np.flatnonzero(self.p[index])
            cumulative = np.cumsum(self.p[index][support])
            cumulative[-1] = 1.0
            self.cdf[index] = support, cumulative

    def step(self, h, s, a):
        support, cumulative = self.cdf[h, s, a]
        return int(support[np.searchsorted(cumulative, self.rng.random(), side="right")])

    def greedy(self, table, episode):
        """The policy of this episode for a table (H, S, A) that grows with the value."""
        best = table.max(axis=2, keepdims=True)
        ties = table >= best - 1e-12 * np.abs(best)
        policy = np.zeros((self.H, self.S), dtype=np.int64)
        for h, s in np.ndindex(self.H, self.S):
            members = np.flatnonzero(ties[h, s])
            pick = tie_index(self.key, (episode * self.H + h) * self.S + s, len(members)) if len(members) > 1 else 0
            policy[h, s] = members[pick]
        return policy

    def exponentials(self, policy):
        z = np.ones(self.S)
        states = np.arange(self.S)
        for h in reversed(range(self.H)):
            z = np.exp(self.beta * self.r[h, states, policy[h]]) * (self.p[h, states, policy[h]] @ z)
        return z

    def value(self, policy):
        if self.beta == 0:
            v, states = np.zeros(self.S), np.arange(self.S)
            for h in reversed(range(self.H)):
                v = self.r[h, states, policy[h]] + self.p[h, states, policy[h]] @ v
            return v[self.start]
        return math.log(self.exponentials(policy)[self.start]) / self.beta


def regret(learner, mdp, *, beta, episodes, delta, seed, scale, optimum, **params):
    """Cumulative regret after each episode, and the policy after the last."""
    world = World(mdp, beta, seed)
    agent = AGENTS[learner](world, K=episodes, delta=delta, scale=scale, **params)
    losses = np.zeros(episodes)
    cache = {}
    for episode in range(episodes):
        if hasattr(agent, "before"):
            agent.before(episode)
        policy = world.greedy(agent.table(), episode)
        name = policy.tobytes()
        if name not in cache:
            cache[name] = optimum - world.value(policy)
        losses[episode] = cache[name]
        if hasattr(agent, "before"):
            continue
        s, path = world.start, []
        for h in range(world.H):
            a = policy[h, s]
            following = world.step(h, s, a)
            path.append((h, s, a, following))
            s = following
        agent.learn(path)
    if hasattr(agent, "before"):
        agent.before(episodes)
    return np.cumsum(losses), world.greedy(agent.table(), episodes)


class ModelBased:
    def __init__(self, world, *, K, delta, scale):
        self.w, self.K, self.delta, self.scale = world, K, delta, scale
        self.n = np.zeros((world.H, world.S, world.A))
        self.counts = np.zeros((world.H, world.S, world.A, world.S))
        self.plan()

    def learn(self, path):
        for h, s, a, following in path:
            self.n[h, s, a] += 1
            self.counts[h, s, a, following] += 1
        self.plan()

    def phat(self, h):
        return self.counts[h] / np.maximum(self.n[h], 1)[:, :, None]


class ExponentialValueIteration(ModelBased):
    """RSVI and RSVI2 as in the papers: tables hold G = e^{βQ}."""

    def __init__(self, world, *, c=1.0, **common):
        self.c = c
        super().__init__(world, **common)

    def plan(self):
        w, b = self.w, self.w.beta
        self.G = np.empty((w.H, w.S, w.A))
        z = np.ones(w.S)
        for h in reversed(range(w.H)):
            k = w.H - h
            n = np.maximum(self.n[h], 1)
            target = np.exp(b * w.r[h]) * (self.phat(h) @ z)
            bonus = self.scale * self.c * self.range(h) * np.sqrt(w.S * self.log() / n)
            if b > 0:
                g = np.minimum(math.exp(b * k), target + bonus)
            else:
                g = np.maximum(math.exp(b * k), target - bonus)
            self.G[h] = np.where(self.n[h] > 0, g, math.exp(b * k))
            z = self.G[h].max(axis=1) if b > 0 else self.G[h].min(axis=1)

    def table(self):
        return self.G if self.w.beta > 0 else -self.G

    def log(self):
        return math.log(self.w.H * self.w.S * self.w.A * self.K / self.delta)


class RSVI(ExponentialValueIteration):
    def range(self, h):
        return abs(math.exp(self.w.beta * self.w.H) - 1)

    def log(self):
        return math.log(2 * self.w.S * self.w.A * self.K * self.w.H / self.delta)


class RSVI2(ExponentialValueIteration):
    def range(self, h):
        return abs(math.exp(self.w.beta * (self.w.H - h)) - 1)


class NeutralValueIteration(ModelBased):
    """What RSVI2 becomes at β = 0: value iteration with bonus c (H - h + 1) sqrt(S log / n)."""

    def plan(self):
        w = self.w
        log = math.log(w.H * w.S * w.A * self.K / self.delta)
        self.Q = np.empty((w.H, w.S, w.A))
        v = np.zeros(w.S)
        for h in reversed(range(w.H)):
            k = w.H - h
            bonus = self.scale * k * np.sqrt(w.S * log / np.maximum(self.n[h], 1))
            self.Q[h] = np.where(self.n[h] > 0, np.minimum(k, w.r[h] + self.phat(h) @ v + bonus), k)
            v = self.Q[h].max(axis=1)

    def table(self):
        return self.Q


class RodiTwoAtoms(ModelBased):
    """RODI with laws (1 - q) δ_0 + q δ_k: optimism, then projection (OTP), or the other order (PTO)."""

    optimism_first: bool

    def plan(self):
        w, b = self.w, self.w.beta
        iota = math.log(w.S * w.A * self.K * w.H / self.delta)
        self.q = np.empty((w.H, w.S, w.A))
        after = np.zeros(w.S)
        for h in reversed(range(w.H)):
            k = w.H - h
            radius = self.scale * np.sqrt(2 * w.S * iota / np.maximum(self.n[h], 1))
            mixture = self.phat(h) @ after
            if self.optimism_first:
                mixture = np.minimum(1, mixture + radius)
            weight = np.exp(b * w.r[h]) * (1 + mixture * (math.exp(b * (k - 1)) - 1))
            q = (weight - 1) / (math.exp(b * k) - 1)
            if not self.optimism_first:
                q = np.minimum(1, q + radius)
            self.q[h] = np.where(self.n[h] > 0, q, 1.0)
            after = self.q[h].max(axis=1)

    def table(self):
        return self.q


class RodiOTP(RodiTwoAtoms):
    optimism_first = True


class RodiPTO(RodiTwoAtoms):
    optimism_first = False


class TightRSVI2(ModelBased):
    """RSVI2 with c = √2, the range e^{βr}|e^{β(H-h)} - 1| and the clip e^{β(r+H-h)}: what OTP should be."""

    def plan(self):
        w, b = self.w, self.w.beta
        log = math.log(w.H * w.S * w.A * self.K / self.delta)
        self.G = np.empty((w.H, w.S, w.A))
        z = np.ones(w.S)
        for h in reversed(range(w.H)):
            k = w.H - h
            growth = np.exp(b * w.r[h])
            bonus = self.scale * math.sqrt(2) * growth * abs(math.exp(b * (k - 1)) - 1)
            bonus = bonus * np.sqrt(w.S * log / np.maximum(self.n[h], 1))
            target = growth * (self.phat(h) @ z)
            clip = growth * math.exp(b * (k - 1))
            g = np.minimum(clip, target + bonus) if b > 0 else np.maximum(clip, target - bonus)
            self.G[h] = np.where(self.n[h] > 0, g, math.exp(b * k))
            z = self.G[h].max(axis=1) if b > 0 else self.G[h].min(axis=1)

    def table(self):
        return self.G if self.w.beta > 0 else -self.G


class ROVI(ModelBased):
    """Value iteration over the L1 ball; the inner step of extended value iteration."""

    def plan(self):
        w, b = self.w, self.w.beta
        iota = math.log(w.S * w.A * self.K * w.H / self.delta)
        self.U = np.empty((w.H, w.S, w.A))
        z = np.ones(w.S)
        for h in reversed(range(w.H)):
            order = np.argsort(-z if b > 0 else z, kind="stable")
            phat = self.phat(h)
            for s, a in np.ndindex(w.S, w.A):
                if self.n[h, s, a]:
                    radius = self.scale * math.sqrt(2 * w.S * iota / self.n[h, s, a])
                    kernel = best_in_ball(phat[s, a], radius, order)
                    self.U[h, s, a] = math.exp(b * w.r[h, s, a]) * (kernel @ z)
                else:
                    self.U[h, s, a] = math.exp(b * w.r[h, s, a]) * z[order[0]]
            z = self.U[h].max(axis=1) if b > 0 else self.U[h].min(axis=1)

    def table(self):
        return self.U if self.w.beta > 0 else -self.U


def best_in_ball(phat, radius, order):
    kernel = phat.copy()
    kernel[order[0]] = min(1.0, phat[order[0]] + radius / 2)
    excess = kernel.sum() - 1
    for s in order[::-1]:
        if excess <= 0:
            break
        removed = min(kernel[s], excess)
        kernel[s] -= removed
        excess -= removed
    return kernel


class QLearning:
    """RSQ and RSQ2: tables hold G = e^{βQ}."""

    def __init__(self, world, *, K, delta, scale, c=1.0):
        self.w, self.scale, self.c = world, scale, c
        self.log = math.log(world.S * world.A * K * world.H / delta)
        k = world.H - np.arange(world.H)
        self.G = np.exp(world.beta * k)[:, None, None] * np.ones((world.H, world.S, world.A))
        self.n = np.zeros(self.G.shape)

    def learn(self, path):
        w, b = self.w, self.w.beta
        old = self.G.copy()
        for h, s, a, following in path:
            self.n[h, s, a] += 1
            t = self.n[h, s, a]
            alpha = (w.H + 1) / (w.H + t)
            z = 1.0
            if h + 1 < w.H:
                z = old[h + 1, following].max() if b > 0 else old[h + 1, following].min()
            target = (1 - alpha) * self.G[h, s, a] + alpha * math.exp(b * w.r[h, s, a]) * z
            bonus = self.scale * self.c * self.range(h) * math.sqrt(w.H * self.log / t)
            if b > 0:
                self.G[h, s, a] = min(math.exp(b * (w.H - h)), target + alpha * bonus)
            else:
                self.G[h, s, a] = max(math.exp(b * (w.H - h)), target - alpha * bonus)

    def table(self):
        return self.G if self.w.beta > 0 else -self.G


class RSQ(QLearning):
    def range(self, h):
        return abs(math.exp(self.w.beta * self.w.H) - 1)


class RSQ2(QLearning):
    def range(self, h):
        return abs(math.exp(self.w.beta * (self.w.H - h)) - 1)


class UCBAdvantage:
    """Algorithms 1 (β > 0) and 2 (β < 0) of Hu and Leung, with every observation kept in a list."""

    def __init__(self, world, *, K, delta, scale, variant="literal", reference=(200, 2000), p=None, c4=1.0):
        self.w, self.scale, self.variant = world, scale, variant
        H, b, SA = world.H, world.beta, world.S * world.A
        T = K * H
        self.iota = math.log(2 / (p or delta / (2 * (math.exp(2 * abs(b) * H) * T**3 + 3) + T)))
        k = H - np.arange(H)
        top = np.full(H, H) if variant == "literal" and b > 0 else k
        self.Q = top[:, None, None] * np.ones((H, world.S, world.A))
        self.V = np.vstack([self.Q.max(axis=2), np.zeros(world.S)])
        self.ref = self.V.copy()
        self.n = np.zeros(self.Q.shape, dtype=int)
        self.lists = {}
        self.ends = {1}
        end, i = 1, 1
        while end < 10 * K:
            i += 1
            end += math.floor((1 + 1 / H) ** i)
            self.ends.add(end)
        if b > 0:
            alphas = min(math.exp(-b * H), math.exp(-H)), math.sqrt(H * SA)
        else:
            alphas = min(math.exp(-H), math.exp(b * H) / (4 * (H + 1))), math.exp(b * H) * math.sqrt(H * SA)
        self.times = [math.ceil(c4 * math.exp(4 * b * H) * H**3 * SA * self.iota / g**2) for g in alphas]
        if variant == "range":
            self.times = list(reference)

    def learn(self, path):
        b, iota = self.w.beta, self.iota
        for h, s, a, following in path:
            kept = self.lists.setdefault((h, s, a), {"ref": [], "now": [], "adv": []})
            z, zref = math.exp(b * self.V[h + 1, following]), math.exp(b * self.ref[h + 1, following])
            kept["ref"].append(zref)
            kept["now"].append(z)
            kept["adv"].append(z - zref)
            self.n[h, s, a] += 1
            if self.n[h, s, a] in self.ends:
                self.stage_end(h, s, a, kept, iota)
            if self.n[h, s].sum() in self.times:
                self.ref[h, s] = self.V[h, s]

    def stage_end(self, h, s, a, kept, iota):
        w, b = self.w, self.w.beta
        n, m = len(kept["ref"]), len(kept["now"])
        reach = math.exp(b * w.H) if b > 0 else 1.0
        if self.variant == "range":
            reach = abs(math.exp(b * (w.H - h - 1)) - 1)
        bonus = 2 * math.sqrt(np.var(kept["ref"]) * iota / n) + 2 * math.sqrt(np.var(kept["adv"]) * iota / m)
        bonus += 5 * reach * (iota / n + iota / m + (iota / n) ** 0.75 + (iota / m) ** 0.75)
        bonus *= self.scale
        plain = self.scale * 2 * reach * math.sqrt(iota / m)
        now, ref, adv = np.mean(kept["now"]), np.mean(kept["ref"]), np.mean(kept["adv"])
        if b > 0:
            z = min(now + plain, ref + adv + bonus)
        else:
            other = self.scale * 2 * reach * math.sqrt(iota / n)
            z = max(math.exp(b * (w.H - h)), now - plain, ref - other, ref + adv - bonus)
        self.Q[h, s, a] = min(w.r[h, s, a] + math.log(z) / b, self.Q[h, s, a])
        self.V[h, s] = self.Q[h, s].max()
        kept["now"], kept["adv"] = [], []

    def table(self):
        return self.Q


class BPIUCBVI(ModelBased):
    def plan(self):
        w = self.w
        log = math.log(3 * w.S * w.A * w.H / self.delta)
        self.Q = np.full((w.H, w.S, w.A), float(w.H))
        up, low = np.zeros(w.S), np.zeros(w.S)
        for h in reversed(range(w.H)):
            n, phat = np.maximum(self.n[h], 1), self.phat(h)
            spread = np.log(8 * math.e * (n + 1))
            mean = phat @ up
            variance = (phat * (up - mean[:, :, None]) ** 2).sum(axis=2)
            bonus = 3 * np.sqrt(variance * (log + spread) / n) + 14 * w.H**2 * (log + w.S * spread) / n
            extra = self.scale * bonus + phat @ (up - low) / w.H
            q_up = np.where(self.n[h] > 0, np.minimum(w.H, w.r[h] + mean + extra), w.H)
            q_low = np.where(self.n[h] > 0, np.maximum(0, w.r[h] + phat @ low - extra), 0)
            self.Q[h] = q_up
            up, low = q_up.max(axis=1), q_low.max(axis=1)

    def table(self):
        return self.Q


class EntropicBPI(ModelBased):
    """The printed or the machine-checked bonus, on upper and lower exponentials."""

    def __init__(self, world, *, constants="verified", **common):
        self.printed = constants == "printed"
        super().__init__(world, **common)

    def plan(self):
        w, b = self.w, self.w.beta
        log = math.log(3 * w.S * w.A * w.H / self.delta)
        self.U = np.empty((w.H, w.S, w.A))
        up, low = np.ones(w.S), np.ones(w.S)
        for h in reversed(range(w.H)):
            k = w.H - h
            n, phat = np.maximum(self.n[h], 1), self.phat(h)
            spread = np.log(8 * math.e * (n + 1))
            reach = math.exp(b * (k - 1)) if b > 0 else 1 - math.exp(b * (k - 1))
            optimistic = up if b > 0 else low
            variance = (phat * (optimistic - (phat @ optimistic)[:, :, None]) ** 2).sum(axis=2)
            bonus = 2 * math.sqrt(2) * np.sqrt(variance * (log + spread) / n)
            alpha, alpha_star = log + w.S * spread, log + spread
            bonus += 5 * reach * alpha / n + 4 * w.H * reach * (alpha_star if self.printed else alpha) / n
            extra = self.scale * bonus + phat @ (up - low) / w.H
            growth = np.exp(b * w.r[h])
            ceiling, floor = max(math.exp(b * k), 1), min(math.exp(b * k), 1)
            u_up = np.where(self.n[h] > 0, np.minimum(ceiling, growth * (phat @ up + extra)), ceiling)
            u_low = np.where(self.n[h] > 0, np.maximum(floor, growth * (phat @ low - extra)), floor)
            self.U[h] = u_up if b > 0 else -u_low
            up, low = (u_up.max(axis=1), u_low.max(axis=1)) if b > 0 else (u_up.min(axis=1), u_low.min(axis=1))

    def table(self):
        return self.U


class Generative:
    def __init__(self, world, *, K, delta, scale):
        self.w = world
        self.counts = np.zeros(world.p.shape)
        self.U = np.ones((world.H, world.S, world.A))

    def before(self, episode):
        w, b = self.w, self.w.beta
        if episode == 0 or episode % (w.S * w.A):
            return
        for index in np.ndindex(w.H, w.S, w.A):
            self.counts[index][w.step(*index)] += 1
        z = np.ones(w.S)
        for h in reversed(range(w.H)):
            u = np.exp(b * w.r[h]) * (self.counts[h] @ z) / self.counts[0, 0, 0].sum()
            z = u.max(axis=1) if b > 0 else u.min(axis=1)
            self.U[h] = u if b > 0 else -u

    def table(self):
        return self.U


AGENTS = {
    "rsvi": RSVI,
    "rsvi2": RSVI2,
    "rsq": RSQ,
    "rsq2": RSQ2,
    "ucb_advantage": UCBAdvantage,
    "rodi_otp": RodiOTP,
    "rodi_pto": RodiPTO,
    "rovi": ROVI,
    "bpi_ucbvi": BPIUCBVI,
    "entropic_bpi": EntropicBPI,
    "generative": Generative,
    "tight_rsvi2": TightRSVI2,
    "neutral": NeutralValueIteration,
}
