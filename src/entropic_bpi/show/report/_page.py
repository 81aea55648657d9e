"""From what is known to the page: everything that the template shows, in words."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from entropic_bpi._version import __version__
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.runs.data_needs import Row, limits
from entropic_bpi.show.report._charts import fall_of_the_gap, law_of_the_return
from entropic_bpi.show.report._policy import Line, policy_of
from entropic_bpi.show.report._returns import EPISODES, expected_returns
from entropic_bpi.show.report._sources import ReportInputs
from entropic_bpi.show.words import Rounding, claim_of, name, risk_of, signed
from entropic_bpi.sources.assumption_tests import REJECTED_FROM
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST_TEXT = 600
_MOST_PROBLEMS = 20
# With more than this share of episodes of which nothing is known, the rest says little.
_MOST_CUT = 0.5


def _templates() -> Environment:
    """The templates of this package; whatever they are filled with is text, never markup."""
    jinja2 = module_of_extra("jinja2", "report", "a report")
    loader = jinja2.PackageLoader("entropic_bpi.show", "report")
    environment: Environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["steps"] = _steps
    return environment


def page_of(inputs: ReportInputs, *, grid: tuple[int, int] | None, actions: Sequence[str] | None) -> str:
    """The page, complete."""
    environment = _templates()
    from markupsafe import Markup  # which Jinja needs

    style, script = (environment.loader.get_source(environment, f"page.{kind}")[0] for kind in ("css", "js"))  # type: ignore[union-attr]
    certificate, verification = inputs.certificate, inputs.verification
    told: dict[str, Any] = {} if certificate is None else {"claim": claim_of(certificate)}
    state = "failed"
    if certificate is not None and verification.ok:
        told |= _told(certificate, inputs, grid, actions)
        state = "certified" if certificate.reached else "open"
    return environment.get_template("page.html").render(
        **told,
        state=state,
        title="NOT VERIFIED" if state == "failed" else "Certificate of a policy",
        problems=[_short(problem) for problem in verification.problems[:_MOST_PROBLEMS]],
        file=_short(inputs.file),
        sha256=inputs.sha256,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        provenance=_provenance(inputs),
        settings={_short(fact): _short(value) for fact, value in inputs.run.get("facts", {}).items()},
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _told(
    certificate: Certificate, inputs: ReportInputs, grid: tuple[int, int] | None, actions: Sequence[str] | None
) -> dict[str, Any]:
    """All that the certificate itself tells, beside its claim."""
    expected, rows, to = expected_returns(certificate), limits(certificate), Rounding.of(certificate)
    policy = policy_of(certificate, grid, actions)
    return {
        "statement": certificate.statement,
        "episodes": f"{certificate.episodes:,}",
        "assumptions": [_short(words) for words in certificate.assumptions],
        "tests": _tests(certificate),
        "policy": policy,
        "returns": law_of_the_return(certificate, expected) if expected.cut <= _MOST_CUT else None,
        "simulated": EPISODES,
        "discounted": certificate.problem.discount is not None,
        "horizon": certificate.problem.horizon,
        "cut": f"{100 * expected.cut:.3g} %" if expected.cut else None,
        "gap": None if inputs.history is None else fall_of_the_gap(inputs.history, certificate.eps),
        "run_known": inputs.history is not None,
        "eps": to.at_most(certificate.eps),
        "last_gap": to.at_most(certificate.gap),
        "limits": [_limit(row, policy.names, rows[0].gap_reduction) for row in rows],
        "limits_bounded": certificate.method == "kl",
        "limits_words": "The state-action pairs whose visits matter most, and how much smaller the gap would be with twice "
        "as many visits (an estimate)."
        if certificate.method == "kl"
        else "The state-action pairs that the policy plays most often, and their visits.",
    }


def _tests(certificate: Certificate) -> list[dict[str, str]]:
    evidence = certificate.provenance.tests
    if evidence is None:
        return []
    against = {
        "transitions are the same at every step": evidence.stationary,
        "transitions do not depend on the previous state": evidence.memoryless,
        "nothing changes over the episodes": evidence.unchanging,
    }
    return [
        {
            "assumed": words,
            "value": signed(f"{value:.3g}"),
            "shown": f"{max(value, 0):.3g}",
            "limit": f"{REJECTED_FROM:.3g}",
        }
        for words, value in against.items()
        if value is not None
    ]


def _limit(row: Row, actions: dict[str, str], most: float) -> dict[str, str]:
    return {
        "step": "all" if row.step is None else f"{row.step}",
        "state": "(first states)" if row.state is None else name(row.state),
        "action": "" if row.action is None else actions[row.action],
        "visits": f"{row.visits:,}",
        "fall": f"{row.gap_reduction:.3g}",
        "percent": f"{100 * row.gap_reduction / most:.0f}" if most > 0 else "0",
    }


def _provenance(inputs: ReportInputs) -> dict[str, str]:
    facts = {}
    if inputs.certificate is not None:
        facts = _certificate_facts(inputs.certificate)
    run = inputs.run
    if "seed" in run:
        facts["seed"] = f"{run['seed']}"
    if "seconds" in run:
        facts["run"] = f"{run['episodes']:,} episodes in {run['seconds']:.3g} s"
    return facts | {"library": f"entropic-bpi {_short(inputs.library)}; report made with {__version__}"}


def _certificate_facts(certificate: Certificate) -> dict[str, str]:
    problem, method = certificate.problem, certificate.method
    if certificate.constants is not None:
        method += f", {certificate.constants} constants"
    if certificate.test is not None:
        method += f", gap from the {certificate.test} certificate"
    source = problem.source_hash
    facts = {
        "source": _short(source if ":" in source else f"model with content hash {source}"),
        "size": f"{problem.n_states:,} states, {problem.n_actions:,} actions, {problem.horizon:,} steps",
        "risk": risk_of(certificate).name,
        "goal": f"gap ε = {problem.eps:g}, failure probability δ = {problem.delta:g}",
        "method": method,
        "episodes": f"{certificate.episodes:,} behind the claim",
    }
    if certificate.provenance.preregistration is not None:
        facts["preregistered"] = f"file with SHA-256 {certificate.provenance.preregistration}"
    return facts


def _steps(lines: dict[int, Line]) -> str:
    """What is done in a cell at each step, for the page's script."""
    return json.dumps({h: [line.action.colour, line.action.name, line.bounds] for h, line in lines.items()})


def _short(text: str) -> str:
    text = printable(str(text))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _hash(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
