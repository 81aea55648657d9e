"""Declared rewards of environments and logs: what they save, and what contradicts them."""

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app

GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1}


class Shop(gymnasium.Env):
    """Up to 3 items; ordering costs 0.1 each, selling pays 0.5 each; a shop without items closes sometimes."""

    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(3)
    wrong = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock = 3
        return 3, {}

    def step(self, action):
        before, held = self.stock, min(self.stock + int(action), 3)
        self.stock = max(held - int(self.np_random.integers(3)), 0)
        closes = self.stock == 0 and self.np_random.random() < 0.3
        late = self.wrong if self.stock == 2 else 0.0
        return self.stock, price(before, action, self.stock) + late, closes, False, {}


def price(stock, order, left):
    held = min(stock + int(order), 3)
    return 0.5 * max(held - left, 0) - 0.1 * (held - stock) if left is not eb.END else 0.5 * held - 0.1 * (held - stock)


TABLE = np.array([[[price(s, a, y) for y in range(4)] for a in range(3)] for s in range(4)])
RUN = {"horizon": 3, "start": "fixed", "seed": 1, **GOAL}
MODEL_FREE = {"reward_range": (-0.3, 1.5)}


@pytest.mark.parametrize(
    "reward",
    [price, TABLE, TABLE.tolist(), {(s, a, y): float(TABLE[s, a, y]) for s, a, y in np.ndindex(TABLE.shape)}],
)
def test_known_rewards_need_no_range(reward, tmp_path):
    claim = eb.identify(Shop(), **RUN, reward=reward, max_episodes=200).certificate
    assert claim.gap < eb.identify(Shop(), **RUN, **MODEL_FREE, max_episodes=200).certificate.gap
    assert claim.problem.declared_range == (TABLE.min(), TABLE.max())
    assert [said for said in claim.assumptions if "a known function of state, action and the next observation" in said]
    claim.save(tmp_path / "claim.json")
    assert eb.Certificate.load(tmp_path / "claim.json")._content() == claim._content()
    assert eb.verify(tmp_path / "claim.json").problems == []
    assert eb.verify(claim, rigorous=True).proved
    again = eb.certify(eb.Certificate.load(tmp_path / "claim.json"), beta=-2.0)
    assert eb.verify(again).ok


@pytest.mark.parametrize("many", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_bounds_hold(many):
    """Against the model of the shop, whose closed state pays nothing."""
    kernel, rewards = np.zeros((5, 3, 5)), np.zeros((5, 3, 5))
    kernel[4, :, 4] = 1
    for s, a in np.ndindex(4, 3):
        for demand in range(3):
            left = max(min(s + a, 3) - demand, 0)
            kernel[s, a, left] += (0.7 if left == 0 else 1.0) / 3
            kernel[s, a, 4] += (0.3 if left == 0 else 0.0) / 3
        rewards[s, a, :4], rewards[s, a, 4] = TABLE[s, a], TABLE[s, a, 0]
    truth = eb.FiniteMDP(kernel, np.stack([rewards] * 3), horizon=3, start=3)
    for seed in range(many):
        for beta in (-2.0, 1.0):
            claim = eb.identify(Shop(), **{**RUN, "beta": beta, "seed": seed}, reward=price).certificate
            best, own = eb.solve(truth, beta).value, eb.evaluate(truth, claim.policy, beta).value
            assert claim.lower <= own <= best <= claim.upper
            assert best - own <= claim.gap


def test_successors_that_are_declared_need_no_other_rewards():
    def following(s, a):
        return [*range(4), eb.END] if s or a else [0, eb.END]

    table = {(s, a, y): float(TABLE[s, a, y]) for s, a, y in np.ndindex(TABLE.shape)}
    claim = eb.identify(Shop(), **RUN, reward=table, successors=following).certificate
    assert eb.verify(claim).ok
    del table[2, 1, 3]
    with pytest.raises(eb.InvalidProblemError, match=r"reward has no value for \(2, 1, 3\)"):
        eb.identify(Shop(), **RUN, reward=table, successors=following)
    claim = eb.identify(Shop(), **RUN, reward=table, successors=lambda s, a: [0, 1, 2] if (s, a) == (2, 1) else range(4),
                        max_episodes=1).certificate  # fmt: skip
    assert claim.problem.successors == "mask"


def test_another_reward_is_a_contradiction():
    env = Shop()
    env.wrong = 0.01
    message = r"state '3', action '\d' to state '2' paid 0.\d+, but the declared reward is 0.\d"
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(env, **{**RUN, "eps": 1e-3}, reward=price, max_episodes=100)
    env.wrong = 1e-12  # rounding
    claim = eb.identify(env, **{**RUN, "eps": 1e-3}, reward=price, max_episodes=100).certificate
    assert np.isin(claim.transitions.rewards, [*TABLE.ravel(), claim.problem.possible_rewards[0]]).all()


def test_what_is_paid_at_the_end_is_that_of_the_observation():
    class Elsewhere(Shop):
        def step(self, action):
            state, reward, closes, *rest = super().step(action)
            return (3 if closes else state), reward, closes, *rest

    message = r"but the declared reward for an end with observation .*3.* is"
    for copies in (1, 2):
        with pytest.raises(eb.InvalidProblemError, match=message):
            eb.identify(Elsewhere, **{**RUN, "eps": 1e-3}, reward=price, max_episodes=400, num_envs=copies)


def test_what_is_paid_at_the_end_must_be_a_reward_of_the_pair():
    class Bonus(Shop):
        def step(self, action):
            state, reward, closes, *rest = super().step(action)
            return state, 0.33 if closes else reward, closes, *rest

    with pytest.raises(eb.InvalidProblemError, match=r"paid 0\.33"):
        eb.identify(Bonus(), **{**RUN, "eps": 1e-3}, reward=price, max_episodes=400)


@pytest.mark.parametrize(
    ("reward", "more", "message"),
    [
        (TABLE[:2], {}, r"array of shape \(S, A\) = \(4, 3\) or \(S, A, S\) = \(4, 3, 4\), got \(2, 3, 4\)"),
        (3.0, {}, "reward must be a function"),
        ([[np.nan] * 3] * 4, {}, "finite numbers"),
        ({(0, 0): 1.0}, {}, r"reward has no value for \(0, 1, 0\)"),
        ({(0, 9): 1.0}, {}, r"reward has the key \(0, 9\)"),
        ({(0, 0): "much"}, {}, "must be a finite real number"),
        (lambda s, a, y: 1 / 0, {}, r"reward\(0, 0, 0\) raised ZeroDivisionError"),
        (price, {"reward_range": (0, 1)}, "reward is from -0.2 to 1.5, outside reward_range"),
        (price, {"reward_law": "random"}, "known rewards are not random"),
        (price, {"max_states": 5}, "known rewards need states that are listed"),
        (price, {"noise": eb.Noise([0], lambda s, a, w: s)}, "the outcome of a label includes its reward"),
    ],
)
def test_rewards_that_are_none(reward, more, message):
    with pytest.raises(eb.EntropicBPIError, match=message):
        eb.identify(Shop(), **RUN, reward=reward, **more, max_episodes=3)


def test_a_model_s_rewards_are_known():
    with pytest.raises(eb.InvalidProblemError, match="a FiniteMDP's rewards are known"):
        eb.identify(eb.instances.risky_bridge(), **GOAL, reward=price)


def test_checkpoints_know_the_rewards(tmp_path):
    run = {**RUN, "eps": 1e-3, "checkpoint": tmp_path / "run.bin"}
    eb.identify(Shop(), **run, reward=TABLE, max_episodes=5)
    eb.identify(Shop(), **run, reward=TABLE, max_episodes=9)
    with pytest.raises(eb.InvalidProblemError, match="another run"):
        eb.identify(Shop(), **run, reward=2 * TABLE, max_episodes=9)


def log(rewards):
    n = len(rewards)
    columns = {
        "episode": np.arange(n),
        "step": np.zeros(n, dtype=int),
        "state": np.array(["full", "empty"] * (n // 2)),
        "action": np.array(["sell"] * n),
        "reward": np.array(rewards),
        "terminated": np.ones(n, dtype=bool),
    }
    return eb.Log.read(columns, **{name: name for name in columns}, states=["full", "empty"], actions=["sell", "wait"])


def test_known_rewards_of_a_log():
    declared = {"beta": -1.0, "delta": 0.1, "horizon": 1}
    prices = {("full", "sell"): 1.0, ("empty", "sell"): 0.0, ("full", "wait"): 0.0, ("empty", "wait"): 0.0}
    seen = log([1.0, 0.0] * 50)
    claim = eb.certify(seen, **declared, reward=prices)
    assert eb.verify(claim).ok
    assert claim.gap < 0.1 * eb.certify(seen, **declared, reward_range=(0, 1)).gap
    asked = eb.certify(seen, **declared, reward=lambda s, a, y: float(s == "full" and a == "sell" and y is eb.END))
    assert eb.verify(asked).ok
    with pytest.raises(
        eb.InvalidProblemError, match=r"line 4 of .*state 'empty', action 'sell' to state 'end' paid 0.5"
    ):
        eb.certify(log([1.0, 0.0, 1.0, 0.5]), **declared, reward=prices)


@pytest.mark.parametrize(
    "reward", [TABLE, TABLE[:, :, 0], {(0, "a"): 0.5}, {(0, (1, 2), eb.END): 1.5, (1, 0, 0): -2.0}]
)
def test_problem_files(reward, tmp_path):
    eb.Declarations(horizon=3, reward=reward).save(tmp_path / "problem.toml")
    loaded = eb.Declarations.load(tmp_path / "problem.toml").reward
    if isinstance(reward, dict):
        assert loaded == reward
    else:
        np.testing.assert_array_equal(loaded, reward if reward.ndim == 3 else reward[..., None])
    with pytest.raises(eb.InvalidProblemError, match="cannot contain"):
        eb.Declarations(reward=price).save(tmp_path / "problem.toml")


def test_the_option(tmp_path):
    np.save(tmp_path / "nothing.npy", np.zeros((16, 4)))
    words = "gym:FrozenLake-v1 --horizon 3 --beta -1 --eps 0.01 --delta 0.1 --max-episodes 9"
    words = ["identify", *words.split(), "--reward", str(tmp_path / "nothing.npy"), "--out", str(tmp_path / "run")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert eb.Certificate.load(tmp_path / "run" / "certificate.json").problem.reward is not None
