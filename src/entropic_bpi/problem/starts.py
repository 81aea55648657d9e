"""What is declared about the first state, in numbers of states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.declarations import FIXED
from entropic_bpi.tools.text import shown


def numbered_starts(declared: Any, index: Callable[[Any], int]) -> Any:
    """Return the numbers of the declared first states, in order, or what else is declared about them.

    ``index`` returns the number of a state, and a negative one for what is none.
    """
    if declared is None or (isinstance(declared, str) and declared == FIXED):
        return declared
    numbers = set()
    for state in declared if isinstance(declared, list) else [declared]:
        try:
            number = index(state)
        except TypeError:  # what cannot be looked up
            number = -1
        if number < 0:
            raise InvalidProblemError(f"start names {shown(state)}, which is not a state of the source")
        numbers.add(number)
    return sorted(numbers)


def start_of_model(mdp: FiniteMDP, declared: Any) -> Any:
    """Return what is known of a model's first state; what is declared about it must be true of the model."""
    names = {name: number for number, name in enumerate(mdp.state_names)}
    numbers = names | {number: number for number in range(mdp.n_states)}
    starts, support = numbered_starts(declared, lambda state: numbers.get(state, -1)), mdp.start_distribution > 0
    if starts == FIXED and support.sum() > 1:
        raise InvalidProblemError(f"start='fixed' is wrong: the model starts in {support.sum()} different states")
    outside = np.setdiff1d(np.flatnonzero(support), starts) if isinstance(starts, list) else np.empty(0)
    if len(outside):
        raise InvalidProblemError(
            f"start={shown(declared)} is wrong: the model starts in {mdp.state_names[outside[0]]!r}"
        )
    return mdp.start if isinstance(mdp.start, int) else starts
