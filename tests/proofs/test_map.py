"""The README of the proofs names every theorem whose axioms are checked, and functions and sections that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "proofs" / "README.md").read_text()
THEORIES = {path.stem: path.read_text() for path in sorted((ROOT / "proofs" / "theories").glob("*.v"))}
CHECKED = re.findall(r"^Print Assumptions (\w+)\.$", THEORIES["Assumptions"], re.MULTILINE)
TABLE = README.partition("## From theorem to code")[2]


def test_every_checked_theorem_is_mapped_and_every_mapped_one_is_checked():
    rows = [line.split("|")[1] for line in TABLE.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(CHECKED)


def test_every_checked_theorem_is_proved_once():
    for name in CHECKED:
        stated = [
            f for f, text in THEORIES.items() if re.search(rf"^(Theorem|Corollary|Lemma) {name}\b", text, re.MULTILINE)
        ]
        assert len(stated) == 1, (name, stated)


def test_all_files_are_compiled_and_described():
    project = re.findall(r"theories/(\w+)\.v", (ROOT / "proofs" / "_CoqProject").read_text())
    assert sorted([*project, "Assumptions"]) == sorted(THEORIES)
    described = README.partition("## Files")[2].partition("## From theorem to code")[0]
    names = [name for row in re.findall(r"^\| ([A-Z][\w, ]+) \|", described, re.MULTILINE) for name in row.split(", ")]
    assert sorted(names) == sorted(project)


def test_the_functions_that_are_named_exist():
    named = re.findall(r"`([\w/]+\.py):(\w+)`", README)
    assert len(named) > 20
    for path, name in named:
        source = (ROOT / "src" / "entropic_bpi" / path).read_text()
        assert re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), (path, name)


def test_the_sections_that_are_named_exist():
    page = (ROOT / "docs" / "theory" / "kl-method.md").read_text().replace("$\\beta$", "β")
    headings = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    rows = [line.split("|")[3].strip() for line in TABLE.splitlines() if line.startswith("| `")]
    assert {section for section in rows if section and "index.md" not in section} <= headings


def test_the_page_names_theorems_that_exist():
    page = (ROOT / "docs" / "theory" / "proved.md").read_text()
    chain = page.partition("## The chain")[2].partition("## The main theorem")[0]
    rows = [line.split("|")[3] for line in chain.splitlines() if line.startswith("|") and "machine-checked |" in line]
    theorems = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(theorems) > 8
    assert set(theorems) <= set(CHECKED)
