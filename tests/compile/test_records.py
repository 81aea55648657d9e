"""Records go to compiled code by one pointer, and mean what named tuples mean."""

import gc
import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError

from entropic_bpi.compile import decorators
from entropic_bpi.compile.decorators import allocating, by_pointer, compiled, inlined, inner


@by_pointer
class Inside(NamedTuple):
    values: np.ndarray
    table: np.ndarray
    factor: float
    is_on: bool
    times: int


@by_pointer
class Outside(NamedTuple):
    first: Inside
    names: tuple
    second: Inside
    last: int


class Both(NamedTuple):
    outside: Outside
    index: int


@inner
def weight(inside, i):
    return inside.factor * inside.values[i] * inside.times if inside.is_on else 0.0


@inlined
def move(both):
    """Change what the arrays hold, between two readings of them."""
    first, second = both.outside.first, both.outside.second
    for i in range(first.values.size):
        second.values[i] += weight(first, i)
        first.table[i, 1] = weight(second, i) + both.outside.last
    return weight(second, both.index)


@compiled
def added(outside):
    return move(Both(outside, 1)) + outside.names[0] + len(outside.names)


@compiled
def chosen_weight(pair, chosen):
    return weight(pair[chosen], 0)


@allocating
def copied(inside):
    """With reference counts: an array that is taken out of a record outlives the call."""
    return inside.values, np.empty(2)


def outside():
    first = Inside(np.array([1.0, 2.0, 3.0]), np.zeros((3, 2)), 2.0, True, 3)
    second = Inside(np.array([0.5, 0.25, 0.125]), np.zeros((3, 2)), 4.0, True, 1)
    return Outside(first, (7, 8.5), second, 10)


def test_compiled_code_does_what_python_does():
    mine, theirs = outside(), outside()
    second, first = theirs.second.values, theirs.first.values
    for i in range(3):
        second[i] += 2.0 * first[i] * 3
        theirs.first.table[i, 1] = 4.0 * second[i] + 10
    assert added(mine) == 4.0 * second[1] + 7 + 2
    for one, other in zip((*mine.first[:2], *mine.second[:2]), (*theirs.first[:2], *theirs.second[:2]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_tuple_of_records_has_elements():
    pair = outside().first, outside().second
    assert [chosen_weight(pair, i) for i in (0, 1)] == [6.0, 2.0]


def test_other_types_of_fields_are_another_type_and_have_code_of_their_own():
    whole = outside()
    for values in (np.arange(1.0, 4.0).repeat(2)[::2], whole.first.values.astype(np.float32)):
        assert added(whole._replace(first=whole.first._replace(values=values), second=outside().second)) == added(
            outside()
        )
    off = whole.first._replace(is_on=False)
    assert added(whole._replace(first=off, second=outside().second)) == 4.0 * 0.25 + 7 + 2


def test_arrays_are_counted_when_they_leave_a_record():
    values = np.arange(3.0)
    before = sys.getrefcount(values)
    for _ in range(100):
        left, _ = copied(Inside(values, np.zeros((1, 1)), 1.0, True, 1))
        assert left.sum() == 3.0
        del left
    gc.collect()
    assert sys.getrefcount(values) == before


def test_a_field_that_is_no_array_is_an_error_of_the_call():
    with pytest.raises(TypingError):
        added(outside()._replace(first=None))


@pytest.mark.skipif(decorators.linking is None, reason="plain Numba takes named tuples apart")
def test_a_record_is_one_argument():
    added(outside())
    (signature, *_) = added.part.signatures or added.signatures
    assert not hasattr(signature[0], "types")


def test_the_same_without_records():
    code = "from test_records import *; print(added(outside()))"
    kept, plain = (
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=__file__.rpartition("/")[0],
            env={**os.environ, "ENTROPIC_BPI_PLAIN_NUMBA": switch},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for switch in ("", "1")
    )
    assert kept == plain == f"{added(outside())}\n"
