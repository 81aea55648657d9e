"""``identify``: learn a policy from episodes and stop with a certificate."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from entropic_bpi.cli.common.advice import advice_facts
from entropic_bpi.cli.common.answer import again, with_declarations
from entropic_bpi.cli.common.app import CLAIM_FAILED
from entropic_bpi.cli.common.show import (
    Fact,
    assumption_facts,
    claim_facts,
    data,
    new_folder,
    policy_facts,
    present,
    several,
    written,
)
from entropic_bpi.cli.common.sources import (
    open_source,
    parse_params,
    risk_of,
)
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.show.choices import certified_choices
from entropic_bpi.tools.files import locked, write_csv
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:
    from entropic_bpi.runs.loop import Identification

# Shorter times for compiling are not reported.
SHORTEST_COMPILING = 0.1
CERTIFICATE, CHECKPOINT, HISTORY, PLOT = "certificate.json", "checkpoint.bin", "history.csv", "interval.png"
GRID = "grid.png"
# Options that end, keep or show a run; the others say what is asked.
OF_A_RUN = ("max_episodes", "max_seconds", "out", "resume", "accept_errors", "preregister", "as_json", "quiet")
# Seconds of a trial run of the advice: as long as the run, within these limits.
_SHORTEST_TRIAL, _LONGEST_TRIAL = 1.0, 3.0
# Arrows of the actions, in their order.
_GRID_WORLDS = {"FrozenLake": "←↓→↑", "CliffWalking": "↑→↓←"}


@with_declarations()
def identify(
    context: typer.Context,
    source: str,
    *,
    eps: float,
    delta: float,
    beta: float | None = None,
    evar: float | None = None,
    method: str = "kl",
    constants: str | None = None,
    replan: str | None = None,
    sampling: str | None = None,
    num_envs: int = 1,
    max_episodes: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    ties: str = "random",
    device: str = "cpu",
    param: list[str] | None = None,
    accept: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    accept_errors: bool = False,
    preregister: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
    **declared: Any,
) -> int:
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

    If the environment raises an error, the run ends and the current episodes are lost. --accept-errors continues, and the
    certificate says so. --preregister writes the settings of the run to a file before the first episode. Publish this file
    at once: the certificate contains its SHA-256, so that a reader knows that the run was not selected among many.

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
        Plan again after every episode, or when the number of episodes has grown by this fraction. Default: 0.01, and
        more if plans take long.
    sampling
        What kl plays: challenger (the default) or optimistic.
    num_envs
        Number of copies of an environment that are stepped together; 1 is faster if steps are fast.
    max_episodes
        Stop after this many episodes in any case.
    max_seconds
        Stop after this time in any case, without the time for compiling.
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
        Continue after an error of the environment; the certificate says so.
    preregister : FILE
        Write the settings of the run to a new file before its first episode.
    quiet : --quiet, -q
        No progress and no table; only the exit code.
    """
    import entropic_bpi as eb

    options = context.params.items()
    model, asked = question(**{name: value for name, value in options if name not in OF_A_RUN})
    asked |= {"max_episodes": max_episodes, "max_seconds": max_seconds, "preregister": preregister}
    checkpoint = None if out is None else out / CHECKPOINT
    with run_folder(out, resume):
        try:
            result = eb.identify(model, **asked, accept_errors=accept_errors, checkpoint=checkpoint, progress=not quiet)
        except KeyboardInterrupt as interrupt:
            so_far = getattr(interrupt, "result", None)
            if out is not None and so_far is not None:
                _write(out, so_far)
            _say_how_to_go_on(checkpoint, so_far)
            raise
        if out is not None:
            _write(out, result)
            files = [CERTIFICATE, HISTORY, PLOT, CHECKPOINT, *_draw_grid(out, source, param, result)]
    if as_json or not quiet:
        facts = [*_facts(source, result), *_advice(context, model, asked, result)]
        facts += [] if out is None else [written(out, files)]
        present(facts, as_json, _next(context, result, out))
    return 0 if result.stopped else CLAIM_FAILED


def _next(context: typer.Context, result: Identification, out: Path | None) -> list[object]:
    """Check it, keep it, or go on with it."""
    if result.stopped:
        return [*again(context, "identify"), "--out", "run"] if out is None else ["verify", out / CERTIFICATE]
    longer = () if result.forecast is None else ("--max-episodes", result.episodes + result.forecast.rounded())
    way = ("--out", "run") if out is None else ("--resume",)
    return [*again(context, "identify", without=("max_episodes", "max_seconds", "resume")), *longer, *way]


def _advice(context: typer.Context, model: Any, asked: dict[str, Any], result: Identification) -> list[Fact]:
    """After a budget was spent in vain: declarations that agree with what was seen, measured by short trial runs."""
    if not result.candidates.declarations:
        return []
    from entropic_bpi.runs.forecasts.trial import TrialRun, measured
    from entropic_bpi.runs.settings import Settings

    seconds = min(_LONGEST_TRIAL, max(result.seconds, _SHORTEST_TRIAL))
    given = {name: value for name, value in asked.items() if name != "preregister"}
    given |= {"max_seconds": seconds, "max_episodes": result.episodes}
    source, settings = Settings.read(model, **given)
    until = None if result.forecast is None else result.forecast.after(result.episodes, result.seconds)
    without = TrialRun(result.episodes, result.seconds, result.certificate.gap, False, until)
    found = measured(source, settings, result.candidates, without)
    if found:  # compared with this run when it had played as many episodes
        played = max(one.trial.episodes for one in found)
        gap = result.history["gap"][result.history["episodes"] <= played][-1]
        without = without._replace(episodes=played, gap=float(gap))
    return advice_facts(found, without, again(context, "identify", without=("out", "resume")))


# -- options and folder ------------------------------------------------------------------------------------------


def question(
    source: str,
    *,
    beta: float | None,
    evar: float | None,
    param: list[str] | None,
    accept: str | None,
    replan: str | None,
    **others: Any,
) -> tuple[Any, dict[str, Any]]:
    """What the options ask for: the model or environment, and the arguments of ``identify``."""
    arguments = {
        **risk_of(beta, evar),
        "replan": _read_replan(replan),
        **others,
    }
    return open_source(source, arguments, param, accept)


def _read_replan(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


@contextmanager
def run_folder(out: Path | None, resume: bool) -> Iterator[None]:
    """Keep the folder to this run, after a check of what it holds."""
    if out is None:
        if resume:
            raise InvalidProblemError("--resume needs --out: the folder of the run to continue")
        yield
        return
    new_folder(out, ())
    with locked(out):
        _check_folder(out, resume)
        yield


def _check_folder(out: Path, resume: bool) -> None:
    if resume and (out / CHECKPOINT).exists():
        return
    if resume:
        new_folder(out, (CERTIFICATE, HISTORY, PLOT), f"without {CHECKPOINT} the run cannot be continued")
    else:
        new_folder(out, (CERTIFICATE, CHECKPOINT, HISTORY, PLOT), "give another --out, or continue with --resume")


def _say_how_to_go_on(checkpoint: Path | None, result: Identification | None) -> None:
    if checkpoint is None:
        advice = "nothing was saved; a run with --out can be resumed"
    elif checkpoint.exists():
        advice = f"the run is saved in {checkpoint}; the same command with --resume continues it"
    else:
        advice = "nothing was saved yet; start again with the same command"
    if result is not None:
        kept = "" if checkpoint is None else f"; certificate in {checkpoint.parent / CERTIFICATE}"
        advice += f". So far a gap of {result.certificate.gap:.3g} is certified{kept}"
    print(f"entropic-bpi: interrupted: {printable(advice)}", file=sys.stderr)


def _write(out: Path, result: Identification) -> None:
    from entropic_bpi.show import plots

    write_csv(out / HISTORY, result.history.dtype.names or (), result.history.tolist())
    plots.save(plots.interval(result.history, eps=result.certificate.eps, delta=result.certificate.delta), out / PLOT)
    result.certificate.save(out / CERTIFICATE)


def _draw_grid(out: Path, source: str, param: list[str] | None, result: Identification) -> list[str]:
    """For the grid worlds of Gymnasium, the policy on the grid; the file that was written, if any."""
    name = source.removeprefix("gym:")
    arrows = next((arrows for world, arrows in _GRID_WORLDS.items() if name.startswith(world)), None)
    if arrows is None or name == source or result.certificate.method != "kl":
        return []
    import gymnasium
    import numpy as np

    from entropic_bpi.show import plots

    with closing(gymnasium.make(name, **parse_params(param))) as env:
        world: Any = env.unwrapped
        if hasattr(world, "desc"):
            cells = world.desc.astype(str)
        else:
            cells = np.full(world.shape, "")
            cells[-1, 1:-1] = "cliff"
    plots.save(plots.grid(result.certificate, cells, arrows), out / GRID)
    return [GRID]


# -- the result --------------------------------------------------------------------------------------------------


def _facts(source: str, result: Identification) -> list[Fact]:
    from entropic_bpi.certificate.policy import NOT_CERTIFIED

    claim, size = result.certificate, result.certificate.problem
    method = claim.method if claim.constants is None else f"{claim.method}, {claim.constants} constants"
    compiling = result.compile_seconds
    once = f", and {compiling:.3g} s once for compiling" if compiling >= SHORTEST_COMPILING else ""
    behind = "" if claim.episodes == result.episodes else f", the claim is from the first {claim.episodes:,}"
    return [
        *([] if result.stopped else [Fact("warning", NOT_CERTIFIED, "warning", NOT_CERTIFIED)]),
        Fact(
            "source",
            source,
            "model",
            f"{source}: {size.n_states} states, {size.n_actions} actions, horizon {size.horizon}",
        ),
        Fact("method", claim.method, "method", method),
        *claim_facts(claim),
        *([] if result.stopped else several("", tuple(_what_would_help(result)), "would help")),
        Fact("episodes", result.episodes, "episodes", f"{result.episodes:,} in {result.seconds:.3g} s{once}{behind}"),
        Fact("seed", result.seed, "seed"),
        *data(constants=claim.constants, certificate_episodes=claim.episodes),
        *data(
            seconds=result.seconds, compile_seconds=compiling, forecast=result.forecast and result.forecast._asdict()
        ),
        *assumption_facts(claim),
        *policy_facts(
            "The policy on the states that it was seen to reach (steps count from 0):", certified_choices(claim)
        ),
    ]


def _what_would_help(result: Identification) -> Iterator[str]:
    """Yield what would lead to a certificate after a budget was spent."""
    claim = result.certificate
    if result.forecast is not None:
        yield f"at the current rate {result.forecast}; with --out a run can be resumed (--resume)"
    if claim.gap < math.inf:
        yield f"--eps {_rounded_up(claim.gap):g}: so far only this gap is certified"
    if claim.problem.successors == "unknown":
        yield "--successors, if the possible next states are known"


def _rounded_up(gap: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(gap)) - 1) if gap > 0 else 1.0
    return math.ceil(gap / unit) * unit
