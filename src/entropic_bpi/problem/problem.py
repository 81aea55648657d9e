r"""The problem as a learner sees it: sizes, known rewards and declarations, but no probabilities."""

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

# A return may be outside its declared range by this fraction of the spread of returns, as a rounding error.
RETURN_ROOM = 1e-9
# Within these limits, squares of returns and of ranges of rewards neither overflow nor underflow. The verifier has the same.
LARGEST_RETURN, SMALLEST_RANGE = 1e150, 1e-150
# Number of λ at which random rewards are learned for the entropic value at risk.
_DECLARED_LAMS = 256
# Smallest range of random rewards relative to their size: the edges of the cells of the range must be distinct doubles.
_NARROWEST_RANGE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Problem(Declarations):
    """An identification problem: the declarations, with the sizes, known rewards and possible successors of its source.

    Attributes
    ----------
    n_states, n_actions, horizon : int
        The sizes. The states of an environment include the end of the episode, which is the last one.
    start : int, list of int, "fixed" or None
        The first state of a model, if it has only one. Otherwise the episode begins with an artificial step, which leads to
        one of the listed states, to a state that is always the same (``"fixed"``), or to any state (None).
    risk : Entropic, EVaR or AnyReward
        The risk measure.
    eps, delta : float
        The accuracy, in the unit of the rewards, and the probability of failure.
    stationary : bool
        Whether counts are pooled over the steps.
    successors : str
        The kind of the declaration of possible next states: ``"unknown"``, ``"model"``, ``"mask"`` or ``"noise"``.
    allowed : Masks or None
        The actions that may be played; None if all may.
    reward : KnownRewards or None
        The known rewards of an environment or a log, if they are declared.
    reward_range : (float, float) or None
        The declared range of learned rewards; None for a model, whose rewards are known.
    rewards : array ``(1 | H, S, A)`` or None
        Known rewards that do not depend on the next state; otherwise None, and the slots contain the rewards.
    slots : Slots
        The possible successors of each row.
    state_names, action_names : sequence of str
        The names for display. With ``max_states``, the names of the states are a list that grows as states are discovered.
    state_labels, action_labels : sequence of str or None
        The texts that identify states and actions, if other names are declared; None if the names identify them.
    source_hash : str
        Content hash of the simulated model; with the other fields it identifies the run.
    noise : Mechanics or None
        The declared noise; the slots are then the classes of its labels.
    lams : tuple of float or None
        For EVaR of random rewards: the λ at which it may be bounded, fixed before the first episode.
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
        """The risk parameter; NaN if the risk is not an entropic risk."""
        return self.risk.beta

    @property
    def goal(self) -> Goal:
        return Goal(self.risk, self.eps, self.delta)

    def at(self, beta: float, eps: float) -> Problem:
        """Return the same problem for an entropic risk."""
        problem = replace(self, risk=Entropic(beta), eps=eps)
        problem.__dict__.update(frame=self.frame, balls=self.balls)  # cached properties that do not depend on the risk
        return problem

    def learning_rewards(self, ends: tuple[float, float]) -> Problem:
        """Return the same problem of a black box for other rewards, with their range and without a range of returns."""
        if self.noise is not None or self.reward is not None:
            raise InvalidProblemError("other rewards are not supported with noise= or reward=: declare these instead")
        return replace(self, reward_range=ends, return_range=None, slots=self.slots.paying(ends))

    @property
    def labels(self) -> tuple[Sequence[str], Sequence[str]]:
        """The texts that identify the states and the actions, independently of declared names."""
        return self.state_labels or self.state_names, self.action_labels or self.action_names

    def named(self, given: Declarations) -> Problem:
        """Return the same problem with the declared names, unit and title, which are not part of the proof."""
        shown: dict[str, Any] = {name: getattr(given, name) or getattr(self, name) for name in ("unit", "title")}
        for what, labels, ends in zip(("state", "action"), self.labels, (self.black_box_rewards, 0), strict=True):
            name, listed = f"{what}_names", len(labels) - ends
            if (names := getattr(given, name)) is not None:
                if what == "state" and self.max_states is not None:
                    raise InvalidProblemError(f"{name} needs states that are listed in advance, not max_states")
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
        """Whether rewards are learned from the episodes."""
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
        """The largest difference of two fixed rewards of a black box that counts as a rounding error."""
        low, high = self.declared_range
        return SAME_REWARD * (high - low)

    @property
    def n_rows(self) -> int:
        return len(self.slots.begin)

    @cached_property
    def open_ended(self) -> bool:
        """Whether a row has the slot "some state not seen yet", whose successor is not a state."""
        return bool((self.slots.successor == self.n_states).any())

    @cached_property
    def possible_rewards(self) -> tuple[float, float]:
        """Smallest and largest possible reward, as far as the learner knows."""
        if self.rewards is not None:
            return float(self.rewards.min()), float(self.rewards.max())
        return float(self.slots.low.min()), float(self.slots.high.max())

    @cached_property
    def factors(self) -> np.ndarray:
        """The weight of a reward at each step: γ^h, or 1 without a discount."""
        return factors(self.discount, self.horizon)

    @cached_property
    def duration(self) -> float:
        """The return if every reward is 1: the number of steps, or the sum of their discount factors."""
        return self.horizon if self.discount is None else math.fsum(self.factors)

    @cached_property
    def tail(self) -> tuple[float, float]:
        """Bounds of the discounted rewards after the horizon; see :mod:`entropic_bpi.model.discounting`."""
        return tail_of(self.discount, self.horizon, self.possible_rewards)

    @property
    def return_spread(self) -> float:
        """The largest difference of two returns, without the tail, by the range of the rewards."""
        low, high = self.possible_rewards
        return (high - low) * self.duration

    @property
    def return_room(self) -> float:
        """How far a return may be outside its declared range, because of rounding errors of sums of rewards."""
        return RETURN_ROOM * self.return_spread

    @property
    def limits_returns(self) -> bool:
        """Whether a range of the return is declared."""
        return self.return_range is not None

    @property
    def return_limits(self) -> tuple[float, float]:
        """The declared range of the return, widened by :attr:`return_room`; infinite if none is declared."""
        least, most = self.return_range or (-math.inf, math.inf)
        return least - self.return_room, most + self.return_room

    def refuse_return(self, whose: str, earned: float) -> NoReturn:
        """Raise an error for an episode whose return is outside the declared range."""
        raise InvalidProblemError(f"{whose} earned {earned:g}, outside the declared return_range {self.return_range}")

    @property
    def declared_lams(self) -> tuple[float, ...]:
        """The λ at which random rewards are learned, for every level of the entropic value at risk.

        They depend only on the declarations, not on the data: the largest possible λ, divided repeatedly by 2^(1/16). Square
        roots and divisions give the same bits on every machine.
        """
        if self.return_spread == 0:
            return (1.0,)
        root = math.sqrt(math.sqrt(math.sqrt(math.sqrt(2.0))))
        largest = LARGEST_REACH * (1 - 1e-12) / self.return_spread
        return tuple(accumulate(repeat(root, _DECLARED_LAMS - 1), truediv, initial=largest))[::-1]

    @cached_property
    def max_outcomes(self) -> np.ndarray:
        """The declared largest number of outcomes of each row; 0 if it does not exclude any possible outcome."""
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
            follows = np.zeros(self.n_states + 1, dtype=bool)
            follows[slots.successor[slots_of(slots, rows)[1]]] = True
            reachable.append(everywhere if follows[-1] else np.flatnonzero(follows))
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
        """Return the rows of all actions in ``states`` at planned step ``h``."""
        if self.artificial and h == 0:
            return np.array([self.n_rows - 1])
        offset = 0 if self.stationary else (h - self.artificial) * self.n_states * self.n_actions
        return (offset + states[:, None] * self.n_actions + np.arange(self.n_actions)).ravel()

    def playable_rows(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the rows in ``states`` at planned step ``h`` whose action is not known to be forbidden before any data."""
        rows = self.rows_at(h, states)
        if self.allowed is None or self.allowed.offered or (self.artificial and h == 0):
            return rows  # masks that become known during play must not change what is fixed before the first episode
        return rows[self.allowed.at(h - self.artificial)[states].ravel() != 0]

    def replace_forbidden(self, policy: np.ndarray) -> np.ndarray:
        """Return a policy ``(steps, S)`` with each forbidden action replaced by the first allowed one."""
        return policy if self.allowed is None else self.allowed.replace_forbidden(policy, int(self.artificial))

    def check_limits(self) -> None:
        """Raise an error for numbers that a certificate cannot state, and for rewards that could overflow or underflow."""
        limits = [("beta", self.beta, LARGEST_REAL), ("eps", self.eps, LARGEST_REAL)]
        limits += [("return_range", end, LARGEST_RETURN) for end in self.return_range or ()]
        for name, number, largest in limits:
            if abs(number) > largest:  # beta is NaN if the risk has none
                raise InvalidProblemError(f"{name} must be at most {largest:g} in absolute value, got {number:g}")
        low, high = self.possible_rewards
        if 0 < high - low < SMALLEST_RANGE or not max(-low, high) * self.horizon <= LARGEST_RETURN:
            raise InvalidProblemError(
                f"rewards from {low:g} to {high:g} over {self.horizon} steps leave the range of doubles: use other units"
            )
        least, most = self.return_range or (low * self.horizon, high * self.horizon)
        if least > high * self.horizon or most < low * self.horizon:
            raise InvalidProblemError(
                f"no episode can have a return in return_range=({least:g}, {most:g}): the sum of {self.horizon} rewards "
                f"from {low:g} to {high:g} is from {low * self.horizon:g} to {high * self.horizon:g}"
            )
        low, high = self.reward_range or (low, high)
        if self.random_rewards and 0 < high - low < _NARROWEST_RANGE * max(-low, high):
            raise InvalidProblemError(
                f"random rewards from {low!r} to {high!r} are too close together for doubles: subtract a constant from them"
            )

    def check(self) -> None:
        """Raise an error for problems without a proof, and for numbers out of range for doubles."""
        self.check_combinations()
        if self.discount is not None:
            rewards = self.slots.low if self.rewards is None else self.rewards
            unsupported = {
                "discount= is not supported with EVaR: give beta=, or a finite horizon": isinstance(self.risk, EVaR),
                "discount needs reward_law='fixed': the risk of a random reward depends on beta times its discount, so each "
                "step would need a part of delta": self.random_rewards,
                "discount is for processes that never end: rewards must be the same at every step": len(rewards) > 1,
            }
            refuse_for(unsupported)
        self.check_limits()

    def describe(self, row: int) -> str:
        """Return a description of a row with the names of its state and action."""
        if self.artificial and row == self.n_rows - 1:
            return "the random start"
        pair, action = divmod(row, self.n_actions)
        step, state = divmod(pair, self.n_states)
        where = f"state {self.state_names[state]!r}, action {self.action_names[action]!r}"
        return where if self.stationary else f"step {step}, {where}"

    def states_at(self, h: int) -> np.ndarray:
        """Return the states that can be reached at planned step ``h``."""
        return self.frame.states[self.frame.first_state[h] : self.frame.first_state[h + 1]]

    @property
    def places_at_risk(self) -> list[tuple[int, np.ndarray]]:
        """Planned steps, with their reachable states, at which the rest of the return can depend on the next state."""
        return [(h, self.states_at(h)) for h in range(self.steps - (not self.next_state_rewards))]

    def _played(self, places: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return a mask of the rows that may be played at one of these steps and states."""
        played = np.zeros(self.n_rows, dtype=bool)
        for h, states in places:
            played[self.playable_rows(h, states)] = True
        return played

    @cached_property
    def at_risk(self) -> np.ndarray:
        """Which rows need a confidence ball: those with several possible outcomes that matter. Fixed before any data."""
        return self._played(self.places_at_risk) & self.uncertain

    @property
    def uncertain(self) -> np.ndarray:
        """Which rows may have several outcomes; the outcome of the other rows is known after one visit."""
        return (self.slots.possible > 1) & (self.max_outcomes != 1)

    @cached_property
    def balls(self) -> Balls | None:
        """The balls of declared noise; None without noise, when every row has its own ball."""
        return None if self.noise is None else Balls(self.noise, self.slots)

    @property
    def n_observed_labels(self) -> int:
        """The number of labels of all laws of declared noise, if they are observed; otherwise 0."""
        return sum(map(len, self.noise.labels)) if self.noise is not None and self.noise.observed else 0

    @property
    def rows_at_risk(self) -> int:
        """P, the number of balls that are needed."""
        rows = np.flatnonzero(self.at_risk)
        if self.balls is None:
            return len(rows)
        pairs = rows[rows < len(self.balls.of_pair)]
        return len(np.unique(self.balls.of_pair[pairs])) + len(rows) - len(pairs)

    @property
    def delta_of_transitions(self) -> float:
        """The part of δ for the transitions: all of it, or half if rewards are random."""
        return self.delta / 2 if self.random_rewards else self.delta

    @property
    def reward_laws_at_risk(self) -> int:
        """The number of laws of random rewards that are learned, at every step, including the last one.

        A row has at most one law for each of its possible outcomes. Fixed before any data.
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
        """Return the problem of an environment or a log; its states are the observations and the absorbing end.

        ``declared`` are the goal and the declarations, with states by number. Rewards that were not observed are anywhere in
        ``reward_range``. Every state may follow any other unless ``successors`` are declared as compressed rows ``(indptr,
        indices)`` over the pairs (s, a), in which a state is listed once for each of its possible rewards.
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
        known_fields = {
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
        return cls._checked(given, goal | known_fields)

    @classmethod
    def from_mdp(cls, mdp: FiniteMDP, **declared: Any) -> Problem:
        """Return the problem of identifying a good policy of ``mdp`` without knowing its probabilities.

        ``declared`` are the goal (``beta`` or ``risk``, ``eps``, ``delta``) and the declarations.
        """
        goal, given = goal_of(declared)
        given.check_source("model")
        if given.horizon not in (None, mdp.horizon):
            raise InvalidProblemError(f"horizon is {given.horizon}, but the model's is {mdp.horizon}")
        if given.stationary and not mdp.stationary:
            raise InvalidProblemError("stationary=True is wrong: the transitions of the model differ between steps")
        check_plan_fits(mdp.horizon, mdp.n_states, mdp.n_actions)
        successors, kind, mechanics = given.successors, "mask", None
        if given.noise is not None:
            (mechanics, successors, _), kind = noise_of_model(given.noise, mdp), "noise"
        elif successors is None or isinstance(successors, str):
            kind = "unknown" if successors is None else "model"
        start, stationary = start_of_model(mdp, given.start), bool(given.stationary or given.noise is not None)
        of_model = ("n_states", "n_actions", "horizon", "state_names", "action_names", "unit", "title")
        known = None if mdp.next_state_rewards else mdp.rewards
        known_fields = {name: getattr(mdp, name) for name in of_model} | {
            "start": start,
            "stationary": stationary,
            "successors": kind,
            "noise": mechanics,
            "allowed": masks_of_model(mdp, given.allowed),
            "rewards": None if known is None else known.reshape(-1, mdp.n_states, mdp.n_actions),
            "slots": slots_of_model(mdp, stationary, successors, start),
            "source_hash": mdp.content_hash,
        }
        return cls._checked(given, goal | known_fields)

    @classmethod
    def _checked(cls, given: Declarations, known_fields: dict[str, Any]) -> Problem:
        """Return the checked problem; fields that are known from the source replace the declarations."""
        problem = cls(**given.given() | known_fields)
        if isinstance(problem.risk, EVaR) and problem.random_rewards:
            problem = replace(problem, lams=problem.declared_lams)
        problem.check()
        return problem.named(given)
