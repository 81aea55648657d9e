"""A sweep as a TOML file.

.. code-block:: toml

    imports = ["my_learners"]       # optional: modules to import first, from this file's folder or installed

    [[runs]]                        # each block is the product of its lists
    instance = "risky-bridge"
    horizon = [5, 7]
    method = "kl"
    successors = "model"
    beta = [1.0, 2.0]
    seeds = 5

The keys of a block are the arguments of :func:`~entropic_bpi.lab.experiments.grid`.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.experiments.spec import RunSpec, SweepError, grid
from entropic_bpi.lab.experiments.workers import import_modules
from entropic_bpi.tools.checks import check_path

_MAX_BYTES = 1_000_000


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a sweep file, and the modules to import first, here and in every worker.

    Attributes
    ----------
    runs : list of RunSpec
        The runs of all blocks.
    imports : list of str
        Names of modules.
    """

    runs: list[RunSpec]
    imports: list[str]


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read and check a sweep file, and import the modules that it names under ``imports``.

    Parameters
    ----------
    path : path
        A TOML file.

    Returns
    -------
    Sweep
        The runs and the modules.

    Raises
    ------
    SweepError
        If the file is invalid; the message has the number of the block.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from entropic_bpi.lab.experiments import read_sweep
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sweep.toml"
    ...     _ = file.write_text('[[runs]]\\nmethod = "kl"\\nbeta = [1, 2]\\nseeds = 3\\n')
    ...     len(read_sweep(file).runs)
    6
    """
    path = check_path("path", path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"a sweep has at most {_MAX_BYTES} bytes, this one has {path.stat().st_size}")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SweepError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # too long, not UTF-8, not TOML, or endless brackets
        raise SweepError(f"{path}: {error}") from None
    try:
        return _read(content, path.parent)
    except InvalidProblemError as error:
        raise SweepError(f"{path}: {error}") from None


def _read(content: dict[str, Any], folder: Path) -> Sweep:
    for key in content:
        if key not in ("imports", "runs"):
            raise SweepError(f"unknown key {key!r}: expected imports and [[runs]]")
    imports = content.get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(name, str) for name in imports):
        raise SweepError("imports must be a list of module names")
    import_modules(imports, folder)  # before the runs are checked: they may register learners
    blocks = content.get("runs")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise SweepError("a sweep needs at least one block [[runs]]")
    specs = []
    for number, block in enumerate(blocks, 1):
        try:
            for key in ("beta", "seeds"):
                if key not in block:
                    raise SweepError(f"this block needs {key}")
            if "folder" in block:
                raise SweepError("unknown key 'folder'")
            specs += grid(folder=folder, **block)
        except InvalidProblemError as error:
            raise SweepError(f"block {number} [[runs]]: {error}") from None
    return Sweep(specs, imports)
