"""Explorations: one set of data for every reward, with a promise that is kept."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.certificate.contents import digest
from entropic_bpi.cli import app
from entropic_bpi.runs.exploration.explore import promised_claim

BRIDGE = eb.instances.risky_bridge(horizon=4)
KNOWN = {"successors": "model", "stationary": True}


def lottery(seed, horizon=3):
    """A small model with random transitions."""
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.full(3, 0.7), (3, 2))
    return eb.FiniteMDP(kernel, np.zeros((3, 2)), horizon=horizon), kernel


def estimated(found, horizon, next_state=False):
    """The estimated kernel ``(H, S, A, S)``; what was never tried stays where it is."""
    problem, seen = found.certificate.problem, found.certificate.transitions
    tally = np.zeros((problem.n_rows, problem.n_states))
    np.add.at(tally, (seen.rows, seen.successors), seen.times)
    tally[tally.sum(axis=1) == 0, 0] = 1
    kernel = tally / tally.sum(axis=1, keepdims=True)
    kernel = kernel.reshape(-1, problem.n_states, problem.n_actions, problem.n_states)
    return np.repeat(kernel, horizon, axis=0) if len(kernel) == 1 else kernel


def losses(found, kernel, rewards, beta, horizon):
    """What the best policy by the estimates loses, and whether the claim of ``solve`` is true."""
    truth = eb.FiniteMDP(kernel, rewards, horizon=horizon)
    guess = eb.FiniteMDP(
        estimated(found, horizon), np.broadcast_to(rewards, (horizon, *kernel.shape[:2])), horizon=horizon
    )
    best = eb.solve(truth, beta).value
    lost = best - eb.evaluate(truth, eb.solve(guess, beta).policy, beta).value
    claim = found.solve(rewards, beta)
    own = eb.evaluate(truth, claim.policy, beta).value
    room = 1e-9 * horizon
    true = claim.lower <= own + room and best <= claim.upper + room and best - own <= claim.gap + room
    return lost, claim, true


@pytest.mark.parametrize("declared", [KNOWN, {"successors": "model"}, {"stationary": True}, {}])
@pytest.mark.parametrize("betas", [pytest.param((0.0, 0.0), marks=pytest.mark.slow), (-2.0, -0.5), (-0.5, 1.0)])
def test_the_promise_is_verified_and_kept(declared, betas):
    mdp, kernel = lottery(1, 2)
    found = eb.explore(mdp, eps=0.6, delta=0.1, betas=betas, seed=2, **declared)
    assert found.stopped
    assert found.eps_reached <= 0.6
    check = eb.verify(found.certificate)
    assert check.ok, check.problems
    rng = np.random.default_rng(3)
    for _ in range(5):
        rewards = (rng.random((2, 3, 2)) < 0.5).astype(float)
        beta = float(rng.uniform(*betas))
        lost, claim, true = losses(found, kernel, rewards, beta, 2)
        assert true
        assert lost <= found.eps_reached
        assert claim.gap <= found.eps_reached * (1 + 1e-6)
        assert eb.verify(claim).ok
        promised = promised_claim(claim)
        assert promised.gap <= found.eps_reached * 1.01 + 1e-4
        assert eb.verify(promised).ok


@pytest.mark.parametrize("start", [0, [1.0]])
def test_where_nothing_has_to_be_learned_the_promise_is_verified(start):
    """The promise is 0, and the verifier's bound is 0 rounded up."""
    mdp = eb.FiniteMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), horizon=3, start=start)
    found = eb.explore(mdp, eps=0.1, delta=0.1, betas=(-0.1, -0.01), max_episodes=40, seed=0)
    assert found.stopped
    assert eb.verify(found.certificate).problems == []
    assert eb.verify(found.solve(np.array([[0.0, 1.0]]), -0.05)).problems == []


def test_a_claim_by_the_promise_cannot_go_beyond_it():
    found = eb.explore(BRIDGE, eps=0.5, delta=0.1, betas=(-1, 1), seed=1, **KNOWN)
    rng = np.random.default_rng(0)
    claim = promised_claim(found.solve(rng.random((4, 8, 2)), -1.0))
    check = eb.verify(claim)
    assert check.ok
    width = claim.upper - claim.lower
    least = min(check.gap, width)
    assert not eb.verify(replace(claim, gap=least * 0.999)).ok
    worse = replace(claim, policy=1 - claim.policy)
    assert eb.verify(worse).gap > check.gap or not eb.verify(worse).ok


def forged(found, change):
    content = json.loads(found.certificate._text())
    del content["digest"]
    change(content)
    return json.dumps({**content, "digest": digest(content)})


def test_forged_promises_are_rejected(tmp_path):
    found = eb.explore(BRIDGE, eps=0.5, delta=0.1, betas=(0.2, 1), seed=1, **KNOWN)
    path = tmp_path / "c.json"

    def smaller(content):
        content["claim"]["gap"] *= 0.99

    def wider_betas(content):
        content["problem"]["explored"]["betas"] = [-2.0, 2.0]

    def wider_rewards(content):
        content["problem"]["explored"]["rewards"] = [0.0, 2.0]

    def no_cells(content):
        content["claim"]["cells"] = []

    def narrow_values(content):
        content["claim"]["upper"] = 3.0

    def silent(content):
        content["assumptions"] = content["assumptions"][:3]

    def more_visits(content):
        content["counts"]["times"] = [2 * n for n in content["counts"]["times"]]

    for change in (smaller, wider_betas, wider_rewards, no_cells, narrow_values, silent, more_visits):
        path.write_text(forged(found, change))
        assert not eb.verify(path).ok, change.__name__
    found.certificate.save(path)
    assert eb.verify(path).ok
    again = eb.Certificate.load(path)
    assert (again.gap, again.cells, again.problem.risk) == (
        found.eps_reached,
        found.certificate.cells,
        again.problem.risk,
    )


def test_an_exploration_goes_on_from_its_checkpoint(tmp_path):
    goal = {"eps": 0.4, "delta": 0.1, "betas": (-1, 1), "seed": 5, **KNOWN}
    whole = eb.explore(BRIDGE, **goal)
    between = int(whole.history["episodes"][len(whole.history) // 2])
    eb.explore(BRIDGE, **goal, max_episodes=between, checkpoint=tmp_path / "c")
    rest = eb.explore(BRIDGE, **goal, checkpoint=tmp_path / "c")
    assert (whole.episodes, whole.eps_reached) == (rest.episodes, rest.eps_reached)
    with pytest.raises(eb.InvalidProblemError):
        eb.explore(BRIDGE, **goal | {"betas": (-1, 2)}, checkpoint=tmp_path / "c")


def test_what_an_environment_pays_is_ignored():
    import gymnasium

    class Noisy(gymnasium.Env):
        """Pays anything; whether it goes on is a coin."""

        observation_space = action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            state = int(self.np_random.random() < (0.8 if action else 0.3))
            return state, self.np_random.normal(scale=1e6), bool(self.np_random.random() < 0.1), False, {}

    declared = {"horizon": 2, "start": 0, "max_states": None}
    found = eb.explore(Noisy(), eps=0.8, delta=0.1, betas=(-1, 0), seed=1, **declared)
    assert found.stopped
    assert eb.verify(found.certificate).ok
    claim = found.solve(lambda s, a, y: 1.0 if y == 1 else 0.0, -1.0)
    assert eb.verify(claim).ok
    assert claim.gap <= found.eps_reached
    assert claim.policy[0, 0] == 1
    with pytest.raises(eb.InvalidProblemError, match="give rewards="):
        eb.certify(found.certificate, beta=-1.0)
    with pytest.raises(eb.InvalidProblemError, match="needs rewards="):
        found.solve(beta=-1.0)


def test_forbidden_actions_are_not_explored():
    mdp, kernel = lottery(1, 2)
    allowed = np.array([[True, False], [True, True], [False, True]])
    masked = eb.FiniteMDP(kernel, np.zeros((3, 2)), horizon=2, allowed=allowed)
    goal = {"eps": 0.6, "delta": 0.1, "betas": (-1, 1), "seed": 2}
    found, all_actions = eb.explore(masked, **goal), eb.explore(mdp, **goal)
    check = eb.verify(found.certificate)
    assert check.ok, check.problems
    assert found.episodes < all_actions.episodes
    problem = found.certificate.problem
    rows = found.certificate.transitions.rows
    assert allowed[rows // 2 % 3, rows % 2].all()
    rng = np.random.default_rng(0)
    for _ in range(5):
        rewards, beta = rng.random((2, 3, 2)), float(rng.uniform(-1, 1))
        truth = eb.FiniteMDP(kernel, rewards, horizon=2, allowed=allowed)
        claim = found.solve(rewards, beta)
        assert eb.verify(claim).ok
        assert claim.lower <= eb.evaluate(truth, claim.policy, beta).value + 1e-9
        assert eb.solve(truth, beta).value <= claim.upper + 1e-9
    assert problem.allowed is not None


@pytest.mark.parametrize("size", [4, 14])
def test_many_successors_are_bounded_for_all_sets_at_once(size):
    """Up to 12 seen successors all sets are listed; beyond, a closed form serves all of them, and the verifier agrees."""
    rng = np.random.default_rng(size)
    mdp = eb.FiniteMDP(rng.dirichlet(np.full(size, 3.0), (size, 2)), np.zeros((size, 2)), horizon=2)
    found = eb.explore(mdp, eps=1e-9, delta=0.1, betas=(-2, 2), stationary=True, seed=1, max_episodes=5000)
    assert np.bincount(found.certificate.transitions.rows).max() == size
    assert 0.01 < found.eps_reached < 2
    assert eb.verify(found.certificate).ok
    smaller = replace(found.certificate, gap=found.eps_reached * (1 - 1e-5))
    assert not eb.verify(smaller).ok


def test_what_is_not_explored_for_is_refused():
    goal = {"eps": 0.4, "delta": 0.1, "betas": (-1, 1)}
    for given, words in [
        ({"reward_law": "random"}, "reward_law is not for explore"),
        ({"return_range": (0, 1)}, "return_range is not for explore"),
        ({"discount": 0.9}, "discount is not for explore"),
        ({"betas": (1, -1)}, "betas must be"),
        ({"betas": (0, 1000)}, "the largest usable"),
        ({"reward_range": (1, 0)}, "reward_range must be"),
    ]:
        with pytest.raises(eb.InvalidProblemError, match=words):
            eb.explore(BRIDGE, **goal | given)
    found = eb.explore(BRIDGE, **goal, seed=1, max_episodes=10)
    assert not found.stopped
    with pytest.raises(eb.InvalidProblemError, match="no policy"):
        found.certificate.policy_of(0)
    with pytest.raises(eb.InvalidProblemError, match="one reward"):
        eb.missing(found.certificate)


def test_the_command_explores_and_certifies_what_is_given_afterwards(tmp_path):
    def call(*words):
        return CliRunner().invoke(app, [*map(str, words)])

    run, prices = tmp_path / "run", tmp_path / "prices.csv"
    goal = [
        "--betas",
        "-1",
        "1",
        "--eps",
        "0.5",
        "--delta",
        "0.1",
        "--successors",
        "model",
        "--stationary",
        "--seed",
        "1",
    ]
    answer = call("explore", "risky-bridge", "-p", "horizon=4", *goal, "--out", run, "--json", "-q")
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.output)
    assert told["stopped"]
    assert told["gap"] <= 0.5
    assert call("verify", run / "certificate.json").exit_code == 0
    prices.write_text("state,action,reward\ns0,safe,0.25\n")
    answer = call("certify", run, "--beta", "-1", "--rewards", prices, "--json")
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.output)["beta"][0]["gap"] <= 0.5
    spent = call("explore", "risky-bridge", "-p", "horizon=4", *goal, "--max-episodes", "50")
    assert spent.exit_code == 1
    assert "not reached" in " ".join(spent.output.split())


def study(runs, seed):
    """Runs whose promise, or a claim of whose ``solve``, was broken by rewards that were drawn afterwards."""
    failed = largest = 0.0
    for i in range(runs):
        rng = np.random.default_rng([seed, i])
        mdp, kernel = lottery([seed, i, 1], 2)
        declared = [KNOWN, {"successors": "model"}, {"stationary": True}][i % 3]
        found = eb.explore(mdp, eps=0.8, delta=0.1, betas=(-1.5, 1.5), seed=i, **declared)
        broken = False
        for _ in range(10):
            rewards = rng.random((2, 3, 2))
            rewards = rewards if rng.integers(2) else np.round(rewards)
            lost, _, true = losses(found, kernel, rewards, float(rng.uniform(-1.5, 1.5)), 2)
            broken |= not true or not lost <= found.eps_reached
            largest = max(largest, lost / found.eps_reached)
        failed += broken
    return int(failed), largest


def test_the_episodes_of_an_exploration_that_promises_nothing_yet_are_data_for_a_reward():
    """With a random start, whose gap stays what is possible at all for thousands of episodes."""
    asked = {"horizon": 4, "betas": (-1, 1), "eps": 0.1, "delta": 0.1, "seed": 1}
    found = eb.explore("FrozenLake-v1", max_episodes=300, **asked)
    assert found.eps_reached == pytest.approx(4)
    assert found.certificate.episodes == found.episodes == 300
    claim = found.solve(lambda state, action, following: float(following == 15), 0.0)
    assert claim.episodes == 300
    assert claim.gap < 4
    assert eb.verify(claim).ok
    assert eb.verify(found.certificate).ok


def test_without_an_episode_every_policy_is_the_best_by_the_estimates():
    few = eb.identify(
        "FrozenLake-v1", horizon=4, reward_range=(0, 1), risk=eb.EVaR(0.01), eps=0.1, delta=0.1, max_episodes=1
    )
    assert few.certificate.episodes == 0
    assert (few.best_estimate.actions == few.policy).all()


def test_promises_and_claims_are_rarely_broken():
    failed, _ = study(12, 1)
    assert failed <= binom.ppf(0.999, 12, 0.1)


@pytest.mark.slow
def test_promises_and_claims_are_broken_with_probability_at_most_delta():
    runs = 600
    failed, largest = study(runs, 2)
    print(f"{failed} of {runs} runs broken; largest loss {largest:.3f} of the promise")
    assert binom.sf(failed - 1, runs, 0.1) > 0.001
