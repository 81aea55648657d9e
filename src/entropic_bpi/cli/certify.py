"""``certify``: a certificate from a log of past decisions, or for other risk levels and rewards from one run."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

import entropic_bpi as eb
from entropic_bpi.cli.facts import Answer, Fact, claim_facts, data, line, policy_facts, several
from entropic_bpi.cli.folders import new_folder, written
from entropic_bpi.cli.options import declarations, relayed, risk_of, with_options
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.show.choices import certified_choices
from entropic_bpi.show.files import CERTIFICATE, certificate_in
from entropic_bpi.show.words import Rounding, ascii_minus, number, probability
from entropic_bpi.tools.files import read_csv, reading, write_csv

TABLE = "missing.csv"
_NEEDED = ("episode", "step", "state", "action", "reward", "delta")
_COLUMNS = ("episode", "step", "order_by", "state", "action", "reward", "next_state", "terminated")
_READ = (*_COLUMNS, "exclude", "query")
# Options that say how a log is read; the others are declarations.
OF_A_LOG = (*_READ, "max_states", "truncated", "all_truncated", "actions", "states")
_OF_A_RUN = ("source", "beta", "evar", "rewards", "out", "as_json")
_BANDS = {"beta": ("beta", "spectrum.csv", "spectrum.png"), "evar": ("alpha", "evar.csv", "evar.png")}
_MOST_LEVELS, _SHOWN_ROWS, _SHOWN_CHANGES = 10_000, 10, 3

_Policy = dict[tuple[int, str], str]


@with_options(
    *declarations(without=("discount", "reward")),  # --reward is a column of a log
    *relayed(**dict.fromkeys((*_READ, "truncated", "states", "actions"), str)),
)
def certify(
    context: typer.Context,
    source: str,
    *,
    beta: str | None = None,
    evar: str | None = None,
    delta: float | None = None,
    all_truncated: bool = False,
    eps: float | None = None,
    policy: Path | None = None,
    rewards: Path | None = None,
    out: Path | None = None,
    **declared: Any,
) -> Answer:
    """Certify a policy from a log, or certify other risk levels and rewards from the episodes of one run.

    A log: the claim holds however the decisions were made, if each of them depended only on the past and no episode was
    dropped because of its outcome. The other assumptions are printed, and so are the data that would make the gap smaller.

    A run: the claims for all risk levels hold at once, because they are about the same transitions. With probability at
    least 1 - delta, for every level, the value of the policy and the best value lie between the bounds, and the policy is
    at most the gap worse than the best one.

    Examples:

        entropic-bpi certify log.csv --episode id --step t --state place --action move --reward paid --terminated over
        --states home,town,office --beta -1 --delta 0.05 --horizon 20 --reward-range 0 1 --out run

        entropic-bpi certify run --beta -3:3:0.25 --out band

        entropic-bpi certify run --evar 0.05:0.95:0.05 --out band

        entropic-bpi certify run --beta -1 --rewards prices.csv --out repriced

    For a log, writes certificate.json, and missing.csv: the visits that would make the gap smaller. For a run, writes
    spectrum.csv (beta, lower, upper, gap and the number of the policy) and spectrum.png, where lines mark the risk levels at
    which the policy changes; with --evar, also or instead, evar.csv and evar.png. For one level, writes certificate.json.

    Exit codes: 0 certified; 1 the gap is larger than --eps; 2 bad input, with the line of the log that is at fault.

    Parameters
    ----------
    source : LOG|RUN
        A log (a CSV, Parquet, or .jsonl file); or the folder of a run, or a certificate file (.json).
    beta : BETA|LOW:HIGH:STEP
        Risk parameter: positive seeks risk, negative avoids it, 0 is the mean. For a run, LOW:HIGH:STEP is a range of
        levels.
    evar : ALPHA|LOW:HIGH:STEP
        The entropic value at risk (EVaR) of this level, between 0 and 1; for a run, also of a range of levels. EVaR is
        a lower bound on CVaR, the mean of the worst share ALPHA of the returns, and is not that mean: a policy with the
        best EVaR need not have the best CVaR.
    delta
        Probability with which the claim may fail; for a log.
    eps
        The target gap. Default: the gap that the log certifies.
    policy : FILE
        Certify this policy: a .csv file with columns state and action, a .json object, or an .npy array.
    rewards : FILE
        Certify for other known rewards: a .csv file of those that change, with columns state, action, reward and perhaps
        next_state.
    out : DIR
        Folder for the results.

    How a log is read
    -----------------
    episode : COLUMN
        The episode that a line belongs to.
    step : COLUMN
        The step within the episode: 0, 1, 2, ...
    order_by : COLUMN
        Instead of --step: a time or a number by which the steps of an episode are ordered.
    state : COLUMN
        The state before the step.
    action : COLUMN
        The action that was taken.
    reward : COLUMN
        The reward of the step.
    next_state : COLUMN
        The state after the step. Default: that of the next line.
    terminated : COLUMN
        Whether the episode ended by itself with this step.
    truncated : COLUMN
        Whether the episode was cut off after this step.
    all_truncated
        Every episode that did not terminate was cut off.
    states : A,B,...|seen
        All states that exist; seen: declare that the log has them all.
    actions : A,B,...
        All actions that may occur. Default: those of the log.
    exclude : CONDITION
        Leave out episodes that have a line with this condition (SQL).
    query : SQL
        Read the result of this SELECT statement; LOG is the table data.
    """
    if is_run(source, context, _OF_A_RUN):
        return _certify_levels(Path(source), {"beta": beta, "evar": evar}, rewards, out)
    risk = risk_of(_number("beta", beta), _number("evar", evar))
    if out is not None:
        new_folder(out, (CERTIFICATE, TABLE))
    log = read_log(source, context.params)
    declared = {name: value for name, value in declared.items() if name not in OF_A_LOG}
    known = None if policy is None else read_policy_file(policy)
    claim = eb.certify(log, **risk, eps=eps, delta=delta, policy=known, rewards=rewards, **declared)
    needs = eb.missing(claim)
    title = f"The {'given ' if policy else ''}policy in the states that it reaches along observed transitions"
    facts = [*_log_facts(log, claim), *policy_facts(title, certified_choices(claim)), *_missing_facts(needs)]
    if out is None:
        return Answer(facts, (), claim.reached)
    claim.save(out / CERTIFICATE)
    write_csv(out / TABLE, needs.rows[0]._fields if needs.rows else (), needs.rows)
    facts += written(out, files=(CERTIFICATE, TABLE))
    return Answer(facts, ["verify", out / CERTIFICATE], claim.reached)


def is_run(source: str, context: typer.Context, of_a_run: Container[str]) -> bool:
    """Return whether the source is a run; refuse options for logs, which are those not in ``of_a_run``."""
    if not (Path(source).is_dir() or source.endswith((".json", ".json.gz"))):
        return False
    for name in context.params:
        if name not in of_a_run and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
            raise InvalidProblemError(f"{source} is a run: --{name.replace('_', '-')} is for logs")
    return True


# -- a log -------------------------------------------------------------------------------------------------------------


def read_log(source: str, options: Mapping[str, Any]) -> eb.Log:
    """Read the log that the options describe."""
    lacking = [name for name in _NEEDED if options[name] is None and (name != "step" or not options["order_by"])]
    if lacking:
        raise InvalidProblemError(f"{source} is a log, which needs {', '.join(f'--{name}' for name in lacking)}")
    states, columns = options.get("states"), {name: options[name] for name in _READ}
    return eb.Log.read(
        source,
        **columns,
        max_states=options.get("max_states"),
        truncated=options["all_truncated"] or options["truncated"],
        states=states if states == "seen" else _labels(states),
        actions=_labels(options.get("actions")),
    )


def _number(name: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidProblemError(f"--{name} must be a number for a log, got {text!r}") from None


def _labels(text: str | None) -> list[Any] | None:
    """Return labels separated by commas, integers if all of them are."""
    if text is None:
        return None
    labels = [label.strip() for label in text.split(",")]
    numbers = [int(label) for label in labels if label.removeprefix("-").isdecimal()]
    return numbers if [str(number) for number in numbers] == labels else labels


def read_policy_file(path: Path) -> Any:
    """Return the policy in a file: an array ``(H, S)``, or the action for each state."""
    import numpy as np

    if path.suffix not in (".npy", ".json"):
        return {line["state"]: line["action"] for line in read_csv(path, "state", "action")}
    with reading(path, f"--policy: {path} cannot be read"):
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        table = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(table, dict):
        raise InvalidProblemError(f"--policy: {path} must hold an object with the action for each state")
    return table


def _log_facts(log: eb.Log, claim: eb.Certificate) -> list[Fact]:
    risk, horizon = claim.problem.risk, claim.problem.horizon
    if isinstance(risk, EVaR):
        returns = log.returns(horizon)
        earned = eb.ReturnLaw.of_sample(returns).evar(risk.alpha) if len(returns) else float("nan")
    else:
        earned = log.value(risk.beta, horizon)
    size = f"{log.episodes:,} episodes, {log.lines:,} lines, {len(log.states)} states, {len(log.actions)} actions"
    words = f"the log's own decisions earned about {number(earned)} (an estimate, not a bound)"
    return [
        Fact(name="log", shown=f"{log.name}: {size}"),
        Fact(name="horizon", shown=f"{horizon}"),
        *claim_facts(claim),
        *data(episodes=claim.episodes, behaviour=earned),
        *([Fact(name="behaviour", shown=words)] if earned == earned else []),
        *several("assumptions", claim.assumptions, "assumed"),
    ]


def _missing_facts(needs: eb.Missing) -> list[Fact]:
    rows = [("steps", "state", "action", "visits", "gap reduction if doubled", "visits needed")]
    for row in needs.rows[:_SHOWN_ROWS]:
        place = "all" if row.step is None else f"{row.step}", row.state or "(first states)", row.action or ""
        rows.append((*place, f"{row.visits:,}", number(row.gap_reduction), f"{row.visits_needed:,}"))
    expected = f"For a gap of about {number(needs.target)}:"
    if needs.expected > needs.target:
        expected = f"More visits do not give a gap of {number(needs.target)}: some state-action pairs were never seen."
    title = "What is missing: visits that would make the gap smaller."
    return [
        Fact("missing", [row._asdict() for row in needs.rows], title, rows),
        line(expected),
        Fact("suggestions", needs.suggestions),
        *(line(f"  {words}") for words in needs.suggestions[:_SHOWN_ROWS]),
    ]


# -- a run: the claims of many risk levels from the same episodes ------------------------------------------------------


def _certify_levels(source: Path, texts: dict[str, str | None], rewards: Path | None, out: Path | None) -> Answer:
    """Certify all levels of --beta and --evar, each LOW:HIGH:STEP or a number, and write and draw the bands."""
    asked = {which: _levels(which, text) for which, text in texts.items() if text is not None}
    if not asked:
        raise InvalidProblemError("give --beta, --evar or both")
    if not all(0 < alpha < 1 for alpha in asked.get("evar", [])):
        raise InvalidProblemError(f"--evar: levels must lie between 0 and 1, got {texts['evar']}")
    files = {which: _BANDS[which][1:] if len(levels) > 1 else (CERTIFICATE,) for which, levels in asked.items()}
    if len(files) > len(set(files.values())):
        raise InvalidProblemError("give one level of --beta or --evar, or LOW:HIGH:STEP of each")
    run = eb.Certificate.load(certificate_in(source))
    if out is not None:
        new_folder(out, sum(files.values(), ()))
    facts = data(delta=run.delta, episodes=run.episodes)
    for which, levels in asked.items():
        claims = _claims(run, which, levels, rewards)
        facts += _band(run, which, levels, claims, out)
        facts += written(out, files=files[which])
    if rewards is not None:
        facts += several("assumptions", claims[-1].assumptions, "assumed")
    kept = [] if out is None else [str(out / name) for names in files.values() for name in names]
    return Answer([*facts, Fact("written", kept)], ("report", source, "-o", "report.html"))


def _levels(name: str, text: str) -> list[float]:
    """Return the numbers of ``LOW:HIGH:STEP``, in decimal arithmetic so that 0 and the upper end are exact; or one."""
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


def _claims(run: eb.Certificate, which: str, levels: list[float], rewards: Path | None) -> list[eb.Certificate]:
    from entropic_bpi.runs.exploration.explore import solve_explored
    from entropic_bpi.runs.progress import counting

    risk, claims = eb.Entropic if which == "beta" else eb.EVaR, []
    with counting("levels", len(levels)) as advance:
        for level in levels:
            if which == "beta" and run.risk == "any reward":
                claims.append(solve_explored(run, rewards, level))
            else:
                claims.append(eb.certify(run, risk=risk(level), rewards=rewards))
            advance(False)
    return claims


def _band(
    run: eb.Certificate, which: str, levels: list[float], claims: list[eb.Certificate], out: Path | None
) -> list[Fact]:
    """Return the claims of all levels as facts, and write them to a folder; policies are numbered as they appear."""
    level_name, table, plot = _BANDS[which]
    policies, known = [_actions(claim) for claim in claims], dict[Any, int]()
    numbers = [known.setdefault(frozenset(policy.items()), 1 + len(known)) for policy in policies]
    columns = zip(levels, claims, numbers, strict=True)
    band = [(level, claim.lower, claim.upper, claim.gap, number) for level, claim, number in columns]
    if out is not None and len(levels) == 1:
        claims[0].save(out / CERTIFICATE)
    elif out is not None:
        write_csv(out / table, (level_name, "lower", "upper", "gap", "policy"), band)
        eb.plots.save(eb.plots.spectrum(claims, numbers), out / plot)
    to, rows = Rounding.of(run), [(level_name, "policy", "lower", "upper", "largest gap", "what changes")]
    firsts = [0, *(i for i in range(1, len(claims)) if numbers[i] != numbers[i - 1]), len(claims)]
    for first, end in pairwise(firsts):
        _, lower, upper, gap, _ = zip(*band[first:end], strict=True)
        bounds = ascii_minus(to.at_least(min(lower))), ascii_minus(to.at_most(max(upper))), to.at_most(max(gap))
        between = f"{levels[first]:g}" + (f" to {levels[end - 1]:g}" if end > first + 1 else "")
        changes = _difference(policies[first - 1], policies[first]) if first else ""
        rows.append((between, f"{numbers[first]}", *bounds, changes))
    certainty = f"With probability at least {probability(run.delta)}, the claims hold at once for all {level_name}"
    other = f"They use the event of method kl; the {run.method} certificate of the run has another event."
    content = [dict(zip(("level", "lower", "upper", "gap", "policy"), row, strict=True)) for row in band]
    title = "Policies in the states that they reach along observed transitions (steps count from 0):"
    return [
        line(f"{certainty}, also for those not shown ({run.episodes:,} episodes)."),
        *([line(other)] if run.method != "kl" else []),
        Fact(which, content, title, rows),
    ]


def _actions(claim: eb.Certificate) -> _Policy:
    """Return the action at each step and state that the policy reaches along observed transitions."""
    return {(h, c.state): c.action for c in certified_choices(claim) for h in range(c.first_step, c.last_step + 1)}


def _difference(before: _Policy, after: _Policy) -> str:
    """Return the first steps and states that both policies reach and where their actions differ."""
    parts = [
        f"step {h}, {state}: {before[h, state]} -> {action}"
        for (h, state), action in sorted(after.items())
        if before.get((h, state), action) != action
    ]
    return "; ".join(parts[:_SHOWN_CHANGES] + ["..."] * (len(parts) > _SHOWN_CHANGES))
