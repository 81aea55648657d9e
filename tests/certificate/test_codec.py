"""The codec: what is written by the types of the fields is read by them, and nothing else is."""

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from entropic_bpi.certificate.codec import encode, read_object, reader_of
from entropic_bpi.errors import CertificateError
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
    read = Outer(**read_object(Outer, "it", content))
    for mine, theirs in zip(VALUE, read, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert type(mine) is type(theirs)
    assert read.rows.dtype == np.int64
    assert read.values.dtype == np.float64


@pytest.mark.parametrize("start", [None, 3, [1], "fixed"])
def test_alternatives(start):
    assert reader_of(int | list[int] | str | None)("start", start) == start


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("count", -1, r"it\.count must be an integer from 0"),
        ("count", True, r"it\.count must be an integer"),
        ("whole", 1, r"it\.whole must be one of True, False"),
        ("ends", 0.5, r"it\.ends must be a list"),
        ("ends", [None], r"it\.ends must be a finite number"),
        ("inner", {"name": "a"}, r"it\.inner must be an object with the keys name, level"),
        ("inner", {"name": 1, "level": 0.0}, r"it\.inner\.name must be a string"),
        ("rows", [1.5], r"it\.rows must hold numbers of type int"),
        ("values", [[1.0]], r"it\.values must hold numbers of type float"),
        ("start", -2, r"it\.start must be an integer"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(key, value, message):
    with pytest.raises(CertificateError, match=message):
        read_object(Outer, "it", {**encode(VALUE), key: value})


def test_keys_are_those_of_the_fields():
    with pytest.raises(CertificateError, match="with the keys count"):
        read_object(Outer, "it", {**encode(VALUE), "more": 1})


def test_a_dataclass_is_read_too():
    @dataclass
    class Pair:
        first: "int"
        second: "str"

    assert read_object(Pair, "it", {"first": 1, "second": "x"}) == {"first": 1, "second": "x"}
