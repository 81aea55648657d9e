"""The codec: what is written by the types of the fields is read by them."""

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from entropic_bpi.certificate.codec import decode, decode_fields, encode
from entropic_bpi.types import Integers, Reals


class Inner(NamedTuple):
    name: str
    level: float | None


class Outer(NamedTuple):
    count: int
    whole: bool
    ends: tuple[float, ...] | None
    inner: Inner | None
    rows: Integers
    values: Reals
    start: int | list[int] | str | None = None


VALUE = Outer(3, True, (0.5, -1e-300), Inner("a", None), np.array([1, 2**53 - 1]), np.array([0.1, -2.5e17]), [0, 4])


def test_what_is_written_is_read():
    content = json.loads(json.dumps(encode(VALUE)))
    read = decode(Outer, content)
    for mine, theirs in zip(VALUE, read, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert type(mine) is type(theirs)
    assert read.rows.dtype == np.int64
    assert read.values.dtype == np.float64


@pytest.mark.parametrize("start", [None, 3, [1], "fixed"])
def test_alternatives(start):
    assert decode(int | list[int] | str | None, start) == start


def test_a_dataclass_is_read_too():
    @dataclass
    class Pair:
        first: "int"
        second: "float | None"

    assert decode_fields(Pair, {"first": 1, "second": 2}) == {"first": 1, "second": 2.0}
