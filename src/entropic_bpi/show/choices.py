"""The actions of a policy in the states that it reaches, with the user's names of states and actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # commands that need no arrays import this module too
    import numpy as np

    from entropic_bpi.certificate.certificate import Certificate
    from entropic_bpi.model.mdp import FiniteMDP
    from entropic_bpi.problem.problem import Problem


class Choice(NamedTuple):
    """The action of a policy in a state from ``first_step`` to ``last_step`` (0-based)."""

    state: str
    action: str
    first_step: int
    last_step: int

    @property
    def steps(self) -> str:
        return f"{self.first_step}" if self.first_step == self.last_step else f"{self.first_step}-{self.last_step}"


def choices_of(model: FiniteMDP | Problem, policy: np.ndarray, reached: Iterable[Sequence[int]]) -> list[Choice]:
    """Return the actions in the states ``reached`` at each step; a choice lasts until the action in its state changes."""
    states, actions = model.state_names, model.action_names
    return [Choice(states[s], actions[policy[h, s]], h, last) for h, s, last in choice_spans(policy, reached)]


def choice_spans(policy: np.ndarray, reached: Iterable[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return the first step, the state and the last step of each choice; a new one begins when the action changes."""
    current: dict[int, int] = {}  # state → its index in the list
    spans: list[tuple[int, int, int]] = []
    for h, states in enumerate(reached):
        for s in states:
            first = spans[current[s]][0] if s in current else -1
            if first >= 0 and policy[first, s] == policy[h, s]:
                spans[current[s]] = (first, s, h)
            else:
                current[s] = len(spans)
                spans.append((h, s, h))
    return spans


def certified_choices(certificate: Certificate) -> list[Choice]:
    """Return the actions of the certified policy in the states that it reaches along observed transitions."""
    return choices_of(certificate.problem, certificate.policy, seen_to_reach(certificate))


def seen_to_reach(certificate: Certificate) -> Iterator[list[int]]:
    """Yield for each step the states that the certified policy reaches along observed transitions."""
    from entropic_bpi.runs.walk import walk_observed

    problem = certificate.problem
    over = problem.n_states - 1 if problem.black_box_rewards else -1  # the state after the end, where nothing is chosen
    steps = walk_observed(problem, certificate.transitions, certificate._planned, reach=True)
    for states, _, _ in islice(steps, int(problem.artificial), None):
        yield states[states != over].tolist()


def reached_by(mdp: FiniteMDP, policy: np.ndarray) -> Iterator[list[int]]:
    """Yield for each step the states that a policy can reach in a known model."""
    from entropic_bpi.runs.walk import walk_model

    return (states.tolist() for states, _, _ in walk_model(mdp, policy, reach=True))
