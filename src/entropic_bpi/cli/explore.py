"""``inspect``: propose what could be declared; ``explore``: play before any reward is known."""

from pathlib import Path
from typing import Any

import entropic_bpi as eb
from entropic_bpi.cli.facts import Answer, Fact, claim_facts, data, line, several
from entropic_bpi.cli.folders import new_folder, run_folder, written
from entropic_bpi.cli.identify import identify
from entropic_bpi.cli.options import declarations, open_source, options_of, parse_params, with_options
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.show.files import CERTIFICATE, CHECKPOINT, HISTORY
from entropic_bpi.tools.files import write_csv

# The accuracy in the suggested command, as a share of the range of the returns.
_SHARE = 0.1
_NOT_DECLARED = [name for name, entry in ENTRIES.items() if "exploration" in entry.not_for]
_OF_IDENTIFY = ("source", "accept", "max_episodes", "max_seconds", "seed", "param", "quiet")


def inspect(
    source: str,
    *,
    out: Path | None = None,
    seconds: float = 5.0,
    episodes: int | None = None,
    seed: int | None = None,
    param: list[str] | None = None,
) -> Answer:
    """Play an environment for a few seconds, report what was seen, and propose what could be declared.

    Nothing has to be declared. The proposals agree with everything that was seen. They are assumptions: set
    confirmed = true in the file for those that are true of your problem. identify --accept all uses all of them, and the
    certificate says so.

    Examples:

        entropic-bpi inspect gym:FrozenLake-v1 --out problem.toml

        entropic-bpi inspect warehouse.py:Robot -p size=4 --seconds 20 --out problem.toml

    Parameters
    ----------
    out : FILE
        Write the proposals to this new problem file, such as problem.toml.
    seconds
        How long to play.
    episodes
        Play at most this many episodes.
    seed
        Seed; together with --episodes, it repeats an inspection exactly.
    """
    from entropic_bpi.runs.inspection import EXAMPLE_HORIZON
    from entropic_bpi.sources.opening import as_problem_file

    if out is not None:
        new_folder(out.parent, [out.name])
    file = as_problem_file(source) or eb.ProblemFile(source=source)
    found = eb.inspect(file.with_params(parse_params(param)), seconds=seconds, episodes=episodes, seed=seed)
    declared, seen = found.declarations.given(), found.remarks
    proposals = [("declare", "seen"), *((f"{name} = {value}", seen[name]) for name, value in declared.items())]
    facts = [
        Fact("source", source, "source", found.source),
        *(Fact(name="PROBLEM", shown=text) for text in found.problems),
        *(Fact(name=one.name, shown=f"{one.text} ({one.seen})" if one.seen else one.text) for one in found.findings),
        *data(problems=found.problems, findings=[one._asdict() for one in found.findings]),
        *data(not_proposed=found.not_proposed, episodes=found.episodes, steps=found.steps, seconds=found.seconds),
        Fact(
            "declarations",
            {name: {"value": value, "seen": seen[name]} for name, value in declared.items()},
            "Proposals, which agree with everything that was seen; confirm those that are true of your problem:",
            proposals,
        ),
        *(line(f"{name}: not proposed; {text}") for name, text in found.not_proposed.items()),
        *written(out),
    ]
    if out is None:
        return Answer(facts, ("inspect", source, "--out", "problem.toml"))
    found.save(out)
    eps = f"{_SHARE * found.spread:.1g}"
    steps = () if "horizon" in declared else ("--horizon", EXAMPLE_HORIZON)
    return Answer(facts, ("forecast", out, "--accept", "all", *steps, "--beta", "-1", "--eps", eps, "--delta", "0.05"))


@with_options(*declarations(without=_NOT_DECLARED), *options_of(identify, only=_OF_IDENTIFY))
def explore(
    *, betas: tuple[float, float], eps: float, delta: float, out: Path | None = None, resume: bool = False, **asked: Any
) -> Answer:
    """Play until every reward of a range can be optimised from the data, for every risk parameter of an interval.

    With probability at least 1 - delta, for every reward in the range that is given afterwards, the policy that is best by
    the estimates is at most eps worse than the best one. Rewards during the exploration are ignored. --reward-range is the
    range of the later rewards, 0 to 1 by default; an environment with --reward-range is played through reset and step.

    Examples:

        entropic-bpi explore risky-bridge --betas -1 1 --eps 0.5 --delta 0.1 --successors model --stationary --out run

        entropic-bpi certify run --beta -1 --rewards prices.csv

    Exit codes: 0 the promise is reached; 1 the budget was spent before the promise was reached; 2 bad input.

    Parameters
    ----------
    betas : LOW HIGH
        The interval of the risk parameters.
    eps
        Target: how much worse than the best policy, in the unit of the rewards.
    delta
        Probability with which the promise may fail.
    out : DIR
        Folder for certificate, history and checkpoint.
    resume
        Continue the exploration in --out.
    """
    from entropic_bpi.model.instances.sources import is_environment

    source, param, accept, quiet, ends = map(asked.pop, ("source", "param", "accept", "quiet", "reward_range"))
    asked |= {"eps": eps, "delta": delta, "reward_range": ends if is_environment(source) else None}
    model, arguments = open_source(source, asked, param, accept)
    arguments |= {"betas": betas, "reward_range": ends, "progress": not quiet}
    with run_folder(out, resume):
        found = eb.explore(model, **arguments, checkpoint=None if out is None else out / CHECKPOINT)
        if out is not None:
            found.certificate.save(out / CERTIFICATE)
            write_csv(out / HISTORY, ("episodes", "gap"), found.history[["episodes", "gap"]].tolist())
    facts = [
        Fact("source", source, "model", source),
        *claim_facts(found.certificate),
        Fact("episodes", found.episodes, "episodes", f"{found.episodes:,} in {found.seconds:.3g} s"),
        *data(betas=list(betas), stopped=found.stopped, seed=found.seed, seconds=found.seconds),
        *several("assumptions", found.certificate.assumptions, "assumed"),
        *written(out, files=(CERTIFICATE, HISTORY, CHECKPOINT)),
    ]
    kept = out is not None and found.stopped
    then = ("certify", out, "--beta", "-1", "--rewards", "prices.csv") if kept else ()
    return Answer(facts, then, found.stopped, quiet)
