"""The test that visits of different kinds have one law: never wrong more often than it says, and what it says."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from entropic_bpi.sources.homogeneity import HomogeneityTest, log_kt, log_price


def e_value(sequence, groups, possible):
    test = HomogeneityTest(np.array([possible]), 1)
    for outcome, group in zip(sequence, groups, strict=True):
        test.add(0, group, (outcome, 0.0), 1)
    return math.exp(test.log_e())


# Rules that name the group of the next visit from the outcomes so far.
RULES = {
    "in turn": lambda past: len(past) % 2,
    "each its own": len,
    "the last outcome": lambda past: past[-1] if past else -1,
    "until the first 0": lambda past: int(0 in past),
    "the rarest so far": lambda past: min(range(2), key=past.count),
}


def grouped(sequence, rule):
    return [rule(list(sequence[:i])) for i in range(len(sequence))]


def laws(possible):
    """Distributions on a grid, corners and edges included."""
    for steps in itertools.product(range(5), repeat=possible):
        if sum(steps) == 4:
            yield np.array(steps) / 4
    yield from np.random.default_rng(0).dirichlet(np.full(possible, 0.5), size=20)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize(("possible", "length"), [(2, 8), (3, 6), (4, 5)])
def test_the_mean_of_the_e_value_is_at_most_one_whatever_the_law(possible, length, rule):
    sequences = list(itertools.product(range(possible), repeat=length))
    e_values = np.array([e_value(sequence, grouped(sequence, rule), possible) for sequence in sequences])
    for law in laws(possible):
        chances = np.prod(law[np.array(sequences)], axis=1)
        assert chances @ e_values <= 1 + 1e-12


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_whoever_looks_after_every_visit_sees_a_large_value_no_more_often_than_ville_allows(rule):
    possible, length = 2, 9
    sequences = list(itertools.product(range(possible), repeat=length))
    highest = np.zeros(len(sequences))
    for i, sequence in enumerate(sequences):
        groups = grouped(sequence, rule)
        highest[i] = max(e_value(sequence[:n], groups[:n], possible) for n in range(1, length + 1))
    for law in laws(possible):
        chances = np.prod(law[np.array(sequences)], axis=1)
        for level in (0.2, 0.5, 0.9):
            assert chances[highest >= 1 / level].sum() <= level + 1e-12


def test_the_weights_of_all_sets_of_outcomes_add_up_to_less_than_one():
    for possible in (1, 2, 5, 30):
        total = sum(math.comb(possible, j) * math.exp(-log_price(j, possible)) for j in range(1, possible + 1))
        assert total == pytest.approx(1 - 0.5**possible)


@pytest.mark.parametrize("alphabet", [2, 3, 7])
def test_the_mixture_is_the_product_of_its_predictions(alphabet):
    sequence, seen, logs = np.random.default_rng(alphabet).integers(alphabet, size=40), Counter(), 0.0
    for n, outcome in enumerate(sequence.tolist()):
        logs += math.log((seen[outcome] + 0.5) / (n + alphabet / 2))
        seen[outcome] += 1
    assert log_kt(list(seen.values()), alphabet) == pytest.approx(logs, rel=1e-12)


def some_visits(n=400):
    rng = np.random.default_rng(3)
    columns = rng.integers(4, size=n), rng.integers(5, size=n), rng.integers(3, size=n), rng.integers(1, 9, size=n)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def filled(visits, look_every=None):
    test = HomogeneityTest(np.full(4, 6), 10)
    for i, (row, group, outcome, times) in enumerate(visits):
        test.add(row, group, (outcome, 0.5), times)
        if look_every and i % look_every == 0:
            test.log_e()
    return test


def test_the_value_depends_neither_on_the_order_of_visits_nor_on_when_one_looks():
    expected = filled(some_visits()).log_e()
    assert filled(some_visits()[::-1]).log_e() == expected
    assert filled(some_visits(), look_every=7).log_e() == expected
    restored = HomogeneityTest(np.full(4, 6), 10)
    restored.restore(filled(some_visits()).tally())
    assert restored.log_e() == expected


def test_the_mean_counts_rows_that_were_never_visited():
    test = filled([visit for visit in some_visits() if visit[0] < 2])
    rows = [test._log_e_of(row) for row in (0, 1)]
    assert test.log_e() == pytest.approx(math.log((8 + math.exp(rows[0]) + math.exp(rows[1])) / 10))
    assert HomogeneityTest(np.full(4, 6), 10).log_e() == 0.0


def test_the_group_that_differs_is_named():
    rng, test = np.random.default_rng(5), HomogeneityTest(np.full(3, 8), 3)
    for row, group in itertools.product(range(3), range(6)):
        for outcome in rng.choice(
            3, p=[0.2, 0.3, 0.5] if (row, group) != (1, 4) else [0.8, 0.1, 0.1], size=60
        ).tolist():
            test.add(row, group, (outcome, 0.0), 1)
    assert test.log_e() > math.log(100)
    assert [(row, group) for row, _, group in test.suspects(2)] == [(1, 4)]


def test_groups_beyond_the_limit_are_left_out_wholly():
    visits = some_visits()
    limited = HomogeneityTest(np.full(4, 6), 10, most_groups=7)
    for row, group, outcome, times in visits:
        limited.add(row, group, (outcome, 0.5), times)
    kept = list(dict.fromkeys(visit[:2] for visit in visits))[:7]
    assert limited.log_e() == filled([visit for visit in visits if visit[:2] in kept]).log_e()
