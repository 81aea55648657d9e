"""Are the slots those that the file's own declarations ask for?"""

from __future__ import annotations

import math
import re
from itertools import product

from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._problem import Problem

# A step of a black box may end with up to 8 different rewards and lead back to the same state with up to 2.
END_REWARDS, STAY_REWARDS = 8, 2


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
    if problem.state_names != _observations(problem.state_names) or problem.action_names != _numbered(
        problem.n_actions
    ):
        raise Rejected("state_names and action_names of an environment must be its observations and actions in order")


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
