"""Declared structure: possible successors, a bound on how many there are, and a range of returns."""

import dataclasses
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import entropic_bpi as eb
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.environment import Environment
from entropic_bpi.types import Transitions

GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1}


class Corridor(gymnasium.Env):
    """Three places. Going on works with probability 0.7; whoever leaves the last place gets 1, whoever waits 0.1."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)
    luck = 0.7

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        on = action == 1 and self.np_random.random() < self.luck
        self.place += int(on)
        done = self.place == 3
        return min(self.place, 2), 1.0 if done else 0.0 if action else 0.1, done, False, {}


class Sure(Corridor):
    luck = 1.0


def following(place, action):
    return [place, eb.END if place == 2 else place + 1] if action else [place]


PLAY = {**GOAL, "horizon": 4, "reward_range": (0, 1), "seed": 1}


def box(n_observations=3, n_actions=2, *, stationary=True, **declared):
    """The problem of a black box with four steps."""
    names = (*map(str, range(n_observations)), "end")
    options = {"horizon": 4, "reward_range": (0.0, 1.0), "state_labels": names, "source": "gymnasium:test", **GOAL}
    return Problem.black_box(n_observations, n_actions, stationary=stationary, **{**options, **declared})


def counted(problem, *seen):
    """Counts of (row, successor, reward), in this order."""
    rows, successors, rewards = map(np.array, zip(*seen, strict=True))
    known = rewards.astype(float) if problem.black_box_rewards else np.empty(0)
    counts = Counts(problem)
    counts.add(Transitions(rows, successors, np.ones(len(rows), dtype=np.int64), known), 1)
    return counts


def slots_of(counts, row):
    arrays = counts.arrays
    own = slice(arrays.begin[row], arrays.begin[row] + arrays.used[row])
    return arrays.successor[own].tolist(), arrays.tally[own].tolist()


# -- at most so many outcomes ------------------------------------------------------------------------------------


def model(n_states=4, horizon=3, start=0, n_actions=2, **options):
    kernel = np.full((n_states, n_actions, n_states), 1 / n_states)
    return eb.FiniteMDP(kernel, np.zeros((n_states, n_actions)), horizon=horizon, start=start, **options)


def test_when_all_successors_that_can_exist_were_seen_the_others_are_given_up():
    problem = Problem.from_mdp(model(), **GOAL, max_successors=2)
    counts = counted(problem, (0, 3, 0))
    assert slots_of(counts, 0) == ([0, 1, 2, 3], [0, 0, 0, 1])
    counts.add(Transitions(np.array([0]), np.array([1]), np.array([5])), 5)
    assert slots_of(counts, 0) == ([1, 3], [5, 1])
    assert slots_of(counts, 1) == ([0, 1, 2, 3], [0, 0, 0, 0])


def test_in_a_large_space_the_slot_elsewhere_is_given_up():
    problem = Problem.from_mdp(model(100), **GOAL, max_successors=2)
    counts = counted(problem, (0, 93, 0))
    assert slots_of(counts, 0) == ([100, 93], [0, 1])
    counts.add(Transitions(np.array([0]), np.array([4]), np.array([2])), 2)
    assert slots_of(counts, 0) == ([93, 4], [1, 2])


def test_in_an_environment_an_ending_with_another_reward_is_another_outcome():
    problem = box(max_successors=2)
    counts = counted(problem, (0, 3, 0.5))
    assert slots_of(counts, 0) == ([4, 3], [0, 1])
    counts.add(Transitions(np.array([0]), np.array([3]), np.array([1]), np.array([0.25])), 1)
    assert slots_of(counts, 0) == ([3, 3], [1, 1])
    with pytest.raises(
        InvalidProblemError, match=r"max_successors=2 is wrong: state '0', action '0' went to state 'end' wi"
    ):
        counts.add(Transitions(np.array([0]), np.array([3]), np.array([1]), np.array([0.75])), 1)
    assert slots_of(counts, 0) == ([3, 3], [1, 1])


@pytest.mark.parametrize("n_states", [4, 100])
def test_one_successor_too_many_is_an_error_that_names_row_outcome_and_option(n_states):
    problem = Problem.from_mdp(model(n_states), **GOAL, stationary=True, max_successors=1)
    counts = counted(problem, (5, 3, 0))
    before = counts.state()
    words = (
        "max_successors=1 is wrong: state '2', action '1' went to state '0', but had another outcome before .after 1 "
    )
    with pytest.raises(InvalidProblemError, match=words):
        counts.add(Transitions(np.array([3, 5]), np.array([1, 0]), np.array([1, 1])), 1)
    after = counts.state()
    for name in ("episodes", "visits", "begin", "used", "successor", "tally"):
        np.testing.assert_array_equal(after[name], before[name])


def test_the_start_is_not_concerned():
    problem = Problem.from_mdp(model(start=[0.25] * 4), **GOAL, max_successors=1)
    counts = counted(problem, (problem.n_rows - 1, 0, 0), (problem.n_rows - 1, 2, 0))
    assert slots_of(counts, problem.n_rows - 1)[0] == [0, 1, 2, 3]
    assert problem.rows_at_risk == 1
    assert problem.at_risk[-1]
    assert box(max_successors=1).rows_at_risk == 1


def test_a_bound_that_says_nothing_changes_nothing():
    plain, bounded = (Problem.from_mdp(model(), **GOAL, max_successors=most) for most in (None, 4))
    assert bounded.rows_at_risk == plain.rows_at_risk
    seen = [(0, y, 0) for y in (0, 1, 1, 2, 3)]
    plans = [KL(problem).plan(counted(problem, *seen), 0) for problem in (plain, bounded)]
    assert plans[0].bounds == plans[1].bounds


@pytest.mark.parametrize("most", [None, 1, 2, 3])
def test_counts_that_are_read_again_get_the_same_slots(most):
    """Checkpoints and certificates keep what was seen; a run that goes on must not notice."""
    rng = np.random.default_rng(most or 0)
    listed = np.array([1, 2, 3, 3, 3, 0, 1, 1, 2, 3, 3, 0, 3, 3, 1, 2, 3])
    successors = np.array([0, 5, 9, 11, 12, 14, 17]), listed
    for problem in (box(max_successors=most), box(max_successors=most, successors=successors)):
        seen = []
        for row in range(6):
            default = problem.slots.successor[problem.slots.begin[row] :][: problem.slots.used[row]]
            states = np.array([0, 1, 2, 3, 3, 3]) if 4 in default else default
            ways = [(y, 0.25 * np.sum(states[:i] == y)) for i, y in enumerate(states)]
            chosen = rng.permutation(len(ways))[: int(rng.integers(1, (most or 3) + 1))]
            seen += [(row, *ways[i]) for i in rng.permutation(np.repeat(chosen, 3))]
        counts = counted(problem, *seen)
        again = Counts.of(problem, counts.seen(), 1)
        for row in range(6):
            assert slots_of(again, row) == slots_of(counts, row)


def test_a_deterministic_row_is_known_after_one_visit():
    problem = Problem.from_mdp(model(), **GOAL, stationary=True, max_successors=1)
    counts = counted(problem, *[(row, row // 2, 0) for row in range(8)])
    method = KL(problem)
    assert method.plan(counts, 0).bounds.gap == pytest.approx(0, abs=1e-9)
    assert (method.rules.radius == 0).all()


def test_the_paper_s_method_refuses_what_it_does_not_use():
    with pytest.raises(InvalidProblemError, match="makes no use of max_successors"):
        Bernstein(Problem.from_mdp(model(), **GOAL, max_successors=2))
    with pytest.raises(InvalidProblemError, match="makes no use of max_successors"):
        eb.identify(model(), **GOAL, method="bernstein", stationary=True, max_successors=2)


def test_a_model_is_identified_with_fewer_episodes():
    river = eb.instances.make("river_swim", horizon=6)
    options = {"beta": 0.5, "eps": 1.0, "delta": 0.1, "seed": 0, "stationary": True}
    plain, bounded = (eb.identify(river, **options, max_successors=most) for most in (None, 3))
    assert bounded.episodes < plain.episodes
    best = eb.solve(river, 0.5).value
    assert best - eb.evaluate(river, bounded.policy, 0.5).value <= bounded.certificate.gap
    assert eb.verify(bounded.certificate).ok
    with pytest.raises(InvalidProblemError, match="max_successors=1 is wrong: "):
        eb.identify(river, **options, max_successors=1)
    with pytest.raises(InvalidProblemError, match="max_successors=1 is wrong: "):
        eb.identify(river, **options, max_successors=1, replan="every")


# -- successors of an environment ----------------------------------------------------------------------------------

TABLE = {(s, a): following(s, a) for s in range(3) for a in range(2)}
MASK = np.zeros((3, 2, 4), dtype=bool)
for (s, a), states in TABLE.items():
    MASK[s, a, [3 if y is eb.END else y for y in states]] = True


@pytest.mark.parametrize("declared", [following, TABLE, MASK, MASK.tolist()], ids=["function", "dict", "mask", "lists"])
@pytest.mark.parametrize("stationary", [True, False])
def test_function_table_and_mask_declare_the_same(declared, stationary):
    problem = Environment(Corridor()).problem(
        horizon=4, reward_range=(0.0, 1.0), **GOAL, stationary=stationary, successors=declared
    )
    rows = [[0], [0, 1], [1], [1, 2], [2], [2, 3]]
    for step in range(1 if stationary else 4):
        for pair, states in enumerate(rows):
            row = step * 8 + pair
            begin = problem.slots.begin[row]
            assert problem.slots.successor[begin : begin + problem.slots.used[row]].tolist() == states
            assert problem.slots.possible[row] == len(states)
    assert problem.successors == "mask"


def test_states_and_actions_are_those_of_the_environment():
    class Named(Corridor):
        observation_space = spaces.Tuple((spaces.Discrete(1), spaces.Discrete(3, start=5)))
        action_space = spaces.Discrete(2, start=7)

    asked = []

    def follow(state, action):
        asked.append((state, action))
        return [state, eb.END]

    environment = Environment(Named())
    problem = environment.problem(horizon=4, reward_range=(0.0, 1.0), **GOAL, stationary=True, successors=follow)
    assert asked == [((0, place), action) for place in (5, 6, 7) for action in (7, 8)]
    assert problem.slots.successor[3:].tolist() == [0, 3, 0, 3, 1, 3, 1, 3, 2, 3, 2, 3]


WRONG = {
    "model": ("model", "declared by a function .state, action. -> states, by a dict .* got 'model'"),
    "shape": (
        np.ones((3, 2, 3), dtype=bool),
        r"shape \(S, A, S \+ 1\) = \(3, 2, 4\), .* got dtype bool, shape \(3, 2, 3\)",
    ),
    "numbers": (np.ones((3, 2, 4)), "got dtype float64"),
    "nothing": (np.zeros((3, 2, 4), dtype=bool), r"successors\[s=0, a=0\] allows no next state"),
    "a missing pair": ({(0, 0): [0]}, r"successors has no entry for \(0, 1\): list every state and action"),
    "a strange key": ({(0, 5): [0]}, r"successors has the key \(0, 5\), expected \(state, action\)"),
    "a key that is no pair": ({0: [0]}, "successors has the key 0"),
    "no next state": (lambda s, a: [], "the successors of state 0, action 0 are empty"),
    "a strange state": (lambda s, a: [7], "must be elements of the observation space or END, got 7"),
    "no list": (lambda s, a: 1, "the successors of state 0, action 0 must be a list of states, got 1"),
    "an error": (lambda s, a: 1 / 0, r"successors\(0, 0\) raised ZeroDivisionError"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_successors_are_refused(wrong):
    declared, words = WRONG[wrong]
    with pytest.raises(InvalidProblemError, match=words):
        eb.identify(Corridor(), **PLAY, successors=declared)


def test_a_transition_that_was_declared_impossible_ends_the_run():
    with pytest.raises(
        InvalidProblemError, match="declared successors are wrong: state '0', action '1' went to state '0', which"
    ):
        eb.identify(Corridor(), **PLAY, successors=lambda s, a: [eb.END if s == 2 else s + 1] if a else [s])


def test_what_is_listed_twice_may_come_with_two_rewards():
    """Each reward that is seen takes a slot; the slots that are left may still pay anything."""
    listed = np.concatenate([[0, 1, 3, 3], *[np.arange(4)] * 5])
    problem = box(successors=(np.array([0, 4, 8, 12, 16, 20, 24]), listed))
    counts = counted(problem, (0, 1, 0.5), (0, 3, 0.0), (0, 1, 0.5))
    begin = counts.arrays.begin[0]
    assert slots_of(counts, 0) == ([0, 1, 3, 3], [0, 2, 1, 0])
    assert counts.arrays.low[0, begin : begin + 4].tolist() == [0, 0.5, 0, 0]
    assert counts.arrays.high[0, begin : begin + 4].tolist() == [1, 0.5, 0, 1]
    counts.add(Transitions(np.array([0]), np.array([3]), np.array([1]), np.array([1.0])), 1)
    assert slots_of(counts, 0) == ([0, 1, 3, 3], [0, 2, 1, 1])
    for successor in (1, 3):
        words = f"to state '{problem.state_names[successor]}' changed: now 0.25, .* declare the successor once for each"
        with pytest.raises(InvalidProblemError, match=words):
            counts.add(Transitions(np.array([0]), np.array([successor]), np.array([1]), np.array([0.25])), 1)


def test_an_environment_with_three_endings():
    """Blackjack is won, drawn or lost."""

    def hit_or_stick(state, action):
        _, dealer, _ = state
        drawn = [(y, dealer, ace_then) for y in range(32) for ace_then in (0, 1)] if action else []
        return [*drawn, eb.END, eb.END, eb.END]

    options = {**GOAL, "horizon": 2, "reward_range": (-1, 1), "seed": 0, "max_episodes": 300}
    result = eb.identify("Blackjack-v1", **options, successors=hit_or_stick, return_range=(-1, 1))
    assert eb.verify(result.certificate).ok
    with pytest.raises(InvalidProblemError, match=r"changed: now .* declare the successor once for each reward"):
        eb.identify("Blackjack-v1", **options, successors=lambda s, a: set(hit_or_stick(s, a)))


# -- a range of returns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 3])
def test_an_episode_outside_the_declared_returns_ends_the_run(num_envs):
    options = {**GOAL, "horizon": 12, "reward_range": (0, 1), "seed": 0, "num_envs": num_envs, "eps": 1e-3}
    with pytest.raises(
        InvalidProblemError,
        match=r"an episode of FrozenLake-v1 earned 1, outside the declared return_range \(0.0, 0.5\)",
    ):
        eb.identify("FrozenLake-v1", **options, return_range=(0, 0.5), max_episodes=20_000)


class Wages(Corridor):
    """Pays the same at every step."""

    def step(self, action):
        return 0, 0.1, False, False, {}


@pytest.mark.parametrize(("declared", "eps"), [((0.2, 0.2), 0.2), ((0.2, 0.2001), 0.2), ((0.0, 0.2), 1.0)])
def test_an_episode_is_played_even_if_declarations_leave_nothing_to_learn(declared, eps):
    options = {**PLAY, "horizon": 3, "eps": eps}
    with pytest.raises(InvalidProblemError, match=r"earned 0\.3, outside the declared return_range"):
        eb.identify(Wages(), **options, return_range=declared)
    result = eb.identify(Wages(), **options, return_range=(0.3, 0.3))
    assert (result.stopped, result.episodes) == (True, 1)
    assert eb.verify(result.certificate).ok


def test_a_return_that_is_off_by_rounding_is_not_outside():
    result = eb.identify(Wages(), **{**PLAY, "horizon": 3, "eps": 0.2}, return_range=(0.0, 0.3))
    assert result.episodes > 0
    assert 0.1 + 0.1 + 0.1 != 0.3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"return_range": (1, 0)}, "return_range must be finite with low <= high"),
        ({"return_range": 3}, "return_range must be a pair of numbers, got 3"),
        (
            {"return_range": (5, 6)},
            r"no episode can have a return in return_range=\(5, 6\): the sum of 4 rewards from 0 to 1 is from",
        ),
        ({"max_successors": 0}, "max_successors must be at least 1"),
        ({"max_successors": 1.5}, "max_successors must be an integer"),
    ],
)
def test_wrong_declarations_are_refused(options, words):
    with pytest.raises(InvalidProblemError, match=words):
        eb.identify(Corridor(), **PLAY, **options)


def test_a_model_has_no_declared_returns():
    with pytest.raises(InvalidProblemError, match="return_range is for environments"):
        eb.identify(model(), **GOAL, return_range=(0, 1))


# -- the whole way -------------------------------------------------------------------------------------------------

DECLARED = {
    "successors": {"successors": following},
    "few": {"max_successors": 2},
    "returns": {"return_range": (0, 1.4)},
    "all": {"successors": following, "max_successors": 2, "return_range": (0, 1.4)},
}


def corridor_value(policy, beta):
    """Of a policy, or the best, by backward induction on the corridor that the learner does not see."""
    z = np.ones(4)
    for h in reversed(range(4)):
        wait = np.exp(beta * 0.1) * z
        go = 0.3 * z + 0.7 * np.array([z[1], z[2], np.exp(beta) * z[3], 0])
        both = np.stack([wait, go])[:, :3]
        best = both.max(axis=0) if beta > 0 else both.min(axis=0)
        chosen = best if policy is None else both[policy[h, :3], np.arange(3)]
        z = np.append(chosen, 1.0)
    return np.log(z[0]) / beta


@pytest.mark.parametrize("beta", [-1.0, 1.5])
@pytest.mark.parametrize("name", DECLARED)
def test_certified_faster_truly_and_verified(name, beta):
    options = {**PLAY, "beta": beta, "eps": 0.3}
    result = eb.identify(Corridor(), **options, **DECLARED[name])
    assert result.stopped
    claim = result.certificate
    assert claim.lower <= corridor_value(claim.policy, beta)
    assert corridor_value(None, beta) <= claim.upper
    assert corridor_value(None, beta) - corridor_value(claim.policy, beta) <= claim.gap
    assert eb.verify(claim).ok
    other = eb.certify(result, beta=-0.5)
    assert other.lower <= corridor_value(other.policy, -0.5) <= corridor_value(None, -0.5) <= other.upper
    assert eb.verify(other).ok


def test_known_successors_save_episodes():
    options = {**PLAY, "eps": 0.3}
    plain = eb.identify(Corridor(), **options).episodes
    assert all(eb.identify(Corridor(), **options, **DECLARED[name]).episodes < plain for name in ("successors", "all"))


def test_a_deterministic_environment_needs_few_episodes():
    result = eb.identify(Sure(), **{**PLAY, "eps": 0.2}, max_successors=1, return_range=(0, 1.4))
    plain = eb.identify(Sure(), **{**PLAY, "eps": 0.2})
    assert result.episodes < plain.episodes / 3
    assert eb.verify(result.certificate).ok


def test_declarations_are_printed_saved_and_read_again(tmp_path):
    claim = eb.identify(Corridor(), **PLAY, **DECLARED["all"]).certificate
    for words in (
        "every action in every state has at most 2 different outcomes (next state and reward)",
        "the return of every episode lies in [0, 1.4], whatever is played",
        "the possible next states are those of the declared mask",
    ):
        assert words in claim.assumptions
    claim.save(tmp_path / "claim.json")
    content = json.loads((tmp_path / "claim.json").read_text())["problem"]
    assert (content["max_successors"], content["return_range"]) == (2, [0.0, 1.4])
    again = eb.Certificate.load(tmp_path / "claim.json")
    assert again._content() == claim._content()
    assert eb.verify(tmp_path / "claim.json").ok


def test_a_run_with_declarations_goes_on_from_its_checkpoint_and_no_other(tmp_path):
    class Corridor3(Corridor):
        pass

    options = {**PLAY, "eps": 0.05, **DECLARED["all"], "checkpoint": tmp_path / "run"}
    eb.identify(Corridor3(), **options, max_episodes=40)
    with pytest.raises(InvalidProblemError, match="max_successors was 2, is 3"):
        eb.identify(Corridor3(), **{**options, "max_successors": 3}, max_episodes=80)
    with pytest.raises(InvalidProblemError, match=r"return_range was \[0.0, 1.4\], is \[0.0, 1.5\]"):
        eb.identify(Corridor3(), **{**options, "return_range": (0, 1.5)}, max_episodes=80)
    resumed = eb.identify(Corridor3(), **options, max_episodes=80)
    whole = eb.identify(Corridor3(), **{**options, "checkpoint": None}, max_episodes=80)
    assert resumed.history.tolist() == whole.history.tolist()
    assert resumed.certificate._content() == whole.certificate._content()


def test_a_problem_with_other_declarations_is_another_problem():
    problem = box()
    assert dataclasses.replace(problem, max_successors=1).uncertain.sum() == 1
    assert problem.uncertain.sum() == 3 * 2 + 1
