"""The concentration events say what the theory says, hold as often as promised, and imply what they should."""

import math

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb
from entropic_bpi.lab.events import (
    BernsteinEvent,
    BettingEvent,
    CountEvent,
    KLEvent,
    MixtureEvent,
    expected_visits,
)
from entropic_bpi.lab.evidence import claimed_rows
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.ball import TOLERANCE, kl_extreme
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.simulator import Simulator
from entropic_bpi.types import Behaviour, Transitions

EVENTS = [KLEvent(), BernsteinEvent(), MixtureEvent(), BettingEvent()]


def garnet(horizon, **changes):
    """A dense model with five states, two actions and three successors each."""
    rng = np.random.default_rng(3)
    transitions = np.zeros((5, 2, 5))
    for row in transitions.reshape(-1, 5):
        row[rng.choice(5, size=3, replace=False)] = rng.dirichlet(np.ones(3))
    given = {"rewards": rng.random((5, 2)), **changes}
    return eb.FiniteMDP(transitions, given.pop("rewards"), horizon=horizon, **given)


GARNET = garnet(4)
BRIDGE = eb.instances.risky_bridge(horizon=7)


def problem_of(mdp, beta=1.0, delta=0.1, **options):
    return Problem.from_mdp(mdp, beta=beta, eps=0.1, delta=delta, **options)


def played(mdp, problem, episodes, seed, policies=8):
    """Counts of some random policies, and their expected visits."""
    rng = np.random.default_rng(seed)
    counts, simulator = Counts(problem), Simulator(mdp, problem, rng)
    expected = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions))
    for _ in range(policies):
        policy = rng.integers(mdp.n_actions, size=(mdp.horizon, mdp.n_states))
        planned = np.concatenate([np.zeros((problem.steps - mdp.horizon, mdp.n_states), dtype=int), policy])
        simulator.play(Behaviour(planned, planned, planned, False), episodes // policies, counts)
        expected += episodes // policies * expected_visits(mdp, policy)
    return counts, expected


def tallies(counts, row):
    seen = counts.transitions()
    mine = seen.rows == row
    return seen.successors[mine], seen.times[mine]


# -- what they say -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stationary", [False, True])
def test_the_kl_event_is_its_formula(stationary):
    problem = problem_of(GARNET, stationary=stationary)
    counts, _ = played(GARNET, problem, 400, seed=1)
    excess = KLEvent().excess(GARNET, counts)
    pairs, kernel = 10, GARNET.step_kernel(0)
    for row in range(problem.n_rows):
        successors, times = tallies(counts, row)
        n = times.sum()
        if n == 0:
            assert excess[row] == -np.inf
            continue
        divergence = sum(t * math.log(t / n / kernel[row % pairs, s]) for s, t in zip(successors, times, strict=True))
        union = math.log(3 * pairs * (1 if stationary else 4) / 0.1)
        assert excess[row] == pytest.approx(divergence - union - 5 * math.log(8 * math.e * (n + 1)), rel=1e-10)


@pytest.mark.parametrize("beta", [1.0, -0.7, 0.0, 30.0, -30.0])
def test_the_bernstein_event_is_its_formula(beta):
    problem = problem_of(GARNET, beta=beta)
    counts, _ = played(GARNET, problem, 400, seed=2)
    excess = BernsteinEvent().excess(GARNET, counts)
    values, kernel = eb.solve(GARNET, beta).values, GARNET.step_kernel(0)
    for row in np.flatnonzero(counts.arrays.visits):
        step, pair = divmod(int(row), 10)
        z = values[step + 1] if beta == 0 else np.exp(beta * values[step + 1])
        p, empirical = kernel[pair], np.zeros(5)
        successors, times = tallies(counts, row)
        empirical[successors] = times / times.sum()
        span = np.ptp(z[p > 0])
        if span == 0:
            assert excess[row] == -np.inf
            continue
        rate = (math.log(3 * 40 / 0.1) + math.log(8 * math.e * (times.sum() + 1))) / times.sum()
        bound = math.sqrt(2 * (p @ (z - p @ z) ** 2) * rate) + 3 * span * rate
        assert excess[row] * span == pytest.approx(abs((empirical - p) @ z) - bound, rel=1e-6)


@pytest.mark.parametrize(
    ("mdp", "options"),
    [
        (GARNET, {}),
        (GARNET, {"successors": "model"}),
        (GARNET, {"stationary": True}),
        (BRIDGE, {"successors": "model"}),
        (BRIDGE, {"successors": "model", "stationary": True}),
        (garnet(3, start=np.full(5, 0.2)), {"successors": "model"}),
        (garnet(3, rewards=np.random.default_rng(0).random((5, 2, 5))), {}),
    ],
)
def test_the_mixture_event_is_that_of_the_kl_method(mdp, options):
    problem = problem_of(mdp, **options)
    counts, _ = played(mdp, problem, 400, seed=3)
    excess = MixtureEvent().excess(mdp, counts)
    method = KL(problem)
    method.plan(counts, 0)
    divergence = KLEvent().excess(mdp, counts)
    at_risk = np.flatnonzero(excess > -np.inf)
    assert len(at_risk) <= problem.rows_at_risk
    assert (problem.slots.possible[at_risk] > 1).all()
    for row in at_risk:
        n, (_, times) = counts.arrays.visits[row], tallies(counts, row)
        # Both excesses add their bound to the same divergence.
        pairs = mdp.n_states * mdp.n_actions
        union = pairs + problem.artificial if problem.stationary else pairs * problem.steps
        alpha = math.log(3 * union / 0.1) + mdp.n_states * math.log(8 * math.e * (n + 1))
        radius = math.log(problem.rows_at_risk / 0.1) + mixture_radius(times, int(problem.slots.possible[row]))
        assert excess[row] + radius == pytest.approx(divergence[row] + alpha, abs=1e-9)
        assert method.rules.radius[row] * n == pytest.approx(radius, rel=1e-9)


@pytest.mark.parametrize("beta", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_betting_event_puts_the_optimal_value_into_the_ball(beta, seed):
    """Its claim is that the mean of Z* is within the KL ball of radius (log(P/δ) + c_2(n))/n, and nothing else."""
    problem = problem_of(GARNET, beta=beta, delta=0.99, successors="model")
    counts, _ = played(GARNET, problem, 60, seed)
    event = BettingEvent()
    values, kernel = eb.solve(GARNET, beta).values, GARNET.step_kernel(0)
    excess = event.excess(GARNET, counts)
    union = math.log(problem.rows_at_risk / 0.99)
    tested = 0
    for row in np.flatnonzero(excess > -np.inf):
        step, pair = divmod(int(row), 10)
        possible = np.flatnonzero(kernel[pair])
        tally, n = np.zeros(len(possible), dtype=np.int64), int(counts.arrays.visits[row])
        successors, times = tallies(counts, row)
        tally[np.searchsorted(possible, successors)] = times
        z = values[step + 1][possible] if beta == 0 else np.exp(beta * values[step + 1][possible])
        mean, sign = kernel[pair, possible] @ z, -1.0 if beta < 0 else 1.0
        limit = 0.5 * math.log(math.pi) + math.lgamma(n + 1) - math.lgamma(n + 0.5)
        for shift in (1e-3, -1e-3):  # a radius just large enough, or just too small
            radius = (union + limit + excess[row]) / n + shift
            if radius > 0:
                reach = kl_extreme(tally, z, len(z), n, radius, sign, TOLERANCE, np.empty((6, len(z))))
                if shift > 0:
                    assert sign * reach >= sign * mean - 1e-12
                    tested += 1
                elif radius > 1e-2:
                    assert sign * reach <= sign * mean + 1e-6
    assert tested


def test_the_count_event_is_its_formula():
    problem = problem_of(GARNET)
    counts, expected = played(GARNET, problem, 4000, seed=5)
    excess = CountEvent(expected.ravel()).excess(GARNET, counts)
    limit = math.log(3 * 40 / 0.1)
    assert excess == pytest.approx(expected.ravel() / 2 - limit - counts.arrays.visits)
    assert CountEvent(expected.ravel()).holds(GARNET, counts)
    assert not CountEvent(3 * expected.ravel() + 1).holds(GARNET, counts)
    with pytest.raises(eb.InvalidProblemError, match="one entry per row, 40"):
        CountEvent(expected).excess(GARNET, counts)


def test_pooled_counts_have_no_count_event():
    """With visits that come in runs, half of the expected ones is too much to ask: here of a state that is never left."""
    kernel = [[[0, 0.02, 0.98]], [[0, 1, 0]], [[0, 0, 1]]]
    mdp = eb.FiniteMDP(kernel, [[0.0], [1.0], [0.0]], horizon=60)
    problem, policy = problem_of(mdp, stationary=True), np.zeros((60, 3), dtype=int)
    visits = expected_visits(mdp, policy).sum(axis=0).ravel()
    failed = 0
    for seed in range(40):
        counts, simulator = Counts(problem), Simulator(mdp, problem, np.random.default_rng(seed))
        short = False
        while counts.episodes < 50:
            simulator.play(Behaviour(policy, policy, policy, False), 1, counts)
            short |= (counts.arrays.visits < counts.episodes * visits / 2 - math.log(3 * 180 / 0.1)).any()
        failed += short
    assert failed > 20  # of 40, where a third of δ = 0.1 would be promised
    with pytest.raises(eb.InvalidProblemError, match="not for pooled ones"):
        CountEvent(50 * visits).holds(mdp, counts)


@pytest.mark.parametrize("start", [0, np.full(5, 0.2)])
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("successors", [None, "model"])
def test_the_betting_event_claims_no_more_than_it_pays_for(stationary, successors, start):
    """P counts (step, row); a pooled row is claimed about at the steps at which its state can be occupied."""
    mdp = garnet(4, start=start)
    problem = problem_of(mdp, stationary=stationary, successors=successors)
    claims = [
        set(zip(step[rows].tolist(), np.flatnonzero(rows).tolist(), strict=True))
        for step, rows in claimed_rows(problem)
    ]
    assert sum(map(len, claims)) == len(set().union(*claims))  # each is paid for once
    for step, row in set().union(*claims):
        if step >= 0:
            states = problem.frame.states
            first, last = problem.frame.first_state[step + problem.artificial : step + problem.artificial + 2]
            assert row // mdp.n_actions % mdp.n_states in states[first:last]
    if not problem.stationary:
        assert len(claims[0]) == problem.rows_at_risk


def test_expected_visits_are_the_average_of_many_episodes():
    problem = problem_of(GARNET)
    counts, expected = played(GARNET, problem, 80_000, seed=6, policies=1)
    assert counts.arrays.visits / 80_000 == pytest.approx(expected.ravel() / 80_000, abs=0.01)


# -- when they fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("beta", [2.5, -1.0, 0.0])
def test_an_event_holds_for_its_own_model_and_fails_for_a_different_one(event, beta):
    other = eb.instances.risky_bridge(horizon=7, p_start=0.3, p_mid=0.3, p_final=0.7, p_dash=0.3)
    problem = problem_of(BRIDGE, beta=beta)
    counts, _ = played(BRIDGE, problem, 40_000, seed=7)
    assert event.holds(BRIDGE, counts)
    assert event.violations(BRIDGE, counts).size == 0
    failed = event.violations(other, counts)
    assert failed.size > 0
    assert not event.holds(other, counts)
    risky = failed % 2 == 1
    assert risky.any()
    assert all("state" in problem.describe(row) for row in failed)


def test_an_impossible_transition_violates_every_divergence():
    certain = eb.FiniteMDP([[[0.0, 1.0]], [[0.0, 1.0]]], [[0.0], [1.0]], horizon=2)
    counts = Counts(problem_of(certain))
    counts.add(Transitions(np.array([0]), np.array([0]), np.array([1])), 1)
    for event in (KLEvent(), BernsteinEvent(), MixtureEvent()):
        assert event.violations(certain, counts).tolist() == [0]


def test_a_random_start_is_a_row_of_its_own():
    start = np.array([0.5, 0.3, 0.2, 0.0, 0.0])
    mdp = garnet(3, start=start)
    problem = problem_of(mdp)
    counts, _ = played(mdp, problem, 20_000, seed=8)
    elsewhere = garnet(3, start=start[[1, 0, 2, 3, 4]])
    last = problem.n_rows - 1
    for event in (KLEvent(), MixtureEvent()):
        assert event.holds(mdp, counts)
        assert event.violations(elsewhere, counts).tolist() == [last]
    assert problem.describe(last) == "the random start"


def test_rewards_of_the_next_state():
    rng = np.random.default_rng(9)
    mdp = garnet(2, rewards=rng.random((5, 2, 5)))
    counts, _ = played(mdp, problem_of(mdp), 2000, seed=9)
    assert MixtureEvent().holds(mdp, counts)
    assert BettingEvent().holds(mdp, counts)
    assert (BettingEvent().excess(mdp, counts)[10:] > -np.inf).any()  # the last step matters here
    with pytest.raises(eb.InvalidProblemError, match="do not depend on the next state"):
        BernsteinEvent().excess(mdp, counts)


def failures(event_of, mdp, delta, runs, tests, successors=None):
    """Runs in which the event failed at one of the testing times."""
    failed = 0
    problem = problem_of(mdp, delta=delta, successors=successors)
    policy = np.zeros((mdp.horizon, mdp.n_states), dtype=int)
    visits = expected_visits(mdp, policy).ravel()
    for seed in range(runs):
        counts, simulator = Counts(problem), Simulator(mdp, problem, np.random.default_rng(seed))
        good = True
        while good and counts.episodes < tests[-1]:
            batch = tests[np.searchsorted(tests, counts.episodes, side="right")] - counts.episodes
            simulator.play(Behaviour(policy, policy, policy, False), int(batch), counts)
            good = event_of(counts.episodes * visits).holds(mdp, counts)
        failed += not good
    return failed


EVENT_OF = {
    "kl": lambda expected: KLEvent(),
    "bernstein": lambda expected: BernsteinEvent(),
    "counts": CountEvent,
    "mixture": lambda expected: MixtureEvent(),
    "betting": lambda expected: BettingEvent(),
}


def check_failure_rate(name, runs, tests):
    """At δ = 0.5, on a coin: no more failures than the share promises, by an exact binomial test."""
    coin = eb.FiniteMDP([[[0.7, 0.3]], [[0.7, 0.3]]], [[0.0], [1.0]], horizon=2)
    event_of = EVENT_OF[name]
    failed = failures(event_of, coin, 0.5, runs, tests, successors="model")
    promised = event_of(np.zeros(4)).share * 0.5
    assert stats.binomtest(failed, runs, promised, alternative="greater").pvalue > 1e-4
    return failed


@pytest.mark.parametrize("name", EVENT_OF)
def test_events_fail_no_more_often_than_promised(name):
    check_failure_rate(name, runs=60, tests=np.array([1, 3, 10, 30, 100]))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENT_OF)
def test_events_fail_no_more_often_than_promised_over_many_runs(name):
    tests = np.unique(np.geomspace(1, 3000, 40).astype(int))
    failed = check_failure_rate(name, runs=500, tests=tests)
    if name in ("mixture", "betting"):
        assert failed > 10  # neither is so wide that it could not fail


# -- what they imply -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [2.0, -2.0])
def test_on_the_event_the_claims_are_true(beta):
    best = eb.solve(GARNET, beta).value
    problem = problem_of(GARNET, beta=beta)
    for seed in range(5):
        counts, _ = played(GARNET, problem, 30_000, seed)
        for method, events in (
            (KL(problem), [MixtureEvent()]),
            (Bernstein(problem, "sharp", 0), [KLEvent(), BernsteinEvent()]),
            (Bernstein(problem, "verified", 0), [KLEvent(), BernsteinEvent()]),
        ):
            if all(event.holds(GARNET, counts) for event in events):
                plan = method.plan(counts, 0)
                value = eb.evaluate(GARNET, plan.policy, beta).value
                assert plan.bounds.lower <= value + 1e-9
                assert plan.bounds.upper >= best - 1e-9
                assert plan.bounds.gap >= best - value - 1e-9


def test_kl_and_mixture_events_meet_on_the_same_divergence():
    """R_mix is far below α, so whenever the mixture event holds, so does the paper's."""
    problem = problem_of(GARNET)
    for seed in range(20):
        counts, _ = played(GARNET, problem, 200, seed)
        if MixtureEvent().holds(GARNET, counts):
            at_risk = MixtureEvent().excess(GARNET, counts) > -np.inf
            assert (KLEvent().excess(GARNET, counts)[at_risk] <= 0).all()
