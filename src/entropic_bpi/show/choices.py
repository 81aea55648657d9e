"""What a policy does where it was seen to come, in the user's names: the policy as one would tell it to somebody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the command line imports this module before it knows whether it needs arrays
    import numpy as np

    from entropic_bpi.certificate.certificate import Certificate
    from entropic_bpi.model.mdp import FiniteMDP
    from entropic_bpi.problem.problem import Problem


class Choice(NamedTuple):
    """What a policy does in a state from ``first_step`` to ``last_step`` (0-based)."""

    state: str
    action: str
    first_step: int
    last_step: int

    @property
    def steps(self) -> str:
        return f"{self.first_step}" if self.first_step == self.last_step else f"{self.first_step}-{self.last_step}"


def choices_of(model: FiniteMDP | Problem, policy: np.ndarray, reached: Iterable[Sequence[int]]) -> list[Choice]:
    """What the policy does in the states ``reached`` at each step; steps merge until the state's action changes."""
    states, actions = model.state_names, model.action_names
    return [Choice(states[s], actions[policy[h, s]], h, last) for h, s, last in places_of(policy, reached)]


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
    return choices_of(certificate.problem, certificate.policy, seen_to_reach(certificate))


def seen_to_reach(certificate: Certificate) -> Iterator[list[int]]:
    """For each step the states to which transitions that were observed lead the certified policy."""
    from entropic_bpi.runs.walk import walk_observed

    problem = certificate.problem
    over = problem.n_states - 1 if problem.black_box_rewards else -1  # the state after the end, where nothing is chosen
    steps = walk_observed(problem, certificate.transitions, certificate._planned, reach=True)
    for states, _, _ in islice(steps, int(problem.artificial), None):
        yield states[states != over].tolist()


def reached_by(mdp: FiniteMDP, policy: np.ndarray) -> Iterator[list[int]]:
    """For each step the states in which the policy of a known model may be."""
    from entropic_bpi.runs.walk import walk_model

    return (states.tolist() for states, _, _ in walk_model(mdp, policy, reach=True))
