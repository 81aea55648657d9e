"""Noise that is seen itself: every visit counts in all balls of its law, and the label must explain what happened."""

import json

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts

ROOM, DEMANDS = 3, [0, 1, 2, 3]
GOAL = {"beta": -0.05, "eps": 0.3, "delta": 0.1, "start": 1, "horizon": 4, "seed": 1}


def day(stock, order, demand):
    full = min(stock + order, ROOM)
    sold = min(demand, full)
    return full - sold, 2.0 * sold - 1.0 * (full - stock)


class Shop(gymnasium.Env):
    """Lost sales: an empty shop sees no demand, but its till counts the customers."""

    observation_space = gymnasium.spaces.Discrete(ROOM + 1)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock = 1
        return self.stock, {"demand": 0}

    def step(self, action):
        demand = int(self.np_random.choice(4, p=[0.3, 0.4, 0.2, 0.1]))
        self.stock, reward = day(self.stock, action, demand)
        return self.stock, reward, False, False, {"demand": demand}


def till(info, state, action, next_state, reward):
    return info["demand"]


OBSERVED = eb.Noise(DEMANDS, day, observed=till)


@pytest.fixture(scope="module")
def run():
    return eb.identify(Shop, noise=OBSERVED, **GOAL)


def test_all_visits_of_a_law_count_in_all_of_its_balls(run):
    problem, transitions = run.certificate.problem, run.certificate.transitions
    pairs = problem.n_states * problem.n_actions
    steps = GOAL["horizon"] * run.episodes
    assert transitions.labels.sum() == steps == transitions.times[transitions.rows < pairs].sum()
    counts = Counts.of(problem, transitions, run.episodes)
    balls = problem.balls
    fed = balls.arrays(counts.arrays, counts.labels)
    for pair in balls.rows:
        classes = balls.slot_of_label[pair]
        for slot in range(counts.arrays.used[pair]):
            tally = fed.tally[fed.begin[pair] + slot]
            assert tally == transitions.labels[classes == slot].sum()
        assert fed.visits[pair] == steps


def test_what_a_full_shelf_hides_is_learned_too(run):
    unseen = eb.identify(Shop, noise=eb.Noise(DEMANDS, day), **GOAL)
    assert run.stopped
    assert run.episodes <= unseen.episodes
    assert "labels, and is seen itself" in " ".join(run.certificate.assumptions)
    assert "is seen itself" not in " ".join(unseen.certificate.assumptions)


def test_the_file_has_the_labels_and_is_verified(run, tmp_path):
    run.certificate.save(tmp_path / "claim.json")
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    assert loaded.transitions.labels.tolist() == run.certificate.transitions.labels.tolist()
    assert eb.verify(tmp_path / "claim.json").ok
    assert eb.verify(eb.certify(loaded, beta=-0.2)).ok


@pytest.mark.parametrize("beta", [-0.1, -0.3])
def test_small_boxes_are_verified(run, beta):
    # Some leaves have eight cuts: with one probability after another fixed, no radius or a single value is left.
    claim = eb.certify(run, beta=beta)
    assert claim.test == "boxes"
    assert eb.verify(claim).ok


def forged(run, change):
    content = json.loads(json.dumps(run.certificate._content()))
    change(content)

    class Forged:
        def _content(self):
            return content

    return eb.verify(Forged())


def exchanged(content):
    labels = content["counts"]["labels"]
    labels[0], labels[1] = labels[1], labels[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c["counts"].update(labels=[x + 1 for x in c["counts"]["labels"]]), "not as many as the visits"),
        (lambda c: c["counts"].update(labels=c["counts"]["labels"][:-1]), "counts.labels"),
        (exchanged, "do not explain the outcomes"),
        (lambda c: c["problem"]["noise"].update(observed=False), "counts.labels"),
        (lambda c: c["problem"]["noise"].update(observed=1), "noise.observed"),
    ],
)
def test_forged_labels_are_rejected(run, change, problem):
    found = forged(run, change)
    assert not found.ok
    assert problem in found.problems[0]


def test_several_copies_show_their_labels():
    found = eb.identify(Shop, noise=OBSERVED, num_envs=3, **GOAL)
    assert found.certificate.transitions.labels.sum() == GOAL["horizon"] * found.episodes
    assert eb.verify(found.certificate).ok


def test_a_run_goes_on_from_a_checkpoint(run, tmp_path):
    path = tmp_path / "run.bin"
    eb.identify(Shop, noise=OBSERVED, checkpoint=path, max_episodes=run.episodes // 2, **GOAL)
    resumed = eb.identify(Shop, noise=OBSERVED, checkpoint=path, **GOAL)
    assert resumed.certificate.transitions.labels.tolist() == run.certificate.transitions.labels.tolist()


def test_ends_of_episodes_are_shown_as_END():
    seen = []

    class Once(Shop):
        def step(self, action):
            demand = int(self.np_random.integers(2))
            return 0, float(demand), True, False, {"demand": demand}

    def observed(info, state, action, next_state, reward):
        seen.append(next_state)
        return info["demand"]

    noise = eb.Noise([0, 1], lambda s, a, w: (eb.END, float(w)), observed=observed)
    eb.identify(Once, noise=noise, **{**GOAL, "horizon": 1}, max_episodes=20)
    assert set(map(id, seen)) == {id(eb.END)}


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (lambda info, *_: 7, "showed the label 7, expected one of"),
        (lambda info, *_: 3 - info["demand"], "which it does not explain"),
        (lambda info, *_: info["sales"], "raised KeyError"),
    ],
)
def test_a_wrong_label_ends_the_run(observed, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(Shop, noise=eb.Noise(DEMANDS, day, observed=observed), **GOAL)


def test_without_an_info_there_is_no_label():
    with pytest.raises(eb.InvalidProblemError, match="observed must be a function"):
        eb.Noise(DEMANDS, day, observed="demand")
    model = eb.FiniteMDP(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), horizon=2)
    noise = eb.Noise([0, 1], lambda s, a, w: w, observed=till)
    with pytest.raises(eb.InvalidProblemError, match="a FiniteMDP has none"):
        eb.identify(model, noise=noise, beta=0.0, eps=0.1, delta=0.1)
    data = {"e": [0, 0], "t": [0, 1], "s": [1, 0], "a": [0, 1], "r": [2.0, 0.0]}
    columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r"}
    log = eb.Log.read(data, **columns, truncated=True, states=range(ROOM + 1))
    with pytest.raises(eb.InvalidProblemError, match="a log has none"):
        eb.certify(log, noise=OBSERVED, beta=0.0, delta=0.1, horizon=1)
    with pytest.raises(eb.InvalidProblemError, match="labels of noise must be given"):
        eb.identify(Shop, noise=OBSERVED, data=log, **GOAL)
    with pytest.raises(eb.InvalidProblemError, match="cannot contain a function"):
        eb.Noise(["a"], {(0, 0, "a"): 0}, observed=till).as_table()


def test_what_is_missing_counts_labels_too():
    short = eb.identify(Shop, noise=OBSERVED, max_episodes=5, **(GOAL | {"eps": 1e-3}))
    needs = eb.missing(short, target=short.certificate.gap / 2)
    assert needs.expected <= needs.target
    assert any(row.gap_reduction > 0 for row in needs.rows)
    assert all(np.isfinite(row.gap_reduction) for row in needs.rows)
