r"""Check a certificate again, from its counts alone.

This page is meant to be read by a sceptic. It shares no code with the learner: it reads the JSON file, checks that the
counts can be those of the stated number of episodes, computes the bounds anew, and compares them with the claim. Plain
Python, no arrays, no compiled code.

**Rounding.** Floating point must not decide in favour of a claim. In the KL method every stored number is a bound from one
side, and every operation is rounded to that side, so what comes out is implied by the counts in exact arithmetic. The
recursion of the Bernstein method is not monotone; there every number is an interval that contains the exact one.

**KL method.** With probability :math:`1-\delta` every row of the kernel lies in its ball
:math:`\{q:\mathrm{KL}(\hat p,q)\le x\}`, :math:`x=(\log(P/\delta)+R_{mix})/n`. By weak duality, *every* :math:`w>0` gives a
bound on the largest mean over a ball,

.. math:: \max_{q} q f \;\le\; M - w\Big(\exp\big(\textstyle\sum_i\hat p_i\log(1+d_i/w) - x\big) - 1\Big),\qquad
          M=\max f,\quad d=M-f,

so a good :math:`w` is found with ordinary floats and the bound is evaluated once, rounded up; its limit for
:math:`w\to0` is :math:`M-\exp(\sum\hat p\log d-x)`. From these bounds, backwards:
:math:`Z^o` bounds the optimum, :math:`Z^p` the stated policy, and :math:`\rho` the ratio of the two.

**Bernstein method.** The recursion of the paper with its machine-checked constants, or with the sharper ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from entropic_bpi.errors import InvalidProblemError

__all__ = ["Verification", "verify"]

_FORMAT, _VERSION = "entropic-bpi certificate", 2
_LARGEST_INTEGER = 2**53  # beyond, integers are not exact as floats
_LARGEST_EXPONENT = 600.0  # of e^{βr}, which must stay a float
_SMALLEST_EXPONENT = 1e-5  # of |β|·range in the KL method; below, a nearby β is used and the claim widened
_SMALL_EXPONENT = 1.0  # of |β|H in the Bernstein method; below, (Z - 1)/|β| keeps digits that Z would lose
_ZERO_BETA = 1e-200
_MAX_SHARED = 3
_ALWAYS_AFFORDED = 2**26  # bytes of memory that any file may take
# The learner does not round the claims of the Bernstein method outwards: so much of the range of the return is forgiven,
# but no more than the width of the interval that the bound is known to lie in.
_FORGIVEN = 1e-12
# A step of a black box may end with up to 8 different rewards and lead back to the same state with up to 2.
_END_REWARDS, _STAY_REWARDS = 8, 2


@dataclass(frozen=True)
class Verification:
    """What the counts of a certificate imply.

    Attributes
    ----------
    ok : bool
        Whether the file is sound and its counts imply the claim.
    lower, upper, gap : float
        The bounds that the counts imply for the stated policy, NaN where they could not be derived: with probability at
        least 1 - δ, lower ≤ V^π, V* ≤ upper and V* - V^π ≤ gap.
    problems : list of str
        What is wrong; empty if ``ok``.
    """

    ok: bool
    lower: float
    upper: float
    gap: float
    problems: list[str] = field(default_factory=list)


class _Rejected(Exception):
    """The file cannot be checked further; the message says why."""


def verify(certificate_or_path: Any) -> Verification:
    """Recompute the bounds of a certificate from its counts and compare them with its claim.

    Parameters
    ----------
    certificate_or_path : Certificate, str or path
        A certificate, or the JSON file that it was saved to.

    Returns
    -------
    Verification
        Whatever is wrong with a file is among its ``problems``; no file makes this function fail.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.verification import verify
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, successors="model", seed=1)
    >>> verify(result.certificate).ok
    True
    """
    is_certificate = hasattr(certificate_or_path, "_content")
    if not is_certificate and not isinstance(certificate_or_path, (str, os.PathLike)):
        given = type(certificate_or_path).__name__
        raise InvalidProblemError(f"verify needs a certificate or the path of one, got {given}")
    nothing = (math.nan, math.nan, math.nan)
    try:
        claim = _Claim(_content(certificate_or_path))
        problems = _unbalanced(claim)
        bounds = _kl_bounds(claim) if claim.method == "kl" else _bernstein_bounds(claim)
    except _Rejected as reason:
        return Verification(False, *nothing, [str(reason)])
    except Exception as error:  # whatever a hostile file provokes, it is not verified
        return Verification(False, *nothing, [f"the bounds cannot be computed: {error!r}"])
    problems += bounds.problems + _not_implied(claim, bounds)
    return Verification(not problems, bounds.lower, bounds.upper, bounds.gap, problems)


@dataclass(frozen=True)
class _Bounds:
    """What the counts imply. ``slack`` (lower, upper, gap) is by how much a claim may differ and be called rounded."""

    lower: float
    upper: float
    gap: float
    slack: tuple[float, ...] = (0.0, 0.0, 0.0)
    problems: list[str] = field(default_factory=list)


def _not_implied(claim: _Claim, bounds: _Bounds) -> list[str]:
    """The parts of the claim that go beyond the bounds."""
    said, problems, slack = claim.claimed, [], bounds.slack
    if not said["lower"] <= bounds.lower + slack[0]:
        problems.append(f"lower: {said['lower']!r} is claimed, but the counts imply only {bounds.lower!r}")
    if not said["upper"] >= bounds.upper - slack[1]:
        problems.append(f"upper: {said['upper']!r} is claimed, but the counts imply only {bounds.upper!r}")
    if not said["gap"] >= bounds.gap - slack[2]:
        problems.append(f"gap: {said['gap']!r} is claimed, but the counts imply only {bounds.gap!r}")
    if claim.reached != (said["gap"] <= claim.eps):
        problems.append(f"reached: {claim.reached} is claimed, but the gap is {said['gap']!r} and eps is {claim.eps!r}")
    return problems


# -- reading the file ------------------------------------------------------------------------------------------

_KEYS = {
    "the certificate": (
        ("format", "version", "library", "problem", "method", "constants", "circumstances", "assumptions", "policy")
        + ("counts", "claim")
    ),
    "problem": (
        ("n_states", "n_actions", "horizon", "start", "beta", "eps", "delta", "stationary", "successors", "rewards")
        + ("slots", "state_names", "action_names", "source")
    ),
    "slots": ("begin", "used", "successor", "low", "high", "possible"),
    "circumstances": ("batches", "ignored", "errors", "announcement"),
    "counts": ("episodes", "rows", "successors", "times", "rewards"),
    "claim": ("lower", "upper", "gap", "reached"),
}


def _content(source: Any) -> dict[str, Any]:
    """The JSON content of a certificate, or of the file that it is in."""
    if hasattr(source, "_content"):
        try:
            return json.loads(json.dumps(source._content()))
        except (TypeError, ValueError) as error:
            raise _Rejected(f"the certificate cannot be written as JSON: {error}") from None
    path = Path(source)
    try:
        content = _parse(path.read_bytes())
    except FileNotFoundError:
        raise _Rejected(f"no such file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _Rejected(f"{path} is not a whole JSON file: {error}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _Rejected(f"{path} is not a certificate of entropic-bpi")
    if content.get("version") != _VERSION:
        raise _Rejected(f"unknown version {content.get('version')!r:.80}: this library checks version {_VERSION}")
    digest = content.pop("digest", None)
    if digest != hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest():
        raise _Rejected("the digest does not match: the file was changed after it was written")
    return content


def _parse(data: bytes) -> Any:
    # In memory a list or an object takes about 100 bytes and a number 40, however few it takes in the file.
    needed = 100 * (data.count(b"[") + data.count(b"{")) + 40 * data.count(b",")
    if needed > 20 * len(data) + _ALWAYS_AFFORDED:
        raise ValueError(f"its {len(data)} bytes would take {needed} in memory")
    return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two equal ones, some readers take the first and some the last."""
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the key {key!r:.80} is there {times} times")
    return dict(pairs)


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Rejected(f"{name} must be an object, got {value!r:.80}")
    for key in _KEYS[name]:
        if key not in value:
            raise _Rejected(f"{name} lacks {key!r}")
    for key in value:
        if key not in _KEYS[name]:
            raise _Rejected(f"{name} has an unknown key {key!r:.80}")
    return value


def _integer(name: str, value: Any, least: int, most: int = _LARGEST_INTEGER) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _Rejected(f"{name} must be an integer from {least} to {most}, got {value!r:.80}")
    return value


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e300:
        raise _Rejected(f"{name} must be a finite number, got {value!r:.80}")
    return float(value)


def _list(name: str, value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        size = "" if length is None else f" of length {length}"
        raise _Rejected(f"{name} must be a list{size}, got {value!r:.80}")
    return value


def _choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise _Rejected(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r:.80}")
    return value


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _Rejected(f"{name} must be a string, got {value!r:.80}")
    return value


def _names(name: str, value: Any, length: int) -> list[str]:
    names = [_string(name, item) for item in _list(name, value, length)]
    if len(set(names)) < length:
        raise _Rejected(f"{name} must all be different")
    return names


def _numbered(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def _observations(names: list[str]) -> list[str]:
    """The names of an environment's states: observations in order, single numbers or tuples of them, and the end."""
    last = re.findall("[0-9]+", names[-2]) if len(names) > 1 else []
    sizes = [int(number) + 1 for number in last]
    if math.prod(sizes) != len(names) - 1:
        return []
    if len(sizes) == 1:
        return [*_numbered(sizes[0]), "end"]
    return [*map(str, product(*map(range, sizes))), "end"]


class _Claim:
    """A certificate's content, checked for shape and kept as plain lists.

    ``planned steps`` include the artificial first step of a random start: one state (0), one action, reward 0; its row is
    the last one.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        content = _object("the certificate", content)
        problem = _object("problem", content["problem"])
        _string("library", content["library"])
        self._read_problem(problem)
        self._read_slots(_object("slots", problem["slots"]))
        self.method = _choice("method", content["method"], ("kl", "bernstein"))
        wanted = (None,) if self.method == "kl" else ("verified", "sharp")
        self.constants = _choice(f"constants of method {self.method!r}", content["constants"], wanted)
        self.policy = self._read_policy(content["policy"])
        self._read_counts(_object("counts", content["counts"]))
        self._read_circumstances(_object("circumstances", content["circumstances"]))
        self._read_claim(_object("claim", content["claim"]))
        if content["assumptions"] != self.assumptions:
            raise _Rejected(f"the assumptions are not those of such a claim, which are: {self.assumptions!r}")

    def _read_problem(self, given: dict[str, Any]) -> None:
        self.n_states = _integer("n_states", given["n_states"], 1)
        self.n_actions = _integer("n_actions", given["n_actions"], 1)
        self.horizon = _integer("horizon", given["horizon"], 1)
        start = given["start"]
        self.start = None if start is None else _integer("start", start, 0, self.n_states - 1)
        self.beta, self.delta = _real("beta", given["beta"]), _real("delta", given["delta"])
        if not 0 < self.delta < 1:
            raise _Rejected(f"delta must lie strictly between 0 and 1, got {self.delta}")
        self.eps = _real("eps", given["eps"])
        if not self.eps > 0:
            raise _Rejected(f"eps must be greater than 0, got {self.eps}")
        self.stationary = _choice("stationary", given["stationary"], (True, False))
        self.successors = _choice("successors", given["successors"], ("unknown", "model", "mask"))
        self.state_names = _names("state_names", given["state_names"], self.n_states)
        self.action_names = _names("action_names", given["action_names"], self.n_actions)
        _string("source", given["source"])
        self.rewards: list[list[list[float]]] | None = None
        if given["rewards"] is not None:
            steps = _list("rewards", given["rewards"])
            self._one_or_all("rewards", steps)
            self.rewards = [
                [
                    [_real("a reward", r) for r in _list("rewards", row, self.n_actions)]
                    for row in _list("rewards", step, self.n_states)
                ]
                for step in steps
            ]

    def _one_or_all(self, name: str, steps: list[Any]) -> None:
        if len(steps) not in (1, self.horizon):
            raise _Rejected(f"{name} must have 1 or horizon = {self.horizon} steps, got {len(steps)}")

    def _read_slots(self, given: dict[str, Any]) -> None:
        self.n_rows = self.n_states * self.n_actions * (1 if self.stationary else self.horizon) + self.random_start
        name = "slots.successor"
        successor = [_integer(name, y, 0, self.n_states) for y in _list(name, given["successor"])]
        self.slot_successor = successor
        ends = {}
        for name in ("low", "high"):
            steps = _list(f"slots.{name}", given[name])
            if self.rewards is None:
                self._one_or_all(f"slots.{name}", steps)
            elif steps:
                raise _Rejected(f"slots.{name} must be empty: rewards do not depend on the next state")
            steps = [_list(f"slots.{name}", step, len(successor)) for step in steps]
            ends[name] = [[_real("a reward", r) for r in step] for step in steps]
        self.slot_low, self.slot_high = ends["low"], ends["high"]
        columns = [_list(f"slots.{name}", given[name], self.n_rows) for name in ("begin", "used", "possible")]
        self.possible: list[int] = []
        self.row_slots: list[range] = []
        for begin, used, possible in zip(*columns, strict=True):
            _integer("slots.begin", begin, 0, len(successor))
            _integer("slots.used", used, 1, len(successor) - begin)
            self.row_slots.append(range(begin, begin + used))
            self.possible.append(_integer("slots.possible", possible, 1))
        if self.black_box:
            self._check_black_box()
            return
        if self.slot_low != self.slot_high:
            raise _Rejected("slots are inconsistent: low differs from high, but rewards are known")
        for row in range(self.n_rows):
            self._check_row(row)

    def _check_row(self, row: int) -> None:
        """Whether what a row may do is as declared."""
        slots, n = self.row_slots[row], self.n_states
        declared = [self.slot_successor[j] for j in slots]
        if n in declared:
            needed, sound = n, declared == [n] and self.successors == "unknown"
        else:
            needed = len(declared)
            sound = len(set(declared)) == needed and (self.successors != "unknown" or needed == n)
        if self.is_start(row):
            # It pays nothing, which is written as the smallest reward.
            sound = sound and all(table[j] == self.reward_range[0] for table in self.slot_low for j in slots)
        if not sound or self.possible[row] != needed:
            raise _Rejected(f"slots are inconsistent: {self.place(row)} does not list the declared successors")

    def _check_black_box(self) -> None:
        """Whether nothing is declared but sizes and one range of rewards: everything else follows from these.

        Three slots serve all rows: anything not seen yet, the end that stays the end and pays nothing, and a start not
        seen yet, which pays nothing either, written as the smallest reward.
        """
        end, low, high = self.n_states - 1, self.slot_low[0][0], self.slot_high[0][0]
        if not low <= high:
            raise _Rejected(f"rewards must lie in a range, got {low} to {high}")
        slots = [self.slot_successor, self.slot_low, self.slot_high]
        nothing = min(low, 0.0)
        places = [int(self.state_of(row) == end) for row in range(self.n_rows - 1)]
        outcomes = end - 1 + _END_REWARDS + _STAY_REWARDS
        sound = (
            self.random_start
            and self.successors == "unknown"
            and slots == [[end + 1, end, end + 1], [[low, 0.0, nothing]], [[high, 0.0, nothing]]]
            and self.row_slots == [range(i, i + 1) for i in [*places, 2]]
            and self.possible == [*(1 if at_end else outcomes for at_end in places), end]
        )
        if not sound:
            raise _Rejected("slots are inconsistent: an environment has one range of rewards and may go anywhere")
        if self.state_names != _observations(self.state_names) or self.action_names != _numbered(self.n_actions):
            raise _Rejected(
                "state_names and action_names of an environment must be its observations and actions in order"
            )

    def _read_policy(self, given: Any) -> list[list[int]]:
        return [
            [_integer("policy", a, 0, self.n_actions - 1) for a in _list("policy", step, self.n_states)]
            for step in _list("policy", given, self.horizon)
        ]

    def _read_counts(self, given: dict[str, Any]) -> None:
        """``seen[row]`` maps each outcome (successor, reward) of a row to how often it was seen."""
        self.episodes = _integer("counts.episodes", given["episodes"], 0)
        rows = _list("counts.rows", given["rows"])
        successors, times = (_list(f"counts.{name}", given[name], len(rows)) for name in ("successors", "times"))
        rewards = _list("counts.rewards", given["rewards"], len(rows) if self.black_box else 0) or [None] * len(rows)
        self.seen: dict[int, dict[tuple[int, float | None], int]] = {}
        for row, y, count, reward in zip(rows, successors, times, rewards, strict=True):
            _integer("counts.rows", row, 0, self.n_rows - 1)
            _integer("counts.successors", y, 0, self.n_states - 1)
            _integer("counts.times", count, 1)
            outcome = y, self._reward_seen(row, reward)
            if outcome in self.seen.setdefault(row, {}):
                raise _Rejected(f"counts list {self.place(row)} to state {y} twice")
            self.seen[row][outcome] = count
        for row in self.seen:
            self._check_seen(row)

    def _reward_seen(self, row: int, reward: Any) -> float | None:
        """The reward of a seen outcome where rewards are learned; where they are known it says nothing."""
        if not self.black_box:
            return None
        slot = self.row_slots[row][0]
        low, high = self.slot_low[0][slot], self.slot_high[0][slot]
        value = _real("counts.rewards", reward)
        if not low <= value <= high:
            raise _Rejected(f"reward {value} was seen in {self.place(row)}, outside its range from {low} to {high}")
        return value

    def _check_seen(self, row: int) -> None:
        if self.black_box and self.state_of(row) == self.n_states - 1 and not self.is_start(row):
            raise _Rejected(f"counts after the end: nothing is played in {self.place(row)}")
        declared = {self.slot_successor[j] for j in self.row_slots[row]}
        kinds: dict[int, int] = {}
        for y, _ in self.seen[row]:
            kinds[y] = kinds.get(y, 0) + 1
            starts_at_end = self.black_box and self.is_start(row) and y == self.n_states - 1
            if starts_at_end or (y not in declared and self.n_states not in declared):
                raise _Rejected(f"counts outside the declared successors: {self.place(row)} went to state {y}")
            allowed = 1
            if self.black_box and y == self.n_states - 1:
                allowed = _END_REWARDS
            elif self.black_box and y == self.state_of(row):
                allowed = _STAY_REWARDS
            if kinds[y] > allowed:
                raise _Rejected(f"{self.place(row)} to state {y} has more different rewards than are allowed")

    def _read_circumstances(self, given: dict[str, Any]) -> None:
        self.batches = _choice("circumstances.batches", given["batches"], (True, False))
        ignored = _list("circumstances.ignored", given["ignored"])
        self.ignored = [name for name in ("stationary", "successors") if name in ignored]
        if ignored != self.ignored:
            raise _Rejected(
                f"circumstances.ignored must name 'stationary' and 'successors' in order, got {ignored!r:.80}"
            )
        if self.constants == "verified" and (self.stationary or self.successors != "unknown"):
            raise _Rejected("constants 'verified' use neither stationary transitions nor declared successors")
        if self.constants != "verified" and ignored:
            raise _Rejected("circumstances.ignored must be empty: only constants 'verified' ignore a declaration")
        self.errors = _integer("circumstances.errors", given["errors"], 0)
        digest = given["announcement"]
        if digest is not None and not re.fullmatch("[0-9a-f]{64}", _string("circumstances.announcement", digest)):
            raise _Rejected(f"circumstances.announcement must be a digest of 64 hexadecimal digits, got {digest!r:.80}")

    def _read_claim(self, given: dict[str, Any]) -> None:
        self.claimed = {name: _real(f"claim.{name}", given[name]) for name in ("lower", "upper", "gap")}
        self.reached = _choice("claim.reached", given["reached"], (True, False))

    @cached_property
    def assumptions(self) -> list[str]:
        """What the claim rests on, in the words that every certificate of such a problem has."""
        low, high = self.reward_range
        if self.black_box:
            rewards = (
                f"rewards lie in [{self.slot_low[0][0]:g}, {self.slot_high[0][0]:g}] and are determined by state, action "
                f"and next state, except that an ending may have {_END_REWARDS} different ones and a step back to the same "
                f"state {_STAY_REWARDS}"
            )
        elif self.rewards is None:
            rewards = "rewards are known, a function of state, action and next state"
        else:
            rewards = "rewards are known, a function of state and action"
        sentences = [
            "episodes are independent runs of one finite Markov decision process, and "
            + ("no other was discarded" if self.errors else "none was discarded"),
            f"transitions {'are the same at every' if self.stationary else 'may differ from step to'} step",
            {
                "unknown": "any state may follow any state and action",
                "model": "the possible next states are those of the model (their probabilities are not used)",
                "mask": "the possible next states are those of the declared mask",
            }[self.successors],
            rewards,
            "the start is random; its distribution is learned as an artificial first step"
            if self.start is None
            else f"every episode starts in state {self.state_names[self.start]}",
        ]
        if self.ignored:
            sentences.append(f"constants='verified' ignores {' and '.join(self.ignored)}")
        on_paper = {
            "plans and tests in batches": self.batches,
            "rewards are rescaled to [0, 1]": low < 0 or high > 1,
            "the start is random": self.start is None,
        }
        if self.constants == "verified" and any(on_paper.values()):
            parts = ", ".join(part for part, holds in on_paper.items() if holds)
            sentences.append(
                f"the machine-checked theorem is about the run without: {parts}; here the guarantee rests on the proof on "
                "paper"
            )
        if self.errors:
            often = "once" if self.errors == 1 else f"{self.errors} times"
            sentences.append(
                f"the environment raised an error {often} and the run went on: episodes may have been lost, but not "
                "because of what happened in them"
            )
        return sentences

    @property
    def random_start(self) -> bool:
        return self.start is None

    @property
    def steps(self) -> int:
        """Planned steps."""
        return self.horizon + self.random_start

    @cached_property
    def black_box(self) -> bool:
        """Whether rewards are learned; the last state is then the absorbing end."""
        return self.rewards is None and self.n_states in self.slot_successor

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

    def place(self, row: int) -> str:
        if self.is_start(row):
            return "the random start"
        step = row // (self.n_states * self.n_actions)
        where = f"state {self.state_of(row)}, action {row % self.n_actions}"
        return where if self.stationary else f"step {step}, {where}"

    def actions(self, h: int) -> range:
        return range(1 if self.random_start and h == 0 else self.n_actions)

    def action(self, h: int, s: int) -> int:
        """What the policy does at planned step ``h``."""
        return 0 if self.random_start and h == 0 else self.policy[h - self.random_start][s]

    def outcomes(self, row: int) -> list[tuple[int, int | None, float | None, int]]:
        """What a row may do: (successor, declared slot, reward seen, how often) for each possible outcome."""
        seen = dict(self.seen.get(row, {}))
        listed: list[tuple[int, int | None, float | None, int]] = []
        for slot in self.row_slots[row]:
            y = self.slot_successor[slot]
            listed.append((y, slot, None, 0 if y == self.n_states else self._take(seen, y)))
        return listed + [(y, None, reward, count) for (y, reward), count in seen.items()]

    @staticmethod
    def _take(seen: dict[tuple[int, float | None], int], y: int) -> int:
        """Remove the outcomes that lead to ``y`` and count them."""
        return sum(seen.pop(outcome) for outcome in list(seen) if outcome[0] == y)

    @cached_property
    def reachable(self) -> list[list[int]]:
        """States that can be occupied at each planned step under the declared successors."""
        steps = [[self.start or 0]]
        for h in range(self.steps - 1):
            if self.successors == "unknown":
                steps.append(list(range(self.n_states)))
                continue
            rows = {self.row(h, s, a) for s in steps[-1] for a in self.actions(h)}
            steps.append(sorted({self.slot_successor[j] for row in rows for j in self.row_slots[row]}))
        return steps

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest reward that is declared possible."""
        tables = self.slot_low + self.slot_high
        if self.rewards is not None:
            tables = [row for step in self.rewards for row in step]
        return min(map(min, tables)), max(map(max, tables))


# -- can these counts be those of so many episodes? ------------------------------------------------------------


def _unbalanced(claim: _Claim) -> list[str]:
    """Why the counts cannot be those of so many episodes.

    Per step the answer is complete: counts that leave each state as often as they enter it are a flow from step to step,
    and a flow falls apart into episodes. Of counts that are pooled over steps, conditions are checked that all episodes of
    so many steps satisfy; see :class:`_Pooled`.
    """
    n, pairs, problems = claim.n_states, claim.n_states * claim.n_actions, []
    starts = [0] * n
    if claim.start is None:
        for (y, _), count in claim.seen.get(claim.n_rows - 1, {}).items():
            starts[y] += count
    else:
        starts[claim.start] = claim.episodes
    layers = 1 if claim.stationary else claim.horizon
    moves: list[dict[tuple[int, int], int]] = [{} for _ in range(layers)]
    for row, outcomes in claim.seen.items():
        if not claim.is_start(row):
            layer, s = moves[row // pairs], claim.state_of(row)
            for (y, _), count in outcomes.items():
                layer[s, y] = layer.get((s, y), 0) + count
    into, begun = starts, sum(starts)
    for h, layer in enumerate(moves):
        arrivals, departures = [0] * n, [0] * n
        for (s, y), count in layer.items():
            departures[s] += count
            arrivals[y] += count
        if claim.stationary:
            into = [a + b for a, b in zip(starts, arrivals, strict=True)]
        elif h == 0 and claim.start is not None:
            begun = sum(departures)
        for s in range(n - claim.black_box):  # the end is never left
            if departures[s] > into[s] or (departures[s] < into[s] and not claim.stationary):
                where = f"state {s}" if claim.stationary else f"state {s} at step {h}"
                problems.append(f"counts do not balance: {into[s]} visits into {where}, {departures[s]} out of it")
        into = arrivals
    if begun != claim.episodes:
        problems.insert(0, f"counts do not balance: {begun} episodes began, but {claim.episodes} are claimed")
    if claim.stationary and not problems:
        problems = _Pooled(claim, starts, moves[0]).problems()
    return problems


class _Pooled:
    """Counts pooled over steps, as moves between states. With H the horizon, and distances in moves that were seen:

    - Whoever enters a set of states from a state at distance d from the starts moves at most H - d - 1 times in it before
      leaving it, and whoever starts there H times. So visits that nothing leads to, too far away, or too many for those who
      come, show. Asked of every state, of all states at least d away, for each d, and of every group of connected states,
      which no episode leaves.
    - An episode that does not end moves H times, and one that ends in a state at distance d at least d + 1 times. So
      episodes that were cut short show. Asked of every group.
    """

    def __init__(self, claim: _Claim, starts: list[int], moves: dict[tuple[int, int], int]) -> None:
        end = claim.n_states - 1 if claim.black_box else claim.n_states
        self.starts, self.horizon = starts[:end], claim.horizon
        self.moves = {move: count for move, count in moves.items() if move[1] != end}
        self.endings = {move[0]: count for move, count in moves.items() if move[1] == end}
        self.departures = [self.endings.get(s, 0) for s in range(end)]
        for (s, _), count in self.moves.items():
            self.departures[s] += count

    def problems(self) -> list[str]:
        farther = ([d >= least for d in self.distances] for least in sorted(set(self.distances)))
        families = [range(len(self.starts)), self.groups, *farther]
        return [problem for family in families for problem in self._crowded(family)] + self._cut_short()

    @cached_property
    def distances(self) -> list[int]:
        """The fewest moves from a start to each state; the horizon where there are not so few."""
        after: dict[int, list[int]] = {}
        for s, y in self.moves:
            after.setdefault(s, []).append(y)
        distances = [0 if count else self.horizon for count in self.starts]
        reached = [s for s, count in enumerate(self.starts) if count]
        for s in reached:
            for y in after.get(s, ()):
                if distances[s] + 1 < distances[y]:
                    distances[y] = distances[s] + 1
                    reached.append(y)
        return distances

    @cached_property
    def groups(self) -> list[int]:
        """A number for each state, the same for states that moves connect."""
        above = list(range(len(self.starts)))

        def top(s: int) -> int:
            while above[s] != s:
                above[s] = s = above[above[s]]
            return s

        for s, y in self.moves:
            above[top(s)] = top(y)
        return [top(s) for s in above]

    def _crowded(self, family: Sequence[int]) -> list[str]:
        """The sets (states with the same number in ``family``) that were left too often for those who came."""
        members: dict[int, list[int]] = {}
        for s, name in enumerate(family):
            members.setdefault(name, []).append(s)
        entries = {name: sum(self.starts[s] for s in states) for name, states in members.items()}
        most = {name: count * self.horizon for name, count in entries.items()}
        for (s, y), count in self.moves.items():
            if family[s] != family[y]:
                entries[family[y]] += count
                most[family[y]] += count * max(0, self.horizon - self.distances[s] - 1)
        problems = []
        for name, states in members.items():
            departures = sum(self.departures[s] for s in states)
            if departures > most[name]:
                problems.append(
                    f"counts do not balance: {departures} moves in {_some(states)}, but {entries[name]} visits from the "
                    f"start or from elsewhere leave time for {most[name]} within {self.horizon} steps"
                )
        return problems

    def _cut_short(self) -> list[str]:
        """The groups whose episodes moved too seldom."""
        least: dict[int, int] = {}
        for s, count in enumerate(self.starts):
            ended = self.endings.get(s, 0)
            moves = (count - ended) * self.horizon + ended * (self.distances[s] + 1) - self.departures[s]
            least[self.groups[s]] = least.get(self.groups[s], 0) + moves
        return [
            f"counts do not balance: {missing} moves are missing among the states connected to state {group}, for "
            f"episodes of {self.horizon} steps"
            for group, missing in least.items()
            if missing > 0
        ]


def _some(states: list[int]) -> str:
    return f"state {states[0]}" if len(states) == 1 else f"the {len(states)} states from {states[0]} to {states[-1]}"


# -- rounding ----------------------------------------------------------------------------------------------------

# +, -, *, / and sqrt are correctly rounded (IEEE 754), so the next float is past the exact result. exp, log, log1p and
# expm1 are not: C libraries document errors of 1 or 2 units in the last place. They are given 4: |x|·2⁻⁵⁰ is at least that.
_ULPS = 2.0**-50


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


def _down(x: float) -> float:
    return math.nextafter(x, -math.inf)


def _toward(x: float, side: int) -> float:
    """The next float above (``side`` 1) or below (``side`` -1)."""
    return math.nextafter(x, side * math.inf)


def _above(x: float) -> float:
    return _up(x + abs(x) * _ULPS)


def _below(x: float) -> float:
    return _down(x - abs(x) * _ULPS)


class _Interval:
    """All numbers from ``low`` to ``high``; operations contain every result for every number of the operands."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    @classmethod
    def of(cls, x: _Interval | Fraction | float) -> _Interval:
        if isinstance(x, _Interval):
            return x
        nearest = float(x)
        exact = not isinstance(x, Fraction) or x == nearest
        return cls(nearest, nearest) if exact else cls(_down(nearest), _up(nearest))

    def __add__(self, other: _Interval | float) -> _Interval:
        other = _Interval.of(other)
        return _Interval(_down(self.low + other.low), _up(self.high + other.high))

    def __neg__(self) -> _Interval:
        return _Interval(-self.high, -self.low)

    def __sub__(self, other: _Interval | float) -> _Interval:
        return self + -_Interval.of(other)

    def __mul__(self, other: _Interval | float) -> _Interval:
        other = _Interval.of(other)
        ends = [x * y for x in (self.low, self.high) for y in (other.low, other.high)]
        return _Interval(_down(min(ends)), _up(max(ends)))

    def __truediv__(self, other: _Interval | float) -> _Interval:
        other = _Interval.of(other)
        if other.low <= 0.0 <= other.high:
            raise ArithmeticError("division by an interval that contains 0")
        ends = [x / y for x in (self.low, self.high) for y in (other.low, other.high)]
        return _Interval(_down(min(ends)), _up(max(ends)))

    def sqrt(self) -> _Interval:
        return _Interval(max(0.0, _down(math.sqrt(max(self.low, 0.0)))), _up(math.sqrt(self.high)))

    def exp(self) -> _Interval:
        return _Interval(max(0.0, _below(math.exp(self.low))), _above(math.exp(self.high)))

    def log(self) -> _Interval:
        return _Interval(_below(math.log(self.low)), _above(math.log(self.high)))

    def log1p(self) -> _Interval:
        return _Interval(_below(math.log1p(self.low)), _above(math.log1p(self.high)))

    def expm1(self) -> _Interval:
        return _Interval(_below(math.expm1(self.low)), _above(math.expm1(self.high)))


def _least(first: _Interval, *others: _Interval) -> _Interval:
    """The smallest of several numbers."""
    every = (first, *others)
    return _Interval(min(x.low for x in every), min(x.high for x in every))


def _most(first: _Interval, *others: _Interval) -> _Interval:
    every = (first, *others)
    return _Interval(max(x.low for x in every), max(x.high for x in every))


@lru_cache(maxsize=100_000)
def _power(beta: float, reward: float, origin: float) -> _Interval:
    """e^{β(reward - origin)}; the exponent is exact, as the sum of its nearest float and a remainder below 1e-13."""
    exponent = Fraction(beta) * (Fraction(reward) - Fraction(origin))
    nearest = float(exponent)
    remainder = _Interval.of(exponent - Fraction(nearest))
    return _Interval.of(nearest).exp() * (remainder.expm1() + 1.0)


# -- KL method: radii --------------------------------------------------------------------------------------------


def _stirling_error(x: Fraction) -> _Interval:
    """c(x) = lnΓ(x) - (x - ½) ln x + x - ½ ln 2π, by its asymptotic series, which envelops it.

    Small x are first moved up by c(x) = c(x+1) + (x + ½) log1p(1/x) - 1.
    """
    moved = _Interval.of(0.0)
    while x < 16:
        moved = moved + _Interval.of(x + Fraction(1, 2)) * _Interval.of(1 / x).log1p() - 1.0
        x += 1
    inverse = _Interval.of(1 / x)
    square = inverse * inverse
    total = _Interval(0.0, 1.0) * _Interval.of(Fraction(-691, 360360))
    for term in (Fraction(1, 1188), Fraction(-1, 1680), Fraction(1, 1260), Fraction(-1, 360), Fraction(1, 12)):
        total = total * square + _Interval.of(term)
    return moved + total * inverse


@lru_cache(maxsize=100_000)
def _ascent(n: int, a: Fraction) -> _Interval:
    """log of a(a+1)···(a+n-1), less n log n - n; no term is of the size of n, so nothing cancels."""
    shifted = _Interval.of(n + a - Fraction(1, 2)) * _Interval.of(a / n).log1p()
    scaled = _Interval.of(a - Fraction(1, 2)) * _Interval.of(n / a).log()
    return shifted + scaled + _stirling_error(n + a) - _stirling_error(a)


def _mixture_radius(tallies: list[int], k: int) -> float:
    """R_mix: minus the log of the average of e^{-R_a} over four Dirichlet priors a on k outcomes, rounded up.

    R_a = Σ N log(N/n) - log of the Dirichlet-multinomial likelihood; the n log n of both cancel exactly.
    """
    n = sum(tallies)
    radii = []
    for a in (Fraction(1, k * k), Fraction(1, k), Fraction(1, 2), Fraction(1)):
        radius = _ascent(n, k * a)
        for count in tallies:
            radius = radius - _ascent(count, a)
        radii.append(radius)
    smallest = min(radius.low for radius in radii)
    total = _Interval.of(0.0)
    for radius in radii:
        total = total + (_Interval.of(smallest) - radius).exp() * 0.25
    return (_Interval.of(smallest) - total.log()).high


# -- KL method: the largest and smallest mean over a ball --------------------------------------------------------


@dataclass(frozen=True)
class _Ball:
    """A row of the kernel: its possible outcomes, how often each was seen, and the radius of its ball, rounded up.

    ``rewards`` is what each outcome pays, ``(step, outcome)`` pairs of bounds as weights e^{βr}; empty where all are 1.
    """

    successors: list[int]
    tallies: list[int]
    visits: int
    radius: float
    weights: list[list[_Interval]]

    @cached_property
    def seen(self) -> list[int]:
        return [i for i, count in enumerate(self.tallies) if count]

    @cached_property
    def shares(self) -> list[float]:
        return [self.tallies[i] / self.visits for i in self.seen]

    def weight(self, h: int, side: int) -> list[float]:
        """e^{βr} of each outcome at (real) step ``h``, its largest (``side`` 1) or smallest value."""
        if not self.weights:
            return [1.0] * len(self.successors)
        table = self.weights[h if len(self.weights) > 1 else 0]
        return [e.high if side > 0 else e.low for e in table]

    def tally_of(self, y: int) -> int:
        return sum(count for z, count in zip(self.successors, self.tallies, strict=True) if z == y)


# The best w can be as small as the values are far apart; below this it changes nothing that doubles can tell.
_SMALLEST_W = 1e-150


def _good_w(shares: list[float], depths: list[float], x: float) -> float:
    """Roughly the best w ≥ 0 for depths in [0, 1]: the root of F(w) = x by Newton's method on logarithms.

    F(w) = Σ p log1p(d/w) + log Σ p / (1 + d/w) decreases; 0 if it never exceeds x. Any answer is safe.
    """
    mean = sum(p * d for p, d in zip(shares, depths, strict=True))
    variance = sum(p * (d - mean) ** 2 for p, d in zip(shares, depths, strict=True))
    if not variance > 0.0:
        variance = mean * mean
    w = max(math.sqrt(variance / (2.0 * x)), 1e-3)
    low, high = _SMALLEST_W, 1e30
    if all(depths):
        logs = sum(p * math.log(d) for p, d in zip(shares, depths, strict=True))
        if logs + math.log(sum(p / d for p, d in zip(shares, depths, strict=True))) <= x:
            return 0.0
    for _ in range(200):
        logs = loss = rest = square = 0.0
        for p, d in zip(shares, depths, strict=True):
            ratio = d / w
            remainder = 1.0 / (1.0 + ratio)
            part = ratio * remainder
            logs += p * math.log1p(ratio)
            loss, rest, square = loss + p * part, rest + p * remainder, square + p * part * part
        value = logs + (math.log1p(-loss) if loss < 0.5 else math.log(rest))
        if value > x:
            low = w
        else:
            high = w
        if abs(value - x) <= 1e-13 * x:
            break
        slope = (loss * loss - square) / rest
        if value > 0.0 and slope < 0.0:
            shift = -math.log(value / x) * value / slope
            step = w * math.exp(max(min(shift, 20.0), -20.0))
        else:
            step = 0.0
        if not low < step < high:
            step = math.sqrt(low * high)
        if abs(step - w) <= 1e-12 * w:
            break
        w = step
    return w


def _highest_mean(ball: _Ball, f: list[float]) -> tuple[float, float | None]:
    """No mean of ``f`` over the ball exceeds the first number. The second is the w behind it, in units of the largest depth.

    None: the bound is max f.
    """
    top = max(f)
    if not ball.visits or len(f) == 1:
        return top, None
    depths = [max(0.0, _down(top - f[i])) for i in ball.seen]
    depth = max(depths)
    if not depth > 0.0:
        return top, None
    # In units of the largest depth; each rounded down, which only lowers the gain.
    depths = [max(0.0, _down(d / depth)) if d < depth else 1.0 for d in depths]
    w = _good_w(ball.shares, depths, ball.radius)
    counts = [ball.tallies[i] for i in ball.seen]
    # Sums of nonnegative terms: division 1, logarithm 8, product 1 half unit of error, one for every addition, and a few.
    error = (len(depths) + 14) * 2.0**-53
    if w > 0.0:
        mean = sum(c * math.log1p(d / w) for c, d in zip(counts, depths, strict=True)) / ball.visits * (1.0 - error)
        gain = _down(w * _below(math.expm1(_down(mean - ball.radius))))
    else:
        mean = sum(c * -math.log(d) for c, d in zip(counts, depths, strict=True)) / ball.visits * (1.0 + error)
        gain = _down(_below(math.exp(-_up(mean + ball.radius))))
    gain = _down(depth * gain)
    return (min(top, _up(top - gain)) if gain > 0.0 else top), w


def _extreme_mean(ball: _Ball, f: list[float], side: int) -> float:
    """A number above (``side`` 1) or below (``side`` -1) every mean of ``f`` over the ball."""
    return side * _highest_mean(ball, [side * value for value in f])[0]


def _tilted_mean(ball: _Ball, g: list[float], rho: list[float], weights: list[float]) -> float:
    """Σ q w ρ / Σ q w at the q of the ball with the largest mean of ``g``; approximate."""
    (_, w), top = _highest_mean(ball, g), max(g)
    q = [0.0] * len(g)
    if w is not None:
        depths = [top - g[i] for i in ball.seen]
        depths = [d / max(depths) for d in depths]
        logs = sum(p * math.log(d + w) for p, d in zip(ball.shares, depths, strict=True)) - ball.radius
        for i, p, d in zip(ball.seen, ball.shares, depths, strict=True):
            q[i] = p / (d + w) * math.exp(logs)
    q[g.index(top)] += max(0.0, 1.0 - sum(q))
    tilted = [a * b for a, b in zip(q, weights, strict=True)]
    return sum(t * r for t, r in zip(tilted, rho, strict=True)) / sum(tilted)


# -- KL method: bounds from the counts -----------------------------------------------------------------------------


class _Sheet:
    """One step of the recursion. Lists have an entry for each state, and one for "some state not seen yet".

    For β > 0 (``sign`` 1): Z* ≤ ``optimum``, Z^π ≥ ``policy``; for β < 0 the other way round. ``bottom`` ≤ z ≤ ``top``
    where z is Z^π for β > 0 and Z* for β < 0. ``ratio`` ≥ Z*/Z^π, or its inverse.
    """

    def __init__(self, n_states: int) -> None:
        self.optimum, self.policy, self.top, self.ratio = ([1.0] * (n_states + 1) for _ in range(4))

    def close(self, states: list[int], sign: int) -> None:
        """Fill the last entry with the worst that any of ``states`` can do."""
        best, worst = (max, min) if sign > 0 else (min, max)
        self.optimum[-1] = best(self.optimum[s] for s in states)
        self.policy[-1] = worst(self.policy[s] for s in states)
        self.top[-1] = max(self.top[s] for s in states)
        self.ratio[-1] = max(self.ratio[s] for s in states)


class _KL:
    """The bounds of one claim, at a β that is not too small."""

    def __init__(self, claim: _Claim, beta: float) -> None:
        self.claim, self.beta, self.sign = claim, beta, 1 if beta > 0 else -1
        self.origin = claim.reward_range[0]
        self.balls: dict[int, _Ball] = {}
        self.log_union = (_Interval.of(float(max(self._rows_at_risk(), 1))) / claim.delta).log().high

    def _rows_at_risk(self) -> int:
        """P: rows with several possible outcomes that matter, fixed before any data."""
        claim = self.claim
        steps = claim.steps if claim.rewards is None else claim.steps - 1
        rows = {claim.row(h, s, a) for h in range(steps) for s in claim.reachable[h] for a in claim.actions(h)}
        return sum(claim.possible[row] > 1 for row in rows)

    def ball(self, h: int, s: int, a: int) -> _Ball:
        row = self.claim.row(h, s, a)
        if row not in self.balls:
            self.balls[row] = self._ball(row)
        return self.balls[row]

    def _ball(self, row: int) -> _Ball:
        claim = self.claim
        outcomes = claim.outcomes(row)
        if claim.possible[row] == 1:  # once seen, nothing else can happen
            outcomes = [outcome for outcome in outcomes if outcome[-1]] or outcomes
        tallies = [count for *_, count in outcomes]
        visits, radius = sum(tallies), math.inf
        if len(outcomes) > 1 and visits:
            mixture = _mixture_radius([count for count in tallies if count], claim.possible[row])
            radius = _up(_up(self.log_union + mixture) / visits)
        weights: list[list[_Interval]] = []
        if claim.rewards is None and not claim.is_start(row):
            for lows, highs in zip(claim.slot_low, claim.slot_high, strict=True):
                ends = [(r, r) if j is None else (lows[j], highs[j]) for _, j, r, _ in outcomes]
                weights.append([self._weight(low or 0.0, high or 0.0) for low, high in ends])
        return _Ball([y for y, *_ in outcomes], tallies, visits, radius, weights)

    def _weight(self, low: float, high: float) -> _Interval:
        """e^{βr} for a reward between ``low`` and ``high``."""
        one, other = _power(self.beta, low, self.origin), _power(self.beta, high, self.origin)
        return _Interval(min(one.low, other.low), max(one.high, other.high))

    def gain(self, h: int, s: int, a: int) -> _Interval:
        """e^{βr(s,a)}; 1 where the next state decides, or at the artificial step."""
        claim = self.claim
        step = h - claim.random_start
        if claim.rewards is None or step < 0:
            return _Interval(1.0, 1.0)
        return _power(self.beta, claim.rewards[step if len(claim.rewards) > 1 else 0][s][a], self.origin)

    def backup(self, h: int, s: int, a: int, values: list[float], side: int) -> float:
        """A bound from above (``side`` 1) or below (``side`` -1) on the mean of e^{βr} ``values`` after (h, s, a)."""
        ball, gain = self.ball(h, s, a), self.gain(h, s, a)
        weights = ball.weight(h - self.claim.random_start, side)
        f = [_toward(e * values[y], side) for e, y in zip(weights, ball.successors, strict=True)]
        return _toward((gain.high if side > 0 else gain.low) * _extreme_mean(ball, f, side), side)

    def bounds(self) -> tuple[float, float, float]:
        """Bounds on the policy's value and the optimum less H times the smallest reward, and on the gap."""
        claim, sign, later = self.claim, self.sign, _Sheet(self.claim.n_states)
        for h in reversed(range(claim.steps)):
            now = _Sheet(claim.n_states)
            for s in claim.reachable[h]:
                self._fill(now, later, h, s)
            now.close(claim.reachable[h], sign)
            later = now
            if not claim.stationary:
                self.balls.clear()  # rows of this step, which no other step has
        s, beta = claim.start or 0, _Interval.of(self.beta)
        optimum = _Interval.of(later.optimum[s]).log() / beta
        policy = _Interval.of(later.policy[s]).log() / beta
        ratio = _Interval.of(later.ratio[s]).log() / abs(self.beta)
        return policy.low, optimum.high, ratio.high

    def _fill(self, now: _Sheet, later: _Sheet, h: int, s: int) -> None:
        """The bounds of one state at planned step ``h``."""
        sign, actions, chosen = self.sign, self.claim.actions(h), self.claim.action(h, s)
        best = max if sign > 0 else min
        optimistic = [self.backup(h, s, a, later.optimum, sign) for a in actions]
        optimum = best(optimistic)
        policy = self.backup(h, s, chosen, later.policy, -sign)
        if sign > 0:
            top = min(self.backup(h, s, chosen, later.top, 1), optimum)
        else:
            top = max(min([policy] + [self.backup(h, s, a, later.top, 1) for a in actions]), optimum)
        now.optimum[s], now.policy[s], now.top[s] = optimum, policy, top
        plain = self._ratio(optimum, policy)
        worst = max(1.0, self._same(later, h, s, chosen))
        for a in sorted(actions, key=lambda a: -sign * optimistic[a]):
            if a != chosen and self._ratio(optimistic[a], policy) > worst:
                first = self._ratio(optimistic[a], policy)
                worst = max(worst, min(first, self._deviation(later, h, s, a, chosen, first)))
        now.ratio[s] = max(1.0, min(plain, worst))

    def _ratio(self, optimistic: float, pessimistic: float) -> float:
        return _up(optimistic / pessimistic) if self.sign > 0 else _up(pessimistic / optimistic)

    def _box(self, later: _Sheet) -> tuple[list[float], list[float], list[float]]:
        """z lies between the first two; the third caps ρz."""
        if self.sign > 0:
            return later.policy, later.top, later.optimum
        return later.optimum, later.top, later.policy

    def _same(self, later: _Sheet, h: int, s: int, a: int) -> float:
        """The optimal action is the policy's: the largest average of the next ρ under weights q e^{βr} z.

        That is the smallest λ for which no q makes Σ q w (ρ - λ) positive, w at its top where ρ > λ and at its bottom
        elsewhere. That excess is convex and decreasing in λ. Newton's method (Dinkelbach's) climbs to its root from 1; a λ
        is returned only if its own excess, rounded up, is not positive, and is searched for if Newton's is not such.
        """
        ball, (bottom, top, _) = self.ball(h, s, a), self._box(later)
        step = h - self.claim.random_start
        rho = [later.ratio[y] for y in ball.successors]
        largest = max(rho)
        if largest <= 1.0 or not ball.visits or len(rho) == 1:
            return largest
        # Only quotients of weights matter: in units of the largest they cannot overflow.
        unit = max(e * top[y] for e, y in zip(ball.weight(step, 1), ball.successors, strict=True))
        high = [_up(_up(e * top[y]) / unit) for e, y in zip(ball.weight(step, 1), ball.successors, strict=True)]
        low = [_down(_down(e * bottom[y]) / unit) for e, y in zip(ball.weight(step, -1), ball.successors, strict=True)]

        def excess(level: float) -> list[float]:
            return [_up(_up(r - level) * (u if r > level else d)) for r, u, d in zip(rho, high, low, strict=True)]

        def bound(level: float) -> float:
            return _highest_mean(ball, excess(level))[0]

        level = 1.0
        for _ in range(60):
            weights = [u if r > level else d for r, u, d in zip(rho, high, low, strict=True)]
            higher = _tilted_mean(ball, excess(level), rho, weights)
            if not higher > level * (1.0 + 4e-16):
                break
            level = min(higher, largest)
        level = min(level * (1.0 + 4e-16), largest)
        if not bound(level) > 0.0:
            return level
        return _root(bound, level, largest)

    def _deviation(self, later: _Sheet, h: int, s: int, a: int, chosen: int, limit: float) -> float:
        """The optimal action is another one: the largest ratio of the two values, for one and the same z.

        Up to three successors that both have been seen to lead to share their z, at either corner of what matters; for the
        others z is taken at its worst on each side. Not computed beyond ``limit``.
        """
        over, under = (a, chosen) if self.sign > 0 else (chosen, a)
        above, below, step = self.ball(h, s, over), self.ball(h, s, under), h - self.claim.random_start
        bottom, top, cap = self._box(later)
        gains = _up(self.gain(h, s, over).high / self.gain(h, s, under).low)
        shared = _shared(above, below, self.claim.n_states)
        e_above, e_below = above.weight(step, 1), below.weight(step, -1)
        worst = 0.0
        for raised in product((False, True), repeat=len(shared)):
            # Where the cap starts to bind, between a float below and one above; at the bottom both are equal.
            least, most = list(bottom), list(top)
            for y, is_raised in zip(shared, raised, strict=True):
                kink = _Interval.of(cap[y]) / later.ratio[y]
                least[y] = max(bottom[y], min(top[y], kink.low)) if is_raised else bottom[y]
                most[y] = max(bottom[y], min(top[y], kink.high)) if is_raised else bottom[y]
            numerator = [
                _up(e * min(cap[y], _up(later.ratio[y] * most[y])))
                for e, y in zip(e_above, above.successors, strict=True)
            ]
            denominator = [_down(e * least[y]) for e, y in zip(e_below, below.successors, strict=True)]
            quotient = _up(_extreme_mean(above, numerator, 1) / _extreme_mean(below, denominator, -1))
            worst = max(worst, _up(gains * quotient))
            if not worst < limit:
                return limit
        return worst


def _root(excess: Callable[[float], float], left: float, right: float) -> float:
    """Just above the root of a convex decreasing function that is positive at ``left`` and not at ``right``."""
    left_value, right_value = excess(left), excess(right)
    for i in range(200):
        if right - left <= 1e-15 * right + 1e-10 * (right - 1.0):
            break
        # The root of the chord is not below that of the function; half of the steps halve the bracket.
        share = left_value / (left_value - right_value) if i % 2 == 0 and right_value < 0.0 else 0.5
        middle = left + (right - left) * min(max(share, 1e-6), 1.0 - 1e-6)
        value = excess(middle)
        if value <= 0.0:
            right, right_value = middle, value
        else:
            left, left_value = middle, value
    return right


def _shared(above: _Ball, below: _Ball, elsewhere: int) -> list[int]:
    """The successors seen in both rows, those first whose smaller share of visits is largest."""
    both = {above.successors[i] for i in above.seen} & {below.successors[i] for i in below.seen} - {elsewhere}

    def order(y: int) -> tuple[int, int]:
        return -min(above.tally_of(y) * below.visits, below.tally_of(y) * above.visits), y

    return sorted(both, key=order)[:_MAX_SHARED]


def _kl_bounds(claim: _Claim) -> _Bounds:
    low, high = claim.reward_range
    spread, beta = (high - low) * claim.horizon, claim.beta
    exponent = abs(beta) * spread
    if exponent > _LARGEST_EXPONENT * (1.0 + 1e-9):
        raise _Rejected(f"|beta| times the range of the return is {exponent:.6g}, beyond {_LARGEST_EXPONENT:g}")
    if exponent < _SMALLEST_EXPONENT:
        beta = math.copysign(_SMALLEST_EXPONENT / spread if spread > 0.0 else 1.0, beta)
    lower, upper, gap = _KL(claim, beta).bounds()
    # V_β grows with β, by at most |β - β'| range² / 8 (Hoeffding's lemma).
    bias = abs(Fraction(beta) - Fraction(claim.beta)) * (Fraction(high) - Fraction(low)) ** 2 * claim.horizon**2 / 8
    offset = Fraction(low) * claim.horizon
    lower = _Interval.of(offset + Fraction(lower) - (bias if beta > claim.beta else 0)).low
    upper = _Interval.of(offset + Fraction(upper) + (bias if beta < claim.beta else 0)).high
    return _Bounds(lower, upper, min(_Interval.of(Fraction(gap) + bias).high, _up(upper - lower)))


# -- Bernstein method ----------------------------------------------------------------------------------------------


@dataclass
class _Width:
    """Z_up, Z_low and the certificate G at one place, as (Z - origin) / unit."""

    up: _Interval
    low: _Interval
    width: _Interval


class _Bernstein:
    """The recursion of the paper on intervals; see the theory page of the method for its formulas.

    Numbers are Z itself or, for small exponents, (Z - 1)/|β|, which tends to the value as β → 0.
    """

    def __init__(self, claim: _Claim) -> None:
        if claim.rewards is None:
            raise _Rejected("method 'bernstein' needs rewards that do not depend on the next state")
        low, high = claim.reward_range
        inside = low >= 0.0 and high <= 1.0
        self.claim, self.verified = claim, claim.constants == "verified"
        self.shift, self.scale = (0.0, _Interval.of(1.0)) if inside else (low, _Interval.of(high) - low)
        if high == low and not inside:
            self.scale = _Interval.of(1.0)
        self.beta = self.scale * claim.beta
        self.flat = max(abs(self.beta.low), abs(self.beta.high)) < _ZERO_BETA
        if self.flat:
            self.beta = _Interval.of(0.0)
            if self.verified:
                raise _Rejected("constants 'verified' need beta != 0")
        self.sign = 1 if claim.beta >= 0 or self.flat else -1
        self.strength = self.beta if self.sign > 0 else -self.beta
        exponent = self.strength.high * claim.steps
        if exponent > _LARGEST_EXPONENT * (1.0 + 1e-9):
            raise _Rejected(f"|beta| times horizon and reward range is {exponent:.6g}, beyond {_LARGEST_EXPONENT:g}")
        self.small = exponent < _SMALL_EXPONENT
        self.unit = self.strength if self.small and not self.flat else _Interval.of(1.0)
        pairs, steps = claim.n_states * claim.n_actions, claim.steps
        rows = pairs + claim.random_start if claim.stationary else pairs * steps
        self.log_kl = (_Interval.of(3.0 * rows) / claim.delta).log()
        self.log_bernstein = (_Interval.of(3.0 * pairs * steps) / claim.delta).log()

    def reward(self, h: int, s: int, a: int) -> _Interval:
        """Rescaled to [0, 1]; the artificial step pays 0."""
        rewards, step = self.claim.rewards, h - self.claim.random_start
        assert rewards is not None
        if step < 0:
            return _Interval.of(0.0)
        return (_Interval.of(rewards[step if len(rewards) > 1 else 0][s][a]) - self.shift) / self.scale

    def transform(self, value: _Interval) -> _Interval:
        """e^{β value}, as (Z - origin) / unit."""
        if not self.small:
            return (self.beta * value).exp()
        return value if self.flat else (self.beta * value).expm1() / self.unit

    def lift(self, reward: _Interval, inner: _Interval) -> _Interval:
        """e^{βr} Z for Z = origin + unit·inner, again as (Z - origin) / unit."""
        gained = inner * (self.beta * reward).exp()
        return gained + self.transform(reward) if self.small else gained

    def run(self) -> tuple[list[dict[int, list[_Width]]], _Width]:
        """Bounds of every action at every planned step and reachable state, and those of the start."""
        claim = self.claim
        last = self.transform(_Interval.of(0.0))
        later = {s: _Width(last, last, _Interval.of(0.0)) for s in range(claim.n_states)}
        least = most = {s: _Interval.of(0.0) for s in range(claim.n_states)}
        table: list[dict[int, list[_Width]]] = []
        for h in reversed(range(claim.steps)):
            actions: dict[int, list[_Width]] = {}
            now: dict[int, _Width] = {}
            lows: dict[int, _Interval] = {}
            highs: dict[int, _Interval] = {}
            best = _most if self.sign > 0 else _least
            for s in claim.reachable[h]:
                ranges = [self._successor_range(claim.row(h, s, a), least, most) for a in claim.actions(h)]
                rewards = [self.reward(h, s, a) for a in claim.actions(h)]
                lows[s] = _least(*(r + low for r, (low, _) in zip(rewards, ranges, strict=True)))
                highs[s] = _most(*(r + high for r, (_, high) in zip(rewards, ranges, strict=True)))
                actions[s] = [
                    self._bounds(h, claim.row(h, s, a), later, rewards[a], *ranges[a]) for a in claim.actions(h)
                ]
                width = actions[s][claim.action(h, s)].width
                now[s] = _Width(best(*(u.up for u in actions[s])), best(*(u.low for u in actions[s])), width)
            table.append(actions)
            later, least, most = now, lows, highs
        table.reverse()
        return table, later[claim.start or 0]

    def _successor_range(
        self, row: int, least: dict[int, _Interval], most: dict[int, _Interval]
    ) -> tuple[_Interval, _Interval]:
        """Smallest and largest return after ``row``, by the known rewards and the possible successors."""
        claim = self.claim
        states = [claim.slot_successor[j] for j in claim.row_slots[row]]
        if claim.successors == "unknown":
            states = list(least)
        return _least(*(least[y] for y in states)), _most(*(most[y] for y in states))

    def _bounds(
        self, h: int, row: int, later: dict[int, _Width], reward: _Interval, least: _Interval, most: _Interval
    ) -> _Width:
        """U_up, U_low and G of one action."""
        claim, steps, left = self.claim, float(self.claim.steps), float(self.claim.steps - h)
        if self.verified:
            extreme, one = self.transform(_Interval.of(left)), self.transform(_Interval.of(0.0))
            if self.sign > 0:
                cap, floor = extreme, one
                widest, span = (self.beta * left).exp() / self.unit, (self.beta * (left - 1.0)).exp() / self.unit
            else:
                cap, floor = one, extreme
                widest, span = _Interval.of(1.0) / self.unit, -(self.beta * (left - 1.0)).expm1() / self.unit
        else:
            ends = (self.transform(least), self.transform(most))
            bottom, top = _least(*ends), _most(*ends)
            span = _most(top - bottom, _Interval.of(0.0))
            cap, floor = self.lift(reward, top), self.lift(reward, bottom)
            widest = span * (self.beta * reward).exp()
        seen = claim.seen.get(row)
        if not seen:
            return _Width(cap, floor, widest)
        n = sum(seen.values())
        shares = [(_Interval.of(float(count)) / float(n), later[y]) for (y, _), count in seen.items()]
        up, low, width = (_Interval.of(0.0) for _ in range(3))
        for p, z in shares:
            up, low, width = up + p * z.up, low + p * z.low, width + p * z.width
        # Mean squared distances from the exact mean, in units of the largest so that squares stay floats.
        sides = [(p, z.up - up if self.sign > 0 else z.low - low) for p, z in shares]
        unit = max(max(abs(d.low), abs(d.high)) for _, d in sides)
        deviation = _Interval.of(0.0)
        if unit > 0.0:
            squares = [p * _square(d / unit) for p, d in sides]
            for square in squares:
                deviation = deviation + square
            deviation = deviation.sqrt() * unit
        log_term = _Interval.of(8.0 * (n + 1.0)).log() + 1.0
        x = (self.log_kl + log_term * float(claim.n_states)) / float(n)
        x_star = (self.log_bernstein + log_term) / float(n)
        bonus = (x_star * 8.0).sqrt() * deviation
        if self.verified:
            bonus = bonus + span * x * (5.0 + 4.0 * steps)
            width = bonus * 3.0 + width * ((_Interval.of(3.0) / steps) + 1.0)
        else:
            bonus = bonus + span * ((x * x_star * 5.0).sqrt() + x_star * (2.0 * steps + 3.0))
            width = bonus * 2.0 + span * x * (0.5 * steps + 2.0) + width * ((_Interval.of(2.0) / steps) + 1.0)
        slack = bonus + (up - low) / steps
        u_up = _most(floor, _least(cap, self.lift(reward, up + slack)))
        u_low = _least(cap, _most(floor, self.lift(reward, low - slack)))
        width = _least(widest, width * (self.beta * reward).exp())
        if not self.verified:
            width = _least(width, u_up - floor if self.sign > 0 else cap - u_low)
        return _Width(u_up, u_low, width)

    def claim_of(self, first: _Width) -> tuple[_Interval, _Interval, _Interval | None]:
        """Bounds on the policy's value and on the optimum, and the gap (None: no bound), for rescaled rewards."""
        z = first.up if self.sign > 0 else first.low
        if self.flat:
            return z - first.width, z, first.width
        if self.small:
            value = (z * self.strength).log1p() / self.beta
            g = first.width * self.strength / (z * self.strength + 1.0)
        else:
            value, g = z.log() / self.beta, first.width / z
        g = _most(g, _Interval.of(0.0))
        added = g.log1p() / self.strength
        if self.sign < 0 and not self.verified:
            return value - added, value, added
        gap = -(-g).log1p() / self.strength if g.high < 1.0 else None
        if self.sign < 0:
            return value - added, value, gap
        return (value - gap if gap is not None else _Interval.of(-math.inf)), value, gap

    def changed_choices(self, table: list[dict[int, list[_Width]]]) -> list[str]:
        """Where the policy is certainly not greedy, among the states that it was seen to reach."""
        claim, reached = self.claim, {self.claim.start or 0}
        problems = []
        for h, actions in enumerate(table):
            after: set[int] = set()
            for s in sorted(reached):
                chosen, sides = claim.action(h, s), [u.up if self.sign > 0 else u.low for u in actions[s]]
                own = sides[chosen]
                if any(own.high < u.low if self.sign > 0 else own.low > u.high for u in sides):
                    problems.append(
                        f"a changed policy: action {chosen} in state {s} at step {h - claim.random_start} is not the one "
                        "that the counts ask for"
                    )
                after |= {y for y, _ in claim.seen.get(claim.row(h, s, chosen), {})}
            reached = after
        return problems


def _square(x: _Interval) -> _Interval:
    ends = (x.low * x.low, x.high * x.high)
    inside = x.low <= 0.0 <= x.high
    return _Interval(0.0 if inside else max(0.0, _down(min(ends))), _up(max(ends)))


def _bernstein_bounds(claim: _Claim) -> _Bounds:
    method = _Bernstein(claim)
    table, first = method.run()
    lower, upper, gap = method.claim_of(first)
    offset = _Interval.of(method.shift) * float(claim.horizon)
    upper = upper * method.scale + offset
    # No return is below that of the smallest reward (0 where rewards lie in [0, 1] and are not rescaled).
    lower = offset if lower.low == -math.inf else _most(offset, lower * method.scale + offset)
    width = upper - lower
    if gap is not None:
        width = _least(width, gap * method.scale)
    forgiven = _FORGIVEN * (abs(method.shift) + method.scale.high) * claim.horizon
    slack = (min(forgiven, x.high - x.low) for x in (lower, upper, width))
    return _Bounds(lower.low, upper.high, width.high, (*slack,), method.changed_choices(table))
