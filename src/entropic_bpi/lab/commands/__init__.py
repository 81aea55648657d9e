"""The commands for research. The command line imports them when one is asked for."""

from entropic_bpi.lab.commands.compare import bounds, compare
from entropic_bpi.lab.commands.experiments import export, reproduce, sweep, validate

COMMANDS = (compare, bounds, validate, reproduce, sweep, export)
