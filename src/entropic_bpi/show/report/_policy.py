"""The policy as a table and, where the states are cells, as a map; with the certified bounds of each place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.data_needs import planned_policy
from entropic_bpi.show.choices import places_of, reached_by, seen_to_reach
from entropic_bpi.show.words import Rounding, name
from entropic_bpi.tools.checks import check_integer

# More lines would make the page slow; the file has them all.
_MOST_LINES = 1000
_MOST_CELLS = 2500
# Places (step and state) that a map with a slider may hold.
_MOST_PLACES = 10_000
_COLOURS = 8
_PAIR = re.compile(r"\(?(\d{1,3}), ?(\d{1,3})\)?")
# Environments of Gymnasium whose states are cells in row order: their actions, and how many columns there are.
_GRID_WORLDS = {"FrozenLake": ("←↓→↑", None), "CliffWalking": ("↑→↓←", 12)}


class Action(NamedTuple):
    """An action: its name and the number of its colour."""

    name: str
    colour: int


class Line(NamedTuple):
    """What the policy does in a state from one step to another, bounds that hold at each of them, and their visits."""

    steps: str
    state: str
    action: Action
    lower: str | None
    upper: str | None
    visits: int

    @property
    def bounds(self) -> str:
        """What is certified, in words."""
        if self.lower is None:
            return ""
        return f"value at least {self.lower}; from here no policy has a value above {self.upper}"


class Cell(NamedTuple):
    """A cell of the map: its state, and what is done there at each step at which the policy was seen to come."""

    state: str
    lines: dict[int, Line]


class Grid(NamedTuple):
    """The map: rows of cells, None where there is no state; and the steps that can be chosen."""

    rows: list[list[Cell | None]]
    steps: int


class Policy(NamedTuple):
    """The policy on the places that it was seen to reach.

    ``left_out`` lines do not fit the page. ``actions`` are those that it plays, ``names`` what all are called here.
    ``bounded`` tells whether values are certified for each place.
    """

    lines: list[Line]
    left_out: int
    actions: list[Action]
    names: dict[str, str]
    grid: Grid | None
    bounded: bool


def policy_of(certificate: Certificate, shape: tuple[int, int] | None, actions: Sequence[str] | None) -> Policy:
    """The policy of a certificate, as the page shows it.

    ``shape`` gives rows and columns of the map, ``actions`` names for the actions; None: as far as the names tell.
    """
    problem, to = certificate.problem, Rounding.of(certificate)
    shown = [name(text) for text in _action_names(certificate, actions)]
    named = [Action(text, number % _COLOURS) for number, text in enumerate(shown)]
    reached = list(seen_to_reach(certificate))
    bounds = _value_bounds(certificate)
    visits = np.bincount(certificate.transitions.rows, certificate.transitions.times, problem.n_rows)

    def line(h: int, s: int, last: int) -> Line:
        action, steps = int(certificate.policy[h, s]), range(h, last + 1)
        rows = {int(problem.rows_at(step + problem.artificial, np.array([s]))[action]) for step in steps}
        sides: tuple[str | None, str | None] = (None, None)
        if bounds is not None:
            # The weakest of all steps; where nobody can be at a step, its bounds are NaN, which fmin and fmax skip.
            lower, upper = np.fmin.reduce(bounds[0][steps, s]), np.fmax.reduce(bounds[1][steps, s])
            if np.isfinite(lower) and np.isfinite(upper):
                sides = to.at_least(lower), to.at_most(upper)
        shown_steps = f"{h}" if h == last else f"{h}–{last}"
        return Line(shown_steps, name(problem.state_names[s]), named[action], *sides, int(visits[list(rows)].sum()))

    merged = places_of(certificate.policy, reached)
    used = {int(certificate.policy[h, s]) for h, s, _ in merged}
    cells = _cells(certificate, shape)
    grid = None
    if cells is not None and sum(map(len, reached)) <= _MOST_PLACES:
        steps = {s: [h for h, states in enumerate(reached) if s in states] for s in cells.ravel().tolist() if s >= 0}
        grid = Grid(
            [
                [
                    None if s < 0 else Cell(name(problem.state_names[s]), {h: line(h, s, h) for h in steps[s]})
                    for s in row
                ]
                for row in cells.tolist()
            ],
            max((h + 1 for each in steps.values() for h in each), default=1),
        )
    return Policy(
        lines=[line(*place) for place in merged[:_MOST_LINES]],
        left_out=max(0, len(merged) - _MOST_LINES),
        actions=[action for number, action in enumerate(named) if number in used],
        names=dict(zip(problem.action_names, shown, strict=True)),
        grid=grid,
        bounded=bounds is not None,
    )


class SideBySide(NamedTuple):
    """What several policies do, on the places that one of them reaches: ``rows`` of steps, state and an action for each.

    ``left_out`` rows do not fit the page.
    """

    policies: list[str]
    rows: list[tuple[str, str, list[Action]]]
    left_out: int


def side_by_side(appraisal: Appraisal) -> SideBySide:
    """Return what the policies of an appraisal do; where all do the same at every step, a state has one row."""
    stacked = np.stack(list(appraisal.policies.values()))
    states, actions, reached = _places(appraisal)
    names = [Action(name(text), number % _COLOURS) for number, text in enumerate(actions)]
    # One number for what all policies do together, so that steps at which nothing changes are one row.
    code = np.unique(stacked.reshape(len(stacked), -1), axis=1, return_inverse=True)[1].reshape(stacked.shape[1:])
    places = places_of(code, reached)
    rows = [
        (
            f"{h}" if h == last else f"{h}–{last}",
            name(states[s]),
            [names[int(policy[h, s])] for policy in stacked],
        )
        for h, s, last in places[:_MOST_LINES]
    ]
    return SideBySide([name(each) for each in appraisal.policies], rows, max(0, len(places) - _MOST_LINES))


def _places(appraisal: Appraisal) -> tuple[Sequence[str], Sequence[str], list[list[int]]]:
    """Names of states and actions, and the states that some policy was seen to reach at each step, or can reach."""
    if appraisal.certificate is None:
        assert appraisal.model is not None
        each = [list(reached_by(appraisal.model, policy)) for policy in appraisal.policies.values()]
        source: FiniteMDP | Problem = appraisal.model
    else:
        source = appraisal.certificate.problem
        each = [list(seen_to_reach(replace(appraisal.certificate, policy=p))) for p in appraisal.policies.values()]
    return source.state_names, source.action_names, [sorted(set().union(*step)) for step in zip(*each, strict=True)]


def _value_bounds(certificate: Certificate) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower bounds of the policy's and upper bounds of the best value ``(H, S)``, where the method has them."""
    if certificate.method != "kl" or certificate.risk == "evar":
        return None
    from entropic_bpi.methods.kl.method import KL

    lower, upper = KL(certificate.problem).value_bounds(certificate.counts, planned_policy(certificate))
    first = int(certificate.problem.artificial)
    return lower[first:], upper[first:]


def _world(certificate: Certificate) -> str | None:
    source = certificate.problem.source_hash.removeprefix("gymnasium:")
    return next((world for world in _GRID_WORLDS if source.startswith(world)), None)


def _action_names(certificate: Certificate, given: Sequence[str] | None) -> Sequence[str]:
    names, world = certificate.problem.action_names, _world(certificate)
    if given is None:
        return names if world is None or len(names) != 4 else _GRID_WORLDS[world][0]
    if isinstance(given, str) or len(given) != len(names):
        raise InvalidProblemError(f"actions must be {len(names)} names, one for each action; got {len(given)}")
    return [str(each) for each in given]


def _cells(certificate: Certificate, shape: tuple[int, int] | None) -> np.ndarray | None:
    """The state of each cell ``(rows, columns)``, -1 for none; None if the states are no cells as far as one can tell."""
    problem, world = certificate.problem, _world(certificate)
    n = problem.n_states - problem.black_box_rewards  # without the end of an episode
    if shape is not None:
        rows, columns = (check_integer("grid", side, at_least=1, at_most=_MOST_CELLS) for side in shape)
        if not 1 < rows * columns <= min(problem.n_states, _MOST_CELLS):
            raise InvalidProblemError(
                f"grid has {rows} x {columns} cells, which must be the first of {problem.n_states} states, in the order of "
                f"rows, and at most {_MOST_CELLS}"
            )
        return np.arange(rows * columns).reshape(rows, columns)
    if world is not None:
        wide = _GRID_WORLDS[world][1] or round(n**0.5)
        return np.arange(n).reshape(-1, wide) if wide > 1 and n % wide == 0 and n <= _MOST_CELLS else None
    pairs = [_PAIR.fullmatch(text) for text in problem.state_names[:n]]
    if len(pairs) < 4 or not all(pairs):
        return None
    places = np.array([[int(side) for side in pair.groups()] for pair in pairs if pair])
    places -= places.min(axis=0)
    rows, columns = places.max(axis=0) + 1
    # Pairs of numbers that leave most of their rectangle empty are rather not cells.
    if min(rows, columns) < 2 or rows * columns > min(2 * n, _MOST_CELLS):
        return None
    cells = np.full((rows, columns), -1)
    cells[*places.T] = np.arange(n)
    return cells
