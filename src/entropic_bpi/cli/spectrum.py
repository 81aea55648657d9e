"""``spectrum``: one data set, every risk level."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from entropic_bpi.cli._answer import answer
from entropic_bpi.cli._show import (
    OutOption,
    certified_choices,
    new_folder,
    progress_bar,
    terminal,
)
from entropic_bpi.cli._sources import EVAR_IS, JsonOption
from entropic_bpi.cli.identify import CERTIFICATE, CHECKPOINT
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.files import write_csv
from entropic_bpi.tools.text import certainty, printable

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate

FILES = {"beta": ("spectrum.csv", "spectrum.png"), "evar": ("evar.csv", "evar.png")}
_MOST_LEVELS = 10_000
_SHOWN_CHANGES = 3
_COLUMNS = ("lower", "upper", "gap", "policy")


def spectrum(
    run_dir: Annotated[Path, typer.Argument(help="Folder that identify --out wrote, or a certificate file.")],
    out: OutOption,
    beta: Annotated[
        str | None,
        typer.Option(metavar="LOW:HIGH:STEP", help="Risk parameters, both ends included.", show_default=False),
    ] = None,
    evar: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH:STEP",
            help=f"Levels ALPHA of the entropic value at risk (EVaR), between 0 and 1. {EVAR_IS}",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Certify every risk level from the episodes of one run, and draw the band of certified values.

    The event behind the claims is about transitions alone, so all of them hold at once: with probability at least
    1 - delta, for every beta, the best value lies in the band and the policy is within the gap of it.

    Examples:

        entropic-bpi identify risky-bridge --beta -1 --eps 0.2 --delta 0.1 --successors model --out run

        entropic-bpi spectrum run --beta -3:3:0.25 --out run

        entropic-bpi spectrum run --evar 0.05:0.95:0.05 --out run

    Writes spectrum.csv (beta, lower, upper, gap and the number of the policy) and spectrum.png, where lines mark the risk
    levels at which the certified policy changes in a state that it was seen to reach; for --evar, which may stand beside
    --beta or alone, evar.csv and evar.png.
    """
    import entropic_bpi as eb
    from entropic_bpi.show import plots

    asked = {name: _levels(name, text) for name, text in (("beta", beta), ("evar", evar)) if text is not None}
    if not asked:
        raise InvalidProblemError("give --beta, --evar or both")
    if not all(0 < alpha < 1 for alpha in asked.get("evar", [])):
        raise InvalidProblemError(f"--evar: levels must lie between 0 and 1, got {evar}")
    run = eb.Certificate.load(_certificate_in(run_dir))
    new_folder(out, [name for which in asked for name in FILES[which]])
    bands: dict[str, _Band] = {}
    for which, levels in asked.items():
        with progress_bar() as bar:
            claims = [
                eb.certify(run, beta=level) if which == "beta" else eb.certify(run, risk=eb.EVaR(level))
                for level in bar.track(levels, description="certifying")
            ]
        policies = [_actions(claim) for claim in claims]
        band = bands[which] = _Band(levels, claims, policies, _number(policies))
        table, plot = FILES[which]
        write_csv(out / table, ("beta" if which == "beta" else "alpha", *_COLUMNS), band.rows())
        plots.save(plots.spectrum(claims, band.numbers), out / plot)

    def show() -> None:
        for which, band in bands.items():
            _show(run, band)
            print(f"\nwritten  {printable(str(out))}: {', '.join(FILES[which])}")

    files = [str(out / name) for which in asked for name in FILES[which]]
    content: dict[str, Any] = {"delta": run.delta, "episodes": run.episodes, "written": files}
    for which, band in bands.items():
        content[which] = [dict(zip(("level", *_COLUMNS), row, strict=True)) for row in band.rows()]
    answer(content, as_json, show, ("report", run_dir, "-o", "report.html"))


def _levels(name: str, text: str) -> list[float]:
    """``LOW:HIGH:STEP`` in decimal arithmetic, so that 0 and the upper end are met exactly."""
    try:
        low, high, step = (Decimal(part) for part in text.split(":"))
        valid = all(part.is_finite() for part in (low, high, step)) and step > 0 and low <= high
    except (ValueError, InvalidOperation):
        valid = False
    if not valid:
        raise InvalidProblemError(f"--{name} must be LOW:HIGH:STEP with LOW <= HIGH and STEP > 0, got {text!r}")
    if (high - low) / step >= _MOST_LEVELS:
        raise InvalidProblemError(f"--{name} {text} has more than {_MOST_LEVELS} levels")
    return [float(low + i * step) for i in range(int((high - low) / step) + 1)]


def _certificate_in(run: Path) -> Path:
    if not run.is_dir():
        return run
    if not (run / CERTIFICATE).exists() and (run / CHECKPOINT).exists():
        raise InvalidProblemError(f"the run in {run} has not finished: go on with identify --out {run} --resume")
    return run / CERTIFICATE


_Policy = dict[tuple[int, str], str]


class _Band(NamedTuple):
    """The claims of all levels, and the numbers of their policies."""

    levels: list[float]
    claims: list[Certificate]
    policies: list[_Policy]
    numbers: list[int]

    def rows(self) -> list[tuple[float, ...]]:
        claims = zip(self.levels, self.claims, self.numbers, strict=True)
        return [(level, c.lower, c.upper, c.gap, number) for level, c, number in claims]


def _actions(claim: Certificate) -> _Policy:
    """The action at each step and state that the policy was seen to reach."""
    return {(h, c.state): c.action for c in certified_choices(claim) for h in range(c.first_step, c.last_step + 1)}


def _number(policies: list[_Policy]) -> list[int]:
    """Number the policies from 1 in the order in which they appear."""
    known: list[_Policy] = []
    for policy in policies:
        if policy not in known:
            known.append(policy)
    return [1 + known.index(policy) for policy in policies]


def _show(run: Certificate, band: _Band) -> None:
    from rich.table import Table

    from entropic_bpi.show.plots import short

    levels, claims, policies, numbers = band
    console, name = terminal(), "beta" if claims[0].risk == "entropic" else "alpha"
    console.print(
        f"With probability at least {certainty(run.delta)} all {len(claims)} claims hold at once, for every {name} shown "
        f"and any other ({run.episodes:,} episodes)."
    )
    if run.method != "kl":
        console.print(
            f"They rest on the event of method kl; the {run.method} certificate of the run on one of its own."
        )
    console.print()
    console.print("Policies, on the states that they were seen to reach (steps count from 0):")
    table = Table(name, "policy", "lower", "upper", "largest gap", "what changes", box=None, pad_edge=False)
    firsts = [0, *(i for i in range(1, len(claims)) if numbers[i] != numbers[i - 1]), len(claims)]
    for first, end in pairwise(firsts):
        part = claims[first:end]
        table.add_row(
            f"{levels[first]:g}" if len(part) == 1 else f"{levels[first]:g} to {levels[end - 1]:g}",
            f"{numbers[first]}",
            short(min(c.lower for c in part), 6),
            short(max(c.upper for c in part), 6),
            short(max(c.gap for c in part), 6),
            _difference(policies[first - 1], policies[first]) if first else "",
        )
    console.print(table)


def _difference(before: _Policy, after: _Policy) -> str:
    """The first places that both policies reach and where they part."""
    parts = [
        f"step {h}, {state}: {before[h, state]} -> {action}"
        for (h, state), action in sorted(after.items())
        if before.get((h, state), action) != action
    ]
    return "; ".join(parts[:_SHOWN_CHANGES] + ["..."] * (len(parts) > _SHOWN_CHANGES))
