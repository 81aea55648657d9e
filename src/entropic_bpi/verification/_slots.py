"""Are the slots those that the file's own declarations ask for?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._problem import Problem

# A step of a black box may end with up to 8 different rewards and lead back to the same state with up to 2.
END_REWARDS, STAY_REWARDS = 8, 2


def check_slots(problem: Problem) -> None:
    if problem.black_box:
        _check_black_box(problem)
        return
    if problem.max_states is not None:
        raise Rejected("max_states must be null: all states of a model are known")
    if problem.random_rewards:
        raise Rejected("only an environment has random rewards")
    if problem.slot_low != problem.slot_high:
        raise Rejected("slots are inconsistent: low differs from high, but rewards are known")
    for row in range(problem.n_rows):
        _check_row(problem, row)


def _check_row(problem: Problem, row: int) -> None:
    """Whether what a row may do is as declared."""
    slots, n = problem.row_slots[row], problem.n_states
    declared = [problem.slot_successor[j] for j in slots]
    if n in declared:
        needed, sound = n, declared == [n] and problem.successors == "unknown"
    else:
        needed = len(declared)
        sound = len(set(declared)) == needed and (problem.successors != "unknown" or needed == n)
    if problem.is_start(row):
        # It pays nothing, which is written as the smallest reward.
        sound = sound and all(table[j] == problem.reward_range[0] for table in problem.slot_low for j in slots)
    if not sound or problem.possible[row] != needed:
        raise Rejected(f"slots are inconsistent: {problem.place(row)} does not list the declared successors")


def _check_black_box(problem: Problem) -> None:
    """Whether nothing is declared but sizes and one range of rewards: everything else follows from these.

    Three slots serve all rows: anything not seen yet, the end that stays the end and pays nothing, and a start not
    seen yet, which pays nothing either, written as the smallest reward.
    """
    end, (low, high) = problem.n_states - 1, problem.declared_range
    if not low <= high:
        raise Rejected(f"rewards must lie in a range, got {low} to {high}")
    slots = [problem.slot_successor, problem.slot_low, problem.slot_high]
    nothing = min(low, 0.0)
    places = [int(problem.state_of(row) == end) for row in range(problem.n_rows - 1)]
    # Unless rewards are random, another reward is another outcome.
    outcomes = end + 1 if problem.random_rewards else end - 1 + END_REWARDS + STAY_REWARDS
    sound = (
        problem.random_start
        and problem.successors == "unknown"
        and slots == [[end + 1, end, end + 1], [[low, 0.0, nothing]], [[high, 0.0, nothing]]]
        and problem.row_slots == [range(i, i + 1) for i in [*places, 2]]
        and problem.possible == [*(1 if at_end else outcomes for at_end in places), end]
    )
    if not sound:
        raise Rejected("slots are inconsistent: an environment has one range of rewards and may go anywhere")
    *observations, last = problem.state_names
    if problem.max_states is None:
        named = _in_order(observations)
    else:
        named = problem.max_states == end and _found_in_order(observations)
    if last != "end" or not named or not _in_order(problem.action_names):
        raise Rejected("state_names and action_names of an environment must be its observations and actions in order")


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
