"""Environments by name: ids of Gymnasium, and classes in files."""

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidProblemError


def is_class_in_file(name: str) -> bool:
    """Return whether the name has the form ``folder/file.py:Class``."""
    return re.fullmatch(r".+\.py:\w+", name) is not None


def env_factory(name: str, options: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that makes an environment with these options; ``name`` is an id or ``folder/file.py:Class``."""
    import gymnasium

    import entropic_bpi.environments  # noqa: F401 - registers its ids

    in_file = is_class_in_file(name)
    make = _load_from_file(*name.rsplit(":", 1)) if in_file else gymnasium.make

    def create() -> Any:
        try:
            return make(**options) if in_file else make(name, **{"disable_env_checker": True, **options})
        except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
            hint = " To import the package that registers it first, use gym:package:Env-v0" if ":" not in name else ""
            raise InvalidProblemError(f"gymnasium cannot make {name!r}: {error}{hint}") from None

    create.__qualname__ = name
    return create


def _load_from_file(path: str, name: str) -> Any:
    """Return a class, or a function that makes an environment, from a Python file."""
    file = Path(path)
    if not file.is_file():
        raise InvalidProblemError(f"no such file: {file}")
    # The module name is unlikely to replace another module. The entry in sys.modules lets inspect find the source code.
    spec: Any = spec_from_file_location(f"_environments_in_{file.stem}", file)
    module = sys.modules[spec.name] = module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # so that the file can import modules from its folder
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidProblemError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    if not callable(getattr(module, name, None)):
        raise InvalidProblemError(f"{file} has no class or function {name}")
    return getattr(module, name)
