"""Are the slots those that the file's own declarations ask for?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

import numpy as np

from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._problem import END_REWARDS, STAY_REWARDS, Problem


def check_slots(problem: Problem) -> None:
    if problem.noise is not None:
        problem.noise.check_outcomes(problem)
    if problem.black_box:
        _check_black_box(problem)
        return
    if problem.max_states is not None or problem.random_rewards:
        raise Rejected("only an environment has random rewards or states that are not listed (max_states)")
    if not np.array_equal(problem.slot_low, problem.slot_high):
        raise Rejected("slots are inconsistent: low differs from high, but rewards are known")
    for layer in problem.layers:
        _check_rows(problem, np.array(layer))


def _check_rows(problem: Problem, rows: np.ndarray) -> None:
    """Whether what these rows may do is as declared."""
    n, used, unknown = problem.n_states, problem.used[rows], problem.successors == "unknown"
    owner, slots = problem.slots_of(rows)
    declared = problem.slot_successor[slots]
    anything = np.bincount(owner, declared == n, len(rows)) > 0
    # Of two equal successors of a row, the second is beside the first in this order.
    ordered = np.sort(owner * (n + 1) + declared)
    twice = np.zeros(len(rows), dtype=bool)
    twice[ordered[1:][ordered[1:] == ordered[:-1]] // (n + 1)] = True
    sound = np.where(anything, (used == 1) & unknown, ~twice & ((used == n) | (not unknown)))
    sound &= problem.possible[rows] == np.where(anything, n, used)
    if problem.is_start(rows[-1]) and isinstance(problem.start, list):
        sound = np.array([declared.tolist() == problem.start and problem.possible[-1] == len(problem.start)])
    if problem.is_start(rows[-1]):
        # It pays nothing, which is written as the smallest reward.
        sound &= bool(np.all(problem.slot_low[:, slots] == problem.reward_range[0]))
    problem.refuse(~sound, rows, "slots are inconsistent: {} does not list the declared successors")


def _check_black_box(problem: Problem) -> None:
    """Whether nothing is declared but sizes, one range of rewards and successors: everything else follows from these.

    Two slots serve all rows: anything not seen yet, and the end that stays the end and pays nothing. Then come the declared
    first states or, if there are none, one not seen yet; they pay nothing either, written as the smallest reward. Behind
    them are the declared successors, row by row in order, each with the whole range of rewards, and as often as several are
    possible; where counts are not pooled, all steps share them.
    """
    end, (low, high), given = problem.n_states - 1, problem.declared_range, isinstance(problem.start, list)
    if not low <= high:
        raise Rejected(f"rewards must lie in a range, got {low} to {high}")
    if problem.max_states not in (None, end):
        raise Rejected(f"max_states is {problem.max_states}, but the claim is about {end} states")
    first, listed = problem.start if given else [end + 1], problem.successors != "unknown"
    pairs, head = end * problem.n_actions, 2 + len(first)
    used = problem.used[:pairs] if listed else np.ones(pairs, dtype=np.int64)
    begin, behind = np.zeros(pairs, dtype=np.int64), head
    if listed or problem.known_reward:
        begin, behind = head + np.cumsum(used) - used, head + int(used.sum())
    ends, times = np.ones(problem.n_actions, dtype=np.int64), 1 if problem.stationary else problem.horizon
    columns = [
        np.append(np.tile(np.append(part, ends), times), last)
        for part, last in ((begin, 2), (used, len(first)), (_possible(problem), len(first) if given else end))
    ]
    sound = (
        problem.random_start
        and problem.slot_successor[:head].tolist() == [end + 1, end, *first]
        and problem.slot_low.shape == (1, behind)
        and all(map(np.array_equal, columns, (problem.begin, problem.used, problem.possible)))
    )
    if sound:
        stated, expected = np.concatenate([problem.slot_low, problem.slot_high]), np.tile([[low], [high]], behind)
        expected[:, 1], expected[:, 2:head] = 0.0, min(low, 0.0)
        if problem.known_reward or problem.noise is not None:  # which may know the reward of an outcome
            _check_known_rewards(problem, stated[:, head:], problem.slot_successor[head:])
            known = bool(problem.known_reward) | (stated[0, head:] == stated[1, head:])
            expected[:, head:] = np.where(known, stated[:, head:], expected[:, head:])
    if not sound or not np.array_equal(stated, expected):
        raise Rejected(
            "slots are inconsistent: an environment has one range of rewards, and goes where it is declared to"
        )


def _check_known_rewards(problem: Problem, paid: np.ndarray, to: np.ndarray) -> None:
    """Whether each declared successor but the end, or each state and action, has its reward, and no other is possible.

    Where successors are unknown, each state and action has a slot of its own for anything that may follow.
    """
    (low, high), (least, most), n = paid, problem.declared_range, problem.n_states
    if problem.noise is not None:
        if not np.all((least <= low) & (low <= most)):
            raise Rejected(f"noise: an outcome pays less than {least} or more than {most}")
    elif (
        not np.all(low <= high)
        or (problem.successors != "unknown" and np.any(low[to < n - 1] < high[to < n - 1]))
        or (problem.successors == "unknown" and np.any(to != n))
        or (least, most) != (low.min(), high.max())
    ):
        raise Rejected("slots are inconsistent: known rewards are numbers, and the range of rewards is theirs")


def check_names(problem: Problem) -> None:
    """Whether the states and actions of an environment are named after its observations and actions."""
    *observations, last = problem.state_names
    named = _in_order(observations) if problem.max_states is None else _found_in_order(observations)
    if last != "end" or not named or not _in_order(problem.action_names):
        raise Rejected("state_names and action_names of an environment must be its observations and actions in order")


def _possible(problem: Problem) -> np.ndarray:
    """Return how many different outcomes each state and action may have; 0 if successors are not in order."""
    end = problem.n_states - 1
    rows = np.arange(end * problem.n_actions)
    if problem.successors == "unknown":
        more = 0 if problem.random_rewards else END_REWARDS + STAY_REWARDS - 2
        return np.full(len(rows), problem.n_states + more)
    owner, slots = problem.slots_of(rows)
    following = problem.slot_successor[slots]
    wrong = following > end
    # A next state with random rewards is listed once, whatever these are.
    wrong[1:] |= (owner[1:] == owner[:-1]) & (following[1:] < following[:-1] + problem.random_rewards)
    return np.where(np.bincount(owner, wrong, len(rows)) > 0, 0, problem.used[rows])


def _found_in_order(names: list[str]) -> bool:
    """Whether these are observations of any kind as they were found, and after them numbers for those that were not."""
    found = [name for name in names if not name.startswith("#")]
    return names == found + [f"#{i}" for i in range(len(found), len(names))] and "".join(found).isprintable()


def _in_order(names: list[str]) -> bool:
    """Whether these are the elements of a finite space in order: one text, some of whose numbers run through ranges."""
    if not names or not all(name.isprintable() for name in names):
        return False
    first, last = (re.split("(-?[0-9]{1,15})", name) for name in (names[0], names[-1]))
    if len(first) != len(last):
        return False
    ranges: list[Iterable[str]] = []
    size = 1
    for i, (low, high) in enumerate(zip(first, last, strict=True)):
        numbers = range(0)
        if low != high and i % 2 == 1:
            numbers = range(int(low), int(high) + 1)
            size *= len(numbers)
        ranges.append(map(str, numbers) if numbers else [low])
    return size == len(names) and names == list(map("".join, product(*ranges)))
