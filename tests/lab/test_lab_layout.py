"""The lab stays easy to read: short files, small folders, few parameters, and one meaning for a class name."""

import ast
from collections import Counter
from pathlib import Path

from entropic_bpi import lab

FILES = sorted(Path(lab.__file__).parent.rglob("*.py"))


def nodes(kind):
    return [(path, node) for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kind)]


def test_no_file_has_more_than_500_lines():
    assert [path for path in FILES if len(path.read_text().splitlines()) > 500] == []


def test_no_folder_has_more_than_14_files():
    assert {folder: number for folder, number in Counter(path.parent for path in FILES).items() if number > 14} == {}


def test_no_function_has_more_than_10_parameters():
    crowded = [
        (path.name, function.name)
        for path, function in nodes((ast.FunctionDef, ast.AsyncFunctionDef))
        if path.parent.name != "commands"  # where every option is a parameter
        and len([*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]) > 10
    ]
    assert crowded == []


def test_no_two_classes_have_the_same_name():
    names = Counter(node.name for _, node in nodes(ast.ClassDef))
    assert [name for name, number in names.items() if number > 1] == []
