"""Environments of other interfaces, ids of packages that are not imported, and observations that are hashed."""

import sys
import types

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.sources.adapters import as_gymnasium_env
from entropic_bpi.sources.spaces import DiscoveredStates, differing_parts

GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1}


def old_class(name="gym", **methods):
    """A class that derives from ``gym.Env`` as far as its name and module tell."""
    base = type("Env", (), {"__module__": f"{name}.core"})
    return type("Old", (base,), methods)


def reset_21(self):
    return 0


def reset_26(self, *, seed=None, options=None):
    return 0, {}


def shimmy_with(monkeypatch, **adapters):
    module = types.ModuleType("shimmy")
    vars(module).update(adapters)
    monkeypatch.setitem(sys.modules, "shimmy", module)


@pytest.mark.parametrize(
    ("reset", "adapter"), [(reset_21, "GymV21CompatibilityV0"), (reset_26, "GymV26CompatibilityV0")]
)
def test_gym_is_adapted_by_the_class_for_its_interface(monkeypatch, reset, adapter):
    made = gymnasium.make("FrozenLake-v1")
    shimmy_with(monkeypatch, **{adapter: lambda env: made})
    old = old_class(reset=reset)
    assert as_gymnasium_env(old(), "Old") is made
    result = eb.identify(old, horizon=2, reward_range=(0, 1), **GOAL, max_episodes=5)
    assert result.certificate.problem.n_actions == 4


def test_dm_env_is_adapted_and_a_gymnasium_environment_is_left_alone(monkeypatch):
    shimmy_with(monkeypatch, BSuiteCompatibilityV0=lambda env: "adapted")
    base = type("Environment", (), {"__module__": "dm_env._environment"})
    assert as_gymnasium_env(type("Catch", (base,), {})(), "Catch") == "adapted"
    lake = gymnasium.make("FrozenLake-v1")
    assert as_gymnasium_env(lake, "lake") is lake


def test_a_missing_adapter_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "shimmy", None)
    with pytest.raises(
        eb.InvalidProblemError, match=r"shimmy.GymV21CompatibilityV0: pip install 'entropic-bpi\[compat\]'"
    ):
        eb.identify(old_class(reset=reset_21)(), horizon=2, reward_range=(0, 1), **GOAL)


def test_an_adapter_that_fails_is_named_with_its_message(monkeypatch):
    def fails(env):
        raise TypeError("no such space")

    shimmy_with(monkeypatch, GymV21CompatibilityV0=fails)
    with pytest.raises(eb.InvalidProblemError, match=r"GymV21CompatibilityV0 cannot adapt Old.*no such space"):
        eb.inspect(old_class(reset=reset_21)())


def test_several_agents_are_refused_with_what_to_do():
    game = type("Chess", (type("AECEnv", (), {"__module__": "pettingzoo.utils.env"}),), {})
    with pytest.raises(eb.InvalidProblemError, match="PettingZoo environment of several agents: wrap it"):
        eb.inspect(game())


def test_the_real_adapters_work():
    gym = pytest.importorskip("gym")
    pytest.importorskip("shimmy")

    class Walk(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)

        def seed(self, seed=None):
            return [seed]

        def reset(self):
            self.state = 0
            return 0

        def step(self, action):
            self.state += 1
            return self.state % 3, float(action), self.state == 3, {}

    found = eb.inspect(Walk, episodes=60, seed=0)
    assert (found.declarations.horizon, found.declarations.max_successors) == (3, 1)
    assert found.declarations.reward_range == (0.0, 1.0)


def test_an_id_that_is_not_registered_says_which_package_may_have_it():
    for source in ("gym:MiniGrid-Empty-99x99-v0", "MiniGrid-Empty-99x99-v0"):
        with pytest.raises(eb.InvalidProblemError, match="gym:package:Env-v0"):
            eb.inspect(source, episodes=1)
    with pytest.raises(eb.InvalidProblemError, match="use gym:package:Env-v0"):
        eb.inspect("gym:NoSuchThing-v7", episodes=1)


def test_hashed_observations_say_where_they_differ():
    states = DiscoveredStates(1)
    states.index({"image": np.zeros((5, 8)), "mission": "go"})
    picture = np.zeros((5, 8))
    picture[2, 3] = 7.0
    with pytest.raises(eb.InvalidProblemError, match=r"differs .* observation\['image'\]\[2, 3\]: 0.0, 7.0"):
        states.index({"image": picture, "mission": "go"})


def test_differences_are_those_of_a_comparison_element_by_element():
    rng = np.random.default_rng(0)
    one = rng.integers(3, size=(4, 5))
    other = one.copy()
    other[rng.random((4, 5)) < 0.3] += 1
    expected = [
        f"o[{i}, {j}]: {one[i, j]}, {other[i, j]}" for i in range(4) for j in range(5) if one[i, j] != other[i, j]
    ]
    assert list(differing_parts(one, other, "o")) == expected
    assert list(differing_parts((1, [2, "x"]), (1, [3, "x"]), "o")) == ["o[1][0]: 2, 3"]
    assert list(differing_parts(one, one.copy())) == []
