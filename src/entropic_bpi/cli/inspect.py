"""``inspect``: play a source for a few seconds and propose what could be declared about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from entropic_bpi.cli.common.show import Fact, data, line, new_folder, present
from entropic_bpi.cli.common.sources import parse_params

if TYPE_CHECKING:
    pass

# The accuracy that is suggested, as a share of the range of the returns.
_SHARE = 0.1


def inspect(
    source: str,
    *,
    out: Path | None = None,
    seconds: float = 5.0,
    episodes: int | None = None,
    seed: int | None = None,
    param: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Play an environment for a few seconds, report what was seen, and propose what could be declared.

    Nothing has to be declared. The proposals agree with everything that was seen. They are assumptions: set
    confirmed = true in the file for those that are true of your problem. identify --accept all uses all of them, and the
    certificate says so. A log is inspected with its columns as parameters.

    Examples:

        entropic-bpi inspect gym:FrozenLake-v1 --out problem.toml

        entropic-bpi inspect warehouse.py:Robot -p size=4 --seconds 20 --out problem.toml

        entropic-bpi inspect log.csv -p episode=run -p step=t -p state=s -p action=a -p reward=r -p truncated=true

    Parameters
    ----------
    out : FILE
        Write the proposals to this new problem file, such as problem.toml.
    seconds
        How long to play.
    episodes
        Play at most this many episodes.
    seed
        With --episodes, repeats an inspection.
    """
    import entropic_bpi as eb
    from entropic_bpi.sources.opening import as_problem_file

    if out is not None:
        new_folder(out.parent, [out.name], "give another --out")
    file = as_problem_file(source) or eb.ProblemFile(source=source)
    found = eb.inspect(file.with_params(parse_params(param)), seconds=seconds, episodes=episodes, seed=seed)
    if out is not None:
        found.save(out)
    declared = found.declarations.given()
    facts = [
        Fact("source", source, "source", found.source),
        *(Fact(name="PROBLEM", shown=text) for text in found.problems),
        *(Fact(name=one.name, shown=f"{one.text} ({one.seen})" if one.seen else one.text) for one in found.findings),
        *data(
            problems=found.problems,
            findings=[one._asdict() for one in found.findings],
            not_proposed=found.not_proposed,
            episodes=found.episodes,
            steps=found.steps,
            seconds=found.seconds,
        ),
        Fact(
            "declarations",
            {name: {"value": value, "seen": found.remarks[name]} for name, value in declared.items()},
            "Proposals, which agree with everything that was seen; confirm those that are true of your problem:",
            [("declare", "seen"), *((f"{name} = {value}", found.remarks[name]) for name, value in declared.items())],
        ),
        *(line(f"{name}: not proposed; {text}") for name, text in found.not_proposed.items()),
    ]
    then = ["inspect", source, "--out", "problem.toml"]
    if out is not None:
        facts.append(line(f"written  {out}"))
        eps = f"{_SHARE * found.spread:.1g}"
        then = ["forecast", str(out), "--accept", "all", "--beta", "-1", "--eps", eps, "--delta", "0.05"]
    present(facts, as_json, then)
