"""A sweep as a TOML file.

.. code-block:: toml

    imports = ["my_learners"]       # optional: modules that the workers import first

    [[runs]]                        # each block is the product of its lists
    instance = "risky-bridge"
    horizon = [5, 7]
    method = "kl"
    successors = "model"
    beta = [1.0, 2.0]
    seeds = 5

The keys of a block are the arguments of :func:`~entropic_bpi.experiments.grid`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entropic_bpi.experiments.spec import RunSpec, SweepError, grid

__all__ = ["Sweep", "read_sweep"]

_REQUIRED = ("beta", "seeds")


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a file, and the modules that workers import first."""

    runs: list[RunSpec]
    imports: list[str]


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read and check a sweep; an error says in which line."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise SweepError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SweepError(f"{path}: {error}") from None
    try:
        return _read(content, path.parent)
    except SweepError as error:
        raise SweepError(f"{path}, line {_line(text, error.keys)}: {error}", *error.keys) from None


def _read(content: dict[str, Any], folder: Path) -> Sweep:
    for key in content:
        if key not in ("imports", "runs"):
            raise SweepError(f"unknown key {key!r}: expected imports and [[runs]]", key)
    imports = content.get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(name, str) for name in imports):
        raise SweepError("imports must be a list of module names", "imports")
    blocks = content.get("runs")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise SweepError("a sweep needs at least one block [[runs]]", "runs")
    return Sweep([spec for i, block in enumerate(blocks) for spec in _read_block(block, i, folder)], imports)


def _read_block(block: dict[str, Any], i: int, folder: Path) -> list[RunSpec]:
    for key in _REQUIRED:
        if key not in block:
            raise SweepError(f"this block needs {key}", "runs", i)
    if not isinstance(block.get("params", {}), dict):
        raise SweepError("params must be a table", "runs", i, "params")
    if "folder" in block:
        raise SweepError("unknown key 'folder'", "runs", i, "folder")
    try:
        return grid(folder=folder, **block)
    except SweepError as error:
        keys = error.keys if set(error.keys) <= set(block) else ()
        raise SweepError(str(error), "runs", i, *keys) from None


def _line(text: str, keys: Sequence[str | int]) -> int:
    """The line where the entry starts: after the last beginning of the file that is valid without it."""
    lines, before = text.splitlines(), 0
    for i in range(1, len(lines) + 1):
        try:
            content: Any = tomllib.loads("\n".join(lines[:i]))
        except tomllib.TOMLDecodeError:
            continue
        if _has(content, keys):
            return before + 1
        before = i
    return 1


def _has(content: Any, keys: Sequence[str | int]) -> bool:
    for key in keys:
        try:
            content = content[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
