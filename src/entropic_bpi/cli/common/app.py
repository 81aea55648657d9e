"""The application that the commands belong to: exit codes, error lines and the entry point.

Exit codes: 0 done; 1 a claim failed; 2 bad input, with one line on stderr. Commands raise the library's own errors and
`_Commands` turns them into that line, so a new command needs no error handling of its own.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from entropic_bpi._version import __version__
from entropic_bpi.cli.common.sources import defaults_of
from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.tools.text import printable

CLAIM_FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


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
        as_json = "--json" in (sys.argv[1:] if args is None else args)
        try:
            extra.setdefault("default_map", defaults_of(sys.argv[1:] if args is None else args))
            outcome = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except EntropicBPIError as error:
            fail(str(error), as_json)
        except MemoryError as error:
            fail(f"the problem does not fit into memory: {error}", as_json)
        except OSError as error:
            fail(f"{error.filename or 'input or output'}: {error.strerror or error}", as_json)
        except (KeyboardInterrupt, typer.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:
            if not hasattr(error, "format_message"):  # typer's usage errors, wherever typer keeps their class
                raise
            context = getattr(error, "ctx", None)
            path = context.command_path if context else "entropic-bpi"
            fail(f"{error.format_message()} (try: {path} --help)", as_json)
        if standalone_mode:
            sys.exit(outcome if isinstance(outcome, int) else 0)
        return outcome


def fail(message: str, as_json: bool = False) -> NoReturn:
    """Print one line on stderr and, for programs, an object on stdout; then exit."""
    line = printable(" ".join(message.split()))
    if as_json:
        print(json.dumps({"error": line}, indent=2))
    print(f"entropic-bpi: {line}", file=sys.stderr)
    sys.exit(BAD_INPUT)


app = typer.Typer(
    cls=_Commands,
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding without β is no reason to fail; stderr never does
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
    """Learn a policy from episodes or a log, with a certificate of its quality; plan in known models.

    The value of a policy is (1/beta) log E exp(beta * return): beta > 0 is risk-seeking, beta < 0 risk-averse, and
    beta = 0 the expectation.

    Examples:

        entropic-bpi instances

        entropic-bpi solve risky-bridge --beta 2.5

        entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1

        entropic-bpi forecast risky-bridge --beta -1 --eps 0.2 --delta 0.1

        entropic-bpi identify risky-bridge --beta -1 --eps 0.2 --delta 0.1 --successors model --out run

        entropic-bpi report run -o report.html

        entropic-bpi certify run --beta -3:1:0.1 --out run

        entropic-bpi compare risky-bridge --beta 1.5 --episodes 100000 --learners rsvi2,rovi --seeds 5 --out regret

    Every command has --json. --install-completion installs completion for your shell.

    Exit codes: 0 done; 1 a claim failed; 2 bad input.
    """
    if version:
        print(f"entropic-bpi {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
