"""Observations and actions as numbers."""

import enum
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import entropic_bpi as eb
from entropic_bpi.sources.spaces import END_NAME, DiscoveredStates, finite, label, unseen
from entropic_bpi.verification._slots import _in_order

SIZES = st.integers(1, 3)


@st.composite
def leaves(draw):
    shape = draw(st.sampled_from([(), (1,), (2,), (1, 2)]))
    size = int(np.prod(shape))
    low = np.array(draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size))).reshape(shape)
    extent = np.array(draw(st.lists(SIZES, min_size=size, max_size=size))).reshape(shape)
    kind = draw(st.sampled_from(["discrete", "multi", "binary", "box"]))
    if kind == "discrete" or (kind != "box" and shape == ()):
        return spaces.Discrete(draw(SIZES), start=draw(st.integers(-2, 2)))
    if kind == "multi":
        return spaces.MultiDiscrete(extent, start=low)
    if kind == "binary":
        return spaces.MultiBinary(shape)
    return spaces.Box(low, low + extent - 1, dtype=draw(st.sampled_from([np.int8, np.int64])))


def products(inner):
    tuples = st.lists(inner, max_size=3).map(spaces.Tuple)
    dicts = st.dictionaries(st.sampled_from(["a", "b1", "-2", 7]), inner, max_size=3)
    return tuples | dicts.map(OrderedDict).map(spaces.Dict)


SPACES = st.recursive(leaves(), products, max_leaves=4)


@settings(max_examples=60, deadline=None)
@given(SPACES)
def test_elements_of_a_finite_space_and_their_indices_are_inverse_to_each_other(space):
    numbered = finite(space)
    elements = [numbered.element(i) for i in range(min(numbered.size, 50))]
    assert all(space.contains(element) for element in elements)
    assert [numbered.index(element) for element in elements] == list(range(len(elements)))
    space.seed(0)
    assert all(0 <= numbered.index(space.sample()) < numbered.size for _ in range(5))


@settings(max_examples=60, deadline=None)
@given(SPACES)
def test_labels_are_different_and_in_an_order_that_the_verifier_knows(space):
    numbered = finite(space)
    if numbered.size <= 300:
        labels = numbered.labels()
        assert len(set(labels)) == numbered.size
        assert _in_order(list(labels))
        space.seed(0)
        sample = space.sample()
        assert labels[numbered.index(sample)] == label(sample)


def test_digits_are_read_from_left_to_right():
    assert finite(spaces.MultiDiscrete([2, 3])).index([1, 2]) == 5
    assert finite(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(5)])).index((1, 3)) == 8
    assert finite(spaces.Box(np.array([-1, 0]), np.array([1, 3]), dtype=np.int64)).index(np.array([1, 2])) == 10


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (2,)),
        spaces.Text(3),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (1,))),
        spaces.Sequence(spaces.Discrete(2)),
    ],
)
def test_what_is_not_finite_is_not_numbered(space):
    assert finite(space) is None


def test_a_size_beyond_all_numbers_can_be_told():
    image = finite(spaces.Box(0, 255, (210, 160, 3), np.uint8))
    assert not image.listable
    assert str(image) == "about 10^242751 elements of 100800 integers"


def test_a_range_of_all_integers_of_64_bits_has_a_size():
    ends = np.iinfo(np.int64)
    assert finite(spaces.Box(ends.min, ends.max, (1,), np.int64)).size == 2**64


PAIR = spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(2))


@pytest.mark.parametrize(
    "element",
    [
        {"a": 0},
        {"a": 0, "b": [0, 1], "c": 0},
        {"a": 2, "b": [0, 1]},
        {"a": 0, "b": [0, 2]},
        {"a": 0, "b": [0]},
        {"a": 0, "b": [[0, 1]]},
        {"a": 0, "b": [0, 0.5]},
        {"a": 0, "b": [0, np.nan]},
        {"a": "0", "b": [0, 1]},
        {"a": [0, 1], "b": [0]},
        (0, [0, 1]),
        None,
        3,
    ],
)
def test_what_does_not_fit_a_space_is_outside(element):
    assert finite(PAIR).index(element) == -1


# -- labels ----------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Place:
    row: int


@pytest.mark.parametrize(
    ("same", "text"),
    [
        ([1, 1.0, True, np.int8(1), np.float32(1), np.array(1)], "1"),
        ([0, -0.0, False], "0"),
        ([(1, 2), [1, 2], np.array([1.0, 2.0])], "(1, 2)"),
        ([np.array([[1], [2]])], "((1,), (2,))"),
        ([{"x": 1, "a": (0,)}, OrderedDict(a=np.zeros(1), x=1)], "{'a': (0,), 'x': 1}"),
        ([frozenset([2, 1]), {1, 2}], "set(1, 2)"),
        (["end", np.str_("end")], "'end'"),
        (["\x1b[31m"], r"'\x1b[31m'"),
        ([Colour.RED], "Colour '<Colour.RED: 1>'"),
        ([Place(3)], "Place 'Place(row=3)'"),
        ([1e300], "1e+300"),
        ([float("nan"), np.float32("nan")], "nan"),
    ],
)
def test_equal_observations_have_the_same_label(same, text):
    assert {label(observation) for observation in same} == {text}


def test_long_arrays_are_named_by_their_content():
    image = np.arange(147, dtype=np.uint8).reshape(7, 7, 3)
    other = image.copy()
    other[3, 3, 1] += 1
    assert label(image) == label(image[::1].copy(order="F"))
    assert label(image) != label(other)
    assert len(label({"image": image, "direction": 0})) < 150


def test_labels_are_the_same_in_every_process():
    text = "from entropic_bpi.sources.spaces import label; print(label(frozenset(['a', 'b', 'c', ('d', 1.5)])))"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == label(frozenset(["a", "b", "c", ("d", 1.5)]))


def test_objects_that_cannot_be_told_apart_are_refused():
    class Vague:
        def __repr__(self):
            return "a place"

    found = DiscoveredStates(3)
    found.index(Vague())
    with pytest.raises(eb.InvalidProblemError, match=r"have the same repr a place.*__repr__"):
        found.index(Vague())
    with pytest.raises(eb.InvalidProblemError, match="address in memory"):
        found.index(object())


# -- states found on the way -----------------------------------------------------------------------------------------


def test_states_are_numbered_when_they_are_first_seen():
    found = DiscoveredStates(3)
    assert [found.index(seen) for seen in ("b", (1, 2), "b", [1, 2])] == [0, 1, 0, 1]
    assert found.names == ["'b'", "(1, 2)", unseen(2), END_NAME]
    again = DiscoveredStates(3)
    again.restore(found.found)
    assert again.names == found.names
    assert again.index((1.0, 2.0)) == 1


def test_one_more_observation_than_declared_is_an_error():
    found = DiscoveredStates(2)
    for observation in (0.5, 1.5):
        found.index(observation)
    with pytest.raises(eb.InvalidProblemError, match=r"more than max_states = 2 .*one more is 2\.5"):
        found.index(2.5)
    assert found.index(1.5) == 1


# -- what the verifier takes for the names of observations -----------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["1", "0"],
        ["0", "2"],
        ["0", "0"],
        ["00", "01"],
        ["(0, 0)", "(0, 1)", "(1, 1)", "(1, 0)"],
        ["{'a': 0}", "{'b': 1}"],
        ["0", "1\n"],
        ["\x1b0", "\x1b1"],
        ["9" * 5000, "9" * 5000 + "1"],
        ["0", str(10**17)],
        ["(0, 0)", "(99999, 99999)"],
        ["a", "b"],
        [],
    ],
)
def test_names_that_are_not_elements_in_order_are_no_observations(names):
    assert not _in_order(names)
