"""``explore``: play before any reward is known, until every reward can be optimised from the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from entropic_bpi.cli.common.answer import again, with_declarations
from entropic_bpi.cli.common.app import CLAIM_FAILED
from entropic_bpi.cli.common.show import Fact, assumption_facts, claim_facts, data, present, written
from entropic_bpi.cli.common.sources import open_source
from entropic_bpi.cli.identify import CERTIFICATE, CHECKPOINT, HISTORY, run_folder
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.tools.files import write_csv


@with_declarations(without=[name for name, entry in ENTRIES.items() if "exploration" in entry.not_for])
def explore(
    context: typer.Context,
    source: str,
    *,
    betas: tuple[float, float],
    eps: float,
    delta: float,
    max_episodes: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    param: list[str] | None = None,
    out: Path | None = None,
    resume: bool = False,
    as_json: bool = False,
    quiet: bool = False,
    **declared: Any,
) -> int:
    """Play until every reward of a range can be optimised from the data, for every risk parameter of an interval.

    With probability at least 1 - delta, whatever reward in the range is given afterwards: the policy that is best by the
    estimates is at most eps worse than the best one. What is paid while playing is ignored. --reward-range is the range of
    the rewards to come, 0 to 1 by default; an environment with --reward-range is played through reset and step.

    Examples:

        entropic-bpi explore risky-bridge --betas -1 1 --eps 0.5 --delta 0.1 --successors model --stationary --out run

        entropic-bpi certify run --beta -1 --rewards prices.csv

    Exit codes: 0 the promise is reached; 1 the budget was spent before; 2 bad input.

    Parameters
    ----------
    betas : LOW HIGH
        The interval of the risk parameters.
    eps
        Target: how much worse than the best policy, in the unit of the rewards.
    delta
        Probability with which the promise may fail.
    max_episodes
        Stop after this many episodes in any case.
    max_seconds
        Stop after this time in any case, without the time for compiling.
    seed
        Seed, to repeat a run exactly. Default: a random one.
    quiet : --quiet, -q
        No progress and no table; only the exit code.
    out : DIR
        Folder for certificate, history and checkpoint.
    resume
        Continue the exploration in --out.
    """
    import entropic_bpi as eb
    from entropic_bpi.model.instances.sources import is_environment

    ends = declared.pop("reward_range")
    asked = {"reward_range": ends if is_environment(source) else None, "eps": eps, "delta": delta}
    asked |= declared
    model, arguments = open_source(source, asked, param)
    arguments |= {"reward_range": ends, "betas": betas, "seed": seed}
    arguments |= {"max_episodes": max_episodes, "max_seconds": max_seconds, "progress": not quiet}
    with run_folder(out, resume):
        found = eb.explore(model, **arguments, checkpoint=None if out is None else out / CHECKPOINT)
        if out is not None:
            found.certificate.save(out / CERTIFICATE)
            write_csv(out / HISTORY, ("episodes", "gap"), found.history[["episodes", "gap"]].tolist())
    claim = found.certificate
    facts = [
        Fact("source", source, "model", source),
        *claim_facts(claim),
        Fact("episodes", found.episodes, "episodes", f"{found.episodes:,} in {found.seconds:.3g} s"),
        *data(betas=list(betas), stopped=found.stopped, seed=found.seed, seconds=found.seconds),
        *assumption_facts(claim),
    ]
    if out is not None:
        facts.append(written(out, (CERTIFICATE, HISTORY, CHECKPOINT)))
    if as_json or not quiet:
        then = (
            ["certify", out, "--beta", "-1", "--rewards", "prices.csv"] if out is not None and found.stopped else None
        )
        longer = again(context, "explore", without=("max_episodes", "max_seconds", "resume"))
        present(facts, as_json, then or [*longer, *(("--out", "run") if out is None else ("--resume",))])
    return 0 if found.stopped else CLAIM_FAILED
