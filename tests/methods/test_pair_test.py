"""The pair certificate as the second test of a run: when it is tried, what a certificate says of it, and resuming."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from reference.boxes import without_boxes

import entropic_bpi as eb
from entropic_bpi.methods.kl import pairs
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.plan import pairs_due
from entropic_bpi.methods.kl.records import NEVER_ASKED, PairsAsked
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs import loop
from entropic_bpi.sources.simulator import Simulator

RIVER = eb.instances.river_swim(5, horizon=8)
GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "stationary": True, "successors": "model", "seed": 3}


@pytest.fixture(scope="module", autouse=True)
def no_boxes():
    """They would end some of these runs before pairs do."""
    with without_boxes():
        yield


@pytest.fixture(scope="module")
def result():
    return eb.identify(RIVER, **GOAL)


@pytest.fixture
def without_pairs(monkeypatch):
    monkeypatch.setattr(pairs, "MOST_PAIRS", 0)


def same(one, other) -> bool:
    """Whether two runs are the same, to the last bit."""
    mine, theirs = one.certificate, other.certificate
    return (
        one.episodes == other.episodes
        and np.array_equal(one.policy, other.policy)
        and np.array_equal(one.history, other.history)
        and (mine.lower, mine.upper, mine.gap, mine.test) == (theirs.lower, theirs.upper, theirs.gap, theirs.test)
    )


def test_it_is_due_at_first_after_a_fifth_more_episodes_and_when_it_is_expected_to_pass():
    asked = NEVER_ASKED
    assert pairs_due(asked, 0, 5.0, 0.1)
    asked = PairsAsked(100, 0.4, 2.0)
    assert not pairs_due(asked, 119, 2.0, 0.1)
    assert pairs_due(asked, 120, 2.0, 0.1)
    assert not pairs_due(asked, 101, 0.6, 0.1)  # 0.4 * 0.6 / 2 is above 0.11
    assert pairs_due(asked, 101, 0.5, 0.1)
    assert pairs_due(asked, 100, 2.0, 0.1)  # asked again about the same counts it says the same
    assert not pairs_due(asked, 120, 0.1, 0.1)  # the gap certificate has decided
    asked = PairsAsked(100, np.inf, np.inf)  # too many pairs
    assert not pairs_due(asked, 119, np.inf, 0.1)
    assert pairs_due(asked, 120, np.inf, 0.1)


def test_a_run_stops_far_earlier_and_keeps_its_promise(result, monkeypatch):
    assert result.stopped
    assert result.certificate.test == "pairs"
    assert result.certificate.reached
    gap = eb.solve(RIVER, -1.0).value - eb.evaluate(RIVER, result.policy, -1.0).value
    assert gap <= result.certificate.gap <= GOAL["eps"]
    monkeypatch.setattr(pairs, "MOST_PAIRS", 0)
    assert eb.identify(RIVER, **GOAL).episodes > 2 * result.episodes


def test_with_too_many_pairs_it_stays_off(without_pairs):
    limited = eb.identify(RIVER, **GOAL, max_episodes=60)
    assert not limited.stopped
    assert limited.certificate.test == "ratio"
    assert eb.verify(limited.certificate).ok


def test_the_limit_counts_pairs_of_successors_of_occupied_states(monkeypatch):
    problem = Problem.from_mdp(RIVER, beta=-1.0, eps=0.3, delta=0.1, stationary=True, successors="model")
    method, counts = KL(problem), Counts(problem)
    method.plan(counts, 0)
    planned = method._inputs(method.rules, counts.arrays), method.optimism, method.plans[0]
    occupied = pairs.occupied_states(*planned)
    slots = np.where(method.plans[0].policy == 0, problem.slots.used[::2], problem.slots.used[1::2])
    needed = int(((slots * occupied).sum(axis=1) ** 2).sum())
    monkeypatch.setattr(pairs, "MOST_PAIRS", needed - 1)
    assert pairs.occupied_states(*planned) is None
    monkeypatch.setattr(pairs, "MOST_PAIRS", needed)
    assert pairs.occupied_states(*planned) is not None


def test_the_certificate_says_which_test_passed_and_is_verified_by_that_one(result, tmp_path):
    path = tmp_path / "certificate.json"
    result.certificate.save(path)
    assert json.loads(path.read_text())["claim"]["test"] == "pairs"
    assert eb.Certificate.load(path).test == "pairs"
    checked = eb.verify(path)
    assert checked.ok
    assert checked.gap <= result.certificate.gap <= checked.gap * (1 + 1e-8) + 1e-9
    # The gap certificate does not imply it.
    other = eb.verify(dataclasses.replace(result.certificate, test="ratio"))
    assert not other.ok
    assert other.gap > 2 * result.certificate.gap
    # Neither do pairs imply less than what they do.
    smaller = dataclasses.replace(result.certificate, gap=result.certificate.gap * (1 - 1e-6))
    assert not eb.verify(smaller).ok


@pytest.mark.parametrize("test", ["other", None, 1])
def test_another_test_is_refused(result, test):
    forged = dataclasses.replace(result.certificate, test=test)
    assert "claim.test" in eb.verify(forged).problems[0]


def test_the_claim_about_a_given_policy_is_the_smaller_of_both(result):
    method = KL(result.certificate.problem)
    claim = method.bounds_of(result.certificate.counts, result.policy)
    assert claim.test == "pairs"
    assert claim.gap == result.certificate.gap
    ratio = method._rounded(method._given(result.certificate.counts, result.policy)[1], "ratio")
    assert claim.gap < ratio.gap


def test_certify_uses_it(result):
    other = eb.certify(result, beta=-0.8)
    assert other.test == "pairs"
    assert eb.verify(other).ok


@pytest.mark.parametrize("options", [{}, {"replan": "every"}, {"eps": 0.05}])
def test_a_resumed_run_repeats_the_uninterrupted_one(options, tmp_path):
    whole = eb.identify(RIVER, **{**GOAL, **options})
    assert whole.certificate.test == "pairs"
    for part in (1, whole.episodes // 2, whole.episodes - 1):
        path = tmp_path / f"{part}.checkpoint"
        eb.identify(RIVER, **{**GOAL, **options}, checkpoint=path, max_episodes=part)
        resumed = eb.identify(RIVER, **{**GOAL, **options}, checkpoint=path)
        assert same(whole, resumed), part


@pytest.mark.parametrize("options", [{}, {"replan": "every"}])
def test_an_interrupted_run_keeps_the_schedule(options, tmp_path, monkeypatch):
    """Long enough that pairs are not due at most plans: what is remembered of the last time decides when they are."""
    goal = {**GOAL, "stationary": False, **options}
    monkeypatch.setattr(loop, "EVERY_CHUNK", 37)
    whole = eb.identify(RIVER, **goal)
    assert whole.episodes > 100
    assert whole.certificate.test == "pairs"
    player, name = (KL, "play_every") if options else (Simulator, "play")
    play, path = getattr(player, name), tmp_path / "run.checkpoint"
    interruptions = itertools.cycle([False, False, True])  # two parts are played, then the run is interrupted

    def interrupted(*arguments):
        result = play(*arguments)
        if next(interruptions):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(player, name, interrupted)
    for _ in range(whole.episodes):
        try:
            resumed = eb.identify(RIVER, **goal, checkpoint=path)
            break
        except KeyboardInterrupt:
            pass
    assert same(whole, resumed)


def test_the_challenger_follows_the_pair_certificate_where_that_knows_better():
    """Its candidate and its contested actions are remembered until it is computed again."""
    problem = Problem.from_mdp(RIVER, beta=-1.0, eps=1e-3, delta=0.1, stationary=True, successors="model")
    limited = eb.identify(RIVER, **{**GOAL, "eps": 1e-3}, max_episodes=30)
    method = KL(problem, seed=1)
    counts = Counts.of(problem, limited.certificate.transitions, 30)
    plan = method.plan(counts, 1)
    assert method.asked.pairs < 0.9 * method.asked.ratio
    _, (occupied, turn) = method._pair_claim(method.rules, counts, method.plans[method.last])
    np.testing.assert_array_equal(plan.behaviour.switch_action, turn)
    np.testing.assert_array_equal(plan.behaviour.lead, method.plans[method.last].policy)
    assert (turn[~occupied] == -1).all()
    assert (turn[occupied] != plan.behaviour.lead[occupied]).all()
    assert (turn >= 0).any()
    assert not np.array_equal(turn, method.plans[method.last].switch_action)  # the gap certificate says something else
    counts.episodes += 1  # the pair certificate is not due
    np.testing.assert_array_equal(method.plan(counts, 2).behaviour.switch_action, turn)
    method.asked = method.asked._replace(pairs=method.asked.ratio)  # as if it had known no better
    again = method.plan(counts, 2).behaviour
    np.testing.assert_array_equal(again.switch_action, method.plans[method.last].switch_action)


def test_a_method_goes_on_from_its_state():
    problem = Problem.from_mdp(RIVER, beta=-1.0, eps=1e-3, delta=0.1, stationary=True, successors="model")
    counts = Counts.of(
        problem, eb.identify(RIVER, **{**GOAL, "eps": 1e-3}, max_episodes=30).certificate.transitions, 30
    )
    first, second = KL(problem, seed=1), KL(problem, seed=1)
    first.plan(counts, 1)
    state = first.state()
    assert {name: array.dtype.kind for name, array in state.items()} == {
        "asked": "f",
        "policy": "i",
        "turn": "i",
        "boxed": "i",
    }
    second.restore(state)
    assert second.asked == first.asked
    counts.episodes += 1  # the pair certificate is not due: what it said is remembered
    for mine, other in zip(first.plan(counts, 3).behaviour, second.plan(counts, 3).behaviour, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_planning_after_every_episode_tests_pairs_on_the_way():
    every = eb.identify(RIVER, **GOAL, replan="every")
    assert every.certificate.test == "pairs"
    assert eb.verify(every.certificate).ok
    # The plans are those that single calls make.
    problem = every.certificate.problem
    assert every.history["gap"][-1] <= problem.eps
    assert (every.history["gap"][:-1] > problem.eps).all()


def test_a_declared_range_of_returns_turns_it_off():
    environment = {"horizon": 4, "reward_range": (0, 1), "max_episodes": 60, "beta": 1.0, "eps": 0.05, "delta": 0.1}
    declared = eb.identify("FrozenLake-v1", **environment, return_range=(0, 1), seed=1)
    assert declared.certificate.test == "ratio"
    forged = dataclasses.replace(declared.certificate, test="pairs")
    assert "range of returns" in eb.verify(forged).problems[0]
