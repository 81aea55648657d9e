"""Shows the figures of a gallery example, which are made without pyplot, as the library makes its own."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

_shown: WeakSet[Figure] = WeakSet()


def figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save every figure that a variable of the example holds and that was not saved before."""
    paths = []
    for value in block_vars["example_globals"].values():
        if isinstance(value, Figure) and value not in _shown:
            _shown.add(value)
            paths.append(next(block_vars["image_path_iterator"]))
            value.savefig(paths[-1], dpi=150)
    return figure_rst(paths, gallery_conf["src_dir"])
