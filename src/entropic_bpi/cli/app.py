"""The application that the commands belong to: exit codes, error lines and the entry point.

Exit codes: 0 done; 1 a claim failed; 2 bad input, with one line on stderr. Commands raise the library's own errors and
`_Commands` turns them into that line, so a new command needs no error handling of its own.
"""

import io
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from entropic_bpi._version import __version__
from entropic_bpi.cli.facts import PROGRAM, Answer, show
from entropic_bpi.cli.options import defaults_of, help_of, options_of, with_options
from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.tools.text import printable

CLAIM_FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class _Commands(TyperGroup):
    """Report bad input as one line on stderr and exit code 2; bugs keep their traceback.

    The commands for research are imported when a name is not that of another command, or when all are listed.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            from entropic_bpi.lab.commands import COMMANDS

            research = typer.Typer(rich_markup_mode="markdown")
            for command in COMMANDS:
                add_command(research, command, "Research")
            self.commands.update(typer.main.get_group(research).commands)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        self.get_command(ctx, "")
        return super().list_commands(ctx)

    def main(self, args: Any = None, prog_name: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        words = sys.argv[1:] if args is None else args
        try:
            extra.setdefault("default_map", defaults_of(words))
            outcome = super().main(args, prog_name, standalone_mode=False, **extra)
        except (KeyboardInterrupt, typer.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:
            line = printable(" ".join(_message(error).split()))
            if "--json" in words:
                print(json.dumps({"error": line}, indent=2))
            print(f"{PROGRAM}: {line}", file=sys.stderr)
            sys.exit(BAD_INPUT)
        if standalone_mode:
            sys.exit(outcome if isinstance(outcome, int) else 0)
        return outcome


def _message(error: Exception) -> str:
    """Return what is wrong with the input; an error that is not about the input is a bug, and is raised again."""
    if isinstance(error, MemoryError):
        return f"the problem does not fit into memory: {error}"
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}"
    if hasattr(error, "format_message"):  # typer's usage errors, wherever typer keeps their class
        context = getattr(error, "ctx", None)
        return f"{error.format_message()} (try: {context.command_path if context else PROGRAM} --help)"
    if not isinstance(error, EntropicBPIError):
        raise error
    return str(error)


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add_command(into: typer.Typer, command: Callable[..., Answer], panel: str) -> None:
    """Add a function as a command with the option --json, which prints its answer and sets the exit code."""

    def run(*, as_json: bool = False, **given: Any) -> int:
        found = command(**given)
        show(found, as_json)
        return 0 if found.ok else CLAIM_FAILED

    described = with_options(*options_of(command))(run)
    into.command(command.__name__, help=help_of(command), rich_help_panel=panel)(described)


class _UntilClosed(io.FileIO):
    """A pipe whose reader may close it early, as in ``| head``; further output is dropped.

    The command continues, so that its files are written and its exit code is right.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command ``entropic-bpi``."""
    stdout: Any = sys.stdout or io.StringIO()
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")  # replace what the encoding lacks, such as β; stderr does so anyway
    if sys.stdout is sys.__stdout__ and sys.stdout is not None and not stdout.isatty():
        pipe = io.BufferedWriter(_UntilClosed(stdout.fileno(), "w", closefd=False))
        stdout = io.TextIOWrapper(pipe, stdout.encoding, stdout.errors)
    with redirect_stdout(stdout), warnings.catch_warnings():
        warnings.showwarning = lambda text, *_, **__: print("warning:", printable(str(text)), file=sys.stderr)
        try:
            app(args=args, prog_name=PROGRAM)
        finally:
            stdout.flush()


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Learn a policy from episodes or a log, with a certificate of its quality; plan in known models.

    The value of a policy is (1/beta) log E exp(beta * return): beta > 0 is risk-seeking, beta < 0 risk-averse, and
    beta = 0 the expectation.

    Examples:

        entropic-bpi instances

        entropic-bpi solve risky-bridge --beta 2.5

        entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1

        entropic-bpi forecast risky-bridge --beta -1 --eps 0.2 --delta 0.1

        entropic-bpi identify risky-bridge --beta -1 --eps 0.2 --delta 0.1 --successors model --out run

        entropic-bpi verify run/certificate.json

        entropic-bpi report run -o report.html

        entropic-bpi certify run --beta -3:1:0.1 --out run

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --learners rsvi2,rovi --seeds 5 --out regret

    Every command has --json. --install-completion installs completion for your shell.

    Exit codes: 0 done; 1 a claim failed; 2 bad input.
    """
    if version:
        print(f"{PROGRAM} {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
