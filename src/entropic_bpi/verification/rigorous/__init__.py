"""A second verifier, in ball arithmetic: every number is enclosed, and no rounding is assumed away.

It reads the content of a certificate again and computes the bounds of the KL method with Arb (python-flint), whose balls
contain the exact result of every operation and function. Multipliers, levels, references and moves are searched with floats:
any choice of them gives a valid bound. Names in parentheses, such as ``values_ok`` in Gap.v, are definitions of the
machine-checked proofs; ``tests/proofs`` evaluates these on the numbers of this package.
"""

import math
from collections import deque
from typing import Any, NamedTuple

from flint import arb, ctx

from entropic_bpi.verification.rigorous._ball import PRECISION, float_above, float_below, lower, upper
from entropic_bpi.verification.rigorous._data import Data, NotCovered
from entropic_bpi.verification.rigorous._pairs import PairPlan
from entropic_bpi.verification.rigorous._plan import Plan

__all__ = ["prove"]

_SMALLEST_EXPONENT = 1e-5  # of |β|·range; below, a nearby β is used and the claim widened


class Bounds(NamedTuple):
    lower: arb
    upper: arb
    gap: arb


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
        claim = content["claim"]
        holds = claim["lower"] <= proved.lower, claim["upper"] >= proved.upper, claim["gap"] >= proved.gap
        return bounds, [
            f"{name}: {claim[name]!r} is claimed, but what is proved is {bound!r}"
            for name, bound, is_proved in zip(("lower", "upper", "gap"), bounds, holds, strict=True)
            if not is_proved
        ]


def bounds_of(content: dict[str, Any]) -> Bounds:
    """Return the bounds that the counts of a certificate imply."""
    data = Data(content)
    if data.claim["cuts"] is not None:
        raise NotCovered("the gap on parts of the kernels (test 'boxes')")
    if data.problem["alpha"] is not None:
        return _evar(data)
    return _at(data, float(data.problem["beta"]), data.claim["test"])


def _at(data: Data, stated: float, test: str | None) -> Bounds:
    """Return the bounds at one risk parameter; at a larger one, with the difference, if it is small (Small.v)."""
    low, high = map(arb, data.reward_range)
    beta, duration, tail = arb(stated), arb(data.horizon), arb(0)  # what a reward of 1 at every step adds up to
    if data.problem["discount"] is not None:
        gamma = arb(data.problem["discount"])
        duration, tail = (1 - gamma**data.horizon) / (1 - gamma), gamma**data.horizon / (1 - gamma)
    spread = upper((high - low) * duration)
    if not abs(beta) * spread >= _SMALLEST_EXPONENT:
        beta = upper(_SMALLEST_EXPONENT / spread) if spread > 0 else arb(1)
        beta *= math.copysign(1.0, stated)
    policy, optimum, gap = _planned(Plan(data, beta, test))
    bias = upper(abs(beta - stated) * spread**2 / 8)
    least = lower(low * duration + policy - (bias if beta > stated else 0) + low * tail)
    most = upper(low * duration + optimum + (bias if beta < stated else 0) + high * tail)
    width = upper(most - least)
    return Bounds(least, most, width if test is None else min(upper(gap + bias + high * tail - low * tail), width))


def _planned(plan: Plan) -> Bounds:
    """Return bounds on the policy's value and the optimum, counted from the smallest reward, and on the gap."""
    by_pairs, s = plan.test == "pairs", plan.data.start
    sheets = list(deque(plan.steps(), maxlen=None if by_pairs else 1))[::-1]
    ratios = sheets[0].ratio
    if by_pairs:
        *_, relations = PairPlan(plan, sheets).relations()
        ratios = relations.rho
    policy, optimum = (bound[s].log() / plan.beta for bound in (sheets[0].policy, sheets[0].optimum))
    return Bounds(lower(policy), upper(optimum), upper(ratios[s].log() / abs(plan.beta)))


def _evar(data: Data) -> Bounds:
    """Return the bounds of the entropic value at risk, from those at the λ of its cells (EVaR.v)."""
    c = -arb(data.problem["alpha"]).log()
    low, high = (arb(reward) * data.horizon for reward in data.reward_range)
    least, most = lower(low), upper(high)
    if data.problem["return_range"] is not None:
        declared = data.declared_returns()
        least, most = max(least, declared[0]), min(most, declared[1])
    spread = max(arb(0), upper(most - least))
    cells = [(arb(cell["lam"]), cell["until"], cell["test"]) for cell in data.claim["cells"]]
    known = []
    for lam, _, test in cells:
        at = _at(data, -float(lam), test)
        known.append(Bounds(max(arb(0), lower(at.lower - least)), min(upper(at.upper - least), spread), at.gap))
    attained = max([arb(0)] + [lower(k.lower - c / lam) for k, (lam, _, _) in zip(known, cells, strict=True)])
    begin = cells[0][0]
    if spread > 0:
        begin = min(begin, lower(c / spread))
    best = gap = arb(0)
    for k, (lam, until, _) in zip(known, cells, strict=True):
        height, last = max(arb(0), upper(k.upper - c / lam)), arb(0) if until is None else c / arb(until)
        up_to = upper(lam / begin * height), upper((lam / begin - 1) * height)
        beyond = upper(k.upper - last), upper(c / lam - last)
        for reached, lost in (up_to, beyond):
            best = max(best, reached)
            gap = max(gap, min(upper(k.gap + lost), upper(reached - attained)))
        begin = arb(until) if until is not None else begin
    return Bounds(lower(least + attained), upper(least + best), gap)
