r"""The KL method: optimistic and pessimistic planning over exact KL balls, and the gap certificate.

**Event.** Every row of the kernel whose transitions matter lies in the ball :math:`\{q: n\,\mathrm{KL}(\hat p,q)\le
\log(P/\delta)+R_{mix}(N)\}` at all times with probability :math:`1-\delta` (:mod:`entropic_bpi.methods.kl.rates`), where
:math:`P` is the number of such rows: more than one possible successor, reachable under the declared successors, and at a
step where what follows can depend on the next state. The event is about transitions only, so whatever is concluded from
it holds for every β, every ε, every policy and every known reward at once. If rewards are random it gets half of δ, and
the other half is for their laws, at the one β of the problem (``entropic_bpi.methods.kl.rewards``). The proofs are on the
page "The KL method": Proposition 1 for the plan, 2 for the gap certificate, 3 for the pair certificate.

**Declared returns.** From a state that can be reached after h steps, the return lies between :math:`R_{low}-h\cdot high`
and :math:`R_{high}-h\cdot low`, by the Markov property, so :math:`e^{\beta r}Z_{h+1}` is cut at these ends wherever it is
used (``slot_value``). The bounds then hold for the states that can be reached, which is all that the induction needs.

**Plan.** Backwards over the steps, with max and min over the balls: optimistic :math:`U^o=e^{\beta r}\max qZ^o`
(min for :math:`\beta<0`), pessimistic :math:`U^p` the other way round. :math:`Z^o=\mathrm{best}_a U^o` bounds the optimum,
:math:`Z^p=U^p(\hat\pi)` bounds the candidate :math:`\hat\pi`. The gap between them is bounded by
:mod:`entropic_bpi.methods.kl.gap`. Two candidates are tried: the policy with the best pessimistic value, and the one that
minimises the gap bound state by state. Stop when :math:`\log\rho_1(s_1)\le|\beta|\varepsilon` for either. From time to
time, and when it may end the run, a second test is made, which takes longer and is often far sharper
(:mod:`entropic_bpi.methods.kl.pairs`).

**Play.** Alternate between the policy greedy for :math:`Z^o` and the challenger: follow the candidate to the first step
and state where another action might be better, play that action, and go on greedily. The candidate and these actions are
those of the last second test, if that was sharper.

**Small β.** :math:`|V_\beta-V_{\beta'}|\le|\beta-\beta'|\,(\text{range of the return})^2/8` for every policy, by
Hoeffding's lemma. Below :math:`|\beta|\cdot\text{range}=10^{-5}`, where :math:`Z=1+O(\beta)` would lose digits, bounds
are computed at that β and widened by the difference; at :math:`\beta=0` this costs about a millionth of the range.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl import boxes, pairs
from entropic_bpi.methods.kl import plan as plans_of
from entropic_bpi.methods.kl.plan import FINAL_ROUND, boxes_due, pairs_due
from entropic_bpi.methods.kl.records import (
    NEVER_ASKED,
    Candidate,
    EveryBegin,
    Inputs,
    Optimism,
    PairsAsked,
    PlanConstants,
    Scratch,
    new_scratch,
)
from entropic_bpi.methods.kl.rewards import RewardBounds
from entropic_bpi.methods.kl.states import GIVEN, ROUNDING, refresh_radii
from entropic_bpi.problem.counts import CountArrays, Counts, spare_slots
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.problem.rows import slots_of
from entropic_bpi.sources.simulator import Simulator
from entropic_bpi.tools.checks import check_reach, refuse_for
from entropic_bpi.types import BOXES, PAIRS, RATIO, Behaviour, Bounds, Claim, Plan

SMALLEST_EXPONENT = 1e-5
ULPS = 1e-15
# From this many (step, state, action) on, a plan uses several threads.
_PARALLEL_PAIRS = 60_000
_PARTS = 16

# Tolerances of the solvers when a given policy is evaluated.
CONVERGED, SAME_CONVERGED = 1e-9, 1e-13
CLAIM_ROUNDING, GAP_ROUNDING = 1e-12, 6e-10
# The challenger is that of the pair certificate if its gap was smaller by this factor.
PAIRS_LEAD = 0.99
# What is played in turn if noise is declared, when every visit is informative about a law.
NOISE_CYCLE = ("reveal", "reveal", "reveal", "candidate", "reveal", "reveal", "reveal", "anything")
# The challenger of the pair certificate is kept until the next one for problems with at most so many (step, state).
MOST_REMEMBERED = 1_000_000
# How much larger, relatively, the pair certificate's gap may become when solvers converge: the coupling may differ.
PAIRS_ROOM = 1e-4
# The pair certificate takes longer to check, so it is used only if its gap is smaller by this share.
WORTH_PAIRS = 1e-3
# By how much, relatively, the stated gap of boxes is larger, because a verifier may find other multipliers; twice that in a
# run.
BOX_ROOM = 1e-4


Triple = tuple[float, float, float]
"""Lower bound, upper bound and gap, before :meth:`KL.in_reward_units`."""


def planning_beta(problem: Problem) -> float:
    """Return the β at which bounds are computed: the problem's, or a larger one if Z would lose its digits."""
    if isinstance(problem.risk, EVaR):
        raise InvalidProblemError("this needs one risk parameter beta, but the entropic value at risk has many")
    spread = problem.return_spread
    exponent = abs(problem.beta) * spread
    check_reach(problem.beta, exponent, "(range of the return)")
    if exponent >= SMALLEST_EXPONENT:
        return problem.beta
    # If all returns are equal, so are their values for every β, and any β will do.
    return math.copysign(SMALLEST_EXPONENT / spread if spread > 0 else 1.0, problem.beta)


class KL:
    """Bounds from KL balls with the gap and the pair certificate; see the module's docstring.

    Parameters
    ----------
    sampling : {"challenger", "optimistic"}
    seed : int
        For ties; 0 prefers the lowest action.
    device : {"cpu", "gpu"}
        Where plans are made.
    """

    options: ClassVar = {"sampling": ("challenger", "optimistic")}
    events: ClassVar = ("E_cat", "E_bet")
    proof: ClassVar = ("E_cat",)
    unused: ClassVar[dict[str, tuple[str, ...]]] = {}
    devices: ClassVar = ("cpu", "gpu")

    def __init__(self, problem: Problem, sampling: str = "challenger", seed: int = 0, device: str = "cpu") -> None:
        self.problem, self.seed, self.challenge, self.device = problem, seed, sampling == "challenger", device
        self.planner: Any = None  # the GPU's planner, once there are counts
        if device == "gpu":
            unsupported = {
                "does not support action masks (allowed=): use device='cpu'": problem.allowed is not None,
                # The GPU's tables have no column for states not seen yet.
                "is for known possible next states: declare successors=, or use device='cpu'": problem.open_ended,
                "gives every state-action pair a ball of its own: use device='cpu' with noise=": problem.noise
                is not None,
            }
            refuse_for(unsupported, "device='gpu' ")
        self.origin: object = None
        self.frame = problem.frame
        spread, beta = problem.return_spread, planning_beta(problem)
        # V_β grows with β, by at most |difference| * range² / 8 (Hoeffding's lemma).
        self.bias = abs(beta - problem.beta) * spread * spread / 8
        self.left_out = problem.tail[1] - problem.tail[0]
        # The laws that boxes may cut, and the number of episodes when boxes were tried last; -1: they are never tried.
        self.laws = boxes.laws_of(problem)
        self.boxed = 1 if 0 < len(self.laws.number) <= boxes.MOST_LAWS and device == "cpu" else -1
        eps = problem.eps - self.bias - self.left_out
        self.rules = plans_of.plan_constants(problem, beta, seed, self.challenge, eps, boxed=self.boxed >= 0)
        self.rewards = RewardBounds(problem, beta) if problem.random_rewards else None
        self.optimism, self.plans = self._new_plans()
        self.large = len(self.frame.states) * problem.n_actions >= _PARALLEL_PAIRS
        self.asked = NEVER_ASKED
        slots = problem.slots
        known = (slots.low == slots.high)[:, slots.successor < problem.n_states].all()
        self.reveals = problem.noise is not None and bool(known)
        # The challenger of the last pair certificate, unless the problem is too large to keep it.
        self.remembers = problem.steps * problem.n_states <= MOST_REMEMBERED
        self.remembered: tuple[np.ndarray, np.ndarray] | None = None

    def _new_plans(self) -> tuple[Optimism, tuple[Candidate, Candidate]]:
        steps, states, actions = self.problem.steps, self.problem.n_states, self.problem.n_actions
        z, chosen = np.ones((7, steps + 1, states + 1)), np.zeros((5, steps, states), dtype=np.int64)
        plans = Candidate(*z[1:4], *chosen[1:3]), Candidate(*z[4:], *chosen[3:])
        return Optimism(z[0], np.ones((steps, states, actions)), chosen[0]), plans

    def without_boxes(self) -> None:
        """Never try boxes, and plan with code without them."""
        self.boxed, self.rules = -1, self.rules._replace(interval=np.empty(0))

    def state(self) -> dict[str, Any]:
        """Return what the next plans depend on besides the counts."""
        policy, switch_action = (np.empty(0, dtype=np.int64),) * 2 if self.remembered is None else self.remembered
        return {"asked": np.array(self.asked), "policy": policy, "turn": switch_action, "boxed": np.array(self.boxed)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what :meth:`state` has returned."""
        self.asked, self.boxed = PairsAsked.of(state["asked"]), int(state.get("boxed", self.boxed))
        self.remembered = (state["policy"], state["turn"]) if state["policy"].size else None

    # -- plans -------------------------------------------------------------------------------------------------------

    def plan(self, counts: Counts, round: int) -> Plan:
        """Return bounds, the candidate and what to play next, from the counts."""
        lower, upper, gap, kind, self.last = self._plan(self.rules, counts, round)
        if self.problem.noise is not None and not gap <= self.rules.eps:
            lower, upper, gap, kind, self.last = self._plan_estimated(counts)
        (lower, upper, gap), kind = self._sharpened(counts, (lower, upper, gap), kind)
        following = self._reveal(counts, round) if self.reveals else self._behaviour(*self._challenger(), round)
        return Plan(self._kept(self.plans[kind].policy), self.in_reward_units(lower, upper, gap), following)

    def plan_once(self, counts: Counts) -> Plan:
        """Return the plan for counts to which nothing will be added."""
        return self.plan(counts, 0)

    def _plan(self, rules: PlanConstants, counts: Counts, round: int) -> Any:
        if counts.origin is not self.origin:
            self.rules.planned[:], self.origin = -1, counts.origin
            if self.planner is not None:
                self.planner.forget()
        if self.device == "cpu":
            return self._plan_into(self.optimism, self.plans, rules, self._arrays(counts), round)
        from entropic_bpi.methods.kl.gpu import Planner

        arrays = self._arrays(counts)
        if self.planner is None:
            self.planner = Planner(self.frame, rules, arrays, self.optimism, self.plans[0])
        claim, self.optimism, self.plans = self.planner.plan(rules, arrays, self.optimism, self.plans, round)
        return claim

    def _plan_into(self, optimism: Any, plans: Any, rules: PlanConstants, arrays: CountArrays, round: int) -> Any:
        plan: Any = plans_of._plan_large if self.large else plans_of._plan_small
        scratch = new_scratch(rules, self.problem.n_actions, _PARTS if self.large else 1)
        return plan(self.frame, rules, arrays, optimism, *plans, scratch, round)

    def _inputs(self, rules: PlanConstants, arrays: CountArrays) -> Inputs:
        scratch = new_scratch(rules, self.problem.n_actions, 1)
        return Inputs(self.frame, rules, arrays, Scratch(*(layer[0] for layer in scratch)))

    def _arrays(self, counts: Counts) -> CountArrays:
        """Return the arrays of the counts, with those of its ball in every row and with bounds on random rewards."""
        if self.problem.balls is not None:
            return self.problem.balls.arrays(counts.arrays, counts.labels)
        return counts.arrays if self.rewards is None else self.rewards.arrays(counts)

    def _plan_estimated(self, counts: Counts) -> Any:
        """Plan for the policy that is best by the estimated laws, which replaces the first candidate.

        With common noise, the difference of two policies may be known when the bounds on their values are still far apart.
        """
        visits, radius = self._arrays(counts).visits.copy(), np.zeros_like(self.rules.radius)
        estimated = self.rules._replace(radius=radius, planned=visits, eps=np.inf)
        self._plan(estimated, counts, FINAL_ROUND)
        self._give(self.optimism.policy)
        return (*self._plan(self.rules, counts, FINAL_ROUND)[:3], GIVEN % 2, GIVEN % 2)

    # -- play --------------------------------------------------------------------------------------------------------

    def _reveal(self, counts: Counts, round: int) -> Behaviour:
        """Return what reveals most about the laws; in some rounds the candidate or random actions, to test the mechanics."""
        kind = NOISE_CYCLE[round % len(NOISE_CYCLE)]
        policy = self.plans[GIVEN % 2].policy.copy()
        if kind == "reveal":
            policy = revealing_policy(self.problem, self._arrays(counts))
        elif kind == "anything":
            policy = np.random.default_rng((self.seed, round)).integers(self.problem.n_actions, size=policy.shape)
            policy = self.problem.replace_forbidden(policy)
        return Behaviour(policy, policy, np.full_like(policy, -1), True)

    def _behaviour(self, policy: np.ndarray, switch_action: np.ndarray, round: int) -> Behaviour:
        leading = self.challenge and round % 2 == 1
        kept = self._kept
        return Behaviour(kept(self.optimism.policy), kept(policy), kept(switch_action), leading)

    def _kept(self, table: np.ndarray) -> np.ndarray:
        """Return a table of actions that the next plan does not write to; plans on a GPU make new tables."""
        return table if self.device == "gpu" else table.copy()

    def _challenger(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the policy to follow and the actions to switch to: those of the last pair certificate if it was sharper
        than the gap certificate, otherwise those of the last candidate's plan."""
        if self.remembered is not None and self._knows_better():
            return self.remembered
        return self.plans[self.last].policy, self.plans[self.last].switch_action

    def _knows_better(self) -> bool:
        return self.remembered is not None and self.asked.pairs < PAIRS_LEAD * self.asked.ratio

    def challenger(self, round: int) -> Behaviour:
        """Return what to play to test the policy whose bounds were computed last."""
        given = self.plans[GIVEN % 2]
        return self._behaviour(given.policy, given.switch_action, round)

    def play_every(self, plan: Plan, counts: Counts, simulator: Simulator, round: int, episodes: int) -> Bounds:
        """Play ``plan``, then plan, test and play after each episode in one compiled loop; return the bounds."""
        history = np.empty((episodes, 3))
        spare, played, going = spare_slots(self.problem), 0, True
        counts.reserve(spare)
        memory = (self.optimism, self.plans, new_scratch(self.rules, self.problem.n_actions, 1))
        while going:
            begin = EveryBegin(round + played, counts.episodes, self.last, self._knows_better(), self.asked, self.boxed)
            inputs = simulator.kernel, simulator.rng, self.frame, self.rules, counts.arrays, memory, self._challenger()
            more, kind, self.last, row, successor = plans_of._run_every(*inputs, begin, spare, history[played:])
            counts.episodes += more
            played += more
            if row >= 0:
                counts.refuse(row, successor)
            going, now = False, history[played - 1]
            if more > 0:
                asked = self.asked, self.boxed
                now[:], _ = self._sharpened(counts, tuple(now), kind)
                going = asked != (self.asked, self.boxed) and played < episodes and not now[2] <= self.rules.eps
        return self.in_reward_units(*history[:played].T)

    # -- sharper certificates ----------------------------------------------------------------------------------------

    def _sharpened(self, counts: Counts, claim: Triple, kind: int) -> tuple[Triple, int]:
        """Return the claim and its candidate, or those of the pair certificate or of boxes if these are due and better."""
        if pairs_due(self.asked, counts.episodes, claim[2], self.rules.eps):
            claim, kind = self._with_pairs(counts, claim, kind)
        if boxes_due(self.boxed, counts.episodes, claim[2], self.rules.eps):
            gap, kind = self._with_boxes(counts, claim[2], kind)
            claim = *claim[:2], gap
        return claim, kind

    def _with_pairs(self, counts: Counts, claim: Triple, kind: int) -> tuple[Triple, int]:
        """Return the claim and its candidate, or those of the pair certificate if that has a smaller gap for either one."""
        gap, smallest, occupied = claim[2], np.inf, None
        for tried in (kind, 1 - kind):
            if occupied is not None and np.array_equal(*(plan.policy[occupied] for plan in self.plans)):
                break  # both candidates are the same policy in all occupied states
            (lower, upper, paired), tables = self._pair_claim(self.rules, counts, self.plans[tried])
            if tables is None:
                break
            paired *= 1.0 + PAIRS_ROOM
            occupied, switch_action = tables
            if self.remembers and (smallest == np.inf or tried == self.last):
                self.remembered = self.plans[tried].policy.copy(), switch_action
            smallest = min(smallest, paired)
            if paired < claim[2]:
                claim, kind = (lower, upper, paired), tried
            if claim[2] <= self.rules.eps:
                break
        self.asked = PairsAsked(counts.episodes, float(smallest), float(gap))
        return claim, kind

    def _pair_claim(
        self, rules: PlanConstants, counts: Counts, plan: Candidate
    ) -> tuple[Triple, tuple[np.ndarray, np.ndarray] | None]:
        """Return the pair certificate's claim about a planned candidate, the occupied states, and the actions to switch to.

        The states and actions are None if there are too many pairs.
        """
        ratio, tables = np.inf, None
        # A declared range of returns does not bound states that cannot be reached, which pairs may be about.
        if not self.problem.limits_returns:
            self._fetch(counts)
            planned = self._inputs(rules, self._arrays(counts)), self.optimism, plan
            occupied = pairs.occupied_states(*planned)
            if occupied is not None:
                ratio, switch_action = pairs.pair_ratio(*planned, occupied, self.problem.balls)
                tables = occupied, switch_action
        return plans_of._claim_of(self.frame, rules, self.optimism, plan, ratio), tables

    def _with_boxes(self, counts: Counts, gap: float, kind: int) -> tuple[float, int]:
        """Return the gap and its candidate, or those of boxes if their gap is small enough, for either candidate."""
        self.boxed, eps = counts.episodes, self.rules.eps / (1.0 + 2.0 * BOX_ROOM)
        for tried in (kind, 1 - kind):
            if tried != kind and np.array_equal(self.plans[0].policy, self.plans[1].policy):
                break
            found = self._boxes(self.rules, counts, self.plans[tried].policy, gap, eps)
            if found is not None:
                return found[1], tried
        return gap, kind

    def _boxes(
        self, rules: PlanConstants, counts: Counts, policy: np.ndarray, gap: float, eps: float
    ) -> tuple[boxes.Tree, float] | None:
        """Return a tree of parts of the balls in which the policy's gap is at most ``eps``, and the largest gap; or None."""
        (optimism, plans), arrays = self._new_plans(), self._arrays(counts)
        plans[GIVEN % 2].policy[:] = policy

        def bound(interval: np.ndarray) -> Any:
            return self._plan_into(optimism, plans, rules._replace(interval=interval), arrays, FINAL_ROUND)[2]

        return boxes.Search(self._inputs(rules, arrays), self.laws, (optimism, plans[GIVEN % 2]), bound).tree(gap, eps)

    # -- claims ------------------------------------------------------------------------------------------------------

    def claim(self, counts: Counts, plan: Plan) -> Claim:
        """Return the bounds of the candidate with all solvers converged."""
        return self.bounds_of(counts, plan.policy)

    def bounds_of(self, counts: Counts, policy: np.ndarray, *, pairs: bool = True) -> Claim:
        """Return what is certified about any policy ``(steps, S)``, with all solvers converged, by ``pairs`` too or not."""
        (rules, bounds), test = self._given(counts, policy), RATIO
        if not pairs:
            return self._rounded(bounds, test)
        paired = self._pair_claim(rules, counts, self.plans[GIVEN % 2])[0]
        if paired[2] < bounds[2] * (1.0 - WORTH_PAIRS):
            bounds, test = paired, PAIRS
        if self.boxed >= 0 and not bounds[2] <= rules.eps:
            found = self._boxes(rules, counts, policy, bounds[2], rules.eps / (1.0 + BOX_ROOM))
            if found is not None:
                boxed = *bounds[:2], found[1] * (1.0 + BOX_ROOM)
                return self._rounded(boxed, BOXES)._replace(cuts=found[0])
        return self._rounded(bounds, test)

    def _rounded(self, claim: Triple, test: str) -> Claim:
        """Return a claim in the reward's units, with room for verifiers that round differently."""
        lower, upper, gap = self.in_reward_units(*claim)
        room = CLAIM_ROUNDING * self.problem.return_spread
        return Claim(float(lower - room), float(upper + room), float(gap * (1.0 + GAP_ROUNDING) + room), test)

    def _given(self, counts: Counts, policy: np.ndarray) -> tuple[PlanConstants, Triple]:
        """Plan for a given policy, with all solvers converged."""
        rules = self.rules._replace(tolerance=CONVERGED, same_tolerance=SAME_CONVERGED)
        self._give(policy)
        claim = self._plan(rules, counts, FINAL_ROUND)[:3]
        self._fetch(counts)
        return rules, claim

    def _give(self, policy: np.ndarray) -> None:
        """Set the given candidate to a new copy of a policy, because a plan may own the table of the one before."""
        given = self.plans[GIVEN % 2]._replace(policy=np.array(policy, dtype=np.int64))
        self.plans = (given, self.plans[1]) if GIVEN % 2 == 0 else (self.plans[0], given)

    def _fetch(self, counts: Counts) -> None:
        """Copy the tables and radii of the GPU's last plan to the CPU, if there is a GPU."""
        if self.planner is not None:
            self.planner.fetch(self.optimism, self.plans)
            refresh_radii(self.rules, counts.arrays)

    def interval_of(self, counts: Counts, policy: np.ndarray) -> tuple[float, float]:
        """Return bounds on the value of any policy ``(steps, S)``; they hold together with all claims."""
        problem, (rules, bounds) = self.problem, self._given(counts, policy)
        values = np.ones((problem.steps + 1, problem.n_states + 1))
        plans_of._value_optimistically(self._inputs(rules, self._arrays(counts)), policy, values)
        upper, best = np.inf, values[0, self.frame.start]
        if 0.0 < best < np.inf:
            upper = math.log(best) / rules.beta + self._pad()
        return self._rounded((bounds[0], upper, 0.0), RATIO)[:2]

    def value_bounds(self, counts: Counts, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return lower bounds on the policy's and upper bounds on the best value, ``(steps, S)``; NaN if unreachable.

        All of them hold together with the claim; if returns are declared, only for states that can be reached.
        """
        self._given(counts, policy)
        problem, frame, rules = self.problem, self.frame, self.rules
        bounds = np.full((2, problem.steps, problem.n_states), np.nan)
        for h in range(problem.steps):
            states = frame.states[frame.first_state[h] : frame.first_state[h + 1]]
            offset = problem.factors[max(h - problem.artificial, 0) :].sum() * rules.shift
            for side, table in zip(bounds, (self.plans[GIVEN % 2].z, self.optimism.z), strict=True):
                side[h, states] = offset + np.log(table[h, states]) / rules.beta
        size = np.nanmax(np.abs(bounds)) + abs(rules.shift) * problem.horizon
        pad = self._pad() + ULPS * size + self.bias
        return bounds[0] - pad + problem.tail[0], bounds[1] + pad + problem.tail[1]

    def _pad(self) -> float:
        """Return a bound on the rounding error of a value."""
        return (ROUNDING * (self.problem.steps + 1) + self.rules.exponent_rounding) / abs(self.rules.beta)

    def in_reward_units(self, lower: Any, upper: Any, gap: Any) -> Bounds:
        """Undo the shift of the rewards, and widen by the change of a tiny β and by the tail of discounted returns."""
        offset = self.problem.duration * self.rules.shift
        risen = self.rules.beta > self.problem.beta
        lower, upper = offset + lower - self.bias * risen, offset + upper + self.bias * (not risen)
        lower, upper = lower + self.problem.tail[0], upper + self.problem.tail[1]
        lower, upper = lower - ULPS * (abs(offset) + abs(lower)), upper + ULPS * (abs(offset) + abs(upper))
        return Bounds(lower, upper, (gap + self.bias + self.left_out) * (1 + ULPS))


def revealing_policy(problem: Problem, arrays: CountArrays) -> np.ndarray:
    r"""Return the policy ``(steps, S)`` with the largest expected :math:`\sum_h (k-1)/\sqrt{n+1}` under the estimated laws.

    :math:`k` is the number of classes of the pair's ball and :math:`n` the number of its visits. Longer episodes, and
    outcomes that distinguish more labels, reveal more; a law with fewer visits counts more. See "What is played" on the page
    "Known mechanics, unknown noise".
    """
    pairs = problem.n_states * problem.n_actions
    used, visits = arrays.used[:pairs], arrays.visits[:pairs]
    owner, slots = slots_of(arrays, np.arange(pairs))
    share = (arrays.tally[slots] + 1) / (visits + used)[owner]
    following, worth = arrays.successor[slots], (used - 1) / np.sqrt(visits + 1)
    policy = np.zeros((problem.steps, problem.n_states), dtype=np.int64)
    values = np.zeros(problem.n_states)
    for h in reversed(range(int(problem.artificial), problem.steps)):
        after = (worth + np.bincount(owner, share * values[following], pairs)).reshape(problem.n_states, -1)
        if problem.allowed is not None:
            after = np.where(problem.allowed.at(h - problem.artificial) != 0, after, -1.0)
        policy[h] = after.argmax(axis=1)
        values = after.max(axis=1)
    return policy
