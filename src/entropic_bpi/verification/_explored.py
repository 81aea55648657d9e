r"""Explorations: a bound for all rewards at once (Theorem RF).

For rewards in a range of width :math:`w` and :math:`M=e^{|\beta|wL}`, where L rewards are still to come, the ratio of the
values of any policy in the true and in the estimated model changes at a step by at most

.. math:: \min\Big\{M,\ \max_B\frac{1+(M-1)q^\pm(B)}{1+(M-1)\hat p(B)}\cdot
          \max_{1\le f\le M}\frac{\sum\hat p f e^{D}}{\sum\hat p f}\Big\}

or its mirror image, with the ends :math:`q^\pm(B)` of what the ball allows a set B of successors. Every factor grows with M,
with D and with the ends, so rounding each of them up bounds the whole.
"""

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.verification._claim import Bounds, Claim, Outcomes
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._intervals import LARGEST_EXPONENT, Interval, above, down, up
from entropic_bpi.verification._kl import SMALLEST_EXPONENT, KLRecursion, Report

_MOST_LISTED = 12  # seen successors of which all sets are listed
_ROOM = 1.0 + 2.0**-44  # more than a dozen correctly rounded operations lose, all of one sign


class _Group(NamedTuple):
    """Rows of a layer with equally many seen successors: arrays by row and successor, or by row and set of successors."""

    rows: np.ndarray
    successors: np.ndarray
    shares: np.ndarray
    radius: np.ndarray
    low: np.ndarray
    high: np.ndarray
    end: np.ndarray


def explored_bounds(claim: Claim, report: Report) -> Bounds:
    """Return the trivial bounds on all values, and the bound for every reward and β (Theorem RF)."""
    (first, last), (low, high) = claim.explored
    if claim.black_box:
        low, high = min(low, 0.0), max(high, 0.0)
    begin = 0.0 if first <= 0.0 <= last else min(abs(first), abs(last))
    spread, gap, model = float(up(claim.horizon * up(high - low))), 0.0, Estimated(claim)
    for cell in claim.cells or []:
        if cell.lam != cell.until:
            raise Rejected("claim.cells of an exploration must end at their own risk parameter")
        gap = max(gap, _bound(begin, cell.lam, model.deviation(cell.lam, high - low), spread))
        begin = max(begin, cell.lam)
        report()
    if not begin >= max(abs(first), abs(last)):
        raise Rejected("claim.cells do not reach the largest risk parameter")
    return Bounds(float(down(claim.horizon * low)), float(up(claim.horizon * high)), gap)


def explored_gap(claim: Claim) -> float:
    """Return the gap: the bound for all rewards in the problem's range, and what the policy loses in the estimated model."""
    if claim.allowed is not None:
        raise Rejected("the bound for all rewards is not used with action masks")
    low, high = claim.reward_range
    spread, size = float(up(claim.horizon * up(high - low))), abs(claim.beta)
    b = max(size, SMALLEST_EXPONENT / spread if spread > 0.0 else 1.0)
    bound = _bound(size, b, Estimated(claim).deviation(b, high - low), spread)
    # What is lost at a tiny β is at most what is lost at b and this more.
    lifted = float(up((b - size) * spread * spread / 8.0)) * _ROOM
    return float(up(bound + lifted + _loss(claim, math.copysign(b, claim.beta))))


def _loss(claim: Claim, beta: float) -> float:
    """Return by how much the policy is worse than the best one in the estimated model.

    There, an action that was never tried has the smallest reward and leads to a state with the smallest value. The logarithm
    of a mean of n numbers e^x, |x| <= 600, has an error of at most n + 2000 half units, at every step.
    """
    every, most = np.arange(claim.n_states), 0
    values = np.zeros((claim.n_states, 2))  # of the best policy, and of that of the claim
    for h in reversed(range(claim.steps)):
        layer, step, seen = claim.layer(h), h - claim.random_start, claim.outcomes(claim.layer(h)).seen()
        owner, to, times = seen.owner, seen.successors, seen.times
        paid, least, most = np.zeros(len(to)), 0.0, max(most, len(to))
        if claim.rewards is None and step >= 0:
            low, high = claim.paid(seen, step)
            paid, least = (low + high) / 2, claim.reward_range[0]
        exponents, visits = beta * (paid[:, None] + values[to]), np.bincount(owner, times, len(layer))[:, None]
        top, sums = np.full((len(layer), 2), -np.inf), np.zeros((len(layer), 2))
        np.maximum.at(top, owner, exponents)
        np.add.at(sums, owner, times[:, None] * np.exp(exponents - top[owner]))
        worst = values[values[:, 0].argmin()] + least
        after = np.where(visits > 0, (top + np.log(sums / visits)) / beta, worst)
        if step < 0:
            values = np.broadcast_to(after, values.shape)  # the artificial step has one row
            break
        q = after.reshape(claim.n_states, claim.n_actions, 2)
        q = q if claim.rewards is None else q + claim.rewards_at(h, every)[:, :, None]
        values = np.stack([q[:, :, 0].max(axis=1), q[every, claim.policy[step], 1]], axis=1)
    lost = float(values[claim.first_state, 0] - values[claim.first_state, 1])
    return max(lost, 0.0) + claim.steps * (2 * most + 4000) * 2.0**-52 / abs(beta)


def _bound(begin: float, end: float, d: float, spread: float) -> float:
    """Return the bound for |β| between two numbers: D grows with |β|, and values change by |difference| * range² / 8."""
    square = spread * spread * _ROOM
    # The trivial bound is first: a NaN is not smaller, so it is never returned.
    bounds = [spread, float(up(d / end) + up(max(0.0, float(up(end - begin))) * square / 4.0)) * _ROOM]
    if 0.0 < begin <= end:
        bounds.append(float(up(d / begin)))
    return min(bounds)


class Estimated:
    """The rows of every layer, with the sets of their seen successors."""

    def __init__(self, claim: Claim) -> None:
        if claim.noise or claim.random_rewards or claim.discount or claim.return_range:
            raise Rejected("explorations are not for noise, random rewards, discounted returns or a range of returns")
        method = KLRecursion(claim, 1.0, None)
        self.claim, self.layers = claim, {layer: _groups(*method.balls(layer)) for layer in claim.layers}

    def deviation(self, b: float, width: float) -> float:
        """Return D⁺ + D⁻ in the first state, for |β| = ``b`` and rewards in a range of this width."""
        claim, later = self.claim, np.zeros((2, self.claim.n_states + 1))
        for h in reversed(range(claim.steps)):
            step, states, now = h - claim.random_start, claim.reachable[h], np.zeros_like(later)
            remaining = claim.horizon if step < 0 else claim.horizon - 1 - step + (claim.rewards is None)
            reach = float(up(up(b * up(width)) * remaining))
            if not reach <= LARGEST_EXPONENT * (1.0 + 1e-9):
                raise Rejected(f"|beta| times the range of the return is {reach:.6g}, beyond {LARGEST_EXPONENT:g}")
            values = self._values(claim.layer(h), later, reach)[:, claim.rows(h, states) - claim.layer(h).start]
            now[:, states] = np.minimum(np.where(claim.permitted(h, states), values, 0.0).max(axis=2), reach)
            later = now
        return float(up(later[0, claim.first_state] + later[1, claim.first_state]))

    def _values(self, layer: range, later: np.ndarray, reach: float) -> np.ndarray:
        """Return the bounds D⁺ and D⁻ from every row of a layer on."""
        claim, numbers, c = self.claim, np.array(layer), float(above(np.expm1(reach)))
        values = np.full((2, len(layer)), reach)
        for group in self.layers[layer]:
            for side, rise in enumerate(_rises(group, c)):
                values[side, group.rows] = up(above(np.log1p(rise * _ROOM)) + _tilted(group, later[side], c))
        certain = (claim.possible[numbers] == 1) & (not claim.black_box or claim.begin[numbers] == 1)
        values[:, certain] = later[:, claim.slot_successor[claim.begin[numbers[certain]]]]
        return np.where(np.isnan(values), reach, values)


def _groups(outcomes: Outcomes, radius: np.ndarray) -> list[_Group]:
    seen, groups = outcomes.seen(), []
    for size in np.unique(seen.sizes[seen.sizes > 0]).tolist():
        rows, mine = np.flatnonzero(seen.sizes == size), seen.sizes[seen.owner] == size
        to, counts = (part[mine].reshape(-1, size) for part in (seen.successors, seen.times))
        visits = counts.sum(axis=1, keepdims=True)
        low = high = end = np.empty((len(rows), 0))
        if size <= _MOST_LISTED:
            chosen = counts @ (np.arange(1 << size) >> np.arange(size)[:, None] & 1)
            low, high = np.maximum(down(chosen / visits), 0.0), np.minimum(up(chosen / visits), 1.0)
            end = upper_ends(chosen, visits, radius[rows][:, None])
            complete = (outcomes.sizes[rows] == size)[:, None]
            end = np.where(complete & (chosen == 0), 0.0, np.where(complete & (chosen == visits), 1.0, end))
        groups.append(_Group(rows, to, up(counts / visits), radius[rows], low, high, end))
    return groups


def upper_ends(chosen: np.ndarray, visits: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Return the largest q with kl(chosen/visits, q) <= radius, rounded up: for larger q, kl is certainly larger."""
    part, visits = chosen.astype(float), visits.astype(float)
    p, rest = Interval.of(part) / visits, Interval.of(visits - part) / visits
    inside, outside = np.clip(p.high, 0.0, 1.0), np.ones(part.shape)
    for _ in range(60):
        middle = inside + (outside - inside) / 2.0
        q = np.clip(middle, 1e-300, 1.0 - 2.0**-53)
        apart = p * (p / q).log() + rest * (rest / Interval(down(1.0 - q), up(1.0 - q))).log()
        beyond = apart.low > radius
        outside, inside = np.where(beyond, middle, outside), np.where(beyond, inside, middle)
    nothing = np.minimum(1.0, above(-np.expm1(-radius)))
    return np.where(part == 0.0, nothing, np.where(part == visits, 1.0, outside))


def _rises(group: _Group, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest ratio less 1 over all sets, upwards and downwards; one bound if there are too many sets to list."""
    if not group.end.shape[1]:
        x = group.radius
        root = np.sqrt(2.0 * x)
        u = np.minimum(1.0, np.sqrt(2.0 * x + 1.0 / c) - root) if c > 0.0 else np.ones_like(x)
        rise = np.minimum(c * (2.0 * x + root * u) / (1.0 + c * u * u), c * np.sqrt(0.5 * x)) * _ROOM
        return rise, rise
    upwards = c * (group.end - group.low) / (1.0 + c * group.low)
    lower_end = np.maximum(0.0, down(1.0 - group.end[:, ::-1]))  # of a set, 1 less the upper end of the others
    downwards = c * (group.high - lower_end) / (1.0 + c * lower_end)
    return np.maximum(0.0, upwards.max(axis=1)), np.maximum(0.0, downwards.max(axis=1))


def _tilted(group: _Group, later: np.ndarray, c: float) -> np.ndarray:
    """Return the logarithm of the largest mean of e^D with weights between 1 and M."""
    growth = above(np.expm1(later[group.successors]))
    order = np.argsort(-growth, axis=1)
    growth, shares = np.take_along_axis(growth, order, axis=1), np.take_along_axis(group.shares, order, axis=1)
    terms, room = shares * growth, 1.0 + 2.0**-50 * (shares.shape[1] + 16)
    tops = terms.sum(axis=1, keepdims=True) + c * np.cumsum(terms, axis=1)
    masses = down(down(shares).sum(axis=1, keepdims=True) + c * np.cumsum(down(shares), axis=1)) / room
    return above(np.log1p(np.maximum(terms.sum(axis=1), (tops / masses).max(axis=1)) * room))
