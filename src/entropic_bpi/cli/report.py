"""``report``: a certificate as a page for whoever has to believe it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from entropic_bpi.cli._answer import answer
from entropic_bpi.cli._app import CLAIM_FAILED
from entropic_bpi.cli._show import terminal
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.cli.identify import CERTIFICATE
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.text import printable


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_CERTIFICATE", help="Folder that identify or certify wrote, or a certificate file."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.", show_default=False)
    ],
    grid: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLUMNS", help="The first states are the cells of a map, row by row: draw it."),
    ] = None,
    actions: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Names for the actions, in their order.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Write a report: one HTML file that says what is claimed, what it rests on, and how to check it.

    It needs a browser and nothing else. The certificate is verified on the way; if that fails, the page says so at its top,
    in red, and the exit code is 1. A folder also tells the seed, the settings and how the gap fell; a certificate alone does
    not.

    Examples:

        entropic-bpi report run -o report.html

        entropic-bpi report run/certificate.json -o report.html --grid 4x4 --actions left,down,right,up
    """
    import entropic_bpi as eb

    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidProblemError(f"--out must be an .html file, got {out}")
    names = None if actions is None else [part.strip() for part in actions.split(",")]
    checked = eb.report.write(run, out, grid=_shape(grid), actions=names)

    def show() -> None:
        verdict = "the counts imply the claim" if checked.ok else "NOT verified, and the report says so"
        terminal().print(f"verdict  {verdict}")
        for problem in checked.problems:
            terminal().print(f"problem  {problem}")
        print(f"written  {printable(str(out))}: open it in a browser")

    certificate = run / CERTIFICATE if run.is_dir() else run
    content = {"report": str(out), "ok": checked.ok, "problems": checked.problems}
    answer(content, as_json, show, ("verify", certificate))
    return 0 if checked.ok else CLAIM_FAILED


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sides = re.fullmatch(r"(\d{1,6})[x×](\d{1,6})", text.strip())
    if sides is None:
        raise InvalidProblemError(f"--grid must be ROWSxCOLUMNS such as 4x4, got {text!r}")
    return int(sides[1]), int(sides[2])
