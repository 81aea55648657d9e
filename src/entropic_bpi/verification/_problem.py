"""The problem as the file states it: sizes, β, ε, δ, the known rewards, and what each row of the kernel may do."""

import math
from fractions import Fraction
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from entropic_bpi.verification._file import Rejected, a_list, an_array
from entropic_bpi.verification._intervals import LARGEST_EXPONENT, Interval
from entropic_bpi.verification._slots import Noise

_BITS = 256  # after the binary point, of powers of a discount
# At how many λ random rewards are learned for the entropic value at risk.
_DECLARED_LAMS = 256
# Limits on the size of returns and on the difference of different rewards, so that squares of them are doubles.
_LARGEST_RETURN, _SMALLEST_RANGE = 1e150, 1e-150
# The rows of a step may list on average so many slots that other rows list as well; more is a forgery.
_SHARED_SLOTS = 64


class Problem:
    """A problem, checked for shape and kept as arrays.

    Planned steps include the artificial first step of a random start: one state (0), one action, reward 0; its row is the
    last one. The slots of a row are its possible outcomes: a successor (``n_states``: anything not seen yet) and, where the
    next state decides, a range of rewards.
    """

    def __init__(self, given: SimpleNamespace) -> None:
        self.n_states, self.n_actions, self.horizon = given.n_states, given.n_actions, given.horizon
        self.eps, self.delta, self.alpha, self.lams = given.eps, given.delta, given.alpha, given.lams
        self.beta: float = math.nan if given.beta is None else given.beta
        self.start, self.stationary, self.successors = given.start, given.stationary, given.successors
        self.state_names, self.action_names, self.known_reward = given.state_names, given.action_names, given.reward
        self.max_states, self.max_successors, self.discount = given.max_states, given.max_successors, given.discount
        self.explored: Any = None if given.explored is None else (given.explored.betas, given.explored.rewards)
        self._check_start_and_risk(given.beta)
        # An artificial step leads to the first state: one of several, one that is always the same, or any.
        self.random_start = not isinstance(self.start, int)
        self.first_state = 0 if self.random_start else self.start
        self.steps = self.horizon + self.random_start
        self.reward_law, self.random_rewards = given.reward_law, given.reward_law != "fixed"
        # The identities of states and actions, if other names are declared.
        self.state_labels = self.state_names if given.state_labels is None else given.state_labels
        self.action_labels = self.action_names if given.action_labels is None else given.action_labels
        for kind, size in (("state", self.n_states), ("action", self.n_actions)):
            for name in (f"{kind}_names", f"{kind}_labels"):
                if len(set(a_list(name, getattr(self, name), size))) < size:
                    raise Rejected(f"{name} must all be different")
        sizes = self.n_states, self.n_actions
        self.rewards = None if given.rewards is None else self._per_step("rewards", given.rewards, *sizes)
        self._read_slots(given.slots)
        self.noise = None if given.noise is None else Noise(self, given.noise)
        self.allowed = None if given.allowed is None else self._read_masks(given.allowed)
        self.offered = given.allowed is not None and given.allowed.offered
        low, high = self.reward_range
        if 0.0 < high - low < _SMALLEST_RANGE or not max(-low, high) * self.horizon <= _LARGEST_RETURN:
            raise Rejected(f"rewards from {low:g} to {high:g} over {self.horizon} steps leave the range of doubles")
        # Returns may miss their declared range by the rounding of sums.
        self.return_range, self.return_room = given.return_range, 1e-9 * ((high - low) * self.horizon)
        least, most = self.return_range or (0.0, 0.0)
        if self.return_range and not (self.black_box and -_LARGEST_RETURN <= least <= most <= _LARGEST_RETURN):
            raise Rejected(f"return_range must be of an environment, and not beyond {_LARGEST_RETURN:g}")
        if (self.noise is None) == (self.successors == "noise"):
            raise Rejected("successors are those of the noise where that is declared, and nowhere else")
        if self.known_reward and (not self.black_box or self.random_rewards or self.noise or self.max_states):
            raise Rejected("reward is for environments and logs with listed states, without noise or random rewards")
        if self.discount and len(self.slot_low if self.rewards is None else self.rewards) > 1:
            raise Rejected("discounted rewards must be the same at every step")
        if self.noise and self.max_successors:
            raise Rejected("noise says how many outcomes there are, not max_successors")
        if self.discount and (self.alpha or self.return_range or self.random_rewards):
            raise Rejected("discount is not supported with EVaR, a range of returns or random rewards")
        if self.lams != (self._declared_lams() if self.alpha and self.random_rewards else None):
            raise Rejected("lams must be those that horizon and rewards fix for EVaR of random rewards, otherwise null")

    def _check_start_and_risk(self, beta: float | None) -> None:
        """Reject a start or a risk of another form.

        The start is a state, a list of different ones in order, "fixed" if it is always the same, or null. The risk is β, or
        the level α of the entropic value at risk; an exploration has ranges instead.
        """
        if self.start not in (None, "fixed"):
            states = self.start if isinstance(self.start, list) else [self.start]
            an_array("start", states, (None,), 0, self.n_states - 1)
            if sorted(set(states)) != states or not states:
                raise Rejected(f"start must list different states in order, got {states!r:.80}")
        if self.explored is not None:
            if not beta is self.alpha is self.lams is None:
                raise Rejected("an exploration has ranges of beta and of rewards, and neither beta nor alpha")
        elif (beta is None) == (self.alpha is None):
            raise Rejected(f"either beta or alpha must be a number, and the other null; got {beta} and {self.alpha}")

    def _per_step(self, name: str, value: Any, *shape: int, least: int | None = None, most: int = 0) -> np.ndarray:
        """Return a table for all steps together, or for each step."""
        if len(a_list(name, value)) not in (1, self.horizon):
            raise Rejected(f"{name} must have 1 or horizon = {self.horizon} steps, got {len(value)}")
        return an_array(name, value, (None, *shape), least, most)

    def _read_masks(self, given: SimpleNamespace) -> np.ndarray:
        """Return which actions may be played; ``offered`` masks came with the observations."""
        table = self._per_step("allowed.table", given.table, self.n_states, self.n_actions, least=0, most=1) == 1
        if not table.any(axis=2).all():
            raise Rejected("allowed leaves a state without an action")
        if self.black_box and not table[:, -1].all():
            raise Rejected("allowed forbids an action after the end, where nothing is played")
        if given.offered and (not self.black_box or len(table) > 1):
            raise Rejected("only an environment offers masks, and the same at every step")
        return table

    def _declared_lams(self) -> list[float]:
        """Return the λ at which random rewards are learned for EVaR; they are fixed, so that none depends on the data.

        At the largest one, λ times the range of the return is just below the largest exponent; each other is 2^(1/16) times
        smaller than the one before. All machines round the operations used here alike, so the λ are compared exactly.
        """
        low, high = self.reward_range
        if low == high:
            return [1.0]
        root = math.sqrt(math.sqrt(math.sqrt(math.sqrt(2.0))))
        lams = [LARGEST_EXPONENT * (1.0 - 1e-12) / ((high - low) * self.horizon)]
        while len(lams) < _DECLARED_LAMS:
            lams.append(lams[-1] / root)
        return lams[::-1]

    def _read_slots(self, given: SimpleNamespace) -> None:
        self.n_rows = self.n_states * self.n_actions * (1 if self.stationary else self.horizon) + self.random_start
        self.slot_successor = an_array("slots.successor", given.successor, (None,), 0, self.n_states)
        n_slots = len(self.slot_successor)
        if self.rewards is None:
            self.slot_low, self.slot_high = (
                self._per_step(f"slots.{name}", getattr(given, name), n_slots) for name in ("low", "high")
            )
        elif given.low != [] or given.high != []:
            raise Rejected("slots.low and slots.high must be empty: rewards do not depend on the next state")
        else:
            self.slot_low = self.slot_high = np.empty((0, n_slots))
        self.begin = an_array("slots.begin", given.begin, (self.n_rows,), 0, n_slots)
        self.used = an_array("slots.used", given.used, (self.n_rows,), 1)
        self.possible = an_array("slots.possible", given.possible, (self.n_rows,), 1)
        if np.any(self.begin + self.used > n_slots):
            raise Rejected(f"slots.used must not lead beyond the {n_slots} slots")
        # Whether rewards are learned; the last state is then the absorbing end.
        self.black_box = self.rewards is None and bool((self.slot_successor == self.n_states).any())
        self.rewards_tell_outcomes = self.black_box and not self.random_rewards  # of one next state
        for layer in self.layers:
            # Rows may share slots, but a small file may not cause unlimited work.
            if self.used[layer.start : layer.stop].sum() > _SHARED_SLOTS * len(layer) + n_slots:
                raise Rejected(f"slots are inconsistent: rows list the same of {n_slots} slots again and again")

    @property
    def declared_range(self) -> tuple[float, float]:
        """The declared range of the rewards of an environment."""
        return float(self.slot_low[0, 0]), float(self.slot_high[0, 0])

    @cached_property
    def powers(self) -> list[tuple[Fraction, Fraction]]:
        """Bounds on the weight of a reward at each step, and after the last one: γ^h if returns are discounted."""
        up, down = (self.discount or 1.0).as_integer_ratio()
        below, above = [1 << _BITS], [1 << _BITS]
        for _ in range(self.horizon):
            below.append(below[-1] * up // down)
            above.append(-(-above[-1] * up // down))
        return [(Fraction(a, 1 << _BITS), Fraction(b, 1 << _BITS)) for a, b in zip(below, above, strict=True)]

    @cached_property
    def durations(self) -> tuple[Fraction, Fraction]:
        """Bounds on the return of a reward of 1 at every step before the horizon."""
        below, above = zip(*self.powers[:-1], strict=True)
        return sum(below, Fraction(0)), sum(above, Fraction(0))

    @cached_property
    def tail(self) -> tuple[Fraction, Fraction]:
        """Bounds on what rewards add up to after the horizon, where discounted returns never end."""
        if self.discount is None:
            return Fraction(0), Fraction(0)
        shares, (low, high) = [power / (1 - Fraction(self.discount)) for power in self.powers[-1]], self.reward_range
        return min(Fraction(low) * share for share in shares), max(Fraction(high) * share for share in shares)

    def power(self, step: int) -> Interval:
        """Return the interval of the weight of a reward at a step."""
        least, most = self.powers[step]
        return Interval(Interval.of(least).low, Interval.of(most).high)

    @cached_property
    def most(self) -> np.ndarray:
        """The largest number of different outcomes of each row; ``max_successors`` is not about the start."""
        most = self.possible if self.max_successors is None else np.minimum(self.max_successors, self.possible)
        of_start = np.minimum(self.possible, 1) if self.start == "fixed" else self.possible
        return np.where(self.is_start(np.arange(self.n_rows)), of_start, most)

    def rows(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the rows of the actions in some states at planned step ``h``, an array (states, actions)."""
        if self.random_start and h == 0:
            return np.full((len(states), 1), self.n_rows - 1)
        return self.layer(h).start + states[:, None] * self.n_actions + np.arange(self.n_actions)

    def permitted(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return which actions may be played in some states at planned step ``h``, an array (states, actions)."""
        step = h - self.random_start
        if self.allowed is None or step < 0:
            return np.ones(self.rows(h, states).shape, dtype=bool)
        return self.allowed[step if len(self.allowed) > 1 else 0][states]

    def playable(self, h: int, states: np.ndarray) -> np.ndarray:
        """Return the rows that may be played there; masks that come with observations count as if they allowed all."""
        rows = self.rows(h, states)
        return rows.ravel() if self.offered else rows[self.permitted(h, states)]

    @cached_property
    def layers(self) -> list[range]:
        """The rows of each step, or of all steps if counts are pooled, and by itself the row of a random start."""
        pairs = self.n_states * self.n_actions
        steps = [range(first, first + pairs) for first in range(0, self.n_rows - self.random_start, pairs)]
        return [*steps, range(self.n_rows - 1, self.n_rows)] if self.random_start else steps

    def layer(self, h: int) -> range:
        """Return the rows of planned step ``h``."""
        if self.random_start and h == 0:
            return self.layers[-1]
        return self.layers[0 if self.stationary else h - self.random_start]

    def slots_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of some rows: for each slot the index of its row in ``rows``, and its own number."""
        used = self.used[rows]
        owner = np.repeat(np.arange(len(rows)), used)
        first = np.repeat(self.begin[rows] - (np.cumsum(used) - used), used)
        return owner, first + np.arange(len(owner))

    def is_start(self, row: Any) -> Any:
        """Return whether a row, or each of several, is that of a random start."""
        return self.random_start & (row == self.n_rows - 1)

    def state_of(self, row: Any) -> Any:
        return row // self.n_actions % self.n_states

    def describe(self, row: int) -> str:
        """Return the step, the state and the action of a row."""
        if self.is_start(row):
            return "the random start"
        step = "" if self.stationary else f"step {row // (self.n_states * self.n_actions)}, "
        return f"{step}state {self.state_of(row)}, action {row % self.n_actions}"

    def refuse(self, refused: np.ndarray, rows: np.ndarray, reason: str, *values: np.ndarray) -> None:
        """Reject the first of ``rows`` that is ``refused``, with its description and its ``values`` in the ``reason``."""
        if refused.any():
            i = int(np.argmax(refused))
            raise Rejected(reason.format(self.describe(int(rows[i])), *(value[i] for value in values)))

    def rewards_at(self, h: int, states: np.ndarray) -> Any:
        """Return known rewards at planned step ``h``; None at the artificial step, or if they depend on the next state."""
        step = h - self.random_start
        return None if self.rewards is None or step < 0 else self.rewards[step if len(self.rewards) > 1 else 0][states]

    @cached_property
    def reachable(self) -> list[np.ndarray]:
        """The states that can be occupied at each planned step under the declared successors."""
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
        """The smallest and the largest reward that is declared possible."""
        low, high = (self.slot_low, self.slot_high) if self.rewards is None else (self.rewards, self.rewards)
        return float(min(low.min(), high.min())), float(max(low.max(), high.max()))
