"""What a policy does where it was seen to come, in the user's names: the policy as one would tell it to somebody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the command line imports this module before it knows whether it needs arrays
    import numpy as np

    from entropic_bpi.certificate.certificate import Certificate
    from entropic_bpi.model.mdp import FiniteMDP

__all__ = ["Choice", "certified_choices", "choices_of", "places_of", "reached_by", "seen_to_reach"]


class Choice(NamedTuple):
    """What a policy does in a state from ``first_step`` to ``last_step`` (0-based)."""

    state: str
    action: str
    first_step: int
    last_step: int

    @property
    def steps(self) -> str:
        return f"{self.first_step}" if self.first_step == self.last_step else f"{self.first_step}-{self.last_step}"


def choices_of(
    policy: np.ndarray, reached: Iterable[Sequence[int]], state_names: Sequence[str], action_names: Sequence[str]
) -> list[Choice]:
    """What the policy does in the states ``reached`` at each step; steps merge until the state's action changes."""
    return [
        Choice(state_names[s], action_names[policy[first, s]], first, last)
        for first, s, last in places_of(policy, reached)
    ]


def places_of(policy: np.ndarray, reached: Iterable[Sequence[int]]) -> list[tuple[int, int, int]]:
    """First step, state and last step of each choice; a state has another one when its action changes."""
    current: dict[int, int] = {}  # state → its place in the list
    places: list[tuple[int, int, int]] = []
    for h, states in enumerate(reached):
        for s in states:
            first = places[current[s]][0] if s in current else -1
            if first >= 0 and policy[first, s] == policy[h, s]:
                places[current[s]] = (first, s, h)
            else:
                current[s] = len(places)
                places.append((h, s, h))
    return places


def certified_choices(certificate: Certificate) -> list[Choice]:
    """What the certified policy does in the states that it reaches along transitions that were observed."""
    problem, policy = certificate.problem, certificate.policy
    return choices_of(policy, seen_to_reach(certificate), problem.state_names, problem.action_names)


def seen_to_reach(certificate: Certificate) -> Iterator[list[int]]:
    """For each step the states to which transitions that were observed lead the certified policy."""
    import numpy as np

    problem, seen = certificate.problem, certificate.transitions

    def after(rows: np.ndarray) -> np.ndarray:
        return np.unique(seen.successors[np.isin(seen.rows, rows)])

    first = problem.rows_at(0, np.array([0]))
    states = after(first) if problem.artificial else np.array([problem.start])
    over = problem.n_states - 1 if problem.black_box_rewards else -1  # the state after the end, where nothing is chosen
    for h in range(problem.horizon):
        yield states[states != over].tolist()
        rows = problem.rows_at(h + problem.artificial, states).reshape(len(states), problem.n_actions)
        states = after(rows[np.arange(len(states)), certificate.policy[h, states]])


def reached_by(mdp: FiniteMDP, policy: np.ndarray) -> Iterator[list[int]]:
    """For each step the states in which the policy of a known model may be."""
    import numpy as np

    reached = mdp.start_distribution > 0
    for h in range(mdp.horizon):
        states = np.flatnonzero(reached)
        yield states.tolist()
        rows = mdp.step_rows(h)
        reached = np.zeros(mdp.n_states, dtype=bool)
        for row in states * mdp.n_actions + policy[h, states]:
            entries = slice(rows.indptr[row], rows.indptr[row + 1])
            reached[rows.indices[entries][rows.probabilities[entries] > 0]] = True
