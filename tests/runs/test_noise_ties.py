"""How often the test of declared noise accuses a declaration that is true: no more often than its level says."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

import entropic_bpi as eb
from entropic_bpi.runs.verdicts import LEVEL, REJECTED_FROM, log_e_of_steps
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, AssumptionTests, Batch

H, ROOM, ORDERS, DEMANDS, END = 4, 3, 3, 4, 4


def sell(stock, order, demand):
    """A demand of 3 ends the episode."""
    full = min(stock + order, ROOM)
    left = max(full - demand, 0)
    return (eb.END, -1.0) if demand == 3 else (left, 2.0 * (full - left) - (full - stock))


def shop():
    """The problem of a black box with this noise, as a log declares it."""
    table = {"e": [0], "t": [0], "s": [0], "a": [0], "r": [0.0]}
    roles = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
    log = eb.Log.read(table, **roles, truncated=True, states=range(ROOM + 1), actions=range(ORDERS))
    goal = {"eps": 1.0, "delta": 0.1, "risk": eb.Entropic(-0.5), "horizon": H}
    return log.problem(log.all_states(), noise=eb.Noise(range(DEMANDS), sell), **goal)


def outcome(stock, order, demand):
    following, reward = sell(stock, order, demand)
    return (END if following is eb.END else following), reward


OUTCOMES = [[[outcome(s, a, w) for w in range(DEMANDS)] for a in range(ORDERS)] for s in range(ROOM + 1)]
FOLLOWING = np.array([[[y for y, _ in some] for some in row] for row in OUTCOMES])
PAID = np.array([[[r for _, r in some] for some in row] for row in OUTCOMES])


FULL = np.minimum(np.arange(ROOM + 1)[:, None] + np.arange(ORDERS), ROOM) == ROOM


def played(rng, laws, policy, episodes):
    """A batch of episodes with a law of the demand for each state and action, and the mean of their returns."""
    visits, returns = Counter(), np.zeros(episodes)
    state, previous = rng.integers(ROOM + 1, size=episodes), np.full(episodes, BEFORE_THE_FIRST)
    starts = Counter(state.tolist())
    running = np.arange(episodes)
    for h in range(H):
        action = policy[h, state]
        below = np.cumsum(laws, axis=-1)[state, action, :-1]
        demand = (rng.random((len(state), 1)) >= below).sum(axis=1)
        following, paid = FOLLOWING[state, action, demand], PAID[state, action, demand]
        columns = (np.full(len(state), h), state, action, following, paid, previous)
        visits.update(zip(*(column.tolist() for column in columns), strict=True))
        returns[running] += paid
        alive = following != END
        running, previous, state = running[alive], state[alive], following[alive]
    return Batch(starts, visits, Counter(returns.tolist())), returns.mean()


def alarms_in(streams, *, shared=True):
    """How many streams the test ever rejects, which looks after every batch; unless ``shared``, a full shop has its own law.

    A policy is kept as long as it pays more than the ones before, so what is visited depends on what came out.
    """
    problem, alarms = shop(), 0
    for stream in streams:
        rng = np.random.default_rng((6, stream))
        one, other = rng.dirichlet(np.full(DEMANDS, rng.choice([0.3, 1.0, 5.0])), size=2)
        laws, tests = np.where(FULL[..., None] & (not shared), other, one), AssumptionTests(problem)
        assert tests.by_pair is not None
        policy, best, episodes = rng.integers(ORDERS, size=(H, ROOM + 1)), -np.inf, 4
        while episodes <= 512:
            batch, mean = played(rng, laws, policy, episodes)
            tests.add(batch)
            if log_e_of_steps(tests.by_step, tests.by_pair) >= REJECTED_FROM:
                alarms += 1
                break
            if mean <= best:
                policy = rng.integers(ORDERS, size=(H, ROOM + 1))
            best, episodes = max(best, mean), 2 * episodes
    return alarms


def test_true_noise_is_hardly_ever_accused():
    streams = 40
    assert stats.binomtest(alarms_in(range(streams)), streams, LEVEL, alternative="greater").pvalue > 1e-3


def test_noise_that_is_not_shared_is_accused():
    assert alarms_in(range(20), shared=False) >= 14


@pytest.mark.slow
def test_in_many_streams_false_alarms_are_at_most_one_in_a_hundred():
    streams = 4000
    alarms = alarms_in(range(1000, 1000 + streams))
    assert stats.binomtest(alarms, streams, LEVEL, alternative="greater").pvalue > 1e-3
