"""``verify``: check a certificate again, from its counts alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from entropic_bpi.cli._answer import answer
from entropic_bpi.cli._app import CLAIM_FAILED
from entropic_bpi.cli._show import terminal
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.cli.identify import CERTIFICATE
from entropic_bpi.errors import CertificateError

if TYPE_CHECKING:
    from entropic_bpi.verification import Verification

CertificateArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CERTIFICATE", help="The JSON file that identify or certify wrote, or its folder.", show_default=False
    ),
]


RigorousOption = Annotated[
    bool,
    typer.Option("--rigorous", help="Prove the bounds in ball arithmetic, without any tolerance (extra rigorous)."),
]


def verify(certificate: CertificateArgument, rigorous: RigorousOption = False, as_json: JsonOption = False) -> int:
    """Recompute the bounds of a certificate from its counts and compare them with its claim.

    Exit code 1 if the file is not sound or its counts do not imply the claim.

    Examples:

        entropic-bpi verify run/certificate.json

        entropic-bpi verify run/certificate.json --rigorous

        entropic-bpi verify run/certificate.json --json
    """
    from entropic_bpi.verification import verify as check

    path = certificate / CERTIFICATE if certificate.is_dir() else certificate
    if not path.exists():
        raise CertificateError(f"no such file: {path}")
    result = check(path, rigorous=rigorous)
    derived = {"lower": result.lower, "upper": result.upper, "gap": result.gap}
    content = {"ok": result.ok, **(derived if _known(result) else dict.fromkeys(derived)), "problems": result.problems}
    content["proved"] = result.proved
    answer(content, as_json, lambda: _show(result), ("report", certificate, "-o", "report.html"))
    return 0 if result.ok else CLAIM_FAILED


def _known(result: Verification) -> bool:
    return not any(map(math.isnan, (result.lower, result.upper, result.gap)))


def _show(result: Verification) -> None:
    from rich.table import Table

    facts = Table.grid("name", "value", padding=(0, 2))
    verdict = "the counts imply the claim" if result.ok else "NOT verified"
    facts.add_row("verdict", f"{verdict}: proved up to the assumptions" if result.proved else verdict)
    if _known(result):
        facts.add_row("value of the policy", f"at least {result.lower:.6f}")
        facts.add_row("optimal value", f"at most {result.upper:.6f}")
        facts.add_row("gap", f"at most {result.gap:.6g}")
    for problem in result.problems:
        facts.add_row("problem", problem)
    terminal().print(facts)
