"""Summaries for notebooks: a claim is shown as a sentence, facts and a table, any other object as its text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.loop import RunResult
from entropic_bpi.show.choices import certified_choices
from entropic_bpi.show.decisions import decision_of
from entropic_bpi.show.words import claim_of, name, risk_of

_SHOWN_ROWS = 8
_LEFT = 'style="text-align: left"'
_BOX = "border: 1px solid #8886; border-left: 5px solid {}; border-radius: 4px; padding: 0.5em 1em; max-width: 60em"


def summary_of(thing: Any) -> str:
    """Return the summary of ``thing`` as HTML."""
    if isinstance(thing, Appraisal):
        decision = decision_of(thing)
        advice = "".join(f"<p>{escape(words)}</p>" for words in decision.advice)
        return _box("Appraisal", decision.sentence, advice + _table(decision.titles, decision.rows))
    certificate = thing.certificate if isinstance(thing, RunResult) else thing
    if not isinstance(certificate, Certificate):
        return f"<pre>{escape(str(thing))}</pre>"
    claim, explored = claim_of(certificate), certificate.risk == "any reward"
    facts = [("bounds", claim.bounds), ("risk", risk_of(certificate).name), ("episodes", f"{certificate.episodes:,}")]
    if thing is not certificate:
        facts.append(("run", f"{thing.episodes:,} episodes in {thing.seconds:.3g} s, seed {thing.seed}"))
    content, choices = _table((), facts), [] if explored else certified_choices(certificate)
    if choices:
        rows = [(choice.steps, name(choice.state), name(choice.action)) for choice in choices[:_SHOWN_ROWS]]
        content += "<details><summary>The policy in the states that it reaches along observed transitions</summary>"
        content += f"{_table(('steps', 'state', 'action'), rows)}{len(rows)} of {len(choices)} lines</details>"
    title = "Certified" if claim.reached else "Not certified: do not rely on this policy"
    return _box(title, claim.sentence, content, claim.reached)


def _box(title: str, sentence: str, content: str, good: bool = True) -> str:
    style = _BOX.format("#1a8f55" if good else "#b87400")
    return (
        f'<div style="{style}"><p style="margin: 0; opacity: 0.75">{escape(title)}</p>'
        f'<p style="margin: 0.2em 0; font-size: 1.1em"><strong>{escape(sentence)}</strong></p>{content}</div>'
    )


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; without titles, the first column has the names of the rows."""
    head, kind, lines = "".join(f"<th {_LEFT}>{escape(title)}</th>" for title in titles), "td" if titles else "th", []
    for first, *others in rows:
        cells = [f"<{kind} {_LEFT}>{escape(first)}</{kind}>", *(f"<td {_LEFT}>{escape(cell)}</td>" for cell in others)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="margin: 0.3em 0"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
