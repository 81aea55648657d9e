"""The problem as the file states it: sizes, β, ε, δ, the known rewards, and what each row of the kernel may do."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from entropic_bpi.verification._file import (
    Rejected,
    a_list,
    a_number,
    a_string,
    an_integer,
    an_object,
    integers,
    numbers,
    one_of,
)
from entropic_bpi.verification._intervals import LARGEST_EXPONENT, Interval
from entropic_bpi.verification._noise import Noise

# A step of a black box may end with up to 8 different rewards and lead back to the same state with up to 2.
END_REWARDS, STAY_REWARDS = 8, 2
_BITS = 256  # behind the point, of powers of a discount
# At how many λ random rewards are learned for the entropic value at risk.
_DECLARED_LAMS = 256
# What returns are at most, and rewards that differ differ by at least, so that squares of them are doubles.
_LARGEST_RETURN, _SMALLEST_RANGE = 1e150, 1e-150
# A row may list so many outcomes that other rows of its step list as well, without being called a forgery.
_SHARED_SLOTS = 64


class Discount:
    """Discounted returns that never end: γ, its powers between two fractions, and what comes after the last step."""

    def __init__(self, gamma: Any, horizon: int) -> None:
        self.gamma, self.horizon = a_number("discount", gamma), horizon
        if not 0 < self.gamma < 1:
            raise Rejected(f"discount must lie strictly between 0 and 1, got {self.gamma}")

    @cached_property
    def powers(self) -> list[tuple[Fraction, Fraction]]:
        """Around γ^h for h from 0 to the horizon."""
        up, down = self.gamma.as_integer_ratio()
        below, above = [1 << _BITS], [1 << _BITS]
        for _ in range(self.horizon):
            below.append(below[-1] * up // down)
            above.append(-(-above[-1] * up // down))
        return [(Fraction(a, 1 << _BITS), Fraction(b, 1 << _BITS)) for a, b in zip(below, above, strict=True)]

    @cached_property
    def duration(self) -> tuple[Fraction, Fraction]:
        """Around what a reward of 1 at every step before the horizon adds up to."""
        below, above = zip(*self.powers[:-1], strict=True)
        return sum(below, Fraction(0)), sum(above, Fraction(0))

    def tail(self, low: float, high: float) -> tuple[Fraction, Fraction]:
        """Between what rewards from ``low`` to ``high`` add up to after the horizon."""
        shares = [power / (1 - Fraction(self.gamma)) for power in self.powers[-1]]
        return min(Fraction(low) * share for share in shares), max(Fraction(high) * share for share in shares)

    def power(self, step: int) -> Interval:
        """γ^h."""
        least, most = self.powers[step]
        return Interval(Interval.of(least).low, Interval.of(most).high)


class Problem:
    """A problem, checked for shape and kept as arrays.

    Planned steps include the artificial first step of a random start: one state (0), one action, reward 0; its row is the
    last one. The slots of a row are its possible outcomes: a successor (``n_states``: anything not seen yet) and, where the
    next state decides, a range of rewards.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.n_states = an_integer("n_states", given["n_states"], 1)
        self.n_actions = an_integer("n_actions", given["n_actions"], 1)
        self.horizon = an_integer("horizon", given["horizon"], 1)
        self.start = self._read_start(given["start"])
        self._read_risk(given)
        self.delta = a_number("delta", given["delta"])
        if not 0 < self.delta < 1:
            raise Rejected(f"delta must lie strictly between 0 and 1, got {self.delta}")
        self.eps = a_number("eps", given["eps"])
        if not self.eps > 0:
            raise Rejected(f"eps must be greater than 0, got {self.eps}")
        self.stationary = one_of("stationary", given["stationary"], (True, False))
        self.successors = one_of("successors", given["successors"], ("unknown", "model", "mask", "noise"))
        self.state_names = _different_names("state_names", given["state_names"], self.n_states)
        self.action_names = _different_names("action_names", given["action_names"], self.n_actions)
        self.max_states = given["max_states"]
        if self.max_states is not None:
            an_integer("max_states", self.max_states, 1)
        a_string("source", given["source"])
        self.reward_law = one_of("reward_law", given["reward_law"], ("fixed", "random", "random-pair"))
        self.rewards: np.ndarray | None = None
        if given["rewards"] is not None:
            self._one_or_all("rewards", a_list("rewards", given["rewards"]))
            self.rewards = numbers("rewards", given["rewards"], (None, self.n_states, self.n_actions))
        self._read_slots(an_object("slots", given["slots"]))
        self.noise = None if given["noise"] is None else Noise(self, given["noise"])
        if (self.noise is None) == (self.successors == "noise"):
            raise Rejected("successors are those of the noise where that is declared, and nowhere else")
        self._read_masks(given["allowed"])
        self.known_reward = one_of("reward", given["reward"], (None, True)) is True
        if self.known_reward and (not self.black_box or self.random_rewards or self.noise or self.max_states):
            raise Rejected(
                "reward is of environments and logs whose states are listed, without noise or random rewards"
            )
        low, high = self.reward_range
        if 0.0 < high - low < _SMALLEST_RANGE or not max(-low, high) * self.horizon <= _LARGEST_RETURN:
            raise Rejected(f"rewards from {low:g} to {high:g} over {self.horizon} steps leave the range of doubles")
        self.discount = None if given["discount"] is None else Discount(given["discount"], self.horizon)
        if self.discount is not None and len(self.slot_low if self.rewards is None else self.rewards) > 1:
            raise Rejected("discounted rewards must be the same at every step")
        most, returns = given["max_successors"], given["return_range"]
        self.max_successors = None if most is None else an_integer("max_successors", most, 1)
        self.return_range: tuple[float, float] | None = None
        if returns is not None:
            least, largest = (a_number("return_range", end) for end in a_list("return_range", returns, 2))
            if not (self.black_box and -_LARGEST_RETURN <= least <= largest <= _LARGEST_RETURN):
                raise Rejected(f"return_range must be a range, and of an environment, got {returns}")
            self.return_range = least, largest
        if self.noise is not None and self.max_successors is not None:
            raise Rejected("noise says how many outcomes there are, not max_successors")
        if self.discount is not None and (self.alpha or self.return_range or self.random_rewards):
            raise Rejected("discount does not go together with EVaR, a range of returns or random rewards")
        if self.lams != (self._declared_lams() if self.alpha is not None and self.random_rewards else None):
            raise Rejected("lams must be those that horizon and rewards fix for EVaR of random rewards, otherwise null")

    def _read_start(self, given: Any) -> int | list[int] | str | None:
        """The first state; or several, different and in order; "fixed", if it is always the same; or nothing."""
        if isinstance(given, list):
            states = [an_integer("start", s, 0, self.n_states - 1) for s in given]
            if not states or sorted(set(states)) != states:
                raise Rejected(f"start must list different states in order, got {given!r:.80}")
            return states
        return given if given is None or given == "fixed" else an_integer("start", given, 0, self.n_states - 1)

    def _read_masks(self, given: Any) -> None:
        """Which actions may be played, one mask for all steps or one for each; ``offered`` ones came with observations."""
        self.allowed: np.ndarray | None = None
        self.offered = False
        if given is None:
            return
        masks = an_object("allowed", given)
        self.offered = one_of("allowed.offered", masks["offered"], (True, False))
        self._one_or_all("allowed.table", a_list("allowed.table", masks["table"]))
        table = integers("allowed.table", masks["table"], (None, self.n_states, self.n_actions), 0, 1) == 1
        if not table.any(axis=2).all():
            raise Rejected("allowed leaves a state without an action")
        if self.black_box and not table[:, -1].all():
            raise Rejected("allowed forbids an action after the end, where nothing is played")
        if self.offered and (not self.black_box or len(table) > 1):
            raise Rejected("only an environment offers masks, and the same at every step")
        self.allowed = table

    explored: tuple[list[float], list[float]] | None

    def _read_risk(self, given: dict[str, Any]) -> None:
        """The risk parameter β, or the level α of the entropic value at risk, and the λ that were declared for it."""
        alpha, lams, self.explored = given["alpha"], given["lams"], None
        if given["explored"] is not None:
            ranges = an_object("explored", given["explored"])
            betas, rewards = (
                [a_number(f"explored.{name}", x) for x in a_list(name, ranges[name], 2)] for name in ranges
            )
            if not (betas[0] <= betas[1] and rewards[0] <= rewards[1] and given["beta"] is alpha is lams is None):
                raise Rejected("an exploration has ranges of beta and of rewards, and neither beta nor alpha")
            self.explored, self.alpha, self.beta, self.lams = (betas, rewards), None, math.nan, None
            return
        self.alpha = None if alpha is None else a_number("alpha", alpha)
        if self.alpha is None:
            self.beta = a_number("beta", given["beta"])
        elif given["beta"] is not None or not 0 < self.alpha < 1:
            raise Rejected(f"alpha must lie strictly between 0 and 1, with beta null; got {alpha!r:.80}")
        else:
            self.beta = math.nan
        self.lams = None if lams is None else [a_number("lams", lam) for lam in a_list("lams", lams)]

    def _declared_lams(self) -> list[float]:
        """The λ that anybody must use who learns random rewards for EVaR, so that none was chosen for what was seen.

        From where λ times the range of the return is just below the largest exponent, each is 2^(1/16) times smaller. They
        are made of operations that every machine rounds alike, and compared exactly.
        """
        low, high = self.reward_range
        if low == high:
            return [1.0]
        lams, root = [LARGEST_EXPONENT * (1.0 - 1e-12) / ((high - low) * self.horizon)], 2.0
        for _ in range(4):
            root = math.sqrt(root)
        while len(lams) < _DECLARED_LAMS:
            lams.append(lams[-1] / root)
        return lams[::-1]

    def _one_or_all(self, name: str, steps: list[Any]) -> None:
        if len(steps) not in (1, self.horizon):
            raise Rejected(f"{name} must have 1 or horizon = {self.horizon} steps, got {len(steps)}")

    def _read_slots(self, given: dict[str, Any]) -> None:
        self.n_rows = self.n_states * self.n_actions * (1 if self.stationary else self.horizon) + self.random_start
        self.slot_successor = integers("slots.successor", given["successor"], (None,), 0, self.n_states)
        ends, n_slots = [], len(self.slot_successor)
        for name in ("low", "high"):
            steps = a_list(f"slots.{name}", given[name])
            if self.rewards is None:
                self._one_or_all(f"slots.{name}", steps)
            elif steps:
                raise Rejected(f"slots.{name} must be empty: rewards do not depend on the next state")
            ends.append(numbers(f"slots.{name}", steps, (None, n_slots)))
        self.slot_low, self.slot_high = ends
        self.begin = integers("slots.begin", given["begin"], (self.n_rows,), 0, n_slots)
        self.used = integers("slots.used", given["used"], (self.n_rows,), 1)
        self.possible = integers("slots.possible", given["possible"], (self.n_rows,), 1)
        if np.any(self.begin + self.used > n_slots):
            raise Rejected(f"slots.used must not lead beyond the {n_slots} slots")
        for layer in self.layers:
            # What is listed once may serve several rows, but no small file may ask for work without end.
            if self.used[layer.start : layer.stop].sum() > _SHARED_SLOTS * len(layer) + n_slots:
                raise Rejected(
                    f"slots are inconsistent: {len(layer)} rows list the same of {n_slots} slots again and again"
                )

    @property
    def random_start(self) -> bool:
        """Whether an artificial step leads to the first state: one of several, one that is always the same, or any."""
        return not isinstance(self.start, int)

    @property
    def first_state(self) -> int:
        """The state at the first planned step."""
        return self.start if isinstance(self.start, int) else 0

    @property
    def steps(self) -> int:
        """Planned steps."""
        return self.horizon + self.random_start

    @cached_property
    def black_box(self) -> bool:
        """Whether rewards are learned; the last state is then the absorbing end."""
        return self.rewards is None and bool((self.slot_successor == self.n_states).any())

    @property
    def random_rewards(self) -> bool:
        return self.reward_law != "fixed"

    @property
    def declared_range(self) -> tuple[float, float]:
        """Where the rewards of a black box lie."""
        return float(self.slot_low[0, 0]), float(self.slot_high[0, 0])

    @cached_property
    def most(self) -> np.ndarray:
        """How many different outcomes each row has at most; what is declared of the others does not concern the start."""
        most = self.possible if self.max_successors is None else np.minimum(self.max_successors, self.possible)
        of_start = np.minimum(self.possible, 1) if self.start == "fixed" else self.possible
        return np.where(self.is_start(np.arange(self.n_rows)), of_start, most)

    def reward_kinds(self, row: int, y: int) -> int:
        """How many different rewards an environment may pay on the way from a row to state ``y``.

        Where successors are declared, as many as the state is listed times.
        """
        if not self.black_box or self.random_rewards or self.is_start(row):
            return 1
        if self.successors != "unknown":
            listed = self.slot_successor[self.begin[row] : self.begin[row] + self.used[row]]
            return int((listed == y).sum())
        return END_REWARDS if y == self.n_states - 1 else STAY_REWARDS if y == self.state_of(row) else 1

    def rows(self, h: int, states: np.ndarray) -> np.ndarray:
        """The rows of the actions in some states at planned step ``h``, an array (states, actions)."""
        if self.random_start and h == 0:
            return np.full((len(states), 1), self.n_rows - 1)
        step = 0 if self.stationary else h - self.random_start
        return (step * self.n_states + states[:, None]) * self.n_actions + np.arange(self.n_actions)

    def permitted(self, h: int, states: np.ndarray) -> np.ndarray:
        """Which actions may be played in some states at planned step ``h``, an array (states, actions)."""
        step = h - self.random_start
        if self.allowed is None or step < 0:
            return np.ones((len(states), self.n_actions_at(h)), dtype=bool)
        return self.allowed[step if len(self.allowed) > 1 else 0][states]

    def playable(self, h: int, states: np.ndarray) -> np.ndarray:
        """The rows that somebody may play there. Masks that are found out while playing count as if they allowed all."""
        rows = self.rows(h, states)
        return rows.ravel() if self.offered else rows[self.permitted(h, states)]

    @cached_property
    def layers(self) -> list[range]:
        """Rows of one step, or of all where counts are pooled; that of the start by itself."""
        pairs = self.n_states * self.n_actions
        steps = [range(first, first + pairs) for first in range(0, self.n_rows - self.random_start, pairs)]
        return [*steps, range(self.n_rows - 1, self.n_rows)] if self.random_start else steps

    def layer(self, h: int) -> range:
        """The rows of planned step ``h``."""
        if self.random_start and h == 0:
            return self.layers[-1]
        return self.layers[0 if self.stationary else h - self.random_start]

    def slots_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots of some rows: for each, where its row is in ``rows``, and its number."""
        used = self.used[rows]
        owner = np.repeat(np.arange(len(rows)), used)
        first = np.repeat(self.begin[rows] - (np.cumsum(used) - used), used)
        return owner, first + np.arange(len(owner))

    def is_start(self, row: Any) -> Any:
        """Whether a row, or each of several, is that of a random start."""
        return self.random_start & (row == self.n_rows - 1)

    def state_of(self, row: Any) -> Any:
        return row // self.n_actions % self.n_states

    def step_of(self, row: int) -> int:
        return row // (self.n_states * self.n_actions)

    def place(self, row: int) -> str:
        if self.is_start(row):
            return "the random start"
        step = self.step_of(row)
        where = f"state {self.state_of(row)}, action {row % self.n_actions}"
        return where if self.stationary else f"step {step}, {where}"

    def n_actions_at(self, h: int) -> int:
        return 1 if self.random_start and h == 0 else self.n_actions

    def rewards_at(self, h: int, states: np.ndarray) -> np.ndarray | None:
        """Known rewards at planned step ``h``; none at the artificial step, or where the next state decides."""
        step = h - self.random_start
        if self.rewards is None or step < 0:
            return None
        return self.rewards[step if len(self.rewards) > 1 else 0][states]

    @cached_property
    def reachable(self) -> list[np.ndarray]:
        """States that can be occupied at each planned step under the declared successors."""
        steps, everywhere = [np.array([self.first_state])], np.arange(self.n_states)
        for h in range(self.steps - 1):
            if self.successors == "unknown" and not (h == 0 and isinstance(self.start, list)):
                steps.append(everywhere)
            elif self.stationary and h > 1 and self.allowed is None and np.array_equal(steps[-1], steps[-2]):
                steps.append(steps[-1])  # the same rows lead to the same states
            else:
                found = np.zeros(self.n_states + 1, dtype=bool)
                found[self.slot_successor[self.slots_of(self.playable(h, steps[-1]))[1]]] = True
                steps.append(everywhere if found[-1] else np.flatnonzero(found))
        return steps

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest reward that is declared possible."""
        low, high = (self.slot_low, self.slot_high) if self.rewards is None else (self.rewards, self.rewards)
        return float(min(low.min(), high.min())), float(max(low.max(), high.max()))

    @property
    def duration(self) -> tuple[Fraction, Fraction]:
        """Between what a reward of 1 at every step adds up to."""
        return (Fraction(self.horizon),) * 2 if self.discount is None else self.discount.duration

    @cached_property
    def return_room(self) -> float:
        """What a return may miss its declared range by, for the rounding of sums."""
        low, high = self.reward_range
        return 1e-9 * ((high - low) * self.horizon)


def _different_names(name: str, value: Any, length: int) -> list[str]:
    names = [a_string(name, item) for item in a_list(name, value, length)]
    if len(set(names)) < length:
        raise Rejected(f"{name} must all be different")
    return names
