"""The formats of model files, each with the module that reads and writes it.

A reader returns the fields that define a model. Files of other programs have no horizon; instead of a ``start``, some have
``initial`` states.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from entropic_bpi.errors import InvalidModelError

if TYPE_CHECKING:
    from entropic_bpi.model.mdp import FiniteMDP


class Format(NamedTuple):
    """A format of model files.

    Attributes
    ----------
    name : str
    suffixes : tuple of str
        The suffixes of its files.
    module : str
        A module in this folder, with a function ``read(path)`` or, if ``has_rewards``, ``read(path, reward)``, and, if
        ``writes``, a function ``write(path, mdp)``.
    has_horizon : bool
        Whether files contain the horizon.
    has_rewards : bool
        Whether a file may have several rewards, of which one is chosen by name.
    writes : bool
        Whether models can be saved in the format.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    has_horizon: bool = False
    has_rewards: bool = False
    writes: bool = True


FORMATS = (
    Format("entropic-bpi", (".npz", ".json"), "own", has_horizon=True),
    Format("MDPs.jl", (".csv",), "mdps_csv"),
    Format("PRISM explicit", (".tra",), "prism_explicit", has_rewards=True),
    Format("Storm", (".drn",), "drn", has_rewards=True),
    Format("PRISM language", (".prism", ".nm", ".pm"), "prism", has_rewards=True, writes=False),
)
# The functions that read models of other libraries.
OBJECTS = {"quantecon": "from_quantecon", "gymnasium": "from_gymnasium"}
SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)


def read_model(path: Path, horizon: Any = None, start: Any = None, reward: str | None = None) -> dict[str, Any]:
    """Return the fields of a model file; ``horizon`` and ``start``, if given, replace those of the file."""
    form = format_of(path)
    if form is None:
        raise InvalidModelError(f"cannot load {path}: expected a model file ({', '.join(SUFFIXES)})")
    if not path.exists():
        raise InvalidModelError(f"no such file: {path}")
    if reward is not None and not form.has_rewards:
        raise InvalidModelError(f"{path} has only one reward: reward= is for files with several")
    try:
        fields = _module(form).read(path, *([reward] if form.has_rewards else []))
    except InvalidModelError:
        raise
    except (OSError, ValueError) as error:  # a folder, or not UTF-8
        raise InvalidModelError(f"{path} is not a readable {form.name} file: {error}") from None
    given = {"horizon": horizon, "start": start}
    fields |= {name: value for name, value in given.items() if value is not None}
    if "horizon" not in fields:
        raise InvalidModelError(f"{path} has no horizon: pass horizon=, the number of steps of an episode")
    initial = fields.pop("initial", ())
    if "start" not in fields and len(initial) != 1:
        raise InvalidModelError(f"{path} has {len(initial)} initial states, expected 1: pass start=")
    return {"start": initial[0], **fields} if initial else fields


def write_model(path: Path, mdp: FiniteMDP) -> None:
    form = format_of(path)
    if form is None or not form.writes:
        written = [suffix for each in FORMATS if each.writes for suffix in each.suffixes]
        raise InvalidModelError(f"cannot save to {path}: the name must end in one of {', '.join(written)}")
    if not path.parent.is_dir():
        raise InvalidModelError(f"cannot save to {path}: {path.parent} is not an existing folder")
    _module(form).write(path, mdp)


def format_of(path: Path) -> Format | None:
    """Return the format that the suffix of a file names, or None."""
    return next((each for each in FORMATS if path.suffix.lower() in each.suffixes), None)


def _module(form: Format) -> Any:
    return import_module(f"entropic_bpi.model.formats.{form.module}")
