"""Are the slots those that the file's own declarations ask for?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from entropic_bpi.verification._file import Rejected
from reference.verifier._problem import Problem


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
    if problem.is_start(row) and isinstance(problem.start, list):
        needed, sound = len(problem.start), declared == problem.start
    if problem.is_start(row):
        # It pays nothing, which is written as the smallest reward.
        sound = sound and all(table[j] == problem.reward_range[0] for table in problem.slot_low for j in slots)
    if not sound or problem.possible[row] != needed:
        raise Rejected(f"slots are inconsistent: {problem.describe(row)} does not list the declared successors")


def _check_black_box(problem: Problem) -> None:
    """Whether nothing is declared but sizes, one range of rewards and successors: everything else follows from these.

    Two slots serve all rows: anything not seen yet, and the end that stays the end and pays nothing. Then come the declared
    first states or, if there are none, one not seen yet; they pay nothing either, written as the smallest reward. Behind
    them are the declared successors, row by row in order, each with the whole range of rewards, and as often as several are
    possible; where counts are not pooled, all steps share them.
    """
    end, (low, high) = problem.n_states - 1, problem.declared_range
    if not low <= high:
        raise Rejected(f"rewards must lie in a range, got {low} to {high}")
    if problem.max_states not in (None, end):
        raise Rejected(f"max_states is {problem.max_states}, but the claim is about {end} states")
    first = problem.start if isinstance(problem.start, list) else [end + 1]
    declared, rows, behind = problem.successors != "unknown", [], 2 + len(first)
    nothing = [min(low, 0.0)] * len(first)
    for row in range(end * problem.n_actions):
        size = len(problem.row_slots[row]) if declared else int(problem.known_reward)
        rows.append(range(behind, behind + size) if size else range(1))
        behind += size
    rows += [range(1, 2)] * problem.n_actions
    others, starts = behind - 2 - len(first), range(2, 2 + len(first))
    lows, highs = [low] * others, [high] * others
    if problem.noise is not None:
        lows, highs = problem.slot_low[0][starts.stop :], problem.slot_high[0][starts.stop :]
        ends = list(zip(lows, highs, strict=True))
        if len(ends) != others or any(
            (least, most) != (low, high) and not low <= least == most <= high for least, most in ends
        ):
            raise Rejected("noise: an outcome pays what is outside of the range of rewards")
    if problem.known_reward:
        lows, highs = problem.slot_low[0][starts.stop :], problem.slot_high[0][starts.stop :]
        if len(lows) != others or (min(lows), max(highs)) != (low, high):
            raise Rejected("slots are inconsistent: the known rewards are not all that may be paid")
        for y, least, most in zip(problem.slot_successor[starts.stop :], lows, highs, strict=True):
            if least > most or (declared and y < end and least != most) or (not declared and y != end + 1):
                raise Rejected("slots are inconsistent: a known reward is a number, except at the end")
    sound = (
        problem.random_start
        and problem.slot_successor[: starts.stop] == [end + 1, end, *first]
        and problem.slot_low == [[low, 0.0, *nothing] + lows]
        and problem.slot_high == [[high, 0.0, *nothing] + highs]
        and problem.row_slots == rows * (1 if problem.stationary else problem.horizon) + [starts]
        and problem.possible == [_possible(problem, row) for row in range(problem.n_rows)]
    )
    if not sound:
        raise Rejected(
            "slots are inconsistent: an environment has one range of rewards, and goes where it is declared to"
        )


def check_names(problem: Problem) -> None:
    """Whether the states and actions of an environment are named after its observations and actions."""
    *observations, last = problem.state_labels
    named = _in_order(observations) if problem.max_states is None else _found_in_order(observations)
    if last != "end" or not named or not _in_order(problem.action_labels):
        raise Rejected("names or labels of an environment must be its observations and actions in order")


def _possible(problem: Problem, row: int) -> int:
    """How many different outcomes a row of an environment may have; 0 if its successors are not listed in order."""
    end = problem.n_states - 1
    if problem.is_start(row):
        return len(problem.start) if isinstance(problem.start, list) else end
    if problem.state_of(row) == end:
        return 1
    if problem.successors == "unknown":
        return sum(problem.reward_kinds(row, y) for y in range(problem.n_states))
    following = [problem.slot_successor[j] for j in problem.row_slots[row]]
    if problem.random_rewards:  # a state has one place, whatever its rewards
        following = following if len(set(following)) == len(following) else [end + 1]
    return len(following) if following == sorted(following) and following[-1] <= end else 0


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
