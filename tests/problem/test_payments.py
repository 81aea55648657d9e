"""Tables of what was paid: they depend on what was seen and not on the order, lose nothing, and can be taken up again."""

from collections import Counter

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.reward_counts import CELLS, MOST_VALUES, cell_edges
from entropic_bpi.types import Transitions

LOW, HIGH = -1.0, 2.0


def a_problem(law="random", reward_range=(LOW, HIGH), observations=4):
    names = (*map(str, range(observations)), "end")
    return Problem.black_box(
        observations, 2, horizon=3, reward_range=reward_range, beta=1.0, eps=0.1, delta=0.1, stationary=True,
        state_labels=names, source="", reward_law=law,
    )  # fmt: skip


def some_payments(rng, size):
    """Rows with a few values, with nearly as many as are kept, and with many more."""
    rows, successors = rng.integers(0, 6, size), rng.integers(0, 4, size)
    rewards = np.where(rows < 2, rng.integers(-1, 3, size), rng.uniform(LOW, HIGH, size))
    rewards = np.where((rows >= 2) & (rows < 4), np.round(rewards * 21) / 21, rewards)  # 64 values
    return Transitions(rows, successors, rng.integers(1, 4, size), rewards)


def expected_table(reward_counts):
    """Row, successor, low, high and times of every entry, by plain dictionaries."""
    edges, seen = LOW + (HIGH - LOW) * np.arange(CELLS + 1) / CELLS, Counter()
    for row, successor, times, reward in zip(*(part.tolist() for part in reward_counts[:4]), strict=True):
        seen[row, successor, reward] += times
    values = Counter((row, successor) for row, successor, _ in seen)
    table = Counter()
    for (row, successor, reward), times in seen.items():
        if values[row, successor] > MOST_VALUES:
            cell = min(int((reward - LOW) / (HIGH - LOW) * CELLS), CELLS - 1)
            table[row, successor, edges[cell], edges[cell + 1]] += times
        else:
            table[row, successor, reward, reward] += times
    return sorted((*key, times) for key, times in table.items())


def table_of(transitions):
    rows, successors, times, low, high = (part.tolist() for part in transitions[:5])
    return list(zip(rows, successors, low, high, times, strict=True))


def added_in_parts(reward_counts, order, parts):
    counts = Counts(a_problem())
    for part in np.array_split(order, parts):
        counts.add(Transitions(*(column[part] for column in reward_counts[:4])), 1)
    return counts


@pytest.mark.parametrize("size", [1, 50, 3000])
def test_the_table_is_what_was_seen_whatever_the_order(size):
    rng = np.random.default_rng(size)
    reward_counts = some_payments(rng, size)
    expected = expected_table(reward_counts)
    for parts in (1, 7):
        counts = added_in_parts(reward_counts, rng.permutation(size), parts)
        assert table_of(counts.transitions()) == expected
        assert counts.arrays.visits.sum() == reward_counts.times.sum()
    if size == 3000:
        coarse = {(row, y) for row, y, low, high, _ in expected if low < high}
        exact = {(row, y) for row, y, low, high, _ in expected if low == high}
        assert coarse
        assert exact
        assert not coarse & exact


def test_counts_of_what_counts_have_seen_are_the_same_counts():
    rng = np.random.default_rng(3)
    counts = added_in_parts(some_payments(rng, 2000), rng.permutation(2000), 5)
    again = Counts.of(counts.problem, counts.seen(), counts.episodes)
    for name in ("seen", "transitions"):
        for mine, theirs in zip(getattr(counts, name)(), getattr(again, name)(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    _, mine = counts.occupied_slots()
    _, theirs = again.occupied_slots()
    np.testing.assert_array_equal(counts.arrays.successor[mine], again.arrays.successor[theirs])
    np.testing.assert_array_equal(counts.arrays.tally[mine], again.arrays.tally[theirs])


def test_restored_counts_go_on_as_if_nothing_had_happened():
    rng = np.random.default_rng(4)
    first, second = some_payments(rng, 400), some_payments(rng, 400)
    counts = added_in_parts(first, np.arange(400), 1)
    before = counts.state()
    counts.add(second, 1)
    wanted = counts.transitions()
    counts.restore(before)
    assert table_of(counts.transitions()) == expected_table(first)
    counts.add(second, 1)
    for mine, theirs in zip(counts.transitions(), wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("reward_range", [(LOW, HIGH), (0.0, 0.1), (-3.7, 1e5), (1e6, 1e6 + 1), (-1e-150, 1e-150)])
def test_every_reward_lies_in_its_cell(reward_range):
    edges = cell_edges(*reward_range)
    assert (np.diff(edges) > 0).all()
    assert (edges[0], edges[-1]) == reward_range
    rng = np.random.default_rng(1)
    rewards = np.concatenate([rng.uniform(*reward_range, 3000).clip(*reward_range), edges, np.nextafter(edges[1:], 0)])
    counts = Counts(a_problem(reward_range=reward_range))
    for reward in rewards.clip(*reward_range):
        one = np.array([1])
        counts.add(Transitions(one, one, one, np.array([reward])), 1)
        if counts.episodes > MOST_VALUES:
            break
    counts.add(Transitions(*(np.ones(len(rewards), dtype=np.int64) for _ in range(3)), rewards.clip(*reward_range)), 1)
    seen = counts.transitions()
    assert seen.times.sum() == len(rewards) + counts.episodes - 1
    cumulative = np.searchsorted(np.sort(rewards.clip(*reward_range)), seen.upper[:-1], side="right").astype(float)
    assert (np.isin(seen.rewards, edges) & np.isin(seen.upper, edges)).all()
    assert (seen.upper > seen.rewards).all()
    assert len(cumulative) == len(seen.rewards) - 1


def test_a_range_that_doubles_cannot_divide_is_refused():
    with pytest.raises(eb.InvalidProblemError, match="too close together"):
        a_problem(reward_range=(1e9, 1e9 + 1e-3))
    assert a_problem("fixed", reward_range=(1e9, 1e9 + 1e-3)).reward_law == "fixed"
    assert a_problem(reward_range=(5.0, 5.0)).reward_laws_at_risk == 0
