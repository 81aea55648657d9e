"""The policy as a table, with the certified bounds of each place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.show.choices import places_of, reached_by, seen_to_reach
from entropic_bpi.show.words import Rounding, name, unit_of, with_unit

_MOST_LINES = 1000  # more would make the page slow; the file has them all
_COLOURS = 8


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


class Policy(NamedTuple):
    """The policy on the places that it was seen to reach.

    ``left_out`` lines do not fit the page. ``actions`` are those that it plays. ``bounded`` tells whether values are
    certified for each place.
    """

    lines: list[Line]
    left_out: int
    actions: list[Action]
    bounded: bool


def policy_of(certificate: Certificate) -> Policy:
    """Return the policy of a certificate, as the page shows it."""
    problem, to, unit = certificate.problem, Rounding.of(certificate), unit_of(certificate)
    named, bounds = _coloured(problem.action_names), _value_bounds(certificate)
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

    merged = places_of(certificate.policy, seen_to_reach(certificate))
    used = {int(certificate.policy[h, s]) for h, s, _ in merged}
    return Policy(
        lines=[line(*place) for place in merged[:_MOST_LINES]],
        left_out=max(0, len(merged) - _MOST_LINES),
        actions=[action for number, action in enumerate(named) if number in used],
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

    lower, upper = KL(certificate.problem).value_bounds(certificate.counts, certificate._planned)
    first = int(certificate.problem.artificial)
    return lower[first:], upper[first:]
