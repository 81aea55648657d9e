"""Gymnasium environments as black boxes, and models as Gymnasium environments."""

import warnings
from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.sources.assumption_tests import AssumptionTests
from entropic_bpi.sources.environment import Environment, Player, open_environment
from entropic_bpi.types import Behaviour

BASICS = {"horizon": 3, "reward_range": (0.0, 1.0), "beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 3}


class Walk(gymnasium.Env):
    """Three places; action 1 goes on with probability 0.7, action 0 stays. Arriving at the end pays 1."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place += int(action == 1 and self.np_random.random() < 0.7)
        return self.place, float(self.place == 2), self.place == 2, False, {}


def walk_model(horizon):
    """The same as a model; state 3 is the end."""
    stay, go = np.zeros((4, 4)), np.zeros((4, 4))
    stay[[0, 1, 2, 3], [0, 1, 2, 3]] = 1
    go[0, [0, 1]] = go[1, [1, 3]] = 0.3, 0.7
    go[2, 2] = go[3, 3] = 1
    rewards = np.zeros((4, 2, 4))
    rewards[1, 1, 3] = 1
    return eb.FiniteMDP(np.stack([stay, go], axis=1), rewards, horizon=horizon)


# -- the learner's side --------------------------------------------------------------------------------------


def test_a_walk_is_certified_and_the_certificate_is_true_and_verified():
    result = eb.identify(Walk(), **{**BASICS, "eps": 0.2})
    model = walk_model(3)
    assert result.stopped
    optimum = eb.solve(model, -1.0).value
    # the learner's states are the observations and the end, the model's 0, 1, (2 unused), 3 = end
    value = eb.evaluate(model, result.policy, -1.0).value
    assert result.certificate.lower <= value
    assert optimum <= result.certificate.upper
    assert optimum - value <= result.certificate.gap <= 0.2
    assert eb.verify(result.certificate).ok


def test_frozen_lake_is_learned_by_stepping_alone():
    class NoTable(gymnasium.Wrapper):
        """Raises if anybody looks at the transition table."""

        @property
        def unwrapped(self):
            raise AssertionError("the learner looked inside the environment")

    env = NoTable(gymnasium.make("FrozenLake-v1", disable_env_checker=True))
    result = eb.identify(
        env, horizon=8, reward_range=(0, 1), beta=-1.0, eps=0.5, delta=0.05, seed=0, replan=0.05, max_episodes=20_000
    )
    assert result.stopped
    judge = eb.from_gymnasium("FrozenLake-v1", horizon=8)
    gap = eb.solve(judge, -1.0).value - eb.evaluate(judge, result.policy[:, : judge.n_states], -1.0).value
    assert gap <= result.certificate.gap
    assert eb.verify(result.certificate).ok


@pytest.mark.parametrize(
    ("name", "reward_range"),
    [("Blackjack-v1", (-1, 1)), ("CliffWalking-v1", (-100, 0)), ("CliffWalkingSlippery-v1", (-100, 0))],
)
def test_environments_of_every_kind_can_be_played(name, reward_range):
    result = eb.identify(
        name, horizon=4, reward_range=reward_range, beta=-0.01, eps=0.1, delta=0.1, seed=1, max_episodes=60, replan=0.2
    )
    assert result.episodes == 60
    assert -400 - 1e-6 <= result.certificate.lower <= result.certificate.upper <= 4 + 1e-6


def test_the_same_seed_repeats_a_run():
    first, again = (eb.identify("FrozenLake-v1", **BASICS, max_episodes=200) for _ in range(2))
    assert first.history.tolist() == again.history.tolist()


@pytest.mark.parametrize(
    "name", ["FrozenLake-v1", pytest.param("Blackjack-v1", marks=[pytest.mark.slow, pytest.mark.sample])]
)
def test_copies_in_a_vector_environment_play_whole_episodes_with_the_same_law(name):
    options = {**BASICS, "reward_range": (-1, 1), "max_episodes": 1500, "replan": 1.0, "ties": "lowest", "eps": 1e-3}
    counts = []
    for num_envs in (1, 4):
        result = eb.identify(name, **options, stationary=False, num_envs=num_envs)
        problem, seen = result.certificate.problem, result.certificate.transitions
        assert result.episodes == 1500
        assert eb.verify(result.certificate).ok  # among others, that the counts are those of whole episodes
        starting = seen.rows == problem.n_rows - 1
        starts = np.zeros(problem.n_states)
        np.add.at(starts, seen.successors[starting], seen.times[starting])
        counts.append(starts)
    kept = sum(counts) > 20
    if kept.sum() > 1:
        assert stats.chi2_contingency(np.stack(counts)[:, kept]).pvalue > 1e-3
    else:
        np.testing.assert_array_equal(*counts)


def a_problem(environment, horizon, stationary):
    goal = {"beta": 1.0, "eps": 0.1, "delta": 0.1}
    return environment.problem(horizon=horizon, reward_range=(-100.0, 20.0), stationary=stationary, **goal)


def random_behaviour(problem, leading):
    """Any behaviour: the lead is left in one state of three."""
    rng, shape = np.random.default_rng(5), (problem.steps, problem.n_states)
    greedy, lead, turn = (rng.integers(problem.n_actions, size=shape) for _ in range(3))
    return Behaviour(greedy, lead, np.where(rng.random(shape) < 1 / 3, turn, -1), leading)


def played(environment, problem, behaviour, episodes, round=4):
    """What the player hands to the counts, row by row in the order of first sight: (row, successor, times, reward)."""
    handed = []

    class Taker(Counts):
        def add(self, transitions, episodes):
            handed.append((transitions, episodes))
            super().add(transitions, episodes)

    Player(environment, problem, 11, AssumptionTests(problem)).play(behaviour, episodes, Taker(problem), round)
    [(transitions, recorded)] = handed
    assert recorded == episodes
    return sorted(zip(*(part.tolist() for part in transitions[:4]), strict=True), key=lambda outcome: outcome[0])


def stepped_by_hand(environment, problem, behaviour, episodes, round=4):
    """The same by the plainest loop over ``reset`` and ``step``."""
    env, seed = environment.env, int(np.random.SeedSequence([11, round]).generate_state(1)[0])
    rows, seen = np.arange(problem.n_rows - 1).reshape(-1, problem.n_states, problem.n_actions), Counter()
    for episode in range(episodes):
        observation, _ = env.reset(seed=None if episode else seed)
        state, leading, h, terminated = environment.states.index(observation), behaviour.leading, 0, False
        seen[problem.n_rows - 1, state, problem.possible_rewards[0]] += 1
        while h < problem.horizon and not terminated:
            action = (behaviour.lead if leading else behaviour.greedy)[h + 1, state]
            if leading and behaviour.switch_action[h + 1, state] >= 0:
                action, leading = behaviour.switch_action[h + 1, state], False
            observation, reward, terminated, _, _ = env.step(environment.actions.element(int(action)))
            following = problem.n_states - 1 if terminated else environment.states.index(observation)
            seen[int(rows[0 if problem.stationary else h, state, action]), following, float(reward)] += 1
            state, h = following, h + 1
    outcomes = [(row, successor, times, reward) for (row, successor, reward), times in seen.items()]
    return sorted(outcomes, key=lambda outcome: outcome[0])


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1", "CliffWalkingSlippery-v1"])
def test_the_player_counts_what_a_plain_loop_sees(name, stationary, leading):
    environment = open_environment(name, 1)
    problem = a_problem(environment, 7, stationary)
    behaviour = random_behaviour(problem, leading)
    counted = played(environment, problem, behaviour, 50)
    assert counted == stepped_by_hand(environment, problem, behaviour, 50)
    environment.close()


@pytest.mark.parametrize("leading", [False, True])
def test_one_copy_counts_what_copies_in_step_count(leading):
    """A vector of copies goes another way through the player; where nothing is random, it must see the same."""
    options = {"id": "FrozenLake-v1", "is_slippery": False}
    alone = Environment(gymnasium.make(**options, disable_env_checker=True))
    together = Environment(gymnasium.make_vec(**options, num_envs=3, vectorization_mode="sync"))
    problem = a_problem(alone, 7, False)
    behaviour = random_behaviour(problem, leading)
    assert played(alone, problem, behaviour, 10) == played(together, problem, behaviour, 10)


class Dressed(gymnasium.Wrapper):
    """The same environment with other types of observations and rewards."""

    def __init__(self, observation_type, reward_type):
        super().__init__(Walk())
        self.observation_type, self.reward_type = observation_type, reward_type

    def reset(self, **options):
        observation, info = super().reset(**options)
        return self.observation_type(observation), info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return self.observation_type(observation), self.reward_type(reward), *rest


def in_an_array(value):
    return np.array([value])


@pytest.mark.parametrize("reward_type", [int, np.float64, np.float32, np.array, str])
@pytest.mark.parametrize("observation_type", [np.int64, np.uint8, float, np.array, in_an_array])
def test_the_types_of_observations_and_rewards_make_no_difference(observation_type, reward_type):
    plain, dressed = Environment(Walk()), Environment(Dressed(observation_type, reward_type))
    problem = a_problem(plain, 5, False)
    behaviour = random_behaviour(problem, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from NumPy, about numbers out of arrays
        assert played(dressed, problem, behaviour, 40) == played(plain, problem, behaviour, 40)


@pytest.mark.parametrize("dress", [lambda value: value, lambda value: (value,), np.array, in_an_array])
@pytest.mark.parametrize(
    ("value", "index"),
    [
        *((value, -1) for value in (-2, 2, 10**30, 0.5, 1.25, float("nan"), float("inf"), "0", "none", None)),
        *((value, 1) for value in (0, 0.0, False, np.int64(0), np.uint8(0), np.float32(0), np.False_)),
    ],
)
def test_one_integer_is_read_alike_however_it_comes(value, index, dress):
    env = Walk()
    env.observation_space = gymnasium.spaces.Discrete(3, start=-1)
    assert Environment(env).states.index(dress(value)) == index


@pytest.mark.parametrize("observation", [(0,), (0, 1, 0), (0, 3), (0.5, 1), ("0", 1), 3, None, "01"])
def test_what_is_no_pair_of_integers_is_outside_a_space_of_pairs(observation):
    env = Walk()
    env.observation_space = gymnasium.spaces.MultiDiscrete([2, 3])
    assert Environment(env).states.index(observation) == -1


# -- environments that misbehave -------------------------------------------------------------------------------


def misbehaving(after, **faults):
    """A walk that goes wrong after some steps."""

    class Faulty(Walk):
        steps = 0

        def step(self, action):
            Faulty.steps += 1
            outcome = dict(
                zip(("observation", "reward", "terminated", "truncated"), super().step(action), strict=False)
            )
            if Faulty.steps > after:
                if "error" in faults:
                    raise faults["error"]
                outcome |= faults
            return (*outcome.values(), {})

    return Faulty()


CONTRADICTIONS = {
    "observation 7, outside": {"observation": 7},
    "must be a finite real number": {"reward": float("nan")},
    "outside the declared reward_range": {"reward": 5.0},
    "changed": {"observation": 1, "reward": 0.25, "terminated": False},
    "before the horizon 3": {"truncated": True, "terminated": False},
}
LONG = {**BASICS, "eps": 0.01, "max_episodes": 300}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_a_contradiction_is_reported_and_can_never_be_discarded(message, tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(misbehaving(60, **CONTRADICTIONS[message]), **LONG, checkpoint=path)
    kept = path.read_bytes()
    for accept_errors in (False, True):
        with pytest.raises(
            eb.InvalidProblemError, match=rf"contradicted what is assumed of it .*{message}.*another run"
        ):
            eb.identify(misbehaving(10**9), **LONG, checkpoint=path, accept_errors=accept_errors)
    assert path.read_bytes() == kept


def test_after_an_error_of_the_environment_a_run_goes_on_only_if_told_and_the_certificate_says_so(tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.raises(eb.InvalidProblemError, match=r"^environment\.step raised RuntimeError: out of order$"):
        eb.identify(misbehaving(60, error=RuntimeError("out of order")), **LONG, checkpoint=path)
    kept = path.read_bytes()
    for answer in (False, "no"):
        with pytest.raises(
            eb.InvalidProblemError, match=r"ended in an error of the environment .*out of order.*--accept-errors"
        ) as refused:
            eb.identify(misbehaving(10**9), **LONG, checkpoint=path, accept_errors=answer)
        assert "\n" not in str(refused.value)
    assert path.read_bytes() == kept
    resumed = eb.identify(misbehaving(10**9), **LONG, checkpoint=path, accept_errors=True)
    straight = eb.identify(Walk(), **LONG)
    assert resumed.history.tolist() == straight.history.tolist()  # nothing else was lost
    assert resumed.certificate.provenance.errors == 1
    assert any("raised an error once and the run went on" in line for line in resumed.certificate.assumptions)
    assert eb.verify(resumed.certificate).ok
    resumed.certificate.save(tmp_path / "claim.json")
    assert eb.Certificate.load(tmp_path / "claim.json").provenance.errors == 1
    # The finished run can be looked at again, and the error is not forgotten.
    again = eb.identify(misbehaving(10**9), **LONG, checkpoint=path)
    assert again.certificate.provenance.errors == 1


def test_every_error_that_was_accepted_is_counted(tmp_path):
    """An environment with luck of its own that raises on a bad event: without a count, only good events would be left."""
    luck = np.random.default_rng(1)

    class Selective(Walk):
        def step(self, action):
            if luck.random() < 0.02:
                raise ConnectionError("the robot fell over")
            return super().step(action)

    path, errors = tmp_path / "run.ckpt", 0
    while True:
        try:
            result = eb.identify(Selective(), **LONG, checkpoint=path, accept_errors=True)
            break
        except eb.InvalidProblemError as error:
            errors += "fell over" in str(error)
    assert errors > 3
    assert result.certificate.provenance.errors == errors
    assert any(f"raised an error {errors} times" in line for line in result.certificate.assumptions)


def test_a_run_that_exits_inside_the_environment_is_marked_too(tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.raises(SystemExit):
        eb.identify(misbehaving(60, error=SystemExit("gone")), **LONG, checkpoint=path)
    with pytest.raises(eb.InvalidProblemError, match=r"ended in an error of the environment \('gone'\)"):
        eb.identify(misbehaving(10**9), **LONG, checkpoint=path)


def test_an_interruption_is_no_error(tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt):
        eb.identify(misbehaving(60, error=KeyboardInterrupt()), **LONG, checkpoint=path)
    resumed = eb.identify(misbehaving(10**9), **LONG, checkpoint=path)
    assert resumed.history.tolist() == eb.identify(Walk(), **LONG).history.tolist()
    assert resumed.certificate.provenance.errors == 0


@pytest.mark.parametrize(
    ("what", "answer", "expected"),
    [
        ("reset", 0, r"environment\.reset returned 0, expected \(observation, info\)"),
        (
            "step",
            (0, 0.0, False, {}),
            r"step returned \(0, 0\.0, False, \{\}\), expected \(observation, reward, term",
        ),
    ],
)
def test_an_answer_of_another_interface_is_named(what, answer, expected):
    """Gym's first interface: reset without an info, and steps of four values."""
    env = Walk()
    setattr(env, what, lambda *args, **options: answer)
    with pytest.raises(eb.InvalidProblemError, match=expected):
        eb.identify(env, **BASICS)
    with pytest.raises(eb.InvalidProblemError, match=expected):
        eb.inspect(env, episodes=2)


@pytest.mark.parametrize("what", ["reset", "step"])
def test_an_error_of_our_own_passes_and_any_other_is_named_with_its_cause(what):
    def fail(error):
        def call(*args, **options):
            raise error

        return call

    env = Walk()
    setattr(env, what, fail(eb.InvalidProblemError("the episode is over")))
    with pytest.raises(eb.InvalidProblemError, match=r"^the episode is over$"):
        eb.identify(env, **BASICS)
    setattr(env, what, fail(KeyError("lost")))
    with pytest.raises(eb.InvalidProblemError, match=rf"^environment\.{what} raised KeyError: 'lost'$") as caught:
        eb.identify(env, **BASICS)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": None}, "needs horizon"),
        ({"reward_range": None}, "needs reward_range"),
        ({"reward_range": (1, 0)}, "low <= high"),
        ({"reward_range": 3}, "pair of numbers"),
        ({"successors": "model"}, "declared by a function"),
        ({"num_envs": 2}, "environment id"),
        ({"method": "bernstein"}, "next state"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(Walk(), **{**BASICS, **change})


def test_an_unknown_source_is_named():
    with pytest.raises(eb.InvalidProblemError, match="NoSuchLake"):
        eb.identify("NoSuchLake-v0", **BASICS)
    with pytest.raises(eb.InvalidProblemError, match="FiniteMDP"):
        eb.identify(17, **BASICS)


# -- vector environments that reset themselves -----------------------------------------------------------------------


has_modes = pytest.mark.skipif(
    not hasattr(gymnasium.vector, "AutoresetMode"), reason="Gymnasium 1.0 knows one mode only"
)


class Unmarked(gymnasium.vector.SyncVectorEnv):
    """A vector environment that does not say how it resets its copies."""

    def __init__(self, num_envs):
        super().__init__([Walk] * num_envs)
        self.metadata = {}


@pytest.fixture
def registered():
    """Register an environment for the time of a test."""
    names = []

    def register(**options):
        names.append(f"Walk{len(names)}-v0")
        gymnasium.register(names[-1], entry_point=Walk, **options)
        return names[-1]

    yield register
    for name in names:
        del gymnasium.registry[name]


@has_modes
@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_vector_environments_that_do_not_reset_at_the_next_step_are_refused(mode, registered):
    mode = gymnasium.vector.AutoresetMode[mode]
    name = registered(kwargs={"vector_kwargs": {"autoreset_mode": mode}})
    with pytest.raises(eb.InvalidProblemError, match=rf"autoreset_mode'\] = {mode}, expected AutoresetMode.NEXT_STEP"):
        eb.identify(name, **BASICS, num_envs=2)


@has_modes
def test_vector_environments_that_do_not_say_how_they_reset_are_refused(registered):
    name = registered(kwargs={"vectorization_mode": "vector_entry_point"}, vector_entry_point=Unmarked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # from Gymnasium, which misses the mode, too
        with pytest.raises(eb.InvalidProblemError, match=r"autoreset_mode'\] = None"):
            eb.identify(name, **BASICS, num_envs=2)


@has_modes
def test_a_vector_environment_that_resets_at_the_next_step_is_played(registered):
    name = registered(kwargs={"vector_kwargs": {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}})
    assert eb.identify(name, **BASICS, num_envs=2).stopped


# -- models as environments --------------------------------------------------------------------------------------


def test_exported_models_pass_gymnasiums_own_check():
    for name, options in (("RiskyBridge-v0", {"horizon": 9}), ("RiverSwim-v0", {})):
        env = gymnasium.make(f"entropic_bpi.environments:entropic_bpi/{name}", **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about render modes, which there are none of
            check_env(env.unwrapped)


def test_sampled_transitions_follow_the_matrix():
    mdp = eb.instances.garnet(4, 2, 3, horizon=6, seed=1)
    env, counts = eb.as_gymnasium(mdp), np.zeros((4, 2, 4))
    rng = np.random.default_rng(0)
    state, _ = env.reset(seed=1)
    for _ in range(6000):
        action = int(rng.integers(2))
        following, reward, terminated, truncated, _ = env.step(action)
        assert reward == mdp.step_rewards(0)[state, action]
        counts[state, action, following] += 1
        state = env.reset()[0] if terminated or truncated else following
    p_values = []
    for row in range(8):
        rows = mdp.step_rows(0)
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        seen = counts.reshape(8, 4)[row]
        assert seen.sum() == seen[rows.indices[entries]].sum()
        if seen.sum() > 50:
            expected = rows.probabilities[entries] * seen.sum()
            p_values.append(stats.chisquare(seen[rows.indices[entries]], expected).pvalue)
    assert len(p_values) >= 4
    assert min(p_values) > 1e-4


def test_a_model_played_as_a_black_box_is_certified_too():
    bridge = eb.instances.risky_bridge(horizon=3)
    result = eb.identify(
        eb.as_gymnasium(bridge), horizon=3, reward_range=(0, 1), beta=-1.0, eps=0.5, delta=0.1, seed=0, replan=0.05
    )
    assert result.stopped
    gap = eb.solve(bridge, -1.0).value - eb.evaluate(bridge, result.policy[:, :8], -1.0).value
    assert gap <= result.certificate.gap
