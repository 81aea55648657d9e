"""From the bounds at one or several risk parameters to those of the claim."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flint import arb

from entropic_bpi.verification.rigorous._ball import lower, upper
from entropic_bpi.verification.rigorous._data import Data, NotCovered
from entropic_bpi.verification.rigorous._pairs import pair_ratio
from entropic_bpi.verification.rigorous._plan import Plan, Step, declared_returns

_SMALLEST_EXPONENT = 1e-5  # of |β|·range; below, a nearby β is used and the claim widened


class Bounds(NamedTuple):
    lower: arb
    upper: arb
    gap: arb


def bounds_of(content: dict[str, Any]) -> Bounds:
    """Return the bounds that the counts of a certificate imply."""
    data = Data(content)
    if data.claim["cuts"] is not None:
        raise NotCovered("the gap on parts of the kernels (test 'boxes')")
    if data.problem["alpha"] is not None:
        return _evar(data)
    return _at(data, float(data.problem["beta"]), data.claim["test"])


def _duration(data: Data) -> arb:
    """Return what a reward of 1 at every step adds up to."""
    gamma = data.problem["discount"]
    return arb(data.horizon) if gamma is None else (1 - arb(gamma) ** data.horizon) / (1 - arb(gamma))


def _at(data: Data, stated: float, test: str | None) -> Bounds:
    """Return the bounds at one risk parameter; at a larger one, with the difference, if it is small (Small.v)."""
    low, high = map(arb, data.reward_range)
    duration, beta = _duration(data), arb(stated)
    spread = upper((high - low) * duration)
    if not abs(beta) * spread >= _SMALLEST_EXPONENT:
        beta = upper(_SMALLEST_EXPONENT / spread) if spread > 0 else arb(1)
        beta *= math.copysign(1.0, stated)
    policy, optimum, gap = _planned(Plan(data, beta, test))
    bias = upper(abs(beta - stated) * spread**2 / 8)
    tail_low, tail_high = arb(0), arb(0)
    if data.problem["discount"] is not None:
        share = arb(data.problem["discount"]) ** data.horizon / (1 - arb(data.problem["discount"]))
        tail_low, tail_high = low * share, high * share
    least = lower(low * duration + policy - (bias if beta > stated else 0) + tail_low)
    most = upper(low * duration + optimum + (bias if beta < stated else 0) + tail_high)
    width = upper(most - least)
    return Bounds(least, most, width if test is None else min(upper(gap + bias + tail_high - tail_low), width))


def _planned(plan: Plan) -> Bounds:
    """Return bounds on the policy's value and the optimum, counted from the smallest reward, and on the gap."""
    steps: list[Step] = []
    for step in plan.steps():
        steps = [step, *steps] if plan.test == "pairs" else [step]
    sheet, s = steps[0][0], plan.data.start
    ratio = pair_ratio(plan, steps) if plan.test == "pairs" else sheet.ratio[s]
    policy, optimum = (bound[s].log() / plan.beta for bound in (sheet.policy, sheet.optimum))
    return Bounds(lower(policy), upper(optimum), upper(ratio.log() / abs(plan.beta)))


def _evar(data: Data) -> Bounds:
    """Return the bounds of the entropic value at risk, from those at the λ of its cells (EVaR.v)."""
    c = -arb(data.problem["alpha"]).log()
    least, most = _return_range(data)
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


def _return_range(data: Data) -> tuple[arb, arb]:
    """Return the smallest and the largest return: by the rewards, and by what is declared."""
    low, high = (arb(reward) * data.horizon for reward in data.reward_range)
    if data.problem["return_range"] is None:
        return lower(low), upper(high)
    least, most = declared_returns(data)
    return max(lower(low), least), min(upper(high), most)
