"""The pair certificate in plain NumPy, written from its theory; ``slip`` names a misreading that gives false certificates.

Backwards over the steps, for pairs of states that can both be occupied: d(x, y) bounds Z^π(x)/Z^π(y), and R(x, y) bounds
Z*(x)/Z^π(y) for β > 0 and Z^π(x)/Z*(y) for β < 0. Index S stands for "elsewhere", some state that was not seen yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from reference.kl import Tables, ball_max

ENUMERATED = 3


@dataclass
class Row:
    """A row of the kernel as a list of slots: where each leads, its share of the visits, and the ends of its e^{βr}."""

    states: np.ndarray
    shares: np.ndarray
    low: np.ndarray
    high: np.ndarray
    radius: float

    @property
    def visited(self) -> bool:
        return self.shares.sum() > 0

    @property
    def prior(self) -> np.ndarray:
        """Empirical, uniform without data."""
        return self.shares if self.visited else np.full(len(self.states), 1 / len(self.states))

    def extreme(self, f, sign) -> float:
        """The largest (``sign`` 1) or smallest mean of ``f`` over the ball."""
        every, q = np.ones(len(self.states), dtype=bool), np.empty(len(self.states))
        return sign * ball_max(self.shares, sign * np.asarray(f, dtype=float), every, self.radius, q)


def row_of(t: Tables, h, s, a, elsewhere=False) -> Row:
    """The row of (h, s, a); ``elsewhere``: what was not seen there is one slot, which may pay what any of it may."""
    states = np.flatnonzero(t.allowed[h, s, a])
    p, low, high = (table[h, s, a] for table in (t.shares, t.low, t.high))
    if elsewhere and len(states) > 1 and t.actions[h] > 1:  # the states that may come first are listed
        seen = states[p[states] > 0]
        ends = np.append(low[seen], low[states].min()), np.append(high[seen], high[states].max())
        return Row(np.append(seen, t.n_states), np.append(p[seen], 0.0), *ends, t.radius[h, s, a])
    return Row(states, p[states], low[states], high[states], t.radius[h, s, a])


def _ratio(sign, optimistic, pessimistic):
    return optimistic / pessimistic if sign > 0 else pessimistic / optimistic


def occupied(t: Tables, z_pess, u_opt, policy, elsewhere=False, slip=None) -> np.ndarray:
    """Where the candidate, or a deviation that is not ruled out at once, can be at each step: (T, S)."""
    found = np.zeros((t.steps, t.n_states), dtype=bool)
    found[0] = t.reachable[0]
    for h in range(t.steps - 1):
        for s in np.flatnonzero(found[h]):
            for a in range(t.actions[h]):
                own = a == policy[h, s]
                if own or (_ratio(t.sign, u_opt[h, s, a], z_pess[h, s]) > 1 and slip != "unoccupied states are alike"):
                    states = row_of(t, h, s, a, elsewhere).states
                    found[h + 1] |= t.reachable[h + 1] if t.n_states in states else np.isin(range(t.n_states), states)
    return found


# -- one step: bounds that know only the next step's tables --------------------------------------------------------


def same(row: Row, rho, low, high) -> float:
    """sup Σ q w ρ / Σ q w over q in the ball and w in e·[low, high]; ``rho``, ``low`` and ``high`` by slot."""
    left, right = 1.0, max(1.0, rho.max())
    for _ in range(60 if right > 1 else 0):
        lam = 0.5 * (left + right)
        excess = rho - lam
        g = np.where(excess > 0, excess * row.high * high, excess * row.low * low)
        left, right = (left, lam) if row.extreme(g, 1) <= 0 else (lam, right)
    return right


def deviation(top: Row, bottom: Row, rho, low, high, cap) -> float:
    """dev2 of the gap certificate, tables by state."""
    shares = [{y: r.shares[r.states == y].sum() for y in r.states if y < len(rho) - 1} for r in (top, bottom)]
    common = {y: min(shares[0][y], shares[1][y]) for y in shares[0] if y in shares[1]}
    shared = sorted((y for y in common if common[y] > 0), key=lambda y: (-common[y], y))[:3]
    kappa = np.maximum(low, np.minimum(high, cap / rho))
    worst = 0.0
    for corner in product((False, True), repeat=len(shared)):
        above, below = np.minimum(cap, rho * high), low.copy()
        for y, raised in zip(shared, corner, strict=True):
            below[y] = kappa[y] if raised else low[y]
            above[y] = min(cap[y], rho[y] * below[y])
        most = top.extreme(top.high * above[top.states], 1)
        worst = max(worst, most / bottom.extreme(bottom.low * below[bottom.states], -1))
    return worst


def reference_successor(other: Row, base: Row) -> int:
    """The shared successor with the largest smaller frequency, otherwise the base's most frequent; the lowest of ties."""

    def share(row, y):
        return row.shares[row.states == y].sum()

    smaller = {y: min(share(other, y), share(base, y)) for y in sorted(set(base.states))}
    if max(smaller.values()) > 0:
        return max(smaller, key=smaller.get)
    return max(smaller, key=lambda y: share(base, y))


def transports(other: Row, base: Row, c_other, c_base, ref, d) -> list[dict]:
    """The two ways κ(i, ·) to move the mass of ``other`` onto the successors of ``base``."""
    targets = sorted(set(base.states))
    stay = {i: {i if i in targets else ref: 1.0} for i in set(other.states)}

    def tilted(row, c):
        mass = {}
        for y, p, weight in zip(row.states, row.prior, c, strict=True):
            tilt = 1.0 if y == ref else np.sqrt(d[y, ref] / d[ref, y])
            mass[y] = mass.get(y, 0.0) + p * weight * tilt
        total = sum(mass.values())
        return {y: m / total for y, m in mass.items()}

    alpha, beta = tilted(other, c_other), tilted(base, c_base)
    left = {j: max(0.0, beta[j] - alpha.get(j, 0.0)) for j in targets}
    coupled = {}
    for i, mass in alpha.items():
        if mass == 0 or sum(left.values()) < 1e-300:
            coupled[i] = stay[i]
            continue
        kept = min(mass, beta.get(i, 0.0)) / mass
        coupled[i] = {j: (1 - kept) * left[j] / sum(left.values()) for j in targets}
        if i in coupled[i]:
            coupled[i][i] += kept
    return [stay, coupled]


def pair_bound(sign, top: Row, bottom: Row, value, d, slip=None, enumerated=ENUMERATED) -> float:
    """(Σ p_N c_N ·) / (Σ p_D c_D ·) at most; ``value`` is R or d of the next step, ``d`` its d."""
    base, other = (bottom, top) if (sign > 0 or slip == "base below for both signs") else (top, bottom)
    c_top, c_bottom = top.high, bottom.low
    if slip == "one end of the reward":
        c_bottom = bottom.high
    if slip == "rewards cancel":
        c_top, c_bottom = top.high / top.high.max(), bottom.low / bottom.high.max()
    c_base, c_other = (c_top, c_bottom) if base is top else (c_bottom, c_top)
    ref = reference_successor(other, base)
    targets = sorted(set(base.states))
    low, high = {j: 1 / d[ref, j] for j in targets}, {j: d[j, ref] for j in targets}
    if slip == "box of the inverse":
        low, high = {j: 1 / d[j, ref] for j in targets}, {j: d[ref, j] for j in targets}
    if slip == "lo and hi swapped":
        low, high = high, low
    low[ref] = high[ref] = 1.0
    seen = {j: base.shares[base.states == j].sum() for j in targets}
    moving = [j for j in targets if j != ref and high[j] != low[j]]
    moving = sorted(moving, key=lambda j: (-seen[j], j))[:enumerated]
    corners = list(product((0, 1), repeat=len(moving)))
    if slip == "two corners":
        corners = [corners[0], corners[-1]]
    bounds = []
    for kappa in transports(other, base, c_other, c_base, ref, d):
        if slip == "kappa rows too small":
            kappa = {i: {j: 0.9 * part for j, part in row.items()} for i, row in kappa.items()}
        worst = 0.0
        for corner in corners:
            above, below = dict(high), dict(low)  # seen from the numerator and from the denominator
            for j, raised in zip(moving, corner, strict=True):
                above[j] = below[j] = high[j] if raised else low[j]
            u, seen_from_other = (above, below) if base is top else (below, above)
            if slip == "another reference below" and base is bottom:
                u = {j: 1.0 if j == targets[-1] else 1 / d[targets[-1], j] for j in targets}
            values = []
            for i in other.states:
                row = kappa[i]
                if other is top:
                    values.append(sum(part * value[i, j] * seen_from_other[j] for j, part in row.items()))
                elif slip == "table transposed":
                    values.append(sum(part * seen_from_other[j] / value[i, j] for j, part in row.items()))
                else:
                    values.append(sum(part * seen_from_other[j] / value[j, i] for j, part in row.items()))
            of_other, of_base = c_other * np.array(values), c_base * np.array([u[j] for j in base.states])
            above_values, below_values = (of_base, of_other) if base is top else (of_other, of_base)
            worst = max(worst, top.extreme(above_values, 1) / bottom.extreme(below_values, -1))
        bounds.append(worst)
    return min(bounds)


# -- the recursion -------------------------------------------------------------------------------------------------


@dataclass
class Pairs:
    """``rho`` (T + 1, S), ``d`` and ``r`` (T + 1, S + 1, S + 1), NaN where nobody can be, and where that is.

    ``gain`` (T, S, A): how many times better than the candidate each action may be, 1 for not at all; for the candidate's
    own action, because of what follows.
    """

    rho: np.ndarray
    d: np.ndarray
    r: np.ndarray
    occupied: np.ndarray
    gain: np.ndarray


def pair_certificate(
    t: Tables, z_opt, u_opt, policy, z_pess, box_top, elsewhere=False, slip=None, enumerated=ENUMERATED
) -> Pairs:
    """The certificate of ``policy`` (T, S), from the bounds of the gap certificate: Zo, Uo, Zp and the box's top."""
    sg, S, T = t.sign, t.n_states, t.steps
    where = occupied(t, z_pess, u_opt, policy, elsewhere, slip)
    d, r = np.full((2, T + 1, S + 1, S + 1), np.nan)
    rho = np.full((T + 1, S), np.nan)
    d[T] = r[T] = 1.0
    rho[T] = 1.0
    gain_of = np.ones(u_opt.shape)

    def beyond(values, h, largest):
        """The values of step h by state, and for elsewhere the extreme of what can be reached."""
        reach = np.ones(S, dtype=bool) if h == T else t.reachable[h]
        return np.append(values[h], values[h][reach].max() if largest else values[h][reach].min())

    for h in reversed(range(T)):
        states = np.flatnonzero(where[h])
        now_d, now_r = d[h + 1], r[h + 1]
        rho_next = np.append(rho[h + 1], np.nanmax(rho[h + 1]))  # the state not seen is one and the same here
        if slip == "unoccupied states are alike":
            now_d, now_r, rho_next = (np.nan_to_num(table, nan=1.0) for table in (now_d, now_r, rho_next))
        ends = (z_pess, z_opt) if sg > 0 else (z_opt, z_pess)
        low, cap = beyond(ends[0], h + 1, False), beyond(ends[1], h + 1, True)
        high = beyond(box_top, h + 1, True)
        contested, own = {}, {}
        for s in states:
            c = policy[h, s]
            mine = row_of(t, h, s, c, elsewhere)
            plain = _ratio(sg, z_opt[h, s], z_pess[h, s])
            own[s], contested[s] = 1.0, {}
            d[h, s, s], r[h, s, s], rho[h, s] = 1.0, 1.0, 1.0
            if plain <= 1:
                continue
            y = mine.states
            by_slot = rho_next[y]
            own[s] = same(mine, by_slot, low[y], high[y])
            if mine.visited:
                share = {j: mine.shares[y == j].sum() for j in sorted(set(y))}
                ref = max(share, key=share.get)
                from_ref, to_ref = now_d[ref, y].copy(), now_d[y, ref].copy()
                from_ref[y == ref] = to_ref[y == ref] = 1.0
                divide = by_slot if sg < 0 or slip == "weights divided by rho" else np.ones(len(y))
                own[s] = min(own[s], same(mine, by_slot, 1 / from_ref / divide, to_ref / divide))
            for a in range(t.actions[h]):
                first = _ratio(sg, u_opt[h, s, a], z_pess[h, s])
                if a == c or first <= 1:
                    continue
                theirs = row_of(t, h, s, a, elsewhere)
                top, bottom = (theirs, mine) if sg > 0 else (mine, theirs)
                second = deviation(top, bottom, rho_next, low, high, cap)
                table = now_d if slip == "d instead of R" else now_r
                bound = min(first, second, pair_bound(sg, top, bottom, table, now_d, slip, enumerated))
                if bound > 1:
                    contested[s][a] = bound
            rho[h, s] = r[h, s, s] = max(1.0, min(plain, max(own[s], *contested[s].values(), 1.0)))
            for a, gain in {c: own[s], **contested[s]}.items():
                gain_of[h, s, a] = max(gain, 1.0)
        for x, y in product(states, states):
            if x == y:
                continue
            rows = row_of(t, h, x, policy[h, x], elsewhere), row_of(t, h, y, policy[h, y], elsewhere)
            top_of_x = box_top[h, x] / z_pess[h, y] if sg > 0 else z_pess[h, x] / z_opt[h, y]
            d[h, x, y] = min(top_of_x, pair_bound(sg, *rows, now_d, now_d, slip, enumerated))
            z = x if (sg > 0) != (slip == "the other state is optimal") else y
            worst = d[h, x, y]
            actions = {} if slip == "contested actions dropped" else contested[z]
            for a, gain in {policy[h, z]: own[z], **actions}.items():
                if gain <= 1:
                    continue
                theirs = row_of(t, h, z, a, elsewhere)
                pair = (theirs, rows[1]) if sg > 0 else (rows[0], theirs)
                first = u_opt[h, z, a] / z_pess[h, y] if sg > 0 else z_pess[h, x] / u_opt[h, z, a]
                table = now_d if slip == "d instead of R" else now_r
                bound = pair_bound(sg, *pair, table, now_d, slip, enumerated)
                worst = max(worst, min(first, gain * d[h, x, y], bound))
            plain = z_opt[h, x] / z_pess[h, y] if sg > 0 else z_pess[h, x] / z_opt[h, y]
            r[h, x, y] = min(d[h, x, y] * rho[h, z], plain, worst)
            d[h, x, y] = min(d[h, x, y], r[h, x, y])
        for table in (d[h], r[h]):
            inside = table[np.ix_(states, states)]
            table[states, S], table[S, states] = inside.max(axis=1), inside.max(axis=0)
            table[S, S] = 1.0 if slip == "one elsewhere" else inside.max()
        if slip == "elsewhere left out":
            d[h, S], r[h, S], d[h, :, S], r[h, :, S] = 1.0, 1.0, 1.0, 1.0
    return Pairs(rho, d, r, where, gain_of)
