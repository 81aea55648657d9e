"""Environments by name: ids of Gymnasium, and classes in files."""

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidProblemError


def is_class_in_file(name: str) -> bool:
    """Whether the name is like ``folder/file.py:Class``."""
    return re.fullmatch(r".+\.py:\w+", name) is not None


def env_factory(name: str, options: dict[str, Any]) -> Callable[[], Any]:
    """What makes an environment with these options: of an id, also one like ``package:Env-v0``, or a class in a file."""
    import gymnasium

    import entropic_bpi.environments  # noqa: F401 - so that its ids are known

    known = is_class_in_file(name)
    make = _in_file(*name.rsplit(":", 1)) if known else gymnasium.make

    def made() -> Any:
        try:
            return make(**options) if known else make(name, **{"disable_env_checker": True, **options})
        except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
            hint = " A package that registers it is imported first as in gym:package:Env-v0" if ":" not in name else ""
            raise InvalidProblemError(f"gymnasium cannot make {name!r}: {error}{hint}") from None

    made.__qualname__ = name
    return made


def _in_file(path: str, name: str) -> Any:
    """The class, or any function that makes an environment, in a file of Python."""
    file = Path(path)
    if not file.is_file():
        raise InvalidProblemError(f"no such file: {file}")
    # Under a name of its own, so that its source can be found and no other module is replaced.
    spec: Any = spec_from_file_location(f"_environments_in_{file.stem}", file)
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
