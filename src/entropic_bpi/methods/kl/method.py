r"""Our method: optimistic and pessimistic planning over exact KL balls, and the gap certificate.

**Event.** Every row of the kernel whose transitions matter lies in the ball :math:`\{q: n\,\mathrm{KL}(\hat p,q)\le
\log(P/\delta)+R_{mix}(N)\}` at all times with probability :math:`1-\delta` (:mod:`entropic_bpi.methods.kl.rates`), where
:math:`P` is the number of such rows: more than one possible successor, reachable under the declared successors, and at a
step where what follows can depend on the next state. The event is about transitions only, so whatever is concluded from
it holds for every β, every ε, every policy and every known reward at once. Where rewards are random it gets half of δ, and
the other half is for their laws, at the one β of the problem (``entropic_bpi.methods.kl.rewards``).

**Declared returns.** From a state where somebody can be after h steps, the return lies between :math:`R_{low}-h\cdot high`
and :math:`R_{high}-h\cdot low`, by the Markov property, so :math:`e^{\beta r}Z_{h+1}` is cut at these ends wherever it is
used (``slot_value``). The bounds then hold for the states where somebody can be, which is
all that the induction needs.

**Plan.** Backwards over the steps, with max and min over the balls: optimistic :math:`U^o=e^{\beta r}\max qZ^o`
(min for :math:`\beta<0`), pessimistic :math:`U^p` the other way round. :math:`Z^o=\mathrm{best}_a U^o` bounds the optimum,
:math:`Z^p=U^p(\hat\pi)` bounds the candidate :math:`\hat\pi`. The gap between them is bounded by
:mod:`entropic_bpi.methods.kl.gap`. Two candidates are tried: the policy with the best pessimistic value, and the one that
minimises the gap bound state by state. Stop when :math:`\log\rho_1(s_1)\le|\beta|\varepsilon` for either. Now and then,
and when it may decide, a second test is tried, which takes longer and is often far sharper
(:mod:`entropic_bpi.methods.kl.pairs`).

**Play.** Alternate between the policy greedy for :math:`Z^o` and the challenger: follow the candidate to the first step
and state where another action might be better, play that action, and go on greedily. These are those of the second test
the last time that it was tried, because it knows better what is still open.

**Small β.** :math:`|V_\beta-V_{\beta'}|\le|\beta-\beta'|\,(\text{range of the return})^2/8` for every policy, by
Hoeffding's lemma. Below :math:`|\beta|\cdot\text{range}=10^{-5}`, where :math:`Z=1+O(\beta)` would lose digits, bounds
are computed at that β and widened by the difference; at :math:`\beta=0` this costs about a millionth of the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.ball import TOLERANCE
from entropic_bpi.methods.kl.boxes import NO_BOXES, Search, Split, cuts_of, laws_of
from entropic_bpi.methods.kl.gap import SAME_TOLERANCE
from entropic_bpi.methods.kl.pairs import occupied_states, pair_ratio
from entropic_bpi.methods.kl.plan import (
    FINAL_ROUND,
    _claim_of,
    _first_kind_of,
    _plan_large,
    _plan_small,
    _run_every,
    _value_optimistically,
    boxes_due,
    pairs_due,
)
from entropic_bpi.methods.kl.records import (
    NEVER_ASKED,
    Candidate,
    EveryBegin,
    Optimism,
    PairsAsked,
    PlanConstants,
    Scratch,
    new_scratch,
)
from entropic_bpi.methods.kl.revealing import revealing_policy
from entropic_bpi.methods.kl.rewards import RewardBounds
from entropic_bpi.methods.kl.states import GIVEN, ROUNDING, refresh_radii
from entropic_bpi.problem.counts import CountArrays, Counts, spare_slots
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.problem.sentences import END_REWARDS, STAY_REWARDS
from entropic_bpi.sources.simulator import Simulator
from entropic_bpi.tools.checks import check_reach
from entropic_bpi.types import BOXES, PAIRS, RATIO, Behaviour, Bounds, Claim, Plan

SMALLEST_EXPONENT = 1e-5
# Rounding of the exponents βr, relative, added on the safe side.
EXPONENT_ROUNDING = 1e-15
ULPS = 1e-15
# From this many (step, state, action) on, a plan uses several threads.
_PARALLEL_PAIRS = 60_000
_PARTS = 16

# How far the solvers go where a given policy is evaluated.
CONVERGED, SAME_CONVERGED = 1e-9, 1e-13
CLAIM_ROUNDING, GAP_ROUNDING = 1e-12, 6e-10
# The pair certificate leads the challenger if its gap was so much smaller.
PAIRS_LEAD = 0.99
# What is played in turn where noise is declared: every visit teaches a law.
NOISE_CYCLE = ("reveal", "reveal", "reveal", "candidate", "reveal", "reveal", "reveal", "anything")
# For this many (step, state), where it asks to turn is kept until it is computed again.
MOST_REMEMBERED = 1_000_000
# How much larger, relatively, its gap may become when solvers converge: they may move mass in another way.
PAIRS_ROOM = 1e-4
# The pair certificate takes longer to check: it must be better by this share.
WORTH_PAIRS = 1e-3
# How much larger, relatively, the gap of boxes is stated: who checks it may find other multipliers. In a run twice that.
BOX_ROOM = 1e-4


def _new_candidate(shape: tuple[int, int], choices: tuple[int, int]) -> Candidate:
    return Candidate(*(np.ones(shape) for _ in range(3)), *(np.zeros(choices, dtype=np.int64) for _ in range(2)))


def planning_beta(problem: Problem) -> float:
    """The β at which bounds are computed: the problem's, or a larger one where Z would lose its digits."""
    if isinstance(problem.risk, EVaR):
        raise InvalidProblemError("this is about one risk parameter beta, and the entropic value at risk has many")
    spread = problem.return_spread
    exponent = abs(problem.beta) * spread
    check_reach(problem.beta, exponent, "(range of the return)")
    if exponent >= SMALLEST_EXPONENT:
        return problem.beta
    # Without a spread all returns are equal, and so are their values for every β.
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
        self.planner: Any = None  # of the GPU, once there are counts
        if device == "gpu" and problem.allowed is not None:
            raise InvalidProblemError("device='gpu' does not support action masks (allowed=): use device='cpu'")
        if device == "gpu" and problem.open_ended:  # the column of states not seen yet is not kept there
            raise InvalidProblemError(
                "device='gpu' is for known possible next states: declare successors=, or use device='cpu'"
            )
        if device == "gpu" and problem.noise is not None:
            raise InvalidProblemError(
                "device='gpu' gives every state-action pair a ball of its own: use device='cpu' with noise="
            )
        self.origin: object = None
        self.frame = problem.frame
        spread, beta = problem.return_spread, planning_beta(problem)
        # V_β grows with β, by at most |difference| * range² / 8 (Hoeffding's lemma).
        self.bias = abs(beta - problem.beta) * spread * spread / 8
        self.left_out = problem.tail[1] - problem.tail[0]
        self.rules = self._rules(beta)
        self.rewards = RewardBounds(problem, beta) if problem.random_rewards else None
        shape = (problem.steps + 1, problem.n_states + 1)
        choices = (problem.steps, problem.n_states)
        self.optimism = Optimism(
            np.ones(shape), np.empty((*choices, problem.n_actions)), np.zeros(choices, dtype=np.int64)
        )
        self.plans = (_new_candidate(shape, choices), _new_candidate(shape, choices))
        self.large = len(self.frame.states) * problem.n_actions >= _PARALLEL_PAIRS
        self.asked = NEVER_ASKED
        # The laws that boxes may cut, and the episodes when these were tried last; -1: never.
        self.laws = laws_of(problem)
        self.boxed = 1 if self.laws.many and device == "cpu" else -1
        slots = problem.slots
        known = (slots.low == slots.high)[:, slots.successor < problem.n_states].all()
        self.reveals = problem.noise is not None and bool(known)
        # The challenger of the last pair certificate, if there is room to keep it.
        self.remembers = problem.steps * problem.n_states <= MOST_REMEMBERED
        self.remembered: tuple[np.ndarray, np.ndarray] | None = None

    def state(self) -> dict[str, Any]:
        """What the next plans depend on besides the counts."""
        policy, turn = (np.empty(0, dtype=np.int64),) * 2 if self.remembered is None else self.remembered
        return {"asked": np.array(self.asked), "policy": policy, "turn": turn, "boxed": np.array(self.boxed)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what :meth:`state` has returned."""
        self.asked, self.boxed = PairsAsked.of(state["asked"]), int(state.get("boxed", self.boxed))
        self.remembered = (state["policy"], state["turn"]) if state["policy"].size else None

    def plan(self, counts: Counts, round: int) -> Plan:
        """Bounds, candidate and what to play next, from the counts."""
        lower, upper, gap, kind, self.last = self._plan(self.rules, counts, round)
        if self.problem.noise is not None and not gap <= self.rules.eps:
            lower, upper, gap, kind, self.last = self._plan_estimated(counts)
        if pairs_due(self.asked, counts.episodes, gap, self.rules.eps):
            (lower, upper, gap), kind = self._with_pairs(counts, (lower, upper, gap), kind)
        if boxes_due(self.boxed, counts.episodes, gap, self.rules.eps):
            gap, kind = self._with_boxes(counts, gap, kind)
        bounds = self.in_reward_units(lower, upper, gap)
        following = self._reveal(counts, round) if self.reveals else self._behaviour(*self._challenger(), round)
        return Plan(self.plans[kind].policy.copy(), bounds, following)

    def plan_once(self, counts: Counts) -> Plan:
        """The plan for counts that are complete: nothing will be played."""
        return self.plan(counts, 0)

    def _plan_estimated(self, counts: Counts) -> Any:
        """The plan of the policy that is best by the estimated laws, which replaces the first candidate.

        With common noise, bounds of values are far apart when the difference of two policies is long known.
        """
        estimated = self.rules._replace(
            radius=np.zeros_like(self.rules.radius), planned=self._arrays(counts).visits.copy(), eps=np.inf
        )
        self._plan(estimated, counts, FINAL_ROUND)
        self.plans[GIVEN % 2].policy[:] = self.optimism.policy
        return (*self._plan(self.rules, counts, FINAL_ROUND)[:3], GIVEN % 2, GIVEN % 2)

    def _reveal(self, counts: Counts, round: int) -> Behaviour:
        """Mostly what reveals most about the laws; now and then the candidate or anything, for mechanics may be wrong."""
        kind = NOISE_CYCLE[round % len(NOISE_CYCLE)]
        policy = self.plans[GIVEN % 2].policy.copy()
        if kind == "reveal":
            policy = revealing_policy(self.problem, self._arrays(counts))
        elif kind == "anything":
            policy = np.random.default_rng((self.seed, round)).integers(self.problem.n_actions, size=policy.shape)
            policy = self.problem.replace_forbidden(policy)
        return Behaviour(policy, policy, np.full_like(policy, -1), True)

    def _behaviour(self, policy: np.ndarray, turn: np.ndarray, round: int) -> Behaviour:
        leading = self.challenge and round % 2 == 1
        return Behaviour(self.optimism.policy.copy(), policy.copy(), turn.copy(), leading)

    def _with_pairs(
        self, counts: Counts, claim: tuple[float, float, float], kind: int
    ) -> tuple[tuple[float, float, float], int]:
        """The claim and its candidate, or those of the pair certificate if its gap is smaller; both candidates are tried."""
        gap, smallest, occupied = claim[2], np.inf, None
        for tried in (kind, 1 - kind):
            if occupied is not None and np.array_equal(*(plan.policy[occupied] for plan in self.plans)):
                break  # the same policy wherever it can be
            (lower, upper, apart), pairs = self._pair_claim(self.rules, counts, self.plans[tried])
            if pairs is None:
                break
            apart *= 1.0 + PAIRS_ROOM
            occupied, turn = pairs
            if self.remembers and (smallest == np.inf or tried == self.last):
                self.remembered = self.plans[tried].policy.copy(), turn
            smallest = min(smallest, apart)
            if apart < claim[2]:
                claim, kind = (lower, upper, apart), tried
            if claim[2] <= self.rules.eps:
                break
        self.asked = PairsAsked(counts.episodes, float(smallest), float(gap))
        return claim, kind

    def _with_boxes(self, counts: Counts, gap: float, kind: int) -> tuple[float, int]:
        """The gap and its candidate, or those of the boxes if their gap is small enough; both candidates are tried."""
        self.boxed = counts.episodes
        for tried in (kind, 1 - kind):
            if tried != kind and np.array_equal(self.plans[0].policy, self.plans[1].policy):
                break
            found = self._boxes(
                self.rules, counts, self.plans[tried].policy, gap, self.rules.eps / (1.0 + 2.0 * BOX_ROOM)
            )
            if found is not None:
                return found[1], tried
        return gap, kind

    def _boxes(
        self, rules: PlanConstants, counts: Counts, policy: np.ndarray, gap: float, eps: float
    ) -> tuple[tuple[Split | str, ...], float] | None:
        """A tree of parts of the balls in which the policy's gap is at most ``eps``, and the largest; None if not found."""
        plan, parts = (_plan_large, _PARTS) if self.large else (_plan_small, 1)
        shape, choices = self.optimism.z.shape, self.optimism.policy.shape
        optimism = Optimism(*(np.ones_like(part) for part in self.optimism))
        plans = _new_candidate(shape, choices), _new_candidate(shape, choices)
        scratch, arrays = new_scratch(rules, self.problem.n_actions, parts), self._arrays(counts)
        plans[GIVEN % 2].policy[:] = policy

        def bound(interval: np.ndarray) -> Any:
            own = rules._replace(interval=interval)
            return plan(self.frame, own, arrays, optimism, plans, scratch, FINAL_ROUND)[2]

        search = Search((self.frame, rules, arrays), self.laws, (optimism, plans[GIVEN % 2]), bound)
        return search.tree(gap, eps)

    def _challenger(self) -> tuple[np.ndarray, np.ndarray]:
        """The policy to follow and where to turn from it: by the last pair certificate, if that knew better than the gap
        certificate, whose turns are new at every plan; otherwise by the last candidate's plan."""
        if self._knows_better():
            assert self.remembered is not None
            return self.remembered
        return self.plans[self.last].policy, self.plans[self.last].turn

    def _knows_better(self) -> bool:
        return self.remembered is not None and self.asked.pairs < PAIRS_LEAD * self.asked.ratio

    def _pair_claim(
        self, rules: PlanConstants, counts: Counts, plan: Candidate
    ) -> tuple[tuple[float, float, float], tuple[np.ndarray, np.ndarray] | None]:
        """What the pair certificate claims about a planned candidate; about which states, and where one turns from it there.

        Neither states nor turns if there are too many pairs.
        """
        ratio, pairs = np.inf, None
        # A declared range of returns says nothing of states where nobody can be, which pairs may be about.
        if not self.problem.limits_returns:
            self._fetch(counts)
            sheets = self.frame, rules, self._arrays(counts), self.optimism, plan
            occupied = occupied_states(*sheets)
            if occupied is not None:
                ratio, turn = pair_ratio(*sheets, occupied, self.problem.balls)
                pairs = occupied, turn
        return _claim_of(self.frame, rules, self.optimism, plan, ratio), pairs

    def claim(self, counts: Counts, plan: Plan) -> Claim:
        """The bounds of the candidate with all solvers converged."""
        return self.bounds_of(counts, plan.policy)

    def bounds_of(self, counts: Counts, policy: np.ndarray, *, pairs: bool = True) -> Claim:
        """What is certified about any policy ``(steps, S)``, with all solvers converged; the pair test is asked, or not."""
        rules, bounds = self._given(counts, policy)
        if not pairs:
            return self._rounded(bounds, RATIO)
        paired, test = self._pair_claim(rules, counts, self.plans[GIVEN % 2])[0], RATIO
        if paired[2] < bounds[2] * (1.0 - WORTH_PAIRS):
            bounds, test = paired, PAIRS
        if self.boxed >= 0 and not bounds[2] <= rules.eps:
            found = self._boxes(rules, counts, policy, bounds[2], rules.eps / (1.0 + BOX_ROOM))
            if found is not None:
                boxed = *bounds[:2], found[1] * (1.0 + BOX_ROOM)
                return self._rounded(boxed, BOXES)._replace(cuts=cuts_of(self.problem, self.laws, found[0]))
        return self._rounded(bounds, test)

    def challenger(self, round: int) -> Behaviour:
        """What to play against the policy that was last asked about."""
        given = self.plans[GIVEN % 2]
        return self._behaviour(given.policy, given.turn, round)

    def _rounded(self, claim: tuple[float, float, float], test: str) -> Claim:
        """In the reward's units, with room for whoever checks it with other, equally careful roundings."""
        lower, upper, gap = self.in_reward_units(*claim)
        room = CLAIM_ROUNDING * self.problem.return_spread
        return Claim(float(lower - room), float(upper + room), float(gap * (1.0 + GAP_ROUNDING) + room), test)

    def _given(self, counts: Counts, policy: np.ndarray) -> tuple[PlanConstants, tuple[float, float, float]]:
        """Plan for a given policy, with all solvers converged."""
        rules = self.rules._replace(tolerance=CONVERGED, same_tolerance=SAME_CONVERGED)
        self.plans[GIVEN % 2].policy[:] = policy
        claim = self._plan(rules, counts, FINAL_ROUND)[:3]
        self._fetch(counts)
        return rules, claim

    def _fetch(self, counts: Counts) -> None:
        """What a GPU knows of its plan, for those who go on with it here."""
        if self.planner is not None:
            self.planner.fetch(self.optimism, self.plans)
            refresh_radii(self.rules, counts.arrays)

    def interval_of(self, counts: Counts, policy: np.ndarray) -> tuple[float, float]:
        """Bounds on the value of any policy ``(steps, S)``; they hold together with all claims."""
        problem, (rules, bounds) = self.problem, self._given(counts, policy)
        lower = self._rounded(bounds, RATIO).lower
        layer = Scratch(*(part[0] for part in new_scratch(rules, problem.n_actions, 1)))
        values = np.ones((problem.steps + 1, problem.n_states + 1))
        _value_optimistically(self.frame, rules, self._arrays(counts), policy, values, layer)
        best = values[0, self.frame.start]
        if not 0.0 < best < np.inf:
            return lower, np.inf
        pad = (ROUNDING * (problem.steps + 1) + rules.exponent_rounding) / abs(rules.beta)
        upper = self.in_reward_units(0.0, math.log(best) / rules.beta + pad, 0.0).upper
        return lower, float(upper + CLAIM_ROUNDING * problem.return_spread)

    def value_bounds(self, counts: Counts, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower bounds of the policy's and upper bounds of the best value, ``(steps, S)``; NaN where nobody can be.

        All of them hold together with the claim; where returns are declared, for the states where somebody can be.
        """
        self._given(counts, policy)
        problem, frame, beta = self.problem, self.frame, self.rules.beta
        bounds = np.full((2, problem.steps, problem.n_states), np.nan)
        for h in range(problem.steps):
            states = frame.states[frame.first_state[h] : frame.first_state[h + 1]]
            offset = problem.factors[max(h - problem.artificial, 0) :].sum() * self.rules.shift
            for side, table in zip(bounds, (self.plans[GIVEN % 2].z, self.optimism.z), strict=True):
                side[h, states] = offset + np.log(table[h, states]) / beta
        size = np.nanmax(np.abs(bounds)) + abs(self.rules.shift) * problem.horizon
        pad = (ROUNDING * (problem.steps + 1) + self.rules.exponent_rounding) / abs(beta) + ULPS * size + self.bias
        return bounds[0] - pad + problem.tail[0], bounds[1] + pad + problem.tail[1]

    def _plan(self, rules: PlanConstants, counts: Counts, round: int) -> Any:
        if counts.origin is not self.origin:
            self.rules.planned[:], self.origin = -1, counts.origin
            if self.planner is not None:
                self.planner.forget()
        if self.device == "gpu":
            return self._plan_on_device(rules, counts, round)
        plan, parts = (_plan_large, _PARTS) if self.large else (_plan_small, 1)
        scratch = new_scratch(rules, self.problem.n_actions, parts)
        return plan(self.frame, rules, self._arrays(counts), self.optimism, self.plans, scratch, round)

    def _plan_on_device(self, rules: PlanConstants, counts: Counts, round: int) -> tuple[float, float, float, int, int]:
        """What :func:`_plan_all` does, by the kernels of :mod:`entropic_bpi.methods.kl.gpu`."""
        from entropic_bpi.methods.kl.gpu import Planner

        arrays = self._arrays(counts)
        if self.planner is None:
            self.planner = Planner(self.frame, rules, arrays, self.optimism, self.plans[0])
        planner = self.planner
        planner.plan_optimistically(rules, arrays)
        kind = claimed = _first_kind_of(round)
        best = -np.inf, np.inf, np.inf
        for turn in range(2):
            plan = self.plans[kind % 2]
            ratio = planner.plan_candidate(rules, kind, turn == 1, self.optimism, plan)
            claim = _claim_of(self.frame, rules, self.optimism, plan, ratio)
            if claim[2] < best[2]:
                claimed, best = kind, claim
            if best[2] <= rules.eps or kind == GIVEN:
                break
            kind = 1 - kind
        last = kind if best[2] <= rules.eps or kind == GIVEN else 1 - kind
        planner.fetch(self.optimism, self.plans, {"policy", "turn"})
        return *best, claimed, last

    def _arrays(self, counts: Counts) -> CountArrays:
        """The arrays of the counts, with those of its ball in every row; where rewards are random, with bounds of these."""
        if self.problem.balls is not None:
            return self.problem.balls.arrays(counts.arrays)
        return counts.arrays if self.rewards is None else self.rewards.arrays(counts)

    def play_every(self, plan: Plan, counts: Counts, simulator: Simulator, round: int, episodes: int) -> Bounds:
        """Play ``plan``, then plan, test and play after each episode in one compiled loop."""
        history = np.empty((episodes, 3))
        spare, played, going = spare_slots(self.problem), 0, True
        counts.reserve(spare)
        sheets = (self.optimism, self.plans, new_scratch(self.rules, self.problem.n_actions, 1))
        while going:
            begin = EveryBegin(round + played, counts.episodes, self.last, self._knows_better(), self.asked, self.boxed)
            more, kind, self.last, row, successor = _run_every(
                simulator.kernel,
                simulator.rng,
                self.frame,
                self.rules,
                counts.arrays,
                sheets,
                self._challenger(),
                begin,
                spare,
                history[played:],
            )
            counts.episodes += more
            played += more
            if row >= 0:
                counts.refuse(row, successor)
            going, now, eps = False, history[played - 1], self.rules.eps
            if more > 0 and pairs_due(self.asked, counts.episodes, now[2], eps):
                now[:], kind = self._with_pairs(counts, tuple(now), kind)
                going = True
            if more > 0 and boxes_due(self.boxed, counts.episodes, now[2], eps):
                now[2], going = self._with_boxes(counts, now[2], kind)[0], True
            going = going and played < episodes and not now[2] <= eps
        return self.in_reward_units(*history[:played].T)

    def in_reward_units(self, lower: Any, upper: Any, gap: Any) -> Bounds:
        """Undo the shift of the rewards, and widen by what the change of a tiny β may have cost, and by the tail."""
        offset = self.problem.duration * self.rules.shift
        risen = self.rules.beta > self.problem.beta
        lower, upper = offset + lower - self.bias * risen, offset + upper + self.bias * (not risen)
        lower, upper = lower + self.problem.tail[0], upper + self.problem.tail[1]
        lower, upper = lower - ULPS * (abs(offset) + abs(lower)), upper + ULPS * (abs(offset) + abs(upper))
        return Bounds(lower, upper, (gap + self.bias + self.left_out) * (1 + ULPS))

    def _rules(self, beta: float) -> PlanConstants:
        problem = self.problem
        shift = problem.possible_rewards[0]
        factor = np.append(problem.factors, 1.0)
        gain = np.empty((0, 0, 0))
        if problem.rewards is not None:
            steps = factor[:-1, None, None] if problem.discount is not None else 1.0
            gain = np.exp(beta * steps * (problem.rewards - shift))
        widest = int(problem.slots.used.max())
        bottom, top = _declared_ends(problem, beta)
        return PlanConstants(
            beta=beta,
            sign=1.0 if beta > 0 else -1.0,
            shift=shift,
            log_union=math.log(max(problem.rows_at_risk, 1) / problem.delta_of_transitions),
            gain=gain,
            factor=factor,
            possible=problem.slots.possible,
            top=top,
            bottom=bottom,
            radius=np.where(problem.uncertain, np.inf, 0.0),
            planned=np.full(problem.n_rows, -1),
            widest=max(widest, problem.n_states + 2 + END_REWARDS + STAY_REWARDS if problem.open_ended else 0),
            exponent_rounding=EXPONENT_ROUNDING * abs(beta) * problem.return_spread,
            tolerance=TOLERANCE,
            same_tolerance=SAME_TOLERANCE,
            seed=self.seed,
            eps=problem.eps - self.bias - self.left_out,
            challenge=self.challenge,
            interval=NO_BOXES,
        )


def _declared_ends(problem: Problem, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Between what e^{β·return} from each step on lies, in units of the shifted rewards, under the declared return range.

    Whoever is somewhere after h steps has earned at least h·low and at most h·high, and what follows does not depend on it:
    from there on the return is at most R_high - h·low and at least R_low - h·high. The artificial step, at the end, is like
    the first one. Underflow is safe: a lower end of 0 says nothing, and the upper end is at least e^-600, since the declared
    range meets that of the rewards.
    """
    after = np.append(np.arange(problem.horizon), 0)
    if not problem.limits_returns:
        return np.zeros(len(after)), np.full(len(after), np.inf)
    assert problem.next_state_rewards
    (low, high), (least, most) = problem.possible_rewards, problem.return_limits
    smallest = least - problem.horizon * low - after * (high - low)
    largest = np.full(len(after), most - problem.horizon * low)
    size = abs(least) + abs(most) + problem.horizon * (abs(low) + abs(high))
    room = EXPONENT_ROUNDING * (1.0 + abs(beta) * size)
    exponents = np.sort(beta * np.stack([smallest, largest]), axis=0)
    with np.errstate(over="ignore"):  # a range of returns far beyond what rewards allow
        return np.exp(exponents[0] - room), np.exp(exponents[1] + room)
