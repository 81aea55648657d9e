"""The policy as a table, with certified bounds in each line."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.show.choices import choice_spans, reached_by, seen_to_reach
from entropic_bpi.show.words import Rounding, name, unit_of, with_unit

_MOST_LINES = 1000  # more would make the page slow; the file has them all
_COLOURS = 8


class Action(NamedTuple):
    """An action: its name and the number of its colour."""

    name: str
    colour: int


class Line(NamedTuple):
    """The action in a state from one step to another, bounds that hold at each of these steps, and the visits."""

    steps: str
    state: str
    action: Action
    lower: str
    upper: str
    visits: int


class Policy(NamedTuple):
    """The policy in the states that it reaches along observed transitions.

    ``left_out`` is the number of lines that do not fit the page. ``actions`` are those that the policy plays. ``bounded``
    says whether the lines have certified bounds.
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
            # The weakest bounds of all steps; those of steps that cannot be reached are NaN, which fmin and fmax ignore.
            lower, upper = np.fmin.reduce(bounds[0][steps, s]), np.fmax.reduce(bounds[1][steps, s])
            if np.isfinite(lower) and np.isfinite(upper):
                least, most = with_unit(to.at_least(lower), unit), with_unit(to.at_most(upper), unit)
        seen = int(visits[list(rows)].sum())
        return Line(_span(h, last), name(problem.state_names[s]), named[action], least, most, seen)

    merged = choice_spans(certificate.policy, seen_to_reach(certificate))
    used = {int(certificate.policy[h, s]) for h, s, _ in merged}
    return Policy(
        lines=[line(*span) for span in merged[:_MOST_LINES]],
        left_out=max(0, len(merged) - _MOST_LINES),
        actions=[action for number, action in enumerate(named) if number in used],
        bounded=bounds is not None,
    )


def _coloured(names: Sequence[str]) -> list[Action]:
    return [Action(name(text), number % _COLOURS) for number, text in enumerate(names)]


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"


class SideBySide(NamedTuple):
    """The actions of several policies in the states that one of them reaches: ``rows`` of steps, state and actions.

    ``left_out`` is the number of rows that do not fit the page.
    """

    policies: list[str]
    rows: list[tuple[str, str, list[Action]]]
    left_out: int


def side_by_side(appraisal: Appraisal) -> SideBySide:
    """Return the table of the policies of an appraisal; steps between which no action in a state changes are one row."""
    stacked = np.stack(list(appraisal.policies.values()))
    if appraisal.certificate is not None:  # along observed transitions
        source: FiniteMDP | Problem = appraisal.certificate.problem
        each = [list(seen_to_reach(replace(appraisal.certificate, policy=policy))) for policy in stacked]
    else:
        assert appraisal.model is not None
        source = appraisal.model
        each = [list(reached_by(appraisal.model, policy)) for policy in stacked]
    reached, actions = [sorted(set().union(*step)) for step in zip(*each, strict=True)], _coloured(source.action_names)
    # A number for each combination of actions, so that steps between which none changes are one row.
    code = np.unique(stacked.reshape(len(stacked), -1), axis=1, return_inverse=True)[1].reshape(stacked.shape[1:])
    spans, rows = choice_spans(code, reached), []
    for h, s, last in spans[:_MOST_LINES]:
        rows.append((_span(h, last), name(source.state_names[s]), [actions[int(policy[h, s])] for policy in stacked]))
    return SideBySide([name(each) for each in appraisal.policies], rows, max(0, len(spans) - _MOST_LINES))


def _value_bounds(certificate: Certificate) -> tuple[np.ndarray, np.ndarray] | None:
    """Return lower bounds of the policy's value and upper bounds of the best one ``(H, S)``, or None if there are none."""
    if certificate.method != "kl" or certificate.risk == "evar":
        return None
    from entropic_bpi.methods.kl.method import KL

    lower, upper = KL(certificate.problem).value_bounds(certificate.counts, certificate._planned)
    first = int(certificate.problem.artificial)
    return lower[first:], upper[first:]
