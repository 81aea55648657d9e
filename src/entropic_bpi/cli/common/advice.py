"""Advice: the declarations that would help, as a table and as the command that makes them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from entropic_bpi.cli.common.answer import PROGRAM
from entropic_bpi.cli.common.show import Fact, line

if TYPE_CHECKING:
    from entropic_bpi.runs.forecasts.trial import Declaration, TrialRun

_TRUE = "Declarations that would help, measured by trial runs; all of them are true of the model:"
_ASSUMED = "Declarations that agree with all observations; estimated gain if the assumption holds (not checked):"


def trial_content(trial: TrialRun) -> dict[str, Any]:
    """Return a trial run for programs."""
    played = {"episodes": trial.episodes, "seconds": trial.seconds, "gap": trial.gap, "reached": trial.reached}
    until = {"episodes": None, "seconds": None} if trial.until is None else trial.until._asdict()
    return {"trial": played, **until}


def advised_words(declarations: Sequence[Declaration], without: TrialRun, words: Sequence[str]) -> list[str]:
    """Return the words of a command with the declarations that help most."""
    from entropic_bpi.runs.forecasts.advice import as_options
    from entropic_bpi.runs.forecasts.trial import advised

    one = advised(declarations, without)
    if one is None:
        return [*words]
    # A declaration that is made again replaces the earlier one.
    options = [option for option in as_options(one.declared) if option.startswith("--") and not _is_number(option)]
    kept, skipping = [], False
    for word in words:
        if word.startswith("--") and not _is_number(word):
            skipping = word in options
        if not skipping:
            kept.append(word)
    return [*kept, *as_options(one.declared)]


def advice_facts(declarations: Sequence[Declaration], without: TrialRun, words: Sequence[str]) -> list[Fact]:
    """Return the declarations that were tried, and the complete command with those that help most."""
    from entropic_bpi.runs.forecasts.advice import as_options
    from entropic_bpi.runs.forecasts.trial import advised

    content = [
        {
            "declared": one.declared,
            "true": one.true,
            "factor": one.factor,
            "helps": one.helps,
            **trial_content(one.trial),
        }
        for one in declarations
    ]
    if not declarations:
        return [Fact("declarations", content)]
    rows = [
        (" ".join(as_options(one.declared)), one.effect, "" if one.trial.until is None else one.trial.until.in_all())
        for one in declarations
    ]
    title = _TRUE if declarations[0].true else _ASSUMED
    facts = [Fact("declarations", content, title, [("declare", "effect", "then"), *rows])]
    one = advised(declarations, without)
    if one is not None and not one.true:
        command = shlex.join([PROGRAM, *advised_words(declarations, without, words)])
        facts.append(Fact("advice", command))
        facts.append(line(f"If {one} is true of your problem: {command}"))
    return facts


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
