"""What a notebook shows: a summary of the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape
from itertools import islice
from typing import Any

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.policy import Policy, Rollout
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.frontier import Front
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import Solution
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.data_needs import Missing
from entropic_bpi.runs.forecasts.trial import RunForecast
from entropic_bpi.runs.loop import Identification
from entropic_bpi.show.choices import Choice, certified_choices, choices_of, reached_by
from entropic_bpi.show.decisions import decision_of, measure_name
from entropic_bpi.show.words import claim_of, name, number, probability, risk_of, signed
from entropic_bpi.sources.log import Log

_SHOWN_ROWS = 8
_SHOWN_NAMES = 6
_LEFT = 'style="text-align: left"'
_LARGEST_MODEL = 10_000


@singledispatch
def summary_of(thing: Any) -> str:
    """Return the summary of ``thing``."""
    raise InvalidProblemError(f"there is no summary of a {type(thing).__name__}")


@summary_of.register
def _certificate(certificate: Certificate) -> str:
    return _claimed(certificate, {})


@summary_of.register
def _identification(result: Identification) -> str:
    run = {"run": f"{result.episodes:,} episodes in {result.seconds:.3g} s, seed {result.seed}"}
    return _claimed(result.certificate, run)


def _claimed(certificate: Certificate, run: dict[str, str]) -> str:
    claim = claim_of(certificate)
    return _with_policy(
        "Certified" if claim.reached else "Not certified: do not rely on this policy",
        claim.sentence,
        {"bounds": claim.bounds, "risk": risk_of(certificate).name, "episodes": f"{certificate.episodes:,}", **run},
        certified_choices(certificate),
        note=f"The claim has {len(certificate.assumptions)} assumptions (.assumptions). eb.verify checks it, and "
        ".report('report.html') writes a report.",
        good=claim.reached,
    )


@summary_of.register
def _appraisal(appraisal: Appraisal) -> str:
    decision = decision_of(appraisal)
    titles = ["policy", *(measure_name(measure, appraisal.unit) for measure in appraisal.measures)]
    surely = (
        "exact" if appraisal.delta is None else f"all at once with probability at least {probability(appraisal.delta)}"
    )
    advice = {"" if i else "choice": words for i, words in enumerate(decision.advice)}
    rendered = _rendered(
        "Appraisal", decision.sentence, advice, note=f"Intervals, {surely}. .report('decision.html') writes a page."
    )
    return rendered.removesuffix("</div>") + _table(titles, decision.rows) + "</div>"


@summary_of.register
def _solution(solution: Solution) -> str:
    mdp, (low, high) = solution.mdp, solution.tail
    later = {"after these steps": f"{signed(low)} to {signed(high)} more"} if low or high else {}
    choices = []
    if mdp.n_states * mdp.horizon <= _LARGEST_MODEL:
        choices = choices_of(solution.policy, reached_by(mdp, solution.policy), mdp.state_names, mdp.action_names)
    return _with_policy(
        "Solution",
        f"The best policy of this known model has the value {signed(number(solution.value, 6))}.",
        {"risk": f"β = {signed(solution.beta)}", "model": _size(mdp), **later},
        choices,
    )


@summary_of.register
def _front(front: Front) -> str:
    first, last, count = signed(front.betas[0]), signed(front.betas[-1]), len(front.policies)
    shown = []
    if front.mdp.n_states * front.mdp.horizon <= _LARGEST_MODEL:
        shown = [
            (
                f"{signed(row.low)} to {signed(row.high)}",
                *(signed(number(value)) for value in (row.mean, row.std, row.cvar)),
            )
            for row in front.table()
        ]
    return _rendered(
        "Front",
        f"{count} {'policy is' if count == 1 else 'policies are'} best for some β from {first} to {last}.",
        {
            "model": _size(front.mdp),
            "changes at β": ", ".join(signed(number(beta)) for beta in front.breakpoints) or "none",
        },
        "The policies",
        ("β", "mean return", "standard deviation", "mean of the worst 5 %"),
        shown,
    )


@summary_of.register
def _model(mdp: FiniteMDP) -> str:
    low, high = mdp.reward_range
    start = f"state {name(mdp.state_names[mdp.start])}" if isinstance(mdp.start, int) else "random"
    return _with_policy(
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


@summary_of.register
def _policy(policy: Policy) -> str:
    certificate = policy.certificate
    if certificate is None:
        return _with_policy("Policy", "Not certified: do not rely on this policy.", {}, [])
    problem = certificate.problem
    return _with_policy(
        "Policy",
        f"{problem.n_states:,} states, {problem.n_actions:,} actions, {policy.horizon:,} steps.",
        {"risk": risk_of(certificate).name, "claim": claim_of(certificate).sentence},
        certified_choices(certificate),
        note="Call it with an observation and the step; .table() lists all actions.",
    )


@summary_of.register
def _rollout(seen: Rollout) -> str:
    shares = {"5 %": 0.05, "median": 0.5, "95 %": 0.95}
    return _rendered(
        "Rollout",
        f"{len(seen.returns):,} episodes with a mean return of {signed(number(seen.mean))}.",
        {title: signed(number(seen.quantile(share))) for title, share in shares.items()}
        | {"steps": f"{seen.lengths.min():,} to {seen.lengths.max():,}"},
        note="An estimate from these episodes, not a certificate.",
    )


@summary_of.register
def _forecast(forecast: RunForecast) -> str:
    sentence = str(forecast).split("\n")[0]
    bounds = {"at least": forecast.lower, "at most, proved": forecast.upper}
    facts = {title: f"{value:,.0f} episodes" for title, value in bounds.items() if value is not None}
    return _rendered(
        "Forecast",
        sentence[:1].upper() + sentence[1:] + ".",
        {"trial run": f"{forecast.trial.episodes:,} episodes", **facts},
        "What declarations would change",
        ("declaration", "effect"),
        [(str(one), one.effect + ("" if one.true else " (if it is true)")) for one in forecast.declarations],
        note="An estimate from a short trial run, not a certificate.",
        good=forecast.episodes is not None,
    )


@summary_of.register
def _data_needs(needs: Missing) -> str:
    reached = needs.expected <= needs.target
    rows = [
        (
            "every step" if row.step is None else str(row.step),
            *("first states" if text is None else name(text) for text in (row.state, row.action)),
            f"{row.visits:,}",
            f"{row.visits_needed:,}",
            number(row.gap_reduction),
        )
        for row in needs.rows
    ]
    return _rendered(
        "Data needs",
        f"The certified gap is {number(needs.gap)}; the target is {number(needs.target)}.",
        {"expected after the plan": number(needs.expected) if reached else "the target is not reached by more visits"},
        "Where more visits would help",
        ("step", "state", "action", "visits", "visits needed", "gap reduction"),
        rows,
        note="An estimate from what was observed so far, not a certificate.",
        good=reached,
    )


@summary_of.register
def _log(log: Log) -> str:
    kept = {"excluded": log.excluded} if log.excluded else {}
    return _rendered(
        "Log",
        f"{log.episodes:,} episodes, {log.lines:,} lines.",
        {
            "from": name(log.name),
            "longest episode": f"{log.longest:,} steps",
            "states": _names([str(label) for label in log.states]),
            "actions": _names([str(label) for label in log.actions]),
            **kept,
        },
        note="eb.certify(log, …) computes a certificate from it.",
    )


def _size(mdp: FiniteMDP) -> str:
    return f"{mdp.n_states:,} states, {mdp.n_actions:,} actions, {mdp.horizon:,} steps"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(name(text) for text in islice(names, _SHOWN_NAMES)) + (f" and {more:,} more" if more > 0 else "")


def _with_policy(
    title: str, sentence: str, facts: dict[str, str], choices: Sequence[Choice], *, note: str = "", good: bool = True
) -> str:
    rows = [(choice.steps, name(choice.state), name(choice.action)) for choice in choices]
    columns, summary = (
        ("steps", "state", "action"),
        "The policy, on the states that it reaches along observed transitions",
    )
    return _rendered(title, sentence, facts, summary, columns, rows, note=note, good=good)


def _rendered(
    title: str,
    sentence: str,
    facts: dict[str, str],
    summary: str = "",
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    *,
    note: str = "",
    good: bool = True,
) -> str:
    more = len(rows) - _SHOWN_ROWS
    colour = "#1a8f55" if good else "#b87400"
    border = f"border: 1px solid #8886; border-left: 5px solid {colour}; border-radius: 4px"
    parts = [
        f'<div style="{border}; padding: 0.5em 1em; max-width: 60em">',
        f'<p style="margin: 0; opacity: 0.75">{escape(title)}</p>',
        f'<p style="margin: 0.2em 0; font-size: 1.1em"><strong>{escape(sentence)}</strong></p>',
        _table((), facts.items()),
    ]
    if rows:
        parts += [f"<details><summary>{escape(summary)}</summary>", _table(columns, rows[:_SHOWN_ROWS])]
        parts += [f'<p style="margin: 0">and {more} more lines</p>'] * (more > 0) + ["</details>"]
    if note:
        parts.append(f'<p style="margin: 0.3em 0 0; opacity: 0.75">{escape(note)}</p>')
    return "\n".join([*parts, "</div>"])


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; without titles, the first column has the names of the rows."""
    head = "".join(f"<th {_LEFT}>{escape(title)}</th>" for title in titles)
    lines = []
    for first, *others in rows:
        kind = "td" if titles else "th"
        cells = [f"<{kind} {_LEFT}>{escape(first)}</{kind}>", *(f"<td {_LEFT}>{escape(cell)}</td>" for cell in others)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="margin: 0.3em 0"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
