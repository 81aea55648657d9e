"""Imports go downwards: no part of the library knows of one above it, and none of itself by a detour."""

import ast
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import entropic_bpi

PACKAGE = Path(entropic_bpi.__file__).parent

# From the bottom to the top, as docs/architecture.md draws them. A folder may import those before it, never those after.
LAYERS = [
    *("errors", "types", "_version", "environments", "tools", "compile", "model", "problem", "sources", "methods"),
    *("verification", "certificate", "runs", "show", "lab", "theory", "cli", "lab.commands", "__init__", "__main__"),
]
HEIGHT = {part: height for height, part in enumerate(LAYERS)}


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def part_of(module):
    if module.startswith("entropic_bpi.lab.commands"):
        return "lab.commands"
    return module.split(".")[1] if "." in module else "__init__"


def imports_of(path):
    """Modules of the library that a file imports, anywhere in it, except for type checkers alone."""
    tree = ast.parse(path.read_text())
    for_types = {
        node
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and isinstance(test.test, ast.Name) and test.test.id == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("entropic_bpi"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


@cache
def graph():
    """What each module imports; parsing all of them takes seconds, which collecting the tests need not."""
    return {module: set(imports_of(path)) - {module} for module, path in MODULES.items()}


def test_every_part_has_its_place():
    assert {part_of(module) for module in MODULES} <= set(HEIGHT)


@pytest.mark.parametrize("module", MODULES)
def test_no_import_goes_upwards(module):
    # The command line and the workers of a comparison use the public names, as a user would. The application of the
    # command line loads the commands of the lab, which are built from its other modules.
    own = HEIGHT["lab.commands" if module == "entropic_bpi.cli.app" else part_of(module)]
    above = [other for other in graph()[module] if other != "entropic_bpi" and HEIGHT[part_of(other)] > own]
    assert above == []


def test_no_import_goes_in_circles():
    packages = {module: {other for other in graph()[module] if other != "entropic_bpi"} for module in graph()}
    order = list(TopologicalSorter(packages).static_order())  # raises if there is a circle
    assert set(order) >= set(graph()) - {"entropic_bpi"}


def test_the_verifier_knows_nothing_but_the_errors():
    known = {other for module in graph() if part_of(module) == "verification" for other in graph()[module]}
    assert {part_of(other) for other in known} <= {"errors", "verification"}


# -- sizes -------------------------------------------------------------------------------------------------------------

COMMANDS = ("cli", "lab.commands")  # a parameter for every option
MANY_PARAMETERS = {("runs/identification.py", "identify"), ("sources/log.py", "read")}


@pytest.mark.parametrize("module", MODULES)
def test_files_have_at_most_500_lines(module):
    assert len(MODULES[module].read_text().splitlines()) <= 500


def test_folders_have_at_most_14_files():
    folders = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in MODULES.values())
    assert {name: files for name, files in folders.items() if files > 14} == {}


@pytest.mark.parametrize("module", MODULES)
def test_functions_have_at_most_10_parameters(module):
    name = MODULES[module].relative_to(PACKAGE).as_posix()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if part_of(module) in COMMANDS or not isinstance(node, ast.FunctionDef):
            continue
        if (name, node.name) not in MANY_PARAMETERS:
            given = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            assert len([one for one in given if one not in ("self", "cls")]) <= 10, node.name
