"""Checkpoints: a run in one file, from which it goes on to exactly the result that it would have had uninterrupted.

The file is a line with the name of the format, a line of JSON, the arrays as raw numbers, and the SHA-256 of all that. The
lengths of the arrays must add up to that of the file, and every number is checked against the problem before any compiled
code sees it. What cannot be checked is that the counts were really played: take up your own checkpoints only.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import warnings
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.facts import differences
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, CELLS, AssumptionTests
from entropic_bpi.sources.drift import REWARD_CLASSES, cell_of
from entropic_bpi.sources.homogeneity import Tally
from entropic_bpi.tools.checks import check_policy
from entropic_bpi.tools.files import write_atomically
from entropic_bpi.types import Bounds, Plan, Transitions

__all__ = ["HISTORY", "Checkpoint", "State", "read_summary"]

_FORMAT = b"entropic-bpi checkpoint 4\n"
_LONGEST_HEADER = 1 << 20
_MOST_VISITS = 1 << 62

_INTEGERS, _NUMBERS = np.dtype("<i8"), np.dtype("<f8")
HISTORY = np.dtype([("episodes", _INTEGERS), ("lower", _NUMBERS), ("upper", _NUMBERS), ("gap", _NUMBERS)])
_TRANSITIONS = {
    "rows": _INTEGERS,
    "successors": _INTEGERS,
    "times": _INTEGERS,
    "rewards": _NUMBERS,
    "upper": _NUMBERS,
}
_TALLY = {
    "rows": _INTEGERS,
    "groups": _INTEGERS,
    "successors": _INTEGERS,
    "times": _INTEGERS,
    "rewards": _NUMBERS,
}
_ARRAYS = {
    "history": HISTORY,
    **{f"seen_{name}": dtype for name, dtype in _TRANSITIONS.items()},
    **{f"best_{name}": dtype for name, dtype in _TRANSITIONS.items()},
    "best_policy": _INTEGERS,
    "found": np.dtype("u1"),  # a list of strings as JSON
    **{f"by_step_{name}": dtype for name, dtype in _TALLY.items()},
    **{f"by_previous_{name}": dtype for name, dtype in _TALLY.items()},
    **{f"over_time_{name}": dtype for name, dtype in _TALLY.items()},
    "returns": _INTEGERS,
    "memory": _NUMBERS,
}
_NOTHING: type = type(None)
_HEADER: dict[str, tuple[type, ...]] = {
    "facts": (dict,),
    "seed": (int,),
    "round": (int,),
    "seconds": (float,),
    "rng": (dict,),
    "episodes": (int,),
    "best": (list, _NOTHING),
    "errors": (int,),
    "error": (str, _NOTHING),
    "contradiction": (str, _NOTHING),
    "preregistration": (str, _NOTHING),
    "lengths": (dict,),
}


class State(NamedTuple):
    """All that a run needs to go on.

    Attributes
    ----------
    seed, round : int
        The run's seed and the number of times that something was played.
    seconds : float
    rng : dict
        State of the run's generator, a PCG64.
    counts : Counts
    witness : AssumptionTests or None
    history : structured array :data:`HISTORY`
        The plans before the one that comes next.
    best : (Plan, int, Transitions) or None
        The plan with the smallest gap, its number of episodes and its counts; only kept for a run with a budget.
    errors : int
        How often the environment raised an error and the run went on.
    error, contradiction : str or None
        If the run ended because the environment raised an error, or contradicted what is assumed of it: the message.
    preregistration : str or None
        Digest of the run's preregistration.
    found : list of str
        The labels of the states in their order, where they are numbered as they are first seen.
    memory : float array
        What the method remembers of its earlier plans; empty if it begins anew.
    """

    seed: int
    round: int
    seconds: float
    rng: dict[str, Any]
    counts: Counts
    witness: AssumptionTests | None
    history: np.ndarray
    best: tuple[Plan, int, Transitions] | None
    errors: int
    error: str | None
    contradiction: str | None
    preregistration: str | None
    found: list[str]
    memory: np.ndarray

    def per_step(self, problem: Problem) -> State:
        """The same run, whose counts were pooled over the steps, as one of ``problem``, which counts step by step.

        Plans that were made are dropped: they rest on what is assumed no more. The tests of memory and drift begin anew.
        """
        assert self.witness is not None
        if problem.random_rewards:
            raise InvalidProblemError(
                "this run has pooled random rewards over the steps: it cannot go on with stationary=False; start another"
            )
        witness = AssumptionTests(problem)
        witness.returns = self.witness.returns
        return self._replace(
            counts=Counts.of(problem, self.witness.per_step(self.counts, problem), self.counts.episodes),
            witness=witness,
            history=self.history[:0],
            best=None,
            memory=self.memory[:0],
        )


class Checkpoint:
    """The file of one run, whose ``facts`` must be the same whenever it is taken up; ``seed`` is None for any."""

    def __init__(self, path: Path, facts: dict[str, str], seed: int | None) -> None:
        if not path.parent.is_dir():
            raise InvalidProblemError(f"checkpoint: {path.parent} is not an existing folder")
        self.path, self.facts, self.seed = path, facts, seed
        self.saved, self.warned = time.monotonic(), False

    def holds(self, facts: dict[str, str]) -> bool:
        """Whether the file is of a run with these facts."""
        try:
            return self.path.exists() and _parse(self.path)[0]["facts"] == facts
        except (OSError, _Damaged):
            return False

    def read(self, problem: Problem) -> State | None:
        """The state that was saved, or None if there is no file yet."""
        if not self.path.exists():
            return None
        try:
            header, arrays = _parse(self.path)
            self._check_facts(header["facts"], header["seed"])
            return _checked_state(header, arrays, problem)
        except (OSError, _Damaged) as error:
            raise InvalidProblemError(f"{self.path} is not a checkpoint of entropic-bpi: {error}") from None

    def _check_facts(self, then: dict[str, str], seed: int) -> None:
        given = seed if self.seed is None else self.seed
        changed = differences({"seed": str(seed), **then}, {"seed": str(given), **self.facts})
        if changed:
            raise InvalidProblemError(
                f"{self.path} belongs to another run: {changed}. Remove it or give another checkpoint"
            )

    def age(self) -> float:
        """Seconds since the file was last written, or since the run began."""
        return time.monotonic() - self.saved

    def save(self, state: State) -> None:
        """Write the file; a run that cannot be saved is told so once and goes on."""
        header = {
            "facts": self.facts,
            "seed": state.seed,
            "round": state.round,
            "seconds": float(state.seconds),
            "rng": state.rng,
            "episodes": state.counts.episodes,
            "best": None if state.best is None else [*map(float, state.best[0].bounds), state.best[1]],
            "errors": state.errors,
            "error": state.error,
            "contradiction": state.contradiction,
            "preregistration": state.preregistration,
        }
        found = np.frombuffer(json.dumps(state.found).encode(), np.uint8)
        arrays = {"history": state.history, **_named("seen", state.counts.seen()), "found": found}
        arrays["memory"] = state.memory
        if state.best is not None:
            arrays |= {"best_policy": state.best[0].policy, **_named("best", state.best[2])}
        if state.witness is not None:
            arrays |= _named("by_previous", state.witness.by_previous.tally()) | {"returns": state.witness.returns}
            arrays |= _named("over_time", state.witness.over_time.tally())
            if state.witness.by_step is not None:
                arrays |= _named("by_step", state.witness.by_step.tally())
        self.saved = time.monotonic()
        try:
            write_atomically(self.path, lambda file: _write(file, header, arrays))
            self.warned = False
        except OSError as error:
            if not self.warned:
                warnings.warn(f"the checkpoint {self.path} could not be written: {error}", stacklevel=2)
            self.warned = True


def read_summary(path: Path) -> dict[str, Any] | None:
    """What a checkpoint tells about its run: ``seed``, ``seconds``, ``episodes`` and ``facts``; None if there is none."""
    try:
        header = _parse(path)[0]
    except (OSError, _Damaged):
        return None
    return {name: header[name] for name in ("seed", "seconds", "episodes", "facts")}


def _named(prefix: str, table: Transitions | Tally) -> dict[str, np.ndarray]:
    return {f"{prefix}_{name}": array for name, array in table._asdict().items()}


def _write(file: BinaryIO, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    flat = {name: np.asarray(arrays.get(name, ()), dtype).ravel() for name, dtype in _ARRAYS.items()}
    text = json.dumps({**header, "lengths": {name: array.size for name, array in flat.items()}})
    digest = hashlib.sha256()
    for part in (_FORMAT, text.encode(), b"\n", *(array.tobytes() for array in flat.values())):
        digest.update(part)
        file.write(part)
    file.write(digest.digest())


# -- reading: from bytes to a state that nothing can trip over -----------------------------------------------------


class _Damaged(Exception):
    """Why a file is no checkpoint."""


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Damaged(otherwise)


def _parse(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header, of the right keys and types, and the arrays, of the right dtypes."""
    _require(path.is_file(), "it is not a file")
    with path.open("rb") as file:
        _require(file.read(len(_FORMAT)) == _FORMAT, "it starts in another way")
        content = file.read()
    body = memoryview(content)[: -hashlib.sha256().digest_size]
    complete = hashlib.sha256(_FORMAT)
    complete.update(body)
    _require(content.endswith(complete.digest()), "it is incomplete or was changed")
    end = content.find(b"\n", 0, _LONGEST_HEADER)
    _require(end >= 0, "it has no header")
    header = _header(content[:end])
    return header, _arrays(header["lengths"], body[end + 1 :])


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise _Damaged("its header is not JSON") from None
    _require(type(header) is dict and set(header) == set(_HEADER), "its header has other entries")
    for name, types in _HEADER.items():
        _require(type(header[name]) in types, f"{name} has the wrong type")
    facts = header["facts"].items()
    _require(all(type(fact) is str and f"{name}{fact}".isprintable() for name, fact in facts), "facts are not all text")
    return dict(header)


def _arrays(lengths: dict[str, Any], content: memoryview) -> dict[str, np.ndarray]:
    _require(set(lengths) == set(_ARRAYS), "it has other arrays")
    _require(
        all(type(length) is int and length >= 0 for length in lengths.values()), "a length is not a natural number"
    )
    total = sum(lengths[name] * dtype.itemsize for name, dtype in _ARRAYS.items())
    _require(total == len(content), "its arrays have other lengths")
    arrays, begin = {}, 0
    for name, dtype in _ARRAYS.items():
        arrays[name] = np.frombuffer(content, dtype, lengths[name], begin).astype(dtype.newbyteorder("="))
        begin += arrays[name].nbytes
    return arrays


def _checked_state(header: dict[str, Any], arrays: dict[str, np.ndarray], problem: Problem) -> State:
    _require(header["seed"] >= 0, "seed is negative")
    _require(0 <= header["round"] <= header["episodes"], "round does not fit the episodes")
    _require(0 <= header["seconds"] < math.inf, "seconds are not a time")
    _require(0 <= header["errors"] <= _MOST_VISITS, "errors is not a count")
    preregistration = header["preregistration"]
    _require(
        preregistration is None or re.fullmatch("[0-9a-f]{64}", preregistration) is not None,
        "preregistration is no digest",
    )
    _check_generator(header["rng"])
    planned = arrays["history"]["episodes"]
    in_order = bool(np.all(planned[1:] > planned[:-1])) and _within(planned, 0, header["episodes"] - 1)
    _require(in_order, "history is not in order")
    _require(not np.isnan(arrays["memory"]).any(), "memory has no number")
    counts = _counts("seen", arrays, header["episodes"], problem)
    return State(
        seed=header["seed"],
        round=header["round"],
        seconds=header["seconds"],
        rng=header["rng"],
        counts=counts,
        witness=_witness(arrays, counts) if problem.black_box_rewards else None,
        history=arrays["history"],
        best=_best(header["best"], arrays, header["episodes"], problem),
        errors=header["errors"],
        error=header["error"],
        contradiction=header["contradiction"],
        preregistration=preregistration,
        found=_found(arrays["found"].tobytes(), problem),
        memory=arrays["memory"],
    )


def _found(text: bytes, problem: Problem) -> list[str]:
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        raise _Damaged("found is not JSON") from None
    _require(type(labels) is list and all(type(label) is str for label in labels), "found are not labels")
    _require(len(set(labels)) == len(labels) <= (problem.max_states or 0), "found are not the labels of states")
    return list(labels)


def _check_generator(state: dict[str, Any]) -> None:
    """NumPy takes the state of a generator as it is."""
    _require(set(state) == {"bit_generator", "state", "has_uint32", "uinteger"}, "rng has other entries")
    _require(state["bit_generator"] == "PCG64", "rng is not a PCG64")
    inner = state["state"]
    _require(type(inner) is dict and set(inner) == {"state", "inc"}, "rng has other entries")
    sizes = [(inner["state"], 128), (inner["inc"], 128), (state["uinteger"], 32), (state["has_uint32"], 1)]
    _require(all(type(part) is int and 0 <= part < 1 << bits for part, bits in sizes), "rng is out of range")
    _require(inner["inc"] % 2 == 1, "rng is out of range")


def _best(
    given: list[Any] | None, arrays: dict[str, np.ndarray], played: int, problem: Problem
) -> tuple[Plan, int, Transitions] | None:
    if given is None:
        return None
    _require(len(given) == 4 and all(type(bound) is float for bound in given[:3]), "best is no plan")
    _require(not any(map(math.isnan, given[:3])), "best is no plan")
    _require(type(given[3]) is int and 0 <= given[3] <= played, "best does not fit the episodes")
    counts = _counts("best", arrays, given[3], problem)
    _require(arrays["best_policy"].size == problem.steps * problem.n_states, "best_policy has another length")
    try:
        policy = arrays["best_policy"].reshape(problem.steps, problem.n_states)
        policy = check_policy(policy, *policy.shape, problem.n_actions)
    except InvalidProblemError as error:
        raise _Damaged(str(error)) from None
    lower, upper, gap, episodes = given
    return Plan(policy, Bounds(lower, upper, gap), None), episodes, counts.transitions()  # type: ignore[arg-type]


def _counts(prefix: str, arrays: dict[str, np.ndarray], episodes: int, problem: Problem) -> Counts:
    """Counts of whole episodes of the problem, from transitions that are each possible in it."""
    rows, successors, times, rewards, upper = seen = Transitions(*(arrays[f"{prefix}_{name}"] for name in _TRANSITIONS))
    learned = rows.size if problem.black_box_rewards else 0
    lengths = (successors.size, times.size, rewards.size, upper.size)
    _require(lengths == (rows.size, rows.size, learned, learned), f"{prefix} has arrays of different lengths")
    _require(_within(rows, 0, problem.n_rows - 1), f"{prefix}_rows are out of range")
    _require(_within(successors, 0, problem.n_states - 1), f"{prefix}_successors are out of range")
    _require(_within(times, 1, _MOST_VISITS), f"{prefix}_times are out of range")
    _require(_within(rewards, *problem.possible_rewards), f"{prefix}_rewards are out of range")
    _require(_within(upper, rewards, problem.possible_rewards[1]), f"{prefix}_upper is out of range")
    # First as floats, which do not wrap around.
    visits = int(times.sum()) if times.sum(dtype=float) < _MOST_VISITS else -1
    fewest, most = episodes * (1 if problem.black_box_rewards else problem.steps), episodes * problem.steps
    _require(0 <= fewest <= visits <= most, f"{prefix}_times are not those of {episodes} episodes")
    try:
        return Counts.of(problem, seen, episodes)
    except InvalidProblemError as error:
        raise _Damaged(str(error)) from None


def _witness(arrays: dict[str, np.ndarray], counts: Counts) -> AssumptionTests:
    """What was seen beside these counts, and agrees with them."""
    problem = counts.problem
    witness = AssumptionTests(problem)
    rows, states = problem.n_rows - 1, problem.n_states
    by_step = _tally("by_step", arrays, problem, rows, range(problem.horizon), states)
    by_previous = _tally("by_previous", arrays, problem, rows, range(BEFORE_THE_FIRST, states), states)
    keys, cells = (rows + 1) * witness.over_time.kinds, range(int(cell_of(np.array(_MOST_VISITS))))
    over_time = _tally("over_time", arrays, problem, keys, cells, max(states, REWARD_CLASSES))
    returns = arrays["returns"]
    agrees = returns.size == CELLS and _within(returns, 0, counts.episodes) and returns.sum() == counts.episodes
    _require(agrees, f"returns are not those of {counts.episodes} episodes")
    if problem.stationary:
        visits = np.bincount(by_step.rows, by_step.times, problem.n_rows)[:-1]
        _require(np.array_equal(visits, counts.ledger.visits[:-1]), "by_step does not agree with the counts")
    witness.restore(by_step, by_previous, over_time, returns)
    _require(witness.sound, "by_step, by_previous or over_time has outcomes that are not possible")
    return witness


def _tally(
    prefix: str, arrays: dict[str, np.ndarray], problem: Problem, rows: int, groups: range, successors: int
) -> Tally:
    tally = Tally(*(arrays[f"{prefix}_{name}"] for name in _TALLY))
    _require(len({column.size for column in tally}) == 1, f"{prefix} has arrays of different lengths")
    inside = [
        _within(tally.rows, 0, rows - 1),
        _within(tally.groups, groups[0], groups[-1]),
        _within(tally.successors, 0, successors - 1),
        _within(tally.times, 1, _MOST_VISITS),
        _within(tally.rewards, *problem.possible_rewards),
        tally.times.sum(dtype=float) < _MOST_VISITS,
    ]
    _require(all(inside), f"{prefix} is out of range")
    return tally


def _within(array: np.ndarray, low: Any, high: float) -> bool:
    return bool(np.all((low <= array) & (array <= high)))
