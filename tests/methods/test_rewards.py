"""What a random reward is worth: its bounds are the optimum of their program, cover the truth, and use the right values."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from reference.kl import betting_regret, certainty_interval
from scipy import optimize, stats

from entropic_bpi.methods.kl.rates import betting_regret as computed_regret
from entropic_bpi.methods.kl.rewards import RewardBounds
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

LOW, HIGH = -1.0, 3.0


def a_problem(law="random", *, observations=2, **changes):
    names = (*map(str, range(observations)), "end")
    given = {"horizon": 2, "reward_range": (LOW, HIGH), "beta": 1.0, "eps": 0.1, "delta": 0.1, "stationary": True}
    return Problem.black_box(observations, 2, **{**given, **changes}, state_labels=names, source="", reward_law=law)


def paid(problem, payments):
    """Counts of payments (row, successor, reward, times)."""
    rows, successors, rewards, times = map(np.array, zip(*payments, strict=True))
    return Counts.of(problem, Transitions(rows, successors, times, rewards.astype(float)), 1)


def bounds(counts, row, successor):
    """The interval of one transition; of one that was not seen, that of "elsewhere"."""
    arrays = RewardBounds(counts.problem, counts.problem.beta).arrays(counts)
    slots = range(arrays.begin[row], arrays.begin[row] + arrays.used[row])
    slot = next((j for j in slots if arrays.successor[j] == successor), slots[0])
    return arrays.low[0, slot], arrays.high[0, slot]


def test_the_regret_of_betting_is_rounded_up_by_next_to_nothing():
    for n in [*range(1, 70), 10**3, 10**6, 10**9, 10**12]:
        with mp.workdps(50):
            exact = mp.log(mp.sqrt(mp.pi)) + mp.loggamma(mpf(n) + 1) - mp.loggamma(mpf(n) + 0.5)
            assert 0 <= computed_regret(float(n)) - exact <= 2e-13


def best_and_worst(values, shares, radius, beta):
    """By a general-purpose optimiser over all laws on what was seen and both ends, within the ball."""
    worth = np.exp(beta * (np.append(values, [LOW, HIGH]) - LOW))
    within = [
        {"type": "ineq", "fun": lambda q: radius - np.sum(shares * np.log(shares / q[: len(shares)]))},
        {"type": "eq", "fun": lambda q: q.sum() - 1},
    ]
    options = {"bounds": [(1e-12, 1)] * len(worth), "constraints": within, "options": {"ftol": 1e-14}}
    start = np.append(0.9 * shares, [0.05, 0.05])
    found = [
        optimize.minimize(lambda q, sign=sign: sign * (q @ worth) / worth.max(), start, **options) for sign in (1, -1)
    ]
    return sorted(LOW + math.log(law.x @ worth) / beta for law in found)


@pytest.mark.parametrize("beta", [-3.0, -0.5, 1e-4, 2.0])
def test_the_bounds_are_those_of_the_best_and_worst_law_in_the_ball(beta):
    rng = np.random.default_rng(5)
    for _ in range(4):
        values = np.unique(rng.uniform(LOW, HIGH, 3).round(2))
        times = rng.integers(1, 40, len(values))
        counts = paid(a_problem(beta=beta), [(0, 1, value, count) for value, count in zip(values, times, strict=True)])
        n, laws = times.sum(), 2 * 2 * 3  # two places, two actions, three next states
        radius = (math.log(4 * laws / 0.1) + betting_regret(n)) / n
        assert bounds(counts, 0, 1) == pytest.approx(best_and_worst(values, times / n, radius, beta), abs=1e-4)


@pytest.mark.parametrize("law", ["random", "random-pair"])
@pytest.mark.parametrize("beta", [-4.0, -0.3, 0.01, 1.5, 12.0])
def test_the_bounds_agree_with_plain_code_and_are_rounded_outwards(beta, law):
    rng = np.random.default_rng(9)
    for _ in range(30):
        problem = a_problem(law, beta=beta, delta=float(rng.uniform(0.01, 0.5)), stationary=bool(rng.integers(2)))
        values = rng.choice([LOW, HIGH, *rng.uniform(LOW, HIGH, 5)], 8)
        payments = [(1, int(rng.integers(3)), value, int(rng.integers(1, 300))) for value in values]
        counts = paid(problem, payments)
        rows = 4 * (1 if problem.stationary else problem.horizon)
        laws = rows if law == "random-pair" else 3 * rows
        for successor in range(3):
            mine = [p for p in payments if law == "random-pair" or p[1] == successor]
            exact = certainty_interval(
                [p[2] for p in mine], [p[3] for p in mine], LOW, HIGH, beta, math.log(4 * laws / problem.delta)
            )
            low, high = bounds(counts, 1, successor)
            assert LOW <= low <= high <= HIGH
            assert low - 1e-13 <= exact[0] <= low + 1e-8
            assert high - 1e-8 <= exact[1] <= high + 1e-13


def test_an_unseen_next_state_has_the_range_or_the_law_of_its_row():
    payments = [(0, 1, 0.5, 1000), (0, 2, 1.0, 1000)]
    assert bounds(paid(a_problem("random"), payments), 0, 0) == (LOW, HIGH)
    low, high = bounds(paid(a_problem("random-pair"), payments), 0, 0)
    assert 0.5 < low < high < 1.1


def test_what_counts_is_the_certainty_equivalent_not_the_mean():
    fair = [(0, 1, LOW, 10**6), (0, 1, HIGH, 10**6)]
    for beta in (-2.0, 2.0):
        low, high = bounds(paid(a_problem(beta=beta), fair), 0, 1)
        worth = math.log((math.exp(beta * LOW) + math.exp(beta * HIGH)) / 2) / beta
        assert low <= worth <= high
        assert high - low < 0.02
        assert abs(worth - (LOW + HIGH) / 2) > 1


def test_where_few_next_states_are_declared_few_laws_share_the_confidence():
    """What never happens pays nothing: of a row with at most k next states, k laws are at risk."""
    free, declared = a_problem(observations=9), a_problem(observations=9, max_successors=2)
    assert (free.reward_laws_at_risk, declared.reward_laws_at_risk) == (9 * 2 * 10, 9 * 2 * 2)
    assert a_problem("random-pair", observations=9, max_successors=2).reward_laws_at_risk == 9 * 2


def test_values_counted_in_cells_only_widen_the_bounds():
    values = np.random.default_rng(1).uniform(LOW, HIGH, 400)
    problem = a_problem(beta=-1.0)
    low, high = bounds(paid(problem, [(0, 1, value, 1) for value in values]), 0, 1)
    exact = certainty_interval(values, np.ones(400), LOW, HIGH, -1.0, math.log(4 * 12 / 0.1))
    cell = (HIGH - LOW) / 1024
    assert exact[0] - cell <= low <= exact[0]
    assert exact[1] <= high <= exact[1] + cell


@pytest.mark.parametrize("law", ["random", "random-pair"])
@pytest.mark.parametrize("most", [None, 2])
def test_only_what_changed_is_computed_again_and_the_rest_is_as_if_all_were(most, law):
    """Also where the slots of a row close ranks, because all of its next states were seen."""
    rng = np.random.default_rng(4)
    problem = a_problem(law, observations=4, stationary=False, max_successors=most)
    counts, kept = Counts(problem), RewardBounds(problem, problem.beta)
    for _ in range(40):
        rows = rng.integers(0, 8, 3)
        successors = (rows + rng.integers(0, most or 5, 3)) % 5
        counts.add(Transitions(rows, successors, np.ones(3, dtype=np.int64), rng.uniform(LOW, HIGH, 3)), 1)
        now, anew = kept.arrays(counts), RewardBounds(problem, problem.beta).arrays(counts)
        _, slots = counts.occupied_slots()
        np.testing.assert_array_equal(now.low[0, slots], anew.low[0, slots])
        np.testing.assert_array_equal(now.high[0, slots], anew.high[0, slots])
        assert now.low is not counts.arrays.low


def test_no_bound_is_wrong_at_the_edge_of_doubles():
    """One value seen once, or a hundred million times, for exponents from 1e-5 to 600: inside, in order, and around it."""
    for exponent in (1e-5, 1.0, 60.0, 600.0):
        for sign in (1, -1):
            for times in (1, 10**8):
                for value in (LOW, 0.3, HIGH):
                    problem = a_problem(beta=sign * exponent / 8)
                    low, high = bounds(paid(problem, [(0, 1, value, times)]), 0, 1)
                    assert LOW <= low <= value <= high <= HIGH


# -- coverage ----------------------------------------------------------------------------------------------------

# As functions of a uniform number.
LAWS = {
    "uniform": lambda u: u,
    "rare": lambda u: (u < 0.05).astype(float),
    "coin": lambda u: (u < 0.5).astype(float),
    "constant": lambda u: np.full_like(u, 0.3),
    "heavy": lambda u: u**6,
}


def misses(law, beta, runs, longest, delta):
    """Runs in which the truth was ever outside, at sample sizes that grow by a tenth."""
    midpoints = (np.arange(200_000) + 0.5) / 200_000
    truth, failed = math.log(np.mean(np.exp(beta * law(midpoints)))) / beta, 0
    for run in range(runs):
        values = law(np.random.default_rng([run, 1]).random(longest))
        n = 1
        while n < longest:
            seen, times = np.unique(values[:n], return_counts=True)
            low, high = certainty_interval(seen, times, 0.0, 1.0, beta, math.log(2 / delta))
            if not low - 1e-9 <= truth <= high + 1e-9:
                failed += 1
                break
            n = math.ceil(1.1 * n) + 1
    return failed


@pytest.mark.parametrize("law", ["rare", "heavy"])
def test_the_truth_is_inside_for_all_sample_sizes(law):
    failed = misses(LAWS[law], -2.0, 25, 150, 0.1)
    assert stats.binomtest(failed, 25, 0.1, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("beta", [-3.0, 2.0])
@pytest.mark.parametrize("law", LAWS)
def test_the_truth_is_inside_for_all_sample_sizes_in_many_runs(law, beta):
    failed = misses(LAWS[law], beta, 400, 1500, 0.1)
    print(f"{law}, beta {beta}: {failed} of 400 outside")
    assert stats.binomtest(failed, 400, 0.1, alternative="greater").pvalue > 1e-3
