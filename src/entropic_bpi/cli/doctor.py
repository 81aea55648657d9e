"""``doctor``: what there is on this machine, for a question or a report of a mistake."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from entropic_bpi._version import __version__
from entropic_bpi.cli._answer import answer
from entropic_bpi.cli._app import CLAIM_FAILED
from entropic_bpi.cli._show import terminal
from entropic_bpi.cli._sources import JsonOption
from entropic_bpi.tools.text import printable

_PACKAGES = ("numpy", "scipy", "numba", "gymnasium", "duckdb", "matplotlib", "typer", "rich")
# What comes with an extra, by the extra's name.
_EXTRAS = {"gpu": "numba-cuda", "minari": "minari", "cluster": "distributed"}
_FIRST_RUN = ("identify", "risky-bridge", "--beta", "-1", "--eps", "0.2", "--delta", "0.1", "--successors", "model")


def doctor(as_json: JsonOption = False) -> int:
    """Say what there is on this machine: versions, cores, the cache of compiled code, a GPU.

    Exit code 1 if something is missing without which the library does not work.

    Examples:

        entropic-bpi doctor

        entropic-bpi doctor --json
    """
    found = _findings()
    answer(found, as_json, lambda: _show(found), _FIRST_RUN)
    return CLAIM_FAILED if "missing" in found["packages"].values() else 0


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table

    facts = Table.grid("name", "value", padding=(0, 2))
    for name, value in found.items():
        told = value if isinstance(value, str) else ", ".join(f"{key} {item}" for key, item in value.items())
        facts.add_row(name, printable(told))
    terminal().print(facts)


def _findings() -> dict[str, Any]:
    return {
        "entropic-bpi": f"{__version__}, in {Path(__file__).parents[1]}",
        "python": f"{sys.version.split()[0]}, {sys.executable}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": f"{_cores()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "extras": {extra: _version(name) for extra, name in _EXTRAS.items()},
        "compiled code": _cache(),
        "GPU": _gpu(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cache() -> str:
    """Where compiled code is kept; if nowhere, every start compiles again."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parents[1] / "__pycache__")
    place = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if os.access(place, os.W_OK):
        return f"kept in {folder}"
    return f"{folder} cannot be written: every start may compile again; set NUMBA_CACHE_DIR to a folder that can be"


def _gpu() -> str:
    if find_spec("numba_cuda") is None:
        return "not looked for: numba-cuda is missing (pip install 'entropic-bpi[gpu]')"
    from importlib import import_module

    cuda: Any = import_module("numba.cuda")
    return "found" if cuda.is_available() else "none that numba-cuda can use"
