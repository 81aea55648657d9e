"""``identify``: learn a policy from episodes and stop with a certificate; ``forecast``: estimate the episodes and time."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import entropic_bpi as eb
from entropic_bpi.cli import options
from entropic_bpi.cli.facts import PROGRAM, Answer, Fact, claim_facts, data, line, policy_facts, several
from entropic_bpi.cli.folders import PLOT, run_folder, written
from entropic_bpi.cli.options import declarations, options_of, relayed, with_options
from entropic_bpi.show.choices import certified_choices
from entropic_bpi.show.files import CERTIFICATE, CHECKPOINT, HISTORY
from entropic_bpi.show.words import Rounding, ascii_minus, number
from entropic_bpi.tools.files import write_csv
from entropic_bpi.tools.text import parse_literal, printable

# Shorter times for compiling are not reported.
SHORTEST_COMPILING = 0.1
# Options that end, store or show a run; the others define the problem and the method.
_OF_A_RUN = ("max_episodes", "max_seconds", "out", "resume", "accept_errors", "preregister", "as_json", "quiet")
_OF_A_TRIAL = ("trial_seconds", "trial_episodes", "as_json")
_TRUE = "Declarations that would help, measured by trial runs; all of them are true of the model:"
_ASSUMED = "Declarations that agree with all observations; estimated gain if the assumption holds (not checked):"
_NOT_MEASURED = "Not measured: --successors, the possible next states. It usually helps most."


@with_options(
    *declarations(),
    *relayed(beta=float, evar=float, method="kl", constants=str, replan=str, sampling=str, num_envs=1),
    *relayed(seed=int, ties="random", device="cpu", accept=str),
)
def identify(
    context: typer.Context,
    source: str,
    *,
    eps: float,
    delta: float,
    max_episodes: int | None = None,
    max_seconds: float | None = None,
    param: list[str] | None = None,
    out: Path | None = None,
    resume: bool = False,
    accept_errors: bool = False,
    preregister: Path | None = None,
    quiet: bool = False,
    **asked: Any,
) -> Answer:
    """Learn a policy by playing episodes, and stop with a certificate that it is near-optimal.

    With probability at least 1 - delta the policy is at most eps worse than the best one, under the printed assumptions. A
    model is simulated; the learner does not use its probabilities. A Gymnasium environment is simulated from its transition
    table or, with --reward-range, played through reset and step.

    Examples:

        entropic-bpi identify risky-bridge --beta -1 --eps 0.2 --delta 0.1 --successors model

        entropic-bpi identify risky-bridge --evar 0.05 --eps 0.2 --delta 0.1 --successors model

        entropic-bpi identify gym:FrozenLake-v1 --horizon 50 --beta -1 --eps 0.1 --delta 0.05 --successors model --out run

        entropic-bpi identify gym:FrozenLake-v1 --horizon 12 --beta -1 --eps 0.3 --delta 0.1 --reward-range 0 1

        entropic-bpi identify warehouse.py:Robot -p size=4 --horizon 9 --beta -1 --eps 1 --delta 0.1 --reward-range -1 5

        entropic-bpi identify risky-bridge --beta 0.5 --eps 0.2 --delta 0.1 --method bernstein --constants sharp

        entropic-bpi identify river-swim --beta -1 --discount 0.8 --eps 0.5 --delta 0.1 --successors model -p n_states=4

        entropic-bpi identify model.npz --beta 2 --eps 0.1 --delta 0.1 --max-episodes 100000 --seed 1 --json

    With --out the run can be interrupted at any time: the same command with --resume continues and gives the same result, on
    the same kind of processor bit for bit. --max-episodes may be larger then. Without --resume a folder with a run is not
    changed.

    If the environment raises an error, the run ends and the current episodes are lost. --resume --accept-errors continues,
    and the certificate says so. --preregister writes the settings of the run to a file before the first episode. Publish
    this file at once: the certificate contains its SHA-256, so that a reader knows that the run was not selected among many.

    Exit codes: 0 certified; 1 the budget was spent before the target was reached (the certificate then states the certified
    gap); 2 bad input.

    Parameters
    ----------
    eps
        Target: how much worse than the best policy, in the unit of the rewards.
    delta
        Probability with which the claim may fail.
    method
        kl (few episodes) or bernstein (the paper's algorithm).
    constants
        For bernstein: verified (machine-checked, the default), sharp or printed.
    replan : every|RATIO
        Plan again after every episode, or when the number of episodes has grown by this fraction. Default: 0.01 for
        small problems, more for large ones.
    sampling
        What kl plays: challenger (the default) or optimistic.
    num_envs
        Number of copies of an environment that are stepped together; 1 is faster if steps are fast.
    max_episodes
        Stop after this many episodes in any case.
    max_seconds
        Stop after this number of seconds in any case, not counting the time for compiling.
    seed
        Seed, to repeat a run exactly. Default: a random one.
    ties
        How to choose between equally good actions: random or lowest (index).
    device
        Where kl plans: cpu, or gpu for large models with known successors.
    accept : all
        Use every declaration of a problem file, confirmed or not; the certificate says so.
    out : DIR
        Folder for certificate, history, plot and checkpoint.
    resume
        Continue the run in --out.
    accept_errors
        With --resume: continue a run that ended in an error of the environment; the certificate says so.
    preregister : FILE
        Write the settings of the run to a new file before its first episode.
    quiet : --quiet, -q
        No progress and no table; only the exit code.
    """
    model, asked = _source_and_arguments(context.params)
    asked |= {"max_episodes": max_episodes, "max_seconds": max_seconds, "preregister": preregister}
    checkpoint = None if out is None else out / CHECKPOINT
    with run_folder(out, resume):
        try:
            result = eb.identify(model, **asked, accept_errors=accept_errors, checkpoint=checkpoint, progress=not quiet)
        except KeyboardInterrupt as interrupt:
            _interrupted(out, getattr(interrupt, "result", None))
            raise
        if out is not None:
            _write(out, result)
    facts = [] if quiet and not context.params["as_json"] else _facts(context.params["source"], result)
    return Answer(
        [*facts, *written(out, files=(CERTIFICATE, HISTORY, PLOT, CHECKPOINT))],
        ("verify", out / CERTIFICATE) if out is not None and result.stopped else (),
        result.stopped,
        quiet,
    )


def _source_and_arguments(given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the model or environment, and the arguments of ``identify``."""
    asked = {name: value for name, value in given.items() if name not in (*_OF_A_RUN, *_OF_A_TRIAL)}
    source, param, accept = (asked.pop(name) for name in ("source", "param", "accept"))
    asked |= {"replan": asked["replan"] and parse_literal(asked["replan"])}
    return options.open_source(source, options.risk_of(asked.pop("beta"), asked.pop("evar")) | asked, param, accept)


def _interrupted(out: Path | None, result: eb.Identification | None) -> None:
    """Write what is certified so far, and print how to continue."""
    if out is None:
        advice = "nothing was saved; a run with --out can be resumed"
    elif (out / CHECKPOINT).exists():
        advice = f"the run is saved in {out / CHECKPOINT}; the same command with --resume continues it"
    else:
        advice = "nothing was saved yet; start again with the same command"
    if result is not None:
        advice += f". So far a gap of {result.certificate.gap:.3g} is certified"
        if out is not None:
            _write(out, result)
            advice += f"; certificate in {out / CERTIFICATE}"
    print(f"{PROGRAM}: interrupted: {printable(advice)}", file=sys.stderr)


def _write(out: Path, result: eb.Identification) -> None:
    claim, history = result.certificate, result.history
    write_csv(out / HISTORY, history.dtype.names or (), history.tolist())
    drawn = eb.plots.interval(history, eps=claim.eps, delta=claim.delta, unit=claim.problem.unit)
    eb.plots.save(drawn, out / PLOT)
    claim.save(out / CERTIFICATE)


# -- the result --------------------------------------------------------------------------------------------------------


def _facts(source: str, result: eb.Identification) -> list[Fact]:
    from entropic_bpi.certificate.policy import NOT_CERTIFIED

    claim, size, compiling = result.certificate, result.certificate.problem, result.compile_seconds
    forecast = result.forecast and result.forecast._asdict()
    sizes = f"{size.n_states} states, {size.n_actions} actions, horizon {size.horizon}"
    method = claim.method if claim.constants is None else f"{claim.method}, {claim.constants} constants"
    once = f", and {compiling:.3g} s once for compiling" if compiling >= SHORTEST_COMPILING else ""
    trivial = f"--eps {claim.eps:g} is at least the range of the return, {size.return_spread:g}: any policy reaches it"
    behind = "" if claim.episodes == result.episodes else f", the claim is from the first {claim.episodes:,}"
    return [
        *([] if result.stopped else [Fact("warning", NOT_CERTIFIED, "warning", NOT_CERTIFIED)]),
        Fact("source", source, "model", f"{source}: {sizes}"),
        Fact("method", claim.method, "method", method),
        *claim_facts(claim),
        *[Fact(name="note", shown=trivial)] * (claim.eps >= size.return_spread),
        *([] if result.stopped else several("", tuple(_what_would_help(result)), "would help")),
        Fact("episodes", result.episodes, "episodes", f"{result.episodes:,} in {result.seconds:.3g} s{once}{behind}"),
        Fact("seed", result.seed, "seed"),
        *data(constants=claim.constants, certificate_episodes=claim.episodes),
        *data(seconds=result.seconds, compile_seconds=compiling, forecast=forecast),
        *several("assumptions", claim.assumptions, "assumed"),
        *policy_facts("The policy in the states that it reaches along observed transitions", certified_choices(claim)),
    ]


def _what_would_help(result: eb.Identification) -> Iterator[str]:
    """Yield what would lead to a certificate after a budget was spent."""
    claim = result.certificate
    if result.forecast is not None:
        yield f"at the current rate {result.forecast}; with --out a run can be resumed (--resume)"
    if claim.gap < math.inf:
        eps = ascii_minus(Rounding().at_most(claim.gap, 2).replace(",", ""))
        yield f"--eps {eps}: so far only this gap is certified"
    if claim.problem.successors == "unknown":
        yield "--successors, if the possible next states are known"
    yield "other declarations: entropic-bpi forecast, with the same options, estimates their effect"


# -- advice: the declarations that would help --------------------------------------------------------------------------


def _trial_content(trial: eb.TrialRun) -> dict[str, Any]:
    """Return the values of a trial run for JSON."""
    played = trial._asdict()
    until = played.pop("until")
    return {"trial": played, "episodes": until and until.episodes, "seconds": until and until.seconds}


def _advice_facts(found: Sequence[eb.Declaration], without: eb.TrialRun) -> list[Fact]:
    """Return the declarations that were tried, and the options of those that help most."""
    from entropic_bpi.runs.forecasts.advice import as_options
    from entropic_bpi.runs.forecasts.trial import advised

    content, rows = [], [("declare", "effect", "forecast")]
    for one in found:
        content.append({"declared": one.declared, "true": one.true, "factor": one.factor, "helps": one.helps})
        content[-1] |= _trial_content(one.trial)
        then = "" if one.trial.until is None else one.trial.until.in_all()
        rows.append((" ".join(as_options(one.declared)), one.effect, then))
    if not found:
        return data(declarations=content)
    facts = [Fact("declarations", content, _TRUE if found[0].true else _ASSUMED, rows)]
    best = advised(found, without)
    if best is not None:
        advice = shlex.join(as_options(best.declared))
        words = advice if best.true else f"{advice}, if {best} is true of your problem"
        facts.append(Fact("advice", advice, "advice", words))
    return facts


@with_options(*options_of(identify, without=("context", *_OF_A_RUN)))
def forecast(*, trial_seconds: float = 3.0, trial_episodes: int | None = None, **asked: Any) -> Answer:
    """Estimate the episodes and the time that identify needs, and which declarations would help.

    The options are those of identify. A trial run is the beginning of the run itself; the number of episodes and the time
    are estimated from the rate at which its gap decreases, as a range. Then the trial run is repeated with each declaration
    that could be made. For a model these declarations are true. For an environment they agree with all observations, and
    you decide whether they are true.

    Examples:

        entropic-bpi forecast risky-bridge --beta 2.5 --eps 0.2 --delta 0.1

        entropic-bpi forecast gym:FrozenLake-v1 --horizon 20 --beta -1 --eps 0.1 --delta 0.05 --reward-range 0 1

        entropic-bpi forecast warehouse.py:Robot --horizon 9 --beta -1 --eps 1 --delta 0.1 --reward-range -1 5

    Parameters
    ----------
    trial_seconds
        Time for a trial run in seconds, not counting the time for compiling.
    trial_episodes
        Largest number of episodes of a trial run, for expensive episodes.
    """
    model, arguments = _source_and_arguments(asked)
    outlook = eb.forecast(model, trial_seconds=trial_seconds, trial_episodes=trial_episodes, **arguments)
    facts = [*_forecast_facts(asked["source"], outlook), *_advice_facts(outlook.declarations, outlook.trial)]
    if asked["reward_range"] is not None and asked["successors"] is None:
        facts.append(line(_NOT_MEASURED))
    return Answer(facts)


def _forecast_facts(source: str, outlook: eb.RunForecast) -> list[Fact]:
    trial, played = outlook.trial, _trial_content(outlook.trial)
    tried = f"{trial.episodes:,} episodes in {trial.seconds:.2g} s, to a gap of {number(trial.gap)}"
    if trial.until is None:
        words = "none yet: the gap does not decrease, or not for long enough; try --trial-seconds 30"
    else:
        words = "the trial run was the whole run" if trial.reached else f"probably {trial.until.in_all()}"
    return [
        Fact("source", source, "model", source),
        Fact("trial", played["trial"], "trial run", tried),
        Fact("episodes", played["episodes"], "forecast", words),
        *data(seconds=played["seconds"]),
    ]
