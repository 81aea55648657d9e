"""A certificate as the proofs see it: rows with slots, the ends of e^{βr}, counts, and radii. Read from the JSON by itself.

Steps are counted forwards here and backwards in the proofs: step h has n = H - 1 - h steps to go. Plain floats; sums and
logarithms lose a few digits, so ``le`` allows a relative 1e-9.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property

ROOM = 1e-9


def le(a, b):
    return a <= b + ROOM * (abs(a) + abs(b))


@dataclass(frozen=True)
class Slot:
    """``nxt``, the counts and ``em``, ``ep`` of one slot. Outcomes that were never seen have one slot for every state."""

    to: int
    count: int
    em: float
    ep: float
    name: int  # its state, or n_states for "elsewhere"


class Slots:
    """All slots of one action in one state at one step, and n times the radius of their ball (``radius`` in Main.v)."""

    def __init__(self, slots, x):
        self.slots, self.x = slots, x
        self.counts = [slot.count for slot in slots]

    def upper(self, f, u):
        """``upper`` in Gap.v, ``up_at`` in Main.v, ``bound_ok`` in Dual.v: some dual bound of the means of f is ≤ u."""
        return le(dual_bound(self.counts, self.x, [f(slot) for slot in self.slots]), u)

    def lower(self, f, u):
        """``lower`` in Gap.v, ``lo_at`` in Main.v."""
        return self.upper(lambda slot: -f(slot), -u)


def dual_bound(counts, x, f):
    """The smallest ``dual`` or ``dual0`` of Dual.v over w, by golden section, or the largest f."""
    top, n = max(f), sum(counts)
    seen = [i for i, count in enumerate(counts) if count]
    if not n or x is None:
        return top
    depth = top - min(f[i] for i in seen)
    if depth <= 0.0:
        return top
    terms = [(counts[i] / n, (top - f[i]) / depth) for i in seen]

    def dual(log_w):
        w = math.exp(log_w)
        return top - depth * w * math.expm1(sum(p * math.log1p(d / w) for p, d in terms) - x)

    left, right = -60.0, 40.0
    for _ in range(90):
        a, b = left + 0.382 * (right - left), left + 0.618 * (right - left)
        left, right = (left, b) if dual(a) < dual(b) else (a, right)
    best = dual((left + right) / 2)
    if all(d > 0.0 for _, d in terms):  # dual0
        best = min(best, top - depth * math.exp(sum(p * math.log(d) for p, d in terms) - x))
    return min(top, best)


class Model:
    """The problem of a certificate at one β ≠ 0, rewards counted from the smallest one."""

    def __init__(self, content, beta):
        self.content, self.problem, self.beta, self.b = content, content["problem"], beta, beta > 0
        problem = self.problem
        self.n_states, self.horizon, self.stationary = (problem[k] for k in ("n_states", "horizon", "stationary"))
        self.artificial = int(not isinstance(problem["start"], int))
        self.steps, self.s1 = self.horizon + self.artificial, 0 if self.artificial else problem["start"]
        self.random = problem["reward_law"] != "fixed"
        self.black_box = problem["rewards"] is None and self.n_states in problem["slots"]["successor"]
        self.seen = {}
        counts = content["counts"]
        for i, row in enumerate(counts["rows"]):
            paid = (counts["rewards"][i], counts["upper"][i]) if self.black_box else None
            self.seen.setdefault(row, []).append((counts["successors"][i], paid, counts["times"][i]))
        self.slots = cache(self._slots)

    def pi(self, h, s):
        """The candidate."""
        return 0 if h < self.artificial else self.content["policy"][h - self.artificial][s]

    def actions(self, h, s):
        """The actions of the theorem; a forbidden one is another name of an allowed one there, and is left out."""
        if h < self.artificial:
            return [0]
        masks, every = self.problem["allowed"], range(self.problem["n_actions"])
        if masks is None:
            return [*every]
        table = masks["table"]
        return [a for a in every if table[(h - self.artificial) % len(table)][s][a]]

    def _fixed(self, steps):
        """The rows of some steps that are known before any data: masks that come with observations are not."""
        masks, rows = self.problem["allowed"], set()
        for h in range(steps):
            for s in self.occ[h]:
                offered = masks is not None and masks["offered"] and h >= self.artificial
                rows |= {
                    self.row(h, s, a) for a in (range(self.problem["n_actions"]) if offered else self.actions(h, s))
                }
        return rows

    def row(self, h, s, a):
        if h < self.artificial:
            return len(self.problem["slots"]["begin"]) - 1
        step = 0 if self.stationary else h - self.artificial
        return (step * self.n_states + s) * self.problem["n_actions"] + a

    def declared(self, row):
        """Numbers of the declared slots of a row."""
        begin = self.problem["slots"]["begin"][row]
        return list(range(begin, begin + self.problem["slots"]["used"][row]))

    def K(self, row):
        return self.problem["slots"]["possible"][row]

    def most(self, row):
        few = self.problem["max_successors"]
        if self.artificial and row == len(self.problem["slots"]["begin"]) - 1:
            return 1 if self.problem["start"] == "fixed" else self.K(row)
        return self.K(row) if few is None else min(few, self.K(row))

    @cached_property
    def occ(self):
        """``occ``: states that can be occupied before each step, and after the last one."""
        steps, to = [{self.s1}], self.problem["slots"]["successor"]
        for h in range(self.steps):
            found = {to[j] for s in steps[-1] for a in self.actions(h, s) for j in self.declared(self.row(h, s, a))}
            listed = h < self.artificial and isinstance(self.problem["start"], list)
            anywhere = (self.problem["successors"] == "unknown" and not listed) or self.n_states in found
            steps.append(set(range(self.n_states)) if anywhere else found)
        return steps

    @cached_property
    def rewards(self):
        slots, known = self.problem["slots"], self.problem["rewards"]
        every = slots["low"] + slots["high"] if known is None else [row for step in known for row in step]
        return min(map(min, every)), max(map(max, every))

    def weight(self, h, reward):
        """``weight`` in Model.v: e^{βr} of a reward at step h, discounted and counted from the smallest."""
        return math.exp(
            self.beta * (self.problem["discount"] or 1.0) ** (h - self.artificial) * (reward - self.rewards[0])
        )

    def ends(self, h, low, high):
        """``ends_ok`` in Main.v: the ends of e^{βr} for a reward between two numbers."""
        return tuple(sorted((self.weight(h, low), self.weight(h, high))))

    def cuts(self, h):
        """``cut_lo`` and ``cut_hi`` of Returns.v, with ``least`` and ``most``; rewards counted from the smallest."""
        declared, (low, high) = self.problem["return_range"], self.rewards
        if declared is None:
            return 0.0, math.inf
        room, paid_steps = 1e-9 * ((high - low) * self.horizon), max(0, h - self.artificial)
        least = declared[0] - room - self.horizon * low - paid_steps * (high - low)
        most = declared[1] + room - self.horizon * low
        return tuple(sorted((math.exp(self.beta * least), math.exp(self.beta * most))))

    @cached_property
    def rows_at_risk(self):
        """``rows``: those with several possible outcomes that matter; with known rewards the last step is free."""
        rows = self._fixed(self.steps - (self.problem["rewards"] is not None))
        return max(1, sum(self.most(row) > 1 for row in rows))

    @cached_property
    def laws(self):
        """``laws`` in Random.v, times the number of declared risk parameters."""
        wide = [r for r in self._fixed(self.steps) if self.range_of(r)[0] < self.range_of(r)[1]]
        each = sum(1 if self.problem["reward_law"] == "random-pair" else self.most(row) for row in wide)
        return max(1, each) * len(self.problem["lams"] or [0])

    def range_of(self, row):
        j = self.declared(row)[0]
        return self.problem["slots"]["low"][0][j], self.problem["slots"]["high"][0][j]

    def R_mix(self, row, counts):
        """``R_mix`` in Main.v: from counts alone."""
        k, m, n, d = self.K(row), self.most(row), sum(counts), len(counts)

        def log_dm(a, cells):
            rising = sum(math.lgamma(N + a) - math.lgamma(a) for N in counts)
            return rising - math.lgamma(n + cells * a) + math.lgamma(cells * a)

        codes = [(0.25, log_dm(a, k)) for a in (1 / k**2, 1 / k, 0.5, 1.0)]
        if m < k:
            share = math.prod((m - i) / (k - i) for i in range(d))
            codes = [(w / 2, code) for w, code in codes] + [(share / 2, log_dm(0.5, m))]
        most = max(code for _, code in codes)
        mixed = most + math.log(sum(w * math.exp(code - most) for w, code in codes))
        return sum(N * math.log(N / n) for N in counts) - mixed

    def radius(self, row, counts):
        """``radius_counts`` in Main.v, divided by n; None where nothing was seen or no ball is needed."""
        if not counts:
            return None
        delta = self.problem["delta"] / (2 if self.random else 1)
        return (math.log(self.rows_at_risk / delta) + self.R_mix(row, counts)) / sum(counts)

    def interval(self, h, row, paid):
        """``interval_ok`` in Random.v: bounds on E e^{βR}, from what was paid."""
        low, high = self.range_of(row)
        n = sum(paid.values())
        if not n or low == high:
            return self.ends(h, low, high)
        c2 = math.log(math.pi) / 2 + math.lgamma(n + 1) - math.lgamma(n + 0.5)
        x = (math.log(4 * self.laws / self.problem["delta"]) + c2) / n
        values = [self.ends(h, *ends) for ends in (*paid, (low, low), (high, high))]
        counts = [*paid.values(), 0, 0]
        least = -dual_bound(counts, x, [-v[0] for v in values])
        return least, dual_bound(counts, x, [v[1] for v in values])

    def _slots(self, h, s, a):
        """All slots of a row that may happen (``may`` in Main.v): seen ones, and the others until ``most`` were seen."""
        row = self.row(h, s, a)
        outcomes = self._seen_outcomes(h, s, a, row)
        counts = [slot.count for slot in outcomes if slot.count]
        if len(counts) < self.most(row):
            outcomes += self._unseen_outcomes(h, s, a, row, outcomes)
        return Slots(outcomes, self.radius(row, counts) if self.most(row) > 1 else None)

    def _known(self, h, s, a, j):
        """The ends of e^{βr} of a declared slot, or of a state and action."""
        step, known, slots = h - self.artificial, self.problem["rewards"], self.problem["slots"]
        if step < 0:
            return 1.0, 1.0
        if known is not None:
            reward = known[step if len(known) > 1 else 0][s][a]
            return self.ends(h, reward, reward)
        return self.ends(h, *(slots[k][step if len(slots[k]) > 1 else 0][j] for k in ("low", "high")))

    def _seen_outcomes(self, h, s, a, row):
        seen, together, by_state, slots = self.seen.get(row, []), {}, {}, []
        is_start = h < self.artificial
        if self.random and not is_start:
            for y, paid, times in seen:
                for table in (together, by_state.setdefault(y, {})):
                    table[paid] = table.get(paid, 0) + times
            for y, table in by_state.items():
                law = together if self.problem["reward_law"] == "random-pair" else table
                slots.append(Slot(y, sum(table.values()), *self.interval(h, row, law), y))
            return slots
        for y, paid, times in seen:
            if self.black_box and not is_start:
                ends = self.ends(h, *paid)
            else:
                to = self.problem["slots"]["successor"]
                place = next((j for j in self.declared(row) if to[j] == y), self.declared(row)[0])
                ends = self._known(h, s, a, place)
            slots.append(Slot(y, times, *ends, y))
        return slots

    def _unseen_outcomes(self, h, s, a, row, seen):
        """Slots with count 0. Where successors are not listed they may lead to any state."""
        to, taken, slots = self.problem["slots"]["successor"], [slot.to for slot in seen], []
        for j in self.declared(row):
            if to[j] in taken:
                taken.remove(to[j])
                continue
            ends = self._known(h, s, a, j)
            if self.random and h >= self.artificial:
                table = {}
                for _, paid, times in self.seen.get(row, []) if self.problem["reward_law"] == "random-pair" else []:
                    table[paid] = table.get(paid, 0) + times
                ends = self.interval(h, row, table)
            states = [to[j]] if to[j] < self.n_states else sorted(self.occ[h + 1])
            slots += [Slot(y, 0, *ends, to[j]) for y in states]
        return slots
