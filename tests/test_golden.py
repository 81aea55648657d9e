"""What a seeded run returns, to the last bit."""

import json

from golden import FILE, results


def test_seeded_results_are_what_they_were():
    ours, frozen = results(), json.loads(FILE.read_text())
    assert ours.keys() == frozen.keys()
    for name, value in ours.items():
        assert value == frozen[name], name
