"""Are the slots those that the file's own declarations ask for?"""

from __future__ import annotations

import math
import re
from itertools import product

from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._problem import Problem


def check_slots(problem: Problem) -> None:
    if problem.black_box:
        _check_black_box(problem)
        return
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
    """Whether nothing is declared but sizes, one range of rewards and successors: everything else follows from these.

    Three slots serve all rows: anything not seen yet, the end that stays the end and pays nothing, and a start not
    seen yet, which pays nothing either, written as the smallest reward. Behind them are the declared successors, row by row
    in order, each with the whole range of rewards; where counts are not pooled, all steps share them.
    """
    end, (low, high) = problem.n_states - 1, problem.declared_range
    if not low <= high:
        raise Rejected(f"rewards must lie in a range, got {low} to {high}")
    nothing, declared = min(low, 0.0), problem.successors != "unknown"
    rows, behind = [], 3
    for row in range(end * problem.n_actions):
        size = len(problem.row_slots[row]) if declared else 0
        rows.append(range(behind, behind + size) if declared else range(1))
        behind += size
    sound = (
        problem.random_start
        and problem.slot_successor[:3] == [end + 1, end, end + 1]
        and problem.slot_low == [[low, 0.0, nothing] + [low] * (behind - 3)]
        and problem.slot_high == [[high, 0.0, nothing] + [high] * (behind - 3)]
        and problem.row_slots[:-1]
        == (rows + [range(1, 2)] * problem.n_actions) * (1 if problem.stationary else problem.horizon)
        and problem.row_slots[-1] == range(2, 3)
        and problem.possible == [_possible(problem, row) for row in range(problem.n_rows)]
    )
    if not sound:
        raise Rejected(
            "slots are inconsistent: an environment has one range of rewards, and goes where it is declared to"
        )
    if problem.state_names != _observations(problem.state_names) or problem.action_names != _numbered(
        problem.n_actions
    ):
        raise Rejected("state_names and action_names of an environment must be its observations and actions in order")


def _possible(problem: Problem, row: int) -> int:
    """How many different outcomes a row of an environment may have; 0 if its successors are not listed in order."""
    end = problem.n_states - 1
    if problem.is_start(row):
        return end
    if problem.state_of(row) == end:
        return 1
    following = [problem.slot_successor[j] for j in problem.row_slots[row]]
    if problem.successors == "unknown":
        following = list(range(problem.n_states))
    if following != sorted(set(following)) or following[-1] > end:
        return 0
    return sum(problem.reward_kinds(row, y) for y in following)


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
