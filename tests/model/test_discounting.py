"""Discounted returns that never end: against long horizons in plain NumPy, and against tails that pay all they can."""

import json
import math

import gymnasium
import numpy as np
import pytest
from mpmath import mp, mpf
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.model.discounting import horizon_for, tail_of
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

SWIM = eb.instances.river_swim(4, horizon=1)
GOAL = {"beta": -1.0, "delta": 0.1}


def endless_value(kernel, rewards, beta, discount, policy=None, start=0, steps=3000):
    """V of the first ``steps`` steps in plain NumPy, values carried in units of their own step."""
    values = np.zeros(len(kernel))
    for h in reversed(range(steps)):
        strength = beta * discount**h
        after = discount * values
        if abs(strength) < 1e-9:
            means = kernel @ after
        else:
            means = np.log1p(kernel @ np.expm1(strength * after)) / strength
        q_values = rewards + means
        if policy is None or h >= len(policy):
            values = q_values.max(axis=1)
        else:
            values = q_values[np.arange(len(kernel)), policy[h]]
    return values[start]


def truth(mdp, beta, discount, policy=None):
    return endless_value(np.asarray(mdp.transitions), np.asarray(mdp.rewards), beta, discount, policy, mdp.start)


class TestTail:
    @pytest.mark.parametrize(("discount", "horizon"), [(0.5, 1), (0.9, 40), (0.999, 3000), (1e-3, 5), (1 - 1e-12, 10)])
    def test_it_contains_the_exact_one_and_hardly_more(self, discount, horizon):
        with mp.workdps(60):
            exact = mpf(discount) ** horizon / (1 - mpf(discount))
            for ends in ((-1.0, 2.0), (0.5, 3.0), (-4.0, -0.25), (0.0, 0.0)):
                low, high = tail_of(discount, horizon, ends)
                assert mpf(low) <= exact * mpf(ends[0]) <= mpf(high)
                assert mpf(low) <= exact * mpf(ends[1]) <= mpf(high)
                assert mpf(high) - mpf(low) <= exact * (mpf(ends[1]) - mpf(ends[0]) + mpf(1e-13) * 8)

    def test_the_horizon_is_the_smallest_that_leaves_a_tenth_of_eps(self):
        for discount, ends, eps in ((0.9, (0.0, 1.0), 0.1), (0.99, (-3.0, 1.0), 0.5), (0.3, (1.0, 1.0), 2.0)):
            horizon = horizon_for(discount, ends, eps)
            assert max(map(abs, tail_of(discount, horizon, ends))) <= 0.1 * eps * (1 + 1e-12)
            assert max(map(abs, tail_of(discount, horizon - 1, ends))) > 0.1 * eps
        assert horizon_for(0.9, (0.0, 0.0), 0.1) == 1
        assert (
            horizon_for(0.9, (0.0, 1e300), 1e-300) > 7000
        )  # a tenth of eps, divided by the largest return, underflows
        long = eb.discounted(SWIM, 0.99).horizon
        assert 0.99**long <= 1e-9 < 0.99 ** (long - 1)


class TestPlanning:
    @pytest.mark.parametrize("beta", [-3.0, -0.5, 0.0, 2.0])
    def test_the_value_is_that_of_a_long_horizon(self, beta):
        solution = eb.solve(SWIM, beta, discount=0.9)
        exact = truth(SWIM, beta, 0.9)
        assert solution.value == pytest.approx(exact, abs=1e-7)
        assert solution.value + solution.tail[0] - 1e-12 <= exact <= solution.value + solution.tail[1] + 1e-12
        short = eb.solve(SWIM, beta, discount=0.9, horizon=12)
        assert short.policy.shape == (12, 4)
        assert short.value + short.tail[0] - 1e-12 <= exact <= short.value + short.tail[1] + 1e-12
        of_policy = eb.evaluate(SWIM, short.policy, beta, discount=0.9)
        assert (of_policy.value, of_policy.tail) == (pytest.approx(short.value, abs=1e-12), short.tail)
        assert eb.evaluate(SWIM, np.zeros(4, dtype=int), beta, discount=0.9).values.shape == (198, 4)

    def test_independent_rewards_add_up_step_by_step(self):
        """A coin at every step that pays 0 or 1 on the way: the risks of γ^h times a coin, added up."""
        coin = eb.FiniteMDP(np.full((2, 1, 2), 0.5), np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), horizon=1)
        value = eb.solve(coin, -2.0, discount=0.8).value
        exact = sum(math.log((1 + math.exp(-2 * 0.8**h)) / 2) / -2.0 for h in range(400))
        assert value == pytest.approx(exact, abs=1e-8)

    def test_the_sparse_and_the_dense_form_agree_and_several_betas_too(self):
        rows = eb.FiniteMDP(SWIM.rows, SWIM.rewards, horizon=5, start=SWIM.start)
        for one, other in zip(
            eb.solve(rows, [-1.0, 1.0], discount=0.7), eb.solve(SWIM, [-1.0, 1.0], discount=0.7), strict=True
        ):
            assert one.value == pytest.approx(other.value, abs=1e-13)

    def test_what_changes_by_step_is_refused(self):
        changing = eb.FiniteMDP(SWIM.transitions, np.ones((3, 4, 2)), horizon=3)
        with pytest.raises(eb.InvalidProblemError, match="must be the same at every step"):
            eb.solve(changing, 0.0, discount=0.9)
        with pytest.raises(eb.InvalidProblemError, match="discount must lie strictly between 0 and 1"):
            eb.solve(SWIM, 0.0, discount=1.0)
        with pytest.raises(eb.InvalidProblemError, match="horizon= is only for discounted returns"):
            eb.solve(SWIM, 0.0, horizon=3)

    def test_as_many_steps_as_states_and_actions_are_not_mistaken_for_next_states(self):
        mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), [[1, 2], [3, 4]], horizon=1)
        discounted = eb.discounted(mdp, 0.9, 2)
        assert [eb.solve(discounted, 0.0).values[h, 0] for h in (0, 1)] == pytest.approx([2 + 0.9 * 3, 0.9 * 2])


@pytest.fixture(scope="module")
def result():
    return eb.identify(SWIM, **GOAL, eps=0.4, discount=0.7, successors="model", seed=1)


class TestModels:
    def test_the_claim_holds_for_the_endless_return(self, result):
        certificate = result.certificate
        assert result.stopped
        assert certificate.stationary
        assert result.policy.shape[0] == horizon_for(0.7, SWIM.reward_range, 0.4)
        best, own = truth(SWIM, -1.0, 0.7), truth(SWIM, -1.0, 0.7, result.policy)
        assert certificate.lower <= own <= best <= certificate.upper
        assert best - own <= certificate.gap <= 0.4

    def test_it_is_printed_and_verified(self, result, tmp_path):
        certificate = result.certificate
        assert any("a reward counts 0.7 times as much with every step" in words for words in certificate.assumptions)
        path = tmp_path / "certificate.json"
        certificate.save(path)
        assert eb.verify(path).ok, eb.verify(path).problems
        assert eb.Certificate.load(path).problem.discount == 0.7

    def test_the_verifier_needs_the_tail(self, result):
        """Without its tail the claim is refused, whichever side it is left out of."""
        certificate, (low, high) = result.certificate, result.certificate.problem.tail
        assert high - low > 1e-3
        for change in ({"upper": certificate.upper - high}, {"gap": certificate.gap - (high - low)}):
            forged = type(certificate)(**{**vars(certificate), **change})
            assert not eb.verify(forged).ok

    def test_other_betas_come_from_the_same_data(self, result):
        for beta in (-3.0, 0.0, 0.5):
            other = eb.certify(result, beta=beta)
            assert other.lower <= truth(SWIM, beta, 0.7) <= other.upper
            assert eb.verify(other).ok

    @pytest.mark.parametrize("beta", [-2.0, 0.0, 1.5])
    @pytest.mark.parametrize("pooled", [True, False])
    @pytest.mark.parametrize("next_state", [True, False])
    def test_bounds_are_those_of_the_model_with_discounted_rewards_and_the_tail(self, beta, pooled, next_state):
        """What is known of undiscounted problems is known of these: the two differ by the tail and by rounding."""
        rng = np.random.default_rng(3)
        rewards = rng.normal(size=(3, 2, 3) if next_state else (3, 2))
        mdp = eb.FiniteMDP(rng.dirichlet(np.ones(3), size=(3, 2)), rewards, horizon=5, start=[0.2, 0.3, 0.5])
        goal = {"beta": beta, "eps": 0.1, "delta": 0.1, "stationary": pooled, "successors": "model"}
        plain = Problem.from_mdp(eb.discounted(mdp, 0.8, 5), **goal)
        own = Problem.from_mdp(mdp, **goal, discount=0.8)
        counts = Counts(own)
        rows = np.repeat(np.arange(own.n_rows), 3)
        seen = Transitions(rows, np.tile(np.arange(3), own.n_rows), rng.integers(1, 40, size=len(rows)))
        counts.add(seen, 100)
        policy = rng.integers(2, size=(6, 3))
        policy[0] = 0
        expected = KL(plain).bounds_of(Counts.of(plain, seen, 100), policy)
        found = KL(own).bounds_of(counts, policy)
        low, high = own.tail
        # β = 0 is computed at a β close by, which depends on how far returns can be apart.
        room = 1e-7 if beta else 2e-6 * plain.return_spread
        assert found.lower == pytest.approx(expected.lower + low, abs=room)
        assert found.upper == pytest.approx(expected.upper + high, abs=room)
        assert found.gap == pytest.approx(expected.gap + high - low, abs=room)

    @pytest.mark.parametrize("reward", [1.0, -1.0])
    def test_a_tail_that_pays_all_it_can_is_covered(self, reward):
        """Nothing happens before the horizon, and from then on the extreme reward is paid for ever."""
        steps, discount = 4, 0.6
        kernel = np.zeros((steps + 1, 1, steps + 1))
        for s in range(steps + 1):
            kernel[s, 0, min(s + 1, steps)] = 1.0
        rewards = np.zeros((steps + 1, 1))
        rewards[-1] = reward
        chain = eb.FiniteMDP(kernel, rewards, horizon=1)
        options = {"successors": "model", "stationary": True, "seed": 1, "eps": 0.5, "horizon": steps}
        certificate = eb.identify(chain, **GOAL, discount=discount, **options).certificate
        exact = reward * discount**steps / (1 - discount)
        assert certificate.lower <= exact <= certificate.upper
        ends = (certificate.lower, certificate.upper)
        assert ends[reward > 0] == pytest.approx(exact, abs=1e-9)

    @pytest.mark.parametrize("pooled", [True, False])
    def test_rewards_of_the_next_state_and_random_starts_are_discounted_too(self, pooled):
        kernel = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.2, 0.8], [0.0, 1.0]]])
        rewards = np.array([[[0.0, 1.0], [0.3, 0.0]], [[1.0, 0.0], [0.0, -0.5]]])
        mdp = eb.FiniteMDP(kernel, rewards, horizon=1, start=[0.5, 0.5])
        found = eb.identify(
            mdp,
            beta=1.0,
            eps=0.6,
            delta=0.1,
            discount=0.5,
            stationary=pooled,
            successors="model",
            seed=2,
            max_episodes=3000,
        )
        certificate = found.certificate
        long = eb.solve(mdp, 1.0, discount=0.5)
        own = eb.evaluate(mdp, found.policy, 1.0, discount=0.5)
        assert certificate.lower <= own.value + own.tail[1]
        assert certificate.upper >= long.value
        assert eb.verify(certificate).ok, eb.verify(certificate).problems

    def test_a_checkpoint_goes_on_and_another_discount_is_refused(self, tmp_path):
        options = {**GOAL, "eps": 0.5, "stationary": True, "successors": "model", "seed": 3}
        path = tmp_path / "run.npz"
        eb.identify(SWIM, **options, discount=0.6, checkpoint=path, max_episodes=20)
        resumed = eb.identify(SWIM, **options, discount=0.6, checkpoint=path)
        whole = eb.identify(SWIM, **options, discount=0.6)
        assert resumed.episodes == whole.episodes
        assert resumed.certificate.upper == whole.certificate.upper
        with pytest.raises(eb.EntropicBPIError, match=r"discount was 0\.6, is 0\.61"):
            eb.identify(SWIM, **options, discount=0.61, checkpoint=path)

    def test_what_is_not_proved_is_refused(self):
        with pytest.raises(eb.InvalidProblemError, match="discount needs method='kl'"):
            eb.identify(SWIM, **GOAL, eps=0.4, discount=0.7, method="bernstein")
        with pytest.raises(eb.InvalidProblemError, match="discount= is not supported with EVaR"):
            eb.identify(SWIM, risk=eb.EVaR(0.1), delta=0.1, eps=0.4, discount=0.7)
        with pytest.raises(eb.InvalidProblemError, match="can still differ by"):
            eb.identify(SWIM, **GOAL, eps=0.4, discount=0.9, horizon=3)
        lake = {"reward_range": (0, 1), "eps": 0.3, "discount": 0.5}
        with pytest.raises(eb.InvalidProblemError, match="their combination is not proved"):
            eb.identify("FrozenLake-v1", **GOAL, **lake, return_range=(0, 1))
        with pytest.raises(eb.InvalidProblemError, match="discount needs reward_law='fixed'"):
            eb.identify("FrozenLake-v1", **GOAL, **lake, reward_law="random")


class Lamp(gymnasium.Env):
    """On or off; to switch it costs 0.2 and works with probability 0.8, and light pays 1 a step."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    kernel = np.array([[[1.0, 0.0], [0.2, 0.8]], [[0.0, 1.0], [0.8, 0.2]]])
    rewards = np.array([[0.0, -0.2], [1.0, 0.8]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.on = 0
        return 0, {}

    def step(self, action):
        reward = float(self.rewards[self.on, action])
        self.on = int(self.np_random.random() < self.kernel[self.on, action, 1])
        return self.on, reward, False, False, {}


class TestEnvironments:
    def test_the_claim_holds_for_the_endless_return_and_is_verified(self):
        options = {"discount": 0.6, "reward_range": (-0.2, 1.0), "seed": 1, "max_episodes": 4000}
        found = eb.identify(Lamp(), beta=-1.0, eps=0.5, delta=0.1, **options)
        certificate = found.certificate
        horizon = horizon_for(0.6, (-0.2, 1.0), 0.5)
        assert found.policy.shape[0] == horizon
        best = endless_value(Lamp.kernel, Lamp.rewards, -1.0, 0.6)
        own = endless_value(Lamp.kernel, Lamp.rewards, -1.0, 0.6, found.policy[:, :2])
        assert certificate.lower <= own <= best <= certificate.upper
        assert best - own <= certificate.gap
        assert eb.verify(certificate).ok, eb.verify(certificate).problems
        assert certificate.provenance.tests.returns <= best

    def test_several_copies_discount_their_returns_as_one_does(self):
        options = {"discount": 0.5, "reward_range": (-0.2, 1.0), "max_episodes": 200, "eps": 0.5, "seed": 4}
        for copies in (1, 3):
            found = eb.identify(Lamp, **GOAL, **options, num_envs=copies)
            assert found.certificate.provenance.tests.returns <= 2.0
            assert found.certificate.lower <= endless_value(Lamp.kernel, Lamp.rewards, -1.0, 0.5)

    def test_evar_of_a_discounted_run_is_refused(self, result):
        with pytest.raises(eb.InvalidProblemError, match="discount= is not supported with EVaR"):
            eb.certify(result, risk=eb.EVaR(0.1))


def test_the_command_line_takes_a_discount():
    swim = ["river-swim", "-p", "n_states=4", "--beta", "-1", "--json"]
    solved = CliRunner().invoke(app, ["solve", *swim, "--discount", "0.7"])
    assert json.loads(solved.output)["value"] == pytest.approx(truth(SWIM, -1.0, 0.7), abs=1e-7)
    goal = ["--eps", "0.4", "--delta", "0.1", "--discount", "0.7", "--successors", "model", "--seed", "1"]
    found = CliRunner().invoke(app, ["identify", *swim, *goal])
    content = json.loads(found.output)
    assert found.exit_code == 0
    assert content["lower"] <= truth(SWIM, -1.0, 0.7) <= content["upper"]
    lake = ["gym:FrozenLake-v1", "--reward-range", "0", "1", "--beta", "-1", "--max-episodes", "3", "--json"]
    played = CliRunner().invoke(app, ["identify", *lake, "--eps", "0.6", "--delta", "0.1", "--discount", "0.5"])
    assert played.exit_code == 1
    assert "a reward counts 0.5 times" in played.output


@pytest.mark.parametrize("risk", [["--beta", "-1"], ["--evar", "0.5"]])
def test_the_command_line_says_what_comes_after_the_horizon(risk):
    """The tail bounds what a long horizon adds; that it is dropped is never silent."""
    model = ["solve", "river-swim", "-p", "n_states=6", "--discount", "0.95", *risk]
    short, long, text = (
        CliRunner().invoke(app, [*model, *more]).stdout
        for more in (["--horizon", "20", "--json"], ["--json"], ["--horizon", "20"])
    )
    short, long = json.loads(short), json.loads(long)
    low, high = short["tail"]
    assert short["value"] + low <= long["value"] <= short["value"] + high
    assert (low, high) == (0.0, pytest.approx(0.95**20 / 0.05))
    assert long["tail"] == [0.0, pytest.approx(0.95**405 / 0.05)]
    words = " ".join(text.split())
    assert "value and return above are those of the first 20 steps, and later steps add between 0 and 7.17" in words
    assert f"and {short.get('upper', short['value']) + high:.6f}" in words


def test_a_solution_shows_its_tail():
    swim = eb.instances.river_swim(n_states=6, horizon=1)
    found = eb.solve(swim, -1.0, discount=0.95, horizon=20)
    assert "tail=(0, 7.17)" in repr(found)
    assert "tail=(0, 7.17)" in repr(eb.evaluate(swim, found.policy, -1.0, discount=0.95))
    assert "tail" not in repr(eb.solve(swim, -1.0))


def test_a_forged_discount_is_not_verified(result, tmp_path):
    """A smaller γ would make the tail small: the rewards then count less, and the claim does not follow."""
    content = json.loads(json.dumps(result.certificate._content()))

    class Forged:
        def _content(self):
            return content

    assert eb.verify(Forged()).ok
    for value in (0.69, None, 1.0, 0.0, "0.7", True):
        content["problem"]["discount"] = value
        words = [line for line in result.certificate.assumptions if "times as much" not in line]
        content["assumptions"] = words if value is None else list(result.certificate.assumptions)
        assert not eb.verify(Forged()).ok


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 3)])
def test_a_horizon_that_equals_the_sizes_leaves_no_doubt_about_the_rewards(shape):
    """As an array alone, rewards of shape (3, 3, 3) could be those of three steps."""
    rng = np.random.default_rng(0)
    kernel, rewards = rng.dirichlet(np.ones(3), (3, 3)), rng.random(shape)
    mdp = eb.FiniteMDP(kernel, rewards, horizon=5)
    by_step = np.array([0.9**h * rewards for h in range(3)])
    by_hand = eb.FiniteMDP(kernel, by_step if rewards.ndim == 3 else np.repeat(by_step[..., None], 3, 3), horizon=3)
    assert eb.solve(eb.discounted(mdp, 0.9, 3), -1).value == pytest.approx(eb.solve(by_hand, -1).value, rel=1e-14)
    assert eb.solve(mdp, -1, discount=0.9, horizon=3).value == pytest.approx(eb.solve(by_hand, -1).value, rel=1e-14)
    assert eb.identify(mdp, discount=0.5, horizon=3, beta=-1, eps=0.5, delta=0.1, seed=0).stopped
