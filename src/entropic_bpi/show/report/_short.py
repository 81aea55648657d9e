"""What a notebook shows: the short form of the report, one card."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import islice
from typing import Any

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.frontier import Front
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import Solution
from entropic_bpi.runs.loop import Identification
from entropic_bpi.show.choices import Choice, certified_choices, choices_of, reached_by
from entropic_bpi.show.report._page import templates
from entropic_bpi.show.report._words import claim_of, name, risk_of, signed

__all__ = ["card"]

_SHOWN_ROWS = 8
_SHOWN_NAMES = 6
_LARGEST_MODEL = 10_000


@singledispatch
def card(thing: Any) -> str:
    """The card of ``thing``."""
    raise InvalidProblemError(f"there is no short form of a {type(thing).__name__}")


@card.register
def _certificate(certificate: Certificate) -> str:
    return _claimed(certificate, {})


@card.register
def _identification(result: Identification) -> str:
    run = {"run": f"{result.episodes:,} episodes in {result.seconds:.3g} s, seed {result.seed}"}
    return _claimed(result.certificate, run)


def _claimed(certificate: Certificate, run: dict[str, str]) -> str:
    claim = claim_of(certificate)
    return _card(
        "Certified" if claim.reached else "Not certified: do not rely on this policy",
        claim.sentence,
        {"bounds": claim.bounds, "risk": risk_of(certificate).name, "episodes": f"{certificate.episodes:,}", **run},
        certified_choices(certificate),
        note=f"It rests on {len(certificate.assumptions)} assumptions (.assumptions). eb.verify checks it again, and "
        ".report('report.html') shows all of it.",
        good=claim.reached,
    )


@card.register
def _solution(solution: Solution) -> str:
    mdp, (low, high) = solution.mdp, solution.tail
    later = {"after these steps": f"{signed(low)} to {signed(high)} more"} if low or high else {}
    choices = []
    if mdp.n_states * mdp.horizon <= _LARGEST_MODEL:
        choices = choices_of(solution.policy, reached_by(mdp, solution.policy), mdp.state_names, mdp.action_names)
    return _card(
        "Solution",
        f"The best policy of a known model is worth {signed(f'{solution.value:.6g}')}.",
        {"risk": f"β = {signed(solution.beta)}", "model": _size(mdp), **later},
        choices,
    )


@card.register
def _front(front: Front) -> str:
    first, last, count = signed(front.betas[0]), signed(front.betas[-1]), len(front.policies)
    shown = []
    if front.mdp.n_states * front.mdp.horizon <= _LARGEST_MODEL:
        shown = [
            (f"{signed(row.low)} to {signed(row.high)}", *(f"{number:.4g}" for number in (row.mean, row.std, row.cvar)))
            for row in front.table()
        ]
    return _rendered(
        "Front",
        f"{count} {'policy is' if count == 1 else 'policies are'} best for some β from {first} to {last}.",
        {"model": _size(front.mdp), "changes at β": ", ".join(f"{beta:.4g}" for beta in front.breakpoints) or "none"},
        "The policies",
        ("β", "mean return", "standard deviation", "mean of the worst 5 %"),
        shown,
    )


@card.register
def _model(mdp: FiniteMDP) -> str:
    low, high = mdp.reward_range
    start = f"state {name(mdp.state_names[mdp.start])}" if isinstance(mdp.start, int) else "random"
    return _card(
        "FiniteMDP",
        f"{_size(mdp)}.",
        {
            "transitions": "the same at every step" if mdp.stationary else "differ from step to step",
            "rewards": f"from {signed(low)} to {signed(high)}",
            "start": start,
            "states": _names(mdp.state_names),
            "actions": _names(mdp.action_names),
        },
        [],
    )


def _size(mdp: FiniteMDP) -> str:
    return f"{mdp.n_states:,} states, {mdp.n_actions:,} actions, {mdp.horizon:,} steps"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(name(text) for text in islice(names, _SHOWN_NAMES)) + (f" and {more:,} more" if more > 0 else "")


def _card(
    title: str, sentence: str, facts: dict[str, str], choices: Sequence[Choice], *, note: str = "", good: bool = True
) -> str:
    rows = [(choice.steps, name(choice.state), name(choice.action)) for choice in choices]
    columns, summary = ("steps", "state", "action"), "The policy, where it was seen to come"
    return _rendered(title, sentence, facts, summary, columns, rows, note=note, good=good)


def _rendered(
    title: str,
    sentence: str,
    facts: dict[str, str],
    summary: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    note: str = "",
    good: bool = True,
) -> str:
    template = templates().get_template("short.html")
    more = len(rows) - _SHOWN_ROWS
    return template.render(
        title=title, sentence=sentence, facts=facts, summary=summary, columns=columns, rows=rows[:_SHOWN_ROWS], more=more,
        note=note, good=good,
    )  # fmt: skip
