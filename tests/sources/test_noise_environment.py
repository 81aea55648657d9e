"""Declared noise of environments and logs: rewards and ends are part of the outcome, and are checked at every visit."""

import json

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb

LAW = [0.3, 0.4, 0.2, 0.1]
GOAL = {"horizon": 4, "beta": -0.5, "eps": 1.5, "delta": 0.1, "start": 1, "seed": 1}


def sell(stock, order, demand):
    """Demand 3 closes the shop. A demand of 2 with an empty shop costs a fine: two rewards for one next state."""
    full = min(stock + order, 3)
    if demand == 3:
        return eb.END, -1.0
    left = max(full - demand, 0)
    return left, 2.0 * (full - left) - (full - stock) - (0.5 if full == 0 and demand == 2 else 0.0)


class Shop(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, outcome=sell):
        self.outcome = outcome

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock = 1
        return self.stock, {}

    def step(self, action):
        following, reward = self.outcome(self.stock, int(action), int(self.np_random.choice(4, p=LAW)))
        ended = following is eb.END
        self.stock = self.stock if ended else following
        return self.stock, reward, ended, False, {}


def test_a_black_box_with_known_mechanics_is_certified_and_verified(tmp_path):
    result = eb.identify(Shop(), noise=eb.Noise(range(4), sell), **GOAL)
    assert result.stopped
    problem = result.certificate.problem
    # An empty shop: the next state is 0 with two rewards, and the end.
    assert problem.slots.used[0] == 3
    every = [sell(s, a, w)[1] for s in range(4) for a in range(3) for w in range(4)]
    assert problem.reward_range == (min(every), max(every))
    result.certificate.save(tmp_path / "certificate.json")
    assert eb.verify(tmp_path / "certificate.json").ok
    assert eb.Certificate.load(tmp_path / "certificate.json").problem.rows_at_risk == problem.rows_at_risk
    assert any("one unknown law on 4 labels" in sentence for sentence in result.certificate.assumptions)


def test_rewards_that_are_not_declared_are_learned():
    noise = eb.Noise(range(4), lambda s, a, w: sell(s, a, w)[0])

    def without_fine(stock, order, demand):
        following, reward = sell(stock, order, demand)
        return (following, reward + 0.5) if (following, reward) == (0, -0.5) else (following, reward)

    result = eb.identify(Shop(without_fine), noise=noise, reward_range=(-3, 6), **{**GOAL, "eps": 6.0})
    assert result.stopped
    assert eb.verify(result.certificate).ok
    with pytest.raises(eb.InvalidProblemError, match="need reward_range"):
        eb.identify(Shop(), noise=noise, **GOAL)


def test_another_reward_is_a_contradiction_that_names_the_pair():
    def dearer(stock, order, demand):
        following, reward = sell(stock, order, demand)
        return following, reward - (0.25 if (stock, order) == (1, 1) else 0.0)

    wrong = r"state '1', action '1' went to state '.*' with reward .*, which no label explains"
    with pytest.raises(eb.InvalidProblemError, match=wrong):
        eb.identify(Shop(dearer), noise=eb.Noise(range(4), sell), reward_range=(-9, 9), **GOAL)


def test_an_end_that_no_label_has_is_a_contradiction():
    noise = eb.Noise(range(3), sell)
    with pytest.raises(eb.InvalidProblemError, match="went to state 'end'"):
        eb.identify(Shop(), noise=noise, reward_range=(-9, 9), **{**GOAL, "eps": 0.01}, max_episodes=300)


def test_a_law_that_changes_by_step_is_refused():
    with pytest.raises(eb.InvalidProblemError, match="same law at every step"):
        eb.identify(Shop(), noise=eb.Noise(range(4), sell), stationary=False, **GOAL)


def test_rewards_that_cannot_be_told_apart_are_refused():
    noise = eb.Noise(range(4), lambda s, a, w: (0, 1.0 + 1e-12 * w))
    with pytest.raises(eb.InvalidProblemError, match="too close together"):
        eb.identify(Shop(), noise=noise, reward_range=(0, 2), **GOAL)


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    declared = {"noise": eb.Noise(range(4), sell), **GOAL, "eps": 0.5, "replan": "every"}
    whole = eb.identify(Shop(), max_episodes=30, **declared)
    eb.identify(Shop(), max_episodes=11, checkpoint=tmp_path / "run", **declared)
    rest = eb.identify(Shop(), max_episodes=30, checkpoint=tmp_path / "run", **declared)
    assert rest.episodes == whole.episodes
    assert rest.certificate.gap == whole.certificate.gap


def log_of(episodes):
    env, rng, lines = Shop(), np.random.default_rng(3), []
    for episode in range(episodes):
        state, _ = env.reset(seed=episode)
        for step in range(4):
            action = int(rng.integers(3))
            following, reward, ended, _, _ = env.step(action)
            lines.append((episode, step, state, action, reward, ended))
            state = following
            if ended:
                break
    columns = ("episode", "step", "state", "action", "reward", "terminated")
    table = {name: [line[i] for line in lines] for i, name in enumerate(columns)}
    return eb.Log.read(table, **{name: name for name in columns}, truncated=True, states=range(4))


def test_a_log_with_known_mechanics_is_certified():
    pytest.importorskip("duckdb")
    log = log_of(300)
    declared = {"horizon": 4, "beta": -0.5, "delta": 0.1, "start": 1}
    shared = eb.certify(log, noise=eb.Noise(range(4), sell), **declared)
    apart = eb.certify(log, reward_range=(-3, 6), **declared)
    assert eb.verify(shared).ok
    assert shared.gap < 0.5 * apart.gap
    with pytest.raises(eb.InvalidProblemError, match=r"line .* which no label explains"):
        eb.certify(log, noise=eb.Noise(range(2), lambda s, a, w: sell(s, a, w)), reward_range=(-3, 6), **declared)


FORGERIES = {
    "classes": lambda noise: noise["classes"].reverse(),
    "law": lambda noise: noise["law"].__setitem__(0, 1),
    "labels": lambda noise: noise["labels"].append(["a"]),
    "fewer labels": lambda noise: noise["labels"][0].pop(),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_forged_mechanics_are_not_verified(what, tmp_path):
    result = eb.identify(Shop(), noise=eb.Noise(range(4), sell), **GOAL)
    content = result.certificate._content()
    content = json.loads(json.dumps(content))
    FORGERIES[what](content["problem"]["noise"])
    from entropic_bpi.certificate.contents import digest

    path = tmp_path / "forged.json"
    path.write_text(json.dumps({**content, "digest": digest(content)}))
    assert not eb.verify(path).ok


class Uneven(Shop):
    """A shop in which a stock of 3 meets another demand than the others."""

    def step(self, action):
        full = min(self.stock + int(action), 3)
        law = [0.05, 0.15, 0.7, 0.1] if full == 3 else LAW
        following, reward = sell(self.stock, int(action), int(self.np_random.choice(4, p=law)))
        ended = following is eb.END
        self.stock = self.stock if ended else following
        return self.stock, reward, ended, False, {}


def test_a_law_that_is_not_shared_is_found_out():
    declared = {**GOAL, "eps": 1e-13, "max_episodes": 2000}
    with pytest.raises(eb.InvalidProblemError, match=r"does not have the declared law everywhere.*look at state '\d'"):
        eb.identify(Uneven(), noise=eb.Noise(range(4), sell), **declared)


@pytest.mark.parametrize("seed", range(3))
def test_a_shared_law_raises_no_alarm(seed):
    declared = {**GOAL, "eps": 1e-3, "max_episodes": 300, "seed": seed}
    result = eb.identify(Shop(), noise=eb.Noise(range(4), sell), **declared)
    tests = result.certificate.provenance.tests
    assert tests.stationary < 4.6
    assert "and have the declared laws (log e-value" in result.certificate.assumptions[-1]
    assert eb.verify(result.certificate).ok
