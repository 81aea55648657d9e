"""Counts: nothing is lost, nothing is invented, and memory follows what was seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.counting import dense

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import EXPLICIT_STATES
from entropic_bpi.runs.checkpoint import Checkpoint, read_summary
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings
from entropic_bpi.sources.simulator import Simulator, play_episode
from entropic_bpi.types import Behaviour, Transitions


def problem_of(mdp, **options):
    return Problem.from_mdp(mdp, beta=1.0, eps=0.1, delta=0.1, **options)


def transitions(*triples):
    return Transitions(*(np.array(column, dtype=np.int64) for column in zip(*triples, strict=True)))


SMALL = eb.instances.garnet(5, 2, 3, horizon=3, seed=0)
LARGE = eb.instances.garnet(EXPLICIT_STATES + 40, 2, 3, horizon=3, seed=0)
START = eb.FiniteMDP(SMALL.transitions, SMALL.rewards, horizon=3, start=np.full(5, 0.2))
PROBLEMS = {
    "listed": problem_of(SMALL),
    "pooled": problem_of(SMALL, stationary=True),
    "random start": problem_of(START),
    "open-ended": problem_of(LARGE),
    "open-ended, pooled": problem_of(LARGE, stationary=True),
}


@pytest.mark.parametrize("name", PROBLEMS)
@given(data=st.data())
def test_counts_are_a_dictionary(name, data):
    """Whatever is added in whatever order, a plain dictionary knows the same."""
    problem = PROBLEMS[name]
    # Few rows and many successors, so that rows outgrow their place.
    row = st.integers(0, 3).map(lambda i: i * (problem.n_rows - 1) // 3)
    triple = st.tuples(row, st.integers(0, problem.n_states - 1), st.integers(1, 10**12))
    batches = data.draw(st.lists(st.lists(triple, min_size=1, max_size=40), max_size=4))
    counts, expected = Counts(problem), {}
    for batch in batches:
        counts.add(transitions(*batch), 1)
        for i, y, times in batch:
            expected[i, y] = expected.get((i, y), 0) + times
    seen = counts.transitions()
    found = {(int(i), int(y)): int(t) for i, y, t in zip(*seen[:3], strict=True)}
    assert found == expected
    assert list(found) == sorted(found)
    assert counts.episodes == len(batches)
    for i in {i for i, _ in expected}:
        assert counts.arrays.visits[i] == sum(times for (j, _), times in expected.items() if j == i)


def test_relocation_keeps_every_count():
    problem = PROBLEMS["open-ended"]
    counts, rng = Counts(problem), np.random.default_rng(0)
    expected = np.zeros((problem.n_rows, problem.n_states), dtype=np.int64)
    for _ in range(200):
        i, y = rng.integers(0, 6, 50), rng.integers(0, problem.n_states, 50)
        np.add.at(expected, (i, y), 1)
        counts.add(Transitions(i, y, np.ones(50, dtype=np.int64)), 1)
    np.testing.assert_array_equal(dense(counts), expected)
    assert (counts.arrays.used[:6] > EXPLICIT_STATES).all()  # they did outgrow several places


def test_memory_follows_what_was_visited():
    mdp = eb.instances.garnet(5000, 4, 5, horizon=10, seed=1)
    problem = problem_of(mdp)
    counts = Counts(problem)
    simulator = Simulator(mdp, problem, np.random.default_rng(0))
    policy = np.zeros((10, 5000), dtype=np.int64)
    simulator.play(Behaviour(policy, policy, policy, False), 300, counts)
    visited = np.count_nonzero(counts.arrays.visits)
    assert 100 < visited < 3000
    assert counts.arrays.end[0] <= 16 * visited
    pool = sum(getattr(counts.arrays, name).nbytes for name in ("successor", "tally", "low", "high"))
    whole_table = 8 * 10 * 5000 * 4 * 5000
    assert pool < whole_table / 1000


def test_single_episodes_grow_the_pool_as_batches_do():
    mdp = eb.instances.garnet(400, 2, 30, horizon=6, seed=1)
    problem = problem_of(mdp)
    result = eb.identify(
        mdp, beta=0.5, eps=0.01, delta=0.1, method="bernstein", replan="every", max_episodes=700, seed=0
    )
    seen = result.certificate.transitions
    assert seen.times.sum() == result.certificate.episodes * 6
    counts = Counts(problem)
    simulator = Simulator(mdp, problem, np.random.default_rng(0))
    policy = np.zeros((6, 400), dtype=np.int64)
    for _ in range(300):
        counts.reserve(6 * 1000)
        row = play_episode(
            simulator.kernel, problem.frame, Behaviour(policy, policy, policy, False), counts.arrays, simulator.rng
        )
        assert row == (-1, -1)
    assert dense(counts).sum() == 1800


@pytest.mark.parametrize("random_start", [False, True])
def test_no_single_episode_outgrows_the_spare_room(random_start):
    """With a random start the start's row lists every state, which must not hide that the others are open-ended."""
    n = EXPLICIT_STATES + 40
    uniform = np.full((n, 1, n), 1 / n)
    start = np.full(n, 1 / n) if random_start else 0
    mdp = eb.FiniteMDP(uniform, np.zeros((n, 1)) + 0.5, horizon=2, start=start)
    result = eb.identify(
        mdp, beta=0.5, eps=1e-3, delta=0.1, method="bernstein", replan="every", max_episodes=6000, seed=0
    )
    assert result.certificate.transitions.times.sum() == (2 + random_start) * result.certificate.episodes


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_restored_state_goes_on_like_the_original(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(0)

    def some():
        i, y = rng.integers(0, problem.n_rows, 30), rng.integers(0, problem.n_states, 30)
        return Transitions(i, y, rng.integers(1, 9, 30))

    original, copy = Counts(problem), Counts(problem)
    original.add(some(), 3)
    state = original.state()
    copy.restore(state)
    assert copy.episodes == 3
    more = some()
    original.add(more, 2)
    copy.add(more, 2)
    for ours, theirs in zip(original.transitions(), copy.transitions(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The state was a copy: what was added since is not in it.
    third = Counts(problem)
    third.restore(state)
    assert third.transitions().times.sum() < original.transitions().times.sum()


def test_a_forbidden_successor_is_named_and_the_counts_are_kept():
    kernel = np.full((2, 2, 2), 0.5)
    mdp = eb.FiniteMDP(
        kernel, np.zeros((2, 2)), horizon=3, state_names=["home", "work"], action_names=["stay", "go"]
    )  # fmt: skip
    mask = np.ones((2, 2, 2), dtype=bool)
    mask[1, 0, 0] = False
    counts = Counts(problem_of(mdp, successors=mask))
    counts.add(transitions((0, 0, 5), (0, 1, 4)), 9)
    before = dense(counts)
    row = (2 * 2 + 1) * 2  # step 2, state 1, action 0
    with pytest.raises(eb.InvalidProblemError, match="step 2, state 'work', action 'stay' went to state 'home'"):
        counts.add(transitions((0, 0, 7), (row, 1, 2), (row, 0, 1), (1, 1, 1)), 3)
    np.testing.assert_array_equal(dense(counts), before)
    assert counts.episodes == 9
    with pytest.raises(eb.InvalidProblemError, match="after 9 episodes, which are kept"):
        counts.add(transitions((row, 0, 1)), 1)
    counts.add(transitions((row, 1, 1)), 1)
    assert dense(counts).sum() == 10


def test_a_wrong_start_is_named():
    problem = problem_of(eb.FiniteMDP(SMALL.transitions, SMALL.rewards, horizon=3, start=[0.5, 0.5, 0, 0, 0]),
                         successors="model")  # fmt: skip
    with pytest.raises(eb.InvalidProblemError, match="the random start went to state '4'"):
        Counts(problem).add(transitions((problem.n_rows - 1, 4, 1)), 1)


@pytest.mark.parametrize("replan", ["every", 0.3])
@pytest.mark.parametrize("options", [{"method": "kl"}, {"method": "bernstein", "constants": "sharp"}], ids=str)
def test_a_run_on_a_wrong_mask_keeps_whole_episodes_and_fails_again_when_resumed(tmp_path, options, replan):
    kernel = np.array([[[0.96, 0.03, 0.01], [0.95, 0.04, 0.01]], [[0.0, 0.5, 0.5]] * 2, [[0.0, 0.5, 0.5]] * 2])
    mdp = eb.FiniteMDP(kernel, np.array([[0.5, 0.5], [0.0, 0.0], [1.0, 1.0]]), horizon=3)
    mask = kernel > 0
    mask[0, :, 2] = False
    path = tmp_path / "run.ckpt"
    run = {"beta": 1.0, "eps": 1e-9, "delta": 0.1, "successors": mask, "seed": 1, "replan": replan, "checkpoint": path}
    with pytest.raises(eb.InvalidProblemError, match=r"state '0', action '\d' went to state '2'.*kept") as first:
        eb.identify(mdp, **run, **options)
    loop = start_run(
        mdp, Settings.of(**{name: value for name, value in run.items() if name != "checkpoint"}, **options)
    )
    state = loop.state
    facts = read_summary(path)["facts"]
    counts = Checkpoint(path, facts, 1).read().state(state.problem, state.provenance).counts
    assert counts.episodes > 0
    assert f"after {counts.episodes} episodes" in str(first.value)
    assert (
        counts.arrays.visits.sum() == counts.seen().times.sum() == 3 * counts.episodes
    )  # no part of the one that failed
    # Going on would discard what contradicts the assumption: the run must fail again, at the same place.
    with pytest.raises(eb.InvalidProblemError, match="went to state '2'") as second:
        eb.identify(mdp, **run, **options)
    assert str(second.value) == str(first.value)
