"""The event behind declared noise: the true laws lie in all balls, at all times; and wrong ways to count."""

import math

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

STOCK, DELTA = 4, 0.3
LAW = np.array([0.15, 0.3, 0.3, 0.15, 0.1])


def lost_sales(state, action, demand):
    return max(min(state + action, STOCK) - demand, 0)


SHOP = eb.FiniteMDP.from_noise(range(STOCK + 1), range(3), range(len(LAW)), LAW, lost_sales, horizon=3, start=0)


def cells_of(balls):
    """The labels of each cell, in the order of the cells."""
    found = []
    for ball in range(len(balls.law)):
        slots = balls.slot_of_label[np.flatnonzero(balls.of_pair == ball)[0]]
        kinds = list(dict.fromkeys(slots.tolist()))
        found += [(ball, frozenset(np.flatnonzero(slots == kind).tolist())) for kind in kinds if len(kinds) > 1]
    return found


def count_by_outcome(balls):
    """Trap 1: a demand below the stock is seen exactly, so it is counted in finer balls too."""
    cells = cells_of(balls)
    more = [
        (i, j)
        for i, (fine, labels) in enumerate(cells)
        for j, (ball, others) in enumerate(cells)
        if labels == others and not balls.refines[fine, ball]
    ]
    balls.giver, balls.taker = np.append(np.stack([balls.giver, balls.taker]), np.array(more).T, axis=1)


def count_everywhere(balls):
    """Trap 2: what was not told apart is counted as the first label that it may have been."""
    cells = cells_of(balls)
    more = [
        (i, j)
        for i, (fine, labels) in enumerate(cells)
        for j, (ball, others) in enumerate(cells)
        if min(labels) in others and not balls.refines[fine, ball]
    ]
    balls.giver, balls.taker = np.append(np.stack([balls.giver, balls.taker]), np.array(more).T, axis=1)


def fails(rng, change=None, visits=4, rounds=25, observed=False):
    """Whether the law leaves a ball in a run that visits the pair whose ball is nearest to that."""
    problem = Problem.from_mdp(SHOP, noise="model", beta=1.0, eps=1.0, delta=DELTA)
    balls, counts = problem.balls, Counts(problem)
    if change is not None:
        change(balls)
    pairs = [int(np.flatnonzero(balls.of_pair == ball)[0]) for ball in np.unique(balls.of_pair[balls.rows])]
    nearest, labels = pairs[0], np.zeros(len(LAW), dtype=np.int64)
    for _ in range(rounds):
        pair = int(rng.choice(balls.rows)) if rng.random() < 0.5 else nearest
        demands = rng.multinomial(visits, LAW)
        went = {}
        for w, times in enumerate(demands):
            y = lost_sales(pair // 3, pair % 3, w)
            went[y] = went.get(y, 0) + int(times)
        went = {y: times for y, times in went.items() if times}
        counts.add(Transitions(np.full(len(went), pair), np.array([*went]), np.array([*went.values()])), 1)
        labels += demands
        arrays, closest = balls.arrays(counts.arrays, labels if observed else labels[:0]), -math.inf
        for other in pairs:
            n, begin, used = arrays.visits[other], arrays.begin[other], arrays.used[other]
            if n == 0:
                continue
            tally = arrays.tally[begin : begin + used]
            truth = np.bincount(balls.slot_of_label[other], LAW, used)
            seen = tally > 0
            divergence = (tally[seen] * np.log(tally[seen] / n / truth[seen])).sum()
            excess = divergence - math.log(problem.rows_at_risk / DELTA) - mixture_radius(tally, used)
            if excess > closest:
                closest, nearest = excess, other
        if closest > 0:
            return True
    return False


def failures(runs, change=None, visits=4, observed=False):
    return sum(fails(np.random.default_rng((7, run)), change, visits, observed=observed) for run in range(runs))


@pytest.mark.parametrize("observed", [False, True])
def test_the_event_fails_no_more_often_than_declared(observed):
    runs = 150
    assert stats.binomtest(failures(runs, observed=observed), runs, DELTA, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
def test_the_event_fails_no_more_often_than_declared_in_a_thousand_runs():
    assert stats.binomtest(failures(1000), 1000, DELTA, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("change", [count_by_outcome, count_everywhere])
def test_other_ways_to_count_break_the_event(change):
    runs = 40
    assert stats.binomtest(failures(runs, change, 60), runs, DELTA, alternative="greater").pvalue < 1e-3


# -- how many balls there are ----------------------------------------------------------------------------------------

SUBSETS = range(1, 41)  # of the labels 0 to 5: no two are complements of each other, as none has the label 6


def told_apart(state, subset, label):
    """The only step tells whether a label is in the subset, and pays for it."""
    return subset >> label & 1, float(subset >> label & 1)


ONE_STEP = eb.FiniteMDP.from_noise(range(2), SUBSETS, range(7), np.full(7, 1 / 7), told_apart, horizon=1, start=0)


def balls_at_risk(monkeypatch, trap):
    """P of that problem, and of mutants of it."""
    with monkeypatch.context() as patch:
        if trap == "last step":
            patch.setattr(Problem, "next_state_rewards", False)
        problem = Problem.from_mdp(ONE_STEP, noise="model", beta=1.0, eps=1.0, delta=DELTA)
        return len(problem.noise.labels) if trap == "laws" else max(problem.rows_at_risk, 1)


def leaves_a_ball(rng, union, visits=60):
    """Whether the law leaves one of the balls while all actions are played again and again."""
    tallies = np.zeros((len(SUBSETS), 2), dtype=np.int64)
    truth = np.array([[7 - size, size] for size in map(int.bit_count, SUBSETS)]) / 7
    for n in range(1, visits + 1):
        inside = rng.random(len(SUBSETS)) < truth[:, 1]
        tallies[np.arange(len(SUBSETS)), inside.astype(int)] += 1
        shares = tallies / n
        divergence = n * np.where(tallies > 0, shares * np.log(np.where(tallies > 0, shares, 1) / truth), 0).sum(axis=1)
        if any(d > union + mixture_radius(tally, 2) for d, tally in zip(divergence, tallies, strict=True)):
            return True
    return False


@pytest.mark.parametrize("trap", [None, "laws", "last step"])
def test_the_event_needs_a_part_of_delta_for_every_ball_also_of_the_last_step(trap, monkeypatch):
    """Trap 3: P counts balls, not laws. Trap 11: the last step is free only if its classes pay the same."""
    balls, runs = balls_at_risk(monkeypatch, trap), 60
    assert balls == (len(SUBSETS) if trap is None else 1)
    union = math.log(balls / DELTA)
    failed = sum(leaves_a_ball(np.random.default_rng((11, run)), union) for run in range(runs))
    pvalue = stats.binomtest(failed, runs, DELTA, alternative="greater").pvalue
    assert pvalue > 1e-3 if trap is None else pvalue < 1e-3
