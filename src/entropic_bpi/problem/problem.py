r"""The problem as a learner sees it: sizes, known rewards, what is declared, and never a probability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, repeat
from operator import truediv
from typing import Any, NoReturn

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.discounting import factors, tail_of
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.mechanics import Mechanics
from entropic_bpi.model.parts.reading import read_names
from entropic_bpi.problem.declarations import FIXED, Declarations, goal_of
from entropic_bpi.problem.known_rewards import KnownRewards
from entropic_bpi.problem.masks import Masks, masks_of_model, start_of_model
from entropic_bpi.problem.noise import Balls, noise_of_model
from entropic_bpi.problem.risk import Entropic, EVaR, Risk
from entropic_bpi.problem.rows import Frame, Slots, check_plan_fits, slots_of, slots_of_black_box, slots_of_model
from entropic_bpi.problem.sentences import SAME_REWARD
from entropic_bpi.tools.checks import LARGEST_REACH, LARGEST_REAL, refuse_for
from entropic_bpi.types import Goal, Reals

# By how much of its spread a return may miss its declared range and be called rounded.
RETURN_ROOM = 1e-9
# Squares of returns and of ranges of rewards are doubles; the verifier has the same limits.
LARGEST_RETURN, SMALLEST_RANGE = 1e150, 1e-150
# At how many λ random rewards are learned for the entropic value at risk.
_DECLARED_LAMS = 256
# Random rewards are counted in cells of their range, which doubles must be able to tell apart.
_NARROWEST_RANGE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Problem(Declarations):
    """An identification problem: what is declared, with the sizes, known rewards and possible successors of its source.

    Attributes
    ----------
    n_states, n_actions, horizon : int
    start : int, list of int, "fixed" or None
        The first state of a model. Elsewhere the episode begins with an artificial step, which leads to one of the declared
        first states, to one that is always the same, or to any.
    risk : Entropic or EVaR
    eps, delta : float
        In the reward's own units.
    stationary : bool
        Whether counts are pooled over the steps.
    successors : str
        What is declared about the possible next states: ``"unknown"``, ``"model"``, ``"mask"`` or ``"noise"``.
    allowed : Masks or None
        The actions that may be played; None if all may.
    reward : KnownRewards or None
        The rewards of a black box, if they are declared.
    reward_range : (float, float) or None
        The declared range of learned rewards; None where rewards are known.
    rewards : array ``(1 | H, S, A)`` or None
        Known rewards that do not depend on the next state; None when they do (then the slots carry them).
    slots : Slots
        The possible successors of each row.
    state_names, action_names : sequence of str
        As they are shown. With ``max_states`` the names of the states are a list that grows with what is found.
    state_labels, action_labels : sequence of str or None
        What identifies states and actions where other names are declared; None: their names.
    source_hash : str
        Content hash of the simulated model; with the other fields it identifies the run.
    noise : Mechanics or None
        What is declared about the noise; the slots are then the classes of its labels.
    lams : tuple of float or None
        For EVaR of random rewards: the λ at which it may be bounded, declared before the first episode.
    """

    n_states: int
    n_actions: int
    horizon: int
    start: int | list[int] | str | None
    risk: Risk
    eps: float
    delta: float
    stationary: bool
    successors: str
    allowed: Masks | None = None
    reward: KnownRewards | None = None
    reward_law: str = "fixed"
    rewards: Reals | None
    slots: Slots
    state_names: Sequence[str]
    action_names: Sequence[str]
    state_labels: Sequence[str] | None = None
    action_labels: Sequence[str] | None = None
    source_hash: str
    noise: Mechanics | None = None
    lams: tuple[float, ...] | None = None

    @property
    def beta(self) -> float:
        """The risk parameter; NaN where the risk is EVaR."""
        return self.risk.beta

    @property
    def goal(self) -> Goal:
        return Goal(self.risk, self.eps, self.delta)

    def at(self, beta: float, eps: float) -> Problem:
        """Return the same problem with an entropic risk parameter; what does not depend on it is shared."""
        problem = replace(self, risk=Entropic(beta), eps=eps)
        problem.__dict__.update(frame=self.frame, balls=self.balls)
        return problem

    def learning_rewards(self, ends: tuple[float, float]) -> Problem:
        """Return the same problem of a black box with another range of rewards; one of returns was about the others."""
        if self.noise is not None or self.reward is not None:
            raise InvalidProblemError("other rewards are not supported with noise= or reward=: declare these instead")
        return replace(self, reward_range=ends, return_range=None, slots=self.slots.paying(ends))

    @property
    def labels(self) -> tuple[Sequence[str], Sequence[str]]:
        """What identifies the states and the actions, whatever names are declared for them."""
        return self.state_labels or self.state_names, self.action_labels or self.action_names

    def named(self, given: Declarations) -> Problem:
        """Return the same problem with the declared names, unit and title, which are no part of the proof."""
        shown: dict[str, Any] = {name: getattr(given, name) or getattr(self, name) for name in ("unit", "title")}
        for what, labels, ends in zip(("state", "action"), self.labels, (self.black_box_rewards, 0), strict=True):
            name, listed = f"{what}_names", len(labels) - ends
            if (names := getattr(given, name)) is not None:
                if what == "state" and self.max_states is not None:
                    raise InvalidProblemError(f"{name} needs states that are listed beforehand, not max_states")
                every = (*(read_names(name, names, listed) or ()), *labels[listed:])  # the end keeps its name
                shown |= {name: read_names(name, every, len(labels)), f"{what}_labels": labels}
        return replace(self, **shown)

    @property
    def artificial(self) -> bool:
        """Whether the planned problem has the artificial first step of a random start."""
        return not isinstance(self.start, int)

    @property
    def first_state(self) -> int:
        """The state at the first planned step."""
        return self.start if isinstance(self.start, int) else 0

    @property
    def next_state_rewards(self) -> bool:
        return self.rewards is None

    @property
    def steps(self) -> int:
        return self.horizon + self.artificial

    @property
    def black_box_rewards(self) -> bool:
        """Whether rewards are learned while playing."""
        return self.rewards is None and bool(self.slots.successor[0] == self.n_states)

    @property
    def random_rewards(self) -> bool:
        return self.reward_law != "fixed"

    @property
    def declared_range(self) -> tuple[float, float]:
        """The range of learned rewards."""
        assert self.reward_range is not None
        return self.reward_range

    @property
    def same_reward(self) -> float:
        """How far apart two fixed rewards of a black box may be and still be one."""
        low, high = self.declared_range
        return SAME_REWARD * (high - low)

    @property
    def n_rows(self) -> int:
        return len(self.slots.begin)

    @cached_property
    def open_ended(self) -> bool:
        """Whether a row may lead to "some state not seen yet", which is no state."""
        return bool((self.slots.successor == self.n_states).any())

    @cached_property
    def possible_rewards(self) -> tuple[float, float]:
        """Smallest and largest reward that the learner must reckon with."""
        if self.rewards is not None:
            return float(self.rewards.min()), float(self.rewards.max())
        return float(self.slots.low.min()), float(self.slots.high.max())

    @cached_property
    def factors(self) -> np.ndarray:
        """How often a reward of each step counts: γ^h, or 1."""
        return factors(self.discount, self.horizon)

    @cached_property
    def duration(self) -> float:
        """What a reward of 1 at every step adds up to: the number of steps, unless they are discounted."""
        return self.horizon if self.discount is None else math.fsum(self.factors)

    @cached_property
    def tail(self) -> tuple[float, float]:
        """Range of what is earned after the horizon, for discounted returns; see :mod:`entropic_bpi.model.discounting`."""
        return tail_of(self.discount, self.horizon, self.possible_rewards)

    @property
    def return_spread(self) -> float:
        """How far apart two returns can be before the horizon, by the rewards alone."""
        low, high = self.possible_rewards
        return (high - low) * self.duration

    @property
    def return_room(self) -> float:
        """By how much a return may miss its declared range, for the rounding of sums of rewards."""
        return RETURN_ROOM * self.return_spread

    @property
    def limits_returns(self) -> bool:
        """Whether a range of the return is declared."""
        return self.return_range is not None

    @property
    def return_limits(self) -> tuple[float, float]:
        """The declared range of the return, widened by :attr:`return_room`; everything if none is declared."""
        least, most = self.return_range or (-math.inf, math.inf)
        return least - self.return_room, most + self.return_room

    def refuse_return(self, whose: str, earned: float) -> NoReturn:
        """Report an episode whose return is outside the declared range."""
        raise InvalidProblemError(f"{whose} earned {earned:g}, outside the declared return_range {self.return_range}")

    @property
    def declared_lams(self) -> tuple[float, ...]:
        """The λ at which random rewards are learned, for every level of the entropic value at risk.

        They depend on what is declared alone, so that none can be chosen for what was seen: from the largest possible one
        each is 2^(1/16) times smaller. All operations are rounded alike on every machine.
        """
        if self.return_spread == 0:
            return (1.0,)
        root = math.sqrt(math.sqrt(math.sqrt(math.sqrt(2.0))))
        largest = LARGEST_REACH * (1 - 1e-12) / self.return_spread
        return tuple(accumulate(repeat(root, _DECLARED_LAMS - 1), truediv, initial=largest))[::-1]

    @cached_property
    def max_outcomes(self) -> np.ndarray:
        """How many of its possible outcomes each row has at most, as declared; 0 where nothing less is declared."""
        most = np.zeros(self.n_rows, dtype=np.int64)
        if self.max_successors is not None:
            most[self.slots.possible > self.max_successors] = self.max_successors
        if self.artificial:
            most[-1] = int(self.start == FIXED and self.slots.possible[-1] > 1)
        return most

    @cached_property
    def frame(self) -> Frame:
        """The sizes, and the states that can be occupied at each step under the declared successors."""
        slots, everywhere = self.slots, np.arange(self.n_states)
        reachable = [np.array([self.first_state])]
        for h in range(self.steps - 1):
            if self.successors == "unknown" and not (h == 0 and isinstance(self.start, list)):
                reachable.append(everywhere)
                continue
            rows = self.playable_rows(h, reachable[-1])
            found = np.zeros(self.n_states + 1, dtype=bool)
            found[slots.successor[slots_of(slots, rows)[1]]] = True
            reachable.append(everywhere if found[-1] else np.flatnonzero(found))
        return Frame(
            self.steps,
            self.n_states,
            self.n_actions,
            int(self.artificial),
            int(self.stationary),
            self.first_state,
            np.cumsum([0, *map(len, reachable)], dtype=np.int64),
            np.concatenate(reachable).astype(np.int64),
            np.ones((1, 1, 1), dtype=np.int64) if self.allowed is None else self.allowed.table,
        )

    def rows_at(self, h: int, states: np.ndarray) -> np.ndarray:
        """The rows of all actions in ``states`` at planned step ``h``."""
        if self.artificial and h == 0:
            return np.array([self.n_rows - 1])
        offset = 0 if self.stationary else (h - self.artificial) * self.n_states * self.n_actions
        return (offset + states[:, None] * self.n_actions + np.arange(self.n_actions)).ravel()

    def playable_rows(self, h: int, states: np.ndarray) -> np.ndarray:
        """The rows of the actions in ``states`` at planned step ``h`` that are not known to be forbidden before any data."""
        rows = self.rows_at(h, states)
        if self.allowed is None or self.allowed.offered or (self.artificial and h == 0):
            return rows  # masks that are not known before the first episode change nothing of what is fixed then
        return rows[self.allowed.at(h - self.artificial)[states].ravel() != 0]

    def replace_forbidden(self, policy: np.ndarray) -> np.ndarray:
        """Return a policy ``(steps, S)`` with each forbidden action replaced by the first allowed one."""
        return policy if self.allowed is None else self.allowed.replace_forbidden(policy, int(self.artificial))

    def check_limits(self) -> None:
        """Refuse numbers that a certificate cannot state, and rewards whose differences or sums leave doubles."""
        limits = [("beta", self.beta, LARGEST_REAL), ("eps", self.eps, LARGEST_REAL)]
        limits += [("return_range", end, LARGEST_RETURN) for end in self.return_range or ()]
        for name, number, largest in limits:
            if abs(number) > largest:
                raise InvalidProblemError(f"{name} must be at most {largest:g} in size, got {number:g}")
        low, high = self.possible_rewards
        if 0 < high - low < SMALLEST_RANGE or not max(-low, high) * self.horizon <= LARGEST_RETURN:
            raise InvalidProblemError(
                f"rewards from {low:g} to {high:g} over {self.horizon} steps leave the range of doubles: use other units"
            )
        least, most = self.return_range or (low * self.horizon, high * self.horizon)
        if least > high * self.horizon or most < low * self.horizon:
            raise InvalidProblemError(
                f"no episode has a return in return_range=({least:g}, {most:g}): {self.horizon} rewards from {low:g} "
                f"to {high:g} add up to something from {low * self.horizon:g} to {high * self.horizon:g}"
            )
        low, high = self.reward_range or (low, high)
        if self.random_rewards and 0 < high - low < _NARROWEST_RANGE * max(-low, high):
            raise InvalidProblemError(
                f"random rewards from {low!r} to {high!r} are too close together for doubles: subtract what they share"
            )

    def check(self) -> None:
        """Refuse what is not proved, and what leaves the range of doubles."""
        self.check_combinations()
        if self.discount is not None:
            rewards = self.slots.low if self.rewards is None else self.rewards
            unsupported = {
                "discount= is not supported with EVaR: give beta=, or a finite horizon": isinstance(self.risk, EVaR),
                "discount needs reward_law='fixed': what a random reward is worth depends on beta times its discount, and "
                "delta would have to pay for every step": self.random_rewards,
                "discount is for processes that never end: rewards must be the same at every step": len(rewards) > 1,
            }
            refuse_for(unsupported)
        self.check_limits()

    def describe(self, row: int) -> str:
        """Where a row is, in the user's words."""
        if self.artificial and row == self.n_rows - 1:
            return "the random start"
        pair, action = divmod(row, self.n_actions)
        step, state = divmod(pair, self.n_states)
        where = f"state {self.state_names[state]!r}, action {self.action_names[action]!r}"
        return where if self.stationary else f"step {step}, {where}"

    def states_at(self, h: int) -> np.ndarray:
        """The states that can be reached at planned step ``h``."""
        return self.frame.states[self.frame.first_state[h] : self.frame.first_state[h + 1]]

    @property
    def places_at_risk(self) -> list[tuple[int, np.ndarray]]:
        """Planned steps and their reachable states at which what follows can depend on the next state."""
        return [(h, self.states_at(h)) for h in range(self.steps - (not self.next_state_rewards))]

    def _played(self, places: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
        """Which rows may be played somewhere there."""
        played = np.zeros(self.n_rows, dtype=bool)
        for h, states in places:
            played[self.playable_rows(h, states)] = True
        return played

    @cached_property
    def at_risk(self) -> np.ndarray:
        """Which rows need a ball: those with several possible outcomes that matter. Fixed before any data."""
        return self._played(self.places_at_risk) & self.uncertain

    @property
    def uncertain(self) -> np.ndarray:
        """Which rows may have several outcomes: the others are known once they were visited."""
        return (self.slots.possible > 1) & (self.max_outcomes != 1)

    @cached_property
    def balls(self) -> Balls | None:
        """Which ball each state-action pair uses and feeds; None where every row has a ball of its own."""
        return None if self.noise is None else Balls(self.noise, self.slots)

    @property
    def n_observed_labels(self) -> int:
        """How many labels all laws of declared noise have, if they are observed; otherwise 0."""
        return sum(map(len, self.noise.labels)) if self.noise is not None and self.noise.observed else 0

    @property
    def rows_at_risk(self) -> int:
        """P: how many balls are needed."""
        rows = np.flatnonzero(self.at_risk)
        if self.balls is None:
            return len(rows)
        pairs = rows[rows < len(self.balls.of_pair)]
        return len(np.unique(self.balls.of_pair[pairs])) + len(rows) - len(pairs)

    @property
    def delta_of_transitions(self) -> float:
        """The part of δ that the transitions may use: all of it, or half where rewards are random."""
        return self.delta / 2 if self.random_rewards else self.delta

    @property
    def reward_laws_at_risk(self) -> int:
        """How many laws of rewards are learned: those of every step that can be reached, the last one included.

        What never happens has none, so a row has no more than it may have outcomes. Fixed before any data.
        """
        if not self.random_rewards:
            return 0
        slots = self.slots
        concerned = self._played((h, self.states_at(h)) for h in range(int(self.artificial), self.steps))
        concerned &= slots.low[0, slots.begin] < slots.high[0, slots.begin]
        laws: Any = np.where(self.max_outcomes > 0, self.max_outcomes, slots.possible)
        return int((concerned * (1 if self.reward_law == "random-pair" else laws)).sum())

    @classmethod
    def black_box(
        cls,
        n_observations: int,
        n_actions: int,
        *,
        state_labels: Sequence[str],
        source: str,
        action_labels: Sequence[str] | None = None,
        **declared: Any,
    ) -> Problem:
        """Return the problem of an environment that can only be played: its observations and the absorbing end.

        ``declared`` are the goal and the declarations. Rewards are unknown in ``reward_range`` until seen. ``start`` names
        states by number. Every state may follow any other unless ``successors`` are declared: compressed rows ``(indptr,
        indices)`` over the pairs (s, a), in order, with each state as often as it may come with different rewards.
        """
        goal, given = goal_of(declared)
        known = None if given.reward is None else (given.reward.low, given.reward.high)
        if given.horizon is None or given.reward_range is None:
            raise InvalidProblemError("an environment needs horizon= and reward_range=")
        check_plan_fits(given.horizon, n_observations + 1, n_actions)
        mechanics, successors = None, given.successors
        if given.noise is not None:
            if given.stationary is False:
                raise InvalidProblemError("noise and stationary=False: the label has the same law at every step")
            mechanics, successors, rewards = given.noise
            low, high = given.reward_range
            known = np.where(np.isnan(rewards), low, rewards), np.where(np.isnan(rewards), high, rewards)
        found = {
            "n_states": n_observations + 1,
            "n_actions": n_actions,
            "stationary": given.stationary is not False,
            "start": given.start,
            "successors": "unknown" if successors is None else "mask" if given.noise is None else "noise",
            "noise": mechanics,
            "rewards": None,
            "slots": slots_of_black_box(n_observations, n_actions, given, successors, known),
            "state_names": state_labels,
            "action_names": action_labels or [str(a) for a in range(n_actions)],
            "source_hash": source,
        }
        return cls._checked(given, goal | found)

    @classmethod
    def from_mdp(cls, mdp: FiniteMDP, **declared: Any) -> Problem:
        """Return the problem of identifying a good policy of ``mdp`` when its probabilities are hidden.

        ``declared`` are the goal (``beta`` or ``risk``, ``eps``, ``delta``) and the declarations.
        """
        goal, given = goal_of(declared)
        given.check_source("model")
        if given.horizon not in (None, mdp.horizon):
            raise InvalidProblemError(f"horizon is {given.horizon}, but the model's is {mdp.horizon}")
        if given.stationary and not mdp.stationary:
            raise InvalidProblemError("stationary=True declares one kernel for all steps; the model's changes by step")
        check_plan_fits(mdp.horizon, mdp.n_states, mdp.n_actions)
        successors, kind, mechanics = given.successors, "mask", None
        if given.noise is not None:
            (mechanics, successors, _), kind = noise_of_model(given.noise, mdp), "noise"
        elif successors is None or isinstance(successors, str):
            kind = "unknown" if successors is None else "model"
        start, stationary = start_of_model(mdp, given.start), bool(given.stationary or given.noise is not None)
        of_model = ("n_states", "n_actions", "horizon", "state_names", "action_names", "unit", "title")
        known = None if mdp.next_state_rewards else mdp.rewards
        found = {name: getattr(mdp, name) for name in of_model} | {
            "start": start,
            "stationary": stationary,
            "successors": kind,
            "noise": mechanics,
            "allowed": masks_of_model(mdp, given.allowed),
            "rewards": None if known is None else known.reshape(-1, mdp.n_states, mdp.n_actions),
            "slots": slots_of_model(mdp, stationary, successors, start),
            "source_hash": mdp.content_hash,
        }
        return cls._checked(given, goal | found)

    @classmethod
    def _checked(cls, given: Declarations, found: dict[str, Any]) -> Problem:
        """Return the problem of what is declared and what is known of the source."""
        problem = cls(**given.given() | found)
        if isinstance(problem.risk, EVaR) and problem.random_rewards:
            problem = replace(problem, lams=problem.declared_lams)
        problem.check()
        return problem.named(given)
