"""The command line: thin commands over the library.

Modules that take time to import are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import typer

from entropic_bpi.cli import (
    appraise,
    bounds,
    certify,
    check,
    compare,
    experiments,
    explore,
    forecast,
    identify,
    inspect,
    monitor,
    solve,
)
from entropic_bpi.cli.common.answer import help_of, with_documented_options
from entropic_bpi.cli.common.app import app, main
from entropic_bpi.errors import InvalidProblemError

__all__ = ["app", "main"]

_PANELS = {
    "Learn": [inspect.inspect, forecast.forecast, identify.identify, explore.explore, certify.certify],
    "Check and show": [appraise.appraise, check.verify, check.report, monitor.monitor, check.doctor],
    "Known models": [solve.instances, solve.solve, solve.front, solve.convert],
    "Research": [
        compare.compare,
        bounds.bounds,
        experiments.validate,
        experiments.reproduce,
        experiments.sweep,
        experiments.export,
    ],
}
_RENAMED = {"plan": "forecast", "spectrum": "certify"}


def _refuse(context: typer.Context) -> None:
    raise InvalidProblemError(f"the command {context.info_name} is now called {_RENAMED[context.info_name or '']}")


for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _named = app.command(_command.__name__, help=help_of(_command), rich_help_panel=_panel)
        _named(with_documented_options(_command))
for _name in _RENAMED:
    _any_words = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(_name, hidden=True, context_settings=_any_words)(_refuse)
