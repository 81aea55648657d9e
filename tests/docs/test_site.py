"""The documentation site: a wrong formula fails its build, and pages load nothing from elsewhere.

Needs the extra ``docs``; CI runs it after the site is built, with the folder of the site in ``SITE``.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("py_mini_racer")
pytest.importorskip("sphinx")

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_ext"
CONF = f"""
import sys
sys.path.insert(0, {str(EXTENSIONS)!r})
extensions = ["maths"]
"""


def build(folder, text):
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    (folder / "index.rst").write_text(f"Title\n=====\n\n{text}\n", encoding="utf-8")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(folder), str(folder / "out")]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_formulas_stand_in_the_page_as_pictures_with_their_source(tmp_path):
    done = build(tmp_path, "Inline :math:`a<b` and\n\n.. math::\n\n   a &= b\\\\\n   c &= d\n")
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 2
    assert 'aria-label="a&lt;b"' in page
    assert "mjx-container" in (tmp_path / "out" / "_static" / "maths.css").read_text(encoding="utf-8")
    assert "mathjax" not in page


def test_every_wrong_formula_fails_the_build_with_its_line(tmp_path):
    wrong = {
        r"\begin{split}a\\b\tag{K}\end{split}": r"\tag not allowed in split environment",
        r"\nosuchcommand": r"Undefined control sequence \nosuchcommand",
        r"\frac{1": "Missing close brace",
    }
    done = build(tmp_path, "\n".join(f".. math:: {formula}\n" for formula in wrong))
    assert done.returncode == 1
    assert re.findall(r"index\.rst:\d+: WARNING: maths: (.*?) \(in: ", done.stderr) == list(wrong.values())


@pytest.mark.skipif("SITE" not in os.environ, reason="no site was built")
def test_pages_load_nothing_from_elsewhere():
    pages = list(Path(os.environ["SITE"]).rglob("*.html"))
    assert len(pages) > 20
    loaded = re.compile(
        r'<(?:script|img|iframe|link(?=[^>]*rel="(?:stylesheet|preload)"))[^>]*(?:src|href)="(?:https?:)?//'
    )
    for page in pages:
        assert not loaded.search(page.read_text(encoding="utf-8")), page
