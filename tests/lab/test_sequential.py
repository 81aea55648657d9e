"""Sequential comparisons: p-values against the definition, the promised error rate, and as few runs as it takes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

import entropic_bpi as eb
from entropic_bpi.lab import sequential
from entropic_bpi.lab.sequential import SequentialTest, Verdict, p_value


def played(test, draw):
    while test.wanted:
        test.add({name: draw(name, test.batch) for name in test.wanted})
    return {verdict.pair: verdict for verdict in test.verdicts}


# -- one pair --------------------------------------------------------------------------------------------------------


def out_by_definition(statistics, most):
    """Which dealings are out at which batch, one by one and batch by batch."""
    out = {}
    for k, values in enumerate(statistics):
        inside = [g for g in range(len(values)) if g not in out]
        for g in inside:
            if sum(values[other] >= values[g] for other in inside) <= most:
                out.setdefault(g, k)
    return out


def all_dealings(batches):
    """The statistics of every dealing of small batches, from the scores of both learners in each."""
    hands = [list(itertools.combinations(range(2 * len(first)), len(first))) for first, _ in batches]
    statistics = [[] for _ in batches]
    for dealing in itertools.product(*hands):
        total = 0
        for k, (hand, (first, second)) in enumerate(zip(dealing, batches, strict=True)):
            pooled = [*first, *second]
            total += 2 * sum(pooled[i] for i in hand) - sum(pooled)
            statistics[k].append(abs(total))
    return [np.array(values, dtype=float) for values in statistics]


@pytest.mark.parametrize("seed", range(4))
def test_a_p_value_is_the_smallest_share_at_which_the_observed_dealing_is_out(seed):
    rng = np.random.default_rng(seed)
    statistics = [rng.integers(0, 12, 40).astype(float) for _ in range(3)]  # with ties
    for seen in (1, 2, 3):
        smallest = next(c for c in range(1, 41) if 0 in out_by_definition(statistics[:seen], c))
        assert p_value(statistics[:seen], 3) == min(1, 3 * smallest / 40)


@pytest.mark.parametrize("scores", ["continuous", "ties"])
def test_no_level_is_exceeded_over_all_dealings_of_the_same_scores(scores):
    """The exact null law: every dealing takes its turn as the observed one."""
    rng = np.random.default_rng(3)
    draw = (lambda: rng.integers(0, 3, 3)) if scores == "ties" else (lambda: rng.integers(0, 10**6, 3))
    statistics = all_dealings([(draw(), draw()), (draw(), draw())])
    count = len(statistics[0])
    assert count == 20**2
    found = []
    for observed in range(count):
        order = [observed, *(g for g in range(count) if g != observed)]
        found.append(p_value([values[order] for values in statistics], 2))
    for level in np.linspace(0.01, 1, 100):
        assert np.mean(np.array(found) <= level) <= level + 1e-12
    if scores == "continuous":
        assert np.mean(np.array(found) <= 0.1) >= 0.05  # and it is not empty caution


def test_a_p_value_only_falls():
    rng = np.random.default_rng(0)
    statistics = [rng.random(500) for _ in range(5)]
    found = [p_value(statistics[:seen], 5) for seen in range(1, 6)]
    assert found == sorted(found, reverse=True)


def test_equal_scores_are_no_evidence():
    verdict = played(SequentialTest(["a", "b"], batches=2), lambda name, n: np.arange(n))["a", "b"]
    assert verdict == Verdict(("a", "b"), runs=12, p_value=1.0, lower=None)
    constant = played(SequentialTest(["a", "b"], batches=2), lambda name, n: np.full(n, 1e6 + 0.1))["a", "b"]
    assert (constant.p_value, constant.lower) == (1.0, None)


@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_scores_that_do_not_overlap_are_told_apart_at_the_first_test(shift):
    rng = np.random.default_rng(1)
    test = SequentialTest(["slow", "fast"])
    test.add({"slow": shift + 10 + rng.random(6), "fast": shift + rng.random(6)})
    (verdict,) = test.verdicts
    assert (verdict.lower, verdict.runs, test.wanted) == ("fast", 6, [])
    assert verdict.p_value == pytest.approx(5 * 2 / 924, rel=0.5)  # 2 of the 924 dealings are as extreme


# -- all pairs -------------------------------------------------------------------------------------------------------


def test_learners_whose_pairs_are_decided_play_no_more():
    rng = np.random.default_rng(0)
    level = {"far": 100.0, "near": 0.0, "equal": 0.0}
    found = played(SequentialTest(list(level), batches=3), lambda name, n: level[name] + rng.random(n))
    assert [(v.runs, v.lower) for v in found.values()] == [(6, "near"), (6, "equal"), (18, None)]


def test_pairs_are_corrected_for_their_number():
    """Two equal halves of 12 learners: no pair within a half is found at a p-value that would do for one pair alone."""
    rng = np.random.default_rng(2)
    names = [f"{half}{i}" for half in "ab" for i in range(6)]
    test = SequentialTest(names)
    found = played(test, lambda name, n: rng.normal(10 * (name[0] == "b"), 1, n))
    for (first, second), verdict in found.items():
        assert (verdict.lower is None) == (first[0] == second[0])
    within = [v.p_value for pair, v in found.items() if pair[0][0] == pair[1][0]]
    assert min(within) < 0.05


def errors(simulations, level, draw, equal, seed):
    """How often some pair of ``equal`` learners is told apart."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for number in range(simulations):
        test = SequentialTest(["a", "b", "c"], level=level, batch=5, batches=4, seed=number)
        found = played(test, lambda name, n: draw(rng, name, n))
        wrong += any(found[pair].lower is not None for pair in equal)
    return wrong


ALL = [("a", "b"), ("a", "c"), ("b", "c")]
LAWS = {
    "all equal, heavy tails": (lambda rng, name, n: rng.pareto(1.5, n), ALL),
    "all equal, few values": (lambda rng, name, n: rng.integers(0, 2, n), ALL),
    "two equal beside another": (lambda rng, name, n: rng.normal(2.0 * (name == "c"), 1, n), ALL[:1]),
}


@pytest.fixture
def few_dealings(monkeypatch):
    """The guarantee holds for any number of them."""
    monkeypatch.setattr(sequential, "_LEAST_DEALINGS", 1000)


@pytest.mark.usefixtures("few_dealings")
@pytest.mark.parametrize("law", LAWS)
def test_equal_learners_are_told_apart_no_more_often_than_promised(law):
    wrong = errors(60, 0.2, *LAWS[law], seed=4)
    assert binomtest(wrong, 60, 0.2, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("few_dealings")
@pytest.mark.parametrize("law", LAWS)
def test_the_error_rate_over_many_comparisons(law):
    wrong = errors(2000, 0.1, *LAWS[law], seed=5)
    print(f"{law}: {wrong} of 2000 at level 0.1")
    assert binomtest(wrong, 2000, 0.1, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
def test_it_takes_fewer_runs_than_the_largest_number_where_learners_differ():
    rng = np.random.default_rng(6)
    runs = []
    for number in range(200):
        test = SequentialTest(["a", "b"], seed=number)
        verdict = played(test, lambda name, n: rng.normal(1.5 * (name == "b"), 1, n))["a", "b"]
        assert verdict.lower in (None, "a")
        runs.append(verdict.runs)
    print(f"1.5 standard deviations apart: {np.mean(runs):.1f} of 30 runs on average")
    assert np.mean(runs) < 15


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (["a"], {}, "names must be two or more"),
        ("ab", {}, "names must be a list"),
        (["a", "b"], {"level": 1.0}, "level must lie strictly between 0 and 1"),
        (["a", "b"], {"batch": 0}, "batch must be at least 1"),
        (["a", "b"], {"batches": 2.5}, "batches must be an integer"),
        (["a", "b"], {"batch": 2, "batches": 2}, "2 batches of 2 runs cannot tell 2 learners apart at level 0.05"),
    ],
)
def test_a_test_that_makes_no_sense_is_refused(names, settings, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        SequentialTest(names, **settings)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"a": np.zeros(6)}, "scores of 'b' are wanted, got those of a"),
        ({"a": np.zeros(6), "b": np.zeros(5)}, "scores of 'b' must be 6 finite numbers"),
        ({"a": np.zeros(6), "b": np.full(6, np.nan)}, "scores of 'b' must be 6 finite numbers"),
        ({"a": np.zeros(6), "b": "no numbers"}, "scores of 'b' must be 6 finite numbers"),
    ],
)
def test_scores_that_are_none_are_refused_and_nothing_is_taken(scores, message):
    test = SequentialTest(["a", "b"])
    with pytest.raises(eb.InvalidProblemError, match=message):
        test.add(scores)
    assert test.scores == {"a": [], "b": []}
