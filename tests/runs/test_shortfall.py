"""What is missing: forecasts that come from computing the bounds again."""

import dataclasses

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.runs.data_needs import Row, limits
from tests.reference.logs import ROLES, play, table

KERNEL = np.array([[[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]], [[0.5, 0.5, 0.0], [0.0, 0.6, 0.4]], [[0.0, 0.0, 1.0]] * 2])
REWARDS = np.array([[0.2, 0.0], [0.4, 1.0], [0.0, 0.0]])
MODEL = eb.FiniteMDP(KERNEL, REWARDS, horizon=3, start=[0.7, 0.3, 0.0])
DECLARED = {"beta": -1.0, "delta": 0.1, "horizon": 3, "reward_range": (0.0, 1.0)}


def claim_of(lines, **options):
    log = eb.Log.read(table(lines), **ROLES, states=[0, 1], actions=[0, 1])
    return eb.certify(log, **{**DECLARED, **options})


def seldom_one(rng, share):
    return lambda h, s, seen: int(rng.random() < share)


def lines_of(share, episodes=3000, seed=0):
    rng = np.random.default_rng(seed)
    return play(MODEL, episodes, rng, seldom_one(rng, share), ends=(2,))


@pytest.fixture(scope="module")
def skewed():
    """Action 1 was tried seldom."""
    return claim_of(lines_of(0.02))


def test_the_action_that_was_seldom_tried_is_what_is_missing(skewed):
    lacking = eb.missing(skewed)
    assert repr(lacking) == str(lacking)
    assert [row.action for row in lacking.rows[:2]] == ["1", "1"]
    assert lacking.gap == skewed.gap
    assert lacking.target == skewed.gap / 2
    assert lacking.expected <= lacking.target
    assert all("action 1" in words for words in lacking.suggestions)


def test_the_fall_is_that_of_a_log_with_twice_the_visits(skewed):
    """The oracle: the lines of one row written twice, as episodes of their own, and certified for the same policy."""
    lines = lines_of(0.02)
    (row,) = [row for row in eb.missing(skewed).rows if (row.state, row.action) == ("0", "1")]
    again = [line for line in lines if line[2:4] == (0, 1)]
    assert row.visits == len(again)
    counts = skewed.counts
    own = counts.transitions().rows == 1
    more = type(skewed.transitions)(*(column[own] for column in counts.transitions()[:5]))
    counts.add(more, 0)
    assert row.gap_reduction == pytest.approx(skewed.gap - gap_of(counts, skewed), abs=1e-9)


def gap_of(counts, claim):
    return eb.certify(counts, beta=claim.beta, policy=claim.policy).gap


@pytest.mark.parametrize("stationary", [True, False])
def test_carrying_out_the_plan_brings_about_what_it_promises(stationary):
    """Play the suggested visits in the true model: the gap of a new certificate is near the forecast."""
    few = claim_of(lines_of(0.02, 2000), stationary=stationary)
    lacking = eb.missing(few)
    counts, rng = few.counts, np.random.default_rng(1)
    for row in lacking.rows:
        if row.visits_needed > row.visits and row.state is not None:
            s, a = int(row.state), int(row.action)
            number = ((row.step or 0) * 3 + s) * 2 + a
            seen = rng.multinomial(row.visits_needed - row.visits, KERNEL[s, a])
            reached = np.flatnonzero(seen)
            paid = np.full(len(reached), REWARDS[s, a])
            counts.add(type(few.transitions)(np.full(len(reached), number), reached, seen[reached], paid), 0)
    assert gap_of(counts, few) == pytest.approx(lacking.expected, abs=0.15 * few.gap)


def test_an_action_that_was_never_tried_is_supposed_to_do_what_others_do():
    lacking = eb.missing(claim_of(lines_of(0.0)))
    untried = [row for row in lacking.rows if row.visits == 0]
    assert {row.action for row in untried} == {"1"}
    assert lacking.rows[0] in untried
    assert any(words.startswith("try action 1 in state 0 about 1") for words in lacking.suggestions)


def test_what_is_asked_for_is_the_target(skewed):
    nearly = eb.missing(skewed, target=0.9 * skewed.gap)
    assert sum(row.visits_needed for row in nearly.rows) < sum(row.visits_needed for row in eb.missing(skewed).rows)
    reached = eb.missing(skewed, target=2 * skewed.gap)
    assert reached.suggestions == []
    assert reached.expected == pytest.approx(skewed.gap)


def test_a_state_that_nobody_saw_cannot_be_helped_by_more_of_the_same():
    log = eb.Log.read(table(lines_of(0.5, 300)), **ROLES, states=[0, 1, 7], actions=[0, 1])
    lacking = eb.missing(eb.certify(log, **DECLARED, policy={0: 0, 1: 1, 7: 0}), target=1e-8)
    assert lacking.expected > lacking.target
    assert lacking.suggestions == []


def test_the_result_of_a_run_will_do():
    run = eb.identify(
        eb.instances.risky_bridge(horizon=4), beta=-1.0, eps=0.1, delta=0.1, successors="model", max_episodes=30, seed=0
    )
    assert eb.missing(run) == eb.missing(run.certificate)


@pytest.mark.parametrize("wrong", [None, "certificate.json", MODEL])
def test_anything_else_is_refused_in_words(wrong):
    with pytest.raises(InvalidProblemError, match="missing needs a certificate, or the result of identify; got"):
        eb.missing(wrong)


def test_wrong_arguments_are_named(skewed):
    with pytest.raises(InvalidProblemError, match="target must be greater than 0"):
        eb.missing(skewed, target=0.0)
    other = dataclasses.replace(skewed, method="bernstein", constants="sharp")
    with pytest.raises(InvalidProblemError, match="needs a certificate of method 'kl'"):
        eb.missing(other)


def test_an_empty_log_of_visits_lacks_everything():
    """One state, one step, nothing that more visits could help: there is no plan, and an answer all the same."""
    log = eb.Log.read(table([(0, 0, "only", "go", 0.5, "", True, False)]), **ROLES, states="seen")
    lacking = eb.missing(eb.certify(log, beta=1.0, delta=0.1, horizon=1, reward_range=(0.5, 0.5)))
    assert lacking.suggestions == []


def test_what_limits_the_gap_is_the_same_whenever_it_is_asked():
    """Of as many states as actions: NumPy's add.at has read beyond the numbers to be added."""
    mdp = eb.instances.garnet(6, 3, 2, horizon=5, seed=1)
    run = eb.identify(mdp, beta=1.0, eps=0.05, delta=0.1, stationary=True, max_episodes=200, seed=3)
    found = []
    for _ in range(5):
        used_memory = [np.full(size, 1e3) for size in (3, 10, 100, 1000)]
        del used_memory
        found.append(limits(run.certificate))
    assert found == found[:1] * 5


@pytest.mark.parametrize(("old", "new"), [("fall", "gap_reduction"), ("needed", "visits_needed")])
def test_old_names_say_the_new_ones(old, new):
    with pytest.raises(AttributeError, match=f"Row.{old} is now Row.{new}"):
        getattr(Row(0, "a", "b", 3, 0.5, 7), old)
