"""``plan``: what a run would probably take, before it is begun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.cli._answer import again, answer, with_options_of
from entropic_bpi.cli._show import terminal
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.cli.identify import identify, question

if TYPE_CHECKING:
    from entropic_bpi.runs.trial import Declaration, RunForecast, TrialRun

# Options of identify that end, keep or show a run.
_OF_A_RUN = (
    "context",
    "max_episodes",
    "max_seconds",
    "out",
    "resume",
    "accept_errors",
    "preregister",
    "as_json",
    "quiet",
)
_OF_A_PILOT = ("trial_seconds", "trial_episodes", "as_json")
# Less memory than this is not worth a word.
_MUCH_MEMORY = 2**30

_NOT_MEASURED = (
    "Not measured, for no pilot can guess it: --successors, the next states that are possible; it usually helps most."
)


@with_options_of(identify, without=_OF_A_RUN)
def plan(
    context: typer.Context,
    trial_seconds: Annotated[float, typer.Option(help="How long a pilot may take, besides compiling.")] = 3.0,
    trial_episodes: Annotated[
        int | None, typer.Option(help="How many episodes a pilot may play, where they are dear.")
    ] = None,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Say what identify would probably take, by a short pilot, and which declarations would help.

    The options are those of identify. A pilot is the beginning of the run itself; from how its gap falls follow the
    episodes and seconds to the end, as a range, or "no forecast yet". Then what could be declared is declared, and the pilot
    is flown again. What is said of a model is true of it; what is said of an environment that is played fits what was seen,
    and is yours to judge.

    Examples:

        entropic-bpi plan risky-bridge --beta 2.5 --eps 0.2 --delta 0.1

        entropic-bpi plan gym:FrozenLake-v1 --horizon 20 --beta -1 --eps 0.1 --delta 0.05 --reward-range 0 1

        entropic-bpi plan warehouse.py:Robot --horizon 9 --beta -1 --eps 1 --delta 0.1 --reward-range -1 5
    """
    import entropic_bpi as eb

    source = asked["source"]
    model, arguments = question(**asked)
    outlook = eb.forecast(model, trial_seconds=trial_seconds, trial_episodes=trial_episodes, **arguments)
    then = [*again(context, "identify", without=_OF_A_PILOT), *_true_options(outlook), "--out", "run"]

    def show() -> None:
        _show(source, outlook)
        if asked["reward_range"] is not None and asked["successors"] is None:
            print(f"\n{_NOT_MEASURED}")

    answer(_as_json(source, outlook), as_json, show, then)


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


def _as_json(source: str, outlook: RunForecast) -> dict[str, Any]:
    return {
        "source": source,
        **_pilot_as_json(outlook.trial),
        "lower": outlook.lower,
        "upper": outlook.upper,
        "memory": outlook.memory,
        "declarations": [
            {
                "declared": one.declared,
                "true": one.true,
                "factor": one.factor,
                "helps": one.helps,
                **_pilot_as_json(one.trial),
            }
            for one in outlook.declarations
        ],
    }


def _pilot_as_json(pilot: TrialRun) -> dict[str, Any]:
    flown = {"episodes": pilot.episodes, "seconds": pilot.seconds, "gap": pilot.gap, "reached": pilot.reached}
    until = {"episodes": None, "seconds": None} if pilot.until is None else pilot.until._asdict()
    return {"pilot": flown, **until}


def _show(source: str, outlook: RunForecast) -> None:
    from rich.table import Table

    pilot, console = outlook.trial, terminal()
    facts = Table.grid("name", "value", padding=(0, 2))
    facts.add_row("model", source)
    facts.add_row("pilot", f"{pilot.episodes:,} episodes in {pilot.seconds:.2g} s, to a gap of {pilot.gap:.3g}")
    if pilot.until is None:
        facts.add_row("forecast", "no forecast yet: the gap has not begun to fall, or not for long; --trial-seconds 30")
    else:
        facts.add_row(
            "forecast", "the pilot was the whole run" if pilot.reached else f"probably {pilot.until.in_all()}"
        )
    if outlook.lower is not None:
        facts.add_row("at least", f"{outlook.lower:.3g} episodes on average, for every algorithm with this guarantee")
    if outlook.upper is not None:
        facts.add_row("at most", f"{outlook.upper:.3g} episodes are proved to be enough")
    if outlook.memory is not None and outlook.memory > _MUCH_MEMORY:
        facts.add_row("memory", f"{outlook.memory / 2**30:.1f} GiB so far")
    console.print(facts)
    if not outlook.declarations:
        return
    true = outlook.declarations[0].true
    console.print()
    console.print(
        "What would help, measured by pilots; all of it is true of the model:"
        if true
        else "What fits all that was seen, and what it would bring IF it is true, which is yours to know:"
    )
    table = Table("declare", "effect", "then", box=None, pad_edge=False)
    for one in outlook.declarations:
        until = "" if one.trial.until is None else one.trial.until.in_all()
        table.add_row(" ".join(_options(one)), one.effect, until)
    console.print(table)
