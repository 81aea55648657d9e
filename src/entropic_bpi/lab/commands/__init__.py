"""Commands for research. The command line imports them only when one of them is used."""

from entropic_bpi.lab.commands.compare import bounds, compare
from entropic_bpi.lab.commands.experiments import export, reproduce, sweep, validate

COMMANDS = (compare, bounds, validate, reproduce, sweep, export)
