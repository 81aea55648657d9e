"""Every block of code in README.md and docs/ runs and prints what is shown; the reference names all that is public.

The blocks of a page share one namespace and one temporary folder, and run in order:

- ``python``: executed, or run as doctests if they begin with ``>>>``;
- ``bash``, ``sh``: run as a script, which must succeed;
- ``console``: each line after ``$`` is run, and the lines below it are what it prints, errors included;
- ``toml``, ``json``: parsed;
- any of them whose first line is a file name in a comment, ``# my.toml``: saved under that name, and nothing else.

A ``text`` block right below a block is what it prints; ``...`` stands for anything. Two comments right above a block change
this: ``<!-- slow: reason -->`` runs it only with ``-m slow``, ``<!-- not run in tests: reason -->`` never.
"""

import contextlib
import doctest
import importlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

import entropic_bpi as eb
from entropic_bpi import methods, plots
from entropic_bpi.lab.learners import _run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "_build", DOCS / "gallery"}
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if not GENERATED & set(p.parents))]
# Pages whose code takes seconds or starts many processes. They are slow tests; .ci/run runs all of them.
LONG = [
    *("certificates", "cluster", "coming-from", "decide", "experiments", "inspect", "known-mechanics", "many-rewards"),
    *("only-a-log", "own-environment", "report", "tutorial", "validation", "write-your-own-learner"),
]
LANGUAGES = {"python", "bash", "sh", "console", "toml", "json"}
LIMIT_SECONDS = 300
SCHEDULER_PORT = "8786"

FENCE = re.compile(
    r"^(?:<!-- (?P<mark>slow|not run(?: in tests)?): [^\n]+ -->\n)?"
    r"```(?P<language>[^\n]*)\n(?P<code>.*?)^```$"
    r"(?:\n+```text\n(?P<shown>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    shown: str | None
    mark: str | None
    line: int

    @property
    def file_name(self):
        found = re.match(r"# ([\w-]+\.\w+)$", self.code.splitlines()[0])
        return found and found[1]


def blocks(page):
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["code"], m["shown"], m["mark"], text.count("\n", 0, m.start("language")) + 1)
        for m in FENCE.finditer(text)
        if m["language"] != "text" and not m["language"].startswith("{")
    ]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def with_code(pages):
    """Pages with something to run; the long ones are slow."""
    long = {DOCS / f"{name}.md" for name in LONG}
    assert long <= set(pages)
    return [pytest.param(page, marks=[pytest.mark.slow] if page in long else []) for page in pages if blocks(page)]


@pytest.mark.parametrize("page", with_code(PAGES), ids=name_of)
def test_the_code_of_a_page_does_what_the_page_shows(page, tmp_path, monkeypatch):
    run_page(page, {None}, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.mark == "slow" for b in blocks(page))], ids=name_of)
def test_the_long_examples_of_a_page_too(page, tmp_path, monkeypatch):
    run_page(page, {None, "slow"}, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_code_hides_from_these_tests(page):
    hidden = r"^[ \t>]+```|^~~~|^[`:]{3,}\{(?:code|code-block|sourcecode|eval-rst|doctest)\b|^````"
    assert not re.search(hidden, page.read_text(encoding="utf-8"), re.MULTILINE)


def run_page(page, marks, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(_run, "_REGISTERED", {})
    monkeypatch.setattr(methods, "_REGISTERED", {})
    loaded = set(sys.modules)
    reader = Reader(page)
    try:
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{reader.place(block)}: nothing runs {block.language!r}"
            if block.mark in marks and not block.code.startswith("pip install"):  # installing is what CI does first
                reader.read(block)
    finally:
        for name in set(sys.modules) - loaded:
            if (folder / f"{name}.py").exists():  # a module that the page made
                del sys.modules[name]


class Reader:
    """Does what a reader of the page would do, in the current folder."""

    def __init__(self, page):
        self.page = page
        self.namespace = {"__name__": "__main__"}
        self.port = free_port()

    def place(self, block):
        return f"{name_of(self.page)}, line {block.line}"

    def read(self, block):
        if block.language == "toml":
            tomllib.loads(block.code)
        if block.language == "json":
            json.loads(block.code)
        if block.file_name:
            Path(block.file_name).write_text(block.code, encoding="utf-8")
        elif block.language == "python" and block.code.startswith(">>>"):
            self.doctest(block)
        elif block.language == "python":
            self.compare(block, self.python(block), block.shown)
        elif block.language in ("bash", "sh"):
            done = self.command(block.code, stderr=subprocess.PIPE)
            assert done.returncode == 0, f"{self.place(block)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            self.compare(block, done.stdout, block.shown)
        elif block.language == "console":
            for command, shown in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", block.code, re.MULTILINE):
                self.compare(block, self.command(command, stderr=subprocess.STDOUT).stdout, shown)

    def python(self, block):
        printed = io.StringIO()
        code = "\n" * block.line + block.code  # so that a traceback names the line of the page
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(self.page), "exec"), self.namespace)
        return printed.getvalue()

    def doctest(self, block):
        test = doctest.DocTestParser().get_doctest(
            block.code, self.namespace, name_of(self.page), str(self.page), block.line
        )
        report = io.StringIO()
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.write, clear_globs=False)
        self.namespace.update(test.globs)
        assert not report.getvalue(), report.getvalue()

    def command(self, script, *, stderr):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace(SCHEDULER_PORT, self.port)],
            env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_SECONDS,
        )

    def compare(self, block, printed, shown):
        if shown is None:
            return
        want, got = ("\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n" for text in (shown, printed))
        same = doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
        assert same, f"{self.place(block)}: it shows\n{want}but it prints\n{got}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def names_in_the_reference():
    """What the ``autosummary`` lists of docs/api name, as (module, name)."""
    for page in (DOCS / "api").glob("*.rst"):
        home = None
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                home = importlib.import_module(line.split()[-1])
            elif home and re.fullmatch(r"   \w+", line):
                yield home, line.strip()


MODULES = [
    eb,
    plots,
    eb.compare,
    eb.events,
    eb.experiments,
    eb.instances,
    eb.learners,
    eb.methods,
    eb.report,
    eb.theory,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_reference_names_everything_public(module):
    listed = {id(getattr(home, name)) for home, name in names_in_the_reference()}
    missing = [name for name in module.__all__ if name != "__version__" and id(getattr(module, name)) not in listed]
    assert [name for name in missing if getattr(module, name) not in MODULES] == []
