"""``forecast``: estimate the episodes and the time of a run before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from entropic_bpi.cli.common.advice import advice_facts, advised_words, trial_content
from entropic_bpi.cli.common.answer import again, with_options_of
from entropic_bpi.cli.common.show import Fact, data, line, present
from entropic_bpi.cli.identify import OF_A_RUN, identify, question
from entropic_bpi.show.words import Rounding, number

if TYPE_CHECKING:
    from entropic_bpi.runs.forecasts.trial import RunForecast, TrialRun

_OF_A_TRIAL = ("trial_seconds", "trial_episodes", "as_json")
# Less memory than this is not reported.
_MUCH_MEMORY = 2**30

_NOT_MEASURED = "Not measured: --successors, the possible next states. It usually helps most."


@with_options_of(identify, without=("context", *OF_A_RUN))
def forecast(
    context: typer.Context,
    *,
    trial_seconds: float = 3.0,
    trial_episodes: int | None = None,
    as_json: bool = False,
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

    Parameters
    ----------
    trial_seconds
        Time for a trial run, in seconds, without compiling.
    trial_episodes
        Limit the episodes of a trial run, if episodes are expensive.
    """
    import entropic_bpi as eb

    source = asked["source"]
    model, arguments = question(**asked)
    outlook = eb.forecast(model, trial_seconds=trial_seconds, trial_episodes=trial_episodes, **arguments)
    facts = _facts(source, outlook)
    words = again(context, "identify", without=_OF_A_TRIAL)
    facts += advice_facts(outlook.declarations, outlook.trial, words)
    then = [*advised_words(outlook.declarations, outlook.trial, words), "--out", "run"]
    if asked["reward_range"] is not None and asked["successors"] is None:
        facts.append(line(_NOT_MEASURED))
    present(facts, as_json, then)


def _facts(source: str, outlook: RunForecast) -> list[Fact]:
    trial, memory = outlook.trial, outlook.memory
    played = trial_content(trial)
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
        words = f"{Rounding().at_least(outlook.lower)} episodes on average, for every algorithm with this guarantee"
        facts.append(Fact(name="at least", shown=words))
    if outlook.upper is not None:
        facts.append(
            Fact(name="at most", shown=f"{Rounding().at_most(outlook.upper)} episodes are proved to be enough")
        )
    if memory is not None and memory > _MUCH_MEMORY:
        facts.append(Fact(name="memory", shown=f"{memory / 2**30:.1f} GiB so far"))
    return facts


def _in_words(trial: TrialRun) -> str:
    if trial.until is None:
        return "none yet: the gap does not decrease, or not for long enough; try --trial-seconds 30"
    return "the trial run was the whole run" if trial.reached else f"probably {trial.until.in_all()}"
