"""The HTML page of a report: its inputs, and the values that the template shows."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi._version import __version__
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.provenance import tested
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.checkpoint import read_summary
from entropic_bpi.runs.data_needs import limits
from entropic_bpi.runs.loop import RunResult
from entropic_bpi.runs.state import HISTORY
from entropic_bpi.show.decisions import decision_of
from entropic_bpi.show.files import CERTIFICATE, CHECKPOINT, certificate_in
from entropic_bpi.show.files import HISTORY as HISTORY_FILE
from entropic_bpi.show.report._charts import fall_of_the_gap, law_of_the_return, laws_of_policies
from entropic_bpi.show.report._policy import policy_of, side_by_side
from entropic_bpi.show.report._returns import EPISODES, expected_returns
from entropic_bpi.show.words import Rounding, claim_of, few, name, probability, risk_of, signed, with_unit
from entropic_bpi.sources.assumption_tests import REJECTED_FROM
from entropic_bpi.tools.extras import module_of_extra
from entropic_bpi.tools.files import read_csv
from entropic_bpi.verification import Verification, verify
from entropic_bpi.verification._file import unpacked

_LONGEST_TEXT = 600
_MOST_PROBLEMS = 20
# No estimate of the return is shown if more than this share of the simulated episodes reaches a pair without data.
_MOST_CUT = 0.5


# -- what a report is made from ----------------------------------------------------------------------------------------


class ReportInputs(NamedTuple):
    """The inputs of a report.

    Attributes
    ----------
    certificate : Certificate or None
        None if the file is not a valid certificate, or if there is none because the model is known.
    verification : Verification
    file, sha256 : str
        Name and digest of the certificate's file.
    library : str
        The version that wrote it.
    history : structured array or None
        The certified bounds after each plan, if the run is known.
    run : dict
        ``seed``, ``seconds``, ``episodes`` and ``facts`` of the run, as far as they are known.
    appraisal : Appraisal or None
        The appraisal, if the page is about one and not about the certificate.
    """

    certificate: Certificate | None
    verification: Verification
    file: str = CERTIFICATE
    sha256: str = ""
    library: str = __version__
    history: np.ndarray | None = None
    run: Mapping[str, Any] = MappingProxyType({})
    appraisal: Appraisal | None = None


def inputs_of(source: Any) -> ReportInputs:
    """Collect the inputs of a report from ``source``, and verify its certificate."""
    if isinstance(source, (str, Path)):
        return _from_path(Path(source))
    appraisal = source if isinstance(source, Appraisal) else None
    claim = source.certificate if isinstance(source, (Appraisal, RunResult)) else source
    if appraisal is not None and claim is None:
        return ReportInputs(None, Verification(True, math.nan, math.nan, math.nan), "", appraisal=source)
    if not isinstance(claim, Certificate):
        raise InvalidProblemError(
            "a report needs the result of identify or appraise, a certificate or the path of one; got "
            f"{type(source).__name__}"
        )
    checked, file = (claim, CERTIFICATE) if appraisal is None else (appraisal, "appraisal.json")
    digest, history = hashlib.sha256(checked._text().encode()).hexdigest(), getattr(source, "history", None)
    run = vars(source) if isinstance(source, RunResult) else {}
    return ReportInputs(claim, verify(checked), file, digest, __version__, history, run, appraisal)


def _from_path(path: Path) -> ReportInputs:
    file = certificate_in(path)
    if not file.is_file():
        raise CertificateError(f"no such file: {file}")
    verification, digest, history, run = verify(file), hashlib.sha256(file.read_bytes()).hexdigest(), None, {}
    try:
        certificate = Certificate.load(file)
    except CertificateError as error:
        if verification.ok:
            verification = replace(verification, ok=False, problems=[str(error)])
        return ReportInputs(None, verification, file.name, digest, "unknown")
    if path.is_dir():
        history = _read_history(path / HISTORY_FILE, certificate.risk == "any reward")
        run = read_summary(path / CHECKPOINT) or {}
    library = json.loads(unpacked(file))["library"]
    return ReportInputs(certificate, verification, file.name, digest, library, history, run)


def _read_history(path: Path, explored: bool) -> np.ndarray | None:
    """Return the history of a run; that of an exploration has bounds on the gap only."""
    if not path.exists():
        return None
    unknown = {"lower": -math.inf, "upper": math.inf} if explored else {}
    try:
        lines = [unknown | line for line in read_csv(path)]
        return np.array([tuple(float(line[field]) for field in HISTORY.fields or ()) for line in lines], dtype=HISTORY)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidProblemError(
            f"{path} is not the history of a run, a table of {', '.join(HISTORY.fields or ())}: {error}"
        ) from None


# -- the page ----------------------------------------------------------------------------------------------------------


def environment() -> Any:
    """Return the Jinja environment, which escapes every value, so that none is markup."""
    jinja2 = module_of_extra("jinja2", "report", "a report")
    options = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True, "finalize": _unbroken}
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), **options)
    short = partial(name, longest=_LONGEST_TEXT)
    templates.filters |= {"name": name, "short": short, "few": few, "signed": signed, "unit": with_unit}
    templates.globals |= {"claim_of": claim_of, "risk_of": risk_of, "probability": probability, "version": __version__}
    return templates


def page_of(inputs: ReportInputs) -> str:
    """Return the HTML of the page."""
    templates, parts = environment(), dict[str, str]()
    from markupsafe import Markup  # which Jinja needs

    for kind in ("css", "js"):
        text = (Path(__file__).parent / f"page.{kind}").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        parts |= {kind: Markup(text), f"{kind}_hash": f"sha256-{digest}"}  # as a content security policy names it
    return str(templates.get_template("page.html").render(**parts, **_template_values(inputs)))


def _template_values(inputs: ReportInputs) -> dict[str, Any]:
    """Return the values for the template; if the verification failed, only its problems."""
    certificate, verification, appraisal = inputs.certificate, inputs.verification, inputs.appraisal
    problem = certificate and certificate.problem
    about, explored = appraisal or problem, certificate is not None and certificate.risk == "any reward"
    values: dict[str, Any] = {"inputs": inputs, "certificate": certificate, "problem": problem, "explored": explored}
    values |= {"state": "failed", "problems": verification.problems[:_MOST_PROBLEMS]}
    values |= {"title": about and about.title, "unit": about and about.unit and name(about.unit)}
    values |= {"of_policies": appraisal is not None, "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
    if not verification.ok:
        return values
    values["state"] = "exact" if certificate is None else "certified" if appraisal or certificate.reached else "open"
    if appraisal is not None:
        values |= {"decision": decision_of(appraisal), "laws": laws_of_policies(appraisal)}
        values |= {"exact": appraisal.delta is None, "side_by_side": side_by_side(appraisal)}
    elif certificate is not None and not explored:
        values |= _of_the_policy(certificate)
    return values if certificate is None else values | _of_the_data(certificate, inputs.history, values["unit"])


def _unbroken(value: Any) -> Any:
    """Return a text in which no line can break before a per cent sign, or between a minus sign and a currency."""
    return re.sub("−(?=[€$£¥])", "−\u2060", value).replace(" %", "\u00a0%") if type(value) is str else value


def _of_the_data(certificate: Certificate, history: np.ndarray | None, unit: str | None) -> dict[str, Any]:
    """Return the values about the data: the tests of the assumptions, and the gap."""
    to, evidence = Rounding.of(certificate), certificate.provenance.tests
    return {
        "tests": evidence and tested(evidence, noise=certificate.problem.noise is not None),
        "alarm": REJECTED_FROM,
        "gap": None if history is None else fall_of_the_gap(history, certificate),
        "eps": with_unit(to.at_most(certificate.eps), unit),
        "last_gap": with_unit(to.at_most(certificate.gap), unit),
    }


def _of_the_policy(certificate: Certificate) -> dict[str, Any]:
    """Return the values about the policy: its table, what limits its gap, and its estimated return."""
    expected = expected_returns(certificate)
    return {
        "policy": policy_of(certificate),
        "limits": limits(certificate),
        "returns": law_of_the_return(certificate, expected) if expected.cut <= _MOST_CUT else None,
        "simulated": EPISODES,
        "cut": f"{100 * expected.cut:.3g} %" if expected.cut else None,
    }
