"""What a notebook shows of an object: a sentence, its facts and a table."""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape
from itertools import islice
from typing import Any, NamedTuple

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.policy import Policy, Rollout
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.frontier import Front
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import Solution
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.data_needs import Missing
from entropic_bpi.runs.forecasts.trial import RunForecast
from entropic_bpi.runs.loop import Identification
from entropic_bpi.show.choices import Choice, certified_choices, choices_of, reached_by
from entropic_bpi.show.decisions import decision_of
from entropic_bpi.show.words import claim_of, few, name, number, probability, risk_of, signed
from entropic_bpi.sources.log import Log

_SHOWN_ROWS = 8
_SHOWN_NAMES = 6
_LEFT = 'style="text-align: left"'
_LARGEST_MODEL = 10_000
_ESTIMATE = "An estimate from {}, not a certificate."


class Summary(NamedTuple):
    """What is shown: a title and a sentence, named facts, a table below its own title, and a note.

    The first of the ``rows`` has the titles of the columns. A table without a title is always open.
    """

    title: str
    sentence: str
    facts: dict[str, str]
    rows: Sequence[Sequence[str]] = ()
    rows_title: str = ""
    note: str = ""
    good: bool = True


def summary_of(thing: Any) -> str:
    """Return the summary of ``thing`` as HTML."""
    title, sentence, facts, rows, rows_title, note, good = _summary(thing)
    border = f"border: 1px solid #8886; border-left: 5px solid {'#1a8f55' if good else '#b87400'}; border-radius: 4px"
    parts = [
        f'<div style="{border}; padding: 0.5em 1em; max-width: 60em">',
        f'<p style="margin: 0; opacity: 0.75">{escape(title)}</p>',
        f'<p style="margin: 0.2em 0; font-size: 1.1em"><strong>{escape(sentence)}</strong></p>',
        _table((), facts.items()),
    ]
    more = len(rows) - 1 - _SHOWN_ROWS
    if len(rows) > 1 and rows_title:
        parts += [f"<details><summary>{escape(rows_title)}</summary>", _table(rows[0], rows[1 : _SHOWN_ROWS + 1])]
        parts += [f'<p style="margin: 0">and {more} more lines</p>'] * (more > 0) + ["</details>"]
    if note:
        parts.append(f'<p style="margin: 0.3em 0 0; opacity: 0.75">{escape(note)}</p>')
    if rows and not rows_title:
        parts.append(_table(rows[0], rows[1:]))
    return "\n".join([*parts, "</div>"])


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; without titles, the first column has the names of the rows."""
    head, kind, lines = "".join(f"<th {_LEFT}>{escape(title)}</th>" for title in titles), "td" if titles else "th", []
    for first, *others in rows:
        cells = [f"<{kind} {_LEFT}>{escape(first)}</{kind}>", *(f"<td {_LEFT}>{escape(cell)}</td>" for cell in others)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="margin: 0.3em 0"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


@singledispatch
def _summary(thing: Any) -> Summary:
    raise InvalidProblemError(f"there is no summary of a {type(thing).__name__}")


@_summary.register
def _certificate(certificate: Certificate) -> Summary:
    claim, explored = claim_of(certificate), certificate.risk == "any reward"
    title = "Certified" if claim.reached else "Not certified: do not rely on this policy"
    facts = {"bounds": claim.bounds, "risk": risk_of(certificate).name, "episodes": f"{certificate.episodes:,}"}
    note = f"The claim has {len(certificate.assumptions)} assumptions (.assumptions). eb.verify checks it, and "
    note += ".report('report.html') writes a report."
    choices = _policy_rows([] if explored else certified_choices(certificate))
    return Summary(title, claim.sentence, facts, *choices, note=note, good=claim.reached)


@_summary.register
def _identification(result: Identification) -> Summary:
    found = _certificate(result.certificate)
    run = f"{result.episodes:,} episodes in {result.seconds:.3g} s, seed {result.seed}"
    return found._replace(facts=found.facts | {"run": run})


@_summary.register
def _appraisal(appraisal: Appraisal) -> Summary:
    decision, surely = decision_of(appraisal), "exact"
    if appraisal.delta is not None:
        surely = f"all at once with probability at least {probability(appraisal.delta)}"
    advice = {"" if i else "choice": words for i, words in enumerate(decision.advice)}
    note = f"Intervals, {surely}. .report('decision.html') writes a page."
    return Summary("Appraisal", decision.sentence, advice, [decision.titles, *decision.rows], note=note)


@_summary.register
def _solution(solution: Solution) -> Summary:
    mdp, (low, high), choices = solution.mdp, solution.tail, list[Choice]()
    facts = {"risk": f"β = {signed(solution.beta)}", "model": _size(mdp)}
    if low or high:
        facts["after these steps"] = f"{signed(low)} to {signed(high)} more"
    if mdp.n_states * mdp.horizon <= _LARGEST_MODEL:
        choices = choices_of(mdp, solution.policy, reached_by(mdp, solution.policy))
    sentence = f"The best policy of this known model has the value {few(solution.value, 6)}."
    return Summary("Solution", sentence, facts, *_policy_rows(choices))


@_summary.register
def _front(front: Front) -> Summary:
    first, last, count = signed(front.betas[0]), signed(front.betas[-1]), len(front.policies)
    rows = [("β", "mean return", "standard deviation", "mean of the worst 5 %")]
    if front.mdp.n_states * front.mdp.horizon <= _LARGEST_MODEL:
        for row in front.table():
            rows.append((f"{signed(row.low)} to {signed(row.high)}", few(row.mean), few(row.std), few(row.cvar)))
    changes = ", ".join(few(beta) for beta in front.breakpoints) or "none"
    sentence = f"{count} {'policy is' if count == 1 else 'policies are'} best for some β from {first} to {last}."
    return Summary("Front", sentence, {"model": _size(front.mdp), "changes at β": changes}, rows, "The policies")


@_summary.register
def _model(mdp: FiniteMDP) -> Summary:
    low, high = mdp.reward_range
    facts = {
        "transitions": "the same at every step" if mdp.stationary else "differ from step to step",
        "rewards": f"from {signed(low)} to {signed(high)}",
        "start": f"state {name(mdp.state_names[mdp.start])}" if isinstance(mdp.start, int) else "random",
        "states": _names(mdp.state_names),
        "actions": _names(mdp.action_names),
    }
    return Summary("FiniteMDP", f"{_size(mdp)}.", facts)


@_summary.register
def _policy(policy: Policy) -> Summary:
    certificate, note = policy.certificate, "Call it with an observation and the step; .table() lists all actions."
    if certificate is None:
        return Summary("Policy", "Not certified: do not rely on this policy.", {})
    facts = {"risk": risk_of(certificate).name, "claim": claim_of(certificate).sentence}
    choices = _policy_rows(certified_choices(certificate))
    return Summary("Policy", f"{_size(certificate.problem)}.", facts, *choices, note=note)


@_summary.register
def _rollout(seen: Rollout) -> Summary:
    shares = {"5 %": 0.05, "median": 0.5, "95 %": 0.95}
    facts = {title: few(seen.quantile(share)) for title, share in shares.items()}
    facts["steps"] = f"{seen.lengths.min():,} to {seen.lengths.max():,}"
    sentence = f"{len(seen.returns):,} episodes with a mean return of {few(seen.mean)}."
    return Summary("Rollout", sentence, facts, note=_ESTIMATE.format("these episodes"))


@_summary.register
def _forecast(forecast: RunForecast) -> Summary:
    sentence, facts = str(forecast).split("\n")[0], {"trial run": f"{forecast.trial.episodes:,} episodes"}
    rows = [("declaration", "effect")]
    rows += [(str(one), one.effect + ("" if one.true else " (if it is true)")) for one in forecast.declarations]
    note, title = _ESTIMATE.format("a short trial run"), "What declarations would change"
    sentence = f"{sentence[:1].upper()}{sentence[1:]}."
    return Summary("Forecast", sentence, facts, rows, title, note, forecast.episodes is not None)


@_summary.register
def _data_needs(needs: Missing) -> Summary:
    reached, rows = (
        needs.expected <= needs.target,
        [("step", "state", "action", "visits", "visits needed", "gap reduction")],
    )
    for row in needs.rows:
        state, action = ("first states" if text is None else name(text) for text in (row.state, row.action))
        numbers = f"{row.visits:,}", f"{row.visits_needed:,}", number(row.gap_reduction)
        rows.append(("every step" if row.step is None else str(row.step), state, action, *numbers))
    expected = number(needs.expected) if reached else "the target is not reached by more visits"
    sentence = f"The certified gap is {number(needs.gap)}; the target is {number(needs.target)}."
    note, title = _ESTIMATE.format("what was observed so far"), "Where more visits would help"
    return Summary("Data needs", sentence, {"expected after the plan": expected}, rows, title, note, reached)


@_summary.register
def _log(log: Log) -> Summary:
    facts = {
        "from": name(log.name),
        "longest episode": f"{log.longest:,} steps",
        "states": _names([str(label) for label in log.states]),
        "actions": _names([str(label) for label in log.actions]),
    }
    if log.excluded:
        facts["excluded"] = log.excluded
    note = "eb.certify(log, …) computes a certificate from it."
    return Summary("Log", f"{log.episodes:,} episodes, {log.lines:,} lines.", facts, note=note)


def _size(model: FiniteMDP | Problem) -> str:
    return f"{model.n_states:,} states, {model.n_actions:,} actions, {model.horizon:,} steps"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(name(text) for text in islice(names, _SHOWN_NAMES)) + (f" and {more:,} more" if more > 0 else "")


def _policy_rows(choices: Sequence[Choice]) -> tuple[list[tuple[str, ...]], str]:
    """Return what a policy does as a table, and its title."""
    rows = [(choice.steps, name(choice.state), name(choice.action)) for choice in choices]
    title = "The policy, on the states that it reaches along observed transitions"
    return [("steps", "state", "action"), *rows], title
