"""Elements of arrays: compiled code reads and writes those that Python does."""

import numpy as np
import pytest

from entropic_bpi.compile.decorators import allocating, compiled

TYPES = (np.float64, np.float32, np.int64, np.int8, np.uint8, np.bool_, np.complex128)


@compiled
def moved(source, target, here, there):
    target[there] = source[here]


@compiled
def moved_in_a_table(source, target, here, there):
    target[there[0], there[1], -1] = source[here[0], 1, here[1]]


@allocating
def row_moved(source, target, here, there):
    target[there] = source[here]


def python(kernel):
    return kernel.py_func


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", [np.int64, np.int32, np.int8, np.uint32])
def test_elements_of_a_line(dtype, index):
    source = np.arange(-3, 4).astype(dtype)
    for here, there in ((0, 6), (2, 1), (6, 0)) if index is np.uint32 else ((0, -1), (-7, 6), (-2, 3), (6, -7)):
        found, expected = np.zeros(7, dtype), np.zeros(7, dtype)
        moved(source, found, index(here), index(there))
        python(moved)(source, expected, index(here), index(there))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", ["C", "F", "every second"])
def test_elements_of_a_table_whatever_its_layout(order):
    source = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    source = source.repeat(2, axis=2)[..., ::2] if order == "every second" else np.array(source, order=order)
    for here, there in (((1, -1), (0, -2)), ((-2, 3), (-1, 2)), ((0, -4), (1, 0))):
        found, expected = np.zeros((2, 3, 4)), np.zeros((2, 3, 4))
        moved_in_a_table(source, found, here, there)
        python(moved_in_a_table)(source, expected, here, there)
        np.testing.assert_array_equal(found, expected)


def test_numbers_are_converted_as_they_are_written():
    found, expected = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for target, way in ((found, moved), (expected, python(moved))):
        way(np.array([2.75, -2.75]), target, 0, 0)
        way(np.array([2.75, -2.75]), target, 1, 1)
    np.testing.assert_array_equal(found, expected)


def test_what_is_no_element_is_found_by_numba():
    table, line = np.zeros((2, 3)), np.arange(3.0)
    row_moved(np.array([line, line]), table, 1, 0)
    np.testing.assert_array_equal(table, [line, np.zeros(3)])
