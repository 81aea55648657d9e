"""Balls that cannot be used in any way that would not be a proof."""

import operator
import sys

import numpy as np
from flint import arb

_MAY_BE_ROUGH = {"doubles", "_double_above", "evar_bounds"}  # a search, rounding outwards, and whether it is finite


class Strict:
    """A ball. Comparisons must be certain, and it becomes a double only where it is rounded outwards or in a search."""

    def __init__(self, value):
        self.ball = value.ball if isinstance(value, Strict) else arb(value)

    def __float__(self):
        caller = sys._getframe(1).f_code.co_name
        assert caller in _MAY_BE_ROUGH, f"{caller} rounds"
        return float(self.ball)

    def is_finite(self):
        return self.ball.is_finite()


def _operation(function):
    def operate(*given):
        if any(isinstance(x, np.ndarray) for x in given):
            return NotImplemented
        return Strict(function(*(x.ball if isinstance(x, Strict) else x for x in given)))

    return operate


def _comparison(function, opposite):
    def compare(one, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        a, b = one.ball, other.ball if isinstance(other, Strict) else arb(other)
        holds = bool(function(a, b))
        assert holds or opposite(a, b) or a.is_nan() or b.is_nan(), f"{a} and {b} overlap"
        return holds

    return compare


for _name in ("add", "sub", "mul", "truediv"):
    _function = getattr(operator, _name)
    setattr(Strict, f"__{_name}__", _operation(_function))
    setattr(Strict, f"__r{_name}__", _operation(lambda one, other, function=_function: function(other, one)))
for _name in ("neg", "abs", "pos"):
    setattr(Strict, f"__{_name}__", _operation(getattr(operator, _name)))
for _name in ("exp", "log", "expm1", "log1p", "upper"):
    setattr(Strict, _name, _operation(getattr(arb, _name)))
for _name, _opposite in (("lt", "ge"), ("le", "gt"), ("gt", "le"), ("ge", "lt"), ("eq", "ne"), ("ne", "eq")):
    setattr(Strict, f"__{_name}__", _comparison(getattr(operator, _name), getattr(operator, _opposite)))
