"""Settings of the documentation. Build it with ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import os
import sys
from pathlib import Path

import matplotlib

from entropic_bpi import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
# Dates in the pages come from here when the environment does not set it, so that two builds give the same files.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600")
matplotlib.use("agg")

project = "entropic-bpi"
author = "The entropic-bpi developers"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "cli_reference",
    "maths",
]
exclude_patterns = ["_build", "data", "examples", "**/sg_execution_times.rst", "sg_execution_times.rst"]
templates_path = ["_templates"]
nitpicky = True

html_theme = "furo"
html_title = f"entropic-bpi {release}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_theme_options = {
    "footer_icons": [
        {"name": "The paper (PMLR 336)", "url": "https://proceedings.mlr.press/v336/essakine26a.html", "html": "paper"},
    ],
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # NumPy-style docstrings say it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("figure_scraper.figures",),
    "capture_repr": (),
    "reset_modules": (),
    "plot_gallery": True,
    "abort_on_example_error": True,
    "parallel": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
}
