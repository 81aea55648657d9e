"""The problem as the file states it: sizes, β, ε, δ, the known rewards, and what each row of the kernel may do."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from entropic_bpi.verification._file import Rejected, a_list, a_number, an_integer, one_of
from reference.verifier._intervals import LARGEST_EXPONENT, Interval
from reference.verifier._noise import Noise

# A step of a black box may end with up to 8 different rewards and lead back to the same state with up to 2.
END_REWARDS, STAY_REWARDS = 8, 2
# At how many λ random rewards are learned for the entropic value at risk.
_DECLARED_LAMS = 256
# What returns are at most, and rewards that differ differ by at least, so that squares of them are doubles.
_LARGEST_RETURN, _SMALLEST_RANGE = 1e150, 1e-150


_BITS = 256  # behind the point, of powers of γ


class Discount:
    """γ, and its powers between two fractions."""

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

    @lru_cache(maxsize=100_000)  # noqa: B019  (one for each claim, and gone with it)
    def power(self, beta: float, step: int, reward: float, origin: float) -> Interval:
        """e^{βγ^h(reward - origin)}."""
        exponent = Fraction(beta) * (Fraction(reward) - Fraction(origin))
        ends = [Interval.of(exponent * factor) for factor in self.powers[step]]
        return Interval(min(end.low for end in ends), max(end.high for end in ends)).exp()


class Problem:
    """A problem, checked for shape and kept as plain lists.

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
        # What identifies them, where other names are declared.
        self.state_labels, self.action_labels = self.state_names, self.action_names
        if given["state_labels"] is not None:
            self.state_labels = _different_names("state_labels", given["state_labels"], self.n_states)
        if given["action_labels"] is not None:
            self.action_labels = _different_names("action_labels", given["action_labels"], self.n_actions)
        for name in ("unit", "title"):
            if not isinstance(given[name], str | None):
                raise Rejected(f"{name} must be a string, got {given[name]!r:.80}")
        self.max_states = given["max_states"]
        if self.max_states is not None:
            an_integer("max_states", self.max_states, 1)
        self.reward_law = one_of("reward_law", given["reward_law"], ("fixed", "random", "random-pair"))
        self.rewards: list[list[list[float]]] | None = None
        if given["rewards"] is not None:
            steps = a_list("rewards", given["rewards"])
            self._one_or_all("rewards", steps)
            self.rewards = [
                [
                    [a_number("a reward", r) for r in a_list("rewards", row, self.n_actions)]
                    for row in a_list("rewards", step, self.n_states)
                ]
                for step in steps
            ]
        self._read_slots(given["slots"])
        self._read_masks(given["allowed"])
        self.explored = None
        if given["explored"] is not None:
            raise Rejected("this reference does not know explorations")
        if (given["noise"] is None) == (self.successors == "noise"):
            raise Rejected("successors are those of the noise where that is declared, and nowhere else")
        self.noise = None if given["noise"] is None else Noise(self, given["noise"])
        self.known_reward = one_of("reward", given["reward"], (None, True)) is True
        if self.known_reward and (
            not self.black_box or self.random_rewards or self.noise or self.max_states is not None
        ):
            raise Rejected("known rewards that nobody can have declared")
        low, high = self.reward_range
        if 0.0 < high - low < _SMALLEST_RANGE or not max(-low, high) * self.horizon <= _LARGEST_RETURN:
            raise Rejected(f"rewards from {low:g} to {high:g} over {self.horizon} steps leave the range of doubles")
        self.discount = given["discount"]
        self.discounting = None if self.discount is None else Discount(self.discount, self.horizon)
        if self.discount is not None and len(self.rewards or self.slot_low) > 1:
            raise Rejected("discounted rewards must be the same at every step")
        most, returns = given["max_successors"], given["return_range"]
        self.max_successors = None if most is None else an_integer("max_successors", most, 1)
        if self.noise and most is not None:
            raise Rejected("noise says how many outcomes there are")
        self.return_range: tuple[float, float] | None = None
        if returns is not None:
            least, largest = (a_number("return_range", end) for end in a_list("return_range", returns, 2))
            if not (self.black_box and -_LARGEST_RETURN <= least <= largest <= _LARGEST_RETURN):
                raise Rejected(f"return_range must be a range, and of an environment, got {returns}")
            self.return_range = least, largest
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

    def _read_risk(self, given: dict[str, Any]) -> None:
        """The risk parameter β, or the level α of the entropic value at risk, and the λ that were declared for it."""
        alpha, lams = given["alpha"], given["lams"]
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

    def _read_masks(self, given: Any) -> None:
        """Which actions are allowed at each step and state; those that were offered came with the observations."""
        self.allowed, self.offered = None, False
        if given is None:
            return
        masks = given
        self.offered, steps = one_of("allowed.offered", masks["offered"], (True, False)), masks["table"]
        self._one_or_all("allowed", a_list("allowed", steps))
        for step in steps:
            for s, mask in enumerate(a_list("allowed", step, self.n_states)):
                flags = [an_integer("allowed", flag, 0, 1) for flag in a_list("allowed", mask, self.n_actions)]
                if not any(flags) or (self.black_box and s == self.n_states - 1 and not all(flags)):
                    raise Rejected(f"the mask of state {s} is {flags}")
        if self.offered and (not self.black_box or len(steps) > 1):
            raise Rejected("masks that nobody can have offered")
        self.allowed = np.array(steps, dtype=bool)

    def is_allowed(self, h: int, s: int, a: int) -> bool:
        """Whether an action may be played at planned step ``h``."""
        step = h - self.random_start
        return self.allowed is None or step < 0 or bool(self.allowed[step if len(self.allowed) > 1 else 0, s, a])

    def allowed_actions(self, h: int, s: int) -> list[int]:
        return [a for a in self.actions(h) if self.is_allowed(h, s, a)]

    def rows_at(self, h: int, s: int) -> set[int]:
        """The rows that may have to be learned, by what is known before the first episode."""
        actions = self.actions(h) if self.offered else self.allowed_actions(h, s)
        return {self.row(h, s, a) for a in actions}

    def _one_or_all(self, name: str, steps: list[Any]) -> None:
        if len(steps) not in (1, self.horizon):
            raise Rejected(f"{name} must have 1 or horizon = {self.horizon} steps, got {len(steps)}")

    def _read_slots(self, given: dict[str, Any]) -> None:
        self.n_rows = self.n_states * self.n_actions * (1 if self.stationary else self.horizon) + self.random_start
        name = "slots.successor"
        successor = [an_integer(name, y, 0, self.n_states) for y in a_list(name, given["successor"])]
        self.slot_successor = successor
        ends = {}
        for name in ("low", "high"):
            steps = a_list(f"slots.{name}", given[name])
            if self.rewards is None:
                self._one_or_all(f"slots.{name}", steps)
            elif steps:
                raise Rejected(f"slots.{name} must be empty: rewards do not depend on the next state")
            steps = [a_list(f"slots.{name}", step, len(successor)) for step in steps]
            ends[name] = [[a_number("a reward", r) for r in step] for step in steps]
        self.slot_low, self.slot_high = ends["low"], ends["high"]
        columns = [a_list(f"slots.{name}", given[name], self.n_rows) for name in ("begin", "used", "possible")]
        self.possible: list[int] = []
        self.row_slots: list[range] = []
        for begin, used, possible in zip(*columns, strict=True):
            an_integer("slots.begin", begin, 0, len(successor))
            an_integer("slots.used", used, 1, len(successor) - begin)
            self.row_slots.append(range(begin, begin + used))
            self.possible.append(an_integer("slots.possible", possible, 1))

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
        return self.rewards is None and self.n_states in self.slot_successor

    @property
    def rewards_tell_outcomes(self) -> bool:
        """Whether another reward is another outcome: where rewards are learned and fixed."""
        return self.black_box and not self.random_rewards

    @property
    def random_rewards(self) -> bool:
        return self.reward_law != "fixed"

    @property
    def declared_range(self) -> tuple[float, float]:
        """Where the rewards of a black box lie."""
        return self.slot_low[0][0], self.slot_high[0][0]

    def most(self, row: int) -> int:
        """How many different outcomes a row has at most; what is declared of the others does not concern the start."""
        if self.is_start(row):
            return 1 if self.start == "fixed" else self.possible[row]
        if self.max_successors is None:
            return self.possible[row]
        return min(self.max_successors, self.possible[row])

    def reward_kinds(self, row: int, y: int) -> int:
        """How many different rewards an environment may pay on the way from a row to state ``y``.

        Where successors are declared, as many as the state is listed times.
        """
        if not self.black_box or self.random_rewards or self.is_start(row):
            return 1
        if self.successors != "unknown":
            return sum(self.slot_successor[j] == y for j in self.row_slots[row])
        return END_REWARDS if y == self.n_states - 1 else STAY_REWARDS if y == self.state_of(row) else 1

    def row(self, h: int, s: int, a: int) -> int:
        """The row of a place at planned step ``h``."""
        if self.random_start and h == 0:
            return self.n_rows - 1
        step = 0 if self.stationary else h - self.random_start
        return (step * self.n_states + s) * self.n_actions + a

    def is_start(self, row: int) -> bool:
        return self.random_start and row == self.n_rows - 1

    def state_of(self, row: int) -> int:
        return row // self.n_actions % self.n_states

    def step_of(self, row: int) -> int:
        return row // (self.n_states * self.n_actions)

    def describe(self, row: int) -> str:
        if self.is_start(row):
            return "the first state"
        step = self.step_of(row)
        where = f"state {self.state_of(row)}, action {row % self.n_actions}"
        return where if self.stationary else f"step {step}, {where}"

    def actions(self, h: int) -> range:
        return range(1 if self.random_start and h == 0 else self.n_actions)

    def reward(self, h: int, s: int, a: int) -> float | None:
        """The known reward at planned step ``h``; none at the artificial step, or where the next state decides."""
        step = h - self.random_start
        if self.rewards is None or step < 0:
            return None
        return self.rewards[step if len(self.rewards) > 1 else 0][s][a]

    @cached_property
    def reachable(self) -> list[list[int]]:
        """States that can be occupied at each planned step under the declared successors."""
        steps = [[self.first_state]]
        for h in range(self.steps - 1):
            if self.successors == "unknown" and not (h == 0 and isinstance(self.start, list)):
                steps.append(list(range(self.n_states)))
                continue
            rows = {row for s in steps[-1] for row in self.rows_at(h, s)}
            found = {self.slot_successor[j] for row in rows for j in self.row_slots[row]}
            steps.append(list(range(self.n_states)) if self.n_states in found else sorted(found))
        return steps

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest reward that is declared possible."""
        tables = self.slot_low + self.slot_high
        if self.rewards is not None:
            tables = [row for step in self.rewards for row in step]
        return min(map(min, tables)), max(map(max, tables))

    @property
    def duration(self) -> tuple[Fraction, Fraction]:
        """Between what a reward of 1 at every step adds up to."""
        return (Fraction(self.horizon),) * 2 if self.discounting is None else self.discounting.duration

    @cached_property
    def return_room(self) -> float:
        """What a return may miss its declared range by, for the rounding of sums."""
        low, high = self.reward_range
        return 1e-9 * ((high - low) * self.horizon)


def _different_names(name: str, value: Any, length: int) -> list[str]:
    names = a_list(name, value, length)
    if len(set(names)) < length:
        raise Rejected(f"{name} must all be different")
    return names
