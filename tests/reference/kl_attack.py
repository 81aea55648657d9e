"""Random planning problems for the KL method, and an adversary that drives the kernel to the boundary of every ball.

A certificate must hold for *every* kernel in the balls. The adversary is block coordinate ascent on the ratio of the
optimal to the candidate's value: the ratio is linear-fractional in each row, so each step is exact (Dinkelbach).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numba import njit

import entropic_bpi as eb
from entropic_bpi.methods.kl import pairs
from entropic_bpi.methods.kl.method import KL, planning_beta
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.known_rewards import KnownRewards
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Entropic
from entropic_bpi.types import Transitions
from reference.kl import Tables, ball_max, certainty_interval, mixture_radius, support_radius

BETAS = (0.1, 0.5, 1.0, 2.5, 5.0)
VISITS = (0, 1, 3, 10, 30, 100, 1000, 20000)


@dataclass
class Case:
    """A learner's problem with counts, and the same as dense tables that owe nothing to the library."""

    problem: Problem
    counts: Counts
    tables: Tables
    start: int

    def plan(self, seed: int = 0, round: int = 0) -> KL:
        """Both candidates planned; ε is so small that the first never ends it."""
        method = KL(self.problem, seed=seed)
        method.plan(self.counts, round)
        return method


@dataclass
class Shape:
    """What kind of problem to draw; None means either."""

    next_state_rewards: bool | None = None
    intervals: bool | None = None
    stationary: bool | None = None
    successors: str | None = None
    random_start: bool | None = None
    sign: int | None = None
    states: tuple[int, ...] = (2, 3, 4)
    actions: tuple[int, ...] = (2, 3)
    horizons: tuple[int, ...] = (1, 2, 3)
    visits: tuple[int, ...] = VISITS
    integer_rewards: bool | None = None
    max_successors: tuple[int, ...] = ()
    """At most so many successors are declared, one of these numbers; empty: nothing is."""
    exponents: tuple[float, float] | None = None
    """Between what |β| times the range of the return is drawn; None: β is one of a few ordinary numbers."""
    start: str | None = None
    """Of a random start, what is declared: "list", some states, or "fixed", one that is not known; None: nothing is."""
    masks: bool = False
    """Some actions are forbidden, at all steps or at some."""
    discount: bool = False
    """Rewards are discounted, and the same at every step."""


ANY = Shape()


def draw(rng: np.random.Generator, shape: Shape = ANY, delta: float | None = None) -> Case:
    """A random case."""

    def either(choice: bool | None) -> bool:
        return bool(rng.integers(2)) if choice is None else choice

    S, A, H = (int(rng.choice(sizes)) for sizes in (shape.states, shape.actions, shape.horizons))
    stationary, random_start = either(shape.stationary), either(shape.random_start)
    intervals = shape.intervals if shape.intervals is not None else rng.random() < 0.25
    next_state = intervals or either(shape.next_state_rewards)
    successors = shape.successors or str(rng.choice(["unknown", "model", "mask"]))
    sign = shape.sign or int(rng.choice([-1, 1]))
    beta, delta = sign * float(rng.choice(BETAS)), delta or float(rng.choice([0.05, 0.5, 0.9]))
    size = (S, A, S)
    mask = rng.random((H, *size)) < rng.choice([0.4, 0.7, 1.0])
    mask[..., 0] |= ~mask.any(axis=-1)
    if stationary or successors == "mask":
        mask[:] = mask[0]
    kernel = rng.random(mask.shape) * mask
    kernel /= kernel.sum(axis=-1, keepdims=True)
    per_step = bool(rng.integers(2)) and not S == A == H and not shape.discount
    rewards = rng.random((H if per_step else 1, *(size if next_state else size[:2])))
    rewards = np.round(2 * rewards) if either(shape.integer_rewards) else 2 * rewards - 0.5
    start_share = rng.random(S) * (rng.random(S) < 0.7)
    start_share[-1] += 0.1
    if shape.start == "fixed":
        start_share = np.arange(S) == rng.integers(S)
    start = start_share / start_share.sum() if random_start else int(rng.integers(S))
    first = declared_first(rng, shape.start, np.asarray(start) > 0) if random_start else None
    given = (
        rewards if per_step else rewards[0] if rewards.ndim == 3 or not S == A == H else np.repeat(rewards, H, axis=0)
    )
    mdp = eb.FiniteMDP(kernel[0] if stationary else kernel, given, horizon=H, start=start)
    declared = {"unknown": None, "model": "model", "mask": mask[0]}[successors]
    most = int(rng.choice(shape.max_successors)) if shape.max_successors else None
    goal = {"beta": beta, "eps": 1e-300, "delta": delta}
    masks = _masks(rng, H, S, A) if shape.masks else None
    discount = float(rng.choice([0.2, 0.5, 0.8, 0.95])) if shape.discount else None
    goal |= {"max_successors": most, "start": first, "allowed": masks, "discount": discount}
    problem = Problem.from_mdp(mdp, **goal, stationary=stationary, successors=declared)
    low = high = np.broadcast_to(rewards if next_state else rewards[..., None], (H, *size))
    if intervals:
        width = rng.random((len(rewards), *size)) * (rng.random((len(rewards), *size)) < 0.6)
        low = low - width
        problem = _with_intervals(problem, low)
    if shape.exponents is not None and problem.return_spread > 0:
        beta = sign * rng.uniform(*shape.exponents) / problem.return_spread
        problem = dataclasses.replace(problem, risk=Entropic(beta))
    allowed = np.ones_like(mask) if successors == "unknown" else mask
    start_allowed = None
    if random_start:
        start_allowed = np.asarray(start) > 0 if successors == "model" else np.ones(S, dtype=bool)
        if isinstance(first, list):
            start_allowed = np.isin(np.arange(S), first)
    n_rows = S * A * (1 if stationary else H) + random_start
    row_allowed = list(allowed.reshape(-1, S)[: n_rows - random_start])
    if random_start:
        row_allowed.append(start_allowed)
    one = 1 if first == "fixed" else None
    limits = [most] * (n_rows - random_start) + [one] * random_start
    tally = np.array([_tally(rng, *row, shape.visits) for row in zip(row_allowed, limits, strict=True)])
    if masks is not None:
        played = masks.any(axis=0) if stationary else masks
        tally[: played.size][~played.ravel()] = 0
    counts = Counts(problem)
    rows, columns = np.nonzero(tally)
    order = rng.permutation(len(rows))
    counts.add(Transitions(rows[order], columns[order], tally[rows, columns][order]), int(tally.sum()))
    declared = {"most": most, "most_first": one, "masks": masks, "discount": discount}
    tables = _tables(
        beta, delta, H, stationary, allowed, start_allowed, tally, low, high, next_state, start, **declared
    )
    return Case(problem, counts, tables, 0 if random_start else int(start))


def _masks(rng: np.random.Generator, H: int, S: int, A: int) -> np.ndarray:
    """Random action masks (H, S, A), the same at every step or not; each state keeps an action."""
    masks = rng.random((H, S, A)) < rng.choice([0.3, 0.6, 0.9])
    masks[np.arange(H)[:, None], np.arange(S), rng.integers(A, size=(H, S))] = True
    if rng.integers(2):
        masks[:] = masks[0]
    return masks


def declared_first(rng: np.random.Generator, kind: str | None, support: np.ndarray) -> list[int] | str | None:
    """What is declared about the first state, if anything: a list that has the support, or that it is always the same."""
    if kind != "list":
        return kind
    return np.flatnonzero(support | (rng.random(len(support)) < 0.3)).tolist()


def draw_paid(
    rng: np.random.Generator,
    law: str,
    exponents: tuple[float, float] | None = None,
    start: str | None = None,
    mean: bool = False,
) -> Case:
    """A random case of an environment with random rewards, each known from the values that it was seen to take.

    ``exponents``: between what |β| times the range of the return is drawn; None: β is one of a few ordinary numbers.
    ``start``: what is declared of the first state, "list" or "fixed".
    ``mean``: the problem is about the mean; the tables are those of the tiny β at which it is planned.
    """
    n, A, H = int(rng.integers(1, 4)), 2, int(rng.integers(1, 4))
    S, stationary = n + 1, bool(rng.integers(2))
    beta, delta = float(rng.choice([-1, 1]) * rng.choice(BETAS)), float(rng.choice([0.05, 0.5, 0.9]))
    low, high = sorted(rng.uniform(-1, 1.5, 2).round(2).tolist())
    if exponents is not None:
        beta = math.copysign(rng.uniform(*exponents), beta) / (H * (max(high, 0.0) - min(low, 0.0)))
    problem = Problem.black_box(
        n, A, horizon=H, reward_range=(low, high), beta=0.0 if mean else beta, eps=1e-300, delta=delta,
        stationary=stationary, state_labels=(*map(str, range(n)), "end"), source="", reward_law=law,
        start=(first := declared_first(rng, start, np.arange(n) == n - 1)),
    )  # fmt: skip
    beta = planning_beta(problem) if mean else beta
    allowed = np.ones((H, S, A, S), dtype=bool)
    allowed[:, n] = np.arange(S) == n
    start_allowed = np.isin(np.arange(S), first) if isinstance(first, list) else np.arange(S) < n
    laws = n * A * (1 if stationary else H) * (1 if law == "random-pair" else S)
    if isinstance(first, list) and (H == 1 or not stationary):  # at the first step nobody is elsewhere
        laws -= (n - len(first)) * A * (1 if law == "random-pair" else S)
    log_union = math.log(4 * laws / delta)
    tally = np.zeros((problem.n_rows, S), dtype=np.int64)
    worth = np.zeros((2, problem.n_rows, S))  # the ends of what each reward is worth; 0 after the end
    seen = []
    for row in range(problem.n_rows - 1):
        if row // A % S == n:
            continue
        tally[row] = _tally(rng, np.ones(S, dtype=bool), None, VISITS)
        values = rng.choice([low, high, *rng.uniform(low, high, 3)], size=(S, 3))
        split = np.array([rng.multinomial(count, rng.dirichlet(np.ones(3))) for count in tally[row]])
        for y in range(S):
            mine = (values, split) if law == "random-pair" else (values[y], split[y])
            worth[:, row, y] = certainty_interval(mine[0].ravel(), mine[1].ravel(), low, high, beta, log_union)
        seen += [(row, y, split[y, k], values[y, k]) for y, k in np.argwhere(split)]
    one = 1 if start == "fixed" else None
    tally[-1] = _tally(rng, start_allowed, one, VISITS)
    seen += [(problem.n_rows - 1, y, tally[-1, y], problem.possible_rewards[0]) for y in np.flatnonzero(tally[-1])]
    counts = Counts(problem)
    if seen:
        rows, successors, times, rewards = (np.array(part) for part in zip(*seen, strict=True))
        counts.add(Transitions(rows, successors, times, rewards.astype(float)), int(tally[-1].sum()))
    steps = 1 if stationary else H
    ends = [np.broadcast_to(end[:-1].reshape(steps, S, A, S), (H, S, A, S)) for end in worth]
    shift = problem.possible_rewards[0]
    tables = _tables(beta, delta / 2, H, stationary, allowed, start_allowed, tally, *ends, True, None, None, shift, one)
    return Case(problem, counts, tables, 0)


def draw_known(rng: np.random.Generator, sign: int, exponents: tuple[float, float] | None = None) -> Case:
    """A random case of an environment whose rewards are known, but for that of an end that was not seen yet.

    The possible successors are declared, an end at most once.
    """
    n, A, H = int(rng.integers(1, 4)), 2, int(rng.integers(1, 4))
    S, stationary = n + 1, bool(rng.integers(2))
    paid = rng.choice([0.0, 1.0, *rng.uniform(-1, 1.5, 3).round(2)], size=(n, A, S))
    follows = rng.random((n, A, S)) < rng.choice([0.6, 1.0])
    follows[..., 0] |= ~follows.any(axis=-1)
    least, most = paid.min(axis=2), paid.max(axis=2)  # an end may be observed in any state
    owner, to = np.nonzero(follows.reshape(-1, S))
    ends, exact = to == n, paid.reshape(-1, S)[owner, to]
    low, high = np.where(ends, least.ravel()[owner], exact), np.where(ends, most.ravel()[owner], exact)
    known, rows = KnownRewards(None, low, high), (np.concatenate([[0], np.cumsum(follows.sum(axis=2))]), to)
    span = H * (max(high.max(), 0.0) - min(low.min(), 0.0))
    beta = sign * (float(rng.choice(BETAS)) if exponents is None else rng.uniform(*exponents) / (span or 1.0))
    delta = float(rng.choice([0.05, 0.5, 0.9]))
    problem = Problem.black_box(
        n, A, horizon=H, beta=beta, eps=1e-300, delta=delta, stationary=stationary, source="", successors=rows,
        state_labels=(*map(str, range(n)), "end"), reward=known, reward_range=(low.min(), high.max()),
    )  # fmt: skip
    allowed = np.zeros((H, S, A, S), dtype=bool)
    allowed[:, :n], allowed[:, n, :, n] = follows, True
    tally, worth, seen = np.zeros((problem.n_rows, S), dtype=np.int64), np.zeros((2, problem.n_rows, S)), []
    for row in range(problem.n_rows - 1):
        s, a = divmod(row % (S * A), A)
        if s == n:
            continue
        tally[row], worth[:, row] = _tally(rng, follows[s, a], None, VISITS), paid[s, a]
        end = float(rng.choice(paid[s, a]))
        worth[:, row, n] = (end, end) if tally[row, n] else (least[s, a], most[s, a])
        seen += [(row, y, tally[row, y], end if y == n else paid[s, a, y]) for y in np.flatnonzero(tally[row])]
    start_allowed = np.arange(S) < n
    tally[-1] = _tally(rng, start_allowed, None, VISITS)
    seen += [(problem.n_rows - 1, y, tally[-1, y], problem.possible_rewards[0]) for y in np.flatnonzero(tally[-1])]
    counts = Counts(problem)
    if seen:
        rows, successors, times, rewards = (np.array(part) for part in zip(*seen, strict=True))
        counts.add(Transitions(rows, successors, times, rewards.astype(float)), int(tally[-1].sum()))
    steps, shift = 1 if stationary else H, problem.possible_rewards[0]
    reach = [np.broadcast_to(end[:-1].reshape(steps, S, A, S), (H, S, A, S)) for end in worth]
    tables = _tables(beta, delta, H, stationary, allowed, start_allowed, tally, *reach, True, None, None, shift)
    return Case(problem, counts, tables, 0)


def _tally(rng, allowed, most, visits) -> np.ndarray:
    if most is not None:
        allowed = allowed & np.isin(np.arange(len(allowed)), rng.permutation(np.flatnonzero(allowed))[:most])
    weight = rng.random(len(allowed)) ** 3 * allowed * (rng.random(len(allowed)) < 0.8)
    if weight.sum() == 0:
        weight = allowed.astype(float)
    return rng.multinomial(int(rng.choice(visits)), weight / weight.sum())


def _with_intervals(problem: Problem, low: np.ndarray) -> Problem:
    """The same problem when each reward is only known to lie between ``low`` and what it is."""
    slots, pairs = problem.slots, problem.n_states * problem.n_actions
    new = slots.low.copy()
    for row in range(problem.n_rows - problem.artificial):
        s, a = divmod(row % pairs, problem.n_actions)
        for slot in range(slots.begin[row], slots.begin[row] + slots.used[row]):
            for t in range(len(new)):
                step = t if len(new) > 1 or problem.stationary else row // pairs
                new[t, slot] = low[step, s, a, slots.successor[slot]]
    high = slots.high.copy()
    if problem.artificial:
        begin = slots.begin[-1]
        new[:, begin : begin + slots.used[-1]] = high[:, begin : begin + slots.used[-1]] = new.min()
    return dataclasses.replace(problem, slots=slots._replace(low=new, high=high))


def _tables(
    beta,
    delta,
    H,
    stationary,
    allowed,
    start_allowed,
    tally,
    low,
    high,
    next_state,
    start,
    most,
    shift=None,
    most_first=None,
    masks=None,
    discount=None,
) -> Tables:
    """Write the problem out, step by step, with the number of rows that need a ball counted by hand.

    A forbidden action is worth less than anything, so that no best policy takes it, and its row needs no ball.
    """
    S, A = allowed.shape[1:3]
    first = int(start_allowed is not None)
    T = H + first
    wide = np.zeros((T, S, A, S), dtype=bool)
    counts = np.zeros((T, S, A, S))
    e = np.ones((2, T, S, A, S))
    if shift is None:
        shift = min(low[h, s, a, y] for h, s, a, y in np.ndindex(low.shape) if allowed[h, s, a, y] or not next_state)
    wide[first:] = allowed
    per_step = np.stack([tally[: S * A].reshape(S, A, S)] * H) if stationary else tally[: H * S * A].reshape(H, S, A, S)
    counts[first:] = per_step
    factors = np.array([1.0 if discount is None else discount**h for h in range(H)])[:, None, None, None]
    ends = beta * factors * (np.stack([low, high]) - shift)
    ends = np.exp(np.clip(ends, -700.0, 700.0))  # more only where nobody can go
    e[:, first:] = np.sort(ends, axis=0)
    permitted = np.ones((T, S, A), dtype=bool)
    if masks is not None:
        permitted[first:] = masks
        e[:, ~permitted] = 0.0 if beta > 0 else 1e200
    reachable = np.zeros((T, S), dtype=bool)
    if first:
        wide[0, 0, 0], counts[0, 0, 0] = start_allowed, tally[-1]
        reachable[0, 0] = True
    else:
        reachable[0, start] = True
    for h in range(T - 1):
        rows = wide[h] & permitted[h][..., None]
        rows = rows[reachable[h]] if not (first and h == 0) else wide[0, :1, :1]
        reachable[h + 1] = rows.any(axis=(0, 1))
    possible = np.maximum(wide.sum(axis=-1), 1)
    k = possible.copy() if most is None else np.minimum(possible, most)
    if first:
        k[0] = possible[0] if most_first is None else np.minimum(possible[0], most_first)
    at_risk = set()
    for h, s, a in np.ndindex(T, S, A):
        if not (reachable[h, s] and permitted[h, s, a]) or k[h, s, a] < 2 or (h == T - 1 and not next_state):
            continue
        at_risk.add((s, a) if stationary and not (first and h == 0) else (h, s, a))
    n = counts.sum(axis=-1)
    radius = np.full(n.shape, np.inf)
    log_union = math.log(max(len(at_risk), 1) / delta)
    for some, mixture in ((k == possible, mixture_radius), (k < possible, support_radius)):
        some = some & (n > 0)
        cells = (possible[some], k[some])[: 1 if mixture is mixture_radius else 2]
        radius[some] = (log_union + mixture(counts[some], *cells)) / n[some]
    known = (possible == 1) | ((k == 1) & (n > 0))
    radius[known] = 0.0
    shares = counts / np.maximum(n, 1)[..., None]
    shares[possible == 1] = wide[possible == 1]
    complete = (k < possible) & ((counts > 0).sum(axis=-1) == k)  # nothing else can happen
    wide[complete] = counts[complete] > 0
    actions = [1 if first and h == 0 else A for h in range(T)]
    return Tables(1 if beta > 0 else -1, shares, wide, radius, e[0], e[1], actions, reachable)


def with_return_range(rng: np.random.Generator, case: Case, shrink: float = 0.0) -> tuple[Case, Tables]:
    """The case with the returns of one of its models declared, and the tables of all kernels with that model's outcomes.

    The model has the outcomes that were seen, and some others, with rewards within their intervals; its paths under all
    policies have the declared range of returns, less ``shrink`` times the range at both ends. A kernel on the same outcomes
    has no other paths, so on these tables nothing that is certified may be wrong.
    """
    t, problem, first = case.tables, case.problem, int(case.problem.artificial)
    draws = rng.random(t.allowed.shape) * t.allowed
    if problem.stationary:
        draws[first:] = draws[first]
    outcomes = (draws > rng.choice([0.1, 0.5, 0.8])) | (t.shares > 0)
    outcomes |= (draws > 0) & (draws == draws.max(axis=-1, keepdims=True))
    share = rng.choice([0.0, 1.0, 0.5], t.low.shape)
    rewards = (share * np.log(t.low) + (1 - share) * np.log(t.high)) / problem.beta
    reachable = np.zeros_like(t.reachable)
    reachable[0, case.start] = True
    for h in range(t.steps - 1):
        for s in np.flatnonzero(reachable[h]):
            reachable[h + 1] |= outcomes[h, s, : t.actions[h]].any(axis=0)
    least, most = np.zeros((2, t.steps + 1, t.n_states))
    for h in reversed(range(t.steps)):
        for s in np.flatnonzero(reachable[h]):
            paths = outcomes[h, s, : t.actions[h]]
            least[h, s] = (rewards[h, s, : t.actions[h]] + least[h + 1])[paths].min()
            most[h, s] = (rewards[h, s, : t.actions[h]] + most[h + 1])[paths].max()
    low, high = problem.possible_rewards
    smallest, largest = least[0, case.start], most[0, case.start]
    smallest, largest = smallest + shrink * (largest - smallest), largest - shrink * (largest - smallest)
    origin, room = problem.horizon * low, 1e-9 * problem.return_spread
    declared = dataclasses.replace(problem, return_range=(smallest + origin, largest + origin))
    after = np.maximum(np.arange(t.steps) - first, 0)
    ends = [smallest - room - after * (high - low), np.full(t.steps, largest + room)]
    limits = np.exp(np.sort(problem.beta * np.array(ends), axis=0))
    tables = dataclasses.replace(t, bottom=limits[0], top=limits[1])
    counts = Counts.of(declared, case.counts.transitions(), case.counts.episodes)
    gains = np.exp(problem.beta * rewards)
    truth = dataclasses.replace(t, allowed=outcomes, low=gains, high=gains, reachable=reachable)
    return Case(declared, counts, tables, case.start), truth


# -- the adversary ---------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _evaluate(kernel, gain, actions, reachable, sign, policy):
    """Z* and its policy, and Z of ``policy``, under one kernel."""
    T, S, _, _ = kernel.shape
    best, mine = np.ones((T + 1, S)), np.ones((T + 1, S))
    greedy = np.zeros((T, S), dtype=np.int64)
    for h in range(T - 1, -1, -1):
        for s in range(S):
            if reachable[h, s]:
                for a in range(actions[h]):
                    u = 0.0
                    for y in range(S):
                        u += kernel[h, s, a, y] * gain[h, s, a, y] * best[h + 1, y]
                    if a == 0 or sign * u > sign * best[h, s]:
                        best[h, s], greedy[h, s] = u, a
                c, mine[h, s] = policy[h, s], 0.0
                for y in range(S):
                    mine[h, s] += kernel[h, s, c, y] * gain[h, s, c, y] * mine[h + 1, y]
    return best, mine, greedy


@njit(cache=True, error_model="numpy")
def _sweep(kernel, gain, tables, policy, rival, h0, above, below, up):
    """One pass of exact row steps that raise Z^top(above)/Z^bottom(below) at h0; ``up``: the rival is on top."""
    shares, allowed, radius, e_low, e_high, actions, reachable = tables
    T, S = kernel.shape[:2]
    top, bottom = (rival, policy) if up else (policy, rival)
    mass = np.zeros((2, T + 1, S))
    mass[0, h0, above] = mass[1, h0, below] = 1.0
    for h in range(h0, T):
        for s in range(S):
            for y in range(S):
                a, b = top[h, s], bottom[h, s]
                mass[0, h + 1, y] += mass[0, h, s] * kernel[h, s, a, y] * gain[h, s, a, y]
                mass[1, h + 1, y] += mass[1, h, s] * kernel[h, s, b, y] * gain[h, s, b, y]
    z = np.ones((2, T + 1, S))
    f, q = np.empty(S), np.empty(S)
    for h in range(T - 1, h0 - 1, -1):
        total = np.zeros(2)
        for s in range(S):
            if reachable[h, s]:
                for side in range(2):
                    a = top[h, s] if side == 0 else bottom[h, s]
                    z[side, h, s] = np.sum(kernel[h, s, a] * gain[h, s, a] * z[side, h + 1])
                    total[side] += mass[side, h, s] * z[side, h, s]
        for s in range(S):
            if not reachable[h, s] or (mass[0, h, s] == 0.0 and mass[1, h, s] == 0.0):
                continue
            for a in range(actions[h]):
                upper = mass[0, h, s] if a == top[h, s] else 0.0
                lower = mass[1, h, s] if a == bottom[h, s] else 0.0
                if upper == 0.0 and lower == 0.0:
                    continue
                for _ in range(4):
                    lam = total[0] / total[1]
                    for y in range(S):
                        # in units of total[0], where it cannot overflow
                        value = upper * z[0, h + 1, y] / total[0] - lower * z[1, h + 1, y] / total[1]
                        gain[h, s, a, y] = e_high[h, s, a, y] if value > 0 else e_low[h, s, a, y]
                        f[y] = gain[h, s, a, y] * value
                    ball_max(shares[h, s, a], f, allowed[h, s, a], radius[h, s, a], q)
                    if not np.isfinite(q).all():  # values too far apart for this adversary: it leaves the row alone
                        break
                    kernel[h, s, a] = q
                    if upper > 0.0:
                        new = np.sum(q * gain[h, s, a] * z[0, h + 1])
                        total[0] += upper * (new - z[0, h, s])
                        z[0, h, s] = new
                    if lower > 0.0:
                        new = np.sum(q * gain[h, s, a] * z[1, h + 1])
                        total[1] += lower * (new - z[1, h, s])
                        z[1, h, s] = new
                    if not total[0] / total[1] > lam * (1.0 + 1e-13):
                        break


@njit(cache=True, error_model="numpy")
def _begin(kernel, gain, tables, sign, z_opt, rng, mood):
    """Extreme points of all balls: for random values, for the best that may follow, or for the worst."""
    shares, allowed, radius, e_low, e_high, actions, reachable = tables
    T, S = shares.shape[:2]
    f, q = np.empty(S), np.empty(S)
    for h in range(T):
        for s in range(S):
            for a in range(actions[h]):
                if not reachable[h, s]:
                    continue
                for y in range(S):
                    f[y] = rng.random() if mood == 0 else (1.5 - mood) * 2 * sign * z_opt[h + 1, y]
                    end = rng.random() if mood == 0 else (1.5 - mood) * 2 * sign
                    gain[h, s, a, y] = e_high[h, s, a, y] if end > 0.5 else e_low[h, s, a, y]
                    f[y] *= gain[h, s, a, y]
                ball_max(shares[h, s, a], f, allowed[h, s, a], radius[h, s, a], q)
                kernel[h, s, a] = q if np.isfinite(q).all() else shares[h, s, a]


@njit(cache=True, error_model="numpy")
def _attack(tables, sign, policy, z_opt, z_pess, box_top, rho, rng, starts, sweeps):
    """Smallest slack found, in logs: of the gap, of the optimum, of the candidate's value, and of the box's top."""
    shares, _, _, _, _, actions, reachable = tables
    T, S = shares.shape[:2]
    slack = np.full(4, np.inf)
    kernel, gain = np.zeros(shares.shape), np.ones(shares.shape)
    for start in range(starts):
        _begin(kernel, gain, tables, sign, z_opt, rng, start % 3)
        h0 = 0 if start == 0 else rng.integers(0, T)
        s0 = rng.integers(0, S)
        while not reachable[h0, s0]:
            s0 = rng.integers(0, S)
        for sweep in range(sweeps + 1):
            best, mine, greedy = _evaluate(kernel, gain, actions, reachable, sign, policy)
            for h in range(T):
                for s in range(S):
                    if reachable[h, s]:
                        ratio = sign * (np.log(best[h, s]) - np.log(mine[h, s]))
                        slack[0] = min(slack[0], np.log(rho[h, s]) - ratio)
                        slack[1] = min(slack[1], sign * (np.log(z_opt[h, s]) - np.log(best[h, s])))
                        slack[2] = min(slack[2], sign * (np.log(mine[h, s]) - np.log(z_pess[h, s])))
                        inside = mine[h, s] if sign > 0 else best[h, s]
                        slack[3] = min(slack[3], np.log(box_top[h, s]) - np.log(inside))
            if sweep < sweeps:
                # Sometimes a rival that is not the best yet, so that its rows get a chance to become so.
                if rng.random() < 0.3:
                    for h in range(T):
                        for s in range(S):
                            if rng.random() < 0.5:
                                greedy[h, s] = rng.integers(0, actions[h])
                _sweep(kernel, gain, tables, policy, greedy, h0, s0, s0, sign > 0)
    return slack


def attack(t: Tables, policy, z_opt, z_pess, box_top, rho, seed: int, starts: int = 6, sweeps: int = 4) -> np.ndarray:
    """Smallest slacks (gap, optimum, candidate, box) over all places and all kernels tried; negative is a violation."""
    arrays = (t.shares, t.allowed, t.radius, t.low, t.high, np.array(t.actions), t.reachable)
    rng = np.random.default_rng(seed)
    return _attack(arrays, t.sign, policy, z_opt, z_pess, box_top, rho, rng, starts, sweeps)


def attack_plan(
    case: Case, method: KL, kind: int, seed: int, starts: int = 6, sweeps: int = 4, tables: Tables | None = None
) -> np.ndarray:
    """Attack what the library says about one candidate, by the kernels of ``tables``, if not those of the case."""
    plan, S = method.plans[kind], case.tables.n_states
    arrays = (np.ascontiguousarray(array[:, :S]) for array in (method.optimism.z, plan.z, plan.high, plan.rho))
    return attack(tables or case.tables, plan.policy, *arrays, seed, starts, sweeps)


@njit(cache=True, error_model="numpy")
def _attack_pairs(tables, sign, policy, z_opt, rho, d, r, rng, starts, sweeps):
    """Smallest slack found, in logs: of ρ, of d and of R; where they are NaN nothing is claimed."""
    shares, _, _, _, _, actions, reachable = tables
    T, S = shares.shape[:2]
    slack = np.full(3, np.inf)
    kernel, gain = np.zeros(shares.shape), np.ones(shares.shape)
    for start in range(starts):
        _begin(kernel, gain, tables, sign, z_opt, rng, start % 3)
        h0 = 0 if start < 2 else rng.integers(0, T)
        above, below = rng.integers(0, S), rng.integers(0, S)
        while not (reachable[h0, above] and reachable[h0, below]):
            above, below = rng.integers(0, S), rng.integers(0, S)
        same = start % 4 == 3  # the candidate against itself: what d bounds
        for sweep in range(sweeps + 1):
            best, mine, greedy = _evaluate(kernel, gain, actions, reachable, sign, policy)
            for h in range(T):
                for x in range(S):
                    for y in range(S):
                        if reachable[h, x] and reachable[h, y]:
                            ratio = np.log(mine[h, x]) - np.log(mine[h, y])
                            slack[1] = min(slack[1], np.log(d[h, x, y]) - ratio)
                            ratio = np.log(best[h, x] if sign > 0 else mine[h, x])
                            ratio -= np.log(mine[h, y] if sign > 0 else best[h, y])
                            slack[2] = min(slack[2], np.log(r[h, x, y]) - ratio)
                            if x == y:
                                slack[0] = min(slack[0], np.log(rho[h, x]) - ratio)
            if sweep < sweeps:
                if rng.random() < 0.3:
                    for h in range(T):
                        for s in range(S):
                            if rng.random() < 0.5:
                                greedy[h, s] = rng.integers(0, actions[h])
                _sweep(kernel, gain, tables, policy, policy if same else greedy, h0, above, below, sign > 0)
    return slack


def attack_pairs(t: Tables, policy, z_opt, rho, d, r, seed: int, starts: int = 8, sweeps: int = 4) -> np.ndarray:
    """Smallest slacks (ρ, d, R) over all places and pairs and all kernels tried; negative is a violation."""
    arrays = (t.shares, t.allowed, t.radius, t.low, t.high, np.array(t.actions), t.reachable)
    rng = np.random.default_rng(seed)
    return _attack_pairs(arrays, t.sign, policy, z_opt, rho, d, r, rng, starts, sweeps)


def relations(case: Case, method: KL, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ρ (T, S), d and R (T, S, S) of a candidate, NaN where nobody can be."""
    t, S = case.tables, case.tables.n_states
    rho, d, r = np.full((t.steps, S), np.nan), *np.full((2, t.steps, S, S), np.nan)
    planned = method._inputs(method.rules, case.counts.arrays), method.optimism, method.plans[kind]
    occupied = pairs.occupied_states(*planned)
    switches = np.empty(occupied.shape, dtype=np.int64)
    for h in range(t.steps):
        buffers, states = pairs.buffers_for(planned[0], occupied), np.flatnonzero(occupied[h])
        # With nobody before step h its relations stay in the buffers, which steps use in turn.
        pairs.relate(*planned, occupied * (np.arange(t.steps) >= h)[:, None], buffers, switches)
        now = buffers.next if (t.steps - h) % 2 == 0 else buffers.now
        places = now.position[states]
        rho[h, states] = now.rho[states]
        d[h][np.ix_(states, states)] = now.d[np.ix_(places, places)]
        r[h][np.ix_(states, states)] = now.r[np.ix_(places, places)]
        r[h, states, states] = rho[h, states]  # the same by definition; the first is lost where two steps come before
    return rho, d, r
