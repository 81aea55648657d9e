"""What the README shows is what happens."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_python_example_prints_what_is_shown():
    (code,), (shown,) = blocks("python"), blocks("text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == shown


def test_there_are_two_commands_and_one_of_them_runs_the_tests():
    run, test = blocks("sh")
    assert re.fullmatch(r"pip install \. && entropic-bpi identify .*\n", run)
    assert re.fullmatch(r"pip install -e '\.\[test\]' && python -m pytest.*\n", test)
