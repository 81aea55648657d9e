"""Models read from Gymnasium tables agree with a plain dynamic program over the table itself."""

import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import entropic_bpi as eb


def registered(name):
    """The newest registered id of an environment: versions come and go between Gymnasium releases."""
    versions = [spec.version for spec in gymnasium.registry.values() if spec.name == name and spec.namespace is None]
    if not versions:
        pytest.skip(f"{name} is not registered")
    return f"{name}-v{max(versions)}"


def risk(outcomes, beta):
    """Entropic risk of [(probability, payoff)], written down without care for speed."""
    if beta == 0:
        return sum(p * v for p, v in outcomes)
    top = max(beta * v for _, v in outcomes)
    return (top + math.log(sum(p * math.exp(beta * v - top) for p, v in outcomes))) / beta


def values_from_table(table, n_states, n_actions, horizon, beta):
    values = [0.0] * n_states
    for _ in range(horizon):
        values = [
            max(
                risk([(p, r + (0.0 if done else values[s])) for p, s, r, done in table[state][a] if p > 0], beta)
                for a in range(n_actions)
            )
            for state in range(n_states)
        ]
    return values


def check_against_table(env, mdp, beta):
    raw = env.unwrapped
    n_states, n_actions = int(raw.observation_space.n), int(raw.action_space.n)
    expected = values_from_table(raw.P, n_states, n_actions, mdp.horizon, beta)
    solution = eb.solve(mdp, beta)
    assert solution.values[0, :n_states] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    starts = [(p, v) for p, v in zip(raw.initial_state_distrib, expected, strict=True) if p > 0]
    assert solution.value == pytest.approx(risk(starts, beta), rel=1e-9, abs=1e-12)
    for name, values in zip(mdp.state_names[n_states:], solution.values.T[n_states:], strict=True):
        twin = None if name.startswith("end") else int(name.rstrip("'"))
        assert (values == (0 if twin is None else solution.values[:, twin])).all()


@pytest.mark.parametrize("beta", [-0.8, 0, 0.8])
@pytest.mark.parametrize(
    ("name", "kwargs", "horizon"),
    [
        ("FrozenLake", {}, 25),
        ("FrozenLake", {"is_slippery": False}, 8),
        ("FrozenLake", {"map_name": "8x8"}, 20),
        ("CliffWalking", {}, 20),
        ("CliffWalkingSlippery", {}, 30),
        ("Taxi", {}, 15),
    ],
)
def test_values_agree_with_the_table(name, kwargs, horizon, beta):
    env_id = registered(name)
    env = gymnasium.make(env_id, **kwargs)
    check_against_table(env, eb.from_gymnasium(env_id, horizon=horizon, **kwargs), beta)
    assert eb.from_gymnasium(env, horizon=horizon) == eb.from_gymnasium(env_id, horizon=horizon, **kwargs)


def test_frozen_lake_rewards_depend_on_the_next_state_and_one_end_is_enough():
    mdp = eb.from_gymnasium(registered("FrozenLake"), horizon=10)
    assert mdp.next_state_rewards
    assert mdp.n_states == 17
    assert mdp.start == 0
    assert mdp.state_names[-2:] == ("15", "end")
    assert mdp.action_names == ("left", "down", "right", "up")


def test_a_second_end_where_one_action_may_win_or_lose():
    mdp = eb.from_gymnasium(registered("FrozenLake"), horizon=10, map_name="8x8")
    assert mdp.n_states == 64 + 2
    assert mdp.state_names[-2:] == ("end", "end 2")


@pytest.mark.parametrize("name", ["CliffWalking", "Taxi"])
def test_rewards_are_per_state_and_action_where_the_table_allows(name):
    assert not eb.from_gymnasium(registered(name), horizon=10).next_state_rewards


def test_taxi_starts_at_random():
    mdp = eb.from_gymnasium(registered("Taxi"), horizon=10)
    assert mdp.start.shape == (501,)
    assert (mdp.start > 0).sum() == 300
    assert mdp.start[500] == 0


def test_the_slippery_cliff_has_one_twin_shared_by_all_rows_that_fall_or_stay():
    mdp = eb.from_gymnasium(registered("CliffWalkingSlippery"), horizon=10)
    assert mdp.state_names[48:] == ("36'", "end")
    assert mdp.start == 36
    rows = mdp.rows
    entering = np.searchsorted(rows.indptr, np.flatnonzero(rows.indices == 48), side="right") - 1
    assert {row // 4 for row in entering.tolist()} == {36, 37, 48}
    own, twin = (slice(*rows.indptr[[4 * s, 4 * s + 4]]) for s in (36, 48))
    for array in (rows.indices, rows.probabilities, rows.rewards[0]):
        assert (array[own] == array[twin]).all()


@pytest.mark.parametrize("beta", [-0.05, 0.05])
def test_the_return_of_the_slippery_cliff_has_the_law_of_the_table(beta):
    """One policy, its return followed outcome by outcome through the table."""
    env = gymnasium.make(registered("CliffWalkingSlippery"))
    mdp = eb.from_gymnasium(env, horizon=6)
    policy = eb.solve(mdp, beta).policy
    law = {(36, 0.0): 1.0}
    for h in range(mdp.horizon):
        after = {}
        for (state, paid), mass in law.items():
            for p, s, r, done in env.unwrapped.P[state][policy[h, state]] if state is not None else [(1, 0, 0, True)]:
                key = None if done else int(s), paid + r
                after[key] = after.get(key, 0.0) + mass * p
        law = after
    expected = {}
    for (_, paid), mass in law.items():
        expected[paid] = expected.get(paid, 0.0) + mass
    actual = eb.return_law(mdp, policy)
    assert actual.support.tolist() == sorted(expected)
    assert actual.probabilities == pytest.approx([expected[paid] for paid in sorted(expected)])


class TableEnv(gymnasium.Env):
    """An environment with a given table."""

    def __init__(self, table, n_states=2, n_actions=1, start=(1.0, 0.0)):
        self.P = table
        self.observation_space = spaces.Discrete(n_states)
        self.action_space = spaces.Discrete(n_actions)
        if start is not None:
            self.initial_state_distrib = np.array(start)


GOING = [(1.0, 1, 0.0, False)]


def random_env(seed, n_states=5, n_actions=3, contradictory=False):
    """Random tables with repeated successors, zero probabilities, several endings, and random starts."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(n_states, n_actions, n_states)).round(1)

    def outcomes(s, a):
        mass = rng.dirichlet(np.ones(6)) * (rng.random(6) < 0.8)
        mass = mass / mass.sum() if mass.sum() > 0 else np.full(6, 1 / 6)
        result = []
        for p in mass:
            successor, done = int(rng.integers(n_states)), bool(rng.random() < 0.3)
            reward = rng.choice([-1.0, 0.3, 2.0]) if contradictory else rewards[s, a, successor]
            result.append((p, successor, float(reward), done))
        return result

    table = {s: {a: outcomes(s, a) for a in range(n_actions)} for s in range(n_states)}
    return TableEnv(table, n_states, n_actions, start=rng.dirichlet(np.ones(n_states)))


@pytest.mark.parametrize("beta", [-1.5, -1e-4, 0, 1.5])
@pytest.mark.parametrize("seed", range(6))
def test_random_tables_agree(seed, beta):
    env = random_env(seed)
    mdp = eb.from_gymnasium(env, horizon=7)
    assert mdp.next_state_rewards
    assert not any("'" in name for name in mdp.state_names)
    check_against_table(env, mdp, beta)


@pytest.mark.parametrize("beta", [-1.5, -1e-4, 0, 1.5])
@pytest.mark.parametrize("seed", range(12))
def test_random_tables_with_contradictory_rewards_agree_with_as_few_twins_as_possible(seed, beta):
    env = random_env(seed, n_states=3, contradictory=True)
    mdp = eb.from_gymnasium(env, horizon=7)
    check_against_table(env, mdp, beta)
    most = {}
    for actions in env.P.values():
        for outcomes in actions.values():
            found = {}
            for p, s, r, done in outcomes:
                if p > 0:
                    found.setdefault("end" if done else s, set()).add(r)
            most |= {s: max(most.get(s, 0), len(rewards)) for s, rewards in found.items()}
    twins = {s: sum(name.rstrip("'") == str(s) for name in mdp.state_names) - 1 for s in range(3)}
    assert twins == {s: max(most.get(s, 0) - 1, 0) for s in range(3)}
    assert max(twins.values()) > 0
    assert mdp.n_states == 3 + sum(twins.values()) + most["end"]


def test_three_rewards_on_the_way_to_one_state_take_two_twins():
    contradictory = [(0.2, 1, 5.0, False), (0.3, 1, -1.0, False), (0.4, 1, 0.0, False), (0.1, 1, 5.0, False)]
    last = [(0.5, 1, 1.0, True), (0.5, 1, 2.0, True)]
    mdp = eb.from_gymnasium(TableEnv([[contradictory], [last]], start=[0.5, 0.5]), horizon=3)
    assert mdp.state_names == ("0", "1", "1'", "1''", "end", "end 2")
    assert mdp.start.tolist() == [0.5, 0.5, 0, 0, 0, 0]
    assert mdp.rows.indices[:3].tolist() == [1, 2, 3]
    assert mdp.rows.rewards[0, :3].tolist() == [-1.0, 0.0, 5.0]
    assert mdp.rows.probabilities[:3] == pytest.approx([0.3, 0.4, 0.3])


def test_a_contradiction_between_rows_is_none():
    table = {0: {0: [(1.0, 1, 1.0, False)]}, 1: {0: [(1.0, 1, 2.0, False)]}}
    assert eb.from_gymnasium(TableEnv(table), horizon=3).n_states == 2


def test_equal_outcomes_of_a_row_are_merged():
    env = TableEnv({0: {0: [(0.25, 1, 2.0, False), (0.5, 0, 1.0, False), (0.25, 1, 2, False)]}, 1: {0: GOING}})
    mdp = eb.from_gymnasium(env, horizon=3)
    assert mdp.rows.indices.tolist() == [0, 1, 1]
    assert mdp.rows.probabilities.tolist() == [0.5, 0.5, 1.0]
    assert mdp.rows.rewards.tolist() == [[1.0, 2.0, 0.0]]


def test_no_end_is_added_when_nothing_terminates():
    assert eb.from_gymnasium(TableEnv({0: {0: GOING}, 1: {0: GOING}}), horizon=3).n_states == 2


def test_three_endings_of_one_action_keep_their_rewards():
    endings = [(0.2, 0, 5.0, True), (0.3, 0, -1.0, True), (0.4, 1, 0.0, True), (0.1, 1, 5.0, True)]
    mdp = eb.from_gymnasium(TableEnv([[endings], [GOING]]), horizon=3)
    assert mdp.n_states == 5
    law = eb.return_law(mdp, np.zeros((3, 5), dtype=int))
    assert law.support.tolist() == [-1, 0, 5]
    assert law.probabilities == pytest.approx([0.3, 0.4, 0.3])


def test_an_impossible_outcome_cannot_contradict():
    env = TableEnv({0: {0: [(1.0, 1, 2.0, False), (0.0, 1, 7.0, False)]}, 1: {0: GOING}})
    mdp = eb.from_gymnasium(env, horizon=1)
    assert mdp.n_states == 2
    assert mdp.reward_range == (0.0, 2.0)


def test_a_missing_start_must_be_given():
    env = TableEnv({0: {0: GOING}, 1: {0: [(1.0, 0, 1.0, True)]}}, start=None)
    with pytest.raises(eb.InvalidModelError, match="TableEnv does not publish initial_state_distrib: pass start="):
        eb.from_gymnasium(env, horizon=3)
    assert eb.from_gymnasium(env, horizon=3, start=1).start == 1
    assert eb.from_gymnasium(env, horizon=3, start=[0.5, 0.5]).start.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({0: {0: GOING}}, r"P\[1\]\[0\] is missing"),
        ({0: {}, 1: {0: GOING}}, r"P\[0\]\[0\] is missing"),
        (
            {0: {0: [(1.0, 1, 0.0)]}, 1: {0: GOING}},
            r"P\[0\]\[0\] must list \(probability, next state, reward, terminated\)",
        ),
        ({0: {0: [(1.0, 0.5, 0.0, False)]}, 1: {0: GOING}}, r"P\[0\]\[0\] must list"),
        ({0: {0: [(1.0, 2, 0.0, False)]}, 1: {0: GOING}}, r"P\[0\]\[0\] holds \(1.0, 2, 0.0, False\)"),
        ({0: {0: [(-1.0, 1, 0.0, False)]}, 1: {0: GOING}}, r"P\[0\]\[0\] holds \(-1.0, 1"),
        ({0: {0: [(1.0, 1, math.nan, False)]}, 1: {0: GOING}}, r"P\[0\]\[0\] holds .*nan"),
        ({0: {0: GOING}, 1: {0: []}}, r"P\[1\]\[0\] has no outcome of positive probability"),
        ({0: {0: [(0.7, 1, 0.0, False)]}, 1: {0: GOING}}, r"transitions\[s=0, a=0\] sums to 0.7"),
    ],
)
def test_a_bad_table_is_an_error_that_names_the_place(table, message):
    with pytest.raises(eb.InvalidModelError, match=message):
        eb.from_gymnasium(TableEnv(table), horizon=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"P": None}, "must list"),
        ({"observation_space": spaces.Box(0, 1)}, "the observation space of TableEnv must be Discrete"),
        ({"action_space": spaces.MultiDiscrete([2, 2])}, "the action space of TableEnv must be Discrete"),
        ({"observation_space": spaces.Discrete(2, start=1)}, "must be Discrete and start at 0"),
        (
            {"initial_state_distrib": np.ones(3) / 3},
            r"start must be a state or a distribution over the 2 states, got shape \(3,\)",
        ),
        ({"initial_state_distrib": np.ones(2)}, "start sums to 2"),
        ({"fickle_passenger": True}, "the table of .* does not include fickle_passenger=True"),
    ],
)
def test_an_unfit_environment_is_refused(changes, message):
    env = TableEnv({0: {0: GOING}, 1: {0: GOING}})
    for name, value in changes.items():
        setattr(env, name, value)
    with pytest.raises(eb.InvalidModelError, match=message):
        eb.from_gymnasium(env, horizon=3)


@pytest.mark.parametrize("name", ["Blackjack", "CartPole"])
def test_an_environment_without_a_table_is_refused(name):
    with pytest.raises(eb.InvalidModelError, match="publishes no transition table"):
        eb.from_gymnasium(registered(name), horizon=3)


def test_a_wrapper_that_changes_the_rewards_is_refused():
    env = gymnasium.wrappers.TransformReward(TableEnv({0: {0: GOING}, 1: {0: GOING}}), lambda r: 2 * r)
    with pytest.raises(eb.InvalidModelError, match="does not include its wrapper TransformReward"):
        eb.from_gymnasium(env, horizon=3)


@pytest.mark.parametrize(
    ("env", "kwargs", "error", "message"),
    [
        ("NoSuchEnv-v0", {}, eb.InvalidModelError, "gymnasium cannot make 'NoSuchEnv-v0'"),
        ("FrozenLake-v1", {"map_name": "9x9"}, eb.InvalidModelError, "cannot make 'FrozenLake-v1': KeyError: '9x9'"),
        ("FrozenLake-v1", {"size": 3}, eb.InvalidModelError, "cannot make 'FrozenLake-v1'"),
        (3, {}, eb.InvalidModelError, "expected a Gymnasium environment or an id, got 3"),
        (TableEnv({}), {"size": 3}, eb.InvalidModelError, "size: options apply to an id"),
        ("FrozenLake-v1", {"horizon": 0}, eb.InvalidProblemError, "horizon must be at least 1"),
        ("FrozenLake-v1", {"horizon": None}, eb.InvalidProblemError, "horizon must be an integer"),
        ("FrozenLake-v1", {"start": [[1], [2, 3]]}, eb.InvalidModelError, "start must be an array of real numbers"),
        ("FrozenLake-v1", {"start": True}, eb.InvalidModelError, "start must be a state or a distribution"),
        ("FrozenLake-v1", {"start": 16}, eb.InvalidModelError, "start is state 16, expected 0 to 15"),
    ],
)
def test_bad_arguments_are_named(env, kwargs, error, message):
    with pytest.raises(error, match=message):
        eb.from_gymnasium(env, **{"horizon": 3, **kwargs})


def test_the_horizon_has_no_default():
    with pytest.raises(TypeError, match="horizon"):
        eb.from_gymnasium("FrozenLake-v1")


def test_an_environment_that_was_passed_stays_open_and_untouched():
    env = gymnasium.make(registered("FrozenLake"))
    observation, _ = env.reset(seed=1)
    eb.from_gymnasium(env, horizon=3)
    assert env.unwrapped.s == observation
    env.step(0)


def test_the_library_does_not_need_gymnasium_until_asked():
    code = "import sys, entropic_bpi as eb; eb.from_gymnasium; print('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# -- environments by name ----------------------------------------------------------------------------------------------


OWN = """
import gymnasium
from beside import SIZE

class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(SIZE)
    action_space = gymnasium.spaces.Discrete(2)
    initial_state_distrib = [1.0, 0.0]

    def __init__(self, pay=1.0):
        self.P = {s: {a: [(1.0, a, pay * a, False), (-5.6e-17, 0, 0.0, False)] for a in range(2)} for s in range(2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        (_, self.state, reward, terminated), _ = self.P[self.state][action]
        return self.state, reward, terminated, False, {}
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "beside.py").write_text("SIZE = 2")
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def test_a_class_in_a_file_is_read_and_played(own):
    name = f"{own}:Line"
    model = eb.from_gymnasium(name, horizon=3, pay=2.0)
    assert eb.solve(model, 1.0).value == 6.0
    for source, copies in ((name, 1), (f"gym:{name}", 1), (name, 2)):
        goal = {"beta": 1.0, "eps": 0.5, "delta": 0.1, "seed": 1}
        played = eb.identify(source, horizon=3, reward_range=(0, 1), **goal, num_envs=copies, max_episodes=5)
        assert played.episodes == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.py:Line", "no such file"),
        ("own.py:Circle", "no class or function Circle"),
        ("bad.py:Line", "bad.py cannot be run: SyntaxError"),
    ],
)
def test_a_class_that_is_not_there_is_named(name, message, own):
    (own.parent / "bad.py").write_text("class:")
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(str(own.parent / name), horizon=3, reward_range=(0, 1), beta=1.0, eps=0.5, delta=0.1)
    with pytest.raises(eb.InvalidModelError, match=message):
        eb.from_gymnasium(str(own.parent / name), horizon=3)


def test_an_environment_without_a_table_can_be_played_and_the_message_says_how():
    with pytest.raises(
        eb.InvalidModelError, match=r"no transition table .*reward_range=\(low, high\) \(--reward-range"
    ):
        eb.from_gymnasium("Blackjack-v1", horizon=3)
