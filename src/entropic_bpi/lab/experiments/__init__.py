"""Experiments: sweeps and their results, the figures of the paper, and the validation of the guarantee.

``grid`` makes the runs of a sweep, ``run`` carries out those that are missing, in local processes or on a Dask cluster,
``load`` reads the results, ``export`` writes them as Parquet and CSV, ``read_sweep`` reads a sweep from a TOML file,
``reproduce`` draws the figures and ``validate`` measures how often the guarantee fails. Modules are imported when a name
is first used, so that the command line starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entropic_bpi.lab.experiments.cases import Case as Case
    from entropic_bpi.lab.experiments.figures import reproduce as reproduce
    from entropic_bpi.lab.experiments.runner import run as run
    from entropic_bpi.lab.experiments.spec import RunSpec as RunSpec
    from entropic_bpi.lab.experiments.spec import SweepError as SweepError
    from entropic_bpi.lab.experiments.spec import grid as grid
    from entropic_bpi.lab.experiments.store import Results as Results
    from entropic_bpi.lab.experiments.store import StoreError as StoreError
    from entropic_bpi.lab.experiments.store import export as export
    from entropic_bpi.lab.experiments.store import load as load
    from entropic_bpi.lab.experiments.sweep_file import Sweep as Sweep
    from entropic_bpi.lab.experiments.sweep_file import read_sweep as read_sweep
    from entropic_bpi.lab.experiments.validation import Validation as Validation
    from entropic_bpi.lab.experiments.validation import validate as validate

_MODULES = {
    "cases": ("Case",),
    "figures": ("reproduce",),
    "runner": ("run",),
    "spec": ("RunSpec", "SweepError", "grid"),
    "store": ("Results", "StoreError", "export", "load"),
    "sweep_file": ("Sweep", "read_sweep"),
    "validation": ("Validation", "validate"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
