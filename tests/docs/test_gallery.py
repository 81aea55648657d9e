"""The practical problems of the gallery, in short versions: each runs, and its certificate is verified."""

import runpy
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import entropic_bpi as eb

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PROBLEMS = sorted(EXAMPLES.glob("plot_2*.py"))


def test_there_are_four_of_them():
    assert [path.stem.split("_", 2)[2] for path in PROBLEMS] == ["inventory", "replacement", "american_put", "queue"]


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_a_practical_problem_ends_with_a_certificate_in_words_and_a_picture(path, monkeypatch, capsys):
    identify = eb.identify
    monkeypatch.setattr(eb, "identify", lambda *args, **options: identify(*args, **options, max_episodes=300))
    names = runpy.run_path(str(path))
    claim = names["claim"]
    assert eb.verify(claim).ok
    printed = capsys.readouterr().out
    assert f"worth at least {claim.lower:.2f}" in printed
    assert f"worth more than {claim.upper:.2f}" in printed
    assert isinstance(names["figure"], Figure)
    assert names["figure"].axes[0].collections


@pytest.mark.slow
@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_a_practical_problem_is_certified(path):
    names = runpy.run_path(str(path))
    assert names["result"].stopped
    assert names["claim"].gap <= names["claim"].eps
    assert eb.verify(names["claim"]).ok
