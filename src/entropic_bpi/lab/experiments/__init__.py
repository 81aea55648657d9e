"""Experiments that survive: sweeps as data, results in one file, and the figures of the paper.

``grid`` writes a sweep, ``run`` carries out what is missing of it on local processes or a Dask cluster, ``load`` reads the
results, ``export`` writes them as Parquet and CSV, ``read_sweep`` reads a sweep from a TOML file, ``reproduce`` draws
the figures and ``validate`` measures how often the guarantee fails. Modules load when a name is first used, so that the
command line stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entropic_bpi.lab.experiments.figures import reproduce
    from entropic_bpi.lab.experiments.runner import run
    from entropic_bpi.lab.experiments.spec import RunSpec, SweepError, grid
    from entropic_bpi.lab.experiments.store import Results, StoreError, export, load
    from entropic_bpi.lab.experiments.sweep_file import Sweep, read_sweep
    from entropic_bpi.lab.experiments.validation import Case, Validation, validate

_HOME = {
    "reproduce": "figures",
    "run": "runner",
    "RunSpec": "spec",
    "SweepError": "spec",
    "grid": "spec",
    "Results": "store",
    "StoreError": "store",
    "export": "store",
    "load": "store",
    "Sweep": "sweep_file",
    "read_sweep": "sweep_file",
    "Case": "validation",
    "Validation": "validation",
    "validate": "validation",
}

__all__ = [
    "Case",
    "Results",
    "RunSpec",
    "StoreError",
    "Sweep",
    "SweepError",
    "Validation",
    "export",
    "grid",
    "load",
    "read_sweep",
    "reproduce",
    "run",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
