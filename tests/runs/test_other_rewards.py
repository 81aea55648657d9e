"""Claims for other rewards from the same data: the same as if the data had been collected for them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem

GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1}


def model(rewards, start=0):
    rng = np.random.default_rng(3)
    kernel = rng.dirichlet(np.ones(4), (4, 2)) * (rng.random((4, 2, 4)) < 0.6)
    kernel[:, :, 1] += 0.1
    return eb.FiniteMDP(kernel / kernel.sum(axis=2, keepdims=True), rewards, horizon=3, start=start)


SHAPES = [(4, 2), (3, 4, 2), (4, 2, 4), (3, 4, 2, 4)]


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize(
    "declared",
    [
        {},
        pytest.param({"successors": "model"}, marks=pytest.mark.slow),
        pytest.param({"stationary": True}, marks=pytest.mark.slow),
        {"successors": "model", "stationary": True, "start": None},
    ],
)
def test_the_claim_is_that_of_a_model_with_these_rewards(before, after, declared):
    rng = np.random.default_rng(5)
    start = [0.5, 0.5, 0, 0] if "start" in declared else 0
    old = model(rng.random(SHAPES[before]), start)
    rewards = 3 * rng.random(SHAPES[after]) - 1
    new = model(rewards, start)
    data = eb.identify(old, **GOAL, seed=1, max_episodes=60, **declared).certificate
    claim = eb.certify(data, beta=-0.5, rewards=rewards)
    # A problem whose rewards depend on the next state keeps its event: compare with rewards written in that form.
    wide = rewards if rewards.shape[-1] == 4 or before < 2 else np.repeat(rewards[..., None], 4, axis=-1)
    problem = Problem.from_mdp(model(wide, start), beta=-0.5, eps=0.3, delta=0.1, **declared)
    counts = Counts.of(problem, data.transitions, data.episodes)
    same = eb.certify(counts, beta=-0.5)
    assert (claim.lower, claim.upper, claim.gap) == pytest.approx((same.lower, same.upper, same.gap), rel=1e-12)
    assert claim.problem.rows_at_risk == problem.rows_at_risk
    check = eb.verify(claim)
    assert check.ok, check.problems
    assert claim.lower <= eb.evaluate(new, claim.policy, -0.5).value
    assert eb.solve(new, -0.5).value <= claim.upper


def test_functions_and_tables_say_the_same_as_arrays(tmp_path):
    bridge = eb.instances.risky_bridge(horizon=5)
    run = eb.identify(bridge, **GOAL, successors="model", seed=1)
    prices = np.array(bridge.rewards)
    prices[0, 0] = 0.25
    table = {("s0", "safe"): 0.25}
    (tmp_path / "prices.csv").write_text("state,action,reward\ns0,safe,0.25\n")

    def paid(state, action, following):
        s, a = bridge.state_names.index(state), bridge.action_names.index(action)
        return prices[s, a]

    wanted = eb.certify(run, beta=-1.0, rewards=prices)
    names = set()
    for given in (paid, table, tmp_path / "prices.csv", prices):
        claim = eb.certify(run, beta=-1.0, rewards=given)
        assert (claim.lower, claim.upper, claim.gap) == (wanted.lower, wanted.upper, wanted.gap)
        assert eb.verify(claim).ok
        names.add(claim.provenance.rewards)
    assert names == {"the function paid", "a table of changes", "those of prices.csv", "an array"}


def log_lines(rewards, seed=0):
    rng, lines = np.random.default_rng(seed), []
    for episode in range(200):
        s = 0
        for t in range(3):
            a = int(rng.integers(2))
            ended, y = bool(rng.random() < 0.2), int(rng.integers(3))
            lines.append((episode, t, s, a, rewards[s, a, 3 if ended else y], y, ended))
            if ended:
                break
            s = y
    return lines


def certify_log(lines, **given):
    names = ("episode", "step", "state", "action", "reward", "next_state", "terminated")
    columns = {name: [line[i] for line in lines] for i, name in enumerate(names)}
    log = eb.Log.read(columns, **{name: name for name in names}, truncated=True, states=[0, 1, 2])
    return eb.certify(log, **{"beta": -1.0, "delta": 0.1, "horizon": 3, "reward_range": (0, 1)} | given)


@pytest.mark.parametrize("stationary", [True, False])
def test_a_log_says_what_it_would_if_these_rewards_had_been_paid(stationary):
    rng = np.random.default_rng(2)
    old, new = rng.random((2, 3, 2, 4))
    given = {"reward_range": (new.min(), new.max()), "stationary": stationary}
    wanted = certify_log(log_lines(new), **given)
    claim = certify_log(log_lines(old), stationary=stationary, rewards=new)
    assert (claim.lower, claim.upper, claim.gap) == pytest.approx((wanted.lower, wanted.upper, wanted.gap), rel=1e-12)
    assert eb.verify(claim).ok
    function = certify_log(
        log_lines(old), stationary=stationary, rewards=lambda s, a, y: new[s, a, 3 if y is eb.END else y]
    )
    assert eb.verify(function).ok
    assert function.gap >= claim.gap


def test_outcomes_that_differ_by_their_reward_are_counted_together():
    env = {"horizon": 3, "reward_range": (-1, 1), "seed": 1, "max_episodes": 300}
    run = eb.identify("Blackjack-v1", **GOAL, **env)
    seen = run.certificate.transitions
    assert len(set(zip(seen.rows, seen.successors, strict=True))) < len(seen.rows)
    claim = eb.certify(run, beta=-1.0, rewards=lambda s, a, y: 0.5 * a, reward_range=(0, 0.5))
    mine = claim.transitions
    assert len(set(zip(mine.rows, mine.successors, strict=True))) == len(mine.rows)
    assert mine.times.sum() == seen.times.sum()
    assert eb.verify(claim).ok
    assert claim.upper <= 1.5 + 1e-9
    some = eb.certify(run, beta=-1.0, rewards={((20, 10, 0), 0, eb.END): 0.9})
    assert eb.verify(some).ok
    assert some.problem.reward_range == (-1, 1)


def test_what_cannot_be_certified_is_refused_with_the_reason():
    bridge = eb.instances.risky_bridge(horizon=5)
    run = eb.identify(bridge, **GOAL, successors="model", seed=1)
    env = {"horizon": 3, "reward_range": (-1, 1), "seed": 1, "max_episodes": 20}
    random = eb.identify("FrozenLake-v1", **GOAL, **env, reward_law="random")
    played = eb.identify("FrozenLake-v1", **GOAL, **env)
    for data, given, words in [
        (random, {"rewards": lambda s, a, y: 0.0}, "random rewards were learned"),
        (played, {"rewards": lambda s, a, y: 0.0}, "needs reward_range="),
        (played, {"rewards": lambda s, a, y: 2.0, "reward_range": (0, 1)}, "outside reward_range"),
        (played, {"rewards": np.zeros((3, 2))}, "array \\(S, A\\)"),
        (run, {"rewards": np.zeros(3)}, "must have shape"),
        (run, {"rewards": np.full((8, 2), np.nan)}, "must be finite"),
        (run, {"rewards": {("nowhere", "safe"): 1.0}}, "has the key \\('nowhere', 'safe'\\), expected"),
        (run, {"rewards": {"s0": 1.0}}, "has the key 's0', expected"),
        (run, {"rewards": bridge}, "must be numbers"),
        (run, {"rewards": "no.csv"}, "no such file"),
        (run, {"rewards": np.zeros((8, 2)), "reward_range": (0, 1)}, "environments and logs"),
    ]:
        with pytest.raises(eb.InvalidProblemError, match=words):
            eb.certify(data, beta=-1.0, **given)


def test_the_file_cannot_hide_that_the_rewards_are_others(tmp_path):
    bridge = eb.instances.risky_bridge(horizon=5)
    run = eb.identify(bridge, **GOAL, successors="model", seed=1)
    claim = eb.certify(run, beta=-1.0, rewards=np.array(bridge.rewards) / 2)
    assert any("collected for other rewards" in words for words in claim.assumptions)
    claim.save(tmp_path / "c.json")
    assert eb.Certificate.load(tmp_path / "c.json").provenance.rewards == "an array"
    content = json.loads((tmp_path / "c.json").read_text())
    del content["digest"]
    content["provenance"]["rewards"] = None
    from entropic_bpi.certificate.contents import digest

    (tmp_path / "c.json").write_text(json.dumps({**content, "digest": digest(content)}))
    assert not eb.verify(tmp_path / "c.json").ok
    with pytest.raises(eb.CertificateError):
        eb.Certificate.load(tmp_path / "c.json")
    silent = replace(claim, provenance=claim.provenance._replace(rewards=None))
    assert eb.verify(silent).ok  # the numbers are those of these rewards; who collected the data says so or not


def test_a_table_without_lines_changes_no_rewards(tmp_path):
    result = eb.identify(eb.instances.risky_bridge(horizon=3), beta=1.0, eps=5.0, delta=0.1, max_episodes=2, seed=0)
    (tmp_path / "prices.csv").write_text("state,action,reward\n", encoding="utf-8")
    with pytest.raises(eb.InvalidProblemError, match="lists no rewards"):
        eb.certify(result, beta=1.0, rewards=tmp_path / "prices.csv")
