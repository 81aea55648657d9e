"""Proofs in ball arithmetic: the formulas of the verifier on enclosed numbers, without assumptions about rounding.

A number is a ball of Arb (python-flint), which contains the exact result of every operation and function. Whatever is kept
or compared is an exact number, an end of such a ball. Multipliers, levels, references and moves are searched with doubles,
because any choice of them gives a valid bound.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flint import arb, ctx

from entropic_bpi.verification._claim import Claim
from entropic_bpi.verification._intervals import Numbers, enclosures
from entropic_bpi.verification._measures import risk_bounds

__all__ = ["prove"]

_PRECISION = 160  # bits


def _upper(x: arb) -> arb:
    """Return the upper end of an enclosure; infinity if there is none."""
    return x.upper() if x.is_finite() else arb("inf")


def _lower(x: arb) -> arb:
    return -_upper(-x)


def _double_above(x: arb) -> float:
    """Return the smallest double that is certainly not below ``x``, or one close to it."""
    nearest = float(x.upper())
    while not arb(nearest) >= x and nearest < math.inf:
        nearest = math.nextafter(nearest, math.inf)
    return nearest


class Balls:
    """Numbers are balls, in arrays of objects."""

    @staticmethod
    def exact(x: Numbers) -> Numbers:
        return np.frompyfunc(arb, 1, 1)(x)

    @staticmethod
    def toward(x: Numbers, side: int) -> Numbers:
        return np.frompyfunc(_upper if side > 0 else _lower, 1, 1)(x)

    @staticmethod
    def double(x: Numbers, side: int) -> Numbers:
        return side * np.asarray(np.frompyfunc(_double_above, 1, 1)(side * x), dtype=float)


@contextmanager
def balls() -> Iterator[None]:
    """Make the verifier compute with balls."""
    before = enclosures.set(Balls)
    try:
        with ctx.workprec(_PRECISION):
            yield
    finally:
        enclosures.reset(before)


def prove(content: dict[str, Any]) -> tuple[tuple[float, float, float], list[str]]:
    """Return bounds that the counts of a certificate certainly imply, and the parts of its claim that they do not prove.

    Parameters
    ----------
    content : dict
        The content of a certificate that the verifier has accepted with doubles.

    Returns
    -------
    bounds : tuple of float
        Lower bound on the policy's value, upper bounds on the optimum and the gap, rounded outwards.
    problems : list of str
        The parts of the claim that go beyond the enclosures; no tolerance is added.
    """
    claim, nothing = Claim(content), (math.nan, math.nan, math.nan)
    not_covered = {
        f"method {claim.method!r}": claim.method != "kl",
        "explorations": claim.explored is not None or claim.test == "explored",
        "the gap on parts of the kernels (test 'boxes')": claim.test == "boxes",
    }
    for what, is_there in not_covered.items():
        if is_there:
            return nothing, [f"rigorous=True does not cover {what}"]
    try:
        with balls(), np.errstate(all="ignore"):
            bounds = risk_bounds(claim, claim.test, lambda: None)
    except Exception as error:  # whatever error a hostile file causes, it is not proved
        return nothing, [f"the bounds cannot be enclosed: {error!r}"]
    return (bounds.lower, bounds.upper, bounds.gap), bounds.not_implied(claim)
