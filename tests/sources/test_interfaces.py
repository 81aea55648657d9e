"""Environments of other interfaces, ids of packages that are not imported, and observations that are hashed."""

from types import SimpleNamespace

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.sources.spaces import DiscoveredStates, differing_parts

GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "seed": 1}


def test_another_interface_is_refused_with_the_remedy():
    for source in (SimpleNamespace(), lambda: SimpleNamespace()):
        with pytest.raises(eb.InvalidProblemError, match="package shimmy"):
            eb.identify(source, beta=0.0, eps=0.1, delta=0.1, horizon=2, reward_range=(0, 1))


def test_an_id_that_is_not_registered_says_which_package_may_have_it():
    for source in ("gym:MiniGrid-Empty-99x99-v0", "MiniGrid-Empty-99x99-v0"):
        with pytest.raises(eb.InvalidProblemError, match="gym:package:Env-v0"):
            eb.inspect(source, episodes=1)
    with pytest.raises(eb.InvalidProblemError, match="as in gym:package:Env-v0"):
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
