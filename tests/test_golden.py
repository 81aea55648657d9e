"""What seeded runs return, on every processor: see :mod:`golden`."""

import json

import pytest
from golden import CASES, FILE, differences, entry

FROZEN = json.loads(FILE.read_text())


def test_every_case_has_its_entry():
    assert list(CASES) == list(FROZEN)


def test_every_difference_is_found_but_those_of_the_last_digits():
    frozen = {"episodes": 700, "bounds": [1.0, 2.0], "policy": "4fe7"}
    assert differences({**frozen, "bounds": [1 + 1e-13, 2 - 1e-13]}, frozen) == []
    found = differences({"episodes": 701, "bounds": [1 + 1e-11, 2.0], "policy": "4fe8"}, frozen)
    assert [text.split(" is ")[0] for text in found] == ["['episodes']", "['bounds'][0]", "['policy']"]
    for changed in ({"episodes": 700}, {**frozen, "bounds": [1.0]}, {**frozen, "episodes": 700.0001}):
        assert len(differences(changed, frozen)) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_seeded_run_returns_what_it_did(name):
    assert differences(entry(name), FROZEN[name]) == []


@pytest.mark.parametrize("factor", [1 - 1e-12, 1 + 1e-12])
@pytest.mark.parametrize("name", CASES)
def test_no_decision_of_a_run_is_so_close_to_a_tie_that_rounding_could_settle_it(name, factor):
    """Otherwise what the run returns could differ from processor to processor, and would be the wrong thing to freeze."""
    assert differences(entry(name, factor), FROZEN[name], relative=1e-9) == []
