"""Certificates from logs: true ones, ones that fail as documented, and what is said about given policies."""

import json
from collections import Counter

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions
from tests.reference.kl import ball_max_mpmath, mixture_radius_mpmath
from tests.reference.logs import ROLES, play, table

KERNEL = np.array([[[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]], [[0.5, 0.5, 0.0], [0.0, 0.6, 0.4]], [[0.0, 0.0, 1.0]] * 2])
REWARDS = np.array([[0.2, 0.0], [0.4, 1.0], [0.0, 0.0]])
# State 2 absorbs and pays nothing: it is where episodes terminate.
MODEL = eb.FiniteMDP(KERNEL, REWARDS, horizon=3, start=[0.7, 0.3, 0.0])
DECLARED = {"delta": 0.1, "horizon": 3, "reward_range": (0.0, 1.0)}


def read(lines, **options):
    return eb.Log.read(table(lines), **{**ROLES, "states": [0, 1], "actions": [0, 1], **options})


def is_true(claim, mdp=MODEL):
    best, mine = eb.solve(mdp, claim.beta).value, eb.evaluate(mdp, claim.policy, claim.beta).value
    return claim.lower <= mine + 1e-9 and best <= claim.upper + 1e-9 and best - mine <= claim.gap + 1e-9


@pytest.fixture(scope="module")
def uniform():
    """A log of a uniformly random behaviour, some of whose episodes were cut."""
    return read(play(MODEL, 4000, np.random.default_rng(3), ends=(2,), cut=0.05))


class Recorder(gymnasium.Wrapper):
    """Writes down all that happens."""

    def __init__(self, env):
        super().__init__(env)
        self.lines, self.episode = [], -1

    def reset(self, **options):
        self.state, info = self.env.reset(**options)
        self.episode, self.step_number = self.episode + 1, 0
        return self.state, info

    def step(self, action):
        answer = self.env.step(action)
        following, reward, terminated, truncated, _ = answer
        line = (self.episode, self.step_number, self.state, action, reward, following, terminated, truncated)
        self.lines.append(line)
        self.state, self.step_number = following, self.step_number + 1
        return answer


@pytest.mark.parametrize("stationary", [True, False])
def test_a_log_of_our_own_play_gives_the_certificate_of_the_run_bit_for_bit(stationary):
    env = Recorder(gymnasium.make("FrozenLake-v1", map_name="4x4"))
    declared = {"beta": -1.0, "delta": 0.1, "horizon": 4, "reward_range": (0.0, 1.0)}
    run = eb.identify(env, eps=0.2, seed=1, max_episodes=300, stationary=stationary, **declared)
    played = [line for line in env.lines if line[0] < run.certificate.episodes]
    log = read(played, states=range(16), actions=range(4))
    same = eb.certify(log, policy=run.policy, stationary=stationary, **declared)
    for mine, theirs in zip(same.transitions, run.certificate.transitions, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    claim = run.certificate
    assert (same.lower, same.upper, same.gap) == (claim.lower, claim.upper, claim.gap)
    assert same.episodes == claim.episodes
    best, again = eb.certify(log, stationary=stationary, **declared), eb.certify(run, beta=-1.0)
    assert best.gap <= again.gap


@pytest.mark.parametrize("beta", [-2.0, 0.0, 1.5])
@pytest.mark.parametrize("stationary", [True, False])
def test_a_log_of_random_behaviour_certifies_a_good_policy(uniform, beta, stationary):
    claim = eb.certify(uniform, beta=beta, stationary=stationary, **DECLARED)
    assert is_true(claim)
    assert claim.reached
    assert claim.eps == claim.gap
    assert claim.gap < (0.4 if stationary else 0.7)
    best = eb.solve(MODEL, beta)
    assert eb.evaluate(MODEL, claim.policy, beta).value == pytest.approx(best.value, abs=0.02)


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("rewards", ["fixed", "random"])
def test_the_file_of_a_log_is_verified_and_read_back(uniform, stationary, rewards, tmp_path):
    claim = eb.certify(uniform, beta=-1.0, stationary=stationary, reward_law=rewards, **DECLARED)
    claim.save(tmp_path / "claim.json")
    checked = eb.verify(tmp_path / "claim.json")
    assert checked.ok, checked.problems
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    assert loaded.provenance == claim.provenance
    assert loaded.assumptions == claim.assumptions
    assert eb.certify(loaded, beta=-1.0, eps=1e-9).gap == pytest.approx(claim.gap, abs=1e-9)


@pytest.mark.parametrize("stationary", [True, False])
def test_without_next_states_less_is_known_but_nothing_is_wrong(stationary):
    lines = play(MODEL, 3000, np.random.default_rng(4), ends=(2,))
    known, unknown = read(lines), read(lines, next_state=None, truncated=True)
    options = {"beta": -1.0, "stationary": stationary, **DECLARED}
    claims = [eb.certify(log, **options) for log in (known, unknown)]
    assert all(is_true(claim) for claim in claims)
    assert all(eb.verify(claim).ok for claim in claims)
    assert unknown.unused > 0
    cut = "episodes that did not end were cut after 3 steps, whatever happened; that step is not used, because the log"
    assert any(words.startswith(cut) for words in claims[1].assumptions) == stationary
    if not stationary:  # what follows the last step does not matter
        assert claims[1].gap == pytest.approx(claims[0].gap, abs=0.1)


def test_what_a_log_rests_on_is_said(uniform):
    words = eb.certify(uniform, beta=1.0, **DECLARED).assumptions
    assert words[0].startswith("episodes are a log of one finite Markov decision process: every decision depended on")
    assert words[1] == "there are no other states and actions than those that are named"
    lines = play(MODEL, 50, np.random.default_rng(5), ends=(2,))
    excluded = eb.certify(read(lines, exclude="episode < 7"), beta=1.0, **DECLARED)
    wanted = "left out on request, and not because of what happened in them: 7 episodes with episode < 7"
    assert wanted in excluded.assumptions
    assert eb.verify(excluded).ok


def test_selected_episodes_make_false_claims():
    """The documented failure: who drops episodes for their outcome is certified what is not so."""
    lines = play(MODEL, 3000, np.random.default_rng(6), ends=(2,))
    ended = {line[0] for line in lines if line[6]}
    survivors = [line for line in lines if line[0] not in ended]
    claim = eb.certify(read(survivors), beta=0.0, **DECLARED)
    assert claim.lower > eb.solve(MODEL, 0.0).value + 0.1
    assert not is_true(claim)
    assert eb.verify(claim).ok, "no counts can tell: the assumption is the reader's to judge"


# -- which states exist ----------------------------------------------------------------------------------------------

# "bad" is rare, costs 1 at every step, and nobody comes back from it.
RARE = eb.FiniteMDP([[[0.995, 0.005]], [[0.0, 1.0]]], [[0.0], [-1.0]], horizon=40)
SHORT = {"beta": 0.0, "delta": 0.05, "horizon": 40, "reward_range": (-1.0, 0.0)}


def rare_log(seed, **options):
    lines = [
        (*line[:2], ["good", "bad"][line[2]], "go", line[4], ["good", "bad"][line[5]], *line[6:])
        for line in play(RARE, 4, np.random.default_rng(seed))
    ]
    return eb.Log.read(table(lines), **ROLES, **options)


SPARED = next(seed for seed in range(100) if rare_log(seed).states == ("good",))


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: eb.certify(log, **SHORT),
        lambda log: eb.identify(Corridor(), data=log, eps=0.3, **SHORT),
        lambda log: eb.forecast(Corridor(), data=log, eps=0.3, **SHORT),
    ],
    ids=["certify", "identify", "forecast"],
)
def test_a_log_does_not_say_which_states_exist(ask):
    """Where a rare bad state was not seen, the data would decide that there is none."""
    log = rare_log(SPARED)
    with pytest.raises(InvalidProblemError, match=r"dict has 1 states, but other states may exist: .*'seen'"):
        ask(log)


@pytest.mark.parametrize("when", ["read", "certify"])
@pytest.mark.parametrize(
    "declared", [{"states": ["bad", "good"]}, {"states": ("good", "bad")}, {"max_states": 2}, {"states": "seen"}]
)
def test_which_states_exist_is_declared_for_read_or_for_certify(when, declared):
    """A false word of the user makes a false claim, which says whose word it is."""
    log = rare_log(SPARED, **(declared if when == "read" else {}))
    claim = eb.certify(log, **SHORT, **(declared if when == "certify" else {}))
    true, seen = eb.solve(RARE, 0.0).value, declared.get("states") == "seen"
    assert (claim.lower <= true) != seen
    assert ("the user declares that the states of the log are all there are" in claim.assumptions) == seen
    assert claim.provenance.log.seen == seen
    assert eb.verify(claim).ok
    if "max_states" not in declared and not seen:
        assert claim.problem.state_names == (*declared["states"], "end")
        policy = {"good": "go", "bad": "go"}
        assert eb.certify(log, **SHORT, **({} if when == "read" else declared), policy=policy).lower == claim.lower


def test_the_declaration_of_certify_is_the_one_that_counts():
    log = rare_log(SPARED, states="seen")
    assert (
        eb.certify(log, states=["good", "bad"], **SHORT).gap == eb.certify(rare_log(SPARED), max_states=2, **SHORT).gap
    )


def test_listed_states_may_be_in_any_order(uniform):
    """Counts know them by their numbers in the log, and the claim by those in the list."""
    lines = play(MODEL, 300, np.random.default_rng(11), ends=(2,))
    listed = eb.certify(read(lines, states=[7, 1, 0]), beta=-1.0, **DECLARED)
    later = eb.certify(read(lines, states=None), states=[7, 1, 0], beta=-1.0, **DECLARED)
    assert listed._content() == later._content()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"states": ["bad"]}, "state 'good' of dict is not among the declared states"),
        ({"states": ["good", "bad"], "max_states": 2}, "give states= or max_states=, not both"),
        ({"states": "all"}, "states must be a list, got 'all'"),
        ({"states": ["good", "good"]}, "states must be distinct"),
        ({"states": ["good", {"bad"}]}, "labels must be hashable"),
        ({"max_states": 0}, "max_states must be at least 1"),
    ],
)
def test_a_wrong_list_of_states_is_refused(declared, message):
    with pytest.raises(InvalidProblemError, match=message):
        eb.certify(rare_log(SPARED), **SHORT, **declared)


def test_states_are_declared_for_logs_alone(uniform):
    claim = eb.certify(uniform, beta=1.0, **DECLARED)
    with pytest.raises(InvalidProblemError, match="states= is for logs, and"):
        eb.certify(claim, beta=1.0, states=[0, 1])


@pytest.mark.slow
def test_with_listed_states_a_rare_one_that_nobody_saw_makes_no_claim_false():
    true, false = eb.solve(RARE, 0.0).value, {"seen": 0, "listed": 0}
    for seed in range(300):
        log = rare_log(seed)
        for name, states in (("seen", "seen"), ("listed", ["good", "bad"])):
            false[name] += eb.certify(log, states=states, **SHORT).lower > true
    print(f"false claims of 300: {false}")
    assert false["listed"] <= 0.05 * 300 < false["seen"]


# -- a declared range of returns -------------------------------------------------------------------------------------


def half_a_step(steps):
    """Episodes of one state that pays 0.5 at every step, each cut after so many steps."""
    return [(e, h, 0, 0, 0.5, 0, False, h == n - 1) for e, n in enumerate(steps) for h in range(n)]


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("steps", [[6] * 50, [1] * 50, [1, 2, 6] * 20], ids=["longer", "cut", "both"])
def test_a_range_of_returns_is_about_the_steps_before_the_horizon(steps, stationary, tmp_path):
    """What an episode paid after the horizon, or would have paid had it not been cut, is not in the sum of the rewards."""
    log = read(half_a_step(steps), states=[0], actions=[0])
    declared = {"delta": 0.1, "horizon": 2, "reward_range": (0.0, 1.0), "return_range": (0.8, 1.2)}
    claim = eb.certify(log, beta=-1.0, stationary=stationary, **declared)
    assert 0.8 - 1e-8 <= claim.lower <= 1.0 <= claim.upper
    claim.save(tmp_path / "claim.json")
    assert eb.Certificate.load(tmp_path / "claim.json").gap == claim.gap
    assert eb.verify(tmp_path / "claim.json").ok


@pytest.mark.parametrize("returns", [[0.0, 0.9], [1.3, 2.0]])
def test_a_range_of_returns_that_the_counts_of_a_log_contradict_is_rejected(returns, tmp_path):
    lines = [(e, h, 0, 0, 0.5, 0, h == 1, False) for e in range(50) for h in range(2)]
    declared = {"delta": 0.1, "horizon": 2, "reward_range": (0.0, 1.0), "return_range": (0.8, 1.2)}
    claim = eb.certify(read(lines, states=[0], actions=[0]), beta=-1.0, stationary=False, **declared)

    def change(content):
        content["problem"]["return_range"] = returns
        words = content["assumptions"]
        place = next(i for i, sentence in enumerate(words) if sentence.startswith("the return of every"))
        words[place] = f"the return of every episode lies in [{returns[0]:g}, {returns[1]:g}], whatever is played"

    assert eb.verify(claim).ok
    checked = forged(claim, tmp_path, change)
    assert any("the mean return of the episodes" in problem for problem in checked.problems)
    with pytest.raises(eb.CertificateError, match="the mean return of the episodes is"):
        eb.Certificate.load(tmp_path / "claim.json")


# -- given policies ------------------------------------------------------------------------------------------------


def test_a_policy_may_be_given_in_any_form(uniform):
    labels = [["stay", "go"][line[3]] for line in play(MODEL, 400, np.random.default_rng(7), ends=(2,))]
    lines = [
        (*line[:2], ["shore", "boat"][line[2]], name, line[4], ["shore", "boat", "over"][line[5]], *line[6:])
        for line, name in zip(play(MODEL, 400, np.random.default_rng(7), ends=(2,)), labels, strict=True)
    ]
    log = read(lines, states=["shore", "boat"], actions=["stay", "go"])
    forms = [
        np.array([[0, 1]] * 3),
        np.array([[0, 1, 0]] * 3),
        {"shore": "stay", "boat": "go"},
        lambda state: "stay" if state == "shore" else "go",
    ]
    claims = [eb.certify(log, beta=-1.0, policy=form, **DECLARED) for form in forms]
    assert len({(claim.lower, claim.upper, claim.gap) for claim in claims}) == 1
    assert is_true(claims[0])
    assert claims[0].problem.action_names == ("stay", "go")
    assert claims[0].problem.state_names == ("shore", "boat", "end")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({0: 0}, "policy has no action for state 1"),
        ({0: 0, 1: 5}, r"policy has 5 for state 1, which is not an action: there are 0, 1"),
        (lambda state: [], r"policy has \[\] for state 0"),
        (np.zeros((2, 2), dtype=int), "policy must have shape"),
        (np.full((3, 2), 2), "is not an action"),
    ],
)
def test_a_wrong_policy_is_named(uniform, policy, message):
    with pytest.raises(InvalidProblemError, match=message):
        eb.certify(uniform, beta=1.0, policy=policy, **DECLARED)


@pytest.mark.parametrize("beta", [-1.5, 0.0, 1.0])
def test_policies_are_compared_and_every_interval_is_true(uniform, beta):
    policies = {str(a): {0: a[0], 1: a[1]} for a in np.ndindex(2, 2)}
    comparison = eb.certify(uniform, beta=beta, policies=policies, **DECLARED)
    values = {
        name: eb.evaluate(MODEL, np.tile([policy[0], policy[1], 0], (3, 1)), beta).value
        for name, policy in policies.items()
    }
    for name, (lower, upper) in comparison.intervals.items():
        assert lower <= values[name] <= upper <= comparison.certificates[name].upper + 1e-9
        assert upper - lower < 0.5
        assert lower == comparison.certificates[name].lower
    assert comparison.order
    assert all(values[better] > values[worse] for better, worse in comparison.order)
    assert ("(1, 1)", "(0, 0)") in comparison.order or ("(0, 1)", "(0, 0)") in comparison.order


@pytest.mark.parametrize("beta", [-1.5, 1.0])
def test_the_upper_end_of_an_interval_agrees_with_a_plain_recursion(beta):
    """Backwards over the steps, with the extreme mean over each ball in 50 digits."""
    mdp = eb.FiniteMDP(KERNEL, REWARDS, horizon=3, start=0)
    seen = np.array([[40, 3, 0], [5, 9, 4], [0, 0, 0], [0, 12, 8], [0, 0, 6], [0, 0, 1]])
    rows, successors = np.nonzero(seen)
    problem = Problem.from_mdp(mdp, beta=beta, eps=0.01, delta=0.1, stationary=True)
    counts = Counts.of(problem, Transitions(rows, successors, seen[rows, successors]), 30)
    sign, policy, at_risk = np.sign(beta), np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]]), 6
    values = np.ones(3)
    for h in reversed(range(3)):
        now = []
        for s in range(3):
            tally, gain = seen[2 * s + policy[h, s]], np.exp(beta * REWARDS[s, policy[h, s]])
            n = tally.sum()
            if h == 2 or n == 0:
                now.append(gain * (1.0 if h == 2 else sign * max(sign * values)))
                continue
            x = (np.log(at_risk / 0.1) + float(mixture_radius_mpmath(tally.tolist(), 3))) / n
            now.append(gain * sign * float(ball_max_mpmath(tally.tolist(), (sign * values).tolist(), x)))
        values = np.array(now)
    (_, upper), *_ = eb.certify(counts, beta=beta, policies={"given": policy}).intervals.values()
    assert upper == pytest.approx(np.log(values[0]) / beta, abs=1e-6)
    assert upper >= np.log(values[0]) / beta - 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": None}, "a log needs delta="),
        ({"horizon": None}, "a log needs horizon="),
        ({"reward_range": None}, "a log needs reward_range="),
        (
            {"reward_range": (0.0, 0.9)},
            r"line \d+ of dict: reward 1.0 is outside the declared reward_range \(0.0, 0.9\)",
        ),
        ({"stationary": "yes"}, "stationary must be True or False"),
        ({"reward_law": "some"}, "reward_law must be one of"),
        ({"policies": {}}, "policies must be a mapping"),
        ({"policies": {"a": {0: 0, 1: 0}}, "policy": {0: 0, 1: 0}}, "instead of policy"),
        ({"beta": np.nan}, "beta must be a finite real number"),
    ],
)
def test_wrong_declarations_are_named(uniform, options, message):
    with pytest.raises(InvalidProblemError, match=message):
        eb.certify(uniform, **{"beta": 1.0, **DECLARED, **options})


def test_declarations_of_a_log_are_for_logs(uniform):
    claim = eb.certify(uniform, beta=1.0, **DECLARED)
    with pytest.raises(InvalidProblemError, match="horizon= is for logs, and"):
        eb.certify(claim, beta=1.0, horizon=4)


def test_a_reward_that_changes_is_named_with_its_line():
    lines = play(MODEL, 20, np.random.default_rng(8), ends=(2,))
    moves = [(line[2], line[3], line[5]) for line in lines]
    again = max(i for i, (s, _, y) in enumerate(moves) if s != y != 2 and moves[i] in moves[:i])
    lines[again] = (*lines[again][:4], 0.77, *lines[again][5:])
    with pytest.raises(
        InvalidProblemError, match=rf"line {again + 1} of dict: the reward of .* changed: now 0.77.*random"
    ):
        eb.certify(read(lines), beta=1.0, **DECLARED)
    assert is_true(eb.certify(read(lines), beta=1.0, reward_law="random", **DECLARED))


def test_declared_successors_narrow_the_claim(uniform):
    declared = {(0, 0): [0, 1], (0, 1): [0, 1, eb.END], (1, 0): [0, 1], (1, 1): [1, eb.END]}
    wide, narrow = (eb.certify(uniform, beta=-1.0, successors=known, **DECLARED) for known in (None, declared))
    assert narrow.gap < wide.gap
    assert is_true(narrow)
    assert eb.verify(narrow).ok


@pytest.mark.parametrize(
    ("declared", "wrong", "message"),
    [
        (
            {"successors": lambda s, a: [0, 1]},
            lambda line: line[6],
            "the declared successors are wrong: state .* 'end'",
        ),
        ({"return_range": (0.0, 1.5)}, None, r"its episode earned .*, outside the declared return_range \(0.0, 1.5\)"),
        ({"max_successors": 1}, None, "max_successors=1 is wrong"),
    ],
)
def test_what_contradicts_a_declaration_is_named_with_its_line(uniform, declared, wrong, message):
    lines = play(MODEL, 60, np.random.default_rng(9), ends=(2,))
    number = r"\d+" if wrong is None else str(next(i for i, line in enumerate(lines, 1) if wrong(line)))
    with pytest.raises(InvalidProblemError, match=rf"line {number} of dict: {message}"):
        eb.certify(read(lines), beta=-1.0, **{**DECLARED, **declared})


def test_states_that_nobody_saw_widen_the_claim(uniform):
    closed, open_ended = (eb.certify(uniform, beta=-1.0, max_states=most, **DECLARED) for most in (None, 4))
    assert open_ended.gap > closed.gap
    assert open_ended.problem.state_names == ("0", "1", "#2", "#3", "end")
    assert "there are no other actions than those that are named" in open_ended.assumptions
    assert eb.verify(open_ended).ok
    given = eb.certify(uniform, beta=-1.0, max_states=4, policy=np.array([[0, 1]] * 3), **DECLARED)
    assert given.policy.shape == (3, 5)
    with pytest.raises(InvalidProblemError, match="max_states must be at least 2, those of the log"):
        eb.certify(uniform, beta=-1.0, max_states=1, **DECLARED)


def test_a_log_of_two_seasons_is_found_out():
    """Even steps and odd steps have different laws: pooled, that is rejected, and step by step it is certified.

    The previous state tells the step, so that both tests reject, and neither can say that there is nothing but the step.
    """
    kernel = np.stack([KERNEL, KERNEL[:, ::-1], KERNEL])
    seasons = eb.FiniteMDP(kernel, REWARDS, horizon=3, start=[0.7, 0.3, 0.0])
    log = read(play(seasons, 2000, np.random.default_rng(10), ends=(2,)))
    with pytest.raises(InvalidProblemError, match=r"hidden state, .*: add what is missing .*, which may be the step"):
        eb.certify(log, beta=-1.0, **DECLARED)
    claim = eb.certify(log, beta=-1.0, stationary=False, **DECLARED)
    assert is_true(claim, seasons)
    assert claim.provenance.tests is not None
    assert eb.verify(claim).ok


def test_a_state_may_be_called_end():
    lines = [(0, 0, "end", "a", 0.0, "x", False, False), (0, 1, "x", "a", 1.0, "y", True, False)]
    claim = eb.certify(read(lines, states="seen", actions=None), beta=1.0, **DECLARED)
    assert claim.problem.state_names == ("end", "x", "(end)")
    assert eb.verify(claim).ok


# -- the file cannot be bent ---------------------------------------------------------------------------------------


def forged(claim, tmp_path, change):
    import hashlib

    claim.save(tmp_path / "claim.json")
    content = json.loads((tmp_path / "claim.json").read_text())
    del content["digest"]
    change(content)
    content["digest"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (tmp_path / "claim.json").write_text(json.dumps(content))
    return eb.verify(tmp_path / "claim.json")


def more_departures(content):
    content["counts"]["times"][0] += 5000


def fewer_starts(content):
    content["counts"]["times"][-1] -= 1


def no_log(content):
    content["provenance"]["log"] = None


def nothing_unused(content):
    content["provenance"]["log"]["excluded"] = "everything"


def short_episodes(content):
    content["provenance"]["log"]["longest"] = 1


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("change", [more_departures, fewer_starts, no_log, nothing_unused, short_episodes])
def test_a_forged_log_is_found_out(uniform, stationary, change, tmp_path):
    if change is short_episodes and not stationary:
        pytest.skip("counts of each step show how long episodes were")
    claim = eb.certify(uniform, beta=1.0, stationary=stationary, **DECLARED)
    assert eb.verify(claim).ok
    assert not forged(claim, tmp_path, change).ok


# -- playing on ----------------------------------------------------------------------------------------------------


class Corridor(gymnasium.Env):
    """Five places in a row, numbered from 10; action 1 moves on with probability 0.8, and the last place ends it."""

    observation_space = gymnasium.spaces.Discrete(5, start=10)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 10
        return self.place, {}

    def step(self, action):
        self.place = min(14, self.place + int(action == 1 and self.np_random.random() < 0.8))
        return self.place, float(self.place == 14), self.place == 14, False, {}


PLAY = {"beta": -1.0, "delta": 0.1, "horizon": 6, "reward_range": (0.0, 1.0)}


def corridor_log(episodes, seed=0):
    env, rng = Recorder(Corridor()), np.random.default_rng(seed)
    for _ in range(episodes):
        env.reset(seed=int(rng.integers(2**31)))
        for _ in range(6):
            if env.step(int(rng.integers(2)))[2]:
                break
    return env.lines


@pytest.mark.parametrize("stationary", [True, False])
def test_a_run_may_start_from_a_log(stationary, tmp_path):
    lines = corridor_log(200)
    log = read(lines, states=range(14, 9, -1))  # in its own order
    run = eb.identify(Corridor(), data=log, eps=0.3, seed=0, max_episodes=260, stationary=stationary, **PLAY)
    claim = run.certificate
    assert claim.episodes > 200
    assert claim.provenance.log == (6, 0, None, False)
    assert eb.verify(claim).ok
    alone = eb.identify(Corridor(), data=log, eps=50.0, seed=0, stationary=stationary, **PLAY).certificate
    assert alone.episodes == 200
    direct = eb.certify(read(lines, states=range(10, 15)), policy=alone.policy, stationary=stationary, **PLAY)
    assert (alone.lower, alone.upper, alone.gap) == (direct.lower, direct.upper, direct.gap)


def test_a_run_from_a_log_goes_on_from_its_checkpoint_with_that_log_only(tmp_path):
    log, other = (read(corridor_log(50, seed), states=range(10, 15)) for seed in (0, 1))
    options = {"eps": 0.01, "seed": 0, **PLAY}
    whole = eb.identify(Corridor(), data=log, max_episodes=90, **options)
    path = tmp_path / "run.bin"
    eb.identify(Corridor(), data=log, max_episodes=70, checkpoint=path, **options)
    with pytest.raises(InvalidProblemError, match="data was"):
        eb.identify(Corridor(), data=other, max_episodes=90, checkpoint=path, **options)
    resumed = eb.identify(Corridor(), data=log, max_episodes=90, checkpoint=path, **options)
    assert resumed.certificate.gap == whole.certificate.gap
    np.testing.assert_array_equal(resumed.history["gap"], whole.history["gap"])


def test_a_run_from_a_log_needs_the_kl_method():
    log = read(corridor_log(5), states=range(10, 15))
    with pytest.raises(InvalidProblemError, match="Use method='kl'"):
        eb.identify(Corridor(), data=log, eps=0.5, method="bernstein", **PLAY)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (MODEL, {}, "data is for environments"),
        (Corridor(), PLAY, "the log's state 0 is not an observation of"),
        (Corridor(), {**PLAY, "data": 3}, "data must be a Log, got int"),
    ],
)
def test_a_log_must_fit_the_environment(uniform, source, options, message):
    given = {"beta": -1.0, "delta": 0.1, "eps": 0.5, "data": uniform, **options}
    with pytest.raises(InvalidProblemError, match=message):
        eb.identify(source, **given)


# -- the guarantee -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rewards", ["fixed", "random"])
def test_logs_of_an_adaptive_behaviour_fail_no_more_often_than_promised(rewards):
    """The behaviour learns: it prefers what has worked so far. δ is large so that failures could be seen."""
    logs, delta, failed = 1000, 0.3, 0
    for seed in range(logs):
        rng = np.random.default_rng(seed)

        def choose(h, s, seen, rng=rng):
            ended = [(1 + seen[s, a, 2]) / (2 + sum(seen[s, a, y] for y in range(3))) for a in range(2)]
            return int(np.argmin(ended)) if rng.random() < 0.7 else int(rng.integers(2))

        log = read(play(MODEL, 40, rng, choose, ends=(2,), cut=0.1, seen=Counter()))
        declared = {**DECLARED, "delta": delta, "rewards": rewards}
        failed += not is_true(eb.certify(log, beta=-1.0, **declared))
    print(f"{failed} of {logs} claims were false, at most {delta * logs:g} may be expected")
    assert failed <= delta * logs
