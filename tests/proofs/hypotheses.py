"""The hypotheses of the machine-checked theorems, one function for each definition, evaluated on numbers of a verifier.

Each function returns a list of the parts that do not hold, so an empty list means that the hypothesis holds. ``N`` has the
tables by step, as floats: Zo, Zp, Zt, rho (by state), Uo (by state and action), and for the pair certificate dd, d, Rt (by
pair of states) and v (by state and action; 1 where none is listed).
"""

import math
from collections import defaultdict
from functools import cached_property
from itertools import product
from types import SimpleNamespace

import numpy as np
from coq_model import Model, dual_bound, le

from entropic_bpi.verification import _claim, _kl, _pairs


def numbers_of(content, beta, test):
    """The tables of the verifier at one β, as floats; its own numbers are what its arithmetic says."""
    with np.errstate(all="ignore"):
        return _numbers(content, beta, test)


def _numbers(content, beta, test):
    plan = _kl.KLRecursion(_claim.Claim(content), beta, test)
    claim, sheets = plan.claim, list(plan.sheets(lambda: None))[::-1]
    N = SimpleNamespace(Uo=[])
    for name, part in (("Zo", "optimum"), ("Zp", "policy"), ("Zt", "top"), ("rho", "ratio")):
        setattr(N, name, [[float(value) for value in getattr(sheet, part)[0, :-1]] for sheet in sheets])
    for h, sheet in enumerate(sheets[:-1]):
        allowed = claim.permitted(h, claim.reachable[h])
        rows = zip(claim.reachable[h].tolist(), sheet.optimistic[0], allowed, strict=True)
        N.Uo.append({s: _numbers_or_nan(values, mask) for s, values, mask in rows})
    if test == "pairs":
        _add_pairs(N, _pairs.PairCertificate(plan, sheets))
    return N


def _numbers_or_nan(values, mask):
    """As floats; an action that the verifier left out has no number that passes."""
    return defaultdict(lambda: math.nan, {a: float(value) for a, value in enumerate(values) if mask[a]})


def _add_pairs(N, pairs):
    steps, states = pairs.claim.steps, range(pairs.claim.n_states)
    N.occ2 = [*(set(some.tolist()) for some in pairs.occupied), set(states)]
    everything = {(x, y): 1.0 for x in states for y in states}
    N.dd, N.d, N.Rt, N.v = ([None] * steps + [last] for last in (everything, everything, everything, {}))
    for h in reversed(range(steps)):
        pairs.go_back(h)
        occupied, number = pairs.occupied[h].tolist(), pairs.later.number
        apart = dict(zip(product(occupied, occupied), map(float, pairs.apart), strict=True))
        N.dd[h] = apart
        N.d[h], N.Rt[h] = (
            {(x, y): float(table[number[x], number[y]]) for x, y in apart} for table in (pairs.later.d, pairs.later.r)
        )
        gains = zip(occupied, pairs.gains, strict=True)
        N.v[h] = {(s, a): float(v) for s, values in gains for a, v in enumerate(values) if v > 1.0}


class Checks:
    """The definitions of Gap.v and Pairs.v for one model and its numbers."""

    def __init__(self, model: Model, numbers):
        self.m, self.N, self.b = model, numbers, model.b

    # -- Gap.v

    def lo(self, h):
        return self.N.Zp[h] if self.b else self.N.Zo[h]

    def hi(self, h):
        return self.N.Zt[h]

    def cap(self, h):
        return self.N.Zo[h] if self.b else self.N.Zp[h]

    def start_ok(self):
        last = self.m.steps
        tables = (self.N.Zo, self.N.Zp, self.N.Zt, self.N.rho)
        return [] if all(value == 1.0 for table in tables for value in table[last]) else ["start_ok"]

    def inside(self, h, s, a):
        return all(slot.to in self.m.occ[h + 1] for slot in self.m.slots(h, s, a).slots)

    def values_ok(self, h, s, tops=True):
        """``values_ok``, or ``cut_values_ok`` of Returns.v where a range of returns is declared; ``tops`` is about Zt."""
        (cut_lo, cut_hi), m, N, pi = self.m.cuts(h), self.m, self.N, self.m.pi(h, s)
        Zo, Zp, Zt, Uo = N.Zo[h][s], N.Zp[h][s], N.Zt[h][s], N.Uo[h][s]

        def upper(a, table, u):
            return m.slots(h, s, a).upper(lambda slot: min(slot.ep * table[h + 1][slot.to], cut_hi), u)

        def lower(a, table, u):
            return m.slots(h, s, a).lower(lambda slot: max(slot.em * table[h + 1][slot.to], cut_lo), u)

        parts = {f"inside {a}": self.inside(h, s, a) for a in m.actions(h, s)}
        parts["positive"] = min(Zo, Zp, Zt) > 0.0
        for a in m.actions(h, s):
            if self.b:
                parts[f"Uo {a}"] = upper(a, N.Zo, Uo[a]) and le(Uo[a], Zo)
            else:
                parts[f"Uo {a}"] = lower(a, N.Zo, Uo[a]) and le(Zo, Uo[a])
        if self.b:
            parts["Zp"] = lower(pi, N.Zp, Zp)
            parts["Zt"] = upper(pi, N.Zt, Zt) or le(Zo, Zt)
        else:
            parts["Zp"] = upper(pi, N.Zp, Zp)
            parts["Zt"] = any(upper(a, N.Zt, Zt) for a in m.actions(h, s)) or le(Zp, Zt)
        if not tops:
            del parts["Zt"]
        return [f"values_ok, step {h}, state {s}: {part}" for part, holds in parts.items() if not holds]

    def same_ok(self, rho, wlo, whi, h, s, lam):
        """``same_ok`` with ``same_g`` of Ratio.v; l is lam."""
        unit = max(whi(slot) for slot in self.m.slots(h, s, self.m.pi(h, s)).slots)

        def same_g(slot):
            r = rho[slot.to]
            return (r - lam) * (whi(slot) if r > lam else wlo(slot)) / unit

        # In units of the largest weight, so that the room of a comparison with 0 is known.
        return self.m.slots(h, s, self.m.pi(h, s)).upper(lambda slot: 1.0 + same_g(slot), 1.0)

    def dev1_ok(self, h, s, a, lam):
        Uo, Zp = self.N.Uo[h][s][a], self.N.Zp[h][s]
        return le(Uo, lam * Zp) if self.b else le(Zp, lam * Uo)

    def aN(self, h, s, a):
        return a if self.b else self.m.pi(h, s)

    def aD(self, h, s, a):
        return self.m.pi(h, s) if self.b else a

    def dev2_ok(self, rho, h, s, a, lam):
        """All corners of the (at most three) shared successors seen most; ``kink`` of Ratio.v."""
        over, under = self.m.slots(h, s, self.aN(h, s, a)), self.m.slots(h, s, self.aD(h, s, a))
        lo, hi, C = self.lo(h + 1), self.hi(h + 1), self.cap(h + 1)

        def share(slots, y):
            return sum(slot.count for slot in slots.slots if slot.to == y) / max(1, sum(slots.counts))

        both = {y: min(share(over, y), share(under, y)) for y in {slot.to for slot in over.slots}}
        sh = sorted((y for y in both if both[y]), key=lambda y: (-both[y], y))[:3]
        kink = {y: max(lo[y], min(hi[y], C[y] / rho[y])) for y in sh}
        for corner in product((False, True), repeat=len(sh)):
            z = {y: kink[y] if raised else lo[y] for y, raised in zip(sh, corner, strict=True)}
            unit = max(C[y] for y in self.m.occ[h + 1])
            f = [slot.ep * min(C[slot.to], rho[slot.to] * z.get(slot.to, hi[slot.to])) / unit for slot in over.slots]
            g = [slot.em * z.get(slot.to, lo[slot.to]) / unit for slot in under.slots]
            if not self.ratio_ok(over, f, under, g, lam):
                return False
        return True

    @staticmethod
    def ratio_ok(over, f, under, g, lam):
        """Some num ≤ lam den with ``upper`` over f num and ``lower`` under g den."""
        num, den = extreme(over, f), -extreme(under, [-value for value in g])
        return le(num, lam * den)

    def rho_ok(self, h, s):
        m, rho, lam = self.m, self.N.rho[h + 1], self.N.rho[h][s]
        lo, hi, pi = self.lo(h + 1), self.hi(h + 1), m.pi(h, s)
        holds = lam > 0.0 and (
            le(self.cap(h)[s], lam * self.lo(h)[s])
            or (
                self.same_ok(rho, lambda slot: slot.em * lo[slot.to], lambda slot: slot.ep * hi[slot.to], h, s, lam)
                and all(
                    self.dev1_ok(h, s, a, lam) or self.dev2_ok(rho, h, s, a, lam) for a in m.actions(h, s) if a != pi
                )
            )
        )
        return [] if holds else [f"rho_ok, step {h}, state {s}"]

    def gap_ok(self, ratios=True):
        failed = self.start_ok()
        for h in range(self.m.steps):
            for s in sorted(self.m.occ[h]):
                failed += self.values_ok(h, s, tops=ratios) + (self.rho_ok(h, s) if ratios else [])
        return failed

    # -- Pairs.v

    def into(self, h, s, a):
        return all(slot.to in self.N.occ2[h + 1] for slot in self.m.slots(h, s, a).slots)

    def pair_ok(self, D, T, h, x, ax, y, ay, lam):
        """``pair_ok``. Slots are named after their state if it was seen or is listed, else "elsewhere"."""
        if not (self.into(h, x, ax) and self.into(h, y, ay) and lam > 0.0):
            return False
        over, under = self.m.slots(h, x, ax), self.m.slots(h, y, ay)
        base, other = (under, over) if self.b else (over, under)
        to_base, to_other = names_of(base), names_of(other)
        D1 = by_name(D, to_base, to_base)
        T1 = by_name(T, to_other, to_base) if self.b else by_name(T, to_base, to_other)
        row_base, row_other = Row(base), Row(other)
        ref = reference(row_other, row_base)
        rel_lo = {j: 1.0 if j == ref else 1.0 / D1[ref, j] for j in to_base}
        rel_hi = {j: 1.0 if j == ref else D1[j, ref] for j in to_base}
        loose = [j for j in to_base if rel_hi[j] > rel_lo[j] * (1 + 1e-9)]
        tried = sorted(loose, key=lambda j: (-row_base.tally[j], j))[:3]
        every = to_base | {name: states | to_base.get(name, set()) for name, states in to_other.items()}
        table = by_name(D, every, every)
        for kap in moves(
            row_other, row_base, row_other.law(self.b, ref, table), row_base.law(not self.b, ref, table), ref
        ):
            assert all(set(to) <= set(to_base) for to in kap.values())  # 0 off the successors
            if all(
                self._corner_ok(kap, T1, tried, c, rel_lo, rel_hi, over, under, lam)
                for c in product((0, 1), repeat=len(tried))
            ):
                return True
        return False

    def _corner_ok(self, kap, T1, tried, corner, rel_lo, rel_hi, over, under, lam):
        raised = dict(zip(tried, corner, strict=True))
        uN = {j: rel_hi[j] if raised.get(j, 1) else rel_lo[j] for j in rel_lo}
        uD = {j: rel_hi[j] if raised.get(j, 0) else rel_lo[j] for j in rel_lo}
        if self.b:
            moved = {g: mean_of(to, {j: T1[g, j] * uN[j] for j in to}) for g, to in kap.items()}
            f, g = (
                [slot.ep * moved[slot.name] for slot in over.slots],
                [slot.em * uD[slot.name] for slot in under.slots],
            )
        else:
            moved = {g: mean_of(to, {j: uD[j] / T1[j, g] for j in to}) for g, to in kap.items()}
            f, g = (
                [slot.ep * uN[slot.name] for slot in over.slots],
                [slot.em * moved[slot.name] for slot in under.slots],
            )
        return self.ratio_ok(over, f, under, g, lam)

    def v(self, h, s, a):
        return self.N.v[h].get((s, a), 1.0)

    def v_ok(self, h, s, a):
        N, lam, pi = self.N, self.v(h, s, a), self.m.pi(h, s)
        r = {y: N.Rt[h + 1][y, y] for y in N.occ2[h + 1]}
        holds = le(self.cap(h)[s], lam * self.lo(h)[s]) or self.dev1_ok(h, s, a, lam)
        if not holds and a == pi and self.into(h, s, pi):
            lo, hi = self.lo(h + 1), self.hi(h + 1)
            holds = self.same_ok(r, lambda slot: slot.em * lo[slot.to], lambda slot: slot.ep * hi[slot.to], h, s, lam)
            holds = holds or self._same_relative(r, h, s, lam)
        elif not holds and self.into(h, s, a) and self.into(h, s, pi):
            holds = self.dev2_ok(r, h, s, a, lam)
        if not holds:
            holds = self.pair_ok(N.d[h + 1], N.Rt[h + 1], h, s, self.aN(h, s, a), s, self.aD(h, s, a), lam)
        return [] if holds and lam > 0.0 else [f"v_ok, step {h}, state {s}, action {a}"]

    def _same_relative(self, r, h, s, lam):
        """The alternative of ``v_ok`` with ``rel_same_lo`` and ``rel_same_hi``; ref is the most frequent successor."""
        d, ref = self.N.d[h + 1], Row(self.m.slots(h, s, self.m.pi(h, s))).frequent
        if ref not in self.N.occ2[h + 1]:
            return False

        def rel_same_lo(slot):
            rel_lo = 1.0 if slot.to == ref else 1.0 / d[ref, slot.to]
            return slot.em * rel_lo / (1.0 if self.b else r[slot.to])

        def rel_same_hi(slot):
            rel_hi = 1.0 if slot.to == ref else d[slot.to, ref]
            return slot.ep * rel_hi / (1.0 if self.b else r[slot.to])

        return self.same_ok(r, rel_same_lo, rel_same_hi, h, s, lam)

    def dd_ok(self, h, x, y):
        N, lam = self.N, self.N.dd[h][x, y]
        most, least = (N.Zt[h][x], N.Zp[h][y]) if self.b else (N.Zp[h][x], N.Zo[h][y])
        holds = (x == y and lam >= 1.0) or le(most, lam * least)
        holds = holds or self.pair_ok(N.d[h + 1], N.d[h + 1], h, x, self.m.pi(h, x), y, self.m.pi(h, y), lam)
        return [] if holds and lam > 0.0 else [f"dd_ok, step {h}, states {x}, {y}"]

    def R_ok(self, h, x, y):
        N, lam, z = self.N, self.N.Rt[h][x, y], x if self.b else y

        def action_ok(a):
            Uo = N.Uo[h][z][a]
            absolute = le(Uo, lam * N.Zp[h][y]) if self.b else le(N.Zp[h][x], lam * Uo)
            if absolute or le(self.v(h, z, a) * N.dd[h][x, y], lam):
                return True
            return self.pair_ok(N.d[h + 1], N.Rt[h + 1], h, x, self.aN(h, x, a), y, self.aD(h, y, a), lam)

        holds = (
            le(self.cap(h)[x], lam * self.lo(h)[y])
            or (x == y and le(N.rho[h][x], lam))
            or (x != y and le(N.Rt[h][z, z] * N.dd[h][x, y], lam))
            or all(action_ok(a) for a in self.m.actions(h, z))
        )
        return [] if holds and lam > 0.0 else [f"R_ok, step {h}, states {x}, {y}"]

    def d_ok(self, h, x, y):
        holds = le(self.N.dd[h][x, y], self.N.d[h][x, y]) or le(self.N.Rt[h][x, y], self.N.d[h][x, y])
        return [] if holds else [f"d_ok, step {h}, states {x}, {y}"]

    def pairs_ok(self):
        failed = self.gap_ok()
        for h in range(self.m.steps):
            occupied = sorted(self.N.occ2[h])
            if not self.N.occ2[h] <= self.m.occ[h]:
                failed.append(f"pairs_ok, step {h}: occ2 is not part of occ")
            for s in occupied:
                failed += [part for a in self.m.actions(h, s) for part in self.v_ok(h, s, a)]
            for x, y in product(occupied, occupied):
                failed += self.dd_ok(h, x, y) + self.R_ok(h, x, y) + self.d_ok(h, x, y)
        return failed


def extreme(slots, f):
    return dual_bound(slots.counts, slots.x, f)


def names_of(slots):
    """The states behind each name of a row."""
    names = {}
    for slot in slots.slots:
        names.setdefault(slot.name, set()).add(slot.to)
    return names


def by_name(table, rows, columns):
    """The largest entries over the states behind two names."""
    return {(i, j): max(table[x, y] for x in xs for y in ys) for i, xs in rows.items() for j, ys in columns.items()}


class Row:
    """A row by the names of its slots. Outcomes that were not seen and are alike count once."""

    def __init__(self, slots):
        self.slots, self.visits = {}, sum(slots.counts)
        for slot in slots.slots:
            self.slots.setdefault((slot.name, slot.em, slot.ep) if slot.count == 0 else slot, slot)

    @cached_property
    def tally(self):
        """How often it went where, in the order of the states."""
        tally = dict.fromkeys(sorted(slot.name for slot in self.slots.values()), 0)
        for slot in self.slots.values():
            tally[slot.name] += slot.count
        return tally

    @cached_property
    def frequent(self):
        return max(self.tally, key=lambda y: self.tally[y])

    def law(self, above, ref, d):
        """Shares of the successors, tilted by e^{βr} and by what follows; empty if floats cannot tell."""
        mass = dict.fromkeys(self.tally, 0.0)
        for slot in self.slots.values():
            tilt = 1.0 if slot.name == ref else math.sqrt(d[slot.name, ref] / d[ref, slot.name])
            mass[slot.name] += (slot.ep if above else slot.em) * tilt * (slot.count if self.visits else 1)
        total = sum(mass.values())
        return {y: part / total for y, part in mass.items()} if 0.0 < total < math.inf else {}


# A hypothesis says that a reference and moves exist. These are tried, in the way in which the verifier chooses its own.


def reference(other, base):
    """The successor of both whose smaller share of visits is largest, else the base's most frequent one."""
    both = {y: min(n * other.visits, other.tally.get(y, 0) * base.visits) for y, n in base.tally.items()}
    return max(both, key=lambda y: both[y]) if any(both.values()) else base.frequent


def moves(other, base, theirs, mine, ref):
    """Ways to move the other row's successors onto the base's, given the laws of both."""
    stay = {i: {i if i in base.tally else ref: 1.0} for i in other.tally}
    left = {j: max(0.0, share - theirs.get(j, 0.0)) for j, share in mine.items()}
    spare = sum(left.values())
    if not theirs or not spare > 1e-12:
        return [stay]
    spread = {}
    for i, share in theirs.items():
        kept = 1.0 if share == 0.0 else min(1.0, mine.get(i, 0.0) / share)
        spread[i] = {j: (1.0 - kept) * part / spare for j, part in left.items() if kept < 1.0 and part}
        if kept:
            target = i if i in base.tally else ref
            spread[i][target] = spread[i].get(target, 0.0) + kept
    return [stay, spread]


def mean_of(shares, values):
    """Under shares that are divided by their sum, so that they add up to 1."""
    return sum(share * values[j] for j, share in shares.items()) / sum(shares.values())


def checked(content, beta, test, numbers=None):
    """``checked`` in Main.v for the numbers of the verifier at one β, apart from the comparison with the claim."""
    checks = Checks(Model(content, beta), numbers or numbers_of(content, beta, test))
    return checks.pairs_ok() if test == "pairs" else checks.gap_ok(ratios=test is not None)
