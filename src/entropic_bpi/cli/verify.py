"""``verify``: check a certificate again, from its counts alone."""

from __future__ import annotations

import math
import sys
import time
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
    from rich.progress import Progress, TaskID

    from entropic_bpi.verification import Verification

_SHOWN_AFTER_SECONDS = 2.0

CertificateArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CERTIFICATE",
        help="The file that identify or certify wrote (.json, or compressed .json.gz), or its folder.",
        show_default=False,
    ),
]


def verify(certificate: CertificateArgument, as_json: JsonOption = False) -> int:
    """Recompute the bounds of a certificate from its counts and compare them with its claim.

    Exit code 1 if the file is not sound or its counts do not imply the claim.

    Examples:

        entropic-bpi verify run/certificate.json

        entropic-bpi verify run/certificate.json --json
    """
    from entropic_bpi.verification import verify as check

    path = certificate / CERTIFICATE if certificate.is_dir() else certificate
    if certificate.is_dir() and not path.exists() and path.with_suffix(".json.gz").exists():
        path = path.with_suffix(".json.gz")
    if not path.exists():
        raise CertificateError(f"no such file: {path}")
    with _Bar() as bar:
        result = check(path, progress=bar.update)
    derived = {"lower": result.lower, "upper": result.upper, "gap": result.gap}
    content = {"ok": result.ok, **(derived if _known(result) else dict.fromkeys(derived)), "problems": result.problems}
    answer(content, as_json, lambda: _show(result), ("report", certificate, "-o", "report.html"))
    return 0 if result.ok else CLAIM_FAILED


class _Bar:
    """A progress bar on the terminal's stderr, from two seconds on."""

    bar: Progress | None = None
    task: TaskID

    def __enter__(self) -> _Bar:
        self.began = time.perf_counter()
        return self

    def update(self, done: int, total: int) -> None:
        if self.bar is None and sys.stderr.isatty() and time.perf_counter() - self.began >= _SHOWN_AFTER_SECONDS:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("checking the bounds", total=total)
            self.bar.start()
        if self.bar is not None:
            self.bar.update(self.task, completed=done)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _known(result: Verification) -> bool:
    return not any(map(math.isnan, (result.lower, result.upper, result.gap)))


def _show(result: Verification) -> None:
    from rich.table import Table

    facts = Table.grid("name", "value", padding=(0, 2))
    facts.add_row("verdict", "the counts imply the claim" if result.ok else "NOT verified")
    if _known(result):
        facts.add_row("value of the policy", f"at least {result.lower:.6f}")
        facts.add_row("optimal value", f"at most {result.upper:.6f}")
        facts.add_row("gap", f"at most {result.gap:.6g}")
    for problem in result.problems:
        facts.add_row("problem", problem)
    terminal().print(facts)
