"""The README has two commands, to run and to test; what its other blocks do is checked with the rest of the pages."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_there_are_two_commands_and_one_of_them_runs_the_tests():
    run, test = re.findall(r"^```sh\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert re.fullmatch(r"pip install \. && entropic-bpi identify .*\n", run)
    assert re.fullmatch(r"pip install -e '\.\[test\]' && python -m pytest.*\n", test)
