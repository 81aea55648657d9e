"""The monitor: its e-values against plain versions, its level with laws at the edge of the balls, its power, its files."""

import functools
import json
import math

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.monitoring import at_the_edge, episode, kl, largest_likelihood, log_mixture, moved, radius
from scipy.stats import binom
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.runs.monitoring.evidence import ReturnEvidence, RowEvidence, log_e_value
from entropic_bpi.runs.monitoring.monitor import Monitor

COUNTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=2, max_size=5)


def small(seed=0, episodes=200, beta=-1.0, **options):
    mdp = eb.instances.garnet(3, 2, 3, horizon=3, seed=seed)
    goal = {"beta": beta, "eps": 1e-6, "delta": 0.1, "max_episodes": episodes, "seed": 0, "replan": 1.0}
    return eb.identify(mdp, **goal, **options).certificate


# -- one row -----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(COUNTS, st.floats(1e-6, 5.0), st.integers(0, 3), st.booleans())
def test_the_e_value_of_a_row_is_that_of_the_sequence(counts, xi, unseen, few):
    before, since = (np.array(column) for column in zip(*counts, strict=True))
    if not before.sum() or not since.sum():
        return
    possible = len(before) + unseen
    most = possible - 1 if few and (since > 0).sum() < possible and possible > 2 else 0
    sequence = np.repeat(np.arange(len(since)), since).tolist()
    np.random.default_rng(0).shuffle(sequence)
    expected = log_mixture(sequence, possible, most) - since.sum() * largest_likelihood(before, since, xi)
    found = log_e_value(before, since, xi, possible, most)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-6)
    assert found <= expected + 1e-9 * (1 + abs(expected))


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.floats(1e-4, 3.0), st.integers(0, 10**6))
def test_no_law_of_the_ball_makes_the_outcomes_more_likely(counts, xi, seed):
    before, since = (np.array(column) for column in zip(*counts, strict=True))
    if not before.sum() or not since.sum():
        return
    sequence = np.repeat(np.arange(len(since)), since).tolist()
    e, rng = log_e_value(before, since, xi, len(before), 0), np.random.default_rng(seed)
    for _ in range(20):
        law = moved(rng, before / before.sum(), xi * rng.choice([1.0, rng.random()]))
        with np.errstate(divide="ignore"):
            likelihood = (since[since > 0] * np.log(law[since > 0])).sum()
        assert e <= log_mixture(sequence, len(before)) - likelihood + 1e-9 * (1 + abs(likelihood))


def test_the_balls_are_those_of_the_certificate():
    claim = small()
    evidence, seen = RowEvidence(claim.problem, claim.transitions), claim.transitions
    assert evidence.rows == len(np.unique(seen.rows[claim.problem.at_risk[seen.rows]]))
    for row in np.unique(seen.rows):
        before = np.zeros(3, dtype=int)
        before[seen.successors[seen.rows == row]] = seen.times[seen.rows == row]
        xi = evidence._radii.get(row)
        assert (xi is not None) == claim.problem.at_risk[row]
        if xi is not None:
            assert xi == pytest.approx(radius(claim.problem, before), rel=1e-10)


def test_rows_are_averaged_and_multiplied():
    claim = small()
    evidence = RowEvidence(claim.problem, claim.transitions)
    for row in list(evidence._rows)[:3]:
        for successor in (0, 1, 1, 1, 1, 1, 2):
            assert evidence.add(row, successor, 0.0, (9, 0, 0, 0)) is None
    total, p = evidence.log_e(), evidence.rows
    e = np.exp(evidence._log_e[0])
    assert len(e) == p
    assert total == pytest.approx(math.log((e.mean() + np.prod(1 - 1 / p + e / p)) / 2))


# -- the level ---------------------------------------------------------------------------------------------------------


def false_alarms(streams, level, episodes=60):
    """Streams with all laws at the edge of their balls, under the certified policy, another, or both in turn."""
    claims = [
        small(seed, n, beta, stationary=pooled)
        for seed, (n, beta, pooled) in enumerate(
            [(3, -1.0, True), (40, 2.0, False), (2000, -3.0, True), (300, 0.0, False)]
        )
    ]
    alarms = 0
    for i in range(streams):
        claim, rng = claims[i % len(claims)], np.random.default_rng(i)
        kernel, monitor = at_the_edge(rng, claim), Monitor(claim, level=level)
        other, kind = rng.integers(2, size=claim.policy.shape), rng.integers(3)
        for t in range(episodes):
            policy = claim.policy if kind == 0 or (kind == 2 and t % 2) else other
            monitor.observe(*episode(rng, claim.problem, kernel, lambda h, s, policy=policy: int(policy[h, s])))
        alarms += monitor.alarm
    return alarms


def test_there_are_few_false_alarms(monkeypatch):
    monkeypatch.setattr("entropic_bpi.runs.monitoring.monitor.LENGTHS", (5, 12, 17))
    assert false_alarms(24, 0.1, episodes=30) <= binom.ppf(1 - 1e-6, 24, 0.1)


@pytest.mark.slow
def test_2000_streams_at_the_edge_of_the_balls_have_no_more_alarms_than_the_level(monkeypatch):
    monkeypatch.setattr("entropic_bpi.runs.monitoring.monitor.LENGTHS", (5, 16, 33))
    alarms = false_alarms(2000, 0.1, episodes=40)
    print("false alarms of 2000 at level 0.1:", alarms)
    assert alarms <= binom.ppf(1 - 1e-3, 2000, 0.1)


def two_points(claim, lower):
    """A law of the return on two values whose entropic value is ``lower``: the chance of the larger one."""
    low, high, beta = lower - 0.4, lower + 0.7, claim.beta
    if beta == 0:
        return low, high, (lower - low) / (high - low)
    return low, high, math.expm1(beta * (lower - low)) / math.expm1(beta * (high - low))


@pytest.mark.parametrize("beta", [-2.0, 0.0, 1.5])
def test_returns_that_have_exactly_the_value_raise_few_alarms(beta):
    claim = small(beta=beta)
    alarms, streams, rng = 0, 300, np.random.default_rng(0)
    for _ in range(streams):
        evidence = ReturnEvidence(claim)
        low, high, chance = two_points(claim, evidence.lower)
        assert high <= evidence.most
        largest = 0.0
        for better in rng.random(100) < chance:
            evidence.wealth += np.log1p(-evidence.SHARES * evidence._gain(high if better else low))
            largest = max(largest, evidence.log_e())
        alarms += largest >= math.log(10)
    assert alarms <= binom.ppf(1 - 1e-6, streams, 0.1)
    for _ in range(200):
        evidence.wealth += np.log1p(-evidence.SHARES * evidence._gain(low))
    assert evidence.log_e() > math.log(100)


@pytest.mark.parametrize("beta", [-300.0, -2.0, 0.0, 2.0, 300.0])
def test_the_gain_of_a_return_is_zero_at_the_bound_and_one_at_the_most(beta):
    evidence = ReturnEvidence(small())
    evidence.beta = beta
    returns = np.linspace(evidence.lower - 1, evidence.most, 50)
    gains = [evidence._gain(r) for r in returns]
    assert evidence._gain(evidence.lower) == 0
    assert max(gains) == pytest.approx(1.0) == evidence._gain(evidence.most)
    assert max(gains) <= 1
    assert (np.diff(gains) >= 0).all()
    u, w = beta * (returns[10] - evidence.lower), beta * (evidence.most - evidence.lower)
    if 0 < abs(beta) < 10:
        assert gains[10] == pytest.approx(math.expm1(u) / math.expm1(w))


def coin(good):
    """One decision about nothing, then a coin: the reward of the second step is 1 in state 1 and 0 in state 2."""
    kernel = np.zeros((3, 2, 3))
    kernel[0, :, 1], kernel[0, :, 2] = good, 1 - good
    kernel[1:, :, 0] = 1.0
    return eb.FiniteMDP(kernel, [[0, 0], [1, 1], [0, 0]], horizon=2)


def test_leaving_the_policy_when_things_go_well_is_no_alarm():
    mdp = coin(0.5)
    claim = eb.identify(mdp, beta=0.0, eps=0.05, delta=0.1, successors="model", stationary=True, seed=0).certificate
    rng = np.random.default_rng(0)
    monitor, naive = Monitor(claim), ReturnEvidence(claim)
    for _ in range(300):
        lucky = rng.random() < 0.5
        path, first = [0, 1 if lucky else 2, 0], int(claim.policy[0, 0])
        second = int(claim.policy[1, path[1]])
        actions = [first, 1 - second if lucky else second]  # somebody else takes over in the good state
        monitor.observe(path, actions, [0.0, float(lucky)])
        if not lucky:
            naive.add(path[:2], actions, [0.0, 0.0], ended=False, free=set())
    assert not monitor.alarm
    assert naive.log_e() > math.log(100)  # what a test of the episodes that were played to the end would say


# -- detection ---------------------------------------------------------------------------------------------------------


def episodes_until_alarm(claim, kernel, rng, most=20_000, choose=None):
    monitor = Monitor(claim)
    choose = choose or (lambda h, s: int(claim.policy[h, s]))
    while not monitor.alarm and monitor.episodes < most:
        monitor.observe(*episode(rng, claim.problem, kernel, choose))
    return monitor


def row_at_start(claim, factor, rng):
    """The frequencies everywhere, but for the row of the first step: that many radii away."""
    problem, seen = claim.problem, claim.transitions
    kernel = np.full((problem.n_rows, problem.n_states), 1 / problem.n_states)
    for row in np.unique(seen.rows):
        kernel[row] = 0
        kernel[row, seen.successors[seen.rows == row]] = seen.times[seen.rows == row]
        kernel[row] /= kernel[row].sum()
    row = problem.start * problem.n_actions + int(claim.policy[0, problem.start])
    before = np.round(kernel[row] * seen.times[seen.rows == row].sum()).astype(int)
    kernel[row] = moved(rng, kernel[row], factor * radius(problem, before))
    assert kl(before / before.sum(), kernel[row]) == pytest.approx(factor * radius(problem, before), rel=1e-6)
    return kernel, row


def test_a_row_that_moved_is_found_and_named():
    claim, rng = small(1, 1000, stationary=True), np.random.default_rng(0)
    spent = []
    for factor in (4.0, 8.0):
        kernel, row = row_at_start(claim, factor, np.random.default_rng(5))
        monitor = episodes_until_alarm(claim, kernel, rng)
        assert monitor.alarm
        assert monitor.suspects[0].startswith(claim.problem.describe(row))
        spent.append(monitor.episodes)
    assert spent[1] < spent[0] < 20_000


def test_a_change_after_a_long_time_without_any_is_found():
    claim = lamp_claim()
    monitor = Monitor(claim)
    eb.rollout(monitor.watch(Lamp()), claim, episodes=1500, seed=1)
    assert not monitor.alarm
    eb.rollout(monitor.watch(Lamp(broken=0.35)), claim, episodes=256, seed=2)
    assert monitor.alarm
    assert "'end'" in monitor.suspects[0]
    assert monitor._of_period(0) < math.log(100)  # all episodes together would not show it yet


def test_periods_are_averaged(monkeypatch):
    monkeypatch.setattr("entropic_bpi.runs.monitoring.monitor.LENGTHS", (2, 3, 100))
    claim, rng = small(1, 1000, stationary=True), np.random.default_rng(0)
    kernel, _ = row_at_start(claim, 8.0, np.random.default_rng(5))
    seen = [episode(rng, claim.problem, kernel, lambda h, s: int(claim.policy[h, s])) for _ in range(7)]

    def alone(first, last):
        monitor = Monitor(claim)
        for part in seen[first:last]:
            monitor.observe(*part)
        return math.exp(monitor._of_period(0))

    monitor = Monitor(claim)
    for part in seen:
        monitor.observe(*part)
    by_length = [
        sum(alone(k, min(k + n, 7)) / ((k // n + 1) * (k // n + 2)) for k in range(0, 7, n)) + 1 / (-(-7 // n) + 1)
        for n in (2, 3, 100)
    ]
    assert monitor.history[-1][1] == pytest.approx(math.log(alone(0, 7) / 2 + sum(by_length) / 6))


def test_an_unchanged_world_gives_no_evidence():
    claim = small(1, 1000)
    mdp = eb.instances.garnet(3, 2, 3, horizon=3, seed=1)
    monitor = Monitor(claim)
    eb.rollout(monitor.watch(eb.as_gymnasium(mdp)), claim, episodes=500, seed=3)
    assert monitor.episodes == 500
    assert not monitor.alarm
    assert monitor.evidence < 1
    assert "no sign of a change" in repr(monitor)


# -- what is excluded, and what is not an episode ------------------------------------------------------------------------


@functools.cache
def bridge_claim(**options):
    bridge = eb.instances.risky_bridge(horizon=5)
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1, "max_episodes": 300}
    return eb.identify(bridge, **goal, **{"successors": "model", **options}).certificate


@pytest.mark.parametrize(
    ("states", "actions", "rewards", "words"),
    [
        (
            [0, 6],
            [1],
            [0.0],
            "episode 1: step 0, state 's0', action 'risky' went to state 'sg', which is declared impossible",
        ),
        ([3, 4], [0], [0.0], "it began in state 's3'"),
        ([0, 1], [0], [0.5], "paid 0.5, which is declared impossible"),
    ],
)
def test_what_is_excluded_is_an_alarm_at_once(states, actions, rewards, words):
    monitor = Monitor(bridge_claim())
    monitor.observe(states, actions, rewards)
    assert monitor.alarm
    assert monitor.evidence == math.inf
    assert words in monitor.excluded
    monitor.observe([0, 1], [0], [0.0])
    assert monitor.alarm
    assert words in monitor.suspects[0]


@pytest.mark.parametrize(
    ("episode", "words"),
    [
        (([0], [0], [0.0]), "one state more than actions"),
        (([0, 1], [0], []), "as many rewards"),
        (([0, 1], [5], [0.0]), "action"),
        (([0, 1], [0], ["much"]), r"rewards\[0\]"),
        (([0, 1], [0], [math.nan]), r"rewards\[0\]"),
        (([0, 99], [0], [0.0]), "the state must be"),
        (([0, 1], [0], [0.0], "yes"), "terminated"),
    ],
)
def test_what_is_not_an_episode_is_an_error_and_changes_nothing(episode, words):
    monitor = Monitor(bridge_claim())
    with pytest.raises(eb.InvalidProblemError, match=words):
        monitor.observe(*episode)
    assert (monitor.episodes, monitor.evidence) == (0, 0.0)


def test_what_a_monitor_needs():
    with pytest.raises(eb.InvalidProblemError, match="method='kl'"):
        Monitor(bridge_claim(method="bernstein"))
    with pytest.raises(eb.InvalidProblemError, match="level"):
        Monitor(bridge_claim(), level=0.0)


class Lamp(gymnasium.Env):
    """Observations on and off; the episode ends with chance ``broken``; a reward of 1 while it is on."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self, broken=0.1, paid=1.0, first=0.5):
        self.broken, self.paid, self.first = broken, paid, first

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.on = int(self.np_random.random() < self.first)
        return self.on, {}

    def step(self, action):
        paid = self.paid * self.on
        self.on = int(self.np_random.random() < (0.7 if action else 0.4))
        return self.on, paid, bool(self.np_random.random() < self.broken), False, {}


@functools.cache
def lamp_claim(**options):
    goal = {
        "beta": -0.5,
        "eps": 0.05,
        "delta": 0.1,
        "horizon": 4,
        "reward_range": (0, 1),
        "max_episodes": 3000,
        "seed": 0,
    }
    return eb.identify(Lamp(), **goal, **options).certificate


@pytest.mark.parametrize(
    "options", [{}, {"stationary": False}, {"reward_law": "random"}, {"max_states": 5}, {"max_successors": 3}]
)
def test_a_black_box_is_watched(options):
    claim = lamp_claim(**options)
    same, other, paid, first = Monitor(claim), Monitor(claim), Monitor(claim), Monitor(claim)
    for monitor, lamp in ((same, Lamp()), (other, Lamp(broken=0.6)), (first, Lamp(first=0.95))):
        eb.rollout(monitor.watch(lamp), claim, episodes=600, seed=1)
    assert not same.alarm
    assert other.alarm
    assert "end" in " ".join(other.suspects)
    assert first.alarm
    assert "the random start" in first.suspects[0]
    eb.rollout(paid.watch(Lamp(paid=0.5)), claim, episodes=600, seed=1)
    assert paid.alarm
    if "reward_law" in options:
        assert any("returns of the policy" in said for said in paid.suspects)
    else:
        assert paid.evidence == math.inf or "reward 0.5" in paid.suspects[0]


def test_states_that_are_found_later_are_no_contradiction_until_there_are_too_many():
    monitor = Monitor(lamp_claim(max_states=4))
    monitor.observe([1, 7], [0], [1.0])
    assert monitor.excluded is None
    monitor.observe([7, 8], [1], [0.0])
    assert monitor.excluded is None
    monitor.observe([8, 9], [1], [0.0])
    assert "a state that the certificate does not have" in monitor.excluded


def test_the_entropic_value_at_risk_is_watched_at_its_lambda():
    mdp = eb.instances.garnet(3, 2, 3, horizon=3, seed=1)
    claim = eb.identify(mdp, risk=eb.EVaR(0.9), eps=0.3, delta=0.1, successors="model", seed=1).certificate
    assert claim.lower > 0.1
    evidence = ReturnEvidence(claim)
    assert -evidence.beta in [cell.lam for cell in claim.cells]
    assert evidence.lower + math.log(0.9) / -evidence.beta >= claim.lower - 1e-6
    monitor = Monitor(claim)
    eb.rollout(monitor.watch(eb.as_gymnasium(mdp)), claim, episodes=200, seed=3)
    assert not monitor.alarm


# -- logs, files, the command line ---------------------------------------------------------------------------------------


def lines_of(env, episodes, seed):
    rows = []
    for e in range(episodes):
        state, _ = env.reset(seed=seed + e)
        for t in range(4):
            action = e % 2
            following, reward, terminated, _, _ = env.step(action)
            rows.append({"e": e, "t": t, "s": state, "a": action, "r": reward, "n": following, "over": terminated})
            if terminated:
                break
            state = following
    return rows


ROLES = {
    "episode": "e",
    "step": "t",
    "state": "s",
    "action": "a",
    "reward": "r",
    "next_state": "n",
    "terminated": "over",
}


def test_a_log_is_the_same_as_its_episodes(tmp_path):
    claim, rows = lamp_claim(), lines_of(Lamp(0.5), 200, 7)
    by_log, by_episode = Monitor(claim), Monitor(claim)
    by_log.observe_log(eb.Log.read(rows, **ROLES, truncated=True))
    for e in range(200):
        mine = [row for row in rows if row["e"] == e]
        states = [row["s"] for row in mine] + [mine[-1]["n"]]
        by_episode.observe(states, [row["a"] for row in mine], [row["r"] for row in mine], mine[-1]["over"])
    assert by_log.evidence == by_episode.evidence > 0
    assert by_log.history == by_episode.history


def test_a_certificate_from_a_log_is_watched_and_its_last_step_may_be_unknown():
    roles = {name: column for name, column in ROLES.items() if name != "next_state"}
    read = lambda rows: eb.Log.read(rows, **roles, truncated=True, states=[0, 1])  # noqa: E731
    log = read(lines_of(Lamp(), 600, 7))
    for stationary in (True, False):
        goal = {"beta": -0.5, "delta": 0.1, "horizon": 4, "reward_range": (0, 1), "stationary": stationary}
        claim = eb.certify(log, **goal)
        same, other = Monitor(claim), Monitor(claim)
        same.observe_log(read(lines_of(Lamp(), 400, 10**6)))
        same.observe([0, 1, 1, 0, 0], [0, 1, 0, 0], [0.0, 1.0, 1.0, 0.0])
        other.observe_log(read(lines_of(Lamp(0.6), 400, 10**6)))
        assert not same.alarm
        assert other.alarm


def test_a_monitor_goes_on_from_its_file(tmp_path):
    claim, rows = lamp_claim(), lines_of(Lamp(0.3), 300, 7)
    parts = [[row for row in rows if (row["e"] < 150) == first] for first in (True, False)]
    whole, first = Monitor(claim, level=0.05), Monitor(claim, level=0.05)
    for part in parts:
        whole.observe_log(eb.Log.read(part, **ROLES, truncated=True))
    first.observe_log(eb.Log.read(parts[0], **ROLES, truncated=True))
    first.save(tmp_path / "monitor.json.gz")
    second = Monitor.load(tmp_path / "monitor.json.gz")
    assert repr(second) == repr(first)
    second.observe_log(eb.Log.read(parts[1], **ROLES, truncated=True))
    assert (second.evidence, second.history, second.level) == (whole.evidence, whole.history, 0.05)
    assert whole.excluded is None
    whole.observe([0, 1], [0], [0.25])  # a reward that is not the fixed one
    whole.save(tmp_path / "alarm.json")
    assert Monitor.load(tmp_path / "alarm.json").evidence == math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"format": "a shop"},
        {"level": 3},
        {"seen": [[10**6, 0, 0.0, 0.0, [1, 0, 0, 0]]]},
        {"seen": [[0, 0, 0.0, 0.0, [-1, 0, 0, 0]]]},
        {"seen": [[0, 0, 0.0, 0.0, [1]]]},
        {"ended": [0.0]},
        {"seen": 7},
        {"wealth": [1.0]},
        {"wealth": [["nan"] * 10] * 4},  # not a number would never be an alarm
        {"largest": "nan"},
        {"history": [[0]]},
        {"episodes": "two"},
        {"certificate": {}},
    ],
)
def test_a_file_that_is_no_monitor_is_refused(tmp_path, change):
    Monitor(lamp_claim()).save(tmp_path / "monitor.json")
    content = json.loads((tmp_path / "monitor.json").read_text())
    (tmp_path / "monitor.json").write_text(json.dumps(content | change))
    with pytest.raises(eb.EntropicBPIError):
        Monitor.load(tmp_path / "monitor.json")


def test_history_stays_short():
    monitor = Monitor(bridge_claim())
    for _ in range(5000):
        monitor.observe([0], [], [])
    assert len(monitor.history) <= 2048
    assert monitor.history[0] == (0, 0.0)
    assert monitor.history[-1][0] >= 4990
    assert len(monitor.plot().axes) == 1


def test_the_command_watches_and_goes_on(tmp_path):
    lamp_claim().save(tmp_path / "certificate.json")
    options = [word for name, column in ROLES.items() for word in (f"--{name.replace('_', '-')}", column)]

    def typed(run, lamp, *more):
        path = tmp_path / "log.jsonl"
        path.write_text("\n".join(map(json.dumps, lines_of(lamp, 300, 5))))
        words = ["monitor", str(tmp_path / run), str(path), *options, "--all-truncated", "--json", *more]
        return CliRunner().invoke(cli.app, words)

    saved, drawn = str(tmp_path / "monitor.json"), str(tmp_path / "e.png")
    said = typed("certificate.json", Lamp(), "--save", saved, "--level", "0.02")
    assert said.exit_code == 0, said.output
    told = json.loads(said.output)
    assert (told["alarm"], told["episodes"], told["level"]) == (False, 300, 0.02)
    said = typed("monitor.json", Lamp(0.7), "--save", saved, "--plot", drawn)
    assert said.exit_code == 1, said.output
    told = json.loads(said.output)
    assert (told["alarm"], told["episodes"], told["level"]) == (True, 600, 0.02)
    assert "expected" in told["suspects"][0]
    assert (tmp_path / "e.png").stat().st_size > 1000
    assert typed("nothing.json", Lamp()).exit_code == 2
