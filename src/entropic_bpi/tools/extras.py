"""Modules that are installed by an extra of the package."""

from importlib import import_module
from typing import Any

from entropic_bpi.errors import InvalidProblemError


def module_of_extra(module: str, extra: str, task: str) -> Any:
    """Import a module that an extra installs.

    Parameters
    ----------
    module : str
        Name of the module.
    extra : str
        Name of the extra that installs it.
    task : str
        What the module is needed for; the error begins with it.

    Returns
    -------
    module

    Raises
    ------
    InvalidProblemError
        If the module is not installed. The message has the command that installs it.

    Examples
    --------
    >>> module_of_extra("json", "all", "a test").__name__
    'json'
    >>> module_of_extra("no_such_module", "all", "a test")
    Traceback (most recent call last):
        ...
    entropic_bpi.errors.InvalidProblemError: a test needs no_such_module: pip install 'entropic-bpi[all]'
    """
    try:
        return import_module(module)
    except ImportError:
        raise InvalidProblemError(f"{task} needs {module}: pip install 'entropic-bpi[{extra}]'") from None
