"""The environments that Gymnasium knows by name once this package is imported.

Gymnasium takes a while to import, so it is not imported here: if it is there already the names are registered at
once, otherwise as soon as somebody imports it.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import Any

__all__ = ["register", "register_when_imported"]

_HOME = "entropic_bpi.gymnasium_env"
_IDS = {
    "entropic_bpi/RiskyBridge-v0": f"{_HOME}:make_risky_bridge",
    "entropic_bpi/RiverSwim-v0": f"{_HOME}:make_river_swim",
}


def register() -> None:
    """Register every id that is not registered yet."""
    import gymnasium

    for name, entry_point in _IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)


class _WaitForGymnasium(MetaPathFinder):
    """Stands in the import path until Gymnasium is imported, then registers the names after it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            run = loader.exec_module

            def run_and_register(module: Any) -> None:
                run(module)
                register()

            loader.exec_module = run_and_register
        return spec


def register_when_imported() -> None:
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _WaitForGymnasium())
