"""Follow a policy forward, in a known model or along observed transitions."""

from collections.abc import Callable, Iterator

import numpy as np

from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SparseTransitions
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

# The states that are occupied at a step, their masses, and the rows that are played there.
Step = tuple[np.ndarray, np.ndarray, np.ndarray]


def walk(
    start: np.ndarray,
    steps: int,
    played: Callable[[int, np.ndarray], np.ndarray],
    transitions: Callable[[int], SparseTransitions],
) -> Iterator[Step]:
    """Follow a policy from a distribution over states.

    Parameters
    ----------
    start : float or bool array, ``(S,)``
        Masses at the first step. With booleans, masses say what can be reached, however small its probability is.
    steps : int
        Number of steps.
    played : callable
        The row that is played in each of the given states at a step.
    transitions : callable
        The rows of a step.

    Yields
    ------
    states, masses, rows : arrays
        For each step, the occupied states in increasing order, their masses, and the rows that are played.
    """
    occupied = start
    for h in range(steps):
        states = np.flatnonzero(occupied)
        rows, masses = played(h, states), occupied[states]
        yield states, masses, rows
        table = transitions(h)
        entries, lengths = table.entries_of(rows)
        moved = np.repeat(masses, lengths) * table.probabilities[entries]
        occupied = np.bincount(table.indices[entries], moved, len(start)).astype(start.dtype)


def walk_model(mdp: FiniteMDP, policy: np.ndarray, *, reach: bool = False) -> Iterator[Step]:
    """Follow a policy in a known model, with probabilities or, with ``reach``, booleans."""
    start = mdp.start_distribution
    return walk(
        start > 0 if reach else start,
        mdp.horizon,
        lambda h, states: states * mdp.n_actions + policy[h, states],
        mdp.step_rows,
    )


def walk_observed(problem: Problem, seen: Transitions, policy: np.ndarray, *, reach: bool = False) -> Iterator[Step]:
    """Follow a policy of all planned steps along observed transitions; a row without visits leads nowhere.

    Masses are products of observed frequencies or, with ``reach``, booleans.
    """
    start = np.zeros(problem.n_states, dtype=bool if reach else float)
    start[problem.first_state] = 1
    order = np.argsort(seen.rows, kind="stable")
    rows, times = seen.rows[order], seen.times[order]
    shares = times / np.bincount(rows, times, problem.n_rows)[rows]
    table = SparseTransitions(np.searchsorted(rows, np.arange(problem.n_rows + 1)), seen.successors[order], shares)

    def played(h: int, states: np.ndarray) -> np.ndarray:
        actions = 1 if problem.artificial and h == 0 else problem.n_actions
        return problem.rows_at(h, states)[::actions] + np.minimum(policy[h, states], actions - 1)

    return walk(start, problem.steps, played, lambda h: table)
