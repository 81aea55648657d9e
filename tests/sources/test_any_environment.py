"""Environments with spaces of every kind, with observations of any kind, and however they are handed over."""

import hashlib
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeAwareObservation

import entropic_bpi as eb
from entropic_bpi.sources.environment import Environment, open_environment

BASICS = {"horizon": 3, "reward_range": (0.0, 1.0), "beta": -1.0, "eps": 0.3, "delta": 0.1, "seed": 3}


class Walk(gymnasium.Env):
    """Three places; action 1 goes on with probability 0.7, action 0 stays. Arriving at the last one pays 1 and ends."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)
    chance = 0.7

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place += int(action == 1 and self.np_random.random() < self.chance)
        return self.place, float(self.place == 2), self.place == 2, False, {}


class Disguise(gymnasium.Wrapper):
    """The same with other observations and actions."""

    def __init__(self, observation_space, see, action_space=None, do=int, env=None):
        super().__init__(Walk() if env is None else env)
        self.observation_space, self.see, self.do = observation_space, see, do
        self.action_space = self.env.action_space if action_space is None else action_space

    def reset(self, **options):
        observation, info = super().reset(**options)
        return self.see(observation), info

    def step(self, action):
        observation, *rest = super().step(self.do(action))
        return self.see(observation), *rest


def image(place):
    return np.full((4, 4, 3), place, np.uint8)


FINITE = {
    "shifted": (spaces.Discrete(3, start=-5), lambda s: np.int64(s - 5)),
    "array": (spaces.MultiDiscrete([[1], [3]]), lambda s: np.array([[0], [s]])),
    "box": (spaces.Box(-1, 1, (1,), np.int32), lambda s: np.array([s - 1], np.int32)),
    "dict": (
        spaces.Dict(left=spaces.Discrete(1), right=spaces.Tuple([spaces.Box(0, 2, (), np.int8)])),
        lambda s: {"right": (np.array(s),), "left": 0},
    ),
}
ANY = {
    "floats": (spaces.Box(0, 1, (2,)), lambda s: np.array([s / 3, 0.5], np.float32)),
    "text": (spaces.Text(5), lambda s: "abc"[s]),
    "image": (spaces.Dict(image=spaces.Box(0, 255, (4, 4, 3), np.uint8)), lambda s: {"image": image(s)}),
    "objects": (spaces.Text(5), lambda s: frozenset([("at", s)])),
}


@pytest.fixture(scope="module")
def plain():
    return eb.identify(Walk(), **BASICS)


@pytest.mark.parametrize("kind", FINITE)
def test_the_kind_of_a_finite_space_makes_no_difference(kind, plain):
    space, see = FINITE[kind]
    result = eb.identify(Disguise(space, see), **BASICS)
    assert result.history.tolist() == plain.history.tolist()
    assert eb.verify(result.certificate).ok
    assert [result.policy_of(see(s), 1) for s in range(2)] == plain.policy[1, :2].tolist()


@pytest.mark.parametrize("kind", FINITE | ANY)
def test_states_that_are_found_on_the_way_are_certified_as_if_they_were_listed(kind, plain, tmp_path):
    space, see = (FINITE | ANY)[kind]
    result = eb.identify(Disguise(space, see), **BASICS, max_states=3)
    assert result.history.tolist() == plain.history.tolist()
    assert "there are at most 3 different observations" in " ".join(result.certificate.assumptions)
    result.certificate.save(tmp_path / "claim.json")
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    assert eb.verify(tmp_path / "claim.json").ok
    assert list(loaded.problem.state_names) == list(result.certificate.problem.state_names)
    for step in range(3):
        assert [loaded.policy_of(see(s), step) for s in range(2)] == plain.policy[step, :2].tolist()
    with pytest.raises(eb.InvalidProblemError, match="not one of the observations that were seen"):
        loaded.policy_of(see(2))  # the walk ends there, so it is never a state


def test_only_the_declared_bound_enters_the_claim(plain):
    loose = eb.identify(Disguise(*ANY["text"]), **BASICS, max_states=30, max_episodes=plain.episodes)
    assert loose.certificate.gap > plain.certificate.gap
    assert loose.certificate.problem.n_states == 31


def test_actions_of_any_finite_space_are_played(plain):
    actions = {
        "pair": (spaces.MultiDiscrete([1, 2]), lambda a: int(a[1]), lambda i: (0, i)),
        "dict": (spaces.Dict(go=spaces.Discrete(2, start=4)), lambda a: a["go"] - 4, lambda i: {"go": 4 + i}),
        "shifted": (spaces.Discrete(2, start=-1), lambda a: a + 1, lambda i: i - 1),
    }
    for space, do, action in actions.values():
        env = Disguise(spaces.Discrete(3), int, space, do)
        result = eb.identify(env, **BASICS)
        assert result.history.tolist() == plain.history.tolist()
        assert eb.verify(result.certificate).ok
        played = result.policy_of(0)
        assert played == action(int(plain.policy[0, 0]))
        assert space.contains(played) or space.contains(np.array(played))


@pytest.mark.parametrize("path", ["stopped", "interrupted"])
def test_a_run_is_taken_up_with_the_states_that_it_had_found(path, tmp_path):
    """Places are found in another order every time, so a resumed run that numbered them anew would differ."""

    class Scattered(Walk):
        observation_space = spaces.Text(9)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = int(self.np_random.integers(8))
            return f"at {self.place}", {}

        def step(self, action):
            self.place = (self.place + int(self.np_random.integers(1, 3)) * (1 + action)) % 8
            return f"at {self.place}", float(self.place == 0), False, False, {}

    options = {**BASICS, "eps": 1e-3, "max_states": 9}
    straight = eb.identify(Scattered(), **options, max_episodes=120)
    checkpoint = tmp_path / "run.ckpt"
    if path == "stopped":
        eb.identify(Scattered(), **options, max_episodes=4, checkpoint=checkpoint)
    else:

        class Broken(Scattered):
            steps = 0

            def step(self, action):
                Broken.steps += 1
                if Broken.steps == 11:
                    raise KeyboardInterrupt
                return super().step(action)

        Broken.__qualname__ = Scattered.__qualname__
        with pytest.raises(KeyboardInterrupt):
            eb.identify(Broken(), **options, max_episodes=120, checkpoint=checkpoint)
        Broken.steps = 100
        Scattered = Broken
    resumed = eb.identify(Scattered(), **options, max_episodes=120, checkpoint=checkpoint)
    assert resumed.history.tolist() == straight.history.tolist()
    assert resumed.certificate.problem.state_names == straight.certificate.problem.state_names
    np.testing.assert_array_equal(resumed.policy, straight.policy)


def test_one_more_observation_than_declared_ends_the_run_for_good(tmp_path):
    checkpoint = tmp_path / "run.ckpt"
    for _ in range(2):
        with pytest.raises(eb.InvalidProblemError, match="more than max_states = 1 different observations"):
            eb.identify(Disguise(*ANY["text"]), **BASICS, max_states=1, checkpoint=checkpoint)


@pytest.mark.parametrize(("bound", "message"), [(0, "at least 1"), (2.5, "integer"), (10**7, "at most 100000")])
def test_a_bound_that_makes_no_sense_is_refused(bound, message):
    with pytest.raises(eb.InvalidProblemError, match=rf"max_states must be (an )?{message}"):
        eb.identify(Walk(), **BASICS, max_states=bound)


def test_what_cannot_be_listed_is_named_with_its_size_and_the_way_out():
    for space, size in [
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), r"has about 10\^116 elements of 48 integers"),
        (spaces.Discrete(100_001), "has 100001 elements"),
        (spaces.Box(0, 1, (2,)), "does not consist of finitely many integers"),
    ]:
        with pytest.raises(eb.InvalidProblemError, match=rf"{size}.*max_states=M"):
            eb.identify(Disguise(space, int), **BASICS)
    for space in (spaces.Box(0, 1, (2,)), spaces.MultiBinary(40)):
        with pytest.raises(eb.InvalidProblemError, match=r"the action space .*wrap the environment"):
            eb.identify(Disguise(spaces.Discrete(3), int, space), **BASICS)
    with pytest.raises(eb.InvalidProblemError, match="max_states is for environments"):
        eb.identify(eb.instances.risky_bridge(), beta=1.0, eps=0.1, delta=0.1, max_states=3)


def test_found_states_may_have_a_bound_on_their_successors_but_no_names_in_advance(plain):
    walk = Disguise(*ANY["text"])
    limited = eb.identify(walk, **BASICS, max_states=3, max_successors=2)
    assert limited.episodes < plain.episodes
    assert eb.verify(limited.certificate).ok
    with pytest.raises(eb.InvalidProblemError, match="declare max_successors"):
        eb.identify(walk, **BASICS, max_states=3, successors=lambda s, a: [s])


def saved(content, folder):
    """A certificate file with this content, whole and with the right digest."""
    path = folder / "claim.json"
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**content, "digest": digest}))
    return path


# -- what the verifier takes for names of found states ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_states": None}, "observations and actions in order"),
        ({"max_states": 2}, "max_states is 2, but the claim is about 3 states"),
        ({"max_states": True}, "max_states must be an integer"),
        ({"state_names": ["'a'", "#1", "'b'", "end"]}, "observations and actions in order"),
        ({"state_names": ["'a'", "'b'", "#3", "end"]}, "observations and actions in order"),
        ({"state_names": ["'a'", "'a'", "#2", "end"]}, "different"),
        ({"state_names": ["'a'", "\x1b[2J", "#2", "end"]}, "observations and actions in order"),
        ({"state_names": ["'a'", "'b'", "end", "#2"]}, "observations and actions in order"),
        ({"action_names": ["1", "0"]}, "observations and actions in order"),
    ],
)
def test_names_that_no_run_has_are_refused(change, message, found_content, tmp_path):
    content = json.loads(found_content)
    content["problem"] |= change
    assert any(message in problem for problem in eb.verify(saved(content, tmp_path)).problems)


@pytest.fixture(scope="module")
def found_content():
    result = eb.identify(Disguise(*ANY["text"]), **BASICS, max_states=3)
    return json.dumps(result.certificate._content())


def test_a_model_has_no_bound_on_its_states(tmp_path):
    bridge = eb.identify(eb.instances.risky_bridge(), beta=-1.0, eps=0.5, delta=0.1, seed=1, max_episodes=10)
    content = bridge.certificate._content()
    content["problem"]["max_states"] = content["problem"]["n_states"] - 1
    assert any("max_states must be null" in problem for problem in eb.verify(saved(content, tmp_path)).problems)
    with pytest.raises(eb.CertificateError, match="max_states must be null"):
        eb.Certificate.load(saved(content, tmp_path))


# -- sources -----------------------------------------------------------------------------------------------------------


def test_an_environment_may_be_handed_over_as_a_class_or_a_factory(plain):
    for source in (Walk, lambda: Walk(), open_environment(Walk, 1).env):
        assert eb.identify(source, **BASICS).history.tolist() == plain.history.tolist()


class SureWalk(Walk):
    """A walk without chance, so that copies see what one sees."""

    chance = 1.0


def disguised(kind):
    return lambda: Disguise(*(FINITE | ANY)[kind], env=SureWalk())


@pytest.mark.parametrize("kind", FINITE | ANY)
def test_copies_have_observations_of_every_kind(kind):
    bound = {"max_states": 3} if kind in ANY else {}
    alone, together = (
        eb.identify(disguised(kind), **BASICS, **bound, num_envs=copies, max_episodes=30, replan=1.0)
        for copies in (1, 3)
    )
    assert together.history.tolist() == alone.history.tolist()


@pytest.mark.parametrize(
    ("space", "do"),
    [
        (spaces.MultiDiscrete([1, 2]), lambda a: int(a[1])),
        (spaces.Dict(a=spaces.Discrete(2, start=4), b=spaces.MultiBinary(1)), lambda a: int(a["a"]) - 4),
        (spaces.Tuple([spaces.Discrete(1), spaces.Box(0, 1, (), np.int8)]), lambda a: int(a[1])),
    ],
)
def test_copies_take_actions_of_every_kind(space, do):
    def factory():
        return Disguise(spaces.Discrete(3), int, space, do, env=SureWalk())

    alone, together = (eb.identify(factory, **BASICS, num_envs=copies, max_episodes=20) for copies in (1, 3))
    assert together.history["episodes"].tolist() == alone.history["episodes"].tolist()
    assert together.stopped == alone.stopped


def test_a_vector_environment_may_be_handed_over_even_of_one_copy():
    for copies in (1, 3):
        vector = gymnasium.vector.SyncVectorEnv([Walk] * copies)
        assert eb.identify(vector, **BASICS).stopped
        vector.reset()  # it was handed in, so it is still open
        vector.close()
    with pytest.raises(eb.InvalidProblemError, match="num_envs needs an environment id, a class or a factory"):
        eb.identify(gymnasium.vector.SyncVectorEnv([Walk]), **BASICS, num_envs=2)


def test_what_is_made_is_closed_and_what_makes_nothing_is_named():
    closed = []

    class Closing(Walk):
        def close(self):
            closed.append(True)

    eb.identify(Closing, **BASICS, max_episodes=3)
    assert closed
    with pytest.raises(eb.InvalidProblemError, match="made 17, expected a Gymnasium environment"):
        eb.identify(lambda: 17, **BASICS)

    def broken():
        raise OSError("no licence")

    with pytest.raises(eb.InvalidProblemError, match=r"cannot make the environment .*broken.*: no licence"):
        eb.identify(broken, **BASICS)


class Counted(Walk):
    """Counts how many were made and closed."""

    made = closed = 0

    def __init__(self):
        Counted.made += 1

    def close(self):
        Counted.closed += 1


class CountedCamera(Counted):
    observation_space = spaces.Box(0.0, 1.0)


class CountedWheel(Counted):
    action_space = spaces.Box(0.0, 1.0)


def unlike_the_first():
    return CountedWheel() if Counted.made else Counted()


def second_of_two_fails():
    if Counted.made:
        raise OSError("no second licence")
    return Counted()


FOREIGN = {
    "episode": [0], "step": [0], "state": [9], "action": [0], "reward": [0.0], "next_state": [9],
}  # fmt: skip


@pytest.mark.parametrize("ask", [eb.identify, eb.forecast])
@pytest.mark.parametrize(
    ("source", "refused"),
    [
        (CountedCamera, {}),
        (CountedWheel, {}),
        (Counted, {"successors": {(0, 0): [99]}}),
        (Counted, {"successors": np.ones((2, 2), bool)}),
        (Counted, {"method": "bernstein", "reward_law": "random"}),
        (Counted, {"reward_range": (0.0, 1e-320)}),
        (Counted, {"device": "gpu"}),
        (Counted, {"data": FOREIGN}),
        (unlike_the_first, {"num_envs": 2}),
        (second_of_two_fails, {"num_envs": 2}),
    ],
)
def test_what_was_made_is_closed_when_a_later_check_refuses(source, refused, ask):
    Counted.made = Counted.closed = 0
    if "data" in refused:
        roles = {name: name for name in FOREIGN}
        table = {name: np.array(column) for name, column in FOREIGN.items()}
        refused = {"data": eb.Log.read(table, **roles, truncated=True, states="seen")}
    with pytest.raises(eb.EntropicBPIError):
        ask(source, **{**BASICS, **refused})
    assert Counted.closed == Counted.made > 0


@pytest.mark.parametrize("name", ["checkpoint", "preregister"])
def test_paths_are_checked_before_anything_is_made(name):
    Counted.made = Counted.closed = 0
    with pytest.raises(eb.EntropicBPIError, match=name):
        eb.identify(Counted, **BASICS, **{name: 3})
    assert Counted.made == Counted.closed


def test_a_run_that_is_refused_later_is_closed(tmp_path):
    eb.identify(Walk, **BASICS, max_episodes=3, checkpoint=tmp_path / "run")
    Counted.made = Counted.closed = 0
    with pytest.raises(eb.EntropicBPIError):
        eb.identify(Counted, **BASICS, checkpoint=tmp_path / "run")
    assert Counted.closed == Counted.made == 1


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("normalize_time", [False, True])
def test_observations_with_the_time_in_them_are_states(flatten, normalize_time):
    def lake():
        return TimeAwareObservation(
            gymnasium.make("FrozenLake-v1", max_episode_steps=4, disable_env_checker=True),
            flatten=flatten,
            normalize_time=normalize_time,
        )

    listed = not flatten and not normalize_time
    options = {**BASICS, "reward_range": (0, 1), "max_episodes": 40}
    if not listed:
        with pytest.raises(eb.InvalidProblemError, match="max_states=M"):
            eb.identify(lake(), **options)
    result = eb.identify(lake(), **options, **({} if listed else {"max_states": 80}))
    assert eb.verify(result.certificate).ok
    observation, _ = lake().reset(seed=1)
    assert result.policy_of(observation) in range(4)


def test_the_truncation_of_an_environment_is_explained_with_every_way_out():
    with pytest.raises(eb.InvalidProblemError) as refused:
        eb.identify("FrozenLake-v1", **{**BASICS, "horizon": 200, "seed": 0})
    message = str(refused.value)
    assert "truncated after 100 steps, before the horizon 200 (its time limit is 100 steps)" in message
    for way in ("horizon=100", "gymnasium.make('FrozenLake-v1', max_episode_steps=200)", "-p max_episode_steps=200"):
        assert way in message


def test_the_remedy_of_a_truncation_works():
    assert eb.identify(long_walk(6), **{**BASICS, "horizon": 6}, max_episodes=9).episodes == 9
    with pytest.raises(eb.InvalidProblemError, match="truncated after 5 steps"):
        eb.identify(long_walk(5), **{**BASICS, "horizon": 6}, max_episodes=9)


def long_walk(limit):
    return gymnasium.wrappers.TimeLimit(Walk(), limit)


# -- environments that nobody here wrote -------------------------------------------------------------------------------


def weighted(name):
    """An environment of mo-gymnasium, whose rewards are vectors, with their mean as its reward."""
    mo_gymnasium = pytest.importorskip("mo_gymnasium")
    env = mo_gymnasium.make(name)
    n = env.unwrapped.reward_space.shape[0]
    return mo_gymnasium.wrappers.LinearReward(env, weight=np.full(n, 1 / n))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "reward_range", "bound"),
    [
        ("deep-sea-treasure-v0", (-1, 124), {}),
        ("resource-gathering-v0", (-1, 1), {}),
        ("four-room-v0", (0, 1), {"max_states": 2000}),
        ("fruit-tree-v0", (0, 10), {}),
        ("breakable-bottles-v0", (-60, 50), {}),
    ],
)
def test_environments_of_mo_gymnasium_are_played_and_the_certificate_is_verified(name, reward_range, bound):
    goal = {"beta": -0.01, "eps": 0.05, "delta": 0.1, "seed": 1}
    result = eb.identify(weighted(name), horizon=4, reward_range=reward_range, **goal, **bound, max_episodes=20)
    assert result.episodes == 20
    assert eb.verify(result.certificate).ok


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_minigrid_is_played_by_what_it_shows():
    pytest.importorskip("minigrid")
    options = {**BASICS, "eps": 0.05, "max_states": 60, "max_episodes": 30}
    result = eb.identify("MiniGrid-Empty-5x5-v0", **options)
    assert eb.verify(result.certificate).ok
    observation, _ = gymnasium.make("MiniGrid-Empty-5x5-v0").reset(seed=4)
    assert result.policy_of(observation) in range(7)


def test_a_vector_of_rewards_is_refused_with_the_way_out():
    class Two(Walk):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, np.array([reward, -1.0]), *rest

    with pytest.raises(eb.InvalidProblemError, match=r"reward is a vector of 2 numbers.*weighted sum"):
        eb.identify(Two(), **BASICS)


def test_copies_are_opened_once():
    opened = Environment(gymnasium.vector.SyncVectorEnv([Walk] * 2))
    assert (opened.copies, opened.vector) == (2, True)
