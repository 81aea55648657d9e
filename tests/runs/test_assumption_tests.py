"""What a run assumes of an environment by default is tested while it plays: no false certificate from a default."""

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.certificate.contents import digest
from entropic_bpi.runs.verdicts import LEVEL, REJECTED_FROM, check_assumptions, value_lower_bound
from entropic_bpi.sources.assumption_tests import AssumptionTests, Batch
from entropic_bpi.sources.environment import Environment
from tests.reference.environments import (
    ChangingInventory,
    Echo,
    FadingRewards,
    HiddenGap,
    SeasonalInventory,
    seasonal_model,
)
from tests.reference.logs import ROLES, table

SEASON = {"horizon": 8, "reward_range": SeasonalInventory.reward_range, "beta": -0.2, "eps": 2.0, "delta": 0.1}
GAP = {"horizon": 4, "reward_range": (0, 1), "beta": -1.0, "eps": 0.05, "delta": 0.1}
ECHO = {"horizon": 6, "reward_range": (0, 1), "beta": 1.0, "eps": 0.05, "delta": 0.1}
STOCK = {"horizon": 6, "reward_range": ChangingInventory.reward_range, "beta": -0.2, "eps": 1.5, "delta": 0.1}
WORN = {"horizon": 3, "reward_range": (0, 1), "reward_law": "random", "beta": 0.0, "eps": 0.01, "delta": 0.1}


def slowly(episode):
    return min(episode / 2000, 1.0)


def at_once(episode):
    return float(episode >= 500)


def fading(episode):
    return 1 - 0.5 * min(episode / 1500, 1.0)


def test_a_seasonal_inventory_is_not_certified_as_one_law_for_all_days():
    with pytest.raises(eb.InvalidProblemError, match="not the same at every step") as caught:
        eb.identify(SeasonalInventory(), **SEASON, seed=1)
    assert "action" in str(caught.value)
    assert "at step" in str(caught.value)
    assert "stationary=False" in str(caught.value)
    assert caught.value.counts.episodes > 0


def test_a_gap_that_is_not_seen_is_found_out_as_memory():
    with pytest.raises(eb.InvalidProblemError, match="depends on what came before") as caught:
        eb.identify(HiddenGap(), **GAP, seed=1, stationary=False)
    assert "reached from state" in str(caught.value)


def test_returns_that_no_policy_can_earn_are_found_out():
    """The previous state tells nothing about the next, and all steps are alike: only the returns give it away."""
    with pytest.raises(eb.InvalidProblemError, match="earned more than is possible"):
        eb.identify(Echo(), **ECHO, seed=1)


@pytest.mark.parametrize("stationary", [True, False])
def test_a_slow_drift_over_the_episodes_is_not_certified(stationary):
    with pytest.raises(eb.InvalidProblemError, match="changes over the episodes") as caught:
        eb.identify(ChangingInventory(slowly), **STOCK, seed=1, stationary=stationary)
    assert re.search(r"\d+% of the first \d+ visits and in \d+% of the next \d+\)", str(caught.value))
    assert "next state '" in str(caught.value)
    assert "stationary=False" not in str(caught.value)


def test_random_rewards_that_fall_with_the_episodes_are_not_certified():
    with pytest.raises(eb.InvalidProblemError, match=r"changes over the episodes: .*a reward below 0\."):
        eb.identify(FadingRewards(fading), **WORN, seed=1)
    assert eb.identify(FadingRewards(lambda episode: 0.8), **WORN, seed=1).stopped


def test_a_drift_is_found_in_copies_that_are_played_together():
    with pytest.raises(eb.InvalidProblemError, match="changes over the episodes"):
        eb.identify(lambda: ChangingInventory(lambda episode: slowly(3 * episode)), **STOCK, seed=1, num_envs=3)


def inventory_lines(env, episodes, rng):
    """Lines of a log in which items are ordered at random."""
    lines = []
    for episode in range(episodes):
        stock, _ = env.reset(seed=int(rng.integers(1 << 30)))
        for h in range(6):
            action = int(rng.integers(3))
            following, reward, *_ = env.step(action)
            lines.append((episode, h, stock, action, reward, following, False, h == 5))
            stock = following
    return lines


def test_a_drift_in_a_log_is_found_by_the_order_of_its_lines():
    rng = np.random.default_rng(4)
    lines = inventory_lines(ChangingInventory(slowly), 1500, rng)
    known = {**STOCK, "eps": 20.0}

    def certify(lines):
        return eb.certify(eb.Log.read(table(lines), **ROLES, states="seen"), **known)

    with pytest.raises(eb.InvalidProblemError, match="changes over the episodes"):
        certify(lines)
    mixed = rng.permutation(1500)
    certificate = certify(sorted(lines, key=lambda line: (mixed[line[0]], line[1])))
    assert certificate.provenance.tests.unchanging < 0


def test_an_environment_that_is_not_the_one_of_the_log_is_found_out():
    lines = inventory_lines(ChangingInventory(lambda episode: 0.0), 1000, np.random.default_rng(4))
    log = eb.Log.read(table(lines), **ROLES, states="seen")
    with pytest.raises(eb.InvalidProblemError, match="changes over the episodes"):
        eb.identify(ChangingInventory(lambda episode: 0.7), **STOCK, data=log, seed=1)


def pooled_tests(visits):
    """What was seen of a hidden gap with pooled counts: how often (step, state, action, next state, reward, previous)."""
    tests = new_tests(0.0)
    tests.add(Batch(Counter(), Counter(visits), Counter({0.0: 1})))
    return tests


def test_only_the_places_that_carry_the_evidence_are_named_with_their_shares():
    visits = {(0, 1, 0, 0, 0.0, -1): 90, (2, 1, 0, 1, 0.0, 1): 90}  # what comes depends on the step
    visits |= {(h, 0, 1, 1, 0.0, 1): 300 for h in range(4)}  # a turn that never fails
    visits |= {(h, 2, 0, y, 0.0, 1): 40 for h in range(4) for y in (1, 2)}  # a coin at every step
    visits = {(*visit[:5], 1): times for visit, times in visits.items()}
    with pytest.raises(eb.InvalidProblemError, match="not the same at every step") as caught:
        check_assumptions(pooled_tests(visits), math.inf)
    assert "look at state '1', action '0' (100% of the evidence, most of all at step " in str(caught.value)
    assert "state '0'" not in str(caught.value)
    assert "state '2'" not in str(caught.value)
    assert "stationary=False" in str(caught.value)


def test_where_the_previous_state_tells_as_much_as_the_step_there_is_a_hidden_state():
    visits = {(0, 1, 0, 0, 0.0, 0): 90, (2, 1, 0, 1, 0.0, 2): 90}
    tests = pooled_tests(visits)
    assert min(tests.by_step.log_e(), tests.by_previous.log_e()) > REJECTED_FROM
    with pytest.raises(eb.InvalidProblemError, match="hidden state") as caught:
        check_assumptions(tests, math.inf)
    assert "100% of the evidence, most of all when reached from state" in str(caught.value)
    assert "add what is missing to the observation, which may be the step" in str(caught.value)
    assert "stationary=False" not in str(caught.value)


def test_evidence_is_shared_by_the_places_that_carry_it():
    visits = {(h, s, 0, y, 0.0, 1): 90 for s in (1, 2) for h, y in ((0, 0), (2, 1))}
    with pytest.raises(eb.InvalidProblemError) as caught:
        check_assumptions(pooled_tests(visits), math.inf)
    assert str(caught.value).count("(50% of the evidence") == 2


def test_what_is_rejected_is_rejected_again_and_step_by_step_it_is_certified_truly(tmp_path):
    pooled = {**SEASON, "horizon": 6, "eps": 5.0, "seed": 2}
    for _ in range(2):  # taken up again, it is refused again
        with pytest.raises(eb.InvalidProblemError, match="not the same at every step"):
            eb.identify(SeasonalInventory(6), **pooled, checkpoint=tmp_path / "run")
    with pytest.raises(eb.InvalidProblemError, match="another run: stationary was"):
        eb.identify(SeasonalInventory(6), **pooled, checkpoint=tmp_path / "run", stationary=False)
    result = eb.identify(SeasonalInventory(6), **pooled, stationary=False)
    claim = result.certificate
    assert result.stopped
    assert not claim.stationary
    assert eb.verify(claim).ok
    model = seasonal_model(6)
    optimum = eb.solve(model, -0.2).value
    value = eb.evaluate(model, result.policy[:, :-1], -0.2).value
    assert claim.lower <= value <= optimum <= claim.upper
    assert optimum - value <= claim.gap <= 5.0


class Drift(SeasonalInventory):
    """The same, with rewards that rounding changes from day to day, as a running account does."""

    def step(self, action):
        stock, reward, *rest = super().step(action)
        return stock, reward + 1e-12 * self.day, *rest


def test_rounding_is_no_memory():
    options = {**SEASON, "horizon": 4, "reward_range": (-3, 9), "seed": 3, "max_episodes": 60}
    claim = eb.identify(Drift(4), **options).certificate
    assert claim.provenance.tests.memoryless < REJECTED_FROM
    assert (claim.transitions.rewards < claim.transitions.upper).any()


@pytest.mark.parametrize("rewards", ["fixed", "random"])
def test_a_resumed_run_has_the_evidence_of_an_uninterrupted_one(tmp_path, rewards):
    options = {**GAP, "horizon": 6, "seed": 4, "reward_law": rewards}
    whole = eb.identify("FrozenLake-v1", **options, max_episodes=500)
    half = int(whole.history["episodes"][len(whole.history) // 2])
    eb.identify("FrozenLake-v1", **options, max_episodes=half, checkpoint=tmp_path / "run")
    resumed = eb.identify("FrozenLake-v1", **options, max_episodes=500, checkpoint=tmp_path / "run")
    assert resumed.certificate.provenance.tests == whole.certificate.provenance.tests
    assert resumed.certificate.provenance.tests.stationary is not None


def test_the_certificate_says_what_was_tested_and_the_verifier_reads_it(tmp_path):
    claim = eb.identify("FrozenLake-v1", **GAP, max_episodes=200, seed=4).certificate
    evidence = claim.provenance.tests
    assert f"log e-value {evidence.stationary:.3g}" in claim.assumptions[-1]
    assert f"log e-value {evidence.memoryless:.3g}" in claim.assumptions[-1]
    assert f"nothing changes over the episodes (log e-value {evidence.unchanging:.3g})" in claim.assumptions[-1]
    assert evidence.returns <= claim.upper
    path = tmp_path / "certificate.json"
    claim.save(path)
    assert eb.Certificate.load(path).assumptions == claim.assumptions
    assert eb.verify(path).ok
    assert eb.certify(claim, beta=claim.beta).provenance.tests == evidence
    other = eb.certify(claim, beta=-0.5)  # what returns are worth depends on beta
    assert other.provenance.tests == evidence._replace(returns=None)
    assert eb.verify(other).ok
    simulated = eb.identify(eb.instances.risky_bridge(horizon=3), beta=-1.0, eps=1.0, delta=0.1).certificate
    assert simulated.provenance.tests is None
    assert not any("test" in sentence for sentence in simulated.assumptions)


@pytest.mark.parametrize(
    "tests",
    [
        {"stationary": REJECTED_FROM, "memoryless": 0.0, "unchanging": 0.0, "returns": 0.0},
        {"stationary": 0.0, "memoryless": 5.0, "unchanging": 0.0, "returns": 0.0},
        {"stationary": 0.0, "memoryless": 0.0, "unchanging": REJECTED_FROM, "returns": 0.0},
        {"stationary": None, "memoryless": 0.0, "unchanging": 0.0, "returns": 0.0},
        {"stationary": 0.0, "memoryless": "0", "unchanging": 0.0, "returns": 0.0},
        {"stationary": 0.0, "memoryless": None, "unchanging": 0.0, "returns": 0.0},
        {"stationary": 0.0, "memoryless": 0.0, "unchanging": None, "returns": 0.0},
        {"stationary": 0.0, "memoryless": 0.0, "returns": 0.0},
        {"stationary": 0.0, "memoryless": 0.0, "unchanging": 0.0},
    ],
)
def test_tests_that_no_such_run_can_have_are_refused_by_reader_and_verifier(tmp_path, tests):
    claim = eb.identify("FrozenLake-v1", **GAP, max_episodes=20, seed=4).certificate
    path = tmp_path / "certificate.json"
    claim.save(path)
    content = json.loads(path.read_text())
    del content["digest"]
    content["provenance"]["tests"] = tests
    path.write_text(json.dumps({**content, "digest": digest(content)}))
    with pytest.raises(eb.CertificateError):
        eb.Certificate.load(path)
    assert not eb.verify(path).ok


def test_the_command_line_names_the_steps(tmp_path):
    source = f"{Path(__file__).parents[1] / 'reference' / 'environments.py'}:SeasonalInventory"
    words = ["identify", source, "--horizon", "6", "--reward-range", "-2.4", "8"]
    words += ["--beta", "-0.2", "--eps", "5", "--delta", "0.1", "--seed", "2", "--out", str(tmp_path / "run")]
    first = CliRunner().invoke(cli.app, words, prog_name="entropic-bpi")
    assert first.exit_code == 2
    assert "at step" in first.stderr
    assert "--no-stationary" in first.stderr


# -- returns -----------------------------------------------------------------------------------------------------


def new_tests(beta, horizon=4, reward_range=(-1.0, 2.0)):
    problem = Environment(HiddenGap()).problem(
        horizon=horizon, reward_range=reward_range, beta=beta, eps=0.1, delta=0.1, stationary=True
    )
    return AssumptionTests(problem)


def smallest_value(returns, times, beta, low):
    """The smallest m against which no share of the best bet in hindsight earns enough, by plain bisection."""
    n, sign = times.sum(), -1.0 if beta < 0 else 1.0
    gains, least = (sign * (x if beta == 0 else np.exp(beta * x)) for x in (returns, low))
    c2 = 0.5 * math.log(math.pi) + math.lgamma(n + 1) - math.lgamma(n + 0.5)

    def against(m):
        def loss(v):
            return -times @ np.log1p(v * ((gains - least) / (m - least) - 1))

        return -optimize.minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).fun

    mean = times @ gains / n
    m = optimize.brentq(
        lambda m: against(m) - math.log(1 / LEVEL) - c2, least + 1e-9 * (mean - least), mean, xtol=1e-14
    )
    return m if beta == 0 else math.log(sign * m) / beta


@pytest.mark.parametrize("beta", [-1.0, -1e-9, 0.0, 0.4, 1.0])
def test_what_the_returns_show_is_the_smallest_mean_over_the_ball(beta):
    tests = new_tests(beta)
    cells, times = np.array([100, 400, 401, 900]), np.array([3, 50, 7, 20])
    tests.returns[cells] = times
    expected = smallest_value(tests.edges[cells], times, beta if abs(beta) > 1e-6 else 0.0, tests.lowest)
    assert value_lower_bound(tests) == pytest.approx(expected, abs=1e-6)
    assert value_lower_bound(tests) <= expected + 1e-9
    assert value_lower_bound(new_tests(beta)) == -4.0


@pytest.mark.parametrize("beta", [-2.0, 0.0, 1.5])
def test_what_the_returns_show_is_hardly_ever_more_than_the_truth(beta):
    rng, returns, chances = np.random.default_rng(7), np.array([-2.0, 0.0, 1.0, 5.0]), np.array([0.1, 0.5, 0.3, 0.1])
    truth = chances @ returns if beta == 0 else math.log(chances @ np.exp(beta * returns)) / beta
    wrong, runs = 0, 300
    for _ in range(runs):
        tests = new_tests(beta)
        failed = False
        for size in (5, 10, 30, 100, 300):
            played = rng.multinomial(size, chances)
            np.add.at(tests.returns, np.searchsorted(tests.edges, returns, side="right") - 1, played)
            failed |= value_lower_bound(tests) > truth
        wrong += failed
    assert stats.binomtest(wrong, runs, LEVEL, alternative="greater").pvalue > 0.01


def test_returns_above_the_upper_bound_are_a_contradiction_and_those_below_are_none():
    tests = new_tests(0.0)
    tests.returns[-1] = 100
    assert check_assumptions(tests, math.inf).returns > 6.5
    with pytest.raises(eb.InvalidProblemError, match="earned more"):
        check_assumptions(tests, 5.0)


# -- how often -----------------------------------------------------------------------------------------------------


def stopped_by(env, options, seed):
    try:
        eb.identify(env, **options, seed=seed)
    except eb.InvalidProblemError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_the_season_and_the_gap_are_caught_in_at_least_19_of_20_runs():
    caught = [stopped_by(SeasonalInventory(), SEASON, seed) for seed in range(20)]
    assert sum("at every step" in (message or "") for message in caught) >= 19
    caught = [stopped_by(HiddenGap(), GAP, seed) for seed in range(20)]
    assert sum("hidden state" in (message or "") for message in caught) >= 19


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options"),
    [
        (lambda: ChangingInventory(slowly), STOCK),
        (lambda: ChangingInventory(at_once), STOCK),
        (lambda: FadingRewards(fading), WORN),
    ],
    ids=["slow drift", "break", "falling rewards"],
)
def test_changes_over_the_episodes_are_caught_in_at_least_19_of_20_runs(source, options):
    caught = [stopped_by(source(), options, seed) for seed in range(20)]
    assert sum("over the episodes" in (message or "") for message in caught) >= 19


@pytest.mark.slow
def test_runs_on_environments_that_are_what_is_assumed_are_hardly_ever_stopped():
    """500 runs, each of them looked at after every plan; every stop is a false alarm."""
    alarms, runs = 0, 0
    sources = [
        (eb.as_gymnasium(eb.instances.garnet(5, 2, 3, horizon=6, seed=1)), {"horizon": 6}),
        (eb.as_gymnasium(eb.instances.risky_bridge(horizon=7)), {"horizon": 7}),
        ("FrozenLake-v1", {"horizon": 10}),
        (eb.as_gymnasium(eb.instances.river_swim(5, horizon=8)), {"horizon": 8}),
    ]
    goal = {"beta": -1.0, "eps": 1e-3, "delta": 0.1, "reward_range": (0, 1), "max_episodes": 1500}
    for source, options in sources:
        for seed in range(125):
            runs += 1
            alarms += stopped_by(source, {**goal, **options}, seed) is not None
    assert runs == 500
    assert stats.binomtest(alarms, runs, LEVEL, alternative="greater").pvalue > 0.01
