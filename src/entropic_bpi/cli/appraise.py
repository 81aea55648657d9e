"""``appraise``: several measures of several policies, from a run or a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from entropic_bpi.cli.certify import COLUMNS, read_log, read_policy_file
from entropic_bpi.cli.certify import certify as certify_command
from entropic_bpi.cli.common.answer import again, with_options_of
from entropic_bpi.cli.common.app import CLAIM_FAILED
from entropic_bpi.cli.common.show import Fact, assumption_facts, data, line, present
from entropic_bpi.cli.identify import CERTIFICATE
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.show.words import ascii_minus

if TYPE_CHECKING:
    from entropic_bpi.runs.appraisal import Appraisal

_OWN = "certified"
_NOT_OF_CERTIFY = ("context", "source", "beta", "evar", "eps", "policy", "rewards", "out", "as_json")
_OF_A_RUN = ("source", "policy", "measure", "delta", "out", "save", "as_json")


@with_options_of(certify_command, without=_NOT_OF_CERTIFY)
def appraise(
    context: typer.Context,
    source: str,
    *,
    policy: list[str] | None = None,
    measure: list[str] | None = None,
    out: Path | None = None,
    save: Path | None = None,
    as_json: bool = False,
    **options: Any,
) -> int:
    """Compare policies by several measures, from the same data: mean, CVaR, quantiles and probabilities, in intervals.

    All intervals hold at once with probability at least 1 - delta. The policy of a run is among those compared.

    Examples:

        entropic-bpi appraise run --policy today.csv --measure mean --measure "cvar 0.05" -o decision.html

        entropic-bpi appraise run --policy today=rule.csv --policy old=old.csv --save appraisal.json

    Exit codes: 0 done; 1 the page's check failed; 2 bad input.

    Parameters
    ----------
    source : RUN|LOG
        The folder of a run, a certificate file (.json), or a log with the options that certify takes.
    policy : [NAME=]FILE
        A policy: columns state and action (.csv), an object (.json), or .npy; the name is that of the file. Repeat it.
    measure : MEASURE
        mean, "cvar A", "quantile A", "entropic B", "evar A", "below X" or "above X"; repeat it. Default: mean, cvar 0.05
        and quantile 0.05.
    out : FILE.html, --out, -o
        Write a page for whoever decides.
    save : FILE.json
        Write the appraisal with its data; verify checks it.
    """
    import entropic_bpi as eb
    from entropic_bpi.runs.appraisal.measures import MEASURES

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise InvalidProblemError(f"--out must be an .html file, got {out}")
    policies = dict(map(_named_policy, policy or ()))
    if len(policies) < len(policy or ()):
        raise InvalidProblemError("--policy: two policies have the same name; give --policy NAME=FILE")
    path = Path(source)
    if path.is_dir() or source.endswith((".json", ".json.gz")):
        given = again(context, "appraise", without=_OF_A_RUN)[1:]
        if given:
            raise InvalidProblemError(f"{source} is a run: {given[0]} is for logs")
        evidence: Any = eb.Certificate.load(path / CERTIFICATE if path.is_dir() else path)
        policies, declared = {_OWN: evidence.policy} | policies, {"delta": options["delta"]}
    else:
        evidence = read_log(source, context.params)
        declared = {name: value for name, value in options.items() if name not in COLUMNS}
    found = eb.appraise(evidence, policies, measures=measure or MEASURES, **declared)
    checked = None if out is None else found.report(out)
    if save is not None:
        found.save(save)
    files = [line(f"written  {file}") for file in (out, save) if file is not None]
    then = ("verify", save) if save is not None else [*again(context, "appraise"), "--save", "appraisal.json"]
    present([*_facts(found), *files], as_json, then)
    return 0 if checked is None or checked.ok else CLAIM_FAILED


def _named_policy(text: str) -> tuple[str, Any]:
    named, file = text.split("=", 1) if "=" in text else (Path(text).stem, text)
    return named, read_policy_file(Path(file))


def _facts(found: Appraisal) -> list[Fact]:
    from entropic_bpi.show.decisions import decision_of, measure_name

    decision = decision_of(found)
    titles = ["policy", *(ascii_minus(measure_name(measure, found.unit)) for measure in found.measures)]
    rows = [[ascii_minus(cell) for cell in row] for row in decision.rows]
    assert found.certificate is not None
    return [
        Fact("delta", found.delta, "decision", ascii_minus(decision.sentence)),
        *(Fact(name="", shown=ascii_minus(words)) for words in decision.advice),
        Fact("table", found.table, "All intervals hold at once:", [titles, *rows]),
        *data(
            order=[{"better": pair[0], "worse": pair[1], "measure": pair.measure} for pair in found.order],
            differences=[each._asdict() for each in found.differences],
            episodes=found.certificate.episodes,
        ),
        *assumption_facts(found.certificate),
    ]
