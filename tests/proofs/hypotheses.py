"""The hypotheses of the machine-checked theorems, one function for each definition, evaluated on numbers of a verifier.

Each function returns a list of the parts that do not hold, so an empty list means that the hypothesis holds. ``N`` has the
tables by step, as floats: Zo, Zp, Zt, rho (by state), Uo (by state and action), and for the pair certificate dd, d, Rt (by
pair of states) and v (by state and action; 1 where none is listed).
"""

import math
from collections import defaultdict
from itertools import product
from types import SimpleNamespace

from coq_model import Model, dual_bound, le
from flint import arb, ctx

from entropic_bpi.verification.rigorous import _ball, _data, _pairs, _plan
from entropic_bpi.verification.rigorous._data import Row
from entropic_bpi.verification.rigorous._pairs import _reference
from entropic_bpi.verification.rigorous._plan import Weighted

# A hypothesis says that a reference and moves exist. Those of the verifier are tried, as they are when this is imported.
_MOVES = _pairs.PairPlan._moves


def numbers_of(content, beta, test):
    """The tables of the verifier in ball arithmetic at one β, as floats."""
    with ctx.workprec(_ball.PRECISION):
        return _numbers(_plan.Plan(_data.Data(content), arb(beta), test))


def _numbers_or_nan(values):
    """As floats; an action that the verifier left out has no number that passes."""
    return defaultdict(lambda: math.nan, {a: float(value) for a, value in values.items()})


def _numbers(plan):
    steps = list(plan.steps())[::-1]
    states = plan.data.n_states
    N = SimpleNamespace(Zo=[], Zp=[], Zt=[], rho=[], Uo=[])
    for sheet in steps:
        for table, values in zip(
            (N.Zo, N.Zp, N.Zt, N.rho), (sheet.optimum, sheet.policy, sheet.top, sheet.ratio), strict=True
        ):
            table.append([float(value) for value in values[:states]])
        N.Uo.append({s: _numbers_or_nan(of) for s, of in sheet.backups.items()})
    if plan.test == "pairs":
        pairs = _pairs.PairPlan(plan, steps)
        relations = list(pairs.relations())[::-1]
        N.occ2 = [*map(set, pairs.occupied), set(range(states))]

        def floats(table):
            return {key: float(value) for key, value in table.items() if max(key) < states}

        N.dd, N.d, N.Rt = ([floats(getattr(r, name)) for r in relations] for name in ("apart", "d", "r"))
        everything = {(x, y): 1.0 for x in range(states) for y in range(states)}
        N.dd[-1], N.d[-1], N.Rt[-1] = everything, everything, everything
        N.v = [{(s, a): float(v) for s, gains in r.gains.items() for a, v in gains.items()} for r in relations]
    return N


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
        row_base, row_other = as_row(base), as_row(other)
        ref = _reference(row_other, row_base)
        rel_lo = {j: 1.0 if j == ref else 1.0 / D1[ref, j] for j in to_base}
        rel_hi = {j: 1.0 if j == ref else D1[j, ref] for j in to_base}
        loose = [j for j in to_base if rel_hi[j] > rel_lo[j] * (1 + 1e-9)]
        tried = sorted(loose, key=lambda j: (-row_base.tally[j], j))[:3]
        every = to_base | {name: states | to_base.get(name, set()) for name, states in to_other.items()}
        table = {key: arb(value) for key, value in by_name(D, every, every).items()}
        for kap in _MOVES(SimpleNamespace(positive=self.b), row_other, row_base, ref, table):
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
        d, ref = self.N.d[h + 1], as_row(self.m.slots(h, s, self.m.pi(h, s))).frequent
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


def as_row(slots):
    """The row by names, as the verifier's choices of references and moves take it."""
    merged = {}
    for slot in slots.slots:
        key = (slot.name, slot.em, slot.ep) if slot.count == 0 else slot
        merged.setdefault(key, slot)
    kept = list(merged.values())
    row = Row([], [slot.name for slot in kept], [slot.count for slot in kept], None)
    return Weighted(row, [arb(slot.em) for slot in kept], [arb(slot.ep) for slot in kept])


def mean_of(shares, values):
    """Under shares that are divided by their sum, so that they add up to 1."""
    return sum(share * values[j] for j, share in shares.items()) / sum(shares.values())


def checked(content, beta, test, numbers=None):
    """``checked`` in Main.v for the numbers of the verifier at one β, apart from the comparison with the claim."""
    checks = Checks(Model(content, beta), numbers or numbers_of(content, beta, test))
    return checks.pairs_ok() if test == "pairs" else checks.gap_ok(ratios=test is not None)
