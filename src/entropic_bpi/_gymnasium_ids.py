"""Environments by name: what Gymnasium knows, ours among it once this package is imported, and classes in files.

Gymnasium takes a while to import, so it is not imported here: if it is there already the names are registered at
once, otherwise as soon as somebody imports it.
"""

import re
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidProblemError

_HOME = "entropic_bpi.model.gymnasium.env"
_IDS = {
    "entropic_bpi/RiskyBridge-v0": f"{_HOME}:make_risky_bridge",
    "entropic_bpi/RiverSwim-v0": f"{_HOME}:make_river_swim",
}

# Packages that register ids of these forms when they are imported.
_PACKAGES = {
    "minigrid": "MiniGrid-|BabyAI-",
    "ale_py": "ALE/",
    "gym_simplegrid": "SimpleGrid-",
    "mo_gymnasium": "deep-sea-treasure|resource-gathering|fishwood|breakable-bottles|four-room|fruit-tree|minecart",
}


def _register() -> None:
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
                _register()

            loader.exec_module = run_and_register
        return spec


def register_when_imported() -> None:
    if "gymnasium" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _WaitForGymnasium())


def is_class_in_file(name: str) -> bool:
    """Whether the name is like ``folder/file.py:Class``."""
    return re.fullmatch(r".+\.py:\w+", name) is not None


def env_factory(name: str, options: dict[str, Any]) -> Callable[[], Any]:
    """What makes an environment with these options: of an id, also one like ``package:Env-v0``, or a class in a file."""
    import gymnasium

    known = is_class_in_file(name)
    make = _in_file(*name.rsplit(":", 1)) if known else gymnasium.make

    def made() -> Any:
        try:
            return make(**options) if known else make(name, **{"disable_env_checker": True, **options})
        except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
            raise InvalidProblemError(f"gymnasium cannot make {name!r}: {error}{_where_it_may_be(name)}") from None

    made.__qualname__ = name
    return made


def _where_it_may_be(name: str) -> str:
    """Where an id that is not registered may come from, in words."""
    for package, pattern in _PACKAGES.items():
        if ":" not in name and re.match(pattern, name):
            return f" Packages are imported first if they are named: gym:{package}:{name}"
    return " A package that registers it is imported first as in gym:package:Env-v0" if ":" not in name else ""


def _in_file(path: str, name: str) -> Any:
    """The class, or any function that makes an environment, in a file of Python."""
    file = Path(path)
    if not file.is_file():
        raise InvalidProblemError(f"no such file: {file}")
    # Under a name of its own, so that its source can be found and no other module is replaced.
    spec = spec_from_file_location(f"_environments_in_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # for what it imports from beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidProblemError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    if not callable(getattr(module, name, None)):
        raise InvalidProblemError(f"{file} has no class or function {name}")
    return getattr(module, name)
