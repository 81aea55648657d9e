"""Formulas are drawn when the site is built, by MathJax in a small JavaScript engine, and stand in the pages as SVG.

So pages load nothing to show them, from nowhere, and a formula with a mistake is a warning of the build with its page,
which ``-W`` makes an error. Both packages come with pip: ``sphinx-mathjax-offline`` holds MathJax, ``mini-racer`` runs it.
"""

from __future__ import annotations

import html
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from py_mini_racer import MiniRacer
from sphinx.application import Sphinx
from sphinx.util import logging

STYLE = "maths.css"
_ERROR = re.compile(r'data-mjx-error="([^"]*)"')
_PARTS = ("startup", "core", "adaptors/liteDOM", "input/tex", "output/svg", "output/svg/fonts/tex")
# Unknown commands are errors rather than red letters, and nothing is loaded on demand.
_SETUP = """
var MathJax = {
  loader: {
    paths: {mathjax: ""},
    load: ["adaptors/liteDOM", "input/tex", "output/svg"],
    require: (path) => (0, eval)(files[path])
  },
  startup: {typeset: false},
  tex: {packages: {"[-]": ["noundefined", "autoload", "require"]}},
  svg: {fontCache: "none"}
};
"""
_logger = logging.getLogger(__name__)


class Typesetter:
    """MathJax, started once."""

    def __init__(self) -> None:
        spec = find_spec("sphinx-mathjax-offline")
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent / "static" / "mathjax"
        files = {f"/{part}.js": (folder / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS}
        self._engine = MiniRacer()
        self._engine.eval(f"var files = {json.dumps(files)};")
        self._engine.eval(_SETUP)
        self._engine.eval(files["/startup.js"])
        self.draw = cache(self._draw)

    def _draw(self, formula: str, display: bool) -> str:
        options = json.dumps({"display": display})
        return self._html(f"MathJax.tex2svg({json.dumps(formula)}, {options})")

    def style(self) -> str:
        return self._html("MathJax.svgStylesheet()").split(">", 1)[1].rsplit("<", 1)[0]

    def _html(self, node: str) -> str:
        return str(self._engine.eval(f"MathJax.startup.adaptor.outerHTML({node})"))


@cache
def typesetter() -> Typesetter:
    return Typesetter()


def drawn(formula: str, *, display: bool) -> tuple[str, str | None]:
    """The formula as HTML with its source as a description, and what is wrong with it."""
    picture = typesetter().draw(formula, display)
    error = _ERROR.search(picture)
    label = html.escape(" ".join(formula.split()), quote=True)
    picture = picture.replace("<svg ", f'<svg aria-label="{label}" ', 1)
    return picture, html.unescape(error[1]) if error else None


def _put(writer: Any, node: Any, display: bool) -> None:
    picture, error = drawn(_aligned(node.astext()), display=display)
    if error:
        _logger.warning("maths: %s (in: %s)", error, node.astext(), location=node, type="maths")
    writer.body.append(f'<div class="math">{picture}</div>' if display else picture)
    raise nodes.SkipNode


def inline(writer: Any, node: nodes.math) -> None:
    _put(writer, node, display=False)


def display(writer: Any, node: nodes.math_block) -> None:
    _put(writer, node, display=True)


def _aligned(formula: str) -> str:
    """Lines apart from each other are aligned, as Sphinx promises, unless the formula sees to it itself."""
    several = r"\\" in formula and r"\begin" not in formula
    return rf"\begin{{split}}{formula}\end{{split}}" if several else formula


def write_style(app: Sphinx) -> None:
    if app.builder.format == "html":
        folder = Path(app.outdir) / "_static"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STYLE).write_text(typesetter().style(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("drawn", (inline, None), (display, None))
    app.config.html_math_renderer = "drawn"
    app.add_css_file(STYLE)
    app.connect("builder-inited", write_style)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
