"""Model files, ``.npz`` or ``.json`` for small models: one schema for both, and safe to read whoever wrote them.

The schema is in the guide "Bring your own MDP", for other programs that write models. A file is a set of named fields.
Only those of the schema are read, and nothing is unpacked before its size is known: a file unpacks to at most its own
size, or to ``_SMALL``. Larger models are therefore not compressed.
"""

import json
import math
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.files import write_atomically, write_text_atomically
from entropic_bpi.tools.text import shown

_FORMAT = "entropic-bpi model"
# Releases that do not know action masks read version 1 alone.
_VERSION, _VERSION_WITH_MASKS = 1, 2
_SMALL = 1 << 25
_JSON_MAX_ENTRIES, _JSON_MAX_BYTES = 200_000, 1 << 23
# More than the header of an array in an archive takes.
_HEADER = 1024

# What a field holds, and how many axes that has; none is a single integer.
_TEXT, _NAMES, _FLAGS, _INTEGERS, _NUMBERS = "text", "names", "booleans", "integers", "real numbers"
_DTYPES = {_FLAGS: "biu", _INTEGERS: "iu", _NUMBERS: "biuf"}
_KINDS: dict[tuple[str, tuple[int, ...]], str] = {
    (_INTEGERS, (0,)): "horizon",
    (_NUMBERS, (0, 1)): "start",
    (_INTEGERS, (1,)): "sizes indptr indices noise_sizes noise_law",
    (_NAMES, (1,)): "state_names action_names noise_labels",
    (_NUMBERS, (1,)): "probabilities",
    (_NUMBERS, (2,)): "entry_rewards",
    (_NUMBERS, (2, 3, 4)): "rewards",
    (_NUMBERS, (3, 4)): "transitions",
    (_FLAGS, (2, 3)): "allowed",
    (_INTEGERS, (2,)): "noise_following",
    (_TEXT, (0,)): "unit title",
}
_FIELDS = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_KNOWN = ("format", "version", *_FIELDS)
_SCHEMA = (
    f"a model file has the keys format ({_FORMAT!r}), version ({_VERSION}), horizon, transitions and rewards; of a sparse "
    "model, sizes, indptr, indices, probabilities and rewards or entry_rewards; and, if wanted, start, allowed, "
    "state_names, action_names, unit and title"
)


def write(path: Path, mdp: FiniteMDP) -> None:
    fields = mdp._fields()
    fields = {"format": _FORMAT, "version": _VERSION_WITH_MASKS if "allowed" in fields else _VERSION, **fields}
    if path.suffix.lower() == ".npz":
        unpacked = sum(np.asarray(value).nbytes + _HEADER for value in fields.values())
        save = np.savez_compressed if unpacked <= _SMALL else np.savez
        write_atomically(path, lambda file: save(file, **fields))
        return
    entries = sum(np.size(value) for value in fields.values())
    if entries > _JSON_MAX_ENTRIES:
        raise InvalidModelError(f"the model has {entries} numbers, too many for .json: save it as .npz")
    text = json.dumps(fields, default=np.ndarray.tolist) + "\n"
    if len(text) > _JSON_MAX_BYTES:
        raise InvalidModelError(f"the model has {len(text)} letters, too many for .json: save it as .npz")
    write_text_atomically(path, text)


def read(path: Path) -> dict[str, Any]:
    """The fields of a model file: arrays, lists of names, and plain numbers; what is in them is for the model to check."""
    try:
        held = _read_npz(path) if path.suffix.lower() == ".npz" else _read_json(path)
        is_marked = "format" in held
        if held.pop("format", _FORMAT) != _FORMAT:
            raise InvalidModelError(f"not a model saved by entropic-bpi: {_SCHEMA}")
        version = held.pop("version", None if is_marked else _VERSION)
        if type(version) is not int or version not in (_VERSION, _VERSION_WITH_MASKS):
            raise InvalidModelError(f"model version {shown(version)}, this library reads versions 1 and 2")
        fields = {name: _checked(name, value) for name, value in held.items()}
    except InvalidModelError as error:
        raise InvalidModelError(f"{path}: {error}") from None
    except Exception as error:  # a foreign or torn file can provoke anything
        raise InvalidModelError(f"{path} is not a readable {path.suffix} file: {error}") from None
    needed = ["sizes", "indices", "probabilities"] if "indptr" in fields else ["transitions"]
    needed += [] if "entry_rewards" in fields else ["rewards"]
    if missing := [name for name in needed if name not in fields]:
        raise InvalidModelError(f"{path} lacks {', '.join(missing)}: {_SCHEMA}")
    if not is_marked:
        warnings.warn(f"{path} has no key format: its arrays are taken for those of {_FORMAT!r}", stacklevel=4)
    return {"start": 0, **fields}


# -- npz -------------------------------------------------------------------------------------------------------------


def _read_npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.removesuffix(".npy") in _KNOWN]
        unpacked, limit = sum(member.file_size for member in members), max(_SMALL, path.stat().st_size)
        if unpacked > limit:
            raise InvalidModelError(f"it would unpack to {unpacked} bytes, more than the {limit} that its size allows")
        return _no_repeats([(each.filename.removesuffix(".npy"), _read_member(archive, each)) for each in members])


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """The array, or single value, of a member; NumPy's own reader would make room for whatever shape the header claims."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("NumPy does not compress in this way")
    with archive.open(member) as stream:
        is_first = np.lib.format.read_magic(stream) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read_header(stream)
        content = stream.read(member.file_size)
    if dtype.hasobject or len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"the content of {member.filename} is not what its header says")
    array = np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")
    return array if array.ndim else array.item()


# -- json ------------------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _JSON_MAX_BYTES:
        raise InvalidModelError(f"it has more than {_JSON_MAX_BYTES} bytes, too many for .json: save it as .npz")
    fields = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_no_repeats)
    return {name: fields[name] for name in _KNOWN if name in fields} if isinstance(fields, dict) else {}


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("it holds a field twice")
    return fields


def _from_lists(name: str, value: list[Any]) -> Any:
    """Numbers in nested lists as an array; NumPy would turn one long word among them into as much room for each."""
    array = np.array(value, dtype=object)
    types = set(map(type, array.flat))
    if list in types:
        raise InvalidModelError(f"{name} has lists of different lengths")
    if types == {bool} and _FIELDS[name][0] == _FLAGS:
        return array.astype(bool)
    return array.astype(np.int64 if types == {int} else np.float64) if types <= {int, float} else value


# -- the schema ------------------------------------------------------------------------------------------------------


def _checked(name: str, value: Any) -> Any:
    """The field if it is of its kind: an integer, a text, a list of names or an array."""
    content, axes = _FIELDS[name]
    field = value.tolist() if content == _NAMES and isinstance(value, np.ndarray) else value
    if content in (_TEXT, _NAMES):
        names = field if content == _NAMES else [field]
        fits = isinstance(names, list) and all(isinstance(each, str) for each in names)
    else:
        field = _from_lists(name, value) if isinstance(value, list) else value
        fits = 0 in axes and type(value) is int
        fits |= isinstance(field, np.ndarray) and field.dtype.kind in _DTYPES[content] and field.ndim in axes
    if fits:
        return field
    expected = [] if 0 not in axes else ["a text" if content == _TEXT else "an integer"]
    if axes != (0,):
        expected.append(f"an array of {content} with {' or '.join(str(n) for n in axes if n)} axes")
    given = f"dtype {value.dtype}, shape {value.shape}" if isinstance(value, np.ndarray) else shown(value)
    raise InvalidModelError(f"{name} must be {' or '.join(expected)}, got {given}")
