"""``certify`` for a run: the claims of many risk levels from the episodes of one run."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from entropic_bpi.cli.common.show import Fact, assumption_facts, data, line, new_folder, present, written
from entropic_bpi.cli.identify import CERTIFICATE, CHECKPOINT
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.show.choices import certified_choices
from entropic_bpi.show.words import Rounding, ascii_minus, probability
from entropic_bpi.tools.files import write_csv

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate

_FILES = {"beta": ("spectrum.csv", "spectrum.png"), "evar": ("evar.csv", "evar.png")}
_MOST_LEVELS = 10_000
_SHOWN_CHANGES = 3
_COLUMNS = ("lower", "upper", "gap", "policy")


def certify_levels(
    source: Path, beta: str | None, evar: str | None, rewards: Path | None, out: Path | None, as_json: bool
) -> None:
    """Certify all levels of ``beta`` and ``evar``, each LOW:HIGH:STEP or a number, and print, write and draw the bands."""
    import entropic_bpi as eb
    from entropic_bpi.runs.exploration.explore import solve_explored
    from entropic_bpi.runs.progress import counting

    asked = {name: _levels(name, text) for name, text in (("beta", beta), ("evar", evar)) if text is not None}
    if not asked:
        raise InvalidProblemError("give --beta, --evar or both")
    if not all(0 < alpha < 1 for alpha in asked.get("evar", [])):
        raise InvalidProblemError(f"--evar: levels must lie between 0 and 1, got {evar}")
    run = eb.Certificate.load(_certificate_in(source))
    files = {which: _FILES[which] if len(levels) > 1 else (CERTIFICATE,) for which, levels in asked.items()}
    if len(files) > len(set(files.values())):
        raise InvalidProblemError("give one level of --beta or --evar, or LOW:HIGH:STEP of each")
    if out is not None:
        new_folder(out, [name for which in asked for name in files[which]])
    facts = data(delta=run.delta, episodes=run.episodes)
    for which, levels in asked.items():
        risk, claims = eb.Entropic if which == "beta" else eb.EVaR, []
        with counting("levels", len(levels)) as advance:
            for level in levels:
                if which == "beta" and run.risk == "any reward":
                    claims.append(solve_explored(run, rewards, level))
                else:
                    claims.append(eb.certify(run, risk=risk(level), rewards=rewards))
                advance(False)
        policies = [_actions(claim) for claim in claims]
        band = _Band(which, levels, claims, policies, _number(policies))
        facts += _facts(run, band)
        if out is not None:
            _write(out, band)
            facts.append(written(out, files[which]))
    if rewards is not None:
        facts += assumption_facts(claims[-1])
    kept = [] if out is None else [str(out / name) for which in asked for name in files[which]]
    present([*facts, Fact("written", kept)], as_json, ("report", source, "-o", "report.html"))


def _levels(name: str, text: str) -> list[float]:
    """``LOW:HIGH:STEP`` in decimal arithmetic, so that 0 and the upper end are met exactly; or one number."""
    try:
        low, high, step = (Decimal(part) for part in (text if ":" in text else f"{text}:{text}:1").split(":"))
        valid = all(part.is_finite() for part in (low, high, step)) and step > 0 and low <= high
    except (ValueError, InvalidOperation):
        valid = False
    if not valid:
        raise InvalidProblemError(
            f"--{name} must be a number, or LOW:HIGH:STEP with LOW <= HIGH and STEP > 0, got {text!r}"
        )
    if (high - low) / step >= _MOST_LEVELS:
        raise InvalidProblemError(f"--{name} {text} has more than {_MOST_LEVELS} levels")
    return [float(low + i * step) for i in range(int((high - low) / step) + 1)]


def _certificate_in(run: Path) -> Path:
    if not run.is_dir():
        return run
    if not (run / CERTIFICATE).exists() and (run / CHECKPOINT).exists():
        raise InvalidProblemError(f"the run in {run} has not finished: continue it with identify --out {run} --resume")
    return run / CERTIFICATE


_Policy = dict[tuple[int, str], str]


class _Band(NamedTuple):
    """The claims of all levels of one kind, beta or evar, and the numbers of their policies."""

    which: str
    levels: list[float]
    claims: list[Certificate]
    policies: list[_Policy]
    numbers: list[int]

    def rows(self) -> list[tuple[float, ...]]:
        claims = zip(self.levels, self.claims, self.numbers, strict=True)
        return [(level, c.lower, c.upper, c.gap, number) for level, c, number in claims]


def _write(out: Path, band: _Band) -> None:
    from entropic_bpi.show import plots

    if len(band.levels) == 1:
        return band.claims[0].save(out / CERTIFICATE)
    table, plot = _FILES[band.which]
    write_csv(out / table, ("beta" if band.which == "beta" else "alpha", *_COLUMNS), band.rows())
    plots.save(plots.spectrum(band.claims, band.numbers), out / plot)


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


def _facts(run: Certificate, band: _Band) -> list[Fact]:
    which, levels, claims, policies, numbers = band
    to = Rounding.of(run)
    name = "beta" if which == "beta" else "alpha"
    facts = [
        line(
            f"With probability at least {probability(run.delta)} all {len(claims)} claims hold at once, for every {name} "
            f"shown and any other ({run.episodes:,} episodes)."
        )
    ]
    if run.method != "kl":
        facts.append(
            line(f"They use the event of method kl; the {run.method} certificate of the run has another event.")
        )
    rows = [(name, "policy", "lower", "upper", "largest gap", "what changes")]
    firsts = [0, *(i for i in range(1, len(claims)) if numbers[i] != numbers[i - 1]), len(claims)]
    for first, end in pairwise(firsts):
        part = claims[first:end]
        rows.append(
            (
                f"{levels[first]:g}" if len(part) == 1 else f"{levels[first]:g} to {levels[end - 1]:g}",
                f"{numbers[first]}",
                ascii_minus(to.at_least(min(c.lower for c in part))),
                ascii_minus(to.at_most(max(c.upper for c in part))),
                to.at_most(max(c.gap for c in part)),
                _difference(policies[first - 1], policies[first]) if first else "",
            )
        )
    content = [dict(zip(("level", *_COLUMNS), row, strict=True)) for row in band.rows()]
    title = "Policies, on the states that they were seen to reach (steps count from 0):"
    return [*facts, Fact(which, content, title, rows)]


def _difference(before: _Policy, after: _Policy) -> str:
    """Return the first steps and states that both policies reach and where their actions differ."""
    parts = [
        f"step {h}, {state}: {before[h, state]} -> {action}"
        for (h, state), action in sorted(after.items())
        if before.get((h, state), action) != action
    ]
    return "; ".join(parts[:_SHOWN_CHANGES] + ["..."] * (len(parts) > _SHOWN_CHANGES))
