"""The policy as a table and, where the states are cells, as a map; with the certified bounds of each place."""

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
from entropic_bpi.show.words import Rounding, name, unit_of, with_unit
from entropic_bpi.tools.checks import check_integer

# More lines would make the page slow; the file has them all. Places are those (step and state) of a map with a slider.
_MOST_LINES, _MOST_CELLS, _MOST_PLACES = 1000, 2500, 10_000
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
    lower: str
    upper: str
    visits: int

    @property
    def bounds(self) -> str:
        """What is certified, in words."""
        return self.lower and f"value at least {self.lower}; from here no policy has a value above {self.upper}"


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
    """Return the policy of a certificate, as the page shows it.

    ``shape`` gives rows and columns of the map, ``actions`` names for the actions; None: as far as the names tell.
    """
    problem, to, unit = certificate.problem, Rounding.of(certificate), unit_of(certificate)
    named = _coloured(_action_names(certificate, actions))
    reached, bounds = list(seen_to_reach(certificate)), _value_bounds(certificate)
    visits = np.bincount(certificate.transitions.rows, certificate.transitions.times, problem.n_rows)

    def line(h: int, s: int, last: int) -> Line:
        action, steps = int(certificate.policy[h, s]), range(h, last + 1)
        rows = {int(problem.rows_at(step + problem.artificial, np.array([s]))[action]) for step in steps}
        least = most = ""
        if bounds is not None:
            # The weakest of all steps; where nobody can be at a step, its bounds are NaN, which fmin and fmax skip.
            lower, upper = np.fmin.reduce(bounds[0][steps, s]), np.fmax.reduce(bounds[1][steps, s])
            if np.isfinite(lower) and np.isfinite(upper):
                least, most = with_unit(to.at_least(lower), unit), with_unit(to.at_most(upper), unit)
        seen = int(visits[list(rows)].sum())
        return Line(_span(h, last), name(problem.state_names[s]), named[action], least, most, seen)

    def cell(s: int) -> Cell | None:
        steps = [h for h, states in enumerate(reached) if s in states]
        return None if s < 0 else Cell(name(problem.state_names[s]), {h: line(h, s, h) for h in steps})

    merged, cells, grid = places_of(certificate.policy, reached), _cells(certificate, shape), None
    if cells is not None and sum(map(len, reached)) <= _MOST_PLACES:
        drawn = [[cell(s) for s in row] for row in cells.tolist()]
        grid = Grid(drawn, max((h + 1 for row in drawn for one in row if one for h in one.lines), default=1))
    used = {int(certificate.policy[h, s]) for h, s, _ in merged}
    return Policy(
        lines=[line(*place) for place in merged[:_MOST_LINES]],
        left_out=max(0, len(merged) - _MOST_LINES),
        actions=[action for number, action in enumerate(named) if number in used],
        names=dict(zip(problem.action_names, (action.name for action in named), strict=True)),
        grid=grid,
        bounded=bounds is not None,
    )


def _coloured(names: Sequence[str]) -> list[Action]:
    return [Action(name(text), number % _COLOURS) for number, text in enumerate(names)]


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"


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
    if appraisal.certificate is not None:  # where each was seen to come
        source: FiniteMDP | Problem = appraisal.certificate.problem
        each = [list(seen_to_reach(replace(appraisal.certificate, policy=policy))) for policy in stacked]
    else:
        assert appraisal.model is not None
        source = appraisal.model
        each = [list(reached_by(appraisal.model, policy)) for policy in stacked]
    reached, actions = [sorted(set().union(*step)) for step in zip(*each, strict=True)], _coloured(source.action_names)
    # One number for what all policies do together, so that steps at which nothing changes are one row.
    code = np.unique(stacked.reshape(len(stacked), -1), axis=1, return_inverse=True)[1].reshape(stacked.shape[1:])
    places, rows = places_of(code, reached), []
    for h, s, last in places[:_MOST_LINES]:
        rows.append((_span(h, last), name(source.state_names[s]), [actions[int(policy[h, s])] for policy in stacked]))
    return SideBySide([name(each) for each in appraisal.policies], rows, max(0, len(places) - _MOST_LINES))


def _value_bounds(certificate: Certificate) -> tuple[np.ndarray, np.ndarray] | None:
    """Return lower bounds of the policy's and upper bounds of the best value ``(H, S)``, where the method has them."""
    if certificate.method != "kl" or certificate.risk == "evar":
        return None
    from entropic_bpi.methods.kl.method import KL

    lower, upper = KL(certificate.problem).value_bounds(certificate.counts, planned_policy(certificate))
    first = int(certificate.problem.artificial)
    return lower[first:], upper[first:]


def _world(certificate: Certificate) -> tuple[str, int | None] | None:
    """Return the actions and the columns of the grid world that a certificate is about, if it is one."""
    source = certificate.problem.source_hash.removeprefix("gymnasium:")
    return next((known for world, known in _GRID_WORLDS.items() if source.startswith(world)), None)


def _action_names(certificate: Certificate, given: Sequence[str] | None) -> Sequence[str]:
    names, world = certificate.problem.action_names, _world(certificate)
    if given is None:
        declared = certificate.problem.action_labels is not None
        return names if declared or world is None or len(names) != 4 else world[0]
    if isinstance(given, str) or len(given) != len(names):
        raise InvalidProblemError(f"actions must be {len(names)} names, one for each action; got {len(given)}")
    return [str(each) for each in given]


def _cells(certificate: Certificate, shape: tuple[int, int] | None) -> np.ndarray | None:
    """Return the state of each cell ``(rows, columns)``, -1 for none; None if the states seem not to be cells."""
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
        wide = world[1] or round(n**0.5)
        return np.arange(n).reshape(-1, wide) if wide > 1 and n % wide == 0 and n <= _MOST_CELLS else None
    pairs = [_PAIR.fullmatch(text) for text in problem.labels[0][:n]]
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
