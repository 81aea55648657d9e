"""From what is known to the page: everything that the template shows, in words."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from entropic_bpi._version import __version__
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.estimate import best_by_estimates
from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.methods.tails import step_of_grid
from entropic_bpi.runs.appraisal import Appraisal, appraise
from entropic_bpi.runs.certification import certify
from entropic_bpi.runs.data_needs import Row, limits
from entropic_bpi.show.decisions import decision_of, measure_name
from entropic_bpi.show.report._charts import fall_of_the_gap, law_of_the_return, laws_of_policies
from entropic_bpi.show.report._policy import Line, policy_of, side_by_side
from entropic_bpi.show.report._returns import EPISODES, expected_returns
from entropic_bpi.show.report._sources import ReportInputs
from entropic_bpi.show.words import Rounding, claim_of, name, number, probability, risk_of, signed
from entropic_bpi.sources.assumption_tests import REJECTED_FROM
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST_TEXT = 600
_MOST_PROBLEMS = 20
# With more than this share of episodes of which nothing is known, the rest says little.
_MOST_CUT = 0.5
# For the other measures of a certificate: entries of a table that take a second, and thresholds that are too few.
_MOST_ENTRIES, _FEWEST_BINS = 400_000, 50


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
    certificate, verification, appraisal = inputs.certificate, inputs.verification, inputs.appraisal
    told: dict[str, Any] = {} if certificate is None else {"claim": claim_of(certificate)}
    problem = None if certificate is None else certificate.problem
    declared = getattr(problem if appraisal is None else appraisal, "title", None)
    state = "failed"
    if appraisal is not None and verification.ok:
        told |= {**_decided(appraisal), "side_by_side": side_by_side(appraisal)}
        state = "exact" if certificate is None else "certified"
        if certificate is not None:
            told |= _rests_on(certificate, inputs)
    elif certificate is not None and verification.ok:
        told |= _told(certificate, inputs, grid, actions)
        state = "certified" if certificate.reached else "open"
    heading = "Certificate of a policy" if appraisal is None else "Appraisal of policies"
    return environment.get_template("page.html").render(
        **told,
        state=state,
        title="NOT VERIFIED" if state == "failed" else heading if declared is None else name(declared),
        declared_title=None if declared is None else name(declared),
        of_policies=appraisal is not None,
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


def _decided(appraisal: Appraisal) -> dict[str, Any]:
    """What an appraisal tells: the decision, the picture and the table, and what its policies do."""
    return {
        "decision": decision_of(appraisal),
        "measures": [measure_name(measure, appraisal.unit) for measure in appraisal.measures],
        "laws": laws_of_policies(appraisal),
        "exact": appraisal.delta is None,
    }


def _rests_on(certificate: Certificate, inputs: ReportInputs) -> dict[str, Any]:
    """What a claim rests on, and how it came about."""
    to, history = Rounding.of(certificate), inputs.history
    return {
        "episodes": f"{certificate.episodes:,}",
        "assumptions": [_short(words) for words in certificate.assumptions],
        "tests": _tests(certificate),
        "gap": None if history is None else fall_of_the_gap(history, certificate.eps, certificate.problem),
        "run_known": history is not None,
        "eps": to.at_most(certificate.eps),
        "last_gap": to.at_most(certificate.gap),
    }


def _own_measures(certificate: Certificate) -> dict[str, Any]:
    """Other measures of the policy of a certificate, and of the one that is best by the estimates, where that is quick."""
    problem = certificate.problem
    places = len(problem.frame.states)
    if problem.random_rewards or certificate.method != "kl" or places > _MOST_ENTRIES // _FEWEST_BINS:
        return {}
    policies = {
        "this policy": certificate.policy,
        "best found for the mean": certify(certificate, beta=0.0).policy,
        "best by the estimates alone (no certificate)": best_by_estimates(certificate),
    }
    try:
        found = appraise(certificate, policies, bins=_bins(certificate, _MOST_ENTRIES // places))
    except EntropicBPIError:
        return {}
    kept: dict[Any, str] = {}
    for policy in policies:  # those that differ where they come
        kept.setdefault(tuple(found.interval(policy, measure.text) for measure in found.measures), policy)
    names = set(kept.values())
    table = [row for row in found.table if row["policy"] in names]
    bands = {policy: found.bands[policy] for policy in policies if policy in names}
    return _decided(replace(found, table=table, bands=bands, policies={policy: policies[policy] for policy in bands}))


def _bins(certificate: Certificate, most: int) -> int | None:
    """None where the rewards are multiples of a number that makes no more than so many thresholds."""
    problem = certificate.problem
    return None if problem.return_spread <= most * step_of_grid(problem, certificate.counts, None) else most


def _told(
    certificate: Certificate, inputs: ReportInputs, grid: tuple[int, int] | None, actions: Sequence[str] | None
) -> dict[str, Any]:
    """All that the certificate itself tells, beside its claim."""
    expected, rows = expected_returns(certificate), limits(certificate)
    policy = policy_of(certificate, grid, actions)
    return {
        **_rests_on(certificate, inputs),
        **_own_measures(certificate),
        "statement": certificate.statement,
        "policy": policy,
        "returns": law_of_the_return(certificate, expected) if expected.cut <= _MOST_CUT else None,
        "simulated": EPISODES,
        "discounted": certificate.problem.discount is not None,
        "horizon": certificate.problem.horizon,
        "cut": f"{100 * expected.cut:.3g} %" if expected.cut else None,
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
        "fall": number(row.gap_reduction),
        "percent": f"{100 * row.gap_reduction / most:.0f}" if most > 0 else "0",
    }


def _provenance(inputs: ReportInputs) -> dict[str, str]:
    facts = {}
    if inputs.certificate is not None:
        facts = _certificate_facts(inputs.certificate)
        if inputs.appraisal is not None:  # the risk and the goal of the certificate are no part of it
            facts = {fact: words for fact, words in facts.items() if fact not in ("risk", "goal", "method")}
            facts["certainty"] = f"{probability(inputs.certificate.delta)}, for all numbers at once"
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
