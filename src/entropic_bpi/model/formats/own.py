"""Model files of this library: ``.npz``, or ``.json`` for small models, with the same schema.

The guide "Bring your own MDP" describes the schema, for other programs that write models. A file is a set of named fields.
Only fields of the schema are read, and nothing is unpickled. The constructor of the model checks the fields.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.mechanics import NOISE_FIELDS, fields_of
from entropic_bpi.tools.files import write_atomically, write_text_atomically
from entropic_bpi.tools.text import shown

_FORMAT = "entropic-bpi model"
# Releases without action masks read only version 1.
_VERSION, _VERSION_WITH_MASKS = 1, 2
_NAMES = ("state_names", "action_names", "noise_labels")
_KNOWN = (
    *("format", "version", "horizon", "start", "unit", "title", "allowed", *_NAMES),
    *("transitions", "rewards", "sizes", "indptr", "indices", "probabilities", "entry_rewards", *NOISE_FIELDS),
)
_SCHEMA = (
    f"a model file has the keys format ({_FORMAT!r}), version ({_VERSION}), horizon, transitions and rewards; for a sparse "
    "model sizes, indptr, indices, probabilities and rewards or entry_rewards instead of the last two; optional keys are "
    "start, allowed, state_names, action_names, unit and title"
)


def write(path: Path, mdp: FiniteMDP) -> None:
    """Write the fields that are not None. If the rows contain the rewards, there is no field ``rewards``."""
    version = _VERSION if mdp.allowed is None else _VERSION_WITH_MASKS
    held = {"format": _FORMAT, "version": version, "sizes": [mdp.n_states, mdp.n_actions], **mdp._fields()}
    held |= {} if mdp.mechanics is None else fields_of(mdp.mechanics)
    if mdp.is_sparse:
        rows = held.pop("transitions")
        held |= {"indptr": rows.indptr, "indices": rows.indices, "probabilities": rows.probabilities}
        held |= {"entry_rewards": rows.rewards}
    held["rewards"] = mdp.rewards
    fields = {name: value for name, value in held.items() if value is not None}
    if path.suffix.lower() == ".npz":
        write_atomically(path, lambda file: np.savez(file, **fields))
    else:
        write_text_atomically(path, json.dumps(fields, default=np.ndarray.tolist) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Return the fields of a model file: arrays, lists of names, and numbers."""
    try:
        held = _read_npz(path) if path.suffix.lower() == ".npz" else _read_json(path)
    except Exception as error:  # a damaged file, or one of another program, can raise any exception
        raise InvalidModelError(f"{path} is not a readable {path.suffix} file: {error}") from None
    is_marked = "format" in held
    if held.pop("format", _FORMAT) != _FORMAT:
        raise InvalidModelError(f"{path}: not a model saved by entropic-bpi: {_SCHEMA}")
    version = held.pop("version", None if is_marked else _VERSION)
    if type(version) is not int or version not in (_VERSION, _VERSION_WITH_MASKS):
        raise InvalidModelError(f"{path} has model version {shown(version)}; this library reads versions 1 and 2")
    needed = ["sizes", "indices", "probabilities"] if "indptr" in held else ["transitions"]
    needed += [] if "entry_rewards" in held else ["rewards"]
    if missing := [name for name in needed if name not in held]:
        raise InvalidModelError(f"{path} lacks {', '.join(missing)}: {_SCHEMA}")
    if not is_marked:
        warnings.warn(f"{path} has no key 'format'; it is read as {_FORMAT!r}", stacklevel=4)
    return {"start": 0, **held}


def _read_npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        held = {name: archive[name] for name in archive.files if name in _KNOWN}
    return {name: array.tolist() if array.ndim == 0 or name in _NAMES else array for name, array in held.items()}


def _read_json(path: Path) -> dict[str, Any]:
    fields = json.loads(path.read_text(encoding="utf-8"))
    held = {name: fields[name] for name in _KNOWN if name in fields} if isinstance(fields, dict) else {}
    is_array = {name: isinstance(value, list) and name not in _NAMES for name, value in held.items()}
    return {name: np.array(value) if is_array[name] else value for name, value in held.items()}
