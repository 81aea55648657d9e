"""The command line: thin commands over the library.

Modules that take time to import are imported inside the commands, so that ``--help`` answers at once; the public names of
the library are loaded when they are first used. The commands for research are in ``lab/commands``.
"""

import typer

from entropic_bpi.cli import certify, check, explore, identify, solve
from entropic_bpi.cli.app import add_command, app, main
from entropic_bpi.errors import InvalidProblemError

__all__ = ["app", "main"]

_PANELS = {
    "Learn": [explore.inspect, identify.forecast, identify.identify, explore.explore, certify.certify],
    "Check and show": [check.appraise, check.verify, check.report, check.monitor, check.doctor],
    "Known models": [solve.instances, solve.solve, solve.front, solve.convert],
}
_RENAMED = {"plan": "forecast", "spectrum": "certify"}


def _refuse(context: typer.Context) -> None:
    raise InvalidProblemError(f"the command {context.info_name} is now called {_RENAMED[context.info_name or '']}")


for _panel, _commands in _PANELS.items():
    for _command in _commands:
        add_command(app, _command, _panel)
for _name in _RENAMED:
    _any_words = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(_name, hidden=True, context_settings=_any_words)(_refuse)
