"""Risk-sensitive reinforcement learning in finite MDPs, with a certificate.

The file ``__init__.pyi`` lists the public names. A module is imported when one of its names is first used, so that importing
the package is fast. No module has the name of a public function: importing it would hide the function.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def _public_names() -> dict[str, tuple[str, str]]:
    """Return, for each public name, the module that defines it and its name in that module."""
    table = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in table.body if isinstance(line, ast.ImportFrom)]
    return {
        alias.asname or alias.name: (f".{line.module}" if line.module else "", alias.name)
        for line in lines
        for alias in line.names
    }


_HOME = _public_names()
__all__ = sorted(_HOME)


_RENAMED = {"Rows": "SparseTransitions", "Pilot": "TrialRun", "Outlook": "RunForecast"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        raise AttributeError(f"entropic_bpi.{name} is now entropic_bpi.{_RENAMED[name]}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, own = _HOME[name]
    value = getattr(import_module(home, __name__), own, None) if home else None
    if value is None:  # a module that has not been imported yet
        value = import_module(f"{home}.{own}", __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
