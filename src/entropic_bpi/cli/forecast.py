"""``forecast``: estimate the episodes and the time of a run before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.cli._answer import again, with_options_of
from entropic_bpi.cli._app import option
from entropic_bpi.cli._show import Fact, data, line, present
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.cli.identify import OF_A_RUN, identify, question
from entropic_bpi.show.words import number

if TYPE_CHECKING:
    from entropic_bpi.runs.trial import Declaration, RunForecast, TrialRun

_OF_A_TRIAL = ("trial_seconds", "trial_episodes", "as_json")
# Less memory than this is not reported.
_MUCH_MEMORY = 2**30

_NOT_MEASURED = "Not measured: --successors, the possible next states. It usually helps most."
_TRUE = "Declarations that would help, measured by trial runs; all of them are true of the model:"
_ASSUMED = "Declarations that agree with all observations; estimated gain if the assumption holds (not checked):"


@with_options_of(identify, without=("context", *OF_A_RUN))
def forecast(
    context: typer.Context,
    trial_seconds: Annotated[float, option("Time for a trial run, in seconds, without compiling.")] = 3.0,
    trial_episodes: Annotated[
        int | None, option("Limit the episodes of a trial run, if episodes are expensive.")
    ] = None,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Estimate the episodes and the time that identify needs, and which declarations would help.

    The options are those of identify. A trial run is the beginning of the run itself; the number of episodes and the time
    are estimated from the rate at which its gap decreases, as a range. Then the trial run is repeated with each declaration
    that could be made. For a model these declarations are true. For an environment they agree with all observations, and
    you decide whether they are true.

    Examples:

        entropic-bpi forecast risky-bridge --beta 2.5 --eps 0.2 --delta 0.1

        entropic-bpi forecast gym:FrozenLake-v1 --horizon 20 --beta -1 --eps 0.1 --delta 0.05 --reward-range 0 1

        entropic-bpi forecast warehouse.py:Robot --horizon 9 --beta -1 --eps 1 --delta 0.1 --reward-range -1 5
    """
    import entropic_bpi as eb

    source = asked["source"]
    model, arguments = question(**asked)
    outlook = eb.forecast(model, trial_seconds=trial_seconds, trial_episodes=trial_episodes, **arguments)
    then = [*again(context, "identify", without=_OF_A_TRIAL), *_true_options(outlook), "--out", "run"]

    facts = _facts(source, outlook)
    if asked["reward_range"] is not None and asked["successors"] is None:
        facts.append(line(_NOT_MEASURED))
    present(facts, as_json, then)


def _true_options(outlook: RunForecast) -> list[str]:
    """The options of what helps most and is known to be true."""
    unforeseen = outlook.trial.until is None
    useful = (one for one in outlook.declarations if one.true and (one.helps or (unforeseen and one.trial.until)))
    return next((list(_options(one)) for one in useful), [])


def _options(one: Declaration) -> Iterator[str]:
    """A declaration as it is typed."""
    for name, value in one.declared.items():
        yield f"--{name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        yield from (f"{item:g}" if isinstance(item, float) else str(item) for item in values)


def _facts(source: str, outlook: RunForecast) -> list[Fact]:
    trial, declarations, memory = outlook.trial, outlook.declarations, outlook.memory
    played = _trial_content(trial)
    facts = [
        Fact("source", source, "model", source),
        Fact(
            "trial",
            played["trial"],
            "trial run",
            f"{trial.episodes:,} episodes in {trial.seconds:.2g} s, to a gap of {number(trial.gap)}",
        ),
        Fact("episodes", played["episodes"], "forecast", _in_words(trial)),
        *data(seconds=played["seconds"], lower=outlook.lower, upper=outlook.upper, memory=memory),
    ]
    if outlook.lower is not None:
        words = f"{number(outlook.lower)} episodes on average, for every algorithm with this guarantee"
        facts.append(Fact(name="at least", shown=words))
    if outlook.upper is not None:
        facts.append(Fact(name="at most", shown=f"{number(outlook.upper)} episodes are proved to be enough"))
    if memory is not None and memory > _MUCH_MEMORY:
        facts.append(Fact(name="memory", shown=f"{memory / 2**30:.1f} GiB so far"))
    content = [
        {
            "declared": one.declared,
            "true": one.true,
            "factor": one.factor,
            "helps": one.helps,
            **_trial_content(one.trial),
        }
        for one in declarations
    ]
    if not declarations:
        return [*facts, Fact("declarations", content)]
    rows = [
        (" ".join(_options(one)), one.effect, "" if one.trial.until is None else one.trial.until.in_all())
        for one in declarations
    ]
    title = _TRUE if declarations[0].true else _ASSUMED
    return [*facts, Fact("declarations", content, title, [("declare", "effect", "then"), *rows])]


def _trial_content(trial: TrialRun) -> dict[str, Any]:
    played = {"episodes": trial.episodes, "seconds": trial.seconds, "gap": trial.gap, "reached": trial.reached}
    until = {"episodes": None, "seconds": None} if trial.until is None else trial.until._asdict()
    return {"trial": played, **until}


def _in_words(trial: TrialRun) -> str:
    if trial.until is None:
        return "none yet: the gap does not decrease, or not for long enough; try --trial-seconds 30"
    return "the trial run was the whole run" if trial.reached else f"probably {trial.until.in_all()}"
