r"""Entropic value at risk from bounds at single risk parameters: the event of ``method="kl"`` holds for all of them at once.

Let :math:`c=\log(1/\alpha)`, measure returns from the smallest one that is possible, so that they lie between 0 and
:math:`R`, and write :math:`h(\lambda)=V^\star_{-\lambda}-c/\lambda`, whose supremum is the largest EVaR of all policies.
:math:`V^\star_{-\lambda}` decreases and :math:`\lambda V^\star_{-\lambda}` increases with :math:`\lambda`.

**Cells.** Cut :math:`(c/R,\infty)` into cells :math:`(b_{j-1},b_j]` with one :math:`\lambda_j` in each, and let
:math:`\bar u_j\ge V^\star_{-\lambda_j}`, :math:`l_j\le V^\pi_{-\lambda_j}`,
:math:`g_j\ge V^\star_{-\lambda_j}-V^\pi_{-\lambda_j}` and :math:`\bar h_j=\max(\bar u_j-c/\lambda_j,0)`. Then

.. math:: \mathrm{EVaR}_\alpha(\pi)\ge L=\max\big(0,\max_j l_j-c/\lambda_j\big),\qquad
   \sup_\pi\mathrm{EVaR}_\alpha\le\max_j U_j,\quad
   U_j=\max\Big\{\frac{\lambda_j}{b_{j-1}}\bar h_j,\ \bar u_j-\frac c{b_j}\Big\},

and :math:`\sup_{\pi'}\mathrm{EVaR}_\alpha(\pi')-\mathrm{EVaR}_\alpha(\pi)` is at most the largest of

.. math:: \min\Big\{g_j+\Big(\frac{\lambda_j}{b_{j-1}}-1\Big)\bar h_j,\ \frac{\lambda_j}{b_{j-1}}\bar h_j-L\Big\}
   \quad\text{and}\quad
   \min\Big\{g_j+\frac c{\lambda_j}-\frac c{b_j},\ \bar u_j-\frac c{b_j}-L\Big\} .

*Proof.* Let the supremum be attained, or approached, in cell :math:`j`; below :math:`c/R` nothing exceeds 0, which every
policy has. If :math:`\lambda\le\lambda_j`, then :math:`h(\lambda)\le\frac{\lambda_j}\lambda h(\lambda_j)`, because
:math:`\lambda V^\star_{-\lambda}\le\lambda_jV^\star_{-\lambda_j}`. If :math:`\lambda>\lambda_j`, then
:math:`h(\lambda)\le V^\star_{-\lambda_j}-c/b_j`. Both are at most :math:`U_j`, and :math:`\mathrm{EVaR}_\alpha(\pi)` is at
least :math:`L` and at least :math:`V^\pi_{-\lambda_j}-c/\lambda_j`; subtract. So a cell costs its relative width times the
smaller of :math:`\bar h` and :math:`c/\lambda`, and nothing statistical. (It is false for returns that are not measured
from the smallest one.)

**Where cells meet.** As a function of its end :math:`b` the bound of a cell is :math:`P-c/b` upwards and
:math:`Q+\lambda\bar h/b` downwards, with :math:`P=\min(g+c/\lambda,\bar u-L)` and :math:`Q=\min(g-\bar h,-L)`: neighbours
meet where the two are equal. The first cells are coarse, and the worst one is halved until the bound is small enough, or
until halving hardly lowers it.

**Play.** At the λ with the largest optimistic :math:`h`, as ``method="kl"`` plays for β = -λ. Its candidate is tested once
its own gap is small enough; where the test fails, what is played next is the challenger of the candidate there and, in turn,
the policy at the leading λ, until its value is known to ε: then the test passes at every λ with a smaller upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.plan import pairs_due
from entropic_bpi.methods.kl.records import NEVER_ASKED, PairsAsked
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.tools.checks import LARGEST_REACH
from entropic_bpi.types import RATIO, Behaviour, Bounds, Cell, Claim, Plan

# The share of ε, or of the gap, that may be left to the width of the cells: halving goes on until it is no more.
CELL_SHARE = 1 / 16
# A certificate has at most so many cells.
MOST_NODES = 96
# Numbers of λ that are candidates for play: those from the start, and those where tests have failed.
PLAYED, ADDED = 12, 8
# The largest λ is this times c/ε; if larger λ still matter, this times the largest one so far is added.
FARTHER = 4.0
# After this growth of the episodes a candidate is tested even if it is not expected to pass.
TEST_GROWTH = 1.1
ULPS = 1e-15
# Bytes for the methods at single λ that are kept; each has so many numbers for a step and state, and one for each action.
_KEPT, _COLUMNS = 2**28, 12
# The share of the largest exponent that is used, so that rounding does not exceed it.
_INSIDE = 1 - 1e-12


class Node(NamedTuple):
    """Bounds at one λ, for returns measured from the smallest: on the policy's value, the best value and the gap."""

    lam: float
    lower: float
    upper: float
    gap: float
    test: str | None


class Tail:
    """The bounds of the module's docstring for given nodes, rounded outwards.

    Parameters
    ----------
    alpha, spread : float
        The level, and the largest less the smallest return.
    nodes : iterable of Node
        In any order.
    """

    def __init__(self, alpha: float, spread: float, nodes: Any) -> None:
        self.c, self.nodes = -math.log(alpha), tuple(sorted(nodes))
        self.first = min(self.c / spread * (1 - ULPS) if spread > 0 else math.inf, self.nodes[0].lam)
        self.lower = max(0.0, *map(self.attained, self.nodes))

    def _share(self, node: Node) -> float:
        return self.c / node.lam

    def attained(self, node: Node) -> float:
        """Return the lower bound on the policy's EVaR from one node."""
        return node.lower - self._share(node) * (1 + 4 * ULPS)

    def height(self, node: Node) -> float:
        """Return an upper bound on h, at least 0."""
        return max(0.0, node.upper - self._share(node) + 4 * ULPS * (abs(node.upper) + self._share(node)))

    def own(self, node: Node) -> float:
        """Return the gap of a cell of width 0."""
        return min(node.gap, self.height(node) - self.lower)

    def _meeting(self, below: Node, above: Node) -> float:
        """Return the best point for the cells of two neighbours to meet; the bounds hold for any point."""
        height = self.height(above)
        upwards = min(below.gap + self._share(below), below.upper - self.lower)
        downwards = min(above.gap - height, -self.lower)
        end = (self.c + above.lam * height) / max(upwards - downwards, 1e-300)
        return min(max(end, below.lam), above.lam)

    @cached_property
    def cells(self) -> list[tuple[Node, float, float]]:
        """Each node with the ends of its cell; the last one has none."""
        ends = [*(self._meeting(*both) for both in pairwise(self.nodes)), math.inf]
        return list(zip(self.nodes, [self.first, *ends[:-1]], ends, strict=True))

    def _half(self, node: Node, best: float, loss: float) -> tuple[float, float]:
        """Return what is attained in half a cell at most, ``best``, and how much that exceeds the policy's own EVaR: by at
        most the node's gap plus ``loss``, and by at most ``best`` less the policy's lower bound."""
        return best, max(0.0, min(node.gap + loss, best - self.lower)) * (1 + ULPS)

    def below(self, node: Node, begin: float) -> tuple[float, float]:
        """Return what is attained at most in the cell up to its λ, and how much that exceeds the policy's EVaR."""
        height, ratio = self.height(node), node.lam / begin * (1 + 2 * ULPS)
        return self._half(node, ratio * height * (1 + 2 * ULPS), (ratio - 1) * height * (1 + ULPS))

    def above(self, node: Node, end: float) -> tuple[float, float]:
        """Return what is attained at most in the cell from its λ on, and how much that exceeds the policy's EVaR."""
        share, last = self._share(node), self.c / end
        room = 4 * ULPS * (node.upper + share)
        return self._half(node, node.upper - last + room, share - last + room)

    @cached_property
    def halves(self) -> list[tuple[float, float, Node | None, Node | None]]:
        """What is attained in each half of a cell, how much that exceeds the policy's EVaR, and the nodes around it."""
        halves: list[tuple[float, float, Node | None, Node | None]] = []
        neighbours = [None, *self.nodes, None]
        for (node, begin, end), before, after in zip(self.cells, neighbours, neighbours[2:], strict=False):
            halves += [(*self.below(node, begin), before, node), (*self.above(node, end), node, after)]
        return halves

    def claim(self, lowest: float) -> Claim:
        """Return the claim in the reward's units; ``lowest`` is the smallest return."""
        lower, upper = lowest + self.lower, lowest + max(0.0, *(half[0] for half in self.halves))
        size = ULPS * (abs(lowest) + abs(lower) + abs(upper))
        cells = [
            Cell(node.lam, end, node.test if node.gap < self.height(node) - self.lower else None)
            for node, _, end in self.cells
        ]
        cells[-1] = cells[-1]._replace(until=None)
        gap = max(half[1] for half in self.halves)
        return Claim(float(max(lower - size, lowest)), float(upper + size), float(gap), cells=tuple(cells))


@dataclass
class Memory:
    """What is remembered of earlier plans.

    Attributes
    ----------
    candidates : float array ``(PLAYED + ADDED, 2)``
        The λ that may be played, 0 where there is none, and the best value known so far at each.
    failed : float
        The λ where a test failed last; 0 if none has.
    tested : int
        The episodes when all λ were tested last, -1 before.
    upper : float
        The upper bound that this gave.
    pairs_played, pairs_tested : PairsAsked
        When plans, and tests, asked for the pair certificate.
    """

    candidates: np.ndarray
    failed: float = 0.0
    tested: int = -1
    upper: float = math.inf
    pairs_played: PairsAsked = NEVER_ASKED
    pairs_tested: PairsAsked = NEVER_ASKED

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Memory:
        """Return the record from its fields, each an array or a number."""
        kinds: tuple[Any, ...] = np.array, float, int, float, PairsAsked.of, PairsAsked.of
        return cls(*(kind(values[field.name]) for kind, field in zip(kinds, fields(cls), strict=True)))


class EVaRKL:
    """``method="kl"`` for the entropic value at risk; see the module's docstring.

    Parameters
    ----------
    sampling, seed
        As for :class:`~entropic_bpi.methods.kl.method.KL`.
    """

    def __init__(self, problem: Problem, sampling: str = "challenger", seed: int = 0) -> None:
        assert isinstance(problem.risk, EVaR)
        problem.check()
        self.problem, self.sampling, self.seed = problem, sampling, seed
        self.alpha, self.c = problem.risk.alpha, problem.risk.cost
        if problem.lams is not None and self.c < problem.lams[0] * problem.return_spread:
            raise InvalidProblemError(
                f"EVaR of random rewards needs alpha of at most 0.99, got {self.alpha:g}: use beta=0, the expectation"
            )
        self.lowest, self.spread = _range_of(problem)
        self.planners: dict[float, KL] = {}
        self.kept = max(2, _KEPT // (8 * problem.steps * problem.n_states * (problem.n_actions + _COLUMNS)))
        self.least, self.most = self._limits()
        needed = min(max(FARTHER * self.c / problem.eps, FARTHER * self.least), self.most)
        candidates, played = np.zeros((PLAYED + ADDED, 2)), np.geomspace(self.least, needed, PLAYED + 1)[1:]
        candidates[:PLAYED] = [(self._nearest(lam), self.spread) for lam in played]
        # The memory of a plan is used from the next one on, so that a plan that is made again is the same.
        self.before, self.memory, self.planned = Memory(candidates), Memory(candidates.copy()), -1

    def state(self) -> dict[str, Any]:
        """Return what the plan of the present counts depends on besides them."""
        return asdict(self.before)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` has returned."""
        self.before, self.planned = Memory.of(state), -1

    # -- the λ -------------------------------------------------------------------------------------------------------

    def _limits(self) -> tuple[float, float]:
        """Return the smallest and the largest λ that are needed or possible."""
        spread = self.problem.return_spread
        if spread == 0:  # all returns are equal, so one λ is enough; at c/R no part of the cell is below it
            only = self.c / self.spread if self.spread > 0 else 1.0
            return only, only
        longest = LARGEST_REACH / spread * _INSIDE
        return min(self.c / self.spread, longest / FARTHER), longest

    def _nearest(self, lam: float) -> float:
        """Return the λ itself or, if only some were declared, the nearest of those."""
        if self.problem.lams is None:
            return float(lam)
        return self.problem.lams[int(np.argmin(np.abs(np.log(self.problem.lams) - math.log(lam))))]

    def planner(self, lam: float) -> KL:
        """Return the method at β = -λ; for large problems, only those used last are kept."""
        method = self.planners.pop(lam, None)
        if method is None:
            method = KL(self.problem.at(-lam, self.problem.eps * (1 - CELL_SHARE)), self.sampling, self.seed)
            method.remembers = False
            method.without_boxes()  # a cell has no cuts
            if len(self.planners) >= self.kept:
                self.planners.pop(next(iter(self.planners)))  # the one that was not used for longest
        self.planners[lam] = method
        return method

    def _node(self, lam: float, claim: Bounds | Claim, test: str | None) -> Node:
        """Return bounds at one λ, measured from the smallest return, with room for the rounding of the subtraction."""
        room = ULPS * (abs(self.lowest) + abs(claim.lower) + abs(claim.upper))
        lower, upper = claim.lower - self.lowest - room, claim.upper - self.lowest + room
        # A NaN is replaced by the trivial bound.
        lower, upper = max(0.0, lower) if lower == lower else 0.0, upper if upper < self.spread else self.spread
        return Node(lam, lower, max(0.0, upper), claim.gap if claim.gap >= 0 else math.inf, test)

    def _evaluate(self, counts: Counts, policy: np.ndarray, lam: float, pairs: bool) -> Node:
        """Return the bounds of a policy at one λ."""
        claim = self.planner(lam).bounds_of(counts, policy, pairs=pairs)
        return self._node(lam, claim, claim.test)

    # -- certificates ------------------------------------------------------------------------------------------------

    def claim(self, counts: Counts, plan: Plan) -> Claim:
        """Return what is certified about the candidate of a plan."""
        return self.bounds_of(counts, plan.policy)

    def bounds_of(self, counts: Counts, policy: np.ndarray) -> Claim:
        """Return what is certified about any policy ``(steps, S)``."""
        return self._halved(partial(self._evaluate, counts, policy), self.problem.eps)[0].claim(self.lowest)

    def interval_of(self, counts: Counts, policy: np.ndarray) -> tuple[float, float]:
        """Return bounds on the EVaR of any policy ``(steps, S)``; they hold together with all claims."""
        return self.own_claim(counts, policy)[:2]

    def own_claim(self, counts: Counts, policy: np.ndarray) -> Claim:
        """Return the bounds of :meth:`interval_of` with their cells: the module's bounds if this policy is the only one."""

        def evaluate(lam: float, _: bool) -> Node:
            lower, upper = self.planner(lam).interval_of(counts, policy)
            return self._node(lam, Bounds(lower, upper, upper - lower), None)

        return self._halved(evaluate, 0.0)[0].claim(self.lowest)

    def _halved(
        self, evaluate: Callable[[float, bool], Node], eps: float, *, hopeful: bool = False
    ) -> tuple[Tail, Node | None]:
        """Halve cells until the gap is at most ``eps`` or hardly depends on their width.

        Returns the bounds, and the node that causes the largest gap if that exceeds ``eps``. ``hopeful``: stop as soon as it
        is certain that the gap exceeds ``eps``.
        """
        nodes = self._climbed(evaluate, CELL_SHARE * max(eps, self.spread * CELL_SHARE**2))
        tried: set[float] = set()
        while True:
            tail = Tail(self.alpha, self.spread, nodes.values())
            _, gap, below, above = max(tail.halves, key=lambda half: half[1])
            if gap <= eps:
                return tail, None
            blamed = max((node for node in (below, above) if node is not None), key=tail.own)
            own = tail.own(blamed)
            if not own <= eps * (1 - CELL_SHARE) or gap - own <= CELL_SHARE * own:
                if blamed.lam not in tried:
                    tried.add(blamed.lam)
                    nodes[blamed.lam] = evaluate(blamed.lam, True)
                    continue
                if hopeful or gap - own <= CELL_SHARE * own:
                    return tail, blamed
            added = self._inside(below, above)
            if added is None or len(nodes) >= MOST_NODES:
                return tail, blamed
            nodes[added] = evaluate(added, False)

    def _climbed(self, evaluate: Callable[[float, bool], Node], rise: float) -> dict[float, Node]:
        """Return a few nodes, and more where the policy's EVaR is attained, until its bound rises by at most ``rise``."""
        nodes = {float(lam): evaluate(float(lam), False) for lam in self.memory.candidates[:PLAYED:3, 0]}
        while True:
            tail = Tail(self.alpha, self.spread, nodes.values())
            best = max(range(len(tail.nodes)), key=lambda i: tail.attained(tail.nodes[i]))
            below, node, above = [None, *tail.nodes, None][best : best + 3]
            looked = [lam for lam in (self._inside(below, node), self._inside(node, above)) if lam is not None]
            nodes |= {lam: evaluate(lam, False) for lam in looked}
            if not Tail(self.alpha, self.spread, nodes.values()).lower - tail.lower > rise or len(nodes) >= MOST_NODES:
                return nodes

    def _inside(self, below: Node | None, above: Node | None) -> float | None:
        """Return a λ between two nodes, or beyond the last one; None if there is no other λ."""
        begin, end = self.least if below is None else below.lam, math.inf if above is None else above.lam
        lam = self._nearest(min(begin * FARTHER, self.most) if above is None else math.sqrt(begin * end))
        return lam if begin * (1 + 1e-9) < lam < end * (1 - 1e-9) else None

    # -- play --------------------------------------------------------------------------------------------------------

    def plan(self, counts: Counts, round: int) -> Plan:
        """Return bounds, the candidate and what to play next, from the counts."""
        if self.planned not in (-1, counts.episodes):
            self.before = self.memory
        self.memory, self.planned = deepcopy(self.before), counts.episodes
        memory = self.memory
        lam, plan = self._leader(counts, round)
        node, eps = self._node(lam, plan.bounds, RATIO), self.problem.eps
        lower, behaviour = max(0.0, node.lower - self.c / lam * (1 + 4 * ULPS)), plan.behaviour
        leads = node.gap <= eps * (1 - CELL_SHARE)
        if leads and memory.failed > 0 and self._fails(counts, plan.policy, memory.failed, lower):
            behaviour, leads = self._answer(counts, plan, node, memory.failed, round), False
        if not (leads or counts.episodes >= TEST_GROWTH * memory.tested):
            lowest, highest = self.lowest + lower, max(self.lowest + lower, memory.upper)
            return Plan(plan.policy, Bounds(lowest, highest, highest - lowest), behaviour)
        tail, blamed = self._halved(partial(self._evaluate, counts, plan.policy), eps, hopeful=leads)
        claim = tail.claim(self.lowest)
        memory.tested, memory.upper = counts.episodes, min(memory.upper, claim.upper)
        if blamed is not None:
            self._check_within_reach(tail, blamed)
            memory.failed = blamed.lam
            self._remember(blamed)
            if leads:
                behaviour = self._answer(counts, plan, node, blamed.lam, round)
        return Plan(plan.policy, Bounds(*claim[:3]), behaviour)

    def plan_once(self, counts: Counts) -> Plan:
        """Return the plan at the leading λ for counts to which nothing will be added, so that no ε is refused."""
        return self._leader(counts, 0)[1]

    def _leader(self, counts: Counts, round: int) -> tuple[float, Plan]:
        """Return the λ with the largest optimistic h, and the plan there.

        Bounds of earlier plans still hold, so only the λ that looks best is planned again, until it stays the best.
        """
        fresh: dict[int, Plan] = {}
        memory = self.memory
        while True:
            best = int(np.argmax(self._heights(memory.candidates)))
            lam, upper = map(float, memory.candidates[best])
            if best in fresh:
                return lam, fresh[best]
            planner = self.planner(lam)
            planner.asked = memory.pairs_played  # one record for all λ
            fresh[best] = planner.plan(counts, round)
            memory.pairs_played = planner.asked
            memory.candidates[best, 1] = min(upper, self._node(lam, fresh[best].bounds, RATIO).upper)

    def _fails(self, counts: Counts, policy: np.ndarray, lam: float, lower: float) -> bool:
        """Return whether the candidate fails at the λ where one failed before; the pair certificate is used if it is due."""
        limit = self.problem.eps * (1 - CELL_SHARE)
        node = self._evaluate(counts, policy, lam, False)
        surplus = node.upper - self.c / lam - lower
        if min(node.gap, surplus) <= limit:
            return False
        if not pairs_due(self.memory.pairs_tested, counts.episodes, node.gap, limit):
            return True
        paired = self._evaluate(counts, policy, lam, True)
        self.memory.pairs_tested = PairsAsked(counts.episodes, paired.gap, node.gap)
        return not paired.gap <= limit

    def _answer(self, counts: Counts, plan: Plan, leader: Node, failed: float, round: int) -> Behaviour:
        """Return what to play if a candidate passes at the leading λ but not where it ``failed``: its challenger there.

        In every second round it is the leader's own policy until its value is known well enough, because that λ may lead
        only for lack of data. Afterwards no λ with a smaller upper bound can fail.
        """
        if round % 2 == 0 and not leader.upper - leader.lower <= self.problem.eps * (1 - CELL_SHARE):
            return plan.behaviour
        planner = self.planner(failed)
        planner.bounds_of(counts, plan.policy, pairs=False)
        return planner.challenger(round)

    def _remember(self, node: Node) -> None:
        """Make a λ where a test failed a candidate for play, in place of the least promising one."""
        candidates = self.memory.candidates
        added = candidates[PLAYED:]
        known = np.flatnonzero(candidates[:, 0] == node.lam)
        if known.size:
            candidates[known[0], 1] = min(candidates[known[0], 1], node.upper)
            return
        added[int(np.argmin(self._heights(added)))] = node.lam, node.upper

    def _heights(self, candidates: np.ndarray) -> np.ndarray:
        """Return the upper bounds on h of the candidates; -inf for an empty entry."""
        lams, uppers = candidates.T
        return np.where(lams > 0, uppers - self.c / np.where(lams > 0, lams, 1.0), -np.inf)

    def _check_within_reach(self, tail: Tail, blamed: Node) -> None:
        """Raise an error if no amount of data reaches ε, because exponents are limited."""
        last, eps = tail.nodes[-1], self.problem.eps
        if blamed.lam != last.lam or last.lam < self._nearest(self.most):
            return
        attainable = max(half[0] for half in tail.halves[:-1])
        beyond = min(self.c / last.lam, last.lower - attainable)
        if beyond > eps:
            raise InvalidProblemError(
                f"eps={eps:g} cannot be certified at alpha={self.alpha:g}: λ is limited to {last.lam:.4g}, where λ times "
                f"the range of the return is {LARGEST_REACH:g}, and what lies beyond costs {beyond:.4g}. Give a larger eps "
                "or alpha, or a narrower range of rewards"
            )


def _range_of(problem: Problem) -> tuple[float, float]:
    """Return the smallest possible return, and the distance of the largest one from it, both rounded outwards."""
    low, high = (Fraction(reward) * problem.horizon for reward in problem.possible_rewards)
    if problem.return_range is not None:
        (least, most), room = map(Fraction, problem.return_range), Fraction(problem.return_room)
        low, high = max(low, least - room), min(high, most + room)
    lowest, spread = float(low), float(high - low)
    lowest = lowest if Fraction(lowest) <= low else math.nextafter(lowest, -math.inf)
    return lowest, max(0.0, spread) * (1 + 2 * ULPS) + 2 * ULPS * abs(lowest)
