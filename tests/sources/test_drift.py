"""The test that laws do not change over the episodes: what it computes, how often it is wrong, and what it finds."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from entropic_bpi.sources import drift
from entropic_bpi.sources.drift import REWARD_CLASSES, DriftTest, cell_of
from entropic_bpi.types import Transitions

REJECTED = math.log(100)


def moves(visits):
    """Visits ``(row, successor, reward)`` as one part."""
    seen = Counter(visits)
    rows, successors, rewards = zip(*seen, strict=True)
    return Transitions(np.array(rows), np.array(successors), np.array(list(seen.values())), np.array(rewards, float))


def filled(parts, possible=3, rows=1, reward_range=None):
    test = DriftTest(np.full(rows, possible), rows, reward_range)
    for part in parts:
        test.add(moves(part))
    return test


# -- what it computes ----------------------------------------------------------------------------------------------


def beginnings(most):
    """Where cells begin, by the words of the docstring."""
    found, octave = [*range(0, 32, 4)], 32
    while octave <= most:
        found += [octave + i * octave // 4 for i in range(4)]
        octave *= 2
    return found


def test_cells_begin_at_a_geometric_grid():
    begin = beginnings(5000)
    assert cell_of(np.array(begin)).tolist() == [*range(len(begin))]
    assert cell_of(np.array(begin[1:]) - 1).tolist() == [*range(len(begin) - 1)]


def kt(events):
    """The mixture's probability of a sequence of two outcomes, as the product of its predictions."""
    chance, seen = 1.0, [0, 0]
    for event in events:
        chance *= (seen[event] + 0.5) / (sum(seen) + 1)
        seen[event] += 1
    return chance


def plain_event(numbers, events):
    """The weighted sum of E of one event: every partition that is kept, each block by itself."""
    n = len(events)
    grid = beginnings(max(n, 64))
    last = max(g for g, begin in enumerate(grid) if begin <= n - 1)
    partitions = []
    for cut in range(max(1, last - 15), last + 1):
        octave = (cut - 1) // 4
        blocks = [int(number >= grid[cut]) for number in numbers]
        partitions.append((blocks, 1 / (8 * (octave + 1) * (octave + 2))))
    i = next(i for i in itertools.count() if 32 * 2**i >= n)
    for j in (i, i + 1):
        partitions.append(([number // (4 * 2**j) for number in numbers], 1 / (2 * (j + 1) * (j + 2))))
    m, total = sum(events), 0.0
    for blocks, weight in partitions:
        of = [[e for e, block in zip(events, blocks, strict=True) if block == b] for b in sorted(set(blocks))]
        total += weight * math.prod(map(kt, of))
    return total / ((m / n) ** m * (1 - m / n) ** (n - m))


@pytest.mark.parametrize(("n", "outcomes"), [(3, 1), (30, 2), (57, 3), (150, 2), (320, 4)])
def test_the_value_is_the_mean_over_events_and_partitions(n, outcomes):
    rng = np.random.default_rng(n)
    sequence, parts, numbers = rng.integers(outcomes, size=n).tolist(), [], []
    while len(numbers) < n:
        size = int(rng.integers(1, 8))
        part = sequence[len(numbers) : len(numbers) + size]
        numbers += [len(numbers)] * len(part)
        parts.append([(0, y, 0.0) for y in part])
    expected = sum(plain_event(numbers, [int(y == seen) for y in sequence]) for seen in set(sequence)) / 5
    assert filled(parts, possible=5, rows=7).log_e() == pytest.approx(math.log((7 + expected) / 8), abs=1e-9)


def test_events_about_random_rewards_have_half_of_the_weight():
    rng = np.random.default_rng(5)
    classes = rng.choice([3, 10, 60], p=[0.5, 0.3, 0.2], size=80).tolist()
    parts = [[(0, 0, (c + 0.5) / REWARD_CLASSES)] for c in classes]
    numbers = [*range(80)]
    expected = plain_event(numbers, [1] * 80) / (2 * 4)
    expected += plain_event(numbers, [int(c <= 3) for c in classes]) * (10 - 3) / REWARD_CLASSES / 2
    expected += plain_event(numbers, [int(c <= 10) for c in classes]) * (60 - 10) / REWARD_CLASSES / 2
    test = filled(parts, possible=4, rows=2, reward_range=(0.0, 1.0))
    assert test.log_e() == pytest.approx(math.log((2 + expected) / 3), abs=1e-9)


def test_the_weights_of_all_partitions_and_of_all_events_add_up_to_at_most_one():
    many = np.arange(100_000)
    assert 4 * (1 / (8 * (many + 1) * (many + 2))).sum() + (1 / (2 * (many + 1) * (many + 2))).sum() <= 1
    test = filled([[(0, 0, x) for x in np.linspace(0, 1, 999)]], reward_range=(0.0, 1.0))
    assert test._reward_events([0])[2].sum() <= 1


def test_a_product_over_rows_adds_up_what_many_rows_show():
    parts = [[(row, int(i >= 40), 0.0) for row in range(6)] for i in range(80)]
    test = filled(parts, rows=6)
    one = test.log_es[0] if test.log_e() else math.nan
    assert test.log_e() == pytest.approx(6 * math.log((6 + math.exp(one)) / 7))
    assert DriftTest(np.full(9, 3), 9).log_e() == 0.0


# -- how often it is wrong, exactly --------------------------------------------------------------------------------

# How many visits the next part has, by the outcomes so far.
RULES = {
    "one": lambda past: 1,
    "four": lambda past: 4,
    "more after a 1": lambda past: 1 + 3 * past[-1] if past else 1,
    "until four in a row": lambda past: 1 if len(set(past[-4:])) > 1 else 4,
}


def e_values(sequences, rule, reward_range=None):
    """E after each part, of all sequences of (next state, reward) at once: each is played in a row of its own."""
    n, length = len(sequences), len(sequences[0])
    test, done, seen = DriftTest(np.full(n, 2), n, reward_range), [0] * n, [[] for _ in range(n)]
    while min(done) < length:
        part = []
        for row, sequence in enumerate(sequences):
            begin, done[row] = done[row], min(length, done[row] + rule([y for y, _ in sequence[: done[row]]]))
            part += [(row, y, reward) for y, reward in sequence[begin : done[row]]]
        test.add(moves(part))
        test.log_e()
        for row in {visit[0] for visit in part}:
            seen[row].append(math.exp(test.log_es[row]))
    return seen


@pytest.mark.parametrize("length", [11, pytest.param(13, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_mean_is_at_most_one_and_a_large_value_is_as_rare_as_ville_says(rule, length):
    sequences = list(itertools.product([(0, 0.0), (1, 0.0)], repeat=length))
    seen = e_values(sequences, rule)
    ends, highest = np.array([some[-1] for some in seen]), np.array([max(some) for some in seen])
    ones = np.array(sequences)[:, :, 0].sum(axis=1)
    for p in (0.0, 0.03, 0.2, 0.5, 0.9, 1.0):
        chances = p**ones * (1 - p) ** (length - ones)
        assert chances @ ends <= 1 + 1e-12
        for level in (0.2, 0.5, 0.9):
            assert chances[highest >= 1 / level].sum() <= level + 1e-12


def test_the_mean_is_at_most_one_with_random_rewards_that_depend_on_the_next_state():
    length, laws = 5, np.array([[0.5, 0.1], [0.1, 0.3]])  # (next state, reward)
    sequences = list(itertools.product(itertools.product(range(2), repeat=2), repeat=length))
    chances = [math.prod(laws[pair] for pair in sequence) for sequence in sequences]
    ends = [some[-1] for some in e_values(sequences, RULES["one"], (0.0, 1.0))]
    assert np.dot(chances, ends) <= 1 + 1e-12


def false_alarms(runs, reward_range=None, n_rows=6, visits=3000):
    """Runs whose rows have one law each, visited by a rule that follows the outcomes, and looked at after every part."""
    alarms, rng = 0, np.random.default_rng(11)
    for _ in range(runs):
        laws = rng.dirichlet(np.full(3, rng.choice([0.3, 1.0, 5.0])), size=n_rows)
        test, row, done = DriftTest(np.full(n_rows, 4), n_rows, reward_range), 0, 0
        while done < visits:
            size = 1 + done // 10
            successors = rng.choice(3, p=laws[row], size=size)
            rewards = np.zeros(size) if reward_range is None else rng.beta(1 + row, 1 + successors)
            test.add(Transitions(np.full(size, row), successors, np.ones(size, np.int64), rewards))
            done += size
            if test.log_e() >= REJECTED:
                alarms += 1
                break
            row = int(rng.integers(n_rows)) if successors[-1] else row  # it stays where it is after a 0
    return alarms


@pytest.mark.parametrize("reward_range", [None, (0.0, 1.0)])
def test_rows_that_stay_the_same_are_hardly_ever_accused(reward_range):
    assert stats.binomtest(false_alarms(60, reward_range), 60, 0.01, alternative="greater").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("reward_range", [None, (0.0, 1.0)])
def test_in_many_runs_false_alarms_are_at_most_one_in_a_hundred(reward_range):
    assert false_alarms(1500, reward_range) <= 15


# -- what it finds -------------------------------------------------------------------------------------------------


def first_alarm(draw, seed, visits, reward_range=None, n_rows=20):
    """What has changed at the alarm, of ``draw(rng, number of the visit)``; None without one."""
    rng, test, done = np.random.default_rng(seed), DriftTest(np.full(n_rows, 5), n_rows, reward_range), 0
    while done < visits:
        size = max(1, done // 20)
        outcomes = draw(rng, np.arange(done, done + size))
        successors, rewards = (outcomes, np.zeros(size)) if reward_range is None else (np.zeros(size, int), outcomes)
        test.add(Transitions(np.zeros(size, int), successors, np.ones(size, np.int64), rewards))
        done += size
        if test.log_e() >= REJECTED:
            (change,) = test.suspects(1)
            assert sum(change.visits) == done
            return change
    return None


def coin(chance):
    return lambda rng, t: (rng.random(len(t)) < chance(t)).astype(int)


CHANGES = {
    "a break": (coin(lambda t: np.where(t < 1000, 0.3, 0.6)), 2000, None),
    "a slow drift": (coin(lambda t: 0.3 + 0.4 * np.minimum(t / 3000, 1)), 3000, None),
    "to and fro": (coin(lambda t: 0.5 + 0.3 * np.sin(2 * np.pi * t / 1500)), 3000, None),
    "falling rewards": (lambda rng, t: rng.random(len(t)) * (1 - 0.3 * t / 3000), 3000, (0.0, 1.0)),
    "a narrow reward that falls": (
        lambda rng, t: 0.5 - 0.1 * t / 1000 + 0.02 * rng.standard_normal(len(t)),
        1000,
        (0.0, 1.0),
    ),
    "a rare prize that shrinks": (lambda rng, t: (rng.random(len(t)) < 0.1) * (1 - 0.5 * t / 3000), 3000, (0.0, 1.0)),
}


@pytest.mark.parametrize(("draw", "visits", "reward_range"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_found_in_at_least_19_of_20_runs(draw, visits, reward_range):
    changes = [first_alarm(draw, seed, visits, reward_range) for seed in range(20)]
    assert sum(change is not None and min(change.visits) > 0 for change in changes) >= 19


def test_the_row_that_changed_is_named_with_what_changed_and_when():
    rng = np.random.default_rng(2)
    parts = []
    for i in range(600):
        chances = [0.5, 0.2, 0.7 if i < 320 else 0.2]
        parts.append([(row, 2 * int(rng.random() < p), 0.0) for row, p in enumerate(chances)])
    test = filled(parts, rows=3)
    assert test.log_e() > REJECTED
    (change,) = test.suspects(3)
    assert (change.row, change.visits) == (2, (320, 280))
    assert change.share == pytest.approx(1.0, abs=1e-6)
    assert change.successor in (0, 2)
    assert change.times == tuple(
        sum(part[2][1] == change.successor for part in some) for some in (parts[:320], parts[320:])
    )


def test_rewards_that_changed_are_named_by_a_limit_between_them():
    parts = [[(1, 0, 0.8 if i < 64 else 0.3)] for i in range(130)]
    test = filled(parts, rows=2, reward_range=(0.0, 2.0))
    assert test.log_e() > REJECTED
    (change,) = test.suspects(3)
    assert change.successor is None
    assert 0.3 < change.limit <= 0.8
    assert (change.visits, change.times) == ((64, 66), (0, 66))


# -- what it remembers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward_range", [None, (0.0, 1.0)])
def test_it_goes_on_from_its_tally_as_if_it_had_never_stopped(reward_range):
    rng = np.random.default_rng(9)
    parts = [
        [(int(rng.integers(4)), int(rng.integers(3)), float(rng.choice([0.1, 0.4, 0.45]))) for _ in range(1 + i // 5)]
        for i in range(60)
    ]
    whole, half = (filled(some, rows=4, possible=9, reward_range=reward_range) for some in (parts, parts[:30]))
    for _ in range(3):
        half.log_e()  # when one looks does not matter
    again = DriftTest(np.full(4, 9), 4, reward_range)
    again.restore(half.tally())
    for part in parts[30:]:
        again.add(moves(part))
        again.log_e()
    assert again.log_e() == whole.log_e()
    for column, other in zip(again.tally(), whole.tally(), strict=True):
        np.testing.assert_array_equal(column, other)


def test_rows_beyond_the_limit_are_left_out_wholly(monkeypatch):
    monkeypatch.setattr(drift, "MOST_LINES", 4)
    rng = np.random.default_rng(3)
    parts = [[(int(row), int(rng.integers(3)), 0.0) for row in rng.integers(i // 10 + 1, size=4)] for i in range(50)]
    limited = filled(parts, rows=5)
    monkeypatch.undo()
    kept = set(limited.lines)
    assert 0 < len(kept) < 5
    visits = [[visit for visit in part if visit[0] in kept] for part in parts]
    expected = filled(filter(None, visits), rows=5)
    assert limited.log_e() == expected.log_e()
