"""A second verifier, in ball arithmetic: every number is enclosed, and no rounding is assumed away.

It reads the content of a certificate again and computes the bounds of the KL method with Arb (python-flint), whose balls
contain the exact result of every operation and function. Multipliers, levels, references and moves are searched with floats:
any choice of them gives a valid bound. Names in parentheses, such as ``values_ok`` in Gap.v, are definitions of the
machine-checked proofs; ``tests/proofs`` evaluates these on the numbers of this package.
"""

from __future__ import annotations

import math
from typing import Any

from flint import ctx

from entropic_bpi.verification.rigorous._ball import PRECISION, float_above, float_below
from entropic_bpi.verification.rigorous._claim import Bounds, bounds_of
from entropic_bpi.verification.rigorous._data import NotCovered

__all__ = ["prove"]


def prove(content: dict[str, Any]) -> tuple[tuple[float, float, float], list[str]]:
    """Return bounds that the counts of a certificate certainly imply, and the parts of its claim that they do not prove.

    Parameters
    ----------
    content : dict
        The content of a certificate that the ordinary verifier has read.

    Returns
    -------
    bounds : tuple of float
        Lower bound on the policy's value, upper bounds on the optimum and the gap, rounded outwards.
    problems : list of str
        The parts of the claim that go beyond the enclosures; no tolerance is added.
    """
    with ctx.workprec(PRECISION):
        try:
            proved = bounds_of(content)
        except NotCovered as what:
            return (math.nan, math.nan, math.nan), [f"rigorous=True does not cover {what}"]
        except Exception as error:  # whatever a hostile file provokes, it is not proved
            return (math.nan, math.nan, math.nan), [f"the bounds cannot be enclosed: {error!r}"]
        bounds = float_below(proved.lower), float_above(proved.upper), float_above(proved.gap)
        return bounds, _not_proved(content["claim"], proved, bounds)


def _not_proved(claim: dict[str, Any], proved: Bounds, bounds: tuple[float, float, float]) -> list[str]:
    holds = claim["lower"] <= proved.lower, claim["upper"] >= proved.upper, claim["gap"] >= proved.gap
    return [
        f"{name}: {claim[name]!r} is claimed, but what is proved is {bound!r}"
        for name, bound, is_proved in zip(("lower", "upper", "gap"), bounds, holds, strict=True)
        if not is_proved
    ]
