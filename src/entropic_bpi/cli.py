"""The command line: thin commands over the library.

Exit codes: 0 done; 1 a claim failed; 2 bad input, with one line on stderr. Commands raise the library's own errors and
`_Commands` turns them into that line, so a new command needs no error handling of its own. Modules that take time to
import are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from entropic_bpi._version import __version__
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError

if TYPE_CHECKING:
    from rich.console import Console

    from entropic_bpi.mdp import FiniteMDP
    from entropic_bpi.planning import ReturnLaw, Solution

__all__ = ["app", "main"]

BAD_INPUT, INTERRUPTED = 2, 130
# The law of the return is shown when it needs at most this many atoms on the way.
_LARGEST_LAW = 100_000
_SHOWN_ATOMS = 5
_SHOWN_CHOICES = 40
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class _Commands(TyperGroup):
    """Reports bad input as one line on stderr and exit code 2, and leaves real bugs their traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            outcome = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except EntropicBPIError as error:
            _fail(str(error))
        except MemoryError as error:
            _fail(f"the problem does not fit into memory: {error}")
        except (KeyboardInterrupt, typer.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:
            if not hasattr(error, "format_message"):  # typer's usage errors, wherever typer keeps their class
                raise
            context = getattr(error, "ctx", None)
            _fail(f"{error.format_message()} (try: {context.command_path if context else 'entropic-bpi'} --help)")
        if standalone_mode:
            sys.exit(outcome if isinstance(outcome, int) else 0)
        return outcome


def _fail(message: str) -> NoReturn:
    print("entropic-bpi: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(BAD_INPUT)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _UntilClosed:
    """A stream whose reader may leave early, as in ``| head``: the rest is dropped.

    The command goes on, so that it saves what it should and its exit code still tells whether the claim holds.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the ``entropic-bpi`` command."""
    with redirect_stdout(_UntilClosed(sys.stdout or io.StringIO())):
        try:
            app(args=args, prog_name="entropic-bpi")
        finally:
            sys.stdout.flush()


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Risk-sensitive planning and learning in finite MDPs, under the entropic risk measure.

    The value of a policy is (1/beta) log E exp(beta * return): beta > 0 is risk-seeking, beta < 0 risk-averse, and
    beta = 0 the expectation.

    Examples:

        entropic-bpi instances

        entropic-bpi solve risky-bridge --beta 2.5

        entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1

    Exit codes: 0 done; 1 a claim failed; 2 bad input.
    """
    if version:
        print(f"entropic-bpi {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


# -- sources: what a command works on -----------------------------------------------------------------------------

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="An instance (risky-bridge), a saved model (model.npz, model.json), or gym:ENV_ID (gym:FrozenLake-v1).",
        show_default=False,
    ),
]
BetaOption = Annotated[
    float,
    typer.Option(help="Risk parameter: positive seeks risk, negative avoids it, 0 is the mean.", show_default=False),
]
HorizonOption = Annotated[
    int | None, typer.Option(help="Number of steps; required for gym: sources.", show_default=False)
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="A parameter of the instance, or an option of the Gymnasium environment; repeat it for several.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _resolve_source(source: str, horizon: int | None = None, params: Mapping[str, Any] | None = None) -> FiniteMDP:
    """The model that a SOURCE argument means."""
    given = dict(params or {})
    if Path(source).suffix in (".npz", ".json"):
        return _load_model(source, horizon, given)
    if horizon is not None:
        if "horizon" in given:
            raise InvalidProblemError("the horizon is given twice: use either --horizon or --param horizon=")
        given["horizon"] = horizon
    if source.startswith("gym:"):
        return _read_gymnasium(source.removeprefix("gym:"), given)
    from entropic_bpi import instances

    if source.replace("_", "-") not in instances.names():
        raise InvalidProblemError(
            f"unknown source {source!r}: expected an instance ({', '.join(instances.names())}), "
            "a saved model (.npz or .json) or gym:ENV_ID"
        )
    return instances._build(source, given)


def _load_model(path: str, horizon: int | None, params: Mapping[str, Any]) -> FiniteMDP:
    from entropic_bpi.mdp import FiniteMDP

    mdp = FiniteMDP.load(path)
    if params:
        raise InvalidProblemError(f"{path} is a saved model, which takes no parameters; got {', '.join(params)}")
    if horizon not in (None, mdp.horizon):
        raise InvalidProblemError(f"{path} was saved with horizon {mdp.horizon}, which cannot be changed to {horizon}")
    return mdp


def _read_gymnasium(env_id: str, params: dict[str, Any]) -> FiniteMDP:
    from entropic_bpi.instances import from_gymnasium

    if "horizon" not in params:
        raise InvalidProblemError(f"gym:{env_id} needs --horizon: the number of steps of an episode")
    if "env_or_id" in params:
        raise InvalidProblemError("env_or_id is the part after gym:, not a --param")
    return from_gymnasium(env_id, **params)


def _parse_params(entries: Sequence[str] | None) -> dict[str, Any]:
    """``["branching=3", "stationary=false"]`` as ``{"branching": 3, "stationary": False}``."""
    params: dict[str, Any] = {}
    for entry in entries or ():
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise InvalidProblemError(f"--param must be NAME=VALUE, got {entry!r}")
        if name in params:
            raise InvalidProblemError(f"--param {name} is given twice")
        params[name] = _parse_value(text.strip())
    return params


def _parse_value(text: str) -> Any:
    """A number, true, false, none, a list or a tuple; anything else is a string."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _console() -> Console:
    """Fits a terminal; wide elsewhere, so that piped tables keep one line per row."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)


# -- instances ------------------------------------------------------------------------------------------------------


@app.command("instances")
def _instances() -> None:
    """List the built-in instances with their parameters.

    Parameters without a default are required. Pass them with -p, as in

        entropic-bpi solve garnet --beta 1 -p n_states=20 -p n_actions=3 -p branching=4 -p horizon=10 -p seed=1

        entropic-bpi solve hard-instance --beta -1 -p n_states=10 -p n_actions=2 -p horizon=12 -p beta=-1 -p eps=0.05
    """
    from rich.table import Table

    from entropic_bpi import instances

    table = Table("name", "parameters", "what it is", box=None, pad_edge=False)
    for name in instances.names():
        build = instances.builder(name)
        parameters = inspect.signature(build).parameters.values()
        shown = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters]
        table.add_row(name, " ".join(shown), (inspect.getdoc(build) or "").splitlines()[0])
    _console().print(table)


# -- solve ----------------------------------------------------------------------------------------------------------


@app.command("solve")
def _solve(
    source: SourceArgument,
    beta: BetaOption,
    horizon: HorizonOption = None,
    param: ParamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find an optimal policy of a known model, and the law of its return.

    Examples:

        entropic-bpi solve risky-bridge --beta 2.5

        entropic-bpi solve risky-bridge --beta -1 --horizon 9 -p p_dash=0.5 --json

        entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1 -p is_slippery=false

        entropic-bpi solve model.npz --beta 0
    """
    from entropic_bpi.planning import solve

    solution = solve(_resolve_source(source, horizon, _parse_params(param)), beta)
    law, choices = _small_law(solution), _choices(solution)
    if as_json:
        print(json.dumps(_solution_as_json(source, solution, law, choices), indent=2))
    else:
        _show_solution(source, solution, law, choices)


# State, action, and the first and last step (0-based) at which the policy plays that action there.
_Choice = tuple[str, str, int, int]


def _choices(solution: Solution) -> list[_Choice]:
    """What the policy does in the states that it reaches; steps merge until the state's action changes."""
    mdp, policy = solution.mdp, solution.policy
    current: dict[int, int] = {}  # state → its choice in the list
    choices: list[_Choice] = []
    for h, states in enumerate(_reached(solution)):
        for s in states:
            action = mdp.action_names[policy[h, s]]
            if s in current and choices[current[s]][1] == action:
                choices[current[s]] = (*choices[current[s]][:3], h)
            else:
                current[s] = len(choices)
                choices.append((mdp.state_names[s], action, h, h))
    return choices


def _reached(solution: Solution) -> Iterator[list[int]]:
    """For each step the states in which the policy may be."""
    import numpy as np

    mdp = solution.mdp
    reached = mdp.start_distribution > 0
    for h in range(mdp.horizon):
        states = np.flatnonzero(reached)
        yield states.tolist()
        rows = mdp.step_rows(h)
        reached = np.zeros(mdp.n_states, dtype=bool)
        for row in states * mdp.n_actions + solution.policy[h, states]:
            entries = slice(rows.indptr[row], rows.indptr[row + 1])
            reached[rows.indices[entries][rows.probabilities[entries] > 0]] = True


def _small_law(solution: Solution) -> ReturnLaw | None:
    """The law of the return, or None when it has too many atoms to be worth the time."""
    from entropic_bpi.planning import ReturnLaw, return_law

    try:
        law = return_law(solution.mdp, solution.policy, max_support=_LARGEST_LAW)
    except InvalidProblemError:
        return None
    return law if isinstance(law, ReturnLaw) else None


def _solution_as_json(
    source: str, solution: Solution, law: ReturnLaw | None, choices: Sequence[_Choice]
) -> dict[str, Any]:
    mdp = solution.mdp
    result: dict[str, Any] = {
        "source": source,
        "states": mdp.n_states,
        "actions": mdp.n_actions,
        "horizon": mdp.horizon,
        "beta": solution.beta,
        "value": solution.value,
        "return": None,
        "policy": [
            dict(zip(("state", "action", "first_step", "last_step"), choice, strict=True)) for choice in choices
        ],
    }
    if law is not None:
        quantiles = {f"{q:g}": law.quantile(q) for q in _QUANTILES}
        result["return"] = {"mean": law.mean, "std": law.variance**0.5, "quantiles": quantiles}
    return result


def _show_solution(source: str, solution: Solution, law: ReturnLaw | None, choices: Sequence[_Choice]) -> None:
    from rich.table import Table

    mdp, console = solution.mdp, _console()
    attitude = "risk-seeking" if solution.beta > 0 else "risk-averse" if solution.beta < 0 else "the expectation"
    facts = Table.grid("name", "value", padding=(0, 2))
    facts.add_row("model", f"{source}: {mdp.n_states} states, {mdp.n_actions} actions, horizon {mdp.horizon}")
    facts.add_row("beta", f"{solution.beta:g} ({attitude})")
    facts.add_row("value", f"{solution.value:.6f}")
    if law is None:
        facts.add_row("return", "too many possible values to list its law")
    else:
        quantiles = ", ".join(f"{q:.0%} {law.quantile(q):g}" for q in _QUANTILES)
        facts.add_row("return", f"mean {law.mean:.6g}, std {law.variance**0.5:.6g}; quantiles {quantiles}")
        if len(law.support) <= _SHOWN_ATOMS:
            atoms = zip(law.support, law.probabilities, strict=True)
            facts.add_row("law", ", ".join(f"{value:g} with probability {mass:.6g}" for value, mass in atoms))
    console.print(facts)
    console.print("\nOptimal policy on the states that it reaches (steps count from 0):")
    table = Table("steps", "state", "action", box=None, pad_edge=False)
    for state, action, first, last in choices[:_SHOWN_CHOICES]:
        table.add_row(f"{first}" if first == last else f"{first}-{last}", state, action)
    console.print(table)
    if len(choices) > _SHOWN_CHOICES:
        console.print(f"... and {len(choices) - _SHOWN_CHOICES} more lines; --json prints them all")
