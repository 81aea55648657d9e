"""Many episodes at once are drawn in the law of episodes played one at a time."""

import itertools
from collections import Counter

import numpy as np
import pytest
from reference.counting import dense
from scipy import stats

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.simulator import Simulator, play_episode
from entropic_bpi.types import Behaviour

KERNEL = np.array(
    [
        [[0.5, 0.3, 0.2], [0.0, 0.6, 0.4]],
        [[1.0, 0.0, 0.0], [0.25, 0.0, 0.75]],
        [[0.1, 0.9, 0.0], [0.0, 0.0, 1.0]],
    ]
)
START = np.array([0.2, 0.0, 0.8])


def model(*, per_step=False, random_start=False):
    kernel = np.stack([KERNEL, KERNEL[[1, 2, 0]]]) if per_step else KERNEL
    rewards = np.arange(6.0).reshape(3, 2) / 6
    return eb.FiniteMDP(kernel, rewards, horizon=2, start=START if random_start else 0)


def setting(*, per_step=False, random_start=False, stationary=False, successors=None, seed=0):
    mdp = model(per_step=per_step, random_start=random_start)
    problem = Problem.from_mdp(mdp, beta=1.0, eps=0.1, delta=0.1, stationary=stationary, successors=successors)
    return mdp, problem, Simulator(mdp, problem, np.random.default_rng(seed))


def behaviour_of(problem, leading):
    """Three different actions tables, so that whichever is followed shows."""
    steps = problem.steps
    greedy = np.array([[1, 0, 1]] * steps)
    lead = np.array([[0, 1, 0]] * steps)
    turn = np.full((steps, 3), -1)
    if problem.artificial:
        greedy[0] = lead[0] = 0
    turn[-1] = [1, -1, 0]  # turns at the last step only
    turn[-2, 2] = 1 if not problem.artificial or steps > 2 else -1
    return Behaviour(greedy, lead, turn, leading)


def trajectories(mdp, problem, behaviour):
    """Every trajectory as its (row, successor) pairs, with its probability, from the definitions."""
    done = []

    def extend(h, s, leading, path, probability):
        if h == problem.steps:
            done.append((tuple(path), probability))
            return
        if problem.artificial and h == 0:
            row, law, going = problem.n_rows - 1, mdp.start_distribution, leading
        else:
            step = h - problem.artificial
            if not leading:
                a, going = behaviour.greedy[h, s], False
            elif behaviour.switch_action[h, s] >= 0:
                a, going = behaviour.switch_action[h, s], False
            else:
                a, going = behaviour.lead[h, s], True
            row = s * 2 + a if problem.stationary else (step * 3 + s) * 2 + a
            law = np.asarray(mdp.step_kernel(step)).reshape(3, 2, 3)[s, a]
        for successor in np.flatnonzero(law):
            extend(h + 1, successor, going, [*path, (int(row), int(successor))], probability * law[successor])

    extend(0, 0 if problem.artificial else mdp.start, behaviour.leading, [], 1.0)
    return done


def law_of_counts(mdp, problem, behaviour, episodes):
    """Probability of each table of counts after some independent episodes."""
    law = {(): 1.0}
    for _ in range(episodes):
        new = Counter()
        for (path, p), (seen, q) in itertools.product(trajectories(mdp, problem, behaviour), law.items()):
            new[tuple(sorted(seen + path))] += p * q
        law = new
    return law


def outcome(counts):
    table = dense(counts)
    rows, successors = np.nonzero(table)
    return tuple(
        sorted((int(r), int(y)) for r, y in zip(rows, successors, strict=True) for _ in range(table[r, y]))
    )  # fmt: skip


def p_value(observed, law):
    """Pearson's test with rare outcomes taken together."""
    total = sum(observed.values())
    assert set(observed) <= set(law)  # nothing impossible happened
    common = [key for key, p in law.items() if p * total >= 8]
    expected = [law[key] * total for key in common]
    counts = [observed[key] for key in common]
    rest = total - sum(expected)
    if rest > 1e-9 * total:
        expected.append(rest)
        counts.append(total - sum(counts))
    return stats.chisquare(counts, np.array(expected) * (sum(counts) / sum(expected))).pvalue


CASES = [
    {},
    {"random_start": True},
    {"per_step": True},
    {"stationary": True},
    {"stationary": True, "random_start": True, "successors": "model"},
]


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_batches_have_the_law_of_independent_episodes(case, leading):
    mdp, problem, simulator = setting(**case)
    behaviour = behaviour_of(problem, leading)
    law = law_of_counts(mdp, problem, behaviour, 2)
    assert sum(law.values()) == pytest.approx(1.0)
    observed = Counter()
    for _ in range(3000):
        counts = Counts(problem)
        simulator.play(behaviour, 2, counts)
        observed[outcome(counts)] += 1
    assert p_value(observed, law) > 1e-4


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_single_episodes_have_the_law_of_the_model(case, leading):
    mdp, problem, simulator = setting(**case)
    behaviour = behaviour_of(problem, leading)
    law = law_of_counts(mdp, problem, behaviour, 1)
    observed = Counter()
    for _ in range(2000):
        counts = Counts(problem)
        assert play_episode(simulator.kernel, problem.frame, behaviour, counts.arrays, simulator.rng) == (-1, -1)
        observed[outcome(counts)] += 1
    assert p_value(observed, law) > 1e-4


@pytest.mark.parametrize("episodes", [50, 10**6, 10**12])
def test_batches_have_the_right_moments_at_every_size(episodes):
    mdp, problem, simulator = setting()
    behaviour = behaviour_of(problem, True)
    paths = trajectories(mdp, problem, behaviour)
    pairs = sorted({pair for path, _ in paths for pair in path})
    probability = np.array([sum(p for path, p in paths if pair in path) for pair in pairs])
    joint = np.array([[sum(p for path, p in paths if a in path and b in path) for b in pairs] for a in pairs])
    covariance = joint - np.outer(probability, probability)
    draws = []
    for _ in range(1500):
        counts = Counts(problem)
        simulator.play(behaviour, episodes, counts)
        table = dense(counts)
        draws.append([table[pair] for pair in pairs])
    scaled = (np.array(draws, dtype=float) - episodes * probability) / np.sqrt(episodes)
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(scaled.mean(axis=0)) <= 4.5 * spread / np.sqrt(1500)).all()
    np.testing.assert_allclose(np.cov(scaled.T), covariance, atol=0.04)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_visitors_are_conserved(case):
    """As many leave a state as arrived, and every episode takes every step."""
    _, problem, simulator = setting(**case)
    counts = Counts(problem)
    for episodes in (1, 10, 12345, 10**9):
        simulator.play(behaviour_of(problem, episodes % 2 == 0), episodes, counts)
    table, played = dense(counts), 10**9 + 12356
    assert counts.episodes == played
    np.testing.assert_array_equal(table.sum(axis=1), counts.arrays.visits)
    starts = table[-1] if problem.artificial else played * np.eye(3, dtype=int)[0]
    assert starts.sum() == played
    rows = table[:-1] if problem.artificial else table
    if problem.stationary:
        assert rows.sum() == 2 * played
        return
    steps = rows.reshape(2, 3, 2, 3)
    np.testing.assert_array_equal(steps[0].sum(axis=(1, 2)), starts)
    np.testing.assert_array_equal(steps[1].sum(axis=(1, 2)), steps[0].sum(axis=(0, 1)))


def test_a_batch_goes_only_where_the_model_can():
    _, problem, simulator = setting()
    counts = Counts(problem)
    simulator.play(behaviour_of(problem, False), 10**15, counts)
    table = dense(counts).reshape(2, 3, 2, 3)
    assert table.sum() == 2 * 10**15
    assert (table[:, KERNEL == 0] == 0).all()


def test_the_start_row_learns_the_start():
    _, problem, simulator = setting(random_start=True)
    counts = Counts(problem)
    simulator.play(behaviour_of(problem, False), 10**6, counts)
    assert stats.chisquare(dense(counts)[-1][[0, 2]], 1e6 * START[[0, 2]]).pvalue > 1e-4
    assert dense(counts)[-1][1] == 0
