"""Docstrings of everything public follow numpydoc: sections, names of parameters, and examples, which other tests run.

The checks, by their codes in ``numpydoc.validate``: there is a docstring (GL08) with a summary (SS01) that ends with a
period (SS03) and is not in the third person (SS05); Parameters are complete (PR01), exist (PR02), are in order (PR03), and
have a type (PR04) and a description (PR07); there are Returns (RT01) with a description (RT03), and Examples (EX01).

Most classes are results, which users do not construct: they may have Attributes instead of Parameters, one for each field.
"""

import dataclasses
import inspect

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import entropic_bpi as eb

CHECKS = {"GL08", "SS01", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT03", "EX01"}
MODULES = (eb, eb.instances, eb.plots, eb.report, eb.theory)


def of_class(kind):
    """The methods of a class, with those of its bases in the library."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("entropic_bpi")]
    members = {name: member for base in bases for name, member in vars(base).items()}
    return [name for name, member in members.items() if name[0] != "_" and callable(getattr(kind, name)) and member]


def public():
    for module in MODULES:
        for thing in (getattr(module, name) for name in module.__all__):
            if inspect.isfunction(thing) or inspect.isclass(thing):
                name = f"{thing.__module__}.{thing.__qualname__}"
                yield name, thing
                methods = of_class(thing) if inspect.isclass(thing) else []
                yield from ((f"{name}.{method}", getattr(thing, method)) for method in methods)


PUBLIC = dict(public())


def fields_of(thing):
    return (
        {one.name for one in dataclasses.fields(thing) if one.name[0] != "_"}
        if dataclasses.is_dataclass(thing)
        else set()
    )


def names(section):
    return {name.strip().lstrip("*") for entry in section for name in entry.name.split(",")}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_docstring_is_complete(name):
    thing, checks = PUBLIC[name], set(CHECKS)
    attributes = NumpyDocString(inspect.getdoc(thing))["Attributes"] if inspect.isclass(thing) else []
    if attributes:
        checks.remove("PR01")
        fields = fields_of(thing) - set().union(
            *map(fields_of, thing.__bases__)
        )  # those of a base are documented there
        assert fields | set(getattr(thing, "_fields", ())) <= names(attributes)
    assert [error for error in validate(name)["errors"] if error[0] in checks] == []


def test_all_functions_and_classes_are_found():
    assert {"entropic_bpi.runs.identification.identify", "entropic_bpi.sources.log.Log.read"} <= set(PUBLIC)
    assert len(PUBLIC) > 100
