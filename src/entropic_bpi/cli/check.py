"""Commands that check and show: ``verify``, ``report``, ``appraise``, ``monitor`` and ``doctor``."""

from __future__ import annotations

import math
import os
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

import entropic_bpi as eb
from entropic_bpi._version import __version__
from entropic_bpi.cli.certify import OF_A_LOG, certify, is_run, read_log, read_policy_file
from entropic_bpi.cli.facts import Answer, Fact, data, line, several
from entropic_bpi.cli.folders import written
from entropic_bpi.cli.options import options_of, with_options
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.model.formats.registry import FORMATS, OBJECTS
from entropic_bpi.show.files import certificate_in
from entropic_bpi.show.words import Rounding, ascii_minus
from entropic_bpi.tools.checks import processors

_PACKAGES = ("numpy", "scipy", "numba", "gymnasium", "matplotlib", "typer", "rich")
# A package of each extra.
_EXTRAS = {"logs": "duckdb", "report": "jinja2", "gpu": "numba-cuda", "minari": "minari", "cluster": "distributed"}
_EXTRAS |= {"prism": "stormpy", "compat": "shimmy", "rigorous": "python-flint"}
_NOT_OF_CERTIFY = ("context", "source", "beta", "evar", "eps", "policy", "rewards", "out", "as_json")
_OF_A_RUN = ("source", "policy", "measure", "delta", "out", "save", "as_json")
_NOT_WATCHED = ("max_states", "states", "actions")


def verify(certificate: Path, *, rigorous: bool = False) -> Answer:
    """Recompute the bounds of a certificate from its counts and compare them with its claim.

    Exit code 1 if the file is invalid or its counts do not imply the claim.

    Examples:

        entropic-bpi verify run/certificate.json

        entropic-bpi verify run/certificate.json --rigorous

        entropic-bpi verify run/certificate.json --json

    Parameters
    ----------
    certificate : CERTIFICATE
        The file that identify or certify wrote (.json or .json.gz), or its folder.
    rigorous
        Prove the bounds in ball arithmetic, without any tolerance (extra rigorous).
    """
    from entropic_bpi.runs.progress import Progress

    path = certificate_in(certificate)
    if not path.exists():
        raise CertificateError(f"no such file: {path}")
    with Progress() as shown:

        def advance(done: float, total: float) -> None:
            shown.update(lambda: "checking the bounds", done / total)

        result = eb.verify(path, rigorous=rigorous, progress=advance)
    to, known = Rounding(), not any(map(math.isnan, (result.lower, result.upper, result.gap)))
    bounds = [
        Fact("lower", result.lower, "value of the policy", f"at least {ascii_minus(to.at_least(result.lower, 6))}"),
        Fact("upper", result.upper, "optimal value", f"at most {ascii_minus(to.at_most(result.upper, 6))}"),
        Fact("gap", result.gap, "gap", f"at most {to.at_most(result.gap, 6)}"),
    ]
    verdict, *problems = _verdict(result)
    facts = [verdict, *data(proved=result.proved), *(bounds if known else data(lower=None, upper=None, gap=None))]
    from entropic_bpi.verification._file import unpacked

    final = result.ok and b'"entropic-bpi appraisal"' in unpacked(path)[:100]
    then = () if final else ("report", certificate, "-o", "report.html") if result.ok else ("verify", path, "--json")
    return Answer([*facts, *problems], then, result.ok)


def _verdict(result: eb.Verification) -> list[Fact]:
    verdict = "the counts imply the claim" if result.ok else "NOT verified"
    verdict += ": proved up to the assumptions" if result.proved else ""
    return [Fact("ok", result.ok, "verdict", verdict), *several("problems", result.problems, "problem")]


def report(run: Path, *, out: Path) -> Answer:
    """Write a report: one HTML file with the claim, its assumptions, the policy, and how to check it.

    The page needs only a browser. The certificate is verified; if that fails, the page has a red header that says so, and
    the exit code is 1. The folder of a run also contains the seed, the settings and the history of the gap; a certificate
    alone does not. Needs the extra report: pip install 'entropic-bpi[report]'.

    Examples:

        entropic-bpi report run -o report.html

        entropic-bpi report run/certificate.json -o report.html

    Parameters
    ----------
    run : RUN_OR_CERTIFICATE
        Folder that identify or certify wrote, or a certificate file.
    out : FILE.html, --out, -o
        The page to write.
    """
    checked = eb.report.write(run, _page(out))
    facts = [*_verdict(checked), Fact("report", str(out)), line(f"written  {out}: open it in a browser")]
    return Answer(facts, ("verify", certificate_in(run)), checked.ok)


def _page(out: Path) -> Path:
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidProblemError(f"--out must be an .html file, got {out}")
    return out


@with_options(*options_of(certify, without=_NOT_OF_CERTIFY))
def appraise(
    context: typer.Context,
    source: str,
    *,
    policy: list[str] | None = None,
    measure: list[str] | None = None,
    out: Path | None = None,
    save: Path | None = None,
    **options: Any,
) -> Answer:
    """Compare policies from the same data, with intervals for their mean, CVaR, quantiles and probabilities.

    All intervals hold at once with probability at least 1 - delta. The policy of a run is among those compared.

    Examples:

        entropic-bpi appraise run --policy today.csv --measure mean --measure "cvar 0.05" -o decision.html

        entropic-bpi appraise run --policy today=rule.csv --policy old=old.csv --save appraisal.json

    Exit codes: 0 done; 1 the check of the page failed; 2 bad input.

    Parameters
    ----------
    source : RUN|LOG
        The folder of a run, a certificate file (.json), or a log with the options that certify takes.
    policy : [NAME=]FILE
        A policy: a .csv file with columns state and action, a .json object, or an .npy array. Default for NAME: the name
        of the file. Repeat the option for several policies.
    measure : MEASURE
        mean, "cvar A", "quantile A", "entropic B", "evar A", "below X" or "above X"; repeat the option for several.
        Default: mean, cvar 0.05 and quantile 0.05.
    out : FILE.html, --out, -o
        Write a page for decision makers.
    save : FILE.json
        Write the appraisal with its data; verify checks it.
    """
    from entropic_bpi.runs.appraisal.measures import MEASURES

    target = None if out is None else _page(out)
    policies = dict(map(_named_policy, policy or ()))
    if len(policies) < len(policy or ()):
        raise InvalidProblemError("--policy: two policies have the same name; give --policy NAME=FILE")
    evidence: eb.Certificate | eb.Log
    if is_run(source, context, _OF_A_RUN):
        evidence = eb.Certificate.load(certificate_in(Path(source)))
        policies, declared = {"certified": evidence.policy} | policies, {"delta": options["delta"]}
    else:
        evidence = read_log(source, context.params)
        declared = {name: value for name, value in options.items() if name not in OF_A_LOG}
    found = eb.appraise(evidence, policies, measures=measure or MEASURES[:3], **declared)
    checked = None if target is None else found.report(target)
    if save is not None:
        found.save(save)
    then = () if save is None else ("verify", save)
    return Answer([*_appraisal_facts(found), *written(out, save)], then, checked is None or checked.ok)


def _named_policy(text: str) -> tuple[str, Any]:
    named, file = text.split("=", 1) if "=" in text else (Path(text).stem, text)
    return named, read_policy_file(Path(file))


def _appraisal_facts(found: eb.Appraisal) -> list[Fact]:
    from entropic_bpi.show.decisions import decision_of

    decision = decision_of(found)
    table = [[ascii_minus(cell) for cell in row] for row in (decision.titles, *decision.rows)]
    order = [{"better": pair[0], "worse": pair[1], "measure": pair.measure} for pair in found.order]
    assert found.certificate is not None
    return [
        Fact("delta", found.delta, "decision", ascii_minus(decision.sentence)),
        *(Fact(name="", shown=ascii_minus(words)) for words in decision.advice),
        Fact("table", found.table, "All intervals hold at once:", table),
        *data(order=order, differences=[each._asdict() for each in found.differences]),
        *data(episodes=found.certificate.episodes),
        *several("assumptions", found.certificate.assumptions, "assumed"),
    ]


@with_options(*options_of(certify, only=[name for name in OF_A_LOG if name not in _NOT_WATCHED]))
def monitor(
    run: Path, log: str, *, level: float = 0.01, save: Path | None = None, plot: Path | None = None, **columns: Any
) -> Answer:
    """Check whether new episodes still agree with a certificate.

    The certificate is about the process that produced its data. Episodes that were played later, by any policy, are evidence
    for or against it. If the process is as the claim assumes, the probability of any alarm is at most --level, however
    often one checks. An outcome that the declarations exclude is an alarm at once.

    Examples:

        entropic-bpi monitor run new.csv --episode id --step t --state place --action move --reward paid --terminated over
        --save monitor.json

        entropic-bpi monitor monitor.json newer.csv --episode id --step t --state place --action move --reward paid
        --terminated over --save monitor.json --plot evidence.png

    Exit codes: 0 no alarm; 1 alarm; 2 bad input.

    Parameters
    ----------
    run : RUN
        Folder that identify or certify wrote, a certificate file, or a file that --save wrote, to continue from.
    log : LOG
        The new episodes: a CSV, Parquet, or .jsonl file.
    level
        Bound on the probability of a false alarm; a file that --save wrote has its own.
    save : FILE.json
        Write what was observed to a file, to continue from later.
    plot : FILE.png
        Draw the evidence against the episodes.
    """
    from entropic_bpi.certificate.contents import refusals
    from entropic_bpi.runs.monitoring.monitor import FORMAT
    from entropic_bpi.verification._file import unpacked

    with refusals(run):
        saved = not run.is_dir() and f'"format": "{FORMAT}"'.encode() in unpacked(run)
    watching = eb.Monitor.load(run) if saved else eb.Monitor(run, level=level)
    watching.observe_log(read_log(log, {"delta": 0.0, **columns}))
    if save is not None:
        watching.save(save)
    if plot is not None:
        eb.plots.save(watching.plot(), plot)
    facts = [
        *data(alarm=watching.alarm, evidence=watching.evidence, level=watching.level, excluded=watching.excluded),
        Fact("episodes", watching.episodes, "episodes", f"{watching.episodes:,}"),
        Fact(name="evidence", shown=watching.verdict),
        *several("suspects", watching.suspects, "most unlike the certificate"),
        *written(save, plot),
    ]
    return Answer(facts, (), not watching.alarm)


def doctor(*, compile: bool = False) -> Answer:
    """Print versions, cores, the cache of compiled code, and whether there is a GPU.

    Exit code 1 if a required package is missing.

    Examples:

        entropic-bpi doctor

        entropic-bpi doctor --compile

        entropic-bpi doctor --json

    Parameters
    ----------
    compile
        Compile now what a first run needs, for example when a container image is built.
    """
    package = Path(__file__).parents[1]
    found: dict[str, Any] = {
        "entropic-bpi": f"{__version__}, in {package}",
        "python": f"{sys.version.split()[0]}, {sys.executable}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": str(processors()),
        "packages": {name: _version(name) for name in _PACKAGES},
        "extras": {extra: _version(name) for extra, name in _EXTRAS.items()},
        "model files": {form.name: " ".join(form.suffixes) for form in FORMATS},
        "model objects": OBJECTS,
        "compiled code": _cache(package),
        "GPU": _gpu(),
    }
    if compile:
        found["compiled now"] = _compile()
    facts = []
    for name, value in found.items():
        words = value if isinstance(value, str) else ", ".join(f"{key} {item}" for key, item in value.items())
        facts.append(Fact(name, value, name, words))
    return Answer(facts, (), "missing" not in found["packages"].values())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _cache(package: Path) -> str:
    """Return where compiled code is stored, or that it cannot be."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or package / "__pycache__")
    place = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if os.access(place, os.W_OK):
        return f"kept in {folder}"
    return f"{folder} cannot be written: every start may compile again; set NUMBA_CACHE_DIR to a writable folder"


def _compile() -> str:
    """Compile what most users run first by short runs, and return the time; code in the cache is only loaded."""
    from entropic_bpi.compile.decorators import compile_clock

    goal: dict[str, Any] = {"beta": -1.0, "eps": 0.2, "delta": 0.1, "seed": 0, "max_episodes": 4}
    bridge, before = eb.instances.risky_bridge(), compile_clock.seconds
    for declared in ({}, {"successors": "model"}, {"successors": "model", "stationary": True}):
        eb.identify(bridge, **goal, **declared)
    eb.identify("FrozenLake-v1", horizon=4, reward_range=(0, 1), **goal)
    eb.solve(bridge, -1.0)
    return f"identify (models, environments) and solve, in {compile_clock.seconds - before:.1f} s"


def _gpu() -> str:
    if find_spec("numba_cuda") is None:
        return "not checked: numba-cuda is missing (pip install 'entropic-bpi[gpu]')"
    cuda: Any = import_module("numba.cuda")
    return "found" if cuda.is_available() else "none that numba-cuda can use"
