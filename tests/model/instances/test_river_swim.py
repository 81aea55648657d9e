"""RiverSwim has the published transitions and rewards."""

import numpy as np
import pytest

import entropic_bpi as eb


def test_transitions_of_three_states():
    river = eb.instances.river_swim(3, horizon=5)
    left, right = river.transitions[:, 0], river.transitions[:, 1]
    assert left.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert right == pytest.approx(np.array([[0.4, 0.6, 0], [0.05, 0.6, 0.35], [0, 0.4, 0.6]]))


def test_only_the_two_ends_pay():
    river = eb.instances.river_swim()
    assert (river.n_states, river.horizon, river.start) == (6, 20, 0)
    assert np.argwhere(river.rewards).tolist() == [[0, 0], [5, 1]]
    assert river.rewards[0, 0] == 0.005
    assert river.rewards[5, 1] == 1.0


def test_staying_left_is_sure_and_swimming_is_not():
    river = eb.instances.river_swim()
    assert eb.evaluate(river, np.zeros((20, 6), dtype=int), beta=-3.0).value == pytest.approx(20 * 0.005)
    assert eb.solve(river, beta=0).value > eb.solve(river, beta=-20).value > 20 * 0.005


def test_two_states_are_the_shortest_river():
    assert eb.instances.river_swim(2).transitions[:, 1] == pytest.approx(np.array([[0.4, 0.6], [0.4, 0.6]]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_states": 1}, "n_states must be at least 2, got 1"),
        ({"n_states": 6.5}, "n_states must be an integer, got 6.5"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.instances.river_swim(**params)
