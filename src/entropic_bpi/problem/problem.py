r"""The problem as a learner sees it: sizes, known rewards, what is assumed, and never a probability.

A *row* is a state-action pair whose transitions are estimated together: ``(h, s, a)``, or ``(s, a)`` when the kernel is
declared stationary and counts are pooled over steps. A random start is handled by an artificial first step with one
state, one action and reward 0, whose row is the last one and is never pooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inlined
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.discounting import factors, tail_of
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.checks import (
    LARGEST_REACH,
    LARGEST_REAL,
    check_finite,
    check_memory,
    check_positive,
    check_probability,
)
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Goal

__all__ = ["REWARD_LAWS", "Frame", "Problem", "Slots", "actions_at", "reward_step", "row_of"]

# Up to this many states a row with unknown successors lists every state; beyond, only those seen and "elsewhere".
EXPLICIT_STATES = 64
_MAX_EXPLICIT_SLOTS = 50_000_000
# How many different rewards an ending, or a step back to the same state, may have in a black box; otherwise it is one.
END_REWARDS = 8
STAY_REWARDS = 2
# What the reward of a black box is, given state, action and next state: one number, a random one, or a random one whose law
# does not depend on the next state.
REWARD_LAWS = ("fixed", "random", "random-pair")
# Fixed rewards that differ by no more than this share of their range are one, known up to rounding.
SAME_REWARD = 1e-9
# By how much of its spread a return may miss its declared range and be called rounded.
RETURN_ROOM = 1e-9
# Squares of returns and of ranges of rewards are doubles; the verifier has the same limits.
LARGEST_RETURN, SMALLEST_RANGE = 1e150, 1e-150
# At how many λ random rewards are learned for the entropic value at risk.
_DECLARED_LAMS = 256
# Random rewards are counted in cells of their range, which doubles must be able to tell apart.
_NARROWEST_RANGE = 1e-9


class Frame(NamedTuple):
    """Sizes and row numbering, in the form the compiled kernels take.

    ``steps`` counts the artificial first step, if there is one. States that can be reached at step ``h`` under the
    declared successors are ``states[first_state[h] : first_state[h + 1]]``.
    """

    steps: int
    n_states: int
    n_actions: int
    artificial: int
    pooled: int
    start: int
    first_state: np.ndarray
    states: np.ndarray


@inlined
def row_of(frame: Frame, h: int, s: int, a: int) -> int:
    """The row whose counts govern action ``a`` in state ``s`` at planned step ``h``."""
    pairs = frame.n_states * frame.n_actions
    if frame.artificial and h == 0:
        return pairs if frame.pooled else (frame.steps - 1) * pairs
    if frame.pooled:
        return s * frame.n_actions + a
    return ((h - frame.artificial) * frame.n_states + s) * frame.n_actions + a


@inlined
def actions_at(frame: Frame, h: int) -> int:
    """How many actions there are at planned step ``h``."""
    return 1 if frame.artificial and h == 0 else frame.n_actions


@inlined
def reward_step(frame: Frame, table: np.ndarray, h: int) -> int:
    """Index along the step axis of ``table`` (of length 1 or H) at planned step ``h``."""
    return 0 if table.shape[0] == 1 else h - frame.artificial


class Slots(NamedTuple):
    """The possible successors of every row, before anything was observed.

    Row ``i`` owns the slots ``begin[i] : begin[i] + used[i]``, which rows may share. ``successor`` names the next state,
    or ``n_states`` for "some state not seen yet". ``low`` and ``high`` bound the reward of the slot, shape
    ``(0 | 1 | H, slots)``; they have no rows when rewards depend on (s, a) only. ``possible[i]`` is the number of next
    states that row ``i`` may have.
    """

    begin: np.ndarray
    used: np.ndarray
    successor: np.ndarray
    low: np.ndarray
    high: np.ndarray
    possible: np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    """An identification problem.

    Attributes
    ----------
    n_states, n_actions, horizon : int
    start : int or None
        The known first state; None when it is random.
    beta, eps, delta : float
        In the reward's own units; positive ``beta`` is risk-seeking. NaN where the risk is the entropic value at risk.
    stationary : bool
        Whether the kernel is declared the same at every step, so that counts are pooled.
    successors : str
        What is declared about the possible next states: ``"unknown"``, ``"model"`` or ``"mask"``.
    rewards : array ``(1 | H, S, A)`` or None
        Known rewards that do not depend on the next state; None when they do (then the slots carry them).
    slots : Slots
        The possible successors of each row.
    source_hash : str
        Content hash of the simulated model; with the other fields it identifies the run.
    max_states : int or None
        The declared bound on the number of states where they are numbered as they are first seen. Then ``state_names`` is
        a list that grows with what is found.
    reward_law : str
        One of :data:`REWARD_LAWS`; all but ``"fixed"`` are for black boxes.
    max_successors : int or None
        Declared: a state and action have at most so many different outcomes, whichever they are. An outcome is a next
        state and, where rewards are learned, what is paid on the way. It does not concern the start.
    return_range : (float, float) or None
        Declared, where rewards are learned: the return of every episode lies in it, whatever is played.
    discount : float or None
        γ: a reward after h steps counts γ^h times, and the return never ends: the horizon is what is planned of it.
    alpha : float or None
        The level of the entropic value at risk, where that is the risk.
    lams : tuple of float or None
        With it, where rewards are random: the λ at which it may be bounded, declared before the first episode.
    """

    n_states: int
    n_actions: int
    horizon: int
    start: int | None
    beta: float
    eps: float
    delta: float
    stationary: bool
    successors: str
    rewards: np.ndarray | None
    slots: Slots
    state_names: Sequence[str]
    action_names: Sequence[str]
    source_hash: str
    max_states: int | None = None
    reward_law: str = "fixed"
    max_successors: int | None = None
    return_range: tuple[float, float] | None = None
    discount: float | None = None
    alpha: float | None = None
    lams: tuple[float, ...] | None = None

    @property
    def goal(self) -> Goal:
        return Goal(self.beta, self.eps, self.delta, self.alpha)

    def at(self, beta: float, eps: float) -> Problem:
        """The same with an entropic risk parameter; the frame, which does not depend on it, is shared."""
        problem = replace(self, beta=beta, eps=eps, alpha=None)
        problem.__dict__["frame"] = self.frame
        return problem

    @property
    def artificial(self) -> bool:
        """Whether the planned problem has the artificial first step of a random start."""
        return self.start is None

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
        """Of a black box, where a reward that was not seen yet must lie."""
        return float(self.slots.low[0, 0]), float(self.slots.high[0, 0])

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
    def reward_range(self) -> tuple[float, float]:
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
        return tail_of(self.discount, self.horizon, self.reward_range)

    @property
    def return_spread(self) -> float:
        """How far apart two returns can be before the horizon, by the rewards alone."""
        low, high = self.reward_range
        return (high - low) * self.duration

    @property
    def return_room(self) -> float:
        """By how much a return may miss its declared range, for the rounding of sums of rewards."""
        return RETURN_ROOM * self.return_spread

    @property
    def widened_return_range(self) -> tuple[float, float]:
        """The declared range of the return, widened by :attr:`return_room`."""
        assert self.return_range is not None
        return self.return_range[0] - self.return_room, self.return_range[1] + self.return_room

    @property
    def declared_lams(self) -> tuple[float, ...]:
        """The λ at which random rewards are learned, for every level of the entropic value at risk.

        They depend on what is declared alone, so that none can be chosen for what was seen: from the largest possible one
        each is 2^(1/16) times smaller. All operations are rounded alike on every machine.
        """
        if self.return_spread == 0:
            return (1.0,)
        root = math.sqrt(math.sqrt(math.sqrt(math.sqrt(2.0))))
        lams = [LARGEST_REACH * (1 - 1e-12) / self.return_spread]
        for _ in range(_DECLARED_LAMS - 1):
            lams.append(lams[-1] / root)
        return tuple(reversed(lams))

    @cached_property
    def most(self) -> np.ndarray:
        """How many of its possible outcomes each row has at most, as declared; 0 where nothing less is declared."""
        if self.max_successors is None:
            return np.zeros(self.n_rows, dtype=np.int64)
        fewer = self.slots.possible > self.max_successors
        if self.artificial:
            fewer[-1] = False
        return np.where(fewer, self.max_successors, 0)

    @cached_property
    def frame(self) -> Frame:
        reachable = self._reachable()
        first = np.concatenate([[0], np.cumsum([len(states) for states in reachable])])
        return Frame(
            self.steps,
            self.n_states,
            self.n_actions,
            int(self.artificial),
            int(self.stationary),
            0 if self.start is None else self.start,
            first.astype(np.int64),
            np.concatenate(reachable).astype(np.int64),
        )

    def _reachable(self) -> list[np.ndarray]:
        """States that can be occupied at each planned step under the declared successors."""
        everywhere = np.arange(self.n_states)
        steps = [np.array([0 if self.start is None else self.start])]
        for h in range(self.steps - 1):
            if self.successors == "unknown":
                steps.append(everywhere)
                continue
            rows = self.rows_at(h, steps[-1])
            found = np.zeros(self.n_states + 1, dtype=bool)
            for begin, used in zip(self.slots.begin[rows], self.slots.used[rows], strict=True):
                found[self.slots.successor[begin : begin + used]] = True
            steps.append(everywhere if found[-1] else np.flatnonzero(found))
        return steps

    def rows_at(self, h: int, states: np.ndarray) -> np.ndarray:
        """The rows of all actions in ``states`` at planned step ``h``."""
        pairs = self.n_states * self.n_actions
        if self.artificial and h == 0:
            return np.array([self.n_rows - 1])
        offset = 0 if self.stationary else (h - self.artificial) * pairs
        return (offset + states[:, None] * self.n_actions + np.arange(self.n_actions)).ravel()

    def check_limits(self) -> None:
        """Refuse numbers that a certificate cannot state, and rewards whose differences or sums leave doubles."""
        returns = () if self.return_range is None else self.return_range
        limits = [("beta", self.beta, LARGEST_REAL), ("eps", self.eps, LARGEST_REAL)]
        for name, number, largest in limits + [("return_range", end, LARGEST_RETURN) for end in returns]:
            if abs(number) > largest:
                raise InvalidProblemError(f"{name} must be at most {largest:g} in size, got {number:g}")
        low, high = self.reward_range
        if 0 < high - low < SMALLEST_RANGE or not max(-low, high) * self.horizon <= LARGEST_RETURN:
            raise InvalidProblemError(
                f"rewards from {low:g} to {high:g} over {self.horizon} steps leave the range of doubles: use other units"
            )
        if self.return_range is not None:
            least, most = self.return_range
            if least > high * self.horizon or most < low * self.horizon:
                raise InvalidProblemError(
                    f"no episode has a return in return_range=({least:g}, {most:g}): {self.horizon} rewards from {low:g} "
                    f"to {high:g} add up to something from {low * self.horizon:g} to {high * self.horizon:g}"
                )

        if self.random_rewards:
            low, high = self.declared_range
        if self.random_rewards and 0 < high - low < _NARROWEST_RANGE * max(-low, high):
            raise InvalidProblemError(
                f"random rewards from {low!r} to {high!r} are too close together for doubles: subtract what they share"
            )

    def check_discount(self) -> None:
        """Refuse what is not proved for discounted returns."""
        if self.discount is None:
            return
        check_probability("discount", self.discount)
        if self.alpha is not None:
            raise InvalidProblemError("discount and EVaR together are not there yet: give beta=, or a finite horizon")
        if self.return_range is not None:
            raise InvalidProblemError(
                "discount and return_range: how the two go together is not proved; give one of them"
            )
        if self.random_rewards:
            raise InvalidProblemError(
                "discount needs rewards='fixed': what a random reward is worth depends on beta times its discount, and "
                "delta would have to pay for every step"
            )
        tables = self.slots.low if self.rewards is None else self.rewards
        if len(tables) > 1:
            raise InvalidProblemError(
                "discount is for processes that never end: rewards must be the same at every step"
            )

    def place(self, row: int) -> str:
        """Where a row is, in the user's words."""
        if self.artificial and row == self.n_rows - 1:
            return "the random start"
        pair, action = divmod(row, self.n_actions)
        step, state = divmod(pair, self.n_states)
        where = f"state {self.state_names[state]!r}, action {self.action_names[action]!r}"
        return where if self.stationary else f"step {step}, {where}"

    @property
    def places_at_risk(self) -> list[tuple[int, np.ndarray]]:
        """Planned steps and their reachable states at which what follows can depend on the next state."""
        frame, last, places = self.frame, self.steps - 1, []
        for h in range(self.steps):
            if h != last or self.next_state_rewards or (self.artificial and h == 0):
                places.append((h, frame.states[frame.first_state[h] : frame.first_state[h + 1]]))
        return places

    @property
    def at_risk(self) -> np.ndarray:
        """Which rows need a ball: those with several possible outcomes that matter. Fixed before any data."""
        concerned = np.zeros(self.n_rows, dtype=bool)
        for h, states in self.places_at_risk:
            concerned[self.rows_at(h, states)] = True
        return concerned & self.uncertain

    @property
    def uncertain(self) -> np.ndarray:
        """Which rows may have several outcomes: the others are known once they were visited."""
        return (self.slots.possible > 1) & (self.most != 1)

    @property
    def rows_at_risk(self) -> int:
        """P: how many rows need a ball."""
        return int(self.at_risk.sum())

    @property
    def delta_of_transitions(self) -> float:
        """The part of δ that the transitions may use: all of it, or half where rewards are random."""
        return self.delta / 2 if self.random_rewards else self.delta

    @property
    def reward_laws_at_risk(self) -> int:
        """How many laws of rewards are learned: those of every step that can be reached, the last one included.

        What never happens has none, so a row has no more than it may have outcomes. Fixed before any data.
        """
        slots, concerned = self.slots, np.zeros(self.n_rows, dtype=bool)
        if not self.random_rewards:
            return 0
        for h in range(int(self.artificial), self.steps):
            states = self.frame.states[self.frame.first_state[h] : self.frame.first_state[h + 1]]
            concerned[self.rows_at(h, states)] = True
        concerned &= slots.low[0, slots.begin] < slots.high[0, slots.begin]
        laws = 1 if self.reward_law == "random-pair" else np.where(self.most > 0, self.most, slots.possible)
        return int((concerned * laws).sum())

    @classmethod
    def black_box(
        cls,
        n_observations: int,
        n_actions: int,
        *,
        horizon: int,
        reward_range: tuple[float, float],
        beta: float,
        eps: float,
        delta: float,
        stationary: bool,
        state_names: Sequence[str],
        source: str,
        action_names: Sequence[str] | None = None,
        max_states: int | None = None,
        reward_law: str = "fixed",
        successors: tuple[np.ndarray, np.ndarray] | None = None,
        max_successors: int | None = None,
        return_range: tuple[float, float] | None = None,
        discount: float | None = None,
        alpha: float | None = None,
    ) -> Problem:
        """The problem of an environment that can only be played: ``n_observations`` states and the absorbing end.

        Rewards are unknown in ``reward_range`` until seen, and the start is learned. Every state may follow any other
        unless ``successors`` are declared: compressed rows ``(indptr, indices)`` over the pairs (s, a), in order, with each
        state as often as it may come with different rewards.
        """
        n_states = n_observations + 1
        _check_plan_fits(horizon, n_states, n_actions)
        low, high = min(reward_range[0], 0.0), max(reward_range[1], 0.0)
        # Slot 0: anything not seen yet; slot 1: the end stays the end and pays nothing; slot 2: a start not seen yet; then
        # the declared successors, row by row, each with a reward that was not seen yet.
        listed = np.empty(0, dtype=np.int64) if successors is None else successors[1]
        begin, used, possible = _black_box_rows(n_observations, n_actions, successors, reward_law == "fixed")
        times = 1 if stationary else horizon
        slots = Slots(
            begin=np.append(np.tile(begin, times), 2),
            used=np.append(np.tile(used, times), 1),
            successor=np.concatenate([[n_states, n_observations, n_states], listed]),
            low=np.concatenate([[reward_range[0], 0.0, low], np.full(len(listed), reward_range[0])])[None],
            high=np.concatenate([[reward_range[1], 0.0, low], np.full(len(listed), reward_range[1])])[None],
            possible=np.append(np.tile(possible, times), n_observations),
        )
        problem = cls(
            n_states=n_states,
            n_actions=n_actions,
            horizon=horizon,
            start=None,
            beta=_check_beta(beta, alpha),
            eps=check_positive("eps", eps),
            delta=check_probability("delta", delta),
            stationary=stationary,
            successors="unknown" if successors is None else "mask",
            rewards=None,
            slots=slots,
            state_names=state_names,
            action_names=action_names or [str(a) for a in range(n_actions)],
            source_hash=source,
            max_states=max_states,
            reward_law=reward_law,
            max_successors=max_successors,
            return_range=return_range,
            discount=discount,
            alpha=alpha,
        )
        if alpha is not None and problem.random_rewards:
            problem = replace(problem, lams=problem.declared_lams)
        assert problem.reward_range[0] == low
        assert problem.reward_range[1] in (high, reward_range[1])
        problem.check_discount()
        problem.check_limits()
        return problem

    @classmethod
    def from_mdp(
        cls,
        mdp: FiniteMDP,
        *,
        beta: float,
        eps: float,
        delta: float,
        stationary: bool = False,
        successors: Any = None,
        max_successors: int | None = None,
        discount: float | None = None,
        alpha: float | None = None,
    ) -> Problem:
        """The problem of identifying a good policy of ``mdp`` when its probabilities are hidden."""
        if stationary and not mdp.stationary:
            raise InvalidProblemError(
                "stationary=True declares one kernel for all steps, but the model's changes by step"
            )
        _check_plan_fits(mdp.horizon, mdp.n_states, mdp.n_actions)
        random_start = not isinstance(mdp.start, int)
        rows = _declared_rows(mdp, stationary, successors)
        start_known = isinstance(successors, str)
        slots = _slots(mdp, rows, stationary, _start_support(mdp, start_known) if random_start else None)
        problem = cls(
            n_states=mdp.n_states,
            n_actions=mdp.n_actions,
            horizon=mdp.horizon,
            start=mdp.start if isinstance(mdp.start, int) else None,
            beta=_check_beta(beta, alpha),
            eps=check_positive("eps", eps),
            delta=check_probability("delta", delta),
            stationary=bool(stationary),
            successors="unknown" if successors is None else "model" if isinstance(successors, str) else "mask",
            rewards=None if mdp.next_state_rewards else _step_table(mdp),
            slots=slots,
            state_names=mdp.state_names,
            action_names=mdp.action_names,
            source_hash=mdp.content_hash,
            max_successors=max_successors,
            discount=discount,
            alpha=alpha,
        )
        problem.check_discount()
        problem.check_limits()
        return problem


def _check_beta(beta: float, alpha: float | None) -> float:
    """The risk parameter, of which there is none where ``alpha`` is the level of the entropic value at risk."""
    return check_finite("beta", beta) if alpha is None else math.nan


def _check_plan_fits(horizon: int, n_states: int, n_actions: int) -> None:
    """A plan has at least 8 numbers for every step, state and action, whatever the method."""
    sizes = f"{horizon} steps, {n_states} states and {n_actions} actions"
    check_memory(f"identification over {sizes}", 8 * horizon * n_states * n_actions)


def _black_box_rows(
    n_observations: int, n_actions: int, successors: tuple[np.ndarray, np.ndarray] | None, fixed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``begin``, ``used`` and ``possible`` of the pairs (s, a) of a black box; the last state is the end.

    Where rewards are ``fixed``, another reward is another outcome.
    """
    pairs = n_observations * n_actions
    ends, stays = (END_REWARDS, STAY_REWARDS) if fixed else (1, 1)
    if successors is None:
        begin, used = np.zeros(pairs, dtype=np.int64), np.ones(pairs, dtype=np.int64)
        possible = np.full(pairs, n_observations - 1 + ends + stays)
    else:
        begin, used = 3 + successors[0][:-1], np.diff(successors[0])
        possible = used
    end = np.ones(n_actions, dtype=np.int64)
    return np.append(begin, end), np.append(used, end), np.append(possible, end)


def _step_table(mdp: FiniteMDP) -> np.ndarray:
    rewards = mdp.rewards
    assert rewards is not None
    return rewards[None] if rewards.ndim == 2 else rewards


def _declared_rows(mdp: FiniteMDP, stationary: bool, successors: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Declared successors as compressed rows ``(indptr, indices)`` over (s, a) or (h, s, a); None if unknown."""
    if successors is None:
        return None
    if isinstance(successors, str):
        if successors != "model":
            raise InvalidProblemError(
                f"successors must be None, 'model' or a boolean mask (S, A, S); got {shown(successors)}"
            )
        return mdp.rows.indptr, mdp.rows.indices
    try:
        mask = np.asarray(successors)
    except ValueError:
        mask = np.empty(0)
    shape = (mdp.n_states, mdp.n_actions, mdp.n_states)
    if mask.shape != shape or mask.dtype != np.bool_:
        raise InvalidProblemError(
            f"successors must be a boolean mask of shape (S, A, S) = {shape}, got dtype {mask.dtype}, shape {mask.shape}"
        )
    empty = ~mask.any(axis=2)
    if empty.any():
        s, a = np.argwhere(empty)[0]
        raise InvalidProblemError(f"successors[s={s}, a={a}] allows no next state")
    flat = mask.reshape(-1, mdp.n_states)
    return np.concatenate([[0], np.cumsum(flat.sum(axis=1))]), np.nonzero(flat)[1]


def _start_support(mdp: FiniteMDP, known: bool) -> np.ndarray:
    return np.flatnonzero(mdp.start_distribution > 0) if known else np.arange(mdp.n_states)


def _slots(
    mdp: FiniteMDP, rows: tuple[np.ndarray, np.ndarray] | None, stationary: bool, start_support: np.ndarray | None
) -> Slots:
    """Lay out the default slots of every row; rows that look alike share them."""
    pairs = mdp.n_states * mdp.n_actions
    n_rows = pairs if stationary else pairs * mdp.horizon
    if rows is not None:
        indptr, successor = rows
        begin, used = indptr[:-1], np.diff(indptr)
        pair_of_slot = np.repeat(np.arange(len(begin)) % pairs, used)
        possible = used.copy()
    elif mdp.next_state_rewards:
        # Each (s, a) has rewards of its own for every next state, so each needs its own slots.
        if pairs * mdp.n_states > _MAX_EXPLICIT_SLOTS:
            raise InvalidProblemError(
                "unknown successors with rewards that depend on the next state need a table of "
                f"{pairs * mdp.n_states} entries: declare the possible successors"
            )
        begin, used = np.arange(pairs) * mdp.n_states, np.full(pairs, mdp.n_states)
        successor = np.tile(np.arange(mdp.n_states), pairs)
        pair_of_slot = np.repeat(np.arange(pairs), mdp.n_states)
        possible = used.copy()
    else:
        everywhere = np.arange(mdp.n_states) if mdp.n_states <= EXPLICIT_STATES else np.array([mdp.n_states])
        begin, used = np.zeros(pairs, dtype=np.int64), np.full(pairs, len(everywhere))
        successor, pair_of_slot = everywhere, np.zeros(len(everywhere), dtype=np.int64)
        possible = np.full(pairs, mdp.n_states)
    rewards = _slot_rewards(mdp, pair_of_slot, successor, per_step=len(begin) > pairs)
    if len(begin) < n_rows:
        begin, used, possible = (np.tile(array, mdp.horizon) for array in (begin, used, possible))
    if start_support is not None:
        begin, used = np.append(begin, len(successor)), np.append(used, len(start_support))
        possible = np.append(possible, len(start_support))
        successor = np.concatenate([successor, start_support])
        # The artificial step pays nothing; slot rewards are measured from the smallest reward, hence that value.
        nothing = np.full((len(rewards), len(start_support)), rewards.min(initial=np.inf))
        rewards = np.concatenate([rewards, nothing], axis=1)
    return Slots(
        begin.astype(np.int64),
        used.astype(np.int64),
        successor.astype(np.int64),
        rewards,
        rewards.copy(),
        possible.astype(np.int64),
    )


def _slot_rewards(mdp: FiniteMDP, pair: np.ndarray, successor: np.ndarray, *, per_step: bool) -> np.ndarray:
    """Rewards of the slots, 0 where the model declares none; without rows when they do not depend on the next state.

    ``per_step``: the slots are the entries of the model's own rows, which change by step.
    """
    if not mdp.next_state_rewards:
        return np.empty((0, len(pair)))
    rows, pairs = mdp.rows, mdp.n_states * mdp.n_actions
    assert rows.rewards is not None
    if per_step:
        return np.array(rows.rewards)
    if mdp.rewards is not None:
        table = mdp.rewards if mdp.rewards.ndim == 4 else mdp.rewards[None]
        return table.reshape(len(table), pairs, mdp.n_states)[:, pair, successor]
    table_rows = [mdp.step_rows(h) for h in range(1 if mdp.stationary and len(rows.rewards) == 1 else mdp.horizon)]
    return np.stack([_lookup(step, pair, successor, mdp.n_states) for step in table_rows])


def _lookup(rows: Any, pair: np.ndarray, successor: np.ndarray, n_states: int) -> np.ndarray:
    declared = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr)) * n_states + rows.indices
    wanted = pair * n_states + successor
    position = np.minimum(np.searchsorted(declared, wanted), len(declared) - 1)
    return np.where(declared[position] == wanted, rows.rewards[position], 0.0)
